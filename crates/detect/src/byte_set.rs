//! Sets of byte values.

/// So many bytes are cheaper to add one by one.
const FEW: usize = 64;

/// A bit for each byte value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(crate) const EMPTY: ByteSet = ByteSet([0; 4]);
    pub(crate) const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    /// The bytes that occur in `data`.
    pub(crate) fn of(data: &[u8]) -> ByteSet {
        let mut set = ByteSet::EMPTY;
        if data.len() <= FEW {
            data.iter().for_each(|&b| set.insert(b));
            return set;
        }
        // Single stores are faster than setting bits, whose result the next byte waits for.
        let mut seen = [0_u8; 256];
        for &b in data {
            seen[usize::from(b)] = 1;
        }
        let (eights, _) = seen.as_chunks::<8>();
        for (at, eight) in eights.iter().enumerate() {
            // The product moves the lowest bit of byte n to bit 56 + n, and no two terms meet.
            let bits = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            set.0[at / 8] |= bits << (at % 8 * 8);
        }
        set
    }

    pub(crate) fn insert(&mut self, b: u8) {
        self.0[usize::from(b / 64)] |= 1 << (b % 64);
    }

    pub(crate) fn insert_all(&mut self, other: ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    pub(crate) const fn has(&self, b: u8) -> bool {
        self.0[(b / 64) as usize] >> (b % 64) & 1 == 1
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether it has a letter or a digit.
    pub(crate) fn has_alphanumeric(&self) -> bool {
        (0..=u8::MAX).any(|b| b.is_ascii_alphanumeric() && self.has(b))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Few bytes and many give the same set.
    #[test]
    fn of_few_and_many() {
        let data: Vec<u8> = (0..=255u8).rev().step_by(3).chain(*b"aZ09").collect();
        for len in [0, 1, 50, data.len()] {
            let part = data.get(..len).unwrap_or_default();
            let (few, many) = (ByteSet::of(part), ByteSet::of(&part.repeat(FEW)));
            assert_eq!(few, many);
            assert!((0..=255u8).all(|b| part.contains(&b) == few.meets(&ByteSet::of(&[b]))));
        }
    }
}
