//! Segments crafted so that a sensor sees other data than the host. In each conversation here, Linux (6.18, tested)
//! reads `GET /evil-attack`, or bytes with `evil-attack` in an unknown protocol. A passive engine alerts. An inline
//! engine alerts, or the host receives what was inspected.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use process::{MARGAY, folder, root};
use serde_json::Value;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

const RULES: &str = "\
    alert http any any -> any any (msg:\"a request\"; flow:to_server; http.uri; content:\"/evil-attack\"; sid:1;)\n\
    alert tcp-stream any any -> any any (msg:\"a stream\"; flow:to_server; content:\"evil-attack\"; sid:2;)\n";

const SETTINGS: &str = "%YAML 1.1\n---\ninclude: SETTINGS\noutputs:\n  - eve-log:\n      enabled: yes\n      filetype: regular\n      \
    filename: eve.json\n      types: [alert, drop, anomaly: {enabled: yes, types: {decode: no, stream: yes, applayer: no}}]\n";

const OK: &[u8] = b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n";
const ATTACK: &[u8] = b"GET /evil-attack HTTP/1.1\r\nHost: x\r\n\r\n";
const DECOY: &[u8] = b"GET /fine-decoy HTTP/1.1\r\nHost: x\r\n\r\n ";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Offset of the second request and of its response.
const NEXT: i64 = OK.len() as i64;
const BACK: i64 = ANSWER.len() as i64;

/// One segment. The defaults are those of a normal segment.
#[derive(Clone)]
struct Segment {
    server: bool,
    flags: u8,
    /// Offset in its side's stream, from the first byte.
    at: i64,
    /// Offset in the other side's stream that it acknowledges.
    ack: i64,
    data: Vec<u8>,
    urgent: u16,
    ttl: u8,
    window: u16,
    options: Vec<u8>,
    /// Seconds after the previous segment.
    after: u32,
}

/// Client data after the first request and its response.
fn client(at: i64, data: &[u8]) -> Segment {
    Segment {
        server: false,
        flags: PSH | ACK,
        at,
        ack: BACK,
        data: data.to_vec(),
        urgent: 0,
        ttl: 64,
        window: 65_000,
        options: Vec::new(),
        after: 0,
    }
}

/// A server acknowledgment, with data.
fn server(ack: i64, data: &[u8]) -> Segment {
    let flags = if data.is_empty() { ACK } else { PSH | ACK };
    Segment { server: true, flags, ack, ..client(BACK, data) }
}

fn flags(flags: u8, s: Segment) -> Segment {
    Segment { flags, ..s }
}

fn acking(ack: i64, s: Segment) -> Segment {
    Segment { ack, ..s }
}

fn with(options: &[u8], s: Segment) -> Segment {
    Segment { options: options.to_vec(), ..s }
}

fn stamp(value: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat()
}

/// An MD5 signature option without an agreed key (RFC 2385).
const SIGNED: &[u8] = &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 1];

/// The expected result inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inline {
    /// An alert, or a dropped packet.
    Says,
    /// The host receives the inspected bytes instead.
    Rewrites,
}

/// An evasion: the segments after the handshake, the first request and its response.
struct Trick {
    name: String,
    /// Options of both SYNs.
    options: Vec<u8>,
    /// Whether the conversation starts with an HTTP request and response, or with bytes of an unknown protocol.
    http: bool,
    segments: Vec<Segment>,
    inline: Inline,
    /// Whether it needs midstream pickup; then there is no handshake.
    midstream: bool,
}

fn trick(name: &str, segments: Vec<Segment>) -> Trick {
    Trick { name: name.to_owned(), options: Vec::new(), http: true, segments, inline: Inline::Says, midstream: false }
}

/// Ends a request at `NEXT` of that length: it is acknowledged and answered.
fn answered(mut segments: Vec<Segment>, len: usize) -> Vec<Segment> {
    let end = NEXT + len as i64;
    segments.extend([server(end, b""), server(end, ANSWER), acking(2 * BACK, client(end, b""))]);
    segments
}

