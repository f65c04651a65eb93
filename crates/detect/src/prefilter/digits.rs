//! A prefilter for rules on numbers (card or account numbers): they need digits in a row, which most buffers do not
//! have.

use std::ops::Range;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::byte_set::ByteSet;
use crate::literals::{is_ambiguous, parse};

/// Lengths of digit rows that every match of a part of an expression contains.
#[derive(Debug, Clone, Copy, Default)]
struct Digits {
    /// At its beginning, at its end, anywhere.
    first: usize,
    last: usize,
    most: usize,
    /// Whether the part consists only of digits, or is empty.
    only: bool,
}

impl Digits {
    const fn of(n: usize) -> Digits {
        Digits { first: n, last: n, most: n, only: true }
    }

    fn then(self, next: Digits) -> Digits {
        Digits {
            first: if self.only { self.first + next.first } else { self.first },
            last: if next.only { self.last + next.last } else { next.last },
            most: self.most.max(next.most).max(self.last + next.first),
            only: self.only && next.only,
        }
    }

    fn or(self, other: Digits) -> Digits {
        Digits {
            first: self.first.min(other.first),
            last: self.last.min(other.last),
            most: self.most.min(other.most),
            only: self.only && other.only,
        }
    }
}

/// Every match of `pattern` has at least this many digits in a row; 0 if that is unknown. `pattern` is in PCRE syntax;
/// the result is 0 if the parser here would read it differently.
pub(super) fn of_pattern(pattern: &str) -> usize {
    if is_ambiguous(pattern) {
        return 0;
    }
    parse(pattern).map_or(0, |hir| digits(&hir).most)
}

/// The form of numbers that consist of digits and a few other characters: blanks, dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// All bytes of a match are among these.
    bytes: ByteSet,
    /// Digits in a match, at least.
    digits: usize,
}

impl Stretch {
    /// The form of the matches of `pattern`, if they have one and at least [`STRETCH_MIN`] digits.
    pub(super) fn of_pattern(pattern: &str) -> Option<Stretch> {
        if is_ambiguous(pattern) {
            return None;
        }
        let stretch = Stretch::of(&parse(pattern)?)?;
        // An expression may ignore case.
        let letter = |b: u8| b.is_ascii_alphabetic() && stretch.bytes.has(b);
        let few = stretch.bytes.len() <= STRETCH_BYTES && !(0..=127).any(letter);
        (few && stretch.digits >= STRETCH_MIN).then_some(stretch)
    }

    fn of(hir: &Hir) -> Option<Stretch> {
        let nothing = Stretch { bytes: ByteSet::EMPTY, digits: 0 };
        Some(match hir.kind() {
            HirKind::Empty => nothing,
            HirKind::Literal(l) => {
                Stretch { bytes: ByteSet::of(&l.0), digits: l.0.iter().filter(|b| b.is_ascii_digit()).count() }
            }
            HirKind::Class(Class::Bytes(c)) => {
                let mut bytes = ByteSet::EMPTY;
                c.ranges().iter().flat_map(|r| r.start()..=r.end()).for_each(|b| bytes.insert(b));
                let digit = bytes != ByteSet::EMPTY && bytes.is_within(&ByteSet::of(b"0123456789"));
                Stretch { bytes, digits: usize::from(digit) }
            }
            HirKind::Capture(c) => Stretch::of(&c.sub)?,
            HirKind::Concat(list) => {
                let mut all = nothing;
                for part in list {
                    let part = Stretch::of(part)?;
                    all = Stretch { digits: all.digits.saturating_add(part.digits), ..all.or(part) };
                }
                all
            }
            HirKind::Alternation(list) => {
                let mut parts = list.iter().map(Stretch::of);
                let first = parts.next().flatten()?;
                parts.try_fold(first, |all, part| Some(all.or(part?)))?
            }
            HirKind::Repetition(r) => {
                let one = Stretch::of(&r.sub)?;
                Stretch { digits: one.digits.saturating_mul(r.min as usize), ..one }
            }
            // Bytes beside the match count.
            HirKind::Look(_) | HirKind::Class(Class::Unicode(_)) => return None,
        })
    }

    /// A form that both have.
    pub(super) fn or(self, other: Stretch) -> Stretch {
        let mut bytes = self.bytes;
        bytes.insert_all(other.bytes);
        Stretch { bytes, digits: self.digits.min(other.digits) }
    }

