//! A worker's thread: creates the worker, inspects the packets in its queue, and reads when it is idle.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use margay_app::file::FileConfig;
use margay_config::RunOptions;
use margay_detect::{Detect, RuleCosts, SearchedAhead};
use margay_output::{Outputs, error, info, warning};

use super::feeder::Shared;
use super::item::{Ended, Inbox, Item};
use super::mover::{MoveCounters, Mover};
use super::order::Order;
use super::turns::{NAP, Outcome};
use crate::Failed;
use crate::control::Control;
use crate::exception::Policies;
use crate::live::cpus::Cpus;
use crate::post::Post;
use crate::spread::ahead::Helped;
use crate::spread::piece::Piece;
use crate::stats::Reporter;
use crate::watching::Watching;
use crate::worker::engines::PacketOrder;
use crate::worker::{Opened, Part, Worker, share_outputs, worker_of};

/// Everything that a worker's thread receives.
pub(super) struct WorkerSetup {
    pub(super) control: Arc<Control>,
    pub(super) options: RunOptions,
    pub(super) policies: Policies,
    /// From 0.
    pub(super) number: usize,
    pub(super) workers: usize,
    pub(super) dir: std::path::PathBuf,
    pub(super) tenant: u32,
    pub(super) outputs: Outputs,
    pub(super) files: FileConfig,
    pub(super) cpus: Arc<Cpus>,
    pub(super) inbox: Inbox,
    pub(super) shared: Arc<Shared>,
    /// Reports that the worker is ready, or why it failed.
    pub(super) ready: Sender<Result<(), Failed>>,
    /// Signals that all workers are ready; closed if the start was cancelled.
    pub(super) go: Receiver<()>,
}

/// The results of a worker.
pub(super) struct Final {
    pub(super) number: usize,
    pub(super) ended: Instant,
    pub(super) alerts: u64,
    pub(super) counters: Vec<(String, u64)>,
    /// The costs of the engine's own rules, if they are measured.
    pub(super) costs: Option<(Arc<Detect>, Vec<RuleCosts>)>,
    /// How often and how long it slept, and how often it read.
    pub(super) sleeps: u64,
    pub(super) slept: Duration,
    pub(super) turns: u64,
    pub(super) packets: u64,
    /// Counters of moved flows, if flows move.
    pub(super) moves: Option<MoveCounters>,
    /// Payloads that it searched for others, and that others searched for it.
    pub(super) looked_through: u64,
    pub(super) taken_over: u64,
    /// How often and how long it waited for other workers in packet order.
    pub(super) waits: u64,
    pub(super) waited: Duration,
}

/// A running worker.
struct Working {
    worker: Worker,
    reporter: Reporter,
    post: Arc<Post>,
    /// Its view of the packet order, with several workers.
    order: Option<Arc<Order>>,
    /// Results of the workers that help it.
    helped: Option<Rc<Helped>>,
    /// Frames of the stream that the worker knows of.
    seen: u64,
    packets: u64,
    /// Set if flows may move.
    mover: Option<Mover>,
}

impl WorkerSetup {
    /// Runs the thread. Returns `None` if the worker could not start.
    pub(super) fn run(mut self) -> Option<Final> {
        self.cpus.place_worker("", self.number, self.number);
        self.shared.turns.enter(self.number);
        let made = self.prepare();
        let ready = self.ready.clone();
        match made {
            Err(f) => {
                // The receiver reports the reason.
                let _ = ready.send(Err(f));
                None
            }
            Ok(mut working) => {
                let go = ready.send(Ok(())).is_ok() && self.go.recv().is_ok();
                drop(ready);
                if !go {
                    self.control.leave(&working.post);
                    return None;
                }
                Some(self.work(&mut working))
            }
        }
    }

