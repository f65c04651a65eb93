//! Distribution by the engine's own BPF program (`cluster_ebpf`), in a network namespace (`common/namespace.rs`).
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use margay_capture::af_packet::{AfPacket, Distribution, Fanout, Settings};
use margay_capture::live::{Decisions, LiveSource, Received};
use wire::{Sender, tagged, udp};

in_namespace! {
    "mge";
    flows_stay_together_inside_of_tunnels: inner_spread,
}

/// Wraps a frame, for example in a tunnel.
type Wrap = fn(Vec<u8>) -> Vec<u8>;

/// Wraps a frame in GRE between two hosts, with a key.
fn gre(frame: Vec<u8>) -> Vec<u8> {
    let mut outer = udp([192, 0, 2, 1], 0, [192, 0, 2, 2], 0, &[]);
    outer.truncate(34);
    outer[23] = 47;
    outer.extend_from_slice(&[0x20, 0, 8, 0, 0, 0, 0, 7]);
    outer.extend_from_slice(&frame[14..]);
    let len = (outer.len() - 14) as u16;
    outer[16..18].copy_from_slice(&len.to_be_bytes());
    outer
}

/// Wraps a frame in IPv6 between two hosts.
fn in_ipv6(frame: Vec<u8>) -> Vec<u8> {
    let mut outer = frame[..12].to_vec();
    outer.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
    outer.extend_from_slice(&((frame.len() - 14) as u16).to_be_bytes());
    outer.extend_from_slice(&[4, 64]);
    outer.extend_from_slice(&[0xfd; 32]);
    outer.extend_from_slice(&frame[14..]);
    outer
}

fn in_two_networks(frame: Vec<u8>) -> Vec<u8> {
    tagged(&frame, &[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 9]])
}

/// Turns a frame into a second fragment.
fn fragment(mut frame: Vec<u8>) -> Vec<u8> {
    frame[21] = 10;
    frame
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_spread() {
    namespace::pair("va", "vb", "");
    let mut sources: Vec<AfPacket> = Vec::new();
    for _ in 0..4 {
        let id = sources.first().and_then(AfPacket::group);
        let fanout = Fanout { id, distribution: Distribution::Program, defrag: false, rollover: false };
        let settings = Settings { block_size: 1 << 16, blocks: 16, fanout: Some(fanout), ..Settings::default() };
        sources.push(AfPacket::open("vb", settings).expect("the interface"));
    }
    sources.iter_mut().for_each(|s| s.start().expect("it starts"));
    let mut sender = Sender::on("va");
    let wraps: [Wrap; 5] = [|f| f, gre, in_ipv6, in_two_networks, fragment];
    for (kind, wrap) in wraps.into_iter().enumerate() {
        for n in 0..40u8 {
            // The last bytes of each name its flow.
            let mark = [kind as u8, n];
            sender.send(&wrap(udp([10, 0, 0, n], 1000, [10, 1, 0, 1], 53, &mark)));
            sender.send(&wrap(udp([10, 1, 0, 1], 53, [10, 0, 0, n], 1000, &mark)));
        }
    }
    let (mut homes, mut used, mut total) = ([[None; 40]; 5], [[false; 4]; 5], 0);
    let end = Instant::now() + Duration::from_secs(30);
    while total < 400 && Instant::now() < end {
        for (i, s) in sources.iter_mut().enumerate() {
            if s.receive(64, Duration::from_millis(10)) == Received::Frames {
                for f in s.batch().iter() {
                    let [kind, n] = f.data[f.data.len() - 2..] else { unreachable!() };
                    let (kind, n) = (usize::from(kind), usize::from(n));
                    assert!(*homes[kind][n].get_or_insert(i) == i, "flow {n} of kind {kind} is at two");
                    used[kind][i] = true;
                    total += 1;
                }
            }
            s.release(&Decisions::default());
        }
    }
    assert_eq!(total, 400);
    assert!(used.iter().all(|u| u.iter().filter(|u| **u).count() >= 3), "{used:?}");
    // The same hosts reach the same worker, in a tunnel or not.
    assert!(homes.iter().all(|h| *h == homes[0]), "{homes:?}");
}
