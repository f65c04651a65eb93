//! The report: one self-contained HTML file, with the plots and numbers as files beside it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::experiment::Kind;
use super::plan::State;
use super::plots::{Plot, has_rates};
use super::result::main_metric;
use super::{Comparison, PointKind, stage_columns};
use crate::chart::{escaped, png};
use crate::command::quoted;
use crate::load::{Pair, What};
use crate::monitor::{self, field};
use crate::problem::{Outcome, Problem};
use crate::stats::{Interval, Summary};
use crate::units::short;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:80em;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.7em}h2{margin-top:2em;border-bottom:1px solid #ccc}h3{margin-top:1.6em}\
table{border-collapse:collapse;margin:1em 0}th,td{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n,td.l{white-space:nowrap}tr.g td{border-top:2px solid #aaa}.wide{overflow-x:auto}small,.small{color:#666;font-size:.87em}\
figure{margin:1em 0}figcaption{color:#555;font-size:.87em}svg{max-width:100%;height:auto;border:1px solid #eee}\
pre{background:#f6f6f6;padding:.8em;overflow-x:auto;font-size:.85em}.bad{color:#a00}summary{cursor:pointer}";

/// Writes everything into the comparison's folder. Returns the path of the report.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write(comparison: &Comparison, state: &State) -> Outcome<PathBuf> {
    let dir = &comparison.dir;
    let save =
        |path: &Path, text: &[u8]| std::fs::write(path, text).map_err(|error| Problem::file("write", path, error));
    save(&dir.join("runs.csv"), runs_csv(comparison, state).as_bytes())?;
    save(&dir.join("checkpoints.csv"), comparison.checkpoints(state).as_bytes())?;
    save(&dir.join("experiment.yaml"), comparison.experiment.text.as_bytes())?;
    let machine: serde_json::Map<String, serde_json::Value> =
        monitor::describe().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    save(&dir.join("machine.json"), format!("{:#}\n", serde_json::Value::Object(machine)).as_bytes())?;
    let folder = dir.join("plots");
    std::fs::create_dir_all(&folder).map_err(|error| Problem::file("make", &folder, error))?;
    let described = monitor::describe();
    let get = |name: &str| described.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str());
    let machine = format!("{} × {}, {}, {}", get("logical cores"), get("processor"), get("memory"), get("kernel"));
    let plots = comparison.plots(state, &machine);
    let mut fonts = true;
    for plot in &plots {
        let svg = plot.chart.svg();
        save(&folder.join(format!("{}.svg", plot.name)), svg.as_bytes())?;
        let picture = png::render(&svg);
        let (picture, had_fonts) = picture.map_err(|why| Problem::Failed(format!("plot {}: {why}", plot.name)))?;
        fonts &= had_fonts;
        save(&folder.join(format!("{}.png", plot.name)), &picture)?;
    }
    if !fonts {
        eprintln!(
            "margay lab: no font is installed here, so the PNG plots have no text; the SVG plots and the report have"
        );
    }
    let path = dir.join("report.html");
    save(&path, html(comparison, state, &plots).as_bytes())?;
    Ok(path)
}

/// A table of all runs, one on each line.
fn runs_csv(comparison: &Comparison, state: &State) -> String {
    let mut names: Vec<&str> = state.done.iter().flat_map(|(_, metrics)| metrics.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let mut out =
        format!("order,repeat,load,point,engine,folder{}\n", names.iter().map(|n| format!(",{n}")).collect::<String>());
    for (order, (key, metrics)) in state.done.iter().enumerate() {
        let Some(point) = comparison.points.get(key.point) else { continue };
        let Some(engine) = comparison.experiment.engines.get(key.engine) else { continue };
        let folder = comparison.folder(*key);
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        let _ = write!(
            out,
            "{},{},{},{},{},runs/{}",
            order + 1,
            key.repeat,
            field(&comparison.experiment.loads[point.load].name),
            field(&point.label),
            field(&engine.name),
            field(&folder)
        );
        for name in &names {
            let value = metrics.get(*name).copied().unwrap_or(f64::NAN);
            let _ = if value.is_finite() { write!(out, ",{value}") } else { write!(out, ",") };
        }
        out.push('\n');
    }
    out
}

/// Formats a ratio to the baseline: `1.94 (1.90 to 1.99)`.
fn ratio_cell(ratio: Option<Interval>) -> String {
    match ratio {
        None => "—".to_owned(),
        Some(ratio) if ratio.low.is_finite() => {
            format!("{:.3}× <small>({:.3} to {:.3})</small>", ratio.value, ratio.low, ratio.high)
        }
        Some(ratio) => format!("{:.3}× <small>(of {}: no interval)</small>", ratio.value, ratio.count),
    }
}

/// Formats a median with its spread, in a unit of `scale`.
fn spread_cell(summary: Option<Summary>, scale: f64, digits: usize) -> String {
    match summary {
        None => "—".to_owned(),
        Some(s) => format!(
            "{:.digits$} <small>({:.digits$} to {:.digits$})</small>",
            s.median * scale,
            s.least * scale,
            s.most * scale
        ),
    }
}

fn plain(summary: Option<Summary>, scale: f64, digits: usize) -> String {
    summary.map_or_else(|| "—".to_owned(), |s| format!("{:.digits$}", s.median * scale))
}

fn count(summary: Option<Summary>) -> String {
    summary.map_or_else(
        || "—".to_owned(),
        |s| {
            let different =
                if s.least == s.most { String::new() } else { format!(" <small>({} to {})</small>", s.least, s.most) };
            format!("{}{different}", s.median)
        },
    )
}

fn html(comparison: &Comparison, state: &State, plots: &[Plot]) -> String {
    let experiment = &comparison.experiment;
    let mut out = String::new();
    let title = escaped(&experiment.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    for paragraph in experiment.about.split("\n\n").filter(|text| !text.trim().is_empty()) {
        let _ = writeln!(out, "<p>{}</p>", escaped(paragraph.trim()));
    }
    let wanted = experiment.repeats as usize * comparison.points.len() * experiment.engines.len();
    let made = state.done.iter().filter(|(key, _)| key.repeat <= experiment.repeats).count();
    if made < wanted {
        let _ = writeln!(
            out,
            "<p class=\"bad\"><strong>Not complete:</strong> {made} of {wanted} runs are in it. The same command goes on.</p>"
        );
    }
    in_short(comparison, state, &mut out);
    beside_study(comparison, state, &mut out);
    let _ = writeln!(out, "<h2>What was compared</h2>");
    engines(comparison, &mut out);
    for (load, described) in experiment.loads.iter().enumerate() {
        let _ = writeln!(out, "<h2>Load: {}</h2>", escaped(&described.name));
        results(comparison, state, load, &mut out);
        for plot in plots.iter().filter(|plot| plot.load == load) {
            let _ = writeln!(
                out,
                "<figure id=\"{0}\">{1}<figcaption>{2} Files: plots/{0}.svg, plots/{0}.png.</figcaption></figure>",
                escaped(&plot.name),
                plot.chart.svg(),
                escaped(&plot.caption)
            );
        }
    }
    how(comparison, made, &mut out);
    if !state.failed.is_empty() || !experiment.notes.is_empty() {
        let _ = writeln!(out, "<h2>What is missing</h2><ul>");
        for note in &experiment.notes {
            let _ = writeln!(out, "<li>{}</li>", escaped(note));
        }
        for (key, why) in &state.failed {
            if key.point < comparison.points.len() && key.engine < experiment.engines.len() {
                let _ = writeln!(
                    out,
                    "<li class=\"bad\">failed: {}<pre>{}</pre></li>",
                    escaped(&comparison.describe(*key)),
                    escaped(why)
                );
            }
        }
        let _ = writeln!(out, "</ul>");
    }
    let _ = writeln!(out, "<h2>The machine</h2><table>");
    for (name, value) in monitor::describe() {
        let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(&value));
    }
    let _ = writeln!(out, "</table>");
    let _ = writeln!(
        out,
        "<h2>The experiment's file</h2><pre>{}</pre>\n<h2>Files beside this report</h2><ul>\
         <li><code>runs.csv</code>: a line for each run, in the order in which they were made, with all its numbers</li>\
         <li><code>runs/…/samples.csv</code>: what machine and engine used during a run, every {:?}, with the engine's counters</li>\
         <li><code>runs/…/command</code>, <code>runs/…/console.log</code>: how the engine was started, and what it said</li>\
         <li><code>plots/</code>: the plots as SVG and PNG</li>\
         <li><code>machine.json</code>, <code>experiment.yaml</code></li></ul>\n</body></html>",
        escaped(&experiment.text),
        experiment.times.period
    );
    out
}

/// The results in sentences.
fn in_short(comparison: &Comparison, state: &State, out: &mut String) {
    let experiment = &comparison.experiment;
    let base = &experiment.engines[experiment.baseline].name;
    let _ = writeln!(out, "<h2>In short</h2><ul>");
    for (at, point) in comparison.points.iter().enumerate() {
        let metric = main_metric(point);
        let load = &experiment.loads[point.load].name;
        for (engine, contract) in experiment.engines.iter().enumerate() {
            if engine == experiment.baseline {
                continue;
            }
            let Some(ratio) = comparison.ratio(state, at, engine, metric) else { continue };
            if [engine, experiment.baseline].iter().any(|engine| comparison.unreached(state, at, *engine)) {
                let _ = writeln!(
                    out,
                    "<li>{}, {}: the sender did not reach the rate, so this says nothing about engines.</li>",
                    escaped(load),
                    escaped(&point.label)
                );
                continue;
            }
            let (name, value) = (escaped(&contract.name), ratio.value);
            let said = match point.kind {
                PointKind::Offline { .. } => format!("took {value:.2} times as long as {}", escaped(base)),
                PointKind::Search { .. } => format!("took {value:.2} times the rate that {} took", escaped(base)),
                _ => format!("took in {value:.3} times the packets that {} did", escaped(base)),
            };
            let trust = if ratio.low.is_finite() {
                let shown = if ratio.differs() { "" } else { ": <strong>no difference is shown</strong>" };
                format!(" (95 % interval {:.3} to {:.3}, {} pairs{shown})", ratio.low, ratio.high, ratio.count)
            } else {
                format!(" ({} pairs: too few to say how sure that is)", ratio.count)
            };
            let busy = comparison.busy_note(state, at, engine);
            let busy =
                busy.map_or_else(String::new, |note| format!(" <strong class=\"bad\">{}.</strong>", escaped(&note)));
            let _ = writeln!(
                out,
                "<li>{}, {}: <strong>{name}</strong> {said}{trust}.{busy}</li>",
                escaped(load),
                escaped(&point.label)
            );
        }
    }
    let _ = writeln!(out, "</ul>");
}

/// The figures of the repeated study, with a verdict on each.
fn beside_study(comparison: &Comparison, state: &State, out: &mut String) {
    let Some(study) = &comparison.experiment.study else { return };
    let _ = writeln!(out, "<h2>Beside the study</h2>\n<p><em>{}</em></p>", escaped(&study.title));
    if !study.not_shown.is_empty() {
        let _ = writeln!(out, "<p>Not shown here: {}</p>", escaped(&study.not_shown));
    }
    out.push_str("<div class=\"wide\"><table><tr><th>figure, as a ratio to the baseline or to fewer interfaces</th><th>at</th><th>the study's</th><th>ours (95 %)</th><th>verdict</th></tr>\n");
    for row in comparison.beside_study(state) {
        let cells =
            [&row.what, &row.at, &row.theirs, &row.ours].map(|cell| format!("<td>{}</td>", escaped(cell))).concat();
        let _ = writeln!(out, "<tr>{cells}<td>{}</td></tr>", escaped(row.verdict));
    }
    out.push_str("</table></div>\n");
}

/// The engines, each with its version, its own settings and its command.
fn engines(comparison: &Comparison, out: &mut String) {
    let experiment = &comparison.experiment;
    let offline = comparison.points.iter().any(|point| matches!(point.kind, PointKind::Offline { .. }));
    let live = comparison.points.iter().any(|point| !matches!(point.kind, PointKind::Offline { .. }));
    let commands: Vec<Vec<String>> =
        experiment.engines.iter().map(|engine| options(if live { &engine.live } else { &engine.offline })).collect();
    let _ = writeln!(out, "<table><tr><th>name</th><th>version</th><th>what only it has</th><th>command</th></tr>");
    for (at, engine) in experiment.engines.iter().enumerate() {
        let version = engine.version.split_first().and_then(|(program, words)| {
            let output = Command::new(program).args(words).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().find(|line| !line.trim().is_empty()).map(str::to_owned)
        });
        let others = || commands.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, options)| options);
        let own =
            commands[at].iter().filter(|option| commands.len() > 1 && !others().all(|other| other.contains(option)));
        let own: Vec<String> = own.map(|option| format!("<code>{}</code>", escaped(option))).collect();
        let mut shown = Vec::new();
        for (is, words) in [(live, &engine.live), (offline, &engine.offline)] {
            if is && !words.is_empty() {
                let words = words.iter().map(|word| if word.contains('{') { word.clone() } else { quoted(word) });
                shown.push(format!("<code>{}</code>", escaped(&words.collect::<Vec<_>>().join(" "))));
            }
        }
        let _ = writeln!(
            out,
            "<tr><td class=\"l\"><strong>{}</strong>{}</td><td class=\"l\">{}</td><td>{}</td><td><details><summary>show</summary>{}</details></td></tr>",
            escaped(&engine.name),
            if at == experiment.baseline { "<br><small>the others are compared with it</small>" } else { "" },
            escaped(&version.unwrap_or_else(|| "not told".to_owned())),
            if own.is_empty() { "nothing".to_owned() } else { own.join("<br>") },
            shown.join("<br>")
        );
    }
    let _ = writeln!(out, "</table>");
    files(comparison, out);
}

/// A command as options with values, without the options that the laboratory adds.
fn options(words: &[String]) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let value = words.next_if(|next| word.starts_with('-') && !word.contains('=') && !next.starts_with('-'));
        options.push(value.map_or_else(|| word.clone(), |value| format!("{word} {value}")));
    }
    options
}

