//! Flows that move between workers (`autofp-scheduler: conservative`, `optimistic`): the events are those of one worker.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);
/// Settings that cause as many moves as possible.
const TINY: [&str; 6] =
    ["--set", "margay.move-difference=0", "--set", "margay.move-waiting=2", "--set", "margay.batch-size=16"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("moves-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

fn start(dir: &Path, capture: &Path, rules: &Path, more: &[&str]) -> Child {
    let root = root();
    let set = |name: &str, file: &str| format!("{name}={}", root.join(file).display());
    let err = std::fs::File::create(dir.join("err")).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_margay"))
        .arg("-c")
        .arg(root.join("etc/margay.yaml"))
        .arg("-l")
        .arg(dir)
        .args(["-v", "-k", "none", "--set", &set("classification-file", "etc/classification.config")])
        .args(["--set", &set("reference-config-file", "etc/reference.config"), "-S"])
        .arg(rules)
        .arg("-r")
        .arg(capture)
        .args(more)
        .stdout(err.try_clone().expect("the same file"))
        .stderr(err)
        .stdin(Stdio::null())
        .spawn()
        .expect("the engine starts")
}

/// The output after the process has ended, and whether it succeeded.
fn said(mut child: Child, dir: &Path) -> (String, bool) {
    let end = Instant::now() + PATIENCE;
    let mut ended = None;
    while ended.is_none() && Instant::now() < end {
        ended = child.try_wait().expect("a child");
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = std::fs::read_to_string(dir.join("err")).unwrap_or_default();
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    (format!("{ended:?}\n{text}"), ended.is_some_and(|s| s.success()))
}

/// Waits until a condition is true.
fn until(mut what: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < end, "not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn moves(said: &str) -> u64 {
    let rest = said.split("autofp: moved ").nth(1).unwrap_or_default();
    rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// All events except statistics, complete, in no order. Events at the end of a flow are compared without their time.
/// After a long silence, another flow may have reused the entry. The next flow with the same addresses may then be on
/// another worker: the first one ends at the end of the run instead of by timeout, and the second one's number does not
/// follow from it. `silent` leaves out both differences.
fn events(dir: &Path, silent: bool) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for line in std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default().lines() {
        let mut event: Value = serde_json::from_str(line).expect("an event");
        let o = event.as_object_mut().expect("an object");
        if o["event_type"] == "stats" {
            continue;
        }
        if !o.contains_key("pcap_cnt") {
            o.remove("timestamp");
        }
        if silent {
            o.remove("flow_id");
            o.remove("parent_id");
            if let Some(flow) = o.get_mut("flow").and_then(Value::as_object_mut) {
                flow.remove("reason");
            }
        }
        *all.entry(event.to_string()).or_default() += 1;
    }
    all
}

/// Counters of the last statistics.
fn counter(dir: &Path, name: &[&str]) -> u64 {
    let text = std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default();
    let last = text.lines().rfind(|l| l.contains("\"event_type\":\"stats\"")).expect("statistics");
    let stats: Value = serde_json::from_str(last).expect("an event");
    name.iter().fold(&stats["stats"], |v, n| &v[*n]).as_u64().unwrap_or_default()
}

/// Counters whose sum over workers equals that of one worker.
const SUMS: [&[&str]; 10] = [
    &["flow", "total"],
    &["flow", "tcp"],
    &["flow", "recycler", "recycled"],
    &["flow", "end", "state", "closed"],
    &["flow", "end", "state", "established"],
    &["tcp", "sessions"],
    &["tcp", "segment_from_cache"],
    &["detect", "alert"],
    &["app_layer", "flow", "http"],
    &["app_layer", "tx", "http"],
];

fn mode(strategy: &str, workers: u32) -> Vec<String> {
    let set = [format!("autofp-scheduler={strategy}"), format!("margay.workers={workers}")];
    let mut args = vec!["--runmode".to_owned(), "autofp".to_owned()];
    args.extend(set.into_iter().flat_map(|s| ["--set".to_owned(), s]));
    args.extend(TINY.map(str::to_owned));
    args
}

/// Runs with one worker, and with several in both modes, and compares everything. Returns the numbers of events and of
/// moves.
fn compare(name: &str, capture: &Path, rules: &Path, silent: bool) -> (usize, u64) {
    let run = |name: &str, args: &[String]| {
        let dir = folder(name);
        let all: Vec<&str> = args.iter().map(String::as_str).collect();
        let (said, ok) = said(start(&dir, capture, rules, &all), &dir);
        assert!(ok, "{said}");
        (events(&dir, silent), moves(&said), dir)
    };
    let (one, _, whole) = run(&format!("{name}-1"), &["--runmode".to_owned(), "single".to_owned()]);
    let mut moves = 0;
    for strategy in ["conservative", "optimistic"] {
        for workers in [2, 3, 8] {
            let (several, moved, dir) = run(&format!("{name}-{strategy}-{workers}"), &mode(strategy, workers));
            let missing: Vec<_> = one.iter().filter(|(k, n)| several.get(*k) != Some(n)).collect();
            let more: Vec<_> = several.iter().filter(|(k, n)| one.get(*k) != Some(n)).collect();
            assert!(
                missing.is_empty() && more.is_empty(),
                "{name}: {strategy}, {workers} workers, {moved} moves: not as with one:\n{missing:#?}\n{more:#?}"
            );
            // Counters of the workers' current state add up to 0 at the end.
            for gone in [&["flow", "active"][..], &["tcp", "active_sessions"], &["tcp", "memuse"], &["http", "memuse"]]
            {
                assert_eq!(counter(&dir, gone), 0, "{gone:?}");
            }
            // A flow counts once, wherever it moved.
            for sum in SUMS {
                assert_eq!(counter(&dir, sum), counter(&whole, sum), "{sum:?}: {name}, {strategy}, {workers} workers");
            }
            assert_eq!(counter(&dir, &["autofp", "moves"]), moved);
            moves += moved;
        }
    }
    (one.values().map(|n| *n as usize).sum(), moves)
}

/// A packet: VLAN, addresses, and the bytes after the IP header.
struct Made {
    vlan: u16,
    ends: ([u8; 4], [u8; 4]),
    proto: u8,
    rest: Vec<u8>,
}

impl Made {
    fn frame(&self) -> Vec<u8> {
        let mut b = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if self.vlan != 0 {
            b.extend([0x81, 0]);
            b.extend(self.vlan.to_be_bytes());
        }
        b.extend([8, 0, 0x45, 0]);
        b.extend((20 + self.rest.len() as u16).to_be_bytes());
        b.extend([0, 7, 0x40, 0, 64, self.proto, 0, 0]);
        b.extend(self.ends.0);
        b.extend(self.ends.1);
        let at = b.len() - 20;
        let sum: u32 = b[at..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        b[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        b.extend(&self.rest);
        b
    }
}

/// A connection whose packets are built one after the other.
struct Connection {
    vlan: u16,
    ips: [[u8; 4]; 2],
    ports: [u16; 2],
    next: [u32; 2],
    packets: Vec<Made>,
}

impl Connection {
    fn new(n: u16, vlan: u16) -> Connection {
        let client = [10, 1, (n >> 6) as u8, (n & 63) as u8];
        Connection {
            vlan,
            ips: [client, [192, 0, 2, 1 + (n % 7) as u8]],
            ports: [20_000 + n, 80],
            next: [1000, 9000],
            packets: Vec::new(),
        }
    }

    fn tcp(&mut self, from: usize, flags: u8, data: &[u8]) {
        let to = 1 - from;
        let mut rest = Vec::new();
        rest.extend(self.ports[from].to_be_bytes());
        rest.extend(self.ports[to].to_be_bytes());
        rest.extend(self.next[from].to_be_bytes());
        rest.extend(if flags & 0x10 != 0 { self.next[to] } else { 0 }.to_be_bytes());
        rest.extend([0x50, flags, 0x7f, 0xff, 0, 0, 0, 0]);
        rest.extend(data);
        self.next[from] += data.len() as u32 + u32::from(flags & 3 != 0);
        self.packets.push(Made { vlan: self.vlan, ends: (self.ips[from], self.ips[to]), proto: 6, rest });
    }

    /// Requests in two packets each, and responses in three. `closes` adds the end of the connection.
    fn http(mut self, paths: &[&str], closes: bool) -> Vec<Made> {
        self.tcp(0, 0x02, b"");
        self.tcp(1, 0x12, b"");
        self.tcp(0, 0x10, b"");
        for path in paths {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: server-{}.example\r\nUser-Agent: moves\r\n\r\n", self.ports[0]);
            let (a, b) = request.as_bytes().split_at(9);
            self.tcp(0, 0x18, a);
            self.tcp(0, 0x18, b);
            self.tcp(1, 0x10, b"");
            let body = "what goes over two packets, ".repeat(40);
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let third = answer.len() / 3;
            self.tcp(1, 0x18, &answer.as_bytes()[..third]);
            self.tcp(1, 0x18, &answer.as_bytes()[third..2 * third]);
            self.tcp(0, 0x10, b"");
            self.tcp(1, 0x18, &answer.as_bytes()[2 * third..]);
            self.tcp(0, 0x10, b"");
        }
        if closes {
            self.tcp(0, 0x11, b"");
            self.tcp(1, 0x11, b"");
            self.tcp(0, 0x10, b"");
        }
        self.packets
    }

    /// Datagrams with these texts.
    fn udp(self, texts: &[&str]) -> Vec<Made> {
        let one = |(n, text): (usize, &&str)| {
            let (from, to) = (n % 2, 1 - n % 2);
            let mut rest = Vec::new();
            rest.extend(self.ports[from].to_be_bytes());
            rest.extend((self.ports[to] + 9920 * u16::from(to == 1)).to_be_bytes());
            rest.extend((8 + text.len() as u16).to_be_bytes());
            rest.extend([0, 0]);
            rest.extend(text.as_bytes());
            if from == 1 {
                rest[..2].copy_from_slice(&10_000u16.to_be_bytes());
            }
            Made { vlan: self.vlan, ends: (self.ips[from], self.ips[to]), proto: 17, rest }
        };
        texts.iter().enumerate().map(one).collect()
    }
}

/// Flows of many kinds, interleaved: a few packets of one, a few of the next. Some differ only in their VLAN.
fn frames() -> Vec<Vec<u8>> {
    let mut flows: Vec<std::vec::IntoIter<Made>> = Vec::new();
    for n in 0..150 {
        let paths = ["/a", "/b", "/c", "/a/d", "/e"];
        flows.push(Connection::new(n, 0).http(&paths[..3 + n as usize % 3], n % 2 == 0).into_iter());
        if n % 4 == 0 {
            flows.push(Connection::new(n, 7).http(&["/c", "/a"], n % 8 == 0).into_iter());
        }
        if n % 3 == 0 {
            flows.push(Connection::new(1000 + n, 0).udp(&["one", "two", "three", "four", "five", "six"]).into_iter());
        }
    }
    // One flow that is much of the load.
    flows.push(Connection::new(5000, 0).http(&["/a", "/c"].repeat(100), true).into_iter());
    let mut out = Vec::new();
    let mut turn = 0;
    while !flows.is_empty() {
        for (n, flow) in flows.iter_mut().enumerate() {
            let many = if n % 191 == 190 { 40 } else { 1 + (n + turn) % 4 };
            out.extend(flow.take(many).map(|m| m.frame()));
        }
        flows.retain(|f| f.len() > 0);
        turn += 1;
    }
    out
}

const HEADER: [u8; 24] = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// Records of a capture file; the first has the number `from`.
fn records(frames: &[Vec<u8>], from: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, f) in frames.iter().enumerate() {
        let micros = (from + n) as u32 * 500;
        for word in [1_700_000_000 + micros / 1_000_000, micros % 1_000_000, f.len() as u32, f.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(f);
    }
    out
}

fn rules(dir: &Path, more: &str) -> PathBuf {
    let path = dir.join("moves.rules");
    let any = "any any -> any any";
    let text = format!(
        "alert http {any} (http.uri; content:\"/a\"; flowbits:set,first; sid:1;)\n\
         alert http {any} (http.uri; content:\"/c\"; flowbits:isset,first; sid:2;)\n\
         alert http {any} (http.uri; content:\"/\"; flowint:requests,+,1; noalert; sid:3;)\n\
         alert http {any} (http.uri; content:\"/c\"; flowint:requests,==,3; sid:4;)\n\
         alert http {any} (http.uri; content:\"/\"; threshold:type threshold, track by_src, count 3, seconds 600; sid:5;)\n\
         alert http {any} (http.uri; content:\"/b\"; tag:session,5,packets; sid:6;)\n\
         alert tcp {any} (flow:to_client; content:\"packets, what goes over\"; threshold:type limit, track by_src, count 5, seconds 600; sid:7;)\n\
         alert udp {any} (content:\"one\"; flowbits:set,one; noalert; sid:8;)\n\
         alert udp {any} (content:\"five\"; flowbits:isset,one; sid:9;)\n\
         alert http {any} (http.uri; content:\"/e\"; xbits:set,e,track ip_dst,expire 600; sid:10;)\n\
         alert http {any} (http.uri; content:\"/d\"; xbits:isset,e,track ip_dst; sid:11;)\n\
         alert http {any} (flow:to_client; file.data; content:\"goes\"; filemd5:!none.list; sid:12;)\n\
         {more}"
    );
    std::fs::write(dir.join("none.list"), "00000000000000000000000000000000\n").expect("a list");
    std::fs::write(&path, text).expect("rules");
    path
}

#[test]
fn many_moves_change_nothing() {
    let dir = folder("many");
    let capture = dir.join("made.pcap");
    std::fs::write(&capture, [&HEADER[..], &records(&frames(), 0)].concat()).expect("a capture");
    let (events, moves) = compare("many", &capture, &rules(&dir, ""), false);
    assert!(events > 2000 && moves > 50, "{events} events, {moves} moves");
    eprintln!("{events} events, {moves} moves");
}

#[test]
fn real_packets() {
    let dir = root().join("crates/margay/tests/keywords");
    let (events, _) = compare("keywords", &dir.join("packets.pcap"), &dir.join("keywords.rules"), false);
    assert!(events > 50);
    let (events, _) = compare("demo", &root().join("demo/demo.pcap"), &root().join("demo/demo.rules"), false);
    assert!(events > 5);
}

/// Captures of real applications and attacks, if they are present (`../shared/captures/real`); all of them with
/// `MARGAY_ALL_CASES`.
#[test]
fn real_captures() {
    let Some(dir) = margay_testing::shared("captures/real") else { return };
    let entries = std::fs::read_dir(&dir).expect("the folder can be read");
    let mut captures: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    captures.retain(|p| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng"));
    captures.sort();
    let all = std::env::var_os("MARGAY_ALL_CASES").is_some();
    let rules = rules(&folder("real-rules"), "");
    let mut moves = 0;
    for (n, capture) in captures.iter().enumerate() {
        if all || n % 64 == 0 {
            moves += compare(&format!("real-{n}"), capture, &rules, true).1;
        }
    }
    eprintln!("{moves} moves");
}

/// A named pipe for packets.
fn pipe(dir: &Path) -> PathBuf {
    let path = dir.join("pipe");
    margay_testing::named_pipe(&path);
    path
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(sent.expect("kill").success());
}

/// Rules are reloaded while flows move: flows keep their state, and the new rules find the rest.
#[test]
fn reloads_in_the_middle_of_moves() {
    let frames = frames();
    for (strategy, workers) in [("conservative", 2), ("optimistic", 3)] {
        let dir = folder(&format!("reload-{strategy}"));
        let rules_file = rules(&dir, "");
        let pipe = pipe(&dir);
        let args = mode(strategy, workers);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let child = start(&dir, &pipe, &rules_file, &args);
        let mut to = std::fs::OpenOptions::new().write(true).open(&pipe).expect("the engine reads");
        to.write_all(&HEADER).expect("a header");
        let said_so_far = || std::fs::read_to_string(dir.join("err")).unwrap_or_default();
        let parts = 6;
        for part in 0..parts {
            let (from, end) = (frames.len() * part / parts, frames.len() * (part + 1) / parts);
            let middle = usize::midpoint(from, end);
            to.write_all(&records(&frames[from..middle], from)).expect("packets");
            if part + 1 < parts {
                // The same rules with others between them, so that their internal numbers change.
                let more = format!("alert tcp any any -> any any (content:\"never-{part}\"; sid:{};)\n", 100 + part);
                let text = std::fs::read_to_string(rules(&dir, "")).expect("rules");
                std::fs::write(&rules_file, if part % 2 == 0 { format!("{more}{text}") } else { text }).expect("rules");
                signal(&child, "USR2");
            }
            to.write_all(&records(&frames[middle..end], middle)).expect("packets");
            until(|| said_so_far().matches("rule reload complete").count() >= (part + 1).min(parts - 1));
        }
        drop(to);
        let (said, ok) = said(child, &dir);
        assert!(ok && moves(&said) > 5, "{said}");
        let whole = folder(&format!("reload-{strategy}-1"));
        let capture = whole.join("made.pcap");
        std::fs::write(&capture, [&HEADER[..], &records(&frames, 0)].concat()).expect("a capture");
        let (words, ok) = self::said(start(&whole, &capture, &rules(&whole, ""), &["--runmode", "single"]), &whole);
        assert!(ok, "{words}");
        // Alerts and transactions by content, because the files have other names.
        let of = |dir: &Path| {
            let mut all = BTreeMap::new();
            for (line, n) in events(dir, false) {
                let e: Value = serde_json::from_str(&line).expect("an event");
                let key = format!(
                    "{} {} {} {} {} {} {}",
                    e["event_type"],
                    e["flow_id"],
                    e["pcap_cnt"],
                    e["alert"]["signature_id"],
                    e["tx_id"],
                    e["flow"],
                    e["tcp"]
                );
                *all.entry(key).or_insert(0) += n;
            }
            all
        };
        let (one, several) = (of(&whole), of(&dir));
        let missing: Vec<_> = one.iter().filter(|(k, n)| several.get(*k) != Some(n)).collect();
        let more: Vec<_> = several.iter().filter(|(k, n)| one.get(*k) != Some(n)).collect();
        assert!(missing.is_empty() && more.is_empty(), "{strategy}: {missing:#?}\n{more:#?}");
    }
}

/// A stop during moves ends the run at once, and each flow seen is reported once.
#[test]
fn a_stop_in_the_middle_of_moves() {
    let frames = frames();
    for strategy in ["conservative", "optimistic"] {
        let dir = folder(&format!("stop-{strategy}"));
        let pipe = pipe(&dir);
        let args = mode(strategy, 3);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let child = start(&dir, &pipe, &rules(&dir, ""), &args);
        let mut to = std::fs::OpenOptions::new().write(true).open(&pipe).expect("the engine reads");
        to.write_all(&HEADER).expect("a header");
        let half = records(&frames[..frames.len() / 2], 0);
        let writer = std::thread::spawn(move || {
            // After the stop, nothing reads the pipe.
            let _ = to.write_all(&half);
            to
        });
        until(|| std::fs::metadata(dir.join("eve.json")).is_ok_and(|m| m.len() > 100_000) || writer.is_finished());
        signal(&child, "TERM");
        let (said, ok) = said(child, &dir);
        assert!(ok, "{said}");
        drop(writer.join());
        let mut flows: BTreeMap<String, u32> = BTreeMap::new();
        for (line, n) in events(&dir, false) {
            let e: Value = serde_json::from_str(&line).expect("an event");
            if e["event_type"] == "flow" {
                *flows.entry(format!("{} {} {} {}", e["src_ip"], e["src_port"], e["vlan"], e["proto"])).or_default() +=
                    n;
            }
        }
        assert!(flows.len() > 10 && flows.values().all(|n| *n == 1), "{flows:#?}\n{said}");
        assert_eq!(counter(&dir, &["flow", "active"]), 0);
    }
}
