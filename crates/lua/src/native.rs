//! The prelude's Rust functions: string and table functions that pay for their work, digests, base64.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use md5::{Digest, Md5};
use mlua::{AnyUserData, Function, IntoLua, Lua, LuaString, MultiValue, Table, UserData};
use sha1::Sha1;
use sha2::Sha256;

use crate::budget::{BYTES, Budget, STEPS};
use crate::error::ErrorKind;
use crate::pattern::{Capture, Matcher, PatternError, has_specials};
use crate::settings::{Log, LogLevel, Settings};

/// State that the functions share.
pub(crate) struct Shared {
    pub(crate) budget: Arc<Budget>,
    /// Limit of the bytes that a function creates.
    pub(crate) bytes: usize,
}

impl Shared {
    fn too_large(&self) -> mlua::Error {
        self.budget.note(ErrorKind::Memory);
        mlua::Error::runtime("not enough memory")
    }

    /// Runs a matcher, and pays for its steps.
    fn search<T>(
        &self,
        text: &[u8],
        pattern: &[u8],
        f: impl FnOnce(&mut Matcher<'_>) -> Result<T, PatternError>,
    ) -> mlua::Result<T> {
        let steps = self.budget.left().saturating_mul(STEPS);
        let mut m = Matcher::new(text, pattern, steps);
        let result = f(&mut m);
        self.budget.spend((steps - m.left()) / STEPS)?;
        result.map_err(|e| match e {
            PatternError::Malformed(text) => mlua::Error::runtime(text),
            PatternError::Steps => {
                self.budget.note(ErrorKind::Instructions);
                mlua::Error::runtime("instruction limit exceeded")
            }
        })
    }
}

fn pushed(lua: &Lua, text: &[u8], c: Capture) -> mlua::Result<mlua::Value> {
    match c {
        Capture::Bytes(a, b) => lua.create_string(text.get(a..b).unwrap_or(&[]))?.into_lua(lua),
        Capture::Position(p) => Ok(mlua::Value::Integer(p as i64)),
    }
}

fn all_captures(
    lua: &Lua,
    m: &Matcher<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    whole: bool,
    out: &mut Vec<mlua::Value>,
) -> mlua::Result<()> {
    for n in 0..m.count(whole) {
        let c = m.capture(n, start, end).map_err(wrong)?;
        out.push(pushed(lua, text, c)?);
    }
    Ok(())
}

fn wrong(e: PatternError) -> mlua::Error {
    match e {
        PatternError::Malformed(text) => mlua::Error::runtime(text),
        PatternError::Steps => mlua::Error::runtime("instruction limit exceeded"),
    }
}

/// The start of a search: counted from 1, or from the end if negative.
fn begin(init: Option<i64>, len: usize) -> Option<usize> {
    let at = match init.unwrap_or(1) {
        n if n > 0 => usize::try_from(n - 1).ok()?,
        0 => 0,
        n => len.saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (at <= len).then_some(at)
}

fn split_anchor(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

/// `string.find` and `string.match`.
fn find(
    lua: &Lua,
    shared: &Shared,
    (text, pattern, init, plain): (LuaString, LuaString, Option<i64>, Option<mlua::Value>),
    places: bool,
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let nothing = || Ok(MultiValue::from_iter([mlua::Value::Nil]));
    let Some(from) = begin(init, text.len()) else { return nothing() };
    let plain = plain.is_some_and(|v| !matches!(v, mlua::Value::Nil | mlua::Value::Boolean(false)));
    if places && (plain || !has_specials(&pattern)) {
        shared.budget.spend(text.len() as u64 / BYTES + 1)?;
        let at = text.get(from..).and_then(|rest| memchr::memmem::find(rest, &pattern)).map(|n| n + from);
        return match at {
            Some(at) => Ok(MultiValue::from_iter([
                mlua::Value::Integer(at as i64 + 1),
                mlua::Value::Integer((at + pattern.len()) as i64),
            ])),
            None => nothing(),
        };
    }
    let (anchored, rest) = split_anchor(&pattern);
    let mut out = Vec::new();
    let mut failed = Ok(());
    shared.search(&text, rest, |m| {
        if let Some((start, end)) = m.find(from, anchored)? {
            if places {
                out.push(mlua::Value::Integer(start as i64 + 1));
                out.push(mlua::Value::Integer(end as i64));
            }
            failed = all_captures(lua, m, &text, (start, end), !places, &mut out);
        }
        Ok(())
    })?;
    failed?;
    if out.is_empty() { nothing() } else { Ok(MultiValue::from_iter(out)) }
}

/// One step of `string.gmatch`: the next position (0-based; -1 at the end), then the captures.
fn next_match(
    lua: &Lua,
    shared: &Shared,
    (text, pattern, from, last): (LuaString, LuaString, i64, i64),
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut out = Vec::new();
    let mut failed = Ok(());
    shared.search(&text, &pattern, |m| {
        let mut at = usize::try_from(from).unwrap_or(usize::MAX);
        while at <= text.len() {
            if let Some(end) = m.at(at)?
                && end as i64 != last
            {
                out.push(mlua::Value::Integer(end as i64));
                failed = all_captures(lua, m, &text, (at, end), true, &mut out);
                break;
            }
            at += 1;
        }
        Ok(())
    })?;
    failed?;
    if out.is_empty() {
        out.push(mlua::Value::Integer(-1));
    }
    Ok(MultiValue::from_iter(out))
}

/// Appends the replacement of one match.
fn replaced(
    lua: &Lua,
    m: &Matcher<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    with: &mlua::Value,
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let whole = text.get(start..end).unwrap_or(&[]);
    let first = || m.capture(0, start, end).map_err(wrong).and_then(|c| pushed(lua, text, c));
    let value = match with {
        mlua::Value::String(s) => {
            let s = s.as_bytes();
            let mut rest = s.iter();
            while let Some(&b) = rest.next() {
                if b != b'%' {
                    out.push(b);
                    continue;
                }
                match rest.next() {
                    Some(b'%') => out.push(b'%'),
                    Some(b'0') => out.extend_from_slice(whole),
                    Some(&d @ b'1'..=b'9') => match m.capture(usize::from(d - b'1'), start, end).map_err(wrong)? {
                        Capture::Bytes(a, b) => out.extend_from_slice(text.get(a..b).unwrap_or(&[])),
                        Capture::Position(p) => out.extend_from_slice(p.to_string().as_bytes()),
                    },
                    _ => return Err(mlua::Error::runtime("invalid use of '%' in replacement string")),
                }
            }
            return Ok(());
        }
        mlua::Value::Table(t) => t.get::<mlua::Value>(first()?)?,
        mlua::Value::Function(f) => {
            let mut args = Vec::new();
            all_captures(lua, m, text, (start, end), true, &mut args)?;
            f.call::<mlua::Value>(MultiValue::from_iter(args))?
        }
        _ => mlua::Value::Nil,
    };
    match value {
        mlua::Value::Nil | mlua::Value::Boolean(false) => out.extend_from_slice(whole),
        v @ (mlua::Value::String(_) | mlua::Value::Integer(_) | mlua::Value::Number(_)) => {
            if let Some(s) = lua.coerce_string(v)? {
                out.extend_from_slice(&s.as_bytes());
            }
        }
        other => return Err(mlua::Error::runtime(format!("invalid replacement value (a {})", other.type_name()))),
    }
    Ok(())
}

/// `string.gsub`.
fn substitute(
    lua: &Lua,
    shared: &Shared,
    (text, pattern, with, max): (LuaString, LuaString, mlua::Value, Option<i64>),
) -> mlua::Result<(LuaString, i64)> {
    let with = match with {
        v @ (mlua::Value::Integer(_) | mlua::Value::Number(_)) => {
            lua.coerce_string(v)?.map_or(mlua::Value::Nil, mlua::Value::String)
        }
        v @ (mlua::Value::String(_) | mlua::Value::Table(_) | mlua::Value::Function(_)) => v,
        other => {
            return Err(mlua::Error::runtime(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            )));
        }
    };
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (anchored, rest) = split_anchor(&pattern);
    let max = max.unwrap_or(i64::MAX);
    let (mut out, mut at, mut last, mut n) = (Vec::new(), 0usize, None, 0i64);
    while n < max {
        // Steps are paid for before the replacement function runs, because it uses the same budget.
        let mut found = None;
        let mut failed = Ok(());
        let before = out.len();
        shared.search(&text, rest, |m| {
            found = m.at(at)?.filter(|end| last != Some(*end));
            if let Some(end) = found {
                failed = replaced(lua, m, &text, (at, end), &with, &mut out);
            }
            Ok(())
        })?;
        failed?;
        shared.budget.spend((out.len().saturating_sub(before)) as u64 / BYTES)?;
        if let Some(end) = found {
            n += 1;
            at = end;
            last = Some(end);
        } else if let Some(&b) = text.get(at) {
            out.push(b);
            at += 1;
        } else {
            break;
        }
        if out.len() > shared.bytes {
            return Err(shared.too_large());
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or(&[]));
    Ok((lua.create_string(&out)?, n))
}

/// `string.rep`.
fn repeat(
    lua: &Lua,
    shared: &Shared,
    (text, n, between): (LuaString, i64, Option<LuaString>),
) -> mlua::Result<LuaString> {
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    let text = text.as_bytes();
    let between = between.as_ref().map(|s| s.as_bytes());
    let between: &[u8] = between.as_deref().unwrap_or(&[]);
    let size = (text.len() + between.len()).checked_mul(n).filter(|size| *size <= shared.bytes);
    let Some(size) = size else { return Err(shared.too_large()) };
    if size == 0 {
        return lua.create_string(b"");
    }
    shared.budget.spend(size as u64 / BYTES + n as u64 / STEPS)?;
    let mut out = Vec::with_capacity(size);
    for i in 0..n {
        if i > 0 {
            out.extend_from_slice(between);
        }
        out.extend_from_slice(&text);
    }
    lua.create_string(&out)
}

/// The number of elements that a call of a Lua table function visits. A table's reported length may have nothing to do with
/// its content.
fn elements(name: &str, count: usize, args: [&mlua::Value; 4]) -> mlua::Result<u64> {
    let int = |n: usize| args.get(n).and_then(|v| v.as_integer());
    let len = |n: usize| match args.get(n) {
        Some(mlua::Value::Table(t)) => t.len(),
        _ => Ok(0),
    };
    let span = |from: i64, to: i64| to.checked_sub(from).map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(0));
    Ok(match name {
        "insert" if count > 2 => span(int(1).unwrap_or(1), len(0)?),
        "remove" if count > 1 => span(int(1).unwrap_or(1), len(0)?),
        "move" => span(int(1).unwrap_or(1), int(2).unwrap_or(0)),
        "unpack" => span(int(1).unwrap_or(1), int(2).map_or_else(|| len(0), Ok)?),
        "concat" => span(int(2).unwrap_or(1), int(3).map_or_else(|| len(0), Ok)?),
        "sort" => {
            let n = u64::try_from(len(0)?).unwrap_or(0);
            n.saturating_mul(u64::from(64 - n.leading_zeros()))
        }
        _ => 0,
    })
}

/// The name of a table function, the number of its arguments, and the first four of them.
type Payment = (LuaString, usize, mlua::Value, mlua::Value, mlua::Value, mlua::Value);

/// A digest in progress.
enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl UserData for Hasher {}

impl Hasher {
    fn new(name: &str) -> mlua::Result<Hasher> {
        Ok(match name {
            "md5" => Hasher::Md5(Md5::new()),
            "sha1" => Hasher::Sha1(Sha1::new()),
            "sha256" => Hasher::Sha256(Sha256::new()),
            _ => return Err(mlua::Error::runtime(format!("there is no digest {name}"))),
        })
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Hasher::Md5(h) => h.update(data),
            Hasher::Sha1(h) => h.update(data),
            Hasher::Sha256(h) => h.update(data),
        }
    }

    fn finish(&mut self) -> Vec<u8> {
        match self {
            Hasher::Md5(h) => h.finalize_reset().to_vec(),
            Hasher::Sha1(h) => h.finalize_reset().to_vec(),
            Hasher::Sha256(h) => h.finalize_reset().to_vec(),
        }
    }
}

/// Adds the functions to the table that the prelude receives.
pub(crate) fn install(lua: &Lua, native: &Table, shared: Arc<Shared>, settings: &Settings) -> mlua::Result<()> {
    let s = shared.clone();
    native.set("find", lua.create_function(move |lua, args| find(lua, &s, args, true))?)?;
    let s = shared.clone();
    native.set("match", lua.create_function(move |lua, args| find(lua, &s, args, false))?)?;
    let s = shared.clone();
    native.set("next_match", lua.create_function(move |lua, args| next_match(lua, &s, args))?)?;
    let s = shared.clone();
    native.set("gsub", lua.create_function(move |lua, args| substitute(lua, &s, args))?)?;
    let s = shared.clone();
    native.set("rep", lua.create_function(move |lua, args| repeat(lua, &s, args))?)?;
    // Pays for the elements that a table function visits, given its name and arguments.
    let s = shared.clone();
    native.set(
        "pay",
        lua.create_function(move |_, (name, count, a, b, c, d): Payment| {
            let n = elements(&name.to_string_lossy(), count, [&a, &b, &c, &d])?;
            s.budget.spend(n / STEPS)
        })?,
    )?;
    let s = shared.clone();
    native.set("spend", lua.create_function(move |_, n: u32| s.budget.spend(n.into()))?)?;
    let s = shared.clone();
    native.set("is_over", lua.create_function(move |_, ()| Ok(s.budget.is_over()))?)?;
    let s = shared.clone();
    native.set(
        "blocked",
        lua.create_function(move |_, name: String| -> mlua::Result<()> {
            s.budget.note(ErrorKind::Blocked);
            Err(mlua::Error::runtime(format!("Blocked Lua function called: {name}")))
        })?,
    )?;
    digests(lua, native, &shared)?;
    for (name, engine) in [("base64", &STANDARD), ("base64_nopad", &STANDARD_NO_PAD)] {
        let s = shared.clone();
        let encode = lua.create_function(move |lua, data: LuaString| {
            s.budget.spend(data.as_bytes().len() as u64 / BYTES)?;
            lua.create_string(engine.encode(&*data.as_bytes()))
        })?;
        native.set(format!("{name}_encode"), encode)?;
        let s = shared.clone();
        let decode = lua.create_function(move |lua, data: LuaString| {
            s.budget.spend(data.as_bytes().len() as u64 / BYTES)?;
            match engine.decode(&*data.as_bytes()) {
                Ok(bytes) => Ok((mlua::Value::String(lua.create_string(&bytes)?), None)),
                Err(e) => Ok((mlua::Value::Nil, Some(e.to_string()))),
            }
        })?;
        native.set(format!("{name}_decode"), decode)?;
    }
    for level in LogLevel::ALL {
        let log: Log = settings.log.clone();
        let name = level.name();
        native.set(
            format!("log_{name}"),
            lua.create_function(move |_, text: LuaString| {
                log(level, &text.to_string_lossy());
                Ok(())
            })?,
        )?;
    }
    native.set("log_path", settings.log_path.as_deref())?;
    Ok(())
}

fn digests(lua: &Lua, native: &Table, shared: &Arc<Shared>) -> mlua::Result<()> {
    native.set("hasher", lua.create_function(|lua, name: String| lua.create_userdata(Hasher::new(&name)?))?)?;
    let s = shared.clone();
    let update: Function = lua.create_function(move |_, (hasher, data): (AnyUserData, LuaString)| {
        s.budget.spend(data.as_bytes().len() as u64 / BYTES)?;
        hasher.borrow_mut::<Hasher>()?.update(&data.as_bytes());
        Ok(())
    })?;
    native.set("hash_update", update)?;
    let finish = lua.create_function(|lua, hasher: AnyUserData| {
        let digest = hasher.borrow_mut::<Hasher>()?.finish();
        lua.create_string(&digest)
    })?;
    native.set("hash_finish", finish)?;
    let hex = lua.create_function(|lua, bytes: LuaString| {
        let text: String = bytes.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        lua.create_string(text)
    })?;
    native.set("hex", hex)?;
    Ok(())
}
