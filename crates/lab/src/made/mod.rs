//! Things that a command creates outside its own process. They are recorded before they are created, and removed when
//! the command ends. `margay lab clean` removes them if the command could not.
//!
//! A session is a file in the state folder. Its first line names the process that owns it, and each other line names a
//! thing that may exist. Processes are found by an environment variable. It also finds their children, and a reused
//! process identifier cannot be mistaken for the original.

mod clean;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use clean::{Args, run};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::problem::{Outcome, Problem};

/// The environment variable that marks a session's processes.
const MARK: &str = "MARGAY_LAB_SESSION";

/// A thing that was created, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// Processes that carry the session's mark.
    Processes,
    /// A network namespace, by name.
    Namespace(String),
    /// An interface in the command's own namespace.
    Interface(String),
    /// A control group.
    Group(PathBuf),
    /// A folder that exists as long as the session.
    Folder(PathBuf),
}

impl Thing {
    fn line(&self) -> String {
        match self {
            Thing::Processes => "processes".to_owned(),
            Thing::Namespace(name) => format!("namespace {name}"),
            Thing::Interface(name) => format!("interface {name}"),
            Thing::Group(path) => format!("group {}", path.display()),
            Thing::Folder(path) => format!("folder {}", path.display()),
        }
    }

    fn of(line: &str) -> Option<Thing> {
        let (kind, name) = line.split_once(' ').unwrap_or((line, ""));
        // Whatever a file says, only things that a session may have created are removed.
        let ours = name.starts_with("mlab");
        match kind {
            "processes" => Some(Thing::Processes),
            "namespace" if ours => Some(Thing::Namespace(name.to_owned())),
            "interface" if ours => Some(Thing::Interface(name.to_owned())),
            "group"
                if name.starts_with("/sys/fs/cgroup/")
                    && Path::new(name).file_name().is_some_and(|name| name.to_string_lossy().starts_with("mlab")) =>
            {
                Some(Thing::Group(PathBuf::from(name)))
            }
            "folder" if Path::new(name).file_name().is_some_and(|name| name.to_string_lossy().starts_with("mlab")) => {
                Some(Thing::Folder(PathBuf::from(name)))
            }
            _ => None,
        }
    }
}

/// One run of a command that creates things.
pub(crate) struct Session {
    /// Unique on this machine until it reboots. It begins with `mlab`, and with three more letters still fits into an
    /// interface name.
    pub(crate) id: String,
    path: PathBuf,
    file: File,
    things: Vec<Thing>,
}

/// The folder of sessions. It need not survive a reboot, because the recorded things do not.
pub(crate) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("MARGAY_LAB_STATE") {
        return PathBuf::from(folder);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/margay-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("margay-lab"),
        None => std::env::temp_dir().join(format!("margay-lab-{}", rustix::process::geteuid().as_raw())),
    }
}

impl Session {
    /// Opens a session for this process.
    ///
    /// # Errors
    /// If the state folder cannot be written.
    pub(crate) fn begin() -> Outcome<Session> {
        Self::begin_in(&folder())
    }

