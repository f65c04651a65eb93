//! Reads and steers frames, on the worker that currently reads.
//!
//! Frames stay in the reader's buffers, which are reference counted: a piece (`spread::piece`) is a list of positions in one buffer, for
//! one worker. Lists are recycled: a worker returns each list that it has finished. So frames are not copied, and nothing is
//! allocated for a packet. Events between two packets (a file begins or ends) go through the same queues.

mod moving;
mod worker_queue;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use margay_capture::{Batch, CaptureSource, Counters, DeletePolicy, Event, FileEnd, FileStart, Progress};
use margay_flow::JUMP_BACK;
use margay_output::{error, info};
use margay_packet::{Frame, Time};
use rtrb::RingBuffer;

use super::assign::{Announced, Assigned};
use super::fragments::{Fragments, Held};
use super::item::{Begun, Ended, Inbox, Item};
use super::moves::{Exchange, Moves, Rules as MoveRules};
use super::turns::{Outcome, Turns};
use super::whereabouts::Whereabouts;
use super::worker_setup::Final;
use crate::checksums::FileChecks;
use crate::control::Control;
use crate::spread::ahead::{Board, Team};
use crate::spread::hosts::Whose;
use crate::spread::steer::{Place, Steering, key_of, worker_of};
use crate::{Failed, files};
use worker_queue::{Stream, WorkerQueue};

/// Pieces that a queue holds.
const QUEUE: usize = 8;
/// A list with this many frames is handed over at once, even if its worker is busy.
const ENOUGH: usize = 128;
/// A worker with this many waiting packets stops reading.
const LOAD: u64 = 1024;
/// After so many frames of the stream, a worker learns the time even if none of them is for it.
const SILENCE: u64 = 4096;
/// Limit of the buffers that waiting packets may hold, of 1 MiB each.
const BUFFERS: usize = 64;

/// Written by a worker, read by the reader and by reports; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Load {
    /// Packets that the worker has finished.
    pub(super) done: AtomicU64,
    /// The worker has finished all its frames before this number.
    pub(super) at: AtomicU64,
}

/// Shared by all workers: the reader's state, and how much each worker has to do.
pub(super) struct Shared {
    pub(super) turns: Turns,
    pub(super) feeder: Mutex<Feeder>,
    pub(super) loads: Box<[Load]>,
    /// Work that workers offer to helpers; empty if they do not help.
    pub(super) boards: Box<[Arc<Board>]>,
    /// Which workers saw packets of which host.
    pub(super) whereabouts: Arc<Whereabouts>,
    pub(super) progress: Mutex<Progress>,
    /// Requests to workers, if flows move.
    pub(super) exchange: Option<Arc<Exchange>>,
    /// The thread that waits for all workers.
    pub(super) manager: Thread,
}

/// Counters of reading and distribution.
#[derive(Debug, Clone, Default)]
pub(super) struct FeedCounters {
    /// Turns of reading, and those of them that a full queue or the memory limit ended.
    pub(super) turns: u64,
    pub(super) stalls: u64,
    /// Fragments that arrived before the first fragment, which has the ports.
    pub(super) held: u64,
    /// Flows that were assigned to a worker when they began, and packets of flows that were not, for lack of room.
    pub(super) assigned: u64,
    pub(super) unplaced: u64,
    /// Flows that moved, those of them that moved with state, and those that were lost.
    pub(super) moves: u64,
    pub(super) given: u64,
    pub(super) lost: u64,
    /// How often workers waited for a flow, and how long in total.
    pub(super) waits: u64,
    pub(super) waited: Duration,
    /// Payloads that helpers searched, and those of them that were used.
    pub(super) searched_ahead: u64,
    pub(super) taken_over: u64,
    /// The longest queue of each worker, in packets.
    pub(super) longest: Vec<u64>,
}

impl FeedCounters {
    /// Adds a worker's counters.
    pub(super) fn add(&mut self, f: &Final) {
        self.searched_ahead += f.looked_through;
        self.taken_over += f.taken_over;
        if let Some(m) = f.moves {
            self.waits += m.waits;
            self.waited += m.waited;
            self.given += m.given;
            self.lost += m.lost;
        }
    }
}

