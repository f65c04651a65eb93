//! Timestamps of segments: which are too old, and which a receiver records.

use margay_packet::tcp::flag as tcp;

use super::doubt;
use super::{Outcome, Segment, StreamEngine};
use crate::event::StreamEvent as E;
use crate::peer::{Peer, TIMESTAMP_AGE_FINE, peer_flag};
use crate::seq;
use crate::session::{TcpSession, TcpState, flag};

/// Seconds after which a timestamp is no longer comparable (RFC 7323 section 5.5: 24 days).
const TIMESTAMP_AGE: u32 = 24 * 86_400;

impl StreamEngine {
    /// Protection against old segments by timestamps (PAWS, RFC 7323 section 5).
    pub(crate) fn timestamp_ok(&mut self, session: &TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let Some((value, echo)) = s.options.timestamp else { return true };
        let p = &session.peers[s.from];
        if session.flags & flag::TIMESTAMP == 0 || self.config.liberal_timestamps || p.last_ts == 0 {
            return true;
        }
        // Hosts with several clocks are sometimes off by one.
        let old = |noted: u32| noted.wrapping_sub(value) as i32 > 1;
        if may_be_opening(session, p) && !self.config.inline {
            let server = &session.peers[1];
            let answers = echo == 0 || seq::geq(echo, server.last_ts) && seq::leq(echo, server.max_ts);
            // Before the handshake is complete, Linux tolerates neither a timestamp that is off by one nor an echo of
            // anything but the SYN/ACK's timestamp.
            if p.max_ts.wrapping_sub(value) == 1 || s.from == 0 && server.last_ts != 0 && !answers {
                out.doubt |= doubt::TIME;
            }
        }
        if !old(p.max_ts) {
            return true;
        }
        // A host that sends zero in its SYN may send zero later.
        if value == 0 && p.has(peer_flag::ZERO_TIMESTAMP) {
            out.doubt |= doubt::TIME;
            return true;
        }
        let age = (s.time.secs() as u32).wrapping_sub(p.last_ts_time);
        if age >= TIMESTAMP_AGE {
            return true;
        }
        self.event(out, E::PktInvalidTimestamp);
        if old(p.last_ts) && age < TIMESTAMP_AGE_FINE || self.config.inline && !was_overtaken(session, s) {
            return false;
        }
        out.doubt |= doubt::TIME;
        true
    }

    /// Records the timestamps of an accepted packet (RFC 7323 section 4.3). `expected` is the sequence number that its
    /// receiver expected before it.
    #[inline]
    pub(crate) fn note_timestamps(session: &mut TcpSession, s: &Segment<'_>, expected: u32) {
        let Some((value, echo)) = s.options.timestamp.filter(|_| session.flags & flag::TIMESTAMP != 0) else { return };
        let secs = s.time.secs() as u32;
        let own = &mut session.peers[s.from];
        // The receiver may record the timestamp of expected or repeated data. Only an echo makes that certain, since
        // hosts discard packets for reasons that a sensor cannot see, and some packets never arrive. Until an echo
        // arrives, the first timestamp counts as recorded. A segment that ends before the acknowledged data is
        // discarded.
        let end = s.end().wrapping_add(s.has(tcp::FIN).into());
        if (seq::leq(s.seq, expected) || seq::leq(s.seq, own.last_ack)) && seq::geq(end, own.last_ack) {
            let latest = own.max_ts;
            own.note_timestamp(value, secs, own.last_ts == 0 && seq::leq(s.seq, own.last_ack));
            if own.max_ts != latest && seq::leq(end, expected) {
                own.flags |= peer_flag::TIMESTAMP_ALONE;
            }
        }
        let other = &mut session.peers[s.to()];
        if s.has(tcp::ACK) && other.last_ts != 0 && seq::geq(echo, other.last_ts) && seq::leq(echo, other.max_ts) {
            if echo != other.last_ts {
                (other.last_ts, other.last_ts_time) = (echo, secs);
            }
            // This packet was sent after all seen data arrived. That need not include a packet without new data.
            if seq::geq(s.ack, other.next_seq) && (!other.has(peer_flag::TIMESTAMP_ALONE) || echo == other.max_ts) {
                other.max_ts = echo;
                other.flags &= !peer_flag::TIMESTAMP_ALONE;
            }
        }
    }
}

/// Whether the handshake may be incomplete for the server: it may have discarded every packet so far for its timestamp,
/// and it has acknowledged nothing.
fn may_be_opening(session: &TcpSession, client: &Peer) -> bool {
    session.state == TcpState::SynRecv
        || client.has(peer_flag::OPENS_DOUBTFULLY) && client.last_ack == client.isn.wrapping_add(1)
}

/// Inline: whether a segment with an old timestamp brings data that was not seen yet, and changes none. It was overtaken on its way,
/// and its receiver accepts it unless the later segment arrived there. If it does not accept it, a later copy is rewritten to
/// this data.
pub(super) fn was_overtaken(session: &TcpSession, s: &Segment<'_>) -> bool {
    if session.state != TcpState::Established || s.flags & (tcp::SYN | tcp::FIN | tcp::RST | tcp::URG) != 0 {
        return false;
    }
    let p = &session.peers[s.from];
    let known = seq::max(s.seq, p.last_ack).wrapping_sub(s.seq) as usize;
    let Some(rest) = s.payload.get(known..).filter(|rest| !rest.is_empty()) else { return false };
    let (Some(d), Ok(at)) = (p.data.as_deref(), u64::try_from(p.offset(s.seq))) else { return true };
    let (held, same) = d.buffer.compare(at + known as u64, rest);
    same && held < rest.len()
}
