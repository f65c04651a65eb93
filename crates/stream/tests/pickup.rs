//! Inline midstream pickup: all data that a host accepts was inspected.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, pkt};
use margay_flow::Direction;
use margay_packet::tcp::flag::*;
use margay_stream::StreamConfig;

use Direction::{ToClient, ToServer};

/// The first packet's acknowledgment is far ahead of its receiver's data, and the receiver says so. Data at the
/// receiver's position is read.
#[test]
fn picked_up_ahead_of_what_is_expected() {
    let mut b = Bench::new(StreamConfig { midstream: true, inline: true, ..StreamConfig::default() });
    b.send(&pkt(ToServer, ACK, 1300, 5001, b""));
    b.send(&pkt(ToClient, ACK, 5001, 1100, b""));
    let out = b.send(&pkt(ToServer, PSH | ACK, 1100, 5001, b"ATTACK"));
    assert_eq!((out.accepted, out.drop, out.rewrite), (true, false, false));
    assert_eq!(b.raw(ToServer, false), "()ATTACK|");
}

/// For a segment across a skipped gap, the new data is after the gap.
#[test]
fn a_segment_over_a_hole_that_was_passed() {
    let mut b = Bench::new(StreamConfig { midstream: true, inline: true, ..StreamConfig::default() });
    b.send(&pkt(ToServer, PSH | ACK, 1030, 5001, b"x"));
    b.raw(ToServer, false);
    b.send(&pkt(ToClient, ACK, 5001, 1050, b""));
    b.send(&pkt(ToServer, PSH | ACK, 1050, 5001, b"y"));
    b.raw(ToServer, false);
    assert_eq!(b.read(ToServer, false), "x<19>y");
    b.send(&pkt(ToServer, PSH | ACK, 1027, 5001, b"--------------------------ZZ"));
    assert!(b.raw(ToServer, false).ends_with("ZZ|"));
}
