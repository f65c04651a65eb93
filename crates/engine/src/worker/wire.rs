//! Sends verdicts, changed packets and answers back to the interface.
//!
//! Inspection never writes to a packet's own memory. `replace` rules change packets, and so does the stream engine (inline,
//! if a packet contradicts data that was already inspected). Such changes go into a copy of the frame, which is sent instead.
//! Checksums are updated incrementally (RFC 1624). In a tunnel, the outer checksum needs no update: a datagram with a correct
//! checksum has the same sum whatever its content. When a fragmented datagram is inspected, only its last fragment is still
//! here. Data in that fragment is replaced if the checksum is in it too. Otherwise the fragment is dropped, and the datagram
//! with it.
//!
//! `reject` answers TCP with a reset, and everything else with ICMP: host administratively prohibited (RFC 1122 section
//! 3.2.2.1, RFC 4443 section 3.1). No answer is sent where RFC 1122 section 3.2.2 forbids it, and at most [`ANSWERS`] are
//! sent in a second.

use std::net::IpAddr;

use margay_capture::af_packet::Injector;
use margay_capture::live::{Decisions, Side};
use margay_detect::Reject;
use margay_packet::tcp::flag;
use margay_packet::{L3, L4, LinkType, Packet, PacketSource, Time, checksum};

use super::{FrameVerdict, PacketVerdict};

/// Limit of the answers that a worker sends in a second of packet time.
const ANSWERS: u32 = 1000;
/// Limit of the bytes that an ICMP error quotes. Every host accepts a message of that size (RFC 1812 section 4.3.2.3).
const QUOTED: usize = 512;
/// Lengths of the Ethernet header and of a VLAN tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// The sending side of a worker whose packets come from an interface.
#[derive(Default)]
pub(crate) struct Wire {
    /// Verdicts are carried out.
    pub(crate) inline: bool,
    pub(crate) decisions: Decisions,
    /// Sends the answers, if they do not go back to the interface.
    pub(crate) injector: Option<Injector>,
    /// Address and length of the current frame.
    frame: (usize, usize),
    /// The frame with its changes, if there are any.
    changed: Vec<u8>,
    is_changed: bool,
    /// A rewritten packet: the address of the copy that is inspected in its place, and the packet's offset in the frame.
    copy: Option<(usize, usize)>,
    second: i64,
    sent: u32,
    answer: Vec<u8>,
    counts: [u64; 4],
}

/// Bytes of a packet that are in the frame.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Offset of the first byte in the frame.
    place: usize,
    /// Range in the packet's data.
    start: usize,
    end: usize,
}

impl Stretch {
    /// Whether the range includes these bytes of the packet.
    fn has(&self, at: usize, len: usize) -> bool {
        at >= self.start && at.saturating_add(len) <= self.end
    }
}

/// Results of the answers that the engine sends itself.
#[derive(Debug, Clone, Copy)]
enum Count {
    /// Sent by the injector.
    Sent,
    /// The injector failed.
    Failed,
    /// Over the limit.
    Limited,
    /// No answer is possible or allowed.
    Impossible,
}

impl Wire {
    pub(crate) fn new(inline: bool, injector: Option<Injector>) -> Wire {
        Wire { inline, injector, ..Wire::default() }
    }

    /// Starts the inspection of a frame.
    #[inline]
    pub(super) fn begin(&mut self, frame: &[u8]) {
        self.frame = (frame.as_ptr() as usize, frame.len());
        self.is_changed = false;
        self.copy = None;
    }

    /// Records the verdict on the frame, for the source.
    #[inline]
    pub(super) fn decide(&mut self, verdict: FrameVerdict) {
        match verdict.drop {
            Some(_) => self.decisions.drop(),
            None if self.is_changed => self.decisions.replace(&self.changed),
            None => self.decisions.accept(),
        }
        if let Some((value, mask)) = verdict.mark {
            self.decisions.mark(value, mask);
        }
        if verdict.bypassed {
            self.decisions.bypass();
        }
    }

