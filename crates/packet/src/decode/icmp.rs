//! ICMP for IPv4 (RFC 792) and for IPv6 (RFC 4443).

use crate::bytes::{u8_at, u16_at};
use crate::decoder::{Decoder, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{L3, L4, Packet};

/// Header length of both, including the four bytes that depend on the type.
const HEADER: usize = 8;
/// The three times of a timestamp message (RFC 792).
const TIMES: usize = 12;

impl Decoder {
    /// ICMP for IPv4.
    pub(super) fn icmpv4(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.icmpv4 += 1;
        let b = p.range(at, end);
        if b.len() < HEADER {
            bad(p, E::Icmpv4PktTooSmall);
            return;
        }
        let (kind, code) = (b[0], b[1]);
        p.l4 = L4::Icmpv4 { offset: at as u32 };
        p.icmp = (kind, code);
        p.payload = ((at + HEADER) as u32, (b.len() - HEADER) as u32);
        let body = &b[HEADER..];
        let max_code = match kind {
            0 | 4 | 8 | 12 | 13..=18 => 0,
            3 => 15,
            5 => 3,
            // Router advertisement: RFC 5944 defines codes 0 and 16, but others occur.
            9 => 255,
            11 => 1,
            _ => {
                note(p, E::Icmpv4UnknownType);
                return;
            }
        };
        if code > max_code {
            note(p, E::Icmpv4UnknownCode);
        }
        match kind {
            // Errors carry the datagram that they are about. An empty body is accepted, except in source quench.
            3 | 4 | 5 | 11 | 12 if code <= max_code && (kind == 4 || !body.is_empty()) => embedded_v4(p, body),
            // Router advertisement (RFC 1256 section 3): `b[4]` entries of `b[5]` words each.
            9 if body.len() < usize::from(b[4]) * usize::from(b[5]) * 4 => note(p, E::Icmpv4Ipv4TruncPkt),
            13 | 14 if body.len() < TIMES => note(p, E::Icmpv4Ipv4TruncPkt),
            13 | 14 => p.payload = ((at + HEADER + TIMES) as u32, (body.len() - TIMES) as u32),
            _ => {}
        }
    }

    /// ICMP for IPv6.
    pub(super) fn icmpv6(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.icmpv6 += 1;
        let b = p.range(at, end);
        if b.len() < HEADER {
            bad(p, E::Icmpv6PktTooSmall);
            return;
        }
        let (kind, code) = (b[0], b[1]);
        p.l4 = L4::Icmpv6 { offset: at as u32 };
        p.icmp = (kind, code);
        p.payload = ((at + HEADER) as u32, (b.len() - HEADER) as u32);
        let code_ok = match kind {
            1 => code <= 6,
            3 => code <= 1,
            4 => code <= 2,
            2 | 128..=137 | 141..=149 | 154 | 156..=159 => code == 0,
            // Router renumbering; node information query and reply.
            138 => code <= 2 || code == 255,
            139 | 140 => code <= 2,
            150..=153 => true,
            // RPL control (RFC 6550 section 6).
            155 => code <= 3 || (128..=132).contains(&code),
            100 | 101 | 200 | 201 => {
                note(p, E::Icmpv6ExperimentationType);
                return;
            }
            0 | 127 => {
                note(p, E::Icmpv6UnknownType);
                return;
            }
            _ => {
                note(p, E::Icmpv6UnassignedType);
                return;
            }
        };
        // Multicast listener messages never leave the link (RFC 2710 section 3).
        if matches!(kind, 130..=132) && hop_limit(p) != 1 {
            note(p, E::Icmpv6MldMessageWithInvalidHl);
        }
        if !code_ok {
            note(p, E::Icmpv6UnknownCode);
        } else if kind <= 4 {
            embedded_v6(p, &b[HEADER..]);
        }
    }
}

/// The hop limit of an IPv6 packet.
fn hop_limit(p: &Packet<'_>) -> u8 {
    match p.l3 {
        L3::Ipv6 { offset, .. } => u8_at(p.data, offset as usize + 7),
        _ => 0,
    }
}

/// Checks the IPv4 header of the datagram that an error is about.
fn embedded_v4(p: &mut Packet<'_>, b: &[u8]) {
    if b.len() < 20 {
        bad(p, E::Icmpv4Ipv4TruncPkt);
    } else if b[0] >> 4 != 4 {
        bad(p, E::Icmpv4Ipv4UnknownVer);
    }
}

/// Checks the IPv6 header of the packet that an error is about.
fn embedded_v6(p: &mut Packet<'_>, b: &[u8]) {
    if b.len() < 40 {
        bad(p, E::Icmpv6Ipv6TruncPkt);
    } else if u16_at(b, 0) >> 12 != 6 {
        bad(p, E::Icmpv6Ipv6UnknownVersion);
    }
}
