//! The laboratory: traffic, measurement and comparison around an engine, ours or a peer's.
//!
//! It stands beside the engine and uses none of it: `margay lab` drives engines as a person would, by their commands, signals and
//! the counters that they write.

mod chart;
mod clock;
mod compare;
mod cpus;
mod engine;
mod ethtool;
mod load;
mod made;
mod monitor;
mod parallel;
mod problem;
mod run;
mod signals;
mod sim;
mod stats;
mod throughput;
mod traffic;
mod tune;
mod units;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// `margay lab`.
#[derive(Parser)]
#[command(name = "margay lab", about = "Traffic, measurement and comparison around an engine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes traffic and sends it
    #[command(subcommand)]
    Traffic(traffic::Traffic),
    Monitor(monitor::Args),
    Throughput(Box<throughput::Args>),
    Compare(compare::Args),
    Parallel(parallel::Args),
    #[command(subcommand)]
    Tune(tune::Tune),
    Clean(made::Args),
    #[command(hide = true)]
    SimEngine(sim::Args),
}

/// Runs `margay lab` with the arguments after `lab`. The exit status is 0 where everything worked, 2 where the arguments
/// do not make sense, 1 where something else went wrong; what went wrong is on standard error.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(std::iter::once(OsString::from("margay lab")).chain(args)) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match cli.command {
        Command::Traffic(command) => return traffic::run(command),
        Command::Monitor(args) => monitor::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Parallel(args) => parallel::run(&args),
        Command::Tune(command) => tune::run(command),
        Command::Clean(args) => made::run(&args),
        Command::SimEngine(args) => sim::run(&args),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("margay lab: {problem}");
        ExitCode::from(problem.exit())
    })
}
