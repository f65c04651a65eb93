//! Defragmentation inline: fragments are forwarded as they arrive, unless a host could reassemble them differently.
#![allow(clippy::expect_used, reason = "a test fails by it")]

mod common;

use common::fragments::fragment;
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, PacketSink, PacketSource, Refused, Time};

/// A decoder in inline mode, with room for four datagrams.
fn inline() -> Decoder {
    let mut config = DecodeConfig::default();
    config.defrag.inline = true;
    config.defrag.trackers = 4;
    Decoder::new(config)
}

/// The verdict on the captured packet, the number of reassembled datagrams, and whether to drop these.
struct Looks(Option<Option<Refused>>, usize, bool);

impl PacketSink for Looks {
    fn packet(&mut self, p: &Packet<'_>) {
        match p.source {
            PacketSource::Defrag => self.1 += 1,
            _ => self.0 = Some(p.refused),
        }
    }
    fn dropped(&mut self) -> bool {
        self.2
    }
}

fn look(decoder: &mut Decoder, bytes: &[u8], time: i64, dropped: bool) -> (Option<Refused>, usize) {
    let frame =
        Frame { data: bytes, wire_len: bytes.len() as u32, time: Time::new(time, 0), link: LinkType::RAW, number: 1 };
    let mut looks = Looks(None, 0, dropped);
    decoder.decode(&frame, &mut looks);
    (looks.0.expect("the captured packet"), looks.1)
}

#[test]
fn nothing_more_of_a_dropped_datagram() {
    for v6 in [false, true] {
        let mut d = inline();
        let [a, b] = [(0, 2, b'a'), (2, 4, b'b')].map(|p| fragment(v6, 1, 4, p, 64));
        assert_eq!(look(&mut d, &a, 10, true), (None, 0));
        assert_eq!(look(&mut d, &b, 10, true), (None, 1));
        for time in [11, 69] {
            assert_eq!(look(&mut d, &b, time, false), (Some(Refused::Datagram), 0));
            assert_eq!(look(&mut d, &a, time, false), (Some(Refused::Datagram), 0));
        }
        // Another datagram passes, and so does the same number once the dropped one is forgotten.
        assert_eq!(look(&mut d, &fragment(v6, 2, 4, (0, 2, b'a'), 64), 69, false), (None, 0));
        assert_eq!(look(&mut d, &a, 71, false), (None, 0));
        assert_eq!(look(&mut d, &b, 71, false), (None, 1));
        // A fragment of a forwarded datagram may come again.
        assert_eq!(look(&mut d, &b, 71, false), (None, 0));
    }
}

