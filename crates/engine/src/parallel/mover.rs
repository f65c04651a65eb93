//! A worker's part in moves: it gives what it is asked for, and takes what comes to it. `moves` has the whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::feeder::Shared;
use super::handover::Taken;
use super::moves::{Exchange, Move};
use super::order::{LOOKS, pause, tell_all};
use crate::control::post::Post;
use crate::stats::Reporter;
use crate::worker::Worker;
use crate::worker::moving::Moving;

/// How long newer rules are waited for that a flow was looked at with. They come to one worker after the other.
const RULES: Duration = Duration::from_secs(2);

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MoveCounters {
    /// Flows that were given to others.
    pub(super) given: u64,
    /// Those that were waited for, and how long.
    pub(super) waits: u64,
    pub(super) waited: Duration,
    /// Those that never came: who had them failed.
    pub(super) lost: u64,
}

/// A worker's part.
pub(super) struct Mover {
    me: usize,
    exchange: Arc<Exchange>,
    /// What it was asked for and cannot give yet.
    due: Vec<Arc<Move>>,
    /// The least of their packets.
    next: u64,
    pub(super) counters: MoveCounters,
}

impl Mover {
    pub(super) fn new(me: usize, exchange: &Arc<Exchange>) -> Mover {
        Mover { me, exchange: Arc::clone(exchange), due: Vec::new(), next: u64::MAX, counters: MoveCounters::default() }
    }

    /// Between two frames: gives what is asked for and can be given, when so many packets are done.
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

    /// The end of the flow's frames in the queue.
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

    /// Takes a flow that comes from another worker, when so many packets are done: waits for it.
    pub(super) fn take(
        &mut self,
        m: &Move,
        worker: &mut Worker,
        done: u64,
        shared: &Shared,
        orders: (&Post, &mut Reporter),
    ) {
        // All frames before are done with: nobody is to wait for that.
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
            // Somebody may wait for what this one has.
            self.between(worker, done);
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                // After the end all that there is is in the queues.
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

    /// While rules are reloaded one worker has them before another.
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
