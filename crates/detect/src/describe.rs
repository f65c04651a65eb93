//! Checks in rule language, as the rule's author wrote them.

use std::fmt::Write as _;

use margay_rules::ast::{
    Base64Mode, BufferCheck, ByteOp, Compare, Content, DataRepOp, Endian, FloatCompare, InterfaceTest, LuaCheck,
    MathOp, NumberFormat, NumberTest, SetCommand, Transform, Value, Which,
};

/// Longest text for bytes; longer text is cut.
const BYTES_MAX: usize = 96;

/// Bytes as `content` writes them.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut hex = false;
    for &b in bytes.iter().take(BYTES_MAX) {
        let plain = (b' '..=b'~').contains(&b) && !matches!(b, b'|' | b'"' | b';' | b'\\');
        if plain == hex {
            out.push('|');
            hex = !hex;
        } else if hex {
            out.push(' ');
        }
        match plain {
            true => out.push(char::from(b)),
            false => {
                let _ = write!(out, "{b:02X}");
            }
        }
    }
    if hex {
        out.push('|');
    }
    if bytes.len() > BYTES_MAX {
        out.push('…');
    }
    out
}

/// Shortens a text that is too long to read.
pub(crate) fn brief(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

pub(crate) fn compare(c: &Compare) -> String {
    match *c {
        Compare::Equal(n) => n.to_string(),
        Compare::NotEqual(n) => format!("!{n}"),
        Compare::Less(n) => format!("<{n}"),
        Compare::LessEqual(n) => format!("<={n}"),
        Compare::Greater(n) => format!(">{n}"),
        Compare::GreaterEqual(n) => format!(">={n}"),
        Compare::Between(a, b) => format!("{a}<>{b}"),
        Compare::NotBetween(a, b) => format!("!{a}-{b}"),
        Compare::BitsSet(m) => format!("&{m:#x}"),
        Compare::BitsClear(m) => format!("!&{m:#x}"),
        Compare::BitsEqual(m, v) => format!("&{m:#x}={v:#x}"),
        Compare::BitsNotEqual(m, v) => format!("&{m:#x}!={v:#x}"),
    }
}

pub(crate) fn number_test(test: &NumberTest, which: Which) -> String {
    let what = match test {
        NumberTest::Compare(c) => compare(c),
        NumberTest::OneOf { values, negated } => {
            let list: Vec<String> = values.iter().take(16).map(u64::to_string).collect();
            format!("{}{}", if *negated { "!" } else { "" }, list.join(","))
        }
        NumberTest::Bits { any, none } => format!("any of {any:#x}, none of {none:#x}"),
        NumberTest::Ranges(ranges) => {
            let list: Vec<String> = ranges.iter().take(16).map(|(a, b)| format!("{a}-{b}")).collect();
            list.join(",")
        }
        NumberTest::Parts(parts) => {
            let part = |(first, bits, value): &(u8, u8, _)| {
                format!("bits {first}-{}: {}", u32::from(*first) + u32::from(*bits) - 1, compare(value))
            };
            parts.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        NumberTest::Tagged { tag, value } => format!("{tag}: {}", compare(value)),
    };
    match which {
        Which::Any => what,
        Which::All => format!("{what},all"),
        Which::AllAndSome => format!("{what},all1"),
        Which::At(n) => format!("{what},{n}"),
        Which::Count(c) => format!("{what},nb{}", compare(&c)),
    }
}

/// A UUID in its usual notation.
fn uuid(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, b) in bytes.iter().take(16).enumerate() {
        let _ = write!(out, "{}{b:02x}", if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" });
    }
    out
}

pub(crate) fn interface_test(test: &InterfaceTest) -> String {
    let version = test.version.as_ref().map_or(String::new(), |v| format!(",{}", compare(v)));
    let any = if test.any_frag { ",any_frag" } else { "" };
    format!("dcerpc.iface:{}{version}{any}", uuid(&test.uuid))
}

/// An interface in the form that rules receive ([`InterfaceTest::holds`]).
pub(crate) fn interface(data: &[u8]) -> String {
    let version = data.get(16..18).map_or(0, |v| u16::from(v[0]) << 8 | u16::from(v[1]));
    let cut = if data.get(18) == Some(&1) { "" } else { ", of a request whose beginning was not seen" };
    format!("it is {} version {version}{cut}", uuid(data))
}

fn float(c: FloatCompare) -> String {
    match c {
        FloatCompare::Equal(v) => format!("={v}"),
        FloatCompare::NotEqual(v) => format!("!={v}"),
        FloatCompare::Less(v) => format!("<{v}"),
        FloatCompare::LessEqual(v) => format!("<={v}"),
        FloatCompare::Greater(v) => format!(">{v}"),
        FloatCompare::GreaterEqual(v) => format!(">={v}"),
        FloatCompare::Between(a, b) => format!("{a}<>{b}"),
        FloatCompare::NotBetween(a, b) => format!("!{a}-{b}"),
    }
}

/// Compiled rules have no variable names, so variables appear by number, from 0.
fn value(v: &Value) -> String {
    match v {
        Value::Number(n) => n.to_string(),
        Value::Variable(i) => format!("variable {i}"),
    }
}

fn format(f: NumberFormat) -> String {
    match f {
        NumberFormat::Binary(Endian::Big) => String::new(),
        NumberFormat::Binary(Endian::Little) => ",little".into(),
        NumberFormat::Binary(Endian::Dce) => ",dce".into(),
        NumberFormat::Text { base: 8 } => ",string,oct".into(),
        NumberFormat::Text { base: 16 } => ",string,hex".into(),
        NumberFormat::Text { base: 10 } => ",string,dec".into(),
        NumberFormat::Text { .. } => ",string".into(),
    }
}

pub(crate) const fn byte_op(op: ByteOp) -> &'static str {
    match op {
        ByteOp::Less => "<",
        ByteOp::LessEqual => "<=",
        ByteOp::Greater => ">",
        ByteOp::GreaterEqual => ">=",
        ByteOp::Equal => "=",
        ByteOp::And => "&",
        ByteOp::Or => "^",
    }
}

const fn math(op: MathOp) -> &'static str {
    match op {
        MathOp::Add => "+",
        MathOp::Subtract => "-",
        MathOp::Multiply => "*",
        MathOp::Divide => "/",
        MathOp::ShiftLeft => "<<",
        MathOp::ShiftRight => ">>",
    }
}

