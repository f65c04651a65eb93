//! IPv4 (RFC 791) and its options.

use std::net::IpAddr;

use crate::bytes::{array_at, u8_at, u16_at};
use crate::decoder::{Decoder, bad, no_network, note};
use crate::defrag::Fragment;
use crate::event::DecodeEvent as E;
use crate::packet::{L3, Packet, PacketSink, ipv4_option};

/// Shortest header.
const MIN: usize = 20;

/// Option kinds (IANA: IP option numbers).
mod kind {
    pub(super) const EOL: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const RR: u8 = 7;
    pub(super) const QS: u8 = 25;
    pub(super) const TS: u8 = 68;
    pub(super) const SEC: u8 = 130;
    pub(super) const LSRR: u8 = 131;
    pub(super) const ESEC: u8 = 133;
    pub(super) const CIPSO: u8 = 134;
    pub(super) const SID: u8 = 136;
    pub(super) const SSRR: u8 = 137;
    pub(super) const RTRALT: u8 = 148;
}

impl Decoder {
    /// An IPv4 header and its payload.
    pub(crate) fn ipv4<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.ipv4 += 1;
        let b = p.range(at, end);
        if !self.layer(p) {
            return false;
        }
        if b.len() < MIN {
            return bad(p, E::Ipv4PktTooSmall);
        }
        let (version, header_len) = (b[0] >> 4, usize::from(b[0] & 0x0f) * 4);
        let total = usize::from(u16_at(b, 2));
        if version != 4 {
            return bad(p, E::Ipv4WrongIpVersion);
        }
        if header_len < MIN {
            return bad(p, E::Ipv4HlenTooSmall);
        }
        if total < header_len {
            return bad(p, E::Ipv4IplenSmallerThanHlen);
        }
        if total > b.len() {
            return bad(p, E::Ipv4TruncPkt);
        }
        p.src = IpAddr::from(array_at::<4>(b, 12));
        p.dst = IpAddr::from(array_at::<4>(b, 16));
        p.proto = b[9];
        let mut options = 0;
        if header_len > MIN && !parse_options(p, &b[MIN..header_len], &mut options) {
            no_network(p);
            return false;
        }
        p.l3 = L3::Ipv4 { offset: at as u32, header_len: header_len as u8, options };
        let (start, end) = (at + header_len, at + total);
        p.payload = (start as u32, (end - start) as u32);
        let flags_offset = u16_at(b, 6);
        if flags_offset & 0x3fff != 0 {
            let fragment = Fragment {
                ip: at,
                start,
                end,
                id: u32::from(u16_at(b, 4)),
                offset: usize::from(flags_offset & 0x1fff) * 8,
                more: flags_offset & 0x2000 != 0,
                next_header_at: 0,
            };
            self.fragment(p, fragment, sink);
            return true;
        }
        match p.proto {
            58 => {
                bad(p, E::Ipv4Icmpv6);
            }
            1 => self.icmpv4(p, start, end),
            2 => self.igmp(p, start, end),
            4 => self.ip_in_ipv4(p, start, end, sink),
            41 => self.ipv6_in_ipv4(p, start, end, sink),
            proto => self.transport(p, proto, start, end, sink),
        }
        true
    }
}

/// Walks the options of a header. If an option's length exceeds the header, the packet is invalid and the result
/// `false`.
fn parse_options(p: &mut Packet<'_>, mut b: &[u8], seen: &mut u16) -> bool {
    if !b.len().is_multiple_of(8) {
        note(p, E::Ipv4OptPadRequired);
    }
    while let Some(&kind) = b.first() {
        if kind == kind::EOL {
            *seen |= ipv4_option::EOL;
            break;
        }
        if kind == kind::NOP {
            *seen |= ipv4_option::NOP;
            b = &b[1..];
            continue;
        }
        if b.len() < 2 {
            note(p, E::Ipv4OptEolRequired);
            break;
        }
        let Some(option) = b.get(..usize::from(b[1])).filter(|o| o.len() >= 2) else {
            return bad(p, E::Ipv4OptInvalidLen);
        };
        b = &b[option.len()..];
        let bit = match kind {
            kind::RR => ipv4_option::RR,
            kind::TS => ipv4_option::TS,
            kind::SEC => ipv4_option::SEC,
            kind::LSRR => ipv4_option::LSRR,
            kind::ESEC => ipv4_option::ESEC,
            kind::CIPSO => ipv4_option::CIPSO,
            kind::SID => ipv4_option::SATID,
            kind::SSRR => ipv4_option::SSRR,
            kind::RTRALT => ipv4_option::RTRALT,
            kind::QS => ipv4_option::QS,
            _ => {
                note(p, E::Ipv4OptInvalid);
                continue;
            }
        };
        if *seen & bit != 0 {
            note(p, E::Ipv4OptDuplicate);
        } else if let Err(e) = check_option(kind, option) {
            bad(p, e);
        } else {
            *seen |= bit;
        }
    }
    true
}

/// Whether an option's length and fixed fields are sound.
fn check_option(kind: u8, option: &[u8]) -> Result<(), E> {
    let len = option.len();
    let pointer = usize::from(u8_at(option, 2));
    let (length_ok, fields_ok) = match kind {
        // RFC 791: the pointer counts from 1 and starts at 4, addresses are 4 bytes long.
        kind::RR | kind::LSRR | kind::SSRR => (len >= 3, pointer >= 4 && pointer % 4 == 0 && pointer <= len + 1),
        // The pointer starts at 5; entries are 4 bytes, or 8 with addresses.
        kind::TS => (len >= 5, {
            let entry = if matches!(u8_at(option, 3) & 0x0f, 1 | 3) { 8 } else { 4 };
            pointer >= 5 && (pointer - 5) % entry == 0 && pointer <= len + 1
        }),
        kind::SEC | kind::ESEC => (len >= 3, true),
        kind::QS => (len >= 8, true),
        kind::SID | kind::RTRALT => (len == 4, true),
        kind::CIPSO => (len >= 10, cipso_tags_ok(option.get(6..).unwrap_or(&[]))),
        _ => (true, true),
    };
    match (length_ok, fields_ok) {
        (false, _) => Err(E::Ipv4OptInvalidLen),
        (true, false) => Err(E::Ipv4OptMalformed),
        (true, true) => Ok(()),
    }
}

/// Whether a commercial security option's tags, after its domain of interpretation, are sound (FIPS 188).
fn cipso_tags_ok(mut tags: &[u8]) -> bool {
    while !tags.is_empty() {
        let (kind, len) = (tags[0], usize::from(u8_at(tags, 1)));
        // Types 1, 2, 5 and 6 have an alignment byte of 0; type 7 has none. Any other type is malformed, and so is a
        // length below 4.
        if len < 4 || len > tags.len() || !matches!(kind, 1 | 2 | 5 | 6 | 7) {
            return false;
        }
        if kind != 7 && u8_at(tags, 2) != 0 {
            return false;
        }
        tags = &tags[len..];
    }
    true
}
