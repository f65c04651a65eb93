//! Statistics: the counters of every crate, under Suricata's names, as events and in `stats.log`.

use std::time::{Duration, Instant};

use margay_config::{Config, ConfigError};
use margay_output::OutputCounters;
use margay_output::event::{Counter, StatsEvent};

use margay_app::recognise::Mode;
use margay_app::{AppCounters, AppProto, PROTOCOLS};
use margay_detect::DetectCounters;

use crate::exception::{Condition, Policy};
use crate::settings::{self, flag, number};
use crate::worker::{Occasion, Worker};

/// `stats:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatsSettings {
    /// `stats.enabled`
    pub(crate) enabled: bool,
    /// `stats.interval`
    pub(crate) interval: Duration,
    /// `stats.decoder-events`
    decoder_events: bool,
    /// `stats.decoder-events-prefix`
    decoder_prefix: String,
    /// `stats.stream-events`
    stream_events: bool,
    /// `stats.exception-policy.per-app-proto-errors`: whether applications of `app-layer.error-policy` are also counted for
    /// each protocol.
    errors_by_protocol: bool,
}

impl StatsSettings {
    /// Reads `stats:`.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn of(config: &Config) -> Result<StatsSettings, ConfigError> {
        const INTERVAL: &str = "stats.interval";
        let seconds: u32 = number(config, INTERVAL, 8)?;
        if seconds == 0 {
            return Err(settings::wrong(
                config,
                INTERVAL,
                "0 seconds is not an interval; stats.enabled: no turns statistics off",
            ));
        }
        Ok(StatsSettings {
            enabled: flag(config, "stats.enabled", true)?,
            interval: Duration::from_secs(seconds.into()),
            decoder_events: flag(config, "stats.decoder-events", true)?,
            decoder_prefix: config.get("stats.decoder-events-prefix").unwrap_or("decoder.event").to_owned(),
            stream_events: flag(config, "stats.stream-events", false)?,
            errors_by_protocol: flag(config, "stats.exception-policy.per-app-proto-errors", false)?,
        })
    }
}

/// Writes statistics at their interval and at the end.
pub(crate) struct Reporter {
    settings: StatsSettings,
    progress: bool,
    started: Instant,
    next: Instant,
    /// When the outputs next receive the time.
    second: Instant,
    names: Vec<(String, u64)>,
    last: Vec<(String, u64)>,
    /// `memcap.pressure_max`.
    pressure_max: u64,
}

