//! Messages of nfnetlink_queue (linux/netfilter/nfnetlink_queue.h, linux/netlink.h): safe code that reads and writes bytes.
//!
//! A message is a header of 16 bytes (length, type, flags, sequence number, port; of this host's byte order), the 4 bytes of
//! `nfgenmsg` (family, version, queue number; big-endian), and attributes: length and type (2 bytes each, of this host's byte
//! order), a value (big-endian), and padding to a multiple of 4.

use super::finish::fill_in;

/// Bytes of a message before its attributes.
pub(super) const HEADER: usize = 20;
/// The part of these that every netlink message has.
const NETLINK_HEADER: usize = 16;
/// Most bytes of an attribute's value, and therefore of a received packet: 65535 minus the attribute's header.
pub(super) const PAYLOAD_MAX: usize = 65_531;

const SUBSYSTEM: u16 = (libc::NFNL_SUBSYS_QUEUE as u16) << 8;
const PACKET: u16 = SUBSYSTEM | libc::NFQNL_MSG_PACKET as u16;
const VERDICT: u16 = SUBSYSTEM | libc::NFQNL_MSG_VERDICT as u16;
const CONFIG: u16 = SUBSYSTEM | libc::NFQNL_MSG_CONFIG as u16;
const VERDICT_BATCH: u16 = SUBSYSTEM | libc::NFQNL_MSG_VERDICT_BATCH as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;

/// An attribute's type without its flags (`NLA_TYPE_MASK`).
const TYPE: u16 = 0x3fff;

const fn aligned(n: usize) -> usize {
    n.next_multiple_of(4)
}

fn half(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn number(b: &[u8]) -> Option<u32> {
    b.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// A packet that waits for its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Queued {
    /// Its number in the queue. Numbers are consecutive.
    pub(super) id: u32,
    /// Its current mark (`meta mark`).
    pub(super) mark: u32,
    /// Its checksums are yet to be filled in.
    pub(super) unfinished: bool,
    /// The kernel merged several packets into it, or will segment it.
    pub(super) merged: bool,
    /// Its full length, if it was truncated.
    pub(super) full: Option<u32>,
    /// It was truncated, and is forwarded in its shortened form.
    pub(super) shortened: bool,
    /// The place of its bytes in the read buffer.
    pub(super) start: usize,
    /// Number of its bytes.
    pub(super) len: usize,
}

/// A message of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Packet(Queued),
    /// The answer to a request (by sequence number): an error number, or 0.
    Answer {
        sequence: u32,
        error: i32,
    },
    /// A message of another kind.
    Other,
}

/// Reads the message at `at`. Returns it with the next one's offset; `None` at the end, or if the rest is not a message.
pub(super) fn read(bytes: &[u8], at: usize) -> Option<(Said, usize)> {
    let len = word(bytes, at)? as usize;
    let message = bytes.get(at..at.checked_add(len)?).filter(|m| m.len() >= NETLINK_HEADER)?;
    let next = at + aligned(len);
    let said = match half(message, 4)? {
        PACKET => packet(message, at).map_or(Said::Other, Said::Packet),
        ERROR => match (word(message, 16), word(message, 16 + 4 + 8)) {
            (Some(error), Some(sequence)) => Said::Answer { sequence, error: (error as i32).saturating_neg() },
            _ => Said::Other,
        },
        _ => Said::Other,
    };
    Some((said, next))
}

fn packet(message: &[u8], base: usize) -> Option<Queued> {
    let mut q = Queued::default();
    let (mut id, mut at) = (None, HEADER);
    while at + 4 <= message.len() {
        let (len, kind) = (usize::from(half(message, at)?), half(message, at + 2)?);
        let value = message.get(at + 4..at + len)?;
        match libc::c_int::from(kind & TYPE) {
            libc::NFQA_PACKET_HDR => id = number(value),
            libc::NFQA_MARK => q.mark = number(value)?,
            libc::NFQA_CAP_LEN => q.full = number(value),
            libc::NFQA_SKB_INFO => {
                let info = number(value)? as libc::c_int;
                q.unfinished = info & libc::NFQA_SKB_CSUMNOTREADY != 0;
                q.merged = info & libc::NFQA_SKB_GSO != 0;
            }
            libc::NFQA_PAYLOAD => (q.start, q.len) = (base + at + 4, value.len()),
            _ => {}
        }
        at += aligned(len);
    }
    q.id = id?;
    Some(q)
}

/// Messages to send together.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    /// Offset of the last message.
    at: usize,
}

