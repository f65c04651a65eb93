//! The states before a session is established: SYN sent and SYN received.

use margay_packet::tcp::flag as tcp;

use super::doubt;
use super::established::may_be_taken;
use super::states::MIDSTREAM_SCALE;
use super::{Outcome, Segment, StreamEngine};
use crate::counters::StreamCounters;
use crate::event::StreamEvent as E;
use crate::peer::peer_flag;
use crate::seq;
use crate::session::{Queued, TcpSession, TcpState, flag};

impl StreamEngine {
    pub(crate) fn in_syn_sent(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        if s.has(tcp::SYN | tcp::ACK) {
            if session.flags & flag::FOUR_WAY != 0 {
                return self.four_way_syn_ack(session, s, out);
            }
            if from == 0 {
                self.event(out, E::Hs3SynackInWrongDirection);
                return false;
            }
            if s.options.signed && session.flags & flag::SIGNED == 0 && !self.config.inline {
                // A client without a key discards a signed SYN/ACK. Its next packet will tell.
                return self.queue(session, Queued::of(s), out);
            }
            let client = &session.peers[0];
            let first = client.isn.wrapping_add(1);
            let plain = s.ack == first;
            let data = seq::gt(s.ack, first) && seq::leq(s.ack, client.next_seq) || s.ack == client.next_seq;
            if !plain && !data {
                // The SYN/ACK may answer another SYN of the client.
                let Some(other) = queued(session, false, s.ack) else {
                    self.event(out, E::Hs3SynackWithWrongAck);
                    return false;
                };
                restart(&mut self.counters, session, &other);
            } else if plain && !data {
                // The server acknowledged only the SYN and discards its data.
                if session.flags & flag::FAST_OPEN != 0 {
                    self.event(out, E::Hs3SynackTfoDataIgnored);
                }
                session.flags = session.flags & !flag::FAST_OPEN | flag::DATA_IGNORED;
                if self.not_taken(&mut session.peers[0]) && self.config.inline {
                    // That data was read already.
                    session.flags |= flag::UNTAKEN;
                }
            }
            session.queue.clear();
            syn_ack(session, &Queued::of(s));
            // A server that uses signatures answers only signed SYNs, so its SYN/ACK shows whether the connection is
            // signed.
            set(&mut session.flags, flag::SIGNED, s.options.signed);
            session.state = TcpState::SynRecv;
            return true;
        }
        if s.has(tcp::SYN) {
            if from == 0 {
                if s.seq != session.peers[0].isn {
                    // The buffer holds only the first SYN's data, so this SYN passes without its own.
                    out.without_data = self.config.inline && !s.payload.is_empty();
                    return self.queue(session, Queued::of(s), out);
                }
                with_data(session, s);
                syn_again(session, s);
                return true;
            }
            // Simultaneous open or split handshake (RFC 9293 section 3.5): the server sends a SYN too.
            session.flags |= flag::FOUR_WAY;
            let p = &mut session.peers[from];
            p.start(s.seq);
            p.wscale = s.options.window_scale.unwrap_or(0).min(MIDSTREAM_SCALE);
            if let Some((value, _)) = s.options.timestamp {
                p.note_timestamp(value, s.time.secs() as u32, true);
            } else {
                session.flags &= !flag::TIMESTAMP;
            }
            session.peers[to].window = u32::from(s.window);
            let last = session.peers[to].last_ack;
            session.peers[to].edge = last.wrapping_add(u32::from(s.window));
            return true;
        }
        if takes_answer(session, s) {
            session.state = TcpState::SynRecv;
            return self.in_syn_recv(session, s, out);
        }
        if s.has(tcp::FIN) || !s.has(tcp::ACK) {
            return false;
        }
        if from == 0 && self.config.async_oneside && !session.after_reset {
            // The server's packets are not seen at all.
            if s.seq != session.peers[0].next_seq {
                self.event(out, E::Hs3AsyncWrongSeq);
                return false;
            }
            session.flags |= flag::ASYNC | flag::MIDSTREAM;
            session.peers[1].start(s.ack.wrapping_sub(1));
            session.peers[0].edge = s.end().wrapping_add(u32::from(u16::MAX) << MIDSTREAM_SCALE);
            let window = u32::from(s.window) << session.peers[0].wscale;
            session.peers[1].acked(s.ack, window);
            session.peers[0].advance(s.end());
            session.state = TcpState::Established;
            return true;
        }
        false
    }

