//! Loads rule files and prints the result: `check [--available a,b] [--quiet] FILE…`.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use margay_rules::{Context, Loader};

fn main() -> ExitCode {
    let mut ctx = Context::customary();
    let mut files = Vec::new();
    let mut quiet = false;
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--quiet" => quiet = true,
            "--available" => {
                ctx.available = args.next().unwrap_or_default().split(',').map(str::to_owned).collect();
            }
            _ => files.push(a),
        }
    }
    let start = Instant::now();
    let mut loader = Loader::new(&ctx);
    for f in &files {
        if let Err(e) = loader.load_file(Path::new(f)) {
            eprintln!("{f}: {e}");
            return ExitCode::FAILURE;
        }
    }
    let l = loader.finish();
    let took = start.elapsed();
    if !quiet {
        for e in &l.errors {
            println!("{e}");
        }
        for s in &l.skipped {
            println!("{}:{}: skipped: {}", s.place.file, s.place.line, s.reason);
        }
        for w in l.warnings.iter().take(20) {
            println!("{}:{}: warning: {}: {}", w.place.file, w.place.line, w.message.module, w.message.text);
        }
    }
    let mut missing: HashMap<&str, usize> = HashMap::new();
    for r in &l.set_aside {
        for m in &r.missing {
            *missing.entry(m).or_default() += 1;
        }
    }
    let mut missing: Vec<_> = missing.into_iter().collect();
    missing.sort_by_key(|m| std::cmp::Reverse(m.1));
    println!(
        "{} rules to match with, {} set aside, {} failed, {} silent, {} skipped, {} replaced, {} warnings, in {took:?}",
        l.rules.len(),
        l.set_aside.len(),
        l.failed(),
        l.errors.len() - l.failed(),
        l.skipped.len(),
        l.replaced,
        l.warnings.len(),
    );
    let shown: Vec<_> = missing.iter().take(12).map(|(k, n)| format!("{k} {n}")).collect();
    println!("missing: {}", shown.join(", "));
    if l.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
