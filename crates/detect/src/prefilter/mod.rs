//! Finds which patterns occur in a buffer, and so which rules may match.
//!
//! A found pattern makes its rule a candidate; the rule's own checks decide. Patterns are sorted by where they may
//! occur:
//!
//! - Patterns with few possible offsets (`startswith`, `offset` with a tight `depth`) are looked up there, in a hash
//!   table for each offset ([`Place`]). A buffer of a megabyte costs no more than one of ten bytes.
//! - All others are searched everywhere ([`Finder`]). Common ones (two or three bytes, or one repeated byte) occur at
//!   many places of most buffers, so one occurrence is enough.
//!
//! An occurrence of a pattern that is not common is compared with the whole pattern, and its offset with the rule's
//! limits, before it makes candidates.

mod bytes;
mod digits;
mod finder;
mod grams;
mod memo;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::byte_set::ByteSet;
use crate::fast_pattern::FastPattern;
use crate::mpm::{Matcher, MatcherCache, Pattern, Regex, Scratch};

pub(crate) use bytes::AnyOf;
use bytes::Bytes;
use digits::Stretch;
use finder::Finder;
pub(crate) use memo::Memo;
use place::Place;

/// A rule's fast pattern, and where in the buffer it may occur.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Literal {
    pub(crate) pattern: Pattern,
    /// Smallest offset of its start.
    pub(crate) offset: u32,
    /// Largest offset of its end, if limited.
    pub(crate) end: Option<u32>,
    /// A longer buffer cannot match and need not be searched for it.
    pub(crate) longest: u32,
}

/// A literal with more possible offsets than this is searched everywhere.
const PLACES_MAX: u32 = 12;
/// Most offset tables for one buffer; a literal that needs another one is searched everywhere.
const TABLES_MAX: usize = 48;
/// Expressions with at least this many digits in a row are searched separately, and only in buffers that have such a
/// row.
const DIGITS_MIN: usize = 3;
/// So many numbers in a buffer are searched one by one; the last search takes all that follows.
const STRETCHES_MAX: usize = 4;
/// Patterns of fewer bytes are common.
const SHORT: usize = 4;

impl From<FastPattern> for Literal {
    fn from(f: FastPattern) -> Literal {
        Literal {
            pattern: Pattern { bytes: f.bytes, nocase: f.nocase },
            offset: f.offset,
            end: f.end,
            longest: u32::MAX,
        }
    }
}

impl Literal {
    /// Whether the search is worthwhile: a single byte without an offset is in nearly every buffer.
    pub(crate) fn is_useful(&self) -> bool {
        self.pattern.bytes.len() > 1 || self.places().is_some()
    }

    /// The possible start offsets, if they are few.
    fn places(&self) -> Option<std::ops::RangeInclusive<u32>> {
        let len = u32::try_from(self.pattern.bytes.len()).ok()?;
        let last = self.end?.checked_sub(len)?;
        (last >= self.offset && last - self.offset < PLACES_MAX).then_some(self.offset..=last)
    }

    /// Whether the literal occurs so often that reporting one place is enough.
    fn is_common(&self) -> bool {
        let bytes = &self.pattern.bytes;
        bytes.len() < SHORT || bytes.windows(2).all(|w| matches!(w, [a, b] if a == b))
    }

    /// Whether `data` has the literal at `start`, and the rule allows that offset.
    pub(crate) fn is_at(&self, data: &[u8], start: usize) -> bool {
        let end = start + self.pattern.bytes.len();
        start >= self.offset as usize && self.end.is_none_or(|e| end <= e as usize) && self.equals(data, start)
    }

    /// Whether `data` has the literal at `start`.
    fn equals(&self, data: &[u8], start: usize) -> bool {
        let bytes = &*self.pattern.bytes;
        data.get(start..start + bytes.len())
            .is_some_and(|here| here == bytes || (self.pattern.nocase && here.eq_ignore_ascii_case(bytes)))
    }
}

/// A literal and its rules.
#[derive(Debug)]
struct Entry {
    literal: Literal,
    rules: Box<[u32]>,
}

