//! The order of runs, and the file that records finished ones.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::problem::{Outcome, Problem};

/// One run: the repeat (from 1), and the indexes of point and engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) repeat: u32,
    pub(super) point: usize,
    pub(super) engine: usize,
}

/// The order of runs. Within a repeat, all engines run a point one after the other, so that paired runs are close in
/// time. The first engine changes from repeat to repeat, so that the position favours none.
pub(super) fn order(repeats: u32, points: usize, engines: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    for repeat in 1..=repeats {
        for point in 0..points {
            let mut turn: Vec<usize> = (0..engines).collect();
            turn.rotate_left((repeat as usize - 1) / 2 % engines.max(1));
            if repeat % 2 == 0 {
                turn.reverse();
            }
            keys.extend(turn.into_iter().map(|engine| Key { repeat, point, engine }));
        }
    }
    keys
}

/// The results of a run: numbers by name.
pub(super) type Metrics = BTreeMap<String, f64>;

/// The state file. It records each finished run before the next one begins.
pub(super) struct State {
    path: PathBuf,
    file: File,
    /// Finished runs, in execution order.
    pub(super) done: Vec<(Key, Metrics)>,
    /// Numbers that hold for all runs, such as base rates.
    pub(super) facts: BTreeMap<String, f64>,
    /// Failed runs, with the reason.
    pub(super) failed: Vec<(Key, String)>,
}

impl State {
    /// Opens the state in folder `dir`, to resume the experiment with this fingerprint.
    ///
    /// # Errors
    /// If the state belongs to another experiment, or cannot be read or written.
    pub(super) fn open(dir: &Path, fingerprint: &str) -> Outcome<State> {
        let path = dir.join("state.jsonl");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Problem::file("read the state", &path, error)),
        };
        let (mut done, mut facts, mut failed) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let known = lines.next();
        if let Some(first) = &known
            && first["experiment"] != fingerprint
        {
            return Err(Problem::Usage(format!(
                "{} holds runs of another experiment, or of this one before it was changed: another folder (-o), or --fresh to \
                 throw them away",
                dir.display()
            )));
        }
        for line in lines {
            // The last line may be partial; its run is then repeated.
            if let Some(name) = line["fact"].as_str() {
                facts.insert(name.to_owned(), line["value"].as_f64().unwrap_or(f64::NAN));
                continue;
            }
            let number = |name: &str| line[name].as_u64().unwrap_or(0);
            let key = Key {
                repeat: number("repeat") as u32,
                point: number("point") as usize,
                engine: number("engine") as usize,
            };
            failed.retain(|(other, _)| *other != key);
            if let Some(metrics) = line["metrics"].as_object() {
                let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
                done.push((key, metrics.iter().map(|(name, value)| (name.clone(), number(value))).collect()));
            } else if let Some(why) = line["failed"].as_str() {
                failed.push((key, why.to_owned()));
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.map_err(|error| Problem::file("open the state", &path, error))?;
        let mut state = State { path, file, done, facts, failed };
        if known.is_none() {
            state.line(&json!({ "experiment": fingerprint }))?;
        } else if !text.ends_with('\n') {
            writeln!(state.file).map_err(|error| Problem::file("write the state", &state.path, error))?;
        }
        Ok(state)
    }

    fn line(&mut self, value: &Value) -> Outcome<()> {
        let wrote = writeln!(self.file, "{value}").and_then(|()| self.file.sync_data());
        wrote.map_err(|error| Problem::file("write the state", &self.path, error))
    }

    /// Whether a run is finished.
    pub(super) fn has(&self, key: Key) -> bool {
        self.done.iter().any(|(done, _)| *done == key)
    }

    /// Records a finished run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep(&mut self, key: Key, metrics: Metrics) -> Outcome<()> {
        self.line(&json!({ "repeat": key.repeat, "point": key.point, "engine": key.engine, "metrics": metrics }))?;
        self.failed.retain(|(other, _)| *other != key);
        self.done.push((key, metrics));
        Ok(())
    }

    /// Records a failed run. It is repeated when the experiment is resumed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn fail(&mut self, key: Key, why: &str) -> Outcome<()> {
        self.line(&json!({ "repeat": key.repeat, "point": key.point, "engine": key.engine, "failed": why }))?;
        self.failed.retain(|(other, _)| *other != key);
        self.failed.push((key, why.to_owned()));
        Ok(())
    }

    /// Records a number that holds for all runs.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn fact(&mut self, name: &str, value: f64) -> Outcome<()> {
        self.line(&json!({ "fact": name, "value": value }))?;
        self.facts.insert(name.to_owned(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_take_turns_and_nobody_is_first_more_often() {
        let keys = order(4, 1, 2);
        let engines: Vec<usize> = keys.iter().map(|key| key.engine).collect();
        assert_eq!(engines, [0, 1, 1, 0, 1, 0, 0, 1]);
        let all = order(3, 2, 3);
        assert_eq!(all.len(), 18);
        for repeat in 1..=3 {
            for point in 0..2 {
                let mut engines: Vec<usize> =
                    all.iter().filter(|key| key.repeat == repeat && key.point == point).map(|key| key.engine).collect();
                engines.sort_unstable();
                assert_eq!(engines, [0, 1, 2]);
            }
        }
    }

    #[test]
    fn a_state_is_taken_up_where_it_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let key = |engine| Key { repeat: 1, point: 0, engine };
        let metrics = Metrics::from([("seconds".to_owned(), 1.5), ("gaps".to_owned(), f64::NAN)]);
        {
            let mut state = State::open(folder.path(), "a").unwrap();
            state.fact("base", 7.5).unwrap();
            state.keep(key(0), metrics).unwrap();
            state.fail(key(1), "it fell over").unwrap();
        }
        // Simulate a kill in the middle of a line.
        let path = folder.path().join("state.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"repeat\":1,\"point\":0,\"eng");
        std::fs::write(&path, text).unwrap();
        let mut state = State::open(folder.path(), "a").unwrap();
        assert!(state.has(key(0)) && !state.has(key(1)));
        assert_eq!((state.done[0].1["seconds"], state.facts["base"]), (1.5, 7.5));
        assert!(state.done[0].1["gaps"].is_nan());
        assert_eq!(state.failed, [(key(1), "it fell over".to_owned())]);
        state.keep(key(1), Metrics::new()).unwrap();
        drop(state);
        let state = State::open(folder.path(), "a").unwrap();
        assert!(state.has(key(1)) && state.failed.is_empty());
        drop(state);
        let other = State::open(folder.path(), "b").err().unwrap().to_string();
        assert!(other.contains("another experiment"), "{other}");
    }
}
