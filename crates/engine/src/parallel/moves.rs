//! Flows that change their worker (`autofp-scheduler: conservative`, `optimistic`): who decides, and how it is done.
//!
//! A flow's state is its worker's own. So a move is decided where the stream of packets has one order, by who has the
//! reader's place, and is carried out by the two workers: the **giver** takes the flow out of its table, the **taker** puts it into
//! its own ([`Pipeline::flow_leaves`](crate::worker::Pipeline::flow_leaves)). At the flow's frame *n*, the first that is the taker's, the feeder
//!
//! 1. puts [`Item::Give`](super::piece::Item) at the end of the giver's queue, behind all frames of the flow before *n*;
//! 2. puts [`Item::Take`](super::piece::Item) into the taker's queue, before frame *n*;
//! 3. asks the giver at once ([`Asked`]): between two frames it gives what it is asked for as soon as it is done with the flow's last
//!    frame, and need not come to the end of its queue for that. What was given is skipped at [`Item::Give`](super::piece::Item).
//!
//! A taker that comes to [`Item::Take`](super::piece::Item) before the flow was given waits for it, and gives in the meantime what it is asked for itself.
//!
//! | | a flow moves |
//! | --- | --- |
//! | `conservative` | when none of its packets waits or is being looked at, to the worker that has clearly less to do: half of what its own has, and [`Rules::difference`] packets less |
//! | `optimistic` | then, and when more than [`Rules::waiting`] of its packets wait |
//!
//! # The same alerts
//!
//! All packets of a flow before *n* are inspected by the giver, in order, before it gives; all from *n* on by the taker, in order, after it
//! took. So each packet finds the state that it would find at one worker. What goes with a flow is told in [`crate::worker::moving`].
//! What moves is one flow of the table: its ends come from the headers of the frame that decided, and the hash that the feeder knows it
//! by is that of these ends, with a key of its own ([`super::steer::Exact`]); no two flows have the same.
//! Flows of which fragments were seen stay where they are from then on, and so does all that goes by its addresses: tunnels, FTP and what
//! it announces, protocols without ports.
//!
//! # No deadlock
//!
//! A worker waits for two things: in `order` at frame *f*, until all others are past *f*; and for a flow at frame *n*, until it is given.
//! Say that somebody waits for ever. Of all that do, look at the worker that waits at the earliest position of the stream (a taker at *n*
//! waits at the position just before frame *n*, and says so: [`Load::at`](super::feeder::Load) is *n*, so that nobody waits in `order`
//! for it at a frame before *n*).
//!
//! - It waits for a flow. All that is before [`Item::Give`](super::piece::Item) in the giver's queue is of frames before *n*, and the
//!   giver waits at none of them for ever, since that would be earlier. So it comes to the end of its queue and gives. That the item
//!   is in the queue, and not still with the feeder because the queue was full, sees to itself: a giver whose queue is empty reads, and
//!   who reads first hands over what had no room; the taker does so as well, while it waits ([`tell_all`](super::order::tell_all)).
//! - It waits in `order` at *f*, for a worker that is not past *f*. That one waits at no earlier position, as a taker at *n* ≤ *f* would;
//!   so it goes on, or has nothing, and `order` tells why that ends.
//!
//! Nobody waits while holding the reader's place: the feeder only puts things into queues and lists. A giver that failed says that it is
//! gone, and the taker goes on without the flow: what it had is lost, as is all else that the giver had, and the run ends with an error.

use std::sync::Arc;

use margay_flow::Ends;

use super::handover::{Asked, Handover};
use crate::worker::moving::Moving;

/// A flow that goes from one worker to another.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) ends: Ends,
    pub(super) from: usize,
    /// The giver is done with the flow when it is done with so many packets.
    pub(super) after: u64,
    /// The first frame that is the taker's.
    pub(super) frame: u64,
    /// The flow, or that there is none of these ends.
    pub(super) cell: Handover<Option<Box<Moving>>>,
}

/// What workers are asked for, by their numbers.
#[derive(Debug)]
pub(super) struct Exchange {
    asked: Box<[Asked<Arc<Move>>]>,
}

impl Exchange {
    pub(super) fn new(workers: usize) -> Exchange {
        Exchange { asked: (0..workers).map(|_| Asked::new()).collect() }
    }

    pub(super) fn of(&self, worker: usize) -> Option<&Asked<Arc<Move>>> {
        self.asked.get(worker)
    }
}

/// When a flow moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// So many packets less must the other worker have (`margay.move-difference`). With 0 a flow moves where it can.
    pub(super) difference: u64,
    /// More than so many packets of the flow must wait, where it moves with packets in flight (`margay.move-waiting`).
    pub(super) waiting: Option<u32>,
}

