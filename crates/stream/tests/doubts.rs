//! Segments that a host may discard, and the data that replaces or follows them. Each conversation was held with Linux
//! 6.18, and the test expects what it read.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, acking, acks, client, events, linux, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::StreamConfig;

use Direction::{ToClient, ToServer};

fn stamped(value: u32, mut p: Pkt) -> Pkt {
    p.options.timestamp = Some((value, 0));
    p
}

/// Data after a discarded segment is early for the host, and the discarded data is sent again.
#[test]
fn behind_what_a_host_discards() {
    let odd = |p: Pkt| acking(5101, p);
    let broken = |p: Pkt| Pkt { broken: true, ..p };
    let late = |p: Pkt| Pkt { ttl: 3, ..p };
    for (name, discarded) in
        [("acknowledgment", &odd as &dyn Fn(Pkt) -> Pkt), ("checksum", &broken), ("fewer hops", &late)]
    {
        // A segment that begins before the early one is the one that is read.
        let mut b = Bench::connected(linux());
        b.send(&discarded(client(1001, b"xx")));
        b.send(&client(1003, b"Y"));
        b.send(&client(1001, b"abcd"));
        b.send(&acks(1005));
        assert_eq!(b.read(ToServer, false), "abcd", "{name}");
        // The discarded segment is early as well.
        let mut b = Bench::connected(linux());
        b.send(&discarded(client(1004, b"xxx")));
        b.send(&client(1006, b"Y"));
        b.send(&client(1001, b"abc"));
        b.send(&client(1004, b"def"));
        b.send(&acks(1007));
        assert_eq!(b.read(ToServer, false), "abcdef", "{name}");
        // The segment was accepted: the host acknowledges it.
        let mut b = Bench::connected(linux());
        b.send(&discarded(client(1001, b"xx")));
        b.send(&acks(1003));
        b.send(&client(1003, b"Y"));
        b.send(&client(1001, b"abcd"));
        b.send(&acks(1005));
        assert_eq!(b.read(ToServer, false), "xxYd", "{name}");
        // Half of it was accepted, since the rest came before.
        let mut b = Bench::connected(linux());
        b.send(&discarded(client(1001, b"xxxx")));
        b.send(&client(1005, b"yy"));
        b.send(&acks(1003));
        assert_eq!(b.read(ToServer, false), "xx", "{name}");
        b.send(&client(1003, b"ab"));
        b.send(&acks(1007));
        assert_eq!(b.read(ToServer, false), "abyy", "{name}");
        // No other data ever comes.
        let mut b = Bench::connected(linux());
        b.send(&discarded(client(1001, b"xx")));
        b.send(&client(1003, b"Y"));
        assert_eq!(b.read(ToServer, false), "", "{name}");
        b.session().finish_streams();
        assert_eq!(b.read(ToServer, true), "xxY", "{name}");
    }
}

/// An urgent pointer to a byte of a discarded segment counts: the host does not have the byte yet.
#[test]
fn an_urgent_byte_that_was_discarded_before() {
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello "));
    b.send(&acking(5101, client(1007, b"x")));
    b.send(&Pkt { flags: URG | ACK, ..client(1007, b"ab") });
    b.send(&acks(1009));
    assert_eq!(b.read(ToServer, false), "hello b");
}

