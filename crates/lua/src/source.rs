//! The text of scripts.

use std::path::Path;
use std::sync::Arc;

/// Limit of the bytes of a script's text.
pub const SOURCE_MAX: u64 = 1 << 20;

/// A script's text and its name. Shared by all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its file, for errors.
    pub name: Arc<str>,
    /// Its text.
    pub text: Arc<[u8]>,
}

impl Source {
    /// A script with the given text.
    pub fn new(name: &str, text: &[u8]) -> Self {
        Source { name: name.into(), text: text.into() }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// Not a regular file, unreadable, or larger than [`SOURCE_MAX`].
    pub fn load(path: &Path) -> Result<Self, String> {
        use std::io::Read;
        let shown = path.display();
        let open = |e: std::io::Error| format!("couldn't load file: cannot open {shown}: {e}");
        // A pipe or a device could block.
        if !std::fs::metadata(path).map_err(open)?.is_file() {
            return Err(format!("couldn't load file: {shown} is no regular file"));
        }
        let file = std::fs::File::open(path).map_err(open)?;
        let mut text = Vec::new();
        file.take(SOURCE_MAX + 1)
            .read_to_end(&mut text)
            .map_err(|e| format!("couldn't load file: cannot read {shown}: {e}"))?;
        if text.len() as u64 > SOURCE_MAX {
            return Err(format!("couldn't load file: {shown} is larger than {SOURCE_MAX} bytes"));
        }
        Ok(Source { name: shown.to_string().into(), text: text.into() })
    }
}
