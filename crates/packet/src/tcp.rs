//! TCP headers (RFC 9293) and their options.

/// Flag bits of a TCP header: the byte at offset 13.
pub mod flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// Byte offsets of the fields.
mod field {
    use core::ops::Range;
    pub(super) const SEQ: Range<usize> = 4..8;
    pub(super) const ACK: Range<usize> = 8..12;
    pub(super) const FLAGS: usize = 13;
    pub(super) const WINDOW: Range<usize> = 14..16;
    pub(super) const CHECKSUM: Range<usize> = 16..18;
    pub(super) const URGENT: Range<usize> = 18..20;
    pub(super) const MIN: usize = 20;
}

/// A view of a TCP header of at least 20 bytes.
#[derive(Debug, Clone, Copy)]
pub struct TcpHeader<'a>(&'a [u8]);

fn u16_at(b: &[u8], r: core::ops::Range<usize>) -> u16 {
    b.get(r).and_then(|s| s.try_into().ok()).map_or(0, u16::from_be_bytes)
}
fn u32_at(b: &[u8], r: core::ops::Range<usize>) -> u32 {
    b.get(r).and_then(|s| s.try_into().ok()).map_or(0, u32::from_be_bytes)
}

impl<'a> TcpHeader<'a> {
    /// A view over `bytes`, which start with the header; `None` if there are fewer than 20.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < field::MIN { None } else { Some(TcpHeader(bytes)) }
    }
    /// Sequence number.
    pub fn seq(&self) -> u32 {
        u32_at(self.0, field::SEQ)
    }
    /// Acknowledgment number, whether or not ACK is set.
    pub fn ack(&self) -> u32 {
        u32_at(self.0, field::ACK)
    }
    /// Flag bits: see [`flag`].
    pub fn flags(&self) -> u8 {
        self.0[field::FLAGS]
    }
    /// Whether all of `bits` are set.
    pub fn has(&self, bits: u8) -> bool {
        self.flags() & bits == bits
    }
    /// Window as in the header, unscaled.
    pub fn window(&self) -> u16 {
        u16_at(self.0, field::WINDOW)
    }
    /// Checksum as in the header.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0, field::CHECKSUM)
    }
    /// Urgent pointer.
    pub fn urgent(&self) -> u16 {
        u16_at(self.0, field::URGENT)
    }
}

/// The options that matter to sessions and rules. If an option occurs twice, the last one counts, as for hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Maximum segment size (kind 2), in bytes.
    pub mss: Option<u16>,
    /// Window scale (kind 3), a shift of 0 to 14: larger ones are read as 14 (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// Whether SACK is permitted (kind 4).
    pub sack_ok: bool,
    /// Number of SACK blocks (kind 5), 0 to 4.
    pub sack_count: u8,
    /// SACK blocks as left and right edge.
    pub sack: [(u32, u32); 4],
    /// Timestamps (kind 8): value and echo reply.
    pub timestamp: Option<(u32, u32)>,
    /// TCP fast open (kind 34, or 253 or 254 with magic 0xF989): length of the cookie in bytes, 0 for a request.
    pub fast_open: Option<u8>,
    /// Whether there is an MD5 signature (kind 19) or TCP-AO (kind 29).
    pub signed: bool,
    /// Number of options read, without padding.
    pub count: u8,
}
