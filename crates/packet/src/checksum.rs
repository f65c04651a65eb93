//! The Internet checksum (RFC 1071), and those of a packet's layers.

use std::net::IpAddr;

use crate::bytes::u16_at;
use crate::packet::{L3, L4, Packet};

/// The ones' complement sum of 16-bit words; an odd last byte counts as a word's high half.
///
/// The sum of words in the wrong byte order is the sum in the wrong byte order (RFC 1071 section 2), so the words are
/// added as the machine reads them: eight independent lanes that compile to vector instructions everywhere.
fn sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut lanes = [0u64; 8];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<4>();
    let (halves, odd) = rest.as_chunks::<2>();
    let total = lanes.iter().sum::<u64>()
        + words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum::<u64>()
        + halves.iter().map(|h| u64::from(u16::from_ne_bytes(*h))).sum::<u64>()
        + odd.first().map_or(0, |&b| u64::from(u16::from_ne_bytes([b, 0])));
    u64::from(u16::from_be(fold(total)))
}

/// Folds a sum to 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The Internet checksum of `bytes` (RFC 1071), as it goes into a header.
pub fn internet(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The sum of a pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo(src: IpAddr, dst: IpAddr, proto: u8, len: usize) -> u64 {
    let addresses = match (src, dst) {
        (IpAddr::V4(s), IpAddr::V4(d)) => sum(&s.octets()) + sum(&d.octets()),
        (IpAddr::V6(s), IpAddr::V6(d)) => sum(&s.octets()) + sum(&d.octets()),
        _ => 0,
    };
    addresses + u64::from(proto) + len as u64
}

impl Packet<'_> {
    /// Whether the IPv4 header's checksum is right; `None` without an IPv4 header. Always right if
    /// [`Packet::ignore_checksums`] is set.
    pub fn ipv4_checksum_ok(&self) -> Option<bool> {
        let L3::Ipv4 { offset, header_len, .. } = self.l3 else { return None };
        if self.ignore_checksums {
            return Some(true);
        }
        let at = offset as usize;
        Some(internet(self.data.get(at..at + usize::from(header_len))?) == 0)
    }

    /// Whether the checksum of TCP, UDP, ICMP, ICMPv6 or IGMP is right; `None` if the transport is none of these. UDP
    /// over IPv4 without a checksum (0) counts as right. Always right if [`Packet::ignore_checksums`] is set.
    pub fn l4_checksum_ok(&self) -> Option<bool> {
        let proto = match self.l4 {
            L4::Tcp { .. } => 6,
            L4::Udp { .. } => 17,
            L4::Icmpv6 { .. } => 58,
            L4::Icmpv4 { .. } | L4::Igmp { .. } => 0,
            _ => return None,
        };
        if self.ignore_checksums {
            return Some(true);
        }
        let bytes = self.l4_bytes();
        if proto == 17 && u16_at(bytes, 6) == 0 && self.src.is_ipv4() {
            return Some(true);
        }
        let start = if proto == 0 { 0 } else { pseudo(self.src, self.dst, proto, bytes.len()) };
        Some(fold(start + sum(bytes)) == 0xffff)
    }

    /// The checksum that the TCP header should have; `None` without one. Expects the checksum field to be 0.
    pub fn tcp_checksum(&self) -> Option<u16> {
        let L4::Tcp { .. } = self.l4 else { return None };
        let bytes = self.l4_bytes();
        Some(!fold(pseudo(self.src, self.dst, 6, bytes.len()) + sum(bytes)))
    }

    /// Whether all checksums that the packet has are right; `None` if it has none.
    pub fn checksum_ok(&self) -> Option<bool> {
        match (self.ipv4_checksum_ok(), self.l4_checksum_ok()) {
            (None, other) | (other, None) => other,
            (Some(a), Some(b)) => Some(a && b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 4.1, word by word.
    fn as_defined(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0)));
        !fold(words.sum())
    }

    #[test]
    fn equals_the_definition_at_every_length_and_alignment() {
        let bytes: Vec<u8> = (0u32..400).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
        for from in 0..8 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                assert_eq!(internet(part), as_defined(part), "bytes {from} to {to}");
            }
        }
    }

    #[test]
    fn carries_of_every_lane_count() {
        assert_eq!(internet(&[0xff; 65_535]), as_defined(&[0xff; 65_535]));
        assert_eq!(internet(&[]), 0xffff);
        // The example of RFC 1071 section 3.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
