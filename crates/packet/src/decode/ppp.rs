//! PPP (RFC 1661, framing of RFC 1662) and PPP over Ethernet (RFC 2516).

use crate::bytes::{u8_at, u16_at};
use crate::decoder::{Decoder, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{Packet, PacketSink};

/// Protocol numbers (RFC 1661 section 2 and the IANA registry).
mod proto {
    pub(super) const IPV4: u16 = 0x21;
    pub(super) const VJ_UNCOMPRESSED: u16 = 0x2f;
    pub(super) const IPV6: u16 = 0x57;
}

/// A PPPoE header, without and with the session's protocol field.
const PPPOE: usize = 6;
const PPPOE_SESSION: usize = 8;

impl Decoder {
    /// PPP, with or without address and control bytes, with a protocol field of one or two bytes.
    pub(crate) fn ppp<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.ppp += 1;
        let b = p.range(at, end);
        let framing = if b.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
        let first = u8_at(b, framing);
        let (protocol, header) =
            if first & 1 == 1 { (u16::from(first), framing + 1) } else { (u16_at(b, framing), framing + 2) };
        if b.len() < header || b.is_empty() {
            return bad(p, E::PppPktTooSmall);
        }
        if !self.layer(p) {
            return false;
        }
        let known = match protocol {
            0x23 | 0x25 | 0x27 | 0x29 | 0x2b | 0x2d | 0x31 | 0x33 | 0x35 | 0xfd => true,
            0x201 | 0x231 | 0x233 | 0x281 | 0x283 => true,
            0x8021 | 0x8023 | 0x8025 | 0x8027 | 0x8029 | 0x802b | 0x8033 | 0x8035 | 0x8057 | 0x80fd | 0x8281 => true,
            0xc021 | 0xc023 | 0xc025 | 0xc029 | 0xc223 => true,
            // A one-byte protocol field: every number except 0xff is known.
            _ => first & 1 == 1 && protocol != 0xff,
        };
        self.ppp_protocol(p, protocol, known, at + header, end, sink)
    }

    /// Decodes the payload of a PPP protocol. One that is `known` but not decoded is no anomaly.
    fn ppp_protocol<S: PacketSink>(
        &mut self,
        p: &mut Packet<'_>,
        protocol: u16,
        known: bool,
        at: usize,
        end: usize,
        sink: &mut S,
    ) -> bool {
        let b = p.range(at, end);
        match protocol {
            proto::VJ_UNCOMPRESSED if b.len() < 20 => bad(p, E::PppVjuPktTooSmall),
            proto::VJ_UNCOMPRESSED if u8_at(b, 0) >> 4 == 4 => self.ipv4(p, at, end, sink),
            proto::VJ_UNCOMPRESSED => true,
            proto::IPV4 if b.len() < 20 => bad(p, E::PppIp4PktTooSmall),
            proto::IPV4 => self.ipv4(p, at, end, sink),
            proto::IPV6 if b.len() < 40 => bad(p, E::PppIp6PktTooSmall),
            proto::IPV6 => self.ipv6(p, at, end, sink),
            _ if known => {
                note(p, E::PppUnsupProto);
                true
            }
            _ => {
                bad(p, E::PppWrongType);
                true
            }
        }
    }

    /// A PPPoE session's frame (RFC 2516 section 6).
    pub(crate) fn pppoe_session<S: PacketSink>(
        &mut self,
        p: &mut Packet<'_>,
        at: usize,
        end: usize,
        sink: &mut S,
    ) -> bool {
        self.counters.pppoe += 1;
        let b = p.range(at, end);
        if b.len() < PPPOE_SESSION {
            return bad(p, E::PppoePktTooSmall);
        }
        if u16_at(b, 4) == 0 {
            return true;
        }
        let first = u8_at(b, PPPOE);
        let short = matches!(first, 0x21 | 0x57 | 0x2f | 0x23 | 0x25 | 0x27 | 0x29 | 0x2b | 0x2d | 0x31 | 0x33 | 0x35);
        let (protocol, header) = if short { (u16::from(first), PPPOE + 1) } else { (u16_at(b, PPPOE), PPPOE_SESSION) };
        let known = matches!(
            protocol,
            0x23 | 0x25 | 0x27 | 0x29 | 0x2b | 0x2d | 0x31 | 0x33 | 0x35 | 0xfd | 0x201 | 0x231 | 0x233 | 0x281 | 0x283
        ) || matches!(
            protocol,
            0x8021 | 0x8023 | 0x8025 | 0x8027 | 0x8029 | 0x802b | 0x8033 | 0x8035 | 0x8057 | 0x80fd | 0x8281
        ) || matches!(protocol, 0xc021 | 0xc023 | 0xc025 | 0xc223);
        // Known protocols other than IP are part of a session: they are not decoded, and no anomaly.
        if known {
            return true;
        }
        self.ppp_protocol(p, protocol, known, at + header, end, sink)
    }

    /// A PPPoE discovery packet (RFC 2516 section 5). It carries no packet; only its code and the length of its tags
    /// are checked.
    pub(crate) fn pppoe_discovery(&mut self, p: &mut Packet<'_>, at: usize, end: usize) -> bool {
        self.counters.pppoe += 1;
        let b = p.range(at, end);
        if b.len() < PPPOE {
            return bad(p, E::PppoePktTooSmall);
        }
        // PADO, PADI, PADR, PADS, PADT
        if !matches!(u8_at(b, 1), 0x07 | 0x09 | 0x19 | 0x65 | 0xa7) {
            return bad(p, E::PppoeWrongCode);
        }
        if usize::from(u16_at(b, 4)) > b.len() - PPPOE {
            return bad(p, E::PppoeMalformedTags);
        }
        true
    }
}
