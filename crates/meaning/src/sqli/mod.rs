//! Detects SQL fragments that would change a statement.
//!
//! The value is tokenised three times: as it is, and as if it were inside single or double quotes. The detection looks
//! for constructs of the grammar, not for spellings: a condition after the end of a string, a union with another query,
//! an additional statement, a comment that cuts off the rest, a call that sleeps or reads files. Each construct has a
//! weight; a sum of [`THRESHOLD`] is an attack. The dialects are those of MySQL, PostgreSQL, Microsoft, Oracle and
//! SQLite.

mod expression;
mod filter;
mod graphql;
mod program;
mod reader;
mod statement;
mod token;
mod vocabulary;

use crate::args::{ArgLimits, Args};
use crate::decode::{has, is_word};
use crate::json;
use crate::text::{self, Of};

use reader::Reader;
use token::{Kind, Token, tokens};

/// A value with this weight or more is an attack.
pub const THRESHOLD: u32 = 5;

/// Quotes that may enclose the value.
const QUOTES: [u8; 2] = [b'\'', b'"'];
/// With the place that has none.
const CONTEXTS: [Option<u8>; 3] = [None, Some(QUOTES[0]), Some(QUOTES[1])];

/// Whether a value, in canonical form ([`crate::decode::canonical`]), is an SQL fragment that changes a statement.
pub fn is_injection(value: &[u8]) -> bool {
    changes(value)
        && text::around_code(value, Of::Sql).is_none_or(|v| changes(&v) || breaks_out(value))
        && text::without_options(value).is_none_or(|v| changes(&v))
        && text::title(value).is_none_or(|v| is_injection(&v))
}

/// Whether a value changes a statement, and neither is a filter nor tells about SQL.
fn changes(value: &[u8]) -> bool {
    reads_as_one(value)
        && !filter::is_filter(value)
        && (!program::is_definition(value) || breaks_out(value))
        && !program::is_prepared(value)
        && !text::asks(value)
        && (!text::tells(value, Of::Sql, reads_as_one) || goes_on_at_once(value))
}

/// Whether the first quote of a text ends a string behind which a statement goes on at once: `so that ' or 1=1 -- does no harm`.
/// A text about an attack seldom contains a complete one, and an attacker can surround one with any text.
fn goes_on_at_once(value: &[u8]) -> bool {
    const AT_ONCE: usize = 16;
    QUOTES.into_iter().filter_map(|quote| split_at_quote(value, quote)).any(|(before, rest)| {
        let mut tokens = tokens(rest);
        let goes_on = tokens.first().is_some_and(|t| match t.kind {
            Kind::Word => vocabulary::joins(t),
            Kind::Operator => t.is("||") || t.is("&&"),
            Kind::Mark => t.is(";") || t.is(")"),
            _ => false,
        });
        tokens.truncate(AT_ONCE);
        let reader = Reader { tokens: &tokens, broken: true, before: !before.is_empty(), commented: false };
        goes_on && reader.weight() >= THRESHOLD
    })
}

/// Whether a value would change a statement by ending a string. Bodies of functions begin with a query or a block.
fn breaks_out(value: &[u8]) -> bool {
    QUOTES.into_iter().filter_map(|quote| split_at_quote(value, quote)).any(|(before, rest)| {
        let tokens = tokens(rest);
        let is_body = match tokens.as_slice() {
            [first, ..] if first.word(&["select", "begin", "with"]) => true,
            // `\echo use "create extension hstore" to load this file.`
            [first, second, ..] => first.word(&["create", "alter"]) && second.word(&["extension"]),
            _ => false,
        };
        !is_body && weigh_behind_quote(before, rest, &tokens) >= THRESHOLD
    })
}

