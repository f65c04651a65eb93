//! `datasets:`: configured datasets, and the settings of all datasets.

use std::path::PathBuf;

use margay_config::{Config, ConfigError, Node, RunOptions};
use margay_detect::dataset::DatasetsConfig;
use margay_rules::ast::{SetFormat, SetOptions};

use super::{flag, number, size};

/// The default folder of saved state (`--data-dir`).
const DATA_DIR: &str = "/var/lib/margay/data";
/// Entries of `datasets:` that are not datasets.
const OTHERS: [&str; 5] = ["defaults", "limits", "rules", "enabled", "save-directory"];

/// The settings of all datasets. With `strict`, a dataset with an invalid entry is not used.
///
/// # Errors
/// An invalid value.
pub(crate) fn datasets(config: &Config, options: &RunOptions, strict: bool) -> Result<DatasetsConfig, ConfigError> {
    let d = DatasetsConfig::default();
    let hashes = |path: &str, default: u64| -> Result<u64, ConfigError> {
        Ok(match config.int(path)? {
            None => default,
            Some(_) => number::<u32>(config, path, 0)?.into(),
        })
    };
    let data_dir =
        options.data_dir.clone().unwrap_or_else(|| PathBuf::from(config.get("data-dir").unwrap_or(DATA_DIR)));
    Ok(DatasetsConfig {
        data_dir,
        memcap: size(config, "datasets.defaults.memcap", d.memcap)?,
        hashsize: hashes("datasets.defaults.hashsize", d.hashsize)?,
        single_hashsize: hashes("datasets.limits.single-hashsize", d.single_hashsize)?,
        total_hashsizes: hashes("datasets.limits.total-hashsizes", d.total_hashsizes)?,
        allow_absolute: flag(config, "datasets.rules.allow-absolute-filenames", d.allow_absolute)?,
        allow_write: flag(config, "datasets.rules.allow-write", d.allow_write)?,
        strict,
    })
}

/// The configured datasets.
///
/// # Errors
/// An invalid value, or `state` together with `load` or `save`.
pub(crate) fn configured_sets(config: &Config) -> Result<Vec<(String, SetOptions)>, ConfigError> {
    let mut sets = Vec::new();
    for item in config.node("datasets").iter().flat_map(Node::children) {
        // By name, or in a list, as in older configurations.
        let (name, node) = match item.name().bytes().all(|b| b.is_ascii_digit()) {
            true => match item.entry() {
                (name, Some(node)) => (name, node),
                _ => continue,
            },
            false => (item.name(), item),
        };
        if !OTHERS.contains(&name) && node.children().next().is_some() {
            sets.push((name.to_owned(), set(name, node)?));
        }
    }
    Ok(sets)
}

fn set(name: &str, node: Node<'_>) -> Result<SetOptions, ConfigError> {
    let mut options = SetOptions::default();
    for child in node.children() {
        // Rules use underscores, while configuration keys have hyphens.
        let key = child.name().replace('-', "_");
        let key = key.as_str();
        // This is a boolean here, but a word in rules.
        if key == "remove_key" {
            options.remove_key = margay_config::typed::parse_bool(child.text())
                .map_err(|e| child.error(format!("dataset {name}: {e}")))?;
            continue;
        }
        options.set(key, child.text().trim()).map_err(|e| child.error(format!("dataset {name}: {e}")))?;
    }
    if options.state.is_some() && (options.load.is_some() || options.save.is_some()) {
        return Err(node.error(format!("dataset {name}: 'state' can not be mixed with 'load' and 'save'")));
    }
    if options.format != SetFormat::Csv && options.value_key.is_none() {
        return Err(node.error(format!("dataset {name}: files in JSON need value_key")));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rules::ast::SetKind;

    fn config(text: &str) -> Config {
        Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t.yaml").expect("a configuration")
    }

    #[test]
    fn sets_of_the_configuration() {
        let c = config(
            "datasets:\n  defaults:\n    memcap: 10mb\n  rules:\n    allow-write: no\n  ua:\n    type: string\n    state: ua.lst\n    hashsize: 10\n",
        );
        let d = datasets(&c, &RunOptions::default(), true).expect("settings");
        assert_eq!((d.memcap, d.allow_write, d.strict), (10 << 20, false, true));
        let sets = configured_sets(&c).expect("sets");
        assert_eq!(sets.len(), 1);
        assert_eq!((sets[0].0.as_str(), sets[0].1.kind), ("ua", Some(SetKind::String)));
        assert_eq!((sets[0].1.state.as_deref(), sets[0].1.hashsize), (Some("ua.lst"), Some(10)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in ["type: foo", "state: a\n    load: b", "format: json", "hashsize: many"] {
            assert!(configured_sets(&config(&format!("datasets:\n  x:\n    {bad}\n"))).is_err(), "{bad}");
        }
    }
}
