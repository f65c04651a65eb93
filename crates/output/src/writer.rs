//! A thread that writes, so that a worker does not wait for files and sockets.
//!
//! Workers hand over buffers of whole lines ([`Writer::put`]) and get empty ones back. The buffer written last comes first,
//! because it is still in the CPU cache. The thread writes buffers in the order of the hand-overs, whatever their sink, so
//! each worker's lines stay in order. The number of buffers is bounded: a worker that is faster than the disk waits, and
//! [`Writer::waits`] counts this. While a worker's lines wait here, the worker must not use the sink directly;
//! [`Writer::drain`] waits until all are written.
//!
//! If the thread panics, workers write themselves from then on. The lines that the thread was writing are lost and
//! counted ([`Writer::lost`]).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use margay_packet::Time;

/// Limit of the buffers in the queue.
const QUEUE: usize = 16;
/// Capacity of a new buffer: the most that a worker collects, and one line.
const BUFFER: usize = 144 * 1024;

/// The destination of lines.
pub(crate) trait Target: Send + Sync {
    /// Writes whole lines.
    fn write(&self, lines: &[u8]);

    /// Passes the clock's tick on.
    fn tick(&self, now: Time);
}

struct Job {
    target: Arc<dyn Target>,
    lines: Vec<u8>,
    tick: Option<Time>,
}

impl Job {
    /// Executes the job and returns the buffer.
    fn run(mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.lines);
        self.write(&lines);
        lines.clear();
        lines
    }

    fn write(&self, lines: &[u8]) {
        self.target.write(lines);
        if let Some(now) = self.tick {
            self.target.tick(now);
        }
    }
}

/// The lines that the thread is writing. They are counted only if the thread panics.
struct InHand<'a> {
    inner: &'a Inner,
    lines: Vec<u8>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.lock().lost += crate::count::lines(&self.lines);
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
    /// Jobs handed over, and jobs done, since the start.
    put: u64,
    done: u64,
    /// No more jobs will come.
    stop: bool,
    /// The thread has ended.
    gone: bool,
    waits: u64,
    /// Lines lost with the thread.
    lost: u64,
}

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// Signals a new job, or that no more will come.
    work: Condvar,
    /// Signals that a job is done.
    written: Condvar,
}

/// The writing thread, shared by all workers and sinks of a run. It ends once the last of them drops it and everything
/// is written.
pub(crate) struct Writer {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.inner.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Each change under the lock is complete in itself, so a panicked holder leaves a valid state.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut q = self.lock();
        loop {
            let Some(mut job) = q.jobs.pop_front() else {
                if q.stop {
                    return;
                }
                q = self.work.wait(q).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(q);
            let mut in_hand = InHand { inner: self, lines: std::mem::take(&mut job.lines) };
            if in_hand.lines.contains(&b'\n') {
                margay_packet::fault::point("writer");
            }
            job.write(&in_hand.lines);
            let mut buffer = std::mem::take(&mut in_hand.lines);
            buffer.clear();
            q = self.lock();
            q.done += 1;
            if q.spare.len() < QUEUE && buffer.capacity() > 0 {
                q.spare.push(buffer);
            }
            self.written.notify_all();
        }
    }
}

