//! A fast hash with a secret key, for tables whose keys come from packets.
//!
//! foldhash takes about a third of SipHash's instructions for an address; this is its variant that mixes all bits, because a map
//! uses the lowest and the highest ones. Its own random state derives its seeds from addresses and the time, so the seeds here
//! are of the operating system instead: 64 bits for the process and 64 for each table. Without them a sender cannot choose keys
//! that collide, and no hash is ever visible outside.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// A map whose keys come from packets.
pub type KeyedMap<K, V> = HashMap<K, V, KeyedHash>;
/// A set of values that come from packets.
pub type KeyedSet<K> = HashSet<K, KeyedHash>;

/// The key of a table's hash: random bits of the operating system, others for each table.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    table: u64,
    process: &'static SharedSeed,
}

impl std::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

impl Default for KeyedHash {
    #[inline]
    fn default() -> KeyedHash {
        static PROCESS: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(RandomState::new().hash_one(0)));
        thread_local! {
            /// The seed of the next table, and what it grows by. A copy of a table into another of the same key would arrive
            /// in order of its places, which is slow.
            static NEXT: Cell<(u64, u64)> = {
                let random = RandomState::new();
                Cell::new((random.hash_one(0), random.hash_one(1) | 1))
            };
        }
        let table = NEXT.with(|next| {
            let (table, step) = next.get();
            next.set((table.wrapping_add(step), step));
            table
        });
        KeyedHash { table, process: &PROCESS }
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        FoldHasher::with_seed(self.table, self.process)
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
