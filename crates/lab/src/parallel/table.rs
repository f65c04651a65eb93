//! The measured and simulated results, as tables and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::engine::Measured;
use super::predict::Prediction;
use super::simulate::Machine;
use super::{Results, Row, Way, strategies};
use crate::stats::{median, paired_ratio};

fn of(row: &Row, value: impl Fn(&Measured) -> f64) -> f64 {
    median(&row.runs.iter().map(value).collect::<Vec<_>>())
}

/// Most packets that waited for one worker; total seconds asleep; the busiest worker's share of the packets.
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

/// The share of the workers' time spent waiting for each other or for a moving flow; packets searched for other workers.
fn waited(m: &Measured) -> f64 {
    let waited: f64 = m.workers.iter().map(|w| w.waited).sum();
    (waited + m.waited) / (m.seconds * m.workers.len().max(1) as f64)
}

fn helped(m: &Measured) -> f64 {
    m.workers.iter().map(|w| w.helped).sum()
}

fn busiest(m: &Measured) -> f64 {
    let all: f64 = m.workers.iter().map(|w| w.packets).sum();
    m.workers.iter().map(|w| w.packets).fold(0.0, f64::max) / all.max(1.0)
}

/// Whether every run has as many alerts as the first run with one worker.
pub(super) fn same_alerts(row: &Row, rows: &[Row]) -> bool {
    let one = rows.iter().find(|r| r.trace == row.trace && r.way == Way::One).and_then(|r| r.runs.first());
    one.is_none_or(|one| row.runs.iter().all(|m| m.alerts == one.alerts))
}

/// Tables for people: the measured results, and the simulated ones.
pub(super) fn markdown(results: &Results) -> String {
    let mut out = String::new();
    if !results.rows.is_empty() {
        measured(&results.rows, &mut out);
    }
    for prediction in &results.predictions {
        let what = results.traces.iter().find(|t| t.0 == prediction.trace).map_or("", |t| t.1.as_str());
        simulated(prediction, what, &mut out);
    }
    out
}

fn measured(rows: &[Row], out: &mut String) {
    out.push_str(
        "| trace | way | workers | seconds | times as fast (95 %) | alerts | busiest | most waiting | stalls | idle | waited | moves | helped |\n\
         | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    // A row that was stopped before its first run has no result.
    for row in rows.iter().filter(|r| !r.runs.is_empty()) {
        let name = match &row.way {
            Way::One => "one worker",
            Way::Several { scheduler, .. } => scheduler,
            Way::Beside(_) => "engines side by side",
        };
        let busy = if busy(row) { "; machine busy" } else { "" };
        let ratio = match paired_ratio(&row.speedup) {
            Some(r) if r.low.is_finite() => format!("{:.2} ({:.2} to {:.2})", r.value, r.low, r.high),
            Some(r) => format!("{:.2}", r.value),
            None => "-".to_owned(),
        };
        let alerts = if same_alerts(row, rows) { "" } else { " (not the same)" };
        let several = matches!(row.way, Way::Several { .. });
        let only = |text: String| if several { text } else { "-".to_owned() };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {name} | {} | {:.3} | {ratio}{busy} | {}{alerts} | {} | {} | {} | {} | {} | {} | {} |",
            row.trace,
            row.way.workers(),
            of(row, |m| m.seconds),
            of(row, |m| m.alerts),
            only(format!("{:.0} %", of(row, busiest) * 100.0)),
            only(format!("{:.0}", of(row, longest))),
            only(format!("{:.0}", of(row, |m| m.stalls))),
            only(format!("{:.1} %", of(row, idle) * 100.0)),
            only(format!("{:.1} %", of(row, waited) * 100.0)),
            only(format!("{:.0}", of(row, |m| m.moves))),
            only(format!("{:.0}", of(row, helped))),
        );
    }
    if rows.iter().any(busy) {
        out.push_str("\nNot to be published: the rows in which the machine was busy with something else.\n");
    }
}

/// Whether other activity disturbed the measurement too much for publication.
fn busy(row: &Row) -> bool {
    row.company.is_some_and(|company| company.disturbs())
}

