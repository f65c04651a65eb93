//! The shipped configuration, `etc/margay.yaml`.

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
    // Scripts address outputs by number: --set outputs.1.eve-log.types.2.anomaly.types.stream=yes
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

/// Settings of Suricata's own configurations.
fn of_suricata() -> impl Iterator<Item = &'static str> {
    include_str!("suricata-keys.txt").lines().filter(|l| !l.starts_with('#'))
}

#[test]
fn every_setting_of_suricata_has_a_row() {
    let missing: Vec<&str> = of_suricata().filter(|path| !margay_config::keys::is_known(path)).collect();
    assert_eq!(missing, [""; 0]);
    assert!(of_suricata().count() > 900);
}

/// The shipped configuration with its commented settings on. A line with a `#` right before a name begins such a setting, and
/// the lines below it with a `#` and at least two blanks belong to it. A `#` and one blank begin prose.
fn with_comments() -> Config {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/margay.yaml")).unwrap();
    // The example's included files do not exist.
    let text = text.replace("#include:", "# include:");
    let mut out = String::new();
    let mut block = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let Some(rest) = line.trim_start().strip_prefix('#') else {
            block = None;
            out.push_str(&format!("{line}\n"));
            continue;
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            block = Some(indent);
        } else if !rest.starts_with("  ") {
            block = None;
        }
        if block == Some(indent) {
            out.push_str(&format!("{:indent$}{rest}\n", ""));
        }
    }
    Config::from_str(&out, "margay.yaml with its comments").unwrap()
}

#[test]
fn the_shipped_configuration_shows_every_setting_that_acts() {
    let config = with_comments();
    let mut shown = std::collections::HashSet::new();
    paths(config.root(), "", &mut |path| {
        if let Some(row) = margay_config::keys::row(path) {
            shown.insert(row.path);
        }
    });
    assert_eq!(config.unknown_keys(), []);
    let hidden = |row: &&margay_config::keys::Key| {
        row.effect == margay_config::keys::Effect::Acts && !shown.contains(row.path) && !ELSEWHERE.contains(&row.path)
    };
    let missing: Vec<&str> = margay_config::keys::all().filter(hidden).map(|row| row.path).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_shipped_configuration_shows_nothing_without_effect() {
    let mut shown = Vec::new();
    paths(with_comments().root(), "", &mut |path| {
        let row = margay_config::keys::row(path);
        // Exempt are notes for the reader, with any value: the file's release, and words before a tenant's settings.
        if let Some(row) = row.filter(|r| r.effect != margay_config::keys::Effect::Acts && r.default != "*") {
            shown.push(row.path);
        }
    });
    assert_eq!(shown, [""; 0]);
}

/// Settings that act but are not shown, because they are other names or places of shown settings.
const ELSEWHERE: &[&str] = &[
    "include",
    "outputs.#.file-store.force-md5",
    "outputs.#.<written>.type",
    "outputs.#.stats.zero-valued-counters",
    "outputs.#.eve-log.types.#.alert.reference",
    "outputs.#.eve-log.types.#.http.xff.enabled",
    "outputs.#.eve-log.types.#.http.xff.mode",
    "outputs.#.eve-log.types.#.http.xff.deployment",
    "outputs.#.eve-log.types.#.http.xff.header",
    "outputs.#.eve-log.types.#.files.force-md5",
    "outputs.#.eve-log.types.#.files.xff.enabled",
    "outputs.#.eve-log.types.#.files.xff.mode",
    "outputs.#.eve-log.types.#.files.xff.deployment",
    "outputs.#.eve-log.types.#.files.xff.header",
    "outputs.#.eve-log.types.#.dns.query",
    "outputs.#.eve-log.types.#.dns.answer",
    "outputs.#.eve-log.types.#.dns.custom",
    "outputs.#.eve-log.types.#.stats.zero-valued-counters",
    "datasets.*.enrichment-key",
    "detect.grouping.tcp-whitelist",
    "detect.grouping.udp-whitelist",
    "multi-detect.#",
];

fn paths(node: margay_config::Node<'_>, above: &str, found: &mut dyn FnMut(&str)) {
    for child in node.children() {
        let path = if above.is_empty() { child.name().to_owned() } else { format!("{above}.{}", child.name()) };
        found(&path);
        // A plain name in a list is a section without settings.
        if child.children().next().is_none() && child.name().bytes().all(|b| b.is_ascii_digit()) {
            found(&format!("{path}.{}.enabled", child.text()));
        }
        paths(child, &path, found);
    }
}
