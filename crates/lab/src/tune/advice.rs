//! What to change of what there is, why, and by which command.

use super::look::{Card, Machine};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The interface, or `machine`.
    pub(super) of: String,
    pub(super) what: &'static str,
    pub(super) is: String,
    /// None where it is as it should be, or where that is not for a program to say.
    pub(super) change: Option<Change>,
}

/// What would be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) why: String,
    pub(super) commands: Vec<String>,
}

fn change(why: &str, commands: Vec<String>) -> Option<Change> {
    Some(Change { why: why.to_owned(), commands })
}

/// Cores as the kernel writes them: `0,2-5`.
pub(super) fn cores(all: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let words = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<_>>().join(",")
}

/// Of the machine as a whole.
pub(super) fn of_machine(m: &Machine) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut found = |what, is: String, change| out.push(Finding { of: "machine".into(), what, is, change });
    let halves = if m.smt { ", of which two share one core's units" } else { "" };
    found("cores", format!("{}{halves}", cores(&m.cores)), None);
    if m.nodes.len() > 1 {
        let nodes = m.nodes.iter().map(|(n, all)| format!("{n} with cores {}", cores(all)));
        found("memory nodes", nodes.collect::<Vec<_>>().join("; "), None);
    }
    let slow = m.governors.keys().any(|governor| governor != "performance");
    let governors: Vec<_> = m.governors.iter().map(|(governor, all)| format!("{governor} on {}", cores(all))).collect();
    if governors.is_empty() {
        found("frequency", "not for the kernel to choose here".into(), None);
    } else {
        let why = "a core that sleeps or runs slowly takes its time to come to speed when packets come";
        let better = slow.then(|| change(why, vec!["cpupower frequency-set -g performance".into()])).flatten();
        found("frequency", governors.join("; "), better);
    }
    let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    found("isolated cores", format!("{}; without a tick: {}", or_none(&m.isolated), or_none(&m.tickless)), None);
    let [packets, dropped, squeezed] = m.softnet;
    let dropping = dropped > 0;
    let backlog = m.backlog.unwrap_or(1000);
    let room = vec![format!("sysctl -w net.core.netdev_max_backlog={}", (backlog * 8).clamp(8000, 65_536))];
    let why = "packets to virtual interfaces, and those handed to another core, wait there";
    found(
        "queue of a core",
        format!("{backlog} packets; {dropped} had no room since the machine was started"),
        (dropping && backlog < 65_536).then(|| change(why, room)).flatten(),
    );
    // Now and then is nothing.
    let often = squeezed > packets / 10_000 && squeezed > 100;
    let budget = m.budget.unwrap_or(300);
    let more =
        vec![format!("sysctl -w net.core.netdev_budget={} net.core.netdev_budget_usecs=8000", (budget * 2).min(1200))];
    found(
        "packets at a time",
        format!("{budget}; {squeezed} times some were left for later"),
        (often && budget < 1200)
            .then(|| change("the rest waits in the ring until the core's next turn", more))
            .flatten(),
    );
    out
}

/// Of one interface.
pub(super) fn of_card(c: &Card, m: &Machine) -> Vec<Finding> {
    let mut out = Vec::new();
    let name = &c.name;
    let mut found = |what, is: String, change| out.push(Finding { of: name.clone(), what, is, change });
    let node = c.node.map_or_else(String::new, |node| format!(", memory node {node}"));
    let state = if c.up { "up" } else { "down" };
    found("driver", format!("{}{node}; {state}", c.driver), None);
    if let Some((now, most)) = c.ring {
        let why = "packets that come at once have more room while a core is busy";
        let larger = (now < most).then(|| change(why, vec![format!("ethtool -G {name} rx {most}")])).flatten();
        let missed = if c.missed > 0 { format!("; {} packets found no room", c.missed) } else { String::new() };
        found("receive ring", format!("{now} of up to {most} descriptors{missed}"), larger);
    }
    // Cores that are near: those of the card's node.
    let near = c.node.filter(|_| m.nodes.len() > 1).and_then(|node| m.nodes.get(&node)).unwrap_or(&m.cores);
    if let Some(q) = c.queues.filter(|q| q.most > 0) {
        let wanted = q.most.min(u32::try_from(near.len()).unwrap_or(u32::MAX));
        let why = "more cores can take packets from the card at the same time";
        let set = vec![format!("ethtool -L {name} {} {wanted}", q.word)];
        let more = (q.now < wanted).then(|| change(why, set)).flatten();
        found("receive queues", format!("{} of up to {}", q.now, q.most), more);
    }
    let why = "what is merged is not what was on the wire: lengths, counts, segments and their checksums";
    for (what, on, word) in [("merging by the card", c.lro, "lro"), ("merging by the kernel", c.gro, "gro")] {
        if let Some(on) = on {
            let off = on.then(|| change(why, vec![format!("ethtool -K {name} {word} off")])).flatten();
            found(what, if on { "on" } else { "off" }.into(), off);
        }
    }
    if !c.interrupts.is_empty() {
        found("interrupts", interrupts(c), placed(c, m, near));
    }
    out
}

