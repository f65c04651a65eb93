//! Session tests, packet by packet.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Pkt, events, pkt};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::tcp::{TcpOptions, flag::*};
use margay_stream::{AppData, Exception, StreamConfig, StreamEvent, TcpState, UrgentPolicy};
use proptest::prelude::*;

/// A retransmission caused by a lost acknowledgment must reach the receiver, so that it acknowledges again.
#[test]
fn what_brings_nothing_new_may_be_spared() {
    for spare_harmless in [false, true] {
        let config = StreamConfig { inline: true, spare_harmless, ..StreamConfig::default() };
        let mut b = Bench::connected(config);
        for (n, word) in [(1001, b"hello"), (1006, b"world")] {
            b.send(&pkt(ToServer, PSH | ACK, n, 5001, word));
            b.send(&pkt(ToClient, ACK, 5001, n + 5, b""));
        }
        let again = b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello"));
        assert_eq!((again.accepted, again.drop), (false, !spare_harmless), "{:?}", events(&again));
        let ack = b.send(&pkt(ToClient, ACK, 5001, 90_001, b""));
        assert_eq!((ack.accepted, ack.drop), (false, !spare_harmless), "{:?}", events(&ack));
        let far = b.send(&pkt(ToServer, PSH | ACK, 900_000, 5001, b"attack"));
        assert!(!far.accepted && far.drop, "{:?}", events(&far));
    }
}

/// Which side spoke first is a matter of arrival, though the other side's data may be acknowledged sooner.
#[test]
fn the_first_data_to_arrive_opens_the_connection() {
    for (first, second) in [(ToServer, ToClient), (ToClient, ToServer)] {
        let mut b = Bench::connected(StreamConfig::default());
        assert_eq!(b.session().opened_by(), None);
        let seq = |d| if d == ToServer { 1001 } else { 5001 };
        b.send(&pkt(first, PSH | ACK, seq(first), seq(second), b"early"));
        b.send(&pkt(second, PSH | ACK, seq(second), seq(first), b"late"));
        b.send(&pkt(first, ACK, seq(first) + 5, seq(second) + 4, b""));
        assert_eq!((b.read(first, false), b.read(second, false)), (String::new(), "late".into()));
        assert_eq!(b.session().opened_by(), Some(first));
    }
}

/// A reset without a connection is invalid. On a live network, it may end a connection older than the engine.
#[test]
fn a_reset_without_a_session() {
    for (inline, drop_invalid, spare_harmless, dropped) in
        [(true, true, false, true), (true, true, true, false), (true, false, false, false), (false, true, false, false)]
    {
        let config = StreamConfig { inline, drop_invalid, spare_harmless, ..StreamConfig::default() };
        for flags in [RST, RST | ACK, RST | SYN] {
            let mut b = Bench::new(config.clone());
            let reset = b.send(&pkt(ToServer, flags, 1000, 0, b""));
            assert_eq!((reset.drop, events(&reset)), (dropped, vec!["rst_but_no_session"]));
        }
    }
}

/// Nothing is inspected beyond the depth, or without a reader: retransmissions there must reach the receiver too. A
/// retransmission of inspected data must not change it.
#[test]
fn what_is_repeated_behind_the_depth_may_be_spared() {
    for unread in [false, true] {
        let depth = if unread { 0 } else { 8 };
        let mut b = Bench::connected(StreamConfig { inline: true, spare_harmless: true, depth, ..Default::default() });
        b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"inspected"));
        b.send(&pkt(ToClient, ACK, 5001, 1010, b""));
        assert_eq!(b.read(ToServer, false), if unread { "inspected" } else { "inspecte" });
        if unread {
            b.session().app_disable();
            b.session().raw_disable();
        }
        b.send(&pkt(ToServer, PSH | ACK, 1010, 5001, b"and more"));
        b.send(&pkt(ToClient, ACK, 5001, 1018, b""));
        let again = b.send(&pkt(ToServer, PSH | ACK, 1010, 5001, b"and more"));
        assert_eq!((again.accepted, again.drop, again.without_data), (false, false, false), "{:?}", events(&again));
        b.send(&pkt(ToServer, PSH | ACK, 1018, 5001, b"at last"));
        b.send(&pkt(ToClient, ACK, 5001, 1025, b""));
        let all = b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"INSPECTEDand more"));
        assert!(!all.accepted && (all.drop || all.without_data), "{:?}", events(&all));
    }
}

