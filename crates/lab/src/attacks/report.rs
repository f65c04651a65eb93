//! `margay lab attacks report`: reports what was stopped, missed, and stopped by mistake, as text and as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::cases::Must;
use super::results::{self, Line, Others, Run, Verdict};
use crate::problem::{Outcome, Problem};

/// Print the results of a run as tables, and write them as a page
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  margay lab attacks report lab-attacks                   tables
  margay lab attacks report lab-attacks -o report.html    and one page, with conversations and rules behind a click")]
pub(crate) struct Args {
    /// The folder of a run, or its results.jsonl
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// The page to write
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Number of conversations by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) attacks: u64,
    pub(super) stopped: u64,
    /// Attacks that raised an alert but were not stopped, including those that need not be stopped.
    pub(super) noticed: u64,
    /// Attacks that were neither stopped nor noticed.
    pub(super) missed: u64,
    pub(super) lost: u64,
    pub(super) pass: u64,
    /// Conversations that must pass and were stopped.
    pub(super) mistakes: u64,
}

impl Sums {
    pub(super) fn add(&mut self, line: &Line) {
        if line.truth.must == Must::Pass {
            self.pass += 1;
            self.mistakes += u64::from(!line.good());
            return;
        }
        self.attacks += 1;
        match line.verdict {
            Verdict::Stopped => self.stopped += 1,
            Verdict::Noticed => self.noticed += 1,
            Verdict::Passed => self.missed += 1,
            Verdict::Lost => self.lost += 1,
        }
    }

    pub(super) fn of<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Sums {
        lines.into_iter().fold(Sums::default(), |mut sums, line| {
            sums.add(line);
            sums
        })
    }

    /// The numbers, in the order of [`COLUMNS`].
    pub(super) fn values(&self) -> [u64; 7] {
        [self.attacks, self.stopped, self.noticed, self.missed, self.lost, self.pass, self.mistakes]
    }
}

/// Column titles for [`Sums`].
pub(super) const COLUMNS: [&str; 7] =
    ["attacks", "stopped", "noticed", "missed", "lost", "must pass", "stopped by mistake"];

/// Sums for each of the keys that `keys` returns for a line.
pub(super) fn by<'l>(lines: &'l [Line], keys: impl Fn(&'l Line) -> Vec<&'l str>) -> BTreeMap<&'l str, Sums> {
    let mut rows: BTreeMap<&str, Sums> = BTreeMap::new();
    for line in lines {
        for key in keys(line) {
            rows.entry(key).or_default().add(line);
        }
    }
    rows
}

/// The techniques of a line.
pub(super) fn techniques(line: &Line) -> Vec<&str> {
    line.truth.technique.iter().map(String::as_str).collect()
}

/// Describes the run in sentences, attacks first.
pub(super) fn sentences(run: &Run, lines: &[Line]) -> Vec<String> {
    let s = Sums::of(lines);
    let to_notice = lines.iter().filter(|l| l.truth.must == Must::Notice).count() as u64;
    let to_stop: Vec<&Line> = lines.iter().filter(|l| l.truth.must == Must::Stop).collect();
    let hit = to_stop.iter().filter(|l| l.good()).count();
    let how = if run.live { "never arrived whole" } else { "are blocked by a rule (simulated, nothing was sent)" };
    let mut out = vec![format!(
        "{hit} of {} attacks that are to be stopped {how} ({:.2} %).",
        to_stop.len(),
        hit as f64 * 100.0 / to_stop.len().max(1) as f64
    )];
    if to_notice > 0 {
        let good = lines.iter().filter(|l| l.truth.must == Must::Notice && l.good()).count();
        out.push(format!("{good} of {to_notice} that are to be noticed raised an alert."));
    }
    out.push(format!("{} of {} conversations that must pass were stopped by mistake.", s.mistakes, s.pass));
    let loss = |o: &Others| format!("{:.4} % of {} packets at {:.0} packets/s", o.loss() * 100.0, o.packets, o.rate);
    if let Some(with) = &run.with {
        out.push(format!(
            "In the other traffic a rule blocked something of {} of {} sessions.",
            with.blocked, with.sessions
        ));
        if run.live {
            out.push(format!("{} more of them lost packets for another reason.", with.incomplete));
            let without = run.without.as_ref().map_or_else(String::new, |o| format!("; without attacks {}", loss(o)));
            out.push(format!("Loss in the other traffic: with attacks {}{without}.", loss(with)));
        }
    }
    for (reason, packets) in &run.policies {
        out.push(format!("The engine itself dropped packets of other traffic: {reason} ({packets} times)."));
    }
    out.extend(run.notes.iter().map(|note| format!("Note: {note}.")));
    out
}

