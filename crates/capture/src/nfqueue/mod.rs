//! NFQUEUE: netfilter hands over packets and waits for a verdict on each (nfnetlink_queue).
//!
//! [`Nfqueue::open`] makes the socket; [`LiveSource::start`] takes over the queue. Before that the firewall rule decides: packets pass
//! (`bypass`) or are dropped. One call receives several messages, and one call answers a batch: consecutive packets with the same
//! verdict share a message (`NFQNL_MSG_VERDICT_BATCH`).
//!
//! A packet starts with its IP header. With `gso`, packets that the kernel merged, or has not cut yet, arrive as one; their checksums are
//! not filled in and must not be checked.
//!
//! | what | limit or policy |
//! | --- | --- |
//! | packets that wait | `length`, and the socket's buffer; a packet without room is dropped, or passes with fail-open; counted either way ([`LiveCounters::kernel_drops`]) |
//! | bytes of a packet | 65,531, the kernel's limit; counted ([`LiveCounters::truncated`]). The last bytes of longer ones are not seen: TCP segments continue without them and the sender retransmits, so nothing passes unseen; others pass whole |
//! | packets of a batch | 256 |
//!
//! The kernel does not count packets that pass because the queue is full. It numbers packets that pass because the socket is full, which
//! leaves gaps. So with fail-open the queue has no length, and its socket's buffer is the limit.
//!
//! [`LiveSource::stop`] sets the queue's length to 0: new packets pass or are dropped as if it were full, and waiting ones still get
//! their verdict. When the socket closes, the kernel drops the waiting packets, and the firewall rule decides on new ones.

mod finish;
mod message;
mod raw;
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "fuzz targets fail by it; the engine does not call it")]
pub mod replay;
mod socket;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use margay_packet::{LinkType, Time};

use crate::batch::{Batch, Meta};
use crate::live::{Decisions, LiveCounters, LiveError, LiveSource, Received, Verdict};
use crate::sys::Polled;
use finish::shorten;
use message::{Queued, Row, Said, Writer};
use raw::Answerer;
use socket::{Slots, Socket};

/// Bytes of a slot: a packet of maximum length with its attributes, in whole pages.
const SLOT: usize = 17 * 4096;
/// Bytes of verdicts per call.
const SEND: usize = 64 << 10;
/// The longest queue: far more than sockets have room for.
const ENDLESS: u32 = 1 << 30;

/// The next step of accepted packets (`mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are accepted, and skip the rest of the chain.
    #[default]
    Accept,
    /// They restart the chain with a mark, by which the firewall rule recognises them and lets them pass.
    Repeat,
    /// They go to the queue with this number.
    Route(u16),
}

/// A mark, and the bits of it that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The new values of the bits.
    pub value: u32,
    /// The bits that change.
    pub mask: u32,
}

impl Mark {
    /// The new value of a packet's mark.
    pub fn on(self, mark: u32) -> u32 {
        mark & !self.mask | self.value & self.mask
    }
}

/// How a queue is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its number.
    pub queue: u16,
    /// The way of accepted packets.
    pub mode: Mode,
    /// Their mark when they restart the chain.
    pub repeat: Mark,
    /// The mark of packets in flows that need no more inspection.
    pub bypass: Option<Mark>,
    /// Most packets in a batch, which are answered together: 1 to 256.
    pub batch: usize,
    /// Packets without room pass instead of being dropped.
    pub fail_open: bool,
    /// Most packets that may wait.
    pub length: u32,
    /// Most bytes of messages that may wait in the socket.
    pub buffer_size: u32,
    /// Merged packets arrive as one.
    pub gso: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            queue: 0,
            mode: Mode::Accept,
            repeat: Mark::default(),
            bypass: None,
            batch: 64,
            fail_open: false,
            length: 4096,
            buffer_size: 16 << 20,
            gso: true,
        }
    }
}

/// The kernel's counts, extended so that they do not wrap around.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    last: Row,
    numbered: u64,
    full: u64,
    unsent: u64,
}

impl Counted {
    fn take(&mut self, row: Row) {
        let step = |now: u64, last: u64| u64::from((now as u32).wrapping_sub(last as u32));
        self.numbered += step(row.numbered, self.last.numbered);
        self.full += step(row.full, self.last.full);
        self.unsent += step(row.unsent, self.last.unsent);
        self.last = row;
    }
}

