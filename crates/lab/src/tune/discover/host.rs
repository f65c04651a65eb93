//! The machine as a whole: hardware, kernel, system, and whether its settings may be changed.

use std::collections::BTreeMap;

use crate::tune::facts::{Cgroup, Host, Softnet, Vendor};
use crate::tune::tree::Tree;

/// Kernel settings that plans read, and those that the studies set.
const SYSCTLS: [&str; 21] = [
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv6.conf.all.disable_ipv6",
    "vm.swappiness",
    "kernel.numa_balancing",
    "kernel.nmi_watchdog",
    "kernel.sched_rt_runtime_us",
];
/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
const NET_ADMIN: u32 = 12;
/// Folder for fragments of GRUB's settings on Debian and its derivatives.
const GRUB_FRAGMENTS: &str = "/etc/default/grub.d";

/// The file of a kernel setting.
pub(crate) fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

pub(super) fn sysctls<'a>(tree: &dyn Tree, interfaces: impl Iterator<Item = &'a String>) -> BTreeMap<String, String> {
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let value = |name: &str| Some((name.to_owned(), words(tree.text(&sysctl_path(name))?)));
    let mut out: BTreeMap<String, String> = SYSCTLS.iter().filter_map(|name| value(name)).collect();
    for interface in interfaces {
        // Interface names may contain dots.
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        out.extend(tree.text(&path).map(|text| (format!("net.ipv6.conf.{interface}.disable_ipv6"), words(text))));
    }
    out
}

pub(crate) fn softnet(tree: &dyn Tree) -> Softnet {
    let mut sums = [0u64; 3];
    for line in tree.text("/proc/net/softnet_stat").unwrap_or_default().lines() {
        for (sum, word) in sums.iter_mut().zip(line.split_whitespace()) {
            *sum += u64::from_str_radix(word, 16).unwrap_or(0);
        }
    }
    Softnet { packets: sums[0], dropped: sums[1], squeezed: sums[2] }
}

pub(super) fn host(tree: &dyn Tree) -> Host {
    let text = |path: &str| tree.text(path).unwrap_or_default();
    let cpuinfo = text("/proc/cpuinfo");
    // From the first processor; the others are the same.
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let vendor = match (field("vendor_id"), field("CPU implementer")) {
        ("GenuineIntel", _) => Vendor::Intel,
        ("AuthenticAMD" | "HygonGenuine", _) => Vendor::Amd,
        (_, implementer) if !implementer.is_empty() => Vendor::Arm,
        _ => Vendor::Other,
    };
    let product = [text("/sys/class/dmi/id/sys_vendor"), text("/sys/class/dmi/id/product_name")];
    let product = product.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" ");
    let kilobytes = |name: &str| {
        let meminfo = text("/proc/meminfo");
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    let kernel = text("/proc/sys/kernel/osrelease");
    let container = container(tree);
    Host {
        vendor,
        processor: [field("model name"), field("Model")]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("")
            .to_owned(),
        hypervisor: hypervisor(tree, field("flags"), &product),
        init: text("/proc/1/comm"),
        systemd: tree.exists("/run/systemd/system"),
        cgroup: cgroup(tree),
        boot_line: text("/proc/cmdline"),
        boot_fragments: tree.exists(GRUB_FRAGMENTS).then(|| GRUB_FRAGMENTS.to_owned()),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        memory: kilobytes("MemTotal"),
        swap: kilobytes("SwapTotal"),
        // Kernels with large pages have it in their names.
        page_size: if kernel.contains("64k") { 65_536 } else { 4096 },
        denied: denied(tree),
        container,
        product,
        kernel,
    }
}

fn hypervisor(tree: &dyn Tree, flags: &str, product: &str) -> Option<String> {
    let known = ["KVM", "QEMU", "VMware", "VirtualBox", "Virtual Machine", "Xen", "Amazon EC2", "Google Compute"];
    let named = known.iter().find(|name| product.contains(**name)).map(|name| (*name).to_owned());
    let flagged = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let other = tree.text("/sys/hypervisor/type").or_else(|| flagged.then(|| "unknown".to_owned()));
    // A cloud's bare-metal machine has its vendor's name but no hypervisor flag.
    match flagged || flags.is_empty() {
        true => named.or(other),
        false => tree.text("/sys/hypervisor/type"),
    }
}

fn container(tree: &dyn Tree) -> Option<String> {
    if let Some(kind) = tree.text("/run/systemd/container").filter(|kind| !kind.is_empty()) {
        return Some(kind);
    }
    for (file, kind) in [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")] {
        if tree.exists(file) {
            return Some(kind.to_owned());
        }
    }
    let environment = tree.read("/proc/1/environ").ok()?;
    environment.split('\0').find_map(|word| word.strip_prefix("container=")).map(str::to_owned)
}

