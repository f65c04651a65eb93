//! What a worker keeps for itself, without a lock, or several workers together, behind one.

use std::sync::{Arc, Mutex, PoisonError};

/// What several workers keep together.
pub(crate) type Shared<T> = Arc<Mutex<T>>;

/// A worker's own, or that of several.
#[derive(Debug)]
pub(crate) enum Shareable<T> {
    Own(T),
    Shared(Shared<T>),
}

impl<T> Shareable<T> {
    /// From here on that of several workers.
    pub(crate) fn share(&mut self, of_all: &Shared<T>) {
        *self = Shareable::Shared(Arc::clone(of_all));
    }

    /// Looks at it.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t) => f(&t.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The same, to write to.
    #[inline]
    pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Shareable::Own(t) => f(t),
            Shareable::Shared(t) => f(&mut t.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// At a reload: a worker's own takes over what `old` has with `take`; what is shared goes on as it is.
    pub(crate) fn take_over(&mut self, old: &mut Shareable<T>, take: impl FnOnce(&mut T, &mut T)) {
        match (&mut *self, old) {
            (Shareable::Own(new), Shareable::Own(old)) => take(new, old),
            (_, Shareable::Shared(old)) => self.share(old),
            (Shareable::Shared(_), Shareable::Own(_)) => {}
        }
    }
}
