//! The laboratory: traffic, measurement and comparison for an engine, ours or a peer's.
//!
//! It uses no code of the engine: `margay lab` controls engines as a user would, through their commands, signals and
//! counter files.

mod attacks;
mod card;
mod chart;
mod clock;
mod command;
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
mod stages;
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
    /// Generates and sends traffic
    #[command(subcommand)]
    Traffic(traffic::Traffic),
    /// Sends attacks within other traffic through an inline engine: what is stopped, missed, and stopped by mistake
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

/// Runs `margay tune` with the arguments after `tune`; `margay lab tune` is the same. Exit status as for [`run`], and 3
/// if `plan --check` or `verify` found a difference.
pub fn run_tune(args: impl Iterator<Item = OsString>) -> ExitCode {
    match TuneCli::try_parse_from(std::iter::once(OsString::from("margay tune")).chain(args)) {
        Ok(cli) => ended("margay tune", tune::run(cli.command)),
        Err(e) => misused(&e),
    }
}

/// The help of every visible command: its words (`lab traffic gen`), and the text of its `--help`.
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

/// Runs `margay lab` with the arguments after `lab`. The exit status is 0 for success, 2 if the arguments make no sense,
/// 1 for any other failure, which standard error explains. `recorder` is the program's own, for `margay lab card
/// record`; a program without an engine has none.
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
