//! Decoding of whole frames, from bytes.
#![allow(clippy::panic, reason = "a test fails by it")]

mod common;

use margay_packet::{
    DecodeConfig, DecodeCounters, DecodeEvent as E, Decoder, Frame, L3, L4, LinkType, Packet, PacketSource, Time,
    ipv4_option,
};
use proptest::prelude::*;

/// The properties of a packet that the tests compare.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Seen {
    source: PacketSource,
    link: u32,
    addresses: String,
    proto: u8,
    ports: (u16, u16),
    vlans: Vec<u16>,
    payload: Vec<u8>,
    events: Vec<E>,
    invalid: bool,
}

fn decode_with(config: DecodeConfig, link: LinkType, data: &[u8]) -> (Vec<Seen>, DecodeCounters) {
    let mut d = Decoder::new(config);
    let frame = Frame { data, wire_len: data.len() as u32, time: Time::new(1, 0), link, number: 1 };
    let mut seen = Vec::new();
    d.decode(&frame, &mut |p: &Packet<'_>| {
        seen.push(Seen {
            source: p.source,
            link: p.link.0,
            addresses: format!("{} {}", p.src, p.dst),
            proto: p.proto,
            ports: (p.sport, p.dport),
            vlans: p.vlans.as_slice().to_vec(),
            payload: p.payload().to_vec(),
            events: p.events.as_slice().to_vec(),
            invalid: p.invalid,
        });
    });
    (seen, d.counters)
}

fn decode(data: &[u8]) -> (Vec<Seen>, DecodeCounters) {
    decode_with(DecodeConfig::default(), LinkType::ETHERNET, data)
}

fn eth(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut b = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    b.extend_from_slice(&ether_type.to_be_bytes());
    b.extend_from_slice(payload);
    b
}

