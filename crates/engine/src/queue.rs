//! `--unix-socket`: capture files that clients submit, read one after the other.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Limit of waiting files.
const WAITING_MAX: usize = 10_000;

/// A capture file, or a folder of them, to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// The file or folder.
    pub(crate) file: PathBuf,
    /// The log folder.
    pub(crate) dir: PathBuf,
    /// The tenant; 0 for none.
    pub(crate) tenant: u32,
    /// The folder is watched for more files, until the end or an interrupt.
    pub(crate) continuous: bool,
    /// The files are deleted after reading.
    pub(crate) delete: bool,
}

/// Waiting files, and the current one.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Requests that reading of the current file stops.
    pub(crate) interrupt: AtomicBool,
    /// Modification time of the last file that was read, in milliseconds since 1970.
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    current: Option<Job>,
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file. Returns `false` if too many are waiting.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        if state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(job);
        self.more.notify_one();
        true
    }

    /// Makes the next file the current one, and waits up to `time` for one.
    pub(crate) fn next(&self, time: Duration) -> Option<Job> {
        let mut state = self.state();
        if state.waiting.is_empty() {
            state = self.more.wait_timeout(state, time).map_or_else(|p| p.into_inner().0, |r| r.0);
        }
        let job = state.waiting.pop_front()?;
        state.current = Some(job.clone());
        self.interrupt.store(false, Ordering::Relaxed);
        Some(job)
    }

    /// Ends the current file.
    pub(crate) fn done(&self) {
        self.state().current = None;
    }

    /// The waiting files.
    pub(crate) fn waiting(&self) -> Vec<PathBuf> {
        self.state().waiting.iter().map(|j| j.file.clone()).collect()
    }

    /// The number of waiting files.
    pub(crate) fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// The current file.
    pub(crate) fn current(&self) -> Option<PathBuf> {
        self.state().current.as_ref().map(|j| j.file.clone())
    }

    /// Records that a file was read to its end.
    pub(crate) fn processed(&self, changed: SystemTime) {
        let since = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Modification time of the last file that was read.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}
