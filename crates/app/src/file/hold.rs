//! Data of a file that rules may yet ask to be stored, counted against what a worker may hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Held data. Only the worker's own thread writes the count, but for flows on their way to another worker; that is what it is
/// atomic for.
#[derive(Debug, Default)]
pub(super) struct Held {
    data: Vec<u8>,
    total: Arc<AtomicU64>,
}

impl Held {
    /// Nothing yet; `total` is what the worker holds in all.
    pub(super) fn new(total: &Arc<AtomicU64>) -> Held {
        Held { data: Vec::new(), total: Arc::clone(total) }
    }

    /// Appends data, unless the worker would then hold more than `limit`.
    pub(super) fn append(&mut self, data: &[u8], limit: u64) -> bool {
        let len = data.len() as u64;
        if self.total.load(Ordering::Relaxed).saturating_add(len) > limit {
            return false;
        }
        self.total.fetch_add(len, Ordering::Relaxed);
        self.data.extend_from_slice(data);
        true
    }

    /// From here on it is counted with what another worker holds.
    pub(super) fn count_with(&mut self, total: &Arc<AtomicU64>) {
        let len = self.data.len() as u64;
        total.fetch_add(len, Ordering::Relaxed);
        std::mem::replace(&mut self.total, Arc::clone(total)).fetch_sub(len, Ordering::Relaxed);
    }

    /// What is held.
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
