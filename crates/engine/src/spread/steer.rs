//! Steers a frame to a worker, by walking its headers only as deep as needed.
//!
//! The full decoder runs on the worker. Here, two addresses and two ports of a frame form a hash that is the same in both
//! directions. Packets that the worker's tables need together must go to the same worker:
//!
//! | frame | steered by |
//! | --- | --- |
//! | TCP, UDP, SCTP | addresses, ports and protocol |
//! | TCP to or from ports 20 and 21: FTP | addresses; connections that the client later opens to that server go to the same worker (`assign`) |
//! | an ICMP "destination unreachable" that quotes the ports of a flow | that flow |
//! | other IP: ICMP, ESP, tunnels by address (GRE, IP in IP) | addresses |
//! | UDP to or from a port of Teredo, VXLAN, Geneve | addresses: the ports differ by direction, but the inner packets belong together |
//! | a fragment | its datagram (`fragments`) |
//! | anything else | all to one worker |
//!
//! VLAN tags are ignored: flows that differ only by tags go to the same worker. If flows may move to other workers
//! ([`Exact`]), a hash identifies one flow; then tags and the IP version count.

use margay_flow::{Ends, HashKey};
use margay_packet::{Frame, LinkType, UdpTunnel};

use super::hosts::Whose;

/// Where a frame is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// By this flow hash.
    Flow(u64),
    /// By this flow hash, and the frame identifies its flow completely: plain TCP or UDP. Only with exact hashes ([`Exact`]).
    Plain(u64),
    /// By this flow hash. The frame opens a flow between these addresses.
    Opening { flow: u64, pair: u64 },
    /// By this address pair. A control connection may announce more connections between the same addresses.
    Control { pair: u64 },
    /// To the worker of its datagram. `first` is the hash of the datagram's flow, from the fragment that has the ports.
    /// `alone` is the hash by addresses.
    Fragment { datagram: u64, first: Option<u64>, alone: u64 },
    /// The frame could not be parsed.
    Unknown,
}

/// The steering rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steering {
    /// By addresses only (`autofp-scheduler: ippair`).
    pub(crate) pairs: bool,
    /// Tunnels over UDP.
    pub(crate) tunnels: Vec<UdpTunnel>,
    /// Exact hashes: no two flows share one, except those that go by their addresses.
    pub(crate) exact: Option<Exact>,
    /// The keys of the hashes.
    pub(crate) keys: Keys,
}

/// Distinguishes flows in the same way as the flow table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    /// A secret key.
    pub(crate) key: HashKey,
    /// VLAN tags distinguish flows (`vlan.use-for-tracking`).
    pub(crate) vlans: bool,
}

/// The keys of the hashes of addresses and ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys([u64; 3]);

impl Default for Keys {
    /// Fixed keys.
    fn default() -> Keys {
        Keys([0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f])
    }
}

impl Keys {
    /// Derives the keys from a key.
    pub(crate) fn of(key: &HashKey) -> Keys {
        Keys([key.word(4), key.word(5), key.word(6)])
    }

    /// Hashes one endpoint of a flow.
    #[inline]
    const fn end(&self, address: [u64; 2], port: u16) -> u64 {
        let [k0, k1, _] = self.0;
        fold(address[0] ^ k0, address[1] ^ k1 ^ (port as u64) << 48)
    }

    /// Combines two endpoints, independent of their order.
    #[inline]
    const fn both(&self, a: u64, b: u64, proto: u8) -> u64 {
        let [k0, _, k2] = self.0;
        fold(a.wrapping_add(b) ^ k2, (a ^ b) ^ k0 ^ proto as u64)
    }

    /// Hashes two hosts, independent of their order.
    #[inline]
    const fn pair(&self, a: [u64; 2], b: [u64; 2]) -> u64 {
        self.both(self.end(a, 0), self.end(b, 0), 0)
    }
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..)?.first_chunk().map(|c| u16::from_be_bytes(*c))
}

#[inline]
fn v4(b: &[u8], at: usize) -> Option<[u64; 2]> {
    b.get(at..)?.first_chunk().map(|c| [0, u64::from(u32::from_be_bytes(*c))])
}

