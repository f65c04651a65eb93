//! Tokens of SQL, for all dialects at once.

/// Most tokens of a value.
pub(super) const TOKENS: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    /// A closed string.
    Text,
    /// The opening quote of an unclosed string.
    Open,
    Operator,
    /// `( ) , ; [ ] { } : ?`
    Mark,
    /// `--`, `#`, or an unclosed `/*`: the rest is cut off.
    Comment,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a [u8],
}

impl Token<'_> {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text.as_bytes()
    }
    pub(super) fn word(&self, list: &[&str]) -> bool {
        self.kind == Kind::Word && list.iter().any(|w| w.as_bytes() == self.text)
    }
    /// Whether it compares two operands.
    pub(super) fn compares(&self) -> bool {
        matches!(self.text, b"=" | b"<" | b">" | b"<>" | b"!=" | b"<=>" | b">=" | b"<=")
    }
    pub(super) fn operand(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Number | Kind::Text | Kind::Open)
    }
}

/// The tokens of an SQL fragment.
// It stays whole: a flat match over a token's first byte.
pub(super) fn tokens(data: &[u8]) -> Vec<Token<'_>> {
    // A token has some five bytes.
    let mut list = Vec::with_capacity((data.len() / 4).min(TOKENS));
    let mut at = 0;
    // Search only once for the end of an unclosed quote or comment, or of the last line: later ones are unclosed too.
    let (mut unended, mut comment_unended, mut last_line) = ([false; 256], false, false);
    while let Some(&b) = data.get(at) {
        if list.len() == TOKENS {
            break;
        }
        let rest = data.get(at..).unwrap_or(&[]);
        let (kind, len) = match b {
            b' ' | b'\n' | b'\t' | b'\r' | 0x0b | 0x0c | b'\\' | b'\0' => {
                at += 1;
                continue;
            }
            b'\'' | b'"' | b'`' if unended[usize::from(b)] => (Kind::Open, 1),
            b'\'' | b'"' | b'`' => match string(rest) {
                // A name in MySQL's quotes.
                Some(len) if b == b'`' => (Kind::Word, len),
                Some(len) => (Kind::Text, len),
                None => {
                    unended[usize::from(b)] = true;
                    (Kind::Open, 1)
                }
            },
            b'-' if rest.starts_with(b"--") => (Kind::Comment, 2),
            b'#' if matches!(rest.get(..2), Some(b"#>")) => {
                (Kind::Operator, if rest.get(2) == Some(&b'>') { 3 } else { 2 })
            }
            // `union#x⏎select`: MySQL's comment ends with its line. Behind a keyword it is none of the others' operators.
            b'#' if !last_line
                && list
                    .last()
                    .is_some_and(|t: &Token<'_>| t.word(&["union", "select", "all", "distinct", "and", "or"])) =>
            {
                if let Some(end) = memchr::memchr(b'\n', rest) {
                    at += end + 1;
                    continue;
                }
                last_line = true;
                (Kind::Comment, 1)
            }
            b'#' => (Kind::Comment, 1),
            b'/' if rest.starts_with(b"/*") && comment_unended => (Kind::Comment, 2),
            b'/' if rest.starts_with(b"/*") => match memchr::memmem::find(rest.get(2..).unwrap_or(&[]), b"*/") {
                // A comment that MySQL executes, and one that it ignores.
                Some(_) if rest.get(2) == Some(&b'!') => {
                    at += 3;
                    at += data.iter().skip(at).take_while(|b| b.is_ascii_digit()).count();
                    continue;
                }
                Some(end) => {
                    at += end + 4;
                    continue;
                }
                None => {
                    comment_unended = true;
                    (Kind::Comment, 2)
                }
            },
            b'*' if rest.starts_with(b"*/") => {
                at += 2;
                continue;
            }
            b'0'..=b'9' => (Kind::Number, number(rest)),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => {
                (Kind::Number, 1 + number(rest.get(1..).unwrap_or(&[])))
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'@' | b'$' | 0x80.. if b != b'@' || is_word(rest.get(1)) => {
                let len = rest.iter().take_while(|&&b| b == b'.' || is_word(Some(&b))).count().max(1);
                let dots = rest.get(..len).unwrap_or(rest).iter().rev().take_while(|&&b| b == b'.').count();
                let len = (len - dots).max(1);
                // `select.1` is the keyword, followed by a number.
                let mut keywords = [&b"select."[..], b"union.", b"and.", b"or."].into_iter();
                let keyword = keywords.find(|k| {
                    rest.get(..len).is_some_and(|w| w.starts_with(k))
                        && rest.get(k.len()).is_some_and(u8::is_ascii_digit)
                });
                (Kind::Word, keyword.map_or(len, |k| k.len() - 1))
            }
            b'(' | b')' | b',' | b';' | b'[' | b']' | b'{' | b'}' | b'.' => (Kind::Mark, 1),
            b':' if rest.starts_with(b"::") => (Kind::Operator, 2),
            b'?' if matches!(rest.get(1), Some(b'|' | b'&')) => (Kind::Operator, 2),
            b':' | b'?' => (Kind::Mark, 1),
            _ => {
                let known = [
                    &b"<=>"[..],
                    b"->>",
                    b"||",
                    b"&&",
                    b"<>",
                    b"!=",
                    b"<=",
                    b">=",
                    b"@>",
                    b"<@",
                    b":=",
                    b"==",
                    b"->",
                    b"!<",
                    b"!>",
                    b"<<",
                    b">>",
                ];
                (Kind::Operator, known.iter().find(|k| rest.starts_with(k)).map_or(1, |k| k.len()))
            }
        };
        list.push(Token { kind, text: rest.get(..len).unwrap_or(rest) });
        at += len;
    }
    list
}

fn is_word(b: Option<&u8>) -> bool {
    b.is_some_and(|&b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@' | b'$') || b >= 0x80)
}

/// The length of a number.
fn number(data: &[u8]) -> usize {
    if data.get(1).is_some_and(|b| matches!(b, b'x' | b'b')) {
        return 2 + data.iter().skip(2).take_while(|b| b.is_ascii_hexdigit()).count();
    }
    let digits = |from: usize| data.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let mut len = digits(0);
    if data.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if data.get(len) == Some(&b'e') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    len
}

/// The length of a string with its quotes; `None` if it is not closed.
pub(super) fn string(data: &[u8]) -> Option<usize> {
    let &quote = data.first()?;
    let mut at = 1;
    loop {
        match *data.get(at)? {
            b'\\' if quote != b'`' => at += 2,
            b if b == quote && data.get(at + 1) == Some(&quote) && data.get(at + 2).is_some() => at += 2,
            b if b == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}
