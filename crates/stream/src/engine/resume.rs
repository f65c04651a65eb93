//! Resumes connections: after a silence longer than the flow timeout, after eviction, or after a reset that the host
//! ignored.
//!
//! A host keeps a connection as long as it likes, but a flow times out. The essential state of an open connection fits
//! a cache line: for each side, the acknowledged sequence number, the window and the timestamps. [`Remembered`] stores
//! that in a table of fixed size. When a matching packet arrives, the session continues from that state. Unlike a
//! midstream pickup, this guesses nothing and works with `stream.midstream` off. The state of the application layer is
//! lost.
//!
//! A handshake that the server answered is remembered too, because a server waits longer for the client's
//! acknowledgment than the flow lives. Such entries never evict established connections, so a SYN flood cannot make the
//! engine forget those.

use margay_flow::Direction;
use margay_packet::Packet;
use margay_packet::tcp::flag as tcp;

use super::established::waits;
use super::states::MIDSTREAM_SCALE;
use super::{Outcome, Segment, StreamEngine};
use crate::buffer::StreamBuffer;
use crate::peer::{Peer, TIMESTAMP_AGE_FINE, TS_SPAN, peer_flag};
use crate::seq;
use crate::session::{TcpSession, TcpState, flag};

/// Entries per set.
const WAYS: usize = 4;
/// The bits of [`TcpSession::flags`] that are remembered.
const KEPT: u16 = flag::TIMESTAMP | flag::SACK | flag::SIGNED | flag::SCALED;

/// One side as a sender.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    isn: u32,
    /// The other side's highest acknowledgment.
    next: u32,
    sent: Ahead,
    edge: u32,
    /// The latest timestamp that the other side may have recorded; 0 for none.
    ts: u32,
}

/// The unacknowledged bytes of a side up to the first hole, and its FIN, in 32 bits. The low 30 bits hold the number of bytes.
/// If data before the FIN is missing, their upper half holds the FIN's distance from the acknowledged bytes; a long distance
/// takes all 30 bits.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead(u32);

/// The bit of [`Ahead`] for a FIN right after the bytes. No window is so large that bytes need this bit or the next.
const FIN: u32 = 1 << 31;
/// The bit of [`Ahead`] for an early FIN; with [`FIN`], for one that is far.
const EARLY_FIN: u32 = 1 << 30;
/// Bits for the bytes beside an early FIN.
const NEAR: u32 = 15;

impl Ahead {
    const fn in_order(bytes: u32, fin: bool) -> Ahead {
        Ahead(if fin { bytes | FIN } else { bytes })
    }

    /// For a FIN at a distance from the acknowledged bytes. If there is room for the distance or the bytes only, the FIN
    /// matters inline, where data after it is rejected, and the bytes otherwise.
    fn early_fin(bytes: u32, distance: u32, inline: bool) -> Ahead {
        if bytes < 1 << NEAR && distance < 1 << NEAR {
            Ahead(EARLY_FIN | distance << NEAR | bytes)
        } else if distance < EARLY_FIN && (inline || bytes == 0) {
            Ahead(FIN | EARLY_FIN | distance)
        } else {
            Ahead::in_order(bytes, false)
        }
    }

    const fn bytes(self) -> u32 {
        match self.0 & (FIN | EARLY_FIN) {
            EARLY_FIN => self.0 & ((1 << NEAR) - 1),
            0 | FIN => self.0 & !FIN,
            _ => 0,
        }
    }

    /// The distance of an early FIN from the acknowledged bytes.
    const fn distance(self) -> Option<u32> {
        match self.0 & (FIN | EARLY_FIN) {
            EARLY_FIN => Some((self.0 & !EARLY_FIN) >> NEAR),
            0 | FIN => None,
            _ => Some(self.0 & !(FIN | EARLY_FIN)),
        }
    }

    /// Whether the side sent a FIN, early or not.
    const fn has_fin(self) -> bool {
        self.0 & (FIN | EARLY_FIN) != 0
    }

    /// Whether a FIN follows the bytes.
    const fn ends(self) -> bool {
        self.0 & (FIN | EARLY_FIN) == FIN
    }
}