#[inline]
fn v6(b: &[u8], at: usize) -> Option<[u64; 2]> {
    let half = |at: usize| b.get(at..)?.first_chunk().map(|c| u64::from_be_bytes(*c));
    Some([half(at)?, half(at + 8)?])
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Limit of tags, labels and extension headers to skip: more than the decoder accepts.
const LAYERS: usize = 16;

/// Addresses, protocol and the data after the network header.
struct Inner<'a> {
    src: [u64; 2],
    dst: [u64; 2],
    proto: u8,
    rest: &'a [u8],
    v6: bool,
    /// VLAN ids before the network header.
    vlans: [u16; 3],
    /// Identification and offset of a fragment.
    fragment: Option<(u32, u16)>,
}

impl Steering {
    /// Where a frame is steered, and which hosts it belongs to.
    #[inline]
    pub(crate) fn place(&self, frame: &Frame<'_>) -> (Place, Whose) {
        let Some(inner) = inner(frame) else { return (Place::Unknown, Whose::AnyHost) };
        (self.find(&inner).unwrap_or(Place::Unknown), self.whose(&inner))
    }

    /// Whether the frame is a plain packet that contains no other packet.
    #[inline]
    fn whose(&self, inner: &Inner<'_>) -> Whose {
        let port = |at| u16_at(inner.rest, at).unwrap_or(0);
        let plain = match inner.proto {
            TCP | ICMP | ICMPV6 | SCTP => true,
            UDP => inner.fragment.is_none() && !self.tunnels.iter().any(|t| t.matches(port(0), port(2))),
            _ => false,
        };
        if plain { Whose::Hosts(inner.src, inner.dst) } else { Whose::AnyHost }
    }

    /// The flow's endpoints, for a frame that is [`Place::Plain`].
    pub(crate) fn ends(&self, frame: &Frame<'_>) -> Option<Ends> {
        let inner = inner(frame)?;
        Some(inner.ends(u16_at(inner.rest, 0)?, u16_at(inner.rest, 2)?))
    }

    #[inline]
    fn find(&self, inner: &Inner<'_>) -> Option<Place> {
        let alone = || self.keys.pair(inner.src, inner.dst);
        if self.pairs {
            return Some(Place::Flow(alone()));
        }
        let Some((id, offset)) = inner.fragment else {
            let Some(flow) = self.flow(inner) else { return Some(Place::Flow(alone())) };
            if inner.proto == TCP {
                if is_ftp(inner.rest) {
                    return Some(Place::Control { pair: alone() });
                }
                // SYN without ACK.
                if inner.rest.get(13).is_some_and(|f| f & 0x12 == 0x02) {
                    return Some(Place::Opening { flow, pair: alone() });
                }
            }
            let plain = self.exact.is_some() && matches!(inner.proto, TCP | UDP);
            return Some(if plain { Place::Plain(flow) } else { Place::Flow(flow) });
        };
        // The hash depends on the direction, because each direction has its own datagrams. IPv4 datagrams are distinguished
        // by protocol (RFC 791), IPv6 datagrams are not (RFC 8200 section 4.5).
        let proto = if inner.v6 { 0 } else { inner.proto };
        let datagram =
            fold(self.keys.end(inner.src, 0) ^ u64::from(id), self.keys.end(inner.dst, 1) ^ u64::from(proto) << 56);
        let first = (offset == 0).then(|| self.flow(inner)).flatten();
        Some(Place::Fragment { datagram, first, alone: alone() })
    }

    /// Steers by ports, if the protocol has relevant ones.
    #[inline]
    fn flow(&self, inner: &Inner<'_>) -> Option<u64> {
        let Inner { src, dst, proto, rest, .. } = *inner;
        match proto {
            TCP | UDP | SCTP => {
                let (s, d) = (u16_at(rest, 0)?, u16_at(rest, 2)?);
                if proto == TCP && is_ftp(rest) {
                    return Some(self.keys.pair(src, dst));
                }
                if proto == UDP && self.tunnels.iter().any(|t| t.matches(s, d)) {
                    return None;
                }
                Some(self.hash(inner, s, d))
            }
            ICMP if rest.first() == Some(&3) => self.about(rest.get(8..)?, inner.vlans),
            _ => None,
        }
    }