fn ipv4(proto: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut b = vec![0x40 | (header / 4) as u8, 0];
    b.extend_from_slice(&((header + payload.len()) as u16).to_be_bytes());
    b.extend_from_slice(&[0, 1, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    b.extend_from_slice(options);
    b.extend_from_slice(payload);
    b
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut b = vec![0x60, 0, 0, 0];
    b.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    b.extend_from_slice(&[next, 64]);
    b.extend_from_slice(&[0x20, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    b.extend_from_slice(&[0x20, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    b.extend_from_slice(payload);
    b
}

fn udp(sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
    let mut b = sport.to_be_bytes().to_vec();
    b.extend_from_slice(&dport.to_be_bytes());
    b.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    b.extend_from_slice(&[0, 0]);
    b.extend_from_slice(payload);
    b
}

fn tcp(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut b =
        vec![0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, ((20 + options.len()) / 4 * 16) as u8, 0x18, 1, 0, 0, 0, 0, 0];
    b.extend_from_slice(options);
    b.extend_from_slice(payload);
    b
}

#[test]
fn udp_in_three_vlans() {
    let ip = ipv4(17, &[], &udp(1, 2, b"hello"));
    let mut tags = vec![0x20, 7, 0x81, 0, 0, 8, 0x81, 0, 0, 9, 8, 0];
    tags.extend_from_slice(&ip);
    let (seen, counters) = decode(&eth(0x88a8, &tags));
    let [p] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((p.proto, p.ports, &p.vlans[..], &p.payload[..]), (17, (1, 2), &[7, 8, 9][..], &b"hello"[..]));
    assert_eq!((counters.vlan, counters.vlan_qinq, counters.vlan_qinqinq, counters.udp), (1, 1, 1, 1));
    assert_eq!(p.events, []);
}

#[test]
fn ethernet_padding_is_no_payload() {
    let mut frame = eth(0x800, &ipv4(17, &[], &udp(1, 2, b"a")));
    frame.resize(60, 0xee);
    assert_eq!(decode(&frame).0[0].payload, b"a");
}

#[test]
fn tcp_options_are_read() {
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4, 1, 0];
    let frame = eth(0x800, &ipv4(6, &[], &tcp(&options, b"x")));
    let mut d = Decoder::new(DecodeConfig::default());
    let frame = Frame { data: &frame, wire_len: 0, time: Time(0), link: LinkType::ETHERNET, number: 1 };
    let mut checked = false;
    d.decode(&frame, &mut |p: &Packet<'_>| {
        let o = p.tcp_options;
        assert_eq!((o.mss, o.window_scale, o.sack_ok, o.timestamp), (Some(1460), Some(7), true, Some((1, 2))));
        assert_eq!((o.sack_count, o.sack[0], o.count), (1, (3, 4), 5));
        assert_eq!(p.payload(), b"x");
        assert_eq!(p.tcp().map(|t| (t.seq(), t.ack())), Some((1, 2)));
        checked = true;
    });
    assert!(checked);
}

/// Of an option that occurs twice, hosts use the last one. They use 14 for a window scale that is too large.
#[test]
fn the_last_of_two_tcp_options_counts() {
    let options = [
        &[2, 4, 0, 1, 2, 4, 0, 9, 3, 3, 2, 3, 3, 15, 1, 1][..],
        &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8],
    ];
    let frame = eth(0x800, &ipv4(6, &[], &tcp(&options.concat(), b"x")));
    let mut d = Decoder::new(DecodeConfig::default());
    let frame = Frame { data: &frame, wire_len: 0, time: Time(0), link: LinkType::ETHERNET, number: 1 };
    let mut checked = false;
    d.decode(&frame, &mut |p: &Packet<'_>| {
        let o = p.tcp_options;
        assert_eq!((o.mss, o.window_scale, o.timestamp), (Some(9), Some(14), Some((7, 8))));
        assert_eq!(p.events.as_slice().iter().filter(|e| **e == E::TcpOptDuplicate).count(), 3);
        assert_eq!(p.ttl(), Some(64));
        checked = true;
    });
    assert!(checked);
    let sack = [5, 10, 0, 0, 0, 3, 0, 0, 0, 4, 5, 10, 0, 0, 0, 5, 0, 0, 0, 6];
    let frame = eth(0x800, &ipv4(6, &[], &tcp(&sack, b"x")));
    let frame = Frame { data: &frame, wire_len: 0, time: Time(0), link: LinkType::ETHERNET, number: 1 };
    d.decode(&frame, &mut |p: &Packet<'_>| {
        assert_eq!((p.tcp_options.sack_count, p.tcp_options.sack[0]), (1, (5, 6)));
    });
}

#[test]
fn repeated_option_events_are_kept() {
    // Two options with the wrong length for their kind. All options together have 12 bytes, which is not a multiple of 8.
    let (seen, counters) = decode(&eth(0x800, &ipv4(17, &[0x88, 3, 0, 0x94, 3, 0, 1, 1, 1, 1, 1, 0], &udp(1, 2, b""))));
    assert_eq!(seen[0].events, [E::Ipv4OptPadRequired, E::Ipv4OptInvalidLen, E::Ipv4OptInvalidLen]);
    assert!(seen[0].invalid);
    assert_eq!((counters.invalid, counters.event(E::Ipv4OptInvalidLen)), (1, 2));
}

#[test]
fn events_without_room_are_counted() {
    let (seen, counters) = decode(&eth(0x800, &ipv4(17, &[0x1e, 2].repeat(20), &udp(1, 2, b""))));
    assert_eq!(seen[0].events, [E::Ipv4OptInvalid; 15]);
    assert_eq!((counters.event(E::Ipv4OptInvalid), counters.events_dropped), (15, 5));
}

#[test]
fn ipv4_options_are_noted() {
    let frame = eth(0x800, &ipv4(17, &[7, 3, 4, 1, 0x94, 4, 0, 0], &udp(1, 2, b"")));
    let mut d = Decoder::new(DecodeConfig::default());
    let frame = Frame { data: &frame, wire_len: 0, time: Time(0), link: LinkType::ETHERNET, number: 1 };
    d.decode(&frame, &mut |p: &Packet<'_>| {
        let L3::Ipv4 { options, header_len, offset } = p.l3 else { panic!("{:?}", p.l3) };
        assert_eq!(options, ipv4_option::RR | ipv4_option::NOP | ipv4_option::RTRALT);
        assert_eq!((offset, header_len), (14, 28));
        assert_eq!(p.l4, L4::Udp { offset: 42 });
    });
}

#[test]
fn a_truncated_packet_has_no_addresses() {
    let mut frame = eth(0x800, &ipv4(17, &[], &udp(1, 2, b"abc")));
    frame.pop();
    let (seen, counters) = decode(&frame);
    assert_eq!(seen[0].events, [E::Ipv4TruncPkt]);
    assert_eq!(seen[0].addresses, "0.0.0.0 0.0.0.0");
    assert_eq!(counters.invalid, 1);
}

