//! Plans of recorded machines, against those that were reviewed: `recorded/plans`. `UPDATE=1` writes them anew, to be reviewed.

use std::path::Path;

use super::*;
use crate::tune::card::made_up::MadeUp;
use crate::tune::discover::{Options, discover};
use crate::tune::{recorded, text};

/// The recorded machines, and what each is for.
pub(crate) fn machines() -> Vec<(&'static str, MadeUp, Goal)> {
    let goal = |mode, rate, keep, interfaces: &[&str]| Goal {
        mode,
        rate,
        keep,
        interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
        program: "/usr/bin/margay".to_owned(),
        ..Goal::default()
    };
    let passive = |rate, keep| goal(Mode::Passive, rate, keep, &[]);
    let gigabits = |n: u64| Some(n * 1_000_000_000);
    let inline = goal(Mode::Inline, gigabits(20), true, &["enp125s0f0", "enp125s0f1"]);
    let of = |name, text, goal| (name, recorded::read(text).unwrap(), goal);
    vec![
        of("two-by-16-x710", include_str!("../recorded/two-by-16-x710.txt"), passive(gigabits(9), true)),
        of("two-by-36-two-xl710", include_str!("../recorded/two-by-36-two-xl710.txt"), passive(gigabits(60), true)),
        of("arm-64-two-nodes", include_str!("../recorded/arm-64-two-nodes.txt"), inline),
        of("epyc-four-nodes", include_str!("../recorded/epyc-four-nodes.txt"), passive(None, true)),
        of("small-vm", include_str!("../recorded/small-vm.txt"), passive(None, false)),
    ]
}

fn facts(machine: &MadeUp) -> Facts {
    discover(machine, &machine.tree, &Options::default())
}

#[test]
fn plans_equal_those_that_were_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tune/recorded/plans");
    for (name, machine, goal) in machines() {
        let facts = facts(&machine);
        let plan = plan(&facts, &goal);
        let said = format!(
            "{}\n--- The same as commands ---\n{}\n--- The engine's settings ---\n{}",
            text::plan(&plan, &facts, true),
            text::plan_commands(&plan),
            plan.engine
        );
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &said).unwrap();
        }
        let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(said, reviewed, "{name}: the plan is another than the reviewed one; UPDATE=1 writes it anew");
    }
}

