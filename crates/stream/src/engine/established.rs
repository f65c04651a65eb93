//! Sessions after the handshake: data, closing, resets, and their checks.

use margay_packet::tcp::flag as tcp;

use super::data::FLOAT_KEPT;
use super::doubt;
use super::{Outcome, Segment, StreamEngine};
use crate::event::StreamEvent as E;
use crate::peer::{FLOAT, Peer, peer_flag};
use crate::policy::OsPolicy;
use crate::seq;
use crate::session::{Queued, TcpSession, TcpState, flag};

impl StreamEngine {
    /// Detects retransmitted data; returns whether the receiver has acknowledged all of it.
    pub(crate) fn look_for_retransmission(&mut self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if s.len() == 0
            || s.has(tcp::SYN)
            || s.has(tcp::RST)
            || !(session.state == TcpState::Established || session.state.closing())
        {
            return false;
        }
        let p = &session.peers[s.from];
        // The data acknowledged before a session was picked up is unknown.
        if is_keep_alive(session, s) || p.has(peer_flag::FLOATING) {
            return false;
        }
        // If a capture has acknowledgments before their data, the data is late but not repeated. Suricata reports that
        // as a retransmission too.
        let seen = seq::leq(s.end(), p.next_seq);
        let acknowledged = seq::leq(s.end(), seq::max(p.last_ack, p.ahead));
        if acknowledged {
            self.event(out, E::PktSpuriousRetransmission);
        } else if session.state.closing() && session.state != TcpState::LastAck && seen {
            self.event(out, E::PktRetransmission);
        }
        seen && acknowledged
    }

    /// Whether the acknowledgment is possible: it covers data that was, or could have been, sent.
    fn ack_ok(&mut self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if !s.has(tcp::ACK) {
            return true;
        }
        let other = &session.peers[s.to()];
        if other.has(peer_flag::FLOATING) {
            // The receiver's position was unknown until now.
            return true;
        }
        // It is beyond all that the other side was allowed to send.
        if seq::gt(s.ack, seq::max(other.edge, other.next_seq)) && session.flags & flag::ASYNC == 0 {
            self.event(out, E::PktInvalidAck);
            return false;
        }
        // It is older than anything that can still be in flight (RFC 5961 section 5.2).
        if seq::lt(s.ack, other.last_ack) && other.last_ack.wrapping_sub(s.ack) > 0xffff {
            self.event(out, E::PktInvalidAck);
            return !self.config.inline && doubt::is_predicted(session, s);
        }
        true
    }

    /// Inline: the other side of a connection picked up midstream acknowledges more than was sent since. So the data
    /// that created the session never reached that side, and may be forged. The stream begins at the acknowledgment: a
    /// forged sequence number then neither causes a gap nor uses up the depth.
    #[cold]
    fn begin_at_ack(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        let one_sided = session.flags & flag::ASYNC != 0;
        let other = &mut session.peers[s.to()];
        let ahead = s.ack.wrapping_sub(other.next_seq) as i32;
        if !self.config.inline || one_sided || ahead <= 0 || other.data.is_some() && ahead as u64 <= FLOAT_KEPT {
            return;
        }
        other.isn = s.ack.wrapping_sub(1);
        out.restart |= self.not_taken(other);
    }

    /// Records an acknowledgment and its window.
    fn take_ack(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        if !s.has(tcp::ACK) {
            return;
        }
        let window = u32::from(s.window) << session.peers[s.from].wscale;
        if session.peers[s.to()].has(peer_flag::FLOATING) {
            self.begin_at_ack(session, s, out);
            land(session, s, out);
        }
        let other = &mut session.peers[s.to()];
        if seq::gt(s.ack, other.next_seq) && seq::gt(s.ack, other.last_ack) {
            self.counters.ack_unseen_data += 1;
        } else if other.has(peer_flag::PROBE) && s.ack == other.next_seq {
            other.flags &= !peer_flag::PROBE;
            self.event(out, E::EstAckZwpData);
        }
        other.acked(s.ack, window);
    }

