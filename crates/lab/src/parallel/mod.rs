//! `margay lab parallel`: compares ways of distributing the flows of one capture to several workers with one worker.
//!
//! Every run is a separate process that reads the capture into memory before it inspects the first packet
//! (`--pcap-preload`), so that neither the start nor the disk is measured. Runs with one worker alternate with runs with
//! several, and the result is the ratio of two consecutive runs. Each run must have the same number of alerts.
//! `simulate` extrapolates beyond the machine's processors, from each packet's cost with one worker.

mod engine;
mod plot;
mod predict;
mod simulate;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;

use crate::command::{own_command, own_engine};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::quiet::{Company, Witness};
use crate::signals;
use engine::{Measured, Run, Way};
use predict::Prediction;
use simulate::{Machine, Strategy};

/// The study's traces: the preset, a description, and the divisor of `--size`.
const TRACES: [(&str, &str, u64); 3] = [
    ("office", "many flows (LL)", 1),
    ("elephant", "one flow (DEF2)", 1),
    // The events of this trace are several times as large as its packets.
    ("alert-storm", "short flows, all alert (DEF1)", 4),
];
/// Schedulers that an engine may have, in display order.
const SCHEDULERS: [&str; 6] = ["hash", "ippair", "shortest-queue", "conservative", "optimistic", "adaptive"];
/// Numbers of workers to simulate, up to the requested one.
const SIMULATED: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// `--quick`: size, runs of each kind, and the time after which no new repeat begins.
const QUICK: (&str, usize, Duration) = ("40MB", 3, Duration::from_secs(120));

/// Measures the ways of distributing one stream of packets to several workers
#[derive(Arguments)]
pub(crate) struct Args {
    /// The engine's configuration
    #[arg(short = 'c', long)]
    config: Option<PathBuf>,
    /// Rules; a synthetic trace with rules of its own keeps those
    #[arg(short = 'S', long)]
    rules: Option<PathBuf>,
    /// A capture to measure with, instead of the synthetic ones; may be repeated
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Presets to make traces from; `traffic gen --list-presets` lists them
    #[arg(long, value_delimiter = ',', default_values_t = TRACES.map(|t| t.0.to_owned()))]
    presets: Vec<String>,
    /// Size of a synthetic trace; alert-storm has a quarter of it
    #[arg(long, default_value = "200MB")]
    size: String,
    /// Ways to distribute flows (`autofp-scheduler`) [default: all that the engine has, except ippair]
    #[arg(long, value_delimiter = ',')]
    schedulers: Vec<String>,
    /// Numbers of workers [default: 1, 2, 4 and so on, up to the number of processors]
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Number of runs for each; 0 only simulates
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Small traces, fewer runs, the largest number of workers only: under three minutes with the default schedulers
    #[arg(long)]
    quick: bool,
    /// Simulate up to this many workers; 0 turns the simulation off
    #[arg(long, value_name = "WORKERS", default_value_t = 64)]
    simulate: usize,
    /// Costs of parallel work in the simulation, in nanoseconds: name=value, see docs/parallel.md
    #[arg(long = "machine", value_name = "NAME=VALUE", value_delimiter = ',')]
    machine: Vec<String>,
    /// More of the engine's settings, as its own --set takes them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Folder for traces, tables and plots
    #[arg(short, long, default_value = "parallel")]
    output: PathBuf,
}

/// A capture, with the rules to measure it with.
struct Trace {
    name: String,
    what: String,
    file: PathBuf,
    rules: Option<PathBuf>,
}

/// The measurements of one way on one trace.
pub(crate) struct Row {
    trace: String,
    way: Way,
    runs: Vec<Measured>,
    /// Speed-up over one worker, as pairs of runs.
    speedup: Vec<(f64, f64)>,
    /// The worst disturbance by other activity on the machine.
    company: Option<Company>,
}

/// All results.
#[derive(Default)]
pub(crate) struct Results {
    /// The name of each trace, and its description.
    traces: Vec<(String, String)>,
    rows: Vec<Row>,
    predictions: Vec<Prediction>,
}