/// A connection that may be resumed.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The part of the hash of addresses and ports that does not select the set; 0 for a free entry.
    tag: u32,
    /// When it was stored, in seconds.
    secs: u32,
    /// When the older of both sides' timestamps was sent, in seconds.
    last_ts_time: u32,
    bits: u16,
    /// For each side as a sender, the other side's largest window as in the header (unscaled), rounded up.
    max_window: [u16; 2],
    /// For each side as a sender, the distance from [`Side::next`] to the byte of a pending urgent pointer, plus 1; 0 if
    /// there is none or it is too far.
    urgent: [[u8; 3]; 2],
    sides: [Side; 2],
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Bits of [`Entry::bits`]. The lowest four are the remembered [`TcpSession::flags`]; the highest eight are the window
/// shifts of client and server.
mod bit {
    use super::flag;

    /// The server answered the SYN, and the client sent nothing since.
    pub(super) const OPENING: u16 = 1 << 4;
    /// The client is the second end of the flow's key.
    pub(super) const CLIENT_SECOND: u16 = 1 << 5;
    /// It is uncertain whether the other side recorded the client's [`super::Side::ts`]; the bit shifted by 1 is for the
    /// server's.
    pub(super) const TS_DOUBTFUL: u16 = 1 << 6;
    /// Position of the client's window shift; the server's follows. No shift is 15 (RFC 7323 section 2.3): in the client's
    /// place that says that the connection was dropped, and the server's place has the reason.
    pub(super) const SCALE: u32 = 8;
    /// The bits of both shifts.
    pub(super) const SCALES: u16 = 0xff << SCALE;
    /// The client's shift of a dropped connection.
    pub(super) const DROPPED: u16 = 15 << SCALE;

    const LOW: u16 = flag::TIMESTAMP | flag::SACK;
    const HIGH: u16 = flag::SIGNED | flag::SCALED;
    const _: () = assert!(LOW == 0b11 << 3 && HIGH == 0b11 << 11 && super::KEPT == LOW | HIGH);

    pub(super) const fn of_session(flags: u16) -> u16 {
        (flags & LOW) >> 3 | (flags & HIGH) >> 9
    }

    pub(super) const fn to_session(bits: u16) -> u16 {
        (bits & 0b11) << 3 | (bits & 0b1100) << 9
    }
}

/// Connections that may be resumed, by a hash of addresses and ports. The hash needs a secret seed: otherwise an
/// attacker could choose which connections are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// Empty until the first connection is stored.
    entries: Vec<[Entry; WAYS]>,
    /// The number of sets.
    sets: usize,
    len: usize,
}

impl Remembered {
    /// A table for this many connections; 0 disables it.
    pub(crate) const fn new(connections: usize) -> Remembered {
        Remembered { entries: Vec::new(), sets: connections.div_ceil(WAYS), len: 0 }
    }

    fn set(&mut self, print: u64) -> Option<&mut [Entry; WAYS]> {
        // The low half of the hash selects the set, since [`tag`] uses the high half.
        let n = (u128::from(print.rotate_left(32)) * self.entries.len() as u128) >> 64;
        self.entries.get_mut(n as usize)
    }

    /// Stores an entry. In a full set it replaces the oldest entry, handshakes first. A handshake never evicts an
    /// established connection. Returns whether a connection was lost: the evicted one, or the handshake itself if the
    /// set is full of established connections.
    fn keep(&mut self, print: u64, entry: Entry) -> bool {
        if self.entries.is_empty() {
            self.entries = vec![[Entry::default(); WAYS]; self.sets];
        }
        let Some(set) = self.set(print) else { return false };
        let at = set.iter().position(|e| e.tag == entry.tag).or_else(|| set.iter().position(|e| e.tag == 0));
        let oldest = || set.iter().enumerate().min_by_key(|(_, e)| (!e.is_opening(), e.secs)).map_or(0, |(i, _)| i);
        let at = at.unwrap_or_else(oldest);
        let Some(place) = set.get_mut(at) else { return false };
        let other = place.tag != 0 && place.tag != entry.tag;
        if other && entry.is_opening() && !place.is_opening() {
            return true;
        }
        let before = std::mem::replace(place, entry).tag;
        self.len += usize::from(before == 0);
        other
    }

