//! Defragmentation: datagrams cut, reordered and overlapped at random, compared with a model that decides byte by byte, and with Linux.
#![allow(clippy::expect_used, reason = "a test fails by it")]

mod common;

use common::fragments::{Piece, fragment, ipv4_fragment, ipv6_fragment};

use margay_packet::{
    DecodeConfig, DecodeEvent, Decoder, Frame, LinkType, Packet, PacketSource, Policy, Time, checksum,
};
use proptest::prelude::*;

const POLICIES: [Policy; 7] =
    [Policy::First, Policy::Last, Policy::Bsd, Policy::BsdRight, Policy::OldLinux, Policy::Solaris, Policy::Windows];

/// The content of a datagram of `units` if each byte is decided separately; `None` if bytes are missing.
fn model(policy: Policy, units: usize, pieces: &[Piece]) -> Option<Vec<u8>> {
    let mut owner: Vec<Option<Piece>> = vec![None; units];
    for &new in pieces {
        for slot in &mut owner[new.0..new.1] {
            let wins = match *slot {
                None => true,
                Some(old) => match policy {
                    Policy::First => false,
                    Policy::Last => true,
                    Policy::Bsd => old.0 > new.0,
                    Policy::BsdRight => old.0 <= new.0,
                    Policy::OldLinux | Policy::Linux => old.0 >= new.0,
                    Policy::Solaris => new.0 < old.0 && new.1 >= old.1,
                    Policy::Windows => new.0 < old.0 && new.1 > old.1,
                },
            };
            if wins {
                *slot = Some(new);
            }
        }
    }
    owner.into_iter().map(|o| o.map(|(_, _, b)| b)).collect::<Option<Vec<u8>>>()
}

/// Linux's reassembly: takes one piece after the other, and returns the datagram that a piece completes.
#[derive(Default)]
struct LinuxModel {
    /// The kept fragments in the order of arrival, each with the number of its run of adjoining fragments.
    kept: Vec<(Piece, usize)>,
    runs: usize,
}

impl LinuxModel {
    fn take(&mut self, units: usize, new: Piece) -> Option<Vec<u8>> {
        let furthest = self.kept.iter().max_by_key(|k| k.0.1).copied();
        let overlaps = self.kept.iter().any(|k| k.0.0 < new.1 && new.0 < k.0.1);
        let within = (0..self.runs).any(|run| {
            let of: Vec<&Piece> = self.kept.iter().filter(|k| k.1 == run).map(|k| &k.0).collect();
            let from = of.iter().map(|p| p.0).min().unwrap_or(usize::MAX);
            let to = of.iter().map(|p| p.1).max().unwrap_or(0);
            from <= new.0 && new.1 <= to
        });
        if overlaps && !within {
            *self = LinuxModel::default();
            return None;
        }
        if overlaps {
            return None;
        }
        let run = match furthest {
            Some((last, run)) if last.1 == new.0 => run,
            _ => {
                self.runs += 1;
                self.runs - 1
            }
        };
        self.kept.push((new, run));
        let mut bytes = vec![None; units];
        for ((from, to, byte), _) in &self.kept {
            bytes[*from..*to].fill(Some(*byte));
        }
        let whole = bytes.into_iter().collect::<Option<Vec<u8>>>();
        if whole.is_some() {
            *self = LinuxModel::default();
        }
        whole
    }
}

fn decoder(policy: Policy) -> Decoder {
    let mut config = DecodeConfig::default();
    config.defrag.default_policy = policy;
    config.defrag.hash_size = 16;
    Decoder::new(config)
}

/// Decodes a raw IP packet; returns the payloads of the datagrams that it completes.
fn feed(decoder: &mut Decoder, bytes: &[u8], time: i64) -> Vec<Vec<u8>> {
    let frame =
        Frame { data: bytes, wire_len: bytes.len() as u32, time: Time::new(time, 0), link: LinkType::RAW, number: 1 };
    let mut out = Vec::new();
    decoder.decode(&frame, &mut |p: &Packet<'_>| {
        if p.source == PacketSource::Defrag {
            assert!(!p.fragment);
            if p.src.is_ipv4() {
                assert_eq!(p.ipv4_checksum_ok(), Some(true));
            }
            out.push(p.payload().to_vec());
        }
    });
    out
}