/// Inline, server data may pass while the engine is not running (`fail-open`). The client's acknowledgment of it is
/// dropped once, as one of unsent data, and passes when repeated.
#[test]
fn a_connection_goes_on_behind_data_that_went_by_unseen() {
    let mut b = Bench::connected(StreamConfig { inline: true, spare_harmless: true, ..Default::default() });
    let next = pkt(ToServer, PSH | ACK, 1001, 5008, b"next");
    assert!(b.send(&next).drop);
    let again = b.send(&next);
    assert_eq!((again.accepted, again.drop), (true, false), "{:?}", events(&again));
    assert_eq!(b.read(ToServer, false), "next");
    assert!(b.send(&pkt(ToClient, PSH | ACK, 5008, 1005, b"answer")).accepted);
    b.send(&pkt(ToServer, ACK, 1005, 5014, b""));
    assert_eq!(b.read(ToClient, false), "<7>answer");
    // Acknowledges unsent data, then replaces its own data: only inspected data is read.
    let mut b = Bench::connected(StreamConfig { inline: true, spare_harmless: true, ..Default::default() });
    let decoy = pkt(ToServer, PSH | ACK, 1001, 6000, b"decoy-");
    assert!(b.send(&decoy).drop && !b.send(&decoy).drop);
    let out = b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"attack"));
    assert!(out.drop || out.rewrite, "{:?}", events(&out));
}

/// A packet that the link delayed or duplicated comes after one with a newer timestamp. Its receiver discards it, and it
/// is no attack, unless it changes data.
#[test]
fn late_copies_are_spared_and_other_words_are_not() {
    let config = StreamConfig { inline: true, spare_harmless: true, ..StreamConfig::default() };
    let mut b = Bench::new(config);
    let at = |mut p: Pkt, value: u32| {
        p.options.timestamp = Some((value, 1));
        p
    };
    b.send(&at(pkt(ToServer, SYN, 1000, 0, b""), 100));
    b.send(&at(pkt(ToClient, SYN | ACK, 5000, 1001, b""), 100));
    b.send(&at(pkt(ToServer, ACK, 1001, 5001, b""), 101));
    let first = at(pkt(ToServer, PSH | ACK, 1001, 5001, b"hello "), 102);
    assert!(b.send(&first).accepted);
    assert!(b.send(&at(pkt(ToServer, PSH | ACK, 1007, 5001, b"world"), 110)).accepted);
    let late = b.send(&first);
    assert_eq!((late.accepted, late.drop), (false, false), "{:?}", events(&late));
    // A part of it was acknowledged.
    b.send(&at(pkt(ToClient, ACK, 5001, 1004, b""), 110));
    assert!(!b.send(&first).drop);
    for (seq, flags, words) in
        [(1001, PSH | ACK, b"hellO "), (1007, PSH | ACK, b"worlDx"), (1001, FIN | ACK, b"hello ")]
    {
        let other = b.send(&at(pkt(ToServer, flags, seq, 5001, words), 102));
        assert_eq!((other.accepted, other.drop), (false, true), "{seq} {words:?}");
    }
    assert_eq!(b.read(ToServer, false), "hello world");
    // New data that was overtaken is inspected and passes. Later data in its place is rewritten to it.
    let overtaken = b.send(&at(pkt(ToServer, PSH | ACK, 1012, 5001, b"!"), 102));
    assert!(overtaken.accepted && !overtaken.drop);
    assert!(b.send(&at(pkt(ToServer, PSH | ACK, 1012, 5001, b"?"), 111)).rewrite);
    assert_eq!(b.read(ToServer, false), "!");
    // Its receiver has recorded the later timestamp, and gets the header alone.
    let mut ack = pkt(ToClient, ACK, 5001, 1013, b"");
    ack.options.timestamp = Some((111, 111));
    b.send(&ack);
    let late = b.send(&at(pkt(ToServer, PSH | ACK, 1013, 5001, b"..."), 102));
    assert!(!late.accepted && !late.drop && late.without_data);
}

