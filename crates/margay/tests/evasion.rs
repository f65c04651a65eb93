//! Attacks that try not to be seen, inline, over both versions of IP: what the engine says no to does not arrive at a real host
//! behind it, whatever packets it comes in; what is benign does. The packets are made here, byte by byte; who receives them is the
//! kernel, behind a router, so that what has few hops left passes the engine and does not arrive.

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod bench;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::raw::{
    ACK, Connection, DESTINATION, FIN, HOP_BY_HOP, MAC, PSH, RST, Raw, SEGMENT, SYN, Segment, Tap, UDP, URG, data,
    packet_of,
};
use bench::{Bench, Engine, Ns, addressed, at, folder, ip, last_stats, of_type, pair, sysctl, wait_for};

in_namespace! {
    "mge";
    segments_between_interfaces: inner_segments_bridged,
    segments_in_a_queue: inner_segments_queued,
    fragments_between_interfaces: inner_fragments_bridged,
    fragments_in_a_queue: inner_fragments_queued,
    answers_and_replacements_between_interfaces: inner_answers_bridged,
    answers_and_replacements_in_a_queue: inner_answers_queued,
    a_queue_behind_connection_tracking: inner_tracked,
}

const RULES: &str = "\
    drop tcp any any -> any 80 (msg:\"tcp attack\"; content:\"ATTACK-TCP\"; sid:1;)\n\
    drop udp any any -> any 80 (msg:\"udp attack\"; content:\"ATTACK-UDP\"; sid:2;)\n";

/// How packets come to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is between two interfaces.
    Bridged,
    /// It is on a router, and netfilter hands over what that forwards.
    Queued,
}

/// The host whose packets are made here, the engine, a router, and a server, one behind the other.
struct Chain {
    way: Way,
    client: Ns,
    _router: Ns,
    server: Ns,
}

const SERVER4: &str = "10.9.3.2";
const SERVER6: &str = "fd09:3::2";
const SOURCES: [&str; 2] = ["10.9.0.77", "fd09:0::77"];
const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 2];

impl Chain {
    fn new(way: Way) -> Chain {
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        let (client, router, server) = (Ns::new(), Ns::new(), Ns::new());
        for ns in [&client, &router, &server] {
            ns.run(quiet);
        }
        quiet();
        pair("ia", "c0", &client);
        pair("ib", "r0", &router);
        router.run(|| pair("r1", "s0", &server));
        addressed(&router, "r1", 3, 1);
        addressed(&server, "s0", 3, 2);
        router.run(forwards);
        let default = |a: &str, b: &str| {
            ip(&format!("route add default via {a}"));
            ip(&format!("-6 route add default via {b}"));
        };
        server.run(|| default("10.9.3.1", "fd09:3::1"));
        let neighbour = |of: &str| {
            ip(&format!("link set {of} address 02:00:00:00:09:02"));
            let mac = MAC.map(|b| format!("{b:02x}")).join(":");
            SOURCES.iter().for_each(|s| ip(&format!("neigh add {s} lladdr {mac} dev {of}")));
        };
        match way {
            Way::Bridged => {
                addressed(&router, "r0", 0, 2);
                router.run(|| neighbour("r0"));
            }
            Way::Queued => {
                for (interface, net) in [("ia", 0), ("ib", 2)] {
                    sysctl("ipv6/conf/all/disable_ipv6", "0");
                    sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), "0");
                    ip(&format!("addr add 10.9.{net}.1/24 dev {interface}"));
                    ip(&format!("addr add fd09:{net}::1/64 dev {interface} nodad"));
                }
                forwards();
                addressed(&router, "r0", 2, 2);
                router.run(|| default("10.9.2.1", "fd09:2::1"));
                ip("route add 10.9.3.0/24 via 10.9.2.2");
                ip("-6 route add fd09:3::/64 via fd09:2::2");
                neighbour("ia");
                for tables in ["iptables", "ip6tables"] {
                    let o = Command::new(tables).args(["-A", "FORWARD", "-j", "NFQUEUE", "--queue-num", "0"]).output();
                    let o = o.expect("iptables: tools/setup installs it");
                    assert!(o.status.success(), "{tables}: {}", String::from_utf8_lossy(&o.stderr));
                }
            }
        }
        Chain { way, client, _router: router, server }
    }

    fn engine(&self, name: &str, rules: &str) -> (Engine, PathBuf) {
        let dir = folder(&format!("evasion-{name}-{:?}", self.way));
        let more = match self.way {
            Way::Bridged => Bench::settings(1),
            Way::Queued => vec!["-q".to_owned(), "0".to_owned()],
        };
        (Engine::start(&dir, rules, &more), dir)
    }

    /// The host, of both families.
    fn hosts<'a>(&self, tap: &'a Tap) -> [Raw<'a>; 2] {
        [(SOURCES[0], SERVER4), (SOURCES[1], SERVER6)].map(|(src, to)| Raw {
            tap,
            next: NEXT,
            src: src.parse::<IpAddr>().expect("an address"),
            to: at(to, 80),
            ttl: 64,
            broken: false,
            sizeless: false,
            extensions: &[],
        })
    }

    /// Hops that are enough for the engine, and too few for the server.
    fn few(&self) -> u8 {
        if self.way == Way::Bridged { 1 } else { 2 }
    }
}

