//! Packets without a session, and the checks that come before those of a session's state (`handshake.rs`,
//! `established.rs`).

use margay_packet::Packet;
use margay_packet::tcp::flag as tcp;

use super::doubt;
use super::handshake::{set, syn_ack, with_data};
use super::{Exception, Outcome, Segment, StreamEngine};
use crate::event::StreamEvent as E;
use crate::peer::{FLOAT, Peer, peer_flag};
use crate::seq;
use crate::session::{Queued, TcpSession, TcpState, flag};

/// Inline: how far before the acknowledged data the first data of a side may begin whose numbers were only acknowledged so
/// far. It is the largest window without a scale.
const GUESS_BACK: u32 = 65_535;

/// Window scale assumed without a SYN: the largest (RFC 7323 section 2.3).
pub(crate) const MIDSTREAM_SCALE: u8 = 14;

impl StreamEngine {
    /// Handles a packet of a flow without a session.
    pub(crate) fn first(
        &mut self,
        session: &mut Option<Box<TcpSession>>,
        packet: &Packet<'_>,
        s: &Segment<'_>,
        out: &mut Outcome,
    ) {
        if s.has(tcp::RST) {
            self.event(out, E::RstButNoSession);
            // On a live network it may belong to a connection older than the engine.
            out.drop = self.config.inline && self.config.drop_invalid && !self.config.spare_harmless;
            return;
        }
        // A FIN with data may be all that is left of a connection: it is picked up midstream, although nothing follows.
        let pickup = self.picks_up();
        let last_data = pickup && s.has(tcp::FIN | tcp::ACK) && !s.payload.is_empty();
        if s.has(tcp::FIN) && !last_data {
            self.event(out, E::FinButNoSession);
            out.exception = Some(Exception::Midstream);
            return;
        }
        if s.has(tcp::SYN | tcp::ACK) {
            out.exception = Some(Exception::Midstream);
            // The server's half of a handshake is seen.
            if !pickup && !self.config.async_oneside {
                return;
            }
            let Some(new) = session.insert_from(self.create(packet, out)) else { return };
            self.counters.midstream_pickups += 1;
            new.flags |= flag::MIDSTREAM;
            let mut s = *s;
            if s.from == 0 {
                // The server's SYN/ACK came first, so the sender is not the client.
                out.swap = true;
                new.flags |= flag::SWAPPED;
                let (a, b) = new.peers.split_at_mut(1);
                std::mem::swap(&mut a[0].policy, &mut b[0].policy);
                s.from = 1;
            }
            new.peers[0].start(s.ack.wrapping_sub(1));
            new.peers[0].wscale = MIDSTREAM_SCALE;
            new.peers[s.from].tcp_flags |= s.flags;
            syn_ack(new, &Queued::of(&s));
            if new.peers[1].wscale == 0 && s.options.window_scale.is_none() {
                new.peers[0].wscale = 0;
            }
            new.peers[1].edge = new.peers[1].next_seq.wrapping_add(u32::from(u16::MAX) << new.peers[0].wscale);
            new.state = TcpState::SynRecv;
            out.state = Some(new.state.flow_state());
            out.accepted = true;
            if self.config.async_oneside {
                new.flags |= flag::ASYNC;
            }
        } else if s.has(tcp::SYN) {
            let Some(new) = session.insert_from(self.create(packet, out)) else { return };
            new.peers[s.from].tcp_flags |= s.flags;
            out.accepted = true;
            new.after_reset = self.after_reset.take() == Some(s.seq);
            self.syn(new, s);
            new.state = TcpState::SynSent;
            out.state = Some(new.state.flow_state());
            if !s.payload.is_empty() {
                self.after(new, s, out);
            }
        } else if s.has(tcp::ACK) {
            out.exception = Some(Exception::Midstream);
            if !pickup {
                return;
            }
            let Some(new) = session.insert_from(self.create(packet, out)) else { return };
            self.counters.midstream_pickups += 1;
            new.flags |= flag::MIDSTREAM;
            if self.config.async_oneside {
                new.flags |= flag::ASYNC;
            }
            for p in &mut new.peers {
                p.wscale = MIDSTREAM_SCALE;
            }
            let (from, to) = (s.from, s.to());
            new.peers[from].tcp_flags |= s.flags;
            new.peers[from].start(s.seq.wrapping_sub(1));
            // The other side's progress is unknown until it acknowledges something.
            new.peers[from].flags |= peer_flag::FLOATING;
            new.peers[to].flags |= peer_flag::GUESSED;
            if !new.at_once() {
                new.peers[from].next_off = FLOAT;
            }
            new.peers[from].advance(s.end());
            new.peers[to].start(s.ack.wrapping_sub(1));
            let window = u32::from(s.window) << MIDSTREAM_SCALE;
            new.peers[to].edge = s.ack;
            new.peers[to].acked(s.ack, window);
            new.peers[from].edge = s.end();
            let last_ack = new.peers[from].last_ack;
            new.peers[from].acked(last_ack, (u32::from(u16::MAX)) << MIDSTREAM_SCALE);
            if let Some((value, echo)) = s.options.timestamp {
                new.flags |= flag::TIMESTAMP;
                // It is unknown whether the other side records it.
                new.peers[from].max_ts = value;
                new.peers[to].note_timestamp(echo, s.time.secs() as u32, true);
            }
            if s.options.sack_count > 0 {
                new.flags |= flag::SACK;
            }
            new.state = TcpState::Established;
            if last_data {
                new.peers[from].advance(s.end().wrapping_add(1));
                new.peers[from].flags |= peer_flag::FIN;
                new.state = TcpState::FinWait1;
            }
            out.state = Some(new.state.flow_state());
            out.accepted = true;
            self.after(new, s, out);
        }
    }

