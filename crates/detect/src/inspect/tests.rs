//! Tests of content inspection. Expectations marked "peer" are Suricata's alerts for the same rule options and payloads.

use std::sync::Arc;

use margay_rules::ast::*;

use super::{CompiledBuffer, InspectContext, InspectLimits, Replacement};

fn content(text: &str) -> Content {
    Content { bytes: text.as_bytes().to_vec(), ..Content::default() }
}

/// Shorthand for contents and their modifiers.
trait Build: Sized {
    fn not(self) -> Self;
    fn nocase(self) -> Self;
    fn offset(self, n: i64) -> Self;
    fn depth(self, n: i64) -> Self;
    fn distance(self, n: i64) -> Self;
    fn within(self, n: i64) -> Self;
    fn ends(self) -> Self;
    fn starts(self) -> Self;
}

impl Build for Content {
    fn not(mut self) -> Self {
        self.negated = true;
        self
    }
    fn nocase(mut self) -> Self {
        self.nocase = true;
        self
    }
    fn offset(mut self, n: i64) -> Self {
        self.offset = Some(Value::Number(n));
        self
    }
    fn depth(mut self, n: i64) -> Self {
        self.depth = Some(Value::Number(n));
        self
    }
    fn distance(mut self, n: i64) -> Self {
        self.distance = Some(Value::Number(n));
        self
    }
    fn within(mut self, n: i64) -> Self {
        self.within = Some(Value::Number(n));
        self
    }
    fn ends(mut self) -> Self {
        self.ends_with = true;
        self
    }
    fn starts(mut self) -> Self {
        self.starts_with = true;
        let n = self.bytes.len() as i64;
        self.depth(n)
    }
}

trait IntoCheck {
    fn check(self) -> BufferCheck;
}
impl IntoCheck for Content {
    fn check(self) -> BufferCheck {
        BufferCheck::Content(self)
    }
}
impl IntoCheck for BufferCheck {
    fn check(self) -> BufferCheck {
        self
    }
}

macro_rules! checks {
    ($($c:expr),* $(,)?) => { vec![$( IntoCheck::check($c) ),*] };
}

const BIG: NumberFormat = NumberFormat::Binary(Endian::Big);
const DEC: NumberFormat = NumberFormat::Text { base: 10 };

fn regex(pattern: &str, relative: bool) -> Pcre {
    Pcre {
        pattern: pattern.to_owned(),
        negated: false,
        options: String::new(),
        relative,
        raw: false,
        override_limits: false,
        captures: Vec::new(),
    }
}
fn pcre(pattern: &str) -> BufferCheck {
    BufferCheck::Pcre(regex(pattern, false))
}
fn pcre_r(pattern: &str) -> BufferCheck {
    BufferCheck::Pcre(regex(pattern, true))
}
fn pcre_not(pattern: &str, relative: bool) -> BufferCheck {
    BufferCheck::Pcre(Pcre { negated: true, ..regex(pattern, relative) })
}
fn data_at(at: i64, relative: bool) -> BufferCheck {
    BufferCheck::IsDataAt { at: Value::Number(at), relative, negated: false }
}
fn no_data_at(at: i64, relative: bool) -> BufferCheck {
    BufferCheck::IsDataAt { at: Value::Number(at), relative, negated: true }
}
fn test(bytes: i64, op: ByteOp, value: Value, offset: Value, relative: bool, format: NumberFormat) -> BufferCheck {
    let bytes = Value::Number(bytes);
    BufferCheck::ByteTest(ByteTest { bytes, negated: false, op, value, offset, relative, format, bitmask: None })
}
fn n(v: i64) -> Value {
    Value::Number(v)
}
fn var(v: u8) -> Value {
    Value::Variable(v)
}
fn jump(bytes: i64, relative: bool) -> ByteJump {
    ByteJump {
        bytes: n(bytes),
        offset: n(0),
        relative,
        multiplier: 1,
        format: BIG,
        align: false,
        from_beginning: false,
        from_end: false,
        post_offset: n(0),
        bitmask: None,
    }
}
fn extract(bytes: u8, offset: i32, variable: u8, relative: bool) -> ByteExtract {
    ByteExtract { bytes, offset, variable, relative, multiplier: 1, format: BIG, align: 0 }
}
fn math(op: MathOp, rvalue: i64) -> ByteMath {
    ByteMath { bytes: n(1), offset: 0, op, rvalue: n(rvalue), result: 0, relative: false, format: BIG, bitmask: None }
}

