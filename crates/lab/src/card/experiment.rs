//! Experiment files of `margay lab card run` (`lab/experiments/card-*.yaml`, docs/card.md).

use std::path::{Path, PathBuf};

use margay_card::Bad;
use margay_card::design::Design;
use margay_card::mix::{Interleaving, Mix};
use margay_card::search::{Candidate, expand};
use margay_config::{Config, Node};

use super::rules::Choice;
use crate::problem::{Outcome, Problem};

/// Where recorded work comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Made up: packets, flows, seed.
    MadeUp(usize, usize, u64),
    /// Captures, the file that rules are chosen from, the choice, settings.
    Recorded { captures: Vec<PathBuf>, rules: PathBuf, choice: Choice, settings: Vec<String> },
    /// A work trace.
    File(PathBuf),
}

/// A trace: its name, the name of the work that it is of, and how flows are put together anew (not at all where there is none).
#[derive(Debug, Clone)]
pub(crate) struct Mixed {
    pub(crate) name: String,
    pub(crate) work: String,
    pub(crate) mix: Option<Mix>,
}

/// What is measured of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Rate,
    Rows,
    Verification,
    Cores,
    Matcher,
    Latency,
}

/// Names and units of measures.
pub(crate) const MEASURES: [(&str, Measure, &str); 6] = [
    ("rate", Measure::Rate, "Mbit/s"),
    ("rows", Measure::Rows, "rows opened a packet"),
    ("verification", Measure::Verification, "ns of verification a packet"),
    ("cores", Measure::Cores, "% of the cores' time"),
    ("matcher", Measure::Matcher, "% of the matcher's time"),
    ("latency", Measure::Latency, "µs for 99 % of packets"),
];

/// A design on traces; the value is the mean over the traces.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) traces: Vec<String>,
    pub(crate) design: Design,
}

/// What is held against the study.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// In words.
    pub(crate) say: String,
    pub(crate) measure: Measure,
    /// The value is that of `of`, divided by that of `to` where there is one, and by that of `than` over `than_to`.
    pub(crate) of: Option<Point>,
    pub(crate) to: Option<Point>,
    pub(crate) than: Option<(Point, Point)>,
    /// The study's figure as it gives it.
    pub(crate) study: String,
    /// The claim is repeated where the value is within these.
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Why it cannot be compared.
    pub(crate) incomparable: Option<String>,
    /// A reason to be shown with the verdict.
    pub(crate) because: String,
}

/// A table or figure.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) traces: Vec<String>,
    pub(crate) measure: Measure,
    /// The parameter along the axis and its values, and how many other combinations there are for each.
    pub(crate) axis: Option<(String, Vec<String>)>,
    /// Designs: for each value of the axis all other combinations.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) claims: Vec<Claim>,
}

/// An experiment.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) costs: Option<PathBuf>,
    pub(crate) work: Vec<(String, Source)>,
    pub(crate) traces: Vec<Mixed>,
    pub(crate) rows: Vec<Row>,
}

fn wrong(node: &Node<'_>, why: impl Into<String>) -> Problem {
    node.error(why).into()
}

fn told(why: Bad) -> Problem {
    Problem::Usage(why.to_string())
}

fn unknown(node: &Node<'_>) -> Problem {
    wrong(node, format!("there is no `{}` here", node.name()))
}

fn number(node: &Node<'_>) -> Outcome<f64> {
    let number = node.text().trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| wrong(node, format!("`{}` is not a number", node.text())))
}

fn count(node: &Node<'_>) -> Outcome<usize> {
    let number = node.text().trim().parse::<usize>().ok().filter(|n| (1..=50_000_000).contains(n));
    number.ok_or_else(|| wrong(node, format!("`{}` is not a number from 1 to 50,000,000", node.text())))
}

/// A value, or the values of a list.
fn list(node: &Node<'_>) -> Vec<String> {
    if node.is_sequence() { node.values().map(str::to_owned).collect() } else { vec![node.text().to_owned()] }
}

