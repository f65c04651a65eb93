//! Builds matchers, each set of patterns only once, and those of a large rule set on several CPUs.
//!
//! [`MatcherCache::get`] returns a matcher at once. [`MatcherCache::finish`] builds all engines together at the end, the
//! largest first, with a few threads. The result does not depend on the threads. Engines of an earlier start may be on
//! disk (`store`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::store::{CacheSettings, CacheUse, Store};
use super::{Made, Matcher, MpmAlgo, MpmError, Pattern, Regex, shortest};

/// Most expressions that are compiled. Rules with further expressions are treated as if they had none.
const REGEXES_MAX: usize = 4096;
/// Most threads: each takes some megabytes while it compiles.
const THREADS_MAX: usize = 4;
/// With fewer patterns, neither threads nor the disk cache are worth their cost.
const LARGE: usize = 1000;
/// Smaller sets of literals are not stored on disk.
const STORED_FROM: usize = 16;
/// Compiling an expression takes as long as this many literals.
const REGEX_COST: usize = 150;

/// The patterns of a matcher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Wanted {
    /// Literals, each with whether one reported place is enough.
    Literals(Vec<(Pattern, bool)>),
    Regexes(Vec<Regex>),
}

impl Wanted {
    /// The build time, in literals.
    fn cost(&self) -> usize {
        match self {
            Wanted::Literals(list) => list.len(),
            Wanted::Regexes(list) => list.len().saturating_mul(REGEX_COST),
        }
    }

    fn make(&self, algo: MpmAlgo, store: Option<&Store>) -> Result<Made, MpmError> {
        match self {
            // The smallest sets are built faster than a file is read.
            Wanted::Literals(list) => literals(list, algo, store.filter(|_| list.len() >= STORED_FROM)),
            Wanted::Regexes(list) => regexes(list, algo, store),
        }
    }
}

/// Builds matchers, each set of patterns only once.
#[derive(Debug)]
pub struct MatcherCache {
    algo: MpmAlgo,
    places: HashMap<Wanted, usize>,
    /// In the order of the requests.
    matchers: Vec<Matcher>,
    /// Expressions asked for so far, and whether they are supported.
    asked: HashMap<Regex, bool>,
    store: Option<CacheSettings>,
    /// The total cost, in literals, at which the disk cache starts to be used.
    store_from: usize,
}

impl MatcherCache {
    /// A cache for matchers with the algorithm `algo`.
    pub fn new(algo: MpmAlgo) -> MatcherCache {
        MatcherCache {
            algo,
            places: HashMap::new(),
            matchers: Vec::new(),
            asked: HashMap::new(),
            store: None,
            store_from: LARGE,
        }
    }

    /// Also uses the disk cache of earlier starts, if the engine supports it. If there is little to build, nothing is
    /// read or stored.
    #[must_use]
    pub fn with_store(mut self, settings: &CacheSettings) -> MatcherCache {
        self.store = Some(settings.clone());
        self
    }

    /// Sets the total cost, in literals, at which the disk cache starts to be used.
    #[cfg(all(test, have_hs))]
    pub(super) fn storing_from(mut self, cost: usize) -> MatcherCache {
        self.store_from = cost;
        self
    }

    /// The disk cache if it should be used, or why it cannot be.
    fn open_store(&self, total: usize) -> (Option<Store>, Option<String>) {
        let hyperscan = self.algo.resolve().is_ok_and(|a| a == MpmAlgo::Hyperscan);
        match self.store.as_ref().filter(|_| hyperscan && total >= self.store_from).map(Store::open) {
            None => (None, None),
            Some(Ok(store)) => (Some(store), None),
            Some(Err(e)) => (None, Some(e)),
        }
    }

    /// The matcher of `patterns`, which must be sorted and distinct, each with whether one reported place is enough.
    /// That is cheaper for patterns that occur all the time.
    pub fn get(&mut self, patterns: Vec<(Pattern, bool)>) -> Matcher {
        let min_len = shortest(&patterns);
        let n = patterns.len();
        self.later(Wanted::Literals(patterns), || Matcher::later(n, min_len))
    }

