//! What a worker wants done in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{StoreConfig, StoreShared};

/// Bytes that a batch holds before it is handed over, and for which room in the queue is taken at a time.
const SIZE: usize = 64 << 10;
/// Bytes that a step counts for besides its data.
const STEP: usize = size_of::<Step>();

/// What is to be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It begins.
    Begin,
    /// So many bytes of the batch are added to it.
    Append(usize),
    /// It is complete, and has this SHA-256.
    Place([u8; 32]),
    /// It is not to be stored after all.
    Discard,
    /// So many bytes of the batch are its record, of this time in seconds.
    Record { sha256: [u8; 32], seconds: i64, len: usize },
}

/// One thing to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The file's number.
    pub(super) id: u32,
    pub(super) what: What,
}

/// Steps, in their order, with their data one behind the other.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) steps: Vec<Step>,
    pub(super) bytes: Vec<u8>,
    /// Bytes of the queue that were taken for it.
    pub(super) reserved: u64,
}

impl Job {
    /// One step without data.
    pub(super) fn of(id: u32, what: What) -> Job {
        Job { steps: vec![Step { id, what }], ..Job::default() }
    }

    /// Empty, with its memory.
    pub(super) fn emptied(mut self) -> Job {
        self.steps.clear();
        self.bytes.clear();
        self.reserved = 0;
        self
    }
}

/// What a worker collects before it hands it over.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    job: Job,
    /// Where it goes, once it is needed.
    store: Option<Arc<StoreShared>>,
}

impl Batch {
    /// A file begins to be stored. `None`, and counted, where the store takes none now.
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

    /// Adds bytes to a file. `false`, and counted, where there is no room for them: the file is not stored then.
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

    /// A file is complete.
    pub(crate) fn place(&mut self, file: &Temporary, sha256: &[u8; 32]) {
        file.is_settled.store(true, Ordering::Relaxed);
        self.push(file.id, What::Place(*sha256), &[]);
    }

    /// Writes a record beside a stored file.
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

    /// Whether there is room in the queue for so many bytes more; takes it.
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
            // What this batch has must be written for there to be room.
            self.hand_over();
            is = inner.reserve(more, true);
        }
        if is {
            self.job.reserved += more;
        }
        is
    }

    /// Hands over what is to be done so far.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        if !self.job.steps.is_empty()
            && let Some(store) = &self.store
        {
            self.job = store.inner.put(std::mem::take(&mut self.job));
        }
    }

    /// The same, and waits until all of it is done.
    pub(crate) fn sync(&mut self) {
        self.hand_over();
        if let Some(store) = &self.store {
            store.inner.drain();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // A worker that ended, or panicked, leaves what it began to be discarded.
        self.hand_over();
    }
}

/// A file that is being stored; discarded when it goes before it was put in its place.
#[derive(Debug)]
pub(crate) struct Temporary {
    /// Its number.
    pub(crate) id: u32,
    /// The thread goes on as long as something may be left to discard.
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
