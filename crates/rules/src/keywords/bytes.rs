//! `byte_test`, `byte_jump`, `byte_extract` and `byte_math`: numbers within a buffer.

use super::Keyword;
use crate::ast::{BufferCheck, ByteExtract, ByteJump, ByteMath, ByteOp, ByteTest, Endian, MathOp, NumberFormat, Value};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::signed;
use crate::size::unsigned;

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["byte_test"], byte_test).about("compare a number in the buffer"),
    Keyword::value(&["byte_jump"], byte_jump).about("read a number from the buffer and move on by that many bytes"),
    Keyword::value(&["byte_extract"], byte_extract).about("read a number from the buffer into a variable"),
    Keyword::value(&["byte_math"], byte_math).about("calculate with a number from the buffer, into a variable"),
];

const OFFSET: (i64, i64) = (-65535, 65535);

/// Options for the format of a number.
#[derive(Debug, Default)]
struct Format {
    endian: Option<Endian>,
    dce: bool,
    string: bool,
    base: Option<u8>,
    relative: bool,
    /// An option of the same kind came twice.
    repeated: bool,
}

impl Format {
    /// Parses a format option; returns whether it was one.
    fn take(&mut self, word: &str) -> bool {
        let before = match word {
            "relative" => std::mem::replace(&mut self.relative, true),
            "string" => std::mem::replace(&mut self.string, true),
            "hex" => self.base.replace(16).is_some(),
            "dec" => self.base.replace(10).is_some(),
            "oct" => self.base.replace(8).is_some(),
            "big" => self.endian.replace(Endian::Big).is_some() || self.dce,
            "little" => self.endian.replace(Endian::Little).is_some() || self.dce,
            "dce" => std::mem::replace(&mut self.dce, true) || self.endian.is_some(),
            _ => return false,
        };
        self.repeated |= before;
        true
    }

    fn number(&self) -> NumberFormat {
        if self.string {
            NumberFormat::Text { base: self.base.unwrap_or(0) }
        } else {
            NumberFormat::Binary(if self.dce { Endian::Dce } else { self.endian.unwrap_or(Endian::Big) })
        }
    }
}

fn is_name(s: &str) -> bool {
    s.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
}

/// A number within bounds, or a variable of the target buffer.
fn value(
    b: &Builder<'_>,
    s: &str,
    group: usize,
    keyword: &str,
    module: &'static str,
    bounds: (i64, i64),
) -> Result<Value, Fail> {
    let begins_with_digit = || s.bytes().any(|b| b.is_ascii_alphabetic()) && b.variable(s, Some(group)).is_some();
    if is_name(s) || begins_with_digit() {
        return match b.variable(s, Some(group)) {
            Some(v) => Ok(Value::Variable(v)),
            None if keyword == "byte_math" => {
                fail(module, format!("unknown byte_ keyword var seen in {keyword} - {s}"))
            }
            None => fail(module, format!("Unknown byte_extract var seen in {keyword} - {s}")),
        };
    }
    // Values are compared as 64 unsigned bits, so a keyword without bounds takes all of them.
    let wide = |n: u64| if bounds.1 == i64::MAX { Some(n.cast_signed()) } else { i64::try_from(n).ok() };
    let n = if s.starts_with("0x") || s.starts_with("0X") {
        unsigned(s).and_then(wide)
    } else {
        s.parse::<i64>().ok().or_else(|| s.parse().ok().and_then(wide))
    };
    match n.filter(|n| (bounds.0..=bounds.1).contains(n)) {
        Some(n) => Ok(Value::Number(n)),
        None => fail(module, format!("Malformed value: {s}")),
    }
}

fn bitmask(rest: &str, module: &'static str) -> Result<u32, Fail> {
    let t = rest.trim();
    let n = if t.starts_with("0x") || t.starts_with("0X") { unsigned(t) } else { t.parse().ok() };
    match n.and_then(|n| u32::try_from(n).ok()) {
        Some(n) => Ok(n),
        None => fail(module, format!("Malformed bitmask value: {rest}; write 0x in front of a hexadecimal number")),
    }
}

/// The text after an option's name and white space.
fn after<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    let rest = word.strip_prefix(name)?;
    if rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_whitespace()) { Some(rest) } else { None }
}

