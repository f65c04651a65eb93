//! Recognises texts about code, as opposed to code that is injected into a program.
//!
//! An attack breaks out of the place of a value, or is a whole statement there. A forum, a wiki or a repository stores
//! long texts: sentences around code examples, or many lines of a program. Such a text passes, unless it begins or ends
//! like an attack: the rest of the surrounding statement must fit, or be cut off.

use crate::words::{List, Words};

/// Minimum length of a full line.
const FULL: usize = 12;
/// Number of full lines that make a document.
const LINES: usize = 3;
/// Number of sentence words that make prose.
const HITS: usize = 3;
/// Most bytes of a value that are inspected.
const LOOK: usize = 16 << 10;

/// Sentence words that SQL, shells and JavaScript do not have; in English, German, French and Spanish.
static WORDS: List = List::new(|| {
    Words::of([
        "a",
        "about",
        "after",
        "also",
        "am",
        "an",
        "any",
        "are",
        "auch",
        "avec",
        "be",
        "because",
        "been",
        "bei",
        "but",
        "can",
        "can't",
        "cannot",
        "could",
        "dans",
        "das",
        "de",
        "del",
        "der",
        "des",
        "did",
        "die",
        "different",
        "do",
        "does",
        "doesn't",
        "don't",
        "du",
        "ein",
        "eine",
        "el",
        "es",
        "est",
        "et",
        "every",
        "explain",
        "für",
        "hat",
        "had",
        "has",
        "have",
        "he",
        "hello",
        "her",
        "here",
        "hi",
        "his",
        "how",
        "i",
        "i'd",
        "i'll",
        "i'm",
        "i've",
        "ich",
        "idea",
        "ideas",
        "instead",
        "ist",
        "it",
        "it's",
        "its",
        "je",
        "just",
        "la",
        "las",
        "le",
        "les",
        "list",
        "los",
        "me",
        "mit",
        "my",
        "need",
        "nicht",
        "no",
        "nothing",
        "of",
        "only",
        "our",
        "para",
        "pas",
        "please",
        "pour",
        "que",
        "qué",
        "says",
        "she",
        "should",
        "sie",
        "sirve",
        "so",
        "some",
        "thanks",
        "that",
        "that's",
        "the",
        "their",
        "them",
        "there",
        "there's",
        "they",
        "this",
        "to",
        "too",
        "tried",
        "un",
        "una",
        "und",
        "une",
        "use",
        "vous",
        "vs",
        "want",
        "was",
        "way",
        "we",
        "we've",
        "were",
        "what",
        "what's",
        "which",
        "who",
        "why",
        "wie",
        "will",
        "won't",
        "would",
        "write",
        "wrote",
        "y",
        "you",
        "you'll",
        "your",
    ])
});
/// Sentence words that SQL has as well.
static WORDS_OF_SQL: List = List::new(|| {
    Words::of([
        "all", "and", "as", "by", "for", "from", "if", "in", "is", "not", "on", "one", "or", "then", "when", "with",
    ])
});

/// Words that begin questions and statements, and neither code nor the rest of a condition.
const ASKS: &[&str] = &[
    "are", "can", "could", "does", "how", "my", "our", "please", "should", "the", "there", "what", "what's", "which",
    "who", "why", "would", "your",
];

/// The language for which a value is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Sql,
    Shell,
    Script,
}

/// Whether a value is a program or a document: several full lines that are not comments.
pub(crate) fn is_lines(value: &[u8]) -> bool {
    let comment = |l: &[u8]| [&b"--"[..], b"#", b"//", b"/*", b"*"].iter().any(|c| l.starts_with(c));
    let full = |l: &&[u8]| l.len() >= FULL && !comment(l);
    value.split(|&b| b == b'\n').filter(full).take(LINES).count() == LINES
}

/// The first and the last line that are not empty.
fn edges(value: &[u8]) -> (&[u8], &[u8]) {
    let mut lines = value.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or(&[]);
    (first, lines.next_back().unwrap_or(first))
}

/// The longest name of an option.
const OPTION_MAX: usize = 64;

