//! MPLS (RFC 3032) and the network service header (RFC 8300).

use super::link::ether_type as et;
use crate::bytes::{u8_at, u16_at, u32_at};
use crate::decoder::{Decoder, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{Packet, PacketSink};

/// A label stack entry's length.
const ENTRY: usize = 4;
/// A network service header without its context headers.
const NSH: usize = 8;

impl Decoder {
    /// A label stack. A special label at the bottom names the payload, otherwise the payload's first nibble decides.
    pub(crate) fn mpls<S: PacketSink>(&mut self, p: &mut Packet<'_>, mut at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.mpls += 1;
        if !self.layer(p) {
            return false;
        }
        let label = loop {
            let b = p.range(at, end);
            if b.len() < ENTRY {
                return bad(p, E::MplsHeaderTooSmall);
            }
            let entry = u32_at(b, 0);
            at += ENTRY;
            if entry & 0x100 != 0 {
                break entry >> 12;
            }
        };
        let reserved = match label {
            0 => return self.ipv4(p, at, end, sink),
            2 => return self.ipv6(p, at, end, sink),
            1 => E::MplsBadLabelRouterAlert,
            3 => E::MplsBadLabelImplicitNull,
            4..=14 => E::MplsBadLabelReserved,
            _ => {
                let b = p.range(at, end);
                if b.len() < ENTRY {
                    return bad(p, E::MplsPktTooSmall);
                }
                return match u8_at(b, 0) >> 4 {
                    4 => self.ipv4(p, at, end, sink),
                    6 => self.ipv6(p, at, end, sink),
                    // A pseudowire's control word (RFC 4448 section 4.6).
                    0 => self.ethernet(p, at + ENTRY, end, sink),
                    _ => bad(p, E::MplsUnknownPayloadType),
                };
            }
        };
        note(p, reserved);
        false
    }

    /// Network service header.
    pub(crate) fn nsh<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.nsh += 1;
        let b = p.range(at, end);
        if b.len() < NSH {
            return bad(p, E::NshHeaderTooSmall);
        }
        if !self.layer(p) {
            return false;
        }
        if u8_at(b, 0) >> 6 != 0 {
            note(p, E::NshUnsupportedVersion);
            return true;
        }
        let words = usize::from(u16_at(b, 0) & 0x3f);
        let md_type = u8_at(b, 2);
        if words * 4 >= b.len() || (md_type == 1 && words != 6) {
            return bad(p, E::NshBadHeaderLength);
        }
        match md_type {
            1 | 2 => {}
            0 | 15 => {
                note(p, E::NshReservedType);
                return true;
            }
            _ => {
                note(p, E::NshUnsupportedType);
                return true;
            }
        }
        let at = at + words * 4;
        match u8_at(b, 3) {
            1 => self.ipv4(p, at, end, sink),
            2 => self.ipv6(p, at, end, sink),
            3 => self.ethernet(p, at, end, sink),
            5 => self.ether_type(p, et::MPLS, at, end, sink),
            _ => {
                note(p, E::NshUnknownPayload);
                true
            }
        }
    }
}
