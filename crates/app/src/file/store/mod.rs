//! The file store, version 2: a file is written to `tmp/` while it comes, and put at `xx/SHA256` when it is at its end, `xx`
//! being the first two digits. A file that is there already is not kept twice; its time is set forward.
//!
//! A worker touches no disk. It collects what is to be done in a [`Batch`], which it hands over after each batch of packets, and
//! a thread does it (`writer`, `disk`), in order. What waits is bounded ([`StoreConfig::queue`]): where there is no room the
//! file is not stored, and counted, or, of capture files, the worker waits. So that a file is "stored" means that all of it was
//! handed over; what the disk then refuses is said, and counted (`file_store.fs_errors`).

mod batch;
mod disk;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use batch::{Batch, Temporary};
use disk::Disk;
pub use writer::StoreShared;

/// How the store's thread says what happened, as one sentence.
pub(super) type Say = fn(&str);

/// Settings of the store (`outputs: - file-store:`).
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `dir`: where it is; relative paths were joined to the log's directory.
    pub dir: PathBuf,
    /// `force-filestore`: all files are stored, whatever rules say.
    pub force: bool,
    /// `write-fileinfo`: a record is written beside each stored file.
    pub write_fileinfo: bool,
    /// `stream-depth`: bytes of a stream that are followed where files are stored, instead of the stream's own depth; 0 for
    /// all. `None` where it is not set.
    pub stream_depth: Option<u64>,
    /// `max-open-files`: temporary files kept open between writes; 0 for none, each write opens and closes.
    pub max_open_files: u32,
    /// `quota`: most bytes that the store takes, those of earlier runs included; 0 for no limit.
    pub quota: u64,
    /// `queue-size`: most bytes that wait to be written.
    pub queue: u64,
    /// A worker for whose data there is no room waits until there is, as it may where packets come from a file.
    pub waits: bool,
    /// How errors are said, and how what is not one.
    pub say: [fn(&str); 2],
    /// What all workers share.
    pub shared: Arc<StoreShared>,
}

impl StoreConfig {
    /// Default of `queue-size`.
    pub const QUEUE: u64 = 64 << 20;

    /// A store in a directory, with defaults.
    pub fn new(dir: PathBuf) -> StoreConfig {
        StoreConfig {
            dir,
            force: false,
            write_fileinfo: false,
            stream_depth: None,
            max_open_files: 0,
            quota: 0,
            queue: Self::QUEUE,
            waits: false,
            say: [|_| {}; 2],
            shared: Arc::default(),
        }
    }

    /// Makes the directories of the store where they are missing, and starts its thread unless it runs.
    ///
    /// # Errors
    /// They cannot be made or opened, or no thread is to be had.
    pub fn prepare(&self) -> Result<(), StoreError> {
        self.shared.start(self.queue, || Disk::open(self))
    }
}

/// Why something could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("file-store: {} {}: {source}", what, path.display())]
pub struct StoreError {
    /// What was tried.
    what: &'static str,
    /// With which file or directory.
    path: PathBuf,
    /// Why it failed.
    source: std::io::Error,
}

impl StoreError {
    fn new(what: &'static str, path: impl AsRef<Path>, source: impl Into<std::io::Error>) -> StoreError {
        StoreError { what, path: path.as_ref().to_owned(), source: source.into() }
    }
}
