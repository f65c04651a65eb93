//! Records the changes to this machine on disk before they happen, so that a later run can restore the old values, even
//! after a crash.
//!
//! The journal is a file of JSON objects, one on each line. Each line is synced to disk (`fsync`) before the announced
//! change happens. A partial last line therefore announced nothing and is cut off. The journal has a section for each
//! `apply`:
//!
//! ```text
//! begin     process, time, and boot of the machine
//! before    all settings that may change, with their values, including those that drivers may forget
//! will      a setting is about to be written
//! did       it was written, and this is its value now
//! applied   all settings were written; their current values. From here the watchdog waits for
//! confirmed the operator's confirmation
//! failed    a step was refused; the changes are restored
//! undoing   values are being restored to these
//! undone    they were restored, and what could not be
//! ```

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{Knob, Value};
use crate::problem::{Outcome, Problem};

/// Settings by name.
pub(crate) type State = BTreeMap<String, Value>;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(crate) enum Record {
    Begin(Begin),
    Before {
        state: State,
    },
    Will {
        step: String,
        setting: String,
        old: Value,
        want: Value,
    },
    Did {
        setting: String,
        got: Value,
    },
    Applied {
        at: f64,
        after: State,
        wanted: State,
        keep: Vec<Keep>,
    },
    Confirmed {
        by: String,
    },
    Failed {
        step: String,
        why: String,
    },
    /// Sections are counted from 0.
    Undoing {
        sections: Vec<usize>,
        target: State,
        why: String,
    },
    Undone {
        sections: Vec<usize>,
        left: Vec<Left>,
    },
}

/// The start of a section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) version: u32,
    /// Identifies the kernel's boot; settings are lost with the next one.
    pub(crate) boot: String,
    /// The inode of the network namespace.
    pub(crate) namespace: u64,
    /// The writing process, and its start time in the kernel's ticks.
    pub(crate) process: u32,
    pub(crate) started: u64,
    /// Seconds since 1970, and since boot.
    pub(crate) time: u64,
    pub(crate) at: f64,
    /// Seconds until everything is restored unless the operator confirms; `None` if no confirmation is needed.
    pub(crate) limit: Option<u64>,
    /// The command line.
    pub(crate) command: String,
    /// The section contains files that outlive a restart.
    pub(crate) kept: bool,
}

/// A file to write when the section is confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keep {
    pub(crate) step: String,
    pub(crate) setting: String,
    pub(crate) want: String,
}

/// A setting that was not restored, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) setting: String,
    pub(crate) is: Value,
    pub(crate) before: Value,
    pub(crate) why: String,
}

/// A change in a section.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) step: String,
    pub(crate) setting: String,
    pub(crate) old: Value,
    pub(crate) want: Value,
    /// The value afterwards; `None` if it was not recorded.
    pub(crate) got: Option<Value>,
}

/// The changes of one `apply`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    pub(crate) begin: Begin,
    pub(crate) before: State,
    pub(crate) changes: Vec<Change>,
    pub(crate) failed: Option<(String, String)>,
    /// When all settings were written, and their values then.
    pub(crate) applied: Option<f64>,
    pub(crate) after: State,
    pub(crate) wanted: State,
    pub(crate) keep: Vec<Keep>,
    pub(crate) confirmed: Option<String>,
    /// Values that are being restored.
    pub(crate) undoing: Option<State>,
    pub(crate) undone: Option<Vec<Left>>,
}

impl Section {
    /// Whether any of its changes is in effect in this boot.
    pub(crate) fn is_active(&self, boot: &str) -> bool {
        self.undone.is_none() && (self.begin.kept || self.begin.boot == boot)
    }

    /// The records of a finished section.
    fn records(&self) -> Vec<Record> {
        let mut out = vec![Record::Begin(self.begin.clone()), Record::Before { state: self.before.clone() }];
        for change in &self.changes {
            let Change { step, setting, old, want, got } = change.clone();
            out.push(Record::Will { step, setting: setting.clone(), old, want });
            out.extend(got.map(|got| Record::Did { setting, got }));
        }
        if let Some(at) = self.applied {
            let (after, wanted, keep) = (self.after.clone(), self.wanted.clone(), self.keep.clone());
            out.push(Record::Applied { at, after, wanted, keep });
        }
        out.extend(self.confirmed.clone().map(|by| Record::Confirmed { by }));
        out
    }

