//! Formats plans for people, as JSON, and as shell commands.

use serde_json::{Value, json};

use super::facts::Facts;
use super::knob::Knob;
use super::list;
use super::plan::{Mode, Plan, Spread, Step, Write};

/// Characters in a line.
const WIDTH: usize = 118;
/// Indentation of a step's text.
const INDENT: usize = 14;

/// Wraps words into lines that begin at `indent`. The beginning of the first line exists already.
fn wrapped(out: &mut String, indent: usize, text: &str) {
    let mut column = indent;
    let mut first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        first = false;
    }
    out.push('\n');
}

fn field(out: &mut String, name: &str, text: &str) {
    out.push_str(&format!("    {name:<width$}", width = INDENT - 4));
    wrapped(out, INDENT, text);
}

/// The commands of a step. Similar commands for many CPUs are shortened.
fn commands(step: &Step) -> Vec<String> {
    let all: Vec<String> =
        step.writes.iter().filter(|write| write.changes()).map(|write| write.knob.command(&write.want)).collect();
    if all.len() <= 4 {
        return all;
    }
    let more = all.len() - 3;
    let mut few: Vec<String> = all.into_iter().take(3).collect();
    few.push(format!("and {more} more like these (`--commands` has them all)"));
    few
}

fn step(out: &mut String, at: usize, step: &Step) {
    out.push_str(&format!("{at:2}  "));
    wrapped(out, 4, &format!("{} — {}", step.id, step.what));
    field(out, "is", &step.is);
    field(out, "wanted", &step.want);
    field(out, "why", &step.why);
    step.sources.iter().for_each(|source| field(out, "after", source));
    if let Some(text) = &step.disagreement {
        field(out, "but", text);
    }
    if let Some(text) = &step.cuts {
        field(out, "cuts off", text);
    }
    match (step.reboot, step.restart) {
        (true, _) => field(out, "takes", "a restart of the machine"),
        (_, true) => field(out, "takes", "a restart of the engine"),
        _ => {}
    }
    if step.kept {
        field(out, "kept", "a file of its own, written when the other steps are confirmed");
    }
    if let Some(text) = &step.blocked {
        field(out, "cannot", text);
    }
    commands(step).iter().for_each(|command| field(out, "by", command));
    out.push('\n');
}

/// The plan for people. `all` includes steps that change nothing.
pub(super) fn plan(plan: &Plan, facts: &Facts, all: bool) -> String {
    let mut out = String::new();
    let ports = &plan.placement.ports;
    let mode = if plan.goal.mode == Mode::Inline { "inline" } else { "passive" };
    if ports.is_empty() {
        out += "there is no interface to tune\n";
    }
    for port in ports {
        let spread = match port.spread {
            Spread::Queues => "a queue for each worker",
            Spread::Flows => "flows by the kernel's hash",
        };
        let rate = port.rate as f64 / 1e9;
        let text = format!(
            "{} ({mode}, {rate:.1} Gbit/s): {} workers on CPUs {}, interrupts of {} {} on {}; {spread}",
            port.interfaces.join(" and "),
            port.workers.len(),
            list::show(&sorted(&port.workers)),
            port.interrupts.len(),
            if port.interrupts.len() == 1 { "queue" } else { "queues" },
            list::show(&sorted(&port.interrupts)),
        );
        wrapped(&mut out, 4, &text);
    }
    if !ports.is_empty() {
        let text = format!("management on CPUs {}; {}", list::show(&plan.placement.management), plan.placement.why);
        wrapped(&mut out, 4, &text);
        plan.placement.sources.iter().for_each(|source| field(&mut out, "after", source));
    }
    for refused in &plan.refused {
        let forced =
            if refused.reasons == ["there is no such interface"] { "" } else { " (--force, with its name, overrides)" };
        wrapped(&mut out, 4, &format!("{} is left alone: {}{forced}", refused.interface, refused.reasons.join("; ")));
    }
    plan.notes.iter().for_each(|note| wrapped(&mut out, 4, &format!("note: {note}")));
    for missing in &facts.missing {
        wrapped(&mut out, 4, &format!("not known: {}: {}", missing.what, missing.why));
    }
    out.push('\n');
    let steps: Vec<&Step> = plan.steps().collect();
    for (at, one) in steps.iter().enumerate() {
        step(&mut out, at + 1, one);
    }
    let settled: Vec<&Step> = plan.settled().collect();
    if all && !settled.is_empty() {
        out += "As it should be:\n";
        settled.iter().for_each(|step| wrapped(&mut out, 4, &format!("  {} — {}: {}", step.id, step.what, step.is)));
        out.push('\n');
    }
    if !plan.advice.is_empty() {
        out += "For you to do:\n";
        for advice in &plan.advice {
            wrapped(&mut out, 4, &format!("  {}", advice.what));
            field(&mut out, "why", &advice.why);
            advice.sources.iter().for_each(|source| field(&mut out, "after", source));
        }
        out.push('\n');
    }
    if !plan.declined.is_empty() {
        out += "Set by others and not here:\n";
        for declined in &plan.declined {
            wrapped(&mut out, 4, &format!("  {}", declined.what));
            field(&mut out, "set by", &declined.source);
            field(&mut out, "not, for", &declined.why);
        }
        out.push('\n');
    }
    match steps.len() {
        0 => out += "nothing to change was found\n",
        n => out += &format!("{n} steps; nothing was changed (`margay tune apply --yes` does)\n"),
    }
    out
}

fn sorted(cpus: &[usize]) -> Vec<usize> {
    let mut all = cpus.to_vec();
    all.sort_unstable();
    all
}

/// One step as JSON.
fn step_json(step: &Step) -> Value {
    let writes: Vec<Value> = step
        .writes
        .iter()
        .map(|write| {
            let command = write.knob.command(&write.want);
            json!({"setting": write.knob.to_string(), "is": write.is, "want": write.want, "changes": write.changes(), "command": command})
        })
        .collect();
    json!({
        "id": step.id, "what": step.what, "is": step.is, "want": step.want, "why": step.why, "sources": step.sources,
        "disagreement": step.disagreement, "reboot": step.reboot, "restart": step.restart, "cuts": step.cuts, "kept": step.kept,
        "blocked": step.blocked, "settings": writes,
    })
}

/// The plan as JSON.
pub(super) fn plan_json(plan: &Plan) -> Value {
    let of = |steps: Vec<&Step>| steps.into_iter().map(step_json).collect::<Vec<_>>();
    json!({
        "goal": plan.goal,
        "placement": plan.placement,
        "steps": of(plan.steps().collect()),
        "settled": of(plan.settled().collect()),
        "advice": plan.advice,
        "declined": plan.declined,
        "refused": plan.refused,
        "notes": plan.notes,
        "engine": plan.engine,
    })
}

/// The plan's commands, one on each line.
pub(super) fn plan_commands(plan: &Plan) -> String {
    let writes = plan.steps().flat_map(|step| &step.writes).filter(|write| write.changes());
    let command = |write: &Write| match &write.knob {
        Knob::Own(path) => format!("install -m 644 /dev/stdin {path} <<'END'\n{}END\n", write.want),
        knob => format!("{}\n", knob.command(&write.want)),
    };
    writes.map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let mut out = "x  ".to_owned();
        wrapped(&mut out, 3, &"word ".repeat(40).trim_end().replace("word word", "wörd word"));
        assert!(out.lines().count() == 2 && out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert!(out.lines().nth(1).unwrap().starts_with("   w"));
    }
}
