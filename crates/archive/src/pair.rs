//! Assigns frames to buckets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use margay_packet::{L3, L4, Packet, PacketSource};

use crate::bloom::{hash, mix};

/// Inner flows whose bucket is remembered.
const CLAIMS: usize = 1 << 20;

/// One packet of a frame: the captured one, or an inner one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The two hosts of its flow, if it has an IP header.
    pub pair: Option<(IpAddr, IpAddr)>,
    /// Source and destination of its own header.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// IP protocol; 0 for none.
    pub proto: u8,
    /// Source and destination port, if the transport has them.
    pub ports: Option<(u16, u16)>,
    /// Number of enclosing tunnels.
    pub depth: u8,
    /// It was captured, not reassembled and not an inner packet.
    pub captured: bool,
    /// A fragment of a datagram.
    pub fragment: bool,
    /// It was reassembled from fragments.
    pub whole: bool,
}

impl Seen {
    /// Describes a packet from the decoder.
    pub fn of(packet: &Packet<'_>) -> Seen {
        let ip = matches!(packet.l3, L3::Ipv4 { .. } | L3::Ipv6 { .. });
        let ends = ip.then_some((packet.src, packet.dst));
        let ports = matches!(packet.l4, L4::Tcp { .. } | L4::Udp { .. } | L4::Sctp { .. });
        let about = match packet.l4 {
            L4::Icmpv4 { .. } if packet.icmp.0 == 3 => about(packet),
            _ => None,
        };
        Seen {
            pair: about.or(ends),
            ends,
            proto: if ip { packet.proto } else { 0 },
            ports: ports.then_some((packet.sport, packet.dport)),
            depth: packet.recursion,
            captured: packet.source == PacketSource::Wire,
            fragment: packet.fragment,
            whole: packet.source == PacketSource::Defrag,
        }
    }
}

/// The addresses of the packet that an ICMP error quotes (RFC 792): the error belongs to its flow.
fn about(packet: &Packet<'_>) -> Option<(IpAddr, IpAddr)> {
    let ip = packet.l4_bytes().get(8..)?;
    if ip.first()? >> 4 != 4 {
        return None;
    }
    let at = |i: usize| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(i..i + 4)?).ok()?)));
    Some((at(12)?, at(16)?))
}

fn octets(a: IpAddr, into: &mut [u8]) {
    match a {
        IpAddr::V4(a) => into[..4].copy_from_slice(&a.octets()),
        IpAddr::V6(a) => into[..16].copy_from_slice(&a.octets()),
    }
}

/// A hash of two hosts, independent of their order.
pub fn pair_hash((a, b): (IpAddr, IpAddr)) -> u64 {
    let mut bytes = [0u8; 33];
    bytes[0] = u8::from(a.is_ipv6());
    octets(a.min(b), &mut bytes[1..17]);
    octets(a.max(b), &mut bytes[17..33]);
    hash(&bytes)
}

/// The bucket, among `of`, for frames between two hosts. Frames without hosts are in bucket 0.
pub fn bucket(pair: Option<(IpAddr, IpAddr)>, of: u16) -> u16 {
    pair.map_or(0, |p| (pair_hash(p) % u64::from(of.max(1))) as u16)
}

/// Records the buckets of inner flows, and the buckets that must be read together because an inner flow was in both.
#[derive(Debug)]
pub struct Claims {
    known: HashMap<u64, u16>,
    limit: usize,
    /// For each bucket, another one that is read together with it, or itself.
    parent: Vec<u16>,
    /// Whether the bucket has frames with inner packets.
    carries: Vec<bool>,
    /// Inner flows that were not remembered because there were too many.
    pub refused: u64,
}

impl Claims {
    /// An empty record for `buckets` buckets.
    pub fn new(buckets: u16) -> Self {
        Claims::limited(buckets, CLAIMS)
    }

