//! Encodes a sender's steps as packets, and decodes the host's answers.

use std::net::IpAddr;

use crate::conversation::{Opt, Piece, Segment, TIMESTAMP, content, flag};

/// Bytes of an Ethernet header: the engine receives frames, the host IP packets.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv6 fragment header.
const FRAGMENT: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;

/// An address and a port.
pub type End = (IpAddr, u16);

/// A decoded answer of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Source port (the host's) and destination port.
    pub ports: (u16, u16),
    /// Destination address.
    pub to: IpAddr,
    /// TCP flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// One past the last sequence number that it occupies: that of its data, SYN and FIN.
    pub end: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// Window scale option: the shift of the windows that it offers.
    pub scale: Option<u8>,
    /// Its timestamp.
    pub timestamp: Option<u32>,
}

/// The host's state that a segment depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostState {
    /// Sequence number of the next byte that the host will send.
    pub next: u32,
    /// Its last timestamp.
    pub timestamp: u32,
}

/// Writes an Ethernet header for a packet between sender and host.
fn ethernet(out: &mut Vec<u8>, to_host: bool, v6: bool) {
    let (sender, host) = ([2, 0, 0, 0, 9, 77], [2, 0, 0, 0, 9, 1]);
    let (dst, src) = if to_host { (host, sender) } else { (sender, host) };
    out.extend_from_slice(&dst);
    out.extend_from_slice(&src);
    out.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
}

/// Writes the frame of a packet of the host.
pub fn framed(packet: &[u8], out: &mut Vec<u8>) {
    out.clear();
    ethernet(out, false, packet.first().is_some_and(|b| b >> 4 == 6));
    out.extend_from_slice(packet);
}

fn sum(bytes: &[u8], mut sum: u64) -> u64 {
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    sum
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn pseudo(from: IpAddr, to: IpAddr, proto: u8, len: usize) -> u64 {
    let addresses = match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => sum(&b.octets(), sum(&a.octets(), 0)),
        (IpAddr::V6(a), IpAddr::V6(b)) => sum(&b.octets(), sum(&a.octets(), 0)),
        _ => 0,
    };
    addresses + u64::from(proto) + len as u64
}

/// Writes an IP header for a payload of `len` bytes. `fragment` makes it a fragment, and has the identification, the
/// offset in bytes and whether more fragments follow.
fn ip_header(
    out: &mut Vec<u8>,
    (from, to): (IpAddr, IpAddr),
    proto: u8,
    len: usize,
    fragment: Option<(u32, u16, bool)>,
) {
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let at = out.len();
            let (id, offset) = match fragment {
                Some((id, from, more)) => (id as u16, (from / 8) | if more { 0x2000 } else { 0 }),
                None => (0, 0x4000),
            };
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&((20 + len) as u16).to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&[64, proto, 0, 0]);
            out.extend_from_slice(&a.octets());
            out.extend_from_slice(&b.octets());
            let check = fold(sum(&out[at..], 0));
            out[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let extension = if fragment.is_some() { FRAGMENT } else { 0 };
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&((extension + len) as u16).to_be_bytes());
            out.extend_from_slice(&[if fragment.is_some() { IPV6_FRAGMENT } else { proto }, 64]);
            out.extend_from_slice(&a.octets());
            out.extend_from_slice(&b.octets());
            if let Some((id, from, more)) = fragment {
                out.extend_from_slice(&[proto, 0]);
                out.extend_from_slice(&(from & 0xfff8 | u16::from(more)).to_be_bytes());
                out.extend_from_slice(&id.to_be_bytes());
            }
        }
        _ => {}
    }
}

