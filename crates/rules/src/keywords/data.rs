//! Checks on buffers other than contents and numbers: `isdataat`, `bsize`, `base64_*`, `entropy`, `absent`, `pkt_data` …

use margay_meaning::Judge;
use margay_meaning::decode::Decoding;

use super::{Keyword, content};
use crate::ast::{Asn1, BufferCheck, Check, LuaCheck, Transform, Value};
use crate::builder::{Builder, Input, Last};
use crate::error::{Fail, fail};
use crate::number::{compare, compare_float, signed};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["isdataat"], isdataat).negatable().about("there is data at a place of the buffer"),
    Keyword::value(&["bsize"], bsize).about("the length of the selected buffer"),
    Keyword::maybe(&["base64_decode"], base64_decode).about("decode base64 in the buffer"),
    Keyword::bare(&["base64_data"], base64_data).about("the keywords after it look at what base64_decode decoded"),
    Keyword::value(&["entropy"], entropy).about("the entropy of the buffer, or of a part of it"),
    Keyword::value(&["asn1"], asn1).about("malformed or oversized ASN.1 in the payload"),
    Keyword::bare(&["sqli"], judge).about("the value is a piece of SQL that changes a statement"),
    Keyword::bare(&["xss"], judge).about("the value is a piece of HTML or JavaScript that runs code"),
    Keyword::bare(&["shell_injection"], judge).about("the value is a command for a shell"),
    Keyword::maybe(&["absent"], absent)
        .about("the selected buffer must not be there (or_else: or else its other checks must hold)"),
    Keyword::bare(&["pkt_data"], pkt_data).about("the keywords after it look at the payload again"),
    Keyword::bare(&["prefilter"], prefilter).about("the prefilter stands for the keyword before it"),
    Keyword::value(&["lua", "luajit"], lua).negatable().needs("lua").about("a Lua script decides"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::Lua(_) => "lua",
        _ => return None,
    })
}

/// Largest byte count and offset of base64 keywords.
const U16: i64 = 65535;

fn isdataat(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-isdataat";
    let text = i.text.as_ref();
    let mut words = text.split(',').map(str::trim);
    let at = words.next().unwrap_or_default();
    let mut relative = false;
    for w in words {
        match w {
            "relative" => relative = true,
            "rawbytes" => {}
            _ => return fail(M, format!("pcre_exec parse error, ret -1, string {text}")),
        }
    }
    let group = b.target(relative);
    let at = if at.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        match b.variable(at, Some(group)) {
            Some(v) => Value::Variable(v),
            None => return fail(M, format!("Unknown byte_extract var seen in isdataat - {at}")),
        }
    } else {
        if at.is_empty() || at.strip_prefix(['-', '+']).unwrap_or(at).bytes().any(|c| !c.is_ascii_digit()) {
            return fail(M, format!("pcre_exec parse error, ret -1, string {text}"));
        }
        match signed(at, 0, U16) {
            Some(n) => Value::Number(n),
            None => return fail(M, "isdataat out of range"),
        }
    };
    b.add(group, BufferCheck::IsDataAt { at, relative, negated: i.negated });
    Ok(())
}

fn bsize(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-bsize";
    let Some(group) = b.current else {
        return fail(M, "bsize must be used with a sticky buffer: put one before it");
    };
    let Some(c) = compare(&i.text, u64::MAX) else {
        return fail(M, format!("invalid value for bsize: \"{}\"", i.text));
    };
    b.add(group, BufferCheck::Bsize(c));
    Ok(())
}

fn base64_decode(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-base64-decode";
    let (mut bytes, mut offset, mut relative) = (None, 0, false);
    // The order is fixed: bytes, offset, relative.
    let mut stage = 0;
    if i.given {
        for w in i.text.split(',').map(str::trim) {
            let (name, rest) = w.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((w, ""));
            let invalid = || Fail::new(M, format!("Invalid argument: \"{name}\""));
            match name {
                "bytes" if stage < 1 => {
                    stage = 1;
                    let n = signed(rest, 1, U16).ok_or_else(|| {
                        Fail::new(M, format!("Invalid number of bytes to decode: \"{}\"", rest.trim()))
                    })?;
                    bytes = Some(n as u32);
                }
                "offset" if stage < 2 => {
                    stage = 2;
                    let n = signed(rest, 0, U16)
                        .ok_or_else(|| Fail::new(M, format!("Invalid offset: \"{}\"", rest.trim())))?;
                    offset = n as u32;
                }
                "relative" if stage < 3 && rest.is_empty() => {
                    stage = 3;
                    relative = true;
                }
                // As in Suricata, everything behind `relative` is without effect.
                _ if stage == 3 => {
                    let text = i.text.trim();
                    b.warn(
                        M,
                        format!("\"{w}\" has no effect behind relative: write bytes, offset, relative: \"{text}\""),
                    );
                }
                "bytes" if stage == 2 => {
                    return fail(M, format!("write bytes before offset: \"{}\"", i.text));
                }
                _ => return Err(invalid()),
            }
        }
    }
    b.base64 = None;
    // Without a sticky buffer it decodes the buffer of the last match, whether relative or not.
    let group = b.target(true);
    let spot = b.add(group, BufferCheck::Base64 { bytes, offset, relative, data: Vec::new() });
    b.base64_open = Some((spot.group, spot.index));
    Ok(())
}

fn base64_data(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    let Some(open) = b.base64_open.take() else {
        return fail("detect-base64-data", "\"base64_data\" keyword seen without preceding base64_decode.");
    };
    b.base64 = Some(open);
    b.current = Some(open.0);
    Ok(())
}