/// The value without the hyphens of a command's options: in quotes behind a mark of a program (`add('--help'`), and in a sentence
/// (`or removes them [--remove]`). As comments of SQL they would be of no use: behind a quote that ends a string, the statement
/// would compare with the program or the sentence.
pub(crate) fn without_options(value: &[u8]) -> Option<Vec<u8>> {
    let first = memchr::memmem::find(value, b"--")?;
    let marked = |at: &usize| is_quote(value, *at) || matches!(value.get(*at), Some(b'(' | b'=' | b';'));
    let mark = (0..first).find(marked).unwrap_or(first);
    let sentence = begins_with_words(value.get(..mark)?);
    let mut out = value.to_vec();
    for at in memchr::memmem::find_iter(value, b"--") {
        let (before, after) = value.split_at_checked(at)?;
        let name = after.get(2..)?;
        let of_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let len = name.iter().take(OPTION_MAX).take_while(of_name).count();
        if len < 2 || !name.first().is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let behind = name.get(len).copied();
        let apart = |t: &[u8]| matches!(t.last(), None | Some(b' ' | b'\n' | b'[' | b'(' | b',' | b'='));
        let quoted = match before {
            [t @ .., q @ (b'\'' | b'"')] => {
                behind == Some(*q) && apart(t) && (sentence || !matches!(t.last(), Some(b' ' | b'\n')))
            }
            _ => false,
        };
        let ends =
            behind.is_none_or(|b| matches!(b, b' ' | b'\n' | b']' | b')' | b'`' | b'.' | b',' | b'=' | b'\'' | b'"'));
        if quoted || sentence && ends && (apart(before) || before.last() == Some(&b'`')) {
            out.get_mut(at..at + 2)?.fill(b'_');
        }
    }
    (out != value).then_some(out)
}

/// Whether two words begin the value, with apostrophes and marks of sentences: `re: margay's files`.
fn begins_with_words(value: &[u8]) -> bool {
    let word = |w: &[u8]| {
        let w = w.strip_suffix(b":").or_else(|| w.strip_suffix(b",")).or_else(|| w.strip_suffix(b".")).unwrap_or(w);
        w.first().is_some_and(u8::is_ascii_alphabetic) && w.iter().all(|b| b.is_ascii_alphabetic() || *b == b'\'')
    };
    let mut words = value.split(|&b| b == b' ').filter(|w| !w.is_empty());
    (0..2).all(|_| words.next().is_some_and(word))
}

/// The value with spaces instead of underscores, if it is the title of a page: `specifying_just_'--prefix'_will`. Statements
/// without spaces have other marks.
pub(crate) fn title(value: &[u8]) -> Option<Vec<u8>> {
    let mark = |b: &u8| matches!(b, b' ' | b'(' | b';' | b'=' | b'|' | b'&' | b'*' | b'/' | b'@' | b'<' | b'>' | b'`');
    if value.iter().any(mark) || value.iter().filter(|b| **b == b'_').count() < 2 {
        return None;
    }
    let spaced: Vec<u8> = value.iter().map(|&b| if b == b'_' { b' ' } else { b }).collect();
    begins_with_words(&spaced).then_some(spaced)
}

/// Whether the byte is a quote, and not an apostrophe within a word.
fn is_quote(value: &[u8], at: usize) -> bool {
    let letter =
        |i: Option<usize>| i.and_then(|i| value.get(i)).is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80);
    match value.get(at) {
        Some(b'"') => true,
        Some(b'\'') => !(letter(at.checked_sub(1)) && letter(Some(at + 1))),
        _ => false,
    }
}

/// Words that join conditions: between two quotes they are no quotation.
static JOINS: List = List::new(|| {
    Words::of([
        "or", "and", "xor", "not", "union", "select", "like", "rlike", "regexp", "is", "in", "between", "having",
        "order", "group", "limit", "div", "mod", "where", "waitfor", "sounds", "collate", "as", "into", "from", "then",
        "else", "when",
    ])
});

/// Whether all quotes are quotations in a sentence: each begins in front of a word that joins no conditions, ends behind
/// a word, and stands apart from other words.
pub(crate) fn quotes_words(value: &[u8]) -> bool {
    if quotes_first(value) {
        return true;
    }
    let mut open: Option<(u8, usize)> = None;
    let mut count = 0;
    for at in 0..value.len() {
        if !is_quote(value, at) {
            continue;
        }
        let (before, after) = (at.checked_sub(1).and_then(|i| value.get(i)), value.get(at + 1));
        let quote = value.get(at).copied().unwrap_or(0);
        match open {
            None => {
                let apart = before.is_none_or(|b| matches!(b, b' ' | b'\n' | b'('));
                if !apart || !after.is_some_and(|b| b.is_ascii_alphabetic() || *b >= 0x80) {
                    return false;
                }
                open = Some((quote, at + 1));
            }
            Some((q, from)) if q == quote => {
                let apart =
                    after.is_none_or(|b| matches!(b, b' ' | b'\n' | b')' | b'.' | b',' | b';' | b':' | b'?' | b'!'));
                let words = before.is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80);
                let inside = value.get(from..at).unwrap_or(&[]);
                let first = inside.split(|b| !b.is_ascii_alphabetic()).next();
                let joins = first.is_none_or(|w| JOINS.has(w)) && !names_phrase(inside, value.get(at + 1..));
                if !apart || !words || joins {
                    return false;
                }
                open = None;
                count += 1;
            }
            // A quotation within another one.
            Some(_) => return false,
        }
    }
    let marks = [&b"--"[..], b"/*", b"#", b"||", b"&&", b"=", b"`", b"@@", b";"];
    count > 0 && open.is_none() && !marks.iter().any(|m| memchr::memmem::find(value, m).is_some())
}

