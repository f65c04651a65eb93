//! Inline: a new connection between the ports of one that is over, dropped connections that come back, and freed memory.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::{FlowPrint, StreamConfig, TcpState};

use Direction::{ToClient, ToServer};

/// The settings of a live network, and of `--simulate-ips`.
fn inline() -> [StreamConfig; 2] {
    let base = StreamConfig { inline: true, remembered: 100, ..linux() };
    [StreamConfig { spare_harmless: true, async_oneside: true, ..base.clone() }, base]
}

/// Processes a SYN that opens a new flow, as the caller of the engine does.
fn opens_anew(b: &mut Bench, syn: &Pkt) {
    assert!(b.send(syn).reuse);
    b.times_out();
    let out = b.send(syn);
    assert!(out.accepted && !out.drop && !out.reuse, "{:?}", events(&out));
}

#[test]
fn fins_of_both_sides_end_a_connection() {
    for config in inline() {
        let mut b = Bench::connected(config);
        b.send(&pkt(ToServer, FIN | ACK, 1001, 5001, b""));
        b.send(&pkt(ToClient, ACK, 5001, 1002, b""));
        // The server has more to say.
        assert!(!b.send(&pkt(ToServer, SYN, 90_000, 0, b"")).reuse);
        b.send(&pkt(ToClient, FIN | ACK, 5001, 1002, b""));
        assert!(!b.send(&pkt(ToServer, SYN, 90_000, 0, b"")).reuse);
        b.send(&pkt(ToServer, ACK, 1002, 5002, b""));
        assert_eq!(b.state(), TcpState::Closed);
        opens_anew(&mut b, &pkt(ToServer, SYN, 90_000, 0, b""));
    }
}

/// The reset may not arrive: then the server takes later data as that of the old connection.
#[test]
fn behind_a_reset_the_old_connection_does_not_pass_as_a_new_one() {
    for config in inline() {
        let mut b = Bench::connected(config.clone());
        b.send(&client(1001, b"GET /at"));
        b.send(&acks(1008));
        b.send(&pkt(ToServer, RST, 1008, 0, b""));
        assert_eq!(b.state(), TcpState::Closed);
        // One before the number that the server expects.
        opens_anew(&mut b, &pkt(ToServer, SYN, 1007, 0, b""));
        for seq in [1008, 1001] {
            let out = b.send(&client(seq, b"tack"));
            assert!(out.drop && !out.accepted, "{seq} {:?}", events(&out));
        }
        assert_eq!(b.state(), TcpState::SynSent);
        assert!(!b.send(&pkt(ToClient, SYN | ACK, 70_000, 1008, b"")).drop);
        assert!(b.send(&pkt(ToServer, PSH | ACK, 1008, 70_001, b"GET /")).accepted);
        assert_eq!(b.read(ToServer, false), "GET /");
    }
}

#[test]
fn a_dropped_connection_stays_dropped() {
    for config in inline() {
        let mut b = Bench::connected(config);
        b.send(&client(1001, b"GET /at"));
        b.send(&acks(1008));
        b.send(&client(1008, b"tack"));
        let mut session = b.session.take().unwrap();
        b.engine.discard(&mut session);
        assert_eq!(b.engine.counters.reassembly_memuse, 0);
        b.engine.remember_dropped(&session, FlowPrint { hash: 7, second: false }, 1000, 2);
        b.engine.end(&session);
        b.fresh = true;
        b.send(&client(1008, b"tack"));
        assert_eq!(b.session().dropped(), Some(2));
        // A new connection is another one.
        let mut b = Bench { session: None, fresh: true, ..b };
        b.send(&pkt(ToServer, SYN, 90_000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, 70_000, 90_001, b""));
        b.send(&pkt(ToServer, ACK, 90_001, 70_001, b""));
        assert_eq!((b.state(), b.session().dropped()), (TcpState::Established, None));
    }
}

/// Data that was read when it came is free once it is acknowledged, even if no more data comes.
#[test]
fn acknowledgments_free_what_was_read() {
    for config in inline() {
        let mut b = Bench::connected(StreamConfig { reassembly_memcap: 40_000, ..config });
        b.send(&Pkt { window: u16::MAX, ..acks(1001) });
        let mut seq = 1001;
        // Until the limit.
        while b.send(&client(seq, &[b'a'; 1400])).exception.is_none() {
            b.read(ToServer, false);
            b.raw(ToServer, false);
            seq += 1400;
            assert!(seq < 60_000);
        }
        assert!(seq > 1001 + 1400);
        // Stored data needs no memory.
        assert!(b.send(&client(seq - 1400, &[b'a'; 1400])).exception.is_none());
        let held = b.engine.counters.reassembly_memuse;
        b.send(&acks(seq));
        assert!(b.engine.counters.reassembly_memuse < held / 2, "{}", b.engine.counters.reassembly_memuse);
        assert!(b.send(&client(seq, &[b'a'; 1400])).exception.is_none());
    }
}