    /// Whether connections are picked up midstream. Inline, a live network has some that are older than the engine.
    pub(crate) const fn picks_up(&self) -> bool {
        self.config.midstream || (self.config.async_oneside && self.config.spare_harmless)
    }

    /// Handles the SYN that opens a session.
    fn syn(&mut self, session: &mut TcpSession, s: &Segment<'_>) {
        let p = &mut session.peers[s.from];
        p.start(s.seq);
        p.wscale = s.options.window_scale.unwrap_or(0).min(MIDSTREAM_SCALE);
        p.ttl = s.ttl;
        set(&mut session.flags, flag::TIMESTAMP, s.options.timestamp.is_some());
        if let Some((value, _)) = s.options.timestamp {
            (p.last_ts, p.max_ts) = (value, value);
            p.last_ts_time = s.time.secs() as u32;
            if value == 0 {
                p.flags |= peer_flag::ZERO_TIMESTAMP;
            }
        }
        set(&mut session.flags, flag::SACK, s.options.sack_ok);
        set(&mut session.flags, flag::SIGNED, s.options.signed);
        set(&mut session.flags, flag::SCALED, s.options.window_scale.is_some());
        if s.options.fast_open.is_some() {
            session.flags |= flag::FAST_OPEN;
        }
        // The other side's window until the SYN/ACK shows whether windows are scaled.
        let to = &mut session.peers[s.to()];
        to.window = u32::from(s.window);
        with_data(session, s);
    }

