//! Passive mode: packets that a host accepts although a sensor has reason to refuse them. Each test expects what Linux
//! 6.18 does (`crates/hosts` found them).
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, acks, client, events, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::{StreamConfig, TcpState};

use Direction::{ToClient, ToServer};

fn connected() -> Bench {
    Bench::connected(StreamConfig::default())
}

/// The sender learns of a hole before the data after it comes: it is a gap anyway.
#[test]
fn a_hole_that_was_acknowledged_before() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abcd"), acks(1007), client(1007, b"efgh")]);
    assert_eq!(b.read(ToServer, false), "abcd<2>");
    b.send(&acks(1011));
    assert_eq!(b.read(ToServer, false), "efgh");
}

/// The window may have opened: the acknowledgment that says so reaches the sensor after the data.
#[test]
fn data_beyond_the_window() {
    let full = [b'a'; 8192];
    for at in [1001 + 8192, 1001 + 8192 + 6] {
        let mut b = connected();
        b.send(&client(1001, &full));
        let out = b.send(&client(at, b"ATTACK"));
        assert_eq!((events(&out), out.accepted), (vec!["est_packet_out_of_window"], true));
        b.send(&client(1001 + 8192, b"ATTACK"));
        b.send(&acks(at + 6));
        assert!(b.read(ToServer, false).ends_with("aATTACK") || at > 1001 + 8192);
        assert!(b.read(ToServer, true).is_empty());
    }
    // Data far beyond the window does not belong to the connection.
    let mut b = connected();
    assert!(!b.send(&client(1001 + 3 * 8192, b"DECOY")).accepted);
    // Discarded data is replaced.
    let mut b = connected();
    b.send_all(&[client(1001, &full), client(1001 + 8192, b"DECOY-")]);
    b.send_all(&[acks(1001 + 8192), client(1001 + 8192, b"ATTACK"), acks(1001 + 8192 + 6)]);
    assert!(b.read(ToServer, false).ends_with("aATTACK"));
}

/// A FIN with retransmitted data.
#[test]
fn a_fin_with_data_that_is_there() {
    let mut b = connected();
    b.send_all(&[client(1001, b"GET"), acks(1004)]);
    let out = b.send(&pkt(ToServer, FIN | ACK, 1003, 5001, b"T /"));
    assert_eq!((events(&out), b.state()), (vec![], TcpState::CloseWait));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "GET /");
}

/// A host that lacks the early data after a FIN accepts the FIN.
#[test]
fn a_fin_before_early_data() {
    let mut b = connected();
    b.send_all(&[client(1001, b"GET"), acks(1004), client(1013, b"x")]);
    b.send(&pkt(ToServer, FIN | ACK, 1004, 5001, b" /"));
    b.send(&acks(1007));
    assert!(b.read(ToServer, false).starts_with("GET /"));
}

/// Data missing before a FIN arrives after both sides have closed.
#[test]
fn what_is_missing_before_a_fin() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004)]);
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1004, b""));
    b.send(&pkt(ToServer, FIN | ACK, 1005, 5002, b""));
    b.send(&pkt(ToClient, ACK, 5002, 1004, b""));
    assert_ne!(b.state(), TcpState::Closed);
    b.send(&pkt(ToServer, PSH | ACK, 1004, 5002, b"d"));
    b.send(&pkt(ToClient, ACK, 5002, 1006, b""));
    assert_eq!(b.read(ToServer, false), "abcd");
    assert_eq!(b.state(), TcpState::Closed);
}

/// A sender continues after its FIN: Linux reads the data as if the FIN did not exist.
#[test]
fn data_behind_a_fin() {
    let mut b = connected();
    b.send(&client(1001, b"abc"));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1004, b""));
    b.send(&pkt(ToServer, FIN | ACK, 1005, 5002, b""));
    for (seq, data) in [(1004, &b"def"[..]), (1007, b"ghi"), (1010, b"jkl")] {
        b.send(&pkt(ToServer, PSH | ACK, seq, 5002, data));
        b.send(&pkt(ToClient, ACK, 5002, seq + 3, b""));
    }
    assert_eq!(b.read(ToServer, false), "abcdefghijkl");
}

/// A reset with the FIN's number is invalid while data before the FIN is missing.
#[test]
fn a_reset_before_a_hole() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004)]);
    b.send(&pkt(ToServer, FIN | ACK, 1005, 5001, b""));
    b.send(&pkt(ToServer, RST, 1003, 0, b""));
    assert_ne!(b.state(), TcpState::Closed);
}

/// The first segment repeats some of the SYN's data.
#[test]
fn data_of_a_syn_once_more() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b"AB"));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1003, b""));
    let out = b.send(&client(1002, b"BC"));
    assert_eq!((events(&out), b.state()), (vec![], TcpState::Established));
    b.send(&acks(1004));
    assert_eq!(b.read(ToServer, false), "ABC");
}

