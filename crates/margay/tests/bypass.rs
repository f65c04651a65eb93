//! Flows that are bypassed in the kernel. The engine has one end of a pair of virtual interfaces, traffic comes from the
//! other. Each test has a network namespace of its own.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wire::{Engine, Sender, events, folder, last_stats, pair, said, wait};

in_namespace! {
    "mgb";
    an_elephant_passes_by_and_is_counted: inner_elephant,
    a_flow_lasts_as_long_as_its_packets: inner_lasting,
    what_the_kernel_refuses_is_done_here: inner_refused,
    what_is_over_ends_in_the_kernel: inner_over_kernel,
    what_is_over_ends_in_user_space: inner_over_local,
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const FIN: u8 = 0x11;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A TCP connection as Ethernet frames.
struct Connection {
    port: u16,
    next: [u32; 2],
    frames: Vec<Vec<u8>>,
}

impl Connection {
    fn new(port: u16) -> Connection {
        let mut c = Connection { port, next: [1000, 2000], frames: Vec::new() };
        c.packet(0, SYN, b"");
        c.packet(1, SYN | ACK, b"");
        c.packet(0, ACK, b"");
        c
    }

    /// Adds a packet from side `from`: 0 is the client.
    fn packet(&mut self, from: usize, flags: u8, payload: &[u8]) {
        let len = 40 + payload.len() as u16;
        let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        f.extend_from_slice(&len.to_be_bytes());
        f.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        let ends = [(CLIENT, self.port), (SERVER, 80)];
        let (source, destination) = (ends[from], ends[1 - from]);
        f.extend_from_slice(&source.0);
        f.extend_from_slice(&destination.0);
        f.extend_from_slice(&source.1.to_be_bytes());
        f.extend_from_slice(&destination.1.to_be_bytes());
        f.extend_from_slice(&self.next[from].to_be_bytes());
        f.extend_from_slice(&self.next[1 - from].to_be_bytes());
        f.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        f.extend_from_slice(payload);
        let counts = payload.len() as u32 + u32::from(flags & 3 != 0);
        self.next[from] = self.next[from].wrapping_add(counts);
        self.frames.push(f);
    }

    /// Takes the frames that were not taken yet.
    fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.frames)
    }
}

fn rules(dir: &Path) {
    let text = "alert tcp any any -> any 80 (msg:\"enough\"; dsize:>0; content:\"LETMEPASS\"; bypass; sid:1;)\n\
                alert tcp any any -> any 80 (msg:\"more\"; dsize:>0; content:\"needle\"; sid:2;)\n";
    std::fs::write(dir.join("a.rules"), text).expect("rules");
}

fn counter(e: &Engine, path: &[&str]) -> u64 {
    let mut at: &Value = &e.ask(&["dump-counters"]);
    for p in path {
        at = &at[*p];
    }
    at.as_u64().unwrap_or(0)
}

fn bypassed(e: &Engine) -> u64 {
    e.ask(&["iface-stat", "vb"])["bypassed"].as_u64().unwrap_or(0)
}

/// The flow events of a port.
fn flows(dir: &Path, port: u16) -> Vec<Value> {
    let of = |e: &Value| e["event_type"] == "flow" && e["src_port"] == port;
    events(dir).into_iter().filter(of).collect()
}

fn occupied() -> bool {
    let o = Command::new("ip").args(["link", "show", "vb"]).output().expect("ip runs");
    String::from_utf8_lossy(&o.stdout).contains("xdp")
}

/// Packets and bytes of each side.
fn sums(frames: &[Vec<u8>]) -> [(u64, u64); 2] {
    let mut all = [(0, 0); 2];
    for f in frames {
        let side = usize::from(f[26..30] == SERVER);
        all[side].0 += 1;
        all[side].1 += f.len() as u64;
    }
    all
}

const LIVE: [&str; 9] = [
    "-i",
    "vb",
    "--set",
    "af-packet.1.threads=2",
    "--set",
    "af-packet.1.bypass=yes",
    "--set",
    "stream.midstream=no",
    "-vv",
];

