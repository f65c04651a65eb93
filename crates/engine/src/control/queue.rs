//! `--unix-socket`: capture files that are handed over by commands, one after the other.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Most files that wait.
const WAITING_MAX: usize = 10_000;

/// A capture file, or a folder of them, to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// What to read.
    pub(crate) file: PathBuf,
    /// Where logs go.
    pub(crate) dir: PathBuf,
    /// Whose it is; 0 is no tenant.
    pub(crate) tenant: u32,
    /// A folder is looked at for more, to the end or until it is interrupted.
    pub(crate) continuous: bool,
    /// What was read is deleted.
    pub(crate) delete: bool,
}

/// Files that wait, and the one that is read.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Reading of the current one is to stop.
    pub(crate) interrupt: AtomicBool,
    /// When the file read last was last changed, in milliseconds since 1970.
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

    /// Adds one; `false` where too many wait.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        if state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(job);
        self.more.notify_one();
        true
    }

    /// Takes the next one as the current one; waits `time` for one.
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

    /// The current one is done with.
    pub(crate) fn done(&self) {
        self.state().current = None;
    }

    /// Files that wait.
    pub(crate) fn waiting(&self) -> Vec<PathBuf> {
        self.state().waiting.iter().map(|j| j.file.clone()).collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// What is being read.
    pub(crate) fn current(&self) -> Option<PathBuf> {
        self.state().current.as_ref().map(|j| j.file.clone())
    }

    /// Notes that a file was read to its end.
    pub(crate) fn processed(&self, changed: SystemTime) {
        let since = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the file read last was last changed.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}
