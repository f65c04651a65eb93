//! A card's design: a YAML file, each parameter with its unit. Defaults are the study's (table 4.1).

use margay_config::{Config, Node};

use crate::Bad;
use crate::dram::Timing;
use crate::read::{count, quantity, unknown, word};

/// How packets are assigned to cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// By a symmetric hash of the addresses.
    Static,
    /// By a table: a new flow goes to the shortest queue.
    Dynamic,
    /// As dynamic, but a flow moves if its queue is too full and another is empty enough.
    Reassign,
}

/// The owner of the data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One for all cores.
    Shared,
    /// One for each core, flushed when the core takes a lock that another core had.
    Private,
}

/// The card's part of the work; the host does the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything. The host gets alerts.
    All,
    /// The card tracks flows, reassembles streams and searches for strings. The host gets packets with a URI, or with a match in their
    /// port group.
    Filter,
    /// The card tracks flows. The host gets the packets of a flow until it needs no more of them.
    Track,
    /// The card distributes packets to the host's cores.
    Steer,
}

/// Names of parts.
pub const PARTS: [(&str, Part); 4] =
    [("all", Part::All), ("filter", Part::Filter), ("track", Part::Track), ("steer", Part::Steer)];
/// Names of assignment methods.
pub const ASSIGNMENTS: [(&str, Assignment); 3] =
    [("static", Assignment::Static), ("dynamic", Assignment::Dynamic), ("reassign", Assignment::Reassign)];
/// Names for the sharing of the data cache.
pub const SHARINGS: [(&str, Sharing); 2] = [("shared", Sharing::Shared), ("private", Sharing::Private)];
const YES: [(&str, bool); 2] = [("yes", true), ("no", false)];

/// A card.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Cores, 1 to 64.
    pub cores: u32,
    /// Clock of the cores in Hz.
    pub frequency: f64,
    /// Instructions that a core issues in a cycle.
    pub issue: f64,
    /// Bytes of a core's instruction cache.
    pub icache: u32,
    /// Banks of the scratchpad.
    pub banks: u32,
    /// Bytes of the data cache (of each core's, if private); 0 for none.
    pub cache: u32,
    /// Ways of the data cache.
    pub ways: u32,
    /// Bytes of a block.
    pub block: u32,
    /// The owner of the data cache.
    pub sharing: Sharing,
    /// Banks of a shared cache, each of which serves one access in a cycle.
    pub cache_banks: u32,
    /// The DRAM.
    pub dram: Timing,
    /// Rate of the string-matching hardware assist in bytes a second; 0 if software matches.
    pub matcher: f64,
    /// The assist reads the data of a flush from DRAM by itself, so nothing is copied.
    pub gather: bool,
    /// Rate of the link in bit/s; 0 for one that is never the limit.
    pub link: f64,
    /// Packets that the card has room for.
    pub packets: u32,
    /// Packets in a core's queue.
    pub queue: u32,
    /// How packets are assigned to cores.
    pub assignment: Assignment,
    /// A flow moves away from a queue with this many packets.
    pub full: u32,
    /// A flow moves to a queue with at most this many packets.
    pub empty: u32,
    /// Hardware puts packets into queues by hash, without a core.
    pub steered: bool,
    /// The card's part of the work.
    pub part: Part,
    /// After an alert, the remaining packets of the flow are dropped.
    pub prevention: bool,
}

impl Default for Design {
    fn default() -> Design {
        Design {
            cores: 4,
            frequency: 500e6,
            issue: 1.0,
            icache: 8 << 10,
            banks: 4,
            cache: 64 << 10,
            ways: 2,
            block: 32,
            sharing: Sharing::Shared,
            cache_banks: 1,
            dram: Timing { chips: 2, banks: 4, row: 2048, open: 52_000, first: 16_000, byte: 125_000, burst: 8 },
            matcher: 500e6,
            gather: false,
            link: 0.0,
            packets: 256,
            queue: 32,
            assignment: Assignment::Reassign,
            full: 16,
            empty: 4,
            steered: false,
            part: Part::All,
            prevention: false,
        }
    }
}

const HERTZ: [(&str, f64); 2] = [("MHz", 1e6), ("GHz", 1e9)];
const BYTES: [(&str, f64); 4] = [("B", 1.0), ("KB", 1024.0), ("MB", 1_048_576.0), ("", 1.0)];
const TIME: [(&str, f64); 2] = [("ns", 1000.0), ("ps", 1.0)];
const BITRATE: [(&str, f64); 3] = [("Mbit/s", 1e6), ("Gbit/s", 1e9), ("", 1.0)];
const BYTERATE: [(&str, f64); 3] = [("MB/s", 1e6), ("GB/s", 1e9), ("", 1.0)];