/// A queue.
#[derive(Debug)]
pub struct Nfqueue {
    settings: Settings,
    name: String,
    socket: Socket,
    slots: Slots,
    writer: Writer,
    answers: Answerer,
    metas: Vec<Meta>,
    /// The packets of the batch, one for each of `metas`.
    queued: Vec<Queued>,
    /// The kernel's table of queues, if it is open.
    table: Option<File>,
    sequence: u32,
    started: bool,
    /// Number of the last packet.
    last: u32,
    /// Count of packet numbers that were skipped.
    missing: u64,
    trusted: bool,
    counted: Counted,
    counters: LiveCounters,
}

impl Nfqueue {
    /// Creates the socket. [`LiveSource::start`] takes over the queue.
    ///
    /// # Errors
    /// [`LiveError::Setting`], [`LiveError::System`].
    pub fn open(settings: Settings) -> Result<Nfqueue, LiveError> {
        let name = format!("queue {}", settings.queue);
        let failed = |what| {
            let interface = name.clone();
            move |source| LiveError::System { interface, what, source }
        };
        let most = socket::AT_ONCE;
        if !(1..=most).contains(&settings.batch) {
            let message = format!("{} is not 1 to {most}", settings.batch);
            return Err(LiveError::Setting { interface: name, setting: "batchcount", message });
        }
        let socket = Socket::new().map_err(failed("cannot open a netlink socket"))?;
        socket.room(settings.buffer_size).map_err(failed("its buffer cannot be of that size (buffer-size)"))?;
        socket.no_pause().map_err(failed("its socket cannot be set up"))?;
        // Mark answers, so that they pass the queueing rule.
        let mark = match settings.mode {
            Mode::Repeat => Some(settings.repeat),
            Mode::Accept | Mode::Route(_) => settings.bypass,
        };
        Ok(Nfqueue {
            name,
            socket,
            slots: Slots::new(settings.batch, SLOT),
            writer: Writer::default(),
            answers: Answerer::new(mark.map(|m| m.on(0))),
            metas: Vec::with_capacity(settings.batch),
            queued: Vec::with_capacity(settings.batch),
            settings,
            table: None,
            sequence: 0,
            started: false,
            last: 0,
            missing: 0,
            trusted: false,
            counted: Counted::default(),
            counters: LiveCounters::default(),
        })
    }

    /// The queue's row in the kernel's table, whoever owns it.
    fn row(&mut self) -> Option<Row> {
        let table = match &mut self.table {
            Some(open) => open,
            // `/proc/net` belongs to the process's first thread, which may be in another network namespace.
            none => none.insert(File::open("/proc/thread-self/net/netfilter/nfnetlink_queue").ok()?),
        };
        let mut text = String::new();
        table.seek(SeekFrom::Start(0)).ok()?;
        table.read_to_string(&mut text).ok()?;
        message::row(&text, self.settings.queue)
    }

    /// Reads the kernel's counters.
    fn count(&mut self) {
        if !self.started {
            return;
        }
        let Some(row) = self.row().filter(|r| r.port == self.socket.port) else { return };
        self.counted.take(row);
        let k = &self.counted;
        self.counters.kernel_packets = k.numbered + k.full;
        self.counters.kernel_drops = k.full
            + match self.settings.fail_open {
                false => k.unsent,
                // Also count skipped numbers after the last received packet.
                true if row.waiting == 0 => self.missing + u64::from((row.numbered as u32).wrapping_sub(self.last)),
                true => self.missing,
            };
    }

