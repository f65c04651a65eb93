//! `margay lab attacks`: sends attacks within other traffic through an inline engine, and reports which it stopped.
//!
//! [`declared`] reads the defence's declarations, and [`requests`] reads recorded requests. [`cases`] selects from both.
//! [`build`] turns them into conversations, [`make`] mixes these into a profile's traffic, and [`truth`] describes what a
//! capture contains. [`mod@run`] sends the capture through an engine and records what arrived. [`report`] writes the report.

mod build;
mod cases;
mod declared;
mod eve;
mod list;
mod live;
mod make;
mod page;
mod record;
mod report;
mod requests;
mod results;
mod run;
mod sent;
mod truth;

use std::process::ExitCode;

use clap::Subcommand;

use crate::problem::Outcome;

/// `margay lab attacks …`.
#[derive(Subcommand)]
pub(crate) enum Attacks {
    List(list::Args),
    Make(Box<make::Args>),
    Run(run::Args),
    Report(report::Args),
}

/// Runs `margay lab attacks`.
pub(crate) fn run(command: Attacks) -> Outcome<ExitCode> {
    match command {
        Attacks::List(args) => list::run(&args),
        Attacks::Make(args) => make::run(&args),
        Attacks::Run(args) => run::run(&args),
        Attacks::Report(args) => report::run(&args),
    }
}
