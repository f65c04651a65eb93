//! Connections that continue after their flow has timed out, and stray packets before they do. Each conversation was held with
//! Linux 6.18, and the test expects what Linux read.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, acking, acks, client, events, linux, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::{FlowPrint, StreamConfig};

use Direction::{ToClient, ToServer};

/// A resumed connection knows which data was seen and not acknowledged.
#[test]
fn what_was_not_acknowledged_before_a_silence() {
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello "));
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"answer"));
    b.times_out();
    // It acknowledges an answer that was sent, and is what the server expects: nothing replaces it.
    b.send(&acking(5007, client(1007, b"AT")));
    b.send(&acking(5007, client(1009, b"TACK")));
    b.send(&acking(5007, client(1007, b"DECOY--")));
    b.send(&pkt(ToClient, ACK, 5007, 1014, b""));
    assert_eq!(b.read(ToServer, false), "<6>ATTACK-");
    // Lost data is sent again.
    let mut b = Bench::connected(linux());
    b.send(&client(1001, b"hello "));
    b.times_out();
    b.send(&client(1007, b"ACK"));
    b.send(&client(1001, b"hiATT "));
    b.send(&acks(1010));
    assert_eq!(b.read(ToServer, false), "hiATT ACK");
}

/// Servers wait longer for the end of a handshake than flows live.
#[test]
fn a_handshake_that_ends_after_silence() {
    let opening = |b: &mut Bench| {
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    };
    let mut b = Bench::new(linux());
    opening(&mut b);
    b.times_out();
    b.send(&acking(5002, client(1001, b"x")));
    assert!(b.session.is_none());
    b.send(&client(1001, b"ATTACK"));
    b.send(&acks(1007));
    assert_eq!(b.read(ToServer, false), "ATTACK");
    // A handshake that was not answered is over.
    let mut b = Bench::new(linux());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.times_out();
    b.send(&client(1001, b"x"));
    assert!(b.session.is_none());
    // However many there are, they evict no established connection.
    let mut b = Bench::connected(StreamConfig { remembered: 4, ..linux() });
    b.times_out();
    let session = {
        let mut other = Bench::new(linux());
        opening(&mut other);
        other.session.unwrap()
    };
    for i in 1..100u64 {
        b.engine.remember(&session, FlowPrint { hash: i << 40 | 7, second: false }, 2000);
    }
    assert_eq!(b.engine.counters.resumable, 4);
    assert_eq!(b.engine.counters.resumable_forgotten, 96);
    b.send(&client(1001, b"x"));
    assert!(b.session.is_some());
}

/// An unacknowledged FIN may be lost; in passive mode, a packet beyond the window may still be accepted.
#[test]
fn what_else_goes_on_after_silence() {
    let mut b = Bench::connected(linux());
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
    b.send(&pkt(ToServer, FIN | ACK, 1001, 5002, b""));
    b.times_out();
    b.send(&acking(5002, client(1001, b"ATTACK")));
    b.send(&pkt(ToClient, ACK, 5002, 1007, b""));
    assert_eq!(b.read(ToServer, false), "ATTACK");
    for inline in [false, true] {
        let mut b = Bench::connected(StreamConfig { inline, ..linux() });
        b.send(&Pkt { window: 2, ..acks(1001) });
        b.times_out();
        b.send(&client(1001 + 8193, b"x"));
        assert_eq!(b.session.is_some(), !inline);
    }
}

/// An early FIN without data before it, and then silence: data in its place was not seen before.
#[test]
fn an_early_fin_before_silence_is_no_data() {
    let mut b = Bench::connected(linux());
    b.send(&pkt(ToServer, FIN | ACK, 1002, 5001, b""));
    b.times_out();
    let broken = [&[77, 0][..], &[1; 22]].concat();
    b.send(&Pkt { unreadable: broken, ..client(1001, b"DECOY") });
    b.send(&client(1001, b"AT"));
    b.send(&acks(1003));
    assert_eq!(b.read(ToServer, false), "AT");
}

/// A FIN alone after silence resumes nothing, but the other side may acknowledge it. Inline, data after it is refused.
#[test]
fn a_fin_alone_after_silence() {
    let mut b = Bench::connected(linux());
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"answer"));
    b.times_out();
    b.send(&pkt(ToClient, FIN | ACK, 5007, 1001, b""));
    assert!(b.session.is_none());
    b.send(&acking(5008, client(1001, b"ATTACK")));
    b.send(&acking(5007, client(1003, b"xxxx")));
    b.send(&pkt(ToClient, ACK, 5008, 1007, b""));
    assert_eq!(b.read(ToServer, false), "ATTACK");
    for place in [1003, 1001] {
        let mut b = Bench::connected(StreamConfig { inline: true, ..linux() });
        b.times_out();
        b.send(&pkt(ToServer, FIN | ACK, place, 5001, b""));
        assert!(b.session.is_none());
        assert!(b.send(&client(place, b"ATTACK")).drop, "{place}");
    }
}

