//! The stream engine: processes packets into sessions.

mod data;
mod doubt;
mod established;
mod handshake;
mod resume;
mod states;
mod timestamps;

use margay_flow::{Direction, FlowState};
use margay_packet::tcp::{TcpHeader, TcpOptions, flag as tcp};
use margay_packet::{L4, Packet, Time};

use crate::config::{StreamConfig, UrgentPolicy};
use crate::counters::StreamCounters;
use crate::event::{StreamEvent, StreamEvents};
use crate::peer::{Assembly, Peer, peer_flag};
use crate::session::{Queued, TcpSession, TcpState, flag};

use doubt::Spare;
use handshake::restart;
pub use resume::FlowPrint;
use resume::Remembered;
use states::repeats_refused;

/// A condition for which the configuration has a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exception {
    /// A packet of a connection whose start was not seen (`stream.midstream-policy`). With midstream pickup this is the
    /// packet that a session was picked up from, otherwise every packet except resets.
    Midstream,
    /// No memory for the session (`stream.memcap-policy`).
    SessionMemcap,
    /// No memory for its data (`stream.reassembly.memcap-policy`).
    ReassemblyMemcap,
}

/// The effect of a packet on its session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Anomalies of the packet.
    pub events: StreamEvents,
    /// The flow's new state, if it changed.
    pub state: Option<FlowState>,
    /// Whether the packet belongs to the session, which means it passed all checks.
    pub accepted: bool,
    /// Whether the stream has the payload, newly or from before, so that inspecting the stream covers it.
    pub in_stream: bool,
    /// Directions, by [`Direction::index`], with data to read: call [`TcpSession::app_data`] and
    /// [`TcpSession::raw_chunk`].
    pub new_data: [bool; 2],
    /// The connection ended: readers should take all remaining data.
    pub flush: bool,
    /// The packet opens a new connection on the flow of a finished one. It was not processed: replace the flow
    /// ([`margay_flow::FlowTable::replace`]) and process the packet again with the new flow's session.
    pub reuse: bool,
    /// The session was picked up from the server's side: swap the flow's ends ([`margay_flow::FlowTable::swap`]). This
    /// packet goes to the client.
    pub swap: bool,
    /// The application layer must restart: the data read so far was not the beginning of the stream, or a connection
    /// that counted as closed continues.
    pub restart: bool,
    /// The application layer must restart, because it read data of a SYN or SYN/ACK that the other side did not accept.
    pub untaken: bool,
    /// The configured policy for this condition must decide.
    pub exception: Option<Exception>,
    /// Inline: whether to drop the packet.
    pub drop: bool,
    /// Whether the drop is due to urgent data (`stream.reassembly.urgent.policy`).
    pub drop_urgent: bool,
    /// Inline: the payload differs from earlier data in the same place; see [`TcpSession::rewrite`].
    pub rewrite: bool,
    /// Inline: the packet repeats data that its receiver has and that can no longer be compared. It may pass without its
    /// payload, and the receiver answers with an acknowledgment.
    pub without_data: bool,
    /// Inline: the packet passes without its urgent pointer, so that its urgent byte becomes ordinary data.
    pub clear_urgent: bool,
    /// A direction reached the depth, and the configuration bypasses such flows.
    pub bypass: bool,
    /// The checksum is wrong, so the packet was ignored.
    pub bad_checksum: bool,
    /// Reasons why a host may discard the packet's data.
    pub(crate) doubt: u8,
}

/// Length of a signature option (RFC 2385) in bytes.
const SIGNATURE: usize = 18;

/// The facts about a packet that checks need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    /// TTL or hop limit; 0 if there is none.
    pub(crate) ttl: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) options: &'a TcpOptions,
    pub(crate) time: Time,
    /// Index of the sender; 0 is the client.
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
    /// Whether a host may discard the segment because of its headers: unreadable options that leave room for a
    /// signature, or a wrong IPv4 header checksum.
    pub(crate) fn is_broken(&self, checksums: bool) -> bool {
        self.packet.invalid && self.hides_signature() || checksums && self.packet.ipv4_checksum_ok() == Some(false)
    }
    /// The raw bytes of the header's options.
    pub(crate) fn option_bytes(&self) -> &'a [u8] {
        match self.packet.l4 {
            L4::Tcp { header_len, .. } => self.packet.l4_bytes().get(20..usize::from(header_len)).unwrap_or(&[]),
            _ => &[],
        }
    }
    /// Whether a signature may follow an unreadable option. Linux looks for a signature as long as there is room for
    /// one, and discards the segment if it meets an unreadable option.
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

