//! Restores settings that still have the written value. Settings that another program changed since stay, and are
//! reported.

use std::collections::BTreeMap;
use std::time::Duration;

use super::card::Refusal;
use super::journal::{Journal, Left, Record, Section, State, Store, knob};
use super::knob::{Knob, Machine, Value};
use crate::problem::Outcome;

/// Rounds over all settings, because a driver may forget one while another is restored.
const ROUNDS: usize = 4;
/// How long a link may be down, and how often it is checked.
const AWAY: Duration = Duration::from_millis(250);
const LOOKS: usize = 80;

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Settings that changed back to their old values.
    pub(crate) given_back: Vec<String>,
    /// Settings that another program changed since; they stay.
    pub(crate) foreign: Vec<Left>,
    /// Settings that could not be restored.
    pub(crate) failed: Vec<Left>,
    /// Settings that a restart of the machine restored.
    pub(crate) by_restart: usize,
    /// The reason that the journal does not record the restore.
    pub(crate) unwritten: Option<String>,
}

/// Whether a link is up, for interfaces that have a link.
pub(crate) fn has_link(machine: &dyn Machine, name: &str) -> bool {
    machine.tree().text(&format!("/sys/class/net/{name}/operstate")).as_deref() != Some("down")
}

/// Waits until a link that was up is up again; `false` if it stays down.
pub(crate) fn wait_for_link(machine: &dyn Machine, name: &str) -> bool {
    for _ in 0..LOOKS {
        if has_link(machine, name) {
            return true;
        }
        machine.wait(AWAY);
    }
    has_link(machine, name)
}

/// Queues come and go with their number, so a missing queue needs no write.
fn needs_nothing(knob: &Knob, target: &Value) -> bool {
    target.is_none() && !knob.is_kept()
}

fn write(machine: &dyn Machine, knob: &Knob, target: &Value) -> Result<(), Refusal> {
    let link = knob.interface().filter(|_| knob.may_cut_link()).filter(|name| has_link(machine, name));
    machine.write(knob, target)?;
    if let Some(name) = link {
        // The caller reports a link that stays down; the remaining settings are restored.
        wait_for_link(machine, name);
    }
    Ok(())
}

/// Restores values: first those of `last`, latest change first, then all, until none changes any more. Returns those
/// that failed, with the reason.
pub(crate) fn drive(machine: &dyn Machine, target: &BTreeMap<Knob, Value>, last: &[Knob]) -> Vec<(Knob, String)> {
    let differs = |knob: &Knob, value: &Value| {
        !needs_nothing(knob, value) && !matches!(machine.read(knob), Ok(now) if now == *value)
    };
    for knob in last {
        if let Some(value) = target.get(knob).filter(|value| differs(knob, value)) {
            // A refused value may be accepted later, for example a table with queues that do not exist again yet.
            let _ = write(machine, knob, value);
        }
    }
    let mut order: Vec<(&Knob, &Value)> = target.iter().collect();
    order.sort_by_key(|(knob, value)| {
        // Folders are removed after their contents.
        let rank = if value.is_none() { 255 - knob.rank() } else { knob.rank() };
        (rank, (*knob).clone())
    });
    let mut why: BTreeMap<&Knob, String> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut changed = false;
        for (knob, value) in &order {
            if differs(knob, value) {
                match write(machine, knob, value) {
                    Ok(()) => changed = true,
                    Err(refusal) => drop(why.insert(knob, refusal.to_string())),
                }
            }
        }
        if !changed {
            break;
        }
    }
    let left = order.iter().filter(|(knob, value)| differs(knob, value));
    let reason =
        |knob: &Knob| why.get(knob).cloned().unwrap_or_else(|| "it was written and is something else".to_owned());
    left.map(|(knob, _)| ((*knob).clone(), reason(knob))).collect()
}

/// Values to restore, and settings that another program changed.
struct Target {
    values: State,
    foreign: Vec<Left>,
}