/// Arbitrary pieces, plus pieces that together cover the whole datagram, shuffled.
fn pieces() -> impl Strategy<Value = (usize, Vec<Piece>)> {
    (2usize..20)
        .prop_flat_map(|units| {
            let any_piece = (0..units, 1..=units).prop_map(move |(s, l)| (s, (s + l).min(units)));
            (Just(units), proptest::collection::vec(any_piece, 1..8), proptest::collection::vec(1usize..4, 20))
                .prop_flat_map(|(units, mut list, cuts)| {
                    let mut at = 0;
                    for cut in cuts {
                        if at < units {
                            list.push((at, (at + cut).min(units)));
                            at = (at + cut).min(units);
                        }
                    }
                    if at < units {
                        list.push((at, units));
                    }
                    (Just(units), Just(list).prop_shuffle())
                })
        })
        .prop_map(|(units, list)| {
            let pieces = list.into_iter().enumerate().map(|(n, (s, e))| (s, e, b'a' + n as u8)).collect();
            (units, pieces)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlaps_follow_the_policy((units, pieces) in pieces(), policy in 0..POLICIES.len(), v6: bool) {
        let policy = POLICIES[policy];
        let mut decoder = decoder(policy);
        let mut done = None;
        for (n, &piece) in pieces.iter().enumerate() {
            let bytes = if v6 { ipv6_fragment(7, units, piece, 253) } else { ipv4_fragment(7, units, piece, 253) };
            let whole = feed(&mut decoder, &bytes, 100);
            // A piece with the whole datagram is not a fragment, so nothing is reassembled.
            if piece.1 - piece.0 == units {
                prop_assert!(whole.is_empty());
                return Ok(());
            }
            let expected = model(policy, units, &pieces[..=n]);
            prop_assert_eq!(whole.is_empty(), expected.is_none());
            if let Some(expected) = expected {
                let expected: Vec<u8> = expected.into_iter().flat_map(|b| [b; 8]).collect();
                prop_assert_eq!(&whole[0], &expected);
                done = Some(n);
                break;
            }
        }
        prop_assert!(done.is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn linux_forgets_what_overlaps((units, pieces) in pieces(), v6: bool) {
        let mut decoder = decoder(Policy::Linux);
        let mut model = LinuxModel::default();
        for &piece in pieces.iter().filter(|p| p.1 - p.0 < units) {
            let bytes = if v6 { ipv6_fragment(7, units, piece, 253) } else { ipv4_fragment(7, units, piece, 253) };
            let whole = feed(&mut decoder, &bytes, 100);
            let expected: Option<Vec<u8>> =
                model.take(units, piece).map(|d| d.into_iter().flat_map(|b| [b; 8]).collect());
            prop_assert_eq!(whole.first(), expected.as_ref());
        }
    }
}

/// Linux discards a datagram if two fragments disagree about its end, or if one is empty.
#[test]
fn linux_forgets_what_makes_no_sense() {
    for v6 in [false, true] {
        let fragment = |units, piece| match v6 {
            true => ipv6_fragment(7, units, piece, 253),
            false => ipv4_fragment(7, units, piece, 253),
        };
        for odd in [fragment(3, (2, 3, b'x')), fragment(9, (4, 5, b'x')), fragment(9, (1, 1, b'x'))] {
            let mut d = decoder(Policy::Linux);
            for bytes in [&fragment(4, (0, 1, b'a')), &fragment(4, (3, 4, b'd')), &odd, &fragment(4, (1, 3, b'b'))] {
                assert!(feed(&mut d, bytes, 1).is_empty());
            }
            assert!(feed(&mut d, &fragment(4, (0, 1, b'a')), 1).is_empty());
            assert_eq!(feed(&mut d, &fragment(4, (3, 4, b'd')), 1).len(), 1);
        }
    }
}

/// Linux forgets a datagram 30 seconds (IPv6: 60) after its first fragment. A fragment at about that time raises an event.
#[test]
fn linux_counts_from_the_first_fragment() {
    for (v6, lives) in [(false, 30), (true, 60)] {
        let fragment = |piece| match v6 {
            true => ipv6_fragment(7, 4, piece, 253),
            false => ipv4_fragment(7, 4, piece, 253),
        };
        let late = if v6 { DecodeEvent::Ipv6FragLate } else { DecodeEvent::Ipv4FragLate };
        let mut d = decoder(Policy::Linux);
        feed(&mut d, &fragment((0, 1, b'a')), 100);
        feed(&mut d, &fragment((1, 2, b'b')), 100 + lives - 2);
        // The first datagram is forgotten, and this fragment begins another.
        assert!(feed(&mut d, &fragment((2, 4, b'c')), 100 + lives + 1).is_empty());
        assert_eq!(d.counters.event(late), 0);
        assert!(feed(&mut d, &fragment((1, 2, b'y')), 100 + lives + 1).is_empty());
        let whole = feed(&mut d, &fragment((0, 1, b'x')), 100 + lives + 1);
        assert_eq!(whole.concat(), [[b'x'; 8], [b'y'; 8], [b'c'; 8], [b'c'; 8]].concat());
        feed(&mut d, &fragment((0, 1, b'a')), 500);
        feed(&mut d, &fragment((1, 2, b'b')), 500 + lives);
        assert_eq!(d.counters.event(late), 1);
    }
}

/// After 64 other fragments of the sender to the same host, Linux starts a datagram over. IPv6 has no such limit.
#[test]
fn linux_starts_over_after_many_other_fragments() {
    for (v6, others, whole) in [(false, 63, true), (false, 64, false), (true, 64, true)] {
        let fragment = |id, piece| match v6 {
            true => ipv6_fragment(id, 2, piece, 253),
            false => ipv4_fragment(id as u16, 2, piece, 253),
        };
        let mut d = decoder(Policy::Linux);
        feed(&mut d, &fragment(1, (0, 1, b'a')), 1);
        (0..others).for_each(|n| drop(feed(&mut d, &fragment(100 + n, (0, 1, b'o')), 1)));
        assert_eq!(feed(&mut d, &fragment(1, (1, 2, b'b')), 1).len(), usize::from(whole), "{v6} {others}");
    }
}

/// A host may have lost a fragment behind the sensor: a replacement after the datagram was complete here raises an event.
#[test]
fn what_comes_after_a_datagram_was_whole() {
    for v6 in [false, true] {
        let mut d = decoder(Policy::Linux);
        let again = if v6 { DecodeEvent::Ipv6FragAgain } else { DecodeEvent::Ipv4FragAgain };
        let [a, b, other] = [(0, 2, b'a'), (2, 4, b'b'), (2, 4, b'x')].map(|p| fragment(v6, 1, 4, p, 64));
        assert_eq!(feed(&mut d, &a, 1).len() + feed(&mut d, &b, 1).len(), 1);
        // Identical copies, as a link may make them, raise no event.
        assert_eq!(feed(&mut d, &a, 1).len() + feed(&mut d, &b, 1).len(), 1);
        feed(&mut d, &a, 1);
        assert_eq!(d.counters.event(again), 0);
        assert_eq!(feed(&mut d, &other, 2).len(), 1, "with the first one, come again");
        assert_eq!(d.counters.event(again), 1);
        // Both versions are known now, so neither raises an event. A fragment long after belongs to another datagram.
        assert!(feed(&mut d, &b, 2).is_empty());
        feed(&mut d, &fragment(v6, 1, 5, (2, 4, b'y'), 64), 100);
        assert_eq!(d.counters.event(again), 1);
    }
}

/// As [`what_comes_after_a_datagram_was_whole`], with one fragment alone.
#[test]
fn one_fragment_after_a_datagram_was_whole() {
    for v6 in [false, true] {
        let mut d = decoder(Policy::Linux);
        let again = if v6 { DecodeEvent::Ipv6FragAgain } else { DecodeEvent::Ipv4FragAgain };
        let [a, b, other] = [(0, 2, b'a'), (2, 4, b'b'), (2, 4, b'x')].map(|p| fragment(v6, 1, 4, p, 64));
        assert_eq!(feed(&mut d, &a, 1).len() + feed(&mut d, &b, 1).len(), 1);
        assert!(feed(&mut d, &other, 2).is_empty());
        assert_eq!(d.counters.event(again), 1);
        // The replacement may also belong to another datagram with that number, so it is reassembled.
        assert_eq!(feed(&mut d, &a, 2).len(), 1);
        // A fragment long after does belong to another datagram.
        feed(&mut d, &b, 100);
        assert_eq!(d.counters.event(again), 1);
    }
}

/// Linux ignores a first IPv6 fragment without the whole transport header. A first IPv4 fragment may be of any length.
#[test]
fn linux_wants_all_headers_in_the_first_fragment() {
    let mut d = decoder(Policy::Linux);
    feed(&mut d, &ipv6_fragment(1, 4, (0, 2, b'x'), 6), 1);
    feed(&mut d, &ipv6_fragment(1, 4, (3, 4, b'c'), 6), 1);
    let whole = feed(&mut d, &ipv6_fragment(1, 4, (0, 3, b'a'), 6), 1);
    assert_eq!(whole.len(), 1, "the short one was left out");
    assert_eq!(d.counters.event(DecodeEvent::Ipv6FragIgnored), 1);
    feed(&mut d, &ipv4_fragment(1, 4, (0, 2, b'x'), 6), 1);
    assert_eq!(feed(&mut d, &ipv4_fragment(1, 4, (2, 4, b'c'), 6), 1).len(), 1);
}

/// Every host discards a fragment with a wrong header checksum. The engine does so unless it ignores checksums.
#[test]
fn a_wrong_checksum_is_looked_at_where_it_counts() {
    for checksums in [false, true] {
        let mut config = DecodeConfig::default();
        config.defrag.checksums = checksums;
        let mut d = Decoder::new(config);
        let [a, b] = [(0, 1, b'a'), (1, 2, b'b')].map(|p| fragment(false, 1, 2, p, 64));
        let mut wrong = fragment(false, 1, 2, (0, 1, b'x'), 64);
        wrong[10] ^= 1;
        feed(&mut d, &wrong, 1);
        feed(&mut d, &a, 1);
        let whole = feed(&mut d, &b, 1);
        assert_eq!(whole.concat(), [[if checksums { b'a' } else { b'x' }; 8], [b'b'; 8]].concat());
    }
}

#[test]
fn a_datagram_is_put_together_with_its_headers() {
    let mut decoder = decoder(Policy::Bsd);
    let first = ipv4_fragment(1, 3, (0, 2, b'x'), 17);
    let last = ipv4_fragment(1, 3, (2, 3, b'y'), 17);
    let time = Time::new(1, 0);
    let mut got = Vec::new();
    for data in [&last, &first] {
        let frame = Frame { data, wire_len: data.len() as u32, time, link: LinkType::RAW, number: 1 };
        decoder
            .decode(&frame, &mut |p: &Packet<'_>| got.push((p.source, p.data.to_vec(), p.fragment, p.outer.is_some())));
    }
    let mut whole = vec![0x45, 0, 0, 44, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = checksum::internet(&whole).to_be_bytes();
    whole[10..12].copy_from_slice(&sum);
    whole.extend_from_slice(&[b'x'; 16]);
    whole.extend_from_slice(&[b'y'; 8]);
    assert_eq!(got.len(), 3);
    assert_eq!(got[0], (PacketSource::Wire, last, true, false));
    assert_eq!(got[1], (PacketSource::Defrag, whole, false, true));
    assert_eq!(got[2], (PacketSource::Wire, first, true, false));
    assert_eq!(decoder.counters.defrag_ipv4_fragments, 2);
    assert_eq!(decoder.counters.defrag_ipv4_reassembled, 1);
}

#[test]
fn protocols_identifications_and_vlans_keep_datagrams_apart() {
    let mut d = decoder(Policy::Bsd);
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (0, 1, b'a'), 253), 1).is_empty());
    assert!(feed(&mut d, &ipv4_fragment(2, 2, (1, 2, b'b'), 253), 1).is_empty());
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (1, 2, b'b'), 254), 1).is_empty());
    assert_eq!(feed(&mut d, &ipv4_fragment(1, 2, (1, 2, b'b'), 253), 1).len(), 1);
}

