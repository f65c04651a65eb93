//! Steps of the machine as a whole: irqbalance, frequency, idle states, the kernel's queues.

use super::place::{Placement, Spread};
use super::sources::{
    CPUFREQ, CPUIDLE, CRYSTAL_EYE, GUIDE_HIGH, ISOLATION, PARAMETERS, SCALING, SINGLE_NODE, SYSCTL_NET, SYSCTL_VM,
    TIANJIN, says,
};
use super::{Draft, Words};
use crate::tune::knob::Knob;

/// Longest wake-up time of a CPU that handles packets, in microseconds: about half of the time between two interrupts.
const WAKE: u32 = 60;
/// Packets that may wait for a CPU, if another CPU hands packets to it.
const BACKLOG: u64 = 10_000;
/// Packets and microseconds of one polling round.
const BUDGET: u64 = 600;
const BUDGET_USECS: u64 = 8000;
/// The kernel's tendency to swap memory out.
const SWAPPINESS: u64 = 5;

pub(super) fn irqbalance(draft: &mut Draft<'_>) {
    if draft.plan.placement.ports.is_empty() || draft.facts.irqbalance.is_empty() {
        return;
    }
    let words = Words {
        what: "irqbalance",
        why: "it moves interrupts every ten seconds, away from where they are put".to_owned(),
        sources: vec![
            says(SINGLE_NODE, "stopped"),
            says(CRYSTAL_EYE, "stopped"),
            says(TIANJIN, "stopped"),
            says(GUIDE_HIGH, "off and not running"),
            says(SCALING, "it may override manual settings"),
        ],
        ..Words::default()
    };
    draft.step(
        "machine.irqbalance".to_owned(),
        words,
        vec![(Knob::Service("irqbalance".to_owned()), "stopped".to_owned())],
    );
}

pub(super) fn steps(draft: &mut Draft<'_>, placement: &Placement) {
    if placement.ports.is_empty() {
        return;
    }
    governor(draft, placement);
    idle(draft, placement);
    backlog(draft, placement);
    budget(draft);
    buffers(draft);
    swap(draft);
}

fn governor(draft: &mut Draft<'_>, placement: &Placement) {
    let settings: Vec<(Knob, String)> = placement
        .busy()
        .into_iter()
        .filter(|cpu| {
            let cpu = draft.facts.topology.cpus.get(cpu);
            cpu.is_some_and(|cpu| {
                cpu.governor.is_some() && (cpu.governors.is_empty() || cpu.governors.iter().any(|g| g == "performance"))
            })
        })
        .map(|cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            (Knob::File(path), "performance".to_owned())
        })
        .collect();
    if settings.is_empty() {
        return;
    }
    let words = Words {
        what: "frequency of CPUs that work for packets",
        why: "a CPU that runs slowly while little comes takes milliseconds to come to speed when packets do".to_owned(),
        sources: vec![
            says(SINGLE_NODE, "P-states on, power mode Custom"),
            says(CPUFREQ, "performance: the highest frequency"),
        ],
        ..Words::default()
    };
    draft.step("machine.governor".to_owned(), words, settings);
}