impl Design {
    /// Reads a design; `name` is the file's.
    ///
    /// # Errors
    /// An unknown key, a value that cannot be read, or a design that cannot be built, with file and line.
    pub fn from_yaml(text: &str, name: &str) -> Result<Design, Bad> {
        let config = Config::from_str(text, name)?;
        let mut design = Design::default();
        for node in config.root().children() {
            design.set(&node)?;
        }
        design.check().map_err(|why| Bad(format!("{name}: {why}")))?;
        Ok(design)
    }

    /// Sets one parameter.
    ///
    /// # Errors
    /// As [`Design::from_yaml`].
    pub fn set(&mut self, node: &Node<'_>) -> Result<(), Bad> {
        let size = |least: u32, most: u32| -> Result<u32, Bad> {
            let bytes = quantity(node, &BYTES)?;
            if bytes == 0.0 && least == 0 {
                return Ok(0);
            }
            let whole = bytes as u32;
            if bytes != f64::from(whole) || !whole.is_power_of_two() || whole < least || whole > most {
                return Err(node
                    .error(format!("`{}` is {bytes} bytes, not a power of two from {least} to {most}", node.name()))
                    .into());
            }
            Ok(whole)
        };
        let rate = |units: &[(&str, f64)], least: f64| -> Result<f64, Bad> {
            let value = quantity(node, units)?;
            if value == 0.0 && least == 0.0 || (1e6..=1e14).contains(&value) {
                Ok(value)
            } else {
                Err(node.error(format!("`{}` is out of range", node.name())).into())
            }
        };
        match node.name() {
            "title" | "about" | "source" => {}
            "cores" => self.cores = count(node, 1, 64)?,
            "frequency" => self.frequency = rate(&HERTZ, 1.0)?,
            "issue" => {
                self.issue = quantity(node, &[("", 1.0)])?;
                if !(0.1..=8.0).contains(&self.issue) {
                    return Err(node.error("`issue` is not from 0.1 to 8 instructions a cycle").into());
                }
            }
            "instruction-cache" => self.icache = size(512, 1 << 20)?,
            "scratchpad-banks" => self.banks = count(node, 1, 64)?,
            "data-cache" => self.cache = size(0, 64 << 20)?,
            "ways" => self.ways = size(1, 16)?,
            "block" => self.block = size(8, 256)?,
            "sharing" => self.sharing = word(node, &SHARINGS)?,
            "cache-banks" => self.cache_banks = size(1, 64)?,
            "dram-chips" => self.dram.chips = count(node, 1, 16)?,
            "dram-banks" => self.dram.banks = count(node, 1, 64)?,
            "dram-row" => self.dram.row = size(256, 1 << 16)?,
            "dram-open" => self.dram.open = quantity(node, &TIME)? as u64,
            "dram-first" => self.dram.first = quantity(node, &TIME)? as u64,
            "dram-rate" => self.dram.byte = (1e15 / rate(&BYTERATE, 1.0)?) as u64,
            "dram-burst" => self.dram.burst = size(4, 256)?,
            "matcher" => self.matcher = rate(&BYTERATE, 0.0)?,
            "gather" => self.gather = word(node, &YES)?,
            "link" => self.link = rate(&BITRATE, 0.0)?,
            "packets" => self.packets = count(node, 2, 4096)?,
            "queue" => self.queue = count(node, 1, 4096)?,
            "assignment" => self.assignment = word(node, &ASSIGNMENTS)?,
            "reassign-full" => self.full = count(node, 1, 4096)?,
            "steering" => self.steered = word(node, &[("core", false), ("hardware", true)])?,
            "part" => self.part = word(node, &PARTS)?,
            "prevention" => self.prevention = word(node, &YES)?,
            "reassign-empty" => self.empty = count(node, 0, 4096)?,
            _ => return Err(unknown(node)),
        }
        Ok(())
    }

    /// Checks that the design's parameters are consistent.
    ///
    /// # Errors
    /// A sentence about those that are not.
    pub fn check(&self) -> Result<(), String> {
        if self.cache > 0 && self.cache < self.ways * self.block {
            return Err(format!(
                "a data cache of {} bytes has no room for {} ways of {} bytes",
                self.cache, self.ways, self.block
            ));
        }
        if self.sharing == Sharing::Private && self.cache_banks > 1 {
            return Err("cache-banks is of a shared cache, and sharing is private".to_owned());
        }
        if self.gather && self.matcher == 0.0 {
            return Err("gather needs a matcher".to_owned());
        }
        if self.assignment == Assignment::Reassign && (self.full > self.queue || self.empty >= self.full) {
            return Err("reassign-empty has to be less than reassign-full, and that no more than queue".to_owned());
        }
        if self.steered && self.assignment != Assignment::Static {
            return Err("steering by hardware is by hash: assignment has to be static".to_owned());
        }
        if self.prevention && self.part != Part::All {
            return Err("prevention needs a card that does all: part is not".to_owned());
        }
        if self.dram.row < self.block {
            return Err("dram-row is less than block".to_owned());
        }
        Ok(())
    }
}
