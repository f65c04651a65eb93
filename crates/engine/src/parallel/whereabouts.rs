//! Records which workers recently had packets of which host. A per-host counter waits only for the workers that saw that
//! host.
//!
//! For each worker and each of [`HOSTS`] classes of addresses there is one word: the number of a stretch of [`STRETCH`]
//! frames, and one bit each for that stretch and the 31 before it. A bit is set if the worker received a frame of such a
//! host. The reader writes the words before it hands the frame over, so any worker that received a later frame sees them. A
//! frame whose hosts are uncertain (tunnels, fragments, other protocols than IP) counts for every host. Anything before the
//! word's 32 stretches counts for every host too.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::spread::hosts::{Whose, Words};

/// Classes of addresses; the first one stands for all hosts.
const HOSTS: usize = 4096;
/// Frames of the stream for one bit.
const STRETCH: u64 = 256;
/// Stretches that a word covers.
const STRETCHES: u64 = 32;

/// The table of all workers.
#[derive(Debug)]
pub(super) struct Whereabouts {
    workers: Box<[Box<[AtomicU64]>]>,
}

#[inline]
const fn class(host: Words) -> usize {
    let [a, b] = host;
    let mixed = (a ^ b.rotate_left(32) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + (mixed >> 40) as usize % (HOSTS - 1)
}

impl Whereabouts {
    /// A table for `workers` workers. A single worker never waits, and gets an empty one.
    pub(super) fn new(workers: usize) -> Whereabouts {
        let workers = if workers > 1 { workers } else { 0 };
        let row = |_| (0..HOSTS).map(|_| AtomicU64::new(0)).collect();
        Whereabouts { workers: (0..workers).map(row).collect() }
    }

    /// Called by the reader before a worker receives this frame.
    #[inline]
    pub(super) fn note(&self, worker: usize, frame: u64, whose: Whose) {
        let Some(row) = self.workers.get(worker) else { return };
        match whose {
            Whose::Hosts(a, b) => {
                note(row.get(class(a)), frame);
                note(row.get(class(b)), frame);
            }
            Whose::AnyHost => note(row.first(), frame),
        }
    }

    /// The position that a worker must reach to have finished all its frames of `host` before `frame`. `None` stands for all
    /// hosts.
    pub(super) fn due(&self, worker: usize, host: Option<Words>, frame: u64) -> u64 {
        let (Some(host), Some(row)) = (host, self.workers.get(worker)) else { return frame };
        let of = |n: usize| row.get(n).map_or(frame, |w| due(w.load(Ordering::Relaxed), frame));
        of(class(host)).max(of(0))
    }
}

/// Only the reader writes.
#[inline]
fn note(word: Option<&AtomicU64>, frame: u64) {
    let Some(word) = word else { return };
    let old = word.load(Ordering::Relaxed);
    let (last, bits) = (old >> 32, old & 0xffff_ffff);
    let now = frame / STRETCH;
    let new = match now.checked_sub(last) {
        // A held fragment may be older.
        None => old | 1u64.checked_shl((last - now).min(64) as u32).unwrap_or(0) & 0xffff_ffff,
        Some(0) => old | 1,
        Some(n) => now << 32 | bits.checked_shl(n.min(64) as u32).unwrap_or(0) & 0xffff_ffff | 1,
    };
    // Most frames belong to hosts that had a frame just before.
    if new != old {
        word.store(new, Ordering::Relaxed);
    }
}

fn due(word: u64, frame: u64) -> u64 {
    let (last, bits) = (word >> 32, word & 0xffff_ffff);
    let now = frame / STRETCH;
    // Later frames do not matter.
    let later = last.saturating_sub(now);
    if later >= STRETCHES {
        return frame;
    }
    let bits = bits >> later << later;
    let stretch = match bits {
        // Older stretches may have contained anything.
        0 => (last + 1).saturating_sub(STRETCHES),
        _ => last - u64::from(bits.trailing_zeros()).min(last) + 1,
    };
    (stretch * STRETCH).min(frame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spread::hosts::words;

    #[test]
    fn nobody_waits_for_who_had_none() {
        let w = Whereabouts::new(2);
        let (a, b, c) = (words([10, 0, 0, 1].into()), words([10, 0, 0, 2].into()), words([10, 0, 0, 3].into()));
        assert_eq!(w.due(1, Some(a), 5000), 0);
        w.note(1, 300, Whose::Hosts(a, b));
        assert_eq!((w.due(1, Some(a), 5000), w.due(1, Some(b), 400)), (512, 400));
        assert_eq!((w.due(1, Some(c), 5000), w.due(1, None, 5000), w.due(0, Some(a), 5000)), (0, 5000, 0));
        // An unknown host may be any host.
        w.note(1, 1000, Whose::AnyHost);
        assert_eq!(w.due(1, Some(c), 5000), 1024);
        // Later frames cause no wait while the word covers this one.
        w.note(1, 9000, Whose::Hosts(a, a));
        assert_eq!(w.due(1, Some(a), 5000), 1024);
        w.note(1, 90_000, Whose::Hosts(a, a));
        assert_eq!(w.due(1, Some(a), 5000), 5000);
    }

    proptest! {
        /// Earlier frames are never missed.
        #[test]
        fn all_before_are_waited_for(steps in proptest::collection::vec((1u64..2000, 0u8..3, any::<bool>()), 1..60), at in 0u64..60_000) {
            let w = Whereabouts::new(2);
            let (mut frame, mut had) = (0, Vec::new());
            for (step, host, unknown) in steps {
                frame += step;
                let host = words([10, 0, 0, host].into());
                w.note(1, frame, if unknown { Whose::AnyHost } else { Whose::Hosts(host, host) });
                had.push((frame, host, unknown));
            }
            for host in 0..3 {
                let host = words([10, 0, 0, host].into());
                let last = had.iter().filter(|h| h.0 < at && (h.2 || h.1 == host)).map(|h| h.0 + 1).max().unwrap_or(0);
                let due = w.due(1, Some(host), at);
                prop_assert!(due >= last && due <= at, "{due} for {last}, at {at}");
            }
        }
    }
}
