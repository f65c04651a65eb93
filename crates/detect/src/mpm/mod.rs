//! Multi-pattern matching: which of many literals occur in a buffer.
//!
//! A [`Matcher`] says *that* a pattern occurs, not where: what was found is a candidate, and the rule's own checks
//! decide. There are two engines behind it: Hyperscan where the library was there at build time, and the portable
//! Aho-Corasick automaton. Both report each pattern at most once a scan, in no particular order.

mod ac;
#[cfg(have_hs)]
mod hs;

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;

/// Which engine looks for patterns (`mpm-algo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MpmAlgo {
    /// Hyperscan where it was built in, else Aho-Corasick.
    #[default]
    Auto,
    /// Hyperscan (`hs`).
    Hyperscan,
    /// Aho-Corasick (`ac`, and `ac-bs`, `ac-ks`, which name variants of it).
    AhoCorasick,
}

impl MpmAlgo {
    /// The algorithm of that name in the configuration; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<MpmAlgo> {
        Some(match name {
            "auto" => MpmAlgo::Auto,
            "hs" => MpmAlgo::Hyperscan,
            "ac" | "ac-bs" | "ac-ks" | "ac-tile" => MpmAlgo::AhoCorasick,
            _ => return None,
        })
    }

    /// Whether Hyperscan is built in.
    pub const fn has_hyperscan() -> bool {
        cfg!(have_hs)
    }

    /// What `self` stands for in this build.
    ///
    /// # Errors
    /// [`MpmError::NoHyperscan`] where it asks for an engine that was not built in.
    pub const fn resolve(self) -> Result<MpmAlgo, MpmError> {
        match (self, Self::has_hyperscan()) {
            (MpmAlgo::Auto, true) => Ok(MpmAlgo::Hyperscan),
            (MpmAlgo::Auto, false) => Ok(MpmAlgo::AhoCorasick),
            (MpmAlgo::Hyperscan, false) => Err(MpmError::NoHyperscan),
            (a, _) => Ok(a),
        }
    }
}

/// Why a matcher could not be made.
#[derive(Debug, Error)]
pub enum MpmError {
    /// Hyperscan was asked for and is not built in.
    #[error("mpm-algo: hs: this build has no Hyperscan; use auto or ac, or build where pkg-config finds libhs")]
    NoHyperscan,
    /// The engine refused the patterns.
    #[error("pattern matcher: {0}")]
    Build(String),
}

/// A literal to look for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    /// Its bytes; never empty.
    pub bytes: Vec<u8>,
    /// Whether ASCII letters match in either case.
    pub nocase: bool,
}

/// An engine over a fixed set of patterns.
trait Mpm: Send + Sync {
    /// Makes `scratch` fit for scans with this matcher; called once for every worker, not on the packet path.
    fn prepare(&self, scratch: &mut Scratch) -> Result<(), MpmError>;
    /// Adds the numbers of the patterns in `data` to `scratch.hits`.
    fn scan(&self, data: &[u8], scratch: &mut Scratch);
    /// Bytes of memory.
    fn memory(&self) -> usize;
}

/// What one worker needs to scan. [`Scratch::prepare`] it for every matcher that it will be used with.
#[derive(Default)]
pub struct Scratch {
    hits: Vec<u32>,
    /// For each pattern number the scan in which it was last seen: a pattern is reported once.
    seen: Vec<u32>,
    epoch: u32,
    #[cfg(have_hs)]
    hs: hs::HsScratch,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("patterns", &self.seen.len()).finish_non_exhaustive()
    }
}

impl Scratch {
    /// Makes room for scans with `m`.
    ///
    /// # Errors
    /// Where the engine cannot get its memory.
    pub fn prepare(&mut self, m: &Matcher) -> Result<(), MpmError> {
        if self.seen.len() < m.patterns {
            self.seen.resize(m.patterns, 0);
            self.hits.reserve(m.patterns.min(4096));
        }
        m.engine.prepare(self)
    }
}

/// A set of patterns, ready to look for. Cheap to clone; patterns have the numbers of their places in the list that
/// it was made from.
#[derive(Clone)]
pub struct Matcher {
    engine: Arc<dyn Mpm>,
    patterns: usize,
    min_len: usize,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

impl Matcher {
    /// Compiles `patterns` for `algo`.
    ///
    /// # Errors
    /// Where the engine is not there or refuses the patterns.
    pub fn new(patterns: &[Pattern], algo: MpmAlgo) -> Result<Matcher, MpmError> {
        let min_len = patterns.iter().map(|p| p.bytes.len()).min().unwrap_or(usize::MAX);
        let engine: Arc<dyn Mpm> = match algo.resolve()? {
            #[cfg(have_hs)]
            MpmAlgo::Hyperscan => Arc::new(hs::Hyperscan::new(patterns)?),
            _ => Arc::new(ac::AhoCorasick::new(patterns)?),
        };
        Ok(Matcher { engine, patterns: patterns.len(), min_len })
    }

    /// The numbers of the patterns that occur in `data`, each once. `scratch` must have been prepared for this
    /// matcher, else nothing is found by an engine that needs it.
    pub fn scan<'s>(&self, data: &[u8], scratch: &'s mut Scratch) -> &'s [u32] {
        scratch.hits.clear();
        if data.len() >= self.min_len {
            self.engine.scan(data, scratch);
        }
        &scratch.hits
    }

    /// How many patterns it looks for.
    pub const fn patterns(&self) -> usize {
        self.patterns
    }

    /// Bytes of memory of the compiled form.
    pub fn memory(&self) -> usize {
        self.engine.memory()
    }
}

