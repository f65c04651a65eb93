//! Frames of a capture in the formats of the targets `decode` and `defrag`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use margay_packet::{DecodeConfig, Decoder, Frame, L3, L4, Packet};

use super::Seed;
use super::flows::frames;
use crate::packets::LINKS;

/// Longest frame to use; longer ones have nothing new for a decoder.
const FRAME_MAX: usize = 1600;
/// Longest packet for the target `defrag`, whose input has one byte for the length.
const FRAGMENT_MAX: usize = 255;
/// Most datagrams of a capture to cut into fragments.
const CUT_MAX: usize = 4;

/// The shape of a packet, without values: frames of the same shape take the same path through the decoder.
fn shape(p: &Packet<'_>, h: &mut DefaultHasher) {
    (p.source.name(), p.vlans.as_slice().len(), p.proto, p.fragment, p.invalid, p.icmp).hash(h);
    match p.l3 {
        L3::None => 0u8.hash(h),
        L3::Arp { .. } => 1u8.hash(h),
        L3::Ipv4 { header_len, options, .. } => (2u8, header_len, options).hash(h),
        L3::Ipv6 { header_len, extensions, .. } => (3u8, header_len, extensions).hash(h),
    }
    match p.l4 {
        L4::Tcp { header_len, .. } => header_len.hash(h),
        other => std::mem::discriminant(&other).hash(h),
    }
    p.events.as_slice().iter().for_each(|e| (*e as u16).hash(h));
    p.ethernet.map(|e| e.ether_type).hash(h);
}

/// Frames of a capture with a new shape, for `decode`.
pub(super) fn decode(capture: &[u8], seen: &mut HashSet<u64>, out: &mut Vec<Seed>) {
    let mut decoder = Decoder::new(DecodeConfig { vntag: true, ..DecodeConfig::default() });
    frames(capture, |f| {
        let Some(link) = LINKS.iter().position(|l| *l == f.link) else { return };
        if f.data.len() > FRAME_MAX {
            return;
        }
        let mut h = DefaultHasher::new();
        link.hash(&mut h);
        decoder.decode(f, &mut |p: &Packet<'_>| shape(p, &mut h));
        if seen.insert(h.finish()) {
            out.push(("decode", [&[link as u8], f.data].concat()));
        }
    });
}

/// The fragments of a capture, and some of its datagrams cut into fragments, for `defrag`.
pub(super) fn defrag(capture: &[u8], out: &mut Vec<Seed>) {
    let mut decoder = Decoder::new(DecodeConfig::default());
    let (mut real, mut cut) = (Vec::new(), Vec::new());
    let mut last = None;
    frames(capture, |f: &Frame<'_>| {
        decoder.decode(f, &mut |p: &Packet<'_>| {
            let start = match p.l3 {
                L3::Ipv4 { offset, .. } | L3::Ipv6 { offset, .. } => offset as usize,
                _ => return,
            };
            let packet = p.data.get(start..).unwrap_or(&[]);
            if p.fragment && packet.len() <= FRAGMENT_MAX && real.len() < 4096 {
                let wait = last.replace(f.time).map_or(0, |l| f.time.micros_since(l) / 250_000).clamp(0, 255);
                real.extend([packet.len() as u8, wait as u8]);
                real.extend_from_slice(packet);
            }
            if !p.fragment && cut.len() < CUT_MAX && (100..900).contains(&packet.len()) {
                cut.extend(pieces(packet, cut.len()));
            }
        });
    });
    if !real.is_empty() {
        out.push(("defrag", real));
    }
    out.extend(cut.into_iter().map(|c| ("defrag", c)));
}

/// An IPv4 datagram in fragments: in order, the last first, or with one of them twice.
fn pieces(packet: &[u8], way: usize) -> Option<Vec<u8>> {
    let first = packet.first()?;
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 {
        return None;
    }
    let (head, body) = packet.split_at_checked(header)?;
    let step = (FRAGMENT_MAX - header) / 16 * 8;
    let mut list: Vec<Vec<u8>> = Vec::new();
    for (n, piece) in body.chunks(step).enumerate() {
        let more = if (n + 1) * step < body.len() { 0x2000u16 } else { 0 };
        let mut p = [head, piece].concat();
        p.get_mut(2..4)?.copy_from_slice(&((header + piece.len()) as u16).to_be_bytes());
        p.get_mut(6..8)?.copy_from_slice(&(more | (n * step / 8) as u16).to_be_bytes());
        list.push(p);
    }
    match way % 3 {
        0 => {}
        1 => list.reverse(),
        _ => list.extend(list.first().cloned()),
    }
    let mut out = Vec::new();
    for p in list {
        out.extend([p.len() as u8, 0]);
        out.extend(p);
    }
    Some(out)
}
