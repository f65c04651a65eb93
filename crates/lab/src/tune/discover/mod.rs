//! `margay tune discover`: collects the facts. It reads through [`Tree`] and [`Cards`], so that recorded machines work
//! like this one. Facts that cannot be read are listed.

mod cpu;
mod engine;
mod guard;
mod host;
pub(crate) mod interrupts;
mod net;

use std::collections::BTreeMap;

use super::facts::{Facts, Missing};
use super::knob::Machine;
use super::plan::{FILES, FOLDERS};
use super::tree::Tree;
pub(crate) use host::softnet;
pub(crate) use net::FEATURES;

/// Options of discovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// The engine's configuration; by default, the usual paths are tried.
    pub(crate) engine: Option<String>,
}

/// Collects all facts.
pub(crate) fn discover(machine: &dyn Machine, tree: &dyn Tree, options: &Options) -> Facts {
    let mut missing = Vec::new();
    let cards = machine.cards();
    let topology = cpu::topology(tree);
    if topology.cpus.is_empty() {
        missing.push(Missing { what: "processors".into(), why: "/sys/devices/system/cpu cannot be read".into() });
    }
    let host = host::host(tree);
    if let Some(kind) = &host.container {
        let why = format!("this is a container ({kind}): boot line, interrupts and services are the host's");
        missing.push(Missing { what: "the host".into(), why });
    }
    let sessions = guard::sessions(tree, cards);
    let mut interfaces = BTreeMap::new();
    for name in net::names(tree) {
        let interface = net::interface(tree, cards, &name, &sessions, &mut missing);
        interfaces.insert(name, interface);
    }
    Facts {
        sysctls: host::sysctls(tree, interfaces.keys()),
        softnet: host::softnet(tree),
        irqbalance: machine.service("irqbalance").unwrap_or_else(|why| {
            missing.push(Missing { what: "irqbalance".into(), why: why.to_string() });
            String::new()
        }),
        engine: engine::engine(tree, options.engine.as_deref(), &mut missing),
        host,
        topology,
        interfaces,
        sessions,
        rounded: BTreeMap::new(),
        own: own(tree),
        missing,
    }
}

/// Our own files that exist, and the folders that they go to.
fn own(tree: &dyn Tree) -> BTreeMap<String, String> {
    let text = |path: &&str| {
        let found = tree.link(path).or_else(|| tree.read(path).ok());
        found.map(|text| ((*path).to_owned(), text))
    };
    let folder = |path: &&str| tree.exists(path).then(|| ((*path).to_owned(), "there".to_owned()));
    FILES.iter().filter_map(text).chain(FOLDERS.iter().filter_map(folder)).collect()
}