fn tricks() -> Vec<Trick> {
    let attack = || client(NEXT, ATTACK);
    let decoy = || client(NEXT, DECOY);
    let after = |decoys: Vec<Segment>| answered([decoys, vec![attack()]].concat(), ATTACK.len());
    let mut all = vec![
        trick("nothing special", after(vec![])),
        trick("acknowledges what was not sent", after(vec![acking(30_000, decoy())])),
        trick("acknowledges what is before the first byte", after(vec![acking(-1, decoy())])),
        trick("acknowledges what is far back", after(vec![acking(-60_000, decoy())])),
        trick("a signature", after(vec![with(SIGNED, decoy())])),
        trick("a FIN without ACK", after(vec![flags(FIN, decoy())])),
        trick("a FIN without ACK or data", after(vec![flags(FIN, client(NEXT, b""))])),
        trick("no ACK", after(vec![flags(PSH, decoy())])),
        trick("a SYN", after(vec![flags(SYN, decoy())])),
        trick("a SYN and ACK", after(vec![flags(SYN | ACK, decoy())])),
        trick("a reset inside the window", after(vec![flags(RST, client(NEXT + 100, b""))])),
        trick("a reset inside the window, with ACK", after(vec![flags(RST | ACK, client(NEXT + 100, b""))])),
        trick("a reset at a number that was expected", {
            let [first, second] = halves();
            answered(vec![first, flags(RST, client(NEXT, b"")), second], ATTACK.len())
        }),
        trick("a reset behind early data", after(vec![client(NEXT + 300, b"x"), flags(RST, client(NEXT + 301, b""))])),
        Trick { inline: Inline::Rewrites, ..trick("few hops", after(vec![Segment { ttl: 2, ..decoy() }])) },
        trick("a reset with few hops", after(vec![Segment { ttl: 2, ..flags(RST, client(NEXT, b"")) }])),
        trick("an end with few hops", after(vec![Segment { ttl: 2, ..flags(FIN | ACK, client(NEXT, b"")) }])),
        trick("an acknowledgment of what was not sent alone", after(vec![acking(30_000, client(NEXT, b""))])),
    ];
    // Early data, every second byte, and then the missing bytes.
    let early = (0..255).map(|i| client(NEXT + 1 + 2 * i, b"a"));
    let mut segments: Vec<_> = early.collect();
    segments.push(client(NEXT + 600, ATTACK));
    let filler = [&b"GET /ok?"[..], &[b'a'; 600 - 8 - 23], b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat();
    let mut whole = filler.clone();
    whole.truncate(600);
    segments.push(client(NEXT, &whole));
    // The early bytes are the repeated ones.
    for s in &mut segments[..255] {
        s.data = vec![whole[(s.at - NEXT) as usize]];
    }
    all.push(trick("more early segments than anybody needs", answered(segments, 600 + ATTACK.len())));
    // Timestamps.
    let timed = |name: &str, poison: Segment, value: u32| {
        let mut segments = vec![with(&stamp(1003), client(NEXT, b"")), poison];
        segments.extend(answered(vec![with(&stamp(value), attack())], ATTACK.len()));
        for s in &mut segments {
            if s.server {
                s.options = stamp(2001);
            }
        }
        Trick { options: stamp(1000), ..trick(name, segments) }
    };
    const FAR: u32 = 1000 + (1 << 30);
    all.extend([
        timed("a timestamp behind what is expected", with(&stamp(FAR), client(NEXT + 1, b"")), 1004),
        timed("a timestamp of early data", with(&stamp(FAR), client(NEXT + 500, b"x")), 1004),
        timed("a timestamp of what is discarded", with(&stamp(FAR), acking(30_000, decoy())), 1004),
        timed("two timestamps", with(&[&stamp(1004)[2..], &stamp(1), &[1, 1]].concat(), decoy()), 1004),
    ]);
    all.push(at_the_end());
    // Urgent bytes: the host reads the data without the X.
    let urgent = |name: &str, segments: Vec<Segment>, len: usize| trick(name, answered(segments, len));
    let text = *b"GET /evilX-attack HTTP/1.1\r\nHost: x\r\n\r\n";
    let len = text.len();
    let marked = |pointer: u16, s: Segment| Segment { urgent: pointer, flags: s.flags | URG, ..s };
    all.push(urgent("an urgent byte", vec![marked(10, client(NEXT, &text))], len));
    all.push(urgent(
        "one in the next segment",
        vec![marked(10, client(NEXT, &text[..8])), client(NEXT + 8, &text[8..])],
        len,
    ));
    all.push(urgent(
        "one that is announced",
        vec![marked(10, flags(ACK, client(NEXT, b""))), client(NEXT, &text)],
        len,
    ));
    all.push(urgent(
        "one behind early data",
        vec![client(NEXT + 12, &text[12..]), marked(10, client(NEXT, &text[..12]))],
        len,
    ));
    let first = |name, pointer| {
        let text = [b"X", ATTACK].concat();
        urgent(name, vec![marked(pointer, client(NEXT, &text))], text.len())
    };
    all.extend([first("the first byte", 1), first("the first byte, without a pointer", 0)]);
    // More urgent bytes than the engine removes.
    let mut segments = Vec::new();
    let mut at = NEXT;
    for _ in 0..70 {
        segments.push(marked(2, client(at, b"\nX")));
        at += 2;
        segments.push(server(at, b""));
    }
    for byte in ATTACK.chunks(3) {
        segments.push(marked(0, client(at, &[b"X", byte].concat())));
        at += 1 + byte.len() as i64;
        segments.push(server(at, b""));
    }
    all.push(trick("seventy urgent bytes", answered(segments, (at - NEXT) as usize)));
    // Windows.
    let scaled = |shift: u8| vec![3, 3, shift, 1];
    let end = NEXT + ATTACK.len() as i64;
    all.push(Trick { options: scaled(15), ..trick("a window scale of 15", far(vec![attack(), server(end, b"")])) });
    let shut = |s: Segment| Segment { window: 0, ..s };
    all.push(Trick {
        inline: Inline::Rewrites,
        ..trick("a byte into a closed window", {
            let probe = vec![shut(server(NEXT, b"")), client(NEXT, b"X"), shut(server(NEXT, b"")), server(NEXT, b"")];
            after(probe)
        })
    });
    all.push(trick("beyond the end of the window", after(vec![client(NEXT, &[DECOY, &[b' '; 65_200]].concat())])));
    // A connection that has ended for the host.
    all.push(trick("another connection in the place of one", another()));
    // Data that was acknowledged before inspection is sent again with other content.
    let plain = |name: &str, segments: Vec<Segment>| Trick { http: false, ..trick(name, segments) };
    all.push(plain("acknowledged, and sent again", {
        let text = b".....evil-attack.....";
        let mut all = vec![client(NEXT, text), server(NEXT + 21, b"")];
        all.push(client(NEXT - 1, b".................................."));
        all.push(server(NEXT + 33, b""));
        all
    }));
    all.push(plain("in order, and sent again", {
        let mut all = vec![client(NEXT, b"."), client(NEXT + 1, b"....evil-attack....")];
        all.push(client(NEXT, b".................................."));
        all.push(server(NEXT + 34, b""));
        all
    }));
    all.push(plain("early data in between", {
        let [first, second] = [client(NEXT, b".....evil-at"), client(NEXT + 12, b"tack.....")];
        answered(vec![first, client(NEXT + 9000, b"far away"), second], 21)
    }));
    all.push(plain("the end first", {
        let [first, second] = [client(NEXT, b"evil-attack!"), client(NEXT + 12, b"........")];
        answered(vec![second, first], 20)
    }));
    // Silence.
    let silent = |segments: Vec<Segment>| {
        let mut segments = segments;
        segments[0].after = 700;
        segments
    };
    let [first, second] = halves();
    all.extend([
        trick("silence", silent(answered(vec![first.clone(), second.clone()], ATTACK.len()))),
        trick("silence, and something far ahead", {
            silent(answered(vec![client(NEXT + 60_000, b"z"), first.clone(), second.clone()], ATTACK.len()))
        }),
        trick("silence, and a SYN that nobody answers", {
            let syn = flags(SYN, client(5_000_000, b""));
            silent(answered(vec![syn, first.clone(), second.clone()], ATTACK.len()))
        }),
        trick("silence, and the server speaks", {
            silent(answered(
                vec![server(NEXT, b"HTTP/1.1 408 Timeout\r\n\r\n"), first.clone(), second.clone()],
                ATTACK.len(),
            ))
        }),
    ]);
    // Midstream pickup.
    let middle = |name: &str, segments: Vec<Segment>| Trick { midstream: true, ..trick(name, segments) };
    all.extend([
        middle("a pick-up", answered(vec![first.clone(), second.clone()], ATTACK.len())),
        middle("a pick-up far ahead", {
            answered(vec![client(NEXT + 60_000, b"z"), first.clone(), second.clone()], ATTACK.len())
        }),
        middle("a pick-up far ahead that is answered", {
            let ahead = vec![client(NEXT + 60_000, b"z"), server(NEXT, b"")];
            answered([ahead, vec![first.clone(), second.clone()]].concat(), ATTACK.len())
        }),
        middle("a pick-up in the wrong order", answered(vec![second, first], ATTACK.len())),
        middle("a pick-up that acknowledges what was not sent", after(vec![acking(30_000, client(NEXT, b""))])),
    ]);
    all
}

/// The last segment of a body has a timestamp that its host may have found too old, and nothing acknowledges it.
fn at_the_end() -> Trick {
    let [first, rest] =
        [&b"POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n.....evil-at"[..], b"tack....."];
    let end = NEXT + first.len() as i64;
    let segments = vec![
        with(&stamp(1001), client(NEXT, first)),
        with(&stamp(1006), client(end, b"")),
        with(&stamp(1001), client(end, rest)),
        with(&stamp(2001), server(end, b"")),
    ];
    Trick { options: stamp(1000), ..trick("an old timestamp at the end", segments) }
}

fn halves() -> [Segment; 2] {
    [client(NEXT, &ATTACK[..10]), client(NEXT + 10, &ATTACK[10..])]
}

/// The attack lies beyond the unscaled window, and the data before it is acknowledged late.
fn far(segments: Vec<Segment>) -> Vec<Segment> {
    let mut out = Vec::new();
    let body = 140_000i64;
    let head = format!("POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: {body}\r\n\r\n");
    out.push(client(NEXT, head.as_bytes()));
    let start = NEXT + head.len() as i64;
    for at in (0..body).step_by(1400) {
        out.push(client(start + at, &[b'.'; 1400]));
    }
    for mut s in segments {
        if s.server {
            s.ack += head.len() as i64 + body;
        } else {
            s.at += head.len() as i64 + body;
        }
        out.push(s);
    }
    out
}

/// A reset that closes the connection for the host, whatever it acknowledges. A SYN, its answer and the attack follow.
fn another() -> Vec<Segment> {
    const FAR: i64 = 3_000_000;
    let mut out = vec![flags(RST | ACK, acking(900_000_000, client(NEXT, b"")))];
    out.push(flags(SYN, client(FAR, b"")));
    out.push(flags(SYN | ACK, Segment { at: FAR, ..server(FAR + 1, b"") }));
    out.push(acking(FAR + 1, client(FAR + 1, b"")));
    out.push(acking(FAR + 1, client(FAR + 1, ATTACK)));
    let end = FAR + 1 + ATTACK.len() as i64;
    out.push(Segment { at: FAR + 1, ..server(end, b"") });
    out.push(Segment { at: FAR + 1, ..server(end, ANSWER) });
    out
}

/// Writes a capture.
struct Capture {
    bytes: Vec<u8>,
    micros: u64,
}

impl Capture {
    fn new() -> Capture {
        let header = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x4_0000, 101];
        Capture { bytes: header.iter().flat_map(|w| w.to_le_bytes()).collect(), micros: 1_700_000_000_000_000 }
    }

    fn segment(&mut self, port: u16, s: &Segment) {
        let (isn, other) = if s.server { (5000i64, 1000i64) } else { (1000, 5000) };
        let (src, dst) = if s.server { ([10, 0, 0, 2], [10, 0, 0, 1]) } else { ([10, 0, 0, 1], [10, 0, 0, 2]) };
        let (sport, dport) = if s.server { (80, port) } else { (port, 80) };
        let mut options = s.options.clone();
        options.resize(options.len().next_multiple_of(4), 1);
        let len = 40 + options.len() + s.data.len();
        let mut p = vec![0x45, 0];
        p.extend((len as u16).to_be_bytes());
        p.extend([0, 1, 0x40, 0, s.ttl, 6, 0, 0]);
        p.extend(src);
        p.extend(dst);
        p.extend(u16::to_be_bytes(sport));
        p.extend(u16::to_be_bytes(dport));
        p.extend(((isn + 1 + s.at) as u32).to_be_bytes());
        p.extend(if s.flags & ACK == 0 { 0 } else { (other + 1 + s.ack) as u32 }.to_be_bytes());
        p.extend([((20 + options.len()) / 4 * 16) as u8, s.flags]);
        p.extend(s.window.to_be_bytes());
        p.extend([0, 0]);
        p.extend(s.urgent.to_be_bytes());
        p.extend(options);
        p.extend(&s.data);
        self.micros += 1000 + u64::from(s.after) * 1_000_000;
        for word in [(self.micros / 1_000_000) as u32, (self.micros % 1_000_000) as u32, p.len() as u32, p.len() as u32]
        {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(p);
    }

    fn trick(&mut self, port: u16, t: &Trick) {
        let first = if t.http { OK } else { &b"\x01\x02\x03\x04 nobody knows what this is."[..OK.len()] };
        let answer = if t.http { ANSWER } else { &[0x7f; BACK as usize] };
        let mut before = vec![
            with(&t.options, Segment { at: -1, ..flags(SYN, client(0, b"")) }),
            with(&t.options, Segment { at: -1, ..flags(SYN | ACK, server(0, b"")) }),
            acking(0, flags(ACK, client(0, b""))),
            acking(0, client(0, first)),
            Segment { at: 0, ..server(NEXT, b"") },
            Segment { at: 0, ..server(NEXT, answer) },
            flags(ACK, client(NEXT, b"")),
        ];
        if t.midstream {
            before.clear();
        }
        // With timestamps negotiated, every packet has them.
        let timed = t.options.contains(&8);
        for (n, s) in before.iter_mut().enumerate() {
            if timed && n >= 2 {
                s.options = stamp(if s.server { 2000 } else { 1000 } + n as u32 / 3);
            }
            if timed && n == 1 {
                s.options = stamp(2000);
            }
        }
        for s in before.iter().chain(&t.segments) {
            self.segment(port, s);
        }
    }
}

/// Ports of flows with an alert or a dropped packet; and ports of flows with a rewritten packet.
fn said(dir: &Path) -> [BTreeSet<u64>; 2] {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let mut out = [BTreeSet::new(), BTreeSet::new()];
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).expect("JSON");
        let port = [&e["src_port"], &e["dest_port"]].iter().filter_map(|p| p.as_u64()).find(|p| *p != 80);
        let overlap = e["anomaly"]["event"] == "stream.reassembly_overlap_different_data";
        match e["event_type"].as_str() {
            Some("alert" | "drop") => out[0].extend(port),
            Some("anomaly") if overlap => out[1].extend(port),
            _ => {}
        }
    }
    out
}