    /// Detects a window that shrinks by more than the newly acknowledged data, on a segment that acknowledges unseen
    /// data. It would make valid later segments look out of window.
    fn bad_window_update(&mut self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let other = &session.peers[s.to()];
        let window = u32::from(s.window) << session.peers[s.from].wscale;
        // The window scale of sessions picked up midstream is unknown, and with one side missing no window is seen.
        let bad = session.flags & (flag::MIDSTREAM | flag::ASYNC) == 0
            && s.has(tcp::ACK)
            && seq::gt(s.ack, other.next_seq)
            && seq::gt(s.ack, other.last_ack)
            // Both windows are rounded by scaling.
            && other.window.saturating_sub(window)
                > s.ack.wrapping_sub(other.last_ack).saturating_add(3.max(1 << session.peers[s.from].wscale));
        if bad {
            self.event(out, E::PktBadWindowUpdate);
        }
        bad
    }

    pub(crate) fn in_established(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let (from, to) = (s.from, s.to());
        if s.has(tcp::SYN) {
            let e = match (s.has(tcp::ACK), from) {
                (true, 0) => E::EstSynackToserver,
                (true, _) if s.ack != session.peers[to].last_ack => E::EstSynackResendWithDifferentAck,
                (true, _) if s.seq != session.peers[from].isn => E::EstSynackResendWithDiffSeq,
                (true, _) => {
                    // The client's acknowledgment was lost.
                    let fresh = session.peers[from].next_seq == session.peers[from].isn.wrapping_add(1);
                    if fresh {
                        return true;
                    }
                    E::EstSynackResend
                }
                (false, 1) => E::EstSynToclient,
                (false, _) if s.seq != session.peers[from].isn => E::EstSynResendDiffSeq,
                (false, _) => E::EstSynResend,
            };
            self.note_syn(session, s);
            self.event(out, e);
            return false;
        }
        if !s.has(tcp::ACK) {
            // Hosts discard it, even with a FIN (RFC 9293 section 3.10.7.4).
            return false;
        }
        if s.has(tcp::FIN) {
            return self.fin(session, s, out);
        }
        if !self.ack_ok(session, s, out) {
            self.event(out, E::EstInvalidAck);
            return false;
        }
        if !self.data_ok(session, s, E::EstPktBeforeLastAck, E::EstPacketOutOfWindow, out) {
            return false;
        }
        // Timestamps from the client were checked already.
        if s.from == 1 && !self.timestamp_ok(session, s, out) {
            return false;
        }
        if self.bad_window_update(session, s, out) {
            // Its receiver accepts the data, whether or not the sensor saw the acknowledged data.
            if !self.config.inline && s.len() > 0 {
                self.take_data(session, s);
                return true;
            }
            return false;
        }
        self.take_data(session, s);
        self.take_ack(session, s, out);
        true
    }

    /// Stores a client's latest SYN on an open connection: the server may answer it.
    pub(crate) fn note_syn(&self, session: &mut TcpSession, s: &Segment<'_>) {
        if s.from == 0 && !s.has(tcp::ACK) {
            session.queue.clear();
            session.queue.push(Queued::of(s));
        }
    }

    /// Whether a segment's data is in the valid range: not wholly before the acknowledged data, and not beyond the
    /// window.
    fn data_ok(&mut self, session: &TcpSession, s: &Segment<'_>, before: E, beyond: E, out: &mut Outcome) -> bool {
        let p = &session.peers[s.from];
        if is_keep_alive(session, s) {
            return true;
        }
        if p.has(peer_flag::FLOATING) && seq::lt(s.end(), p.last_ack) {
            // The first data seen need not be what its receiver expects.
            return u64::from(p.last_ack.wrapping_sub(s.seq)) < FLOAT;
        }
        if seq::lt(s.end(), p.last_ack) {
            if session.flags & flag::ASYNC != 0 {
                return true;
            }
            self.event(out, before);
            return false;
        }
        if session.flags & flag::ASYNC == 0 && seq::gt(s.end(), p.edge) && !is_probe(session, s) {
            self.event(out, beyond);
            out.doubt |= doubt::BEYOND;
            return s.len() > 0 && may_be_taken(session, s);
        }
        true
    }