    fn begin_in(folder: &Path) -> Outcome<Session> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let made =
            std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700).create(folder);
        made.map_err(|error| Problem::file("make the state folder", folder, error))?;
        let own = std::process::id();
        loop {
            // 4 + 6 + 2 letters: `mlab0011aa00`. Three more make 15, the limit of an interface name.
            let id = format!("mlab{:06x}{:02x}", own & 0xff_ffff, NEXT.fetch_add(1, Ordering::Relaxed) & 0xff);
            let path = folder.join(&id);
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    writeln!(file, "owner {own} {}", started(own).unwrap_or(0))
                        .map_err(|error| Problem::file("write", &path, error))?;
                    return Ok(Session { id, path, file, things: Vec::new() });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Problem::file("make", &path, error)),
            }
        }
    }

    /// Records that `thing` is about to be created.
    ///
    /// # Errors
    /// If it cannot be recorded; it must not be created then.
    pub(crate) fn will_make(&mut self, thing: Thing) -> Outcome<()> {
        if self.things.contains(&thing) {
            return Ok(());
        }
        writeln!(self.file, "{}", thing.line()).map_err(|error| Problem::file("write", &self.path, error))?;
        self.things.push(thing);
        Ok(())
    }

    /// Makes `command`, once started, a process of this session.
    ///
    /// # Errors
    /// As [`Session::will_make`].
    pub(crate) fn mark(&mut self, command: &mut Command) -> Outcome<()> {
        self.will_make(Thing::Processes)?;
        command.env(MARK, &self.id);
        Ok(())
    }

    /// Creates a folder that is removed with the session. Its name is short enough for sockets in it.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn make_folder(&mut self) -> Outcome<PathBuf> {
        let path = std::env::temp_dir().join(&self.id);
        self.will_make(Thing::Folder(path.clone()))?;
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&path)
            .map_err(|error| Problem::file("make", &path, error))?;
        Ok(path)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut left = false;
        for thing in self.things.iter().rev() {
            if let Err(why) = undo(&self.id, thing) {
                eprintln!("margay lab: {why}; `margay lab clean` tries again");
                left = true;
            }
        }
        if !left {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes `thing` of session `id`. A missing thing is no error.
fn undo(id: &str, thing: &Thing) -> Result<bool, String> {
    match thing {
        Thing::Processes => end_all(id),
        Thing::Namespace(name) => {
            if !Path::new("/run/netns").join(name).exists() {
                return Ok(false);
            }
            ip(&["netns", "del", name]).map(|()| true)
        }
        Thing::Interface(name) => {
            if !Path::new("/sys/class/net").join(name).exists() {
                return Ok(false);
            }
            ip(&["link", "del", name]).map(|()| true)
        }
        Thing::Group(path) => {
            // Its processes have ended, but the kernel may still hold references.
            for _ in 0..100 {
                match std::fs::remove_dir(path) {
                    Ok(()) => return Ok(true),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
            Err(format!("cannot remove the control group {}", path.display()))
        }
        Thing::Folder(path) => match std::fs::remove_dir_all(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
        },
    }
}

/// Runs `ip` with `arguments`.
///
/// # Errors
/// A sentence with its output.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("cannot start ip (iproute2): {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}

/// Processes with the mark of session `id`. Their descriptors keep the identifiers from being reused.
fn marked(id: &str) -> Vec<rustix::fd::OwnedFd> {
    let wanted = format!("{MARK}={id}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_string_lossy().parse::<i32>().ok().and_then(Pid::from_raw) else {
            continue;
        };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            found.push(held);
        }
    }
    found
}

/// Ends the processes of session `id`: asks them first, and kills them after a while.
fn end_all(id: &str) -> Result<bool, String> {
    let mut any = false;
    let begun = Instant::now();
    let mut signal = Signal::TERM;
    let mut told = Vec::new();
    loop {
        let there = marked(id);
        if there.is_empty() {
            return Ok(any);
        }
        any = true;
        if told.len() != there.len() || signal == Signal::KILL {
            for process in &there {
                // It may have ended meanwhile.
                let _ = pidfd_send_signal(process, signal);
            }
            told = there;
        }
        let passed = begun.elapsed();
        if passed > Duration::from_secs(3) {
            signal = Signal::KILL;
        }
        if passed > Duration::from_secs(10) {
            return Err(format!("{} processes of session {id} do not end", told.len()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// When process `pid` started, in ticks since boot.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_is_read_back() {
        for thing in [
            Thing::Processes,
            Thing::Namespace("mlab00".to_owned()),
            Thing::Interface("mlab00a".to_owned()),
            Thing::Folder("/tmp/mlab00".into()),
            Thing::Group("/sys/fs/cgroup/memory/mlab00".into()),
        ] {
            assert_eq!(Thing::of(&thing.line()), Some(thing));
        }
        assert_eq!(Thing::of("interface eth0"), None);
        assert_eq!(Thing::of("folder /etc"), None);
        assert_eq!(Thing::of("group /sys/fs/cgroup/system.slice"), None);
        assert_eq!(Thing::of("nonsense"), None);
    }

    #[test]
    fn ends_what_it_started_and_what_that_started() {
        let state = tempfile::tempdir().unwrap();
        let mut session = Session::begin_in(state.path()).unwrap();
        let id = session.id.clone();
        let folder = session.make_folder().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        session.mark(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while marked(&id).len() < 3 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(marked(&id).len(), 3);
        assert!(folder.exists());
        // The parent sees that the child ended; a zombie has no environment.
        drop(session);
        assert!(!child.wait().unwrap().success());
        assert!(marked(&id).is_empty());
        assert!(!folder.exists());
        assert!(!state.path().join(&id).exists());
    }

    #[test]
    fn clean_leaves_sessions_that_run_and_undoes_those_that_do_not() {
        let state = tempfile::tempdir().unwrap();
        let running = Session::begin_in(state.path()).unwrap();
        let left = std::env::temp_dir().join(format!("mlab-left-{}", std::process::id()));
        std::fs::create_dir(&left).unwrap();
        // The owner's identifier is in use, but by a process that started at another time.
        let text = format!("owner {} 1\nfolder {}\nfolder /etc\n", std::process::id(), left.display());
        std::fs::write(state.path().join("mlabdead"), text).unwrap();
        let report = clean::clean(state.path()).unwrap();
        assert_eq!((report.sessions, report.running, report.failed), (1, 1, 0));
        assert!(!left.exists());
        assert!(Path::new("/etc").exists());
        assert!(!state.path().join("mlabdead").exists());
        assert!(state.path().join(&running.id).exists());
    }
}