/// The context of a run.
struct Bench<'a> {
    args: &'a Args,
    schedulers: Vec<String>,
    ways: Vec<Way>,
    repeats: usize,
    machine: Machine,
    begun: Instant,
    logs: PathBuf,
    session: Session,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or written, or an engine that cannot be run.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let mut machine = Machine::default();
    for text in &args.machine {
        machine.set(text).map_err(|e| Problem::Usage(format!("--machine: {e}")))?;
    }
    if args.repeats == 0 && args.simulate == 0 {
        return Err(Problem::Usage("--repeats 0 leaves nothing to do without --simulate".to_owned()));
    }
    if args.workers.contains(&0) {
        return Err(Problem::Usage("--workers: there is at least 1".to_owned()));
    }
    signals::listen();
    let dir = &args.output;
    std::fs::create_dir_all(dir).map_err(|e| Problem::file("make", dir, e))?;
    let logs = dir.join("logs");
    std::fs::create_dir_all(&logs).map_err(|e| Problem::file("make", &logs, e))?;
    let schedulers = schedulers(args, &logs)?;
    let mut bench = Bench {
        args,
        ways: ways(args, &schedulers),
        schedulers,
        repeats: if args.quick { args.repeats.min(QUICK.1) } else { args.repeats },
        machine,
        begun: Instant::now(),
        logs,
        session: Session::begin()?,
    };
    let mut results = Results::default();
    let measured = bench.all(&mut results);
    // The events of the last run are by far the largest files.
    let _ = std::fs::remove_dir_all(&bench.logs);
    let stopped = match measured {
        Ok(()) => None,
        Err(Problem::Interrupted(why)) => Some(why),
        Err(other) => return Err(other),
    };
    let text = table::markdown(&results);
    write(&dir.join("parallel.md"), text.as_bytes())?;
    let about = table::About {
        machine: crate::monitor::describe(),
        schedulers: &bench.schedulers,
        simulated: &bench.machine,
        complete: stopped.is_none(),
    };
    write(&dir.join("parallel.json"), table::json(&results, &about).as_bytes())?;
    for (name, what) in &results.traces {
        plot::draw(name, what, &results, &bench.schedulers, dir)?;
    }
    print!("{text}");
    if stopped.is_some() {
        return Err(Problem::Interrupted(format!("stopped; what was measured is in {}", dir.display())));
    }
    match results.rows.iter().all(|r| table::same_alerts(r, &results.rows)) {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Problem::Failed("alerts are not as many as with one worker: see the table".to_owned())),
    }
}

impl Bench<'_> {
    /// Measures and simulates everything. If it ends early, `results` has everything up to that point.
    fn all(&mut self, results: &mut Results) -> Outcome<()> {
        let traces = self.traces()?;
        for trace in &traces {
            results.traces.push((trace.name.clone(), trace.what.clone()));
            let first = results.rows.len();
            let costs = if self.args.simulate > 0 { Some(self.costs(trace)?) } else { None };
            let ways: &[Way] = if self.repeats > 0 { &self.ways } else { &[] };
            results.rows.extend(ways.iter().map(|way| Row {
                trace: trace.name.clone(),
                way: way.clone(),
                runs: Vec::new(),
                speedup: Vec::new(),
                company: None,
            }));
            let rows = results.rows.get_mut(first..).unwrap_or_default();
            let ended = self.measure(trace, rows, traces.len());
            if let Some(load) = costs {
                results.predictions.push(predict::predict(&trace.name, load, rows, self.args.simulate, &self.machine));
            }
            ended?;
        }
        Ok(())
    }

    fn measure(&mut self, trace: &Trace, rows: &mut [Row], traces: usize) -> Outcome<()> {
        let begun = Instant::now();
        for repeat in 0..self.repeats {
            if self.args.quick && repeat > 0 && begun.elapsed() * traces as u32 > QUICK.2 {
                eprintln!("{}: {repeat} of {} runs, for time's sake", trace.name, self.repeats);
                break;
            }
            let mut one = f64::NAN;
            for row in &mut *rows {
                let witness = Witness::begin();
                let measured = engine_run(self.args, &self.logs, trace).measure(&row.way, &mut self.session)?;
                let company = witness.end();
                eprintln!(
                    "{:>4.0} s  {} {} {}: {:.3} s{}",
                    self.begun.elapsed().as_secs_f64(),
                    trace.name,
                    repeat + 1,
                    row.way,
                    measured.seconds,
                    company.mark()
                );
                row.company = Some(row.company.map_or(company, |before| before.worse(&company)));
                // Each engine side by side did the whole work.
                let work = match row.way {
                    Way::One => {
                        one = measured.seconds;
                        1.0
                    }
                    Way::Several { .. } => 1.0,
                    Way::Beside(engines) => engines as f64,
                };
                row.speedup.push((one * work, measured.seconds));
                row.runs.push(measured);
            }
        }
        Ok(())
    }

    /// The cost of each packet with one worker.
    fn costs(&mut self, trace: &Trace) -> Outcome<simulate::Load> {
        eprintln!("{:>4.0} s  {}: what each packet costs", self.begun.elapsed().as_secs_f64(), trace.name);
        let kept = self.args.output.join(format!("{}.costs", trace.name));
        if self.repeats == 0 && kept.exists() {
            return simulate::Load::read(&kept);
        }
        let file = engine_run(self.args, &self.logs, trace).costs(&mut self.session)?;
        // Cache the file for further simulations.
        std::fs::copy(&file, &kept).map_err(|e| Problem::file("write", &kept, e))?;
        simulate::Load::read(&kept)
    }

    fn traces(&mut self) -> Outcome<Vec<Trace>> {
        let args = self.args;
        let name = |file: &Path| file.file_stem().map_or_else(|| "trace".into(), |n| n.to_string_lossy().into_owned());
        if !args.traces.is_empty() {
            let of = |file: &PathBuf| Trace {
                name: name(file),
                what: file.display().to_string(),
                file: file.clone(),
                rules: args.rules.clone(),
            };
            return Ok(args.traces.iter().map(of).collect());
        }
        let size = if args.quick { QUICK.0 } else { &args.size };
        let size = crate::traffic::size(size).map_err(|e| Problem::Usage(format!("--size: {e}")))?;
        let mut made = Vec::new();
        for preset in &args.presets {
            let known = TRACES.iter().find(|t| t.0 == preset);
            let size = size / known.map_or(1, |t| t.2);
            let stem = if args.quick { format!("{preset}-quick") } else { preset.clone() };
            let file = args.output.join(format!("{stem}.pcap"));
            let own = args.output.join(format!("{stem}.rules"));
            if !file.exists() {
                self.make(preset, size, &file)?;
            }
            made.push(Trace {
                name: preset.clone(),
                what: known.map_or_else(|| preset.clone(), |t| t.1.to_owned()),
                file,
                rules: if own.exists() { Some(own) } else { args.rules.clone() },
            });
        }
        Ok(made)
    }

    /// Makes a trace. An existing file is complete.
    fn make(&mut self, preset: &str, size: u64, file: &Path) -> Outcome<()> {
        eprintln!("making {}", file.display());
        let words = own_command()?;
        let (program, more) = words.split_first().ok_or_else(|| Problem::Failed("no program".to_owned()))?;
        let part = file.with_extension("part.pcap");
        let mut command = std::process::Command::new(program);
        command
            .args(more)
            .args(["traffic", "gen", "--preset", preset, "--size"])
            .arg(size.to_string())
            .arg("-o")
            .arg(&part);
        self.session.mark(&mut command)?;
        let status = command.status().map_err(|e| Problem::Failed(format!("cannot run {program}: {e}")))?;
        let rules = part.with_extension("rules");
        if signals::stop_asked() || !status.success() {
            let _ = std::fs::remove_file(&part);
            let _ = std::fs::remove_file(&rules);
            return Err(match signals::stop_asked() {
                true => Problem::Interrupted("stopped".to_owned()),
                false => Problem::Failed(format!("the trace {preset} was not made")),
            });
        }
        let moved = |from: &Path, to: &Path| std::fs::rename(from, to).map_err(|e| Problem::file("make", to, e));
        if rules.exists() {
            moved(&rules, &file.with_extension("rules"))?;
        }
        moved(&part, file)
    }
}

