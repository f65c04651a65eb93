//! Sessions of the project's own: what client and server say becomes packets.
//!
//! The capture point is in the middle: every answer passes it half a round trip after what it answers.

use std::net::IpAddr;

use super::frame::{self, ICMP, TCP, UDP};
use super::rng::Rng;
use super::template::{Dir, Lap, Raw, Template};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// First client port within a session; an instance has its own.
const CLIENT_PORT: u16 = 40_000;
/// Nanoseconds that a byte takes: the servers' links have 1 Gbit/s.
const BYTE: u64 = 8;

/// What a kind of session may ask of the instance that it is built for.
pub(crate) struct Place {
    pub(crate) client: IpAddr,
    pub(crate) server: IpAddr,
    /// First client port.
    pub(crate) port: u16,
}

/// A TCP stream of a session.
pub(crate) struct Stream {
    /// Which of the session's client ports.
    client: u16,
    server: u16,
    /// Next sequence number by side.
    seq: [u32; 2],
    last: Dir,
    /// Segments in flight before the other side must answer.
    window: [u32; 2],
    /// Segments not acknowledged yet.
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
    frames: Vec<Raw>,
    lap: Option<Lap>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(rng: &'a mut Rng, place: Place, rtt: u64, v6: bool) -> Session<'a> {
        let mss = if v6 { 1440 } else { 1460 };
        Session { rng, place, rtt, now: 0, v6, mss, id: [1, 1], frames: Vec::new(), lap: None }
    }

    /// Half a round trip, give or take a twentieth.
    pub(crate) fn turn(&mut self) -> u64 {
        let half = self.rtt / 2;
        half - half / 20 + self.rng.below(half / 10 + 1)
    }

    pub(crate) fn wait(&mut self, ns: u64) {
        self.now += ns;
    }

    /// Ethernet and IP before `l4`, at the time `at`; everything's checksums are computed when the template is made.
    fn ip(&mut self, at: u64, dir: Dir, proto: u8, l4: &[u8]) {
        let mut f = Vec::with_capacity(60 + l4.len());
        let (a, b) = (dir as u8 + 1, dir.other() as u8 + 1);
        f.extend([2, 0, 0, 0, 0, b, 2, 0, 0, 0, 0, a]);
        if self.v6 {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend((l4.len() as u16).to_be_bytes());
            f.extend([proto, 64]);
            for n in [a, b] {
                f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]);
            }
        } else {
            let id = &mut self.id[dir as usize];
            *id = id.wrapping_add(1);
            f.extend([8, 0, 0x45, 0]);
            f.extend((l4.len() as u16 + 20).to_be_bytes());
            f.extend(id.to_be_bytes());
            f.extend([0x40, 0, 64, proto, 0, 0, 10, 0, 0, a, 10, 0, 0, b]);
        }
        f.extend(l4);
        f.resize(f.len().max(60), 0);
        self.raw(at, f);
    }

    pub(crate) fn raw(&mut self, at: u64, frame: Vec<u8>) {
        self.frames.push(Raw { at, wire_len: frame.len() as u32, frame });
    }

    /// A UDP datagram from or to client port number `client`.
    pub(crate) fn udp(&mut self, dir: Dir, client: u16, server: u16, payload: &[u8]) {
        let client = CLIENT_PORT + client;
        let (from, to) = if dir == Dir::Client { (client, server) } else { (server, client) };
        let mut l4 = Vec::with_capacity(8 + payload.len());
        l4.extend(from.to_be_bytes());
        l4.extend(to.to_be_bytes());
        l4.extend((payload.len() as u16 + 8).to_be_bytes());
        // Anything but 0, which would say that there is no checksum.
        l4.extend([0xff, 0xff]);
        l4.extend(payload);
        self.ip(self.now, dir, UDP, &l4);
    }

    /// An ICMP echo request (8, or 0 for the answer).
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

    /// One TCP segment as told, without any of a stream's courtesies.
    pub(crate) fn segment(&mut self, at: u64, s: &mut Stream, dir: Dir, flags: u8, data: &[u8]) {
        let client = CLIENT_PORT + s.client;
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

    /// A stream to the server's port from client port number `client`, nothing sent yet.
    pub(crate) fn stream(&mut self, client: u16, server: u16) -> Stream {
        Stream { client, server, seq: [1000, 2000], last: Dir::Client, window: [10, 10], pending: 0 }
    }

    /// A stream with its handshake.
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

    /// Sends `data` in segments; the other side acknowledges every second one, and the window grows as slow start lets it.
    pub(crate) fn send(&mut self, s: &mut Stream, dir: Dir, data: &[u8]) {
        if s.last != dir {
            // What was received is acknowledged with the answer.
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
        // Every second segment is acknowledged on its own; the last acknowledgement covers everything.
        for k in (0..n).rev() {
            s.seq[who.other() as usize] = all.wrapping_sub(k * 2 * self.mss as u32);
            self.segment(self.now, s, who, ACK, &[]);
            self.now += 1_000;
        }
        s.seq[who.other() as usize] = all;
        s.pending = 0;
    }

    /// `dir` closes, the other side as well.
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

    /// What is sent from here on is repeated, up to [`Session::mark_lap_end`]. Nothing sent before may come later.
    pub(crate) fn mark_lap_start(&mut self) {
        let from = self.frames.len();
        self.lap = Some(Lap { from, to: from, times: 1, time: 0, seq: [0, 0] });
    }

    /// What was sent since [`Session::mark_lap_start`] is sent so many times; each time takes `time`, and the sequence
    /// numbers of client and server so far. What follows is written as if there had been one lap.
    pub(crate) fn mark_lap_end(&mut self, times: u64, time: u64, seq: [u32; 2]) {
        let to = self.frames.len();
        if let Some(lap) = &mut self.lap {
            *lap = Lap { to, times, time, seq, ..*lap };
        }
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
