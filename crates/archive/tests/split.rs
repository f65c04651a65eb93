//! `margay split` on generated captures: packets that must stay together, unchanged packets, correct indexes, refused input.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base64::Engine;
use margay_archive::archive::{Manifest, PartIndex};
use margay_archive::bloom::{Entry, may_hold};
use margay_archive::join::{Wanted, join};
use margay_archive::split::{Options, split};
use margay_archive::{Error, pair};
use margay_capture::{PcapWriter, Reader, Resolution};
use margay_packet::{LinkType, Time};
use proptest::prelude::*;

/// A packet of a capture, without its link-layer header.
#[derive(Debug, Clone)]
enum Made {
    Udp {
        from: u8,
        to: u8,
        ports: (u16, u16),
    },
    /// One of two fragments of a UDP datagram.
    Fragment {
        from: u8,
        to: u8,
        id: u16,
        last: bool,
    },
    /// UDP within GRE between two other hosts.
    Tunnel {
        outer: (u8, u8),
        inner: (u8, u8),
    },
    /// Host unreachable, from a router, about a datagram.
    Unreachable {
        router: u8,
        about: (u8, u8),
    },
    Arp,
    Junk(Vec<u8>),
}

fn host(n: u8) -> [u8; 4] {
    [10, 0, n % 3, n]
}

fn ipv4(from: u8, to: u8, proto: u8, fragment: u16, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut b = vec![0x45, 0];
    b.extend(((20 + payload.len()) as u16).to_be_bytes());
    b.extend(id.to_be_bytes());
    b.extend(fragment.to_be_bytes());
    b.extend([64, proto, 0, 0]);
    b.extend(host(from));
    b.extend(host(to));
    b.extend(payload);
    b
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    for field in [ports.0, ports.1, 8 + payload.len() as u16, 0] {
        b.extend(field.to_be_bytes());
    }
    b.extend(payload);
    b
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut b = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    b.extend(kind.to_be_bytes());
    b.extend(payload);
    b
}

impl Made {
    fn frame(&self) -> Vec<u8> {
        match self {
            Made::Udp { from, to, ports } => ethernet(0x800, &ipv4(*from, *to, 17, 0, 7, &udp(*ports, b"hello"))),
            Made::Fragment { from, to, id, last } => {
                let whole = udp((4000, 5353), &[b'x'; 24]);
                let (payload, at) = if *last { (&whole[16..], 2) } else { (&whole[..16], 0x2000) };
                ethernet(0x800, &ipv4(*from, *to, 17, at, *id, payload))
            }
            Made::Tunnel { outer, inner } => {
                let mut gre = vec![0, 0, 8, 0];
                gre.extend(ipv4(inner.0, inner.1, 17, 0, 9, &udp((1111, 2222), b"inner")));
                ethernet(0x800, &ipv4(outer.0, outer.1, 47, 0, 8, &gre))
            }
            Made::Unreachable { router, about } => {
                let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
                icmp.extend(ipv4(about.0, about.1, 17, 0, 7, &udp((1, 2), b"")));
                ethernet(0x800, &ipv4(*router, about.0, 1, 0, 7, &icmp))
            }
            Made::Arp => ethernet(0x806, &[0; 28]),
            Made::Junk(bytes) => bytes.clone(),
        }
    }

    /// Every host in its headers.
    fn all_hosts(&self) -> Vec<u8> {
        match self {
            Made::Tunnel { outer, inner } => vec![outer.0, outer.1, inner.0, inner.1],
            Made::Unreachable { router, about } => vec![*router, about.0, about.1],
            made => made.hosts().into_iter().flat_map(|h| [h.0, h.1]).collect(),
        }
    }

    /// The flows of its packets: whether in a tunnel, and between which hosts.
    fn flows(&self) -> Vec<(bool, u8, u8)> {
        let of = |inner, (a, b): (u8, u8)| (inner, a.min(b), a.max(b));
        match self {
            Made::Tunnel { outer, inner } => vec![of(false, *outer), of(true, *inner)],
            made => made.hosts().into_iter().map(|h| of(false, h)).collect(),
        }
    }

    /// The hosts whose packets must be in the same bucket.
    fn hosts(&self) -> Option<(u8, u8)> {
        let (a, b) = match self {
            Made::Udp { from, to, .. } | Made::Fragment { from, to, .. } => (*from, *to),
            Made::Tunnel { outer, .. } => *outer,
            Made::Unreachable { about, .. } => *about,
            Made::Arp | Made::Junk(_) => return None,
        };
        Some((a.min(b), a.max(b)))
    }
}