/// For applied sections: settings that still have the written value return to the old one.
fn of_applied(machine: &dyn Machine, sections: &[&Section]) -> Outcome<Target> {
    let (mut before, mut after) = (State::new(), State::new());
    for section in sections {
        for (name, value) in &section.before {
            before.entry(name.clone()).or_insert_with(|| value.clone());
        }
        after.extend(section.after.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    let mut out = Target { values: State::new(), foreign: Vec::new() };
    for (name, value) in &before {
        let now = machine.read(&knob(name)?).unwrap_or_default();
        let written = after.get(name).cloned().unwrap_or_default();
        if now == written || now == *value {
            out.values.insert(name.clone(), value.clone());
            continue;
        }
        // It keeps its value, even if restoring another setting makes the driver forget it.
        out.values.insert(name.clone(), now.clone());
        if written != *value {
            let why =
                format!("another program changed it since; it was set to {}", written.as_deref().unwrap_or("nothing"));
            out.foreign.push(Left { setting: name.clone(), is: now, before: value.clone(), why });
        }
    }
    Ok(out)
}

/// For an unfinished section: the settings that it changed, and those that drivers may have forgotten as a result.
fn of_unfinished(section: &Section) -> Outcome<State> {
    let mut values = State::new();
    for change in &section.changes {
        let before = section.before.get(&change.setting).unwrap_or(&change.old);
        values.insert(change.setting.clone(), before.clone());
        let touched = knob(&change.setting)?;
        if let Some(name) = touched.interface().filter(|_| touched.has_side_effects()) {
            for (other, value) in &section.before {
                if knob(other)?.interface() == Some(name) {
                    values.insert(other.clone(), value.clone());
                }
            }
        }
    }
    Ok(values)
}

/// Restores the changes of sections: all of them together, or one.
pub(crate) fn give_back<S: Store>(
    machine: &dyn Machine,
    journal: &mut Journal<S>,
    which: &[usize],
    why: &str,
) -> Outcome<Report> {
    let sections: Vec<&Section> = which.iter().filter_map(|at| journal.sections.get(*at)).collect();
    if sections.is_empty() {
        return Ok(Report::default());
    }
    let mut foreign = Vec::new();
    let unfinished = sections.iter().find(|section| section.undoing.is_some());
    let values = match unfinished {
        // An earlier restore was interrupted; continue it.
        Some(section) => section.undoing.clone().unwrap_or_default(),
        None if sections.iter().all(|section| section.applied.is_some()) => {
            let target = of_applied(machine, &sections)?;
            foreign = target.foreign;
            target.values
        }
        None => {
            let mut values = State::new();
            for section in sections.iter().rev() {
                values.extend(of_unfinished(section)?);
            }
            values
        }
    };
    // Latest change first.
    let mut last: Vec<Knob> = Vec::new();
    for change in sections.iter().rev().flat_map(|section| section.changes.iter().rev()) {
        let knob = knob(&change.setting)?;
        if !last.contains(&knob) {
            last.push(knob);
        }
    }
    let mut target = BTreeMap::new();
    let mut before = BTreeMap::new();
    for (name, value) in &values {
        let knob = knob(name)?;
        before.insert(knob.clone(), machine.read(&knob).unwrap_or_default());
        target.insert(knob, value.clone());
    }
    // A full disk is no reason to leave the machine half-way.
    let mut unwritten = Vec::new();
    unwritten
        .extend(journal.add(Record::Undoing { sections: which.to_vec(), target: values, why: why.to_owned() }).err());
    let mut failed = Vec::new();
    for (knob, why) in drive(machine, &target, &last) {
        let (is, before) = (machine.read(&knob).unwrap_or_default(), target[&knob].clone());
        failed.push(Left { setting: knob.to_string(), is, before, why });
    }
    let given = |(knob, was): (&Knob, &Value)| {
        let now = machine.read(knob).unwrap_or_default();
        // A queue that exists again is not a restored setting.
        (*was != now && (was.is_some() == now.is_some() || knob.is_kept()) && now == target[knob])
            .then(|| knob.to_string())
    };
    let given_back = before.iter().filter_map(given).collect();
    let left = foreign.iter().chain(&failed).cloned().collect();
    unwritten.extend(journal.add(Record::Undone { sections: which.to_vec(), left }).err());
    let unwritten = unwritten.pop().map(|problem| problem.to_string());
    Ok(Report { given_back, foreign, failed, by_restart: 0, unwritten })
}

/// Restores a section that ended before all its settings were written; `None` if all sections are finished.
pub(crate) fn recover<S: Store>(
    machine: &dyn Machine,
    journal: &mut Journal<S>,
    boot: &str,
    why: &str,
) -> Outcome<Option<Report>> {
    let unfinished: Vec<usize> =
        journal.active(boot).into_iter().filter(|at| journal.sections[*at].is_unfinished()).collect();
    match unfinished.is_empty() {
        true => Ok(None),
        false => give_back(machine, journal, &unfinished, why).map(Some),
    }
}

/// Describes what undo would do, line by line.
pub(crate) fn preview<S: Store>(machine: &dyn Machine, journal: &Journal<S>, boot: &str) -> Outcome<Vec<String>> {
    let active: Vec<&Section> = journal.active(boot).into_iter().map(|at| &journal.sections[at]).collect();
    let show = |value: &Value| value.clone().unwrap_or_else(|| "not there".to_owned());
    let mut out = Vec::new();
    let mut values = State::new();
    for section in active.iter().filter(|section| section.is_unfinished()) {
        values.extend(of_unfinished(section)?);
    }
    let applied: Vec<&Section> = active.into_iter().filter(|section| !section.is_unfinished()).collect();
    let target = of_applied(machine, &applied)?;
    values.extend(target.values);
    for (name, value) in &values {
        let knob = knob(name)?;
        let now = machine.read(&knob).unwrap_or_default();
        if now != *value && !needs_nothing(&knob, value) {
            out.push(format!("{name}: {} becomes {}", show(&now), show(value)));
        }
    }
    out.extend(
        target.foreign.iter().map(|left| format!("left as it is: {}: {}: {}", left.setting, show(&left.is), left.why)),
    );
    Ok(out)
}

/// Restores everything that is in effect.
pub(crate) fn undo<S: Store>(machine: &dyn Machine, journal: &mut Journal<S>, boot: &str) -> Outcome<Report> {
    let mut report = recover(machine, journal, boot, "undo of what was not finished")?.unwrap_or_default();
    let gone = journal.sections.iter().filter(|section| section.undone.is_none() && !section.is_active(boot));
    let by_restart = gone.map(|section| section.changes.len()).sum();
    let active = journal.active(boot);
    let more = give_back(machine, journal, &active, "undo")?;
    report.given_back.extend(more.given_back);
    report.foreign.extend(more.foreign);
    report.failed.extend(more.failed);
    report.unwritten = report.unwritten.or(more.unwritten);
    report.by_restart = by_restart;
    Ok(report)
}
