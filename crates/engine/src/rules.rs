//! Reading rules and the files that go with them, and saying what could not be read.

use std::path::{Path, PathBuf};

use margay_config::{Config, RuleFiles, RunOptions, Strict};
use margay_rules::{Context, StrictKeywords};

/// The rule files that a run asks for: those of `-S`, or those of the configuration and of `-s`.
///
/// A name without a folder is looked for in `default-rule-path`; a pattern (`*.rules`) stands for every file that fits.
/// The second list has the names and patterns that fit no file.
pub(crate) fn files(config: &Config, options: &RunOptions) -> (Vec<PathBuf>, Vec<String>) {
    let mut named: Vec<(String, bool)> = Vec::new();
    if !matches!(options.rules, RuleFiles::Exclusive(_))
        && let Some(list) = config.node("rule-files")
    {
        named.extend(list.values().map(|v| (v.to_owned(), true)));
    }
    match &options.rules {
        RuleFiles::Configured => {}
        RuleFiles::Added(f) | RuleFiles::Exclusive(f) => named.push((f.clone(), false)),
    }
    let folder = config.get("default-rule-path").unwrap_or("/etc/suricata/rules");
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (name, configured) in named {
        let path = if configured && !Path::new(&name).is_absolute() {
            Path::new(folder).join(&name)
        } else {
            PathBuf::from(&name)
        };
        let before = found.len();
        if path.exists() {
            found.push(path);
        } else {
            expand(&path, &mut found);
            if found.len() == before {
                missing.push(path.display().to_string());
            }
        }
    }
    (found, missing)
}

/// Adds the files that fit a pattern in the last part of `path`, in order of name.
fn expand(path: &Path, out: &mut Vec<PathBuf>) {
    let Some(pattern) = path.file_name().and_then(|n| n.to_str()) else { return };
    if !pattern.contains(['*', '?']) {
        return;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(|n| fits(pattern.as_bytes(), n.as_bytes())))
        .map(|e| e.path())
        .filter(|p| p.is_file())
        .collect();
    names.sort();
    out.append(&mut names);
}

/// Whether `name` fits a pattern with `*` and `?`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // The place to come back to: after the last `*`, and what it had swallowed.
    let (mut p, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match back {
                Some((bp, bn)) => {
                    p = bp;
                    n = bn + 1;
                    back = Some((bp, bn + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// What rules may refer to, from the configuration and the command line; classes and references come later.
pub(crate) fn context(config: &Config, options: &RunOptions, ips: bool) -> Context {
    let strict = match &options.strict_rule_keywords {
        None => StrictKeywords::None,
        Some(Strict::All) => StrictKeywords::All,
        Some(Strict::Keywords(k)) => StrictKeywords::List(k.iter().cloned().collect()),
    };
    Context {
        addresses: config.address_groups().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        ports: config.port_groups().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        strict,
        available: ["iprep", "nfq"].into_iter().map(str::to_owned).collect(),
        inline: ips,
        ..Context::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("*.rules", "a.rules", true),
            ("*.rules", "a.rule", false),
            ("a?c*", "abcde", true),
            ("*a*a*", "banana", true),
            ("a", "a", true),
            ("?", "", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), want, "{pattern} {name}");
        }
    }
}
