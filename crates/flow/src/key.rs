//! Determines whether a packet has a flow, and which one.

use std::net::IpAddr;

use margay_packet::{L3, L4, Packet};

use crate::config::FlowConfig;
use crate::core::{Direction, FlowCore};
use crate::hash::HashKey;

/// The identity of a flow: both directions have the same key. The end with the smaller address (then port) comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    low: [u64; 2],
    high: [u64; 2],
    /// Ports of the low and the high end; for ICMP the type and its counterpart; for ESP the SPI.
    ports: u32,
    /// IP protocol, IP version, tunnel depth, interface.
    meta: u32,
    /// VLAN tags; the highest 16 bits tell the directions of one-way flows (ESP) apart.
    vlans: u64,
}

impl Key {
    pub(crate) const EMPTY: Key = Key { low: [0; 2], high: [0; 2], ports: 0, meta: 0, vlans: 0 };

    /// The whole key as words, for hashing.
    #[inline]
    pub(crate) const fn words(&self) -> [u64; 6] {
        let [low, high] = [self.low, self.high];
        [low[0], low[1], high[0], high[1], self.ports as u64 | (self.meta as u64) << 32, self.vlans]
    }
}

/// A packet's place in the flow table.
#[derive(Debug, Clone, Copy)]
pub struct FlowKey {
    pub(crate) key: Key,
    pub(crate) hash: u64,
    /// Whether the packet's source is the high end.
    pub(crate) swapped: bool,
    /// Whether this is an ICMP error: it belongs to the flow of the packet that it carries, if that exists, but never
    /// creates one.
    pub(crate) error: bool,
}

impl FlowKey {
    /// The hash, for steering packets to workers: equal in both directions.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
    /// Whether the packet's source is the second end of the key.
    pub const fn source_is_second(&self) -> bool {
        self.swapped
    }
    /// Whether this is an ICMP error about a packet of the flow (it counts, but does not establish the flow).
    pub const fn is_icmp_error(&self) -> bool {
        self.error
    }
    /// Direction within a flow whose client is the high end or not.
    pub(crate) const fn direction(&self, client_is_high: bool) -> Direction {
        if self.swapped == client_is_high { Direction::ToServer } else { Direction::ToClient }
    }
}

fn address(a: IpAddr) -> [u64; 2] {
    match a {
        IpAddr::V4(a) => [0, u64::from(u32::from(a))],
        IpAddr::V6(a) => {
            let v = u128::from(a);
            [(v >> 64) as u64, v as u64]
        }
    }
}

/// The answer type of an ICMP request type, and vice versa (RFC 792, 950, 1256).
pub const fn icmpv4_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        0 => 8,
        8 => 0,
        9 => 10,
        10 => 9,
        13 => 14,
        14 => 13,
        15 => 16,
        16 => 15,
        17 => 18,
        18 => 17,
        _ => return None,
    })
}

/// The answer type of an ICMPv6 request type, and vice versa (RFC 4443, 4861, 2710, 4620, 6275, 3971, 4286, 6775).
pub const fn icmpv6_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        128 => 129,
        129 => 128,
        130 => 131,
        131 => 130,
        133 => 134,
        134 => 133,
        135 => 136,
        136 => 135,
        139 => 140,
        140 => 139,
        144 => 145,
        145 => 144,
        146 => 147,
        147 => 146,
        148 => 149,
        149 => 148,
        151 => 152,
        152 => 151,
        157 => 158,
        158 => 157,
        _ => return None,
    })
}

/// Addresses, protocol and ports of the packet inside an ICMP destination unreachable message (RFC 792). Requires a
/// whole TCP or UDP header, or the first 8 bytes of SCTP's.
fn embedded(packet: &Packet<'_>) -> Option<(IpAddr, IpAddr, u8, u16, u16)> {
    let ip = packet.l4_bytes().get(8..)?;
    let b = |i: usize| ip.get(i).copied();
    if b(0)? >> 4 != 4 {
        return None;
    }
    let header = usize::from(b(0)? & 0x0f) * 4;
    let fragment = u16::from_be_bytes([b(6)?, b(7)?]) & 0x1fff;
    let proto = b(9)?;
    let least = match proto {
        6 => 20,
        17 => 8,
        132 => 8,
        _ => return None,
    };
    if header < 20 || fragment != 0 || ip.len() < header + least {
        return None;
    }
    let at = |i: usize| -> Option<IpAddr> { Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(i..i + 4)?).ok()?)) };
    let port = |i: usize| -> Option<u16> { Some(u16::from_be_bytes([b(header + i)?, b(header + i + 1)?])) };
    Some((at(12)?, at(16)?, proto, port(0)?, port(2)?))
}

