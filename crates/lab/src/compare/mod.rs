//! `margay lab compare`: runs engines, or configurations of them, alternately and repeatedly under several loads. The
//! report has medians, spreads, and paired ratios with confidence intervals.
//!
//! [`experiment`] reads the file, [`engines`] its engines. [`plan`] orders the runs and records the finished ones.
//! [`result`] has the results of runs. [`report`] and [`plots`] present them.

mod checkpoints;
mod engines;
mod experiment;
mod plan;
mod plots;
mod report;
mod result;
mod study;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use experiment::{Base, Experiment, Kind, Load, Speed, Way};
use plan::{Key, Metrics, State};

use crate::cpus::Shared;
use crate::engine::{Contract, Options};
use crate::load::{self, Sender, What, Wire};
use crate::made::Session;
use crate::monitor::{self, Sampler};
use crate::problem::{Outcome, Problem};
use crate::run::live::{Rig, Trial};
use crate::run::{Capture, offline};
use crate::signals;
use crate::stages::Stage;
use crate::throughput::{Range, Searches};
use crate::units::{short, spoken};

/// Compare engines or configurations by an experiment file
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment
    #[arg(value_name = "EXPERIMENT.yaml")]
    experiment: PathBuf,
    /// The folder for the report, plots, samples and logs; existing runs are not repeated
    #[arg(long, short = 'o')]
    output: Option<PathBuf>,
    /// Number of repeats, instead of the experiment's
    #[arg(long, short = 'n')]
    repeats: Option<u32>,
    /// One repeat of a few seconds at few rates, to test whether the experiment runs
    #[arg(long)]
    quick: bool,
    /// A configuration for Margay and Suricata, instead of the experiment's
    #[arg(long, short = 'c', value_name = "FILE")]
    config: Option<String>,
    /// Rules for Margay and Suricata, instead of the experiment's
    #[arg(long, short = 'S', value_name = "FILE")]
    rules: Vec<String>,
    /// A capture to send, instead of the traffic of the experiment's loads
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Discard the results in the folder and start again
    #[arg(long)]
    fresh: bool,
    /// Run nothing, and write the report of the existing runs
    #[arg(long, conflicts_with = "fresh")]
    report: bool,
    /// Keep the engines' own output files (events, logs), not only messages and counters
    #[arg(long)]
    keep_logs: bool,
    /// Print the runs in order, without running them
    #[arg(long)]
    plan: bool,
}

/// One point of a load. Every engine runs at each point.
#[derive(Clone, Debug)]
struct Point {
    /// Index of the load.
    load: usize,
    /// The label in tables, such as `2× = 20 k packets/s`.
    label: String,
    /// Packets a second; not a number for loads without a rate.
    rate: f64,
    /// The number of interfaces that it is sent on.
    interfaces: u32,
    /// The index of the point with the load's first number of interfaces, and all else equal.
    first: usize,
    kind: PointKind,
}

impl Point {
    /// What tells it from other points of a search, to append to an engine's name.
    fn short(&self) -> String {
        let copies = match self.kind {
            PointKind::Search { copies, .. } => at_once(copies),
            _ => String::new(),
        };
        match self.interfaces {
            1 => copies,
            count => format!(" on {count} interfaces{copies}"),
        }
    }
}

/// A point's traffic and number of interfaces.
#[derive(Clone, Copy)]
struct Sending<'a> {
    what: &'a What,
    copies: u32,
    interfaces: u32,
}

#[derive(Clone, Debug)]
enum PointKind {
    Offline { path: PathBuf, capture: Capture },
    Rate { what: What, copies: u32 },
    Search { what: What, copies: u32, range: Range, allowed: f64 },
    Numbers,
}

/// An experiment with its folder and the results so far.
struct Comparison {
    experiment: Experiment,
    points: Vec<Point>,
    dir: PathBuf,
    keep_logs: bool,
}

