//! One run of the engine, and the figures that it reports.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::signals;

/// How often to check whether a run is over. The engine itself measures the time.
const LOOK: Duration = Duration::from_millis(10);

/// How packets are distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `--runmode single`.
    One,
    /// `--runmode autofp`.
    Several { scheduler: String, workers: usize },
    /// This many engines at once, each with one worker and the whole capture. It shows the machine's limit if nothing is
    /// shared.
    Beside(usize),
}

impl Way {
    pub(crate) fn workers(&self) -> usize {
        match self {
            Way::One => 1,
            Way::Several { workers, .. } | Way::Beside(workers) => *workers,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::One => f.write_str("one worker"),
            Way::Several { scheduler, workers } => write!(f, "{scheduler} {workers}"),
            Way::Beside(engines) => write!(f, "{engines} engines side by side"),
        }
    }
}

/// A worker's figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Worker {
    pub(crate) packets: f64,
    /// Most packets that waited for it.
    pub(crate) longest: f64,
    /// How often it was the reader, and how often and how long (in seconds) it slept.
    pub(crate) turns: f64,
    pub(crate) sleeps: f64,
    pub(crate) slept: f64,
    /// How often and how long it waited for other workers to pass its packet.
    pub(crate) waits: f64,
    pub(crate) waited: f64,
    /// Payloads that it searched for other workers, and that others searched for it.
    pub(crate) helping: f64,
    pub(crate) helped: f64,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// From the first packet to the end of the last flow.
    pub(crate) seconds: f64,
    pub(crate) packets: f64,
    pub(crate) alerts: f64,
    /// Reading turns that ended because a queue was full.
    pub(crate) stalls: f64,
    /// Flows that moved to another worker.
    pub(crate) moves: f64,
    /// Seconds that all workers waited for moving flows.
    pub(crate) waited: f64,
    pub(crate) workers: Vec<Worker>,
}

/// An engine, a capture, and everything else that a run needs.
pub(crate) struct Run<'a> {
    pub(crate) engine: String,
    pub(crate) config: Option<&'a Path>,
    pub(crate) rules: Option<&'a Path>,
    pub(crate) capture: &'a Path,
    pub(crate) sets: &'a [String],
    pub(crate) logs: &'a Path,
}

impl Run<'_> {
    /// Runs the engine, or several side by side. Several report the mean of each figure, except for the time, which is
    /// the slowest engine's.
    ///
    /// # Errors
    /// If the engine cannot be run, fails, or does not report its time; or on a request to stop.
    pub(crate) fn measure(&self, way: &Way, session: &mut Session) -> Outcome<Measured> {
        let copies = if let Way::Beside(engines) = way { *engines } else { 1 };
        let mut going = (0..copies).map(|n| self.start(way, n, session)).collect::<Outcome<Vec<Going>>>()?;
        let mut all = Vec::new();
        for run in &mut going {
            all.push(run.finish(way)?);
        }
        let mut first = all.first().cloned().unwrap_or_default();
        first.seconds = all.iter().map(|m| m.seconds).fold(0.0, f64::max);
        Ok(first)
    }

    /// Lets the engine write what each packet costs one worker. Returns the file.
    ///
    /// # Errors
    /// As [`Run::measure`].
    pub(crate) fn costs(&self, session: &mut Session) -> Outcome<PathBuf> {
        let name = "packet.costs";
        let sets: Vec<String> = self.sets.iter().cloned().chain([format!("margay.packet-costs={name}")]).collect();
        Run { sets: &sets, engine: self.engine.clone(), ..*self }.measure(&Way::One, session)?;
        Ok(self.logs.join("0").join(name))
    }

    /// Whether the engine has the scheduler, tested with an empty capture.
    ///
    /// # Errors
    /// If the test cannot be run.
    pub(crate) fn has(engine: &str, scheduler: &str, folder: &Path) -> Outcome<bool> {
        let capture = folder.join("empty.pcap");
        let mut head = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
        for n in [0x0004_0002u32, 0, 0, 65_535, 1] {
            head.extend(n.to_le_bytes());
        }
        std::fs::write(&capture, head).map_err(|e| Problem::file("write", &capture, e))?;
        let output = Command::new(engine)
            .arg("-l")
            .arg(folder)
            .arg("-r")
            .arg(&capture)
            .args(["--disable-detection", "--runmode", "autofp", "--set"])
            .arg(format!("autofp-scheduler={scheduler}"))
            .args(["--set", "margay.workers=1"])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Problem::Failed(format!("cannot run {engine}: {e}")))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let not = said.contains("is no scheduler");
        if !output.status.success() && !not {
            return Err(Problem::Failed(format!("the engine failed: {}", last_line(&said))));
        }
        Ok(!not)
    }

    fn start(&self, way: &Way, copy: usize, session: &mut Session) -> Outcome<Going> {
        let logs = self.logs.join(copy.to_string());
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs).map_err(|e| Problem::file("make", &logs, e))?;
        let said = logs.join("said");
        let out = File::create(&said).map_err(|e| Problem::file("make", &said, e))?;
        let out_too = out.try_clone().map_err(|e| Problem::file("use", &said, e))?;
        let mut command = Command::new(&self.engine);
        command.arg("-l").arg(&logs).arg("-r").arg(self.capture).args(["-k", "none", "--pcap-preload", "-vv"]);
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
            Way::One | Way::Beside(_) => command.args(["--runmode", "single"]),
            Way::Several { scheduler, workers } => command
                .args(["--runmode", "autofp", "--set", &format!("autofp-scheduler={scheduler}")])
                .args(["--set", &format!("margay.workers={workers}")]),
        };
        command.stdin(Stdio::null()).stdout(out).stderr(out_too);
        session.mark(&mut command)?;
        let child = command.spawn().map_err(|e| Problem::Failed(format!("cannot run {}: {e}", self.engine)))?;
        Ok(Going { child, said, over: false })
    }
}