fn compile(checks: Vec<BufferCheck>) -> CompiledBuffer {
    let b =
        BufferChecks { buffer: "payload".into(), app: false, transforms: Vec::new(), checks, absent: None, side: None };
    CompiledBuffer::compile(&b, &InspectLimits::default()).expect("compiles")
}

/// The indexes of matching payloads.
fn hits(payloads: &[&[u8]], checks: Vec<BufferCheck>) -> Vec<usize> {
    let c = compile(checks);
    let mut ctx = InspectContext::default();
    (0..payloads.len()).filter(|&i| c.matches(payloads[i], &mut ctx)).collect()
}

#[test]
fn isdataat_as_the_peer() {
    let p: [&[u8]; 3] = [b"abc", b"abcd", b"abcde"];
    assert_eq!(hits(&p, checks![data_at(3, false)]), [1, 2]);
    assert_eq!(hits(&p, checks![no_data_at(3, false)]), [0]);
    assert_eq!(hits(&p, checks![content("ab"), data_at(1, true)]), [0, 1, 2]);
    assert_eq!(hits(&p, checks![content("ab"), no_data_at(2, true)]), [0]);
    assert_eq!(hits(&p, checks![content("ab"), data_at(2, true)]), [1, 2]);
    assert_eq!(hits(&p, checks![content("abc"), data_at(0, true)]), [0, 1, 2]);
    assert_eq!(hits(&p, checks![content("abc"), no_data_at(0, true)]), [0usize; 0]);
}

#[test]
fn content_positions_as_the_peer() {
    let p: [&[u8]; 1] = [b"\x02abcdefgh"];
    let which = |f: &dyn Fn(Content) -> Content, before: &str| -> String {
        ["\x02", "a", "b", "c", "d", "e", "f", "g", "h"]
            .iter()
            .filter(|s| !hits(&p, checks![content(before), f(content(s))]).is_empty())
            .copied()
            .collect()
    };
    assert_eq!(which(&|c| c.distance(2).within(1), "a"), "d");
    assert_eq!(which(&|c| c.distance(-2).within(2), "d"), "cd");
    assert_eq!(which(&|c| c.distance(-20).within(21), "b"), "\x02abc");
    assert_eq!(which(&|c| c.within(2), "d"), "ef");
    assert_eq!(which(&|c| c.distance(1), "d"), "fgh");
    assert_eq!(which(&|c| c.not().within(2), "d"), "\x02abcdgh");
    assert_eq!(hits(&p, checks![content("d"), content("ef").not().within(2)]).len(), 0);
    assert_eq!(hits(&p, checks![content("d"), content("fgh").not().distance(1).within(3)]).len(), 0);
    assert_eq!(hits(&p, checks![content("d"), content("zzz").not().distance(100)]), [0]);
    assert_eq!(hits(&p, checks![content("d"), content("h").distance(3).within(20)]), [0]);
    assert_eq!(hits(&p, checks![content("a").not().offset(50)]), [0]);
    assert_eq!(hits(&p, checks![content("a").not().offset(2)]), [0]);
    assert_eq!(hits(&p, checks![content("a").not().offset(1).depth(1)]).len(), 0);
    assert_eq!(hits(&p, checks![content("zzz").offset(50)]).len(), 0);
}

