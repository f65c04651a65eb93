//! The pid file.
//!
//! It is locked while the process lives, so that a pid that another program has reused does not count as a running engine.
//! Suricata does not lock its pid file: for an unlocked file, the process itself is checked.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use margay_output::sinks::identity;
use rustix::fs::{FlockOperation, flock};

use crate::Failed;

/// Retries if other processes delete the file while it is being locked.
const TRIES: usize = 10;
/// Limit of the bytes that are read.
const LENGTH: u64 = 64;

/// The pid file, deleted when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    file: File,
}

/// Names of engine processes, as the kernel shows them.
const ENGINES: [&str; 2] = ["margay", "suricata"];

impl PidFile {
    /// Creates the file at `path`, or takes over one whose process is gone, and writes this process's pid.
    ///
    /// # Errors
    /// A running engine owns it, or it cannot be written.
    pub(super) fn create(path: &Path) -> Result<PidFile, Failed> {
        let failed = |what: String| Failed::new("pidfile", format!("{}: {what}", path.display()));
        for _ in 0..TRIES {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                // A symbolic link could lead anywhere.
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(path)
                .map_err(|e| failed(format!("the pid file cannot be written: {e}{}", super::owner(path))))?;
            let mut text = String::new();
            // Invalid text has no pid.
            let _ = (&mut file).take(LENGTH).read_to_string(&mut text);
            let pid = text.trim().parse::<i32>().ok().filter(|p| *p > 0);
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let who = pid.map_or(String::new(), |p| format!(" (process {p})"));
                return Err(failed(format!(
                    "an engine{who} is running with this pid file: stop it, or name another file"
                )));
            }
            let same = std::fs::metadata(path).ok().zip(file.metadata().ok());
            if same.is_none_or(|(a, b)| identity(&a) != identity(&b)) {
                // Its owner deleted it in between.
                continue;
            }
            if let Some(pid) = pid.filter(|p| is_engine(*p)) {
                return Err(failed(format!(
                    "process {pid} of this pid file is a running engine: stop it, or name another file"
                )));
            }
            let written = file
                .set_len(0)
                .and_then(|()| io::Seek::rewind(&mut file))
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            written.map_err(|e| failed(format!("the pid file cannot be written: {e}")))?;
            return Ok(PidFile { path: path.to_owned(), file });
        }
        Err(failed("the pid file is taken away again and again".into()))
    }
}

/// Whether that process exists, is alive and has an engine's name. A zombie keeps its name, but its state in
/// `/proc/PID/stat`, after the name in brackets, is `Z` or `X`.
fn is_engine(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().to_ascii_lowercase();
    let Some((name, rest)) = stat.split_once('(').and_then(|(_, s)| s.rsplit_once(") ")) else { return false };
    let ended = rest.starts_with(['z', 'x']);
    u32::try_from(pid).is_ok_and(|p| p != std::process::id()) && !ended && ENGINES.iter().any(|e| name.starts_with(e))
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If the user has changed, the file may not be deletable. An empty file stands for no process.
        if std::fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("margay-pidfile-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn made_and_removed() {
        let path = place("made");
        let pid = PidFile::create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        let e = PidFile::create(&path).unwrap_err();
        assert!(e.message.contains("is running") && e.message.contains(&std::process::id().to_string()), "{e}");
        drop(pid);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_one_is_taken_over() {
        let path = place("stale");
        for old in ["999999999\n", "", "no number", "-4", &format!("{}\nmore", "x".repeat(500)), "1\n"] {
            std::fs::write(&path, old).unwrap();
            drop(PidFile::create(&path).unwrap_or_else(|e| panic!("{old}: {e}")));
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        drop(PidFile::create(&path).unwrap());
    }

    #[test]
    fn a_process_that_has_ended_has_none() {
        // A program with the name of an engine, which stays a zombie until the test has checked it.
        let dir = std::env::temp_dir().join(format!("margay-pidfile-{}-program", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let program = dir.join("margay");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let named = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().starts_with("margay");
        while !named() {
            std::thread::yield_now();
        }
        assert!(is_engine(pid));
        let path = place("zombie");
        std::fs::write(&path, format!("{pid}\n")).unwrap();
        assert!(PidFile::create(&path).is_err());
        child.kill().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !stat().contains(") Z") {
            std::thread::yield_now();
        }
        assert!(named() && !is_engine(pid));
        drop(PidFile::create(&path).unwrap());
        child.wait().unwrap();
        let _ = std::fs::remove_dir_all(&dir);
    }

    #[test]
    fn links_are_not_followed() {
        let (path, other) = (place("link"), place("other"));
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(PidFile::create(&path).is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&other));
    }
}