/// Most bytes of a configuration that the report shows.
const SHOWN: usize = 200_000;

/// The engines' files: the text of configurations, the number of rules.
fn files(comparison: &Comparison, out: &mut String) {
    let (mut configurations, mut rules) = (Vec::new(), Vec::new());
    for engine in &comparison.experiment.engines {
        for words in [&engine.live, &engine.offline] {
            for pair in words.windows(2) {
                let list = match pair[0].as_str() {
                    // The script of `sh -c` is not a configuration.
                    "-c" if Path::new(&pair[1]).is_file() => &mut configurations,
                    "-S" | "-s" => &mut rules,
                    _ => continue,
                };
                if !list.contains(&&pair[1]) {
                    list.push(&pair[1]);
                }
            }
        }
    }
    if !rules.is_empty() {
        out.push_str("<ul>");
        for path in rules {
            let said = match std::fs::read(path) {
                Ok(text) => {
                    let is_rule = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.trim_ascii().starts_with(b"#");
                    let lines = text.split(|byte| *byte == b'\n').filter(is_rule).count();
                    format!("{lines} lines that are no comments, {}B", short(text.len() as f64))
                }
                Err(error) => error.to_string(),
            };
            let _ = writeln!(out, "<li>Rules <code>{}</code>: {}</li>", escaped(path), escaped(&said));
        }
        out.push_str("</ul>\n");
    }
    for path in configurations {
        let text = std::fs::read(path)
            .map_or_else(|error| error.to_string(), |text| String::from_utf8_lossy(&text).into_owned());
        let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= SHOWN).unwrap_or(text.len());
        let _ = writeln!(
            out,
            "<details><summary>Configuration <code>{}</code></summary><pre>{}{}</pre></details>",
            escaped(path),
            escaped(&text[..end]),
            if end < text.len() { "\n…" } else { "" }
        );
    }
}

