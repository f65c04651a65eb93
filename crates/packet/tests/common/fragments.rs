//! Fragments for tests.

use margay_packet::checksum;

/// A fragment: start and end in units of 8 bytes, and its bytes.
pub type Piece = (usize, usize, u8);

/// An IPv4 fragment without a checksum, of a datagram of `units`.
pub fn ipv4_fragment(id: u16, units: usize, (start, end, byte): Piece, proto: u8) -> Vec<u8> {
    let data = vec![byte; (end - start) * 8];
    let more = u16::from(end < units) << 13;
    let mut b = vec![0x45, 0];
    b.extend_from_slice(&(20 + data.len() as u16).to_be_bytes());
    b.extend_from_slice(&id.to_be_bytes());
    b.extend_from_slice(&(more | start as u16).to_be_bytes());
    b.extend_from_slice(&[64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    b.extend_from_slice(&data);
    b
}

/// An IPv6 fragment of a datagram of `units`.
pub fn ipv6_fragment(id: u32, units: usize, (start, end, byte): Piece, next: u8) -> Vec<u8> {
    let data = vec![byte; (end - start) * 8];
    let mut b = vec![0x60, 0, 0, 0];
    b.extend_from_slice(&(8 + data.len() as u16).to_be_bytes());
    b.extend_from_slice(&[44, 64]);
    b.extend_from_slice(&[0xfd; 16]);
    b.extend_from_slice(&[0xfe; 16]);
    b.extend_from_slice(&[next, 0]);
    b.extend_from_slice(&((start as u16) << 3 | u16::from(end < units)).to_be_bytes());
    b.extend_from_slice(&id.to_be_bytes());
    b.extend_from_slice(&data);
    b
}

/// A fragment of IPv4 or IPv6, with a correct checksum.
pub fn fragment(v6: bool, id: u16, units: usize, piece: Piece, ttl: u8) -> Vec<u8> {
    if v6 {
        let mut b = ipv6_fragment(id.into(), units, piece, 253);
        b[7] = ttl;
        return b;
    }
    let mut b = ipv4_fragment(id, units, piece, 253);
    b[8] = ttl;
    let sum = checksum::internet(&b[..20]);
    b[10..12].copy_from_slice(&sum.to_be_bytes());
    b
}
