//! The state of a TCP connection, and read access to its data.

mod border;

use margay_flow::{Direction, FlowState};

use crate::peer::{Assembly, FLOAT, Peer, peer_flag};

/// State of a session (`tcp.state` in events). The names take the server's view: the client's FIN leads to `close_wait`.
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
    /// The name in events and statistics.
    pub const fn name(self) -> &'static str {
        margay_flow::TCP_STATES[self as usize]
    }
    /// The corresponding flow state.
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
    /// Whether at least one side has closed.
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
    /// Both sides sent a SYN before any SYN/ACK.
    pub(crate) const FOUR_WAY: u16 = 1 << 2;
    pub(crate) const TIMESTAMP: u16 = 1 << 3;
    pub(crate) const SACK: u16 = 1 << 4;
    pub(crate) const FAST_OPEN: u16 = 1 << 5;
    pub(crate) const APP_OFF: u16 = 1 << 6;
    pub(crate) const RAW_OFF: u16 = 1 << 7;
    pub(crate) const INLINE: u16 = 1 << 8;
    /// The sides were swapped at pickup.
    pub(crate) const SWAPPED: u16 = 1 << 9;
    /// The server did not accept the data that came with the SYN.
    pub(crate) const DATA_IGNORED: u16 = 1 << 10;
    /// The SYN/ACK or, until it is seen, the client's SYN was signed (RFC 2385, RFC 5925).
    pub(crate) const SIGNED: u16 = 1 << 11;
    /// The client's SYN offered to scale windows.
    pub(crate) const SCALED: u16 = 1 << 12;
    /// The session was resumed after it counted as over.
    pub(crate) const RESUMED: u16 = 1 << 13;
    /// Data came with the client's SYN.
    pub(crate) const SYN_DATA: u16 = 1 << 14;
    /// Inline: data of the client's SYN was read but the server did not accept it, and nothing was read since.
    pub(crate) const UNTAKEN: u16 = 1 << 15;
}

/// The next data for the application layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppData<'a> {
    /// Bytes in order.
    Data {
        /// Stream offset of the first byte; 0 is the start of the direction.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Number of bytes that the receiver has but the engine never saw.
    Gap(u64),
}

/// Part of the raw stream for content inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamChunk<'a> {
    /// The bytes, context first.
    pub data: &'a [u8],
    /// Stream offset of `data[0]`.
    pub offset: u64,
    /// Number of leading bytes that an earlier chunk had: a match that ends within them was found then.
    pub seen: usize,
}

/// The progress of one side as a sender, as sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideState {
    /// Initial sequence number.
    pub isn: u32,
    /// One past the last byte (or FIN) seen.
    pub next_seq: u32,
    /// Highest acknowledgment by the other side.
    pub last_ack: u32,
    /// The furthest sequence number that the other side ever allowed.
    pub next_win: u32,
    /// The first stored byte.
    pub base_seq: u32,
    /// One past the last stored byte.
    pub right_edge: u32,
    /// The other side's last window, scaled.
    pub window: u32,
    /// Shift of that window.
    pub wscale: u8,
}

/// The largest window without scaling.
const WINDOW: u32 = 65_535;

/// A TCP connection. Index 0 is the client, 1 the server. Data is indexed by the direction in which it is sent.
///
/// Each side takes one cache line, and their common state another.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub struct TcpSession {
    pub(crate) peers: [Peer; 2],
    pub(crate) state: TcpState,
    pub(crate) flags: u16,
    /// Whether data was freed since its memory was last counted.
    pub(crate) freed: bool,
    /// Whether the reset that closed the session is taken as effective ([`TcpSession::settle`]).
    pub(crate) settled: bool,
    /// Inline: the client reset the connection before this one, which the server may not know.
    pub(crate) after_reset: bool,
    /// The caller's reason why the connection was dropped before it was resumed ([`TcpSession::dropped`]).
    pub(crate) dropped: Option<u8>,
    /// Bytes of each direction that are reassembled, if different from the settings; 0 means all.
    pub(crate) depth: Option<u64>,
    pub(crate) queue: Vec<Queued>,
}

const _: () = assert!(size_of::<TcpSession>() == 192);