#[test]
fn an_incomplete_datagram_times_out() {
    let mut d = decoder(Policy::Bsd);
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (0, 1, b'a'), 253), 100).is_empty());
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (1, 2, b'b'), 253), 161).is_empty());
    assert_eq!(d.counters.defrag_tracker_timeout, 1);
    assert_eq!(feed(&mut d, &ipv4_fragment(1, 2, (0, 1, b'a'), 253), 200).len(), 1);
}

/// The longest prefix that contains the destination has its timeout.
#[test]
fn hosts_have_timeouts_of_their_own() {
    for (timeouts, late) in
        [(vec![("10.0.0.0", 8, 20)], true), (vec![("10.0.0.0", 8, 20), ("10.0.0.2", 32, 90)], false)]
    {
        let mut config = DecodeConfig::default();
        config.defrag.timeouts = timeouts.into_iter().map(|(a, p, s)| (a.parse().unwrap(), p, s)).collect();
        let mut d = Decoder::new(config);
        assert!(feed(&mut d, &ipv4_fragment(1, 2, (0, 1, b'a'), 253), 100).is_empty());
        assert_eq!(feed(&mut d, &ipv4_fragment(1, 2, (1, 2, b'b'), 253), 180).is_empty(), late);
        assert_eq!(d.counters.defrag_tracker_timeout, u64::from(late));
    }
}

