//! NFQUEUE: netfilter queues packets, the engine returns verdicts. Each test has a network namespace of its own, with
//! real connections over its loopback.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use namespace::ip;
use wire::{Engine, events, folder, is_refused, last_stats, wait};

in_namespace! {
    "mgq";
    what_is_benign_arrives_unchanged: inner_benign,
    what_is_too_long_is_cut_and_sent_again: inner_long,
    attacks_do_not_arrive: inner_attack,
    modes_and_marks: inner_modes,
    a_full_queue_drops: inner_full,
    a_full_queue_that_fails_open_lets_pass: inner_fail_open,
    the_engine_goes_and_comes_back: inner_restart,
    what_cannot_be_is_said: inner_errors,
}

const RULES: &str = "drop tcp any any -> any any (msg:\"evil\"; content:\"EVIL-ATTACK\"; sid:1;)\n\
    alert udp any any -> any any (msg:\"hello\"; content:\"hello\"; sid:2;)\n\
    drop udp any any -> any any (msg:\"evil\"; content:\"EVIL-ATTACK\"; sid:3;)\n\
    alert tcp any any -> any any (msg:\"marked\"; content:\"MARK-ME\"; nfq_set_mark:0x40/0xc0; sid:4;)\n\
    pass tcp any any -> any any (msg:\"enough\"; content:\"LOOK-NO-MORE\"; bypass; sid:5;)\n\
    alert tcp-pkt any any -> any any (msg:\"other\"; content:\"colour-a\"; replace:\"colour-b\"; sid:6;)\n\
    reject udp any any -> any any (msg:\"told\"; content:\"REJECT-ME\"; sid:7;)\n\
    alert udp any any -> any any (msg:\"other\"; content:\"colour-a\"; replace:\"colour-b\"; sid:8;)\n";

/// Sets up the namespace's loopback, and a folder with rules.
fn prepare(name: &str) -> std::path::PathBuf {
    assert!(ip("link set lo up"));
    let dir = folder(name);
    std::fs::write(dir.join("a.rules"), RULES).expect("rules");
    dir
}

/// Adds a rule to netfilter's tables.
fn rule(words: &str) {
    let six = words.contains("::");
    let o = Command::new(if six { "ip6tables" } else { "iptables" }).args(words.split_whitespace()).output();
    let o = o.expect("iptables: tools/setup installs it");
    assert!(o.status.success(), "{words}: {}", String::from_utf8_lossy(&o.stderr));
}

/// The packet count of those rules in a netfilter chain that contain these words.
fn seen(table: &str, chain: &str, words: &str) -> u64 {
    let o = Command::new("iptables").args(["-t", table, "-L", chain, "-v", "-x", "-n"]).output().expect("iptables");
    let text = String::from_utf8_lossy(&o.stdout);
    let rows = text.lines().filter(|l| l.contains(words));
    rows.filter_map(|l| l.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Gives a socket a receive buffer for thousands of packets, so that none is lost while its reader waits for a processor.
#[allow(unsafe_code)]
fn give_room(socket: &UdpSocket) {
    let bytes: libc::c_int = 16 << 20;
    // SAFETY: the descriptor is open, and pointer and length describe a live integer, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Bytes that do not repeat soon.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend(x.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A server that echoes all data on each connection.
fn server(at: &str) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(at).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut bytes = [0; 1 << 16];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, thread)
}

fn connect(to: SocketAddr) -> TcpStream {
    let s = TcpStream::connect(to).expect("it connects");
    s.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    s
}

/// Sends `bytes` and reads as many back.
fn echo(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    std::thread::scope(|s| {
        let mut writing = stream;
        s.spawn(move || writing.write_all(bytes).expect("it goes"));
        let mut reading = stream;
        reading.read_exact(&mut out).expect("it comes back");
    });
    out
}

/// Sends `words`, and checks whether they do not come back.
fn stopped(stream: &mut TcpStream, words: &[u8]) -> bool {
    stream.write_all(words).expect("it is sent");
    stream.set_read_timeout(Some(Duration::from_millis(700))).expect("a socket");
    let mut bytes = [0; 100];
    match stream.read(&mut bytes) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionReset),
    }
}

