//! Output of commands that print and end.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Writes to standard output. Fails with a message if the text cannot be written (a full disk).
#[must_use]
pub(crate) fn say(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that closed the pipe (`margay -h | head`) is not an error.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("margay: cannot write to standard output: {e}");
            ExitCode::FAILURE
        }
    }
}
