//! Files that protocols carry: what is known of them, their hashes, magic, and where they are stored.
//!
//! A parser says where a file begins, hands over its bytes as they come, says where bytes are missing and where it is at
//! its end ([`Files`]). What is done with the bytes depends on who wants what ([`FileWants`]): digests are computed on the
//! way, the first bytes are kept for libmagic, a window of them waits for detection, and with the store on they are
//! written to disk or held until rules can have asked for that. What nobody wants is only counted.
//!
//! The order of things within a packet: the parser feeds, detection looks ([`File`]'s accessors) and may ask for a file to
//! be stored ([`Files::request_store`]), alerts are logged ([`log_files`], which say `storing`), [`Files::flush`] writes
//! what is due and puts closed files in their place, and then `fileinfo` events are logged for those of
//! [`Files::due_for_log`] ([`log()`], which say `stored`), followed by [`FileEngine::write_record`] and
//! [`Files::set_logged`]. Before a transaction is freed, [`Files::finish`] ends what is still open, and the same follows.
//!
//! # Limits
//!
//! | what | limit | where it is reached |
//! | --- | --- | --- |
//! | files of a transaction | [`FileConfig::max_files`] | those after it are not followed; [`FileCounters::over_max_files`] |
//! | data waiting for detection | [`FileConfig::window_limit`] | dropped unseen; [`FileCounters::over_window`] |
//! | data held for `filestore` rules | [`FileConfig::hold_limit`] | the file is not stored; [`FileCounters::over_hold`] |
//! | open temporary files | `max-open-files` | opened for each write; `file_store.open_files_max_hit` |
//! | ranges of files put together | [`FileConfig::range_memcap`] | the oldest go; [`FileCounters::over_range`] |
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

use crate::tx::Found;
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

/// Most rules that a file names as those that had it stored.
const MAX_SIDS: usize = 32;

/// State of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileState {
    /// More may come.
    #[default]
    Open,
    /// Complete.
    Closed,
    /// Its end, or a part, was not seen.
    Truncated,
    /// It could not be followed.
    Error,
}

/// Whether a file is stored.
#[derive(Debug, Clone, Default)]
enum StoreState {
    /// It is not, and will not be.
    #[default]
    No,
    /// Rules may ask for it yet; what came is held.
    Maybe(Held),
    /// It was asked for; what came is still to be written.
    Wanted(Held),
    /// It is being written.
    Storing(Arc<Temporary>),
    /// It was stored as this number.
    Done(u32),
}

/// What a `filestore` rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreScope {
    /// The file that matched: its index in [`Files::all`].
    File(usize),
    /// All files of the transaction, also those that come yet.
    Tx,
    /// All files of the flow. The caller also puts it into the session's [`FlowFiles`].
    Flow,
}

/// One file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Direction that it goes in.
    pub to_client: bool,
    /// Name as the protocol gives it; may be empty.
    pub name: Vec<u8>,
    /// State.
    pub state: FileState,
    /// Bytes of it, missing ones included.
    pub size: u64,
    /// Range within the whole file, where only a part is sent: first byte, last byte.
    pub range: Option<(u64, u64)>,
    /// Whether bytes of it are missing.
    pub gaps: bool,
    /// Its data, as far as detection has still to look at it.
    pub window: Window,
    /// Rules that asked for it to be stored.
    sids: Vec<u32>,
    /// First bytes, while somebody may want to know what kind of file it is.
    head: Vec<u8>,
    magic: OnceCell<Box<[u8]>>,
    hasher: Option<Box<Hasher>>,
    digests: Digests,
    store: StoreState,
    /// What it is a part of, where that is put together.
    whole: Option<Box<[u8]>>,
    /// Detection has seen the end of it.
    seen: bool,
    /// Detection finds its data elsewhere: there is no window of it.
    elsewhere: bool,
    /// It goes on behind the limit up to which bodies are looked at.
    at_limit: bool,
    logged: bool,
}

impl File {
    /// Name as the protocol gives it; may be empty.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What follows the last full stop of the name.
    pub fn extension(&self) -> Option<&[u8]> {
        let dot = self.name.iter().rposition(|&b| b == b'.')?;
        self.name.get(dot + 1..)
    }

    /// Whether the name ends in a full stop and `extension`, in any case (`fileext`); `tar.gz` is one, too.
    pub fn has_extension(&self, extension: &[u8]) -> bool {
        let Some(at) = self.name.len().checked_sub(extension.len() + 1) else { return false };
        self.name.get(at) == Some(&b'.') && self.name.get(at + 1..).is_some_and(|e| e.eq_ignore_ascii_case(extension))
    }

    /// What kind of file it is, as libmagic says: asked for once, when there are 512 bytes or it is at its end. `None` before
    /// that, and where neither rules nor logs wanted it when it began.
    pub fn magic(&self, engine: &FileEngine) -> Option<&[u8]> {
        if let Some(m) = self.magic.get() {
            return Some(m);
        }
        let enough = self.head.len() >= magic::ENOUGH || (self.state != FileState::Open && !self.head.is_empty());
        enough.then(|| &**self.magic.get_or_init(|| magic::describe(engine.magic_file.as_deref(), &self.head)))
    }

