//! The stream has the same data as the host, despite tricks to make them differ. The tests expect what Linux 6.18 reads.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, acking, acks, client, events, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::{OsPolicy, StreamConfig, TcpState, UrgentPolicy};

use Direction::{ToClient, ToServer};

fn flags(flags: u8, p: Pkt) -> Pkt {
    Pkt { flags, ..p }
}

fn stamped(value: u32, mut p: Pkt) -> Pkt {
    p.options.timestamp = Some((value, 0));
    p
}

fn inline() -> StreamConfig {
    StreamConfig { inline: true, ..StreamConfig::default() }
}

fn wire() -> StreamConfig {
    StreamConfig { spare_harmless: true, ..inline() }
}

fn policy(policy: OsPolicy) -> StreamConfig {
    let mut config = StreamConfig::default();
    config.os_policies.default = policy;
    config
}

/// A connection with timestamps, at 1000 and 2000 so far.
fn with_timestamps(config: StreamConfig) -> Bench {
    let mut b = Bench::new(config);
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    assert_eq!(b.state(), TcpState::Established);
    b
}

/// Segments that a host discards, and others in their place: the host reads `ATTACK`.
#[test]
fn what_a_host_discards_gives_way() {
    let signed = |mut p: Pkt| {
        p.options.signed = true;
        p
    };
    let decoy = || client(1001, b"DECOY-");
    for (name, decoy) in [
        ("an acknowledgment of what was not sent", acking(5101, decoy())),
        ("an acknowledgment of what is before the first byte", acking(5000, decoy())),
        ("one of far before", acking(5, decoy())),
        ("no acknowledgment", flags(PSH, decoy())),
        ("a FIN without one", flags(FIN, decoy())),
        ("a signature", signed(decoy())),
        ("fewer hops left", Pkt { ttl: 3, ..decoy() }),
        ("a SYN", flags(SYN, decoy())),
        ("a SYN with an acknowledgment", flags(SYN | ACK, decoy())),
        ("a SYN and a FIN", flags(SYN | FIN | ACK, decoy())),
        ("a reset elsewhere", flags(RST | ACK, client(1011, b"DECOY-"))),
        ("beyond the window", client(1001, &[b'D'; 9000])),
    ] {
        for policy in [OsPolicy::Bsd, OsPolicy::Linux, OsPolicy::Windows] {
            let mut b = Bench::connected(crate::policy(policy));
            b.send(&decoy);
            b.send(&client(1001, b"ATTACK"));
            b.send(&acks(1007));
            assert_eq!(b.read(ToServer, false), "ATTACK", "{name}, {}", policy.name());
        }
        // Inline, it is dropped, or the data in its place is the inspected data.
        for config in [inline(), wire()] {
            let mut b = Bench::connected(config);
            let first = b.send(&decoy);
            let taken = b.read(ToServer, false);
            let second = b.send(&client(1001, b"ATTACK"));
            let after = b.read(ToServer, false);
            let seen = taken.is_empty() && after == "ATTACK" && !second.drop;
            assert!(seen || second.rewrite || second.drop, "{name}: {taken:?} {after:?} {first:?}");
            assert!(first.drop || decoy.payload.len() < 100, "{name}");
        }
    }
    // None of these replaces valid data that came first.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&client(1001, b"ATTACK"));
    b.send(&acking(5101, decoy()));
    b.send(&Pkt { ttl: 3, ..decoy() });
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// If the capture missed the acknowledged data, or it was not tracked, doubtful data counts anyway.
#[test]
fn what_may_be_discarded_still_counts() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&acking(5101, client(1001, b"hello ")));
    b.send(&acking(5101, client(1007, b"world")));
    b.send(&pkt(ToClient, ACK, 5101, 1012, b"answer"));
    assert_eq!(b.read(ToServer, false), "hello world");
    b.send(&acking(5107, client(1012, b"")));
    assert_eq!(b.read(ToClient, false), "<100>answer");
}

