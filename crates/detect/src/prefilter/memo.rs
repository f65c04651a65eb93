//! Short values that were looked through before.
//!
//! Methods, hosts, agents, types: most values of transactions come again and again, and what is found in one depends on nothing
//! but its bytes. So what was found in the last few is kept. A value is compared with what is kept, byte for byte; one that is
//! not there costs that much more, and takes the place of another.

use std::hash::{BuildHasher, RandomState};

use super::Prefilter;
use crate::mpm::Scratch;

/// Values that are kept: all of them are to stay in the processor's second cache.
const VALUES: usize = 512;
/// Longer ones are not kept.
const LONGEST: usize = 134;
/// One in which more is found is not kept.
const ROOM: usize = 12;

/// What was found in values. One a worker, for one set of rules.
#[derive(Debug)]
pub(crate) struct Memo {
    values: Box<[CacheEntry]>,
    /// At random, so that nobody can choose values that always take each other's place.
    seed: u64,
}

/// A value: three lines of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct CacheEntry {
    /// Where the prefilter lies that looked through it; 0 where there is none.
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
    /// As [`Prefilter::scan`] of `prefilter`, which is to stay where it is as long as this is in use.
    pub(crate) fn scan(&mut self, prefilter: &Prefilter, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let of = std::ptr::from_ref(prefilter).addr();
        let Some(kept) = self.values.get_mut(place(self.seed ^ of as u64, data)).filter(|_| data.len() <= LONGEST)
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

/// Where a value is kept. What an outsider could do with values that collide is make them take each other's place, so that each
/// is searched as if nothing were kept; the seed keeps that a matter of chance.
fn place(seed: u64, data: &[u8]) -> usize {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(SPREAD).rotate_left(29);
    let (words, rest) = data.as_chunks::<8>();
    let mut h = seed.wrapping_mul(SPREAD) ^ data.len() as u64;
    // Of what is long the beginning will do: that is too long to be kept.
    for word in words.iter().take(LONGEST / 8 + 1) {
        h = mix(h, u64::from_le_bytes(*word));
    }
    h = mix(h, rest.iter().fold(0, |w, &b| w << 8 | u64::from(b)));
    (h >> 32) as usize % VALUES
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
        /// Values that come again, in an order that makes them take each other's place, are what they are without.
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
                    // It is there for when it comes again, unless it is long, or much was found.
                    let of = std::ptr::from_ref(p).addr();
                    let is = |k: &CacheEntry| k.of == of && k.bytes.get(..usize::from(k.len)) == Some(value.as_slice());
                    prop_assert_eq!(memo.values.iter().any(is), value.len() <= LONGEST && want.len() - 1 <= ROOM);
                }
            }
        }
    }
}
