//! `margay tune apply`, `confirm`, `verify`, `undo` and `status`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::apply::{self, Done, Stopped};
use super::facts::{Facts, Missing};
use super::host::Host;
use super::journal::{self, Begin, Desk, Journal, Section, Store};
use super::knob::Machine;
use super::measure::{self, How, Measured};
use super::undo::{self, Report};
use super::{GoalArgs, found, plan, refuse, text, verify, watchdog};
use crate::made::started;
use crate::problem::{Outcome, Problem};

/// Apply the plan: with a journal before each change, and a watchdog that restores everything unless you confirm
#[derive(clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    goal: GoalArgs,
    /// Apply the changes; without it, the plan is only shown
    #[arg(long)]
    yes: bool,
    /// Time to confirm (`margay tune confirm`) before everything is restored
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::units::duration, conflicts_with = "boot")]
    confirm_within: Duration,
    /// For the unit that --persist writes: apply at boot, without a confirmation
    #[arg(long)]
    boot: bool,
    #[command(flatten)]
    how: How,
}

/// Confirm the applied changes: they stay, and files for the next restart are written
#[derive(clap::Args)]
pub(crate) struct ConfirmArgs {}

/// Read the applied settings back, and compare losses by stage and CPU time with the values before
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// Interfaces to measure [default: those that were tuned]
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    #[command(flatten)]
    how: How,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Restore every setting that still has its written value, and report those that another program changed since
#[derive(clap::Args)]
pub(crate) struct UndoArgs {
    /// Only show what would be restored
    #[arg(long)]
    dry_run: bool,
}

/// Show what is in effect, what waits for a confirmation and what is unfinished
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Identifies this boot of the kernel, and the network namespace.
struct Here {
    boot: String,
    namespace: u64,
}

impl Here {
    fn now() -> Here {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace =
            std::fs::metadata("/proc/self/ns/net").map_or(0, |data| std::os::unix::fs::MetadataExt::ino(&data));
        Here { boot: boot.trim().to_owned(), namespace }
    }

    fn begin(&self, limit: Option<u64>) -> Begin {
        let process = std::process::id();
        let words = std::env::args().collect::<Vec<_>>();
        Begin {
            version: 1,
            boot: self.boot.clone(),
            namespace: self.namespace,
            process,
            started: started(process).unwrap_or(0),
            time: clock_gettime(ClockId::Realtime).tv_sec.unsigned_abs(),
            at: watchdog::uptime(),
            limit,
            command: words.join(" "),
            kept: false,
        }
    }

    /// Checks that the active settings belong to this network namespace.
    fn check<S: Store>(&self, journal: &Journal<S>) -> Outcome<()> {
        let mut active = journal.active(&self.boot).into_iter().map(|at| &journal.sections[at]);
        match active.any(|section| !section.begin.kept && section.begin.namespace != self.namespace) {
            false => Ok(()),
            true => Err(Problem::Failed(
                "what is in effect was applied in another network namespace: go there (`ip netns exec`), or undo it from there".to_owned(),
            )),
        }
    }
}

/// The facts, with the values that drivers rounded in earlier plans.
pub(super) fn facts_now(host: &Host, config: Option<&Path>) -> Outcome<Facts> {
    let mut facts = found(host, host.tree(), config)?;
    match Desk::look(&journal::folder()).sections() {
        Ok(journal) => facts.rounded = journal.rounded(&Here::now().boot),
        // The file belongs to root. Without it, rounded values look like pending changes.
        Err(why) => facts.missing.push(Missing { what: "what was applied before".to_owned(), why: why.to_string() }),
    }
    Ok(facts)
}

fn print_report(report: &Report) {
    unwritten(report);
    println!("{} settings were given back", report.given_back.len());
    if report.by_restart > 0 {
        println!("{} were given back by a restart of the machine", report.by_restart);
    }
    let value = |value: &super::knob::Value| value.clone().unwrap_or_else(|| "not there".to_owned());
    for left in &report.foreign {
        println!(
            "left as it is: {}: {} (before: {}): {}",
            left.setting,
            value(&left.is),
            value(&left.before),
            left.why
        );
    }
    for left in &report.failed {
        println!(
            "could not be given back: {}: {} (before: {}): {}",
            left.setting,
            value(&left.is),
            value(&left.before),
            left.why
        );
    }
}

/// Warns that the journal does not record the restore. The next undo looks again, and finds nothing to do.
fn unwritten(report: &Report) {
    if let Some(why) = &report.unwritten {
        println!("the journal does not say that this was given back: {why}");
    }
}