    fn get(&mut self, print: u64) -> Option<&mut Entry> {
        self.set(print)?.iter_mut().find(|e| e.tag == tag(print))
    }

    /// Removes and returns a connection's entry if `fits` accepts it.
    fn take(&mut self, print: u64, fits: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let place = self.get(print)?;
        if !fits(place) {
            return None;
        }
        let entry = std::mem::take(place);
        self.len -= 1;
        Some(entry)
    }
}

/// Identifies a flow in the table of resumable connections.
#[derive(Debug, Clone, Copy)]
pub struct FlowPrint {
    /// The hash of the flow's key, equal in both directions. 0 counts as 1.
    pub hash: u64,
    /// Which end of the key: for [`StreamEngine::resume`], whether the packet's source is the second end; for
    /// [`StreamEngine::remember`], whether the flow's client is.
    pub second: bool,
}

/// Distinguishes the connections of a set: the bits of the hash that do not select the set; never 0.
const fn tag(print: u64) -> u32 {
    let tag = (print >> 32) as u32;
    if tag == 0 { 1 } else { tag }
}

impl FlowPrint {
    const fn print(self) -> u64 {
        if self.hash == 0 { 1 } else { self.hash }
    }
}

impl Entry {
    fn side(p: &Peer, inline: bool) -> Side {
        let ahead = p.next_seq.wrapping_sub(p.last_ack).wrapping_sub(1);
        let sent = if ends_early(p) {
            // A FIN alone: all data before it is missing.
            let bytes = if p.data.is_none() { 0 } else { p.unacknowledged() };
            Ahead::early_fin(bytes, ahead, inline)
        } else {
            Ahead::in_order(p.unacknowledged(), p.ends_unacknowledged())
        };
        Side { isn: p.isn, next: p.last_ack, sent, edge: p.edge, ts: if p.last_ts == 0 { 0 } else { p.max_ts } }
    }

    /// The distance from the acknowledged data to the byte of a side's pending urgent pointer, plus 1; 0 if there is
    /// none, or it is over 16 MiB.
    fn urgent(p: &Peer) -> [u8; 3] {
        let pending = p.data.as_deref().and_then(|d| d.buffer.pending_urgent()).and_then(|at| i64::try_from(at).ok());
        let behind = pending.map_or(0, |at| at - p.offset(p.last_ack) + 1);
        match u32::try_from(behind).unwrap_or(0).to_be_bytes() {
            [0, rest @ ..] => rest,
            _ => [0; 3],
        }
    }

    fn of(session: &TcpSession, print: FlowPrint, secs: u32) -> Entry {
        let [client, server] = &session.peers;
        let second = if print.second { bit::CLIENT_SECOND } else { 0 };
        let opening = if session.state == TcpState::SynRecv { bit::OPENING } else { 0 };
        let doubtful = |n: u16, p: &Peer| (u16::from(p.max_ts != p.last_ts) * bit::TS_DOUBTFUL) << n;
        let scale = |n: u32, p: &Peer| u16::from(p.wscale & 15) << (bit::SCALE + 4 * n);
        let window = |p: &Peer, other: &Peer| {
            u16::try_from(p.max_window.div_ceil(1 << other.wscale.min(31))).unwrap_or(u16::MAX)
        };
        Entry {
            tag: tag(print.print()),
            secs,
            last_ts_time: client.last_ts_time.min(server.last_ts_time),
            bits: bit::of_session(session.flags)
                | second
                | opening
                | doubtful(0, client)
                | doubtful(1, server)
                | scale(0, client)
                | scale(1, server),
            max_window: [window(client, server), window(server, client)],
            urgent: [Self::urgent(client), Self::urgent(server)],
            sides: [Self::side(client, session.inline()), Self::side(server, session.inline())],
        }
    }

