//! Rough silicon area and power of a design: enough to rank designs, not to build one.
//!
//! All figures are estimates for a 90 nm process. A small in-order core without its memories has 0.6 mm² and 0.15 mW/MHz. SRAM has
//! 0.0125 mm² and 0.002 mW/MHz for each KB (a cell of 1 µm² for each bit, and half as much again around it). A bank's decoder and
//! its part of the crossbar have 0.05 mm², a matcher 4 mm² and 1.2 W for each GB/s, a DRAM chip 2 W. Above 500 MHz, a core's area and
//! power grow with the frequency once more (deeper buffers, higher voltage).

use crate::design::{Design, Sharing};

const KB: f64 = 1024.0;
/// Bytes of the scratchpad.
const SCRATCHPAD: f64 = 256.0 * KB;

/// Area and power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// mm².
    pub area: f64,
    /// W.
    pub power: f64,
}

/// The estimate for a design.
pub fn estimate(design: &Design) -> Estimate {
    let cores = f64::from(design.cores);
    let mhz = design.frequency / 1e6;
    let faster = (mhz / 500.0).max(1.0) * design.issue.max(1.0);
    let caches = if design.sharing == Sharing::Private { cores } else { 1.0 };
    let sram = (cores * f64::from(design.icache) + caches * f64::from(design.cache) + SCRATCHPAD) / KB;
    let ports = f64::from(design.banks) + if design.cache > 0 { f64::from(design.cache_banks) } else { 0.0 };
    let matcher = design.matcher / 1e9;
    Estimate {
        area: cores * 0.6 * faster + sram * 0.0125 + ports * 0.05 * (1.0 + cores / 8.0) + matcher * 4.0,
        power: cores * mhz * 0.00015 * faster + sram * mhz * 2e-6 + matcher * 1.2 + f64::from(design.dram.chips) * 2.0,
    }
}
