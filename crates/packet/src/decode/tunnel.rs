//! Tunnels: GRE, ERSPAN, IP in IP, and in UDP VXLAN, Geneve, Teredo.

use super::link::ether_type as et;
use crate::bytes::{u8_at, u16_at};
use crate::decoder::{Decoder, Inner, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{L4, Packet, PacketSink, PacketSource};

/// Flags of a GRE header's first 16 bits (RFC 1701, 2637, 2784, 2890).
mod gre {
    pub(super) const CHECKSUM: u16 = 0x8000;
    pub(super) const ROUTING: u16 = 0x4000;
    pub(super) const KEY: u16 = 0x2000;
    pub(super) const SEQUENCE: u16 = 0x1000;
    pub(super) const STRICT_SOURCE_ROUTE: u16 = 0x0800;
    pub(super) const RECURSION: u16 = 0x0700;
    pub(super) const ACKNOWLEDGMENT: u16 = 0x0080;
    pub(super) const RESERVED: u16 = 0x0078;
    pub(super) const VERSION: u16 = 0x0007;
}

/// Header lengths in bytes.
mod len {
    pub(super) const GRE: usize = 4;
    pub(super) const ERSPAN2: usize = 8;
    pub(super) const VXLAN: usize = 8;
    pub(super) const GENEVE: usize = 8;
    pub(super) const ETHERNET: usize = 14;
    pub(super) const IPV4: usize = 20;
    pub(super) const IPV6: usize = 40;
}

impl Decoder {
    /// GRE, versions 0 and 1 (PPTP).
    pub(super) fn gre<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        self.counters.gre += 1;
        let b = p.range(at, end);
        if b.len() < len::GRE {
            bad(p, E::GrePktTooSmall);
            return;
        }
        if !self.layer(p) {
            return;
        }
        p.l4 = L4::Gre { offset: at as u32 };
        let (flags, protocol) = (u16_at(b, 0), u16_at(b, 2));
        let header = match flags & gre::VERSION {
            0 => gre_v0_header(p, b, flags),
            1 => gre_v1_header(p, b, flags, protocol),
            _ => {
                bad(p, E::GreWrongVersion);
                None
            }
        };
        let Some(header) = header else { return };
        p.payload = ((at + header) as u32, (b.len() - header) as u32);
        let range = (at + header, end);
        if flags & gre::VERSION == 1 {
            // No payload: only an acknowledgment (RFC 2637 section 4.1).
            if u16_at(b, 4) != 0 {
                self.tunnel(p, range, Inner::Ppp, PacketSource::Gre, sink);
            }
            return;
        }
        let inner = match protocol {
            et::IPV4 => Inner::Ipv4,
            et::IPV6 => Inner::Ipv6,
            et::PPP => Inner::Ppp,
            et::BRIDGE => Inner::Ethernet,
            et::VLAN => Inner::Vlan,
            et::ARP => Inner::Arp,
            // Type I has no sequence number and no header of its own.
            et::ERSPAN if flags & gre::SEQUENCE != 0 => Inner::Erspan2,
            et::ERSPAN if self.config.erspan_type1 => Inner::Erspan1,
            _ => return,
        };
        self.tunnel(p, range, inner, PacketSource::Gre, sink);
    }

    /// ERSPAN type II: session and VLAN, then the mirrored frame.
    pub(crate) fn erspan2<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) -> bool {
        self.counters.erspan += 1;
        let b = p.range(0, end);
        if b.len() < len::ERSPAN2 {
            return bad(p, E::ErspanHeaderTooSmall);
        }
        if !self.layer(p) {
            return false;
        }
        let word = u16_at(b, 0);
        if word >> 12 != 1 {
            return bad(p, E::ErspanUnsupportedVersion);
        }
        let vlan = word & 0x0fff;
        if vlan != 0 && !p.vlans.push(vlan) {
            return bad(p, E::ErspanTooManyVlanLayers);
        }
        self.ethernet(p, len::ERSPAN2, end, sink)
    }

    /// IPv4 in IPv4 (RFC 2003).
    pub(super) fn ip_in_ipv4<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        if self.tunnel(p, (at, end), Inner::Ipv4, PacketSource::Ipv4Tunnel, sink) {
            self.counters.ipv4_in_ipv4 += 1;
        }
    }

    /// IPv6 in IPv4 (RFC 4213).
    pub(super) fn ipv6_in_ipv4<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        if self.tunnel(p, (at, end), Inner::Ipv6, PacketSource::Ipv4Tunnel, sink) {
            self.counters.ipv6_in_ipv4 += 1;
        }
    }

    /// IPv4 in IPv6 (RFC 2473).
    pub(super) fn ipv4_in_ipv6<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        let b = p.range(at, end);
        if b.len() < len::IPV4 {
            bad(p, E::Ipv6Ipv4InIpv6TooSmall);
        } else if b[0] >> 4 != 4 {
            note(p, E::Ipv6Ipv4InIpv6WrongVersion);
        } else if self.tunnel(p, (at, end), Inner::Ipv4, PacketSource::Ipv6Tunnel, sink) {
            self.counters.ipv4_in_ipv6 += 1;
        }
    }

    /// IPv6 in IPv6 (RFC 2473).
    pub(super) fn ipv6_in_ipv6<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        let b = p.range(at, end);
        if b.len() < len::IPV6 {
            bad(p, E::Ipv6Ipv6InIpv6TooSmall);
        } else if b[0] >> 4 != 6 {
            note(p, E::Ipv6Ipv6InIpv6WrongVersion);
        } else if self.tunnel(p, (at, end), Inner::Ipv6, PacketSource::Ipv6Tunnel, sink) {
            self.counters.ipv6_in_ipv6 += 1;
        }
    }

    /// Looks for a tunnel in a UDP payload, by ports and by plausible headers.
    pub(super) fn udp_tunnel<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        let (sport, dport) = (p.sport, p.dport);
        if self.config.teredo.matches(sport, dport) && self.teredo(p, at, end, sink) {
            return;
        }
        if self.config.geneve.matches(sport, dport) && self.geneve(p, at, end, sink) {
            return;
        }
        if self.config.vxlan.matches(sport, dport) {
            self.vxlan(p, at, end, sink);
        }
    }

    /// Teredo (RFC 4380 section 5.1.1): IPv6 after an optional origin indication. `false` if it is not Teredo.
    fn teredo<S: PacketSink>(&mut self, p: &mut Packet<'_>, mut at: usize, end: usize, sink: &mut S) -> bool {
        let b = p.range(at, end);
        if b.len() < len::IPV6 {
            return false;
        }
        let mut b = b;
        if b[0] == 0 {
            if b[1] != 0 || b.len() < 8 + len::IPV6 {
                return false;
            }
            b = &b[8..];
            at += 8;
        }
        // No host sends a hop limit of 0.
        if b[0] >> 4 != 6 || len::IPV6 + usize::from(u16_at(b, 4)) != b.len() || b[7] == 0 {
            return false;
        }
        let taken = self.tunnel(p, (at, end), Inner::Ipv6, PacketSource::Teredo, sink);
        if taken {
            self.counters.teredo += 1;
        }
        taken
    }

    /// VXLAN (RFC 7348 section 5): the payload of the inner Ethernet frame is a packet without that frame's header.
    fn vxlan<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        let b = p.range(at, end);
        if b.len() < len::VXLAN + len::ETHERNET || u8_at(b, 0) & 0x08 == 0 || u8_at(b, 7) != 0 {
            return false;
        }
        if !self.layer(p) {
            return true;
        }
        self.counters.vxlan += 1;
        let inner = match u16_at(b, len::VXLAN + 12) {
            et::IPV4 => Inner::Ipv4,
            et::IPV6 => Inner::Ipv6,
            et::VLAN | et::QINQ | et::QINQ_AD => Inner::Vlan,
            et::ARP => Inner::Arp,
            _ => {
                bad(p, E::VxlanUnknownPayloadType);
                return true;
            }
        };
        self.tunnel(p, (at + len::VXLAN + len::ETHERNET, end), inner, PacketSource::Vxlan, sink);
        true
    }

    /// Geneve (RFC 8926 section 3.4). Of its options only the lengths are checked.
    fn geneve<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        let b = p.range(at, end);
        if b.len() < len::GENEVE || b[0] >> 6 != 0 || b[1] & 0x3f != 0 || b[7] != 0 {
            return false;
        }
        let header = len::GENEVE + usize::from(b[0] & 0x3f) * 4;
        let Some(mut options) = b.get(len::GENEVE..header) else { return false };
        while !options.is_empty() {
            match options.get(4 + usize::from(options[3] & 0x1f) * 4..) {
                Some(rest) => options = rest,
                None => return false,
            }
        }
        if !self.layer(p) {
            return true;
        }
        self.counters.geneve += 1;
        let inner = match u16_at(b, 2) {
            et::BRIDGE => Inner::Ethernet,
            et::IPV4 => Inner::Ipv4,
            et::IPV6 => Inner::Ipv6,
            et::ARP => Inner::Arp,
            _ => {
                bad(p, E::GeneveUnknownPayloadType);
                return true;
            }
        };
        self.tunnel(p, (at + header, end), inner, PacketSource::Geneve, sink);
        true
    }
}

