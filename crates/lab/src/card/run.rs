//! `margay lab card run`: runs an experiment file and writes a report.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use margay_card::cost::{Costs, NAMES, Source as Cost, Table};
use margay_card::design::Design;
use margay_card::mix::mix;
use margay_card::model::{Load, Outcome as Replayed};
use margay_card::record::{Job, Recorder};
use margay_card::search::{self, Candidate};
use margay_card::synthetic;
use margay_card::trace::Trace;

use super::experiment::{Claim, Experiment, Measure, Offered, Point, Source};
use super::{bad, record, report, rules, text};
use crate::problem::{Outcome, Problem};

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The experiment (lab/experiments/card-*.yaml)
    experiment: PathBuf,
    /// A folder for the report, its plots and numbers
    #[arg(long, short)]
    out: PathBuf,
    /// A folder that caches recorded work for the next run
    #[arg(long)]
    work: Option<PathBuf>,
    /// Threads [default: the number of processors]
    #[arg(long)]
    threads: Option<usize>,
    /// Halve and double each estimated cost, and report which verdicts it changes
    #[arg(long)]
    sensitivity: bool,
}

/// Seed of the gaps between packets.
const SEED: u64 = 20_180;

/// Results by trace and design.
pub(crate) struct Results {
    known: HashMap<(String, String), Replayed>,
    /// Instructions that a host core executes in a second.
    pub(crate) host: f64,
    /// The traces, each with a description of its contents.
    pub(crate) traces: Vec<(String, String)>,
    /// Descriptions of how the work was made.
    pub(crate) work: Vec<String>,
}

fn key(trace: &str, design: &Design, offered: Offered) -> (String, String) {
    (trace.to_owned(), format!("{design:?} {offered:?}"))
}

impl Results {
    /// A design's outcome on a trace.
    pub(crate) fn of(&self, trace: &str, design: &Design, offered: Offered) -> Option<&Replayed> {
        self.known.get(&key(trace, design, offered))
    }

    /// A measure of a design, averaged over traces.
    pub(crate) fn value(&self, measure: Measure, point: &Point) -> f64 {
        let values = point.traces.iter().filter_map(|t| self.of(t, &point.design, point.offered));
        let values = values.map(|o| measured(measure, o, self.host));
        values.sum::<f64>() / point.traces.len().max(1) as f64
    }
}

/// A measure of an outcome.
pub(crate) fn measured(measure: Measure, o: &Replayed, host: f64) -> f64 {
    let packets = o.done.max(1) as f64;
    let time = o.time.max(1) as f64;
    match measure {
        Measure::Rate => o.rate() / 1e6,
        Measure::Rows => o.rows as f64 / packets,
        Measure::Verification => o.stages[3] as f64 / 1000.0 / packets,
        Measure::Cores => o.core_share() * 100.0,
        Measure::Matcher => o.matcher as f64 / time * 100.0,
        Measure::Latency => o.latency_at(0.99) * 1e6,
        Measure::Mean => o.mean_latency() * 1e6,
        Measure::Loss => o.loss() * 100.0,
        Measure::Reports => o.verified as f64 * 1000.0 / packets,
        Measure::Host => o.host_cores(100e9, host),
        Measure::HostBytes => o.host.1 as f64 * 100.0 / o.bytes.max(1) as f64,
    }
}

