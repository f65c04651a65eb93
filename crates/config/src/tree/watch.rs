//! An observer of reads, for tests: every setting that the program reads must be in the table.

use super::Config;
use crate::keys;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The observer.
#[derive(Clone, Debug, Default)]
pub(crate) enum Watch {
    #[default]
    Nobody,
    /// Reading a setting without a row in the table is an error in the program.
    Check,
    /// Records every read.
    Note(Reads),
}

/// The settings read from a configuration and its clones, by path.
#[derive(Clone, Debug, Default)]
pub struct Reads(Arc<Mutex<BTreeSet<String>>>);

impl Reads {
    /// The paths so far, with `#` for items of lists.
    pub fn paths(&self) -> BTreeSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Config {
    /// In debug builds, reading a setting that is not in the table stops the program: the reference would lack it, and a
    /// user who sets it would get the warning for unknown settings.
    pub fn check_reads(&mut self) {
        if cfg!(debug_assertions) {
            self.watch = Watch::Check;
        }
    }

    /// Records the reads of this configuration from now on.
    pub fn note_reads(&mut self) -> Reads {
        let reads = Reads::default();
        self.watch = Watch::Note(reads.clone());
        reads
    }

    /// Records a read of `path` below a node.
    pub(crate) fn asked(&self, id: u32, path: &str) {
        if let Watch::Nobody = self.watch {
            return;
        }
        let mut full = self.path_of(id);
        if !full.is_empty() {
            full.push('.');
        }
        full.push_str(path);
        match &self.watch {
            Watch::Nobody => {}
            Watch::Check => assert!(
                keys::is_known(&full),
                "the setting {full} is asked for and has no row in crates/config/src/keys"
            ),
            Watch::Note(reads) => {
                reads.0.lock().unwrap_or_else(PoisonError::into_inner).insert(full);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_noted_with_its_place() {
        let mut config =
            Config::from_str("%YAML 1.1\n---\na: {b: 1}\noutputs:\n  - fast: {enabled: yes}\n", "t").unwrap();
        let reads = config.note_reads();
        assert_eq!(config.int("a.b"), Ok(Some(1)));
        assert_eq!(config.get("a.c.d"), None);
        let item = config.node("outputs").and_then(|n| n.children().next()).unwrap();
        item.entry().1.unwrap().bool("enabled").unwrap();
        let paths: Vec<String> = reads.paths().into_iter().collect();
        assert_eq!(paths, ["a.b", "a.c.d", "outputs", "outputs.#.fast.enabled"]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "stream.memkap is asked for")]
    fn what_is_not_in_the_table_is_not_asked_for() {
        let mut config = Config::new();
        config.check_reads();
        assert_eq!(config.get("stream.memcap"), None);
        config.get("stream.memkap");
    }
}