/// Makes matchers, and makes each set of patterns only once.
#[derive(Debug)]
pub struct MatcherCache {
    algo: MpmAlgo,
    made: HashMap<Vec<Pattern>, Matcher>,
}

impl MatcherCache {
    /// One for `algo`.
    pub fn new(algo: MpmAlgo) -> MatcherCache {
        MatcherCache { algo, made: HashMap::new() }
    }

    /// The matcher of `patterns`, which are sorted and without repeats.
    ///
    /// # Errors
    /// As [`Matcher::new`].
    pub fn get(&mut self, patterns: Vec<Pattern>) -> Result<Matcher, MpmError> {
        if let Some(m) = self.made.get(&patterns) {
            return Ok(m.clone());
        }
        let m = Matcher::new(&patterns, self.algo)?;
        self.made.insert(patterns, m.clone());
        Ok(m)
    }

    /// Every matcher made.
    pub fn into_matchers(self) -> Vec<Matcher> {
        self.made.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(p: &Pattern, data: &[u8]) -> bool {
        data.windows(p.bytes.len()).any(|w| if p.nocase { w.eq_ignore_ascii_case(&p.bytes) } else { w == p.bytes })
    }

    fn engines() -> Vec<MpmAlgo> {
        let mut v = vec![MpmAlgo::AhoCorasick];
        if MpmAlgo::has_hyperscan() {
            v.push(MpmAlgo::Hyperscan);
        }
        v
    }

    fn found(patterns: &[Pattern], data: &[u8], algo: MpmAlgo) -> Vec<u32> {
        let m = Matcher::new(patterns, algo).unwrap();
        let mut s = Scratch::default();
        s.prepare(&m).unwrap();
        let mut hits = m.scan(data, &mut s).to_vec();
        hits.sort_unstable();
        hits
    }

    #[test]
    fn case_and_special_bytes() {
        let p = |b: &[u8], nocase| Pattern { bytes: b.to_vec(), nocase };
        let patterns = [
            p(b"Abc", false),
            p(b"aBC", true),
            p(b"a\0b", false),
            p(b".*", false),
            p(b"\xff\xfe", true),
            p(b"z", true),
        ];
        for algo in engines() {
            assert_eq!(found(&patterns, b"xxabcxx", algo), [1], "{algo:?}");
            assert_eq!(found(&patterns, b"xxAbcAbc", algo), [0, 1], "{algo:?}");
            assert_eq!(found(&patterns, b"a\0b.*\xff\xfeZ", algo), [2, 3, 4, 5], "{algo:?}");
            assert_eq!(found(&patterns, b"", algo), [0u32; 0], "{algo:?}");
            assert_eq!(found(&patterns, b"\xdf\xde", algo), [0u32; 0], "{algo:?}");
        }
    }

    /// Beside a long caseless pattern Hyperscan's interface for literals (5.4.0) loses a short one that is all there is
    /// in the buffer.
    #[test]
    fn a_short_pattern_beside_a_long_one() {
        let p = |b: &[u8], nocase| Pattern { bytes: b.to_vec(), nocase };
        let short = b"h\x04\x83\0\0\0";
        let long = [b"TVqQAAMAAAAEAAAA//8AALgAAAAAAAAAQAAA".as_slice(), &[b'A'; 44]].concat();
        let patterns = [p(b"Calibration Access Established", false), p(&long, true), p(short, false)];
        for algo in engines() {
            assert_eq!(found(&patterns, short, algo), [2], "{algo:?}");
            assert_eq!(found(&patterns, &[b"x".as_slice(), short].concat(), algo), [2], "{algo:?}");
            assert_eq!(found(&patterns, &long.to_ascii_lowercase(), algo), [1], "{algo:?}");
        }
    }

    #[test]
    fn one_scratch_serves_many_matchers() {
        for algo in engines() {
            let a = Matcher::new(&[Pattern { bytes: b"one".to_vec(), nocase: false }], algo).unwrap();
            let many: Vec<_> =
                (0..500).map(|i| Pattern { bytes: format!("pattern{i:03}").into_bytes(), nocase: true }).collect();
            let b = Matcher::new(&many, algo).unwrap();
            let mut s = Scratch::default();
            s.prepare(&a).unwrap();
            s.prepare(&b).unwrap();
            assert_eq!(a.scan(b"one one", &mut s), [0]);
            assert_eq!(b.scan(b"PATTERN007 pattern007", &mut s), [7]);
            assert_eq!(a.scan(b"one", &mut s), [0]);
        }
    }

    proptest! {
        #[test]
        fn engines_agree_with_a_naive_search(
            patterns in proptest::collection::btree_set(
                (proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'A'), Just(b'b'), Just(0u8), Just(0xc1u8)], 1..6),
                 any::<bool>()).prop_map(|(bytes, nocase)| Pattern { bytes, nocase }), 1..20),
            data in proptest::collection::vec(
                prop_oneof![Just(b'a'), Just(b'A'), Just(b'B'), Just(0u8), Just(0xc1u8), Just(0xe1u8)], 0..80),
        ) {
            let patterns: Vec<Pattern> = patterns.into_iter().collect();
            let want: Vec<u32> = (0u32..).zip(&patterns).filter(|(_, p)| naive(p, &data)).map(|(i, _)| i).collect();
            for algo in engines() {
                prop_assert_eq!(&found(&patterns, &data, algo), &want, "{:?}", algo);
            }
        }
    }
}