impl Comparison {
    /// Describes the traffic of a load.
    pub(super) fn load(&self, load: usize) -> String {
        let of = |what: &What| match what {
            What::Capture(path) => format!("replay of {}", path.file_name().unwrap_or_default().to_string_lossy()),
            What::Profile(path) => format!("profile {}", path.file_name().unwrap_or_default().to_string_lossy()),
            What::Preset(name) => format!("preset {name}"),
        };
        match &self.experiment.loads[load].kind {
            Kind::Offline { capture } => {
                format!("reading {}", capture.file_name().unwrap_or_default().to_string_lossy())
            }
            Kind::Rates { what, .. } => of(what),
            Kind::Search { what, allowed, .. } => {
                format!("{}, highest rate with at most {} % lost", of(what), allowed * 100.0)
            }
            Kind::Numbers { .. } => "packets in numbers".to_owned(),
        }
    }

    /// Number and duration of a load's runs.
    pub(super) fn repeated(&self, load: usize) -> String {
        let (repeats, times) = (self.experiment.repeats, self.experiment.times);
        let repeats = format!("{repeats} repeat{}", if repeats == 1 { "" } else { "s" });
        match self.experiment.loads[load].kind {
            Kind::Offline { .. } => repeats,
            _ => format!("{repeats}, {:?} warm-up and {:?} each", times.warm_up, times.hold),
        }
    }
}

