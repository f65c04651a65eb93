//! Where lines go: files, sockets, syslog, the console; what is on another machine is in [`crate::remote`].
//!
//! A [`Sink`] is one worker's end of an output. It collects whole lines and hands them over at the end of a batch of
//! packets ([`Sink::end_batch`]), under a lock that is taken for nothing else; what is behind the lock
//! (`Shared`) writes them, or keeps them up to `buffer-size`. With `Sink::write_aside` a thread does that, and lines are
//! collected until they are worth its while; what is more than writing (flushing, opening anew) waits for it.
//!
//! # When writing fails
//!
//! A line is there as a whole or not at all. If a regular file takes only a part (disk full), the file is cut back to
//! its last whole line; where it cannot be cut, a line feed is written before the next line, and so it is after half a line that
//! was there at the start: of a process that was killed. What does not fit into a
//! stream socket now is kept, no more than one hand-over, and sent before anything else. Lines that could not be
//! written are counted ([`Sink::lost`]) and said once, with the reason, and once more when writing works again; the
//! process goes on. Suricata 7 loses such lines without a word where the disk is full, and tells the number at its
//! end where a socket is missing.

mod counters;
mod file;
mod socket;
mod target;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_packet::Time;

use crate::json::Json;
use crate::settings::SinkSettings;
use crate::writer::{self, Writer};
pub use counters::OutputCounters;
use target::Shared;
pub(crate) use target::count;

/// How much a worker collects before it hands over in the middle of a batch.
const LOCAL_LIMIT: usize = 128 * 1024;

/// Why an output cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be opened for writing: {source}{}", path.display(), whose(path, source))]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Whose a file is that may not be opened, or else its folder; in brackets, for messages.
fn whose(path: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let there = [Some(path), path.parent()].into_iter().flatten();
    let Some((at, m)) = there.filter_map(|p| Some((p, std::fs::metadata(p).ok()?))).next() else {
        return String::new();
    };
    let (at, uid) = (at.display(), rustix::process::geteuid().as_raw());
    format!(" ({at} belongs to uid {}, mode {:04o}; this runs as uid {uid})", m.uid(), m.mode() & 0o7777)
}

/// One worker's end of an output.
#[derive(Debug)]
pub struct Sink {
    local: Json,
    shared: Arc<Behind>,
    writer: Option<Arc<Writer>>,
    /// How much is worth handing over at the end of a batch.
    worth: usize,
}

/// What all workers share.
#[derive(Debug)]
struct Behind(Mutex<Shared>);

impl Behind {
    /// A worker that panicked while it wrote leaves whole lines: its lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl writer::Target for Behind {
    fn write(&self, lines: &[u8]) {
        self.lock().write(lines);
    }

    fn tick(&self, now: Time) {
        self.lock().tick(now);
    }
}

impl Sink {
    /// Opens what `settings` name. A socket that nobody listens on is no error: it is tried again later.
    ///
    /// # Errors
    /// [`OpenError`] for files.
    pub fn open(settings: SinkSettings, now: Time) -> Result<Sink, OpenError> {
        let shared = Shared::open(settings, now)?;
        Ok(Sink { local: Json::default(), shared: Arc::new(Behind(Mutex::new(shared))), writer: None, worth: 0 })
    }

    /// From here on `writer` writes what is handed over, and the end of a batch does that only with so many bytes.
    pub(crate) fn write_aside(&mut self, writer: &Arc<Writer>, worth: usize) {
        self.hand_over();
        self.worth = worth;
        self.writer = Some(Arc::clone(writer));
    }

    pub(crate) fn worth(&self) -> usize {
        self.worth
    }

    /// Another worker's end of the same output.
    #[must_use]
    pub fn share(&self) -> Sink {
        Sink {
            local: Json::default(),
            shared: Arc::clone(&self.shared),
            writer: self.writer.clone(),
            worth: self.worth,
        }
    }

    /// Adds a line, which ends in a line feed.
    pub fn line(&mut self, line: &[u8]) {
        self.line_with(|json| json.raw(line));
    }

    /// Adds a line that `write` appends, which ends in a line feed.
    #[inline]
    pub fn line_with(&mut self, write: impl FnOnce(&mut Json)) {
        write(&mut self.local);
        if self.local.len() >= LOCAL_LIMIT {
            self.hand_over();
        }
    }

    /// At the end of a batch: hands over what was collected, if it is worth it.
    pub fn end_batch(&mut self) {
        if self.local.len() >= self.worth {
            self.hand_over();
        }
    }

    /// Hands over what was collected.
    pub fn hand_over(&mut self) {
        if self.local.is_empty() {
            return;
        }
        if !self.put_aside(None) {
            self.shared.lock().write(self.local.as_bytes());
            self.local.clear();
        }
    }

    /// Hands over what was collected to the thread that writes, and where there is a time that as well; whether there is
    /// a thread.
    fn put_aside(&mut self, tick: Option<Time>) -> bool {
        let Some(writer) = &self.writer else { return false };
        let target: Arc<dyn writer::Target> = Arc::clone(&self.shared) as _;
        let lines = self.local.replace(Vec::new());
        self.local.replace(writer.put(&target, lines, tick));
        true
    }

    /// What all workers share, when everything that was handed over is written.
    fn settled(&mut self) -> MutexGuard<'_, Shared> {
        self.hand_over();
        if let Some(writer) = &self.writer {
            writer.drain();
        }
        self.shared.lock()
    }

    /// Writes what is buffered, as far as that goes without waiting.
    pub fn flush(&mut self) {
        self.settled().flush();
    }

    /// As [`Sink::flush`], waiting for a slow socket a little: at the end.
    pub fn finish(&mut self) {
        self.settled().finish();
    }

    /// Opens the file anew, after it was moved away.
    pub fn reopen(&mut self, now: Time) {
        self.settled().reopen(now);
    }

    /// For the clock's sake, about once a second: flushes, rotates when `rotate-interval` is over, connects anew.
    pub fn tick(&mut self, now: Time) {
        if !self.put_aside(Some(now)) {
            self.settled().tick(now);
        }
    }

    /// Lines that could not be written so far.
    pub fn lost(&self) -> u64 {
        self.shared.lock().lost()
    }
}
