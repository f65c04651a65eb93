//! The configuration that is shipped.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use margay_config::Config;
use std::path::Path;

fn shipped() -> Config {
    Config::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/margay.yaml")).unwrap()
}

#[test]
fn the_default_configuration_is_read_without_remarks() {
    assert_eq!(shipped().notes(), &[]);
}

#[test]
fn outputs_are_where_people_expect_them() {
    // Others address them by number: --set outputs.1.eve-log.types.2.anomaly.types.stream=yes
    let config = shipped();
    assert_eq!(config.get("outputs.0"), Some("fast"));
    assert_eq!(config.get("outputs.1"), Some("eve-log"));
    assert_eq!(config.get("outputs.1.eve-log.types.0"), Some("alert"));
    assert_eq!(config.get("outputs.1.eve-log.types.2"), Some("anomaly"));
    assert_eq!(config.bool("outputs.1.eve-log.types.2.anomaly.types.applayer"), Ok(Some(true)));
    assert_eq!(config.bool("outputs.1.eve-log.types.2.anomaly.types.stream"), Ok(Some(false)));
}

#[test]
fn sizes_and_numbers_can_be_read() {
    let config = shipped();
    assert_eq!(config.size("stream.reassembly.depth"), Ok(Some(1 << 20)));
    assert_eq!(config.size("flow.memcap"), Ok(Some(128 << 20)));
    assert_eq!(config.int("flow-timeouts.tcp.established"), Ok(Some(600)));
    assert_eq!(config.float("threading.detect-thread-ratio"), Ok(Some(1.0)));
    assert_eq!(config.address_groups().next(), Some(("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]")));
}

#[test]
fn nothing_in_it_is_unknown() {
    let unknown: Vec<String> = shipped().unknown_keys().iter().map(ToString::to_string).collect();
    assert_eq!(unknown, [""; 0]);
}