    /// Whether it ended before all settings were written.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.undone.is_none() && (self.applied.is_none() || self.undoing.is_some())
    }

    /// Whether it waits for a confirmation.
    pub(crate) fn waits(&self) -> bool {
        let asked = self.begin.limit.is_some() && self.confirmed.is_none();
        asked && self.undone.is_none() && self.applied.is_some() && self.undoing.is_none()
    }
}

/// Storage of a journal.
pub(crate) trait Store {
    fn read(&mut self) -> std::io::Result<Vec<u8>>;
    /// Appends bytes, and syncs them to disk before it returns.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Truncates to `length` bytes.
    fn cut(&mut self, length: u64) -> std::io::Result<()>;
}

impl Store for File {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.seek(SeekFrom::Start(0))?;
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let length = self.seek(SeekFrom::End(0))?;
        let written = self.write_all(bytes).and_then(|()| self.sync_all());
        if written.is_err() {
            // A partial line would corrupt the next one.
            self.set_len(length)?;
        }
        written
    }

    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        self.set_len(length)?;
        self.sync_all()
    }
}

/// An open journal.
pub(crate) struct Journal<S: Store> {
    store: S,
    pub(crate) sections: Vec<Section>,
}

impl<S: Store> Journal<S> {
    /// Reads the journal, and cuts off a partial last line.
    ///
    /// # Errors
    /// If it cannot be read, or another line is invalid.
    pub(crate) fn open(mut store: S) -> Result<Journal<S>, String> {
        let bytes = store.read().map_err(|e| e.to_string())?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            store.cut(whole as u64).map_err(|e| e.to_string())?;
        }
        let mut journal = Journal { store, sections: Vec::new() };
        for (at, line) in bytes[..whole].split(|b| *b == b'\n').filter(|line| !line.is_empty()).enumerate() {
            let record = serde_json::from_slice(line).map_err(|e| format!("line {}: {e}", at + 1))?;
            journal.take(record).map_err(|why| format!("line {}: {why}", at + 1))?;
        }
        Ok(journal)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// If the disk fails. The announced change must then not happen.
    pub(crate) fn add(&mut self, record: Record) -> Outcome<()> {
        let failed =
            |why: String| Problem::Failed(format!("cannot write the journal: {why}; nothing more was changed"));
        let mut line = serde_json::to_vec(&record).map_err(|e| failed(e.to_string()))?;
        line.push(b'\n');
        margay_packet::fault::point("tune.journal");
        self.store.append(&line).map_err(|e| failed(e.to_string()))?;
        margay_packet::fault::point("tune.written");
        self.take(record).map_err(failed)
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        if let Record::Begin(begin) = record {
            if begin.version != 1 {
                return Err(format!("version {} is not known here", begin.version));
            }
            self.sections.push(Section { begin, ..Section::default() });
            return Ok(());
        }
        let count = self.sections.len();
        let last = self.sections.last_mut().ok_or("nothing was begun")?;
        match record {
            Record::Begin(_) => {}
            Record::Before { state } => last.before = state,
            Record::Will { step, setting, old, want } => {
                last.changes.push(Change { step, setting, old, want, got: None });
            }
            Record::Did { setting, got } => {
                let change = last.changes.iter_mut().rev().find(|change| change.setting == setting);
                change.ok_or("nothing was announced")?.got = Some(got);
            }
            Record::Applied { at, after, wanted, keep } => {
                (last.applied, last.after, last.wanted, last.keep) = (Some(at), after, wanted, keep);
            }
            Record::Confirmed { by } => last.confirmed = Some(by),
            Record::Failed { step, why } => last.failed = Some((step, why)),
            Record::Undoing { sections, target, .. } => {
                for section in sections.iter().filter(|at| **at < count) {
                    self.sections[*section].undoing = Some(target.clone());
                }
            }
            Record::Undone { sections, left } => {
                for section in sections.iter().filter(|at| **at < count) {
                    self.sections[*section].undone = Some(left.clone());
                }
            }
        }
        Ok(())
    }

