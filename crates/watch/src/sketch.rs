//! The most frequent keys, with a bounded number of counters: the Space-Saving algorithm of Metwally, Agrawal and El Abbadi
//! ("Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
//!
//! A new key takes over the smallest counter, and keeps its count as the bound of its own error. Every key with more than the
//! total divided by [`Sketch::capacity`] is in the sketch, even if an attacker chooses the keys.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// A count, and a bound of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Upper bound of the true count.
    pub count: u64,
    /// The true count is at least `count - error`.
    pub error: u64,
}

/// Counters for the most frequent keys.
#[derive(Debug, Clone)]
pub struct Sketch<K> {
    capacity: usize,
    counts: HashMap<K, Count>,
    /// The keys by count, smallest first.
    order: BTreeSet<(u64, K)>,
}

impl<K: Copy + Eq + Hash + Ord> Sketch<K> {
    /// A sketch with this many counters, at least one.
    pub fn new(capacity: usize) -> Sketch<K> {
        Sketch { capacity: capacity.max(1), counts: HashMap::new(), order: BTreeSet::new() }
    }

    /// The number of counters.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Counts `key` `weight` times.
    pub fn add(&mut self, key: K, weight: u64) {
        if let Some(c) = self.counts.get_mut(&key) {
            self.order.remove(&(c.count, key));
            c.count = c.count.saturating_add(weight);
            self.order.insert((c.count, key));
            return;
        }
        let error = match self.counts.len() < self.capacity {
            true => 0,
            false => self.order.pop_first().map_or(0, |(count, old)| {
                self.counts.remove(&old);
                count
            }),
        };
        let count = error.saturating_add(weight);
        self.counts.insert(key, Count { count, error });
        self.order.insert((count, key));
    }

    /// The count of a key that has a counter.
    pub fn get(&self, key: &K) -> Option<Count> {
        self.counts.get(key).copied()
    }

    /// All keys with a counter, the most frequent first.
    pub fn top(&self) -> impl Iterator<Item = (K, Count)> + '_ {
        self.order.iter().rev().filter_map(|(_, k)| Some((*k, self.get(k)?)))
    }
}

/// A sketch of the recent past: counts cover the current period and the previous one.
#[derive(Debug, Clone)]
pub struct Window<K> {
    now: Sketch<K>,
    before: Sketch<K>,
}

impl<K: Copy + Eq + Hash + Ord> Window<K> {
    /// A window with this many counters for each period.
    pub fn new(capacity: usize) -> Window<K> {
        Window { now: Sketch::new(capacity), before: Sketch::new(capacity) }
    }

    /// Counts `key` `weight` times.
    pub fn add(&mut self, key: K, weight: u64) {
        self.now.add(key, weight);
    }

    /// Starts a new period, and drops the period before the previous one.
    pub fn turn(&mut self) {
        let capacity = self.now.capacity();
        self.before = std::mem::replace(&mut self.now, Sketch::new(capacity));
    }

    /// The count of a key in both periods together.
    pub fn get(&self, key: &K) -> Option<Count> {
        let (a, b) = (self.now.get(key), self.before.get(key));
        match (a, b) {
            (None, None) => None,
            _ => [a, b].into_iter().flatten().reduce(|a, b| Count {
                count: a.count.saturating_add(b.count),
                error: a.error.saturating_add(b.error),
            }),
        }
    }

    /// The `n` most frequent keys, the most frequent first.
    pub fn top(&self, n: usize) -> Vec<(K, Count)> {
        let others = self.before.top().filter(|(k, _)| self.now.get(k).is_none());
        let mut all: Vec<(K, Count)> =
            self.now.top().chain(others).filter_map(|(k, _)| Some((k, self.get(&k)?))).collect();
        all.sort_by(|a, b| b.1.count.cmp(&a.1.count).then(a.0.cmp(&b.0)));
        all.truncate(n);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_there_is_room() {
        let mut s = Sketch::new(4);
        for (k, n) in [(1, 5), (2, 1), (1, 2), (3, 9)] {
            s.add(k, n);
        }
        let top: Vec<(i32, u64)> = s.top().map(|(k, c)| (k, c.count)).collect();
        assert_eq!(top, [(3, 9), (1, 7), (2, 1)]);
        assert!(s.top().all(|(_, c)| c.error == 0));
    }

    #[test]
    fn the_frequent_stay_whatever_else_comes() {
        let mut s = Sketch::new(50);
        let (mut real, mut total) = (0u64, 0u64);
        for n in 0..100_000u64 {
            // Every third key is the same, and each other key occurs once.
            let key = if n % 3 == 0 { 7 } else { 1_000 + n };
            real += u64::from(key == 7);
            total += 1;
            s.add(key, 1);
        }
        assert_eq!(s.counts.len(), 50);
        assert_eq!(s.order.len(), 50);
        let (key, c) = s.top().next().unwrap();
        assert_eq!(key, 7);
        assert!(c.count >= real && c.count - c.error <= real && c.error <= total / 50, "{c:?} {real}");
    }

    #[test]
    fn a_window_forgets() {
        let mut w = Window::new(8);
        w.add('a', 10);
        w.turn();
        w.add('b', 4);
        w.add('a', 1);
        assert_eq!(w.top(9).iter().map(|(k, c)| (*k, c.count)).collect::<Vec<_>>(), [('a', 11), ('b', 4)]);
        w.turn();
        assert_eq!(w.top(1)[0].0, 'b');
        w.turn();
        assert!(w.top(9).is_empty() && w.get(&'a').is_none());
    }
}
