//! Plans for recorded machines, compared with the reviewed ones in `recorded/plans`. `UPDATE=1` rewrites them for
//! review.

use std::path::Path;

use super::*;
use crate::tune::card::made_up::MadeUp;
use crate::tune::discover::{Options, discover};
use crate::tune::{recorded, text};

/// The recorded machines, each with its goal.
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
fn a_plan_takes_less_than_a_second() {
    for (name, machine, goal) in machines() {
        let begun = std::time::Instant::now();
        let plan = plan(&facts(&machine), &goal);
        // The best of some tries: another process may have the processor.
        let mut took = begun.elapsed();
        for _ in 0..4 {
            let begun = std::time::Instant::now();
            assert_eq!(super::plan(&facts(&machine), &goal).all.len(), plan.all.len());
            took = took.min(begun.elapsed());
        }
        assert!(took.as_secs_f64() < 1.0, "{name}: {took:?}");
    }
}

#[test]
fn every_step_has_its_reason_and_its_source() {
    for (name, machine, goal) in machines() {
        let plan = plan(&facts(&machine), &goal);
        assert!(!plan.all.is_empty(), "{name}");
        for step in &plan.all {
            assert!(!step.why.is_empty() && !step.what.is_empty() && !step.want.is_empty(), "{name}: {}", step.id);
            // Steps that only preserve others over a restart have no source.
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
        // Whether or not they are named.
        let all: Vec<String> = facts.interfaces.keys().cloned().collect();
        for interfaces in [goal.interfaces.clone(), Vec::new(), all] {
            let plan = plan(&facts, &Goal { interfaces, ..goal.clone() });
            for interface in touched(&plan) {
                assert!(!protected.contains(&&interface), "{name}: {interface}");
            }
        }
        // Force requires a name.
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
    // Ten workers for nine gigabits, on the card's node, apart from CPU 0 and management.
    let plan = of(&|_| ());
    assert_eq!(port(&plan).workers, (2..=11).collect::<Vec<_>>());
    assert_eq!((port(&plan).interrupts, plan.placement.management.clone()), (port(&plan).workers, vec![1, 33]));
    // CPUs reserved for others.
    let plan = of(&|goal| goal.leave = vec![2, 3]);
    assert!(!port(&plan).workers.iter().any(|cpu| [2, 3].contains(cpu)));
    // More workers than the node has cores: second threads are used, and the plan warns that they may not suffice.
    let plan = of(&|goal| goal.rate = Some(40_000_000_000));
    assert!(port(&plan).workers.contains(&34) && plan.notes.iter().any(|note| note.contains("may need 45 workers")));
    assert!(port(&plan).workers.iter().all(|cpu| facts.topology.cpus[cpu].node == 0));
    assert_eq!(port(&of(&|goal| goal.workers = Some(4))).workers.len(), 4);
    // A skipped step, and an unknown one.
    let plan = of(&|goal| goal.without = vec!["ring".into(), "wheels".into()]);
    assert!(!plan.all.iter().any(|step| step.id.ends_with(".ring")));
    assert!(plan.notes.iter().any(|note| note.contains("wheels")));
    // An interface that does not exist.
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

use proptest::prelude::*;

/// An interface with one reason to be left alone, or with none.
fn needed_by(kind: usize, name: &str) -> (String, bool) {
    let at = format!("/sys/class/net/{name}");
    let (line, protects) = match kind {
        0 => (format!("{at}/master -> ../br0\n"), true),
        1 => (format!("{at}/upper_{name}.7/\n"), true),
        2 => (format!("{at}/bonding/\n"), true),
        3 => (format!("[card {name}]\naddress 192.0.2.{}/24\n", name.len()), true),
        4 => (format!("[card {name}]\nroute 198.51.100.7\n"), true),
        5 => (format!("{at}/uevent = DEVTYPE=vlan\n"), true),
        _ => (String::new(), false),
    };
    (line, protects)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_touches_a_protected_interface(
        kinds in prop::collection::vec(0usize..9, 1..6),
        named in prop::collection::vec(any::<bool>(), 6),
        (inline, force, any) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let mut text = "/sys/devices/system/cpu/online = 0-7\n/proc/self/environ = SSH_CONNECTION=198.51.100.7 1 192.0.2.99 22\n".to_owned();
        let names: Vec<String> = (0..kinds.len()).map(|at| format!("e{}", "x".repeat(at + 1))).collect();
        let mut protected = Vec::new();
        for (name, kind) in names.iter().zip(&kinds) {
            text += &format!("/sys/class/net/{name}/operstate = up\n/sys/class/net/{name}/device/numa_node = 0\n");
            text += &format!("[card {name}]\ndriver i40e\nchannels combined 2\nmost-channels combined 8\nflags up\nfeature rx-gro on\n");
            // One route leads to the session's other end.
            let kind = if *kind == 4 && text.contains("\nroute ") { 9 } else { *kind };
            let (line, protects) = needed_by(kind, name);
            text += &line;
            protected.extend(protects.then(|| name.clone()));
        }
        let facts = facts(&recorded::read(&text).unwrap());
        let asked: Vec<String> = names.iter().zip(&named).filter(|(_, named)| **named && !any).map(|(name, _)| name.clone()).collect();
        let mode = if inline { Mode::Inline } else { Mode::Passive };
        let plan = plan(&facts, &Goal { interfaces: asked.clone(), mode, force, keep: true, ..Goal::default() });
        for name in touched(&plan) {
            // Only with force and by name.
            let by_force = force && asked.contains(&name);
            prop_assert!(!protected.contains(&name) || by_force, "{name} of {protected:?}");
        }
        for name in &asked {
            let told = plan.refused_by_name().iter().any(|refused| refused.interface == *name);
            prop_assert_eq!(told, protected.contains(name) && !force, "{}", name);
        }
    }

    #[test]
    fn every_machine_has_a_place_for_its_workers(
        (nodes, cores, threads) in (1usize..=4, 1usize..=8, 1usize..=2),
        (amd, inline, driver) in (any::<bool>(), any::<bool>(), prop::sample::select(vec!["i40e", "ice", "odd"])),
        homes in prop::collection::vec((0usize..4, 1u32..40), 1..5),
        leave in prop::collection::vec(0usize..64, 0..4),
        rate in prop::option::of(1u64..200),
        workers in prop::option::of(1usize..20),
    ) {
        let all = nodes * cores;
        let mut text = format!("/sys/devices/system/cpu/online = 0-{}\n/proc/sys/kernel/osrelease = 6.9.0\n", all * threads - 1);
        text += if amd { "/proc/cpuinfo = vendor_id : AuthenticAMD\n" } else { "" };
        for node in 0..nodes {
            let first = (node * cores, (node + 1) * cores - 1);
            let second = if threads == 2 { format!(",{}-{}", first.0 + all, first.1 + all) } else { String::new() };
            text += &format!("/sys/devices/system/node/node{node}/cpulist = {}-{}{second}\n", first.0, first.1);
        }
        for core in (0..all).filter(|_| threads == 2) {
            text += &format!("/sys/devices/system/cpu/cpu{{{core},{}}}/topology/thread_siblings_list = {core},{}\n", core + all, core + all);
        }
        for (at, (home, queues)) in homes.iter().enumerate() {
            text += &format!("/sys/class/net/e{at}/operstate = up\n/sys/class/net/e{at}/device/numa_node = {}\n", home % nodes);
            text += &format!("[card e{at}]\ndriver {driver}\nchannels combined {queues}\nmost-channels combined {queues}\n");
            text += &format!("rss function toeplitz key 01:02:03:04 table 64\nirqs first {} name {{card}}-TxRx-{{queue}}\n", 100 * (at + 1));
        }
        let facts = facts(&recorded::read(&text).unwrap());
        let mode = if inline { Mode::Inline } else { Mode::Passive };
        let goal = Goal { mode, leave: leave.clone(), rate: rate.map(|n| n * 1_000_000_000), workers, ..Goal::default() };
        let plan = plan(&facts, &goal);
        let nothing_left = (0..all * threads).all(|cpu| leave.contains(&cpu));
        let ports = if inline { homes.len() / 2 } else { homes.len() };
        prop_assert_eq!(plan.placement.ports.len(), if nothing_left { 0 } else { ports });
        let shared = plan.notes.iter().any(|note| note.contains("share them"));
        let mut seen = Vec::new();
        for port in &plan.placement.ports {
            prop_assert!(!port.workers.is_empty() && !port.interrupts.is_empty(), "{:?}", port);
            for cpu in port.workers.iter().chain(&port.interrupts) {
                prop_assert!(facts.topology.cpus.contains_key(cpu) && !leave.contains(cpu), "CPU {}: {:?}", cpu, port);
            }
            // Each CPU has one worker; queues are the card's.
            prop_assert!(shared || port.workers.iter().all(|cpu| !seen.contains(cpu)), "{:?}", plan.placement);
            seen.extend(&port.workers);
            let most = port.interfaces.iter().map(|name| facts.interfaces[name].channels.unwrap().most.receive()).min().unwrap();
            prop_assert!(port.interrupts.len() <= most as usize, "{:?}", port);
            match port.spread {
                Spread::Queues => prop_assert_eq!(&port.workers, &port.interrupts),
                Spread::Flows => prop_assert!(port.symmetry != place::Symmetry::None || port.interrupts.len() == 1, "{:?}", port),
            }
        }
        if !plan.engine.is_empty() {
            let config = margay_config::Config::from_str(&plan.engine, "tuned").unwrap();
            prop_assert!(config.node("af-packet").unwrap().children().all(|entry| entry.int("threads").unwrap() > Some(0)));
        }
    }
}
