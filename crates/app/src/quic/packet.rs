//! Packets as they are sent: headers, and where a packet ends (RFC 9000 section 17.2; gQUIC's public header).

use super::keys::V2;
use crate::bytes::be32;

/// A number of one to eight bytes (RFC 9000 section 16), and what is behind it.
pub(super) fn varint(data: &[u8]) -> Option<(u64, &[u8])> {
    let (first, mut rest) = data.split_first()?;
    let mut value = u64::from(first & 0x3f);
    for _ in 1..1usize << (first >> 6) {
        let (next, tail) = rest.split_first()?;
        (value, rest) = (value << 8 | u64::from(*next), tail);
    }
    Some((value, rest))
}

/// What is behind so many bytes.
pub(super) fn skip(data: &[u8], bytes: u64) -> Option<&[u8]> {
    data.get(usize::try_from(bytes).ok()?..)
}

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Carries the greetings.
    Initial,
    /// 0-RTT or Handshake: encrypted with keys that nobody else has.
    Secret,
    /// Sends the client back with another connection number.
    Retry,
    /// Version negotiation.
    Negotiation,
    /// Of gQUIC: frames in clear, as far as they are.
    Clear,
}

/// A packet that names a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// Its version.
    pub(super) version: u32,
    /// What it is.
    pub(super) kind: Kind,
    /// Destination connection number.
    pub(super) dcid: &'a [u8],
    /// All of it.
    pub(super) whole: &'a [u8],
    /// Where in that the packet number begins, or in clear the frames.
    pub(super) content: usize,
    /// A public header of gQUIC with a packet number of four bytes behind a connection number. Clients begin with a short one: its frames
    /// count as broken, as in Suricata.
    pub(super) far: bool,
}

/// What comes next in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A packet, and what is behind it.
    Packet(Packet<'a>, &'a [u8]),
    /// A packet without a version, or one whose header does not fit: the rest of the datagram.
    Other,
}

/// Digits of a version of gQUIC (`46` of `Q046`) whose frames are known.
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

/// Bytes of the hash that is before gQUIC's frames.
const HASH: usize = 12;

/// Bytes between the packet number and the frames of gQUIC: the hash, and up to Q033 a byte of private flags.
const fn before_frames(version: u32) -> usize {
    match version.to_be_bytes() {
        [b'Q', b'0', b'0'..=b'2', b'0'..=b'9'] | [b'Q', b'0', b'3', b'0'..=b'3'] => HASH + 1,
        [b'Q', b'0', b'0'..=b'9', b'0'..=b'9'] => HASH,
        _ => 0,
    }
}

/// Takes a packet from the beginning of a datagram, or of what is left of it.
pub(super) fn next(data: &[u8]) -> Option<Next<'_>> {
    let first = *data.first()?;
    if first & 0x80 == 0 {
        return Some(if first & 0x40 != 0 || first & 1 == 0 { Next::Other } else { public(first, data)? });
    }
    let version = be32(data, 1)?;
    Some(long(first, version, data).unwrap_or(Next::Other))
}

/// gQUIC's public header with a version.
fn public(first: u8, data: &[u8]) -> Option<Next<'_>> {
    let id = if first & 8 != 0 { 8 } else { 0 };
    // A nonce, 32 bytes, is before the version.
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
        // Lengths of connection numbers in four bits each, less three.
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
    // What is secret may be anything.
    let (tail, behind) = if kind == Kind::Secret { length.unwrap_or((rest, &[])) } else { length? };
    let (whole, content) = (data.get(..data.len() - behind.len())?, data.len() - tail.len());
    Some(Next::Packet(packet(kind, dcid, whole, content), behind))
}
