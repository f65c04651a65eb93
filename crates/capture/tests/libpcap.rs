//! libpcap on a pair of virtual interfaces, and offloads, each test in a network namespace of its own (`common/namespace.rs`).
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::time::Duration;

use margay_capture::af_packet::Trust;
use margay_capture::libpcap::{ANY, Libpcap, Settings};
use margay_capture::live::{Decisions, LinkChange, LiveError, LiveSource, Received};
use margay_capture::offload::Offloads;
use margay_packet::LinkType;
use namespace::ip;
use wire::{Sender, tagged, udp, until};

in_namespace! {
    "mgp";
    frames_arrive_as_they_were: inner_frames,
    nothing_before_the_start_and_after_the_stop: inner_start,
    settings_are_those_of_the_handle: inner_settings,
    down_and_up_gone_and_back: inner_link,
    what_cannot_be_opened: inner_errors,
    offloads_are_off_as_long_as_they_are_held: inner_offloads,
}

fn pair() {
    namespace::pair("va", "vb", "mtu 9000");
}

/// All frames until no more arrive.
fn drain(source: &mut Libpcap) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        match source.receive(7, Duration::from_millis(200)) {
            Received::Frames => all.extend(source.batch().iter().map(|f| f.data.to_vec())),
            Received::Idle => return all,
            Received::Link(_) => {}
        }
        source.release(&Decisions::default());
    }
}

fn opened(name: &str, settings: Settings) -> Libpcap {
    let mut s = Libpcap::open(name, settings).expect("the interface");
    s.start().expect("it starts");
    s
}

/// Received = handed out + lost.
fn accounted(source: &mut Libpcap) {
    let c = source.counters(0);
    assert_eq!(c.kernel_packets, c.frames + c.kernel_drops, "{c:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_frames() {
    pair();
    let mut source = opened("vb", Settings::default());
    assert_eq!(source.link(), LinkType::ETHERNET);
    let mut sender = Sender::on("va");
    let mut sent = Vec::new();
    for n in 0..1000u16 {
        let frame = udp([10, 0, 0, 1], n, [10, 0, 0, 2], 53, &vec![n as u8; usize::from(n % 1400)]);
        sent.push(if n % 2 == 0 { frame } else { tagged(&frame, &[[0x81, 0, 0, 100]]) });
    }
    let mut got = Vec::new();
    for chunk in sent.chunks(100) {
        chunk.iter().for_each(|f| sender.send(f));
        got.extend(drain(&mut source));
    }
    assert!(got == sent, "as they were: {} of {}", got.len(), sent.len());
    accounted(&mut source);
    let c = source.counters(0);
    assert_eq!((c.frames, c.kernel_drops, c.truncated), (1000, 0, 0));
    // All interfaces at once. libpcap replaces their link-layer headers with its own.
    let mut any = opened(ANY, Settings::default());
    sender.send(&sent[2]);
    let all = drain(&mut any);
    assert!(any.link().is_supported() && all.iter().any(|f| f.ends_with(&sent[2][14..])), "{:?}", any.link());
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_start() {
    pair();
    let mut source = Libpcap::open("vb", Settings::default()).expect("the interface");
    let mut sender = Sender::on("va");
    let frame = |n: u8| udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[n; 40]);
    sender.send(&frame(1));
    assert_eq!(drain(&mut source), [[0u8; 0]; 0]);
    source.start().expect("it starts");
    sender.send(&frame(2));
    sender.send(&frame(3));
    std::thread::sleep(source.settle());
    source.stop();
    sender.send(&frame(4));
    assert_eq!(drain(&mut source), [frame(2), frame(3)], "what was there, and nothing after it");
    accounted(&mut source);
    assert_eq!(source.counters(0).frames, 2);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_settings() {
    pair();
    let settings = Settings {
        snaplen: 60,
        filter: Some("udp dst port 53".into()),
        buffer_size: 4 << 20,
        promiscuous: false,
        trust: Trust::Everybody,
    };
    let mut source = opened("vb", settings);
    let mut sender = Sender::on("va");
    let (wanted, other) =
        (udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[1; 400]), udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 54, b"x"));
    sender.send(&other);
    sender.send(&wanted);
    let end = std::time::Instant::now() + wire::PATIENCE;
    while source.receive(8, Duration::from_millis(100)) != Received::Frames {
        assert!(std::time::Instant::now() < end);
    }
    let batch = source.batch();
    let frames: Vec<_> = batch.iter().collect();
    assert_eq!((frames.len(), frames[0].data.len(), frames[0].wire_len as usize), (1, 60, wanted.len()));
    assert!(batch.trusted(0), "checksums are believed");
    let c = source.counters(0);
    assert_eq!((c.kernel_packets, c.truncated), (1, 1), "{c:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    pair();
    let mut source = opened("vb", Settings::default());
    assert!(source.is_up());
    ip("link set vb down");
    assert!(until(&mut source, LinkChange::Down) && !source.is_up());
    ip("link set vb up");
    assert!(until(&mut source, LinkChange::Back));
    ip("link del va");
    assert!(until(&mut source, LinkChange::Gone));
    pair();
    assert!(until(&mut source, LinkChange::Back) && source.is_up());
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"again");
    Sender::on("va").send(&frame);
    assert_eq!(drain(&mut source), [frame]);
    assert!(source.counters(0).reopened == 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    pair();
    assert!(matches!(Libpcap::open("no-such-card", Settings::default()), Err(LiveError::NoInterface(_))));
    let settings = Settings { filter: Some("no such words".into()), ..Settings::default() };
    let e = Libpcap::open("vb", settings).map(drop).expect_err("a filter").to_string();
    assert!(e.contains("no such words") && e.contains("vb"), "{e}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_offloads() {
    pair();
    let names = |o: &Offloads| o.names().collect::<Vec<_>>();
    let held = Offloads::disable("vb").expect("they can be switched off");
    // The offloads of a virtual interface.
    assert!(names(&held).contains(&"tso") && names(&held).contains(&"gso"), "{held:?}");
    assert_eq!(names(&Offloads::disable("vb").expect("again")), [""; 0], "they are off");
    let before = names(&held);
    drop(held);
    let mut again = Offloads::disable("vb").expect("again");
    assert_eq!(names(&again), before, "they were on again");
    again.restore().expect("they are on");
}