/// The result tables of a load.
fn results(comparison: &Comparison, state: &State, load: usize, out: &mut String) {
    let points: Vec<usize> =
        (0..comparison.points.len()).filter(|point| comparison.points[*point].load == load).collect();
    let Some(first) = points.first().map(|point| &comparison.points[*point]) else { return };
    let engines = &comparison.experiment.engines;
    let base = &engines[comparison.experiment.baseline].name;
    let get = |point: usize, engine: usize, name: &str| comparison.summary(state, point, engine, name);
    let ratio = |point: usize, engine: usize| {
        if engine == comparison.experiment.baseline {
            return "1".to_owned();
        }
        ratio_cell(comparison.ratio(state, point, engine, main_metric(&comparison.points[point])))
    };
    let row = |group: bool, cells: &[String], out: &mut String| {
        out.push_str(if group { "<tr class=\"g\">" } else { "<tr>" });
        for (at, cell) in cells.iter().enumerate() {
            let _ = write!(out, "<td class=\"{}\">{cell}</td>", if at == 0 { "l" } else { "n" });
        }
        out.push_str("</tr>\n");
    };
    let head = |names: &[&str], out: &mut String| {
        out.push_str("<div class=\"wide\"><table><tr>");
        for (at, name) in names.iter().enumerate() {
            let _ = write!(out, "<th{}>{}</th>", if at == 0 { "" } else { " class=\"n\"" }, escaped(name));
        }
        out.push_str("</tr>\n");
    };
    let compared = format!("times {base} (95 %)");
    let _ =
        writeln!(out, "<p>{}; {}.</p>", capital(&escaped(&comparison.load(load))), escaped(&comparison.repeated(load)));
    match &first.kind {
        PointKind::Offline { .. } => {
            let _ = writeln!(out, "<p>The engine reads {} and ends.</p>", escaped(&first.label));
            head(
                &[
                    "engine",
                    "processing, s",
                    &compared,
                    "packets/s",
                    "Mbit/s",
                    "start, s",
                    "processor, s",
                    "memory, MiB",
                    "alerts",
                    "runs",
                ],
                out,
            );
            for (engine, contract) in engines.iter().enumerate() {
                let point = points[0];
                let runs = get(point, engine, "processing_s").map_or(0, |summary| summary.count);
                row(
                    false,
                    &[
                        escaped(&contract.name),
                        spread_cell(get(point, engine, "processing_s"), 1.0, 3),
                        ratio(point, engine),
                        get(point, engine, "packets_per_s").map_or_else(|| "—".to_owned(), |s| short(s.median)),
                        plain(get(point, engine, "bits_per_s"), 1e-6, 0),
                        plain(get(point, engine, "start_s"), 1.0, 2),
                        plain(get(point, engine, "cpu_s"), 1.0, 2),
                        plain(get(point, engine, "peak_bytes"), 1.0 / 1_048_576.0, 0),
                        count(get(point, engine, "alerts")),
                        runs.to_string(),
                    ],
                    out,
                );
            }
        }
        PointKind::Search { allowed, .. } => {
            let _ = writeln!(
                out,
                "<p>The highest rate at which at most {} % of the packets sent were lost anywhere on their way.</p>",
                allowed * 100.0
            );
            head(
                &["load", "engine", "packets/s", &compared, "lost above it at", "limit is the engine's", "searches"],
                out,
            );
            for point in &points {
                for (engine, contract) in engines.iter().enumerate() {
                    let bound = get(*point, engine, "bound_pps");
                    let owned = get(*point, engine, "bound_is_engines").map_or(f64::NAN, |s| s.median);
                    row(
                        engine == 0,
                        &[
                            escaped(&comparison.points[*point].label),
                            escaped(&contract.name),
                            spread_cell(bound, 1.0, 0),
                            ratio(*point, engine),
                            comparison.worst_stages(state, *point, engine),
                            if owned == 1.0 { "yes" } else { "no: the sender or what was asked for" }.to_owned(),
                            bound.map_or(0, |s| s.count).to_string(),
                        ],
                        out,
                    );
                }
            }
        }
        _ => {
            let _ = writeln!(
                out,
                "<p>Loss is of what was sent; where packets were lost is by medians. † The sender did not reach the rate: this row says \
                 what it sent, and not what the engine takes.</p>"
            );
            head(
                &[
                    "asked for",
                    "engine",
                    "sent/s",
                    "Mbit/s",
                    "lost, %",
                    "lost where",
                    "packets taken/s",
                    &compared,
                    "cores busy",
                    "memory, MiB",
                    "alerts",
                    "runs",
                ],
                out,
            );
            for point in points.iter().filter(|point| has_rates(&comparison.points[**point])) {
                for (engine, contract) in engines.iter().enumerate() {
                    let loss = get(*point, engine, "loss");
                    row(
                        engine == 0,
                        &[
                            escaped(&comparison.points[*point].label),
                            escaped(&contract.name),
                            get(*point, engine, "sent_per_s").map_or_else(
                                || "—".to_owned(),
                                |s| {
                                    let mark = if comparison.unreached(state, *point, engine) { " †" } else { "" };
                                    format!("{}{mark}", short(s.median))
                                },
                            ),
                            plain(get(*point, engine, "sent_bits_per_s"), 1e-6, 0),
                            spread_cell(loss, 100.0, 2),
                            comparison.worst_stages(state, *point, engine),
                            get(*point, engine, "taken_per_s").map_or_else(|| "—".to_owned(), |s| short(s.median)),
                            ratio(*point, engine),
                            plain(get(*point, engine, "cpu_cores"), 1.0, 2),
                            plain(get(*point, engine, "peak_bytes"), 1.0 / 1_048_576.0, 0),
                            count(get(*point, engine, "alerts")),
                            loss.map_or(0, |s| s.count).to_string(),
                        ],
                        out,
                    );
                }
            }
        }
    }
    let _ = writeln!(
        out,
        "</table></div>\n<p class=\"small\">Medians; in parentheses the least and the most of the runs, or the interval of a ratio.</p>"
    );
    by_interface(comparison, state, &points, out);
    let late: Vec<String> = points.iter().flat_map(|point| comparison.latencies(state, *point)).collect();
    if !late.is_empty() {
        let _ = writeln!(
            out,
            "<p>How long the packets of a flow of their own took from one side of the engine to the other, one a millisecond beside \
             the load:</p>\n<pre>{}</pre>",
            escaped(&late.join("\n"))
        );
    }
}

