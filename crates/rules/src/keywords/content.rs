//! `content` and its modifiers.

use super::{Buffer, Keyword};
use crate::ast::{BufferCheck, Content, Effect, Value};
use crate::builder::{Builder, Input, PAYLOAD, Spot};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::quoted(&["content"], content).negatable().about("bytes that the buffer holds"),
    Keyword::quoted(&["uricontent"], uricontent)
        .negatable()
        .about("bytes that the URI holds, as content with http.uri"),
    Keyword::bare(&["nocase"], nocase).about("the content before it matches letters in either case"),
    Keyword::value(&["depth"], depth).about("how far into the buffer the content before it may end"),
    Keyword::value(&["offset"], offset).about("how far into the buffer the content before it begins at least"),
    Keyword::value(&["distance"], distance)
        .about("how far behind the last match the content before it begins at least"),
    Keyword::value(&["within"], within).about("how far behind the last match the content before it ends at most"),
    Keyword::bare(&["startswith"], startswith).about("the content before it begins the buffer"),
    Keyword::bare(&["endswith"], endswith).about("the content before it ends the buffer"),
    Keyword::bare(&["rawbytes"], rawbytes).about("accepted, without effect"),
    Keyword::maybe(&["fast_pattern"], fast_pattern).about("the prefilter looks for the content before it"),
    Keyword::quoted(&["replace"], replace).about("put these bytes in the place of the content before it, inline"),
];

/// Longest content.
const CONTENT_MAX: usize = 65_535;
/// Bound of `depth` and `offset`.
const ABSOLUTE_MAX: i64 = u16::MAX as i64;
/// Bound of `distance` and `within`, either way.
const RELATIVE_MAX: i64 = 1 << 20;

const MIXED: &str = "can't use a relative keyword like within/distance with a absolute relative keyword like depth/offset \
                     for the same content.";

/// Decodes a content: hexadecimal between pipes, backslash before `"`, `\`, `:` and `;`.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, Fail> {
    const M: &str = "detect-content";
    let shown = || String::from_utf8_lossy(text);
    let mut out = Vec::with_capacity(text.len());
    let (mut hex, mut half, mut escaped) = (false, None, false);
    for &b in text {
        if b == b'|' && !escaped {
            if half.is_some() {
                return fail(M, format!("Incomplete hex code in content - {}. Invalidating signature.", shown()));
            }
            hex = !hex;
        } else if hex {
            match (b as char).to_digit(16) {
                Some(d) => match half.take() {
                    None => half = Some(d as u8),
                    Some(h) => out.push(h << 4 | d as u8),
                },
                None if matches!(b, b' ' | b'\t' | b',') => {}
                None => {
                    return fail(
                        M,
                        format!(
                            "Invalid hex code in content - {}, hex {}. Invalidating signature.",
                            shown(),
                            b as char
                        ),
                    );
                }
            }
        } else if escaped {
            if !matches!(b, b'\\' | b'"' | b':' | b';' | b'|') {
                return fail(M, "'\\' has to be escaped");
            }
            out.push(b);
            escaped = false;
        } else if b == b'\\' {
            escaped = true;
        } else if b == b'"' {
            return fail(M, "Invalid unescaped double quote within content section.");
        } else {
            out.push(b);
        }
    }
    if hex {
        return fail(M, format!("Invalid hex code assembly in content - {}.  Invalidating signature.", shown()));
    }
    if escaped {
        return fail(M, "'\\' has to be escaped");
    }
    if out.is_empty() {
        return fail(M, format!("content \"{}\" is of no bytes. Invalidating signature.", shown()));
    }
    if out.len() > CONTENT_MAX {
        return fail(M, format!("content is longer than {CONTENT_MAX} bytes"));
    }
    Ok(out)
}

/// Encodes bytes in `content` syntax.
pub fn render(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len());
    let mut hex = false;
    for &b in bytes {
        let plain =
            b.is_ascii_alphanumeric() || matches!(b, b' ' | b'.' | b'/' | b'-' | b'_' | b'=' | b'?' | b'&' | b',');
        if plain == hex {
            s.push('|');
            hex = !hex;
        } else if hex {
            s.push(' ');
        }
        if plain { s.push(b as char) } else { s.push_str(&format!("{b:02X}")) }
    }
    if hex {
        s.push('|');
    }
    s
}

