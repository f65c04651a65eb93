//! Plays a conversation: sends its packets through the engine to the host, and the answers back, and compares the bytes
//! that the application reads with the inspected ones.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use margay_engine::in_process::{Forwarded, InProcess};
use margay_packet::Time;

use crate::conversation::{Conversation, Opt, Role, Segment, Step, flag};
use crate::course::Course;
use crate::host::{FRAGMENT_SECONDS, HOST4, HOST6, Host, PORTS, plain};
use crate::packet::{self, Answer, ETHERNET, End, HostState};
use crate::seen::{Difference, How, Seen};
use crate::sys;

/// Where the engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Between sender and host: packets that it drops do not arrive.
    Inline,
    /// Beside them: it sees copies of the packets.
    Passive,
}

impl Mode {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Inline => "inline",
            Mode::Passive => "passive",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::Inline, Mode::Passive].into_iter().find(|m| m.name() == name)
    }
}

/// The shipped configuration with two changes: no outputs; hosts are Linux.
const YAML: &str = include_str!("../../../etc/margay.yaml");
const SETTINGS: &[&str] = &[
    "stats.enabled=no",
    "host-os-policy.windows.0=255.255.255.255",
    "host-os-policy.linux.0=0.0.0.0/0",
    "host-os-policy.linux.1=::/0",
    "classification-file=/dev/null",
    "reference-config-file=/dev/null",
    "threshold-file=/dev/null",
    // There is one flow at a time, so a small table is faster to initialise.
    "flow.hash-size=64",
    "flow.prealloc=1",
    "stream.reassembly.randomize-chunk-size=no",
];
/// Streams are inspected only if there are rules.
const RULES: &str = "alert tcp any any -> any any (msg:\"x\"; content:\"|00 01 02 03 04 05 06 07|\"; sid:1;)\n\
    alert udp any any -> any any (msg:\"y\"; content:\"|00 01 02 03 04 05 06 07|\"; sid:2;)\n";

/// Time between two packets, in microseconds.
const STEP: i64 = 50;
/// How long to wait until the host has forgotten fragments.
const HOST_WAITS: Duration = Duration::from_millis(FRAGMENT_SECONDS * 1000 + 200);
/// Most answers handled for one packet.
const ANSWERS: usize = 64;

/// A host behind the engine.
#[derive(Debug)]
pub struct Bench {
    host: Host,
    /// The engine. Passive, there is a second one, configured for applications that read urgent data in line.
    engines: Vec<InProcess>,
    mode: Mode,
    now: i64,
    /// Conversations played so far: each comes from another address or port.
    held: u64,
    buffer: Vec<u8>,
    frame: Vec<u8>,
    /// Whether to print each step.
    pub trace: bool,
}

/// The result of a conversation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Bytes that the application read.
    pub read: Vec<u8>,
    /// Bytes that were inspected on their way to the host.
    pub inspected: u64,
    /// Packets of the sender.
    pub packets: u64,
    /// Packets that the engine dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets that the engine forwarded with other bytes.
    pub replaced: u64,
    /// Events of the decoder and the stream engine.
    pub events: Vec<&'static str>,
    /// The first byte that the host read without inspection.
    pub difference: Option<Difference>,
    /// Whether there was a connection, or a datagram arrived.
    pub arrived: bool,
    /// Whether the application reads only now and then.
    pub lazy: bool,
    /// Whether the sender sent fragments of datagrams.
    pub datagrams: bool,
    /// Whether the sender paused, so that flows may have timed out.
    pub waits: bool,
    /// Where the stream begins that the application reads.
    pub first: i64,
    /// The sender's packets.
    pub course: Course,
}

/// A conversation in progress.
struct Talk<'a> {
    c: &'a Conversation,
    /// The next step.
    next: usize,
    sender: End,
    host: End,
    host_state: HostState,
    /// Whether the host has sent anything.
    answered: bool,
    stream: Option<TcpStream>,
    /// Whether the application's connection has ended or was reset.
    over: bool,
    checked: usize,
    urgent: bool,
    /// SYNs that reached the host: where their data begins, and how long it is.
    syns: Vec<(i64, i64)>,
    /// Where the stream begins that the application reads, once the host has answered a SYN.
    first: Option<i64>,
    base: u32,
    seen: Seen,
    /// Shift of the windows that the host offers.
    scale: u8,
    out: Outcome,
}

