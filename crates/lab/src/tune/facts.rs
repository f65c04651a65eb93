//! The facts that discovery finds: the input of planning, and the JSON of `margay tune discover`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::card::{Channels, Coalesce, Driver, Feature, Flags, Pause, Ring, Rss};

/// The state of a machine at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) host: Host,
    pub(crate) topology: Topology,
    /// By interface.
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// Kernel settings by name: `net.core.netdev_max_backlog`.
    pub(crate) sysctls: BTreeMap<String, String>,
    pub(crate) softnet: Softnet,
    /// `stopped`, or how it runs.
    pub(crate) irqbalance: String,
    /// The operator's own sessions, whose interfaces are left alone.
    pub(crate) sessions: Vec<Session>,
    /// The engine's configuration, if one was named or found.
    pub(crate) engine: Option<Engine>,
    /// Settings that were applied before, and the values that their drivers chose. A ring of 1000 that became 1024 is as
    /// wanted.
    pub(crate) rounded: BTreeMap<String, Rounded>,
    /// Our own files that exist, by path, with their contents.
    pub(crate) own: BTreeMap<String, String>,
    /// Facts that could not be read, with the reason.
    pub(crate) missing: Vec<Missing>,
}

/// The machine and its system.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Host {
    /// The version that `uname -r` prints.
    pub(crate) kernel: String,
    pub(crate) vendor: Vendor,
    /// The processor's name.
    pub(crate) processor: String,
    /// The machine's name in its firmware.
    pub(crate) product: String,
    /// The hypervisor, if the machine is virtual.
    pub(crate) hypervisor: Option<String>,
    /// The kind of container, if this is one.
    pub(crate) container: Option<String>,
    /// The first process: `systemd`.
    pub(crate) init: String,
    /// Whether systemd manages this machine.
    pub(crate) systemd: bool,
    pub(crate) cgroup: Cgroup,
    /// The kernel's command line.
    pub(crate) boot_line: String,
    /// Where to put a fragment of the boot line for the boot loader's own tool; `None` if there is no such place.
    pub(crate) boot_fragments: Option<String>,
    /// Identifies the kernel's current boot.
    pub(crate) boot_id: String,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) swap: u64,
    pub(crate) page_size: u64,
    /// The reason that settings may not be changed; `None` if they may.
    pub(crate) denied: Option<String>,
}

/// The processor's manufacturer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Vendor {
    Intel,
    Amd,
    Arm,
    #[default]
    Other,
}

/// The system's control groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cgroup {
    /// 1, 2, or 0 for none. If both exist, the one with the CPU sets.
    pub(crate) version: u8,
    /// Version 2 can partition CPUs (`cpuset.cpus.partition`).
    pub(crate) partitions: bool,
}

/// Processors, caches and memory.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Topology {
    /// Online CPUs by number.
    pub(crate) cpus: BTreeMap<usize, Cpu>,
    pub(crate) nodes: BTreeMap<usize, Node>,
    /// Last-level caches, and the CPUs that share each.
    pub(crate) caches: Vec<Cache>,
    /// CPUs isolated from the scheduler, and those without a clock tick.
    pub(crate) isolated: Vec<usize>,
    pub(crate) tickless: Vec<usize>,
    /// The drivers for frequencies and for idle states; empty if there is none.
    pub(crate) frequency_driver: String,
    pub(crate) idle_driver: String,
    /// `/dev/cpu_dma_latency`: the longest wake-up time that a program allows, in microseconds.
    pub(crate) dma_latency: Option<i32>,
}

/// One CPU: a core, or one of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cpu {
    pub(crate) package: usize,
    pub(crate) core: usize,
    pub(crate) node: usize,
    /// All threads of the same core, including this one.
    pub(crate) threads: Vec<usize>,
    /// The frequency governor; `None` if the kernel does not control the frequency.
    pub(crate) governor: Option<String>,
    pub(crate) governors: Vec<String>,
    pub(crate) idle: Vec<IdleState>,
}

/// An idle state of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct IdleState {
    pub(crate) name: String,
    /// Wake-up time in microseconds.
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
    /// Distance to each node, in numerical order; 10 is its own.
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
    /// Whether it is hardware, or is presented as hardware by a hypervisor.
    pub(crate) hardware: bool,
    /// The card's memory node, and the CPUs near it.
    pub(crate) node: Option<usize>,
    pub(crate) near: Vec<usize>,
    pub(crate) state: String,
    /// Megabits a second; `None` without a link or a speed.
    pub(crate) speed: Option<u64>,
    pub(crate) mtu: u32,
    pub(crate) flags: Option<Flags>,
    pub(crate) channels: Option<Settable<Channels>>,
    pub(crate) ring: Option<Settable<Ring>>,
    pub(crate) coalesce: Option<Coalesce>,
    pub(crate) pause: Option<Pause>,
    pub(crate) features: BTreeMap<String, Feature>,
    pub(crate) rss: Option<Rss>,
    /// Whether both directions of a flow reach the same queue.
    pub(crate) symmetric: bool,
    /// Hashed fields, by flow type.
    pub(crate) hash: BTreeMap<String, String>,
    pub(crate) xdp: String,
    /// By receive queue.
    pub(crate) queues: BTreeMap<u32, Queue>,
    /// Interrupts that belong to no receive queue.
    pub(crate) other_interrupts: Vec<u32>,
    /// Contents of the interface's files: `gro_flush_timeout`, `napi_defer_hard_irqs`, `threaded`.
    pub(crate) napi: BTreeMap<String, String>,
    /// Packets that it lost, by the kernel's names: `rx_missed_errors`.
    pub(crate) losses: BTreeMap<String, u64>,
    /// Reasons to leave it alone unless forced; empty if it is free.
    pub(crate) protected: Vec<String>,
}

/// The current value, and the maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Settable<T> {
    pub(crate) now: T,
    pub(crate) most: T,
}

/// A receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Queue {
    pub(crate) interrupt: Option<u32>,
    /// CPUs in its interrupt's affinity; empty without an interrupt.
    pub(crate) cpus: Vec<usize>,
    /// CPUs that RPS hands packets to.
    pub(crate) rps: Vec<usize>,
}

/// Sums over all CPUs since boot: packets, packets that found the queue full, and times that a CPU deferred the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Softnet {
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
    pub(crate) squeezed: u64,
}

/// A remote session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Session {
    /// The other end's address, and ours.
    pub(crate) peer: String,
    pub(crate) local: String,
    /// The outgoing interface of packets to the other end.
    pub(crate) interface: Option<String>,
}

/// The engine's settings for capture and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Engine {
    pub(crate) file: String,
    /// Settings by name: `af-packet.0.threads`.
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
    /// Total size of the last-level caches that these CPUs share.
    pub(crate) fn cache_of(&self, cpus: &[usize]) -> u64 {
        self.caches.iter().filter(|cache| cache.cpus.iter().any(|cpu| cpus.contains(cpu))).map(|cache| cache.size).sum()
    }
}

impl Host {
    /// Whether the kernel has this version or a later one.
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
