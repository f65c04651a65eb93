//! What runs come to: the numbers of each, and what is told of several.

use super::plan::{Key, Metrics, State};
use super::{Comparison, Point, PointKind, stage_columns};
use crate::run::Capture;
use crate::run::live::Trial;
use crate::run::offline::Offline;
use crate::stats::{self, Interval, Summary};
use crate::throughput::{Bound, Stage};
use crate::units::short;

fn metrics<const N: usize>(pairs: [(&str, f64); N]) -> Metrics {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Of a run over a capture.
pub(super) fn of_offline(run: &Offline, capture: &Capture) -> Metrics {
    metrics([
        ("processing_s", run.processing),
        ("start_s", run.start),
        ("cpu_s", run.busy),
        ("peak_bytes", run.peak),
        ("packets_per_s", run.rate),
        ("bits_per_s", run.rate * capture.bits_a_packet()),
        ("decoded", run.counts.decoded),
        ("gaps", run.counts.gaps),
        ("alerts", run.counts.alerts),
    ])
}

/// Of a run at a rate.
pub(super) fn of_trial(trial: &Trial) -> Metrics {
    let (sent, engine) = (trial.counted.sent, trial.counted.engine);
    let mut all = metrics([
        ("rate", trial.rate),
        ("offered", sent.offered),
        ("sent", sent.packets),
        ("sent_bytes", sent.bytes),
        ("sent_s", sent.seconds),
        ("sent_per_s", sent.packets / sent.seconds),
        ("sent_bits_per_s", sent.bytes * 8.0 / sent.seconds),
        ("late_p99_s", sent.late),
        ("received", engine.received),
        ("dropped", engine.dropped),
        ("decoded", engine.decoded),
        ("gaps", engine.gaps),
        ("alerts", engine.alerts),
        ("loss", trial.losses.total()),
        ("taken_per_s", engine.decoded / sent.seconds),
        ("lost_per_s", (sent.packets - engine.decoded).max(0.0) / sent.seconds),
        ("cpu_cores", trial.busy),
        ("peak_bytes", trial.peak),
    ]);
    all.extend(stage_columns().map(|(stage, name)| (name, trial.losses.at(stage))));
    all
}

/// Of a search.
pub(super) fn of_search(bound: &Bound, trials: &[Trial]) -> Metrics {
    let mut all = metrics([
        ("bound_pps", bound.rate.value),
        ("trials", trials.len() as f64),
        // 1 where it is the engine's bound, 0 where the sender or what was asked ended the search.
        ("bound_is_engines", if bound.limit() == crate::throughput::Limit::Engine { 1.0 } else { 0.0 }),
        ("peak_bytes", trials.iter().map(|trial| trial.peak).fold(f64::NAN, f64::max)),
    ]);
    // Where it lost above its bound.
    let above = trials.iter().filter(|trial| trial.rate > bound.rate.value);
    if let Some(lowest) = above.min_by(|a, b| a.rate.total_cmp(&b.rate)) {
        all.extend(stage_columns().map(|(stage, name)| (name, lowest.losses.at(stage))));
    }
    all
}

/// A run in a few words.
pub(super) fn brief(point: &Point, metrics: &Metrics) -> String {
    let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    match point.kind {
        PointKind::Offline { .. } => {
            format!("{:.3} s, {:.0} MiB", get("processing_s"), get("peak_bytes") / 1_048_576.0)
        }
        PointKind::Search { .. } => format!("{} packets/s", short(get("bound_pps"))),
        _ => format!("lost {:.2} %, {:.2} cores", get("loss") * 100.0, get("cpu_cores")),
    }
}

/// The number that a point is about.
pub(super) fn main_metric(point: &Point) -> &'static str {
    match point.kind {
        PointKind::Offline { .. } => "processing_s",
        PointKind::Search { .. } => "bound_pps",
        _ => "taken_per_s",
    }
}

impl Comparison {
    /// A number of all finished runs of an engine at a point, with their repeats.
    fn values(&self, state: &State, point: usize, engine: usize, name: &str) -> Vec<(u32, f64)> {
        let of = |(key, metrics): &(Key, Metrics)| {
            let fits = key.point == point && key.engine == engine && key.repeat <= self.experiment.repeats;
            Some((key.repeat, *metrics.get(name)?)).filter(|_| fits)
        };
        state.done.iter().filter_map(of).collect()
    }

    /// Its median and spread; none where no run is finished.
    pub(super) fn summary(&self, state: &State, point: usize, engine: usize, name: &str) -> Option<Summary> {
        let values: Vec<f64> = self.values(state, point, engine, name).into_iter().map(|(_, value)| value).collect();
        Summary::of(&values)
    }

    /// Whether the sender did not reach a point's rate, by the medians of what it sent for an engine.
    pub(super) fn unreached(&self, state: &State, point: usize, engine: usize) -> bool {
        let short = self.summary(state, point, engine, "lost_sender");
        short.is_some_and(|summary| summary.median > crate::throughput::SHORT)
    }

    /// The values themselves.
    pub(super) fn all(&self, state: &State, point: usize, engine: usize, name: &str) -> Vec<f64> {
        self.values(state, point, engine, name).into_iter().map(|(_, value)| value).collect()
    }

    /// The ratio of an engine to the baseline at a point, repeat by repeat.
    pub(super) fn ratio(&self, state: &State, point: usize, engine: usize, name: &str) -> Option<Interval> {
        let base = self.values(state, point, self.experiment.baseline, name);
        let pairs: Vec<(f64, f64)> = self
            .values(state, point, engine, name)
            .into_iter()
            .filter_map(|(repeat, value)| {
                let (_, other) = base.iter().find(|(other, _)| *other == repeat)?;
                Some((value, *other))
            })
            .collect();
        stats::paired_ratio(&pairs)
    }

    /// The repeat whose run is nearest to the median of the point's main number: what is shown over time.
    pub(super) fn typical(&self, state: &State, point: usize, engine: usize) -> Option<Key> {
        let values = self.values(state, point, engine, main_metric(&self.points[point]));
        let median = stats::median(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        let near = |(_, value): &&(u32, f64)| (value - median).abs();
        let (repeat, _) = values.iter().min_by(|a, b| near(a).total_cmp(&near(b)))?;
        Some(Key { repeat: *repeat, point, engine })
    }

    /// The stage that lost most at a point, by medians, as `ring 3.1 %`; none where nothing is lost.
    pub(super) fn worst_stages(&self, state: &State, point: usize, engine: usize) -> String {
        let mut parts = Vec::new();
        for (stage, name) in stage_columns() {
            let share = self.summary(state, point, engine, &name).map_or(0.0, |summary| summary.median);
            if share >= 5e-5 {
                parts.push(format!("{} {:.2} %", Stage::name(stage), share * 100.0));
            }
        }
        if parts.is_empty() { "nowhere".to_owned() } else { parts.join(", ") }
    }
}