    /// Records a sender's progress.
    fn take_data(&mut self, session: &mut TcpSession, s: &Segment<'_>) {
        if is_keep_alive(session, s) {
            return;
        }
        let probe = is_probe(session, s);
        let p = &mut session.peers[s.from];
        if probe {
            p.flags |= peer_flag::PROBE;
        }
        if s.len() > 0 {
            p.advance(s.end());
        }
    }

    /// Handles the first FIN of a session.
    pub(crate) fn fin(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if !self.ack_ok(session, s, out) {
            self.event(out, E::FinInvalidAck);
            return false;
        }
        if !self.config.inline && is_client_alone(session, s) {
            // No packet announced a window for it (observed).
            self.event(out, E::FinOutOfWindow);
            if s.len() > 0 {
                self.take_data(session, s);
                self.take_ack(session, s, out);
            }
            return s.len() > 0;
        }
        // A FIN may come before unacknowledged data that was seen, but not before acknowledged data.
        if seq::lt(s.end(), session.peers[s.from].last_ack) && session.flags & flag::ASYNC == 0
            || beyond(session, s, out)
        {
            self.event(out, E::FinOutOfWindow);
            return self.take_without_fin(session, s, out);
        }
        if self.config.inline && session.flags & flag::ASYNC == 0 && seq::lt(s.end(), session.peers[s.from].next_seq) {
            // The engine saw data after this FIN. A host that accepts the FIN reads other bytes than one that does not.
            self.event(out, E::FinOutOfWindow);
            out.drop = self.config.drop_invalid;
            return false;
        }
        if session.flags & flag::ASYNC == 0 && seq::lt(s.end(), session.peers[s.from].next_seq) {
            // No packet shows what a host reads after the FIN.
            self.event(out, E::DataAfterFin);
            session.peers[s.from].flags |= peer_flag::PAST_FIN;
        }
        if out.doubt & doubt::BEYOND != 0 {
            // The receiver may accept the segment or not.
            self.event(out, E::FinOutOfWindow);
        }
        self.take_fin(session, s, out);
        session.state = if s.from == 0 { TcpState::CloseWait } else { TcpState::FinWait1 };
        true
    }

    /// Passive: accepts the data of a segment whose FIN does not fit. A receiver that lacks the data after the FIN may
    /// accept the FIN too.
    fn take_without_fin(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if self.config.inline || seq::lt(s.end(), session.peers[s.from].last_ack) || !may_be_taken(session, s) {
            return false;
        }
        if out.doubt & doubt::ACK == 0 && seq::lt(s.end(), session.peers[s.from].next_seq) {
            // No packet shows what a host reads after the FIN.
            self.event(out, E::DataAfterFin);
            session.peers[s.from].flags |= peer_flag::PAST_FIN;
        }
        if s.len() == 0 {
            // Its urgent pointer counts all the same.
            self.pointer_alone(session, s, out);
            return false;
        }
        self.take_data(session, s);
        if out.doubt & doubt::ACK == 0 {
            self.take_ack(session, s, out);
        }
        true
    }

    /// Whether a FIN is at the end of the sender's data, or after unseen data.
    fn fin_in_place(&mut self, session: &TcpSession, s: &Segment<'_>, e: E, out: &mut Outcome) -> bool {
        let p = &session.peers[s.from];
        let again = p.has(peer_flag::FIN) && seq::lt(s.seq, p.next_seq);
        // The FIN cannot be before data that the other side already has.
        let least = match session.state {
            TcpState::CloseWait => seq::max(p.next_seq, p.last_ack),
            TcpState::FinWait1 => seq::max(p.next_seq, p.last_ack.wrapping_sub(1)),
            _ => p.next_seq,
        };
        if !again && (seq::lt(s.end(), least) || beyond(session, s, out)) {
            self.event(out, e);
            return false;
        }
        true
    }

