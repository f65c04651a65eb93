//! What was measured, as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::engine::Measured;
use super::{Row, Way};
use crate::stats::{median, paired_ratio};

fn of(row: &Row, value: impl Fn(&Measured) -> f64) -> f64 {
    median(&row.runs.iter().map(value).collect::<Vec<_>>())
}

/// Most packets that waited for one worker; seconds that all slept; the share of the packets that the busiest had.
fn longest(m: &Measured) -> f64 {
    m.workers.iter().map(|w| w.longest).fold(0.0, f64::max)
}

fn idle(m: &Measured) -> f64 {
    let slept: f64 = m.workers.iter().map(|w| w.slept).sum();
    match m.workers.len() {
        0 => 0.0,
        n => slept / (m.seconds * n as f64),
    }
}

fn busiest(m: &Measured) -> f64 {
    let all: f64 = m.workers.iter().map(|w| w.packets).sum();
    m.workers.iter().map(|w| w.packets).fold(0.0, f64::max) / all.max(1.0)
}

/// Whether every run has as many alerts as the first with one worker.
pub(super) fn same_alerts(row: &Row, rows: &[Row]) -> bool {
    let one = rows.iter().find(|r| r.trace == row.trace && r.way == Way::One).and_then(|r| r.runs.first());
    one.is_none_or(|one| row.runs.iter().all(|m| m.alerts == one.alerts))
}

/// A table for people.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "| trace | way | workers | seconds | times as fast (95 %) | alerts | busiest | most waiting | stalls | idle | moves |\n\
         | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let name = match &row.way {
            Way::One => "one worker",
            Way::Several { scheduler, .. } => scheduler,
        };
        let ratio = match paired_ratio(&row.speedup) {
            Some(r) if r.low.is_finite() => format!("{:.2} ({:.2} to {:.2})", r.value, r.low, r.high),
            Some(r) => format!("{:.2}", r.value),
            None => "-".to_owned(),
        };
        let alerts = if same_alerts(row, rows) { "" } else { " (not the same)" };
        // Writing to a text cannot fail.
        let _ = writeln!(
            out,
            "| {} | {name} | {} | {:.3} | {ratio} | {}{alerts} | {:.0} % | {:.0} | {:.0} | {:.1} % | {:.0} |",
            row.trace,
            row.way.workers(),
            of(row, |m| m.seconds),
            of(row, |m| m.alerts),
            if row.way == Way::One { 100.0 } else { of(row, busiest) * 100.0 },
            of(row, longest),
            of(row, |m| m.stalls),
            of(row, idle) * 100.0,
            of(row, |m| m.moves),
        );
    }
    out
}

/// Everything, for programs.
pub(super) fn json(rows: &[Row]) -> String {
    let all: Vec<Value> = rows
        .iter()
        .map(|row| {
            let ratio = paired_ratio(&row.speedup);
            let runs: Vec<Value> = row
                .runs
                .iter()
                .map(|m| {
                    let workers: Vec<Value> = m
                        .workers
                        .iter()
                        .map(|w| {
                            json!({"packets": w.packets, "longest": w.longest, "turns": w.turns, "sleeps": w.sleeps, "slept": w.slept})
                        })
                        .collect();
                    json!({"seconds": m.seconds, "packets": m.packets, "alerts": m.alerts, "stalls": m.stalls, "moves": m.moves, "workers": workers})
                })
                .collect();
            json!({
                "trace": row.trace,
                "way": row.way.to_string(),
                "workers": row.way.workers(),
                "speedup": ratio.map(|r| r.value),
                "speedup_low": ratio.filter(|r| r.low.is_finite()).map(|r| r.low),
                "speedup_high": ratio.filter(|r| r.high.is_finite()).map(|r| r.high),
                "runs": runs,
            })
        })
        .collect();
    format!("{:#}\n", Value::Array(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::engine::Worker;

    fn row(way: Way, seconds: f64, alerts: f64) -> Row {
        let worker = |packets, slept| Worker { packets, longest: packets / 10.0, turns: 1.0, sleeps: 1.0, slept };
        let workers = if way == Way::One { Vec::new() } else { vec![worker(300.0, 0.1), worker(100.0, 0.3)] };
        let m = Measured { seconds, packets: 400.0, alerts, stalls: 2.0, moves: 0.0, workers };
        Row { trace: "t".into(), way, runs: vec![m.clone(), m], speedup: vec![(2.0, seconds); 2] }
    }

    #[test]
    fn rows_say_how_much_faster() {
        let hash = Way::Several { scheduler: "hash".into(), workers: 2 };
        let mut rows = vec![row(Way::One, 2.0, 7.0), row(hash.clone(), 1.0, 7.0)];
        let text = markdown(&rows);
        assert!(text.contains("| t | one worker | 1 | 2.000 | 1.00 | 7 | 100 % |"), "{text}");
        assert!(text.contains("| t | hash | 2 | 1.000 | 2.00 | 7 | 75 % | 30 | 2 | 20.0 % | 0 |"), "{text}");
        rows.push(row(hash, 1.0, 6.0));
        assert!(!same_alerts(&rows[2], &rows) && markdown(&rows).contains("6 (not the same)"));
        let read: Value = serde_json::from_str(&json(&rows)).unwrap();
        assert_eq!(read[1]["speedup"], 2.0);
    }
}
