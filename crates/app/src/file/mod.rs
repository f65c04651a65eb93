//! Files in protocols: their state, hashes, types, and storage.
//!
//! A parser reports where a file begins, its data as it arrives, gaps, and its end ([`Files`]). The requested uses
//! ([`FileWants`]) decide what happens with the data: digests are updated, the first bytes are kept for libmagic, a window
//! waits for detection, and with the store on, data is written to disk, or held until rules have decided. Without any use it is
//! only counted.
//!
//! The steps for each packet: the parser adds data; detection inspects it ([`File`]'s accessors) and may ask to store a file
//! ([`Files::request_store`]); alerts are logged ([`log_files`], with `storing`); [`Files::flush`] hands pending data and
//! closed files to the store; then `fileinfo` events are logged for those of [`Files::due_for_log`] ([`log()`], with
//! `stored`), followed by [`FileEngine::write_record`] and [`Files::set_logged`]. Before a transaction is freed,
//! [`Files::finish`] ends its open files, and the same steps follow.
//!
//! # Limits
//!
//! | resource | limit | effect |
//! | --- | --- | --- |
//! | files of a transaction | [`FileConfig::max_files`] | further ones are not tracked; [`FileCounters::over_max_files`] |
//! | data waiting for detection | [`FileConfig::window_limit`] | dropped uninspected; [`FileCounters::over_window`] |
//! | data held for `filestore` rules | [`FileConfig::hold_limit`] | the file is not stored; [`FileCounters::over_hold`] |
//! | open temporary files | `max-open-files` | the file is opened for each write; `file_store.open_files_max_hit` |
//! | incomplete files from ranges | [`FileConfig::range_memcap`] | the oldest are dropped; [`FileCounters::over_range`] |
//! | rules that a file names | 32 | the first ones |

mod engine;
mod hash;
pub mod hashlist;
mod hold;
mod log;
mod magic;
mod range;
mod store;
#[cfg(test)]
mod tests;
pub(crate) mod track;

use std::cell::OnceCell;
use std::sync::Arc;

use margay_flow::Direction;
use margay_packet::Time;

use crate::buffer::Found;
use crate::window::{Window, WindowLimits};

pub use engine::{FileConfig, FileCounters, FileEngine, FileWants, FlowFiles};
pub use hash::Digests;
pub use hashlist::{HashKind, HashList, HashListError};
pub use log::{FileLogOptions, log, log_files};
pub use magic::MagicError;
pub use store::{StoreConfig, StoreError, StoreShared};

use hash::Hasher;
use hold::Held;
use store::Temporary;

/// The limit of storing rules that a file names.
const MAX_SIDS: usize = 32;

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileState {
    /// More data may come.
    #[default]
    Open,
    /// Complete.
    Closed,
    /// Its end, or a part of it, was not seen.
    Truncated,
    /// It could not be tracked.
    Error,
}

/// The storage state of a file.
#[derive(Debug, Clone, Default)]
enum StoreState {
    /// Not stored.
    #[default]
    No,
    /// Rules may still ask for it; the data so far is held.
    Maybe(Held),
    /// Requested; the data so far has to be written.
    Wanted(Held),
    /// Being written.
    Storing(Arc<Temporary>),
    /// Stored under this number.
    Done(u32),
}

/// The scope of a `filestore` rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreScope {
    /// The file that matched: its index in [`Files::all`].
    File(usize),
    /// All files of the transaction, including later ones.
    Tx,
    /// All files of the flow. The caller also puts it into the session's [`FlowFiles`].
    Flow,
}

