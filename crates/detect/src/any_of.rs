//! Finds literals of which every match of a regular expression contains at least one.
//!
//! Without a literal, a rule with an expression is evaluated for each value of its buffers. Most expressions list
//! alternatives, each of which has a literal, and a value that has none of these cannot match. Assertions and possessive
//! quantifiers only exclude matches, so they are removed before the expression is parsed.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::byte_set::ByteSet;
use crate::literals::{is_ambiguous, parse};

/// Most literals of an expression.
const LITERALS_MAX: usize = 64;
/// Longer literals are no more selective.
const LONGEST: usize = 16;
/// Most members of a class that count as literals.
const CLASS_MAX: usize = 16;
/// Expressions whose literals are more frequent than this are evaluated always.
const RATE_MAX: f64 = 0.02;

/// Literals of which a match contains one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Needed {
    /// Not empty; with `nocase` in lower case.
    pub(crate) literals: Vec<Vec<u8>>,
    pub(crate) nocase: bool,
    /// How often one of them probably begins at a byte of a value.
    pub(crate) rate: f64,
}

/// The literals that `pattern`, in PCRE syntax, needs with `options`. `None` if there are none, if they are frequent, or
/// if the pattern has something that the parser here may read differently.
pub(crate) fn of_pattern(pattern: &str, options: &str) -> Option<Needed> {
    let nocase = options.contains('i');
    let best = best_of(pattern, options).filter(|best| best.rate <= RATE_MAX)?;
    Some(Needed { literals: best.literals.into_iter().collect(), nocase, rate: best.rate })
}

/// As [`of_pattern`], however frequent they are.
fn best_of(pattern: &str, options: &str) -> Option<Choice> {
    let plain = without_assertions(pattern).filter(|p| !options.contains('x') && !is_ambiguous(p))?;
    Part::of(&parse(&plain)?, options.contains('i')).best()
}

/// The bytes of which every match of `pattern` with `options` contains at least one; `None` if ordinary words have them.
/// They are weaker than literals, but exist for more expressions, and the bytes of a value are found once for all rules.
pub(crate) fn bytes_of_pattern(pattern: &str, options: &str) -> Option<ByteSet> {
    best_bytes_of(pattern, options).filter(|bytes| !bytes.has_alphanumeric())
}

/// As [`bytes_of_pattern`], whatever words have.
fn best_bytes_of(pattern: &str, options: &str) -> Option<ByteSet> {
    let plain = without_assertions(pattern).filter(|p| !options.contains('x') && !is_ambiguous(p))?;
    bytes_of(&parse(&plain)?, options.contains('i')).map(|found| found.0)
}

/// The bytes of which every match of a part contains at least one, and their weight: fewer and rarer is better.
fn bytes_of(hir: &Hir, nocase: bool) -> Option<(ByteSet, f64)> {
    let of = |bytes: &mut dyn Iterator<Item = u8>| {
        let mut found = (ByteSet::EMPTY, 0.0);
        for b in bytes {
            for b in [b.to_ascii_lowercase(), b.to_ascii_uppercase()].into_iter().filter(|x| nocase || *x == b) {
                found.0.insert(b);
            }
            // Any word has letters, so other bytes are better even if they are frequent.
            found.1 += if b.is_ascii_alphanumeric() { 1.0 } else { frequency(b) };
        }
        found
    };
    let rarest = |a: Option<(ByteSet, f64)>, b: Option<(ByteSet, f64)>| match (a, b) {
        (Some(a), Some(b)) => Some(if b.1 < a.1 { b } else { a }),
        (a, b) => a.or(b),
    };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => None,
        HirKind::Literal(l) => l.0.iter().map(|&b| Some(of(&mut std::iter::once(b)))).fold(None, rarest),
        HirKind::Class(Class::Bytes(class)) => {
            Some(of(&mut class.ranges().iter().flat_map(|r| r.start()..=r.end()))).filter(|found| found.1 > 0.0)
        }
        HirKind::Class(_) => None,
        HirKind::Capture(c) => bytes_of(&c.sub, nocase),
        HirKind::Repetition(r) if r.min > 0 => bytes_of(&r.sub, nocase),
        HirKind::Repetition(_) => None,
        HirKind::Concat(parts) => parts.iter().map(|p| bytes_of(p, nocase)).fold(None, rarest),
        HirKind::Alternation(parts) => parts.iter().try_fold((ByteSet::EMPTY, 0.0), |mut all, p| {
            let (bytes, rate) = bytes_of(p, nocase)?;
            all.0.insert_all(bytes);
            Some((all.0, all.1 + rate))
        }),
    }
}