fn idle(draft: &mut Draft<'_>, placement: &Placement) {
    let mut settings = Vec::new();
    for cpu in placement.busy() {
        let states = draft.facts.topology.cpus.get(&cpu).map(|cpu| cpu.idle.as_slice()).unwrap_or_default();
        for (at, _) in states.iter().enumerate().filter(|(_, state)| state.latency > WAKE && state.switch) {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{at}/disable");
            settings.push((Knob::File(path), "1".to_owned()));
        }
    }
    if settings.is_empty() {
        return;
    }
    let words = Words {
        what: "deep idle states of CPUs that work for packets",
        why: format!("states that take longer than {WAKE} µs to wake up from are disabled while the machine runs, for these CPUs alone"),
        sources: vec![
            says(SINGLE_NODE, "intel_idle.max_cstate=3, C-states on"),
            says(CRYSTAL_EYE, "intel_idle.max_cstate=3 processor.max_cstate=3"),
            says(CPUIDLE, "cpuidle/stateN/disable; /dev/cpu_dma_latency"),
        ],
        disagreement: Some(
            "the studies write a limit into the boot line, for all CPUs and by a number that means another state on each processor; \
             /dev/cpu_dma_latency is for all CPUs and holds while a program has it open. Rule: by latency, for the CPUs that matter, at \
             run time"
                .to_owned(),
        ),
        cuts: None,
    };
    let mut deep: Vec<String> = Vec::new();
    let states =
        placement.busy().into_iter().filter_map(|cpu| draft.facts.topology.cpus.get(&cpu)).flat_map(|cpu| &cpu.idle);
    for state in states.filter(|state| state.latency > WAKE) {
        let text = format!("{} ({} µs)", state.name, state.latency);
        if !deep.contains(&text) {
            deep.push(text);
        }
    }
    let step = draft.step("machine.idle-states".to_owned(), words, settings);
    let deep = deep.join(", ");
    step.is = format!("{deep} {}", if step.changes() { "enabled" } else { "disabled" });
    step.want = format!("{deep} disabled");
}

/// Adds a step for a kernel setting that exists.
fn sysctl(draft: &mut Draft<'_>, word: &str, words: Words<'_>, wanted: &[(&str, u64)]) {
    let known = |(name, _): &&(&str, u64)| draft.facts.sysctls.contains_key(*name);
    let knob =
        |(name, want): &(&str, u64)| (Knob::File(format!("/proc/sys/{}", name.replace('.', "/"))), want.to_string());
    let settings: Vec<_> = wanted.iter().filter(known).map(knob).collect();
    if !settings.is_empty() {
        draft.step(format!("machine.{word}"), words, settings);
    }
}

fn setting(draft: &Draft<'_>, name: &str) -> Option<u64> {
    draft.facts.sysctls.get(name)?.parse().ok()
}

/// Whether packets wait in a CPU's kernel queue: those of virtual interfaces, and those that RPS hands over.
fn waits(draft: &Draft<'_>, placement: &Placement) -> bool {
    let by_rps = draft
        .plan
        .all
        .iter()
        .any(|step| step.writes.iter().any(|write| matches!(write.knob, Knob::Rps(..)) && !write.want.is_empty()));
    let names = placement.ports.iter().flat_map(|port| &port.interfaces);
    let is_virtual = |name: &String| draft.facts.interfaces.get(name).is_some_and(|interface| !interface.hardware);
    by_rps || draft.facts.softnet.dropped > 0 || names.into_iter().any(is_virtual)
}

fn backlog(draft: &mut Draft<'_>, placement: &Placement) {
    const NAME: &str = "net.core.netdev_max_backlog";
    let Some(now) = setting(draft, NAME) else { return };
    if !waits(draft, placement) {
        let why = format!(
            "packets of these cards do not wait there: it is the queue of packets that one CPU hands to another, and of virtual interfaces; \
             {} found no room since the machine was started. It stays at {now}",
            draft.facts.softnet.dropped
        );
        draft.decline("net.core.netdev_max_backlog=300000", TIANJIN.to_owned(), why);
        return;
    }
    let words = Words {
        what: "packets that wait for a CPU",
        why: "packets that are handed to another CPU, and those of virtual interfaces, wait in its queue".to_owned(),
        sources: vec![
            says(TIANJIN, "300000"),
            says(SCALING, "1000 and 10000 performed well"),
            says(SYSCTL_NET, "packets queued when the interface receives faster than the kernel can process"),
        ],
        disagreement: Some(
            "300,000 packets are 0.2 s at 1.5 million a second: they hide a CPU that is too slow, and come late. Rule: 10,000, or what is \
             set where that is more"
                .to_owned(),
        ),
        cuts: None,
    };
    sysctl(draft, "backlog", words, &[(NAME, now.max(BACKLOG))]);
}

