//! The trials so far: a table for people, and the state to resume an interrupted search. The results of its trials
//! determine a search, so resuming means to search again and to look up trials instead of making them.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::problem::{Outcome, Problem};
use crate::quiet::Company;
use crate::run::live::Trial;
use crate::stages::{Losses, Stage};

/// A trial that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tried {
    /// The number of the search, from 1.
    pub(super) search: u32,
    /// Packets a second.
    pub(super) rate: f64,
    pub(super) losses: Losses,
    /// Other activity on the machine meanwhile.
    pub(super) company: Company,
}

/// The recorded trials, see the module.
pub(super) struct Memory {
    table: (File, PathBuf),
    state: (File, PathBuf),
    /// Trials of an earlier run that were not yet looked up.
    earlier: VecDeque<Tried>,
}

/// Files of a measurement in its folder, except for the folders of restarted engines.
const FILES: [&str; 7] =
    ["trials.csv", "state.jsonl", "samples.csv", "bound.json", "console.log", "command", "runs.csv"];

/// Removes the files of an earlier measurement from `dir`.
///
/// # Errors
/// If a file cannot be removed.
pub(super) fn clear(dir: &Path) -> Outcome<()> {
    let gone = |path: &Path, result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Problem::file("remove", path, error)),
        _ => Ok(()),
    };
    for name in FILES {
        let path = dir.join(name);
        gone(&path, std::fs::remove_file(&path))?;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if ["start-", "run-"].iter().any(|begin| name.to_string_lossy().starts_with(begin)) && path.is_dir() {
            gone(&path, std::fs::remove_dir_all(&path))?;
        }
    }
    Ok(())
}

impl Memory {
    /// Opens the state in folder `dir`. `what` identifies the measurement.
    ///
    /// # Errors
    /// If the state belongs to another measurement, or cannot be read or written.
    pub(super) fn open(dir: &Path, what: &str) -> Outcome<Memory> {
        let open = |name: &str| {
            let path = dir.join(name);
            let file = OpenOptions::new().append(true).create(true).open(&path);
            file.map(|file| (file, path.clone())).map_err(|error| Problem::file("open", &path, error))
        };
        let path = dir.join("state.jsonl");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Problem::file("read", &path, error)),
        };
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let known = lines.next();
        if known.as_ref().is_some_and(|first| first["measurement"] != what) {
            return Err(Problem::Usage(format!(
                "{} holds trials of another measurement: another folder (-o), or --fresh to throw them away",
                dir.display()
            )));
        }
        // The last line may be partial; that trial is made again.
        let earlier = lines.filter_map(|line| Tried::of(&line)).collect();
        let mut memory = Memory { table: open("trials.csv")?, state: open("state.jsonl")?, earlier };
        if known.is_none() {
            memory.remember(&json!({ "measurement": what }))?;
            let stages = Stage::ALL.map(|stage| format!("lost_{}", stage.name().to_lowercase())).join(",");
            let counts = crate::engine::Counts::NAMES.join(",");
            let company = Company::NAMES.join(",");
            memory.row(&format!("search,rate,offered,sent,bytes,seconds,late_p99,{counts},loss,{stages},{company}"))?;
        } else if !text.ends_with('\n') {
            let (file, path) = &mut memory.state;
            writeln!(file).map_err(|error| Problem::file("write", path, error))?;
        }
        Ok(memory)
    }

    /// Number of trials from an earlier run.
    pub(super) fn known(&self) -> usize {
        self.earlier.len()
    }

    /// The result of a trial in an earlier run; `None` if it was not made.
    pub(super) fn recall(&mut self, search: u32, rate: f64) -> Option<Tried> {
        let same = |tried: &&Tried| tried.search == search && (tried.rate / rate - 1.0).abs() < 1e-9;
        if self.earlier.front().filter(same).is_none() {
            // From here on, the search takes another course.
            self.earlier.clear();
        }
        self.earlier.pop_front()
    }

    /// Records a trial.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep(&mut self, search: u32, trial: &Trial) -> Outcome<Tried> {
        let sent = trial.counted.sent;
        let values = [trial.rate, sent.offered, sent.packets, sent.bytes, sent.seconds, sent.late];
        let values = values.into_iter().chain(trial.counted.engine.values());
        let values = values.chain([trial.losses.total()]).chain(trial.losses.share).chain(trial.company.values());
        let text = |value: f64| if value.is_finite() { format!("{value}") } else { String::new() };
        let line = std::iter::once(search.to_string()).chain(values.map(text)).collect::<Vec<_>>().join(",");
        self.row(&line)?;
        let tried = Tried { search, rate: trial.rate, losses: trial.losses, company: trial.company };
        self.remember(&json!({
            "search": search, "rate": trial.rate, "lost": trial.losses.share, "gaps": trial.losses.gaps,
            "company": trial.company.values(),
        }))?;
        Ok(tried)
    }

    fn row(&mut self, line: &str) -> Outcome<()> {
        let (file, path) = &mut self.table;
        writeln!(file, "{line}").map_err(|error| Problem::file("write", path, error))
    }

    fn remember(&mut self, value: &Value) -> Outcome<()> {
        let (file, path) = &mut self.state;
        let wrote = writeln!(file, "{value}").and_then(|()| file.sync_data());
        wrote.map_err(|error| Problem::file("write", path, error))
    }
}

