//! Two bridged interfaces: packets leave as they came in, except dropped, replaced and answered ones.
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use margay_capture::af_packet::{AfPacket, Agreement, Bridge, BridgeEnd, Distribution, Fanout, Settings};
use margay_capture::live::{Decisions, LinkChange, LiveSource, Received, Side};
use namespace::ip;
use wire::{Sender, udp, until};

in_namespace! {
    "mgb";
    frames_go_on_as_decided: inner_decided,
    workers_have_the_same_place_on_both_sides: inner_workers,
    what_cannot_be_sent_is_counted: inner_down,
    large_packets_outlast_an_interface_that_goes_down: inner_large,
    an_interface_that_is_down_costs_nothing: inner_calm,
}

/// Creates the pairs `va`-`vb` and `vc`-`vd`. Tests bridge `vb` and `vc`.
fn pairs() {
    namespace::pair("va", "vb", "mtu 1500");
    namespace::pair("vc", "vd", "mtu 1500");
}

fn ends(fanout: Option<Fanout>) -> [BridgeEnd; 2] {
    ["vb", "vc"].map(|name| BridgeEnd {
        name: name.into(),
        settings: Settings { block_size: 1 << 16, blocks: 64, fanout, ..Settings::default() },
        drops: true,
    })
}

fn frame(n: u16, len: usize) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match n % 4 {
        1 => f.extend_from_slice(&[0x81, 0, 0, 100]),
        2 => f.extend_from_slice(&[0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9]),
        _ => {}
    }
    // An EtherType for experiments.
    f.extend_from_slice(&[0x88, 0xb5]);
    f.extend_from_slice(&n.to_be_bytes());
    f.resize(f.len() + len, n as u8);
    f
}

fn listener(name: &str) -> AfPacket {
    let mut l = AfPacket::open(name, Settings { block_timeout: 1, ..Settings::default() }).expect("the interface");
    l.start().expect("it starts");
    l
}

/// Arriving packets, up to a number, or until none comes.
fn arrive(l: &mut AfPacket, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(30);
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < end {
        if l.receive(64, Duration::from_millis(50)) == Received::Frames {
            all.extend(l.batch().iter().map(|f| f.data.to_vec()));
        }
    }
    all
}

/// Receives `count` frames, and decides on each.
fn work(bridge: &mut Bridge, count: usize, decide: impl Fn(&[u8], &mut Decisions)) {
    let end = Instant::now() + Duration::from_secs(30);
    let (mut seen, mut decisions) = (0, Decisions::default());
    while seen < count && Instant::now() < end {
        if bridge.receive(13, Duration::from_millis(50)) == Received::Frames {
            decisions.clear();
            for f in bridge.batch().iter() {
                decide(f.data, &mut decisions);
                seen += 1;
            }
            bridge.release(&decisions);
        }
    }
    assert_eq!(seen, count);
}

