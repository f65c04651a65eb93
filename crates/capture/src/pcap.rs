//! The pcap file format (draft-ietf-opsawg-pcap): a header of 24 bytes, then records.

use margay_packet::{LinkType, Time};

use crate::batch::{Bounds, Meta, Stop};
use crate::error::Broken;

/// Length of the file header.
pub(crate) const FILE_HEADER: usize = 24;

/// Most bytes of one record. libpcap and Wireshark have the same limit.
pub(crate) const MAX_PACKET: u32 = 262_144;

/// Microseconds.
pub(crate) const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
/// Nanoseconds.
pub(crate) const MAGIC_NANO: u32 = 0xa1b2_3c4d;
/// Microseconds, records with eight bytes more (Alexey Kuznetzov's patches).
pub(crate) const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// A parsed file header.
#[derive(Debug, Clone)]
pub(crate) struct Pcap {
    /// Whether the file is big endian.
    pub(crate) swapped: bool,
    nano: bool,
    record_header: usize,
    /// Most bytes of a packet that are delivered.
    snaplen: u32,
    pub(crate) link: LinkType,
    /// The order of the two length fields, which differs in files older than version 2.4.
    order: LengthOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LengthOrder {
    /// The captured length comes first: version 2.4.
    Normal,
    /// The smaller one is the captured length: version 2.3, which was written in both orders.
    Smaller,
    /// The captured length comes last: before 2.3.
    Reversed,
}

/// The byte order of a file whose magic number, read as little endian, is `magic`: `Some(true)` for big endian. `None` if the
/// magic number is unknown.
pub(crate) fn byte_order(magic: u32) -> Option<bool> {
    let known = |m| matches!(m, MAGIC_MICRO | MAGIC_NANO | MAGIC_MODIFIED);
    if known(magic) {
        return Some(false);
    }
    known(magic.swap_bytes()).then_some(true)
}

fn u32_at(data: &[u8], at: usize, swapped: bool) -> Option<u32> {
    let v = u32::from_le_bytes(*data.get(at..)?.first_chunk()?);
    Some(if swapped { v.swap_bytes() } else { v })
}

impl Pcap {
    /// Parses the file header. The error has the major and minor version, if it is not supported.
    pub(crate) fn new(header: &[u8; FILE_HEADER]) -> Result<Self, (u16, u16)> {
        let field = |at| u32_at(header, at, false).unwrap_or_default();
        let swapped = byte_order(field(0)).unwrap_or_default();
        let field = |at| u32_at(header, at, swapped).unwrap_or_default();
        let half = |at: usize| {
            let v = u16::from_le_bytes([header[at], header[at + 1]]);
            if swapped { v.swap_bytes() } else { v }
        };
        let (major, minor) = (half(4), half(6));
        if major != 2 {
            return Err((major, minor));
        }
        let magic = field(0);
        let snaplen = field(16);
        Ok(Pcap {
            swapped,
            nano: magic == MAGIC_NANO,
            record_header: if magic == MAGIC_MODIFIED { 24 } else { 16 },
            snaplen: if snaplen == 0 { MAX_PACKET } else { snaplen.min(MAX_PACKET) },
            // The upper bits describe the frame check sequence, not the link type.
            link: LinkType(field(20) & 0x03ff_ffff),
            order: match minor {
                0..=2 => LengthOrder::Reversed,
                3 => LengthOrder::Smaller,
                _ => LengthOrder::Normal,
            },
        })
    }

    /// Takes whole records from the front of `data`. Returns the number of bytes, and why it stopped.
    pub(crate) fn fill(&self, data: &[u8], out: &mut Vec<Meta>, bounds: Bounds) -> (usize, Stop) {
        let mut at = 0usize;
        let header = self.record_header;
        while out.len() < bounds.frames {
            let rest = data.get(at..).unwrap_or(&[]);
            let Some(fields) = rest.first_chunk::<16>().filter(|_| rest.len() >= header) else {
                return (at, Stop::Need(header));
            };
            let field = |i: usize| {
                let v = u32::from_le_bytes([fields[i], fields[i + 1], fields[i + 2], fields[i + 3]]);
                if self.swapped { v.swap_bytes() } else { v }
            };
            let (secs, fraction, mut captured, mut wire) = (field(0), field(4), field(8), field(12));
            if self.order == LengthOrder::Reversed || (self.order == LengthOrder::Smaller && captured > wire) {
                std::mem::swap(&mut captured, &mut wire);
            }
            if captured > MAX_PACKET {
                return (at, Stop::Broken(Broken::PacketLength { claimed: captured, limit: MAX_PACKET }));
            }
            let whole = header + captured as usize;
            if rest.len() < whole {
                return (at, Stop::Need(whole));
            }
            let micros = if self.nano { fraction / 1000 } else { fraction };
            out.push(Meta {
                start: (at + header) as u32,
                len: captured.min(self.snaplen),
                wire_len: wire.max(captured),
                link: self.link,
                time: Time::new(i64::from(secs), i64::from(micros)),
                trusted: false,
            });
            at += whole;
        }
        (at, Stop::Full)
    }
}
