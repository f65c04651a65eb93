//! A worker's state for files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_packet::Time;

use super::magic::{self, MagicError};
use super::range::Ranges;
use super::store::{Batch, StoreConfig};
use super::{File, StoreState};

/// The uses of files that are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWants {
    /// Rules inspect file data ([`File::data`]).
    pub data: bool,
    /// Decoded HTTP bodies are kept: rules may inspect them, or scripts and alerts show them.
    pub bodies: bool,
    /// Rules (`filemagic`) or logs (`force-magic`) need the file type.
    pub magic: bool,
    /// MD5: `filemd5`, `force-hash: [md5]`.
    pub md5: bool,
    /// SHA-1: `filesha1`, `force-hash: [sha1]`.
    pub sha1: bool,
    /// SHA-256: `filesha256`, `force-hash: [sha256]`.
    pub sha256: bool,
    /// Rules store files (`filestore`).
    pub store: bool,
    /// Rules test events of transactions (`app-layer-event`), of which wrong checksums of compressed bodies are one.
    pub events: bool,
}

impl FileWants {
    /// No use.
    pub const NONE: FileWants = FileWants {
        data: false,
        bodies: false,
        magic: false,
        md5: false,
        sha1: false,
        sha256: false,
        store: false,
        events: false,
    };

    /// The same uses without digests.
    #[must_use]
    pub const fn without_digests(self) -> FileWants {
        FileWants { md5: false, sha1: false, sha256: false, ..self }
    }

    /// The union of two sets.
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
            events: self.events || other.events,
        }
    }
}

impl Default for FileWants {
    /// Data and bodies, for detection only.
    fn default() -> Self {
        FileWants { data: true, bodies: true, ..FileWants::NONE }
    }
}

/// Settings of files.
#[derive(Debug, Clone)]
pub struct FileConfig {
    /// File properties that outputs always compute, even if no rule needs them: `force-magic`, `force-hash`.
    pub force: FileWants,
    /// The file store, if it is on.
    pub store: Option<StoreConfig>,
    /// `stream.reassembly.depth`, 0 for all: the limit for stored files if the store has no depth of its own.
    pub stream_depth: u64,
    /// `magic-file`: libmagic's database; `None` for the default one.
    pub magic_file: Option<PathBuf>,
    /// The limit of files in a transaction; further ones are not tracked.
    pub max_files: u32,
    /// The limit of file data that waits for detection; data beyond it is dropped uninspected.
    pub window_limit: usize,
    /// The limit of a worker's data for files that rules may still store; files beyond it are not stored.
    pub hold_limit: u64,
    /// `byterange.memcap`: the limit of a worker's data for files that are reassembled from ranges.
    pub range_memcap: u64,
    /// `byterange.max-size`: files of this size or more are not reassembled from ranges.
    pub range_max_size: u64,
    /// `byterange.timeout`: seconds without a new range after which a file is dropped.
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
    /// The depth to which a stream and its bodies are followed if their files are stored; 0 for all.
    pub fn store_depth(&self) -> u64 {
        self.store.as_ref().and_then(|s| s.stream_depth).unwrap_or(self.stream_depth)
    }
}

/// Requests of rules that matched, for all files of a flow. The session keeps them, and sets [`FileEngine::flow`] before it
/// calls the flow's parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowFiles {
    /// By direction: files are stored, as requested first by the rule with this sid.
    pub store: [Option<u32>; 2],
}

/// Counters of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCounters {
    /// Files that were not tracked because their transaction had too many.
    pub over_max_files: u64,
    /// Files with data that detection missed because too much of it waited.
    pub over_window: u64,
    /// Files that rules could not store because the worker held too much data.
    pub over_hold: u64,
    /// Files that were not reassembled from ranges because the worker held too much data.
    pub over_range: u64,
}

/// A worker's state for files: their uses, the store, and counters.
#[derive(Debug, Default)]
pub struct FileEngine {
    /// File properties that any loaded rule tests.
    pub wants: FileWants,
    /// No rule and no output uses the event of a wrong checksum of a compressed body, so none is computed.
    pub spare_checksums: bool,
    /// The requests of rules for the files of the current flow.
    pub flow: FlowFiles,
    /// Counters.
    pub counters: FileCounters,
    pub(super) ranges: Ranges,
    pub(super) magic_file: Option<PathBuf>,
    /// Bytes held for files that may still be stored.
    pub(super) held: Arc<AtomicU64>,
    /// Pending work for the store.
    pub(super) batch: Batch,
}

impl FileEngine {
    /// Creates a worker's state for the uses of its rules. The worker's own thread must call it, because libmagic loads its
    /// database for that thread.
    ///
    /// # Errors
    /// libmagic is needed and cannot be used.
    pub fn new(config: &FileConfig, wants: FileWants) -> Result<FileEngine, MagicError> {
        if wants.magic || config.force.magic {
            magic::check(config.magic_file.as_deref())?;
        }
        Ok(FileEngine { wants, magic_file: config.magic_file.clone(), ..FileEngine::default() })
    }

    /// Hands the pending work to the store's thread. Call it after each batch of packets, and before a flow moves to another
    /// worker.
    #[inline]
    pub fn end_batch(&mut self) {
        self.batch.hand_over();
    }

    /// As `end_batch`, and waits until the work is done. Call it at the end.
    pub fn sync(&mut self) {
        self.batch.sync();
    }

    /// Calls `f` with the name and value of each counter. Without a store, only the number of open files has a counter of the
    /// store.
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

    /// Bytes held for files that rules may still store.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Writes the JSON record of a stored file (`write-fileinfo`) next to it; `time` is that of the packet. Does nothing if
    /// records are off or the file was not stored.
    pub fn write_record(&mut self, config: &FileConfig, file: &File, time: Time, json: &[u8]) {
        let (Some(store), StoreState::Done(id)) = (&config.store, &file.store) else { return };
        let Some(sha256) = file.digests.sha256.filter(|_| store.write_fileinfo) else { return };
        self.batch.record(store, *id, &sha256, time.0.div_euclid(1_000_000), json);
    }
}