    /// Calls `f` with each counter's name and value. `sent` and `failed` are the source's counts.
    pub(crate) fn for_each(&self, sent: u64, failed: u64, f: &mut dyn FnMut(&str, u64)) {
        let of = |c: Count| self.counts[c as usize];
        f("capture.reject.sent", sent + of(Count::Sent));
        f("capture.reject.failed", failed + of(Count::Failed));
        f("capture.reject.limited", of(Count::Limited));
        f("capture.reject.impossible", of(Count::Impossible));
    }

    /// Offset of the packet's bytes in the frame.
    fn place(&self, p: &Packet<'_>) -> Option<usize> {
        let at = p.data.as_ptr() as usize;
        if let Some((copy, place)) = self.copy
            && copy == at
        {
            return Some(place);
        }
        let start = at.checked_sub(self.frame.0)?;
        (start.checked_add(p.data.len())? <= self.frame.1).then_some(start)
    }

    /// The frame that `p` is in.
    fn frame_of<'a>(&self, p: &Packet<'a>) -> Option<&'a [u8]> {
        let mut outermost = p;
        while let Some(outer) = outermost.outer {
            outermost = outer;
        }
        let data = outermost.data;
        (data.as_ptr() as usize == self.frame.0 && data.len() == self.frame.1).then_some(data)
    }

    /// Forwards the packet as `copy`, which is inspected in its place. Returns `false` for a packet that was reassembled from
    /// fragments, which cannot be changed.
    pub(super) fn rewrite(&mut self, p: &Packet<'_>, copy: &[u8]) -> bool {
        let Some(place) = self.place(p) else { return false };
        if !self.is_changed {
            let Some(frame) = self.frame_of(p) else { return false };
            self.changed.clear();
            self.changed.extend_from_slice(frame);
        }
        let Some(to) = self.changed.get_mut(place..place + copy.len()) else { return false };
        to.copy_from_slice(copy);
        self.is_changed = true;
        self.copy = Some((copy.as_ptr() as usize, place));
        true
    }

    /// The packet's bytes that are in the frame: all of them, or for a reassembled datagram the bytes of its last fragment.
    /// Its other fragments were forwarded earlier.
    fn stretch(&self, p: &Packet<'_>) -> Option<Stretch> {
        if let Some(place) = self.place(p) {
            return Some(Stretch { place, start: 0, end: p.data.len() });
        }
        let c = p.completed?;
        let place = self.place(p.outer?)?.checked_add(c.at as usize)?;
        let start = c.start as usize;
        Some(Stretch { place, start, end: start.checked_add(c.len as usize)? })
    }

    /// Replaces bytes of the packet's payload at these offsets. Returns `false`, and changes nothing, if that is impossible;
    /// the packet must then be dropped.
    pub(super) fn replace<'b>(&mut self, p: &Packet<'_>, what: impl Iterator<Item = (u32, &'b [u8])> + Clone) -> bool {
        let Some(stretch) = self.stretch(p) else { return false };
        let (l4, field) = match p.l4 {
            L4::Tcp { offset, .. } => (offset as usize, 16),
            L4::Udp { offset } => (offset as usize, 6),
            L4::Icmpv4 { offset } | L4::Icmpv6 { offset } => (offset as usize, 2),
            _ => return false,
        };
        let check = l4 + field;
        // A UDP datagram without a checksum stays without one.
        let unchecked = p.proto == 17 && p.data.get(check..check + 2) == Some(&[0, 0]);
        if p.recursion > 0 && unchecked {
            // Without an inner checksum to compensate, the change would invalidate the outer checksum.
            return false;
        }
        let (payload, len) = (p.payload.0 as usize, p.payload.1 as usize);
        let what = what.filter(|(at, new)| *at as usize + new.len() <= len);
        let what = what.map(|(at, new)| (payload + at as usize, new));
        if !(unchecked || stretch.has(check, 2)) || what.clone().any(|(at, new)| !stretch.has(at, new.len())) {
            return false;
        }
        if !self.is_changed {
            let Some(frame) = self.frame_of(p) else { return false };
            self.changed.clear();
            self.changed.extend_from_slice(frame);
            self.is_changed = true;
        }
        let Stretch { place, start, end } = stretch;
        let Some(bytes) = self.changed.get_mut(place..place + (end - start)) else { return false };
        let mut sum = 0u64;
        for (at, new) in what {
            let Some(old) = bytes.get_mut(at - start..at - start + new.len()) else { continue };
            for (i, (old, new)) in old.iter_mut().zip(new).enumerate() {
                let weight = if (at + i - l4).is_multiple_of(2) { 256 } else { 1 };
                // m' + ~m
                sum += u64::from(*new) * weight + u64::from(0xffff - u16::from(*old) * weight as u16);
                *old = *new;
            }
        }
        if unchecked {
            return true;
        }
        let Some(check) = bytes.get_mut(check - start..check - start + 2) else { return false };
        sum += u64::from(!u16::from_be_bytes([check[0], check[1]]));
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let mut new = !(sum as u16);
        if p.proto == 17 && new == 0 {
            new = 0xffff;
        }
        check.copy_from_slice(&new.to_be_bytes());
        true
    }

    /// Forwards the packet, a TCP segment, without its payload. Returns `false` if that is impossible: the worker is not
    /// inline, or the packet is in a tunnel, was reassembled from fragments, or was already changed.
    #[cold]
    pub(super) fn strip(&mut self, p: &Packet<'_>) -> bool {
        let end = p.payload.0 as usize;
        let whole = self.frame_of(p).filter(|_| self.inline && p.outer.is_none() && !self.is_changed);
        let (Some(frame), L4::Tcp { offset, .. }) = (whole.and_then(|f| f.get(..end)), p.l4) else { return false };
        self.changed.clear();
        self.changed.extend_from_slice(frame);
        let (length, header) = match p.l3 {
            L3::Ipv4 { offset, header_len, .. } => {
                (offset as usize + 2, offset as usize..offset as usize + header_len as usize)
            }
            L3::Ipv6 { offset, .. } => (offset as usize + 4, offset as usize..offset as usize),
            _ => return false,
        };
        // IPv6's length field does not include its own header.
        let from = header.start + if header.is_empty() { 40 } else { 0 };
        let Some(len) = end.checked_sub(from).and_then(|n| u16::try_from(n).ok()) else { return false };
        let mut put = |at: usize, value: u16| match self.changed.get_mut(at..at + 2) {
            Some(to) => to.copy_from_slice(&value.to_be_bytes()),
            None => debug_assert!(false, "a header that is not there"),
        };
        put(length, len);
        let check = offset as usize + 16;
        put(check, 0);
        if !header.is_empty() {
            put(header.start + 10, 0);
            let sum = self.changed.get(header.clone()).map_or(0, checksum::internet);
            if let Some(to) = self.changed.get_mut(header.start + 10..header.start + 12) {
                to.copy_from_slice(&sum.to_be_bytes());
            }
        }
        let sum = Packet { data: &self.changed, payload: (p.payload.0, 0), ..*p }.tcp_checksum();
        let (Some(sum), Some(to)) = (sum, self.changed.get_mut(check..check + 2)) else { return false };
        to.copy_from_slice(&sum.to_be_bytes());
        self.is_changed = true;
        true
    }

    /// Forwards the packet, a TCP segment, without its urgent pointer. Returns `false` if that is impossible: it was
    /// reassembled from fragments, and its header is not in the last one.
    #[cold]
    pub(super) fn clear_urgent(&mut self, p: &Packet<'_>) -> bool {
        let (Some(stretch), L4::Tcp { offset, .. }) = (self.stretch(p), p.l4) else { return false };
        // Flags, checksum and urgent pointer.
        let (header, len) = (offset as usize + 12, 8);
        if !stretch.has(header, len) {
            return false;
        }
        if !self.is_changed {
            let Some(frame) = self.frame_of(p) else { return false };
            self.changed.clear();
            self.changed.extend_from_slice(frame);
            self.is_changed = true;
        }
        let at = stretch.place + header - stretch.start;
        let Some(Ok(fields)) = self.changed.get_mut(at..at + len).map(<&mut [u8; 8]>::try_from) else { return false };
        let word = |b: &[u8; 8], i: usize| u64::from(u16::from_be_bytes([b[i], b[i + 1]]));
        // ~(~HC + ~m + m') (RFC 1624 section 3).
        let mut sum = (0xffff - word(fields, 4)) + (0xffff - word(fields, 0)) + (0xffff - word(fields, 6));
        fields[1] &= !flag::URG;
        fields[6..].fill(0);
        sum += word(fields, 0);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        fields[4..6].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        true
    }

    /// The kinds of answers to a packet, as events show them.
    pub(super) fn how(p: &Packet<'_>) -> &'static [&'static str] {
        if p.is_tcp() { &["tcp-reset"] } else { &["icmp-prohib"] }
    }

    /// Answers a rejected packet.
    #[cold]
    pub(super) fn reject(&mut self, p: &Packet<'_>, fate: PacketVerdict, now: Time) {
        let sides: &[Side] = match fate.rejected {
            None | Some(Reject::Source) => &[Side::Source],
            Some(Reject::Destination) => &[Side::Destination],
            Some(Reject::Both) => &[Side::Source, Side::Destination],
        };
        // The destination has not seen a dropped packet.
        let seen = !(self.inline && fate.drop.is_some());
        for &side in sides {
            if now.secs() != self.second {
                (self.second, self.sent) = (now.secs(), 0);
            }
            if self.sent >= ANSWERS {
                self.counts[Count::Limited as usize] += 1;
                continue;
            }
            let mut answer = std::mem::take(&mut self.answer);
            answer.clear();
            let made = answer_to(p, side, seen, &mut answer);
            match (made, &self.injector) {
                (None, _) => self.counts[Count::Impossible as usize] += 1,
                (Some(_), None) => {
                    self.sent += 1;
                    self.decisions.answer(side, &answer);
                }
                (Some(link), Some(injector)) => {
                    self.sent += 1;
                    let (link, packet) = answer.split_at_checked(link).unwrap_or((&[], &answer));
                    let count = if injector.send(link, packet) { Count::Sent } else { Count::Failed };
                    self.counts[count as usize] += 1;
                }
            }
            self.answer = answer;
        }
    }
}

