//! Synchronization primitives of the worker threads. The model of the protocol (`tests/turns.rs`) replaces them with loom's.

pub(super) use std::sync::Mutex;
use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

/// Wakes a sleeping thread.
#[derive(Debug, Default)]
pub(super) struct Bell(OnceLock<Thread>);

impl Bell {
    /// Makes the calling thread the one to wake.
    pub(super) fn here(&self) {
        // A thread calls this once.
        let _ = self.0.set(std::thread::current());
    }

    /// Sleeps until the bell rings, or for `time`. Returns at once if it has rung.
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
