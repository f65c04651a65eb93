//! Interfaces: `/sys/class/net`, and the settings in their drivers.

use std::collections::BTreeMap;

use super::{guard, interrupts};
use crate::tune::card::{Cards, FLOWS, Refusal, Rss};
use crate::tune::facts::{Interface, Missing, Queue, Session, Settable};
use crate::tune::list;
use crate::tune::tree::{Tree, number};

/// Kernel counters of lost received packets.
const LOSSES: [&str; 6] =
    ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_dropped", "rx_nohandler", "rx_crc_errors"];
/// Files of an interface that control how its packets are polled.
const NAPI: [&str; 3] = ["gro_flush_timeout", "napi_defer_hard_irqs", "threaded"];
/// Offloads and steering that plans read, by the kernel's names.
pub(crate) const FEATURES: [&str; 16] = [
    "rx-checksum",
    "rx-gro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
    "rx-hashing",
    "rx-lro",
    "rx-ntuple-filter",
    "rx-vlan-hw-parse",
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-vlan-hw-insert",
];

/// All interfaces but the loopback.
pub(super) fn names(tree: &dyn Tree) -> Vec<String> {
    let all = tree.names("/sys/class/net").into_iter();
    all.filter(|name| name != "lo" && tree.exists(&format!("/sys/class/net/{name}/operstate"))).collect()
}

pub(super) fn interface(
    tree: &dyn Tree,
    cards: &dyn Cards,
    name: &str,
    sessions: &[Session],
    missing: &mut Vec<Missing>,
) -> Interface {
    let at = format!("/sys/class/net/{name}");
    let text = |file: &str| tree.text(&format!("{at}/{file}"));
    // An operation that the driver lacks is not missing; a denied one is.
    let mut known = |what: &str, why: Refusal| {
        if !matches!(why, Refusal::Unsupported | Refusal::Missing) {
            missing.push(Missing { what: format!("{name}: {what}"), why: why.to_string() });
        }
    };
    let link = cards.link(name);
    let channels = cards.channels(name).map_err(|why| known("queues", why)).ok();
    let ring = cards.ring(name).map_err(|why| known("rings", why)).ok().filter(|(_, most)| most.rx > 0);
    let rss = cards.rss(name).map_err(|why| known("hash of packets", why)).ok();
    let hash: BTreeMap<String, String> =
        FLOWS.iter().filter_map(|flow| Some(((*flow).to_owned(), cards.hash_fields(name, flow).ok()?))).collect();
    let mut features = cards.features(name).map_err(|why| known("features", why)).unwrap_or_default();
    features.retain(|feature, _| FEATURES.contains(&feature.as_str()));
    let settable = |(now, most)| Settable { now, most };
    Interface {
        driver: cards.driver(name).unwrap_or_default(),
        hardware: tree.exists(&format!("{at}/device")),
        node: number::<i64>(tree, &format!("{at}/device/numa_node")).and_then(|node| usize::try_from(node).ok()),
        near: list::parse(&text("device/local_cpulist").unwrap_or_default()),
        state: text("operstate").unwrap_or_default(),
        speed: number::<i64>(tree, &format!("{at}/speed")).filter(|speed| *speed > 0).map(i64::unsigned_abs),
        mtu: number(tree, &format!("{at}/mtu")).unwrap_or(0),
        flags: cards.flags(name).map_err(|why| known("flags", why)).ok(),
        channels: channels.filter(|(_, most)| most.receive() > 0).map(|(now, most)| Settable { now, most }),
        ring: ring.map(settable),
        coalesce: cards.coalesce(name).map_err(|why| known("coalescing", why)).ok(),
        pause: cards.pause(name).map_err(|why| known("pause", why)).ok(),
        symmetric: rss.as_ref().is_some_and(|rss| symmetric(rss, &hash)),
        features,
        rss,
        hash,
        xdp: link.as_ref().map(|link| link.xdp.clone()).unwrap_or_default(),
        queues: queues(tree, name),
        other_interrupts: interrupts::others(tree, name),
        napi: NAPI.iter().filter_map(|file| Some(((*file).to_owned(), text(file)?))).collect(),
        losses: LOSSES
            .iter()
            .filter_map(|file| Some(((*file).to_owned(), number(tree, &format!("{at}/statistics/{file}"))?)))
            .collect(),
        protected: guard::reasons(tree, cards, name, sessions, &link),
    }
}

fn queues(tree: &dyn Tree, name: &str) -> BTreeMap<u32, Queue> {
    let interrupts = interrupts::of_queues(tree, name);
    let folder = format!("/sys/class/net/{name}/queues");
    let mut out = BTreeMap::new();
    for queue in tree.names(&folder).iter().filter_map(|name| name.strip_prefix("rx-")?.parse::<u32>().ok()) {
        let interrupt = interrupts.get(&queue).copied();
        let cpus = interrupt.and_then(|irq| tree.text(&format!("/proc/irq/{irq}/smp_affinity_list")));
        let rps = tree.text(&format!("{folder}/rx-{queue}/rps_cpus")).unwrap_or_default();
        let cpus = list::parse(&cpus.unwrap_or_default());
        out.insert(queue, Queue { interrupt, cpus, rps: list::from_mask(&rps) });
    }
    out
}

/// Whether both directions of a flow have the same hash. Both ends must be hashed, and the card must have a symmetric
/// transformation, or a key that repeats every 16 bits, for which exchanging addresses and ports changes nothing.
pub(crate) fn symmetric(rss: &Rss, hash: &BTreeMap<String, String>) -> bool {
    let both = |fields: &String| {
        let has = |letter| fields.contains(letter);
        has('s') == has('d') && has('f') == has('n')
    };
    let repeats = rss.key.len() >= 4 && rss.key.chunks_exact(2).all(|pair| pair == &rss.key[..2]);
    let key = rss.function == "toeplitz" && repeats;
    hash.values().all(both) && (key || rss.transform.starts_with("symmetric"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symmetric_hashes_are_known() {
        let rss = |key: &[u8], transform: &str| Rss {
            function: "toeplitz".into(),
            transform: transform.into(),
            key: key.to_vec(),
            table: vec![0, 1],
        };
        let fields = |text: &str| BTreeMap::from([("tcp4".to_owned(), text.to_owned())]);
        assert!(symmetric(&rss(&[0x6d, 0x5a, 0x6d, 0x5a], "none"), &fields("sdfn")));
        assert!(symmetric(&rss(&[1, 2, 3, 4], "symmetric-xor"), &fields("sd")));
        assert!(!symmetric(&rss(&[1, 2, 3, 4], "none"), &fields("sdfn")));
        assert!(!symmetric(&rss(&[0x6d, 0x5a, 0x6d, 0x5a], "none"), &fields("sdf")), "one port is not both");
        assert!(!symmetric(&Rss { function: "xor".into(), ..rss(&[0x6d, 0x5a, 0x6d, 0x5a], "none") }, &fields("sd")));
    }
}
