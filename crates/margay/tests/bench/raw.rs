//! A host whose packets the test builds byte by byte. It shares the client's interface, with addresses that no system
//! answers for. A tap reads the frames of an interface.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{Ns, PATIENCE, packet_socket};

/// TCP flags.
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;
pub(crate) const URG: u8 = 32;

/// Numbers of protocols and extension headers.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const DESTINATION: u8 = 60;
const FRAGMENT: u8 = 44;

/// The Ethernet address of the host.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

/// Reads and writes an interface's frames, as they are on the wire.
pub(crate) struct Tap(OwnedFd);

impl Tap {
    pub(crate) fn on(ns: &Ns, interface: &str) -> Tap {
        let options = [(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)];
        Tap(ns.run(|| packet_socket(interface, &options)))
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        let end = Instant::now() + PATIENCE;
        // SAFETY: the frame has the given length.
        while unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) } < 0 {
            assert!(Instant::now() < end, "{}", std::io::Error::last_os_error());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The next frame, if there is one.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        // SAFETY: the buffer has the given length.
        let n = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(n).ok()?);
        Some(frame)
    }

    /// Waits for an IP packet for which `look` returns a value.
    pub(crate) fn until<T>(&self, what: &str, look: impl Fn(&Ip<'_>) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.next() {
                Some(frame) => {
                    if let Some(found) = ip_of(&frame).and_then(|ip| look(&ip)) {
                        return found;
                    }
                }
                None => {
                    assert!(Instant::now() < end, "{what}: it does not come");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

/// An IP packet without options or extension headers. Its checksums are checked.
#[derive(Debug)]
pub(crate) struct Ip<'a> {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) proto: u8,
    pub(crate) payload: &'a [u8],
    /// Whether the checksums of IP and of TCP, UDP or ICMP are correct.
    pub(crate) right: bool,
}

fn half(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// The IP packet in an Ethernet frame.
pub(crate) fn ip_of(frame: &[u8]) -> Option<Ip<'_>> {
    packet_of(frame.get(14..)?)
}

/// Parses an IP packet.
pub(crate) fn packet_of(b: &[u8]) -> Option<Ip<'_>> {
    let (src, dst, proto, payload, mut right): (IpAddr, IpAddr, _, _, _) = match b.first()? >> 4 {
        4 => {
            let header = usize::from(b[0] & 15) * 4;
            let address = |at: usize| b.get(at..at + 4)?.first_chunk::<4>().map(|a| IpAddr::from(*a));
            let whole = b.get(..usize::from(half(b, 2)).min(b.len()))?;
            (address(12)?, address(16)?, *b.get(9)?, whole.get(header..)?, sum(&[b.get(..header)?]) == 0)
        }
        6 => {
            let address = |at: usize| b.get(at..at + 16)?.first_chunk::<16>().map(|a| IpAddr::from(*a));
            let whole = b.get(..(40 + usize::from(half(b, 4))).min(b.len()))?;
            (address(8)?, address(24)?, *b.get(6)?, whole.get(40..)?, true)
        }
        _ => return None,
    };
    right &= match proto {
        1 => sum(&[payload]) == 0,
        TCP | UDP | 58 => sum(&[&pseudo(src, dst, proto, payload.len()), payload]) == 0,
        _ => true,
    };
    Some(Ip { src, dst, proto, payload, right })
}

impl Ip<'_> {
    pub(crate) fn ports(&self) -> (u16, u16) {
        (half(self.payload, 0), half(self.payload, 2))
    }
    pub(crate) fn tcp_flags(&self) -> u8 {
        if self.proto == TCP { self.payload.get(13).copied().unwrap_or(0) } else { 0 }
    }
    /// Sequence number and acknowledgment.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let word = |at: usize| self.payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        (word(4), word(8))
    }
}

/// The Internet checksum of consecutive parts. All but the last have an even length.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn octets(a: IpAddr) -> Vec<u8> {
    match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn pseudo(src: IpAddr, dst: IpAddr, proto: u8, len: usize) -> Vec<u8> {
    let mut out = [octets(src), octets(dst)].concat();
    out.extend((len as u32).to_be_bytes());
    out.extend([0, 0, 0, proto]);
    out
}

/// The host, which sends to the next hop.
pub(crate) struct Raw<'a> {
    pub(crate) tap: &'a Tap,
    /// The Ethernet address of the next hop.
    pub(crate) next: [u8; 6],
    pub(crate) src: IpAddr,
    pub(crate) to: SocketAddr,
    /// TTL or hop limit of its packets.
    pub(crate) ttl: u8,
    /// Sends IPv4 headers with wrong checksums.
    pub(crate) broken: bool,
    /// Sends IPv6 headers with length 0.
    pub(crate) sizeless: bool,
    /// Extension headers of its IPv6 packets. Each has a 6-byte option that receivers skip.
    pub(crate) extensions: &'a [u8],
}

