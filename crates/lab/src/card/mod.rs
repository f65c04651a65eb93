//! `margay lab card`: a simulated network card that detects (`margay_card`, docs/card.md).

mod experiment;
mod record;
mod report;
mod rules;
mod run;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use margay_card::area::{Estimate, estimate};
use margay_card::cost::{Costs, Source, Table};
use margay_card::design::Design;
use margay_card::model::{Load, Outcome as Replayed, STAGES, simulate};
use margay_card::record::Recorder;
use margay_card::search::{self, Found};
use margay_card::synthetic;
use margay_card::trace::Trace;

use crate::chart::{Chart, Series};
use crate::problem::{Outcome, Problem};
use crate::signals;

/// Simulates a network card that detects
#[derive(clap::Subcommand)]
pub(crate) enum Card {
    /// Replays work through one design
    Simulate(SimulateArgs),
    /// Compares every design of a grid by throughput, area and power
    Search(SearchArgs),
    /// Records the work of captures with rules: what each packet costs a card
    Record(record::RecordArgs),
    /// Recombines flows of recorded work
    Mix(record::MixArgs),
    /// Runs an experiment file: compares a study's figures with ours, and writes a report
    Run(run::RunArgs),
    /// Measures the simulator's own speed
    Bench(BenchArgs),
}

#[derive(clap::Args)]
struct Input {
    /// Costs of the firmware's steps [default: the built-in lab/card/costs.yaml]
    #[arg(long)]
    costs: Option<PathBuf>,
    /// A work trace [default: synthetic work]
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Packets of synthetic work
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    packets: u32,
    /// Flows of synthetic work
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// Seed of synthetic work
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Offered rate in Mbit/s [default: as fast as the card has room]
    #[arg(long)]
    rate: Option<f64>,
}

#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// The design [default: the study's, lab/card/linesnort.yaml]
    #[arg(long)]
    design: Option<PathBuf>,
    #[command(flatten)]
    input: Input,
    /// Halve and double each estimated cost, and show the effect on the throughput
    #[arg(long)]
    sensitivity: bool,
}

#[derive(clap::Args)]
pub(crate) struct SearchArgs {
    /// A design whose parameters may have lists of values
    #[arg(long)]
    grid: PathBuf,
    #[command(flatten)]
    input: Input,
    /// A file of results, one on each line; an interrupted search resumes from it
    #[arg(long)]
    out: PathBuf,
    /// Where to draw throughput against area (SVG)
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Show the smallest design that reaches this many Mbit/s
    #[arg(long)]
    reach: Option<f64>,
    /// With at most this loss, in %
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Threads [default: the number of processors]
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    input: Input,
}

struct Work {
    table: Option<Table>,
    costs: Costs,
    trace: Trace,
    load: Load,
}

fn text(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|e| Problem::file("read", path, e))
}

fn bad(why: margay_card::Bad) -> Problem {
    Problem::Usage(why.to_string())
}

impl Input {
    fn open(&self) -> Outcome<Work> {
        let table = match &self.costs {
            Some(path) => Some(Table::from_yaml(&text(path)?, &path.display().to_string()).map_err(bad)?),
            None => None,
        };
        let trace = match &self.trace {
            Some(path) => {
                let data = std::fs::read(path).map_err(|e| Problem::file("read", path, e))?;
                Trace::from_bytes(&data, &path.display().to_string()).map_err(bad)?
            }
            None => {
                let made = synthetic::trace(self.packets as usize, self.flows as usize, self.seed);
                made.check("made-up work").map_err(bad)?;
                made
            }
        };
        let load = match self.rate {
            None => Load::Saturated,
            Some(rate) if rate.is_finite() && rate > 0.0 => Load::Even(rate * 1e6),
            Some(rate) => return Err(Problem::Usage(format!("--rate {rate}: the rate is to be more than 0 Mbit/s"))),
        };
        let costs = table.as_ref().map_or_else(Costs::default, |t| t.costs.clone());
        Ok(Work { table, costs, trace, load })
    }

    fn kind(&self) -> String {
        match &self.trace {
            Some(path) => format!("work of {}", path.display()),
            None => "made-up work (what real packets ask for may differ)".to_owned(),
        }
    }
}