    fn prepare(&mut self) -> Result<Working, Failed> {
        let control = &self.control;
        let config = &control.config;
        let mut outputs = Some(std::mem::replace(&mut self.outputs, Opened::nothing()?.outputs));
        let mut made = None;
        let post = control.enter(|engines| {
            let outputs = match outputs.take() {
                Some(o) => o,
                None => Opened::nothing()?.outputs,
            };
            let opened = share_outputs(config, &self.dir, outputs)?;
            let part = Part { opened, files: self.files.clone(), workers: self.workers as u64 };
            let (options, policies) = (&self.options, &self.policies);
            let (dir, watching) = (&self.dir, &control.watching);
            made = Some(worker_of(config, options, control.ips, policies, engines, dir, watching, part)?);
            Ok(())
        })?;
        let Some(mut worker) = made else { return Err(Failed::new("threads", "a worker could not be made")) };
        worker.pipeline.stages.engines.direct = self.tenant;
        worker.pipeline.stages.announce = self.control.announce(&post, self.workers);
        let mut helped = None;
        if let Some(board) = self.shared.boards.get(self.number) {
            let with_board = Rc::new(Helped::new(Arc::clone(board)));
            worker.pipeline.stages.helped = Some(Rc::clone(&with_board) as Rc<dyn SearchedAhead>);
            helped = Some(with_board);
        }
        let order = (self.workers > 1).then(|| Arc::new(Order::new(self.number, &self.shared)));
        if let Some(order) = &order {
            worker.pipeline.stages.set_order(Arc::clone(order) as Arc<dyn PacketOrder>);
        }
        let reporter = Reporter::new(config, false)?;
        let mover = self.shared.exchange.as_ref().map(|e| Mover::new(self.number, e));
        Ok(Working { worker, reporter, post, order, helped, seen: 0, packets: 0, mover })
    }

    fn work(mut self, working: &mut Working) -> Final {
        let shared = Arc::clone(&self.shared);
        let me = self.number;
        let (mut sleeps, mut slept, mut turns) = (0, Duration::ZERO, 0);
        let mut beat = self.control.watch.join(&format!("W#{:02}", me + 1));
        loop {
            beat.pass(working.packets);
            working.post.serve(&mut working.worker, &mut working.reporter);
            if let Some(mover) = &mut working.mover {
                mover.between(&mut working.worker, working.packets);
            }
            // This comes before the check of the queue: after the end, nothing is added to it.
            let over = shared.turns.over();
            if let Ok(item) = self.inbox.items.pop() {
                self.take(item, working);
                if self.inbox.items.slots() <= self.inbox.items.buffer().capacity() / 2 {
                    shared.turns.taken(me);
                }
                continue;
            }
            if over {
                break;
            }
            if shared.turns.begin() {
                turns += 1;
                // A file may be on a disk that does not answer for any time.
                beat.rest();
                // Only the current reader takes the lock.
                let mut feeder = shared.feeder.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome = feeder.turn(me, &shared);
                drop(feeder);
                shared.turns.end(outcome);
                match outcome {
                    Outcome::Fed | Outcome::Over => continue,
                    Outcome::Later | Outcome::Silent => {
                        working.worker.pipeline.stages.outputs.flush();
                        if outcome == Outcome::Later {
                            std::thread::sleep(NAP);
                        }
                        continue;
                    }
                    Outcome::Full(_) | Outcome::Memory => {}
                }
            }
            if working.order.as_ref().is_some_and(|o| o.help(|| !self.inbox.items.is_empty())) {
                continue;
            }
            // The next packet may come at any time.
            working.worker.pipeline.stages.end_batch();
            beat.rest();
            sleeps += 1;
            slept += shared.turns.sleep(me, || !self.inbox.items.is_empty());
        }
        let Working { worker, reporter, post, order, helped, packets, mover, .. } = working;
        let moves = mover.as_ref().map(|m| m.counters);
        // No worker waits for this one any more. Flows that end now do not belong to a packet.
        if let Some(load) = shared.loads.get(me) {
            load.at.store(u64::MAX, Ordering::Release);
        }
        self.control.leave(post);
        beat.pass(*packets);
        post.close(worker, reporter);
        worker.finish();
        let counters = reporter.counters(worker);
        let stages = &mut worker.pipeline.stages;
        stages.outputs.end_batch();
        stages.outputs.finish();
        let costs = match self.control.watching {
            Watching::Profile(_) => stages.own().map(|(detect, state)| (Arc::clone(detect), state.costs().to_vec())),
            _ => None,
        };
        stages.scripts.finish();
        let alerts = stages.counters.alerts;
        let taken_over = helped.as_ref().map_or(0, |h| h.taken_over());
        let (mut looked_through, mut waits, mut waited) = (0, 0, Duration::ZERO);
        if let Some(o) = order {
            looked_through = o.helper.lock().unwrap_or_else(PoisonError::into_inner).looked_through;
            waits = o.waits.load(Ordering::Relaxed);
            waited = Duration::from_nanos(o.waited.load(Ordering::Relaxed));
        }
        Final {
            number: me,
            ended: Instant::now(),
            alerts,
            counters,
            costs,
            sleeps,
            slept,
            turns,
            packets: *packets,
            moves,
            looked_through,
            taken_over,
            waits,
            waited,
        }
    }

