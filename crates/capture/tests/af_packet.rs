//! AF_PACKET on a pair of virtual interfaces, each test in a network namespace of its own (`common/namespace.rs`).
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use margay_capture::af_packet::{AfPacket, Distribution, Fanout, Interface, Settings, Trust};
use margay_capture::live::{Decisions, LinkChange, LiveError, LiveSource, Received};
use namespace::ip;
use wire::{Sender, tagged, udp, until};

in_namespace! {
    "mgc";
    frames_arrive_as_they_were: inner_frames,
    nothing_before_the_start_and_after_the_stop: inner_start,
    filters_are_the_kernels: inner_filters,
    flows_stay_together: inner_fanout,
    a_full_ring_is_counted: inner_overrun,
    large_packets_are_cut_and_counted: inner_truncated,
    down_and_up_gone_and_back: inner_link,
    what_cannot_be_opened: inner_errors,
}

/// The two interfaces.
fn pair() {
    namespace::pair("va", "vb", "mtu 9000");
}

/// All frames until no more arrive.
fn drain(source: &mut AfPacket) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        match source.receive(7, Duration::from_millis(200)) {
            Received::Frames => all.extend(source.batch().iter().map(|f| {
                assert_eq!(f.number, 0);
                f.data.to_vec()
            })),
            Received::Idle => return all,
            Received::Link(_) => {}
        }
        source.release(&Decisions::default());
    }
}

fn small() -> Settings {
    Settings { block_size: 1 << 16, blocks: 8, ..Settings::default() }
}

fn opened(settings: Settings) -> AfPacket {
    let mut s = AfPacket::open("vb", settings).expect("the interface");
    s.start().expect("it starts");
    s
}