/// An acknowledgment of unsent data has no effect on data sent later: that is read, although an event reports it as
/// late.
#[test]
fn answers_after_a_wrong_acknowledgment() {
    for inline in [false, true] {
        let mut b = Bench::connected(StreamConfig { inline, ..StreamConfig::default() });
        b.send(&acking(6001, client(1001, b"")));
        let out = b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"answer"));
        assert!(out.accepted && !out.drop);
        assert_eq!(events(&out), ["pkt_spurious_retransmission"], "inline: {inline}");
        b.send(&acking(5007, client(1001, b"")));
        assert_eq!(b.read(ToClient, false), "answer");
    }
}

/// A capture has an acknowledgment before its data.
#[test]
fn data_behind_its_acknowledgment() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&client(1001, b"hello "));
    b.send(&acks(1012));
    assert_eq!(b.read(ToServer, false), "hello ");
    b.send(&client(1007, b"world"));
    assert_eq!(b.read(ToServer, false), "world");
}

/// Acknowledged bytes are final, and so are in-order bytes, whatever arrives before they are read.
#[test]
fn what_is_acknowledged_stays() {
    for os in OsPolicy::ALL {
        let mut b = Bench::connected(policy(os));
        b.session().app_disable();
        b.send(&client(1001, b"xATTACK"));
        b.send(&acks(1008));
        // This segment overlaps the acknowledged data and continues after it.
        b.send(&client(1001, b"yBENIGNzz"));
        b.send(&acks(1010));
        b.session().raw_trigger(ToServer);
        assert_eq!(b.raw(ToServer, false), "()xATTACKzz|", "{}", os.name());
    }
    for os in [OsPolicy::Bsd, OsPolicy::Linux, OsPolicy::Windows, OsPolicy::MacOs, OsPolicy::Vista] {
        let mut b = Bench::connected(policy(os));
        b.send(&client(1001, b"x"));
        b.send(&client(1002, b"ATTACK"));
        b.send(&client(1001, b"yBENIGNzz"));
        b.send(&acks(1010));
        assert_eq!(b.read(ToServer, false), "xATTACKzz", "{}", os.name());
    }
}

/// No early segment is lost, however many there are and however far apart.
#[test]
fn early_segments_are_kept() {
    let attack = b"GET /attack HTTP/1.1\r\n\r\n";
    for inline in [false, true] {
        let mut b = Bench::connected(StreamConfig { inline, ..StreamConfig::default() });
        for i in 0..1500 {
            b.send(&client(1002 + 2 * i, b"a"));
        }
        b.send(&client(4002, attack));
        b.send(&client(1001, &[b'a'; 3001]));
        b.send(&acks(4002 + attack.len() as u32));
        assert_eq!(b.read(ToServer, false), "a".repeat(3001) + std::str::from_utf8(attack).unwrap(), "{inline}");
        assert_eq!(b.engine.counters.insert_data_normal_fail, 0);
    }
}

