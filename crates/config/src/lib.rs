//! A Suricata-compatible YAML file and command line.
