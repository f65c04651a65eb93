//! State that one worker keeps without a lock, or that several workers share in shards with a lock each.

use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use margay_packet::KeyedHash;

/// Number of shards: enough that two workers seldom need the same one.
pub(crate) const SHARDS: usize = 64;

/// State that several workers share.
pub(crate) type Shared<T> = Arc<Shards<T>>;

/// Shards, each behind a lock. A randomly keyed hash maps a key to its shard.
#[derive(Debug)]
pub(crate) struct Shards<T> {
    shards: Box<[Mutex<T>; SHARDS]>,
    hasher: KeyedHash,
}

impl<T> Shards<T> {
    /// Creates [`SHARDS`] shards.
    pub(crate) fn new(make: impl Fn() -> T) -> Shared<T> {
        Arc::new(Shards { shards: Box::new(std::array::from_fn(|_| Mutex::new(make()))), hasher: KeyedHash::default() })
    }

    /// Calls `f` with the shard of this key.
    fn with<K: Hash, R>(&self, key: &K, f: impl FnOnce(&mut T) -> R) -> R {
        let part = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        // A panic leaves no shard half changed, so a poisoned lock is usable.
        f(&mut part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The shared state that a rule touches, by the packets that may affect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Only packets from or to this host affect it.
    Host(IpAddr),
    /// Any packet may affect it.
    All,
}

/// Waits for other workers that share state and take packets from the same stream, until they finish all packets before
/// the current one. So several workers count as one worker would.
pub trait InOrder: Send + Sync + std::fmt::Debug {
    /// Returns when it is the calling worker's turn.
    fn wait(&self, about: About);
}

/// State of one worker, or shared by several.
#[derive(Debug)]
pub(crate) enum Shareable<T> {
    Own(T),
    Shared(Shared<T>, Option<Arc<dyn InOrder>>),
}

impl<T> Shareable<T> {
    /// Switches to shared state.
    pub(crate) fn share(&mut self, of_all: &Shared<T>) {
        *self = Shareable::Shared(Arc::clone(of_all), None);
    }

    /// From now on rules access the state in packet order.
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        if let Shareable::Shared(_, o) = self {
            *o = Some(Arc::clone(order));
        }
    }

    /// Waits for the worker's turn to access shared state.
    #[inline]
    pub(crate) fn wait(&self, about: About) {
        if let Shareable::Shared(_, Some(order)) = self {
            order.wait(about);
        }
    }

    /// Calls `f` with the shard of this key, to change it.
    #[inline]
    pub(crate) fn at<K: Hash, R>(&mut self, key: &K, f: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => t.with(key, f),
        }
    }

    /// Calls `f` with the shard of this key.
    #[inline]
    pub(crate) fn look<K: Hash, R>(&self, key: &K, f: impl FnOnce(&T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => t.with(key, |t| f(t)),
        }
    }

    /// Calls `f` with each shard.
    pub(crate) fn each(&self, mut f: impl FnMut(&T)) {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => {
                t.shards.iter().for_each(|part| f(&part.lock().unwrap_or_else(PoisonError::into_inner)));
            }
        }
    }

    /// Calls `f` with each shard, to change it, and with the number of shards.
    pub(crate) fn each_mut(&mut self, mut f: impl FnMut(&mut T, usize)) {
        match self {
            Shareable::Own(t) => f(t, 1),
            Shareable::Shared(t, _) => {
                t.shards.iter().for_each(|part| f(&mut part.lock().unwrap_or_else(PoisonError::into_inner), SHARDS));
            }
        }
    }

    /// At a reload, own state takes over that of `old` with `take`; shared state stays as it is.
    pub(crate) fn take_over(&mut self, old: &mut Shareable<T>, take: impl FnOnce(&mut T, &mut T)) {
        match (&mut *self, old) {
            (Shareable::Own(new), Shareable::Own(old)) => take(new, old),
            (_, Shareable::Shared(old, order)) => *self = Shareable::Shared(Arc::clone(old), order.clone()),
            (Shareable::Shared(..), Shareable::Own(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Asked(AtomicU32);

    impl InOrder for Asked {
        fn wait(&self, _: About) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_shared_waits_for_its_turn() {
        let asked = Arc::new(Asked::default());
        let order: Arc<dyn InOrder> = asked.clone();
        let mut own = Shareable::Own(5);
        own.in_order(&order);
        own.wait(About::All);
        assert_eq!(asked.0.load(Ordering::Relaxed), 0);
        own.share(&Shards::new(|| 7));
        own.wait(About::All);
        own.in_order(&order);
        own.wait(About::All);
        // A reload replaces the rules.
        let mut new = Shareable::Own(9);
        new.take_over(&mut own, |_, _| ());
        new.wait(About::All);
        assert_eq!((asked.0.load(Ordering::Relaxed), new.look(&1, |n| *n)), (2, 7));
    }

    #[test]
    fn a_key_has_its_part_whoever_asks() {
        let all: Shared<Vec<u32>> = Shards::new(Vec::new);
        let (mut a, mut b) = (Shareable::Own(Vec::new()), Shareable::Own(Vec::new()));
        a.share(&all);
        b.share(&all);
        for key in 0..1000u32 {
            a.at(&key, |part| part.push(key));
            assert!(b.look(&key, |part| part.contains(&key)));
        }
        let (mut parts, mut used, mut sum) = (0, 0, 0);
        b.each(|part| {
            parts += 1;
            used += usize::from(!part.is_empty());
            sum += part.len();
        });
        assert_eq!((parts, used, sum), (SHARDS, SHARDS, 1000), "some 16 in each");
        // Locks of different shards are independent.
        let (one, other) = (all.shards[0].lock().unwrap(), all.shards[1].try_lock());
        assert!(other.is_ok());
        drop((one, other));
    }
}