/// Runs `margay lab card`.
///
/// # Errors
/// A file that cannot be read or used, or written.
pub(crate) fn run(command: &Card, recorder: Option<Recorder>) -> Outcome<ExitCode> {
    match command {
        Card::Simulate(args) => one(args)?,
        Card::Search(args) => many(args)?,
        Card::Record(args) => record::record(args, recorder)?,
        Card::Mix(args) => record::mixed(args)?,
        Card::Run(args) => run::run(args, recorder)?,
        Card::Bench(args) => bench(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn one(args: &SimulateArgs) -> Outcome<()> {
    let design = match &args.design {
        Some(path) => Design::from_yaml(&text(path)?, &path.display().to_string()).map_err(bad)?,
        None => Design::default(),
    };
    let work = args.input.open()?;
    let outcome = simulate(&design, &work.costs, &work.trace, work.load);
    print!("{}{}", args.input.kind() + "\n", table(&design, &outcome));
    if args.sensitivity {
        let base = outcome.rate();
        println!("\nthroughput where an estimated cost is half and twice as high");
        for name in margay_card::cost::NAMES {
            let estimated = |t: &Table| t.sources.iter().any(|s| s.0 == *name && s.1 == Source::Estimated);
            if work.table.as_ref().is_some_and(|t| !estimated(t)) {
                continue;
            }
            let mut change = [0.0; 2];
            for (by, change) in [0.5, 2.0].into_iter().zip(&mut change) {
                let mut costs = work.costs.clone();
                if let Some(cost) = costs.get_mut(name) {
                    *cost *= by;
                }
                costs.match_stride = costs.match_stride.max(1.0);
                *change = (simulate(&design, &costs, &work.trace, work.load).rate() / base - 1.0) * 100.0;
            }
            println!("  {name:<14} {:+6.1} %  {:+6.1} %", change[0], change[1]);
        }
    }
    Ok(())
}

/// The result as lines of text.
fn table(design: &Design, outcome: &Replayed) -> String {
    let mut out = String::new();
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "throughput   {:.1} Mbit/s, {} packets, {:.3} % lost",
        outcome.rate() / 1e6,
        outcome.done,
        outcome.loss() * 100.0
    );
    let _ = writeln!(
        out,
        "latency      {:.2} µs mean, at most {:.2} µs for 99 %",
        outcome.mean_latency() * 1e6,
        outcome.latency_at(0.99) * 1e6
    );
    let chips: Vec<String> = outcome.dram.iter().map(|d| format!("{:.1}", share(*d, outcome.time))).collect();
    let _ = writeln!(
        out,
        "busy         cores {:.1} %, matcher {:.1} %, DRAM {} %",
        outcome.core_share() * 100.0,
        share(outcome.matcher, outcome.time),
        chips.join(" ")
    );
    let _ = writeln!(
        out,
        "memory       {} accesses, {} rows opened, {} of {} reads missed",
        outcome.accesses, outcome.rows, outcome.reads.1, outcome.reads.0
    );
    let _ = writeln!(
        out,
        "rules        {} reports verified, {} alerts, flows moved {} times",
        outcome.verified, outcome.alerts, outcome.moved
    );
    let all: u64 = outcome.stages.iter().sum();
    for (name, time) in STAGES.iter().zip(outcome.stages) {
        let _ = writeln!(out, "  {name:<18} {:5.1} % of the cores' work", share(time, all));
    }
    let Estimate { area, power } = estimate(design);
    let _ = writeln!(out, "estimate     {area:.1} mm², {power:.2} W (90 nm)");
    out
}

const HEAD: &str = "number,rate,loss,latency,area,power,design";

/// The results of an earlier run of the same search. The first line identifies grid, work and load.
fn found_before(path: &Path, what: &str, designs: usize) -> Outcome<BTreeMap<usize, Found>> {
    let mut known = BTreeMap::new();
    let data = match std::fs::read_to_string(path) {
        Ok(data) => data,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(known),
        Err(e) => return Err(Problem::file("read", path, e)),
    };
    if data.lines().next() != Some(what) {
        return Err(Problem::Usage(format!(
            "{}:1: these are results of another search; name another file with --out",
            path.display()
        )));
    }
    // Ignore a partial line that an interrupted search left.
    let whole = data.rfind('\n').map_or("", |end| &data[..end]);
    for (number, line) in whole.lines().enumerate().skip(2) {
        let values: Vec<f64> = line.split(',').take(6).filter_map(|v| v.parse().ok()).collect();
        let [n, rate, loss, latency, area, power] = values[..] else {
            return Err(Problem::Usage(format!("{}:{}: this is not a result", path.display(), number + 1)));
        };
        let n = n as usize;
        if n < designs {
            known.insert(n, Found { number: n, rate, loss, latency, cost: Estimate { area, power } });
        }
    }
    Ok(known)
}

fn many(args: &SearchArgs) -> Outcome<()> {
    let (candidates, impossible) = search::grid(&text(&args.grid)?, &args.grid.display().to_string()).map_err(bad)?;
    let work = args.input.open()?;
    if candidates.is_empty() {
        return Err(Problem::Usage(format!("{}: no design of the grid can be built", args.grid.display())));
    }
    // FNV over everything that affects the results.
    let everything = format!("{candidates:?}{:?}{:?}", work.costs, work.load).into_bytes();
    let bytes = everything.iter().copied().chain(work.trace.to_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let what = format!("# margay lab card search {hash:016x}");
    let mut found = found_before(&args.out, &what, candidates.len())?;
    let todo: Vec<usize> = (0..candidates.len()).filter(|n| !found.contains_key(n)).collect();
    println!(
        "{}; {} designs, {impossible} that cannot be built, {} known already",
        args.input.kind(),
        candidates.len(),
        found.len()
    );
    // Rewrite the complete lines, then append a line for each result.
    let mut head = format!("{what}\n{HEAD}\n");
    let line = |f: &Found| {
        let c = candidates.get(f.number).map_or("", |c| &c.name);
        format!("{},{},{},{},{},{},{c}\n", f.number, f.rate, f.loss, f.latency, f.cost.area, f.cost.power)
    };
    found.values().for_each(|f| head.push_str(&line(f)));
    let failed = |e| Problem::file("write", &args.out, e);
    std::fs::write(&args.out, head).map_err(failed)?;
    let mut file = std::fs::File::options().append(true).open(&args.out).map_err(failed)?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (begun, all, mut told, mut wrong) = (Instant::now(), candidates.len(), Instant::now(), None);
    signals::listen();
    search::run(&candidates, &todo, &work.costs, &work.trace, work.load, threads, &mut |f| {
        found.insert(f.number, f.clone());
        if told.elapsed().as_secs() >= 2 {
            told = Instant::now();
            eprintln!("{} of {all} designs after {:.0} s", found.len(), begun.elapsed().as_secs_f64());
        }
        wrong = file.write_all(line(f).as_bytes()).err();
        wrong.is_none() && !signals::stop_asked()
    });
    if let Some(e) = wrong {
        return Err(failed(e));
    }
    if found.len() < all {
        return Err(Problem::Interrupted(format!(
            "stopped after {} of {all} designs; the same command goes on",
            found.len()
        )));
    }
    println!("{} designs in {:.1} s", todo.len(), begun.elapsed().as_secs_f64());
    let found: Vec<Found> = found.into_values().collect();
    let front = search::pareto(&found);
    let show = |f: &Found| {
        let name = candidates.get(f.number).map_or("", |c| &c.name);
        println!("{:9.1} Mbit/s {:7.1} mm² {:6.2} W  {name}", f.rate / 1e6, f.cost.area, f.cost.power);
    };
    println!("designs that no smaller one reaches:");
    front.iter().for_each(|f| show(f));
    if let Some(reach) = args.reach {
        println!("smallest that reaches {reach} Mbit/s with at most {} % lost:", args.loss);
        match search::cheapest(&found, reach * 1e6, args.loss / 100.0) {
            Some(f) => show(f),
            None => println!("none of the grid"),
        }
    }
    if let Some(path) = &args.plot {
        let foot = format!("{}; area is an estimate for 90 nm (docs/card.md)", args.input.kind());
        std::fs::write(path, chart(&found, &front, foot).svg()).map_err(|e| Problem::file("write", path, e))?;
    }
    Ok(())
}

fn chart(found: &[Found], front: &[&Found], foot: String) -> Chart {
    let point = |f: &Found| (f.cost.area, f.rate / 1e6);
    let mut all: Vec<(f64, f64)> = found.iter().map(point).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = |name: &str, colour, dots, points| Series {
        name: name.to_owned(),
        colour,
        dashed: false,
        dots,
        points,
        range: Vec::new(),
    };
    let best = front.iter().map(|f| point(f)).collect();
    Chart {
        title: "Throughput by area".to_owned(),
        x: "area in mm²".to_owned(),
        y: "Mbit/s".to_owned(),
        series: vec![series("designs", 5, true, all), series("none smaller is as fast", 1, false, best)],
        places: Vec::new(),
        foot: vec![foot],
    }
}

fn bench(args: &BenchArgs) -> Outcome<()> {
    let work = args.input.open()?;
    let begun = Instant::now();
    let outcome = simulate(&Design::default(), &work.costs, &work.trace, work.load);
    let took = begun.elapsed().as_secs_f64();
    println!("{} packets in {took:.3} s: {:.0} simulated packets a second", outcome.done, outcome.done as f64 / took);
    Ok(())
}