/// Whether a value reads as an SQL injection, ignoring whether it is a text about SQL.
fn reads_as_one(value: &[u8]) -> bool {
    // Quick exit: most values are names, numbers and words.
    if matches!(value, b"rlike" | b"nvarchar" | b"openrowset") || squeezed(value) {
        return true;
    }
    let marks = |b| {
        matches!(
            b,
            b'\''
                | b'"'
                | b'('
                | b'='
                | b';'
                | b'-'
                | b'#'
                | b'<'
                | b'>'
                | b'@'
                | b'|'
                | b'*'
                | b','
                | b'`'
                | b' '
                | b'_'
                | b'&'
                | b'!'
                | b'\\'
        )
    };
    if is_word(value) || !has(value, marks) {
        return false;
    }
    // A plus that the sender may have meant as a space.
    if value.contains(&b'+') && !value.contains(&b' ') {
        let spaced: Vec<u8> = value.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
        if reads_as_one(&spaced) {
            return true;
        }
    }
    if json::is_document(value) {
        let mut strings = Args::new(ArgLimits::default());
        strings.json(value);
        return (0..strings.len()).filter_map(|i| strings.get(i)).any(|v| !json::is_document(v) && is_injection(v));
    }
    if let Some(strings) = graphql::strings(value) {
        return strings.into_iter().any(is_injection);
    }
    // Quotations end in front of words, and a string would end there only if it began where the quotation does.
    let inside = |q: Option<u8>| match q {
        Some(_) if text::quotes_words(value) => false,
        Some(b'\'') => !elides(value),
        Some(_) => true,
        None => !program::begins_with_time(value),
    };
    if CONTEXTS.iter().any(|&quote| inside(quote) && weigh(value, quote) >= THRESHOLD) {
        return true;
    }
    // If backslashes escape, the first quote is data and the second one ends the string.
    if let Some(at) = memchr::memmem::find(value, b"\\'")
        && value.get(at + 2) == Some(&b'\'')
        && weigh(value.get(at + 2..).unwrap_or(&[]), Some(b'\'')) >= THRESHOLD
    {
        return true;
    }
    // Filters that remove comments join the text around them.
    let joined = memchr::memmem::find(value, b"/*").is_some().then(|| without_comments(value));
    joined.is_some_and(|v| split_keyword(value) || weigh(&v, None) + 1 >= THRESHOLD)
}

/// Whether the only quote is the apostrophe of an article, a pronoun or a name (`coupe d'or`, `o'or`), and nothing could
/// close or cut off the string that a quote would open.
fn elides(value: &[u8]) -> bool {
    const MARKS: &[u8] = b"\"`=<>;(#|&-*/\\";
    let mut quotes = memchr::memchr_iter(b'\'', value);
    let (Some(at), None) = (quotes.next(), quotes.next()) else { return false };
    let word = value.get(..at).unwrap_or(&[]).rsplit(|b| !b.is_ascii_alphanumeric()).next().unwrap_or(&[]);
    matches!(word, b"c" | b"d" | b"j" | b"l" | b"m" | b"n" | b"o" | b"s" | b"t" | b"qu")
        && value.get(at + 1).is_some_and(u8::is_ascii_alphabetic)
        && !value.iter().any(|b| MARKS.contains(b))
}

/// Whether keywords are joined because a filter removes spaces: `unionselect`, `unionallselect`.
fn squeezed(value: &[u8]) -> bool {
    memchr::memmem::find_iter(value, b"union").any(|at| {
        let rest = value.get(at + 5..).unwrap_or(&[]);
        rest.strip_prefix(b"all").unwrap_or(rest).starts_with(b"select")
    })
}

/// Whether a comment splits a keyword: `sel/**/ect`.
fn split_keyword(value: &[u8]) -> bool {
    const KEYWORDS: &[&[u8]] =
        &[b"select", b"union", b"drop", b"insert", b"update", b"delete", b"having", b"exec", b"sleep", b"benchmark"];
    memchr::memmem::find_iter(value, b"/*").any(|at| {
        let (before, rest) = value.split_at(at);
        let Some(end) = memchr::memmem::find(rest, b"*/") else { return false };
        let letters = |b: &&u8| b.is_ascii_alphabetic();
        let (left, after) = (before.iter().rev().take_while(letters).count(), rest.get(end + 2..).unwrap_or(&[]));
        let right = after.iter().take_while(letters).count();
        let (left, right) = (before.get(before.len() - left..), after.get(..right));
        let (Some(left), Some(right)) = (left, right) else { return false };
        !left.is_empty()
            && !right.is_empty()
            && KEYWORDS.iter().any(|k| k.len() == left.len() + right.len() && k.starts_with(left) && k.ends_with(right))
    })
}

