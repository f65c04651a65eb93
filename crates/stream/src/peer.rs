//! One side of a connection as a sender: its numbers, and its data with how far the readers are.

use crate::buffer::StreamBuffer;
use crate::policy::OsPolicy;
use crate::seq;

/// Bits of [`Peer::flags`].
pub(crate) mod peer_flag {
    pub(crate) const DEPTH: u16 = 1;
    pub(crate) const RST_SENT: u16 = 1 << 1;
    pub(crate) const ZERO_TIMESTAMP: u16 = 1 << 2;
    /// A byte was sent into a window of 0.
    pub(crate) const PROBE: u16 = 1 << 3;
    pub(crate) const TRIGGER: u16 = 1 << 4;
    pub(crate) const GAP: u16 = 1 << 5;
    pub(crate) const FIN: u16 = 1 << 6;
    pub(crate) const OOB_LIMIT: u16 = 1 << 7;
    /// Picked up in its middle, and the other side has not said yet what it has of this side's data.
    pub(crate) const FLOATING: u16 = 1 << 8;
    /// Its numbers are what the other side said of them: it has not sent anything yet.
    pub(crate) const GUESSED: u16 = 1 << 9;
    /// It sent the reset that closed the session.
    pub(crate) const RESET: u16 = 1 << 10;
    /// It sent data behind its FIN.
    pub(crate) const PAST_FIN: u16 = 1 << 11;
    /// Its latest timestamp came with nothing new: an acknowledgment does not say whether that packet arrived.
    pub(crate) const TIMESTAMP_ALONE: u16 = 1 << 12;
    /// Raw inspection ended where what follows is encrypted.
    pub(crate) const RAW_ENDED: u16 = 1 << 13;
    /// There was data that it had not looked at then.
    pub(crate) const RAW_LEFT: u16 = 1 << 14;
    /// The packet that completed its handshake has a timestamp for which its receiver may discard it.
    pub(crate) const OPENS_DOUBTFULLY: u16 = 1 << 15;
}

/// Where the stream of a side that is floating begins, so that there is room for what was sent before what was seen first: no
/// window is larger (RFC 7323 section 2.3).
pub(crate) const FLOAT: u64 = 1 << 30;

/// How far before a timestamp that is not certain one is that surely is noted, or older: as far as timestamps can be compared, and half.
pub(crate) const TS_SPAN: u32 = 1 << 30;

/// The largest window (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 65_535 << 14;

/// How often the data of a side that was picked up in its middle is read anew, because some came that was before it.
const RESTARTS_MAX: u8 = 8;

/// One side, as a sender: its numbers, and how far the other side got with its data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) isn: u32,
    /// One past the last byte (or FIN) seen.
    pub(crate) next_seq: u32,
    /// Sequence offset of `next_seq`: 0 is the first byte after the SYN.
    pub(crate) next_off: u64,
    /// Highest acknowledgment of the other side, of what was seen.
    pub(crate) last_ack: u32,
    /// The latest acknowledgment of the other side where that is of more than was seen, else at or before `last_ack`.
    pub(crate) ahead: u32,
    /// The window that the other side last offered, scaled.
    pub(crate) window: u32,
    /// The largest that it ever offered.
    pub(crate) max_window: u32,
    /// Furthest that the other side ever let this one send.
    pub(crate) edge: u32,
    /// The timestamp that the other side has noted of this one's, as far as is certain (`TS.Recent` of RFC 7323); 0: none.
    pub(crate) last_ts: u32,
    /// The latest that it may have noted.
    pub(crate) max_ts: u32,
    /// When `last_ts` was sent, in seconds.
    pub(crate) last_ts_time: u32,
    pub(crate) flags: u16,
    /// Shift of the windows that this side offers.
    pub(crate) wscale: u8,
    pub(crate) tcp_flags: u8,
    pub(crate) policy: OsPolicy,
    /// TTL (hop limit) of its packets that arrived: 0 where that is not known.
    pub(crate) ttl: u8,
    /// The lowest TTL below that of its data that was not acknowledged yet; 0: none.
    pub(crate) low_ttl: u8,
    pub(crate) data: Option<Box<Assembly>>,
}