fn interrupts(c: &Card) -> String {
    let mut out = Vec::new();
    for (irq, to) in &c.interrupts {
        out.push(format!("{irq} to {}", cores(to)));
    }
    // A card may have hundreds.
    let more = out.len().saturating_sub(8);
    out.truncate(8);
    if more > 0 {
        out.push(format!("and {more} more"));
    }
    out.join(", ")
}

/// Interrupts where they should be: on cores of the card's node, and not all on one.
fn placed(c: &Card, m: &Machine, near: &[usize]) -> Option<Change> {
    let far = c.interrupts.values().any(|to| to.iter().any(|core| !near.contains(core)));
    let mut first = c.interrupts.values();
    let one = first.next().filter(|to| to.len() == 1);
    let same = near.len() > 1 && c.interrupts.len() > 1 && one.is_some_and(|one| first.all(|to| to == one));
    let why = match (far, same) {
        (true, _) => "a core of another memory node waits for every packet's bytes",
        (_, true) => "one core takes the packets of all queues",
        _ => return None,
    };
    let mut commands = Vec::new();
    if m.irqbalance {
        commands.push("systemctl stop irqbalance".to_owned());
    }
    let pairs = c.interrupts.keys().zip(near.iter().cycle());
    commands.extend(pairs.map(|(irq, core)| format!("echo {core} > /proc/irq/{irq}/smp_affinity_list")));
    change(why, commands)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ethtool::Queues;
    use crate::tune::look::list;

    fn commands(findings: &[Finding]) -> Vec<&str> {
        findings.iter().filter_map(|f| f.change.as_ref()).flat_map(|c| &c.commands).map(String::as_str).collect()
    }

    #[test]
    fn cores_as_the_kernel_writes_them() {
        for text in ["0", "0-3", "0,2-5,9", ""] {
            assert_eq!(cores(&list(text)), text);
        }
        assert_eq!(list("0-99999999999,x,3"), [3]);
    }

    #[test]
    fn a_card_that_is_not_set_up() {
        let m = Machine {
            cores: list("0-7"),
            nodes: BTreeMap::from([(0, list("0-3")), (1, list("4-7"))]),
            irqbalance: true,
            ..Machine::default()
        };
        let card = Card {
            name: "eth1".into(),
            node: Some(1),
            ring: Some((512, 4096)),
            queues: Some(Queues { now: 8, most: 63, word: "combined" }),
            lro: Some(true),
            gro: Some(false),
            interrupts: BTreeMap::from([(40, list("0-7")), (41, list("4"))]),
            ..Card::default()
        };
        assert_eq!(
            commands(&of_card(&card, &m)),
            [
                "ethtool -G eth1 rx 4096",
                "ethtool -K eth1 lro off",
                "systemctl stop irqbalance",
                "echo 4 > /proc/irq/40/smp_affinity_list",
                "echo 5 > /proc/irq/41/smp_affinity_list",
            ]
        );
        // As that says.
        let good = Card {
            ring: Some((4096, 4096)),
            lro: Some(false),
            interrupts: BTreeMap::from([(40, list("4")), (41, list("5"))]),
            ..card.clone()
        };
        assert_eq!(commands(&of_card(&good, &m)), Vec::<&str>::new());
        // All on one core; fewer queues than cores.
        let one = Card {
            queues: Some(Queues { now: 1, most: 63, word: "combined" }),
            interrupts: BTreeMap::from([(40, list("5")), (41, list("5"))]),
            ..good
        };
        let said = of_card(&one, &m);
        assert_eq!(commands(&said)[0], "ethtool -L eth1 combined 4");
        assert!(said.iter().any(|f| f.change.as_ref().is_some_and(|c| c.why.contains("one core takes"))), "{said:?}");
    }

    #[test]
    fn a_machine_that_saves_power_and_drops() {
        let m = Machine {
            cores: list("0-1"),
            governors: BTreeMap::from([("powersave".to_owned(), list("0-1"))]),
            softnet: [10_000_000, 5, 2000],
            backlog: Some(1000),
            budget: Some(300),
            ..Machine::default()
        };
        assert_eq!(
            commands(&of_machine(&m)),
            [
                "cpupower frequency-set -g performance",
                "sysctl -w net.core.netdev_max_backlog=8000",
                "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000",
            ]
        );
        let calm = Machine {
            governors: BTreeMap::from([("performance".to_owned(), list("0-1"))]),
            softnet: [10_000_000, 0, 90],
            ..m
        };
        assert_eq!(commands(&of_machine(&calm)), Vec::<&str>::new());
    }
}
