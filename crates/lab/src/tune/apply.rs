//! Executes a plan. It records the old values in the journal, then writes setting by setting and reads each back. The
//! first refusal restores everything.

use std::collections::BTreeMap;

use super::card::FLOWS;
use super::discover::FEATURES;
use super::facts::Rounded;
use super::journal::{Begin, Journal, Keep, Record, State, Store};
use super::knob::{Knob, Machine, Value};
use super::plan::{Plan, Step};
use super::undo::{self, Report, has_link, wait_for_link};
use crate::problem::Problem;

/// Rounds over all wanted settings, because a driver may forget one while another is written.
const ROUNDS: usize = 3;

/// The result of applying a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    /// Settings that were written.
    pub(crate) written: usize,
    /// Settings that drivers changed to other values.
    pub(crate) rounded: BTreeMap<String, Rounded>,
    /// Files that wait for the confirmation.
    pub(crate) waiting: usize,
}

/// The reason that nothing was changed, or that everything was restored.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Before anything was changed.
    Before(Problem),
    /// A step failed, and the changes were restored.
    At { step: String, why: String, report: Box<Report> },
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Stopped {
        Stopped::Before(problem)
    }
}

/// All settings of an interface that its driver may forget when another one is written.
fn of_interface(machine: &dyn Machine, name: &str) -> Vec<Knob> {
    let own = || name.to_owned();
    let mut all = vec![
        Knob::Channels(own()),
        Knob::Ring(own()),
        Knob::Pause(own()),
        Knob::RssFunction(own()),
        Knob::RssTransform(own()),
        Knob::RssKey(own()),
        Knob::RssTable(own()),
        Knob::Coalesce(own()),
        Knob::Promisc(own()),
        Knob::Arp(own()),
    ];
    all.extend(FLOWS.iter().map(|flow| Knob::Hash(own(), (*flow).to_owned())));
    let features = machine.cards().features(name).unwrap_or_default();
    let changeable = features.iter().filter(|(feature, state)| !state.fixed && FEATURES.contains(&feature.as_str()));
    all.extend(changeable.map(|(feature, _)| Knob::Feature(own(), feature.clone())));
    let queues = machine.tree().names(&format!("/sys/class/net/{name}/queues"));
    for queue in queues.iter().filter_map(|queue| queue.strip_prefix("rx-")?.parse().ok()) {
        all.extend([Knob::Rps(own(), queue), Knob::Irq(own(), queue)]);
    }
    all
}

/// Values of settings, without those that the driver does not have.
fn values(machine: &dyn Machine, knobs: &[Knob]) -> BTreeMap<Knob, Value> {
    knobs.iter().filter_map(|knob| Some((knob.clone(), machine.read(knob).ok()?))).collect()
}

fn names(values: &BTreeMap<Knob, Value>) -> State {
    values.iter().map(|(knob, value)| (knob.to_string(), value.clone())).collect()
}

struct Work<'a, S: Store> {
    machine: &'a dyn Machine,
    journal: &'a mut Journal<S>,
    done: Done,
}