#[test]
#[ignore = "runs in a namespace"]
fn inner_elephant() {
    pair("va", "vb");
    for mode in ["soft", "driver"] {
        let dir = folder(&format!("bypass-{mode}"));
        rules(&dir);
        let mode = format!("af-packet.1.xdp-mode={mode}");
        let e = Engine::start(&dir, &[&LIVE[..], &["--set", &mode]].concat());
        assert!(occupied(), "{:?}", e.all);
        let mut sender = Sender::on("va");
        let (mut elephant, mut other) = (Connection::new(4000), Connection::new(4001));
        elephant.packet(0, ACK, b"GET LETMEPASS");
        let mut all = elephant.take();
        sender.send(&all);
        wait("the flow is entered", || counter(&e, &["capture", "bypass", "flows"]) == 1);
        let told = serde_json::json!({
            "ipv4_maps_count": 2, "ipv4_success": 1, "ipv4_fail": 0,
            "ipv6_maps_count": 0, "ipv6_success": 0, "ipv6_fail": 0,
        });
        for command in ["iface-bypassed-stat", "ebpf-bypassed-stat"] {
            assert_eq!(e.ask(&[command]), serde_json::json!({"vb": told}));
        }
        // Packets that arrive meanwhile, of this flow and of another one.
        for _ in 0..5000 {
            elephant.packet(0, ACK, &[b'a'; 100]);
            elephant.packet(1, ACK, &[b'b'; 1000]);
        }
        other.packet(0, ACK, b"a needle");
        let long = elephant.take();
        sender.send(&long);
        all.extend(long);
        let others = other.take();
        sender.send(&others);
        wait("the kernel's counts are read", || bypassed(&e) == 10_000);
        // The engine sees the end of the connection. The next packet may come before the engine reports it.
        elephant.packet(0, FIN, b"");
        elephant.packet(1, FIN, b"");
        let end = elephant.take();
        sender.send(&end);
        e.decoded((4 + others.len() + end.len()) as u64);
        all.extend(end);
        let words = e.stop();
        assert!(said(&words, "received = inspected + lost"), "{words:?}");
        assert!(!occupied(), "the program is gone");

        let [there, back] = sums(&all);
        let record = flows(&dir, 4000).pop().expect("a record");
        let flow = &record["flow"];
        assert_eq!((flow["pkts_toserver"].as_u64(), flow["bytes_toserver"].as_u64()), (Some(there.0), Some(there.1)));
        assert_eq!((flow["pkts_toclient"].as_u64(), flow["bytes_toclient"].as_u64()), (Some(back.0), Some(back.1)));
        assert_eq!((flow["state"].as_str(), flow["bypass"].as_str()), (Some("bypassed"), Some("capture")));
        let past = &flow["bypassed"];
        // With the counts of the packets that end it.
        assert_eq!(
            (past["pkts_toserver"].as_u64(), past["pkts_toclient"].as_u64()),
            (Some(5001), Some(5001)),
            "{record}"
        );
        assert!(past["bytes_toserver"].as_u64() > Some(5000 * 154), "{record}");
        let stats = last_stats(&dir);
        assert_eq!(stats["decoder"]["pkts"], 4 + others.len() + 2, "no more was looked at");
        assert_eq!(stats["flow_bypassed"]["local_capture_pkts"], 2);
        assert_eq!(stats["flow_bypassed"]["pkts"], 10_002);
        assert_eq!(stats["capture"]["bypass"]["full"], 0);
        let alerts = |sid: u64| events(&dir).iter().filter(|e| e["alert"]["signature_id"] == sid).count();
        assert_eq!((alerts(1), alerts(2)), (1, 1));
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_lasting() {
    pair("va", "vb");
    let dir = folder("bypass-lasting");
    rules(&dir);
    let short = ["--set", "flow-timeouts.tcp.bypassed=4", "--set", "flow-timeouts.tcp.emergency-bypassed=4"];
    let e = Engine::start(&dir, &[&LIVE[..], &short].concat());
    let mut sender = Sender::on("va");
    let mut c = Connection::new(5000);
    c.packet(0, ACK, b"GET LETMEPASS");
    let mut all = c.take();
    sender.send(&all);
    wait("the flow is entered", || counter(&e, &["capture", "bypass", "flows"]) == 1);
    // Wait longer than the timeout, while the engine sees none of its packets.
    let began = std::time::Instant::now();
    while began.elapsed().as_secs() < 9 {
        c.packet(0, ACK, b"more");
        let one = c.take();
        sender.send(&one);
        all.extend(one);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(flows(&dir, 5000).is_empty(), "it goes on");
    // The flow ends by timeout.
    wait("it ends", || !flows(&dir, 5000).is_empty());
    let record = flows(&dir, 5000).pop().expect("a record");
    let [there, back] = sums(&all);
    let flow = &record["flow"];
    assert_eq!(flow["pkts_toserver"].as_u64(), Some(there.0), "{record}");
    assert_eq!((flow["pkts_toclient"].as_u64(), flow["reason"].as_str()), (Some(back.0), Some("timeout")));
    assert!(flow["age"].as_u64() >= Some(8), "{record}");
    // Another connection with the same addresses is reset, and packets follow the reset.
    let mut c = Connection::new(5000);
    c.packet(0, ACK, b"GET LETMEPASS");
    sender.send(&c.take());
    wait("the flow is entered", || counter(&e, &["capture", "bypass", "flows"]) == 2);
    c.packet(1, RST | ACK, b"");
    let before = counter(&e, &["decoder", "pkts"]);
    sender.send(&c.take());
    wait("the end is seen", || counter(&e, &["decoder", "pkts"]) == before + 1);
    c.packet(0, ACK, b"late");
    sender.send(&c.take());
    wait("it comes to the engine", || counter(&e, &["decoder", "pkts"]) == before + 2);
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_refused() {
    pair("va", "vb");
    let (first, second) = (folder("bypass-first"), folder("bypass-second"));
    rules(&first);
    rules(&second);
    let mut one = Engine::start(&first, &LIVE);
    let other = Engine::start(&second, &LIVE);
    assert!(said(&other.all, "another program for XDP") && said(&other.all, "user space alone"), "{:?}", other.all);
    one.signal("KILL");
    one.child.wait().expect("it ends");
    wait("the program goes with its process", || !occupied());
    let mut c = Connection::new(6000);
    c.packet(0, ACK, b"GET LETMEPASS");
    (0..20).for_each(|_| c.packet(0, ACK, b"a needle"));
    let sent = c.take();
    Sender::on("va").send(&sent);
    other.decoded(sent.len() as u64);
    other.stop();
    let record = flows(&second, 6000).pop().expect("a record");
    assert_eq!(
        (record["flow"]["bypass"].as_str(), record["flow"]["state"].as_str()),
        (Some("local"), Some("bypassed"))
    );
    assert_eq!(record["flow"]["pkts_toserver"], 23);
    let stats = last_stats(&second);
    assert_eq!(stats["flow_bypassed"]["local_pkts"], 20);
    assert_eq!(events(&second).iter().filter(|e| e["alert"]["signature_id"] == 2).count(), 0);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_over_kernel() {
    connections_that_end(true);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_over_local() {
    connections_that_end(false);
}

/// Bypassed connections that are closed, reset and reopened, and some with forged ends.
fn connections_that_end(in_kernel: bool) {
    pair("va", "vb");
    let dir = folder(&format!("bypass-over-{in_kernel}"));
    rules(&dir);
    let set = |s: &str| ["--set".to_owned(), format!("flow-timeouts.tcp.{s}")];
    let closed: Vec<String> = ["closed=4", "emergency-closed=4"].iter().flat_map(|s| set(s)).collect();
    let closed: Vec<&str> = closed.iter().map(String::as_str).collect();
    let bypass = if in_kernel { "af-packet.1.bypass=yes" } else { "af-packet.1.bypass=no" };
    let e = Engine::start(&dir, &[&LIVE[..], &["--set", bypass], &closed].concat());
    let mut sender = Sender::on("va");
    let mut seen = 0;
    // Begins a bypassed connection, with a few more packets of both sides. Returns the frames sent.
    let mut begin = |port: u16, sender: &mut Sender| {
        let mut c = Connection::new(port);
        c.packet(0, ACK, b"GET LETMEPASS");
        let mut all = c.take();
        sender.send(&all);
        seen += 1;
        match in_kernel {
            true => wait("the flow is entered", || counter(&e, &["capture", "bypass", "flows"]) == seen),
            false => wait("the flow is bypassed", || alerts_of(&dir, 1) == seen as usize),
        }
        for _ in 0..20 {
            c.packet(0, ACK, &[b'a'; 100]);
            c.packet(1, ACK, &[b'b'; 1000]);
        }
        let more = c.take();
        sender.send(&more);
        all.extend(more);
        (c, all)
    };
    let (mut finished, mut all) = begin(7000, &mut sender);
    let (mut again, _) = begin(7001, &mut sender);
    let (mut doubted, _) = begin(7002, &mut sender);
    let (mut guessed, _) = begin(7003, &mut sender);
    let began = std::time::Instant::now();
    // Both sides close it. The kernel may have taken the last acknowledgment.
    finished.packet(0, FIN, b"");
    finished.packet(1, FIN, b"bye");
    finished.packet(0, ACK, b"");
    let end = finished.take();
    sender.send(&end);
    all.extend(end);
    // A reset, then another connection with the same addresses, which is inspected.
    again.packet(1, RST | ACK, b"");
    sender.send(&again.take());
    if in_kernel {
        wait("the kernel is rid of both", || e.ask(&["iface-bypassed-stat"])["vb"]["ipv4_maps_count"] == 4);
    }
    let mut other = Connection::new(7001);
    other.packet(0, ACK, b"a needle");
    sender.send(&other.take());
    // An attacker off the path guesses the sequence number, wrongly.
    let next = guessed.next;
    guessed.next = [next[0], next[1].wrapping_add(0x1234_5678)];
    guessed.packet(1, RST | ACK, b"");
    sender.send(&guessed.take());
    guessed.next = next;
    // The guess is right, but the host rejects it.
    let next = doubted.next;
    doubted.packet(1, RST | ACK, b"");
    doubted.next = next;
    let mut sent_on = 0;
    while began.elapsed().as_secs() < 10 {
        doubted.packet(0, ACK, b"more");
        sender.send(&doubted.take());
        sent_on += 1;
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    wait("it ends", || !flows(&dir, 7000).is_empty());
    assert!(began.elapsed().as_secs() < 90, "the bypass would have lasted longer");
    let [there, back] = sums(&all);
    let record = flows(&dir, 7000).pop().expect("a record");
    let flow = &record["flow"];
    assert_eq!((flow["reason"].as_str(), flow["state"].as_str()), (Some("timeout"), Some("bypassed")), "{record}");
    assert_eq!((flow["pkts_toserver"].as_u64(), flow["bytes_toserver"].as_u64()), (Some(there.0), Some(there.1)));
    assert_eq!((flow["pkts_toclient"].as_u64(), flow["bytes_toclient"].as_u64()), (Some(back.0), Some(back.1)));
    wait("the other one is looked at", || alerts_of(&dir, 2) == 1);
    let first = flows(&dir, 7001).remove(0);
    assert_eq!(
        (first["flow"]["reason"].as_str(), first["flow"]["pkts_toclient"].as_u64()),
        (Some("tcp_reuse"), Some(22)),
        "{first}"
    );
    for port in [7002, 7003] {
        assert!(flows(&dir, port).is_empty(), "{port}");
    }
    // They are still bypassed.
    if in_kernel {
        assert_eq!(e.ask(&["iface-bypassed-stat"])["vb"]["ipv4_maps_count"], 4);
    }
    let looked_at = counter(&e, &["decoder", "pkts"]);
    for c in [&mut doubted, &mut guessed] {
        c.packet(0, ACK, b"a needle");
        sender.send(&c.take());
    }
    if !in_kernel {
        assert_eq!(e.decoded(looked_at + 2), 4 * 44 + 3 + 5 + 2 + sent_on + 2);
    }
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    assert_eq!(alerts_of(&dir, 2), 1);
    if in_kernel {
        assert_eq!(last_stats(&dir)["decoder"]["pkts"], looked_at);
        assert_eq!(last_stats(&dir)["capture"]["bypass"]["flows"], 4);
    }
    for (port, packets) in [(7002, 24 + sent_on), (7003, 24)] {
        let record = flows(&dir, port).pop().expect("a record");
        assert_eq!(record["flow"]["reason"], "shutdown", "{record}");
        assert_eq!(record["flow"]["pkts_toserver"].as_u64(), Some(packets), "{record}");
    }
}

fn alerts_of(dir: &Path, sid: u64) -> usize {
    events(dir).iter().filter(|e| e["alert"]["signature_id"] == sid).count()
}

/// A rule that both drops and bypasses a flow drops it.
#[test]
fn what_is_dropped_is_not_let_through_by_a_bypass() {
    let dir = folder("bypass-dropped");
    let rule = "drop tcp any any -> any 80 (msg:\"no\"; flow:to_server; content:\"evil\"; bypass; sid:1;)\n";
    std::fs::write(dir.join("a.rules"), rule).expect("rules");
    let mut c = Connection::new(8000);
    c.packet(0, ACK, b"this is evil");
    (0..5).for_each(|_| c.packet(0, ACK, b"and this is more of it"));
    let file = dir.join("all.pcap");
    wire::write(&file, &c.take());
    let mut read = wire::command(&dir, &["--simulate-ips", "-r", &file.display().to_string()]);
    assert!(read.status().expect("the engine runs").success());
    let ips = &last_stats(&dir)["ips"];
    assert_eq!((ips["blocked"].as_u64(), ips["accepted"].as_u64()), (Some(6), Some(3)), "{ips}");
    assert_eq!(flows(&dir, 8000)[0]["flow"]["action"], "drop");
}