    /// Handles a packet of a session; returns whether it belongs there.
    pub(crate) fn existing(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if session.peers[s.from].has(peer_flag::RST_SENT) && !s.has(tcp::RST) && (s.has(tcp::SYN) || s.len() > 0) {
            // One report is enough.
            session.peers[s.from].flags &= !peer_flag::RST_SENT;
            self.event(out, E::SuspectedRstInject);
            if s.from == 1 && s.has(tcp::SYN | tcp::ACK) && refused(session) {
                // An earlier packet refused the connection, but this one accepts it.
                session.state = TcpState::SynSent;
            }
        }
        if repeats_refused(session, s) {
            session.peers[1].flags &= !(peer_flag::RESET | peer_flag::RST_SENT);
            session.state = TcpState::SynSent;
        }
        if s.from == 1
            && s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN | tcp::ACK
            && session.peers[0].has(peer_flag::RESET)
            && s.ack == session.peers[0].next_seq
            && (refused(session) || session.state == TcpState::Closed && is_opening(session))
        {
            // The client's reset may not have been meant for its own SYN. If it was, the client resets this SYN/ACK
            // too.
            session.peers[0].flags &= !(peer_flag::RESET | peer_flag::RST_SENT);
            session.state = TcpState::SynSent;
        }
        if session.peers[s.from].has(peer_flag::GUESSED) {
            heard_of(&mut session.peers[s.from], s, self.config.inline);
        }
        if self.config.inline
            && session.flags & flag::ASYNC != 0
            && session.peers.iter().all(|p| p.tcp_flags != 0)
            && !s.has(tcp::RST)
        {
            // Both sides are visible after all.
            session.flags &= !flag::ASYNC;
        }
        let spurious = self.look_for_retransmission(session, s, out);
        if s.has(tcp::RST) && s.len() > 0 {
            self.event(out, E::RstWithData);
        }
        if session.state == TcpState::Closed {
            // Inline, a SYN may open another connection: see `is_reuse`.
            if self.config.inline && s.has(tcp::SYN) {
                self.note_syn(session, s);
            }
            let Some(restart) = self.goes_on(session, s) else {
                self.note_behind_reset(session, s);
                return false;
            };
            out.restart = restart;
        }
        let late = s.from == 1 && session.state == TcpState::Established && s.flags & (tcp::RST | tcp::FIN) == 0;
        if session.state != TcpState::SynSent && !s.has(tcp::SYN) && !late && !self.timestamp_ok(session, s, out) {
            return false;
        }
        if session.state == TcpState::SynSent
            && s.from == 1
            && !s.has(tcp::SYN)
            && let Some((_, echo)) = s.options.timestamp
            && (session.flags & flag::TIMESTAMP == 0 || echo != session.peers[0].last_ts)
        {
            // A side that knows the SYN would not echo a timestamp that the SYN did not have.
            self.event(out, E::PktInvalidTimestamp);
            return false;
        }
        if s.has(tcp::RST) {
            return self.reset(session, s, out);
        }
        let without_fin;
        let s = if s.has(tcp::SYN | tcp::FIN) {
            self.event(out, E::FinSyn);
            if self.config.inline || session.state != TcpState::SynSent || s.from == 0 {
                return false;
            }
            // The side that opened the connection ignores the FIN (RFC 9293 section 3.10.7.3 does not mention it).
            without_fin = Segment { flags: s.flags & !tcp::FIN, ..*s };
            &without_fin
        } else {
            s
        };
        let sender = &mut session.peers[s.from];
        if sender.has(peer_flag::FIN) {
            let behind = s.len() > 0 && seq::geq(s.end(), sender.next_seq);
            // Linux may read data after a FIN as if the FIN had no sequence number, or did not exist. Of two FINs at
            // different places, one has data after it.
            if behind || !self.config.inline && is_other_fin(sender, s) {
                self.event(out, E::DataAfterFin);
                if self.config.inline {
                    return false;
                }
                sender.flags |= peer_flag::PAST_FIN;
            }
        }
        let sender = &session.peers[s.from];
        if self.config.inline
            && sender.has(peer_flag::FIN)
            && s.has(tcp::FIN)
            && s.end().wrapping_add(1) != sender.next_seq
            && session.flags & flag::ASYNC == 0
        {
            // The sender's data ended elsewhere.
            self.event(out, E::FinOutOfWindow);
            out.drop = self.config.drop_invalid;
            return false;
        }
        let acked_before = session.peers[s.to()].ahead;
        let expected = if s.options.timestamp.is_some() { session.peers[s.from].expected_at_most() } else { 0 };
        out.doubt |= self.doubt(session, s);
        // Computed before anything of the packet is recorded.
        let predicted = out.doubt & doubt::ACK != 0 && !self.config.inline && doubt::is_predicted(session, s);
        let reached = session.peers[s.from].reached();
        let ok = match session.state {
            TcpState::None => false,
            TcpState::SynSent => self.in_syn_sent(session, s, out),
            TcpState::SynRecv => self.in_syn_recv(session, s, out),
            TcpState::Established => self.in_established(session, s, out),
            TcpState::Closed => false,
            _ => self.in_closing_states(session, s, out),
        };
        if !ok {
            if s.has(tcp::ACK) && out.doubt & doubt::ACK == 0 && !self.config.inline {
                self.note_refused(session, s);
            }
            return false;
        }
        if out.doubt & doubt::ACK != 0 && !self.config.inline && s.len() > 0 && is_ack_old(session, s) {
            // Whether its receiver checks the acknowledgment depends on the receiver's free memory.
            self.event(out, E::PktInvalidAck);
        }
        // A sender that repeats the same acknowledgment may have read data that the engine did not see, so its
        // connection is not cut. If the host discards the segment after all, later data in its place is rewritten to
        // the data inspected here.
        let unseen = || {
            let next = session.peers[s.to()].next_seq;
            out.doubt & (doubt::ACK | doubt::SIGNED) == doubt::ACK
                && seq::gt(s.ack, next)
                && seq::gt(acked_before, next)
                && seq::leq(s.ack, acked_before)
        };
        let discarded = s.len() > 0 && self.config.inline && doubt::discarded(out.doubt) && !unseen();
        let own = &mut session.peers[s.from];
        if own.ttl == 0 {
            own.ttl = s.ttl;
        }
        if discarded {
            if !s.has(tcp::FIN) {
                // Its sender is not known to have come this far.
                own.return_to(reached);
            }
            if out.doubt & doubt::ACK != 0 {
                self.event(out, E::PktInvalidAck);
            }
            return false;
        }
        if out.doubt & doubt::TTL != 0 && s.len() > 0 {
            own.low_ttl = if own.low_ttl == 0 { s.ttl } else { own.low_ttl.min(s.ttl) };
        }
        if out.doubt & doubt::ACK == 0 || s.payload.is_empty() && predicted {
            Self::note_timestamps(session, s, expected);
        }
        if spurious && s.len() > 0 {
            self.repeated(session, s, out);
            return false;
        }
        true
    }