fn engine_run<'a>(args: &'a Args, logs: &'a Path, trace: &'a Trace) -> Run<'a> {
    Run {
        engine: own_engine(),
        config: args.config.as_deref(),
        rules: trace.rules.as_deref(),
        capture: &trace.file,
        sets: &args.sets,
        logs,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    std::fs::write(path, bytes).map_err(|e| Problem::file("write", path, e))
}

/// The requested schedulers, or all that the engine has and that matter for synthetic traces.
fn schedulers(args: &Args, folder: &Path) -> Outcome<Vec<String>> {
    if !args.schedulers.is_empty() {
        return Ok(args.schedulers.clone());
    }
    let engine = own_engine();
    let mut there = Vec::new();
    for name in SCHEDULERS.into_iter().filter(|s| *s != "ippair") {
        if Run::has(&engine, name, folder)? {
            there.push(name.to_owned());
        }
    }
    Ok(there)
}

/// One worker first, then every scheduler with every number of workers, and as many engines side by side.
fn ways(args: &Args, schedulers: &[String]) -> Vec<Way> {
    let own = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let numbers = match args.workers.is_empty() {
        true => numbers(own, args.quick),
        false => args.workers.clone(),
    };
    let several =
        |n: &usize| schedulers.iter().map(|s| Way::Several { scheduler: s.clone(), workers: *n }).collect::<Vec<_>>();
    let beside = numbers.iter().filter(|n| (2..=own).contains(*n)).map(|n| Way::Beside(*n));
    std::iter::once(Way::One).chain(numbers.iter().flat_map(several)).chain(beside).collect()
}

/// 1, 2, 4 and so on up to the number of processors, which is included; with `most` only that one.
fn numbers(own: usize, most: bool) -> Vec<usize> {
    if most {
        return vec![own];
    }
    let mut all: Vec<usize> = std::iter::successors(Some(1usize), |n| Some(n * 2)).take_while(|n| *n < own).collect();
    all.push(own);
    all
}

/// Strategies to simulate, by name: the measured ones, and those that the engine does not have yet.
fn strategies() -> Vec<(&'static str, Strategy)> {
    SCHEDULERS.into_iter().chain([simulate::STUDY]).filter_map(|name| Strategy::of(name).map(|s| (name, s))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_those_of_the_machine() {
        assert_eq!(numbers(2, false), [1, 2]);
        assert_eq!(numbers(4, false), [1, 2, 4]);
        assert_eq!(numbers(6, false), [1, 2, 4, 6]);
        assert_eq!(numbers(8, true), [8]);
    }

    #[test]
    fn traces_are_presets() {
        for (name, ..) in TRACES {
            assert!(crate::traffic::has_preset(name), "{name}");
        }
        assert_eq!(strategies().len(), 6);
    }
}
