//! Values that the studies set and this plan does not, with the reasons.

use super::place::Placement;
use super::sources::{CRYSTAL_EYE, GUIDE_HIGH, IP_SYSCTL, MARGAY, PACKET_MMAP, SINGLE_NODE, SYSCTL_NET, TIANJIN, says};
use super::{Draft, Mode};
use crate::tune::facts::Vendor;

/// Pages for TCP's memory in one study, which sets the value three times.
const TCP_MEM: u64 = 100_000_000;

pub(super) fn declined(draft: &mut Draft<'_>, placement: &Placement) {
    if placement.ports.is_empty() {
        return;
    }
    let facts = draft.facts;
    let inline = draft.plan.goal.mode == Mode::Inline;
    let bytes = TCP_MEM * facts.host.page_size;
    let memory = facts.host.memory.max(1);
    draft.decline(
        "net.ipv4.tcp_mem, tcp_rmem, tcp_wmem=100000000 three times",
        TIANJIN.to_owned(),
        format!(
            "tcp_mem counts pages of {} bytes: {} GiB, {:.1} times this machine's memory; and none of the three is about packets that a \
             sensor reads ({IP_SYSCTL})",
            facts.host.page_size,
            bytes >> 30,
            bytes as f64 / memory as f64
        ),
    );
    draft.decline(
        "net.core.rmem_default, wmem_default=73400320; rmem_max, wmem_max=134217728",
        TIANJIN.to_owned(),
        format!(
            "packets come by a ring in shared memory, not by a socket's receive buffer ({PACKET_MMAP}, {SYSCTL_NET})"
        ),
    );
    draft.decline(
        "net.ipv4.tcp_congestion_control=htcp, tcp_no_metrics_save=1, tcp_mtu_probing=1",
        TIANJIN.to_owned(),
        "they are about connections of the host itself".to_owned(),
    );
    draft.decline(
        "net.ipv4.ip_forward=1, rp_filter=1",
        CRYSTAL_EYE.to_owned(),
        match inline {
            true => format!(
                "two interfaces are bridged by the engine: with routing between them packets would go twice ({MARGAY})"
            ),
            false => "a passive sensor forwards nothing".to_owned(),
        },
    );
    draft.decline(
        "rxvlan, txvlan off",
        CRYSTAL_EYE.to_owned(),
        format!("AF_PACKET hands the tag over beside the packet, and the engine puts it back ({MARGAY})"),
    );
    draft.decline(
        "tx, tso, ufo, gso, sg off",
        CRYSTAL_EYE.to_owned(),
        match inline {
            true => format!(
                "what is sent is what came, cut as it was; offloads of sending change nothing on the wire ({MARGAY})"
            ),
            false => "a passive port sends nothing".to_owned(),
        },
    );
    if matches!(facts.host.vendor, Vendor::Intel | Vendor::Amd) && facts.host.hypervisor.is_none() {
        draft.decline(
            "intel_iommu=off, VT-d off",
            format!("{SINGLE_NODE}; {CRYSTAL_EYE}"),
            "it lets every card read and write all memory; `iommu=pt` in the boot line costs as little and keeps the protection of guests"
                .to_owned(),
        );
    }
    draft.decline(
        "audit=0 selinux=0 apparmor=0 mce=ignore_ce",
        CRYSTAL_EYE.to_owned(),
        "they switch off what protects the sensor and tells of failing memory; none was measured".to_owned(),
    );
    draft.decline(
        "rmmod and modprobe of the card's driver",
        GUIDE_HIGH.to_owned(),
        "a driver that is loaded anew takes every port of the card away, the operator's too".to_owned(),
    );
    draft.decline(
        "flow timeouts: established 60, new 30, emergency-new 1",
        says(CRYSTAL_EYE, "flow-timeouts"),
        "they change what is detected: a connection that is quiet for a minute would be forgotten".to_owned(),
    );
    draft.decline(
        "HTTP bodies of 1 MB, JA3, detect.profile high, logs by syslog",
        CRYSTAL_EYE.to_owned(),
        "they are about what is detected and told, not about the machine".to_owned(),
    );
}