/// One segment. The defaults are those of a normal segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) flags: u8,
    /// Offset in the stream, from its first byte.
    pub(crate) at: i64,
    pub(crate) data: &'a [u8],
    pub(crate) ttl: Option<u8>,
    /// Sends a wrong checksum.
    pub(crate) broken: bool,
    pub(crate) urgent: u16,
    /// Options, a multiple of 4 bytes.
    pub(crate) options: &'a [u8],
    /// Offset added to the acknowledgment number.
    pub(crate) ack: i64,
}

pub(crate) const SEGMENT: Segment<'static> =
    Segment { flags: PSH | ACK, at: 0, data: b"", ttl: None, broken: false, urgent: 0, options: &[], ack: 0 };

pub(crate) fn data(at: i64, data: &[u8]) -> Segment<'_> {
    Segment { at, data, ..SEGMENT }
}

/// A TCP connection of the host.
pub(crate) struct Connection<'r, 'a> {
    raw: &'r Raw<'a>,
    pub(crate) port: u16,
    isn: u32,
    ack: u32,
}

impl<'a> Raw<'a> {
    /// Extension headers before a fragment header, and those after it (RFC 8200 section 4.1).
    fn parts(&self) -> (&[u8], &[u8]) {
        match (self.src, self.extensions) {
            (IpAddr::V4(_), _) => (&[], &[]),
            (_, [HOP_BY_HOP, ..]) => self.extensions.split_at(1),
            (_, all) => (&[], all),
        }
    }

    /// An IP packet, without a link layer.
    fn ip(&self, proto: u8, payload: &[u8], ttl: u8, id: u16, cut: Option<(usize, bool)>) -> Vec<u8> {
        match (self.src, self.to.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let cut = cut.map_or(0, |(at, more)| (at / 8) as u16 | if more { 0x2000 } else { 0 });
                let mut h = vec![0x45, 0];
                h.extend((20 + payload.len() as u16).to_be_bytes());
                h.extend(id.to_be_bytes());
                h.extend(cut.to_be_bytes());
                h.extend([ttl, proto, 0, 0]);
                h.extend(src.octets());
                h.extend(dst.octets());
                let check = sum(&[&h]) ^ if self.broken { 0x5555 } else { 0 };
                h[10..12].copy_from_slice(&check.to_be_bytes());
                h.extend_from_slice(payload);
                h
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (before, _) = self.parts();
                let (extensions, proto, body) = match cut {
                    Some((at, more)) => {
                        let word = (at as u16 & 0xfff8) | u16::from(more);
                        let mut b = vec![proto, 0];
                        b.extend(word.to_be_bytes());
                        b.extend(u32::from(id).to_be_bytes());
                        b.extend_from_slice(payload);
                        (before, FRAGMENT, b)
                    }
                    None => (self.extensions, proto, payload.to_vec()),
                };
                let body = extended(extensions, proto, &body);
                let first = extensions.first().copied().unwrap_or(proto);
                let mut h = vec![0x60, 0, 0, 0];
                h.extend(if self.sizeless { 0 } else { body.len() as u16 }.to_be_bytes());
                h.extend([first, ttl]);
                h.extend(src.octets());
                h.extend(dst.octets());
                h.extend(body);
                h
            }
            _ => unreachable!("addresses of one family"),
        }
    }

    fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if self.src.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        [&self.next[..], &MAC, &kind, packet].concat()
    }

    fn send(&self, packet: &[u8]) {
        self.tap.send(&self.frame(packet));
    }

    /// A UDP datagram, with its header.
    pub(crate) fn datagram(&self, port: u16, words: &[u8]) -> Vec<u8> {
        let len = 8 + words.len();
        let mut d = Vec::new();
        for n in [port, self.to.port(), len as u16, 0] {
            d.extend(n.to_be_bytes());
        }
        d.extend_from_slice(words);
        let check = sum(&[&pseudo(self.src, self.to.ip(), UDP, len), &d]);
        d[6..8].copy_from_slice(&if check == 0 { 0xffff } else { check }.to_be_bytes());
        d
    }

    /// Sends a datagram with length 0.
    pub(crate) fn udp_sizeless(&self, port: u16, words: &[u8]) {
        let mut d = self.datagram(port, words);
        d[4..8].fill(0);
        let check = sum(&[&pseudo(self.src, self.to.ip(), UDP, d.len()), &d]);
        d[6..8].copy_from_slice(&check.to_be_bytes());
        self.send(&self.ip(UDP, &d, self.ttl, 1, None));
    }

    pub(crate) fn udp(&self, port: u16, words: &[u8]) {
        self.send(&self.ip(UDP, &self.datagram(port, words), self.ttl, 1, None));
    }

    /// Size of the extension headers that fragmentation splits as well.
    pub(crate) fn inside(&self) -> usize {
        8 * self.parts().1.len()
    }

    /// Sends a packet in fragments. Each piece is a range of the payload; they are sent in the given order.
    pub(crate) fn fragments(&self, proto: u8, payload: &[u8], id: u16, pieces: &[(usize, usize)]) {
        let (_, inside) = self.parts();
        let whole = extended(inside, proto, payload);
        let proto = inside.first().copied().unwrap_or(proto);
        for &(from, to) in pieces {
            let to = to.min(whole.len());
            self.send(&self.ip(proto, &whole[from..to], self.ttl, id, Some((from, to < whole.len()))));
        }
    }

    /// A TCP segment with its header.
    pub(crate) fn segment(&self, port: u16, seq: u32, ack: u32, s: &Segment<'_>) -> Vec<u8> {
        let mut t = Vec::new();
        t.extend(port.to_be_bytes());
        t.extend(self.to.port().to_be_bytes());
        t.extend(seq.to_be_bytes());
        t.extend(if s.flags & ACK == 0 { 0 } else { ack }.to_be_bytes());
        t.extend([((20 + s.options.len()) as u8 / 4) << 4, s.flags]);
        t.extend(u16::MAX.to_be_bytes());
        t.extend([0, 0]);
        t.extend(s.urgent.to_be_bytes());
        t.extend_from_slice(s.options);
        t.extend_from_slice(s.data);
        let check = sum(&[&pseudo(self.src, self.to.ip(), TCP, t.len()), &t]) ^ if s.broken { 0x5555 } else { 0 };
        t[16..18].copy_from_slice(&check.to_be_bytes());
        t
    }

    /// Opens a connection from that port. `syn` holds the special properties of its SYN.
    pub(crate) fn connect(&self, port: u16, syn: &Segment<'_>) -> Connection<'_, 'a> {
        let isn = u32::from(port) << 12;
        let syn = Segment { flags: SYN, ..*syn };
        let end = Instant::now() + PATIENCE;
        let server = 'answered: loop {
            assert!(Instant::now() < end, "port {port}: no answer");
            self.send(&self.ip(TCP, &self.segment(port, isn, 0, &syn), self.ttl, 1, None));
            let again = Instant::now() + Duration::from_secs(2);
            while Instant::now() < again {
                let Some(frame) = self.tap.next() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let answer = ip_of(&frame).filter(|ip| {
                    ip.dst == self.src && ip.ports() == (self.to.port(), port) && ip.tcp_flags() == SYN | ACK
                });
                if let Some(ip) = answer {
                    break 'answered ip.numbers().0;
                }
            }
        };
        let c = Connection { raw: self, port, isn, ack: server.wrapping_add(1) };
        c.send(&Segment { flags: ACK, options: &[], ..SEGMENT });
        c
    }
}

