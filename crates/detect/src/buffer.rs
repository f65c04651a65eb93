//! Buffers within the packet itself.

use margay_packet::{L3, L4, LinkType, Packet};
pub use margay_rules::PacketBuffer;

/// The buffer's bytes; `None` if the packet has no such header. Every packet has a payload, which may be empty.
pub fn bytes<'a>(buffer: PacketBuffer, p: &Packet<'a>) -> Option<&'a [u8]> {
    match (buffer, p.l3, p.l4) {
        (PacketBuffer::Payload, ..) => Some(p.payload()),
        (PacketBuffer::TcpHeader, _, L4::Tcp { header_len, .. }) => p.l4_bytes().get(..usize::from(header_len)),
        (PacketBuffer::UdpHeader, _, L4::Udp { .. }) => p.l4_bytes().get(..8),
        (PacketBuffer::Ipv4Header, L3::Ipv4 { header_len, .. }, _) => p.l3_bytes().get(..usize::from(header_len)),
        (PacketBuffer::Ipv6Header, L3::Ipv6 { header_len, .. }, _) => p.l3_bytes().get(..header_len as usize),
        (PacketBuffer::Icmpv4Header, _, L4::Icmpv4 { .. }) => icmpv4(p.l4_bytes()),
        (PacketBuffer::Icmpv6Header, _, L4::Icmpv6 { .. }) => p.l4_bytes().get(..8),
        (PacketBuffer::IpSource, L3::Ipv4 { .. }, _) => p.l3_bytes().get(12..16),
        (PacketBuffer::IpSource, L3::Ipv6 { .. }, _) => p.l3_bytes().get(8..24),
        (PacketBuffer::IpDestination, L3::Ipv4 { .. }, _) => p.l3_bytes().get(16..20),
        (PacketBuffer::IpDestination, L3::Ipv6 { .. }, _) => p.l3_bytes().get(24..40),
        (PacketBuffer::IgmpHeader, _, L4::Igmp { .. }) => p.l4_bytes().get(..8),
        (PacketBuffer::EthernetHeader, ..) if p.link == LinkType::ETHERNET && p.ethernet.is_some() => p.data.get(..14),
        // Ethernet and IPv4: 8 bytes, and two pairs of addresses (RFC 826).
        (PacketBuffer::ArpHeader, L3::Arp { .. }, _) => p.l3_bytes().get(..28),
        _ => None,
    }
}

/// The ICMP header, with the lengths that Suricata gives it. If the packet is too short for the longer form, this is the
/// 8 bytes that all messages share.
fn icmpv4(b: &[u8]) -> Option<&[u8]> {
    let longer = match b {
        // Timestamps (RFC 792).
        [13 | 14, ..] => 20,
        // Router advertisement (RFC 1256): the number of addresses, and the words that each takes.
        [9, _, _, _, count, words, ..] => 8 + usize::from(*count) * usize::from(*words) * 4,
        _ => 8,
    };
    b.get(..longer).or_else(|| b.get(..8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Time};

    fn get(name: &str, frame: &[u8]) -> Option<Vec<u8>> {
        let frame =
            Frame { data: frame, wire_len: frame.len() as u32, time: Time::default(), link: LinkType::RAW, number: 1 };
        let mut out = None;
        let buffer = PacketBuffer::from_name(name).expect("known");
        Decoder::new(DecodeConfig::default())
            .decode(&frame, &mut |p: &Packet<'_>| out = bytes(buffer, p).map(<[u8]>::to_vec));
        out
    }

    fn ipv4(proto: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = 20 + options.len();
        let mut h = vec![0x40 | (header / 4) as u8, 0, 0, 0, 0, 1, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        h[2..4].copy_from_slice(&((header + payload.len()) as u16).to_be_bytes());
        h.extend_from_slice(options);
        h.extend_from_slice(payload);
        h
    }

    #[test]
    fn ip_and_transport() {
        let mut tcp = vec![0, 1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 1, 1, 0, 0, 0, 0, 2, 4, 5, 0x78];
        tcp.extend_from_slice(b"data");
        let p = ipv4(6, &[1, 1, 1, 0], &tcp);
        assert_eq!(get("ipv4.hdr", &p).as_deref(), Some(&p[..24]));
        assert_eq!(get("tcp.hdr", &p).as_deref(), Some(&p[24..48]));
        assert_eq!(get("payload", &p).as_deref(), Some(&b"data"[..]));
        assert_eq!(get("ip.src", &p).as_deref(), Some(&[10, 0, 0, 1][..]));
        assert_eq!(get("ip.dst", &p).as_deref(), Some(&[10, 0, 0, 2][..]));
        assert_eq!((get("udp.hdr", &p), get("ipv6.hdr", &p), get("icmpv4.hdr", &p)), (None, None, None));
        let p = ipv4(17, &[], &[0, 1, 0, 53, 0, 9, 0, 0, b'x']);
        assert_eq!(get("udp.hdr", &p).as_deref(), Some(&p[20..28]));
    }

    #[test]
    fn ipv6_with_extensions() {
        let mut p = vec![0x60, 0, 0, 0, 0, 20, 0, 64];
        p.extend_from_slice(&[1; 32]);
        p.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
        p.extend_from_slice(&[0, 1, 0, 53, 0, 12, 0, 0, b'a', b'b', b'c', b'd']);
        assert_eq!(get("ipv6.hdr", &p).as_deref(), Some(&p[..48]));
        assert_eq!(get("udp.hdr", &p).as_deref(), Some(&p[48..56]));
        assert_eq!(get("ip.dst", &p).map(|b| b.len()), Some(16));
    }

    /// The lengths are Suricata's.
    #[test]
    fn icmp_lengths() {
        let len = |message: &[u8]| get("icmpv4.hdr", &ipv4(1, &[], message)).map(|b| b.len());
        let advertisement = |count, words, rest: usize| {
            let mut m = vec![9, 0, 0, 0, count, words, 0, 10];
            m.resize(8 + rest, 7);
            m
        };
        for (count, words, rest, want) in
            [(1, 2, 8, 16), (1, 2, 12, 16), (2, 2, 20, 24), (1, 3, 12, 20), (1, 1, 8, 12), (0, 2, 8, 8), (1, 2, 4, 8)]
        {
            assert_eq!(len(&advertisement(count, words, rest)), Some(want), "{count} {words} {rest}");
        }
        assert_eq!(len(&[[8, 0, 0, 0, 0, 1, 0, 1, 9, 9], [0; 10]].concat()), Some(8));
        assert_eq!(len(&[&[13, 0, 0, 0, 0, 1, 0, 1][..], &[0; 12]].concat()), Some(20));
        assert_eq!(len(&[&[14, 0, 0, 0, 0, 1, 0, 1][..], &[0; 11]].concat()), Some(8));
        assert_eq!(PacketBuffer::from_name("http.uri"), None);
    }

    #[test]
    fn numbers() {
        for (i, b) in PacketBuffer::ALL.iter().enumerate() {
            assert_eq!((usize::from(b.index()), PacketBuffer::from_index(i as u8)), (i, Some(*b)));
        }
        assert_eq!(PacketBuffer::from_index(12), None);
    }
}
