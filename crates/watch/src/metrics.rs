//! Every counter as metrics: OpenMetrics 1.0, and the text format of Prometheus for other clients.
//!
//! A counter of `stats` events, such as `tcp.reassembly_gap`, is a family with that name after `margay_`. It has a sample for
//! each worker, with the labels `worker` and `interface`. Names that differ only in one word (protocols, events, states) form
//! one family with a label for that word. Counters of all workers together have one sample without labels.

mod names;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::model::Sample;
use names::{Kind, Name, name};

/// The format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4.
    Text,
}

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics with one name.
struct Family {
    kind: Kind,
    unit: &'static str,
    help: String,
    /// Labels, in braces, and value.
    samples: Vec<(String, f64)>,
}

/// Families by name, without `_total`.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

/// Formats labels in braces; empty if there are none.
fn labels(list: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in list {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(name);
        out.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    if !out.is_empty() {
        out.push('}');
    }
    out
}

impl Families {
    fn add(&mut self, family: &str, kind: Kind, unit: &'static str, help: &str, list: &[(&str, &str)], value: f64) {
        let new = || Family { kind, unit, help: help.to_owned(), samples: Vec::new() };
        self.0.entry(family.to_owned()).or_insert_with(new).samples.push((labels(list), value));
    }

    /// Adds a counter of `stats` events.
    fn counter(&mut self, counter: &str, value: u64, of: &[(&str, &str)]) {
        let Name { family, kind, unit, help, labels, scale } = name(counter);
        let mut list: Vec<(&str, &str)> = of.to_vec();
        list.extend(labels.iter().map(|(n, v)| (*n, v.as_str())));
        self.add(&family, kind, unit, &help, &list, value as f64 * scale);
    }
}

/// All metrics of a sample. `shared` returns whether the counter with a name belongs to all workers together.
pub fn render(sample: &Sample, shared: &dyn Fn(&str) -> bool, format: Format) -> String {
    let mut f = Families::default();
    about(sample, &mut f);
    let mut seen: std::collections::HashSet<&str> = std::collections::HashSet::new();
    for (n, w) in sample.workers.iter().enumerate() {
        let of = [("worker", w.name.as_str()), ("interface", w.interface.as_str())];
        f.add(
            "margay_worker_cpu_seconds",
            Kind::Counter,
            "seconds",
            "Processor time of a worker's thread.",
            &of,
            w.cpu.as_secs_f64(),
        );
        for m in &w.memory {
            let list = [of[0], of[1], ("limit", m.name.as_str())];
            f.add(
                "margay_memory_used_bytes",
                Kind::Gauge,
                "bytes",
                "Memory in use, by the setting that limits it.",
                &list,
                m.used as f64,
            );
            f.add(
                "margay_memory_limit_bytes",
                Kind::Gauge,
                "bytes",
                "A worker's part of a limit of memory. 0 is none.",
                &list,
                m.cap as f64,
            );
        }
        for (counter, value) in &w.counters {
            seen.insert(counter);
            match shared(counter) {
                true if n > 0 => {}
                true => f.counter(counter, sample.totals.iter().find(|t| t.0 == *counter).map_or(*value, |t| t.1), &[]),
                false => f.counter(counter, *value, &of),
            }
        }
    }
    // Counters of interfaces have families of their own.
    let own = |c: &&(String, u64)| {
        !seen.contains(c.0.as_str()) && !c.0.starts_with("capture.nic.") && c.0 != "capture.engine.lost"
    };
    for (counter, value) in sample.totals.iter().filter(own) {
        f.counter(counter, *value, &[]);
    }
    interfaces(sample, &mut f);
    written(&f, format)
}

/// Metrics of the process.
fn about(sample: &Sample, f: &mut Families) {
    let a = &sample.about;
    let list = [("version", a.version.as_str()), ("mode", a.mode.as_str()), ("capture", a.capture.as_str())];
    f.add("margay_build_info", Kind::Gauge, "", "What runs. The value is always 1.", &list, 1.0);
    f.add("margay_uptime_seconds", Kind::Gauge, "seconds", "Time since the engine started.", &[], sample.uptime as f64);
    f.add(
        "process_cpu_seconds",
        Kind::Counter,
        "seconds",
        "Processor time of all threads.",
        &[],
        sample.process_cpu.as_secs_f64(),
    );
    f.add(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "bytes",
        "Memory of the process that is in use.",
        &[],
        sample.resident as f64,
    );
    f.add("margay_rules_loaded", Kind::Gauge, "", "Rules in use.", &[], a.rules_loaded as f64);
    f.add("margay_rules_failed", Kind::Gauge, "", "Rules that could not be loaded.", &[], a.rules_failed as f64);
    f.add("margay_workers", Kind::Gauge, "", "Workers.", &[], sample.workers.len() as f64);
    f.add(
        "margay_workers_late",
        Kind::Gauge,
        "",
        "Workers that did not answer in time, whose last counters are shown.",
        &[],
        sample.late as f64,
    );
}

/// Packets received and lost at each stage of an interface.
fn interfaces(sample: &Sample, f: &mut Families) {
    const RECEIVED: (&str, &str) = (
        "margay_interface_received_packets",
        "Packets that came to a stage of an interface, from the card to the wire.",
    );
    const LOST: (&str, &str) = ("margay_interface_lost_packets", "Packets lost at a stage of an interface.");
    const STAGES: &[(&str, &str, (&str, &str))] = &[
        ("capture.nic.received", "card", RECEIVED),
        ("capture.nic.lost", "card", LOST),
        ("capture.kernel_packets", "ring", RECEIVED),
        ("capture.kernel_drops", "ring", LOST),
        ("capture.engine.received", "engine", RECEIVED),
        ("capture.engine.lost", "engine", LOST),
        ("capture.send.sent", "send", RECEIVED),
        ("capture.send.lost", "send", LOST),
    ];
    for (interface, counters) in &sample.interfaces {
        // A queue of netfilter has no card.
        let queue = !counters.iter().any(|c| c.0 == "capture.nic.received");
        for (counter, value) in counters {
            let of = [("interface", interface.as_str())];
            if let Some((_, stage, (family, help))) = STAGES.iter().find(|s| s.0 == counter) {
                let stage = if queue && *stage == "ring" { "queue" } else { stage };
                let list = [of[0], ("stage", stage)];
                f.add(family, Kind::Counter, "", help, &list, *value as f64);
            } else if counter == "capture.send.dropped" {
                let help = "Packets that a verdict kept from being sent on.";
                f.add("margay_interface_dropped_packets", Kind::Counter, "", help, &of, *value as f64);
            }
        }
    }
}

fn written(families: &Families, format: Format) -> String {
    let mut out = String::new();
    for (name, family) in &families.0 {
        let sample = match family.kind {
            Kind::Counter => format!("{name}_total"),
            Kind::Gauge => name.clone(),
        };
        let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
        // In the older format, a family has the name of its samples.
        let shown = if format == Format::OpenMetrics { name } else { &sample };
        let help = family
            .help
            .replace('\\', "\\\\")
            .replace('\n', "\\n")
            .replace('"', if format == Format::OpenMetrics { "\\\"" } else { "\"" });
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# HELP {shown} {help}");
        let _ = writeln!(out, "# TYPE {shown} {kind}");
        if format == Format::OpenMetrics && !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {shown} {}", family.unit);
        }
        for (labels, value) in &family.samples {
            let _ = writeln!(out, "{sample}{labels} {value}");
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::model::{About, Memory, WorkerSample};

    fn sample() -> Sample {
        let of = |list: &[(&str, u64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Vec<_>>();
        // Names as an engine has them.
        let counters = of(&[
            ("capture.kernel_packets", 10),
            ("decoder.pkts", 10),
            ("decoder.bytes", 1000),
            ("decoder.avg_pkt_size", 100),
            ("decoder.event.ipv4.trunc_pkt", 2),
            ("decoder.event.tcp.pkt_too_small", 0),
            ("stream.est_syn_resend", 1),
            ("flow.total", 7),
            ("flow.active", 3),
            ("flow.memuse", 7_000_000),
            ("flow.mgr.rows_per_sec", 5),
            ("flow.end.state.new", 1),
            ("flow.end.tcp_state.syn_sent", 1),
            ("tcp.memuse", 9),
            ("memcap.pressure", 50),
            ("app_layer.flow.dns_udp", 4),
            ("app_layer.tx.dns_udp", 4),
            ("app_layer.error.dns_udp.parser", 1),
            ("app_layer.error.http.exception_policy.drop_flow", 1),
            ("app_layer.error.exception_policy.drop_flow", 2),
            ("app_layer.memuse", 5),
            ("detect.lua.errors", 0),
            ("file_store.quota_used", 77),
            ("eve.lost", 3),
            ("something.new-here", 9),
        ]);
        let worker = |name: &str, interface: &str| WorkerSample {
            name: name.into(),
            interface: interface.into(),
            cpu: Duration::from_millis(1500),
            counters: counters.clone(),
            memory: vec![Memory { name: "flow.memcap".into(), used: 5, cap: 10 }],
        };
        Sample {
            at: Instant::now(),
            time: 0,
            uptime: 61,
            about: About { version: "1".into(), mode: "workers".into(), ..About::default() },
            totals: of(&[
                ("decoder.pkts", 20),
                ("eve.lost", 3),
                ("capture.softnet.dropped", 4),
                ("capture.nic.lost", 6),
            ]),
            workers: vec![worker("W#01-eth0", "eth0"), worker("W#01-a\"b\\c", "a\"b\\c")],
            interfaces: vec![(
                "eth0".into(),
                of(&[("capture.nic.received", 11), ("capture.nic.lost", 6), ("capture.send.dropped", 1)]),
            )],
            process_cpu: Duration::from_secs(3),
            resident: 1 << 20,
            rules: Vec::new(),
            late: 0,
        }
    }

    fn shared(name: &str) -> bool {
        name == "eve.lost"
    }

    #[test]
    fn counters_are_of_workers_and_interfaces() {
        let text = render(&sample(), &shared, Format::Text);
        for line in [
            "margay_decoder_pkts_total{worker=\"W#01-eth0\",interface=\"eth0\"} 10",
            "margay_decoder_pkts_total{worker=\"W#01-a\\\"b\\\\c\",interface=\"a\\\"b\\\\c\"} 10",
            "margay_eve_lost_total 3",
            "margay_capture_softnet_dropped_total 4",
            "margay_interface_lost_packets_total{interface=\"eth0\",stage=\"card\"} 6",
            "margay_interface_dropped_packets_total{interface=\"eth0\"} 1",
            "margay_app_layer_flows_total{worker=\"W#01-eth0\",interface=\"eth0\",app_proto=\"dns_udp\"} 4",
            "margay_decoder_events_total{worker=\"W#01-eth0\",interface=\"eth0\",event=\"ipv4.trunc_pkt\"} 2",
            "margay_memcap_pressure_ratio{worker=\"W#01-eth0\",interface=\"eth0\"} 0.5",
            "margay_flow_memuse_bytes{worker=\"W#01-eth0\",interface=\"eth0\"} 7000000",
            "margay_worker_cpu_seconds_total{worker=\"W#01-eth0\",interface=\"eth0\"} 1.5",
            "# TYPE margay_flow_active gauge",
            "# TYPE margay_decoder_bytes_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("margay_eve_lost_total")).count(), 1);
        assert!(!text.contains("capture_nic"), "those are of interfaces");
    }

    /// OpenMetrics 1.0: a family's lines together, its type once, names of counters and units, the end.
    #[test]
    fn open_metrics_keep_to_their_grammar() {
        let text = render(&sample(), &shared, Format::OpenMetrics);
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
        let (mut family, mut kind) = (String::new(), String::new());
        let (mut families, mut samples) = (HashSet::new(), HashSet::new());
        for line in text.lines().filter(|l| *l != "# EOF") {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words.as_slice() {
                ["#", "HELP", name, text] => {
                    assert!(families.insert((*name).to_owned()), "{name} is there twice");
                    assert!(!text.is_empty() && !name.ends_with("_total"), "{line}");
                    family = (*name).to_owned();
                }
                ["#", "TYPE", name, k] => {
                    assert_eq!(*name, family);
                    kind = (*k).to_owned();
                }
                ["#", "UNIT", name, unit] => assert!(*name == family && name.ends_with(unit), "{line}"),
                _ => {
                    let (name, value) = line.rsplit_once(' ').unwrap();
                    let bare = name.split('{').next().unwrap();
                    let want = if kind == "counter" { format!("{family}_total") } else { family.clone() };
                    assert_eq!(bare, want, "{line}");
                    assert!(value.parse::<f64>().is_ok() && samples.insert(name.to_owned()), "{line}");
                }
            }
        }
        assert!(families.len() > 20);
    }

    /// Debian's promtool has no fault to find.
    #[test]
    fn promtool_finds_no_fault() {
        check(&render(&sample(), &shared, Format::Text));
    }

    /// Has promtool check metrics. If it is not installed, records that the check did not run.
    pub(crate) fn check(text: &str) {
        let started = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut promtool) = started else {
            margay_testing::not_run("there is no promtool (Debian's package prometheus)");
            return;
        };
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = promtool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.is_empty(), "{said}");
    }
}