/// Runs the command.
///
/// # Errors
/// If the experiment makes no sense, if runs failed (the report then has the others), or on a request to stop.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    let instead = Options { config: args.config.clone(), rules: args.rules.clone(), ..Options::default() };
    let mut experiment = Experiment::load(&args.experiment, &Shared::apart(), &instead)?;
    if let Some(path) = &args.replay {
        experiment.replay(path)?;
    }
    if args.quick {
        experiment.quicken();
    }
    experiment.repeats = args.repeats.unwrap_or(experiment.repeats).max(1);
    let name = args.experiment.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{name}")));
    let dir = std::path::absolute(&output).map_err(|error| Problem::file("find", &output, error))?;
    let runs = dir.join("runs");
    if args.fresh {
        for path in [&runs, &dir.join("plots")] {
            match std::fs::remove_dir_all(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Problem::file("remove", path, error));
                }
                _ => {}
            }
        }
        let state = dir.join("state.jsonl");
        if state.exists() {
            std::fs::remove_file(&state).map_err(|error| Problem::file("remove", &state, error))?;
        }
    }
    std::fs::create_dir_all(&runs).map_err(|error| Problem::file("make", &runs, error))?;
    let mut state =
        State::open(&dir, &fingerprint(&format!("{}{instead:?}{}{:?}", experiment.text, args.quick, args.replay)))?;
    let mut comparison = Comparison { experiment, points: Vec::new(), dir, keep_logs: args.keep_logs };
    comparison.points = comparison.all_points(&mut state, args.plan || args.report)?;
    let keys = plan::order(comparison.experiment.repeats, comparison.points.len(), comparison.experiment.engines.len());
    if !args.plan {
        comparison.experiment.notes.extend(unsampled()?);
    }
    for note in &comparison.experiment.notes {
        println!("note: {note}");
    }
    if args.plan {
        for key in keys {
            let done = if state.has(key) { " (done)" } else { "" };
            println!("{}{done}", comparison.describe(key));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = if args.report { Ok(()) } else { comparison.make_runs(&keys, &mut state) };
    // Report the finished runs, even if others failed.
    let path = report::write(&comparison, &state)?;
    for line in comparison.bounds(&state) {
        println!("{line}");
    }
    for row in comparison.beside_study(&state) {
        println!("study: {}, {}: theirs {}, ours {}: {}", row.what, row.at, row.theirs, row.ours, row.verdict);
    }
    println!("report: {}", path.display());
    outcome?;
    match state.failed.len() {
        0 => Ok(ExitCode::SUCCESS),
        failed => Err(Problem::Failed(format!(
            "{failed} runs failed and are named in the report; the same command makes them again"
        ))),
    }
}

/// What this machine cannot sample during a run, a sentence each: the samples have no columns for it.
fn unsampled() -> Outcome<Vec<String>> {
    let sampler = Sampler::open(&monitor::What { process: Some(std::process::id()), ..monitor::What::default() })?;
    Ok(sampler.notes)
}

/// FNV-1a of the experiment's text, to detect a state that belongs to another one.
fn fingerprint(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Makes a name usable for a folder.
fn folder_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '-' };
    name.chars().map(plain).collect::<String>().trim_matches('-').replace("--", "-")
}

impl Comparison {
    fn describe(&self, key: Key) -> String {
        let point = &self.points[key.point];
        format!(
            "repeat {}: {}, {}: {}",
            key.repeat, self.experiment.loads[point.load].name, point.label, self.experiment.engines[key.engine].name
        )
    }

    /// A run's folder.
    fn folder(&self, key: Key) -> PathBuf {
        let point = &self.points[key.point];
        let load = &self.experiment.loads[point.load].name;
        let engine = &self.experiment.engines[key.engine].name;
        let name = format!("{}-{}-{}-{}", folder_name(load), key.point, folder_name(engine), key.repeat);
        self.dir.join("runs").join(name)
    }

