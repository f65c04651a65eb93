//! Raw IP captures, built packet by packet.
#![allow(dead_code)]

use std::path::Path;

/// A capture of TCP segments and UDP datagrams between two hosts, by default 10.0.0.1 and 10.0.0.2.
pub(crate) struct Capture(Vec<u8>);

pub(crate) const SYN: u8 = 2;
pub(crate) const PUSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// The sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}
use Side::{Client, Server};

impl Capture {
    /// Takes the bytes of a capture file.
    pub(crate) fn of(bytes: Vec<u8>) -> Capture {
        Capture(bytes)
    }

    /// Creates an empty capture.
    pub(crate) fn new() -> Capture {
        // Microseconds, raw IP.
        let words = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0xffff, 101];
        Capture(words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    pub(crate) fn ip(&mut self, millis: u32, from: Side, proto: u8, transport: &[u8]) {
        self.between(millis, ([10, 0, 0, 1], [10, 0, 0, 2]), from, proto, transport);
    }

    /// Adds a packet between a client and a server.
    pub(crate) fn between(
        &mut self,
        millis: u32,
        (client, server): ([u8; 4], [u8; 4]),
        from: Side,
        proto: u8,
        transport: &[u8],
    ) {
        let (src, dst) = if from == Server { (server, client) } else { (client, server) };
        let mut p = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, proto, 0, 0];
        p[2..4].copy_from_slice(&(20 + transport.len() as u16).to_be_bytes());
        p.extend(src);
        p.extend(dst);
        let sum: u32 = p.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p.extend(transport);
        let (seconds, micros) = (1_700_000_000 + millis / 1000, millis % 1000 * 1000);
        for word in [seconds, micros, p.len() as u32, p.len() as u32] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(p);
    }

    pub(crate) fn ports(from: Side, (client, server): (u16, u16)) -> Vec<u8> {
        let ports = if from == Server { [server, client] } else { [client, server] };
        ports.iter().flat_map(|p| p.to_be_bytes()).collect()
    }

    pub(crate) fn tcp(
        &mut self,
        millis: u32,
        from: Side,
        ports: (u16, u16),
        (seq, ack): (u32, u32),
        flags: u8,
        data: &[u8],
    ) {
        let mut t = Self::ports(from, ports);
        t.extend(seq.to_be_bytes());
        t.extend(ack.to_be_bytes());
        t.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        t.extend(data);
        self.ip(millis, from, 6, &t);
    }

    pub(crate) fn udp(&mut self, millis: u32, from: Side, ports: (u16, u16), data: &[u8]) {
        let mut u = Self::ports(from, ports);
        u.extend((8 + data.len() as u16).to_be_bytes());
        u.extend([0, 0]);
        u.extend(data);
        self.ip(millis, from, 17, &u);
    }

    /// The bytes of the capture file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }

    /// Writes it to a file.
    pub(crate) fn write(&self, file: &Path) {
        std::fs::write(file, &self.0).expect("a capture is written");
    }

    /// Adds a handshake that the client begins.
    pub(crate) fn open(&mut self, millis: u32, ports: (u16, u16), (client, server): (u32, u32)) {
        self.tcp(millis, Client, ports, (client, 0), SYN, b"");
        self.tcp(millis + 1, Server, ports, (server, client + 1), SYN | ACK, b"");
        self.tcp(millis + 2, Client, ports, (client + 1, server + 1), ACK, b"");
    }
}
