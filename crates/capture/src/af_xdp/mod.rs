//! AF_XDP: packets of a Linux interface, taken from its driver before the network stack.
//!
//! A [`Port`] is an interface with our program at it ([`crate::ebpf`]), which hands each packet to the socket of its receive queue.
//! [`AfXdp`] is the sockets of one worker, one for each of its queues. All sockets exist before the program knows any of them;
//! [`LiveSource::start`] registers them. So, as with AF_PACKET, no packet arrives before the worker is ready. Packets of a queue without a
//! socket continue into the network stack.
//!
//! The host does not see packets that a socket has taken. Packets that the host sends are not seen here.
//!
//! A batch borrows its frames from chunks of memory that the card (zero-copy) or the kernel wrote to; released chunks are filled again.
//! Frames have the time of their batch, since the kernel reports none.
//!
//! When the interface disappears, sockets and program go with it; both are created again when an interface of that name appears.
//!
//! | what | limit or policy |
//! | --- | --- |
//! | packets that wait | 16 MiB of chunks for each queue; the kernel counts packets without one ([`LiveCounters::kernel_drops`]) |
//! | a packet larger than a chunk | lost; counted ([`crate::live::XdpRings::dropped`]). A chunk holds what the interface's MTU allows |
//! | queues | as many as the interface has; a worker has one or more |

mod port;
mod umem;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use margay_packet::{LinkType, Time};

pub use crate::af_packet::Trust;
use crate::batch::{Batch, Meta};
use crate::ebpf::XdpMode;
use crate::filter::Filter;
use crate::interface::Interface;
use crate::link::{LOOK, State, received};
use crate::live::{Decisions, LinkChange, LiveCounters, LiveError, LiveSource, Received, XdpRings};
use crate::sys::{self, Place, Polled};
pub use port::Port;
use port::Standing;
use umem::{Failed, Shape, Socket};

/// Bytes of memory of a socket.
const MEMORY: u32 = 16 << 20;
/// Free bytes at the start of a chunk (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// An Ethernet header with two tags.
const LINK_HEADER: u32 = 22;
/// Maximum time of a packet between the program and the ring: the duration of a driver's poll.
const SETTLE: Duration = Duration::from_millis(50);

/// Whether the kernel copies packets (`force-bind-mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindMode {
    /// Zero-copy if the driver supports it, otherwise with copying.
    #[default]
    Any,
    /// Only zero-copy; fails if the driver does not support it.
    Zero,
    /// Always with copying.
    Copy,
}

/// Polling of the card by the worker itself, instead of interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// Approximate microseconds of polling before it waits.
    pub micros: u32,
    /// Most packets of one poll.
    pub budget: u32,
}

/// How an interface is captured from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether the interface becomes promiscuous.
    pub promiscuous: bool,
    /// Where the program is attached; `None` for the driver if possible, otherwise the network stack.
    pub mode: Option<XdpMode>,
    /// Whether the kernel copies packets.
    pub bind: BindMode,
    /// Chunks are in huge pages.
    pub unaligned: bool,
    /// Polling.
    pub busy_poll: Option<BusyPoll>,
    /// Nanoseconds for which the kernel leaves a polled interface alone (`gro_flush_timeout`), and the number of empty polls before
    /// it enables interrupts again (`napi_defer_hard_irqs`). `None` means 2,000,000 and 2 with zero-copy, and otherwise the
    /// interface's own values. The old values are restored at the end.
    pub defer: Option<[u64; 2]>,
    /// Which checksums are trusted without a check.
    pub trust: Trust,
    /// A BPF expression, which this process runs; only packets that match are handed out.
    pub filter: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            promiscuous: true,
            mode: None,
            bind: BindMode::Any,
            unaligned: false,
            busy_poll: Some(BusyPoll { micros: 20, budget: 64 }),
            defer: None,
            trust: Trust::Nobody,
            filter: None,
        }
    }
}

/// A socket with its queue.
#[derive(Debug)]
struct Bound {
    queue: u32,
    socket: Socket,
}

/// The sockets of one worker.
#[derive(Debug)]
pub struct AfXdp {
    port: Arc<Port>,
    queues: Vec<u32>,
    filter: Option<Filter>,
    trust: Trust,
    /// `None` while the interface is gone.
    standing: Option<Arc<Standing>>,
    sockets: Vec<Bound>,
    fds: Vec<libc::pollfd>,
    /// Index of the socket that received the batch.
    at: usize,
    metas: Vec<Meta>,
    state: State,
    started: bool,
    looked: Option<Instant>,
    /// Counts of this source, including those of closed sockets.
    counters: LiveCounters,
    remarks: Vec<String>,
}

