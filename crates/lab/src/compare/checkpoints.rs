//! Medians by checkpoint: the state of engine and machine, second by second, over all repeats of a run.

use std::fmt::Write;

use super::plan::State;
use super::plots::Samples;
use super::{Comparison, PointKind};
use crate::monitor::field;
use crate::stats::Summary;

/// Most checkpoints of a run; longer runs have larger intervals.
const MOST: f64 = 60.0;

/// A column, and its source columns in `samples.csv`.
const COLUMNS: [(&str, &str); 6] = [
    ("captured", "engine.received"),
    ("dropped", "engine.dropped"),
    ("decoded", "engine.decoded"),
    ("host_busy_percent", "cpu.busy"),
    ("host_memory_bytes", "mem.used"),
    ("engine_resident_bytes", "proc.resident"),
];

/// What the engine counts by interface, with the number of the interface in the source's name.
const EACH: [(&str, &str); 3] = [("captured", "received"), ("dropped", "dropped"), ("decoded", "decoded")];

/// All columns, with those of each of `interfaces` interfaces.
fn columns(interfaces: u32) -> Vec<(String, String)> {
    let of = |number: u32| EACH.map(|(name, source)| (format!("{name}_{number}"), format!("engine.{number}.{source}")));
    let all = COLUMNS.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
    all.chain((1..=interfaces).filter(|_| interfaces > 1).flat_map(of)).collect()
}

/// The latest finite value at or before a time.
fn at(series: &[(f64, f64)], time: f64) -> Option<f64> {
    series.iter().rev().find(|(x, _)| *x <= time).map(|(_, y)| *y)
}

/// The times of checkpoints in a run that lasts `last` seconds.
fn times(last: f64) -> Vec<f64> {
    let step = (last / MOST).ceil().max(1.0);
    (1..).map(|n| f64::from(n) * step).take_while(|time| *time <= last).collect()
}

impl Comparison {
    /// `checkpoints.csv`: a line for each point, engine and checkpoint, with the medians of the repeats that reached it.
    pub(super) fn checkpoints(&self, state: &State) -> String {
        let columns = columns(self.points.iter().map(|point| point.interfaces).max().unwrap_or(1));
        let names = columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",");
        let mut out = format!("load,point,engine,second,repeats,{names}\n");
        for (number, point) in self.points.iter().enumerate() {
            if !matches!(point.kind, PointKind::Rate { .. } | PointKind::Numbers) {
                continue;
            }
            for (engine, contract) in self.experiment.engines.iter().enumerate() {
                let keys = state.done.iter().map(|(key, _)| *key);
                let runs: Vec<Vec<Vec<(f64, f64)>>> = keys
                    .filter(|key| key.point == number && key.engine == engine)
                    .filter_map(|key| Samples::read(&self.folder(key).join("samples.csv")))
                    .map(|samples| columns.iter().map(|(_, column)| samples.over_time(&[column], 1.0)).collect())
                    .collect();
                let last =
                    runs.iter().flatten().filter_map(|series| series.last()).map(|(x, _)| *x).fold(0.0, f64::max);
                for time in times(last) {
                    let values: Vec<Vec<f64>> = (0..columns.len())
                        .map(|column| runs.iter().filter_map(|run| at(run.get(column)?, time)).collect())
                        .collect();
                    let repeats = values.iter().map(Vec::len).max().unwrap_or(0);
                    let load = &self.experiment.loads[point.load].name;
                    let _ = write!(
                        out,
                        "{},{},{},{time},{repeats}",
                        field(load),
                        field(&point.label),
                        field(&contract.name)
                    );
                    for values in &values {
                        let _ = match Summary::of(values) {
                            Some(summary) => write!(out, ",{}", summary.median),
                            None => write!(out, ","),
                        };
                    }
                    out.push('\n');
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_a_second_apart_or_sixty() {
        assert_eq!(times(3.5), [1.0, 2.0, 3.0]);
        assert_eq!(times(0.5), [0.0; 0]);
        let names = |interfaces| columns(interfaces).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(1).len(), COLUMNS.len());
        assert_eq!(
            names(2)[COLUMNS.len()..],
            ["captured_1", "dropped_1", "decoded_1", "captured_2", "dropped_2", "decoded_2"]
        );
        let long = times(600.0);
        assert_eq!((long.len(), long[0], long[59]), (60, 10.0, 600.0));
        let series = [(0.25, 1.0), (0.5, 2.0), (1.25, 3.0)];
        assert_eq!((at(&series, 1.0), at(&series, 0.1), at(&series, 9.0)), (Some(2.0), None, Some(3.0)));
    }
}
