//! The engine under test as a process: start, readiness, control, signals, end, and its output files.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long to wait for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The engine's executable.
pub(crate) const MARGAY: &str = env!("CARGO_BIN_EXE_margay");

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Creates an empty folder for each test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// Waits until a condition is true.
pub(crate) fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "{what}: it does not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: &str, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
    assert!(sent.is_ok_and(|s| s.success()), "{signal} to {pid}");
}

/// Runs `margay ctl`, and returns its result.
pub(crate) fn ctl(socket: &Path, words: &[&str]) -> Output {
    Command::new(MARGAY).args(["ctl", "--socket"]).arg(socket).args(words).output().expect("ctl runs")
}

/// The engine's answer on that socket.
pub(crate) fn ask(socket: &Path, words: &[&str]) -> Value {
    serde_json::from_slice::<Value>(&ctl(socket, words).stdout).map_or(Value::Null, |v| v["message"].clone())
}

/// An engine with a configuration and the rules in a folder. The folder also receives its output and its socket.
pub(crate) fn engine(program: impl AsRef<OsStr>, configuration: &Path, dir: &Path) -> Command {
    let root = root();
    let set = |name: &str, file: &str| format!("{name}={}", root.join(file).display());
    let mut c = Command::new(program);
    c.arg("-c").arg(configuration).arg("-l").arg(dir).arg("-v");
    c.args(["--set", &set("classification-file", "etc/classification.config")]);
    c.args(["--set", &set("reference-config-file", "etc/reference.config")]);
    c.args(["--set", "vars.address-groups.HOME_NET=any", "--set", "vars.address-groups.EXTERNAL_NET=any"]);
    c.args(["--set", "unix-command.enabled=yes", "--set"]);
    c.arg(format!("unix-command.filename={}", dir.join("s.sock").display()));
    c.arg("-S").arg(dir.join("a.rules"));
    c
}

/// A running engine.
pub(crate) struct Engine {
    pub(crate) child: Child,
    pub(crate) said: mpsc::Receiver<String>,
    /// Its output, as far as the test has read it.
    pub(crate) all: Vec<String>,
    socket: PathBuf,
}

impl Engine {
    /// Starts the engine. `socket` is its control socket.
    pub(crate) fn spawn(mut c: Command, socket: PathBuf) -> Engine {
        let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the engine starts");
        let (send, said) = mpsc::channel();
        let out: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("its words")), Box::new(child.stderr.take().expect("its words"))];
        for words in out {
            let send = send.clone();
            let lines = BufReader::new(words).lines();
            std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|l| send.send(l)));
        }
        Engine { child, said, all: Vec::new(), socket }
    }

    /// Waits until the engine is ready.
    pub(crate) fn ready(mut self) -> Engine {
        assert!(self.until("Engine started"), "{:?}", self.all);
        self
    }

    /// Waits until the engine prints `words`.
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

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        kill(&self.id().to_string(), name);
    }

    /// Stops the process as a debugger would, until SIGCONT.
    pub(crate) fn stand_still(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.id());
        let stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'))
        };
        wait("all threads stand still", || std::fs::read_dir(&tasks).expect("threads").flatten().all(stopped));
    }

    /// Runs `margay ctl`, and returns its result.
    pub(crate) fn ctl(&self, words: &[&str]) -> Output {
        ctl(&self.socket, words)
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        ask(&self.socket, words)
    }

    pub(crate) fn counters(&self) -> Value {
        self.ask(&["dump-counters"])
    }

    /// Waits until the engine has ended, which it was told to do. Returns its status and its output.
    pub(crate) fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < end, "it does not end: {:?}", self.all);
            std::thread::sleep(Duration::from_millis(10));
        };
        self.all.extend(self.said.iter());
        (status, std::mem::take(&mut self.all))
    }

    /// Ends it with that signal, and returns its output.
    pub(crate) fn stop_by(self, signal: &str) -> Vec<String> {
        self.signal(signal);
        let (status, all) = self.ended();
        assert!(status.success(), "{all:?}");
        all
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn said(all: &[String], words: &str) -> bool {
    all.iter().any(|l| l.contains(words))
}

/// All events. Each line has to be one complete event.
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

pub(crate) fn of_type(dir: &Path, kind: &str) -> Vec<Value> {
    events(dir).into_iter().filter(|e| e["event_type"] == kind).collect()
}

/// The final counters.
pub(crate) fn last_stats(dir: &Path) -> Value {
    of_type(dir, "stats").pop().expect("statistics")["stats"].clone()
}
