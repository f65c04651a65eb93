//! Faults under traffic: interfaces that go, rings that overflow, a process that is killed or stopped, disks that are full, sockets that
//! nobody reads, rules loaded again and again. Of each: nothing crashes, each loss is counted, what is written is whole, and afterwards all
//! is as before. Each test is in a network namespace of its own; those that take long are run by `make test-faults`.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespace::ip;
use serde_json::Value;
use wire::{Engine, Sender, demo_rules, events, folder, frames, last_stats, pair, root, said, traffic, wait};

in_namespace! {
    "mgf";
    an_interface_goes_down_and_up_under_traffic: inner_flaps,
    more_than_the_ring_holds: inner_overrun,
    killed_under_traffic: inner_kill,
    the_disk_is_full: inner_disk,
    nobody_reads_the_socket: inner_stream_socket,
    nobody_reads_the_datagrams: inner_datagram_socket,
    rules_are_loaded_again_under_traffic: inner_reloads,
}

/// As `in_namespace`, of tests that take long.
macro_rules! long {
    ($($name:ident: $inner:ident,)*) => {
        $(#[test]
        #[ignore = "takes long: make test-faults"]
        fn $name() {
            namespace::inside("mgf", stringify!($inner));
        })*
    };
}

long! {
    long_a_hundred_reloads_under_traffic: inner_many_reloads,
    long_stopped_for_five_seconds: inner_stopped,
    long_killed_twenty_times: inner_kills,
    long_an_interface_goes_down_and_up_fifty_times: inner_many_flaps,
}

/// Sends the same again and again, whether it goes or not.
struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn on(name: &'static str) -> Traffic {
        Traffic::paced(name, Duration::from_millis(2))
    }

    /// Sixteen packets, a pause, and so on.
    fn paced(name: &'static str, pause: Duration) -> Traffic {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&sent));
        let frames = traffic(20);
        let thread = std::thread::spawn(move || {
            let mut sender = Sender::on(name);
            for part in frames.chunks(16).cycle() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                counts.fetch_add(sender.try_send(part), Ordering::Relaxed);
                std::thread::sleep(pause);
            }
        });
        Traffic { stop, sent, thread: Some(thread) }
    }

    /// How many were sent so far.
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until so many more were sent.
    fn goes_on(&self, more: u64) {
        let want = self.sent() + more;
        wait("more is sent", || self.sent() >= want);
    }

    fn end(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.join().expect("it is sent");
        }
        self.sent()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Ends the engine; the sums are right, and the packets that it says there were.
fn explained(e: Engine, dir: &Path) -> u64 {
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    assert!(!said(&words, "panicked") && !said(&words, "a worker's thread failed"), "{words:?}");
    let stats = last_stats(dir);
    let count = |a: &str, b: &str| stats[a][b].as_u64().unwrap_or(u64::MAX);
    assert_eq!(
        count("decoder", "pkts") + count("capture", "kernel_drops"),
        count("capture", "kernel_packets"),
        "{stats}"
    );
    count("capture", "kernel_packets")
}

fn alerts_of(dir: &Path, sid: u64) -> usize {
    events(dir).iter().filter(|e| e["alert"]["signature_id"] == sid).count()
}

