//! A queue of netfilter on the loopback of a network namespace: the packets handed over, and their verdicts.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "common/namespace.rs"]
mod namespace;

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use margay_capture::live::{Decisions, LiveError, LiveSource, Received, Side};
use margay_capture::nfqueue::{Mark, Mode, Nfqueue, Settings};
use namespace::ip;

in_namespace! {
    "mgn";
    packets_fare_as_was_decided: inner_decided,
    what_finds_no_room_is_counted: inner_full,
    two_do_not_share_a_queue: inner_taken,
}

/// IP header and UDP header.
const HEADERS: usize = 28;

fn rule(words: &str) {
    let o =
        Command::new("iptables").args(words.split_whitespace()).output().expect("iptables: tools/setup installs it");
    assert!(o.status.success(), "{words}: {}", String::from_utf8_lossy(&o.stderr));
}

fn prepare(rules: &[&str]) -> (UdpSocket, UdpSocket) {
    assert!(ip("link set lo up"));
    rules.iter().for_each(|r| rule(r));
    let socket = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (a, b) = (socket(), socket());
    b.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    a.connect(b.local_addr().expect("an address")).expect("a socket");
    (a, b)
}

/// Receives `packets` packets, and decides on each.
fn serve(q: &mut Nfqueue, packets: usize, mut decide: impl FnMut(&[u8], &mut Decisions)) -> usize {
    let (mut seen, mut batches) = (0, 0);
    let mut decisions = Decisions::default();
    let end = Instant::now() + Duration::from_secs(30);
    while seen < packets {
        assert!(Instant::now() < end, "{seen} of {packets} came: {:?}", q.counters(0));
        if q.receive(64, Duration::from_millis(50)) != Received::Frames {
            continue;
        }
        decisions.clear();
        for f in q.batch().iter() {
            decide(f.data, &mut decisions);
            seen += 1;
        }
        q.release(&decisions);
        batches += 1;
    }
    batches
}

fn come(socket: &UdpSocket, packets: usize) -> Vec<Vec<u8>> {
    let mut bytes = [0; 4096];
    (0..packets)
        .map(|k| match socket.recv(&mut bytes) {
            Ok(n) => bytes[..n].to_vec(),
            Err(e) => panic!("{k} of {packets} came: {e}"),
        })
        .collect()
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_decided() {
    // Rules accept marked packets, and count them by mark.
    let (a, b) = prepare(&[
        "-A INPUT -p udp -m mark ! --mark 1/1 -j NFQUEUE --queue-num 3",
        "-A INPUT -p udp -m mark --mark 0x11/0xff -j ACCEPT",
        "-A INPUT -p udp -m mark --mark 0x1/0xff -j ACCEPT",
        "-A INPUT -p udp -j DROP",
    ]);
    let repeat = Mark { value: 1, mask: 1 };
    let mut q = Nfqueue::open(Settings { queue: 3, mode: Mode::Repeat, repeat, batch: 16, ..Settings::default() })
        .expect("a queue");
    assert_eq!(q.receive(1, Duration::ZERO), Received::Idle, "not started");
    q.start().expect("the queue");
    for n in 0..100u8 {
        a.send(&[n; 50]).expect("it is sent");
    }
    let batches = serve(&mut q, 100, |data, d| {
        assert_eq!(data.len(), HEADERS + 50);
        match data[HEADERS] {
            n if n % 10 == 3 => d.drop(),
            n if n % 10 == 7 => {
                let mut other = data.to_vec();
                other[HEADERS..].fill(200);
                // No checksum.
                other[26..28].fill(0);
                d.replace(&other);
            }
            n if n >= 90 => {
                d.accept();
                d.mark(0x10, 0xf0);
            }
            _ => d.accept(),
        }
    });
    assert!((100 / 16..60).contains(&batches), "{batches} batches");
    let got = come(&b, 90);
    assert_eq!(got.iter().filter(|p| p[0] == 200).count(), 10);
    assert!(got.iter().all(|p| p[0] % 10 != 3) && got.iter().any(|p| p[0] == 94));
    // An answer goes to its destination, past the queue.
    let mut answer = Vec::new();
    a.send(b"question").expect("it is sent");
    serve(&mut q, 1, |data, d| {
        answer = data.to_vec();
        // Ignore the checksum: the host's own packets do not have it yet.
        answer[26..28].fill(0);
        d.drop();
        d.answer(Side::Source, &answer);
    });
    assert_eq!(come(&b, 1), [b"question"]);
    let c = q.counters(0);
    assert_eq!((c.kernel_packets, c.frames, c.kernel_drops), (101, 101, 0));
    assert_eq!((c.sent, c.dropped, c.answers, c.errors, c.send_errors), (90, 11, 1, 0, 0));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_full() {
    for (fail_open, queue) in [(false, 1), (true, 2)] {
        let (a, b) = prepare(&["-F INPUT", &format!("-A INPUT -p udp -j NFQUEUE --queue-num {queue}")]);
        let settings = Settings { queue, fail_open, length: 5, buffer_size: 1 << 17, ..Settings::default() };
        let mut q = Nfqueue::open(settings).expect("a queue");
        q.start().expect("the queue");
        b.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 600];
        let mut come = || std::iter::from_fn(|| b.recv(&mut bytes).ok()).count();
        let mut got = 0;
        for _ in 0..1000 {
            a.send(&[0; 500]).expect("it is sent");
            // Read accepted packets immediately, because there is not enough room for all.
            got += come();
        }
        // The queue has only the packets that found room.
        q.stop();
        let mut inspected = 0;
        while q.receive(64, q.settle()) == Received::Frames {
            inspected += q.batch().iter().count();
            got += come();
        }
        got += come();
        let c = q.counters(0);
        assert_eq!((c.kernel_packets, c.frames, c.frames + c.kernel_drops), (1000, inspected as u64, 1000), "{c:?}");
        if fail_open {
            assert!((6..900).contains(&inspected), "{inspected}: as many as the socket has room for");
            assert_eq!(got, 1000);
        } else {
            assert_eq!((inspected, got), (5, 5));
        }
        // The queue accepts no more packets.
        a.send(&[1; 5]).expect("it is sent");
        assert_eq!(q.receive(64, q.settle()), Received::Idle);
        assert_eq!(b.recv(&mut bytes).is_ok(), fail_open);
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_taken() {
    assert!(ip("link set lo up"));
    let mut q = Nfqueue::open(Settings::default()).expect("a queue");
    q.start().expect("the queue");
    let mut other = Nfqueue::open(Settings::default()).expect("a socket");
    let e = other.start().expect_err("it is taken");
    assert!(matches!(e, LiveError::QueueTaken { queue: 0, .. }), "{e}");
    drop(q);
    other.start().expect("it is free");
}
