//! An engine on an interface, what is sent to it, and what it writes.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::namespace;

/// How long something is waited for that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Two interfaces.
pub(crate) fn pair(a: &str, b: &str) {
    namespace::pair(a, b, "");
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// The frames of a capture file of Ethernet.
pub(crate) fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut capture = pcap::Capture::from_file(file).expect("a capture");
    let mut all = Vec::new();
    while let Ok(p) = capture.next_packet() {
        all.push(p.data.to_vec());
    }
    assert!(!all.is_empty());
    all
}

/// The demonstration's conversations, many times over and through one another, each time between other hosts.
pub(crate) fn traffic(copies: u8) -> Vec<Vec<u8>> {
    let demo = frames(&root().join("demo/demo.pcap"));
    let mut all = Vec::new();
    for frame in &demo {
        for n in 0..copies {
            let mut f = frame.clone();
            if f.get(12..14) == Some(&[8, 0]) {
                // The third byte of both addresses; nobody looks at checksums (-k none).
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

/// As a capture file.
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

/// Sends to an interface.
pub(crate) struct Sender(pcap::Capture<pcap::Active>);

impl Sender {
    pub(crate) fn on(name: &str) -> Sender {
        Sender(pcap::Capture::from_device(name).and_then(|c| c.buffer_size(1 << 16).open()).expect("it can be sent to"))
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for (n, f) in frames.iter().enumerate() {
            let end = Instant::now() + Duration::from_secs(10);
            while let Err(e) = self.0.sendpacket(f.as_slice()) {
                assert!(Instant::now() < end, "{e}");
            }
            if n % 64 == 63 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends what can be sent now; how many.
    pub(crate) fn try_send(&mut self, frames: &[Vec<u8>]) -> u64 {
        frames.iter().filter(|f| self.0.sendpacket(f.as_slice()).is_ok()).count() as u64
    }
}

/// Waits until something is so.
pub(crate) fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "{what}: it does not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An engine that runs.
pub(crate) struct Engine {
    pub(crate) child: Child,
    pub(crate) said: mpsc::Receiver<String>,
    pub(crate) all: Vec<String>,
    dir: PathBuf,
}

pub(crate) fn command(dir: &Path, more: &[&str]) -> Command {
    let root = root();
    let set = |name: &str, file: &str| format!("{name}={}", root.join(file).display());
    let mut c = Command::new(env!("CARGO_BIN_EXE_margay"));
    c.arg("-c")
        .arg(root.join("etc/margay.yaml"))
        .arg("-l")
        .arg(dir)
        .args(["-k", "none", "-v", "--set", &set("classification-file", "etc/classification.config")])
        .args(["--set", &set("reference-config-file", "etc/reference.config")])
        .args(["--set", "vars.address-groups.HOME_NET=any", "--set", "vars.address-groups.EXTERNAL_NET=any"])
        .args(["--set", "unix-command.enabled=yes", "--set"])
        .arg(format!("unix-command.filename={}", dir.join("s.sock").display()))
        .arg("-S")
        .arg(dir.join("a.rules"))
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

impl Engine {
    /// Starts it, and waits until it captures.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Engine {
        let mut e = Engine::begin(dir, more);
        assert!(e.until("Engine started"), "{:?}", e.all);
        e
    }

    pub(crate) fn begin(dir: &Path, more: &[&str]) -> Engine {
        let mut child = command(dir, more).spawn().expect("the engine starts");
        let (send, said) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("its words"));
        let errors = BufReader::new(child.stderr.take().expect("its words"));
        let both = send.clone();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|l| both.send(l)));
        Engine { child, said, all: Vec::new(), dir: dir.to_owned() }
    }

    /// Waits until the engine says something.
    pub(crate) fn until(&mut self, words: &str) -> bool {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.all.push(line.clone());
            if line.contains(words) {
                return true;
            }
        }
        false
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill").success());
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        let mut c = Command::new(env!("CARGO_BIN_EXE_margay"));
        let o = c.args(["ctl", "--socket"]).arg(self.dir.join("s.sock")).args(words).output().expect("ctl runs");
        serde_json::from_slice::<Value>(&o.stdout).map_or(Value::Null, |v| v["message"].clone())
    }

    /// Waits until it has decoded, or lost, so many packets; how many those are.
    pub(crate) fn decoded(&self, packets: u64) -> u64 {
        let end = Instant::now() + PATIENCE;
        let mut seen = 0;
        while Instant::now() < end {
            let c = self.ask(&["dump-counters"]);
            seen = c["decoder"]["pkts"].as_u64().unwrap_or(0) + c["capture"]["kernel_drops"].as_u64().unwrap_or(0);
            if seen >= packets {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{seen} of {packets} packets: {:?}", self.all);
    }

    /// Ends it; all that it said.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.signal("INT");
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.all.extend(self.said.iter());
                assert!(status.success(), "{:?}", self.all);
                return std::mem::take(&mut self.all);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end: {:?}", self.all);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All events; each line is one, and whole.
pub(crate) fn events(dir: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    let files = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path());
    for file in files.filter(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("eve"))) {
        let text = std::fs::read_to_string(&file).expect("events");
        assert!(text.is_empty() || text.ends_with('\n'), "{}", file.display());
        all.extend(text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap_or_else(|e| panic!("{e}: {l}"))));
    }
    all
}

/// How often each alert of each conversation came, whichever end it was at.
pub(crate) fn alerts(dir: &Path) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for e in events(dir).iter().filter(|e| e["event_type"] == "alert") {
        let sid = &e["alert"]["signature_id"];
        // Whose packet completes a count by address depends on the order in which workers come to theirs.
        let place = match sid.as_u64() {
            Some(1_000_002) => format!("{}", e["src_ip"]),
            _ => format!("{} {} {} {} {}", e["src_ip"], e["src_port"], e["dest_ip"], e["dest_port"], e["proto"]),
        };
        *out.entry(format!("{sid} {place}")).or_default() += 1;
    }
    out
}

/// The counters at the end.
pub(crate) fn last_stats(dir: &Path) -> Value {
    let last = events(dir).into_iter().rfind(|e| e["event_type"] == "stats");
    last.expect("statistics")["stats"].clone()
}

pub(crate) fn said(all: &[String], words: &str) -> bool {
    all.iter().any(|l| l.contains(words))
}

pub(crate) fn demo_rules(dir: &Path) {
    std::fs::copy(root().join("demo/demo.rules"), dir.join("a.rules")).expect("rules");
}

/// What reading a file of these frames finds.
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