    /// The points of all loads. Unknown base rates are measured, unless `dry`.
    fn all_points(&self, state: &mut State, dry: bool) -> Outcome<Vec<Point>> {
        let mut points = Vec::new();
        for (load, described) in self.experiment.loads.iter().enumerate() {
            // A point for each number of interfaces. If each gets all packets, the rates of all of them add up.
            let mut add = |label: &dyn Fn(f64) -> String, rate: f64, kind: PointKind| {
                let first = points.len();
                for interfaces in described.interfaces.iter().copied() {
                    let rate = if described.way.same { rate * f64::from(interfaces) } else { rate };
                    let label = label(rate) + &over(interfaces, described.way);
                    points.push(Point { load, label, rate, interfaces, first, kind: kind.clone() });
                }
            };
            match &described.kind {
                Kind::Offline { capture: path } => {
                    let capture = Capture::read(path)?;
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let label = format!("{name}: {} packets, {}B", short(capture.packets), short(capture.bytes));
                    add(&|_| label.clone(), f64::NAN, PointKind::Offline { path: path.clone(), capture });
                }
                Kind::Numbers { speeds } => {
                    for speed in speeds {
                        let rate = self.rate(*speed, None, f64::NAN, &described.name)?;
                        add(&|rate| format!("{} packets/s", short(rate)), rate, PointKind::Numbers);
                    }
                }
                Kind::Search { what, from, to, allowed, copies } => {
                    let capture = captured(what)?;
                    for copies in copies {
                        let rate = |rate| self.rate(Speed::Rate(rate), capture.as_ref(), f64::NAN, &described.name);
                        let range = Range { from: rate(*from)?, to: rate(*to)?, close: self.experiment.close };
                        let label = format!("highest rate with at most {} % lost{}", allowed * 100.0, at_once(*copies));
                        let (what, copies, allowed) = (what.clone(), *copies, *allowed);
                        add(&|_| label.clone(), f64::NAN, PointKind::Search { what, copies, range, allowed });
                    }
                }
                Kind::Rates { what, speeds, base, copies } => {
                    let capture = captured(what)?;
                    let base = match base {
                        None => f64::NAN,
                        Some(Base::Rate(rate)) => {
                            self.rate(Speed::Rate(*rate), capture.as_ref(), f64::NAN, &described.name)?
                        }
                        Some(Base::Auto) => self.base(described, what, (speeds, copies), state, dry)?,
                    };
                    for speed in speeds {
                        for copies in copies {
                            let rate = self.rate(*speed, capture.as_ref(), base, &described.name)? * f64::from(*copies);
                            add(
                                &|rate| label(*speed, rate, *copies),
                                rate,
                                PointKind::Rate { what: what.clone(), copies: *copies },
                            );
                        }
                    }
                }
            }
        }
        Ok(points)
    }

    fn rate(&self, speed: Speed, capture: Option<&Capture>, base: f64, load: &str) -> Outcome<f64> {
        let rate = match (speed, capture) {
            (Speed::Base(times), _) => Some(times * base),
            (Speed::Rate(crate::units::Rate::Packets(packets)), None) => Some(packets),
            (Speed::Rate(rate), Some(capture)) => capture.packets_a_second(rate),
            (Speed::Rate(_), None) => None,
        };
        rate.ok_or_else(|| {
            Problem::Usage(format!(
                "load {load}: only a capture has bits and a speed of its own; packets a second are needed here"
            ))
        })
    }

    /// The base rate of a load whose base is `auto`. The load's highest rate is then twice the first engine's bound.
    fn base(
        &self,
        described: &Load,
        what: &What,
        (speeds, copies): (&[Speed], &[u32]),
        state: &mut State,
        dry: bool,
    ) -> Outcome<f64> {
        let load = &described.name;
        let fact = format!("base of {load}");
        if let Some(base) = state.facts.get(&fact) {
            return Ok(*base);
        }
        if dry {
            return Ok(f64::NAN);
        }
        let engine = &self.experiment.engines[self.experiment.baseline];
        println!("{load}: looking for the bound of {}, which its rates are chosen by", engine.name);
        let dir = self.dir.join("runs").join(format!("{}-base", folder_name(load)));
        let interfaces = described.interfaces.first().copied().unwrap_or(1);
        let mut rig = self.rig(engine, Some(Sending { what, copies: 1, interfaces }), described.way, &dir)?;
        let range = Range { from: 10_000.0, to: 20e6, close: 0.1 };
        let searches = Searches { range, repeats: 1, allowed: 0.01 };
        let bound = searches.run(&mut |_, rate, _| {
            let losses = rig.trial(rate)?.losses;
            println!("  {} packets/s: lost {}", short(rate), losses.describe());
            Ok(losses)
        });
        let ended = rig.end();
        let bound = bound?.rate.value;
        ended?;
        if bound <= 0.0 {
            return Err(Problem::Failed(format!(
                "load {load}: {} takes no rate without loss, so there is no base",
                engine.name
            )));
        }
        let times = |speed: &Speed| match speed {
            Speed::Base(times) => *times,
            Speed::Rate(_) => 0.0,
        };
        let most = |of: &[u32]| f64::from(of.iter().copied().max().unwrap_or(1));
        let each = if described.way.same { most(&described.interfaces) } else { 1.0 };
        let most = speeds.iter().map(times).fold(0.0, f64::max) * most(copies) * each;
        let base = 2.0 * bound / most;
        state.fact(&fact, base)?;
        Ok(base)
    }

