//! The engine as a process, for tests of what a process is.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"))
}

/// A folder that every user may enter, emptied first: that of the repository may be closed to others.
pub(crate) fn place(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("margay-service-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    dir
}

/// Waits for something.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut capture = pcap::Capture::from_file(file).expect("a capture");
    let mut all = Vec::new();
    while let Ok(p) = capture.next_packet() {
        all.push(p.data.to_vec());
    }
    assert!(!all.is_empty());
    all
}

pub(crate) struct Sender(pcap::Capture<pcap::Active>);

impl Sender {
    pub(crate) fn on(name: &str) -> Sender {
        Sender(pcap::Capture::from_device(name).and_then(|c| c.open()).expect("it can be sent to"))
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for f in frames {
            let end = Instant::now() + PATIENCE;
            while let Err(e) = self.0.sendpacket(f.as_slice()) {
                assert!(Instant::now() < end, "{e}");
            }
        }
    }
}

pub(crate) fn command(dir: &Path, more: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_margay"));
    c.current_dir(dir).args(["-c", "m.yaml", "-k", "none", "-v"]).args(more);
    c.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// Runs it to its end: status, and what it said.
pub(crate) fn run(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let o = command(dir, more).output().expect("the engine starts");
    (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr))
}

pub(crate) fn kill(pid: &str, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
    assert!(sent.is_ok_and(|s| s.success()), "{signal} to {pid}");
}

/// Ends a daemon, however the test ends.
pub(crate) struct Killer(pub(crate) String);

impl Drop for Killer {
    fn drop(&mut self) {
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.0)).unwrap_or_default();
        if exe.file_name().is_some_and(|n| n == "margay") {
            let _ = Command::new("kill").args(["-KILL", &self.0]).status();
        }
    }
}

pub(crate) fn ask(socket: &Path, words: &[&str]) -> Value {
    let mut c = Command::new(env!("CARGO_BIN_EXE_margay"));
    let o = c.args(["ctl", "--socket"]).arg(socket).args(words).output().expect("ctl runs");
    serde_json::from_slice::<Value>(&o.stdout).map_or(Value::Null, |v| v["message"].clone())
}

/// Names of all files below a folder.
pub(crate) fn files_below(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(t) if t.is_dir() => all.extend(files_below(&entry.path())),
            _ => all.push(entry.path().display().to_string()),
        }
    }
    all
}

/// What systemd would hear.
pub(crate) struct Heard<'a>(&'a UnixDatagram);

impl<'a> Heard<'a> {
    pub(crate) fn new(socket: &'a UnixDatagram) -> Heard<'a> {
        Heard(socket)
    }

    fn next(&mut self, time: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(time.max(Duration::from_millis(1)))).expect("a time");
        let mut bytes = [0; 1024];
        let n = self.0.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
    }

    /// Whether something is heard that begins so.
    pub(crate) fn until(&mut self, words: &str) -> bool {
        let end = Instant::now() + PATIENCE;
        while let Some(heard) = self.next(end.saturating_duration_since(Instant::now())) {
            if heard.starts_with(words) {
                return true;
            }
        }
        false
    }

    /// What was heard until now.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next(Duration::from_millis(1))).collect()
    }
}

/// An engine that runs.
pub(crate) struct Engine {
    pub(crate) child: Child,
    said: mpsc::Receiver<String>,
    pub(crate) all: Vec<String>,
    socket: PathBuf,
}

impl Engine {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Engine {
        Engine::start_with(dir, more, |_| {})
    }

    pub(crate) fn start_with(dir: &Path, more: &[&str], change: impl FnOnce(&mut Command)) -> Engine {
        let mut c = command(dir, more);
        change(&mut c);
        let mut child = c.spawn().expect("the engine starts");
        let (send, said) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("its words"));
        let errors = BufReader::new(child.stderr.take().expect("its words"));
        let both = send.clone();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|l| both.send(l)));
        let mut e = Engine { child, said, all: Vec::new(), socket: dir.join("run/s.sock") };
        assert!(e.until("Engine started"), "{:?}", e.all);
        e
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
        kill(&self.child.id().to_string(), name);
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        ask(&self.socket, words)
    }

    /// Waits until it has decoded so many packets.
    pub(crate) fn decoded(&self, packets: u64) {
        until(&format!("{packets} packets: {:?}", self.all), || {
            self.ask(&["dump-counters"])["decoder"]["pkts"].as_u64().is_some_and(|n| n >= packets)
        });
    }

    /// Stops it; its status, and all that it said.
    pub(crate) fn stop(mut self) -> (ExitStatus, Vec<String>) {
        // It may have ended already.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).stderr(Stdio::null()).status();
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < end, "it does not stop: {:?}", self.all);
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut all = std::mem::take(&mut self.all);
        while let Ok(line) = self.said.recv_timeout(Duration::from_secs(5)) {
            all.push(line);
        }
        (status, all)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
