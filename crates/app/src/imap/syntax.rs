//! The grammar of lines (RFC 9051 section 9): tags, words, literals, and the names of SASL.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The longest tag that is kept.
pub(super) const TAG_MAX: usize = 64;
/// The longest argument that is kept.
pub(super) const ARGUMENT_MAX: usize = 512;
/// Bytes at the end of a line that announce a literal, including its item.
pub(super) const TAIL: usize = 96;

/// A literal that a line announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced<'a> {
    /// Its length.
    pub(super) len: u64,
    /// The client waits for the server's consent before it sends the literal.
    pub(super) waits: bool,
    /// The text before it.
    pub(super) before: &'a [u8],
}

/// The literal at the end of a line without its line break: `{5}`, `{5+}` (RFC 7888), `~{5}` (RFC 3516).
pub(super) fn literal(line: &[u8]) -> Option<Announced<'_>> {
    let inner = line.strip_suffix(b"}")?;
    let at_once = inner.strip_suffix(b"+").or_else(|| inner.strip_suffix(b"-"));
    let (inner, waits) = (at_once.unwrap_or(inner), at_once.is_none());
    let at = inner.iter().rposition(|b| !b.is_ascii_digit())?;
    let digits = inner.get(at + 1..).filter(|d| !d.is_empty() && inner.get(at) == Some(&b'{'))?;
    let digit = |n: u64, d: &u8| n.checked_mul(10)?.checked_add(u64::from(d - b'0'));
    // RFC 9051 allows 63 bits; a longer number is not a length.
    let len = digits.iter().try_fold(0u64, digit).filter(|n| *n < 1 << 63)?;
    let before = inner.get(..at)?;
    Some(Announced { len, waits, before: before.strip_suffix(b"~").unwrap_or(before) })
}

/// Whether an item of a FETCH response, which ends here, is a whole mail, or its first part.
pub(super) fn is_mail(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    let before = before.strip_suffix(b"<0>").unwrap_or(before);
    [&b"BODY[]"[..], b"BINARY[]", b"RFC822"].iter().any(|item| {
        let at = before.len().checked_sub(item.len());
        at.is_some_and(|at| {
            before.get(at..).is_some_and(|t| t.eq_ignore_ascii_case(item))
                && at.checked_sub(1).is_none_or(|p| matches!(before.get(p), Some(b' ' | b'(')))
        })
    })
}

/// Splits a line into its tag and the rest.
pub(super) fn tag(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|b| *b == b' ')?;
    let (tag, rest) = line.split_at(at);
    let special = |b: &u8| b"(){%*\"\\+".contains(b) || !b.is_ascii_graphic();
    (!tag.is_empty() && tag.len() <= TAG_MAX && !tag.iter().any(special)).then_some((tag, rest.get(1..)?))
}

/// The words of a line: atoms, quoted strings without their quotes, parts of lists.
#[derive(Debug)]
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl Iterator for Words<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let rest = self.0.trim_ascii_start();
        let (first, behind) = rest.split_first()?;
        let mut word = Vec::new();
        if *first != b'"' {
            let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            word.extend(rest.iter().take(end.min(ARGUMENT_MAX)));
            self.0 = rest.get(end..).unwrap_or_default();
            return Some(word);
        }
        let mut bytes = behind.iter().enumerate();
        let mut end = behind.len();
        while let Some((at, byte)) = bytes.next() {
            let byte = match byte {
                b'"' => {
                    end = at + 1;
                    break;
                }
                b'\\' => bytes.next().map_or(b'\\', |(_, b)| *b),
                b => *b,
            };
            if word.len() < ARGUMENT_MAX {
                word.push(byte);
            }
        }
        self.0 = behind.get(end..).unwrap_or_default();
        Some(word)
    }
}

/// The user name in a client's SASL message, which is in Base64. The password is ignored.
pub(super) fn sasl_user(mechanism: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let data = STANDARD.decode(text.trim_ascii()).ok()?;
    let is = |name: &str| mechanism.eq_ignore_ascii_case(name.as_bytes());
    let name = if is("PLAIN") {
        // RFC 4616: an identity, the user name, the password.
        data.split(|b| *b == 0).nth(1)?
    } else if is("LOGIN") {
        &data
    } else if is("CRAM-MD5") {
        // RFC 2195: the user name and a digest.
        data.get(..data.iter().rposition(|b| *b == b' ')?)?
    } else if is("XOAUTH2") {
        data.split(|b| *b == 1).find_map(|part| part.strip_prefix(b"user="))?
    } else if is("OAUTHBEARER") {
        // RFC 7628: a header as in RFC 5801.
        data.split(|b| *b == b',').find_map(|part| part.strip_prefix(b"a="))?
    } else {
        return None;
    };
    let name = name.get(..ARGUMENT_MAX).unwrap_or(name);
    (!name.is_empty()).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        let of = |line: &'static [u8]| literal(line).map(|l| (l.len, l.before));
        assert_eq!(of(b"a LOGIN {4}"), Some((4, &b"a LOGIN "[..])));
        assert_eq!(of(b"x {10+}").map(|l| l.0), Some(10));
        assert_eq!(of(b"BODY[] ~{7}"), Some((7, &b"BODY[] "[..])));
        for no in [&b"a {}"[..], b"a {x}", b"{99999999999999999999}", b"5}", b"", b"a {5} "] {
            assert_eq!(literal(no), None, "{}", no.escape_ascii());
        }
    }

    #[test]
    fn mails() {
        for yes in ["* 1 FETCH (BODY[] ", "(UID 2 body[]<0> ", "* 1 FETCH (RFC822 ", "BINARY[]"] {
            assert!(is_mail(yes.as_bytes()), "{yes}");
        }
        for no in ["BODY[HEADER] ", "XBODY[] ", "BODY[]<100> ", "RFC822.HEADER ", "RFC822.TEXT "] {
            assert!(!is_mail(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn words() {
        let of =
            |line: &'static [u8]| Words(line).map(|w| String::from_utf8_lossy(&w).into_owned()).collect::<Vec<_>>();
        assert_eq!(of(br#"INBOX "a \"b\" c" (x  y)"#), ["INBOX", "a \"b\" c", "(x", "y)"]);
        assert_eq!(of(br#""open"#), ["open"]);
        assert_eq!(of(b"  "), [""; 0]);
    }

    #[test]
    fn tags() {
        assert_eq!(tag(b"A1 NOOP"), Some((&b"A1"[..], &b"NOOP"[..])));
        for no in [&b"NOOP"[..], b" NOOP", b"* OK", b"+ go", b"a\x01 x"] {
            assert_eq!(tag(no), None, "{}", no.escape_ascii());
        }
    }

    #[test]
    fn users() {
        assert_eq!(sasl_user(b"plain", b"AGFubgBzZWNyZXQ=").as_deref(), Some(&b"ann"[..]));
        assert_eq!(sasl_user(b"LOGIN", b"YW5u").as_deref(), Some(&b"ann"[..]));
        assert_eq!(sasl_user(b"CRAM-MD5", b"YW5uIGIxMjM=").as_deref(), Some(&b"ann"[..]));
        assert_eq!(sasl_user(b"XOAUTH2", b"dXNlcj1hbm4BYXV0aD1CZWFyZXIgeAEB").as_deref(), Some(&b"ann"[..]));
        assert_eq!((sasl_user(b"PLAIN", b"!"), sasl_user(b"GSSAPI", b"YW5u")), (None, None));
    }
}
