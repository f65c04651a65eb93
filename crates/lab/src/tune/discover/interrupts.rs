//! Maps interrupts to receive queues, by the names that drivers give them.

use std::collections::BTreeMap;

use crate::tune::tree::Tree;

/// The receive queue in an interrupt's name: `i40e-eth1-TxRx-3`, `eth1-rx-3`, `mlx5_comp3@pci:0000:3b:00.0`,
/// `virtio2-input.3`. `None` for other interrupts.
fn queue(action: &str) -> Option<u32> {
    let name = action.split('@').next()?;
    // Flow director has interrupts beside those of the queues.
    if name.contains("fdir") {
        return None;
    }
    if let Some(number) = name.strip_prefix("mlx5_comp") {
        return number.parse().ok();
    }
    let at = name.rfind(['-', '.'])?;
    let number = name[at + 1..].parse().ok()?;
    let kind = name[..at].to_ascii_lowercase();
    let last = kind.rsplit('-').next()?;
    // The driver `ena` uses `Tx-Rx`.
    (["rx", "txrx", "input", "rxtx", "comp"].contains(&last)).then_some(number)
}

/// Numbers of a card's interrupts.
fn all(tree: &dyn Tree, name: &str) -> Vec<u32> {
    // The card's own interrupts, or those of a virtual card's PCI device.
    for folder in ["device/msi_irqs", "device/../msi_irqs"] {
        let names = tree.names(&format!("/sys/class/net/{name}/{folder}"));
        let mut numbers: Vec<u32> = names.iter().filter_map(|irq| irq.parse().ok()).collect();
        numbers.sort_unstable();
        if !numbers.is_empty() {
            return numbers;
        }
    }
    Vec::new()
}

/// The interrupt of each receive queue.
pub(crate) fn of_queues(tree: &dyn Tree, name: &str) -> BTreeMap<u32, u32> {
    let mut out = BTreeMap::new();
    for irq in all(tree, name) {
        for action in tree.names(&format!("/proc/irq/{irq}")) {
            if let Some(queue) = queue(&action) {
                out.insert(queue, irq);
            }
        }
    }
    out
}

fn is_of(tree: &dyn Tree, irq: u32, wanted: u32) -> bool {
    tree.names(&format!("/proc/irq/{irq}")).iter().any(|action| queue(action) == Some(wanted))
}

/// The interrupt of one receive queue. Most drivers number them in order, after one or two for other purposes, so these
/// are checked first.
pub(crate) fn of_queue(tree: &dyn Tree, name: &str, wanted: u32) -> Option<u32> {
    let all = all(tree, name);
    let likely = all.iter().skip(wanted as usize).take(3);
    likely.chain(&all).copied().find(|irq| is_of(tree, *irq, wanted))
}

/// The card's interrupts that belong to no receive queue.
pub(crate) fn others(tree: &dyn Tree, name: &str) -> Vec<u32> {
    let queues = of_queues(tree, name);
    all(tree, name).into_iter().filter(|irq| !queues.values().any(|of| of == irq)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_name_their_interrupts() {
        for (name, is) in [
            ("i40e-ens1f0-TxRx-13", Some(13)),
            ("ice-eth1-TxRx-0", Some(0)),
            ("eth1-TxRx-7", Some(7)),
            ("eth0-Tx-Rx-2", Some(2)),
            ("hns3-0000:bd:00.0-TxRx-3", Some(3)),
            ("mlx5_comp12@pci:0000:3b:00.0", Some(12)),
            ("virtio2-input.0", Some(0)),
            ("eth1-rx-5", Some(5)),
            ("virtio2-output.0", None),
            ("virtio2-config", None),
            ("eth1-tx-5", None),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("i40e-0000:3b:00.0:misc", None),
            ("i40e-0000:3b:00.0:fdir-TxRx-0", None),
        ] {
            assert_eq!(queue(name), is, "{name}");
        }
    }
}
