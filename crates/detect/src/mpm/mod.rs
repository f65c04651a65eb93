//! Multi-pattern matching: finds which of many literals occur in a buffer.
//!
//! A [`Matcher`] reports which patterns occur, and where each occurrence ends. It has one of two engines. Hyperscan, or
//! Vectorscan with the same interface, is used if the library was present at build time. Otherwise, or with the crate's
//! feature `portable`, it is the portable Aho-Corasick automaton. Hyperscan's databases can be cached on disk
//! ([`CacheSettings`]).

mod ac;
mod cache;
#[cfg(have_hs)]
mod hs;
#[cfg_attr(not(have_hs), allow(dead_code))]
mod store;

use std::sync::{Arc, OnceLock};

pub use cache::MatcherCache;
pub use store::{CacheSettings, CacheUse};
#[doc(hidden)]
pub use store::{replay, replay_written};

use thiserror::Error;

/// The engine that searches for patterns (`mpm-algo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MpmAlgo {
    /// Hyperscan if it is built in and the CPU supports it, otherwise Aho-Corasick.
    #[default]
    Auto,
    /// Hyperscan (`hs`).
    Hyperscan,
    /// Aho-Corasick (`ac`, and its variants `ac-bs`, `ac-ks` and `ac-tile`).
    AhoCorasick,
}

impl MpmAlgo {
    /// The algorithm with that name in the configuration; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<MpmAlgo> {
        Some(match name {
            "auto" => MpmAlgo::Auto,
            "hs" => MpmAlgo::Hyperscan,
            "ac" | "ac-bs" | "ac-ks" | "ac-tile" => MpmAlgo::AhoCorasick,
            _ => return None,
        })
    }

    /// Whether Hyperscan (or Vectorscan) is built in and runs on this CPU.
    pub fn has_hyperscan() -> bool {
        #[cfg(have_hs)]
        return hs::runs_here();
        #[cfg(not(have_hs))]
        false
    }

    /// Name and version of the built-in library (`Hyperscan 5.4.0`), and whether it runs on this CPU.
    pub fn library() -> Option<(String, bool)> {
        #[cfg(have_hs)]
        return Some((hs::library(), hs::runs_here()));
        #[cfg(not(have_hs))]
        None
    }

    /// The algorithm that `self` selects in this build.
    ///
    /// # Errors
    /// [`MpmError::NoHyperscan`] if `self` is Hyperscan, and that is not built in or does not run on this CPU.
    pub fn resolve(self) -> Result<MpmAlgo, MpmError> {
        match (self, Self::has_hyperscan()) {
            (MpmAlgo::Auto, true) => Ok(MpmAlgo::Hyperscan),
            (MpmAlgo::Auto, false) => Ok(MpmAlgo::AhoCorasick),
            (MpmAlgo::Hyperscan, false) => Err(MpmError::NoHyperscan),
            (a, _) => Ok(a),
        }
    }
}

/// Why a matcher could not be built.
#[derive(Debug, Error)]
pub enum MpmError {
    /// The configuration asks for Hyperscan, which is not built in or does not run on this CPU.
    #[error(
        "mpm-algo: hs: this build has no Hyperscan that runs on this processor; use auto or ac, or build where pkg-config finds libhs"
    )]
    NoHyperscan,
    /// The engine refused the patterns.
    #[error("pattern matcher: {0}")]
    Build(String),
}

/// The engine failed to search a buffer. Matches reported before may be incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the pattern matcher failed (error {0})")]
#[must_use]
pub struct ScanError(pub(crate) i32);

/// A literal to search for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    /// Its bytes; never empty.
    pub bytes: Vec<u8>,
    /// Whether ASCII letters match in either case.
    pub nocase: bool,
}

/// A regular expression for which the matcher can tell whether a buffer may match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Regex {
    /// In PCRE syntax.
    pattern: String,
    caseless: bool,
    dot_all: bool,
    multi_line: bool,
}

/// Longest expression that is compiled, in bytes: the cost of compiling longer ones has no bound.
const REGEX_MAX: usize = 4096;

