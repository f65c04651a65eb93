//! Sets of data that rules look whole buffers up in (`dataset`), with a reputation (`datarep`) or with what a JSON file
//! says of each (`context_key`).
//!
//! [`DatasetsBuilder`] gathers the sets that the configuration and the rules name and reads their files; what it makes,
//! [`Datasets`], is shared by all workers, and so are the sets: what one worker puts in, all find.
//!
//! A set has two parts. What was loaded is a table of bytes (`table`) that never changes its shape: looking there takes no
//! lock, and nothing is written but the mark of an entry that a rule takes out. What rules put in is in a few maps by hash,
//! each behind a lock. An atomic count says how many there are: a set that no rule adds to costs one read of it, and a set
//! that rules do add to costs a shared lock of one map of a few, and only for what was not loaded. Writers are rare,
//! since what is there already is found by the readers' way.
//!
//! `set` and `unset` take place when their buffer is looked at, in the order of the rule, whatever comes of the checks
//! after them (as the peer does); they hold where they changed something.
//!
//! Files are written at the end ([`Datasets::save`]), in an order that does not hang on hashes: text from high to low,
//! all else from low to high. What is put in counts towards the set's `memcap`; what has no room there is not put in, and
//! is counted.

mod builder;
mod file;
mod json;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use margay_rules::ast::{DataRepOp, SetCommand, SetKind};

pub use builder::{DatasetsBuilder, DatasetsConfig, SetLevel, SetMessage, read_text};
use table::{NO_VALUE, Table};

use crate::shareable::{About, InOrder};

/// Maps that what rules put in is spread over: a power of two.
const SHARDS: usize = 16;
/// Bytes that an entry is taken to need besides its data.
const ENTRY: u64 = 64;

/// What rules put in, of one part of all hashes.
type Shard = RwLock<HashSet<Box<[u8]>>>;

/// What became of an entry to be put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// It was there.
    There,
    /// It is no data of the set's type.
    Unfit,
    /// There is no room under the set's memcap.
    Full,
}

/// A set.
#[derive(Debug)]
pub struct DataSet {
    name: String,
    kind: SetKind,
    /// The file that it was loaded from, as resolved; empty where there is none.
    load: PathBuf,
    /// The file to write; empty where there is none.
    save: PathBuf,
    /// Of a set in JSON: under which name alerts show what the file says; empty where they do not.
    context_key: Option<Arc<str>>,
    loaded: Table,
    /// How many entries are in `added`.
    count: AtomicUsize,
    added: Box<[Shard]>,
    /// Bytes taken, and how many there may be.
    used: AtomicU64,
    memcap: u64,
    /// Whether the configuration names it.
    configured: bool,
    /// Whether its file is in JSON.
    json: bool,
    /// Whether a rule puts something in or takes it out.
    changes: AtomicBool,
}

