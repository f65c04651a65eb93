use margay_packet::{DecodeConfig, Decoder, Frame};

use super::super::DropReason;
use super::*;

fn frame(data: &[u8]) -> Frame<'_> {
    Frame { data, wire_len: data.len() as u32, time: Time::new(5, 0), link: LinkType::ETHERNET, number: 0 }
}

/// Calls `look` with the packet of a frame.
fn with<T>(data: &[u8], look: impl Fn(&Packet<'_>) -> T) -> T {
    let mut seen = None;
    let mut sink = |p: &Packet<'_>| seen = Some(look(p));
    Decoder::new(DecodeConfig::default()).decode(&frame(data), &mut sink);
    seen.expect("a packet")
}

fn ethernet(tags: &[[u8; 4]], v4: bool) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    f.extend_from_slice(&tags.concat());
    f.extend_from_slice(if v4 { &[8, 0] } else { &[0x86, 0xdd] });
    f
}

fn addresses(v4: bool) -> (IpAddr, IpAddr) {
    match v4 {
        true => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        false => ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
    }
}

fn tcp(v4: bool, tags: &[[u8; 4]], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut f = ethernet(tags, v4);
    let (from, to) = addresses(v4);
    let mut segment = vec![0x30, 0x39, 0, 80, 0, 0, 0, 100, 0, 0, 0, 200, 0x50, flags, 4, 0, 0, 0, 0, 0];
    segment.extend_from_slice(payload);
    ip(&mut f, from, to, 6, segment.len());
    transport(&mut f, from, to, 6, 16, &segment);
    f
}

fn udp(v4: bool, payload: &[u8]) -> Vec<u8> {
    let mut f = ethernet(&[], v4);
    let (from, to) = addresses(v4);
    let len = 8 + payload.len() as u16;
    let mut datagram = vec![0x30, 0x39, 0, 53];
    datagram.extend_from_slice(&len.to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(payload);
    ip(&mut f, from, to, 17, datagram.len());
    transport(&mut f, from, to, 17, 6, &datagram);
    f
}

fn rejected(whom: Reject) -> PacketVerdict {
    PacketVerdict { drop: Some(DropReason::Rules), reject: true, rejected: Some(whom), ..PacketVerdict::default() }
}

/// All answers to a frame.
fn answers(data: &[u8], whom: Reject, inline: bool) -> Vec<(Side, Vec<u8>)> {
    let mut wire = Wire::new(inline, None);
    wire.begin(data);
    let mut sink = |p: &Packet<'_>| wire.reject(p, rejected(whom), p.time);
    Decoder::new(DecodeConfig::default()).decode(&frame(data), &mut sink);
    wire.decisions.answers().map(|(s, f)| (s, f.to_vec())).collect()
}

#[test]
fn resets_are_what_each_side_expects() {
    for v4 in [true, false] {
        for tags in [&[][..], &[[0x81, 0, 0, 7]], &[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 9]]] {
            let f = tcp(v4, tags, flag::ACK | flag::PSH, b"attack");
            let all = answers(&f, Reject::Both, true);
            assert_eq!(all.iter().map(|a| a.0).collect::<Vec<_>>(), [Side::Source, Side::Destination]);
            let look = |p: &Packet<'_>| {
                assert_eq!(p.checksum_ok(), Some(true));
                assert!(p.events.is_empty(), "{:?}", p.events.as_slice());
                let t = p.tcp().expect("TCP");
                (
                    p.src,
                    p.sport,
                    t.seq(),
                    t.ack(),
                    t.flags(),
                    p.ethernet.expect("Ethernet").dst[5],
                    p.vlans.as_slice().len(),
                )
            };
            let (from, to) = addresses(v4);
            let both = flag::RST | flag::ACK;
            assert_eq!(with(&all[0].1, look), (to, 80, 200, 106, both, 2, tags.len()));
            assert_eq!(with(&all[1].1, look), (from, 0x3039, 100, 200, both, 1, tags.len()), "it was dropped");
            let passive = answers(&f, Reject::Destination, false);
            assert_eq!(with(&passive[0].1, look), (from, 0x3039, 106, 200, both, 1, tags.len()), "it was seen");
        }
    }
    let syn = answers(&tcp(true, &[], flag::SYN, b""), Reject::Source, true);
    let look = |p: &Packet<'_>| p.tcp().map(|t| (t.seq(), t.ack(), t.flags()));
    assert_eq!(with(&syn[0].1, look), Some((0, 101, flag::RST | flag::ACK)));
    assert!(answers(&tcp(true, &[], flag::RST, b""), Reject::Both, true).is_empty(), "none to a reset");
}

#[test]
fn datagrams_are_answered_with_icmp() {
    for v4 in [true, false] {
        let f = udp(v4, &[7; 900]);
        let all = answers(&f, Reject::Both, true);
        assert_eq!(all.len(), 2);
        let (from, to) = addresses(v4);
        for ((_, a), (src, dst)) in all.iter().zip([(to, from), (from, to)]) {
            with(a, |p| {
                assert_eq!((p.src, p.dst, p.icmp), (src, dst, if v4 { (3, 10) } else { (1, 1) }));
                assert_eq!(p.checksum_ok(), Some(true));
            });
        }
        assert!(all[0].1.windows(20).any(|w| w == &f[14..34]), "it quotes the packet");
        // No error answers an error or a multicast packet.
        assert!(answers(&all[0].1, Reject::Source, true).is_empty());
        let mut multicast = f.clone();
        multicast[if v4 { 30 } else { 38 }] = if v4 { 224 } else { 0xff };
        assert!(answers(&multicast, Reject::Source, true).is_empty());
    }
}

