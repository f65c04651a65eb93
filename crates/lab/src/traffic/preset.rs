//! Profiles that come with the program.

use std::fmt::Write as _;
use std::path::Path;

use margay_config::Yaml;

use super::kinds::Kind;
use super::profile::{Profile, What};

/// Names and YAML texts.
const PRESETS: &[(&str, &str)] = &[
    ("office", include_str!("presets/office.yaml")),
    ("elephant", include_str!("presets/elephant.yaml")),
    ("flow-storm", include_str!("presets/flow-storm.yaml")),
    ("syn-flood", include_str!("presets/syn-flood.yaml")),
    ("udp64", include_str!("presets/udp64.yaml")),
    ("fragments", include_str!("presets/fragments.yaml")),
    ("out-of-order", include_str!("presets/out-of-order.yaml")),
    ("loss", include_str!("presets/loss.yaml")),
    ("everything-alerts", include_str!("presets/everything-alerts.yaml")),
    ("alert-storm", include_str!("presets/alert-storm.yaml")),
    ("attacks", include_str!("presets/attacks.yaml")),
    ("ipv6", include_str!("presets/ipv6.yaml")),
];

/// The text of a preset.
pub(crate) fn text(name: &str) -> Result<&'static str, String> {
    PRESETS.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|(n, _)| *n).collect();
        format!("there is no preset '{name}'; there are {}", names.join(", "))
    })
}

/// Loads a preset. The response of an elephant fills a capture file of `size` bytes.
pub(crate) fn load(name: &str, size: Option<u64>) -> Result<Profile, String> {
    let yaml = Yaml::parse(text(name)?, &format!("preset {name}")).map_err(|e| e.to_string())?;
    let mut profile = Profile::read(&yaml, Path::new(""), name.to_owned()).map_err(|e| e.to_string())?;
    for s in &mut profile.sources {
        if let (What::Kind(Kind::Elephant, options), Some(size)) = (&mut s.what, size) {
            // Headers and acknowledgements are about a sixteenth of the file.
            options.bytes = Some(size / 16 * 15);
        }
    }
    Ok(profile)
}

/// A list of the presets, each with its first line.
pub(crate) fn list() -> String {
    let mut out = String::new();
    for (name, text) in PRESETS {
        let _ = writeln!(out, "{name:18} {}", text.lines().next().unwrap_or("").trim_start_matches("# "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_reads() {
        for (name, _) in PRESETS {
            let profile = load(name, None).unwrap();
            assert!(!profile.sources.is_empty(), "{name}");
        }
        assert!(load("nothing", None).unwrap_err().contains("elephant"));
    }
}