impl Regex {
    /// The expression's text.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether a match may depend on what is before it, so that it may be found in the rest of some data and not in the whole. True
    /// in doubt.
    pub(crate) fn is_anchored(&self) -> bool {
        let p = self.pattern.as_bytes();
        let in_class = |at: usize| p.get(..at).is_some_and(|p| p.ends_with(b"[") && !p.ends_with(b"\\["));
        let caret = |at: usize| p.get(at) == Some(&b'^') && !in_class(at);
        let escaped = |w: &[u8]| matches!(w, [b'\\', b'A' | b'G' | b'b' | b'B']);
        (0..p.len()).any(caret) || p.windows(2).any(escaped) || self.pattern.contains("(?<")
    }

    /// `pattern` with PCRE options `ismxAEG`; `None` if the matcher might find less than PCRE.
    pub fn new(pattern: &str, options: &str) -> Option<Regex> {
        let mut r = Regex { pattern: pattern.to_owned(), caseless: false, dot_all: false, multi_line: false };
        for o in options.chars() {
            match o {
                'i' => r.caseless = true,
                's' => r.dot_all = true,
                'm' => r.multi_line = true,
                // They select one of several matches, or make `$` match only at the very end.
                'G' | 'E' => {}
                _ => return None,
            }
        }
        let clean = pattern.len() <= REGEX_MAX && pattern.is_ascii() && !pattern.contains('\0');
        clean.then_some(r)
    }
}

/// Called with the number of a pattern that occurs, and the end of the occurrence.
type OnHit<'f> = &'f mut dyn FnMut(u32, usize);

/// An engine with a fixed set of patterns.
trait Mpm: Send + Sync {
    /// Prepares `scratch` for scans with this matcher. Called once per worker, not on the packet path.
    fn prepare(&self, scratch: &mut EngineScratch) -> Result<(), MpmError>;
    /// Calls `hit` for the patterns in `data`. If it fails, some calls may be missing.
    fn scan(&self, data: &[u8], scratch: &mut EngineScratch, hit: OnHit<'_>) -> Result<(), ScanError>;
    /// Memory in bytes.
    fn memory(&self) -> usize;
}

/// An engine without patterns.
#[cfg(have_hs)]
struct Nothing;

#[cfg(have_hs)]
impl Mpm for Nothing {
    fn prepare(&self, _: &mut EngineScratch) -> Result<(), MpmError> {
        Ok(())
    }
    fn scan(&self, _: &[u8], _: &mut EngineScratch, _: OnHit<'_>) -> Result<(), ScanError> {
        Ok(())
    }
    fn memory(&self) -> usize {
        0
    }
}

/// Scratch memory for the engines.
#[derive(Default)]
struct EngineScratch {
    #[cfg(have_hs)]
    hs: hs::HsScratch,
}

/// Scratch memory of one worker. Call [`Scratch::prepare`] for every matcher it will be used with.
#[derive(Default)]
pub struct Scratch {
    engine: EngineScratch,
    seen: Seen,
    told: [Option<SharedScan>; 4],
    /// The index of the entry to replace next.
    oldest: usize,
    /// The number of failed searches, and the first error.
    failures: u64,
    failure: Option<ScanError>,
}

/// A cached answer about data that several groups search.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SharedScan {
    /// The data's address and length. Only valid while the data does not change: see [`Scratch::forget`].
    at: (usize, usize),
    asked: usize,
    answer: bool,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("seen", &self.seen.marks.len()).finish_non_exhaustive()
    }
}

impl Scratch {
    /// The cached `answer` for `data` and the number `n`; computed once for the same data.
    pub(crate) fn once(&mut self, data: &[u8], n: usize, answer: impl FnOnce() -> bool) -> bool {
        let at = (data.as_ptr().addr(), data.len());
        if let Some(t) = self.told.iter().flatten().find(|t| t.at == at && t.asked == n) {
            return t.answer;
        }
        let answer = answer();
        self.oldest = (self.oldest + 1) % self.told.len();
        self.told[self.oldest] = Some(SharedScan { at, asked: n, answer });
        answer
    }

