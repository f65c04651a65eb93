//! AF_PACKET: packets of a Linux interface, through a ring that the kernel fills (TPACKET_V3).
//!
//! [`Interface`] describes an interface. [`AfPacket::open`] makes a socket that is bound and in its fan-out group, with a ring allocated
//! by the calling thread and a filter that rejects everything; [`LiveSource::start`] installs the real filter. So all workers' sockets
//! are ready before any receives packets: no packet arrives early, at a socket outside its group, or against the filter.
//!
//! A batch borrows its frames from the kernel's block, which goes back when all its frames are released. The kernel removes VLAN tags
//! from frames; they are restored in the room that `PACKET_RESERVE` left, so a frame is decoded like one from a file.
//!
//! [`Bridge`] is inline: each of two interfaces sends what the other received, except dropped packets (`bridge`). Passive sources send
//! only answers, through a separate socket.
//!
//! When the interface goes down the socket stays and continues when it is up again. When it disappears, the socket is closed once its
//! ring is read, and a new one is opened when an interface of that name appears, looked for at growing intervals.
//!
//! | what | limit or policy |
//! | --- | --- |
//! | packets that wait | the ring; the kernel counts those without room ([`LiveCounters::kernel_drops`]) |
//! | a packet larger than a block | cut; counted ([`LiveCounters::truncated`]) |
//! | memory of a ring | 4 GiB |
//!
//! Observed in Suricata 7.0.10 and followed: an interface's own outgoing packets are captured too, except those of the loopback, which
//! also come in.

pub(crate) mod block;
mod bridge;
mod patience;
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "fuzz targets fail by it; the engine does not call it")]
pub mod replay;
pub(crate) mod ring;
pub(crate) mod send;

use std::time::{Duration, Instant};

use crate::batch::{Batch, Meta};
use crate::bpf::Raw;
use crate::bypass::SocketFilter;
use crate::ebpf::sys::{Program, ProgramType};
use crate::ebpf::{Purpose, programs};
use crate::filter::Filter;
pub use crate::interface::Interface;
use crate::link::{LOOK, State, received};
use crate::live::{Decisions, Lent, LinkChange, LiveCounters, LiveError, LiveSource, Received};
use crate::sys::Polled;
use block::Cursor;
pub use block::Trust;
pub use bridge::{Agreement, Bridge, BridgeEnd};
use ring::{Ring, Shape, Socket};
pub use send::Injector;
use send::Out;
pub(crate) use send::Sender;

/// How packets are distributed among the sockets of a group (`cluster-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// By flow, the same for both directions: `cluster_flow`.
    Flow,
    /// By the CPU that handles the packet in the kernel: `cluster_cpu`.
    Cpu,
    /// By the queue of the card: `cluster_qm`.
    Queue,
    /// To the first socket with room: `cluster_rollover`.
    Rollover,
    /// At random: `cluster_rnd`.
    Random,
    /// In turn: `cluster_round_robin`.
    RoundRobin,
    /// By the pair of addresses, in tunnels the inner pair, with our own program: `cluster_ebpf`.
    Program,
}

impl Distribution {
    /// The distribution with this name in configurations.
    pub fn from_name(name: &str) -> Option<Distribution> {
        Some(match name {
            "cluster_flow" => Distribution::Flow,
            "cluster_cpu" => Distribution::Cpu,
            "cluster_qm" => Distribution::Queue,
            "cluster_rollover" => Distribution::Rollover,
            "cluster_rnd" => Distribution::Random,
            "cluster_round_robin" => Distribution::RoundRobin,
            "cluster_ebpf" => Distribution::Program,
            _ => return None,
        })
    }

    /// Whether all packets of a flow are guaranteed to reach the same worker.
    pub fn keeps_flows(self) -> bool {
        matches!(self, Distribution::Flow | Distribution::Program)
    }

    const fn number(self) -> u32 {
        match self {
            Distribution::Flow => libc::PACKET_FANOUT_HASH,
            Distribution::Cpu => libc::PACKET_FANOUT_CPU,
            Distribution::Queue => libc::PACKET_FANOUT_QM,
            Distribution::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            Distribution::Random => libc::PACKET_FANOUT_RND,
            Distribution::RoundRobin => libc::PACKET_FANOUT_LB,
            Distribution::Program => libc::PACKET_FANOUT_EBPF,
        }
    }
}

