//! The loaded part of a dataset: a hash table over one block of bytes. Once built it is only read, except for marks.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_packet::KeyedHash;

/// The value of an entry without one.
pub(super) const NO_VALUE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    start: usize,
    len: u32,
    /// A reputation, or the number of a JSON object.
    value: u32,
    /// Whether the entry is in the dataset: rules may remove it and add it again.
    live: AtomicBool,
}

/// The table. Keys come from files, but lookups use bytes from the network, so the hash has a random key.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Entry numbers, from 1. The length is a power of two, and at most half of the slots are used.
    slots: Vec<u32>,
    contexts: Vec<Box<[u8]>>,
    hasher: KeyedHash,
}

impl Table {
    /// An empty table with room for `entries`.
    pub(super) fn new(entries: usize) -> Table {
        Table {
            bytes: Vec::new(),
            entries: Vec::with_capacity(entries),
            slots: vec![0; entries.saturating_mul(2).next_power_of_two().max(16)],
            contexts: Vec::new(),
            hasher: KeyedHash::default(),
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        let contexts: usize = self.contexts.iter().map(|c| c.len() + size_of::<Box<[u8]>>()).sum();
        (self.bytes.len() + self.entries.len() * size_of::<Entry>() + self.slots.len() * 4 + contexts) as u64
    }

    fn key(&self, e: &Entry) -> &[u8] {
        self.bytes.get(e.start..e.start + e.len as usize).unwrap_or(&[])
    }

    /// The slot of `key`, or the free slot for it.
    fn slot(&self, key: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hash(key) as usize & mask;
        loop {
            match self.slots.get(at) {
                None | Some(0) => return at,
                Some(&n) => {
                    if self.entries.get(n as usize - 1).is_some_and(|e| self.key(e) == key) {
                        return at;
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The number of the entry for `key`.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        self.slots.get(self.slot(key)).and_then(|n| n.checked_sub(1))
    }

    /// Adds `key` unless it exists: the first entry counts. Returns whether it is new; false also if the table is full.
    pub(super) fn insert(&mut self, key: &[u8], value: u32) -> bool {
        let Ok(len) = u32::try_from(key.len()) else { return false };
        if self.entries.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let at = self.slot(key);
        let number = u32::try_from(self.entries.len() + 1).unwrap_or(0);
        match self.slots.get_mut(at) {
            Some(s) if *s == 0 && number != 0 => *s = number,
            _ => return false,
        }
        self.entries.push(Entry { start: self.bytes.len(), len, value, live: AtomicBool::new(true) });
        self.bytes.extend_from_slice(key);
        true
    }

    /// Adds `key` with a JSON object, unless it exists.
    pub(super) fn insert_with(&mut self, key: &[u8], context: Vec<u8>) -> bool {
        let new = self.insert(key, self.contexts.len() as u32);
        if new {
            self.contexts.push(context.into());
        }
        new
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        self.slots = vec![0; size];
        for n in 0..self.entries.len() {
            let Some(e) = self.entries.get(n) else { break };
            let at = self.slot(self.key(e));
            if let Some(s) = self.slots.get_mut(at) {
                *s = n as u32 + 1;
            }
        }
    }

    fn entry(&self, n: u32) -> Option<&Entry> {
        self.entries.get(n as usize)
    }

    pub(super) fn is_live(&self, n: u32) -> bool {
        self.entry(n).is_some_and(|e| e.live.load(Ordering::Relaxed))
    }

    pub(super) fn value(&self, n: u32) -> u32 {
        self.entry(n).map_or(NO_VALUE, |e| e.value)
    }

    /// The JSON object with that number.
    pub(super) fn context(&self, value: u32) -> Option<&[u8]> {
        self.contexts.get(value as usize).map(|c| &**c)
    }

    /// Removes an entry; returns whether it was live.
    pub(super) fn bury(&self, n: u32) -> bool {
        self.is_live(n) && self.entry(n).is_some_and(|e| e.live.swap(false, Ordering::Relaxed))
    }

    /// Restores an entry; returns whether it was removed.
    pub(super) fn revive(&self, n: u32) -> bool {
        !self.is_live(n) && self.entry(n).is_some_and(|e| !e.live.swap(true, Ordering::Relaxed))
    }

    /// Removes all entries.
    pub(super) fn bury_all(&self) {
        for e in &self.entries {
            e.live.store(false, Ordering::Relaxed);
        }
    }

    /// The keys of live entries.
    pub(super) fn live(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|e| e.live.load(Ordering::Relaxed)).map(|e| self.key(e))
    }
}