fn content(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bytes = decode(i.raw)?;
    let group = b.target(false);
    b.add(group, BufferCheck::Content(Content { bytes, negated: i.negated, ..Content::default() }));
    Ok(())
}

fn uricontent(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let uri = super::modified("http_uri")?;
    super::need_protocol(b, uri.protocols, i.written);
    content(b, i)?;
    modify_buffer(b, "http_uri", uri)
}

/// An old-style modifier: the last content applies to `buffer`.
pub(super) fn modify_buffer(b: &mut Builder<'_>, written: &str, buffer: &'static Buffer) -> Result<(), Fail> {
    const M: &str = "detect-parse";
    if b.current.is_some() {
        return fail(
            M,
            format!(
                "\"{written}\" keyword seen with a sticky buffer still set.  Reset sticky buffer with pkt_data before \
                 using the modifier."
            ),
        );
    }
    let without = || {
        Fail::new(
            M,
            format!(
                "\"{written}\" keyword found inside the rule without a content context.  Please use a \"content\" \
                 keyword before using the \"{written}\" keyword"
            ),
        )
    };
    let payload = b.payload();
    let Some(spot) = b.last_content.filter(|s| s.group == payload && s.base64.is_none()) else {
        return Err(without());
    };
    let Some(c) = b.content_at(spot) else { return Err(without()) };
    if c.raw_bytes {
        return fail(M, format!("{written} rule can not be used with the rawbytes rule keyword"));
    }
    if c.replace.is_some() {
        return fail(M, format!("{written} rule can not be used with the replace rule keyword"));
    }
    let to = b.group_of(buffer.name, Some(buffer));
    b.move_last_content(to);
    b.note(buffer)
}

/// The content that a modifier refers to, or an error if there is none.
fn last<'a>(b: &'a mut Builder<'_>, module: &'static str, text: &str) -> Result<(Spot, &'a mut Content), Fail> {
    b.modified().ok_or_else(|| Fail::new(module, text))
}

fn nocase(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    let (_, c) = last(b, "detect-nocase", "nocase needs preceding content option")?;
    if c.nocase {
        return fail("detect-content", "can't use multiple nocase modifiers with the same content");
    }
    c.nocase = true;
    Ok(())
}

/// A number with an optional sign; `0x` makes it hexadecimal and a leading 0 octal, as in Suricata.
fn place(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let n = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => radix(hex, 16)?,
        None if digits.len() > 1 && digits.starts_with('0') => radix(digits, 8)?,
        None => radix(digits, 10)?,
    };
    Some(if text.starts_with('-') { -n } else { n })
}

/// Digits alone: the standard library would take a second sign.
fn radix(digits: &str, radix: u32) -> Option<i64> {
    if digits.starts_with(['-', '+']) { None } else { i64::from_str_radix(digits, radix).ok() }
}

/// A number within bounds, or a variable.
fn value(
    b: &Builder<'_>,
    i: &Input<'_>,
    module: &'static str,
    (low, high): (i64, i64),
    end: &str,
) -> Result<Value, Fail> {
    let text = i.text.trim();
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return match place(text).filter(|n| (low..=high).contains(n)) {
            Some(n) => Ok(Value::Number(n)),
            None => fail(module, format!("invalid value for {}: {text}{end}", i.name)),
        };
    }
    match b.variable(text, None) {
        Some(v) => Ok(Value::Variable(v)),
        None => fail(module, format!("unknown byte_ keyword var seen in {} - {text}{end}", i.name)),
    }
}

/// Rejects options that conflict with any position; `quoted` selects this keyword's wording of both messages.
fn position_allowed(c: &Content, module: &'static str, quoted: bool) -> Result<(), Fail> {
    if c.negated && c.fast_pattern {
        let by = if quoted { "'fast_pattern'." } else { "a fast_pattern" };
        return fail(module, format!("can't have a relative negated keyword set along with {by}"));
    }
    if c.fast_pattern_only {
        let by = if quoted { "'fast_pattern:only;'." } else { "a fast_pattern:only;" };
        return fail(module, format!("can't have a relative keyword set along with {by}"));
    }
    Ok(())
}