    /// The first stretch of `data` behind `from` that has a row of `n` digits: its place, and whether a match may be in it.
    pub(super) fn next(&self, data: &[u8], from: usize, n: usize) -> Option<(Range<usize>, bool)> {
        let at = find_row(data, from, n)?;
        let mut digits = 0;
        let mut counted = |b: &&u8| {
            digits += usize::from(b.is_ascii_digit());
            self.bytes.has(**b)
        };
        let start = at - data.get(from..at)?.iter().rev().take_while(&mut counted).count();
        // A digit that the form does not have is a stretch of its own.
        let end = at + data.get(at..)?.iter().take_while(&mut counted).count().max(1);
        Some((start..end, digits >= self.digits))
    }
}

/// Forms with fewer digits are in too many buffers.
const STRETCH_MIN: usize = 6;
/// Most different bytes of a form: ten digits and what stands between them.
const STRETCH_BYTES: u32 = 20;

fn digits(hir: &Hir) -> Digits {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Digits::of(0),
        HirKind::Literal(l) => l.0.iter().fold(Digits::of(0), |all, b| all.then(one(b.is_ascii_digit()))),
        HirKind::Class(Class::Bytes(c)) => {
            one(!c.ranges().is_empty() && c.ranges().iter().all(|r| r.start() >= b'0' && r.end() <= b'9'))
        }
        HirKind::Class(Class::Unicode(c)) => {
            one(!c.ranges().is_empty() && c.ranges().iter().all(|r| r.start() >= '0' && r.end() <= '9'))
        }
        HirKind::Capture(c) => digits(&c.sub),
        HirKind::Concat(list) => list.iter().fold(Digits::of(0), |all, part| all.then(digits(part))),
        HirKind::Alternation(list) => list.iter().map(digits).reduce(Digits::or).unwrap_or_default(),
        HirKind::Repetition(r) => {
            let one = digits(&r.sub);
            // Longer rows than any buffer has need not be counted.
            match (r.min.min(64) as usize, one.only) {
                (n, true) => Digits { only: true, ..Digits::of(one.most * n) },
                (0, false) => Digits::default(),
                (1, false) => one,
                (_, false) => one.then(one),
            }
        }
    }
}

const fn one(digit: bool) -> Digits {
    if digit { Digits::of(1) } else { Digits { first: 0, last: 0, most: 0, only: false } }
}

/// Bytes tested together, in a form that the compiler can vectorise.
const BLOCK: usize = 128;

/// Whether `data` has `n` digits in a row.
pub(super) fn are_in(data: &[u8], n: usize) -> bool {
    n == 0 || find_row(data, 0, n).is_some()
}

/// A place in the first row of `n` digits behind `from`; `n` is not 0.
fn find_row(data: &[u8], from: usize, n: usize) -> Option<usize> {
    let rest = data.get(from..)?;
    // Three digits in a row contain a pair that begins at an even offset.
    let (blocks, _) = if n < 3 { (&[][..], rest) } else { rest.as_chunks::<BLOCK>() };
    for (i, block) in blocks.iter().enumerate() {
        // A row may begin in the previous block or end in the next.
        let start = (i * BLOCK).saturating_sub(n);
        if has_pair(block)
            && let Some(at) = row_in(rest.get(start..(i * BLOCK + BLOCK + n).min(rest.len()))?, n)
        {
            return Some(from + start + at);
        }
    }
    let start = (blocks.len() * BLOCK).saturating_sub(n);
    row_in(rest.get(start..)?, n).map(|at| from + start + at)
}

/// Whether there are two digits at an even offset and the next one.
fn has_pair(block: &[u8; BLOCK]) -> bool {
    let (pairs, _) = block.as_chunks::<2>();
    // Tests both bytes at once: a digit XOR 0x30 is below 10, so adding 6 leaves its upper half zero. A carry into the
    // other byte comes only from a byte that is no digit.
    let pair = |p: &[u8; 2]| {
        let t = u16::from_ne_bytes(*p) ^ 0x3030;
        u16::from((t.wrapping_add(0x0606) | t) & 0xf0f0 == 0)
    };
    pairs.iter().fold(0, |any, p| any | pair(p)) != 0
}

