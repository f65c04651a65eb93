//! The options of a run, as the command line gives them.

use std::path::PathBuf;

/// The source of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capture {
    /// `-r`: a capture file or a directory of them.
    File(PathBuf),
    /// `--erf-in`: a file in Endace's format.
    Erf(PathBuf),
    /// `-i`: these interfaces, with AF_PACKET.
    Interfaces(Vec<String>),
    /// `--af-packet`: these interfaces; if empty, those of the configuration.
    AfPacket(Vec<String>),
    /// `--af-xdp`: these interfaces; if empty, those of the configuration.
    AfXdp(Vec<String>),
    /// `--pcap`: these interfaces; if empty, those of the configuration.
    Pcap(Vec<String>),
    /// `-q`: these netfilter queues, in the order given.
    Nfqueue(Vec<u16>),
    /// `--unix-socket`: capture files that clients submit on this socket; `None` for the configured socket.
    UnixSocket(Option<PathBuf>),
    /// An option that Suricata has and this program lacks (`--dpdk`), and its values.
    Foreign(&'static str, Vec<String>),
}

/// `-k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Check all.
    All,
    /// Check none.
    None,
}

/// `-s` and `-S`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum RuleFiles {
    /// Those of the configuration.
    #[default]
    Configured,
    /// `-s`: these besides those of the configuration. May be a pattern (`*.rules`).
    Added(String),
    /// `-S`: these and no others. May be a pattern.
    Exclusive(String),
}

/// `--strict-rule-keywords`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strict {
    /// All keywords for which strict parsing exists.
    All,
    /// These keywords.
    Keywords(Vec<String>),
}

/// All options of a run; empty, `false` or `None` if an option was not given.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// `-c`: the configuration.
    pub config: Option<PathBuf>,
    /// `--include`: files read after the main file, in this order.
    pub includes: Vec<PathBuf>,
    /// `--set`: `name=value`, in this order.
    pub sets: Vec<String>,
    /// `-l`: the log folder.
    pub log_dir: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// `-T`: test the configuration and the rules, and exit.
    pub test: bool,
    /// `--dump-config`: print the settings, and exit.
    pub dump_config: bool,
    /// `--engine-analysis`: write reports on the rules, and exit.
    pub engine_analysis: bool,
    /// The source of packets. A run has only one.
    pub capture: Option<Capture>,
    /// `--pcap-file-continuous`.
    pub pcap_file_continuous: bool,
    /// `--pcap-file-recursive`.
    pub pcap_file_recursive: bool,
    /// `--pcap-preload`.
    pub pcap_preload: bool,
    /// `--pcap-file-delete`.
    pub pcap_file_delete: bool,
    /// `--pcap-file-buffer-size`, in bytes, 4 KiB to 64 MiB.
    pub pcap_file_buffer_size: Option<u64>,
    /// `--pcap-buffer-size`, in bytes, at most 2147483647.
    pub pcap_buffer_size: Option<u64>,
    /// `--pfring-cluster-id`.
    pub pfring_cluster_id: Option<String>,
    /// `--pfring-cluster-type`.
    pub pfring_cluster_type: Option<String>,
    /// `--capture-plugin-args`.
    pub capture_plugin_args: Option<String>,
    /// `-F`: the file with the BPF filter.
    pub filter_file: Option<PathBuf>,
    /// The BPF filter: the words after the options, joined by blanks.
    pub filter: Option<String>,
    /// `-k`.
    pub checksums: Option<Checksums>,
    /// `-s`, `-S`.
    pub rules: RuleFiles,
    /// `--firewall`.
    pub firewall: bool,
    /// `--firewall-rules-exclusive`.
    pub firewall_rules: Option<PathBuf>,
    /// `--init-errors-fatal`.
    pub init_errors_fatal: bool,
    /// `--strict-rule-keywords`.
    pub strict_rule_keywords: Option<Strict>,
    /// `--disable-detection`.
    pub disable_detection: bool,
    /// `--disable-hashing`.
    pub disable_hashing: bool,
    /// `--runmode`.
    pub runmode: Option<String>,
    /// `--simulate-ips`.
    pub simulate_ips: bool,
    /// `--reject-dev`.
    pub reject_dev: Option<String>,
    /// `-D`.
    pub daemon: bool,
    /// `--pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `--web`: an address and a port.
    pub web: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// `--group`.
    pub group: Option<String>,
    /// `--no-cache`.
    pub no_cache: bool,
    /// `--no-random`.
    pub no_random: bool,
    /// How often `-v` was given.
    pub verbose: u8,
}