/// Whether a quotation is several words, and another word follows it: `the "or later" clause`. SQL has an operator there.
fn names_phrase(inside: &[u8], after: Option<&[u8]>) -> bool {
    let next = after.and_then(|a| a.strip_prefix(b" ")).unwrap_or(&[]);
    let next = next.split(|b| !b.is_ascii_alphabetic()).next().unwrap_or(&[]);
    let plain = !matches!(inside.split(|&b| b == b' ').next(), Some(b"union" | b"select"));
    plain && only_words(inside) && is_words(inside, 2) && !next.is_empty() && !JOINS.has(next)
}

/// Whether a value is a quotation of words alone, and words alone: `"union select" tutorial`, `'or' in french`.
fn quotes_first(value: &[u8]) -> bool {
    let [quote @ (b'"' | b'\''), b'a'..=b'z', ..] = value else { return false };
    let words = |t: &[u8]| t.iter().all(|b| b.is_ascii_alphabetic() || *b == b' ');
    let mut parts = value.split(|b| b == quote).skip(1);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(inner), Some(after @ [b' ', b'a'..=b'z', ..]), None) => {
            words(inner) && words(after) && inner.last().is_some_and(u8::is_ascii_alphabetic)
        }
        _ => false,
    }
}

/// Whether a quote ends a string that began before the value: the number of quotes is odd, or the first one is where
/// strings end.
fn is_open(value: &[u8]) -> bool {
    [b'\'', b'"'].into_iter().any(|q| {
        let mut quotes = memchr::memchr_iter(q, value).filter(|&at| is_quote(value, at));
        let Some(first) = quotes.next() else { return false };
        quotes.count().is_multiple_of(2) || closes(value, first)
    })
}

/// Whether the quote ends a string, judging by the text around it: `want' or`, `' or`.
fn closes(value: &[u8], at: usize) -> bool {
    let before = value.get(..at).unwrap_or(&[]);
    let after = value.get(at + 1);
    match before {
        // `f'…'`: a string prefix of a programming language.
        [.., p, b'f' | b'b' | b'r' | b'u'] if !p.is_ascii_alphanumeric() => false,
        [.., b] if b.is_ascii_alphanumeric() => true,
        [] | [.., b' ' | b'\n'] => after.is_some_and(|b| matches!(b, b' ' | b')' | b';' | b'|')),
        _ => false,
    }
}

/// Whether a value begins with this many words of letters alone.
pub(crate) fn is_words(value: &[u8], count: usize) -> bool {
    let mut words = value.split(|&b| b == b' ').filter(|w| !w.is_empty());
    (0..count).all(|_| words.next().is_some_and(|w| w.iter().all(u8::is_ascii_alphabetic)))
}

/// Whether a value is a question or a statement without a mark that ends a string, joins commands or compares: `what is
/// xp_cmdshell`. Nothing that was there before such a value goes on after it.
pub(crate) fn asks(value: &[u8]) -> bool {
    let first = value.split(|&b| b == b' ').next().unwrap_or(&[]);
    let plain = |(at, b): (usize, &u8)| match b {
        b'\'' | b'"' => !is_quote(value, at),
        b'-' => value.get(at + 1) != Some(&b'-'),
        b' ' | b'_' | b'.' | b',' | b'?' | b'!' | b':' | b'/' => true,
        b => b.is_ascii_alphanumeric() || *b >= 0x80,
    };
    value.len() > first.len()
        && ASKS.iter().any(|w| w.as_bytes() == first)
        && value.iter().enumerate().all(plain)
        && !(memchr::memmem::find(value, b"://").is_some() || memchr::memmem::find(value, b"..").is_some())
}