/// One file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Whether it goes to the client.
    pub to_client: bool,
    /// Name from the protocol; may be empty.
    pub name: Vec<u8>,
    /// State.
    pub state: FileState,
    /// Size so far, including gaps.
    pub size: u64,
    /// The first and last byte of its range in the whole file, if it is a part.
    pub range: Option<(u64, u64)>,
    /// Whether it has gaps.
    pub gaps: bool,
    /// Data that detection has not inspected.
    pub window: Window,
    /// Rules that asked to store it.
    sids: Vec<u32>,
    /// The first bytes, while the file type may be needed.
    head: Vec<u8>,
    magic: OnceCell<Box<[u8]>>,
    hasher: Option<Box<Hasher>>,
    digests: Digests,
    store: StoreState,
    /// The key of the whole file, if it is reassembled from ranges.
    whole: Option<Box<[u8]>>,
    /// Detection has inspected its end.
    seen: bool,
    /// The stream ends before the file, so detection does not wait for more data.
    last: bool,
    /// Detection inspects its data in a protocol buffer, so it has no window.
    elsewhere: bool,
    /// It continues past the limit on inspected body data.
    at_limit: bool,
    logged: bool,
}

impl File {
    /// Name from the protocol; may be empty.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The part of the name after the last full stop.
    pub fn extension(&self) -> Option<&[u8]> {
        let dot = self.name.iter().rposition(|&b| b == b'.')?;
        self.name.get(dot + 1..)
    }

    /// Whether the name ends with a full stop and `extension`, in any case (`fileext`). `tar.gz` counts as an extension too.
    pub fn has_extension(&self, extension: &[u8]) -> bool {
        let Some(at) = self.name.len().checked_sub(extension.len() + 1) else { return false };
        self.name.get(at) == Some(&b'.') && self.name.get(at + 1..).is_some_and(|e| e.eq_ignore_ascii_case(extension))
    }

    /// The file type from libmagic, determined once, at 512 bytes or at the end. `None` before that, and if neither rules nor
    /// logs used it when the file began.
    pub fn magic(&self, engine: &FileEngine) -> Option<&[u8]> {
        if let Some(m) = self.magic.get() {
            return Some(m);
        }
        let enough = self.head.len() >= magic::ENOUGH || (self.state != FileState::Open && !self.head.is_empty());
        enough.then(|| &**self.magic.get_or_init(|| magic::describe(engine.magic_file.as_deref(), &self.head)))
    }

    /// Size so far, including gaps. [`File::size_known`] says whether it is final.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the file is complete, so that [`File::size`] is its size. Otherwise the file is at least that long.
    pub fn size_known(&self) -> bool {
        self.state == FileState::Closed
    }

    /// Whether the flow's end or a missing message ended it, not its own end or a limit.
    pub fn interrupted(&self) -> bool {
        self.state == FileState::Truncated && !self.gaps && !self.at_limit
    }

    /// Whether the file has ended.
    pub fn ended(&self) -> bool {
        self.state != FileState::Open
    }

    /// MD5 of a complete file, if requested.
    pub fn md5(&self) -> Option<&[u8; 16]> {
        self.digests.md5.as_ref().filter(|_| self.size_known())
    }

    /// SHA-1 of a complete file, if requested.
    pub fn sha1(&self) -> Option<&[u8; 20]> {
        self.digests.sha1.as_ref().filter(|_| self.size_known())
    }

    /// SHA-256 of a complete file, if requested.
    pub fn sha256(&self) -> Option<&[u8; 32]> {
        self.digests.sha256.as_ref().filter(|_| self.size_known())
    }

    /// A digest of a complete file, if requested.
    pub fn digest(&self, kind: HashKind) -> Option<&[u8]> {
        match kind {
            HashKind::Md5 => self.md5().map(<[u8; 16]>::as_slice),
            HashKind::Sha1 => self.sha1().map(<[u8; 20]>::as_slice),
            HashKind::Sha256 => self.sha256().map(<[u8; 32]>::as_slice),
        }
    }

