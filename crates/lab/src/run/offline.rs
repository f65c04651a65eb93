//! The run time of an engine that reads a capture and ends.

use std::path::Path;
use std::time::Duration;

use super::Capture;
use crate::engine::{Contract, Counts, From, Running};
use crate::made::Session;
use crate::problem::Outcome;
use crate::quiet::{Company, Witness};
use crate::watch::Watch;

/// The result of a run on a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offline {
    /// Seconds from the start until the engine was ready; 0 if it does not report that.
    pub(crate) start: f64,
    /// Seconds from then to its end.
    pub(crate) processing: f64,
    /// CPU seconds of all its threads, including the start.
    pub(crate) busy: f64,
    /// Peak memory in bytes.
    pub(crate) peak: f64,
    /// Its final counters.
    pub(crate) counts: Counts,
    /// Packets a second during processing.
    pub(crate) rate: f64,
    /// Other activity on the machine, including the start.
    pub(crate) company: Company,
}

/// Runs the engine on the capture at `path`. Samples are taken every `period` and go to folder `dir`.
///
/// # Errors
/// If it fails, or on a request to stop.
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
    // If an engine does not report readiness, the whole run counts as processing.
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
