//! `margay lab clean`.

use std::path::Path;
use std::process::ExitCode;

use super::{Thing, folder, started, undo};
use crate::problem::{Outcome, Problem};

/// Remove the remains of failed runs: namespaces, interfaces, processes, folders
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The result of a clean-up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Sessions that were cleaned up.
    pub(super) sessions: u32,
    /// Sessions whose command is still running.
    pub(super) running: u32,
    /// Things that could not be removed.
    pub(super) failed: u32,
}

/// Runs the command.
///
/// # Errors
/// If the state folder cannot be read, or something could not be removed.
pub(crate) fn run(_: &Args) -> Outcome<ExitCode> {
    let report = clean(&folder())?;
    if report.running > 0 {
        println!("{} sessions are still running and are left alone", report.running);
    }
    if report.sessions + report.running == 0 {
        println!("nothing was left behind");
    }
    if report.failed > 0 {
        let root = if rustix::process::geteuid().is_root() { "" } else { "; as root more can be removed" };
        return Err(Problem::Failed(format!("{} things could not be removed{root}", report.failed)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Cleans up the sessions in `folder` whose owner has ended.
pub(super) fn clean(folder: &Path) -> Outcome<Report> {
    let mut report = Report::default();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(report),
        Err(error) => return Err(Problem::file("read the state folder", folder, error)),
    };
    for entry in entries.flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if !id.starts_with("mlab") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| Problem::file("read", &path, error))?;
        let mut owner = text.lines().next().unwrap_or("").split(' ').skip(1);
        let (pid, since) =
            (owner.next().and_then(|w| w.parse().ok()), owner.next().and_then(|w| w.parse::<u64>().ok()));
        if let Some(pid) = pid
            && started(pid).is_some()
            && started(pid) == since
        {
            report.running += 1;
            continue;
        }
        let before = report.failed;
        let things: Vec<Thing> = text.lines().skip(1).filter_map(Thing::of).collect();
        for thing in things.iter().rev() {
            match undo(&id, thing) {
                Ok(true) => println!("{id}: removed {}", thing.line()),
                Ok(false) => {}
                Err(why) => {
                    eprintln!("{id}: {why}");
                    report.failed += 1;
                }
            }
        }
        report.sessions += 1;
        if report.failed == before {
            std::fs::remove_file(&path).map_err(|error| Problem::file("remove", &path, error))?;
        }
    }
    Ok(report)
}
