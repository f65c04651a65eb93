//! Observers of detection: a run has one, or none.

use std::sync::Arc;

use margay_detect::{Detect, DetectState};

use crate::Failed;

/// How detection is watched.
#[derive(Debug, Clone)]
pub(crate) enum Watching {
    /// Not at all: a normal run.
    Nobody,
    /// Everything about these rules, by number, is recorded, and there is no other output.
    Explain(Vec<u32>),
    /// Measures each rule's cost, for one packet in so many.
    Profile(u32),
    /// Measures the cost of each packet's processing steps.
    Packets,
}

/// A worker's state for these rules.
///
/// # Errors
/// A matcher cannot allocate its memory.
pub(crate) fn state(detect: &Arc<Detect>, watching: &Watching) -> Result<DetectState, Failed> {
    let state = match watching {
        Watching::Nobody => DetectState::new(detect),
        Watching::Explain(rules) => DetectState::explaining(detect, rules),
        Watching::Profile(every) => DetectState::profiling(detect, *every),
        Watching::Packets => DetectState::timing(detect),
    };
    state.map_err(|e| Failed::new("detect", e.to_string()))
}