    /// The digests of the available data, once the file has ended, for logs. A truncated file has at most SHA-256.
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// The data to inspect now; `None` if there is none, or detection has inspected the end.
    pub fn data(&self, limits: WindowLimits) -> Option<Found<'_>> {
        if self.seen {
            return None;
        }
        self.window.due(limits, self.ended() || self.last)
    }

    /// Rules that asked to store it, in order.
    pub fn sids(&self) -> &[u32] {
        &self.sids
    }

    /// Number of the stored file, once all of it was handed to the store. The store writes it and moves it to its final place
    /// later.
    pub fn stored(&self) -> Option<u32> {
        match self.store {
            StoreState::Done(id) => Some(id),
            _ => None,
        }
    }

    /// Whether it will be stored.
    pub fn storing(&self) -> bool {
        matches!(self.store, StoreState::Wanted(_) | StoreState::Storing(_))
    }

    /// Whether its event was logged.
    pub fn logged(&self) -> bool {
        self.logged
    }

    /// Memory in bytes, including its own size.
    fn held(&self) -> u64 {
        let stored = match &self.store {
            StoreState::Maybe(held) | StoreState::Wanted(held) => held.bytes().len(),
            StoreState::No | StoreState::Storing(_) | StoreState::Done(_) => 0,
        };
        let own = self.name.capacity()
            + self.window.memory()
            + self.sids.capacity() * size_of::<u32>()
            + self.head.capacity()
            + self.magic.get().map_or(0, |m| m.len())
            + self.hasher.as_ref().map_or(0, |_| size_of::<Hasher>())
            + self.whole.as_ref().map_or(0, |w| w.len())
            + stored;
        (size_of::<File>() + own) as u64
    }

    fn append(&mut self, engine: &mut FileEngine, config: &FileConfig, data: &[u8]) {
        if let (Some(key), Some((start, _))) = (&self.whole, self.range) {
            range::append(engine, config, key, start.saturating_add(self.size), data);
        }
        self.size = self.size.saturating_add(data.len() as u64);
        if engine.wants.magic || config.force.magic {
            let room = magic::HEAD.saturating_sub(self.head.len());
            if room > 0 && self.magic.get().is_none() {
                self.head.extend_from_slice(data.get(..room).unwrap_or(data));
            }
        }
        if let Some(h) = &mut self.hasher {
            h.update(data);
        }
        if engine.wants.data && !self.elsewhere {
            if self.window.held().0.len().saturating_add(data.len()) > config.window_limit {
                engine.counters.over_window += 1;
                self.window.discard();
                self.window.gap(data.len() as u64);
            } else {
                self.window.append(data);
            }
        }
        match &mut self.store {
            StoreState::No | StoreState::Done(_) => {}
            StoreState::Maybe(held) => {
                if !held.append(data, config.hold_limit) {
                    engine.counters.over_hold += 1;
                    self.store = StoreState::No;
                }
            }
            StoreState::Wanted(_) => {
                self.begin_store(engine, config);
                self.write(engine, config, data);
            }
            StoreState::Storing(_) => self.write(engine, config, data),
        }
    }

    /// Starts storing the file with the held data.
    fn begin_store(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        let StoreState::Wanted(held) = std::mem::take(&mut self.store) else { return };
        let Some(store) = &config.store else { return };
        if let Some(t) = engine.batch.begin(store) {
            self.store = StoreState::Storing(Arc::new(t));
            self.write(engine, config, held.bytes());
        }
    }

    fn write(&mut self, engine: &mut FileEngine, config: &FileConfig, data: &[u8]) {
        if let (StoreState::Storing(t), Some(store)) = (&self.store, &config.store)
            && !data.is_empty()
            && !engine.batch.append(store, t, data)
        {
            self.store = StoreState::No;
        }
    }

    fn close(&mut self, engine: &FileEngine, config: &FileConfig, truncated: bool) {
        self.state = if truncated || self.gaps || self.at_limit { FileState::Truncated } else { FileState::Closed };
        if let Some(h) = self.hasher.take() {
            self.digests = h.finish();
            if self.state != FileState::Closed {
                // An incomplete file has at most a SHA-256: if it is stored, or was cut at the inspection limit.
                (self.digests.md5, self.digests.sha1) = (None, None);
                if !self.at_limit && matches!(self.store, StoreState::No) {
                    self.digests.sha256 = None;
                }
            }
        }
        if config.force.magic {
            self.magic(engine);
            self.head = Vec::new();
        }
    }

    /// Hands pending data to the store; a closed file then counts as stored.
    fn flush(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        if matches!(self.store, StoreState::Wanted(_)) {
            self.begin_store(engine, config);
        }
        if self.state == FileState::Open {
            return;
        }
        let (StoreState::Storing(temporary), Some(sha256)) = (&self.store, &self.digests.sha256) else { return };
        engine.batch.place(temporary, sha256);
        self.store = StoreState::Done(temporary.id);
    }

    fn request_store(&mut self, sid: Option<u32>) {
        match std::mem::take(&mut self.store) {
            StoreState::Maybe(held) => self.store = StoreState::Wanted(held),
            // No data was held, so it is too late.
            StoreState::No => return,
            other => self.store = other,
        }
        if let Some(sid) = sid
            && self.sids.len() < MAX_SIDS
            && !self.sids.contains(&sid)
        {
            self.sids.push(sid);
        }
    }
}

