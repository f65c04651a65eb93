//! Writes a session: turns the messages of client and server into packets.
//!
//! The capture point is midway between the two: an answer passes it half a round trip after its question.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{self, ICMP, TCP, UDP};
use super::rng::Rng;
use super::template::{Dir, Lap, Raw, Template};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// First client port in a template; an instance has another.
const CLIENT_PORT: u16 = 40_000;
/// Nanoseconds to transmit a byte: the servers' links have 1 Gbit/s.
const BYTE: u64 = 8;

/// Addresses and port of the instance that a session is built for.
pub(crate) struct Place {
    pub(crate) client: IpAddr,
    pub(crate) server: IpAddr,
    /// First client port.
    pub(crate) port: u16,
}

/// A TCP stream in a session.
pub(crate) struct Stream {
    /// Index of the client's port within the session.
    client: u16,
    server: u16,
    /// Each side's next sequence number.
    seq: [u32; 2],
    last: Dir,
    /// Each side's window: segments that may be in flight before an acknowledgement.
    window: [u32; 2],
    /// Segments that are not acknowledged yet.
    pending: u32,
}

/// A session being written.
pub(crate) struct Session<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) place: Place,
    pub(crate) rtt: u64,
    pub(crate) now: u64,
    v6: bool,
    mss: usize,
    id: [u16; 2],
    /// Addresses of client and server in the frames; an instance of a template replaces them.
    ends: [IpAddr; 2],
    first_port: u16,
    /// Initial sequence numbers of client and server.
    first_seq: [u32; 2],
    frames: Vec<Raw>,
    lap: Option<Lap>,
}

/// Fields of an IPv4 header.
pub(crate) struct Header<'h> {
    pub(crate) proto: u8,
    /// Options, padded to whole 32-bit words.
    pub(crate) options: &'h [u8],
    /// Flags and fragment offset.
    pub(crate) flags: u16,
    /// The identification; `None` for the sender's next one.
    pub(crate) id: Option<u16>,
    /// The source address equals the destination address.
    pub(crate) from_itself: bool,
}

impl Header<'_> {
    /// An ordinary header: no options, "don't fragment" set.
    pub(crate) fn plain(proto: u8) -> Header<'static> {
        Header { proto, options: &[], flags: 0x4000, id: None, from_itself: false }
    }
}

/// A TCP segment that belongs to no stream.
pub(crate) struct Bare {
    pub(crate) ports: [u16; 2],
    pub(crate) seq: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
}