    fn take_fin(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        // If the client closes first, data of both sides is inspected at its FIN. If the server does, it is inspected
        // when the connection is closed or ends (observed of Suricata 7 and 8). Inline, data is inspected with its
        // packet.
        let client_first = match session.state {
            TcpState::Established => s.from == 0,
            state => matches!(state, TcpState::CloseWait | TcpState::LastAck),
        };
        self.take_ack(session, s, out);
        let p = &mut session.peers[s.from];
        let end = s.end().wrapping_add(1);
        if seq::gt(end, p.next_seq) || !p.has(peer_flag::FIN) {
            p.advance(end);
            p.flags |= peer_flag::FIN;
        }
        out.new_data = [true; 2];
        if client_first {
            for p in &mut session.peers {
                p.flags |= peer_flag::TRIGGER;
            }
        }
    }

    /// Handles packets after one or both sides closed.
    pub(crate) fn in_closing_states(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        use TcpState::{Closed, Closing, FinWait1, FinWait2, LastAck, TimeWait};
        let (from, to) = (s.from, s.to());
        let state = session.state;
        if s.has(tcp::SYN) {
            self.note_syn(session, s);
            self.event(out, E::ShutdownSynResend);
            return false;
        }
        let is_last_ack = from == 0 && s.seq.wrapping_sub(session.peers[0].next_seq.wrapping_sub(1)) <= 1;
        if state == LastAck && !is_last_ack && !s.has(tcp::FIN) && s.len() == 0 {
            // Only the client's last acknowledgment, and data missing before its FIN, can still come.
            let client = &session.peers[0];
            let acks_new = seq::gt(s.ack, client.last_ack) && seq::lt(s.ack, client.next_seq);
            if from == 0 || s.seq != session.peers[1].next_seq || !acks_new {
                let last = from == 1 && s.seq == session.peers[1].next_seq && s.ack == client.next_seq;
                if last && seq::lt(client.last_ack, client.next_seq) {
                    self.take_last_ack(session, s, out);
                }
                return last;
            }
        }
        let (invalid_ack, wrong_seq, wrong_fin, before) = match state {
            FinWait1 => (E::Fin1InvalidAck, E::Fin1AckWrongSeq, E::Fin1FinWrongSeq, E::EstPktBeforeLastAck),
            FinWait2 => (E::Fin2InvalidAck, E::Fin2AckWrongSeq, E::Fin2FinWrongSeq, E::EstPktBeforeLastAck),
            Closing => (E::ClosingInvalidAck, E::ClosingAckWrongSeq, E::ClosingAckWrongSeq, E::EstPktBeforeLastAck),
            LastAck => (E::LastackInvalidAck, E::LastackAckWrongSeq, E::LastackAckWrongSeq, E::EstPktBeforeLastAck),
            TimeWait => (E::TimewaitInvalidAck, E::TimewaitAckWrongSeq, E::TimewaitAckWrongSeq, E::EstPktBeforeLastAck),
            _ => (
                E::ClosewaitInvalidAck,
                E::ClosewaitAckOutOfWindow,
                E::ClosewaitFinOutOfWindow,
                E::ClosewaitPktBeforeLastAck,
            ),
        };
        if !s.has(tcp::ACK) {
            return false;
        }
        let ack_first = matches!(state, FinWait1 | FinWait2) && !s.has(tcp::FIN);
        if ack_first && !self.ack_ok(session, s, out) {
            self.event(out, invalid_ack);
            return false;
        }
        let p = &session.peers[from];
        let again = seq::leq(s.end(), p.next_seq) && p.has(peer_flag::FIN);
        if s.has(tcp::FIN) && !again {
            if !self.fin_in_place(session, s, wrong_fin, out) {
                // Inline, as in `fin`: a host that accepts a FIN with data after it reads other bytes than one that does
                // not.
                out.drop |=
                    self.config.inline && self.config.drop_invalid && seq::lt(s.end(), session.peers[from].next_seq);
                return self.take_without_fin(session, s, out);
            }
        } else if state == TcpState::CloseWait && s.len() > 0 && seq::lt(s.end(), p.last_ack) {
            self.event(out, before);
            return false;
        } else if beyond(session, s, out)
            || (state == TimeWait
                && s.len() == 0
                && (s.seq.wrapping_add(1) != p.next_seq)
                && (s.seq != p.next_seq || seq::lt(s.seq, p.last_ack))
                && !again_fin(s, p))
        {
            self.event(out, wrong_seq);
            return false;
        }
        if out.doubt & doubt::BEYOND != 0 {
            // The receiver may accept the segment or not.
            self.event(out, if s.has(tcp::FIN) && !again { wrong_fin } else { wrong_seq });
        }
        if !ack_first && !self.ack_ok(session, s, out) {
            self.event(out, invalid_ack);
            return false;
        }
        if s.has(tcp::FIN) && !again {
            self.take_fin(session, s, out);
        } else {
            self.take_data(session, s);
            self.take_ack(session, s, out);
        }
        let both = session.peers.iter().all(|p| p.has(peer_flag::FIN));
        let done = |side: usize| {
            let p = &session.peers[side];
            p.has(peer_flag::FIN) && seq::geq(p.last_ack, p.next_seq)
        };
        let (own_done, other_done) = (done(from), done(to));
        // A sender retransmits missing data even after its FIN, and one whose FIN was not accepted continues.
        let goes_on = || {
            !other_done
                || !self.config.inline && !own_done
                || session.peers.iter().any(|p| waits(p) || p.has(peer_flag::PAST_FIN))
        };
        session.state = match state {
            TimeWait if s.has(tcp::FIN) || s.seq != session.peers[from].next_seq || goes_on() => TimeWait,
            TimeWait => Closed,
            // The client's last acknowledgment closes the session.
            LastAck
                if from == 0
                    && !s.has(tcp::FIN)
                    && s.len() == 0
                    && is_last_ack
                    && !goes_on()
                    && seq::geq(session.peers[0].next_seq, session.peers[0].last_ack) =>
            {
                Closed
            }
            LastAck => LastAck,
            Closing if own_done || other_done => TimeWait,
            FinWait1 if both && done(1) => TimeWait,
            FinWait1 if both => Closing,
            FinWait1 if done(1) => FinWait2,
            FinWait2 if both => TimeWait,
            TcpState::CloseWait if both => LastAck,
            state => state,
        };
        true
    }

