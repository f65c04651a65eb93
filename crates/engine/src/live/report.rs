//! Statistics of all workers together, gathered by the manager thread.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use margay_config::Config;
use margay_output::Outputs;
use margay_output::event::{Counter, EventType, StatsEvent};

use super::losses::{Host, Row};
use super::thread::Final;
use crate::Failed;
use crate::control::Control;
use crate::settings::now;
use crate::stats::StatsSettings;
use crate::stats::{self, shown};
use crate::worker::{End, Occasion};

/// Limit of the time that a report waits for all workers together. A late worker's previous values are shown.
const PATIENCE: Duration = Duration::from_secs(2);

type Counters = Vec<(String, u64)>;

/// A worker's last report.
#[derive(Debug, Clone, Default)]
struct WorkerReport {
    thread: String,
    ends: Vec<End>,
    counters: Counters,
    last: Counters,
}

impl WorkerReport {
    fn place(&self) -> Option<&str> {
        self.ends.first().map(|e| e.interface.as_str())
    }
}

/// Writes statistics at their interval and at the end.
pub(super) struct Report {
    control: Arc<Control>,
    enabled: bool,
    interval: Duration,
    next: Instant,
    outputs: Outputs,
    workers: Vec<WorkerReport>,
    totals: Counters,
    last: Counters,
    /// The interfaces, and their counters at the start.
    interfaces: Vec<(String, Host)>,
    last_rows: Vec<Counters>,
    /// Their counters at the end.
    ended: Option<Vec<Host>>,
}

impl Report {
    /// # Errors
    /// An invalid setting.
    pub(super) fn new(
        config: &Config,
        control: &Arc<Control>,
        outputs: Outputs,
        interfaces: Vec<(String, Host)>,
    ) -> Result<Report, Failed> {
        let StatsSettings { enabled, interval, .. } = StatsSettings::of(config)?;
        Ok(Report {
            control: Arc::clone(control),
            enabled,
            interval,
            next: Instant::now() + interval,
            outputs,
            workers: Vec::new(),
            totals: Vec::new(),
            last: Vec::new(),
            last_rows: vec![Vec::new(); interfaces.len()],
            ended: None,
            interfaces,
        })
    }

