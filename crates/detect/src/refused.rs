//! Why a rule is not loaded.

use crate::inspect::CompileError;

/// Why a rule is not loaded.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The rule is invalid.
    Error(String),
    /// The rule needs a feature missing from this build.
    Unsupported(String),
}

impl From<CompileError> for Refused {
    fn from(e: CompileError) -> Self {
        match e {
            CompileError::Unsupported { .. } => Refused::Unsupported(e.to_string()),
            _ => Refused::Error(e.to_string()),
        }
    }
}