/// The source, and the state that distributes its frames.
pub(super) struct Feeder {
    control: Arc<Control>,
    source: CaptureSource,
    checks: FileChecks,
    delete: DeletePolicy,
    batch: usize,
    steer: Steer,
    /// The file's link type cannot be decoded.
    bad_link: bool,
    /// When the first file began.
    pub(super) began: Option<Instant>,
    /// The only input file is not a capture.
    pub(super) refused: Option<Failed>,
    /// The source is not asked again before this time.
    not_before: Option<Instant>,
    /// The pipe that is read has no data.
    silent: bool,
    ending: bool,
    turns: u64,
    stalls: u64,
}

/// A feeder's source.
pub(super) struct Reading {
    pub(super) source: CaptureSource,
    pub(super) checks: FileChecks,
    pub(super) delete: DeletePolicy,
    pub(super) batch: usize,
}

/// How frames are distributed.
pub(super) struct Way {
    pub(super) steering: Steering,
    /// Assigns flows when they begin.
    pub(super) assigned: Option<Assigned>,
    /// Decides whether flows move later.
    pub(super) moves: Option<MoveRules>,
    /// Seconds that a flow may be silent.
    pub(super) life: u32,
}

impl Shared {
    /// Creates the state for `workers` workers, and each worker's end of its queue. `helping` says whether workers help each
    /// other.
    pub(super) fn new(
        control: Arc<Control>,
        reading: Reading,
        way: Way,
        workers: usize,
        helping: bool,
    ) -> (Shared, Vec<Inbox>) {
        // A single worker has no helpers.
        let boards: Box<[Arc<Board>]> =
            if helping && workers > 1 { (0..workers).map(|_| Arc::default()).collect() } else { Box::default() };
        let whereabouts = Arc::new(Whereabouts::new(workers));
        let mut inboxes = Vec::new();
        let queues = (0..workers)
            .map(|n| {
                let (items, theirs) = RingBuffer::new(QUEUE);
                let (buffers, back) = RingBuffer::new(QUEUE * 2);
                inboxes.push(Inbox { items: theirs, buffers });
                WorkerQueue::new(items, back, boards.get(n).cloned())
            })
            .collect();
        let Way { steering, assigned, moves, life } = way;
        // A single worker has no other to move flows to.
        let exchange = moves.filter(|_| workers > 1).map(|rules| (Arc::new(Exchange::new(workers)), rules));
        let places = assigned.as_ref().map_or(0, Assigned::places);
        let moves = exchange.as_ref().map(|(e, rules)| Moves::new(*rules, places, e));
        let steer = Steer {
            steering,
            fragments: Fragments::default(),
            assigned,
            moves,
            announced: None,
            life,
            queues,
            buffer: Arc::default(),
            stream: Stream::default(),
            whereabouts: Arc::clone(&whereabouts),
        };
        let Reading { source, checks, delete, batch } = reading;
        let feeder = Feeder {
            control,
            source: source.direct(),
            checks,
            delete,
            batch,
            steer,
            bad_link: false,
            refused: None,
            began: None,
            not_before: None,
            silent: false,
            ending: false,
            turns: 0,
            stalls: 0,
        };
        let shared = Shared {
            turns: Turns::new(workers),
            feeder: Mutex::new(feeder),
            loads: (0..workers).map(|_| Load::default()).collect(),
            boards,
            whereabouts,
            progress: Mutex::default(),
            exchange: exchange.map(|(e, _)| e),
            manager: std::thread::current(),
        };
        (shared, inboxes)
    }
}

impl Team for Shared {
    fn boards(&self) -> &[Arc<Board>] {
        &self.boards
    }

    fn at(&self, worker: usize) -> u64 {
        self.loads.get(worker).map_or(0, |l| l.at.load(Ordering::Relaxed))
    }

    fn wake_one(&self) {
        self.turns.wake_one();
    }
}

impl Feeder {
    /// One turn of reading, by worker `me`.
    pub(super) fn turn(&mut self, me: usize, shared: &Shared) -> Outcome {
        let Shared { turns, loads, progress, .. } = shared;
        self.turns += 1;
        let outcome = self.read(me, turns, loads);
        if matches!(outcome, Outcome::Full(_) | Outcome::Memory) {
            self.stalls += 1;
        } else {
            turns.unstuck();
        }
        if let Ok(mut p) = progress.try_lock() {
            *p = self.source.progress();
        }
        outcome
    }

