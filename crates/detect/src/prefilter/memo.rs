//! A cache of search results for short values.
//!
//! Most transaction values (methods, hosts, agents, types) repeat, and the result of a search depends only on the
//! value's bytes. So the results for recent values are cached. A lookup compares the whole value. A miss costs that
//! comparison and replaces another entry.

use std::hash::{BuildHasher, RandomState};

use super::Prefilter;
use crate::mpm::Scratch;

/// Number of cache entries: all should fit in the CPU's L2 cache.
const VALUES: usize = 512;
/// Longest cached value.
const LONGEST: usize = 134;
/// Most rules of a cached result.
const ROOM: usize = 12;

/// Search results by value. One per worker and rule set.
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
    /// The address of the prefilter that searched the value; 0 for a free entry.
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
    /// As [`Prefilter::scan`] of `prefilter`, which must not move while the cache is in use.
    pub(crate) fn scan(&mut self, prefilter: &Prefilter, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let of = std::ptr::from_ref(prefilter).addr();
        let Some(kept) =
            self.values.get_mut(place_of(self.seed ^ of as u64, data, VALUES)).filter(|_| data.len() <= LONGEST)
        else {
            return prefilter.scan(data, scratch, out);
        };
        if kept.of == of && kept.bytes.get(..usize::from(kept.len)) == Some(data) {
            out.extend_from_slice(kept.rules.get(..usize::from(kept.found)).unwrap_or_default());
            return;
        }
        let from = out.len();
        prefilter.scan(data, scratch, out);
        let found = out.get(from..).unwrap_or_default();
        if let (Some(bytes), Some(rules)) = (kept.bytes.get_mut(..data.len()), kept.rules.get_mut(..found.len())) {
            bytes.copy_from_slice(data);
            rules.copy_from_slice(found);
            (kept.of, kept.len, kept.found) = (of, data.len() as u8, found.len() as u8);
        }
    }
}

/// The slot of a value among `slots`. An attacker with colliding values could only make them evict each other, so that
/// each is searched as without the cache. The random seed prevents choosing such values.
pub(crate) fn place_of(seed: u64, data: &[u8], slots: usize) -> usize {
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
    use crate::mpm::{MatcherCache, MpmAlgo, Pattern};
    use crate::prefilter::Literal;
    use proptest::prelude::*;

    fn prefilter(patterns: &[&str], cache: &mut MatcherCache) -> Prefilter {
        let literal = |p: &&str| Literal {
            pattern: Pattern { bytes: p.as_bytes().to_vec(), nocase: false },
            offset: 0,
            end: None,
            longest: u32::MAX,
        };
        let list: Vec<Literal> = patterns.iter().map(literal).collect();
        Prefilter::new(list.iter().zip(0..).collect(), cache)
    }

    proptest! {
        /// Repeated values give the same results as without the cache, even if they evict each other.
        #[test]
        fn as_without(
            values in proptest::collection::vec((any::<bool>(), 0usize..3, "[ab]{0,3}", 0usize..140), 1..60),
        ) {
            let mut cache = MatcherCache::new(MpmAlgo::AhoCorasick);
            let many: Vec<String> = (0..ROOM + 2).map(|n| format!("aab{}", "a".repeat(n))).collect();
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            let both = [prefilter(&["aa", "ab", "bba"], &mut cache), prefilter(&many, &mut cache)];
            let mut scratch = Scratch::default();
            cache.finish().unwrap().0.iter().for_each(|m| scratch.prepare(m).unwrap());
            let mut memo = Memo::default();
            for _ in 0..2 {
                for (first, repeat, text, far) in &values {
                    let p = &both[usize::from(*first)];
                    let value = [text.repeat(*repeat).into_bytes(), vec![b'a'; *far]].concat();
                    let (mut want, mut got) = (vec![7], vec![7]);
                    p.scan(&value, &mut scratch, &mut want);
                    memo.scan(p, &value, &mut scratch, &mut got);
                    prop_assert_eq!(&want, &got);
                    // The value is cached, unless it is long or has many results.
                    let of = std::ptr::from_ref(p).addr();
                    let is = |k: &CacheEntry| k.of == of && k.bytes.get(..usize::from(k.len)) == Some(value.as_slice());
                    prop_assert_eq!(memo.values.iter().any(is), value.len() <= LONGEST && want.len() - 1 <= ROOM);
                }
            }
        }
    }
}
