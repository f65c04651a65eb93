//! Settings of SSH (`app-layer.protocols.ssh:`).

use margay_app::ssh::{Config as SshConfig, EncryptionHandling};
use margay_config::{Config, ConfigError};

use super::wrong;

/// SSH's settings; `asked` says whether a rule or a script uses fingerprints.
///
/// # Errors
/// An invalid value.
pub(crate) fn ssh(config: &Config, asked: bool) -> Result<SshConfig, ConfigError> {
    const HASSH: &str = "app-layer.protocols.ssh.hassh";
    const ENCRYPTION: &str = "app-layer.protocols.ssh.encryption-handling";
    let hassh = match config.get(HASSH) {
        None | Some("" | "auto") => asked,
        Some(_) => config.bool(HASSH)?.unwrap_or(asked),
    };
    let encryption = match config.get(ENCRYPTION) {
        None | Some("" | "track-only") => EncryptionHandling::TrackOnly,
        Some("bypass") => EncryptionHandling::Bypass,
        Some("full") => EncryptionHandling::Full,
        Some(other) => {
            return Err(wrong(
                config,
                ENCRYPTION,
                &format!("\"{other}\" is none; there are track-only, bypass and full"),
            ));
        }
    };
    Ok(SshConfig { hassh, encryption })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &str, asked: bool) -> Result<SshConfig, ConfigError> {
        let text = format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    ssh:\n      enabled: yes\n{settings}");
        ssh(&Config::from_str(&text, "t").unwrap(), asked)
    }

    #[test]
    fn fingerprints() {
        for (settings, asked, want) in [
            ("", false, false),
            ("", true, true),
            ("      hassh: auto\n", true, true),
            ("      hassh: no\n", true, false),
            ("      hassh: yes\n", false, true),
        ] {
            assert_eq!(read(settings, asked).unwrap().hassh, want, "{settings} {asked}");
        }
        assert!(read("      hassh: perhaps\n", true).is_err());
    }

    #[test]
    fn encryption() {
        use EncryptionHandling::{Bypass, Full, TrackOnly};
        for (value, want) in [("track-only", TrackOnly), ("bypass", Bypass), ("full", Full)] {
            assert_eq!(read(&format!("      encryption-handling: {value}\n"), false).unwrap().encryption, want);
        }
        let e = read("      encryption-handling: off\n", false).unwrap_err();
        assert!(e.to_string().contains("track-only") && e.place.line == 7, "{e}");
    }
}
