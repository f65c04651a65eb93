//! The plots of a report.

use super::plan::State;
use super::{Comparison, Point, PointKind};
use crate::chart::{Chart, Series};
use crate::stats::Summary;

/// A plot, the base name of its files, and a caption.
pub(super) struct Plot {
    pub(super) name: String,
    pub(super) chart: Chart,
    pub(super) caption: String,
    /// Index of the load that it shows.
    pub(super) load: usize,
}

/// A table of samples, by column.
pub(super) struct Samples {
    names: Vec<String>,
    rows: Vec<Vec<f64>>,
}

impl Samples {
    pub(super) fn read(path: &std::path::Path) -> Option<Samples> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        // Names may be quoted and contain commas; numbers are not quoted.
        let mut names = vec![String::new()];
        let mut quoted = false;
        for c in lines.next()?.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => names.push(String::new()),
                c => names.last_mut()?.push(c),
            }
        }
        let number = |word: &str| word.parse().unwrap_or(f64::NAN);
        let rows = lines.map(|line| line.split(',').map(number).collect()).collect();
        Some(Samples { names, rows })
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The sum of columns over time.
    pub(super) fn over_time(&self, names: &[&str], scale: f64) -> Vec<(f64, f64)> {
        let Some(time) = self.column("elapsed") else { return Vec::new() };
        let columns: Vec<usize> = names.iter().filter_map(|name| self.column(name)).collect();
        if columns.is_empty() {
            return Vec::new();
        }
        let get = |row: &[f64], at: usize| row.get(at).copied().unwrap_or(f64::NAN);
        // An ended process uses nothing; such zeros are not measurements.
        let ended = names.iter().all(|name| name.starts_with("proc.")).then(|| self.column("proc.resident")).flatten();
        self.rows
            .iter()
            .filter(|row| ended.is_none_or(|at| get(row, at) > 0.0))
            .map(|row| (get(row, time), columns.iter().map(|at| get(row, *at)).sum::<f64>() * scale))
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect()
    }
}

impl Comparison {
    /// All plots, by load. `machine` is the description of the machine in each picture.
    pub(super) fn plots(&self, state: &State, machine: &str) -> Vec<Plot> {
        let mut plots = Vec::new();
        for (load, described) in self.experiment.loads.iter().enumerate() {
            let points: Vec<usize> = (0..self.points.len()).filter(|point| self.points[*point].load == load).collect();
            let Some(first) = points.first() else { continue };
            let name = super::folder_name(&described.name);
            let foot = vec![
                cut(&format!("{} · load {}: {}", self.experiment.title, described.name, self.load(load))),
                cut(&format!("{} · {machine}", self.repeated(load))),
            ];
            let mut add = |kind: &str, mut chart: Chart, caption: &str| {
                if !chart.is_empty() {
                    chart.foot.clone_from(&foot);
                    plots.push(Plot { name: format!("{name}-{kind}"), chart, caption: caption.to_owned(), load });
                }
            };
            match &self.points[*first].kind {
                PointKind::Offline { .. } => add(
                    "seconds",
                    self.by_engine(
                        state,
                        &points[..1],
                        "processing_s",
                        "seconds to process the capture",
                        "Time to process the capture",
                    ),
                    "A dot for each run. Lower is faster.",
                ),
                PointKind::Search { .. } => add(
                    "bound",
                    self.by_engine(
                        state,
                        &points,
                        "bound_pps",
                        "packets a second",
                        "Highest rate within the allowed loss",
                    ),
                    "A dot for each search. Higher is better.",
                ),
                _ => {
                    add(
                        "packets",
                        self.by_rate(
                            state,
                            &points,
                            "Packets taken and lost, by rate",
                            "packets a second",
                            &[("taken_per_s", "taken", 1.0), ("lost_per_s", "lost", 1.0)],
                        ),
                        "Medians; bars from the least to the most of the repeats. What was taken follows what was sent until the engine is full.",
                    );
                    add(
                        "loss",
                        self.by_rate(state, &points, "Loss, by rate", "% of packets sent", &[("loss", "", 100.0)]),
                        "Medians; bars from the least to the most of the repeats.",
                    );
                    add(
                        "interfaces",
                        self.by_interface(state, &points),
                        "Medians; bars from the least to the most of the repeats. An interface has its flows, or all packets.",
                    );
                    add(
                        "cpu",
                        self.by_rate(state, &points, "Processor, by rate", "cores busy", &[("cpu_cores", "", 1.0)]),
                        "What the engine's threads used after the warm-up.",
                    );
                    add(
                        "memory",
                        self.by_rate(
                            state,
                            &points,
                            "Memory, by rate",
                            "MiB, the most",
                            &[("peak_bytes", "", 1.0 / 1_048_576.0)],
                        ),
                        "The most that the engine held resident.",
                    );
                }
            }
            // Plots over time use the last point, which has the highest rate.
            let last = points.last().copied().unwrap_or(*first);
            let when = if points.len() > 1 { format!(" at {}", self.points[last].label) } else { String::new() };
            let typical = "Of each engine the run nearest to its median. Time begins when the engine was ready.";
            add(
                "cpu-over-time",
                self.over_time(
                    state,
                    last,
                    &format!("Processor over time{when}"),
                    "% of a core",
                    &[(&["proc.user", "proc.system"], "", 1.0)],
                ),
                typical,
            );
            add(
                "memory-over-time",
                self.over_time(
                    state,
                    last,
                    &format!("Memory over time{when}"),
                    "MiB resident",
                    &[(&["proc.resident"], "", 1.0 / 1_048_576.0)],
                ),
                typical,
            );
            let counters: &[(&[&str], &str, f64)] = &[
                (&["engine.received"], "captured", 1.0),
                (&["engine.decoded"], "decoded", 1.0),
                (&["engine.dropped"], "dropped", 1.0),
            ];
            add(
                "packets-over-time",
                self.over_time(state, last, &format!("Packets since the start{when}"), "packets", counters),
                &format!("{typical} As the engine's own counters say, which it writes about once a second."),
            );
            let own: Vec<[String; 2]> = (1..=self.points[last].interfaces)
                .filter(|_| self.points[last].interfaces > 1)
                .map(|number| [format!("engine.{number}.decoded"), format!("interface {number}")])
                .collect();
            let columns: Vec<[&str; 1]> = own.iter().map(|[column, _]| [column.as_str()]).collect();
            let each: Vec<(&[&str], &str, f64)> =
                columns.iter().zip(&own).map(|(column, [_, name])| (&column[..], name.as_str(), 1.0)).collect();
            add(
                "interfaces-over-time",
                self.over_time(state, last, &format!("Packets decoded of each interface{when}"), "packets", &each),
                &format!("{typical} As the engine's own counters say."),
            );
        }
        plots
    }

