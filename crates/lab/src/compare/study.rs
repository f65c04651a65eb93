//! Compares the figures of a published study with this machine's, with a verdict from the confidence interval. A figure is
//! the ratio of an engine to the baseline, or of an engine on several interfaces to itself on fewer.

use margay_config::Node;

use super::experiment::Experiment;
use super::plan::State;
use super::{Comparison, PointKind};
use crate::engine::only;
use crate::isolate::{Kind, emulated};
use crate::problem::{Outcome, Problem};
use crate::stats::Interval;

/// A study that an experiment repeats.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Study {
    pub(super) title: String,
    /// Claims of the study that this machine, or any single machine, cannot reproduce.
    pub(super) not_shown: String,
    figures: Vec<Figure>,
}

/// One figure of the study: a ratio to the baseline of this experiment, or to fewer interfaces.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    what: String,
    load: String,
    /// The engine, by name or by isolation.
    of: Of,
    /// The number of interfaces whose points are compared with those of the load's first number.
    interfaces: Option<u32>,
    /// A column of `runs.csv`.
    metric: String,
    /// The smallest and largest value in the study.
    theirs: (f64, f64),
}

#[derive(Clone, Debug, PartialEq)]
enum Of {
    Engine(String),
    Isolation(Kind),
}

impl Study {
    /// Reads `study:`.
    ///
    /// # Errors
    /// If it makes no sense, with its place.
    pub(super) fn read(root: Node<'_>) -> Outcome<Option<Study>> {
        let Some(node) = root.child("study") else { return Ok(None) };
        only(node, &["title", "not-shown", "figures"])?;
        let mut figures = Vec::new();
        for figure in node.child("figures").into_iter().flat_map(|figures| figures.children()) {
            only(figure, &["load", "engine", "isolation", "interfaces", "metric", "theirs"])?;
            let text = |key: &str| {
                let missing = || Problem::from(figure.error(format!("'{key}' is missing")));
                figure.get(key).map(str::to_owned).ok_or_else(missing)
            };
            let of = match (figure.get("engine"), figure.get("isolation")) {
                (Some(name), None) => Of::Engine(name.to_owned()),
                (None, Some(name)) => Of::Isolation(
                    Kind::named(name)
                        .ok_or_else(|| Problem::from(figure.error(format!("isolation: '{name}' is not known"))))?,
                ),
                _ => return Err(figure.error("either an engine or an isolation").into()),
            };
            let theirs = text("theirs")?;
            let (least, most) = theirs.split_once(" to ").unwrap_or((&theirs, &theirs));
            let number = |word: &str| word.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
            let (Some(least), Some(most)) = (number(least), number(most)) else {
                return Err(figure.error(format!("theirs: '{theirs}' is no ratio: 0.9, or 0.9 to 1.1")).into());
            };
            let interfaces = figure.int("interfaces")?;
            let interfaces = interfaces
                .map(|count| {
                    u32::try_from(count).map_err(|_| Problem::from(figure.error("interfaces: a number of them")))
                })
                .transpose()?;
            let (what, load, metric) = (figure.name().to_owned(), text("load")?, text("metric")?);
            figures.push(Figure { what, load, of, interfaces, metric, theirs: (least, most) });
        }
        let get = |key: &str| node.get(key).unwrap_or_default().trim().to_owned();
        Ok(Some(Study { title: get("title"), not_shown: get("not-shown"), figures }))
    }

    /// Checks that the experiment contains everything that the figures refer to, or left it out on this machine.
    ///
    /// # Errors
    /// If a load is missing.
    pub(super) fn check(&self, experiment: &Experiment) -> Outcome<()> {
        for figure in &self.figures {
            let Some(load) = experiment.loads.iter().find(|load| load.name == figure.load) else {
                return Err(Problem::Usage(format!("study: {}: there is no load '{}'", figure.what, figure.load)));
            };
            if figure.interfaces.is_some_and(|count| !load.interfaces[1..].contains(&count)) {
                return Err(Problem::Usage(format!(
                    "study: {}: load '{}' is not on so many interfaces after its first number of them",
                    figure.what, figure.load
                )));
            }
        }
        Ok(())
    }
}

/// The verdict of our interval on a study's figure, with a tolerance of a tenth on either side.
fn verdict(
    theirs: (f64, f64),
    ours: Option<Interval>,
    emulated: bool,
    busy: bool,
    unreached: Option<&'static str>,
) -> &'static str {
    if let Some(why) = unreached {
        return why;
    }
    let Some(ours) = ours else { return "not measured here" };
    if busy {
        return "no verdict: the machine was busy";
    }
    if emulated {
        return "no verdict: the processor is emulated here, the study had a virtual one";
    }
    let (least, most) = (theirs.0 * 0.9, theirs.1 * 1.1);
    if !ours.low.is_finite() || !ours.high.is_finite() {
        return "no verdict: too few repeats for an interval";
    }
    match (ours.low >= least && ours.high <= most, ours.high < least || ours.low > most) {
        (true, _) => "repeated",
        (_, true) => "not repeated",
        _ => "open: our interval is partly within the study's",
    }
}