impl Tried {
    fn of(line: &Value) -> Option<Tried> {
        let mut share = [0.0; Stage::ALL.len()];
        for (share, value) in share.iter_mut().zip(line["lost"].as_array()?) {
            *share = value.as_f64()?;
        }
        let beside = |at: usize| line["company"][at].as_f64().unwrap_or(f64::NAN);
        Some(Tried {
            company: Company { steal: beside(0), foreign: beside(1), waiting: beside(2) },
            search: u32::try_from(line["search"].as_u64()?).ok()?,
            rate: line["rate"].as_f64()?,
            losses: Losses { share, gaps: line["gaps"].as_f64().unwrap_or(f64::NAN) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sent;
    use crate::stages::Counted;

    fn trial(rate: f64, ring: f64) -> Trial {
        let sent = Sent { offered: rate, packets: rate, bytes: f64::NAN, seconds: 1.0, late: f64::NAN };
        let engine = crate::engine::Counts::UNKNOWN;
        let nothing = f64::NAN;
        let counted = Counted {
            sent,
            card: nothing,
            softnet: nothing,
            interface: nothing,
            engine,
            held_sent: nothing,
            held_received: nothing,
            held_dropped: nothing,
            forwarded: f64::NAN,
        };
        let losses = Losses { share: [0.0, 0.0, 0.0, 0.0, ring, 0.0, 0.0], gaps: 3.0 };
        let (each, latency, company) = (Vec::new(), None, Company::UNKNOWN);
        Trial { rate, counted, losses, each, busy: 1.0, host: 1.0, peak: 1.0, latency, company }
    }

    #[test]
    fn what_was_tried_is_not_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let rate = 10_000.0 * 2f64.sqrt();
        {
            let mut memory = Memory::open(folder.path(), "this").unwrap();
            assert_eq!(memory.recall(1, 10_000.0), None);
            memory.keep(1, &trial(10_000.0, 0.0)).unwrap();
            memory.keep(1, &trial(rate, 0.25)).unwrap();
        }
        // Simulate a kill in the middle of a line.
        let path = folder.path().join("state.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"search\":1,\"ra");
        std::fs::write(&path, text).unwrap();
        let mut memory = Memory::open(folder.path(), "this").unwrap();
        assert_eq!(memory.known(), 2);
        assert_eq!(memory.recall(1, 10_000.0).unwrap().losses.total(), 0.0);
        let second = memory.recall(1, rate).unwrap();
        assert_eq!((second.losses.at(Stage::Ring), second.losses.gaps), (0.25, 3.0));
        assert_eq!(memory.recall(1, rate), None);
        memory.keep(1, &trial(5000.0, 0.0)).unwrap();
        let table = std::fs::read_to_string(folder.path().join("trials.csv")).unwrap();
        assert_eq!(table.lines().count(), 4, "{table}");
        let mut memory = Memory::open(folder.path(), "this").unwrap();
        assert_eq!(memory.known(), 3);
        // A search that differs from the recorded one.
        assert_eq!(memory.recall(1, 20_000.0), None);
        assert_eq!(memory.known(), 0);
        let other = Memory::open(folder.path(), "that").err().unwrap().to_string();
        assert!(other.contains("another measurement"), "{other}");
        clear(folder.path()).unwrap();
        assert_eq!(Memory::open(folder.path(), "that").unwrap().known(), 0);
    }
}
