//! Conversations that `make hosts` minimised: what Linux reads of each, and what a passive sensor must read or report.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, acks, client, events, linux, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::TcpState;

use Direction::{ToClient, ToServer};

fn flags(flags: u8, p: Pkt) -> Pkt {
    Pkt { flags, ..p }
}

fn stamped(value: u32, echo: u32, mut p: Pkt) -> Pkt {
    p.options.timestamp = Some((value, echo));
    p
}

fn connected() -> Bench {
    Bench::connected(linux())
}

/// A connection whose client sends timestamps from 1000 on, the server from 2000 on.
fn with_timestamps() -> Bench {
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, 0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, 1000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b
}

/// A sensor that has not seen the acknowledged data accepts data that comes with a smaller window.
#[test]
fn data_with_a_bad_window_update() {
    let mut b = connected();
    let mut p = pkt(ToServer, PSH | ACK, 1001, 5101, b"data");
    p.window = 10;
    let out = b.send(&p);
    assert_eq!((events(&out), out.accepted), (vec!["pkt_bad_window_update"], true));
    b.send(&acks(1005));
    assert_eq!(b.read(ToServer, false), "data");
}

/// A FIN at another place than the first one: data between them is reported.
#[test]
fn two_fins() {
    // Farther back; farther on; without data and with.
    for (first, second, data) in [(1149, 1122, &b""[..]), (1010, 1020, b""), (1149, 1100, b"abcdef")] {
        let mut b = connected();
        assert_eq!(events(&b.send(&pkt(ToServer, FIN | ACK, first, 5001, b""))), [""; 0]);
        let out = b.send(&pkt(ToServer, FIN | ACK, second, 5001, data));
        assert!(events(&out).contains(&"data_after_fin"), "{first} {second}: {:?}", events(&out));
    }
    // The same FIN again is not reported, nor is one that its receiver had before.
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004), pkt(ToServer, FIN | ACK, 1010, 5001, b"")]);
    assert!(!events(&b.send(&pkt(ToServer, FIN | ACK, 1010, 5001, b""))).contains(&"data_after_fin"));
    assert!(!events(&b.send(&pkt(ToServer, FIN | ACK, 1002, 5001, b""))).contains(&"data_after_fin"));
}

/// A FIN before early data, after the other side closed: its receiver accepts the FIN, since it lacks the early data.
#[test]
fn a_fin_before_early_data_of_a_half_closed_connection() {
    for data in [&b""[..], b"xyz"] {
        let mut b = connected();
        b.send(&client(1233, b"z"));
        b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
        let out = b.send(&pkt(ToServer, FIN | ACK, 1068, 5001, data));
        assert_eq!(events(&out)[..].last(), Some(&"data_after_fin"), "{:?}", events(&out));
    }
}

/// A FIN beyond the window may be accepted or not.
#[test]
fn a_fin_beyond_the_window() {
    let mut b = connected();
    let out = b.send(&pkt(ToServer, FIN | ACK, 1001 + 8190, 5001, b"abcd"));
    assert_eq!((events(&out), out.accepted), (vec!["fin_out_of_window"], true));
}

/// A FIN that acknowledges unsent data, and is not in place, has no effect.
#[test]
fn the_acknowledgment_of_a_fin_that_is_not_taken() {
    let mut b = connected();
    b.send(&client(5664, b"z"));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
    b.send(&pkt(ToServer, ACK, 1011, 5002, b""));
    b.send(&pkt(ToServer, FIN | ACK, 1036, 5002u32.wrapping_add(1 << 31), b"x"));
    b.send(&pkt(ToServer, PSH | ACK, 1001, 5002, b"a"));
    b.send(&pkt(ToClient, ACK, 5002, 1002, b""));
    assert_eq!(b.read(ToServer, false), "a");
}