fn made() -> impl Strategy<Value = Made> {
    let pair = || (1..9u8, 1..9u8);
    prop_oneof![
        4 => (pair(), 1..4u16, 1..4u16).prop_map(|((from, to), a, b)| Made::Udp { from, to, ports: (a, b) }),
        2 => (pair(), 1..3u16, any::<bool>()).prop_map(|((from, to), id, last)| Made::Fragment { from, to, id, last }),
        2 => (pair(), pair()).prop_map(|(outer, inner)| Made::Tunnel { outer, inner }),
        1 => (1..9u8, pair()).prop_map(|(router, about)| Made::Unreachable { router, about }),
        1 => Just(Made::Arp),
        1 => proptest::collection::vec(any::<u8>(), 0..13).prop_map(Made::Junk),
    ]
}

/// A capture of these packets, each with its time in seconds.
fn capture(folder: &Path, name: &str, packets: &[(i64, Made)], link: LinkType) -> PathBuf {
    let file = folder.join(name);
    let out = fs::File::create(&file).expect("a file");
    let mut out = PcapWriter::new(out, link, 262_144, Resolution::Micro).expect("a header");
    for (n, (at, made)) in packets.iter().enumerate() {
        let (frame, time) = (made.frame(), Time::new(1_700_000_000 + at, n as i64 % 1_000_000));
        // The capture truncated some of them.
        let wire = frame.len() as u32 + if n % 5 == 0 { 100 } else { 0 };
        out.write(time, &frame, wire).expect("a packet");
    }
    file
}

/// A packet of a file: time in microseconds, bytes, length on the wire, link type.
type Packet = (i64, Vec<u8>, u32, u32);

fn packets(file: &Path) -> Vec<Packet> {
    let mut reader = Reader::new(fs::File::open(file).expect("a file"), file).expect("a capture");
    let mut all = Vec::new();
    while let Some(batch) = reader.next_batch(64).expect("whole packets") {
        all.extend(batch.iter().map(|f| (f.time.0, f.data.to_vec(), f.wire_len, f.link.0)));
    }
    all
}

fn numbers(file: &Path) -> Vec<u64> {
    let bytes = fs::read(file).expect("numbers");
    assert_eq!(bytes.len() % 8, 0);
    bytes.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
}

fn index(archive: &Path, name: &str) -> PartIndex {
    let text = fs::read(archive.join(format!("{name}.index.json"))).expect("an index");
    serde_json::from_slice(&text).expect("an index")
}

fn filter(index: &PartIndex) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(&index.filter).expect("base64")
}

