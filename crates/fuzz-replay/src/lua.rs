//! The targets `lua`, a script that is loaded and called, and `lua_pattern`, which compares pattern matching with Lua's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_lua::pattern::{Capture, Matcher, PatternError};
use margay_lua::{Host, HostError, Limits, Script, Settings, Source, Subject, Value};

/// A host that answers everything, with values of every kind.
#[derive(Default)]
struct Answers {
    asked: i64,
    last: Vec<u8>,
}

impl Host for Answers {
    fn ask(&mut self, _: Subject, what: &str, args: &[Value<'_>]) -> Result<Value<'_>, HostError> {
        self.asked += 1;
        self.last = format!("{what} {args:?}").into_bytes();
        match self.asked % 4 {
            0 => Err(HostError::absent("there is none")),
            1 => Ok(Value::text(std::str::from_utf8(&self.last).unwrap_or(""))),
            2 => Ok(Value::Int(self.asked)),
            _ => Err(HostError::Wrong("it makes no sense".into())),
        }
    }
}

/// Scripts: loads any text as a rule's script, initialises and calls it; then runs it as a transform.
pub fn lua(data: &[u8]) {
    // Allow few instructions, so that a run within the limits is short.
    let limits = Limits { bytes: 500_000, instructions: 20_000, time: Duration::from_secs(1) };
    let said = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&said);
    let log = Arc::new(move |_, text: &str| {
        count.fetch_add(text.len(), Ordering::Relaxed);
    });
    let settings = Settings { limits, log, ..Settings::default() };
    let source = Source::new("fuzz.lua", data);
    let mut script = match Script::load(&source, &settings) {
        Ok(script) => script,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let mut host = Answers::default();
    if let Ok(needs) = script.init(&mut host, "match") {
        assert!(needs.wanted.len() + needs.texts.len() <= 64);
        for _ in 0..2 {
            let _ = script.call(&mut host, &[("payload", Value::text("abc")), ("n", Value::Int(3))]);
        }
    }
    if script.prepare_transform().is_ok() {
        let mut out = b"before".to_vec();
        let made = script.transform(data.get(..64).unwrap_or(data), &["a".into(), "2".into()], &mut out);
        assert!(out.starts_with(b"before"));
        assert!(out.len() == 6 || made == Ok(true), "something was made, and it was said that nothing was");
        assert!(out.len() <= limits.bytes + 6, "{} bytes made", out.len());
    }
    let _ = script.call_if_there(&mut host, "setup");
}

/// Most bytes of a pattern, and of a text. They are short because real Lua's search cannot be stopped.
const PATTERN_MAX: usize = 24;
const TEXT_MAX: usize = 48;
/// Real Lua runs only searches that take our matcher at most this many steps.
const STEPS: u64 = 50_000;

/// The result of a search: the place and the captures, as Lua's `string.find` returns them.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    Found(usize, usize, Vec<Result<usize, Vec<u8>>>),
    No,
    Wrong,
}

fn ours(text: &[u8], pattern: &[u8]) -> Option<Search> {
    let (anchored, bare) = pattern.strip_prefix(b"^").map_or((false, pattern), |p| (true, p));
    let mut m = Matcher::new(text, bare, STEPS);
    let found = match m.find(0, anchored) {
        Err(PatternError::Steps) => return None,
        Err(PatternError::Malformed(why)) => {
            assert!(!why.is_empty());
            return Some(Search::Wrong);
        }
        Ok(None) => return Some(Search::No),
        Ok(Some(place)) => place,
    };
    assert!(m.left() <= STEPS && found.0 <= found.1 && found.1 <= text.len());
    let captures: Result<Vec<_>, _> = (0..m.count(false)).map(|n| m.capture(n, found.0, found.1)).collect();
    let Ok(captures) = captures else { return Some(Search::Wrong) };
    let captures = captures.into_iter().map(|c| match c {
        Capture::Position(at) => Ok(at),
        Capture::Bytes(from, to) => Err(text.get(from..to).expect("a capture within the text").to_vec()),
    });
    Some(Search::Found(found.0 + 1, found.1, captures.collect()))
}

fn luas(text: &[u8], pattern: &[u8]) -> Search {
    thread_local! {
        static FIND: (mlua::Lua, mlua::Function) = {
            let lua = mlua::Lua::new();
            let find = lua.load("return string.find").eval().expect("a function of Lua");
            (lua, find)
        };
    }
    let values = FIND.with(|(_lua, find)| {
        let arguments = (mlua::BString::from(text), mlua::BString::from(pattern));
        find.call::<mlua::MultiValue>(arguments)
    });
    let Ok(values) = values else { return Search::Wrong };
    let mut values = values.into_iter().map(|v| match v {
        mlua::Value::Integer(n) => Some(Ok(n as usize)),
        mlua::Value::String(s) => Some(Err(s.as_bytes().to_vec())),
        _ => None,
    });
    match (values.next().flatten(), values.next().flatten()) {
        (Some(Ok(from)), Some(Ok(to))) => Search::Found(from, to, values.flatten().collect()),
        _ => Search::No,
    }
}

/// A Lua pattern up to the first zero byte, then a text. The result must equal Lua's.
pub fn lua_pattern(data: &[u8]) {
    let mut parts = data.splitn(2, |&b| b == 0);
    let (pattern, text) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    if pattern.len() > PATTERN_MAX || text.len() > TEXT_MAX {
        return;
    }
    if let Some(search) = ours(text, pattern) {
        assert_eq!(search, luas(text, pattern), "{} in {}", pattern.escape_ascii(), text.escape_ascii());
    }
}