#[test]
fn starts_and_ends_as_the_peer() {
    let p: [&[u8]; 2] = [b"abcabc", b"abcabcd"];
    let abc = || content("abc");
    assert_eq!(hits(&p, checks![abc().starts()]), [0, 1]);
    assert_eq!(hits(&p, checks![abc().ends()]), [0]);
    assert_eq!(hits(&p, checks![abc().starts().ends()]).len(), 0);
    assert_eq!(hits(&[b"abc"], checks![abc().starts().ends()]), [0]);
    assert_eq!(hits(&p, checks![content("a"), content("c").distance(0).ends()]), [0]);
    assert_eq!(hits(&p, checks![abc().not().starts()]).len(), 0);
    assert_eq!(hits(&p, checks![abc().offset(3).ends()]), [0]);
    assert_eq!(hits(&p, checks![abc().offset(1).depth(5)]), [0, 1]);
    assert_eq!(hits(&p, checks![abc().offset(1).depth(4)]).len(), 0);
    assert_eq!(hits(&p, checks![content("ABC").nocase().offset(1).depth(5)]), [0, 1]);
    assert_eq!(hits(&p, checks![content("bc").distance(2)]), [0, 1]);
    assert_eq!(hits(&p, checks![content("c").within(2)]).len(), 0);
    // As documented: the buffer must not end with the literal.
    assert_eq!(hits(&p, checks![abc().not().ends()]), [1]);
}

#[test]
fn backtracking_as_the_peer() {
    let p: [&[u8]; 4] = [b"a1a2b", b"aXbaYcbZ", b"aa1aa2", b"xAxBxAxC"];
    let x = || content("x");
    let v = || BufferCheck::ByteExtract(extract(1, 0, 0, true));
    let last_is_v = || test(1, ByteOp::Equal, var(0), n(7), false, BIG);
    assert_eq!(hits(&p, checks![content("a"), content("2").distance(0).within(1)]), [0, 2]);
    assert_eq!(hits(&p, checks![content("a"), content("b").distance(0), content("Z").distance(0).within(1)]), [1]);
    assert_eq!(hits(&p, checks![content("a"), content("1").not().within(1)]), [0, 1, 2]);
    assert_eq!(hits(&p, checks![content("A"), content("B").not().distance(1).within(1)]), [3]);
    assert_eq!(hits(&p, checks![content("A"), test(1, ByteOp::Equal, n(0x43), n(1), true, BIG)]), [3]);
    assert_eq!(hits(&p, checks![content("A"), no_data_at(3, true)]), [3]);
    assert_eq!(hits(&p, checks![pcre("A"), content("C").distance(1).within(1)]), [3]);
    assert_eq!(hits(&p, checks![pcre("xA|xAxB|x"), content("C").distance(0).within(1)]), [3]);
    assert_eq!(hits(&p, checks![content("A"), pcre_r("^xC")]), [3]);
    assert_eq!(hits(&p, checks![pcre("x"), pcre_r("^C")]), [3]);
    assert_eq!(hits(&p, checks![pcre("x"), pcre_not("^A", true)]), [3]);
    assert_eq!(hits(&p, checks![x(), x().distance(1).within(1), content("C").distance(0).within(1)]), [3]);
    // A literal without a relative check after it ends the search when a later check fails.
    assert_eq!(hits(&p, checks![x(), v(), last_is_v()]), [3]);
    assert_eq!(hits(&p, checks![x(), v(), content("C").offset(7), last_is_v()]).len(), 0);
    assert_eq!(hits(&p, checks![x(), v(), content("C").distance(-1), last_is_v()]).len(), 0);
    assert_eq!(hits(&p, checks![x(), v(), pcre("C"), last_is_v()]), [3]);
    assert_eq!(hits(&p, checks![x(), content("q").not(), content("C").distance(0).within(1)]).len(), 0);
    assert_eq!(hits(&p, checks![x(), pcre_not("q", false), content("C").distance(0).within(1)]).len(), 0);
    assert_eq!(hits(&p, checks![x(), content("q").not().within(1), content("C").distance(0).within(1)]), [3]);
    assert_eq!(hits(&p, checks![x(), content("B"), content("C").distance(3).within(1)]), [3]);
    assert_eq!(hits(&p, checks![x(), content("A"), content("C").distance(1).within(1)]), [3]);
    assert_eq!(hits(&p, checks![x(), test(1, ByteOp::Equal, n(0x43), n(7), false, BIG), content("C").within(1)]), [3]);
    let minus_60 = BufferCheck::ByteMath(ByteMath { relative: true, ..math(MathOp::Subtract, 60) });
    let mut at_v = content("C").depth(1);
    at_v.offset = Some(var(0));
    assert_eq!(hits(&p, checks![x(), minus_60.clone(), at_v]).len(), 0);
    let mut not_a = content("A").not().depth(1);
    not_a.offset = Some(var(0));
    assert_eq!(hits(&p, checks![x(), minus_60, not_a]), [3]);
}