const fn not(negated: bool) -> &'static str {
    if negated { "!" } else { "" }
}

const fn relative(is: bool) -> &'static str {
    if is { ",relative" } else { "" }
}

fn content(c: &Content) -> String {
    let mut out = format!("content:{}\"{}\"", not(c.negated), literal(&c.bytes));
    let mut add = |name: &str, v: &Option<Value>| {
        if let Some(v) = v {
            let _ = write!(out, "; {name}:{}", value(v));
        }
    };
    add("offset", &c.offset);
    add("depth", if c.starts_with { &None } else { &c.depth });
    add("distance", &c.distance);
    add("within", &c.within);
    for (is, name) in [(c.nocase, "nocase"), (c.starts_with, "startswith"), (c.ends_with, "endswith")] {
        if is {
            let _ = write!(out, "; {name}");
        }
    }
    out
}

/// A script.
pub(crate) fn script(l: &LuaCheck) -> String {
    format!("lua:{}{}", not(l.negated), brief(&l.script, 60))
}

/// A check of bytes.
// It stays whole: a flat match over the checks.
pub(crate) fn buffer_check(c: &BufferCheck) -> String {
    match c {
        BufferCheck::Content(c) => content(c),
        BufferCheck::Pcre(p) => {
            let letters = format!("{}{}", p.options, if p.relative { "R" } else { "" });
            format!("pcre:{}\"/{}/{letters}\"", not(p.negated), brief(&p.pattern, 200))
        }
        BufferCheck::IsDataAt { at, relative: r, negated } => {
            format!("isdataat:{}{}{}", not(*negated), value(at), relative(*r))
        }
        BufferCheck::Bsize(c) => format!("bsize:{}", compare(c)),
        BufferCheck::Asn1(a) => {
            let mut parts = Vec::new();
            parts.extend(a.bitstring_overflow.then(|| "bitstring_overflow".to_owned()));
            parts.extend(a.double_overflow.then(|| "double_overflow".to_owned()));
            parts.extend(a.oversize_length.map(|n| format!("oversize_length {n}")));
            parts.push(match a.relative_offset {
                Some(n) => format!("relative_offset {n}"),
                None => format!("absolute_offset {}", a.absolute_offset),
            });
            format!("asn1:{}", parts.join(", "))
        }
        BufferCheck::ByteTest(b) => format!(
            "byte_test:{},{}{},{},{}{}{}",
            value(&b.bytes),
            not(b.negated),
            byte_op(b.op),
            value(&b.value),
            value(&b.offset),
            relative(b.relative),
            format(b.format)
        ),
        BufferCheck::ByteJump(b) => {
            format!("byte_jump:{},{}{}{}", value(&b.bytes), value(&b.offset), relative(b.relative), format(b.format))
        }
        BufferCheck::ByteExtract(b) => format!(
            "byte_extract:{},{},variable {}{}{}",
            b.bytes,
            b.offset,
            b.variable,
            relative(b.relative),
            format(b.format)
        ),
        BufferCheck::ByteMath(b) => format!(
            "byte_math:bytes {},offset {},oper {},rvalue {},result variable {}{}{}",
            value(&b.bytes),
            b.offset,
            math(b.op),
            value(&b.rvalue),
            b.result,
            relative(b.relative),
            format(b.format)
        ),
        BufferCheck::Base64 { bytes, offset, relative: r, .. } => {
            let bytes = bytes.map_or(String::new(), |n| format!("bytes {n},"));
            format!("base64_decode:{bytes}offset {offset}{}", relative(*r))
        }
        BufferCheck::Entropy { bytes, offset, value } => {
            format!("entropy:bytes {bytes},offset {offset},value {}", float(*value))
        }
        BufferCheck::Dataset(d) => {
            let command = match d.command {
                SetCommand::Set => "set",
                SetCommand::Unset => "unset",
                SetCommand::IsSet => "isset",
                SetCommand::IsNotSet => "isnotset",
            };
            format!("dataset:{command},{}", d.name)
        }
        BufferCheck::DataRep(d) => {
            let op = match d.op {
                DataRepOp::Less => "<",
                DataRepOp::Greater => ">",
                DataRepOp::Equal => "==",
            };
            format!("datarep:{},{op},{}", d.name, d.value)
        }
        BufferCheck::Judge(j) => j.name().into(),
        BufferCheck::Lua(l) => script(l),
        BufferCheck::Other { keyword, argument } => format!("{keyword}:{}", brief(argument, 80)),
    }
}

