//! Compares many designs: all combinations of a grid of parameters that can be built, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_config::{Config, Node};

use crate::Bad;
use crate::area::{Estimate, estimate};
use crate::cost::Costs;
use crate::design::Design;
use crate::model::{Load, Outcome, simulate};
use crate::trace::Trace;

/// One design of a grid.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The varied parameters, as `name=value` separated by spaces.
    pub name: String,
    /// The design.
    pub design: Design,
}

/// Reads a grid, which is a design file whose parameters may have lists of values. Returns every combination that can be built, in
/// the order of the file, and the number of those that cannot.
///
/// # Errors
/// An unknown key or a value that cannot be read, with file and line.
pub fn grid(text: &str, file: &str) -> Result<(Vec<Candidate>, usize), Bad> {
    let config = Config::from_str(text, file)?;
    let mut all = vec![Candidate { name: String::new(), design: Design::default() }];
    for node in config.root().children() {
        all = expand(all, &node, file)?;
    }
    let before = all.len();
    all.retain(|c| c.design.check().is_ok());
    let impossible = before - all.len();
    Ok((all, impossible))
}

/// Sets a parameter of every candidate. For a list of values, the result has each candidate once with each value.
///
/// # Errors
/// An unknown key or a value that cannot be read, with file and line.
pub fn expand(mut all: Vec<Candidate>, node: &Node<'_>, file: &str) -> Result<Vec<Candidate>, Bad> {
    if !node.is_sequence() {
        for candidate in &mut all {
            candidate.design.set(node)?;
        }
        return Ok(all);
    }
    let values: Vec<Node<'_>> = node.children().collect();
    if values.is_empty() || all.len() * values.len() > 1_000_000 {
        return Err(node.error(format!("`{}` makes none or more than a million designs", node.name())).into());
    }
    let mut more = Vec::with_capacity(all.len() * values.len());
    for candidate in &all {
        for value in &values {
            let text = format!("%YAML 1.1\n---\n{}: {}\n", node.name(), value.text());
            let single = Config::from_str(&text, file)?;
            let mut candidate = candidate.clone();
            for one in single.root().children() {
                candidate.design.set(&one).map_err(|_| {
                    Bad::from(value.error(format!("`{}` is no value of `{}`", value.text(), node.name())))
                })?;
            }
            if !candidate.name.is_empty() {
                candidate.name.push(' ');
            }
            candidate.name.push_str(&format!("{}={}", node.name(), value.text().replace(' ', "")));
            more.push(candidate);
        }
    }
    Ok(more)
}

/// The result of a design's run.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Index in the grid.
    pub number: usize,
    /// Throughput in bit/s.
    pub rate: f64,
    /// Share of lost packets.
    pub loss: f64,
    /// Latency that 99 % of packets do not exceed, in s.
    pub latency: f64,
    /// Area and power.
    pub cost: Estimate,
}

impl Found {
    fn new(number: usize, design: &Design, outcome: &Outcome) -> Found {
        Found {
            number,
            rate: outcome.rate(),
            loss: outcome.loss(),
            latency: outcome.latency_at(0.99),
            cost: estimate(design),
        }
    }
}

/// Runs the candidates whose numbers are in `todo` on `threads` threads. `each` gets every result, from one thread at a
/// time, and returns whether to continue. The number of threads affects only the order of the calls.
pub fn run(
    candidates: &[Candidate],
    todo: &[usize],
    costs: &Costs,
    trace: &Trace,
    load: Load,
    threads: usize,
    each: &mut (dyn FnMut(&Found) -> bool + Send),
) {
    replay(candidates, todo, costs, trace, &|_| load, threads, &mut |number, outcome| {
        candidates.get(number).is_none_or(|c| each(&Found::new(number, &c.design, &outcome)))
    });
}

/// As [`run`], with a load for each candidate by its index, and with the whole outcome.
pub fn replay(
    candidates: &[Candidate],
    todo: &[usize],
    costs: &Costs,
    trace: &Trace,
    load: &(dyn Fn(usize) -> Load + Sync),
    threads: usize,
    each: &mut (dyn FnMut(usize, Outcome) -> bool + Send),
) {
    let next = AtomicUsize::new(0);
    let each = Mutex::new(each);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(number) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(candidate) = candidates.get(*number) else { continue };
                    let outcome = simulate(&candidate.design, costs, trace, load(*number));
                    let mut each = each.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if !each(*number, outcome) {
                        next.store(todo.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The designs that no other beats in both throughput and area, in ascending order of area.
pub fn pareto(found: &[Found]) -> Vec<&Found> {
    let mut by_area: Vec<&Found> = found.iter().collect();
    by_area.sort_by(|a, b| {
        a.cost.area.total_cmp(&b.cost.area).then(b.rate.total_cmp(&a.rate)).then(a.number.cmp(&b.number))
    });
    let mut best = f64::NEG_INFINITY;
    by_area.retain(|f| {
        f.rate > best && {
            best = f.rate;
            true
        }
    });
    by_area
}

/// The design with the least area that reaches `rate` (bit/s) and loses at most the share `loss`.
pub fn cheapest(found: &[Found], rate: f64, loss: f64) -> Option<&Found> {
    let reaches = found.iter().filter(|f| f.rate >= rate && f.loss <= loss);
    reaches.min_by(|a, b| a.cost.area.total_cmp(&b.cost.area).then(a.number.cmp(&b.number)))
}