/// The sensor may see a reset or FIN that the receiving host does not: later data must not pass uninspected.
#[test]
fn nothing_new_after_the_end() {
    let inline = StreamConfig { inline: true, spare_harmless: true, ..StreamConfig::default() };
    for flags in [RST, RST | ACK] {
        let mut b = Bench::connected(inline.clone());
        b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello"));
        b.send(&pkt(ToClient, ACK, 5001, 1006, b""));
        assert!(!b.send(&pkt(ToServer, flags, 1006, 5001, b"")).drop);
        for _ in 0..3 {
            assert!(b.send(&pkt(ToServer, PSH | ACK, 1006, 5001, b"att")).drop);
            assert!(b.send(&pkt(ToServer, PSH | ACK, 1009, 5001, b"ack")).drop);
            assert!(!b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello")).drop, "it was seen");
            assert!(!b.send(&pkt(ToClient, ACK, 5001, 1006, b"")).drop);
        }
    }
    // Nor may data that was acknowledged before it was sent.
    for ahead in [false, true] {
        let mut b = Bench::connected(inline.clone());
        b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello"));
        if ahead {
            b.send(&pkt(ToServer, PSH | ACK, 1016, 5001, b"0123456789"));
        }
        b.send(&pkt(ToClient, ACK, 5001, 1026, b""));
        assert!(!b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello")).drop, "it was seen");
        for _ in 0..3 {
            for (n, word) in [(1006, b"att"), (1009, b"ack")] {
                // It is inspected, or it does not pass.
                let out = b.send(&pkt(ToServer, PSH | ACK, n, 5001, word));
                assert_eq!(out.drop, ahead, "{:?}", events(&out));
            }
        }
        assert_eq!(b.read(ToServer, false), if ahead { "hello<10>0123456789" } else { "helloattack" });
    }
}

/// A keep-alive repeats the byte before the next one, sometimes with another value: that is no overlap.
#[test]
fn keep_alives_are_no_data() {
    for inline in [false, true] {
        let mut b = Bench::connected(StreamConfig { inline, ..StreamConfig::default() });
        b.send(&pkt(ToServer, PSH | ACK, 1001, 5001, b"hello"));
        b.send(&pkt(ToClient, ACK, 5001, 1006, b""));
        let out = b.send(&pkt(ToServer, ACK, 1005, 5001, b"\0"));
        assert!(out.events.is_empty() && !out.drop, "{:?}", out.events.as_slice());
        // Inline, it gets the original byte: its receiver may not have it.
        assert_eq!((out.rewrite, out.in_stream), (inline, inline));
        let out = b.send(&pkt(ToServer, PSH | ACK, 1006, 5001, b"world"));
        assert!(out.in_stream && out.events.is_empty());
        assert_eq!(b.engine.counters.overlap_diff_data, 0);
    }
}

#[test]
fn data_is_available_when_acknowledged() {
    let mut b = Bench::connected(StreamConfig::default());
    let out = b.send(&pkt(ToServer, ACK | PSH, 1001, 5001, b"hello "));
    assert!(out.in_stream && out.accepted && !out.new_data[0]);
    b.send(&pkt(ToServer, ACK | PSH, 1007, 5001, b"world"));
    assert_eq!(b.read(ToServer, false), "");
    let out = b.send(&pkt(ToClient, ACK, 5001, 1009, b""));
    assert!(out.new_data[0]);
    assert_eq!(b.read(ToServer, false), "hello wo");
    b.send(&pkt(ToClient, ACK, 5001, 1012, b""));
    assert_eq!(b.read(ToServer, false), "rld");
    assert_eq!(b.read(ToServer, true), "");
}

#[test]
fn data_that_comes_after_its_acknowledgment_and_data_sent_again_after_a_fin() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToClient, ACK, 5001, 1005, b""));
    let out = b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcd"));
    assert_eq!((events(&out), out.accepted), (vec!["pkt_spurious_retransmission"], true));
    assert_eq!(b.read(ToServer, false), "abcd");
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1005, b""));
    b.send(&pkt(ToServer, ACK, 1005, 5002, b"efgh"));
    assert_eq!(events(&b.send(&pkt(ToServer, ACK, 1005, 5002, b"efgh"))), ["pkt_retransmission"]);
    let again = b.send(&pkt(ToServer, ACK, 1001, 5002, b"abcd"));
    assert_eq!(events(&again)[0], "pkt_spurious_retransmission");
    assert!(!again.events.contains(StreamEvent::PktRetransmission));
}

#[test]
fn a_hole_that_the_receiver_does_not_have_is_a_gap() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"VERY"));
    b.send(&pkt(ToServer, ACK, 1009, 5001, b"DATA"));
    b.send(&pkt(ToClient, ACK, 5001, 1005, b""));
    assert_eq!(b.read(ToServer, false), "VERY");
    let out = b.send(&pkt(ToClient, ACK, 5001, 1013, b""));
    assert_eq!(events(&out), ["reassembly_seq_gap"]);
    let mut text = Vec::new();
    b.session().payload_with_gaps(ToServer, 0, u64::MAX, 100, &mut text);
    assert_eq!(text, b"VERY[4 bytes missing]DATA");
    assert_eq!(b.raw(ToServer, true), "()VERY|()DATA|");
    assert_eq!(b.read(ToServer, false), "<4>DATA");
    assert_eq!(b.engine.counters.reassembly_gap, 1);
    assert!(b.session().has_gap(ToServer) && !b.session().needs_flush(ToServer));
}