fn status_of(report: &Report) -> ExitCode {
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Restores the changes of a crashed run before anything else.
fn tidy(host: &Host, journal: &mut Journal<File>, here: &Here) -> Outcome<()> {
    if let Some(report) = undo::recover(host, journal, &here.boot, "found unfinished")? {
        println!("an earlier apply was not finished:");
        print_report(&report);
    }
    Ok(())
}

/// Runs `apply`.
///
/// # Errors
/// If a step failed. Everything is then as before, or the message names the exceptions.
pub(super) fn run_apply(args: &ApplyArgs) -> Outcome<ExitCode> {
    let host = Host::this();
    let goal = args.goal.goal()?;
    let config = args.goal.config.as_deref();
    if !args.yes && !args.boot {
        let facts = facts_now(&host, config)?;
        let plan = plan::plan(&facts, &goal);
        print!("{}", text::plan(&plan, &facts, false));
        return refuse(&plan).map(|()| ExitCode::SUCCESS);
    }
    let (here, folder) = (Here::now(), journal::folder());
    let desk = Desk::take(&folder, args.boot)?;
    desk.compact(&here.boot)?;
    let mut journal = desk.journal()?;
    here.check(&journal)?;
    tidy(&host, &mut journal, &here)?;
    if journal.active(&here.boot).into_iter().any(|at| journal.sections[at].waits()) {
        return Err(Problem::Failed(
            "what was applied before still waits: `margay tune confirm` or `margay tune undo`".to_owned(),
        ));
    }
    let facts = facts_now(&host, config)?;
    let plan = plan::plan(&facts, &goal);
    refuse(&plan)?;
    plan.notes.iter().for_each(|note| println!("note: {note}"));
    if plan.steps().next().is_none() {
        println!("nothing to change was found");
        return Ok(ExitCode::SUCCESS);
    }
    let interfaces: Vec<String> = plan.placement.ports.iter().flat_map(|port| port.interfaces.clone()).collect();
    if let Some(before) = measure::measure(host.tree(), host.cards(), &interfaces, &args.how)? {
        print!("as it is:\n{}", measure::table(None, &before));
        keep_measured(&folder, &before)?;
    }
    let limit = (!args.boot).then_some(args.confirm_within.as_secs().max(1));
    if limit.is_some() {
        watchdog::start(&folder, journal.sections.len())?;
    }
    match apply::apply(&host, &mut journal, &plan, here.begin(limit), &watchdog::uptime) {
        Ok(done) => {
            print_done(&done);
            if let Some(limit) = limit {
                println!("everything is given back in {limit} s unless you confirm: margay tune confirm");
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(Stopped::Before(problem)) => Err(problem),
        Err(Stopped::At { step, why, report }) => {
            print_report(&report);
            // A failure outside a step has no workaround.
            let around = step.split_once('.').map(|(_, word)| format!(". --without {word} leaves it out"));
            let around = around.unwrap_or_default();
            Err(Problem::Failed(format!("{step} failed: {why}; what was done is given back{around}")))
        }
    }
}

fn print_done(done: &Done) {
    println!("{} settings were written", done.written);
    for (setting, rounded) in &done.rounded {
        println!("rounded by the driver: {setting}: {} became {}", rounded.wanted, rounded.got);
    }
    if done.waiting > 0 {
        println!("{} files that outlive a restart wait for the confirmation", done.waiting);
    }
}

fn keep_measured(folder: &Path, measured: &Measured) -> Outcome<()> {
    let path = folder.join("before.json");
    let text = serde_json::to_string(measured).map_err(|e| Problem::Failed(e.to_string()))?;
    std::fs::write(&path, text).map_err(|e| Problem::file("write", &path, e))
}

/// Runs `confirm`.
///
/// # Errors
/// If there is nothing to confirm, or a file could not be written.
pub(super) fn run_confirm(_: &ConfirmArgs) -> Outcome<ExitCode> {
    let (host, here) = (Host::this(), Here::now());
    let desk = Desk::take(&journal::folder(), true)?;
    let mut journal = desk.journal()?;
    here.check(&journal)?;
    match apply::confirm(&host, &mut journal, "confirm", here.begin(None), &watchdog::uptime) {
        Ok(done) if done.written > 0 => {
            println!("confirmed; {} files that outlive a restart were written", done.written)
        }
        Ok(_) => println!("confirmed"),
        Err(Stopped::Before(problem)) => return Err(problem),
        Err(Stopped::At { step, why, report }) => {
            print_report(&report);
            return Err(Problem::Failed(format!(
                "confirmed, but what outlives a restart is not there: {step}: {why}; those files that were written are removed"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `verify`. The exit status is 3 if a setting changed.
///
/// # Errors
/// If the journal cannot be read, or nothing can be measured.
pub(super) fn run_verify(args: &VerifyArgs) -> Outcome<ExitCode> {
    let (host, here, folder) = (Host::this(), Here::now(), journal::folder());
    let journal = Desk::look(&folder).sections()?;
    here.check(&journal)?;
    let found = verify::read_back(&host, &journal, &here.boot)?;
    let mut interfaces = args.interfaces.clone();
    if interfaces.is_empty() {
        let changes = journal.active(&here.boot).into_iter().flat_map(|at| journal.sections[at].wanted.keys());
        interfaces = changes.filter_map(|name| Some(journal::knob(name).ok()?.interface()?.to_owned())).collect();
        interfaces.sort();
        interfaces.dedup();
    }
    let measured = measure::measure(host.tree(), host.cards(), &interfaces, &args.how)?;
    let before: Option<Measured> =
        std::fs::read_to_string(folder.join("before.json")).ok().and_then(|text| serde_json::from_str(&text).ok());
    if args.json {
        let changed: Vec<_> =
            found.changed.iter().map(|(name, left, is)| json!({"setting": name, "left": left, "is": is})).collect();
        let rounded: Vec<_> =
            found.rounded.iter().map(|(name, want, is)| json!({"setting": name, "wanted": want, "is": is})).collect();
        let all = json!({
            "right": found.right, "rounded": rounded, "changed": changed, "before": before, "now": measured,
        });
        println!("{all:#}");
    } else {
        if journal.active(&here.boot).is_empty() {
            println!("nothing is in effect that was applied here");
        }
        println!("{} settings are as they were wanted", found.right);
        for (setting, want, is) in &found.rounded {
            println!("rounded by the driver: {setting}: {want} became {is}");
        }
        for (setting, left, is) in &found.changed {
            let value = |value: &super::knob::Value| value.clone().unwrap_or_else(|| "not there".to_owned());
            println!("changed since: {setting}: {} became {}", value(left), value(is));
        }
        if let Some(measured) = &measured {
            print!("{}", measure::table(before.as_ref(), measured));
        }
    }
    Ok(if found.changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// Runs `undo`.
///
/// # Errors
/// If the journal cannot be read or written.
pub(super) fn run_undo(args: &UndoArgs) -> Outcome<ExitCode> {
    let (host, here, folder) = (Host::this(), Here::now(), journal::folder());
    if args.dry_run {
        let journal = Desk::look(&folder).sections()?;
        here.check(&journal)?;
        for line in undo::preview(&host, &journal, &here.boot)? {
            println!("{line}");
        }
        println!("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    let desk = Desk::take(&folder, true)?;
    let mut journal = desk.journal()?;
    here.check(&journal)?;
    if journal.sections.iter().all(|section| section.undone.is_some()) {
        println!("nothing was applied that is not given back already");
        return Ok(ExitCode::SUCCESS);
    }
    let report = undo::undo(&host, &mut journal, &here.boot)?;
    print_report(&report);
    if report.failed.is_empty() && report.unwritten.is_none() {
        desk.lay_aside()?;
    }
    Ok(status_of(&report))
}

fn state(section: &Section, boot: &str, now: f64) -> String {
    let left = |limit: u64, at: f64| (limit as f64 - (now - at)).max(0.0);
    match (section.applied, section.begin.limit) {
        _ if section.undone.is_some() => "given back".to_owned(),
        _ if !section.is_active(boot) => "gone with a restart of the machine".to_owned(),
        _ if section.undoing.is_some() => "being given back, not finished".to_owned(),
        (None, _) => "not finished".to_owned(),
        (Some(at), Some(limit)) if section.waits() => {
            format!("waits {:.0} s more for `margay tune confirm`", left(limit, at))
        }
        _ => "in effect".to_owned(),
    }
}

/// Formats seconds since 1970 as a time in UTC.
fn time(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days since 1 March of year 0, by eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, era * 400 + year) } else { (month - 9, era * 400 + year + 1) };
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Runs `status`.
///
/// # Errors
/// If the journal cannot be read.
pub(super) fn run_status(args: &StatusArgs) -> Outcome<ExitCode> {
    let (host, here) = (Host::this(), Here::now());
    let journal = Desk::look(&journal::folder()).sections()?;
    let now = watchdog::uptime();
    let found = match here.check(&journal) {
        Ok(()) => verify::read_back(&host, &journal, &here.boot)?,
        Err(_) => verify::Found::default(),
    };
    if args.json {
        let of = |section: &Section| {
            json!({
                "time": section.begin.time, "command": section.begin.command, "kept": section.begin.kept,
                "settings": section.changes.len(), "state": state(section, &here.boot, now),
                "waits": section.waits() && section.is_active(&here.boot), "failed": section.failed, "left": section.undone,
            })
        };
        let sections: Vec<_> = journal.sections.iter().map(of).collect();
        println!("{:#}", json!({"sections": sections, "right": found.right, "changed": found.changed.len()}));
        return Ok(ExitCode::SUCCESS);
    }
    if journal.sections.is_empty() {
        println!("nothing was applied");
    }
    for section in &journal.sections {
        let what = if section.begin.kept { "files that outlive a restart" } else { "settings" };
        println!("{} {what}: {}", section.changes.len(), state(section, &here.boot, now));
        println!("  {} by {}", time(section.begin.time), section.begin.command);
        if let Some((step, why)) = &section.failed {
            println!("  {step} failed: {why}");
        }
        for left in section.undone.iter().flatten() {
            println!("  not given back: {}: {}", left.setting, left.why);
        }
    }
    here.check(&journal)?;
    for (setting, _, is) in &found.changed {
        println!("changed since: {setting} is {}", is.as_deref().unwrap_or("not there"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the watchdog.
///
/// # Errors
/// If the journal cannot be read or written.
pub(super) fn run_watchdog(args: &watchdog::Args) -> Outcome<ExitCode> {
    watchdog::run(args, &journal::folder(), &Here::now().boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_do() {
        assert_eq!(time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_795_372_354), "2026-11-22 18:32:34 UTC");
        assert_eq!(time(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }
}