#[test]
fn isdataat_behind_other_checks_as_the_peer() {
    let first_is_b = || test(1, ByteOp::GreaterEqual, n(98), n(1), false, BIG);
    assert_eq!(hits(&[b"bbAA"], checks![content("b"), first_is_b(), no_data_at(3, true)]).len(), 0);
    assert_eq!(hits(&[b"bbAA"], checks![content("b"), no_data_at(3, true)]), [0]);
    let below_a = test(1, ByteOp::Less, n(65), n(1), true, BIG);
    assert_eq!(hits(&[b"aaA1"], checks![content("a"), no_data_at(4, false), below_a.clone()]).len(), 0);
    assert_eq!(hits(&[b"aaA1"], checks![content("a"), below_a]), [0]);
    // After a literal, `isdataat:!1,relative` means `endswith`, even if the literal is negated.
    let p: [&[u8]; 3] = [b"1aabb1", b"1aabb", b"1a"];
    assert_eq!(hits(&p, checks![content("1a"), content("abb").not(), no_data_at(1, true)]), [0, 2]);
    assert_eq!(hits(&p, checks![content("1a"), no_data_at(1, true)]), [2]);
}

#[test]
fn windows_before_the_buffer_as_the_peer() {
    let which = |d, w| -> String {
        ["b", "1", "A"]
            .iter()
            .filter(|s| !hits(&[b"b1A"], checks![content("b"), content(s).distance(d).within(w)]).is_empty())
            .copied()
            .collect()
    };
    assert_eq!(which(-3, 1), "b1A");
    assert_eq!(which(-3, 2), "");
    assert_eq!(which(-3, 3), "b");
    assert_eq!(which(-2, 1), "");
    assert_eq!(which(-6, 1), "b1A");
    assert_eq!(which(-6, 7), "b1");
}

#[test]
fn byte_test_as_the_peer() {
    let p: [&[u8]; 2] = [b"\x00\x05\xff\x7f0123456789", b"12 x"];
    let at1 = |op, v| checks![test(1, op, n(v), n(1), false, BIG)];
    assert_eq!(hits(&p, at1(ByteOp::Or, 5)), [1]);
    assert_eq!(hits(&p, at1(ByteOp::Or, 4)), [0, 1]);
    assert_eq!(hits(&p, at1(ByteOp::And, 4)), [0]);
    let not = |bytes, offset, v, format| {
        let c = ByteTest {
            bytes: n(bytes),
            negated: true,
            op: ByteOp::Equal,
            value: n(v),
            offset: n(offset),
            relative: false,
            format,
            bitmask: None,
        };
        checks![BufferCheck::ByteTest(c)]
    };
    assert_eq!(hits(&p, not(1, 1, 5, BIG)), [1]);
    // A number out of reach, or text that is no number, does not match even when negated.
    assert_eq!(hits(&p, not(1, 200, 5, BIG)).len(), 0);
    assert_eq!(hits(&p, not(4, 12, 5, BIG)).len(), 0);
    assert_eq!(hits(&p, not(1, 3, 3, DEC)).len(), 0);
    assert_eq!(hits(&p, checks![test(2, ByteOp::Equal, n(12), n(0), false, DEC)]), [1]);
    assert_eq!(hits(&p, checks![test(4, ByteOp::Equal, n(12), n(0), false, DEC)]), [1]);
    assert_eq!(hits(&p, checks![test(1, ByteOp::Equal, n(5), n(-1), false, BIG)]).len(), 0);
    let rel = |bytes, v, at, f| checks![content("567"), test(bytes, ByteOp::Equal, n(v), n(at), true, f)];
    assert_eq!(hits(&p, rel(1, 0x37, -1, BIG)), [0]);
    assert_eq!(hits(&p, rel(1, 0x38, 0, BIG)), [0]);
    assert_eq!(hits(&p, rel(2, 89, 0, DEC)), [0]);
    assert_eq!(hits(&p, rel(3, 89, 0, DEC)).len(), 0);
}