impl<'a> Session<'a> {
    pub(crate) fn new(rng: &'a mut Rng, place: Place, rtt: u64, v6: bool) -> Session<'a> {
        let mss = if v6 { 1440 } else { 1460 };
        let end = |n: u16| match v6 {
            true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)),
            false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, n as u8)),
        };
        Session {
            rng,
            place,
            rtt,
            now: 0,
            v6,
            mss,
            id: [1, 1],
            ends: [end(1), end(2)],
            first_port: CLIENT_PORT,
            first_seq: [1000, 2000],
            frames: Vec::new(),
            lap: None,
        }
    }

    /// A session whose frames are used as they are, not as a template. They have the place's addresses and random initial sequence
    /// numbers, and where a method takes the index of a client port, it takes the port itself.
    pub(crate) fn once(rng: &'a mut Rng, place: Place, rtt: u64) -> Session<'a> {
        let ends = [place.client, place.server];
        let (ids, seqs) = (rng.next(), rng.next());
        let mut s = Session::new(rng, place, rtt, ends[0].is_ipv6());
        (s.ends, s.first_port) = (ends, 0);
        s.id = [ids as u16, (ids >> 16) as u16];
        s.first_seq = [seqs as u32, (seqs >> 32) as u32];
        s
    }

    /// Half a round trip, plus or minus up to a twentieth of it.
    pub(crate) fn turn(&mut self) -> u64 {
        let half = self.rtt / 2;
        half - half / 20 + self.rng.below(half / 10 + 1)
    }

    pub(crate) fn wait(&mut self, ns: u64) {
        self.now += ns;
    }

    /// Adds a frame at the time `at`: Ethernet and IP headers before `l4`. [`Session::finish`] computes all checksums.
    fn ip(&mut self, at: u64, dir: Dir, proto: u8, l4: &[u8]) {
        self.packet(at, dir, &Header::plain(proto), l4);
    }

    /// The same with the given header. For IPv6, only its protocol is used.
    pub(crate) fn packet(&mut self, at: u64, dir: Dir, header: &Header<'_>, payload: &[u8]) {
        let mut f = Vec::with_capacity(60 + header.options.len() + payload.len());
        let (a, b) = (dir as u8 + 1, dir.other() as u8 + 1);
        f.extend([2, 0, 0, 0, 0, b, 2, 0, 0, 0, 0, a]);
        let target = self.ends[dir.other() as usize];
        let source = if header.from_itself { target } else { self.ends[dir as usize] };
        match (source, target) {
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                f.extend((payload.len() as u16).to_be_bytes());
                f.extend([header.proto, 64]);
                f.extend(source.octets().into_iter().chain(target.octets()));
            }
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let next = &mut self.id[dir as usize];
                *next = next.wrapping_add(1);
                let length = 20 + header.options.len() as u16;
                f.extend([8, 0, 0x40 | (length / 4) as u8, 0]);
                f.extend((payload.len() as u16 + length).to_be_bytes());
                f.extend(header.id.unwrap_or(*next).to_be_bytes());
                f.extend(header.flags.to_be_bytes());
                f.extend([64, header.proto, 0, 0]);
                f.extend(source.octets().into_iter().chain(target.octets()));
                f.extend(header.options);
            }
            // A place has addresses of one family.
            _ => return,
        }
        f.extend(payload);
        f.resize(f.len().max(60), 0);
        self.raw(at, f);
    }

    /// Sends a segment without a stream and without options.
    pub(crate) fn bare(&mut self, dir: Dir, segment: &Bare, data: &[u8]) {
        let mut l4 = Vec::with_capacity(20 + data.len());
        l4.extend(segment.ports[0].to_be_bytes());
        l4.extend(segment.ports[1].to_be_bytes());
        l4.extend(segment.seq.to_be_bytes());
        l4.extend([0, 0, 0, 0, 0x50, segment.flags]);
        l4.extend(segment.window.to_be_bytes());
        l4.extend([0, 0, 0, 0]);
        l4.extend(data);
        self.ip(self.now, dir, TCP, &l4);
    }

    /// Sends an ICMP message: type, code, and the bytes after the checksum.
    pub(crate) fn icmp(&mut self, dir: Dir, message: &[u8]) {
        let (head, rest) = message.split_at(message.len().min(2));
        self.ip(self.now, dir, ICMP, &[head, &[0, 0], rest].concat());
    }

    pub(crate) fn raw(&mut self, at: u64, frame: Vec<u8>) {
        self.frames.push(Raw { at, wire_len: frame.len() as u32, frame });
    }

    /// Sends a UDP datagram from or to client port number `client`.
    pub(crate) fn udp(&mut self, dir: Dir, client: u16, server: u16, payload: &[u8]) {
        let client = self.first_port.wrapping_add(client);
        let (from, to) = if dir == Dir::Client { (client, server) } else { (server, client) };
        let mut l4 = Vec::with_capacity(8 + payload.len());
        l4.extend(from.to_be_bytes());
        l4.extend(to.to_be_bytes());
        l4.extend((payload.len() as u16 + 8).to_be_bytes());
        // Not 0, which would mean that there is no checksum.
        l4.extend([0xff, 0xff]);
        l4.extend(payload);
        self.ip(self.now, dir, UDP, &l4);
    }

    /// Sends an ICMP or ICMPv6 echo: a request from the client, a reply from the server.
    pub(crate) fn echo(&mut self, dir: Dir, n: u16, payload: &[u8]) {
        let answer = dir == Dir::Server;
        let (proto, kind) = match (self.v6, answer) {
            (false, false) => (ICMP, 8),
            (false, true) => (ICMP, 0),
            (true, false) => (frame::ICMPV6, 128),
            (true, true) => (frame::ICMPV6, 129),
        };
        let mut l4 = vec![kind, 0, 0, 0, 0x12, 0x34];
        l4.extend(n.to_be_bytes());
        l4.extend(payload);
        self.ip(self.now, dir, proto, &l4);
    }

    /// Sends one TCP segment exactly as given, without acknowledgements or delays.
    pub(crate) fn segment(&mut self, at: u64, s: &mut Stream, dir: Dir, flags: u8, data: &[u8]) {
        let client = self.first_port.wrapping_add(s.client);
        let (from, to) = if dir == Dir::Client { (client, s.server) } else { (s.server, client) };
        let options: &[u8] = if flags & SYN != 0 {
            let mss: &[u8] = if self.v6 {
                &[2, 4, 0x05, 0xa0, 4, 2, 1, 3, 3, 7, 1, 1]
            } else {
                &[2, 4, 0x05, 0xb4, 4, 2, 1, 3, 3, 7, 1, 1]
            };
            mss
        } else {
            &[]
        };
        let mut l4 = Vec::with_capacity(32 + data.len());
        l4.extend(from.to_be_bytes());
        l4.extend(to.to_be_bytes());
        l4.extend(s.seq[dir as usize].to_be_bytes());
        let ack = if flags & ACK != 0 { s.seq[dir.other() as usize] } else { 0 };
        l4.extend(ack.to_be_bytes());
        let window: u16 = if flags & SYN != 0 {
            64_240
        } else if flags & RST != 0 {
            0
        } else {
            4096
        };
        l4.extend([((20 + options.len() as u8) / 4) << 4, flags]);
        l4.extend(window.to_be_bytes());
        l4.extend([0, 0, 0, 0]);
        l4.extend(options);
        l4.extend(data);
        self.ip(at, dir, TCP, &l4);
        let n = data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        s.seq[dir as usize] = s.seq[dir as usize].wrapping_add(n);
    }

    /// A stream from client port number `client` to port `server`. Sends nothing.
    pub(crate) fn stream(&mut self, client: u16, server: u16) -> Stream {
        Stream { client, server, seq: self.first_seq, last: Dir::Client, window: [10, 10], pending: 0 }
    }

    /// Opens a stream with a handshake.
    pub(crate) fn open(&mut self, client: u16, server: u16) -> Stream {
        let mut s = self.stream(client, server);
        self.segment(self.now, &mut s, Dir::Client, SYN, &[]);
        self.now += self.turn();
        self.segment(self.now, &mut s, Dir::Server, SYN | ACK, &[]);
        self.now += self.turn();
        self.segment(self.now, &mut s, Dir::Client, ACK, &[]);
        self.now += 20_000;
        s
    }

    /// Sends `data` in segments; the other side acknowledges every second one, and the window grows as in slow start.
    pub(crate) fn send(&mut self, s: &mut Stream, dir: Dir, data: &[u8]) {
        if s.last != dir {
            // The first segment of the answer acknowledges everything received.
            self.now += self.turn();
            s.pending = 0;
            s.last = dir;
        } else if s.pending > 0 {
            self.acknowledge(s, dir.other());
        }
        let mut flight = 0;
        let pieces = data.len().div_ceil(self.mss);
        for (n, piece) in data.chunks(self.mss).enumerate() {
            let flags = if n + 1 == pieces { PSH | ACK } else { ACK };
            self.segment(self.now, s, dir, flags, piece);
            self.now += (piece.len() as u64 + 78) * BYTE;
            s.pending += 1;
            flight += 1;
            let window = &mut s.window[dir as usize];
            if flight == *window && n + 1 < pieces {
                flight = 0;
                *window = (*window * 2).min(44);
                self.acknowledge(s, dir.other());
                self.now += self.turn();
            }
        }
    }

    /// The receiver acknowledges what it has, half a round trip later.
    fn acknowledge(&mut self, s: &mut Stream, who: Dir) {
        self.now += self.turn();
        let n = s.pending.div_ceil(2);
        let all = s.seq[who.other() as usize];
        // One acknowledgement for every second segment; the last one covers everything.
        for k in (0..n).rev() {
            s.seq[who.other() as usize] = all.wrapping_sub(k * 2 * self.mss as u32);
            self.segment(self.now, s, who, ACK, &[]);
            self.now += 1_000;
        }
        s.seq[who.other() as usize] = all;
        s.pending = 0;
    }

    /// Closes the stream from side `dir`, then from the other.
    pub(crate) fn close(&mut self, s: &mut Stream, dir: Dir) {
        if s.last == dir {
            if s.pending > 0 {
                self.acknowledge(s, dir.other());
            }
        } else {
            self.now += self.turn();
        }
        self.segment(self.now, s, dir, FIN | ACK, &[]);
        self.now += self.turn();
        self.segment(self.now, s, dir.other(), FIN | ACK, &[]);
        self.now += self.turn();
        self.segment(self.now, s, dir, ACK, &[]);
        s.last = dir;
        s.pending = 0;
    }

    /// Frames from here to [`Session::mark_lap_end`] are repeated. No earlier frame may have a later time.
    pub(crate) fn mark_lap_start(&mut self) {
        let from = self.frames.len();
        self.lap = Some(Lap { from, to: from, times: 1, time: 0, seq: [0, 0] });
    }

    /// The frames since [`Session::mark_lap_start`] are sent `times` times. Each lap takes `time` nanoseconds and advances the
    /// sequence numbers of client and server by `seq`. The caller writes the frames that follow as if there had been one lap.
    pub(crate) fn mark_lap_end(&mut self, times: u64, time: u64, seq: [u32; 2]) {
        let to = self.frames.len();
        if let Some(lap) = &mut self.lap {
            *lap = Lap { to, times, time, seq, ..*lap };
        }
    }

    /// The session's frames in time order, with correct checksums.
    pub(crate) fn frames(self) -> Vec<Raw> {
        let mut frames = self.frames;
        frames.sort_by_key(|f| f.at);
        for raw in &mut frames {
            if let Some(layout) = frame::parse(&raw.frame) {
                layout.fix(&mut raw.frame);
            }
        }
        frames
    }

    /// The session as a template.
    pub(crate) fn finish(self) -> Result<Template, String> {
        let Session { mut frames, lap, .. } = self;
        frames.sort_by_key(|f| f.at);
        let mut template = Template::new(frames, false)?;
        template.lap = lap;
        Ok(template)
    }
}
