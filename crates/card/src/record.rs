//! The parameters of a recorder of work traces. The recorder drives the engine, so it is in the command
//! (`crates/margay/src/record.rs`): this crate and the laboratory do not depend on the engine.

use std::path::{Path, PathBuf};

use crate::trace::Trace;

/// The parameters of a recording.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Capture files. A separate engine reads each, so their times need not be consistent.
    pub captures: &'a [PathBuf],
    /// The rules.
    pub rules: &'a Path,
    /// A configuration; without one, the one that comes with the engine.
    pub config: Option<&'a Path>,
    /// Settings that differ from the configuration (`name=value`).
    pub settings: &'a [String],
    /// Inspect as an inline engine does: each segment at once, because it is forwarded only after that.
    pub inline: bool,
}

/// Records a work trace; the error is one sentence.
pub type Recorder = fn(&Job<'_>) -> Result<Trace, String>;
