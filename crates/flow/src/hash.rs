//! The keyed hash of flow keys.
//!
//! The hash input comes from packets, so an attacker who knew the hash could choose colliding keys. [`HashKey::hash`]
//! is NH (J. Black et al., "UMAC: Fast and Secure Message Authentication", 1999, section 4) with 64-bit words: each
//! pair of words is added to a pair of key words and multiplied to 128 bits, and the products are summed. For any two
//! different inputs, at most one key in 2^64 makes the sums equal. Two folded multiplications with further key words
//! reduce the sum to 64 bits. The table's hash is never visible outside: flow identifiers in events use a key of their
//! own.

use std::hash::{BuildHasher, RandomState};

/// Mixes two words by folding the halves of their 128-bit product.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Number of input words.
const WORDS: usize = 6;

/// The key of the hash. Without it an attacker cannot choose colliding inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey {
    /// The addend for each word.
    words: [u64; WORDS],
    /// The multipliers that mix the sum.
    last: [u64; 4],
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// A secret key, from 128 random bits of the operating system.
    pub fn random() -> HashKey {
        let state = RandomState::new();
        HashKey::of(|n| state.hash_one(n))
    }

    /// A key derived from a number: for tests, and for reproducible runs (`--no-random`).
    pub fn fixed(number: u64) -> HashKey {
        // SplitMix64 (G. Steele et al., 2014).
        HashKey::of(|n| {
            let z = number.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }

    fn of(word: impl Fn(u64) -> u64) -> HashKey {
        HashKey {
            words: std::array::from_fn(|n| word(n as u64)),
            // An even factor would lose bits.
            last: std::array::from_fn(|n| word((WORDS + n) as u64) | 1),
        }
    }

    /// The hash of six words. All of its bits are equally good.
    #[inline]
    pub fn hash(&self, words: [u64; WORDS]) -> u64 {
        let [a, b, c, d, e, f] = words;
        let [ka, kb, kc, kd, ke, kf] = self.words;
        let product = |x: u64, kx: u64, y: u64, ky: u64| {
            u128::from(x.wrapping_add(kx)).wrapping_mul(u128::from(y.wrapping_add(ky)))
        };
        let sum = product(a, ka, b, kb).wrapping_add(product(c, kc, d, kd)).wrapping_add(product(e, ke, f, kf));
        let [l0, l1, l2, l3] = self.last;
        let mixed = fold(sum as u64 ^ l0, (sum >> 64) as u64 ^ l1);
        // The sum also enters here, so that a product of 0 does not give the same hash for all inputs.
        fold(mixed ^ sum as u64 ^ l2, l3)
    }

    /// A word of the key, for hashes of another form. Words 0 to 3 are odd.
    pub const fn word(&self, number: usize) -> u64 {
        if number < self.last.len() { self.last[number] } else { self.words[number % WORDS] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_decides() {
        let words = [0, 0x0a00_0001, 0, 0x0a00_0002, 0x0035_03e8, 0];
        let fixed = HashKey::fixed(1);
        assert_eq!(fixed.hash(words), HashKey::fixed(1).hash(words));
        assert_ne!(fixed.hash(words), HashKey::fixed(2).hash(words));
        assert_ne!(HashKey::random().hash(words), HashKey::random().hash(words));
        assert_eq!(format!("{fixed:?}"), "HashKey(secret)");
    }

    /// Inputs with small differences, such as the addresses and ports of a scan, spread evenly over buckets.
    #[test]
    fn neighbours_spread() {
        for key in [HashKey::fixed(0), HashKey::fixed(7), HashKey::random()] {
            for place in 0..WORDS {
                for shift in [0, 16, 32, 48] {
                    let mut buckets = [0u32; 256];
                    for n in 0..256 * 64u64 {
                        let mut words = [1, 2, 3, 4, 5, 6];
                        words[place] ^= n << shift;
                        // As the flow table selects its bucket: the upper bits of the lower half.
                        buckets[(key.hash(words) as u32 >> 24) as usize] += 1;
                    }
                    // 64 expected; the bounds are far outside of chance (8 standard deviations).
                    let (least, most) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
                    assert!(*least > 8 && *most < 128, "word {place}, bit {shift}: {least} to {most}");
                }
            }
        }
    }

    /// Each input bit changes about half of the hash bits.
    #[test]
    fn every_bit_counts() {
        let key = HashKey::fixed(3);
        let before = [0u64; WORDS];
        for place in 0..WORDS {
            for bit in 0..64 {
                let mut turned = 0;
                for n in 0..64u64 {
                    let mut a = before.map(|w| w.wrapping_add(n.wrapping_mul(0x9e37_79b9)));
                    let h = key.hash(a);
                    a[place] ^= 1 << bit;
                    turned += (h ^ key.hash(a)).count_ones();
                }
                assert!((24 * 64..40 * 64).contains(&turned), "word {place}, bit {bit}: {turned} of {}", 64 * 64);
            }
        }
    }
}