    fn by_engine(&self, state: &State, points: &[usize], metric: &str, y: &str, title: &str) -> Chart {
        let (mut series, mut places) = (Vec::new(), Vec::new());
        let of = |engine: usize| points.iter().map(move |point| (engine, *point));
        for (engine, point) in (0..self.experiment.engines.len()).flat_map(of) {
            let values = self.all(state, point, engine, metric);
            let (middle, place) = ((values.len().max(1) - 1) as f64 / 2.0, places.len() as f64);
            let name = &self.experiment.engines[engine].name;
            places.push(if points.len() > 1 { format!("{name}{}", self.points[point].short()) } else { name.clone() });
            // Spread equal values horizontally, so that all are visible.
            let beside = |(at, value): (usize, &f64)| (place + (at as f64 - middle) * 0.04, *value);
            series.push(Series {
                name: String::new(),
                colour: engine,
                dashed: false,
                dots: true,
                points: values.iter().enumerate().map(beside).collect(),
                range: Vec::new(),
            });
            if let Some(Summary { median, .. }) = Summary::of(&values) {
                series.push(Series {
                    name: format!("{}: runs and their median", places[places.len() - 1]),
                    colour: engine,
                    dashed: false,
                    dots: false,
                    points: vec![(place - 0.25, median), (place + 0.25, median)],
                    range: Vec::new(),
                });
            }
        }
        Chart { title: title.to_owned(), x: String::new(), y: y.to_owned(), series, places, foot: Vec::new() }
    }

    /// The loss of each interface by rate; empty if the points have one.
    fn by_interface(&self, state: &State, points: &[usize]) -> Chart {
        let most = points.iter().map(|point| self.points[*point].interfaces).max().unwrap_or(1);
        let names: Vec<(String, String)> = (1..=most)
            .filter(|_| most > 1)
            .map(|number| (format!("loss_{number}"), format!("interface {number}")))
            .collect();
        let metrics: Vec<(&str, &str, f64)> =
            names.iter().map(|(metric, name)| (metric.as_str(), name.as_str(), 100.0)).collect();
        self.by_rate(state, points, "Loss of each interface, by rate", "% of packets sent on it", &metrics)
    }