fn table(title: &str, rows: &BTreeMap<&str, Sums>) -> String {
    let mut out = String::new();
    let width = rows.keys().map(|key| key.chars().count()).max().unwrap_or(0).max(title.len());
    let _ = write!(out, "{title:width$}");
    for column in COLUMNS {
        let _ = write!(out, "  {column:>9}");
    }
    out.push('\n');
    for (key, sums) in rows {
        let _ = write!(out, "{key:width$}");
        for (value, column) in sums.values().into_iter().zip(COLUMNS) {
            let wide = column.len().max(9);
            let _ = write!(out, "  {value:>wide$}");
        }
        out.push('\n');
    }
    out
}

/// The whole report as text.
pub(super) fn text(run: &Run, lines: &[Line]) -> String {
    let mut out = table("class", &by(lines, |line| vec![line.truth.class.as_str()]));
    let rows = by(lines, techniques);
    if !rows.is_empty() {
        let _ = write!(out, "\n{}", table("technique", &rows));
    }
    out.push('\n');
    for sentence in sentences(run, lines) {
        let _ = writeln!(out, "{sentence}");
    }
    out
}

/// Runs the command.
///
/// # Errors
/// If there are no results, or the page cannot be written.
pub(super) fn run(args: &Args) -> Outcome<ExitCode> {
    let path = if args.results.is_dir() { args.results.join("results.jsonl") } else { args.results.clone() };
    let (run, lines) = results::read(&path)?;
    print!("{}", text(&run, &lines));
    if let Some(output) = &args.output {
        std::fs::write(output, super::page::page(&run, &lines))
            .map_err(|error| Problem::file("write", output, error))?;
        println!("report: {}", output.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Results in the format of [`results::write`].
    pub(in super::super) fn sample() -> (Run, Vec<Line>) {
        let line = |n: u32, must: &str, verdict: &str, blocked: &str| {
            let text = format!(
                "{{\"n\":{n},\"attack\":\"SQL <injection>\",\"must\":\"{must}\",\"sid\":7,\"rules\":1,\"class\":\"web\",\
                 \"technique\":[\"CWE-89\",\"T1190\"],\"file\":\"web.toml\",\"match\":\"addresses\",\"start\":\"1.0\",\"end\":\"1.1\",\
                 \"proto\":6,\"src_ip\":\"10.0.0.{n}\",\"src_port\":1,\"dest_ip\":\"198.18.0.{n}\",\"dest_port\":80,\"packets\":8,\
                 \"text\":\"GET /?q=<script>&\",\"verdict\":\"{verdict}\",\"blocked_by\":[{blocked}],\"noticed_by\":[{blocked}]}}"
            );
            serde_json::from_str(&text).unwrap()
        };
        let run = Run {
            live: true,
            with: Some(Others { packets: 1000, arrived: 990, sessions: 10, blocked: 1, incomplete: 2, rate: 500.0 }),
            without: Some(Others { packets: 1000, arrived: 1000, sessions: 10, ..Others::default() }),
            harm: [(7, 1)].into(),
            rules: [(7, "drop http any any -> any any (msg:\"x\"; sid:7;)".to_owned())].into(),
            ..Run::default()
        };
        let lines = vec![
            line(1, "stop", "stopped", "7"),
            line(2, "stop", "passed", ""),
            line(3, "stop", "lost", ""),
            line(4, "notice", "noticed", ""),
            line(5, "pass", "stopped", "7"),
            line(6, "pass", "passed", ""),
        ];
        (run, lines)
    }

    #[test]
    fn every_conversation_is_counted_once_in_each_table() {
        let (run, lines) = sample();
        assert_eq!(Sums::of(&lines).values(), [4, 1, 1, 1, 1, 2, 1]);
        let text = text(&run, &lines);
        for wanted in [
            "1 of 3 attacks that are to be stopped never arrived whole (33.33 %).",
            "1 of 1 that are to be noticed raised an alert.",
            "1 of 2 conversations that must pass were stopped by mistake.",
            "with attacks 1.0000 % of 1000 packets at 500 packets/s; without attacks 0.0000 % of",
            "blocked something of 1 of 10 sessions.",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert_eq!(by(&lines, techniques).len(), 2);
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let (run, lines) = sample();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        results::write(&path, &run, &lines).unwrap();
        let (again, read) = results::read(&path).unwrap();
        assert_eq!((again.with, again.rules.len(), read.len()), (run.with, 1, lines.len()));
        assert!(read.iter().zip(&lines).all(|(a, b)| a.truth == b.truth && a.verdict == b.verdict));
    }
}