impl Writer {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    fn begin(&mut self, kind: u16, queue: u16, sequence: u32) {
        self.at = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        self.bytes.extend(sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8]);
        self.bytes.extend(queue.to_be_bytes());
    }

    /// Appends an attribute with a value of at most [`PAYLOAD_MAX`] bytes.
    fn attribute(&mut self, kind: libc::c_int, value: &[&[u8]]) {
        let len = 4 + value.iter().map(|v| v.len()).sum::<usize>();
        self.bytes.extend((len as u16).to_ne_bytes());
        self.bytes.extend((kind as u16).to_ne_bytes());
        value.iter().for_each(|v| self.bytes.extend_from_slice(v));
        self.bytes.resize(self.bytes.len() + aligned(len) - len, 0);
    }

    fn end(&mut self) {
        let len = (self.bytes.len() - self.at) as u32;
        if let Some(place) = self.bytes.get_mut(self.at..self.at + 4) {
            place.copy_from_slice(&len.to_ne_bytes());
        }
    }

    /// Takes over a queue with all its parameters in one message, so that no packet is lost in between.
    pub(super) fn bind(&mut self, queue: u16, sequence: u32, length: u32, flags: u32) {
        self.begin(CONFIG, queue, sequence);
        // nfqnl_msg_config_cmd: command, padding, protocol family (no longer used).
        self.attribute(libc::NFQA_CFG_CMD, &[&[libc::NFQNL_CFG_CMD_BIND as u8, 0, 0, 0]]);
        // nfqnl_msg_config_params: bytes to copy, mode.
        let range = (PAYLOAD_MAX as u32).to_be_bytes();
        self.attribute(libc::NFQA_CFG_PARAMS, &[&range, &[libc::NFQNL_COPY_PACKET as u8]]);
        self.attribute(libc::NFQA_CFG_QUEUE_MAXLEN, &[&length.to_be_bytes()]);
        let mask = libc::NFQA_CFG_F_FAIL_OPEN | libc::NFQA_CFG_F_GSO;
        self.attribute(libc::NFQA_CFG_MASK, &[&(mask as u32).to_be_bytes()]);
        self.attribute(libc::NFQA_CFG_FLAGS, &[&flags.to_be_bytes()]);
        self.end();
    }

    /// Sets the number of packets that may wait.
    pub(super) fn length(&mut self, queue: u16, sequence: u32, length: u32) {
        self.begin(CONFIG, queue, sequence);
        self.attribute(libc::NFQA_CFG_QUEUE_MAXLEN, &[&length.to_be_bytes()]);
        self.end();
    }

    /// Appends the verdict on the packet `id` or, with `all`, on all waiting packets up to it. It may have a new mark and new
    /// bytes. The flag beside the bytes says that their checksum is unfinished. It is then filled in here, because the kernel
    /// would forward the bytes as they are.
    pub(super) fn verdict(
        &mut self,
        queue: u16,
        all: bool,
        id: u32,
        verdict: u32,
        mark: Option<u32>,
        bytes: Option<(&[u8], bool)>,
    ) {
        self.begin(if all { VERDICT_BATCH } else { VERDICT }, queue, 0);
        self.attribute(libc::NFQA_VERDICT_HDR, &[&verdict.to_be_bytes(), &id.to_be_bytes()]);
        if let Some(mark) = mark {
            self.attribute(libc::NFQA_MARK, &[&mark.to_be_bytes()]);
        }
        if let Some((bytes, unfinished)) = bytes.filter(|b| b.0.len() <= PAYLOAD_MAX) {
            let start = self.bytes.len() + 4;
            self.attribute(libc::NFQA_PAYLOAD, &[bytes]);
            if unfinished && let Some(packet) = self.bytes.get_mut(start..start + bytes.len()) {
                fill_in(packet);
            }
        }
        self.end();
    }
}

/// The kernel's counters of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    /// The netlink port of its owner.
    pub(super) port: u32,
    /// Packets that wait.
    pub(super) waiting: u64,
    /// Packets dropped because too many waited.
    pub(super) full: u64,
    /// Packets dropped because the socket had no room.
    pub(super) unsent: u64,
    /// Packets that the kernel numbered.
    pub(super) numbered: u64,
}

