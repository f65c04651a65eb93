//! AF_XDP on a pair of virtual interfaces, each test in a network namespace of its own (`common/namespace.rs`).
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_capture::af_packet::Interface;
use margay_capture::af_xdp::{AfXdp, BindMode, Port, Settings};
use margay_capture::ebpf::XdpMode;
use margay_capture::live::{Decisions, LinkChange, LiveError, LiveSource, Received};
use namespace::{has_program, ip};
use wire::{PATIENCE, Sender, tagged, udp, until};

in_namespace! {
    "mgx";
    frames_arrive_as_they_were: inner_frames,
    nothing_before_the_start_and_after_the_stop: inner_start,
    each_queue_has_a_socket: inner_queues,
    what_finds_no_room_is_counted: inner_overrun,
    filters_are_ours: inner_filter,
    down_and_up_gone_and_back: inner_link,
    what_cannot_be_opened: inner_errors,
}

fn pair() {
    namespace::pair("va", "vb", "");
}

fn port(settings: Settings) -> Arc<Port> {
    Arc::new(Port::new("vb", settings).expect("the interface"))
}

fn opened(settings: Settings) -> AfXdp {
    let mut s = AfXdp::open(&port(settings), &[0]).expect("a socket");
    s.start().expect("it starts");
    s
}

fn generic() -> Settings {
    Settings { mode: Some(XdpMode::Generic), ..Settings::default() }
}

/// Receives the waiting frames, and returns any other result.
fn step(source: &mut AfXdp, into: &mut Vec<Vec<u8>>) -> Received {
    let received = source.receive(7, Duration::from_millis(50));
    if received == Received::Frames {
        let batch = source.batch();
        into.extend(batch.iter().map(|f| {
            assert_eq!((f.number, f.wire_len as usize), (0, f.data.len()));
            assert!(f.time.secs() > 1_700_000_000);
            f.data.to_vec()
        }));
        assert!(batch.len() <= 7);
        source.release(&Decisions::default());
    }
    received
}

/// Receives until there are `count` frames.
fn receive(source: &mut AfXdp, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < end {
        step(source, &mut all);
    }
    assert_eq!(all.len(), count);
    all
}

/// Whether nothing more arrives.
fn quiet(source: &mut AfXdp) -> bool {
    let mut more = Vec::new();
    for _ in 0..4 {
        step(source, &mut more);
    }
    more.is_empty()
}