/// Writes an answer from its link layer on, and returns the link layer's length; `None` if there is no answer.
fn answer_to(p: &Packet<'_>, side: Side, seen: bool, out: &mut Vec<u8>) -> Option<usize> {
    if p.recursion != 0 || p.fragment || !matches!(p.source, PacketSource::Wire | PacketSource::Defrag) {
        return None;
    }
    let at = match p.l3 {
        L3::Ipv4 { offset, .. } | L3::Ipv6 { offset, .. } => offset as usize,
        _ => return None,
    };
    // Unspecified and multicast addresses get no answer.
    if p.src.is_unspecified() || p.src.is_multicast() || p.dst.is_multicast() || p.dst.is_unspecified() {
        return None;
    }
    if matches!(p.dst, IpAddr::V4(a) if a.is_broadcast()) {
        return None;
    }
    let link = match p.link {
        LinkType::ETHERNET if at >= ETHERNET && (at - ETHERNET).is_multiple_of(TAG) => {
            let header = p.data.get(..at)?;
            // Only tags and an EtherType, not an 802.3 length.
            if at != ETHERNET + TAG * p.vlans.as_slice().len() || header.first()? & 1 != 0 {
                return None;
            }
            match side {
                Side::Source => {
                    out.extend_from_slice(header.get(6..12)?);
                    out.extend_from_slice(header.get(..6)?);
                    out.extend_from_slice(header.get(12..)?);
                }
                Side::Destination => out.extend_from_slice(header),
            }
            at
        }
        LinkType::RAW if at == 0 => 0,
        _ => return None,
    };
    let (from, to) = match side {
        Side::Source => (p.dst, p.src),
        Side::Destination => (p.src, p.dst),
    };
    if p.is_tcp() {
        let segment = reset(p, side, seen)?;
        ip(out, from, to, 6, segment.len());
        transport(out, from, to, 6, 16, &segment);
    } else {
        let message = unreachable(p, at, side)?;
        let (proto, sum) = if from.is_ipv4() { (1, false) } else { (58, true) };
        ip(out, from, to, proto, message.len());
        if sum {
            transport(out, from, to, proto, 2, &message);
        } else {
            let start = out.len();
            out.extend_from_slice(&message);
            let sum = checksum::internet(out.get(start..)?);
            out.get_mut(start + 2..start + 4)?.copy_from_slice(&sum.to_be_bytes());
        }
    }
    Some(link)
}