impl Reporter {
    /// Reads `stats:`.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn new(config: &Config, progress: bool) -> Result<Reporter, ConfigError> {
        let settings = StatsSettings::of(config)?;
        let now = Instant::now();
        Ok(Reporter {
            progress,
            started: now,
            next: now + settings.interval,
            settings,
            second: now,
            names: Vec::new(),
            last: Vec::new(),
            pressure_max: 0,
        })
    }

    /// Whether progress is shown: always on a terminal, in logs with `-v`.
    pub(crate) fn show_progress(&self, terminal: bool) -> bool {
        terminal || self.progress
    }

    /// Writes a report if one is due.
    pub(crate) fn tick(&mut self, now: Instant, worker: &mut Worker) {
        self.pressure_max = self.pressure_max.max(pressure(worker));
        if now >= self.second {
            self.second = now + Duration::from_secs(1);
            worker.pipeline.stages.outputs.tick(settings::now());
        }
        if now < self.next {
            return;
        }
        self.next = now + self.settings.interval;
        self.write(worker);
        worker.pipeline.stages.outputs.flush();
    }

    /// Writes a report now.
    pub(crate) fn write(&mut self, worker: &mut Worker) {
        let stages = &worker.pipeline.stages;
        let wanted =
            stages.outputs.wants(margay_output::event::EventType::Stats) || stages.scripts.wants(Occasion::Stats);
        if !self.settings.enabled || !wanted {
            return;
        }
        self.collect(worker);
        let own = self.names.len();
        self.names.extend(of_engine(&worker.pipeline.stages.outputs.counters()));
        let counters: Vec<Counter<'_>> = self
            .names
            .iter()
            .enumerate()
            .map(|(i, (name, value))| Counter {
                name,
                value: i64::try_from(*value).unwrap_or(i64::MAX),
                last: self.last.get(i).map_or(0, |l| i64::try_from(l.1).unwrap_or(i64::MAX)),
            })
            .collect();
        worker.pipeline.stages.scripts.stats(&counters);
        let file = worker.pipeline.stages.file.clone();
        let engines = worker.pipeline.stages.engines.set.stats();
        worker.pipeline.stages.outputs.stats(&StatsEvent {
            time: settings::now(),
            uptime: self.started.elapsed().as_secs(),
            totals: &counters,
            threads: &[("W#01", counters.get(..own).unwrap_or(&counters))],
            engines: &engines,
            pcap_filename: file.as_deref(),
        });
        drop(counters);
        std::mem::swap(&mut self.names, &mut self.last);
    }

    /// The worker's own current counters, without those of the whole engine ([`of_engine`]).
    pub(crate) fn counters(&mut self, worker: &mut Worker) -> Vec<(String, u64)> {
        self.collect(worker);
        std::mem::take(&mut self.names)
    }

    /// Collects all counters in display order.
    fn collect(&mut self, worker: &mut Worker) {
        let pressure = pressure(worker);
        self.pressure_max = self.pressure_max.max(pressure);
        let names = &mut self.names;
        names.clear();
        let StatsSettings { decoder_events: events, decoder_prefix: prefix, stream_events, .. } = &self.settings;
        let (events, stream_events) = (*events, *stream_events);
        let mut add = |name: &str, value: u64| names.push((name.to_owned(), value));
        if let Some(c) = &worker.pipeline.stages.captured {
            c.for_each(&mut add);
            if let Some(wire) = &worker.pipeline.stages.wire {
                let sum = |f: fn(&margay_capture::live::LiveCounters) -> u64| c.ends.iter().map(|e| f(&e.live)).sum();
                wire.for_each(sum(|l| l.answers), sum(|l| l.answer_errors), &mut add);
            }
        }
        if let Some(k) = &worker.pipeline.stages.kernel {
            k.for_each(&mut add);
        }
        worker.decoder.counters.for_each(&mut |name, value| match name.strip_prefix("decoder.event.") {
            Some(_) if !events => {}
            Some(rest) => add(&format!("{prefix}.{rest}"), value),
            None => {
                add(name, value);
                if name == "decoder.max_pkt_size" {
                    let [src, dst] = worker.pipeline.stages.counters.max_macs;
                    add("decoder.max_mac_addrs_src", src);
                    add("decoder.max_mac_addrs_dst", dst);
                }
            }
        });
        let stages = &worker.pipeline.stages;
        stages.stream.counters.for_each(&mut |name, value| {
            if stream_events || !name.starts_with("stream.") {
                add(name, value);
            }
        });
        add("udp.invalid_checksum", stages.counters.udp_invalid_checksum);
        worker.pipeline.flows.counters.for_each(&mut add);
        if stages.ips {
            stages.counters.ips.for_each(&mut add);
        }
        if stages.firewall {
            let discarded = stages.detect.as_ref().map_or(0, |(_, s)| s.discarded_firewall_alerts());
            stages.counters.ips.for_each_firewall(discarded, &mut add);
        }
        stages.counters.policies.for_each(&worker.pipeline.policies, &mut add);
        let states = stages.detect.iter().chain(stages.engines.others());
        if let Some(sum) = states.map(|(_, s)| s.counters()).reduce(DetectCounters::plus) {
            sum.for_each(&mut add);
        } else {
            for name in ["detect.alert", "detect.alert_queue_overflow", "detect.alerts_suppressed"] {
                add(name, 0);
            }
        }
        let [policy, _] = stages.error_policies;
        let policies = &stages.counters.policies;
        let errors = (policy != Policy::Ignore).then(|| ErrorPolicies {
            policy: policy.name(),
            all: policies.of(Condition::AppLayerError, policy),
            by_protocol: self.settings.errors_by_protocol.then(|| policies.errors()),
        });
        app_counters(&stages.app.shared.counters, errors.as_ref(), &mut add);
        add("app_layer.expectations", stages.expected.len() as u64);
        add("app_layer.expectations_refused", stages.expected.refused);
        add("app_layer.frames_dropped", stages.app.shared.frames.refused);
        stages.app.shared.files.for_each_counter(&stages.app.config.files, &mut add);
        add("memcap.pressure", pressure);
        add("memcap.pressure_max", self.pressure_max);
        if stages.outputs.wants_pcap() {
            let c = stages.outputs.pcap_counters();
            add("pcap_log.written", c.written);
            add("pcap_log.filtered_bpf", c.filtered_bpf);
            add("pcap_log.lost", c.lost);
            if stages.outputs.holds_packets() {
                add("pcap_log.not_held", c.not_held);
            }
        }
        if stages.scripts.any() {
            add("lua.output_errors", stages.scripts.errors);
        }
        if stages.scripts.active() {
            add("lua.streams_refused", stages.scripts.refused);
        }
    }
}

