//! Finds header fields by name in messages that have many.
//!
//! A message may have as many fields as `headers-limit` allows, with arbitrary names. Comparing each name with all previous
//! ones would take quadratic time. The index hashes names with a random key, so that a sender cannot cause collisions.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The number of fields from which a message has an index. Most messages have fewer, and a linear search is enough.
pub(super) const FROM: usize = 32;

/// The first field of each name, by the hash of the name in lower case. The caller compares the names.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    keys: RandomState,
    exact: HashMap<u64, u32>,
    /// By the hash of the name without null bytes: fields whose name has null bytes and is longer than all earlier ones with
    /// the same hash, in order, with the lengths of their names.
    stripped: HashMap<u64, Vec<(u32, u32)>>,
    /// The number of fields in `stripped`.
    lengths: usize,
    /// The first field of each name, in order.
    pub firsts: Vec<u32>,
}

impl Index {
    /// Adds the first field of a name.
    pub(super) fn add(&mut self, name: &[u8], field: u32) {
        self.firsts.push(field);
        let hash = self.hash(name, false);
        self.exact.entry(hash).or_insert(field);
        if name.contains(&0) {
            let longest = self.stripped.entry(self.hash(name, true)).or_default();
            let len = name.len() as u32;
            if longest.last().is_none_or(|&(_, l)| l < len) {
                longest.push((field, len));
                self.lengths += 1;
            }
        }
    }

    /// The candidate field for exactly this name, in any case.
    pub(super) fn exact(&self, name: &[u8]) -> Option<u32> {
        self.exact.get(&self.hash(name, false)).copied()
    }

    /// The first candidate field for this name with additional null bytes, in any case.
    pub(super) fn with_nulls(&self, name: &[u8]) -> Option<u32> {
        if self.stripped.is_empty() {
            return None;
        }
        let longest = self.stripped.get(&self.hash(name, true))?;
        let at = longest.partition_point(|&(_, len)| len as usize <= name.len());
        longest.get(at).map(|&(field, _)| field)
    }

    fn hash(&self, name: &[u8], strip: bool) -> u64 {
        let mut hasher = self.keys.build_hasher();
        let mut lower = [0; 64];
        let mut n = 0;
        for b in name.iter().filter(|&&b| !strip || b != 0) {
            if n == lower.len() {
                hasher.write(&lower);
                n = 0;
            }
            if let Some(to) = lower.get_mut(n) {
                *to = b.to_ascii_lowercase();
                n += 1;
            }
        }
        hasher.write(lower.get(..n).unwrap_or(&[]));
        hasher.finish()
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