/// Of two doubtful segments the less doubtful one counts, and with equal doubt the first.
#[test]
fn two_doubts() {
    let few_hops = |p: Pkt| Pkt { ttl: 3, ..p };
    let odd = |p: Pkt| acking(5101, p);
    for first in [true, false] {
        let mut b = Bench::connected(linux());
        let both = [few_hops(client(1001, b"ATTACK")), odd(client(1001, b"DECOY-longer"))];
        let (a, z) = if first { (0, 1) } else { (1, 0) };
        b.send(&both[a]);
        b.send(&both[z]);
        b.send(&acks(1007));
        assert_eq!(b.read(ToServer, false), "ATTACK", "{first}");
    }
    // A receiver that accepts such segments had the first in order.
    let mut b = Bench::connected(linux());
    b.send(&few_hops(client(1001, b"ATT")));
    b.send(&few_hops(client(1004, b"ACK")));
    b.send(&few_hops(client(1001, b"DECOY-longer")));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// The byte of a window probe comes again with another value: a host that accepted the first keeps it.
#[test]
fn a_window_probe_that_comes_again() {
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello "));
    b.send(&Pkt { window: 0, ..acks(1007) });
    b.send(&client(1007, b"A"));
    b.send(&client(1007, b"X"));
    b.send(&acks(1008));
    assert_eq!(b.read(ToServer, false), "hello A");
}

/// A server's timestamps count from its SYN/ACK on, whatever the packet time.
#[test]
fn old_timestamps_of_a_server() {
    let at = |p: Pkt| Pkt { time: 1_700_000_000, ..p };
    for other_syn in [false, true] {
        let mut b = Bench::new(linux());
        b.send(&at(stamped(1000, pkt(ToServer, SYN, if other_syn { 77_000 } else { 1000 }, 0, b""))));
        if other_syn {
            b.send(&at(stamped(1000, pkt(ToServer, SYN, 1000, 0, b""))));
        }
        b.send(&at(stamped(100, pkt(ToClient, SYN | ACK, 5000, 1001, b""))));
        b.send(&at(stamped(1001, pkt(ToServer, ACK, 1001, 5001, b""))));
        assert_eq!(events(&b.send(&at(stamped(67, pkt(ToClient, ACK, 5001, 1001, b"X"))))), ["pkt_invalid_timestamp"]);
        b.send(&at(pkt(ToClient, ACK, 5001, 1001, b"a")));
        b.send(&at(stamped(1002, pkt(ToServer, ACK, 1001, 5002, b""))));
        assert_eq!(b.read(ToClient, false), "a");
        assert_eq!(events(&b.send(&at(stamped(900, client(1001, b"X"))))), ["pkt_invalid_timestamp"]);
    }
}

/// An acknowledgment of all data shows neither that a packet without new data arrived, nor that its timestamp was not
/// recorded.
#[test]
fn a_timestamp_that_came_with_nothing_new() {
    let echoing = |echo: u32, mut p: Pkt| {
        p.options.timestamp = Some((2001, echo));
        p
    };
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    b.send(&stamped(1001, client(1001, b"hello ")));
    b.send(&stamped(1012, client(1003, b"llo ")));
    // It was already in flight.
    b.send(&echoing(1001, acks(1007)));
    b.send(&stamped(1010, client(1007, b"X")));
    b.send(&client(1005, b"o A"));
    b.send(&echoing(1012, acks(1008)));
    assert_eq!(b.read(ToServer, false), "hello A");
}

/// Linux records the timestamp of a packet without data on its fast path, however old its acknowledgment is.
#[test]
fn a_timestamp_with_an_old_acknowledgment() {
    let laid_out =
        |value: u32, p: Pkt| Pkt { unreadable: vec![1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0], ..stamped(value, p) };
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    b.send(&laid_out(1010, acking(4000, client(1001, b""))));
    b.send(&stamped(1005, client(1001, b"X")));
    b.send(&client(1001, b"A"));
    b.send(&acks(1002));
    assert_eq!(b.read(ToServer, false), "A");
}

/// Linux looks for a signature as long as there is room for one, and discards a segment if it meets an unreadable
/// option.
#[test]
fn options_that_hide_a_signature() {
    let time = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1];
    for (options, read) in [
        ([&[77, 0][..], &time, &time[..10]].concat(), "A"),
        ([&time[..], &time, &[77, 0, 0, 0]].concat(), "X"),
        ([&[1; 22][..], &[77, 0]].concat(), "X"),
        ([&[0, 0][..], &[77; 22]].concat(), "X"),
        ([&[19, 4, 0, 0][..], &[1; 20]].concat(), "A"),
    ] {
        let mut b = Bench::connected(linux());
        b.send(&Pkt { unreadable: options.clone(), ..client(1001, b"X") });
        b.send(&client(1001, b"A"));
        b.send(&acks(1002));
        assert_eq!(b.read(ToServer, false), read, "{options:?}");
    }
}