/// Data of a SYN/ACK is not accepted.
#[test]
fn data_of_a_syn_ack() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b"DECOY"));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"TRUE"));
    b.send(&pkt(ToServer, ACK, 1001, 5005, b""));
    assert_eq!(b.read(ToClient, false), "TRUE");
}

/// In a simultaneous open, the server may use any sequence number.
#[test]
fn windows_of_simultaneous_opens() {
    for isn in [1u32, 0x7fff_fff0, 0x8000_0000, 0xffff_fff0] {
        let mut b = Bench::new(StreamConfig::default());
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN, isn, 0, b""));
        b.send(&pkt(ToServer, SYN | ACK, 1000, isn.wrapping_add(1), b""));
        let out = b.send(&pkt(ToClient, PSH | ACK, isn.wrapping_add(1), 1001, b"x"));
        assert_eq!((events(&out), out.accepted), (vec![], true), "{isn}");
        b.send(&pkt(ToServer, ACK, 1001, isn.wrapping_add(2), b""));
        assert_eq!(b.read(ToClient, false), "x", "{isn}");
    }
}

/// A packet may be lost after the sensor, so that no host recorded its timestamp.
#[test]
fn timestamps_of_packets_that_are_lost() {
    let stamped = |value: u32, mut p: Pkt| {
        p.options.timestamp = Some((value, 0));
        p
    };
    let mut b = Bench::new(StreamConfig::default());
    b.send(&stamped(100, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(122, client(1001, b"")));
    let out = b.send(&stamped(101, client(1001, b"a")));
    assert_eq!((events(&out), out.accepted), (vec!["pkt_invalid_timestamp"], true));
    b.send(&acks(1002));
    assert_eq!(b.read(ToServer, false), "a");
}

/// The client resets an unsolicited packet, with the number of its SYN, and continues with the server's answer.
#[test]
fn a_reset_that_is_not_of_the_syn() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, ACK, 5000, 1000, b""));
    b.send(&pkt(ToServer, RST, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"data"));
    b.send(&pkt(ToServer, ACK, 1001, 5005, b""));
    assert_eq!(b.read(ToClient, false), "data");
}

/// After a reset, a connection may begin with the number of the previous one. A SYN that the server did not answer
/// replaces none.
#[test]
fn numbers_of_new_connections() {
    let mut b = connected();
    b.send(&pkt(ToServer, RST | ACK, 1001, 5001, b""));
    assert!(b.send(&pkt(ToServer, SYN, 1000, 0, b"")).reuse);

    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b"early"));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert!(!b.send(&pkt(ToServer, SYN, 77, 0, b"")).reuse);
    b.send_all(&[client(1001, b"data"), acks(1005)]);
    assert_eq!(b.read(ToServer, false), "data");
}

/// A segment in an IPv4 datagram with a wrong header checksum is discarded, so other data replaces it.
#[test]
fn wrong_header_checksums() {
    let mut b = connected();
    b.send(&Pkt { broken: true, ..client(1001, b"DECOY-") });
    b.send_all(&[client(1001, b"ATTACK"), acks(1007)]);
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// A reset may be lost after the sensor: its sender continues after the other side did, and may close at once.
#[test]
fn a_reset_that_is_lost() {
    for last in [PSH | ACK, FIN | ACK] {
        let mut b = connected();
        b.send_all(&[client(1001, b"abc"), acks(1004)]);
        b.send(&pkt(ToServer, RST, 1004, 0, b""));
        b.send(&pkt(ToClient, PSH | ACK, 5001, 1004, b"more"));
        b.send(&pkt(ToServer, last, 1004, 5005, b"def"));
        b.send(&pkt(ToClient, ACK, 5005, 1007, b""));
        assert!(b.read(ToServer, false).ends_with("def"), "{last}");
    }
}

/// Half of all timestamps are older than a given one; the one exactly in the middle is not (RFC 7323 section 5.2).
#[test]
fn the_timestamp_in_the_middle() {
    let mut b = Bench::new(StreamConfig::default());
    let stamped = |value: u32, echo: u32, mut p: Pkt| {
        p.options.timestamp = Some((value, echo));
        p
    };
    b.send(&stamped(100, 0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, 100, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(0x7fff_ffff, 2000, client(1001, b"a")));
    b.send(&stamped(2001, 0x7fff_ffff, acks(1002)));
    assert!(b.send(&stamped(u32::MAX, 2001, client(1002, b"b"))).events.is_empty());
}

/// The first segment begins before the stream.
#[test]
fn data_from_before_the_stream() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    b.send(&client(901, &[&[b'-'; 100][..], b"ATTACK"].concat()));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}
