//! `margay-lab`: the laboratory as a command of its own, for machines without the engine.

use std::process::ExitCode;

fn main() -> ExitCode {
    margay_lab::run(std::env::args_os().skip(1), None)
}
