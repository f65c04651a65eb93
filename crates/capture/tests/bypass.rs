//! Bypass in the kernel between two interfaces that are bridged: each packet arrives once, forwarded by the kernel or the engine.
#![allow(clippy::expect_used, reason = "a test fails by it")]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/wire.rs"]
mod wire;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_capture::af_packet::{AfPacket, Agreement, Bridge, BridgeEnd, Distribution, Fanout, Settings};
use margay_capture::bypass::{Bypass, BypassKey, BypassPort, Place};
use margay_capture::ebpf::XdpMode;
use margay_capture::live::{Decisions, LiveSource, Received};
use namespace::ip;
use wire::{PATIENCE, Sender, tagged, udp};

in_namespace! {
    "mgk";
    bypassed_flows_pass_by_unseen: inner_unseen,
    each_packet_arrives_once: inner_once,
    interfaces_go_and_come_back: inner_back,
}

const A: ([u8; 4], u16) = ([10, 0, 0, 1], 1000);
const B: ([u8; 4], u16) = ([10, 0, 1, 1], 53);

/// Creates `va`-`vb` and `vc`-`vd`, with the bypass program at `vb` and `vc`; `None` if the kernel cannot attach it there.
fn bypass() -> Option<Arc<Bypass>> {
    namespace::pair("va", "vb", "mtu 1500");
    namespace::pair("vc", "vd", "mtu 1500");
    let port = |i: &str, to: &str| BypassPort { interface: i.into(), to: Some(to.into()) };
    let bypass = Bypass::new(&[port("vb", "vc"), port("vc", "vb")], Some(XdpMode::Generic)).expect("a program");
    match bypass.instead() {
        None => {
            assert!(bypass.places().iter().all(|p| p.1 == Some(Place::Ingress)));
            Some(Arc::new(bypass))
        }
        Some(e) => {
            assert!(bypass.places().iter().all(|p| p.1 == Some(Place::Stack)) && bypass.filter("vb").is_none());
            margay_testing::not_run(&format!("the kernel bypasses nothing here: {e}"));
            None
        }
    }
}

fn keys(vlans: &[u16]) -> [BypassKey; 2] {
    let of = |a: ([u8; 4], u16), b: ([u8; 4], u16)| {
        BypassKey::new((IpAddr::from(a.0), a.1), (IpAddr::from(b.0), b.1), 17, vlans).expect("a key")
    };
    [of(A, B), of(B, A)]
}

fn numbered(n: u32, back: bool) -> Vec<u8> {
    let (from, to) = if back { (B, A) } else { (A, B) };
    udp(from.0, from.1, to.0, to.1, &[&n.to_be_bytes()[..], &[7; 60]].concat())
}

