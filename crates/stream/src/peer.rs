//! One side of a connection as a sender: its sequence numbers, its data and the positions of the readers.

use crate::buffer::StreamBuffer;
use crate::policy::OsPolicy;
use crate::seq;

/// Bits of [`Peer::flags`].
pub(crate) mod peer_flag {
    pub(crate) const DEPTH: u16 = 1;
    pub(crate) const RST_SENT: u16 = 1 << 1;
    pub(crate) const ZERO_TIMESTAMP: u16 = 1 << 2;
    /// The sender sent a byte into a window of 0.
    pub(crate) const PROBE: u16 = 1 << 3;
    pub(crate) const TRIGGER: u16 = 1 << 4;
    pub(crate) const GAP: u16 = 1 << 5;
    pub(crate) const FIN: u16 = 1 << 6;
    pub(crate) const OOB_LIMIT: u16 = 1 << 7;
    /// Picked up midstream, and the other side has not yet acknowledged any of this side's data.
    pub(crate) const FLOATING: u16 = 1 << 8;
    /// This side has not sent anything yet: its sequence numbers come from the other side's packets.
    pub(crate) const GUESSED: u16 = 1 << 9;
    /// This side sent the reset that closed the session.
    pub(crate) const RESET: u16 = 1 << 10;
    /// This side sent data after its FIN.
    pub(crate) const PAST_FIN: u16 = 1 << 11;
    /// Its latest timestamp came without new data, so an acknowledgment does not show whether that packet arrived.
    pub(crate) const TIMESTAMP_ALONE: u16 = 1 << 12;
    /// Raw inspection ended because the following data is encrypted.
    pub(crate) const RAW_ENDED: u16 = 1 << 13;
    /// Raw inspection still returns one last chunk, which may be empty ([`crate::TcpSession::raw_finish`]).
    pub(crate) const RAW_LEFT: u16 = 1 << 14;
    /// The server may have discarded the packet that completed the handshake because of its timestamp.
    pub(crate) const OPENS_DOUBTFULLY: u16 = 1 << 15;
}

/// Start offset of a floating side's stream. It leaves room for data sent before the first data seen: no window is
/// larger (RFC 7323 section 2.3).
pub(crate) const FLOAT: u64 = 1 << 30;

/// Maximum distance between an uncertain timestamp and the certain one: half of the range in which timestamps can be
/// compared.
pub(crate) const TS_SPAN: u32 = 1 << 30;
/// Seconds after which a timestamp of a host that counts microseconds (Linux since 6.7) may no longer be comparable.
pub(crate) const TIMESTAMP_AGE_FINE: u32 = (i32::MAX / 1_000_000) as u32;

/// The largest window (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 65_535 << 14;

/// How often reading may restart for a side picked up midstream, because earlier data arrived.
const RESTARTS_MAX: u8 = 8;

/// One side as a sender: its sequence numbers, and the other side's progress with its data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) isn: u32,
    /// One past the last byte (or FIN) seen.
    pub(crate) next_seq: u32,
    /// Sequence offset of `next_seq`: 0 is the first byte after the SYN.
    pub(crate) next_off: u64,
    /// Highest acknowledgment by the other side of data that was seen.
    pub(crate) last_ack: u32,
    /// The other side's latest acknowledgment if it covers unseen data; otherwise a value at or before `last_ack`.
    pub(crate) ahead: u32,
    /// The other side's last window, scaled.
    pub(crate) window: u32,
    /// The other side's largest window so far.
    pub(crate) max_window: u32,
    /// The furthest sequence number that the other side ever allowed.
    pub(crate) edge: u32,
    /// The latest timestamp of this side that the other side has certainly recorded (`TS.Recent` of RFC 7323); 0 for
    /// none.
    pub(crate) last_ts: u32,
    /// The latest timestamp that the other side may have recorded.
    pub(crate) max_ts: u32,
    /// When `last_ts` was sent, in seconds.
    pub(crate) last_ts_time: u32,
    pub(crate) flags: u16,
    /// Window shift of the windows that this side announces.
    pub(crate) wscale: u8,
    pub(crate) tcp_flags: u8,
    pub(crate) policy: OsPolicy,
    /// TTL (hop limit) of its packets that arrived; 0 if unknown.
    pub(crate) ttl: u8,
    /// The lowest TTL of its unacknowledged data, if that is below `ttl`; 0 for none.
    pub(crate) low_ttl: u8,
    pub(crate) data: Option<Box<Assembly>>,
}

// A side fits a cache line, so a packet touches one line for each side.
const _: () = assert!(size_of::<Peer>() <= 64);

/// How far a sender has come: the result of [`Peer::reached`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    next_seq: u32,
    next_off: u64,
    last_ack: u32,
}

