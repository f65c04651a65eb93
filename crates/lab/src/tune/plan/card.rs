//! Steps of one port: queues, hash, rings, offloads, coalescing, pause, interrupts.

use super::place::{Port, Spread, Symmetry, queues_why};
use super::sources::{
    CRYSTAL_EYE, GUIDE_CAPTURE, GUIDE_HIGH, IRQ, MARGAY, NAPI, PACKET_MMAP, SCALING, SINGLE_NODE, TIANJIN, says,
};
use super::{Draft, Mode, Words};
use crate::tune::card::{Channels, Coalesce, is_even, key_text, on};
use crate::tune::facts::Interface;
use crate::tune::knob::Knob;
use crate::tune::list;

/// Descriptors of a queue in two studies; 512 and 2048 were worse in one.
const RING: u32 = 1024;
/// Memory for one packet.
const BUFFER: u64 = 2048;
/// Microseconds between interrupts of a queue.
const USECS: u32 = 125;
/// The same for inline mode: it adds half as much latency.
const USECS_INLINE: u32 = 62;

/// Drivers without hardware. Their coalescing settings mean something else.
const NO_COALESCING: [&str; 5] = ["virtio_net", "tun", "veth", "vif", "hv_netvsc"];

/// All steps of a port, interface by interface.
pub(super) fn steps(draft: &mut Draft<'_>, port: &Port) {
    for name in &port.interfaces {
        let Some(interface) = draft.facts.interfaces.get(name) else { continue };
        queues(draft, port, name, interface);
        ring(draft, port, name, interface);
        pause(draft, name, interface);
        // Do this before merging is switched off, because some drivers cannot poll without merging.
        fetching(draft, name, interface);
        offloads(draft, name, interface);
        fields(draft, port, name, interface);
        hash(draft, port, name, interface);
        coalesce(draft, name, interface);
        flags(draft, name, interface);
        quiet(draft, name);
        rps(draft, port, name, interface);
        interrupts(draft, port, name, interface);
    }
}

fn id(name: &str, word: &str) -> String {
    format!("{name}.{word}")
}

fn link_away(what: &str) -> Option<String> {
    Some(format!("{what}: many drivers reset the card, and the link is away for one to ten seconds"))
}

/// The planned number of queues.
fn wanted_queues(port: &Port, interface: &Interface) -> Option<u32> {
    let most = interface.channels?.most;
    u32::try_from(port.interrupts.len()).ok().map(|queues| queues.clamp(1, most.receive()))
}

fn queues(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    let (Some(channels), Some(wanted)) = (interface.channels, wanted_queues(port, interface)) else {
        return;
    };
    let set = match channels.most.combined {
        // Some drivers count each direction separately.
        0 => Channels { rx: wanted, tx: channels.now.tx, ..channels.now },
        _ => Channels { rx: 0, tx: 0, combined: wanted, ..channels.now },
    };
    let (why, sources, disagreement) = queues_why(port);
    let mut settings = Vec::new();
    // The kernel refuses fewer queues than an explicitly set table names.
    let queues = channels.now.receive();
    let chosen = interface.rss.as_ref().is_some_and(|rss| rss.table_text(queues) != "default");
    if chosen && wanted < queues {
        settings.push((Knob::RssTable(name.to_owned()), "default".to_owned()));
    }
    settings.push((Knob::Channels(name.to_owned()), set.to_string()));
    let words =
        Words { what: "receive queues", why, sources, disagreement, cuts: link_away("changing the number of queues") };
    draft.step(id(name, "queues"), words, settings);
}

fn ring(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    let Some(ring) = interface.ring else { return };
    let queues = u64::from(wanted_queues(port, interface).unwrap_or(1));
    let cache = draft.facts.topology.cache_of(&port.interrupts);
    // The card may fill a quarter of the cache, but the ring is never smaller than the studies' best value.
    let mut rx = RING;
    while rx * 2 <= ring.most.rx && queues * u64::from(rx) * 2 * BUFFER <= cache / 4 {
        rx *= 2;
    }
    let rx = rx.min(ring.most.rx);
    let used = queues * u64::from(rx) * BUFFER;
    let words = Words {
        what: "receive ring",
        why: format!(
            "what the card writes is read from the cache while it fits: {queues} x {rx} places of 2 KiB are {} MiB, the cache has {} MiB{}",
            used >> 20,
            cache >> 20,
            if used > cache { "; with fewer, packets were lost while the worker was away" } else { "" }
        ),
        sources: vec![
            says(SINGLE_NODE, "1024; 512 and 2048 lost more"),
            says(CRYSTAL_EYE, "1024"),
            says(GUIDE_HIGH, "1024"),
        ],
        disagreement: Some(format!(
            "cards' guides and this command before now: the most there may be ({}). Rule: 1024, and twice as much while all queues stay \
             within a quarter of the cache",
            ring.most.rx
        )),
        cuts: link_away("changing the ring"),
    };
    draft.step(id(name, "ring"), words, vec![(Knob::Ring(name.to_owned()), format!("rx {rx} tx {}", ring.now.tx))]);
}

