//! HTTP from packets to events: the same conversation gives the same alerts and events, however TCP segments it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress};
use process::{folder, root};
use serde_json::Value;

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

    /// A whole connection. The turns are the data of each side; `cut` gives the size of the next segment.
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

/// The events of each connection, without the members that differ between connections.
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

fn command(dir: &Path, capture: &Capture, more: &[&str]) -> Command {
    command_with(dir, capture, RULES, more)
}

fn command_with(dir: &Path, capture: &Capture, text: &str, more: &[&str]) -> Command {
    let root = root();
    let path = |p: &str| root.join(p).display().to_string();
    let (pcap, rules) = (dir.join("in.pcap"), dir.join("test.rules"));
    std::fs::write(&pcap, &capture.bytes).expect("a capture");
    std::fs::write(&rules, text).expect("rules");
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    command
        .args(["-c", &path("etc/margay.yaml"), "-k", "none", "--init-errors-fatal"])
        .args(["--set", &format!("classification-file={}", path("etc/classification.config"))])
        .args(["--set", &format!("reference-config-file={}", path("etc/reference.config"))])
        .arg("-l")
        .arg(dir)
        .arg("-r")
        .arg(pcap)
        .arg("-S")
        .arg(rules)
        .args(more);
    command
}

fn run(dir: &Path, capture: &Capture, more: &[&str]) {
    let o = command(dir, capture, more).output().expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
}

/// Runs the engine. Returns its duration, and its peak memory in KiB if the system reports that.
fn measure(dir: &Path, capture: &Capture, more: &[&str]) -> (Duration, Option<u64>) {
    let mut command = command(dir, capture, more);
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the engine starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = None;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        peak = peak.max(line.and_then(|l| l.split_whitespace().next()?.parse().ok()));
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{status}");
            return (began.elapsed(), peak);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Events of one type.
fn events(dir: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let all = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
    all.filter(|e| e["event_type"] == kind).collect()
}

/// Settings that inspect whole streams and bodies.
const NO_LIMITS: [&str; 4] = [
    "--set",
    "stream.reassembly.depth=0",
    "--set",
    "app-layer.protocols.http.libhtp.default-config.response-body-limit=0",
];
/// Memory in KiB that a run may need beyond that of a minimal one.
const MORE_MEMORY: u64 = 24 << 10;

/// Peak memory of a minimal run.
fn small_run(name: &str) -> Option<u64> {
    let mut capture = Capture::new();
    capture.connection(20_000, TURNS, &mut || usize::MAX);
    measure(&folder(name), &capture, &NO_LIMITS).1
}

/// A gzip file of `mib` MiB of zeros: one deflated MiB, repeated.
fn zeros(mib: u32) -> Vec<u8> {
    let one = vec![0; 1 << 20];
    let mut deflate = Compress::new(Compression::best(), false);
    let mut block = Vec::with_capacity(64 << 10);
    deflate.compress_vec(&one, &mut block, FlushCompress::Full).expect("deflated");
    assert_eq!(deflate.total_in(), one.len() as u64);
    let mut crc = Crc::new();
    crc.update(&one);
    let mut whole = Crc::new();
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3];
    for _ in 0..mib {
        out.extend_from_slice(&block);
        whole.combine(&crc);
    }
    // An empty final block.
    out.extend([1, 0, 0, 0xff, 0xff]);
    out.extend(whole.sum().to_le_bytes());
    out.extend((mib << 20).to_le_bytes());
    out
}

#[test]
fn however_tcp_splits_it() {
    const CONNECTIONS: u16 = 300;
    let mut capture = Capture::new();
    // The first connection is not split, the second is sent byte by byte, the others at random.
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

/// A connection in which a server sends a body in gzip.
fn download(body: &[u8]) -> Capture {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.as_bytes(), body].concat();
    let mut capture = Capture::new();
    let turns: [(bool, &[u8]); 2] = [(false, b"GET /file HTTP/1.1\r\nHost: a.example\r\n\r\n"), (true, &response)];
    capture.connection(20_000, &turns, &mut || 1460);
    capture
}

