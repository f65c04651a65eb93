//! The engine as a service, for tests of process properties.

#[path = "../process/mod.rs"]
mod process;
#[path = "../traffic/mod.rs"]
mod sending;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use process::PATIENCE;
pub(crate) use process::{Engine, ask, kill, root, wait};
pub(crate) use sending::{Sender, frames};

pub(crate) use margay_testing::is_root;

/// Creates an empty folder that every user may enter. The repository's folder may be closed to others.
pub(crate) fn place(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("margay-service-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    dir
}

pub(crate) fn command(dir: &Path, more: &[&str]) -> Command {
    let mut c = Command::new(process::MARGAY);
    c.current_dir(dir).args(["-c", "m.yaml", "-k", "none", "-v"]).args(more);
    c.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// Runs the engine to its end. Returns its status and output.
pub(crate) fn run(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let o = command(dir, more).output().expect("the engine starts");
    (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr))
}

/// Kills a daemon at the end of the test, even if the test fails.
pub(crate) struct Killer(pub(crate) String);

impl Drop for Killer {
    fn drop(&mut self) {
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.0)).unwrap_or_default();
        if exe.file_name().is_some_and(|n| n == "margay") {
            let _ = Command::new("kill").args(["-KILL", &self.0]).status();
        }
    }
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

/// Receives the notifications that systemd would get.
pub(crate) struct Notifications<'a>(&'a UnixDatagram);

impl<'a> Notifications<'a> {
    pub(crate) fn new(socket: &'a UnixDatagram) -> Notifications<'a> {
        Notifications(socket)
    }

    fn next(&mut self, time: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(time.max(Duration::from_millis(1)))).expect("a time");
        let mut bytes = [0; 1024];
        let n = self.0.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
    }

    /// Whether a notification with this prefix arrives.
    pub(crate) fn until(&mut self, words: &str) -> bool {
        let end = Instant::now() + PATIENCE;
        while let Some(heard) = self.next(end.saturating_duration_since(Instant::now())) {
            if heard.starts_with(words) {
                return true;
            }
        }
        false
    }

    /// The notifications received so far.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next(Duration::from_millis(1))).collect()
    }
}

impl Engine {
    /// Starts the engine, and waits until it is ready.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Engine {
        Engine::start_with(dir, more, |_| {})
    }

    pub(crate) fn start_with(dir: &Path, more: &[&str], change: impl FnOnce(&mut Command)) -> Engine {
        let mut c = command(dir, more);
        change(&mut c);
        Engine::spawn(c, dir.join("run/s.sock")).ready()
    }

    /// Waits until the engine has decoded this many packets.
    pub(crate) fn decoded(&self, packets: u64) {
        wait(&format!("{packets} packets: {:?}", self.all), || {
            self.counters()["decoder"]["pkts"].as_u64().is_some_and(|n| n >= packets)
        });
    }

    /// Stops the engine. Returns its status and output.
    pub(crate) fn stop(self) -> (ExitStatus, Vec<String>) {
        self.signal("TERM");
        self.ended()
    }
}
