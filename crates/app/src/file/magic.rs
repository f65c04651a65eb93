//! File types, as reported by libmagic (`file`).
//!
//! A libmagic handle belongs to the thread that created it. Each worker thread creates its own at the first use and keeps it
//! while the database stays the same.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use magic::cookie::{DatabasePaths, Flags, Load};

/// Bytes at the front of a file that are kept for libmagic.
pub(super) const HEAD: usize = 8192;

/// Data needed to determine the type of an open file. A shorter file is examined at its end.
pub(super) const ENOUGH: usize = 512;

/// The longest description that is kept.
const LONGEST: usize = 1024;

/// Why libmagic cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("libmagic cannot load {}: {reason}", database.as_ref().map_or("its default database".into(), |p| p.display().to_string()))]
pub struct MagicError {
    /// The database (`magic-file`); `None` for the default one.
    pub database: Option<PathBuf>,
    /// The cause.
    pub reason: String,
}

type Handle = magic::Cookie<Load>;

thread_local! {
    static HANDLE: RefCell<Option<(Option<PathBuf>, Option<Handle>)>> = const { RefCell::new(None) };
}

fn open(database: Option<&Path>) -> Result<Handle, MagicError> {
    let failed = |reason: String| MagicError { database: database.map(Path::to_owned), reason };
    let paths = match database {
        Some(p) => DatabasePaths::new([p]).map_err(|e| failed(e.to_string()))?,
        None => DatabasePaths::default(),
    };
    let cookie = magic::Cookie::open(Flags::ERROR).map_err(|e| failed(e.to_string()))?;
    cookie.load(&paths).map_err(|e| failed(e.to_string()))
}

/// Checks that libmagic can load a database; this thread keeps it.
///
/// # Errors
/// It cannot be loaded.
pub(super) fn check(database: Option<&Path>) -> Result<(), MagicError> {
    let handle = open(database)?;
    HANDLE.with_borrow_mut(|h| *h = Some((database.map(Path::to_owned), Some(handle))));
    Ok(())
}

/// libmagic's description of a file's first bytes; empty on failure.
pub(super) fn describe(database: Option<&Path>, head: &[u8]) -> Box<[u8]> {
    HANDLE.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(d, _)| d.as_deref() != database) {
            // Do not retry a database that cannot be loaded: `check` reported it at startup.
            *slot = Some((database.map(Path::to_owned), open(database).ok()));
        }
        let Some((_, Some(handle))) = slot else { return Box::default() };
        let Ok(text) = handle.buffer(head) else { return Box::default() };
        let text = text.as_bytes();
        text.get(..LONGEST).unwrap_or(text).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds() {
        check(None).expect("libmagic's database");
        // Signature, then the header chunk (PNG specification, sections 5.2 and 11.2.2).
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x24\0\0\0\x24\x08\x06\0\0\0";
        assert_eq!(&*describe(None, png), b"PNG image data, 36 x 36, 8-bit/color RGBA, non-interlaced");
        assert!(describe(None, b"%PDF-1.5\n%\xd0\xd4\xc5\xd8\n").starts_with(b"PDF document, version 1.5"));
        assert_eq!(&*describe(None, b"hello, world\n"), b"ASCII text");
    }

    #[test]
    fn a_missing_database_is_an_error() {
        let e = check(Some(Path::new("/nonexistent/magic.mgc"))).expect_err("missing");
        assert!(e.to_string().starts_with("libmagic cannot load /nonexistent/magic.mgc: "), "{e}");
        assert!(describe(Some(Path::new("/nonexistent/magic.mgc")), b"hello").is_empty());
    }
}