fn number(f: &[u8]) -> u16 {
    let at = f.windows(2).position(|w| w == [0x88, 0xb5]).expect("ours");
    u16::from_be_bytes([f[at + 2], f[at + 3]])
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_decided() {
    pairs();
    let mut bridge = Bridge::open(ends(None), &Agreement::default(), 1).expect("a bridge");
    let (mut there, mut here) = (listener("vd"), listener("va"));
    let mut sender = Sender::on("va");
    // Before the start, nothing is accepted.
    sender.send(&frame(9999, 20));
    assert_eq!(bridge.receive(8, Duration::from_millis(100)), Received::Idle);
    bridge.start().expect("it starts");
    let sent: Vec<Vec<u8>> = (0..2000u16).map(|n| frame(n, usize::from(n % 1450) + 20)).collect();
    let mut got = Vec::new();
    for part in sent.chunks(200) {
        part.iter().for_each(|f| sender.send(f));
        work(&mut bridge, part.len(), |f, decisions| match number(f) % 10 {
            3 => decisions.drop(),
            4 => decisions.replace(&[&f[..f.len() - 1], b"!"].concat()),
            _ => decisions.accept(),
        });
        got.extend(arrive(&mut there, part.len() - part.len() / 10));
    }
    let want: Vec<Vec<u8>> = sent
        .iter()
        .filter(|f| number(f) % 10 != 3)
        .map(|f| if number(f) % 10 == 4 { [&f[..f.len() - 1], b"!"].concat() } else { f.clone() })
        .collect();
    assert_eq!(got.len(), want.len());
    assert!(got == want, "as they were, in their order");
    // The other way, with answers to both.
    let mut back = Sender::on("vd");
    let asked = frame(5, 100);
    back.send(&asked);
    work(&mut bridge, 1, |_, decisions| {
        decisions.drop();
        decisions.answer(Side::Source, &frame(7001, 30));
        decisions.answer(Side::Destination, &frame(7002, 30));
    });
    let (mut to_source, mut to_destination) = (false, false);
    let end = Instant::now() + Duration::from_secs(30);
    while !(to_source && to_destination) && Instant::now() < end {
        for (l, n, seen) in [(&mut there, 7001, &mut to_source), (&mut here, 7002, &mut to_destination)] {
            if l.receive(64, Duration::from_millis(50)) == Received::Frames {
                *seen |= l.batch().iter().any(|f| f.data == frame(n, 30));
            }
        }
    }
    assert!(to_source && to_destination);
    // No forwarded frame was received again, and all frames are accounted for.
    assert_eq!(bridge.receive(8, Duration::from_millis(100)), Received::Idle);
    let [a, b] = [0, 1].map(|end| bridge.counters(end));
    assert_eq!((a.frames, a.sent, a.dropped, a.send_errors), (2000, 1800, 200, 0));
    assert_eq!((b.frames, b.sent, b.dropped, b.answers), (1, 0, 1, 1));
    assert_eq!((a.answers, a.kernel_packets, b.kernel_packets), (1, 2000, 1));
    bridge.stop();
    sender.send(&frame(1, 20));
    assert_eq!(bridge.receive(8, Duration::from_millis(100)), Received::Idle);
}

/// A UDP datagram of a flow.
fn datagram(flow: u8, back: bool) -> Vec<u8> {
    let (a, b) = (([10, 0, 0, flow], 0x3000 + u16::from(flow)), ([10, 0, 1, 1], 53));
    let (from, to) = if back { (b, a) } else { (a, b) };
    udp(from.0, from.1, to.0, to.1, &[1, 2, 3, 4])
}

/// The worker of each flow, by direction.
fn shares(bridges: &mut [Bridge], a: &mut Sender, b: &mut Sender) -> [Vec<Option<usize>>; 2] {
    const FLOWS: u8 = 60;
    for flow in 0..FLOWS {
        a.send(&datagram(flow, false));
        b.send(&datagram(flow, true));
    }
    let mut whose = [vec![None; usize::from(FLOWS)], vec![None; usize::from(FLOWS)]];
    let end = Instant::now() + Duration::from_secs(30);
    while whose.iter().flatten().any(Option::is_none) && Instant::now() < end {
        for (n, bridge) in bridges.iter_mut().enumerate() {
            if bridge.receive(64, Duration::from_millis(5)) == Received::Frames {
                let end = bridge.end();
                for f in bridge.batch().iter().filter(|f| f.data.get(12..14) == Some(&[8, 0])) {
                    let flow = if end == 0 { f.data[29] } else { f.data[33] };
                    whose[end][usize::from(flow)] = Some(n);
                }
            }
            bridge.release(&Decisions::default());
        }
    }
    whose
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_workers() {
    pairs();
    let fanout = Fanout { id: None, distribution: Distribution::Flow, defrag: false, rollover: false };
    let agreement = Agreement::default();
    let mut bridges: Vec<Bridge> =
        (0..3).map(|_| Bridge::open(ends(Some(fanout)), &agreement, 3).expect("a bridge")).collect();
    bridges.iter_mut().for_each(|b| b.start().expect("it starts"));
    let (mut a, mut b) = (Sender::on("va"), Sender::on("vd"));
    let [there, back] = shares(&mut bridges, &mut a, &mut b);
    assert_eq!(there, back);
    assert!((0..3).all(|n| there.contains(&Some(n))), "{there:?}");
    // Workers join a recreated interface in the same order, whichever is first.
    assert!(ip("link del vc"));
    assert!(bridges.iter_mut().rev().all(|b| until(b, LinkChange::Gone)));
    namespace::pair("vc", "vd", "mtu 1500");
    let end = Instant::now() + Duration::from_secs(60);
    let mut back = [false; 3];
    while back.contains(&false) && Instant::now() < end {
        for (bridge, back) in bridges.iter_mut().zip(&mut back).rev() {
            *back |= bridge.receive(8, Duration::from_millis(10)) == Received::Link(LinkChange::Back);
        }
    }
    assert_eq!(back, [true; 3]);
    // Until all workers accept packets.
    for _ in 0..100 {
        for bridge in &mut bridges {
            bridge.receive(8, Duration::from_millis(5));
        }
    }
    let mut b = Sender::on("vd");
    let [there, back] = shares(&mut bridges, &mut a, &mut b);
    assert_eq!(there, back);
    assert!(there.iter().all(Option::is_some), "{there:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_down() {
    pairs();
    let mut bridge = Bridge::open(ends(None), &Agreement::default(), 1).expect("a bridge");
    bridge.start().expect("it starts");
    assert!(ip("link set vc down"));
    let mut sender = Sender::on("va");
    for n in 0..100 {
        sender.send(&frame(n, 100));
    }
    work(&mut bridge, 100, |_, d| d.accept());
    let c = bridge.counters(0);
    assert_eq!((c.frames, c.sent + c.send_errors), (100, 100));
    assert!(c.send_errors > 90, "{c:?}");
    assert!(ip("link set vc up"));
    let mut there = listener("vd");
    sender.send(&frame(7, 100));
    work(&mut bridge, 1, |_, d| d.accept());
    assert_eq!(arrive(&mut there, 1), [frame(7, 100)]);
}

/// Packets that are too large for their slot wait in the socket's own queue. When the interface goes down, the kernel reports that
/// once, ahead of the queue. The report is not a packet, and each packet still belongs to its slot.
#[test]
#[ignore = "runs in a namespace"]
fn inner_large() {
    pairs();
    let mut bridge = Bridge::open(ends(None), &Agreement::default(), 1).expect("a bridge");
    bridge.start().expect("it starts");
    for i in ["va", "vb", "vc", "vd"] {
        // Larger than the MTU for which the slots were created.
        assert!(ip(&format!("link set {i} mtu 9000")));
    }
    let mut there = listener("vd");
    let mut sender = Sender::on("va");
    let mut sent = Vec::new();
    for n in 0..6 {
        // Some frames fit into a slot, most do not.
        let part: Vec<Vec<u8>> = (0..20).map(|m| frame(n * 20 + m, usize::from(m % 5) * 1000 + 1000)).collect();
        // An interface that goes down loses packets that the kernel has not yet passed to the sockets. So wait until another
        // socket has all of them.
        let mut beside = listener("vb");
        part.iter().for_each(|f| sender.send(f));
        assert_eq!(arrive(&mut beside, part.len()).len(), part.len());
        assert!(ip("link set vb down") && ip("link set vb up"));
        sent.extend(part);
        if n % 2 == 1 {
            work(&mut bridge, 40, |_, d| d.accept());
        }
    }
    let got = arrive(&mut there, sent.len());
    assert_eq!(got.len(), sent.len());
    assert!(got == sent, "as they were, in their order");
    let c = bridge.counters(0);
    assert_eq!((c.kernel_packets, c.frames, c.sent, c.truncated, c.unreadable), (120, 120, 120, 0, 0), "{c:?}");
    assert!(c.errors > 0, "{c:?}");
    quiet(&mut bridge);
}

/// Nothing arrives for a while, and the bridge does not poll more often than necessary.
fn quiet(bridge: &mut Bridge) {
    let polls = |b: &mut Bridge| b.counters(0).polls + b.counters(1).polls;
    let (before, began) = (polls(bridge), Instant::now());
    while began.elapsed() < Duration::from_millis(700) {
        let got = bridge.receive(64, Duration::from_millis(50));
        assert_ne!(got, Received::Frames);
    }
    // One poll covers both interfaces, at most every 5 ms.
    let most = 2 * (began.elapsed().as_millis() / 5) as u64 + 50;
    let made = polls(bridge) - before;
    assert!(made <= most, "{made} polls in {:?}", began.elapsed());
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_calm() {
    pairs();
    let mut bridge = Bridge::open(ends(None), &Agreement::default(), 1).expect("a bridge");
    bridge.start().expect("it starts");
    let mut sender = Sender::on("va");
    // `vd` is not an end but the peer of one: the interface exists, but its link is down.
    for down in ["vb", "vc", "vd"] {
        (0..10).for_each(|n| sender.send(&frame(n, 100)));
        assert!(ip(&format!("link set {down} down")));
        work(&mut bridge, 10, |_, d| d.accept());
        quiet(&mut bridge);
        assert!(ip(&format!("link set {down} up")));
        quiet(&mut bridge);
    }
    let mut there = listener("vd");
    sender.send(&frame(7, 100));
    work(&mut bridge, 1, |_, d| d.accept());
    assert_eq!(arrive(&mut there, 1), [frame(7, 100)]);
}