#[test]
fn a_bomb_is_cut() {
    let bomb = zeros(1024);
    assert!(bomb.len() < 2 << 20, "{}", bomb.len());
    let capture = download(&bomb);
    let dir = folder("http-bomb");
    let (_, peak) = measure(&dir, &capture, &NO_LIMITS);
    let anomalies = events(&dir, "anomaly");
    let bombs = anomalies.iter().filter(|a| a["anomaly"]["event"] == "COMPRESSION_BOMB").count();
    assert_eq!(bombs, 1, "{anomalies:?}");
    let http = events(&dir, "http");
    let size = http[0]["http"]["length"].as_u64().expect("a length");
    assert_eq!((http.len(), size), (1, bomb.len() as u64));
    let files = events(&dir, "fileinfo");
    assert_eq!(files[0]["fileinfo"]["state"], "TRUNCATED");
    let size = files[0]["fileinfo"]["size"].as_u64().expect("a size");
    // `decompression-time-limit` stands for a number of bytes: 512 for each of its 100,000 microseconds.
    assert!((1 << 20..64 << 20).contains(&size), "{size}");
    if let (Some(peak), Some(small)) = (peak, small_run("http-bomb-small")) {
        assert!(peak < small + MORE_MEMORY, "{peak} KiB, and {small} KiB of a small run");
    }
}

/// A limit of 0 for a body's encodings is none, as in Suricata.
#[test]
fn all_encodings_are_undone_without_a_limit() {
    let capture = download(&zeros(1));
    let dir = folder("http-encodings");
    let layers = "app-layer.protocols.http.libhtp.default-config.response-body-decompress-layer-limit=0";
    measure(&dir, &capture, &[&NO_LIMITS[..], &["--set", layers]].concat());
    let files = events(&dir, "fileinfo");
    assert_eq!((files.len(), &files[0]["fileinfo"]["size"]), (1, &Value::from(1 << 20)), "{files:?}");
}

#[test]
fn a_long_body_takes_constant_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: usize = 200;
    let mut response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let text: Vec<u8> = b"the quick brown fox jumps over the lazy dog\n".iter().copied().cycle().take(CHUNK).collect();
    for _ in 0..CHUNKS {
        response.extend(format!("{CHUNK:x}\r\n").bytes());
        response.extend(&text);
        response.extend(b"\r\n");
    }
    // The rule's content is at the very end.
    response.extend(b"11\r\nneedle in a chunk\r\n0\r\n\r\n");
    let mut capture = Capture::new();
    let turns: [(bool, &[u8]); 2] = [(false, b"GET /long HTTP/1.1\r\nHost: a.example\r\n\r\n"), (true, &response)];
    capture.connection(20_000, &turns, &mut || 60_000);
    let dir = folder("http-long");
    let (_, peak) = measure(&dir, &capture, &NO_LIMITS);
    let _ = std::fs::remove_file(dir.join("in.pcap"));
    let files = events(&dir, "fileinfo");
    assert_eq!(files[0]["fileinfo"]["size"].as_u64(), Some((CHUNK * CHUNKS + 17) as u64));
    assert_eq!(files[0]["fileinfo"]["state"], "CLOSED");
    let alerts = events(&dir, "alert");
    assert!(alerts.iter().any(|a| a["alert"]["signature_id"] == 3), "{alerts:?}");
    if let (Some(peak), Some(small)) = (peak, small_run("http-long-small")) {
        assert!(peak < small + MORE_MEMORY, "{peak} KiB, and {small} KiB of a small run");
    }
}

