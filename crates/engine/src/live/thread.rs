//! A worker's thread: creates the worker and its socket, waits for the other workers, and inspects packets.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use margay_app::file::FileConfig;
use margay_capture::af_packet::Injector;
use margay_capture::live::{LinkChange, LiveSource, Received};
use margay_config::{Config, RunOptions};
use margay_detect::{Detect, RuleCosts, SearchedAhead};
use margay_output::{Outputs, notice, warning};
use margay_packet::Time;

use super::Cpus;
use super::bypass::{OfWorker, Table};
use super::helping::{Crew, Helping};
use super::medium::{Groups, Opening};
use super::settings::Device;
use super::turns::{Turn, Turns};
use crate::control::Control;
use crate::exception::Policies;
use crate::post::Post;
use crate::service::privileges;
use crate::settings;
use crate::stats::Reporter;
use crate::watching::Watching;
use crate::worker::bypass::InKernel;
use crate::worker::wire::Wire;
use crate::worker::{Captured, End, Opened, Part, Worker, share_outputs, worker_of};
use crate::{Failed, files};

/// How long a worker waits for packets before it checks for other work.
const WAIT: Duration = Duration::from_millis(100);
/// Limit of the time that a stopping worker inspects the rest of its ring.
const LAST: Duration = Duration::from_secs(30);
/// Limit of the packets in a batch of an inline source.
const INLINE_BATCH: usize = 64;
/// Limit of the flows that end between two batches. For an inline source, it is a base number plus two flows for each packet.
const ENDED: usize = 4096;
const ENDED_INLINE: usize = 8;
/// Number of packets after which checksums are judged (`checksum-checks: auto`), and the percentage that may be wrong.
const JUDGED: u64 = 1000;
const WRONG: u64 = 10;

/// Everything that a worker's thread receives.
pub(super) struct WorkerSetup {
    pub(super) control: Arc<Control>,
    pub(super) options: RunOptions,
    pub(super) policies: Policies,
    pub(super) device: Arc<Device>,
    /// Its number on its interface, and among all workers, from 0.
    pub(super) nth: usize,
    pub(super) overall: usize,
    pub(super) workers: usize,
    pub(super) thread: String,
    pub(super) outputs: Outputs,
    pub(super) files: FileConfig,
    pub(super) cpus: Arc<Cpus>,
    /// The numbers of its interfaces' fan-out groups, once they are known.
    pub(super) group: Arc<Turns<Groups>>,
    /// Flows that the kernel bypasses, if kernel bypass is on.
    pub(super) bypass: Option<Arc<Table>>,
    /// The device's workers, if they help each other.
    pub(super) crew: Option<Arc<Crew>>,
    /// Reports that the worker is ready, or why it failed; and again when it lets packets in.
    pub(super) ready: Sender<Result<(), Failed>>,
    /// Signals that packets may come in; closed if the start was cancelled.
    pub(super) go: Receiver<()>,
}

/// A source of packets.
type Source = Box<dyn LiveSource>;

/// The results of a worker.
pub(super) struct Final {
    pub(super) thread: String,
    pub(super) ends: Vec<End>,
    pub(super) alerts: u64,
    pub(super) counters: Vec<(String, u64)>,
    /// The costs of the engine's own rules, if they are measured.
    pub(super) costs: Option<(Arc<Detect>, Vec<RuleCosts>)>,
}

