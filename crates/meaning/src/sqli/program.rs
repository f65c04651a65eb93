//! Recognises values that are data of a database's own language, although they read like parts of it: the definition of a
//! function or a type, as migrations have them, and lines of a log.

use super::reader::Reader;
use super::token::{Kind, tokens};

/// What a schema is programmed with. Definitions of tables, views, procedures and accounts are attacks even as whole values.
const PROGRAM: &[&str] = &[
    "function",
    "sequence",
    "aggregate",
    "event",
    "language",
    "extension",
    "type",
    "domain",
    "operator",
    "cast",
    "collation",
    "conversion",
];

/// Whether the value is a single definition of a function, a type or the like, or grants its use. An injection has it
/// behind the end of another statement, loads a library with it, or has the function's text in the statement itself, as in
/// MySQL; the migrations of PostgreSQL have it in a string.
pub(super) fn is_definition(value: &[u8]) -> bool {
    const VERBS: [&[u8]; 5] = [b"create", b"alter", b"drop", b"grant", b"revoke"];
    // Quick exit: nearly all values begin with something else.
    let start = value.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
    let text = value.get(start..).unwrap_or(&[]);
    if !VERBS.iter().any(|v| text.starts_with(v)) {
        return false;
    }
    let tokens = tokens(text);
    let r = Reader { tokens: &tokens, broken: false, before: false, commented: false };
    let mut i = 1;
    if r.word(0, &["grant", "revoke"]) {
        let Some(on) = tokens.iter().take(8).position(|t| t.word(&["on"])) else { return false };
        i = on + 1;
    }
    while r.word(i, &["or", "replace"]) {
        i += 1;
    }
    let ends = tokens.iter().position(|t| t.is(";")).is_none_or(|at| at + 1 == tokens.len());
    let loads = |i: usize| {
        r.word(i, &["soname", "external"])
            || r.kind(i, Kind::Text) && tokens.get(i).is_some_and(|t| t.text.contains(&b'/'))
    };
    let in_string = !(r.word(0, &["create"]) && r.word(i, &["function"])) || tokens.iter().any(|t| t.word(&["as"]));
    r.word(i, PROGRAM) && ends && in_string && !(0..tokens.len()).any(loads)
}

/// Whether the value begins with a date and a time, `2026-11-20 03:55:37`, as lines of a log do. In a statement that is a
/// string: only a quote ends it.
pub(super) fn begins_with_time(value: &[u8]) -> bool {
    const FORM: &[u8] = b"0000-00-00 00:00:00";
    value.len() >= FORM.len()
        && value.iter().zip(FORM).all(|(&b, &f)| match f {
            b'0' => b.is_ascii_digit(),
            b' ' => matches!(b, b' ' | b't'),
            _ => b == f,
        })
}