/// The client has closed, but its FIN may be lost: the connection is over once the FIN is acknowledged.
#[test]
fn the_last_acknowledgment_is_that_of_the_clients_fin() {
    let crossing = |b: &mut Bench| {
        b.send(&pkt(ToServer, FIN | ACK, 1001, 5001, b""));
        b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
        b.send(&pkt(ToServer, ACK, 1002, 5002, b""));
        assert_ne!(b.state(), TcpState::Closed);
    };
    let mut b = connected();
    crossing(&mut b);
    b.send(&pkt(ToClient, ACK, 5002, 1002, b""));
    assert_eq!(b.state(), TcpState::Closed);
    // The FIN was lost, and the client continues.
    let mut b = connected();
    crossing(&mut b);
    b.send(&pkt(ToServer, PSH | ACK, 1001, 5002, b"a"));
    b.send(&pkt(ToClient, ACK, 5002, 1002, b""));
    assert_eq!(b.read(ToServer, false), "a");
}

/// A segment with an urgent pointer to `at`, counted from the start of the stream.
fn urgent(seq: u32, at: u16, payload: &[u8]) -> Pkt {
    let mut p = flags(ACK | URG, client(seq, payload));
    p.urgent = at + 1 - (seq - 1001) as u16;
    p
}

/// An urgent pointer is reported, and so is one that may turn the byte of another pointer into ordinary data.
#[test]
fn events_of_urgent_pointers() {
    let mut b = connected();
    assert_eq!(events(&b.send(&urgent(1001, 2, b"abX"))), ["reassembly_urgent_data"]);
    // The byte has arrived, and the application may have read it or not.
    b.send(&acks(1004));
    assert_eq!(events(&b.send(&urgent(1004, 9, b"de"))), ["reassembly_urgent_data", "reassembly_urgent_passed_over"]);
    // A pointer before that, or at acknowledged data, has no effect.
    assert!(!events(&b.send(&urgent(1002, 1, b"b"))).contains(&"reassembly_urgent_data"));
    // Unacknowledged data may not have arrived.
    let mut b = connected();
    b.send(&client(1001, b"a"));
    assert_eq!(events(&b.send(&urgent(1001, 0, b"ab"))), ["reassembly_urgent_data"]);
    b.send(&acks(1003));
    assert_eq!(b.read(ToServer, false), "ab");
}

/// An urgent pointer was pending when the flow timed out. A later pointer to an earlier byte has no effect, and the
/// first pointer's byte is removed.
#[test]
fn an_urgent_pointer_that_waits_while_the_flow_times_out() {
    for early in [false, true] {
        let mut b = connected();
        b.send_all(&[client(1001, b"abc"), acks(1004), urgent(1004, 5, b"")]);
        if early {
            b.send(&client(1006, b"Xg"));
        }
        b.times_out();
        let out = b.send(&urgent(1004, 3, b"de"));
        assert!(!events(&out).contains(&"reassembly_urgent_passed_over"));
        b.send_all(&[acks(1006), client(1006, b"Xg"), acks(1008)]);
        assert_eq!(b.read(ToServer, false), "deg", "{early}");
    }
    // A segment without data resumes a connection as well.
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004)]);
    b.times_out();
    b.send_all(&[urgent(1004, 4, b""), client(1004, b"dXf"), acks(1007)]);
    assert_eq!(b.read(ToServer, false), "df");
}

/// A pointer to data that the receiver had before the flow timed out has no effect.
#[test]
fn a_pointer_to_what_came_before_the_flow_timed_out() {
    let mut b = connected();
    b.send(&client(1054, b"z"));
    b.times_out();
    b.send_all(&[client(1001, &[b'a'; 53]), acks(1055), urgent(1054, 53, b"zb"), acks(1056)]);
    assert!(b.read(ToServer, false).ends_with("azb"));
}