fn quiet() {
    for i in ["all", "default"] {
        sysctl(&format!("ipv4/conf/{i}/rp_filter"), "0");
    }
    ip("link set lo up");
}

fn forwards() {
    sysctl("ipv4/ip_forward", "1");
    sysctl("ipv6/conf/all/forwarding", "1");
}

type Streams = Arc<Mutex<BTreeMap<u16, Vec<u8>>>>;

/// The server: what its sockets read, by the port of who sent it.
struct Sink {
    streams: Streams,
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sink {
    fn start(ns: &Ns) -> Sink {
        let (tcp, udp) = ns.run(|| {
            let tcp = TcpListener::bind(("::", 80)).expect("a port");
            tcp.set_nonblocking(true).expect("a listener");
            let udp = UdpSocket::bind(("::", 80)).expect("a port");
            udp.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            (tcp, udp)
        });
        let (streams, datagrams, stop) = (Arc::default(), Arc::default(), Arc::<AtomicBool>::default());
        let (all, s): (Streams, _) = (Arc::clone(&streams), Arc::clone(&stop));
        let accepts = std::thread::spawn(move || {
            while !s.load(Ordering::Relaxed) {
                let Ok((mut stream, from)) = tcp.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let _ = stream.set_nonblocking(false);
                    let mut buffer = [0; 4096];
                    all.lock().expect("the list").entry(from.port()).or_default();
                    while let Ok(n @ 1..) = stream.read(&mut buffer) {
                        all.lock().expect("the list").entry(from.port()).or_default().extend(&buffer[..n]);
                    }
                });
            }
        });
        let (all, s): (Arc<Mutex<Vec<Vec<u8>>>>, _) = (Arc::clone(&datagrams), Arc::clone(&stop));
        let receives = std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while !s.load(Ordering::Relaxed) {
                if let Ok(n) = udp.recv(&mut buffer) {
                    all.lock().expect("the list").push(buffer[..n].to_vec());
                }
            }
        });
        Sink { streams, datagrams, stop, threads: vec![accepts, receives] }
    }

    /// What was read on the connection from that port.
    fn stream(&self, port: u16) -> String {
        let all = self.streams.lock().expect("the list");
        String::from_utf8_lossy(all.get(&port).map_or(&[], |s| s)).into_owned()
    }

    /// Waits until that was read; returns what it is in the end.
    fn reads(&self, port: u16, words: &str) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while self.stream(port) != words {
            assert!(std::time::Instant::now() < end, "port {port}: {:?} instead of {words:?}", self.stream(port));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn received(&self, words: &[u8]) -> bool {
        let all = self.datagrams.lock().expect("the list");
        all.iter().any(|d| d.windows(words.len()).any(|w| w == words))
    }

    /// Waits until everything that the host sent before has come, if it comes at all.
    fn settled(&self, host: &Raw<'_>, name: &str) {
        let words = format!("settled {name} {}", host.src);
        let mut n = 0;
        wait_for("what was sent comes", || {
            if n % 50 == 0 {
                host.udp(999, words.as_bytes());
            }
            n += 1;
            self.received(words.as_bytes())
        });
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}

/// What was dropped, by reason.
fn reasons(dir: &Path) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for d in of_type(dir, "drop") {
        *all.entry(d["drop"]["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    all
}

/// A way to say it: what is sent after the handshake, and what the server reads.
struct Trick {
    name: &'static str,
    syn: Segment<'static>,
    segments: Vec<Segment<'static>>,
    read: &'static str,
}

fn trick(name: &'static str, segments: &[Segment<'static>], read: &'static str) -> Trick {
    Trick { name, syn: SEGMENT, segments: segments.to_vec(), read }
}

const HELLO: Segment<'static> = Segment { data: b"hello ", ..SEGMENT };
/// The attack in one piece, and in two, where it comes after the greeting.
const WHOLE: Segment<'static> = Segment { at: 6, data: b"ATTACK-TCP", ..SEGMENT };
const HALVES: [Segment<'static>; 2] =
    [Segment { at: 6, data: b"ATTA", ..SEGMENT }, Segment { at: 10, data: b"CK-TCP", ..SEGMENT }];
/// Something else in the place of it, and of its second half.
const DECOY: Segment<'static> = Segment { at: 6, data: b"benign-txt", ..SEGMENT };
const HALF: Segment<'static> = Segment { at: 10, data: b"benign", ..SEGMENT };

/// A timestamp of the sender (RFC 7323 section 3).
const EARLY: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 0];
const FIRST: &[u8] = &[1, 1, 8, 10, 0, 1, 0, 0, 0, 0, 0, 0];
const LATER: &[u8] = &[1, 1, 8, 10, 0, 1, 0, 1, 0, 0, 0, 0];
/// A signature that nobody asked for (RFC 2385).
const SIGNED: &[u8] = &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 1];
/// A cookie that the server has not given (RFC 7413).
const COOKIE: &[u8] = &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];

