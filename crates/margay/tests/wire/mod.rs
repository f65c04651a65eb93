//! An engine on an interface, its traffic, and its output.
#![allow(dead_code)]

#[path = "../process/mod.rs"]
mod process;
#[path = "../traffic/mod.rs"]
mod sending;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::namespace::{self, ip};
#[allow(unused_imports)]
pub(crate) use process::{Engine, PATIENCE, events, folder, last_stats, root, said, wait};
pub(crate) use sending::{Sender, frames};

/// Creates two connected interfaces.
pub(crate) fn pair(a: &str, b: &str) {
    namespace::pair(a, b, "");
}

/// The demo's conversations, repeated and interleaved, each copy between other hosts.
pub(crate) fn traffic(copies: u8) -> Vec<Vec<u8>> {
    let demo = frames(&root().join("demo/demo.pcap"));
    let mut all = Vec::new();
    for frame in &demo {
        for n in 0..copies {
            let mut f = frame.clone();
            if f.get(12..14) == Some(&[8, 0]) {
                // The third byte of both addresses. Checksums are not updated (-k none ignores them).
                for at in [28, 32] {
                    if let Some(b) = f.get_mut(at) {
                        *b = b.wrapping_add(n);
                    }
                }
            }
            all.push(f);
        }
    }
    all
}

/// Writes frames to a capture file.
pub(crate) fn write(file: &Path, frames: &[Vec<u8>]) {
    let capture = pcap::Capture::dead(pcap::Linktype::ETHERNET).expect("a capture");
    let mut save = capture.savefile(file).expect("a file");
    for (n, f) in frames.iter().enumerate() {
        let ts = libc_timeval(1_700_000_000, n as i64 * 20);
        let header = pcap::PacketHeader { ts, caplen: f.len() as u32, len: f.len() as u32 };
        save.write(&pcap::Packet::new(&header, f));
    }
}

pub(crate) fn libc_timeval(secs: i64, micros: i64) -> libc::timeval {
    libc::timeval { tv_sec: secs + micros / 1_000_000, tv_usec: micros % 1_000_000 }
}

pub(crate) fn command(dir: &Path, more: &[&str]) -> Command {
    let mut c = process::engine(process::MARGAY, &root().join("etc/margay.yaml"), dir);
    c.args(["-k", "none"]).args(more);
    c
}

/// Checks that an engine does not start, and prints these words.
pub(crate) fn is_refused(dir: &Path, more: &[&str], words: &str) {
    let o = command(dir, more).output().expect("the engine runs");
    let said = String::from_utf8_lossy(&o.stdout) + String::from_utf8_lossy(&o.stderr);
    assert!(o.status.code() == Some(1) && said.contains(words), "{more:?}: {said}");
}

impl Engine {
    /// Starts the engine, and waits until it captures.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Engine {
        Engine::begin(dir, more).ready()
    }

    pub(crate) fn begin(dir: &Path, more: &[&str]) -> Engine {
        Engine::spawn(command(dir, more), dir.join("s.sock"))
    }

    /// Waits until the engine has decoded or lost this many packets, and returns their number.
    pub(crate) fn decoded(&self, packets: u64) -> u64 {
        let end = Instant::now() + PATIENCE;
        let mut seen = 0;
        while Instant::now() < end {
            let c = self.counters();
            seen = c["decoder"]["pkts"].as_u64().unwrap_or(0) + c["capture"]["kernel_drops"].as_u64().unwrap_or(0);
            if seen >= packets {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{seen} of {packets} packets: {:?}", self.all);
    }

    /// Stops the engine, and returns its output.
    pub(crate) fn stop(self) -> Vec<String> {
        self.stop_by("INT")
    }

    /// Stops the engine, and checks that the sums of its counters add up.
    pub(crate) fn explained(self) {
        let words = self.stop();
        assert!(said(&words, "received = inspected + lost"), "{words:?}");
    }
}

/// The number of alerts by sid, addresses and ports.
pub(crate) fn alerts(dir: &Path) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for e in events(dir).iter().filter(|e| e["event_type"] == "alert") {
        let sid = &e["alert"]["signature_id"];
        // Depending on the order of the workers, any packet of the source may complete a count by address.
        let place = match sid.as_u64() {
            Some(1_000_002) => format!("{}", e["src_ip"]),
            _ => format!("{} {} {} {} {}", e["src_ip"], e["src_port"], e["dest_ip"], e["dest_port"], e["proto"]),
        };
        *out.entry(format!("{sid} {place}")).or_default() += 1;
    }
    out
}

pub(crate) fn demo_rules(dir: &Path) {
    std::fs::copy(root().join("demo/demo.rules"), dir.join("a.rules")).expect("rules");
}

/// The alerts from reading a file of these frames.
pub(crate) fn of_the_file(name: &str, frames: &[Vec<u8>]) -> BTreeMap<String, usize> {
    let dir = folder(name);
    demo_rules(&dir);
    let file = dir.join("all.pcap");
    write(&file, frames);
    let o = command(&dir, &["-r", &file.display().to_string()]).output().expect("the engine runs");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let found = alerts(&dir);
    assert!(found.len() >= 4, "{found:?}");
    found
}

/// An interface goes down and up, and disappears and returns, under a running engine: all packets are inspected.
/// `noticed` is how long workers have to notice that it is up, and that it is back.
pub(crate) fn goes_and_comes_back(name: &str, more: &[&str], noticed: [Duration; 2]) {
    pair("va", "vb");
    let dir = folder(name);
    demo_rules(&dir);
    let sent = traffic(1);
    let mut e = Engine::start(&dir, more);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    assert!(ip("link set vb down"));
    assert!(e.until("went down"));
    assert!(ip("link set vb up"));
    assert!(e.until("is up again"));
    std::thread::sleep(noticed[0]);
    Sender::on("va").send(&sent);
    e.decoded(2 * sent.len() as u64);
    assert!(ip("link del vb"));
    assert!(e.until("is gone") || said(&e.all, "is gone"));
    pair("va", "vb");
    assert!(e.until("is up again"));
    std::thread::sleep(noticed[1]);
    Sender::on("va").send(&sent);
    e.decoded(3 * sent.len() as u64);
    e.explained();
    let lookups = events(&dir).iter().filter(|e| e["alert"]["signature_id"] == 1_000_004).count();
    assert_eq!(lookups, 3);
}