/// After a reset that did not arrive, an urgent pointer without data counts. Data that the other side sent since does
/// not cast doubt on the sender.
#[test]
fn urgent_pointers_behind_a_lost_reset() {
    let mut b = connected();
    b.send(&pkt(ToServer, RST | ACK, 1001, 5001, b""));
    b.send(&urgent(1001, 3, b""));
    b.send_all(&[urgent(1001, 1, b"abcXd"), acks(1006)]);
    assert_eq!(b.read(ToServer, false), "abcd");
    let mut b = connected();
    b.send(&pkt(ToServer, RST | ACK, 1001, 5001, b""));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
    b.send(&pkt(ToServer, PSH | ACK, 1001, 5002, b"ab"));
    let mut p = urgent(1003, 2, b"Xd");
    p.ack = 5002;
    b.send_all(&[p, acks(1005)]);
    assert_eq!(b.read(ToServer, false), "abd");
}

/// Before the handshake is complete, Linux discards timestamps that are one too old, and echoes of anything but the
/// SYN/ACK's timestamp.
#[test]
fn timestamps_of_the_last_packet_of_a_handshake() {
    let mut b = with_timestamps();
    b.send(&stamped(999, 2000, client(1001, b"")));
    b.send_all(&[stamped(999, 2000, client(1001, b"x")), client(1001, b"y"), acks(1002)]);
    assert_eq!(b.read(ToServer, false), "y");
    let mut b = with_timestamps();
    b.send_all(&[stamped(1001, 77, client(1001, b"x")), client(1001, b"y"), acks(1002)]);
    assert_eq!(b.read(ToServer, false), "y");
    // After the handshake, a timestamp older by one is valid.
    let mut b = with_timestamps();
    b.send(&stamped(1000, 2000, client(1001, b"")));
    b.send_all(&[stamped(999, 2000, client(1001, b"x")), client(1001, b"y"), acks(1002)]);
    assert_eq!(b.read(ToServer, false), "x");
}

/// Timestamps of packets that a host discards are not recorded: a packet that ends before the acknowledged data, or one
/// that acknowledges unsent data.
#[test]
fn timestamps_that_are_not_noted() {
    let mut b = with_timestamps();
    b.send_all(&[stamped(1001, 2000, client(1001, b"abc")), stamped(2001, 1001, acks(1004))]);
    b.send(&pkt(ToServer, FIN | ACK, 1017, 5001, b""));
    b.send(&stamped(1500, 2001, pkt(ToServer, ACK, 900, 5001, b"")));
    assert!(events(&b.send(&stamped(1100, 2001, client(1004, b"d")))).iter().all(|e| *e != "pkt_invalid_timestamp"));
    let mut b = with_timestamps();
    b.send_all(&[stamped(1001, 2000, client(1001, b"abc")), stamped(2001, 1001, acks(1004))]);
    let mut p = stamped(1500, 2001, client(1004, b""));
    (p.flags, p.ack) = (ACK, 5002);
    b.send(&p);
    assert!(events(&b.send(&stamped(1100, 2001, client(1004, b"d")))).is_empty());
}

/// A timestamp that the receiver may have recorded is remembered with a timed out connection.
#[test]
fn timestamps_of_connections_that_time_out() {
    let mut b = with_timestamps();
    b.send_all(&[stamped(1001, 2000, client(1001, b"a")), stamped(2001, 1001, acks(1002))]);
    b.send(&stamped(1009, 2001, client(1001, b"ab")));
    b.times_out();
    let out = b.send(&Pkt { time: 100_000, ..stamped(1003, 2001, client(1002, b"xy")) });
    assert_eq!((events(&out), out.accepted), (vec!["pkt_invalid_timestamp"], true));
    b.send_all(&[client(1002, b"bc"), acks(1004)]);
    assert!(b.read(ToServer, false).ends_with('c'));
}