/// Workers of the bridge, which forward everything that they receive.
struct Workers {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(workers: usize, bypass: &Bypass) -> Workers {
        let distribution = Distribution::Flow;
        let fanout = (workers > 1).then_some(Fanout { id: None, distribution, defrag: false, rollover: false });
        let ends = || {
            ["vb", "vc"].map(|name| BridgeEnd {
                name: name.into(),
                settings: Settings { block_size: 1 << 16, blocks: 64, fanout, ..Settings::default() },
                drops: true,
            })
        };
        let agreement = Agreement::default();
        let mut bridges: Vec<Bridge> =
            (0..workers).map(|_| Bridge::open(ends(), &agreement, workers).expect("a bridge")).collect();
        let (stop, seen, count): (Arc<AtomicBool>, Arc<Mutex<Vec<_>>>, Arc<AtomicU64>) = Default::default();
        for bridge in &mut bridges {
            bridge.leave_out(bypass);
            bridge.start().expect("it starts");
        }
        let run = |mut bridge: Bridge| {
            let (stop, seen, count) = (Arc::clone(&stop), Arc::clone(&seen), Arc::clone(&count));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if bridge.receive(64, Duration::from_millis(5)) == Received::Frames {
                        let frames: Vec<_> = bridge.batch().iter().map(|f| f.data.to_vec()).collect();
                        bridge.release(&Decisions::default());
                        count.fetch_add(frames.len() as u64, Ordering::Relaxed);
                        seen.lock().expect("a list").extend(frames);
                    }
                }
            })
        };
        let threads = bridges.into_iter().map(run).collect();
        Workers { stop, seen, count, threads }
    }

    /// Packets received since the last call.
    fn seen(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.seen.lock().expect("a list"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}

fn listener(name: &str) -> AfPacket {
    let mut l = AfPacket::open(name, Settings { block_timeout: 1, ..Settings::default() }).expect("the interface");
    l.start().expect("it starts");
    l
}

/// Arriving packets, until there are as many as expected and no more come for a moment.
fn arrive(l: &mut AfPacket, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    loop {
        match l.receive(64, Duration::from_millis(100)) {
            Received::Frames => all.extend(l.batch().iter().map(|f| f.data.to_vec())),
            _ if all.len() >= count || Instant::now() > end => return all,
            _ => {}
        }
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_unseen() {
    let Some(bypass) = bypass() else { return };
    let workers = Workers::start(1, &bypass);
    let (mut there, mut here) = (listener("vd"), listener("va"));
    let (mut a, mut b) = (Sender::on("va"), Sender::on("vd"));
    let tags: [&[[u8; 4]]; 3] = [&[], &[[0x81, 0, 0x60, 100]], &[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 9]]];
    for (tags, vlans) in tags.iter().zip([&[][..], &[100], &[7, 9]]) {
        bypass.enter(&keys(vlans)).expect("room");
        let make = |back: bool| -> Vec<Vec<u8>> { (0..200).map(|n| tagged(&numbered(n, back), tags)).collect() };
        let (to, from) = (make(false), make(true));
        to.iter().for_each(|f| a.send(f));
        from.iter().for_each(|f| b.send(f));
        // Frames arrive unchanged, including tags. A listener also sees frames that its own interface sends.
        let got = arrive(&mut there, to.len() + from.len());
        assert_eq!(got.iter().filter(|f| to.contains(f)).count(), to.len(), "{vlans:?}");
        assert_eq!(got.len(), to.len() + from.len());
        let got = arrive(&mut here, to.len() + from.len());
        assert_eq!(got.iter().filter(|f| from.contains(f)).count(), from.len(), "{vlans:?}");
        assert_eq!(workers.seen(), Vec::<Vec<u8>>::new());
        // The engine receives and forwards these: the flow in another VLAN, a fragment, a frame to the interface itself.
        let mut others = [tagged(&numbered(1, false), &[[0x81, 0, 0, 50]]), to[1].clone(), to[2].clone()];
        others[1][tags.len() * 4 + 20] = 0x20;
        let own = std::fs::read_to_string("/sys/class/net/vb/address").expect("an address");
        let own: Vec<u8> = own.trim().split(':').map(|h| u8::from_str_radix(h, 16).expect("a byte")).collect();
        others[2][..6].copy_from_slice(&own);
        others.iter().for_each(|f| a.send(f));
        assert_eq!(arrive(&mut there, others.len()), others);
        assert_eq!(workers.seen(), others);
        arrive(&mut here, others.len());
        for count in bypass.take(&keys(vlans)) {
            assert_eq!((count.packets, count.bytes), (200, 200 * to[0].len() as u64), "{vlans:?}");
        }
        // The flow is no longer bypassed.
        a.send(&to[0]);
        assert_eq!(arrive(&mut there, 1), to[..1]);
        assert_eq!(workers.seen(), to[..1]);
        arrive(&mut here, 1);
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_once() {
    let Some(bypass) = bypass() else { return };
    for count in [1, 3] {
        let workers = Workers::start(count, &bypass);
        let mut there = listener("vd");
        let (done, b) = (Arc::new(AtomicBool::new(false)), Arc::clone(&bypass));
        let d = Arc::clone(&done);
        // Add and remove the flow as fast as possible.
        let toggle = std::thread::spawn(move || {
            let (mut turns, mut passed) = (0, 0);
            while !d.load(Ordering::Relaxed) {
                b.enter(&keys(&[])).expect("room");
                // On a busy machine, the sender runs only while this thread yields: it yields in both states.
                if turns % 2 == 0 {
                    std::thread::yield_now();
                }
                passed += b.take(&keys(&[]))[0].packets;
                if turns % 2 == 1 {
                    std::thread::yield_now();
                }
                turns += 1;
            }
            (turns, passed)
        });
        let mut a = Sender::on("va");
        const PART: u32 = 500;
        const ALL: u32 = 100 * PART;
        let mut times = vec![0u32; ALL as usize];
        for part in 0..ALL / PART {
            (part * PART..(part + 1) * PART).for_each(|n| a.send(&numbered(n, false)));
            let mut got = 0;
            let end = Instant::now() + PATIENCE;
            while got < PART && Instant::now() < end {
                if there.receive(64, Duration::from_millis(20)) == Received::Frames {
                    for f in there.batch().iter() {
                        times[u32::from_be_bytes(f.data[42..46].try_into().expect("a number")) as usize] += 1;
                        got += 1;
                    }
                }
            }
        }
        for f in arrive(&mut there, 0) {
            times[u32::from_be_bytes(f[42..46].try_into().expect("a number")) as usize] += 1;
        }
        done.store(true, Ordering::Relaxed);
        let (turns, passed) = toggle.join().expect("a thread");
        let seen = workers.count.load(Ordering::Relaxed);
        let (lost, twice) = (times.iter().filter(|t| **t == 0).count(), times.iter().filter(|t| **t > 1).count());
        assert_eq!((lost, twice), (0, 0), "{turns} turns, {passed} passed by, {seen} seen");
        // Packets took both paths. How often the thread had its turn depends on what else the machine does.
        assert!(turns > 10 && passed > 100 && seen > 100, "{turns} turns, {passed} passed by, {seen} seen");
        assert!(passed + seen <= u64::from(ALL), "{turns} turns, {passed} passed by, {seen} seen");
        eprintln!("{count} workers: {turns} turns, {passed} counted, {seen} seen by the engine of {ALL}");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_back() {
    let Some(bypass) = bypass() else { return };
    let workers = Workers::start(2, &bypass);
    bypass.enter(&keys(&[])).expect("room");
    assert!(ip("link del vb"));
    namespace::pair("va", "vb", "mtu 1500");
    let (mut a, mut there) = (Sender::on("va"), listener("vd"));
    // The workers find the new interface. Until the program is attached to it, only they forward packets.
    let end = Instant::now() + PATIENCE;
    while workers.count.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "the interface is found again");
        a.send(&numbered(0, false));
        std::thread::sleep(Duration::from_millis(20));
    }
    arrive(&mut there, 1);
    workers.seen();
    let sent: Vec<_> = (1..100).map(|n| numbered(n, false)).collect();
    let pass = |a: &mut Sender, there: &mut AfPacket| {
        sent.iter().for_each(|f| a.send(f));
        assert_eq!(arrive(there, sent.len()), sent);
        workers.seen().len()
    };
    assert_eq!(pass(&mut a, &mut there), sent.len());
    // Both ends are repaired: one is new, and the other forwards to it.
    assert_eq!(bypass.repair().expect("it comes back"), ["vb", "vc"]);
    assert_eq!(bypass.repair().expect("it is there"), [""; 0]);
    assert_eq!(pass(&mut a, &mut there), 0);
    drop(bypass);
    assert_eq!(pass(&mut a, &mut there), sent.len(), "the program is gone with it");
}