    fn limited(buckets: u16, limit: usize) -> Self {
        let carries = vec![false; usize::from(buckets)];
        Claims { known: HashMap::new(), limit, parent: (0..buckets).collect(), carries, refused: 0 }
    }

    /// The representative of the set that `bucket` belongs to.
    fn root(&self, mut bucket: u16) -> u16 {
        while let Some(&up) = self.parent.get(usize::from(bucket)) {
            if up == bucket {
                break;
            }
            bucket = up;
        }
        bucket
    }

    fn unite(&mut self, a: u16, b: u16) {
        let (a, b) = (self.root(a), self.root(b));
        if let Some(up) = self.parent.get_mut(usize::from(a.max(b))) {
            *up = a.min(b);
        }
    }

    /// Records the packets of a frame in `bucket`.
    pub fn note(&mut self, bucket: u16, packets: &[Seen]) {
        for seen in packets {
            let Some(pair) = seen.pair.filter(|_| !seen.captured) else { continue };
            if seen.depth == 0 {
                // A reassembled datagram. An ICMP error may refer to other hosts than those of its fragments.
                let of = u16::try_from(self.parent.len()).unwrap_or(u16::MAX);
                let other = crate::pair::bucket(Some(pair), of);
                if other != bucket {
                    self.unite(bucket, other);
                }
                continue;
            }
            if let Some(carries) = self.carries.get_mut(usize::from(bucket)) {
                *carries = true;
            }
            let key = mix(pair_hash(pair) ^ u64::from(seen.depth));
            match self.known.get(&key) {
                Some(&there) if there != bucket => self.unite(there, bucket),
                Some(_) => {}
                None if self.known.len() >= self.limit => self.refused += 1,
                None => {
                    self.known.insert(key, bucket);
                }
            }
        }
    }

    /// Sets of two or more buckets that must be read together, in ascending order.
    pub fn together(&mut self) -> Vec<Vec<u16>> {
        let buckets = u16::try_from(self.parent.len()).unwrap_or(u16::MAX);
        if self.refused > 0 {
            let carry: Vec<u16> = (0..buckets).filter(|&b| self.carries[usize::from(b)]).collect();
            carry.windows(2).for_each(|w| self.unite(w[0], w[1]));
        }
        let mut sets: Vec<Vec<u16>> = vec![Vec::new(); usize::from(buckets)];
        for b in 0..buckets {
            let root = usize::from(self.root(b));
            sets[root].push(b);
        }
        sets.retain(|s| s.len() > 1);
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(a: u32, b: u32, depth: u8) -> Seen {
        let ends = Some((IpAddr::V4(a.into()), IpAddr::V4(b.into())));
        Seen { pair: ends, ends, proto: 6, ports: None, depth, captured: depth == 0, fragment: false, whole: false }
    }

    #[test]
    fn a_flow_in_two_tunnels_joins_their_buckets() {
        let mut claims = Claims::new(8);
        claims.note(3, &[seen(1, 2, 1), seen(10, 11, 0)]);
        claims.note(3, &[seen(2, 1, 1)]);
        assert!(claims.together().is_empty());
        claims.note(5, &[seen(2, 1, 1)]);
        claims.note(1, &[seen(7, 8, 2)]);
        claims.note(7, &[seen(8, 7, 1)]);
        assert_eq!(claims.together(), [vec![3, 5]], "flows at other depths are others");
        claims.note(1, &[seen(1, 2, 1)]);
        assert_eq!(claims.together(), [vec![1, 3, 5]]);
    }

    #[test]
    fn what_is_not_remembered_joins_all_that_carry() {
        let mut claims = Claims::limited(8, 1);
        claims.note(2, &[seen(1, 2, 1)]);
        claims.note(4, &[seen(3, 4, 1)]);
        claims.note(6, &[seen(3, 4, 0)]);
        assert_eq!(claims.together(), [vec![2, 4]]);
        assert_eq!(claims.refused, 1);
    }
}