    /// Handles the answer to the server's own SYN, from either side.
    pub(crate) fn four_way_syn_ack(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        if s.ack != session.peers[to].isn.wrapping_add(1) {
            self.event(out, E::Hs4SynackWithWrongAck);
            return false;
        }
        if from == 0 {
            // The client accepted the server's SYN.
            session.queue.clear();
        } else if session.state == TcpState::SynSent && !self.config.inline {
            // The client's next packet will tell whether it accepted that SYN or this.
            self.queue(session, Queued::of(s), out);
        }
        if s.seq != session.peers[from].isn {
            self.event(out, E::Hs4SynackWithWrongSyn);
            return false;
        }
        // The SYNs decided already whether timestamps are used.
        let window = u32::from(s.window);
        session.peers[to].acked(s.ack, window);
        session.state = TcpState::SynRecv;
        true
    }

    /// Stores a SYN or SYN/ACK that differs from the first one. Returns whether the packet belongs to the session: a
    /// SYN/ACK beyond the limit does not.
    pub(crate) fn queue(&mut self, session: &mut TcpSession, q: Queued, out: &mut Outcome) -> bool {
        let list = &mut session.queue;
        let same = |o: &&Queued| o.syn_ack == q.syn_ack && o.seq == q.seq && o.ack == q.ack;
        let known = list.iter().any(|o| same(&o));
        if known && q.syn_ack {
            return true;
        }
        let limit = if q.syn_ack { self.config.max_synack_queued } else { self.config.max_syn_queued };
        if list.iter().filter(|o| o.syn_ack == q.syn_ack).count() >= usize::from(limit) {
            self.event(out, if q.syn_ack { E::Hs3SynackFlood } else { E::Hs3SynFlood });
            if q.syn_ack || known {
                return known;
            }
            // The latest SYN is the most likely one to be answered, so the oldest is removed.
            if let Some(oldest) = list.iter().position(|o| !o.syn_ack) {
                list.remove(oldest);
            }
        }
        if !known {
            list.push(q);
        }
        true
    }