    #[inline]
    fn hash(&self, inner: &Inner<'_>, s: u16, d: u16) -> u64 {
        match self.exact {
            None => self.keys.both(self.keys.end(inner.src, s), self.keys.end(inner.dst, d), inner.proto),
            Some(e) => inner.ends(s, d).hash(&e.key, e.vlans),
        }
    }

    /// The flow that an ICMP error refers to (RFC 792), under the same conditions as in the flow table.
    fn about(&self, ip: &[u8], vlans: [u16; 3]) -> Option<u64> {
        let inner = ipv4(ip, vlans).filter(|_| ip.first().is_some_and(|b| b >> 4 == 4))?;
        let least = if inner.proto == TCP { 20 } else { 8 };
        if !matches!(inner.proto, TCP | UDP | SCTP) || inner.rest.len() < least {
            return None;
        }
        // Only the first fragment has ports.
        if inner.fragment.is_some_and(|(_, offset)| offset != 0) {
            return None;
        }
        let (s, d) = (u16_at(inner.rest, 0)?, u16_at(inner.rest, 2)?);
        if inner.proto == TCP && is_ftp(inner.rest) {
            return Some(self.keys.pair(inner.src, inner.dst));
        }
        Some(self.hash(&inner, s, d))
    }
}

impl Inner<'_> {
    #[inline]
    fn ends(&self, sport: u16, dport: u16) -> Ends {
        let Inner { src, dst, proto, v6, vlans, .. } = *self;
        Ends { src, dst, sport, dport, proto, v6, vlans }
    }
}

#[inline]
fn inner<'a>(frame: &Frame<'a>) -> Option<Inner<'a>> {
    let mut vlans = [0; 3];
    let ip = network(frame, &mut vlans)?;
    match ip.first()? >> 4 {
        4 => ipv4(ip, vlans),
        6 => ipv6(ip, vlans),
        _ => None,
    }
}

/// Whether one of the ports of a TCP header is an FTP port.
#[inline]
fn is_ftp(tcp: &[u8]) -> bool {
    [0, 2].iter().any(|at| matches!(u16_at(tcp, *at), Some(20 | 21)))
}

#[inline]
fn ipv4(ip: &[u8], vlans: [u16; 3]) -> Option<Inner<'_>> {
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let fragment = u16_at(ip, 6)?;
    // Padding of the link layer is not part of the packet.
    let whole = usize::from(u16_at(ip, 2)?);
    let rest = ip.get(header.max(20)..whole.min(ip.len())).unwrap_or(&[]);
    Some(Inner {
        src: v4(ip, 12)?,
        dst: v4(ip, 16)?,
        proto: *ip.get(9)?,
        rest,
        v6: false,
        vlans,
        fragment: (fragment & 0x3fff != 0).then_some((u32::from(u16_at(ip, 4)?), fragment & 0x1fff)),
    })
}

fn ipv6(ip: &[u8], vlans: [u16; 3]) -> Option<Inner<'_>> {
    let (src, dst) = (v6(ip, 8)?, v6(ip, 24)?);
    let mut proto = *ip.get(6)?;
    let mut at = 40;
    let mut fragment = None;
    for _ in 0..LAYERS {
        let length = |unit: usize, more: usize| Some((usize::from(*ip.get(at + 1)?) + more) * unit);
        let step = match proto {
            0 | 43 | 60 | 135 | 139 | 140 => length(8, 1)?,
            51 => length(4, 2)?,
            44 => {
                let offset = u16_at(ip, at + 2)?;
                // An atomic fragment (RFC 6946) is a whole datagram.
                if offset & 0xfff9 != 0 {
                    let id = ip.get(at + 4..)?.first_chunk().map(|c| u32::from_be_bytes(*c))?;
                    fragment = Some((id, offset >> 3));
                    if offset >> 3 != 0 {
                        break;
                    }
                }
                8
            }
            _ => break,
        };
        proto = *ip.get(at)?;
        at += step;
    }
    Some(Inner { src, dst, proto, rest: ip.get(at..).unwrap_or(&[]), v6: true, vlans, fragment })
}

