//! The watchdog: a separate process that restores everything unless the operator confirms, or if the applying process
//! ends.
//!
//! It leaves the operator's session (`setsid`, and the session's control group) before the first setting is written. It
//! therefore survives if a setting cuts the operator's connection. It takes all its information from the journal.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::host::Host;
use super::journal::{Begin, Desk};
use super::undo;
use crate::made::started;
use crate::problem::{Outcome, Problem};

/// How often the journal is checked.
const LOOK: Duration = Duration::from_millis(200);
/// The applying process counts as stuck if it records nothing for this many seconds.
const STUCK: f64 = 120.0;
/// The watchdog's output once it is ready.
const READY: &str = "watching";

/// Watch applied settings, and restore them unless they are confirmed; started by `apply`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The section of the journal
    #[arg(long)]
    section: usize,
    /// The applying process
    #[arg(long)]
    process: u32,
}

/// Seconds since boot, including sleep.
pub(super) fn uptime() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Starts the watchdog for a section that is about to be written, and waits until it is ready.
///
/// # Errors
/// If it cannot be started. Nothing must be changed then.
pub(super) fn start(folder: &Path, section: usize) -> Outcome<()> {
    let failed = |why: String| Problem::Failed(format!("cannot start the watchdog: {why}; nothing was changed"));
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let log = folder.join("watchdog.log");
    let log = OpenOptions::new().create(true).append(true).open(&log).map_err(|e| failed(e.to_string()))?;
    let mut child = Command::new(program)
        .args(["tune", "watchdog", "--section", &section.to_string(), "--process", &std::process::id().to_string()])
        .env("MARGAY_TUNE_STATE", folder)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let mut line = String::new();
    let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    match said {
        Some(Ok(_)) if line.trim() == READY => Ok(()),
        _ => Err(failed(format!("it said '{}'", line.trim()))),
    }
}

/// Leaves the session's control group, so that ending the session does not end the watchdog.
fn leave_group() {
    let own = std::process::id().to_string();
    let second = Path::new("/sys/fs/cgroup/cgroup.procs");
    let groups = ["/sys/fs/cgroup/systemd/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs"];
    for group in std::iter::once(second).chain(groups.iter().map(Path::new)) {
        if group.exists()
            && let Err(e) = std::fs::write(group, &own)
        {
            say(&format!("cannot leave the session's control group ({}): {e}", group.display()));
        }
    }
}

/// Logs a line. Important lines also go to the kernel's log.
fn say(text: &str) {
    let time = clock_gettime(ClockId::Realtime).tv_sec;
    // The log is standard error.
    let _ = writeln!(std::io::stderr(), "{time} {text}");
}

fn announce(text: &str) {
    say(text);
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        let _ = writeln!(log, "margay tune: {text}");
    }
}

/// Whether the process that began a section is still running.
fn is_there(begin: &Begin) -> bool {
    started(begin.process) == Some(begin.started)
}

/// The action for a section, from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again.
    Wait,
    /// There is nothing more to watch.
    Done,
    GiveBack(String),
    /// End the stuck process first.
    End(String),
}

/// Decides the action. `since` is when the journal was last written, `there` is whether the applying process runs.
pub(super) fn judge(section: Option<&super::journal::Section>, now: f64, since: f64, there: bool) -> Verdict {
    let Some(section) = section else {
        return if there { Verdict::Wait } else { Verdict::Done };
    };
    if section.undone.is_some() || section.confirmed.is_some() {
        return Verdict::Done;
    }
    match (section.applied, section.begin.limit) {
        (Some(_), None) => Verdict::Done,
        (Some(at), Some(limit)) if now - at >= limit as f64 => {
            Verdict::GiveBack(format!("nobody confirmed within {limit} s"))
        }
        // A clock that went backwards belongs to another boot.
        (Some(at), _) if now < at => Verdict::Done,
        (Some(_), _) => Verdict::Wait,
        (None, _) if !there => Verdict::GiveBack("who applied it is gone".to_owned()),
        (None, _) if now - since > STUCK => Verdict::End(format!("who applies it wrote nothing for {STUCK} s")),
        (None, _) => Verdict::Wait,
    }
}

