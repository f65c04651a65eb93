//! Settings that nobody knows: most likely misspelt, and worth a word.

use crate::error::{Level, Note};
use crate::tree::{Config, Node};
use std::collections::HashMap;
use std::sync::OnceLock;

/// The names that may stand below a known one.
#[derive(Default)]
struct Known {
    below: HashMap<&'static str, Known>,
    /// Anything may stand below.
    all: bool,
}

impl Known {
    fn add(&mut self, path: &'static str) {
        match path.split_once('.') {
            _ if path == "**" => self.all = true,
            Some((first, rest)) => self.below.entry(first).or_default().add(rest),
            None => {
                self.below.entry(path).or_default();
            }
        }
    }
}

/// The list as a tree, made at the first call.
fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut root = Known::default();
        for line in include_str!("known-keys.txt").lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(':') {
                None => line.split_whitespace().for_each(|name| root.add(name)),
                Some((path, names)) => {
                    let at = path.trim().split('.').fold(&mut root, |at, name| at.below.entry(name).or_default());
                    names.split_whitespace().for_each(|name| at.add(name));
                }
            }
        }
        root
    })
}

impl Config {
    /// The settings that Suricata 8 has no use for, each with its place; of a section only its top. They are no
    /// errors: say them and go on.
    pub fn unknown_keys(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut path = String::new();
        check(self.root(), &[known()], &mut path, &mut notes);
        notes
    }
}

/// Compares the children of `node` with what may stand below it: a node may be known by more than one line (`*`).
fn check(node: Node<'_>, known: &[&'static Known], path: &mut String, notes: &mut Vec<Note>) {
    for child in node.children() {
        if notes.len() >= 1000 {
            return;
        }
        let name = child.name();
        let index = name.bytes().all(|b| b.is_ascii_digit());
        // A value in a list: what it may be is its reader's business.
        if index && child.children().next().is_none() {
            continue;
        }
        let kind = if index { "#" } else { "*" };
        let mut below: Vec<&Known> =
            known.iter().flat_map(|k| [k.below.get(name), k.below.get(kind)]).flatten().collect();
        if !below.is_empty() {
            below.extend(known.iter().filter_map(|k| k.below.get("?")));
        }
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        if below.is_empty() {
            let message = format!("nothing knows the setting '{path}'; is it misspelt?");
            notes.push(Note { level: Level::Warning, place: child.place(), message });
        } else if !below.iter().any(|k| k.all) {
            check(child, &below, path, notes);
        }
        path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(text: &str) -> Vec<String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t.yaml").unwrap();
        config.unknown_keys().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn misspelt_settings_are_named_with_their_place() {
        assert_eq!(
            unknown("stream:\n  memcap: 1\n  memkap: 2\nfoobar:\n  a: 1\n  b: {c: 2}\n"),
            [
                "t.yaml:5:3: nothing knows the setting 'stream.memkap'; is it misspelt?",
                "t.yaml:6:1: nothing knows the setting 'foobar'; is it misspelt?",
            ]
        );
    }

    #[test]
    fn settings_in_lists_are_checked() {
        let text = "outputs:\n  - eve-log:\n      types:\n        - ftp\n        - http:\n            extended: yes\n            extendet: yes\n";
        assert_eq!(
            unknown(text),
            ["t.yaml:9:13: nothing knows the setting 'outputs.0.eve-log.types.1.http.extendet'; is it misspelt?"]
        );
    }

    #[test]
    fn what_every_protocol_has_does_not_make_a_protocol() {
        assert_eq!(unknown("app-layer: {protocols: {htpp: {enabled: no}, sip: {enabled: no}}}\n").len(), 1);
    }

    #[test]
    fn wildcards() {
        assert!(unknown("vars: {address-groups: {WHATEVER: any}}\ndpdk: {eal-params: {a: {b: 1}}}\n").is_empty());
        assert!(unknown("host-os-policy: {windows: [0.0.0.0/0]}\nrule-files: [a, b]\n").is_empty());
    }

    #[test]
    fn the_command_line_is_checked_too() {
        let mut config = Config::new();
        config.set("stream.midstraem=true").unwrap();
        assert_eq!(
            config.unknown_keys()[0].to_string(),
            "--set: nothing knows the setting 'stream.midstraem'; is it misspelt?"
        );
    }
}
