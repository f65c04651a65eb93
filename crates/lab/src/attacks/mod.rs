//! `margay lab attacks`: attacks in other traffic, past an inline engine, and what it made of them.
//!
//! [`declared`] reads the defence's declarations and [`requests`] recorded requests; [`cases`] are what is chosen of both.
//! [`build`] makes conversations of them, [`make`] mixes these into a profile's traffic, [`truth`] is what a capture holds.
//! [`mod@run`] sends that past an engine and says what arrived, and [`report`] writes it for people.

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

/// Runs it.
pub(crate) fn run(command: Attacks) -> Outcome<ExitCode> {
    match command {
        Attacks::List(args) => list::run(&args),
        Attacks::Make(args) => make::run(&args),
        Attacks::Run(args) => run::run(&args),
        Attacks::Report(args) => report::run(&args),
    }
}
