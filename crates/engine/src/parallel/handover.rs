//! Passes a value from one worker to another: it is requested, given once, and taken once.
//!
//! The taker waits for `given`, and checks whether the giver is gone. A giver gives everything it ever will before it
//! declares itself gone, so a taker that finds it gone checks once more. `tests/handover.rs` has loom try every order of
//! these steps, also with workers that wait for each other in stream order.

use std::sync::PoisonError;

use super::sync::{AtomicBool, Mutex, Ordering};

/// A value on its way from one worker to another.
#[derive(Debug)]
pub(super) struct Handover<T> {
    given: AtomicBool,
    what: Mutex<Option<T>>,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// The value.
    Here(T),
    /// The value is not given yet.
    NotYet,
    /// The giver is gone, or the value was already taken.
    Never,
}

impl<T> Handover<T> {
    pub(super) fn new() -> Handover<T> {
        Handover { given: AtomicBool::new(false), what: Mutex::new(None) }
    }

    /// Gives the value. One worker calls this, once.
    pub(super) fn give(&self, what: T) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        self.given.store(true, Ordering::Release);
    }

    /// Whether the value was given.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Takes the value, if it was given. `gone` says whether the giver will give nothing more.
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

/// Requests to a worker. The worker checks a flag, which is written only if there is a request.
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

    /// Adds a request.
    pub(super) fn ask(&self, what: T) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(what);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there may be requests.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Takes all requests since the last call.
    pub(super) fn collect(&self, into: &mut Vec<T>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        into.append(&mut list);
    }
}
