//! Datasets: sets in which rules look up whole buffers (`dataset`), with a reputation (`datarep`) or with context from a
//! JSON file (`context_key`).
//!
//! [`DatasetsBuilder`] collects the datasets that the configuration and the rules name, and reads their files. All
//! workers share the resulting [`Datasets`]: every worker finds the entries that another one adds.
//!
//! A dataset has two parts. Loaded entries are in a byte table (`table`) whose shape never changes. Lookups there take
//! no lock, and the only writes mark entries that a rule removes. Entries that rules add are in a few hash maps, each
//! behind a lock. An atomic counter has their number. So a dataset without added entries costs one read of that counter.
//! Otherwise a lookup takes the shared lock of one map, and only for data that was not loaded. Writers are rare, since
//! adding existing data only reads.
//!
//! `set` and `unset` take effect when their buffer is inspected, in rule order, whatever the result of later checks (as
//! in Suricata). They hold if they changed something.
//!
//! Files are written at the end ([`Datasets::save`]), in an order that does not depend on hashes: text in descending
//! order, everything else ascending. Added entries count towards the `memcap` of their dataset. An entry that does not
//! fit is not added, and a counter counts it.

mod builder;
mod file;
mod json;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use margay_packet::{KeyedMap, KeyedSet};
use margay_rules::ast::{DataRepOp, SetCommand, SetKind};

pub use builder::{DatasetsBuilder, DatasetsConfig, SetLevel, SetMessage, read_text};
use table::{NO_VALUE, Table};

use crate::shareable::{About, InOrder};

/// Number of maps for added entries: a power of two.
const SHARDS: usize = 16;
/// Estimated overhead of an entry in bytes.
const ENTRY: u64 = 64;

/// Added entries of one range of hashes.
type Shard = RwLock<KeyedSet<Box<[u8]>>>;
/// Contexts of entries, by entry.
type Contexts = KeyedMap<Box<[u8]>, Arc<[u8]>>;

/// The result of adding an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The entry is new.
    New,
    /// The entry existed.
    There,
    /// The data does not have the dataset's type.
    Unfit,
    /// The dataset's memcap is reached.
    Full,
}

/// A dataset.
#[derive(Debug)]
pub struct DataSet {
    name: String,
    kind: SetKind,
    /// The resolved path of the loaded file; empty if there is none.
    load: PathBuf,
    /// The file to write; empty if there is none.
    save: PathBuf,
    /// For a JSON dataset: the name under which alerts show an entry's context, if they do.
    context_key: Option<Arc<str>>,
    loaded: Table,
    /// Number of entries in `added`.
    count: AtomicUsize,
    added: Box<[Shard]>,
    /// Memory used, in bytes, and its limit.
    used: AtomicU64,
    memcap: u64,
    /// Whether the configuration declares it.
    configured: bool,
    /// Whether its file is JSON.
    json: bool,
    /// Whether a rule adds or removes entries.
    changes: AtomicBool,
    /// Context of entries that the socket added with theirs, and their number.
    contexts: RwLock<Contexts>,
    with_context: AtomicUsize,
}

/// The bytes that represent data in a dataset; `None` if the data does not have the dataset's type.
fn key<'a>(kind: SetKind, data: &'a [u8], room: &'a mut [u8; 16]) -> Option<&'a [u8]> {
    match (kind, data.len()) {
        (SetKind::String, 1..)
        | (SetKind::Md5, 16)
        | (SetKind::Sha256, 32)
        | (SetKind::Ipv4, 4)
        | (SetKind::Ip, 16) => Some(data),
        (SetKind::Ip, 4) => {
            room[10..12].fill(0xff);
            room[12..].copy_from_slice(data);
            Some(room)
        }
        _ => None,
    }
}

impl DataSet {
    /// The dataset's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dataset's type.
    pub fn kind(&self) -> SetKind {
        self.kind
    }

    /// Whether alerts show the context of a found entry.
    pub(crate) fn has_context(&self) -> bool {
        self.context_key.is_some()
    }