impl Bench {
    /// A host in a namespace of the calling thread, and an engine. `dir` is a folder that files may be written to.
    ///
    /// # Errors
    /// Describes what is missing.
    pub fn new(mode: Mode, host: Host, dir: &Path) -> Result<Bench, String> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let rules = dir.join("hosts.rules");
        std::fs::write(&rules, RULES).map_err(|e| format!("{}: {e}", rules.display()))?;
        let settings: Vec<String> = SETTINGS.iter().map(|s| (*s).to_owned()).collect();
        let make = |settings: &[String]| InProcess::new(YAML, settings, &rules, dir, mode == Mode::Inline);
        let mut engines = vec![make(&settings)?];
        if mode == Mode::Passive {
            engines.push(make(&[settings, vec!["stream.reassembly.urgent.policy=inline".to_owned()]].concat())?);
        }
        let (buffer, frame) = (vec![0; 1 << 16], Vec::with_capacity(1 << 16));
        // 2024-01-01.
        Ok(Bench { host, engines, mode, now: 1_704_067_200_000_000, held: 0, buffer, frame, trace: false })
    }

    /// Where the engine stands.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The engine for a conversation.
    fn engine(&mut self, c: &Conversation) -> &mut InProcess {
        let n = self.engines.len() - 1;
        &mut self.engines[if c.oob_inline { n } else { 0 }]
    }

    fn idle(&mut self) {
        for e in &mut self.engines {
            e.idle(Time(self.now));
        }
    }

    /// The sender's address and port. Many conversations share an address, but with fragments each has its own.
    fn sender(&mut self, c: &Conversation) -> End {
        let n = self.held;
        self.held += 1;
        let fragments = c.steps.iter().any(|s| match s {
            Step::Piece(_) => true,
            Step::Segment(s) => !s.pieces.is_empty(),
            _ => false,
        });
        if fragments && !c.steps.iter().any(|s| matches!(s, Step::Wait(_))) {
            // By then the engine has forgotten earlier fragments.
            self.now += 61_000_000;
        }
        let (host, port) = match (fragments, c.role) {
            (true, Role::Server) => ((1 << 20) + n % (2 << 20), 1024 + n % 50_000),
            (false, Role::Server) => (n / 50_000 % (1 << 20), 1024 + n % 50_000),
            (_, Role::Client) => ((3 << 20) + n % (1 << 19), 80),
        };
        let address = if c.v6 {
            IpAddr::from(Ipv6Addr::new(0xfd64, 0, (host >> 16) as u16, host as u16, 0, 0, 0, 1))
        } else {
            IpAddr::from(Ipv4Addr::from(0x0a40_0000 + host as u32))
        };
        (address, port as u16)
    }

    /// Plays a conversation.
    ///
    /// # Errors
    /// The host is gone.
    pub fn play(&mut self, c: &Conversation) -> io::Result<Outcome> {
        let mut all = self.play_all(std::slice::from_ref(c))?;
        Ok(all.pop().unwrap_or_default())
    }

    /// Plays conversations one after the other. Those that need real time to pass wait for it together.
    ///
    /// # Errors
    /// The host is gone.
    pub fn play_all(&mut self, all: &[Conversation]) -> io::Result<Vec<Outcome>> {
        let mut waiting = Vec::new();
        let mut done: Vec<Option<Outcome>> = Vec::new();
        for (i, c) in all.iter().enumerate() {
            let mut t = self.begin(c)?;
            let waits = self.run(&mut t)?;
            if waits {
                waiting.push((i, t));
                done.push(None);
            } else {
                done.push(Some(self.end(t)?));
            }
        }
        while !waiting.is_empty() {
            std::thread::sleep(HOST_WAITS);
            let longest = waiting.iter().filter_map(|(_, t)| t.waits()).max().unwrap_or(0);
            self.now += i64::from(longest) * 1_000_000;
            self.idle();
            for (i, mut t) in std::mem::take(&mut waiting) {
                t.next += 1;
                if self.run(&mut t)? {
                    waiting.push((i, t));
                } else if let Some(place) = done.get_mut(i) {
                    *place = Some(self.end(t)?);
                }
            }
        }
        Ok(done.into_iter().flatten().collect())
    }

    fn begin<'c>(&mut self, c: &'c Conversation) -> io::Result<Talk<'c>> {
        let sender = self.sender(c);
        let address = if c.v6 { IpAddr::from(HOST6) } else { IpAddr::from(HOST4) };
        let port = PORTS.get(c.port).copied().unwrap_or(PORTS[0]);
        self.engine(c).clear_witness();
        let urgent = |s: &Step| matches!(s, Step::Segment(s) if s.has(flag::URG));
        let waits = |s: &Step| matches!(s, Step::Wait(_));
        let mut t = Talk {
            c,
            next: 0,
            sender,
            host: (address, port),
            host_state: HostState::default(),
            answered: false,
            stream: None,
            over: false,
            checked: 0,
            urgent: c.steps.iter().any(urgent),
            syns: Vec::new(),
            first: None,
            base: c.isn.wrapping_mul(0x9e37_79b1) >> 8,
            seen: Seen::new(
                c.steps.iter().any(waits) || begins_anew(&c.steps),
                c.steps.iter().filter(|s| urgent(s)).count(),
            ),
            scale: 0,
            out: Outcome::default(),
        };
        if c.role == Role::Client {
            t.stream = Some(sys::connect(SocketAddr::from(sender))?);
            t.prepare(c);
            self.answers(&mut t)?;
        }
        Ok(t)
    }

    /// Runs until the end, or until real time must pass. Returns whether it must.
    fn run(&mut self, t: &mut Talk<'_>) -> io::Result<bool> {
        while let Some(step) = t.c.steps.get(t.next).filter(|_| t.out.difference.is_none()) {
            if self.trace {
                println!("{step}");
            }
            if t.waits().is_some() {
                return Ok(true);
            }
            self.step(t, step)?;
            t.next += 1;
        }
        Ok(false)
    }

    fn end(&mut self, mut t: Talk<'_>) -> io::Result<Outcome> {
        self.read(&mut t, true);
        self.engine_ends(&mut t);
        self.close(&mut t)?;
        let Talk { c, seen, mut out, first, .. } = t;
        out.inspected = seen.inspected();
        out.events = seen.events;
        out.lazy = c.lazy;
        out.datagrams = c.steps.iter().any(|s| matches!(s, Step::Piece(_)));
        out.waits = c.steps.iter().any(|s| matches!(s, Step::Wait(_)));
        out.first = first.unwrap_or(0);
        Ok(out)
    }

    fn step(&mut self, t: &mut Talk<'_>, step: &Step) -> io::Result<()> {
        match step {
            Step::Segment(s) => self.segment(t, s)?,
            Step::Piece(p) => {
                let mut frames = Vec::new();
                packet::piece(p, (t.sender, t.host), t.base, &mut |f, arrives| frames.push((f.to_vec(), arrives)));
                for (frame, arrives) in frames {
                    self.deliver(t, &frame, arrives)?;
                    self.datagrams(t);
                }
                return Ok(());
            }
            Step::Read => self.read(t, true),
            Step::Write(n) => {
                if let Some(s) = &mut t.stream {
                    // Without room, or after the connection's end, nothing is written.
                    let _ = io::Write::write(s, &vec![b'.'; usize::from(*n)]);
                }
                self.answers(t)?;
            }
            Step::Shutdown => {
                if let Some(s) = &t.stream {
                    let _ = s.shutdown(std::net::Shutdown::Write);
                }
                self.answers(t)?;
            }
            Step::Wait(seconds) => {
                self.now += i64::from(*seconds) * 1_000_000;
                self.idle();
                self.note(t);
            }
        }
        if t.c.lazy {
            self.accept(t);
        } else {
            self.read(t, false);
        }
        Ok(())
    }

    fn segment(&mut self, t: &mut Talk<'_>, s: &Segment) -> io::Result<()> {
        let mut frames = Vec::new();
        packet::segment(s, (t.sender, t.host), t.c.isn, t.c.http, t.host_state, t.base, &mut |f, arrives| {
            frames.push((f.to_vec(), arrives));
        });
        // A listening host discards a SYN with a FIN; one that opens the connection does not.
        let other = if t.c.role == Role::Client { flag::RST } else { flag::FIN | flag::RST };
        if s.has(flag::SYN) && s.flags & other == 0 && !s.lost {
            t.syns.push((s.at + 1, s.len.into()));
        }
        t.out.course.note(s);
        for (frame, arrives) in frames {
            self.deliver(t, &frame, arrives)?;
        }
        Ok(())
    }

    /// Sends a frame of the sender through the engine to the host, then the host's answers back.
    fn deliver(&mut self, t: &mut Talk<'_>, frame: &[u8], arrives: bool) -> io::Result<()> {
        self.now += STEP;
        t.out.packets += 1;
        let n = if t.c.oob_inline { self.engines.len() - 1 } else { 0 };
        let forwarded = self.engines[n].frame(frame, Time(self.now));
        if self.trace {
            match forwarded {
                Forwarded::Replaced(_) => println!("  replaced"),
                other => println!("  {other:?}"),
            }
        }
        match forwarded {
            Forwarded::AsIs if arrives => self.host.send(&frame[ETHERNET..])?,
            Forwarded::Replaced(other) => {
                t.out.replaced += 1;
                if arrives {
                    self.host.send(&other[ETHERNET..])?;
                }
            }
            Forwarded::Dropped(why) => *t.out.dropped.entry(why).or_default() += 1,
            Forwarded::AsIs => {}
        }
        self.note(t);
        self.answers(t)
    }

    /// Sends the host's packets through the engine to the sender.
    fn answers(&mut self, t: &mut Talk<'_>) -> io::Result<()> {
        for _ in 0..ANSWERS {
            let Some(packet) = self.host.sent()? else { break };
            let Some(a) = packet::answer(packet) else { continue };
            if t.c.role == Role::Client && t.host.1 == PORTS[t.c.port.min(2)] && a.to == t.sender.0 {
                t.host.1 = a.ports.0;
            }
            if a.to != t.sender.0 || a.ports != (t.host.1, t.sender.1) {
                // It belongs to an earlier conversation.
                continue;
            }
            packet::framed(packet, &mut self.frame);
            self.now += STEP;
            let n = if t.c.oob_inline { self.engines.len() - 1 } else { 0 };
            let passed = !matches!(self.engines[n].frame(&self.frame, Time(self.now)), Forwarded::Dropped(_));
            self.note(t);
            if self.trace {
                let seq = a.ack.wrapping_sub(t.c.isn.wrapping_add(1)) as i32;
                println!("    answer: flags {:#x} acknowledges {seq} window {} passed {passed}", a.flags, a.window);
            }
            if (t.first.is_none() || a.flags & flag::SYN != 0 && t.stream.is_none())
                && a.flags & (flag::ACK | flag::RST) == flag::ACK
            {
                let ack = i64::from(a.ack.wrapping_sub(t.c.isn.wrapping_add(1)) as i32);
                t.first = t.syns.iter().rev().find(|s| s.0 == ack || s.0 + s.1 == ack).map(|s| s.0);
            }
            t.note_offer(&a);
            if passed && a.flags & flag::RST == 0 {
                if !t.answered || a.flags & flag::SYN != 0 || (a.end.wrapping_sub(t.host_state.next) as i32) > 0 {
                    t.host_state.next = a.end;
                }
                t.answered = true;
                t.host_state.timestamp = a.timestamp.unwrap_or(t.host_state.timestamp);
            }
        }
        Ok(())
    }

    fn note(&mut self, t: &mut Talk<'_>) {
        let trace = self.trace;
        let engine = self.engine(t.c);
        if let Some(w) = engine.witness().filter(|w| !w.records().is_empty()) {
            if trace {
                w.records().iter().for_each(|r| println!("      flow {} from port {}: {:?}", r.flow, r.from.1, r.what));
            }
            t.seen.note(w, t.sender, t.host, t.c.isn);
            engine.clear_witness();
        }
    }

    /// The application accepts the sender's connection.
    fn accept(&mut self, t: &mut Talk<'_>) {
        if t.stream.is_none() && t.c.role == Role::Server {
            while let Some((stream, from)) = self.host.accept(t.c.port.min(2)) {
                if plain(from) == t.sender {
                    t.stream = Some(stream);
                    t.prepare(t.c);
                    break;
                }
                // It belongs to an earlier conversation.
                let _ = sys::close_resets(stream.as_fd());
            }
        }
    }

    /// The application reads. Inline, these bytes must be inspected by now.
    fn read(&mut self, t: &mut Talk<'_>, all: bool) {
        self.accept(t);
        let Some(stream) = t.stream.as_ref().filter(|_| !t.over) else { return };
        loop {
            match sys::receive(stream.as_fd(), &mut self.buffer) {
                Ok(Some(0)) => {
                    t.over = true;
                    break;
                }
                Ok(Some(n)) => {
                    if self.trace {
                        println!("    read: {}", self.buffer[..n].escape_ascii());
                    }
                    t.out.read.extend_from_slice(&self.buffer[..n]);
                    t.out.arrived = true;
                    if !(all || t.urgent || n == self.buffer.len()) {
                        break;
                    }
                }
                Ok(None) => break,
                // The connection is not established yet.
                Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => break,
                Err(_) => {
                    t.over = true;
                    break;
                }
            }
        }
        if self.mode == Mode::Inline {
            t.check();
        }
    }

    /// The application reads datagrams, which must be inspected by now.
    fn datagrams(&mut self, t: &mut Talk<'_>) {
        while let Some((n, from)) = self.host.datagram(&mut self.buffer) {
            if plain(from) != t.sender {
                continue;
            }
            t.out.arrived = true;
            let data = &self.buffer[..n];
            let before = t.out.read.len();
            t.out.read.extend_from_slice(data);
            if !t.seen.has_datagram(data) && t.out.difference.is_none() {
                t.out.difference = Some(Difference { at: before, how: How::Unseen });
            }
        }
    }

    /// Ends the engine's flows. Passive, everything that the host read must be inspected by then.
    fn engine_ends(&mut self, t: &mut Talk<'_>) {
        self.engine(t.c).finish();
        self.note(t);
        if self.mode == Mode::Passive && t.stream.is_some() {
            t.checked = 0;
            t.check();
        }
    }

    /// Removes what the conversation left on the host.
    fn close(&mut self, t: &mut Talk<'_>) -> io::Result<()> {
        match t.stream.take() {
            Some(stream) => {
                let _ = sys::close_resets(stream.as_fd());
            }
            None => {
                // The host may have a connection that is not established or not accepted yet.
                let s = Segment { flags: flag::RST, ..Segment::default() };
                let mut frames = Vec::new();
                packet::segment(&s, (t.sender, t.host), t.c.isn, false, t.host_state, 0, &mut |f, _| {
                    frames.push(f.to_vec());
                });
                for f in frames {
                    self.host.send(&f[ETHERNET..])?;
                }
            }
        }
        while self.host.sent()?.is_some() {}
        Ok(())
    }
}