#[test]
fn answers_have_a_limit() {
    let f = udp(true, b"x");
    let mut wire = Wire::new(true, None);
    for second in [1, 2] {
        for _ in 0..ANSWERS + 10 {
            with(&f, |_| ());
            let mut sink = |p: &Packet<'_>| wire.reject(p, rejected(Reject::Source), Time::new(second, 0));
            Decoder::new(DecodeConfig::default()).decode(&frame(&f), &mut sink);
        }
    }
    assert_eq!(wire.decisions.answers().len(), 2 * ANSWERS as usize);
    let mut all = Vec::new();
    wire.for_each(3, 4, &mut |name, n| all.push((name.to_owned(), n)));
    assert!(all.contains(&("capture.reject.limited".into(), 20)), "{all:?}");
}

/// The frame as it is forwarded after these replacements.
fn replaced(f: &[u8], what: &[(u32, &[u8])]) -> Option<Vec<u8>> {
    let mut wire = Wire::new(true, None);
    wire.begin(f);
    let mut done = true;
    let mut sink = |p: &Packet<'_>| done &= wire.replace(p, what.iter().copied());
    Decoder::new(DecodeConfig::default()).decode(&frame(f), &mut sink);
    wire.decide(FrameVerdict::default());
    wire.decisions.replacement(0).map(<[u8]>::to_vec).filter(|_| done)
}

#[test]
fn replaced_bytes_have_right_checksums() {
    for v4 in [true, false] {
        for at in [0u32, 1, 2, 3] {
            for f in [tcp(v4, &[[0x81, 0, 0, 7]], flag::ACK, b"an attack!"), udp(v4, b"an attack!")] {
                let changed = replaced(&f, &[(at, b"XYZ"), (at + 3, b"Q")]).expect("changed");
                assert_ne!(changed, f);
                assert_eq!(changed.len(), f.len());
                with(&changed, |p| {
                    assert_eq!(p.checksum_ok(), Some(true));
                    assert_eq!(&p.payload()[at as usize..][..4], b"XYZQ");
                });
            }
        }
    }
    let mut none = udp(true, b"an attack!");
    none[40..42].fill(0);
    let changed = replaced(&none, &[(0, b"AN")]).expect("changed");
    assert_eq!(&changed[40..42], [0, 0], "without one it stays without one");
    // Offsets outside the payload change nothing.
    let f = udp(true, b"short");
    assert_eq!(replaced(&f, &[(3, b"XYZ"), (u32::MAX, b"Q")]), Some(f.clone()));
}

/// A UDP datagram over IPv4 or IPv6 in two fragments, cut at 32 bytes.
fn cut(v4: bool, payload: &[u8]) -> [Vec<u8>; 2] {
    let whole = udp(v4, payload);
    let head = if v4 { 34 } else { 54 };
    let (from, to) = addresses(v4);
    let rest = &whole[head..];
    [(0, &rest[..32], true), (32, &rest[32..], false)].map(|(at, part, more): (u16, &[u8], bool)| {
        let mut f = ethernet(&[], v4);
        let start = f.len();
        if v4 {
            ip(&mut f, from, to, 17, part.len());
            let word = (at / 8) | if more { 0x2000 } else { 0 };
            f[start + 4..start + 8].copy_from_slice(&[0, 7, (word >> 8) as u8, word as u8]);
            f[start + 10..start + 12].fill(0);
            let sum = checksum::internet(&f[start..]);
            f[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip(&mut f, from, to, 44, part.len() + 8);
            f.extend_from_slice(&[17, 0, 0, at as u8 | u8::from(more), 0, 0, 0, 7]);
        }
        f.extend_from_slice(part);
        f
    })
}

#[test]
fn in_fragments_the_last_one_is_written_to() {
    let payload = b"0123456789abcdefghijklmnopqrstuvwxyz";
    for v4 in [true, false] {
        let [first, last] = cut(v4, payload);
        // Offset in the payload; whether the first fragment arrives last; whether the replacement succeeds.
        for (at, first_last, done) in [(3, true, true), (3, false, false), (30, false, false), (22, true, false)] {
            let (a, b) = if first_last { (&last, &first) } else { (&first, &last) };
            let mut decoder = Decoder::new(DecodeConfig::default());
            let mut wire = Wire::new(true, None);
            decoder.decode(&frame(a), &mut |_: &Packet<'_>| {});
            wire.begin(b);
            let mut was = None;
            let mut sink = |p: &Packet<'_>| {
                if p.source == PacketSource::Defrag {
                    was = Some(wire.replace(p, [(at, &b"XYZ"[..])].into_iter()));
                }
            };
            decoder.decode(&frame(b), &mut sink);
            assert_eq!(was, Some(done), "{v4} {at} {first_last}");
            wire.decide(FrameVerdict::default());
            let Some(sent) = wire.decisions.replacement(0) else {
                assert!(!done);
                continue;
            };
            assert_eq!(sent.len(), b.len());
            let mut whole = None;
            let mut sink = |p: &Packet<'_>| {
                if p.source == PacketSource::Defrag {
                    whole = Some((p.checksum_ok(), p.payload().to_vec()));
                }
            };
            let mut decoder = Decoder::new(DecodeConfig::default());
            decoder.decode(&frame(a), &mut sink);
            decoder.decode(&frame(sent), &mut sink);
            let mut other = payload.to_vec();
            other[at as usize..at as usize + 3].copy_from_slice(b"XYZ");
            assert_eq!(whole, Some((Some(true), other)));
        }
    }
}