    const fn is_opening(&self) -> bool {
        self.bits & bit::OPENING != 0
    }

    /// The entry of a connection that the caller dropped for this reason, at most 15.
    fn dropped_for(mut self, reason: u8) -> Entry {
        self.bits = self.bits & !bit::SCALES | bit::DROPPED | u16::from(reason & 15) << (bit::SCALE + 4);
        self
    }

    /// Why the connection was dropped, if it was.
    const fn dropped(&self) -> Option<u8> {
        if self.bits & bit::DROPPED == bit::DROPPED { Some((self.bits >> (bit::SCALE + 4)) as u8) } else { None }
    }

    /// The window shift of a side; the largest for a dropped connection, whose shifts are not stored.
    const fn wscale(&self, side: usize) -> u8 {
        match self.dropped() {
            Some(_) => MIDSTREAM_SCALE,
            None => (self.bits >> (bit::SCALE + 4 * side as u32) & 15) as u8,
        }
    }

    /// The largest window that a side was offered.
    fn max_window(&self, side: usize) -> u32 {
        u32::from(self.max_window[side]) << self.wscale(1 - side)
    }

    /// The distance from a side's [`Side::next`] to the byte of its pending urgent pointer.
    fn pending_urgent(&self, side: usize) -> Option<u32> {
        let [a, b, c] = self.urgent[side];
        u32::from_be_bytes([0, a, b, c]).checked_sub(1)
    }

    /// The index of a packet's sender.
    const fn from(&self, second: bool) -> usize {
        if second == (self.bits & bit::CLIENT_SECOND != 0) { 0 } else { 1 }
    }

    /// Whether a packet may be the connection's next one: its acknowledgment is plausible, it does not end before the
    /// acknowledged data, and it begins in the window or, passive, within one window beyond it. An open handshake
    /// accepts only the client's acknowledgment of the SYN/ACK.
    fn fits(&self, s: &Segment<'_>, second: bool, inline: bool) -> bool {
        let from = self.from(second);
        if self.is_opening() && (from == 1 || s.ack != self.sides[1].next) {
            return false;
        }
        let (own, other) = (self.sides[from], self.sides[1 - from]);
        let ack_back = u64::from(other.next.wrapping_sub(s.ack));
        let ack = if seq::gt(s.ack, other.next) {
            seq::leq(s.ack, other.edge)
        } else {
            ack_back <= u64::from(self.max_window(1 - from).max(u32::from(u16::MAX)))
        };
        // Linux accepts expected data without checking the age of its acknowledgment, unless that is of data that was
        // not sent. The session reports an old acknowledgment once it exists.
        let expected = !s.payload.is_empty() && s.seq == own.next.wrapping_add(own.sent.bytes());
        let ack = ack || !inline && expected && seq::leq(s.ack, other.next);
        // A receiver may have more room than it announced, and then accepts data beyond the announced window.
        let edge = if inline { own.edge } else { own.edge.wrapping_add(self.max_window(from)) };
        ack && seq::geq(s.end(), own.next) && seq::lt(s.seq, edge)
    }

    /// Remembers a FIN without data, which resumes nothing, but takes a sequence number that the other side may acknowledge.
    fn note_fin(&mut self, s: &Segment<'_>, second: bool, inline: bool) {
        if !self.fits(s, second, inline) {
            return;
        }
        let side = &mut self.sides[self.from(second)];
        let (bytes, distance) = (side.sent.bytes(), s.seq.wrapping_sub(side.next));
        if side.sent.has_fin() || distance < bytes {
            return;
        }
        side.sent =
            if distance == bytes { Ahead::in_order(bytes, true) } else { Ahead::early_fin(bytes, distance, inline) };
    }