/// Tricks of which `few` hops are a part.
fn tricks(few: u8) -> Vec<Trick> {
    let lost = |s: Segment<'static>| Segment { ttl: Some(few), ..s };
    let broken = |s: Segment<'static>| Segment { broken: true, ..s };
    let flags = |flags: u8, s: Segment<'static>| Segment { flags, ..s };
    let dated = |options: &'static [u8], s: Segment<'static>| Segment { options, ..s };
    let close = |flags: u8| Segment { flags, at: 6, ..SEGMENT };
    let [first, second] = HALVES;
    let twice = |before: &[Segment<'static>]| [before, &HALVES, &HALVES, &HALVES].concat();
    let mut all = vec![
        trick("nothing special", &[HELLO, DECOY], "hello benign-txt"),
        trick("in one piece", &[HELLO, WHOLE, WHOLE], "hello "),
        trick("in two", &twice(&[HELLO]), "hello ATTA"),
        trick("the second first", &[HELLO, second, first, first], "hello "),
        trick("byte by byte", &[&[HELLO][..], &BYTES].concat(), "hello ATTACK-TC"),
        trick("after one that is lost", &[HELLO, lost(DECOY), WHOLE], "hello benign-txt"),
        trick("a half after one that is lost", &[HELLO, first, lost(HALF), second], "hello ATTAbenign"),
        trick("after a wrong checksum", &[HELLO, broken(DECOY), WHOLE], "hello "),
        trick("a half after a wrong checksum", &[HELLO, first, broken(HALF), second], "hello ATTA"),
        trick("after a reset that is lost", &twice(&[HELLO, lost(close(RST | ACK))]), "hello "),
        trick("after a reset alone that is lost", &twice(&[HELLO, lost(close(RST))]), "hello "),
        trick("after a broken reset", &twice(&[HELLO, broken(close(RST))]), "hello ATTA"),
        trick("after a reset elsewhere", &twice(&[HELLO, Segment { at: 9_000_000, ..close(RST) }]), "hello ATTA"),
        trick("after an end that is lost", &twice(&[HELLO, lost(close(FIN | ACK))]), "hello "),
        trick("after a broken end", &twice(&[HELLO, broken(close(FIN | ACK))]), "hello ATTA"),
        trick("after data far away", &twice(&[HELLO, Segment { at: 9_000_000, ..HALF }]), "hello ATTA"),
        trick("after data of before", &twice(&[HELLO, Segment { at: -4000, ..HALF }]), "hello ATTA"),
        trick("after a keep-alive", &twice(&[HELLO, data(5, b"X")]), "hello ATTA"),
        trick("after data without ACK", &twice(&[HELLO, flags(PSH, DECOY)]), "hello ATTA"),
        trick("after data without flags", &twice(&[HELLO, flags(0, DECOY)]), "hello ATTA"),
        trick("after a SYN with data", &twice(&[HELLO, flags(SYN, DECOY)]), "hello ATTA"),
        trick("after a wrong ACK", &twice(&[HELLO, Segment { ack: 9_000_000, ..DECOY }]), "hello ATTA"),
        trick("with an urgent byte", &[HELLO, Segment { urgent: 4, ..flags(URG | ACK, URGENT) }], "hello ATTXACK-TCP"),
        trick("longer the second time", &[HELLO, DECOY, Segment { data: b"ATTACK-TCP and more", ..WHOLE }], LONGER),
        trick("what is missing comes with more", &[HELLO, HALF, Segment { data: b"ATTACK-TCP-x", ..WHOLE }], MISSING),
        trick("after a signature", &[HELLO, dated(SIGNED, DECOY), WHOLE], ""),
    ];
    let timed = [dated(FIRST, HELLO), dated(EARLY, DECOY), dated(LATER, first), dated(LATER, second)];
    all.push(Trick { syn: dated(FIRST, SEGMENT), ..trick("after an old timestamp", &timed, "hello ATTA") });
    let over = [data(0, b"ATTA"), data(4, b"CK-TCP"), data(4, b"CK-TCP")];
    let syn = Segment { data: b"benign-txt", ..SEGMENT };
    all.push(Trick { syn, ..trick("data with the SYN", &over, "ATTA") });
    all.push(Trick { syn: dated(COOKIE, syn), ..trick("fast open", &over, "ATTA") });
    all
}

const URGENT: Segment<'static> = Segment { data: b"ATTXACK-TCP", ..WHOLE };
const LONGER: &str = "hello benign-txt and more";
const MISSING: &str = "hello ATTAbenign-x";
const BYTES: [Segment<'static>; 10] = {
    const TEXT: &[u8; 10] = b"ATTACK-TCP";
    let mut all = [SEGMENT; 10];
    let mut n = 0;
    while n < 10 {
        let (_, rest) = TEXT.split_at(n);
        all[n] = Segment { at: 6 + n as i64, data: rest.split_at(1).0, ..SEGMENT };
        n += 1;
    }
    all
};

fn segments(way: Way) {
    let chain = Chain::new(way);
    let sink = Sink::start(&chain.server);
    let (e, dir) = chain.engine("segments", RULES);
    let tap = Tap::on(&chain.client, "c0");
    let mut port = 10_000;
    for mut host in chain.hosts(&tap) {
        let all = tricks(chain.few());
        // All at once: they do not know of each other.
        let mut open: Vec<(Connection<'_, '_>, &Trick)> = Vec::new();
        for t in &all {
            port += 1;
            open.push((host.connect(port, &t.syn), t));
        }
        for (c, t) in &open {
            c.send_all(&t.segments);
        }
        sink.settled(&host, "tricks");
        for (c, t) in &open {
            eprintln!("{way:?} {} {}: {:?}", host.src, t.name, sink.stream(c.port));
        }
        for (c, t) in &open {
            if !t.read.is_empty() {
                sink.reads(c.port, t.read);
            }
        }
        // What was acknowledged said anew, with other bytes: it goes on as it was.
        port += 1;
        let c = host.connect(port, &SEGMENT);
        c.send_all(&[HELLO, DECOY]);
        sink.reads(c.port, "hello benign-txt");
        c.send_all(&[WHOLE, data(16, b" more")]);
        sink.reads(c.port, "hello benign-txt more");
        // Somebody acknowledges in the server's name what was not sent yet.
        for behind in [false, true] {
            port += 1;
            let c = host.connect(port, &SEGMENT);
            c.send(&HELLO);
            sink.reads(c.port, "hello ");
            if behind {
                c.send(&data(16, b"0123456789"));
            }
            // To nobody, or where it is sent back.
            c.forged_ack(26, if way == Way::Bridged { [2, 0, 0, 0, 9, 9] } else { NEXT });
            c.send_all(&[HALVES, HALVES].concat());
            sink.settled(&host, &format!("forged {behind}"));
            // Without the hole the half that is harmless is inspected and arrives; the one that makes it an attack does not.
            sink.reads(c.port, if behind { "hello " } else { "hello ATTA" });
        }
        for extensions in headers(&host) {
            host.extensions = extensions;
            for (segments, read) in [(vec![HELLO, DECOY], "hello benign-txt"), (vec![HELLO, WHOLE], "hello ")] {
                port += 1;
                let c = host.connect(port, &SEGMENT);
                c.send_all(&segments);
                sink.settled(&host, &format!("{extensions:?}{port}"));
                sink.reads(c.port, read);
            }
            // A fragment that is all there is (RFC 6946).
            port += 1;
            let c = host.connect(port, &SEGMENT);
            c.fragments(&HELLO, port, &[(0, usize::MAX)]);
            sink.reads(port, "hello ");
            c.fragments(&WHOLE, port, &[(0, usize::MAX)]);
            host.fragments(UDP, &host.datagram(port, b"an ATTACK-UDP"), port, &[(0, usize::MAX)]);
            host.udp(port, b"an ATTACK-UDP");
            // No lengths, for hosts that do not need them.
            host.udp_sizeless(port, b"an ATTACK-UDP");
            host.sizeless = extensions.first() == Some(&HOP_BY_HOP);
            host.udp(port, b"an ATTACK-UDP");
            host.sizeless = false;
            sink.settled(&host, &format!("whole {extensions:?}"));
            assert_eq!(sink.stream(port), "hello ");
            let benign = format!("benign {extensions:?}");
            host.udp(port + 1, benign.as_bytes());
            wait_for("it comes", || sink.received(benign.as_bytes()));
        }
    }
    for (port, read) in sink.streams.lock().expect("the list").iter() {
        assert!(!String::from_utf8_lossy(read).contains("ATTACK-TCP"), "{port}");
    }
    assert!(!sink.received(b"ATTACK"));
    e.stop();
    let reasons = reasons(&dir);
    eprintln!("{reasons:?}");
    assert!(reasons.keys().all(|r| ["rules", "flow drop", "stream error"].contains(&&**r)), "{reasons:?}");
    assert!(reasons["rules"] > 10 && reasons["flow drop"] > 10, "{reasons:?}");
}

/// Extension headers to try.
fn headers(host: &Raw<'_>) -> Vec<&'static [u8]> {
    match host.src {
        IpAddr::V4(_) => vec![],
        IpAddr::V6(_) => vec![&[HOP_BY_HOP], &[DESTINATION], &[HOP_BY_HOP, DESTINATION]],
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_segments_bridged() {
    segments(Way::Bridged);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_segments_queued() {
    segments(Way::Queued);
}

/// `words` between bytes that say nothing, with so many of them in front.
fn padded(words: &str, before: usize, len: usize) -> Vec<u8> {
    let mut out = vec![b'.'; len];
    out[before..before + words.len()].copy_from_slice(words.as_bytes());
    out
}

/// Where something is cut into pieces of that size.
fn pieces(size: usize, len: usize) -> Vec<(usize, usize)> {
    (0..len).step_by(size).map(|n| (n, (n + size).min(len))).collect()
}

fn reversed(mut pieces: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    pieces.reverse();
    pieces
}

fn fragments(way: Way) {
    let chain = Chain::new(way);
    let sink = Sink::start(&chain.server);
    let (e, dir) = chain.engine("fragments", RULES);
    let tap = Tap::on(&chain.client, "c0");
    let (mut port, mut id) = (20_000, 100);
    for mut host in chain.hosts(&tap) {
        for extensions in headers(&host).into_iter().chain([&[][..]]) {
            host.extensions = extensions;
            let len = 300 + 8;
            let whole = len + host.inside();
            let cut = pieces(104, whole);
            for (n, order) in [cut.clone(), reversed(cut.clone())].into_iter().enumerate() {
                (port, id) = (port + 1, id + 1);
                let name = format!("benign {} {extensions:?} {n}", host.src);
                host.fragments(UDP, &host.datagram(port, &padded(&name, 170, 300)), id, &order);
                wait_for("what is benign comes", || sink.received(name.as_bytes()));
                // Over the border of two fragments.
                (port, id) = (port + 1, id + 1);
                let attack = host.datagram(port, &padded("ATTACK-UDP", 90, 300));
                host.fragments(UDP, &attack, id, &order);
                // What is missing once more, and all of it, until it is forgotten.
                for again in order.iter().rev() {
                    host.fragments(UDP, &attack, id, &[*again]);
                }
                host.fragments(UDP, &attack, id, &reversed(order.clone()));
                sink.settled(&host, &format!("{extensions:?} {n}"));
                assert!(!sink.received(b"ATTACK"), "{way:?} {} {extensions:?} {n}", host.src);
                // A segment.
                (port, id) = (port + 1, id + 1);
                let c = host.connect(port, &SEGMENT);
                let benign = padded("benign", 90, 300);
                let (len, text) = (300 + 20, String::from_utf8_lossy(&benign).into_owned());
                let order = pieces(96, len + host.inside());
                let order = if n == 0 { order } else { reversed(order) };
                c.fragments(&data(0, &benign), id, &order);
                sink.reads(c.port, &text);
                id += 1;
                let attack = padded("ATTACK-TCP", 70, 300);
                for _ in 0..3 {
                    c.fragments(&data(300, &attack), id, &order);
                }
                sink.settled(&host, &format!("segment {extensions:?} {n}"));
                assert_eq!(sink.stream(c.port), text);
            }
        }
        // A length that is no multiple of eight, but for the last: some systems take what is, some none of it.
        host.extensions = &[];
        (port, id) = (port + 1, id + 1);
        let attack = host.datagram(port, &padded("ATTACK-UDP", 90, 300));
        host.fragments(UDP, &attack, id, &[(0, 101), (96, 200), (200, 308)]);
        host.fragments(UDP, &attack, id + 1, &[(0, 96), (96, 203), (200, 308)]);
        // What overlaps, and says something else.
        let mut other = attack.clone();
        other[8..].fill(b'-');
        for (n, decoy_first) in [true, false].into_iter().enumerate() {
            let id = id + 2 + n as u16;
            let both = [&other, &attack];
            let [a, b] = if decoy_first { both } else { [both[1], both[0]] };
            host.fragments(UDP, a, id, &[(96, 200)]);
            host.fragments(UDP, b, id, &[(96, 200), (0, 96), (200, 308)]);
        }
        id += 4;
        // The same with what does not arrive: the engine must not take it for what the server has.
        let short = &other[..104];
        let long = [&other[..], &other[..]].concat();
        let real = pieces(104, 308);
        for broken in [false, true] {
            if broken && host.src.is_ipv6() {
                continue;
            }
            for (decoy, lost, from) in [
                // The first in its place, before it and after; what is in the middle; the last.
                (&other[..], (0, 104), 0),
                (&other, (0, 104), 1),
                (&other, (104, 208), 1),
                (&other, (208, 308), 2),
                // An end that comes too early, and something far behind the end.
                (short, (96, 104), 1),
                (short, (96, 104), 0),
                (&long, (400, 504), 0),
                (&long, (400, 504), 3),
            ] {
                id += 1;
                for (n, piece) in real.iter().enumerate() {
                    if n == from {
                        (host.ttl, host.broken) = if broken { (64, true) } else { (chain.few(), false) };
                        host.fragments(UDP, decoy, id, &[lost]);
                        (host.ttl, host.broken) = (64, false);
                        // As if that were the one.
                        let without = real.iter().copied().filter(|p| *p != lost).collect::<Vec<_>>();
                        host.fragments(UDP, &attack, id, &without);
                    }
                    host.fragments(UDP, &attack, id, &[*piece]);
                }
                host.fragments(UDP, &attack, id, &reversed(real.clone()));
                sink.settled(&host, &format!("decoy {broken} {lost:?} {from}"));
                assert!(!sink.received(b"ATTACK"), "{way:?} {} {broken} {lost:?} {from}", host.src);
            }
        }
        // Different ways of fragments are no attack.
        (port, id) = (port + 1, id + 1);
        let benign = host.datagram(port, &padded(&format!("uneven {}", host.src), 90, 300));
        for (n, piece) in real.iter().enumerate() {
            host.ttl = 64 - n as u8;
            host.fragments(UDP, &benign, id, &[*piece]);
        }
        host.ttl = 64;
        wait_for("it comes", || sink.received(format!("uneven {}", host.src).as_bytes()));
        sink.settled(&host, "odd");
    }
    assert!(!sink.received(b"ATTACK"));
    e.stop();
    let reasons = reasons(&dir);
    let stats = last_stats(&dir);
    eprintln!("{reasons:?} {}", stats["defrag"]);
    assert!(reasons["rules"] >= 16 && reasons["datagram drop"] >= 16, "{reasons:?}");
    assert_eq!(stats["ips"]["drop_reason"]["datagram_drop"].as_u64(), Some(reasons["datagram drop"] as u64));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_fragments_bridged() {
    fragments(Way::Bridged);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_fragments_queued() {
    fragments(Way::Queued);
}

const ANSWERS: &str = "\
    rejectboth tcp any any -> any 80 (msg:\"tcp\"; content:\"ATTACK-TCP\"; sid:1;)\n\
    reject udp any any -> any 80 (msg:\"udp\"; content:\"ATTACK-UDP\"; sid:2;)\n\
    ";
const REPLACES: &str = "\
    alert tcp any any -> any 80 (msg:\"t\"; content:\"secret\"; replace:\"public\"; sid:3;)\n\
    alert udp any any -> any 80 (msg:\"u\"; content:\"secret\"; replace:\"public\"; sid:4;)\n";

fn answers(way: Way) {
    let chain = Chain::new(way);
    let sink = Sink::start(&chain.server);
    let (e, dir) = chain.engine("answers", &format!("{ANSWERS}{REPLACES}"));
    let tap = Tap::on(&chain.client, "c0");
    let (mut port, mut id) = (30_000, 100);
    let (mut replaced, mut not) = (0, 0);
    for mut host in chain.hosts(&tap) {
        for extensions in headers(&host).into_iter().chain([&[][..]]) {
            host.extensions = extensions;
            let name = format!("{way:?} {} {extensions:?}", host.src);
            // Resets, to both sides.
            port += 1;
            let behind = Tap::on(&chain.server, "s0");
            let c = host.connect(port, &SEGMENT);
            c.send(&HELLO);
            sink.reads(port, "hello ");
            c.send(&WHOLE);
            let server = host.to.ip();
            let reset = tap.until("a reset", |ip| {
                let it = ip.dst == host.src && ip.ports() == (80, port) && ip.tcp_flags() & RST != 0;
                it.then(|| (ip.src, ip.right, ip.numbers().1))
            });
            assert_eq!(reset, (server, true, c.seq(16)), "{name}");
            let reset = behind.until("a reset", |ip| {
                let it = ip.dst == server && ip.ports() == (port, 80) && ip.tcp_flags() & RST != 0;
                it.then(|| (ip.src, ip.right, ip.numbers().0))
            });
            assert_eq!(reset, (host.src, true, c.seq(6)), "{name}");
            // ICMP, to who sent it.
            port += 1;
            let words = padded("ATTACK-UDP", 20, 200);
            host.udp(port, &words);
            let kind = if host.src.is_ipv4() { (1, [3, 10]) } else { (58, [1, 1]) };
            let datagram = host.datagram(port, &words);
            let quote = tap.until("an error", |ip| {
                let it = ip.dst == host.src && ip.proto == kind.0 && ip.payload.get(..2) == Some(&kind.1);
                it.then(|| {
                    assert!(ip.right && ip.src == server, "{name}: {ip:?}");
                    ip.payload[8..].to_vec()
                })
            });
            let quoted = packet_of(&quote).expect("a packet");
            assert_eq!((quoted.src, quoted.dst), (host.src, server), "{name}");
            assert!(quoted.payload.ends_with(&datagram), "{name}: {quoted:?}");
            // Other bytes in the place of those.
            port += 1;
            let c = host.connect(port, &SEGMENT);
            c.send_all(&[HELLO, data(6, b"a secret, and more")]);
            sink.reads(port, "hello a public, and more");
            replaced += 1;
            port += 1;
            let words = format!("a secret of {name}");
            let there = words.replace("secret", "public");
            host.udp(port, words.as_bytes());
            wait_for("it comes", || sink.received(there.as_bytes()));
            replaced += 1;
            let right = behind.until("it passes", |ip| {
                let it = ip.payload.ends_with(there.as_bytes()) && ip.ports().0 == port;
                // With extension headers it is not looked at here; that it is read says enough.
                (it || !extensions.is_empty()).then_some(ip.right || !extensions.is_empty())
            });
            assert!(right, "{name}");
            // In fragments: where the last that comes has what is replaced and the checksum, it is, else nothing arrives.
            let len = 300 + 8 + host.inside();
            let cut = pieces(104, len);
            for (order, before, arrives) in [
                (cut.clone(), 250, false),
                (cut.clone(), 50, false),
                (reversed(cut.clone()), 50, true),
                (reversed(cut.clone()), 250, false),
                (reversed(cut.clone()), 92 - host.inside(), false),
            ] {
                (port, id) = (port + 1, id + 1);
                let mark = format!("<{id}>");
                let mut words = padded("secret", before, 300);
                words[130..130 + mark.len()].copy_from_slice(mark.as_bytes());
                let datagram = host.datagram(port, &words);
                host.fragments(UDP, &datagram, id, &order);
                if arrives {
                    wait_for("it comes", || sink.received(mark.as_bytes()));
                    replaced += 1;
                    continue;
                }
                not += 1;
                host.fragments(UDP, &datagram, id, &order);
                sink.settled(&host, &format!("{extensions:?}{id}"));
                assert!(!sink.received(mark.as_bytes()), "{name} {order:?} {before}");
            }
        }
        if host.src.is_ipv4() {
            // Without a checksum none has to be put right.
            (port, id) = (port + 1, id + 1);
            let mut datagram = host.datagram(port, &padded("secret", 250, 300));
            datagram[8..14].copy_from_slice(b"no sum");
            datagram[6..8].fill(0);
            host.fragments(UDP, &datagram, id, &pieces(104, 308));
            wait_for("it comes", || sink.received(b"no sum"));
            replaced += 1;
        }
    }
    assert!(!sink.received(b"secret") && !sink.received(b"ATTACK"));
    for (port, read) in sink.streams.lock().expect("the list").iter() {
        let read = String::from_utf8_lossy(read);
        assert!(!read.contains("ATTACK-TCP") && !read.contains("secret"), "{port}");
    }
    e.stop();
    let stats = last_stats(&dir);
    let ips = &stats["ips"];
    assert_eq!(
        (ips["replaced"].as_u64(), ips["drop_reason"]["not_replaced"].as_u64()),
        (Some(replaced), Some(not)),
        "{ips}"
    );
    assert_eq!(reasons(&dir)["not replaced"] as u64, not);
    assert_eq!(stats["capture"]["reject"]["sent"], 5 * 3, "{}", stats["capture"]);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_answers_bridged() {
    answers(Way::Bridged);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_answers_queued() {
    answers(Way::Queued);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_tracked() {
    // Where netfilter follows connections it puts fragments together first: packets come whole.
    let chain = Chain::new(Way::Queued);
    for tables in ["iptables", "ip6tables"] {
        let tracks = ["-I", "FORWARD", "-m", "conntrack", "--ctstate", "UNTRACKED", "-j", "ACCEPT"];
        if !Command::new(tables).args(tracks).output().is_ok_and(|o| o.status.success()) {
            margay_testing::not_run("the kernel does not follow connections");
            return;
        }
    }
    let sink = Sink::start(&chain.server);
    let (e, dir) = chain.engine("tracked", &format!("{RULES}{REPLACES}"));
    let tap = Tap::on(&chain.client, "c0");
    let (mut port, mut id) = (40_000, 100);
    for host in chain.hosts(&tap) {
        let cut = pieces(104, 308);
        for order in [cut.clone(), reversed(cut)] {
            for before in [50, 90, 250] {
                (port, id) = (port + 1, id + 1);
                let mut words = padded("secret", before, 300);
                words[130..140].copy_from_slice(format!("<{id:08}>").as_bytes());
                host.fragments(UDP, &host.datagram(port, &words), id, &order);
                let there = String::from_utf8_lossy(&words).replace("secret", "public");
                wait_for("it comes", || sink.received(there.as_bytes()));
                (port, id) = (port + 1, id + 1);
                let attack = host.datagram(port, &padded("ATTACK-UDP", before, 300));
                host.fragments(UDP, &attack, id, &order);
                host.fragments(UDP, &attack, id, &order);
            }
        }
        sink.settled(&host, "tracked");
    }
    assert!(!sink.received(b"secret") && !sink.received(b"ATTACK"));
    e.stop();
    let stats = last_stats(&dir);
    assert_eq!(stats["ips"]["replaced"], 12, "{}", stats["ips"]);
    assert_eq!(stats["defrag"]["ipv4"]["fragments"], 0, "{}", stats["defrag"]);
}
