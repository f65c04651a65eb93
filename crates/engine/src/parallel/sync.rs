//! What threads speak with. The model of the protocol (`tests/turns.rs`) has loom's in its place.

pub(super) use std::sync::Mutex;
use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

/// What wakes a thread that sleeps.
#[derive(Debug, Default)]
pub(super) struct Bell(OnceLock<Thread>);

impl Bell {
    /// The calling thread is the one to be woken.
    pub(super) fn here(&self) {
        // It comes once.
        let _ = self.0.set(std::thread::current());
    }

    /// Sleeps until it rings, or rang, or for so long.
    pub(super) fn wait(&self, time: Duration) {
        std::thread::park_timeout(time);
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        if let Some(t) = self.0.get() {
            t.unpark();
        }
    }
}
