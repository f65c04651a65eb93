//! A cache of the rules that short values make candidates.
//!
//! Most transaction values (methods, hosts, agents, types) repeat, and the result of a search, of transforms and of
//! judgements depends only on the value's bytes. So the results for recent values are cached. A lookup compares the whole
//! value. A miss costs that comparison and replaces another entry.

use std::hash::{BuildHasher, RandomState};

/// Number of cache entries: all should fit in the CPU's L2 cache.
const VALUES: usize = 512;
/// Longest cached value.
const LONGEST: usize = 134;
/// Most rules of a cached result.
const ROOM: usize = 12;

/// Candidates by value. One per worker and rule set.
#[derive(Debug)]
pub(crate) struct Memo {
    values: Box<[CacheEntry]>,
    /// A random seed, so that nobody can choose values that always evict each other.
    seed: u64,
}

/// An entry takes three CPU cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct CacheEntry {
    /// The address of the slot with the value; 0 for a free entry.
    of: usize,
    len: u8,
    found: u8,
    bytes: [u8; LONGEST],
    rules: [u32; ROOM],
}

const NOTHING: CacheEntry = CacheEntry { of: 0, len: 0, found: 0, bytes: [0; LONGEST], rules: [0; ROOM] };

impl Default for Memo {
    fn default() -> Memo {
        Memo { values: vec![NOTHING; VALUES].into_boxed_slice(), seed: RandomState::new().hash_one(0) }
    }
}

impl Memo {
    /// Whether a value is short enough.
    pub(crate) const fn takes(data: &[u8]) -> bool {
        data.len() <= LONGEST
    }

    /// The rules that were kept for a value. `of` tells the searches of several places apart.
    pub(crate) fn get(&self, of: usize, data: &[u8]) -> Option<&[u32]> {
        if !Memo::takes(data) {
            return None;
        }
        let kept = self.values.get(place_of(self.seed ^ of as u64, data, VALUES))?;
        if kept.of != of || kept.bytes.get(..usize::from(kept.len)) != Some(data) {
            return None;
        }
        kept.rules.get(..usize::from(kept.found))
    }

    /// Keeps the rules that a value makes candidates, unless the value is too long or they are too many.
    pub(crate) fn keep(&mut self, of: usize, data: &[u8], found: &[u32]) {
        if !Memo::takes(data) || found.len() > ROOM {
            return;
        }
        let Some(kept) = self.values.get_mut(place_of(self.seed ^ of as u64, data, VALUES)) else { return };
        if let (Some(bytes), Some(rules)) = (kept.bytes.get_mut(..data.len()), kept.rules.get_mut(..found.len())) {
            bytes.copy_from_slice(data);
            rules.copy_from_slice(found);
            (kept.of, kept.len, kept.found) = (of, data.len() as u8, found.len() as u8);
        }
    }
}

/// The slot of a value among `slots`. An attacker with colliding values could only make them evict each other, so that
/// each is searched as without the cache. The random seed prevents choosing such values.
fn place_of(seed: u64, data: &[u8], slots: usize) -> usize {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(SPREAD).rotate_left(29);
    let (words, rest) = data.as_chunks::<8>();
    let mut h = seed.wrapping_mul(SPREAD) ^ data.len() as u64;
    // Long values are not cached, so hashing their beginning is enough.
    for word in words.iter().take(LONGEST / 8 + 1) {
        h = mix(h, u64::from_le_bytes(*word));
    }
    h = mix(h, rest.iter().fold(0, |w, &b| w << 8 | u64::from(b)));
    (h >> 32) as usize % slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// A value has the rules that were kept for it last, or none if another one took its entry, if it is long or if
        /// there were many.
        #[test]
        fn as_kept(
            values in proptest::collection::vec((1usize..3, "[ab]{0,3}", 0usize..140, 0u32..20), 1..60),
        ) {
            let mut memo = Memo::default();
            let mut known = HashMap::new();
            for (of, text, far, rules) in &values {
                let value = [text.clone().into_bytes(), vec![b'a'; *far]].concat();
                let rules: Vec<u32> = (0..*rules).collect();
                memo.keep(*of, &value, &rules);
                let fits = value.len() <= LONGEST && rules.len() <= ROOM;
                if fits {
                    prop_assert_eq!(memo.get(*of, &value), Some(&rules[..]));
                } else {
                    prop_assert_ne!(memo.get(*of, &value), Some(&rules[..]));
                }
                if fits {
                    known.insert((*of, value), rules);
                }
                // Others are as they were kept, unless they were evicted.
                for ((of, value), rules) in &known {
                    prop_assert!(memo.get(*of, value).is_none_or(|found| found == rules));
                }
            }
        }
    }
}
