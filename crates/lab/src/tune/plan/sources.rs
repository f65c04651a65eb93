//! Sources of advice. Studies appear with their titles.

pub(super) const SINGLE_NODE: &str = "Tuning Suricata on a single NUMA node (2021)";
pub(super) const ISOLATION: &str = "Benchmarking Suricata in different isolation systems using TCPreplay (2016)";
pub(super) const CRYSTAL_EYE: &str = "Crystal Eye Suricata tuning (2019)";
pub(super) const TIANJIN: &str = "High-performance IPS based on Suricata (2022)";
pub(super) const GUIDE_HIGH: &str = "Suricata User Guide, High Performance Configuration";
pub(super) const GUIDE_CAPTURE: &str = "Suricata User Guide, Packet Capture";
pub(super) const SCALING: &str = "Linux, Documentation/networking/scaling.rst";
pub(super) const SYSCTL_NET: &str = "Linux, Documentation/admin-guide/sysctl/net.rst";
pub(super) const SYSCTL_VM: &str = "Linux, Documentation/admin-guide/sysctl/vm.rst";
pub(super) const IP_SYSCTL: &str = "Linux, Documentation/networking/ip-sysctl.rst";
pub(super) const PARAMETERS: &str = "Linux, Documentation/admin-guide/kernel-parameters.txt";
pub(super) const CGROUP: &str = "Linux, Documentation/admin-guide/cgroup-v2.rst";
pub(super) const CPUIDLE: &str = "Linux, Documentation/admin-guide/pm/cpuidle.rst";
pub(super) const CPUFREQ: &str = "Linux, Documentation/admin-guide/pm/cpufreq.rst";
pub(super) const IRQ: &str = "Linux, Documentation/core-api/irq/irq-affinity.rst";
pub(super) const PACKET_MMAP: &str = "Linux, Documentation/networking/packet_mmap.rst";
pub(super) const NUMA: &str = "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst";
pub(super) const NAPI: &str = "Linux, Documentation/networking/napi.rst";
pub(super) const MARGAY: &str = "Margay, docs/live.md";

/// Formats the statement of a source.
pub(super) fn says(source: &str, what: &str) -> String {
    format!("{source}: {what}")
}