    fn restore(&self, session: &mut TcpSession) {
        session.state = TcpState::Established;
        session.flags |= bit::to_session(self.bits) | flag::RESUMED;
        session.dropped = self.dropped();
        let inline = session.inline();
        for (n, (p, side)) in session.peers.iter_mut().zip(self.sides).enumerate() {
            p.start(side.next.wrapping_sub(1));
            p.advance(side.next.wrapping_add(side.sent.bytes()).wrapping_add(side.sent.ends().into()));
            if let Some(distance) = side.sent.distance() {
                p.advance(side.next.wrapping_add(distance).wrapping_add(1));
                p.flags |= peer_flag::FIN;
            }
            // Passive, an unacknowledged FIN may have been lost.
            if inline && side.sent.has_fin() {
                p.flags |= peer_flag::FIN;
                session.state = match (n, session.state) {
                    (0, _) => TcpState::CloseWait,
                    (_, TcpState::CloseWait) => TcpState::Closing,
                    _ => TcpState::FinWait1,
                };
            }
            p.isn = side.isn;
            p.edge = side.edge;
            (p.window, p.max_window) = (self.max_window(n), self.max_window(n));
            (p.last_ts, p.max_ts, p.last_ts_time) = (side.ts, side.ts, self.last_ts_time);
            if self.bits & bit::TS_DOUBTFUL << n != 0 && side.ts != 0 {
                // The certain one was not stored, and may be further away.
                p.last_ts = side.ts.wrapping_sub(TS_SPAN).max(1);
                p.last_ts_time = self.last_ts_time.wrapping_sub(TIMESTAMP_AGE_FINE);
            }
            p.wscale = self.wscale(n);
        }
    }
}

/// Whether a side's FIN was seen, but data before it is missing.
fn ends_early(p: &Peer) -> bool {
    let pending = p.has(peer_flag::FIN) && seq::lt(p.last_ack, p.next_seq);
    // Without data, everything before the FIN is missing.
    pending && if p.data.is_none() { p.last_ack.wrapping_add(1) != p.next_seq } else { waits(p) }
}

impl TcpSession {
    /// The sequence number after the end that a direction's sender announced, and whether a reset did.
    pub fn end_of(&self, direction: Direction) -> Option<(u32, bool)> {
        let p = &self.peers[direction.index()];
        let finished = p.has(peer_flag::FIN) && !p.has(peer_flag::PAST_FIN);
        (finished || p.has(peer_flag::RESET)).then(|| (p.next_seq, p.has(peer_flag::RESET)))
    }

    /// The reason given to [`StreamEngine::remember_dropped`], if the connection was dropped before it was resumed.
    pub const fn dropped(&self) -> Option<u8> {
        self.dropped
    }

    /// Whether the session was closed by a reset that its receiver may have ignored or not received. Later data is then
    /// tracked as if there had been no reset; whether the connection ended is decided when the flow ends, or earlier
    /// by [`TcpSession::settle`]. Always `false` inline.
    pub fn may_go_on(&self) -> bool {
        self.state == TcpState::Closed
            && !self.settled
            && !self.inline()
            && self.peers.iter().any(|p| p.has(peer_flag::RESET))
    }

    /// Takes a reset as effective whose effect was uncertain ([`TcpSession::may_go_on`]), and frees what was kept for the
    /// connection's continuation. All data must have been read. If the connection goes on nevertheless, it is parsed
    /// from its new data on.
    pub fn settle(&mut self) {
        self.settled = true;
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.release(direction);
        }
        self.shrink_closed();
    }

    /// Bytes of stream data that the session holds, as last accounted.
    pub fn held(&self) -> u64 {
        self.peers.iter().filter_map(|p| p.data.as_ref()).map(|d| d.accounted).sum()
    }

    /// Whether the connection may be resumed after a silence: it was established, both sides were tracked, and it is not
    /// over.
    fn may_be_resumed(&self) -> bool {
        let over = match self.state {
            TcpState::Closed => !self.peers.iter().any(|p| p.has(peer_flag::RESET)) || self.inline() && self.settled,
            // A sender continues if its FIN was lost, was not accepted, or has missing data before it. Inline, only an
            // early FIN is remembered; otherwise later data is a midstream pickup, by `stream.midstream-policy`.
            TcpState::TimeWait | TcpState::LastAck if self.inline() => !self.peers.iter().any(ends_early),
            TcpState::TimeWait | TcpState::LastAck => {
                !self.peers.iter().any(|p| seq::lt(p.last_ack, p.next_seq) || p.has(peer_flag::PAST_FIN))
            }
            TcpState::SynRecv => self.flags & (flag::MIDSTREAM | flag::FOUR_WAY) != 0,
            state => state < TcpState::Established,
        };
        let known = self.peers.iter().all(|p| !p.has(peer_flag::FLOATING | peer_flag::GUESSED) && p.edge != p.isn);
        !over && known && self.flags & flag::ASYNC == 0
    }
}

