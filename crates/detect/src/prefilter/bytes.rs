//! Rules that need one of several literals, some of which are a single byte.
//!
//! A single byte is in most payloads, but punctuation is rare in the values of a request's arguments or headers. The set
//! of a value's bytes is made once for all rules.

use super::Literal;
use crate::byte_set::ByteSet;
use crate::mpm::Pattern;

/// Literals of which a rule needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnyOf {
    /// Those of two bytes or more.
    pub(super) literals: Box<[Literal]>,
    bytes: ByteSet,
}

impl AnyOf {
    /// `literals` are not empty; with `nocase` they are in lower case.
    pub(crate) fn new(literals: Vec<Vec<u8>>, nocase: bool) -> AnyOf {
        let (single, longer): (Vec<_>, Vec<_>) = literals.into_iter().partition(|l| l.len() == 1);
        let of = |bytes| Literal { pattern: Pattern { bytes, nocase }, offset: 0, end: None, longest: u32::MAX };
        let mut any = AnyOf { literals: longer.into_iter().map(of).collect(), bytes: ByteSet::EMPTY };
        for b in single.into_iter().flatten() {
            any.bytes.insert(b);
            if nocase {
                any.bytes.insert(b.to_ascii_uppercase());
            }
        }
        any
    }
}

/// The rules of a buffer that need one of some bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    /// The bytes of all rules.
    all: ByteSet,
    rules: Box<[(ByteSet, u32)]>,
}

impl Bytes {
    pub(super) fn new(list: &[(&AnyOf, u32)]) -> Option<Bytes> {
        let sets = list.iter().map(|(any, rule)| (any.bytes, *rule)).filter(|(set, _)| *set != ByteSet::EMPTY);
        let rules: Box<[(ByteSet, u32)]> = sets.collect();
        let mut all = ByteSet::EMPTY;
        rules.iter().for_each(|(set, _)| all.insert_all(*set));
        (!rules.is_empty()).then_some(Bytes { all, rules })
    }

    /// Adds the rules that need one of the bytes `have`.
    pub(super) fn candidates(&self, have: &ByteSet, out: &mut Vec<u32>) {
        if self.all.meets(have) {
            out.extend(self.rules.iter().filter(|(set, _)| set.meets(have)).map(|(_, rule)| *rule));
        }
    }
}
