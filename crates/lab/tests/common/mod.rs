//! Helpers for tests of the command.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_margay-lab");

/// The command, with its state in a folder of the test.
pub(crate) fn command(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.args(arguments).env("MARGAY_LAB_STATE", state);
    command
}

/// Runs the command.
pub(crate) fn lab(state: &Path, arguments: &[&str]) -> Output {
    command(state, arguments).output().unwrap()
}

/// Starts the command. Its output is read after its end.
pub(crate) fn start(state: &Path, arguments: &[&str]) -> Child {
    command(state, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// All output of a command.
pub(crate) fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits until a condition is true, for at most a minute, which a busy machine may need.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "after a minute: not yet {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A table as names and lines of values.
pub(crate) struct Table {
    names: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Reads a file, without a partial last line.
    pub(crate) fn read(path: &Path) -> Table {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let names = lines.next().unwrap_or_default();
        Table { lines: lines.filter(|line| line.len() == names.len()).collect(), names }
    }

    /// Number of lines.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// A value as text.
    pub(crate) fn word(&self, line: usize, name: &str) -> &str {
        let at = self.names.iter().position(|known| known == name);
        &self.lines[line][at.unwrap_or_else(|| panic!("{name} is not among {:?}", self.names))]
    }

    /// A value as a number; NaN if the field is empty.
    pub(crate) fn number(&self, line: usize, name: &str) -> f64 {
        self.word(line, name).parse().unwrap_or(f64::NAN)
    }
}
