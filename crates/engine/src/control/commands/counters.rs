//! Counters of interfaces, of workers and of a flow.

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_flow::Direction;
use margay_output::OutputCounters;
use serde_json::{Map, Value, json};

use super::rules::engine;
use super::{Args, ask};
use crate::control::message::Answer;
use crate::control::{ANSWER, Control};
use crate::stats::Reporter;
use crate::worker::Worker;
use crate::worker::bypass::Family;

pub(super) fn iface_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let names = control.live.get().map_or(&[][..], |l| &l.interfaces);
    Ok(json!({"count": names.len(), "ifaces": names}))
}

pub(super) fn iface_stat(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let name = args.must("iface").to_owned();
    if !control.live.get().is_some_and(|l| l.interfaces.contains(&name)) {
        return Err("iface does not exist".into());
    }
    let of = move |w: &mut Worker, _: &mut Reporter| {
        let ends = w.pipeline.stages.captured.as_ref().map_or(&[][..], |c| &c.ends);
        let bypassed = w.pipeline.stages.kernel.as_ref().map_or(0, |k| k.packets());
        ends.iter().find(|e| e.interface == name).map(|e| (e.live, e.invalid_checksums, bypassed))
    };
    let mut sum = margay_capture::live::LiveCounters::default();
    let (mut invalid, mut bypassed) = (0, 0);
    for (live, bad, past) in ask(control, of)?.into_iter().flatten() {
        sum.add(&live);
        invalid += bad;
        bypassed += past;
    }
    let (pkts, drop) = (sum.kernel_packets, sum.kernel_drops);
    Ok(json!({"pkts": pkts, "drop": drop, "bypassed": bypassed, "invalid-checksums": invalid}))
}

/// Results of kernel bypass for each interface, if kernel bypass is on.
pub(super) fn bypassed(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let of = |w: &mut Worker, _: &mut Reporter| {
        let stages = &w.pipeline.stages;
        let families = stages.kernel.as_ref()?.families();
        let names: Vec<String> = stages.captured.as_ref()?.ends.iter().map(|e| e.interface.clone()).collect();
        Some((names, families))
    };
    // Without workers there is no interface either.
    let workers = if control.live.get().is_some() { ask(control, of)? } else { Vec::new() };
    in_kernel(workers.into_iter().flatten())
}

/// Sums the flows in the kernel over the workers. Bridged interfaces share a table, and report the same numbers.
fn in_kernel(workers: impl Iterator<Item = (Vec<String>, [Family; 2])>) -> Answer {
    let mut all: BTreeMap<String, [Family; 2]> = BTreeMap::new();
    for (names, families) in workers {
        for name in names {
            for (sum, f) in all.entry(name).or_default().iter_mut().zip(&families) {
                sum.there += f.there;
                sum.entered += f.entered;
                sum.full += f.full;
                sum.refused += f.refused;
            }
        }
    }
    if all.is_empty() {
        return Err("No interface using bypass".into());
    }
    let told = |(name, [v4, v6]): (String, [Family; 2])| {
        // The table has an entry for each direction.
        let told = json!({
            "ipv4_maps_count": v4.there * 2,
            "ipv4_success": v4.entered,
            "ipv4_fail": v4.full + v4.refused,
            "ipv6_maps_count": v6.there * 2,
            "ipv6_success": v6.entered,
            "ipv6_fail": v6.full + v6.refused,
        });
        (name, told)
    };
    Ok(Value::Object(all.into_iter().map(told).collect()))
}

/// Converts dotted names to nested objects.
fn nest(counters: &[(String, u64)]) -> Value {
    let mut root = Map::new();
    for (name, value) in counters {
        let mut at = &mut root;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            let entry = at.entry(part).or_insert_with(|| json!({}));
            if parts.peek().is_none() {
                *entry = json!(value);
                break;
            }
            match entry {
                Value::Object(o) => at = o,
                _ => break,
            }
        }
    }
    Value::Object(root)
}

