//! Tests of how sessions begin: valid and invalid handshakes, fast open, and midstream pickup.

mod common;

use common::{Bench, events, pkt};
use margay_flow::Direction::{ToClient, ToServer};
use margay_flow::FlowState;
use margay_packet::tcp::flag::*;
use margay_stream::{Exception, StreamConfig, StreamEvent, TcpState};

#[test]
fn a_connection_opens_and_closes() {
    let mut b = Bench::new(StreamConfig::default());
    assert_eq!(b.send(&pkt(ToServer, SYN, 1000, 0, b"")).state, Some(FlowState::New));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert_eq!(b.send(&pkt(ToServer, ACK, 1001, 5001, b"")).state, Some(FlowState::Established));
    b.send(&pkt(ToServer, FIN | ACK, 1001, 5001, b""));
    assert_eq!(b.state(), TcpState::CloseWait);
    b.send(&pkt(ToClient, ACK, 5001, 1002, b""));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1002, b""));
    assert_eq!(b.state(), TcpState::LastAck);
    let out = b.send(&pkt(ToServer, ACK, 1002, 5002, b""));
    assert_eq!((b.state(), out.flush), (TcpState::Closed, true));
    let reuse = b.send(&pkt(ToServer, SYN, 9000, 0, b""));
    assert!(reuse.reuse);
    assert_eq!(b.engine.counters.syn, 1);

    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1001, b""));
    assert_eq!(b.state(), TcpState::FinWait1);
    b.send(&pkt(ToServer, ACK, 1001, 5002, b""));
    assert_eq!(b.state(), TcpState::FinWait2);
    b.send(&pkt(ToServer, FIN | ACK, 1001, 5002, b""));
    assert_eq!(b.state(), TcpState::TimeWait);
    b.send(&pkt(ToClient, ACK, 5002, 1002, b""));
    assert_eq!(b.state(), TcpState::Closed);
}

#[test]
fn a_connection_that_was_refused_may_be_accepted_yet() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, RST | ACK, 0, 1001, b""));
    assert_eq!(b.state(), TcpState::Closed);
    // The client tries again with the same number: that is the same connection.
    assert!(!b.send(&pkt(ToServer, SYN, 1000, 0, b"")).reuse);
    assert_eq!(events(&b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""))), [""; 0]);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"hello"));
    b.send(&pkt(ToClient, ACK, 5001, 1006, b""));
    assert_eq!((b.state(), b.read(ToServer, false).as_str()), (TcpState::Established, "hello"));
}

/// With another number it is another connection, and inline it is one in either case.
#[test]
fn another_syn_after_a_refusal_opens_another_connection() {
    for (inline, seq, reuse) in [(false, 1000, false), (false, 2000, true), (true, 2000, true)] {
        let mut b = Bench::new(StreamConfig { inline, ..StreamConfig::default() });
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, RST | ACK, 0, 1001, b""));
        assert_eq!(b.send(&pkt(ToServer, SYN, seq, 0, b"")).reuse, reuse, "{inline} {seq}");
    }
}

/// A refusal without a second SYN may be an attacker's.
#[test]
fn an_answer_after_a_refusal_is_suspect() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, RST | ACK, 0, 1001, b""));
    assert_eq!(events(&b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""))), ["suspected_rst_inject"]);
}

/// Rules look at a retransmission's payload as a packet's, unless the stream ends with it.
#[test]
fn retransmissions_of_the_last_data_are_of_the_stream() {
    let mut b = Bench::connected(StreamConfig::default());
    for (seq, text) in [(1001, "hello "), (1007, "world")] {
        b.send(&pkt(ToServer, ACK, seq, 5001, text.as_bytes()));
        b.send(&pkt(ToClient, ACK, 5001, seq + text.len() as u32, b""));
    }
    for (seq, text, of_stream) in
        [(1007, "world", true), (1009, "rld", true), (1001, "hello ", false), (1002, "el", false)]
    {
        let out = b.send(&pkt(ToServer, ACK, seq, 5001, text.as_bytes()));
        assert_eq!(events(&out)[0], "pkt_spurious_retransmission");
        assert_eq!(out.in_stream, of_stream, "{text}");
    }
}

