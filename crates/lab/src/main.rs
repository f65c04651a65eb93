//! `margay-lab`: the laboratory as a separate program, for machines without the engine.

use std::process::ExitCode;

fn main() -> ExitCode {
    margay_lab::run(std::env::args_os().skip(1), None)
}
