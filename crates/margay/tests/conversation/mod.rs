//! Synthetic conversations: a capture file of TCP connections and datagrams with correct checksums, an engine run on it,
//! and the resulting events.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::{MARGAY, folder, root};

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// Most bytes of a segment.
const SEGMENT: usize = 1400;

/// The side that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

pub(crate) use Side::{Client, Server};

impl Side {
    const fn index(self) -> usize {
        self as usize
    }

    const fn other(self) -> Side {
        match self {
            Client => Server,
            Server => Client,
        }
    }
}

/// A turn in a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn<'a> {
    /// A side sends data, and the other acknowledges it.
    Say(Side, &'a [u8]),
    /// A side sent this many bytes that were acknowledged but not captured.
    Lost(Side, u32),
    /// A side resets the connection. Turns may follow: nothing says that the other side received the reset.
    Reset(Side),
}

pub(crate) use Turn::{Lost, Reset, Say};

/// The one's complement sum of RFC 1071.
fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A UDP datagram whose header fields may be wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) from: Side,
    pub(crate) client_port: u16,
    pub(crate) server_port: u16,
    pub(crate) data: &'a [u8],
    /// Error of the checksum; `None` sends no checksum.
    pub(crate) wrong_by: Option<u16>,
    /// Value of the length field, if it differs from the real length.
    pub(crate) length: Option<u16>,
}

/// A capture file of raw IPv4.
pub(crate) struct Capture {
    bytes: Vec<u8>,
    packets: u32,
}