/// The work of a source, and a description of how it was made.
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
        Source::Recorded { captures, rules: from, choice, settings, inline } => {
            let chosen = rules::choose(&rules::text(from)?, choice);
            if chosen.is_empty() {
                return Err(Problem::Usage(format!("{}: no rule fits what `{name}` chooses", from.display())));
            }
            // Captures with the same number of copies are recorded together.
            let mut groups = BTreeMap::<usize, Vec<PathBuf>>::new();
            for (path, times) in captures {
                groups.entry(*times).or_default().extend(record::captures(std::slice::from_ref(path))?);
            }
            let files: usize = groups.values().map(Vec::len).sum();
            let from = from.file_name().unwrap_or_default().to_string_lossy();
            let about = format!("{name}: {files} captures with {} rules of {from}", chosen.len());
            // The cached file's name is a hash of everything that the work depends on.
            let mut made = DefaultHasher::new();
            (&chosen, settings, inline, &groups).hash(&mut made);
            for path in groups.values().flatten() {
                std::fs::metadata(path).map_err(|e| Problem::file("read", path, e))?.len().hash(&mut made);
            }
            let file = kept.map(|dir| dir.join(format!("{name}-{:016x}.work", made.finish())));
            if let Some(file) = file.as_ref().filter(|f| f.exists()) {
                let data = std::fs::read(file).map_err(|e| Problem::file("read", file, e))?;
                return Ok((Trace::from_bytes(&data, &file.display().to_string()).map_err(bad)?, about));
            }
            let record = record::recorder(program)?;
            eprintln!("recording {about}");
            let unique = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
            let rules = std::env::temp_dir().join(format!("margay-card-{name}-{}-{unique}.rules", std::process::id()));
            std::fs::write(&rules, chosen.join("\n")).map_err(|e| Problem::file("write", &rules, e))?;
            let mut trace = Trace::default();
            let recorded = groups.iter().try_for_each(|(times, files)| {
                let part = record(&Job { captures: files, rules: &rules, config: None, settings, inline: *inline })?;
                trace.append(&part, *times).map_err(|why| why.to_string())
            });
            std::fs::remove_file(&rules).map_err(|e| Problem::file("remove", &rules, e))?;
            recorded.map_err(Problem::Usage)?;
            trace.check(name).map_err(bad)?;
            if let Some(file) = file {
                std::fs::write(&file, trace.to_bytes()).map_err(|e| Problem::file("write", &file, e))?;
            }
            Ok((trace, about))
        }
    }
}

/// All points of a claim.
fn points(claim: &Claim) -> impl Iterator<Item = &Point> {
    let than = claim.than.iter().flat_map(|(a, b)| [a, b]);
    claim.of.iter().chain(&claim.to).chain(than)
}

/// Every design to replay on a trace, with how packets are offered to it: for the claims only, or for the figures as
/// well.
fn wanted(experiment: &Experiment, trace: &str, figures: bool) -> Vec<(Design, Offered)> {
    let mut all = Vec::new();
    for row in &experiment.rows {
        if figures && row.traces.iter().any(|t| t == trace) {
            all.extend(row.candidates.iter().map(|c| (c.design.clone(), row.offered)));
        }
        let of = row.claims.iter().flat_map(points).filter(|p| p.traces.iter().any(|t| t == trace));
        all.extend(of.map(|p| (p.design.clone(), p.offered)));
    }
    // A share refers to the design's saturation rate, so that is replayed first.
    let shares = all.iter().filter(|w| matches!(w.1, Offered::Share(_)));
    let saturated: Vec<_> = shares.map(|w| (w.0.clone(), Offered::Saturated)).collect();
    all.extend(saturated);
    let mut once: Vec<(Design, Offered)> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// Replays designs on a trace.
fn replay(name: &str, trace: &Trace, wanted: &[(Design, Offered)], costs: &Costs, threads: usize, to: &mut Results) {
    for shares in [false, true] {
        let chosen: Vec<_> = wanted.iter().filter(|w| matches!(w.1, Offered::Share(_)) == shares).collect();
        let candidates: Vec<_> =
            chosen.iter().map(|w| Candidate { name: String::new(), design: w.0.clone() }).collect();
        let loads: Vec<Load> = chosen
            .iter()
            .map(|(design, offered)| match offered {
                Offered::Saturated => Load::Saturated,
                Offered::Rate(rate) => Load::Poisson(*rate, SEED),
                Offered::Share(share) => {
                    let most = to.of(name, design, Offered::Saturated).map_or(1e9, Replayed::rate);
                    Load::Poisson(most * share, SEED)
                }
            })
            .collect();
        let load = |number: usize| loads.get(number).copied().unwrap_or(Load::Saturated);
        let todo: Vec<usize> = (0..candidates.len()).collect();
        search::replay(&candidates, &todo, costs, trace, &load, threads, &mut |number, outcome| {
            if let Some((design, offered)) = chosen.get(number) {
                to.known.insert(key(name, design, *offered), outcome);
            }
            true
        });
    }
}

/// The verdicts with one cost at half or twice its value: the cost, the factor, the verdicts.
pub(crate) type Changed = (String, f64, Vec<report::Verdict>);

struct Run<'r> {
    experiment: &'r Experiment,
    threads: usize,
    traces: Vec<(&'r str, Trace)>,
}

impl Run<'_> {
    fn results(&self, costs: &Costs, figures: bool) -> Results {
        let mut results =
            Results { known: HashMap::new(), host: costs.host_core * 1e6, traces: Vec::new(), work: Vec::new() };
        for (name, trace) in &self.traces {
            let wanted = wanted(self.experiment, name, figures);
            replay(name, trace, &wanted, costs, self.threads, &mut results);
            if figures {
                eprintln!("{name}: {} replays", wanted.len());
            }
            results.traces.push(((*name).to_owned(), record::summary(trace)));
        }
        results
    }

    /// Replays the designs in the claims, with each cost in `names` at half and twice its value.
    fn sensitivity(&self, costs: &Costs, names: &[&str]) -> Vec<Changed> {
        let mut all = Vec::new();
        for name in names {
            for by in [0.5, 2.0] {
                let mut costs = costs.clone();
                if let Some(cost) = costs.get_mut(name) {
                    *cost *= by;
                }
                costs.match_stride = costs.match_stride.max(1.0);
                let results = self.results(&costs, false);
                let claims = self.experiment.rows.iter().flat_map(|r| &r.claims);
                all.push(((*name).to_owned(), by, claims.map(|c| report::verdict(c, &results)).collect()));
            }
            eprintln!("sensitivity: {name}");
        }
        all
    }
}

