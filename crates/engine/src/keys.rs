//! The keys for hashing packet data. The process has one set, because flows move between workers' tables.

use std::sync::OnceLock;

use margay_config::{Capture, RunOptions};
use margay_flow::HashKey;

/// The keys of hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashKeys {
    /// For tables: random, except with `--no-random`.
    pub(crate) table: HashKey,
    /// For flow ids: random for live capture. For a capture file, they are the same in every run.
    pub(crate) ids: HashKey,
}

impl HashKeys {
    /// The keys of a run.
    pub(crate) fn of(options: &RunOptions) -> HashKeys {
        static RANDOM: OnceLock<[HashKey; 2]> = OnceLock::new();
        let fixed = HashKey::fixed(0);
        if options.no_random {
            return HashKeys { table: fixed, ids: fixed };
        }
        let [table, ids] = *RANDOM.get_or_init(|| [HashKey::random(), HashKey::random()]);
        HashKeys { table, ids: if reads_files(options) { fixed } else { ids } }
    }
}

/// Whether packets come from capture files, which wait for the engine.
pub(crate) fn reads_files(options: &RunOptions) -> bool {
    matches!(options.capture, None | Some(Capture::File(_) | Capture::Erf(_) | Capture::UnixSocket(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_where_nobody_asks_for_repeatable_ones() {
        let of = |capture: Option<Capture>, no_random| {
            HashKeys::of(&RunOptions { capture, no_random, ..RunOptions::default() })
        };
        let live = || Some(Capture::Interfaces(vec!["eth0".into()]));
        let file = || Some(Capture::File("a.pcap".into()));
        let fixed = HashKey::fixed(0);
        for capture in [live(), file()] {
            let keys = of(capture.clone(), true);
            assert_eq!((keys.table, keys.ids), (fixed, fixed));
            assert_ne!(of(capture.clone(), false).table, fixed);
            assert_eq!(of(capture.clone(), false), of(capture, false), "all workers have the same");
        }
        assert_ne!(of(live(), false).ids, fixed);
        assert_eq!(of(file(), false).ids, fixed);
    }
}
