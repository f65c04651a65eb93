//! Prints the cost of each parser per byte of real conversations: `parser-costs [--bound NS] LIST`, where each line of LIST names a
//! capture. Status 1 if a parser costs more than the bound on average. `tools/parser-costs` calls it with the available captures.

use std::process::ExitCode;

use margay_fuzz_replay::costs::{Costs, table};

fn main() -> ExitCode {
    let mut bound = 50.0;
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|w| w == "--bound").is_some() {
        let Some(Ok(n)) = words.next().map(|n| n.parse()) else {
            eprintln!("parser-costs: --bound needs nanoseconds");
            return ExitCode::from(2);
        };
        bound = n;
    }
    let (Some(list), None) = (words.next(), words.next()) else {
        eprintln!("usage: parser-costs [--bound NS] LIST");
        return ExitCode::from(2);
    };
    let names = match std::fs::read_to_string(&list) {
        Ok(names) => names,
        Err(e) => {
            eprintln!("parser-costs: {list}: {e}");
            return ExitCode::from(2);
        }
    };
    let mut costs = Costs::default();
    for name in names.lines() {
        match std::fs::read(name) {
            Ok(bytes) => costs.capture(&bytes),
            Err(e) => {
                eprintln!("parser-costs: {name}: {e}");
                return ExitCode::from(2);
            }
        }
    }
    let all = costs.measure(|c| eprintln!("{}: {} bytes", c.name, c.bytes));
    print!("{}", table(&all));
    let missing = costs.missing();
    if !missing.is_empty() {
        println!("no conversation in these captures: {}", missing.join(" "));
    }
    let slow: Vec<&str> = all.iter().filter(|c| c.mean > bound).map(|c| c.name).collect();
    if slow.is_empty() {
        println!("no parser costs more than {bound} ns per byte on average");
        return ExitCode::SUCCESS;
    }
    println!("more than {bound} ns per byte on average: {}", slow.join(" "));
    ExitCode::FAILURE
}