// What a packet touches of a side is one cache line.
const _: () = assert!(size_of::<Peer>() <= 64);

impl Peer {
    /// The sequence offset of a sequence number, 0 being the first byte after the SYN; negative before that.
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
                // Some of it was acknowledged before it was seen.
                self.last_ack = seq::min(self.ahead, seq);
            }
        }
    }
    /// Starts over: the stream begins after `isn`.
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
    /// Takes an acknowledgment and a window of the other side. What was not seen counts as acknowledged when it is.
    pub(crate) fn acked(&mut self, ack: u32, window: u32) {
        self.last_ack = seq::max(self.last_ack, seq::min(ack, self.next_seq));
        self.ahead = seq::max(ack, self.last_ack);
        self.window = window;
        self.max_window = self.max_window.max(window);
        // No window is larger: whoever acknowledges more than could be sent opens none.
        let furthest = seq::max(self.next_seq, self.last_ack).wrapping_add(WINDOW_MAX);
        self.edge = seq::max(self.edge, seq::min(ack.wrapping_add(window), furthest));
    }
    /// The sequence number that the other side expects next, as far as can be told: what it has acknowledged, and what was seen
    /// behind that without a hole.
    pub(crate) fn expected(&self) -> u32 {
        let Some(d) = self.data.as_deref().filter(|_| !self.has(peer_flag::DEPTH | peer_flag::FLOATING)) else {
            return seq::max(self.last_ack, self.next_seq);
        };
        let behind = self.next_off.saturating_sub(d.in_order());
        // A FIN has a number, and no byte. Where nobody reads, nothing is taken.
        if behind <= u64::from(self.has(peer_flag::FIN)) || behind > u64::from(u32::MAX / 2) {
            return seq::max(self.last_ack, self.next_seq);
        }
        seq::max(self.last_ack, self.next_seq.wrapping_sub(behind as u32))
    }
    /// The furthest sequence number that the other side may expect next: it may have taken what came with a doubt.
    pub(crate) fn expected_at_most(&self) -> u32 {
        match self.data.as_deref() {
            Some(d) if d.buffer.has_doubtful() => self.next_seq,
            _ => self.expected(),
        }
    }
    /// How many bytes were seen behind what was acknowledged, without a hole.
    pub(crate) fn unacknowledged(&self) -> u32 {
        let expected = self.expected();
        let fin = u32::from(self.has(peer_flag::FIN) && expected == self.next_seq);
        let sent = expected.wrapping_sub(self.last_ack);
        if seq::gt(expected, self.last_ack) { sent - fin } else { 0 }
    }
    /// Whether its FIN was seen behind all of its data, and was not acknowledged.
    pub(crate) fn ends_unacknowledged(&self) -> bool {
        self.has(peer_flag::FIN) && seq::lt(self.last_ack, self.next_seq) && self.expected() == self.next_seq
    }
    /// What was acknowledged of it, FIN included.
    pub(crate) fn acked_bytes(&self) -> u64 {
        u64::try_from(self.offset(self.last_ack)).unwrap_or(0)
    }
    /// The stream of a side that is floating begins with what the other side expects next, where that is known, or with the first byte
    /// that was seen.
    pub(crate) fn begin_at(&mut self, expected: Option<u32>) {
        self.flags &= !peer_flag::FLOATING;
        let expected = expected.and_then(|seq| u64::try_from(self.offset(seq)).ok());
        let first = self.data.as_ref().and_then(|d| d.buffer.next_at(0));
        // What the other side has already was seen here as well.
        let start = match (expected, first) {
            (Some(e), Some(f)) => e.min(f),
            (e, f) => e.or(f).unwrap_or(FLOAT),
        };
        let start = start.min(self.next_off);
        self.next_off -= start;
        if let Some(d) = &mut self.data {
            d.buffer.begin_at(start);
            (d.app, d.raw, d.gap_seen, d.border) = (0, 0, 0, 0);
            d.acked = d.acked.saturating_sub(start);
        }
    }
    /// The stream of a side whose data is read at once begins `add` bytes before what was seen first. `false` where that is not possible
    /// any more, for what was seen is not there to be read again.
    pub(crate) fn begin_before(&mut self, add: u64, inline: bool) -> bool {
        if let Some(d) = &mut self.data {
            if d.restarts >= RESTARTS_MAX || !d.buffer.rewind(add) {
                return false;
            }
            d.restarts += 1;
            (d.app, d.gap_seen, d.border) = (0, 0, 0);
            // Inline inspection has seen what was there; it looks at it again beside what comes before it.
            d.raw = if inline { d.raw + add } else { 0 };
            (d.pending, d.first_gap, d.keep, d.acked) = (false, None, None, 0);
        }
        self.next_off += add;
        true
    }
    /// Notes a timestamp that the other side certainly takes, or that it may take.
    pub(crate) const fn note_timestamp(&mut self, value: u32, secs: u32, certain: bool) {
        if certain && (self.last_ts == 0 || seq::geq(value, self.last_ts)) {
            self.last_ts = value;
            self.last_ts_time = secs;
        }
        if self.max_ts == 0 || seq::gt(value, self.max_ts) {
            self.max_ts = value;
            self.flags &= !peer_flag::TIMESTAMP_ALONE;
            if seq::gt(self.last_ts, value) {
                // They went half round: the one that is certain no longer compares.
                let before = value.wrapping_sub(TS_SPAN);
                self.last_ts = if before == 0 { 1 } else { before };
            }
        }
    }
}