/// A group of sockets among which an interface's packets are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    /// Its number. `None` asks the kernel for an unused one when the first socket joins; the other sockets take it from
    /// [`AfPacket::group`].
    pub id: Option<u16>,
    /// How packets are distributed.
    pub distribution: Distribution,
    /// The kernel reassembles fragments before it distributes them, so that they follow their flow.
    pub defrag: bool,
    /// A socket without room passes packets on to the next one.
    pub rollover: bool,
}

/// How an interface is captured from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a block: a multiple of 4096, preferably a power of two.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// After this many milliseconds, the kernel hands over a block with packets even if it is not full.
    pub block_timeout: u32,
    /// Inline: the most microseconds to poll for packets before the thread sleeps. It polls for less time if that found none
    /// before, and not at all if this is 0.
    pub busy_poll: u32,
    /// Bytes of the socket's receive buffer; 0 for the kernel's default.
    pub buffer_size: u32,
    /// Whether the interface becomes promiscuous.
    pub promiscuous: bool,
    /// Which checksums are trusted without a check.
    pub trust: Trust,
    /// A BPF expression; only packets that match are captured.
    pub filter: Option<String>,
    /// The group to join.
    pub fanout: Option<Fanout>,
}

impl Default for Settings {
    /// A ring of 32 MiB whose blocks hold the largest packet that the kernel merges (GRO). The blocks are no larger than that,
    /// because the kernel continues with the next one after `block_timeout`, even if a block is nearly empty. On a quiet link,
    /// the number of blocks therefore determines how long a worker may pause without a loss (2.5 seconds here).
    fn default() -> Self {
        Settings {
            block_size: 1 << 17,
            blocks: 256,
            block_timeout: 10,
            busy_poll: 50,
            buffer_size: 0,
            promiscuous: true,
            trust: Trust::Kernel,
            filter: None,
            fanout: None,
        }
    }
}

/// A program that rejects every packet.
const NOTHING: [Raw; 1] = [Raw { code: 6, jt: 0, jf: 0, k: 0 }];

/// A passive source: a socket with its ring.
#[derive(Debug)]
pub struct AfPacket {
    name: String,
    settings: Settings,
    /// The filter as a program; `None` accepts everything.
    program: Option<Vec<Raw>>,
    interface: Interface,
    /// `None` while the interface is gone.
    ring: Option<Ring>,
    cursor: Cursor,
    /// The ring's next block is being read, and is not released yet.
    reading: bool,
    metas: Vec<Meta>,
    state: State,
    started: bool,
    looked: Option<Instant>,
    group: Option<u16>,
    /// The socket for answers, once there are any.
    sender: Option<Sender>,
    counters: LiveCounters,
}