/// Arguments of the target and of header fields are inspected once the header is complete, those of a body at its end.
/// Each rule alerts once.
#[test]
fn arguments_of_a_request() {
    let dir = folder("http-arguments");
    let rules = r#"
alert http any any -> any any (msg:"target"; http.arg; content:"in target"; bsize:9; sid:101;)
alert http any any -> any any (msg:"cookie"; http.arg; content:"in cookie"; bsize:9; sid:102;)
alert http any any -> any any (msg:"body"; http.arg; canonicalise; content:"<in body>"; bsize:9; sid:103;)
alert http any any -> any any (msg:"file"; http.arg; content:"f.php"; bsize:5; sid:104;)
alert http any any -> any any (msg:"sql"; http.arg; canonicalise; sqli; sid:105;)
alert http any any -> any any (msg:"never"; http.arg; canonicalise; xss; sid:106;)
alert http any any -> any any (msg:"both"; http.arg; content:"in target"; http.arg; content:"f.php"; sid:107;)
"#;
    let body = b"--X\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f.php\"\r\n\r\nx\r\n\
        --X\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n%253CIN%20body&gt;\r\n\
        --X\r\nContent-Disposition: form-data; name=\"c\"\r\n\r\n1' or 1=1 --\r\n--X--\r\n";
    let head = format!(
        "POST /p?a=in%20target HTTP/1.1\r\nHost: h\r\nCookie: b=in+cookie\r\nContent-Type: multipart/form-data; boundary=X\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut capture = Capture::new();
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut piece = 0;
    capture.connection(40_000, &[(false, head.as_bytes()), (false, body), (true, answer)], &mut || {
        piece += 1;
        // The body in pieces, the rest unsplit.
        if piece == 1 { head.len() } else { 50 }
    });
    let o = command_with(&dir, &capture, rules, &[]).output().expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let mut at: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for alert in events(&dir, "alert") {
        let sid = alert["alert"]["signature_id"].as_u64().expect("a number");
        at.entry(sid).or_default().push(alert["pcap_cnt"].as_u64().expect("a packet"));
    }
    assert_eq!(at.keys().copied().collect::<Vec<_>>(), [101, 102, 103, 104, 105, 107], "{at:?}");
    assert!(at.values().all(|packets| packets.len() == 1), "{at:?}");
    let first = |sid| at[&sid][0];
    assert!(first(101) == first(102) && first(101) + 4 < first(103), "{at:?}");
    assert!([104, 105, 107].iter().all(|sid| first(*sid) == first(103)), "{at:?}");
}

/// For each connection, the segments at which rules alert. `pieces` are segments, and the other side acknowledges each.
fn alerts(name: &str, rules: &str, pieces: &[(bool, &[u8])]) -> BTreeMap<u64, Vec<usize>> {
    let mut capture = Capture::new();
    capture.connection(20_000, pieces, &mut || usize::MAX);
    let dir = folder(name);
    let o = command_with(&dir, &capture, rules, &[]).output().expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let mut out: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for e in events(&dir, "alert") {
        // Three packets open the connection; each piece is two packets, itself and its acknowledgment.
        let packet = e["pcap_cnt"].as_u64().map_or(usize::MAX, |n| n as usize - 4);
        out.entry(e["alert"]["signature_id"].as_u64().unwrap_or(0)).or_default().push(packet / 2);
    }
    out
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Rules match a field with the first packet of its side after it was complete: the next line shows that.
#[test]
fn fields_in_pieces() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"line"; http.uri; content:"/in-pieces"; sid:1;)
alert http any any -> any any (msg:"field"; http.user_agent; content:"Margay"; sid:2;)
alert http any any -> any any (msg:"no pattern"; http.user_agent; bsize:6; sid:3;)
alert http any any -> any any (msg:"last field"; flow:to_server; http.cookie; content:"a=b"; sid:4;)
alert http any any -> any any (msg:"one of many"; http.request_header; content:"X-Odd|3a| 1"; sid:5;)
alert http any any -> any any (msg:"all"; http.header; content:"Margay"; sid:6;)
alert http any any -> any any (msg:"not there"; http.referer; content:"x"; sid:7;)
alert http any any -> any any (msg:"not there"; http.referer; absent; sid:8;)
alert http any any -> any any (msg:"host"; http.host; content:"a.example"; sid:9;)
alert http any any -> any any (msg:"raw host"; http.host.raw; content:"a.example"; sid:10;)
alert http any any -> any any (msg:"response"; http.server; content:"nginx"; sid:11;)
alert http any any -> any any (msg:"response"; flow:to_client; http.header; content:"nginx"; sid:12;)
alert http any any -> any any (msg:"status"; http.stat_code; content:"200"; sid:13;)
"#;
    let pieces: &[(bool, &[u8])] = &[
        (false, b"GET /in-pieces HTTP/1.1\r\n"),
        (false, b"Host: a.example\r\nUser-Ag"),
        (false, b"ent: Margay\r\n"),
        (false, b"X-Odd:\r\n"),
        (false, b" 1\r\nC"),
        (false, b"ookie: a=b\r\n"),
        (false, b"\r\n"),
        (true, b"HTTP/1.1 200 OK\r\n"),
        (true, b"Server: nginx\r\nContent-Le"),
        (true, b"ngth: 2\r\n\r\n"),
        (true, b"o"),
        (true, b"k"),
    ];
    let at = alerts("http-pieces", RULES, pieces);
    let expected: [(u64, usize); 12] =
        [(1, 1), (2, 4), (3, 4), (4, 7), (5, 5), (6, 7), (8, 7), (9, 7), (10, 2), (11, 9), (12, 10), (13, 8)];
    assert_eq!(at, expected.into_iter().map(|(sid, piece)| (sid, vec![piece])).collect());
}