    fn take(&mut self, item: Item, working: &mut Working) {
        let worker = &mut working.worker;
        match item {
            Item::Piece(piece) => self.inspect(piece, working),
            Item::Give(m) => {
                if let Some(mover) = &mut working.mover {
                    mover.give(&m, worker);
                }
            }
            Item::Take(m) => {
                let Working { worker, reporter, post, packets, mover, .. } = working;
                if let Some(mover) = mover {
                    mover.take(&m, worker, *packets, &self.shared, (post, reporter));
                }
            }
            Item::Begin(begun) => {
                worker.pipeline.stages.file = Some(begun.file.display().to_string());
                worker.decoder.unfinished_checksums = begun.believed;
                worker.pipeline.stages.file_alerts = 0;
                worker.pipeline.flows.begin_capture();
            }
            Item::End(ended) => {
                ended.alerts.fetch_add(worker.pipeline.stages.file_alerts, Ordering::AcqRel);
                if ended.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.last(&ended);
                }
            }
        }
    }

    #[inline]
    fn inspect(&mut self, piece: Arc<Piece>, working: &mut Working) {
        let Working { worker, mover, helped, .. } = working;
        let Some(load) = self.shared.loads.get(self.number) else { return };
        if let Some(h) = helped {
            h.begin(&piece);
        }
        let mut done = working.packets;
        for (nth, frame) in piece.frames().enumerate() {
            load.at.store(frame.number, Ordering::Release);
            if let Some(h) = helped {
                h.at(nth);
            }
            worker.frame(&frame);
            if let Some(mover) = mover {
                done += 1;
                mover.between(worker, done);
            }
        }
        if let Some(h) = helped {
            h.end();
        }
        let own = piece.len() as u64;
        working.packets += own;
        let others = (piece.seen - working.seen).saturating_sub(own);
        working.seen = piece.seen;
        worker.expire_with(piece.now, others);
        load.done.store(working.packets, Ordering::Release);
        load.at.store(piece.upto, Ordering::Release);
        // A helper may still hold the piece, and drops it later. If the queue has no room for the buffers, they are not
        // needed.
        if let Some(piece) = Arc::into_inner(piece) {
            let _ = self.inbox.buffers.push(piece.done());
        }
    }

    /// Called when all workers have finished a file.
    fn last(&self, ended: &Ended) {
        if let Some(queue) = self.control.queue.as_ref()
            && let Ok(changed) = std::fs::metadata(&ended.file).and_then(|m| m.modified())
        {
            queue.processed(changed);
        }
        if ended.delete.applies(ended.alerts.load(Ordering::Acquire)) {
            match margay_capture::delete(&ended.file) {
                Ok(()) => info!("pcap", "{}: deleted", ended.file.display()),
                Err(e) => warning!("pcap", "{e}"),
            }
        }
    }
}

impl Drop for WorkerSetup {
    fn drop(&mut self) {
        self.shared.manager.unpark();
        // The other workers must not wait for a thread that panicked.
        if std::thread::panicking() {
            error!("threads", "worker {} failed", self.number + 1);
            if let Some(load) = self.shared.loads.get(self.number) {
                load.at.store(u64::MAX, Ordering::Release);
            }
            self.shared.turns.finish();
        }
    }
}
