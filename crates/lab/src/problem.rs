//! What went wrong, as a sentence for the person who asked.

use std::fmt::Display;
use std::path::Path;

/// Why a command of the laboratory could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// What was asked makes no sense, or a file that was given does not: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// Something failed: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// Somebody asked to stop, and what there was is kept: exit status 130.
    #[error("{0}")]
    Interrupted(String),
}

impl Problem {
    /// A file could not be read, made or written: `what` names the doing ("read the state").
    pub(crate) fn file(what: &str, path: &Path, why: impl Display) -> Problem {
        Problem::Failed(format!("cannot {what} {}: {why}", path.display()))
    }

    /// The exit status of a command that ended so.
    pub(crate) fn exit(&self) -> u8 {
        match self {
            Problem::Usage(_) => 2,
            Problem::Failed(_) => 1,
            Problem::Interrupted(_) => 130,
        }
    }
}

/// What a part of the laboratory returns.
pub(crate) type Outcome<T> = Result<T, Problem>;

impl From<margay_config::ConfigError> for Problem {
    fn from(error: margay_config::ConfigError) -> Problem {
        Problem::Usage(error.to_string())
    }
}
