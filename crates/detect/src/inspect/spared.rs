//! Skipping places of literals never changes a result.

use margay_rules::ast::*;
use proptest::prelude::*;

use super::{CompiledBuffer, InspectContext, InspectLimits, Op};

fn compile(checks: Vec<BufferCheck>, recursion: u32) -> CompiledBuffer {
    let buffer =
        BufferChecks { buffer: "payload".into(), app: false, transforms: Vec::new(), checks, absent: None, side: None };
    CompiledBuffer::compile(&buffer, &InspectLimits { recursion, ..InspectLimits::default() }).expect("compiles")
}

/// The same checks without skipping.
fn tries_all(mut buffer: CompiledBuffer) -> CompiledBuffer {
    (buffer.remembers, buffer.needs_all) = (false, false);
    for op in &mut buffer.ops {
        if let Op::Content(c) = op {
            (c.first_only, c.tried) = (false, None);
        }
    }
    buffer
}

fn literal(text: &str, distance: Option<i64>, within: Option<i64>) -> BufferCheck {
    BufferCheck::Content(Content {
        bytes: text.as_bytes().to_vec(),
        distance: distance.map(Value::Number),
        within: within.map(Value::Number),
        ..Content::default()
    })
}

/// A jump over a one-byte number.
fn jump() -> BufferCheck {
    BufferCheck::ByteJump(ByteJump {
        bytes: Value::Number(1),
        offset: Value::Number(0),
        relative: true,
        multiplier: 1,
        format: NumberFormat::Binary(Endian::Big),
        align: false,
        from_beginning: false,
        from_end: false,
        post_offset: Value::Number(0),
        bitmask: None,
    })
}

/// The result of an inspection, and its number of steps.
fn look(buffer: &CompiledBuffer, data: &[u8]) -> (bool, u32) {
    let mut ctx = InspectContext::default();
    (buffer.matches(data, &mut ctx), ctx.steps)
}

/// A place that fails costs one step, as in Suricata: `limit - 3` decoys in front of a match are no too many.
#[test]
fn decoys_up_to_the_limit() {
    let buffer = tries_all(compile(vec![literal("a", None, None), literal("b", Some(0), Some(1))], 3000));
    for (decoys, found) in [(2997, true), (2998, false)] {
        let data = [b"ax".repeat(decoys), b"ab".to_vec()].concat();
        assert_eq!(look(&buffer, &data).0, found, "{decoys}");
    }
}

#[test]
fn literals_that_follow_each_other_are_tried_once() {
    let follow = |text| literal(text, Some(0), None);
    let buffer = compile(vec![literal("aa", None, None), follow("ab"), follow("ac"), follow("zz")], 3000);
    assert_eq!(look(&buffer, &b"aaabac".repeat(230)), (false, 4));
}

#[test]
fn places_that_failed_are_not_tried_again() {
    let within = |text, n| literal(text, None, Some(n));
    let checks = vec![literal("aa", None, None), jump(), within("ab", 400), within("zz", 9)];
    let data = b"aaabac".repeat(230);
    // No place helps if the last literal is nowhere.
    let (matched, steps) = look(&compile(checks.clone(), 3000), &data);
    assert!(!matched && steps < 40, "{steps} steps");
    let (matched, steps) = look(&compile(checks.clone(), 3000), &[b"zz", &data[..]].concat());
    assert!(!matched && steps < 2300, "{steps} steps");
    // A match beyond more places than the limit is still found.
    let data = [&data[..], b"zz"].concat();
    assert!(look(&compile(checks.clone(), 3000), &data).0);
    assert!(!look(&tries_all(compile(checks, 3000)), &data).0, "this needs more than one step for each place");
}

fn any_check() -> impl Strategy<Value = BufferCheck> {
    let number = || prop::option::of(-3..12i64);
    let content = ("[ab]{1,2}", number(), number(), any::<[bool; 3]>(), prop::option::of(0..20i64)).prop_map(
        |(text, distance, within, [negated, relative, ends_with], depth)| {
            let keep = |n: Option<i64>| n.filter(|_| relative).map(Value::Number);
            BufferCheck::Content(Content {
                bytes: text.into_bytes(),
                negated: negated && ends_with,
                distance: keep(distance),
                within: keep(within.map(|n| n.max(1))),
                depth: depth.filter(|_| !relative && negated).map(|n| Value::Number(n + 2)),
                ends_with: ends_with && !negated && !relative,
                ..Content::default()
            })
        },
    );
    let there = (0..6i64, any::<[bool; 2]>()).prop_map(|(at, [relative, negated])| BufferCheck::IsDataAt {
        at: Value::Number(at),
        relative,
        negated,
    });
    let pcre = (any::<bool>(), any::<bool>()).prop_map(|(relative, negated)| {
        BufferCheck::Pcre(Pcre {
            pattern: "^a?b".to_owned(),
            negated,
            options: String::new(),
            relative,
            raw: false,
            override_limits: false,
            captures: Vec::new(),
        })
    });
    let extract = Just(BufferCheck::ByteExtract(ByteExtract {
        bytes: 1,
        offset: 0,
        variable: 0,
        relative: true,
        multiplier: 1,
        format: NumberFormat::Binary(Endian::Big),
        align: 0,
    }));
    prop_oneof![8 => content, 1 => there, 1 => pcre, 1 => Just(jump()), 1 => extract]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn what_is_spared_changes_nothing(checks in prop::collection::vec(any_check(), 1..6), data in "[ab\\x00-\\x03]{0,40}") {
        let all = look(&tries_all(compile(checks.clone(), 1 << 20)), data.as_bytes());
        let spared = look(&compile(checks, 1 << 20), data.as_bytes());
        prop_assert_eq!(all.0, spared.0);
        prop_assert!(spared.1 <= all.1);
    }
}
