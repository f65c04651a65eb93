//! The simulation's results for a trace, compared with the measured ones.

use super::engine::Way;
use super::simulate::{Load, Machine, Shares, Simulated, simulate};
use super::{Row, SIMULATED, strategies};
use crate::stats::{median, paired_ratio};

/// A simulated run.
pub(crate) struct Point {
    pub(crate) scheduler: &'static str,
    pub(crate) workers: usize,
    pub(crate) simulated: Simulated,
    /// The measured speed-up over one worker.
    pub(crate) measured: Option<f64>,
}

impl Point {
    /// The simulation's relative error; positive if it predicts too much.
    pub(crate) fn error(&self) -> Option<f64> {
        self.measured.map(|m| self.simulated.speedup / m - 1.0)
    }
}

/// The prediction for a trace.
pub(crate) struct Prediction {
    pub(crate) trace: String,
    pub(crate) packets: usize,
    pub(crate) flows: usize,
    /// The largest flow's share of the packets.
    pub(crate) largest: f64,
    /// How one worker's time is spent.
    pub(crate) shares: Shares,
    /// Time of the run that recorded the costs, divided by that of runs without clocks.
    pub(crate) clocked: Option<f64>,
    /// Steps of packets that the processor interrupted for other work.
    pub(crate) interrupted: u64,
    /// The slowdown by other engines side by side: measured, or as given.
    pub(crate) beside: f64,
    /// By scheduler, then by workers.
    pub(crate) points: Vec<Point>,
}

/// Simulates every strategy on a trace. `rows` are the measurements.
pub(super) fn predict(trace: &str, load: Load, rows: &[Row], most: usize, machine: &Machine) -> Prediction {
    let one: Vec<f64> =
        rows.iter().filter(|r| r.way == Way::One).flat_map(|r| r.runs.iter().map(|m| m.seconds)).collect();
    let seconds = median(&one);
    let clocked = (seconds > 0.0).then(|| load.measured as f64 / 1e9 / seconds);
    let load = load.scaled(seconds);
    let mut machine = *machine;
    // Workers lose as much to each other as engines side by side do, because they share memory, caches and processors.
    let mut side_by_side = rows.iter().filter_map(|r| match r.way {
        Way::Beside(n) => paired_ratio(&r.speedup).map(|ratio| n as f64 / ratio.value),
        _ => None,
    });
    if machine.beside == Machine::default().beside
        && let Some(beside) = side_by_side.next_back()
    {
        machine.beside = beside.clamp(0.8, 4.0);
    }
    let mut numbers: Vec<usize> = SIMULATED.into_iter().filter(|n| *n <= most).collect();
    if !numbers.contains(&most) {
        numbers.push(most);
    }
    let measured = |scheduler: &str, workers: usize| {
        let of =
            |r: &&Row| matches!(&r.way, Way::Several { scheduler: s, workers: w } if s == scheduler && *w == workers);
        rows.iter().find(of).and_then(|r| paired_ratio(&r.speedup)).map(|r| r.value)
    };
    let also = rows.iter().map(|r| r.way.workers()).filter(|w| *w <= most);
    numbers.extend(also);
    numbers.sort_unstable();
    numbers.dedup();
    let mut points = Vec::new();
    for (scheduler, strategy) in strategies() {
        for &workers in &numbers {
            points.push(Point {
                scheduler,
                workers,
                simulated: simulate(&load, strategy, workers, &machine),
                measured: measured(scheduler, workers),
            });
        }
    }
    Prediction {
        trace: trace.to_owned(),
        packets: load.packets.len(),
        flows: load.hashes.len(),
        largest: load.largest_flow(),
        shares: load.shares(),
        clocked,
        interrupted: load.interrupted,
        beside: machine.beside,
        points,
    }
}
