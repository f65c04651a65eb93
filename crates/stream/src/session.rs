//! What is kept of a TCP connection, and the views on its data.

use margay_flow::{Direction, FlowState};

use crate::peer::{Assembly, FLOAT, Peer, peer_flag};

/// State of a session (`tcp.state` in events). Named as seen from the server: the client's FIN makes `close_wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum TcpState {
    #[default]
    None,
    SynSent,
    SynRecv,
    Established,
    FinWait1,
    FinWait2,
    TimeWait,
    LastAck,
    CloseWait,
    Closing,
    Closed,
}

impl TcpState {
    /// Its name in events and statistics.
    pub const fn name(self) -> &'static str {
        margay_flow::TCP_STATES[self as usize]
    }
    /// The flow's state that goes with it.
    pub const fn flow_state(self) -> FlowState {
        match self {
            TcpState::None | TcpState::SynSent | TcpState::SynRecv => FlowState::New,
            TcpState::Established
            | TcpState::FinWait1
            | TcpState::FinWait2
            | TcpState::Closing
            | TcpState::CloseWait => FlowState::Established,
            TcpState::LastAck | TcpState::TimeWait | TcpState::Closed => FlowState::Closed,
        }
    }
    /// Whether one side at least has closed.
    pub(crate) const fn closing(self) -> bool {
        matches!(
            self,
            TcpState::FinWait1
                | TcpState::FinWait2
                | TcpState::Closing
                | TcpState::CloseWait
                | TcpState::LastAck
                | TcpState::TimeWait
        )
    }
}

/// Bits of [`TcpSession::flags`].
pub(crate) mod flag {
    pub(crate) const MIDSTREAM: u16 = 1;
    pub(crate) const ASYNC: u16 = 1 << 1;
    /// Both sides sent a SYN before a SYN/ACK.
    pub(crate) const FOUR_WAY: u16 = 1 << 2;
    pub(crate) const TIMESTAMP: u16 = 1 << 3;
    pub(crate) const SACK: u16 = 1 << 4;
    pub(crate) const FAST_OPEN: u16 = 1 << 5;
    pub(crate) const APP_OFF: u16 = 1 << 6;
    pub(crate) const RAW_OFF: u16 = 1 << 7;
    pub(crate) const INLINE: u16 = 1 << 8;
    /// The sides were turned round at pickup.
    pub(crate) const SWAPPED: u16 = 1 << 9;
    /// The server did not take the data that came with the SYN.
    pub(crate) const DATA_IGNORED: u16 = 1 << 10;
    /// The client's SYN was signed (RFC 2385, RFC 5925).
    pub(crate) const SIGNED: u16 = 1 << 11;
    /// The client's SYN offered to scale windows.
    pub(crate) const SCALED: u16 = 1 << 12;
    /// It went on after it was taken for over.
    pub(crate) const RESUMED: u16 = 1 << 13;
    /// Data came with the client's SYN.
    pub(crate) const SYN_DATA: u16 = 1 << 14;
    /// Inline, data of the client's SYN was read that the server did not take, and nothing since.
    pub(crate) const UNTAKEN: u16 = 1 << 15;
}

/// What the application layer gets next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppData<'a> {
    /// Bytes in order.
    Data {
        /// Stream offset of the first: 0 is the first byte of the direction.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes that the receiver has and we never saw: how many.
    Gap(u64),
}

/// A stretch of raw stream for content inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamChunk<'a> {
    /// The bytes, context first.
    pub data: &'a [u8],
    /// Stream offset of `data[0]`.
    pub offset: u64,
    /// How many bytes at the start were in a chunk before: a match that ends in them was found then.
    pub seen: usize,
}

/// How far one side of a connection is, as a sender; sequence numbers all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideState {
    /// Initial sequence number.
    pub isn: u32,
    /// One past the last byte (or FIN) seen.
    pub next_seq: u32,
    /// Highest acknowledgment of the other side.
    pub last_ack: u32,
    /// Furthest that the other side ever let this one send.
    pub next_win: u32,
    /// The first byte that is kept.
    pub base_seq: u32,
    /// One past the last byte that is kept.
    pub right_edge: u32,
    /// The window that the other side offered last, scaled.
    pub window: u32,
    /// Shift of that window.
    pub wscale: u8,
}