#[test]
fn tables_stay_within_their_limits() {
    let mut config = DecodeConfig::default();
    config.defrag.trackers = 4;
    config.defrag.hash_size = 1;
    let mut d = Decoder::new(config);
    for id in 0..100 {
        feed(&mut d, &ipv4_fragment(id, 2, (0, 1, b'a'), 253), 100);
    }
    assert_eq!(d.counters.defrag_max_trackers_reached, 96);
    assert_eq!(d.counters.defrag_tracker_hard_reuse, 96);
    // The newest are still there, the oldest are not.
    assert_eq!(feed(&mut d, &ipv4_fragment(99, 2, (1, 2, b'b'), 253), 100).len(), 1);
    assert_eq!(feed(&mut d, &ipv4_fragment(3, 2, (1, 2, b'b'), 253), 100).len(), 0);
}

/// In passive mode the oldest datagram is evicted, so the newest is reassembled however many there are.
#[test]
fn fragments_stay_within_their_limit() {
    let mut config = DecodeConfig::default();
    config.defrag.max_frags = 10;
    let mut d = Decoder::new(config);
    for n in 0..20 {
        feed(&mut d, &ipv4_fragment(n, 2, (0, 1, b'a'), 253), 100);
    }
    assert_eq!(d.counters.defrag_max_frags_reached, 10);
    assert_eq!(d.counters.defrag_tracker_hard_reuse, 10);
    assert_eq!(d.counters.event(DecodeEvent::Ipv4FragIgnored), 0);
    for (n, whole) in [(9, 0), (19, 1), (12, 1)] {
        assert_eq!(feed(&mut d, &ipv4_fragment(n, 2, (1, 2, b'b'), 253), 100).len(), whole, "{n}");
    }
    // Much later, the kept datagrams have timed out, so none is evicted.
    feed(&mut d, &ipv4_fragment(50, 2, (0, 1, b'a'), 253), 1000);
    assert!(d.counters.defrag_tracker_hard_reuse < 15);
}