#[test]
fn byte_jump_as_the_peer() {
    let p: [&[u8]; 4] = [b"\x02abcdefgh", b"\x09abcdefghi", b"\x08abcdefgh", b"3abcdefghi"];
    let then = |j: ByteJump, s: &str| checks![BufferCheck::ByteJump(j), content(s).distance(0).within(1)];
    let only = |j: ByteJump| checks![BufferCheck::ByteJump(j)];
    let j = || jump(1, false);
    assert_eq!(hits(&p, then(j(), "c")), [0]);
    assert_eq!(hits(&p, only(j())), [0, 1, 2]);
    assert_eq!(hits(&p, then(ByteJump { align: true, ..j() }, "e")), [0]);
    assert_eq!(hits(&p, then(ByteJump { from_beginning: true, ..j() }, "b")), [0]);
    assert_eq!(hits(&p, then(ByteJump { post_offset: n(-1), ..j() }, "b")), [0]);
    assert_eq!(hits(&p, only(ByteJump { post_offset: n(-4), ..j() })), [0, 1, 2]);
    assert_eq!(hits(&p[..1], then(ByteJump { post_offset: n(-4), ..j() }, "\x02")), [0]);
    assert_eq!(hits(&p, only(ByteJump { post_offset: n(6), ..j() })), [0]);
    assert_eq!(hits(&p, only(ByteJump { from_end: true, ..j() })).len(), 0);
    assert_eq!(hits(&p, only(ByteJump { from_end: true, post_offset: n(-3), ..j() })), [0]);
    assert_eq!(hits(&p, then(ByteJump { multiplier: 2, ..j() }, "e")), [0]);
    assert_eq!(hits(&p, then(ByteJump { format: DEC, ..j() }, "d")), [3]);
    let end = ByteJump { from_end: true, post_offset: n(-2), ..jump(0, false) };
    assert_eq!(hits(&p, then(end, "g")), [0, 2]);
    let by_one = BufferCheck::ByteJump(ByteJump { post_offset: n(1), ..jump(0, true) });
    assert_eq!(hits(&p, checks![content("ab"), by_one, content("d").distance(0).within(1)]), [0, 1, 2, 3]);
    // Text: the jump starts after the digits.
    let text: [&[u8]; 3] = [b"2zabcdefgh", b" 2zabcdefgh", b"02zabcdefgh"];
    assert_eq!(hits(&text, then(ByteJump { format: DEC, ..jump(4, false) }, "b")), [0, 1, 2]);
}

#[test]
fn variables_as_the_peer() {
    let p: [&[u8]; 3] = [b"\x02abcdefgh", b"3abcdefgh", b"\xf0abcdef"];
    let x = || BufferCheck::ByteExtract(extract(1, 0, 0, false));
    assert_eq!(hits(&p, checks![x(), content("a").distance(0).within(1)]), [0, 1, 2]);
    assert_eq!(hits(&p, checks![x(), content("b").distance(0).within(1)]).len(), 0);
    let mut c = content("c").within(1);
    c.distance = Some(var(0));
    assert_eq!(hits(&p, checks![x(), c]), [0]);
    let mut c = content("c").distance(0);
    c.within = Some(var(0));
    assert_eq!(hits(&p, checks![x(), c]), [1, 2]);
    let rel = BufferCheck::IsDataAt { at: var(0), relative: true, negated: false };
    assert_eq!(hits(&p, checks![x(), rel]), [0]);
    assert_eq!(hits(&p, checks![x(), test(1, ByteOp::Equal, n(99), var(0), true, BIG)]), [0]);
    assert_eq!(hits(&p, checks![x(), test(1, ByteOp::Equal, n(98), var(0), false, BIG)]), [0]);
    let m = |op, v| BufferCheck::ByteMath(math(op, v));
    let mut c = content("c").depth(1);
    c.offset = Some(var(0));
    assert_eq!(hits(&p, checks![m(MathOp::Add, 1), c]), [0]);
    let test_y = |op| test(1, op, var(0), n(0), false, BIG);
    assert_eq!(hits(&p, checks![m(MathOp::Subtract, 3), test_y(ByteOp::Greater)]), [1, 2]);
    assert_eq!(hits(&p, checks![m(MathOp::Subtract, 3), test_y(ByteOp::Less)]), [0]);
    assert_eq!(hits(&p, checks![m(MathOp::Divide, 0), test_y(ByteOp::Less)]).len(), 0);
    // For the value 0x35, Suricata's results.
    let result = |b: ByteMath, want: u8| {
        let p = [0x35, want];
        let t = test(1, ByteOp::Equal, var(0), n(1), false, BIG);
        assert_eq!(hits(&[&p], checks![BufferCheck::ByteMath(b), t]), [0], "{want}");
    };
    result(ByteMath { bitmask: Some(0xf0), ..math(MathOp::Add, 4) }, 3);
    result(math(MathOp::ShiftLeft, 64), 0);
    result(math(MathOp::Divide, 4), 13);
    let aligned = |align, multiplier, want: u8| {
        let p = [0x35, want];
        let e = ByteExtract { align, multiplier, ..extract(1, 0, 0, false) };
        let t = test(1, ByteOp::Equal, var(0), n(1), false, BIG);
        assert_eq!(hits(&[&p], checks![BufferCheck::ByteExtract(e), t]), [0], "{want}");
    };
    aligned(4, 1, 56);
    aligned(2, 1, 54);
    aligned(0, 2, 106);
}

