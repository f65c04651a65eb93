//! Targets for frames: `capture`, `decode`, `defrag`, `fragments`, `filter`.

use std::cell::RefCell;
use std::io::Read;
use std::path::Path;

use margay_capture::{Counters, Filter, Reader};
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, PacketSource, Time};

use crate::check;

/// A source that returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.min(to.len()).min(self.0.len());
        let (now, rest) = self.0.split_at(n);
        to[..n].copy_from_slice(now);
        self.0 = rest;
        Ok(n)
    }
}

/// All frames of a capture that arrives in pieces, and the error at its end.
fn frames(data: &[u8], size: usize) -> (Vec<String>, Counters, Option<String>) {
    let mut reader = match Reader::new(Pieces(data, size), Path::new("(memory)")) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Counters::default(), Some(e.to_string())),
    };
    let mut list = Vec::new();
    loop {
        match reader.next_batch(256) {
            Ok(Some(batch)) => list.extend(batch.iter().map(|f| format!("{f:?}"))),
            end => {
                let error = end.err().map(|e| e.to_string());
                assert!(reader.next_batch(256).is_ok_and(|b| b.is_none()), "there is something behind the end");
                return (list, reader.counters(), error);
            }
        }
    }
}

/// Capture readers: any bytes as a file. The frames must be the same, however it is read.
pub fn capture(data: &[u8]) {
    let (counters, error) = margay_capture::drain(data);
    assert!(counters.frames <= data.len() as u64, "more frames than bytes");
    if data.len() > 16 << 10 {
        return;
    }
    let whole = frames(data, usize::MAX);
    assert_eq!((whole.1.frames, whole.2.as_ref()), (counters.frames, error.map(|e| e.to_string()).as_ref()));
    for size in [1, 7, 1021] {
        assert_eq!(frames(data, size), whole, "read {size} bytes at a time");
    }
}

/// Link types, by their index in inputs of `decode`.
pub(crate) const LINKS: [LinkType; 11] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::NULL,
    LinkType::PPP,
    LinkType::CHDLC,
    LinkType::LOOP,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType(147),
];

/// The decoder: the first byte selects the link type, and the rest is one frame.
pub fn decode(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let link = LINKS[usize::from(first) % LINKS.len()];
    let mut seen = 0u32;
    let frame = Frame { data, wire_len: data.len() as u32, time: Time::new(1, 0), link, number: 1 };
    let mut decoder = Decoder::new(DecodeConfig { vntag: true, ..DecodeConfig::default() });
    decoder.decode(&frame, &mut |p: &Packet<'_>| {
        check(p);
        seen += 1;
    });
    assert!((1..=64).contains(&seen), "{seen} packets from one frame");
}

/// The defragmenter: many raw IP packets, each after a byte with its length and a byte with its time.
pub fn defrag(data: &[u8]) {
    let mut decoder = Decoder::new(DecodeConfig::default());
    let (mut rest, mut now) = (data, 1_000_000i64);
    let mut number = 0;
    while let [len, wait, tail @ ..] = rest {
        let (packet, next) = tail.split_at((usize::from(*len)).min(tail.len()));
        rest = next;
        now += i64::from(*wait) * 250_000;
        number += 1;
        let frame = Frame { data: packet, wire_len: packet.len() as u32, time: Time(now), link: LinkType::RAW, number };
        decoder.decode(&frame, &mut |p: &Packet<'_>| {
            check(p);
            assert!(p.data.len() <= 70_000, "a datagram of {} bytes", p.data.len());
        });
    }
}

/// An IP packet of protocol `proto`, as a fragment or whole. `fragment` has the offset, and whether more fragments follow.
fn ip(six: bool, proto: u8, body: &[u8], fragment: Option<(usize, bool)>) -> Vec<u8> {
    if six {
        let extra = if fragment.is_some() { 8 } else { 0 };
        let mut p = vec![0x60, 0, 0, 0, 0, 0, if extra > 0 { 44 } else { proto }, 64];
        p[4..6].copy_from_slice(&((body.len() + extra) as u16).to_be_bytes());
        p.extend([[0xfd; 16], [0xfe; 16]].concat());
        if let Some((offset, more)) = fragment {
            p.extend([proto, 0]);
            p.extend((offset as u16 | u16::from(more)).to_be_bytes());
            p.extend([0, 0, 0, 9]);
        }
        p.extend_from_slice(body);
        return p;
    }
    let mut p = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    p[2..4].copy_from_slice(&((body.len() + 20) as u16).to_be_bytes());
    if let Some((offset, more)) = fragment {
        p[6..8].copy_from_slice(&((offset / 8) as u16 | if more { 0x2000 } else { 0 }).to_be_bytes());
    }
    p.extend_from_slice(body);
    p
}

