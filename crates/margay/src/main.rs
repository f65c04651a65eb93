//! `margay`: the command.

use std::process::ExitCode;

fn main() -> ExitCode {
    margay_engine::run(std::env::args_os().skip(1))
}