fn entropy(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-entropy";
    let (mut bytes, mut offset, mut value) = (0, 0, None);
    for w in i.text.split(',').map(str::trim) {
        let (name, rest) = w.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((w, ""));
        let bad = || Fail::new(M, format!("invalid entropy option: \"{w}\""));
        match name {
            "bytes" => bytes = signed(rest, 0, U16).ok_or_else(bad)? as u32,
            "offset" => offset = signed(rest, 0, U16).ok_or_else(bad)? as u32,
            "value" => value = Some(compare_float(rest).ok_or_else(bad)?),
            // The manual's short form, `entropy: 7.01`.
            _ if value.is_none() => value = Some(compare_float(w).ok_or_else(bad)?),
            _ => return Err(bad()),
        }
    }
    let Some(value) = value else {
        return fail(M, "entropy needs a value to compare with: entropy: value >= 7;");
    };
    let group = b.target(false);
    b.add(group, BufferCheck::Entropy { bytes, offset, value });
    Ok(())
}

/// Blanks separate an option from its value; commas or blanks separate options.
fn asn1(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || {
        let known = "bitstring_overflow, double_overflow, oversize_length N, absolute_offset N, relative_offset N";
        Fail::new("detect-asn1", format!("Malformed asn1 argument: \"{}\"; there are {known}", i.text))
    };
    let mut a = Asn1::default();
    for part in i.text.split(',') {
        let mut words = part.split_ascii_whitespace().peekable();
        if words.peek().is_none() {
            return Err(bad());
        }
        while let Some(name) = words.next() {
            let mut value = |low, high| words.next().and_then(|w| signed(w, low, high)).ok_or_else(bad);
            match name {
                "bitstring_overflow" => a.bitstring_overflow = true,
                "double_overflow" => a.double_overflow = true,
                "oversize_length" => a.oversize_length = Some(value(0, i64::from(u32::MAX))? as u32),
                "absolute_offset" => a.absolute_offset = value(0, U16)? as u32,
                "relative_offset" => a.relative_offset = Some(value(-U16, U16)? as i32),
                _ => return Err(bad()),
            }
        }
    }
    if !a.bitstring_overflow && !a.double_overflow && a.oversize_length.is_none() {
        b.warn("detect-asn1", format!("asn1 asks for nothing, so that it never matches: \"{}\"", i.text));
    }
    let group = b.target(a.relative_offset.is_some());
    b.add(group, BufferCheck::Asn1(a));
    Ok(())
}

/// `sqli`, `xss` and `shell_injection`, each on a sticky buffer whose last transform is `canonicalise`.
fn judge(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-meaning";
    let Some(judge) = Judge::ALL.into_iter().find(|j| j.name() == i.name) else { return fail(M, "unknown judgement") };
    if b.last_transform() != Some(&Transform::Decode(Decoding::Canonical)) {
        return fail(M, format!("{0} judges values in canonical form: write \"http.arg; canonicalise; {0};\"", i.name));
    }
    let group = b.target(false);
    b.add(group, BufferCheck::Judge(judge));
    Ok(())
}

fn absent(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-parse";
    let or_else = match i.text.trim() {
        "" => false,
        "or_else" => true,
        _ => return fail(M, "unhandled value for absent keyword: only \"or_else\" is known"),
    };
    let group = b.current.and_then(|g| b.groups.get_mut(g)).filter(|g| g.info.is_some());
    let Some(group) = group else {
        return fail(M, "absent needs a preceding sticky buffer");
    };
    if !group.checks.checks.is_empty() {
        return fail(M, "absent must directly follow the sticky buffer, before its checks");
    }
    group.checks.absent = Some(or_else);
    Ok(())
}

#[allow(clippy::unnecessary_wraps)]
fn pkt_data(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    b.current = None;
    b.base64 = None;
    // Later keywords cannot refer to anything before it.
    b.last_content = None;
    b.last_match = None;
    Ok(())
}

fn prefilter(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-prefilter";
    if b.rule.prefilter.is_some() {
        return fail(M, "prefilter is already set");
    }
    match b.last {
        Last::Nothing => fail(M, "prefilter needs preceding match"),
        Last::Check(n) => {
            if !can_prefilter(b.rule.checks.get(n)) {
                return fail(M, "prefilter is not supported for the keyword before it");
            }
            b.rule.prefilter = Some(n);
            Ok(())
        }
        // After a content it is a synonym of fast_pattern.
        Last::Content(_) => content::fast_pattern(b, i),
        Last::Other => fail(M, "prefilter is not supported for the keyword before it"),
    }
}

/// Whether a check can replace a fast pattern.
const fn can_prefilter(c: Option<&Check>) -> bool {
    !matches!(
        c,
        None | Some(
            Check::FlowInt { .. }
                | Check::XBit { .. }
                | Check::Score { .. }
                | Check::IpRep { .. }
                | Check::GeoIp(_)
                | Check::Rpc { .. }
                | Check::SameIp
                | Check::IpProto(_)
                | Check::UriLen { .. }
                | Check::Variable { .. }
                | Check::Lua(_)
        )
    )
}

fn lua(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-lua";
    let script = i.text.trim();
    if script.is_empty() {
        return fail(M, "lua needs the name of a script: lua:script.lua;");
    }
    let check = LuaCheck {
        script: script.to_owned(),
        negated: i.negated,
        variables: b.variables.iter().map(|v| v.0.clone()).collect(),
        ..LuaCheck::default()
    };
    if b.base64.is_some() {
        return fail(M, "lua is not possible behind base64_data");
    }
    match b.current {
        Some(group) => {
            b.add(group, BufferCheck::Lua(Box::new(check)));
        }
        None => b.check(Check::Lua(Box::new(check))),
    }
    Ok(())
}