/// Writes the extension headers, each with 6 bytes of padding, and the payload after them.
fn extended(extensions: &[u8], proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0..extensions.len() {
        out.extend([extensions.get(n + 1).copied().unwrap_or(proto), 0, 1, 4, 0, 0, 0, 0]);
    }
    out.extend_from_slice(payload);
    out
}

impl Connection<'_, '_> {
    /// The sequence number of an offset in the stream.
    pub(crate) fn seq(&self, at: i64) -> u32 {
        (i64::from(self.isn) + 1 + at) as u32
    }

    fn bytes(&self, s: &Segment<'_>) -> Vec<u8> {
        let seq = self.seq(s.at);
        let ack = (i64::from(self.ack) + s.ack) as u32;
        self.raw.segment(self.port, seq, ack, s)
    }

    pub(crate) fn send(&self, s: &Segment<'_>) {
        let packet = self.raw.ip(TCP, &self.bytes(s), s.ttl.unwrap_or(self.raw.ttl), 1, None);
        self.raw.send(&packet);
    }

    pub(crate) fn send_all(&self, all: &[Segment<'_>]) {
        all.iter().for_each(|s| self.send(s));
    }

    /// Acknowledges this side's data in the server's name. The packet goes to `next`.
    pub(crate) fn forged_ack(&self, at: i64, next: [u8; 6]) {
        let own = self.raw;
        let (src, to) = (own.to.ip(), SocketAddr::new(own.src, self.port));
        let server = Raw { tap: own.tap, next, src, to, ttl: 64, broken: false, sizeless: false, extensions: &[] };
        let ack = server.segment(own.to.port(), self.ack, self.seq(at), &Segment { flags: ACK, ..SEGMENT });
        server.send(&server.ip(TCP, &ack, 64, 1, None));
    }

    /// Sends a segment in fragments.
    pub(crate) fn fragments(&self, s: &Segment<'_>, id: u16, pieces: &[(usize, usize)]) {
        self.raw.fragments(TCP, &self.bytes(s), id, pieces);
    }
}