    /// An engine with its sender. An engine that takes packet counts has none.
    fn rig(&self, engine: &Contract, sending: Option<Sending<'_>>, way: Way, dir: &Path) -> Outcome<Rig> {
        let mut session = Session::begin()?;
        let folder = session.make_folder()?;
        let several = sending.is_some_and(|sending| sending.interfaces > 1);
        let (wire, sender): (Option<Wire>, Box<dyn Sender>) = match sending {
            None => (None, Box::new(load::Stream { socket: folder.join("sim"), lose: 0.0, most: None })),
            Some(Sending { what, copies, interfaces }) => {
                let mut wire = self.wire(&mut session, interfaces, way)?;
                engine.apart.kind.connect(&mut wire, &mut session)?;
                let sender = load::Traffic {
                    what: what.clone(),
                    copies,
                    renew: way.renew.then_some(0),
                    peer: wire.far.as_ref().map(|far| far.sender.clone()),
                    interfaces: wire.pairs.iter().map(|pair| pair.sender.clone()).collect(),
                    same: way.same,
                    folder: folder.clone(),
                    cpus: self.experiment.cpus.sender.clone(),
                };
                (Some(wire), Box::new(sender))
            }
        };
        let engine = match (way.inline, several) {
            (true, _) => engine.clone().listed(),
            (_, true) => engine.clone().several(),
            _ => engine.clone(),
        };
        let mut rig = Rig::new(engine, wire, sender, self.experiment.times, dir, folder, session);
        rig.probe_cpus = self.experiment.cpus.sender.clone();
        Ok(rig)
    }

    /// The interfaces: the given ones, or new ones.
    fn wire(&self, session: &mut Session, interfaces: u32, way: Way) -> Outcome<Wire> {
        let given = &self.experiment.wire;
        if given.is_empty() {
            return Wire::make(session, self.experiment.mtu, interfaces, way.inline);
        }
        if way.inline {
            let why = "inline: needs two pairs of interfaces, which are made; leave `wire` out";
            return Err(Problem::Usage(why.to_owned()));
        }
        let some = given.get(..interfaces as usize).ok_or_else(|| {
            Problem::Usage(format!("interfaces: {interfaces} are needed, and `wire` names {}", given.len()))
        })?;
        Wire::given(some)
    }

    /// Executes the remaining runs. A run that fails is recorded, and the others continue.
    fn make_runs(&self, keys: &[Key], state: &mut State) -> Outcome<()> {
        let missing: Vec<Key> = keys.iter().copied().filter(|key| !state.has(*key)).collect();
        if missing.len() < keys.len() {
            println!("{} of {} runs are there already", keys.len() - missing.len(), keys.len());
        }
        // Duration of the latest run of each engine at each point.
        let mut took: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (made, key) in missing.iter().enumerate() {
            let mean = took.values().sum::<f64>() / took.len() as f64;
            let left =
                missing[made..].iter().map(|key| took.get(&(key.point, key.engine)).unwrap_or(&mean)).sum::<f64>();
            let left = if took.is_empty() { String::new() } else { format!(" ({} left)", spoken(left)) };
            let begun = Instant::now();
            print!("[{}/{}]{left} {} … ", made + 1, missing.len(), self.describe(*key));
            let _ = std::io::stdout().flush();
            let dir = self.folder(*key);
            let result = self.make_run(*key, &dir);
            took.insert((key.point, key.engine), begun.elapsed().as_secs_f64());
            if !self.keep_logs {
                tidy(&dir);
            }
            match result {
                Ok(metrics) => {
                    println!("{}", result::brief(&self.points[key.point], &metrics));
                    state.keep(*key, metrics)?;
                }
                Err(Problem::Interrupted(why)) => {
                    println!("stopped");
                    return Err(Problem::Interrupted(format!("{why}; the same command goes on from here")));
                }
                Err(problem) => {
                    println!("failed");
                    eprintln!("margay lab: {problem}");
                    state.fail(*key, &problem.to_string())?;
                }
            }
            if signals::stop_asked() {
                return Err(Problem::Interrupted("stopped; the same command goes on from here".to_owned()));
            }
        }
        Ok(())
    }