impl<S: Store> Work<'_, S> {
    /// Announces, writes and reads back one setting. Returns the reason if its value is not as wanted.
    fn set(&mut self, step: &str, knob: &Knob, want: &str) -> Result<(), String> {
        let wanted = Some(want.to_owned());
        let old = self.machine.read(knob).map_err(|why| format!("{knob}: it cannot be read: {why}"))?;
        let told = self.done.rounded.get(&knob.to_string());
        if old == wanted || told.is_some_and(|told| told.wanted == want && old.as_ref() == Some(&told.got)) {
            return Ok(());
        }
        let will =
            Record::Will { step: step.to_owned(), setting: knob.to_string(), old: old.clone(), want: wanted.clone() };
        self.journal.add(will).map_err(|why| why.to_string())?;
        let link = knob.interface().filter(|_| knob.may_cut_link()).filter(|name| has_link(self.machine, name));
        self.machine.write(knob, &wanted).map_err(|why| format!("{} was refused: {why}", knob.command(want)))?;
        margay_packet::fault::point("tune.set");
        if let Some(name) = link
            && !wait_for_link(self.machine, name)
        {
            return Err(format!("{}: the link of {name} did not come back", knob.command(want)));
        }
        let got = self.machine.read(knob).map_err(|why| format!("{knob}: it can no longer be read: {why}"))?;
        self.journal.add(Record::Did { setting: knob.to_string(), got: got.clone() }).map_err(|why| why.to_string())?;
        self.done.written += 1;
        match got {
            got if got == wanted => Ok(()),
            Some(got) if knob.is_as_good(want, &got) || knob.may_round() && Some(&got) != old.as_ref() => {
                let rounded = Rounded { wanted: want.to_owned(), got };
                self.done.rounded.insert(knob.to_string(), rounded);
                Ok(())
            }
            got => {
                let is = got.as_deref().unwrap_or("not there");
                Err(format!("{} was accepted, and it is {is}", knob.command(want)))
            }
        }
    }

    /// Executes all steps, then repeats settings that drivers forgot meanwhile. Returns the failed step and the reason.
    fn all(&mut self, steps: &[&Step]) -> Result<(), (String, String)> {
        let failed = |step: &Step| {
            let id = step.id.clone();
            move |why| (id, why)
        };
        for step in steps {
            for write in step.writes.iter().filter(|write| write.changes()) {
                self.set(&step.id, &write.knob, &write.want).map_err(failed(step))?;
            }
        }
        // In the order in which one setting may undo another, and including settings that were correct before.
        let mut wanted: Vec<(&Step, &Knob, &str)> = Vec::new();
        for step in steps {
            wanted.extend(step.writes.iter().map(|write| (*step, &write.knob, write.want.as_str())));
        }
        wanted.sort_by_key(|(_, knob, _)| knob.rank());
        for _ in 0..ROUNDS {
            let before = self.done.written;
            for (step, knob, want) in &wanted {
                self.set(&step.id, knob, want).map_err(failed(step))?;
            }
            if self.done.written == before {
                return Ok(());
            }
        }
        let last = steps.last().map_or("", |step| &step.id);
        Err((last.to_owned(), "the driver keeps forgetting this setting".to_owned()))
    }
}

/// Executes `steps` in a section of the journal that starts with `begin`.
fn section<S: Store>(
    machine: &dyn Machine,
    journal: &mut Journal<S>,
    steps: &[&Step],
    keep: Vec<Keep>,
    begin: Begin,
    at: &dyn Fn() -> f64,
) -> Result<Done, Stopped> {
    // Everything that may change: the settings that are written, and all that drivers may forget.
    let mut touched: Vec<Knob> = steps.iter().flat_map(|step| &step.writes).map(|write| write.knob.clone()).collect();
    let changing = steps.iter().flat_map(|step| &step.writes).filter(|write| write.changes());
    let mut forgetful: Vec<&str> =
        changing.filter(|write| write.knob.has_side_effects()).filter_map(|write| write.knob.interface()).collect();
    forgetful.sort_unstable();
    forgetful.dedup();
    forgetful.iter().for_each(|name| touched.extend(of_interface(machine, name)));
    touched.sort();
    touched.dedup();
    let before = values(machine, &touched);
    let mut links: Vec<&str> =
        steps.iter().flat_map(|step| &step.writes).filter_map(|write| write.knob.interface()).collect();
    links.sort_unstable();
    links.dedup();
    links.retain(|name| has_link(machine, name));

    let number = journal.sections.len();
    journal.add(Record::Begin(begin))?;
    journal.add(Record::Before { state: names(&before) })?;
    let mut work = Work { machine, journal, done: Done::default() };
    // Some drivers drop the link a while after a change.
    let lost = || {
        let name = links.iter().find(|name| !wait_for_link(machine, name))?;
        let step = steps.iter().rev().find(|step| step.writes.iter().any(|write| write.knob.interface() == Some(name)));
        Some((step.map_or_else(String::new, |step| step.id.clone()), format!("the link of {name} did not come back")))
    };
    if let Err((step, why)) = work.all(steps).and_then(|()| lost().map_or(Ok(()), Err)) {
        // If the journal itself failed, it need not record the failure.
        let _ = work.journal.add(Record::Failed { step: step.clone(), why: why.clone() });
        let report = undo::give_back(machine, work.journal, &[number], &format!("{step} failed"))?;
        return Err(Stopped::At { step, why, report: Box::new(report) });
    }
    // The current settings, including those of new queues.
    let mut now = touched;
    forgetful.iter().for_each(|name| now.extend(of_interface(machine, name)));
    let after = names(&values(machine, &now));
    let wanted =
        steps.iter().flat_map(|step| &step.writes).map(|write| (write.knob.to_string(), Some(write.want.clone())));
    let wanted = wanted.collect();
    work.done.waiting = keep.len();
    if let Err(why) = work.journal.add(Record::Applied { at: at(), after, wanted, keep }) {
        // Without this record, a later run would not know what to restore.
        let report = undo::give_back(machine, work.journal, &[number], "the journal cannot be written")?;
        return Err(Stopped::At { step: "journal".to_owned(), why: why.to_string(), report: Box::new(report) });
    }
    Ok(work.done)
}