fn options(folder: &Path, buckets: u16, window: Option<i64>) -> Options {
    Options { into: folder.join("archive"), buckets, window: window.map(|s| s * 1_000_000) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_packet_is_in_one_part_with_those_it_belongs_to(
        list in proptest::collection::vec((0..900i64, made()), 1..120),
        buckets in 1..40u16,
        window in proptest::option::of(120..400i64),
        sorted in any::<bool>(),
    ) {
        let mut list = list;
        if sorted {
            list.sort_by_key(|x| x.0);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = capture(folder.path(), "a.pcap", &list, LinkType::ETHERNET);
        let options = options(folder.path(), buckets, window);
        let manifest = split(std::slice::from_ref(&file), &options).expect("an archive");
        let before = packets(&file);

        let mut found = BTreeMap::new();
        let mut bucket_of: BTreeMap<(u8, u8), BTreeSet<u16>> = BTreeMap::new();
        let mut carried: BTreeMap<(u8, u8), BTreeSet<u16>> = BTreeMap::new();
        let mut last: BTreeMap<u16, u64> = BTreeMap::new();
        for part in &manifest.parts {
            let file = options.into.join(format!("{}.pcapng", part.name));
            let (there, numbers) = (packets(&file), numbers(&file.with_extension("numbers")));
            prop_assert_eq!(there.len(), numbers.len());
            prop_assert_eq!(there.len() as u64, part.packets);
            prop_assert_eq!(fs::metadata(&file).expect("a file").len(), part.bytes);
            prop_assert_eq!(there.iter().map(|p| p.0).min(), Some(part.first));
            prop_assert_eq!(there.iter().map(|p| p.0).max(), Some(part.last));
            let filter = filter(&index(&options.into, &part.name));
            for (packet, number) in there.into_iter().zip(numbers) {
                let (_, made) = &list[number as usize - 1];
                // A bucket's parts follow each other in capture order.
                prop_assert!(last.insert(part.bucket, number) < Some(number));
                if let Some(pair) = made.hosts() {
                    bucket_of.entry(pair).or_default().insert(part.bucket);
                } else {
                    prop_assert_eq!(part.bucket, 0);
                }
                if let Made::Tunnel { inner, .. } = made {
                    let pair = (inner.0.min(inner.1), inner.0.max(inner.1));
                    carried.entry(pair).or_default().insert(part.bucket);
                }
                let hosts = match made {
                    Made::Tunnel { outer, inner } => vec![outer.0, outer.1, inner.0, inner.1],
                    made => made.hosts().into_iter().flat_map(|h| [h.0, h.1]).collect(),
                };
                for h in hosts {
                    for bits in [8, 16, 24, 32] {
                        let entry = Entry::Network(IpAddr::V4(Ipv4Addr::from(host(h))), bits);
                        prop_assert!(may_hold(&filter, entry.hash()));
                    }
                }
                if let Made::Udp { ports, .. } = made {
                    prop_assert!(may_hold(&filter, Entry::Port(17, ports.0).hash()));
                    prop_assert!(may_hold(&filter, Entry::Port(17, ports.1).hash()));
                }
                prop_assert!(found.insert(number, packet).is_none(), "packet {} is in two parts", number);
            }
        }
        prop_assert_eq!(found.into_values().collect::<Vec<_>>(), before.clone());
        for (pair, buckets) in bucket_of {
            prop_assert_eq!(buckets.len(), 1, "hosts {:?} are in {:?}", pair, buckets);
        }
        for buckets in carried.into_values().filter(|b| b.len() > 1) {
            let together = manifest.together.iter().any(|set| buckets.iter().all(|b| set.contains(b)));
            prop_assert!(together, "{:?} of {:?}", buckets, manifest.together);
        }

        let joined = folder.path().join("joined.pcapng");
        let mut out = fs::File::create(&joined).expect("a file");
        prop_assert_eq!(join(&options.into, &Wanted::default(), &mut out, None).expect("all parts"), before.len() as u64);
        prop_assert_eq!(packets(&joined), before.clone());

        // A selection for one host has each of the host's packets, and everything that belongs to one of these.
        for wanted in 1..9u8 {
            let (hosts, beside) = ([(IpAddr::from(host(wanted)), None)], folder.path().join("some.numbers"));
            let (mut out, mut some) = (Vec::new(), fs::File::create(&beside).expect("a file"));
            join(&options.into, &Wanted { only: &[], hosts: &hosts }, &mut out, Some(&mut some)).expect("a selection");
            fs::write(&joined, &out).expect("a file");
            let numbers: BTreeSet<u64> = numbers(&beside).into_iter().collect();
            let expected: Vec<_> = numbers.iter().map(|n| before[*n as usize - 1].clone()).collect();
            prop_assert_eq!(packets(&joined), expected);
            let read = |n: usize| numbers.contains(&(n as u64 + 1));
            let mut flows: BTreeMap<(bool, u8, u8), bool> = BTreeMap::new();
            for (n, (_, made)) in list.iter().enumerate() {
                let all = made.all_hosts();
                prop_assert!(read(n) || !all.contains(&wanted), "packet {} of host {} is not read", n + 1, wanted);
                for flow in made.flows() {
                    prop_assert_eq!(*flows.entry(flow).or_insert(read(n)), read(n), "flow {:?} is read in part", flow);
                }
            }
        }
    }
}

fn udp_packet(from: u8, to: u8) -> Made {
    Made::Udp { from, to, ports: (4000, 53) }
}

#[test]
fn what_a_datagram_carries_is_in_the_indexes_of_all_windows_that_it_is_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let fragment = |last| Made::Fragment { from: 1, to: 2, id: 1, last };
    let file = capture(folder.path(), "a.pcap", &[(150, fragment(false)), (170, fragment(true))], LinkType::ETHERNET);
    let options = options(folder.path(), 1, Some(120));
    // A window begins at 1,700,000,160 s.
    let manifest = split(&[file], &options).expect("an archive");
    assert_eq!(manifest.parts.len(), 2, "{:?}", manifest.parts);
    for part in &manifest.parts {
        let index = index(&options.into, &part.name);
        assert_eq!(index.fragments, 1);
        assert!(may_hold(&filter(&index), Entry::Port(17, 5353).hash()), "{}", part.name);
    }
}

#[test]
fn link_types_and_captures_follow_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let a = capture(folder.path(), "a.pcap", &[(1, udp_packet(1, 2)), (3, Made::Arp)], LinkType::ETHERNET);
    let raw = folder.path().join("b.pcap");
    let out = fs::File::create(&raw).expect("a file");
    let mut out = PcapWriter::new(out, LinkType(101), 65_535, Resolution::Micro).expect("a header");
    out.write(Time::new(1_700_000_002, 0), &ipv4(2, 1, 17, 0, 1, &udp((53, 4000), b"answer")), 0).expect("a packet");
    drop(out);
    let options = options(folder.path(), 3, None);
    let manifest = split(&[a.clone(), raw.clone()], &options).expect("an archive");
    let bucket = pair::bucket(Some((host(1).into(), host(2).into())), 3);
    let name = &manifest.parts.iter().find(|p| p.bucket == bucket).expect("a part").name;
    let part = packets(&options.into.join(format!("{name}.pcapng")));
    assert_eq!(part.iter().map(|p| p.3).filter(|l| *l == 101).count(), 1);
    let joined = folder.path().join("joined.pcapng");
    join(&options.into, &Wanted::default(), &mut fs::File::create(&joined).expect("a file"), None).expect("all parts");
    assert_eq!(packets(&joined), [packets(&a), packets(&raw)].concat());
}

