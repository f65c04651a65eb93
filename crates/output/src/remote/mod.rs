//! Lines for remote peers: Redis, Kafka, a socket with or without TLS, a syslog server.
//!
//! A worker puts lines into a bounded queue in memory and goes on (`Remote::put`). Each output has a thread that takes lines
//! in batches, sends them, and keeps each batch until the peer has it. Only this thread connects and waits. While the peer is
//! away, the thread retries at growing intervals. If the output has a spool (`spool.rs`), the thread moves lines to disk as
//! the queue fills up. The order is: the batch being sent, then the spool, then the queue. Lines that fit nowhere are counted
//! as lost. The log reports once that the peer is away, with the reason, and once more when the peer is back, with the number
//! of lost lines.
//!
//! Each `Transport` has a file here. It connects, sends a batch, and returns the lines of a failed batch that have to be
//! sent again.

#[cfg(feature = "kafka")]
mod kafka;
mod key;
mod redis;
mod spool;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::count;
use crate::log::{Level, log};
pub use crate::settings::remote::{
    KafkaSettings, PartitionKey, RedisMode, RedisSettings, RemoteKind, RemoteSettings, SpoolSettings, StreamFraming,
    StreamSettings, TlsSettings, WhenFull,
};
use spool::{Place, Spool};

/// Approximate size of a batch in bytes.
const BATCH: usize = 256 << 10;
/// The first pause after a failure; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Limit of the time that a worker waits for a peer that is away.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Interval of the reports on lines that were lost because a connected peer is too slow.
const LOSSES_TOLD: Duration = Duration::from_secs(10);
/// Limit of the time that the process waits at its end for the peer to take the remaining lines.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// Limit of the time that a peer may take to connect, accept or acknowledge before it counts as away.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The result of sending a batch.
#[derive(Debug)]
#[cfg_attr(not(feature = "kafka"), allow(dead_code))] // Only Kafka leaves a batch in flight, or refuses lines for good.
pub(super) enum Outcome {
    /// The peer has the batch. It refused this many lines for good, the last one for this reason.
    Done { refused: u64, why: Option<String> },
    /// The batch is in flight; [`Transport::wait`] returns the result. `why` is set once it takes longer than
    /// [`PATIENCE`].
    Waiting { why: Option<String> },
    /// The connection or the peer failed. `rest` has the lines to send again.
    Failed { rest: Vec<u8>, why: String },
}

/// A connection to a peer. All calls come from one thread and return within a few times [`PATIENCE`].
pub(super) trait Transport: Send {
    /// Connects, or reconnects after [`Outcome::Failed`].
    ///
    /// # Errors
    /// A sentence that describes the failure.
    fn connect(&mut self) -> Result<(), String>;

    /// Sends whole lines.
    fn send(&mut self, lines: &[u8]) -> Outcome;

    /// The result of the last batch sent.
    fn wait(&mut self) -> Outcome {
        Outcome::Done { refused: 0, why: None }
    }
}

/// Counters of one output, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteCounters {
    /// Lines that the peer has.
    pub sent: u64,
    /// Lines lost because neither queue nor spool had room, because a crash truncated them, or because they were unsent
    /// at the end.
    pub lost: u64,
    /// Lines that the peer refused for good, for example because they are too long.
    pub refused: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// Bytes in memory now.
    pub queued: u64,
    /// Bytes on disk now.
    pub spooled: u64,
}

impl RemoteCounters {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: RemoteCounters) -> RemoteCounters {
        RemoteCounters {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            refused: self.refused + other.refused,
            reconnects: self.reconnects + other.reconnects,
            queued: self.queued + other.queued,
            spooled: self.spooled + other.spooled,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    counters: RemoteCounters,
    /// Time since which the peer is away.
    away: Option<Instant>,
    /// A worker waits until everything is sent or on disk.
    finishing: bool,
    /// Everything is sent, or on disk while the peer is away.
    idle: bool,
    /// The thread has to stop.
    stop: bool,
    /// The thread has ended, so nothing is sent any more.
    gone: bool,
}

#[derive(Debug)]
struct Inner {
    name: String,
    settings: Arc<RemoteSettings>,
    queue: Mutex<Queue>,
    /// Signals new lines, or that no more follow.
    work: Condvar,
    /// Signals room in the queue, or that everything was sent.
    room: Condvar,
}

impl Inner {
    /// Each change under the lock is complete in itself, so a panicked holder leaves a valid state.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, level: Level, text: std::fmt::Arguments<'_>) {
        log(level, "output", format_args!("{}: {text}", self.name));
    }
}

