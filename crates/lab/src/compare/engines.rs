//! The engines of an experiment: each is repeated for the memory nodes, isolations, memory limits and numbers of workers
//! that the file names. What this machine lacks is left out, with a note.

use std::path::Path;
use std::time::Duration;

use margay_config::Node;

use super::experiment::found;
use crate::cpus::{Cpus, Shared};
use crate::engine::{Contract, Options};
use crate::isolate::{Apart, Kind as Isolation};
use crate::problem::{Outcome, Problem};

/// An engine, repeated for each memory node, isolation, memory limit and number of workers that it has.
pub(super) fn read(
    node: Node<'_>,
    folder: &Path,
    (cpus, instead): (&Shared, &Options),
    notes: &mut Vec<String>,
) -> Outcome<Vec<Contract>> {
    let mut contract = Contract::read(node, instead)?;
    for words in [&mut contract.live, &mut contract.offline] {
        for at in 1..words.len() {
            // A relative path after an option that takes a file starts at the experiment's folder. A word that names no
            // file, such as the script of `sh -c`, stays as it is.
            if ["-c", "-S"].contains(&words[at - 1].as_str()) {
                let path = found(&words[at], folder);
                if path.is_file() {
                    words[at] = path.to_string_lossy().into_owned();
                }
            }
        }
    }
    let mut engines = Vec::new();
    for contract in by_nodes(node, &contract, &cpus.engine, notes)? {
        let cores = contract.cpus.count();
        for contract in isolated(node, &contract, notes)? {
            match node.child("workers") {
                Some(workers) => engines.extend(by_workers(workers, &contract, cores, notes)?),
                None => engines.push(contract),
            }
        }
    }
    Ok(engines)
}

/// An engine on its CPUs, or repeated for each memory node that has some of them.
fn by_nodes(node: Node<'_>, contract: &Contract, cpus: &Cpus, notes: &mut Vec<String>) -> Outcome<Vec<Contract>> {
    let on = |cpus: &Cpus| {
        let mut engine = contract.clone();
        engine.on(cpus);
        engine
    };
    let Some(nodes) = node.child("nodes") else { return Ok(vec![on(cpus)]) };
    let mut engines = Vec::new();
    for text in nodes.values() {
        let wrong = || Problem::from(nodes.error(format!("nodes: '{text}' is no number of a memory node")));
        let number = text.parse::<u32>().map_err(|_| wrong())?;
        match cpus.of_node(number) {
            Ok(cpus) => {
                let mut engine = on(&cpus);
                engine.name = format!("{} on node {number}", contract.name);
                engines.push(engine);
            }
            Err(why) => notes.push(format!("{} on node {number} is left out: {why}", contract.name)),
        }
    }
    Ok(engines)
}

/// An engine, repeated for each isolation and, except on the bare machine, each memory limit. Omits isolations that this
/// machine lacks.
fn isolated(node: Node<'_>, contract: &Contract, notes: &mut Vec<String>) -> Outcome<Vec<Contract>> {
    let mut limits = Vec::new();
    for text in node.child("memory").into_iter().flat_map(|child| child.values()) {
        let bytes = bytes(text).filter(|bytes| *bytes >= 64 << 20);
        limits.push(bytes.ok_or_else(|| Problem::from(node.error(format!("memory: '{text}' is not 64MiB or more"))))?);
    }
    let Some(kinds) = node.child("isolation") else {
        if limits.is_empty() {
            return Ok(vec![contract.clone()]);
        }
        return Err(node.error("memory: a limit is of an isolation, which is missing").into());
    };
    let mut engines = Vec::new();
    for name in kinds.values() {
        let kind = Isolation::named(name).ok_or_else(|| {
            let names = Isolation::ALL.map(Isolation::name).join(", ");
            Problem::from(kinds.error(format!("isolation: '{name}' is not known; {names} are")))
        })?;
        let memory: Vec<Option<u64>> = match kind {
            Isolation::Bare => vec![None],
            _ if limits.is_empty() => vec![None],
            _ => limits.iter().copied().map(Some).collect(),
        };
        if let Some(why) = kind.how().missing(memory.first().copied().flatten()) {
            notes.push(format!("{} in isolation {name} is left out: {why}", contract.name));
            continue;
        }
        for memory in memory {
            let mut engine = contract.clone();
            engine.apart = Apart { kind, memory };
            if let (Isolation::Machine, Some(counters)) = (kind, &mut engine.counters) {
                // The counters come from a file that is followed inside the guest, once a second.
                counters.rest += Duration::from_millis(2500);
            }
            engine.name = format!("{} / {}", contract.name, engine.apart.describe());
            engines.push(engine);
        }
    }
    Ok(engines)
}

/// Parses `512MiB` or `2GiB` to bytes.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let shift = match unit.trim() {
        "MiB" | "MB" | "mb" => 20,
        "GiB" | "GB" | "gb" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// An engine, repeated for each number of workers that has enough CPUs.
fn by_workers(workers: Node<'_>, contract: &Contract, cores: usize, notes: &mut Vec<String>) -> Outcome<Vec<Contract>> {
    let mut engines = Vec::new();
    for count in workers.values() {
        let number = count.parse::<usize>().ok().filter(|count| *count > 0);
        let number = number
            .ok_or_else(|| Problem::from(workers.error(format!("workers: '{count}' is no number of workers"))))?;
        if number > cores {
            notes
                .push(format!("{} with {number} workers is left out: the engine has {cores} CPUs here", contract.name));
            continue;
        }
        let mut engine = contract.clone();
        engine.name = format!("{} × {number}", contract.name);
        for words in [&mut engine.live, &mut engine.offline] {
            for word in words {
                *word = word.replace("{workers}", count);
            }
        }
        engines.push(engine);
    }
    Ok(engines)
}
