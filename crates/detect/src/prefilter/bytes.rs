//! Rules that need one of several literals, some of which are a single byte.
//!
//! A single byte is in most payloads, but punctuation is rare in the values of a request's arguments or headers. The set of a
//! value's bytes is made once for all rules.

use super::Literal;
use crate::mpm::Pattern;

/// A bit for each byte value.
type Set = [u64; 4];

/// Literals of which a rule needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnyOf {
    /// Those of two bytes or more.
    pub(super) literals: Box<[Literal]>,
    bytes: Set,
}

impl AnyOf {
    /// `literals` are not empty; with `nocase` they are in lower case.
    pub(crate) fn new(literals: Vec<Vec<u8>>, nocase: bool) -> AnyOf {
        let (single, longer): (Vec<_>, Vec<_>) = literals.into_iter().partition(|l| l.len() == 1);
        let of = |bytes| Literal { pattern: Pattern { bytes, nocase }, offset: 0, end: None, longest: u32::MAX };
        let mut any = AnyOf { literals: longer.into_iter().map(of).collect(), bytes: [0; 4] };
        for b in single.into_iter().flatten() {
            put(&mut any.bytes, b);
            if nocase {
                put(&mut any.bytes, b.to_ascii_uppercase());
            }
        }
        any
    }
}

fn put(set: &mut Set, b: u8) {
    set[usize::from(b / 64)] |= 1 << (b % 64);
}

fn meet(a: &Set, b: &Set) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// The rules of a buffer that need one of some bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    /// The bytes of all rules.
    all: Set,
    rules: Box<[(Set, u32)]>,
}

impl Bytes {
    pub(super) fn new(list: &[(&AnyOf, u32)]) -> Option<Bytes> {
        let rules: Box<[(Set, u32)]> =
            list.iter().map(|(any, rule)| (any.bytes, *rule)).filter(|(set, _)| *set != [0; 4]).collect();
        let mut all = [0; 4];
        for (set, _) in &rules {
            all.iter_mut().zip(set).for_each(|(a, b)| *a |= b);
        }
        (!rules.is_empty()).then_some(Bytes { all, rules })
    }

    /// Adds the rules of which `data` has a byte.
    pub(super) fn scan(&self, data: &[u8], out: &mut Vec<u32>) {
        let mut have = [0; 4];
        data.iter().for_each(|&b| put(&mut have, b));
        if meet(&self.all, &have) {
            out.extend(self.rules.iter().filter(|(set, _)| meet(set, &have)).map(|(_, rule)| *rule));
        }
    }
}