/// Received = handed out + lost.
fn accounted(source: &mut AfXdp) {
    let c = source.counters(0);
    assert_eq!(c.kernel_packets, c.frames + c.kernel_drops + c.unreadable, "{c:?}");
    assert_eq!((c.unreadable, c.rings.invalid), (0, 0));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_frames() {
    pair();
    let mut sent = Vec::new();
    for n in 0..3000u16 {
        let frame = udp([10, 0, 0, 1], n, [10, 0, 0, 2], 53, &vec![n as u8; usize::from(n % 1400)]);
        sent.push(match n % 4 {
            1 => tagged(&frame, &[[0x81, 0, 0, 100]]),
            2 => tagged(&frame, &[[0x88, 0xa8, 0x20, 7], [0x81, 0, 0, 9]]),
            _ => frame,
        });
    }
    let copied = Settings { bind: BindMode::Copy, busy_poll: None, ..generic() };
    for settings in [Settings { mode: Some(XdpMode::Driver), ..Settings::default() }, copied, Settings::default()] {
        let mut source = opened(settings);
        assert!(has_program("vb") && source.remarks().is_empty(), "{:?}", source.remarks());
        let mut sender = Sender::on("va");
        let mut got = Vec::new();
        for chunk in sent.chunks(100) {
            chunk.iter().for_each(|f| sender.send(f));
            got.extend(receive(&mut source, chunk.len()));
        }
        assert!(got == sent, "as they were");
        assert!(quiet(&mut source));
        accounted(&mut source);
        let c = source.counters(0);
        assert_eq!((c.frames, c.kernel_drops), (3000, 0), "{}", source.way());
        drop(source);
        assert!(!has_program("vb"), "the program is gone");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_start() {
    pair();
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"x");
    let mut sender = Sender::on("va");
    let mut source = AfXdp::open(&port(Settings::default()), &[0]).expect("the interface");
    (0..50).for_each(|_| sender.send(&frame));
    assert!(quiet(&mut source));
    source.start().expect("it starts");
    (0..50).for_each(|_| sender.send(&frame));
    receive(&mut source, 50);
    (0..50).for_each(|_| sender.send(&frame));
    std::thread::sleep(source.settle());
    source.stop();
    (0..50).for_each(|_| sender.send(&frame));
    // Packets from before the stop are still received.
    receive(&mut source, 50);
    assert!(quiet(&mut source));
    accounted(&mut source);
    assert_eq!(source.counters(0).kernel_packets, 100);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_queues() {
    namespace::pair_of("va", "vb", "numtxqueues 4 numrxqueues 4", "");
    assert_eq!(Interface::queues("vb"), 4);
    let port = port(Settings::default());
    assert_eq!(port.queues(), 4);
    let mut sources: Vec<AfXdp> =
        [&[0u32, 2][..], &[1], &[3]].iter().map(|queues| AfXdp::open(&port, queues).expect("sockets")).collect();
    sources.iter_mut().for_each(|s| s.start().expect("it starts"));
    // The kernel chooses a queue by the packet's flow.
    let mut sender = Sender::on("va");
    for round in 0..4 {
        for n in 0..250u16 {
            sender.send(&udp([10, 0, 0, (n % 250) as u8], 1000 + n, [10, 1, 0, 1], 53, &[round]));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut got = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut each = vec![0; sources.len()];
    while got.len() < 1000 && Instant::now() < end {
        for (source, n) in sources.iter_mut().zip(&mut each) {
            let before = got.len();
            step(source, &mut got);
            *n += got.len() - before;
        }
    }
    assert_eq!(got.len(), 1000);
    assert!(each.iter().filter(|n| **n > 0).count() >= 2, "{each:?}");
    sources.iter_mut().for_each(accounted);
    // A queue has one socket.
    let error = AfXdp::open(&port, &[3]).expect_err("it is in use");
    assert!(matches!(error, LiveError::Occupied { .. }), "{error}");
    assert!(AfXdp::open(&port, &[4]).is_err());
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_overrun() {
    pair();
    let mut source = opened(generic());
    let mut sender = Sender::on("va");
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[7; 500]);
    // More than there are chunks.
    (0..9000).for_each(|_| sender.send(&frame));
    let mut got = Vec::new();
    while step(&mut source, &mut got) == Received::Frames {}
    let c = source.counters(0);
    let lost = c.kernel_packets - got.len() as u64;
    assert!(lost > 500 && c.kernel_drops == lost && c.rings.dropped > 0, "{c:?}");
    // The source continues.
    sender.send(&frame);
    receive(&mut source, 1);
    accounted(&mut source);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_filter() {
    pair();
    let plain = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"plain");
    let other = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 54, b"other");
    let mut sender = Sender::on("va");
    let mut source = opened(Settings { filter: Some("udp port 54".to_owned()), ..Settings::default() });
    for _ in 0..10_000 / 100 {
        for _ in 0..100 {
            sender.send(&plain);
        }
        sender.send(&other);
        assert_eq!(receive(&mut source, 1), std::slice::from_ref(&other));
    }
    accounted(&mut source);
    let c = source.counters(0);
    assert_eq!((c.kernel_packets, c.frames, c.rings.filtered, c.kernel_drops), (100, 100, 10_000, 0));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    pair();
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"x");
    let mut source = opened(Settings::default());
    Sender::on("va").send(&frame);
    receive(&mut source, 1);
    for _ in 0..2 {
        assert!(ip("link set vb down"));
        assert!(until(&mut source, LinkChange::Down));
        assert!(!source.is_up());
        assert_eq!(source.receive(64, Duration::from_millis(20)), Received::Idle);
        assert!(ip("link set vb up"));
        assert!(until(&mut source, LinkChange::Back));
        Sender::on("va").send(&frame);
        receive(&mut source, 1);
    }
    assert!(ip("link del va"));
    assert!(until(&mut source, LinkChange::Gone));
    let again = Instant::now();
    while again.elapsed() < Duration::from_millis(300) {
        assert_eq!(source.receive(64, Duration::from_millis(20)), Received::Idle);
    }
    pair();
    assert!(until(&mut source, LinkChange::Back));
    Sender::on("va").send(&frame);
    receive(&mut source, 1);
    accounted(&mut source);
    let c = source.counters(0);
    assert!(c.frames == 4 && c.reopened >= 1, "{c:?}");
    // An interface that is down at the start: the source waits for it.
    drop(source);
    assert!(ip("link set vb down"));
    let mut late = opened(Settings::default());
    assert!(!late.is_up());
    assert!(ip("link set vb up"));
    assert!(until(&mut late, LinkChange::Back));
    Sender::on("va").send(&frame);
    receive(&mut late, 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    pair();
    assert!(matches!(Port::new("nosuch", Settings::default()), Err(LiveError::NoInterface(_))));
    let error = |settings: Settings| AfXdp::open(&port(settings), &[0]).expect_err("it cannot be opened").to_string();
    assert!(error(Settings { bind: BindMode::Zero, ..generic() }).contains("force-bind-mode: zero"));
    assert!(error(Settings { filter: Some("udp and and".into()), ..generic() }).contains("syntax error"));
    let pages = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    if pages.trim() == "0" {
        assert!(error(Settings { unaligned: true, ..generic() }).contains("nr_hugepages"));
    }
    // Another program stays attached.
    let source = opened(generic());
    let other = AfXdp::open(&port(generic()), &[0]).expect_err("it is in use");
    assert!(matches!(other, LiveError::Occupied { .. }), "{other}");
    drop(source);
    opened(generic());
}
