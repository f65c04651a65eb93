//! Samples at a fixed period.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;

use super::card::Cards;
use super::column::{Column, Kind, Source};
use super::counters::Counters;
use super::group::Group;
use super::machine::{Disks, Interrupts, Memory, Nodes, Pressure, Processors};
use super::network::{Interfaces, Softnet};
use super::process::Tree;
use super::threads::Threads;
use crate::clock::Moment;
use crate::problem::{Outcome, Problem};

/// A family of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// CPU time by core and mode, context switches, interrupts, the run queue
    Cpu,
    /// Interrupts by core
    Irq,
    /// Memory and page faults
    Mem,
    /// Disks
    Disk,
    /// Interfaces
    Net,
    /// The cards' own counters (ethtool -S)
    Card,
    /// Threads of the process, by name
    Threads,
    /// The kernel's packet queues: drops and squeezes
    Softnet,
    /// Memory nodes: hits and misses
    Numa,
    /// Pressure: the share of time in which tasks waited
    Pressure,
    /// Hardware performance counters
    Perf,
    /// Limits and pressure of the control group
    Cgroup,
}

/// The contents of samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct What {
    /// A process to follow, with all its descendants. Its network namespace and control group are then sampled.
    pub(crate) process: Option<u32>,
    /// Column families to leave out.
    pub(crate) without: Vec<Family>,
    /// Prefixes of thread names that get columns; if empty, the names of the threads that exist at the start.
    pub(crate) threads: Vec<String>,
}

/// Columns before the kernel's.
pub(crate) const LEADING: [(&str, &str); 4] = [
    ("time", "s since 1970"),
    ("elapsed", "s since the first sample"),
    ("period", "s since the last sample"),
    ("missed", "samples"),
];

/// Takes samples; the [module](super) describes them.
pub(crate) struct Sampler {
    sources: Vec<Box<dyn Source>>,
    columns: Vec<Column>,
    /// Sources that are not available, a sentence each.
    pub(crate) notes: Vec<String>,
    last: Vec<f64>,
    now: Vec<f64>,
    out: Vec<f64>,
    start: Moment,
    at: Moment,
    taken: u64,
    missed: u64,
}

impl Sampler {
    /// Opens all sources, and takes the first reading. The first sample counts from it.
    ///
    /// # Errors
    /// If the process does not exist.
    pub(crate) fn open(what: &What) -> Outcome<Sampler> {
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let mut notes = Vec::new();
        let wanted = |family: Family| !what.without.contains(&family);
        let mut cores = 0;
        {
            let mut add = |name: &str, source: std::io::Result<Box<dyn Source>>| match source {
                Ok(source) => sources.push(source),
                Err(error) => notes.push(format!("no {name}: {error}")),
            };
            if let Some(pid) = what.process {
                let tree = Tree::open(pid).map_err(|error| Problem::Failed(format!("process {pid}: {error}")))?;
                add("process", Ok(Box::new(tree)));
            }
            match Processors::open() {
                Ok(source) => {
                    cores = source.columns().iter().filter(|column| column.name.ends_with(".busy")).count() - 1;
                    if wanted(Family::Cpu) {
                        add("processors", Ok(Box::new(source)));
                    }
                }
                Err(error) => add("processors", Err(error)),
            }
            fn boxed<S: Source + 'static>(source: S) -> Box<dyn Source> {
                Box::new(source)
            }
            if wanted(Family::Irq) {
                add("interrupts by core", Interrupts::open().map(boxed));
            }
            if wanted(Family::Mem) {
                add("memory", Memory::open().map(boxed));
            }
            if wanted(Family::Disk) {
                add("disks", Disks::open().map(boxed));
            }
            if wanted(Family::Net) {
                add("interfaces", Interfaces::open(what.process).map(boxed));
            }
            if wanted(Family::Card) {
                add("statistics of cards", Cards::open(what.process).map(boxed));
            }
            if let Some(pid) = what.process.filter(|_| wanted(Family::Threads)) {
                add("threads", Threads::open(pid, &what.threads).map(boxed));
            }
            if wanted(Family::Softnet) {
                add("packet queues of the kernel", Softnet::open().map(boxed));
            }
            if wanted(Family::Numa) {
                add("memory nodes", Ok(Box::new(Nodes::open())));
            }
            if wanted(Family::Pressure) {
                add("pressure", Ok(Box::new(Pressure::open())));
            }
            if wanted(Family::Cgroup) {
                add("control group", Ok(Box::new(Group::open(what.process))));
            }
        }
        if wanted(Family::Perf) {
            match Counters::open(cores) {
                Ok(source) => sources.push(Box::new(source)),
                Err(why) => notes.push(format!(
                    "no counters of the processors (cycles, references to and misses of the last cache): {why}"
                )),
            }
        }
        let columns: Vec<Column> = sources.iter().flat_map(|source| source.columns()).collect();
        let start = Moment::now();
        let mut sampler = Sampler {
            sources,
            columns,
            notes,
            last: Vec::new(),
            now: Vec::new(),
            out: Vec::new(),
            start,
            at: start,
            taken: 0,
            missed: 0,
        };
        sampler.read();
        sampler.start = sampler.at;
        Ok(sampler)
    }

    /// The columns after the [`LEADING`] ones.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The names of all columns, in order.
    pub(crate) fn header(&self) -> impl Iterator<Item = &str> {
        LEADING.iter().map(|(name, _)| *name).chain(self.columns.iter().map(|column| column.name.as_str()))
    }

    fn read(&mut self) {
        std::mem::swap(&mut self.last, &mut self.now);
        self.now.clear();
        self.at = Moment::now();
        for source in &mut self.sources {
            source.read(&mut self.now);
        }
        debug_assert_eq!(self.now.len(), self.columns.len());
    }

    /// Takes a sample: the [`LEADING`] columns, then the others, in the order of [`Sampler::header`]. Unknown values are
    /// NaN.
    pub(crate) fn sample(&mut self, missed: u64) -> &[f64] {
        let before = self.at;
        self.read();
        let period = self.at.since(before).as_secs_f64();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.out.clear();
        self.out.extend([now, self.at.since(self.start).as_secs_f64(), period, missed as f64]);
        for ((column, now), last) in self.columns.iter().zip(&self.now).zip(&self.last) {
            // A counter that went back was reset, or belongs to another object now, so its growth is unknown.
            let grown = Some(now - last).filter(|by| *by >= 0.0).unwrap_or(f64::NAN);
            self.out.push(match column.kind {
                Kind::Gauge => *now,
                Kind::Count => grown,
                Kind::Share { second } => grown / second / period * 100.0,
            });
        }
        self.taken += 1;
        self.missed += missed;
        &self.out
    }

    /// Samples every `period` after the first reading, until `each` returns `false`, or `stop` or a signal asks to stop.
    /// The times are fixed in advance, so a late sample does not delay others. Skipped samples are counted in the next
    /// one.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(crate) fn run(
        &mut self,
        period: Duration,
        stop: impl Fn() -> bool,
        mut each: impl FnMut(&[f64]) -> Outcome<bool>,
    ) -> Outcome<()> {
        let step = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut number = 1;
        loop {
            let due = Moment(self.start.0.saturating_add(step.saturating_mul(number)));
            if !due.sleep_unless(&stop) {
                return Ok(());
            }
            let late = Moment::now().since(due);
            let missed = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX) / step;
            if !each(self.sample(missed))? {
                return Ok(());
            }
            number += missed + 1;
        }
    }

    /// Number of samples taken and missed.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.taken, self.missed)
    }
}
