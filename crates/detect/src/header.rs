//! A rule's compiled header: protocol as bit masks, addresses and ports as numbers of shared sets.
//!
//! Most rules name one of a few address sets (`$HOME_NET`). So each distinct set exists once, and a packet's address is
//! looked up in it at most once ([`SetCache`]), however many rules use the set.

use std::collections::HashMap;
use std::net::IpAddr;

use margay_flow::Direction;
use margay_packet::{L3, L4, Packet};
use margay_rules::ast::{AddressSet, Arrow, Check, PortSet, Protocol, Rule, Side};

use crate::kind::{RuleKind, kind};

/// Transports, one bit each.
pub(crate) mod transport {
    pub(crate) const TCP: u8 = 1;
    pub(crate) const UDP: u8 = 1 << 1;
    pub(crate) const ICMPV4: u8 = 1 << 2;
    pub(crate) const ICMPV6: u8 = 1 << 3;
    pub(crate) const SCTP: u8 = 1 << 4;
    /// Other transports over IP, and fragments.
    pub(crate) const OTHER: u8 = 1 << 5;
    /// No IP.
    pub(crate) const NONE: u8 = 1 << 6;
    pub(crate) const ALL: u8 = 0x7f;
}

/// Network protocols, one bit each.
pub(crate) mod family {
    pub(crate) const V4: u8 = 1;
    pub(crate) const V6: u8 = 1 << 1;
    pub(crate) const ARP: u8 = 1 << 2;
    pub(crate) const NONE: u8 = 1 << 3;
    pub(crate) const ALL: u8 = 0x0f;
}

/// The transport bit of a packet.
pub(crate) fn transport_of(p: &Packet<'_>) -> u8 {
    match p.l4 {
        L4::Tcp { .. } => transport::TCP,
        L4::Udp { .. } => transport::UDP,
        L4::Icmpv4 { .. } => transport::ICMPV4,
        L4::Icmpv6 { .. } => transport::ICMPV6,
        L4::Sctp { .. } => transport::SCTP,
        // A broken header, or a fragment, still has the protocol.
        L4::None if p.is_ip() => match p.proto {
            1 => transport::ICMPV4,
            6 => transport::TCP,
            17 => transport::UDP,
            58 => transport::ICMPV6,
            132 => transport::SCTP,
            _ => transport::OTHER,
        },
        _ if p.is_ip() => transport::OTHER,
        _ => transport::NONE,
    }
}

/// The payload that rules inspect: empty if the transport was not decoded, as in fragments.
pub fn payload_of<'a>(p: &Packet<'a>) -> &'a [u8] {
    match p.l4 {
        L4::None => &[],
        // The content of a tunnel is inspected as a packet of its own, not as payload (observed of Suricata 7, and of 8 for
        // UDP).
        L4::Udp { .. } if p.has_inner => &[],
        L4::Gre { .. } => &[],
        _ => p.payload(),
    }
}

/// The family bit of a packet.
pub(crate) const fn family_of(p: &Packet<'_>) -> u8 {
    match p.l3 {
        L3::Ipv4 { .. } => family::V4,
        L3::Ipv6 { .. } => family::V6,
        L3::Arp { .. } => family::ARP,
        L3::None => family::NONE,
    }
}

/// Number of an address or port set; [`ANY`] accepts everything.
pub(crate) type SetId = u32;
/// The set of everything.
pub(crate) const ANY: SetId = 0;

/// Sorted address ranges, for binary search.
#[derive(Debug)]
struct Ranges {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
    any: bool,
}

fn within<T: Copy + Ord>(ranges: &[(T, T)], v: T) -> bool {
    let after = ranges.partition_point(|r| r.0 <= v);
    after.checked_sub(1).and_then(|i| ranges.get(i)).is_some_and(|r| v <= r.1)
}

/// Whether `a` is in `set`.
pub(crate) fn contains(set: &AddressSet, a: IpAddr) -> bool {
    set.any
        || match a {
            IpAddr::V4(a) => within(&set.v4, u32::from(a)),
            IpAddr::V6(a) => within(&set.v6, u128::from(a)),
        }
}

type AddressKey = (Vec<(u32, u32)>, Vec<(u128, u128)>);

/// The distinct address and port sets of all rules.
#[derive(Debug)]
pub(crate) struct Sets {
    addresses: Vec<Ranges>,
    ports: Vec<Box<[(u16, u16)]>>,
}

