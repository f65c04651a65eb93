//! Errors of a configuration, with their place.

use std::fmt;
use std::sync::Arc;

/// The place of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name as the user gave it; `--set` for a value of the command line.
    pub file: Arc<str>,
    /// Line, from 1; 0 for a whole file or the command line.
    pub line: u32,
    /// Column in characters, from 1; 0 if unknown.
    pub column: u32,
}

impl Place {
    /// The place of a whole file.
    pub fn file(name: &str) -> Place {
        Place { file: Arc::from(name), line: 0, column: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        Ok(())
    }
}

/// Why a configuration cannot be used, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    /// The file, line and column.
    pub place: Place,
    /// The error and its remedy, as one sentence.
    pub reason: String,
}

impl ConfigError {
    /// An error at a place.
    pub fn new(place: Place, reason: impl Into<String>) -> ConfigError {
        ConfigError { place, reason: reason.into() }
    }
}

/// The level of a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Worth knowing: a file was included, a section was defined twice.
    Info,
    /// Worth changing: an old spelling, an unknown key.
    Warning,
}

/// A remark about a configuration that is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its level.
    pub level: Level,
    /// Its place.
    pub place: Place,
    /// The message.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}
