//! Cheap conditions on a buffer, its length and its first bytes, derived from a rule's checks.

use margay_rules::ast::{BufferCheck, ByteOp, ByteTest, Compare, NumberFormat, Value};

/// Necessary conditions on the length and the first bytes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Minimum and maximum length.
    len: (u32, u32),
    /// Mask of the first eight bytes, and the value they must have under it.
    mask: u64,
    value: u64,
}

impl Head {
    /// Accepts any buffer.
    pub(crate) const ALL: Head = Head { len: (0, u32::MAX), mask: 0, value: 0 };

    /// The conditions that follow from `checks`, all of which must hold for the buffer.
    pub(crate) fn of(checks: &[BufferCheck]) -> Head {
        let mut h = Head::ALL;
        for c in checks {
            match c {
                BufferCheck::IsDataAt { at: Value::Number(at), relative: false, negated } => match negated {
                    false => h.at_least(at.saturating_add(1)),
                    true => h.len.1 = h.len.1.min(u32::try_from(*at).unwrap_or(0)),
                },
                BufferCheck::Bsize(c) => {
                    let (from, to) = range(c);
                    h.len.0 = h.len.0.max(long(from));
                    h.len.1 = h.len.1.min(long(to));
                }
                BufferCheck::ByteTest(b) if !b.relative => h.number(b),
                BufferCheck::Content(c) if !c.negated && c.distance.is_none() && c.within.is_none() => {
                    let offset = match c.offset {
                        None => 0,
                        Some(Value::Number(n)) => n.max(0),
                        Some(Value::Variable(_)) => continue,
                    };
                    let len = c.bytes.len() as i64;
                    h.at_least(offset.saturating_add(len));
                    let one_place = c.starts_with || c.depth == Some(Value::Number(len));
                    if one_place && !(c.nocase && c.bytes.iter().any(u8::is_ascii_alphabetic)) {
                        for (n, &b) in (0..8).zip(&c.bytes) {
                            h.byte(offset.saturating_add(n), 0xff, b);
                        }
                    }
                }
                _ => {}
            }
        }
        h
    }

    /// Requires at least this many bytes.
    fn at_least(&mut self, bytes: i64) {
        self.len.0 = self.len.0.max(u32::try_from(bytes.max(0)).unwrap_or(u32::MAX));
    }

    /// Requires the bits of `mask` in the byte at `at` to be `value`.
    fn byte(&mut self, at: i64, mask: u8, value: u8) {
        if let Ok(at) = u32::try_from(at)
            && at < 8
        {
            // Contradictory conditions never hold together, so either one will do.
            self.mask |= u64::from(mask) << (8 * at);
            self.value = self.value & !(u64::from(mask) << (8 * at)) | u64::from(value & mask) << (8 * at);
        }
    }

    /// Adds the condition of a number at a fixed place.
    fn number(&mut self, b: &ByteTest) {
        let (Value::Number(bytes), Value::Number(at), Value::Number(value)) = (&b.bytes, &b.offset, &b.value) else {
            return;
        };
        if *at < 0 || !matches!(b.format, NumberFormat::Binary(_)) {
            return;
        }
        self.at_least(at.saturating_add(*bytes));
        let Some(value) = u8::try_from(*value).ok().filter(|_| *bytes == 1 && b.bitmask.is_none()) else { return };
        match b.op {
            ByteOp::And if b.negated => self.byte(*at, value, 0),
            ByteOp::And if value.count_ones() == 1 => self.byte(*at, value, value),
            ByteOp::Equal if !b.negated => self.byte(*at, 0xff, value),
            _ => {}
        }
    }

    /// Whether a buffer with this length and these first bytes ([`first_of`]) may satisfy the checks.
    #[inline]
    pub(crate) const fn holds(&self, len: u32, first: u64) -> bool {
        first & self.mask == self.value && len >= self.len.0 && len <= self.len.1
    }

    /// Minimum and maximum length.
    pub(crate) const fn lengths(&self) -> (u32, u32) {
        self.len
    }