    /// Receives waiting messages. Returns whether there were any.
    fn fill(&mut self, max: usize) -> bool {
        let got = match self.socket.receive(&mut self.slots, max) {
            Ok(n) => n,
            Err(e) => {
                match (e.kind(), e.raw_os_error()) {
                    (std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted, _) => {}
                    (_, Some(libc::ENOBUFS)) => self.counters.freezes += 1,
                    _ => self.counters.errors += 1,
                }
                return false;
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Time::new(now.as_secs().cast_signed(), i64::from(now.subsec_micros()));
        for n in 0..got {
            let (mut at, end) = self.slots.filled(n);
            while let Some(message) = self.slots.bytes().get(..end)
                && let Some((said, next)) = message::read(message, at)
            {
                at = next;
                match said {
                    Said::Packet(mut q) => {
                        let gap = q.id.wrapping_sub(self.last).wrapping_sub(1);
                        self.missing += u64::from(gap);
                        self.last = q.id;
                        self.counters.bytes += q.len as u64;
                        let cut = q.full.is_some_and(|full| full as usize > q.len);
                        if cut && let Some(packet) = self.slots.bytes_mut().get_mut(q.start..q.start + q.len) {
                            self.counters.truncated += 1;
                            q.shortened = shorten(packet);
                        }
                        self.metas.push(Meta {
                            start: q.start as u32,
                            len: q.len as u32,
                            wire_len: q.len as u32,
                            link: LinkType::RAW,
                            time,
                            trusted: q.unfinished || cut || self.trusted,
                        });
                        self.queued.push(q);
                    }
                    // An error answers a verdict on a packet that no longer exists, because its interface disappeared.
                    Said::Answer { error, .. } => self.counters.errors += u64::from(error != 0),
                    Said::Other => self.counters.unreadable += 1,
                }
            }
        }
        self.counters.frames += self.queued.len() as u64;
        got > 0
    }

    /// Waits for a message. Returns whether there may be one.
    #[cold]
    fn wait(&mut self, wait: Duration) -> bool {
        let polled = self.socket.poll(wait);
        self.counters.count_poll(polled);
        if polled == Polled::Error {
            // Pause, so that an error without a cause does not start a busy loop.
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
        polled != Polled::Timeout
    }

    /// The verdict for the kernel on a packet, and its mark if that changes.
    fn outcome(&self, decisions: &Decisions, n: usize, q: &Queued) -> (u32, Option<u32>) {
        if decisions.verdict(n) == Verdict::Drop {
            return (libc::NF_DROP as u32, None);
        }
        let mut mark = q.mark;
        if let Some((value, mask)) = decisions.mark_of(n) {
            mark = Mark { value, mask }.on(mark);
        }
        if decisions.is_bypassed(n)
            && let Some(m) = self.settings.bypass
        {
            mark = m.on(mark);
        }
        let verdict = match self.settings.mode {
            Mode::Accept => libc::NF_ACCEPT as u32,
            Mode::Repeat => {
                mark = self.settings.repeat.on(mark);
                libc::NF_REPEAT as u32
            }
            Mode::Route(queue) => u32::from(queue) << 16 | libc::NF_QUEUE as u32,
        };
        (verdict, (mark != q.mark).then_some(mark))
    }

    /// Sends the collected verdicts, which are on `packets` packets.
    fn flush(&mut self, packets: usize) {
        if self.writer.bytes.is_empty() {
            return;
        }
        if self.socket.send(&self.writer.bytes).is_err() {
            self.counters.errors += 1;
            self.counters.send_errors += packets as u64;
        }
        self.writer.clear();
    }

    /// Sends the batch's verdicts and additional answers.
    fn answer(&mut self, decisions: &Decisions) {
        let queue = self.settings.queue;
        let mut n = 0;
        let mut sent = 0;
        while let Some(q) = self.queued.get(n) {
            let (verdict, mark) = self.outcome(decisions, n, q);
            let first = n;
            // The packet's new bytes, if it is forwarded with other ones.
            let other = |n: usize, q: &Queued| match decisions.verdict(n) {
                Verdict::Drop => None,
                Verdict::Replace(..) => decisions.replacement(n).map(|b| (b, q.unfinished || q.shortened)),
                Verdict::Accept if q.shortened => self.slots.bytes().get(q.start..q.start + q.len).map(|b| (b, true)),
                Verdict::Accept => None,
            };
            let bytes = other(n, q);
            let mut id = q.id;
            n += 1;
            if bytes.is_none() {
                while let Some(next) = self.queued.get(n)
                    && other(n, next).is_none()
                    && self.outcome(decisions, n, next) == (verdict, mark)
                {
                    id = next.id;
                    n += 1;
                }
            }
            self.writer.verdict(queue, n - first > 1, id, verdict, mark, bytes);
            match decisions.verdict(first) {
                Verdict::Drop => self.counters.dropped += (n - first) as u64,
                _ => self.counters.sent += (n - first) as u64,
            }
            if self.writer.bytes.len() >= SEND {
                self.flush(n - sent);
                sent = n;
            }
        }
        self.flush(n - sent);
        for (_, packet) in decisions.answers() {
            match self.answers.send(packet) {
                Ok(()) => self.counters.answers += 1,
                Err(_) => self.counters.answer_errors += 1,
            }
        }
    }

    /// Sends the writer's messages to the kernel. Returns the kernel's answer.
    fn configure(&mut self) -> std::io::Result<()> {
        let sent = self.socket.send(&self.writer.bytes);
        self.writer.clear();
        sent?;
        // The kernel answers only errors, and has done so by now.
        let mut answer = [0; 512];
        let len = self.socket.peek(&mut answer)?.unwrap_or(0);
        match answer.get(..len).and_then(|a| message::read(a, 0)) {
            Some((Said::Answer { sequence, error }, _)) if sequence == self.sequence && error != 0 => {
                Err(std::io::Error::from_raw_os_error(error))
            }
            _ => Ok(()),
        }
    }

    fn take_over(&mut self) -> Result<(), LiveError> {
        let s = &self.settings;
        let mut flags = 0;
        if s.fail_open {
            flags |= libc::NFQA_CFG_F_FAIL_OPEN as u32;
        }
        if s.gso {
            flags |= libc::NFQA_CFG_F_GSO as u32;
        }
        self.sequence += 1;
        let length = if s.fail_open { ENDLESS } else { s.length };
        self.writer.clear();
        self.writer.bind(s.queue, self.sequence, length, flags);
        let Err(source) = self.configure() else { return Ok(()) };
        let queue = self.settings.queue;
        Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EBUSY) => match self.row() {
                Some(row) => LiveError::QueueTaken { queue, port: row.port },
                None => LiveError::QueueNotAllowed { queue },
            },
            _ => LiveError::System {
                interface: self.name.clone(),
                what: "cannot be taken over (the kernel needs nfnetlink_queue, Linux 3.10 or later)",
                source,
            },
        })
    }
}