fn simulated(p: &Prediction, what: &str, out: &mut String) {
    let s = &p.shares;
    let _ = write!(
        out,
        "\n**{}, {what}: simulated** from what each of {} packets of {} flows (the largest has {:.0} %) cost one worker: {:.0} ns, of which \
         reading {:.1} %, before the search {:.1} %, search of payloads {:.1} %, of streams {:.1} %, after it {:.1} %, ending flows at the end {:.1} %; steering {:.0} ns more. ",
        p.trace,
        p.packets,
        p.flows,
        p.largest * 100.0,
        s.packet,
        s.read * 100.0,
        s.before * 100.0,
        s.search * 100.0,
        s.stream * 100.0,
        s.after * 100.0,
        s.end * 100.0,
        s.steer
    );
    if let Some(clocked) = p.clocked {
        let _ = write!(out, "With clocks the run took {clocked:.2} times as long; costs are scaled to one without. ");
    }
    if p.interrupted != 0 {
        let _ = write!(out, "{} steps of packets were interrupted by others. ", p.interrupted);
    }
    let _ = writeln!(out, "Beside another all takes {:.2} times as long.\n", p.beside);
    let mut numbers: Vec<usize> = p.points.iter().map(|p| p.workers).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let heads: String = numbers.iter().map(|n| format!(" {n} |")).collect();
    let _ = writeln!(out, "| simulated |{heads}\n| --- |{}", " ---: |".repeat(numbers.len()));
    for (name, _) in strategies() {
        let row: Vec<_> = p.points.iter().filter(|p| p.scheduler == name).collect();
        if row.is_empty() {
            continue;
        }
        let cells: String = row.iter().map(|p| format!(" {:.2} |", p.simulated.speedup)).collect();
        let _ = writeln!(out, "| {name} |{cells}");
    }
    let known: Vec<_> = p.points.iter().filter(|p| p.measured.is_some()).collect();
    if known.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n| | workers | measured | simulated | error |\n| --- | ---: | ---: | ---: | ---: |");
    for point in known {
        if let (Some(measured), Some(error)) = (point.measured, point.error()) {
            let _ = writeln!(
                out,
                "| {} | {} | {measured:.2} | {:.2} | {:+.1} % |",
                point.scheduler,
                point.workers,
                point.simulated.speedup,
                error * 100.0
            );
        }
    }
}

/// The context of the figures.
pub(super) struct About<'a> {
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) schedulers: &'a [String],
    pub(super) simulated: &'a Machine,
    /// The measurement was not interrupted.
    pub(super) complete: bool,
}

/// Everything as JSON.
pub(super) fn json(results: &Results, about: &About<'_>) -> String {
    let machine: serde_json::Map<String, Value> =
        about.machine.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
    let traces: Vec<Value> = results.traces.iter().map(|(name, what)| json!({"name": name, "what": what})).collect();
    let all = json!({
        "machine": machine,
        "complete": about.complete,
        "schedulers": about.schedulers,
        "traces": traces,
        "measured": results.rows.iter().map(row_json).collect::<Vec<Value>>(),
        "simulated": results.predictions.iter().map(prediction_json).collect::<Vec<Value>>(),
        "simulated_with": machine_json(about.simulated),
    });
    format!("{all:#}\n")
}

fn row_json(row: &Row) -> Value {
    let ratio = paired_ratio(&row.speedup);
    let runs: Vec<Value> = row
        .runs
        .iter()
        .map(|m| {
            let workers: Vec<Value> = m
                .workers
                .iter()
                .map(|w| {
                    json!({"packets": w.packets, "longest": w.longest, "turns": w.turns, "sleeps": w.sleeps, "slept": w.slept,
                        "waits": w.waits, "waited": w.waited, "helping": w.helping, "helped": w.helped})
                })
                .collect();
            json!({"seconds": m.seconds, "packets": m.packets, "alerts": m.alerts, "stalls": m.stalls, "moves": m.moves, "waited": m.waited, "workers": workers})
        })
        .collect();
    json!({
        "trace": row.trace,
        "way": row.way.to_string(),
        "scheduler": if let Way::Several { scheduler, .. } = &row.way { Some(scheduler) } else { None },
        "workers": row.way.workers(),
        "publishable": !busy(row),
        "speedup": ratio.map(|r| r.value),
        "speedup_low": ratio.filter(|r| r.low.is_finite()).map(|r| r.low),
        "speedup_high": ratio.filter(|r| r.high.is_finite()).map(|r| r.high),
        "runs": runs,
    })
}