/// The other side's rest is due with its next packet, whatever that is.
#[test]
fn packets_after_the_end_flush() {
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"hello"));
    b.send(&pkt(ToClient, FIN | ACK, 5001, 1006, b""));
    b.send(&pkt(ToServer, FIN | ACK, 1006, 5002, b""));
    assert!(b.send(&pkt(ToClient, ACK, 5002, 1007, b"")).flush);
    assert_eq!(b.state(), TcpState::Closed);
    let again = b.send(&pkt(ToServer, FIN | ACK, 1006, 5002, b""));
    assert!(again.flush && !again.accepted);
    // After a reset, which not every host accepts, that is only what was acknowledged.
    let mut b = Bench::connected(StreamConfig::default());
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"hello"));
    b.send(&pkt(ToClient, RST | ACK, 5001, 1003, b""));
    assert_eq!((b.state(), b.raw(ToServer, false).as_str()), (TcpState::Closed, ""));
    b.send(&pkt(ToServer, ACK, 1006, 5001, b""));
    assert_eq!(b.raw(ToServer, false), "()he|");
}

#[test]
fn sessions_in_the_middle() {
    let mut b = Bench::new(StreamConfig::default());
    assert_eq!(b.send(&pkt(ToServer, ACK, 1001, 5001, b"data")).exception, Some(Exception::Midstream));
    assert!(b.session.is_none());
    let config = StreamConfig { midstream: true, ..StreamConfig::default() };
    let mut b = Bench::new(config.clone());
    let out = b.send(&pkt(ToServer, ACK, 1001, 5001, b"data"));
    assert!(out.accepted && out.state == Some(FlowState::Established));
    b.send(&pkt(ToClient, ACK, 5001, 1005, b""));
    assert_eq!(b.read(ToServer, false), "data");
    // The first packet comes from the server.
    let mut b = Bench::new(config);
    let out = b.send(&pkt(ToServer, SYN | ACK, 5000, 1001, b""));
    assert!(out.swap);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"request"));
    assert_eq!(b.state(), TcpState::Established);
    b.send(&pkt(ToClient, ACK, 5001, 1008, b""));
    assert_eq!(b.read(ToServer, false), "request");
}

#[test]
fn one_side_only() {
    let mut b = Bench::new(StreamConfig { async_oneside: true, ..StreamConfig::default() });
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    assert_eq!(b.state(), TcpState::Established);
    assert!(b.send(&pkt(ToServer, ACK, 1001, 5001, b"request")).new_data[0]);
    assert_eq!(b.read(ToServer, false), "request");
    assert!(b.session().is_async());
    // No packet announced a window for the FIN. Its data counts.
    let out = b.send(&pkt(ToServer, FIN | PSH | ACK, 1008, 5001, b" more"));
    assert_eq!((events(&out), b.state()), (vec!["fin_out_of_window"], TcpState::Established));
    b.session().finish_streams();
    assert_eq!(b.read(ToServer, true), " more");
}

/// Without the client no window is known, so all of the server's data counts, also if sessions are picked up midstream.
#[test]
fn the_servers_side_only() {
    for midstream in [false, true] {
        let mut b = Bench::new(StreamConfig { async_oneside: true, midstream, ..StreamConfig::default() });
        b.send(&pkt(ToServer, SYN | ACK, 5000, 1001, b""));
        let data = [b'x'; 1000];
        for i in 0..100 {
            let out = b.send(&pkt(ToClient, ACK, 5001 + i * 1000, 1001, &data));
            assert_eq!(events(&out), [""; 0]);
        }
        assert_eq!(b.read(ToClient, false).len(), 100_000);
    }
}

/// A connection without a handshake is not one-sided, but older than the engine: `midstream` decides.
#[test]
fn data_without_a_handshake_needs_midstream() {
    for (midstream, live, follows) in [(false, false, false), (true, false, true), (false, true, true)] {
        let config = StreamConfig { async_oneside: true, midstream, spare_harmless: live, ..StreamConfig::default() };
        let mut b = Bench::new(config);
        let out = b.send(&pkt(ToServer, ACK | PSH, 1001, 5001, b"request"));
        assert_eq!(out.in_stream, follows, "midstream {midstream}, live {live}");
    }
}

