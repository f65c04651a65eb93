//! Makes a snapshot from a sample and the previous sample.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::health;
use crate::model::{Counters, Memory, Point, Protocol, Sample, Snapshot, Stage, Totals, Worker, WorkerSample, value};

/// Limit of the protocols shown.
const PROTOCOLS: usize = 32;

/// The growth of a counter per second; 0 after a reset.
fn rate(now: u64, before: Option<u64>, seconds: f64) -> f64 {
    match before {
        Some(before) if seconds > 0.0 => now.saturating_sub(before) as f64 / seconds,
        _ => 0.0,
    }
}

/// Processor time in percent of one processor.
fn percent(now: Duration, before: Option<Duration>, seconds: f64) -> f64 {
    match before {
        Some(before) if seconds > 0.0 => now.saturating_sub(before).as_secs_f64() * 100.0 / seconds,
        _ => 0.0,
    }
}

fn pressure(memory: &[Memory]) -> f64 {
    let of = |m: &Memory| if m.cap == 0 { 0.0 } else { m.used as f64 * 100.0 / m.cap as f64 };
    memory.iter().map(of).fold(0.0, f64::max)
}

/// The snapshot, without the parts that come from events.
pub(super) fn of(sample: &Sample, before: Option<&Sample>) -> Snapshot {
    let seconds = before.map_or(0.0, |b| sample.at.saturating_duration_since(b.at).as_secs_f64());
    let none = Counters::new();
    let old = before.map_or(&none, |b| &b.totals);
    let total = |name: &str| value(&sample.totals, name);
    let grows = |name: &str| rate(total(name), before.map(|_| value(old, name)), seconds);
    let stages = stages(sample, before, seconds);
    let workers: Vec<Worker> = sample
        .workers
        .iter()
        .map(|w| worker(w, before.and_then(|b| b.workers.iter().find(|o| o.name == w.name)), seconds))
        .collect();
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for m in sample.workers.iter().flat_map(|w| &w.memory) {
        let sum = sums.entry(&m.name).or_default();
        (sum.0, sum.1) = (sum.0.saturating_add(m.used), sum.1.saturating_add(m.cap));
    }
    let memory: Vec<Memory> =
        sums.into_iter().map(|(name, (used, cap))| Memory { name: name.to_owned(), used, cap }).collect();
    // `softnet` counts losses of the whole host, which may have interfaces that are not captured.
    let lost = || stages.iter().filter(|s| s.stage != "softnet");
    let now = Point {
        t: sample.time,
        packets: grows("decoder.pkts"),
        bits: grows("decoder.bytes") * 8.0,
        // Without stages, `sum` would be -0.
        lost: lost().map(|s| s.rate).fold(0.0, |a, b| a + b),
        alerts: grows("detect.alert"),
        new_flows: grows("flow.total"),
        flows: total("flow.active"),
        cpu: percent(sample.process_cpu, before.map(|b| b.process_cpu), seconds),
        worker_cpu: workers.iter().map(|w| w.cpu).fold(0.0, f64::max),
        pressure: workers.iter().map(|w| w.pressure).fold(0.0, f64::max),
    };
    let totals = Totals {
        packets: total("decoder.pkts"),
        bytes: total("decoder.bytes"),
        alerts: total("detect.alert"),
        lost: lost().map(|s| s.lost).sum(),
        flows: total("flow.total"),
    };
    let transports =
        [("tcp", total("flow.tcp")), ("udp", total("flow.udp")), ("icmp", total("flow.icmpv4") + total("flow.icmpv6"))];
    let findings =
        health::findings(&sample.totals, before.map_or(&sample.totals, |b| &b.totals), seconds, &stages, &workers);
    Snapshot {
        time: sample.time,
        uptime: sample.uptime,
        about: sample.about.clone(),
        now,
        totals,
        protocols: protocols(&sample.totals, before.map(|b| &b.totals), seconds),
        stages,
        workers,
        memory,
        resident: sample.resident,
        transports: transports.map(|(n, v)| (n.to_owned(), v)).to_vec(),
        rules: sample.rules.clone(),
        findings,
        ..Snapshot::default()
    }
}

fn worker(w: &WorkerSample, before: Option<&WorkerSample>, seconds: f64) -> Worker {
    let grows = |name: &str| rate(value(&w.counters, name), before.map(|b| value(&b.counters, name)), seconds);
    Worker {
        name: w.name.clone(),
        interface: w.interface.clone(),
        cpu: percent(w.cpu, before.map(|b| b.cpu), seconds),
        packets: grows("decoder.pkts"),
        bits: grows("decoder.bytes") * 8.0,
        lost: grows("capture.kernel_drops"),
        flows: value(&w.counters, "flow.active"),
        pressure: pressure(&w.memory),
    }
}