/// The host in a request's target takes precedence over the field, also before the fields are complete.
#[test]
fn the_raw_host_in_pieces() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"target"; http.host.raw; content:"b.example"; sid:1;)
alert http any any -> any any (msg:"field"; http.host.raw; content:"a.example"; sid:2;)
"#;
    let pieces: &[(bool, &[u8])] = &[
        (false, b"GET http://b.example/x HTTP/1.1\r\n"),
        (false, b"Host: a.example\r\n"),
        (false, b"Accept: x\r\n"),
        (false, b"\r\n"),
        (true, RESPONSE),
    ];
    assert_eq!(alerts("http-raw-host", RULES, pieces), [(1, vec![1])].into_iter().collect());
}

/// IPv6 literals are in lower case, an empty field is an empty raw host, and the values of repeated fields are joined.
#[test]
fn values_of_hosts() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"literal"; http.host; content:"[2001:db8::1]"; bsize:13; sid:1;)
alert http any any -> any any (msg:"as written"; http.host.raw; content:"[2001:DB8::1]:81"; bsize:16; sid:2;)
alert http any any -> any any (msg:"target"; http.host.raw; content:"[2001:db8::1]"; bsize:13; sid:3;)
alert http any any -> any any (msg:"empty"; http.host.raw; bsize:0; sid:4;)
alert http any any -> any any (msg:"any"; http.host; content:!"|00|"; sid:5;)
alert http any any -> any any (msg:"joined"; http.host.raw; content:"A.example, "; bsize:11; sid:6;)
alert http any any -> any any (msg:"missing"; flow:to_server; app-layer-event:http.missing_host_header; sid:7;)
"#;
    let of = |name: &str, head: &str| -> Vec<u64> {
        let request = format!("{head}\r\n\r\n");
        alerts(name, RULES, &[(false, request.as_bytes()), (true, RESPONSE)]).into_keys().collect()
    };
    assert_eq!(of("http-host-literal", "GET / HTTP/1.1\r\nHost: [2001:DB8::1]:81"), [1, 2, 5]);
    assert_eq!(of("http-host-target", "GET http://[2001:DB8::1]/ HTTP/1.1\r\nHost: [2001:DB8::1]"), [1, 3, 5]);
    assert_eq!(of("http-host-empty", "GET / HTTP/1.1\r\nHost: "), [4]);
    assert_eq!(of("http-host-joined", "GET / HTTP/1.1\r\nHost: A.example\r\nHost:"), [5, 6]);
    // RFC 9112, section 3.2: a target with a host needs the field too.
    assert_eq!(of("http-host-none", "GET http://a.example/ HTTP/1.1\r\nAccept: x"), [5, 7]);
    assert_eq!(of("http-host-old", "GET / HTTP/1.0"), [0u64; 0]);
}

