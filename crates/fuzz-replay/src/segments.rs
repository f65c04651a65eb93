//! The target `segments`: a TCP conversation through a whole worker, with its bytes cut into segments in several ways. Detected
//! protocol, log and alerts must be the same.

use std::cell::RefCell;
use std::collections::BTreeSet;

use margay_engine::replay::Bed;
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_packet::Time;
use serde_json::Value;

use crate::folder::folder;
use crate::http1::has_tail;
use crate::talk::{Act, app_config, same, script};

/// Most bytes of a conversation, because each way of cutting runs separately.
pub(crate) const BYTES_MAX: usize = 4096;

/// Server ports, which the first byte selects.
pub(crate) const PORTS: [u16; 16] = [80, 443, 25, 21, 22, 53, 445, 135, 139, 8080, 110, 143, 5060, 3306, 1, 40_001];

const YAML: &str = "%YAML 1.1
---
vars:
  address-groups: {HOME_NET: any, EXTERNAL_NET: any}
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types:
        - alert
        - http: {extended: yes}
        - http2
        - dns: {version: 3}
        - tls: {extended: yes}
        - smtp: {extended: yes}
        - ssh
        - smb
        - dcerpc
        - ftp
        - files
stats: {enabled: no}
flow: {hash-size: 64, prealloc: 0}
stream: {prealloc-sessions: 0, checksum-validation: no, inline: no, reassembly: {depth: 0}}
app-layer:
  protocols:
    tls: {enabled: yes, ja3-fingerprints: yes}
    ssh: {enabled: yes, hassh: yes}
margay: {writer-thread: no}
";

/// Rules on values of transactions, which are inspected when complete, and on the stream, with short patterns.
const RULES: &str = r#"alert http any any -> any any (msg:"uri"; http.uri; content:"a"; sid:1;)
alert http any any -> any any (msg:"host"; http.host; content:"example"; sid:2;)
alert http any any -> any any (msg:"method"; http.method; content:"POST"; sid:3;)
alert http any any -> any any (msg:"code"; http.stat_code; content:"200"; sid:4;)
alert tls any any -> any any (msg:"sni"; tls.sni; content:"e"; sid:5;)
alert ssh any any -> any any (msg:"software"; ssh.software; content:"OpenSSH"; sid:6;)
alert ftp any any -> any any (msg:"command"; ftp.command; content:"RETR"; sid:7;)
alert smtp any any -> any any (msg:"helo"; smtp.helo; content:"e"; sid:8;)
alert dns any any -> any any (msg:"query"; dns.query; content:"e"; sid:9;)
alert smb any any -> any any (msg:"user"; smb.ntlmssp_user; content:"a"; nocase; sid:10;)
"#;

/// Writes the packets of a TCP connection. `next` has each side's next sequence number.
struct Wire {
    frames: Vec<(Time, Vec<u8>)>,
    next: [u32; 2],
    port: u16,
    now: i64,
}

const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;

impl Wire {
    fn new(port: u16) -> Wire {
        let mut w = Wire { frames: Vec::new(), next: [1000, 2000], port, now: 1_000_000_000 };
        w.send(ToServer, SYN, 1000, &[]);
        w.next[0] += 1;
        w.send(ToClient, SYN | ACK, 2000, &[]);
        w.next[1] += 1;
        w.ack(ToServer);
        w
    }

    fn send(&mut self, dir: Direction, flags: u8, seq: u32, data: &[u8]) {
        let mut p = vec![0u8; 40];
        p[0] = 0x45;
        p[2..4].copy_from_slice(&((40 + data.len()) as u16).to_be_bytes());
        p[8..10].copy_from_slice(&[64, 6]);
        let ends: [[u8; 4]; 2] = [[10, 0, 0, 0], [11, 0, 0, 0]];
        let ports = [40_000, self.port];
        let (from, to) = if dir == ToServer { (0, 1) } else { (1, 0) };
        p[12..16].copy_from_slice(&ends[from]);
        p[16..20].copy_from_slice(&ends[to]);
        p[20..22].copy_from_slice(&ports[from].to_be_bytes());
        p[22..24].copy_from_slice(&ports[to].to_be_bytes());
        p[24..28].copy_from_slice(&seq.to_be_bytes());
        if flags != SYN {
            p[28..32].copy_from_slice(&self.next[1 - dir.index()].to_be_bytes());
        }
        p[32..36].copy_from_slice(&[0x50, flags, 0xff, 0xff]);
        p.extend_from_slice(data);
        self.now += 1000;
        self.frames.push((Time(self.now), p));
    }

