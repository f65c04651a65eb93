//! The stream engine: takes packets into sessions.

use margay_flow::{Direction, FlowState};
use margay_packet::tcp::{TcpHeader, TcpOptions, flag as tcp};
use margay_packet::{L4, Packet, Time};

use crate::config::{StreamConfig, UrgentPolicy};
use crate::counters::StreamCounters;
use crate::doubt::{self, Spare};
use crate::event::{StreamEvent, StreamEvents};
use crate::handshake::restart;
use crate::peer::{Assembly, peer_flag};
use crate::resume::Remembered;
use crate::session::{Queued, TcpSession, TcpState, flag};

/// A condition that a policy of the configuration decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exception {
    /// A packet of a connection whose start was not seen (`stream.midstream-policy`). Where sessions are picked up in the
    /// middle this is the packet that one was picked up from, else every packet but resets.
    Midstream,
    /// No memory for the session (`stream.memcap-policy`).
    SessionMemcap,
    /// No memory for its data (`stream.reassembly.memcap-policy`).
    ReassemblyMemcap,
}

/// What a packet did to its session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// What was wrong.
    pub events: StreamEvents,
    /// The flow's new state, where it changed.
    pub state: Option<FlowState>,
    /// Whether the packet belongs to the session: it passed all checks.
    pub accepted: bool,
    /// Whether its payload was taken into the stream, or was there already: inspecting the stream covers it.
    pub in_stream: bool,
    /// Directions, by [`Direction::index`], whose readers should be asked: [`TcpSession::app_data`],
    /// [`TcpSession::raw_chunk`].
    pub new_data: [bool; 2],
    /// The connection ended: readers should get all there is.
    pub flush: bool,
    /// The packet opens a new connection on a flow whose connection is over. Nothing was done: replace the flow
    /// ([`margay_flow::FlowTable::replace`]) and process the packet again, with its session.
    pub reuse: bool,
    /// The session was picked up from the server's side: turn the flow round ([`margay_flow::FlowTable::swap`]). This
    /// packet goes to the client.
    pub swap: bool,
    /// What was read of a direction's stream was not its beginning, or the connection goes on that was taken for closed: the
    /// application layer has to begin anew.
    pub restart: bool,
    /// As with `restart`, and what was read was data of a SYN that the server did not take: this is what was said.
    pub untaken: bool,
    /// A policy has to decide.
    pub exception: Option<Exception>,
    /// Inline: drop the packet.
    pub drop: bool,
    /// It is dropped for its urgent data (`stream.reassembly.urgent.policy`).
    pub drop_urgent: bool,
    /// Inline: payload overlaps with different data of before; see [`TcpSession::rewrite`].
    pub rewrite: bool,
    /// Inline: the packet repeats what its receiver has, and cannot be compared with that any more. It may go on without its payload:
    /// it is answered with an acknowledgment.
    pub without_data: bool,
    /// Inline: it goes on without its urgent pointer, so that what it points at is data like any other.
    pub clear_urgent: bool,
    /// A direction reached the depth, and the configuration says that such flows are bypassed.
    pub bypass: bool,
    /// The checksum is wrong; the packet was kept out.
    pub bad_checksum: bool,
    /// Why a host may discard the packet's data.
    pub(crate) doubt: u8,
}

/// Bytes of a signature option (RFC 2385).
const SIGNATURE: usize = 18;

/// What the checks need to know of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    /// TTL or hop limit; 0 where there is none.
    pub(crate) ttl: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) options: &'a TcpOptions,
    pub(crate) time: Time,
    /// Index of the sender: 0 is the client.
    pub(crate) from: usize,
}

