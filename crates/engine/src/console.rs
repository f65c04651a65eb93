//! Output of commands that print and end.

use std::process::ExitCode;

/// Writes to standard output.
pub(crate) fn say(text: &str) -> ExitCode {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A reader that closed the pipe (`margay -h | head`) is not an error.
    let _ =
        out.write_all(text.as_bytes()).and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    ExitCode::SUCCESS
}
