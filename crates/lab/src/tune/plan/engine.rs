//! The engine's settings, computed from rate, memory and placement.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::place::{Placement, Port, Spread};
use super::{Draft, Mode};
use crate::tune::facts::Facts;
use crate::tune::list;

/// Default share of the memory of the used nodes, in percent.
const SHARE: u64 = 60;
/// Size of a ring slot.
const PACKET: u64 = 2048;
/// Milliseconds of a worker's traffic that fit into its ring.
const RING_MS: u64 = 500;
/// Concurrent flows for each Gbit/s: one study preallocated 300,000 for 9.
const FLOWS: u64 = 33_000;
/// Bytes of a flow, and of a TCP session, with attached data; and the factor over the expected number of flows.
const FLOW: u64 = 1024;
const BURST: u64 = 8;
/// Seconds of traffic that may wait for reassembly.
const REASSEMBLY_S: u64 = 8;
/// Assumed bytes of a packet, where a number of packets is needed.
const MEAN: u64 = 800;
/// Drivers with native XDP.
const XDP: [&str; 8] = ["i40e", "ice", "ixgbe", "mlx5_core", "mlx4_en", "bnxt_en", "nfp", "qede"];

/// Sizes that follow from memory and rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sizes {
    budget: u64,
    ring_packets: u64,
    block: u64,
    flow_memcap: u64,
    flow_hash: u64,
    flow_prealloc: u64,
    stream_memcap: u64,
    sessions: u64,
    reassembly: u64,
    segments: u64,
    defrag: u64,
    pending: u64,
}

const MIB: u64 = 1 << 20;

/// The largest power of two up to `n`.
fn floor_power(n: u64) -> u64 {
    if n == 0 { 1 } else { 1 << n.ilog2() }
}

/// Rounds to a readable unit.
fn rounded(bytes: u64) -> u64 {
    let unit = if bytes >= 4096 * MIB {
        256 * MIB
    } else if bytes >= 512 * MIB {
        64 * MIB
    } else {
        4 * MIB
    };
    (bytes / unit).max(1) * unit
}

fn budget(facts: &Facts, placement: &Placement, told: Option<u64>) -> u64 {
    let nodes: u64 =
        placement.nodes(facts).iter().filter_map(|node| facts.topology.nodes.get(node)).map(|n| n.memory).sum();
    let memory = if nodes > 0 { nodes.min(facts.host.memory) } else { facts.host.memory };
    told.unwrap_or(memory / 100 * SHARE)
}

fn sizes(facts: &Facts, placement: &Placement, told: Option<u64>, inline: bool) -> Sizes {
    let budget = budget(facts, placement, told);
    let workers = placement.workers().len().max(1) as u64;
    // A worker on a bridge has a ring on each side.
    let rings: u64 = placement.ports.iter().map(|port| (port.workers.len() * port.interfaces.len()) as u64).sum();
    let rate: u64 = placement.ports.iter().map(|port| port.rate).sum();
    let bytes = rate / 8;
    let wanted = (bytes / rings.max(1) * RING_MS / 1000 / PACKET).next_power_of_two();
    let room = floor_power(budget / 100 * 15 / rings.max(1) / PACKET);
    let ring_packets = wanted.min(room).clamp(1024, 1 << 20);
    let flows = (rate / 1_000_000_000).max(1) * FLOWS;
    let at_most = |bytes: u64, percent: u64, least: u64| rounded(bytes.min(budget / 100 * percent)).max(least * MIB);
    // In an inline bridge, waiting packets stay in the ring, with one packet in each slot.
    let block = if inline { 0 } else { floor_power(ring_packets * PACKET / 256).clamp(128 << 10, 1 << 20) };
    Sizes {
        budget,
        ring_packets,
        block,
        flow_memcap: at_most(flows * BURST * FLOW, 10, 64),
        flow_hash: flows.next_power_of_two().max(65_536),
        flow_prealloc: flows.min(budget / 100 * 3 / FLOW).max(10_000) / 1000 * 1000,
        stream_memcap: at_most(flows * BURST * FLOW, 10, 32),
        sessions: (flows * 2 / workers).clamp(2048, 375_000) / 64 * 64,
        reassembly: at_most(bytes * REASSEMBLY_S, 40, 128),
        segments: floor_power(bytes / workers / MEAN / 10).clamp(2048, 200_000),
        defrag: at_most(bytes / 16, 1, 32).min(512 * MIB),
        pending: (budget / 50 / workers / 2264).clamp(1024, 65_000) / 8 * 8,
    }
}

/// `64mb`, `2gb`
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1024 * MIB && b.is_multiple_of(1024 * MIB) => format!("{}gb", b >> 30),
        b => format!("{}mb", b >> 20),
    }
}

