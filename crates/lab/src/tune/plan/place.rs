//! Assigns CPUs to workers, interrupts and management threads, and decides how packets reach the workers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sources::{CRYSTAL_EYE, GUIDE_CAPTURE, GUIDE_HIGH, NUMA, SINGLE_NODE, TIANJIN};
use super::{Draft, Mode};
use crate::tune::facts::{Cpu, Facts, Interface, Vendor};
use crate::tune::list;

/// Bits a second that a worker handles: 9 Gbit/s on 10 CPUs in one study, 34.5 on 34 and 60 on 68 in another.
pub(super) const WORKER_RATE: u64 = 900_000_000;
/// Symmetric transformations of drivers, and the first kernel with each.
const TRANSFORMS: [(&str, &str, (u32, u32)); 2] = [("ice", "symmetric-xor", (6, 8)), ("iavf", "symmetric-xor", (6, 8))];
/// Drivers that accept a key. A key that repeats every 16 bits makes their hash symmetric.
const KEYED: [&str; 14] = [
    "i40e",
    "ice",
    "iavf",
    "ixgbe",
    "ixgbevf",
    "mlx5_core",
    "mlx4_en",
    "bnxt_en",
    "ena",
    "hns3",
    "sfc",
    "nfp",
    "qede",
    "virtio_net",
];

/// If a node has this many cores, management does not share one with the system.
const LARGE: usize = 8;

/// The method that makes a card's hash symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Symmetry {
    /// A transformation with this name.
    Transform(&'static str),
    /// A repeating key.
    Key,
    /// It cannot be made symmetric.
    None,
}

/// How packets reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spread {
    /// Each worker has a queue of the card: `cluster_qm`.
    Queues,
    /// The kernel hashes flows: `cluster_flow`.
    Flows,
}

/// One passive interface, or a bridged pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Port {
    pub(crate) interfaces: Vec<String>,
    pub(crate) node: Option<usize>,
    /// One CPU for each worker.
    pub(crate) workers: Vec<usize>,
    pub(crate) spread: Spread,
    pub(crate) symmetry: Symmetry,
    /// The interrupt CPU of each planned receive queue.
    pub(crate) interrupts: Vec<usize>,
    /// Bits a second.
    pub(crate) rate: u64,
}

/// The placement, see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Placement {
    pub(crate) ports: Vec<Port>,
    /// CPUs of the management threads.
    pub(crate) management: Vec<usize>,
    /// The reason for the placement of the workers.
    pub(crate) why: String,
    pub(crate) sources: Vec<String>,
}

impl Placement {
    /// All CPUs of workers.
    pub(crate) fn workers(&self) -> Vec<usize> {
        sorted(self.ports.iter().flat_map(|port| port.workers.iter().copied()))
    }

    /// CPUs that other programs should not use: those of workers, interrupts and management, and the sibling threads of
    /// the workers' cores. `None` if CPU 0 would be among them, or too few CPUs were left.
    pub(crate) fn own(&self, facts: &Facts, leave: &[usize]) -> Option<Vec<usize>> {
        let threads = |cpu: &usize| facts.topology.cpus.get(cpu).map(|cpu| cpu.threads.clone()).unwrap_or_default();
        let own = self.busy().iter().flat_map(threads).chain(self.management.iter().copied()).collect::<Vec<_>>();
        let own = sorted(own.into_iter().filter(|cpu| !leave.contains(cpu)));
        (!own.is_empty() && !own.contains(&0) && own.len() < facts.topology.cpus.len()).then_some(own)
    }

    /// CPUs that handle packets: those of workers and of interrupts.
    pub(crate) fn busy(&self) -> Vec<usize> {
        sorted(self.ports.iter().flat_map(|port| port.workers.iter().chain(&port.interrupts).copied()))
    }

    /// Memory nodes of the workers.
    pub(crate) fn nodes(&self, facts: &Facts) -> Vec<usize> {
        sorted(self.workers().iter().filter_map(|cpu| facts.topology.cpus.get(cpu).map(|cpu| cpu.node)))
    }
}

fn sorted(all: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all: Vec<usize> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The method that makes a card's hash symmetric.
fn symmetry(facts: &Facts, interface: &Interface) -> Symmetry {
    let driver = interface.driver.name.as_str();
    let Some(rss) = interface.rss.as_ref().filter(|rss| !rss.table.is_empty()) else { return Symmetry::None };
    let known =
        TRANSFORMS.iter().find(|(name, _, (major, minor))| *name == driver && facts.host.kernel_is(*major, *minor));
    match known {
        Some((_, transform, _)) => Symmetry::Transform(transform),
        None if KEYED.contains(&driver) && !rss.key.is_empty() && rss.key.len().is_multiple_of(2) => Symmetry::Key,
        None => Symmetry::None,
    }
}

/// Free CPUs, in order of assignment: the first thread of each core, then the second ones.
struct Free<'a> {
    facts: &'a Facts,
    /// By node, in order of assignment.
    left: BTreeMap<usize, Vec<usize>>,
}