/// Whether the engine may see a new connection where the host continues the old one: a reset did not arrive, and a SYN
/// follows.
fn begins_anew(steps: &[Step]) -> bool {
    let has = |s: &Step, bit: u8, lost: bool| matches!(s, Step::Segment(s) if s.has(bit) && (s.lost || !lost));
    let reset = steps.iter().position(|s| has(s, flag::RST, true));
    reset.is_some_and(|at| steps[at..].iter().any(|s| has(s, flag::SYN, false)))
}

impl Talk<'_> {
    /// Seconds of the next step's wait, if the host must forget fragments during it.
    fn waits(&self) -> Option<u32> {
        let forgets = if self.c.v6 { 60 } else { 30 };
        let fragments = self.c.steps.iter().any(|s| matches!(s, Step::Piece(_)));
        match self.c.steps.get(self.next) {
            Some(Step::Wait(n)) if fragments && *n > forgets => Some(*n),
            _ => None,
        }
    }

    /// Records the window that an answer offers.
    fn note_offer(&mut self, a: &Answer) {
        if a.flags & flag::SYN != 0 {
            // Both sides scale, or none (RFC 7323 section 2.2). A SYN/ACK of the host already takes this into account.
            let scales =
                |s: &Step| matches!(s, Step::Segment(s) if s.options.iter().any(|o| matches!(o, Opt::Scale(_))));
            let both = a.flags & flag::ACK != 0 || self.c.steps.iter().any(scales);
            self.scale = a.scale.filter(|_| both).unwrap_or(0);
        }
        if a.flags & (flag::ACK | flag::RST) == flag::ACK {
            let shift = if a.flags & flag::SYN != 0 { 0 } else { self.scale };
            let place = i64::from(a.ack.wrapping_sub(self.c.isn.wrapping_add(1)) as i32);
            self.out.course.offered(place, i64::from(a.window) << shift);
        }
    }

    fn prepare(&mut self, c: &Conversation) {
        if let Some(s) = &self.stream {
            // With fast open, a connection is accepted before its handshake is complete; a write would block until
            // then.
            let _ = s.set_nonblocking(true);
        }
        if let Some(s) = self.stream.as_ref().filter(|_| c.oob_inline) {
            let _ = sys::set(s.as_fd(), libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
        }
    }

    fn check(&mut self) {
        if self.out.difference.is_some() {
            return;
        }
        match self.seen.check(&self.out.read, self.checked, self.first.unwrap_or(0), self.c.http) {
            Ok(()) => self.checked = self.out.read.len(),
            Err(d) => self.out.difference = Some(d),
        }
    }
}