/// Applies a plan. Files that outlive a restart wait for the confirmation.
///
/// # Errors
/// The reason that stopped it. Everything is then as before, except for what the report names.
pub(crate) fn apply<S: Store>(
    machine: &dyn Machine,
    journal: &mut Journal<S>,
    plan: &Plan,
    begin: Begin,
    at: &dyn Fn() -> f64,
) -> Result<Done, Stopped> {
    let blocked: Vec<&Step> = plan.steps().filter(|step| step.blocked.is_some()).collect();
    if let Some(step) = blocked.first() {
        let why = step.blocked.as_deref().unwrap_or_default();
        let words: Vec<String> = blocked.iter().map(|step| format!("--without {}", step.id)).collect();
        let hint =
            if blocked.len() < plan.steps().count() { format!(" (or {})", words.join(" ")) } else { String::new() };
        return Err(
            Problem::Failed(format!("{} cannot be done here: {why}{hint}; nothing was changed", step.id)).into()
        );
    }
    let steps: Vec<&Step> = plan.all.iter().filter(|step| !step.kept).collect();
    let keep = keep(plan);
    if !steps.iter().any(|step| step.changes()) && keep.is_empty() {
        return Ok(Done::default());
    }
    section(machine, journal, &steps, keep, begin, at)
}

/// Files that a plan writes so that settings outlive a restart.
fn keep(plan: &Plan) -> Vec<Keep> {
    let mut out = Vec::new();
    for step in plan.steps().filter(|step| step.kept) {
        for write in step.writes.iter().filter(|write| write.changes()) {
            let (step, setting) = (step.id.clone(), write.knob.to_string());
            out.push(Keep { step, setting, want: write.want.clone() });
        }
    }
    out
}

/// Confirms the last section, and writes the files that waited for it.
///
/// # Errors
/// If there is nothing to confirm, or a file cannot be written. Files already written are then removed again.
pub(crate) fn confirm<S: Store>(
    machine: &dyn Machine,
    journal: &mut Journal<S>,
    by: &str,
    begin: Begin,
    at: &dyn Fn() -> f64,
) -> Result<Done, Stopped> {
    let last = journal.sections.last().filter(|section| section.waits());
    let Some(last) = last else {
        return Err(
            Problem::Failed("there is nothing to confirm; `margay tune status` tells what is".to_owned()).into()
        );
    };
    let keep = last.keep.clone();
    journal.add(Record::Confirmed { by: by.to_owned() })?;
    if keep.is_empty() {
        return Ok(Done::default());
    }
    let mut steps: Vec<Step> = Vec::new();
    for Keep { step, setting, want } in keep {
        let knob = super::journal::knob(&setting)?;
        let is = machine.read(&knob).unwrap_or_default();
        let write = super::plan::Write { knob, is, want };
        match steps.last_mut().filter(|last| last.id == step) {
            Some(last) => last.writes.push(write),
            None => steps.push(Step { id: step, kept: true, writes: vec![write], ..Step::default() }),
        }
    }
    let begin = Begin { kept: true, limit: None, ..begin };
    section(machine, journal, &steps.iter().collect::<Vec<_>>(), Vec::new(), begin, at)
}