    /// Whether changes by rules are permanent: the entries survive a rule reload.
    fn is_dynamic(&self) -> bool {
        self.configured || self.save != Path::new("") || self.load == Path::new("")
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.loaded.len() + self.count.load(Ordering::Relaxed)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &[u8]) -> Option<&Shard> {
        self.added.get(self.loaded.hash(key) as usize % SHARDS)
    }

    /// Finds the entry of `data` and returns its value ([`NO_VALUE`] if it has none).
    fn find(&self, data: &[u8]) -> Option<u32> {
        let mut room = [0; 16];
        let key = key(self.kind, data, &mut room)?;
        if let Some(e) = self.loaded.find(key) {
            return self.loaded.is_live(e).then(|| self.loaded.value(e));
        }
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let shard = self.shard(key)?.read().unwrap_or_else(PoisonError::into_inner);
        shard.contains(key).then_some(NO_VALUE)
    }

    /// Whether the dataset contains `data`.
    pub fn contains(&self, data: &[u8]) -> bool {
        self.find(data).is_some()
    }

    /// Adds `data`.
    pub fn add(&self, data: &[u8]) -> Added {
        let mut room = [0; 16];
        let Some(key) = key(self.kind, data, &mut room) else { return Added::Unfit };
        if let Some(e) = self.loaded.find(key) {
            return if self.loaded.revive(e) { Added::New } else { Added::There };
        }
        let Some(shard) = self.shard(key) else { return Added::Unfit };
        // Usually the entry exists, and a shared lock is enough.
        if self.count.load(Ordering::Relaxed) > 0 && shard.read().unwrap_or_else(PoisonError::into_inner).contains(key)
        {
            return Added::There;
        }
        let cost = key.len() as u64 + ENTRY;
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        if shard.contains(key) {
            return Added::There;
        }
        if self.used.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) > self.memcap {
            self.used.fetch_sub(cost, Ordering::Relaxed);
            return Added::Full;
        }
        shard.insert(key.into());
        self.count.fetch_add(1, Ordering::Relaxed);
        Added::New
    }

    /// Adds `data` with a JSON object, which alerts show, to a JSON dataset.
    pub fn add_json(&self, data: &[u8], context: Vec<u8>) -> Added {
        let mut room = [0; 16];
        let Some(key) = key(self.kind, data, &mut room).filter(|_| self.json) else { return Added::Unfit };
        let cost = (key.len() + context.len()) as u64 + ENTRY;
        // The lock is held until both are there, so that no alert misses the context.
        let mut contexts = self.contexts.write().unwrap_or_else(PoisonError::into_inner);
        if self.contains(data) {
            return Added::There;
        }
        if self.used.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) > self.memcap {
            self.used.fetch_sub(cost, Ordering::Relaxed);
            return Added::Full;
        }
        let added = self.add(data);
        if added == Added::New {
            contexts.insert(key.into(), context.into());
            self.with_context.store(contexts.len(), Ordering::Release);
        } else {
            self.used.fetch_sub(cost, Ordering::Relaxed);
        }
        added
    }

    /// The context that the socket gave to the entry of `data`.
    fn added_context(&self, data: &[u8]) -> Option<Arc<[u8]>> {
        if self.with_context.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut room = [0; 16];
        let key = key(self.kind, data, &mut room)?;
        self.contexts.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Forgets the contexts of `key`, or of all entries.
    fn forget_context(&self, key: Option<&[u8]>) {
        if self.with_context.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut contexts = self.contexts.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = match key {
            Some(key) => contexts.remove_entry(key).into_iter().collect(),
            None => contexts.drain().collect(),
        };
        self.with_context.store(contexts.len(), Ordering::Release);
        let bytes: u64 = gone.iter().map(|(k, c)| (k.len() + c.len()) as u64 + ENTRY).sum();
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes `data`; returns whether it was an entry.
    pub fn remove(&self, data: &[u8]) -> bool {
        let mut room = [0; 16];
        let Some(key) = key(self.kind, data, &mut room) else { return false };
        self.forget_context(Some(key));
        if let Some(e) = self.loaded.find(key) {
            return self.loaded.bury(e);
        }
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let Some(shard) = self.shard(key) else { return false };
        let was = shard.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        if was {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.used.fetch_sub(key.len() as u64 + ENTRY, Ordering::Relaxed);
        }
        was
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.forget_context(None);
        self.loaded.bury_all();
        for shard in &self.added {
            let gone = {
                let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
                self.count.fetch_sub(shard.len(), Ordering::Relaxed);
                std::mem::take(&mut *shard)
            };
            // Counted and freed after the lock is released, so that no thread waits for it.
            let bytes: u64 = gone.iter().map(|k| k.len() as u64 + ENTRY).sum();
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Parses data as in a line of the dataset's file.
    pub fn parse(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        file::decode(self.kind, text, &mut data).ok().map(|()| data)
    }

    /// Name and JSON object that alerts show for an entry.
    fn context(&self, value: u32) -> Option<(&str, &[u8])> {
        Some((self.context_key.as_deref()?, self.loaded.context(value)?))
    }

    /// Writes all entries, one per line.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut all: Vec<Box<[u8]>> = self.loaded.live().map(Box::from).collect();
        for shard in &self.added {
            all.extend(shard.read().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        }
        all.sort_unstable();
        if self.kind == SetKind::String {
            all.reverse();
        }
        let mut line = Vec::new();
        for data in &all {
            line.clear();
            file::encode(self.kind, data, &mut line);
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Writes the dataset's file atomically.
    fn save(&self) -> io::Result<()> {
        let mut name = self.save.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut out = io::BufWriter::new(std::fs::File::create(&new)?);
        self.write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&new, &self.save)
    }
}

/// All datasets of a run, in the order in which they were declared.
#[derive(Debug, Default)]
pub struct Datasets {
    sets: Vec<Arc<DataSet>>,
}

impl Datasets {
    /// The dataset with that name.
    pub fn get(&self, name: &str) -> Option<&Arc<DataSet>> {
        self.sets.iter().find(|s| s.name == name)
    }

    /// The union of the datasets of several users; of equal names, the first counts.
    pub fn all_of<'a>(users: impl IntoIterator<Item = &'a Datasets>) -> Datasets {
        let mut all = Datasets::default();
        for set in users.into_iter().flat_map(|d| &d.sets) {
            if all.get(&set.name).is_none() {
                all.sets.push(set.clone());
            }
        }
        all
    }

    /// Whether a changeable dataset exists both here and in `others` as separate objects, with the same name and files.
    pub fn doubles(&self, others: &Datasets) -> bool {
        let twin = |s: &Arc<DataSet>, o: &Arc<DataSet>| {
            !Arc::ptr_eq(s, o) && s.is_dynamic() && (s.kind, &s.load, &s.save) == (o.kind, &o.load, &o.save)
        };
        self.sets.iter().any(|s| others.get(&s.name).is_some_and(|o| twin(s, o)))
    }

    /// All datasets.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DataSet>> {
        self.sets.iter()
    }

    /// The number of datasets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there are no datasets.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Writes the files of all datasets that have one; returns the errors.
    pub fn save(&self) -> Vec<String> {
        self.save_but(&Datasets::default())
    }

    /// Writes only the files of datasets that are not in `others`, which stay in use there.
    pub fn save_but(&self, others: &Datasets) -> Vec<String> {
        let failed = |s: &Arc<DataSet>| match s.save() {
            Ok(()) => None,
            Err(e) => Some(format!("dataset {}: cannot write {}: {e}", s.name, s.save.display())),
        };
        let go = |s: &&Arc<DataSet>| s.save != Path::new("") && !others.sets.iter().any(|o| Arc::ptr_eq(o, s));
        self.sets.iter().filter(go).filter_map(failed).collect()
    }
}

/// What a rule tests in a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTest {
    Command(SetCommand),
    Reputation(DataRepOp, u16),
}

/// A check of a buffer against a dataset.
#[derive(Debug)]
pub(crate) struct SetCheck {
    pub(crate) name: String,
    pub(crate) test: SetTest,
    /// `None` until the rule is resolved.
    pub(crate) set: Option<Arc<DataSet>>,
}

/// A found entry whose context an alert shows.
#[derive(Debug, Clone)]
pub(crate) struct SetHit {
    set: Arc<DataSet>,
    value: u32,
    /// The context that the socket added with the entry.
    added: Option<Arc<[u8]>>,
}

impl SetHit {
    /// Name and JSON object.
    pub(crate) fn context(&self) -> Option<(&str, &[u8])> {
        match &self.added {
            Some(added) => Some((self.set.context_key.as_deref()?, added)),
            None => self.set.context(self.value),
        }
    }
}

/// The result of a check.
#[derive(Debug)]
pub(crate) enum SetOutcome {
    Holds(Option<SetHit>),
    Fails,
    /// The check fails because the dataset is full.
    Full,
}

impl SetCheck {
    /// Whether alerts show the context of a found entry.
    pub(crate) fn has_context(&self) -> bool {
        self.set.as_ref().is_some_and(|s| s.has_context())
    }

    /// As [`SetCheck::run`], for a worker that keeps packet order with others: if rules change the dataset, it first
    /// waits for earlier packets.
    pub(crate) fn run_in(&self, data: &[u8], order: Option<&dyn InOrder>) -> SetOutcome {
        if let (Some(order), Some(set)) = (order, &self.set)
            && set.changes.load(Ordering::Relaxed)
        {
            order.wait(About::All);
        }
        self.run(data)
    }

    /// Marks the resolved dataset as changed by rules, if this check changes it.
    pub(crate) fn tell(&self) {
        if let (SetTest::Command(SetCommand::Set | SetCommand::Unset), Some(set)) = (self.test, &self.set) {
            set.changes.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn run(&self, data: &[u8]) -> SetOutcome {
        let Some(set) = &self.set else { return SetOutcome::Fails };
        let holds = match self.test {
            SetTest::Command(SetCommand::Set) => match set.add(data) {
                Added::Full => return SetOutcome::Full,
                added => added == Added::New,
            },
            SetTest::Command(SetCommand::Unset) => set.remove(data),
            SetTest::Command(SetCommand::IsNotSet) => !set.contains(data),
            SetTest::Command(SetCommand::IsSet) => match set.find(data) {
                Some(value) => {
                    let added = || set.added_context(data);
                    let hit = set.context_key.is_some().then(|| SetHit { set: set.clone(), value, added: added() });
                    return SetOutcome::Holds(hit);
                }
                None => false,
            },
            SetTest::Reputation(op, with) => match set.find(data) {
                None | Some(NO_VALUE) => false,
                Some(v) => match op {
                    DataRepOp::Less => v < u32::from(with),
                    DataRepOp::Greater => v > u32::from(with),
                    DataRepOp::Equal => v == u32::from(with),
                },
            },
        };
        if holds { SetOutcome::Holds(None) } else { SetOutcome::Fails }
    }
}

/// Writes IPv6 addresses in full, as saved files have them; IPv4-mapped addresses as IPv4.
fn address(data: &[u8; 16], out: &mut Vec<u8>) {
    let a = Ipv6Addr::from(*data);
    match a.to_ipv4_mapped() {
        Some(v4) => v4_text(v4, out),
        None => {
            let text: Vec<String> = a.segments().iter().map(|s| format!("{s:04x}")).collect();
            out.extend_from_slice(text.join(":").as_bytes());
        }
    }
}

fn v4_text(a: Ipv4Addr, out: &mut Vec<u8>) {
    out.extend_from_slice(a.to_string().as_bytes());
}