/// A client that did not accept the server's SYN, which Linux discards for its options, takes a different SYN/ACK as the
/// answer to its own.
#[test]
fn a_syn_of_the_server_that_was_not_accepted() {
    for accepted in [false, true] {
        let mut b = Bench::new(linux());
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN, 5000, 0, b""));
        assert_eq!(events(&b.send(&pkt(ToClient, SYN | ACK, 5001, 1001, b""))), ["4whs_synack_with_wrong_syn"]);
        if accepted {
            b.send(&pkt(ToServer, SYN | ACK, 1000, 5001, b""));
            b.send(&pkt(ToClient, ACK, 5001, 1001, b""));
        } else {
            b.send(&pkt(ToServer, ACK, 1001, 5002, b""));
        }
        b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"-ATTACK"));
        b.send(&pkt(ToServer, ACK, 1001, 5008, b""));
        assert_eq!(b.read(ToClient, false), if accepted { "-ATTACK" } else { "ATTACK" });
    }
}

/// The options of its SYN/ACK count, even if both have the same number.
#[test]
fn options_of_a_syn_of_the_server_that_was_not_accepted() {
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&pkt(ToClient, SYN, 5000, 0, b""));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    let out = b.send(&stamped(1500, pkt(ToClient, PSH | ACK, 5001, 1001, b"DECOY-")));
    assert_eq!(events(&out), ["pkt_invalid_timestamp"]);
    b.send(&stamped(2001, pkt(ToClient, PSH | ACK, 5001, 1001, b"ATTACK")));
    b.send(&stamped(1002, pkt(ToServer, ACK, 1001, 5007, b"")));
    assert_eq!(b.read(ToClient, false), "ATTACK");
}

/// A server answers one SYN, gives that connection up at another SYN, and answers a third one.
#[test]
fn a_connection_in_the_place_of_one_that_was_given_up() {
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 77_000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 77_001, b""));
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, RST | ACK, 0, 1001, b""));
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    // An answer that does not acknowledge this SYN has no effect.
    let out = b.send(&pkt(ToClient, SYN | ACK, 9000, 2001, b""));
    assert_eq!(events(&out), ["3whs_synack_resend_with_different_ack"]);
    assert!(b.send(&pkt(ToClient, SYN | ACK, 9000, 1001, b"")).accepted);
    b.send(&pkt(ToServer, ACK, 1001, 9001, b"ATTACK"));
    b.send(&pkt(ToClient, ACK, 9001, 1007, b""));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// A FIN that the server did not acknowledge has no effect for it: a SYN opens no connection until the server answers
/// it.
#[test]
fn a_syn_behind_a_fin_that_was_not_taken() {
    let mut b = Bench::connected(linux());
    b.send(&pkt(ToServer, FIN | ACK, 1101, 5001, b""));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
    assert!(!b.send(&pkt(ToServer, SYN, 90_000, 0, b"")).reuse);
    b.send(&client(1001, b"ATTACK"));
    b.send(&pkt(ToClient, ACK, 5002, 1007, b""));
    assert_eq!(b.read(ToServer, false), "ATTACK");
    assert!(b.send(&pkt(ToClient, SYN | ACK, 70_000, 90_001, b"")).reuse);
    // A FIN that the server acknowledged.
    let mut b = Bench::connected(linux());
    b.send(&pkt(ToServer, FIN | ACK, 1001, 5001, b""));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1002, b""));
    assert!(b.send(&pkt(ToServer, SYN, 90_000, 0, b"")).reuse);
}

/// Before the handshake is complete, a server may accept early data beyond its announced window.
#[test]
fn early_data_beyond_the_window_of_a_handshake() {
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&Pkt { window: 100, ..pkt(ToClient, SYN | ACK, 5000, 1001, b"") });
    let out = b.send(&client(1121, b"end"));
    assert_eq!((out.accepted, events(&out)[0]), (true, "3whs_wrong_seq_wrong_ack"));
    b.send(&client(1001, &[b'a'; 120]));
    b.send(&acks(1124));
    assert_eq!(b.read(ToServer, false), "a".repeat(120) + "end");
    // But only near the window.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&Pkt { window: 100, ..pkt(ToClient, SYN | ACK, 5000, 1001, b"") });
    assert!(!b.send(&client(1202, b"end")).accepted);
}

