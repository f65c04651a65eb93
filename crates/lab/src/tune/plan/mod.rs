//! `margay tune plan`: the changes, their order, reasons and sources. A plan depends only on the facts and the goal.

mod advice;
mod card;
mod declined;
mod engine;
mod host;
mod kept;
mod place;
mod sources;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::machines;

use std::collections::BTreeMap;

use serde::Serialize;

use super::facts::Facts;
use super::knob::{Knob, Value};
pub(crate) use kept::{FILES, FOLDERS};
pub(crate) use place::{Placement, Spread};

/// The mode of the sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Packets are only inspected.
    #[default]
    Passive,
    /// Packets go from one interface to another, and wait for the verdict.
    Inline,
}

/// The goal of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Goal {
    pub(crate) mode: Mode,
    /// Interfaces that the sensor reads from, in pairs for inline mode. Empty: unused hardware interfaces.
    pub(crate) interfaces: Vec<String>,
    /// Bits a second, of all interfaces together.
    pub(crate) rate: Option<u64>,
    /// CPUs that the sensor leaves alone.
    pub(crate) leave: Vec<usize>,
    /// Most workers.
    pub(crate) workers: Option<usize>,
    /// Bytes that the engine may use.
    pub(crate) memory: Option<u64>,
    /// Steps to leave out, by id or by the word after the interface's name.
    pub(crate) without: Vec<String>,
    /// Also tune protected interfaces.
    pub(crate) force: bool,
    /// Plan files, so that the settings outlive a restart.
    pub(crate) keep: bool,
    /// The command that a unit runs at boot.
    pub(crate) program: String,
}

/// A setting to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) knob: Knob,
    /// The current value; `None` if it does not exist yet.
    pub(crate) is: Value,
    pub(crate) want: String,
}

impl Write {
    /// Whether the value has to change.
    pub(crate) fn changes(&self) -> bool {
        self.is.as_ref() != Some(&self.want)
    }
}

/// One step of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// The interface or `machine`, a dot, and a word: `eth1.queues`.
    pub(crate) id: String,
    pub(crate) what: String,
    /// The current and the wanted state, for people.
    pub(crate) is: String,
    pub(crate) want: String,
    pub(crate) why: String,
    pub(crate) sources: Vec<String>,
    /// Sources that disagree, and the rule that decides.
    pub(crate) disagreement: Option<String>,
    /// It takes effect after the machine's next boot, or the engine's next start.
    pub(crate) reboot: bool,
    pub(crate) restart: bool,
    /// Connections that may be interrupted for a while.
    pub(crate) cuts: Option<String>,
    /// It is a file of our own that outlives a restart. It is written when the other steps are confirmed.
    pub(crate) kept: bool,
    /// The reason that it is impossible here.
    pub(crate) blocked: Option<String>,
    pub(crate) writes: Vec<Write>,
}

impl Step {
    /// Whether the step changes anything.
    pub(crate) fn changes(&self) -> bool {
        self.writes.iter().any(Write::changes)
    }
}

/// Advice for the operator on changes that the program does not make: a firmware setting, a boot loader command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Advice {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) sources: Vec<String>,
}

/// A value that a source sets and this plan does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Declined {
    pub(crate) what: String,
    pub(crate) source: String,
    pub(crate) why: String,
}

/// An interface that is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) interface: String,
    pub(crate) reasons: Vec<String>,
    /// The user named it.
    pub(crate) asked: bool,
}

/// A plan, see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) goal: Goal,
    pub(crate) placement: Placement,
    /// All steps in order, including those that change nothing.
    pub(crate) all: Vec<Step>,
    pub(crate) advice: Vec<Advice>,
    pub(crate) declined: Vec<Declined>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) notes: Vec<String>,
    /// Settings for the engine, as YAML to include.
    pub(crate) engine: String,
}

impl Plan {
    /// The steps that change something.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.all.iter().filter(|step| step.changes())
    }

    /// The steps that are already as wanted.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &Step> {
        self.all.iter().filter(|step| !step.changes())
    }

    /// Interfaces that the user named and that are not tuned.
    pub(crate) fn refused_by_name(&self) -> Vec<&Refused> {
        self.refused.iter().filter(|refused| refused.asked).collect()
    }
}