    fn read(&mut self, me: usize, turns: &Turns, loads: &[Load]) -> Outcome {
        loop {
            self.say_where(me, loads);
            if let Some(full) = self.hand_over(false, turns, loads) {
                return full;
            }
            if self.ending {
                if let Some(full) = self.hand_over(true, turns, loads) {
                    return full;
                }
                turns.finish();
                return Outcome::Over;
            }
            if self.load(me, loads) >= LOAD {
                return match self.hand_over(true, turns, loads) {
                    Some(full) => full,
                    None => Outcome::Fed,
                };
            }
            if self.interrupted() {
                self.ending = true;
                continue;
            }
            if !self.source.has_spare(BUFFERS) {
                // Held fragments use buffers as well.
                self.steer.release(u64::MAX);
                if let Some(full) = self.hand_over(true, turns, loads) {
                    return full;
                }
                self.steer.buffer = Arc::default();
                turns.stuck_in_memory();
                if !self.source.has_spare(BUFFERS) {
                    return Outcome::Memory;
                }
                turns.unstuck();
            }
            if let Some(at) = self.not_before {
                if Instant::now() < at {
                    return self.hand_over(true, turns, loads).unwrap_or(Outcome::Later);
                }
                self.not_before = None;
            }
            if std::mem::take(&mut self.silent) {
                return self.hand_over(true, turns, loads).unwrap_or(Outcome::Silent);
            }
            self.step();
        }
    }

    /// If the reader has finished all packets that were handed to it, publishes how far it is, so that other workers do not
    /// wait for it.
    fn say_where(&self, me: usize, loads: &[Load]) {
        let (Some(queue), Some(load)) = (self.steer.queues.get(me), loads.get(me)) else { return };
        if queue.waiting.is_empty() && queue.sent == load.done.load(Ordering::Relaxed) && queue.items.slots() == QUEUE {
            let at = if queue.open.is_empty() { self.steer.stream.upto } else { queue.first };
            if load.at.load(Ordering::Relaxed) < at {
                load.at.store(at, Ordering::Release);
            }
        }
    }

    fn interrupted(&self) -> bool {
        self.control.signals.stop() || self.control.queue.as_ref().is_some_and(|q| q.interrupt.load(Ordering::Relaxed))
    }

    /// Packets that wait for a worker or are being inspected.
    #[inline]
    fn load(&self, worker: usize, loads: &[Load]) -> u64 {
        let done = loads.get(worker).map_or(0, |l| l.done.load(Ordering::Relaxed));
        self.steer.queues.get(worker).map_or(0, |l| (l.sent + l.open.len() as u64).saturating_sub(done))
    }

    /// Handles one event of the source.
    fn step(&mut self) {
        let (mut ended, mut failed) = (None, None);
        match self.source.next_event(self.batch, SystemTime::now) {
            Event::Batch(batch) if !self.bad_link => return self.steer.batch(&batch),
            Event::Batch(_) => {}
            Event::FileStart(start) => {
                self.bad_link = !begins(&start);
                self.began = self.began.or_else(|| Some(Instant::now()));
                let begun = Arc::new(Begun { believed: self.checks.believes(&start.file), file: start.file });
                self.tell(|| Item::Begin(Arc::clone(&begun)));
            }
            Event::FileEnd(end) => ended = Some(end),
            Event::Failed { file, error } => failed = Some((file, error)),
            Event::Skipped { file, reason } => info!("pcap", "{} {reason}: skipped", file.display()),
            Event::Wait(Duration::ZERO) => self.silent = true,
            Event::Wait(time) => self.not_before = Some(Instant::now() + time.min(Duration::from_secs(3600))),
            Event::Done => self.ending = true,
            _ => {}
        }
        if let Some(end) = ended {
            self.ends(end);
        }
        if let Some((file, error)) = failed
            && let Some(refused) = files::refused(self.source.is_folder(), &file, &error)
        {
            self.refused = Some(refused);
        }
        if self.ending {
            self.steer.release(u64::MAX);
        }
    }

    fn ends(&mut self, end: FileEnd) {
        self.steer.release(u64::MAX);
        match end.error {
            None => info!("pcap", "pcap file {} end of file reached", end.file.display()),
            Some(e) => error!("pcap", "{e}"),
        }
        let delete = if self.bad_link { DeletePolicy::Never } else { self.delete };
        let left = AtomicUsize::new(self.steer.queues.len());
        let ended = Arc::new(Ended { file: end.file, left, alerts: AtomicU64::new(0), delete });
        self.tell(|| Item::End(Arc::clone(&ended)));
    }

    /// Sends every worker an item that follows its earlier frames.
    fn tell(&mut self, item: impl Fn() -> Item) {
        let (buffer, stream) = (&self.steer.buffer, self.steer.stream);
        for queue in &mut self.steer.queues {
            queue.close(buffer, stream);
            queue.waiting.push_back(item());
        }
    }

