//! Which of the patterns of one buffer occur in it, and so which rules may match.
//!
//! What is found is a candidate; the rule's own checks decide. Patterns are sorted by where they may lie:
//!
//! - those that can only lie in one of few places (`startswith`, `offset` with a tight `depth`) are looked up there, in a
//!   hash table for each place ([`Place`]): a buffer of a megabyte costs no more than one of ten bytes;
//! - all others are looked for everywhere ([`Finder`]); of common ones (of two and three bytes, or of one byte again and again),
//!   which are in most buffers, at many places, one place is enough.
//!
//! What is found of a pattern that is not common is compared with all of it, and its place with where the rule wants it,
//! before it makes candidates.

mod digits;
mod finder;
mod grams;
mod memo;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::fast_pattern::FastPattern;
use crate::mpm::{Matcher, MatcherCache, Pattern, Regex, Scratch};

use finder::Finder;
pub(crate) use memo::Memo;
use place::Place;

/// A pattern that stands for a rule, and where in the buffer it may lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Literal {
    pub(crate) pattern: Pattern,
    /// It does not start before this byte.
    pub(crate) offset: u32,
    /// It does not end after this byte, where that is known.
    pub(crate) end: Option<u32>,
    /// A buffer of more bytes need not be looked through for it.
    pub(crate) longest: u32,
}

/// A literal that may start at more places than this is looked for everywhere.
const PLACES_MAX: u32 = 12;
/// One buffer has tables for so many places; what would need another is looked for everywhere.
const TABLES_MAX: usize = 48;
/// Expressions with so many digits in a row are looked for by themselves, where there are so many.
const DIGITS_MIN: usize = 3;
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
    /// Whether it is worth looking for: one byte that may be anywhere is in nearly every buffer.
    pub(crate) fn is_useful(&self) -> bool {
        self.pattern.bytes.len() > 1 || self.places().is_some()
    }

    /// The places where it may start, if they are few.
    fn places(&self) -> Option<std::ops::RangeInclusive<u32>> {
        let len = u32::try_from(self.pattern.bytes.len()).ok()?;
        let last = self.end?.checked_sub(len)?;
        (last >= self.offset && last - self.offset < PLACES_MAX).then_some(self.offset..=last)
    }

    /// Whether it is in so many places of so many buffers that to be told of one place is enough.
    fn is_common(&self) -> bool {
        let bytes = &self.pattern.bytes;
        bytes.len() < SHORT || bytes.windows(2).all(|w| matches!(w, [a, b] if a == b))
    }

    /// Whether `data` has it at `start`, and it may lie there.
    pub(crate) fn is_at(&self, data: &[u8], start: usize) -> bool {
        let end = start + self.pattern.bytes.len();
        start >= self.offset as usize && self.end.is_none_or(|e| end <= e as usize) && self.equals(data, start)
    }

    /// Whether `data` has it at `start`.
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

/// One entry for each distinct literal of `list`, in their order.
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

/// How many digits in a row there must be for an expression to be looked for; 0 where it is in any case.
pub(crate) fn digits_of(regex: &Regex) -> usize {
    match digits::of_pattern(regex.pattern()) {
        n if n >= DIGITS_MIN => n,
        _ => 0,
    }
}

/// The longest row of digits in `data`.
pub(crate) fn longest_row(data: &[u8]) -> usize {
    data.split(|b| !b.is_ascii_digit()).map(<[u8]>::len).max().unwrap_or(0)
}

/// The patterns of one buffer.
#[derive(Debug)]
pub(crate) struct Prefilter {
    placed: Box<[Place]>,
    anywhere: Option<Finder>,
    regexes: Vec<Regexes>,
}

/// Regular expressions, all looked for at once.
#[derive(Debug)]
struct Regexes {
    matcher: Matcher,
    /// A buffer without so many digits in a row has none of them.
    digits: usize,
    /// By number of the expression.
    rules: Box<[Box<[u32]>]>,
}

/// What a buffer is to be looked through for.
#[derive(Debug, Default)]
pub(crate) struct PrefilterBuilder<'a> {
    literals: Vec<(&'a Literal, u32)>,
    regexes: BTreeMap<&'a Regex, Vec<u32>>,
}

impl<'a> PrefilterBuilder<'a> {
    /// `literal` stands for `rule`.
    pub(crate) fn add(&mut self, literal: &'a Literal, rule: u32) {
        self.literals.push((literal, rule));
    }

    /// `regex`, which the matcher can look for, stands for `rule`.
    pub(crate) fn add_regex(&mut self, regex: &'a Regex, rule: u32) {
        self.regexes.entry(regex).or_default().push(rule);
    }

    pub(crate) fn finish(self, cache: &mut MatcherCache) -> Prefilter {
        let mut out = Prefilter::new(self.literals, cache);
        // Those that ask for a row of digits are looked for where there is one.
        let (numbers, others): (Vec<_>, Vec<_>) =
            self.regexes.into_iter().map(|(r, rules)| (digits_of(r), r, rules)).partition(|r| r.0 > 0);
        for part in [numbers, others] {
            let Some(digits) = part.iter().map(|r| r.0).min() else { continue };
            let (list, rules): (Vec<_>, Vec<_>) =
                part.into_iter().map(|(_, r, rules)| (r.clone(), rules.into_boxed_slice())).unzip();
            out.regexes.push(Regexes { matcher: cache.regexes(list), digits, rules: rules.into_boxed_slice() });
        }
        out
    }
}

impl Prefilter {
    /// For literals, each with the rule that it stands for.
    pub(crate) fn new(list: Vec<(&Literal, u32)>, cache: &mut MatcherCache) -> Prefilter {
        let mut places: BTreeMap<u32, Vec<(&Literal, u32)>> = BTreeMap::new();
        let mut anywhere = Vec::new();
        for &(l, rule) in &list {
            match l.places() {
                // A single byte is worth nothing elsewhere.
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
            anywhere: (!anywhere.is_empty()).then(|| Finder::new(anywhere, cache)),
            placed: places.into_iter().map(|(offset, list)| Place::new(offset, list)).collect(),
        }
    }

    /// Adds the rules whose pattern is in `data`, where it may be; some may be there twice.
    pub(crate) fn scan(&self, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.scan_from(data, 0, scratch, out);
    }

    /// The same for stream data of which the first `seen` bytes were searched before: places may be counted from its beginning, or
    /// from where the new part begins.
    pub(crate) fn scan_from(&self, data: &[u8], seen: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let new = data.get(seen..).filter(|_| seen > 0);
        for data in std::iter::once(data).chain(new) {
            for p in &self.placed {
                if !p.scan(data, out) {
                    break;
                }
            }
        }
        if let Some(f) = &self.anywhere {
            f.scan(data, seen, scratch, out);
        }
        for r in &self.regexes {
            if r.digits > 0 && !scratch.once(data, r.digits, || digits::are_in(data, r.digits)) {
                continue;
            }
            let found = scratch.scan(&r.matcher, data, |id, _, _| {
                out.extend_from_slice(r.rules.get(id as usize).map_or(&[], |r| r));
            });
            if found.is_err() {
                // Any of them may be there.
                r.rules.iter().for_each(|rules| out.extend_from_slice(rules));
            }
        }
    }
}
