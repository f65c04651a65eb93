//! What one worker needs for files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_packet::Time;

use super::magic::{self, MagicError};
use super::range::Ranges;
use super::store::{Batch, StoreConfig};
use super::{File, StoreState};

/// What somebody wants of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWants {
    /// Rules look at files' data ([`File::data`]).
    pub data: bool,
    /// HTTP bodies are kept, decoded: rules may look at them, or scripts and alerts show them.
    pub bodies: bool,
    /// Rules (`filemagic`) or logs (`force-magic`) ask what kind of file it is.
    pub magic: bool,
    /// MD5: `filemd5`, `force-hash: [md5]`.
    pub md5: bool,
    /// SHA-1: `filesha1`, `force-hash: [sha1]`.
    pub sha1: bool,
    /// SHA-256: `filesha256`, `force-hash: [sha256]`.
    pub sha256: bool,
    /// Rules ask for files to be stored (`filestore`).
    pub store: bool,
}

impl FileWants {
    /// Nothing.
    pub const NONE: FileWants =
        FileWants { data: false, bodies: false, magic: false, md5: false, sha1: false, sha256: false, store: false };

    /// The same without digests.
    #[must_use]
    pub const fn without_digests(self) -> FileWants {
        FileWants { md5: false, sha1: false, sha256: false, ..self }
    }

    /// What either wants.
    #[must_use]
    pub const fn or(self, other: FileWants) -> FileWants {
        FileWants {
            data: self.data || other.data,
            bodies: self.bodies || other.bodies,
            magic: self.magic || other.magic,
            md5: self.md5 || other.md5,
            sha1: self.sha1 || other.sha1,
            sha256: self.sha256 || other.sha256,
            store: self.store || other.store,
        }
    }
}

impl Default for FileWants {
    /// Data and bodies, for detection; nothing else.
    fn default() -> Self {
        FileWants { data: true, bodies: true, ..FileWants::NONE }
    }
}

/// Settings of files.
#[derive(Debug, Clone)]
pub struct FileConfig {
    /// What the outputs want, whatever rules ask for: `force-magic`, `force-hash`.
    pub force: FileWants,
    /// The file store, where it is on.
    pub store: Option<StoreConfig>,
    /// `stream.reassembly.depth`, 0 for all: what is followed of files that are stored, where the store has no depth of
    /// its own.
    pub stream_depth: u64,
    /// `magic-file`: libmagic's database; `None` for its own.
    pub magic_file: Option<PathBuf>,
    /// Most files of a transaction; those after them are not followed.
    pub max_files: u32,
    /// Most bytes of a file's data that wait for detection; more than that is dropped unseen.
    pub window_limit: usize,
    /// Most bytes that a worker holds of files that rules may yet store; files beyond it are not stored any more.
    pub hold_limit: u64,
    /// `byterange.memcap`: most bytes that a worker holds of files that are put together from ranges.
    pub range_memcap: u64,
    /// `byterange.max-size`: size of a file from which on its ranges are not put together.
    pub range_max_size: u64,
    /// `byterange.timeout`: seconds after which a file that got no further range is forgotten.
    pub range_timeout: i64,
}

impl Default for FileConfig {
    fn default() -> Self {
        FileConfig {
            force: FileWants::NONE,
            store: None,
            stream_depth: 1 << 20,
            magic_file: None,
            max_files: 1024,
            window_limit: 4 << 20,
            hold_limit: 256 << 20,
            range_memcap: 100 << 20,
            range_max_size: 1 << 30,
            range_timeout: 60,
        }
    }
}

impl FileConfig {
    /// The depth up to which a stream, and the bodies in it, are followed where their files are stored; 0 is without end.
    pub fn store_depth(&self) -> u64 {
        self.store.as_ref().and_then(|s| s.stream_depth).unwrap_or(self.stream_depth)
    }
}

/// What rules asked for of all files of a flow. The session keeps it and puts it into [`FileEngine::flow`] before the
/// flow's parser is fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowFiles {
    /// By direction: files are stored, as the rule with this sid asked first.
    pub store: [Option<u32>; 2],
}

/// What was counted about files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCounters {
    /// Files that were not followed because their transaction had too many.
    pub over_max_files: u64,
    /// Files of which data went unseen by detection because too much of it waited.
    pub over_window: u64,
    /// Files that rules could not store any more because a worker held too much.
    pub over_hold: u64,
    /// Files that were not put together from ranges because a worker held too much.
    pub over_range: u64,
}

/// What one worker needs for files: what is wanted of them, the store, counters.
#[derive(Debug, Default)]
pub struct FileEngine {
    /// What the rules want.
    pub wants: FileWants,
    /// What rules asked for of the flow that is being parsed.
    pub flow: FlowFiles,
    /// Counters.
    pub counters: FileCounters,
    pub(super) ranges: Ranges,
    pub(super) magic_file: Option<PathBuf>,
    /// Bytes held of files that may be stored yet.
    pub(super) held: Arc<AtomicU64>,
    /// What is to be done in the store.
    pub(super) batch: Batch,
}

impl FileEngine {
    /// What a worker needs, given what its rules want. To be called by the worker's own thread: libmagic's database is
    /// loaded for it where it is wanted.
    ///
    /// # Errors
    /// libmagic is wanted and cannot be used.
    pub fn new(config: &FileConfig, wants: FileWants) -> Result<FileEngine, MagicError> {
        if wants.magic || config.force.magic {
            magic::check(config.magic_file.as_deref())?;
        }
        Ok(FileEngine { wants, magic_file: config.magic_file.clone(), ..FileEngine::default() })
    }

    /// Has the store's thread do what was to be done so far: to be called after each batch of packets, and before a flow goes
    /// on at another worker.
    #[inline]
    pub fn end_batch(&mut self) {
        self.batch.hand_over();
    }

    /// The same, and waits until it is done: to be called at the end.
    pub fn sync(&mut self) {
        self.batch.sync();
    }

    /// Calls `f` with the name and value of every counter. Those of the store are only there where it is on, but for the
    /// number of open files.
    pub fn for_each_counter(&self, config: &FileConfig, f: &mut dyn FnMut(&str, u64)) {
        let c = &self.counters;
        if let Some(store) = &config.store {
            store.shared.for_each_counter(store.quota, f);
            f("file_store.hold_limit_hit", c.over_hold);
        }
        f("file_store.open_files", config.store.as_ref().map_or(0, |s| s.shared.open_files()));
        f("file.max_files_hit", c.over_max_files);
        f("file.window_limit_hit", c.over_window);
        f("file.range_memcap_hit", c.over_range);
    }

    /// Bytes held now of files that rules may yet store.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Writes the record of a stored file (`write-fileinfo`), given as JSON, beside it; `time` is that of the packet. Does
    /// nothing where records are off or the file was not stored.
    pub fn write_record(&mut self, config: &FileConfig, file: &File, time: Time, json: &[u8]) {
        let (Some(store), StoreState::Done(id)) = (&config.store, &file.store) else { return };
        let Some(sha256) = file.digests.sha256.filter(|_| store.write_fileinfo) else { return };
        self.batch.record(store, *id, &sha256, time.0.div_euclid(1_000_000), json);
    }
}