    /// The server acknowledges the client's FIN. The connection is then over if the client has acknowledged the server's
    /// FIN.
    fn take_last_ack(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        self.take_ack(session, s, out);
        let ended = |p: &Peer| p.has(peer_flag::FIN) && !p.has(peer_flag::PAST_FIN) && seq::geq(p.last_ack, p.next_seq);
        if session.peers.iter().all(|p| ended(p) && !waits(p)) {
            session.state = TcpState::Closed;
        }
    }

    /// Passive: whether the receiver of a reset discards it because of its headers. If that is uncertain, later data
    /// shows whether the reset took effect ([`StreamEngine::goes_on`]).
    fn is_reset_discarded(&self, session: &TcpSession, s: &Segment<'_>) -> bool {
        let unasked = s.options.signed && session.flags & (flag::SIGNED | flag::MIDSTREAM) == 0;
        !self.config.inline
            && session.state != TcpState::SynSent
            && (unasked || s.is_broken(self.config.checksum_validation))
    }

    /// Handles a reset: checks whether the receiver would accept it (RFC 9293 section 3.5.3, RFC 5961 section 3).
    pub(crate) fn reset(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        if self.is_reset_discarded(session, s) {
            if s.has(tcp::ACK) {
                // If its sender continues, the reset was forged or unintended.
                session.peers[s.from].flags |= peer_flag::RST_SENT;
            }
            return false;
        }
        if !reset_ok(session, s) {
            if s.has(tcp::ACK) && (session.state == TcpState::SynSent || !acks_what_is_possible(session, s)) {
                self.event(out, E::PktInvalidAck);
                self.event(out, E::RstInvalidAck);
            }
            return false;
        }
        if s.has(tcp::ACK) && session.state >= TcpState::Established {
            let other = &session.peers[s.to()];
            if seq::leq(s.ack, other.next_seq) && seq::gt(s.ack, other.last_ack) {
                let window = other.window;
                session.peers[s.to()].acked(s.ack, window);
            }
        }
        if session.state == TcpState::TimeWait && s.seq != session.peers[s.from].last_ack {
            // A reset must not shorten the wait (RFC 1337).
            return true;
        }
        if s.has(tcp::ACK) {
            session.peers[s.from].flags |= peer_flag::RST_SENT;
        }
        session.peers[s.from].flags |= peer_flag::RESET;
        session.state = TcpState::Closed;
        true
    }
}

