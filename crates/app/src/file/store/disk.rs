//! The store on disk. Files are created and moved relative to descriptors of their folders, and no symbolic link is followed
//! below the store's own folder. A user with write access there cannot redirect the engine's writes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::batch::{Job, What};
use super::writer::Inner;
use super::{Say, StoreConfig, StoreError};

/// A file that is being written.
#[derive(Debug)]
struct Writing {
    /// Open between writes, within the limit of open files.
    file: Option<File>,
    size: u64,
}

/// The store.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    root: OwnedFd,
    tmp: OwnedFd,
    /// The folders of stored files, by the first byte of the digest.
    folders: HashMap<u8, OwnedFd>,
    writing: HashMap<u32, Writing>,
    /// Files that were discarded before they began, because that step overtook the batch.
    early: HashSet<u32>,
    /// The last files that could not be stored. Their records are skipped.
    failed: VecDeque<u32>,
    max_open: u64,
    quota: u64,
    used: u64,
    /// The first error was logged; later ones are only counted.
    said: bool,
    pub(super) say: [Say; 2],
}

/// The number of failed files that are remembered.
const FAILED: usize = 1024;
/// The percentage of the quota that must be free before storing resumes.
const FREE: u64 = 5;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn temporary(id: u32) -> String {
    format!("file.{id}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Creates a new file. An existing file with that name is removed, never written to.
fn create(folder: &OwnedFd, name: &str) -> Result<File, Errno> {
    let mode = Mode::from_raw_mode(0o666);
    let opened = match rustix::fs::openat(folder, name, NEW, mode) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
            rustix::fs::openat(folder, name, NEW, mode)?
        }
        other => other?,
    };
    Ok(File::from(opened))
}