    /// Writes a report if one is due.
    pub(super) fn tick(&mut self, control: &Control) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.interval;
        margay_packet::fault::point("stats");
        if !self.enabled {
            return;
        }
        self.gather(control);
        if !self.workers.is_empty() {
            self.write();
            self.scripts(control);
        }
        self.outputs.flush();
    }

    /// Requests reports from all workers at once, and waits for them together.
    fn gather(&mut self, control: &Control) {
        let (send, receive) = mpsc::channel();
        let mut asked = 0;
        for post in control.workers() {
            let send = send.clone();
            let order = post.send(Box::new(move |w, r| {
                let counters = r.counters(w);
                let Some(c) = &w.pipeline.stages.captured else { return };
                // The report may have stopped waiting.
                let _ = send.send(WorkerReport {
                    thread: c.thread.clone(),
                    ends: c.ends.clone(),
                    counters,
                    last: Vec::new(),
                });
            }));
            asked += usize::from(order.is_ok());
        }
        drop(send);
        let end = Instant::now() + PATIENCE;
        for _ in 0..asked {
            let Ok(report) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
            self.take(report);
        }
    }

    fn take(&mut self, mut report: WorkerReport) {
        match self.workers.iter_mut().find(|w| w.thread == report.thread) {
            Some(w) => {
                report.last = std::mem::take(&mut w.counters);
                *w = report;
            }
            None => {
                self.workers.push(report);
                self.workers.sort_by(|a, b| (a.place(), &a.thread).cmp(&(b.place(), &b.thread)));
            }
        }
    }

    fn write(&mut self) {
        std::mem::swap(&mut self.totals, &mut self.last);
        self.totals.clear();
        for w in &self.workers {
            stats::add(&mut self.totals, w.counters.clone());
        }
        self.totals.extend(stats::of_engine(&self.outputs.counters()));
        let rows = self.rows_now();
        let mut by_interface: Vec<Counters> = Vec::new();
        for r in &rows {
            let mut counters = Vec::new();
            r.for_each(&mut |name, value| counters.push((name.to_owned(), value)));
            by_interface.push(counters);
        }
        let of_host = rows.first().map(|r| &r.host);
        let sum = |f: fn(&Host) -> u64| rows.iter().map(|r| f(&r.host)).sum::<u64>();
        // Inserted after the other counters of the capture.
        let at = self.totals.iter().take_while(|t| t.0.starts_with("capture.")).count();
        let host = [
            ("capture.nic.received", sum(|h| h.received)),
            ("capture.nic.lost", sum(|h| h.lost)),
            ("capture.softnet.dropped", of_host.map_or(0, |h| h.softnet)),
            ("capture.softnet.time_squeezed", of_host.map_or(0, |h| h.squeezed)),
            ("capture.engine.lost", rows.iter().map(Row::engine_lost).sum()),
        ];
        self.totals.splice(at..at, host.map(|(n, v)| (n.to_owned(), v)));
        self.totals.push(("watchdog.stuck".to_owned(), self.control.watch.stuck()));
        if !self.outputs.wants(EventType::Stats) {
            return;
        }
        let totals = shown(&self.totals, &self.last);
        let mut threads: Vec<(&str, Vec<Counter<'_>>)> =
            self.workers.iter().map(|w| (w.thread.as_str(), shown(&w.counters, &w.last))).collect();
        for (r, (counters, last)) in rows.iter().zip(by_interface.iter().zip(&self.last_rows)) {
            threads.push((&r.interface, shown(counters, last)));
        }
        let threads: Vec<(&str, &[Counter<'_>])> = threads.iter().map(|(n, c)| (*n, c.as_slice())).collect();
        let engines = self.control.engines().stats();
        self.outputs.stats(&StatsEvent {
            time: now(),
            uptime: self.control.started.elapsed().as_secs(),
            totals: &totals,
            threads: &threads,
            engines: &engines,
            pcap_filename: None,
        });
        self.outputs.end_batch();
        drop(totals);
        self.last_rows = by_interface;
    }

    /// Passes the sums to one worker's scripts.
    fn scripts(&self, control: &Control) {
        let Some(post) = control.workers().into_iter().next() else { return };
        let (totals, last) = (self.totals.clone(), self.last.clone());
        // A worker that no longer takes requests has finished its scripts.
        let _ = post.send(Box::new(move |w, _| {
            if w.pipeline.stages.scripts.wants(Occasion::Stats) {
                w.pipeline.stages.scripts.stats(&shown(&totals, &last));
            }
        }));
    }

    /// The current table.
    fn rows_now(&self) -> Vec<Row> {
        let row = |(n, (name, before)): (usize, &(String, Host))| {
            let now = self.ended.as_ref().and_then(|e| e.get(n)).cloned().unwrap_or_else(|| before.again(name));
            let mut row = Row { interface: name.clone(), host: now.since(before), ..Row::default() };
            for e in self.workers.iter().flat_map(|w| &w.ends).filter(|e| e.interface == *name) {
                row.live.add(&e.live);
                row.decoded += e.decoded;
                row.invalid_checksums += e.invalid_checksums;
            }
            row
        };
        self.interfaces.iter().enumerate().map(row).collect()
    }

    /// Packets are no longer let in: later counts of cards and host do not belong to this run.
    pub(super) fn ended(&mut self) {
        self.ended = Some(self.interfaces.iter().map(|(name, before)| before.again(name)).collect());
    }

    /// The last report, from workers that have ended.
    pub(super) fn last(&mut self, finals: &[Final]) {
        for f in finals {
            self.take(WorkerReport {
                thread: f.thread.clone(),
                ends: f.ends.clone(),
                counters: f.counters.clone(),
                last: Vec::new(),
            });
        }
        if self.enabled && !self.workers.is_empty() {
            self.write();
        }
        self.outputs.finish();
    }

    /// The final table.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.rows_now()
    }
}
