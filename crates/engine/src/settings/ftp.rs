//! `app-layer.protocols.ftp:`.

use margay_app::ftp::Config as FtpConfig;
use margay_config::{Config, ConfigError};
use margay_output::warning;

const FTP: &str = "app-layer.protocols.ftp";

/// FTP's settings. An invalid value causes a warning, and the default applies.
pub(super) fn ftp(config: &Config) -> FtpConfig {
    let mut ftp = FtpConfig::default();
    let Some(node) = config.node(FTP) else { return ftp };
    let size = |name: &str| read(name, node.size(name));
    if let Some(v) = size("memcap") {
        ftp.memcap = v;
    }
    if let Some(v) = size("max-line-length") {
        match u32::try_from(v) {
            Ok(v) if v > 0 => ftp.max_line = v,
            _ => invalid("max-line-length", &format!("{v} is not between 1 and 4 GB"), &ftp.max_line),
        }
    }
    if let Some(v) = read("max-tx", node.int("max-tx")) {
        match u32::try_from(v) {
            Ok(v) => ftp.max_tx = v,
            Err(_) => invalid("max-tx", &format!("{v} is out of range"), &ftp.max_tx),
        }
    }
    ftp
}

fn read<T>(name: &str, value: Result<Option<T>, ConfigError>) -> Option<T> {
    value.unwrap_or_else(|e| {
        warning!("ftp", "Invalid value for ftp.{name}: {e}; the default holds");
        None
    })
}

fn invalid(name: &str, reason: &str, default: &u32) {
    warning!("ftp", "Invalid value for ftp.{name}: {reason}; the default of {default} holds");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> FtpConfig {
        ftp(&Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t").unwrap())
    }

    #[test]
    fn reads() {
        let c =
            of("app-layer:\n  protocols:\n    ftp:\n      memcap: 1mb\n      max-line-length: 5kb\n      max-tx: 3\n");
        assert_eq!(c, FtpConfig { memcap: 1 << 20, max_line: 5120, max_tx: 3 });
        assert_eq!(of(""), FtpConfig::default());
    }

    #[test]
    fn what_cannot_be_read_is_not_fatal() {
        let c =
            of("app-layer:\n  protocols:\n    ftp:\n      memcap: much\n      max-line-length: 0\n      max-tx: -1\n");
        assert_eq!(c, FtpConfig::default());
    }
}