fn count(dir: &Path, a: &str, b: &str) -> u64 {
    last_stats(dir)[a][b].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_benign() {
    let dir = prepare("nfq-benign");
    for p in ["tcp", "udp"] {
        rule(&format!("-A INPUT -p {p} -j NFQUEUE --queue-balance 0:1"));
        rule(&format!("-A INPUT -s ::1 -p {p} -j NFQUEUE --queue-num 2"));
    }
    // This host's packets have no checksums yet; the engine must not treat them as wrong.
    let e = Engine::start(&dir, &["-q", "0:1", "-q", "2", "-k", "all"]);
    let sent = noise(8 << 20);
    assert!(ip("link set lo mtu 60000"));
    for at in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
        let (address, _server) = server(at);
        assert!(echo(&connect(address), &sent) == sent, "{at}: it is unchanged");
    }
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    b.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let to = b.local_addr().expect("an address");
    for n in 0..200u32 {
        let words = format!("hello {n}");
        a.send_to(words.as_bytes(), to).expect("it is sent");
        let mut bytes = [0; 100];
        let got = b.recv(&mut bytes).expect("it comes");
        assert_eq!(&bytes[..got], words.as_bytes());
    }
    assert_eq!(e.ask(&["capture-mode"]), "NFQ");
    e.explained();
    assert_eq!(count(&dir, "capture", "kernel_drops"), 0);
    assert_eq!(last_stats(&dir)["capture"]["nfq"]["truncated"], 0);
    assert_eq!(count(&dir, "tcp", "invalid_checksum"), 0);
    assert_eq!(count(&dir, "ips", "accepted"), count(&dir, "decoder", "pkts"));
    assert_eq!(count(&dir, "capture", "kernel_packets"), count(&dir, "decoder", "pkts"));
    let alerts = events(&dir).iter().filter(|e| e["alert"]["signature_id"] == 2).count();
    assert_eq!(alerts, 200);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_long() {
    // Packets longer than the kernel's copy limit: nothing passes uninspected, and everything arrives.
    let dir = prepare("nfq-long");
    rule("-A INPUT -p tcp -j NFQUEUE --queue-num 0");
    rule("-A INPUT -p udp -j NFQUEUE --queue-num 0");
    let e = Engine::start(&dir, &["-q", "0"]);
    let (address, _server) = server("127.0.0.1:0");
    let mut sent = noise(4 << 20);
    assert!(echo(&connect(address), &sent) == sent);
    // End at the boundary of a segment of maximum size.
    sent.truncate(65_483);
    sent[65_474..].copy_from_slice(b"EVIL-ATTA");
    let mut bad = connect(address);
    bad.write_all(&sent).and_then(|()| bad.write_all(b"CK")).expect("it is sent");
    bad.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
    let mut all = Vec::new();
    let _ = bad.read_to_end(&mut all);
    assert!(all.len() < sent.len() + 2, "the attack is stopped, wherever it is");
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let to = b.local_addr().expect("an address");
    let mut long = noise(65_507);
    a.send_to(&long, to).expect("it is sent");
    b.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let mut bytes = vec![0; 1 << 16];
    let got = b.recv(&mut bytes).expect("it comes");
    assert!(bytes[..got] == long);
    long[65_000..65_011].copy_from_slice(b"EVIL-ATTACK");
    a.send_to(&long, to).expect("it is sent");
    b.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    assert!(b.recv(&mut bytes).is_err(), "it does not come");
    e.explained();
    assert!(last_stats(&dir)["capture"]["nfq"]["truncated"].as_u64().expect("a count") > 2);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_attack() {
    let dir = prepare("nfq-attack");
    for to in ["127.0.0.0/8", "::1"] {
        rule(&format!("-A INPUT -d {to} -p tcp -j NFQUEUE --queue-num 7"));
        rule(&format!("-A INPUT -d {to} -p udp -j NFQUEUE --queue-num 7"));
    }
    let e = Engine::start(&dir, &["-q", "7", "--set", "nfq.batchcount=20"]);
    for own in ["127.0.0.1:0", "[::1]:0"] {
        attacks_to(own);
    }
    e.explained();
    let events = events(&dir);
    let of = |kind: &str, sid: u64| {
        events.iter().filter(|e| e["event_type"] == kind && e["alert"]["signature_id"] == sid).count()
    };
    assert_eq!((of("alert", 1), of("alert", 3), of("alert", 7)), (10, 4, 2));
    assert!(count(&dir, "ips", "blocked") >= 14);
    assert!(count(&dir, "ips", "replaced") >= 4);
    assert_eq!(count(&dir, "ips", "rejected"), 2);
}

fn attacks_to(own: &str) {
    let (address, _server) = server(own);
    for _ in 0..5 {
        let mut bad = connect(address);
        assert_eq!(echo(&bad, b"good morning"), b"good morning");
        assert!(stopped(&mut bad, b"GET /EVIL-ATTACK HTTP/1.1\r\n\r\n"));
        let good = connect(address);
        assert_eq!(echo(&good, b"good evening"), b"good evening");
    }
    let (a, b) = (UdpSocket::bind(own).expect("a socket"), UdpSocket::bind(own).expect("a socket"));
    let to = b.local_addr().expect("an address");
    for words in ["one", "an EVIL-ATTACK", "another EVIL-ATTACK"] {
        a.send_to(words.as_bytes(), to).expect("it is sent");
    }
    b.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let mut bytes = [0; 100];
    assert_eq!(b.recv(&mut bytes).expect("the first comes"), 3);
    b.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    assert!(b.recv(&mut bytes).is_err(), "the others do not");
    let changed = connect(address);
    assert_eq!(echo(&changed, b"it is colour-a"), b"it is colour-b");
    let c = UdpSocket::bind(own).expect("a socket");
    c.connect(to).expect("an address");
    c.send(b"it is colour-a").expect("it is sent");
    b.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let got = b.recv(&mut bytes).expect("it comes");
    assert_eq!(&bytes[..got], b"it is colour-b");
    // The sender's own system reports the error to it.
    c.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    c.send(b"REJECT-ME").expect("it is sent");
    let told = c.recv(&mut bytes).expect_err("an error").kind();
    assert!(!matches!(told, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{told:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_modes() {
    // The packet starts again at the beginning of the chain, with a mark.
    let dir = prepare("nfq-repeat");
    rule("-A INPUT -p tcp -m mark ! --mark 0x1/0x1 -j NFQUEUE --queue-num 0");
    rule("-A INPUT -p tcp -m mark --mark 0x1/0x1 -j ACCEPT");
    let (address, _server) = server("127.0.0.1:0");
    let repeat = ["-q", "0", "--set", "nfq.mode=repeat", "--set", "nfq.repeat-mark=1", "--set", "nfq.repeat-mask=1"];
    let e = Engine::start(&dir, &repeat);
    let sent = noise(1 << 20);
    assert!(echo(&connect(address), &sent) == sent);
    assert!(stopped(&mut connect(address), b"EVIL-ATTACK"));
    e.explained();
    let passed = count(&dir, "ips", "accepted");
    assert!(passed > 0 && seen("filter", "INPUT", "ACCEPT") == passed, "each came back once, with its mark");
    rule("-F INPUT");
    // The packet goes to another queue, where another engine runs.
    let (first, second) = (prepare("nfq-route"), prepare("nfq-routed"));
    rule("-A INPUT -p tcp -j NFQUEUE --queue-num 0");
    let e = Engine::start(&first, &["-q", "0", "--set", "nfq.mode=route", "--set", "nfq.route-queue=5"]);
    let other = Engine::start(&second, &["-q", "5"]);
    assert!(echo(&connect(address), &sent) == sent);
    e.explained();
    other.explained();
    let packets = count(&first, "ips", "accepted");
    assert!(packets > 0 && packets == count(&second, "decoder", "pkts"));
    rule("-F INPUT");
    // Marks: set by a rule, and for a flow that needs no more inspection.
    let dir = prepare("nfq-marks");
    rule("-t mangle -A INPUT -p tcp -j NFQUEUE --queue-num 0");
    rule("-A INPUT -p tcp -m mark --mark 0x40/0xc0 -j ACCEPT");
    rule("-A INPUT -p tcp -m mark --mark 0x2/0x2 -j ACCEPT");
    let e = Engine::start(&dir, &["-q", "0", "--set", "nfq.bypass-mark=2", "--set", "nfq.bypass-mask=2"]);
    let stream = connect(address);
    for words in [&b"one"[..], b"MARK-ME", b"two"] {
        assert_eq!(echo(&stream, words), words);
    }
    let marked = seen("filter", "INPUT", "0x40/0xc0");
    assert!(marked >= 2, "{marked}: what matched, and its echo");
    assert_eq!(seen("filter", "INPUT", "0x2/0x2"), 0);
    for words in [&b"LOOK-NO-MORE"[..], b"EVIL-ATTACK", b"three"] {
        assert_eq!(echo(&stream, words), words);
    }
    assert!(seen("filter", "INPUT", "0x2/0x2") >= 4);
    e.explained();
}

/// Sends datagrams while the engine is stopped, until `arrive` have come. Returns how many had come before it continued.
fn flood(e: &Engine, packets: usize, arrive: usize) -> usize {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    give_room(&b);
    let to = b.local_addr().expect("an address");
    let come = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&come);
    std::thread::spawn(move || {
        let mut bytes = [0; 100];
        while b.recv(&mut bytes).is_ok() {
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    let come = || come.load(Ordering::Relaxed);
    e.stand_still();
    for _ in 0..packets {
        a.send_to(b"hello", to).expect("it is sent");
    }
    let before = come();
    e.signal("CONT");
    e.decoded(packets as u64);
    wait("all come", || come() >= arrive);
    assert_eq!(come(), arrive);
    before
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_full() {
    let dir = prepare("nfq-full");
    rule("-A INPUT -p udp -j NFQUEUE --queue-num 0");
    let e = Engine::start(&dir, &["-q", "0", "--set", "nfq.queue-length=10"]);
    assert_eq!(flood(&e, 300, 10), 0);
    e.explained();
    assert_eq!(count(&dir, "capture", "kernel_packets"), 300);
    assert_eq!(count(&dir, "capture", "kernel_drops"), 290);
    assert_eq!(count(&dir, "decoder", "pkts"), 10);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_fail_open() {
    let dir = prepare("nfq-fail-open");
    rule("-A INPUT -p udp -j NFQUEUE --queue-num 0");
    let e = Engine::start(&dir, &["-q", "0", "--set", "nfq.fail-open=yes", "--set", "nfq.buffer-size=128kb"]);
    let before = flood(&e, 3000, 3000) as u64;
    assert!(before > 1000, "{before} passed while nobody looked");
    e.explained();
    assert_eq!(count(&dir, "capture", "kernel_packets"), 3000);
    assert!(count(&dir, "capture", "kernel_drops") >= before);
    assert_eq!(count(&dir, "decoder", "pkts") + count(&dir, "capture", "kernel_drops"), 3000);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_restart() {
    let dir = prepare("nfq-restart");
    // The open connection survives: without an engine, its packets pass or are sent again.
    for bypass in ["", "--queue-bypass"] {
        rule(&format!("-A INPUT -p tcp -j NFQUEUE --queue-num 0 {bypass}"));
        let (address, _server) = server("127.0.0.1:0");
        let mut e = Engine::start(&dir, &["-q", "0", "--set", "stream.midstream=yes"]);
        let stream = connect(address);
        let sent = noise(1 << 16);
        assert!(echo(&stream, &sent) == sent);
        e.signal("KILL");
        e.child.wait().expect("it ends");
        drop(e);
        let e = std::thread::scope(|s| {
            let going = s.spawn(|| echo(&stream, &sent) == sent);
            if bypass.is_empty() {
                std::thread::sleep(Duration::from_millis(300));
                assert!(!going.is_finished(), "nothing passes");
            } else {
                assert!(going.join().expect("it comes back"), "it passes");
                let e = Engine::start(&dir, &["-q", "0", "--set", "stream.midstream=yes"]);
                assert!(echo(&stream, &sent) == sent);
                return e;
            }
            let e = Engine::start(&dir, &["-q", "0", "--set", "stream.midstream=yes"]);
            assert!(going.join().expect("it comes back"), "what was lost is sent again");
            e
        });
        // The engine ends cleanly while traffic continues.
        e.explained();
        rule("-F INPUT");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    let dir = prepare("nfq-errors");
    let e = Engine::start(&dir, &["-q", "0"]);
    for (more, words) in [
        (&["-q", "0"][..], "another program has it"),
        (&["-q", "1", "-q", "1"], "twice"),
        (&["-q", "1:2", "--runmode", "single"], "single"),
        (&["-q", "1", "--set", "nfq.mode=repeat"], "repeat-mark"),
        (&["-q", "1", "tcp"], "filter"),
    ] {
        is_refused(&dir, &[more, &["--set", "unix-command.enabled=no"]].concat(), words);
    }
    e.explained();
}
