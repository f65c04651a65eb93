//! A cache of judgements of short values.
//!
//! A judgement reads a value as a program would, which takes microseconds, and most values repeat: agents, referrers,
//! names. The result depends only on the value's bytes. A lookup compares the whole value, and a miss replaces another
//! entry.

use std::hash::{BuildHasher, RandomState};

use margay_meaning::Judge;

use crate::prefilter::place_of;

/// Number of cache entries: 64 KiB.
const VALUES: usize = 512;
/// Longest cached value.
const LONGEST: usize = 125;

/// Recent judgements, for one worker.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// Empty until the first judgement.
    values: Vec<Verdict>,
    /// A random seed, so that nobody can choose values that always evict each other.
    seed: u64,
}

/// An entry takes two CPU cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Verdict {
    judge: Option<Judge>,
    holds: bool,
    len: u8,
    bytes: [u8; LONGEST],
}

const _: () = assert!(size_of::<Verdict>() == 128);

const NOTHING: Verdict = Verdict { judge: None, holds: false, len: 0, bytes: [0; LONGEST] };

impl Default for Verdicts {
    fn default() -> Verdicts {
        Verdicts { values: Vec::new(), seed: RandomState::new().hash_one(0) }
    }
}

impl Verdicts {
    /// [`Judge::holds`].
    pub(super) fn holds(&mut self, judge: Judge, value: &[u8]) -> bool {
        if value.len() > LONGEST {
            return judge.holds(value);
        }
        if self.values.is_empty() {
            self.values.resize(VALUES, NOTHING);
        }
        let at = place_of(self.seed ^ judge as u64, value, VALUES);
        let Some(known) = self.values.get_mut(at) else { return judge.holds(value) };
        if known.judge == Some(judge) && known.bytes.get(..usize::from(known.len)) == Some(value) {
            return known.holds;
        }
        let holds = judge.holds(value);
        if let Some(bytes) = known.bytes.get_mut(..value.len()) {
            bytes.copy_from_slice(value);
            (known.judge, known.holds, known.len) = (Some(judge), holds, value.len() as u8);
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Repeated values are judged as without the cache, even if they evict each other.
        #[test]
        fn as_without(values in proptest::collection::vec((0usize..3, "(' or 1=1--|<script>|;id|[a-c ]{0,3}){1,40}"), 1..200)) {
            let mut verdicts = Verdicts::default();
            for _ in 0..2 {
                for (n, value) in &values {
                    let (judge, value) = (Judge::ALL[*n], value.as_bytes());
                    prop_assert_eq!(verdicts.holds(judge, value), judge.holds(value));
                }
            }
        }
    }
}