/// Length of a version 0 header (RFC 1701, 2784, 2890) in bytes. If it is broken, the packet is invalid and the result
/// `None`.
fn gre_v0_header(p: &mut Packet<'_>, b: &[u8], flags: u16) -> Option<usize> {
    if flags & gre::RECURSION != 0 {
        bad(p, E::GreVersion0Recur);
        return None;
    }
    if flags & gre::RESERVED != 0 {
        bad(p, E::GreVersion0Flags);
        return None;
    }
    let mut header = len::GRE;
    for field in [gre::CHECKSUM | gre::ROUTING, gre::KEY, gre::SEQUENCE] {
        if flags & field != 0 {
            header += 4;
        }
    }
    if header > b.len() {
        bad(p, E::GreVersion0HdrTooBig);
        return None;
    }
    if flags & gre::ROUTING != 0 {
        header = match source_route_end(b, header) {
            Some(end) => end,
            None => {
                bad(p, E::GreVersion0MalformedSreHdr);
                return None;
            }
        };
    }
    Some(header)
}

/// Where the source route entries that start at `at` end (RFC 1701). Each is an address family, an offset, a length,
/// then that many bytes; zeros end the list. `None` if it does not end inside `b`.
fn source_route_end(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let entry = b.get(at..at + 4)?;
        at += 4 + usize::from(entry[3]);
        if u16_at(entry, 0) == 0 && entry[3] == 0 {
            return Some(at);
        }
        if at > b.len() {
            return None;
        }
    }
}