/// The key of `packet` from interface `livedev` (0 if interfaces do not matter). `None` for packets without a flow: not
/// IP, broken, fragments, ICMPv4 errors other than destination unreachable, or about a packet that cannot be read, and
/// protocols other than TCP, UDP, SCTP, ESP, ICMP and IP-in-IP tunnels.
#[inline]
pub(crate) fn of(config: &FlowConfig, packet: &Packet<'_>, livedev: u16) -> Option<FlowKey> {
    // Fast path for most packets.
    if let (L3::Ipv4 { .. }, L4::Tcp { .. } | L4::Udp { .. }, IpAddr::V4(src), IpAddr::V4(dst), false) =
        (packet.l3, packet.l4, packet.src, packet.dst, packet.fragment)
    {
        let ends = [(src, packet.sport), (dst, packet.dport)].map(|(a, port)| (u64::from(u32::from(a)), port));
        return Some(of_ipv4(config, packet, ends, livedev));
    }
    of_any(config, packet, livedev)
}

/// Tunnel depth and interface as key bits, if the settings use them.
#[inline]
fn meta(config: &FlowConfig, packet: &Packet<'_>, livedev: u16) -> u32 {
    let recursion = if config.recursion_use_for_tracking { u32::from(packet.recursion & 0x7f) } else { 0 };
    let livedev = if config.livedev_use_for_tracking { u32::from(livedev) } else { 0 };
    recursion << 9 | livedev << 16
}

/// The key of a TCP or UDP packet over IPv4, equal to that of [`of_ends`].
#[inline]
fn of_ipv4(config: &FlowConfig, packet: &Packet<'_>, [s, d]: [(u64, u16); 2], livedev: u16) -> FlowKey {
    let end = |(address, port): (u64, u16)| address << 16 | u64::from(port);
    let swapped = end(s) > end(d);
    let (low, high) = if swapped { (d, s) } else { (s, d) };
    let [v0, v1, v2] = if config.vlan_use_for_tracking { packet.vlans.raw() } else { [0; 3] }.map(u64::from);
    let key = Key {
        low: [0, low.0],
        high: [0, high.0],
        ports: u32::from(low.1) << 16 | u32::from(high.1),
        meta: u32::from(packet.proto) | meta(config, packet, livedev),
        vlans: v0 | v1 << 16 | v2 << 32,
    };
    FlowKey { key, hash: config.hash_key.hash(key.words()), swapped, error: false }
}

fn of_any(config: &FlowConfig, packet: &Packet<'_>, livedev: u16) -> Option<FlowKey> {
    if packet.fragment {
        return None;
    }
    let v6 = match packet.l3 {
        L3::Ipv4 { .. } => false,
        L3::Ipv6 { .. } => true,
        _ => return None,
    };
    let (mut src, mut dst, mut proto) = (packet.src, packet.dst, packet.proto);
    let (mut sport, mut dport) = (0, 0);
    let mut error = false;
    let mut one_way = false;
    match packet.l4 {
        L4::Tcp { .. } | L4::Udp { .. } | L4::Sctp { .. } => (sport, dport) = (packet.sport, packet.dport),
        L4::Icmpv4 { .. } => match icmpv4_counterpart(packet.icmp.0) {
            Some(answer) => (sport, dport) = (u16::from(packet.icmp.0), u16::from(answer)),
            None if packet.icmp.0 == 3 => {
                // The error travels in the opposite direction of the packet that it is about.
                (dst, src, proto, dport, sport) = embedded(packet)?;
                error = true;
            }
            None if matches!(packet.icmp.0, 4 | 5 | 11 | 12) => return None,
            // Nothing answers this type. 0x100 is no ICMP type, so no packet in the other direction has this key.
            None => (sport, dport) = (u16::from(packet.icmp.0), 0x100),
        },
        L4::Icmpv6 { .. } => {
            sport = u16::from(packet.icmp.0);
            // Requests and answers have the code 0.
            let answer = icmpv6_counterpart(packet.icmp.0).filter(|_| packet.icmp.1 == 0);
            dport = answer.map_or(0x100 | u16::from(packet.icmp.1), u16::from);
        }
        L4::Esp { .. } => {
            let spi = spi(packet);
            (sport, dport) = ((spi >> 16) as u16, spi as u16);
            one_way = true;
        }
        // IPv6 in IPv4 has a flow whatever the tunnel has, as in Suricata.
        L4::None if proto == 41 && !v6 => {}
        L4::None if matches!(proto, 4 | 41) && packet.has_inner => {}
        _ => return None,
    }
    let ends = Ends { src: address(src), dst: address(dst), sport, dport, proto, v6, vlans: packet.vlans.raw() };
    let with = (&config.hash_key, config.vlan_use_for_tracking);
    Some(FlowKey { error, ..of_ends(with, &ends, meta(config, packet, livedev), one_way) })
}

/// The identity of plain TCP and UDP flows, from a packet's headers: outside tunnels, in a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Source address; IPv4 is in the low half of the second word, otherwise network order.
    pub src: [u64; 2],
    /// Destination address.
    pub dst: [u64; 2],
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol.
    pub proto: u8,
    /// Whether this is IPv6.
    pub v6: bool,
    /// VLAN identifiers, outermost first; 0 where unused.
    pub vlans: [u16; 3],
}

