//! Command lines: this program's own, and words quoted for a shell.

use crate::problem::{Outcome, Problem};

/// The command that restarts this program as `margay lab`.
///
/// # Errors
/// If the program does not know its own path.
pub(crate) fn own_command() -> Outcome<Vec<String>> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Problem::Failed(format!("cannot find the program's own file: {error}")))?;
    let name = own.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut words = vec![own.to_string_lossy().into_owned()];
    // `margay-lab` contains only the laboratory.
    if name == "margay" {
        words.push("lab".to_owned());
    }
    Ok(words)
}

/// The engine that `margay` refers to: this program's own, or the one in the path.
pub(crate) fn own_engine() -> String {
    match std::env::current_exe() {
        Ok(own) if own.file_name().is_some_and(|name| name == "margay") => own.to_string_lossy().into_owned(),
        _ => "margay".to_owned(),
    }
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