/// Gives each distinct set a number.
pub(crate) struct SetsBuilder {
    sets: Sets,
    address_ids: HashMap<AddressKey, SetId>,
    port_ids: HashMap<Vec<(u16, u16)>, SetId>,
}

impl SetsBuilder {
    pub(crate) fn new() -> Self {
        let any = Ranges { v4: Box::default(), v6: Box::default(), any: true };
        SetsBuilder {
            sets: Sets { addresses: vec![any], ports: vec![Box::default()] },
            address_ids: HashMap::new(),
            port_ids: HashMap::new(),
        }
    }

    /// The number of `set`; `None` if there are too many distinct sets for 32 bits.
    pub(crate) fn addresses(&mut self, set: &AddressSet) -> Option<SetId> {
        if set.any {
            return Some(ANY);
        }
        let key = (set.v4.clone(), set.v6.clone());
        if let Some(&id) = self.address_ids.get(&key) {
            return Some(id);
        }
        let id = SetId::try_from(self.sets.addresses.len()).ok()?;
        self.sets.addresses.push(Ranges {
            v4: set.v4.clone().into_boxed_slice(),
            v6: set.v6.clone().into_boxed_slice(),
            any: false,
        });
        self.address_ids.insert(key, id);
        Some(id)
    }

    /// The number of `set`; `None` if there are too many distinct sets for 32 bits.
    pub(crate) fn ports(&mut self, set: &PortSet) -> Option<SetId> {
        if set.any {
            return Some(ANY);
        }
        if let Some(&id) = self.port_ids.get(&set.ranges) {
            return Some(id);
        }
        let id = SetId::try_from(self.sets.ports.len()).ok()?;
        self.sets.ports.push(set.ranges.clone().into_boxed_slice());
        self.port_ids.insert(set.ranges.clone(), id);
        Some(id)
    }

    pub(crate) fn finish(self) -> Sets {
        self.sets
    }
}

impl Sets {
    fn contains(&self, id: SetId, a: IpAddr) -> bool {
        let Some(r) = self.addresses.get(id as usize) else { return false };
        r.any
            || match a {
                IpAddr::V4(a) => within(&r.v4, u32::from(a)),
                IpAddr::V6(a) => within(&r.v6, u128::from(a)),
            }
    }

    fn port(&self, id: SetId, port: u16) -> bool {
        id == ANY || self.ports.get(id as usize).is_some_and(|r| within(r, port))
    }
}

/// Caches which sets the current packet's addresses are in.
#[derive(Debug, Default)]
pub(crate) struct SetCache {
    /// For each set, twice the packet's epoch, plus one if the source address is in it.
    src: Vec<u64>,
    dst: Vec<u64>,
    epoch: u64,
}

impl SetCache {
    /// Starts a new packet and makes room for all of `sets`.
    pub(crate) fn start(&mut self, sets: &Sets) {
        if self.src.len() != sets.addresses.len() {
            self.src = vec![0; sets.addresses.len()];
            self.dst = vec![0; sets.addresses.len()];
        }
        self.epoch += 1;
    }
}

fn cached(cache: &mut [u64], epoch: u64, sets: &Sets, id: SetId, a: IpAddr) -> bool {
    if id == ANY {
        return true;
    }
    let Some(slot) = cache.get_mut(id as usize) else { return false };
    if *slot >> 1 != epoch {
        *slot = epoch << 1 | u64::from(sets.contains(id, a));
    }
    *slot & 1 == 1
}

/// The facts of a packet that header checks use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketKey {
    pub(crate) transport: u8,
    pub(crate) family: u8,
    /// The direction's bit; both bits if the packet has no flow.
    pub(crate) side: u8,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    /// Whether this is a fragment: it may have a rule's transport, but has no ports.
    pub(crate) fragment: bool,
}

/// Bits of [`PacketKey::side`] and [`Header::sides`].
pub(crate) const TO_SERVER: u8 = 1;
/// See [`TO_SERVER`].
pub(crate) const TO_CLIENT: u8 = 2;

impl PacketKey {
    pub(crate) fn new(p: &Packet<'_>, dir: Option<Direction>) -> Self {
        PacketKey {
            transport: transport_of(p),
            family: family_of(p),
            side: match dir {
                Some(Direction::ToServer) => TO_SERVER,
                Some(Direction::ToClient) => TO_CLIENT,
                None => TO_SERVER | TO_CLIENT,
            },
            src: p.src,
            dst: p.dst,
            sport: p.sport,
            dport: p.dport,
            fragment: p.fragment,
        }
    }

