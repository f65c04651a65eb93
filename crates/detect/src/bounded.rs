//! A hash table of bounded size whose keys come from packets.
//!
//! The hash has a random key, so that an attacker cannot choose keys that
//! collide. Entries are stored in one vector. An index of entry positions uses linear probing and is at most three
//! quarters full. If the table is full, an insertion inspects a few entries, from where the last inspection stopped, and
//! evicts some. So the cost of an insertion does not grow with the table.

use std::hash::{BuildHasher, Hash};

use margay_packet::KeyedHash;

/// Entries inspected to make room for a new one.
const LOOKS: usize = 16;
/// Most bytes of the index per entry: the index doubles when it is three quarters full.
const INDEX: usize = 11;
/// Smallest allocation, in entries.
const LEAST: usize = 64;

/// What an entry is worth when another needs room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    /// It has expired and is evicted first.
    Nothing,
    /// It is evicted if no inspected entry is worth less.
    Some(u64),
    /// It is never evicted.
    Kept,
}

/// The result of an insertion.
#[derive(Debug)]
pub(crate) enum Inserted<'a, V> {
    /// The key existed.
    There(&'a mut V),
    /// The key is new. `evicted` says whether a valuable entry was evicted for it.
    New { value: &'a mut V, evicted: bool },
    /// The table is full and no entry may be evicted.
    Full,
}

#[derive(Debug)]
struct Entry<K, V> {
    hash: u32,
    key: K,
    value: V,
}

/// A hash table with a limit.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    entries: Vec<Entry<K, V>>,
    /// Positions of entries plus one, 0 for an empty slot. Its length is a power of two, or 0 at first.
    index: Vec<u32>,
    hasher: KeyedHash,
    limit: usize,
    /// Minimum length of the index once it exists.
    least: usize,
    /// Where the next inspection begins.
    cursor: usize,
}

impl<K: Hash + Eq, V> Bounded<K, V> {
    /// Most bytes of an entry, with its part of the index.
    pub(crate) const ENTRY_SIZE: usize = size_of::<Entry<K, V>>() + INDEX;