/// A SYN or SYN/ACK that may turn out to be the valid one.
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
    /// Swaps client and server. The caller must swap the flow's ends too.
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
    /// The state.
    pub const fn state(&self) -> TcpState {
        self.state
    }
    /// Prefetches the session: reads a field of each cache line that its next packet needs. The sum has no meaning.
    #[inline]
    pub fn warm(&self) -> u64 {
        let shared = u64::from(self.flags);
        self.peers
            .iter()
            .fold(shared, |sum, p| sum ^ u64::from(p.next_seq) ^ p.data.as_deref().map_or(0, Assembly::warm))
    }
    /// The progress of a direction.
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
    /// Special properties of the session, by their names in events.
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
    /// All TCP flags seen in packets of a direction.
    pub const fn tcp_flags(&self, direction: Direction) -> u8 {
        self.peers[direction.index()].tcp_flags
    }
    /// Whether the session was picked up midstream or resumed, so that the first data for the application layer may not
    /// be the start of a message.
    pub const fn is_midstream(&self) -> bool {
        self.flags & (flag::MIDSTREAM | flag::RESUMED) != 0
    }
    /// The direction of the first data that arrived. The other side may have acknowledged its own direction's data sooner.
    pub fn opened_by(&self) -> Option<Direction> {
        let opens = |d: &Direction| self.peers[d.index()].data.as_ref().is_some_and(|a| a.opens);
        [Direction::ToServer, Direction::ToClient].into_iter().find(opens)
    }
    /// Whether data came with the SYN, or the SYN had the fast open option (RFC 7413).
    pub const fn is_fast_open(&self) -> bool {
        self.flags & (flag::FAST_OPEN | flag::SYN_DATA) != 0
    }
    /// Whether the only data came with a SYN without the fast open option, and no SYN/ACK acknowledged it: nobody read it.
    pub fn is_untaken(&self) -> bool {
        self.state == TcpState::SynSent && self.flags & (flag::FAST_OPEN | flag::SYN_DATA) == flag::SYN_DATA
    }
    /// Whether a side reset the connection.
    pub fn was_reset(&self) -> bool {
        self.peers.iter().any(|p| p.has(peer_flag::RESET))
    }

    /// Whether only one side of the connection is visible.
    pub const fn is_async(&self) -> bool {
        self.flags & flag::ASYNC != 0
    }
    /// Changes how much of each direction is reassembled: `depth` bytes, 0 for all. Data that a direction already
    /// skipped stays lost.
    pub const fn set_depth(&mut self, depth: u64) {
        self.depth = Some(depth);
    }
    /// Whether a direction's data reached `depth` and is no longer tracked.
    pub const fn depth_reached(&self, direction: Direction) -> bool {
        self.peers[direction.index()].has(peer_flag::DEPTH)
    }
    /// Whether data of a direction is missing.
    pub const fn has_gap(&self, direction: Direction) -> bool {
        self.peers[direction.index()].has(peer_flag::GAP)
    }
    /// The sequence numbers that a direction used so far, including gaps (`stream_size`). A SYN counts as one, and so
    /// does an acknowledged FIN. A server's FIN that is the first one counts at once (observed).
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
    /// Urgent bytes of a direction that its receiver removes from the stream (`tcp.ts_urgent_oob_data`,
    /// `tc_urgent_oob_data`).
    pub fn urgent_bytes(&self, direction: Direction) -> u64 {
        self.data(direction).map_or(0, |d| d.buffer.urgent_count())
    }
    /// Whether a packet with sequence number `seq` may be a direction's next one, if the direction carried `bytes`
    /// (including headers) since the session last saw a packet: it is not before the acknowledged data, and not beyond
    /// these bytes plus a window.
    pub fn may_be_next(&self, direction: Direction, seq: u32, bytes: u64) -> bool {
        let p = &self.peers[direction.index()];
        let from = crate::seq::min(p.last_ack, p.next_seq);
        let to = crate::seq::max(p.last_ack, p.next_seq);
        let span = u64::from(to.wrapping_sub(from)) + u64::from(p.window.max(WINDOW)) + bytes;
        u64::from(seq.wrapping_sub(from)) <= span
    }
    /// The sequence number at a direction's stream offset 0. Stream offsets do not count removed urgent bytes.
    pub const fn first_seq(&self, direction: Direction) -> u32 {
        let p = &self.peers[direction.index()];
        p.next_seq.wrapping_sub(p.next_off as u32)
    }
    /// Initial sequence number of a direction's sender.
    pub const fn isn(&self, direction: Direction) -> u32 {
        self.peers[direction.index()].isn
    }
    /// Largest number of separate data regions at a time (`tcp.ts_max_regions`, `tc_max_regions`).
    pub fn max_regions(&self, direction: Direction) -> u16 {
        self.peers[direction.index()].data.as_ref().map_or(1, |d| d.buffer.regions_seen().max(1))
    }
    /// Stream offset up to which raw inspection has read a direction.
    pub fn raw_offset(&self, direction: Direction) -> u64 {
        self.peers[direction.index()].data.as_ref().map_or(0, |d| d.raw)
    }
    /// Stream offset up to which the application layer has read a direction.
    pub fn app_offset(&self, direction: Direction) -> u64 {
        self.peers[direction.index()].data.as_ref().map_or(0, |d| d.app)
    }

    /// The stream offsets between which an event shows a direction's data. Inline that is all, since the match may include earlier
    /// data. A passive event shows acknowledged data that is parsed or inspected now, and all data if there is a hole, as in
    /// Suricata. With `from_start` it begins with the stream, if that is still stored.
    pub fn event_range(&self, direction: Direction, passive: bool, from_start: bool) -> (u64, u64) {
        let Some(d) = self.data(direction).filter(|_| passive) else { return (0, u64::MAX) };
        let from = if from_start && d.buffer.freed() == 0 { 0 } else { d.handled };
        let held = d.buffer.contiguous(from, d.acked).len() as u64;
        let whole = from < d.acked && held == d.acked - from;
        (from, if whole { d.acked } else { u64::MAX })
    }

    /// Stream offset up to which the receiver acknowledged a direction.
    pub fn acknowledged_offset(&self, direction: Direction) -> u64 {
        self.peers[direction.index()].data.as_ref().map_or(0, |d| d.acked)
    }

    /// Whether data is inspected before its acknowledgment (`stream.inline`).
    pub const fn inline(&self) -> bool {
        self.flags & flag::INLINE != 0
    }

    /// Whether data is read before it is acknowledged.
    pub(crate) const fn at_once(&self) -> bool {
        self.flags & (flag::INLINE | flag::ASYNC) != 0
    }
    /// The offset at which a side's stream begins, while that may still move.
    pub(crate) const fn base(&self, p: &Peer) -> u64 {
        if p.has(peer_flag::FLOATING) && !self.at_once() { FLOAT } else { 0 }
    }
    const fn data(&self, direction: Direction) -> Option<&Assembly> {
        match &self.peers[direction.index()].data {
            Some(d) => Some(d),
            None => None,
        }
    }

    /// How far a direction's data may be read: acknowledged data; inline, or with `all`, everything.
    fn limit(&self, d: &Assembly, all: bool) -> u64 {
        if all || self.at_once() { u64::MAX } else { d.acked }
    }

    /// Unread data of a direction for the application layer; `all` includes unacknowledged data, at the end of a flow.
    /// After using it, call [`TcpSession::app_consume`] and then this again.
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

    /// Whether bytes of a direction are missing at stream offset `at` and will not come any more: the receiver has them
    /// or, with `all`, only later data exists.
    pub fn app_gap_at(&self, direction: Direction, at: u64, all: bool) -> bool {
        let Some(d) = self.data(direction) else { return false };
        let lost = if all { u64::MAX } else { d.acked };
        d.buffer.next_at(at).is_some_and(|next| next > at && next <= lost)
    }

    /// Whether contiguous data of a direction waits for an acknowledgment.
    pub fn app_unacknowledged(&self, direction: Direction) -> bool {
        let Some(d) = self.data(direction).filter(|_| self.flags & flag::APP_OFF == 0) else { return false };
        let at = d.app.max(self.limit(d, false));
        !d.buffer.contiguous(at, u64::MAX).is_empty()
    }

    /// Records that the application layer used `n` bytes, or skipped a gap of `n`.
    pub fn app_consume(&mut self, direction: Direction, n: u64) {
        if let Some(d) = &mut self.peers[direction.index()].data {
            d.app = d.app.saturating_add(n);
        }
        self.release(direction);
    }

    /// Records that a parser learns of a gap of `n` bytes: it is reported even if the parser ends there. Call
    /// [`TcpSession::app_consume`] after it.
    pub fn app_notice_gap(&mut self, direction: Direction, n: u64) {
        if let Some(d) = &mut self.peers[direction.index()].data {
            d.skipped = d.app.saturating_add(n);
        }
    }

    /// Keeps data of a direction from stream offset `from` on, even if all readers have it; `None` ends that.
    pub fn keep(&mut self, direction: Direction, from: Option<u64>) {
        if let Some(d) = &mut self.peers[direction.index()].data
            && d.keep != from
        {
            d.keep = from;
            self.release(direction);
        }
    }

    /// Calls `each` with every contiguous part of a direction between two stream offsets, and with the part's offset.
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

    /// Whether the session has no reader: neither the application layer nor raw inspection.
    pub(crate) const fn is_unread(&self) -> bool {
        let both_off = flag::APP_OFF | flag::RAW_OFF;
        self.flags & both_off == both_off
    }

    /// Stops the application layer's reading of this session.
    pub fn app_disable(&mut self) {
        self.flags |= flag::APP_OFF;
        self.release(Direction::ToServer);
        self.release(Direction::ToClient);
    }

    /// Records TCP flags of a direction's packets from before this session.
    pub const fn heard_before(&mut self, direction: Direction, tcp_flags: u8) {
        self.peers[direction.index()].tcp_flags |= tcp_flags;
    }

    /// Stops raw inspection of this session.
    pub fn raw_disable(&mut self) {
        self.flags |= flag::RAW_OFF;
        self.release(Direction::ToServer);
        self.release(Direction::ToClient);
    }

    /// Makes the next [`TcpSession::raw_chunk`] of a direction return all available data, whatever its size.
    pub fn raw_trigger(&mut self, direction: Direction) {
        self.peers[direction.index()].flags |= peer_flag::TRIGGER;
    }

    /// The data that raw inspection should see now, if any. Inline: the latest packet's data, preceded by up to a chunk
    /// of earlier data. Otherwise acknowledged data, once a chunk is complete, a gap follows, or after
    /// [`TcpSession::raw_trigger`]; with `all`, everything. After inspection, call [`TcpSession::raw_done`] and then
    /// this again.
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
            // Data that a long segment repeats may be freed; the rest is inspected.
            let start = d.buffer.next_at(start).map_or(start, |held| held.min(end));
            let chunk = u64::from(d.chunk_size);
            let (from, data) = if d.around.is_empty() {
                let from = d.buffer.start_of(start).max(start.saturating_sub(chunk));
                // Early data after this packet was inspected without it, so it is inspected again.
                let (own, end) = (end, end.max(d.raw.min(end.saturating_add(chunk))));
                let (mut from, mut data) = (from, d.buffer.contiguous(from, end));
                // For a segment across a gap that was skipped, the data after the gap is new.
                while let Some(next) =
                    d.buffer.next_at(from + data.len() as u64).filter(|n| *n < own && !data.is_empty())
                {
                    (from, data) = (next, d.buffer.contiguous(next, end));
                }
                (from, data)
            } else {
                (d.around_at, d.around.as_slice())
            };
            // A packet's data is inspected even if it was seen before: the packet may have to be dropped.
            let seen = (start.saturating_sub(from)).min(data.len() as u64) as usize;
            return (!data.is_empty()).then_some(StreamChunk { data, offset: from, seen });
        }
        let before = d.raw < d.border;
        let end = if before { d.border } else { u64::MAX };
        let limit = self.limit(d, all).min(end);
        // Skips a gap.
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
        // Nothing follows data that reached the depth, so it does not wait for a whole chunk.
        let due = all || hole || before || peer.has(peer_flag::TRIGGER | peer_flag::DEPTH);
        if fresh.is_empty() || !(due || fresh.len() as u64 >= u64::from(d.chunk_size)) {
            return None;
        }
        let mut from = d.buffer.start_of(at).max(at.saturating_sub(u64::from(d.context)));
        if !before {
            from = from.max(d.border.min(at));
        }
        let data = d.buffer.contiguous(from, end);
        if from + (data.len() as u64) < end {
            // Data in doubt is not joined to the data before it until it is acknowledged or the stream is finished.
            return Some(StreamChunk { data: fresh, offset: at, seen: 0 });
        }
        Some(StreamChunk { data, offset: from, seen: (at - from) as usize })
    }

    /// Records that the chunk from [`TcpSession::raw_chunk`] was inspected; `end` is the stream offset of its end.
    pub fn raw_done(&mut self, direction: Direction, end: u64) {
        let app_off = self.flags & flag::APP_OFF != 0;
        let peer = &mut self.peers[direction.index()];
        if let Some(d) = &mut peer.data {
            d.raw = d.raw.max(end);
            // All chunks at the end of a stream are inspected together.
            if d.finished.is_none() {
                d.handled = d.raw.min(if app_off { u64::MAX } else { d.app });
            }
            d.pending = false;
            d.around.clear();
        }
        peer.flags &= !(peer_flag::TRIGGER | peer_flag::RAW_LEFT);
        self.release(direction);
    }

    /// Whether data of either direction was ever stored. Otherwise nothing is left to inspect when the flow ends.
    pub fn has_data(&self) -> bool {
        self.peers.iter().any(|p| p.data.is_some())
    }

    /// Whether a direction has uninspected data. The engine then creates a pseudo packet for it when the flow ends.
    pub fn needs_flush(&self, direction: Direction) -> bool {
        let Some(d) = self.data(direction) else { return false };
        let left = |from: u64| d.buffer.next_at(from).is_some();
        (self.flags & flag::APP_OFF == 0 && left(d.app)) || (self.flags & flag::RAW_OFF == 0 && left(d.raw))
    }

    /// Whether the session gives way to a connection that is resumed: nothing but a SYN or an unsolicited SYN/ACK opened it,
    /// or the client reset it before the server answered.
    #[inline]
    pub const fn gives_way(&self) -> bool {
        match self.state {
            TcpState::SynSent => true,
            TcpState::SynRecv => self.flags & flag::MIDSTREAM != 0,
            TcpState::Closed => self.peers[1].tcp_flags == 0 && self.peers[0].data.is_none(),
            _ => false,
        }
    }

    /// Whether raw inspection still has data of a direction left on a connection that is ending. Suricata then treats
    /// each of its packets as one with stream data, although nothing may be acknowledged.
    pub fn raw_waits(&self, direction: Direction) -> bool {
        matches!(self.state, TcpState::CloseWait | TcpState::Closing | TcpState::Closed)
            && self.flags & flag::RAW_OFF == 0
            && !self.inline()
            && self.data(direction).is_some_and(|d| d.buffer.next_at(d.raw).is_some())
    }

    /// Appends the stored data of a direction between two stream offsets to `out`, up to `max` bytes. Holes appear as
    /// `[n bytes missing]`.
    pub fn payload_with_gaps(&self, direction: Direction, from: u64, to: u64, max: usize, out: &mut Vec<u8>) {
        if let Some(d) = self.data(direction) {
            d.buffer.with_gaps(from, to, max, out);
        }
    }

    /// Inline: replaces `payload`, sent in a direction with sequence number `seq`, by the stream's bytes in that place.
    /// Bytes that the receiver has and that were freed become zeros, which it ignores. Returns whether bytes changed:
    /// the packet must then not be forwarded as it came.
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

    /// Frees data that no reader needs, and makes read data final.
    pub(crate) fn release(&mut self, direction: Direction) {
        let left = self.peers[direction.index()].has(peer_flag::RAW_LEFT);
        let (app_off, raw_off) = (self.flags & flag::APP_OFF != 0, self.flags & flag::RAW_OFF != 0 && !left);
        let inline = self.inline();
        let closed = self.state == TcpState::Closed;
        // Unacknowledged data may have to be read again, because not every host accepts a reset.
        let reset = closed && !self.settled && self.peers.iter().any(|p| p.has(peer_flag::RESET));
        let may_go_on = reset && !inline;
        let held_back = self.holds_back(&self.peers[direction.index()]);
        let Some(d) = &mut self.peers[direction.index()].data else { return };
        let end = d.buffer.in_order_end();
        // A reader that is off counts as having read everything. Early data that was inspected does not count, since the
        // data before it is still to come.
        let app = if app_off { end } else { d.app };
        let raw = if raw_off { end } else { d.raw.min(end) };
        // Inline, the current packet's data is still to be inspected, with the data before it.
        let raw = if inline && d.pending && !raw_off { raw.min(d.packet.0) } else { raw };
        // Data that one reader has seen must not change for the other.
        let settled = match (app_off, raw_off) {
            _ if inline => app.min(raw),
            (false, true) => app.min(d.acked),
            (true, _) => raw.min(d.acked),
            (false, false) => app.max(raw).min(d.acked),
        };
        // Keeps the context that uninspected data needs.
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

    /// Ends the streams: puts early data in order across missing data. Call this before reading unacknowledged data.
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

    /// Whether a side's data may have to be read again because earlier data may arrive. Then nothing is freed.
    const fn holds_back(&self, p: &Peer) -> bool {
        p.has(peer_flag::FLOATING) && self.at_once()
    }

    /// After the current packet's inspection: releases unused memory if the connection is closed.
    pub fn shrink_closed(&mut self) {
        if self.state == TcpState::Closed {
            for d in self.peers.iter_mut().filter_map(|p| p.data.as_mut()) {
                d.buffer.shrink();
            }
            self.freed = true;
        }
    }
}
