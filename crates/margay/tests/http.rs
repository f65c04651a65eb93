//! HTTP from packets to events: the same conversation, however TCP splits it, gives the same alerts and events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// Writes a capture of TCP connections between 10.0.0.1 and 10.0.0.2:80.
struct Capture {
    bytes: Vec<u8>,
    clock: u32,
}

impl Capture {
    fn new() -> Capture {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0xffff, 101] {
            bytes.extend(word.to_le_bytes());
        }
        Capture { bytes, clock: 0 }
    }

    fn packet(&mut self, port: u16, to_client: bool, seq: u32, ack: u32, flags: u8, data: &[u8]) {
        let (src, dst) = if to_client { ([10, 0, 0, 2], [10, 0, 0, 1]) } else { ([10, 0, 0, 1], [10, 0, 0, 2]) };
        let (sport, dport) = if to_client { (80, port) } else { (port, 80) };
        let len = 40 + data.len() as u16;
        let mut p = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0];
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p.extend(src);
        p.extend(dst);
        let sum: u32 = p.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p.extend(u16::to_be_bytes(sport));
        p.extend(u16::to_be_bytes(dport));
        p.extend(seq.to_be_bytes());
        p.extend(ack.to_be_bytes());
        p.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        p.extend(data);
        self.clock += 1;
        for word in [1_700_000_000 + self.clock / 1000, self.clock % 1000 * 1000, p.len() as u32, p.len() as u32] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(p);
    }

    /// A whole connection: what each side says in turns, cut where `cut` says (bytes for the next segment).
    fn connection(&mut self, port: u16, turns: &[(bool, &[u8])], cut: &mut dyn FnMut() -> usize) {
        let mut next = [1000u32, 5000];
        self.packet(port, false, next[0], 0, 2, &[]);
        self.packet(port, true, next[1], next[0] + 1, 0x12, &[]);
        next = [1001, 5001];
        self.packet(port, false, next[0], next[1], 0x10, &[]);
        for (to_client, text) in turns {
            let side = usize::from(*to_client);
            let mut rest = *text;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cut().clamp(1, rest.len()));
                self.packet(port, *to_client, next[side], next[1 - side], 0x18, now);
                next[side] += now.len() as u32;
                self.packet(port, !to_client, next[1 - side], next[side], 0x10, &[]);
                rest = later;
            }
        }
        self.packet(port, false, next[0], next[1], 0x11, &[]);
        self.packet(port, true, next[1], next[0] + 1, 0x11, &[]);
        self.packet(port, false, next[0] + 1, next[1] + 1, 0x10, &[]);
    }
}

const RULES: &str = r#"
alert http any any -> any any (msg:"uri"; flow:established,to_server; http.uri; content:"/a/secret.php"; sid:1;)
alert http any any -> any any (msg:"two buffers"; http.method; content:"POST"; http.request_body; content:"pass=hunter2"; sid:2;)
alert http any any -> any any (msg:"body"; flow:to_client; file.data; content:"needle in a chunk"; sid:3;)
alert http any any -> any any (msg:"header"; http.header; content:"X-Odd|3a| folded value"; sid:4;)
alert http any any -> any any (msg:"status"; http.stat_code; content:"404"; sid:5;)
alert http any any -> any any (msg:"raw"; http.uri.raw; content:"%2e%2e"; urilen:>10; sid:6;)
alert http any any -> any any (msg:"host"; http.host; content:"www.example.org"; bsize:15; sid:7;)
alert http any any -> any any (msg:"agent, old words"; content:"Margay"; http_user_agent; content:!"x"; http_cookie; sid:8;)
alert http any any -> any any (msg:"names"; http.header_names; content:"|0d 0a|Host|0d 0a|"; startswith; sid:9;)
alert http any any -> any any (msg:"never"; http.uri; content:"/never-ever"; sid:10;)
"#;