/// The client resets an unsolicited packet, although the server had opened as well and sent an acknowledgment.
#[test]
fn a_reset_while_both_open() {
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN, 5000, 0, b""));
    b.send(&pkt(ToClient, ACK, 5000, 1000, b""));
    b.send(&pkt(ToServer, RST, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    b.send_all(&[pkt(ToClient, PSH | ACK, 5001, 1001, b"data"), pkt(ToServer, ACK, 1001, 5005, b"")]);
    assert_eq!(b.read(ToClient, false), "data");
}

/// Linux may accept data with too old an acknowledgment, even while a FIN waits for missing data before it.
#[test]
fn an_acknowledgment_that_is_too_old_is_told() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004), pkt(ToServer, FIN | ACK, 1020, 5001, b"")]);
    let mut p = client(1004, b"d");
    p.ack = 5001u32.wrapping_sub(30_000);
    assert!(events(&b.send(&p)).contains(&"pkt_invalid_ack"));
    // Early data that acknowledges unsent data is no reason to report either.
    let mut b = connected();
    b.send(&Pkt { ack: 9000, ..client(1020, b"z") });
    assert!(events(&b.send(&Pkt { ack: 5001 - 3000, ..client(1001, b"a") })).contains(&"pkt_invalid_ack"));
}

/// In a simultaneous open, the SYNs decide whether timestamps are used, not the SYN/ACK of one side.
#[test]
fn timestamps_where_both_open() {
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, 0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(5000, 0, pkt(ToClient, SYN, 5000, 0, b"")));
    b.send(&stamped(1001, 5000, pkt(ToServer, SYN | ACK, 1000, 5001, b"")));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    b.send(&stamped(4000, 1001, pkt(ToClient, PSH | ACK, 5001, 1001, b"x")));
    b.send_all(&[pkt(ToClient, PSH | ACK, 5001, 1001, b"y"), stamped(1002, 5000, pkt(ToServer, ACK, 1001, 5002, b""))]);
    assert_eq!(b.read(ToClient, false), "y");
}

/// The timestamp of data after a segment beyond the window may be recorded: the receiver may have accepted that segment.
#[test]
fn timestamps_behind_a_segment_beyond_the_window() {
    let mut b = with_timestamps();
    b.send(&stamped(1001, 2000, client(1001, b"")));
    let out = b.send(&client(1001, &[b'a'; 8200]));
    assert_eq!(events(&out), ["est_packet_out_of_window"]);
    b.send(&stamped(1032, 2000, client(1001 + 8200, b"b")));
    b.send(&stamped(2001, 1032, acks(1001 + 8201)));
    let out = b.send(&stamped(1013, 2001, client(1001 + 8201, b"x")));
    assert_eq!((events(&out), out.accepted), (vec!["pkt_invalid_timestamp"], false));
}

/// Linux opens a connection with a SYN that also has a FIN, and with such a SYN/ACK.
#[test]
fn answers_with_a_fin() {
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    assert_eq!(events(&b.send(&pkt(ToClient, SYN | ACK | FIN, 5000, 1001, b""))), ["fin_syn"]);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    b.send_all(&[pkt(ToClient, PSH | ACK, 5001, 1001, b"data"), pkt(ToServer, ACK, 1001, 5005, b"")]);
    assert_eq!(b.read(ToClient, false), "data");
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | FIN, 5000, 0, b""));
    b.send(&pkt(ToServer, SYN | ACK, 1000, 5001, b""));
    b.send_all(&[pkt(ToClient, PSH | ACK, 5001, 1001, b"data"), pkt(ToServer, ACK, 1001, 5005, b"")]);
    assert_eq!(b.read(ToClient, false), "data");
    // Data that begins before the sender's SYN is accepted from there on.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | FIN, 5000, 0, b""));
    b.send(&pkt(ToServer, SYN | ACK, 1000, 5001, b""));
    b.send_all(&[pkt(ToClient, PSH | ACK, 4998, 1001, b"abcde"), pkt(ToServer, ACK, 1001, 5003, b"")]);
    assert_eq!(b.read(ToClient, false), "de");
    // Such a packet alone does not open a connection.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    assert!(!b.send(&pkt(ToServer, SYN | FIN, 1000, 0, b"")).accepted);
}