/// An early FIN is remembered over silence, near or far, with or without unacknowledged bytes: data after it is reported.
#[test]
fn data_behind_an_early_fin_after_silence() {
    for (bytes, distance) in [(0, 5), (3, 9), (0, 40_000), (3, 40_000)] {
        let mut b = Bench::connected(linux());
        b.send(&Pkt { window: 60_000, ..acks(1001) });
        if bytes > 0 {
            b.send(&client(1001, b"abc"));
        }
        b.send(&pkt(ToServer, FIN | ACK, 1001 + distance, 5001, b""));
        b.times_out();
        let out = b.send(&client(1001 + distance + 1, b"x"));
        // There is no room for a far FIN beside the bytes.
        let known = bytes == 0 || distance < 1 << 15;
        assert_eq!(events(&out).contains(&"data_after_fin"), known, "{bytes} {distance}");
        b.send(&client(1001 + bytes, b"ATTACK"));
        b.send(&acks(1001 + bytes + 6));
        assert_eq!(b.read(ToServer, false).replace(&format!("<{bytes}>"), ""), "ATTACK");
    }
}

/// Expected data with an old acknowledgment is accepted, but not with an acknowledgment of what was never sent.
#[test]
fn data_with_an_impossible_acknowledgment_resumes_nothing() {
    for (back, resumes) in [(0, true), (60_000, true), (300_000, true), (-100, true), (-70_000, false)] {
        let mut b = Bench::connected(linux());
        b.send(&client(1001, b"hello "));
        b.send(&acks(1007));
        b.times_out();
        b.send(&acking(5001u32.wrapping_sub(back as u32), client(1007, b"ATTACK")));
        assert_eq!(b.session.is_some(), resumes, "{back}");
    }
}

/// Inline, an unsolicited SYN/ACK does not stop a connection from being resumed.
#[test]
fn a_stray_answer_before_a_connection_goes_on() {
    for (config, at) in [(true, 1001), (true, 1167), (false, 1001)]
        .map(|(inline, at)| (StreamConfig { inline, spare_harmless: inline, midstream: true, ..linux() }, at))
    {
        let mut b = Bench::connected(config);
        b.send(&client(1001, b"hello "));
        b.send(&acks(1007));
        b.times_out();
        b.send(&pkt(ToClient, SYN | ACK, at, 5001, b""));
        // The server's reply to that.
        let p = pkt(ToServer, ACK, 5001, 1007, b"");
        let of_client = b.resumes(&Pkt { to: ToClient, ..p });
        assert_eq!(of_client, Some(false));
        b.send(&client(1007, b"ATTACK"));
        b.send(&acks(1013));
        assert_eq!(b.read(ToServer, false), "ATTACK");
    }
}

/// A number far from that SYN/ACK does not make it a connection of its own.
#[test]
fn a_stray_answer_with_a_made_up_number_behind_it() {
    let mut b = Bench::connected(StreamConfig { inline: true, spare_harmless: true, async_oneside: true, ..linux() });
    b.times_out();
    b.send(&pkt(ToClient, SYN | ACK, 5001, 1001, b""));
    b.send(&pkt(ToClient, ACK, 5001 + 0x7fff_0000, 1001, b""));
    assert!(!b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"ATTACK")).drop);
    assert_eq!((b.read(ToClient, false).as_str(), b.engine.counters.resumed), ("ATTACK", 1));
}

/// Neither does a SYN that its sender resets: both may be lost behind the sensor, or be another's.
#[test]
fn a_stray_opening_that_is_reset_before_a_connection_goes_on() {
    for inline in [false, true] {
        let mut b = Bench::connected(StreamConfig { inline, ..linux() });
        b.send(&client(1001, b"hello "));
        b.send(&acks(1007));
        b.times_out();
        b.send(&pkt(ToServer, SYN, 1007, 0, b""));
        b.send(&pkt(ToServer, SYN | RST, 1007, 0, b""));
        assert_eq!(b.resumes(&client(1007, b"ATTACK")), Some(true), "inline {inline}");
        b.send(&acks(1013));
        assert_eq!(b.read(ToServer, false), "ATTACK");
    }
}

/// The server answers the stray SYN, or its reset, with an acknowledgment of the connection, as RFC 5961 says.
#[test]
fn a_stray_opening_that_is_challenged() {
    for (inline, reset_first) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut b = Bench::connected(StreamConfig { inline, ..linux() });
        b.send(&client(1001, b"hello "));
        b.send(&acks(1007));
        b.times_out();
        let reset = pkt(ToServer, SYN | RST, 1040, 0, b"");
        b.send(&pkt(ToServer, SYN, 1040, 0, b""));
        if reset_first {
            b.send(&reset);
        }
        assert_eq!(b.resumes(&acks(1007)), Some(false), "{inline} {reset_first}");
        if !reset_first {
            b.send(&reset);
        }
        b.send(&client(1007, b"ATTACK"));
        b.send(&acks(1013));
        assert_eq!(b.read(ToServer, false), "ATTACK");
    }
}