/// A figure as the report shows it.
pub(super) struct Row {
    pub(super) what: String,
    pub(super) at: String,
    pub(super) theirs: String,
    pub(super) ours: String,
    pub(super) verdict: &'static str,
}

impl Comparison {
    /// Rows that compare the study's figures with ours, one for each point of a figure's load.
    pub(super) fn beside_study(&self, state: &State) -> Vec<Row> {
        let mut rows = Vec::new();
        for figure in self.experiment.study.iter().flat_map(|study| &study.figures) {
            let engine = self.experiment.engines.iter().position(|engine| match &figure.of {
                Of::Engine(name) => engine.name == *name,
                Of::Isolation(kind) => engine.apart.kind == *kind,
            });
            let (least, most) = figure.theirs;
            let theirs = if least == most { format!("{least}") } else { format!("{least} to {most}") };
            let points = self.points.iter().enumerate();
            let points = points.filter(|(_, point)| self.experiment.loads[point.load].name == figure.load);
            for (at, point) in
                points.filter(|(_, point)| figure.interfaces.is_none_or(|count| point.interfaces == count))
            {
                let other = |engine| match figure.interfaces {
                    Some(_) => (point.first, engine),
                    None => (at, self.experiment.baseline),
                };
                let slow = engine.and_then(|engine| {
                    [(at, engine), other(engine)]
                        .into_iter()
                        .find_map(|(at, engine)| self.sender_fell_short(state, at, engine))
                });
                let ours = engine
                    .filter(|_| slow.is_none())
                    .and_then(|engine| self.ratio_of(state, (at, engine), other(engine), &figure.metric));
                let tcg = figure.of == Of::Isolation(Kind::Machine) && ours.is_some() && emulated();
                let disturbed = |(at, engine): (usize, usize)| self.disturbed(state, at, &[engine]).0 > 0;
                let busy = engine.is_some_and(|engine| disturbed((at, engine)) || disturbed(other(engine)));
                let shown = ours.map_or_else(
                    || "—".to_owned(),
                    |ours| match ours.low.is_finite() {
                        true => format!("{:.3} ({:.3} to {:.3})", ours.value, ours.low, ours.high),
                        false => format!("{:.3} (of {})", ours.value, ours.count),
                    },
                );
                rows.push(Row {
                    what: figure.what.clone(),
                    at: point.label.clone(),
                    theirs: theirs.clone(),
                    ours: shown,
                    verdict: verdict(figure.theirs, ours, tcg, busy, slow),
                });
            }
        }
        rows
    }

    /// The verdict if an engine at a point got less than its figure is of.
    fn sender_fell_short(&self, state: &State, at: usize, engine: usize) -> Option<&'static str> {
        match self.points.get(at)?.kind {
            PointKind::Rate { .. } if self.unreached(state, at, engine) => {
                Some("no verdict: the sender did not reach this rate")
            }
            PointKind::Search { .. } if self.limited(state, at, engine) => {
                Some("no verdict: the sender, not the engine, ended a search")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_by_the_whole_interval() {
        let ours = |low: f64, high: f64| Some(Interval { value: (low + high) / 2.0, low, high, count: 5 });
        assert_eq!(verdict((1.0, 1.0), ours(0.95, 1.05), false, false, None), "repeated");
        assert_eq!(verdict((1.0, 1.0), ours(1.2, 1.4), false, false, None), "not repeated");
        assert_eq!(verdict((8.0, 14.0), ours(2.0, 3.0), false, false, None), "not repeated");
        assert!(verdict((1.0, 1.0), ours(0.95, 1.4), false, false, None).starts_with("open"));
        assert!(verdict((1.0, 1.0), ours(f64::NAN, f64::NAN), false, false, None).contains("too few repeats"));
        assert!(verdict((8.0, 14.0), ours(8.0, 9.0), true, false, None).contains("emulated"));
        assert_eq!(verdict((1.0, 1.0), None, false, false, None), "not measured here");
        assert_eq!(verdict((1.0, 1.0), ours(0.95, 1.05), false, true, None), "no verdict: the machine was busy");
        let slow_sender =
            verdict((1.0, 1.0), None, false, true, Some("no verdict: the sender did not reach this rate"));
        assert_eq!(slow_sender, "no verdict: the sender did not reach this rate");
    }
}
