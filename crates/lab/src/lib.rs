//! The laboratory: traffic, measurement and comparison around an engine, ours or a peer's.
//!
//! It stands beside the engine and uses none of it: `margay lab` drives engines as a person would, by their commands, signals and
//! the counters that they write.

mod traffic;

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
    match cli.command {
        Command::Traffic(command) => traffic::run(command),
    }
}