    /// Drops cached answers. Call this before searched data changes or is freed.
    pub(crate) const fn forget(&mut self) {
        self.told = [None; 4];
    }

    /// Prepares for scans with `m`.
    ///
    /// # Errors
    /// If the engine cannot allocate its memory.
    pub fn prepare(&mut self, m: &Matcher) -> Result<(), MpmError> {
        m.made.get().map_or(Ok(()), |made| made.engine.prepare(&mut self.engine))
    }

    /// The number of failed searches, and the first error.
    pub fn failures(&self) -> (u64, Option<ScanError>) {
        (self.failures, self.failure)
    }

    /// Calls `hit` for each pattern of `matcher` found in `data`, with the pattern's number, the end of the match, and
    /// marks that the callee may use to remember patterns during this scan.
    ///
    /// # Errors
    /// If the engine fails, or was not prepared for this matcher although it needs to be. The failure is counted, and
    /// the caller must search in another way.
    pub fn scan(
        &mut self,
        matcher: &Matcher,
        data: &[u8],
        mut hit: impl FnMut(u32, usize, &mut Seen),
    ) -> Result<(), ScanError> {
        if data.len() < matcher.min_len {
            return Ok(());
        }
        let Some(made) = matcher.made.get() else { return Ok(()) };
        let Scratch { engine, seen, .. } = self;
        seen.start();
        for &id in &made.always {
            hit(id, data.len(), seen);
        }
        // An engine may have internal patterns with higher numbers.
        let result = made.engine.scan(data, engine, &mut |id, end| {
            if (id as usize) < matcher.patterns {
                hit(id, end, seen);
            }
        });
        if let Err(e) = result {
            self.failed(e);
        }
        result
    }

    #[cold]
    fn failed(&mut self, error: ScanError) {
        self.failures += 1;
        self.failure.get_or_insert(error);
    }
}

/// A set of marked numbers, which is empty again when the next scan starts.
#[derive(Debug, Default)]
pub struct Seen {
    /// For each number, the scan that marked it last.
    marks: Vec<u32>,
    epoch: u32,
}

impl Seen {
    fn start(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.marks.fill(0);
            self.epoch = 1;
        }
    }

    /// Whether `n` is marked.
    pub fn has(&self, n: u32) -> bool {
        self.marks.get(n as usize).is_some_and(|&m| m == self.epoch)
    }

    /// Marks `n`.
    pub fn set(&mut self, n: u32) {
        let n = n as usize;
        if n >= self.marks.len() {
            self.marks.resize((n + 1).next_power_of_two(), 0);
        }
        if let Some(m) = self.marks.get_mut(n) {
            *m = self.epoch;
        }
    }
}

/// A set of patterns to search for. Cheap to clone. The patterns' numbers are their indexes in the list. A matcher from
/// a [`MatcherCache`] finds nothing before [`MatcherCache::finish`].
#[derive(Clone)]
pub struct Matcher {
    made: Arc<OnceLock<Made>>,
    patterns: usize,
    min_len: usize,
}

/// A built engine.
struct Made {
    engine: Box<dyn Mpm>,
    /// Patterns that the engine cannot search: they may be in any buffer.
    always: Box<[u32]>,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

impl Matcher {
    /// A matcher whose engine is built later.
    fn later(patterns: usize, min_len: usize) -> Matcher {
        Matcher { made: Arc::default(), patterns, min_len }
    }

    /// Compiles `patterns` for `algo`. With `once`, one reported place per pattern is enough, which is cheaper for
    /// patterns that occur all the time.
    ///
    /// # Errors
    /// If the engine is not available or refuses the patterns.
    pub fn new(patterns: &[Pattern], algo: MpmAlgo, once: bool) -> Result<Matcher, MpmError> {
        let patterns: Vec<(Pattern, bool)> = patterns.iter().map(|p| (p.clone(), once)).collect();
        let made = Arc::new(OnceLock::from(cache::literals(&patterns, algo, None)?));
        Ok(Matcher { made, patterns: patterns.len(), min_len: shortest(&patterns) })
    }

