//! IPv6 (RFC 8200) and its extension headers.

use std::net::IpAddr;

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
use crate::decoder::{Decoder, bad, note};
use crate::defrag::Fragment;
use crate::event::DecodeEvent as E;
use crate::packet::{L3, Packet, PacketSink, Refused, ipv6_ext};

/// The fixed header.
const FIXED: usize = 40;

/// Next header numbers (IANA: protocol numbers).
mod next {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ICMP: u8 = 1;
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const ESP: u8 = 50;
    pub(super) const AUTH: u8 = 51;
    pub(super) const ICMPV6: u8 = 58;
    pub(super) const NONE: u8 = 59;
    pub(super) const DEST: u8 = 60;
    pub(super) const MOBILITY: u8 = 135;
    pub(super) const HIP: u8 = 139;
    pub(super) const SHIM6: u8 = 140;
}

/// The position of the walk along the extension headers.
struct Walk {
    /// Where the next header starts.
    at: usize,
    /// Where the packet ends.
    end: usize,
    /// Which header comes next.
    next: u8,
    /// Where the number of that header is in the packet.
    next_at: usize,
    /// Extension headers seen.
    seen: u8,
    /// Number of destination options headers seen. Two are allowed, before and after a routing header.
    dest: u8,
    /// Where the fragment header starts; 0 if there is none.
    fragment: usize,
}

impl Decoder {
    /// An IPv6 header and its payload.
    pub(crate) fn ipv6<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.ipv6 += 1;
        let b = p.range(at, end);
        if !self.layer(p) {
            return false;
        }
        if b.len() < FIXED {
            return bad(p, E::Ipv6PktTooSmall);
        }
        if b[0] >> 4 != 6 {
            return bad(p, E::Ipv6WrongIpVersion);
        }
        let mut payload_len = usize::from(u16_at(b, 4));
        if payload_len == 0 && b[6] == next::HOP_BY_HOP && self.config.defrag.inline {
            // The length is in the options (RFC 2675 section 2), or missing: some hosts take all received bytes.
            payload_len = b.len() - FIXED;
        }
        if FIXED + payload_len > b.len() {
            return bad(p, E::Ipv6TruncPkt);
        }
        p.src = IpAddr::from(array_at::<16>(b, 8));
        p.dst = IpAddr::from(array_at::<16>(b, 24));
        let end = at + FIXED + payload_len;
        let mut w = Walk { at: at + FIXED, end, next: b[6], next_at: at + 6, seen: 0, dest: 0, fragment: 0 };
        self.ipv6_from(p, at, &mut w, sink);
        true
    }

    /// Walks the extension headers from `w` on, then decodes the payload.
    fn ipv6_from<S: PacketSink>(&mut self, p: &mut Packet<'_>, ip: usize, w: &mut Walk, sink: &mut S) {
        let sound = loop {
            // Any header after an extension header has at least two bytes.
            if w.at > ip + FIXED && w.end - w.at < 2 && w.next != next::NONE {
                break bad(p, E::Ipv6TruncExthdr);
            }
            // `proto` ends as the transport protocol, or else as the last extension header other than these.
            if !matches!(w.next, next::NONE | next::MOBILITY | next::HIP | next::SHIM6) {
                p.proto = w.next;
            }
            match w.next {
                next::HOP_BY_HOP
                | next::DEST
                | next::ROUTING
                | next::AUTH
                | next::MOBILITY
                | next::HIP
                | next::SHIM6 => {
                    if !extension(p, w) {
                        break false;
                    }
                }
                next::FRAGMENT => {
                    let again = w.seen & ipv6_ext::FRAGMENT != 0;
                    match fragment_header(p, ip, w) {
                        FragmentHeader::Broken => break false,
                        FragmentHeader::Useless => {
                            // Some hosts reassemble a nested fragment, others refuse it.
                            if again && self.config.defrag.inline {
                                p.refused = Some(Refused::Unsound);
                            }
                        }
                        FragmentHeader::Real(f) => {
                            set_layer(p, ip, w);
                            if let Some(f) = f {
                                self.fragment(p, f, sink);
                            } else {
                                p.fragment = true;
                                p.refused = self.config.defrag.inline.then_some(Refused::Unsound);
                                self.counters.defrag_ipv6_fragments += 1;
                            }
                            return;
                        }
                    }
                }
                _ => break true,
            }
        };
        set_layer(p, ip, w);
        p.payload = (w.at as u32, (w.end - w.at) as u32);
        if !sound {
            return;
        }
        let (start, end) = (w.at, w.end);
        match w.next {
            next::NONE => {
                if start < end {
                    note(p, E::Ipv6DataAfterNoneHeader);
                }
            }
            next::ICMPV6 => self.icmpv6(p, start, end),
            next::ICMP => note(p, E::Ipv6Icmpv4),
            next::IPV4 => self.ipv4_in_ipv6(p, start, end, sink),
            next::IPV6 => self.ipv6_in_ipv6(p, start, end, sink),
            next::ESP if end - start < 2 => {
                bad(p, E::Ipv6TruncExthdr);
            }
            6 | 17 | 47 | next::ESP | 132 => self.transport(p, w.next, start, end, sink),
            _ => note(p, E::Ipv6UnknownNextHeader),
        }
    }
}

/// Records the network layer as far as it was walked.
fn set_layer(p: &mut Packet<'_>, ip: usize, w: &Walk) {
    p.l3 =
        L3::Ipv6 { offset: ip as u32, header_len: (w.at - ip) as u32, extensions: w.seen, fragment: w.fragment as u32 };
}