    /// The matcher of supported expressions, sorted and distinct. It finds at least those that PCRE would find, at one
    /// place each.
    pub fn regexes(&mut self, list: Vec<Regex>) -> Matcher {
        let n = list.len();
        self.later(Wanted::Regexes(list), || Matcher::later(n, 1))
    }

    fn later(&mut self, wanted: Wanted, matcher: impl FnOnce() -> Matcher) -> Matcher {
        let at = match self.places.entry(wanted) {
            Entry::Occupied(e) => *e.get(),
            Entry::Vacant(e) => {
                e.insert(self.matchers.len());
                self.matchers.push(matcher());
                self.matchers.len() - 1
            }
        };
        self.matchers[at].clone()
    }

    /// Whether the engine will search for `regex`. If it then fails to compile it, the regex counts as found in every
    /// buffer.
    pub fn can(&mut self, regex: &Regex) -> bool {
        if let Some(&can) = self.asked.get(regex) {
            return can;
        }
        // Compiling an expression takes a millisecond or two, so the number is limited for large rule sets.
        let can = self.asked.len() < REGEXES_MAX && self.algo.resolve().is_ok_and(|a| a == MpmAlgo::Hyperscan);
        self.asked.insert(regex.clone(), can);
        can
    }

    /// Builds all requested engines. Returns the matchers in the order of the requests, and how the disk cache was used.
    ///
    /// # Errors
    /// If the engine is not available or refuses literals.
    pub fn finish(self) -> Result<(Vec<Matcher>, CacheUse), MpmError> {
        let mut jobs: Vec<(&Wanted, usize)> = self.places.iter().map(|(w, n)| (w, *n)).collect();
        jobs.sort_unstable_by_key(|(w, n)| (std::cmp::Reverse(w.cost()), *n));
        let total: usize = jobs.iter().map(|(w, _)| w.cost()).sum();
        let threads = match total >= LARGE {
            true => std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX)),
            false => 1,
        };
        let (store, problem) = self.open_store(total);
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((wanted, at)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let made = wanted.make(self.algo, store.as_ref())?;
                if let Some(m) = self.matchers.get(*at) {
                    let _ = m.made.set(made);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            let mine = work();
            let gone = || MpmError::Build("a thread that compiles patterns stopped".into());
            others.into_iter().fold(mine, |all, t| all.and(t.join().unwrap_or_else(|_| Err(gone()))))
        })?;
        #[cfg(have_hs)]
        if total >= LARGE {
            super::hs::trim();
        }
        let mut used = store.map(Store::finish).unwrap_or_default();
        used.problems.extend(problem);
        Ok((self.matchers, used))
    }
}

/// Builds the engine for literals.
pub(super) fn literals(patterns: &[(Pattern, bool)], algo: MpmAlgo, store: Option<&Store>) -> Result<Made, MpmError> {
    Ok(match algo.resolve()? {
        #[cfg(have_hs)]
        MpmAlgo::Hyperscan => {
            let engine = super::hs::Source::literals(patterns)?.compile_with(store)?;
            Made { engine: Box::new(engine), always: Box::default() }
        }
        _ => {
            // The automaton reports every place at no extra cost.
            let _ = store;
            Made { engine: Box::new(super::ac::AhoCorasick::new(patterns)?), always: Box::default() }
        }
    })
}