/// Length of a version 1 header (RFC 2637 section 4.1) in bytes. If it is broken, the packet is invalid and the result
/// `None`.
fn gre_v1_header(p: &mut Packet<'_>, b: &[u8], flags: u16, protocol: u16) -> Option<usize> {
    let wrong = [
        (flags & gre::CHECKSUM != 0, E::GreVersion1Chksum),
        (flags & gre::ROUTING != 0, E::GreVersion1Route),
        (flags & gre::STRICT_SOURCE_ROUTE != 0, E::GreVersion1Ssr),
        (flags & gre::RECURSION != 0, E::GreVersion1Recur),
        (flags & gre::RESERVED != 0, E::GreVersion1Flags),
        (protocol != et::PPP, E::GreVersion1WrongProtocol),
        (flags & gre::KEY == 0, E::GreVersion1NoKey),
    ];
    if let Some((_, e)) = wrong.into_iter().find(|(w, _)| *w) {
        bad(p, e);
        return None;
    }
    let mut header = len::GRE + 4;
    for field in [gre::SEQUENCE, gre::ACKNOWLEDGMENT] {
        if flags & field != 0 {
            header += 4;
        }
    }
    if header > b.len() {
        bad(p, E::GreVersion1HdrTooBig);
        return None;
    }
    Some(header)
}