#[test]
fn fast_open_data_counts_where_the_server_takes_it() {
    let mut syn = pkt(ToServer, SYN, 1000, 0, b"early");
    syn.options.fast_open = Some(8);
    let mut b = Bench::new(StreamConfig::default());
    assert!(b.send(&syn).in_stream);
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1006, b""));
    b.send(&pkt(ToServer, ACK, 1006, 5001, b""));
    assert_eq!(b.state(), TcpState::Established);
    assert_eq!(b.read(ToServer, false), "early");
    let mut b = Bench::new(StreamConfig::default());
    b.send(&syn);
    let out = b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert_eq!(events(&out), ["3whs_synack_tfo_data_ignored"]);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"again"));
    assert_eq!(b.read(ToServer, true), "again");
    // A client that restarts without data begins a new connection with the same numbers.
    let plain = pkt(ToServer, SYN, 1000, 0, b"");
    let mut b = Bench::new(StreamConfig::default());
    b.send(&syn);
    assert!(!b.send(&plain).reuse, "nothing is known of the server yet");
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert!(!b.send(&syn).reuse && b.send(&plain).reuse);
}

/// The sensor missed the client's acknowledgment and its first data, as the server's acknowledgment shows.
#[test]
fn a_server_that_acknowledges_missed_data_opens_the_connection() {
    for (inline, state) in [(false, TcpState::Established), (true, TcpState::SynRecv)] {
        for data in [&b""[..], b"response"] {
            let mut b = Bench::new(StreamConfig { inline, ..StreamConfig::default() });
            b.send(&pkt(ToServer, SYN, 1000, 0, b""));
            b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
            b.send(&pkt(ToClient, ACK, 5001, 1101, data));
            assert_eq!(b.state(), state, "inline {inline}, {} bytes", data.len());
        }
    }
    // No server acknowledges more than fits its window.
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    b.send(&pkt(ToClient, ACK, 5001, 1_000_000, b"response"));
    assert_eq!(b.state(), TcpState::SynRecv);
}

/// A reset at the end of data that the sensor missed, which the other side acknowledged, closes the connection; but not if its
/// sender may not have accepted the handshake, since it then answers a wrong acknowledgment.
#[test]
fn a_reset_behind_missed_data() {
    for (request, state) in [(&b"request"[..], TcpState::Closed), (b"", TcpState::Established)] {
        let next = 1001 + request.len() as u32;
        let mut b = Bench::new(StreamConfig::default());
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
        b.send(&pkt(ToServer, ACK, 1001, 5001, request));
        b.send(&pkt(ToClient, ACK, 5001, next, b""));
        b.send(&pkt(ToServer, ACK, next, 5101, b""));
        b.send(&pkt(ToClient, RST | ACK, 5101, next, b""));
        assert_eq!(b.state(), state, "a request of {} bytes", request.len());
    }
}

/// Without the option, hosts ignore the data of a SYN unless their SYN/ACK acknowledges it.
#[test]
fn data_of_a_plain_syn_is_packet_payload_until_the_server_takes_it() {
    let syn = pkt(ToServer, SYN, 1000, 0, b"early");
    let mut b = Bench::new(StreamConfig::default());
    assert!(!b.send(&syn).in_stream && b.session().is_untaken());
    let out = b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert_eq!(events(&out), [""; 0]);
    assert!(!b.session().is_untaken());
    let mut b = Bench::new(StreamConfig::default());
    b.send(&syn);
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1006, b""));
    assert_eq!(b.read(ToServer, false), "early");
    let mut b = Bench::new(StreamConfig { inline: true, ..StreamConfig::default() });
    assert!(b.send(&syn).in_stream);
}

#[test]
fn split_handshake() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN, 5000, 0, b""));
    let out = b.send(&pkt(ToServer, SYN | ACK, 1000, 9999, b""));
    assert_eq!(events(&out), ["4whs_synack_with_wrong_ack"]);
    b.send(&pkt(ToServer, SYN | ACK, 1000, 5001, b""));
    b.send(&pkt(ToClient, ACK, 5001, 1001, b""));
    assert_eq!(b.state(), TcpState::Established);
    b.send(&pkt(ToServer, ACK, 1001, 5001, b"data"));
    b.send(&pkt(ToClient, ACK, 5001, 1005, b""));
    assert_eq!(b.read(ToServer, false), "data");
}