#[test]
fn tunnels_give_inner_packets_first() {
    let inner = ipv4(17, &[], &udp(5, 6, b"in"));
    let gre: Vec<u8> = [&[0, 0, 8, 0][..], &inner].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &eth(0x800, &inner)].concat();
    let geneve = [&[0, 0, 0x65, 0x58, 0, 0, 5, 0][..], &eth(0x800, &inner)].concat();
    let erspan = [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 9, 0, 0, 0, 0, 0, 0][..], &eth(0x800, &inner)].concat();
    let pptp = [&[0x30, 1, 0x88, 0x0b, 0, 32, 0, 0, 0, 0, 0, 1, 0xff, 3, 0, 0x21][..], &inner].concat();
    let cases = [
        (eth(0x800, &ipv4(47, &[], &gre)), PacketSource::Gre),
        (eth(0x800, &ipv4(47, &[], &erspan)), PacketSource::Gre),
        (eth(0x800, &ipv4(47, &[], &pptp)), PacketSource::Gre),
        (eth(0x800, &ipv4(4, &[], &inner)), PacketSource::Ipv4Tunnel),
        (eth(0x86dd, &ipv6(4, &inner)), PacketSource::Ipv6Tunnel),
        (eth(0x800, &ipv4(17, &[], &udp(9, 4789, &vxlan))), PacketSource::Vxlan),
        (eth(0x800, &ipv4(17, &[], &udp(9, 6081, &geneve))), PacketSource::Geneve),
        (eth(0x800, &ipv4(41, &[], &ipv6(17, &udp(5, 6, b"in")))), PacketSource::Ipv4Tunnel),
        (eth(0x86dd, &ipv6(41, &ipv6(17, &udp(5, 6, b"in")))), PacketSource::Ipv6Tunnel),
        (eth(0x800, &ipv4(17, &[], &udp(9, 3544, &ipv6(17, &udp(5, 6, b"in"))))), PacketSource::Teredo),
    ];
    for (frame, source) in cases {
        let (seen, _) = decode(&frame);
        let [inner, outer] = &seen[..] else { panic!("{source:?} {seen:?}") };
        assert_eq!((inner.source, inner.ports, &inner.payload[..], inner.link), (source, (5, 6), &b"in"[..], 12));
        assert_eq!((outer.source, outer.link), (PacketSource::Wire, 1));
        assert_eq!((&inner.events[..], &outer.events[..]), (&[][..], &[][..]));
    }
}

#[test]
fn a_broken_inner_header_is_no_packet() {
    let gre = [0, 0, 8, 0, 0x45, 0, 0];
    let (seen, counters) = decode(&eth(0x800, &ipv4(47, &[], &gre)));
    assert_eq!(seen.len(), 1);
    assert_eq!((counters.ipv4, counters.invalid), (2, 0));
}

#[test]
fn layers_are_limited() {
    let mut b = ipv4(17, &[], &udp(1, 2, b""));
    for _ in 0..40 {
        b = ipv4(47, &[], &[&[0, 0, 8, 0][..], &b].concat());
    }
    let (seen, counters) = decode(&eth(0x800, &b));
    assert_eq!(counters.too_many_layers, 1);
    assert_eq!(seen.len(), 5);
    assert!(seen[0].events.contains(&E::TooManyLayers));
}

/// Which headers count: measured beside Suricata 7, as the lowest limit with which the packet is decoded.
#[test]
fn headers_that_count_towards_the_limit() {
    let ip = ipv4(17, &[], &udp(1, 2, b"l"));
    let [mut sll, mut sll2] = [vec![0; 16], vec![0; 20]];
    sll[14] = 8;
    sll2[0] = 8;
    let cases: [(&str, LinkType, Vec<u8>, u8); 9] = [
        ("raw", LinkType::RAW, ip.clone(), 2),
        ("null", LinkType::NULL, [&[2, 0, 0, 0][..], &ip].concat(), 2),
        ("Ethernet", LinkType::ETHERNET, eth(0x800, &ip), 3),
        ("SLL", LinkType::LINUX_SLL, [sll, ip.clone()].concat(), 3),
        ("SLL2", LinkType::LINUX_SLL2, [sll2, ip.clone()].concat(), 3),
        ("HDLC", LinkType::CHDLC, [&[0x0f, 0, 8, 0][..], &ip].concat(), 3),
        ("PPP", LinkType::PPP, [&[0xff, 3, 0, 0x21][..], &ip].concat(), 3),
        ("ESP", LinkType::RAW, ipv4(50, &[], &[1; 16]), 3),
        ("TCP", LinkType::RAW, ipv4(6, &[], &tcp(&[], b"")), 2),
    ];
    for (name, link, bytes, least) in cases {
        for max_layers in 1..5 {
            let config = DecodeConfig { max_layers, ..DecodeConfig::default() };
            let (seen, counters) = decode_with(config, link, &bytes);
            let decoded = max_layers >= least;
            assert_eq!(!seen[0].events.contains(&E::TooManyLayers), decoded, "{name} {max_layers}");
            assert_eq!(counters.too_many_layers, u64::from(!decoded), "{name} {max_layers}");
        }
    }
}