/// Opens a folder below another one, and creates it if necessary.
fn folder_in(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

impl Disk {
    /// Opens the folders of a store, and creates missing ones.
    pub(super) fn open(config: &StoreConfig) -> Result<Disk, StoreError> {
        let dir = &config.dir;
        std::fs::create_dir_all(dir).map_err(|e| StoreError::new("cannot make the directory", dir, e))?;
        // The store itself may be a link, because the configuration names it.
        let root = rustix::fs::openat(CWD, dir, DIRECTORY, Mode::empty())
            .map_err(|e| StoreError::new("cannot open the directory", dir, e))?;
        let tmp =
            folder_in(&root, "tmp").map_err(|e| StoreError::new("cannot make the directory", dir.join("tmp"), e))?;
        Ok(Disk {
            dir: dir.clone(),
            root,
            tmp,
            folders: HashMap::new(),
            writing: HashMap::new(),
            early: HashSet::new(),
            failed: VecDeque::new(),
            max_open: u64::from(config.max_open_files),
            quota: config.quota,
            used: 0,
            said: false,
            say: config.say,
        })
    }

    /// The thread calls this before it starts work.
    pub(super) fn begin(&mut self, inner: &Inner) {
        if self.quota > 0 {
            self.used = self.measure();
            self.note(inner);
            if self.used >= self.quota {
                self.reached(inner);
            }
        }
    }

    /// Does the work of a batch.
    pub(super) fn run(&mut self, job: &Job, inner: &Inner) {
        let mut at = 0;
        let mut data = |len: usize| {
            let from = at;
            at += len;
            job.bytes.get(from..at).unwrap_or_default()
        };
        for step in &job.steps {
            let id = step.id;
            let done = match step.what {
                What::Begin => self.start(id, inner),
                What::Append(len) => self.append(id, data(len), inner),
                What::Place(sha256) => self.place(id, &sha256, inner),
                What::Discard => {
                    if !self.writing.contains_key(&id) && !self.failed.contains(&id) {
                        // Bound the set: a file whose worker failed never begins.
                        if self.early.len() >= FAILED {
                            self.early.clear();
                        }
                        self.early.insert(id);
                    }
                    self.remove(id, inner);
                    Ok(())
                }
                What::Record { sha256, seconds, len } => self.record(id, &sha256, seconds, data(len)),
            };
            if let Err(e) = done {
                inner.counts.errors.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.said, true) {
                    (self.say[0])(&format!(
                        "{e}; the file is not stored, and further errors are only counted (file_store.fs_errors)"
                    ));
                }
                self.remove(id, inner);
                self.fail(id);
            }
        }
        self.note(inner);
    }

    fn fail(&mut self, id: u32) {
        if self.failed.len() >= FAILED {
            self.failed.pop_front();
        }
        self.failed.push_back(id);
    }

    fn path(&self, id: u32) -> PathBuf {
        self.dir.join("tmp").join(temporary(id))
    }

    fn start(&mut self, id: u32, inner: &Inner) -> Result<(), StoreError> {
        if self.early.remove(&id) {
            self.fail(id);
            return Ok(());
        }
        if inner.is_full.load(Ordering::Relaxed) {
            inner.counts.over_quota.fetch_add(1, Ordering::Relaxed);
            self.fail(id);
            return Ok(());
        }
        let file = create(&self.tmp, &temporary(id)).map_err(|e| StoreError::new("cannot make", self.path(id), e))?;
        let open = &inner.counts.open;
        let keep = self.max_open > 0 && open.load(Ordering::Relaxed) < self.max_open;
        if keep {
            open.fetch_add(1, Ordering::Relaxed);
        } else if self.max_open > 0 {
            inner.counts.open_max_hit.fetch_add(1, Ordering::Relaxed);
        }
        self.writing.insert(id, Writing { file: keep.then_some(file), size: 0 });
        Ok(())
    }

    fn append(&mut self, id: u32, data: &[u8], inner: &Inner) -> Result<(), StoreError> {
        let Some(w) = self.writing.get_mut(&id) else { return Ok(()) };
        let len = data.len() as u64;
        if self.quota > 0 && self.used.saturating_add(len) > self.quota {
            self.remove(id, inner);
            self.fail(id);
            inner.counts.over_quota.fetch_add(1, Ordering::Relaxed);
            self.reached(inner);
            return Ok(());
        }
        let done = match &mut w.file {
            Some(f) => f.write_all(data),
            None => {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&self.tmp, temporary(id), flags, Mode::empty())
                    .map_err(std::io::Error::from)
                    .and_then(|fd| File::from(fd).write_all(data))
            }
        };
        // Data written before an error counts until the file is removed.
        w.size += len;
        self.used += len;
        done.map_err(|e| StoreError::new("cannot write to", self.path(id), e))
    }

    /// The folder for digests that begin with this byte.
    fn folder(&mut self, first: u8) -> Result<&OwnedFd, StoreError> {
        let name = hex(&[first]);
        let path = self.dir.join(&name);
        match self.folders.entry(first) {
            std::collections::hash_map::Entry::Occupied(e) => Ok(e.into_mut()),
            std::collections::hash_map::Entry::Vacant(e) => folder_in(&self.root, &name)
                .map(|fd| &*e.insert(fd))
                .map_err(|e| StoreError::new("cannot make the directory", path, e)),
        }
    }

    fn place(&mut self, id: u32, sha256: &[u8; 32], inner: &Inner) -> Result<(), StoreError> {
        if !self.writing.contains_key(&id) {
            return Ok(());
        }
        let (from, name) = (temporary(id), hex(sha256));
        let path = self.dir.join(name.get(..2).unwrap_or_default()).join(&name);
        let failed = |what, e: Errno| StoreError::new(what, &path, e);
        let first = sha256[0];
        self.folder(first)?;
        let Some(folder) = self.folders.get(&first) else { return Ok(()) };
        let moved = match rustix::fs::renameat_with(&self.tmp, &from, folder, &name, RenameFlags::NOREPLACE) {
            // The file system does not support that: check first, then move. Nothing else moves files here.
            Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => rustix::fs::renameat(&self.tmp, &from, folder, &name),
            },
            other => other,
        };
        // The folder was removed after it was opened.
        if moved == Err(Errno::NOENT) && rustix::fs::statat(&self.tmp, &from, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            self.folders.remove(&first);
            self.folder(first)?;
            let Some(folder) = self.folders.get(&first) else { return Ok(()) };
            rustix::fs::renameat(&self.tmp, &from, folder, &name)
                .map_err(|e| failed("cannot move a finished file to", e))?;
            self.settle(id, inner);
            return Ok(());
        }
        match moved {
            Ok(()) => {
                self.settle(id, inner);
                Ok(())
            }
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW);
                let there = there.map_err(|e| failed("cannot look at", e))?;
                if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
                    return Err(failed("cannot store a file, because this is not a regular file:", Errno::EXIST));
                }
                let new = rustix::fs::statat(&self.tmp, &from, AtFlags::SYMLINK_NOFOLLOW);
                let new = new.map_err(|e| failed("cannot look at the new copy of", e))?;
                let time = Timespec { tv_sec: new.st_mtime, tv_nsec: new.st_mtime_nsec as _ };
                let times = Timestamps { last_access: time, last_modification: time };
                let touched = rustix::fs::utimensat(folder, &name, &times, AtFlags::SYMLINK_NOFOLLOW);
                // Remove the second copy.
                self.remove(id, inner);
                touched.map_err(|e| failed("cannot set the time of", e))
            }
            Err(e) => Err(failed("cannot move a finished file to", e)),
        }
    }

    /// Finishes a file that is in its final place.
    fn settle(&mut self, id: u32, inner: &Inner) {
        if self.writing.remove(&id).is_some_and(|w| w.file.is_some()) {
            inner.counts.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn record(&mut self, id: u32, sha256: &[u8; 32], seconds: i64, json: &[u8]) -> Result<(), StoreError> {
        if self.failed.contains(&id) {
            return Ok(());
        }
        let name = format!("{}.{seconds}.{id}.json", hex(sha256));
        let path = self.dir.join(name.get(..2).unwrap_or_default()).join(&name);
        let len = json.len() as u64 + 1;
        if self.quota > 0 && self.used.saturating_add(len) > self.quota {
            return Ok(());
        }
        let folder = self.folder(sha256[0])?;
        create(folder, &name)
            .map_err(std::io::Error::from)
            .and_then(|mut f| f.write_all(json).and_then(|()| f.write_all(b"\n")))
            .map_err(|e| StoreError::new("cannot write", path, e))?;
        self.used += len;
        Ok(())
    }

    /// Removes a file that is not stored.
    fn remove(&mut self, id: u32, inner: &Inner) {
        let Some(w) = self.writing.remove(&id) else { return };
        if w.file.is_some() {
            inner.counts.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.used = self.used.saturating_sub(w.size);
        // If the removal fails, the next run replaces the file when it uses the same number.
        let _ = rustix::fs::unlinkat(&self.tmp, temporary(id), AtFlags::empty());
    }

    fn note(&self, inner: &Inner) {
        inner.counts.used.store(self.used, Ordering::Relaxed);
    }

    /// Stops storing at the quota, until there is room.
    fn reached(&self, inner: &Inner) {
        if !inner.is_full.swap(true, Ordering::Relaxed) {
            (self.say[0])(&format!(
                "file-store: {}: the quota of {} bytes is reached: no more files are stored until some are removed \
                 (file_store.over_quota counts them)",
                self.dir.display(),
                self.quota
            ));
        }
    }

    /// Checks whether files were removed.
    pub(super) fn look_for_room(&mut self, inner: &Inner) {
        let writing: u64 = self.writing.values().map(|w| w.size).sum();
        self.used = self.measure() + writing;
        self.note(inner);
        if self.used <= self.quota - self.quota / 100 * FREE && inner.is_full.swap(false, Ordering::Relaxed) {
            (self.say[1])(&format!(
                "file-store: {}: storing resumes, because the quota has room again",
                self.dir.display()
            ));
        }
    }

    /// Total size of the stored files.
    fn measure(&self) -> u64 {
        let is_folder = |name: &str| name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
        let mut sum = 0;
        for name in names(&self.root).filter(|n| is_folder(n)) {
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            let Ok(folder) = rustix::fs::openat(&self.root, Path::new(&name), flags, Mode::empty()) else { continue };
            for file in names(&folder) {
                let Ok(stat) = rustix::fs::statat(&folder, &*file, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    sum += stat.st_size as u64;
                }
            }
        }
        sum
    }
}

/// The names in a folder.
fn names(folder: &OwnedFd) -> impl Iterator<Item = String> {
    let all = Dir::read_from(folder).into_iter().flatten().flatten();
    all.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n != "." && n != "..")
}