/// A running engine. It is killed when dropped.
struct Going {
    child: Child,
    said: PathBuf,
    over: bool,
}

impl Going {
    fn finish(&mut self, way: &Way) -> Outcome<Measured> {
        let status = loop {
            let ended = self.child.try_wait();
            if let Some(status) = ended.map_err(|e| Problem::Failed(format!("cannot watch the engine: {e}")))? {
                break status;
            }
            if signals::stop_asked() {
                return Err(Problem::Interrupted("stopped".to_owned()));
            }
            std::thread::sleep(LOOK);
        };
        self.over = true;
        let said = std::fs::read(&self.said).map_err(|e| Problem::file("read", &self.said, e))?;
        let said = String::from_utf8_lossy(&said);
        if !status.success() {
            // A signal from the keyboard reaches the engine as well.
            return Err(match signals::stop_asked() {
                true => Problem::Interrupted("stopped".to_owned()),
                false => Problem::Failed(format!("{way}: the engine failed: {}", last_line(&said))),
            });
        }
        if signals::stop_asked() {
            return Err(Problem::Interrupted("stopped".to_owned()));
        }
        let measured = read(&said);
        match measured.seconds > 0.0 {
            true => Ok(measured),
            false => Err(Problem::Failed(format!("{way}: the engine does not say how long it took"))),
        }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        if !self.over {
            // The run was abandoned; the engine may have ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn last_line(said: &str) -> &str {
    said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing")
}

/// Parses the engine's output.
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
            let all = numbers(rest);
            if let [_, packets, longest, turns, sleeps, slept, ..] = all[..] {
                let more = |n: usize| all.get(n).copied().unwrap_or_default();
                let (waits, waited, helping, helped) = (more(6), more(7), more(8), more(9));
                m.workers.push(Worker { packets, longest, turns, sleeps, slept, waits, waited, helping, helped });
            }
        } else if let Some(rest) = after(line, "turns of reading, ") {
            m.stalls = first(rest);
        } else if let Some(rest) = after(line, "autofp: moved ") {
            let all = numbers(rest);
            m.moves = all.first().copied().unwrap_or_default();
            m.waited = all.get(3).copied().unwrap_or_default();
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

/// All numbers in a text, in order.
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
             Info: runmodes: autofp: W#01: 500000 packets, most waiting 1200, read 900 times, slept 30 times, 0.012 s; waited for others 2 times, 0.003 s; looked through 40 payloads for others, others 50 for it\n\
             Info: runmodes: autofp: W#02: 498900 packets, most waiting 1300, read 1100 times, slept 4 times, 0.001 s\n\
             Info: runmodes: autofp: moved 12 flows, 9 with what was known of them; waited 3 times, 0.004 s\n\
             Info: counters: Alerts: 391\n",
        );
        assert_eq!((m.seconds, m.packets, m.alerts, m.stalls), (1.25, 998_900.0, 391.0, 17.0));
        assert_eq!((m.moves, m.waited), (12.0, 0.004));
        assert_eq!((m.workers.len(), m.workers[1].slept, m.workers[1].helped), (2, 0.001, 0.0));
        assert_eq!(
            m.workers[0],
            Worker {
                packets: 500_000.0,
                longest: 1200.0,
                turns: 900.0,
                sleeps: 30.0,
                slept: 0.012,
                waits: 2.0,
                waited: 0.003,
                helping: 40.0,
                helped: 50.0
            }
        );
    }
}
