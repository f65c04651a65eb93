//! Whose turn it is to read, and who sleeps: what workers say to each other, but for the packets.
//!
//! There is no thread that only reads. A worker whose queue is empty takes the reader's place, where nobody has it
//! ([`Turns::begin`]): it reads and steers until its own queue has something again, or until a queue is full, and gives the place
//! back ([`Turns::end`]). A worker that finds neither packets nor the place free sleeps ([`Turns::sleep`]).
//!
//! # Nobody sleeps who is needed
//!
//! A sleeper says that it sleeps, and then looks once more whether there is something for it; who makes something for it does so
//! first, and then looks whether it sleeps. Between the two steps of both there is a sequentially consistent fence, so that at
//! least one sees what the other did:
//!
//! | what there is | made by | looked at by the sleeper |
//! | --- | --- | --- |
//! | packets in its queue | [`Turns::wake`] after they are put there | `ready` |
//! | the reader's place is free, and can go on | [`Turns::end`], [`Turns::taken`] | `reading`, `stuck` |
//! | the end | [`Turns::finish`] | `over` |
//!
//! Reading cannot go on while a queue is full: then `stuck` says whose. The reader says so first and tries that queue once more
//! after it (`feeder`), its worker takes packets first and looks at `stuck` after it, so that one of them sees the other.
//!
//! # No deadlock
//!
//! Nobody waits while holding the place, and nobody waits for another but in [`Turns::sleep`]. So all can only sleep for ever if all
//! queues are empty (a sleeper's is, and who fills it wakes it), the place is free, and `stuck` is set; but that of a
//! worker whose queue is empty was cleared by it when it took the last packets. `tests/turns.rs` lets loom try every order
//! of these steps.

use std::time::{Duration, Instant};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Bell, Ordering, fence};

/// Longest sleep: orders from other threads (`control::post`) are looked for as often.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// What reading waits for.
const NOTHING: usize = 0;
/// Any worker that is done with packets: their memory.
const ANYBODY: usize = usize::MAX;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is something to do for the worker that read, or more to read.
    Fed,
    /// The queue of this worker is full.
    Full(usize),
    /// Too much memory is held by packets that wait.
    Memory,
    /// There is nothing to read now.
    Later,
    /// All is read and handed out.
    Over,
}

/// Shared by all workers.
#[derive(Debug)]
pub(super) struct Turns {
    /// Somebody reads.
    reading: AtomicBool,
    stuck: AtomicUsize,
    over: AtomicBool,
    /// A bit for each worker that sleeps.
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

    /// The calling thread is worker `me`: to be called before anything else.
    pub(super) fn enter(&self, me: usize) {
        if let Some(b) = self.bells.get(me) {
            b.here();
        }
    }

    /// Takes the reader's place, if nobody has it.
    #[inline]
    pub(super) fn begin(&self) -> bool {
        !self.reading.load(Ordering::Relaxed)
            && self.reading.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// While reading: nothing can be read before worker `who` took packets. Try its queue once more after this.
    pub(super) fn stuck_at(&self, who: usize) {
        self.stuck.store(who.saturating_add(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// While reading: nothing can be read before somebody is done with packets. Look once more after this.
    pub(super) fn stuck_in_memory(&self) {
        self.stuck.store(ANYBODY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// While reading: it goes on.
    pub(super) fn unstuck(&self) {
        if self.stuck.load(Ordering::Relaxed) != NOTHING {
            self.stuck.store(NOTHING, Ordering::SeqCst);
        }
    }

    /// Gives the reader's place back, and has one that sleeps take it where there is something to read.
    pub(super) fn end(&self, outcome: Outcome) {
        self.reading.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if outcome == Outcome::Fed {
            self.wake_one();
        }
    }

    /// Worker `me` took packets out of its queue, which has room now, and is done with them.
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
        // Who reads now may have said something newer.
        if self.stuck.compare_exchange(stuck, NOTHING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            fence(Ordering::SeqCst);
            self.wake_one();
        }
    }

    /// All is read and handed out.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (0..self.bells.len()).for_each(|w| self.ring(w));
    }

    /// Whether all is read and handed out: what is in the queue then is all that comes.
    pub(super) fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// There are packets in the queue of `worker` that it may not know of.
    #[inline]
    pub(super) fn wake(&self, worker: usize) {
        fence(Ordering::SeqCst);
        self.ring(worker);
    }

    /// Sleeps until there is something for worker `me`, or for a while; `ready` tells whether there is something in its queue.
    /// Returns how long that took.
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

    /// Wakes one worker, if there is one that sleeps: it has nothing else to do than read, or help.
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