    /// The key of an unfragmented packet of the IP protocol `proto`.
    pub(crate) fn of_ends(proto: u8, from: (IpAddr, u16), to: (IpAddr, u16), dir: Option<Direction>) -> Self {
        let known = NUMBERS.iter().find(|n| n.1 == u64::from(proto));
        PacketKey {
            transport: known.map_or(transport::OTHER, |n| n.0),
            family: if from.0.is_ipv4() { family::V4 } else { family::V6 },
            side: match dir {
                Some(Direction::ToServer) => TO_SERVER,
                Some(Direction::ToClient) => TO_CLIENT,
                None => TO_SERVER | TO_CLIENT,
            },
            src: from.0,
            dst: to.0,
            sport: from.1,
            dport: to.1,
            fragment: false,
        }
    }
}

/// A compiled header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) transports: u8,
    pub(crate) families: u8,
    /// Flow directions that the rule's `flow` keyword allows.
    pub(crate) sides: u8,
    /// `<>`
    pub(crate) both: bool,
    /// `=>`: as written to the server, reversed to the client.
    pub(crate) transaction: bool,
    pub(crate) src: SetId,
    pub(crate) dst: SetId,
    pub(crate) sport: SetId,
    pub(crate) dport: SetId,
}

/// IP protocol numbers of the transports that have exactly one.
const NUMBERS: [(u8, u64); 5] = [
    (transport::TCP, 6),
    (transport::UDP, 17),
    (transport::ICMPV4, 1),
    (transport::ICMPV6, 58),
    (transport::SCTP, 132),
];

/// The transports and families of a rule's protocol.
const fn protocol_masks(p: &Protocol) -> (u8, u8) {
    use {family as f, transport as t};
    let ip = f::V4 | f::V6;
    match p {
        Protocol::Ip => (t::ALL & !t::NONE, ip),
        Protocol::Ipv4 => (t::ALL & !t::NONE, f::V4),
        Protocol::Ipv6 => (t::ALL & !t::NONE, f::V6),
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => (t::TCP, ip),
        Protocol::Udp => (t::UDP, ip),
        Protocol::Icmp => (t::ICMPV4 | t::ICMPV6, ip),
        Protocol::Icmpv4 => (t::ICMPV4, ip),
        Protocol::Icmpv6 => (t::ICMPV6, ip),
        Protocol::Sctp => (t::SCTP, ip),
        Protocol::PacketHeader | Protocol::Ethernet => (t::ALL, f::ALL),
        Protocol::Arp => (t::ALL, f::ARP),
        // The protocol may use any transport: the flow knows it already.
        Protocol::App(_) => (t::TCP | t::UDP, ip),
    }
}

/// Transports that have ports.
const PORTED: u8 = transport::TCP | transport::UDP | transport::SCTP;

/// The first part of a header that a packet does not fit, in reporting order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Misfit {
    /// The protocol.
    Transport,
    /// The IP version, or the packet is not IP.
    Family,
    /// The direction in the flow.
    Direction,
    /// The rule names ports, and the packet has none.
    NoPorts,
    /// The rule's destination port.
    DestinationPort,
    /// The rule's source port.
    SourcePort,
    /// The rule's source address.
    SourceAddress,
    /// The rule's destination address.
    DestinationAddress,
}

impl Header {
    /// Compiles the header of `rule`; `None` if there are too many distinct sets.
    pub(crate) fn compile(rule: &Rule, sets: &mut SetsBuilder) -> Option<Header> {
        let (mut transports, mut families) = protocol_masks(&rule.protocol);
        // Events of the decoder concern packets without IP, too. Suricata lets a rule for IP that checks nothing else see them.
        if rule.protocol == Protocol::Ip && kind(rule) == RuleKind::DecodeEvent {
            (transports, families) = protocol_masks(&Protocol::PacketHeader);
        }
        let mut sides = TO_SERVER | TO_CLIENT;
        for c in &rule.checks {
            match c {
                Check::Flow(f) => match f.side {
                    Some(Side::ToServer) => sides &= TO_SERVER,
                    Some(Side::ToClient) => sides &= TO_CLIENT,
                    None => {}
                },
                Check::IpProto(p) => {
                    for (bit, number) in NUMBERS {
                        if !p.holds(number) {
                            transports &= !bit;
                        }
                    }
                }
                _ => {}
            }
        }
        Some(Header {
            transports,
            families,
            sides,
            // With equal ends both directions are the same.
            both: rule.arrow == Arrow::Both && (rule.src != rule.dst || rule.sport != rule.dport),
            transaction: rule.arrow == Arrow::Transaction,
            src: sets.addresses(&rule.src)?,
            dst: sets.addresses(&rule.dst)?,
            sport: sets.ports(&rule.sport)?,
            dport: sets.ports(&rule.dport)?,
        })
    }