/// A plan under construction.
struct Draft<'a> {
    facts: &'a Facts,
    plan: Plan,
}

/// The texts of a step.
#[derive(Default)]
struct Words<'a> {
    what: &'a str,
    why: String,
    sources: Vec<String>,
    disagreement: Option<String>,
    cuts: Option<String>,
}

impl Draft<'_> {
    /// Adds a step with its settings, and looks up their current values. A setting that a driver rounded on the same
    /// request counts as wanted.
    fn step(&mut self, id: String, words: Words<'_>, settings: Vec<(Knob, String)>) -> &mut Step {
        let told = |knob: &Knob, want: &str, is: &Value| {
            let rounded = self.facts.rounded.get(&knob.to_string());
            rounded.is_some_and(|rounded| is.as_ref() == Some(&rounded.got) && as_told(want, rounded))
        };
        let writes: Vec<Write> = settings
            .into_iter()
            .map(|(knob, want)| {
                let is = value(self.facts, &knob);
                let want = if told(&knob, &want, &is) { is.clone().unwrap_or(want) } else { want };
                Write { knob, is, want }
            })
            .collect();
        // A step that changes something shows only the changes.
        let changing: Vec<&Write> = writes.iter().filter(|write| write.changes()).collect();
        let of_interest = if changing.is_empty() { writes.iter().collect() } else { changing };
        let shown = |of: &dyn Fn(&Write) -> String| summary(&of_interest, of);
        let step = Step {
            is: shown(&|write| write.is.clone().unwrap_or_else(|| "not there".to_owned())),
            want: shown(&|write| write.want.clone()),
            what: words.what.to_owned(),
            why: words.why,
            sources: words.sources,
            disagreement: words.disagreement,
            cuts: words.cuts,
            kept: writes.iter().any(|write| write.knob.is_kept()),
            blocked: self.facts.host.denied.clone(),
            id,
            writes,
            ..Step::default()
        };
        self.plan.all.push(step);
        let last = self.plan.all.len() - 1;
        &mut self.plan.all[last]
    }

    fn note(&mut self, text: String) {
        self.plan.notes.push(text);
    }

    fn decline(&mut self, what: &str, source: String, why: String) {
        self.plan.declined.push(Declined { what: what.to_owned(), source, why });
    }
}

/// Whether the driver already got this value, word by word. Words that are only carried over count as given.
fn as_told(want: &str, rounded: &super::facts::Rounded) -> bool {
    let pairs = |text: &str| {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.chunks(2).map(<[String]>::to_vec).collect::<Vec<_>>()
    };
    let (told, got) = (pairs(&rounded.wanted), pairs(&rounded.got));
    pairs(want).iter().all(|pair| told.contains(pair) || got.contains(pair))
}

/// Summarises the values of several settings. Equal values appear once, with the names of their settings.
fn summary(writes: &[&Write], of: &dyn Fn(&Write) -> String) -> String {
    let mut groups: Vec<(String, Vec<&Knob>)> = Vec::new();
    for write in writes {
        let value = match (&write.knob, of(write)) {
            (_, value) if value.is_empty() => "none".to_owned(),
            (Knob::RssKey(_), key) if key.len() > 11 => format!("{}:… ({} bytes)", &key[..11], key.len().div_ceil(3)),
            (_, value) => value,
        };
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, knobs)) => knobs.push(&write.knob),
            None => groups.push((value, vec![&write.knob])),
        }
    }
    if let [(value, _)] = groups.as_slice() {
        return value.clone();
    }
    let named = |(value, knobs): &(String, Vec<&Knob>)| {
        let names: Vec<String> = knobs.iter().map(|knob| short(knob)).collect();
        format!("{}: {value}", ranges(&names))
    };
    groups.iter().map(named).collect::<Vec<_>>().join("; ")
}

