//! Scripts' text.

use std::path::Path;
use std::sync::Arc;

/// Most bytes of a script's text.
pub const SOURCE_MAX: u64 = 1 << 20;

/// A script's text and its name. Shared by all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its file, as errors name it.
    pub name: Arc<str>,
    /// Its text.
    pub text: Arc<[u8]>,
}

impl Source {
    /// A script that is at hand.
    pub fn new(name: &str, text: &[u8]) -> Self {
        Source { name: name.into(), text: text.into() }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// A file that is none, cannot be read, or is larger than [`SOURCE_MAX`].
    pub fn load(path: &Path) -> Result<Self, String> {
        use std::io::Read;
        let shown = path.display();
        let open = |e: std::io::Error| format!("couldn't load file: cannot open {shown}: {e}");
        // A pipe or a device would be waited for.
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