/// The properties of a packet that do not depend on fragmentation.
fn seen(p: &Packet<'_>) -> String {
    let events: Vec<_> = p.events.as_slice().iter().map(|e| format!("{e:?}")).collect();
    format!("{} {} {} {} {events:?}", p.proto, p.sport, p.dport, p.payload().escape_ascii())
}

/// A datagram cut into fragments: options (1: IPv6; 2: TCP, otherwise UDP; 4: one fragment arrives twice), a byte for their
/// order, the number of cuts, a byte with the place of each, and the IP payload. Any order must give the same result as the
/// whole datagram.
pub fn fragments(data: &[u8]) {
    let [options, order, count, rest @ ..] = data else { return };
    let (cuts, body) = rest.split_at(usize::from(count % 16).min(rest.len()));
    if body.len() < 16 || body.len() > 4096 {
        return;
    }
    let (six, proto) = (options & 1 != 0, if options & 2 != 0 { 6 } else { 17 });
    let mut places: Vec<usize> =
        cuts.iter().map(|&c| usize::from(c) * 8).filter(|&c| c > 0 && c < body.len()).collect();
    places.extend([0, body.len()]);
    places.sort_unstable();
    places.dedup();
    if places.len() < 3 {
        return;
    }
    let mut list: Vec<Vec<u8>> =
        places.windows(2).map(|w| ip(six, proto, &body[w[0]..w[1]], Some((w[0], w[1] < body.len())))).collect();
    let mut dice = u32::from(*order);
    for n in (1..list.len()).rev() {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        list.swap(n, (dice >> 16) as usize % (n + 1));
    }
    if options & 4 != 0 {
        // Do not repeat the last one, which would begin another datagram.
        let again = list[usize::from(*order) % (list.len() - 1)].clone();
        list.insert(list.len() - 1, again);
    }
    let config = DecodeConfig::default();
    let run = |packets: &[Vec<u8>], wanted: PacketSource| {
        let (mut decoder, mut out) = (Decoder::new(config.clone()), Vec::new());
        for (bytes, number) in packets.iter().zip(1..) {
            let wire_len = bytes.len() as u32;
            let frame = Frame { data: bytes, wire_len, time: Time::new(1, 0), link: LinkType::RAW, number };
            decoder.decode(&frame, &mut |p: &Packet<'_>| {
                check(p);
                if p.source == wanted {
                    out.push(seen(p));
                }
            });
        }
        out
    };
    let whole = run(&[ip(six, proto, body, None)], PacketSource::Wire);
    let together = run(&list, PacketSource::Defrag);
    assert_eq!(whole, together, "in {} fragments", list.len());
}

/// Filter expressions that cover every kind of instruction that libpcap generates.
const FILTERS: [&str; 16] = [
    "tcp port 80",
    "udp and not port 53",
    "ip6 and tcp[13] & 2 != 0",
    "ip[0] & 0xf > 5",
    "ip6[6] == 44 or ip[6:2] & 0x1fff != 0",
    "host 10.0.0.1 and greater 100",
    "less 60 or ip[2:2] > 576",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src and dst net 10.0.0.0/8",
    "ether[12:2] = 0x800 and ether[((ether[14] & 0xf) << 2) + 14:2] = 80",
    "net 10.0.0.0/8 and portrange 20-1024",
    "icmp or icmp6 or arp",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "len * 2 - 3 > 100 and len / 3 < 400 and len % 7 != 0",
    "ip multicast or ether broadcast",
    "udp[8:4] ^ 0xff = 3 or -len < 0",
    "sctp or pppoes or mpls or vlan",
];

/// Filters on a frame: the first byte selects filter and link type. Our result must equal libpcap's.
pub fn filter(data: &[u8]) {
    type Made = Option<(Filter, pcap::BpfProgram)>;
    thread_local! {
        static MADE: RefCell<Vec<Option<Made>>> = RefCell::new((0..FILTERS.len() * 4).map(|_| None).collect());
    }
    const LINKS: [LinkType; 4] = [LinkType::ETHERNET, LinkType::IPV4, LinkType::LINUX_SLL, LinkType::PPP];
    let Some((&which, frame)) = data.split_first() else { return };
    let (which, link) = (usize::from(which) % FILTERS.len(), usize::from(which) / FILTERS.len() % LINKS.len());
    MADE.with_borrow_mut(|made| {
        let made = made[which * LINKS.len() + link].get_or_insert_with(|| {
            let ours = Filter::compile(FILTERS[which], LINKS[link]).ok()?;
            let dead = pcap::Capture::dead(pcap::Linktype(LINKS[link].0 as i32)).ok()?;
            Some((ours, dead.compile(FILTERS[which], true).ok()?))
        });
        let Some((ours, theirs)) = made else { return };
        assert_eq!(ours.matches(frame, frame.len() as u32), theirs.filter(frame), "{}", FILTERS[which]);
        let _ = ours.matches(frame, u32::MAX);
    });
}