/// Finds the network header and the data after it, and collects the VLAN ids before it.
#[inline]
fn network<'a>(frame: &Frame<'a>, vlans: &mut [u16; 3]) -> Option<&'a [u8]> {
    let b = frame.data;
    match frame.link {
        LinkType::ETHERNET => ethernet(b, vlans),
        l if l.is_raw_ip() => Some(b),
        LinkType::NULL | LinkType::LOOP => b.get(4..),
        LinkType::LINUX_SLL => ether_type(u16_at(b, 14)?, b.get(16..)?, vlans),
        LinkType::LINUX_SLL2 => ether_type(u16_at(b, 0)?, b.get(20..)?, vlans),
        LinkType::CHDLC => ether_type(u16_at(b, 2)?, b.get(4..)?, vlans),
        _ => None,
    }
}

#[inline]
fn ethernet<'a>(b: &'a [u8], vlans: &mut [u16; 3]) -> Option<&'a [u8]> {
    ether_type(u16_at(b, 12)?, b.get(14..)?, vlans)
}

#[inline]
fn ether_type<'a>(mut kind: u16, mut b: &'a [u8], vlans: &mut [u16; 3]) -> Option<&'a [u8]> {
    let mut tags = 0;
    for _ in 0..LAYERS {
        let (next, skip) = match kind {
            0x0800 | 0x86dd => return Some(b),
            0x8100 | 0x88a8 | 0x9100 => {
                // The decoder accepts no more tags than fit here.
                *vlans.get_mut(tags)? = u16_at(b, 0)? & 0x0fff;
                tags += 1;
                (2, 4)
            }
            // VN-Tag, E-TAG, provider backbone bridges, FabricPath.
            0x8926 => (4, 6),
            0x893f => (6, 8),
            0x88e7 => (16, 18),
            0x8903 => (14, 16),
            0x8847 | 0x8848 => return mpls(b),
            0x8864 => return ppp(b.get(6..)?),
            _ => return None,
        };
        kind = u16_at(b, next)?;
        b = b.get(skip..)?;
    }
    None
}

/// IP after its MPLS labels (RFC 3032), recognised by its version.
fn mpls(mut b: &[u8]) -> Option<&[u8]> {
    for _ in 0..LAYERS {
        let last = b.get(2)? & 1 != 0;
        b = b.get(4..)?;
        if last {
            return Some(b).filter(|b| b.first().is_some_and(|v| matches!(v >> 4, 4 | 6)));
        }
    }
    None
}

fn ppp(b: &[u8]) -> Option<&[u8]> {
    matches!(u16_at(b, 0)?, 0x0021 | 0x0057).then(|| b.get(2..)).flatten()
}

/// The key of a flow and direction: a number that is not 0; 0 if the frame's flow is unknown.
#[inline]
pub(crate) fn key_of(place: Place, whose: Whose) -> u32 {
    let turned = matches!(whose, Whose::Hosts(from, to) if from > to);
    match place {
        Place::Flow(flow) | Place::Plain(flow) | Place::Opening { flow, .. } => {
            (flow >> 32) as u32 & !1 | u32::from(turned)
        }
        Place::Control { .. } | Place::Fragment { .. } | Place::Unknown => 0,
    }
}