/// Whether the options include `relative`.
fn is_relative(words: &[&str]) -> bool {
    words.contains(&"relative")
}

/// Records that a keyword needs DCERPC if it uses its byte order.
fn dce(b: &mut Builder<'_>, f: &Format, keyword: &str) {
    if f.dce && !b.ctx.available.contains("dcerpc") {
        b.missing(keyword);
    }
}

/// As [`dce`], and refuses rules on another protocol, which has no byte order to take.
fn only_dce(b: &mut Builder<'_>, f: &Format, keyword: &str) -> Result<(), Fail> {
    dce(b, f, keyword);
    if f.dce { b.restrict(&["dcerpc", "smb"]) } else { Ok(()) }
}

fn byte_test(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-bytetest";
    let text = i.text.as_ref();
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let parse_error = || Fail::new(M, format!("parse error, ret -1, string {text}"));
    let &[bytes, op, operand, offset, ref options @ ..] = words.as_slice() else { return Err(parse_error()) };
    let group = b.target(is_relative(options));
    let (negated, op) = match op.strip_prefix('!') {
        Some(o) => (true, o.trim_start()),
        None => (false, op),
    };
    let op = match op {
        "<" => ByteOp::Less,
        "<=" => ByteOp::LessEqual,
        ">" => ByteOp::Greater,
        ">=" => ByteOp::GreaterEqual,
        "=" => ByteOp::Equal,
        "" if negated => ByteOp::Equal,
        "&" => ByteOp::And,
        "^" => ByteOp::Or,
        _ => return fail(M, "Invalid operator"),
    };
    let mut f = Format::default();
    let mut mask = None;
    for &w in options {
        if f.take(w) {
            continue;
        }
        match after(w, "bitmask") {
            Some(r) => mask = Some(bitmask(r, M)?),
            None => return Err(parse_error()),
        }
    }
    let bytes = value(b, bytes, group, "byte_test", M, (0, 255))?;
    let value_ = value(b, operand, group, "byte_test", M, (i64::MIN, i64::MAX))?;
    let offset = value(b, offset, group, "byte_test", M, (i64::from(i32::MIN), i64::from(i32::MAX)))?;
    if f.base.is_some() && !f.string {
        return fail(M, format!("Cannot use a base without \"string\": {text}"));
    }
    if let Value::Number(n) = bytes {
        if f.string && n > 23 {
            return fail(M, format!("Cannot test more than 23 bytes with \"string\": {text}"));
        }
        if !f.string && n > 8 {
            return fail(M, format!("Cannot test more than 8 bytes without \"string\": {text}"));
        }
    }
    only_dce(b, &f, "byte_test")?;
    let t =
        ByteTest { bytes, negated, op, value: value_, offset, relative: f.relative, format: f.number(), bitmask: mask };
    b.add(group, BufferCheck::ByteTest(t));
    Ok(())
}

