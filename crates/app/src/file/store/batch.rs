//! A worker's pending work for the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{StoreConfig, StoreShared};

/// The size at which a batch is handed over, and the unit for reserving room in the queue.
const SIZE: usize = 64 << 10;
/// The size of a step, apart from its data.
const STEP: usize = size_of::<Step>();

/// The work of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Create the file.
    Begin,
    /// Append this many bytes of the batch.
    Append(usize),
    /// The file is complete; move it to the place for its SHA-256.
    Place([u8; 32]),
    /// Remove the file.
    Discard,
    /// Write a record: this many bytes of the batch, with a time in seconds.
    Record { sha256: [u8; 32], seconds: i64, len: usize },
}

/// One step of work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The number of the file.
    pub(super) id: u32,
    pub(super) what: What,
}

/// Steps in order, with their data joined.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) steps: Vec<Step>,
    pub(super) bytes: Vec<u8>,
    /// Bytes reserved in the queue.
    pub(super) reserved: u64,
}

impl Job {
    /// A job of one step without data.
    pub(super) fn of(id: u32, what: What) -> Job {
        Job { steps: vec![Step { id, what }], ..Job::default() }
    }

    /// Empties the job and keeps its memory.
    pub(super) fn emptied(mut self) -> Job {
        self.steps.clear();
        self.bytes.clear();
        self.reserved = 0;
        self
    }
}

/// Work that a worker collects before it hands it over.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    job: Job,
    /// The store's thread, once needed.
    store: Option<Arc<StoreShared>>,
}

impl Batch {
    /// Starts storing a file. Returns `None`, and counts it, if the store is not available.
    pub(crate) fn begin(&mut self, config: &StoreConfig) -> Option<Temporary> {
        if config.shared.inner.takes_no_more() {
            return None;
        }
        let inner = &config.shared.inner;
        if !self.room(config, 0) {
            inner.lose();
            return None;
        }
        let id = inner.next_id();
        self.push(id, What::Begin, &[]);
        Some(Temporary { id, store: Arc::clone(&config.shared), is_settled: AtomicBool::new(false) })
    }

    /// Appends data to a file. Returns `false`, and counts it, if the queue is full: the file is not stored then.
    #[must_use]
    pub(crate) fn append(&mut self, config: &StoreConfig, file: &Temporary, data: &[u8]) -> bool {
        let room = self.room(config, data.len());
        if room {
            self.push(file.id, What::Append(data.len()), data);
        } else {
            config.shared.inner.lose();
        }
        room
    }

    /// Completes a file.
    pub(crate) fn place(&mut self, file: &Temporary, sha256: &[u8; 32]) {
        file.is_settled.store(true, Ordering::Relaxed);
        self.push(file.id, What::Place(*sha256), &[]);
    }

    /// Writes a record next to a stored file.
    pub(crate) fn record(&mut self, config: &StoreConfig, id: u32, sha256: &[u8; 32], seconds: i64, json: &[u8]) {
        if self.room(config, json.len()) {
            self.push(id, What::Record { sha256: *sha256, seconds, len: json.len() }, json);
        } else {
            config.shared.inner.lose();
        }
    }

    fn push(&mut self, id: u32, what: What, data: &[u8]) {
        self.job.bytes.extend_from_slice(data);
        self.job.steps.push(Step { id, what });
    }

    /// Reserves room in the queue. Returns whether there was enough.
    fn room(&mut self, config: &StoreConfig, len: usize) -> bool {
        self.store.get_or_insert_with(|| Arc::clone(&config.shared));
        if self.job.bytes.len() + len > SIZE && !self.job.steps.is_empty() {
            self.hand_over();
        }
        let needs = (self.job.bytes.len() + len + (self.job.steps.len() + 1) * STEP) as u64;
        if needs <= self.job.reserved {
            return true;
        }
        let more = (needs - self.job.reserved).max(SIZE as u64);
        let inner = &config.shared.inner;
        let mut is = inner.reserve(more, false);
        if !is && config.waits {
            // Hand over this batch first: the room may only appear once it is written.
            self.hand_over();
            is = inner.reserve(more, true);
        }
        if is {
            self.job.reserved += more;
        }
        is
    }

    /// Hands over the pending work.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        if !self.job.steps.is_empty()
            && let Some(store) = &self.store
        {
            self.job = store.inner.put(std::mem::take(&mut self.job));
        }
    }

    /// As `hand_over`, and waits until the work is done.
    pub(crate) fn sync(&mut self) {
        self.hand_over();
        if let Some(store) = &self.store {
            store.inner.drain();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // If a worker ends or panics, its unfinished files are discarded.
        self.hand_over();
    }
}

/// A file that is being stored. Dropping it before it is complete discards it.
#[derive(Debug)]
pub(crate) struct Temporary {
    /// Its number.
    pub(crate) id: u32,
    /// Keeps the thread alive while a file may have to be discarded.
    store: Arc<StoreShared>,
    is_settled: AtomicBool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_settled.load(Ordering::Relaxed) {
            self.store.inner.discard(self.id);
        }
    }
}
