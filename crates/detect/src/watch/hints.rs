//! Explains what a failed byte check found instead of the bytes it asks for.

use margay_rules::ast::{BufferCheck, Content, Value};

use crate::describe::{byte_op, compare, literal};
use crate::inspect::number;
use crate::inspect::{CheckResult, OpSeen};

/// An explanation for a check, and the bytes it is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hint {
    pub(crate) text: String,
    /// Start and end within the buffer.
    pub(crate) mark: (usize, usize),
    /// The part of the expected bytes that was there, in tenths, 0 to 9.
    pub(crate) tenths: u32,
}

/// Where the longest prefix of `needle` occurs in `hay`, and its length.
pub(crate) fn longest_beginning(needle: &[u8], hay: &[u8], nocase: bool) -> (usize, usize) {
    let same = |a: &u8, b: &u8| if nocase { a.eq_ignore_ascii_case(b) } else { a == b };
    let mut best = (0, 0);
    for at in 0..hay.len() {
        let n = hay.get(at..).unwrap_or(&[]).iter().zip(needle).take_while(|(a, b)| same(a, b)).count();
        if n > best.1 {
            best = (at, n);
            if n == needle.len() {
                break;
            }
        }
    }
    best
}

/// The ratio of `part` to `all`, in tenths, 0 to 9.
pub(crate) fn tenths(part: usize, all: usize) -> u32 {
    (part * 10 / all.max(1)).min(9) as u32
}

fn range((from, to): (usize, usize)) -> String {
    if to <= from + 1 { format!("byte {from}") } else { format!("bytes {from} to {}", to - 1) }
}

/// Explains a literal that was not found where it should be.
fn content(c: &Content, seen: &OpSeen<'_>) -> Hint {
    let data = seen.data;
    if let CheckResult::Failed(Some(at)) = seen.came {
        return Hint { text: format!("it is there, at {}", range(at)), mark: at, tenths: 0 };
    }
    let n = c.bytes.len();
    let (part, whole) = match seen.window {
        Some((a, b)) => (data.get(a..b).unwrap_or(&[]), (a, b) == (0, data.len())),
        None => (&[][..], false),
    };
    let from = seen.window.map_or(0, |w| w.0);
    let looked = match seen.window {
        None if data.len() < n => format!("there are only {} bytes", data.len()),
        None => "it does not fit into the range where it must be".to_owned(),
        Some(_) if whole => format!("not in the {} bytes", data.len()),
        Some(w) => format!("not in {}", range(w)),
    };
    let (at, len) = longest_beginning(&c.bytes, data, c.nocase);
    if len == n {
        let text = format!("{looked}; it is at {}, which is outside", range((at, at + n)));
        return Hint { text, mark: (at, at + n), tenths: 8 };
    }
    if !c.nocase {
        let (at, len) = longest_beginning(&c.bytes, part, true);
        if len == n {
            let at = from + at;
            let text = format!("{looked}; in other case it is at {}: nocase would find it", range((at, at + n)));
            return Hint { text, mark: (at, at + n), tenths: 9 };
        }
    }
    let (at, len) = longest_beginning(&c.bytes, part, c.nocase);
    let (at, end) = (from + at, from + at + len);
    match len {
        0 | 1 => Hint { text: looked, mark: (from, from), tenths: 0 },
        _ => Hint {
            text: format!("{looked}; its first {len} of {n} bytes are at {}", range((at, end))),
            mark: (at, end),
            tenths: tenths(len, n),
        },
    }
}

fn value(v: &Value, seen: &OpSeen<'_>) -> i64 {
    match v {
        Value::Number(n) => *n,
        Value::Variable(i) => {
            seen.variables.get(usize::from(*i)).and_then(|v| i64::try_from(*v).ok()).unwrap_or(i64::MAX)
        }
    }
}

/// Explains the number that a check reads, with its bytes.
fn read(
    seen: &OpSeen<'_>,
    (offset, relative): (i64, bool),
    bytes: u64,
    format: margay_rules::ast::NumberFormat,
) -> (String, Option<u64>, (usize, usize)) {
    let at = if relative { (seen.cursor as i64).saturating_add(offset) } else { offset };
    let place = usize::try_from(at).unwrap_or(0).min(seen.data.len());
    let end = place.saturating_add(usize::try_from(bytes).unwrap_or(0)).min(seen.data.len());
    let mark = (place, end);
    match number::read(seen.data, at, bytes, format, seen.dce_little) {
        Some(n) => {
            let text = format!(
                "the number there, {} ({}), is {}",
                range(mark),
                literal(seen.data.get(place..end).unwrap_or(&[])),
                n.value
            );
            (text, Some(n.value), mark)
        }
        None if at < 0 || place.saturating_add(bytes as usize) > seen.data.len() => {
            (format!("{bytes} bytes at {at} are not all within the {} of the buffer", seen.data.len()), None, mark)
        }
        None => (format!("at {} there is no number", range(mark)), None, mark),
    }
}