impl AfPacket {
    /// Creates a socket for the interface `name`. It is ready, but accepts no packets yet. The calling thread's memory policy
    /// decides which node has the ring.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn open(name: &str, settings: Settings) -> Result<AfPacket, LiveError> {
        let interface = Interface::find(name)?;
        check(name, &settings)?;
        let program = match &settings.filter {
            Some(expression) => Some(
                Filter::kernel_program(expression, interface.link, name)
                    .map_err(|source| LiveError::Filter { interface: name.to_owned(), source })?,
            ),
            None => None,
        };
        let mut source = AfPacket {
            name: name.to_owned(),
            settings,
            program,
            state: State::of(interface.up),
            interface,
            ring: None,
            cursor: Cursor::default(),
            reading: false,
            metas: Vec::new(),
            started: false,
            looked: None,
            group: None,
            sender: None,
            counters: LiveCounters::default(),
        };
        source.open_ring()?;
        Ok(source)
    }

    /// The number of its fan-out group, for other sockets to join.
    pub fn group(&self) -> Option<u16> {
        self.group
    }

    fn open_ring(&mut self) -> Result<(), LiveError> {
        let s = &self.settings;
        let shape = Shape { block_size: s.block_size, blocks: s.blocks, timeout: s.block_timeout };
        let opening = Opening {
            name: &self.name,
            settings: s,
            interface: &self.interface,
            group: self.group,
            // Outgoing packets of the loopback are received again.
            ignore_outgoing: self.interface.loopback,
        };
        let (ring, group) = opening.open(|socket| socket.into_ring(shape), |ring| &ring.socket)?;
        self.group = group;
        self.ring = Some(ring);
        self.reading = false;
        if self.started {
            self.let_in()?;
        }
        Ok(())
    }

    /// Puts the filter that is wanted in the place of the one that lets nothing in.
    fn let_in(&mut self) -> Result<(), LiveError> {
        let Some(ring) = &self.ring else { return Ok(()) };
        let_in(&self.name, &ring.socket, self.program.as_deref())
    }

    /// Reads the kernel's counters.
    fn count(&mut self) {
        if let Some(ring) = &self.ring
            && let Ok([packets, drops, freezes]) = ring.socket.statistics()
        {
            self.counters.kernel_packets += packets;
            self.counters.kernel_drops += drops;
            self.counters.freezes += freezes;
        }
    }

    /// Takes the next batch from the block that is being read.
    fn take(&mut self, max: usize) {
        let Some(ring) = &mut self.ring else { return };
        let block = ring.block_mut();
        let (link, trust) = (self.interface.link, self.settings.trust);
        let (mut bytes, mut truncated) = (0, 0);
        while self.metas.len() < max {
            let Some(meta) = self.cursor.next(block, link, trust) else {
                // A packet is outside of the block, which the kernel never writes.
                self.counters.unreadable += u64::from(self.cursor.left);
                self.cursor.left = 0;
                break;
            };
            bytes += u64::from(meta.len);
            truncated += u64::from(meta.len < meta.wire_len);
            self.metas.push(meta);
        }
        self.counters.frames += self.metas.len() as u64;
        self.counters.bytes += bytes;
        self.counters.truncated += truncated;
    }

    /// Releases the batch, and the block after its last packet.
    fn give_back(&mut self) {
        self.metas.clear();
        let Some(ring) = &mut self.ring else { return };
        ring.reclaim();
        if self.reading && self.cursor.left == 0 {
            self.reading = false;
            ring.release();
        }
    }

    /// Waits for a block. Returns a change of the interface, or `Idle`, instead of one.
    #[cold]
    fn wait(&mut self, wait: Duration) -> Option<Received> {
        let Some(ring) = &self.ring else {
            std::thread::sleep(wait);
            return Some(self.look());
        };
        let polled = ring.socket.poll(wait);
        self.counters.count_poll(polled);
        match polled {
            Polled::Data | Polled::Signal => {}
            Polled::Timeout => {
                if !ring.ready() && (self.state != State::Up || self.looked.is_none_or(|l| l.elapsed() >= LOOK)) {
                    return Some(self.look());
                }
            }
            Polled::Error => {
                if ring.socket.take_error().is_some() {
                    self.counters.errors += 1;
                }
                if !ring.ready() {
                    let found = self.look();
                    if found == Received::Idle {
                        // Pause, so that an error without a cause does not start a busy loop.
                        std::thread::sleep(wait.min(Duration::from_millis(10)));
                    }
                    return Some(found);
                }
            }
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
        let here = match Interface::find(&self.name) {
            Ok(i) if self.ring.is_some() && i.index == self.interface.index => {
                return received(self.state.is_there(i.up));
            }
            Ok(i) if i.up => Some(i),
            _ => None,
        };
        if let Some(ring) = &self.ring {
            // Earlier packets are inspected first, those in a partly filled block too.
            if !ring.ready() {
                std::thread::sleep(self.settle());
            }
            if ring.ready() {
                self.looked = None;
                return Received::Idle;
            }
        }
        // The socket of a missing interface receives nothing any more.
        self.count();
        self.ring = None;
        self.reading = false;
        if let Some(interface) = here {
            self.interface = interface;
            self.sender = None;
            self.counters.reopened += 1;
            if self.open_ring().is_ok() {
                self.state = State::Up;
                return Received::Link(LinkChange::Back);
            }
        }
        received(self.state.is_gone(now))
    }
}

