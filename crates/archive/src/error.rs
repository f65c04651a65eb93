//! Errors of archives.

use std::io;
use std::path::PathBuf;

/// Why an archive could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive, or something else, is there already.
    #[error("'{}' exists already: choose another folder with --into, or remove it", .0.display())]
    Exists(PathBuf),
    /// An earlier run was interrupted.
    #[error("'{}' holds a split that did not finish: remove that folder and split again", .0.display())]
    Unfinished(PathBuf),
    /// A file could not be written.
    #[error("'{}' cannot be written: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("'{}' cannot be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `archive.json` or an index is not what this version writes.
    #[error("'{}' is not an index that this version can read: {reason}; split the captures again", file.display())]
    Index {
        /// The file.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A part is cut or damaged.
    #[error("'{}' is broken at byte {at}: {reason}; restore the part from a copy, or split the captures again", file.display())]
    Part {
        /// The file.
        file: PathBuf,
        /// Offset of the damaged block.
        at: u64,
        /// The problem.
        reason: &'static str,
    },
    /// A requested part is not in the archive.
    #[error("the archive has no part '{0}': archive.json lists its parts")]
    NoPart(String),
    /// The limit of files.
    #[error("the captures need more than {0} parts: use longer windows (--by-time) or fewer buckets (--parts)")]
    TooManyParts(usize),
    /// Invalid options.
    #[error("{0}")]
    Options(String),
    /// None of the captures could be read.
    #[error("no packet could be read from the captures given: no archive was made")]
    Nothing,
}

impl Error {
    /// An error of writing a file.
    pub(crate) fn write(file: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let file = file.to_owned();
        |source| Error::Write { file, source }
    }

    /// An error of reading a file.
    pub(crate) fn read(file: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let file = file.to_owned();
        |source| Error::Read { file, source }
    }
}