/// Creates the transport for a kind of peer.
///
/// # Errors
/// A certificate, address or property that cannot be used, or a kind that this build lacks.
fn transport(kind: &RemoteKind) -> io::Result<Box<dyn Transport>> {
    Ok(match kind {
        RemoteKind::Redis(s) => Box::new(redis::Redis::new(s.clone())),
        #[cfg(feature = "kafka")]
        RemoteKind::Kafka(s) => Box::new(kafka::Kafka::new(s)?),
        #[cfg(not(feature = "kafka"))]
        RemoteKind::Kafka(_) => {
            let why = "this build has no Kafka: build it with the feature kafka, which needs librdkafka";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        RemoteKind::Stream(s) => Box::new(stream::Stream::new(s.clone())?),
    })
}

impl RemoteSettings {
    /// Checks whether an output can be opened with these settings. Nothing is sent, and no spool is touched.
    ///
    /// # Errors
    /// The reason that it cannot be opened.
    pub fn check(&self) -> io::Result<()> {
        transport(&self.kind).map(drop)
    }
}

/// An output's queue and its thread.
#[derive(Debug)]
pub(crate) struct Remote {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    /// Starts the thread. An absent peer is no error: the thread retries.
    ///
    /// # Errors
    /// A spool, certificate or address that cannot be used, a thread that cannot be started, or a kind that this build
    /// lacks.
    pub(crate) fn start(settings: &Arc<RemoteSettings>) -> io::Result<Remote> {
        Remote::with(settings, transport(&settings.kind)?)
    }

    fn with(settings: &Arc<RemoteSettings>, transport: Box<dyn Transport>) -> io::Result<Remote> {
        let inner = Arc::new(Inner {
            name: settings.name(),
            settings: Arc::clone(settings),
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
        });
        let spool = match &settings.spool {
            Some(s) => {
                let (spool, cut) = Spool::open(s.clone())?;
                if cut > 0 {
                    inner.warn(Level::Warning, format_args!("{cut} lines in the spool had no end and are lost"));
                }
                let mut q = inner.lock();
                q.counters.lost += cut;
                q.counters.spooled = spool.held();
                drop(q);
                Some(spool)
            }
            None => None,
        };
        let its = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("Shipper".into()).spawn(move || {
            let leaving = Leaving(&its);
            Shipper::new(leaving.0, transport, spool).run();
        })?;
        Ok(Remote { inner, thread: Some(thread) })
    }

    /// Queues whole lines. Returns how many were lost for lack of room. With [`WhenFull::Wait`] the call waits for room,
    /// until the peer has been away for [`LONGEST_WAIT`].
    pub(crate) fn put(&self, lines: &[u8]) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let inner = &*self.inner;
        let limit = inner.settings.queue;
        let mut q = inner.lock();
        while q.bytes > 0 && q.bytes + lines.len() > limit && !q.gone {
            // A peer that never returns must not block a run for ever.
            let given_up = q.away.is_some_and(|since| since.elapsed() >= LONGEST_WAIT);
            if inner.settings.when_full != Some(WhenFull::Wait) || given_up {
                break;
            }
            q = inner.room.wait_timeout(q, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        // A hand-over larger than the whole queue is accepted once the queue is empty.
        if q.gone || (q.bytes > 0 && q.bytes + lines.len() > limit) {
            let lost = count::lines(lines);
            q.counters.lost += lost;
            return lost;
        }
        q.bytes += lines.len();
        q.idle = false;
        match q.chunks.back_mut() {
            Some(last) if last.len() + lines.len() <= BATCH => last.extend_from_slice(lines),
            _ => q.chunks.push_back(lines.to_vec()),
        }
        q.counters.queued = q.bytes as u64;
        drop(q);
        inner.work.notify_one();
        0
    }

    pub(crate) fn counters(&self) -> RemoteCounters {
        self.inner.lock().counters
    }

    /// Each worker calls this at the end. It waits until the peer has everything, or until the lines are on disk if the peer
    /// is away. After [`LAST_WAIT`] the thread moves the remaining lines to disk, or counts them as lost, and ends. All later
    /// lines are lost.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LAST_WAIT;
        let mut q = self.inner.lock();
        q.finishing = true;
        self.inner.work.notify_one();
        while !q.idle && !q.gone {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                q.stop = true;
                break;
            };
            q = self.inner.room.wait_timeout(q, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        q.finishing = false;
        if q.stop {
            self.inner.work.notify_one();
            // A transport's time limits bound how long the thread stays in a call.
            while !q.gone {
                q = self.inner.room.wait(q).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.finish();
        self.inner.lock().stop = true;
        self.inner.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened, and the lines are counted.
            let _ = thread.join();
        }
    }
}

/// Counts the remaining lines and releases waiting workers when the thread ends, even by a panic.
struct Leaving<'a>(&'a Inner);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut q = self.0.lock();
        q.gone = true;
        let left = std::mem::take(&mut q.chunks);
        q.counters.lost += left.iter().map(|c| count::lines(c)).sum::<u64>();
        q.bytes = 0;
        q.counters.queued = 0;
        drop(q);
        self.0.room.notify_all();
    }
}