/// The part of a setting's name that distinguishes it within its step.
fn short(knob: &Knob) -> String {
    match knob {
        Knob::Feature(_, feature) => feature.clone(),
        Knob::Hash(_, flow) => flow.clone(),
        Knob::Irq(_, queue) | Knob::Rps(_, queue) => format!("queue {queue}"),
        Knob::RssFunction(_) => "function".to_owned(),
        Knob::RssTransform(_) => "transformation".to_owned(),
        Knob::RssKey(_) => "key".to_owned(),
        Knob::RssTable(_) => "table".to_owned(),
        Knob::Promisc(_) => "promiscuous".to_owned(),
        Knob::Arp(_) => "ARP".to_owned(),
        Knob::File(path) => match path.strip_prefix("/sys/devices/system/cpu/cpu") {
            Some(rest) => {
                let (cpu, rest) = rest.split_once('/').unwrap_or((rest, ""));
                let state = rest.split('/').find(|part| part.starts_with("state"));
                state.map_or_else(|| format!("CPU {cpu}"), |state| format!("{state} of CPU {cpu}"))
            }
            None if path.starts_with("/sys/class/net/") => path.rsplit('/').next().unwrap_or(path).to_owned(),
            None => path.strip_prefix("/proc/sys/").map_or_else(|| path.clone(), |name| name.replace('/', ".")),
        },
        other => other.to_string(),
    }
}

/// Shortens `queue 0, queue 1, queue 2` to `queue 0-2`, and likewise for other words before a number.
fn ranges(names: &[String]) -> String {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut others = Vec::new();
    for name in names {
        match name.rsplit_once(' ').and_then(|(word, number)| Some((word, number.parse().ok()?))) {
            Some((word, number)) => groups.entry(word).or_default().push(number),
            None => others.push(name.clone()),
        }
    }
    let numbered = groups.into_iter().map(|(word, mut numbers)| {
        numbers.sort_unstable();
        format!("{word} {}", super::list::show(&numbers))
    });
    others.into_iter().chain(numbered).collect::<Vec<_>>().join(", ")
}

/// A setting's value in the facts.
pub(crate) fn value(facts: &Facts, knob: &Knob) -> Value {
    let interface = knob.interface().and_then(|name| facts.interfaces.get(name));
    match knob {
        Knob::Service(name) if name == "irqbalance" => Some(facts.irqbalance.clone()),
        Knob::Channels(_) => Some(interface?.channels?.now.to_string()),
        Knob::Ring(_) => Some(interface?.ring?.now.to_string()),
        Knob::Pause(_) => Some(interface?.pause?.to_string()),
        Knob::Coalesce(_) => Some(interface?.coalesce?.to_string()),
        Knob::Feature(_, feature) => Some(super::card::on(interface?.features.get(feature)?.on).to_owned()),
        Knob::RssFunction(_) => Some(interface?.rss.as_ref()?.function.clone()),
        Knob::RssTransform(_) => Some(interface?.rss.as_ref()?.transform.clone()),
        Knob::RssKey(_) => Some(interface?.rss.as_ref()?.key_text()),
        Knob::RssTable(_) => {
            let queues = interface?.channels.map_or(0, |channels| channels.now.receive());
            Some(interface?.rss.as_ref()?.table_text(queues))
        }
        Knob::Hash(_, flow) => interface?.hash.get(flow).cloned(),
        Knob::Promisc(_) => Some(super::card::on(interface?.flags?.promisc).to_owned()),
        Knob::Arp(_) => Some(super::card::on(interface?.flags?.arp).to_owned()),
        Knob::Rps(_, queue) => Some(super::list::show(&interface?.queues.get(queue)?.rps)),
        Knob::Irq(_, queue) => {
            let queue = interface?.queues.get(queue)?;
            queue.interrupt.map(|_| super::list::show(&queue.cpus))
        }
        Knob::File(path) => file(facts, path),
        Knob::Service(_) => None,
        Knob::Own(path) | Knob::OwnLink(path) | Knob::OwnFolder(path) => facts.own.get(path).cloned(),
    }
}

