//! Regular files: a write adds whole lines or nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use crate::count;

/// Opens a file for appending, and creates the folders above it. Unless `append` is set, the file is truncated first.
/// The second value says whether the file ends in a partial line.
pub(super) fn open(path: &Path, append: bool, mode: u32) -> io::Result<(File, bool)> {
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        std::fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    options.create(true);
    let mut half = false;
    let file = if append {
        // A process that was killed while writing may have left a partial line.
        half = ends_within_a_line(path);
        options.append(true).open(path)?
    } else {
        let file = options.write(true).truncate(true).open(path)?;
        drop(file);
        // Append mode: later writes go to the end even if another process truncates the file.
        OpenOptions::new().append(true).open(path)?
    };
    if mode != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    Ok((file, half))
}

/// Whether the file exists and its last line has no line feed.
fn ends_within_a_line(path: &Path) -> bool {
    let mut last = [0];
    let mut read = || {
        // Opening a pipe could block.
        let m = std::fs::metadata(path)?;
        if !m.is_file() || m.len() == 0 {
            return Ok(false);
        }
        File::open(path)?.read_exact_at(&mut last, m.len() - 1)?;
        Ok::<_, io::Error>(last != *b"\n")
    };
    // If the file cannot be read, assume that it ends with a whole line.
    read().unwrap_or(false)
}

/// The result of a failed write.
pub(super) struct Failed {
    /// Lines that were not written.
    pub(super) lost: u64,
    pub(super) error: io::Error,
    /// A partial line remains in the file.
    pub(super) broken: bool,
}

/// Writes whole lines to a file, or as many as it takes. `repair` first ends a partial line. `cut` removes the last
/// bytes of the file.
pub(super) fn write_lines(
    file: &mut impl Write,
    lines: &[u8],
    repair: bool,
    cut: impl FnOnce(u64) -> io::Result<()>,
) -> Result<(), Failed> {
    if repair && let Err(error) = file.write_all(b"\n") {
        return Err(Failed { lost: count::lines(lines), error, broken: true });
    }
    let mut done = 0;
    let error = loop {
        let Some(rest) = lines.get(done..).filter(|r| !r.is_empty()) else { return Ok(()) };
        match file.write(rest) {
            Ok(0) => break io::ErrorKind::WriteZero.into(),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => break e,
        }
    };
    let written = lines.get(..done).unwrap_or(lines);
    let whole = written.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let half = (done - whole) as u64;
    let broken = half > 0 && cut(half).is_err();
    Err(Failed { lost: count::lines(lines) - count::lines(written), error, broken })
}

/// Removes the last `bytes` of a regular file.
pub(super) fn cut(file: &File, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.set_len(metadata.len().saturating_sub(bytes))
}