/// A host's window counts after a reset that it did not receive.
#[test]
fn windows_behind_a_lost_reset() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), pkt(ToServer, RST | ACK, 1004, 5001, b"")]);
    b.send(&pkt(ToClient, ACK, 5001, 1004, b""));
    b.send(&client(1004, b"d"));
    let out = b.send(&client(1005, &[b'e'; 8191]));
    assert_eq!((events(&out), out.accepted), (vec![], true));
}

/// Two SYNs have the same number but different options. The SYN/ACK shows which was answered.
#[test]
fn a_syn_that_comes_again_with_other_options() {
    // The first SYN was signed, which this server discards.
    let mut b = Bench::new(linux());
    let mut signed = pkt(ToServer, SYN, 1000, 0, b"");
    signed.options.signed = true;
    b.send_all(&[signed, pkt(ToServer, SYN, 1000, 0, b""), pkt(ToClient, SYN | ACK, 5000, 1001, b"")]);
    b.send_all(&[urgent(1001, 0, b"Xa"), acks(1003)]);
    assert_eq!(b.read(ToServer, false), "a");
    // The first SYN had no timestamp. A timestamp older than the second SYN's is old.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&stamped(110, 0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, 110, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    assert_eq!(events(&b.send(&stamped(100, 2000, client(1001, b"X")))), ["pkt_invalid_timestamp"]);
    // If the answer has no timestamp, none are used.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&stamped(110, 0, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert!(b.send(&stamped(100, 0, client(1001, b"a"))).accepted);
}

/// A FIN takes a sequence number after its data. If that number is expected, the FIN's timestamp is recorded although no
/// data is accepted.
#[test]
fn the_timestamp_of_a_fin_that_repeats_what_is_there() {
    let mut b = with_timestamps();
    b.send(&pkt(ToServer, FIN | ACK, 1034, 5001, b""));
    b.send(&stamped(1004, 2000, pkt(ToServer, FIN | ACK, 1000, 5001, b"")));
    assert!(events(&b.send(&stamped(1002, 2000, client(1001, b"X")))).contains(&"pkt_invalid_timestamp"));
    b.send_all(&[client(1001, b"a"), acks(1002)]);
    assert_eq!(b.read(ToServer, false), "a");
}

/// Too old an acknowledgment on a timed out connection: its data may be accepted anyway, which is reported.
#[test]
fn an_acknowledgment_that_is_too_old_where_the_flow_timed_out() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004)]);
    b.times_out();
    let mut p = client(1004, b"d");
    p.ack = 5001u32.wrapping_sub(188_941_365);
    assert!(events(&b.send(&p)).contains(&"pkt_invalid_ack"));
    b.send_all(&[acks(1005), client(1005, b"e"), acks(1006)]);
    assert!(b.read(ToServer, false).ends_with('e'));
}

/// The urgent pointer of a keep-alive with a byte counts.
#[test]
fn an_urgent_pointer_of_a_keep_alive() {
    let mut b = connected();
    b.send_all(&[client(1001, b"abc"), acks(1004)]);
    assert_eq!(events(&b.send(&urgent(1003, 4, b"c"))), ["reassembly_urgent_data"]);
    b.send_all(&[acks(1004), client(1004, b"dXe"), acks(1007)]);
    assert_eq!(b.read(ToServer, false), "abcde");
}

/// Timestamps wrap around: one that is older than the latest need not be older than the recorded one.
#[test]
fn timestamps_that_go_round() {
    let mut b = with_timestamps();
    let far = 1000 + (1 << 31);
    b.send(&stamped(far, 2000, client(1001, b"a")));
    b.send(&stamped(2000, far, acks(1002)));
    b.send(&stamped(1000 - 202, 2000, client(1002, b"b")));
    b.send(&stamped(1014, 2000, client(1003, b"")));
    let out = b.send(&stamped(1009, 2000, client(1003, b"c")));
    assert_eq!((events(&out), out.accepted), (vec!["pkt_invalid_timestamp"], true));
}