const TURNS: &[(bool, &[u8])] = &[
    (
        false,
        b"GET /a/b/%2e%2e/secret.php?q=1 HTTP/1.1\r\nHost: WWW.example.org\r\nUser-Agent: Margay\r\nCookie: a=b\r\nX-Odd:\r\n folded\r\n value\r\n\r\n\
          POST /login HTTP/1.1\r\nHost: www.example.org:8080\r\nContent-Length: 22\r\n\r\nuser=root&pass=hunter2",
    ),
    (
        true,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nneedl\r\nc\r\ne in a chunk\r\n0\r\n\r\n\
          HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nsorry",
    ),
    (false, b"HEAD /never-not HTTP/1.0\r\n\r\n"),
    (true, b"HTTP/1.0 200 OK\r\nContent-Length: 5000\r\n\r\n"),
];

/// What a connection's events come to, without what differs from one to the next.
fn by_port(dir: &Path) -> BTreeMap<u64, Vec<String>> {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let mut out: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).expect("JSON");
        let port = [&e["src_port"], &e["dest_port"]].iter().filter_map(|p| p.as_u64()).find(|p| *p != 80);
        let what = match e["event_type"].as_str() {
            Some("alert") => format!("alert {} of tx {} {}", e["alert"]["signature_id"], e["tx_id"], e["direction"]),
            Some("http") => format!("http {} {}", e["tx_id"], e["http"]),
            Some("fileinfo") => format!("file {}", e["fileinfo"]),
            Some("anomaly") => format!("anomaly {}", e["anomaly"]),
            _ => continue,
        };
        out.entry(port.unwrap_or(0)).or_default().push(what);
    }
    for events in out.values_mut() {
        events.sort();
    }
    out
}

fn run(dir: &Path, capture: &Capture, more: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = |p: &str| root.join(p).display().to_string();
    let (pcap, rules) = (dir.join("in.pcap"), dir.join("test.rules"));
    std::fs::write(&pcap, &capture.bytes).expect("a capture");
    std::fs::write(&rules, RULES).expect("rules");
    let o = Command::new(env!("CARGO_BIN_EXE_margay"))
        .args(["-c", &path("etc/margay.yaml"), "-k", "none", "--init-errors-fatal"])
        .args(["--set", &format!("classification-file={}", path("etc/classification.config"))])
        .args(["--set", &format!("reference-config-file={}", path("etc/reference.config"))])
        .arg("-l")
        .arg(dir)
        .arg("-r")
        .arg(pcap)
        .arg("-S")
        .arg(rules)
        .args(more)
        .output()
        .expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
}

#[test]
fn however_tcp_splits_it() {
    const CONNECTIONS: u16 = 300;
    let mut capture = Capture::new();
    // The first is not split, the second is sent byte by byte, the others at random.
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for n in 0..CONNECTIONS {
        let mut cut = || match n {
            0 => usize::MAX,
            1 => 1,
            n => {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as usize % if n % 2 == 0 { 12 } else { 120 }
            }
        };
        capture.connection(20_000 + n, TURNS, &mut cut);
    }
    for inline in [false, true] {
        let dir = folder(if inline { "http-inline" } else { "http-split" });
        run(&dir, &capture, if inline { &["--simulate-ips"] } else { &[] });
        let found = by_port(&dir);
        assert_eq!(found.len(), usize::from(CONNECTIONS));
        let first = &found[&20_000];
        for sid in 1..=9 {
            assert!(first.iter().any(|e| e.starts_with(&format!("alert {sid} "))), "no alert of {sid} in {first:#?}");
        }
        assert!(!first.iter().any(|e| e.starts_with("alert 10 ")), "{first:#?}");
        assert_eq!(first.iter().filter(|e| e.starts_with("http ")).count(), 3, "{first:#?}");
        for (port, events) in &found {
            assert_eq!(events, first, "connection {port}, inline: {inline}");
        }
    }
}