/// The rules of conformance case byte-extract-01 that need no packet: variables in every modifier of a content.
#[test]
fn extracted_offsets_and_depths() {
    let p: [&[u8]; 1] = [b"\x0a234567890"];
    let e = |at, v, format| BufferCheck::ByteExtract(ByteExtract { format, ..extract(1, at, v, false) });
    let mut c = content("34");
    c.offset = Some(var(0));
    c.depth = Some(var(1));
    // 2 from offset 1; 3 from offset 2: "34" is at 2.
    assert_eq!(hits(&p, checks![e(1, 0, DEC), e(2, 1, DEC), c.clone()]), [0]);
    c.depth = Some(var(0));
    assert_eq!(hits(&p, checks![e(1, 0, DEC), c.clone()]), [0]);
    c.offset = Some(var(1));
    assert_eq!(hits(&p, checks![e(1, 0, DEC), e(2, 1, DEC), c]).len(), 0);
}

#[test]
fn base64_data() {
    let b = |bytes, offset, relative, data| BufferCheck::Base64 { bytes, offset, relative, data };
    let hello = || checks![content("hello")];
    let p: [&[u8]; 3] = [b"k=aGVsbG8gd29ybGQ=", b"k=aGVs bG8=", b"k=!!!!"];
    assert_eq!(hits(&p, checks![content("k="), b(None, 0, true, hello())]), [0]);
    assert_eq!(hits(&p, checks![content("k="), b(None, 0, true, checks![content("hel").starts()])]), [0, 1]);
    // A fifth character of the first payload's is a group that nothing encodes to.
    assert_eq!(hits(&p, checks![b(Some(5), 2, false, checks![content("hel").ends()])]), [1]);
    assert_eq!(hits(&p, checks![b(Some(6), 2, false, checks![content("hell").ends()])]), [0]);
    assert_eq!(hits(&p, checks![b(None, 200, false, checks![content("x").not()])]).len(), 0);
    // Relative to the first match only.
    assert_eq!(hits(&[b"k=!!!! k=aGVsbG8="], checks![content("k="), b(None, 0, true, hello())]).len(), 0);
    // Without base64_data there is nothing to match.
    assert_eq!(hits(&p, checks![b(None, 2, false, checks![])]).len(), 0);
}

#[test]
fn entropy_and_bsize() {
    let e = |bytes, offset, value| checks![BufferCheck::Entropy { bytes, offset, value }];
    let p: [&[u8]; 3] = [b"aaaa", b"abcd", b"aaabcdefgh"];
    assert_eq!(hits(&p, e(0, 0, FloatCompare::Equal(0.0))), [0]);
    assert_eq!(hits(&p, e(0, 0, FloatCompare::Equal(2.0))), [1]);
    assert_eq!(hits(&p, e(0, 2, FloatCompare::Equal(3.0))), [2]);
    assert_eq!(hits(&p, e(2, 0, FloatCompare::Less(0.5))), [0, 2]);
    assert_eq!(hits(&p, e(0, 4, FloatCompare::GreaterEqual(0.0))), [2]);
    assert_eq!(hits(&p, e(0, 0, FloatCompare::Between(1.9, 2.1))), [1]);
    assert_eq!(hits(&p, checks![BufferCheck::Bsize(Compare::Equal(4))]), [0, 1]);
    assert_eq!(hits(&p, checks![BufferCheck::Bsize(Compare::Between(4, 20))]), [2]);
}