impl LiveSource for Nfqueue {
    fn receive(&mut self, max: usize, wait: Duration) -> Received {
        if !self.queued.is_empty() {
            self.release(&Decisions::default());
        }
        self.metas.clear();
        if !self.started {
            std::thread::sleep(wait);
            return Received::Idle;
        }
        let max = max.clamp(1, self.settings.batch);
        if !self.fill(max) && self.wait(wait) {
            self.fill(max);
        }
        if self.metas.is_empty() { Received::Idle } else { Received::Frames }
    }

    fn batch(&self) -> Batch<'_> {
        Batch::live(self.slots.bytes(), &self.metas)
    }

    fn release(&mut self, decisions: &Decisions) {
        if !self.queued.is_empty() {
            self.answer(decisions);
        }
        self.queued.clear();
        self.metas.clear();
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn trust(&mut self) {
        self.trusted = true;
    }

    fn start(&mut self) -> Result<(), LiveError> {
        self.take_over()?;
        self.started = true;
        // Open the kernel's table now, because only root may.
        self.row();
        Ok(())
    }

    fn stop(&mut self) {
        if !self.started {
            return;
        }
        self.sequence += 1;
        self.writer.clear();
        self.writer.length(self.settings.queue, self.sequence, 0);
        if self.socket.send(&self.writer.bytes).is_err() {
            self.counters.errors += 1;
        }
        self.writer.clear();
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn counters(&mut self, _: usize) -> LiveCounters {
        self.count();
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nfqueue(mode: Mode) -> Nfqueue {
        let repeat = Mark { value: 1, mask: 1 };
        let bypass = Some(Mark { value: 4, mask: 6 });
        Nfqueue::open(Settings { mode, repeat, bypass, ..Settings::default() }).expect("a socket")
    }

    #[test]
    fn marks_and_verdicts() {
        let q = Queued { mark: 0x102, ..Queued::default() };
        let mut d = Decisions::default();
        d.accept();
        d.drop();
        d.accept();
        d.mark(0xff, 0x10);
        d.accept();
        d.bypass();
        let of = |mode| (0..5).map(|n| nfqueue(mode).outcome(&d, n, &q)).collect::<Vec<_>>();
        assert_eq!(of(Mode::Accept), [(1, None), (0, None), (1, Some(0x112)), (1, Some(0x104)), (1, None)]);
        assert_eq!(
            of(Mode::Repeat),
            [(4, Some(0x103)), (0, None), (4, Some(0x113)), (4, Some(0x105)), (4, Some(0x103))]
        );
        assert_eq!(of(Mode::Route(7))[0], (7 << 16 | 3, None));
    }

    #[test]
    fn counters_go_round() {
        let mut c = Counted::default();
        c.take(Row { numbered: u64::from(u32::MAX) - 1, full: 3, ..Row::default() });
        c.take(Row { numbered: 2, full: 4, unsent: 1, ..Row::default() });
        assert_eq!((c.numbered, c.full, c.unsent), (u64::from(u32::MAX) + 3, 4, 1));
    }

    #[test]
    fn batches_have_a_limit() {
        for batch in [0, 257] {
            assert!(matches!(
                Nfqueue::open(Settings { batch, ..Settings::default() }),
                Err(LiveError::Setting { setting: "batchcount", .. })
            ));
        }
    }
}