/// A connection with timestamps, to a server with a window of this size.
fn with_timestamps(window: u16) -> Bench {
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&Pkt { window, ..stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")) });
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    b
}

/// Of three timestamps that its receiver may have recorded, no two can be compared: none is certainly old.
#[test]
fn timestamps_that_cannot_be_compared() {
    let mut b = with_timestamps(u16::MAX);
    b.send(&acking(5101, client(1001, b"DECOY-")));
    b.send(&stamped(0x7fff_ffff, client(1003, b"")));
    b.send(&stamped(0xf000_0000, client(1001, b"")));
    let out = b.send(&stamped(0x8000_0000, client(1001, b"ATTACK")));
    assert!(out.accepted && events(&out).contains(&"pkt_invalid_timestamp"));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// A receiver with more room than it announced records the timestamp of a segment beyond its window.
#[test]
fn the_timestamp_of_a_segment_beyond_the_window() {
    let mut b = with_timestamps(4);
    b.send(&client(1001, b"abcdef"));
    b.send(&stamped(0x8000_0000, client(1007, b"")));
    b.send(&stamped(0xffff_0000, client(1007, b"g")));
    b.send(&acks(1008));
    assert_eq!(b.read(ToServer, false), "abcdefg");
}

/// A receiver that does not acknowledge early data when the missing data arrives has discarded it: the next data there
/// counts.
#[test]
fn early_data_that_its_receiver_had_no_room_for() {
    let mut b = Bench::connected(linux());
    b.send(&client(1005, b"DECOY"));
    b.send(&client(1001, b"hell"));
    b.send(&acks(1005));
    b.send(&client(1005, b"o ATTACK"));
    b.send(&acks(1013));
    assert_eq!(b.read(ToServer, false), "hello ATTACK");
    // It had room for a part.
    let mut b = Bench::connected(linux());
    b.send(&client(1005, b"o "));
    b.send(&client(1007, b"DECOY"));
    b.send(&client(1001, b"hell"));
    b.send(&client(1012, b"!"));
    b.send(&acks(1007));
    b.send(&client(1007, b"DEFENDER"));
    b.send(&acks(1015));
    assert_eq!(b.read(ToServer, false), "hello DEFEN!ER");
    // An acknowledgment that was in flight shows nothing, nor does one of in-order data.
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"he"));
    b.send(&client(1007, b"AT"));
    b.send(&client(1003, b"llo "));
    b.send(&acks(1003));
    b.send(&client(1009, b"TACK"));
    b.send(&client(1007, b"DECOY-"));
    b.send(&acks(1013));
    assert_eq!(b.read(ToServer, false), "hello ATTACK");
    // Inline, the data was inspected and forwarded: later data for that place is rewritten to match.
    let mut b = Bench::connected(StreamConfig { inline: true, ..linux() });
    b.send(&client(1005, b"o A"));
    b.send(&client(1001, b"hell"));
    b.send(&acks(1005));
    assert!(b.send(&client(1005, b"XXX")).rewrite);
}

/// Two SYNs have the same number but different timestamps. The second may be the one that arrived.
#[test]
fn a_syn_that_comes_again_with_another_timestamp() {
    let mut b = Bench::new(linux());
    b.send(&stamped(1007, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1004, client(1001, b"ATTACK")));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
}

/// Data after a FIN, seen before or after it: nobody can know what a host reads there, and an event reports it.
#[test]
fn data_on_both_sides_of_a_fin() {
    let mut b = Bench::connected(linux());
    b.send(&client(1011, b"x"));
    let out = b.send(&pkt(ToServer, FIN | ACK, 1005, 5001, b""));
    assert_eq!((out.accepted, events(&out)), (true, vec!["data_after_fin"]));
}

/// A retransmission may have an urgent pointer to a byte after its data.
#[test]
fn an_urgent_pointer_with_what_was_acknowledged() {
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello"));
    b.send(&acks(1006));
    b.send(&Pkt { flags: URG | ACK, urgent: 9, ..client(1001, b"hello") });
    b.send(&client(1006, b"abcXd"));
    b.send(&acks(1011));
    assert_eq!(b.read(ToServer, false), "helloabcd");
    // One with a broken header has no effect.
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello"));
    b.send(&Pkt { flags: URG | ACK, urgent: 4, broken: true, ..client(1006, b"") });
    b.send(&client(1006, b"abcXd"));
    b.send(&acks(1011));
    assert_eq!(b.read(ToServer, false), "helloabcXd");
}