/// Handles the first acknowledgment for a side that was picked up midstream. It shows where the stream begins: the
/// receiver already has all earlier data.
#[cold]
fn land(session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
    let (at_once, inline) = (session.at_once(), session.flags & flag::INLINE != 0);
    let other = &mut session.peers[s.to()];
    other.last_ack = seq::min(s.ack, other.next_seq);
    other.ahead = other.last_ack;
    if !at_once {
        other.begin_at(Some(s.ack));
    } else if session.flags & flag::ASYNC == 0 {
        let before = u64::try_from(-other.offset(s.ack)).unwrap_or(0);
        if before > 0 {
            let read = other.data.is_some();
            out.restart |= other.begin_before(before, inline) && read;
        }
        other.flags &= !peer_flag::FLOATING;
    }
}

/// Whether the receiver's system accepts a reset's sequence number.
fn reset_ok(session: &TcpSession, s: &Segment<'_>) -> bool {
    let (own, other) = (&session.peers[s.from], &session.peers[s.to()]);
    if session.state == TcpState::SynSent {
        // A server's reset must acknowledge the SYN; a client's must revoke the SYN with the SYN's own number. A
        // client's reset with a later number answers a packet that the engine ignored.
        return if s.from == 1 {
            s.has(tcp::ACK) && seq::leq(s.ack, other.next_seq) && seq::gt(s.ack, other.isn)
        } else {
            !s.has(tcp::ACK) && s.seq == own.isn
        };
    }
    if session.flags & flag::ASYNC != 0 {
        return seq::geq(s.seq, own.next_seq);
    }
    if s.has(tcp::ACK) && s.ack != 0 && seq::gt(s.ack, seq::max(other.edge, other.next_seq)) {
        return false;
    }
    // RFC 5961: only the expected number closes the connection. A host answers any other number in the window and
    // continues. With selective acknowledgments, the end of the received data counts too, and after a FIN the FIN's
    // number.
    let expected = own.expected();
    let exact = s.seq == expected
        || doubt::ends_missed(session, s)
        || session.flags & flag::SACK != 0 && s.seq == own.next_seq
        || own.has(peer_flag::FIN | peer_flag::FLOATING) && s.seq == own.last_ack
        || own.has(peer_flag::FIN) && !waits(own) && s.seq == expected.wrapping_sub(1);
    // Older systems accept any number in the window.
    match own.policy {
        OsPolicy::Hpux11 => seq::geq(s.seq, own.next_seq),
        OsPolicy::OldLinux | OsPolicy::Solaris | OsPolicy::OldSolaris => {
            exact || seq::geq(s.end(), own.last_ack) && seq::leq(s.seq, seq::max(own.edge, own.next_seq))
        }
        _ => exact,
    }
}