impl AfXdp {
    /// Creates a socket for each queue. They are ready, but receive no packets yet. The calling thread's memory policy decides
    /// which node has their memory.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn open(port: &Arc<Port>, queues: &[u32]) -> Result<AfXdp, LiveError> {
        let settings = port.settings();
        let filter = match &settings.filter {
            Some(expression) => Some(
                Filter::compile(expression, LinkType::ETHERNET)
                    .map_err(|source| LiveError::Filter { interface: port.name().to_owned(), source })?,
            ),
            None => None,
        };
        let interface = Interface::find(port.name())?;
        let mut source = AfXdp {
            queues: queues.to_vec(),
            filter,
            trust: settings.trust,
            standing: None,
            sockets: Vec::new(),
            fds: Vec::new(),
            at: 0,
            metas: Vec::new(),
            state: State::of(interface.up),
            started: false,
            looked: None,
            counters: LiveCounters::default(),
            remarks: Vec::new(),
            port: Arc::clone(port),
        };
        source.open_sockets()?;
        Ok(source)
    }

    /// Describes how packets are received, for the log.
    pub fn way(&self) -> String {
        let Some(s) = &self.standing else { return "gone".to_owned() };
        let mode = match s.mode() {
            XdpMode::Driver => "in the driver",
            XdpMode::Generic => "in the network stack (generic mode)",
        };
        let copies = if self.sockets.iter().all(|b| b.socket.zero_copy()) { "without copying" } else { "copied" };
        format!("program {mode}, packets {copies}")
    }

    /// Features that were unavailable and skipped: a sentence each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn open_sockets(&mut self) -> Result<(), LiveError> {
        self.remarks.clear();
        let standing = self.port.stand()?;
        let settings = self.port.settings();
        let name = self.port.name();
        let chunk = match standing.mtu.saturating_add(LINK_HEADER + HEADROOM) {
            ..=2048 => 2048,
            2049..=4096 => 4096,
            _ => {
                self.remarks.push(format!(
                    "{name}: packets of more than {} bytes are lost, and its MTU is {}: make that smaller (ip link set {name} \
                     mtu {})",
                    4096 - HEADROOM,
                    standing.mtu,
                    4096 - HEADROOM - LINK_HEADER
                ));
                4096
            }
        };
        let copy = match settings.bind {
            BindMode::Any => None,
            BindMode::Zero => Some(false),
            BindMode::Copy => Some(true),
        };
        let shape = Shape { chunk, chunks: MEMORY / chunk, unaligned: settings.unaligned, copy };
        let mut sockets = Vec::new();
        for &queue in &self.queues {
            let socket = Socket::new(standing.index, queue, shape)
                .map_err(|Failed(what, source)| self.port.purpose().refused(what, source))?;
            if let Some(b) = settings.busy_poll
                && let Err(e) = socket.busy_poll(b.micros, b.budget)
                && queue == self.queues.first().copied().unwrap_or(0)
            {
                self.remarks.push(format!(
                    "{name}: cannot be polled without interrupts (enable-busy-poll): {e}; Linux 5.11 and CAP_NET_ADMIN are needed; \
                     going on without"
                ));
            }
            sockets.push(Bound { queue, socket });
        }
        if sockets.iter().any(|b| b.socket.zero_copy()) || settings.defer.is_some() {
            self.remarks.extend(self.port.defer_interrupts(&standing));
        }
        let fd = |b: &Bound| sys::polled(b.socket.fd());
        self.fds = sockets.iter().map(fd).collect();
        self.sockets = sockets;
        self.at = 0;
        self.standing = Some(standing);
        if self.started {
            self.let_in()?;
        }
        Ok(())
    }

    /// Registers the sockets with the program.
    fn let_in(&mut self) -> Result<(), LiveError> {
        let Some(standing) = &self.standing else { return Ok(()) };
        for b in &self.sockets {
            standing.connect(b.queue, b.socket.fd()).map_err(|source| LiveError::System {
                interface: self.port.name().to_owned(),
                what: "a socket cannot be registered with its program",
                source,
            })?;
        }
        Ok(())
    }

    /// The program's packet count and the rings' counters, for the present sockets.
    fn counted(&self) -> (u64, XdpRings) {
        let mut rings = XdpRings::default();
        let mut packets = 0;
        for b in &self.sockets {
            if let Ok([dropped, invalid, full, fill_empty]) = b.socket.statistics() {
                rings.add(&XdpRings { dropped, invalid, full, fill_empty, ..XdpRings::default() });
            }
            packets += self.standing.as_ref().map_or(0, |s| s.packets(b.queue));
        }
        (packets, rings)
    }

    /// Closes the sockets, because the interface disappeared.
    fn close(&mut self) {
        self.metas.clear();
        let (packets, rings) = self.counted();
        self.counters.kernel_packets += packets;
        self.counters.rings.add(&rings);
        self.sockets.clear();
        self.fds.clear();
        self.standing = None;
    }

    /// Takes the next batch of the socket at `at`.
    fn take(&mut self, max: usize) {
        let Some(b) = self.sockets.get_mut(self.at) else { return };
        self.counters.unreadable += b.socket.take(max);
        let before = b.socket.held().len();
        if let Some(filter) = &self.filter {
            b.socket.keep(|data| filter.matches(data, u32::try_from(data.len()).unwrap_or(u32::MAX)));
        }
        let held = b.socket.held();
        self.counters.rings.filtered += (before - held.len()) as u64;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Time::new(now.as_secs().cast_signed(), i64::from(now.subsec_micros()));
        let trusted = self.trust == Trust::Everybody;
        let meta = |p: &Place| {
            let (start, len) = (p.start, p.len);
            Meta { start, len, wire_len: len, link: LinkType::ETHERNET, time, trusted }
        };
        self.metas.extend(held.iter().map(meta));
        self.counters.frames += self.metas.len() as u64;
        self.counters.bytes += held.iter().map(|p| u64::from(p.len)).sum::<u64>();
    }

    /// The next socket with packets, in round-robin order.
    #[inline]
    fn next_ready(&self) -> Option<usize> {
        let n = self.sockets.len();
        (1..=n).map(|i| (self.at + i) % n).find(|&i| self.sockets.get(i).is_some_and(|b| b.socket.waiting() > 0))
    }

    fn give_back(&mut self) {
        self.metas.clear();
        if let Some(b) = self.sockets.get_mut(self.at) {
            b.socket.give_back();
        }
    }

    /// Waits for packets. Returns a change of the interface, or `Idle`, instead of packets.
    #[cold]
    fn wait(&mut self, wait: Duration) -> Option<Received> {
        if self.sockets.is_empty() {
            std::thread::sleep(wait);
            return Some(self.look());
        }
        if self.port.settings().busy_poll.is_some() {
            self.sockets.iter().for_each(|b| b.socket.call());
            if self.next_ready().is_some() {
                return None;
            }
        }
        let polled = sys::poll(&mut self.fds, wait);
        self.counters.count_poll(polled);
        self.counters.errors += u64::from(polled == Polled::Error);
        if self.next_ready().is_some() {
            return None;
        }
        self.counters.rings.empty += 1;
        let broken = self.fds.iter().any(|p| p.revents & !libc::POLLIN != 0);
        if broken || self.state != State::Up || self.looked.is_none_or(|l| l.elapsed() >= LOOK) {
            let found = self.look();
            if broken && found == Received::Idle {
                // Pause, so that an error without a cause does not start a busy loop.
                std::thread::sleep(wait.min(Duration::from_millis(10)));
            }
            return Some(found);
        }
        None
    }

    /// Checks whether the interface still exists, has reappeared, or is up.
    fn look(&mut self) -> Received {
        let now = Instant::now();
        self.looked = Some(now);
        if self.state.rests(now) {
            return Received::Idle;
        }
        let found = Interface::find(self.port.name()).ok();
        let ours = self.standing.as_ref().map(|s| s.index);
        if let Some(i) = &found
            && Some(i.index) == ours
        {
            return received(self.state.is_there(i.up));
        }
        self.close();
        if found.is_some_and(|i| i.up) {
            self.counters.reopened += 1;
            if self.open_sockets().is_ok() {
                self.state = State::Up;
                return Received::Link(LinkChange::Back);
            }
            self.close();
        }
        received(self.state.is_gone(now))
    }
}

