//! Sets of byte values.

/// A bit for each byte value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(crate) const EMPTY: ByteSet = ByteSet([0; 4]);
    pub(crate) const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    /// The bytes that occur in `data`.
    pub(crate) fn of(data: &[u8]) -> ByteSet {
        let mut set = ByteSet::EMPTY;
        data.iter().for_each(|&b| set.insert(b));
        set
    }

    pub(crate) fn insert(&mut self, b: u8) {
        self.0[usize::from(b / 64)] |= 1 << (b % 64);
    }

    pub(crate) fn insert_all(&mut self, other: ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    /// Whether `other` has all of these bytes.
    pub(crate) fn is_within(&self, other: &ByteSet) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own & !other == 0)
    }

    /// Whether `other` has one of these bytes.
    pub(crate) fn meets(&self, other: &ByteSet) -> bool {
        self.0.iter().zip(&other.0).any(|(own, other)| own & other != 0)
    }
}