#[test]
fn inline_what_came_first_counts() {
    for v6 in [false, true] {
        let mut d = inline();
        let mut feed = |piece, units, ttl| look(&mut d, &fragment(v6, 1, units, piece, ttl), 10, false);
        assert_eq!(feed((0, 2, b'a'), 6, 64), (None, 0));
        assert_eq!(feed((0, 2, b'x'), 6, 64), (Some(Refused::Unsound), 0));
        assert_eq!(feed((1, 3, b'x'), 6, 64), (Some(Refused::Unsound), 0));
        assert_eq!(feed((0, 2, b'a'), 6, 64), (None, 0), "the same again");
        assert_eq!(feed((4, 6, b'c'), 6, 64), (None, 0));
        assert_eq!(feed((2, 3, b'x'), 3, 64), (Some(Refused::Unsound), 0), "another end");
        assert_eq!(feed((6, 8, b'x'), 9, 64), (Some(Refused::Unsound), 0), "behind the end");
        // A complete datagram is remembered, because a host may lack a part of it: only identical fragments pass.
        assert_eq!(feed((2, 4, b'b'), 6, 64), (None, 1));
        assert_eq!(feed((2, 4, b'x'), 6, 64), (Some(Refused::Datagram), 0), "something else");
        assert_eq!(feed((0, 6, b'a'), 7, 64), (Some(Refused::Datagram), 0), "cut in another way");
        assert_eq!(feed((2, 4, b'b'), 6, 3), (None, 0), "by another way");
        assert_eq!(d.counters.defrag_memcap, 0);
    }
    let mut d = inline();
    let mut odd = fragment(false, 1, 4, (0, 2, b'a'), 64);
    odd[11] ^= 1;
    assert_eq!(look(&mut d, &odd, 10, false), (Some(Refused::Unsound), 0), "a wrong checksum");
    // The first fragment comes again with another next header.
    let first = fragment(true, 9, 4, (0, 2, b'a'), 64);
    let mut other = first.clone();
    other[40] = 59;
    assert_eq!(look(&mut d, &first, 10, false), (None, 0));
    assert_eq!(look(&mut d, &other, 10, false), (Some(Refused::Unsound), 0));
    // Without room, new datagrams are refused, even after one was dropped: the oldest has not timed out.
    for id in 20..23 {
        assert_eq!(look(&mut d, &fragment(false, id, 4, (0, 2, b'a'), 64), 10, false), (None, 0));
    }
    let mut hit = false;
    let late = fragment(false, 30, 4, (0, 2, b'a'), 64);
    let frame =
        Frame { data: &late, wire_len: late.len() as u32, time: Time::new(10, 0), link: LinkType::RAW, number: 1 };
    d.decode(&frame, &mut |p: &Packet<'_>| hit = p.defrag_memcap_hit);
    assert!(hit);
    assert_eq!(look(&mut d, &fragment(false, 20, 4, (2, 4, b'b'), 64), 10, true), (None, 1));
    d.decode(&frame, &mut |p: &Packet<'_>| hit = p.defrag_memcap_hit);
    assert!(hit, "the oldest of all is not over");
}

/// Some hosts accept an IPv6 packet with length 0, and read all received bytes.
#[test]
fn inline_what_has_no_length_is_all_there_is() {
    let udp = [0, 1, 0, 2, 0, 0, 0x12, 0x34, b'h', b'i'];
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    packet.extend_from_slice(&[0xfd; 32]);
    packet.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend_from_slice(&udp);
    let frame =
        Frame { data: &packet, wire_len: packet.len() as u32, time: Time::new(1, 0), link: LinkType::RAW, number: 1 };
    let mut payload = Vec::new();
    inline().decode(&frame, &mut |p: &Packet<'_>| payload.extend_from_slice(p.payload()));
    assert_eq!(payload, b"hi");
    // A second fragment header, after that of an atomic fragment (RFC 6946).
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, 44, 64];
    packet.extend_from_slice(&[0xfd; 32]);
    packet.extend_from_slice(&[44, 0, 0, 0, 0, 0, 0, 1, 17, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0]);
    assert_eq!(look(&mut inline(), &packet, 1, false).0, Some(Refused::Unsound));
}

/// Inline, a sender's fragments without room are not forwarded: a host could reassemble them without inspection.
#[test]
fn inline_a_flood_is_not_let_in() {
    let mut config = DecodeConfig::default();
    config.defrag.inline = true;
    config.defrag.trackers = 40;
    let mut d = Decoder::new(config);
    let mut refused = 0;
    for id in 0..100 {
        let data = fragment(false, id, 4, (0, 2, b'a'), 64);
        let frame =
            Frame { data: &data, wire_len: data.len() as u32, time: Time::new(1, 0), link: LinkType::RAW, number: 1 };
        d.decode(&frame, &mut |p: &Packet<'_>| refused += u32::from(p.defrag_memcap_hit));
    }
    assert_eq!(refused, 90);
    // When the kept datagrams have timed out, the sender has room again.
    assert_eq!(look(&mut d, &fragment(false, 200, 4, (0, 2, b'a'), 64), 62, false), (None, 0));
    assert_eq!(look(&mut d, &fragment(false, 200, 4, (2, 4, b'a'), 64), 62, false), (None, 1));
}
