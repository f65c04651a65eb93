//! `classification.config` and `reference.config`.

use std::sync::Arc;

use crate::ast::Class;
use crate::error::{ConfigProblem, Severity};
use crate::loader::problem;

/// Limit of the entries of each file.
const ENTRIES_MAX: usize = 100_000;

/// A URL prefix of `reference.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The system, in lower case: `cve`.
    pub system: String,
    /// The prefix that turns a reference's text into a URL.
    pub prefix: String,
}

/// The lines that are neither empty nor comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines()
        .enumerate()
        .map(|(n, l)| (u32::try_from(n + 1).unwrap_or(u32::MAX), l.trim()))
        .filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
}

/// The text after `config <kind>:`.
fn entry<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let rest = line.strip_prefix("config")?;
    let rest = rest.strip_prefix(|c: char| c.is_ascii_whitespace())?.trim_start().strip_prefix(kind)?;
    rest.trim_start().strip_prefix(':').map(str::trim)
}

fn word(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphanumeric())
        && s.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// Parses `classification.config`. Of two entries with the same name, the first counts. Invalid lines are errors; the
/// others still count.
pub fn parse_classification(text: &str, name: &str) -> (Vec<Class>, Vec<ConfigProblem>) {
    let file: Arc<str> = Arc::from(name);
    let (mut out, mut problems): (Vec<Class>, _) = (Vec::new(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for (n, line) in lines(text) {
        let parsed = entry(line, "classification").and_then(|e| {
            // The description may have commas: the priority is behind the last one.
            let (class, rest) = e.split_once(',')?;
            let (description, priority) = rest.rsplit_once(',')?;
            let (class, description, priority) = (class.trim(), description.trim(), priority.trim());
            let priority = crate::number::decimal(priority, u64::from(u32::MAX))? as u32;
            (word(class) && !description.is_empty()).then(|| Class {
                name: Arc::from(class.to_ascii_lowercase()),
                description: Arc::from(description),
                priority,
            })
        });
        match parsed {
            Some(c) if out.len() < ENTRIES_MAX => {
                if seen.insert(c.name.clone()) {
                    out.push(c);
                }
            }
            _ => problems.push(problem(
                &file,
                n,
                Severity::Error,
                "classification-config",
                format!("Invalid Classtype in classification.config file {name}: \"{line}\""),
            )),
        }
    }
    (out, problems)
}

/// Parses `reference.config`. Of two entries with the same system, the first counts. Invalid lines are errors; the
/// others still count.
pub fn parse_references(text: &str, name: &str) -> (Vec<Reference>, Vec<ConfigProblem>) {
    let file: Arc<str> = Arc::from(name);
    let (mut out, mut problems): (Vec<Reference>, _) = (Vec::new(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for (n, line) in lines(text) {
        let parsed = entry(line, "reference").and_then(|e| {
            let (system, prefix) = e.split_once(|c: char| c.is_ascii_whitespace())?;
            let prefix = prefix.split_ascii_whitespace().next()?;
            word(system).then(|| Reference { system: system.to_ascii_lowercase(), prefix: prefix.to_owned() })
        });
        match parsed {
            Some(r) if out.len() < ENTRIES_MAX => {
                if seen.insert(r.system.clone()) {
                    out.push(r);
                }
            }
            _ => problems.push(problem(
                &file,
                n,
                Severity::Error,
                "reference-config",
                format!("Invalid Reference Config in reference.config file {name}: \"{line}\""),
            )),
        }
    }
    (out, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let text = "# comment\nconfig classification: misc-activity,Misc activity,3\n\nthis is not correct\n\
                    config classification:trojan-activity,A Network Trojan was detected, 1\nconfig classification: a,b\n\
                    config classification: A b,c,1\nconfig classification: misc-activity,Again,1\n";
        let (c, p) = parse_classification(text, "x");
        assert_eq!(c.len(), 2);
        assert_eq!((&*c[0].name, &*c[0].description, c[0].priority), ("misc-activity", "Misc activity", 3));
        assert_eq!(c[1].priority, 1);
        assert_eq!(p.iter().map(|p| p.place.line).collect::<Vec<_>>(), [4, 6, 7]);
        assert!(p[0].message.text.starts_with("Invalid Classtype in classification.config file x"));
    }

    #[test]
    fn a_description_may_have_commas() {
        let (c, p) = parse_classification("config classification: com,With, comma,300\n", "x");
        assert!(p.is_empty());
        assert_eq!((&*c[0].name, &*c[0].description, c[0].priority), ("com", "With, comma", 300));
    }

    #[test]
    fn references() {
        let text = "config reference: cve       https://cve.example/?name=\r\nconfig reference: url\tx\n\
                    config reference: a\nconfig reference a b\njunk\n";
        let (r, p) = parse_references(text, "x");
        assert_eq!(
            r,
            [
                Reference { system: "cve".into(), prefix: "https://cve.example/?name=".into() },
                Reference { system: "url".into(), prefix: "x".into() }
            ]
        );
        assert_eq!(p.len(), 3);
        assert!(p[0].message.text.starts_with("Invalid Reference Config in reference.config file"));
    }
}