    /// The number of patterns.
    pub const fn patterns(&self) -> usize {
        self.patterns
    }

    /// Memory of the compiled engine in bytes.
    pub fn memory(&self) -> usize {
        self.made.get().map_or(0, |m| m.engine.memory())
    }
}

/// The length of the shortest pattern: shorter buffers contain none.
fn shortest(patterns: &[(Pattern, bool)]) -> usize {
    patterns.iter().map(|(p, _)| p.bytes.len()).min().unwrap_or(usize::MAX)
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

    /// The ends of all occurrences.
    fn places(p: &Pattern, data: &[u8]) -> Vec<usize> {
        (0..=data.len().saturating_sub(p.bytes.len()))
            .filter(|&i| data.get(i..i + p.bytes.len()).is_some_and(|w| naive(p, w)))
            .map(|i| i + p.bytes.len())
            .collect()
    }

    fn all(m: &Matcher, s: &mut Scratch, data: &[u8]) -> Vec<(u32, usize)> {
        let mut hits = Vec::new();
        s.scan(m, data, |id, end, _| hits.push((id, end))).unwrap();
        hits.sort_unstable();
        hits.dedup();
        hits
    }

    /// The numbers of the patterns found, which must be the same with and without `once`.
    fn found(patterns: &[Pattern], data: &[u8], algo: MpmAlgo) -> Vec<u32> {
        let [a, b] = [false, true].map(|once| {
            let m = Matcher::new(patterns, algo, once).unwrap();
            let mut s = Scratch::default();
            s.prepare(&m).unwrap();
            let mut hits: Vec<u32> = all(&m, &mut s, data).into_iter().map(|h| h.0).collect();
            hits.dedup();
            hits
        });
        assert_eq!(a, b);
        a
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

    /// With a long caseless pattern beside it, Hyperscan's interface for literals (5.4.0) misses a short pattern that is
    /// the whole buffer.
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

    /// A failed search returns an error and is counted; it is not an empty result.
    #[test]
    fn a_search_that_fails_is_no_search_that_finds_nothing() {
        let patterns = [Pattern { bytes: b"one".to_vec(), nocase: false }];
        for algo in engines() {
            let m = Matcher::new(&patterns, algo, true).unwrap();
            let mut s = Scratch::default();
            let mut hits = 0;
            // Hyperscan cannot search with an unprepared scratch.
            let result = s.scan(&m, b"xone", |_, _, _| hits += 1);
            let works = algo == MpmAlgo::AhoCorasick;
            assert_eq!(
                (result.is_ok(), hits, s.failures().0),
                (works, usize::from(works), u64::from(!works)),
                "{algo:?}"
            );
            assert_eq!(s.failures().1, result.err());
        }
    }

    #[test]
    fn one_scratch_serves_many_matchers() {
        for algo in engines() {
            let a = Matcher::new(&[Pattern { bytes: b"one".to_vec(), nocase: false }], algo, true).unwrap();
            let many: Vec<_> =
                (0..500).map(|i| Pattern { bytes: format!("pattern{i:03}").into_bytes(), nocase: true }).collect();
            let b = Matcher::new(&many, algo, false).unwrap();
            let mut s = Scratch::default();
            s.prepare(&a).unwrap();
            s.prepare(&b).unwrap();
            assert_eq!(all(&a, &mut s, b"xone")[0], (0, 4));
            assert_eq!(all(&b, &mut s, b"PATTERN007 pattern007"), [(7, 10), (7, 21)]);
            assert_eq!(all(&a, &mut s, b"one"), [(0, 3)]);
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
                let m = Matcher::new(&patterns, algo, false).unwrap();
                let mut s = Scratch::default();
                s.prepare(&m).unwrap();
                let ends = |(i, p)| places(p, &data).into_iter().map(move |e| (i, e));
                let want: Vec<(u32, usize)> = (0u32..).zip(&patterns).flat_map(ends).collect();
                prop_assert_eq!(all(&m, &mut s, &data), want, "{:?}", algo);
            }
        }
    }
}
