//! A prefilter for rules on numbers (card or account numbers): they need digits in a row, which most buffers do not
//! have.

use crate::literals::parse;
use regex_syntax::hir::{Class, Hir, HirKind};

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

/// Whether the pattern has something that PCRE reads differently: word boundaries, nested sets.
fn is_ambiguous(pattern: &str) -> bool {
    let mut in_class = false;
    let mut bytes = pattern.bytes().peekable();
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => match bytes.next() {
                Some(b'<' | b'>') => return true,
                Some(b'b') if bytes.peek() == Some(&b'{') => return true,
                _ => {}
            },
            b'[' if in_class => return true,
            b'[' => {
                in_class = true;
                bytes.next_if_eq(&b'^');
                // A leading bracket stands for itself.
                bytes.next_if_eq(&b']');
            }
            b']' => in_class = false,
            b'&' | b'-' | b'~' if in_class && bytes.peek() == Some(&b) => return true,
            _ => {}
        }
    }
    false
}

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
    if n < 3 {
        return has_row(data, n);
    }
    // Three digits in a row contain a pair that begins at an even offset.
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for (i, block) in blocks.iter().enumerate() {
        // A row may begin in the previous block or end in the next.
        let around = || data.get((i * BLOCK).saturating_sub(n)..(i * BLOCK + BLOCK + n).min(data.len()));
        if has_pair(block) && has_row(around().unwrap_or(data), n) {
            return true;
        }
    }
    !rest.is_empty() && has_row(data.get((blocks.len() * BLOCK).saturating_sub(n)..).unwrap_or(data), n)
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

/// Whether `data` has `n` digits in a row. Every such row covers one of the places `n` - 1, 2`n` - 1 and so on, so only
/// those need a look.
fn has_row(data: &[u8], n: usize) -> bool {
    let digit = |i: usize| data.get(i).is_some_and(u8::is_ascii_digit);
    let Some(mut at) = n.checked_sub(1) else { return true };
    while at < data.len() {
        if digit(at) {
            let before = (1..n).take_while(|&k| k <= at && digit(at - k)).count();
            let after = (1..n - before).take_while(|&k| digit(at + k)).count();
            if before + 1 + after >= n {
                return true;
            }
        }
        at += n;
    }
    false
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

    proptest! {
        #[test]
        fn rows_are_found(data in proptest::collection::vec(prop_oneof![2 => Just(b'1'), 1 => Just(b'9'), 1 => Just(b'/'), 2 => Just(b':')], 0..400),
                          n in 0usize..7) {
            let naive = n == 0 || data.windows(n).any(|w| w.iter().all(u8::is_ascii_digit));
            prop_assert_eq!(are_in(&data, n), naive);
        }
    }
}
