//! What a worker keeps for itself, without a lock, or several workers together, behind one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::detect::Detect;

/// What several workers keep together.
pub(crate) type Shared<T> = Arc<Mutex<T>>;

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

    /// Looks at it.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => f(&t.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The same, to write to.
    #[inline]
    pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t, _) => f(&mut t.lock().unwrap_or_else(PoisonError::into_inner)),
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
        own.share(&Arc::new(Mutex::new(7)));
        own.wait(About::All);
        own.in_order(&order);
        own.wait(About::All);
        // Another set of rules takes the place of these.
        let mut new = Shareable::Own(9);
        new.take_over(&mut own, |_, _| ());
        new.wait(About::All);
        assert_eq!((asked.0.load(Ordering::Relaxed), new.with(|n| *n)), (2, 7));
    }
}