impl Peer {
    /// The sequence offset of a sequence number: 0 is the first byte after the SYN; earlier numbers are negative.
    pub(crate) fn offset(&self, seq: u32) -> i64 {
        self.next_off as i64 + i64::from(seq.wrapping_sub(self.next_seq) as i32)
    }
    /// Moves `next_seq` up to `seq`.
    pub(crate) fn advance(&mut self, seq: u32) {
        let ahead = seq.wrapping_sub(self.next_seq) as i32;
        if ahead > 0 {
            self.next_off += ahead as u64;
            self.next_seq = seq;
            if seq::gt(self.ahead, self.last_ack) {
                // An earlier acknowledgment covers some of this data.
                self.last_ack = seq::min(self.ahead, seq);
            }
        }
    }
    /// How far the sender has come, for [`Peer::return_to`].
    pub(crate) const fn reached(&self) -> Reached {
        Reached { next_seq: self.next_seq, next_off: self.next_off, last_ack: self.last_ack }
    }
    /// Takes back what [`Peer::advance`] did.
    pub(crate) const fn return_to(&mut self, reached: Reached) {
        let Reached { next_seq, next_off, last_ack } = reached;
        (self.next_seq, self.next_off, self.last_ack) = (next_seq, next_off, last_ack);
    }
    /// Restarts: the stream begins after `isn`.
    pub(crate) const fn start(&mut self, isn: u32) {
        self.isn = isn;
        self.next_seq = isn.wrapping_add(1);
        self.next_off = 0;
        self.last_ack = self.next_seq;
        self.ahead = self.next_seq;
        self.edge = self.next_seq;
    }
    pub(crate) const fn has(&self, bit: u16) -> bool {
        self.flags & bit != 0
    }
    /// Records an acknowledgment and window of the other side. Unseen data counts as acknowledged once it is seen.
    pub(crate) fn acked(&mut self, ack: u32, window: u32) {
        self.last_ack = seq::max(self.last_ack, seq::min(ack, self.next_seq));
        self.ahead = seq::max(ack, self.last_ack);
        self.window = window;
        self.max_window = self.max_window.max(window);
        // No window is larger, so an acknowledgment of data that could not have been sent does not allow more.
        let furthest = seq::max(self.next_seq, self.last_ack).wrapping_add(WINDOW_MAX);
        self.edge = seq::max(self.edge, seq::min(ack.wrapping_add(window), furthest));
    }
    /// The next sequence number that the other side expects, as far as known: the acknowledged data, and data seen after
    /// it without a hole.
    pub(crate) fn expected(&self) -> u32 {
        let Some(d) = self.data.as_deref().filter(|_| !self.has(peer_flag::DEPTH | peer_flag::FLOATING)) else {
            return seq::max(self.last_ack, self.next_seq);
        };
        let behind = self.next_off.saturating_sub(d.in_order());
        // A FIN uses a sequence number but has no byte. Without a reader, no data is stored.
        if behind <= u64::from(self.has(peer_flag::FIN)) || behind > u64::from(u32::MAX / 2) {
            return seq::max(self.last_ack, self.next_seq);
        }
        seq::max(self.last_ack, self.next_seq.wrapping_sub(behind as u32))
    }
    /// The furthest sequence number that the other side may expect: it may have accepted data with a doubt.
    pub(crate) fn expected_at_most(&self) -> u32 {
        match self.data.as_deref() {
            Some(d) if d.buffer.has_doubtful() => self.next_seq,
            _ => self.expected(),
        }
    }
    /// The number of bytes seen after the acknowledged ones, without a hole.
    pub(crate) fn unacknowledged(&self) -> u32 {
        let expected = self.expected();
        let fin = u32::from(self.has(peer_flag::FIN) && expected == self.next_seq);
        let sent = expected.wrapping_sub(self.last_ack);
        if seq::gt(expected, self.last_ack) { sent - fin } else { 0 }
    }
    /// Whether its FIN was seen after all its data and is not acknowledged.
    pub(crate) fn ends_unacknowledged(&self) -> bool {
        self.has(peer_flag::FIN) && seq::lt(self.last_ack, self.next_seq) && self.expected() == self.next_seq
    }
    /// The number of acknowledged bytes, including a FIN.
    pub(crate) fn acked_bytes(&self) -> u64 {
        u64::try_from(self.offset(self.last_ack)).unwrap_or(0)
    }
    /// Fixes the start of a floating side's stream: the byte that the other side expects next, if known, or the first
    /// byte seen.
    pub(crate) fn begin_at(&mut self, expected: Option<u32>) {
        self.flags &= !peer_flag::FLOATING;
        let expected = expected.and_then(|seq| u64::try_from(self.offset(seq)).ok());
        let first = self.data.as_ref().and_then(|d| d.buffer.next_at(0));
        // If the engine saw data from before the expected byte, the stream begins with that data.
        let start = match (expected, first) {
            (Some(e), Some(f)) => e.min(f),
            (e, f) => e.or(f).unwrap_or(FLOAT),
        };
        let start = start.min(self.next_off);
        self.next_off -= start;
        if let Some(d) = &mut self.data {
            d.buffer.begin_at(start);
            (d.app, d.raw, d.gap_seen, d.skipped, d.border) = (0, 0, 0, 0, 0);
            d.acked = d.acked.saturating_sub(start);
        }
    }
    /// Moves the start of a stream that is read at once back by `add` bytes, to before the first byte seen. Returns
    /// `false` if the data seen so far is gone and cannot be read again.
    pub(crate) fn begin_before(&mut self, add: u64, inline: bool) -> bool {
        if let Some(d) = &mut self.data {
            if d.restarts >= RESTARTS_MAX || !d.buffer.rewind(add) {
                return false;
            }
            d.restarts += 1;
            (d.app, d.gap_seen, d.skipped, d.border) = (0, 0, 0, 0);
            // Inline, that data was inspected. It is inspected again together with the data before it.
            d.raw = if inline { d.raw + add } else { 0 };
            (d.pending, d.first_gap, d.keep, d.acked) = (false, None, None, 0);
        }
        self.next_off += add;
        true
    }
    /// Records a timestamp that the other side accepts, certainly or maybe.
    pub(crate) const fn note_timestamp(&mut self, value: u32, secs: u32, certain: bool) {
        if certain && (self.last_ts == 0 || seq::geq(value, self.last_ts)) {
            self.last_ts = value;
            self.last_ts_time = secs;
        }
        if self.max_ts == 0 || seq::gt(value, self.max_ts) {
            self.max_ts = value;
            self.flags &= !peer_flag::TIMESTAMP_ALONE;
            if seq::gt(self.last_ts, value) {
                // The values are more than half the timestamp range apart, so the certain one can no longer be
                // compared. Any timestamp may be newer than it.
                let before = value.wrapping_sub(TS_SPAN);
                self.last_ts = if before == 0 { 1 } else { before };
                self.last_ts_time = secs.wrapping_sub(TIMESTAMP_AGE_FINE);
            }
        }
    }
}