    fn ack(&mut self, dir: Direction) {
        self.send(dir, ACK, self.next[dir.index()], &[]);
    }

    /// Sends bytes in segments of `size`, each acknowledged at once. If `mixed`, sends them in reverse order, one of them twice, and
    /// acknowledges them together.
    fn bytes(&mut self, dir: Direction, data: &[u8], size: usize, mixed: bool) {
        let start = self.next[dir.index()];
        let mut list: Vec<(u32, &[u8])> =
            data.chunks(size).enumerate().map(|(n, piece)| (start.wrapping_add((n * size) as u32), piece)).collect();
        if mixed {
            list.reverse();
            list.extend(list.first().copied());
        }
        for (seq, piece) in list {
            self.send(dir, ACK, seq, piece);
            if !mixed {
                self.next[dir.index()] = seq.wrapping_add(piece.len() as u32);
                self.ack(dir.reverse());
            }
        }
        self.next[dir.index()] = start.wrapping_add(data.len() as u32);
        self.ack(dir.reverse());
    }

    fn close(mut self) -> Vec<(Time, Vec<u8>)> {
        for dir in [ToServer, ToClient] {
            self.send(dir, FIN | ACK, self.next[dir.index()], &[]);
            self.next[dir.index()] += 1;
            self.ack(dir.reverse());
        }
        self.frames
    }
}

/// The result for one way of cutting: events of transactions and files in order, and the rules that alerted.
fn events(frames: &mut [(Time, Vec<u8>)]) -> Vec<String> {
    let text = BED.with_borrow_mut(|bed| {
        let make = || (Bed::new(YAML, RULES, &folder("segments")).expect("a worker"), 0);
        let (bed, number) = bed.get_or_insert_with(make);
        *number += 1;
        // Both addresses contain the connection's number.
        let [_, a, b, c] = number.to_be_bytes();
        for (_, frame) in frames.iter_mut() {
            frame[13..16].copy_from_slice(&[a, b, c]);
            frame[17..20].copy_from_slice(&[a, b, c]);
        }
        bed.run(frames).expect("events can be read")
    });
    let (mut lines, mut alerts) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let kind = event["event_type"].as_str().unwrap_or("").to_owned();
        if kind == "alert" {
            alerts.insert(event["alert"]["signature_id"].to_string());
            continue;
        }
        // Remove members that describe the packet, not the transaction.
        if let Some(members) = event.as_object_mut() {
            for name in ["timestamp", "pcap_cnt", "flow_id", "src_ip", "src_port", "dest_ip", "dest_port", "pkt_src"] {
                members.remove(name);
            }
        }
        // A file's event shows the transaction's state when the file ended.
        lines.push(if kind == "fileinfo" { event["fileinfo"].to_string() } else { event.to_string() });
    }
    lines.sort();
    lines.push(format!("alerts {alerts:?}"));
    lines
}

thread_local! {
    /// The worker, and the number of its connections so far. Each connection has other hosts.
    static BED: RefCell<Option<(Bed, u32)>> = const { RefCell::new(None) };
}

/// A byte that selects the server's port, the size of segments, and a script as for the protocols' targets.
pub fn segments(data: &[u8]) {
    let [port, size, rest @ ..] = data else { return };
    let acts = script(rest.get(..BYTES_MAX).unwrap_or(rest));
    if acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    let way = |size: usize, mixed: bool| {
        let mut wire = Wire::new(PORTS[usize::from(*port) % PORTS.len()]);
        for act in &acts {
            if let Act::Bytes(dir, bytes) = act {
                wire.bytes(*dir, bytes, size, mixed);
            }
        }
        events(&mut wire.close())
    };
    let size = usize::from(*size) + 1;
    let ways = [way(1400, false), way(size, false), way(size.max(8), true)];
    // A complete HTTP/2 stream is removed, and later data for it is another transaction. Which data is later depends on the
    // segments. So do bytes after the last HTTP/1 response, see `http1`.
    if ways.iter().flatten().any(|l| l.contains("\"http2\":") || l.contains("request_uri_not_seen")) {
        return;
    }
    // The worker joins ranges of a file from several connections, so earlier inputs count.
    if ways.iter().flatten().any(|l| l.contains("\"start\":")) {
        return;
    }
    // Bytes after a response that begin no other one depend on the segments, too.
    if ways.iter().flatten().any(|l| l.contains("\"http\":")) && has_tail(&app_config(), &acts) {
        return;
    }
    let [whole, small, mixed] = &ways;
    same(whole, small, size);
    same(whole, mixed, size);
}
