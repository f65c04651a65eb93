//! The thread that writes files, and its queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::StoreError;
use super::batch::{Job, What};
use super::disk::Disk;

/// The number of empty batches that are kept.
const SPARE: usize = 16;
/// How often a store at its quota checks for room.
const LOOK: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    spare: Vec<Job>,
    /// The number of batches handed over, and of those done.
    put: u64,
    done: u64,
    /// The thread stops once the queue is empty.
    stop: bool,
}

/// Counters that all workers share.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Open temporary files.
    pub(super) open: AtomicU64,
    /// Files that could not stay open.
    pub(super) open_max_hit: AtomicU64,
    /// Disk errors.
    pub(super) errors: AtomicU64,
    /// Files and records that were not stored because the queue was full.
    pub(super) lost: AtomicU64,
    /// Files that were not stored because of the quota.
    pub(super) over_quota: AtomicU64,
    /// Bytes that count towards the quota.
    pub(super) used: AtomicU64,
}

/// The number of files and records that begin with a job.
fn files(job: &Job) -> u64 {
    job.steps.iter().filter(|s| matches!(s.what, What::Begin | What::Record { .. })).count() as u64
}

/// State that the thread and workers share.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// The last number of a stored file.
    last_id: AtomicU32,
    /// Reserved bytes of the queue, and its size.
    queued: AtomicU64,
    limit: AtomicU64,
    /// The quota is reached.
    pub(super) is_full: AtomicBool,
    /// The thread has ended.
    is_gone: AtomicBool,
    pub(super) counts: Counts,
    /// Files in the current job.
    in_hand: AtomicU64,
    queue: Mutex<Queue>,
    /// Signals new work, or the end.
    work: Condvar,
    /// Signals completed work.
    done: Condvar,
}

impl Inner {
    /// A panic under the lock leaves consistent data.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_id(&self) -> u32 {
        self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Counts a file or record that is not stored because the queue is full.
    pub(super) fn lose(&self) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether no file can begin, because the quota is reached or the thread has ended. Counts the reason.
    pub(super) fn takes_no_more(&self) -> bool {
        let (full, gone) = (self.is_full.load(Ordering::Relaxed), self.is_gone.load(Ordering::Relaxed));
        if full {
            self.counts.over_quota.fetch_add(1, Ordering::Relaxed);
        } else if gone {
            self.lose();
        }
        full || gone
    }