fn depth(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-depth";
    const NEEDS: &str = "depth needs preceding content, uricontent option, http_client_body, http_server_body, \
                         http_header option, http_raw_header option, http_method option, http_cookie, http_raw_uri, \
                         http_stat_msg, http_stat_code, http_user_agent, http_host, http_raw_host or \
                         file_data/dce_stub_data sticky buffer options.";
    let c = last(b, M, NEEDS)?.1;
    if c.depth.is_some() {
        return fail(M, "can't use multiple depths for the same content.");
    }
    if c.distance.is_some() || c.within.is_some() {
        return fail(M, MIXED);
    }
    position_allowed(c, M, true)?;
    let length = c.bytes.len() as i64;
    let v = value(b, i, M, (0, ABSOLUTE_MAX), ".")?;
    if let Value::Number(n) = v
        && n < length
    {
        return fail(M, format!("depth:{n} smaller than content of len {length}."));
    }
    last(b, M, NEEDS)?.1.depth = Some(v);
    Ok(())
}

fn offset(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-offset";
    const NEEDS: &str = "offset needs preceding content option.";
    let c = last(b, M, NEEDS)?.1;
    if c.starts_with {
        return fail(M, "can't use offset with startswith.");
    }
    if c.offset.is_some() {
        return fail(M, "can't use multiple offsets for the same content.");
    }
    if c.distance.is_some() || c.within.is_some() {
        return fail(M, MIXED);
    }
    position_allowed(c, M, true)?;
    let v = value(b, i, M, (0, ABSOLUTE_MAX), ".")?;
    last(b, M, NEEDS)?.1.offset = Some(v);
    Ok(())
}

/// Checks that this content may be relative to the match before it in its buffer.
fn previous_allowed(b: &mut Builder<'_>, s: Spot, module: &'static str) -> Result<(), Fail> {
    let Some(list) = b.list(s.group, s.base64) else { return Ok(()) };
    let previous = list.iter().take(s.index).rev().find_map(|c| match c {
        BufferCheck::Content(c) => Some(Some(c)),
        BufferCheck::Pcre(_) => Some(None),
        _ => None,
    });
    if let Some(Some(p)) = previous
        && p.fast_pattern_only
    {
        return fail(
            module,
            "previous keyword has a fast_pattern:only; set. Can't have relative keywords around a fast_pattern only \
             content",
        );
    }
    Ok(())
}

fn distance(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-distance";
    const NEEDS: &str = "distance needs preceding content, uricontent option, http_client_body, http_server_body, \
                         http_header option, http_raw_header option, http_method option, http_cookie, http_raw_uri, \
                         http_stat_msg, http_stat_code, http_user_agent or file_data/dce_stub_data sticky buffer option";
    let (s, c) = last(b, M, NEEDS)?;
    if c.distance.is_some() {
        return fail(M, "can't use multiple distances for the same content.");
    }
    if c.depth.is_some() || c.offset.is_some() {
        return fail(M, MIXED);
    }
    position_allowed(c, M, false)?;
    let v = value(b, i, M, (-RELATIVE_MAX, RELATIVE_MAX), "")?;
    previous_allowed(b, s, M)?;
    last(b, M, NEEDS)?.1.distance = Some(v);
    Ok(())
}

fn within(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-within";
    const NEEDS: &str = "within needs preceding content option";
    let (s, c) = last(b, M, NEEDS)?;
    if c.within.is_some() {
        return fail(M, "can't use multiple withins for the same content.");
    }
    if c.depth.is_some() || c.offset.is_some() {
        return fail(M, MIXED);
    }
    position_allowed(c, M, false)?;
    let length = c.bytes.len() as i64;
    let v = value(b, i, M, (-RELATIVE_MAX, RELATIVE_MAX), "")?;
    if let Value::Number(n) = v
        && n < length
    {
        return fail(
            M,
            format!(
                "within argument \"{n}\" is less than the content length \"{length}\" which is invalid, since this \
                 will never match.  Invalidating signature"
            ),
        );
    }
    previous_allowed(b, s, M)?;
    last(b, M, NEEDS)?.1.within = Some(v);
    Ok(())
}