/// Received = handed out + lost.
fn accounted(source: &mut AfPacket) {
    let c = source.counters(0);
    assert_eq!(c.kernel_packets, c.frames + c.kernel_drops + c.unreadable, "{c:?}");
    assert_eq!(c.unreadable, 0);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_frames() {
    pair();
    let mut source = opened(small());
    let mut sender = Sender::on("va");
    let mut sent = Vec::new();
    for n in 0..3000u16 {
        let frame = udp([10, 0, 0, 1], n, [10, 0, 0, 2], 53, &vec![n as u8; usize::from(n % 1400)]);
        sent.push(match n % 4 {
            1 => tagged(&frame, &[[0x81, 0, 0, 100]]),
            2 => tagged(&frame, &[[0x88, 0xa8, 0x20, 7], [0x81, 0, 0, 9]]),
            _ => frame,
        });
    }
    let mut got = Vec::new();
    for chunk in sent.chunks(100) {
        chunk.iter().for_each(|f| sender.send(f));
        got.extend(drain(&mut source).into_iter().take_while(|_| chunk.len() == 100));
    }
    assert_eq!(got.len(), sent.len());
    assert!(got == sent, "as they were");
    // The interface's own packets are captured, too.
    Sender::on("vb").send(&sent[0]);
    assert_eq!(drain(&mut source), sent[..1]);
    accounted(&mut source);
    let c = source.counters(0);
    assert_eq!((c.frames, c.kernel_drops, c.truncated), (3001, 0, 0));
    assert!(c.polls >= c.poll_data + c.poll_timeout && c.poll_data > 0 && c.poll_timeout > 0, "{c:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_start() {
    pair();
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"x");
    let mut sender = Sender::on("va");
    let fanout = Fanout { id: None, distribution: Distribution::Flow, defrag: true, rollover: false };
    let mut source = AfPacket::open("vb", Settings { fanout: Some(fanout), ..small() }).expect("the interface");
    (0..50).for_each(|_| sender.send(&frame));
    assert!(drain(&mut source).is_empty());
    source.start().expect("it starts");
    (0..50).for_each(|_| sender.send(&frame));
    source.stop();
    (0..50).for_each(|_| sender.send(&frame));
    std::thread::sleep(source.settle());
    // Packets from before the stop are still received.
    assert_eq!(drain(&mut source).len(), 50);
    accounted(&mut source);
    assert_eq!(source.counters(0).kernel_packets, 50);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_filters() {
    pair();
    let plain = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"plain");
    let other = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 54, b"other");
    let vlan = tagged(&plain, &[[0x81, 0, 0, 100]]);
    let mut sender = Sender::on("va");
    for (filter, want) in [
        ("udp port 53", vec![&plain, &vlan]),
        ("udp dst port 54", vec![&other]),
        ("tcp", vec![]),
        ("vlan", vec![&vlan]),
        ("vlan 101", vec![]),
        ("udp port 53 and not vlan 100", vec![&plain]),
        ("", vec![&plain, &other, &vlan]),
    ] {
        let mut source = opened(Settings { filter: Some(filter.to_owned()), ..small() });
        [&plain, &other, &vlan].iter().for_each(|f| sender.send(f));
        let got = drain(&mut source);
        assert_eq!(got.iter().collect::<Vec<_>>(), want, "{filter}");
        assert_eq!(source.counters(0).kernel_packets, want.len() as u64);
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_fanout() {
    pair();
    let mut sources: Vec<AfPacket> = Vec::new();
    for _ in 0..4 {
        let id = sources.first().and_then(AfPacket::group);
        let fanout = Fanout { id, distribution: Distribution::Flow, defrag: true, rollover: false };
        sources.push(AfPacket::open("vb", Settings { fanout: Some(fanout), ..small() }).expect("the interface"));
    }
    sources.iter_mut().for_each(|s| s.start().expect("it starts"));
    let mut sender = Sender::on("va");
    for round in 0..4 {
        for n in 0..100u8 {
            let there = udp([10, 0, 0, n], 1000, [10, 1, 0, 1], 53, &[round]);
            let back = udp([10, 1, 0, 1], 53, [10, 0, 0, n], 1000, &[round]);
            sender.send(&there);
            sender.send(&back);
        }
    }
    let (mut total, mut used, mut homes) = (0, 0, [None; 100]);
    for (i, s) in sources.iter_mut().enumerate() {
        let got = drain(s);
        total += got.len();
        used += usize::from(!got.is_empty());
        for f in got {
            let n = if f[29] == 1 && f[27] == 1 { f[33] } else { f[29] };
            assert!(*homes[usize::from(n)].get_or_insert(i) == i, "flow {n} is at two");
        }
        accounted(s);
    }
    assert_eq!(total, 800);
    assert!(used >= 3, "{used} of 4 sockets had packets");
    // A group of another kind with the same number is refused.
    let id = sources[0].group();
    let fanout = Fanout { id, distribution: Distribution::Cpu, defrag: false, rollover: false };
    let error = AfPacket::open("vb", Settings { fanout: Some(fanout), ..small() }).expect_err("it is in use");
    assert!(error.to_string().contains("cluster-id"), "{error}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_overrun() {
    pair();
    let mut source = opened(Settings { block_size: 4096, blocks: 2, ..small() });
    let mut sender = Sender::on("va");
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[7; 500]);
    (0..1000).for_each(|_| sender.send(&frame));
    let got = drain(&mut source).len() as u64;
    let c = source.counters(0);
    assert!(c.kernel_drops > 900 && c.freezes > 0, "{c:?}");
    assert_eq!((c.kernel_packets, c.frames, c.kernel_drops), (1000, got, 1000 - got));
    // The source continues.
    sender.send(&frame);
    assert_eq!(drain(&mut source).len(), 1);
    accounted(&mut source);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_truncated() {
    pair();
    let mut source = opened(Settings { block_size: 4096, blocks: 8, trust: Trust::Everybody, ..small() });
    Sender::on("va").send(&udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[7; 8000]));
    let mut seen = 0;
    while source.receive(64, Duration::from_millis(200)) == Received::Frames {
        let batch = source.batch();
        for (i, f) in batch.iter().enumerate() {
            assert!(
                f.wire_len == 8042 && f.data.len() < 4096 && f.data.len() > 3000,
                "{} of {}",
                f.data.len(),
                f.wire_len
            );
            assert!(batch.trusted(i));
            seen += 1;
        }
        source.release(&Decisions::default());
    }
    let c = source.counters(0);
    assert_eq!((seen, c.truncated), (1, 1), "{c:?}");
    accounted(&mut source);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    pair();
    let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, b"x");
    let fanout = Fanout { id: None, distribution: Distribution::Flow, defrag: true, rollover: false };
    let mut source = opened(Settings { fanout: Some(fanout), ..small() });
    assert!(source.is_up());
    Sender::on("va").send(&frame);
    assert_eq!(drain(&mut source).len(), 1);
    for _ in 0..2 {
        assert!(ip("link set vb down"));
        assert!(until(&mut source, LinkChange::Down));
        // It is reported once.
        for _ in 0..5 {
            assert_eq!(source.receive(64, Duration::from_millis(20)), Received::Idle);
        }
        assert!(ip("link set vb up"));
        assert!(until(&mut source, LinkChange::Back));
        Sender::on("va").send(&frame);
        assert_eq!(drain(&mut source).len(), 1);
    }
    assert!(ip("link del va"));
    assert!(until(&mut source, LinkChange::Gone) || !source.is_up());
    let again = Instant::now();
    while again.elapsed() < Duration::from_millis(300) {
        assert_eq!(source.receive(64, Duration::from_millis(20)), Received::Idle);
    }
    pair();
    assert!(until(&mut source, LinkChange::Back));
    Sender::on("va").send(&frame);
    assert_eq!(drain(&mut source).len(), 1);
    accounted(&mut source);
    let c = source.counters(0);
    assert!(c.frames == 4 && c.reopened == 1 && c.errors >= 1, "{c:?}");
    // An interface that is down at the start: the source waits for it.
    assert!(ip("link set vb down"));
    let mut late = opened(Settings { fanout: Some(fanout), ..small() });
    assert!(!late.is_up());
    assert!(ip("link set vb up"));
    assert!(until(&mut late, LinkChange::Back));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    pair();
    let error = |name: &str, s: Settings| AfPacket::open(name, s).expect_err("it cannot be opened").to_string();
    assert!(error("nosuch", small()).contains("no such interface"));
    assert!(matches!(Interface::find("a/b"), Err(LiveError::Name(_))));
    assert!(matches!(Interface::find("averyveryverylongname"), Err(LiveError::Name(_))));
    assert!(error("vb", Settings { block_size: 5000, ..small() }).contains("block-size"));
    assert!(error("vb", Settings { blocks: 0, ..small() }).contains("ring-size"));
    assert!(error("vb", Settings { blocks: u32::MAX, ..small() }).contains("ring-size"));
    assert!(error("vb", Settings { block_timeout: 0, ..small() }).contains("block-timeout"));
    assert!(error("vb", Settings { filter: Some("udp and and".into()), ..small() }).contains("syntax error"));
    let stats = Interface::statistics("vb");
    assert!(stats.iter().any(|(name, _)| name == "peer_ifindex"), "{stats:?}");
    assert!(Interface::statistics("nosuch").is_empty());
    let lo = Interface::find("lo").expect("the loopback");
    assert!(lo.loopback && !Interface::find("vb").expect("b").loopback);
}