/// Scaled windows: 15 counts as 14, and a scale that only the server offers is not used.
#[test]
fn scaled_windows() {
    let open = |client: Option<u8>, server: Option<u8>| {
        let mut b = Bench::new(StreamConfig::default());
        let scaled = |scale, mut p: Pkt| {
            p.options.window_scale = scale;
            p
        };
        b.send(&scaled(client, pkt(ToServer, SYN, 1000, 0, b"")));
        b.send(&scaled(server, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
        b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
        b.send(&acks(1001));
        b
    };
    let mut b = open(Some(0), Some(14));
    assert!(b.send(&client(1001 + (8192 << 14) - 1, b"x")).accepted);
    let mut b = open(None, Some(14));
    assert!(!b.send(&client(1001 + 3 * 8192, b"x")).accepted);
}

/// Timestamps count only if the receiver records them (RFC 7323 section 4.3).
#[test]
fn timestamps_that_are_not_noted() {
    const FAR: u32 = 1000 + (1 << 30);
    let far = |p: Pkt| stamped(FAR, p);
    for (name, poison) in [
        ("an acknowledgment beyond what is expected", far(client(1002, b""))),
        ("early data", far(client(1002, b"x"))),
        ("data with an acknowledgment of what was not sent", far(acking(5101, client(1001, b"DECOY-")))),
        ("an acknowledgment of what was not sent", far(acking(5101, client(1001, b"")))),
        ("a FIN without an acknowledgment", far(flags(FIN, client(1001, b"")))),
    ] {
        let mut b = with_timestamps(StreamConfig::default());
        b.send(&poison);
        let out = b.send(&stamped(1002, client(1001, b"ATTACK")));
        assert!(out.accepted, "{name}: {:?}", events(&out));
        b.send(&stamped(2001, acks(1007)));
        assert!(b.read(ToServer, false).starts_with("ATTACK"), "{name}");
    }
    // Timestamps that are recorded.
    for poison in [far(client(1001, b"")), far(client(1001, b"x"))] {
        let mut b = with_timestamps(StreamConfig::default());
        b.send(&poison);
        let next = 1001 + poison.payload.len() as u32;
        let out = b.send(&stamped(1002, client(next, b"DECOY-")));
        assert_eq!(events(&out), ["pkt_invalid_timestamp"]);
        // The packet may have been lost after the sensor. Otherwise this data comes in place of discarded data.
        b.send(&stamped(FAR + 1, client(next, b"ATTACK")));
        b.send(&acks(next + 6));
        assert!(b.read(ToServer, false).ends_with("ATTACK"));
    }
}

/// Inline: a host may accept a FIN whose timestamp seems old, and data after it then reads as if the FIN had no sequence
/// number. Only a repeated FIN passes.
#[test]
fn a_fin_with_an_old_timestamp_is_not_forwarded() {
    let inline = StreamConfig { inline: true, spare_harmless: true, ..StreamConfig::default() };
    let mut b = with_timestamps(inline);
    let fin = |time| stamped(time, pkt(ToServer, FIN | ACK, 1002, 5001, b""));
    b.send(&stamped(1010, client(1001, b"")));
    let out = b.send(&fin(1003));
    assert!(out.drop, "{:?}", events(&out));
    assert!(!b.send(&stamped(1011, client(1001, b"a"))).drop);
    assert!(!b.send(&fin(1012)).drop);
    let out = b.send(&fin(1003));
    assert_eq!((events(&out), out.drop), (vec!["pkt_invalid_timestamp"], false));
}

/// It is uncertain whether the receiver recorded the timestamp of data after unacknowledged data. Data with an older
/// timestamp is kept with a doubt. The receiver's own packets show what it recorded.
#[test]
fn timestamps_that_may_be_noted() {
    const FAR: u32 = 1000 + (1 << 30);
    let echoing = |echo: u32, mut p: Pkt| {
        p.options.timestamp = Some((2001, echo));
        p
    };
    for inline in [false, true] {
        let start = || {
            let mut b = with_timestamps(StreamConfig { inline, ..StreamConfig::default() });
            b.send(&stamped(1002, client(1001, b"a")));
            b.send(&stamped(FAR, client(1002, b"b")));
            b
        };
        // It was not recorded.
        let mut b = start();
        let out = b.send(&stamped(1003, client(1003, b"ATTACK")));
        assert!(out.accepted && !out.drop, "{:?}", events(&out));
        b.send(&echoing(1002, acks(1009)));
        assert_eq!(b.read(ToServer, false), "abATTACK");
        assert!(b.send(&stamped(1003, client(1009, b"more"))).events.is_empty(), "it says so");
        // It was recorded.
        let mut b = start();
        b.send(&stamped(1003, client(1003, b"DECOY-")));
        // Inline, what was inspected first arrives.
        assert_eq!(b.send(&stamped(FAR + 1, client(1003, b"ATTACK"))).rewrite, inline);
        b.send(&echoing(FAR, acks(1009)));
        assert_eq!(b.read(ToServer, false), if inline { "abDECOY-" } else { "abATTACK" });
        assert!(!b.send(&stamped(1004, client(1009, b"more"))).accepted);
    }
}

/// A SYN with timestamp value zero does not make later values count as newer.
#[test]
fn timestamps_that_are_zero() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&stamped(0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1, pkt(ToServer, ACK, 1001, 5001, b"")));
    b.send(&stamped(5, client(1001, b"hello ")));
    b.send(&stamped(2001, acks(1007)));
    b.send(&stamped(0, client(1007, b"DECOY-")));
    b.send(&stamped(6, client(1007, b"ATTACK")));
    b.send(&stamped(2002, acks(1013)));
    assert_eq!(b.read(ToServer, false), "hello ATTACK");
}

