//! The report of an experiment with simulated cards: one HTML file with its plots, and a file with the numbers.

use std::fmt::Write as _;
use std::path::Path;

use super::experiment::{Claim, Experiment, MEASURES, Measure, Row};
use super::run::{Changed, Results, measured};
use crate::chart::{Chart, Series, escaped};
use crate::problem::{Outcome, Problem};

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:.6em 0 1.2em}td,th{border:1px solid #bbb;padding:.25em .6em;text-align:right}\
    th{background:#f0f0f0}td.t,th.t{text-align:left}.repeated{color:#00682f;font-weight:bold}\
    .refuted{color:#a31515;font-weight:bold}.no{color:#555;font-weight:bold}svg{max-width:100%;height:auto}\
    p.about{color:#444}small{color:#555}";

/// The verdict on a claim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// *repeated*, *refuted*, *not comparable*, or *found* if no study makes the claim.
    pub(crate) word: &'static str,
    /// Our figure; `None` if it is not comparable.
    pub(crate) value: Option<f64>,
    /// The reason.
    pub(crate) because: String,
}

/// Formats a number with three significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Judges a claim.
pub(crate) fn verdict(claim: &Claim, results: &Results) -> Verdict {
    let Some(of) = &claim.of else {
        let because = claim.incomparable.clone().unwrap_or_default();
        return Verdict { word: "not comparable", value: None, because };
    };
    let ratio = |of, to: Option<&super::experiment::Point>| {
        let below = to.map_or(1.0, |to| results.value(claim.measure, to));
        results.value(claim.measure, of) / below
    };
    let mut value = ratio(of, claim.to.as_ref());
    if let Some((than, to)) = &claim.than {
        value /= ratio(than, Some(to));
    }
    if claim.study.is_empty() {
        return Verdict { word: "found", value: Some(value), because: claim.because.clone() };
    }
    let within = value >= claim.least && value <= claim.most;
    let bounds = match (claim.least > 0.0, claim.most.is_finite()) {
        (true, true) => format!("{} to {}", figure(claim.least), figure(claim.most)),
        (true, false) => format!("at least {}", figure(claim.least)),
        _ => format!("at most {}", figure(claim.most)),
    };
    let because = format!("it is repeated with {bounds}. {}", claim.because);
    Verdict {
        word: if within { "repeated" } else { "refuted" },
        value: Some(value),
        because: because.trim().to_owned(),
    }
}

fn unit(measure: Measure) -> &'static str {
    MEASURES.iter().find(|m| m.1 == measure).map_or("", |m| m.2)
}

/// The lines of a row's plot: each has a name, and a value for each place on the axis.
fn lines(row: &Row, results: &Results) -> Vec<(String, Vec<f64>)> {
    let places = row.axis.as_ref().map_or(1, |a| a.1.len());
    let others = row.candidates.len() / places.max(1);
    let mut lines = Vec::new();
    for trace in &row.traces {
        for other in 0..others {
            let of = |place: usize| row.candidates.get(place * others + other);
            let name = of(0).map_or("", |c| c.name.split_once(' ').map_or("", |(_, rest)| rest));
            let name = if name.is_empty() { trace.clone() } else { format!("{trace} {name}") };
            let values = (0..places).filter_map(|p| results.of(trace, &of(p)?.design, row.offered));
            lines.push((name, values.map(|o| measured(row.measure, o, results.host)).collect()));
        }
    }
    lines
}

fn chart(row: &Row, lines: &[(String, Vec<f64>)]) -> Option<Chart> {
    let (name, places) = row.axis.as_ref()?;
    if places.len() < 2 {
        return None;
    }
    let series = lines.iter().enumerate().map(|(number, (name, values))| Series {
        name: name.clone(),
        colour: number,
        dashed: number >= 7,
        dots: false,
        points: values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect(),
        range: Vec::new(),
    });
    Some(Chart {
        title: row.title.clone(),
        x: name.clone(),
        y: unit(row.measure).to_owned(),
        series: series.collect(),
        places: places.clone(),
        foot: Vec::new(),
    })
}

/// How estimated costs affect a verdict, as a sentence; empty if that was not tested.
fn estimates(verdict: &Verdict, number: usize, changed: &[Changed]) -> String {
    let (Some(value), false) = (verdict.value, changed.is_empty()) else { return String::new() };
    let others: Vec<_> = changed.iter().filter_map(|(name, by, all)| Some((name, *by, all.get(number)?))).collect();
    let all = || others.iter().filter_map(|o| o.2.value).chain([value]);
    let range = (all().fold(value, f64::min), all().fold(value, f64::max));
    let range = format!("{} to {}", figure(range.0), figure(range.1));
    let how = |by: f64| if by < 1.0 { "half" } else { "twice" };
    let against: Vec<String> = others
        .iter()
        .filter(|o| o.2.word != verdict.word)
        .map(|(name, by, _)| format!("{name} at {}", how(*by)))
        .collect();
    if against.is_empty() {
        format!("With each estimated cost at half and twice it is {range}.")
    } else {
        format!(
            "With each estimated cost at half and twice it is {range}; the verdict changes with {}.",
            against.join(", ")
        )
    }
}

/// Writes `report.html` and `results.csv` into `dir`. Returns the verdicts as lines for a terminal.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write(
    experiment: &Experiment,
    results: &Results,
    changed: &[Changed],
    dir: &Path,
) -> Outcome<Vec<String>> {
    let mut told = Vec::new();
    let mut csv = String::from("row,line,place,value,unit\n");
    let mut body = String::new();
    let (mut repeated, mut refuted, mut neither, mut found, mut number) = (0, 0, 0, 0, 0);
    // Writing to a String cannot fail.
    for row in &experiment.rows {
        let _ = write!(body, "<h2>{}</h2>", escaped(&row.title));
        if !row.about.is_empty() {
            let _ = write!(body, "<p class=about>{}</p>", escaped(&row.about));
        }
        let lines = lines(row, results);
        if let Some(chart) = chart(row, &lines) {
            body.push_str(&chart.svg());
        }
        if let Some((name, places)) = &row.axis {
            let heads: String = places.iter().map(|p| format!("<th>{}</th>", escaped(p))).collect();
            let _ = write!(body, "<table><tr><th class=t>{} by {}</th>{heads}</tr>", unit(row.measure), escaped(name));
            for (line, values) in &lines {
                let cells: String = values.iter().map(|v| format!("<td>{}</td>", figure(*v))).collect();
                let _ = write!(body, "<tr><td class=t>{}</td>{cells}</tr>", escaped(line));
                for (place, value) in places.iter().zip(values) {
                    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
                    let (title, line, place) = (quoted(&row.title), quoted(line), quoted(place));
                    let _ = writeln!(csv, "{title},{line},{place},{},{}", figure(*value), unit(row.measure));
                }
            }
            body.push_str("</table>");
        }
        if !row.claims.is_empty() {
            body.push_str(
                "<table><tr><th class=t>claim</th><th class=t>the study</th><th>ours</th><th class=t>verdict</th>\
                 <th class=t>reason</th></tr>",
            );
        }
        for claim in &row.claims {
            let v = verdict(claim, results);
            let class = match v.word {
                "repeated" => {
                    repeated += 1;
                    "repeated"
                }
                "refuted" => {
                    refuted += 1;
                    "refuted"
                }
                "found" => {
                    found += 1;
                    "no"
                }
                _ => {
                    neither += 1;
                    "no"
                }
            };
            let ours = v.value.map_or("–".to_owned(), figure);
            let because = format!("{} {}", v.because, estimates(&v, number, changed));
            number += 1;
            let _ = write!(
                body,
                "<tr><td class=t>{}</td><td class=t>{}</td><td>{ours}</td><td class=\"t {class}\">{}</td><td class=t>{}</td></tr>",
                escaped(&claim.say),
                escaped(&claim.study),
                v.word,
                escaped(because.trim())
            );
            let study = if claim.study.is_empty() { String::new() } else { format!("study {}, ours ", claim.study) };
            told.push(format!("{:<15} {}: {study}{ours}", v.word, claim.say));
            if !changed.is_empty() && v.value.is_some() {
                told.push(format!("{:<15} {}", "", estimates(&v, number - 1, changed)));
            }
        }
        if !row.claims.is_empty() {
            body.push_str("</table>");
        }
    }
    let items =
        |list: &mut dyn Iterator<Item = String>| list.map(|i| format!("<li>{}</li>", escaped(&i))).collect::<String>();
    let mut verdicts = String::new();
    if repeated + refuted + neither > 0 {
        let _ = write!(
            verdicts,
            "{repeated} claims of the study are <span class=repeated>repeated</span>, {refuted} are \
             <span class=refuted>refuted</span>, {neither} are <span class=no>not comparable</span>. "
        );
    }
    if found > 0 {
        let _ = write!(verdicts, "{found} questions that no study answers have a figure of ours.");
    }
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1><p class=about>{about}</p>\
         <p>{verdicts}</p>\
         <h2>Work</h2><p>Recorded with Margay's own engine, so that what packets mean is not made up, unless it is said otherwise.</p>\
         <ul>{work}</ul><p>Traces: recombined flows of that work.</p><ul>{traces}</ul>{body}\
         <p><small>Model, costs and limits: docs/card.md. Numbers: results.csv.</small></p></body></html>\n",
        title = escaped(&experiment.title),
        about = escaped(&experiment.about),
        work = items(&mut results.work.iter().cloned()),
        traces = items(&mut results.traces.iter().map(|(name, about)| format!("{name}: {about}"))),
    );
    for (name, data) in [("report.html", &html), ("results.csv", &csv)] {
        let path = dir.join(name);
        std::fs::write(&path, data).map_err(|e| Problem::file("write", &path, e))?;
    }
    Ok(told)
}
