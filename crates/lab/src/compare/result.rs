//! Results: the numbers of each run, and summaries of several runs.

use std::path::Path;

use super::plan::{Key, Metrics, State};
use super::{Comparison, EACH, Point, PointKind, stage_columns};
use crate::problem::{Outcome, Problem};
use crate::quiet::Company;
use crate::run::Capture;
use crate::run::live::Trial;
use crate::run::offline::Offline;
use crate::stages::Stage;
use crate::stats::{self, Interval, Summary};
use crate::throughput::Bound;
use crate::units::short;

fn metrics<const N: usize>(pairs: [(&str, f64); N]) -> Metrics {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds other activity on the machine during a run.
fn with_company(mut all: Metrics, company: &Company) -> Metrics {
    all.extend(Company::NAMES.iter().map(|name| (*name).to_owned()).zip(company.values()));
    all
}

/// The same, from recorded numbers.
fn company(metrics: &Metrics) -> Company {
    let [steal, foreign, waiting] = Company::NAMES.map(|name| metrics.get(name).copied().unwrap_or(f64::NAN));
    Company { steal, foreign, waiting }
}

/// The results of a run over a capture.
pub(super) fn of_offline(run: &Offline, capture: &Capture) -> Metrics {
    let all = metrics([
        ("processing_s", run.processing),
        ("start_s", run.start),
        ("cpu_s", run.busy),
        ("peak_bytes", run.peak),
        ("packets_per_s", run.rate),
        ("bits_per_s", run.rate * capture.bits_a_packet()),
        ("decoded", run.counts.decoded),
        ("gaps", run.counts.gaps),
        ("alerts", run.counts.alerts),
    ]);
    with_company(all, &run.company)
}

/// The results of a run at a rate.
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
        ("host_cores", trial.host),
        ("peak_bytes", trial.peak),
    ]);
    all.extend(stage_columns().map(|(stage, name)| (name, trial.losses.at(stage))));
    all.extend(of_each(trial));
    all = with_company(all, &trial.company);
    if let Some(latency) = trial.latency {
        all.extend(LATENCIES.into_iter().map(str::to_owned).zip([
            latency.p50,
            latency.p99,
            latency.p999,
            latency.lost,
        ]));
    }
    all
}

/// The results of each of several interfaces. What an engine does not count by interface is left out.
fn of_each(trial: &Trial) -> Metrics {
    let mut all = Metrics::new();
    for (number, (counted, losses)) in (1..).zip(&trial.each) {
        let engine = counted.engine;
        let loss = if engine.decoded.is_finite() { losses.total() } else { f64::NAN };
        let values = [counted.sent.packets, engine.received, engine.dropped, engine.decoded, loss];
        let known = EACH.iter().zip(values).filter(|(_, value)| value.is_finite());
        all.extend(known.map(|(name, value)| (format!("{name}_{number}"), value)));
    }
    all
}

/// Latencies of a probe flow through an inline engine: the 50th, 99th and 99.9th percentiles in seconds, and the share
/// of lost packets.
const LATENCIES: [&str; 4] = ["latency_p50_s", "latency_p99_s", "latency_p999_s", "latency_lost"];

/// Writes the trials of a search, one on each line.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write_trials(trials: &[Trial], path: &Path) -> Outcome<()> {
    let mut text = String::new();
    for (number, trial) in trials.iter().enumerate() {
        let metrics = of_trial(trial);
        if number == 0 {
            text += &format!("{}\n", metrics.keys().cloned().collect::<Vec<_>>().join(","));
        }
        let values = metrics.values().map(|value| if value.is_finite() { value.to_string() } else { String::new() });
        text += &format!("{}\n", values.collect::<Vec<_>>().join(","));
    }
    std::fs::write(path, text).map_err(|error| Problem::file("write", path, error))
}

fn sent_a_second(trial: &Trial) -> f64 {
    trial.counted.sent.packets / trial.counted.sent.seconds
}

/// The results of a search.
pub(super) fn of_search(bound: &Bound, trials: &[Trial]) -> Metrics {
    let mut all = metrics([
        ("bound_pps", bound.rate.value),
        ("trials", trials.len() as f64),
        // 1 for the engine's bound, 0 if the sender or the requested range ended the search.
        ("bound_is_engines", if bound.limit() == crate::throughput::Limit::Engine { 1.0 } else { 0.0 }),
        ("peak_bytes", trials.iter().map(|trial| trial.peak).fold(f64::NAN, f64::max)),
        // The highest rate sent in any trial: the sender's limit is at least this.
        ("sender_pps", trials.iter().map(sent_a_second).fold(f64::NAN, f64::max)),
    ]);
    if let Some(worst) = trials.iter().map(|trial| trial.company).reduce(|a, b| a.worse(&b)) {
        all = with_company(all, &worst);
    }
    // The trial at the bound.
    if let Some(at) = trials.iter().rev().find(|trial| trial.rate == bound.rate.value) {
        all.insert("cpu_cores".to_owned(), at.busy);
        all.insert("sent_bits_per_s".to_owned(), at.counted.sent.bytes * 8.0 / at.counted.sent.seconds);
        all.insert("late_p99_s".to_owned(), at.counted.sent.late);
        all.extend(of_each(at));
    }
    // Losses above the bound.
    let above = trials.iter().filter(|trial| trial.rate > bound.rate.value);
    if let Some(lowest) = above.min_by(|a, b| a.rate.total_cmp(&b.rate)) {
        all.extend(stage_columns().map(|(stage, name)| (name, lowest.losses.at(stage))));
    }
    all
}

