//! Splits a rule's text into header fields and options with name and value.
//!
//! Options end at a `;` without a backslash before it, even within quotes. The lexer knows no keywords.

use crate::error::{Fail, fail};

const MODULE: &str = "detect-parse";

/// The parts of a rule.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) action: &'a [u8],
    pub(crate) protocol: &'a [u8],
    pub(crate) src: &'a [u8],
    pub(crate) sport: &'a [u8],
    pub(crate) arrow: &'a [u8],
    pub(crate) dst: &'a [u8],
    pub(crate) dport: &'a [u8],
    pub(crate) options: Vec<RawOption<'a>>,
}

/// One option as written, without surrounding white space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawOption<'a> {
    pub(crate) name: &'a [u8],
    /// `None` if there is no colon.
    pub(crate) value: Option<&'a [u8]>,
    /// Byte offset of the name in the rule.
    pub(crate) at: usize,
}

/// The offset of `part` within `whole`, of which it is a subslice.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

pub(crate) const fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// The next header field: up to white space, or up to the bracket that closes the field's first one.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let s = rest.trim_ascii_start();
    let mut depth = 0usize;
    let mut end = s.len();
    for (i, &b) in s.iter().enumerate() {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b'(' => {
                end = i;
                break;
            }
            _ if is_space(b) && depth == 0 => {
                end = i;
                break;
            }
            _ => {}
        }
    }
    let (f, r) = s.split_at_checked(end)?;
    *rest = r;
    if f.is_empty() { None } else { Some(f) }
}

/// Splits a rule into its parts.
pub(crate) fn split(rule: &[u8]) -> Result<Parts<'_>, Fail> {
    if rule.contains(&0) {
        return fail(MODULE, "rule has a NUL byte; remove it.");
    }
    let mut rest = rule;
    let mut fields = [&rule[..0]; 7];
    for f in &mut fields {
        match field(&mut rest) {
            Some(x) => *f = x,
            None => return fail(MODULE, "no rule options."),
        }
    }
    let [action, protocol, src, sport, arrow, dst, dport] = fields;
    let body = rest.trim_ascii();
    let Some(body) = body.strip_prefix(b"(") else {
        if body.is_empty() {
            return fail(MODULE, "no rule options.");
        }
        let text = String::from_utf8_lossy(body.get(..body.len().min(40)).unwrap_or(body));
        return fail(MODULE, format!("\"(\" expected after the destination port, found \"{text}\"."));
    };
    let body = body.strip_suffix(b")").unwrap_or(body);
    let mut options = Vec::with_capacity(16);
    let mut rest = body.trim_ascii_end();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let Some((option, after)) = next_option(rest) else {
            return fail(MODULE, "no terminating \";\" found");
        };
        let at = offset(rule, option);
        options.push(match option.iter().position(|&b| b == b':') {
            Some(i) => {
                let (name, value) = option.split_at(i);
                let value = value.get(1..).unwrap_or_default();
                RawOption { name: name.trim_ascii(), value: Some(value.trim_ascii()), at }
            }
            None => RawOption { name: option.trim_ascii(), value: None, at },
        });
        rest = after;
    }
    Ok(Parts { action, protocol, src, sport, arrow, dst, dport, options })
}

/// The bytes before the first `;` without a backslash before it, and the rest.
fn next_option(s: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let i = from + s.get(from..)?.iter().position(|&b| b == b';')?;
        if i > 0 && s.get(i - 1) == Some(&b'\\') {
            from = i + 1;
            continue;
        }
        return Some((s.get(..i)?, s.get(i + 1..)?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_options() {
        let p =
            split(b"alert tcp [1.2.3.4, !5.6.7.8] any -> any [1:2, 3] (msg:\"a\\;b\" ; nocase; sid : 5 ; )").unwrap();
        assert_eq!(p.src, b"[1.2.3.4, !5.6.7.8]");
        assert_eq!(p.dport, b"[1:2, 3]");
        assert_eq!(p.options.len(), 3);
        assert_eq!(p.options[0].value, Some(&b"\"a\\;b\""[..]));
        assert_eq!(p.options[1].value, None);
        assert_eq!((p.options[2].name, p.options[2].value), (&b"sid"[..], Some(&b"5"[..])));
    }

    #[test]
    fn what_is_missing_is_said() {
        let text = |r: &[u8]| split(r).unwrap_err().messages.remove(0).text;
        assert_eq!(text(b"alert tcp any any -> any any"), "no rule options.");
        assert_eq!(text(b"alert tcp any any -> any (sid:1;)"), "no rule options.");
        assert_eq!(text(b"alert tcp any any -> any any (sid:1)"), "no terminating \";\" found");
        assert_eq!(text(b"alert tcp any any -> any any (sid:1;) x"), "no terminating \";\" found");
    }
}