/// Counters that the engine has once, however many workers it has. They follow the sums of the workers' counters.
pub(crate) fn of_engine(outputs: &OutputCounters) -> Vec<(String, u64)> {
    let mut all =
        vec![("engine.failed_threads".to_owned(), crate::threads::failed()), ("eve.lost".to_owned(), outputs.lost())];
    if let Some(r) = outputs.remote() {
        let numbers = [
            ("sent", r.sent),
            ("lost", r.lost),
            ("refused", r.refused),
            ("reconnects", r.reconnects),
            ("queued", r.queued),
            ("spooled", r.spooled),
        ];
        all.extend(numbers.map(|(name, value)| (format!("output.remote.{name}"), value)));
    }
    all.extend(outputs.waits().map(|waits| ("eve.waits".to_owned(), waits)));
    all
}

/// Whether a counter is not a sum over the workers.
pub(crate) fn is_most(name: &str) -> bool {
    matches!(name, "decoder.max_pkt_size" | "decoder.max_mac_addrs_src" | "decoder.max_mac_addrs_dst" | "memcap.pressure" | "memcap.pressure_max" | "flow.mgr.rows_maxlen")
        // Values of all workers together, whichever worker reports them.
        || matches!(name, "detect.threshold_memcap" | "detect.threshold_entries" | "detect.threshold_memuse" | "file_store.open_files" | "file_store.open_files_max_hit" | "file_store.fs_errors" | "file_store.files_lost" | "file_store.over_quota" | "file_store.quota_used" | "detect.host_memcap")
}

/// Adds a worker's counters to the sum.
pub(crate) fn add(sum: &mut Vec<(String, u64)>, counters: Vec<(String, u64)>) {
    if sum.is_empty() {
        *sum = counters;
        return;
    }
    for (n, (name, value)) in counters.into_iter().enumerate() {
        // Workers mostly have the same names in the same places.
        let at = match sum.get(n) {
            Some(s) if s.0 == name => Some(n),
            _ => sum.iter().position(|s| s.0 == name),
        };
        match at.and_then(|at| sum.get_mut(at)) {
            Some(s) if is_most(&name) => s.1 = s.1.max(value),
            Some(s) => s.1 += value,
            None => sum.push((name, value)),
        }
    }
    let of = |sum: &[(String, u64)], name: &str| sum.iter().find(|s| s.0 == name).map_or(0, |s| s.1);
    let average = of(sum, "decoder.bytes").checked_div(of(sum, "decoder.pkts")).unwrap_or(0);
    if let Some(s) = sum.iter_mut().find(|s| s.0 == "decoder.avg_pkt_size") {
        s.1 = average;
    }
}

/// Counters in the form of events, with their values in the previous report.
pub(crate) fn shown<'a>(counters: &'a [(String, u64)], last: &[(String, u64)]) -> Vec<Counter<'a>> {
    let before = |n: usize, name: &str| match last.get(n) {
        Some(l) if l.0 == name => l.1,
        _ => last.iter().find(|l| l.0 == name).map_or(0, |l| l.1),
    };
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let one = |(n, (name, value)): (usize, &'a (String, u64))| Counter {
        name,
        value: number(*value),
        last: number(before(n, name)),
    };
    counters.iter().enumerate().map(one).collect()
}

/// The memory pressure of a worker: the largest share of a memory limit that any stage uses, in percent. Stages without a
/// limit do not count.
fn pressure(worker: &Worker) -> u64 {
    memory(worker).into_iter().map(|(_, used, limit)| percent(used, limit)).max().unwrap_or(0)
}

