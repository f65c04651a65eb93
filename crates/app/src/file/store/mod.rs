//! The file store, version 2. A file is written to `tmp/` as it arrives and moved to `xx/SHA256` at its end, where `xx` is the
//! first two digits. A file that already exists is not stored again; its time is updated.
//!
//! A worker does no disk access. It collects work in a [`Batch`] and hands it over after each batch of packets. A thread does
//! the work in order (`writer`, `disk`). The queue is bounded ([`StoreConfig::queue`]): if it is full, the file is not stored,
//! and counted; for capture files, the worker waits instead. A "stored" file is one that was handed over completely. Later disk
//! errors are logged and counted (`file_store.fs_errors`).

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

/// Logs a message of the store's thread.
pub(super) type Say = fn(&str);

/// Settings of the store (`outputs: - file-store:`).
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `dir`: the folder, already joined to the log directory if it was relative.
    pub dir: PathBuf,
    /// `force-filestore`: store all files, whatever the rules.
    pub force: bool,
    /// `write-fileinfo`: write a record next to each stored file.
    pub write_fileinfo: bool,
    /// `stream-depth`: the stream depth for stored files instead of the stream's own; 0 for all. `None` if it is not set.
    pub stream_depth: Option<u64>,
    /// `max-open-files`: the limit of temporary files kept open between writes; 0 to open and close the file for each write.
    pub max_open_files: u32,
    /// `quota`: the size limit of the store, including earlier runs; 0 for none.
    pub quota: u64,
    /// `queue-size`: the limit of bytes that wait to be written.
    pub queue: u64,
    /// If the queue is full, the worker waits. This is for capture files.
    pub waits: bool,
    /// Logs an error, and logs information.
    pub say: [fn(&str); 2],
    /// State that all workers share.
    pub shared: Arc<StoreShared>,
}

impl StoreConfig {
    /// The default of `queue-size`.
    pub const QUEUE: u64 = 64 << 20;

    /// A store in a folder, with defaults.
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

    /// Creates the missing folders of the store, and starts its thread unless it runs.
    ///
    /// # Errors
    /// A folder cannot be created or opened, or the thread cannot start.
    pub fn prepare(&self) -> Result<(), StoreError> {
        self.shared.start(self.queue, || Disk::open(self))
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[error("file-store: {} {}: {source}", what, path.display())]
pub struct StoreError {
    /// The failed operation.
    what: &'static str,
    /// Its file or folder.
    path: PathBuf,
    /// The cause.
    source: std::io::Error,
}

impl StoreError {
    fn new(what: &'static str, path: impl AsRef<Path>, source: impl Into<std::io::Error>) -> StoreError {
        StoreError { what, path: path.as_ref().to_owned(), source: source.into() }
    }
}
