//! A test bench that sends packets to one session.
#![allow(dead_code, clippy::unwrap_used)]

use margay_flow::Direction;
use margay_packet::tcp::{TcpOptions, flag::*};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_stream::{AppData, FlowPrint, OsPolicy, Outcome, StreamConfig, StreamEngine, TcpSession, TcpState};

use Direction::{ToClient, ToServer};

/// One packet: direction, flags, sequence number, acknowledgment, payload.
#[derive(Debug, Clone)]
pub(crate) struct Pkt {
    pub(crate) to: Direction,
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: TcpOptions,
    pub(crate) time: i64,
    pub(crate) ttl: u8,
    /// Whether the IPv4 header's checksum is wrong.
    pub(crate) broken: bool,
    /// Raw option bytes, not all of which can be parsed.
    pub(crate) unreadable: Vec<u8>,
}

/// Client data; the client's next sequence number is 1001.
pub(crate) fn client(seq: u32, payload: &[u8]) -> Pkt {
    pkt(ToServer, PSH | ACK, seq, 5001, payload)
}

/// An acknowledgment from the server.
pub(crate) fn acks(ack: u32) -> Pkt {
    pkt(ToClient, ACK, 5001, ack, b"")
}

/// The packet with another acknowledgment.
pub(crate) fn acking(ack: u32, p: Pkt) -> Pkt {
    Pkt { ack, ..p }
}

/// The default settings, with hosts that are Linux.
pub(crate) fn linux() -> StreamConfig {
    let mut config = StreamConfig::default();
    config.os_policies.default = OsPolicy::Linux;
    config
}

pub(crate) fn pkt(to: Direction, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Pkt {
    let options = TcpOptions::default();
    Pkt {
        to,
        flags,
        seq,
        ack,
        payload: payload.to_vec(),
        window: 8192,
        urgent: 0,
        options,
        time: 1000,
        ttl: 64,
        broken: false,
        unreadable: Vec::new(),
    }
}

pub(crate) struct Bench {
    pub(crate) engine: StreamEngine,
    pub(crate) session: Option<Box<TcpSession>>,
    pub(crate) fresh: bool,
}

impl Bench {
    pub(crate) fn new(config: StreamConfig) -> Self {
        Bench { engine: StreamEngine::new(config), session: None, fresh: true }
    }

    /// A connection with sequence numbers 1001 (client) and 5001 (server) next.
    pub(crate) fn connected(config: StreamConfig) -> Self {
        let mut b = Bench::new(config);
        b.send(&pkt(ToServer, SYN, 1000, 0, b""));
        b.send(&pkt(ToClient, SYN | ACK, 5000, 1001, b""));
        b.send(&pkt(ToServer, ACK, 1001, 5001, b""));
        assert_eq!(b.state(), TcpState::Established);
        b
    }

    pub(crate) fn send(&mut self, p: &Pkt) -> Outcome {
        self.deliver(p, true).1
    }

    /// Sends a packet in direction `p.to` of the resumed connection; returns whether the client sent it. The session may
    /// have been picked up with the ends swapped.
    pub(crate) fn resumes(&mut self, p: &Pkt) -> Option<bool> {
        self.deliver(p, false).0
    }

    fn deliver(&mut self, p: &Pkt, whose: bool) -> (Option<bool>, Outcome) {
        let mut bytes = vec![0u8; 40];
        (bytes[0], bytes[8]) = (0x45, p.ttl);
        bytes[24..28].copy_from_slice(&p.seq.to_be_bytes());
        bytes[28..32].copy_from_slice(&p.ack.to_be_bytes());
        bytes[32] = 0x50;
        bytes[33] = p.flags;
        bytes[34..36].copy_from_slice(&p.window.to_be_bytes());
        bytes[38..40].copy_from_slice(&p.urgent.to_be_bytes());
        bytes.extend_from_slice(&p.unreadable);
        bytes.extend_from_slice(&p.payload);
        let header_len = 20 + p.unreadable.len();
        let frame = Frame {
            data: &bytes,
            wire_len: bytes.len() as u32,
            time: Time::new(p.time, 0),
            link: LinkType::RAW,
            number: 1,
        };
        let mut packet = Packet::new(&frame);
        packet.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        packet.l4 = L4::Tcp { offset: 20, header_len: header_len as u8 };
        packet.invalid = !p.unreadable.is_empty();
        packet.proto = 6;
        packet.payload = (20 + header_len as u32, p.payload.len() as u32);
        packet.tcp_options = p.options;
        // In a broken packet only the IPv4 header's checksum is wrong; all others count as correct.
        let checksum = packet.tcp_checksum().unwrap();
        let mut bytes = bytes.clone();
        bytes[36..38].copy_from_slice(&checksum.to_be_bytes());
        packet.data = &bytes;
        packet.ignore_checksums = !p.broken;
        let print = FlowPrint { hash: 7, second: p.to == ToClient };
        let of_client = self.engine.resume(&mut self.session, &packet, print);
        assert!(!whose || of_client.is_none_or(|c| c == (p.to == ToServer)));
        let out = self.engine.process(&mut self.session, &packet, p.to, std::mem::take(&mut self.fresh));
        if let Some(s) = &mut self.session {
            self.engine.account(s);
        }
        (of_client, out)
    }

    /// The flow times out.
    pub(crate) fn times_out(&mut self) {
        let session = self.session.take().unwrap();
        self.engine.remember(&session, FlowPrint { hash: 7, second: false }, 1000);
        self.engine.end(&session);
        self.fresh = true;
    }

    /// Sends all of these, except those that are dropped.
    pub(crate) fn send_all(&mut self, all: &[Pkt]) {
        for p in all {
            self.send(p);
        }
    }

    pub(crate) fn session(&mut self) -> &mut TcpSession {
        self.session.as_mut().unwrap()
    }
    pub(crate) fn state(&self) -> TcpState {
        self.session.as_ref().map_or(TcpState::None, |s| s.state())
    }

    /// The data that the application layer gets now, with gaps as `<n>`.
    pub(crate) fn read(&mut self, d: Direction, all: bool) -> String {
        let mut text = String::new();
        while let Some(data) = self.session().app_data(d, all) {
            let n = match data {
                AppData::Data { bytes, .. } => {
                    text.push_str(std::str::from_utf8(bytes).unwrap());
                    bytes.len() as u64
                }
                AppData::Gap(n) => {
                    text.push_str(&format!("<{n}>"));
                    n
                }
            };
            self.session().app_consume(d, n);
        }
        text
    }

    /// The chunks that raw inspection gets now, with previously seen data in parentheses.
    pub(crate) fn raw(&mut self, d: Direction, all: bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.session().raw_chunk(d, all) {
            let (old, new) = c.data.split_at(c.seen);
            let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
            text.push_str(&format!("({old}){new}|"));
            let end = c.offset + c.data.len() as u64;
            self.session().raw_done(d, end);
        }
        text
    }
}

pub(crate) fn events(o: &Outcome) -> Vec<&'static str> {
    o.events.as_slice().iter().map(|e| e.name()).collect()
}