/// Runs the watchdog.
///
/// # Errors
/// If the journal cannot be read or written.
pub(super) fn run(args: &Args, folder: &Path, boot: &str) -> Outcome<ExitCode> {
    // A separate session does not receive the terminal's signals.
    let _ = rustix::process::setsid();
    leave_group();
    println!("{READY}");
    let _ = std::io::stdout().flush();
    // The parent waits for this line, and may end before it reads the rest.
    let parent = started(args.process);
    let begun = uptime();
    let mut told = false;
    loop {
        let journal = Desk::look(folder).sections()?;
        let section = journal.sections.get(args.section);
        let since = std::fs::metadata(Desk::look(folder).path()).and_then(|data| data.modified()).ok();
        let age = since.and_then(|time| time.elapsed().ok()).map_or(0.0, |age| age.as_secs_f64());
        let since = (uptime() - age).max(begun);
        let there = section
            .map_or_else(|| parent.is_some() && started(args.process) == parent, |section| is_there(&section.begin));
        match judge(section, uptime(), since, there) {
            Verdict::Done => return Ok(ExitCode::SUCCESS),
            Verdict::Wait => std::thread::sleep(LOOK),
            Verdict::End(why) => {
                if let Some(section) = section
                    && is_there(&section.begin)
                    && let Some(process) = Pid::from_raw(section.begin.process as i32)
                {
                    if !std::mem::replace(&mut told, true) {
                        announce(&why);
                    }
                    let _ = kill_process(process, Signal::KILL);
                }
                std::thread::sleep(LOOK);
            }
            Verdict::GiveBack(why) => {
                let desk = Desk::take(folder, true)?;
                let mut journal = desk.journal()?;
                // The operator may have confirmed while this process waited for the lock.
                let section = journal.sections.get(args.section);
                if !matches!(judge(section, uptime(), since, there), Verdict::GiveBack(_)) {
                    continue;
                }
                announce(&format!("{why}: everything is given back"));
                give_back(&mut journal, args.section, boot, &why)?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn give_back(journal: &mut super::journal::Journal<File>, section: usize, boot: &str, why: &str) -> Outcome<()> {
    let host = Host::this();
    let report = match undo::recover(&host, journal, boot, why)? {
        Some(report) => report,
        None => undo::give_back(&host, journal, &[section], why)?,
    };
    say(&format!("{} settings given back", report.given_back.len()));
    if let Some(why) = &report.unwritten {
        announce(why);
    }
    for left in report.foreign.iter().chain(&report.failed) {
        announce(&format!("not given back: {}: {}", left.setting, left.why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::journal::Section;

    #[test]
    fn the_watchdog_judges_by_the_journal() {
        let begin = Begin { limit: Some(60), ..Begin::default() };
        let open = Section { begin: begin.clone(), ..Section::default() };
        let applied = Section { applied: Some(100.0), ..open.clone() };
        let judged = |section: &Section, now, there| judge(Some(section), now, 90.0, there);
        assert_eq!(judge(None, 1.0, 0.0, true), Verdict::Wait);
        assert_eq!(judge(None, 1.0, 0.0, false), Verdict::Done);
        assert_eq!(judged(&open, 100.0, true), Verdict::Wait);
        assert!(matches!(judged(&open, 100.0, false), Verdict::GiveBack(why) if why.contains("gone")));
        assert!(matches!(judged(&open, 211.0, true), Verdict::End(_)));
        assert_eq!(judged(&applied, 159.9, false), Verdict::Wait, "who applied may go home");
        assert!(matches!(judged(&applied, 160.0, true), Verdict::GiveBack(why) if why.contains("60 s")));
        let confirmed = Section { confirmed: Some("confirm".into()), ..applied.clone() };
        assert_eq!(judged(&confirmed, 999.0, false), Verdict::Done);
        let undone = Section { undone: Some(Vec::new()), ..open };
        assert_eq!(judged(&undone, 999.0, false), Verdict::Done);
        let at_boot = Section { begin: Begin { limit: None, ..begin }, ..applied };
        assert_eq!(judged(&at_boot, 999.0, false), Verdict::Done);
    }
}
