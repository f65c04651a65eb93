//! Settings of TLS (`app-layer.protocols.tls:`), and of its section in an `eve-log`.

use std::path::{Path, PathBuf};

use margay_app::tls::{Config as TlsConfig, Encryption, Field, Fields, LogOptions};
use margay_config::{Config, ConfigError, Node};

use super::wrong;

/// Path of TLS's settings.
const TLS: &str = "app-layer.protocols.tls";

/// Users of fingerprints, for the setting `auto`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JaWants {
    /// Rules use JA3 or JA3S.
    pub(crate) ja3: bool,
    /// Rules use JA4, or a log shows it.
    pub(crate) ja4: bool,
    /// Rules or scripts use HASSH.
    pub(crate) hassh: bool,
}

/// The settings of TLS.
///
/// # Errors
/// An unknown word.
pub(crate) fn tls(config: &Config, wants: JaWants) -> Result<TlsConfig, ConfigError> {
    let path = format!("{TLS}.encryption-handling");
    let encryption = match config.get(&path) {
        None | Some("" | "default" | "track-only") => Encryption::TrackOnly,
        Some("bypass") => Encryption::Bypass,
        Some("full") => Encryption::Full,
        Some(other) => {
            return Err(wrong(
                config,
                &path,
                &format!("\"{other}\" is none of track-only (also: default), bypass and full"),
            ));
        }
    };
    Ok(TlsConfig {
        encryption,
        ja3: fingerprints(config, "ja3-fingerprints", wants.ja3)?,
        ja4: fingerprints(config, "ja4-fingerprints", wants.ja4)?,
    })
}

/// yes, no, or auto: if they are `wanted`, because rules, logs or scripts use them.
///
/// # Errors
/// An invalid value.
pub(crate) fn fingerprints(config: &Config, key: &str, wanted: bool) -> Result<bool, ConfigError> {
    let path = format!("{TLS}.{key}");
    match config.get(&path) {
        None | Some("" | "auto") => Ok(wanted),
        Some(_) => Ok(config.bool(&path)?.unwrap_or(wanted)),
    }
}

/// The folder of `outputs: - tls-store:` if it is enabled; a relative one is below the log folder.
///
/// # Errors
/// An invalid value.
pub(crate) fn certificate_folder(config: &Config, log_dir: &Path) -> Result<Option<PathBuf>, ConfigError> {
    for item in config.node("outputs").iter().flat_map(Node::children) {
        if let ("tls-store", Some(node)) = item.entry()
            && node.bool("enabled")?.unwrap_or(false)
        {
            return Ok(Some(node.get("certs-log-dir").map_or_else(|| log_dir.to_owned(), |d| log_dir.join(d))));
        }
    }
    Ok(None)
}

/// The `tls` section of an `eve-log`.
///
/// # Errors
/// An invalid value.
pub(super) fn log(node: Node<'_>, warnings: &mut Vec<String>) -> Result<LogOptions, ConfigError> {
    let mut fields = if node.bool("extended")?.unwrap_or(false) { Fields::EXTENDED } else { Fields::BASIC };
    if let Some(custom) = node.node("custom") {
        fields = Fields::default();
        for name in custom.values() {
            match Field::NAMES.iter().find(|f| f.0.eq_ignore_ascii_case(name)) {
                Some((_, f)) => fields = fields.with(*f),
                None => {
                    let names: Vec<_> = Field::NAMES.iter().map(|f| f.0).collect();
                    warnings.push(format!(
                        "{}: custom: \"{name}\" is no field of the tls log and is left out; there are {}",
                        custom.place(),
                        names.join(", ")
                    ));
                }
            }
        }
    }
    // The extended log and a custom one that names JA4 show it if it is computed (`ja4-fingerprints`).
    let asked = node.bool("ja4")?;
    if asked == Some(false) {
        fields = fields.without(Field::Ja4);
    }
    let asks_ja4 = asked == Some(true) && fields.has(Field::Ja4);
    Ok(LogOptions { fields, asks_ja4, resumed: node.bool("session-resumption")?.unwrap_or(true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, wants: JaWants) -> Result<TlsConfig, ConfigError> {
        let text = format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    tls:\n      enabled: yes\n{text}");
        tls(&Config::from_str(&text, "t").unwrap(), wants)
    }

    #[test]
    fn settings() {
        let none = JaWants::default();
        let c = read("", none).unwrap();
        assert_eq!((c.encryption, c.ja3, c.ja4), (Encryption::TrackOnly, false, false));
        let c = read("      encryption-handling: bypass\n      ja3-fingerprints: yes\n", none).unwrap();
        assert_eq!((c.encryption, c.ja3, c.ja4), (Encryption::Bypass, true, false));
        let all = JaWants { ja3: true, ja4: true, hassh: true };
        let c = read("      ja3-fingerprints: no\n      ja4-fingerprints: auto\n", all).unwrap();
        assert_eq!((c.ja3, c.ja4), (false, true));
        for (line, word) in [("encryption-handling: some", "some"), ("ja3-fingerprints: perhaps", "perhaps")] {
            let e = read(&format!("      {line}\n"), none).unwrap_err();
            assert!(e.to_string().contains(word), "{e}");
        }
    }

    #[test]
    fn where_certificates_go() {
        let folder = |text: &str| {
            let config = Config::from_str(&format!("%YAML 1.1\n---\noutputs:\n  - tls-store:\n{text}"), "t").unwrap();
            certificate_folder(&config, Path::new("logs")).unwrap()
        };
        assert_eq!(folder("      enabled: no\n      certs-log-dir: certs\n"), None);
        assert_eq!(folder("      enabled: yes\n"), Some("logs".into()));
        assert_eq!(folder("      enabled: yes\n      certs-log-dir: certs\n"), Some("logs/certs".into()));
    }

    #[test]
    fn fields_of_the_log() {
        let mut warnings = Vec::new();
        let mut read = |text: &str| {
            let config = Config::from_str(&format!("%YAML 1.1\n---\ntls:\n{text}"), "t").unwrap();
            let options = log(config.node("tls").unwrap(), &mut warnings).unwrap();
            (options, std::mem::take(&mut warnings))
        };
        let (o, w) = read("  extended: yes\n");
        assert!(o.fields.has(Field::Sni) && !o.fields.has(Field::Chain) && w.is_empty());
        assert!(o.fields.has(Field::Ja4) && !o.asks_ja4);
        for (text, shown) in [
            ("extended: no", false),
            ("extended: yes\n  ja4: no", false),
            ("custom: [sni, ja4]", true),
            ("custom: [sni]", false),
            ("custom: [sni, ja4]\n  ja4: no", false),
        ] {
            assert_eq!(read(&format!("  {text}\n")).0.fields.has(Field::Ja4), shown, "{text}");
        }
        assert!(read("  extended: yes\n  ja4: yes\n").0.asks_ja4);
        let (o, w) = read("  extended: yes\n  ja4: on\n  custom: [sni, foo, ja4]\n  session-resumption: no\n");
        assert_eq!(o.fields, Fields::of(&[Field::Sni, Field::Ja4]));
        assert!(!o.resumed);
        assert!(w.len() == 1 && w[0].contains("\"foo\""), "{w:?}");
    }
}