pub(super) fn dump_counters(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let mut sum: Vec<(String, u64)> = Vec::new();
    let mut outputs = OutputCounters::default();
    for (counters, shared) in ask(control, |w, r| (r.counters(w), w.pipeline.stages.outputs.counters()))? {
        crate::stats::add(&mut sum, counters);
        outputs = shared;
    }
    sum.extend(crate::stats::of_engine(&outputs));
    sum.push(("uptime".into(), control.started.elapsed().as_secs()));
    sum.push(("watchdog.stuck".into(), control.watch.stuck()));
    sum.push(("detect.rule_sets".into(), margay_detect::live_sets() as u64));
    let mut all = nest(&sum);
    if let Some(Value::Object(detect)) = all.get_mut("detect") {
        detect.insert("engines".into(), Value::Array(control.engines().stats().iter().map(engine).collect()));
    }
    Ok(all)
}

/// Limit of the wait for a snapshot. Without earlier viewers, the first one comes within about a second.
const PICTURE: std::time::Duration = std::time::Duration::from_secs(4);

pub(super) fn watch(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let picture =
        control.watched.hub.snapshot(PICTURE).ok_or("nothing is known yet: the engine is starting, or stops")?;
    serde_json::to_value(&*picture).map_err(|e| e.to_string())
}

/// Flows checked at a time, which takes some tens of microseconds.
const FLOWS_AT_ONCE: u32 = 4096;

pub(super) fn flow_stats(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.number("flow_id").unwrap_or(0);
    let workers = control.workers();
    if workers.is_empty() {
        return Err("nothing is being captured".into());
    }
    for post in workers {
        let mut from = Some(0);
        while let Some(at) = from {
            let found = post.ask(ANSWER, move |w, _| {
                let now = w.pipeline.stages.now;
                w.pipeline.flows.find_id(id, at, FLOWS_AT_ONCE).map(|f| {
                    let (server, client) = (Direction::ToServer.index(), Direction::ToClient.index());
                    let c = &f.core;
                    json!({
                        "flow_id": id,
                        "pkts_toserver": c.pkts[server],
                        "pkts_toclient": c.pkts[client],
                        "bytes_toserver": c.bytes[server],
                        "bytes_toclient": c.bytes[client],
                        "age": now.secs().saturating_sub(c.start.secs()),
                    })
                })
            });
            match found.map_err(|e| e.to_string())? {
                Ok(flow) => return Ok(flow),
                Err(next) => from = next,
            }
        }
    }
    Err("Not found".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_nest() {
        let list = [("a.b.c", 1), ("a.b.d", 2), ("e", 3), ("a.f", 4)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(nest(&list), json!({"a": {"b": {"c": 1, "d": 2}, "f": 4}, "e": 3}));
        // A name that is also a group is ignored.
        let odd = [("a", 1), ("a.b", 2)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(nest(&odd), json!({"a": 1}));
    }

    #[test]
    fn flows_in_the_kernel() {
        assert_eq!(in_kernel(std::iter::empty()), Err("No interface using bypass".into()));
        let one = Family { there: 2, entered: 5, full: 1, refused: 2 };
        let pair = || vec!["eth0".to_owned(), "eth1".to_owned()];
        let workers = [
            (pair(), [one, Family::default()]),
            (pair(), [one, Family { there: 1, entered: 1, ..Family::default() }]),
            (vec!["eth2".to_owned()], Default::default()),
        ];
        let told = |n: [u64; 6]| {
            json!({
                "ipv4_maps_count": n[0], "ipv4_success": n[1], "ipv4_fail": n[2],
                "ipv6_maps_count": n[3], "ipv6_success": n[4], "ipv6_fail": n[5],
            })
        };
        let both = told([8, 10, 6, 2, 1, 0]);
        let all = json!({"eth0": both, "eth1": both, "eth2": told([0; 6])});
        assert_eq!(in_kernel(workers.into_iter()), Ok(all));
    }
}
