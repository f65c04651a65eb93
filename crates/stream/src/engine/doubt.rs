//! Decides whether a host may discard a segment that passed the checks, and whether a rejected segment may be forwarded.
//!
//! Hosts discard segments for reasons that a sensor cannot always verify. The data of such a segment is kept, but any
//! differing data of a less doubtful segment replaces it (`doubt` in the buffer). Inline, the segment is dropped if a
//! host would not miss it.

use margay_packet::tcp::flag as tcp;

use super::established;
use super::{Segment, StreamEngine};
use crate::peer::peer_flag;
use crate::policy::OsPolicy;
use crate::seq;
use crate::session::{TcpSession, TcpState, flag};

/// The segment acknowledges data that was not sent, or its acknowledgment is more than a window old (RFC 9293 section
/// 3.10.7.4, RFC 5961 section 5.2): hosts discard it.
pub(crate) const ACK: u8 = 1;
/// It is signed and the connection is not, or vice versa (RFC 2385, RFC 5925).
pub(crate) const SIGNED: u8 = 1 << 1;
/// It has a lower TTL than packets of its sender that arrived.
pub(crate) const TTL: u8 = 1 << 2;
/// A window probe: hosts discard its byte if the window is still closed.
pub(crate) const PROBE: u8 = 1 << 3;
/// It reaches beyond the window: some hosts discard it, some accept the part inside, some accept all.
pub(crate) const BEYOND: u8 = 1 << 4;
/// Its timestamp is older than one that the receiver may have recorded (RFC 7323 section 5).
pub(crate) const TIME: u8 = 1 << 5;

/// Its options cannot be read and are long enough for a signature: a host that looks for one discards it (Linux). Or its
/// IPv4 header checksum is wrong.
pub(crate) const BROKEN: u8 = 1 << 6;

/// It came with a SYN: few hosts accept it (RFC 9293 section 3.10.7.3 allows them to keep it; Linux does so only with
/// TCP fast open).
pub(crate) const OPENS: u8 = 1 << 7;

/// Reasons for doubt, from those for which hosts seldom discard a segment to those for which all hosts do.
const RANKED: [u8; 8] = [TTL, PROBE, BEYOND, TIME, BROKEN, OPENS, SIGNED, ACK];

/// How likely hosts are to discard a segment for these reasons: 0 for not at all. The gravest reason decides.
pub(crate) fn rank(doubt: u8) -> u8 {
    if doubt == 0 {
        return 0;
    }
    RANKED.iter().rposition(|reason| doubt & reason != 0).map_or(0, |at| at as u8 + 1)
}

/// Whether every host discards the data of a segment for these reasons.
pub(crate) const fn discarded(doubt: u8) -> bool {
    doubt & (ACK | SIGNED) != 0
}

/// Inline: how much of a rejected segment may be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spare {
    /// It repeats inspected data and may pass.
    Passes,
    /// Its receiver has all of its data, but the data can no longer be compared. It may pass without the data, so that
    /// its sender gets an answer.
    WithoutData,
    /// It has data that was not inspected.
    No,
}

impl StreamEngine {
    /// The reasons why a host may not accept a segment's data, as bits. The checks of windows and timestamps add
    /// [`BEYOND`] and [`TIME`].
    pub(crate) fn doubt(&self, session: &TcpSession, s: &Segment<'_>) -> u8 {
        let mut doubt = 0;
        let other = &session.peers[s.to()];
        if s.ack.wrapping_sub(other.last_ack) > other.next_seq.wrapping_sub(other.last_ack) && is_ack_odd(session, s) {
            doubt |= ACK;
        }
        if s.payload.is_empty() && !s.has(tcp::URG) {
            return doubt;
        }
        let signed = session.flags & flag::SIGNED != 0;
        if s.options.signed != signed && session.flags & flag::MIDSTREAM == 0 {
            doubt |= SIGNED;
        }
        if s.ttl < session.peers[s.from].ttl && s.ttl != 0 {
            doubt |= TTL;
        }
        if established::is_probe(session, s) || established::repeats_probe(session, s) {
            doubt |= PROBE;
        }
        if !self.config.inline && s.is_broken(self.config.checksum_validation) {
            doubt |= BROKEN;
        }
        if s.has(tcp::SYN) {
            doubt |= OPENS;
        }
        doubt
    }