    /// Whether `data` may satisfy the checks.
    #[inline]
    pub(crate) fn fits(&self, data: &[u8]) -> bool {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.holds(len, if self.mask == 0 { 0 } else { first_of(data) })
    }
}

/// The first eight bytes of a buffer in the form that [`Head`] compares, padded with zeros.
pub(crate) fn first_of(payload: &[u8]) -> u64 {
    match payload.first_chunk::<8>() {
        Some(b) => u64::from_le_bytes(*b),
        None => payload.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)),
    }
}

pub(crate) fn long(v: u64) -> u32 {
    u32::try_from(v).unwrap_or(u32::MAX)
}

/// The values for which `c` may hold.
pub(crate) const fn range(c: &Compare) -> (u64, u64) {
    match *c {
        Compare::Equal(v) => (v, v),
        Compare::Less(v) => (0, v.saturating_sub(1)),
        Compare::LessEqual(v) => (0, v),
        Compare::Greater(v) => (v.saturating_add(1), u64::MAX),
        Compare::GreaterEqual(v) => (v, u64::MAX),
        Compare::Between(a, b) => (a.saturating_add(1), b.saturating_sub(1)),
        _ => (0, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{CompiledBuffer, InspectContext, InspectLimits};
    use margay_rules::ast::{BufferChecks, Content, Endian};
    use proptest::prelude::*;

    fn check() -> impl Strategy<Value = BufferCheck> {
        let number = |from: i64, to: i64| (from..to).prop_map(Value::Number);
        let place = |from, to| prop_oneof![Just(None), number(from, to).prop_map(Some)];
        let op = prop_oneof![Just(ByteOp::And), Just(ByteOp::Equal), Just(ByteOp::Less), Just(ByteOp::Or)];
        prop_oneof![
            (
                proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'B'), Just(1u8)], 1..4),
                any::<[bool; 3]>(),
                place(-1, 4),
                place(1, 9)
            )
                .prop_map(|(bytes, [negated, nocase, starts_with], offset, depth)| {
                    BufferCheck::Content(Content {
                        bytes,
                        negated,
                        nocase,
                        starts_with,
                        offset,
                        depth,
                        ..Content::default()
                    })
                }),
            (number(-2, 12), any::<[bool; 2]>()).prop_map(|(at, [relative, negated])| BufferCheck::IsDataAt {
                at,
                relative,
                negated
            }),
            (0u64..12, 0u64..12, 0..4).prop_map(|(a, b, op)| BufferCheck::Bsize(match op {
                0 => Compare::Equal(a),
                1 => Compare::NotEqual(a),
                2 => Compare::Greater(a),
                _ => Compare::Between(a, b),
            })),
            (
                1i64..4,
                -1i64..10,
                prop_oneof![Just(1i64), Just(2), Just(97), Just(3), Just(400)],
                op,
                any::<[bool; 2]>()
            )
                .prop_map(|(bytes, offset, value, op, [negated, relative])| {
                    BufferCheck::ByteTest(ByteTest {
                        bytes: Value::Number(bytes),
                        negated,
                        op,
                        value: Value::Number(value),
                        offset: Value::Number(offset),
                        relative,
                        format: NumberFormat::Binary(Endian::Big),
                        bitmask: None,
                    })
                }),
        ]
    }

    proptest! {
        /// The checks fail for every buffer that [`Head`] excludes.
        #[test]
        fn leaves_out_nothing_that_holds(
            checks in proptest::collection::vec(check(), 1..4),
            data in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'B'), Just(1u8), Just(3u8)], 0..12),
        ) {
            let buffer = BufferChecks {
                buffer: "payload".into(), app: false, side: None, transforms: vec![], checks: checks.clone(), absent: None,
            };
            let mut compiled = CompiledBuffer::compile(&buffer, &InspectLimits::default()).expect("compiles");
            compiled.look_anyway();
            if compiled.matches(&data, &mut InspectContext::default()) {
                prop_assert!(Head::of(&checks).fits(&data), "{checks:?}");
            }
        }
    }
}