/// The text around code in backticks, as Markdown has it in sentences: `` run `ls -l | wc` and tell me ``. A mark is in the
/// code's place. `None` if the value has no code, or if the rest is no sentence, for a shell runs what backticks enclose.
pub(crate) fn around_code(value: &[u8], of: Of) -> Option<Vec<u8>> {
    if value.len() > LOOK {
        return None;
    }
    // A block of code alone. A shell would run it, SQL has no such quotes.
    if of == Of::Sql && value.starts_with(b"```") && value.ends_with(b"\n```") && is_fence(value) {
        return Some(Vec::new());
    }
    let (mut rest, mut out) = (value, Vec::with_capacity(value.len()));
    while let Some(at) = memchr::memchr(b'`', rest) {
        let (before, from) = rest.split_at_checked(at)?;
        let ticks = from.iter().take_while(|&&b| b == b'`').count();
        let code = from.get(ticks..)?;
        // Before Unicode, quotations ended with an apostrophe: `` `realpath -s' ``.
        let (end, after) = match quotation(code).filter(|_| ticks == 1) {
            Some(end) => (end, code.get(end + 1..)?),
            None => {
                let end = memchr::memmem::find(code, from.get(..ticks)?)?;
                (end, code.get(end + ticks..)?)
            }
        };
        // A colon: `` :mod:`crcmod` `` of reStructuredText.
        let apart = before.last().is_none_or(|b| matches!(b, b' ' | b'\n' | b'(' | b':'));
        let ends =
            after.first().is_none_or(|b| matches!(b, b' ' | b'\n' | b')' | b'.' | b',' | b';' | b':' | b'?' | b'!'));
        if !apart || !ends || end == 0 {
            return None;
        }
        out.extend_from_slice(before);
        out.push(b'_');
        rest = after;
    }
    if out.is_empty() {
        return None;
    }
    out.extend_from_slice(rest);
    let mark = |b: &u8| matches!(b, b',' | b'.' | b';' | b':' | b'?' | b'!' | b'\'' | b'"') || *b >= 0x80;
    let words = out
        .split(u8::is_ascii_whitespace)
        .filter(|w| w.len() > 1 && w.iter().all(|b| b.is_ascii_alphabetic() || mark(b)));
    let marks = out.split(|&b| b == b'\n').filter(|l| is_item(l)).count();
    (words.count() >= HITS && hits(&out, Of::Shell).0 + marks > 0).then_some(out)
}

/// The length of a quotation that ends with an apostrophe, if it has names, options and paths only.
fn quotation(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|b| {
        !(b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'_' | b'.' | b'/' | b'=' | b'+' | b','))
    })?;
    (text.get(end) == Some(&b'\'') && end > 0).then_some(end)
}

/// Whether the first line of a block names a language, and nothing else: ```` ```sql ````.
fn is_fence(value: &[u8]) -> bool {
    let line = value.split(|&b| b == b'\n').next().unwrap_or(&[]);
    line.iter().skip(3).all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'#'))
}

/// Whether a line is a heading, a quotation or an item of a list in Markdown.
fn is_item(line: &[u8]) -> bool {
    matches!(line, [b'#' | b'>' | b'-' | b'*', b' ', ..] | [b'#', b'#', ..] | [b'0'..=b'9', b'.', b' ', ..])
}

/// Whether the first word is an operator of JavaScript.
pub(crate) fn is_operator(value: &[u8]) -> bool {
    let first = value.split(|&b| b == b' ').find(|w| !w.is_empty());
    matches!(first, Some(b"in" | b"instanceof" | b"of"))
}

/// Whether a value has words of letters alone, at least one.
pub(crate) fn only_words(value: &[u8]) -> bool {
    let mut words = value.split(|&b| b == b' ').filter(|w| !w.is_empty()).peekable();
    words.peek().is_some() && words.all(|w| w.iter().all(u8::is_ascii_alphabetic))
}

/// The number of sentence words, and whether there are at least two different ones. It stops once both are enough for prose.
fn hits(value: &[u8], of: Of) -> (usize, bool) {
    let (mut count, mut first, mut two) = (0, &b""[..], false);
    for word in value.split(|b| b.is_ascii_whitespace()) {
        let ends = |b: &u8| matches!(b, b',' | b'.' | b';' | b':' | b'?' | b'!' | b'"' | b'(' | b')' | b'`');
        let from = word.iter().position(|b| !ends(b)).unwrap_or(word.len());
        let to = word.iter().rposition(|b| !ends(b)).map_or(from, |i| i + 1);
        let word = word.get(from..to).unwrap_or(&[]);
        // In scripts without spaces, every second character counts as a word.
        let foreign = word.iter().filter(|b| **b >= 0xe0).count() / 2;
        let known = WORDS.has(word) || of != Of::Sql && WORDS_OF_SQL.has(word);
        if known || foreign > 0 {
            count += foreign.max(1);
            two |= foreign > 1 || !first.is_empty() && first != word;
            first = word;
            if two && count >= HITS {
                break;
            }
        }
    }
    (count, two)
}

