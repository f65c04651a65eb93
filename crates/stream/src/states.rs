//! The states of a session: the handshake. What comes after it is in `established.rs`.

use margay_packet::Packet;
use margay_packet::tcp::flag as tcp;

use crate::counters::StreamCounters;
use crate::engine::{Exception, Outcome, Segment, StreamEngine};
use crate::event::StreamEvent as E;
use crate::peer::{FLOAT, Peer, peer_flag};
use crate::session::{Queued, TcpSession, TcpState, flag};
use crate::{doubt, established::may_be_taken, seq};

/// Window scale assumed of sessions whose SYN was not seen: the largest (RFC 7323 section 2.3).
const MIDSTREAM_SCALE: u8 = 14;

impl StreamEngine {
    /// A packet of a flow without a session.
    pub(crate) fn first(
        &mut self,
        session: &mut Option<Box<TcpSession>>,
        packet: &Packet<'_>,
        s: &Segment<'_>,
        out: &mut Outcome,
    ) {
        if s.has(tcp::RST) {
            self.event(out, E::RstButNoSession);
            return;
        }
        // The last of a connection that was in its middle: there is no more to it, but this.
        let pickup = self.config.midstream || self.config.async_oneside;
        let last_data = pickup && s.has(tcp::FIN | tcp::ACK) && !s.payload.is_empty();
        if s.has(tcp::FIN) && !last_data {
            self.event(out, E::FinButNoSession);
            out.exception = Some(Exception::Midstream);
            return;
        }
        if s.has(tcp::SYN | tcp::ACK) {
            out.exception = Some(Exception::Midstream);
            if !pickup {
                return;
            }
            let Some(new) = session.insert_from(self.create(packet, out)) else { return };
            self.counters.midstream_pickups += 1;
            new.flags |= flag::MIDSTREAM;
            let mut s = *s;
            if s.from == 0 {
                // The server's SYN/ACK came first: this is not the client.
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
            if self.config.async_oneside && !self.config.midstream {
                new.flags |= flag::ASYNC;
            }
        } else if s.has(tcp::SYN) {
            let Some(new) = session.insert_from(self.create(packet, out)) else { return };
            new.peers[s.from].tcp_flags |= s.flags;
            out.accepted = true;
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
            // What the other side has of it is not known before it says so.
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
                // Whether the other side notes it is not known.
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

    /// The SYN that opens a session.
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
        // What the other side may send, before it is known whether windows are scaled.
        let to = &mut session.peers[s.to()];
        to.window = u32::from(s.window);
        with_data(session, s);
    }

    /// A packet of a session: whether it belongs to it.
    pub(crate) fn existing(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if session.peers[s.from].has(peer_flag::RST_SENT) && !s.has(tcp::RST) && (s.has(tcp::SYN) || s.len() > 0) {
            // Once is enough.
            session.peers[s.from].flags &= !peer_flag::RST_SENT;
            self.event(out, E::SuspectedRstInject);
            if s.from == 1 && s.has(tcp::SYN | tcp::ACK) && refused(session) {
                // Whoever refused the connection, this one accepts it.
                session.state = TcpState::SynSent;
            }
        }
        if s.from == 1
            && s.flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN | tcp::ACK
            && session.peers[0].has(peer_flag::RESET)
            && s.ack == session.peers[0].next_seq
            && (refused(session) || session.state == TcpState::Closed && is_opening(session))
        {
            // The client's reset may have been its answer to something else than its own SYN. If not it resets this as well.
            session.peers[0].flags &= !(peer_flag::RESET | peer_flag::RST_SENT);
            session.state = TcpState::SynSent;
        }
        if session.peers[s.from].has(peer_flag::GUESSED) {
            heard_of(&mut session.peers[s.from], s);
        }
        if self.config.inline
            && session.flags & flag::ASYNC != 0
            && session.peers.iter().all(|p| p.tcp_flags != 0)
            && !s.has(tcp::RST)
        {
            // Both sides are seen here after all.
            session.flags &= !flag::ASYNC;
        }
        let spurious = self.look_for_retransmission(session, s, out);
        if s.has(tcp::RST) && s.len() > 0 {
            self.event(out, E::RstWithData);
        }
        if session.state == TcpState::Closed {
            // Inline it may open another connection: see `is_reuse`.
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
            // The side that knows the SYN would not answer with a timestamp that is none of it.
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
            // Who opened the connection takes it as a SYN, or SYN/ACK (RFC 9293 section 3.10.7.3 says nothing of the FIN).
            without_fin = Segment { flags: s.flags & !tcp::FIN, ..*s };
            &without_fin
        } else {
            s
        };
        let sender = &mut session.peers[s.from];
        if sender.has(peer_flag::FIN) {
            let behind = s.len() > 0 && seq::geq(s.end(), sender.next_seq);
            // Linux may read data behind a FIN as if that took no number, or was not there. Of two FINs at different places one has data
            // behind it.
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
            // It ended elsewhere.
            self.event(out, E::FinOutOfWindow);
            out.drop = self.config.drop_invalid;
            return false;
        }
        let acked_before = session.peers[s.to()].ahead;
        let expected = if s.options.timestamp.is_some() { session.peers[s.from].expected_at_most() } else { 0 };
        out.doubt |= self.doubt(session, s);
        // Before anything of it is noted.
        let predicted = out.doubt & doubt::ACK != 0 && !self.config.inline && doubt::is_predicted(session, s);
        let ok = match session.state {
            TcpState::None => false,
            TcpState::SynSent => self.in_syn_sent(session, s, out),
            TcpState::SynRecv => self.in_syn_recv(session, s, out),
            TcpState::Established => self.in_established(session, s, out),
            TcpState::Closed => false,
            _ => self.in_closing_states(session, s, out),
        };
        if !ok {
            if s.has(tcp::FIN | tcp::ACK) && out.doubt & doubt::ACK == 0 && !self.config.inline {
                self.note_refused(session, s);
            }
            return false;
        }
        if out.doubt & doubt::ACK != 0 && !self.config.inline && s.len() > 0 && is_ack_old(session, s) {
            // Whether its receiver looks at the acknowledgment depends on its memory.
            self.event(out, E::PktInvalidAck);
        }
        // Who acknowledges the same twice may have read what went by while the engine was not there: a connection is not cut for that.
        // A host that discards it after all reads what is inspected here, whatever is sent in its place later.
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
            // It was looked at in the stream: rules on that do not look at it again, as in Suricata.
            out.in_stream = !self.config.inline;
            return false;
        }
        true
    }

    /// Passive: a FIN that does not fit. Where it repeats what its receiver has that may note its timestamp all the same.
    fn note_refused(&self, session: &mut TcpSession, s: &Segment<'_>) {
        let own = &mut session.peers[s.from];
        let again = seq::leq(s.seq, own.expected()) && seq::geq(s.end().wrapping_add(1), own.last_ack);
        if let Some((value, _)) = s.options.timestamp.filter(|_| again && session.flags & flag::TIMESTAMP != 0) {
            let latest = own.max_ts;
            own.note_timestamp(value, s.time.secs() as u32, false);
            if own.max_ts != latest {
                own.flags |= peer_flag::TIMESTAMP_ALONE;
            }
        }
    }

    fn in_syn_sent(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        if s.has(tcp::SYN | tcp::ACK) {
            if session.flags & flag::FOUR_WAY != 0 {
                return self.four_way_syn_ack(session, s, out);
            }
            if from == 0 {
                self.event(out, E::Hs3SynackInWrongDirection);
                return false;
            }
            let client = &session.peers[0];
            let first = client.isn.wrapping_add(1);
            let plain = s.ack == first;
            let data = seq::gt(s.ack, first) && seq::leq(s.ack, client.next_seq) || s.ack == client.next_seq;
            if !plain && !data {
                // Another SYN of the client may be the one that is answered.
                let other = session.queue.iter().find(|q| !q.syn_ack && s.ack == q.seq.wrapping_add(1)).copied();
                let Some(other) = other else {
                    self.event(out, E::Hs3SynackWithWrongAck);
                    return false;
                };
                restart(&mut self.counters, session, &other);
            } else if plain && !data {
                // Fast open, but only the SYN was acknowledged: its data does not count.
                self.event(out, E::Hs3SynackTfoDataIgnored);
                session.flags = session.flags & !flag::FAST_OPEN | flag::DATA_IGNORED;
                if self.not_taken(&mut session.peers[0]) && self.config.inline {
                    // It was read at once.
                    session.flags |= flag::UNTAKEN;
                }
            }
            session.queue.clear();
            syn_ack(session, &Queued::of(s));
            // A server that signs answers a SYN that is signed, and no other.
            set(&mut session.flags, flag::SIGNED, s.options.signed);
            session.state = TcpState::SynRecv;
            return true;
        }
        if s.has(tcp::SYN) {
            if from == 0 {
                if s.seq != session.peers[0].isn {
                    // Data of it would have to be kept beside that of the first.
                    out.without_data = self.config.inline && !s.payload.is_empty();
                    return self.queue(session, Queued::of(s), out);
                }
                with_data(session, s);
                syn_again(session, s);
                return true;
            }
            // Simultaneous or split handshake (RFC 9293 section 3.5): the server opens too.
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
        if s.has(tcp::FIN) || !s.has(tcp::ACK) {
            return false;
        }
        if from == 0 && self.config.async_oneside {
            // The server's side is not seen at all.
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

    /// The data that came with a side's SYN was not taken by the other: its stream begins with what comes next. Whether there was any.
    pub(crate) fn not_taken(&mut self, p: &mut Peer) -> bool {
        let data = p.data.take();
        if let Some(d) = &data {
            self.counters.reassembly_memuse = self.counters.reassembly_memuse.saturating_sub(d.accounted);
        }
        let isn = p.isn;
        p.start(isn);
        data.is_some()
    }

    /// The answer to the server's own SYN, from either side.
    fn four_way_syn_ack(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        if s.ack != session.peers[to].isn.wrapping_add(1) {
            self.event(out, E::Hs4SynackWithWrongAck);
            return false;
        }
        if s.seq != session.peers[from].isn {
            self.event(out, E::Hs4SynackWithWrongSyn);
            return false;
        }
        // Whether there are timestamps the SYNs have said.
        let window = u32::from(s.window);
        session.peers[to].acked(s.ack, window);
        session.state = TcpState::SynRecv;
        true
    }

    /// Keeps a SYN or SYN/ACK that differs from the one before.
    fn queue(&mut self, session: &mut TcpSession, q: Queued, out: &mut Outcome) -> bool {
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
            // The latest SYN is the one most likely to be answered: the oldest makes room.
            if let Some(oldest) = list.iter().position(|o| !o.syn_ack) {
                list.remove(oldest);
            }
        }
        if !known {
            list.push(q);
        }
        true
    }

    fn in_syn_recv(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
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
                // The server gave up the connection that it answered first, and answers another SYN: it does so of its own accord alone.
                let other = session.queue.iter().find(|q| !q.syn_ack && s.ack == q.seq.wrapping_add(1)).copied();
                if let Some(other) = other.filter(|_| s.seq != session.peers[1].isn) {
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
            // A host takes what is behind its peer's SYN of a segment that begins before it.
            let reaches = !self.config.inline && seq::lt(s.seq, next) && seq::gt(s.end(), next);
            if s.seq != next && !reaches {
                self.event(out, E::Hs4WrongSeq);
                return false;
            }
            if s.ack != session.peers[to].next_seq {
                self.event(out, E::Hs4InvalidAck);
                return false;
            }
        } else if from == 0 {
            let client = &session.peers[0];
            // One less is a keep-alive; more is data after an acknowledgment that was lost.
            let in_place = s.seq == client.next_seq || s.seq == client.isn;
            // Some of it may be data that came with the SYN, once more, or before all that its receiver expects.
            let own = session.flags & flag::SYN_DATA != 0 && seq::gt(s.seq, client.isn);
            let again = s.len() > 0 && (own || !self.config.inline);
            let from = if again { s.end() } else { s.seq };
            let in_window = seq::geq(from, client.last_ack) && seq::leq(s.end(), client.edge);
            // The server may have room for more than it said: its data is kept with a doubt.
            let near = again && seq::gt(s.end(), client.edge) && may_be_taken(session, s);
            let mut ack_ok = s.ack == session.peers[1].next_seq
                || (session.flags & flag::MIDSTREAM != 0 && seq::gt(s.ack, session.peers[1].isn));
            if !ack_ok {
                let other = session.queue.iter().find(|q| q.syn_ack && s.ack == q.seq.wrapping_add(1)).copied();
                if let Some(other) = other {
                    syn_ack(session, &other);
                    ack_ok = true;
                }
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
                // Data came with the SYN/ACK; clients do not take it.
                let (edge, window) = (server.edge, server.window);
                self.not_taken(server);
                (server.edge, server.window) = (edge, window);
            }
        } else {
            // The server goes on before the client's acknowledgment was seen: it was lost, or this is somebody else.
            let (client, server) = (&session.peers[0], &session.peers[1]);
            let client_ack = s.ack == client.next_seq || s.ack == client.last_ack;
            if s.seq == client.next_seq && s.ack == server.next_seq && !client_ack {
                // The client's own acknowledgment, sent the wrong way.
                return false;
            }
            let in_place = s.seq == server.next_seq && client_ack;
            if !in_place && (session.flags & flag::MIDSTREAM == 0 || seq::lt(s.seq, server.next_seq)) {
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
            if s.len() == 0 && session.flags & flag::MIDSTREAM == 0 {
                return true;
            }
        }
        session.queue.clear();
        session.state = TcpState::Established;
        if out.doubt & doubt::TIME != 0 {
            session.peers[from].flags |= peer_flag::OPENS_DOUBTFULLY;
        }
        if from == 0 && session.flags & flag::MIDSTREAM == 0 {
            // The window that counts is this one, not the SYN's, which is never scaled.
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

/// Takes what a SYN/ACK says of the server.
fn syn_ack(session: &mut TcpSession, q: &Queued) {
    let (client, server) = session.peers.split_at_mut(1);
    let (Some(client), Some(server)) = (client.first_mut(), server.first_mut()) else { return };
    let client_window = server.window;
    server.start(q.seq);
    match q.wscale {
        Some(scale) if session.flags & (flag::SCALED | flag::MIDSTREAM) != 0 => {
            server.wscale = scale.min(MIDSTREAM_SCALE);
        }
        _ => {
            // Both must scale, or none does (RFC 7323 section 2.2).
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

/// A SYN that repeats the number of the first one, maybe with other options. Either may have arrived: what one of them offers the SYN/ACK
/// takes up or not.
fn syn_again(session: &mut TcpSession, s: &Segment<'_>) {
    let client = &mut session.peers[0];
    if let Some((value, _)) = s.options.timestamp {
        if session.flags & flag::TIMESTAMP != 0 {
            // What is older than the older one is old.
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

/// A queued SYN turned out to be the one that counts.
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

/// A side sends something whose numbers were known from the other side alone: what that has acknowledged need not have been sent.
fn heard_of(own: &mut Peer, s: &Segment<'_>) {
    if s.has(tcp::RST) {
        return;
    }
    own.flags &= !peer_flag::GUESSED;
    let alive = s.len() <= 1 && s.seq == own.next_seq.wrapping_sub(1);
    if own.data.is_none() && seq::lt(s.seq, own.next_seq) && !alive {
        let (said, edge) = (own.next_seq, own.edge);
        own.start(s.seq.wrapping_sub(1));
        own.ahead = said;
        own.edge = seq::max(own.edge, edge);
    }
}

/// Whether a segment has a FIN at another place than the one that was seen, which its receiver has not acknowledged.
fn is_other_fin(sender: &Peer, s: &Segment<'_>) -> bool {
    let end = s.end().wrapping_add(1);
    s.has(tcp::FIN | tcp::ACK)
        && sender.has(peer_flag::FIN)
        && end != sender.next_seq
        && seq::gt(end, sender.last_ack)
        && seq::lt(sender.last_ack, sender.next_seq)
}

/// Whether a segment acknowledges less than was acknowledged.
fn is_ack_old(session: &TcpSession, s: &Segment<'_>) -> bool {
    seq::lt(s.ack, session.peers[s.to()].last_ack)
}

/// Whether both sides had sent a SYN, and no data since.
const fn is_opening(session: &TcpSession) -> bool {
    let [client, server] = &session.peers;
    let nothing = server.next_seq == server.isn.wrapping_add(1) && client.next_seq == client.isn.wrapping_add(1);
    session.flags & flag::FOUR_WAY != 0 && nothing
}

/// Whether a connection is over that nobody but the client ever opened.
const fn refused(session: &TcpSession) -> bool {
    let server = &session.peers[1];
    matches!(session.state, TcpState::Closed) && server.isn == 0 && server.next_seq == 0 && server.last_ack == 0
}

fn set(flags: &mut u16, bit: u16, on: bool) {
    if on {
        *flags |= bit;
    } else {
        *flags &= !bit;
    }
}

/// Takes the length of the data that comes with a SYN.
fn with_data(session: &mut TcpSession, s: &Segment<'_>) {
    if s.payload.is_empty() {
        return;
    }
    session.flags |= flag::SYN_DATA;
    let p = &mut session.peers[s.from];
    p.advance(s.seq.wrapping_add(1).wrapping_add(s.len()));
    p.edge = p.next_seq;
}

/// Puts a session in place, where there is one.
trait InsertFrom<T> {
    fn insert_from(&mut self, value: Option<T>) -> Option<&mut T>;
}

impl<T> InsertFrom<T> for Option<T> {
    fn insert_from(&mut self, value: Option<T>) -> Option<&mut T> {
        Some(self.insert(value?))
    }
}
