//! `margay lab card run`: an experiment file to a report.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use margay_card::cost::{Costs, Table};
use margay_card::design::Design;
use margay_card::mix::mix;
use margay_card::model::{Load, Outcome as Replayed};
use margay_card::record::{Job, Recorder};
use margay_card::search::{self, Candidate};
use margay_card::synthetic;
use margay_card::trace::Trace;

use super::experiment::{Experiment, Measure, Point, Source};
use super::{bad, record, report, rules, text};
use crate::problem::{Outcome, Problem};

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The experiment (lab/experiments/card-*.yaml)
    experiment: PathBuf,
    /// A folder for the report, its plots and numbers
    #[arg(long, short)]
    out: PathBuf,
    /// A folder in which recorded work is kept for the next run
    #[arg(long)]
    work: Option<PathBuf>,
    /// Threads; as many as processors unless told
    #[arg(long)]
    threads: Option<usize>,
}

/// Results by trace and design.
pub(crate) struct Results {
    known: HashMap<(String, String), Replayed>,
    /// The traces, with what is in them.
    pub(crate) traces: Vec<(String, String)>,
    /// How the work was made.
    pub(crate) work: Vec<String>,
}

fn key(trace: &str, design: &Design) -> (String, String) {
    (trace.to_owned(), format!("{design:?}"))
}

impl Results {
    /// The outcome of a design on a trace.
    pub(crate) fn of(&self, trace: &str, design: &Design) -> Option<&Replayed> {
        self.known.get(&key(trace, design))
    }

    /// A measure of a design, as a mean over traces.
    pub(crate) fn value(&self, measure: Measure, point: &Point) -> f64 {
        let values = point.traces.iter().filter_map(|t| self.of(t, &point.design)).map(|o| measured(measure, o));
        values.sum::<f64>() / point.traces.len().max(1) as f64
    }
}

/// A measure of an outcome.
pub(crate) fn measured(measure: Measure, o: &Replayed) -> f64 {
    let packets = o.done.max(1) as f64;
    let time = o.time.max(1) as f64;
    match measure {
        Measure::Rate => o.rate() / 1e6,
        Measure::Rows => o.rows as f64 / packets,
        Measure::Verification => o.stages[3] as f64 / 1000.0 / packets,
        Measure::Cores => o.core_share() * 100.0,
        Measure::Matcher => o.matcher as f64 / time * 100.0,
        Measure::Latency => o.latency_at(0.99) * 1e6,
    }
}

/// Work of a source, and how it was made.
fn work(name: &str, source: &Source, kept: Option<&Path>, program: Option<Recorder>) -> Outcome<(Trace, String)> {
    match source {
        Source::MadeUp(packets, flows, seed) => Ok((
            synthetic::trace(*packets, *flows, *seed),
            format!("{name}: made up ({packets} packets of {flows} flows)"),
        )),
        Source::File(path) => {
            let data = std::fs::read(path).map_err(|e| Problem::file("read", path, e))?;
            let trace = Trace::from_bytes(&data, &path.display().to_string()).map_err(bad)?;
            Ok((trace, format!("{name}: the work trace {}", path.display())))
        }
        Source::Recorded { captures, rules: from, choice, settings } => {
            let chosen = rules::choose(&rules::text(from)?, choice);
            if chosen.is_empty() {
                return Err(Problem::Usage(format!("{}: no rule fits what `{name}` chooses", from.display())));
            }
            let files = record::captures(captures)?;
            let from = from.file_name().unwrap_or_default().to_string_lossy();
            let about = format!("{name}: {} captures with {} rules of {from}", files.len(), chosen.len());
            let file = kept.map(|dir| dir.join(format!("{name}.work")));
            if let Some(file) = file.as_ref().filter(|f| f.exists()) {
                let data = std::fs::read(file).map_err(|e| Problem::file("read", file, e))?;
                return Ok((Trace::from_bytes(&data, &file.display().to_string()).map_err(bad)?, about));
            }
            let record = record::recorder(program)?;
            eprintln!("recording {about}");
            let unique = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
            let rules = std::env::temp_dir().join(format!("margay-card-{name}-{}-{unique}.rules", std::process::id()));
            std::fs::write(&rules, chosen.join("\n")).map_err(|e| Problem::file("write", &rules, e))?;
            let trace = record(&Job { captures: &files, rules: &rules, config: None, settings });
            std::fs::remove_file(&rules).map_err(|e| Problem::file("remove", &rules, e))?;
            let trace = trace.map_err(Problem::Usage)?;
            trace.check(name).map_err(bad)?;
            if let Some(file) = file {
                std::fs::write(&file, trace.to_bytes()).map_err(|e| Problem::file("write", &file, e))?;
            }
            Ok((trace, about))
        }
    }
}