/// Only a reset with the expected number closes the connection (RFC 5961 section 3).
#[test]
fn resets() {
    let sack = |on: bool| {
        let mut b = Bench::new(StreamConfig::default());
        let with = |mut p: Pkt| {
            p.options.sack_ok = on;
            p
        };
        b.send(&with(pkt(ToServer, SYN, 1000, 0, b"")));
        b.send(&with(pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
        b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
        b.send(&client(1001, b"hello "));
        b
    };
    for bits in [RST, RST | ACK] {
        for (seq, early, with_sack, closes) in [
            (1007, false, false, true),
            (1001, false, false, false),
            (1006, false, false, false),
            (1008, false, false, false),
            (1107, false, false, false),
            (1108, true, false, false),
            (1108, true, true, true),
            (1007, true, false, true),
        ] {
            let mut b = sack(with_sack);
            if early {
                b.send(&client(1107, b"x"));
            }
            b.send(&flags(bits, client(seq, b"")));
            assert_eq!(b.state() == TcpState::Closed, closes, "{bits} {seq} {early} {with_sack}");
            if !closes {
                b.send(&client(1007, b"ATTACK"));
                b.send(&acks(1013));
                assert_eq!(b.read(ToServer, false), "hello ATTACK", "{bits} {seq} {early} {with_sack}");
            }
        }
    }
    // After a FIN, its number is valid too.
    let mut b = sack(false);
    b.send(&flags(FIN | ACK, client(1007, b"")));
    b.send(&acks(1008));
    b.send(&flags(RST, client(1007, b"")));
    assert_eq!(b.state(), TcpState::Closed);
}

/// A connection continues after a reset: the reset's sender continues, so nobody closed. No unacknowledged data is lost.
#[test]
fn a_connection_that_goes_on_behind_a_reset() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&client(1001, b"hello "));
    b.send(&acks(1007));
    b.send(&client(1007, b"and "));
    assert_eq!(b.read(ToServer, false), "hello ");
    assert!(b.send(&flags(RST, client(1011, b""))).flush);
    b.session().finish_streams();
    assert_eq!(b.read(ToServer, true), "and ");
    b.raw(ToServer, true);
    // Packets that were in flight, in either direction, prove nothing.
    assert!(!b.send(&client(1007, b"and ")).accepted);
    assert!(!b.send(&pkt(ToClient, PSH | ACK, 5001, 1007, b"answer")).accepted);
    assert_eq!(b.state(), TcpState::Closed);
    let out = b.send(&client(1011, b"ATTACK"));
    assert!(out.accepted && out.restart, "{:?}", events(&out));
    assert_eq!((b.state(), b.engine.counters.resumed), (TcpState::Established, 1));
    b.send(&acks(1017));
    assert_eq!(b.read(ToServer, false), "and ATTACK");
    // Inline, it does not pass.
    for config in [inline(), wire()] {
        let mut b = Bench::connected(config.clone());
        b.send(&flags(RST, client(1001, b"")));
        let out = b.send(&client(1001, b"ATTACK"));
        assert_eq!((out.accepted, out.drop), (!config.spare_harmless, config.spare_harmless));
    }
}

