//! `margay`: the command.

mod record;

use std::process::ExitCode;

/// Packets, streams and transactions come and go by the million: the system's allocator takes an eighth of the time, and
/// keeps more of what was freed.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|first| first == "lab").is_some() {
        return margay_lab::run(args, Some(record::record));
    }
    if args.next_if(|first| first == "tune").is_some() {
        return margay_lab::run_tune(args);
    }
    if args.next_if(|first| first == "bench").is_some() {
        // What is measured inside of the engine is the engine's own; `margay bench parallel` is the laboratory's, under a name of
        // its own.
        return match args.next_if(|second| second == "steering") {
            Some(_) => margay_engine::bench_steering(args),
            None => margay_lab::run(args, Some(record::record)),
        };
    }
    if args.next_if(|first| first == "split").is_some() {
        return margay_archive::run(args);
    }
    margay_engine::run(args)
}