/// Runs an experiment.
///
/// # Errors
/// A file that cannot be read, used or written, or work that cannot be recorded.
pub(crate) fn run(args: &RunArgs, program: Option<Recorder>) -> Outcome<()> {
    let experiment = Experiment::read(&args.experiment)?;
    // Costs that were neither measured nor documented are estimates. Without a table, all costs are.
    let (costs, estimated) = match &experiment.costs {
        Some(path) => {
            let table = Table::from_yaml(&text(path)?, &path.display().to_string()).map_err(bad)?;
            let estimated = |name: &&str| table.sources.iter().any(|s| s.0 == **name && s.1 == Cost::Estimated);
            (table.costs.clone(), NAMES.iter().copied().filter(estimated).collect())
        }
        None => (Costs::default(), NAMES.to_vec()),
    };
    for dir in [Some(&args.out), args.work.as_ref()].into_iter().flatten() {
        std::fs::create_dir_all(dir).map_err(|e| Problem::file("make", dir, e))?;
    }
    let begun = Instant::now();
    let mut bases = Vec::new();
    let mut told = Vec::new();
    for (name, source) in &experiment.work {
        let (trace, about) = work(name, source, args.work.as_deref(), program)?;
        told.push(format!("{about}: {}", record::summary(&trace)));
        bases.push((name, trace));
    }
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut run = Run { experiment: &experiment, threads, traces: Vec::new() };
    for mixed in &experiment.traces {
        let Some((_, base)) = bases.iter().find(|b| *b.0 == mixed.work) else { continue };
        let trace = match &mixed.mix {
            Some(what) => mix(base, what).map_err(|why| Problem::Usage(format!("{}: {why}", mixed.name)))?,
            None => base.clone(),
        };
        run.traces.push((&mixed.name, trace));
    }
    let mut results = run.results(&costs, true);
    results.work = told;
    let changed = if args.sensitivity { run.sensitivity(&costs, &estimated) } else { Vec::new() };
    println!("{} replays in {:.1} s", results.known.len(), begun.elapsed().as_secs_f64());
    let lines = report::write(&experiment, &results, &changed, &args.out)?;
    lines.iter().for_each(|line| println!("{line}"));
    println!("{}", args.out.join("report.html").display());
    Ok(())
}
