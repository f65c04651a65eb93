//! Recognises values that are data of a database's own language, although they read like parts of it: the definition of a
//! function or a type, as migrations have them, and lines of a log.

use super::reader::Reader;
use super::token::{Kind, Token, tokens};

/// Objects whose definition is no attack, if the value has nothing else. Definitions of tables, procedures and accounts are
/// attacks even then.
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
    "view",
];

/// Whether the value is a single definition of a function, a type or the like, or grants the use of something. An injection has
/// it behind the end of another statement, loads a library with it, or has the function's text in the statement itself, as in
/// MySQL; the migrations of PostgreSQL have it in a string.
pub(super) fn is_definition(value: &[u8]) -> bool {
    // Quick exit: nearly all values begin with something else.
    const STARTS: [&[u8]; 7] = [b"create", b"alter", b"drop", b"grant", b"revoke", b"--", b"/*"];
    let text = value.trim_ascii_start();
    if !STARTS.iter().any(|s| text.starts_with(s)) {
        return false;
    }
    let tokens = tokens(text);
    let r = Reader { tokens: &tokens, broken: false, before: false, commented: false };
    let Some(verb) = tokens.iter().position(|t| t.kind != Kind::Comment) else { return false };
    let ends = tokens.iter().position(|t| t.is(";")).is_none_or(|at| at + 1 == tokens.len());
    let loads = |t: &Token<'_>| t.word(&["soname", "external"]) || t.kind == Kind::Text && t.text.contains(&b'/');
    if !ends || tokens.iter().any(loads) {
        return false;
    }
    if r.word(verb, &["grant", "revoke"]) {
        let all = r.word(verb + 1, &["all"]) && r.word(verb, &["grant"]);
        return !all && tokens.iter().skip(verb).take(8).any(|t| t.word(&["on"]));
    }
    let mut kind = verb + 1;
    while r.word(kind, &["or", "replace"]) {
        kind += 1;
    }
    let has = |part: &[u8]| memchr::memmem::find(text, part).is_some();
    let in_string = !(r.word(verb, &["create"]) && r.word(kind, &["function"])) || has(b" as '") || has(b" as $");
    r.word(verb, &["create", "alter", "drop"]) && r.word(kind, PROGRAM) && in_string
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