impl<'a> Segment<'a> {
    pub(crate) fn new(header: &TcpHeader<'_>, packet: &'a Packet<'a>, direction: Direction) -> Self {
        Segment {
            flags: header.flags(),
            seq: header.seq(),
            ack: header.ack(),
            window: header.window(),
            urgent: header.urgent(),
            ttl: packet.ttl().unwrap_or(0),
            payload: packet.payload(),
            packet,
            options: &packet.tcp_options,
            time: packet.time,
            from: direction.index(),
        }
    }
    /// Whether a host may discard it for its headers: it has options that cannot be read, where there is room for a signature, or the
    /// IPv4 header's checksum is wrong.
    pub(crate) fn is_broken(&self, checksums: bool) -> bool {
        self.packet.invalid && self.hides_signature() || checksums && self.packet.ipv4_checksum_ok() == Some(false)
    }
    /// The options of the header, unread.
    pub(crate) fn option_bytes(&self) -> &'a [u8] {
        match self.packet.l4 {
            L4::Tcp { header_len, .. } => self.packet.l4_bytes().get(20..usize::from(header_len)).unwrap_or(&[]),
            _ => &[],
        }
    }
    /// Whether an option that cannot be read may be followed by a signature: Linux looks for one as long as there is room for it, and
    /// discards the segment where it comes to such an option.
    #[cold]
    fn hides_signature(&self) -> bool {
        let mut options = self.option_bytes();
        while let [kind, rest @ ..] = options
            && options.len() >= SIGNATURE
        {
            options = match (*kind, rest.first().map(|n| usize::from(*n))) {
                (0, _) => return false,
                (1, _) => rest,
                (19, Some(len)) if len != SIGNATURE => return true,
                (29, Some(len)) if len <= 4 => return true,
                (_, Some(len)) if len >= 2 && len <= options.len() => &options[len..],
                _ => return true,
            };
        }
        false
    }
    pub(crate) const fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }
    pub(crate) const fn len(&self) -> u32 {
        self.payload.len() as u32
    }
    /// One past the last byte of data.
    pub(crate) const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload.len() as u32)
    }
    pub(crate) const fn to(&self) -> usize {
        1 - self.from
    }
}

/// Follows TCP sessions. One for each worker.
#[derive(Debug)]
pub struct StreamEngine {
    pub(crate) config: StreamConfig,
    pub(crate) remembered: Remembered,
    /// What was counted.
    pub counters: StreamCounters,
}

impl StreamEngine {
    /// An engine with nothing seen yet.
    pub fn new(config: StreamConfig) -> Self {
        let remembered = Remembered::new(config.remembered);
        StreamEngine { config, remembered, counters: StreamCounters::default() }
    }

    /// The settings.
    pub const fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Changes the limits of memory, in bytes, for sessions and for their data; 0 means no limit. What there is stays.
    pub fn set_memcaps(&mut self, sessions: u64, data: u64) {
        (self.config.memcap, self.config.reassembly_memcap) = (sessions, data);
    }

    /// Takes a TCP packet of a flow into its session, which it makes where the packet starts one. `fresh` says whether
    /// this is the flow's first packet. Packets that are not TCP do nothing.
    pub fn process(
        &mut self,
        session: &mut Option<Box<TcpSession>>,
        packet: &Packet<'_>,
        direction: Direction,
        fresh: bool,
    ) -> Outcome {
        let mut out = Outcome::default();
        let Some(header) = packet.tcp() else { return out };
        let mut s = Segment::new(&header, packet, direction);
        let opens = s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN;
        let broken = || self.config.checksum_validation && packet.l4_checksum_ok() == Some(false);
        let reuses = match session {
            Some(session) => is_reuse(session, &s),
            None => opens && !fresh,
        };
        // A host discards it.
        if reuses && !broken() {
            out.reuse = true;
            return out;
        }
        match s.flags & (tcp::SYN | tcp::ACK) {
            tcp::SYN => self.counters.syn += 1,
            f if f == tcp::SYN | tcp::ACK => self.counters.synack += 1,
            _ => {}
        }
        if s.has(tcp::RST) {
            self.counters.rst += 1;
        }
        if s.has(tcp::URG) {
            self.counters.urg += 1;
        }
        if broken() {
            self.counters.invalid_checksum += 1;
            out.bad_checksum = true;
            return out;
        }
        if !s.has(tcp::ACK) && s.ack != 0 {
            self.event(&mut out, StreamEvent::PktBrokenAck);
        }
        if s.has(tcp::URG) && self.config.inline {
            match self.config.urgent {
                UrgentPolicy::Drop => {
                    (out.drop, out.drop_urgent) = (true, true);
                    return out;
                }
                UrgentPolicy::Clear => {
                    out.clear_urgent = true;
                    s.flags &= !tcp::URG;
                }
                UrgentPolicy::Oob | UrgentPolicy::Inline | UrgentPolicy::Gap => {}
            }
        }
        match session {
            Some(session) => {
                let before = session.state;
                session.peers[s.from].tcp_flags |= s.flags;
                out.accepted = self.existing(session, &s, &mut out);
                if out.accepted {
                    self.after(session, &s, &mut out);
                } else if self.config.inline && self.config.drop_invalid {
                    self.reject(session, &s, &mut out);
                }
                if out.restart {
                    session.flags &= !flag::APP_OFF;
                }
                if session.state != before {
                    out.state = Some(session.state.flow_state());
                    out.flush |= session.state == TcpState::Closed;
                }
            }
            None => self.first(session, packet, &s, &mut out),
        }
        out
    }

