//! The speed-up by number of workers: measured points on solid lines, simulated ones as hollow points on dashed lines.

use std::path::Path;

use super::engine::Way;
use super::{Results, strategies, write};
use crate::chart::{Chart, Series, png};
use crate::problem::{Outcome, Problem};
use crate::stats::paired_ratio;

/// From this many workers on, the axis has doublings.
const DOUBLINGS: usize = 8;
/// The colour of engines side by side, and of the ideal speed-up.
const BLACK: usize = 6;

/// Draws one trace, as SVG and PNG.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn draw(trace: &str, what: &str, results: &Results, schedulers: &[String], dir: &Path) -> Outcome<()> {
    let chart = chart(trace, what, results, schedulers);
    if chart.is_empty() {
        return Ok(());
    }
    let svg = chart.svg();
    write(&dir.join(format!("{trace}.svg")), svg.as_bytes())?;
    let (picture, _) = png::render(&svg).map_err(Problem::Failed)?;
    write(&dir.join(format!("{trace}.png")), &picture)
}

fn chart(trace: &str, what: &str, results: &Results, schedulers: &[String]) -> Chart {
    let rows: Vec<_> = results.rows.iter().filter(|r| r.trace == trace).collect();
    let prediction = results.predictions.iter().find(|p| p.trace == trace);
    let points = prediction.map_or(&[][..], |p| &p.points);
    let most = rows.iter().map(|r| r.way.workers()).chain(points.iter().map(|p| p.workers)).max().unwrap_or(1);
    let doublings = most >= DOUBLINGS;
    let x = |workers: usize| if doublings { (workers as f64).log2() } else { workers as f64 };
    let mut names: Vec<&str> =
        strategies().into_iter().map(|s| s.0).filter(|n| points.iter().any(|p| p.scheduler == *n)).collect();
    for name in schedulers {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut series = Vec::new();
    let mut highest: f64 = 1.0;
    for (colour, name) in names.iter().enumerate() {
        // No scheduler uses black.
        let colour = if colour < BLACK { colour } else { colour + 1 };
        let measured = line(name, colour, &rows, &x, |way| match way {
            Way::Several { scheduler, workers } if scheduler == name => Some(*workers),
            _ => None,
        });
        let there = !measured.points.is_empty();
        highest = measured.points.iter().map(|p| p.1).fold(highest, f64::max);
        if there {
            series.push(measured);
        }
        let simulated: Vec<(f64, f64)> =
            points.iter().filter(|p| p.scheduler == *name).map(|p| (x(p.workers), p.simulated.speedup)).collect();
        highest = simulated.iter().map(|p| p.1).fold(highest, f64::max);
        if !simulated.is_empty() {
            // Name each scheduler once in the legend.
            let name = if there { String::new() } else { (*name).to_owned() };
            series.push(Series { name, colour, dashed: true, dots: false, points: simulated, range: Vec::new() });
        }
    }
    let mut beside = line("engines side by side", BLACK, &rows, &x, |way| match way {
        Way::Beside(engines) => Some(*engines),
        _ => None,
    });
    beside.dots = true;
    if !beside.points.is_empty() {
        highest = beside.points.iter().map(|p| p.1).fold(highest, f64::max);
        series.push(beside);
    }
    // Limit the axis to the range of the results.
    let limit = (highest * 1.15).min(most as f64);
    let ideal: Vec<(f64, f64)> = (0..=100)
        .map(|n| 1.0 + (limit - 1.0) * f64::from(n) / 100.0)
        .map(|n| (if doublings { n.log2() } else { n }, n))
        .collect();
    series.push(Series {
        name: "as many times as workers".to_owned(),
        colour: BLACK,
        dashed: false,
        dots: false,
        points: ideal,
        range: Vec::new(),
    });
    let mut foot = Vec::new();
    if let Some(p) = prediction {
        let s = &p.shares;
        if !rows.is_empty() {
            foot.push("full lines and points: measured, with intervals at 95 %".to_owned());
        }
        foot.push("dashed lines, hollow points: simulated from what each packet cost one worker".to_owned());
        foot.push(format!(
            "of one worker's time: reading {:.0} %, before the search {:.0} %, search {:.0} + {:.0} %, after it {:.0} %; {:.0} ns a packet, {} packets, {} flows",
            s.read * 100.0,
            s.before * 100.0,
            s.search * 100.0,
            s.stream * 100.0,
            s.after * 100.0,
            s.packet,
            p.packets,
            p.flows
        ));
    }
    let places = match doublings {
        true => (0..=(most as f64).log2().ceil() as u32).map(|n| (1u64 << n).to_string()).collect(),
        false => Vec::new(),
    };
    Chart {
        title: format!("{trace}, {what}: times as fast as one worker"),
        x: "workers".to_owned(),
        y: "speed-up".to_owned(),
        series,
        places,
        foot,
    }
}

/// The measured points of those ways for which `workers` returns a number.
fn line(
    name: &str,
    colour: usize,
    rows: &[&super::Row],
    x: &dyn Fn(usize) -> f64,
    workers: impl Fn(&Way) -> Option<usize>,
) -> Series {
    let mut points = Vec::new();
    let mut range = Vec::new();
    for row in rows {
        if let Some(workers) = workers(&row.way)
            && let Some(ratio) = paired_ratio(&row.speedup)
        {
            points.push((x(workers), ratio.value));
            // Points without an interval still appear.
            range.push((ratio.low, ratio.high));
        }
    }
    Series { name: name.to_owned(), colour, dashed: false, dots: false, points, range }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::engine::Measured;
    use crate::parallel::predict::predict;
    use crate::parallel::simulate::{Load, Machine};
    use crate::parallel::{Results, Row};

    #[test]
    fn simulated_points_are_told_apart() {
        let row = |way: Way, seconds: f64| Row {
            trace: "t".into(),
            way,
            runs: vec![Measured { seconds, ..Measured::default() }; 3],
            speedup: vec![(2.0, seconds); 3],
            company: None,
        };
        let hash = |workers| Way::Several { scheduler: "hash".into(), workers };
        let rows = vec![row(Way::One, 2.0), row(hash(1), 2.0), row(hash(2), 1.25), row(Way::Beside(2), 1.1)];
        let load = Load {
            packets: vec![crate::parallel::simulate::Packet { before: 900, ..Default::default() }; 1000],
            hashes: vec![1],
            ..Load::default()
        };
        let prediction = predict("t", load, &rows, 64, &Machine::default());
        let results = Results { traces: vec![("t".into(), "one flow".into())], rows, predictions: vec![prediction] };
        let chart = chart("t", "one flow", &results, &["hash".to_owned()]);
        assert_eq!(chart.places, ["1", "2", "4", "8", "16", "32", "64"]);
        let hash: Vec<_> = chart.series.iter().filter(|s| s.colour == 0).collect();
        assert_eq!((hash.len(), hash[0].dashed, hash[1].dashed), (2, false, true));
        assert_eq!(hash[0].points, [(0.0, 1.0), (1.0, 1.6)]);
        assert!(chart.series.iter().any(|s| s.name == "optimistic" && s.dashed));
        assert!(chart.svg().contains("simulated from what each packet cost"));
    }
}