fn startswith(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-depth";
    let c = last(b, M, "startswith needs a preceding content option.")?.1;
    if c.depth.is_some() {
        return fail(M, "can't use multiple depth/startswith settings for the same content.");
    }
    if c.distance.is_some() || c.within.is_some() {
        return fail(M, MIXED);
    }
    if c.negated && c.fast_pattern {
        return fail(M, "can't have a relative negated keyword set along with a 'fast_pattern'.");
    }
    position_allowed(c, M, true)?;
    if c.offset.is_some() {
        return fail(M, "can't mix offset with startswith.");
    }
    c.depth = Some(Value::Number(c.bytes.len() as i64));
    c.starts_with = true;
    Ok(())
}

fn endswith(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    last(b, "detect-isdataat", "endswith needs a preceding content option")?.1.ends_with = true;
    Ok(())
}

fn rawbytes(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-rawbytes";
    if let Some(info) = b.current.and_then(|g| b.groups.get(g)).and_then(|g| g.info) {
        return fail(M, format!("\"rawbytes\" cannot be combined with the \"{}\" sticky buffer", info.internal));
    }
    // It belongs to the payload's last content, even if a modifier moved a later content to another buffer.
    let payload = b.groups.iter_mut().find(|g| g.checks.buffer == PAYLOAD && g.checks.transforms.is_empty());
    let c = payload.and_then(|g| {
        g.checks.checks.iter_mut().rev().find_map(|c| if let BufferCheck::Content(c) = c { Some(c) } else { None })
    });
    let Some(c) = c else { return fail(M, "\"rawbytes\" needs a preceding content option") };
    if c.raw_bytes {
        return fail(M, "can't use multiple rawbytes modifiers for the same content. ");
    }
    c.raw_bytes = true;
    Ok(())
}

pub(super) fn fast_pattern(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-fast-pattern";
    const NEEDS: &str = "fast_pattern found inside the rule, without a content context. Please use a content based \
                         keyword before using fast_pattern";
    if b.base64.is_some() {
        return fail(M, "fast_pattern cannot be used with base64_data");
    }
    let transaction = b.rule.arrow == crate::ast::Arrow::Transaction;
    let (spot, c) = last(b, M, NEEDS)?;
    if spot.base64.is_some() {
        return fail(M, "fast_pattern cannot be used with base64_data");
    }
    if c.fast_pattern && i.text.trim().is_empty() {
        return fail(M, "can't use multiple fast_pattern options for the same content");
    }
    let relative = c.distance.is_some() || c.within.is_some() || c.offset.is_some() || c.depth.is_some();
    let length = c.bytes.len();
    let mut chop = None;
    let mut only = false;
    let text = i.text.trim();
    // As in Suricata, what follows `only,` is ignored.
    let text = if text.split(',').next().is_some_and(|w| w.trim_end() == "only") { "only" } else { text };
    match text {
        "" => {
            if c.negated && relative {
                return fail(M, "fast_pattern; cannot be used with negated content, along with relative modifiers");
            }
        }
        "only" => {
            if c.negated || relative {
                return fail(
                    M,
                    "fast_pattern: only; cannot be used with negated content or with any of the relative modifiers \
                     like distance, within, offset, depth",
                );
            }
            only = true;
        }
        t => {
            let Some((o, l)) = t.split_once(',') else {
                return fail(M, format!("parse error, ret -1, string {t}"));
            };
            let (o, l) = (o.trim(), l.trim());
            // As in Suricata, only the first two of several numbers count.
            let l = l.split_once(',').map_or(l, |x| x.0).trim();
            let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            if !digits(o) || !digits(l) {
                return fail(M, format!("parse error, ret -1, string {t}"));
            }
            let Ok(o) = o.parse::<u16>() else {
                return fail(M, format!("Invalid fast pattern offset: \"{o}\""));
            };
            let Ok(l) = l.parse::<u16>() else {
                return fail(M, format!("Invalid value for fast pattern: \"{l}\""));
            };
            if c.negated && relative {
                return fail(M, "fast_pattern; cannot be used with negated content, along with relative modifiers");
            }
            let end = usize::from(o) + usize::from(l);
            if end > length {
                return fail(M, format!("Fast pattern (length + offset ({end})) exceeds pattern length ({length})"));
            }
            chop = Some((o, l));
        }
    }
    // As in Suricata, one in the payload excludes any other after it. In a buffer, the last one counts.
    let other = b.groups.iter().enumerate().any(|(n, group)| {
        let own = n == spot.group;
        group.info.is_none()
            && group.checks.checks.iter().enumerate().any(|(i, check)| {
                !(own && i == spot.index) && matches!(check, BufferCheck::Content(c) if c.fast_pattern)
            })
    });
    // A transaction rule has one for each direction.
    if other && !transaction {
        return fail(M, "fast_pattern can be used on only one content in a rule");
    }
    if let Some(group) = b.groups.get_mut(spot.group).filter(|_| !transaction) {
        for check in &mut group.checks.checks {
            if let BufferCheck::Content(c) = check {
                (c.fast_pattern, c.fast_pattern_only) = (false, false);
            }
        }
    }
    let c = last(b, M, NEEDS)?.1;
    c.fast_pattern = true;
    c.fast_pattern_only = only;
    c.fast_pattern_chop = chop;
    Ok(())
}

