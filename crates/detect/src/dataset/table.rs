//! The loaded part of a set: a hash table over one stretch of bytes. Once made it is only read, but for marks.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

/// The value of an entry that has none.
pub(super) const NO_VALUE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    start: usize,
    len: u32,
    /// A reputation, or the number of a JSON object.
    value: u32,
    /// Whether it is in the set: rules may take it out, and put it back.
    live: AtomicBool,
}

/// The table. Keys come from files and are looked up with what is on the wire: the hash is keyed at random.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Numbers of entries, from 1; a power of two of them, at most half in use.
    slots: Vec<u32>,
    contexts: Vec<Box<[u8]>>,
    hasher: RandomState,
}

impl Table {
    /// An empty table with room for `entries`.
    pub(super) fn new(entries: usize) -> Table {
        Table {
            bytes: Vec::new(),
            entries: Vec::with_capacity(entries),
            slots: vec![0; entries.saturating_mul(2).next_power_of_two().max(16)],
            contexts: Vec::new(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> u64 {
        let contexts: usize = self.contexts.iter().map(|c| c.len() + size_of::<Box<[u8]>>()).sum();
        (self.bytes.len() + self.entries.len() * size_of::<Entry>() + self.slots.len() * 4 + contexts) as u64
    }

    fn key(&self, e: &Entry) -> &[u8] {
        self.bytes.get(e.start..e.start + e.len as usize).unwrap_or(&[])
    }

    /// The slot of `key`, or the empty one where it would be.
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

    /// The number of the entry of `key`.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        self.slots.get(self.slot(key)).and_then(|n| n.checked_sub(1))
    }

    /// Puts `key` in, unless it is there: the first one counts. Whether it is new; false also where the table is full.
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

    /// Puts `key` in with a JSON object, unless it is there.
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

    /// The JSON object of that number.
    pub(super) fn context(&self, value: u32) -> Option<&[u8]> {
        self.contexts.get(value as usize).map(|c| &**c)
    }

    /// Takes an entry out; whether it was in.
    pub(super) fn bury(&self, n: u32) -> bool {
        self.is_live(n) && self.entry(n).is_some_and(|e| e.live.swap(false, Ordering::Relaxed))
    }

    /// Puts an entry back; whether it was out.
    pub(super) fn revive(&self, n: u32) -> bool {
        !self.is_live(n) && self.entry(n).is_some_and(|e| !e.live.swap(true, Ordering::Relaxed))
    }

    /// Takes all entries out.
    pub(super) fn bury_all(&self) {
        for e in &self.entries {
            e.live.store(false, Ordering::Relaxed);
        }
    }

    /// The keys that are in.
    pub(super) fn live(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|e| e.live.load(Ordering::Relaxed)).map(|e| self.key(e))
    }
}
