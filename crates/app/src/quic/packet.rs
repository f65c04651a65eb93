//! Packets on the wire: headers, and the end of a packet (RFC 9000 section 17.2; gQUIC's public header).

use super::keys::V2;
use crate::bytes::be32;

/// Reads a variable-length integer of one to eight bytes (RFC 9000 section 16). Returns it and the rest.
pub(super) fn varint(data: &[u8]) -> Option<(u64, &[u8])> {
    let (first, mut rest) = data.split_first()?;
    let mut value = u64::from(first & 0x3f);
    for _ in 1..1usize << (first >> 6) {
        let (next, tail) = rest.split_first()?;
        (value, rest) = (value << 8 | u64::from(*next), tail);
    }
    Some((value, rest))
}

/// Skips this many bytes.
pub(super) fn skip(data: &[u8], bytes: u64) -> Option<&[u8]> {
    data.get(usize::try_from(bytes).ok()?..)
}

/// The type of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Carries the hellos.
    Initial,
    /// 0-RTT or Handshake: encrypted with keys that only the peers have.
    Secret,
    /// Makes the client start again with another connection id.
    Retry,
    /// Version negotiation.
    Negotiation,
    /// gQUIC, with cleartext frames.
    Clear,
}

/// A packet with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// Its version.
    pub(super) version: u32,
    /// The type.
    pub(super) kind: Kind,
    /// Destination connection id.
    pub(super) dcid: &'a [u8],
    /// The whole packet.
    pub(super) whole: &'a [u8],
    /// Offset of the packet number, or of cleartext frames.
    pub(super) content: usize,
    /// A gQUIC public header with a connection id and a four-byte packet number. Clients start with a short number; like in
    /// Suricata, the frames of such a packet count as invalid.
    pub(super) far: bool,
}

/// The next item in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A packet, and the data after it.
    Packet(Packet<'a>, &'a [u8]),
    /// A packet without a version: the rest of the datagram.
    Other,
    /// A long header that does not fit the datagram.
    Broken,
}

/// The digits of a gQUIC version (`46` of `Q046`) whose frames are known.
pub(super) const fn gquic(version: u32) -> Option<&'static str> {
    match version {
        0x5130_3339 => Some("39"),
        0x5130_3433 => Some("43"),
        0x5130_3434 => Some("44"),
        0x5130_3435 => Some("45"),
        0x5130_3436 => Some("46"),
        _ => None,
    }
}

/// Length of the hash before gQUIC's frames.
const HASH: usize = 12;

/// Bytes between the packet number and gQUIC's frames: the hash, and up to Q033 a byte of private flags.
const fn before_frames(version: u32) -> usize {
    match version.to_be_bytes() {
        [b'Q', b'0', b'0'..=b'2', b'0'..=b'9'] | [b'Q', b'0', b'3', b'0'..=b'3'] => HASH + 1,
        [b'Q', b'0', b'0'..=b'9', b'0'..=b'9'] => HASH,
        _ => 0,
    }
}

/// Reads a packet from the front of a datagram or its rest.
pub(super) fn next(data: &[u8]) -> Option<Next<'_>> {
    let first = *data.first()?;
    if first & 0x80 == 0 {
        return Some(if first & 0x40 != 0 || first & 1 == 0 { Next::Other } else { public(first, data)? });
    }
    let Some(version) = be32(data, 1) else { return Some(Next::Broken) };
    Some(long(first, version, data).unwrap_or(Next::Broken))
}

/// Reads gQUIC's public header with a version.
fn public(first: u8, data: &[u8]) -> Option<Next<'_>> {
    let id = if first & 8 != 0 { 8 } else { 0 };
    // A nonce of 32 bytes precedes the version.
    let nonce = if first & 0x0c == 4 { 32 } else { 0 };
    let dcid = data.get(1..1 + id)?;
    let at = 1 + id + nonce;
    let version = be32(data, at)?;
    let number = [1, 2, 4, 6].get(usize::from(first >> 4 & 3)).copied().unwrap_or(1);
    let content = at + 4 + number + before_frames(version);
    Some(Next::Packet(
        Packet { version, kind: Kind::Clear, dcid, whole: data, content, far: first & 0x38 == 0x28 },
        &[],
    ))
}

fn long(first: u8, version: u32, data: &[u8]) -> Option<Next<'_>> {
    let packet = |kind, dcid, whole, content| Packet { version, kind, dcid, whole, content, far: false };
    if matches!(gquic(version), Some("44" | "45" | "46")) {
        // Lengths of the connection ids in four bits each, less three.
        let lens = *data.get(5)?;
        let [d, s] = [lens >> 4, lens & 15].map(|n| if n == 0 { 0 } else { usize::from(n) + 3 });
        let dcid = data.get(6..6 + d)?;
        let content = 6 + d + s + usize::from(first & 3) + 1 + HASH;
        data.get(content..)?;
        return Some(Next::Packet(packet(Kind::Clear, dcid, data, content), &[]));
    }
    let d = usize::from(*data.get(5)?);
    let dcid = data.get(6..6 + d)?;
    let s = usize::from(*data.get(6 + d)?);
    let mut rest = data.get(7 + d + s..)?;
    if version == 0 {
        return Some(Next::Packet(packet(Kind::Negotiation, dcid, data, data.len()), &[]));
    }
    let turn = u8::from(version == V2);
    let kind = match (first >> 4 & 3).wrapping_sub(turn) & 3 {
        0 => Kind::Initial,
        3 => return Some(Next::Packet(packet(Kind::Retry, dcid, data, data.len()), &[])),
        _ => Kind::Secret,
    };
    if kind == Kind::Initial {
        let (token, tail) = varint(rest)?;
        rest = skip(tail, token)?;
    }
    let length = varint(rest).and_then(|(length, tail)| Some((tail, skip(tail, length)?)));
    // Encrypted data may be anything.
    let (tail, behind) = if kind == Kind::Secret { length.unwrap_or((rest, &[])) } else { length? };
    let (whole, content) = (data.get(..data.len() - behind.len())?, data.len() - tail.len());
    Some(Next::Packet(packet(kind, dcid, whole, content), behind))
}
