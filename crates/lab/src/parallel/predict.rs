//! What the simulation says of a trace, beside what was measured.

use super::engine::Way;
use super::simulate::{Load, Machine, Shares, Simulated, simulate};
use super::{Row, SIMULATED, strategies};
use crate::stats::{median, paired_ratio};

/// A simulated run.
pub(crate) struct Point {
    pub(crate) scheduler: &'static str,
    pub(crate) workers: usize,
    pub(crate) simulated: Simulated,
    /// What was measured there: times as fast as one worker.
    pub(crate) measured: Option<f64>,
}

impl Point {
    /// By how much the simulation is above what was measured, as a part of that.
    pub(crate) fn error(&self) -> Option<f64> {
        self.measured.map(|m| self.simulated.speedup / m - 1.0)
    }
}

/// A trace.
pub(crate) struct Prediction {
    pub(crate) trace: String,
    pub(crate) packets: usize,
    pub(crate) flows: usize,
    /// The part of the packets that the largest flow has.
    pub(crate) largest: f64,
    /// Where one worker's time goes.
    pub(crate) shares: Shares,
    /// The time of the run that costs were taken in, over that of runs without clocks.
    pub(crate) clocked: Option<f64>,
    /// Steps of packets in which the processor did something else.
    pub(crate) interrupted: u64,
    /// How many times as long work takes with another engine beside it: measured, or as was said.
    pub(crate) beside: f64,
    /// By scheduler, then by workers.
    pub(crate) points: Vec<Point>,
}

/// Simulates every strategy on a trace, of which `rows` were measured.
pub(super) fn predict(trace: &str, load: Load, rows: &[Row], most: usize, machine: &Machine) -> Prediction {
    let one: Vec<f64> =
        rows.iter().filter(|r| r.way == Way::One).flat_map(|r| r.runs.iter().map(|m| m.seconds)).collect();
    let seconds = median(&one);
    let clocked = (seconds > 0.0).then(|| load.measured as f64 / 1e9 / seconds);
    let load = load.scaled(seconds);
    let mut machine = *machine;
    // What engines side by side lose to each other, so do workers: memory, caches, and whatever the processors share.
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