    pub(crate) fn in_syn_recv(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        takes_answer(session, s);
        let four_way = session.flags & flag::FOUR_WAY != 0;
        if s.has(tcp::SYN | tcp::ACK) {
            if four_way {
                return self.four_way_syn_ack(session, s, out);
            }
            if from == 0 {
                self.event(out, E::Hs3SynackToserverOnSynRecv);
                return false;
            }
            let client_next = session.peers[0].last_ack;
            if s.ack != client_next {
                // The server gave up the connection that it answered first, and answers another SYN,
                // with a new sequence number.
                if let Some(other) = queued(session, false, s.ack).filter(|_| s.seq != session.peers[1].isn) {
                    restart(&mut self.counters, session, &other);
                    session.queue.clear();
                    syn_ack(session, &Queued::of(s));
                    return true;
                }
                self.event(out, E::Hs3SynackResendWithDifferentAck);
                return false;
            }
            if s.seq != session.peers[1].isn {
                self.event(out, E::Hs3SynackResendWithDiffSeq);
                return self.queue(session, Queued::of(s), out);
            }
            return true;
        }
        if s.has(tcp::SYN) {
            if from == 1 && !four_way {
                self.event(out, E::Hs3SynToclientOnSynRecv);
                return false;
            }
            if s.seq != session.peers[from].isn {
                self.event(out, E::Hs3SynResendDiffSeqOnSynRecv);
                if from == 0 {
                    session.queue.retain(|q| q.syn_ack);
                    session.queue.push(Queued::of(s));
                }
                return false;
            }
            return true;
        }
        if !s.has(tcp::ACK) {
            return false;
        }
        if s.has(tcp::FIN) {
            session.queue.clear();
            return self.fin(session, s, out);
        }
        if four_way {
            let next = session.peers[from].next_seq;
            // A host accepts the part of a segment that lies after its sender's SYN, and keeps early data in the window.
            let reaches = s.len() > 0 && seq::gt(s.end(), next) && seq::leq(s.end(), session.peers[from].edge);
            if s.seq != next {
                self.event(out, E::Hs4WrongSeq);
                if self.config.inline || !reaches {
                    return false;
                }
            }
            if s.ack != session.peers[to].next_seq {
                self.event(out, E::Hs4InvalidAck);
                return false;
            }
        } else if from == 0 {
            let client = &session.peers[0];
            // One less than the next number is a keep-alive. A higher number (`in_window`) is data whose preceding
            // acknowledgment the sensor missed.
            let in_place = s.seq == client.next_seq || s.seq == client.isn;
            // The segment may begin before the expected data if it repeats data of the SYN. Passive, it may begin
            // anywhere before, since a receiver cuts off what it already has.
            let own = session.flags & flag::SYN_DATA != 0 && seq::gt(s.seq, client.isn);
            let again = s.len() > 0 && (own || !self.config.inline);
            let from = if again { s.end() } else { s.seq };
            let in_window = seq::geq(from, client.last_ack) && seq::leq(s.end(), client.edge);
            // The server may have more room than it announced: the data is kept with a doubt.
            let near = again && seq::gt(s.end(), client.edge) && may_be_taken(session, s);
            let mut ack_ok = s.ack == session.peers[1].next_seq
                || (session.flags & flag::MIDSTREAM != 0 && seq::gt(s.ack, session.peers[1].isn));
            if !ack_ok && let Some(other) = queued(session, true, s.ack) {
                // Inline, data that came with the first SYN/ACK was read already.
                out.untaken |= self.not_taken(&mut session.peers[1]) && self.config.inline;
                syn_ack(session, &other);
                ack_ok = true;
            }
            if !ack_ok || !(in_place || in_window) {
                let right_seq = in_place && s.seq != session.peers[0].isn;
                self.event(out, if right_seq { E::Hs3RightSeqWrongAckEvasion } else { E::Hs3WrongSeqWrongAck });
                if !(ack_ok && near) {
                    return false;
                }
            }
            let server = &mut session.peers[1];
            if !self.config.inline && server.data.is_some() && s.ack == server.isn.wrapping_add(1) {
                // Data came with the SYN/ACK; clients do not accept it.
                let (edge, window) = (server.edge, server.window);
                self.not_taken(server);
                (server.edge, server.window) = (edge, window);
            }
        } else {
            // The server continues before the client's acknowledgment was seen. Either the sensor missed the
            // acknowledgment, or this packet is forged.
            let (client, server) = (&session.peers[0], &session.peers[1]);
            let client_ack = s.ack == client.next_seq || s.ack == client.last_ack;
            if s.seq == client.next_seq && s.ack == server.next_seq && !client_ack {
                // The client's own acknowledgment, sent in the wrong direction.
                return false;
            }
            let in_place = s.seq == server.next_seq && client_ack;
            // If the client's packets are not seen, any of the window may be next.
            let in_window = seq::geq(s.seq, server.next_seq) && seq::leq(s.seq, server.edge);
            // Passive, an acknowledgment of data shows that the sensor missed the client's acknowledgment and the data.
            let missed =
                !self.config.inline && in_window && seq::gt(s.ack, client.next_seq) && seq::leq(s.ack, client.edge);
            if !(in_place || missed || session.flags & flag::MIDSTREAM != 0 && in_window) {
                if client_ack || seq::geq(s.seq, server.next_seq) && seq::leq(s.end(), server.edge) {
                    self.event(out, E::Hs3WrongSeqWrongAck);
                }
                return false;
            }
            if self.config.inline
                && s.len() > 0
                && session.flags & (flag::FAST_OPEN | flag::SYN_DATA | flag::MIDSTREAM) == 0
            {
                self.event(out, E::Hs3AckDataInject);
                out.drop = true;
                return false;
            }
            if s.len() == 0 && !missed && session.flags & flag::MIDSTREAM == 0 {
                return true;
            }
        }
        session.queue.clear();
        session.state = TcpState::Established;
        if out.doubt & doubt::TIME != 0 {
            session.peers[from].flags |= peer_flag::OPENS_DOUBTFULLY;
        }
        if from == 0 && session.flags & flag::MIDSTREAM == 0 {
            // This window counts, not that of the SYN, which is never scaled.
            let server = &mut session.peers[1];
            server.edge = server.next_seq;
        }
        self.in_established(session, s, out)
    }
}

impl Queued {
    pub(crate) fn of(s: &Segment<'_>) -> Queued {
        Queued {
            syn_ack: s.has(tcp::ACK),
            seq: s.seq,
            ack: s.ack,
            window: u32::from(s.window),
            wscale: s.options.window_scale,
            timestamp: s.options.timestamp.map(|t| t.0),
            secs: s.time.secs() as u32,
            sack: s.options.sack_ok,
        }
    }
}

/// The stored SYN/ACK, or SYN, that this number acknowledges.
fn queued(session: &TcpSession, syn_ack: bool, ack: u32) -> Option<Queued> {
    session.queue.iter().find(|q| q.syn_ack == syn_ack && ack == q.seq.wrapping_add(1)).copied()
}