/// One direction's data and how far its readers are, by stream offset. First what most packets touch.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct Assembly {
    /// The application layer has everything before this.
    pub(crate) app: u64,
    /// Raw inspection has everything before this.
    pub(crate) raw: u64,
    /// The other side acknowledged everything before this.
    pub(crate) acked: u64,
    /// Holes up to here were reported.
    pub(crate) gap_seen: u64,
    /// Raw inspection looks at what is before this and what is behind it apart.
    pub(crate) border: u64,
    /// Bytes of memory that are accounted for.
    pub(crate) accounted: u64,
    /// Everything from here on is kept, whoever has it.
    pub(crate) keep: Option<u64>,
    pub(crate) buffer: StreamBuffer,
    /// Where the latest packet's data was: inline inspection looks there.
    pub(crate) packet: (u64, u64),
    /// Inline: what inspection looks at of early data, and its stream offset.
    pub(crate) around: Vec<u8>,
    pub(crate) around_at: u64,
    /// Where the first hole began.
    pub(crate) first_gap: Option<u64>,
    /// The sequence offset of the first byte that was not in order when what was early was put in order at the end.
    pub(crate) finished: Option<u64>,
    pub(crate) chunk_size: u32,
    pub(crate) context: u32,
    /// Inline: data of the latest packet was not looked at yet.
    pub(crate) pending: bool,
    /// How often reading began anew, for data came that was before what was read.
    pub(crate) restarts: u8,
}

// The readers' offsets are one cache line, and the buffer begins with the next.
const _: () = assert!(size_of::<Assembly>() <= 384 && std::mem::offset_of!(Assembly, buffer) == 64);

impl Assembly {
    /// Prefetches it, as [`crate::TcpSession::warm`] does.
    #[inline]
    pub(crate) fn warm(&self) -> u64 {
        self.app ^ self.buffer.warm() ^ u64::from(self.chunk_size)
    }

    /// The stream offset of a sequence offset: urgent bytes that were taken out do not count.
    #[inline]
    pub(crate) fn place(&self, offset: u64) -> u64 {
        self.buffer.stream_of(offset)
    }

    /// The sequence offset of the first byte that is not in order.
    pub(crate) fn in_order(&self) -> u64 {
        self.finished.unwrap_or_else(|| self.buffer.next())
    }
}
