//! A fast hash with a secret key, for tables whose keys come from packets.
//!
//! Each word is added to the state by a folded multiplication with secret words, as in wyhash and foldhash. Without the
//! key a sender cannot choose keys that collide, and no hash is ever visible outside. SipHash takes three times as many
//! instructions for an address.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys come from packets.
pub type KeyedMap<K, V> = HashMap<K, V, KeyedHash>;
/// A set of values that come from packets.
pub type KeyedSet<K> = HashSet<K, KeyedHash>;

/// Mixes two words by folding the halves of their 128-bit product.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The key of a table's hash: 128 random bits of the operating system, another for each table of a thread.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    start: u64,
    factor: u64,
}

impl std::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

impl Default for KeyedHash {
    #[inline]
    fn default() -> KeyedHash {
        thread_local! {
            static KEY: Cell<KeyedHash> = {
                let state = RandomState::new();
                // An even factor would lose bits.
                Cell::new(KeyedHash { start: state.hash_one(0), factor: state.hash_one(1) | 1 })
            };
        }
        KEY.with(|key| {
            let now = key.get();
            // Copying one table into another of the same key would fill it in order of its places, which is slow.
            key.set(KeyedHash { start: now.start.wrapping_add(now.factor), ..now });
            now
        })
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.start, key: *self }
    }
}

/// The state of a hash.
#[derive(Debug, Clone, Copy)]
pub struct KeyedHasher {
    state: u64,
    key: KeyedHash,
}

impl KeyedHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.key.factor);
    }

    /// Adds 16 bytes with one multiplication.
    #[inline]
    fn add_two(&mut self, block: [u8; 16]) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = block;
        let (first, second) =
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        self.state = fold(self.state ^ first, self.key.factor ^ second);
    }
}

impl Hasher for KeyedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        // The length tells values apart that differ in zeros at their end.
        self.add(bytes.len() as u64);
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            self.add_two(*block);
        }
        match *rest {
            [] => {}
            [a, b, c, d] => self.add(u64::from(u32::from_le_bytes([a, b, c, d]))),
            _ => {
                let mut block = [0; 16];
                block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                self.add_two(block);
            }
        }
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }

    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.add(u64::from(n));
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    #[inline]
    fn write_u128(&mut self, n: u128) {
        self.add_two(n.to_le_bytes());
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    #[inline]
    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The last word entered by one multiplication, whose lower bits depend on few of its bits.
        fold(self.state, self.key.factor ^ self.key.start)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn the_key_is_another_for_each_table() {
        let (a, b) = (KeyedHash::default(), KeyedHash::default());
        assert!((0..64u64).all(|n| a.hash_one(n) != b.hash_one(n)));
        let there = std::thread::spawn(|| KeyedHash::default().hash_one(1)).join().unwrap();
        assert_ne!(a.hash_one(1), there);
        assert_eq!(format!("{a:?}"), "KeyedHash(secret)");
    }

    #[test]
    fn lengths_and_zeros_count() {
        let key = KeyedHash::default();
        let mut found = HashSet::new();
        for len in 0..200 {
            assert!(found.insert(key.hash_one(vec![0u8; len])));
            assert!(found.insert(key.hash_one([vec![1u8], vec![0u8; len]].concat())));
        }
        assert_ne!(key.hash_one(("ab", "c")), key.hash_one(("a", "bc")));
    }

    /// Neighbouring addresses and texts spread evenly, by the lowest bits and by the highest seven, which the map uses.
    #[test]
    fn neighbours_spread() {
        for _ in 0..4 {
            let key = KeyedHash::default();
            for shift in [0, 8, 16] {
                let hashes: [Vec<u64>; 3] = [
                    (0..256 * 64u32).map(|n| key.hash_one(IpAddr::V4(Ipv4Addr::from_bits(n << shift)))).collect(),
                    (0..256 * 64u64).map(|n| key.hash_one(n << shift)).collect(),
                    (0..256 * 64u64).map(|n| key.hash_one(format!("{n}.example.org"))).collect(),
                ];
                for hashes in hashes {
                    for bits in [0, 56] {
                        let mut buckets = [0u32; 256];
                        for h in &hashes {
                            buckets[(h >> bits) as usize & 255] += 1;
                        }
                        // 64 expected; the bounds are far outside of chance (8 standard deviations).
                        let (least, most) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
                        assert!(*least > 8 && *most < 128, "{shift}, {bits}: {least} to {most}");
                    }
                }
            }
        }
    }

    /// Each bit of a text changes about half of the hash.
    #[test]
    fn every_bit_counts() {
        let key = KeyedHash::default();
        for len in [1usize, 4, 8, 16, 17, 40] {
            for bit in 0..8 * len {
                let mut turned = 0;
                for n in 0..64u8 {
                    let mut text = vec![n.wrapping_mul(37); len];
                    let before = key.hash_one(&text);
                    text[bit / 8] ^= 1 << (bit % 8);
                    turned += (before ^ key.hash_one(&text)).count_ones();
                }
                assert!((24 * 64..40 * 64).contains(&turned), "{len} bytes, bit {bit}: {turned} of {}", 64 * 64);
            }
        }
    }
}