#[test]
fn a_gap_that_ends_the_parser_is_reported() {
    let mut b = Bench::connected(StreamConfig::default());
    b.session().raw_disable();
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"VERY"));
    // The receiver has four bytes that the engine did not see.
    b.send(&pkt(ToClient, ACK, 5001, 1009, b""));
    assert_eq!(b.read(ToServer, false), "VERY");
    b.send(&pkt(ToServer, ACK, 1009, 5001, b"DATA"));
    assert!(matches!(b.session().app_data(ToServer, false), Some(AppData::Gap(4))));
    b.session().app_notice_gap(ToServer, 4);
    b.session().app_consume(ToServer, 4);
    b.session().app_disable();
    assert_eq!(events(&b.send(&pkt(ToClient, ACK, 5001, 1013, b""))), ["reassembly_seq_gap"]);
    assert!(b.session().has_gap(ToServer));
    assert_eq!(events(&b.send(&pkt(ToClient, ACK, 5001, 1013, b""))), [""; 0]);
    assert_eq!(b.engine.counters.reassembly_gap, 1);
}

#[test]
fn what_was_inspected_and_freed_is_no_gap() {
    for app_off in [true, false] {
        let config =
            StreamConfig { toserver_chunk_size: 8, toclient_chunk_size: 8, raw_context: 3, ..Default::default() };
        let mut b = Bench::connected(config);
        if app_off {
            b.session().app_disable();
        } else {
            b.session().raw_disable();
        }
        let mut seq = 1001;
        for _ in 0..20 {
            for _ in 0..3 {
                b.send(&pkt(ToServer, ACK, seq, 5001, b"0123456789"));
                seq += 10;
            }
            // The latest data is not acknowledged yet.
            let out = b.send(&pkt(ToClient, ACK, 5001, seq - 10, b""));
            assert_eq!(events(&out), [""; 0]);
            b.raw(ToServer, false);
            b.read(ToServer, false);
        }
        assert!(!b.session().has_gap(ToServer));
        // A real gap is still detected, and reported if a parser may miss data in it.
        b.send(&pkt(ToServer, ACK, seq + 10, 5001, b"0123456789"));
        let out = b.send(&pkt(ToClient, ACK, 5001, seq + 20, b""));
        let want: &[&str] = if app_off { &[] } else { &["reassembly_seq_gap"] };
        assert_eq!((events(&out).as_slice(), b.engine.counters.reassembly_gap), (want, want.len() as u64));
    }
}

#[test]
fn raw_chunks_come_by_size_with_context() {
    let config = StreamConfig { toserver_chunk_size: 8, raw_context: 3, ..StreamConfig::default() };
    let mut b = Bench::connected(config);
    b.session().app_disable();
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcdef"));
    b.send(&pkt(ToClient, ACK, 5001, 1007, b""));
    assert_eq!(b.raw(ToServer, false), "");
    b.send(&pkt(ToServer, ACK, 1007, 5001, b"ghi"));
    b.send(&pkt(ToClient, ACK, 5001, 1010, b""));
    assert_eq!(b.raw(ToServer, false), "()abcdefghi|");
    b.send(&pkt(ToServer, ACK, 1010, 5001, b"jk"));
    b.send(&pkt(ToClient, ACK, 5001, 1012, b""));
    assert_eq!(b.raw(ToServer, false), "");
    assert!(b.session().needs_flush(ToServer));
    b.session().raw_trigger(ToServer);
    assert_eq!(b.raw(ToServer, false), "(ghi)jk|");
    assert!(!b.session().needs_flush(ToServer));
    // The next message keeps the context, so that an early end cannot divide a pattern.
    b.send(&pkt(ToServer, ACK, 1012, 5001, b"lm"));
    b.send(&pkt(ToClient, ACK, 5001, 1014, b""));
    b.session().raw_trigger(ToServer);
    assert_eq!(b.raw(ToServer, false), "(ijk)lm|");
}

/// Suricata inspects the data of both sides at the FIN of a client that closes first. If the server closes first, it
/// does so when the connection is closed, and inspects the client's data when the flow ends.
#[test]
fn raw_inspection_at_a_close() {
    let opened = || {
        let mut b = Bench::connected(StreamConfig::default());
        b.send(&pkt(ToServer, ACK, 1001, 5001, b"ask"));
        b.send(&pkt(ToClient, ACK, 5001, 1004, b"answer"));
        b.send(&pkt(ToServer, ACK, 1004, 5007, b""));
        b
    };
    let mut b = opened();
    b.send(&pkt(ToServer, FIN | ACK, 1004, 5007, b""));
    assert_eq!((b.raw(ToServer, false).as_str(), b.raw(ToClient, false).as_str()), ("()ask|", "()answer|"));

    let mut b = opened();
    b.send(&pkt(ToClient, FIN | ACK, 5007, 1004, b""));
    assert_eq!((b.raw(ToServer, false).as_str(), b.raw(ToClient, false).as_str()), ("", ""));
    b.send(&pkt(ToServer, FIN | ACK, 1004, 5008, b""));
    assert_eq!((b.raw(ToServer, false).as_str(), b.raw(ToClient, false).as_str()), ("", ""));
    assert!(b.send(&pkt(ToClient, ACK, 5008, 1005, b"")).flush);
    assert_eq!((b.raw(ToClient, true).as_str(), b.raw(ToServer, true).as_str()), ("()answer|", "()ask|"));
}