/// A raw IP packet with a fragment of a datagram: `data` from byte `start` on to `end`.
fn fragment(id: u16, proto: u8, data: &[u8], start: usize, end: usize) -> Vec<u8> {
    let mut b = ipv4(proto, &[], &data[start..end]);
    b[4..6].copy_from_slice(&id.to_be_bytes());
    b[6..8].copy_from_slice(&(u16::from(end < data.len()) << 13 | (start / 8) as u16).to_be_bytes());
    b
}

/// Decodes a raw IP packet and counts the datagrams that it completes.
fn completed(d: &mut Decoder, data: &[u8]) -> usize {
    let frame = Frame { data, wire_len: data.len() as u32, time: Time::new(1, 0), link: LinkType::RAW, number: 1 };
    let mut count = 0;
    d.decode(&frame, &mut |p: &Packet<'_>| count += usize::from(p.source == PacketSource::Defrag));
    count
}

#[test]
fn a_datagram_has_the_whole_limit_of_layers() {
    let data = udp(1, 2, b"datagram");
    for (max_layers, whole) in [(1, 0), (2, 1), (3, 1)] {
        let mut d = Decoder::new(DecodeConfig { max_layers, ..DecodeConfig::default() });
        let parts = [(0, 8), (8, 16)].map(|(start, end)| fragment(1, 17, &data, start, end));
        assert_eq!(parts.map(|part| completed(&mut d, &part)), [0, whole], "{max_layers}");
    }
}

/// Each of fifty datagrams has the last fragment of the next one inside: one packet must not complete all of them.
#[test]
fn datagrams_that_complete_each_other_stay_within_the_limit_of_layers() {
    let mut d = Decoder::new(DecodeConfig::default());
    let mut data = udp(1, 2, b"datagram");
    for id in 0..50 {
        let proto = if id == 0 { 17 } else { 4 };
        assert_eq!(completed(&mut d, &fragment(id, proto, &data, 0, 8)), 0);
        data = fragment(id, proto, &data, 8, data.len());
    }
    let count = completed(&mut d, &data);
    assert!((2..16).contains(&count), "{count}");
    assert_eq!(d.counters.too_many_layers, 1);
}

#[test]
fn cisco_fabric_path_and_arp() {
    let (seen, counters) = decode(&eth(0x8903, &[&[0, 0][..], &eth(0x800, &ipv4(17, &[], &udp(1, 2, b"d")))].concat()));
    assert_eq!(seen[0].payload, b"d");
    assert_eq!(counters.ethernet, 2);
    assert_eq!(decode(&eth(0x8903, &[0; 15])).0[0].events, [E::DcePktTooSmall]);
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.resize(28, 1);
    let (_, counters) = decode(&eth(0x806, &arp));
    assert_eq!((counters.arp, counters.invalid), (1, 0));
}

#[test]
fn link_types() {
    let ip = ipv4(17, &[], &udp(1, 2, b"l"));
    let ip6 = ipv6(17, &udp(1, 2, b"l"));
    let cases: [(u32, Vec<u8>); 13] = [
        (0, [&[2, 0, 0, 0][..], &ip].concat()),
        (0, [&[30, 0, 0, 0][..], &ip6].concat()),
        (108, [&[0, 0, 0, 2][..], &ip].concat()),
        (9, [&[0xff, 3, 0, 0x21][..], &ip].concat()),
        (9, [&[0x21][..], &ip].concat()),
        (9, [&[0, 0x57][..], &ip6].concat()),
        (12, ip.clone()),
        (101, ip6.clone()),
        (228, ip.clone()),
        (229, ip6.clone()),
        (104, [&[0x0f, 0, 8, 0][..], &ip].concat()),
        (113, [&[0; 14][..], &[8, 0], &ip].concat()),
        (276, [&[8, 0][..], &[0; 18], &ip].concat()),
    ];
    for (link, frame) in cases {
        let (seen, _) = decode_with(DecodeConfig::default(), LinkType(link), &frame);
        assert_eq!((&seen[0].payload[..], &seen[0].events[..]), (&b"l"[..], &[][..]), "{link}");
    }
}

#[test]
fn checksums() {
    let good = [
        0x45, 0, 0, 0x1d, 0, 1, 0, 0, 0x40, 0x11, 0x66, 0xcd, 0x0a, 0, 0, 1, 0x0a, 0, 0, 2, 0, 5, 0, 6, 0, 9, 0x8b,
        0xce, 0x60,
    ];
    let check = |data: &[u8], ignore: bool| {
        let mut d = Decoder::new(DecodeConfig { ignore_checksums: ignore, ..DecodeConfig::default() });
        let mut result = None;
        let frame = Frame { data, wire_len: 0, time: Time(0), link: LinkType::RAW, number: 1 };
        d.decode(&frame, &mut |p: &Packet<'_>| {
            result = Some((p.ipv4_checksum_ok(), p.l4_checksum_ok(), p.checksum_ok()))
        });
        result
    };
    assert_eq!(check(&good, false), Some((Some(true), Some(true), Some(true))));
    let mut bad = good;
    bad[28] ^= 1;
    assert_eq!(check(&bad, false), Some((Some(true), Some(false), Some(false))));
    assert_eq!(check(&bad, true), Some((Some(true), Some(true), Some(true))));
    bad = good;
    bad[8] ^= 1;
    assert_eq!(check(&bad, false), Some((Some(false), Some(true), Some(false))));
}

