//! A worker's part in moving flows: gives the requested flows, and takes those that move to it. `moves` describes the
//! protocol.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::feeder::Shared;
use super::handover::Taken;
use super::moves::{Exchange, Move};
use super::order::{LOOKS, pause, tell_all};
use crate::post::Post;
use crate::stats::Reporter;
use crate::worker::Worker;
use crate::worker::moving::Moving;

/// Limit of the wait for newer rules that inspected a flow. A reload reaches the workers one after the other.
const RULES: Duration = Duration::from_secs(2);

/// Counters of moves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MoveCounters {
    /// Flows that were given to other workers.
    pub(super) given: u64,
    /// Flows that were waited for, and the time.
    pub(super) waits: u64,
    pub(super) waited: Duration,
    /// Flows that were lost because their worker failed.
    pub(super) lost: u64,
}

/// A worker's part in moving flows.
pub(super) struct Mover {
    me: usize,
    exchange: Arc<Exchange>,
    /// Requested flows whose packets are not finished.
    due: Vec<Arc<Move>>,
    /// The lowest packet number among them.
    next: u64,
    pub(super) counters: MoveCounters,
}

impl Mover {
    pub(super) fn new(me: usize, exchange: &Arc<Exchange>) -> Mover {
        Mover { me, exchange: Arc::clone(exchange), due: Vec::new(), next: u64::MAX, counters: MoveCounters::default() }
    }

    /// Gives the requested flows that are ready. Called between two frames, with the number of finished packets.
    #[inline]
    pub(super) fn between(&mut self, worker: &mut Worker, done: u64) {
        if done >= self.next || self.exchange.of(self.me).is_some_and(|a| a.any()) {
            self.serve(worker, done);
        }
    }

    #[cold]
    fn serve(&mut self, worker: &mut Worker, done: u64) {
        if let Some(asked) = self.exchange.of(self.me) {
            asked.collect(&mut self.due);
        }
        let mut due = std::mem::take(&mut self.due);
        due.retain(|m| {
            if m.after <= done && !m.cell.is_given() {
                self.hand_over(m, worker);
            }
            m.after > done
        });
        self.next = due.iter().map(|m| m.after).min().unwrap_or(u64::MAX);
        self.due = due;
    }

    /// Gives a flow at the end of its frames in the queue.
    pub(super) fn give(&mut self, m: &Move, worker: &mut Worker) {
        if !m.cell.is_given() {
            self.hand_over(m, worker);
        }
    }

    fn hand_over(&mut self, m: &Move, worker: &mut Worker) {
        let flow = worker.pipeline.flow_leaves(&m.ends);
        self.counters.given += u64::from(flow.is_some());
        m.cell.give(flow);
    }

    /// Takes a flow from another worker, and waits for it. Called with the number of finished packets.
    pub(super) fn take(
        &mut self,
        m: &Move,
        worker: &mut Worker,
        done: u64,
        shared: &Shared,
        orders: (&Post, &mut Reporter),
    ) {
        // All earlier frames are finished, so no worker needs to wait for this one.
        if let Some(load) = shared.loads.get(self.me) {
            load.at.store(m.frame, Ordering::Release);
        }
        let gone = || shared.loads.get(m.from).is_none_or(|l| l.at.load(Ordering::Acquire) == u64::MAX);
        let mut began = None;
        let mut looks = 0u32;
        let flow = loop {
            match m.cell.take(gone) {
                Taken::Here(flow) => break flow,
                Taken::Never => {
                    self.counters.lost += 1;
                    break None;
                }
                Taken::NotYet => {}
            }
            began.get_or_insert_with(Instant::now);
            // Another taker may wait for a flow of this worker.
            self.between(worker, done);
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                // After the end, all items are in the queues.
                if !shared.turns.over() {
                    tell_all(shared);
                }
                orders.0.serve(worker, orders.1);
                pause(looks / LOOKS);
            } else {
                std::hint::spin_loop();
            }
        };
        if let Some(flow) = flow {
            self.wait_for_rules(&flow, worker, orders);
            worker.pipeline.flow_enters(flow);
        }
        if let Some(began) = began {
            self.counters.waits += 1;
            self.counters.waited += began.elapsed();
        }
    }

    /// Waits during a reload, while another worker already has the new rules.
    fn wait_for_rules(&self, flow: &Moving, worker: &mut Worker, orders: (&Post, &mut Reporter)) {
        if !worker.pipeline.is_behind(flow) {
            return;
        }
        let began = Instant::now();
        while worker.pipeline.is_behind(flow) && began.elapsed() < RULES {
            orders.0.serve(worker, orders.1);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
