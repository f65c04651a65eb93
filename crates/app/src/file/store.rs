//! The file store, version 2: a file is written to `tmp/` while it comes, and put at `xx/SHA256` when it is at its end, `xx`
//! being the first two digits. A file that is there already is not kept twice; its time is set forward.

use std::fs::{File as Disk, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::FileCounters;

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
    /// What all workers share.
    pub shared: Arc<StoreShared>,
}

impl StoreConfig {
    /// A store in a directory, with defaults.
    pub fn new(dir: PathBuf) -> StoreConfig {
        StoreConfig {
            dir,
            force: false,
            write_fileinfo: false,
            stream_depth: None,
            max_open_files: 0,
            shared: Arc::default(),
        }
    }

    /// Makes the directories of the store where they are missing.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn prepare(&self) -> Result<(), StoreError> {
        make_dir(&self.dir.join("tmp"))
    }
}

/// What the stores of all workers share. It is only touched when a file begins or ends to be stored.
#[derive(Debug, Default)]
pub struct StoreShared {
    /// The last number given to a stored file.
    last_id: AtomicU32,
    /// Temporary files that are open.
    open: AtomicU64,
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

fn make_dir(path: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(path).map_err(|source| StoreError {
        what: "cannot make the directory",
        path: path.to_owned(),
        source,
    })
}

/// A file that is being stored; removed when it goes before it was put in its place.
#[derive(Debug)]
pub(super) struct Temporary {
    /// Its number.
    pub(super) id: u32,
    path: PathBuf,
    /// Open between writes, where there may be one more.
    disk: Option<Disk>,
    shared: Arc<StoreShared>,
    placed: AtomicBool,
}

impl Temporary {
    /// Makes a temporary file.
    pub(super) fn new(config: &StoreConfig, counters: &mut FileCounters) -> Result<Temporary, StoreError> {
        let id = config.shared.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let path = config.dir.join("tmp").join(format!("file.{id}"));
        let disk = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|source| StoreError { what: "cannot make", path: path.clone(), source })?;
        let keep = config.max_open_files > 0 && {
            let limit = u64::from(config.max_open_files);
            let more = |n: u64| (n < limit).then_some(n + 1);
            let room = config.shared.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
            counters.open_files_max_hit += u64::from(!room);
            room
        };
        let disk = keep.then_some(disk);
        Ok(Temporary { id, path, disk, shared: Arc::clone(&config.shared), placed: AtomicBool::new(false) })
    }

    /// Appends bytes.
    pub(super) fn write(&self, data: &[u8]) -> Result<(), StoreError> {
        let done = match &self.disk {
            Some(d) => (&*d).write_all(data),
            None => OpenOptions::new().append(true).open(&self.path).and_then(|mut d| d.write_all(data)),
        };
        done.map_err(|source| StoreError { what: "cannot write to", path: self.path.clone(), source })
    }

    /// Puts it where its digest says, unless it is there already.
    pub(super) fn place(&self, config: &StoreConfig, sha256: &[u8; 32]) -> Result<(), StoreError> {
        let to = path_of(config, sha256);
        if let Some(dir) = to.parent() {
            make_dir(dir)?;
        }
        if to.exists() {
            let touched = std::fs::metadata(&self.path)
                .and_then(|m| m.modified())
                .and_then(|time| Disk::options().append(true).open(&to)?.set_modified(time));
            // Dropping removes the second copy.
            return touched.map_err(|source| StoreError { what: "cannot set the time of", path: to, source });
        }
        std::fs::rename(&self.path, &to).map_err(|source| StoreError {
            what: "cannot move a finished file to",
            path: to,
            source,
        })?;
        self.placed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.disk.is_some() {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.placed.load(Ordering::Relaxed) {
            // Nothing can be done about one that cannot be removed; the next run's file of this number replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl StoreShared {
    /// Temporary files that are open now (`file_store.open_files`).
    pub fn open_files(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }
}

/// Where a stored file is.
pub(super) fn path_of(config: &StoreConfig, sha256: &[u8; 32]) -> PathBuf {
    let name = hex(sha256);
    config.dir.join(name.get(..2).unwrap_or_default()).join(&name)
}

/// Writes the record of a stored file beside it.
pub(super) fn write_record(
    config: &StoreConfig,
    sha256: &[u8; 32],
    seconds: i64,
    id: u32,
    json: &[u8],
) -> Result<(), StoreError> {
    let mut path = path_of(config, sha256).into_os_string();
    path.push(format!(".{seconds}.{id}.json"));
    let path = PathBuf::from(path);
    Disk::create(&path)
        .and_then(|mut f| {
            f.write_all(json)?;
            f.write_all(b"\n")
        })
        .map_err(|source| StoreError { what: "cannot write", path, source })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
