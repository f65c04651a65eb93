//! Evasion attacks, inline, over IPv4 and IPv6: whatever packets carry it, an attack that the engine blocks does not
//! reach the real host behind it, and benign data does. The test builds the packets byte by byte. The kernel receives
//! them behind a router, so that packets with a low hop limit pass the engine and do not arrive.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod bench;
#[path = "evasion/network.rs"]
mod network;
#[path = "evasion/tricks.rs"]
mod tricks;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use bench::raw::{Connection, DESTINATION, HOP_BY_HOP, RST, Raw, SEGMENT, Tap, UDP, data, packet_of};
use bench::{last_stats, of_type, wait_for};
use network::{Chain, NEXT, Sink, Way};
use tricks::{DECOY, HALVES, HELLO, Trick, WHOLE, tricks};

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

/// Number of drops by reason.
fn reasons(dir: &Path) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for d in of_type(dir, "drop") {
        *all.entry(d["drop"]["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    all
}

fn segments(way: Way) {
    let chain = Chain::new(way);
    let sink = Sink::start(&chain.server);
    let (e, dir) = chain.engine("segments", RULES);
    let tap = Tap::on(&chain.client, "c0");
    let mut port = 10_000;
    for mut host in chain.hosts(&tap) {
        let all = tricks(chain.few());
        // All connections are open at the same time, and do not affect each other.
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
        // Acknowledged data is sent again with other bytes: the stream stays as it was.
        port += 1;
        let c = host.connect(port, &SEGMENT);
        c.send_all(&[HELLO, DECOY]);
        sink.reads(c.port, "hello benign-txt");
        c.send_all(&[WHOLE, data(16, b" more")]);
        sink.reads(c.port, "hello benign-txt more");
        // A forged acknowledgment, in the server's name, covers data that was not sent yet.
        for behind in [false, true] {
            port += 1;
            let c = host.connect(port, &SEGMENT);
            c.send(&HELLO);
            sink.reads(c.port, "hello ");
            if behind {
                c.send(&data(16, b"0123456789"));
            }
            // The packet goes to a host that does not exist, or to a router that sends it back.
            c.forged_ack(26, if way == Way::Bridged { [2, 0, 0, 0, 9, 9] } else { NEXT });
            c.send_all(&[HALVES, HALVES].concat());
            sink.settled(&host, &format!("forged {behind}"));
            // Without the hole, the harmless half is inspected and arrives. The half that completes the attack does not.
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
            // A single fragment that is the whole packet (RFC 6946).
            port += 1;
            let c = host.connect(port, &SEGMENT);
            c.fragments(&HELLO, port, &[(0, usize::MAX)]);
            sink.reads(port, "hello ");
            c.fragments(&WHOLE, port, &[(0, usize::MAX)]);
            host.fragments(UDP, &host.datagram(port, b"an ATTACK-UDP"), port, &[(0, usize::MAX)]);
            host.udp(port, b"an ATTACK-UDP");
            // No lengths, for hosts that accept that.
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

/// `words` with filler bytes around them, `before` of them in front.
fn padded(words: &str, before: usize, len: usize) -> Vec<u8> {
    let mut out = vec![b'.'; len];
    out[before..before + words.len()].copy_from_slice(words.as_bytes());
    out
}

/// Ranges that cut data into pieces of that size.
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
                // The attack spans two fragments.
                (port, id) = (port + 1, id + 1);
                let attack = host.datagram(port, &padded("ATTACK-UDP", 90, 300));
                host.fragments(UDP, &attack, id, &order);
                // Send the missing fragment again, and then all of them, until the engine forgets the datagram.
                for again in order.iter().rev() {
                    host.fragments(UDP, &attack, id, &[*again]);
                }
                host.fragments(UDP, &attack, id, &reversed(order.clone()));
                sink.settled(&host, &format!("{extensions:?} {n}"));
                assert!(!sink.received(b"ATTACK"), "{way:?} {} {extensions:?} {n}", host.src);
                // A TCP segment.
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
        // A length that is no multiple of eight, except in the last fragment. Some systems truncate it, others discard
        // it.
        host.extensions = &[];
        (port, id) = (port + 1, id + 1);
        let attack = host.datagram(port, &padded("ATTACK-UDP", 90, 300));
        host.fragments(UDP, &attack, id, &[(0, 101), (96, 200), (200, 308)]);
        host.fragments(UDP, &attack, id + 1, &[(0, 96), (96, 203), (200, 308)]);
        // Overlapping fragments with different data.
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
        // The same with fragments that do not arrive: the engine must not assume that the server has them.
        let short = &other[..104];
        let long = [&other[..], &other[..]].concat();
        let real = pieces(104, 308);
        for broken in [false, true] {
            if broken && host.src.is_ipv6() {
                continue;
            }
            for (decoy, lost, from) in [
                // Replaces the first fragment in its place, earlier and later; one in the middle; the last.
                (&other[..], (0, 104), 0),
                (&other, (0, 104), 1),
                (&other, (104, 208), 1),
                (&other, (208, 308), 2),
                // An early last fragment, and one far behind the end.
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
                        // The decoy takes the place of the lost fragment.
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
        // Fragmenting in different ways is no attack.
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
            // Resets to both sides.
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
            // ICMP to the sender.
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
            // Replaced bytes.
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
                // With extension headers the checksums are not checked here; it is enough that the server reads the datagram.
                (it || !extensions.is_empty()).then_some(ip.right || !extensions.is_empty())
            });
            assert!(right, "{name}");
            // In fragments, the replacement works if the last one to come has both the bytes and the checksum. Otherwise
            // nothing arrives.
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
            // A datagram without a checksum needs no correction.
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
    // Connection tracking makes netfilter reassemble fragments first, so packets arrive whole.
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
