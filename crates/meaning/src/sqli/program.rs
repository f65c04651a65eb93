//! Recognises values that are data of a database's own language, although they read like parts of it: the definition of a
//! function or a type, as migrations have them, prepared statements, and lines of a log.

use super::reader::Reader;
use super::token::{Kind, TOKENS, Token, string, tokens};
use super::vocabulary::{CALLS_SURE, NAMES, follows_string, names_schema};

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
    "text",
    "foreign",
    "view",
];

/// Whether the value is nothing but definitions of functions, types and the like, comments on them, or grants of their use, as
/// in migrations. An injection has them behind the end of another statement, loads a library with them, or has the function's
/// text in the statement itself, as in MySQL; the migrations of PostgreSQL have it in a string.
pub(super) fn is_definition(value: &[u8]) -> bool {
    // Quick exit: nearly all values begin with something else.
    const STARTS: [&[u8]; 9] =
        [b"create", b"alter", b"drop", b"grant", b"revoke", b"comment on", b"--", b"/*", b"\\echo"];
    let text = value.trim_ascii_start();
    if !STARTS.iter().any(|s| text.starts_with(s)) {
        return false;
    }
    let is_script = memchr::memmem::find(text, b"\n\\echo ").is_some();
    let text = statements(text);
    let tokens = tokens(&text);
    let mut all = tokens.split(|t| t.is(";")).filter(|s| !s.is_empty()).peekable();
    // Behind more tokens there may be anything. Comments and commands of the shell alone are the beginning of a script.
    tokens.len() < TOKENS && (all.peek().is_some() || is_script) && all.all(defines)
}

/// After this many marks of dollar quotes that nothing closes, others count as text: each costs a search to the end.
const UNCLOSED_MAX: u32 = 16;

/// The text without comments, except those that MySQL executes, without commands of PostgreSQL's shell, and with empty strings
/// for those in dollar quotes (`$$ … $$`), in which a semicolon ends no statement.
fn statements(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let (mut rest, mut unclosed) = (text, 0);
    while let Some(&b) = rest.first() {
        let at_line = out.last().is_none_or(|b| *b == b'\n');
        // Marks within a string are its text.
        let quoted = if matches!(b, b'\'' | b'"' | b'`') { string(rest) } else { None };
        if let Some((text, behind)) = quoted.and_then(|len| rest.split_at_checked(len)) {
            out.extend_from_slice(text);
            rest = behind;
        } else if rest.starts_with(b"--") || at_line && b == b'\\' {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            rest = rest.get(end..).unwrap_or(&[]);
        } else if let Some(inner) = rest.strip_prefix(b"/*").filter(|inner| !inner.starts_with(b"!")) {
            // The rest of an unclosed comment is none of the statements.
            let end = memchr::memmem::find(inner, b"*/").map_or(inner.len(), |end| end + 2);
            rest = inner.get(end..).unwrap_or(&[]);
        } else if let Some(tag) = dollar_tag(rest).filter(|_| unclosed < UNCLOSED_MAX) {
            let inner = rest.get(tag.len()..).unwrap_or(&[]);
            let end = memchr::memmem::find(inner, tag);
            unclosed += u32::from(end.is_none());
            let text = end.map_or(tag, |_| b"''");
            out.extend_from_slice(text);
            rest = inner.get(end.map_or(0, |end| end + tag.len())..).unwrap_or(&[]);
        } else {
            out.push(b);
            rest = rest.get(1..).unwrap_or(&[]);
        }
    }
    out
}

/// The mark of a string in dollar quotes that begins here: `$tag$`.
fn dollar_tag(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"$")?;
    let len = name.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    text.get(..len + 2).filter(|t| t.ends_with(b"$"))
}

/// Whether a statement is a definition, a comment or a grant.
fn defines(statement: &[Token<'_>]) -> bool {
    let r = Reader { tokens: statement, broken: false, before: false, commented: false };
    let text_at = |at: usize| statement.get(at).filter(|t| t.kind == Kind::Text);
    let loads = |at: usize| {
        r.word(at, &["soname", "external"]) || r.word(at, &["as"]) && text_at(at + 1).is_some_and(|t| is_path(t.text))
    };
    if (0..statement.len()).any(loads) || statement.iter().any(|t| matches!(t.kind, Kind::Comment | Kind::Open)) {
        return false;
    }
    if r.word(0, &["comment"]) {
        return r.word(1, &["on"]);
    }
    if r.word(0, &["grant", "revoke"]) {
        let all = r.word(1, &["all"]) && r.word(0, &["grant"]);
        return !all && statement.iter().take(8).any(|t| t.word(&["on"]));
    }
    let mut kind = 1;
    while r.word(kind, &["or", "replace"]) {
        kind += 1;
    }
    let is_function = r.word(0, &["create"]) && r.word(kind, &["function"]);
    let in_string = (0..statement.len()).any(|at| r.word(at, &["as"]) && text_at(at + 1).is_some());
    let has_body = statement.iter().any(|t| t.word(&["return", "begin"]));
    r.word(0, &["create", "alter", "drop"]) && r.word(kind, PROGRAM) && (!is_function || in_string || !has_body)
}

/// Whether the value is one whole statement with marks in the places of values, as programs prepare it and collectors of
/// traces store it: `select "id" from "orders" where "name" = $1`. Nothing in it can end a string, and it names nothing that only
/// attacks ask for.
pub(super) fn is_prepared(value: &[u8]) -> bool {
    const STARTS: [&[u8]; 7] = [b"select ", b"insert ", b"update ", b"delete ", b"with ", b"replace ", b"merge "];
    let value = value.trim_ascii();
    if !STARTS.iter().any(|s| value.starts_with(s)) {
        return false;
    }
    let value = value.strip_suffix(b";").unwrap_or(value);
    let tokens = tokens(value);
    if tokens.len() >= TOKENS {
        return false;
    }
    let mut marks = 0;
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        let fits = match token.kind {
            Kind::Word => !is_of_attacks(token),
            Kind::Text => is_identifier(token.text),
            Kind::Mark => token.text != b";",
            // Two numbers are compared only to be true.
            Kind::Operator => {
                let number = |t: Option<&Token<'_>>| t.is_some_and(|t| t.kind == Kind::Number);
                !(number(at.checked_sub(1).and_then(|before| tokens.get(before))) && number(next))
            }
            Kind::Number => true,
            Kind::Open | Kind::Comment => false,
        };
        if !fits {
            return false;
        }
        let named = next.is_some_and(|t| t.kind == Kind::Word);
        marks += usize::from(match token.text {
            b"?" => true,
            b":" => named,
            [b'$', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
            // `%s` and `@name` are valid without preparation.
            _ => false,
        });
    }
    marks > 0
}

/// Whether a word is one that statements of programs do not have.
fn is_of_attacks(word: &Token<'_>) -> bool {
    NAMES.has(word.text)
        || CALLS_SURE.has(word.text)
        || names_schema(word)
        || word.word(&["union", "outfile", "dumpfile"])
        || word.text.starts_with(b"@@")
}

/// Whether a string is a quoted name of a column or a table.
fn is_identifier(text: &[u8]) -> bool {
    let [b'"', name @ .., b'"'] = text else { return false };
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let token = Token { kind: Kind::Word, text: name };
    name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(is_name) && !follows_string(&token)
}

/// Whether a string is a path, and not one below the database's own folder (`$libdir/hstore`).
fn is_path(text: &[u8]) -> bool {
    let own = text.strip_prefix(b"'$libdir/").unwrap_or(text);
    own.contains(&b'/') || memchr::memmem::find(own, b"..").is_some()
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
