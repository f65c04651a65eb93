//! The laboratory: traffic, measurement and comparison around an engine, ours or a peer's.
//!
//! It stands beside the engine and uses none of it: `margay lab` drives engines as a person would, by their commands, signals and
//! the counters that they write.

mod attacks;
mod card;
mod chart;
mod clock;
mod compare;
mod cpus;
mod engine;
mod ethtool;
mod isolate;
mod load;
mod made;
mod monitor;
mod parallel;
mod problem;
mod quiet;
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

use margay_card::record::Recorder;

use clap::{CommandFactory, Parser, Subcommand};

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
    /// Attacks in other traffic, past an inline engine: what is stopped, missed, and stopped by mistake
    #[command(subcommand)]
    Attacks(attacks::Attacks),
    Monitor(monitor::Args),
    Throughput(Box<throughput::Args>),
    Compare(compare::Args),
    Parallel(parallel::Args),
    /// Simulates a network card that detects
    #[command(subcommand)]
    Card(card::Card),
    #[command(subcommand)]
    Tune(tune::Tune),
    Clean(made::Args),
    Clock(isolate::ClockArgs),
    #[command(hide = true)]
    SimEngine(sim::Args),
    #[command(hide = true)]
    Inside(isolate::InsideArgs),
    #[command(hide = true)]
    ClockLoop(isolate::LoopArgs),
}

/// `margay tune`.
#[derive(Parser)]
#[command(name = "margay tune", about = "Tune card, interrupts, CPUs and kernel for a sensor")]
struct TuneCli {
    #[command(subcommand)]
    command: tune::Tune,
}

/// Runs `margay tune` with the arguments after `tune`, which `margay lab tune` is too. The exit status is as [`run`]'s; besides 3
/// where `plan --check` and `verify` found something.
pub fn run_tune(args: impl Iterator<Item = OsString>) -> ExitCode {
    match TuneCli::try_parse_from(std::iter::once(OsString::from("margay tune")).chain(args)) {
        Ok(cli) => ended("margay tune", tune::run(cli.command)),
        Err(e) => misused(&e),
    }
}

/// The texts of `--help` of every command that is shown: its words (`lab traffic gen`), and the text.
pub fn helps() -> Vec<(String, String)> {
    fn walk(mut command: clap::Command, words: String, out: &mut Vec<(String, String)>) {
        command = command.bin_name(format!("margay {words}")).term_width(100);
        out.push((words.clone(), command.render_help().to_string()));
        for sub in command.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
            walk(sub.clone(), format!("{words} {}", sub.get_name()), out);
        }
    }
    let mut out = Vec::new();
    walk(Cli::command(), "lab".into(), &mut out);
    walk(TuneCli::command(), "tune".into(), &mut out);
    out
}

fn misused(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

fn ended(who: &str, outcome: problem::Outcome<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|problem| {
        eprintln!("{who}: {problem}");
        ExitCode::from(problem.exit())
    })
}

/// Runs `margay lab` with the arguments after `lab`. The exit status is 0 where everything worked, 2 where the arguments
/// do not make sense, 1 where something else went wrong; what went wrong is on standard error. `recorder` is
/// the program's own for `margay lab card record`; a program without an engine has none.
pub fn run(args: impl Iterator<Item = OsString>, recorder: Option<Recorder>) -> ExitCode {
    let cli = match Cli::try_parse_from(std::iter::once(OsString::from("margay lab")).chain(args)) {
        Ok(cli) => cli,
        Err(e) => return misused(&e),
    };
    let outcome = match cli.command {
        Command::Traffic(command) => return traffic::run(command),
        Command::Attacks(command) => attacks::run(command),
        Command::Monitor(args) => monitor::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Parallel(args) => parallel::run(&args),
        Command::Card(command) => card::run(&command, recorder),
        Command::Tune(command) => tune::run(command),
        Command::Clean(args) => made::run(&args),
        Command::Clock(args) => isolate::run_clock(&args),
        Command::SimEngine(args) => sim::run(&args),
        Command::Inside(args) => isolate::run_inside(&args),
        Command::ClockLoop(args) => isolate::run_loop(&args),
    };
    ended("margay lab", outcome)
}
