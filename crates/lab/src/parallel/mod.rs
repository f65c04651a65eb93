//! `margay bench parallel`: one capture, many workers: how much faster each way of distributing flows is than one worker.
//!
//! Every run is a process of its own that reads the capture into memory before it looks at the first packet
//! (`--pcap-preload`), so that neither start nor disk is measured. Runs with one worker and with several take turns, and what
//! counts is the ratio of two that were made one after the other. That the alerts are as many is looked at in each run.

mod engine;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as Arguments;

use crate::chart::{Chart, Series, png};
use crate::engine::{own_command, own_engine};
use crate::problem::{Outcome, Problem};
use crate::stats::paired_ratio;
use engine::{Measured, Way};

/// Traces that are made where none is named: many flows, one, and very many short ones of which every packet alerts.
const PRESETS: [&str; 4] = ["office", "elephant", "everything-alerts", "flow-storm"];

/// Measures the ways of distributing one stream of packets to several workers
#[derive(Arguments)]
pub(crate) struct Args {
    /// The engine's configuration
    #[arg(short = 'c', long)]
    config: Option<PathBuf>,
    /// Rules; a made trace that comes with rules of its own has those
    #[arg(short = 'S', long)]
    rules: Option<PathBuf>,
    /// A capture to measure with, instead of the made ones; more than one may be given
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Presets to make traces from; `traffic gen --list-presets` lists them
    #[arg(long, value_delimiter = ',', default_values_t = PRESETS.map(str::to_owned))]
    presets: Vec<String>,
    /// Size of a made trace
    #[arg(long, default_value = "200MB")]
    size: String,
    /// Ways to distribute flows (`autofp-scheduler`)
    #[arg(long, value_delimiter = ',', default_values_t = ["hash", "ippair", "shortest-queue"].map(str::to_owned))]
    schedulers: Vec<String>,
    /// Numbers of workers; those of the machine's processors unless told
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Runs of each
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// More of the engine's settings, as its own --set takes them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Folder for traces, tables and plots
    #[arg(short, long, default_value = "parallel")]
    output: PathBuf,
}

/// A capture, and the rules that it is measured with.
struct Trace {
    name: String,
    file: PathBuf,
    rules: Option<PathBuf>,
}

/// What was measured of one way on one trace.
pub(crate) struct Row {
    trace: String,
    way: Way,
    runs: Vec<Measured>,
    /// Times as fast as one worker, run by run.
    speedup: Vec<(f64, f64)>,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read, written or run.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if args.repeats == 0 {
        return Err(Problem::Usage("--repeats has to be at least 1".to_owned()));
    }
    let dir = &args.output;
    std::fs::create_dir_all(dir).map_err(|e| Problem::file("make", dir, e))?;
    let ways = ways(args);
    let mut rows: Vec<Row> = Vec::new();
    for trace in traces(args)? {
        let first = rows.len();
        rows.extend(ways.iter().map(|way| Row {
            trace: trace.name.clone(),
            way: way.clone(),
            runs: Vec::new(),
            speedup: Vec::new(),
        }));
        for repeat in 0..args.repeats {
            let mut one = f64::NAN;
            for row in rows.get_mut(first..).unwrap_or_default() {
                let measured = measure(args, &trace, &row.way)?;
                eprintln!("{} {} {}: {:.3} s", trace.name, repeat + 1, row.way, measured.seconds);
                if row.way == Way::One {
                    one = measured.seconds;
                }
                row.speedup.push((one, measured.seconds));
                row.runs.push(measured);
            }
        }
    }
    let text = table::markdown(&rows);
    write(&dir.join("parallel.md"), text.as_bytes())?;
    write(&dir.join("parallel.json"), table::json(&rows).as_bytes())?;
    let mut names: Vec<&str> = rows.iter().map(|r| r.trace.as_str()).collect();
    names.dedup();
    for name in names {
        draw(name, &rows, args, dir)?;
    }
    print!("{text}");
    match rows.iter().all(|r| table::same_alerts(r, &rows)) {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Problem::Failed("alerts are not as many as with one worker: see the table".to_owned())),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    std::fs::write(path, bytes).map_err(|e| Problem::file("write", path, e))
}

