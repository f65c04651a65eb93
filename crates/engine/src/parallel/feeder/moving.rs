//! The feeder's part in moving flows (`moves`).

use std::sync::Arc;

use margay_packet::Frame;

use super::super::handover::Handover;
use super::super::item::Item;
use super::super::moves::{Move, Queue};
use super::Steer;
use crate::spread::steer::worker_of;

impl Steer {
    /// Records that the flow of the last lookup has one more packet at its worker.
    #[inline]
    pub(super) fn sent(&mut self, worker: usize) {
        if let (Some(moves), Some(assigned)) = (&mut self.moves, &mut self.assigned)
            && let (Some(at), Some(queue)) = (assigned.at, self.queues.get(worker))
        {
            if assigned.new {
                moves.begin(at);
            }
            moves.sent(at, queue.sent + queue.open.len() as u64 + 1, queue.done);
        }
    }

    /// Pins the flow of the last lookup to its worker, because not all of its frames identify it.
    pub(super) fn pin(&mut self, known: bool) {
        if let (Some(moves), Some(assigned), true) = (&mut self.moves, &mut self.assigned, known)
            && let Some(at) = assigned.at
        {
            moves.pin(at);
        }
    }

    /// The worker of a flow that this frame identifies completely. The flow may move.
    #[inline]
    pub(super) fn plain(&mut self, flow: u64, frame: &Frame<'_>) -> usize {
        let by_hash = worker_of(flow, self.queues.len());
        let mut worker = self.assigned_to(flow, by_hash, frame.time);
        if let (Some(moves), Some(assigned)) = (&mut self.moves, &mut self.assigned)
            && let Some(at) = assigned.at.filter(|_| !assigned.new)
        {
            let queues = &self.queues;
            let queue = |n: usize| {
                queues.get(n).map_or(Queue { load: u64::MAX, done: 0 }, |l| Queue { load: l.load(), done: l.done })
            };
            if let Some((to, after)) = moves.consider(at, worker, queues.len(), queue)
                && self.change(worker, to, after, frame)
            {
                worker = to;
            }
        }
        self.sent(worker);
        worker
    }

    /// Moves the flow of the last lookup. This frame is its first one at the other worker.
    #[cold]
    fn change(&mut self, from: usize, to: usize, after: u64, frame: &Frame<'_>) -> bool {
        let (Some(moves), Some(assigned)) = (&mut self.moves, &mut self.assigned) else { return false };
        let (Some(at), Some(ends)) = (assigned.at, self.steering.ends(frame)) else { return false };
        let flow = Arc::new(Move { ends, from, after, frame: frame.number, cell: Handover::new() });
        for (queue, item) in [(from, Item::Give(Arc::clone(&flow))), (to, Item::Take(Arc::clone(&flow)))] {
            let Some(queue) = self.queues.get_mut(queue) else { return false };
            if !queue.open.is_empty() {
                queue.close(&self.buffer, self.stream);
            }
            queue.waiting.push_back(item);
        }
        assigned.reassign(at, to);
        moves.moved(at);
        if let Some(asked) = moves.exchange.of(from) {
            asked.ask(flow);
        }
        true
    }
}