/// One entry for each distinct literal of `list`, sorted.
fn entries(mut list: Vec<(&Literal, u32)>) -> Vec<Entry> {
    list.sort_unstable();
    list.dedup();
    list.chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| {
            let (literal, _) = same.first()?;
            Some(Entry { literal: (*literal).clone(), rules: same.iter().map(|x| x.1).collect() })
        })
        .collect()
}

/// The part of a buffer's expressions that are anchored.
const ANCHORED: usize = 3;

/// The number of digits in a row that an expression needs; 0 if it needs none.
pub(crate) fn digits_of(regex: &Regex) -> usize {
    match digits::of_pattern(regex.pattern()) {
        n if n >= DIGITS_MIN => n,
        _ => 0,
    }
}

/// The length of the longest row of digits in `data`.
pub(crate) fn longest_row(data: &[u8]) -> usize {
    data.split(|b| !b.is_ascii_digit()).map(<[u8]>::len).max().unwrap_or(0)
}

/// The patterns of one buffer.
#[derive(Debug)]
pub(crate) struct Prefilter {
    placed: Box<[Place]>,
    anywhere: Option<Finder>,
    bytes: Option<Bytes>,
    regexes: Vec<Regexes>,
}

/// Regular expressions that one search finds together.
#[derive(Debug)]
struct Regexes {
    matcher: Matcher,
    /// The expressions cannot match a buffer without this many digits in a row.
    digits: usize,
    /// The form of the numbers that all of them want, if they want nothing else.
    stretch: Option<Stretch>,
    /// They may match at the beginning of data because nothing is before it (`^`).
    anchored: bool,
    /// Indexed by the number of the expression.
    rules: Box<[Box<[u32]>]>,
}

impl Regexes {
    /// Adds the rules whose expression may match `data`.
    fn scan(&self, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if self.digits > 0 && !scratch.once(data, self.digits, || digits::are_in(data, self.digits)) {
            return;
        }
        let Some(stretch) = self.stretch else { return self.search(data, scratch, out) };
        let (mut from, mut searched) = (0, 0);
        while let Some((place, may_match)) = stretch.next(data, from, self.digits) {
            from = place.end;
            if may_match {
                searched += 1;
                // Starting a search has its cost.
                let part = if searched < STRETCHES_MAX { data.get(place) } else { data.get(place.start..) };
                self.search(part.unwrap_or(data), scratch, out);
                if searched == STRETCHES_MAX {
                    break;
                }
            }
        }
    }

    fn search(&self, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let found = scratch.scan(&self.matcher, data, |id, _, _| {
            out.extend_from_slice(self.rules.get(id as usize).map_or(&[], |r| r));
        });
        if found.is_err() {
            // The search failed, so any of the expressions may match.
            self.rules.iter().for_each(|rules| out.extend_from_slice(rules));
        }
    }
}