/// The origin of the current batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Memory,
    /// Its place in the spool, and its size there in bytes.
    Spool(Place, u64),
}

/// The state of the sending thread.
struct Shipper<'a> {
    inner: &'a Inner,
    transport: Box<dyn Transport>,
    spool: Option<Spool>,
    connected: bool,
    ever: bool,
    failing: bool,
    lost_before: u64,
    /// When the log last reported losses to a connected peer.
    told: Option<Instant>,
    pause: Duration,
    /// The batch being sent, kept until the peer has it.
    batch: Vec<u8>,
    from: Origin,
    /// The transport has the batch.
    waiting: bool,
}

impl Drop for Shipper<'_> {
    fn drop(&mut self) {
        // `end` leaves nothing behind, unless the thread panicked.
        if self.from == Origin::Memory {
            self.inner.lock().counters.lost += count::lines(&self.batch);
        }
    }
}

impl<'a> Shipper<'a> {
    fn new(inner: &'a Inner, transport: Box<dyn Transport>, spool: Option<Spool>) -> Shipper<'a> {
        Shipper {
            inner,
            transport,
            spool,
            connected: false,
            ever: false,
            failing: false,
            lost_before: 0,
            told: None,
            pause: PAUSE,
            batch: Vec::new(),
            from: Origin::Memory,
            waiting: false,
        }
    }

    fn run(&mut self) {
        while !self.inner.lock().stop {
            self.make_room();
            if self.batch.is_empty() && !self.next() {
                self.rest(LONGEST_PAUSE);
                continue;
            }
            if !self.connected {
                if let Err(why) = self.transport.connect() {
                    self.failed(&why);
                    continue;
                }
                self.connected = true;
                if std::mem::replace(&mut self.ever, true) {
                    self.inner.lock().counters.reconnects += 1;
                }
            }
            // A worker that finishes waits for the current batch, even if the batch is also on disk.
            self.inner.lock().idle = false;
            let outcome = if self.waiting { self.transport.wait() } else { self.transport.send(&self.batch) };
            match outcome {
                Outcome::Waiting { why } => {
                    self.waiting = true;
                    if let Some(why) = why {
                        self.tell(&why);
                    }
                }
                Outcome::Done { refused, why } => self.done(refused, why.as_deref()),
                Outcome::Failed { rest, why } => {
                    self.waiting = false;
                    self.connected = false;
                    let sent = count::lines(&self.batch).saturating_sub(count::lines(&rest));
                    self.inner.lock().counters.sent += sent;
                    self.acknowledge_but(&rest);
                    self.batch = rest;
                    self.failed(&why);
                }
            }
        }
        if !self.failing {
            self.tell_of_losses();
        }
        self.end();
    }

    /// Takes the next batch. Returns `false` if there is nothing to send.
    fn next(&mut self) -> bool {
        if let Some(spool) = &mut self.spool
            && spool.waits()
        {
            match spool.read(BATCH) {
                Ok(Some((lines, place))) => {
                    self.from = Origin::Spool(place, lines.len() as u64);
                    self.batch = lines;
                    return true;
                }
                Ok(None) => {}
                Err(e) => {
                    self.inner.warn(Level::Error, format_args!("the spool cannot be read: {e}"));
                    return false;
                }
            }
        }
        let mut q = self.inner.lock();
        let Some(chunk) = q.chunks.pop_front() else { return false };
        q.bytes -= chunk.len();
        q.counters.queued = q.bytes as u64;
        drop(q);
        self.inner.room.notify_all();
        self.from = Origin::Memory;
        self.batch = chunk;
        true
    }

    /// Handles a batch that the peer has.
    fn done(&mut self, refused: u64, why: Option<&str>) {
        self.waiting = false;
        self.pause = PAUSE;
        let lines = count::lines(&self.batch);
        {
            let mut q = self.inner.lock();
            q.counters.sent += lines.saturating_sub(refused);
            q.counters.refused += refused;
        }
        if let Some(why) = why.filter(|_| refused > 0) {
            self.inner.warn(Level::Warning, format_args!("{refused} lines were refused: {why}"));
        }
        self.acknowledge();
        self.batch.clear();
        if std::mem::take(&mut self.failing) {
            let c = {
                let mut q = self.inner.lock();
                q.away = None;
                q.counters
            };
            let lost = c.lost - self.lost_before;
            self.lost_before = c.lost;
            self.inner.warn(
                Level::Notice,
                format_args!("works again; {lost} lines were lost, {} bytes wait on disk", c.spooled),
            );
        } else if self.told.is_none_or(|told| told.elapsed() >= LOSSES_TOLD) {
            self.tell_of_losses();
        }
    }

    /// Logs lines that were lost although the peer is connected, because it is too slow.
    fn tell_of_losses(&mut self) {
        let lost = self.inner.lock().counters.lost;
        if lost > self.lost_before {
            let (new, queue) = (lost - self.lost_before, self.inner.settings.queue);
            self.inner.warn(
                Level::Error,
                format_args!("{new} lines were lost: they arrive faster than the peer takes them, and the queue is full (queue-size, {queue} bytes)"),
            );
            self.lost_before = lost;
            self.told = Some(Instant::now());
        }
    }

    /// Frees the batch's space on disk.
    fn acknowledge(&mut self) {
        let (Some(spool), Origin::Spool(place, size)) = (&mut self.spool, self.from) else { return };
        if let Err(e) = spool.acknowledge(place, size) {
            self.inner
                .warn(Level::Error, format_args!("the spool cannot be written, its lines may be sent twice: {e}"));
        }
        self.inner.lock().counters.spooled = spool.held();
        self.from = Origin::Memory;
    }

    /// Frees the part of a failed batch that the peer has, so that the next run does not send it again.
    fn acknowledge_but(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            return self.acknowledge();
        }
        let Origin::Spool(place, size) = self.from else { return };
        // Kafka's partitions may take lines out of order. The whole batch then stays on disk until all of it is taken.
        if rest.len() < self.batch.len() && self.batch.ends_with(rest) {
            let left = rest.len() as u64;
            self.from = Origin::Spool(place.before(left), size - left);
            self.acknowledge();
            self.from = Origin::Spool(place, left);
        }
    }

