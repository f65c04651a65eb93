//! Decides which worker reads and which ones sleep: all communication between workers except the packets.
//!
//! There is no reader thread. A worker whose queue is empty becomes the reader, if there is none ([`Turns::begin`]). It reads
//! and steers until its own queue has packets again, or until a queue is full. Then it gives the role back ([`Turns::end`]).
//! A worker that finds neither packets nor the role sleeps ([`Turns::sleep`]).
//!
//! # No lost wake-ups
//!
//! A worker that goes to sleep first announces it, and then checks once more for work. A worker that creates work does so
//! first, and then checks for sleepers. A sequentially consistent fence separates the two steps on both sides, so at least
//! one of them sees the other:
//!
//! | work | created by | checked by the sleeper |
//! | --- | --- | --- |
//! | packets in its queue | [`Turns::wake`] after they were put there | `ready` |
//! | reading is free, and can continue | [`Turns::end`], [`Turns::taken`] | `reading`, `stuck` |
//! | the end | [`Turns::finish`] | `over` |
//!
//! Reading cannot continue while a queue is full. Then `stuck` names its worker. The reader first sets `stuck` and then tries
//! that queue once more (`feeder`). The worker first takes packets and then checks `stuck`. So one of them sees the other.
//!
//! # No deadlock
//!
//! No worker waits while it reads, and [`Turns::sleep`] is the only place where a worker waits for another. All workers could
//! sleep for ever only if all queues are empty (a sleeper's is, and filling it wakes the worker), reading is free, and
//! `stuck` is set. But a worker whose queue is empty cleared its own `stuck` when it took the last packets. `tests/turns.rs`
//! has loom try every order of these steps.

use std::time::{Duration, Instant};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Bell, Ordering, fence};

/// Limit of a sleep. Requests from other threads (`post`) are checked at least this often.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// Values of `stuck`: what reading waits for.
const NOTHING: usize = 0;
/// Any worker that finishes packets, and so frees their memory.
const ANYBODY: usize = usize::MAX;

/// The result of a turn of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The reader has packets of its own, or there is more to read.
    Fed,
    /// This worker's queue is full.
    Full(usize),
    /// Waiting packets hold too much memory.
    Memory,
    /// There is nothing to read now.
    Later,
    /// The same for a pipe: the next turn waits for its data.
    Silent,
    /// Everything was read and handed out.
    Over,
}

/// Shared by all workers.
#[derive(Debug)]
pub(super) struct Turns {
    /// A worker is reading.
    reading: AtomicBool,
    stuck: AtomicUsize,
    over: AtomicBool,
    /// A bit for each sleeping worker.
    sleeping: Box<[AtomicU64]>,
    bells: Box<[Bell]>,
}

impl Turns {
    pub(super) fn new(workers: usize) -> Turns {
        Turns {
            reading: AtomicBool::new(false),
            stuck: AtomicUsize::new(NOTHING),
            over: AtomicBool::new(false),
            sleeping: (0..workers.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            bells: (0..workers).map(|_| Bell::default()).collect(),
        }
    }

    /// Makes the calling thread worker `me`. Call it first.
    pub(super) fn enter(&self, me: usize) {
        if let Some(b) = self.bells.get(me) {
            b.here();
        }
    }

    /// Takes the reader's role, if it is free.
    #[inline]
    pub(super) fn begin(&self) -> bool {
        !self.reading.load(Ordering::Relaxed)
            && self.reading.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Called by the reader: it cannot continue until worker `who` takes packets. Try that queue once more afterwards.
    pub(super) fn stuck_at(&self, who: usize) {
        self.stuck.store(who.saturating_add(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Called by the reader: it cannot continue until any worker finishes packets. Check once more afterwards.
    pub(super) fn stuck_in_memory(&self) {
        self.stuck.store(ANYBODY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Called by the reader: reading continues.
    pub(super) fn unstuck(&self) {
        if self.stuck.load(Ordering::Relaxed) != NOTHING {
            self.stuck.store(NOTHING, Ordering::SeqCst);
        }
    }

    /// Gives the reader's role back, and wakes a sleeper to take it if there is something to read.
    pub(super) fn end(&self, outcome: Outcome) {
        self.reading.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if outcome == Outcome::Fed {
            self.wake_one();
        }
    }

    /// Worker `me` took packets out of its queue, which now has room, and finished them.
    #[inline]
    pub(super) fn taken(&self, me: usize) {
        fence(Ordering::SeqCst);
        let stuck = self.stuck.load(Ordering::SeqCst);
        if stuck == ANYBODY || stuck == me + 1 {
            self.go_on(stuck);
        }
    }

    #[cold]
    fn go_on(&self, stuck: usize) {
        // The current reader may have set a newer value.
        if self.stuck.compare_exchange(stuck, NOTHING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            fence(Ordering::SeqCst);
            self.wake_one();
        }
    }

    /// Everything was read and handed out.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (0..self.bells.len()).for_each(|w| self.ring(w));
    }

    /// Whether everything was read and handed out. The queues then hold all that remains.
    pub(super) fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Wakes `worker`, whose queue may have new packets.
    #[inline]
    pub(super) fn wake(&self, worker: usize) {
        fence(Ordering::SeqCst);
        self.ring(worker);
    }

    /// Sleeps until there is work for worker `me`, or for a while. `ready` says whether its queue has packets. Returns the
    /// length of the sleep.
    pub(super) fn sleep(&self, me: usize, ready: impl FnOnce() -> bool) -> Duration {
        let (Some(word), Some(bell)) = (self.sleeping.get(me / 64), self.bells.get(me)) else {
            return Duration::ZERO;
        };
        let bit = 1 << (me % 64);
        word.fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let something = ready()
            || self.over()
            || (!self.reading.load(Ordering::SeqCst) && self.stuck.load(Ordering::SeqCst) == NOTHING);
        let mut slept = Duration::ZERO;
        if !something {
            let before = Instant::now();
            bell.wait(NAP);
            slept = before.elapsed();
        }
        word.fetch_and(!bit, Ordering::SeqCst);
        slept
    }

    /// Wakes one sleeping worker, if there is one. An idle worker can only read or help.
    pub(super) fn wake_one(&self) {
        for (n, word) in self.sleeping.iter().enumerate() {
            let bits = word.load(Ordering::SeqCst);
            if bits != 0 {
                return self.ring(n * 64 + bits.trailing_zeros() as usize);
            }
        }
    }

    fn ring(&self, worker: usize) {
        let (Some(word), Some(bell)) = (self.sleeping.get(worker / 64), self.bells.get(worker)) else { return };
        let bit = 1 << (worker % 64);
        if word.load(Ordering::SeqCst) & bit != 0 && word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            bell.ring();
        }
    }
}