/// A worker's use of its part of each memory limit: the setting, the bytes in use, and the limit; 0 stands for no limit.
pub(crate) fn memory(worker: &Worker) -> [(&'static str, u64, u64); 7] {
    let (flows, stages) = (&worker.pipeline.flows, &worker.pipeline.stages);
    let (stream, limits) = (&stages.stream.counters, stages.stream.config());
    let (app, shared) = (&stages.app.config, &stages.app.shared.counters);
    [
        ("stream.memcap", stream.memuse, limits.memcap),
        ("stream.reassembly.memcap", stream.reassembly_memuse, limits.reassembly_memcap),
        ("flow.memcap", flows.counters.memuse, flows.config().memcap),
        ("defrag.memcap", worker.decoder.counters.defrag_memuse, worker.decoder.config().defrag.memcap as u64),
        ("app-layer.memcap", shared.memory, app.memcap),
        ("app-layer.protocols.http.memcap", shared.http_memory, app.http1.memcap),
        ("app-layer.protocols.ftp.memcap", shared.ftp_memory, app.ftp.memcap),
    ]
}

/// The used share of a limit in percent; 0 without a limit.
fn percent(used: u64, limit: u64) -> u64 {
    used.saturating_mul(100).checked_div(limit).unwrap_or(0)
}

/// How often `app-layer.error-policy` was applied.
pub(crate) struct ErrorPolicies<'a> {
    /// Name of the policy, such as `drop_flow`.
    policy: &'static str,
    /// For all protocols together.
    all: u64,
    /// By transport (TCP, UDP) and protocol, if that is shown.
    by_protocol: Option<&'a [[u64; 64]; 2]>,
}

