//! Lua's patterns (Reference Manual 5.4, section 6.4.1), with every step counted.
//!
//! Pattern matching backtracks, so a pattern of a few bytes can take almost any time, such as `(".-"):rep(20) .. "b"` on a
//! thousand letters. Lua's own functions do that in C, where no instruction hook applies.

/// Limit of captures in a pattern.
pub const CAPTURES_MAX: usize = 32;
/// Limit of nesting.
const DEPTH_MAX: u8 = 200;

/// Why matching stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternError {
    /// The pattern is invalid.
    Malformed(String),
    /// It needs more steps than allowed.
    Steps,
}

fn malformed<T>(text: &str) -> Result<T, PatternError> {
    Err(PatternError::Malformed(text.to_owned()))
}

/// The value of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// The bytes from the first offset up to the second.
    Bytes(usize, usize),
    /// A position, counted from 1 as in Lua.
    Position(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Position,
    At(usize),
}

/// A pattern applied to a text.
#[derive(Debug)]
pub struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [(usize, End); CAPTURES_MAX],
    level: usize,
    depth: u8,
    left: u64,
}

type Matched = Result<Option<usize>, PatternError>;

impl<'a> Matcher<'a> {
    /// Searches for `pattern` (without its `^`) in `text`, with at most `steps` steps.
    pub fn new(text: &'a [u8], pattern: &'a [u8], steps: u64) -> Self {
        Matcher { text, pattern, captures: [(0, End::Open); CAPTURES_MAX], level: 0, depth: DEPTH_MAX, left: steps }
    }

    /// Remaining steps.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Matches at one offset. Returns the end of the match.
    ///
    /// # Errors
    /// A malformed pattern, or no steps left.
    pub fn at(&mut self, start: usize) -> Matched {
        self.level = 0;
        self.depth = DEPTH_MAX;
        self.run(start, 0)
    }

    /// The first match from `start` on, as its start and end.
    ///
    /// # Errors
    /// As [`Matcher::at`].
    pub fn find(&mut self, start: usize, anchored: bool) -> Result<Option<(usize, usize)>, PatternError> {
        let mut at = start;
        loop {
            if let Some(end) = self.at(at)? {
                return Ok(Some((at, end)));
            }
            if anchored || at >= self.text.len() {
                return Ok(None);
            }
            at += 1;
        }
    }

    /// The number of captures of the last match. Without captures, the whole match counts as one if `whole` is set.
    pub fn count(&self, whole: bool) -> usize {
        if self.level == 0 && whole { 1 } else { self.level }
    }

    /// A capture of the last match, which was from `start` to `end`.
    ///
    /// # Errors
    /// The capture does not exist, or was never closed.
    pub fn capture(&self, n: usize, start: usize, end: usize) -> Result<Capture, PatternError> {
        if n >= self.level {
            return match n {
                0 => Ok(Capture::Bytes(start, end)),
                n => malformed(&format!("invalid capture index %{}", n + 1)),
            };
        }
        match self.captures.get(n) {
            Some((at, End::Position)) => Ok(Capture::Position(at + 1)),
            Some((at, End::At(to))) => Ok(Capture::Bytes(*at, *to)),
            _ => malformed("unfinished capture"),
        }
    }

    fn step(&mut self) -> Result<(), PatternError> {
        self.steps(1)
    }

