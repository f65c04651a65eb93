//! Experiment files of `margay lab card run` (`lab/experiments/card-*.yaml`, docs/card.md).

use std::path::{Path, PathBuf};

use margay_card::Bad;
use margay_card::design::Design;
use margay_card::mix::{Interleaving, Mix};
use margay_card::search::{Candidate, expand};
use margay_config::{Config, Node};

use super::rules::Choice;
use crate::problem::{Outcome, Problem};

/// Longest chain of experiments that take their work from one another.
const MOST_LIKE: u32 = 4;

/// The source of recorded work.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Synthetic work: packets, flows, seed.
    MadeUp(usize, usize, u64),
    /// Captures, the rules file and the choice from it, settings.
    Recorded { captures: Vec<(PathBuf, usize)>, rules: PathBuf, choice: Choice, settings: Vec<String>, inline: bool },
    /// A work trace.
    File(PathBuf),
}

/// A trace: its name, the name of its work, and how flows are remixed (`None` leaves them as they are).
#[derive(Debug, Clone)]
pub(crate) struct Mixed {
    pub(crate) name: String,
    pub(crate) work: String,
    pub(crate) mix: Option<Mix>,
}

/// A quantity measured in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Rate,
    Rows,
    Verification,
    Cores,
    Matcher,
    Latency,
    Mean,
    Loss,
    Reports,
    Host,
    HostBytes,
}

/// Names and units of measures.
pub(crate) const MEASURES: [(&str, Measure, &str); 11] = [
    ("rate", Measure::Rate, "Mbit/s"),
    ("rows", Measure::Rows, "rows opened a packet"),
    ("verification", Measure::Verification, "ns of verification a packet"),
    ("cores", Measure::Cores, "% of the cores' time"),
    ("matcher", Measure::Matcher, "% of the matcher's time"),
    ("latency", Measure::Latency, "µs for 99 % of packets"),
    ("mean-latency", Measure::Mean, "µs a packet"),
    ("loss", Measure::Loss, "% of packets lost"),
    ("reports", Measure::Reports, "reports verified for 1,000 packets"),
    ("host", Measure::Host, "host cores at 100 Gbit/s"),
    ("host-bytes", Measure::HostBytes, "% of the bytes go to the host"),
];

/// How packets are offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Offered {
    /// As fast as the card has room.
    Saturated,
    /// At this many bit/s, at random times.
    Rate(f64),
    /// At a share of the design's own saturation rate, at random times.
    Share(f64),
}

/// A design on traces. Its value is the mean over the traces.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) traces: Vec<String>,
    pub(crate) design: Design,
    pub(crate) offered: Offered,
}

/// A claim, compared with the study.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The claim's text.
    pub(crate) say: String,
    pub(crate) measure: Measure,
    /// The value is `of`, divided by `to` if given, and by the ratio of `than` to `than_to` if given.
    pub(crate) of: Option<Point>,
    pub(crate) to: Option<Point>,
    pub(crate) than: Option<(Point, Point)>,
    /// The figure as the study prints it.
    pub(crate) study: String,
    /// The claim is repeated if the value is within these bounds.
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The reason that it cannot be compared.
    pub(crate) incomparable: Option<String>,
    /// A reason to show with the verdict.
    pub(crate) because: String,
}

/// A table or figure.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) traces: Vec<String>,
    pub(crate) measure: Measure,
    /// The parameter on the axis, its values, and how many other combinations each value has.
    pub(crate) axis: Option<(String, Vec<String>)>,
    /// Designs: for each value of the axis, all other combinations.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) offered: Offered,
    pub(crate) claims: Vec<Claim>,
}

/// A position in an experiment file.
struct At<'e> {
    file: &'e str,
    base: &'e Path,
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

fn yes(node: &Node<'_>) -> Outcome<bool> {
    match node.text().trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(wrong(node, format!("`{other}` is not yes or no"))),
    }
}

fn count(node: &Node<'_>) -> Outcome<usize> {
    let number = node.text().trim().parse::<usize>().ok().filter(|n| (1..=50_000_000).contains(n));
    number.ok_or_else(|| wrong(node, format!("`{}` is not a number from 1 to 50,000,000", node.text())))
}