/// The contents of a kernel file, if the facts have it.
fn file(facts: &Facts, path: &str) -> Value {
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        return match name.strip_prefix("net/ipv6/conf/").and_then(|rest| rest.split_once('/')) {
            Some((interface, setting)) => facts.sysctls.get(&format!("net.ipv6.conf.{interface}.{setting}")).cloned(),
            None => facts.sysctls.get(&name.replace('/', ".")).cloned(),
        };
    }
    if let Some((name, setting)) = path.strip_prefix("/sys/class/net/").and_then(|rest| rest.split_once('/')) {
        return facts.interfaces.get(name)?.napi.get(setting).cloned();
    }
    let (cpu, setting) = path.strip_prefix("/sys/devices/system/cpu/cpu")?.split_once('/')?;
    let cpu = facts.topology.cpus.get(&cpu.parse().ok()?)?;
    if setting == "cpufreq/scaling_governor" {
        return cpu.governor.clone();
    }
    let state: usize = setting.strip_prefix("cpuidle/state")?.strip_suffix("/disable")?.parse().ok()?;
    cpu.idle.get(state).map(|state| u8::from(state.disabled).to_string())
}

/// Makes a plan.
pub(crate) fn plan(facts: &Facts, goal: &Goal) -> Plan {
    let mut draft = Draft { facts, plan: Plan { goal: goal.clone(), ..Plan::default() } };
    let chosen = choose(&mut draft);
    draft.plan.placement = place::place(&mut draft, &chosen);
    let placement = draft.plan.placement.clone();
    // Stop irqbalance first, because it moves interrupts.
    host::irqbalance(&mut draft);
    for port in &placement.ports {
        card::steps(&mut draft, port);
    }
    host::steps(&mut draft, &placement);
    draft.plan.engine = engine::yaml(&mut draft, &placement);
    kept::steps(&mut draft, &placement);
    advice::advice(&mut draft, &placement);
    declined::declined(&mut draft, &placement);
    let (without, all) = (&goal.without, &mut draft.plan.all);
    let left_out = |id: &str| without.iter().any(|word| word == id || id.rsplit('.').next() == Some(word));
    let mut unknown: Vec<String> = without.clone();
    unknown.retain(|word| !all.iter().any(|step| step.id == *word || step.id.rsplit('.').next() == Some(word)));
    all.retain(|step| !left_out(&step.id));
    for word in unknown {
        draft.note(format!("--without {word}: there is no such step"));
    }
    if !goal.keep {
        let kept: Vec<String> =
            draft.plan.all.iter().filter(|step| step.kept && step.changes()).map(|s| s.id.clone()).collect();
        draft.plan.all.retain(|step| !step.kept);
        if !kept.is_empty() {
            draft.note(format!("what is set is forgotten at a restart; --persist adds {}", kept.join(", ")));
        }
    }
    draft.plan
}

/// The interfaces to tune, in order.
fn choose(draft: &mut Draft<'_>) -> Vec<String> {
    let facts = draft.facts;
    let goal = draft.plan.goal.clone();
    let asked = !goal.interfaces.is_empty();
    let hardware = facts.interfaces.values().any(|interface| interface.hardware);
    let free = |name: &&String| facts.interfaces[*name].hardware || !hardware;
    let candidates: Vec<String> = match asked {
        true => goal.interfaces.clone(),
        false => facts.interfaces.keys().filter(free).cloned().collect(),
    };
    let mut chosen: Vec<String> = Vec::new();
    for name in candidates {
        let Some(interface) = facts.interfaces.get(&name) else {
            let reasons = vec!["there is no such interface".to_owned()];
            draft.plan.refused.push(Refused { interface: name, reasons, asked });
            continue;
        };
        let protected = !interface.protected.is_empty();
        if protected && !(goal.force && asked) {
            draft.plan.refused.push(Refused { interface: name, reasons: interface.protected.clone(), asked });
        } else if !chosen.contains(&name) {
            if protected {
                draft.note(format!("{name} is tuned by force: {}", interface.protected.join("; ")));
            }
            chosen.push(name);
        }
    }
    chosen
}