fn budget(draft: &mut Draft<'_>) {
    let softnet = draft.facts.softnet;
    let (Some(packets), Some(usecs)) =
        (setting(draft, "net.core.netdev_budget"), setting(draft, "net.core.netdev_budget_usecs"))
    else {
        return;
    };
    // Occasional squeezes do not matter.
    let often = softnet.squeezed > softnet.packets / 10_000 && softnet.squeezed > 100;
    if !often && packets <= BUDGET {
        let why = format!(
            "a CPU left packets for later {} times in {} packets: rarely enough. Where worker and interrupt share a CPU, a larger budget is \
             time that the worker does not have. It stays at {packets}",
            softnet.squeezed, softnet.packets
        );
        draft.decline("net.core.netdev_budget=3000", TIANJIN.to_owned(), why);
        return;
    }
    let words = Words {
        what: "packets of one round",
        why: format!("a CPU left packets for later {} times in {} packets", softnet.squeezed, softnet.packets),
        sources: vec![says(TIANJIN, "netdev_budget=3000"), says(SYSCTL_NET, "netdev_budget, netdev_budget_usecs")],
        disagreement: Some(format!(
            "3,000 packets are more than the 8 ms after which a round ends anyway. Rule: {BUDGET} packets, {BUDGET_USECS} µs, or what is set where \
             that is more"
        )),
        cuts: None,
    };
    let wanted =
        [("net.core.netdev_budget", packets.max(BUDGET)), ("net.core.netdev_budget_usecs", usecs.max(BUDGET_USECS))];
    sysctl(draft, "budget", words, &wanted);
}

/// Receive buffers matter only if the engine requests more than the kernel allows.
fn buffers(draft: &mut Draft<'_>) {
    const NAME: &str = "net.core.rmem_max";
    let asked = draft.facts.engine.iter().flat_map(|engine| &engine.settings);
    let asked = asked.filter(|(name, _)| name.starts_with("af-packet.") && name.ends_with(".buffer-size"));
    let asked = asked.filter_map(|(_, value)| margay_config::typed::parse_size(value).ok()).max();
    let (Some(asked), Some(now)) = (asked, setting(draft, NAME)) else { return };
    if asked <= now {
        return;
    }
    let words = Words {
        what: "largest receive buffer of a socket",
        why: format!("the engine's af-packet buffer-size asks for {asked} bytes, and gets {now}"),
        sources: vec![says(TIANJIN, "rmem_max=134217728"), says(SYSCTL_NET, "the maximum receive socket buffer size")],
        ..Words::default()
    };
    sysctl(draft, "receive-buffer", words, &[(NAME, asked)]);
}

fn swap(draft: &mut Draft<'_>) {
    let Some(now) = setting(draft, "vm.swappiness") else { return };
    if draft.facts.host.swap == 0 {
        return;
    }
    let words = Words {
        what: "swapping",
        why: "a flow table that was swapped out stops its worker for milliseconds when the flow goes on".to_owned(),
        sources: vec![says(ISOLATION, "vm.swappiness=5"), says(SYSCTL_VM, "swappiness")],
        ..Words::default()
    };
    sysctl(draft, "swappiness", words, &[("vm.swappiness", now.min(SWAPPINESS))]);
}

/// [`super::kept`] writes `isolcpus` on the boot line or, better, a partition. This is the reason that isolating the
/// workers' CPUs is worth it.
pub(super) fn isolation_why(placement: &Placement) -> (String, Vec<String>) {
    let shares = placement.ports.iter().any(|port| port.spread == Spread::Queues);
    let why = match shares {
        true => "no other program runs on the CPUs of workers, which have their queue's interrupts as well",
        false => "no other program runs on the CPUs of workers",
    };
    let sources = vec![
        says(SINGLE_NODE, "isolcpus=1-10"),
        says(CRYSTAL_EYE, "isolcpus=1-17,19-35,37-53,55-71"),
        says(GUIDE_HIGH, "isolcpus is another option"),
        says(PARAMETERS, "isolcpus is deprecated: use cpusets"),
    ];
    (why.to_owned(), sources)
}