    /// Bytes so far, missing ones included; whether that is all there is to it: [`File::size_known`].
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the file is complete, so that [`File::size`] is its size. Where it is not, the file is at least that long.
    pub fn size_known(&self) -> bool {
        self.state == FileState::Closed
    }

    /// Whether nothing more will come.
    pub fn ended(&self) -> bool {
        self.state != FileState::Open
    }

    /// MD5, once the file is complete, and if it was wanted.
    pub fn md5(&self) -> Option<&[u8; 16]> {
        self.digests.md5.as_ref().filter(|_| self.size_known())
    }

    /// SHA-1, likewise.
    pub fn sha1(&self) -> Option<&[u8; 20]> {
        self.digests.sha1.as_ref().filter(|_| self.size_known())
    }

    /// SHA-256, likewise.
    pub fn sha256(&self) -> Option<&[u8; 32]> {
        self.digests.sha256.as_ref().filter(|_| self.size_known())
    }

    /// The digest of a kind, likewise.
    pub fn digest(&self, kind: HashKind) -> Option<&[u8]> {
        match kind {
            HashKind::Md5 => self.md5().map(<[u8; 16]>::as_slice),
            HashKind::Sha1 => self.sha1().map(<[u8; 20]>::as_slice),
            HashKind::Sha256 => self.sha256().map(<[u8; 32]>::as_slice),
        }
    }

    /// The digests of what was seen, once nothing more will come: what logs show. Of truncated files that is SHA-256 at most.
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// What of its data is due for inspection; `None` where nothing is, and when detection has seen its end.
    pub fn data(&self, limits: WindowLimits) -> Option<Found<'_>> {
        if self.seen {
            return None;
        }
        let (data, offset) = self.window.due(limits, self.ended())?;
        Some(Found { data, offset, end: self.ended() })
    }

    /// Rules that asked for it to be stored, in the order in which they did.
    pub fn sids(&self) -> &[u32] {
        &self.sids
    }

    /// Number of the stored file, once it is in its place.
    pub fn stored(&self) -> Option<u32> {
        match self.store {
            StoreState::Done(id) => Some(id),
            _ => None,
        }
    }

    /// Whether it is going to be stored.
    pub fn storing(&self) -> bool {
        matches!(self.store, StoreState::Wanted(_) | StoreState::Storing(_))
    }

    /// Whether its event was logged.
    pub fn logged(&self) -> bool {
        self.logged
    }

    /// Bytes of memory that it holds, with its own size.
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

    /// Has the file begin in the store with what was held.
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
                // Of a part, only the digest that it is stored under is shown, and of one that does not end with its flow none.
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

    /// Writes what is due; puts it in its place if it is closed.
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
            // Nothing was held of it: too late.
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
    open: [Option<usize>; 2],
    /// By direction: files are stored, as these rules asked.
    store: [Vec<u32>; 2],
    /// All files before this index were logged.
    logged: usize,
    /// Bytes that those hold.
    logged_bytes: u64,
}

impl Files {
    /// The flow goes on at another worker, and this is what that one has for files: what is held is counted there.
    pub fn belong_to(&mut self, engine: &FileEngine) {
        for file in &mut self.list {
            if let StoreState::Maybe(held) | StoreState::Wanted(held) = &mut file.store {
                held.count_with(&engine.held);
            }
        }
    }

