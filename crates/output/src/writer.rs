//! A thread that writes, so that a worker does not wait for files and sockets.
//!
//! Workers hand over buffers of whole lines ([`Writer::put`]) and get empty ones back, those that were just written first:
//! they are still in the cache. Buffers are written in the order they were handed over, whichever sink they are for, so that
//! the order of each worker's lines stays. Their number is bounded: a worker that is faster than the disk waits, and that is
//! counted ([`Writer::waits`]). Nothing else may be done to a sink from a worker while it has lines here:
//! [`Writer::drain`] waits until there are none.
//!
//! Should the thread panic, workers write themselves from then on. The lines that it was at are lost, and counted
//! ([`Writer::lost`]).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use margay_packet::Time;

/// Most buffers that wait.
const QUEUE: usize = 16;
/// Room in a new buffer: what a worker collects at most, and a line.
const BUFFER: usize = 144 * 1024;

/// Where lines go.
pub(crate) trait Target: Send + Sync {
    /// Writes whole lines.
    fn write(&self, lines: &[u8]);

    /// Time goes by.
    fn tick(&self, now: Time);
}

struct Job {
    target: Arc<dyn Target>,
    lines: Vec<u8>,
    tick: Option<Time>,
}

impl Job {
    /// Does it, and gives the buffer back.
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

/// The lines that the thread is writing. They are counted only where the thread panics over them.
struct InHand<'a> {
    inner: &'a Inner,
    lines: Vec<u8>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.lock().lost += self.lines.iter().filter(|b| **b == b'\n').count() as u64;
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
    /// Jobs that were ever handed over, and those that were done.
    put: u64,
    done: u64,
    /// No more will come.
    stop: bool,
    /// The thread is gone.
    gone: bool,
    waits: u64,
    /// Lines that were lost with the thread.
    lost: u64,
}

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// There is something to write, or nothing more will come.
    work: Condvar,
    /// Something was written.
    written: Condvar,
}

/// The thread, for all workers and sinks of a run. When the last of them lets go it ends, after it wrote everything.
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
    /// What was done under the lock is whole, whoever panicked.
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

/// Tells workers that the thread is gone, however that came.
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
    /// No thread is to be had.
    pub(crate) fn start() -> std::io::Result<Writer> {
        let inner = Arc::new(Inner::default());
        let its = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("Writer".into()).spawn(move || {
            let leaving = Leaving(&its);
            leaving.0.run();
        })?;
        Ok(Writer { inner, thread: Some(thread) })
    }

    /// Hands `lines` over to be written, and returns an empty buffer. Where there is a time the target is told of it, after
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
            // What it left behind comes first.
            let left = std::mem::take(&mut q.jobs);
            drop(q);
            left.into_iter().for_each(|job| drop(job.run()));
            return job.run();
        }
        // Where more waits the thread is awake.
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

    /// Waits until everything that was handed over so far is written.
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

    /// How often a worker waited because too much was to be written.
    pub(crate) fn waits(&self) -> u64 {
        self.inner.lock().waits
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.lock().stop = true;
        self.inner.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was shown when it happened.
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
        // Nobody holds it any more but this test.
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