impl LiveSource for AfXdp {
    fn receive(&mut self, max: usize, wait: Duration) -> Received {
        self.give_back();
        let ready = match self.next_ready() {
            Some(i) => Some(i),
            None => match self.wait(wait) {
                Some(found) => return found,
                None => self.next_ready(),
            },
        };
        let Some(ready) = ready else { return Received::Idle };
        if let Some(change) = self.state.has_packets() {
            return Received::Link(change);
        }
        self.at = ready;
        self.take(max.max(1));
        if self.metas.is_empty() { Received::Idle } else { Received::Frames }
    }

    fn batch(&self) -> Batch<'_> {
        match self.sockets.get(self.at) {
            Some(b) => Batch::chunks(b.socket.view(), &self.metas),
            None => Batch::live(&[], &[]),
        }
    }

    fn release(&mut self, _: &Decisions) {
        self.give_back();
    }

    fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn trust(&mut self) {
        self.trust = Trust::Everybody;
    }

    fn start(&mut self) -> Result<(), LiveError> {
        self.started = true;
        self.let_in()
    }

    fn stop(&mut self) {
        self.started = false;
        if let Some(standing) = &self.standing {
            self.sockets.iter().for_each(|b| standing.disconnect(b.queue));
        }
    }

    fn settle(&self) -> Duration {
        SETTLE
    }

    fn counters(&mut self, _: usize) -> LiveCounters {
        let mut all = self.counters;
        let (packets, rings) = self.counted();
        all.rings.add(&rings);
        all.kernel_packets = (all.kernel_packets + packets).saturating_sub(all.rings.filtered);
        all.kernel_drops = all.rings.dropped + all.rings.full;
        all.freezes = all.rings.full;
        all
    }
}