/// A place in the first row of `n` digits. Every such row covers one of the places `n` - 1, 2`n` - 1 and so on, so only those
/// need a look.
fn row_in(data: &[u8], n: usize) -> Option<usize> {
    let digit = |i: usize| data.get(i).is_some_and(u8::is_ascii_digit);
    let mut at = n.checked_sub(1)?;
    while at < data.len() {
        if digit(at) {
            let before = (1..n).take_while(|&k| k <= at && digit(at - k)).count();
            let after = (1..n - before).take_while(|&k| digit(at + k)).count();
            if before + 1 + after >= n {
                return Some(at);
            }
        }
        at += n;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_every_match_has() {
        for (pattern, want) in [
            (r" (30[0-5]\d|36\d{2}|38\d{2}) \d{4} \d{4} \d{2} ", 4),
            (r" (6011|5[1-5]\d{2}|4\d{3}|3\d{3})\d{12} ", 16),
            (r"\d{3}-\d{2}-\d{4}", 4),
            (r"\d+", 1),
            (r"(\d\d)?\d", 1),
            (r"(\d{2}x)+\d", 2),
            (r"(x\d{2}){2}", 2),
            (r"(1x2){2}", 2),
            (r"\d*", 0),
            (r"\d|x", 0),
            (r"[0-9a]{4}", 0),
            (r"[12]3", 2),
            (r"12\<34", 0),
            (r"12\b{start}34", 0),
            (r"[0[1]{3}", 0),
            (r"[][0-9]{3}", 0),
            (r"[0-9&&1]{3}", 0),
            (r"1(?=2)3", 0),
        ] {
            assert_eq!(of_pattern(pattern), want, "{pattern}");
        }
    }

    #[test]
    fn forms_of_numbers() {
        let of = |bytes: &[u8], digits| Some(Stretch { bytes: ByteSet::of(bytes), digits });
        for (pattern, want) in [
            (r" (30[0-5]\d|36\d{2}) \d{4} \d{4} \d{2} ", of(b" 0123456789", 14)),
            (r" (3[4|7]\d{2}|1800)-\d{6} ", of(b" -|0123456789", 9)),
            (r"\d{3}-?\d{2,}-\d{4}", of(b"-0123456789", 9)),
            (r"(12)+3456", of(b"123456", 6)),
            (r"\d{5}", None),
            (r"\d{16}x", None),
            (r"\d{16}\W", None),
            (r"\b\d{16}", None),
            (r"^\d{16}", None),
            (r"(?x)\d{16} ", None),
            (r"\d{16}|.*", None),
        ] {
            assert_eq!(Stretch::of_pattern(pattern), want, "{pattern}");
        }
    }

    proptest! {
        /// The stretches are all that have a row, each whole and once.
        #[test]
        fn stretches_are_found(data in proptest::collection::vec(prop_oneof![4 => Just(b'1'), 1 => Just(b' '), 1 => Just(b'-'), 1 => Just(b':')], 0..300)) {
            let s = Stretch { bytes: ByteSet::of(b" -0123456789"), digits: 9 };
            let (mut found, mut from) = (Vec::new(), 0);
            while let Some((range, enough)) = s.next(&data, from, 4) {
                from = range.end;
                found.push((data[range].to_vec(), enough));
            }
            let digits = |part: &[u8]| part.iter().filter(|b| b.is_ascii_digit()).count();
            let want: Vec<_> = data.split(|b| *b == b':').filter(|p| are_in(p, 4)).map(|p| (p.to_vec(), digits(p) >= 9)).collect();
            prop_assert_eq!(found, want);
        }

        /// So are those without some of the digits, and the search ends.
        #[test]
        fn stretches_of_some_digits(data in proptest::collection::vec(prop_oneof![4 => Just(b'1'), 1 => Just(b'9'), 1 => Just(b' ')], 0..300)) {
            let s = Stretch { bytes: ByteSet::of(b" 1"), digits: 6 };
            let (mut found, mut from) = (Vec::new(), 0);
            while let Some((range, enough)) = s.next(&data, from, 4) {
                prop_assert!(range.end > from);
                from = range.end;
                if enough {
                    found.extend_from_slice(&data[range]);
                }
            }
            for part in data.split(|b| *b == b'9').filter(|p| are_in(p, 6)) {
                prop_assert!(found.windows(part.len()).any(|w| w == part));
            }
        }

        #[test]
        fn rows_are_found(data in proptest::collection::vec(prop_oneof![2 => Just(b'1'), 1 => Just(b'9'), 1 => Just(b'/'), 2 => Just(b':')], 0..400),
                          n in 0usize..7) {
            let naive = n == 0 || data.windows(n).any(|w| w.iter().all(u8::is_ascii_digit));
            prop_assert_eq!(are_in(&data, n), naive);
        }
    }
}
