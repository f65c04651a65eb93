//! Literals that can start at one fixed offset of a buffer.

use super::{Entry, Literal, entries};

/// The literals of one offset, by key length.
#[derive(Debug)]
pub(super) struct Place {
    offset: usize,
    /// One bit for each hash of two leading bytes. For most buffers this test excludes the offset.
    pairs: [u64; 16],
    keyed: Box<[Keyed]>,
}

/// Literals whose keys have the same length: their first bytes, up to four.
#[derive(Debug)]
struct Keyed {
    len: usize,
    table: Table,
    entries: Box<[Entry]>,
}

/// Shift that leaves ten bits of a hash, for [`Place::pairs`].
const PAIRS_SHIFT: u32 = 22;

/// The key length of `l` in bytes.
pub(super) fn key_len(l: &Literal) -> u32 {
    l.pattern.bytes.len().min(4) as u32
}

impl Place {
    /// A table for literals that can start at `offset`.
    pub(super) fn new(offset: u32, list: Vec<(&Literal, u32)>) -> Place {
        let keyed = (1..=4).filter_map(|len| {
            let here: Vec<_> = list.iter().copied().filter(|(l, _)| key_len(l) == len).collect();
            (!here.is_empty()).then(|| Keyed::new(len, here))
        });
        let mut pairs = [0u64; 16];
        for (l, _) in &list {
            let first = word(&l.pattern.bytes) & 0xffff;
            let mut set = |pair: u32| {
                let h = hash(pair, PAIRS_SHIFT);
                pairs[h / 64] |= 1 << (h % 64);
            };
            match l.pattern.bytes.len() {
                // Any second byte may follow.
                1 => (0..256).for_each(|second| set(first & 0xff | second << 8)),
                _ => set(first),
            }
        }
        Place { offset: offset as usize, pairs, keyed: keyed.collect() }
    }

    /// Adds the rules whose literal is in `data` at this offset. Returns false if `data` is too short.
    #[inline]
    pub(super) fn scan(&self, data: &[u8], out: &mut Vec<u32>) -> bool {
        let Some(here) = data.get(self.offset..) else { return false };
        let word = word(here);
        let pair = hash(word & 0xffff, PAIRS_SHIFT);
        if self.pairs[pair / 64] >> (pair % 64) & 1 == 1 {
            self.look(data, here.len(), word, out);
        }
        true
    }

    #[inline(never)]
    fn look(&self, data: &[u8], len: usize, word: u32, out: &mut Vec<u32>) {
        for k in &self.keyed {
            let key = word & k.table.mask;
            if len < k.len {
                continue;
            }
            for e in k.table.get(key).and_then(|r| k.entries.get(r)).unwrap_or(&[]) {
                if e.literal.is_at(data, self.offset) {
                    out.extend_from_slice(&e.rules);
                }
            }
        }
    }
}

impl Keyed {
    fn new(len: u32, list: Vec<(&Literal, u32)>) -> Keyed {
        let mask = u32::MAX >> (32 - 8 * len);
        let key = |e: &Entry| word(&e.literal.pattern.bytes) & mask;
        let mut entries = entries(list);
        entries.sort_by_key(key);
        let table = Table::new(mask, entries.iter().map(key));
        Keyed { len: len as usize, table, entries: entries.into_boxed_slice() }
    }
}

/// The first four bytes in little endian order, folded to one case (which also folds some other bytes). Missing bytes
/// are 0x20.
#[inline]
pub(super) fn word(bytes: &[u8]) -> u32 {
    let word = match bytes.first_chunk::<4>() {
        Some(b) => u32::from_le_bytes(*b),
        None => short_word(bytes),
    };
    word | 0x2020_2020
}

#[cold]
fn short_word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b))
}

/// Maps keys to ranges of a list that is sorted by key.
#[derive(Debug)]
pub(super) struct Table {
    /// The key bits that are compared.
    mask: u32,
    /// Unused bits of a hash.
    shift: u32,
    /// Open-addressing slots: key and range; an empty range marks a free slot.
    slots: Box<[(u32, u32, u32)]>,
}

impl Table {
    /// A table for `keys`, which must be sorted.
    pub(super) fn new(mask: u32, keys: impl Iterator<Item = u32>) -> Table {
        let keys: Vec<u32> = keys.collect();
        let size = (keys.len() * 2).next_power_of_two().max(2);
        let shift = 32 - size.trailing_zeros();
        let mut slots = vec![(0, 0, 0); size].into_boxed_slice();
        let mut from = 0u32;
        for same in keys.chunk_by(|a, b| a == b) {
            let Some(&key) = same.first() else { continue };
            let to = from + same.len() as u32;
            let mut at = hash(key, shift);
            while slots[at].2 != 0 {
                at = (at + 1) & (size - 1);
            }
            slots[at] = (key, from, to);
            from = to;
        }
        Table { mask, shift, slots }
    }

    /// The range of `key`.
    pub(super) fn get(&self, key: u32) -> Option<std::ops::Range<usize>> {
        let mut at = hash(key, self.shift);
        loop {
            match *self.slots.get(at)? {
                (_, _, 0) => return None,
                (k, from, to) if k == key => return Some(from as usize..to as usize),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }
}

/// Spreads a key over 32 bits, of which the upper ones are best mixed; returns the upper `32 - shift` bits.
pub(super) const fn hash(key: u32, shift: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b1) >> shift) as usize
}
