//! The configuration without a file, and the tables that rules need.
//!
//! The program carries the files that it is shipped with, so that it runs where nothing was installed.

use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::tree::{BUILT_IN, Config};

/// The shipped configuration, as a file.
pub const CONFIGURATION: &str = include_str!("../../../etc/margay.yaml");
/// The shipped classes of rules (`classification.config`).
pub const CLASSIFICATION: &str = include_str!("../../../etc/classification.config");
/// The shipped systems of references (`reference.config`).
pub const REFERENCES: &str = include_str!("../../../etc/reference.config");

/// Settings that replace those of the shipped configuration if no configuration is named. The run then writes only to its log
/// folder (the current folder, or that of `-l`), and reads only files that the command line names.
const INSTEAD: &str = "%YAML 1.1
---
default-log-dir:
classification-file:
reference-config-file:
detect.sgh-mpm-caching: no
";

impl Config {
    /// The configuration of a run that names none: the shipped one, with logs in the current folder, the built-in classes and
    /// references, no cache on disk, and the rules in its `default-rule-path` only if any of them exists. `--set` overrides
    /// it, and the files of `--include` are read after it.
    ///
    /// # Errors
    /// As [`Config::load_with`], for `includes` and `sets`.
    pub fn built_in<P: AsRef<Path>>(includes: &[P], sets: &[String]) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        for setting in sets {
            config.set(setting)?;
        }
        config.read_str(CONFIGURATION, BUILT_IN)?;
        config.read_str(INSTEAD, BUILT_IN)?;
        let folder = config.get("default-rule-path").map(PathBuf::from).unwrap_or_default();
        let there = config.node("rule-files").is_some_and(|n| n.values().any(|file| folder.join(file).exists()));
        if !there && !sets.iter().any(|s| s.starts_with("rule-files")) {
            config.read_str("%YAML 1.1\n---\nrule-files: []\n", BUILT_IN)?;
        }
        // Overriding its own defaults is not worth a note.
        config.notes.clear();
        for include in includes {
            config.read_file(include)?;
        }
        Ok(config)
    }

    /// Whether no file was named: [`Config::built_in`].
    pub fn is_built_in(&self) -> bool {
        self.files.get(1).is_some_and(|f| &**f == BUILT_IN)
    }

    /// The folder of the main file; `None` if the configuration is built in or was read from text.
    pub fn folder(&self) -> Option<&Path> {
        let main = self.files().next().map(Path::new)?;
        main.is_file().then(|| main.parent()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_nowhere_but_to_its_logs() {
        let config = Config::built_in(&[] as &[PathBuf], &[]).unwrap();
        assert!(config.is_built_in() && config.folder().is_none());
        assert_eq!(config.files().count(), 0);
        assert_eq!(config.notes(), &[]);
        for path in ["default-log-dir", "classification-file", "reference-config-file"] {
            assert_eq!(config.get(path), None, "{path}");
        }
        assert_eq!(config.bool("detect.sgh-mpm-caching"), Ok(Some(false)));
        // Other settings of the same section stay.
        assert_eq!(config.get("detect.profile"), Some("medium"));
        assert_eq!(config.get("outputs.1"), Some("eve-log"));
    }

    #[test]
    fn the_command_line_wins() {
        let sets = ["default-log-dir=/a".to_owned(), "rule-files.0=x.rules".to_owned()];
        let config = Config::built_in(&[] as &[PathBuf], &sets).unwrap();
        assert_eq!(config.get("default-log-dir"), Some("/a"));
        assert_eq!(config.get("rule-files.0"), Some("x.rules"));
        assert!(Config::built_in(&[Path::new("/no/such/file")], &[]).is_err());
    }
}
