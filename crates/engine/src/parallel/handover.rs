//! How something goes from one worker to another: it is asked for, given once, taken once.
//!
//! Who takes waits for `given`, and looks whether the giver is gone. One that is gone gave all that it ever will before it said so;
//! so who finds it gone looks once more. `tests/handover.rs` lets loom try every order of these steps, with workers that
//! wait for each other in the order of the stream as well.

use std::sync::PoisonError;

use super::sync::{AtomicBool, Mutex, Ordering};

/// What goes from one worker to another.
#[derive(Debug)]
pub(super) struct Handover<T> {
    given: AtomicBool,
    what: Mutex<Option<T>>,
}

/// What came of looking for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// It is here.
    Here(T),
    /// It is not given yet.
    NotYet,
    /// Nobody will give it, or it was taken before.
    Never,
}

impl<T> Handover<T> {
    pub(super) fn new() -> Handover<T> {
        Handover { given: AtomicBool::new(false), what: Mutex::new(None) }
    }

    /// Gives it: by one worker, once.
    pub(super) fn give(&self, what: T) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        self.given.store(true, Ordering::Release);
    }

    /// Whether it was given.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Takes it, if it was given; `gone` says whether who is to give it will give nothing any more.
    pub(super) fn take(&self, gone: impl FnOnce() -> bool) -> Taken<T> {
        if !self.is_given() {
            if !gone() {
                return Taken::NotYet;
            }
            if !self.is_given() {
                return Taken::Never;
            }
        }
        self.what.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Taken::Never, Taken::Here)
    }
}

/// What a worker is asked for. It looks at a flag, which is written only where there is something.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Asked<T> {
    any: AtomicBool,
    list: Mutex<Vec<T>>,
}

impl<T> Asked<T> {
    pub(super) fn new() -> Asked<T> {
        Asked { any: AtomicBool::new(false), list: Mutex::new(Vec::new()) }
    }

    /// Asks for something.
    pub(super) fn ask(&self, what: T) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(what);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there may be something.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// All that was asked for since the last time.
    pub(super) fn collect(&self, into: &mut Vec<T>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        into.append(&mut list);
    }
}