#[test]
fn captures_and_replacements_are_those_of_the_match() {
    let mut r = regex("(x)(.)", false);
    r.captures = vec![(CaptureKind::Flow, "a".into()), (CaptureKind::Packet, "b".into())];
    let mut replaced = content("3").distance(0).within(1);
    replaced.replace = Some(b"9".to_vec());
    let c = compile(checks![BufferCheck::Pcre(r), replaced]);
    let mut ctx = InspectContext::default();
    assert!(c.matches(b"x12x23", &mut ctx));
    let got: Vec<_> = ctx.captures().iter().map(|&k| (k.index, ctx.capture_bytes(k).to_vec())).collect();
    assert_eq!(got, [(0, b"x".to_vec()), (1, b"2".to_vec())]);
    assert_eq!(c.captures()[1], (CaptureKind::Packet, Arc::from("b")));
    assert_eq!(ctx.replacements(), [Replacement { offset: 5, index: 0 }]);
    assert_eq!(&*c.replaces()[0], b"9");
    ctx.clear_results();
    assert!(!c.matches(b"x12x24", &mut ctx));
    assert!(ctx.captures().is_empty() && ctx.replacements().is_empty());
}

#[test]
fn steps_are_limited_and_counted() {
    // A number read after one of them: each of its places is tried with each of theirs.
    let a = || content("a").distance(0);
    let read = ByteExtract { bytes: 1, offset: 0, variable: 0, relative: true, multiplier: 1, format: BIG, align: 0 };
    let c = compile(checks![a(), a(), a(), a(), BufferCheck::ByteExtract(read), content("b").distance(0)]);
    let mut ctx = InspectContext::default();
    // The last literal is in the buffer, before all of their places.
    assert!(!c.matches(&[&b"b"[..], &[b'a'; 200]].concat(), &mut ctx));
    assert_eq!(ctx.limit_reached, 1);
    // Without it, no place needs to be tried.
    assert!(!c.matches(&[b'a'; 200], &mut ctx));
    assert_eq!(ctx.limit_reached, 1);
    assert!(c.matches(b"aaaaxb", &mut ctx));
    assert_eq!(ctx.limit_reached, 1);
}

#[test]
fn what_does_not_compile() {
    let fails = |checks| {
        let b = BufferChecks {
            buffer: "payload".into(),
            app: false,
            transforms: Vec::new(),
            checks,
            absent: None,
            side: None,
        };
        CompiledBuffer::compile(&b, &InspectLimits::default()).expect_err("refused").to_string()
    };
    assert!(fails(checks![content("")]).starts_with("content:"));
    assert!(fails(checks![pcre("a(")]).contains("offset 2"));
    let other = BufferCheck::Other { keyword: "dataset".into(), argument: "isset,x".into() };
    assert!(fails(checks![other]).starts_with("dataset:"));
    let mut r = content("abc");
    r.replace = Some(b"ab".to_vec());
    assert!(fails(checks![r]).contains("one length"));
}

