//! A table keyed by address, address pair or another small key, with limits and expiry: hosts and host pairs.

use std::hash::Hash;
use std::net::IpAddr;

use margay_packet::{KeyedHash, KeyedMap, Time};

/// An unordered pair of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpPair(IpAddr, IpAddr);

impl IpPair {
    /// The pair of `a` and `b`.
    pub fn new(a: IpAddr, b: IpAddr) -> Self {
        if a <= b { IpPair(a, b) } else { IpPair(b, a) }
    }
    /// Both addresses, the smaller first.
    pub const fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.0, self.1)
    }
}

/// Settings of a [`HostTable`] (`host:`, `ippair:`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostConfig {
    /// Most memory, in bytes; 0 means no limit.
    pub memcap: u64,
    /// Expected number of entries (`hash-size`).
    pub hash_size: u32,
    /// Entries allocated at the start (`prealloc`).
    pub prealloc: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig { memcap: 32 << 20, hash_size: 4096, prealloc: 1000 }
    }
}

/// A table's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostCounters {
    /// Entries in the table.
    pub active: u64,
    /// Entries not created because memory ran out (`memcap`).
    pub memcap: u64,
    /// Entries that expired.
    pub expired: u64,
    /// Memory in bytes (`memuse`).
    pub memuse: u64,
}

impl HostCounters {
    /// Calls `f` with each name below `prefix` (`host`, `ippair`) and value.
    pub fn for_each(&self, prefix: &str, f: &mut dyn FnMut(&str, u64)) {
        f(&format!("{prefix}.memuse"), self.memuse);
        f(&format!("{prefix}.memcap"), self.memcap);
    }
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    expires: Time,
}

/// Values by key, each with an expiry time.
#[derive(Debug)]
pub struct HostTable<K, V> {
    /// Random key and open addressing: there are no chains.
    places: KeyedMap<K, u32>,
    entries: Vec<Entry<K, V>>,
    cursor: usize,
    limit: usize,
    /// Counters.
    pub counters: HostCounters,
}

/// Most entries inspected to make room for a new one.
const MAKE_ROOM: usize = 64;

impl<K: Hash + Eq + Copy, V> HostTable<K, V> {
    /// Bytes of `memcap` that an entry takes: the entry and its slot in the hash table.
    pub const ENTRY_SIZE: u64 = (size_of::<Entry<K, V>>() + size_of::<(K, u32)>() + 1) as u64;

    /// An empty table.
    pub fn new(config: &HostConfig) -> Self {
        let limit = match config.memcap {
            0 => u64::from(u32::MAX - 1),
            memcap => (memcap / Self::ENTRY_SIZE).clamp(1, u64::from(u32::MAX - 1)),
        } as usize;
        let prealloc = (config.prealloc as usize).min(limit);
        let expected = prealloc.max((config.hash_size as usize).min(limit));
        HostTable {
            places: KeyedMap::with_capacity_and_hasher(expected, KeyedHash::default()),
            entries: Vec::with_capacity(prealloc),
            cursor: 0,
            limit,
            counters: HostCounters::default(),
        }
    }

    /// The number of entries, including expired ones not yet removed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`, unless it has expired at `now`.
    pub fn get(&self, key: &K, now: Time) -> Option<&V> {
        let e = self.entries.get(*self.places.get(key)? as usize)?;
        (e.expires > now).then_some(&e.value)
    }

    /// The value of `key`, to change, unless it has expired at `now`.
    pub fn get_mut(&mut self, key: &K, now: Time) -> Option<&mut V> {
        let e = self.entries.get_mut(*self.places.get(key)? as usize)?;
        (e.expires > now).then_some(&mut e.value)
    }

    /// The value of `key`, created if it is missing or expired. If the table is full and a few inspected entries have
    /// not expired, returns `None`, and [`HostCounters::memcap`] counts it. A new value expires at `expires`.
    pub fn get_or_insert_with(&mut self, key: K, now: Time, expires: Time, make: impl FnOnce() -> V) -> Option<&mut V> {
        if let Some(&at) = self.places.get(&key) {
            let e = self.entries.get_mut(at as usize)?;
            if e.expires <= now {
                e.value = make();
                e.expires = expires;
            }
            return Some(&mut e.value);
        }
        if self.entries.len() >= self.limit {
            self.expire(now, MAKE_ROOM);
            if self.entries.len() >= self.limit {
                self.counters.memcap += 1;
                return None;
            }
        }
        self.places.insert(key, self.entries.len() as u32);
        self.entries.push(Entry { key, value: make(), expires });
        self.count();
        self.entries.last_mut().map(|e| &mut e.value)
    }

    /// Sets the expiry time of `key`; with `extend`, keeps the later of both times.
    pub fn set_expiry(&mut self, key: &K, expires: Time, extend: bool) {
        if let Some(e) = self.places.get(key).and_then(|&at| self.entries.get_mut(at as usize)) {
            e.expires = if extend { e.expires.max(expires) } else { expires };
        }
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = *self.places.get(key)? as usize;
        self.take(at)
    }

    /// Removes entries expired at `now`. Inspects at most `budget` entries, from where the last call stopped. Returns
    /// the number removed.
    pub fn expire(&mut self, now: Time, budget: usize) -> usize {
        let mut gone = 0;
        for _ in 0..budget.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            match self.entries.get(self.cursor) {
                Some(e) if e.expires <= now => {
                    self.take(self.cursor);
                    gone += 1;
                }
                Some(_) => self.cursor += 1,
                None => break,
            }
        }
        self.counters.expired += gone as u64;
        gone
    }

    /// Every entry with its expiry time.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V, Time)> {
        self.entries.iter().map(|e| (&e.key, &e.value, e.expires))
    }

    fn take(&mut self, at: usize) -> Option<V> {
        if at >= self.entries.len() {
            return None;
        }
        let e = self.entries.swap_remove(at);
        self.places.remove(&e.key);
        if let Some(moved) = self.entries.get(at) {
            self.places.insert(moved.key, at as u32);
        }
        self.count();
        Some(e.value)
    }

    fn count(&mut self) {
        self.counters.active = self.entries.len() as u64;
        self.counters.memuse = self.counters.active * Self::ENTRY_SIZE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn expires_and_stays_below_its_limit() {
        let entry = HostTable::<IpAddr, u32>::ENTRY_SIZE;
        let mut t = HostTable::new(&HostConfig { memcap: entry * 3, ..HostConfig::default() });
        let at = |s| Time::new(s, 0);
        for n in 0..3 {
            *t.get_or_insert_with(ip(n), at(0), at(10 + i64::from(n)), || 0).unwrap() = u32::from(n);
        }
        assert!(t.get_or_insert_with(ip(9), at(1), at(20), || 9).is_none());
        assert_eq!(t.counters.memcap, 1);
        assert_eq!(t.get(&ip(0), at(9)), Some(&0));
        assert_eq!(t.get(&ip(0), at(10)), None);
        assert!(t.get_or_insert_with(ip(9), at(11), at(20), || 9).is_some());
        assert_eq!(t.get(&ip(2), at(11)), Some(&2));
        assert_eq!(t.get(&ip(9), at(11)), Some(&9));
        assert_eq!(t.remove(&ip(2)), Some(2));
        assert_eq!(t.expire(at(100), 10), 1);
        assert!(t.is_empty());
    }

    #[test]
    fn pairs_have_no_order() {
        assert_eq!(IpPair::new(ip(1), ip(2)), IpPair::new(ip(2), ip(1)));
    }
}