/// One direction's data and its readers' positions, by stream offset. The fields that most packets touch come first.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct Assembly {
    /// The application layer has read everything before this.
    pub(crate) app: u64,
    /// Raw inspection has read everything before this.
    pub(crate) raw: u64,
    /// The other side acknowledged everything before this.
    pub(crate) acked: u64,
    /// Holes up to here were reported.
    pub(crate) gap_seen: u64,
    /// Raw inspection treats data before and after this separately.
    pub(crate) border: u64,
    /// Counted memory in bytes.
    pub(crate) accounted: u64,
    /// Data from here on is kept, even if all readers have it.
    pub(crate) keep: Option<u64>,
    pub(crate) buffer: StreamBuffer,
    /// The range of the latest packet's data, for inline inspection.
    pub(crate) packet: (u64, u64),
    /// Inline: the bytes to inspect for early data, and their stream offset.
    pub(crate) around: Vec<u8>,
    pub(crate) around_at: u64,
    /// Stream offset of the first byte that was not both parsed and inspected when raw inspection last ended.
    pub(crate) handled: u64,
    /// Where the first gap began.
    pub(crate) first_gap: Option<u64>,
    /// The end of the last gap that the application layer skipped.
    pub(crate) skipped: u64,
    /// The sequence offset of the first byte that was not in order when the stream was finished.
    pub(crate) finished: Option<u64>,
    pub(crate) chunk_size: u32,
    pub(crate) context: u32,
    /// Inline: the latest packet's data is not inspected yet.
    pub(crate) pending: bool,
    /// How often reading restarted because earlier data arrived.
    pub(crate) restarts: u8,
    /// The connection's first data that arrived is of this direction.
    pub(crate) opens: bool,
}

// The readers' offsets fill one cache line, and the buffer starts with the next.
const _: () = assert!(size_of::<Assembly>() <= 384 && std::mem::offset_of!(Assembly, buffer) == 64);

impl Assembly {
    /// Prefetches the data, as [`crate::TcpSession::warm`] does.
    #[inline]
    pub(crate) fn warm(&self) -> u64 {
        self.app ^ self.buffer.warm() ^ u64::from(self.chunk_size)
    }

    /// The stream offset of a sequence offset: removed urgent bytes do not count.
    #[inline]
    pub(crate) fn place(&self, offset: u64) -> u64 {
        self.buffer.stream_of(offset)
    }

    /// The sequence offset of the first byte that is not in order.
    pub(crate) fn in_order(&self) -> u64 {
        self.finished.unwrap_or_else(|| self.buffer.next())
    }
}