/// Explains what `check` found, whatever its result.
pub(crate) fn of(check: &BufferCheck, seen: &OpSeen<'_>) -> Hint {
    let len = seen.data.len();
    let whole = |text: String| Hint { text, mark: (0, 0), tenths: 0 };
    if seen.came == CheckResult::Limit {
        return whole("not evaluated: the rule took too many steps here (detect.inspection-recursion-limit)".into());
    }
    match check {
        BufferCheck::Content(c) => content(c, seen),
        BufferCheck::Pcre(p) => {
            if let CheckResult::Failed(Some(at)) = seen.came {
                return Hint { text: format!("it matches, at {}", range(at)), mark: at, tenths: 0 };
            }
            let from = if p.relative { seen.cursor } else { 0 };
            let text = if from >= len {
                format!("no match: nothing follows byte {from}")
            } else {
                format!("no match in {}", range((from, len)))
            };
            Hint { text, mark: (from.min(len), from.min(len)), tenths: 0 }
        }
        BufferCheck::IsDataAt { at, relative, .. } => {
            let at = value(at, seen);
            let place = if *relative { (seen.cursor as i64).saturating_add(at) } else { at };
            whole(format!("the buffer has {len} bytes; the check is for byte {place}"))
        }
        BufferCheck::Asn1(_) => whole("the ASN.1 there meets none of the conditions".into()),
        BufferCheck::Bsize(c) => whole(format!("the buffer has {len} bytes; the rule requires {}", compare(c))),
        BufferCheck::ByteTest(b) => {
            let offset = (value(&b.offset, seen), b.relative);
            let bytes = value(&b.bytes, seen).cast_unsigned();
            let (text, n, mark) = read(seen, offset, bytes, b.format);
            let asked =
                format!("asked is {}{} {}", if b.negated { "not " } else { "" }, byte_op(b.op), value(&b.value, seen));
            let masked = b.bitmask.filter(|_| n.is_some()).map_or(String::new(), |m| format!(", with bitmask {m:#x}"));
            Hint { text: format!("{text}{masked}; {asked}"), mark, tenths: 0 }
        }
        BufferCheck::ByteJump(b) => {
            let bytes = value(&b.bytes, seen).cast_unsigned();
            let (text, n, mark) = read(seen, (value(&b.offset, seen), b.relative), bytes, b.format);
            let behind =
                if n.is_some() { format!(": the jump leads beyond the end ({len} bytes)") } else { String::new() };
            Hint { text: format!("{text}{behind}"), mark, tenths: 0 }
        }
        BufferCheck::ByteExtract(b) => {
            let (text, _, mark) = read(seen, (i64::from(b.offset), b.relative), u64::from(b.bytes), b.format);
            Hint { text, mark, tenths: 0 }
        }
        BufferCheck::ByteMath(b) => {
            let bytes = value(&b.bytes, seen).cast_unsigned();
            let (text, _, mark) = read(seen, (i64::from(b.offset), b.relative), bytes, b.format);
            Hint { text, mark, tenths: 0 }
        }
        BufferCheck::Base64 { offset, relative, .. } => {
            let from = (if *relative { seen.cursor } else { 0 }).saturating_add(*offset as usize).min(len);
            Hint { text: format!("from byte {from} on"), mark: (from, from), tenths: 0 }
        }
        BufferCheck::Entropy { .. } => whole(format!("of the {len} bytes")),
        BufferCheck::Dataset(_) | BufferCheck::DataRep(_) => {
            whole(format!("the {len} bytes \"{}\" were looked up", literal(seen.data)))
        }
        BufferCheck::Judge(_) => whole(format!("the {len} bytes \"{}\" were judged", literal(seen.data))),
        BufferCheck::Lua(_) | BufferCheck::Other { .. } => whole(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rules::ast::VARIABLES_MAX;

    fn text(c: &Content, data: &[u8], window: Option<(usize, usize)>) -> String {
        let variables = [0; VARIABLES_MAX];
        let seen = OpSeen {
            data,
            cursor: 0,
            window,
            came: CheckResult::Failed(None),
            variables: &variables,
            dce_little: false,
        };
        of(&BufferCheck::Content(c.clone()), &seen).text
    }

    #[test]
    fn literals_that_are_elsewhere() {
        let c = |s: &str| Content { bytes: s.as_bytes().to_vec(), ..Content::default() };
        assert_eq!(text(&c("xyz"), b"abcdef", Some((0, 6))), "not in the 6 bytes");
        assert_eq!(
            text(&c("def"), b"abcdef", Some((0, 4))),
            "not in bytes 0 to 3; it is at bytes 3 to 5, which is outside"
        );
        assert_eq!(
            text(&c("DEF"), b"abcdef", Some((0, 6))),
            "not in the 6 bytes; in other case it is at bytes 3 to 5: nocase would find it"
        );
        assert_eq!(
            text(&c("cdX"), b"abcdef", Some((0, 6))),
            "not in the 6 bytes; its first 2 of 3 bytes are at bytes 2 to 3"
        );
        assert_eq!(text(&c("abcdefg"), b"abc", None), "there are only 3 bytes");
    }
}
