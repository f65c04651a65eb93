//! Processors, caches, memory nodes and power saving: `/sys/devices/system`.

use std::collections::BTreeMap;

use crate::tune::facts::{Cache, Cpu, IdleState, Node, Topology};
use crate::tune::list;
use crate::tune::tree::{DMA_LATENCY, Tree, number};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

pub(super) fn topology(tree: &dyn Tree) -> Topology {
    let text = |path: &str| tree.text(path).unwrap_or_default();
    let nodes = nodes(tree);
    let online = list::parse(&text(&format!("{CPU}/online")));
    let mut cpus = BTreeMap::new();
    let mut caches: Vec<Cache> = Vec::new();
    for id in online {
        let at = format!("{CPU}/cpu{id}");
        let mut threads = list::parse(&text(&format!("{at}/topology/thread_siblings_list")));
        if threads.is_empty() {
            threads.push(id);
        }
        let governors = text(&format!("{at}/cpufreq/scaling_available_governors"));
        cpus.insert(
            id,
            Cpu {
                package: number(tree, &format!("{at}/topology/physical_package_id")).unwrap_or(0),
                core: number(tree, &format!("{at}/topology/core_id")).unwrap_or(id),
                node: nodes.iter().find(|(_, node)| node.cpus.contains(&id)).map_or(0, |(node, _)| *node),
                threads,
                governor: tree.text(&format!("{at}/cpufreq/scaling_governor")),
                governors: governors.split_whitespace().map(str::to_owned).collect(),
                idle: idle_states(tree, &at),
            },
        );
        if let Some(cache) = last_cache(tree, &at)
            && !caches.contains(&cache)
        {
            caches.push(cache);
        }
    }
    Topology {
        cpus,
        nodes,
        caches,
        isolated: list::parse(&text(&format!("{CPU}/isolated"))),
        tickless: list::parse(&text(&format!("{CPU}/nohz_full"))),
        frequency_driver: text(&format!("{CPU}/cpu0/cpufreq/scaling_driver")),
        idle_driver: text(&format!("{CPU}/cpuidle/current_driver")),
        dma_latency: number(tree, DMA_LATENCY),
    }
}

fn nodes(tree: &dyn Tree) -> BTreeMap<usize, Node> {
    let mut out = BTreeMap::new();
    for name in tree.names(NODE) {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else { continue };
        let text = |file: &str| tree.text(&format!("{NODE}/{name}/{file}")).unwrap_or_default();
        // `Node 0 MemTotal:   65536000 kB`
        let memory = text("meminfo");
        let total = memory.lines().find(|line| line.contains("MemTotal:"));
        let kilobytes = total.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok()).unwrap_or(0);
        let distances = text("distance");
        out.insert(
            id,
            Node {
                cpus: list::parse(&text("cpulist")),
                memory: kilobytes << 10,
                distances: distances.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            },
        );
    }
    out
}

/// The last-level cache.
fn last_cache(tree: &dyn Tree, cpu: &str) -> Option<Cache> {
    let mut last: Option<Cache> = None;
    for name in tree.names(&format!("{cpu}/cache")).iter().filter(|name| name.starts_with("index")) {
        let at = format!("{cpu}/cache/{name}");
        let Some(level) = number::<u8>(tree, &format!("{at}/level")) else { continue };
        if last.as_ref().is_some_and(|last| last.level >= level) {
            continue;
        }
        let size = tree.text(&format!("{at}/size")).and_then(|text| bytes(&text)).unwrap_or(0);
        let cpus = list::parse(&tree.text(&format!("{at}/shared_cpu_list")).unwrap_or_default());
        last = Some(Cache { level, size, cpus });
    }
    last
}

/// `36608K`
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()? << shift)
}

fn idle_states(tree: &dyn Tree, cpu: &str) -> Vec<IdleState> {
    let folder = format!("{cpu}/cpuidle");
    let mut states: Vec<(usize, IdleState)> = Vec::new();
    for name in tree.names(&folder) {
        let Some(at) = name.strip_prefix("state").and_then(|at| at.parse().ok()) else { continue };
        let disabled = number::<u64>(tree, &format!("{folder}/{name}/disable"));
        states.push((
            at,
            IdleState {
                name: tree.text(&format!("{folder}/{name}/name")).unwrap_or_default(),
                latency: number(tree, &format!("{folder}/{name}/latency")).unwrap_or(0),
                disabled: disabled.is_some_and(|disabled| disabled != 0),
                switch: disabled.is_some(),
            },
        ));
    }
    states.sort_by_key(|(at, _)| *at);
    states.into_iter().map(|(_, state)| state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    #[test]
    fn a_machine_with_two_nodes_and_threads() {
        let text = "/sys/devices/system/cpu/online = 0-7
/sys/devices/system/cpu/isolated =
/sys/devices/system/cpu/nohz_full = (null)
/sys/devices/system/cpu/cpu{0-1,4-5}/topology/physical_package_id = 0
/sys/devices/system/cpu/cpu{2-3,6-7}/topology/physical_package_id = 1
/sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list = {n},{n+4}
/sys/devices/system/cpu/cpu{4-7}/topology/thread_siblings_list = {n-4},{n}
/sys/devices/system/cpu/cpu{0-1,4-5}/cache/index3/shared_cpu_list = 0-1,4-5
/sys/devices/system/cpu/cpu{2-3,6-7}/cache/index3/shared_cpu_list = 2-3,6-7
/sys/devices/system/cpu/cpu{0-7}/cache/index3/level = 3
/sys/devices/system/cpu/cpu{0-7}/cache/index3/size = 22528K
/sys/devices/system/cpu/cpu{0-7}/cache/index0/level = 1
/sys/devices/system/cpu/cpu{0-7}/cpufreq/scaling_governor = powersave
/sys/devices/system/cpu/cpu{0-7}/cpuidle/state{0-1}/name = C{m}
/sys/devices/system/cpu/cpu{0-7}/cpuidle/state{0-1}/disable = 0
/sys/devices/system/cpu/cpu{0-7}/cpuidle/state0/latency = 0
/sys/devices/system/cpu/cpu{0-7}/cpuidle/state1/latency = 133
/sys/devices/system/node/node0/cpulist = 0-1,4-5
/sys/devices/system/node/node1/cpulist = 2-3,6-7
/sys/devices/system/node/node0/distance = 10 21
/sys/devices/system/node/node1/distance = 21 10
/sys/devices/system/node/node0/meminfo = Node 0 MemTotal:       98304000 kB
";
        let machine = recorded::read(text).unwrap();
        let t = topology(&machine.tree);
        assert_eq!((t.cpus.len(), t.nodes.len(), t.caches.len()), (8, 2, 2));
        let cpu = &t.cpus[&6];
        assert_eq!((cpu.package, cpu.node, cpu.threads.as_slice()), (1, 1, &[2, 6][..]));
        assert_eq!((cpu.idle[1].latency, cpu.idle[1].switch, cpu.idle[1].disabled), (133, true, false));
        assert_eq!((t.nodes[&0].memory, t.nodes[&1].distances.as_slice()), (98_304_000 << 10, &[21, 10][..]));
        assert_eq!(t.cache_of(&[2, 3]), 22528 << 10);
        assert!(t.isolated.is_empty() && t.tickless.is_empty());
        assert!(topology(&recorded::read("").unwrap().tree).cpus.is_empty());
    }
}