/// When encryption starts, raw inspection ends; uninspected data before it forms one more chunk.
#[test]
fn raw_inspection_ends() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"plain"));
    b.send(&pkt(ToClient, ACK, 5001, 1006, b"plain too"));
    assert_eq!((b.read(ToServer, false).as_str(), b.raw(ToServer, false).as_str()), ("plain", ""));
    b.send(&pkt(ToServer, ACK, 1006, 5010, b""));
    assert_eq!(b.read(ToClient, false), "plain too");
    b.session().raw_finish(None);
    b.send(&pkt(ToServer, ACK, 1006, 5010, b"secret"));
    b.send(&pkt(ToClient, ACK, 5010, 1012, b"secret"));
    assert_eq!((b.raw(ToServer, false).as_str(), b.raw(ToServer, false).as_str()), ("()plain|", ""));
    assert!(b.session().needs_flush(ToClient));
    assert_eq!(b.raw(ToClient, true), "");
    assert_eq!((b.read(ToServer, true).as_str(), b.read(ToClient, true).as_str()), ("secret", "secret"));
    assert!(!b.session().needs_flush(ToClient) && !b.session().needs_flush(ToServer));
    // No data was accepted, so nothing is left to inspect.
    let mut b = Bench::connected(StreamConfig::default());
    b.session().raw_finish(None);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"secret"));
    assert_eq!(b.raw(ToServer, true), "");
    // Rules that need no search run on the first data after it, unless they ran with the packet that announced
    // encryption.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"plain"));
    b.send(&pkt(ToClient, ACK, 5001, 1006, b"plain"));
    b.send(&pkt(ToServer, ACK, 1006, 5006, b""));
    b.session().raw_trigger(ToServer);
    b.session().raw_trigger(ToClient);
    assert_eq!((b.raw(ToServer, false).as_str(), b.raw(ToClient, false).as_str()), ("()plain|", "()plain|"));
    b.session().raw_finish(Some(ToClient));
    assert!(b.session().raw_chunk(ToServer, false).is_none());
    b.send(&pkt(ToServer, ACK, 1006, 5006, b"secret"));
    b.send(&pkt(ToClient, ACK, 5006, 1006, b"secret"));
    assert!(b.session().raw_chunk(ToServer, false).is_some_and(|c| c.data.is_empty()));
    assert!(b.session().raw_chunk(ToClient, false).is_none());
    // Data that waits for its acknowledgment lets them run with the packet that announces encryption.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"plain"));
    assert!(b.session().raw_last(ToServer).is_some_and(|c| c.data.is_empty()));
    assert!(b.session().raw_last(ToClient).is_none());
    b.session().raw_finish(Some(ToServer));
    assert!(b.session().raw_last(ToServer).is_none() && b.session().raw_chunk(ToServer, false).is_none());
}

#[test]
fn a_connection_that_ends_has_data_that_waits() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"hello"));
    assert!(!b.session().raw_waits(ToServer));
    b.send(&pkt(ToServer, ACK | FIN, 1006, 5001, b""));
    assert_eq!(b.state(), TcpState::CloseWait);
    assert!(b.session().raw_waits(ToServer) && !b.session().raw_waits(ToClient));
    // The FIN counts once it is acknowledged.
    assert_eq!((b.session().stream_size(ToServer), b.session().stream_size(ToClient)), (6, 1));
    b.send(&pkt(ToClient, ACK, 5001, 1007, b""));
    assert_eq!(b.session().stream_size(ToServer), 7);
}

#[test]
fn what_begins_behind_a_border_is_inspected_apart() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"plain"));
    b.send(&pkt(ToClient, ACK, 5001, 1006, b""));
    assert_eq!(b.read(ToServer, false), "plain");
    b.session().raw_border();
    assert_eq!(b.raw(ToServer, false), "()plain|");
    b.send(&pkt(ToServer, ACK, 1006, 5001, b"another"));
    b.send(&pkt(ToClient, ACK, 5001, 1013, b""));
    assert_eq!(b.raw(ToServer, false), "");
    b.session().raw_trigger(ToServer);
    assert_eq!(b.raw(ToServer, false), "()another|");
    // Raw inspection that had ended continues.
    assert_eq!(b.read(ToServer, false), "another");
    b.session().raw_finish(None);
    b.send(&pkt(ToServer, ACK, 1013, 5001, b"secret"));
    b.send(&pkt(ToClient, ACK, 5001, 1019, b""));
    assert_eq!((b.read(ToServer, false).as_str(), b.raw(ToServer, true).as_str()), ("secret", ""));
    b.session().raw_border();
    b.send(&pkt(ToServer, ACK, 1019, 5001, b"plain again"));
    b.send(&pkt(ToClient, ACK, 5001, 1030, b""));
    assert_eq!(b.raw(ToServer, true), "()plain again|");
}

