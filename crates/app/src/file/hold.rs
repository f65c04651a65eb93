//! File data that rules may still ask to store, counted against the worker's limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Held data. Only the worker's own thread changes the count, except for flows that move to another worker; the count is atomic
/// for those.
#[derive(Debug, Default)]
pub(super) struct Held {
    data: Vec<u8>,
    total: Arc<AtomicU64>,
}

impl Held {
    /// Starts empty; `total` is the worker's total.
    pub(super) fn new(total: &Arc<AtomicU64>) -> Held {
        Held { data: Vec::new(), total: Arc::clone(total) }
    }

    /// Appends data, unless the worker's total would exceed `limit`.
    pub(super) fn append(&mut self, data: &[u8], limit: u64) -> bool {
        let len = data.len() as u64;
        if self.total.load(Ordering::Relaxed).saturating_add(len) > limit {
            return false;
        }
        self.total.fetch_add(len, Ordering::Relaxed);
        self.data.extend_from_slice(data);
        true
    }

    /// Moves the count to another worker's total.
    pub(super) fn count_with(&mut self, total: &Arc<AtomicU64>) {
        let len = self.data.len() as u64;
        total.fetch_add(len, Ordering::Relaxed);
        std::mem::replace(&mut self.total, Arc::clone(total)).fetch_sub(len, Ordering::Relaxed);
    }

    /// The held data.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.total.fetch_add(self.data.len() as u64, Ordering::Relaxed);
        Held { data: self.data.clone(), total: Arc::clone(&self.total) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.data.len() as u64, Ordering::Relaxed);
    }
}
