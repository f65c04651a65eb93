//! Runs inputs through a fuzz target on stable Rust: `fuzz-run TARGET FILE|FOLDER...`. Prints the inputs that fail, with the
//! reason. The exit status is 1 if any fails.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use margay_fuzz_replay::TARGETS;

/// Inputs that take longer are listed.
const SLOW: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some((_, target)) = TARGETS.iter().find(|t| t.0 == name) else {
        let names: Vec<_> = TARGETS.iter().map(|t| t.0).collect();
        eprintln!("usage: fuzz-run TARGET FILE|FOLDER...\ntargets: {}", names.join(" "));
        return ExitCode::from(2);
    };
    let (mut ran, mut broken) = (0u64, 0u64);
    let mut paths: Vec<PathBuf> = args.map(PathBuf::from).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => paths.extend(entries.flatten().map(|e| e.path())),
                Err(e) => eprintln!("{}: {e}", path.display()),
            }
            continue;
        }
        let data = match std::fs::read(&path) {
            Ok(data) => data,
            Err(e) => {
                eprintln!("{}: {e}", path.display());
                broken += 1;
                continue;
            }
        };
        ran += 1;
        let begun = Instant::now();
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            println!("{} does not hold", path.display());
            broken += 1;
        }
        if begun.elapsed() > SLOW {
            println!("{} takes {:.1} s", path.display(), begun.elapsed().as_secs_f64());
        }
    }
    println!("{name}: {ran} inputs, {broken} of them do not hold");
    ExitCode::from(u8::from(broken > 0))
}