#[test]
fn inline_shows_each_packet_and_keeps_what_came_first() {
    let config = StreamConfig { inline: true, toserver_chunk_size: 4, ..StreamConfig::default() };
    let mut b = Bench::connected(config);
    assert!(b.send(&pkt(ToServer, ACK, 1001, 5001, b"GOOD")).new_data[0]);
    assert_eq!(b.raw(ToServer, false), "()GOOD|");
    assert_eq!(b.read(ToServer, false), "GOOD");
    let out = b.send(&pkt(ToServer, ACK, 1001, 5001, b"EVIL"));
    assert!(out.rewrite && out.in_stream);
    assert_eq!(events(&out), ["reassembly_overlap_different_data"]);
    let mut payload = *b"EVIL";
    assert!(b.session().rewrite(ToServer, 1001, &mut payload));
    assert_eq!(&payload, b"GOOD");
    assert_eq!(b.raw(ToServer, false), "()GOOD|");
    b.send(&pkt(ToServer, ACK, 1005, 5001, b"more"));
    assert_eq!(b.raw(ToServer, false), "(GOOD)more|");
}

#[test]
fn overlaps_follow_the_policy() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"GOOD"));
    let out = b.send(&pkt(ToServer, ACK, 1001, 5001, b"EVIL"));
    assert_eq!(events(&out), ["reassembly_overlap_different_data"]);
    assert_eq!(b.read(ToServer, true), "GOOD");
    let mut config = StreamConfig::default();
    config.os_policies.default = margay_stream::OsPolicy::OldLinux;
    let mut b = Bench::connected(config);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"GOOD"));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"EVIL"));
    assert_eq!(b.read(ToServer, true), "EVIL");
}

#[test]
fn depth_ends_a_stream() {
    let config = StreamConfig { depth: 6, bypass: true, ..StreamConfig::default() };
    let mut b = Bench::connected(config);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcd"));
    let out = b.send(&pkt(ToServer, ACK, 1005, 5001, b"efgh"));
    assert_eq!(events(&out), ["reassembly_depth_reached"]);
    assert!(!b.send(&pkt(ToServer, ACK, 1009, 5001, b"ijkl")).in_stream);
    assert_eq!(b.read(ToServer, true), "abcdef");
    let out = b.send(&pkt(ToClient, ACK, 5001, 1013, b"0123456789"));
    assert!(out.bypass);
    assert!(b.session().depth_reached(ToServer) && b.session().depth_reached(ToClient));
    assert_eq!(b.session().stream_size(ToServer), 13);
}

/// Nothing follows: rules see the rest once it is acknowledged, not when the flow ends.
#[test]
fn data_before_the_depth_does_not_wait_for_a_whole_chunk() {
    let mut b = Bench::connected(StreamConfig { depth: 6, ..StreamConfig::default() });
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcd"));
    b.send(&pkt(ToClient, ACK, 5001, 1005, b""));
    assert_eq!(b.raw(ToServer, false), "");
    b.send(&pkt(ToServer, ACK, 1005, 5001, b"efgh"));
    assert_eq!(b.raw(ToServer, false), "()abcd|");
    b.send(&pkt(ToClient, ACK, 5001, 1009, b""));
    assert_eq!(b.raw(ToServer, false), "(abcd)ef|");
    assert_eq!(b.raw(ToServer, true), "");
}

#[test]
fn urgent_bytes_by_policy() {
    let run = |policy| {
        let mut b = Bench::connected(StreamConfig { urgent: policy, ..StreamConfig::default() });
        let mut p = pkt(ToServer, ACK | URG, 1001, 5001, b"abXcd");
        p.urgent = 3;
        b.send(&p);
        b.send(&pkt(ToServer, ACK, 1006, 5001, b"ef"));
        b.send(&p);
        b.send(&pkt(ToClient, ACK, 5001, 1008, b""));
        (b.read(ToServer, false), b.engine.counters.urgent_oob_data)
    };
    assert_eq!(run(UrgentPolicy::Oob), ("abcdef".to_owned(), 1));
    assert_eq!(run(UrgentPolicy::Inline), ("abXcdef".to_owned(), 0));
    assert_eq!(run(UrgentPolicy::Gap), ("<5>ef".to_owned(), 0));
    // Passive: the segment reaches the host, which removes the urgent byte.
    assert_eq!(run(UrgentPolicy::Drop), ("abcdef".to_owned(), 1));
    let config = StreamConfig { urgent_oob_limit: 1, ..StreamConfig::default() };
    let mut b = Bench::connected(config);
    let mut p = pkt(ToServer, ACK | URG, 1001, 5001, b"aX");
    p.urgent = 2;
    b.send(&p);
    p.seq = 1003;
    let told = ["reassembly_urgent_oob_limit_reached", "reassembly_urgent_data", "reassembly_urgent_passed_over"];
    assert_eq!(events(&b.send(&p)), told);
}

