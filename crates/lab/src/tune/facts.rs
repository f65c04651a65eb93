//! What discovery finds: the input of planning, and what `margay tune discover` writes as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::card::{Channels, Coalesce, Driver, Feature, Flags, Pause, Ring, Rss};

/// A machine at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) host: Host,
    pub(crate) topology: Topology,
    /// By interface.
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// Settings of the kernel, by their names: `net.core.netdev_max_backlog`.
    pub(crate) sysctls: BTreeMap<String, String>,
    pub(crate) softnet: Softnet,
    /// `stopped`, or how it runs.
    pub(crate) irqbalance: String,
    /// The operator's own sessions, by whose interfaces are left alone.
    pub(crate) sessions: Vec<Session>,
    /// The engine's configuration, where one was named or found.
    pub(crate) engine: Option<Engine>,
    /// Settings that this machine was told already, and what their drivers made of it: a ring of 1000 that became 1024 is as
    /// it was wanted.
    pub(crate) rounded: BTreeMap<String, Rounded>,
    /// Files of our own that are there, by their paths, with what is in them.
    pub(crate) own: BTreeMap<String, String>,
    /// What could not be read, and why.
    pub(crate) missing: Vec<Missing>,
}

/// The machine and its system.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Host {
    /// As `uname -r` says it.
    pub(crate) kernel: String,
    pub(crate) vendor: Vendor,
    /// The processor's name.
    pub(crate) processor: String,
    /// The machine's name by its firmware.
    pub(crate) product: String,
    /// The hypervisor, where the machine is virtual.
    pub(crate) hypervisor: Option<String>,
    /// The kind of container, where this is one.
    pub(crate) container: Option<String>,
    /// The first process: `systemd`.
    pub(crate) init: String,
    /// Whether systemd manages this machine.
    pub(crate) systemd: bool,
    pub(crate) cgroup: Cgroup,
    /// The kernel's command line.
    pub(crate) boot_line: String,
    /// Where a fragment of the boot line can be put, for the boot loader's own tool to take up; none where it cannot.
    pub(crate) boot_fragments: Option<String>,
    /// Of the kernel's last start.
    pub(crate) boot_id: String,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) swap: u64,
    pub(crate) page_size: u64,
    /// Whether settings may be changed, and why not.
    pub(crate) denied: Option<String>,
}

/// Who made the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Vendor {
    Intel,
    Amd,
    Arm,
    #[default]
    Other,
}

/// How control groups are arranged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cgroup {
    /// 1, 2, or 0 for none. Where both are, the one that has the CPU sets.
    pub(crate) version: u8,
    /// Version 2 can partition CPUs (`cpuset.cpus.partition`).
    pub(crate) partitions: bool,
}

/// Processors, caches and memory.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Topology {
    /// Those that are online, by their numbers.
    pub(crate) cpus: BTreeMap<usize, Cpu>,
    pub(crate) nodes: BTreeMap<usize, Node>,
    /// Caches of the last level, and the CPUs that share each.
    pub(crate) caches: Vec<Cache>,
    /// CPUs that the scheduler leaves alone, and those without a clock tick.
    pub(crate) isolated: Vec<usize>,
    pub(crate) tickless: Vec<usize>,
    /// The driver that changes frequencies, and that of idle states; empty where there is none.
    pub(crate) frequency_driver: String,
    pub(crate) idle_driver: String,
    /// `/dev/cpu_dma_latency`: the longest wake-up that some program allows, in microseconds.
    pub(crate) dma_latency: Option<i32>,
}

/// One CPU: a core, or one of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cpu {
    pub(crate) package: usize,
    pub(crate) core: usize,
    pub(crate) node: usize,
    /// All threads of the same core, this one too.
    pub(crate) threads: Vec<usize>,
    /// How its frequency is chosen; none where that is not for the kernel to say.
    pub(crate) governor: Option<String>,
    pub(crate) governors: Vec<String>,
    pub(crate) idle: Vec<IdleState>,
}

/// A state that an idle CPU sleeps in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct IdleState {
    pub(crate) name: String,
    /// Microseconds to wake up from it.
    pub(crate) latency: u32,
    pub(crate) disabled: bool,
    /// Whether it can be disabled.
    pub(crate) switch: bool,
}