/// Whether a reset's acknowledgment is neither beyond all that the other side could send nor too old to be in flight. A zero
/// acknowledges nothing.
fn acks_what_is_possible(session: &TcpSession, s: &Segment<'_>) -> bool {
    let other = &session.peers[s.to()];
    let old = seq::lt(s.ack, other.last_ack) && other.last_ack.wrapping_sub(s.ack) > 0xffff;
    session.flags & flag::ASYNC != 0 || s.ack == 0 || !old && seq::leq(s.ack, seq::max(other.edge, other.next_seq))
}

/// Whether a segment is so far beyond the receiver's window that no receiver accepts any of it. A segment that only
/// reaches beyond the window gets [`doubt::BEYOND`].
fn beyond(session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
    let p = &session.peers[s.from];
    if session.flags & flag::ASYNC != 0 || seq::leq(s.end(), seq::max(p.edge, p.next_seq)) || is_probe(session, s) {
        return false;
    }
    out.doubt |= doubt::BEYOND;
    s.len() == 0 || !may_be_taken(session, s)
}

/// Whether a segment is of a client whose SYN the sensor saw, in a session without packets of the server.
fn is_client_alone(session: &TcpSession, s: &Segment<'_>) -> bool {
    let [client, server] = &session.peers;
    s.from == 0 && session.flags & flag::ASYNC != 0 && client.tcp_flags & tcp::SYN != 0 && server.tcp_flags == 0
}

/// Passive: whether a receiver may accept data of a segment beyond its window. If the segment begins in the window,
/// some hosts accept the part inside, some accept all. Also, the window may have opened, and the acknowledgment that
/// opened it may reach the sensor later.
pub(crate) fn may_be_taken(session: &TcpSession, s: &Segment<'_>) -> bool {
    let p = &session.peers[s.from];
    let near = seq::leq(s.seq, p.edge.wrapping_add(p.max_window)) || seq::leq(s.seq, p.expected());
    !session.inline() && near && seq::geq(s.end(), p.last_ack)
}

/// Whether data of a side is missing before later data, and is not acknowledged.
pub(crate) fn waits(p: &Peer) -> bool {
    seq::lt(p.expected(), p.next_seq)
}

/// Whether a packet repeats a FIN.
fn again_fin(s: &Segment<'_>, p: &Peer) -> bool {
    s.has(tcp::FIN) && p.has(peer_flag::FIN) && s.end().wrapping_add(1) == p.next_seq
}

/// Whether a segment is a keep-alive (RFC 9293 section 3.8.4).
pub(crate) fn is_keep_alive(session: &TcpSession, s: &Segment<'_>) -> bool {
    let p = &session.peers[s.from];
    s.len() <= 1
        && s.flags & (tcp::SYN | tcp::FIN | tcp::RST) == 0
        && s.seq == p.next_seq.wrapping_sub(1)
        && p.next_seq == p.last_ack
}

/// Whether a segment of any length ends with the byte of a window probe, while the window is still closed.
pub(crate) fn repeats_probe(session: &TcpSession, s: &Segment<'_>) -> bool {
    let p = &session.peers[s.from];
    p.has(peer_flag::PROBE) && p.window == 0 && s.end() == p.next_seq && seq::gt(s.end(), p.last_ack)
}

/// Whether a segment is a zero-window probe (RFC 9293 section 3.8.6.1).
pub(crate) fn is_probe(session: &TcpSession, s: &Segment<'_>) -> bool {
    let p = &session.peers[s.from];
    s.len() == 1 && (p.window == 0 && s.seq == p.next_seq || repeats_probe(session, s))
}