    fn make_run(&self, key: Key, dir: &Path) -> Outcome<Metrics> {
        let (point, engine) = (&self.points[key.point], &self.experiment.engines[key.engine]);
        let way = self.experiment.loads[point.load].way;
        let sending = |what, copies| Sending { what, copies, interfaces: point.interfaces };
        let _ = std::fs::remove_dir_all(dir);
        match &point.kind {
            PointKind::Offline { path, capture } => {
                let mut session = Session::begin()?;
                let within = Duration::from_secs(24 * 3600);
                let period = self.experiment.times.period;
                let run = offline::run(engine, path, capture, period, within, dir, &mut session)?;
                Ok(result::of_offline(&run, capture))
            }
            PointKind::Rate { what, copies } => {
                self.at_rate(engine, Some(sending(what, *copies)), way, point.rate, dir)
            }
            PointKind::Numbers => self.at_rate(engine, None, way, point.rate, dir),
            PointKind::Search { what, copies, range, allowed } => {
                let mut rig = self.rig(engine, Some(sending(what, *copies)), way, dir)?;
                let searches = Searches { range: *range, repeats: 1, allowed: *allowed };
                let mut trials: Vec<Trial> = Vec::new();
                let bound = searches.run(&mut |_, rate, _| {
                    let trial = rig.trial(rate)?;
                    let losses = trial.losses;
                    trials.push(trial);
                    Ok(losses)
                });
                let ended = rig.end();
                result::write_trials(&trials, &dir.join("trials.csv"))?;
                let bound = bound?;
                ended?;
                Ok(result::of_search(&bound, &trials))
            }
        }
    }

    fn at_rate(
        &self,
        engine: &Contract,
        what: Option<Sending<'_>>,
        way: Way,
        rate: f64,
        dir: &Path,
    ) -> Outcome<Metrics> {
        if what.is_none() && !engine.simulated {
            return Err(Problem::Usage(format!(
                "engine {}: no engine but the simulated one takes loads that are `simulated`",
                engine.name
            )));
        }
        let mut rig = self.rig(engine, what, way, dir)?;
        let trial = rig.trial(rate);
        let ended = rig.end();
        let trial = trial?;
        ended?;
        Ok(result::of_trial(&trial))
    }
}

/// The label of a rate in tables. A base that is not yet measured has no number.
fn label(speed: Speed, rate: f64, copies: u32) -> String {
    let copies = at_once(copies);
    match speed {
        Speed::Base(times) if rate.is_nan() => format!("{times}× the base, which the run measures first{copies}"),
        Speed::Base(times) => format!("{times}× = {} packets/s{copies}", short(rate)),
        Speed::Rate(_) => format!("{} packets/s{copies}", short(rate)),
    }
}

/// The properties of a load's packets that are known before sending.
fn captured(what: &What) -> Outcome<Option<Capture>> {
    match what {
        What::Capture(path) => Capture::read(path).map(Some),
        _ => Ok(None),
    }
}

fn at_once(copies: u32) -> String {
    if copies > 1 { format!(", {copies} copies at once") } else { String::new() }
}

/// How a load is on several interfaces, to append to its label.
fn over(interfaces: u32, way: Way) -> String {
    match (interfaces, way.same) {
        (0 | 1, _) => String::new(),
        (count, false) => format!(" on {count} interfaces"),
        (count, true) => format!(" on each of {count} interfaces"),
    }
}

/// Removes engine output that is not worth keeping for every run.
fn tidy(dir: &Path) {
    let keep = ["samples.csv", "console.log", "command", "trials.csv", "counters", "lab-counters.log"];
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if !keep.iter().any(|name| entry.file_name() == *name) {
            // A file that cannot be removed only wastes space.
            let _ = if entry.path().is_dir() {
                std::fs::remove_dir_all(entry.path())
            } else {
                std::fs::remove_file(entry.path())
            };
        }
    }
}

/// The numbers that each of several interfaces has, as columns with its number: `sent_1`.
const EACH: [&str; 5] = ["sent", "received", "dropped", "decoded", "loss"];

/// Stage names for columns.
fn stage_columns() -> impl Iterator<Item = (Stage, String)> {
    Stage::ALL.into_iter().map(|stage| (stage, format!("lost_{}", stage.name().to_lowercase())))
}