/// Collects the patterns of one buffer.
#[derive(Debug, Default)]
pub(crate) struct PrefilterBuilder<'a> {
    literals: Vec<(&'a Literal, u32)>,
    bytes: Vec<(&'a AnyOf, u32)>,
    regexes: BTreeMap<&'a Regex, Vec<u32>>,
}

impl<'a> PrefilterBuilder<'a> {
    /// Adds `literal` as the fast pattern of `rule`.
    pub(crate) fn add(&mut self, literal: &'a Literal, rule: u32) {
        self.literals.push((literal, rule));
    }

    /// Adds literals of which `rule` needs one.
    pub(crate) fn add_any_of(&mut self, any: &'a AnyOf, rule: u32) {
        self.literals.extend(any.literals.iter().map(|l| (l, rule)));
        self.bytes.push((any, rule));
    }

    /// Adds `regex`, which the matcher must support, as the pattern of `rule`.
    pub(crate) fn add_regex(&mut self, regex: &'a Regex, rule: u32) {
        self.regexes.entry(regex).or_default().push(rule);
    }

    pub(crate) fn finish(self, cache: &mut MatcherCache) -> Prefilter {
        let mut out = Prefilter::new(self.literals, cache);
        out.bytes = Bytes::new(&self.bytes);
        // Expressions that need a row of digits are only searched if there is one, and only there if they want a number.
        let mut parts: [Vec<_>; 4] = Default::default();
        for (regex, rules) in self.regexes {
            let digits = digits_of(regex);
            let stretch = if digits > 0 { Stretch::of_pattern(regex.pattern()) } else { None };
            let part = match (regex.is_anchored(), digits) {
                (true, _) => ANCHORED,
                (false, 0) => 2,
                (false, _) => usize::from(stretch.is_none()),
            };
            parts[part].push((digits, stretch, regex, rules));
        }
        for (n, part) in parts.into_iter().enumerate() {
            let Some(digits) = part.iter().map(|r| r.0).min() else { continue };
            let stretch = part.iter().map(|r| r.1).reduce(|all, one| Some(all?.or(one?))).flatten();
            let (list, rules): (Vec<_>, Vec<_>) =
                part.into_iter().map(|(_, _, r, rules)| (r.clone(), rules.into_boxed_slice())).unzip();
            let (anchored, matcher) = (n == ANCHORED, cache.regexes(list));
            out.regexes.push(Regexes { matcher, digits, stretch, anchored, rules: rules.into() });
        }
        out
    }
}

impl Prefilter {
    /// A prefilter for literals, each with its rule.
    pub(crate) fn new(list: Vec<(&Literal, u32)>, cache: &mut MatcherCache) -> Prefilter {
        let mut places: BTreeMap<u32, Vec<(&Literal, u32)>> = BTreeMap::new();
        let mut anywhere = Vec::new();
        for &(l, rule) in &list {
            match l.places() {
                // A single byte is useless without an offset.
                Some(at)
                    if places.len() < TABLES_MAX
                        || l.pattern.bytes.len() == 1
                        || at.clone().all(|p| places.contains_key(&p)) =>
                {
                    for p in at {
                        places.entry(p).or_default().push((l, rule));
                    }
                }
                _ => anywhere.push((l, rule)),
            }
        }
        Prefilter {
            regexes: Vec::new(),
            bytes: None,
            anywhere: (!anywhere.is_empty()).then(|| Finder::new(anywhere, cache)),
            placed: places.into_iter().map(|(offset, list)| Place::new(offset, list)).collect(),
        }
    }

    /// Adds the rules whose pattern is in `data` at an allowed offset, possibly some rules twice.
    pub(crate) fn scan(&self, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.scan_from(data, 0, scratch, out);
    }

    /// Adds the rules whose pattern is at one of its few possible offsets.
    fn scan_places(&self, data: &[u8], out: &mut Vec<u32>) {
        for p in &self.placed {
            if !p.scan(data, out) {
                break;
            }
        }
    }

    /// As [`Self::scan`], for a window of streamed data whose first `seen` bytes an earlier window had. Rules that only these
    /// bytes make candidates may be left out. Returns the set of the data's bytes if a rule needed it.
    pub(crate) fn scan_behind(
        &self,
        data: &[u8],
        seen: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Option<ByteSet> {
        // Offsets count from the window, so its first bytes are looked at again.
        self.scan_places(data, out);
        if let Some(f) = &self.anywhere {
            f.scan_behind(data, seen, scratch, out);
        }
        for r in &self.regexes {
            r.scan(data, scratch, out);
        }
        let bytes = self.bytes.as_ref()?;
        let set = ByteSet::of(data);
        bytes.candidates(&set, out);
        Some(set)
    }

    /// As [`Self::scan`], for stream data whose first `seen` bytes were searched before. Offsets may count from its
    /// beginning, or from the start of the new part.
    pub(crate) fn scan_from(&self, data: &[u8], seen: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let new = data.get(seen..).filter(|_| seen > 0);
        for data in std::iter::once(data).chain(new) {
            self.scan_places(data, out);
        }
        if let Some(f) = &self.anywhere {
            f.scan(data, seen, scratch, out);
        }
        if let Some(b) = &self.bytes {
            b.candidates(&ByteSet::of(data), out);
        }
        for r in &self.regexes {
            r.scan(data, scratch, out);
            if let Some(new) = new.filter(|_| r.anchored) {
                r.scan(new, scratch, out);
            }
        }
    }
}
