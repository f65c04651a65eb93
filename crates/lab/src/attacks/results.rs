//! The results of a run: `results.jsonl` has one line for the run, and one for each conversation.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cases::Must;
use super::truth::Truth;
use crate::problem::{Outcome, Problem};

/// The fate of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// A rule blocked it, and some of its packets did not arrive.
    Stopped,
    /// All of it arrived, and a rule alerted.
    Noticed,
    /// All of it arrived, and no rule alerted.
    Passed,
    /// Some of its packets did not arrive, but no rule blocked it. It says nothing about rules.
    Lost,
}

/// One conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) truth: Truth,
    pub(super) verdict: Verdict,
    /// Rules that blocked it, and rules that alerted.
    pub(super) blocked_by: Vec<u32>,
    pub(super) noticed_by: Vec<u32>,
    /// The engine's reasons for dropping its packets without a rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dropped_for: Vec<String>,
    /// Number of packets that matter, and how many arrived; `None` if nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arrived: Option<[u64; 2]>,
}

impl Line {
    /// Whether the outcome is as required. An attack that was lost is not; a conversation that must pass is, unless a rule stopped it.
    pub(super) fn good(&self) -> bool {
        match self.truth.must {
            Must::Stop => self.verdict == Verdict::Stopped,
            Must::Notice => matches!(self.verdict, Verdict::Stopped | Verdict::Noticed),
            Must::Pass => self.verdict != Verdict::Stopped,
        }
    }
}

/// The other traffic: packets sent and arrived, and sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Others {
    pub(super) packets: u64,
    pub(super) arrived: u64,
    pub(super) sessions: u64,
    /// Sessions in which a rule blocked something.
    pub(super) blocked: u64,
    /// Sessions that lost packets without a rule.
    pub(super) incomplete: u64,
    /// The rate that was sent, in packets a second.
    pub(super) rate: f64,
}

impl Others {
    /// The share of lost packets.
    pub(super) fn loss(&self) -> f64 {
        self.packets.saturating_sub(self.arrived) as f64 / self.packets.max(1) as f64
    }
}

/// The run's own line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) engine: String,
    pub(super) capture: String,
    /// Packets were sent. Otherwise, the engine read the capture and simulated its verdicts.
    pub(super) live: bool,
    pub(super) packets: u64,
    /// The other traffic when sent together with the attacks, and when sent without them.
    pub(super) with: Option<Others>,
    pub(super) without: Option<Others>,
    /// Rules that blocked other traffic, with the number of sessions.
    pub(super) harm: BTreeMap<u32, u64>,
    /// Packets of other traffic that the engine dropped without a rule, by reason.
    #[serde(default)]
    pub(super) policies: BTreeMap<String, u64>,
    /// Texts of the rules that appear in the results.
    pub(super) rules: BTreeMap<u32, String>,
    pub(super) notes: Vec<String>,
}

/// Writes `results.jsonl`.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(path: &Path, run: &Run, lines: &[Line]) -> Outcome<()> {
    let failed = |error: std::io::Error| Problem::file("write", path, error);
    let mut file = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    serde_json::to_writer(&mut file, run).map_err(|error| failed(error.into()))?;
    writeln!(file).map_err(failed)?;
    for line in lines {
        serde_json::to_writer(&mut file, line).map_err(|error| failed(error.into()))?;
        writeln!(file).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

/// Reads `results.jsonl`.
///
/// # Errors
/// If it does not exist, or has another format.
pub(super) fn read(path: &Path) -> Outcome<(Run, Vec<Line>)> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::Usage(format!("cannot read {}: {error}; `margay lab attacks run` writes it", path.display()))
    })?;
    let wrong = |n: usize, error: serde_json::Error| Problem::Usage(format!("{}:{}: {error}", path.display(), n + 1));
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().unwrap_or((0, ""));
    let run = serde_json::from_str(first).map_err(|error| wrong(0, error))?;
    let lines = lines.map(|(n, line)| serde_json::from_str(line).map_err(|error| wrong(n, error)));
    Ok((run, lines.collect::<Outcome<_>>()?))
}