fn prediction_json(p: &Prediction) -> Value {
    let points: Vec<Value> = p
        .points
        .iter()
        .map(|point| {
            let s = &point.simulated;
            json!({
                "scheduler": point.scheduler,
                "workers": point.workers,
                "simulated": true,
                "speedup": s.speedup,
                "measured": point.measured,
                "error": point.error(),
                "nanoseconds": s.time,
                "busiest": s.busiest,
                "longest": s.longest,
                "turns": s.turns,
                "stalls": s.stalls,
                "moves": s.moves,
                "helped": s.helped,
                "idle": s.idle,
                "waited": s.waited,
                "inspecting_ns": s.inspected,
                "reading_ns": s.read,
                "helping_ns": s.searched,
            })
        })
        .collect();
    let s = &p.shares;
    json!({
        "trace": p.trace,
        "packets": p.packets,
        "flows": p.flows,
        "largest_flow": p.largest,
        "packet_ns": s.packet,
        "steering_ns": s.steer,
        "shares": {"read": s.read, "before": s.before, "search": s.search, "stream": s.stream, "after": s.after, "end": s.end},
        "clocked": p.clocked,
        "interrupted": p.interrupted,
        "beside": p.beside,
        "points": points,
    })
}

fn machine_json(m: &Machine) -> Value {
    json!({
        "wake": m.wake, "ring": m.ring, "give": m.give, "take": m.take, "far": m.far, "give-flow": m.give_flow,
        "move-flow": m.move_flow, "flush": m.flush, "order": m.order, "help": m.help, "threshold": m.threshold,
        "gain": m.gain, "beside": m.beside,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::engine::Worker;

    fn row(way: Way, seconds: f64, alerts: f64) -> Row {
        let worker = |packets, slept| Worker {
            packets,
            longest: packets / 10.0,
            turns: 1.0,
            sleeps: 1.0,
            slept,
            ..Worker::default()
        };
        let workers = if way == Way::One { Vec::new() } else { vec![worker(300.0, 0.1), worker(100.0, 0.3)] };
        let m = Measured { seconds, packets: 400.0, alerts, stalls: 2.0, moves: 0.0, waited: 0.0, workers };
        Row { trace: "t".into(), way, runs: vec![m.clone(), m], speedup: vec![(2.0, seconds); 2], company: None }
    }

    #[test]
    fn rows_say_how_much_faster() {
        let hash = Way::Several { scheduler: "hash".into(), workers: 2 };
        let mut rows = vec![row(Way::One, 2.0, 7.0), row(hash.clone(), 1.0, 7.0)];
        let mut text = String::new();
        measured(&rows, &mut text);
        assert!(text.contains("| t | one worker | 1 | 2.000 | 1.00 | 7 | - |"), "{text}");
        assert!(
            text.contains("| t | hash | 2 | 1.000 | 2.00 | 7 | 75 % | 30 | 2 | 20.0 % | 0.0 % | 0 | 0 |"),
            "{text}"
        );
        rows.push(row(hash, 1.0, 6.0));
        let results = Results { rows, ..Results::default() };
        assert!(!same_alerts(&results.rows[2], &results.rows) && markdown(&results).contains("6 (not the same)"));
        let about = About { machine: Vec::new(), schedulers: &[], simulated: &Machine::default(), complete: true };
        let read: Value = serde_json::from_str(&json(&results, &about)).unwrap();
        assert_eq!(read["measured"][1]["speedup"], 2.0);
        for name in Machine::NAMES.split(", ") {
            assert!(!read["simulated_with"][name].is_null(), "{name}");
        }
    }

    #[test]
    fn simulated_figures_are_marked_and_held_against_measured_ones() {
        use crate::parallel::predict::predict;
        use crate::parallel::simulate::{Load, Packet};
        let rows = vec![row(Way::One, 2.0, 7.0), row(Way::Several { scheduler: "hash".into(), workers: 2 }, 1.6, 7.0)];
        let packets = vec![Packet { before: 400, search: 500, ..Packet::default() }; 5000];
        let load = Load { packets, hashes: vec![3], ..Load::default() };
        let predictions = vec![predict("t", load, &rows, 4, &Machine::default())];
        let results = Results { traces: vec![("t".into(), "one flow".into())], rows, predictions };
        let text = markdown(&results);
        assert!(text.contains("| simulated | 1 | 2 | 3 | 4 |"), "{text}");
        // Measured 1.25; one flow by its hash is 1.
        assert!(text.contains("| hash | 2 | 1.25 | 1.00 | -20."), "{text}");
        let about = About { machine: Vec::new(), schedulers: &[], simulated: &Machine::default(), complete: true };
        let read: Value = serde_json::from_str(&json(&results, &about)).unwrap();
        assert_eq!(read["simulated"][0]["points"][1]["simulated"], true);
    }
}
