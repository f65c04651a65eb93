//! Community ID, version 1 (github.com/corelight/community-id-spec): the same text for a flow in every tool.

use std::net::IpAddr;

use sha1::{Digest, Sha1};

use crate::names::{ICMP, ICMPV6};

/// Hash of a flow's five-tuple, 20 bytes. Events show its base64 after `1:`.
///
/// `icmp` is the type and code of the flow's first message. The tuple is ordered first, so that both directions give the
/// same hash. As in Suricata, protocols without ports count as having ports 0 (the specification leaves them out), the two
/// halves of ESP's SPI take the place of the ports, and between equal addresses the lower byte of a port counts first.
pub fn hash(seed: u16, src: IpAddr, dst: IpAddr, ports: (u16, u16), icmp: Option<(u8, u8)>, proto: u8) -> [u8; 20] {
    let (mut sport, mut dport, one_way) = match (proto, icmp) {
        (ICMP, Some((t, c))) => icmp_ports(t, c, &ICMP_PAIRS),
        (ICMPV6, Some((t, c))) => icmp_ports(t, c, &ICMPV6_PAIRS),
        _ => (ports.0, ports.1, false),
    };
    let (mut src, mut dst) = (src, dst);
    let swap = (octets(&src).as_slice(), sport.swap_bytes()) > (octets(&dst).as_slice(), dport.swap_bytes());
    if swap && !one_way {
        std::mem::swap(&mut src, &mut dst);
        std::mem::swap(&mut sport, &mut dport);
    }
    let mut sha = Sha1::new();
    sha.update(seed.to_be_bytes());
    sha.update(octets(&src).as_slice());
    sha.update(octets(&dst).as_slice());
    sha.update([proto, 0]);
    sha.update(sport.to_be_bytes());
    sha.update(dport.to_be_bytes());
    sha.finalize().into()
}

struct Octets {
    bytes: [u8; 16],
    len: usize,
}

impl Octets {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn octets(a: &IpAddr) -> Octets {
    match a {
        IpAddr::V4(a) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&a.octets());
            Octets { bytes, len: 4 }
        }
        IpAddr::V6(a) => Octets { bytes: a.octets(), len: 16 },
    }
}

/// ICMP types that have a response, and the type of that response.
const ICMP_PAIRS: [(u8, u8); 10] =
    [(8, 0), (0, 8), (13, 14), (14, 13), (15, 16), (16, 15), (10, 9), (9, 10), (17, 18), (18, 17)];
/// As [`ICMP_PAIRS`], for ICMPv6.
const ICMPV6_PAIRS: [(u8, u8); 12] = [
    (139, 140),
    (140, 139),
    (128, 129),
    (129, 128),
    (133, 134),
    (134, 133),
    (135, 136),
    (136, 135),
    (130, 131),
    (131, 130),
    (144, 145),
    (145, 144),
];

fn icmp_ports(kind: u8, code: u8, pairs: &[(u8, u8)]) -> (u16, u16, bool) {
    match pairs.iter().find(|p| p.0 == kind) {
        Some(p) => (u16::from(kind), u16::from(p.1), false),
        None => (u16::from(kind), u16::from(code), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn id(seed: u16, src: &str, dst: &str, ports: (u16, u16), icmp: Option<(u8, u8)>, proto: u8) -> String {
        let mut j = Json::new();
        j.base64_rest(&hash(seed, src.parse().unwrap(), dst.parse().unwrap(), ports, icmp, proto));
        format!("1:{}", std::str::from_utf8(j.as_bytes()).unwrap())
    }

    #[test]
    fn as_suricata_has_them() {
        // Tuples and results from events of Suricata.
        let tcp = "1:jy0oeoPWlx4rzH6EOtTpYl/Z/5I=";
        assert_eq!(id(0, "192.168.56.1", "192.168.56.101", (49365, 443), None, 6), tcp);
        assert_eq!(id(0, "192.168.56.101", "192.168.56.1", (443, 49365), None, 6), tcp);
        let echo = "1:S8recDthFFl6KMmgHjdsjS3rnv8=";
        assert_eq!(id(0, "1.1.1.1", "2.2.2.2", (0, 0), Some((8, 0)), 1), echo);
        assert_eq!(id(0, "2.2.2.2", "1.1.1.1", (0, 0), Some((0, 0)), 1), echo);
        assert_eq!(id(0, "::1", "::2", (0, 0), Some((128, 0)), 58), "1:9UpHcZHFAOl8WqZVOs5YRQ5wDGE=");
        assert_eq!(id(0, "1.1.1.3", "2.2.2.2", (1111, 2222), None, 132), "1:xAa5cDqM3tvKK/renK2H1WnWt8A=");
        let local = "1:dgZOPJL0r+7nhte5RvlKmEXhDTQ=";
        assert_eq!(id(7, "127.0.0.1", "127.0.0.1", (80, 4660), None, 6), local);
        assert_eq!(id(7, "127.0.0.1", "127.0.0.1", (4660, 80), None, 6), local);
        assert_eq!(id(0, "10.1.0.1", "10.1.0.2", (0, 0), None, 41), "1:D5TGByx6h+OSwA7hPfJcnI9G6hU=");
        assert_eq!(id(0, "190.0.0.1", "190.0.0.2", (123, 0), None, 50), "1:P0/zhi51bcqVbwSvZz2Lp5nj+jA=");
    }

    /// Query and reply of node information (RFC 4620).
    #[test]
    fn a_reply_has_the_id_of_its_query() {
        let [query, reply] = [(139, 1), (140, 1)].map(Some);
        assert_eq!(id(0, "::1", "::2", (0, 0), query, 58), id(0, "::2", "::1", (0, 0), reply, 58));
    }

    #[test]
    fn the_seed_matters() {
        let with = |seed| id(seed, "1.1.1.1", "2.2.2.2", (1, 2), None, 6);
        assert_ne!(with(0), with(1));
    }
}
