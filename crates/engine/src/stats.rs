//! Statistics: every crate's counters under Suricata's names, as events and in `stats.log`.

use std::time::{Duration, Instant};

use margay_config::{Config, ConfigError};
use margay_output::event::{Counter, EngineStats, StatsEvent};

use crate::settings::{self, flag, number};
use crate::worker::Worker;

/// Writes statistics at their interval and at the end.
pub(crate) struct Reporter {
    enabled: bool,
    interval: Duration,
    decoder_events: bool,
    decoder_prefix: String,
    stream_events: bool,
    progress: bool,
    started: Instant,
    next: Instant,
    /// When the outputs are next told that time goes by.
    second: Instant,
    names: Vec<(String, u64)>,
    last: Vec<(String, u64)>,
    engine: EngineStats,
}

impl Reporter {
    /// Reads `stats:`.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub(crate) fn new(config: &Config, engine: EngineStats, progress: bool) -> Result<Reporter, ConfigError> {
        let interval = Duration::from_secs(number(config, "stats.interval", 8u64)?.max(1));
        let now = Instant::now();
        Ok(Reporter {
            enabled: flag(config, "stats.enabled", true)?,
            interval,
            decoder_events: flag(config, "stats.decoder-events", true)?,
            decoder_prefix: config.get("stats.decoder-events-prefix").unwrap_or("decoder.event").to_owned(),
            stream_events: flag(config, "stats.stream-events", false)?,
            progress,
            started: now,
            next: now + interval,
            second: now,
            names: Vec::new(),
            last: Vec::new(),
            engine,
        })
    }

    /// Whether progress is shown: on a terminal always, in logs with `-v`.
    pub(crate) fn show_progress(&self, terminal: bool) -> bool {
        terminal || self.progress
    }

    /// Writes a report where it is time to.
    pub(crate) fn tick(&mut self, now: Instant, worker: &mut Worker) {
        if now >= self.second {
            self.second = now + Duration::from_secs(1);
            worker.lane.rest.outputs.tick(settings::now());
        }
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        self.write(worker);
        worker.lane.rest.outputs.flush();
    }

    /// Writes a report now.
    pub(crate) fn write(&mut self, worker: &mut Worker) {
        if !self.enabled || !worker.lane.rest.outputs.wants(margay_output::event::EventType::Stats) {
            return;
        }
        self.collect(worker);
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
        let file = worker.lane.rest.file.clone();
        worker.lane.rest.outputs.stats(&StatsEvent {
            time: settings::now(),
            uptime: self.started.elapsed().as_secs(),
            totals: &counters,
            threads: &[("W#01", &counters)],
            engines: &[self.engine],
            pcap_filename: file.as_deref(),
        });
        drop(counters);
        std::mem::swap(&mut self.names, &mut self.last);
    }

    /// Gathers all counters in the order they are shown.
    fn collect(&mut self, worker: &mut Worker) {
        let lost = worker.lane.rest.outputs.lost();
        let names = &mut self.names;
        names.clear();
        let (events, prefix, stream_events) = (self.decoder_events, &self.decoder_prefix, self.stream_events);
        let mut add = |name: &str, value: u64| names.push((name.to_owned(), value));
        worker.decoder.counters.for_each(&mut |name, value| match name.strip_prefix("decoder.event.") {
            Some(_) if !events => {}
            Some(rest) => add(&format!("{prefix}.{rest}"), value),
            None => add(name, value),
        });
        let rest = &worker.lane.rest;
        rest.stream.counters.for_each(&mut |name, value| {
            if stream_events || !name.starts_with("stream.") {
                add(name, value);
            }
        });
        worker.lane.flows.counters.for_each(&mut add);
        if rest.ips {
            rest.counters.ips.for_each(&mut add);
        }
        rest.counters.policies.for_each(&worker.lane.policies, &mut add);
        if let Some((_, state)) = &rest.detect {
            state.counters().for_each(&mut add);
        } else {
            for name in ["detect.alert", "detect.alert_queue_overflow", "detect.alerts_suppressed"] {
                add(name, 0);
            }
        }
        if rest.outputs.wants_pcap() {
            let c = rest.outputs.pcap_counters();
            add("pcap_log.written", c.written);
            add("pcap_log.filtered_bpf", c.filtered_bpf);
            add("pcap_log.lost", c.lost);
        }
        add("eve.lost", lost);
    }
}