#[test]
fn a_broken_capture_is_named_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let list: Vec<_> = (0..9).map(|n| (n, udp_packet(1, 2))).collect();
    let good = capture(folder.path(), "good.pcap", &list, LinkType::ETHERNET);
    let cut = folder.path().join("cut.pcap");
    let bytes = fs::read(&good).expect("a file");
    fs::write(&cut, &bytes[..bytes.len() - 3]).expect("a file");
    let gone = folder.path().join("gone.pcap");
    let options = options(folder.path(), 2, None);
    let manifest = split(&[cut, gone.clone(), good], &options).expect("an archive");
    let told: Vec<_> = manifest.captures.iter().map(|c| (c.packets, c.problem.is_some())).collect();
    assert_eq!(told, [(8, true), (0, true), (9, false)]);
    assert_eq!(manifest.packets, 17);
    assert_eq!(Manifest::read(&options.into).expect("a manifest"), manifest);

    let refused = split(std::slice::from_ref(&gone), &options).expect_err("it is there");
    assert!(matches!(refused, Error::Exists(_)), "{refused}");
    let other = Options { into: folder.path().join("other"), ..options };
    assert!(matches!(split(std::slice::from_ref(&gone), &other), Err(Error::Nothing)));
    assert!(!folder.path().join("other.partial").exists(), "what came to nothing is removed");
    fs::create_dir(folder.path().join("other.partial")).expect("a folder");
    let refused = split(&[gone], &other).expect_err("half an archive");
    assert!(refused.to_string().contains("did not finish"), "{refused}");
}

#[test]
fn a_broken_part_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let list: Vec<_> = (0..9).map(|n| (n, udp_packet(1, 2))).collect();
    let file = capture(folder.path(), "a.pcap", &list, LinkType::ETHERNET);
    let options = options(folder.path(), 1, None);
    let name = split(&[file], &options).expect("an archive").parts[0].name.clone();
    let part = options.into.join(format!("{name}.pcapng"));
    let bytes = fs::read(&part).expect("a part");
    for (damaged, reason) in [(bytes[..bytes.len() - 5].to_vec(), "in the middle"), (vec![0; 40], "impossible length")]
    {
        fs::write(&part, damaged).expect("a part");
        let error =
            join(&options.into, &Wanted::default(), &mut Vec::new(), None).expect_err("it is broken").to_string();
        assert!(error.contains(&format!("{name}.pcapng")) && error.contains(reason), "{error}");
    }
    let error = join(&options.into, &Wanted { only: &["999-000000".to_owned()], hosts: &[] }, &mut Vec::new(), None)
        .expect_err("no part");
    assert!(matches!(error, Error::NoPart(_)));
}