/// The files of a transaction.
#[derive(Debug, Clone, Default)]
pub struct Files {
    list: Vec<File>,
    /// Index of the open file, by direction.
    open: [Option<u32>; 2],
    /// By direction: rules that asked to store all files. Few transactions have any.
    store: Option<Box<[Vec<u32>; 2]>>,
    /// All files before this index are logged.
    logged: usize,
    /// Memory of the logged files.
    logged_bytes: u64,
}

impl Files {
    /// Moves the count of held data to another worker, because the flow moves there.
    pub fn belong_to(&mut self, engine: &FileEngine) {
        for file in &mut self.list {
            if let StoreState::Maybe(held) | StoreState::Wanted(held) = &mut file.store {
                held.count_with(&engine.held);
            }
        }
    }

    /// Begins a file in a direction. An open file of that direction is closed as truncated.
    pub fn open(
        &mut self,
        engine: &mut FileEngine,
        config: &FileConfig,
        dir: Direction,
        name: &[u8],
        range: Option<(u64, u64)>,
    ) {
        self.close(engine, config, dir, true);
        if self.list.len() >= config.max_files as usize {
            engine.counters.over_max_files += 1;
            return;
        }
        let file = self.new_file(engine, config, dir, name, range);
        if let Some(o) = self.open.get_mut(dir.index()) {
            *o = Some(self.list.len() as u32);
        }
        self.list.push(file);
    }

    /// Creates a file with its requested uses.
    fn new_file(
        &self,
        engine: &FileEngine,
        config: &FileConfig,
        dir: Direction,
        name: &[u8],
        range: Option<(u64, u64)>,
    ) -> File {
        let wants = engine.wants.or(config.force);
        let mut file = File {
            to_client: dir == Direction::ToClient,
            name: name.to_vec(),
            range,
            hasher: Hasher::new(wants.md5, wants.sha1, wants.sha256 || config.store.is_some()),
            ..File::default()
        };
        if let Some(store) = &config.store {
            let tx = self.store_sids(dir);
            let flow = engine.flow.store.get(dir.index()).copied().flatten();
            if engine.wants.store || store.force || !tx.is_empty() || flow.is_some() {
                file.store = StoreState::Maybe(Held::new(&engine.held));
            }
            if store.force {
                file.request_store(None);
            }
            for sid in tx.iter().copied().chain(flow) {
                file.request_store(Some(sid));
            }
        }
        file
    }