impl Ends {
    /// A hash that is equal for both directions. Different flows have equal hashes only by chance, and an attacker
    /// without the key cannot construct them. `vlans` includes the tags in a flow's identity.
    pub fn hash(&self, key: &HashKey, vlans: bool) -> u64 {
        of_ends((key, vlans), self, 0, false).hash
    }
}

/// The key of a packet with these ends. `with` has the hash key, and whether VLAN tags are part of the key; `meta` has
/// the bits of tunnel depth and interface.
#[inline]
pub(crate) fn of_ends(with: (&HashKey, bool), ends: &Ends, meta: u32, one_way: bool) -> FlowKey {
    let Ends { src: s, dst: d, sport, dport, proto, v6, vlans } = *ends;
    let swapped = (s, sport) > (d, dport);
    let (low, high, ports) = if swapped {
        (d, s, u32::from(dport) << 16 | u32::from(sport))
    } else {
        (s, d, u32::from(sport) << 16 | u32::from(dport))
    };
    // An ESP security association is one-way; its SPI does not identify the other direction.
    let ports = if one_way { u32::from(sport) << 16 | u32::from(dport) } else { ports };
    let one_way = if one_way { 1 + u64::from(swapped) } else { 0 };
    let [v0, v1, v2] = if with.1 { vlans } else { [0; 3] }.map(u64::from);
    let key = Key {
        low,
        high,
        ports,
        meta: u32::from(proto) | u32::from(v6) << 8 | meta,
        vlans: v0 | v1 << 16 | v2 << 32 | one_way << 48,
    };
    FlowKey { key, hash: with.0.hash(key.words()), swapped, error: false }
}

/// Hashes flows exactly as [`FlowKey::hash`] hashes their packets.
#[derive(Debug, Clone, Copy)]
pub struct FlowHasher {
    key: HashKey,
    vlans: bool,
    recursion: bool,
}

impl Default for FlowHasher {
    fn default() -> Self {
        FlowHasher::new(&FlowConfig::default())
    }
}

impl FlowHasher {
    pub(crate) const fn new(config: &FlowConfig) -> FlowHasher {
        FlowHasher {
            key: config.hash_key,
            vlans: config.vlan_use_for_tracking,
            recursion: config.recursion_use_for_tracking,
        }
    }

    /// The hash of a TCP or UDP flow, and whether its client is the second end of the key.
    pub fn of(&self, core: &FlowCore) -> (u64, bool) {
        let recursion = if self.recursion { u32::from(core.recursion & 0x7f) } else { 0 };
        let ends = Ends {
            src: address(core.src),
            dst: address(core.dst),
            sport: core.sport,
            dport: core.dport,
            proto: core.proto,
            v6: core.src.is_ipv6(),
            vlans: core.vlans.raw(),
        };
        let key = of_ends((&self.key, self.vlans), &ends, recursion << 9, false);
        (key.hash, key.swapped)
    }
}

/// The security parameters index of an ESP packet (RFC 4303 section 2.1); otherwise 0.
pub(crate) fn spi(packet: &Packet<'_>) -> u32 {
    match packet.l4 {
        L4::Esp { .. } => packet.l4_bytes().get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use margay_packet::{Frame, LinkType, Time};

    use super::*;

    /// Another protocol in IP without a decoded packet has none.
    #[test]
    fn ipv6_in_ipv4_has_a_flow_even_if_its_content_is_broken() {
        let frame = Frame { data: &[], wire_len: 0, time: Time(0), link: LinkType::RAW, number: 1 };
        let config = FlowConfig::default();
        let [src, dst] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse().unwrap());
        for (proto, has_inner, flow) in
            [(41, false, true), (41, true, true), (4, false, false), (4, true, true), (200, false, false)]
        {
            let mut p = Packet { src, dst, proto, has_inner, ..Packet::new(&frame) };
            p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
            assert_eq!(of(&config, &p, 5).is_some(), flow, "{proto} {has_inner}");
        }
    }

    /// The fast path gives the same key.
    #[test]
    fn keys_of_ipv4_are_those_of_its_ends() {
        let frame = Frame { data: &[], wire_len: 0, time: Time(0), link: LinkType::RAW, number: 1 };
        let config = FlowConfig::default();
        let addresses = ["0.0.0.0", "10.0.0.1", "10.0.0.2", "255.255.255.255"].map(|a| a.parse().unwrap());
        for (src, dst) in addresses.iter().flat_map(|s| addresses.iter().map(move |d| (*s, *d))) {
            for (sport, dport, proto, recursion, vlan) in [(1, 2, 6, 0, 0), (2, 1, 17, 3, 7), (65_535, 0, 6, 1, 4095)] {
                let mut p = Packet { src, dst, sport, dport, proto, recursion, ..Packet::new(&frame) };
                p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
                p.l4 = if proto == 6 { L4::Tcp { offset: 20, header_len: 20 } } else { L4::Udp { offset: 20 } };
                assert!(p.vlans.push(vlan));
                let (quick, slow) = (of(&config, &p, 5).unwrap(), of_any(&config, &p, 5).unwrap());
                assert_eq!((quick.key, quick.hash, quick.swapped), (slow.key, slow.hash, slow.swapped));
            }
        }
    }
}