/// Literals of which one is needed, and their rate.
#[derive(Debug, Clone)]
struct Choice {
    literals: BTreeSet<Vec<u8>>,
    rate: f64,
}

impl Choice {
    fn new(literals: BTreeSet<Vec<u8>>) -> Option<Choice> {
        if literals.is_empty() || literals.len() > LITERALS_MAX || literals.iter().any(Vec::is_empty) {
            return None;
        }
        // A literal that has another one in it says nothing more.
        let within = |l: &Vec<u8>, other: &Vec<u8>| l != other && l.windows(other.len()).any(|w| w == other);
        let literals: BTreeSet<_> =
            literals.iter().filter(|l| !literals.iter().any(|o| within(l, o))).cloned().collect();
        let rate = literals.iter().map(|l| l.iter().map(|&b| frequency(b)).product::<f64>()).sum();
        Some(Choice { literals, rate })
    }

    fn better(a: Option<Choice>, b: Option<Choice>) -> Option<Choice> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.rate < a.rate { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// The share of a byte in the values of requests, roughly.
fn frequency(b: u8) -> f64 {
    match b {
        b'a'..=b'z' | b'A'..=b'Z' => 1.0 / 14.0,
        b' ' | b'/' | b'.' => 1.0 / 20.0,
        b'0'..=b'9' => 1.0 / 25.0,
        b'-' | b'=' | b'&' | b',' | b';' | b':' | b'_' | b'?' | b'%' | b'(' | b')' | b'+' => 1.0 / 40.0,
        _ => 1.0 / 200.0,
    }
}

/// The literals of a part of an expression.
struct Part {
    /// All the strings that it matches, if they are few.
    exact: Option<BTreeSet<Vec<u8>>>,
    /// The most selective literals within it.
    inner: Option<Choice>,
}

impl Part {
    const UNKNOWN: Part = Part { exact: None, inner: None };

    fn exactly(strings: impl IntoIterator<Item = Vec<u8>>) -> Part {
        Part { exact: Some(strings.into_iter().collect()), inner: None }
    }

    fn best(self) -> Option<Choice> {
        Choice::better(self.inner, self.exact.and_then(Choice::new))
    }

    fn of(hir: &Hir, nocase: bool) -> Part {
        let lower = |bytes: &[u8]| if nocase { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
        match hir.kind() {
            // An assertion consumes no bytes.
            HirKind::Empty | HirKind::Look(_) => Part::exactly([Vec::new()]),
            HirKind::Literal(l) => Part::of_literal(lower(&l.0)),
            HirKind::Class(Class::Bytes(class)) => {
                let ranges = class.ranges();
                let size: usize = ranges.iter().map(|r| usize::from(r.end() - r.start()) + 1).sum();
                if !(1..=CLASS_MAX).contains(&size) {
                    return Part::UNKNOWN;
                }
                Part::exactly(ranges.iter().flat_map(|r| r.start()..=r.end()).map(|b| lower(&[b])))
            }
            HirKind::Class(_) => Part::UNKNOWN,
            HirKind::Capture(c) => Part::of(&c.sub, nocase),
            HirKind::Repetition(r) => Part::repeated(r, nocase),
            HirKind::Concat(parts) => Part::sequence(parts.iter().map(|p| Part::of(p, nocase))),
            HirKind::Alternation(parts) => Part::alternatives(parts.iter().map(|p| Part::of(p, nocase)).collect()),
        }
    }

    fn of_literal(bytes: Vec<u8>) -> Part {
        match bytes.get(..LONGEST) {
            // Any part of a long literal is needed; its beginning is as good as another.
            Some(first) => Part { exact: None, inner: Choice::new(BTreeSet::from([first.to_vec()])) },
            None => Part::exactly([bytes]),
        }
    }

    fn repeated(r: &Repetition, nocase: bool) -> Part {
        let one = Part::of(&r.sub, nocase);
        if r.min == 0 {
            let with_none = one.exact.filter(|_| r.max == Some(1)).map(|mut e| {
                e.insert(Vec::new());
                e
            });
            return Part { exact: with_none, inner: None };
        }
        let times = r.min.min(LONGEST as u32) as usize;
        let copies = std::iter::repeat_with(|| Part { exact: one.exact.clone(), inner: one.inner.clone() });
        let least = Part::sequence(copies.take(times));
        if r.max == Some(r.min) && times == r.min as usize {
            return least;
        }
        Part { exact: None, inner: least.best() }
    }

    fn sequence(parts: impl Iterator<Item = Part>) -> Part {
        let none = || BTreeSet::from([Vec::new()]);
        let (mut run, mut inner, mut whole) = (none(), None, true);
        for part in parts {
            inner = Choice::better(inner, part.inner);
            match part.exact.as_ref().and_then(|next| joined(&run, next)) {
                Some(longer) => run = longer,
                None => {
                    inner = Choice::better(inner, Choice::new(run));
                    (run, whole) = (part.exact.unwrap_or_else(none), false);
                }
            }
        }
        if whole {
            return Part { exact: Some(run), inner };
        }
        Part { exact: None, inner: Choice::better(inner, Choice::new(run)) }
    }

    fn alternatives(parts: Vec<Part>) -> Part {
        let exact: Option<BTreeSet<Vec<u8>>> = parts
            .iter()
            .map(|p| p.exact.clone())
            .collect::<Option<Vec<_>>>()
            .map(|all| all.into_iter().flatten().collect());
        let exact = exact.filter(|e| e.len() <= LITERALS_MAX);
        let best: Option<Vec<Choice>> = parts.into_iter().map(Part::best).collect();
        let inner = best.and_then(|all| Choice::new(all.into_iter().flat_map(|c| c.literals).collect()));
        Part { exact, inner }
    }
}

/// Each string of `a` followed by each of `b`; `None` if that is too much.
fn joined(a: &BTreeSet<Vec<u8>>, b: &BTreeSet<Vec<u8>>) -> Option<BTreeSet<Vec<u8>>> {
    let longest = |set: &BTreeSet<Vec<u8>>| set.iter().map(Vec::len).max().unwrap_or(0);
    if a.len() * b.len() > LITERALS_MAX || longest(a) + longest(b) > LONGEST {
        return None;
    }
    Some(a.iter().flat_map(|x| b.iter().map(move |y| [&x[..], y].concat())).collect())
}

/// `pattern` without lookarounds, with possessive quantifiers and atomic groups made ordinary, and any text where it refers
/// to a group: it matches at least as much. `None` if it has something else that other parsers do not know.
fn without_assertions(pattern: &str) -> Option<String> {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(pattern.len());
    let mut at = 0;
    // Whether the last thing written is a quantifier that may become possessive.
    let mut quantified = false;
    while let Some(&b) = bytes.get(at) {
        let rest = bytes.get(at..)?;
        let end = match b {
            // With two digits it may be an octal number.
            b'\\' if matches!(rest, [_, b'1'..=b'9', after @ ..] if !after.first().is_some_and(u8::is_ascii_digit)) => {
                out.push_str("(?s:.*)");
                at += 2;
                quantified = false;
                continue;
            }
            b'\\' if rest.get(1).is_some_and(|b| b"QEKRXNCpPgk123456789".contains(b)) => return None,
            b'\\' => at + 2,
            b'[' => at + class_end(rest)?,
            b'(' if rest.starts_with(b"(?>") => {
                out.push_str("(?:");
                at += 3;
                quantified = false;
                continue;
            }
            b'(' if [&b"(?!"[..], b"(?=", b"(?<!", b"(?<="].iter().any(|p| rest.starts_with(p)) => {
                at += group_end(rest)?;
                // A repeated assertion is rare, and without it there is nothing to repeat.
                if bytes.get(at).is_some_and(|b| b"*+?{".contains(b)) {
                    return None;
                }
                quantified = false;
                continue;
            }
            b'(' if rest.starts_with(b"(?#") || rest.starts_with(b"(*") || rest.starts_with(b"(?|") => return None,
            b'+' if quantified => {
                quantified = false;
                at += 1;
                continue;
            }
            _ => at + 1,
        };
        quantified = !quantified && b"*+?}".contains(&b);
        out.push_str(pattern.get(at..end)?);
        at = end;
    }
    Some(out)
}

/// The length of the class at the start of `text`.
fn class_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    at += usize::from(text.get(at) == Some(&b'^'));
    // A bracket at the start belongs to the class.
    at += usize::from(text.get(at) == Some(&b']'));
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b']' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The length of the group at the start of `text`.
fn group_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0u32);
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b'[' => at += class_end(text.get(at..)?)?,
            b'(' => {
                depth += 1;
                at += 1;
            }
            b')' => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcre::{Pcre, PcreResult, PcreScratch};
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    fn needed(pattern: &str, options: &str) -> Option<Vec<String>> {
        let text = |l: Vec<u8>| l.escape_ascii().to_string();
        of_pattern(pattern, options).map(|n| n.literals.into_iter().map(text).collect())
    }

    #[test]
    fn what_is_needed() {
        let some = |list: &[&str]| Some(list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        for (pattern, options, want) in [
            ("(?:evil|wicked)[a-z]+", "", some(&["evil", "wicked"])),
            ("(?:Evil|WICKED)", "i", some(&["evil", "wicked"])),
            ("a[bc]d(?:xyz)?", "", some(&["abd", "acd"])),
            // Each alternative has its best part.
            (r"^\s*alias[/.]|<<<\s*[a-z(]|^~[+-]x", "", some(&["~+x", "~-x", "<<<", "alias.", "alias/"])),
            (r"(?<![a-z])(?!good)evil(?=x)", "", some(&["evil"])),
            (r"(?>evil)++|wicked*+", "", some(&["evil", "wicke"])),
            (r"([ab]+)\1+evil", "", some(&["evil"])),
            (r"\{\{[^}]{0,300}?(?:__|popen)", "", some(&["{{"])),
            // Nothing is needed, or what is in every value.
            ("evil|", "", None),
            ("evil|[a-z]+", "", None),
            ("[aeiou]", "", None),
            (r"(evil)\12", "", None),
            (r"(?!evil)*x", "", None),
        ] {
            let mut want = want;
            if let Some(w) = &mut want {
                w.sort();
            }
            let mut have = needed(pattern, options);
            if let Some(h) = &mut have {
                h.sort();
            }
            assert_eq!(have, want, "{pattern}");
        }
    }

    #[test]
    fn bytes_that_are_needed() {
        let set = |list: &str| {
            let mut all = ByteSet::EMPTY;
            list.bytes().for_each(|b| all.insert(b));
            Some(all)
        };
        for (pattern, options, want) in [
            (r"^\s*alias[/.]|<<<\s*[a-z(]|^~[+-]x|cmd=\$", "i", set("./<~$")),
            (r"[!-/:-@\x5b-`{-~]{6}", "", set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")),
            (r"(?:a{2,3}'|b+\x22)?x*\(", "", set("(")),
            (r"(?!evil)[^\w]", "", best_bytes_of(r"\W", "")),
            // A word is enough, or nothing.
            ("'|evil", "", None),
            ("'?", "", None),
            (r"(?=')(?<!x)", "", None),
            ("a b", "x", None),
        ] {
            assert_eq!(bytes_of_pattern(pattern, options), want, "{pattern}");
        }
        assert_eq!(best_bytes_of("kk", "i"), set("kK"));
    }

    /// Every match of a pattern contains one of its literals, and one of its bytes. Most made patterns do not compile, or
    /// match none of their texts, so the matches are counted.
    #[test]
    fn matches_have_one() {
        const PATTERN: &str = "([ab~<\\-c]|\\\\x61|[.^$]|\\(a|\\(\\?:|\\(\\?=|\\(\\?!|\\(\\?<!|\\(\\?>|\\)|\\||\\[|\\[\\^|\\]\
                               |\\{2\\}|\\{0,2\\}|[?*+]|\\\\[bdwsv<1]){1,14}";
        let texts = proptest::collection::vec("[aAbBcC~<\\-\\[\\]]{0,20}", 16);
        let mut runner = TestRunner::deterministic();
        let mut scratch = PcreScratch::new();
        let mut matches = [0; 2];
        for _ in 0..20_000 {
            let made = (PATTERN, &texts, any::<bool>()).new_tree(&mut runner).unwrap().current();
            let (pattern, texts, nocase): (String, Vec<String>, bool) = made;
            let options = if nocase { "i" } else { "" };
            let Ok(code) = Pcre::new(&pattern, options, None) else { continue };
            let (best, bytes) = (best_of(&pattern, options), best_bytes_of(&pattern, options));
            if best.is_none() && bytes.is_none() {
                continue;
            }
            for text in texts {
                let PcreResult::Match(..) = code.find_at(text.as_bytes(), 0, &mut scratch) else { continue };
                let all = if nocase { text.to_ascii_lowercase() } else { text.clone() };
                let has = |l: &Vec<u8>| all.as_bytes().windows(l.len()).any(|w| w == l);
                if let Some(best) = &best {
                    assert!(best.literals.iter().any(has), "{text:?} has none of {best:?} of {pattern}");
                    matches[0] += 1;
                }
                if let Some(bytes) = &bytes {
                    assert!(bytes.meets(&ByteSet::of(text.as_bytes())), "{text:?} has none of {bytes:?} of {pattern}");
                    matches[1] += 1;
                }
            }
        }
        assert!(matches.iter().all(|n| *n > 2_000), "{matches:?}");
    }
}