/// The fragment with the source address 10.0.0.`from`.
fn from(mut fragment: Vec<u8>, from: u8) -> Vec<u8> {
    fragment[15] = from;
    fragment[10..12].fill(0);
    let sum = checksum::internet(&fragment[..20]);
    fragment[10..12].copy_from_slice(&sum.to_be_bytes());
    fragment
}

/// A sender with more than a quarter of all fragments evicts its own.
#[test]
fn a_flood_of_one_sender_leaves_others_alone() {
    let set: [fn(&mut DecodeConfig); 3] =
        [|c| c.defrag.max_frags = 40, |c| c.defrag.trackers = 40, |c| c.defrag.memcap = 1 << 20];
    for (which, set) in set.into_iter().enumerate() {
        for inline in [false, true] {
            let mut config = DecodeConfig::default();
            config.defrag.hash_size = 16;
            config.defrag.inline = inline;
            set(&mut config);
            let mut d = Decoder::new(config);
            let units = if which == 2 { 60 } else { 4 };
            let of = |id: u16, piece, sender| from(ipv4_fragment(id, units, piece, 253), sender);
            for id in 0..8 {
                feed(&mut d, &of(id, (0, 2, b'a'), 7), 100);
            }
            for id in 0..3000 {
                feed(&mut d, &of(id, (0, 2, b'x'), 9), 101);
                if which == 2 {
                    feed(&mut d, &of(id, (2, 50, b'x'), 9), 101);
                }
            }
            if which == 2 {
                assert!(d.counters.defrag_memuse <= 1 << 20, "{}", d.counters.defrag_memuse);
            }
            // Other senders' waiting fragments are still there, and new ones find room.
            for id in [0, 7] {
                assert_eq!(feed(&mut d, &of(id, (2, units, b'b'), 7), 102).len(), 1, "{which} {inline} {id}");
            }
            feed(&mut d, &of(500, (0, 2, b'a'), 8), 102);
            assert_eq!(feed(&mut d, &of(500, (2, units, b'b'), 8), 102).len(), 1, "{which} {inline}");
        }
    }
}