/// A memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Node {
    pub(crate) cpus: Vec<usize>,
    /// Bytes.
    pub(crate) memory: u64,
    /// To each node, in the order of their numbers; 10 is its own.
    pub(crate) distances: Vec<u32>,
}

/// A cache that several CPUs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cache {
    pub(crate) level: u8,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) cpus: Vec<usize>,
}

/// One interface.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Interface {
    pub(crate) driver: Driver,
    /// Whether there is hardware, or what a hypervisor makes to look like it.
    pub(crate) hardware: bool,
    /// The memory node that the card is at, and the CPUs near to it.
    pub(crate) node: Option<usize>,
    pub(crate) near: Vec<usize>,
    pub(crate) state: String,
    /// Megabits a second; none where there is no link, or no such thing.
    pub(crate) speed: Option<u64>,
    pub(crate) mtu: u32,
    pub(crate) flags: Option<Flags>,
    pub(crate) channels: Option<Settable<Channels>>,
    pub(crate) ring: Option<Settable<Ring>>,
    pub(crate) coalesce: Option<Coalesce>,
    pub(crate) pause: Option<Pause>,
    pub(crate) features: BTreeMap<String, Feature>,
    pub(crate) rss: Option<Rss>,
    /// Whether both directions of a flow come to the same queue.
    pub(crate) symmetric: bool,
    /// Fields that are hashed, by the kind of flow.
    pub(crate) hash: BTreeMap<String, String>,
    pub(crate) xdp: String,
    /// By receive queue.
    pub(crate) queues: BTreeMap<u32, Queue>,
    /// Interrupts for something else than receive queues.
    pub(crate) other_interrupts: Vec<u32>,
    /// Files of the interface that are told: `gro_flush_timeout`, `napi_defer_hard_irqs`, `threaded`.
    pub(crate) napi: BTreeMap<String, String>,
    /// Packets that it lost, by the kernel's names: `rx_missed_errors`.
    pub(crate) losses: BTreeMap<String, u64>,
    /// Why it is left alone unless it is forced; nothing where it is free.
    pub(crate) protected: Vec<String>,
}

/// What is set, and the most that can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Settable<T> {
    pub(crate) now: T,
    pub(crate) most: T,
}

/// A receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Queue {
    pub(crate) interrupt: Option<u32>,
    /// CPUs that its interrupt may come to; nothing where it has none.
    pub(crate) cpus: Vec<usize>,
    /// CPUs that packets are handed on to.
    pub(crate) rps: Vec<usize>,
}

/// Since the machine was started, of all CPUs: packets, those that found the queue full, and times that a CPU left some for later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Softnet {
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
    pub(crate) squeezed: u64,
}

/// A session that somebody works by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Session {
    /// The other end's address, and this one's.
    pub(crate) peer: String,
    pub(crate) local: String,
    /// The interface that packets to the other end leave by.
    pub(crate) interface: Option<String>,
}

/// What the engine's configuration says of capture and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Engine {
    pub(crate) file: String,
    /// Settings by their names: `af-packet.0.threads`.
    pub(crate) settings: BTreeMap<String, String>,
}

/// See [`Facts::rounded`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rounded {
    pub(crate) wanted: String,
    pub(crate) got: String,
}

/// See [`Facts::missing`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl Topology {
    /// Bytes of the last-level caches that some of these CPUs share.
    pub(crate) fn cache_of(&self, cpus: &[usize]) -> u64 {
        self.caches.iter().filter(|cache| cache.cpus.iter().any(|cpu| cpus.contains(cpu))).map(|cache| cache.size).sum()
    }
}

impl Host {
    /// Whether the kernel is of this version or a later one.
    pub(crate) fn kernel_is(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self.kernel.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_their_numbers() {
        let host = Host { kernel: "6.8.0-45-generic".into(), ..Host::default() };
        assert!(host.kernel_is(6, 8) && host.kernel_is(5, 19) && !host.kernel_is(6, 10));
        assert!(!Host::default().kernel_is(1, 0));
    }
}