/// A reset (RFC 9293 section 3.5.2) that the receiver accepts: its sequence number is the next expected one (RFC 5961 section
/// 3.2).
fn reset(p: &Packet<'_>, side: Side, seen: bool) -> Option<[u8; 20]> {
    let tcp = p.tcp()?;
    if tcp.has(flag::RST) {
        return None;
    }
    let takes = p.payload.1.wrapping_add(u32::from(tcp.has(flag::SYN))).wrapping_add(u32::from(tcp.has(flag::FIN)));
    let after = tcp.seq().wrapping_add(takes);
    let acks = tcp.has(flag::ACK);
    let (sport, dport, seq, ack, flags) = match side {
        Side::Source => (p.dport, p.sport, if acks { tcp.ack() } else { 0 }, after, flag::RST | flag::ACK),
        Side::Destination => {
            let seq = if seen { after } else { tcp.seq() };
            (p.sport, p.dport, seq, if acks { tcp.ack() } else { 0 }, flag::RST | if acks { flag::ACK } else { 0 })
        }
    };
    let mut out = [0; 20];
    out[..2].copy_from_slice(&sport.to_be_bytes());
    out[2..4].copy_from_slice(&dport.to_be_bytes());
    out[4..8].copy_from_slice(&seq.to_be_bytes());
    out[8..12].copy_from_slice(&ack.to_be_bytes());
    (out[12], out[13]) = (5 << 4, flags);
    Some(out)
}

