//! Bounded tables that evict their oldest entry.

use std::collections::BTreeMap;
use std::hash::Hash;

use margay_packet::KeyedMap;

/// The heap memory of a value, beyond its own size.
pub(crate) trait Holds {
    fn holds(&self) -> usize {
        0
    }
}

impl Holds for u64 {}

impl Holds for Vec<u8> {
    fn holds(&self) -> usize {
        self.capacity()
    }
}

/// A bounded table. A new entry evicts the oldest one if the table is full.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    map: KeyedMap<K, (V, u64)>,
    order: BTreeMap<u64, K>,
    next: u64,
    /// Heap memory of the values at the time of their insertion.
    held: usize,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Cache { map: KeyedMap::default(), order: BTreeMap::new(), next: 0, held: 0 }
    }
}

impl<K: Hash + Eq + Clone, V: Holds> Cache<K, V> {
    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.map.capacity() * size_of::<(K, (V, u64))>() + self.order.len() * size_of::<(u64, K)>() + self.held
    }

    /// Adjusts the count after a value's memory changed.
    pub(crate) const fn changed(&mut self, before: usize, now: usize) {
        self.held = (self.held + now).saturating_sub(before);
    }

    /// Inserts an entry. Returns the evicted value, if any.
    pub(crate) fn insert(&mut self, max: u32, key: K, value: V) -> Option<V> {
        let old = self.remove(&key);
        let mut gone = None;
        if self.map.len() >= (max as usize).max(1)
            && let Some((_, oldest)) = self.order.pop_first()
        {
            gone = self.map.remove(&oldest).map(|(v, _)| v);
            self.held = self.held.saturating_sub(gone.as_ref().map_or(0, V::holds));
        }
        self.next += 1;
        self.held += value.holds();
        self.order.insert(self.next, key.clone());
        self.map.insert(key, (value, self.next));
        old.or(gone)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(v, _)| v)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key).map(|(v, _)| v)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (value, place) = self.map.remove(key)?;
        self.order.remove(&place);
        self.held = self.held.saturating_sub(value.holds());
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes() {
        let mut c = Cache::default();
        for n in 0..5 {
            c.insert(3, n, n);
        }
        assert_eq!((c.get(&1), c.get(&2), c.get(&4)), (None, Some(&2), Some(&4)));
        assert_eq!(c.insert(3, 2, 7), Some(2));
        assert_eq!(c.insert(3, 9, 9), Some(3));
        assert_eq!((c.remove(&2), c.get(&2)), (Some(7), None));
        assert_eq!(c.get_mut(&4), Some(&mut 4));
    }
}