    /// Reserves bytes of the queue. An empty queue accepts a reservation of any size.
    pub(super) fn reserve(&self, bytes: u64, wait: bool) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |queued: u64| {
            let sum = queued.saturating_add(bytes);
            (queued == 0 || sum <= limit).then_some(sum)
        };
        let take = || self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if take() {
            return true;
        }
        if !wait {
            return false;
        }
        let mut q = self.lock();
        // The lock prevents a lost wakeup between the check and the wait.
        while !take() {
            if self.is_gone.load(Ordering::Relaxed) {
                return false;
            }
            q = self.done.wait(q).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Hands a batch over. Returns an empty one.
    pub(super) fn put(&self, job: Job) -> Job {
        let mut q = self.lock();
        if self.is_gone.load(Ordering::Relaxed) {
            drop(q);
            self.abandon(&job);
            return job.emptied();
        }
        // With a longer queue, the thread is awake.
        let is_asleep = q.put == q.done;
        q.put += 1;
        q.jobs.push_back(job);
        let spare = q.spare.pop();
        drop(q);
        if is_asleep {
            self.work.notify_one();
        }
        spare.unwrap_or_default()
    }

    /// Discards a file that began.
    pub(super) fn discard(&self, id: u32) {
        drop(self.put(Job::of(id, What::Discard)));
    }

    /// Drops a batch, because the thread has ended.
    fn abandon(&self, job: &Job) {
        self.counts.lost.fetch_add(files(job), Ordering::Relaxed);
        self.queued.fetch_sub(job.reserved, Ordering::Relaxed);
    }

    /// Waits until all work so far is done.
    pub(super) fn drain(&self) {
        let mut q = self.lock();
        let put = q.put;
        while q.done < put && !self.is_gone.load(Ordering::Relaxed) {
            q = self.done.wait(q).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, disk: &mut Disk) {
        disk.begin(self);
        let mut q = self.lock();
        loop {
            if let Some(job) = q.jobs.pop_front() {
                drop(q);
                self.in_hand.store(files(&job), Ordering::Relaxed);
                margay_packet::fault::point("file-store");
                disk.run(&job, self);
                self.in_hand.store(0, Ordering::Relaxed);
                self.queued.fetch_sub(job.reserved, Ordering::Relaxed);
                let empty = job.emptied();
                q = self.lock();
                q.done += 1;
                if q.spare.len() < SPARE && empty.bytes.capacity() > 0 {
                    q.spare.push(empty);
                }
                self.done.notify_all();
            } else if q.stop {
                return;
            } else if self.is_full.load(Ordering::Relaxed) {
                let (held, waited) = self.work.wait_timeout(q, LOOK).unwrap_or_else(PoisonError::into_inner);
                q = held;
                if waited.timed_out() {
                    drop(q);
                    disk.look_for_room(self);
                    q = self.lock();
                }
            } else {
                q = self.work.wait(q).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Tells workers that the thread has ended, even after a panic.
struct Leaving<'a> {
    inner: &'a Inner,
    say: super::Say,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut q = self.inner.lock();
        let in_hand = self.inner.in_hand.swap(0, Ordering::Relaxed);
        self.inner.counts.lost.fetch_add(in_hand, Ordering::Relaxed);
        std::mem::take(&mut q.jobs).iter().for_each(|job| self.inner.abandon(job));
        // A worker that waits for the end sees all losses counted.
        self.inner.is_gone.store(true, Ordering::Relaxed);
        drop(q);
        self.inner.done.notify_all();
        if std::thread::panicking() {
            self.inner.counts.errors.fetch_add(1, Ordering::Relaxed);
            (self.say)(
                "file-store: the thread that writes files failed: no more files are stored (file_store.files_lost counts them)",
            );
        }
    }
}

/// The thread that all workers' stores share. It ends after all work once the last of them is dropped.
#[derive(Debug, Default)]
pub struct StoreShared {
    pub(super) inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl StoreShared {
    /// Starts the thread, unless it already runs.
    pub(super) fn start(&self, limit: u64, open: impl FnOnce() -> Result<Disk, StoreError>) -> Result<(), StoreError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return Ok(());
        }
        let mut disk = open()?;
        self.inner.limit.store(limit, Ordering::Relaxed);
        let inner = Arc::clone(&self.inner);
        let run = move || {
            let leaving = Leaving { inner: &inner, say: disk.say[0] };
            leaving.inner.run(&mut disk);
        };
        let started = std::thread::Builder::new().name("FileStore".into()).spawn(run);
        *thread = Some(started.map_err(|e| StoreError::new("cannot start the thread", "FileStore", e))?);
        Ok(())
    }

    /// Calls `f` with the name and value of each counter.
    pub(crate) fn for_each_counter(&self, quota: u64, f: &mut dyn FnMut(&str, u64)) {
        let c = &self.inner.counts;
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        f("file_store.open_files_max_hit", of(&c.open_max_hit));
        f("file_store.fs_errors", of(&c.errors));
        f("file_store.files_lost", of(&c.lost));
        if quota > 0 {
            f("file_store.over_quota", of(&c.over_quota));
            f("file_store.quota_used", of(&c.used));
        }
    }

    /// Temporary files that are open (`file_store.open_files`).
    pub fn open_files(&self) -> u64 {
        self.inner.counts.open.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> u64 {
        self.inner.queued.load(Ordering::Relaxed)
    }
}

impl Drop for StoreShared {
    fn drop(&mut self) {
        self.inner.lock().stop = true;
        self.inner.work.notify_one();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}