/// Packets whose timestamps a host records although it accepts no data, and packets that it discards before the
/// handshake is complete.
#[test]
fn timestamps_of_what_does_not_fit() {
    let mut b = Bench::new(linux());
    b.send(&stamped(1000, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1001, pkt(ToServer, ACK, 1001, 5001, b"")));
    b.send(&stamped(1001, client(1001, b"hello ")));
    b.send(&stamped(2001, acks(1007)));
    b.send(&stamped(1012, pkt(ToServer, FIN | ACK, 1006, 5001, b"")));
    b.send(&stamped(1004, client(1007, b"X")));
    b.send(&client(1007, b"A"));
    b.send(&acks(1008));
    assert_eq!(b.read(ToServer, false), "hello A");
    let mut b = Bench::new(linux());
    b.send(&stamped(1003, pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&stamped(2000, pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    b.send(&stamped(1002, client(1001, b"X")));
    b.send(&client(1001, b"A"));
    b.send(&acks(1002));
    assert_eq!(b.read(ToServer, false), "A");
}

/// An acknowledgment of unsent data opens no window against which others would be compared.
#[test]
fn acknowledgments_far_ahead_open_no_window() {
    let scaled = |mut p: Pkt| {
        p.options.window_scale = Some(14);
        p
    };
    let mut b = Bench::new(linux());
    b.send(&scaled(pkt(ToServer, SYN, 1000, 0, b"")));
    b.send(&scaled(pkt(ToClient, SYN | ACK, 5000, 1001, b"")));
    let wide = |p: Pkt| Pkt { window: 65_535, ..p };
    b.send(&wide(pkt(ToServer, ACK, 1001, 5001, b"")));
    for ack in [500_000_000, 1_000_000_000, 1_500_000_000] {
        b.send(&wide(acking(5001 + ack, client(1001, b""))));
    }
    // By these acknowledgments the answer is late; it is read anyway.
    let out = b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"answer"));
    assert_eq!((events(&out), out.drop), (vec!["pkt_spurious_retransmission"], false));
    b.send(&wide(acking(5007, client(1001, b""))));
    assert_eq!(b.read(ToClient, false), "answer");
}

/// A reset that every host discards has no effect, and after one that a host may not have received the application layer
/// continues.
#[test]
fn resets_that_end_nothing() {
    let reset = || Pkt { flags: RST, ..client(1005, b"") };
    let signed = |mut p: Pkt| {
        p.options.signed = true;
        p
    };
    for (name, p, closes) in [
        ("a broken header", Pkt { broken: true, ..reset() }, false),
        ("a signature", signed(reset()), false),
        ("a signature, and an acknowledgment", signed(Pkt { flags: RST | ACK, ..reset() }), false),
        ("lost", reset(), true),
    ] {
        let mut b = Bench::connected(linux());
        b.send(&client(1001, b"GET "));
        b.send(&acks(1005));
        assert_eq!(b.read(ToServer, false), "GET ");
        b.send(&p);
        assert_eq!(b.session().may_go_on(), closes, "{name}");
        let out = b.send(&client(1005, b"/attack"));
        assert!(out.accepted && !out.restart, "{name}");
        assert_eq!(events(&out), if p.flags & ACK != 0 { vec!["suspected_rst_inject"] } else { vec![] }, "{name}");
        b.send(&acks(1012));
        assert_eq!(b.read(ToServer, false), "/attack", "{name}");
        assert!(!b.session().is_midstream());
    }
    // The next data is beyond the window, but its receiver may have read data since.
    let mut b = Bench::connected(linux());
    b.send(&client(1001, &[b'a'; 8000]));
    b.send(&Pkt { window: 0, ..acks(9001) });
    b.send(&Pkt { flags: RST, ..client(9001, b"") });
    b.send(&client(9193, b"x"));
    b.send(&client(9001, &[b'b'; 192]));
    b.send(&acks(9194));
    assert_eq!(b.read(ToServer, false), "a".repeat(8000) + &"b".repeat(192) + "x");
}

/// Data in doubt behind data in order is read once at the end, even by a reader that does not finish the streams first.
#[test]
fn unacknowledged_doubt_is_read_once() {
    for finishes in [false, true] {
        let mut b = Bench::connected(linux());
        b.send(&client(1001, b"abc"));
        b.send(&acks(1004));
        b.session().raw_trigger(ToServer);
        assert_eq!(b.raw(ToServer, false), "()abc|");
        b.send(&Pkt { ttl: 3, ..client(1004, b"def") });
        if finishes {
            b.session().finish_streams();
        }
        assert_eq!(b.raw(ToServer, true), if finishes { "(abc)def|" } else { "()def|" });
    }
}
