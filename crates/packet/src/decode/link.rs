//! Link layers: Ethernet and its tags, cooked captures, loopback, raw IP, Cisco HDLC, ARP.

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
use crate::decoder::{Decoder, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{Ethernet, L3, Packet, PacketSink};

/// EtherTypes (IEEE 802 numbers).
pub(super) mod ether_type {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    pub(crate) const BRIDGE: u16 = 0x6558;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_MULTICAST: u16 = 0x8848;
    pub(crate) const PPPOE_DISCOVERY: u16 = 0x8863;
    pub(crate) const PPPOE_SESSION: u16 = 0x8864;
    pub(crate) const PPP: u16 = 0x880b;
    pub(crate) const QINQ_AD: u16 = 0x88a8;
    pub(crate) const ERSPAN: u16 = 0x88be;
    pub(crate) const AH: u16 = 0x88e7;
    pub(crate) const DCE: u16 = 0x8903;
    pub(crate) const VNTAG: u16 = 0x8926;
    pub(crate) const ETAG: u16 = 0x893f;
    pub(crate) const NSH: u16 = 0x894f;
    pub(crate) const QINQ: u16 = 0x9100;
}
use ether_type as et;

/// Header lengths in bytes.
mod len {
    pub(super) const ETHERNET: usize = 14;
    pub(super) const VLAN: usize = 4;
    /// After the EtherType: I-TAG, customer destination and source address, EtherType (IEEE 802.1ah).
    pub(super) const AH: usize = 18;
    pub(super) const VNTAG: usize = 6;
    /// After the EtherType: E-TAG control information and EtherType (IEEE 802.1BR).
    pub(super) const ETAG: usize = 8;
    /// Two bytes of a FabricPath header after the EtherType, then an Ethernet header.
    pub(super) const DCE: usize = 2 + ETHERNET;
    pub(super) const SLL: usize = 16;
    pub(super) const SLL2: usize = 20;
    pub(super) const CHDLC: usize = 4;
    pub(super) const NULL: usize = 4;
    pub(super) const ARP_FIXED: usize = 8;
    /// With Ethernet and IPv4 addresses.
    pub(super) const ARP: usize = 28;
}

impl Decoder {
    /// Ethernet II.
    pub(crate) fn ethernet<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.ethernet += 1;
        let b = p.range(at, end);
        if b.len() < len::ETHERNET {
            return bad(p, E::EthernetPktTooSmall);
        }
        if !self.layer(p) {
            return false;
        }
        let ether_type = u16_at(b, 12);
        p.ethernet = Some(Ethernet { dst: array_at(b, 0), src: array_at(b, 6), ether_type });
        self.ether_type(p, ether_type, at + len::ETHERNET, end, sink);
        true
    }

    /// Decodes the payload of an EtherType. `false` if it is unknown or not decoded.
    pub(crate) fn ether_type<S: PacketSink>(
        &mut self,
        p: &mut Packet<'_>,
        ether_type: u16,
        at: usize,
        end: usize,
        sink: &mut S,
    ) -> bool {
        match ether_type {
            et::IPV4 => self.ipv4(p, at, end, sink),
            et::IPV6 => self.ipv6(p, at, end, sink),
            et::VLAN | et::QINQ | et::QINQ_AD => self.vlan(p, at, end, sink),
            et::ARP => self.arp(p, at, end),
            et::PPPOE_SESSION => self.pppoe_session(p, at, end, sink),
            et::PPPOE_DISCOVERY => self.pppoe_discovery(p, at, end),
            et::MPLS | et::MPLS_MULTICAST => self.mpls(p, at, end, sink),
            et::DCE => self.dce(p, at, end, sink),
            et::AH => self.ieee8021ah(p, at, end, sink),
            et::NSH => self.nsh(p, at, end, sink),
            et::ETAG => self.etag(p, at, end, sink),
            et::VNTAG if self.config.vntag => self.vntag(p, at, end, sink),
            _ => {
                self.counters.unknown_ethertype += 1;
                note(p, E::EthernetUnknownEthertype);
                return false;
            }
        };
        true
    }

    /// IEEE 802.1Q and 802.1ad: up to three tags.
    pub(crate) fn vlan<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        match p.vlans.as_slice().len() {
            0 => self.counters.vlan += 1,
            1 => self.counters.vlan_qinq += 1,
            2 => self.counters.vlan_qinqinq += 1,
            _ => {}
        }
        let b = p.range(at, end);
        if b.len() < len::VLAN {
            return bad(p, E::VlanHeaderTooSmall);
        }
        if !self.layer(p) {
            return false;
        }
        if !p.vlans.push(u16_at(b, 0)) {
            note(p, E::VlanTooManyLayers);
            return false;
        }
        self.ether_type(p, u16_at(b, 2), at + len::VLAN, end, sink) || bad(p, E::VlanUnknownType)
    }

    /// Provider backbone bridges (IEEE 802.1ah).
    fn ieee8021ah<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.ieee8021ah += 1;
        let b = p.range(at, end);
        if b.len() < len::AH {
            return bad(p, E::Ieee8021ahHeaderTooSmall);
        }
        self.layer(p) && self.ether_type(p, u16_at(b, 16), at + len::AH, end, sink)
    }

    /// Cisco VN-Tag.
    fn vntag<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.vntag += 1;
        let b = p.range(at, end);
        if b.len() < len::VNTAG {
            return bad(p, E::VntagHeaderTooSmall);
        }
        self.layer(p) && (self.ether_type(p, u16_at(b, 4), at + len::VNTAG, end, sink) || bad(p, E::VntagUnknownType))
    }

    /// Bridge port extension's E-TAG (IEEE 802.1BR).
    fn etag<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        self.counters.etag += 1;
        let b = p.range(at, end);
        if b.len() < len::ETAG {
            return bad(p, E::EtagHeaderTooSmall);
        }
        self.layer(p) && (self.ether_type(p, u16_at(b, 6), at + len::ETAG, end, sink) || bad(p, E::EtagUnknownType))
    }

    /// Cisco FabricPath: two more header bytes, then the Ethernet frame.
    fn dce<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) -> bool {
        if end.saturating_sub(at) < len::DCE {
            return bad(p, E::DcePktTooSmall);
        }
        self.ethernet(p, at + 2, end, sink)
    }

    /// ARP (RFC 826). Only Ethernet and IPv4 addresses are decoded.
    pub(crate) fn arp(&mut self, p: &mut Packet<'_>, at: usize, end: usize) -> bool {
        self.counters.arp += 1;
        let b = p.range(at, end);
        if b.len() < len::ARP_FIXED {
            return bad(p, E::ArpPktTooSmall);
        }
        let unsupported = if u16_at(b, 0) != 1 {
            E::ArpUnsupportedHardware
        } else if u16_at(b, 2) != et::IPV4 {
            E::ArpUnsupportedProtocol
        } else if b.len() < len::ARP {
            return bad(p, E::ArpInvalidPkt);
        } else if u8_at(b, 4) != 6 {
            return bad(p, E::ArpInvalidHardwareSize);
        } else if u8_at(b, 5) != 4 {
            return bad(p, E::ArpInvalidProtocolSize);
        } else if !matches!(u16_at(b, 6), 1..=10) {
            E::ArpUnsupportedOpcode
        } else {
            p.l3 = L3::Arp { offset: at as u32 };
            return true;
        };
        note(p, unsupported);
        false
    }

    /// Linux cooked capture (LINKTYPE_LINUX_SLL).
    pub(crate) fn sll<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) -> bool {
        self.counters.sll += 1;
        let b = p.range(0, end);
        if b.len() < len::SLL {
            return bad(p, E::SllPktTooSmall);
        }
        self.layer(p) && self.ether_type(p, u16_at(b, 14), len::SLL, end, sink)
    }

    /// Linux cooked capture, version 2 (LINKTYPE_LINUX_SLL2).
    pub(crate) fn sll2<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) -> bool {
        self.counters.sll2 += 1;
        let b = p.range(0, end);
        if b.len() < len::SLL2 {
            return bad(p, E::Sll2PktTooSmall);
        }
        self.layer(p) && self.ether_type(p, u16_at(b, 0), len::SLL2, end, sink)
    }

    /// Cisco HDLC (LINKTYPE_C_HDLC).
    pub(crate) fn chdlc<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) -> bool {
        self.counters.chdlc += 1;
        let b = p.range(0, end);
        if b.len() < len::CHDLC {
            return bad(p, E::ChdlcPktTooSmall);
        }
        self.layer(p) && self.ether_type(p, u16_at(b, 2), len::CHDLC, end, sink)
    }

    /// BSD loopback: a protocol family in the byte order of the capturing host (LINKTYPE_NULL), taken to be little
    /// endian, or in network byte order (LINKTYPE_LOOP).
    pub(crate) fn null<S: PacketSink>(
        &mut self,
        p: &mut Packet<'_>,
        end: usize,
        network_order: bool,
        sink: &mut S,
    ) -> bool {
        self.counters.null += 1;
        let b = p.range(0, end);
        if b.len() < len::NULL {
            return bad(p, E::LtnullPktTooSmall);
        }
        let family = u32_at(b, 0);
        // AF_INET is 2 everywhere; AF_INET6 is 10 on Linux, 23 on Windows, 24, 26, 28 and 30 on BSDs and macOS.
        match if network_order { family } else { family.swap_bytes() } {
            2 => self.ipv4(p, len::NULL, end, sink),
            10 | 23 | 24 | 26 | 28 | 30 => self.ipv6(p, len::NULL, end, sink),
            _ => {
                note(p, E::LtnullUnsupportedType);
                false
            }
        }
    }

    /// Raw IP: the version field selects the family.
    pub(crate) fn raw<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) -> bool {
        self.counters.raw += 1;
        let b = p.range(0, end);
        if b.len() < 20 {
            return bad(p, E::Ipv4PktTooSmall);
        }
        match u8_at(b, 0) >> 4 {
            4 => self.ipv4(p, 0, end, sink),
            6 => self.ipv6(p, 0, end, sink),
            _ => {
                note(p, E::IprawInvalidIpVersion);
                false
            }
        }
    }
}