/// Tracks TCP sessions. One for each worker.
#[derive(Debug)]
pub struct StreamEngine {
    pub(crate) config: StreamConfig,
    pub(crate) remembered: Remembered,
    /// Inline: the number of the SYN that opens a connection in place of one that its sender reset.
    pub(crate) after_reset: Option<u32>,
    /// Counters.
    pub counters: StreamCounters,
}

impl StreamEngine {
    /// An engine without sessions.
    pub fn new(config: StreamConfig) -> Self {
        let remembered = Remembered::new(config.remembered);
        StreamEngine { config, remembered, after_reset: None, counters: StreamCounters::default() }
    }

    /// The settings.
    pub const fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Changes the memory limits, in bytes, for sessions and for their data; 0 means no limit. Existing data stays.
    pub fn set_memcaps(&mut self, sessions: u64, data: u64) {
        (self.config.memcap, self.config.reassembly_memcap) = (sessions, data);
    }

    /// Processes a TCP packet of a flow with its session, which is created if the packet starts one. `fresh` marks the
    /// flow's first packet. Packets of other protocols are ignored.
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
        // A host would discard a broken packet.
        if reuses && !broken() {
            if let Some(old) = session.as_deref_mut().filter(|old| follows_reset(old, &s)) {
                old.settled = true;
                self.after_reset = Some(s.seq);
            }
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
                if before == TcpState::Closed && session.state == before && !self.config.inline {
                    // The other side's rest is due with its next packet, whatever that is.
                    out.flush |= !session.may_go_on();
                    session.peers[s.from].flags |= peer_flag::TRIGGER;
                }
            }
            None => self.first(session, packet, &s, &mut out),
        }
        out
    }

    /// Inline: decides whether to drop a packet that its session rejected.
    fn reject(&self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        if session.after_reset && session.state == TcpState::SynSent && !s.payload.is_empty() {
            // It may be data of the connection before.
            out.drop = true;
        } else if !self.config.spare_harmless {
            out.drop |= !out.events.is_empty() || doubt::discarded(out.doubt);
        } else {
            self.reject_harmful(session, s, out);
        }
    }

    /// Inline on a live network: decides whether to drop a packet that its session rejected.
    fn reject_harmful(&self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        // A packet that is merely not understood in this state may pass, unless it has data. A host may accept that
        // data: it may not have received the reset or FIN seen here, or may have accepted another SYN.
        if !s.payload.is_empty() || !out.events.is_empty() {
            match self.spare(session, s) {
                Spare::Passes => {}
                Spare::WithoutData => out.without_data = true,
                // The receiver has a later timestamp, discards the data and says what it lacks.
                Spare::No
                    if out.events.contains(StreamEvent::PktInvalidTimestamp)
                        && timestamps::was_overtaken(session, s) =>
                {
                    out.without_data = true;
                }
                Spare::No => out.drop = true,
            }
        }
    }

    /// Creates the session of a new connection: its SYN came on the flow of `old`, and `packet` is the server's SYN/ACK
    /// ([`Outcome::reuse`] for a packet to the client). `None` if `packet` answers no such SYN, or without memory. Swap
    /// the new flow's ends, since its first packet comes from the server, and process `packet` again with this session.
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

    /// Subtracts the memory of a session that ends.
    pub fn end(&mut self, session: &TcpSession) {
        self.counters.active_sessions = self.counters.active_sessions.saturating_sub(1);
        self.counters.memuse = self.counters.memuse.saturating_sub(Self::SESSION_SIZE);
        for p in &session.peers {
            if let Some(d) = &p.data {
                self.counters.reassembly_memuse = self.counters.reassembly_memuse.saturating_sub(d.accounted);
            }
        }
    }

    /// Ends the inspection of a session that is tracked no further, and frees its data.
    pub fn discard(&mut self, session: &mut TcpSession) {
        session.flags |= flag::APP_OFF | flag::RAW_OFF;
        for d in session.peers.iter_mut().filter_map(|p| p.data.take()) {
            self.counters.reassembly_memuse = self.counters.reassembly_memuse.saturating_sub(d.accounted);
        }
    }

    /// Counts a session that moves between workers: adds it to this worker's counts (`enter`), or subtracts it.
    pub fn moved(&mut self, session: &TcpSession, enter: bool) {
        let data = session.peers.iter().filter_map(|p| p.data.as_ref()).map(|d| d.accounted).sum();
        let c = &mut self.counters;
        let add = |total: &mut u64, n: u64| *total = if enter { *total + n } else { total.saturating_sub(n) };
        add(&mut c.active_sessions, 1);
        add(&mut c.memuse, Self::SESSION_SIZE);
        add(&mut c.reassembly_memuse, data);
    }

    /// Updates the memory count of a session's data after readers consumed some.
    #[inline]
    pub fn account(&mut self, session: &mut TcpSession) {
        // Growth was counted when it happened; only freed memory is left.
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

    /// Memory of a session without data, in bytes, counted towards `stream.memcap`.
    pub const SESSION_SIZE: u64 = size_of::<TcpSession>() as u64;

    pub(crate) fn event(&mut self, out: &mut Outcome, e: StreamEvent) {
        self.counters.event(e);
        out.events.push(e);
    }

    /// Creates a session, if memory allows.
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
        // Data is reassembled the way its receiving host does it.
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

/// Whether a packet opens a new connection on a finished session. This includes a second SYN without data if the server
/// did not accept the data of the first one (RFC 7413 section 4.1.3.1).
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
    // It must be the SYN that the server answered. The server rejects another one and continues.
    let same = s.seq == session.peers[0].isn;
    if plainly && same && session.state == TcpState::SynRecv && session.flags & flag::DATA_IGNORED != 0 {
        return true;
    }
    // The session was picked up from an unsolicited SYN/ACK, and this SYN comes from the real client.
    if session.state == TcpState::SynRecv && session.flags & flag::MIDSTREAM != 0 && s.from == 1 {
        return true;
    }
    let own = &session.peers[s.from];
    // A client that repeats its SYN after a refusal tries again to open the same connection: see `existing`.
    if repeats_refused(session, s) {
        return false;
    }
    // After a reset, the same sequence number may be reused. The server accepts a new connection in place of the old one
    // once it has the client's FIN; before that, its answer shows the reuse.
    let client = &session.peers[0];
    let ended = crate::seq::geq(client.last_ack, client.next_seq) && !client.has(peer_flag::PAST_FIN);
    let over = (session.state == TcpState::Closed
        || s.from == 0 && ended && matches!(session.state, TcpState::TimeWait | TcpState::LastAck))
        && (s.seq != own.isn || !session.inline() && session.peers.iter().any(|p| p.has(peer_flag::RESET)));
    // Inline, the end of the session may not have arrived. The other side confirms it with a reset or an answer, or has
    // confirmed it with FINs: then neither side accepts more data.
    let other = &session.peers[s.to()];
    over && (!session.inline()
        || other.has(peer_flag::RESET)
        || other.tcp_flags == 0
        || session.peers.iter().all(has_ended)
        || follows_reset(session, s))
}

/// Whether a side's FIN, and all data before it, was acknowledged, and nothing came after it.
fn has_ended(p: &Peer) -> bool {
    p.has(peer_flag::FIN) && !p.has(peer_flag::PAST_FIN) && crate::seq::geq(p.last_ack, p.next_seq)
}

/// Inline: whether a SYN comes from the side that reset an open connection. The reset may not have arrived, so nothing of
/// the old connection may be taken for the start of the new one.
fn follows_reset(session: &TcpSession, s: &Segment<'_>) -> bool {
    session.inline()
        && session.state == TcpState::Closed
        && session.peers[s.from].has(peer_flag::RESET)
        && !session.peers[s.to()].has(peer_flag::RESET)
        && session.peers[s.to()].tcp_flags != 0
        && s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN
}

/// The SYN that the server answers with this packet, while the previous connection looks unfinished. A server answers
/// only if that connection is over for it.
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