    /// An empty table with a limit of `limit` entries, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        let (entries, index) = (Vec::new(), Vec::new());
        Bounded { entries, index, hasher: KeyedHash::default(), limit: 0, least: LEAST, cursor: 0 }.limited(limit)
    }

    fn limited(mut self, limit: usize) -> Self {
        self.set_limit(limit);
        self
    }

    /// Sets the capacity that the index gets with the first entry.
    pub(crate) fn expecting(mut self, entries: usize) -> Self {
        self.least = entries.clamp(LEAST, self.limit.max(LEAST));
        self
    }

    /// The number of entries that fit into `bytes`, at least one.
    pub(crate) const fn fitting(bytes: u64) -> usize {
        let n = bytes / Self::ENTRY_SIZE as u64;
        if n == 0 {
            1
        } else if n > u32::MAX as u64 - 1 {
            u32::MAX as usize - 1
        } else {
            n as usize
        }
    }

    /// Changes the limit. Existing entries stay.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, u32::MAX as usize - 1);
    }

    /// The limit.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// The number of entries, including expired ones not yet evicted.
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes allocated.
    pub(crate) const fn memory(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry<K, V>>() + self.index.capacity() * size_of::<u32>()) as u64
    }

    fn hash(&self, key: &K) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// The index slot of the key, or the free slot for it.
    fn slot(&self, hash: u32, key: &K) -> usize {
        let mask = self.index.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(n) = self.index.get(at).and_then(|n| n.checked_sub(1)) {
            if self.entries.get(n as usize).is_some_and(|e| e.hash == hash && e.key == *key) {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    fn place(&self, key: &K) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let n = self.index.get(self.slot(self.hash(key), key))?.checked_sub(1)?;
        Some(n as usize)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(self.place(key)?).map(|e| &e.value)
    }

    /// The value of a key, to change.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        self.entries.get_mut(place).map(|e| &mut e.value)
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key)?;
        Some(self.take(place))
    }

    /// The value of a key, created with `make` if it is missing. If the table is full, `worth` rates the entries that
    /// may be evicted.
    pub(crate) fn insert(&mut self, key: K, make: impl FnOnce() -> V, worth: impl Fn(&V) -> Worth) -> Inserted<'_, V> {
        let hash = self.hash(&key);
        if let Some(n) = self.index.get(self.slot(hash, &key)).and_then(|n| n.checked_sub(1)) {
            return match self.entries.get_mut(n as usize) {
                Some(e) => Inserted::There(&mut e.value),
                None => Inserted::Full,
            };
        }
        let mut evicted = false;
        if self.entries.len() >= self.limit {
            match self.make_room(worth) {
                Worth::Nothing => {}
                Worth::Some(_) => evicted = true,
                Worth::Kept => return Inserted::Full,
            }
        }
        self.grow();
        let slot = self.slot(hash, &key);
        if let Some(n) = self.index.get_mut(slot) {
            *n = self.entries.len() as u32 + 1;
        }
        self.entries.push(Entry { hash, key, value: make() });
        match self.entries.last_mut() {
            Some(e) => Inserted::New { value: &mut e.value, evicted },
            None => Inserted::Full,
        }
    }

    /// Inspects a few entries and evicts the worthless ones, or else the one worth least. Returns the worth of what it
    /// evicted; [`Worth::Kept`] if it evicted nothing.
    fn make_room(&mut self, worth: impl Fn(&V) -> Worth) -> Worth {
        let mut least = (Worth::Kept, 0);
        let mut gone = false;
        for _ in 0..LOOKS.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            let Some(e) = self.entries.get(self.cursor) else { break };
            match worth(&e.value) {
                Worth::Nothing => {
                    // The last entry moves into its place and is inspected next.
                    self.take(self.cursor);
                    gone = true;
                }
                is => {
                    if is < least.0 {
                        least = (is, self.cursor);
                    }
                    self.cursor += 1;
                }
            }
        }
        if gone {
            return Worth::Nothing;
        }
        if least.0 != Worth::Kept {
            self.take(least.1);
        }
        least.0
    }

    /// Allocates memory for one more entry.
    fn grow(&mut self) {
        let len = self.entries.len();
        if len == self.entries.capacity() {
            // Grow in small steps to allocate little more than needed.
            self.entries.reserve_exact((len / 8).max(LEAST).min(self.limit.saturating_sub(len).max(1)));
        }
        if self.index.is_empty() || (len + 1) * 4 > self.index.len() * 3 {
            let size = ((len + 1).max(self.least) * 4 / 3 + 1).next_power_of_two().max(self.index.len() * 2);
            self.index = vec![0; size];
            let mask = size - 1;
            for (n, e) in (1u32..).zip(&self.entries) {
                let mut at = e.hash as usize & mask;
                while self.index.get(at).is_some_and(|n| *n != 0) {
                    at = (at + 1) & mask;
                }
                if let Some(slot) = self.index.get_mut(at) {
                    *slot = n;
                }
            }
        }
    }

    /// Removes the entry at a position; the last entry moves there.
    fn take(&mut self, place: usize) -> V {
        let last = self.entries.len() - 1;
        self.unlink(place);
        if place != last
            && let Some(at) = self.link(last)
            && let Some(n) = self.index.get_mut(at)
        {
            *n = place as u32 + 1;
        }
        self.entries.swap_remove(place).value
    }

    /// The index slot of the entry at a position.
    fn link(&self, place: usize) -> Option<usize> {
        let mask = self.index.len().wrapping_sub(1);
        let mut at = self.entries.get(place)?.hash as usize & mask;
        while *self.index.get(at)? != place as u32 + 1 {
            at = (at + 1) & mask;
        }
        Some(at)
    }

    /// Removes an entry from the index and moves up the entries behind it that probing would no longer find.
    fn unlink(&mut self, place: usize) {
        let Some(mut hole) = self.link(place) else { return };
        let mask = self.index.len().wrapping_sub(1);
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(n) = self.index.get(at).and_then(|n| n.checked_sub(1)) else { break };
            let home = self.entries.get(n as usize).map_or(at, |e| e.hash as usize & mask);
            // The entry's home slot is not between the hole and its slot, so it can move up.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                if let Some(slot) = self.index.get_mut(hole) {
                    *slot = n + 1;
                }
                hole = at;
            }
        }
        if let Some(slot) = self.index.get_mut(hole) {
            *slot = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn value<'a>(i: Inserted<'a, u32>) -> Option<(&'a mut u32, bool)> {
        match i {
            Inserted::There(v) => Some((v, false)),
            Inserted::New { value, .. } => Some((value, true)),
            Inserted::Full => None,
        }
    }

    proptest! {
        /// With enough room it behaves like a map under any sequence of insertions and removals.
        #[test]
        fn as_a_map(ops in proptest::collection::vec((0u16..200, any::<bool>()), 0..600)) {
            let mut table = Bounded::new(1000);
            let mut map = HashMap::new();
            for (n, (key, put)) in ops.into_iter().enumerate() {
                if put {
                    let (v, new) = value(table.insert(key, || n as u32, |_| Worth::Kept)).unwrap();
                    prop_assert_eq!(new, !map.contains_key(&key));
                    prop_assert_eq!(*v, *map.entry(key).or_insert(n as u32));
                } else {
                    prop_assert_eq!(table.remove(&key), map.remove(&key));
                }
                prop_assert_eq!(table.len(), map.len());
            }
            for key in 0..200 {
                prop_assert_eq!(table.get(&key), map.get(&key));
            }
        }
    }

    #[test]
    fn what_is_worth_least_of_a_few_goes() {
        let mut table = Bounded::new(LOOKS);
        let put =
            |table: &mut Bounded<u32, u32>, key: u32| match table.insert(key, || key, |&v| Worth::Some(u64::from(v))) {
                Inserted::New { evicted, .. } => evicted,
                other => panic!("{other:?}"),
            };
        for key in 10..10 + LOOKS as u32 {
            assert!(!put(&mut table, key));
        }
        assert!(put(&mut table, 99));
        assert_eq!((table.get(&10), table.get(&11), table.get(&99), table.len()), (None, Some(&11), Some(&99), LOOKS));
        // Expired entries are evicted first, all that are inspected.
        let odd = |v: &u32| if v % 2 == 1 { Worth::Nothing } else { Worth::Some(0) };
        assert!(matches!(table.insert(100, || 100, odd), Inserted::New { evicted: false, .. }));
        assert!(table.get(&99).is_none() && table.get(&12).is_some() && table.len() < LOOKS);
        // If nothing may be evicted there is no room.
        let mut table = Bounded::new(1);
        assert!(matches!(table.insert(1, || 1, |_| Worth::Kept), Inserted::New { evicted: false, .. }));
        assert!(matches!(table.insert(2, || 2, |_| Worth::Kept), Inserted::Full));
        assert!(matches!(table.insert(1, || 3, |_| Worth::Kept), Inserted::There(1)));
    }

    #[test]
    fn memory_is_what_it_may_be() {
        for bytes in [1_000u64, 100_000, 1 << 20, 5_000_000] {
            let limit = Bounded::<u64, [u64; 9]>::fitting(bytes);
            let mut table = Bounded::new(limit);
            let mut most = 0;
            for n in 0..2 * limit as u64 {
                table.insert(n, || [n; 9], |_| Worth::Some(0));
                most = most.max(table.memory());
            }
            assert_eq!(table.len(), limit);
            assert!(most <= bytes.max(8_000), "{most} of {bytes}");
            assert!(bytes < 100_000 || most > bytes * 8 / 10, "{most} of {bytes}");
        }
    }

    #[test]
    fn the_hash_is_another_each_time() {
        let (a, b) = (Bounded::<u64, ()>::new(1), Bounded::<u64, ()>::new(1));
        assert!((0..64).any(|n| a.hash(&n) != b.hash(&n)));
    }
}
