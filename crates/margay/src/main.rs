//! `margay`: the command.

use std::process::ExitCode;

/// Packets, streams and transactions come and go by the million: the system's allocator takes an eighth of the time, and
/// keeps more of what was freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    margay_engine::run(std::env::args_os().skip(1))
}
