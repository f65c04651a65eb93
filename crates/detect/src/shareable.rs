//! What a worker keeps for itself, without a lock, or several workers together, in parts with a lock each.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::detect::Detect;

/// Parts of what several workers keep together: enough that two of them seldom want the same one.
pub(crate) const SHARDS: usize = 64;

/// What several workers keep together.
pub(crate) type Shared<T> = Arc<Shards<T>>;

/// Parts, each behind a lock of its own. Which part has a key is a matter of a hash that is keyed at random.
#[derive(Debug)]
pub(crate) struct Shards<T> {
    shards: Box<[Mutex<T>; SHARDS]>,
    hasher: RandomState,
}

impl<T> Shards<T> {
    /// [`SHARDS`] parts.
    pub(crate) fn new(make: impl Fn() -> T) -> Shared<T> {
        Arc::new(Shards { shards: Box::new(std::array::from_fn(|_| Mutex::new(make()))), hasher: RandomState::new() })
    }

    /// Has `f` look at the part that has this key.
    fn with<K: Hash, R>(&self, key: &K, f: impl FnOnce(&mut T) -> R) -> R {
        let part = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        // What is done under a lock is whole, whoever panicked.
        f(&mut part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is to be touched, and by whose packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// By those from or to this host alone.
    Host(IpAddr),
    /// By any.
    All,
}

/// Waits for the workers that share something with the one that asks, where their packets are of one stream: until all packets
/// before the one at hand are done with. So what several workers count is what one would count.
pub trait InOrder: Send + Sync + std::fmt::Debug {
    /// Returns when it is the asking worker's turn at what it asks about.
    fn wait(&self, about: About);

    /// The worker inspects with these rules from here on.
    fn rules(&self, _: &Arc<Detect>) {}
}

/// A worker's own, or that of several.
#[derive(Debug)]
pub(crate) enum Shareable<T> {
    Own(T),
    Shared(Shared<T>, Option<Arc<dyn InOrder>>),
}

impl<T> Shareable<T> {
    /// From here on that of several workers.
    pub(crate) fn share(&mut self, of_all: &Shared<T>) {
        *self = Shareable::Shared(Arc::clone(of_all), None);
    }

    /// From here on rules look at it, and write to it, in the order of packets.
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        if let Shareable::Shared(_, o) = self {
            *o = Some(Arc::clone(order));
        }
    }

    /// For a rule that looks at it or writes to it: when it is its turn.
    #[inline]
    pub(crate) fn wait(&self, about: About) {
        if let Shareable::Shared(_, Some(order)) = self {
            order.wait(about);
        }
    }

    /// Looks at, or writes to, the part that has this key.
    #[inline]
    pub(crate) fn at<K: Hash, R>(&mut self, key: &K, f: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => t.with(key, f),
        }
    }

    /// Looks at the part that has this key.
    #[inline]
    pub(crate) fn look<K: Hash, R>(&self, key: &K, f: impl FnOnce(&T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => t.with(key, |t| f(t)),
        }
    }

    /// Looks at all parts, one after the other.
    pub(crate) fn each(&self, mut f: impl FnMut(&T)) {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => {
                t.shards.iter().for_each(|part| f(&part.lock().unwrap_or_else(PoisonError::into_inner)));
            }
        }
    }

    /// The same, to write to; `f` is told how many parts there are.
    pub(crate) fn each_mut(&mut self, mut f: impl FnMut(&mut T, usize)) {
        match self {
            Shareable::Own(t) => f(t, 1),
            Shareable::Shared(t, _) => {
                t.shards.iter().for_each(|part| f(&mut part.lock().unwrap_or_else(PoisonError::into_inner), SHARDS));
            }
        }
    }

    /// At a reload: a worker's own takes over what `old` has with `take`; what is shared goes on as it is.
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
        // Another set of rules takes the place of these.
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
        // Two parts do not wait for each other.
        let (one, other) = (all.shards[0].lock().unwrap(), all.shards[1].try_lock());
        assert!(other.is_ok());
        drop((one, other));
    }
}
