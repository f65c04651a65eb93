//! The cost of reading the clock in each isolation. In study 3 it was half of an engine's time and more.
#![allow(unsafe_code)]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use super::{Job, Kind};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::stats;

/// Measure the cost of reading the clock: on this machine, in a container, in a virtual machine
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Readings in each repeat
    #[arg(long, default_value_t = 10_000_000)]
    calls: u64,
    /// Repeats of each isolation, in turn
    #[arg(long, short = 'n', default_value_t = 5)]
    repeats: u32,
    /// Write the duration of each repeat, as CSV
    #[arg(long, short = 'o')]
    output: Option<std::path::PathBuf>,
}

/// Read the clock in a loop and print the duration; a part of `clock`
#[derive(clap::Args)]
pub(crate) struct LoopArgs {
    #[arg(long)]
    calls: u64,
}

/// The time stamp counter, if programs may read the processor's.
fn stamp() -> Option<u64> {
    #[cfg(target_arch = "x86_64")] // portable: it is the cost of this counter that is measured
    // SAFETY: the instruction has no operands and touches no memory; every x86-64 processor has it.
    return Some(unsafe { core::arch::x86_64::_rdtsc() }); // portable: it is the cost of this counter that is measured
    #[cfg(not(target_arch = "x86_64"))] // portable: it is the cost of this counter that is measured
    None
}

const SAID: &str = "nanoseconds-a-reading";

/// The loop itself, run within an isolation.
pub(crate) fn run_loop(args: &LoopArgs) -> Outcome<ExitCode> {
    let timed = |read: &mut dyn FnMut() -> u64| {
        let begun = Instant::now();
        let mut sum = 0u64;
        (0..args.calls).for_each(|_| sum = sum.wrapping_add(read()));
        std::hint::black_box(sum);
        begun.elapsed().as_secs_f64() * 1e9 / args.calls.max(1) as f64
    };
    let first = Instant::now();
    let system = timed(&mut || first.elapsed().as_nanos() as u64);
    let counter = stamp().map_or(f64::NAN, |_| timed(&mut || stamp().unwrap_or(0)));
    println!("{SAID} {system} {counter}");
    Ok(ExitCode::SUCCESS)
}

/// Nanoseconds for reading the system clock and the counter, in one isolation.
fn measure(kind: Kind, calls: u64) -> Outcome<(f64, f64)> {
    let mut session = Session::begin()?;
    let short = session.make_folder()?;
    let mut words = crate::command::own_command()?;
    words.extend(["clock-loop".to_owned(), "--calls".to_owned(), calls.to_string()]);
    let job = Job {
        words: &words,
        environment: &[],
        dir: &short,
        short: &short,
        capture: None,
        interface: None,
        counters: None,
        cpus: 1,
        memory: None,
    };
    let words = kind.how().wrap(&job)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    session.mark(&mut command)?;
    let output = command.output().map_err(|error| Problem::file("start", Path::new(&words[0]), error))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = said.lines().find_map(|line| {
        let (_, rest) = line.split_once(SAID)?;
        let mut numbers = rest.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(f64::NAN));
        Some((numbers.next()?, numbers.next()?))
    });
    numbers.ok_or_else(|| {
        let said = said + &String::from_utf8_lossy(&output.stderr);
        Problem::Failed(format!("{}: it said no figure: {}", kind.name(), said.trim()))
    })
}

/// Runs the command.
///
/// # Errors
/// If an available isolation fails.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let (mut kinds, mut rows) = (Vec::new(), String::from("isolation,repeat,system_ns,counter_ns\n"));
    // For this measurement, macvtap is the same as a container.
    for kind in [Kind::Bare, Kind::Container, Kind::Machine] {
        match kind.how().missing(None) {
            None => kinds.push((kind, Vec::new(), Vec::new())),
            Some(why) => println!("{:<32} left out: {why}", kind.name()),
        }
    }
    for repeat in 1..=args.repeats.max(1) {
        for (kind, system, counter) in &mut kinds {
            let (a, b) = measure(*kind, args.calls)?;
            rows += &format!("{},{repeat},{a},{b}\n", kind.name());
            system.push(a);
            counter.push(b);
        }
    }
    println!("{:<32} {:>24} {:>24}", "nanoseconds a reading (median)", "the system's clock", "the counter itself");
    for (kind, system, counter) in &kinds {
        let cell = |values: &[f64]| {
            let summary = stats::Summary::of(values);
            summary.map_or_else(|| "—".to_owned(), |s| format!("{:.1} ({:.1} to {:.1})", s.median, s.least, s.most))
        };
        let called = super::Apart { kind: *kind, memory: None }.describe();
        println!("{called:<32} {:>24} {:>24}", cell(system), cell(counter));
    }
    println!("study 3, a profiled build: 66 bare, 1260 in a virtual machine (10^8 readings in 6.6 and 126 s)");
    if let Some(path) = &args.output {
        std::fs::write(path, rows).map_err(|error| Problem::file("write", path, error))?;
    }
    Ok(ExitCode::SUCCESS)
}