fn options(all: &[Opt], state: HostState, out: &mut Vec<u8>) {
    for o in all {
        match o {
            Opt::Mss(n) => {
                out.extend_from_slice(&[2, 4]);
                out.extend_from_slice(&n.to_be_bytes());
            }
            Opt::Scale(n) => out.extend_from_slice(&[1, 3, 3, *n]),
            Opt::SackOk => out.extend_from_slice(&[1, 1, 4, 2]),
            Opt::Time(value, echo) => {
                out.extend_from_slice(&[1, 1, 8, 10]);
                out.extend_from_slice(&TIMESTAMP.wrapping_add(*value as u32).to_be_bytes());
                out.extend_from_slice(&echo.unwrap_or(state.timestamp).to_be_bytes());
            }
            Opt::FastOpen(n) => {
                out.extend_from_slice(&[34, n + 2]);
                out.extend((0..*n).map(|i| i ^ 0x5a));
            }
            Opt::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }
    // A header has room for at most 40 bytes of options.
    out.truncate(40);
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
}

/// Length of a segment's TCP header in bytes, as it is encoded.
pub fn header_len(s: &Segment) -> usize {
    let mut all = Vec::new();
    options(&s.options, HostState::default(), &mut all);
    20 + all.len()
}

/// The TCP header and payload of a segment.
fn tcp(s: &Segment, (from, to): (End, End), isn: u32, http: bool, state: HostState) -> Vec<u8> {
    let mut opts = Vec::with_capacity(40);
    options(&s.options, state, &mut opts);
    let mut out = Vec::with_capacity(60 + usize::from(s.len));
    out.extend_from_slice(&from.1.to_be_bytes());
    out.extend_from_slice(&to.1.to_be_bytes());
    out.extend_from_slice(&isn.wrapping_add(1).wrapping_add(s.at as u32).to_be_bytes());
    let ack = if s.flags & flag::ACK != 0 || s.ack != 0 { state.next.wrapping_add(s.ack as u32) } else { 0 };
    out.extend_from_slice(&ack.to_be_bytes());
    let words = s.offset.unwrap_or(5 + (opts.len() / 4) as u8);
    out.extend_from_slice(&[words << 4, s.flags]);
    out.extend_from_slice(&s.window.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&s.urgent.to_be_bytes());
    out.extend_from_slice(&opts);
    // A SYN occupies a sequence number: its data begins after it.
    let first = s.at + i64::from(s.has(flag::SYN));
    out.extend((0..i64::from(s.len)).map(|i| content(http, first + i, s.version)));
    let mut check = fold(sum(&out, pseudo(from.0, to.0, TCP, out.len())));
    if s.broken {
        check ^= 0x0101;
    }
    out[16..18].copy_from_slice(&check.to_be_bytes());
    out
}

/// Calls `each` with every frame of a segment, and whether it reaches the host. `base` is the identification of the
/// conversation's first datagram.
pub fn segment(
    s: &Segment,
    ends: (End, End),
    isn: u32,
    http: bool,
    state: HostState,
    base: u32,
    each: &mut dyn FnMut(&[u8], bool),
) {
    let bytes = tcp(s, ends, isn, http, state);
    let addresses = (ends.0.0, ends.1.0);
    if s.pieces.is_empty() {
        let mut frame = Vec::with_capacity(ETHERNET + 60 + bytes.len());
        ethernet(&mut frame, true, addresses.0.is_ipv6());
        ip_header(&mut frame, addresses, TCP, bytes.len(), None);
        frame.extend_from_slice(&bytes);
        frame.extend(std::iter::repeat_n(b'#', s.trailing.into()));
        each(&frame, !s.lost);
        return;
    }
    let header = usize::from(bytes[12] >> 4) * 4;
    for p in &s.pieces {
        piece_of(p, &bytes, header, addresses, TCP, base, &mut |frame| each(frame, !(s.lost || p.lost)));
    }
}

/// Builds the frame of a fragment of `whole`. Its first `header` bytes are the same in all versions.
fn piece_of(
    p: &Piece,
    whole: &[u8],
    header: usize,
    addresses: (IpAddr, IpAddr),
    proto: u8,
    base: u32,
    each: &mut dyn FnMut(&[u8]),
) {
    let mut frame = Vec::with_capacity(ETHERNET + 60 + usize::from(p.len));
    ethernet(&mut frame, true, addresses.0.is_ipv6());
    let fragment = (base.wrapping_add(p.id.into()), p.from, p.more);
    let start = frame.len();
    ip_header(&mut frame, addresses, proto, p.len.into(), Some(fragment));
    if p.broken && addresses.0.is_ipv4() {
        frame[start + 10] ^= 1;
    }
    let from = usize::from(p.from & 0xfff8);
    // Bytes beyond the end of the packet are `+`.
    frame.extend((from..from + usize::from(p.len)).map(|at| {
        let at =
            if p.version == 0 || at < header.next_multiple_of(8) { at } else { shuffled(at, p.version, whole.len()) };
        whole.get(at).copied().unwrap_or(b'+')
    }));
    each(&frame);
}

/// The place whose byte another version of a fragment has at `at`: 16-bit words change places with their neighbours, so
/// that the checksum stays the same.
fn shuffled(at: usize, version: u8, len: usize) -> usize {
    let other = match version % 3 {
        1 => at ^ 2,
        2 => at ^ 4,
        _ => at ^ 6,
    };
    // The bytes of an incomplete last group of eight stay: their partners would be past the end.
    if (at | 7) < len { other } else { at }
}

/// Calls `each` with the frame of a fragment of UDP datagram number `p.id`, and whether it reaches the host.
pub fn piece(p: &Piece, (from, to): (End, End), base: u32, each: &mut dyn FnMut(&[u8], bool)) {
    let len = p.of.max(8);
    let mut whole = Vec::with_capacity(len.into());
    whole.extend_from_slice(&from.1.to_be_bytes());
    whole.extend_from_slice(&to.1.to_be_bytes());
    whole.extend_from_slice(&len.to_be_bytes());
    whole.extend_from_slice(&[0, 0]);
    let at = i64::from(p.id) * 0x1_0000;
    whole.extend((0..i64::from(len) - 8).map(|i| content(false, at + i, 0)));
    let check = match fold(sum(&whole, pseudo(from.0, to.0, UDP, whole.len()))) {
        0 => 0xffff,
        n => n,
    };
    whole[6..8].copy_from_slice(&check.to_be_bytes());
    piece_of(p, &whole, 8, (from.0, to.0), UDP, base, &mut |frame| each(frame, !p.lost));
}

/// Decodes a TCP packet of the host; `None` for any other packet.
pub fn answer(packet: &[u8]) -> Option<Answer> {
    let (to, proto, header, len) = match packet.first()? >> 4 {
        4 => {
            let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            let total = u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?);
            (IpAddr::from(to), packet[9], usize::from(packet[0] & 15) * 4, usize::from(total))
        }
        6 => {
            let to: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            let payload = u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?);
            (IpAddr::from(to), packet[6], 40, 40 + usize::from(payload))
        }
        _ => return None,
    };
    if proto != TCP {
        return None;
    }
    let t = packet.get(header..len)?;
    let (b16, b32) = (
        |at: usize| t.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_be_bytes),
        |at: usize| t.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes),
    );
    let (seq, flags) = (b32(4)?, *t.get(13)?);
    let data = usize::from(t.get(12)? >> 4) * 4;
    let takes =
        t.len().saturating_sub(data) as u32 + u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
    let mut at = 20;
    let (mut timestamp, mut scale) = (None, None);
    while at < data {
        match (t.get(at)?, t.get(at + 1)) {
            (0, _) => break,
            (1, _) => at += 1,
            (8, Some(10)) => {
                timestamp = b32(at + 2);
                at += 10;
            }
            (3, Some(3)) => {
                scale = t.get(at + 2).copied();
                at += 3;
            }
            (_, Some(&n)) if n >= 2 => at += usize::from(n),
            _ => break,
        }
    }
    let ports = (b16(0)?, b16(2)?);
    let (ack, window) = (b32(8)?, b16(14)?);
    Some(Answer { ports, to, flags, seq, end: seq.wrapping_add(takes), ack, window, scale, timestamp })
}