/// Rules on a chunked body match once the last chunk is there. Fields of the trailer count for `http.header`, though the message's
/// other fields were inspected long before.
#[test]
fn a_trailer_in_pieces() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"body"; http.response_body; content:"needle"; sid:1;)
alert http any any -> any any (msg:"field"; flow:to_client; http.header; content:"X-Odd"; sid:2;)
alert http any any -> any any (msg:"trailer"; flow:to_client; http.header; content:"X-Trail|3a| 1"; sid:3;)
alert http any any -> any any (msg:"trailer"; flow:to_client; http.header.raw; pcre:"/^x.trail/im"; sid:4;)
alert http any any -> any any (msg:"both"; flow:to_client; http.stat_code; content:"200"; http.header; content:"Trail"; sid:5;)
alert http any any -> any any (msg:"none"; flow:to_client; http.header; content:"Trailers"; sid:6;)
"#;
    let pieces: &[(bool, &[u8])] = &[
        (false, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (true, b"HTTP/1.1 200 OK\r\nX-Odd: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (true, b"6\r\nneedle\r\n0\r\n"),
        (true, b"X-Tr"),
        (true, b"ail: 1\r\n"),
        (true, b"\r\n"),
        (false, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (true, RESPONSE),
    ];
    let at = alerts("http-trailer", RULES, pieces);
    let expected: [(u64, usize); 5] = [(1, 3), (2, 2), (3, 6), (4, 6), (5, 6)];
    assert_eq!(at, expected.into_iter().map(|(sid, piece)| (sid, vec![piece])).collect());
}

/// CONNECT has no path, so its `http.uri` is there and empty: its target is an authority.
#[test]
fn connect_has_no_uri() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"uri"; http.uri; bsize:>0; sid:1;)
alert http any any -> any any (msg:"urilen"; urilen:>0; sid:2;)
alert http any any -> any any (msg:"raw"; http.uri.raw; content:"a.example:443"; sid:3;)
alert http any any -> any any (msg:"empty"; http.uri; bsize:0; sid:4;)
alert http any any -> any any (msg:"no length"; urilen:0; sid:5;)
alert http any any -> any any (msg:"not there"; http.method; content:"CONNECT"; http.uri; content:!"zzz"; sid:6;)
"#;
    let pieces: &[(bool, &[u8])] = &[
        (false, b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (true, b"HTTP/1.1 407 Authenticate\r\nContent-Length: 0\r\n\r\n"),
        (false, b"\r\n"),
    ];
    assert_eq!(alerts("http-connect-uri", RULES, pieces).keys().collect::<Vec<_>>(), [&3, &4, &5, &6]);
}

/// `file.data` of an upload waits for as much data as `http.request_body` (`request-body-minimal-inspect-size`).
#[test]
fn an_upload_in_pieces() {
    const RULES: &str = r#"
alert http any any -> any any (msg:"body"; http.request_body; content:"needle"; sid:1;)
alert http any any -> any any (msg:"file"; flow:to_server; file.data; content:"needle"; sid:2;)
alert http any any -> any any (msg:"name"; flow:to_server; file.name; content:"up"; sid:3;)
"#;
    let pieces: &[(bool, &[u8])] = &[
        (false, b"POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: 14\r\n\r\n"),
        (false, b"needle "),
        (false, b"need"),
        (false, b"le."),
        (true, RESPONSE),
    ];
    let at = alerts("http-upload", RULES, pieces);
    assert_eq!(at, [(1, vec![4]), (2, vec![4]), (3, vec![2])].into_iter().collect());
}

/// The requests behind a refused CONNECT were sent before the server's next response, however TCP divides the responses.
#[test]
fn requests_behind_a_refused_connect() {
    const REFUSED: &[u8] = b"HTTP/1.1 407 Authenticate\r\nContent-Length: 2\r\n\r\nno";
    let requests = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n\
          GET /a/secret.php HTTP/1.1\r\nHost: a.example\r\n\r\nGET /b HTTP/1.1\r\nHost: b.example\r\n\r\n";
    let found = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nsorry";
    let responses = [REFUSED, RESPONSE, found].concat();
    let mut capture = Capture::new();
    for (n, size) in [usize::MAX, 1, 7, REFUSED.len(), REFUSED.len() + 1].into_iter().enumerate() {
        capture.connection(20_000 + n as u16, &[(false, requests), (true, &responses)], &mut || size);
    }
    let dir = folder("http-behind-connect");
    run(&dir, &capture, &[]);
    let found = by_port(&dir);
    let first = &found[&20_000];
    assert_eq!(first.iter().filter(|e| e.starts_with("http ")).count(), 3, "{first:#?}");
    assert!(first.iter().any(|e| e.starts_with("alert 5 of tx 2 ")), "{first:#?}");
    for (port, events) in &found {
        assert_eq!(events, first, "connection {port}");
    }
}

/// Padding hides nothing: rules see every argument of a long body, whatever its kind and its segments, and each alerts once.
#[test]
fn arguments_of_a_long_body() {
    let rules = r#"
alert http any any -> any any (msg:"first"; http.arg; content:"needle-1"; bsize:8; sid:101;)
alert http any any -> any any (msg:"middle"; http.arg; content:"needle-2"; bsize:8; sid:102;)
alert http any any -> any any (msg:"last"; http.arg; content:"needle-3"; bsize:8; sid:103;)
alert http any any -> any any (msg:"within"; http.arg; content:"needle-4"; sid:104;)
alert http any any -> any any (msg:"target"; http.arg; content:"in target"; bsize:9; sid:105;)
"#;
    let many = |item: &dyn Fn(usize) -> String| (0..9000).map(item).collect::<String>();
    let form = format!(
        "a=needle-1&{}b=needle-2&c={}needle-4{}&{}d=needle-3",
        many(&|i| format!("a{i}=1&")),
        "x".repeat(70_000),
        "y".repeat(70_000),
        "z&".repeat(40_000)
    );
    let json = format!(
        r#"{{"a":"needle-1",{}"b":"needle-2","c":"{}needle-4{}","d":["{}needle-3"]}}"#,
        many(&|i| format!("\"a{i}\":{i},")),
        "x".repeat(70_000),
        "\\u0079".repeat(70_000),
        "z\",\"".repeat(40_000)
    );
    let xml = format!(
        "<r><a>needle-1</a>{}<b>needle-2</b><c>{}needle-4{}</c>{}<d>needle-3</d></r>",
        many(&|i| format!("<a>{i}</a>")),
        "x".repeat(70_000),
        "y".repeat(70_000),
        "<z/>".repeat(20_000)
    );
    let part = |name: &str, more: &str, value: &str| {
        format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{value}\r\n")
    };
    let parts = format!(
        "{}{}{}{}{}{}--X--\r\n",
        part("a", "", "needle-1"),
        many(&|i| part(&format!("a{i}"), "", "1")),
        part("f", "; filename=\"f.bin\"", &"needle\r\n".repeat(30_000)),
        part("b", "", "needle-2"),
        part("c", "", &format!("{}needle-4{}", "x".repeat(70_000), "y".repeat(70_000))),
        part("d", "", "needle-3")
    );
    let kinds = [
        ("form", "application/x-www-form-urlencoded", form),
        ("json", "application/json", json),
        ("xml", "application/xml", xml),
        ("parts", "multipart/form-data; boundary=X", parts),
    ];
    for (name, content_type, body) in kinds {
        let head = format!(
            "POST /p?a=in%20target HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        for segment in [1460, 60_000] {
            let dir = folder(&format!("http-long-{name}-{segment}"));
            let mut capture = Capture::new();
            let turns = [(false, head.as_bytes()), (false, body.as_bytes()), (true, answer)];
            capture.connection(40_000, &turns, &mut || segment);
            let o = command_with(&dir, &capture, rules, &["--simulate-ips"]).output().expect("the engine starts");
            assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
            let mut found: Vec<u64> =
                events(&dir, "alert").iter().filter_map(|a| a["alert"]["signature_id"].as_u64()).collect();
            found.sort_unstable();
            assert_eq!(found, [101, 102, 103, 104, 105], "{name} in segments of {segment}");
        }
    }
}

/// Inline, a long upload does not hide the next request of its connection. Otherwise `stream-depth` decides.
#[test]
fn a_request_behind_the_depth() {
    let rules = r#"alert http any any -> any any (msg:"second"; http.uri; content:"/second"; sid:101;)"#;
    let upload =
        [&b"POST /first HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n"[..], &[b'x'; 2_000_000]].concat();
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let second: &[u8] = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut capture = Capture::new();
    let turns = [(false, &upload[..]), (true, answer), (false, second), (true, answer)];
    capture.connection(40_000, &turns, &mut || 60_000);
    let runs: [(&str, &[&str], usize); 4] = [
        ("passive", &[], 0),
        ("all", &["--set", "app-layer.protocols.http.stream-depth=0"], 1),
        ("inline", &["--simulate-ips"], 1),
        ("some", &["--simulate-ips", "--set", "app-layer.protocols.http.stream-depth=1mb"], 0),
    ];
    for (name, options, found) in runs {
        let dir = folder(&format!("http-depth-{name}"));
        let o = command_with(&dir, &capture, rules, options).output().expect("the engine starts");
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        assert_eq!(events(&dir, "alert").len(), found, "{name}");
    }
}

/// Padding hides nothing in a compressed body either; if it grows beyond all proportion, that is an event.
#[test]
fn arguments_of_a_long_compressed_body() {
    let rules = r#"
alert http any any -> any any (msg:"needle"; http.arg; content:"needle"; bsize:6; sid:101;)
alert http any any -> any any (msg:"bomb"; flow:to_server; app-layer-event:http.compression_bomb; sid:102;)
"#;
    // One in two megabytes compresses well, the other to a thousandth.
    let log: String =
        (0u32..90_000).map(|i| format!("a{}=GET /{}&", i % 7, i.wrapping_mul(2_654_435_761) >> 12)).collect();
    let runs = [("log", format!("{log}b=needle"), 101), ("bomb", format!("a={}&b=needle", "x".repeat(2_000_000)), 102)];
    for (name, body, sid) in runs {
        assert!(body.len() > 1 << 20, "{}", body.len());
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body.as_bytes()).expect("memory");
        let packed = encoder.finish().expect("memory");
        let head = format!(
            "POST /p HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n",
            packed.len()
        );
        let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let dir = folder(&format!("http-long-packed-{name}"));
        let mut capture = Capture::new();
        let turns = [(false, head.as_bytes()), (false, &packed[..]), (true, answer)];
        capture.connection(40_000, &turns, &mut || 1460);
        let o = command_with(&dir, &capture, rules, &["--simulate-ips"]).output().expect("the engine starts");
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        let found: Vec<_> = events(&dir, "alert").iter().filter_map(|a| a["alert"]["signature_id"].as_u64()).collect();
        assert_eq!(found, [sid], "{name}");
    }
}