/// Parses a queue's row in `/proc/net/netfilter/nfnetlink_queue`.
pub(super) fn row(text: &str, queue: u16) -> Option<Row> {
    text.lines().find_map(|l| {
        let n: Vec<u64> = l.split_ascii_whitespace().map_while(|w| w.parse().ok()).collect();
        match n[..] {
            [number, port, waiting, _, _, full, unsent, numbered, ..] if number == u64::from(queue) => {
                Some(Row { port: port as u32, waiting, full, unsent, numbered })
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message in the kernel's format.
    fn queued(id: u32, payload: &[u8], info: Option<u32>, full: Option<u32>) -> Vec<u8> {
        let mut w = Writer::default();
        w.begin(PACKET, 3, 0);
        w.attribute(libc::NFQA_PACKET_HDR, &[&id.to_be_bytes(), &[8, 0, 2]]);
        w.attribute(libc::NFQA_IFINDEX_INDEV, &[&7u32.to_be_bytes()]);
        w.attribute(libc::NFQA_MARK, &[&0x21u32.to_be_bytes()]);
        if let Some(full) = full {
            w.attribute(libc::NFQA_CAP_LEN, &[&full.to_be_bytes()]);
        }
        if let Some(info) = info {
            w.attribute(libc::NFQA_SKB_INFO, &[&info.to_be_bytes()]);
        }
        w.attribute(libc::NFQA_PAYLOAD, &[payload]);
        w.end();
        w.bytes
    }

    #[test]
    fn packets_are_read() {
        let mut bytes = queued(5, b"abc", Some(3), None);
        let second = bytes.len();
        bytes.extend(queued(6, b"defgh", None, Some(70_000)));
        let Some((Said::Packet(a), next)) = read(&bytes, 0) else { panic!() };
        assert_eq!((a.id, a.mark, a.unfinished, a.merged, a.full, next), (5, 0x21, true, true, None, second));
        assert_eq!(&bytes[a.start..a.start + a.len], b"abc");
        let Some((Said::Packet(b), next)) = read(&bytes, next) else { panic!() };
        assert_eq!((b.id, b.unfinished, b.full, next), (6, false, Some(70_000), bytes.len()));
        assert_eq!(&bytes[b.start..b.start + b.len], b"defgh");
        assert_eq!(read(&bytes, next), None);
        // An incomplete message.
        assert_eq!(read(&bytes[..second - 1], 0), None);
    }

    #[test]
    fn answers_are_read() {
        let mut bytes = Vec::new();
        for w in [36u32, 2, 9, 77, (-16i32) as u32, 20, u32::from(CONFIG), 9, 77] {
            bytes.extend(w.to_ne_bytes());
        }
        assert_eq!(read(&bytes, 0), Some((Said::Answer { sequence: 9, error: 16 }, 36)));
    }

    #[test]
    fn what_is_written_is_as_the_kernel_wants_it() {
        let mut w = Writer::default();
        w.verdict(0x102, false, 9, 1, Some(0x8000_0001), Some((b"xyz", true)));
        let ne = |n: u16| n.to_ne_bytes();
        let want = [
            &48u32.to_ne_bytes()[..],
            &ne(0x301),
            &ne(1),
            &[0; 8],
            &[0, 0, 1, 2],
            &ne(12),
            &ne(2),
            &[0, 0, 0, 1, 0, 0, 0, 9],
            &ne(8),
            &ne(3),
            &[0x80, 0, 0, 1],
            &ne(7),
            &ne(10),
            b"xyz\0",
        ]
        .concat();
        assert_eq!(w.bytes, want);
        let at = w.bytes.len();
        w.bind(1, 4, 4096, 5);
        assert_eq!(w.bytes.len() - at, HEADER + 8 + 12 + 8 + 8 + 8);
        assert_eq!(w.bytes[at..at + 4], 64u32.to_ne_bytes());
        w.clear();
        w.length(1, 5, 0);
        assert_eq!(w.bytes.len(), HEADER + 8);
    }

    #[test]
    fn rows_of_the_kernel() {
        let text = "    0  20500     3 2 65531     4     5       77  1\n    1 3996688595     0 2 65531     0     0        0  1\n";
        assert_eq!(row(text, 0), Some(Row { port: 20500, waiting: 3, full: 4, unsent: 5, numbered: 77 }));
        assert_eq!(row(text, 1).map(|r| r.port), Some(3_996_688_595));
        assert_eq!(row(text, 2), None);
    }

    proptest! {
        #[test]
        fn no_message_leads_outside(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            len in 0u32..320,
            words in proptest::collection::vec((5usize..70, 0u16..60, 0u16..24), 0..20),
        ) {
            if bytes.len() >= 6 {
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                bytes[4..6].copy_from_slice(&PACKET.to_ne_bytes());
            }
            for (at, len, kind) in words {
                if let Some(place) = bytes.get_mut(at * 4..at * 4 + 4) {
                    place[..2].copy_from_slice(&len.to_ne_bytes());
                    place[2..].copy_from_slice(&kind.to_ne_bytes());
                }
            }
            let mut at = 0;
            while let Some((said, next)) = read(&bytes, at) {
                if let Said::Packet(q) = said {
                    prop_assert!(q.start + q.len <= bytes.len());
                }
                prop_assert!(next > at);
                at = next;
            }
        }
    }
}