/// The bytes that stand for data in a set, where the data is of its type.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn kind(&self) -> SetKind {
        self.kind
    }

    /// Whether alerts show what its file says of what was found.
    pub(crate) fn has_context(&self) -> bool {
        self.context_key.is_some()
    }

    /// Whether rules may change it for good: what is in it outlives a reload of the rules.
    fn is_dynamic(&self) -> bool {
        self.configured || self.save != Path::new("") || self.load == Path::new("")
    }

    /// How many entries it has.
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

    /// The entry of `data`: its value ([`NO_VALUE`] where it has none).
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

    /// Whether `data` is in it.
    pub fn contains(&self, data: &[u8]) -> bool {
        self.find(data).is_some()
    }

    /// Puts `data` in.
    pub fn add(&self, data: &[u8]) -> Added {
        let mut room = [0; 16];
        let Some(key) = key(self.kind, data, &mut room) else { return Added::Unfit };
        if let Some(e) = self.loaded.find(key) {
            return if self.loaded.revive(e) { Added::New } else { Added::There };
        }
        let Some(shard) = self.shard(key) else { return Added::Unfit };
        // Mostly it is there already: then nobody has to wait.
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

    /// Takes `data` out; whether it was in it.
    pub fn remove(&self, data: &[u8]) -> bool {
        let mut room = [0; 16];
        let Some(key) = key(self.kind, data, &mut room) else { return false };
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

    /// Takes all out.
    pub fn clear(&self) {
        self.loaded.bury_all();
        for shard in &self.added {
            let gone = {
                let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
                self.count.fetch_sub(shard.len(), Ordering::Relaxed);
                std::mem::take(&mut *shard)
            };
            // Freed when nobody waits for it any more.
            let bytes: u64 = gone.iter().map(|k| k.len() as u64 + ENTRY).sum();
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Data from text, as a line of the set's files has it.
    pub fn parse(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        file::decode(self.kind, text, &mut data).ok().map(|()| data)
    }

    /// Name and JSON object that alerts show of an entry.
    fn context(&self, value: u32) -> Option<(&str, &[u8])> {
        Some((self.context_key.as_deref()?, self.loaded.context(value)?))
    }

    /// Writes all that is in it, a line for each.
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

    /// Writes its file, in whole or not at all.
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

/// All sets of a run, in the order in which they were named.
#[derive(Debug, Default)]
pub struct Datasets {
    sets: Vec<Arc<DataSet>>,
}

impl Datasets {
    /// The set of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<DataSet>> {
        self.sets.iter().find(|s| s.name == name)
    }

    /// Those of several users, once each; of a name that more than one has the first counts.
    pub fn all_of<'a>(users: impl IntoIterator<Item = &'a Datasets>) -> Datasets {
        let mut all = Datasets::default();
        for set in users.into_iter().flat_map(|d| &d.sets) {
            if all.get(&set.name).is_none() {
                all.sets.push(set.clone());
            }
        }
        all
    }

    /// Whether a set that may be changed is here and among `others` as two, of one name and with the same files.
    pub fn doubles(&self, others: &Datasets) -> bool {
        let twin = |s: &Arc<DataSet>, o: &Arc<DataSet>| {
            !Arc::ptr_eq(s, o) && s.is_dynamic() && (s.kind, &s.load, &s.save) == (o.kind, &o.load, &o.save)
        };
        self.sets.iter().any(|s| others.get(&s.name).is_some_and(|o| twin(s, o)))
    }

    /// Every set.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DataSet>> {
        self.sets.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Writes the files of the sets that have one; what went wrong.
    pub fn save(&self) -> Vec<String> {
        self.save_but(&Datasets::default())
    }

    /// The same for those that are not among `others`, which go on with them.
    pub fn save_but(&self, others: &Datasets) -> Vec<String> {
        let failed = |s: &Arc<DataSet>| match s.save() {
            Ok(()) => None,
            Err(e) => Some(format!("dataset {}: cannot write {}: {e}", s.name, s.save.display())),
        };
        let go = |s: &&Arc<DataSet>| s.save != Path::new("") && !others.sets.iter().any(|o| Arc::ptr_eq(o, s));
        self.sets.iter().filter(go).filter_map(failed).collect()
    }
}

/// What a rule asks of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTest {
    Command(SetCommand),
    Reputation(DataRepOp, u16),
}

/// A check of a buffer against a set.
#[derive(Debug)]
pub(crate) struct SetCheck {
    pub(crate) name: String,
    pub(crate) test: SetTest,
    /// `None` until the rule is put in its place.
    pub(crate) set: Option<Arc<DataSet>>,
}

/// An entry of which an alert shows what its file says.
#[derive(Debug, Clone)]
pub(crate) struct SetHit {
    set: Arc<DataSet>,
    value: u32,
}

impl SetHit {
    /// Name and JSON object.
    pub(crate) fn context(&self) -> Option<(&str, &[u8])> {
        self.set.context(self.value)
    }
}

/// What came of a check.
#[derive(Debug)]
pub(crate) enum SetOutcome {
    Holds(Option<SetHit>),
    Fails,
    /// It does not hold, because there was no room.
    Full,
}

impl SetCheck {
    /// Whether alerts show what its set says of what was found.
    pub(crate) fn has_context(&self) -> bool {
        self.set.as_ref().is_some_and(|s| s.has_context())
    }

    /// As [`SetCheck::run`], of a worker whose packets have an order with those of others.
    pub(crate) fn run_in(&self, data: &[u8], order: Option<&dyn InOrder>) -> SetOutcome {
        if let (Some(order), Some(set)) = (order, &self.set)
            && set.changes.load(Ordering::Relaxed)
        {
            order.wait(About::All);
        }
        self.run(data)
    }

    /// Says to its set, which it was given, whether it changes it.
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
                    let hit = set.context_key.is_some().then(|| SetHit { set: set.clone(), value });
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

/// IPv6 addresses in full, as sets are saved; those that stand for IPv4 ones as these.
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