/// One worker first, then every way with every number.
fn ways(args: &Args) -> Vec<Way> {
    let own = std::thread::available_parallelism().map_or(2, usize::from);
    let numbers: Vec<usize> = match args.workers.is_empty() {
        true => (1..=own.max(2)).collect(),
        false => args.workers.clone(),
    };
    let several = args
        .schedulers
        .iter()
        .flat_map(|scheduler| numbers.iter().map(|n| Way::Several { scheduler: scheduler.clone(), workers: *n }));
    std::iter::once(Way::One).chain(several).collect()
}

fn traces(args: &Args) -> Outcome<Vec<Trace>> {
    let name = |file: &Path| file.file_stem().map_or_else(|| "trace".into(), |n| n.to_string_lossy().into_owned());
    if !args.traces.is_empty() {
        let of = |file: &PathBuf| Trace { name: name(file), file: file.clone(), rules: args.rules.clone() };
        return Ok(args.traces.iter().map(of).collect());
    }
    let mut made = Vec::new();
    for preset in &args.presets {
        let file = args.output.join(format!("{preset}.pcap"));
        let own = args.output.join(format!("{preset}.rules"));
        if !file.exists() {
            eprintln!("making {}", file.display());
            let words = own_command()?;
            let (program, more) = words.split_first().ok_or_else(|| Problem::Failed("no program".to_owned()))?;
            let status = std::process::Command::new(program)
                .args(more)
                .args(["traffic", "gen", "--preset", preset, "--size", &args.size, "-o"])
                .arg(&file)
                .status()
                .map_err(|e| Problem::Failed(format!("cannot run {program}: {e}")))?;
            if !status.success() {
                return Err(Problem::Failed(format!("the trace {preset} was not made")));
            }
        }
        let rules = if own.exists() { Some(own) } else { args.rules.clone() };
        made.push(Trace { name: preset.clone(), file, rules });
    }
    Ok(made)
}

fn measure(args: &Args, trace: &Trace, way: &Way) -> Outcome<Measured> {
    let run = engine::Run {
        engine: own_engine(),
        config: args.config.as_deref(),
        rules: trace.rules.as_deref(),
        capture: &trace.file,
        sets: &args.sets,
        logs: &args.output.join("logs"),
    };
    run.measure(way)
}

/// The speed-up by the number of workers, a line for each way.
fn draw(trace: &str, rows: &[Row], args: &Args, dir: &Path) -> Outcome<()> {
    let mut series = Vec::new();
    for (colour, scheduler) in args.schedulers.iter().enumerate() {
        let mut points = Vec::new();
        let mut range = Vec::new();
        for row in rows.iter().filter(|r| r.trace == trace) {
            if let Way::Several { scheduler: s, workers } = &row.way
                && s == scheduler
                && let Some(ratio) = paired_ratio(&row.speedup)
            {
                points.push((*workers as f64, ratio.value));
                if ratio.low.is_finite() {
                    range.push((ratio.low, ratio.high));
                }
            }
        }
        if range.len() != points.len() {
            range.clear();
        }
        series.push(Series { name: scheduler.clone(), colour, dashed: false, dots: false, points, range });
    }
    let most = rows.iter().map(|r| r.way.workers()).max().unwrap_or(1) as f64;
    series.push(Series {
        name: "as many times as workers".to_owned(),
        colour: 6,
        dashed: true,
        dots: false,
        points: vec![(1.0, 1.0), (most, most)],
        range: Vec::new(),
    });
    let chart = Chart {
        title: format!("{trace}: times as fast as one worker"),
        x: "workers".to_owned(),
        y: "speed-up".to_owned(),
        series,
        places: Vec::new(),
        foot: Vec::new(),
    };
    let svg = chart.svg();
    write(&dir.join(format!("{trace}.svg")), svg.as_bytes())?;
    let (picture, _) = png::render(&svg).map_err(Problem::Failed)?;
    write(&dir.join(format!("{trace}.png")), &picture)
}