/// Wakes waiting workers when the thread ends, even by a panic.
struct Leaving<'a>(&'a Inner);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut q = self.0.lock();
        q.gone = true;
        drop(q);
        self.0.written.notify_all();
    }
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start() -> std::io::Result<Writer> {
        let inner = Arc::new(Inner::default());
        let its = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("Writer".into()).spawn(move || {
            let leaving = Leaving(&its);
            leaving.0.run();
        })?;
        Ok(Writer { inner, thread: Some(thread) })
    }

    /// Hands `lines` over to be written, and returns an empty buffer. If `tick` has a time, the target receives it after
    /// the lines.
    pub(crate) fn put(&self, target: &Arc<dyn Target>, lines: Vec<u8>, tick: Option<Time>) -> Vec<u8> {
        let job = Job { target: Arc::clone(target), lines, tick };
        let mut q = self.inner.lock();
        if q.jobs.len() >= QUEUE && !q.gone {
            q.waits += 1;
            while q.jobs.len() >= QUEUE && !q.gone {
                q = self.inner.written.wait(q).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if q.gone {
            // Jobs that the thread left behind come first.
            let left = std::mem::take(&mut q.jobs);
            drop(q);
            left.into_iter().for_each(|job| drop(job.run()));
            return job.run();
        }
        // If jobs are waiting already, the thread is awake.
        let asleep = q.put == q.done;
        q.put += 1;
        q.jobs.push_back(job);
        let spare = q.spare.pop();
        drop(q);
        if asleep {
            self.inner.work.notify_one();
        }
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER))
    }

    /// Waits until everything handed over so far is written.
    pub(crate) fn drain(&self) {
        let mut q = self.inner.lock();
        let put = q.put;
        while q.done < put && !q.gone {
            q = self.inner.written.wait(q).unwrap_or_else(PoisonError::into_inner);
        }
        let left = if q.gone { std::mem::take(&mut q.jobs) } else { VecDeque::new() };
        drop(q);
        left.into_iter().for_each(|job| drop(job.run()));
    }

    /// Lines that were lost because the thread panicked.
    pub(crate) fn lost(&self) -> u64 {
        self.inner.lock().lost
    }

    /// How often a worker waited because the queue was full.
    pub(crate) fn waits(&self) -> u64 {
        self.inner.lock().waits
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.lock().stop = true;
        self.inner.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread's panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Slow {
        seen: Mutex<Vec<u8>>,
        gate: Mutex<()>,
    }

    impl Target for Slow {
        fn write(&self, lines: &[u8]) {
            assert!(!lines.starts_with(b"panic"));
            drop(self.gate.lock().unwrap());
            self.seen.lock().unwrap().extend_from_slice(lines);
        }

        fn tick(&self, now: Time) {
            self.seen.lock().unwrap().push(now.0 as u8);
        }
    }

    #[test]
    fn order_is_kept_and_a_fast_worker_waits() {
        let writer = Writer::start().unwrap();
        let slow = Arc::new(Slow::default());
        let target: Arc<dyn Target> = slow.clone();
        let want: Vec<u8> = (0..100u8).collect();
        std::thread::scope(|scope| {
            let gate = slow.gate.lock().unwrap();
            let worker = scope.spawn(|| {
                let mut buffer = Vec::new();
                for n in 0..100u8 {
                    buffer.push(n);
                    buffer = writer.put(&target, buffer, None);
                    assert!(buffer.is_empty());
                }
            });
            while writer.waits() == 0 {
                std::thread::yield_now();
            }
            assert!(slow.seen.lock().unwrap().is_empty());
            drop(gate);
            worker.join().unwrap();
        });
        writer.drain();
        assert_eq!(*slow.seen.lock().unwrap(), want);
    }

    #[test]
    fn nothing_is_left_when_it_ends() {
        let slow = Arc::new(Slow::default());
        let target: Arc<dyn Target> = slow.clone();
        let writer = Writer::start().unwrap();
        let gate = slow.gate.lock().unwrap();
        for n in 0..10 {
            writer.put(&target, vec![n], (n == 9).then_some(Time(10)));
        }
        drop(gate);
        drop(writer);
        assert_eq!(*slow.seen.lock().unwrap(), (0..11).collect::<Vec<u8>>());
        // Only this test still holds it.
        drop(target);
        assert_eq!(Arc::strong_count(&slow), 1);
    }

    #[test]
    fn without_its_thread_workers_write() {
        let slow = Arc::new(Slow::default());
        let target: Arc<dyn Target> = slow.clone();
        let writer = Writer::start().unwrap();
        writer.put(&target, b"panic".to_vec(), None);
        assert_eq!(writer.lost(), 0);
        while !writer.inner.lock().gone {
            std::thread::yield_now();
        }
        writer.put(&target, vec![1], None);
        writer.drain();
        assert_eq!((*slow.seen.lock().unwrap()).as_slice(), [1]);
        assert_eq!(writer.lost(), 0, "it was no whole line");
        let writer = Writer::start().unwrap();
        writer.put(&target, b"panic\nand another\n".to_vec(), None);
        writer.drain();
        assert_eq!(writer.lost(), 2);
    }
}
