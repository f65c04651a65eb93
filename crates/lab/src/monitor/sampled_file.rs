//! A file of /proc or /sys, opened once and read again from its start for each sample.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Upper limit for a sampled kernel file; the rest is not read.
const MOST: usize = 8 << 20;

/// A sampled file, see the module.
pub(super) struct SampledFile {
    file: File,
    text: Vec<u8>,
}

impl SampledFile {
    /// Opens `path`.
    ///
    /// # Errors
    /// As [`File::open`].
    pub(super) fn open(path: impl AsRef<Path>) -> io::Result<SampledFile> {
        Ok(SampledFile { file: File::open(path)?, text: vec![0; 4096] })
    }

    /// The current contents; empty if the process ended or the interface was removed.
    pub(super) fn read(&mut self) -> &str {
        let mut length = 0;
        loop {
            if length == self.text.len() {
                if length >= MOST {
                    break;
                }
                self.text.resize(length * 2, 0);
            }
            match self.file.read_at(&mut self.text[length..], length as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => length += n,
            }
        }
        std::str::from_utf8(&self.text[..length]).unwrap_or("")
    }
}

/// Reads a small file once; empty if it does not exist.
pub(super) fn once(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number that is the file's only content; NaN if the content is something else (`max`) or missing.
pub(super) fn number(text: &str) -> f64 {
    text.trim().parse().unwrap_or(f64::NAN)
}

/// Appends the values of `names` to `row`, in that order, each multiplied by `scale`. The file's lines are `name value`,
/// `name: value` or `name=value`.
pub(super) fn named(text: &str, names: &[&str], scale: f64, row: &mut Vec<f64>) {
    let first = row.len();
    row.resize(first + names.len(), f64::NAN);
    for line in text.lines() {
        let mut words = line.split([' ', '\t', ':', '=']).filter(|word| !word.is_empty());
        let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            row[first + at] = value.parse::<f64>().unwrap_or(f64::NAN) * scale;
        }
    }
}