/// A server answers a SYN on a connection that looks open: for the server, the old connection is over.
#[test]
fn a_new_connection_in_the_place_of_one() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&client(1001, b"hello "));
    b.send(&acks(1007));
    // Linux closes at such a reset, whatever it acknowledges; other systems do not.
    b.send(&flags(RST | ACK, acking(900_000, client(1007, b""))));
    assert_eq!(b.state(), TcpState::Established);
    assert_eq!(events(&b.send(&pkt(ToServer, SYN, 90_000, 0, b""))), ["est_syn_resend_diff_seq"]);
    // The answer must acknowledge the new SYN, and have another number than the old connection's.
    assert!(!b.send(&pkt(ToClient, SYN | ACK, 70_000, 1001, b"")).reuse);
    assert!(!b.send(&pkt(ToClient, SYN | ACK, 5000, 90_001, b"")).reuse, "it is the one of before");
    assert!(b.send(&pkt(ToClient, SYN | ACK, 70_000, 90_001, b"")).reuse);
}

/// Urgent bytes as Linux passes them to a program that reads promptly: sequence offset, urgent pointer (if any), data.
#[test]
fn urgent_bytes_as_linux_has_them() {
    type Urgent = (u32, Option<u16>, &'static str);
    let cases: &[(&str, &[Urgent], &str)] = &[
        ("in the middle", &[(0, Some(3), "abXcd")], "abcd"),
        ("no pointer", &[(0, Some(0), "Xabcd")], "abcd"),
        ("at the end", &[(0, Some(5), "abcdX"), (5, None, "efg")], "abcdefg"),
        ("behind the end", &[(0, Some(5), "abcd"), (4, None, "Xefg")], "abcdefg"),
        ("in the next segment", &[(0, Some(7), "abcd"), (4, None, "efXgh")], "abcdefgh"),
        ("announced without data", &[(0, Some(3), ""), (0, None, "abXcd")], "abcd"),
        ("two", &[(0, Some(3), "abXcd"), (5, Some(3), "efXgh")], "abcdefgh"),
        ("what is behind came first", &[(5, None, "efgh"), (0, Some(3), "abXcd")], "abcdefgh"),
        ("the byte came first", &[(5, None, "efXgh"), (0, Some(8), "abcd ")], "abcd efgh"),
        ("early", &[(5, Some(3), "efXgh"), (0, None, "abcd ")], "abcd efgh"),
        ("an earlier one does not count", &[(5, Some(3), "efXgh"), (0, Some(3), "abYcd")], "abYcdefgh"),
        (
            "a later one replaces it",
            &[(5, Some(3), "efXgh"), (0, Some(12), ""), (0, None, "abcd "), (10, None, "iY")],
            "abcd efXghi",
        ),
        ("behind what is expected", &[(0, None, "abcd"), (2, Some(1), "cdef")], "abcdef"),
        ("with a retransmission", &[(0, None, "abc"), (0, Some(5), "abcdXf")], "abcdf"),
        ("of a keep-alive", &[(u32::MAX, Some(4), ""), (0, None, "abXcd")], "abXcd"),
        ("a nearer one does not count", &[(0, Some(60_000), ""), (0, Some(3), "abXcd")], "abXcd"),
    ];
    for (name, segments, read) in cases {
        for (inline, urgent) in [(false, UrgentPolicy::Oob), (true, UrgentPolicy::Oob), (false, UrgentPolicy::Drop)] {
            let mut b = Bench::connected(StreamConfig { inline, urgent, ..StreamConfig::default() });
            let mut end = 0;
            for (at, pointer, data) in *segments {
                let mut p = client(1001u32.wrapping_add(*at), data.as_bytes());
                if let Some(n) = pointer {
                    (p.flags, p.urgent) = (p.flags | URG, *n);
                }
                assert!(b.send(&p).accepted, "{name}");
                if *at != u32::MAX {
                    end = end.max(at + data.len() as u32);
                }
            }
            b.send(&acks(1001 + end));
            assert_eq!(b.read(ToServer, false), *read, "{name}, inline {inline}, {urgent:?}");
        }
    }
    // An acknowledgment of unsent data makes the urgent pointer ineffective too.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&Pkt { urgent: 3, ..flags(URG | ACK, acking(5101, client(1001, b""))) });
    b.send(&client(1001, b"abXcd"));
    b.send(&acks(1006));
    assert_eq!(b.read(ToServer, false), "abXcd");
}

/// If no packet can be dropped, any number of urgent bytes leaves the rest readable.
#[test]
fn many_urgent_bytes() {
    for (inline, limit_policy, read) in [
        (false, UrgentPolicy::Drop, "ab".repeat(200)),
        (false, UrgentPolicy::Oob, "ab".repeat(200)),
        (true, UrgentPolicy::Drop, "ab".repeat(64)),
        (false, UrgentPolicy::Inline, "ab".repeat(64) + &"aXb".repeat(136)),
    ] {
        let config = StreamConfig { inline, urgent_oob_limit_policy: limit_policy, ..StreamConfig::default() };
        let mut b = Bench::connected(config);
        let mut dropped = 0;
        for i in 0..200 {
            let out = b.send(&Pkt { urgent: 2, ..flags(URG | ACK, client(1001 + 3 * i, b"aXb")) });
            dropped += u32::from(out.drop && out.drop_urgent);
            b.send(&acks(1004 + 3 * i));
        }
        assert_eq!(b.read(ToServer, false), read, "{inline} {limit_policy:?}");
        assert_eq!(dropped, if inline { 136 } else { 0 });
        assert!(b.engine.counters.reassembly_memuse < 16 << 10);
    }
}

/// A window probe's byte is dropped if the window has not opened.
#[test]
fn the_byte_of_a_window_probe() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&client(1001, b"hello "));
    b.send(&Pkt { window: 0, ..acks(1007) });
    assert!(b.send(&client(1007, b"X")).accepted);
    b.send(&Pkt { window: 0, ..acks(1007) });
    b.send(&acks(1007));
    b.send(&client(1007, b"ATTACK"));
    b.send(&acks(1013));
    assert_eq!(b.read(ToServer, false), "hello ATTACK");
}