fn cgroup(tree: &dyn Tree) -> Cgroup {
    let controllers = tree.text("/sys/fs/cgroup/cgroup.controllers");
    let second = controllers.as_deref().is_some_and(|all| all.split_whitespace().any(|word| word == "cpuset"));
    let version = match (&controllers, tree.exists("/sys/fs/cgroup/cpuset")) {
        (_, true) => 1,
        (Some(_), false) => 2,
        (None, false) => 0,
    };
    Cgroup { version, partitions: second }
}

/// The reason that settings may not be changed.
fn denied(tree: &dyn Tree) -> Option<String> {
    let status = tree.text("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let capabilities = u64::from_str_radix(effective.trim(), 16).ok()?;
    if capabilities >> NET_ADMIN & 1 == 0 {
        return Some("it needs root (CAP_NET_ADMIN)".to_owned());
    }
    let mounts = tree.text("/proc/self/mounts").unwrap_or_default();
    let read_only = |at: &str| {
        let last = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(at));
        last.and_then(|line| line.split(' ').nth(3)).is_some_and(|options| options.split(',').any(|word| word == "ro"))
    };
    let closed = ["/sys", "/proc/sys"].into_iter().find(|at| read_only(at))?;
    Some(format!("{closed} is mounted read-only, as in a container"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    #[test]
    fn a_host_is_read() {
        let text = "/proc/cpuinfo <<
  processor : 0
  vendor_id : AuthenticAMD
  model name : AMD EPYC 7601 32-Core Processor
  flags : fpu vme
/proc/sys/kernel/osrelease = 6.8.0-45-generic
/proc/meminfo <<
  MemTotal:       263855000 kB
  SwapTotal:        8388604 kB
/proc/1/comm = systemd
/run/systemd/system/
/sys/fs/cgroup/cgroup.controllers = cpuset cpu io memory
/sys/class/dmi/id/sys_vendor = Dell Inc.
/sys/class/dmi/id/product_name = PowerEdge R7425
/etc/default/grub.d/
/proc/self/status = CapEff:\t000001ffffffffff
/proc/self/mounts = sysfs /sys sysfs rw,nosuid 0 0
/proc/net/softnet_stat <<
  000000ff 00000001 00000000 0
  00000001 00000001 00000002 0
/proc/sys/net/core/netdev_max_backlog = 1000
/proc/sys/net/ipv4/tcp_mem = 1\t2\t3
/proc/sys/net/ipv6/conf/eth1.7/disable_ipv6 = 0
";
        let m = recorded::read(text).unwrap();
        let h = host(&m.tree);
        assert_eq!((h.vendor, h.systemd, h.cgroup), (Vendor::Amd, true, Cgroup { version: 2, partitions: true }));
        assert_eq!((h.memory, h.hypervisor.as_deref(), h.denied.as_deref()), (263_855_000 << 10, None, None));
        assert_eq!(
            (h.product.as_str(), h.boot_fragments.as_deref()),
            ("Dell Inc. PowerEdge R7425", Some(GRUB_FRAGMENTS))
        );
        assert_eq!(softnet(&m.tree), Softnet { packets: 256, dropped: 2, squeezed: 2 });
        let s = sysctls(&m.tree, ["eth1.7".to_owned()].iter());
        assert_eq!((s["net.ipv4.tcp_mem"].as_str(), s["net.ipv6.conf.eth1.7.disable_ipv6"].as_str()), ("1 2 3", "0"));
    }

    #[test]
    fn what_may_not_be_changed_is_known() {
        let of = |text: &str| host(&recorded::read(text).unwrap().tree);
        let user = of("/proc/self/status = CapEff:\t0000000000000000\n/.dockerenv/\n");
        assert_eq!(
            (user.denied.as_deref(), user.container.as_deref()),
            (Some("it needs root (CAP_NET_ADMIN)"), Some("docker"))
        );
        let inside =
            of("/proc/self/status = CapEff:\t000001ffffffffff\n/proc/self/mounts = sysfs /sys sysfs ro,nosuid 0 0\n");
        assert_eq!(inside.denied.as_deref(), Some("/sys is mounted read-only, as in a container"));
        let vm = of("/proc/cpuinfo = flags : fpu hypervisor\n/sys/class/dmi/id/sys_vendor = QEMU\n");
        assert_eq!(vm.hypervisor.as_deref(), Some("QEMU"));
    }
}