    /// Puts lists into the queues: those that are long enough, or `all`. Returns the worker of a full queue, if there is one.
    fn hand_over(&mut self, all: bool, turns: &Turns, loads: &[Load]) -> Option<Outcome> {
        let (buffer, stream) = (&self.steer.buffer, self.steer.stream);
        loop {
            let mut full = None;
            for (n, queue) in self.steer.queues.iter_mut().enumerate() {
                queue.done = loads.get(n).map_or(0, |l| l.done.load(Ordering::Relaxed));
                let silent = stream.seen - queue.told >= SILENCE;
                if queue.open.len() >= ENOUGH || silent || (!queue.open.is_empty() && (all || queue.sent == queue.done))
                {
                    queue.close(buffer, stream);
                }
                if queue.waiting.is_empty() {
                    continue;
                }
                queue.longest = queue.longest.max(queue.sent.saturating_sub(queue.done));
                if !queue.put() {
                    full = Some(n);
                }
                turns.wake(n);
            }
            let n = full?;
            turns.stuck_at(n);
            if !self.steer.queues.get_mut(n).is_some_and(WorkerQueue::put) {
                return Some(Outcome::Full(n));
            }
            // The queue had room after all.
            turns.wake(n);
        }
    }

    /// Publishes the stream's position to workers that are behind it. Others may wait for them to confirm that position.
    pub(super) fn tell_all(&mut self, turns: &Turns) {
        let (buffer, stream) = (&self.steer.buffer, self.steer.stream);
        for (n, queue) in self.steer.queues.iter_mut().enumerate() {
            if queue.upto < stream.upto && queue.waiting.is_empty() && !queue.items.is_full() {
                queue.close(buffer, stream);
            }
            if !queue.waiting.is_empty() {
                // If the queue is full, no worker waits for that worker's confirmation.
                let _ = queue.put();
                turns.wake(n);
            }
        }
    }

    pub(super) fn counters(&self) -> FeedCounters {
        FeedCounters {
            turns: self.turns,
            stalls: self.stalls,
            held: self.steer.fragments.held,
            assigned: self.steer.assigned.as_ref().map_or(0, |a| a.flows),
            unplaced: self.steer.assigned.as_ref().map_or(0, |a| a.unplaced),
            moves: self.steer.moves.as_ref().map_or(0, |m| m.moves),
            longest: self.steer.queues.iter().map(|l| l.longest).collect(),
            ..FeedCounters::default()
        }
    }

    /// Files and frames read so far.
    pub(super) fn read_so_far(&self) -> (u64, Counters) {
        (self.source.files(), self.source.counters())
    }
}

/// Logs that a file begins. Returns whether its link type can be decoded.
fn begins(start: &FileStart) -> bool {
    info!("pcap", "Starting file run for {}", start.file.display());
    match start.link.filter(|l| !l.is_supported()) {
        None => true,
        Some(link) => {
            error!("pcap", "{}: link type {} is not supported: none of it is decoded", start.file.display(), link.0);
            false
        }
    }
}

/// Steers frames: everything in the feeder except the source.
struct Steer {
    steering: Steering,
    fragments: Fragments,
    assigned: Option<Assigned>,
    /// Decides which flows move, if they may.
    moves: Option<Moves>,
    announced: Option<Box<Announced>>,
    /// Seconds that a flow may be silent.
    life: u32,
    queues: Vec<WorkerQueue>,
    /// The buffer that open lists refer to.
    buffer: Arc<Vec<u8>>,
    stream: Stream,
    whereabouts: Arc<Whereabouts>,
}