/// The table of what each of several interfaces got and lost; nothing if no point has several.
fn by_interface(comparison: &Comparison, state: &State, points: &[usize], out: &mut String) {
    let mut rows = String::new();
    for at in points {
        let Some(point) = comparison.points.get(*at) else { continue };
        for (engine, contract) in comparison.experiment.engines.iter().enumerate() {
            for number in (1..=point.interfaces).filter(|_| point.interfaces > 1) {
                let get = |name: &str| comparison.summary(state, *at, engine, &format!("{name}_{number}"));
                let names = if number == 1 { (point.label.as_str(), contract.name.as_str()) } else { ("", "") };
                let group = if number == 1 { " class=\"g\"" } else { "" };
                let _ =
                    write!(rows, "<tr{group}><td class=\"l\">{}</td><td>{}</td>", escaped(names.0), escaped(names.1));
                let loss = spread_cell(get("loss"), 100.0, 2);
                let counts = ["sent", "received", "dropped", "decoded"].map(|name| plain(get(name), 1.0, 0));
                for cell in [number.to_string()].into_iter().chain(counts).chain([loss]) {
                    let _ = write!(rows, "<td class=\"n\">{cell}</td>");
                }
                rows.push_str("</tr>\n");
            }
        }
    }
    if !rows.is_empty() {
        let _ = writeln!(
            out,
            "<p>By interface, in packets; of a search, at its bound. What the kernel's queues dropped is counted for the machine, and \
             is here among the losses of the interface that missed it.</p>\n<div class=\"wide\"><table><tr><th>asked for</th>\
             <th>engine</th><th class=\"n\">interface</th><th class=\"n\">sent</th><th class=\"n\">reached the ring</th>\
             <th class=\"n\">found it full</th><th class=\"n\">taken</th><th class=\"n\">lost, %</th></tr>\n{rows}</table></div>"
        );
    }
}