    /// Inline: decides what to forward of a rejected segment. A retransmission, late or with an old timestamp because
    /// the link duplicated or delayed a packet, is no attack. A segment is not spared if it changes earlier data, has
    /// data that was never seen, even if that was acknowledged, or has a FIN that was not accepted before.
    pub(crate) fn spare(&self, session: &TcpSession, s: &Segment<'_>) -> Spare {
        let sender = &session.peers[s.from];
        // A repeated FIN must be at the same place.
        let again = sender.has(peer_flag::FIN) && s.end().wrapping_add(1) == sender.next_seq;
        if s.payload.is_empty() {
            // A host that accepts another FIN reads data after it as if the FIN had no sequence number.
            return if s.has(tcp::FIN) && !again { Spare::No } else { Spare::Passes };
        }
        if session.state < TcpState::Established {
            return Spare::No;
        }
        let (Some(d), Ok(at)) = (sender.data.as_deref(), u64::try_from(sender.offset(s.seq))) else {
            return Spare::No;
        };
        // Nothing beyond the depth is inspected, so only data before it can differ.
        let followed = match self.is_followed(session, s.from) {
            true => s.payload,
            false => {
                let room = usize::try_from(d.buffer.next().saturating_sub(at)).unwrap_or(usize::MAX);
                s.payload.get(..room).unwrap_or(s.payload)
            }
        };
        let (held, same) = d.buffer.compare(at, followed);
        let whole = same && held == followed.len();
        if seq::leq(s.end(), sender.last_ack) {
            let end = at + u64::from(s.len());
            // All of it was accepted, and later acknowledged.
            let taken = end <= d.buffer.next() && d.first_gap.is_none_or(|gap| d.place(end) <= gap);
            return match (whole, taken) {
                (true, _) => Spare::Passes,
                (false, true) => Spare::WithoutData,
                (false, false) => Spare::No,
            };
        }
        if s.flags & (tcp::SYN | tcp::URG | tcp::RST) != 0 || (s.has(tcp::FIN) && !again) {
            return Spare::No;
        }
        if whole { Spare::Passes } else { Spare::No }
    }
}

/// Passive: whether a reset has the number at which, as the other side's acknowledgment says, data ends that the sensor missed.
/// A side that acknowledged no data yet may answer a wrong acknowledgment: its reset has that number, and its handshake goes on.
pub(crate) fn ends_missed(session: &TcpSession, s: &Segment<'_>) -> bool {
    let (own, other) = (&session.peers[s.from], &session.peers[s.to()]);
    let answered = seq::gt(other.last_ack, other.isn.wrapping_add(1));
    let missed = !session.inline() && session.state >= TcpState::Established && seq::gt(own.ahead, own.last_ack);
    answered && missed && s.seq == own.ahead
}

/// Whether a segment acknowledges unsent data, or its acknowledgment is too old.
#[cold]
fn is_ack_odd(session: &TcpSession, s: &Segment<'_>) -> bool {
    let other = &session.peers[s.to()];
    s.has(tcp::ACK)
        && session.state >= TcpState::Established
        && session.flags & flag::ASYNC == 0
        && !other.has(peer_flag::GUESSED | peer_flag::FLOATING)
        && (seq::gt(s.ack, other.next_seq) || too_old(session, s))
}

/// Whether a segment is what its receiver expects in every field that Linux compares on its fast path (header
/// prediction). There, Linux does not check the age of an acknowledgment: it records the timestamp of a segment without
/// data, and accepts data if it has receive memory in reserve.
#[cold]
pub(crate) fn is_predicted(session: &TcpSession, s: &Segment<'_>) -> bool {
    let (own, other) = (&session.peers[s.from], &session.peers[s.to()]);
    let options = s.option_bytes();
    // Timestamps must be the only option, in the layout that hosts use.
    let laid_out = if session.flags & flag::TIMESTAMP != 0 {
        options.len() == 12 && options.starts_with(&[1, 1, 8, 10])
    } else {
        options.is_empty()
    };
    own.policy == OsPolicy::Linux
        && session.state >= TcpState::Established
        && session.state != TcpState::Closed
        && s.flags & !tcp::PSH == tcp::ACK
        && laid_out
        && s.seq == own.expected()
        && seq::leq(s.ack, other.next_seq)
        && own.data.as_ref().is_none_or(|d| !d.buffer.has_early())
        && u32::from(s.window) << own.wscale == other.window
}

/// Whether a segment's acknowledgment is so old that its receiver discards the segment: more than the largest window
/// before the acknowledged data, or before the first byte sent.
fn too_old(session: &TcpSession, s: &Segment<'_>) -> bool {
    let other = &session.peers[s.to()];
    if seq::geq(s.ack, other.last_ack) {
        return false;
    }
    let back = u64::from(other.last_ack.wrapping_sub(s.ack));
    // A host that opened the connection counts its SYN.
    let syn = u64::from(s.to() == 0);
    let sent = if session.flags & flag::MIDSTREAM == 0 { other.acked_bytes() + syn } else { u64::MAX };
    back > sent.min(u64::from(other.max_window))
}