impl Capture {
    pub(crate) fn new() -> Capture {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x3_ffff, 101] {
            bytes.extend(word.to_le_bytes());
        }
        Capture { bytes, packets: 0 }
    }

    /// The number of packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.into()
    }

    fn packet(&mut self, from: Side, protocol: u8, payload: &[u8]) {
        let (src, dst) = if from == Client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let len = u16::try_from(20 + payload.len()).expect("a packet of IPv4");
        let mut p = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p.extend(src);
        p.extend(dst);
        let sum = checksum(&[&p]);
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p.extend(payload);
        self.packets += 1;
        let (secs, micros) = (1_700_000_000 + self.packets / 1000, self.packets % 1000 * 1000);
        for word in [secs, micros, p.len() as u32, p.len() as u32] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(p);
    }

    fn pseudo(from: Side, protocol: u8, len: usize) -> Vec<u8> {
        let (src, dst) = if from == Client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        [&src[..], &dst, &[0, protocol], &(len as u16).to_be_bytes()].concat()
    }

    fn segment(&mut self, from: Side, ports: [u16; 2], seq: u32, ack: u32, flags: u8, data: &[u8]) {
        self.segment_with(from, ports, seq, ack, flags, &[], data);
    }

    #[allow(clippy::too_many_arguments)]
    fn segment_with(
        &mut self,
        from: Side,
        ports: [u16; 2],
        seq: u32,
        ack: u32,
        flags: u8,
        options: &[u8],
        data: &[u8],
    ) {
        let mut t = Vec::new();
        t.extend(ports[from.index()].to_be_bytes());
        t.extend(ports[from.other().index()].to_be_bytes());
        t.extend(seq.to_be_bytes());
        t.extend(ack.to_be_bytes());
        t.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        t.extend(options);
        t.extend(data);
        let sum = checksum(&[&Self::pseudo(from, 6, t.len()), &t]);
        t[16..18].copy_from_slice(&sum.to_be_bytes());
        self.packet(from, 6, &t);
    }

    /// A complete connection from a port of the client to one of the server.
    pub(crate) fn connection(&mut self, client_port: u16, server_port: u16, turns: &[Turn<'_>]) {
        self.open_connection(client_port, server_port, turns, true);
    }

    /// The same. Unless `close` is set, the capture ends within the connection.
    pub(crate) fn open_connection(&mut self, client_port: u16, server_port: u16, turns: &[Turn<'_>], close: bool) {
        let ports = [client_port, server_port];
        let mut next = [1000u32, 5000];
        self.segment(Client, ports, next[0], 0, 2, &[]);
        self.segment(Server, ports, next[1], next[0] + 1, 0x12, &[]);
        next = [1001, 5001];
        self.segment(Client, ports, next[0], next[1], 0x10, &[]);
        for turn in turns {
            let (side, pieces) = match *turn {
                Reset(side) => {
                    self.segment(side, ports, next[side.index()], next[side.other().index()], 0x14, &[]);
                    continue;
                }
                Say(side, data) => (side, data.chunks(SEGMENT).collect::<Vec<_>>()),
                Lost(side, bytes) => {
                    next[side.index()] = next[side.index()].wrapping_add(bytes);
                    (side, vec![])
                }
            };
            let other = side.other();
            for piece in &pieces {
                self.segment(side, ports, next[side.index()], next[other.index()], 0x18, piece);
                next[side.index()] = next[side.index()].wrapping_add(piece.len() as u32);
                self.segment(other, ports, next[other.index()], next[side.index()], 0x10, &[]);
            }
            if pieces.is_empty() {
                self.segment(other, ports, next[other.index()], next[side.index()], 0x10, &[]);
            }
        }
        if close {
            self.segment(Client, ports, next[0], next[1], 0x11, &[]);
            self.segment(Server, ports, next[1], next[0].wrapping_add(1), 0x11, &[]);
            self.segment(Client, ports, next[0].wrapping_add(1), next[1].wrapping_add(1), 0x10, &[]);
        }
    }

    /// A connection in which a side sends all its data before the other side acknowledges any. Returns the numbers of
    /// the acknowledging packets, one for each turn.
    pub(crate) fn burst(&mut self, client_port: u16, server_port: u16, turns: &[(Side, &[u8])]) -> Vec<u64> {
        self.burst_in_order(client_port, server_port, turns, false)
    }

    /// The same. With `first_last`, the first segment of each turn comes after the others.
    pub(crate) fn burst_in_order(
        &mut self,
        client_port: u16,
        server_port: u16,
        turns: &[(Side, &[u8])],
        first_last: bool,
    ) -> Vec<u64> {
        let ports = [client_port, server_port];
        let mut next = [1000u32, 5000];
        // A window scale of 2^10, so that all data fits.
        let scaled: &[u8] = &[3, 3, 10, 0];
        self.segment_with(Client, ports, next[0], 0, 2, scaled, &[]);
        self.segment_with(Server, ports, next[1], next[0] + 1, 0x12, scaled, &[]);
        next = [1001, 5001];
        self.segment(Client, ports, next[0], next[1], 0x10, &[]);
        // The windows in the handshake are not scaled (RFC 7323 section 2.2).
        self.segment(Server, ports, next[1], next[0], 0x10, &[]);
        let mut acknowledged = Vec::new();
        for &(side, data) in turns {
            let start = next[side.index()];
            let mut pieces: Vec<(u32, &[u8])> =
                data.chunks(SEGMENT).enumerate().map(|(i, p)| ((i * SEGMENT) as u32, p)).collect();
            if first_last {
                pieces.rotate_left(1);
            }
            for (at, piece) in pieces {
                self.segment(side, ports, start.wrapping_add(at), next[side.other().index()], 0x18, piece);
            }
            next[side.index()] = start.wrapping_add(data.len() as u32);
            self.segment(side.other(), ports, next[side.other().index()], next[side.index()], 0x10, &[]);
            acknowledged.push(u64::from(self.packets));
        }
        self.segment(Client, ports, next[0], next[1], 0x11, &[]);
        self.segment(Server, ports, next[1], next[0].wrapping_add(1), 0x11, &[]);
        self.segment(Client, ports, next[0].wrapping_add(1), next[1].wrapping_add(1), 0x10, &[]);
        acknowledged
    }

    /// A connection whose capture ends after the client's data, before any of it is acknowledged.
    pub(crate) fn unanswered_burst(&mut self, client_port: u16, server_port: u16, data: &[u8]) {
        let ports = [client_port, server_port];
        let scaled: &[u8] = &[3, 3, 10, 0];
        self.segment_with(Client, ports, 1000, 0, 2, scaled, &[]);
        self.segment_with(Server, ports, 5000, 1001, 0x12, scaled, &[]);
        self.segment(Client, ports, 1001, 5001, 0x10, &[]);
        self.segment(Server, ports, 5001, 1001, 0x10, &[]);
        for (i, piece) in data.chunks(SEGMENT).enumerate() {
            self.segment(Client, ports, 1001 + (i * SEGMENT) as u32, 5001, 0x18, piece);
        }
    }

    pub(crate) fn datagram(&mut self, d: Datagram<'_>) {
        let ports = [d.client_port, d.server_port];
        let length = d.length.unwrap_or(8 + d.data.len() as u16);
        let mut u = Vec::new();
        u.extend(ports[d.from.index()].to_be_bytes());
        u.extend(ports[d.from.other().index()].to_be_bytes());
        u.extend(length.to_be_bytes());
        u.extend([0, 0]);
        u.extend(d.data);
        if let Some(by) = d.wrong_by {
            let covered = u.get(..usize::from(length)).unwrap_or(&u);
            let sum = match checksum(&[&Self::pseudo(d.from, 17, covered.len()), covered]).wrapping_add(by) {
                0 => 0xffff,
                sum => sum,
            };
            u[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        self.packet(d.from, 17, &u);
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).expect("a capture");
    }
}

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) dir: PathBuf,
    pub(crate) output: Output,
}