/// A packet with a lower TTL did arrive if it is acknowledged: routes change.
#[test]
fn hops_that_become_fewer() {
    let mut b = Bench::connected(StreamConfig::default());
    for i in 0..4u32 {
        b.send(&Pkt { ttl: 50, ..client(1001 + 5 * i, b"hello") });
        b.send(&acks(1006 + 5 * i));
    }
    b.send(&Pkt { ttl: 50, ..client(1021, b"ATTACK") });
    b.send(&client(1021, b"DECOY-"));
    b.send(&acks(1027));
    assert_eq!(b.read(ToServer, false), "hello".repeat(4) + "ATTACK");
}

/// A connection is idle for longer than the flow timeout, and continues.
#[test]
fn a_connection_that_goes_on_after_silence() {
    for config in [StreamConfig::default(), inline(), wire(), StreamConfig { midstream: true, ..wire() }] {
        let at_once = config.inline;
        let mut b = Bench::connected(config.clone());
        b.send(&client(1001, b"hello "));
        b.send(&acks(1007));
        b.read(ToServer, false);
        b.times_out();
        assert_eq!((b.engine.counters.resumable, b.engine.counters.memuse), (1, 0));
        // A packet far ahead, an unanswered SYN and an unrelated packet come first.
        if !config.midstream {
            b.send(&client(900_000, b"x"));
            assert!(b.session.is_none());
            b.send(&pkt(ToServer, SYN, 77_000, 0, b""));
        }
        assert!(b.send(&client(9000, b"z")).accepted);
        assert_eq!((b.engine.counters.resumed, b.engine.counters.resumable), (1, 0));
        assert!(b.session().is_midstream());
        b.send(&client(1007, b"ATT"));
        b.send(&client(1010, b"ACK"));
        assert_eq!(b.read(ToServer, false), if at_once { "ATTACK" } else { "" });
        b.send(&acks(1013));
        assert_eq!(b.read(ToServer, false), if at_once { "" } else { "ATTACK" });
        // This session never saw earlier data.
        let old = b.send(&client(1001, b"ATTACK"));
        assert!(!old.accepted && old.drop == config.inline && !old.in_stream, "{:?}", events(&old));
        // It is idle once more, and the server sends first.
        b.times_out();
        b.send(&pkt(ToClient, PSH | ACK, 5001, 1013, b"answer"));
        b.send(&acking(5007, client(1013, b"")));
        assert_eq!((b.read(ToClient, false).as_str(), b.engine.counters.resumed), ("answer", 2));
    }
    // A finished connection is not resumed.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&flags(FIN | ACK, client(1001, b"")));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1002, b""));
    b.send(&acking(5002, client(1002, b"")));
    b.times_out();
    b.send(&client(1002, b"x"));
    assert!(b.session.is_none() && b.engine.counters.resumable == 0);
    // The table has no room.
    let mut b = Bench::connected(StreamConfig { remembered: 0, ..StreamConfig::default() });
    b.times_out();
    b.send(&client(1001, b"x"));
    assert!(b.session.is_none());
}

