//! Moves flows to other workers (`autofp-scheduler: conservative`, `optimistic`): the decision, and the protocol.
//!
//! Only its worker can touch a flow's state. The reading worker decides a move, because it sees the packet stream in order.
//! Two workers carry it out: the **giver** takes the flow out of its table, and the **taker** puts it into its own
//! ([`Pipeline::flow_leaves`](crate::worker::Pipeline::flow_leaves)). Frame *n* is the flow's first frame at the taker. At
//! this frame, the feeder
//!
//! 1. puts [`Item::Give`](super::item::Item) at the end of the giver's queue, after all frames of the flow before *n*;
//! 2. puts [`Item::Take`](super::item::Item) into the taker's queue, before frame *n*;
//! 3. sends the giver a request ([`Asked`]). Between two frames, the giver gives a requested flow as soon as it has finished
//!    the flow's last frame, without waiting for the end of its queue. A flow that was given early is skipped at
//!    [`Item::Give`](super::item::Item).
//!
//! A taker that reaches [`Item::Take`](super::item::Item) early waits for the flow, and meanwhile serves the requests to
//! itself.
//!
//! | | a flow moves |
//! | --- | --- |
//! | `conservative` | when none of its packets waits or is being inspected, to a worker with clearly less to do: half of the load, and [`Rules::difference`] packets less |
//! | `optimistic` | also when more than [`Rules::waiting`] of its packets wait |
//!
//! # The same alerts
//!
//! The giver inspects all packets of a flow before *n*, in order, before it gives the flow. The taker inspects all packets
//! from *n* on, in order, after it took the flow. So each packet finds the same state as with one worker.
//! [`crate::worker::moving`] lists the state that moves with a flow. Exactly one flow of the table moves: its endpoints come
//! from the headers of frame *n*, and the feeder identifies it by the hash of these endpoints under a key of its own
//! ([`crate::spread::steer::Exact`]). No two flows share that hash. A flow is pinned to its worker once a fragment of it was seen.
//! Everything that goes by its addresses is pinned too: tunnels, FTP and the connections it announces, and protocols without
//! ports.
//!
//! # No deadlock
//!
//! A worker waits for two things: in `order` at frame *f*, until all other workers are past *f*; and for a flow at frame *n*,
//! until it is given. Assume that some workers wait for ever. Take the one that waits at the earliest position of the stream.
//! A taker at *n* waits at the position just before frame *n*, and publishes that: [`Load::at`](super::feeder::Load) is *n*,
//! so that no worker waits in `order` for it at a frame before *n*.
//!
//! - If it waits for a flow: everything before [`Item::Give`](super::item::Item) in the giver's queue belongs to frames
//!   before *n*. The giver does not wait for ever at any of them, since that would be an earlier position. So it reaches the
//!   item and gives the flow. The item may still be with the feeder, because the queue was full. Then the giver empties its
//!   queue and reads, and a reader first hands over items that had no room. The waiting taker does the same
//!   ([`tell_all`](super::order::tell_all)).
//! - If it waits in `order` at *f* for a worker that is not past *f*: that worker does not wait at an earlier position, as a
//!   taker at *n* ≤ *f* would. So it continues, or it is idle, and `order` explains why that wait ends.
//!
//! No worker waits while it reads: the feeder only puts items into queues and lists. A giver that failed declares itself
//! gone, and the taker continues without the flow. The flow's state is lost, like everything else that the giver had, and the
//! run ends with an error.

use std::sync::Arc;

use margay_flow::Ends;

use super::handover::{Asked, Handover};
use crate::worker::moving::Moving;

/// A flow that moves from one worker to another.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) ends: Ends,
    pub(super) from: usize,
    /// The giver has finished the flow after this many packets.
    pub(super) after: u64,
    /// The taker's first frame.
    pub(super) frame: u64,
    /// The flow, or `None` if the giver has no flow with these endpoints.
    pub(super) cell: Handover<Option<Box<Moving>>>,
}

/// The requests to each worker, by its number.
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

/// The conditions for a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The other worker must have this many packets less (`margay.move-difference`). With 0, a flow moves whenever it can.
    pub(super) difference: u64,
    /// More than this many packets of the flow must wait before it moves with packets in flight (`margay.move-waiting`).
    pub(super) waiting: Option<u32>,
}

/// A flow's packets at its worker. The numbers count the packets sent to that worker.
#[derive(Debug, Clone, Copy, Default)]
struct Motion {
    /// The last packet.
    last: u64,
    /// Packets up to `border` were counted in `before`, and later ones in `since`.
    border: u64,
    before: u32,
    since: u32,
    /// The flow may not move.
    pinned: bool,
}

/// A worker's queue, as the decision sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    /// Packets that wait or are being inspected.
    pub(super) load: u64,
    /// Packets that the worker has finished.
    pub(super) done: u64,
}

/// Decides about moves, for the feeder.
#[derive(Debug)]
pub(super) struct Moves {
    rules: Rules,
    pub(super) exchange: Arc<Exchange>,
    /// By the flow's entry in the assignment table.
    motions: Vec<Motion>,
    /// The number of moves.
    pub(super) moves: u64,
}

impl Moves {
    pub(super) fn new(rules: Rules, flows: usize, exchange: &Arc<Exchange>) -> Moves {
        Moves { rules, exchange: Arc::clone(exchange), motions: vec![Motion::default(); flows], moves: 0 }
    }

    /// Resets an entry for a new flow.
    pub(super) fn begin(&mut self, at: usize) {
        if let Some(m) = self.motions.get_mut(at) {
            *m = Motion::default();
        }
    }

    /// Pins the flow to its worker.
    pub(super) fn pin(&mut self, at: usize) {
        if let Some(m) = self.motions.get_mut(at) {
            m.pinned = true;
        }
    }

    /// The worker that a flow of `worker` moves to, and the flow's last packet at the old one; `None` if it stays.
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

    /// Restarts the packet count of a flow that moved.
    pub(super) fn moved(&mut self, at: usize) {
        self.moves += 1;
        self.begin(at);
    }

    /// Records that a flow's packet was sent as the `number`th of its worker, which has finished `done` packets.
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

    /// The destination of a flow of worker 0, for the loads of workers 0 and 1.
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
        // A finished packet does not wait, however long ago it was finished.
        m.sent(0, 5, 4);
        m.sent(0, 6, 4);
        assert_eq!((to(&m, (100, 4), 0), to(&m, (100, 6), 0)), (None, Some((1, 6))));
    }
}