/// One extension header other than the fragment header. If it is truncated, the packet is invalid and the result
/// `false`.
fn extension(p: &mut Packet<'_>, w: &mut Walk) -> bool {
    let b = p.range(w.at, w.end);
    let len = match w.next {
        // RFC 4302 section 2.2; never shorter than its fixed fields.
        next::AUTH => (usize::from(u8_at(b, 1)) * 4 + 8).max(12),
        _ => usize::from(u8_at(b, 1)) * 8 + 8,
    };
    if b.len() < 2 || len > b.len() {
        return bad(p, E::Ipv6TruncExthdr);
    }
    let header = &b[..len];
    let (bit, duplicate) = match w.next {
        next::HOP_BY_HOP => (ipv6_ext::HOP_BY_HOP, E::Ipv6ExthdrDuplHh),
        next::ROUTING => (ipv6_ext::ROUTING, E::Ipv6ExthdrDuplRh),
        next::AUTH => (ipv6_ext::AUTH, E::Ipv6ExthdrDuplAh),
        _ => (0, E::Ipv6ExthdrDuplDh),
    };
    if w.next == next::AUTH && u16_at(header, 2) != 0 {
        note(p, E::Ipv6ExthdrAhResNotNull);
    }
    match w.next {
        next::DEST => {
            w.dest = w.dest.saturating_add(1);
            if w.dest > 2 {
                note(p, duplicate);
            } else {
                options(p, header, false);
            }
            w.seen |= ipv6_ext::DEST;
        }
        _ if w.seen & bit != 0 => note(p, duplicate),
        next::HOP_BY_HOP => options(p, header, true),
        next::ROUTING if u8_at(header, 2) == 0 => note(p, E::Ipv6RhType0),
        _ => {}
    }
    w.seen |= bit;
    w.next = header[0];
    w.next_at = w.at;
    w.at += len;
    true
}

/// The options of a hop-by-hop or destination options header (RFC 8200 section 4.2).
fn options(p: &mut Packet<'_>, header: &[u8], hop_by_hop: bool) {
    let (unknown, only_padding) = if hop_by_hop {
        (E::Ipv6HopoptsUnknownOpt, E::Ipv6HopoptsOnlyPadding)
    } else {
        (E::Ipv6DstoptsUnknownOpt, E::Ipv6DstoptsOnlyPadding)
    };
    let mut b = &header[2..];
    let (mut padded, mut other) = (false, false);
    while let Some((&kind, rest)) = b.split_first() {
        if kind == 0 {
            padded = true;
            b = rest;
            continue;
        }
        let Some(len) = rest.first().map(|&len| usize::from(len)) else {
            note(p, E::Ipv6ExthdrInvalidOptlen);
            break;
        };
        // Minimum lengths of the known options: router alert, jumbo payload, home address.
        let least = match kind {
            0x05 => 2,
            0xc2 => 4,
            0xc9 => 16,
            _ => 0,
        };
        if len > rest.len() || len < least {
            note(p, E::Ipv6ExthdrInvalidOptlen);
            break;
        }
        match kind {
            1 => {
                padded = true;
                if len == 0 {
                    note(p, E::Ipv6ZeroLenPadn);
                }
            }
            0x05 | 0xc9 => other = true,
            0xc2 => {}
            _ => {
                other = true;
                note(p, unknown);
            }
        }
        b = rest.get(1 + len..).unwrap_or(&[]);
    }
    if padded && !other {
        note(p, only_padding);
    }
}

/// The result of reading a fragment header.
enum FragmentHeader {
    /// Truncated.
    Broken,
    /// The header of a complete datagram (an atomic fragment, RFC 6946), or a second fragment header: the walk
    /// continues behind it.
    Useless,
    /// A fragment; `None` if its length is wrong.
    Real(Option<Fragment>),
}

/// The fragment header (RFC 8200 section 4.5).
fn fragment_header(p: &mut Packet<'_>, ip: usize, w: &mut Walk) -> FragmentHeader {
    let b = p.range(w.at, w.end);
    if b.len() < 8 {
        bad(p, E::Ipv6TruncExthdr);
        return FragmentHeader::Broken;
    }
    if b[1] != 0 {
        note(p, E::Ipv6FhNonZeroReservedField);
    }
    if w.seen & ipv6_ext::FRAGMENT != 0 {
        note(p, E::Ipv6ExthdrDuplFh);
        w.next = b[0];
        w.next_at = w.at;
        w.at += 8;
        return FragmentHeader::Useless;
    }
    let word = u16_at(b, 2);
    let (offset, more) = (usize::from(word & 0xfff8), word & 1 != 0);
    w.seen |= ipv6_ext::FRAGMENT;
    w.fragment = w.at;
    let (start, next_header_at) = (w.at + 8, w.next_at);
    w.next = b[0];
    w.next_at = w.at;
    w.at = start;
    if offset == 0 && !more {
        note(p, E::Ipv6ExthdrUselessFh);
        return FragmentHeader::Useless;
    }
    if more && !(w.end - start).is_multiple_of(8) {
        note(p, E::Ipv6FragInvalidLength);
        return FragmentHeader::Real(None);
    }
    FragmentHeader::Real(Some(Fragment { ip, start, end: w.end, id: u32_at(b, 4), offset, more, next_header_at }))
}