#[test]
fn memory_stays_within_its_cap() {
    for inline in [false, true] {
        let mut config = DecodeConfig::default();
        config.defrag.memcap = 64 << 10;
        config.defrag.hash_size = 16;
        config.defrag.inline = inline;
        let mut d = Decoder::new(config);
        let mut hit = 0;
        for id in 0..200 {
            let bytes = fragment(false, id, 500, (0, 100, b'a'), 64);
            let frame = Frame {
                data: &bytes,
                wire_len: bytes.len() as u32,
                time: Time::new(1, 0),
                link: LinkType::RAW,
                number: u64::from(id),
            };
            d.decode(&frame, &mut |p: &Packet<'_>| hit += u32::from(p.defrag_memcap_hit));
            // The trackers need a few hundred bytes each in addition.
            assert!(d.counters.defrag_memuse < (64 << 10) + 64 * 1024, "{}", d.counters.defrag_memuse);
        }
        if inline {
            // A host may hold the forwarded fragments: they are remembered, and further ones are refused.
            assert!(hit > 100, "{hit}");
            assert_eq!(u64::from(hit), d.counters.defrag_memcap);
        } else {
            // The oldest datagrams are evicted.
            assert_eq!(hit, 0);
            assert!(d.counters.defrag_tracker_hard_reuse > 100);
        }
        // When the kept datagrams have timed out, there is room again.
        let [a, b] = [(0, 100, b'a'), (100, 200, b'b')].map(|p| fragment(false, 1, 200, p, 64));
        assert_eq!(feed(&mut d, &a, 1000).len() + feed(&mut d, &b, 1000).len(), 1);
    }
}

/// A fragment that would split many others is not stored if their parts do not fit.
#[test]
fn a_fragment_over_many_stays_within_the_cap() {
    for policy in [Policy::First, Policy::Last] {
        let mut config = DecodeConfig::default();
        config.defrag.default_policy = policy;
        config.defrag.hash_size = 16;
        config.defrag.memcap = 160 << 10;
        let mut d = Decoder::new(config);
        for n in 0..1500 {
            feed(&mut d, &ipv4_fragment(1, 5000, (2 * n, 2 * n + 1, b'a'), 253), 100);
        }
        feed(&mut d, &ipv4_fragment(1, 5000, (0, 3001, b'b'), 253), 100);
        assert!(d.counters.defrag_memuse <= 160 << 10, "{}", d.counters.defrag_memuse);
    }
}

#[test]
fn an_empty_first_fragment_is_no_datagram() {
    let mut d = decoder(Policy::Bsd);
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (0, 0, b'a'), 253), 1).is_empty());
    assert!(feed(&mut d, &ipv6_fragment(1, 2, (0, 0, b'a'), 253), 1).is_empty());
    assert_eq!(d.counters.defrag_ipv4_reassembled + d.counters.defrag_ipv6_reassembled, 0);
}

#[test]
fn what_ends_behind_the_last_fragment_is_never_whole() {
    let mut d = decoder(Policy::Bsd);
    assert!(feed(&mut d, &ipv4_fragment(1, 9, (0, 3, b'a'), 253), 1).is_empty());
    assert!(feed(&mut d, &ipv4_fragment(1, 2, (1, 2, b'b'), 253), 1).is_empty());
}

#[test]
fn too_long_a_datagram_is_an_event() {
    let mut d = decoder(Policy::Bsd);
    // 65,528 bytes fit into 16 bits, but not with a header.
    feed(&mut d, &ipv4_fragment(1, 9000, (8189, 8191, b'a'), 253), 1);
    assert_eq!(d.counters.event(DecodeEvent::Ipv4FragPktTooLarge), 1);
    feed(&mut d, &ipv4_fragment(1, 9000, (8188, 8189, b'a'), 253), 1);
    assert_eq!(d.counters.event(DecodeEvent::Ipv4FragPktTooLarge), 1);
    feed(&mut d, &ipv6_fragment(1, 9000, (8191, 8193, b'a'), 253), 1);
    assert_eq!(d.counters.event(DecodeEvent::Ipv6FragPktTooLarge), 1);
}

#[test]
fn overlaps_are_events() {
    let mut d = decoder(Policy::Bsd);
    feed(&mut d, &ipv4_fragment(1, 9, (0, 3, b'a'), 253), 1);
    feed(&mut d, &ipv4_fragment(1, 9, (2, 5, b'b'), 253), 1);
    feed(&mut d, &ipv6_fragment(1, 9, (0, 3, b'a'), 253), 1);
    feed(&mut d, &ipv6_fragment(1, 9, (0, 3, b'a'), 253), 1);
    assert_eq!(d.counters.event(DecodeEvent::Ipv4FragOverlap), 1);
    assert_eq!(d.counters.event(DecodeEvent::Ipv6FragOverlap), 1);
}