impl StreamEngine {
    /// Stores a session that ends at packet time `secs`, if its connection may be resumed.
    pub fn remember(&mut self, session: &TcpSession, print: FlowPrint, secs: u32) {
        if session.may_be_resumed() && self.remembered.keep(print.print(), Entry::of(session, print, secs)) {
            self.counters.resumable_forgotten += 1;
        }
        self.counters.resumable = self.remembered.len as u64;
    }

    /// Stores a session whose flow was dropped for a `reason` below 16, so that nothing of its connection passes as that of
    /// another one. [`TcpSession::dropped`] returns the reason once it is resumed.
    pub fn remember_dropped(&mut self, session: &TcpSession, print: FlowPrint, secs: u32, reason: u8) {
        let over = session.state == TcpState::Closed && !session.peers.iter().any(|p| p.has(peer_flag::RESET));
        if !over && session.state >= TcpState::SynRecv {
            let entry = Entry::of(session, print, secs).dropped_for(reason);
            if self.remembered.keep(print.print(), entry) {
                self.counters.resumable_forgotten += 1;
            }
        }
        self.counters.resumable = self.remembered.len as u64;
    }

    /// Resumes the connection of a packet if it was remembered and the packet fits. The packet must have no session, or
    /// one that only one side opened. Returns whether the client sent the packet; `None` if nothing was resumed.
    pub fn resume(
        &mut self,
        session: &mut Option<Box<TcpSession>>,
        packet: &Packet<'_>,
        print: FlowPrint,
    ) -> Option<bool> {
        if self.remembered.len == 0 {
            return None;
        }
        if session.as_deref().is_some_and(|s| !s.gives_way()) {
            return None;
        }
        let header = packet.tcp()?;
        let s = Segment::new(&header, packet, margay_flow::Direction::ToServer);
        // `alone`: a packet without data suffices.
        let alone = match session.as_deref() {
            None => self.picks_up(),
            Some(opened) if opened.state == TcpState::SynRecv => true,
            // The SYN's receiver acknowledges something else: it still has the connection (RFC 5961 section 4).
            Some(opened) => {
                let first = opened.peers[0].isn.wrapping_add(1);
                s.ack != first && s.seq != first
            }
        };
        if s.flags & (tcp::SYN | tcp::RST | tcp::ACK) != tcp::ACK
            || self.config.checksum_validation && packet.l4_checksum_ok() == Some(false)
        {
            return None;
        }
        let inline = self.config.inline;
        if s.payload.is_empty() && !alone && !s.has(tcp::URG) {
            if s.has(tcp::FIN)
                && let Some(entry) = self.remembered.get(print.print())
            {
                entry.note_fin(&s, print.second, inline);
            }
            return None;
        }
        // Without a session, a packet of a dropped connection belongs to no other: no SYN came since.
        let alone = session.is_none();
        let fits = |e: &Entry| alone && e.dropped().is_some() || e.fits(&s, print.second, inline);
        let entry = self.remembered.take(print.print(), fits)?;
        self.counters.resumable = self.remembered.len as u64;
        if let Some(opened) = session.take() {
            self.end(&opened);
        }
        let mut out = Outcome::default();
        let mut new = self.create(packet, &mut out)?;
        let from = entry.from(print.second);
        if from == 1 {
            let [a, b] = &mut new.peers;
            std::mem::swap(&mut a.policy, &mut b.policy);
        }
        entry.restore(&mut new);
        let seed = new.peers[0].isn;
        for (from, side) in entry.sides.iter().enumerate() {
            let urgent = entry.pending_urgent(from);
            if side.sent.bytes() == 0 && urgent.is_none() {
                continue;
            }
            // Data from before the resumption is not stored, so it is read again only if it is sent again. It is not a
            // gap.
            let d = self.assembly(&mut new.peers[from], from, seed, false);
            d.buffer = StreamBuffer::behind(side.sent.bytes().into());
            d.gap_seen = side.sent.bytes().into();
            if let Some(at) = urgent {
                d.buffer.point_urgent(at.into());
            }
        }
        *session = Some(new);
        self.counters.resumed += 1;
        Some(from == 0)
    }