fn pause(draft: &mut Draft<'_>, name: &str, interface: &Interface) {
    let Some(pause) = interface.pause else { return };
    let words = Words {
        what: "pause frames",
        why: "a sensor must not make its neighbour wait: a switch that is asked to pause drops for everybody, and a tap does not listen"
            .to_owned(),
        sources: vec![says(SINGLE_NODE, "off"), says(CRYSTAL_EYE, "off"), says(GUIDE_HIGH, "-A rx off tx off")],
        disagreement: None,
        cuts: link_away("pause frames are agreed upon with the neighbour, and the link may come up anew"),
    };
    let want = format!("autoneg {} rx off tx off", on(pause.autoneg));
    draft.step(id(name, "pause"), words, vec![(Knob::Pause(name.to_owned()), want)]);
}

fn offloads(draft: &mut Draft<'_>, name: &str, interface: &Interface) {
    let switch = |wanted: &[(&str, bool)]| -> Vec<(Knob, String)> {
        let can = |(feature, want): &&(&str, bool)| {
            interface.features.get(*feature).is_some_and(|state| !state.fixed || state.on == *want)
        };
        let knob = |(feature, want): &(&str, bool)| {
            (Knob::Feature(name.to_owned(), (*feature).to_owned()), on(*want).to_owned())
        };
        wanted.iter().filter(can).map(knob).collect()
    };
    let merging =
        switch(&[("rx-lro", false), ("rx-gro-hw", false), ("rx-gro", false), ("rx-udp-gro-forwarding", false)]);
    if !merging.is_empty() {
        let words = Words {
            what: "merging of packets",
            why: "merged packets are not what was on the wire: sizes, counts and segments differ, and dsize and TCP tracking with them"
                .to_owned(),
            sources: vec![
                says(GUIDE_CAPTURE, "LRO and GRO off"),
                says(CRYSTAL_EYE, "lro and gro off"),
                says(MARGAY, "inline, LRO forgets how packets were cut"),
            ],
            disagreement: None,
            cuts: None,
        };
        draft.step(id(name, "merging"), words, merging);
    }
    let checksums = switch(&[("rx-checksum", true)]);
    if !checksums.is_empty() {
        let words = Words {
            what: "receive checksums by the card",
            why:
                "AF_PACKET tells the engine what the card found, so that the engine need not add up every packet again"
                    .to_owned(),
            sources: vec![says(GUIDE_CAPTURE, "disable offloading except the checksums")],
            disagreement: Some(format!("{CRYSTAL_EYE} switches rx and tx off. Rule: they stay on for AF_PACKET")),
            cuts: None,
        };
        draft.step(id(name, "checksums"), words, checksums);
    }
    let steering = switch(&[("rx-hashing", true), ("rx-ntuple-filter", true)]);
    if !steering.is_empty() {
        let words = Words {
            what: "hash and filters by the card",
            why: "the card tells the kernel each packet's hash, and can be given filters for flows that are bypassed"
                .to_owned(),
            sources: vec![
                says(SINGLE_NODE, "rxhash and ntuple on"),
                says(CRYSTAL_EYE, "the same"),
                says(TIANJIN, "the same"),
                says(GUIDE_HIGH, "the same"),
            ],
            disagreement: None,
            cuts: None,
        };
        draft.step(id(name, "steering"), words, steering);
    }
}

fn hash(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    let Some(rss) = &interface.rss else { return };
    // With one queue the hash has no effect.
    if port.interrupts.len() < 2 || port.symmetry == Symmetry::None {
        return;
    }
    let mut settings = Vec::new();
    let own = name.to_owned();
    let disagreement = match port.symmetry {
        Symmetry::Transform(transform) => {
            settings.push((Knob::RssTransform(own.clone()), transform.to_owned()));
            "the studies and Suricata's guide set a key that repeats 6D:5A, which leaves 16 bits of hash to tell flows apart. Rule: \
             the card's own symmetric transformation where the driver has one (Linux 6.8), with the driver's key"
        }
        _ => {
            settings.push((Knob::RssFunction(own.clone()), "toeplitz".to_owned()));
            let key: Vec<u8> = [0x6d, 0x5a].into_iter().cycle().take(rss.key.len()).collect();
            settings.push((Knob::RssKey(own.clone()), key_text(&key)));
            "symmetric-xor (Linux 6.8) spreads flows better than a key that repeats. Rule: it is used where the driver has it; this one \
             has not"
        }
    };
    // A driver's even spread may have another order.
    let queues = wanted_queues(port, interface).unwrap_or(1);
    let stays =
        interface.channels.is_some_and(|channels| channels.now.receive() == queues) && is_even(&rss.table, queues);
    let table = if stays { rss.table_text(queues) } else { "default".to_owned() };
    settings.push((Knob::RssTable(own), table));
    let words = Words {
        what: "symmetric hash",
        why: "both directions of a flow come to the same queue, in the order in which they were on the wire".to_owned(),
        sources: vec![
            says(SINGLE_NODE, "key 6D:5A, toeplitz, equal N"),
            says(CRYSTAL_EYE, "key 6D:5A"),
            says(GUIDE_HIGH, "key 6D:5A, hfunc toeplitz, equal N"),
            says(SCALING, "Symmetric-XOR, for monitors of flows"),
        ],
        disagreement: Some(disagreement.to_owned()),
        cuts: None,
    };
    draft.step(id(name, "hash"), words, settings);
}

