//! Settings of the firmware: the plan reports them but cannot write them.

use super::place::Placement;
use super::sources::{CRYSTAL_EYE, SINGLE_NODE, says};
use super::{Advice, Draft};
use crate::tune::facts::Vendor;

pub(super) fn advice(draft: &mut Draft<'_>, placement: &Placement) {
    if placement.ports.is_empty() {
        return;
    }
    let host = &draft.facts.host;
    let mut add = |what: &str, why: &str, sources: Vec<String>| {
        draft.plan.advice.push(Advice { what: what.to_owned(), why: why.to_owned(), sources });
    };
    if let Some(hypervisor) = &host.hypervisor {
        add(
            &format!(
                "firmware, frequency and pinning are the host's ({hypervisor}): give the virtual machine whole cores of one memory node"
            ),
            "reading the clock and waking up cost several times as much in a virtual machine; what the host does with its CPUs decides",
            vec![super::sources::ISOLATION.to_owned()],
        );
        return;
    }
    let measured = "measured by the first of these: no gain beside the other settings";
    if matches!(host.vendor, Vendor::Intel | Vendor::Amd) {
        let prefetchers = match host.vendor {
            Vendor::Intel => "firmware: hardware, adjacent-sector and DCU prefetchers off",
            _ => "firmware: L1 and L2 stream prefetchers off",
        };
        add(prefetchers, measured, vec![says(SINGLE_NODE, "off"), says(CRYSTAL_EYE, "off")]);
    }
    if host.vendor == Vendor::Intel {
        add(
            "firmware: direct cache access (DCA, DDIO) on",
            "the card writes packets into the cache",
            vec![says(SINGLE_NODE, "on")],
        );
    }
    add(
        "firmware: power mode Custom with P- and C-states left to the system, or the vendor's profile for latency",
        "the plan sets frequency and idle states of the CPUs that matter; a firmware that decides itself undoes that",
        vec![says(SINGLE_NODE, "mode Custom, C- and P-states on")],
    );
    add(
        "firmware: power saving of PCI Express (ASPM) off; SR-IOV off where no virtual machine needs it",
        "a link of the card that sleeps delays its first packets",
        vec![says(CRYSTAL_EYE, "ASPM, VT-d, SR-IOV off")],
    );
    if host.vendor == Vendor::Amd && draft.facts.topology.nodes.len() == 1 {
        add(
            "firmware: several memory nodes for each socket (NPS) show which cores are near to the card",
            "with one node interrupts and workers are placed as if all cores were near",
            vec![super::sources::GUIDE_HIGH.to_owned()],
        );
    }
}