fn byte_jump(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-bytejump";
    let text = i.text.as_ref();
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let &[bytes, offset, ref options @ ..] = words.as_slice() else {
        return fail(M, format!("parse error, ret -1, string \"{text}\""));
    };
    let group = b.target(is_relative(options));
    let bytes = value(b, bytes, group, "byte_jump", M, (0, 255))?;
    let offset = value(b, offset, group, "byte_jump", M, OFFSET)?;
    let mut f = Format::default();
    let mut j = ByteJump {
        bytes,
        offset,
        relative: false,
        multiplier: 1,
        format: NumberFormat::Binary(Endian::Big),
        align: false,
        from_beginning: false,
        from_end: false,
        post_offset: Value::Number(0),
        bitmask: None,
    };
    let mut dirty = false;
    for &w in options {
        if f.take(w) {
            dirty |= matches!(w, "string" | "hex" | "dec" | "oct" | "big" | "little");
        } else if w == "align" {
            j.align = true;
        } else if w == "from_beginning" {
            j.from_beginning = true;
        } else if w == "from_end" {
            j.from_end = true;
        } else if let Some(r) = after(w, "multiplier") {
            match signed(r, 1, 65535) {
                Some(n) => j.multiplier = n as u32,
                None => return fail(M, format!("Malformed multiplier: {text}")),
            }
        } else if let Some(r) = after(w, "post_offset") {
            let r = r.trim();
            j.post_offset = if is_name(r) {
                value(b, r, group, "byte_jump", M, OFFSET)?
            } else {
                match signed(r, -65535, 65535) {
                    Some(n) => Value::Number(n),
                    None => return fail(M, format!("Malformed post_offset: {text}")),
                }
            };
        } else if let Some(r) = after(w, "bitmask") {
            j.bitmask = Some(bitmask(r, M)?);
        } else {
            return fail(M, format!("Unknown option: \"{w}\""));
        }
    }
    if j.from_beginning && j.from_end {
        return fail(M, "'from_end' and 'from_beginning' cannot be used in the same byte_jump statement");
    }
    if f.base.is_some() && !f.string {
        return fail(M, format!("Cannot use a base without \"string\": {text}"));
    }
    if f.dce && (dirty || j.from_beginning) {
        return fail(M, "Invalid option. A byte_jump keyword with dce holds other invalid modifiers.");
    }
    if let Value::Number(n) = j.bytes {
        if f.string && n > 23 {
            return fail(M, "Cannot test more than 23 bytes with \"string\"");
        }
        if !f.string && n > 8 {
            return fail(M, "Cannot test more than 8 bytes without \"string\"");
        }
    }
    only_dce(b, &f, "byte_jump")?;
    j.relative = f.relative;
    j.format = f.number();
    b.add(group, BufferCheck::ByteJump(j));
    Ok(())
}

fn byte_extract(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-byte-extract";
    let text = i.text.as_ref();
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let &[bytes, offset, name, ref options @ ..] = words.as_slice() else {
        return Err(Fail::new(M, format!("parse error, ret -1, string \"{text}\""))
            .and(M, format!("Invalid arg to byte_extract : {text} for byte_extract")));
    };
    let Some(bytes) = signed(bytes, 0, 255) else {
        return fail(M, format!("Invalid value for number of bytes to be extracted: \"{bytes}\"."));
    };
    let Some(offset) = signed(offset, -65535, 65535) else {
        return fail(M, format!("Invalid value for offset: \"{offset}\"."));
    };
    if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-')) {
        return fail(M, format!("Invalid variable name in byte_extract: \"{name}\""));
    }
    let group = b.target(is_relative(options));
    let mut f = Format::default();
    let (mut multiplier, mut align) = (None, None);
    for &w in options {
        if f.take(w) {
        } else if let Some(r) = after(w, "align") {
            f.repeated |= align.is_some();
            align = match r.trim() {
                "2" => Some(2),
                "4" => Some(4),
                r => return fail(M, format!("Invalid align_value for byte_extract - \"{r}\"")),
            };
        } else if let Some(r) = after(w, "multiplier") {
            f.repeated |= multiplier.is_some();
            match signed(r, 1, 65535) {
                Some(n) => multiplier = Some(n as u32),
                None => return fail(M, format!("Invalid value for multiplier: \"{}\".", r.trim())),
            }
        } else {
            let w = w.split_ascii_whitespace().next().unwrap_or_default();
            return fail(M, format!("Invalid option - \"{w}\" specified in byte_extract"));
        }
    }
    if f.repeated {
        return fail(M, format!("byte_extract has an option twice: \"{text}\""));
    }
    if f.string {
        if f.endian.is_some() {
            return fail(M, "byte_extract can't have endian \"big\" or \"little\" specified along with \"string\"");
        }
        if bytes > 20 {
            return fail(M, "byte_extract can't process more than 20 bytes in \"string\" extraction");
        }
    } else {
        if f.base.is_some() {
            return fail(M, "byte_extract can't have a base specified without \"string\"");
        }
        if bytes > 8 {
            return fail(M, "byte_extract can't process more than 8 bytes in \"non-string\" extraction");
        }
    }
    only_dce(b, &f, "byte_extract")?;
    // Unlike `byte_test`, it reads decimal digits unless the rule says otherwise.
    f.base.get_or_insert(10);
    let variable = b.define(name, group, M)?;
    let e = ByteExtract {
        bytes: bytes as u8,
        offset: offset as i32,
        variable,
        relative: f.relative,
        multiplier: multiplier.unwrap_or(1),
        format: f.number(),
        align: align.unwrap_or(0),
    };
    b.add(group, BufferCheck::ByteExtract(e));
    Ok(())
}