/// Formats latencies at 50, 99 and 99.9 %, given in seconds.
fn late(seconds: [f64; 3]) -> String {
    let [p50, p99, p999] = seconds.map(|s| s * 1e6);
    format!("{p50:.1}, {p99:.1}, {p999:.1} µs (50, 99, 99.9 %)")
}

/// Summarises a run in a few words.
pub(super) fn brief(point: &Point, metrics: &Metrics) -> String {
    let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    let said = match point.kind {
        PointKind::Offline { .. } => {
            format!("{:.3} s, {:.0} MiB", get("processing_s"), get("peak_bytes") / 1_048_576.0)
        }
        PointKind::Search { .. } => {
            let limit =
                if get("bound_is_engines") == 1.0 { "" } else { ", which is the sender's bound or what was asked for" };
            format!("{} packets/s ({:.0} trials){limit}", short(get("bound_pps")), get("trials"))
        }
        _ => {
            let latency = match get(LATENCIES[0]).is_finite() {
                true => format!(", late by {}", late([0, 1, 2].map(|n| get(LATENCIES[n])))),
                false => String::new(),
            };
            let each: Vec<String> = (1..=point.interfaces)
                .filter_map(|number| Some(format!("{:.2} %", metrics.get(&format!("loss_{number}"))? * 100.0)))
                .collect();
            let each = if each.is_empty() { String::new() } else { format!(" (by interface {})", each.join(", ")) };
            format!("lost {:.2} %{each}, {:.2} cores{latency}", get("loss") * 100.0, get("cpu_cores"))
        }
    };
    said + &company(metrics).mark()
}

/// The main metric of a point.
pub(super) fn main_metric(point: &Point) -> &'static str {
    match point.kind {
        PointKind::Offline { .. } => "processing_s",
        PointKind::Search { .. } => "bound_pps",
        _ => "taken_per_s",
    }
}

impl Comparison {
    /// One metric of an engine at a point, from all finished runs, with their repeats.
    fn values(&self, state: &State, point: usize, engine: usize, name: &str) -> Vec<(u32, f64)> {
        let of = |(key, metrics): &(Key, Metrics)| {
            let fits = key.point == point && key.engine == engine && key.repeat <= self.experiment.repeats;
            Some((key.repeat, *metrics.get(name)?)).filter(|_| fits)
        };
        state.done.iter().filter_map(of).collect()
    }

    /// The metric's median and spread; `None` without a finished run.
    pub(super) fn summary(&self, state: &State, point: usize, engine: usize, name: &str) -> Option<Summary> {
        let values: Vec<f64> = self.values(state, point, engine, name).into_iter().map(|(_, value)| value).collect();
        Summary::of(&values)
    }

    /// Whether the median rate sent to an engine stayed below the point's rate.
    pub(super) fn unreached(&self, state: &State, point: usize, engine: usize) -> bool {
        let short = self.summary(state, point, engine, "lost_sender");
        short.is_some_and(|summary| summary.median > crate::throughput::SHORT)
    }

    /// How many runs behind a result were disturbed too much for publication, and how many there are. The result is an
    /// engine's, or a comparison with the baseline, at one point.
    pub(super) fn disturbed(&self, state: &State, point: usize, engines: &[usize]) -> (usize, usize) {
        let of = |(key, _): &&(Key, Metrics)| {
            key.point == point && engines.contains(&key.engine) && key.repeat <= self.experiment.repeats
        };
        let runs: Vec<&(Key, Metrics)> = state.done.iter().filter(of).collect();
        (runs.iter().filter(|(_, metrics)| company(metrics).disturbs()).count(), runs.len())
    }

    /// Whether the sender, or the requested range, ended a search for an engine's bound.
    pub(super) fn limited(&self, state: &State, point: usize, engine: usize) -> bool {
        self.all(state, point, engine, "bound_is_engines").iter().any(|engines| *engines != 1.0)
    }

    /// The note for a comparison that is too disturbed for publication; `None` for others.
    pub(super) fn busy_note(&self, state: &State, point: usize, engine: usize) -> Option<String> {
        match self.disturbed(state, point, &[engine, self.experiment.baseline]) {
            (0, _) => None,
            (disturbed, runs) => {
                Some(format!("not to be published: the machine was busy in {disturbed} of {runs} runs"))
            }
        }
    }

    /// The values without their repeats.
    pub(super) fn all(&self, state: &State, point: usize, engine: usize, name: &str) -> Vec<f64> {
        self.values(state, point, engine, name).into_iter().map(|(_, value)| value).collect()
    }