    /// Logs once that the peer is away.
    fn tell(&mut self, why: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            {
                let mut q = self.inner.lock();
                self.lost_before = q.counters.lost;
                q.away = Some(Instant::now());
            }
            let until = match &self.spool {
                Some(_) => "events wait in memory and on disk",
                None => "events wait in memory as far as there is room",
            };
            self.inner.warn(Level::Error, format_args!("{why}; {until}, and it is tried again"));
        }
    }

    /// Logs the first failure, and waits a little longer after each one.
    fn failed(&mut self, why: &str) {
        self.tell(why);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        let wake = Instant::now() + pause;
        while let Some(left) = wake.checked_duration_since(Instant::now()).filter(|l| !l.is_zero()) {
            self.make_room();
            if self.rest(left) {
                return;
            }
        }
    }

    /// Moves lines from memory to disk while the peer is away, has a batch in flight, or has to take older lines from the
    /// spool: once they fill half of the queue, and at the end.
    fn make_room(&mut self) {
        let half = self.inner.settings.queue / 2;
        let Some(waits) = self.spool.as_ref().map(Spool::waits) else { return };
        // If the spool has unread lines, those in the queue are younger and must follow them, even if the peer is connected.
        while self.failing || self.waiting || waits {
            let mut q = self.inner.lock();
            let ending = q.finishing && self.failing;
            if q.bytes <= half && !ending {
                return;
            }
            let chunk = q.chunks.pop_front();
            q.bytes -= chunk.as_ref().map_or(0, Vec::len);
            q.counters.queued = q.bytes as u64;
            drop(q);
            // The current batch is older than the queue. It goes to disk first, in case the process ends before it is
            // sent.
            self.spool_batch();
            let Some(chunk) = chunk else { return };
            self.spool_chunk(&chunk);
            self.inner.room.notify_all();
        }
    }

    /// Puts the current batch on disk as well, if it is not there yet.
    fn spool_batch(&mut self) {
        let (Some(spool), Origin::Memory, false) = (&mut self.spool, self.from, self.batch.is_empty()) else { return };
        // A batch comes from memory only while the spool has nothing unread.
        let kept = spool.push(&self.batch).and_then(|fits| if fits { spool.read(self.batch.len()) } else { Ok(None) });
        match kept {
            Ok(Some((lines, place))) => self.from = Origin::Spool(place, lines.len() as u64),
            // The spool is full: the batch stays in memory.
            Ok(None) => {}
            Err(e) => self.inner.warn(Level::Error, format_args!("the spool cannot be written: {e}")),
        }
        self.inner.lock().counters.spooled = self.spool.as_ref().map_or(0, Spool::held);
    }

    /// Puts lines on disk. Lines that do not fit are lost.
    fn spool_chunk(&mut self, chunk: &[u8]) {
        let Some(spool) = &mut self.spool else { return };
        let fits = spool.push(chunk).unwrap_or_else(|e| {
            self.inner.warn(Level::Error, format_args!("the spool cannot be written, lines are lost: {e}"));
            false
        });
        let mut q = self.inner.lock();
        q.counters.spooled = spool.held();
        if !fits {
            q.counters.lost += count::lines(chunk);
        }
    }

    /// Waits for lines, at most for `most`. Returns whether the thread has to stop.
    fn rest(&mut self, most: Duration) -> bool {
        let mut q = self.inner.lock();
        if q.stop {
            return true;
        }
        // If the peer is away and there is a spool, `make_room` has moved the queue to disk for the finishing worker.
        let idle = q.chunks.is_empty() && (self.batch.is_empty() || matches!(self.from, Origin::Spool(..)));
        if idle {
            q.idle = true;
            self.inner.room.notify_all();
        } else if self.batch.is_empty() {
            return false;
        }
        let q = self.inner.work.wait_timeout(q, most).unwrap_or_else(PoisonError::into_inner).0;
        q.stop
    }

    /// Moves the remaining lines to disk, or counts them as lost.
    fn end(&mut self) {
        let mut left: VecDeque<Vec<u8>> = VecDeque::new();
        if self.from == Origin::Memory && !self.batch.is_empty() {
            left.push_back(std::mem::take(&mut self.batch));
        }
        {
            let mut q = self.inner.lock();
            left.append(&mut q.chunks);
            q.bytes = 0;
            q.counters.queued = 0;
        }
        let mut lost = 0;
        for chunk in left {
            let kept = self.spool.as_mut().is_some_and(|s| s.push(&chunk).unwrap_or(false));
            if !kept {
                lost += count::lines(&chunk);
            }
        }
        let mut q = self.inner.lock();
        q.counters.lost += lost;
        q.counters.spooled = self.spool.as_ref().map_or(0, Spool::held);
        let c = q.counters;
        drop(q);
        if c.spooled > 0 {
            self.inner.warn(Level::Notice, format_args!("{} bytes of events wait on disk for the next run", c.spooled));
        }
        if lost > 0 {
            self.inner.warn(Level::Warning, format_args!("{lost} lines could not be sent before the end and are lost"));
        }
    }
}