    /// A file begins in a direction. One that is still open there is closed as truncated.
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
            *o = Some(self.list.len());
        }
        self.list.push(file);
    }

    /// A file, with what is wanted of it.
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
            let tx = self.store.get(dir.index()).map_or(&[][..], Vec::as_slice);
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

    /// The open file of a direction is a range of a larger one of `total` bytes, which `key` names (host and path): it is
    /// put together with its other ranges, and when the last one of them is closed, the whole file is added to that one's
    /// transaction. To be called between [`Files::open`] and the first byte. A range that is all there is to the file is
    /// from then on no range. `time` is that of the packet.
    pub fn range_of(
        &mut self,
        engine: &mut FileEngine,
        config: &FileConfig,
        dir: Direction,
        key: &[u8],
        total: u64,
        time: Time,
    ) {
        let Some(index) = self.open.get(dir.index()).copied().flatten() else { return };
        let Some(file) = self.list.get_mut(index) else { return };
        let Some((first, last)) = file.range.filter(|(f, l)| f <= l && *l < total && file.size == 0) else { return };
        if first == 0 && last == total - 1 {
            file.range = None;
            return;
        }
        if total > config.range_max_size {
            return;
        }
        file.whole = Some(key.into());
        let (name, this) = (file.name.clone(), &*self);
        let new = |engine: &FileEngine| this.new_file(engine, config, dir, &name, None);
        range::begin(engine, config, key, total, dir == Direction::ToClient, time, new);
    }

    /// Rules find the data of the open file of a direction in a buffer of its protocol.
    pub fn look_elsewhere(&mut self, dir: Direction) {
        if let Some(f) = self.current(dir) {
            f.elsewhere = true;
        }
    }

    /// Data of the open file of a direction.
    pub fn append(&mut self, engine: &mut FileEngine, config: &FileConfig, dir: Direction, data: &[u8]) {
        if let Some(f) = self.current(dir) {
            f.append(engine, config, data);
        }
    }

    /// Bytes of the open file of a direction are missing: it counts them, and will end as truncated.
    pub fn gap(&mut self, _engine: &mut FileEngine, _config: &FileConfig, dir: Direction, len: u64) {
        if let Some(f) = self.current(dir) {
            f.gaps = true;
            f.size = f.size.saturating_add(len);
            f.window.gap(len);
        }
    }

    /// The open file of a direction is at its end, or (`truncated`) will not be seen to its end.
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
        for &sid in self.store.get(dir.index()).into_iter().flatten() {
            whole.request_store(Some(sid));
        }
        self.list.push(whole);
    }

    /// The open file of a direction goes on, and no more of it is looked at: it will end as truncated.
    pub fn limit_reached(&mut self, dir: Direction) {
        if let Some(file) = self.current(dir) {
            file.at_limit = true;
        }
    }

    /// Nothing more will come of the transaction: what is open ends as truncated.
    pub fn finish(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.close(engine, config, dir, true);
        }
    }

    /// Writes what is due of files that are stored, and puts those that are closed in their place. To be called after
    /// detection and before `fileinfo` is logged.
    pub fn flush(&mut self, engine: &mut FileEngine, config: &FileConfig) {
        if config.store.is_none() {
            return;
        }
        for f in self.list.iter_mut().skip(self.logged) {
            f.flush(engine, config);
        }
    }

    /// A rule of number `sid` asks for files to be stored, in the directions of `dirs` (by [`Direction::index`]). Without
    /// a store this does nothing. Of a file that was not held from its beginning nothing is stored.
    pub fn request_store(&mut self, dirs: [bool; 2], scope: StoreScope, sid: u32) {
        match scope {
            StoreScope::File(index) => {
                if let Some(f) = self.list.get_mut(index).filter(|f| dirs[usize::from(f.to_client)]) {
                    f.request_store(Some(sid));
                }
            }
            StoreScope::Tx | StoreScope::Flow => {
                for (sids, _) in self.store.iter_mut().zip(dirs).filter(|(_, on)| *on) {
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

    /// Indexes of the files that ended and were not logged.
    pub fn due_for_log(&self) -> impl Iterator<Item = usize> + '_ {
        self.list.iter().enumerate().skip(self.logged).filter(|(_, f)| f.ended() && !f.logged).map(|(i, _)| i)
    }

    /// A file's event was logged, or nobody logs it: what only rules and logs could want of it is freed.
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

    /// The most bytes of a body that are followed, given the limit that holds where nothing is stored (0 for all): that of
    /// the store ([`FileConfig::store_depth`]) where the open file of the direction is stored.
    pub fn depth(&self, config: &FileConfig, dir: Direction, limit: u64) -> u64 {
        let open = self.open.get(dir.index()).copied().flatten().and_then(|i| self.list.get(i));
        if open.is_some_and(File::storing) { config.store_depth() } else { limit }
    }

    /// Whether a file that is open is going to be stored: the stream has to be followed to [`FileConfig::store_depth`].
    pub fn is_storing(&self) -> bool {
        self.open.iter().flatten().filter_map(|&i| self.list.get(i)).any(File::storing)
    }

    /// Whether a file is open in a direction.
    pub fn is_open(&self, dir: Direction) -> bool {
        self.open.get(dir.index()).is_some_and(Option::is_some)
    }

    /// Bytes of memory that they hold. Those that were logged were counted then.
    pub fn held(&self) -> u64 {
        let others: u64 = self.list.iter().skip(self.logged).map(File::held).sum();
        let unused = self.list.capacity().saturating_sub(self.list.len()) * size_of::<File>();
        let asked: usize = self.store.iter().map(|s| s.capacity() * size_of::<u32>()).sum();
        self.logged_bytes + others + (unused + asked) as u64
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Files of a direction, oldest first.
    pub fn of(&self, dir: Direction) -> impl Iterator<Item = &File> {
        let to_client = dir == Direction::ToClient;
        self.list.iter().filter(move |f| f.to_client == to_client)
    }

    /// All files, oldest first.
    pub fn all(&self) -> &[File] {
        &self.list
    }

    /// Detection has looked at what was due of the files of a direction.
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

    fn current(&mut self, dir: Direction) -> Option<&mut File> {
        let index = self.open.get(dir.index()).copied().flatten()?;
        self.list.get_mut(index)
    }
}