    /// Numbers of the sections that are in effect in this boot.
    pub(crate) fn active(&self, boot: &str) -> Vec<usize> {
        (0..self.sections.len()).filter(|at| self.sections[*at].is_active(boot)).collect()
    }

    /// Wanted and actual values of settings that drivers rounded.
    pub(crate) fn rounded(&self, boot: &str) -> BTreeMap<String, super::facts::Rounded> {
        let changes = self.active(boot).into_iter().flat_map(|at| &self.sections[at].changes);
        let rounded = changes.filter_map(|change| {
            let (want, got) = (change.want.clone()?, change.got.clone()??);
            Some((change.setting.clone(), super::facts::Rounded { wanted: want, got }))
        });
        rounded.filter(|(_, rounded)| rounded.wanted != rounded.got).collect()
    }
}

/// Parses a setting's name in the journal.
///
/// # Errors
/// If this release does not know it.
pub(crate) fn knob(name: &str) -> Outcome<Knob> {
    name.parse().map_err(|why| Problem::Failed(format!("the journal: {why}")))
}

/// The journal's folder, which one process uses at a time.
pub(crate) struct Desk {
    pub(crate) folder: PathBuf,
    /// A lock, held during changes.
    _lock: Option<File>,
}

/// `/var/lib/margay/tune`, or the folder in `MARGAY_TUNE_STATE`.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("MARGAY_TUNE_STATE").map_or_else(|| PathBuf::from("/var/lib/margay/tune"), PathBuf::from)
}

impl Desk {
    /// Opens the folder for changes. Creates it if necessary, and waits for its present user.
    ///
    /// # Errors
    /// If the folder cannot be created, or another process is using it.
    pub(crate) fn take(folder: &Path, patient: bool) -> Outcome<Desk> {
        let hint = if rustix::process::geteuid().is_root() { "" } else { " (it needs root)" };
        std::fs::create_dir_all(folder).map_err(|e| Problem::file("make", folder, format!("{e}{hint}")))?;
        let path = folder.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| Problem::file("open", &path, format!("{e}{hint}")))?;
        let tries = if patient { 100 } else { 1 };
        for _ in 0..tries {
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Desk { folder: folder.to_owned(), _lock: Some(file) }),
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(std::time::Duration::from_millis(100)),
                Err(e) => return Err(Problem::file("lock", &path, e)),
            }
        }
        Err(Problem::Failed(
            "another `margay tune` is changing this machine right now; `margay tune status` tells".to_owned(),
        ))
    }

    /// Opens the folder for reading, without creating or locking anything.
    pub(crate) fn look(folder: &Path) -> Desk {
        Desk { folder: folder.to_owned(), _lock: None }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// Opens the journal for writing.
    ///
    /// # Errors
    /// If it cannot be opened or is invalid.
    pub(crate) fn journal(&self) -> Outcome<Journal<File>> {
        let path = self.path();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|e| Problem::file("open", &path, e))?;
        // The folder must be synced too, so that the new file survives a crash.
        let made = File::open(&self.folder).and_then(|folder| folder.sync_all());
        made.map_err(|e| Problem::file("write", &self.folder, e))?;
        Journal::open(file).map_err(|why| Problem::file("read", &path, why))
    }

    /// Reads the journal; empty if there is none.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub(crate) fn sections(&self) -> Outcome<Journal<Memory>> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Problem::file("read", &path, e)),
        };
        Journal::open(Memory(bytes)).map_err(|why| Problem::file("read", &path, why))
    }

    /// Rewrites the journal without sections that are no longer in effect: restored ones, and those that a restart
    /// undid.
    ///
    /// # Errors
    /// If it cannot be written. It is then unchanged.
    pub(crate) fn compact(&self, boot: &str) -> Outcome<()> {
        let journal = self.sections()?;
        let active = journal.active(boot);
        if active.len() == journal.sections.len() || active.iter().any(|at| journal.sections[*at].is_unfinished()) {
            return Ok(());
        }
        let (path, beside) = (self.path(), self.folder.join("journal.new"));
        let failed = |e: std::io::Error| Problem::file("write", &beside, e);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&beside).map_err(failed)?;
        let mut anew = Journal::open(file).map_err(|why| Problem::file("read", &beside, why))?;
        for record in active.into_iter().flat_map(|at| journal.sections[at].records()) {
            anew.add(record)?;
        }
        std::fs::rename(&beside, &path).map_err(|e| Problem::file("rename", &beside, e))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|e| Problem::file("write", &self.folder, e))
    }

    /// Renames a journal that has nothing in effect any more.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn lay_aside(&self) -> Outcome<()> {
        let (path, to) = (self.path(), self.folder.join("journal.old"));
        std::fs::rename(&path, &to).map_err(|e| Problem::file("rename", &path, e))
    }
}