#[test]
fn handshakes_that_are_not_right() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    assert_eq!(events(&b.send(&pkt(ToClient, SYN | ACK, 5000, 1002, b""))), ["3whs_synack_with_wrong_ack"]);
    assert_eq!(events(&b.send(&pkt(ToServer, SYN | ACK, 5000, 1001, b""))), ["3whs_synack_in_wrong_direction"]);
    b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
    assert_eq!(events(&b.send(&pkt(ToServer, ACK, 1001, 5002, b""))), ["3whs_right_seq_wrong_ack_evasion"]);
    for i in 0..5 {
        let out = b.send(&pkt(ToClient, SYN | ACK, 6000 + i, 1001, b""));
        assert_eq!(events(&out), ["3whs_synack_resend_with_diff_seq"]);
    }
    let out = b.send(&pkt(ToClient, SYN | ACK, 7000, 1001, b""));
    assert!(out.events.contains(StreamEvent::Hs3SynackFlood));
    // The client acknowledges one of the stored SYN/ACKs.
    b.send(&pkt(ToServer, ACK, 1001, 6003, b""));
    assert_eq!(b.state(), TcpState::Established);
    assert_eq!(b.session().isn(ToClient), 6002);
}

#[test]
fn data_of_a_syn_that_does_not_count_is_not_counted_either() {
    let mut b = Bench::new(StreamConfig::default());
    let mut syn = pkt(ToServer, SYN, 1000, 0, b"early");
    syn.options.fast_open = Some(0);
    b.send(&syn);
    assert!(b.engine.counters.reassembly_memuse > 0);
    b.send(&pkt(ToServer, SYN, 2000, 0, b""));
    b.send(&pkt(ToClient, SYN | ACK, 5000, 2001, b""));
    assert_eq!(b.state(), TcpState::SynRecv);
    assert_eq!(b.engine.counters.reassembly_memuse, 0);
}

/// Data came with a SYN/ACK that the client did not accept: it accepted another one, and its stream begins there.
#[test]
fn data_with_a_syn_ack_that_was_not_accepted() {
    for inline in [false, true] {
        let mut b = Bench::new(StreamConfig { inline, ..StreamConfig::default() });
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b"DECOY-"));
        b.read(ToClient, false);
        b.send(&pkt(ToClient, SYN | ACK, 5500, 1001, b""));
        assert_eq!(b.send(&pkt(ToServer, ACK, 1001, 5501, b"")).untaken, inline);
        let out = b.send(&pkt(ToClient, PSH | ACK, 5501, 1001, b"ATTACK"));
        assert!(events(&out).is_empty() && !out.rewrite);
        b.send(&pkt(ToServer, ACK, 1001, 5507, b""));
        assert_eq!(b.read(ToClient, false), "ATTACK", "inline {inline}");
    }
}

/// A client whose SYN had no signature discards a signed SYN/ACK, and goes on with the server's SYN that follows. If it accepts
/// the SYN/ACK after all, the connection begins there.
#[test]
fn a_signed_syn_ack_to_a_plain_syn() {
    for accepted in [false, true] {
        let mut b = Bench::new(StreamConfig::default());
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        let mut signed = pkt(ToClient, SYN | ACK, 5000, 1001, b"");
        signed.options.signed = true;
        b.send(&signed);
        let first = if accepted {
            b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
            5001
        } else {
            b.send(&pkt(ToClient, SYN, 6000, 0, b""));
            b.send(&pkt(ToServer, SYN | ACK, 1000, 6001, b""));
            6001
        };
        b.send(&pkt(ToClient, PSH | ACK, first, 1001, b"data"));
        b.send(&pkt(ToServer, ACK, 1001, first + 4, b""));
        assert_eq!(b.read(ToClient, false), "data", "accepted {accepted}");
    }
}

/// Passive, data of a split handshake that arrives early is kept, as its receiver keeps it.
#[test]
fn early_data_of_a_split_handshake() {
    let mut b = Bench::new(StreamConfig::default());
    b.send(&pkt(ToServer, SYN, 1000, 0, b""));
    b.send(&pkt(ToClient, SYN, 5000, 0, b""));
    b.send(&pkt(ToServer, SYN | ACK, 1000, 5001, b""));
    assert_eq!(events(&b.send(&pkt(ToClient, PSH | ACK, 5006, 1001, b"there"))), ["4whs_wrong_seq"]);
    b.send(&pkt(ToClient, PSH | ACK, 5001, 1001, b"hello"));
    b.send(&pkt(ToServer, ACK, 1001, 5011, b""));
    assert_eq!(b.read(ToClient, false), "hellothere");
}