    /// The open file of a direction is a range of a larger file of `total` bytes, identified by `key` (host and path). It is
    /// reassembled with the other ranges, and the whole file is added to the transaction whose range completes it. Call this
    /// between [`Files::open`] and the first data. A range that covers the whole file is treated as a normal file. `time` is
    /// that of the packet.
    pub fn range_of(
        &mut self,
        engine: &mut FileEngine,
        config: &FileConfig,
        dir: Direction,
        key: &[u8],
        total: u64,
        time: Time,
    ) {
        let Some(file) = self.current(dir) else { return };
        let Some((first, last)) = file.range.filter(|(f, l)| f <= l && *l < total && file.size == 0) else { return };
        if first == 0 && last == total - 1 {
            file.range = None;
            return;
        }
        if total > config.range_max_size {
            return;
        }
        file.whole = Some(key.into());
        // HTTP/2 names a part by its `Content-Disposition` only, and the whole file by its path, as Suricata does.
        let path = || key.iter().rposition(|b| *b == b'/').and_then(|at| key.get(at..)).unwrap_or_default();
        let name = if file.name.is_empty() { path().to_vec() } else { file.name.clone() };
        let this = &*self;
        let new = |engine: &FileEngine| this.new_file(engine, config, dir, &name, None);
        range::begin(engine, config, key, total, dir == Direction::ToClient, time, new);
    }

    /// Rules inspect the open file's data in a protocol buffer.
    pub fn look_elsewhere(&mut self, dir: Direction) {
        if let Some(f) = self.current(dir) {
            f.elsewhere = true;
        }
    }

    /// Adds data to the open file of a direction.
    pub fn append(&mut self, engine: &mut FileEngine, config: &FileConfig, dir: Direction, data: &[u8]) {
        if let Some(f) = self.current(dir) {
            f.append(engine, config, data);
        }
    }

    /// Adds a gap to the open file of a direction: it counts in the size, and the file will end as truncated.
    pub fn gap(&mut self, _engine: &mut FileEngine, _config: &FileConfig, dir: Direction, len: u64) {
        if let Some(f) = self.current(dir) {
            f.gaps = true;
            f.size = f.size.saturating_add(len);
            f.window.gap(len);
        }
    }

    /// Ends the open file of a direction; `truncated` if its end was not seen.
    pub fn close(&mut self, engine: &mut FileEngine, config: &FileConfig, dir: Direction, truncated: bool) {
        let Some(file) = self.current(dir) else { return };
        file.close(engine, config, truncated);
        let whole = file.whole.take();
        if let Some(o) = self.open.get_mut(dir.index()) {
            *o = None;
        }
        let Some(mut whole) = whole.and_then(|key| range::complete(engine, config, &key)) else { return };
        if self.list.len() >= config.max_files as usize {
            engine.counters.over_max_files += 1;
            return;
        }
        for &sid in self.store_sids(dir) {
            whole.request_store(Some(sid));
        }
        self.list.push(whole);
    }

    /// Stops inspection of the open file of a direction at the limit: it will end as truncated.
    pub fn limit_reached(&mut self, dir: Direction) {
        if let Some(file) = self.current(dir) {
            file.at_limit = true;
        }
    }

