//! The hash of flow keys and addresses: 64-bit folded multiplication, seeded.

/// Mixes two words: the two halves of their 128-bit product, folded.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

const K: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// Hashes words with a seed.
#[inline]
pub(crate) fn words(seed: u64, words: &[u64]) -> u64 {
    let mut h = seed ^ K[0];
    for &w in words {
        h = fold(h ^ w, K[1]) ^ h.rotate_left(23);
    }
    fold(h ^ K[2], h.rotate_left(32) ^ K[0])
}

/// A seeded [`std::hash::BuildHasher`] for tables of addresses.
#[derive(Debug, Clone, Copy)]
pub struct Seeded(pub u64);

/// State of [`Seeded`].
#[derive(Debug, Clone, Copy)]
pub struct SeededHasher(u64);

impl std::hash::BuildHasher for Seeded {
    type Hasher = SeededHasher;
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0 ^ K[0])
    }
}

impl std::hash::Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for c in chunks {
            self.write_u64(u64::from_le_bytes(*c));
        }
        let mut last = [0u8; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(u64::from(v));
    }
    fn write_u16(&mut self, v: u16) {
        self.write_u64(u64::from(v));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = fold(self.0 ^ v, K[1]) ^ self.0.rotate_left(23);
    }
    fn finish(&self) -> u64 {
        fold(self.0 ^ K[2], self.0.rotate_left(32) ^ K[0])
    }
}