/// Whether the value begins and continues like a sentence.
pub(crate) fn is_prose(value: &[u8], of: Of) -> bool {
    let value = value.get(..LOOK).unwrap_or(value);
    let marked = |at: usize| match value.get(at..) {
        Some([b';' | b'#' | b'`' | b'|', ..] | [b'-', b'-', ..] | [b'/', b'*', ..] | [b'$', b'(', ..]) => true,
        _ => is_quote(value, at),
    };
    let mark = (0..value.len()).find(|&at| marked(at)).unwrap_or(value.len());
    let (before, _) = hits(value.get(..mark).unwrap_or(&[]), of);
    let (count, two) = hits(value, of);
    before > 0 && count >= HITS && two
}

/// Whether a value that reads as an attack is only a text about one. `judge` judges a single line.
pub(crate) fn tells(value: &[u8], of: Of, judge: impl Fn(&[u8]) -> bool) -> bool {
    if is_lines(value) {
        let (first, last) = edges(value);
        return match of {
            // An attack that breaks out leaves a quote open, or cuts off the rest.
            Of::Sql => ![first, last].into_iter().any(|l| (is_open(l) || cut_off(l)) && !is_prose(l, of) && judge(l)),
            Of::Shell => {
                !(matches!(first, [b';' | b'|' | b'&' | b'`' | b'\'' | b'"', ..] | [b'$', b'(', ..]) && judge(first))
            }
            Of::Script => false,
        };
    }
    if !is_prose(value, of) {
        return false;
    }
    match of {
        Of::Sql => {
            let quote = (0..value.len()).rev().find(|&at| is_quote(value, at));
            let comment = memchr::memmem::rfind(value, b"--").max(memchr::memchr(b'#', value));
            let tail = |at: usize| value.get(at + 1..).unwrap_or(&[]);
            if comment > quote || comment.is_some() && comment == quote {
                let words = |t: &[u8]| t.split(|b| !b.is_ascii_alphabetic() && *b < 0x80).any(|w| w.len() > 1);
                return comment.is_some_and(|at| words(tail(at)));
            }
            // A single word after the last quote may be the rest of a comparison: `'a'='a`.
            let goes_on = |t: &[u8]| t.trim_ascii().contains(&b' ') && hits(t, of).0 > 0;
            !is_open(value) || quote.is_some_and(|at| goes_on(tail(at)))
        }
        Of::Shell => {
            // A command at the end of a sentence would run.
            let ends = |b: &u8| matches!(b, b';' | b'|' | b'&' | b'\n' | b'`' | b')');
            let tail = value.iter().rposition(ends).and_then(|at| value.get(at + 1..)).unwrap_or(value);
            let stop = matches!(tail.trim_ascii(), b"." | b"?" | b"!" | b".)" | b":");
            let even = memchr::memchr_iter(b'`', value).count().is_multiple_of(2);
            even && (stop || hits(tail, of).0 > 0 || filters(value, tail))
        }
        Of::Script => true,
    }
}

/// Whether the rest of a text is the end of a pipeline that only reads its own input: `: cat file | wc -l`.
fn filters(value: &[u8], tail: &[u8]) -> bool {
    const FILTERS: &[&str] = &["wc", "sort", "uniq", "head", "tail", "grep", "jq", "cut", "tr", "column", "less", "nl"];
    let name = tail.trim_ascii().split(|&b| b == b' ').next().unwrap_or(&[]);
    let piped = value.get(..value.len() - tail.len()).is_some_and(|v| v.ends_with(b"|") && !v.ends_with(b"||"));
    piped
        && FILTERS.iter().any(|f| f.as_bytes() == name)
        && !tail.iter().any(|b| matches!(b, b'/' | b'$' | b'<' | b'>'))
}

/// Whether the line ends with a comment that cuts off the rest.
fn cut_off(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.ends_with(b"--") || line.ends_with(b"-- -") || line.ends_with(b"#") || line.ends_with(b"/*")
}