/// Makes the handshake one of three packets if the client acknowledges the server's stored SYN/ACK and did not answer its SYN,
/// which it did not accept then. Returns whether it is one.
fn takes_answer(session: &mut TcpSession, s: &Segment<'_>) -> bool {
    let waits = session.flags & flag::FOUR_WAY != 0 || session.state == TcpState::SynSent;
    if !waits || s.from != 0 || s.has(tcp::SYN) || !s.has(tcp::ACK) {
        return false;
    }
    let Some(answer) = queued(session, true, s.ack) else { return false };
    session.flags &= !flag::FOUR_WAY;
    let client = &session.peers[0];
    if client.last_ts != 0 || client.has(peer_flag::ZERO_TIMESTAMP) {
        session.flags |= flag::TIMESTAMP;
    }
    syn_ack(session, &answer);
    true
}

/// Stores the server's parameters from a SYN/ACK.
pub(crate) fn syn_ack(session: &mut TcpSession, q: &Queued) {
    let (client, server) = session.peers.split_at_mut(1);
    let (Some(client), Some(server)) = (client.first_mut(), server.first_mut()) else { return };
    let client_window = server.window;
    server.start(q.seq);
    match q.wscale {
        Some(scale) if session.flags & (flag::SCALED | flag::MIDSTREAM) != 0 => {
            server.wscale = scale.min(MIDSTREAM_SCALE);
        }
        _ => {
            // Windows are scaled only if both sides offer it (RFC 7323 section 2.2).
            server.wscale = 0;
            client.wscale = 0;
        }
    }
    match q.timestamp {
        Some(value) if session.flags & (flag::TIMESTAMP | flag::MIDSTREAM) != 0 => {
            session.flags |= flag::TIMESTAMP;
            (server.last_ts, server.max_ts, server.last_ts_time) = (value, value, q.secs);
            if value == 0 {
                server.flags |= peer_flag::ZERO_TIMESTAMP;
            }
        }
        _ => session.flags &= !flag::TIMESTAMP,
    }
    if !q.sack {
        session.flags &= !flag::SACK;
    }
    client.edge = q.ack;
    client.acked(q.ack, q.window);
    server.edge = server.next_seq;
    let last = server.last_ack;
    server.acked(last, client_window);
}

/// Handles a repeated SYN: the same sequence number, perhaps with other options. Either SYN may have arrived, so the
/// options of both count as offered until the SYN/ACK confirms or rejects them.
pub(crate) fn syn_again(session: &mut TcpSession, s: &Segment<'_>) {
    let client = &mut session.peers[0];
    if let Some((value, _)) = s.options.timestamp {
        if session.flags & flag::TIMESTAMP != 0 {
            // Only a timestamp older than those of both SYNs is certainly old.
            (client.last_ts, client.max_ts) = (seq::min(client.last_ts, value), seq::max(client.max_ts, value));
        } else {
            session.flags |= flag::TIMESTAMP;
            (client.last_ts, client.max_ts) = (value, value);
            client.last_ts_time = s.time.secs() as u32;
        }
        if value == 0 {
            client.flags |= peer_flag::ZERO_TIMESTAMP;
        }
    }
    if let Some(scale) = s.options.window_scale {
        session.flags |= flag::SCALED;
        client.wscale = client.wscale.max(scale.min(MIDSTREAM_SCALE));
    }
    if s.options.sack_ok {
        session.flags |= flag::SACK;
    }
}

/// Restarts the session with the queued SYN that the server answered.
pub(crate) fn restart(counters: &mut StreamCounters, session: &mut TcpSession, q: &Queued) {
    let p = &mut session.peers[0];
    p.start(q.seq);
    p.wscale = q.wscale.unwrap_or(0).min(MIDSTREAM_SCALE);
    if let Some(d) = p.data.take() {
        counters.reassembly_memuse = counters.reassembly_memuse.saturating_sub(d.accounted);
    }
    p.last_ts = q.timestamp.unwrap_or(0);
    (p.max_ts, p.last_ts_time) = (p.last_ts, q.secs);
    set(&mut session.flags, flag::SCALED, q.wscale.is_some());
    set(&mut session.flags, flag::TIMESTAMP, q.timestamp.is_some());
    set(&mut session.flags, flag::SACK, q.sack);
    session.peers[1].window = q.window;
}

pub(crate) fn set(flags: &mut u16, bit: u16, on: bool) {
    if on {
        *flags |= bit;
    } else {
        *flags &= !bit;
    }
}

/// Accounts for data that comes with a SYN.
pub(crate) fn with_data(session: &mut TcpSession, s: &Segment<'_>) {
    if s.payload.is_empty() {
        return;
    }
    session.flags |= flag::SYN_DATA;
    let p = &mut session.peers[s.from];
    p.advance(s.seq.wrapping_add(1).wrapping_add(s.len()));
    p.edge = p.next_seq;
}