    /// Passive: handles a segment that does not fit. A receiver may have more room than it announced, and records the timestamp
    /// of a FIN even if that repeats known data.
    fn note_refused(&self, session: &mut TcpSession, s: &Segment<'_>) {
        let own = &mut session.peers[s.from];
        let again = seq::leq(s.seq, own.expected_at_most()) && seq::geq(s.end().wrapping_add(1), own.last_ack);
        if let Some((value, _)) = s.options.timestamp.filter(|_| again && session.flags & flag::TIMESTAMP != 0) {
            let latest = own.max_ts;
            own.note_timestamp(value, s.time.secs() as u32, false);
            if own.max_ts != latest {
                own.flags |= peer_flag::TIMESTAMP_ALONE;
            }
        }
    }

    /// The other side did not accept the data of this side's SYN: the stream begins with the next data. Returns whether
    /// there was such data.
    pub(crate) fn not_taken(&mut self, p: &mut Peer) -> bool {
        let data = p.data.take();
        if let Some(d) = &data {
            self.counters.reassembly_memuse = self.counters.reassembly_memuse.saturating_sub(d.accounted);
        }
        let isn = p.isn;
        p.start(isn);
        data.is_some()
    }
}

/// Handles the first packet of a side whose sequence numbers were known only from the other side's acknowledgments. The
/// data that those acknowledged need not have been sent. But a number far before it would put the side's real data beyond
/// the depth of reassembly: without data it says nothing, and inline the data is dropped.
fn heard_of(own: &mut Peer, s: &Segment<'_>, inline: bool) {
    let back = own.next_seq.wrapping_sub(s.seq);
    let is_old = seq::lt(s.seq, own.next_seq) && (s.payload.is_empty() || inline && back > GUESS_BACK);
    if s.has(tcp::RST) || is_old {
        return;
    }
    own.flags &= !peer_flag::GUESSED;
    let alive = s.len() <= 1 && s.seq == own.next_seq.wrapping_sub(1);
    if own.data.is_none() && seq::lt(s.seq, own.next_seq) && !alive {
        let (acknowledged, edge) = (own.next_seq, own.edge);
        own.start(s.seq.wrapping_sub(1));
        own.ahead = acknowledged;
        own.edge = seq::max(own.edge, edge);
    }
}

/// Whether a segment has a FIN at another place than the one seen before, which is not acknowledged yet.
fn is_other_fin(sender: &Peer, s: &Segment<'_>) -> bool {
    let end = s.end().wrapping_add(1);
    s.has(tcp::FIN | tcp::ACK)
        && sender.has(peer_flag::FIN)
        && end != sender.next_seq
        && seq::gt(end, sender.last_ack)
        && seq::lt(sender.last_ack, sender.next_seq)
}

/// Whether a segment acknowledges less than earlier ones.
fn is_ack_old(session: &TcpSession, s: &Segment<'_>) -> bool {
    seq::lt(s.ack, session.peers[s.to()].last_ack)
}

/// Whether both sides sent a SYN and no data since.
const fn is_opening(session: &TcpSession) -> bool {
    let [client, server] = &session.peers;
    let nothing = server.next_seq == server.isn.wrapping_add(1) && client.next_seq == client.isn.wrapping_add(1);
    session.flags & flag::FOUR_WAY != 0 && nothing
}

/// Whether the connection was closed before the server accepted it.
const fn refused(session: &TcpSession) -> bool {
    let server = &session.peers[1];
    matches!(session.state, TcpState::Closed) && server.isn == 0 && server.next_seq == 0 && server.last_ack == 0
}

/// Passive: whether a client sends the SYN again that the server refused. As in Suricata, that is the same connection.
pub(crate) fn repeats_refused(session: &TcpSession, s: &Segment<'_>) -> bool {
    let [client, server] = &session.peers;
    let flags = s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN);
    s.from == 0
        && flags == tcp::SYN
        && s.seq == client.isn
        && s.payload.is_empty()
        && client.data.is_none()
        && !session.inline()
        && server.has(peer_flag::RESET)
        && refused(session)
}

/// Stores a new session in its place, if there is one.
trait InsertFrom<T> {
    fn insert_from(&mut self, value: Option<T>) -> Option<&mut T>;
}

impl<T> InsertFrom<T> for Option<T> {
    fn insert_from(&mut self, value: Option<T>) -> Option<&mut T> {
        Some(self.insert(value?))
    }
}
