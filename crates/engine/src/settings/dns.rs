//! The `dns` section of an `eve-log`, and obsolete settings of `app-layer.protocols.dns`.

use margay_app::dns::{LogOptions, Version, rrtype};
use margay_config::{ConfigError, Node};

/// Selects the default version, as in Suricata.
const VERSION_ENV: &str = "SURICATA_EVE_DNS_VERSION";

/// Reads the `dns` section of an `eve-log`.
///
/// # Errors
/// An invalid value.
pub(super) fn log(node: Option<Node<'_>>, warnings: &mut Vec<String>) -> Result<LogOptions, ConfigError> {
    let default = std::env::var(VERSION_ENV).ok();
    log_with(node, default.as_deref(), warnings)
}

fn log_with(
    node: Option<Node<'_>>,
    default: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<LogOptions, ConfigError> {
    let mut o = LogOptions::default();
    match default {
        None | Some("" | "3") => {}
        Some("2") => o.version = Version::V2,
        Some(other) => warnings
            .push(format!("{VERSION_ENV}: \"{other}\" is no version of dns events; there are 2 and 3, and 3 is used")),
    }
    let Some(node) = node else { return Ok(o) };
    match node.get("version") {
        None | Some("") => {}
        Some("2") => o.version = Version::V2,
        Some("3") => o.version = Version::V3,
        Some(other) => warnings.push(format!(
            "{}: dns: version: \"{other}\" is no version of dns events; there are 2 and 3, and {} is used",
            at(node, "version").place(),
            if o.version == Version::V2 { 2 } else { 3 },
        )),
    }
    o.requests = renamed(node, "query", "requests", warnings)?;
    o.responses = renamed(node, "answer", "responses", warnings)?;
    if let Some(formats) = node.node("formats").filter(|n| n.values().any(|v| !v.is_empty())) {
        (o.detailed, o.grouped) = (false, false);
        for format in formats.values() {
            match format {
                "detailed" => o.detailed = true,
                "grouped" => o.grouped = true,
                other => warnings.push(format!(
                    "{}: dns: formats: \"{other}\" is none of detailed and grouped, and is left out",
                    formats.place()
                )),
            }
        }
        if !o.detailed && !o.grouped {
            warnings.push(format!("{}: dns: formats has none that there is: both are used", formats.place()));
            (o.detailed, o.grouped) = (true, true);
        }
    }
    let custom = node.node("custom");
    if let Some(c) = custom {
        warnings.push(format!("{}: dns: custom is called types now", c.place()));
    }
    if let Some(types) = node.node("types").or(custom).filter(|n| n.values().any(|v| !v.is_empty())) {
        let mut wanted = Vec::new();
        for name in types.values() {
            match rrtype::from_name(name).or_else(|| name.parse().ok()) {
                Some(t) => wanted.push(t),
                None => warnings.push(format!(
                    "{}: dns: types: \"{name}\" is no type of records and is left out; write a name or a number",
                    types.place()
                )),
            }
        }
        o.types = Some(wanted);
    }
    Ok(o)
}

/// A switch that is on by default, under its current or its old name.
fn renamed(node: Node<'_>, old: &str, new: &str, warnings: &mut Vec<String>) -> Result<bool, ConfigError> {
    if let Some(n) = node.child(old) {
        warnings.push(format!("{}: dns: {old} is called {new} now", n.place()));
    }
    Ok(node.bool(new)?.or(node.bool(old)?).unwrap_or(true))
}

fn at<'a>(node: Node<'a>, name: &str) -> Node<'a> {
    node.child(name).unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use margay_config::Config;

    use super::*;

    fn read(dns: &str, default: Option<&str>) -> (LogOptions, Vec<String>) {
        let mut warnings = Vec::new();
        let config = Config::from_str(&format!("%YAML 1.1\n---\ndns:\n{dns}"), "t").unwrap();
        let options = log_with(config.node("dns"), default, &mut warnings).unwrap();
        (options, warnings)
    }

    #[test]
    fn reads_what_is_shown() {
        let (o, w) = read("  version: 2\n  responses: no\n  formats: [grouped]\n  types: [a, AAAA, 300]\n", None);
        assert_eq!((o.version, o.requests, o.responses), (Version::V2, true, false));
        assert_eq!((o.detailed, o.grouped, o.types), (false, true, Some(vec![1, 28, 300])));
        assert!(w.is_empty(), "{w:?}");
        let (o, w) = read("  formats:\n  types: []\n", Some("2"));
        assert_eq!((o.version, o.detailed, o.grouped, o.types), (Version::V2, true, true, None));
        assert!(w.is_empty(), "{w:?}");
        let (o, w) = read("  query: no\n  custom: [mx, nothing]\n  formats: [short]\n", Some("1"));
        assert_eq!((o.version, o.requests, o.types), (Version::V3, false, Some(vec![15])));
        assert_eq!(w.len(), 6, "{w:?}");
    }

    #[test]
    fn other_versions() {
        let (o, w) = read("  version: 1\n  formats: [short]\n", Some("2"));
        assert_eq!((o.version, o.detailed, o.grouped), (Version::V2, true, true));
        assert_eq!(w.len(), 3, "{w:?}");
        assert!(w[0].contains("there are 2 and 3, and 2 is used"), "{}", w[0]);
    }
}