fn fields(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    if port.interrupts.len() < 2 || port.symmetry == Symmetry::None {
        return;
    }
    let mut settings = Vec::new();
    for (flow, fields) in &interface.hash {
        let has = |letter| fields.contains(letter);
        let want = match flow.trim_end_matches(['4', '6']) {
            "tcp" | "udp" => "sdfn",
            // The driver's fields, if they are symmetric. Most drivers refuse ports here.
            _ if has('s') && has('d') && has('f') == has('n') => fields,
            _ => "sd",
        };
        settings.push((Knob::Hash(name.to_owned(), flow.clone()), want.to_owned()));
    }
    if settings.is_empty() {
        return;
    }
    let words = Words {
        what: "hashed fields",
        why: "addresses and ports of TCP and UDP over both families spread flows best; of SCTP, AH and ESP both addresses".to_owned(),
        sources: vec![
            says(SINGLE_NODE, "sdfn for TCP, UDP, SCTP, AH, ESP"),
            says(CRYSTAL_EYE, "sdfn for TCP and UDP"),
            says(GUIDE_HIGH, "sdfn; sd may be enough, or better"),
        ],
        disagreement: Some(
            "with sd fragments stay with their flow, with sdfn flows between two hosts spread. Rule: sdfn, since the engine puts \
             fragments together itself. One study sets sdfn for SCTP, AH and ESP too, which most drivers refuse: what they have stays \
             where it is the same both ways"
                .to_owned(),
        ),
        cuts: None,
    };
    draft.step(id(name, "fields"), words, settings);
}

fn coalesce(draft: &mut Draft<'_>, name: &str, interface: &Interface) {
    let Some(now) = interface.coalesce else { return };
    // These drivers do not report a time between interrupts, and it cannot be set.
    if NO_COALESCING.contains(&interface.driver.name.as_str()) && now.rx_usecs == 0 {
        return;
    }
    let inline = draft.plan.goal.mode == Mode::Inline;
    let rx_usecs = if inline { USECS_INLINE } else { USECS };
    let want = Coalesce { adaptive_rx: false, adaptive_tx: false, rx_usecs, ..now };
    let words = Words {
        what: "interrupt coalescing",
        why: match inline {
            false => {
                "a fixed pause between interrupts: packets come in batches of a size that does not change with the load"
                    .to_owned()
            }
            true => {
                "a fixed pause between interrupts; inline it is added to each packet's way, so half of the studies'"
                    .to_owned()
            }
        },
        sources: vec![
            says(SINGLE_NODE, "adaptive off, rx-usecs 125"),
            says(CRYSTAL_EYE, "150"),
            says(GUIDE_HIGH, "125"),
            says(NAPI, "interrupts wait to make batches"),
        ],
        disagreement: Some(format!("125 and 150 µs were never compared. Rule: {USECS}, inline {USECS_INLINE}")),
        cuts: None,
    };
    draft.step(id(name, "coalescing"), words, vec![(Knob::Coalesce(name.to_owned()), want.to_string())]);
}

fn flags(draft: &mut Draft<'_>, name: &str, interface: &Interface) {
    if interface.flags.is_none() {
        return;
    }
    let words = Words {
        what: "promiscuous, without ARP",
        why: "the port takes what is not for it before the engine asks for that, and answers nobody".to_owned(),
        sources: vec![says(CRYSTAL_EYE, "promiscuous on, ARP off")],
        disagreement: None,
        cuts: None,
    };
    let own = || name.to_owned();
    let settings = vec![(Knob::Promisc(own()), "on".to_owned()), (Knob::Arp(own()), "off".to_owned())];
    draft.step(id(name, "port"), words, settings);
}