/// Packets received and lost by stage, from the card to the wire.
fn stages(sample: &Sample, before: Option<&Sample>, seconds: f64) -> Vec<Stage> {
    let mut out = Vec::new();
    for (interface, counters) in &sample.interfaces {
        let old = before.and_then(|b| b.interfaces.iter().find(|i| i.0 == *interface)).map(|i| &i.1);
        let mut stage = |stage: &str, received: &str, lost: &str| {
            let now = value(counters, lost);
            out.push(Stage {
                interface: interface.clone(),
                stage: stage.into(),
                received: Some(value(counters, received)),
                lost: now,
                rate: rate(now, old.map(|o| value(o, lost)), seconds),
            });
        };
        // A queue of netfilter has no card.
        let card = counters.iter().any(|c| c.0 == "capture.nic.received");
        if card {
            stage("card", "capture.nic.received", "capture.nic.lost");
        }
        stage(if card { "ring" } else { "queue" }, "capture.kernel_packets", "capture.kernel_drops");
        stage("engine", "capture.engine.received", "capture.engine.lost");
        if ["capture.send.sent", "capture.send.dropped", "capture.send.lost"].iter().any(|n| value(counters, n) > 0) {
            stage("send", "capture.send.sent", "capture.send.lost");
        }
    }
    const SOFTNET: &str = "capture.softnet.dropped";
    if sample.totals.iter().any(|t| t.0 == SOFTNET) {
        let lost = value(&sample.totals, SOFTNET);
        out.push(Stage {
            interface: "host".into(),
            stage: "softnet".into(),
            received: None,
            lost,
            rate: rate(lost, before.map(|b| value(&b.totals, SOFTNET)), seconds),
        });
    }
    out
}

/// Protocols with at least one flow, those with most flows first.
fn protocols(totals: &Counters, before: Option<&Counters>, seconds: f64) -> Vec<Protocol> {
    let mut all: Vec<Protocol> = totals
        .iter()
        .filter(|(_, flows)| *flows > 0)
        .filter_map(|(counter, flows)| {
            let name = counter.strip_prefix("app_layer.flow.")?;
            Some(Protocol {
                name: name.to_owned(),
                flows: *flows,
                rate: rate(*flows, before.map(|b| value(b, counter)), seconds),
                transactions: value(totals, &format!("app_layer.tx.{name}")),
                errors: value(totals, &format!("app_layer.error.{name}.parser")),
            })
        })
        .collect();
    all.sort_by(|a, b| b.flows.cmp(&a.flows).then_with(|| a.name.cmp(&b.name)));
    all.truncate(PROTOCOLS);
    all
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;
    use std::time::Instant;

    use super::*;
    use crate::model::About;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// A sample with `packets` packets, `seconds` after the first sample.
    pub(in crate::hub) fn sample(packets: u64, seconds: u64) -> Sample {
        let of = |list: &[(&str, u64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Counters>();
        let counters = of(&[
            ("capture.kernel_drops", packets / 10),
            ("decoder.pkts", packets),
            ("decoder.bytes", packets * 100),
            ("flow.active", 3),
            ("app_layer.flow.http", packets / 5),
            ("app_layer.flow.dns_udp", packets / 2),
            ("app_layer.tx.http", 4),
            ("app_layer.flow.ssh", 0),
        ]);
        let mut totals = counters.clone();
        totals.push(("capture.softnet.dropped".into(), 5));
        let memory = |cap| vec![Memory { name: "flow.memcap".into(), used: 50, cap }];
        let worker = |name: &str, cap| WorkerSample {
            name: name.into(),
            interface: "eth0".into(),
            cpu: Duration::from_millis(500 * seconds),
            counters: counters.clone(),
            memory: memory(cap),
        };
        Sample {
            at: *START + Duration::from_secs(seconds),
            time: 1_000 + seconds * 1000,
            uptime: seconds,
            about: About::default(),
            totals,
            workers: vec![worker("W#01-eth0", 100), worker("W#02-eth0", 200)],
            interfaces: vec![(
                "eth0".into(),
                of(&[
                    ("capture.nic.received", packets),
                    ("capture.nic.lost", 0),
                    ("capture.kernel_packets", packets),
                    ("capture.kernel_drops", packets / 10),
                    ("capture.engine.received", packets),
                ]),
            )],
            process_cpu: Duration::from_secs(seconds),
            resident: 1 << 20,
            rules: Vec::new(),
            late: 0,
        }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let (a, b) = (sample(1000, 10), sample(3000, 12));
        let s = of(&b, Some(&a));
        let p = s.now;
        assert_eq!([p.packets, p.bits, p.cpu, p.worker_cpu], [1000.0, 800_000.0, 100.0, 50.0]);
        assert_eq!((p.lost, p.flows, p.pressure), (100.0, 3, 50.0));
        assert_eq!((s.totals.packets, s.totals.lost), (3000, 300));
        let stages: Vec<_> = s.stages.iter().map(|s| (s.stage.as_str(), s.received, s.lost, s.rate)).collect();
        let want = [
            ("card", Some(3000), 0, 0.0),
            ("ring", Some(3000), 300, 100.0),
            ("engine", Some(3000), 0, 0.0),
            ("softnet", None, 5, 0.0),
        ];
        assert_eq!(stages, want);
        assert_eq!(s.workers[1].packets, 1000.0);
        assert_eq!(s.memory, [Memory { name: "flow.memcap".into(), used: 100, cap: 300 }]);
        let protocols: Vec<_> =
            s.protocols.iter().map(|p| (p.name.as_str(), p.flows, p.rate, p.transactions)).collect();
        assert_eq!(protocols, [("dns_udp", 1500, 500.0, 0), ("http", 600, 200.0, 4)]);
        assert_eq!(s.findings[0].counter, "eth0 ring");
        // Without an earlier sample, and after a reset, there are sums and no rates.
        for s in [of(&a, None), of(&a, Some(&b))] {
            assert_eq!((s.now.packets, s.now.cpu, s.totals.packets), (0.0, 0.0, 1000));
        }
    }
}