fn run(name: &str, tricks: &[&Trick], more: &[&str]) -> [BTreeSet<u64>; 2] {
    let dir = folder(name);
    let mut capture = Capture::new();
    for (n, t) in tricks.iter().enumerate() {
        capture.trick(20_000 + n as u16, t);
    }
    let path = |p: &str| root().join(p).display().to_string();
    let (pcap, rules, yaml) = (dir.join("in.pcap"), dir.join("test.rules"), dir.join("test.yaml"));
    std::fs::write(&pcap, &capture.bytes).expect("a capture");
    std::fs::write(&rules, RULES).expect("rules");
    std::fs::write(&yaml, SETTINGS.replace("SETTINGS", &path("etc/margay.yaml"))).expect("settings");
    // The test can run another engine.
    let engine = std::env::var_os("SEGMENTS_ENGINE").unwrap_or_else(|| MARGAY.into());
    let mut command = Command::new(engine);
    command.arg("-c").arg(&yaml).args(["-k", "none", "--init-errors-fatal"]);
    for (key, file) in [("classification-file", "classification"), ("reference-config-file", "reference")] {
        command.args(["--set", &format!("{key}={}", path(&format!("etc/{file}.config")))]);
    }
    command.args(["--set", "stats.enabled=no"]).args(more);
    let o = command.arg("-l").arg(&dir).arg("-r").arg(&pcap).arg("-S").arg(&rules).output().expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    said(&dir)
}

#[test]
fn what_the_host_reads_is_seen() {
    let all = tricks();
    let mut missed = Vec::new();
    for midstream in [false, true] {
        let some: Vec<&Trick> = all.iter().filter(|t| t.midstream == midstream).collect();
        let pick_up: &[&str] = if midstream { &["--set", "stream.midstream=true"] } else { &[] };
        for simulated in [false, true] {
            let inline: &[&str] = if simulated { &["--simulate-ips"] } else { &[] };
            let name = format!("segments-{midstream}-{simulated}");
            let [said, rewritten] = run(&name, &some, &[pick_up, inline].concat());
            for (n, t) in some.iter().enumerate() {
                let port = 20_000 + n as u64;
                let rewrites = simulated && t.inline == Inline::Rewrites;
                if !(said.contains(&port) || rewrites && rewritten.contains(&port)) {
                    missed.push(format!("{}: {}", if simulated { "inline" } else { "passive" }, t.name));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