fn cpus(all: &[usize]) -> String {
    let parts: Vec<String> = list::show(all).split(',').map(|part| format!("\"{part}\"")).collect();
    format!("[ {} ]", parts.join(", "))
}

/// Settings of an interface in the configuration that this plan does not mention.
fn others(facts: &Facts, interface: &str) -> Vec<(String, String)> {
    const OWN: [&str; 16] = [
        "interface",
        "threads",
        "cluster-id",
        "cluster-type",
        "defrag",
        "use-mmap",
        "mmap-locked",
        "tpacket-v3",
        "ring-size",
        "block-size",
        "copy-mode",
        "copy-iface",
        "bypass",
        "xdp-mode",
        "rollover",
        "buffer-size",
    ];
    let Some(engine) = &facts.engine else { return Vec::new() };
    let entry = engine.settings.iter().find_map(|(name, value)| {
        let entry = name.strip_prefix("af-packet.")?.strip_suffix(".interface")?;
        (value == interface).then(|| format!("af-packet.{entry}."))
    });
    let Some(entry) = entry else { return Vec::new() };
    let of = |(name, value): (&String, &String)| {
        let key = name.strip_prefix(&entry)?;
        (!OWN.contains(&key) && !key.contains('.')).then(|| (key.to_owned(), value.clone()))
    };
    engine.settings.iter().filter_map(of).collect()
}