fn byte_math(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-bytemath";
    let invalid = || Fail::new(M, "invalid bytemath values");
    let text = i.text.as_ref();
    let relative = text.split(',').any(|w| w.trim() == "relative");
    let group = b.target(relative);
    let mut f = Format { relative, ..Format::default() };
    let (mut bytes, mut offset, mut op, mut rvalue, mut result, mut mask) = (None, None, None, None, None, None);
    let mut seen = Vec::new();
    for w in text.split(',').map(str::trim) {
        let (name, rest) = w.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((w, ""));
        let rest = rest.trim();
        if seen.contains(&name) {
            return fail(M, format!("byte_math has \"{name}\" twice: \"{text}\""));
        }
        seen.push(name);
        match name {
            "bytes" => bytes = Some(rest),
            "offset" => offset = signed(rest, -65535, 65535),
            "oper" => {
                op = Some(match rest {
                    "+" => MathOp::Add,
                    "-" => MathOp::Subtract,
                    "*" => MathOp::Multiply,
                    "/" => MathOp::Divide,
                    "<<" => MathOp::ShiftLeft,
                    ">>" => MathOp::ShiftRight,
                    _ => return Err(invalid()),
                });
            }
            "rvalue" => rvalue = Some(rest),
            "result" => result = Some(rest),
            "relative" if rest.is_empty() => {}
            "endian" => {
                f.endian = Some(match rest {
                    "big" => Endian::Big,
                    "little" => Endian::Little,
                    _ => return Err(invalid()),
                });
            }
            "string" => {
                f.string = true;
                f.base = Some(match rest {
                    "hex" => 16,
                    "dec" => 10,
                    "oct" => 8,
                    _ => return Err(invalid()),
                });
            }
            // Hexadecimal with or without 0x, unlike the mask of `byte_test`.
            "bitmask" => {
                let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")).unwrap_or(rest);
                let digits = digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(digits);
                mask = Some(digits.and_then(|d| u32::from_str_radix(d, 16).ok()).ok_or_else(invalid)?);
            }
            "dce" if rest.is_empty() => f.dce = true,
            _ => return Err(invalid()),
        }
    }
    let (Some(bytes), Some(offset), Some(op), Some(rvalue), Some(result)) = (bytes, offset, op, rvalue, result) else {
        return Err(invalid());
    };
    let word = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name(result) && !word(result) {
        return Err(invalid());
    }
    let bytes = value(b, bytes, group, "byte_math", M, (1, 255))?;
    let rvalue = value(b, rvalue, group, "byte_math", M, (0, i64::from(u32::MAX)))?;
    if let Value::Number(n) = bytes {
        let most = if f.string { 10 } else { 8 };
        if n > most || (matches!(op, MathOp::ShiftLeft | MathOp::ShiftRight) && n > 4) {
            return Err(invalid());
        }
    }
    if f.relative && b.current.is_some() {
        let base64 = b.base64.map(|x| x.1);
        let follows = |l: &[BufferCheck]| l.iter().any(|c| matches!(c, BufferCheck::Content(_) | BufferCheck::Pcre(_)));
        if !b.list(group, base64).is_some_and(|l| follows(l)) {
            return fail(M, "relative specified without previous pattern match");
        }
    }
    if f.dce && (f.string || f.endian.is_some()) {
        return fail(M, "Invalid option. A bytemath keyword with dce holds other invalid modifiers.");
    }
    dce(b, &f, "byte_math");
    let result = b.define(result, group, M)?;
    let m = ByteMath {
        bytes,
        offset: offset as i32,
        op,
        rvalue,
        result,
        relative: f.relative,
        format: f.number(),
        bitmask: mask,
    };
    b.add(group, BufferCheck::ByteMath(m));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ast::Rule;
    use crate::ast::{BufferCheck, NumberFormat, Value};
    use crate::{Context, load_str};

    fn load(header: &str, options: &str) -> Option<Rule> {
        let available = ["app-layer", "dcerpc", "smb", "http"].map(str::to_owned).into();
        let ctx = Context { available, ..Context::default() };
        load_str(&format!("alert {header} any any -> any any ({options}; sid:1;)"), "t", &ctx).rules.pop()
    }

    #[test]
    fn a_tested_value_has_up_to_64_bits() {
        for value in ["0xffffffff00000001", "18446744069414584321"] {
            let rule = load("tcp", &format!("byte_test:8,=,{value},0")).expect(value);
            let BufferCheck::ByteTest(t) = &rule.buffers[0].checks[0] else { panic!("{value}") };
            assert_eq!(t.value, Value::Number(0xffff_ffff_0000_0001_u64.cast_signed()), "{value}");
        }
        assert!(load("tcp", "byte_test:8,=,18446744073709551616,0").is_none());
        assert!(load("tcp", "byte_jump:8,0xffffffff00000001").is_none());
    }

    #[test]
    fn masks_are_decimal_unless_they_begin_with_0x() {
        for (option, mask) in [
            ("byte_test:2,=,6,0,bitmask 61440", Some(0xf000)),
            ("byte_test:2,=,6,0,bitmask 0xf000", Some(0xf000)),
            ("byte_test:2,=,6,0,bitmask 0", Some(0)),
            ("byte_test:2,=,6,0,bitmask f0", None),
        ] {
            let found = load("tcp", option).map(|rule| match &rule.buffers[0].checks[0] {
                BufferCheck::ByteTest(t) => t.bitmask.expect(option),
                _ => panic!("{option}"),
            });
            assert_eq!(found, mask, "{option}");
        }
        let rule = load("tcp", "byte_math:bytes 1, offset 0, oper +, rvalue 1, result 1r, bitmask 10").expect("a rule");
        let BufferCheck::ByteMath(m) = &rule.buffers[0].checks[0] else { panic!() };
        assert_eq!(m.bitmask, Some(16));
        assert!(load("tcp", "byte_math:bytes 1, offset 0, oper +, rvalue 1, result 1r; byte_test:1,>,1r,0").is_some());
        let rule = load("tcp", "byte_extract:4,0,v,string").expect("a rule");
        let BufferCheck::ByteExtract(e) = &rule.buffers[0].checks[0] else { panic!() };
        assert_eq!(e.format, NumberFormat::Text { base: 10 });
    }

    #[test]
    fn an_option_is_given_once() {
        for (good, bad) in [
            ("byte_extract:2,0,v,relative", "byte_extract:2,0,v,relative,relative"),
            ("byte_extract:2,0,v,little", "byte_extract:2,0,v,little,big"),
            ("byte_extract:2,0,v,dce", "byte_extract:2,0,v,dce,big"),
            ("byte_extract:4,0,v,string,dec", "byte_extract:4,0,v,string,dec,hex"),
            ("byte_extract:2,0,v,multiplier 2", "byte_extract:2,0,v,multiplier 2,multiplier 3"),
            ("byte_extract:2,0,v,align 2", "byte_extract:2,0,v,align 2,align 4"),
        ] {
            assert!(load("tcp", good).is_some(), "{good}");
            assert!(load("tcp", bad).is_none(), "{bad}");
        }
        let math = "byte_math:bytes 2, offset 0, oper +, rvalue 1, result r";
        assert!(load("tcp", math).is_some());
        for more in ["bytes 2", "endian big, endian little", "oper -", "relative, relative"] {
            assert!(load("tcp", &format!("{math}, {more}")).is_none(), "{more}");
        }
        assert!(load("tcp", "byte_math:bytes 2, offset 0, oper /, rvalue 0, result r").is_some());
    }

    #[test]
    fn the_byte_order_of_dcerpc_excludes_other_protocols() {
        for option in ["byte_test:2,=,1,0,dce", "byte_jump:2,0,dce", "byte_extract:2,0,v,dce"] {
            for (header, loads) in [("tcp", true), ("dcerpc", true), ("smb", true), ("http", false)] {
                assert_eq!(load(header, option).is_some(), loads, "{header} {option}");
            }
        }
    }
}