/// Maps a hash to one of `workers` workers.
#[inline]
pub(crate) const fn worker_of(hash: u64, workers: usize) -> usize {
    ((hash as u128 * workers as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_packet::Time;

    fn place(steering: &Steering, link: LinkType, data: &[u8]) -> Place {
        steering.place(&Frame { data, wire_len: data.len() as u32, time: Time(0), link, number: 1 }).0
    }

    fn packet(src: u8, dst: u8, proto: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
        let mut b =
            vec![0x45, 0, 0, (20 + rest.len()) as u8, 0, 7, 0, 0, 64, proto, 0, 0, 10, 0, 0, src, 10, 0, 0, dst];
        b[6..8].copy_from_slice(&fragment.to_be_bytes());
        b.extend(rest);
        b
    }

    fn ports(s: u16, d: u16) -> Vec<u8> {
        let mut b = s.to_be_bytes().to_vec();
        b.extend(d.to_be_bytes());
        b.extend([0; 16]);
        b
    }

    fn raw(b: &[u8]) -> Place {
        place(&Steering { tunnels: vec![UdpTunnel::on(4789)], ..Steering::default() }, LinkType::RAW, b)
    }

    #[test]
    fn both_directions_go_to_one_worker() {
        let there = raw(&packet(1, 2, TCP, 0x4000, &ports(1000, 80)));
        assert_eq!(there, raw(&packet(2, 1, TCP, 0, &ports(80, 1000))));
        for other in [
            packet(1, 2, TCP, 0, &ports(1001, 80)),
            packet(1, 2, TCP, 0, &ports(80, 1000)),
            packet(1, 2, UDP, 0, &ports(1000, 80)),
            packet(1, 3, TCP, 0, &ports(1000, 80)),
        ] {
            assert_ne!(there, raw(&other));
        }
        let pairs = Steering { pairs: true, ..Steering::default() };
        let by_pair = |b: &[u8]| place(&pairs, LinkType::RAW, b);
        assert_eq!(by_pair(&packet(1, 2, TCP, 0, &ports(1, 2))), by_pair(&packet(2, 1, UDP, 0x2000, &ports(3, 4))));
    }

    #[test]
    fn what_belongs_to_a_flow_goes_there() {
        let tcp = packet(1, 2, TCP, 0, &ports(1000, 80));
        let mut error = vec![3, 1, 0, 0, 0, 0, 0, 0];
        error.extend(&tcp);
        assert_eq!(raw(&packet(9, 1, 1, 0, &error)), raw(&tcp));
        // A truncated error refers to no flow, so it is steered by its addresses.
        error.truncate(30);
        assert_eq!(raw(&packet(9, 1, 1, 0, &error)), raw(&packet(1, 9, 50, 0, &[0; 8])));
        // A tunnel's endpoints choose their ports freely.
        assert_eq!(raw(&packet(1, 2, UDP, 0, &ports(5, 4789))), raw(&packet(2, 1, UDP, 0, &ports(6, 4789))));
    }

    #[test]
    fn connections_that_are_announced_can_be_told() {
        let with = |s, d, flags: u8| {
            let mut rest = ports(s, d);
            rest[13] = flags;
            rest
        };
        let control = raw(&packet(1, 2, TCP, 0, &with(4000, 21, 0x18)));
        let Place::Control { pair } = control else { panic!("{control:?}") };
        assert_eq!(raw(&packet(2, 1, TCP, 0, &with(20, 5000, 2))), control);
        let Place::Opening { flow, pair: of } = raw(&packet(1, 2, TCP, 0, &with(4001, 40_000, 2))) else { panic!() };
        assert_eq!(of, pair);
        assert_eq!(raw(&packet(2, 1, TCP, 0, &with(40_000, 4001, 0x12))), Place::Flow(flow));
    }

    #[test]
    fn tags_and_labels_are_stepped_over() {
        let ip = packet(1, 2, TCP, 0, &ports(1000, 80));
        let want = raw(&ip);
        let with = |head: &[u8]| {
            let mut b = vec![0; 12];
            b.extend(head);
            b.extend(&ip);
            b.extend([0xee; 6]);
            b
        };
        for head in [
            &[0x08, 0][..],
            &[0x81, 0, 0, 5, 0x08, 0],
            &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0],
            &[0x88, 0x47, 0, 0, 0, 64, 0, 0, 1, 64],
            &[0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21],
            &[0x89, 0x26, 0, 0, 0, 0, 8, 0],
        ] {
            assert_eq!(place(&Steering::default(), LinkType::ETHERNET, &with(head)), want, "{head:02x?}");
        }
        for cut in 0..ip.len() {
            // A truncated packet must not panic.
            let _ = raw(&ip[..cut]);
        }
        assert_eq!(place(&Steering::default(), LinkType::ETHERNET, &[0; 10]), Place::Unknown);
    }

    #[test]
    fn where_flows_move_a_hash_is_that_of_one_flow() {
        let exact = |vlans| Steering {
            tunnels: vec![UdpTunnel::on(4789)],
            exact: Some(Exact { key: HashKey::fixed(5), vlans }),
            ..Steering::default()
        };
        let with = |steering: &Steering, head: &[u8], ip: &[u8]| {
            let mut b = vec![0; 12];
            b.extend(head);
            b.extend(ip);
            place(steering, LinkType::ETHERNET, &b)
        };
        let (plain, tagged) = (&[0x08, 0][..], &[0x81, 0, 0x60, 5, 0x08, 0][..]);
        let ip = packet(1, 2, TCP, 0, &ports(1000, 80));
        let Place::Plain(flow) = with(&exact(true), plain, &ip) else { panic!() };
        assert_eq!(with(&exact(true), plain, &packet(2, 1, TCP, 0, &ports(80, 1000))), Place::Plain(flow));
        assert_ne!(with(&exact(true), tagged, &ip), Place::Plain(flow));
        assert_eq!(with(&exact(false), tagged, &ip), with(&exact(false), plain, &ip));
        // Frames that belong to the flow but do not identify it completely.
        let mut error = vec![3, 1, 0, 0, 0, 0, 0, 0];
        error.extend(&ip);
        assert_eq!(with(&exact(true), plain, &packet(9, 1, 1, 0, &error)), Place::Flow(flow));
        let first = with(&exact(true), plain, &packet(1, 2, TCP, 0x2000, &ports(1000, 80)));
        assert!(matches!(first, Place::Fragment { first: Some(f), .. } if f == flow), "{first:?}");
        for other in [packet(1, 2, UDP, 0, &ports(5, 4789)), packet(1, 2, SCTP, 0, &ports(5, 6))] {
            assert!(matches!(with(&exact(true), plain, &other), Place::Flow(_)));
        }
        let mut b = vec![0; 12];
        b.extend(tagged);
        b.extend(&ip);
        let frame = Frame { data: &b, wire_len: 60, time: Time(0), link: LinkType::ETHERNET, number: 1 };
        let ends = exact(true).ends(&frame).unwrap();
        assert_eq!((ends.sport, ends.dport, ends.proto, ends.v6, ends.vlans), (1000, 80, TCP, false, [5, 0, 0]));
        assert_eq!(Place::Plain(ends.hash(&HashKey::fixed(5), true)), with(&exact(true), tagged, &ip));
    }

    #[test]
    fn fragments_are_of_their_datagram() {
        let whole = raw(&packet(1, 2, UDP, 0, &ports(1000, 53)));
        let Place::Flow(hash) = whole else { panic!("{whole:?}") };
        let Place::Fragment { datagram, first: Some(first), .. } = raw(&packet(1, 2, UDP, 0x2000, &ports(1000, 53)))
        else {
            panic!()
        };
        assert_eq!(first, hash);
        let Place::Fragment { datagram: later, first: None, .. } = raw(&packet(1, 2, UDP, 0x0003, &[0; 20])) else {
            panic!()
        };
        assert_eq!(datagram, later);
        // IPv6: the first fragment has TCP after its header, and the second may claim any protocol.
        let six = |next: u8, offset: u16, rest: &[u8]| {
            let mut b = vec![0x60, 0, 0, 0, 0, 0, 44, 64];
            b.extend([1; 16]);
            b.extend([2; 16]);
            b.extend([next, 0]);
            b.extend(offset.to_be_bytes());
            b.extend([0, 0, 0, 9]);
            b.extend(rest);
            b
        };
        let Place::Fragment { datagram: a, first: Some(_), .. } = raw(&six(6, 1, &ports(1, 2))) else { panic!() };
        let Place::Fragment { datagram: b, first: None, .. } = raw(&six(17, 16, &[0; 8])) else { panic!() };
        assert_eq!(a, b);
        assert!(matches!(raw(&six(6, 0, &ports(1, 2))), Place::Flow(_)));
    }

    #[test]
    fn hashes_spread() {
        for workers in [2usize, 3, 16] {
            let mut of = vec![0u32; workers];
            for n in 1000..7000u16 {
                let Place::Flow(h) = raw(&packet(n as u8, 200, TCP, 0, &ports(n, 80))) else { panic!() };
                of[worker_of(h, workers)] += 1;
            }
            let fair = 6000 / workers as u32;
            assert!(of.iter().all(|n| *n > fair * 8 / 10 && *n < fair * 12 / 10), "{of:?}");
        }
    }
}