/// A value as a list of one, or a list's values.
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
    /// An unknown key, or something that cannot be read or built, with file and line.
    pub(crate) fn read(path: &Path) -> Outcome<Experiment> {
        Experiment::read_from(path, 0)
    }

    /// As [`Self::read`], where `depth` experiments refer to this one.
    fn read_from(path: &Path, depth: u32) -> Outcome<Experiment> {
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
                        e.work.push((one.name().to_owned(), source(&one, base, depth)?));
                    }
                }
                "traces" => {
                    for one in node.children() {
                        e.traces.push(mixed(&one, &e.work)?);
                    }
                }
                "design" => parameters(&mut design, &node, base)?,
                "rows" => {
                    for one in node.children() {
                        e.rows.push(row(&one, &design, &e.traces, &At { file: &file, base })?);
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

fn parameters(design: &mut Design, node: &Node<'_>, base: &Path) -> Outcome<()> {
    for one in node.children() {
        parameter(design, &one, base)?;
    }
    design.check().map_err(|why| wrong(node, why))
}

/// Sets a parameter. `card` names a design file, which sets all of them.
fn parameter(design: &mut Design, node: &Node<'_>, base: &Path) -> Outcome<()> {
    if node.name() != "card" {
        return design.set(node).map_err(told);
    }
    let path = base.join(node.text());
    let text = std::fs::read_to_string(&path).map_err(|e| Problem::file("read", &path, e))?;
    *design = Design::from_yaml(&text, &path.display().to_string()).map_err(told)?;
    Ok(())
}

/// A list of captures, each with the number of copies of its flows: ` x 3` after the name means three.
fn weighted(node: &Node<'_>, base: &Path) -> Outcome<Vec<(PathBuf, usize)>> {
    let mut all = Vec::new();
    for named in list(node) {
        let (name, times) = match named.rsplit_once(" x ") {
            Some((name, times)) => {
                let times = times.trim().parse::<usize>().ok().filter(|n| (1..=1000).contains(n));
                (name.trim(), times.ok_or_else(|| wrong(node, format!("`{named}`: how often is not 1 to 1000")))?)
            }
            None => (named.as_str(), 1),
        };
        all.push((base.join(name), times));
    }
    Ok(all)
}

/// Ranges of numbers, such as `2100000-2103999`.
fn ranges(node: &Node<'_>) -> Outcome<Vec<(u64, u64)>> {
    let range = |text: &String| {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some((first, last))
    };
    let read =
        |text: &String| range(text).ok_or_else(|| wrong(node, format!("`{text}` is not a range of numbers (1-9)")));
    list(node).iter().map(read).collect()
}

/// The work of another experiment: its file, and the work's name if it differs.
fn like(node: &Node<'_>, name: &str, base: &Path, depth: u32) -> Outcome<Source> {
    let (file, name) = node.text().split_once(' ').unwrap_or((node.text(), name));
    if depth == MOST_LIKE {
        return Err(wrong(node, "experiments refer to each other"));
    }
    let other = Experiment::read_from(&base.join(file), depth + 1)?;
    let found = other.work.into_iter().find(|w| w.0 == name.trim());
    found.map(|w| w.1).ok_or_else(|| wrong(node, format!("{file} has no work `{name}`")))
}

fn source(node: &Node<'_>, base: &Path, depth: u32) -> Outcome<Source> {
    let (mut captures, mut rules, mut settings, mut choice) = (Vec::new(), None, Vec::new(), Choice::default());
    let (mut made, mut inline) = (None, false);
    for one in node.children() {
        match one.name() {
            "like" => match like(&one, node.name(), base, depth)? {
                Source::Recorded { captures: c, rules: r, choice: o, settings: s, inline: i } => {
                    (captures, rules, choice, settings, inline) = (c, Some(r), o, s, i);
                }
                _ => return Err(wrong(&one, "that work is not recorded")),
            },
            "inline" => inline = yes(&one)?,
            "captures" => captures = weighted(&one, base)?,
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
                (rules, choice) = (None, Choice::default());
                for part in one.children() {
                    match part.name() {
                        "from" => rules = Some(base.join(part.text())),
                        "protocols" => choice.protocols = list(&part),
                        "ports" => choice.ports = list(&part),
                        "servers" => choice.servers = list(&part),
                        "most" => choice.most = count(&part)?,
                        "numbers" => choice.numbers = ranges(&part)?,
                        "except" => {
                            let read = |text: &String| {
                                text.trim()
                                    .parse()
                                    .map_err(|_| wrong(&part, format!("`{text}` is not the number of a rule")))
                            };
                            choice.except = list(&part).iter().map(read).collect::<Outcome<_>>()?;
                        }
                        _ => return Err(unknown(&part)),
                    }
                }
            }
            _ => return Err(unknown(&one)),
        }
    }
    match (made, rules) {
        (Some(made), None) if captures.is_empty() => Ok(made),
        (None, Some(rules)) if !captures.is_empty() => {
            Ok(Source::Recorded { captures, rules, choice, settings, inline })
        }
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

fn offered(node: &Node<'_>) -> Outcome<Offered> {
    let text = node.text().trim();
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    let read = match (text.strip_suffix('%'), text.strip_suffix("Mbit/s"), text.strip_suffix("Gbit/s")) {
        (Some(share), _, _) => number(share).filter(|n| *n <= 1000.0).map(|n| Offered::Share(n / 100.0)),
        (_, Some(rate), _) => number(rate).map(|n| Offered::Rate(n * 1e6)),
        (_, _, Some(rate)) => number(rate).map(|n| Offered::Rate(n * 1e9)),
        _ if text == "saturated" => Some(Offered::Saturated),
        _ => None,
    };
    read.ok_or_else(|| wrong(node, format!("`{text}` is not `saturated`, a rate (600 Mbit/s), or a share (80 %)")))
}

fn traces(node: &Node<'_>, known: &[Mixed]) -> Outcome<Vec<String>> {
    let named = list(node);
    match named.iter().find(|n| !known.iter().any(|t| t.name == **n)) {
        Some(name) => Err(wrong(node, format!("there is no trace `{name}`"))),
        None => Ok(named),
    }
}

fn row(node: &Node<'_>, base: &Design, known: &[Mixed], at: &At<'_>) -> Outcome<Row> {
    let mut row = Row {
        title: String::new(),
        about: String::new(),
        traces: known.iter().map(|t| t.name.clone()).collect(),
        measure: Measure::Rate,
        axis: None,
        candidates: Vec::new(),
        offered: Offered::Saturated,
        claims: Vec::new(),
    };
    let mut design = base.clone();
    for one in node.children() {
        match one.name() {
            "title" => row.title = one.text().to_owned(),
            "about" => row.about = one.text().to_owned(),
            "traces" => row.traces = traces(&one, known)?,
            "measure" => row.measure = measure(&one)?,
            "design" => parameters(&mut design, &one, at.base)?,
            "offered" => row.offered = offered(&one)?,
            "vary" => {
                row.candidates = vec![Candidate { name: String::new(), design: design.clone() }];
                for part in one.children() {
                    if row.axis.is_none() {
                        row.axis = Some((part.name().to_owned(), list(&part)));
                    }
                    row.candidates = expand(row.candidates, &part, at.file).map_err(told)?;
                }
                for candidate in &row.candidates {
                    candidate.design.check().map_err(|why| wrong(&one, format!("{}: {why}", candidate.name)))?;
                }
            }
            "claims" => {
                for part in one.children() {
                    row.claims.push(claim(&part, &design, &row, known, at.base)?);
                }
            }
            _ => return Err(unknown(&one)),
        }
    }
    Ok(row)
}

fn point(node: &Node<'_>, base: &Design, row: &Row, known: &[Mixed], dir: &Path) -> Outcome<Point> {
    let mut point = Point { traces: row.traces.clone(), design: base.clone(), offered: row.offered };
    for one in node.children() {
        match one.name() {
            "trace" => point.traces = traces(&one, known)?,
            "offered" => point.offered = offered(&one)?,
            _ => parameter(&mut point.design, &one, dir)?,
        }
    }
    point.design.check().map_err(|why| wrong(node, why))?;
    Ok(point)
}

fn claim(node: &Node<'_>, base: &Design, row: &Row, known: &[Mixed], dir: &Path) -> Outcome<Claim> {
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
            "of" => claim.of = Some(point(&one, base, row, known, dir)?),
            "to" => claim.to = Some(point(&one, base, row, known, dir)?),
            "than" => than = Some(point(&one, base, row, known, dir)?),
            "than-to" => than_to = Some(point(&one, base, row, known, dir)?),
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
        // A study's claim has bounds; a question of our own is answered by the figure.
        (Some(_), None) if bounded != claim.study.is_empty() => Ok(claim),
        (None, Some(_)) => Ok(claim),
        _ => Err(wrong(
            node,
            "a claim of a `study` has `of` with `least` or `most`, or says why it is `not-comparable`; a question has `of` and no bounds",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_own_experiments_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_string_lossy().starts_with("card-") {
                continue;
            }
            let experiment = Experiment::read(&path).unwrap_or_else(|problem| panic!("{problem}"));
            assert!(!experiment.about.is_empty() && experiment.costs.is_some(), "{}", path.display());
            count += 1;
        }
        assert_eq!(count, 4);
    }
}
