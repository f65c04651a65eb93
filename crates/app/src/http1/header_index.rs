//! Finds header fields by name in messages that have many.
//!
//! A message may have as many fields as `headers-limit` allows, with arbitrary names. Comparing each name with all previous
//! ones would take quadratic time. The index hashes names with a random key, so that a sender cannot cause collisions.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use margay_packet::KeyedHash;

use super::names::lower;

/// The number of fields from which a message has an index. Most messages have fewer, and a linear search is enough.
pub(super) const FROM: usize = 32;

/// The hash of a map whose keys are keyed hashes: the key itself.
#[derive(Debug, Clone, Copy, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsIs>>;

/// The hashes of a name in lower case.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameHash {
    exact: u64,
    /// Without null bytes.
    stripped: u64,
    nulls: bool,
}

/// The first field of each name, by the hash of the name in lower case. The caller compares the names.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    key: KeyedHash,
    exact: ByHash<u32>,
    /// By the hash of the name without null bytes: fields whose name has null bytes and is longer than all earlier ones with
    /// the same hash, in order, with the lengths of their names.
    stripped: ByHash<Vec<(u32, u32)>>,
    /// The number of fields in `stripped`.
    lengths: usize,
    /// The first field of each name, in order.
    pub firsts: Vec<u32>,
}

/// Whether one of eight bytes is zero.
const fn has_zero(word: u64) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
}

impl Index {
    /// Adds the first field of a name.
    pub(super) fn add(&mut self, name: &[u8], hash: NameHash, field: u32) {
        self.firsts.push(field);
        self.exact.entry(hash.exact).or_insert(field);
        if hash.nulls {
            let longest = self.stripped.entry(hash.stripped).or_default();
            let len = name.len() as u32;
            if longest.last().is_none_or(|&(_, l)| l < len) {
                longest.push((field, len));
                self.lengths += 1;
            }
        }
    }

    /// The candidate field for exactly this name, in any case.
    pub(super) fn exact(&self, hash: NameHash) -> Option<u32> {
        self.exact.get(&hash.exact).copied()
    }

    /// The first candidate field for this name with additional null bytes, in any case.
    pub(super) fn with_nulls(&self, name: &[u8], hash: NameHash) -> Option<u32> {
        if self.stripped.is_empty() {
            return None;
        }
        let longest = self.stripped.get(&hash.stripped)?;
        let at = longest.partition_point(|&(_, len)| len as usize <= name.len());
        longest.get(at).map(|&(field, _)| field)
    }

    /// The hashes of a name.
    pub(super) fn hash(&self, name: &[u8]) -> NameHash {
        let exact = self.of(name);
        let nulls = memchr::memchr(0, name).is_some();
        NameHash { exact, stripped: if nulls { self.without_nulls(name) } else { exact }, nulls }
    }

    fn of(&self, name: &[u8]) -> u64 {
        let mut hasher = self.key.build_hasher();
        let (blocks, rest) = name.as_chunks::<8>();
        for block in blocks {
            hasher.write_u64(lower(u64::from_le_bytes(*block)));
        }
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        hasher.write_u64(lower(u64::from_le_bytes(last)));
        hasher.write_usize(name.len());
        hasher.finish()
    }

    fn without_nulls(&self, name: &[u8]) -> u64 {
        // Longer names are rare enough for an allocation.
        let mut few = [0; 512];
        let mut many;
        let out = if name.len() <= few.len() {
            &mut few[..]
        } else {
            many = vec![0; name.len()];
            &mut many[..]
        };
        let mut n = 0;
        for block in name.chunks(8) {
            let whole = <[u8; 8]>::try_from(block).is_ok_and(|b| !has_zero(u64::from_le_bytes(b)));
            if whole && let Some(to) = out.get_mut(n..n + 8) {
                to.copy_from_slice(block);
                n += 8;
                continue;
            }
            for &b in block {
                if let Some(to) = out.get_mut(n) {
                    *to = b;
                }
                n += usize::from(b != 0);
            }
        }
        self.of(out.get(..n).unwrap_or(&[]))
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        // A table has an eighth more slots than its capacity, and one control byte for each.
        let table = |places: usize, each: usize| places * (each + 1) * 8 / 7;
        table(self.exact.capacity(), size_of::<(u64, u32)>())
            + table(self.stripped.capacity(), size_of::<(u64, Vec<(u32, u32)>)>())
            + self.lengths * 2 * size_of::<(u32, u32)>()
            + self.firsts.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::{has_zero, lower};

    #[test]
    fn zeros_are_seen() {
        for at in 0..8 {
            for b in 0..=255u8 {
                let mut text = [b'a'; 8];
                text[at] = b;
                assert_eq!(has_zero(u64::from_le_bytes(text)), b == 0, "{b} at {at}");
            }
        }
    }

    #[test]
    fn only_letters_change() {
        for b in 0..=255u8 {
            let text = [b, b'A', b, b'[', b'z', b, b'@', b'Z'];
            assert_eq!(
                lower(u64::from_le_bytes(text)),
                u64::from_le_bytes(text.map(|b| b.to_ascii_lowercase())),
                "{b}"
            );
        }
    }
}