    /// The number of ways in which the rule fits a packet: `<>` stands for two rules, and a packet may fit both. A rule
    /// that names ports does not fit a transport without ports.
    pub(crate) fn ways(&self, k: &PacketKey, sets: &Sets, cache: &mut SetCache) -> u8 {
        if self.transports & k.transport == 0 || self.families & k.family == 0 || self.sides & k.side == 0 {
            return 0;
        }
        if self.transaction && k.side == TO_CLIENT {
            return u8::from(self.other_way(k, sets, cache));
        }
        u8::from(self.one_way(k, sets, cache)) + u8::from(self.both && self.other_way(k, sets, cache))
    }

    /// The part of the header that a packet does not fit, for the way that fits best; `None` if [`Self::ways`] is not 0.
    pub(crate) fn misfit(&self, k: &PacketKey, sets: &Sets) -> Option<Misfit> {
        if self.transports & k.transport == 0 {
            return Some(Misfit::Transport);
        }
        if self.families & k.family == 0 {
            return Some(Misfit::Family);
        }
        if self.sides & k.side == 0 {
            return Some(Misfit::Direction);
        }
        let way = |turned: bool| {
            let (sport, dport) = if turned { (k.dport, k.sport) } else { (k.sport, k.dport) };
            let (src, dst) = if turned { (self.dst, self.src) } else { (self.src, self.dst) };
            let any = self.sport == ANY && self.dport == ANY;
            match () {
                () if !any && (k.fragment || k.transport & PORTED == 0) => Some(Misfit::NoPorts),
                () if !any && !sets.port(self.dport, dport) => Some(Misfit::DestinationPort),
                () if !any && !sets.port(self.sport, sport) => Some(Misfit::SourcePort),
                () if !sets.contains(src, k.src) && turned => Some(Misfit::DestinationAddress),
                () if !sets.contains(src, k.src) => Some(Misfit::SourceAddress),
                () if !sets.contains(dst, k.dst) && turned => Some(Misfit::SourceAddress),
                () if !sets.contains(dst, k.dst) => Some(Misfit::DestinationAddress),
                () => None,
            }
        };
        if self.transaction && k.side == TO_CLIENT {
            return way(true);
        }
        match (way(false), self.both) {
            (Some(m), true) => way(true).map(|other| other.max(m)),
            (found, _) => found,
        }
    }

    fn one_way(&self, k: &PacketKey, sets: &Sets, cache: &mut SetCache) -> bool {
        self.ports(k, sets, k.sport, k.dport)
            && cached(&mut cache.src, cache.epoch, sets, self.src, k.src)
            && cached(&mut cache.dst, cache.epoch, sets, self.dst, k.dst)
    }

    fn other_way(&self, k: &PacketKey, sets: &Sets, cache: &mut SetCache) -> bool {
        self.ports(k, sets, k.dport, k.sport)
            && cached(&mut cache.src, cache.epoch, sets, self.dst, k.src)
            && cached(&mut cache.dst, cache.epoch, sets, self.src, k.dst)
    }

    fn ports(&self, k: &PacketKey, sets: &Sets, sport: u16, dport: u16) -> bool {
        self.port_pair().fits_as(k, sets, sport, dport)
    }

    /// The header's condition on ports.
    pub(crate) const fn port_pair(&self) -> PortPair {
        PortPair { sport: self.sport, dport: self.dport, turns: self.both || self.transaction }
    }
}

/// A header's condition on ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortPair {
    sport: SetId,
    dport: SetId,
    /// The reverse direction fits too.
    turns: bool,
}