/// The largest window without a scale.
const WINDOW: u32 = 65_535;

/// A TCP connection. Index 0 is the client, 1 the server; data is indexed by the direction that it goes.
///
/// A cache line for each side, and one for what they share.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub struct TcpSession {
    pub(crate) peers: [Peer; 2],
    pub(crate) state: TcpState,
    pub(crate) flags: u16,
    /// Memory of its data was given back since it was accounted for.
    pub(crate) freed: bool,
    /// Bytes of each direction that are put together, where that is not what the settings say; 0 means all.
    pub(crate) depth: Option<u64>,
    pub(crate) queue: Vec<Queued>,
}

const _: () = assert!(size_of::<TcpSession>() == 192);

/// A SYN or SYN/ACK that may be the one that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) syn_ack: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u32,
    pub(crate) wscale: Option<u8>,
    pub(crate) timestamp: Option<u32>,
    /// When it was sent, in seconds.
    pub(crate) secs: u32,
    pub(crate) sack: bool,
}

impl TcpSession {
    /// Turns it round: who was taken for the client is the server. The flow has to be turned with it.
    pub fn turn_round(&mut self) {
        self.peers.swap(0, 1);
        self.queue.clear();
        self.flags ^= flag::SWAPPED;
        self.state = match self.state {
            TcpState::FinWait1 => TcpState::CloseWait,
            TcpState::CloseWait => TcpState::FinWait1,
            state => state,
        };
    }
    /// State.
    pub const fn state(&self) -> TcpState {
        self.state
    }
    /// Prefetches the session: reads a field of each cache line that its next packet needs. The sum means nothing.
    #[inline]
    pub fn warm(&self) -> u64 {
        let shared = u64::from(self.flags);
        self.peers
            .iter()
            .fold(shared, |sum, p| sum ^ u64::from(p.next_seq) ^ p.data.as_deref().map_or(0, Assembly::warm))
    }
    /// How far a direction is.
    pub fn side(&self, direction: Direction) -> SideState {
        let p = &self.peers[direction.index()];
        let base = self.base(p);
        let (from, to) = p.data.as_ref().map_or((0, 0), |d| {
            let from = d.buffer.next_at(0).unwrap_or(d.app);
            (from.saturating_sub(base), d.buffer.end().max(from).saturating_sub(base))
        });
        SideState {
            isn: p.isn,
            next_seq: p.next_seq,
            last_ack: p.last_ack,
            next_win: p.edge,
            base_seq: p.isn.wrapping_add(1).wrapping_add(from as u32),
            right_edge: p.isn.wrapping_add(1).wrapping_add(to as u32),
            window: p.window,
            wscale: self.peers[direction.reverse().index()].wscale,
        }
    }
    /// What is special about it, by the names of events.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        [
            (flag::MIDSTREAM, "midstream"),
            (flag::ASYNC, "async"),
            (flag::FOUR_WAY, "4whs"),
            (flag::TIMESTAMP, "timestamp"),
            (flag::SACK, "sackok"),
            (flag::FAST_OPEN, "tcp_fast_open"),
            (flag::DATA_IGNORED, "tfo_data_ignored"),
        ]
        .into_iter()
        .filter(move |f| flags & f.0 != 0)
        .map(|f| f.1)
    }
    /// TCP flags seen in packets of a direction.
    pub const fn tcp_flags(&self, direction: Direction) -> u8 {
        self.peers[direction.index()].tcp_flags
    }
    /// Whether it was picked up in the middle, or went on after it was taken for over: what the application layer gets first need not
    /// be the beginning of something.
    pub const fn is_midstream(&self) -> bool {
        self.flags & (flag::MIDSTREAM | flag::RESUMED) != 0
    }
    /// Whether data came with the SYN or was announced (TCP fast open, RFC 7413).
    pub const fn is_fast_open(&self) -> bool {
        self.flags & (flag::FAST_OPEN | flag::SYN_DATA) != 0
    }
    /// Whether a side reset the connection.
    pub fn was_reset(&self) -> bool {
        self.peers.iter().any(|p| p.has(peer_flag::RESET))
    }

    /// Whether only one side of the connection is seen.
    pub const fn is_async(&self) -> bool {
        self.flags & flag::ASYNC != 0
    }
    /// Has more or less of each direction put together than the settings say: `depth` bytes, 0 for all. What a
    /// direction is past already stays lost.
    pub const fn set_depth(&mut self, depth: u64) {
        self.depth = Some(depth);
    }
    /// Whether a direction's data reached `depth` and is not followed any more.
    pub const fn depth_reached(&self, direction: Direction) -> bool {
        self.peers[direction.index()].has(peer_flag::DEPTH)
    }
    /// Whether data of a direction is missing.
    pub const fn has_gap(&self, direction: Direction) -> bool {
        self.peers[direction.index()].has(peer_flag::GAP)
    }
    /// How many sequence numbers a direction used so far, holes included (`stream_size`): a SYN has one, and a FIN that was
    /// acknowledged. A server's FIN that is the first counts at once (observed).
    pub fn stream_size(&self, direction: Direction) -> u64 {
        let p = &self.peers[direction.index()];
        if p.tcp_flags == 0 {
            return 0;
        }
        let size = p.next_off.saturating_sub(self.base(p)) + 1;
        let first = direction == Direction::ToClient && !self.peers[direction.reverse().index()].has(peer_flag::FIN);
        let counts = first || crate::seq::geq(p.last_ack, p.next_seq);
        size - u64::from(p.has(peer_flag::FIN) && !counts)
    }
    /// Urgent bytes of a direction that its receiver takes out of the stream (`tcp.ts_urgent_oob_data`, `tc_urgent_oob_data`).
    pub fn urgent_bytes(&self, direction: Direction) -> u64 {
        self.data(direction).map_or(0, |d| d.buffer.urgent_count())
    }
    /// Whether a packet with sequence number `seq` may be a direction's next, where that carried `bytes`, headers and all, since
    /// the session was last told of a packet: it is not before what is acknowledged, and not beyond all of them and a window.
    pub fn may_be_next(&self, direction: Direction, seq: u32, bytes: u64) -> bool {
        let p = &self.peers[direction.index()];
        let from = crate::seq::min(p.last_ack, p.next_seq);
        let to = crate::seq::max(p.last_ack, p.next_seq);
        let span = u64::from(to.wrapping_sub(from)) + u64::from(p.window.max(WINDOW)) + bytes;
        u64::from(seq.wrapping_sub(from)) <= span
    }
    /// The sequence number of a direction's stream offset 0. Urgent bytes that were taken out do not count.
    pub const fn first_seq(&self, direction: Direction) -> u32 {
        let p = &self.peers[direction.index()];
        p.next_seq.wrapping_sub(p.next_off as u32)
    }
    /// Initial sequence number of a direction's sender.
    pub const fn isn(&self, direction: Direction) -> u32 {
        self.peers[direction.index()].isn
    }
    /// Most stretches of data far apart there were at a time (`tcp.ts_max_regions`, `tc_max_regions`).
    pub fn max_regions(&self, direction: Direction) -> u16 {
        self.peers[direction.index()].data.as_ref().map_or(1, |d| d.buffer.regions_seen().max(1))
    }
    /// Stream offset that raw inspection has come to in a direction.
    pub fn raw_offset(&self, direction: Direction) -> u64 {
        self.peers[direction.index()].data.as_ref().map_or(0, |d| d.raw)
    }
    /// Stream offset that the application layer has come to in a direction.
    pub fn app_offset(&self, direction: Direction) -> u64 {
        self.peers[direction.index()].data.as_ref().map_or(0, |d| d.app)
    }

    pub(crate) const fn inline(&self) -> bool {
        self.flags & flag::INLINE != 0
    }
    /// Whether data is looked at before it is acknowledged.
    pub(crate) const fn at_once(&self) -> bool {
        self.flags & (flag::INLINE | flag::ASYNC) != 0
    }
    /// The offset that a side's stream begins at while that may still move.
    pub(crate) const fn base(&self, p: &Peer) -> u64 {
        if p.has(peer_flag::FLOATING) && !self.at_once() { FLOAT } else { 0 }
    }
    const fn data(&self, direction: Direction) -> Option<&Assembly> {
        match &self.peers[direction.index()].data {
            Some(d) => Some(d),
            None => None,
        }
    }

    /// How far a direction's data may be looked at: what is acknowledged; inline, or with `all`, everything.
    fn limit(&self, d: &Assembly, all: bool) -> u64 {
        if all || self.at_once() { u64::MAX } else { d.acked }
    }

    /// What the application layer has not had yet of a direction; `all` includes what was not acknowledged, for the end
    /// of a flow. After it was used call [`TcpSession::app_consume`], and ask again.
    pub fn app_data(&self, direction: Direction, all: bool) -> Option<AppData<'_>> {
        if self.flags & flag::APP_OFF != 0 {
            return None;
        }
        let d = self.data(direction)?;
        let limit = self.limit(d, all);
        let bytes = d.buffer.contiguous(d.app, limit);
        if !bytes.is_empty() {
            return Some(AppData::Data { offset: d.app, bytes });
        }
        let next = d.buffer.next_at(d.app)?;
        let lost = if all { u64::MAX } else { d.acked };
        (next > d.app && next <= lost).then(|| AppData::Gap(next - d.app))
    }

    /// Whether bytes of a direction are missing at stream offset `at` that will not come any more: the receiver has them,
    /// or with `all` data behind them is all there is.
    pub fn app_gap_at(&self, direction: Direction, at: u64, all: bool) -> bool {
        let Some(d) = self.data(direction) else { return false };
        let lost = if all { u64::MAX } else { d.acked };
        d.buffer.next_at(at).is_some_and(|next| next > at && next <= lost)
    }

    /// Whether data of a direction, without a hole before it, waits for an acknowledgment.
    pub fn app_unacknowledged(&self, direction: Direction) -> bool {
        let Some(d) = self.data(direction).filter(|_| self.flags & flag::APP_OFF == 0) else { return false };
        let at = d.app.max(self.limit(d, false));
        !d.buffer.contiguous(at, u64::MAX).is_empty()
    }

    /// The application layer has taken `n` bytes, or a gap of `n`.
    pub fn app_consume(&mut self, direction: Direction, n: u64) {
        if let Some(d) = &mut self.peers[direction.index()].data {
            d.app = d.app.saturating_add(n);
        }
        self.release(direction);
    }

    /// Data of a direction from stream offset `from` on is to be kept, whoever has taken it; `None` keeps no more than is
    /// needed otherwise.
    pub fn keep(&mut self, direction: Direction, from: Option<u64>) {
        if let Some(d) = &mut self.peers[direction.index()].data {
            d.keep = from;
            self.release(direction);
        }
    }

    /// Calls `each` with every stretch of a direction without a hole between two stream offsets, and the offset at which it
    /// begins.
    pub fn stretches(&self, direction: Direction, from: u64, to: u64, each: &mut dyn FnMut(u64, &[u8])) {
        let Some(d) = self.data(direction) else { return };
        let mut at = from;
        while at < to {
            let bytes = d.buffer.contiguous(at, to);
            if !bytes.is_empty() {
                each(at, bytes);
                at = at.saturating_add(bytes.len() as u64);
                continue;
            }
            match d.buffer.next_at(at) {
                Some(next) if next > at => at = next,
                _ => return,
            }
        }
    }

    /// Whether nobody reads the session's data: neither the application layer nor raw inspection.
    pub(crate) const fn is_unread(&self) -> bool {
        let both_off = flag::APP_OFF | flag::RAW_OFF;
        self.flags & both_off == both_off
    }

    /// The application layer does not want data of this session any more.
    pub fn app_disable(&mut self) {
        self.flags |= flag::APP_OFF;
        self.release(Direction::ToServer);
        self.release(Direction::ToClient);
    }

    /// The other side of this connection was heard before it began here, with these TCP flags.
    pub const fn heard_before(&mut self, direction: Direction, tcp_flags: u8) {
        self.peers[direction.index()].tcp_flags |= tcp_flags;
    }

    /// Nothing looks at the raw stream of this session any more.
    pub fn raw_disable(&mut self) {
        self.flags |= flag::RAW_OFF;
        self.release(Direction::ToServer);
        self.release(Direction::ToClient);
    }

    /// What follows is encrypted: nothing looks at the raw stream any more. Of a direction with data that was not looked at the next
    /// [`TcpSession::raw_chunk`] is that data, and of one without it is empty, as soon as there is data: rules that need no search are
    /// asked once more, as the peer does. In the direction `asked` they were with the packet at hand.
    pub fn raw_finish(&mut self, asked: Option<Direction>) {
        if self.flags & flag::RAW_OFF != 0 {
            return;
        }
        let inline = self.inline();
        for (i, peer) in self.peers.iter_mut().enumerate() {
            peer.flags |= peer_flag::RAW_ENDED;
            let asked = asked.is_some_and(|dir| dir.index() == i);
            let left = |d: &&mut Assembly| !asked || d.buffer.next_at(d.raw).is_some_and(|at| at < d.acked);
            if !inline && let Some(d) = peer.data.as_deref_mut().filter(left) {
                d.border = d.acked.max(d.raw);
                peer.flags |= peer_flag::RAW_LEFT;
            }
        }
        self.raw_disable();
    }

    /// Something else begins in both directions behind what the application layer took: raw inspection looks at what is
    /// before that apart, and goes on there even where it was to end ([`TcpSession::raw_finish`]).
    pub fn raw_border(&mut self) {
        if self.peers[0].has(peer_flag::RAW_ENDED) {
            self.flags &= !flag::RAW_OFF;
        }
        for peer in &mut self.peers {
            let ended = peer.has(peer_flag::RAW_ENDED);
            peer.flags &= !(peer_flag::RAW_ENDED | peer_flag::RAW_LEFT);
            if let Some(d) = &mut peer.data {
                d.border = d.app;
                if ended {
                    d.raw = d.app;
                }
            }
        }
    }

    /// Lets the next [`TcpSession::raw_chunk`] of a direction return what there is, whatever its size.
    pub fn raw_trigger(&mut self, direction: Direction) {
        self.peers[direction.index()].flags |= peer_flag::TRIGGER;
    }

    /// What raw inspection should look at now, if anything. Inline: the latest packet's data, with what is before it, as
    /// far back as a chunk is long. Else acknowledged data, once there is a chunk of it, a hole follows, or it was asked
    /// for ([`TcpSession::raw_trigger`]); with `all` everything there is. After inspection call [`TcpSession::raw_done`]
    /// and ask again.
    pub fn raw_chunk(&self, direction: Direction, all: bool) -> Option<StreamChunk<'_>> {
        let peer = &self.peers[direction.index()];
        if self.flags & flag::RAW_OFF != 0 {
            let d = peer.data.as_deref().filter(|_| peer.has(peer_flag::RAW_LEFT) && !all)?;
            d.buffer.next_at(d.raw)?;
            return Some(StreamChunk { data: d.buffer.contiguous(d.raw, d.border), offset: d.raw, seen: 0 });
        }
        let d = peer.data.as_deref()?;
        if self.inline() && !all {
            if !d.pending {
                return None;
            }
            let (start, end) = d.packet;
            // What a long segment repeats may be freed: what is behind that is looked at.
            let start = d.buffer.next_at(start).map_or(start, |held| held.min(end));
            let chunk = u64::from(d.chunk_size);
            let (from, data) = if d.around.is_empty() {
                let from = d.buffer.start_of(start).max(start.saturating_sub(chunk));
                // What came early behind it was looked at without it.
                let (own, end) = (end, end.max(d.raw.min(end.saturating_add(chunk))));
                let (mut from, mut data) = (from, d.buffer.contiguous(from, end));
                // Of a segment that reaches over a hole that was passed what is behind that is new.
                while let Some(next) =
                    d.buffer.next_at(from + data.len() as u64).filter(|n| *n < own && !data.is_empty())
                {
                    (from, data) = (next, d.buffer.contiguous(next, end));
                }
                (from, data)
            } else {
                (d.around_at, d.around.as_slice())
            };
            // A packet's own data is looked at also when it was there before: the packet may have to be dropped.
            let seen = (start.saturating_sub(from)).min(data.len() as u64) as usize;
            return (!data.is_empty()).then_some(StreamChunk { data, offset: from, seen });
        }
        let before = d.raw < d.border;
        let end = if before { d.border } else { u64::MAX };
        let limit = self.limit(d, all).min(end);
        // A hole that the receiver does not have is behind us.
        let mut at = d.raw;
        let mut fresh = d.buffer.contiguous(at, limit);
        if fresh.is_empty() {
            let next = d.buffer.next_at(at)?;
            if next > if all { u64::MAX } else { d.acked } {
                return None;
            }
            at = next;
            fresh = d.buffer.contiguous(at, limit);
        }
        let end = at + fresh.len() as u64;
        let hole = d.buffer.next_at(end).is_some_and(|n| n > end && n <= d.acked);
        if fresh.is_empty()
            || !(all || hole || before || peer.has(peer_flag::TRIGGER) || fresh.len() as u64 >= u64::from(d.chunk_size))
        {
            return None;
        }
        let mut from = d.buffer.start_of(at).max(at.saturating_sub(u64::from(d.context)));
        if !before {
            from = from.max(d.border.min(at));
        }
        let data = d.buffer.contiguous(from, end);
        Some(StreamChunk { data, offset: from, seen: (at - from) as usize })
    }

    /// The chunk that [`TcpSession::raw_chunk`] returned, to its end at `end`, was inspected.
    pub fn raw_done(&mut self, direction: Direction, end: u64) {
        let inline = self.inline();
        let peer = &mut self.peers[direction.index()];
        if let Some(d) = &mut peer.data {
            d.raw = d.raw.max(end);
            if peer.flags & peer_flag::TRIGGER != 0 && !inline {
                // A message ended here: the next one is looked at by itself, as in Suricata.
                d.border = d.raw;
            }
            d.pending = false;
            d.around.clear();
        }
        peer.flags &= !(peer_flag::TRIGGER | peer_flag::RAW_LEFT);
        self.release(direction);
    }

    /// Whether data of either direction was ever kept. Without it nothing is left to inspect when the flow ends.
    pub fn has_data(&self) -> bool {
        self.peers.iter().any(|p| p.data.is_some())
    }

    /// Whether data of a direction is left that was not looked at: at the end of a flow the engine makes a packet for it.
    pub fn needs_flush(&self, direction: Direction) -> bool {
        let Some(d) = self.data(direction) else { return false };
        let left = |from: u64| d.buffer.next_at(from).is_some();
        (self.flags & flag::APP_OFF == 0 && left(d.app)) || (self.flags & flag::RAW_OFF == 0 && left(d.raw))
    }

    /// Whether less than a chunk of a direction waits for raw inspection, so that it may wait for the next packet or the flow's end.
    pub fn raw_waits_little(&self, direction: Direction) -> bool {
        self.data(direction).is_none_or(|d| d.buffer.end().saturating_sub(d.raw) < u64::from(d.chunk_size))
    }

    /// Whether raw inspection has not come to all data of a direction of a connection that is ending: the peer then looks at each of its
    /// packets as at one with stream data, though nothing may be acknowledged.
    pub fn raw_waits(&self, direction: Direction) -> bool {
        matches!(self.state, TcpState::CloseWait | TcpState::Closing | TcpState::Closed)
            && self.flags & flag::RAW_OFF == 0
            && !self.inline()
            && self.data(direction).is_some_and(|d| d.buffer.next_at(d.raw).is_some())
    }

    /// Appends what is held of a direction's stream from `from` on to `out`, until that has `max` bytes; holes are
    /// written as `[n bytes missing]`.
    pub fn payload_with_gaps(&self, direction: Direction, from: u64, max: usize, out: &mut Vec<u8>) {
        if let Some(d) = self.data(direction) {
            d.buffer.with_gaps(from, u64::MAX, max, out);
        }
    }

    /// As [`TcpSession::payload_with_gaps`], up to the stream offset `to`.
    pub fn stretch_with_gaps(&self, direction: Direction, from: u64, to: u64, max: usize, out: &mut Vec<u8>) {
        if let Some(d) = self.data(direction) {
            d.buffer.with_gaps(from, to, max, out);
        }
    }

    /// Inline: replaces `payload`, sent in a direction with sequence number `seq`, by what the stream has there; bytes that the
    /// receiver has, and that were freed since, by zeros: it does not look at them. Returns whether that changed something: then the
    /// packet must not go out as it came.
    pub fn rewrite(&self, direction: Direction, seq: u32, payload: &mut [u8]) -> bool {
        let peer = &self.peers[direction.index()];
        let Some(d) = &peer.data else { return false };
        let start = peer.offset(seq);
        let freed = (d.buffer.sequence_of(d.buffer.freed()) as i64 - start).clamp(0, payload.len() as i64) as usize;
        let (old, new) = payload.split_at_mut(freed);
        let mut changed = old.iter().any(|b| *b != 0);
        old.fill(0);
        if let Ok(at) = u64::try_from(start.saturating_add(freed as i64)) {
            changed |= d.buffer.rewrite(at, new);
        }
        changed
    }

    /// Frees what nobody needs any more, and settles what was seen.
    pub(crate) fn release(&mut self, direction: Direction) {
        let left = self.peers[direction.index()].has(peer_flag::RAW_LEFT);
        let (app_off, raw_off) = (self.flags & flag::APP_OFF != 0, self.flags & flag::RAW_OFF != 0 && !left);
        let inline = self.inline();
        let closed = self.state == TcpState::Closed;
        // What was not acknowledged may have to be read again: not every host believes a reset.
        let reset = closed && self.peers.iter().any(|p| p.has(peer_flag::RESET));
        let may_go_on = reset && !inline;
        let held_back = self.holds_back(&self.peers[direction.index()]);
        let Some(d) = &mut self.peers[direction.index()].data else { return };
        let end = d.buffer.in_order_end();
        // Who does not read has everything, and decides nothing. What was looked at early does not count: what is before it comes yet.
        let app = if app_off { end } else { d.app };
        let raw = if raw_off { end } else { d.raw.min(end) };
        // Inline what the packet at hand brings is still to be looked at, with what is before it.
        let raw = if inline && d.pending && !raw_off { raw.min(d.packet.0) } else { raw };
        // What one reader had cannot change under the other.
        let settled = match (app_off, raw_off) {
            _ if inline => app.min(raw),
            (false, true) => app.min(d.acked),
            (true, _) => raw.min(d.acked),
            (false, false) => app.max(raw).min(d.acked),
        };
        // What was not looked at yet is looked at beside what is before it.
        let over = closed && !reset && raw >= d.buffer.end();
        let back = if over || raw_off { 0 } else { u64::from(if inline { d.chunk_size } else { d.context }) };
        let keep = app.min(raw.saturating_sub(back));
        let keep = if inline || may_go_on { keep.min(d.acked) } else { keep };
        let keep = d.keep.map_or(keep, |k| keep.min(k));
        if held_back {
            return;
        }
        d.buffer.set_floor(if may_go_on { keep } else { settled.max(keep) });
        self.freed |= d.buffer.release(keep);
    }

    /// Nothing more of the streams will come: what is early is put in order, over what is missing. To be called before what was not
    /// acknowledged is read.
    pub fn finish_streams(&mut self) {
        let floats = !self.at_once();
        for p in &mut self.peers {
            if floats && p.has(peer_flag::FLOATING) {
                p.begin_at(None);
            }
            if let Some(d) = &mut p.data {
                d.finished.get_or_insert(d.buffer.next());
                d.buffer.finish();
            }
        }
    }

    /// Whether a side's data may have to be read again from before what was seen first: nothing of it is freed.
    const fn holds_back(&self, p: &Peer) -> bool {
        p.has(peer_flag::FLOATING) && self.at_once()
    }

    /// The packet at hand was looked at in full: where the connection is closed, gives back the memory that no byte is in.
    pub fn shrink_closed(&mut self) {
        if self.state == TcpState::Closed {
            for d in self.peers.iter_mut().filter_map(|p| p.data.as_mut()) {
                d.buffer.shrink();
            }
            self.freed = true;
        }
    }
}