/// Every design of the experiment on its traces.
fn wanted<'e>(experiment: &'e Experiment, trace: &str) -> Vec<&'e Design> {
    let mut all = Vec::new();
    for row in &experiment.rows {
        if row.traces.iter().any(|t| t == trace) {
            all.extend(row.candidates.iter().map(|c| &c.design));
        }
        for claim in &row.claims {
            let than = claim.than.iter().flat_map(|(a, b)| [a, b]);
            let points = claim.of.iter().chain(&claim.to).chain(than);
            all.extend(points.filter(|p| p.traces.iter().any(|t| t == trace)).map(|p| &p.design));
        }
    }
    all
}

fn replay(experiment: &Experiment, costs: &Costs, args: &RunArgs, program: Option<Recorder>) -> Outcome<Results> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut results = Results { known: HashMap::new(), traces: Vec::new(), work: Vec::new() };
    let mut bases = Vec::new();
    for (name, source) in &experiment.work {
        let (trace, about) = work(name, source, args.work.as_deref(), program)?;
        results.work.push(format!("{about}: {}", record::summary(&trace)));
        bases.push((name, trace));
    }
    for mixed in &experiment.traces {
        let Some((_, base)) = bases.iter().find(|b| *b.0 == mixed.work) else { continue };
        let made;
        let trace = match &mixed.mix {
            Some(what) => {
                made = mix(base, what).map_err(|why| Problem::Usage(format!("{}: {why}", mixed.name)))?;
                &made
            }
            None => base,
        };
        results.traces.push((mixed.name.clone(), record::summary(trace)));
        let mut candidates: Vec<Candidate> = Vec::new();
        for design in wanted(experiment, &mixed.name) {
            if !candidates.iter().any(|c| c.design == *design) {
                candidates.push(Candidate { name: String::new(), design: design.clone() });
            }
        }
        eprintln!("{}: {} designs", mixed.name, candidates.len());
        let todo: Vec<usize> = (0..candidates.len()).collect();
        search::replay(&candidates, &todo, costs, trace, Load::Saturated, threads, &mut |number, outcome| {
            if let Some(c) = candidates.get(number) {
                results.known.insert(key(&mixed.name, &c.design), outcome);
            }
            true
        });
    }
    Ok(results)
}

/// Runs an experiment.
///
/// # Errors
/// A file that cannot be read, used or written; work that cannot be recorded.
pub(crate) fn run(args: &RunArgs, program: Option<Recorder>) -> Outcome<()> {
    let experiment = Experiment::read(&args.experiment)?;
    let costs = match &experiment.costs {
        Some(path) => Table::from_yaml(&text(path)?, &path.display().to_string()).map_err(bad)?.costs,
        None => Costs::default(),
    };
    for dir in [Some(&args.out), args.work.as_ref()].into_iter().flatten() {
        std::fs::create_dir_all(dir).map_err(|e| Problem::file("make", dir, e))?;
    }
    let begun = Instant::now();
    let results = replay(&experiment, &costs, args, program)?;
    println!("{} replays in {:.1} s", results.known.len(), begun.elapsed().as_secs_f64());
    let verdicts = report::write(&experiment, &results, &args.out)?;
    verdicts.iter().for_each(|line| println!("{line}"));
    println!("{}", args.out.join("report.html").display());
    Ok(())
}
