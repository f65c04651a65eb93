//! The stream engine: takes packets into sessions.

use margay_flow::{Direction, FlowState};
use margay_packet::tcp::{TcpHeader, TcpOptions, flag as tcp};
use margay_packet::{Packet, Time};

use crate::config::{StreamConfig, UrgentPolicy};
use crate::counters::StreamCounters;
use crate::established::is_keep_alive;
use crate::event::{StreamEvent, StreamEvents};
use crate::seq;
use crate::session::{Assembly, TcpSession, TcpState, flag, peer_flag};

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
    /// A policy has to decide.
    pub exception: Option<Exception>,
    /// Inline: drop the packet.
    pub drop: bool,
    /// It is dropped for its urgent data (`stream.reassembly.urgent.policy`).
    pub drop_urgent: bool,
    /// Inline: payload overlaps with different data of before; see [`TcpSession::rewrite`].
    pub rewrite: bool,
    /// A direction reached the depth, and the configuration says that such flows are bypassed.
    pub bypass: bool,
    /// The checksum is wrong; the packet was kept out.
    pub bad_checksum: bool,
}

/// What the checks need to know of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) payload: &'a [u8],
    pub(crate) options: &'a TcpOptions,
    pub(crate) time: Time,
    /// Index of the sender: 0 is the client.
    pub(crate) from: usize,
}