/// Keeps IPv6 from sending on the port as soon as it is up.
fn quiet(draft: &mut Draft<'_>, name: &str) {
    if !draft.facts.sysctls.contains_key(&format!("net.ipv6.conf.{name}.disable_ipv6")) {
        return;
    }
    let words = Words {
        what: "IPv6 of the host on the port",
        why: "the host's own neighbour discovery would be sent out of the port, and be seen by the engine".to_owned(),
        sources: vec![says(CRYSTAL_EYE, "disable_ipv6=1 on the port")],
        disagreement: None,
        cuts: None,
    };
    let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    draft.step(id(name, "ipv6"), words, vec![(Knob::File(path), "1".to_owned())]);
}

/// Packets are polled on the interrupt's CPU, as soon as it arrives. AF_XDP sets this up itself.
fn fetching(draft: &mut Draft<'_>, name: &str, interface: &Interface) {
    let engine = draft.facts.engine.iter().flat_map(|engine| &engine.settings);
    let by_xdp = |(setting, value): (&String, &String)| {
        setting.starts_with("af-xdp.") && setting.ends_with(".interface") && value == name
    };
    if engine.into_iter().any(by_xdp) {
        return;
    }
    let file = |file: &String| (Knob::File(format!("/sys/class/net/{name}/{file}")), "0".to_owned());
    let settings: Vec<_> = interface.napi.keys().map(file).collect();
    if settings.is_empty() {
        return;
    }
    let words = Words {
        what: "how packets are fetched",
        why: "on the CPU of the interrupt, at each interrupt: threads that fetch would run wherever the scheduler likes, and interrupts \
              that are deferred add to what coalescing waits already"
            .to_owned(),
        sources: vec![says(NAPI, "threaded NAPI, gro_flush_timeout, napi_defer_hard_irqs: off unless one asks for them")],
        disagreement: None,
        cuts: None,
    };
    draft.step(id(name, "fetching"), words, settings);
}

/// For a single queue without a hash, other CPUs can do a part of the kernel's work.
fn rps(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    let queues = wanted_queues(port, interface).unwrap_or(1);
    let hashes = interface.features.get("rx-hashing").is_some_and(|state| state.on || !state.fixed);
    let several = port.spread == Spread::Flows && queues == 1 && port.workers.len() > 1 && !hashes;
    // A setting that does not help is removed, because packets would be hashed twice.
    for (queue, state) in &interface.queues {
        if *queue >= queues || (!several && state.rps.is_empty()) {
            continue;
        }
        let (why, want) = match several {
            true => (
                "one queue's packets are handed on by the kernel's symmetric hash, so that more than one CPU takes them from the driver",
                list::show(&port.workers),
            ),
            false => (
                "packets are distributed by the card's queues: handing them on once more costs and reorders",
                String::new(),
            ),
        };
        let words = Words {
            what: "receive packet steering",
            why: why.to_owned(),
            sources: vec![says(SCALING, "for a single queue, the CPUs of the same memory node")],
            disagreement: None,
            cuts: None,
        };
        draft.step(id(name, &format!("rps-{queue}")), words, vec![(Knob::Rps(name.to_owned(), *queue), want)]);
    }
}

fn interrupts(draft: &mut Draft<'_>, port: &Port, name: &str, interface: &Interface) {
    // A card without interrupts for its queues needs no affinity.
    if interface.queues.values().all(|queue| queue.interrupt.is_none()) {
        return;
    }
    let queues = wanted_queues(port, interface).unwrap_or(1);
    let settings: Vec<(Knob, String)> = (0..queues)
        .zip(&port.interrupts)
        .map(|(queue, cpu)| (Knob::Irq(name.to_owned(), queue), cpu.to_string()))
        .collect();
    let same = port.spread == Spread::Queues;
    let words = Words {
        what: "interrupts",
        why: match same {
            true => {
                "each queue's interrupt on its worker's CPU: packets are in that CPU's cache when the worker reads them"
                    .to_owned()
            }
            false => "interrupts on CPUs near the card that no worker has".to_owned(),
        },
        sources: match same {
            true => vec![
                says(SINGLE_NODE, "one interrupt for each worker's CPU"),
                says(CRYSTAL_EYE, "the same, by port and node"),
                says(TIANJIN, "the same, by port"),
                says(IRQ, "smp_affinity_list"),
                says(PACKET_MMAP, "PACKET_FANOUT_QM"),
            ],
            false => vec![
                says(GUIDE_HIGH, "interrupts on CPUs of the card's node but CPU 0, workers on others"),
                says(IRQ, "smp_affinity_list"),
            ],
        },
        disagreement: None,
        cuts: None,
    };
    let queues = settings.len();
    let step = draft.step(id(name, "interrupts"), words, settings);
    if queues > 1 && step.changes() {
        step.want = format!("queues 0-{} on CPUs {}, one each", queues - 1, list::show(&port.interrupts));
    }
    if step.blocked.is_none() && draft.facts.host.container.is_some() {
        let last = draft.plan.all.len() - 1;
        draft.plan.all[last].blocked = Some("this is a container: interrupts are the host's".to_owned());
    }
}
