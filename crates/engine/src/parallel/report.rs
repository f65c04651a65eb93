//! Statistics of all workers together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_config::{Config, ConfigError};
use margay_output::Outputs;
use margay_output::event::{Counter, EventType, StatsEvent};

use super::feeder::FeedCounters;
use super::seat::Final;
use crate::control::Control;
use crate::settings::now;
use crate::stats;
use crate::stats::StatsSettings;
use crate::worker::Occasion;

type Counters = Vec<(String, u64)>;

/// Writes statistics at their interval and at the end.
pub(super) struct Report {
    control: Arc<Control>,
    enabled: bool,
    interval: Duration,
    next: Instant,
    outputs: Outputs,
    totals: Counters,
    last: Counters,
    workers: Vec<(Counters, Counters)>,
}

impl Report {
    /// # Errors
    /// A value that cannot be read.
    pub(super) fn new(config: &Config, control: &Arc<Control>, outputs: Outputs) -> Result<Report, ConfigError> {
        let StatsSettings { enabled, interval, .. } = StatsSettings::of(config)?;
        Ok(Report {
            control: Arc::clone(control),
            enabled,
            interval,
            next: Instant::now() + interval,
            outputs,
            totals: Vec::new(),
            last: Vec::new(),
            workers: Vec::new(),
        })
    }

    /// Lines that could not be written, once everything is.
    pub(super) fn lost(&mut self) -> u64 {
        self.outputs.finish();
        self.outputs.counters().lost()
    }

    /// Writes a report where it is time to.
    pub(super) fn tick(&mut self, file: Option<&str>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.interval;
        margay_packet::fault::point("stats");
        // One that is late is shown with the next report.
        if self.enabled
            && let Ok(told) = self.control.ask(|w, r| r.counters(w))
        {
            self.write(told, &FeedCounters::default(), file);
        }
        self.outputs.flush();
    }

    /// The last report, of workers that have ended.
    pub(super) fn last(&mut self, finals: &[Final], feed: &FeedCounters) {
        if self.enabled && !finals.is_empty() {
            self.write(finals.iter().map(|f| f.counters.clone()).collect(), feed, None);
        }
        self.outputs.finish();
    }

    fn write(&mut self, told: Vec<Counters>, feed: &FeedCounters, file: Option<&str>) {
        self.last = std::mem::take(&mut self.totals);
        self.workers.resize_with(told.len(), Default::default);
        for (w, counters) in self.workers.iter_mut().zip(told) {
            stats::add(&mut self.totals, counters.clone());
            w.1 = std::mem::replace(&mut w.0, counters);
        }
        self.totals.extend(stats::of_engine(&self.outputs.counters()));
        if feed.turns != 0 {
            for (name, value) in [
                ("autofp.turns", feed.turns),
                ("autofp.stalls", feed.stalls),
                ("autofp.held", feed.held),
                ("autofp.assigned", feed.assigned),
                ("autofp.unplaced", feed.unplaced),
                ("autofp.moves", feed.moves),
                ("autofp.waits", feed.waits),
                ("autofp.waited_usecs", u64::try_from(feed.waited.as_micros()).unwrap_or(u64::MAX)),
                ("autofp.searched_ahead", feed.searched_ahead),
                ("autofp.taken_over", feed.taken_over),
            ] {
                self.totals.push((name.to_owned(), value));
            }
        }
        let totals = stats::shown(&self.totals, &self.last);
        if self.outputs.wants(EventType::Stats) {
            let threads: Vec<(String, Vec<Counter<'_>>)> = self
                .workers
                .iter()
                .enumerate()
                .map(|(n, (counters, last))| (format!("W#{:02}", n + 1), stats::shown(counters, last)))
                .collect();
            let threads: Vec<(&str, &[Counter<'_>])> =
                threads.iter().map(|(n, c)| (n.as_str(), c.as_slice())).collect();
            let engines = self.control.engines().stats();
            self.outputs.stats(&StatsEvent {
                time: now(),
                uptime: self.control.started.elapsed().as_secs(),
                totals: &totals,
                threads: &threads,
                engines: &engines,
                pcap_filename: file,
            });
            self.outputs.end_batch();
        }
        drop(totals);
        self.scripts();
    }

    /// Hands the sums to the scripts of one worker.
    fn scripts(&self) {
        let Some(post) = self.control.workers().into_iter().next() else { return };
        let (totals, last) = (self.totals.clone(), self.last.clone());
        // A worker that takes no orders has no scripts to call any more.
        let _ = post.send(Box::new(move |w, _| {
            if w.lane.rest.scripts.wants(Occasion::Stats) {
                w.lane.rest.scripts.stats(&stats::shown(&totals, &last));
            }
        }));
    }
}