fn flaps(dir: &str, times: usize) {
    pair("va", "vb");
    let dir = folder(dir);
    demo_rules(&dir);
    let mut e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    let mut load = Traffic::on("va");
    for _ in 0..times {
        load.goes_on(100);
        assert!(ip("link set vb down"));
        assert!(e.until("went down"));
        assert!(ip("link set vb up"));
        assert!(e.until("is up again"));
    }
    load.end();
    // Everything comes again.
    let before = e.decoded(1);
    let sent = traffic(1);
    Sender::on("va").send(&sent);
    e.decoded(before + sent.len() as u64);
    explained(e, &dir);
    assert!(alerts_of(&dir, 1_000_004) > times);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_flaps() {
    flaps("faults-flaps", 4);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_many_flaps() {
    flaps("faults-many-flaps", 50);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_overrun() {
    pair("va", "vb");
    let dir = folder("faults-overrun");
    demo_rules(&dir);
    let small = ["-i", "vb", "--set", "af-packet.1.threads=1", "--set", "af-packet.1.ring-size=64"];
    let e = Engine::start(&dir, &[&small[..], &["--set", "af-packet.1.block-size=65536"]].concat());
    let query = frames(&root().join("demo/demo.pcap")).remove(0);
    let mut large = query.clone();
    large.truncate(42);
    large.resize(1200, b'x');
    for (at, value) in [(16, 1186u16), (36, 9), (38, 1166)] {
        large[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    // While the engine stands still it reads nothing, on a fast machine as on a slow one.
    e.stand_still();
    let sent = Sender::on("va").try_send(&vec![large; 40_000]);
    e.signal("CONT");
    e.decoded(sent);
    // What comes when there is room again is inspected.
    Sender::on("va").send(&[query]);
    let all = sent + 1;
    e.decoded(all);
    assert_eq!(explained(e, &dir), all);
    let inspected = last_stats(&dir)["decoder"]["pkts"].as_u64().unwrap_or(u64::MAX);
    assert!(inspected * 10 <= all, "{inspected} of {all} were inspected: a ring of 64 frames cannot hold so many");
    assert_eq!(alerts_of(&dir, 1_000_004), 1);
}

/// Lines of the events' file; of the half line that a kill may leave, how often there was one.
fn lines(dir: &Path) -> (Vec<Value>, usize) {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let (mut whole, mut half) = (Vec::new(), 0);
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(v) => whole.push(v),
            Err(_) => half += 1,
        }
    }
    (whole, half)
}

fn kills(dir: &str, times: usize) {
    pair("va", "vb");
    let dir = folder(dir);
    demo_rules(&dir);
    let more = ["-i", "vb", "--set", "af-packet.1.threads=2"];
    let mut load = Traffic::on("va");
    let mut before = 0;
    for n in 0..times {
        let mut e = Engine::start(&dir, &more);
        e.decoded(200);
        let end = Instant::now() + Duration::from_secs(30);
        let mut reported = 0;
        while reported <= before {
            assert!(Instant::now() < end, "nothing is reported");
            std::thread::sleep(Duration::from_millis(10));
            reported = lines(&dir).0.len();
        }
        e.signal("KILL");
        e.child.wait().expect("it ends");
        let (whole, half) = lines(&dir);
        assert!(whole.len() >= reported, "what was reported before is still there");
        assert!(half <= n + 1, "{half} half lines");
        before = whole.len();
    }
    load.end();
    let e = Engine::start(&dir, &more);
    let sent = traffic(1);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    let (whole, half) = lines(&dir);
    assert!(whole.len() > before && half <= times);
    assert_eq!(whole.last().expect("events")["event_type"], "stats");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_kill() {
    kills("faults-kill", 2);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_kills() {
    kills("faults-kills", 20);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_disk() {
    pair("va", "vb");
    let dir = folder("faults-disk");
    // `ip netns exec` made a mount namespace: this is gone with it.
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "margay-test"]).arg(&dir).status();
    assert!(mount.expect("mount runs").success());
    demo_rules(&dir);
    std::fs::write(dir.join("filler"), vec![0; 850_000]).expect("there is room");
    let mut e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    let mut load = Traffic::on("va");
    assert!(e.until("cannot be written"));
    load.goes_on(500);
    events_in(&dir.join("eve.json"));
    std::fs::remove_file(dir.join("filler")).expect("it is there");
    assert!(e.until("can be written again"));
    load.end();
    explained(e, &dir);
    let stats = last_stats(&dir);
    let lost = stats["eve"]["lost"].as_u64().unwrap_or(0);
    let alerts = events(&dir).iter().filter(|e| e["event_type"] == "alert").count() as u64;
    assert!(lost > 0 && alerts + lost >= stats["detect"]["alert"].as_u64().unwrap_or(u64::MAX), "{stats}");
}

/// The events of a file, each of which is whole.
fn events_in(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("events");
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// Someone who reads events from a socket, until it is dropped.
struct Reader {
    seen: Arc<AtomicU64>,
    bad: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: std::path::PathBuf,
}

impl Reader {
    fn of(path: &Path, stream: bool) -> Reader {
        let new = || Arc::new(AtomicU64::new(0));
        let (seen, bad, stop) = (new(), new(), Arc::new(AtomicBool::new(false)));
        let (counts, wrong, ends) = (Arc::clone(&seen), Arc::clone(&bad), Arc::clone(&stop));
        let note = move |line: &str| {
            let n = if serde_json::from_str::<Value>(line).is_ok() { &counts } else { &wrong };
            n.fetch_add(1, Ordering::Relaxed);
        };
        let pause = Some(Duration::from_millis(50));
        let thread = if stream {
            let listener = UnixListener::bind(path).expect("a socket");
            listener.set_nonblocking(true).expect("a socket");
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok((peer, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    peer.set_nonblocking(false).and_then(|()| peer.set_read_timeout(pause)).expect("a socket");
                    let mut text = BufReader::new(peer);
                    let mut line = String::new();
                    while !ends.load(Ordering::Relaxed) {
                        match text.read_line(&mut line) {
                            Ok(0) => break,
                            Ok(_) if line.ends_with('\n') => {
                                note(&line);
                                line.clear();
                            }
                            // What there is of a line stays.
                            Ok(_) | Err(_) => {}
                        }
                    }
                }
            })
        } else {
            let socket = UnixDatagram::bind(path).expect("a socket");
            socket.set_read_timeout(pause).expect("a socket");
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 18];
                while !ends.load(Ordering::Relaxed) {
                    if let Ok(n) = socket.recv(&mut bytes) {
                        note(&String::from_utf8_lossy(&bytes[..n]));
                    }
                }
            })
        };
        Reader { seen, bad, stop, thread: Some(thread), path: path.to_owned() }
    }

    /// Waits for so many events.
    fn reads(&self, events: u64) {
        wait("events come", || self.seen.load(Ordering::Relaxed) >= events);
    }

    fn gone(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.join().expect("it read");
        }
        std::fs::remove_file(&self.path).expect("it was there");
        assert_eq!(self.bad.load(Ordering::Relaxed), 0, "each event is whole");
    }
}