fn measure(node: &Node<'_>) -> Outcome<Measure> {
    MEASURES.iter().find(|m| m.0 == node.text()).map(|m| m.1).ok_or_else(|| {
        let names: Vec<_> = MEASURES.iter().map(|m| m.0).collect();
        wrong(node, format!("`{}` is not one of {}", node.text(), names.join(", ")))
    })
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// An unknown key, or what cannot be read or built, with file and line.
    pub(crate) fn read(path: &Path) -> Outcome<Experiment> {
        let text = std::fs::read_to_string(path).map_err(|e| Problem::file("read", path, e))?;
        let file = path.display().to_string();
        let config = Config::from_str(&text, &file)?;
        let base = path.parent().unwrap_or_else(|| Path::new(""));
        let mut e = Experiment {
            title: String::new(),
            about: String::new(),
            costs: None,
            work: Vec::new(),
            traces: Vec::new(),
            rows: Vec::new(),
        };
        let mut design = Design::default();
        for node in config.root().children() {
            match node.name() {
                "title" => e.title = node.text().to_owned(),
                "about" => e.about = node.text().to_owned(),
                "costs" => e.costs = Some(base.join(node.text())),
                "work" => {
                    for one in node.children() {
                        e.work.push((one.name().to_owned(), source(&one, base)?));
                    }
                }
                "traces" => {
                    for one in node.children() {
                        e.traces.push(mixed(&one, &e.work)?);
                    }
                }
                "design" => parameters(&mut design, &node)?,
                "rows" => {
                    for one in node.children() {
                        e.rows.push(row(&one, &design, &e.traces, &file)?);
                    }
                }
                _ => return Err(unknown(&node)),
            }
        }
        if e.rows.is_empty() || e.traces.is_empty() {
            return Err(Problem::Usage(format!("{file}: an experiment has traces and rows")));
        }
        Ok(e)
    }
}

fn parameters(design: &mut Design, node: &Node<'_>) -> Outcome<()> {
    for one in node.children() {
        design.set(&one).map_err(told)?;
    }
    design.check().map_err(|why| wrong(node, why))
}

fn source(node: &Node<'_>, base: &Path) -> Outcome<Source> {
    let (mut captures, mut rules, mut settings, mut choice) = (Vec::new(), None, Vec::new(), Choice::default());
    let mut made = None;
    for one in node.children() {
        match one.name() {
            "captures" => captures = list(&one).iter().map(|c| base.join(c)).collect(),
            "settings" => settings = list(&one),
            "file" => return Ok(Source::File(base.join(one.text()))),
            "made-up" => {
                let (mut packets, mut flows, mut seed) = (100_000, 1000, 1);
                for part in one.children() {
                    match part.name() {
                        "packets" => packets = count(&part)?,
                        "flows" => flows = count(&part)?,
                        "seed" => seed = count(&part)? as u64,
                        _ => return Err(unknown(&part)),
                    }
                }
                made = Some(Source::MadeUp(packets, flows, seed));
            }
            "rules" => {
                for part in one.children() {
                    match part.name() {
                        "from" => rules = Some(base.join(part.text())),
                        "protocols" => choice.protocols = list(&part),
                        "ports" => choice.ports = list(&part),
                        "servers" => choice.servers = list(&part),
                        "most" => choice.most = count(&part)?,
                        _ => return Err(unknown(&part)),
                    }
                }
            }
            _ => return Err(unknown(&one)),
        }
    }
    match (made, rules) {
        (Some(made), None) if captures.is_empty() => Ok(made),
        (None, Some(rules)) if !captures.is_empty() => Ok(Source::Recorded { captures, rules, choice, settings }),
        _ => Err(wrong(node, "work is `made-up`, or a `file`, or it has `captures` and `rules` with `from`")),
    }
}

fn mixed(node: &Node<'_>, known: &[(String, Source)]) -> Outcome<Mixed> {
    let mut trace = Mixed { name: node.name().to_owned(), work: String::new(), mix: None };
    let mut mix =
        Mix { packets: 100_000, mean: 778.0, open: 200, interleaving: Interleaving::Spread, longest: 2000, seed: 1 };
    let mut anew = false;
    for one in node.children() {
        anew |= one.name() != "work";
        match one.name() {
            "work" => trace.work = one.text().to_owned(),
            "packets" => mix.packets = count(&one)?,
            "mean" => mix.mean = number(&one)?,
            "open" => mix.open = count(&one)?,
            "bursts" => mix.interleaving = Interleaving::Bursts(count(&one)? as u32),
            "longest" => mix.longest = count(&one)?,
            "seed" => mix.seed = count(&one)? as u64,
            _ => return Err(unknown(&one)),
        }
    }
    if !known.iter().any(|w| w.0 == trace.work) {
        return Err(wrong(node, format!("there is no work `{}`", trace.work)));
    }
    trace.mix = anew.then_some(mix);
    Ok(trace)
}