impl WorkerSetup {
    /// Runs the thread. Returns `None` if the worker could not start.
    pub(super) fn run(mut self) -> Option<Final> {
        self.cpus.place_worker(&self.device.name, self.nth, self.overall);
        let group = Arc::clone(&self.group);
        let turn = group.of(self.nth);
        let made = self.prepare(&turn);
        drop(turn);
        let ready = self.ready.clone();
        match made {
            Err(f) => {
                // The receiver reports the reason.
                let _ = ready.send(Err(f));
                None
            }
            Ok((mut worker, mut reporter, mut source, post)) => {
                let mut go = ready.send(Ok(())).is_ok() && self.go.recv().is_ok();
                if go {
                    let started = privileges::borrowing(|| source.start())
                        .map_err(|e| Failed::new(self.device.medium.section(), e.to_string()));
                    // The remaining capabilities are for reopening the socket.
                    let started = started.and_then(|()| privileges::keep());
                    go = started.is_ok();
                    // If the receiver is gone, the worker is stopped in another way.
                    let _ = ready.send(started);
                }
                drop(ready);
                Some(self.work(&mut worker, &mut reporter, source, &post, go))
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn prepare(&mut self, turn: &Turn<'_, Groups>) -> Result<(Worker, Reporter, Source, Arc<Post>), Failed> {
        let control = &self.control;
        let config = &control.config;
        let mut outputs = Some(std::mem::replace(&mut self.outputs, nothing()?));
        let mut made = None;
        let post = control.enter(|engines| {
            let outputs = match outputs.take() {
                Some(o) => o,
                None => nothing()?,
            };
            let opened = share_outputs(config, &control.dir, outputs)?;
            let part = Part { opened, files: self.files.clone(), workers: self.workers as u64 };
            let (options, policies) = (&self.options, &self.policies);
            let dir = &control.dir;
            made = Some(worker_of(config, options, control.ips, policies, engines, dir, &control.watching, part)?);
            Ok(())
        })?;
        let Some(mut worker) = made else { return Err(Failed::new("threads", "a worker could not be made")) };
        if self.device.medium.is_of_interface() {
            worker.pipeline.stages.set_interface(&self.device.name);
        }
        worker.pipeline.stages.captured = Some(Captured {
            ends: (self.device.interfaces().map(|i| End { interface: i.to_owned(), ..End::default() })).collect(),
            thread: self.thread.clone(),
            counters: self.device.medium.counters(),
            announce: self.control.announce(&post, self.workers),
            ahead: None,
        });
        let in_kernel = |t: &Arc<Table>| {
            Box::new(InKernel::new(Box::new(OfWorker { table: Arc::clone(t), post: Arc::clone(&post) })))
        };
        worker.pipeline.stages.kernel = self.bypass.as_ref().map(in_kernel);
        let reporter = Reporter::new(config, false)?;
        let (device, bypass) = (&*self.device, self.bypass.as_deref());
        let at = Opening { device, nth: self.nth, thread: &self.thread, bypass };
        let source = turn.take(|groups| privileges::borrowing(|| self.device.medium.open(&at, groups)))?;
        let injector = injector(config, &self.options)?;
        super::prepare(&mut worker, Wire::new(source.is_inline() && control.ips, injector));
        if self.nth == 0 && !source.is_up() {
            let names: Vec<&str> = self.device.interfaces().collect();
            warning!("af-packet", "{}: is down; waiting for it to come up", names.join(" or "));
        }
        Ok((worker, reporter, source, post))
    }

    fn work(
        self,
        worker: &mut Worker,
        reporter: &mut Reporter,
        mut source: Source,
        post: &Arc<Post>,
        go: bool,
    ) -> Final {
        let signals = Arc::clone(&self.control.signals);
        let mut batch = files::batch_size(&self.control.config).unwrap_or(256);
        if let Some(own) = self.device.medium.batch() {
            batch = own;
        } else if source.is_inline() {
            // Packets are forwarded with their batch, so the first packet waits for the last.
            batch = batch.min(INLINE_BATCH);
        }
        let inline = source.is_inline();
        let mut judging = self.device.auto_trust;
        let mut beat = self.control.watch.join(&self.thread);
        let mut helping = self.crew.as_ref().filter(|_| !inline).map(|c| Helping::new(c, self.nth));
        worker.pipeline.stages.helped = helping.as_ref().map(|h| Rc::clone(&h.helped) as Rc<dyn SearchedAhead>);
        while go && !signals.stop() {
            beat.pass(worker.decoder.counters.pkts);
            let wait = if inline && worker.has_flows_to_end() { Duration::ZERO } else { WAIT };
            let received = match &mut helping {
                Some(h) if h.has_pieces() => h.receive_more(&mut *source),
                Some(h) => h.receive(&mut *source, worker.pipeline.stages.own().map(|(d, _)| &*d), batch, wait),
                None => source.receive(batch, wait),
            };
            if post.is_waiting() {
                self.serve(worker, reporter, &mut *source, post, &received, helping.as_ref());
            }
            let received = match &mut helping {
                Some(h) => h.offer(&mut *source, received),
                None => received,
            };
            match helping.as_mut().filter(|h| h.has_pieces()) {
                // Those packets come before the received ones.
                Some(h) if received == Received::Frames => {
                    while h.has_pieces() {
                        beat.pass(worker.decoder.counters.pkts);
                        self.inspect_offered(worker, h);
                    }
                    self.take(worker, &mut *source, received);
                }
                Some(h) => {
                    if let Received::Link(change) = received {
                        self.tell_link(&*source, change);
                    }
                    self.inspect_offered(worker, h);
                    carry_out(worker, &mut *source);
                }
                None => self.take(worker, &mut *source, received),
            }
            if judging && worker.decoder.counters.pkts >= JUDGED {
                judging = false;
                self.judge(worker, &mut *source);
            }
        }
        // No more packets come in, and the rest of the ring is inspected.
        source.stop();
        while let Some(h) = helping.as_mut().filter(|h| h.has_pieces()) {
            beat.pass(worker.decoder.counters.pkts);
            self.inspect_offered(worker, h);
            carry_out(worker, &mut *source);
        }
        let end = Instant::now() + LAST;
        let settle = source.settle();
        while go && Instant::now() < end {
            beat.pass(worker.decoder.counters.pkts);
            match source.receive(batch, settle) {
                Received::Idle => break,
                received => self.take(worker, &mut *source, received),
            }
        }
        self.control.leave(post);
        self.note(worker, &mut *source, helping.as_ref());
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
        Final {
            thread: self.thread,
            ends: worker.pipeline.stages.captured.take().map_or_else(Vec::new, |c| c.ends),
            alerts: worker.pipeline.stages.counters.alerts,
            counters,
            costs,
        }
    }

    /// Inspects a piece of packets that were offered to other workers. Answers to them are sent with the next release.
    fn inspect_offered(&self, worker: &mut Worker, helping: &mut Helping) {
        let before = Inspected::so_far(worker);
        let frames = helping.inspect_piece(|frame, trusted| {
            worker.decoder.unfinished_checksums = trusted;
            worker.frame(frame);
        });
        before.count(worker, 0);
        expire(worker, None, ENDED + frames * 2);
    }

    /// Logs a change of an interface.
    #[cold]
    fn tell_link(&self, source: &dyn LiveSource, change: LinkChange) {
        if self.nth != 0 {
            return;
        }
        let name = self.device.interfaces().nth(source.end()).unwrap_or(&self.device.name);
        match change {
            LinkChange::Down => warning!("af-packet", "{name}: went down; nothing comes until it is up again"),
            LinkChange::Gone => warning!("af-packet", "{name}: is gone; waiting for it to reappear"),
            LinkChange::Back => notice!("af-packet", "{name}: is up again"),
        }
    }

    /// Inspects received packets.
    #[inline]
    fn take(&self, worker: &mut Worker, source: &mut dyn LiveSource, received: Received) {
        // With an inline source, the next packet waits while flows end. So only a few flows end at a time, but more than new
        // ones begin.
        let mut budget = if source.is_inline() { ENDED_INLINE } else { ENDED };
        let now = match received {
            Received::Frames => {
                let before = Inspected::so_far(worker);
                if source.ends() > 1 {
                    self.at_end(worker, source.end());
                }
                let (frames, inline) = (source.batch(), source.is_inline());
                for (i, frame) in frames.iter().enumerate() {
                    worker.warm(&frames, i);
                    worker.decoder.unfinished_checksums = frames.trusted(i);
                    let verdict = worker.frame(&frame);
                    if inline {
                        worker.decide(verdict);
                    }
                }
                budget += frames.len() * 2;
                before.count(worker, source.end());
                // Packets are forwarded before anything else happens.
                carry_out(worker, source);
                None
            }
            // The clock is read only if no packet supplies the time.
            Received::Idle => Some(settings::now()),
            Received::Link(change) => {
                self.tell_link(source, change);
                None
            }
        };
        expire(worker, now, budget);
    }

    /// Copies the source's counters, for statistics.
    fn note(&self, worker: &mut Worker, source: &mut dyn LiveSource, helping: Option<&Helping>) {
        if let Some(c) = &mut worker.pipeline.stages.captured {
            c.ahead = helping.map(Helping::counters);
            c.ends.iter_mut().enumerate().for_each(|(end, e)| e.live = source.counters(end));
        }
    }

    /// Sets the interface that the next packets come from.
    fn at_end(&self, worker: &mut Worker, end: usize) {
        if let Some(name) = self.device.interfaces().nth(end) {
            worker.pipeline.stages.set_interface(name);
        }
    }

    #[cold]
    fn serve(
        &self,
        worker: &mut Worker,
        reporter: &mut Reporter,
        source: &mut dyn LiveSource,
        post: &Post,
        received: &Received,
        helping: Option<&Helping>,
    ) {
        self.note(worker, source, helping);
        if let Some(c) = &mut worker.pipeline.stages.captured {
            // Packets that are about to be inspected are not lost: they are received, but not decoded yet.
            if let Some(end) = c.ends.get_mut(source.end()) {
                let batch = if *received == Received::Frames { source.batch().len() as u64 } else { 0 };
                let waiting = batch + helping.map_or(0, Helping::waiting);
                end.live.frames = end.live.frames.saturating_sub(waiting);
            }
        }
        post.serve(worker, reporter);
    }

    /// Stops checking checksums if many are wrong, because a card computes them later.
    #[cold]
    fn judge(&self, worker: &mut Worker, source: &mut dyn LiveSource) {
        let (wrong, all) = (worker.pipeline.stages.stream.counters.invalid_checksum, worker.decoder.counters.pkts);
        if wrong * 100 > all * WRONG {
            notice!(
                "af-packet",
                "{}: {wrong} of {all} checksums are wrong: taking it that the card fills them in, and looking at them no more",
                self.thread
            );
            source.trust();
        }
    }
}

/// A worker's counters before a batch.
struct Inspected {
    packets: u64,
    invalid_checksums: u64,
}

impl Inspected {
    fn so_far(worker: &Worker) -> Inspected {
        Inspected {
            packets: worker.decoder.counters.pkts,
            invalid_checksums: worker.pipeline.stages.stream.counters.invalid_checksum,
        }
    }

    /// Counts the packets since then as inspected, and as received at `end` of the source.
    fn count(self, worker: &mut Worker, end: usize) {
        let now = Inspected::so_far(worker);
        if let Some(c) = &mut worker.pipeline.stages.captured {
            let invalid = now.invalid_checksums - self.invalid_checksums;
            c.inspected(end, now.packets - self.packets, invalid);
        }
    }
}

/// Carries out the decisions on a batch, and releases it.
fn carry_out(worker: &mut Worker, source: &mut dyn LiveSource) {
    let decisions = worker.decisions();
    source.release(&decisions);
    worker.decided(decisions);
}

/// Ends flows that are due, at most `budget`, and writes what is due every second. `now` is the time, if no packet supplies it.
fn expire(worker: &mut Worker, now: Option<Time>, budget: usize) {
    if worker.expire_live(now, budget) {
        let time = worker.pipeline.stages.now;
        worker.pipeline.stages.outputs.tick(time);
    }
}

/// The sender of `reject`'s answers, if they do not go back to the packet's interface: to the interface of `--reject-dev`, or
/// along the host's routes (`host-mode: router`).
fn injector(config: &Config, options: &RunOptions) -> Result<Option<Injector>, Failed> {
    let failed = |e: margay_capture::live::LiveError| Failed::new("respond-reject", e.to_string());
    match answers(config, options)? {
        Answers::Device(name) => Injector::device(name).map(Some).map_err(failed),
        Answers::Routed => Injector::routed().map(Some).map_err(failed),
        Answers::Back => Ok(None),
    }
}

/// The destination of `reject`'s answers.
#[derive(Debug)]
pub(super) enum Answers<'a> {
    /// Out of the packet's own interface.
    Back,
    /// Out of this interface.
    Device(&'a str),
    /// Along the host's routes.
    Routed,
}

/// Reads `host-mode` and `--reject-dev`.
///
/// # Errors
/// An invalid mode.
pub(super) fn answers<'a>(config: &Config, options: &'a RunOptions) -> Result<Answers<'a>, Failed> {
    match (&options.reject_dev, config.get("host-mode")) {
        (Some(name), _) => Ok(Answers::Device(name)),
        (None, None | Some("" | "auto" | "sniffer-only")) => Ok(Answers::Back),
        (None, Some("router")) => Ok(Answers::Routed),
        (None, Some(other)) => Err(Failed::new(
            "respond-reject",
            format!("host-mode: \"{other}\" is none of auto, router and sniffer-only"),
        )),
    }
}

/// Outputs that write nothing.
fn nothing() -> Result<Outputs, Failed> {
    Ok(Opened::nothing()?.outputs)
}