    /// The ratio of an engine to the baseline at a point, paired by repeat.
    pub(super) fn ratio(&self, state: &State, point: usize, engine: usize, name: &str) -> Option<Interval> {
        self.ratio_of(state, (point, engine), (point, self.experiment.baseline), name)
    }

    /// The ratio of an engine at a point to another, or to itself at another point, paired by repeat.
    pub(super) fn ratio_of(
        &self,
        state: &State,
        one: (usize, usize),
        other: (usize, usize),
        name: &str,
    ) -> Option<Interval> {
        let base = self.values(state, other.0, other.1, name);
        let pairs: Vec<(f64, f64)> = self
            .values(state, one.0, one.1, name)
            .into_iter()
            .filter_map(|(repeat, value)| {
                let (_, other) = base.iter().find(|(other, _)| *other == repeat)?;
                Some((value, *other))
            })
            .collect();
        stats::paired_ratio(&pairs)
    }

    /// Latencies of each engine at a point, and their ratios to the baseline's; empty if none were measured.
    pub(super) fn latencies(&self, state: &State, at: usize) -> Vec<String> {
        let mut of_point = Vec::new();
        if let Some(point) = self.points.get(at) {
            for (engine, contract) in self.experiment.engines.iter().enumerate() {
                let [Some(p50), Some(p99), Some(p999)] =
                    [0, 1, 2].map(|n| Some(self.summary(state, at, engine, LATENCIES[n])?.median))
                else {
                    continue;
                };
                let mut line = format!("  {:<12} {}", contract.name, late([p50, p99, p999]));
                let ratio =
                    |n: usize| self.ratio(state, at, engine, LATENCIES[n]).map_or(f64::NAN, |ratio| ratio.value);
                if engine != self.experiment.baseline {
                    line += &format!("; {:.2}, {:.2}, {:.2} times the baseline's", ratio(0), ratio(1), ratio(2));
                }
                of_point.push(line);
            }
            if !of_point.is_empty() {
                of_point.insert(0, format!("{}: {}: latency", self.experiment.loads[point.load].name, point.label));
            }
        }
        of_point
    }

    /// The results of searches, and latencies, in a few lines for a terminal; empty if there are none.
    pub(super) fn bounds(&self, state: &State) -> Vec<String> {
        let mut lines: Vec<String> = (0..self.points.len()).flat_map(|at| self.latencies(state, at)).collect();
        let searches =
            self.points.iter().enumerate().filter(|(_, point)| matches!(point.kind, PointKind::Search { .. }));
        for (at, point) in searches {
            lines.push(format!("{}: {}", self.experiment.loads[point.load].name, point.label));
            let sender = |engine| self.summary(state, at, engine, "sender_pps").map_or(f64::NAN, |sent| sent.most);
            for (engine, contract) in self.experiment.engines.iter().enumerate() {
                let get = |name: &str| self.summary(state, at, engine, name);
                let Some(bound) = get("bound_pps") else { continue };
                let bits = get("sent_bits_per_s").map_or_else(String::new, |b| format!(", {}bit/s", short(b.median)));
                let whose =
                    match self.all(state, at, engine, "bound_is_engines").iter().filter(|one| **one != 1.0).count() {
                        0 => format!("the engine's own: up to {} were sent", short(sender(engine))),
                        others => {
                            format!("of the SENDER or what was asked for in {others} of {} searches", bound.count)
                        }
                    };
                let (median, least, most) = (short(bound.median), short(bound.least), short(bound.most));
                let cores = get("cpu_cores").map_or_else(String::new, |c| format!("; {:.2} cores busy", c.median));
                lines.push(format!(
                    "  {:<12} {median} packets/s ({least} to {most}; {} searches){bits}{cores}; {whose}",
                    contract.name, bound.count
                ));
                if engine != self.experiment.baseline
                    && let Some(ratio) = self.ratio(state, at, engine, "bound_pps")
                {
                    let baseline = &self.experiment.engines[self.experiment.baseline].name;
                    let interval = match ratio.low.is_finite() {
                        true => format!(" (95 % interval {:.2} to {:.2})", ratio.low, ratio.high),
                        false => String::new(),
                    };
                    let busy = self.busy_note(state, at, engine).map_or_else(String::new, |note| format!("; {note}"));
                    lines.push(format!("  {:<12} {:.2} times {baseline}{interval}{busy}", contract.name, ratio.value));
                }
            }
        }
        lines
    }

    /// The repeat whose main metric is nearest to the median. The plots over time show it.
    pub(super) fn typical(&self, state: &State, point: usize, engine: usize) -> Option<Key> {
        let values = self.values(state, point, engine, main_metric(&self.points[point]));
        let median = stats::median(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        let near = |(_, value): &&(u32, f64)| (value - median).abs();
        let (repeat, _) = values.iter().min_by(|a, b| near(a).total_cmp(&near(b)))?;
        Some(Key { repeat: *repeat, point, engine })
    }

    /// The stages with the largest median losses at a point, such as `ring 3.1 %`; empty without losses.
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