fn traces(node: &Node<'_>, known: &[Mixed]) -> Outcome<Vec<String>> {
    let named = list(node);
    match named.iter().find(|n| !known.iter().any(|t| t.name == **n)) {
        Some(name) => Err(wrong(node, format!("there is no trace `{name}`"))),
        None => Ok(named),
    }
}

fn row(node: &Node<'_>, base: &Design, known: &[Mixed], file: &str) -> Outcome<Row> {
    let mut row = Row {
        title: String::new(),
        about: String::new(),
        traces: known.iter().map(|t| t.name.clone()).collect(),
        measure: Measure::Rate,
        axis: None,
        candidates: Vec::new(),
        claims: Vec::new(),
    };
    let mut design = base.clone();
    for one in node.children() {
        match one.name() {
            "title" => row.title = one.text().to_owned(),
            "about" => row.about = one.text().to_owned(),
            "traces" => row.traces = traces(&one, known)?,
            "measure" => row.measure = measure(&one)?,
            "design" => parameters(&mut design, &one)?,
            "vary" => {
                row.candidates = vec![Candidate { name: String::new(), design: design.clone() }];
                for part in one.children() {
                    if row.axis.is_none() {
                        row.axis = Some((part.name().to_owned(), list(&part)));
                    }
                    row.candidates = expand(row.candidates, &part, file).map_err(told)?;
                }
                for candidate in &row.candidates {
                    candidate.design.check().map_err(|why| wrong(&one, format!("{}: {why}", candidate.name)))?;
                }
            }
            "claims" => {
                for part in one.children() {
                    row.claims.push(claim(&part, &design, &row, known)?);
                }
            }
            _ => return Err(unknown(&one)),
        }
    }
    Ok(row)
}

fn point(node: &Node<'_>, base: &Design, row: &Row, known: &[Mixed]) -> Outcome<Point> {
    let mut point = Point { traces: row.traces.clone(), design: base.clone() };
    for one in node.children() {
        match one.name() {
            "trace" => point.traces = traces(&one, known)?,
            _ => point.design.set(&one).map_err(told)?,
        }
    }
    point.design.check().map_err(|why| wrong(node, why))?;
    Ok(point)
}

fn claim(node: &Node<'_>, base: &Design, row: &Row, known: &[Mixed]) -> Outcome<Claim> {
    let mut claim = Claim {
        say: String::new(),
        measure: row.measure,
        of: None,
        to: None,
        than: None,
        study: String::new(),
        least: 0.0,
        most: f64::INFINITY,
        incomparable: None,
        because: String::new(),
    };
    let (mut than, mut than_to) = (None, None);
    for one in node.children() {
        match one.name() {
            "say" => claim.say = one.text().to_owned(),
            "measure" => claim.measure = measure(&one)?,
            "of" => claim.of = Some(point(&one, base, row, known)?),
            "to" => claim.to = Some(point(&one, base, row, known)?),
            "than" => than = Some(point(&one, base, row, known)?),
            "than-to" => than_to = Some(point(&one, base, row, known)?),
            "study" => claim.study = one.text().to_owned(),
            "least" => claim.least = number(&one)?,
            "most" => claim.most = number(&one)?,
            "not-comparable" => claim.incomparable = Some(one.text().to_owned()),
            "because" => claim.because = one.text().to_owned(),
            _ => return Err(unknown(&one)),
        }
    }
    claim.than = match (than, than_to) {
        (Some(than), Some(to)) => Some((than, to)),
        (None, None) => None,
        _ => return Err(wrong(node, "`than` and `than-to` come together")),
    };
    let bounded = claim.least > 0.0 || claim.most.is_finite();
    match (&claim.of, &claim.incomparable) {
        (Some(_), None) if bounded => Ok(claim),
        (None, Some(_)) => Ok(claim),
        _ => Err(wrong(node, "a claim has `of` with `least` or `most`, or says why it is `not-comparable`")),
    }
}
