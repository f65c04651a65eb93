//! `margay`: the command.

use std::process::ExitCode;

/// Packets, streams and transactions come and go by the million: the system's allocator takes an eighth of the time, and
/// keeps more of what was freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|first| first == "lab").is_some() {
        return margay_lab::run(args);
    }
    // `margay bench parallel` is the laboratory's, under a name of its own.
    if args.peek().is_some_and(|first| first == "bench") {
        return margay_lab::run(args.skip(1));
    }
    margay_engine::run(args)
}
