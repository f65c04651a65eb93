//! An engine that reads a capture and ends: how long it takes.

use std::path::Path;
use std::time::Duration;

use super::Capture;
use crate::engine::{Contract, Counts, From, Running};
use crate::made::Session;
use crate::problem::Outcome;
use crate::quiet::{Company, Witness};
use crate::watch::Watch;

/// What a run over a capture took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offline {
    /// Seconds from the start until the engine was ready; 0 where it does not say when it is.
    pub(crate) start: f64,
    /// Seconds from there to its end.
    pub(crate) processing: f64,
    /// Processor seconds of all its threads, the start included.
    pub(crate) busy: f64,
    /// The most memory, in bytes.
    pub(crate) peak: f64,
    /// What it counted last.
    pub(crate) counts: Counts,
    /// Packets a second while processing.
    pub(crate) rate: f64,
    /// What else the machine did, the start included.
    pub(crate) company: Company,
}

/// Runs the engine over the capture at `path`, with samples every `period` in folder `dir`.
///
/// # Errors
/// Where it fails, or somebody asks to stop.
pub(crate) fn run(
    contract: &Contract,
    path: &Path,
    capture: &Capture,
    period: Duration,
    within: Duration,
    dir: &Path,
    session: &mut Session,
) -> Outcome<Offline> {
    let witness = Witness::begin();
    // Where an engine says nothing when it is ready, the whole run is processing.
    let running = Running::start(contract, &From::Capture(path.to_owned()), dir, dir, session)?;
    let watch = Watch::start(running.pid(), running.counters(), period, dir);
    let (started, ready) = (running.started, running.ready);
    let mut counters = running.counters();
    let end = running.finish(within)?;
    let company = witness.end();
    watch.end()?;
    let processing = end.at.since(ready).as_secs_f64();
    Ok(Offline {
        start: ready.since(started).as_secs_f64(),
        processing,
        busy: end.busy,
        peak: end.peak,
        counts: counters.as_mut().map_or(Counts::UNKNOWN, |counters| counters.read()),
        rate: capture.packets / processing,
        company,
    })
}