    /// The numbers of interfaces at these points, and how a number is called in a series' name.
    fn numbers(&self, points: &[usize]) -> Vec<(u32, String)> {
        let mut numbers: Vec<u32> = points.iter().map(|point| self.points[*point].interfaces).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let several = numbers.len() > 1;
        let called = |number: u32| match (several, number) {
            (false, _) => String::new(),
            (true, 1) => " on 1 interface".to_owned(),
            (true, number) => format!(" on {number} interfaces"),
        };
        numbers.into_iter().map(|number| (number, called(number))).collect()
    }

    fn by_rate(&self, state: &State, points: &[usize], title: &str, y: &str, metrics: &[(&str, &str, f64)]) -> Chart {
        let (mut series, mut colours) = (Vec::new(), 0);
        let numbers = self.numbers(points);
        let of = |engine: usize| numbers.iter().map(move |number| (engine, number));
        for (engine, (number, called)) in (0..self.experiment.engines.len()).flat_map(of) {
            let name = format!("{}{called}", self.experiment.engines[engine].name);
            for (nth, (metric, what, scale)) in metrics.iter().enumerate() {
                let mut found: Vec<(f64, Summary)> = points
                    .iter()
                    .filter(|point| self.points[**point].interfaces == *number)
                    .filter_map(|point| {
                        // If the sender was slower than asked, plot the rate that it reached.
                        let sent = self.summary(state, *point, engine, "sent_per_s").map(|summary| summary.median);
                        let rate = sent.filter(|rate| rate.is_finite()).unwrap_or(self.points[*point].rate);
                        Some((rate, self.summary(state, *point, engine, metric)?))
                    })
                    .collect();
                if found.is_empty() {
                    continue;
                }
                found.sort_by(|a, b| a.0.total_cmp(&b.0));
                let colour = if numbers.len() > 1 { colours } else { engine };
                series.push(Series {
                    name: if what.is_empty() { name.clone() } else { format!("{name}: {what}") },
                    colour,
                    dashed: nth > 0,
                    dots: false,
                    points: found.iter().map(|(rate, summary)| (*rate, summary.median * scale)).collect(),
                    range: found.iter().map(|(_, summary)| (summary.least * scale, summary.most * scale)).collect(),
                });
            }
            colours += 1;
        }
        Chart {
            title: title.to_owned(),
            x: "packets sent a second, warm-up included".to_owned(),
            y: y.to_owned(),
            series,
            places: Vec::new(),
            foot: Vec::new(),
        }
    }

    fn over_time(&self, state: &State, point: usize, title: &str, y: &str, what: &[(&[&str], &str, f64)]) -> Chart {
        let mut series = Vec::new();
        for (engine, contract) in self.experiment.engines.iter().enumerate() {
            let samples =
                self.typical(state, point, engine).and_then(|key| Samples::read(&self.folder(key).join("samples.csv")));
            let Some(samples) = samples else { continue };
            for (columns, what, scale) in what {
                let mut points = samples.over_time(columns, *scale);
                if columns.iter().all(|name| name.starts_with("engine.")) {
                    // Engines write counters at intervals. A straight line between two writes represents the unknown
                    // values better than steps.
                    let last = points.last().copied();
                    points.dedup_by(|later, earlier| later.1 == earlier.1);
                    if points.len() < 3 {
                        continue;
                    }
                    points.extend(last.filter(|last| points.last() != Some(last)));
                }
                if points.len() < 2 || (*what == "dropped" && points.iter().all(|(_, y)| *y == 0.0)) {
                    continue;
                }
                let name = if what.is_empty() { contract.name.clone() } else { format!("{}: {what}", contract.name) };
                series.push(Series {
                    name,
                    colour: engine,
                    dashed: *what == "dropped"
                        || *what == "captured"
                        || columns.iter().any(|name| name.starts_with("engine.2")),
                    dots: false,
                    points,
                    range: Vec::new(),
                });
            }
        }
        Chart {
            title: title.to_owned(),
            x: "seconds".to_owned(),
            y: y.to_owned(),
            series,
            places: Vec::new(),
            foot: Vec::new(),
        }
    }
}

/// Whether a point belongs to a load with several rates.
pub(super) fn has_rates(point: &Point) -> bool {
    point.rate.is_finite()
}

/// Truncates a line to the width of a picture.
fn cut(line: &str) -> String {
    const MOST: usize = 132;
    if line.chars().count() <= MOST {
        line.to_owned()
    } else {
        format!("{}…", line.chars().take(MOST).collect::<String>())
    }
}