fn quoted(text: &str) -> String {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    if plain && !text.is_empty() {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

fn interfaces(out: &mut String, facts: &Facts, port: &Port, sizes: &Sizes, inline: bool, first_id: usize) {
    for (side, name) in port.interfaces.iter().enumerate() {
        let cluster = match port.spread {
            Spread::Queues => "cluster_qm",
            Spread::Flows => "cluster_flow",
        };
        let id = 99usize.saturating_sub(first_id + side);
        let _ = writeln!(
            out,
            "  - interface: {name}\n    threads: {}\n    cluster-id: {id}\n    cluster-type: {cluster}",
            port.workers.len()
        );
        if let (true, Some(other)) = (inline, port.interfaces.get(1 - side.min(1))) {
            let _ = writeln!(out, "    copy-mode: ips\n    copy-iface: {other}\n    defrag: no");
        } else {
            let _ = writeln!(out, "    defrag: yes");
        }
        let _ = writeln!(
            out,
            "    use-mmap: yes\n    # {RING_MS} ms of a worker's share; all rings at most 15 % of the memory.\n    ring-size: {}",
            sizes.ring_packets
        );
        if inline {
            // Each slot of an inline ring has one packet.
            let _ = writeln!(out, "    tpacket-v3: no");
        } else {
            let _ = writeln!(out, "    tpacket-v3: yes\n    block-size: {}", sizes.block);
        }
        let driver = facts.interfaces.get(name).map_or("", |interface| interface.driver.name.as_str());
        if inline {
            let _ = writeln!(out, "    bypass: yes\n    xdp-mode: soft");
        } else if XDP.contains(&driver) && facts.host.kernel_is(5, 4) {
            let _ = writeln!(out, "    bypass: yes\n    xdp-mode: driver");
        }
        for (key, value) in others(facts, name) {
            let _ = writeln!(out, "    {key}: {}", quoted(&value));
        }
    }
}

/// Entries of interfaces that this plan does not tune, because the list replaces the configuration's as a whole.
fn untouched(out: &mut String, facts: &Facts, tuned: &[&String]) {
    let Some(engine) = &facts.engine else { return };
    let mut entries: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (name, value) in &engine.settings {
        if let Some((entry, key)) = name.strip_prefix("af-packet.").and_then(|rest| rest.split_once('.')) {
            entries.entry(entry).or_default().push((key, value));
        }
    }
    for settings in entries.values() {
        let Some((_, name)) = settings.iter().find(|(key, _)| *key == "interface") else { continue };
        if tuned.iter().any(|tuned| tuned == name) {
            continue;
        }
        let _ = writeln!(out, "  - interface: {name}");
        for (key, value) in settings.iter().filter(|(key, _)| *key != "interface" && !key.contains('.')) {
            let _ = writeln!(out, "    {key}: {}", quoted(value));
        }
    }
}

/// Settings to include.
pub(super) fn yaml(draft: &mut Draft<'_>, placement: &Placement) -> String {
    let facts = draft.facts;
    if placement.ports.is_empty() {
        return String::new();
    }
    let goal = &draft.plan.goal;
    let inline = goal.mode == Mode::Inline;
    let s = sizes(facts, placement, goal.memory, inline);
    let rate: u64 = placement.ports.iter().map(|port| port.rate).sum();
    let names: Vec<&String> = placement.ports.iter().flat_map(|port| &port.interfaces).collect();
    let names_text = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "%YAML 1.1\n---\n# Made by `margay tune plan` for {names_text}: {}, {:.1} Gbit/s, {} workers, up to {} of memory.\n\
         # In the configuration: include: tuned.yaml, or on the command line: --include. Names with dots leave the rest of a section\n\
         # as it is.\n",
        if inline { "inline" } else { "passive" },
        rate as f64 / 1e9,
        placement.workers().len(),
        size(rounded(s.budget))
    );
    out += "\nrunmode: workers\n\naf-packet:\n";
    let mut id = 0;
    for port in &placement.ports {
        interfaces(&mut out, facts, port, &s, inline, id);
        id += port.interfaces.len();
    }
    untouched(&mut out, facts, &names);
    let _ = writeln!(
        out,
        "\nthreading:\n  set-cpu-affinity: yes\n  cpu-affinity:\n    management-cpu-set:\n      cpu: {}\n    worker-cpu-set:\n      \
         cpu: {}\n      mode: exclusive\n      prio:\n        default: high",
        cpus(&placement.management),
        // In queue order: the first worker has the first queue.
        cpus(&placement.ports.iter().flat_map(|port| port.workers.iter().copied()).collect::<Vec<_>>())
    );
    if placement.ports.len() > 1 {
        let _ = writeln!(out, "      interface-specific-cpu-set:");
        for port in &placement.ports {
            // Either interface may name a bridge.
            for name in &port.interfaces {
                let _ = writeln!(
                    out,
                    "        - interface: {name}\n          cpu: {}\n          mode: exclusive\n          prio:\n            default: high",
                    cpus(&port.workers)
                );
            }
        }
    }
    let nodes = facts.topology.nodes.len();
    let _ = writeln!(
        out,
        "\n# At most 2 % of the memory, by workers. Of Suricata; Margay has no pool of packets.\nmax-pending-packets: {}\n\n\
         # {FLOWS} flows for each Gbit/s, {BURST} times as many in bursts and scans, {FLOW} bytes each; at most 10 % of the memory.\n\
         flow.memcap: {}\nflow.hash-size: {}\nflow.prealloc: {}\nflow.emergency-recovery: 30\n\n\
         # As many sessions; at most 10 %.\n\
         stream.memcap: {}\nstream.prealloc-sessions: {}\nstream.bypass: yes\n\
         # {REASSEMBLY_S} seconds of all traffic; at most 40 %. What is deeper in a stream is bypassed.\n\
         stream.reassembly.memcap: {}\nstream.reassembly.depth: 1mb\nstream.reassembly.segment-prealloc: {}\n\n\
         # A sixteenth of a second of all traffic; at most 1 %.\ndefrag.memcap: {}",
        s.pending,
        size(s.flow_memcap),
        s.flow_hash,
        s.flow_prealloc,
        size(s.stream_memcap),
        s.sessions,
        size(s.reassembly),
        s.segments,
        size(s.defrag)
    );
    if nodes > 1 {
        let _ = writeln!(out, "\n# Each worker's memory on the node of its CPU, and nowhere else.\nmargay.numa: bind");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_people_write_them() {
        assert_eq!(
            (size(64 * MIB), size(2048 * MIB), size(2304 * MIB)),
            ("64mb".into(), "2gb".into(), "2304mb".into())
        );
        assert_eq!((floor_power(0), floor_power(1), floor_power(1023), floor_power(1024)), (1, 1, 512, 1024));
        assert_eq!(quoted("port 80"), "\"port 80\"");
    }

    #[test]
    fn memory_is_never_more_than_there_is() {
        use super::super::place::{Port, Spread, Symmetry};
        for memory in [1u64 << 30, 4 << 30, 64 << 30, 1 << 40] {
            for rate in [100_000_000u64, 10_000_000_000, 400_000_000_000] {
                for workers in [1usize, 4, 64] {
                    let mut facts = Facts::default();
                    facts.host.memory = memory;
                    let port = Port {
                        interfaces: vec!["eth1".into()],
                        node: None,
                        workers: (0..workers).collect(),
                        spread: Spread::Flows,
                        symmetry: Symmetry::None,
                        interrupts: vec![0],
                        rate,
                    };
                    let placement = Placement { ports: vec![port], ..Placement::default() };
                    let s = sizes(&facts, &placement, None, false);
                    let rings = s.ring_packets * PACKET * workers as u64;
                    let sum = rings + s.flow_memcap + s.stream_memcap + s.reassembly + s.defrag;
                    let least = (workers as u64 * 1024 * PACKET) + 256 * MIB;
                    assert!(sum <= (memory / 100 * 80).max(least), "{memory} {rate} {workers}: {sum} {s:?}");
                    assert!(s.block == 0 || (s.block.is_power_of_two() && rings / workers as u64 >= s.block * 2));
                }
            }
        }
    }
}