    /// Inline: what becomes of a packet that does not fit its session.
    fn reject(&self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        if !self.config.spare_harmless {
            out.drop |= !out.events.is_empty() || doubt::discarded(out.doubt);
            return;
        }
        // What is merely not understood in this state is let through; but not data: a host may take it that knows nothing of the
        // reset or the end that was seen here, or that has another beginning of the connection.
        if !s.payload.is_empty() || !out.events.is_empty() {
            match self.spare(session, s) {
                Spare::Passes => {}
                Spare::WithoutData => out.without_data = true,
                Spare::No => out.drop = true,
            }
        }
    }

    /// Makes the session of a new connection whose SYN came on the flow of `old`, and that the server answers with `packet`
    /// ([`Outcome::reuse`] of a packet to the client): the packet is to be processed with it. The flow is that of the client.
    pub fn open_answered(&mut self, old: &TcpSession, packet: &Packet<'_>) -> Option<Box<TcpSession>> {
        let header = packet.tcp()?;
        let syn = opens_answered(old, &Segment::new(&header, packet, Direction::ToClient))?;
        let mut new = self.create(packet, &mut Outcome::default())?;
        let [client, server] = &mut new.peers;
        std::mem::swap(&mut client.policy, &mut server.policy);
        client.tcp_flags = tcp::SYN;
        restart(&mut self.counters, &mut new, &syn);
        new.state = TcpState::SynSent;
        Some(new)
    }

    /// A session ends: its memory is no longer counted.
    pub fn end(&mut self, session: &TcpSession) {
        self.counters.active_sessions = self.counters.active_sessions.saturating_sub(1);
        self.counters.memuse = self.counters.memuse.saturating_sub(Self::SESSION_SIZE);
        for p in &session.peers {
            if let Some(d) = &p.data {
                self.counters.reassembly_memuse = self.counters.reassembly_memuse.saturating_sub(d.accounted);
            }
        }
    }

    /// A session goes on at another worker, or comes from there (`enter`): its memory is counted there.
    pub fn moved(&mut self, session: &TcpSession, enter: bool) {
        let data = session.peers.iter().filter_map(|p| p.data.as_ref()).map(|d| d.accounted).sum();
        let c = &mut self.counters;
        let add = |total: &mut u64, n: u64| *total = if enter { *total + n } else { total.saturating_sub(n) };
        add(&mut c.active_sessions, 1);
        add(&mut c.memuse, Self::SESSION_SIZE);
        add(&mut c.reassembly_memuse, data);
    }

    /// Counts the memory of a session's data again, after its readers consumed some.
    #[inline]
    pub fn account(&mut self, session: &mut TcpSession) {
        // What took memory was accounted for when it did.
        if std::mem::take(&mut session.freed) {
            self.account_anew(session);
        }
    }

    fn account_anew(&mut self, session: &mut TcpSession) {
        for p in &mut session.peers {
            if let Some(d) = &mut p.data {
                account(&mut self.counters, d);
            }
        }
    }