/// Builds the engine for expressions. Those that it refuses, alone or together, count as found in every buffer.
fn regexes(list: &[Regex], algo: MpmAlgo, store: Option<&Store>) -> Result<Made, MpmError> {
    match algo.resolve()? {
        #[cfg(have_hs)]
        MpmAlgo::Hyperscan => {
            use super::hs::Source;
            let made = |engine, always| Made { engine: Box::new(engine), always };
            let numbered = || (0u32..).zip(list);
            if let Ok(engine) = Source::regexes(numbered()).compile_with(store) {
                return Ok(made(engine, Box::default()));
            }
            let (good, bad): (Vec<_>, Vec<_>) =
                numbered().partition(|&r| Source::regexes(std::iter::once(r)).compile().is_ok());
            let bad: Box<[u32]> = bad.into_iter().map(|r| r.0).collect();
            // Expressions that compile one by one may be too large together.
            match Source::regexes(good.into_iter()).compile_with(store) {
                Ok(engine) => Ok(made(engine, bad)),
                Err(_) => Ok(Made { engine: Box::new(super::Nothing), always: numbered().map(|r| r.0).collect() }),
            }
        }
        _ => {
            let _ = store;
            Err(MpmError::Build(format!("no engine for {} expressions", list.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scratch;
    use super::*;

    fn patterns(n: usize, of: &str) -> Vec<Pattern> {
        let mut list: Vec<_> =
            (0..n).map(|i| Pattern { bytes: format!("{of}{i}").into_bytes(), nocase: i % 2 == 0 }).collect();
        list.sort_unstable();
        list
    }

    fn found(m: &Matcher, s: &mut Scratch, data: &[u8]) -> Vec<u32> {
        let mut hits = Vec::new();
        s.scan(m, data, |id, _, _| hits.push(id)).unwrap();
        hits.sort_unstable();
        hits.dedup();
        hits
    }

    /// Several threads build the same as one.
    #[test]
    fn many_are_made_by_several_threads() {
        let mut cache = MatcherCache::new(MpmAlgo::Auto);
        let lists: Vec<_> = (0..40).map(|i| patterns(1 + i * 3, &format!("set{i}x"))).collect();
        let given: Vec<_> = lists.iter().map(|l| cache.get(l.iter().map(|p| (p.clone(), false)).collect())).collect();
        let again = cache.get(lists[7].iter().map(|p| (p.clone(), false)).collect());
        let (made, _) = cache.finish().unwrap();
        assert_eq!(made.len(), 40);
        let mut s = Scratch::default();
        made.iter().for_each(|m| s.prepare(m).unwrap());
        for (i, (m, list)) in given.iter().zip(&lists).enumerate() {
            let data = format!("... SET{i}X0 set{i}x1 set99x1 ...");
            let alone = Matcher::new(list, MpmAlgo::Auto, false).unwrap();
            s.prepare(&alone).unwrap();
            assert_eq!(found(m, &mut s, data.as_bytes()), found(&alone, &mut s, data.as_bytes()), "{i}");
            assert!(!found(m, &mut s, data.as_bytes()).is_empty(), "{i}");
        }
        assert_eq!(found(&again, &mut s, b"set7x1"), found(&given[7], &mut s, b"set7x1"));
    }

    /// A refused expression may match anywhere; the others are searched.
    #[test]
    #[cfg(have_hs)]
    fn refused_expressions_are_everywhere() {
        let regex = |t: &str| Regex::new(t, "").unwrap();
        let mut cache = MatcherCache::new(MpmAlgo::Hyperscan);
        // Conditionals are one of the few constructs that the library does not accept even as a prefilter.
        let mut list = vec![regex("abc[0-9]"), regex("(?(R)a|b)(*ACCEPT)"), regex("xyz")];
        list.sort();
        let bad = list.iter().position(|r| r.pattern.contains("ACCEPT")).unwrap() as u32;
        let at = |t: &str| list.iter().position(|r| r.pattern == t).unwrap() as u32;
        let m = cache.regexes(list.clone());
        cache.finish().unwrap();
        let mut s = Scratch::default();
        s.prepare(&m).unwrap();
        assert_eq!(found(&m, &mut s, b"nothing"), [bad]);
        let mut want = vec![bad, at("abc[0-9]")];
        want.sort_unstable();
        assert_eq!(found(&m, &mut s, b"an abc7"), want);
    }

    #[test]
    fn only_so_many_expressions() {
        let mut cache = MatcherCache::new(MpmAlgo::Auto);
        let regex = |i: usize| Regex::new(&format!("a{i}"), "").unwrap();
        let can = (0..REGEXES_MAX + 5).filter(|&i| cache.can(&regex(i))).count();
        assert_eq!(can, if MpmAlgo::has_hyperscan() { REGEXES_MAX } else { 0 });
        assert_eq!(cache.can(&regex(1)), MpmAlgo::has_hyperscan());
        let mut plain = MatcherCache::new(MpmAlgo::AhoCorasick);
        assert!(!plain.can(&regex(1)));
    }
}
