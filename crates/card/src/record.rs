//! The parameters of a recorder of work traces. The recorder drives the engine, so it is in the command
//! (`crates/margay/src/record.rs`): this crate and the laboratory do not depend on the engine.

use std::path::{Path, PathBuf};

use crate::trace::Trace;

/// The parameters of a recording.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Capture files. Each is read by an engine of its own, so that times may differ.
    pub captures: &'a [PathBuf],
    /// The rules.
    pub rules: &'a Path,
    /// A configuration; the one that comes with the engine where there is none.
    pub config: Option<&'a Path>,
    /// Settings that differ from the configuration (`name=value`).
    pub settings: &'a [String],
    /// As an engine between two networks inspects: each segment at once, since it goes on only then.
    pub inline: bool,
}

/// Records a work trace; the error is one sentence.
pub type Recorder = fn(&Job<'_>) -> Result<Trace, String>;