fn without_comments(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = memchr::memmem::find(rest, b"/*") {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        rest = memchr::memmem::find(after, b"*/").and_then(|end| after.get(end + 2..)).unwrap_or(&[]);
    }
    out.extend_from_slice(rest);
    out
}

/// Whether no string ends in front of these tokens, because no statement goes on with a name.
fn ends_nothing(tokens: &[Token<'_>]) -> bool {
    let is_name = |t: &Token<'_>| t.kind == Kind::Word && !vocabulary::follows_string(t);
    tokens.first().is_some_and(is_name) && !vocabulary::names_string(tokens)
}

/// Whether a double quote encloses a phrase that only begins like a condition: `"not" amused`, `"like"`, `18" or 20"`, `"*"`. A
/// statement that goes on there compares something, or calls a function.
fn is_phrase(tokens: &[Token<'_>]) -> bool {
    const LONGEST: usize = 12;
    let plain = |t: &Token<'_>| match t.kind {
        Kind::Word => {
            !vocabulary::joins(t)
                && !t.word(&["null", "true", "false", "is", "in", "between"])
                && !t.word(vocabulary::STATEMENTS)
        }
        Kind::Text => {
            !t.text.iter().any(|b| b.is_ascii_digit() || matches!(b, b'=' | b'<' | b'>' | b'-' | b'#' | b'(' | b'%'))
        }
        Kind::Open => true,
        _ => t.is(":") || t.is(",") || t.is("."),
    };
    match tokens {
        [star, last] if star.is("*") => last.is("\""),
        // Inches.
        [word, number, last] if number.kind == Kind::Number => word.word(&["or", "and"]) && last.is("\""),
        [first, rest @ ..] => {
            first.word(&["and", "or", "not", "like", "mod", "div", "xor", "where"])
                && rest.len() < LONGEST
                && rest.iter().all(plain)
        }
        [] => false,
    }
}

/// The text in front of the first quote of this kind, and the text behind it.
fn split_at_quote(value: &[u8], quote: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = value.split_at_checked(memchr::memchr(quote, value)?)?;
    Some((before, rest.get(1..)?))
}

/// The weight of a value enclosed in `quote`.
fn weigh(value: &[u8], quote: Option<u8>) -> u32 {
    match quote.map(|quote| split_at_quote(value, quote)) {
        None => {
            Reader { tokens: &tokens(value), broken: false, before: false, commented: is_commented(value) }.weight()
        }
        // The whole value stays in the string.
        Some(None) => 0,
        Some(Some((before, rest))) => {
            let tokens = tokens(rest);
            if quote == Some(b'"') && is_phrase(&tokens) { 0 } else { weigh_behind_quote(before, rest, &tokens) }
        }
    }
}

/// The weight of a value whose quote between `before` and `rest` ends the enclosing string; `tokens` are those of `rest`.
fn weigh_behind_quote(before: &[u8], rest: &[u8], tokens: &[Token<'_>]) -> u32 {
    // `= 'name' and …` of a whole statement: no statement goes on there. The end of a comment may let it.
    if ends_nothing(tokens) && memchr::memmem::find(rest, b"*/").is_none() {
        return 0;
    }
    Reader { tokens, broken: true, before: !before.is_empty(), commented: is_commented(rest) }.weight()
}

/// Whether there is a closed comment.
fn is_commented(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"/*").is_some_and(|at| memchr::memmem::find(&text[at..], b"*/").is_some())
}