    /// Bytes that a session without data takes of `stream.memcap`.
    pub const SESSION_SIZE: u64 = size_of::<TcpSession>() as u64;

    pub(crate) fn event(&mut self, out: &mut Outcome, e: StreamEvent) {
        self.counters.event(e);
        out.events.push(e);
    }

    /// Makes a session, if memory allows.
    pub(crate) fn create(&mut self, packet: &Packet<'_>, out: &mut Outcome) -> Option<Box<TcpSession>> {
        if self.config.memcap != 0 && self.counters.memuse + Self::SESSION_SIZE > self.config.memcap {
            self.counters.ssn_memcap_drop += 1;
            out.exception = Some(Exception::SessionMemcap);
            return None;
        }
        self.counters.memuse += Self::SESSION_SIZE;
        self.counters.sessions += 1;
        self.counters.active_sessions += 1;
        self.counters.ssn_from_pool += 1;
        let mut session = Box::<TcpSession>::default();
        // Data that goes to a host is put together as that host does.
        session.peers[0].policy = self.config.os_policies.of(packet.dst);
        session.peers[1].policy = self.config.os_policies.of(packet.src);
        if self.config.inline {
            session.flags |= flag::INLINE;
        }
        if !self.config.raw {
            session.flags |= flag::RAW_OFF;
        }
        Some(session)
    }
}

/// Whether a packet opens a new connection on a session that is over; or once more, without data, on one whose server did
/// not take the data of the first SYN (RFC 7413 section 4.1.3.1).
fn is_reuse(session: &TcpSession, s: &Segment<'_>) -> bool {
    if !s.has(tcp::SYN) {
        return false;
    }
    if opens_answered(session, s).is_some() {
        return true;
    }
    if s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) != tcp::SYN {
        return false;
    }
    let plainly = s.from == 0 && s.payload.is_empty() && s.options.fast_open.is_none();
    // It has to be the SYN that the server answered: to another one it says so, and goes on.
    let same = s.seq == session.peers[0].isn;
    if plainly && same && session.state == TcpState::SynRecv && session.flags & flag::DATA_IGNORED != 0 {
        return true;
    }
    // It was picked up from a SYN/ACK that nobody asked for, and here is who opens it.
    if session.state == TcpState::SynRecv && session.flags & flag::MIDSTREAM != 0 && s.from == 1 {
        return true;
    }
    let own = &session.peers[s.from];
    // After a reset the same number begins anew.
    // The server opens another one once it has the client's FIN, in its place; before that it says so by its answer.
    let client = &session.peers[0];
    let ended = crate::seq::geq(client.last_ack, client.next_seq) && !client.has(peer_flag::PAST_FIN);
    let over = (session.state == TcpState::Closed
        || s.from == 0 && ended && matches!(session.state, TcpState::TimeWait | TcpState::LastAck))
        && (s.seq != own.isn || !session.inline() && session.peers.iter().any(|p| p.has(peer_flag::RESET)));
    // Inline its end may not have arrived. Where the other side was heard, it says so itself: by a reset, or by its answer.
    let other = &session.peers[s.to()];
    over && (!session.inline() || other.has(peer_flag::RESET) || other.tcp_flags == 0)
}

/// The SYN of a new connection that the server answers with this packet, while the one before is not over as far as was seen. A server
/// does so only where that one is over for it.
fn opens_answered(session: &TcpSession, s: &Segment<'_>) -> Option<Queued> {
    let answers = s.from == 1
        && s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN | tcp::ACK
        && session.state >= TcpState::Established
        && s.seq != session.peers[1].isn;
    let mut syns = session.queue.iter().filter(|q| !q.syn_ack);
    syns.find(|q| answers && s.ack == q.seq.wrapping_add(1)).copied()
}

pub(crate) fn account(counters: &mut StreamCounters, d: &mut Assembly) {
    let now = d.buffer.memory() + size_of::<Assembly>() as u64;
    counters.reassembly_memuse = (counters.reassembly_memuse + now).saturating_sub(d.accounted);
    d.accounted = now;
}