#[test]
fn counter_names() {
    let mut names = Vec::new();
    DecodeCounters::default().for_each(&mut |name, _| names.push(name.to_string()));
    for name in ["decoder.pkts", "decoder.avg_pkt_size", "decoder.event.ipv4.trunc_pkt", "defrag.ipv6.reassembled"] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}

const LINKS: [u32; 11] = [0, 1, 9, 12, 101, 104, 108, 113, 228, 229, 276];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_do_no_harm(data in proptest::collection::vec(any::<u8>(), 0..200), link in 0..LINKS.len()) {
        let config = DecodeConfig { vntag: true, ..DecodeConfig::default() };
        let (seen, counters) = decode_with(config, LinkType(LINKS[link]), &data);
        prop_assert!(!seen.is_empty());
        prop_assert_eq!(counters.pkts, 1);
    }

    /// Valid frames of many kinds, with some bytes changed and the end cut off.
    #[test]
    fn damaged_frames_do_no_harm(
        kind in 0usize..8,
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        cut in any::<u16>(),
    ) {
        let inner = ipv4(6, &[7, 3, 4, 0], &tcp(&[2, 4, 5, 0xb4, 1, 3, 3, 7], b"payload"));
        let ports = [4789, 6081, 3544];
        let mut frame = match kind {
            0 => eth(0x800, &inner),
            1 => eth(0x800, &ipv4(47, &[], &[&[0x70, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat())),
            2 => eth(0x86dd, &ipv6(0, &[&[60, 0, 1, 4, 0, 0, 0, 0, 44, 0, 5, 2, 0, 0, 1, 0, 4, 0, 0, 1, 0, 0, 0, 9][..], &inner].concat())),
            3..=5 => eth(0x800, &ipv4(17, &[], &udp(1, ports[kind - 3], &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &eth(0x800, &inner)].concat()))),
            6 => eth(0x8847, &[&[0, 1, 1, 64, 0, 0, 0, 0][..], &eth(0x894f, &[&[0, 6, 1, 3, 0, 0, 0, 1][..], &[0; 16], &eth(0x800, &inner)].concat())].concat()),
            _ => eth(0x8864, &[&[0x11, 0, 0, 1, 0, 90, 0, 0x21][..], &inner].concat()),
        };
        for (at, byte) in changes {
            let at = usize::from(at) % frame.len();
            frame[at] = byte;
        }
        frame.truncate(usize::from(cut) % (frame.len() * 2) + 1);
        let (seen, _) = decode(&frame);
        prop_assert!(!seen.is_empty());
    }
}