impl Steer {
    fn batch(&mut self, batch: &Batch<'_>) {
        let Some(buffer) = batch.buffer() else { return };
        if !Arc::ptr_eq(buffer, &self.buffer) {
            for queue in self.queues.iter_mut().filter(|l| !l.open.is_empty()) {
                queue.close(&self.buffer, self.stream);
            }
            self.buffer = Arc::clone(buffer);
        }
        for (n, frame) in batch.iter().enumerate() {
            let Some(start) = batch.offset(n) else { continue };
            let now = self.stream.now;
            if frame.time > now || now.micros_since(frame.time) > JUMP_BACK {
                self.stream.now = frame.time;
            }
            self.stream.seen += 1;
            // Lists that are closed from now on end before this frame, unless they contain it.
            self.stream.upto = frame.number;
            let (place, whose) = self.steering.place(&frame);
            let worker = match place {
                Place::Flow(flow) => self.of_flow(flow, frame.time),
                Place::Plain(flow) => match self.announced_at(flow, frame.time) {
                    Some(worker) => worker,
                    None => self.plain(flow, &frame),
                },
                Place::Opening { flow, pair } => self.opening(flow, pair, &frame),
                Place::Control { pair } => {
                    let life = self.life;
                    let announced = self.announced.get_or_insert_with(|| Box::new(Announced::new(life)));
                    announced.control(pair, frame.time);
                    self.worker(pair, frame.time)
                }
                Place::Unknown => 0,
                Place::Fragment { datagram, first, alone } => {
                    let worker = first.map(|flow| self.of_flow(flow, frame.time));
                    self.pin(first.is_some());
                    match self.fragments.worker(datagram, worker, self.stream.seen) {
                        Some(w) => {
                            if first.is_some() {
                                self.join(datagram, w);
                            }
                            w
                        }
                        None => {
                            let alone = worker_of(alone, self.queues.len());
                            let held = Held::new(datagram, alone, &self.buffer, start, &frame, self.stream.seen);
                            self.fragments.hold(held);
                            continue;
                        }
                    }
                }
            };
            if let Some(queue) = self.queues.get_mut(worker) {
                if queue.is_far(start) && !queue.open.is_empty() {
                    queue.close(&self.buffer, self.stream);
                }
                queue.add(start, &frame, key_of(place, whose));
                self.whereabouts.note(worker, frame.number, whose);
            }
        }
        if !batch.is_empty() {
            self.stream.upto += 1;
        }
        if self.fragments.any() {
            self.release(self.stream.seen);
        }
    }

    /// The worker of a flow, which may have been announced.
    #[inline]
    fn of_flow(&mut self, flow: u64, time: Time) -> usize {
        match self.announced_at(flow, time) {
            Some(worker) => worker,
            None => self.worker(flow, time),
        }
    }

    #[inline]
    fn announced_at(&mut self, flow: u64, time: Time) -> Option<usize> {
        self.announced.as_mut()?.worker(flow, time)
    }

    /// The worker of a new flow.
    #[inline]
    fn opening(&mut self, flow: u64, pair: u64, frame: &Frame<'_>) -> usize {
        let time = frame.time;
        if self.announced.as_mut().is_some_and(|a| a.expects(pair, time)) {
            let worker = self.worker(pair, time);
            if self.announced.as_mut().is_some_and(|a| a.put(flow, worker)) {
                return worker;
            }
        }
        self.plain(flow, frame)
    }

    /// The worker of a flow, or of everything between two addresses.
    #[inline]
    fn worker(&mut self, flow: u64, time: Time) -> usize {
        let by_hash = worker_of(flow, self.queues.len());
        let worker = self.assigned_to(flow, by_hash, time);
        self.sent(worker);
        worker
    }

    #[inline]
    fn assigned_to(&mut self, flow: u64, by_hash: usize, time: Time) -> usize {
        let Some(assigned) = &mut self.assigned else { return by_hash };
        assigned.at(time);
        let queues = &self.queues;
        // The hash breaks ties.
        let shortest = || {
            let load = |n: usize| queues.get(n).map_or(u64::MAX, WorkerQueue::load);
            let (mut best, mut least) = (by_hash, load(by_hash));
            for n in 0..queues.len() {
                if load(n) < least {
                    (best, least) = (n, load(n));
                }
            }
            best
        };
        assigned.worker(flow, by_hash, shortest)
    }

    /// Sends the held fragments before the first fragment, which decided their worker.
    fn join(&mut self, datagram: u64, worker: usize) {
        while let Some(held) = self.fragments.take(datagram) {
            self.put(&held, worker);
        }
    }

    /// Sends fragments that waited too long by their addresses.
    fn release(&mut self, seen: u64) {
        while let Some((held, worker)) = self.fragments.overdue(seen) {
            self.put(&held, worker);
        }
    }

    fn put(&mut self, held: &Held, worker: usize) {
        let stream = self.stream;
        let Some(queue) = self.queues.get_mut(worker) else { return };
        if !queue.open.is_empty() {
            queue.close(&self.buffer, stream);
        }
        queue.add(held.start, &held.frame(), 0);
        self.whereabouts.note(worker, held.frame().number, Whose::AnyHost);
        queue.close(&held.buffer, stream);
    }
}
