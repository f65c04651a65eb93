//! Standard output of a command.

use std::io::Write;
use std::process::ExitCode;

/// Writes to standard output. A reader that closed the pipe is no error.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}
