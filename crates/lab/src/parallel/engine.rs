//! One run of the engine, and what it says of itself.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::problem::{Outcome, Problem};

/// How packets are distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `--runmode single`.
    One,
    /// `--runmode autofp`.
    Several { scheduler: String, workers: usize },
}

impl Way {
    pub(crate) fn workers(&self) -> usize {
        match self {
            Way::One => 1,
            Way::Several { workers, .. } => *workers,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::One => f.write_str("one worker"),
            Way::Several { scheduler, workers } => write!(f, "{scheduler} {workers}"),
        }
    }
}

/// What a worker says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Worker {
    pub(crate) packets: f64,
    /// Most packets that waited for it.
    pub(crate) longest: f64,
    /// How often it had the reader's place, and how often and long (seconds) it slept.
    pub(crate) turns: f64,
    pub(crate) sleeps: f64,
    pub(crate) slept: f64,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// From the first packet to the end of the last flow.
    pub(crate) seconds: f64,
    pub(crate) packets: f64,
    pub(crate) alerts: f64,
    /// Turns of reading that a full queue ended.
    pub(crate) stalls: f64,
    /// Flows that changed their worker.
    pub(crate) moves: f64,
    pub(crate) workers: Vec<Worker>,
}

pub(crate) struct Run<'a> {
    pub(crate) engine: String,
    pub(crate) config: Option<&'a Path>,
    pub(crate) rules: Option<&'a Path>,
    pub(crate) capture: &'a Path,
    pub(crate) sets: &'a [String],
    pub(crate) logs: &'a Path,
}

impl Run<'_> {
    /// # Errors
    /// Where the engine cannot be run, fails, or does not say how long it took.
    pub(crate) fn measure(&self, way: &Way) -> Outcome<Measured> {
        let _ = std::fs::remove_dir_all(self.logs);
        std::fs::create_dir_all(self.logs).map_err(|e| Problem::file("make", self.logs, e))?;
        let mut command = Command::new(&self.engine);
        command.arg("-l").arg(self.logs).arg("-r").arg(self.capture).args(["-k", "none", "--pcap-preload", "-vv"]);
        if let Some(config) = self.config {
            command.arg("-c").arg(config);
        }
        match self.rules {
            Some(rules) => command.arg("-S").arg(rules),
            None => command.arg("--disable-detection"),
        };
        for set in self.sets {
            command.args(["--set", set]);
        }
        match way {
            Way::One => command.args(["--runmode", "single"]),
            Way::Several { scheduler, workers } => command
                .args(["--runmode", "autofp", "--set", &format!("autofp-scheduler={scheduler}")])
                .args(["--set", &format!("margay.workers={workers}")]),
        };
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Problem::Failed(format!("cannot run {}: {e}", self.engine)))?;
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
            return Err(Problem::Failed(format!("{way}: the engine failed: {last}")));
        }
        let measured = read(&said);
        match measured.seconds > 0.0 {
            true => Ok(measured),
            false => Err(Problem::Failed(format!("{way}: the engine does not say how long it took"))),
        }
    }
}

/// Reads what the engine said.
fn read(said: &str) -> Measured {
    let mut m = Measured::default();
    for line in said.lines() {
        if let Some(rest) = after(line, "pcap: inspected in ") {
            m.seconds = first(rest);
        } else if let Some(rest) = after(line, "pcap: read ") {
            m.packets = numbers(rest).get(1).copied().unwrap_or_default();
        } else if let Some(rest) = after(line, "Alerts: ") {
            m.alerts = first(rest);
        } else if let Some(rest) = after(line, "autofp: W#") {
            if let [_, packets, longest, turns, sleeps, slept] = numbers(rest)[..] {
                m.workers.push(Worker { packets, longest, turns, sleeps, slept });
            }
        } else if let Some(rest) = after(line, "turns of reading, ") {
            m.stalls = first(rest);
        } else if let Some(rest) = after(line, "autofp: moved ") {
            m.moves = first(rest);
        }
    }
    m
}

fn after<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    line.find(what).and_then(|at| line.get(at + what.len()..))
}

fn first(text: &str) -> f64 {
    numbers(text).first().copied().unwrap_or_default()
}

/// All numbers of a text, in order.
fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|w| w.trim_matches('.').parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_says_is_read() {
        let m = read(
            "Notice: pcap: read 1 file, 998900 packets, 583000000 bytes\n\
             Info: pcap: inspected in 1.250000 s\n\
             Info: runmodes: autofp: 2000 turns of reading, 17 ended by a full queue\n\
             Info: runmodes: autofp: W#01: 500000 packets, most waiting 1200, read 900 times, slept 30 times, 0.012 s\n\
             Info: runmodes: autofp: W#02: 498900 packets, most waiting 1300, read 1100 times, slept 4 times, 0.001 s\n\
             Info: counters: Alerts: 391\n",
        );
        assert_eq!((m.seconds, m.packets, m.alerts, m.stalls), (1.25, 998_900.0, 391.0, 17.0));
        assert_eq!(m.workers.len(), 2);
        assert_eq!(
            m.workers[0],
            Worker { packets: 500_000.0, longest: 1200.0, turns: 900.0, sleeps: 30.0, slept: 0.012 }
        );
    }
}