/// Capitalises the first letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The method section.
fn how(comparison: &Comparison, made: usize, out: &mut String) {
    let stages: Vec<String> = stage_columns().map(|(stage, _)| stage.name().to_owned()).collect();
    let live = comparison.points.iter().any(|point| !matches!(point.kind, PointKind::Offline { .. }));
    let _ = writeln!(
        out,
        "<h2>How it was measured</h2>\n<p>{made} runs, one at a time: within each of {} repeats all engines run on a load one after \
         the other, and who goes first changes. So a machine that gets slower or busier touches all of them alike, and engines are \
         compared by the <em>ratio</em> of runs of the same repeat.</p>\n\
         <p>Numbers are <em>medians</em>, with the least and the most beside them. The interval of a ratio is where its median lies with \
         95 % confidence, by resampling the repeats (bootstrap, {} draws); with few repeats it is at most their range, which \
         holds the true median in 75 % of cases for 3 repeats, 94 % for 5, 99 % for 8. Where it includes 1, the runs show no difference.</p>",
        comparison.experiment.repeats,
        crate::stats::DRAWS
    );
    let _ = writeln!(
        out,
        "<p>An engine's <em>start</em> lasts until it says that it is ready; <em>processing</em> is from there to its end. <em>Memory</em> is \
         the most that it held resident, <em>processor</em> the time of all its threads.</p>"
    );
    if live {
        let _ = writeln!(
            out,
            "<p>Losses are told by stage, in the order of a packet's way: {}. <em>Link</em> is what was sent and seen by nobody \
             after, <em>NIC</em> what the interface dropped, <em>softnet</em> what the kernel's queue dropped, <em>ring</em> what found the queue to the \
             engine full, <em>engine</em> what the engine took and did not decode. What the ring lost is told of the time after the warm-up, \
             all else of the whole run. So packets sent = lost on link, NIC and softnet + received by the engine, and received = lost at the \
             ring + in the engine + decoded.</p>",
            stages.join(", ")
        );
        let given = &comparison.experiment.wire;
        let list = |of: fn(&Pair) -> &String| {
            escaped(&given.iter().map(|pair| of(pair).as_str()).collect::<Vec<_>>().join(", "))
        };
        let wire = if given.is_empty() {
            "Packets went over virtual interfaces of this machine, whose kernel receives on the sender's CPU".to_owned()
        } else {
            format!("Packets were sent on {} and read from {}", list(|pair| &pair.sender), list(|pair| &pair.engine))
        };
        let cpus = comparison.experiment.cpus.describe();
        let _ = writeln!(out, "<p>{wire}; {cpus}. Other work on the same machine takes from both.</p>");
    }
}
