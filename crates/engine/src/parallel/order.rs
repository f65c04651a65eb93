//! Whose turn it is, where rules look at what workers keep together: counts by address, bits of hosts, sets that rules change.
//!
//! Each worker says at which frame it is ([`Load::at`](super::feeder::Load): one store a frame, to a line of its own). Who is to
//! touch what is shared waits until all others are past its own frame: then it finds what one worker would have found. What is
//! counted by address is touched by packets of that host alone: it waits for those that had one ([`super::whereabouts`]). Rules
//! that have nothing of the kind never wait. Meanwhile it makes searches for those that are behind, where that may be (`ahead`).
//!
//! # No deadlock
//!
//! Frames have one order, and the worker at the first of them waits for nobody. One without work stands where it last heard that it
//! gets nothing before; who waits for it takes the reader's place for a moment and has it told how far the stream was
//! steered ([`Feeder::tell_all`](super::feeder::Feeder::tell_all)), which is further than any frame that is being looked at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_detect::{About, Detect, InOrder};

use super::ahead::Helper;
use super::feeder::Shared;
use super::turns::Outcome;
use super::whereabouts::words;

/// Looks at the others from one look for something to do to the next.
pub(super) const LOOKS: u32 = 64;
/// After so many of these the one that is waited for has no processor: to look on would only keep it from one.
const PATIENCE: u32 = 64;
/// How long is slept then.
const NAP: Duration = Duration::from_micros(50);

/// A worker's place among the others.
pub(super) struct Order {
    me: usize,
    shared: Arc<Shared>,
    /// Nobody else asks for the lock: a worker that waits does not look for something to do otherwise.
    pub(super) helper: Mutex<Helper>,
    /// How often it waited, and for how long, in nanoseconds.
    pub(super) waits: AtomicU64,
    pub(super) waited: AtomicU64,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("me", &self.me).finish_non_exhaustive()
    }
}

impl InOrder for Order {
    fn wait(&self, about: About) {
        let mine = self.at(self.me);
        let host = match about {
            About::Host(address) => Some(words(address)),
            About::All => None,
        };
        for n in (0..self.shared.loads.len()).filter(|n| *n != self.me) {
            // Most are past it.
            if self.at(n) < mine {
                let due = self.shared.whereabouts.due(n, host, mine);
                if self.at(n) < due {
                    self.wait_for(n, due);
                }
            }
        }
    }

    fn rules(&self, detect: &Arc<Detect>) {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner).rules(detect);
    }
}

impl Order {
    pub(super) fn new(me: usize, shared: &Arc<Shared>) -> Order {
        let helper = Mutex::new(Helper::new(shared, me));
        Order { me, shared: Arc::clone(shared), helper, waits: AtomicU64::new(0), waited: AtomicU64::new(0) }
    }

    #[inline]
    fn at(&self, n: usize) -> u64 {
        self.shared.loads.get(n).map_or(u64::MAX, |l| l.at.load(Ordering::Acquire))
    }

    /// Until worker `n` is done with its frames before `due`.
    #[cold]
    fn wait_for(&self, n: usize, due: u64) {
        let began = Instant::now();
        let turns = &self.shared.turns;
        let mut looks = 0u32;
        while self.at(n) < due {
            looks = looks.saturating_add(1);
            if !looks.is_multiple_of(LOOKS) {
                std::hint::spin_loop();
                continue;
            }
            // After the end all that there is is in the queues.
            if !turns.over() {
                tell_all(&self.shared);
            }
            if self.help(|| self.at(n) >= due) {
                // Whoever waited for a processor has had the time to get one.
                looks = 0;
            } else {
                pause(looks / LOOKS);
            }
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
    }

    /// Makes searches for another worker; `false` where nobody needs help.
    pub(super) fn help(&self, needed: impl Fn() -> bool) -> bool {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner).help(needed)
    }
}

/// Takes the reader's place for a moment, if nobody has it, and hands over what there is.
pub(super) fn tell_all(shared: &Shared) {
    let turns = &shared.turns;
    if turns.begin() {
        shared.feeder.lock().unwrap_or_else(PoisonError::into_inner).tell_all(turns);
        // Somebody may have gone to sleep because the place was taken.
        turns.end(Outcome::Fed);
    }
}

/// Leaves the processor to others, after the `nth` look in vain.
#[cold]
pub(super) fn pause(nth: u32) {
    if nth > PATIENCE { std::thread::sleep(NAP) } else { std::thread::yield_now() }
}