fn replace(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-replace";
    let bytes = decode(i.raw)?;
    if !b.ctx.inline {
        b.warn(M, format!("Can't use 'replace' keyword in non IPS mode: {}", b.rule.text));
        return Ok(());
    }
    let c = last(b, M, "replace needs preceding content option for raw sig")?.1;
    if c.replace.is_some() {
        return fail(M, "can't use multiple replaces for the same content");
    }
    if c.bytes.len() != bytes.len() {
        return fail(M, "can't have a content length different from replace length");
    }
    c.replace = Some(bytes);
    b.rule.effects.push(Effect::Replace);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        let d = |s: &str| decode(s.as_bytes()).map_err(|f| f.messages[0].text.clone());
        assert_eq!(d("a|0D 0a|b"), Ok(b"a\r\nb".to_vec()));
        assert_eq!(d("a|0D0a|b"), Ok(b"a\r\nb".to_vec()));
        assert_eq!(d("a|6 1|"), Ok(b"aa".to_vec()));
        assert_eq!(d("a||b"), Ok(b"ab".to_vec()));
        assert_eq!(d(r#"a\:\;\\\""#), Ok(b"a:;\\\"".to_vec()));
        assert_eq!(d("|1").unwrap_err(), "Invalid hex code assembly in content - |1.  Invalidating signature.");
        assert_eq!(d("|22 2 22|").unwrap_err(), "Incomplete hex code in content - |22 2 22|. Invalidating signature.");
        assert_eq!(d("a|6g|").unwrap_err(), "Invalid hex code in content - a|6g|, hex g. Invalidating signature.");
        assert_eq!(d("a\\x").unwrap_err(), "'\\' has to be escaped");
        assert!(d(&"a".repeat(65_536)).is_err());
    }

    #[test]
    fn places() {
        for (text, want) in [
            ("12", Some(12)),
            ("-12", Some(-12)),
            ("+3", Some(3)),
            ("0", Some(0)),
            ("0x1F", Some(31)),
            ("-0x10", Some(-16)),
            ("010", Some(8)),
            ("08", None),
            ("0x", None),
            ("--1", None),
            ("0x-1", None),
            ("1x", None),
            ("", None),
        ] {
            assert_eq!(place(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn render_and_decode(bytes in prop::collection::vec(any::<u8>(), 1..=255)) {
            prop_assert_eq!(decode(render(&bytes).as_bytes()).unwrap(), bytes);
        }
    }
}