#[test]
fn every_step_has_its_reason_and_its_source() {
    for (name, machine, goal) in machines() {
        let plan = plan(&facts(&machine), &goal);
        assert!(!plan.all.is_empty(), "{name}");
        for step in &plan.all {
            assert!(!step.why.is_empty() && !step.what.is_empty() && !step.want.is_empty(), "{name}: {}", step.id);
            // What only keeps the others over a restart is after nobody.
            let carries = ["machine.unit", "machine.sysctl-file", "machine.engine"].contains(&step.id.as_str());
            assert!(!step.sources.is_empty() || carries, "{name}: {} is after nobody", step.id);
        }
        let mut ids: Vec<&str> = plan.all.iter().map(|step| step.id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{name}: two steps have the same id");
    }
}

#[test]
fn the_engines_settings_are_known_to_the_engine() {
    for (name, machine, goal) in machines() {
        let plan = plan(&facts(&machine), &goal);
        let config = margay_config::Config::from_str(&plan.engine, name).unwrap();
        assert_eq!(config.unknown_keys(), Vec::new(), "{name}");
        let workers: usize = plan.placement.ports.iter().map(|port| port.workers.len()).sum();
        let threads: i64 = config
            .node("af-packet")
            .unwrap()
            .children()
            .filter(|entry| plan.placement.ports.iter().any(|port| entry.get("interface") == Some(&port.interfaces[0])))
            .map(|entry| entry.int("threads").unwrap().unwrap())
            .sum();
        assert_eq!(threads as usize, workers, "{name}");
    }
}

/// Interfaces that a plan writes to.
fn touched(plan: &Plan) -> Vec<String> {
    let writes = plan.all.iter().flat_map(|step| &step.writes);
    let mut names: Vec<String> = writes.filter_map(|write| write.knob.interface().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn protected_interfaces_are_never_touched() {
    for (name, machine, goal) in machines() {
        let facts = facts(&machine);
        let protected: Vec<&String> = facts
            .interfaces
            .iter()
            .filter(|(_, interface)| !interface.protected.is_empty())
            .map(|(name, _)| name)
            .collect();
        assert!(!protected.is_empty(), "{name}");
        // Whether they are named or not.
        let all: Vec<String> = facts.interfaces.keys().cloned().collect();
        for interfaces in [goal.interfaces.clone(), Vec::new(), all] {
            let plan = plan(&facts, &Goal { interfaces, ..goal.clone() });
            for interface in touched(&plan) {
                assert!(!protected.contains(&&interface), "{name}: {interface}");
            }
        }
        // Force takes a name.
        let forced = Goal { interfaces: Vec::new(), force: true, ..goal.clone() };
        assert!(touched(&plan(&facts, &forced)).iter().all(|interface| !protected.contains(&interface)), "{name}");
        let named = Goal { interfaces: vec![protected[0].clone()], force: true, mode: Mode::Passive, ..goal.clone() };
        let plan = plan(&facts, &named);
        assert!(plan.notes.iter().any(|note| note.contains("by force")), "{name}");
    }
}

#[test]
fn goals_change_the_placement() {
    let (_, machine, goal) = machines().remove(0);
    let facts = facts(&machine);
    let of = |change: &dyn Fn(&mut Goal)| {
        let mut goal = goal.clone();
        change(&mut goal);
        plan(&facts, &goal)
    };
    let port = |plan: &Plan| plan.placement.ports[0].clone();
    // Ten workers for nine gigabits, on the card's node, CPU 0 and management apart.
    let plan = of(&|_| ());
    assert_eq!(port(&plan).workers, (2..=11).collect::<Vec<_>>());
    assert_eq!((port(&plan).interrupts, plan.placement.management.clone()), (port(&plan).workers, vec![1, 33]));
    // CPUs that are left to others.
    let plan = of(&|goal| goal.leave = vec![2, 3]);
    assert!(!port(&plan).workers.iter().any(|cpu| [2, 3].contains(cpu)));
    // More than the cores of a node: their second threads; and it is said that it may not do.
    let plan = of(&|goal| goal.rate = Some(40_000_000_000));
    assert!(port(&plan).workers.contains(&34) && plan.notes.iter().any(|note| note.contains("may need 45 workers")));
    assert!(port(&plan).workers.iter().all(|cpu| facts.topology.cpus[cpu].node == 0));
    assert_eq!(port(&of(&|goal| goal.workers = Some(4))).workers.len(), 4);
    // A step that is left out; one that there is not.
    let plan = of(&|goal| goal.without = vec!["ring".into(), "wheels".into()]);
    assert!(!plan.all.iter().any(|step| step.id.ends_with(".ring")));
    assert!(plan.notes.iter().any(|note| note.contains("wheels")));
    // An interface that there is not.
    let plan = of(&|goal| goal.interfaces = vec!["eth77".into()]);
    assert!(plan.all.is_empty() && plan.refused_by_name()[0].reasons[0].contains("no such interface"));
    // One interface cannot be inline.
    let plan = of(&|goal| goal.mode = Mode::Inline);
    assert!(plan.all.is_empty() && plan.notes[0].contains("has no partner"));
}

#[test]
fn more_queues_than_one_only_with_a_symmetric_hash() {
    let (_, machine, goal) = machines().remove(0);
    let text =
        include_str!("../recorded/two-by-16-x710.txt").replace("driver i40e version", "driver unheard-of version");
    let other = recorded::read(&text).unwrap();
    let asked = plan(&facts(&other), &goal);
    let port = &asked.placement.ports[0];
    assert_eq!((port.spread, port.interrupts.len(), port.symmetry), (Spread::Flows, 1, place::Symmetry::None));
    assert!(!port.workers.contains(&port.interrupts[0]));
    assert!(asked.engine.contains("cluster-type: cluster_flow"));
    let known = plan(&facts(&machine), &goal);
    assert_eq!((known.placement.ports[0].spread, known.placement.ports[0].interrupts.len()), (Spread::Queues, 10));
    assert!(known.engine.contains("cluster-type: cluster_qm"));
}

#[test]
fn what_may_not_be_changed_is_named() {
    let text =
        include_str!("../recorded/small-vm.txt").replace("CapEff:\t000001ffffffffff", "CapEff:\t0000000000000000");
    let machine = recorded::read(&text).unwrap();
    let facts = facts(&machine);
    let plan = plan(&facts, &Goal::default());
    assert!(plan.steps().count() > 3);
    assert!(plan.all.iter().all(|step| step.blocked.as_deref() == Some("it needs root (CAP_NET_ADMIN)")));
    let docker = recorded::read(&format!("{}\n/.dockerenv/\n", include_str!("../recorded/small-vm.txt"))).unwrap();
    let plan = super::plan(&super::tests::facts(&docker), &Goal::default());
    let irq = plan.all.iter().find(|step| step.id == "ens19.interrupts").unwrap();
    assert!(irq.blocked.as_deref().unwrap().contains("container"));
}