/// The parameters of a socket with a ring.
struct Opening<'a> {
    name: &'a str,
    settings: &'a Settings,
    interface: &'a Interface,
    /// The number of the fan-out group, if the kernel has already given one.
    group: Option<u16>,
    ignore_outgoing: bool,
}

/// Makes a fan-out group select workers with our program.
fn choose(name: &str, socket: &Socket) -> Result<(), LiveError> {
    let what = "the program that distributes packets (cluster_ebpf) is not taken by the kernel";
    let purpose = Purpose { interface: name, needs: "CAP_BPF" };
    let program = Program::load(ProgramType::SocketFilter, "spread", &programs::spread()?)
        .map_err(|r| purpose.not_taken(what, r))?;
    let set = socket.set_int(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program.fd());
    set.map_err(|e| purpose.refused(what, e))
}

impl Opening<'_> {
    /// Opens a socket that rejects every packet, creates its ring, binds it to its interface and joins its group. Returns the
    /// group's number.
    fn open<R>(
        &self,
        ring: impl FnOnce(Socket) -> std::io::Result<R>,
        socket: impl Fn(&R) -> &Socket,
    ) -> Result<(R, Option<u16>), LiveError> {
        let name = self.name;
        let failed = |what| {
            move |source: std::io::Error| match source.raw_os_error() {
                Some(libc::EPERM) => LiveError::NotAllowed { interface: name.to_owned() },
                Some(libc::ENODEV) => LiveError::NoInterface(name.to_owned()),
                _ => LiveError::System { interface: name.to_owned(), what, source },
            }
        };
        let s = self.settings;
        let plain = Socket::new().map_err(failed("cannot open an AF_PACKET socket"))?;
        plain.attach(&NOTHING).map_err(failed("cannot attach a filter"))?;
        if s.buffer_size > 0 {
            let size = libc::c_int::try_from(s.buffer_size).unwrap_or(libc::c_int::MAX);
            plain
                .set_int(libc::SOL_SOCKET, libc::SO_RCVBUF, size)
                .map_err(failed("the receive buffer cannot be of that size (buffer-size)"))?;
        }
        let made = ring(plain).map_err(failed("there is no memory for a ring of that size (ring-size, block-size)"))?;
        let socket = socket(&made);
        if self.ignore_outgoing {
            socket
                .set_int(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
                .map_err(failed("cannot leave out what goes out (Linux 4.20 is needed)"))?;
        }
        if s.promiscuous && !self.interface.loopback {
            socket.promiscuous(self.interface.index).map_err(failed("cannot be made promiscuous"))?;
        }
        socket.bind(self.interface.index).map_err(failed("cannot be bound to"))?;
        let mut group = self.group;
        if let Some(f) = s.fanout {
            let mut kind = f.distribution.number();
            let flags = [
                (f.defrag, libc::PACKET_FANOUT_FLAG_DEFRAG),
                (f.rollover, libc::PACKET_FANOUT_FLAG_ROLLOVER),
                (self.ignore_outgoing, libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING),
            ];
            flags.iter().filter(|f| f.0).for_each(|f| kind |= f.1);
            let id = f.id.or(group);
            if id.is_none() {
                kind |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
            }
            let joined = socket.fan_out(id.unwrap_or(0), kind).map_err(failed(
                "cannot join its fan-out group (cluster-id, cluster-type): another interface or program may have a group of \
                 that number; before Linux 6.13 the interface must be up",
            ))?;
            if f.distribution == Distribution::Program {
                choose(name, socket)?;
            }
            group = Some(joined);
        }
        Ok((made, group))
    }
}

/// Puts the filter that is wanted in the place of the one that lets nothing in.
fn let_in(name: &str, socket: &Socket, program: Option<&[Raw]>) -> Result<(), LiveError> {
    let result = match program {
        Some(program) => socket.attach(program),
        None => socket.detach(),
    };
    result.map_err(|source| LiveError::System {
        interface: name.to_owned(),
        what: "cannot attach the filter (bpf-filter)",
        source,
    })
}

/// The same with the program that excludes flows which the kernel forwards, if there is one.
fn let_in_others(name: &str, socket: &Socket, but: Option<&SocketFilter>) -> Result<(), LiveError> {
    let Some(program) = but else { return let_in(name, socket, None) };
    socket.attach_loaded(program.fd()).map_err(|source| LiveError::System {
        interface: name.to_owned(),
        what: "cannot attach the program that leaves out bypassed flows (bypass)",
        source,
    })
}