/// Calls `f` for the counters of the application layer in display order, for each protocol with a parser.
pub(crate) fn app_counters(counters: &AppCounters, errors: Option<&ErrorPolicies<'_>>, f: &mut dyn FnMut(&str, u64)) {
    let at = |list: &[u64; 64], proto: AppProto| list.get(proto as usize).copied().unwrap_or(0);
    let over = |[tcp, udp]: &[[u64; 64]; 2], proto: AppProto, transport: usize| {
        at(if transport == 0 { tcp } else { udp }, proto)
    };
    // TCP first, then UDP. A protocol over both has two names.
    let mut names: Vec<(String, AppProto, usize)> = Vec::new();
    for (transport, number, suffix) in [(0, 6u8, "_tcp"), (1, 17, "_udp")] {
        for p in PROTOCOLS {
            let is_over = |n: u8| {
                p.recognition.patterns.iter().any(|p| p.transport == n)
                    || p.recognition.probes.iter().any(|p| p.transport == n)
            };
            let other = is_over(23 - number);
            // Protocols that Suricata does not know have counters once they are seen. Protocols that Suricata only detects
            // have them once they are parsed.
            let seen = if p.mode == Mode::DetectionOnly { &counters.txs } else { &counters.flows };
            if is_over(number) && (!p.is_own || over(seen, p.proto, transport) > 0) {
                names.push((format!("{}{}", p.proto.name(), if other { suffix } else { "" }), p.proto, transport));
            }
        }
        names.push((format!("failed{suffix}"), AppProto::Failed, transport));
    }
    for (name, proto, transport) in &names {
        f(&format!("app_layer.flow.{name}"), over(&counters.flows, *proto, *transport));
    }
    let parsed = || names.iter().filter(|n| n.1 != AppProto::Failed);
    for (name, proto, transport) in parsed() {
        f(&format!("app_layer.tx.{name}"), over(&counters.txs, *proto, *transport));
    }
    for (name, proto, transport) in parsed() {
        // Only a stream has gaps.
        if *transport == 0 {
            f(&format!("app_layer.error.{name}.gap"), at(&counters.gaps, *proto));
        }
        f(&format!("app_layer.error.{name}.alloc"), over(&counters.alloc, *proto, *transport));
        f(&format!("app_layer.error.{name}.parser"), over(&counters.failed, *proto, *transport));
        f(&format!("app_layer.error.{name}.internal"), over(&counters.internal, *proto, *transport));
        if let Some(ErrorPolicies { policy, by_protocol: Some(errors), .. }) = errors {
            f(&format!("app_layer.error.{name}.exception_policy.{policy}"), over(errors, *proto, *transport));
        }
    }
    f("app_layer.error.failed_tcp.gap", at(&counters.gaps, AppProto::Failed));
    if let Some(e) = errors {
        f(&format!("app_layer.error.exception_policy.{}", e.policy), e.all);
    }
    f("app_layer.memuse", counters.memory);
    f("app_layer.memcap", counters.memcap);
    f("app_layer.tx_limit", counters.tx_limit.iter().sum());
    f("http.memuse", counters.http_memory);
    f("http.memcap", counters.http_memcap);
    f("http.arguments_limit", counters.http_arguments);
    f("ftp.memuse", counters.ftp_memory);
    f("ftp.memcap", counters.ftp_memcap);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_limits() {
        assert_eq!(
            [(1, 0), (0, 5), (1, 3), (7, 7), (u64::MAX, 1)].map(|(u, l)| percent(u, l)),
            [0, 0, 33, 100, u64::MAX]
        );
    }

    #[test]
    fn workers_are_added_up() {
        let of = |list: &[(&str, u64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Vec<_>>();
        let mut sum = Vec::new();
        let names =
            ["decoder.pkts", "decoder.bytes", "decoder.max_pkt_size", "decoder.avg_pkt_size", "file_store.fs_errors"];
        add(&mut sum, of(&[(names[0], 10), (names[1], 1000), (names[2], 60), (names[3], 100), (names[4], 3)]));
        // A worker with an additional counter.
        let more = [("capture.x", 1), (names[0], 30), (names[1], 600), (names[2], 70), (names[3], 20), (names[4], 3)];
        add(&mut sum, of(&more));
        let want = [(names[0], 40), (names[1], 1600), (names[2], 70), (names[3], 40), (names[4], 3), ("capture.x", 1)];
        assert_eq!(sum, of(&want));
    }

    #[test]
    fn counters_of_protocols() {
        let mut c = AppCounters::default();
        c.flows[0][AppProto::Http1 as usize] = 3;
        c.flows[1][AppProto::Failed as usize] = 2;
        c.txs[0][AppProto::Http1 as usize] = 7;
        c.txs[1][AppProto::Dns as usize] = 6;
        c.gaps[AppProto::Http1 as usize] = 1;
        c.failed[0][AppProto::Http1 as usize] = 4;
        c.internal[0][AppProto::Http1 as usize] = 1;
        c.alloc[0][AppProto::Http1 as usize] = 2;
        (c.memory, c.memcap) = (9, 8);
        (c.tx_limit[AppProto::Ftp as usize], c.tx_limit[AppProto::Smb as usize]) = (3, 4);
        c.http_memcap = 5;
        c.http_arguments = 6;
        let mut seen = Vec::new();
        let mut by_protocol = [[0; 64]; 2];
        by_protocol[0][AppProto::Http1 as usize] = 4;
        let errors = ErrorPolicies { policy: "drop_flow", all: 5, by_protocol: Some(&by_protocol) };
        app_counters(&c, Some(&errors), &mut |name, value| seen.push((name.to_owned(), value)));
        let at = |name: &str| seen.iter().position(|s| s.0 == name).unwrap_or_else(|| panic!("no {name}"));
        for (name, value) in [
            ("app_layer.flow.http", 3),
            ("app_layer.flow.failed_tcp", 0),
            ("app_layer.flow.failed_udp", 2),
            ("app_layer.tx.http", 7),
            ("app_layer.tx.dns_tcp", 0),
            ("app_layer.tx.dns_udp", 6),
            ("app_layer.error.http.gap", 1),
            ("app_layer.error.http.alloc", 2),
            ("app_layer.error.http.parser", 4),
            ("app_layer.error.http.internal", 1),
            ("app_layer.error.http.exception_policy.drop_flow", 4),
            ("app_layer.error.dns_udp.exception_policy.drop_flow", 0),
            ("app_layer.error.exception_policy.drop_flow", 5),
            ("app_layer.error.failed_tcp.gap", 0),
            ("app_layer.memuse", 9),
            ("app_layer.memcap", 8),
            ("app_layer.tx_limit", 7),
            ("http.memuse", 0),
            ("http.memcap", 5),
            ("http.arguments_limit", 6),
        ] {
            assert_eq!(seen[at(name)].1, value, "{name}");
        }
        assert!(at("app_layer.flow.http") < at("app_layer.flow.failed_tcp"));
        assert!(at("app_layer.error.http.gap") < at("app_layer.error.http.parser"));
        let mut names: Vec<&String> = seen.iter().map(|s| &s.0).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), seen.len(), "a name is there twice");
        let mut plain = Vec::new();
        app_counters(&c, None, &mut |name, _| plain.push(name.to_owned()));
        assert!(plain.iter().all(|name| !name.contains("exception_policy")), "a policy that ignores counts nothing");
    }
}