fn socket(dir: &str, stream: bool) {
    pair("va", "vb");
    let dir = folder(dir);
    demo_rules(&dir);
    // A path of a socket has 107 bytes at most.
    let path = std::env::temp_dir().join(format!("margay-{}-{stream}", std::process::id()));
    let set = |name: &str, value: &str| format!("outputs.1.eve-log.{name}={value}");
    let (kind, file) = (
        set("filetype", if stream { "unix_stream" } else { "unix_dgram" }),
        set("filename", &path.display().to_string()),
    );
    let reader = Reader::of(&path, stream);
    let mut e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2", "--set", &kind, "--set", &file]);
    let mut load = Traffic::on("va");
    reader.reads(50);
    reader.gone();
    assert!(e.until("cannot be written"));
    load.goes_on(200);
    let reader = Reader::of(&path, stream);
    assert!(e.until("can be written again"));
    reader.reads(50);
    load.end();
    let counters = e.ask(&["dump-counters"]);
    assert!(counters["eve"]["lost"].as_u64().is_some_and(|n| n > 0), "{counters}");
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    reader.gone();
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_stream_socket() {
    socket("faults-stream", true);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_datagram_socket() {
    socket("faults-datagram", false);
}

/// At a rate that the engine holds, on a slow machine too, nothing is lost; and a worker takes other rules in no time.
fn reloads(dir: &str, times: usize) {
    pair("va", "vb");
    let dir = folder(dir);
    demo_rules(&dir);
    // The machine may have far too much to do: room for what comes in ten seconds.
    let patient = ["--set", "af-packet.1.block-timeout=40"];
    let mut e = Engine::start(&dir, &[&["-i", "vb", "--set", "af-packet.1.threads=2"], &patient[..]].concat());
    let mut load = Traffic::paced("va", Duration::from_millis(100));
    for _ in 0..times {
        load.goes_on(20);
        e.signal("USR2");
        assert!(e.until("rule reload complete"), "{:?}", e.all);
    }
    let sent = load.end();
    e.decoded(sent);
    let kept: Vec<u64> = e
        .all
        .iter()
        .filter_map(|l| l.split_once("workers were kept for ")?.1.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(kept.len(), times, "{:?}", e.all);
    // Time of the processor, so that it matters little what else there is to do. Half a tenth of a millisecond is what it takes.
    assert!(kept.iter().all(|us| *us < 50_000), "{kept:?}");
    assert_eq!(explained(e, &dir), sent);
    let capture = last_stats(&dir)["capture"].clone();
    assert_eq!(capture["kernel_drops"], 0, "{capture}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_reloads() {
    reloads("faults-reloads", 5);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_many_reloads() {
    reloads("faults-many-reloads", 100);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_stopped() {
    pair("va", "vb");
    let dir = folder("faults-stopped");
    demo_rules(&dir);
    let more = ["-i", "vb", "--set", "af-packet.1.threads=2", "--set", "af-packet.1.ring-size=2048"];
    let e = Engine::start(&dir, &more);
    let mut load = Traffic::on("va");
    load.goes_on(1000);
    e.stand_still();
    std::thread::sleep(Duration::from_secs(5));
    e.signal("CONT");
    load.goes_on(1000);
    let sent = load.end();
    e.decoded(sent);
    assert_eq!(explained(e, &dir), sent);
}
