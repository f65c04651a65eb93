//! `margay`: the command.

mod complete;
mod help;
mod man;
mod pages;
mod print;
#[cfg(feature = "lab")]
mod record;
mod setup;

use std::process::ExitCode;

use pages::Page;

/// The engine allocates and frees packets, streams and transactions by the million. The system's allocator takes an
/// eighth of the run time, and holds on to more freed memory.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    let first = args.peek().and_then(|a| a.to_str()).unwrap_or_default();
    // Take only a name that no option and no BPF filter begins with.
    match first {
        "lab" => {
            args.next();
            lab(args)
        }
        "tune" => {
            args.next();
            quiet_pipes();
            margay_lab::run_tune(args)
        }
        "top" => margay_watch::run_top(args.skip(1)),
        "split" => margay_archive::run(args.skip(1)),
        "setup" => setup::run(args.skip(1)),
        "help" => help::run(args.skip(1), commands),
        "completions" => complete::run(args.skip(1), commands),
        "bench" => {
            eprintln!("margay: there is no 'bench': it is 'margay lab parallel' and 'margay lab steering'");
            ExitCode::from(2)
        }
        _ => margay_engine::run(args),
    }
}

/// All commands that the help shows.
fn commands() -> Vec<Page> {
    let own = [
        ("top", margay_watch::TOP_HELP),
        ("setup", setup::HELP),
        ("help", help::HELP),
        ("completions", complete::HELP),
    ];
    let mut pages = vec![Page::read("", &margay_config::help())];
    pages.extend(own.map(|(words, text)| Page::read(words, text)));
    pages.push(Page::read("split", &margay_archive::help()));
    pages.extend(margay_engine::helps().iter().map(|(words, text)| Page::read(words, text)));
    // `margay lab` exists only with its feature; `margay tune` always does.
    let lab = margay_lab::helps();
    let there = lab.iter().filter(|(words, _)| cfg!(feature = "lab") || !words.starts_with("lab"));
    pages.extend(there.map(|(words, text)| Page::read(words, text)));
    pages
}

/// Runs `margay lab`. `steering`, which measures inside the engine, is the engine's own code.
#[cfg(feature = "lab")]
fn lab(mut args: std::iter::Peekable<impl Iterator<Item = std::ffi::OsString>>) -> ExitCode {
    quiet_pipes();
    match args.next_if(|second| second == "steering") {
        Some(_) => margay_engine::bench_steering(args),
        None => margay_lab::run(args, Some(record::record)),
    }
}

#[cfg(not(feature = "lab"))]
fn lab(_args: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    eprintln!(
        "margay: this program was built without the laboratory. One with it comes from the sources: \
         cargo install --locked --path crates/margay, or make build. 'margay tune' is here."
    );
    ExitCode::FAILURE
}

/// Ends the process silently, as other programs do, if the reader closes the pipe (`margay lab --help | head`).
fn quiet_pipes() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(0);
        }
        told(panic);
    }));
}
