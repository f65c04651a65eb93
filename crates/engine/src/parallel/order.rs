//! Whose turn it is, where rules look at what workers keep together: counts by address, bits of hosts, sets that rules change.
//!
//! Each worker says at which frame it is ([`Load::at`](super::feeder::Load): one store a frame, to a line of its own). Who is to
//! touch what is shared waits until all others are past its own frame: then it finds what one worker would have found. Rules
//! that have nothing of the kind never wait.
//!
//! # No deadlock
//!
//! Frames have one order, and the worker at the first of them waits for nobody. One without work stands where it last heard that it
//! gets nothing before; who waits for it takes the reader's place for a moment and has it told how far the stream was
//! steered ([`Feeder::tell_all`](super::feeder::Feeder::tell_all)), which is further than any frame that is being looked at.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use margay_detect::InOrder;

use super::feeder::Shared;
use super::turns::Outcome;

/// Looks at the others from one look for those without work to the next.
pub(super) const LOOKS: u32 = 256;
/// After so many of these the one that is waited for has no processor: to look on would only keep it from one.
const PATIENCE: u32 = 32;
/// How long is slept then.
const NAP: Duration = Duration::from_micros(50);

/// A worker's place among the others.
pub(super) struct Order {
    pub(super) me: usize,
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("me", &self.me).finish_non_exhaustive()
    }
}

impl InOrder for Order {
    fn wait(&self) {
        let loads = &self.shared.loads;
        let at = |n: usize| loads.get(n).map_or(u64::MAX, |l| l.at.load(Ordering::Acquire));
        let mine = at(self.me);
        let mut looks = 0u32;
        for n in 0..loads.len() {
            while n != self.me && at(n) < mine && !self.shared.turns.over() {
                looks += 1;
                if looks.is_multiple_of(LOOKS) {
                    help(&self.shared);
                    pause(looks / LOOKS);
                } else {
                    std::hint::spin_loop();
                }
            }
            // After the end all that there is is in the queues.
            while n != self.me && at(n) < mine {
                looks += 1;
                pause(looks);
            }
        }
    }
}

/// Takes the reader's place for a moment, if nobody has it, and hands over what there is.
#[cold]
pub(super) fn help(shared: &Shared) {
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