/// A transform.
fn transform(t: &Transform) -> String {
    match t {
        Transform::CompressWhitespace => "compress_whitespace".into(),
        Transform::StripWhitespace => "strip_whitespace".into(),
        Transform::StripPseudoHeaders => "strip_pseudo_headers".into(),
        Transform::HeaderLowercase => "header_lowercase".into(),
        Transform::ToLowercase => "to_lowercase".into(),
        Transform::ToUppercase => "to_uppercase".into(),
        Transform::ToMd5 => "to_md5".into(),
        Transform::ToSha1 => "to_sha1".into(),
        Transform::ToSha256 => "to_sha256".into(),
        Transform::DotPrefix => "dotprefix".into(),
        Transform::Domain => "domain".into(),
        Transform::Tld => "tld".into(),
        Transform::UrlDecode => "url_decode".into(),
        Transform::Decode(decoding) => decoding.name().into(),
        Transform::Xor(_) => "xor".into(),
        Transform::PcreXform(p) => format!("pcrexform:\"{}\"", brief(p, 60)),
        Transform::FromBase64 { mode, .. } => match mode {
            Base64Mode::Strict => "from_base64:mode strict".into(),
            Base64Mode::Rfc2045 => "from_base64:mode rfc2045".into(),
            Base64Mode::Rfc4648 => "from_base64".into(),
        },
        Transform::Gunzip { .. } => "gunzip".into(),
        Transform::ZlibDeflate { .. } => "zlib_deflate".into(),
        Transform::Lua(l) => format!("luaxform:{}", brief(&l.script, 60)),
    }
}

/// A buffer's name with its transforms.
pub(crate) fn transformed(name: &str, list: &[Transform]) -> String {
    list.iter().fold(name.to_owned(), |out, t| format!("{out}; {}", transform(t)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_rules_write_it() {
        assert_eq!(literal(b"a|\"\r\nb\x00"), "a|7C 22 0D 0A|b|00|");
        assert_eq!(literal(b"|"), "|7C|");
        let c = Content { bytes: b"ab".to_vec(), negated: true, nocase: true, ..Content::default() };
        assert_eq!(content(&c), "content:!\"ab\"; nocase");
        let d =
            Content { bytes: b"ab".to_vec(), offset: Some(Value::Number(3)), within: Some(Value::Variable(1)), ..c };
        assert_eq!(content(&d), "content:!\"ab\"; offset:3; within:variable 1; nocase");
        let b = BufferCheck::IsDataAt { at: Value::Number(9), relative: true, negated: true };
        assert_eq!(buffer_check(&b), "isdataat:!9,relative");
        assert_eq!(compare(&Compare::Between(1, 4)), "1<>4");
        let list = [Transform::ToLowercase, Transform::Xor(vec![1])];
        assert_eq!(transformed("http.uri", &list), "http.uri; to_lowercase; xor");
    }
}