#[test]
fn retransmissions_and_strays() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcd"));
    b.send(&pkt(ToServer, ACK, 1005, 5001, b"efgh"));
    b.send(&pkt(ToClient, ACK, 5001, 1009, b""));
    let out = b.send(&pkt(ToServer, ACK, 1005, 5001, b"efgh"));
    assert_eq!(events(&out), ["pkt_spurious_retransmission"]);
    let out = b.send(&pkt(ToServer, ACK, 1001, 5001, b"abcd"));
    assert_eq!(events(&out), ["pkt_spurious_retransmission", "est_pkt_before_last_ack"]);
    assert!(!out.accepted);
    let out = b.send(&pkt(ToServer, ACK, 101_009, 5001, b"far"));
    assert_eq!(events(&out), ["est_packet_out_of_window"]);
    let out = b.send(&pkt(ToClient, ACK, 5001, 201_009, b""));
    assert_eq!(events(&out), ["pkt_invalid_ack", "est_invalid_ack"]);
    assert_eq!(events(&b.send(&pkt(ToServer, SYN, 1000, 0, b""))), ["est_syn_resend"]);
    assert_eq!(events(&b.send(&pkt(ToClient, RST | ACK, 5001, 999_999, b""))), ["pkt_invalid_ack", "rst_invalid_ack"]);
    // The acknowledgment of a reset at another number is fine.
    assert!(events(&b.send(&pkt(ToClient, RST | ACK, 5050, 1001, b""))).is_empty());
    let out = b.send(&pkt(ToClient, RST | ACK, 5001, 1009, b""));
    assert!(out.flush && b.state() == TcpState::Closed);
    let out = b.send(&pkt(ToClient, ACK, 5001, 1009, b"still here"));
    assert_eq!(events(&out), ["suspected_rst_inject"]);
}

#[test]
fn old_timestamps_are_not_taken() {
    let with = |mut p: Pkt, value| {
        p.options.timestamp = Some((value, 0));
        p
    };
    let mut b = Bench::new(StreamConfig::default());
    b.send(&with(pkt(ToServer, SYN, 1000, 0, b""), 100));
    b.send(&with(pkt(ToClient, SYN | ACK, 5000, 1001, b""), 900));
    b.send(&with(pkt(ToServer, ACK, 1001, 5001, b""), 110));
    let out = b.send(&with(pkt(ToServer, ACK, 1001, 5001, b"x"), 105));
    assert_eq!(events(&out), ["pkt_invalid_timestamp"]);
    assert!(b.send(&with(pkt(ToServer, ACK, 1001, 5001, b"x"), 111)).accepted);
    // A month later the timestamp may restart.
    let mut p = with(pkt(ToServer, ACK, 1002, 5001, b"y"), 5);
    p.time += 30 * 86_400;
    assert!(b.send(&p).accepted);
}

#[test]
fn memory_is_counted_and_limited() {
    let config = StreamConfig { memcap: 10, ..StreamConfig::default() };
    let mut b = Bench::new(config);
    assert_eq!(b.send(&pkt(ToServer, SYN, 1000, 0, b"")).exception, Some(Exception::SessionMemcap));
    assert_eq!(b.engine.counters.ssn_memcap_drop, 1);
    let config = StreamConfig { reassembly_memcap: 4096, ..StreamConfig::default() };
    let mut b = Bench::connected(config);
    let mut exceptions = 0;
    for i in 0..8 {
        let out = b.send(&pkt(ToServer, ACK, 1001 + i * 1000, 5001, &[b'x'; 1000]));
        exceptions += usize::from(out.exception == Some(Exception::ReassemblyMemcap));
    }
    assert!(exceptions >= 4);
    assert_eq!(b.engine.counters.segment_memcap_drop, exceptions as u64);
    assert!(b.engine.counters.reassembly_memuse > 0);
    let session = b.session.take().unwrap();
    b.engine.end(&session);
    assert_eq!((b.engine.counters.memuse, b.engine.counters.reassembly_memuse), (0, 0));
    assert_eq!(b.engine.counters.active_sessions, 0);
}