impl<'a> Free<'a> {
    fn of(facts: &'a Facts, not: &[usize]) -> Free<'a> {
        let mut left: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (id, cpu) in facts.topology.cpus.iter().filter(|(id, _)| !not.contains(id)) {
            left.entry(cpu.node).or_default().push(*id);
        }
        for all in left.values_mut() {
            let thread = |id: &usize| {
                facts.topology.cpus.get(id).map_or(0, |cpu| cpu.threads.iter().filter(|t| *t < id).count())
            };
            all.sort_by_key(|id| (thread(id), *id));
        }
        Free { facts, left }
    }

    /// Takes up to `most` CPUs, node by node: the first threads of each node, then all second ones.
    fn take(&mut self, nodes: &[usize], most: usize) -> Vec<usize> {
        let mut out = Vec::new();
        for second in [false, true] {
            for node in nodes {
                let Some(left) = self.left.get_mut(node) else { continue };
                let is_second = |id: &usize| {
                    self.facts
                        .topology
                        .cpus
                        .get(id)
                        .is_some_and(|cpu| cpu.threads.first().is_some_and(|first| first != id))
                };
                let mut kept = Vec::new();
                for id in left.drain(..) {
                    if out.len() < most && is_second(&id) == second { out.push(id) } else { kept.push(id) }
                }
                *left = kept;
            }
        }
        // A second thread is no help while another worker has the first one, so keep the order.
        out
    }

    fn count(&self, nodes: &[usize]) -> usize {
        nodes.iter().map(|node| self.left.get(node).map_or(0, Vec::len)).sum()
    }
}

/// Cores of a node.
fn cores(facts: &Facts, node: usize) -> usize {
    let first = |(id, cpu): &(&usize, &Cpu)| cpu.node == node && cpu.threads.first() == Some(id);
    facts.topology.cpus.iter().filter(first).count()
}

/// The first core of a node, with all its threads.
fn first_core(facts: &Facts, node: usize, not: &[usize]) -> Vec<usize> {
    let mut all = facts.topology.cpus.iter().filter(|(id, cpu)| cpu.node == node && !not.contains(id));
    let threads = all.next().map(|(_, cpu)| cpu.threads.clone()).unwrap_or_default();
    threads.into_iter().filter(|id| !not.contains(id)).collect()
}

/// Nodes by their distance from a node, nearest first.
fn by_distance(facts: &Facts, from: usize) -> Vec<usize> {
    let nodes: Vec<usize> = facts.topology.nodes.keys().copied().collect();
    let distances = facts.topology.nodes.get(&from).map(|node| node.distances.clone()).unwrap_or_default();
    let distance = |node: &usize| {
        let at = nodes.iter().position(|known| known == node).unwrap_or(0);
        distances.get(at).copied().unwrap_or(if *node == from { 10 } else { 20 })
    };
    let mut out = nodes.clone();
    out.sort_by_key(|node| (distance(node), *node));
    out
}

/// Groups interfaces into ports: one each, or in pairs for inline mode.
fn ports(draft: &mut Draft<'_>, chosen: &[String]) -> Vec<Vec<String>> {
    if draft.plan.goal.mode == Mode::Passive {
        return chosen.iter().map(|name| vec![name.clone()]).collect();
    }
    let (pairs, rest) = chosen.as_chunks::<2>();
    if let [alone] = rest {
        draft.note(format!("{alone} has no partner: inline needs two interfaces, in their order eth1 eth2, eth3 eth4"));
    }
    pairs.iter().map(|pair| pair.to_vec()).collect()
}

/// Places all threads and interrupts.
pub(super) fn place(draft: &mut Draft<'_>, chosen: &[String]) -> Placement {
    let facts = draft.facts;
    let ports = ports(draft, chosen);
    if ports.is_empty() || facts.topology.cpus.is_empty() {
        return Placement::default();
    }
    let speed: u64 =
        ports.iter().flatten().filter_map(|name| facts.interfaces.get(name)?.speed).sum::<u64>() * 1_000_000;
    // A bridged pair forwards its input, so each link carries one direction.
    let rate = draft.plan.goal.rate.or((speed > 0).then_some(speed));
    let goal = draft.plan.goal.clone();
    if facts.topology.cpus.keys().all(|cpu| goal.leave.contains(cpu)) {
        draft.note("all CPUs are left to others: nothing can be placed".to_owned());
        return Placement::default();
    }
    let nodes: Vec<usize> = facts.topology.nodes.keys().copied().collect();
    let node_of = |port: &Vec<String>| port.iter().find_map(|name| facts.interfaces.get(name)?.node);
    let first_node = facts.topology.cpus.values().next().map_or(0, |cpu| cpu.node);
    let homes: Vec<usize> = ports.iter().map(|port| node_of(port).unwrap_or(first_node)).collect();
    let off_node = facts.host.vendor == Vendor::Amd && nodes.len() > 1;
    let total = facts.topology.cpus.len();
    let small = total - goal.leave.iter().filter(|cpu| facts.topology.cpus.contains_key(cpu)).count() < 4;

    // CPU 0 is for the system. With enough cores, nothing else uses it.
    let zero = facts.topology.cpus.get(&0).map(|cpu| cpu.threads.clone()).unwrap_or_default();
    // Management gets the first core of each used node; on a small machine, the first CPU.
    let mut management = Vec::new();
    let mut homes_once = homes.clone();
    homes_once.sort_unstable();
    homes_once.dedup();
    if small {
        management.extend(facts.topology.cpus.keys().find(|cpu| !goal.leave.contains(cpu)));
    } else {
        for node in &homes_once {
            let mut not = goal.leave.clone();
            if cores(facts, *node) >= LARGE {
                not.extend(&zero);
            }
            management.extend(first_core(facts, *node, &not));
        }
    }
    let mut taken: Vec<usize> = management.iter().chain(&goal.leave).copied().collect();
    if !small {
        taken.extend(zero);
    }
    let mut free = Free::of(facts, &taken);
    if free.count(&by_distance(facts, first_node)) == 0 && free.left.values().all(Vec::is_empty) {
        // One CPU does everything.
        free = Free::of(facts, &goal.leave);
    }
    let all_nodes: Vec<usize> = free.left.keys().copied().collect();

    let share = rate.map(|rate| rate / ports.len() as u64);
    let mut out = Vec::new();
    for (at, (port, home)) in ports.iter().zip(&homes).enumerate() {
        // Remaining ports on the same node get an equal share.
        let rivals = homes[at..].iter().filter(|node| off_node || *node == home).count();
        let first = facts.interfaces.get(&port[0]);
        let symmetry = first.map_or(Symmetry::None, |interface| symmetry(facts, interface));
        let alike = |name: &String| {
            let one = facts.interfaces.get(name);
            one.map(|i| (&i.driver.name, i.rss.as_ref().map(|rss| rss.key.len())))
                == first.map(|i| (&i.driver.name, i.rss.as_ref().map(|rss| rss.key.len())))
        };
        // Two cards with different hashes put the directions of a flow into different queues.
        let symmetry = if port.iter().all(alike) { symmetry } else { Symmetry::None };
        let most_queues =
            port.iter().filter_map(|name| facts.interfaces.get(name)?.channels).map(|c| c.most.receive()).min();
        let wanted =
            share.map_or(usize::MAX, |share| usize::try_from(share.div_ceil(WORKER_RATE)).unwrap_or(usize::MAX));
        let wanted = wanted.min(goal.workers.map_or(usize::MAX, |most| most.div_ceil(ports.len()))).max(1);
        let near: Vec<usize> = if all_nodes.contains(home) { vec![*home] } else { all_nodes.clone() };
        let others: Vec<usize> =
            by_distance(facts, *home).into_iter().filter(|node| node != home && all_nodes.contains(node)).collect();
        let (interrupts, workers, spread) = if off_node && !others.is_empty() {
            let room = free.count(&near).div_ceil(rivals);
            let queues = match symmetry {
                Symmetry::None => 1,
                _ => most_queues.unwrap_or(1) as usize,
            };
            let workers = free.take(&others, wanted.min(free.count(&others).div_ceil(rivals)));
            let interrupts = free.take(&near, queues.min(room).min(workers.len()).max(1));
            (interrupts, workers, Spread::Flows)
        } else if symmetry == Symmetry::None || most_queues.is_none_or(|most| most < 2) {
            let room = free.count(&near).div_ceil(rivals);
            // A single queue's interrupt gets a CPU of its own if one is free.
            let own = if room > 3 { free.take(&near, 1) } else { management.iter().take(1).copied().collect() };
            let own = if own.is_empty() { near_cpu(&free, &near) } else { own };
            let room = free.count(&near).div_ceil(rivals);
            (own, free.take(&near, wanted.min(room)), Spread::Flows)
        } else {
            let room = free.count(&near).div_ceil(rivals);
            let most = most_queues.map_or(usize::MAX, |most| most as usize);
            let workers = free.take(&near, wanted.min(room).min(most));
            (workers.clone(), workers, Spread::Queues)
        };
        // If other ports have all CPUs, share them.
        let shared = workers.is_empty();
        let (workers, interrupts) =
            if shared { share_cpus(facts, &goal, wanted, &interrupts) } else { (workers, interrupts) };
        let spread = if shared { Spread::Flows } else { spread };
        let interrupts = if interrupts.is_empty() { workers.iter().take(1).copied().collect() } else { interrupts };
        if shared {
            let text = "there are too few CPUs for each interface: workers share them with those of the others";
            draft.note(format!("{}: {text}", port.join(" and ")));
        }
        if let (Some(share), true) = (share, workers.len() < wanted && goal.workers.is_none()) {
            let text = format!(
                "{}: {:.1} Gbit/s may need {wanted} workers by the studies' figures (0.9 Gbit/s each, of Suricata); there is room \
                 for {}",
                port.join(" and "),
                share as f64 / 1e9,
                workers.len()
            );
            draft.note(text);
        }
        let rate = share.unwrap_or(WORKER_RATE * workers.len() as u64);
        let node = node_of(port);
        // Without channels there is nothing to set, and only one queue.
        out.push(Port { interfaces: port.clone(), node, workers, spread, symmetry, interrupts, rate });
    }
    let (why, sources) = why(facts, off_node, &homes_once);
    Placement { ports: out, management, why, sources }
}

/// CPUs of the workers and the interrupt of a port for which no CPU is free: all that are not reserved for others.
fn share_cpus(facts: &Facts, goal: &super::Goal, wanted: usize, interrupts: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let all: Vec<usize> = facts.topology.cpus.keys().copied().filter(|cpu| !goal.leave.contains(cpu)).collect();
    let first = interrupts.first().or(all.first()).copied();
    (all.into_iter().take(wanted).collect(), first.into_iter().collect())
}

fn near_cpu(free: &Free<'_>, near: &[usize]) -> Vec<usize> {
    near.iter().filter_map(|node| free.left.get(node)?.first().copied()).take(1).collect()
}

fn why(facts: &Facts, off_node: bool, homes: &[usize]) -> (String, Vec<String>) {
    if facts.topology.nodes.len() < 2 {
        return ("there is one memory node".to_owned(), Vec::new());
    }
    let homes = list::show(homes);
    if off_node {
        let why = format!(
            "interrupts on the card's node {homes}, workers on the nodes nearest to it: the guide's arrangement for AMD, where interrupts and \
             workers would share a small node. The tuned Intel machines of the studies kept workers on the card's node"
        );
        return (why, vec![GUIDE_HIGH.to_owned(), SINGLE_NODE.to_owned()]);
    }
    let why = format!(
        "workers and interrupts on the card's node {homes}, so that packets and flows are in near memory. One study lost a little less \
         with workers on the other node (0.53 against 0.57 % at 9 Gbit/s), less than its runs differ"
    );
    (why, [GUIDE_HIGH, SINGLE_NODE, CRYSTAL_EYE, TIANJIN, NUMA].map(str::to_owned).to_vec())
}

/// The reason for the number of queues.
pub(super) fn queues_why(port: &Port) -> (String, Vec<String>, Option<String>) {
    let sources = vec![
        format!("{GUIDE_CAPTURE}: one queue, or a symmetric hash"),
        format!("{GUIDE_HIGH}: as many queues as workers, cluster_qm"),
    ];
    match (port.spread, port.symmetry) {
        (Spread::Queues, _) => {
            let why = "a queue for each worker; the hash is made symmetric, so that both directions of a flow come to one worker in order";
            let other = "studies set 15, 32 and 34 queues; Suricata's guide warns of more than one unless the hash is symmetric. \
                         Rule: as many queues as workers where the hash can be made symmetric, else one";
            (why.to_owned(), sources, Some(other.to_owned()))
        }
        (Spread::Flows, Symmetry::None) => {
            let why = "the hash cannot be made symmetric: with several queues the directions of a flow come by different CPUs, and \
                       answers may overtake questions. The kernel's own hash, which is symmetric, distributes flows among workers";
            let other = "studies set 15, 32 and 34 queues on cards whose hash can be made symmetric. Rule: more than one only then";
            (why.to_owned(), sources, Some(other.to_owned()))
        }
        (Spread::Flows, _) => {
            let why = "a queue for each CPU of the card's node that takes interrupts; workers on other nodes get flows by the kernel's hash";
            (why.to_owned(), sources, None)
        }
    }
}