impl<'a> Segment<'a> {
    fn new(header: &TcpHeader<'_>, packet: &'a Packet<'a>, direction: Direction) -> Self {
        Segment {
            flags: header.flags(),
            seq: header.seq(),
            ack: header.ack(),
            window: header.window(),
            urgent: header.urgent(),
            payload: packet.payload(),
            options: &packet.tcp_options,
            time: packet.time,
            from: direction.index(),
        }
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
    /// What was counted.
    pub counters: StreamCounters,
}

impl StreamEngine {
    /// An engine with nothing seen yet.
    pub fn new(config: StreamConfig) -> Self {
        StreamEngine { config, counters: StreamCounters::default() }
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
        let s = Segment::new(&header, packet, direction);
        let opens = s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN;
        if match session {
            Some(session) => is_reuse(session, &s),
            None => opens && !fresh,
        } {
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
        if self.config.checksum_validation && packet.l4_checksum_ok() == Some(false) {
            self.counters.invalid_checksum += 1;
            out.bad_checksum = true;
            return out;
        }
        if !s.has(tcp::ACK) && s.ack != 0 {
            self.event(&mut out, StreamEvent::PktBrokenAck);
        }
        if s.has(tcp::URG) && self.config.urgent == UrgentPolicy::Drop {
            (out.drop, out.drop_urgent) = (self.config.inline, self.config.inline);
            return out;
        }
        match session {
            Some(session) => {
                let before = session.state;
                session.peers[s.from].tcp_flags |= s.flags;
                out.accepted = self.existing(session, &s, &mut out);
                if out.accepted {
                    self.after(session, &s, &mut out);
                } else if self.config.inline && self.config.drop_invalid {
                    // What is merely not understood in this state is let through; but not data, once there is a connection:
                    // a host may take it that knows nothing of the reset or the end that was seen here.
                    out.drop = if self.config.spare_harmless {
                        let unseen = session.state >= TcpState::Established && !s.payload.is_empty();
                        (unseen || !out.events.is_empty()) && !is_harmless(session, &s)
                    } else {
                        !out.events.is_empty()
                    };
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

    /// A packet that passed the checks: takes its data, and looks what its acknowledgment makes available.
    pub(crate) fn after(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        // Data of a SYN counts with TCP fast open only (RFC 7413): hosts that do not speak it drop it.
        let early = s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN && s.options.fast_open.is_none();
        if s.payload.is_empty() || s.has(tcp::RST) || early {
            // Nothing to take.
        } else if is_keep_alive(session, s) {
            // Its byte is none of the stream (RFC 9293 section 3.8.4): hosts send what they like there.
            out.in_stream = true;
        } else {
            self.insert(session, s, out);
            if self.config.inline {
                // Its data is looked at now, also what the hole before it makes of it.
                self.look_for_gap(session, s.from, out);
            }
        }
        if s.has(tcp::ACK) {
            self.acknowledged(session, s.to(), out);
        }
        if session.flags & flag::ASYNC != 0 {
            let off = session.peers[s.from].next_off;
            if let Some(d) = &mut session.peers[s.from].data {
                d.acked = d.acked.max(d.place(off));
                out.new_data[s.from] = true;
            }
        }
    }

    /// Data of `side` was acknowledged up to its `last_ack`.
    fn acknowledged(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        let peer = &mut session.peers[side];
        let Ok(acked) = u64::try_from(peer.offset(peer.last_ack)) else { return };
        let Some(d) = &mut peer.data else { return };
        let acked = d.place(acked);
        if acked <= d.acked {
            return;
        }
        d.acked = acked;
        out.new_data[side] = true;
        self.look_for_gap(session, side, out);
    }

    /// Data of `side` behind a hole that the receiver has: we never saw what was there.
    fn look_for_gap(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        let (app_off, raw_off) = (session.flags & flag::APP_OFF != 0, session.flags & flag::RAW_OFF != 0);
        let peer = &mut session.peers[side];
        let Some(d) = &mut peer.data else { return };
        // Who does not read stands still, while what the other has read is freed: that is no hole.
        let app = if app_off { u64::MAX } else { d.app };
        let raw = if raw_off || d.raw_has_all() { u64::MAX } else { d.raw };
        let at = app.min(raw).min(d.buffer.end()).max(d.gap_seen);
        let at = at + d.buffer.contiguous(at, u64::MAX).len() as u64;
        if let Some(next) = d.buffer.next_at(at)
            && next > at
            && next <= d.acked
        {
            d.gap_seen = next;
            d.first_gap.get_or_insert(at);
            peer.flags |= peer_flag::GAP;
            self.counters.reassembly_gap += 1;
            self.event(out, StreamEvent::ReassemblySeqGap);
        }
    }

    /// Takes a segment's data.
    fn insert(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        let inline = self.config.inline;
        let both_off = flag::APP_OFF | flag::RAW_OFF;
        let dead = session.flags & both_off == both_off;
        let chunk_size = if s.from == 0 { self.config.toserver_chunk_size } else { self.config.toclient_chunk_size };
        let seed = session.peers[0].isn;
        let depth = match session.depth.unwrap_or(self.config.depth) {
            0 => u64::MAX,
            n => n,
        };
        let peer = &mut session.peers[s.from];
        // Where flows past their depth are bypassed, somebody has to notice.
        if peer.has(peer_flag::DEPTH) || (dead && !self.config.bypass) {
            return;
        }
        // Fast open: data comes with the SYN, after it.
        let seq = if s.has(tcp::SYN) { s.seq.wrapping_add(1) } else { s.seq };
        let offset = peer.offset(seq);
        let cut = usize::try_from(-offset).unwrap_or(0);
        let payload = s.payload.get(cut..).unwrap_or(&[]);
        let offset = u64::try_from(offset).unwrap_or(0);
        let policy = if inline { crate::policy::OsPolicy::First } else { peer.policy };
        let d = peer.data.get_or_insert_with(|| {
            let percent = u64::from(self.config.randomize_chunk_percent.min(100));
            let span = u64::from(chunk_size) * percent / 100;
            let spread = u64::from(seed.wrapping_mul(0x9e37_79b1)) % (2 * span + 1);
            Box::new(Assembly {
                chunk_size: (u64::from(chunk_size) + spread - span) as u32,
                context: self.config.raw_context,
                ..Assembly::default()
            })
        });
        let (payload, tail) = if s.has(tcp::URG) && cut == 0 {
            match self.urgent(d, &mut peer.flags, offset, s, out) {
                Some(parts) => parts,
                None => return,
            }
        } else {
            (payload, [].as_slice())
        };
        let mut offset = d.place(offset);
        d.packet = (offset, offset + (payload.len() + tail.len()) as u64);
        d.pending = true;
        for part in [payload, tail] {
            if part.is_empty() {
                continue;
            }
            let room = depth.saturating_sub(offset).min(part.len() as u64) as usize;
            let kept = part.get(..room).unwrap_or(part);
            if self.config.reassembly_memcap != 0
                && self.counters.reassembly_memuse + kept.len() as u64 > self.config.reassembly_memcap
            {
                self.counters.segment_memcap_drop += 1;
                self.counters.insert_data_normal_fail += 1;
                self.counters.event(StreamEvent::ReassemblyInsertMemcap);
                out.events.push(StreamEvent::ReassemblyInsertMemcap);
                out.exception = Some(Exception::ReassemblyMemcap);
                break;
            }
            let done = d.buffer.insert(offset, kept, policy, self.config.max_regions);
            self.counters.segments += 1;
            if done.overlap {
                self.counters.overlap += 1;
            }
            // Inline the packet must say what the stream has, also where that was inspected already.
            if done.different || (inline && d.buffer.differs(offset, kept)) {
                self.counters.overlap_diff_data += 1;
                self.counters.event(StreamEvent::ReassemblyOverlapDifferentData);
                out.events.push(StreamEvent::ReassemblyOverlapDifferentData);
                out.rewrite |= inline;
            }
            if done.refused {
                self.counters.insert_data_overlap_fail += u64::from(done.overlap);
                self.counters.insert_data_normal_fail += u64::from(!done.overlap);
                self.counters.event(StreamEvent::ReassemblyInsertLimit);
                out.events.push(StreamEvent::ReassemblyInsertLimit);
            } else {
                out.in_stream = true;
            }
            if room < part.len() {
                peer.flags |= peer_flag::DEPTH;
                self.counters.stream_depth_reached += 1;
                self.counters.event(StreamEvent::ReassemblyDepthReached);
                out.events.push(StreamEvent::ReassemblyDepthReached);
                break;
            }
            // An urgent byte between both parts takes no room in the stream.
            offset += part.len() as u64;
        }
        account(&mut self.counters, d);
        out.new_data[s.from] |= inline;
        if self.config.bypass && session.peers.iter().any(|p| p.has(peer_flag::DEPTH)) {
            out.bypass = true;
        }
    }

    /// What of a segment with URG goes into the stream, as the parts before and after the urgent byte; `None` where
    /// nothing of it does.
    fn urgent<'a>(
        &mut self,
        d: &mut Assembly,
        flags: &mut u8,
        offset: u64,
        s: &Segment<'a>,
        out: &mut Outcome,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let mut policy = self.config.urgent;
        // RFC 6093: the pointer names the byte after the urgent one.
        let at = usize::from(s.urgent);
        if policy == UrgentPolicy::Oob && at > 0 && at <= s.payload.len() {
            let byte = offset + at as u64 - 1;
            let known = d.oob.binary_search(&byte);
            if known.is_err() && d.oob.len() >= usize::from(self.config.urgent_oob_limit) {
                policy = self.config.urgent_oob_limit_policy;
                if *flags & peer_flag::OOB_LIMIT == 0 {
                    *flags |= peer_flag::OOB_LIMIT;
                    self.event(out, StreamEvent::ReassemblyUrgentOobLimitReached);
                }
            } else {
                if let Err(i) = known {
                    d.oob.insert(i, byte);
                    self.counters.urgent_oob_data += 1;
                }
                return Some((s.payload.get(..at - 1)?, s.payload.get(at..)?));
            }
        }
        match policy {
            UrgentPolicy::Inline | UrgentPolicy::Oob => Some((s.payload, &[])),
            UrgentPolicy::Gap => None,
            UrgentPolicy::Drop => {
                (out.drop, out.drop_urgent) = (self.config.inline, self.config.inline);
                None
            }
        }
    }
}

/// Whether a segment brings nothing that was not inspected: no data, or data that its receiver has acknowledged, or that is
/// byte for byte what was inspected and waits for its acknowledgment. A host that repeats itself, late or with an old timestamp
/// because the link doubled or delayed a packet, is no attack; one that says something else than before is not spared.
fn is_harmless(session: &TcpSession, s: &Segment<'_>) -> bool {
    if s.payload.is_empty() {
        return true;
    }
    let sender = &session.peers[s.from];
    if session.state < TcpState::Established {
        return false;
    }
    // Of a connection that was followed from its start, what was acknowledged was seen here, unless somebody else acknowledged it.
    let seen = || {
        let gap = sender.data.as_deref().and_then(|d| d.first_gap);
        seq::leq(s.end(), sender.next_seq)
            && gap.is_none_or(|gap| u64::try_from(sender.offset(s.end())).is_ok_and(|end| end <= gap))
    };
    if seq::leq(s.end(), sender.last_ack) && (session.flags & (flag::MIDSTREAM | flag::ASYNC) != 0 || seen()) {
        return true;
    }
    // Its end has to be where it was.
    let again = sender.has(peer_flag::FIN) && s.end().wrapping_add(1) == sender.next_seq;
    if s.flags & (tcp::SYN | tcp::URG | tcp::RST) != 0 || (s.has(tcp::FIN) && !again) {
        return false;
    }
    let from = if seq::gt(s.end(), sender.last_ack) { seq::max(s.seq, sender.last_ack) } else { s.seq };
    let (Some(d), Ok(at)) = (sender.data.as_deref(), u64::try_from(sender.offset(from))) else { return false };
    let Some(open) = s.payload.get(from.wrapping_sub(s.seq) as usize..).filter(|_| d.oob.is_empty()) else {
        return false;
    };
    d.buffer.contiguous(at, at + open.len() as u64) == open
}

/// Whether a packet opens a new connection on a session that is over; or once more, without data, on one whose server did
/// not take the data of the first SYN (RFC 7413 section 4.1.3.1).
fn is_reuse(session: &TcpSession, s: &Segment<'_>) -> bool {
    if s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) != tcp::SYN {
        return false;
    }
    let plainly = s.from == 0 && s.payload.is_empty() && s.options.fast_open.is_none();
    if plainly && session.state == TcpState::SynRecv && session.flags & flag::DATA_IGNORED != 0 {
        return true;
    }
    (session.state == TcpState::Closed
        || s.from == 0 && matches!(session.state, TcpState::TimeWait | TcpState::LastAck))
        && s.seq != session.peers[s.from].isn
}

pub(crate) fn account(counters: &mut StreamCounters, d: &mut Assembly) {
    let now = d.buffer.memory() + size_of::<Assembly>() as u64;
    counters.reassembly_memuse = (counters.reassembly_memuse + now).saturating_sub(d.accounted);
    d.accounted = now;
}