/// What is known of a flow's packets at its worker. Packets are numbered as they are sent there.
#[derive(Debug, Clone, Copy, Default)]
struct Motion {
    /// The last one.
    last: u64,
    /// Those up to `border` were `before`, `since` came after it.
    border: u64,
    before: u32,
    since: u32,
    /// It stays where it is.
    pinned: bool,
}

/// What a lane looks like to who decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    /// Packets that wait, or are being looked at.
    pub(super) load: u64,
    /// Those that its worker was done with.
    pub(super) done: u64,
}

/// Decides, for the feeder.
#[derive(Debug)]
pub(super) struct Moves {
    rules: Rules,
    pub(super) exchange: Arc<Exchange>,
    /// By the flow's place in the table of who has what.
    motions: Vec<Motion>,
    /// How often flows moved.
    pub(super) moves: u64,
}

impl Moves {
    pub(super) fn new(rules: Rules, flows: usize, exchange: &Arc<Exchange>) -> Moves {
        Moves { rules, exchange: Arc::clone(exchange), motions: vec![Motion::default(); flows], moves: 0 }
    }

    /// Another flow has this place.
    pub(super) fn begin(&mut self, at: usize) {
        if let Some(m) = self.motions.get_mut(at) {
            *m = Motion::default();
        }
    }

    /// It stays where it is from here on.
    pub(super) fn pin(&mut self, at: usize) {
        if let Some(m) = self.motions.get_mut(at) {
            m.pinned = true;
        }
    }

    /// Where a flow of `worker` is to go, and which of its packets is the last there; `None` where it stays.
    #[inline]
    pub(super) fn consider(
        &self,
        at: usize,
        worker: usize,
        workers: usize,
        queue: impl Fn(usize) -> Queue,
    ) -> Option<(usize, u64)> {
        let own = queue(worker);
        let m = self.motions.get(at)?;
        if own.load < self.rules.difference || m.pinned || m.last == 0 {
            return None;
        }
        if m.last > own.done {
            let waiting = self.rules.waiting?;
            if m.before.saturating_add(m.since) <= waiting {
                return None;
            }
        }
        let (to, least) = (0..workers).map(|n| (n, queue(n).load)).min_by_key(|(n, load)| (*load, *n == worker))?;
        (to != worker && own.load >= least * 2 && own.load - least >= self.rules.difference).then_some((to, m.last))
    }

    /// The flow moved: its packets are counted anew.
    pub(super) fn moved(&mut self, at: usize) {
        self.moves += 1;
        self.begin(at);
    }

    /// A packet of a flow is sent, the `number`th of its worker, which was done with so many.
    #[inline]
    pub(super) fn sent(&mut self, at: usize, number: u64, done: u64) {
        let Some(m) = self.motions.get_mut(at) else { return };
        if m.border <= done {
            (m.before, m.since, m.border) = (m.since, 0, m.last);
        }
        if m.last <= done {
            (m.before, m.since) = (0, 0);
        }
        m.since += 1;
        m.last = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(waiting: Option<u32>) -> Moves {
        Moves::new(Rules { difference: 10, waiting }, 4, &Arc::new(Exchange::new(2)))
    }

    /// Where a flow of worker 0 goes that has so much to do, where worker 1 has so much.
    fn to(m: &Moves, own: (u64, u64), other: u64) -> Option<(usize, u64)> {
        m.consider(0, 0, 2, |n| Queue { load: [own.0, other][n], done: [own.1, 0][n] })
    }

    #[test]
    fn nothing_in_flight() {
        let mut m = moves(None);
        assert_eq!(to(&m, (100, 50), 0), None, "it is not there yet");
        m.sent(0, 7, 3);
        assert_eq!(to(&m, (100, 6), 0), None);
        assert_eq!(to(&m, (100, 7), 0), Some((1, 7)));
        assert_eq!((to(&m, (100, 7), 50), to(&m, (100, 7), 51), to(&m, (9, 7), 0)), (Some((1, 7)), None, None));
        m.moved(0);
        assert_eq!((m.moves, to(&m, (100, 7), 0)), (1, None));
        m.sent(0, 1, 0);
        m.pin(0);
        assert_eq!(to(&m, (100, 7), 0), None);
        m.begin(0);
        m.sent(0, 5, 0);
        assert_eq!(to(&m, (100, 7), 0), Some((1, 5)));
    }

    #[test]
    fn many_in_flight() {
        let mut m = moves(Some(3));
        for n in 1..=3 {
            m.sent(0, n, 0);
        }
        assert_eq!(to(&m, (100, 0), 0), None);
        m.sent(0, 4, 0);
        assert_eq!(to(&m, (100, 0), 0), Some((1, 4)));
        // What was done with does not wait; nor does what was done with long ago.
        m.sent(0, 5, 4);
        m.sent(0, 6, 4);
        assert_eq!((to(&m, (100, 4), 0), to(&m, (100, 6), 0)), (None, Some((1, 6))));
    }
}