/// The specification of a chain of contents: some choice of places satisfies every one.
fn reference(data: &[u8], chain: &[Content], cursor: usize) -> bool {
    let Some((c, rest)) = chain.split_first() else { return true };
    let value = |v: &Option<Value>| v.as_ref().map(|v| if let Value::Number(n) = v { *n } else { 0 });
    let relative = c.distance.is_some() || c.within.is_some();
    let fits = |at: usize| {
        let (s, e) = (at as i64, (at + c.bytes.len()) as i64);
        let text = &data[at..at + c.bytes.len()];
        let same = if c.nocase { text.eq_ignore_ascii_case(&c.bytes) } else { text == c.bytes };
        let d = value(&c.distance).unwrap_or(0);
        let o = value(&c.offset).unwrap_or(0);
        same && (!relative || s >= cursor as i64 + d)
            && value(&c.within).map(|w| cursor as i64 + d + w).is_none_or(|end| end < 0 || e <= end)
            && s >= o
            && value(&c.depth).is_none_or(|n| e <= o + n)
            && (!c.ends_with || e == data.len() as i64)
    };
    let mut places =
        (0..=data.len().saturating_sub(c.bytes.len())).filter(|_| c.bytes.len() <= data.len()).filter(|&at| fits(at));
    if c.negated {
        return places.next().is_none() && reference(data, rest, cursor);
    }
    places.any(|at| reference(data, rest, at + c.bytes.len()))
}

#[test]
fn agrees_with_brute_force() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 16) % n
    };
    let letters = b"abA";
    let mut ctx = InspectContext::default();
    let mut matched = 0;
    for round in 0..60_000 {
        let data: Vec<u8> = (0..random(11)).map(|_| letters[random(3) as usize]).collect();
        let mut chain: Vec<Content> = Vec::new();
        for i in 0..=random(4) {
            let bytes = (0..=random(3)).map(|_| letters[random(3) as usize]).collect();
            let mut c = Content { bytes, nocase: random(3) == 0, ends_with: random(8) == 0, ..Content::default() };
            let size = c.bytes.len() as i64;
            if i > 0 && random(4) > 0 {
                if random(3) > 0 {
                    c = c.distance(random(5) as i64 - 2);
                }
                if c.distance.is_none() || random(2) == 0 {
                    c = c.within(size + random(3) as i64);
                }
                c.negated = random(4) == 0;
            } else {
                if random(2) == 0 {
                    c = c.offset(random(3) as i64);
                }
                if random(3) == 0 {
                    c = c.depth(size + random(3) as i64);
                }
                // A negated absolute literal stops the retry of earlier ones, which the specification does not model.
                c.negated = i == 0 && random(4) == 0;
            }
            chain.push(c);
        }
        let want = reference(&data, &chain, 0);
        let c = compile(chain.iter().cloned().map(BufferCheck::Content).collect());
        assert_eq!(
            c.matches(&data, &mut ctx),
            want,
            "round {round}: {chain:?} in {:?}",
            data.escape_ascii().to_string()
        );
        matched += u32::from(want);
    }
    assert_eq!(ctx.limit_reached, 0);
    assert!(matched > 5_000, "only {matched} matched: the test compares too little");
}

#[test]
fn nothing_panics_on_odd_values() {
    let odd = [i64::MIN, -1, 0, 1, i64::MAX];
    for a in odd {
        for b in odd {
            let mut j = jump(1, true);
            j.offset = n(a);
            j.post_offset = n(b);
            j.multiplier = u32::MAX;
            let at = BufferCheck::IsDataAt { at: n(a), relative: true, negated: false };
            for list in [
                checks![content("a"), content("b").distance(a).within(b)],
                checks![content("b").offset(a).depth(b)],
                checks![content("a"), BufferCheck::ByteJump(j.clone()), content("a").distance(a)],
                checks![content("a"), at.clone(), pcre_r("b")],
                checks![content("a"), test(a, ByteOp::Equal, n(a), n(b), true, BIG)],
            ] {
                hits(&[b"", b"a", b"ab", b"abababab"], list);
            }
        }
    }
}

/// A script compiles to no operation, so that the checks after it keep their places.
#[test]
fn scripts_have_no_place_among_the_operations() {
    let checks =
        [BufferCheck::Content(content("a")), BufferCheck::Lua(Box::default()), BufferCheck::Content(content("b"))];
    let own = super::own_checks(&checks);
    let buffer = BufferChecks {
        buffer: "payload".into(),
        app: false,
        side: None,
        transforms: Vec::new(),
        checks: checks.to_vec(),
        absent: None,
    };
    let compiled = CompiledBuffer::compile(&buffer, &InspectLimits::default()).expect("it compiles");
    assert_eq!((own.len(), compiled.ops.len()), (2, 2));
    assert_eq!(own[1], checks[2]);
}