impl PortPair {
    /// Whether the packet's ports fit at least one of the header's ways.
    #[inline]
    pub(crate) fn fits(&self, k: &PacketKey, sets: &Sets) -> bool {
        self.fits_as(k, sets, k.sport, k.dport) || self.turns && self.fits_as(k, sets, k.dport, k.sport)
    }

    #[inline]
    fn fits_as(&self, k: &PacketKey, sets: &Sets, sport: u16, dport: u16) -> bool {
        if self.sport == ANY && self.dport == ANY {
            return true;
        }
        if k.fragment || k.transport & PORTED == 0 {
            return false;
        }
        sets.port(self.dport, dport) && sets.port(self.sport, sport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_inclusive() {
        let set = AddressSet { v4: vec![(10, 20), (30, 30)], v6: vec![(5, 6)], any: false, negated: false };
        for (v, want) in [(9, false), (10, true), (20, true), (21, false), (30, true), (31, false)] {
            assert_eq!(contains(&set, IpAddr::V4(v.into())), want, "{v}");
        }
        assert!(contains(&set, IpAddr::V6(5.into())));
        assert!(!contains(&set, IpAddr::V6(7.into())));
        let ports = [(0u16, 79), (81, 65535)];
        assert!(within(&ports, 0) && within(&ports, 65535) && !within(&ports, 80));
    }

    #[test]
    fn equal_sets_share_a_number() {
        let mut b = SetsBuilder::new();
        let set = AddressSet { v4: vec![(1, 2)], v6: vec![], any: false, negated: false };
        assert_eq!(b.addresses(&AddressSet { any: true, ..Default::default() }), Some(ANY));
        assert_eq!(b.addresses(&set), Some(1));
        assert_eq!(b.addresses(&set.clone()), Some(1));
        assert_eq!(b.ports(&PortSet { ranges: vec![(80, 80)], any: false }), Some(1));
    }

    /// `misfit` reports a part exactly when the header does not fit.
    #[test]
    fn misfits_are_what_does_not_fit() {
        let mut b = SetsBuilder::new();
        let set = |a: u32| AddressSet { v4: vec![(a, a)], v6: vec![], any: false, negated: false };
        let (src, dst) = (b.addresses(&set(1)).unwrap(), b.addresses(&set(2)).unwrap());
        let dport = b.ports(&PortSet { ranges: vec![(80, 80)], any: false }).unwrap();
        let sets = b.finish();
        let mut cache = SetCache::default();
        let mut seen = Vec::new();
        for (n, (both, transaction)) in [(false, false), (true, false), (false, true)].into_iter().enumerate() {
            let h = Header {
                transports: transport::TCP,
                families: family::V4,
                sides: if n == 0 { TO_SERVER } else { TO_SERVER | TO_CLIENT },
                both,
                transaction,
                src,
                dst,
                sport: ANY,
                dport,
            };
            for bits in 0..1u32 << 9 {
                let bit = |i: u32| bits >> i & 1 == 1;
                let ip = |a: bool| IpAddr::V4(if a { 1u32 } else { 2 }.into());
                let k = PacketKey {
                    transport: if bit(0) { transport::TCP } else { transport::UDP },
                    family: if bit(1) { family::V4 } else { family::V6 },
                    side: if bit(2) { TO_SERVER } else { TO_CLIENT },
                    src: ip(bit(3)),
                    dst: ip(bit(4)),
                    sport: if bit(5) { 80 } else { 81 },
                    dport: if bit(6) { 80 } else { 81 },
                    fragment: bit(7),
                };
                cache.start(&sets);
                let misfit = h.misfit(&k, &sets);
                assert_eq!(misfit.is_none(), h.ways(&k, &sets, &mut cache) > 0, "{h:?} {k:?}");
                seen.extend(misfit);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7, "{seen:?}");
    }

    #[test]
    fn the_cache_is_of_one_packet() {
        let mut b = SetsBuilder::new();
        let id = b.addresses(&AddressSet { v4: vec![(1, 2)], v6: vec![], any: false, negated: false }).unwrap();
        let sets = b.finish();
        let mut cache = SetCache::default();
        for (a, want) in [(1u32, true), (3, false), (2, true)] {
            cache.start(&sets);
            let ip = IpAddr::V4(a.into());
            assert_eq!(cached(&mut cache.src, cache.epoch, &sets, id, ip), want);
            assert_eq!(cached(&mut cache.src, cache.epoch, &sets, id, ip), want);
        }
    }
}