/// A session picked up midstream begins where its receiver is, which need not be the first packet.
#[test]
fn pick_ups_begin_where_the_receiver_is() {
    let config = StreamConfig { midstream: true, ..StreamConfig::default() };
    let pick_up = |seq: u32, data: &[u8]| {
        let mut b = Bench::new(config.clone());
        b.send(&client(seq, data));
        b
    };
    // A packet far ahead, then the data that the receiver expects.
    let mut b = pick_up(61_001, b"z");
    b.send(&acks(1001));
    b.send(&client(1001, b"GET /"));
    b.send(&client(1006, b"attack"));
    b.send(&acks(1012));
    assert_eq!(b.read(ToServer, false), "GET /attack");
    // The same, without an answer in between.
    let mut b = pick_up(61_001, b"z");
    b.send(&client(1001, b"GET /"));
    b.send(&client(1006, b"attack"));
    b.send(&acks(1012));
    assert_eq!(b.read(ToServer, false), "GET /attack");
    assert_eq!(b.session().stream_size(ToServer), 60_002);
    // Data that the server has not sent was acknowledged.
    let mut b = Bench::new(config.clone());
    b.send(&acking(9001, client(1001, b"one ")));
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1005, b"answer"));
    b.send(&acking(5007, client(1005, b"two")));
    b.send(&pkt(ToClient, ACK, 5007, 1008, b""));
    assert_eq!((b.read(ToServer, false), b.read(ToClient, false)), ("one two".into(), "answer".into()));
    // The other side never answers.
    let mut b = pick_up(1001, b"one ");
    b.send(&client(1005, b"two"));
    assert_eq!((b.read(ToServer, false).as_str(), b.session().stream_size(ToServer)), ("", 8));
    b.session().finish_streams();
    assert_eq!(b.read(ToServer, true), "one two");
}