/// Sends a passive source's answers out of its interface. The first answer opens the socket.
pub(crate) fn send_answers(
    decisions: &Decisions,
    interface: &Interface,
    sender: &mut Option<Sender>,
    counters: &mut LiveCounters,
) {
    for (_, frame) in decisions.answers() {
        if sender.is_none() {
            *sender = Sender::new(interface.index).ok();
        }
        let out = Out { frame, ..Out::default() };
        match sender.as_ref().map(|s| s.send(&[out])) {
            Some(done) if done.sent == 1 => counters.answers += 1,
            _ => counters.answer_errors += 1,
        }
    }
}

/// Rejects settings that the kernel would refuse without giving a reason.
fn check(name: &str, s: &Settings) -> Result<(), LiveError> {
    let bad = |setting, message: String| Err(LiveError::Setting { interface: name.to_owned(), setting, message });
    if s.block_size == 0 || !s.block_size.is_multiple_of(4096) {
        return bad("block-size", format!("{} bytes are not whole pages of 4096 bytes", s.block_size));
    }
    if s.blocks == 0 || u64::from(s.blocks) * u64::from(s.block_size) > u64::from(u32::MAX) + 1 {
        return bad("ring-size", format!("{} blocks of {} bytes are not 1 byte to 4 GiB", s.blocks, s.block_size));
    }
    if s.block_timeout == 0 || s.block_timeout > 10_000 {
        return bad("block-timeout", format!("{} is not 1 to 10000 milliseconds", s.block_timeout));
    }
    Ok(())
}

impl LiveSource for AfPacket {
    fn receive(&mut self, max: usize, wait: Duration) -> Received {
        self.give_back();
        if !self.reading {
            if !self.ring.as_ref().is_some_and(Ring::ready)
                && let Some(found) = self.wait(wait)
            {
                return found;
            }
            // A packet that did not fit leaves an empty block.
            for _ in 0..self.settings.blocks {
                let Some(ring) = self.ring.as_mut().filter(|r| r.ready()) else { return Received::Idle };
                self.cursor = Cursor::of(ring.block());
                if self.cursor.left > 0 {
                    self.reading = true;
                    break;
                }
                ring.release();
            }
            if let Some(change) = self.state.has_packets() {
                return Received::Link(change);
            }
        }
        self.take(max.max(1));
        if self.metas.is_empty() { Received::Idle } else { Received::Frames }
    }

    fn is_waiting(&self) -> bool {
        match &self.ring {
            Some(_) if self.reading && self.cursor.left > 0 => true,
            Some(ring) if self.reading => ring.is_next_ready(),
            Some(ring) => ring.ready(),
            None => false,
        }
    }

    fn batch(&self) -> Batch<'_> {
        let data = self.ring.as_ref().map_or(&[][..], Ring::block);
        Batch::live(data, &self.metas)
    }

    fn can_lend(&self) -> bool {
        // A batch of a part of the block would be lent with packets that are still to be read, and changed for that.
        self.reading && self.cursor.left == 0
    }

    fn lend(&mut self) -> Option<Lent> {
        if !self.can_lend() {
            return None;
        }
        let block = self.ring.as_mut()?.lend()?;
        self.reading = false;
        self.metas.clear();
        Some(block)
    }

    fn release(&mut self, decisions: &Decisions) {
        self.give_back();
        if !decisions.is_plain() {
            send_answers(decisions, &self.interface, &mut self.sender, &mut self.counters);
        }
    }

    fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn trust(&mut self) {
        self.settings.trust = Trust::Everybody;
    }

    fn start(&mut self) -> Result<(), LiveError> {
        self.started = true;
        self.let_in()
    }

    fn stop(&mut self) {
        self.started = false;
        if let Some(ring) = &self.ring {
            // If this fails, the socket accepts packets until it is closed.
            let _ = ring.socket.attach(&NOTHING);
        }
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(u64::from(self.settings.block_timeout) * 2 + 20)
    }

    fn counters(&mut self, _: usize) -> LiveCounters {
        self.count();
        self.counters
    }
}