    /// Passive: handles the next packet of the side that did not send the reset. If the reset did not arrive there, the
    /// connection continues: this packet's acknowledgment and window count, and the other side may acknowledge its
    /// data.
    pub(crate) fn note_behind_reset(&self, session: &mut TcpSession, s: &Segment<'_>) {
        let next = session.peers[s.from].next_seq;
        if session.may_go_on()
            && !session.peers[s.from].has(peer_flag::RESET)
            && s.flags & (tcp::SYN | tcp::RST | tcp::ACK) == tcp::ACK
            && s.seq == next
            && seq::leq(s.ack, session.peers[s.to()].next_seq)
        {
            let window = u32::from(s.window) << session.peers[s.from].wscale;
            session.peers[s.to()].acked(s.ack, window);
            session.peers[s.from].advance(s.end().wrapping_add(s.has(tcp::FIN).into()));
        }
    }

    /// Handles data on a session closed by a reset, if the host ignored or did not receive the reset. Data that was not
    /// acknowledged is read again. Inline with `spare_harmless`, data after a reset is rejected instead. Returns `Some`
    /// if the connection continues, with whether the application layer must restart because it already saw the end, or
    /// read data that was not acknowledged.
    pub(crate) fn goes_on(&mut self, session: &mut TcpSession, s: &Segment<'_>) -> Option<bool> {
        let own = &session.peers[s.from];
        let other = &session.peers[s.to()];
        if self.config.inline && self.config.spare_harmless
            || !own.has(peer_flag::RESET)
            || s.flags & (tcp::SYN | tcp::RST | tcp::ACK) != tcp::ACK
            || s.payload.is_empty() && !s.has(tcp::URG)
            // The other side may have sent more since.
            || seq::gt(s.ack, seq::max(other.next_seq, other.edge))
            || seq::lt(s.end(), own.last_ack)
            || s.end() == own.last_ack && !s.payload.is_empty()
            || seq::geq(s.seq, if self.config.inline { own.edge } else { own.edge.wrapping_add(own.max_window) })
        {
            return None;
        }
        // A copy of data seen before the reset may have been in flight, so it does not prove that the sender continues; but
        // the host may have discarded doubtful data, and accept the copy.
        let again = own.data.as_deref().filter(|d| !d.buffer.has_doubtful());
        let again = again.zip(u64::try_from(own.offset(s.seq)).ok());
        if !s.payload.is_empty()
            && again.is_some_and(|(d, at)| d.buffer.compare(at, s.payload) == (s.payload.len(), true))
        {
            return None;
        }
        let read_ahead = |p: &Peer| p.data.as_ref().is_some_and(|d| d.app > d.acked);
        let restart = !session.may_go_on() || session.peers.iter().any(read_ahead);
        session.state = TcpState::Established;
        session.settled = false;
        if restart {
            session.flags |= flag::RESUMED;
        }
        let (at_once, off) = (session.at_once(), session.flags & flag::APP_OFF != 0);
        for p in &mut session.peers {
            p.flags &= !(peer_flag::RESET | peer_flag::RST_SENT | peer_flag::FIN);
            if let Some(d) = p.data.as_mut() {
                d.finished = None;
            }
            if let Some(d) = p.data.as_mut().filter(|_| !at_once) {
                // A reader that was off starts with the new data.
                d.app = if off { d.acked } else { d.app.min(d.acked) };
                d.raw = d.raw.min(d.acked);
            }
        }
        self.counters.resumed += 1;
        Some(restart)
    }
}