fn any_packet() -> impl Strategy<Value = Pkt> {
    let near =
        |base: u32| prop_oneof![(0u32..3000).prop_map(move |d| base.wrapping_add(d).wrapping_sub(1000)), any::<u32>()];
    let options = (prop::option::of(any::<(u32, u32)>()), prop::option::of(0u8..15), prop::option::of(0u8..9));
    (any::<bool>(), 0u8..64, near(1000), near(5000), prop::collection::vec(any::<u8>(), 0..50), any::<u16>(), options)
        .prop_map(|(to, flags, a, b, payload, window, (timestamp, window_scale, fast_open))| {
            let to = if to { ToServer } else { ToClient };
            let (seq, ack) = if to == ToServer { (a, b) } else { (b, a) };
            let mut p = pkt(to, flags, seq, ack, &payload);
            (p.window, p.urgent) = (window, window % 60);
            p.options = TcpOptions { timestamp, window_scale, fast_open, ..TcpOptions::default() };
            p
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_packet_breaks_a_session(
        packets in prop::collection::vec(any_packet(), 1..80),
        connected in any::<bool>(),
        inline in any::<bool>(),
        midstream in any::<bool>(),
        async_oneside in any::<bool>(),
        depth in prop_oneof![Just(0u64), Just(100), Just(1 << 20)],
    ) {
        let config = StreamConfig { inline, midstream, async_oneside, depth, reassembly_memcap: 20_000, ..StreamConfig::default() };
        let mut b = if connected { Bench::connected(config) } else { Bench::new(config) };
        for p in &packets {
            let out = b.send(p);
            prop_assert!(b.engine.counters.reassembly_memuse < 20_000 + 4096);
            if b.session.is_none() {
                continue;
            }
            for d in [ToServer, ToClient] {
                let mut last = b.session().app_offset(d);
                while let Some(data) = b.session().app_data(d, out.flush) {
                    let n = match data {
                        AppData::Data { offset, bytes } => {
                            prop_assert_eq!(offset, last);
                            prop_assert!(!bytes.is_empty());
                            bytes.len() as u64
                        }
                        AppData::Gap(n) => n,
                    };
                    prop_assert!(n > 0);
                    b.session().app_consume(d, n);
                    last += n;
                }
                b.raw(d, out.flush);
                let mut text = Vec::new();
                b.session().payload_with_gaps(d, 0, u64::MAX, 1000, &mut text);
                prop_assert!(text.len() <= 1000);
                let mut payload = p.payload.clone();
                b.session().rewrite(d, p.seq, &mut payload);
            }
        }
    }
}

/// The sequence numbers that may be next on a connection that is no longer tracked.
#[test]
fn numbers_that_may_be_next() {
    for base in [5000u32, u32::MAX - 20] {
        let mut b = Bench::new(StreamConfig::default());
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, base.wrapping_sub(1), 1001, b""));
        b.send(&pkt(ToServer, ACK, 1001, base, b""));
        b.send(&pkt(ToClient, ACK, base, 1001, &[b'x'; 100]));
        let s = b.session.as_deref().unwrap();
        let may = |n: i64, bytes| s.may_be_next(ToClient, base.wrapping_add(n as u32), bytes);
        assert!(may(0, 0) && may(100, 0) && may(100 + 65_535, 0));
        assert!(!may(-1, 0) && !may(100 + 65_536, 0));
        assert!(may(100 + 65_536, 1) && may(3_000_000_000, 3_000_000_000) && !may(-1, 1 << 31));
        assert!(may(-1, 1 << 32));
        assert!(s.may_be_next(ToServer, 1001, 0) && !s.may_be_next(ToServer, 1000, 0));
    }
}

/// An acknowledgment reached the sensor before its data, or earlier data was lost. The next data is available with its
/// own packet, without another acknowledgment.
#[test]
fn data_that_was_acknowledged_before_it_was_seen_is_available_at_once() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send_all(&[pkt(ToClient, ACK, 5001, 1001, b"one"), pkt(ToServer, ACK, 1001, 5004, b"")]);
    assert_eq!(b.read(ToClient, false), "one");
    // Five bytes are lost, and acknowledged.
    b.send(&pkt(ToServer, ACK, 1001, 5009, b""));
    assert_eq!(b.read(ToClient, false), "");
    b.send(&pkt(ToClient, ACK, 5009, 1001, b"three"));
    // The gap is known now; the data after it waits for its own acknowledgment.
    assert_eq!(b.read(ToClient, false), "<5>");
    b.send(&pkt(ToServer, ACK, 1001, 5014, b""));
    assert_eq!(b.read(ToClient, false), "three");
    // The acknowledgment comes before its data.
    b.send(&pkt(ToServer, ACK, 1001, 5018, b""));
    b.send(&pkt(ToClient, ACK, 5014, 1001, b"four"));
    assert_eq!(b.read(ToClient, false), "four");
}