/// Inline, a picked up stream is read at once, and again if earlier data arrives: uninspected data does not pass.
#[test]
fn inline_pick_ups_are_read_again() {
    for (midstream, async_oneside) in [(true, false), (false, true)] {
        let config = StreamConfig { midstream, async_oneside, ..wire() };
        let mut b = Bench::new(config.clone());
        assert!(!b.send(&client(1006, b"attack")).drop);
        assert_eq!(b.read(ToServer, false), "attack");
        let out = b.send(&client(1001, b"GET /"));
        assert!(out.restart && !out.drop, "{:?}", events(&out));
        assert_eq!(b.read(ToServer, false), "GET /attack");
        b.raw(ToServer, false);
        // But not without limit.
        let mut drops = 0;
        for i in 0..20 {
            drops += u32::from(b.send(&client(1000 - i, b"x")).drop);
        }
        assert_eq!(drops, 13);
        // Nor if the receiver has acknowledged that data.
        let mut b = Bench::new(StreamConfig { async_oneside: false, midstream: true, ..config });
        b.send(&client(1006, b"attack"));
        b.send(&acks(1006));
        b.send(&acks(1012));
        let out = b.send(&client(1001, b"GET /"));
        assert!(out.drop && !out.restart, "{:?}", events(&out));
        // If the receiver expects earlier data, that is read when it comes.
        let mut b = Bench::new(StreamConfig { midstream: true, ..wire() });
        b.send(&client(1006, b"attack"));
        b.read(ToServer, false);
        assert!(b.send(&acks(1001)).restart);
        assert_eq!(b.read(ToServer, false), "");
        b.send(&client(1001, b"GET /"));
        assert_eq!(b.read(ToServer, false), "GET /attack");
    }
}

/// Inline, inspected early data neither frees nor hides data that later segments must be inspected with.
#[test]
fn inline_inspection_around_early_data() {
    let config = StreamConfig { toserver_chunk_size: 8, ..inline() };
    for app_off in [false, true] {
        let mut b = Bench::connected(config.clone());
        if app_off {
            b.session().app_disable();
        }
        b.send(&client(1001, b"ATTA"));
        assert_eq!(
            (b.read(ToServer, false).as_str(), b.raw(ToServer, false).as_str()),
            (if app_off { "" } else { "ATTA" }, "()ATTA|")
        );
        b.send(&client(1101, b"far away"));
        assert_eq!(b.raw(ToServer, false), "()far away|");
        b.send(&client(1005, b"CK"));
        assert_eq!(b.raw(ToServer, false), "(ATTA)CK|", "{app_off}");
        // Early data is inspected together with adjacent data.
        b.send(&client(1109, b"behind it"));
        assert_eq!(b.raw(ToServer, false), "(far away)behind it|");
        b.send(&client(1097, b"fore"));
        assert_eq!(b.raw(ToServer, false), "()forefar away|");
    }
}

/// Inline, data that the receiver has and that can no longer be compared is forwarded without payload, or zeroed.
#[test]
fn what_cannot_be_compared_is_not_sent_on() {
    let mut b = Bench::connected(StreamConfig { toserver_chunk_size: 8, ..wire() });
    for i in 0..100 {
        b.send(&client(1001 + 10 * i, b"0123456789"));
        b.read(ToServer, false);
        b.raw(ToServer, false);
        b.send(&acks(1011 + 10 * i));
    }
    // A late retransmission: its sender waits for an answer.
    let out = b.send(&client(1001, b"0123456789"));
    assert_eq!((out.drop, out.without_data, out.rewrite), (false, true, false));
    // The same for different bytes that were acknowledged.
    assert!(b.send(&client(1983, b"attack")).without_data);
    // Data that can be compared passes.
    let out = b.send(&client(1993, b"23456789"));
    assert_eq!((out.drop, out.without_data, out.accepted), (false, false, false), "{:?}", events(&out));
    // Part of it is new.
    let out = b.send(&client(1001, &[&[b'x'; 1000][..], b"new"].concat()));
    assert!(out.accepted && out.rewrite && !out.drop);
    let mut payload = [&[b'x'; 1000][..], b"new"].concat();
    assert!(b.session().rewrite(ToServer, 1001, &mut payload));
    assert!(payload[..980].iter().all(|b| *b == 0) && payload.ends_with(b"23456789new"), "{payload:?}");
    assert_eq!(b.read(ToServer, false), "new");
}