/// Runs the engine on a capture file with the shipped configuration and these rules. `more` are further arguments.
pub(crate) fn run_on(name: &str, pcap: &Path, rules: &str, more: &[&str]) -> Ran {
    let dir = folder(name);
    std::fs::write(dir.join("test.rules"), rules).expect("rules");
    let root = root();
    let set = |name: &str, file: &str| format!("{name}={}", root.join(file).display());
    let mut command = Command::new(MARGAY);
    command
        .arg("-c")
        .arg(root.join("etc/margay.yaml"))
        .args(["--set", &set("classification-file", "etc/classification.config")])
        .args(["--set", &set("reference-config-file", "etc/reference.config")])
        .args(["--set", "vars.address-groups.HOME_NET=any", "--set", "vars.address-groups.EXTERNAL_NET=any"])
        .arg("--init-errors-fatal")
        .arg("-l")
        .arg(&dir)
        .arg("-r")
        .arg(pcap)
        .arg("-S")
        .arg(dir.join("test.rules"))
        .args(more);
    let output = command.output().expect("the engine starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ran { dir, output }
}

/// Runs the engine on a synthetic capture.
pub(crate) fn run(name: &str, capture: &Capture, rules: &str, more: &[&str]) -> Ran {
    let pcap = folder(&format!("{name}-capture")).join("in.pcap");
    capture.write(&pcap);
    run_on(name, &pcap, rules, more)
}

impl Ran {
    /// The events of a type, in order.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.join("eve.json")).expect("events");
        let all = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
        all.filter(|e| e["event_type"] == kind).collect()
    }

    /// The sids of the alerts, in order.
    pub(crate) fn sids(&self) -> Vec<u64> {
        self.events("alert").iter().filter_map(|e| e["alert"]["signature_id"].as_u64()).collect()
    }

    /// A counter in the last statistics; 0 if there is none with that name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.find_counter(name).unwrap_or(0)
    }

    /// The same; `None` if there is none with that name.
    pub(crate) fn find_counter(&self, name: &str) -> Option<u64> {
        let last = self.events("stats").pop().expect("statistics");
        name.split('.').fold(&last["stats"], |at, part| &at[part]).as_u64()
    }

    /// The engine's standard error and output.
    pub(crate) fn said(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&self.output.stderr) + &text(&self.output.stdout)
    }
}
