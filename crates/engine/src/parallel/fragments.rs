//! Steers fragments to the worker of their datagram's flow.
//!
//! Only the first fragment has the ports. If it arrives first, the others follow it. Fragments that arrive earlier are held
//! until it comes, up to a limit of frames and of fragments. After that they go by their addresses, and so do all others of
//! that datagram. Holding is rare and its cost is bounded. Without it, a sender could evade inspection by sending the last
//! fragment first.

use std::collections::VecDeque;
use std::sync::Arc;

use margay_packet::{Frame, LinkType, Time};

/// Datagrams that are remembered. A new one replaces the old one in its slot.
const SLOTS: usize = 4096;
/// Limit of held fragments.
const HELD: usize = 256;
/// Limit of the time that a fragment is held, in frames of the stream.
const PATIENCE: u64 = 8192;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    datagram: u64,
    worker: u32,
    /// Frames of the stream at its last lookup; 0 for an empty slot.
    seen: u64,
}

/// A fragment that waits for the first fragment of its datagram.
#[derive(Debug)]
pub(super) struct Held {
    datagram: u64,
    alone: usize,
    pub(super) buffer: Arc<Vec<u8>>,
    pub(super) start: usize,
    len: usize,
    wire_len: u32,
    time: Time,
    link: LinkType,
    number: u64,
    since: u64,
}

impl Held {
    pub(super) fn new(
        datagram: u64,
        alone: usize,
        buffer: &Arc<Vec<u8>>,
        start: usize,
        frame: &Frame<'_>,
        since: u64,
    ) -> Held {
        Held {
            datagram,
            alone,
            buffer: Arc::clone(buffer),
            start,
            len: frame.data.len(),
            wire_len: frame.wire_len,
            time: frame.time,
            link: frame.link,
            number: frame.number,
            since,
        }
    }

    pub(super) fn frame(&self) -> Frame<'_> {
        Frame {
            data: self.buffer.get(self.start..self.start + self.len).unwrap_or(&[]),
            wire_len: self.wire_len,
            time: self.time,
            link: self.link,
            number: self.number,
        }
    }
}

/// Remembers the workers of datagrams, and holds early fragments.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// Allocated with the first fragment.
    slots: Vec<Slot>,
    waiting: VecDeque<Held>,
    /// Fragments that were held.
    pub(super) held: u64,
}

impl Fragments {
    /// The worker of a datagram. `first` is the worker that its first fragment names.
    pub(super) fn worker(&mut self, datagram: u64, first: Option<usize>, seen: u64) -> Option<usize> {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS];
        }
        let slot = self.slots.get_mut(datagram as usize % SLOTS)?;
        let known = slot.seen != 0 && slot.datagram == datagram && seen.saturating_sub(slot.seen) < PATIENCE;
        if known {
            slot.seen = seen;
            return Some(slot.worker as usize);
        }
        let worker = first?;
        *slot = Slot { datagram, worker: worker as u32, seen };
        Some(worker)
    }

    /// Holds a fragment until its worker is known.
    pub(super) fn hold(&mut self, held: Held) {
        self.held += 1;
        self.waiting.push_back(held);
    }

    /// Whether any fragments are held.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the oldest held fragment of a datagram.
    pub(super) fn take(&mut self, datagram: u64) -> Option<Held> {
        let at = self.waiting.iter().position(|h| h.datagram == datagram)?;
        self.waiting.remove(at)
    }

    /// Takes a fragment that was held for too long, with its worker.
    pub(super) fn overdue(&mut self, seen: u64) -> Option<(Held, usize)> {
        let oldest = self.waiting.front()?;
        if self.waiting.len() <= HELD && seen.saturating_sub(oldest.since) < PATIENCE {
            return None;
        }
        let held = self.waiting.pop_front()?;
        let worker = self.worker(held.datagram, Some(held.alone), held.since.max(1)).unwrap_or(held.alone);
        Some((held, worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(datagram: u64, since: u64) -> Held {
        let frame = Frame { data: b"abc", wire_len: 3, time: Time(0), link: LinkType::RAW, number: since };
        Held::new(datagram, 3, &Arc::new(b"xabcx".to_vec()), 1, &frame, since)
    }

    #[test]
    fn the_first_says_where() {
        let mut f = Fragments::default();
        assert_eq!(f.worker(7, None, 1), None);
        f.hold(held(7, 1));
        f.hold(held(8, 2));
        f.hold(held(7, 3));
        assert_eq!(f.worker(7, Some(1), 4), Some(1));
        // Another fragment that claims to be the first changes nothing.
        assert_eq!(f.worker(7, Some(2), 5), Some(1));
        assert_eq!(f.take(7).map(|h| (h.number, h.frame().data.to_vec())), Some((1, b"abc".to_vec())));
        assert_eq!(f.take(7).map(|h| h.number), Some(3));
        assert!(f.take(7).is_none() && f.any());
        assert_eq!(f.worker(7, None, 6), Some(1));
    }

    #[test]
    fn none_waits_for_ever() {
        let mut f = Fragments::default();
        for n in 1..=HELD as u64 + 1 {
            f.hold(held(n, n));
        }
        let (oldest, worker) = f.overdue(300).unwrap();
        assert_eq!((oldest.datagram, worker), (1, 3));
        assert!(f.overdue(300).is_none());
        // Later fragments of the datagram go the same way.
        assert_eq!(f.worker(1, Some(0), 301), Some(3));
        assert_eq!(f.overdue(PATIENCE + 2).unwrap().0.datagram, 2);
        assert!(f.overdue(PATIENCE + 2).is_none());
        while f.overdue(u64::MAX).is_some() {}
        assert!(!f.any());
    }
}