    /// Ends the open files of the transaction as truncated.
    pub fn finish(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.close(engine, config, dir, true);
        }
    }

    /// Hands pending data of stored files to the store; closed ones then count as stored ([`File::stored`]). Call it after
    /// detection and before `fileinfo` is logged.
    pub fn flush(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        if config.store.is_none() {
            return;
        }
        for f in self.list.iter_mut().skip(self.logged) {
            f.flush(engine, config);
        }
    }

    /// Rule `sid` asks to store files in the directions of `dirs` (by [`Direction::index`]). Does nothing without a store, or
    /// for a file whose beginning was not held.
    pub fn request_store(&mut self, dirs: [bool; 2], scope: StoreScope, sid: u32) {
        match scope {
            StoreScope::File(index) => {
                if let Some(f) = self.list.get_mut(index).filter(|f| dirs[usize::from(f.to_client)]) {
                    f.request_store(Some(sid));
                }
            }
            StoreScope::Tx | StoreScope::Flow => {
                let store = self.store.get_or_insert_default();
                for (sids, _) in store.iter_mut().zip(dirs).filter(|(_, on)| *on) {
                    if sids.len() < MAX_SIDS && !sids.contains(&sid) {
                        sids.push(sid);
                    }
                }
                for f in self.list.iter_mut().filter(|f| dirs[usize::from(f.to_client)]) {
                    f.request_store(Some(sid));
                }
            }
        }
    }

    /// Indexes of files that have ended and are not logged.
    pub fn due_for_log(&self) -> impl Iterator<Item = usize> + '_ {
        self.list.iter().enumerate().skip(self.logged).filter(|(_, f)| f.ended() && !f.logged).map(|(i, _)| i)
    }

    /// Marks a file as logged, or not to be logged, and frees data that only rules and logs use.
    pub fn set_logged(&mut self, index: usize) {
        if let Some(f) = self.list.get_mut(index) {
            f.logged = true;
            f.head = Vec::new();
            if matches!(f.store, StoreState::Maybe(_)) {
                f.store = StoreState::No;
            }
        }
        while let Some(f) = self.list.get(self.logged).filter(|f| f.logged) {
            self.logged_bytes += f.held();
            self.logged += 1;
        }
    }

    /// The limit of body data to follow. `limit` applies if nothing is stored (0 for all); the store's limit
    /// ([`FileConfig::store_depth`]) applies if the open file of the direction is stored.
    pub fn depth(&self, config: &FileConfig, dir: Direction, limit: u64) -> u64 {
        if self.opened(dir).is_some_and(File::storing) { config.store_depth() } else { limit }
    }

    /// Whether an open file will be stored, so that the stream has to be followed to [`FileConfig::store_depth`].
    pub fn is_storing(&self) -> bool {
        self.open.iter().flatten().filter_map(|&i| self.list.get(i as usize)).any(File::storing)
    }

    /// Whether a file is open in a direction.
    pub fn is_open(&self, dir: Direction) -> bool {
        self.open.get(dir.index()).is_some_and(Option::is_some)
    }

    /// Memory in bytes. The memory of logged files was counted when they were logged.
    pub fn held(&self) -> u64 {
        if self.list.capacity() == 0 && self.store.is_none() {
            return 0;
        }
        let others: u64 = self.list.iter().skip(self.logged).map(File::held).sum();
        let unused = self.list.capacity().saturating_sub(self.list.len()) * size_of::<File>();
        let asked = self.store.as_ref().map_or(0, |store| {
            size_of_val(&**store) + store.iter().map(|s| s.capacity() * size_of::<u32>()).sum::<usize>()
        });
        self.logged_bytes + others + (unused + asked) as u64
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The files of a direction, oldest first.
    pub fn of(&self, dir: Direction) -> impl Iterator<Item = &File> {
        let to_client = dir == Direction::ToClient;
        self.list.iter().filter(move |f| f.to_client == to_client)
    }

    /// All files, oldest first.
    pub fn all(&self) -> &[File] {
        &self.list
    }

    /// Detection has inspected the due data of a direction's files.
    pub fn inspected(&mut self, dir: Direction, limits: WindowLimits) {
        let to_client = dir == Direction::ToClient;
        for f in self.list.iter_mut().filter(|f| f.to_client == to_client && !f.seen) {
            if f.ended() {
                f.seen = true;
                f.window.discard();
            } else {
                f.window.looked_at(limits, false);
            }
        }
    }

    /// Whether the open file of a direction has data that detection has not inspected.
    pub fn waits(&self, dir: Direction) -> bool {
        self.opened(dir).is_some_and(|f| !f.seen && f.window.has_new())
    }

    /// The stream of a direction ends: detection inspects what there is of its open file.
    pub fn last_look(&mut self, dir: Direction) {
        if let Some(file) = self.current(dir) {
            file.last = true;
        }
    }

    fn current(&mut self, dir: Direction) -> Option<&mut File> {
        let index = self.open.get(dir.index()).copied().flatten()?;
        self.list.get_mut(index as usize)
    }

    /// The open file of a direction.
    fn opened(&self, dir: Direction) -> Option<&File> {
        let index = self.open.get(dir.index()).copied().flatten()?;
        self.list.get(index as usize)
    }

    /// The rules that asked to store all files of a direction.
    fn store_sids(&self, dir: Direction) -> &[u32] {
        self.store.as_ref().and_then(|store| store.get(dir.index())).map_or(&[], Vec::as_slice)
    }
}