    fn steps(&mut self, n: u64) -> Result<(), PatternError> {
        match self.left.checked_sub(n) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(PatternError::Steps)
            }
        }
    }

    fn p(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    /// Matches the pattern from `p` on.
    fn run(&mut self, s: usize, p: usize) -> Matched {
        let Some(depth) = self.depth.checked_sub(1) else { return malformed("pattern too complex") };
        self.depth = depth;
        let result = self.go(s, p);
        self.depth += 1;
        result
    }

    fn go(&mut self, mut s: usize, mut p: usize) -> Matched {
        loop {
            self.step()?;
            match self.p(p) {
                None => return Ok(Some(s)),
                Some(b'(') if self.p(p + 1) == Some(b')') => return self.open(s, p + 2, End::Position),
                Some(b'(') => return self.open(s, p + 1, End::Open),
                Some(b')') => return self.close(s, p + 1),
                Some(b'$') if p + 1 == self.pattern.len() => return Ok((s == self.text.len()).then_some(s)),
                Some(b'%') => match self.p(p + 1) {
                    Some(b'b') => match self.balance(s, p + 2)? {
                        Some(end) => (s, p) = (end, p + 4),
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        let p2 = p + 2;
                        if self.p(p2) != Some(b'[') {
                            return malformed("missing '[' after '%f' in pattern");
                        }
                        let end = self.class_end(p2)?;
                        let before = s.checked_sub(1).and_then(|i| self.text.get(i)).copied().unwrap_or(0);
                        let here = self.text.get(s).copied().unwrap_or(0);
                        if self.in_set(before, p2, end - 1) || !self.in_set(here, p2, end - 1) {
                            return Ok(None);
                        }
                        p = end;
                    }
                    Some(d @ b'0'..=b'9') => match self.back_reference(s, d)? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    },
                    _ => match self.item(s, p)? {
                        Next::Go(s2, p2) => (s, p) = (s2, p2),
                        Next::Done(d) => return Ok(d),
                    },
                },
                Some(_) => match self.item(s, p)? {
                    Next::Go(s2, p2) => (s, p) = (s2, p2),
                    Next::Done(d) => return Ok(d),
                },
            }
        }
    }

    /// Matches one character class, with its repetition.
    fn item(&mut self, s: usize, p: usize) -> Result<Next, PatternError> {
        let end = self.class_end(p)?;
        let suffix = self.p(end);
        Ok(match suffix {
            Some(b'*') => Next::Done(self.longest(s, p, end, 0)?),
            Some(b'+') => Next::Done(self.longest(s, p, end, 1)?),
            Some(b'-') => Next::Done(self.shortest(s, p, end)?),
            Some(b'?') => {
                if self.is_one(s, p, end)
                    && let Some(found) = self.run(s + 1, end + 1)?
                {
                    return Ok(Next::Done(Some(found)));
                }
                Next::Go(s, end + 1)
            }
            _ if self.is_one(s, p, end) => Next::Go(s + 1, end),
            _ => Next::Done(None),
        })
    }

    fn longest(&mut self, s: usize, p: usize, end: usize, least: usize) -> Matched {
        let mut n = 0;
        while self.is_one(s + n, p, end) {
            self.step()?;
            n += 1;
        }
        while n >= least {
            if let Some(found) = self.run(s + n, end + 1)? {
                return Ok(Some(found));
            }
            match n.checked_sub(1) {
                Some(less) => n = less,
                None => break,
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Matched {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_one(s, p, end) {
                return Ok(None);
            }
            self.step()?;
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, what: End) -> Matched {
        let level = self.level;
        match self.captures.get_mut(level) {
            Some(c) => *c = (s, what),
            None => return malformed("too many captures"),
        }
        self.level = level + 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level = level;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched {
        let open = (0..self.level).rev().find(|i| self.captures.get(*i).is_some_and(|c| c.1 == End::Open));
        let Some(n) = open else { return malformed("invalid pattern capture") };
        self.set_end(n, End::At(s));
        let found = self.run(s, p)?;
        if found.is_none() {
            self.set_end(n, End::Open);
        }
        Ok(found)
    }

    fn set_end(&mut self, n: usize, end: End) {
        if let Some(c) = self.captures.get_mut(n) {
            c.1 = end;
        }
    }

    /// `%bxy`.
    fn balance(&mut self, s: usize, p: usize) -> Matched {
        let (Some(open), Some(close)) = (self.p(p), self.p(p + 1)) else {
            return malformed("malformed pattern (missing arguments to '%b')");
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1usize;
        let mut at = s + 1;
        while let Some(&c) = self.text.get(at) {
            self.step()?;
            if c == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if c == open {
                depth += 1;
            }
            at += 1;
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Matched {
        let n = usize::from(digit - b'0').checked_sub(1).filter(|n| *n < self.level);
        let held = n.and_then(|n| self.captures.get(n).copied());
        let (from, to) = match held {
            Some((from, End::At(to))) => (from, to),
            // A position has no bytes to compare: Lua never matches it.
            Some((_, End::Position)) => return Ok(None),
            _ => return malformed(&format!("invalid capture index %{}", char::from(digit))),
        };
        self.steps((to - from) as u64)?;
        let (wanted, here) = (self.text.get(from..to), self.text.get(s..s + (to - from)));
        Ok((wanted == here).then_some(s + (to - from)))
    }

    /// The end of the class at `p`.
    fn class_end(&self, p: usize) -> Result<usize, PatternError> {
        match self.p(p) {
            Some(b'%') if self.p(p + 1).is_none() => malformed("malformed pattern (ends with '%')"),
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1;
                if self.p(at) == Some(b'^') {
                    at += 1;
                }
                // The first character belongs to the set, even if it is `]`.
                loop {
                    match self.p(at) {
                        None => return malformed("malformed pattern (missing ']')"),
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.p(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` belongs to the class from `p` to `end`.
    fn is_one(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&c) = self.text.get(s) else { return false };
        match self.p(p) {
            Some(b'.') => true,
            Some(b'%') => is_class(c, self.p(p + 1).unwrap_or(0)),
            Some(b'[') => self.in_set(c, p, end - 1),
            other => other == Some(c),
        }
    }

    /// Whether a byte belongs to the set with `[` at `p` and `]` at `end`.
    fn in_set(&self, c: u8, p: usize, end: usize) -> bool {
        let mut at = p + 1;
        let negated = self.p(at) == Some(b'^');
        if negated {
            at += 1;
        }
        while at < end {
            let here = self.p(at).unwrap_or(0);
            if here == b'%' {
                if is_class(c, self.p(at + 1).unwrap_or(0)) {
                    return !negated;
                }
                at += 2;
            } else if self.p(at + 1) == Some(b'-') && at + 2 < end {
                if (here..=self.p(at + 2).unwrap_or(0)).contains(&c) {
                    return !negated;
                }
                at += 3;
            } else {
                if here == c {
                    return !negated;
                }
                at += 1;
            }
        }
        negated
    }
}

/// Whether a pattern has special characters. A pattern without them is searched as plain text.
pub(crate) fn has_specials(pattern: &[u8]) -> bool {
    pattern.iter().any(|b| b"^$*+?.([%-".contains(b))
}

enum Next {
    Go(usize, usize),
    Done(Option<usize>),
}

/// Whether a byte belongs to the class of a letter. Other characters stand for themselves.
fn is_class(c: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => c.is_ascii_alphabetic(),
        b'c' => c.is_ascii_control(),
        b'd' => c.is_ascii_digit(),
        b'g' => c.is_ascii_graphic(),
        b'l' => c.is_ascii_lowercase(),
        b'p' => c.is_ascii_punctuation(),
        b's' => matches!(c, b' ' | b'\t'..=b'\r'),
        b'u' => c.is_ascii_uppercase(),
        b'w' => c.is_ascii_alphanumeric(),
        b'x' => c.is_ascii_hexdigit(),
        // Lua still supports it, although the manual no longer mentions it.
        b'z' => c == 0,
        _ => return class == c,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The result of Lua's own function: `find` and its captures, or the error message.
    fn of_lua(lua: &mlua::Lua, text: &[u8], pattern: &[u8]) -> Result<Vec<String>, String> {
        let f: mlua::Function = lua.globals().get::<mlua::Table>("string").unwrap().get("find").unwrap();
        let args = (lua.create_string(text).unwrap(), lua.create_string(pattern).unwrap());
        match f.call::<mlua::MultiValue>(args) {
            Ok(v) => Ok(v
                .iter()
                .map(|v| match v {
                    mlua::Value::String(s) => format!("\"{}\"", s.as_bytes().escape_ascii()),
                    v => v.to_string().unwrap(),
                })
                .collect()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn ours(text: &[u8], pattern: &[u8]) -> Result<Vec<String>, PatternError> {
        if !has_specials(pattern) {
            let at = text.windows(pattern.len().max(1)).position(|w| w.starts_with(pattern));
            let at = if pattern.is_empty() { Some(0) } else { at };
            return Ok(at.map_or(vec!["nil".into()], |n| vec![(n + 1).to_string(), (n + pattern.len()).to_string()]));
        }
        let (anchored, pattern) = match pattern.strip_prefix(b"^") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let mut m = Matcher::new(text, pattern, 1_000_000);
        let Some((start, end)) = m.find(0, anchored)? else { return Ok(vec!["nil".into()]) };
        let mut out = vec![(start + 1).to_string(), end.to_string()];
        for n in 0..m.count(false) {
            out.push(match m.capture(n, start, end)? {
                Capture::Bytes(a, b) => format!("\"{}\"", text[a..b].escape_ascii()),
                Capture::Position(p) => p.to_string(),
            });
        }
        Ok(out)
    }

    #[test]
    fn as_the_manual_has_it() {
        let lua = mlua::Lua::new();
        let text = b"THE (quick) fox 123 [x] a=b, c=d\n";
        for p in [
            "fox",
            "^THE",
            "^fox",
            "%((%a+)%)",
            "%d+",
            "(%d)(%d)(%d)",
            "()fox()",
            "%f[%w]%a+%f[%W]",
            "%b()",
            "%b[]",
            "[%]]",
            "[^%s]+$",
            "(%w+)=(%w+)",
            "([%w]+)=%1",
            "a?b-c*",
            ".-x",
            "x.-$",
            "[]]",
            "[^]]",
            "[a-]",
            "[a%-z]+",
            "[%a-z]",
            "%",
            "[a",
            "%f",
            "(",
            ")",
            "(()",
            "%1",
            "%b",
            "%bx",
            "(a)%2",
            "",
            "$",
            "^",
            "^$",
            "%g+%c",
            "%p",
            "%x%x%x",
            "%Z",
            "[%",
            "[]",
            "[^",
            "-a",
            "*a",
            "a-",
            "((((x))))",
            "()%1",
        ] {
            assert_eq!(ours(text, p.as_bytes()).ok(), of_lua(&lua, text, p.as_bytes()).ok(), "{p}");
        }
    }

    #[test]
    fn stops() {
        let text = vec![b'a'; 1000];
        let pattern = ".-".repeat(20) + "b";
        let mut m = Matcher::new(&text, pattern.as_bytes(), 100_000);
        assert_eq!(m.find(0, false), Err(PatternError::Steps));
        assert_eq!(m.left(), 0);
        let deep = "a?".repeat(300);
        assert!(matches!(Matcher::new(&text, deep.as_bytes(), 1 << 20).find(0, true), Err(PatternError::Malformed(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn as_lua_does(text in "[ab1 %\\]\\[-]{0,12}", pattern in "[\\^$ab1%wsbf\\[\\]().*+?-]{0,10}") {
            thread_local!(static LUA: mlua::Lua = mlua::Lua::new());
            let theirs = LUA.with(|lua| of_lua(lua, text.as_bytes(), pattern.as_bytes()));
            match ours(text.as_bytes(), pattern.as_bytes()) {
                Err(PatternError::Steps) => {}
                ours => prop_assert_eq!(ours.ok(), theirs.ok(), "{} {}", text, pattern),
            }
        }
    }
}