/// A journal in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Store for Memory {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.extend(bytes);
        Ok(())
    }

    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        self.0.truncate(length as usize);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(boot: &str, kept: bool) -> Record {
        Record::Begin(Begin { version: 1, boot: boot.into(), kept, limit: Some(60), ..Begin::default() })
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::take(dir.path(), false).unwrap();
        assert!(Desk::take(dir.path(), false).is_err(), "one at a time");
        let mut journal = desk.journal().unwrap();
        let state = State::from([("ring eth1".to_owned(), Some("rx 512 tx 512".to_owned()))]);
        journal.add(begin("a", false)).unwrap();
        journal.add(Record::Before { state: state.clone() }).unwrap();
        let will = |want: &str| Record::Will {
            step: "eth1.ring".into(),
            setting: "ring eth1".into(),
            old: Some("rx 512 tx 512".into()),
            want: Some(want.into()),
        };
        journal.add(will("rx 1000 tx 512")).unwrap();
        assert!(journal.sections[0].is_unfinished());
        journal.add(Record::Did { setting: "ring eth1".into(), got: Some("rx 1024 tx 512".into()) }).unwrap();
        let applied = Record::Applied { at: 1.0, after: state.clone(), wanted: State::new(), keep: Vec::new() };
        journal.add(applied).unwrap();
        let again = desk.journal().unwrap();
        assert_eq!(again.sections, journal.sections);
        assert!(again.sections[0].waits() && again.active("a") == [0] && again.active("b").is_empty());
        assert_eq!(again.rounded("a")["ring eth1"].got, "rx 1024 tx 512");
        journal.add(Record::Confirmed { by: "confirm".into() }).unwrap();
        journal.add(begin("a", true)).unwrap();
        assert_eq!(journal.active("b"), [1], "files outlive a restart");
        desk.compact("a").unwrap();
        assert_eq!(desk.sections().unwrap().sections, journal.sections, "all of it is in effect");
        let kept = Record::Applied { at: 2.0, after: state.clone(), wanted: State::new(), keep: Vec::new() };
        journal.add(kept).unwrap();
        desk.compact("b").unwrap();
        assert_eq!(desk.sections().unwrap().sections, journal.sections[1..]);
        let mut journal = desk.journal().unwrap();
        journal.add(begin("b", false)).unwrap();
        journal.add(Record::Undone { sections: vec![0, 1], left: Vec::new() }).unwrap();
        assert!(desk.sections().unwrap().active("a").is_empty());
        desk.lay_aside().unwrap();
        assert!(desk.sections().unwrap().sections.is_empty());
    }

    #[test]
    fn a_line_that_is_not_whole_announces_nothing() {
        let line = serde_json::to_string(&begin("a", false)).unwrap();
        for cut in 0..line.len() {
            let mut journal = Journal::open(Memory(format!("{line}\n{}", &line[..cut]).into_bytes())).unwrap();
            assert_eq!(journal.sections.len(), 1);
            journal.add(begin("b", false)).unwrap();
            assert_eq!(Journal::open(journal.store).unwrap().sections.len(), 2);
        }
        let torn_inside = format!("{line}\n{{\"rec\n{line}\n");
        assert!(Journal::open(Memory(torn_inside.into_bytes())).err().unwrap().contains("line 2"));
        let future = line.replace("\"version\":1", "\"version\":2");
        assert!(Journal::open(Memory(format!("{future}\n").into_bytes())).err().unwrap().contains("version 2"));
    }
}
