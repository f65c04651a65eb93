//! Searches for one literal; prepared when the rule is compiled.

use memchr::memmem;

/// A literal ready to be searched for.
#[derive(Debug, Clone)]
pub(crate) enum Searcher {
    /// One byte, case-sensitive.
    Byte(u8),
    /// One letter in either case.
    Byte2(u8, u8),
    /// Several bytes, case-sensitive.
    Exact(Box<memmem::Finder<'static>>),
    /// Several bytes, ignoring case.
    NoCase(NoCase),
}

/// A literal whose ASCII letters match in either case. The search looks for its rarest byte, then compares around it.
#[derive(Debug, Clone)]
pub(crate) struct NoCase {
    /// In lower case.
    pattern: Box<[u8]>,
    /// Position in `pattern` of the byte to search for.
    rare: usize,
    /// That byte in both cases; twice the same if it is no letter.
    cases: (u8, u8),
}

impl Searcher {
    /// Prepares `pattern`, which is not empty.
    pub(crate) fn new(pattern: &[u8], nocase: bool) -> Searcher {
        let nocase = nocase && pattern.iter().any(u8::is_ascii_alphabetic);
        match (pattern, nocase) {
            ([b], false) => Searcher::Byte(*b),
            ([b], true) => Searcher::Byte2(b.to_ascii_lowercase(), b.to_ascii_uppercase()),
            (_, false) => Searcher::Exact(Box::new(memmem::Finder::new(pattern).into_owned())),
            (_, true) => Searcher::NoCase(NoCase::new(pattern)),
        }
    }

    /// The first occurrence in `haystack`.
    #[inline]
    pub(crate) fn find(&self, haystack: &[u8]) -> Option<usize> {
        match self {
            Searcher::Byte(b) => memchr::memchr(*b, haystack),
            Searcher::Byte2(a, b) => memchr::memchr2(*a, *b, haystack),
            Searcher::Exact(f) => find(f, haystack),
            Searcher::NoCase(n) => n.find(haystack),
        }
    }

    /// Whether `haystack` equals this literal; the lengths must be equal.
    #[inline]
    pub(crate) fn equals(&self, haystack: &[u8]) -> bool {
        match self {
            Searcher::Byte(b) => haystack == [*b],
            Searcher::Byte2(a, b) => haystack == [*a] || haystack == [*b],
            Searcher::Exact(f) => f.needle() == haystack,
            Searcher::NoCase(n) => n.pattern.eq_ignore_ascii_case(haystack),
        }
    }
}

/// The first places are compared one by one: starting the search costs more than that, and a literal within a few bytes of
/// another needs nothing else.
#[inline]
fn find(finder: &memmem::Finder<'static>, haystack: &[u8]) -> Option<usize> {
    const FIRST: usize = 8;
    let needle = finder.needle();
    let &[a, b, ..] = needle else { return finder.find(haystack) };
    let places = haystack.len().checked_sub(needle.len())? + 1;
    for at in 0..places.min(FIRST) {
        if let Some(&[c, d, ..]) = haystack.get(at..)
            && (a, b) == (c, d)
            && (needle.len() == 2 || haystack.get(at..at + needle.len()) == Some(needle))
        {
            return Some(at);
        }
    }
    if places <= FIRST {
        return None;
    }
    finder.find(haystack.get(FIRST..)?).map(|at| FIRST + at)
}

impl NoCase {
    fn new(pattern: &[u8]) -> NoCase {
        let pattern = pattern.to_ascii_lowercase().into_boxed_slice();
        let (rare, byte) = pattern.iter().copied().enumerate().min_by_key(|&(_, b)| frequency(b)).unwrap_or((0, 0));
        NoCase { rare, cases: (byte, byte.to_ascii_uppercase()), pattern }
    }

    fn find(&self, haystack: &[u8]) -> Option<usize> {
        let n = self.pattern.len();
        // The rare byte of a match is between these two places.
        let last = haystack.len().checked_sub(n)? + self.rare;
        let mut at = self.rare;
        loop {
            let window = haystack.get(at..=last)?;
            at += if self.cases.0 == self.cases.1 {
                memchr::memchr(self.cases.0, window)?
            } else {
                memchr::memchr2(self.cases.0, self.cases.1, window)?
            };
            let start = at - self.rare;
            if haystack.get(start..start + n).is_some_and(|h| h.eq_ignore_ascii_case(&self.pattern)) {
                return Some(start);
            }
            at += 1;
        }
    }
}

/// A rough frequency of the byte in traffic; only the order matters.
fn frequency(b: u8) -> u8 {
    match b {
        0 => 255,
        b' ' | b'e' | b't' | b'a' | b'o' => 240,
        b'i' | b'n' | b's' | b'r' | b'h' | b'l' | b'd' => 220,
        b'c' | b'u' | b'm' | b'p' | b'0' | b'1' | b'.' | b'/' | 0xff => 200,
        b'f' | b'g' | b'w' | b'y' | b'b' | b'v' | b'2'..=b'9' | b'-' | b'=' | b':' | b'\r' | b'\n' => 170,
        b'k' | b'x' | b'A'..=b'Z' | b'"' | b',' | b';' | b'_' | b'&' | b'%' | b'<' | b'>' | 1 => 130,
        b'j' | b'q' | b'z' | 2..=8 => 90,
        0x20..=0x7e => 80,
        _ => 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_windows() {
        let hay = b"xxGetGET gEt /Q Zq\x00\xff";
        for pattern in [&b"get"[..], b"G", b"q", b"zQ", b" ", b"GET ", b"\x00\xff", b"none", b"/q z", b"xx"] {
            for nocase in [false, true] {
                let s = Searcher::new(pattern, nocase);
                for from in 0..hay.len() {
                    let want = hay[from..]
                        .windows(pattern.len())
                        .position(|w| if nocase { w.eq_ignore_ascii_case(pattern) } else { w == pattern });
                    assert_eq!(s.find(&hay[from..]), want, "{pattern:?} {nocase} from {from}");
                    if let Some(at) = want {
                        assert!(s.equals(&hay[from + at..from + at + pattern.len()]));
                    }
                }
            }
        }
        assert_eq!(Searcher::new(b"abc", true).find(b""), None);
        assert!(!Searcher::new(b"abc", true).equals(b"abd"));
    }
}