/// An ICMP error that quotes the packet. For the destination, it quotes a packet that the destination would have sent.
fn unreachable(p: &Packet<'_>, at: usize, side: Side) -> Option<Vec<u8>> {
    let v4 = p.src.is_ipv4();
    match p.l4 {
        // Never answer an error with an error.
        L4::Icmpv4 { .. } if matches!(p.icmp.0, 3 | 4 | 5 | 11 | 12) => return None,
        L4::Icmpv6 { .. } if p.icmp.0 < 128 => return None,
        _ => {}
    }
    // Type 3, code 10; for IPv6 type 1, code 1, as in Suricata 7.
    let (kind, code) = if v4 { (3, 10) } else { (1, 1) };
    let mut out = vec![kind, code, 0, 0, 0, 0, 0, 0];
    match side {
        Side::Source => {
            let end = (p.payload.0 as usize).saturating_add(p.payload.1 as usize).min(at + QUOTED);
            out.extend_from_slice(p.data.get(at..end)?);
        }
        Side::Destination => {
            let L4::Udp { .. } = p.l4 else { return None };
            let len = 8u16;
            ip(&mut out, p.dst, p.src, 17, usize::from(len));
            for n in [p.dport, p.sport, len, 0] {
                out.extend_from_slice(&n.to_be_bytes());
            }
        }
    }
    Some(out)
}

/// Writes an IP header for a payload of `len` bytes.
fn ip(out: &mut Vec<u8>, from: IpAddr, to: IpAddr, proto: u8, len: usize) {
    let length = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start = out.len();
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&length(20 + len));
            // Don't fragment; TTL 64.
            out.extend_from_slice(&[0, 0, 0x40, 0, 64, proto, 0, 0]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
            let sum = checksum::internet(out.get(start..).unwrap_or(&[]));
            if let Some(field) = out.get_mut(start + 10..start + 12) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&length(len));
            out.extend_from_slice(&[proto, 64]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        _ => {}
    }
}

/// Writes a transport header and payload, with a checksum over them and the pseudo-header at `field`.
fn transport(out: &mut Vec<u8>, from: IpAddr, to: IpAddr, proto: u8, field: usize, bytes: &[u8]) {
    let mut pseudo = Vec::with_capacity(40 + bytes.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            pseudo.extend_from_slice(&from.octets());
            pseudo.extend_from_slice(&to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo.extend_from_slice(&from.octets());
            pseudo.extend_from_slice(&to.octets());
        }
        _ => {}
    }
    pseudo.extend_from_slice(&[0, proto]);
    pseudo.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    pseudo.extend_from_slice(bytes);
    let sum = checksum::internet(&pseudo);
    let start = out.len();
    out.extend_from_slice(bytes);
    if let Some(to) = out.get_mut(start + field..start + field + 2) {
        to.copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
