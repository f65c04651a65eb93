//! Errors as sentences for the user.

use std::fmt::Display;
use std::path::Path;

/// The reason that a laboratory command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The arguments or a given file make no sense: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// Something failed: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// A signal asked to stop, and the results so far are kept: exit status 130.
    #[error("{0}")]
    Interrupted(String),
}

impl Problem {
    /// A file could not be read, created or written; `what` names the operation ("read the state").
    pub(crate) fn file(what: &str, path: &Path, why: impl Display) -> Problem {
        Problem::Failed(format!("cannot {what} {}: {why}", path.display()))
    }

    /// The exit status for this problem.
    pub(crate) fn exit(&self) -> u8 {
        match self {
            Problem::Usage(_) => 2,
            Problem::Failed(_) => 1,
            Problem::Interrupted(_) => 130,
        }
    }
}

/// The result type of the laboratory.
pub(crate) type Outcome<T> = Result<T, Problem>;

impl From<margay_config::ConfigError> for Problem {
    fn from(error: margay_config::ConfigError) -> Problem {
        Problem::Usage(error.to_string())
    }
}
