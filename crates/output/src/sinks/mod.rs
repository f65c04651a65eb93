//! Sinks of lines: files, sockets, syslog, the console. [`crate::remote`] has those on other machines.
//!
//! A [`Sink`] is one worker's end of an output. It collects whole lines. At the end of a batch of packets
//! ([`Sink::end_batch`]) it hands them to the shared end (`Shared`), under a lock with no other use. The shared end
//! writes them, or buffers them up to `buffer-size`. With `Sink::write_aside` a thread does that, and lines are
//! collected until the hand-over is worth its cost. Operations beyond writing (flushing, reopening) wait for the thread.
//!
//! # When writing fails
//!
//! A line is in the file as a whole or not at all. If a regular file takes only a part (disk full), it is cut back to
//! its last whole line. If it cannot be cut, a line feed is written before the next line. The same repairs a partial
//! line that a killed process left. Lines that do not fit into a stream socket are kept, at most one hand-over, and sent
//! first later. Lines that could not be written are counted ([`Sink::lost`]). The log reports the loss once, with the
//! reason, and once more when writing works again; the process goes on. Suricata 7 loses such lines silently when the
//! disk is full, and reports their number at its end when a socket is missing.

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

/// Bytes that a worker collects before it hands them over within a batch.
const LOCAL_LIMIT: usize = 128 * 1024;

/// The reason that an output cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be opened for writing: {source}{}", path.display(), whose(path, source))]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// The owner of a file that may not be opened, or of its folder, in brackets for messages.
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

/// The device and inode of a file: two names with the same ones are of one file.
pub fn identity(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// One worker's end of an output.
#[derive(Debug)]
pub struct Sink {
    local: Json,
    shared: Arc<Behind>,
    writer: Option<Arc<Writer>>,
    /// Minimum number of bytes to hand over at the end of a batch.
    worth: usize,
}

/// The end that all workers share.
#[derive(Debug)]
struct Behind(Mutex<Shared>);

impl Behind {
    /// A worker that panics while writing leaves whole lines, so a poisoned lock is usable.
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
    /// Opens the sink. A socket without a listener is no error: the sink retries later.
    ///
    /// # Errors
    /// [`OpenError`] if a file cannot be opened.
    pub fn open(settings: SinkSettings, now: Time) -> Result<Sink, OpenError> {
        let shared = Shared::open(settings, now)?;
        Ok(Sink { local: Json::default(), shared: Arc::new(Behind(Mutex::new(shared))), writer: None, worth: 0 })
    }

    /// Lets `writer` write from now on. The end of a batch hands over only if at least `worth` bytes were collected.
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

    /// Adds a line. It must end in a line feed.
    pub fn line(&mut self, line: &[u8]) {
        self.line_with(|json| json.raw(line));
    }

    /// Adds a line that `write` appends. It must end in a line feed.
    #[inline]
    pub fn line_with(&mut self, write: impl FnOnce(&mut Json)) {
        write(&mut self.local);
        if self.local.len() >= LOCAL_LIMIT {
            self.hand_over();
        }
    }

    /// Ends a batch: hands over the collected lines, if there are enough of them.
    pub fn end_batch(&mut self) {
        if self.local.len() >= self.worth {
            self.hand_over();
        }
    }

    /// Hands over the collected lines.
    pub fn hand_over(&mut self) {
        if self.local.is_empty() {
            return;
        }
        if !self.put_aside(None) {
            self.shared.lock().write(self.local.as_bytes());
            self.local.clear();
        }
    }

    /// Hands over the collected lines, and the tick if there is one, to the writing thread. Returns whether there is
    /// such a thread.
    fn put_aside(&mut self, tick: Option<Time>) -> bool {
        let Some(writer) = &self.writer else { return false };
        let target: Arc<dyn writer::Target> = Arc::clone(&self.shared) as _;
        let lines = self.local.replace(Vec::new());
        self.local.replace(writer.put(&target, lines, tick));
        true
    }

    /// Waits until everything handed over is written, and locks the shared end.
    fn settled(&mut self) -> MutexGuard<'_, Shared> {
        self.hand_over();
        if let Some(writer) = &self.writer {
            writer.drain();
        }
        self.shared.lock()
    }

    /// Writes buffered lines, as far as that is possible without waiting.
    pub fn flush(&mut self) {
        self.settled().flush();
    }

    /// As [`Sink::flush`], but waits a little for a slow socket: for the end of the run.
    pub fn finish(&mut self) {
        self.settled().finish();
    }

    /// Reopens the file, after it was moved away.
    pub fn reopen(&mut self, now: Time) {
        self.settled().reopen(now);
    }

    /// Called about once a second: flushes, rotates when `rotate-interval` is over, reconnects.
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
