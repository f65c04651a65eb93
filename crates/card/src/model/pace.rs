//! The time of an instruction: its cycle, its share of branch losses, and its share of waits for scratchpad and DRAM.
//!
//! Packets, flows, rules and tables are read from simulated caches and rows. The firmware's other data (tree nodes, stack, heap) is
//! too much to replay. Its miss rates come from curves that were counted from Margay's own code for each cache size. The time that
//! cores wait for each other comes from a queue with constant service time.

use crate::cost::Costs;
use crate::design::{Design, Sharing};

/// Other cores take at most this share of scratchpad, cache ports and DRAM.
const MOST: f64 = 0.9;

/// The time of an instruction while some cores are idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Time in ps.
    pub(super) time: f64,
    /// Data reads, cache misses among them, and rows that they open.
    pub(super) reads: f64,
    pub(super) accesses: f64,
    pub(super) rows: f64,
    /// Time that it occupies a DRAM chip, in ps.
    pub(super) chip: f64,
}

/// Misses for 1,000 references in a cache of `bytes`. Between the counted sizes, it interpolates by the size's logarithm.
fn misses(costs: &Costs, bytes: f64) -> f64 {
    let curve = [
        costs.miss_512,
        costs.miss_1k,
        costs.miss_2k,
        costs.miss_4k,
        costs.miss_8k,
        costs.miss_16k,
        costs.miss_32k,
        costs.miss_64k,
    ];
    let place = (bytes / 512.0).log2().clamp(0.0, (curve.len() - 1) as f64);
    let (low, part) = (place as usize, place.fract());
    let high = (low + 1).min(curve.len() - 1);
    curve[low] + (curve[high] - curve[low]) * part
}

/// Mean wait for a resource that others use for the share `busy` of the time, in units of the service time.
fn wait(busy: f64) -> f64 {
    let busy = busy.clamp(0.0, MOST);
    busy / (2.0 * (1.0 - busy))
}

/// The refill of a private cache after a flush: the core's time in ps, and the number of accesses.
pub(super) fn refill(design: &Design, costs: &Costs) -> (u64, u64) {
    if design.sharing == Sharing::Shared || design.cache == 0 || costs.data <= 0.0 {
        return (0, 0);
    }
    let blocks = (costs.data_set.min(f64::from(design.cache)) / f64::from(design.block)) as u64;
    let each = design.dram.first + u64::from(design.block.max(design.dram.burst)) * design.dram.byte / 1000;
    (blocks * each, blocks)
}

/// The pace of a core, by the number of idle cores.
pub(super) fn paces(design: &Design, costs: &Costs) -> Vec<Pace> {
    (0..=design.cores).map(|idle| pace(design, costs, f64::from((design.cores - idle).max(1)))).collect()
}

fn pace(design: &Design, costs: &Costs, active: f64) -> Pace {
    let cycle = 1e12 / design.frequency;
    let own = cycle * (1.0 / design.issue + costs.stall);
    let others = active - 1.0;
    // The scratchpad: an access occupies its bank for a cycle.
    let asked = costs.scratch * cycle / f64::from(design.banks);
    let mut time = own + costs.scratch * cycle * wait(others * asked / own);
    time = time.max(active * asked);
    // Data behind the cache.
    let dram = &design.dram;
    let conflict = 1.0 - (1.0 - 1.0 / f64::from(dram.chips * dram.banks)).powf(others);
    let transfer = |bytes: u32| f64::from(bytes.max(dram.burst)) * dram.byte as f64 / 1000.0;
    let (accesses, each) = match (design.cache, design.sharing) {
        (0, _) => (costs.data, transfer(4)),
        (size, Sharing::Private) => (costs.data * misses(costs, f64::from(size)) / 1000.0, transfer(design.block)),
        (size, Sharing::Shared) => {
            let ports = costs.data * cycle / f64::from(design.cache_banks);
            time += costs.data * cycle * wait(others * ports / time);
            time = time.max(active * ports);
            (costs.data * misses(costs, f64::from(size) / active) / 1000.0, transfer(design.block))
        }
    };
    let rows = (costs.data * costs.miss_row / 1000.0 + accesses * conflict).min(accesses);
    let chip = accesses * each + rows * dram.open as f64;
    let chips = f64::from(dram.chips);
    let alone = time + accesses * dram.first as f64 + chip;
    time = alone + chip * wait(others * chip / (chips * alone));
    // The remaining time of the chips is for packets, flows, rules and tables.
    time = time.max(active * chip / (chips * MOST));
    Pace { time, reads: costs.data, accesses, rows, chip }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_more_often_than_it_can_serve() {
        let costs = Costs::default();
        for cores in [1, 4, 64] {
            for (cache, sharing) in [(0, Sharing::Shared), (512, Sharing::Shared), (65536, Sharing::Private)] {
                let design = Design { cores, cache, sharing, ..Design::default() };
                for (idle, p) in paces(&design, &costs).iter().enumerate() {
                    let active = f64::from(cores - idle as u32).max(1.0);
                    let share = active * p.chip / (f64::from(design.dram.chips) * p.time);
                    assert!(share <= MOST + 1e-9, "{design:?}: DRAM {share}");
                    let banks = active * costs.scratch * 2000.0 / (f64::from(design.banks) * p.time);
                    assert!(banks <= 1.0 + 1e-9, "{design:?}: scratchpad {banks}");
                    assert!(p.time >= 2000.0 * (1.0 + costs.stall) && p.rows <= p.accesses && p.accesses <= p.reads);
                }
            }
        }
    }

    #[test]
    fn a_larger_cache_misses_less_and_sizes_between_lie_between() {
        let costs = Costs::default();
        let of: Vec<f64> = (8..18).map(|power| misses(&costs, f64::from(1 << power))).collect();
        assert!(of.windows(2).all(|w| w[1] <= w[0]), "{of:?}");
        assert_eq!((of[0], of[9]), (costs.miss_512, costs.miss_64k));
        let between = misses(&costs, 3000.0);
        assert!(between < costs.miss_2k && between > costs.miss_4k);
    }
}
