//! Finds literals that every match of a regular expression contains. If a rule has no other rare literal, its prefilter
//! searches for one of these.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// A longer literal is no more selective.
const LONGEST: usize = 64;

/// The literals that every match of a part of an expression contains.
#[derive(Debug, Default)]
struct Sure {
    /// Whether the part matches exactly `first` and nothing else.
    whole: bool,
    /// The literal prefix, and the literal suffix.
    first: Vec<u8>,
    last: Vec<u8>,
    /// Other literals within the match.
    more: Vec<Vec<u8>>,
}

impl Sure {
    fn literal(bytes: &[u8]) -> Sure {
        Sure { whole: true, first: bytes.to_vec(), last: bytes.to_vec(), more: Vec::new() }
    }

    fn then(mut self, next: Sure) -> Sure {
        let mut joined = self.last;
        joined.extend_from_slice(&next.first);
        self.more.extend(next.more);
        if next.whole {
            self.last = joined.clone();
        } else {
            self.more.push(joined.clone());
            self.last = next.last;
        }
        if self.whole {
            self.first = joined;
        }
        self.whole &= next.whole;
        self
    }

    fn of(part: &Hir) -> Sure {
        match part.kind() {
            // An assertion consumes no bytes.
            HirKind::Empty | HirKind::Look(_) => Sure::literal(&[]),
            HirKind::Literal(l) => Sure::literal(&l.0),
            HirKind::Capture(c) => Sure::of(&c.sub),
            HirKind::Concat(parts) => parts.iter().fold(Sure::literal(&[]), |all, p| all.then(Sure::of(p))),
            HirKind::Repetition(r) if r.min > 0 => match (Sure::of(&r.sub), r.max) {
                (s, Some(1)) => s,
                (s, max) if s.whole && max == Some(r.min) && s.first.len() * (r.min as usize) <= LONGEST => {
                    Sure::literal(&s.first.repeat(r.min as usize))
                }
                (s, _) => Sure { whole: false, ..s },
            },
            HirKind::Repetition(_) | HirKind::Class(_) | HirKind::Alternation(_) => Sure::default(),
        }
    }
}

/// The literals that every match of `pattern` with `options` contains, and whether case is ignored. `pattern` is in PCRE
/// syntax; parts that the parser here may read differently give no literals.
pub(crate) fn of_pattern(pattern: &str, options: &str) -> (Vec<Vec<u8>>, bool) {
    let nocase = options.contains('i');
    if options.contains('x') || is_ambiguous(pattern) {
        return (Vec::new(), nocase);
    }
    let Some(hir) = parse(pattern) else { return (Vec::new(), nocase) };
    let Sure { first, last, mut more, .. } = Sure::of(&hir);
    more.extend([first, last]);
    more.retain(|l| !l.is_empty());
    more.iter_mut().for_each(|l| l.truncate(LONGEST));
    (more, nocase)
}

/// The structure of `pattern`; `None` if it has something that the parser here does not know.
pub(crate) fn parse(pattern: &str) -> Option<Hir> {
    ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).ok()
}

/// Whether the pattern has something that PCRE reads differently: word boundaries, kinds of white space, nested sets,
/// ignored blanks.
pub(crate) fn is_ambiguous(pattern: &str) -> bool {
    if !pattern.is_ascii() {
        return true;
    }
    let mut in_class = false;
    let mut bytes = pattern.bytes().peekable();
    let mut group = false;
    while let Some(b) = bytes.next() {
        let flags = std::mem::replace(&mut group, b == b'(' && !in_class && bytes.peek() == Some(&b'?'));
        if flags {
            // `b` is the question mark; flags may follow.
            let flags = bytes.clone().take_while(|b| b.is_ascii_alphabetic() || *b == b'-');
            if flags.into_iter().any(|b| b == b'x') {
                return true;
            }
        }
        match b {
            b'\\' => match bytes.next() {
                Some(b'<' | b'>' | b'v' | b'h' | b'Z' | b'G') => return true,
                Some(b'b') if bytes.peek() == Some(&b'{') => return true,
                _ => {}
            },
            b'[' if in_class => return true,
            b'[' => {
                in_class = true;
                // A leading bracket belongs to the set.
                if bytes.peek() == Some(&b'^') {
                    bytes.next();
                }
                if bytes.peek() == Some(&b']') {
                    bytes.next();
                }
            }
            b']' => in_class = false,
            b'&' | b'-' | b'~' if in_class && bytes.peek() == Some(&b) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcre::{Pcre, PcreResult, PcreScratch};
    use proptest::prelude::*;

    fn longest(pattern: &str) -> String {
        let (all, _) = of_pattern(pattern, "");
        let best = all.into_iter().max_by_key(Vec::len).unwrap_or_default();
        best.escape_ascii().to_string()
    }

    #[test]
    fn what_is_sure() {
        for (pattern, want) in [
            (r"\/\?nbVykj$", "/?nbVykj"),
            (r"^Content-Type\x3a\s*application\x2fsmi.*?<area", "application/smi"),
            (r"(abc)+def", "abcdef"),
            (r"(?:abc){2}d", "abcabcd"),
            (r"(?:abc){2,3}d", "abcd"),
            (r"ab(?:cd)?e", "ab"),
            (r"abc|abd", ""),
            (r"ab[c]d[ef]", "abcd"),
            (r"x\bfoo", "xfoo"),
            (r"x\<foo", ""),
            (r"a\vbcd", ""),
            (r"[[a]]bcd", ""),
            (r"(?x)a b", ""),
            (r"(?i-x:abc)d", ""),
            (r"(?=abc)abcd", ""),
            (r"\xff\x00ab*", "\\xff\\x00a"),
        ] {
            assert_eq!(longest(pattern), want, "{pattern}");
        }
        assert_eq!(of_pattern("a b", "x").0, Vec::<Vec<u8>>::new());
        assert_eq!(of_pattern("ab", "i"), (vec![b"ab".to_vec(), b"ab".to_vec()], true));
    }

    proptest! {
        /// Every match contains the literals.
        #[test]
        fn matches_have_them(
            pattern in "([ab\\-c]|\\\\x61|[.^$]|\\(a|\\(\\?:|\\)|\\||\\[|\\[\\^|\\]|\\{2\\}|\\{0,2\\}|[?*+]|\\\\[bdwsv<]){1,12}",
            text in "[aAbBcC\\-\\[\\]]{0,20}",
            nocase: bool,
        ) {
            let options = if nocase { "i" } else { "" };
            let Ok(code) = Pcre::new(&pattern, options, None) else { return Ok(()) };
            let PcreResult::Match(from, to) = code.find_at(text.as_bytes(), 0, &mut PcreScratch::new()) else { return Ok(()) };
            let (all, _) = of_pattern(&pattern, options);
            let found = &text.as_bytes()[from..to];
            for l in all {
                let has = found.windows(l.len()).any(|w| if nocase { w.eq_ignore_ascii_case(&l) } else { w == l });
                prop_assert!(has, "{:?} has not {:?} of {}", text, l.escape_ascii().to_string(), pattern);
            }
        }
    }
}
