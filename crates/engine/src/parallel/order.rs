//! Serializes access to state that several workers share through rules: counts by address, bits of hosts, and datasets that
//! rules change.
//!
//! Each worker publishes its current frame ([`Load::at`](super::feeder::Load): one store per frame, to a cache line of its
//! own). Before a worker touches shared state, it waits until all others are past its own frame. Then it finds the same state
//! as a single worker would. Only packets of a host touch counts by that host's address, so the wait covers only the workers
//! that saw the host ([`super::whereabouts`]). Without such rules, no worker waits. A waiting worker helps the workers behind
//! it with their searches, if helping is on (`ahead`).
//!
//! # No deadlock
//!
//! Frames have one order, and the worker at the first of them waits for nobody. An idle worker's position is the last one it
//! was informed of. A worker that waits for an idle one takes over reading for a moment, and informs it how far the stream
//! was steered ([`Feeder::tell_all`](super::feeder::Feeder::tell_all)). That is further than any frame that is being
//! inspected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_detect::{About, Detect, InOrder};

use super::feeder::Shared;
use super::turns::Outcome;
use crate::spread::ahead::{Helper, Team};
use crate::spread::hosts::words;
use crate::worker::engines::PacketOrder;

/// Polls of the other workers between two attempts to find other work.
pub(super) const LOOKS: u32 = 64;
/// After so many attempts, the other worker probably has no processor. Further polling would only keep the processor from it.
const PATIENCE: u32 = 64;
/// Length of a sleep after that.
const NAP: Duration = Duration::from_micros(50);

/// One worker's view of the order.
pub(super) struct Order {
    me: usize,
    shared: Arc<Shared>,
    /// Only this worker takes the lock, so it never blocks.
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
            // Most workers are past this frame.
            if self.at(n) < mine {
                let due = self.shared.whereabouts.due(n, host, mine);
                if self.at(n) < due {
                    self.wait_for(n, due);
                }
            }
        }
    }
}

impl PacketOrder for Order {
    fn rules(&self, detect: &Arc<Detect>) {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner).rules(detect);
    }
}

impl Order {
    pub(super) fn new(me: usize, shared: &Arc<Shared>) -> Order {
        let helper = Mutex::new(Helper::new(Arc::clone(shared) as Arc<dyn Team>, me));
        Order { me, shared: Arc::clone(shared), helper, waits: AtomicU64::new(0), waited: AtomicU64::new(0) }
    }

    #[inline]
    fn at(&self, n: usize) -> u64 {
        self.shared.loads.get(n).map_or(u64::MAX, |l| l.at.load(Ordering::Acquire))
    }

    /// Waits until worker `n` has finished its frames before `due`.
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
            // After the end, all items are in the queues.
            if !turns.over() {
                tell_all(&self.shared);
            }
            if self.help(|| self.at(n) >= due) {
                // The search took long enough for the other worker to get a processor, so polling starts again.
                looks = 0;
            } else {
                pause(looks / LOOKS);
            }
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
    }

    /// Searches payloads for another worker. Returns `false` if no worker needs help.
    pub(super) fn help(&self, needed: impl Fn() -> bool) -> bool {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner).help(needed)
    }
}

/// Takes over reading for a moment, if it is free, and hands over what is waiting.
pub(super) fn tell_all(shared: &Shared) {
    let turns = &shared.turns;
    if turns.begin() {
        shared.feeder.lock().unwrap_or_else(PoisonError::into_inner).tell_all(turns);
        // Another worker may have gone to sleep because reading was taken.
        turns.end(Outcome::Fed);
    }
}

/// Yields the processor after the `nth` unsuccessful poll.
#[cold]
pub(super) fn pause(nth: u32) {
    if nth > PATIENCE { std::thread::sleep(NAP) } else { std::thread::yield_now() }
}
