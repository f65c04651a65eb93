//! Simulates the card: an event-driven replay of a work trace through a design.
//!
//! Events are arrivals, and the times at which cores and matcher finish work. The earliest event is next; among equal times, the
//! one with the lowest number. A core's work is divided into pieces of at most [`CHUNK`] bytes, so that the cores' requests to DRAM
//! and cache are nearly in order.

mod memory;
mod pace;
mod steps;

use std::collections::VecDeque;

use crate::cache::Cache;
use crate::cost::Costs;
use crate::design::{Design, Part, Sharing};
use crate::dram::Dram;
use crate::trace::Trace;

use self::pace::Pace;

/// Bytes of a flush that a core copies or matches in one event.
pub const CHUNK: u32 = 512;
/// How far posted writes may lag behind the core, in ps.
const WRITE_BUFFER: u64 = 100_000;
const NEVER: u64 = u64::MAX;
const NOBODY: u8 = u8::MAX;
/// In [`enough`]: the flow is inspected to its end.
const NOT_YET: u32 = u32::MAX;
const FLOWS: u32 = 0x1000_0000;
const RULES: u32 = 0x2000_0000;
const TABLES: u32 = 0x3000_0000;
const STREAMS: u32 = 0x4000_0000;
const PACKETS: u32 = 0x0fff_ffff;
/// Bytes of a frame's preamble, gap and checksum on the wire.
const WIRE: u64 = 24;

/// How packets arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// As soon as the card has room, so nothing is lost.
    Saturated,
    /// At a rate in bit/s of frames, evenly; packets without room are lost.
    Even(f64),
    /// At a rate in bit/s of frames with exponential gaps from the seed; packets without room are lost.
    Poisson(f64, u64),
}

/// Stages, as in [`Outcome::stages`].
pub const STAGES: [&str; 6] = ["assignment", "reassembly", "software matching", "verification", "URI", "notification"];

/// The result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Number of packets that the card finished.
    pub done: u64,
    /// Packets that were lost for lack of room.
    pub lost: u64,
    /// Bytes of the finished frames.
    pub bytes: u64,
    /// Time from the first arrival to the end of the last packet, in ps.
    pub time: u64,
    /// Time that cores worked, in ps, by stage.
    pub stages: [u64; 6],
    /// Time that cores worked, in ps, by core.
    pub cores: Vec<u64>,
    /// Time that each DRAM chip worked, in ps.
    pub dram: Vec<u64>,
    /// DRAM accesses.
    pub accesses: u64,
    /// Rows opened.
    pub rows: u64,
    /// Time that the matcher worked, in ps.
    pub matcher: u64,
    /// Reads of blocks through the data cache, and those that missed.
    pub reads: (u64, u64),
    /// Times that a flow moved.
    pub moved: u64,
    /// Reports that were verified.
    pub verified: u64,
    /// Alerts of the finished packets.
    pub alerts: u64,
    /// Packets that were dropped because their flow had an alert.
    pub dropped: u64,
    /// Packets that went to the host, and their bytes.
    pub host: (u64, u64),
    /// Host instructions.
    pub host_work: f64,
    /// Sum of the packets' times from arrival to end, in ps.
    pub latency: u128,
    /// Number of packets by the binary logarithm of their latency in ps, in steps of a quarter.
    pub latencies: Vec<u64>,
}

impl Outcome {
    /// Throughput in bit/s of frames.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / (self.time.max(1) as f64 * 1e-12)
    }

    /// Share of the packets that were lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.lost + self.done).max(1) as f64
    }

    /// Mean latency in s.
    pub fn mean_latency(&self) -> f64 {
        self.latency as f64 * 1e-12 / self.done.max(1) as f64
    }

    /// The latency in s that the share `q` of packets does not exceed, with the precision of a quarter of a doubling.
    pub fn latency_at(&self, q: f64) -> f64 {
        let mut left = (self.done as f64 * q).ceil();
        for (quarter, n) in self.latencies.iter().enumerate() {
            left -= *n as f64;
            if left <= 0.0 {
                return 2f64.powf((quarter as f64 + 1.0) / 4.0) * 1e-12;
            }
        }
        0.0
    }

    /// Number of host cores, with `speed` instructions a second each, for the work that the card leaves at `rate` bit/s.
    pub fn host_cores(&self, rate: f64, speed: f64) -> f64 {
        self.host_work / (self.bytes.max(1) as f64 * 8.0) * rate / speed
    }

    /// Share of the time that the cores worked.
    pub fn core_share(&self) -> f64 {
        self.cores.iter().sum::<u64>() as f64 / (self.time.max(1) as f64 * self.cores.len().max(1) as f64)
    }
}

#[derive(Debug, Clone, Copy)]
enum Task {
    Idle,
    Assign { slot: u32, queue: u8 },
    Segment { slot: u32 },
    Packet { slot: u32, copied: u32 },
    Match { slot: u32, done: u32 },
    Verify { slot: u32, next: u16 },
    Uri { slot: u32 },
    Notify { slot: u32 },
}

#[derive(Debug, Clone, Copy)]
enum Job {
    Verify(u32),
    Uri(u32),
}

#[derive(Debug)]
struct Core {
    at: u64,
    task: Task,
    queue: VecDeque<u32>,
    /// Stages whose code is in the instruction cache, the most recently used first.
    code: [u8; 4],
}

#[derive(Clone, Copy, Default)]
struct Slot {
    packet: u32,
    arrived: u64,
    /// The time at which it is in memory.
    ready: u64,
    /// Unfinished jobs.
    pending: u8,
    /// A flush point was inserted, because the flow moved.
    split: bool,
    /// The packet was dropped.
    dropped: bool,
}

/// Locks. With private caches, it matters which core had a lock last.
#[derive(Debug, Clone, Copy)]
enum Lock {
    Assign,
    Tree,
    Notify,
}

struct Card<'a> {
    design: &'a Design,
    costs: &'a Costs,
    trace: &'a Trace,
    cycle: f64,
    /// The time of an instruction, and the number of instructions executed, by the number of idle cores.
    paces: Vec<(Pace, f64)>,
    /// The refill of a private cache after a flush (time in ps, accesses), and which cores need it.
    refill: (u64, u64),
    cold: u64,
    refilled: u64,
    stride: u32,
    cores: Vec<Core>,
    idle: u64,
    caches: Vec<Cache>,
    ports: Vec<u64>,
    dram: Dram,
    resident: usize,
    owners: [u8; 3],
    tree: u64,
    notify: u64,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    arrivals: VecDeque<(u64, u32)>,
    assigning: bool,
    /// A core was woken for the first arrival.
    called: bool,
    blocked: Option<(u32, u8)>,
    flows: Vec<u8>,
    /// Flows that had an alert, if the design drops their remaining packets.
    barred: Vec<bool>,
    /// The packet of each flow from which on the host needs no more of it, if the card tracks flows for the host.
    enough: Vec<u32>,
    jobs: VecDeque<Job>,
    matching: VecDeque<u32>,
    matcher: (u64, u32),
    out: Outcome,
}

/// Replays `trace` through `design`.
///
/// The caller has checked the design ([`Design::check`]) and the trace ([`Trace::check`]).
pub fn simulate(design: &Design, costs: &Costs, trace: &Trace, load: Load) -> Outcome {
    Card::new(design, costs, trace).run(load)
}

/// For each flow, the first packet with payload after the last packet that caused an inspection.
fn enough(trace: &Trace) -> Vec<u32> {
    let mut from = vec![NOT_YET; trace.flows.len()];
    for (number, p) in trace.packets.iter().enumerate() {
        let Some(from) = from.get_mut(p.flow as usize) else { continue };
        if p.flush > 0 || p.group > 0 || p.uris > 0 || p.alerts > 0 {
            *from = NOT_YET;
        } else if p.payload > 0 && *from == NOT_YET {
            *from = number as u32;
        }
    }
    from
}

impl<'a> Card<'a> {
    fn new(design: &'a Design, costs: &'a Costs, trace: &'a Trace) -> Card<'a> {
        let n = design.cores as usize;
        let caches = match (design.cache, design.sharing) {
            (0, _) => Vec::new(),
            (size, Sharing::Shared) => vec![Cache::new(size, design.ways, design.block)],
            (size, Sharing::Private) => vec![Cache::new(size, design.ways, design.block); n],
        };
        let slots = design.packets as usize;
        let cycle = 1e12 / design.frequency;
        let longest = trace.packets.iter().map(|p| u32::from(p.bytes)).max().unwrap_or(0);
        Card {
            cycle,
            paces: pace::paces(design, costs).into_iter().map(|p| (p, 0.0)).collect(),
            refill: pace::refill(design, costs),
            cold: 0,
            refilled: 0,
            // Use an odd number of rows, so that packets go to all chips and banks in turn.
            stride: (longest.max(2048).div_ceil(design.dram.row) | 1) * design.dram.row,
            cores: (0..n)
                .map(|_| Core {
                    at: NEVER,
                    task: Task::Idle,
                    queue: VecDeque::with_capacity(design.queue as usize),
                    code: [NOBODY; 4],
                })
                .collect(),
            idle: if n == 64 { u64::MAX } else { (1 << n) - 1 },
            caches,
            ports: vec![0; design.cache_banks as usize],
            dram: Dram::new(design.dram.clone()),
            resident: if costs.code > 0.0 { ((f64::from(design.icache) / costs.code) as usize).clamp(0, 4) } else { 4 },
            owners: [NOBODY; 3],
            tree: 0,
            notify: 0,
            slots: vec![Slot::default(); slots],
            unused: (0..design.packets).rev().collect(),
            arrivals: VecDeque::with_capacity(slots),
            assigning: false,
            called: false,
            blocked: None,
            flows: vec![NOBODY; trace.flows.len()],
            barred: vec![false; if design.prevention { trace.flows.len() } else { 0 }],
            enough: if matches!(design.part, Part::Track | Part::Filter) { enough(trace) } else { Vec::new() },
            jobs: VecDeque::with_capacity(2 * slots),
            matching: VecDeque::with_capacity(slots),
            matcher: (NEVER, 0),
            out: Outcome { cores: vec![0; n], latencies: vec![0; 256], ..Outcome::default() },
            design,
            costs,
            trace,
        }
    }

    fn run(mut self, load: Load) -> Outcome {
        let mut next = 0usize;
        // The arrival time of the next packet, and the generator of gaps.
        let mut due = 0u64;
        let mut seed = if let Load::Poisson(_, seed) = load { seed | 1 } else { 1 };
        let mut end = 0u64;
        loop {
            // Find the earliest event. A packet that waits for room is not an event.
            let full = self.unused.is_empty() || self.design.steered && self.blocked.is_some();
            let waits = load == Load::Saturated && full;
            let mut at = if next < self.trace.packets.len() && !waits { due.max(end) } else { NEVER };
            let mut who = usize::MAX;
            if self.matcher.0 < at {
                (at, who) = (self.matcher.0, usize::MAX - 1);
            }
            for (number, core) in self.cores.iter().enumerate() {
                if core.at < at {
                    (at, who) = (core.at, number);
                }
            }
            if let Some((ready, _)) = self.arrivals.front().copied()
                && ready.max(end) <= at
                && self.idle != 0
                && self.may_assign()
                && !self.called
            {
                // A packet arrived in memory while a core was idle.
                self.called = true;
                self.wake(ready.max(end));
                continue;
            }
            if at == NEVER {
                break;
            }
            end = end.max(at);
            match who {
                usize::MAX => {
                    let work = self.trace.packets[next];
                    let bits = f64::from(work.bytes) * 8.0;
                    if let Some(slot) = self.unused.pop() {
                        let address = self.address(next as u32);
                        let ready = self.transfer(at, address, u32::from(work.bytes));
                        let packet = next as u32;
                        self.slots[slot as usize] = Slot { packet, arrived: at, ready, ..Slot::default() };
                        if self.design.steered {
                            self.steer(slot, ready, load == Load::Saturated);
                        } else {
                            self.arrivals.push_back((ready, slot));
                        }
                    } else {
                        self.out.lost += 1;
                    }
                    next += 1;
                    let link =
                        if self.design.link > 0.0 { (bits + WIRE as f64 * 8.0) * 1e12 / self.design.link } else { 0.0 };
                    let gap = match load {
                        Load::Saturated => link,
                        Load::Even(rate) => (bits * 1e12 / rate).max(link),
                        Load::Poisson(rate, _) => (bits * 1e12 / rate * exponential(&mut seed)).max(link),
                    };
                    due = at + gap.round() as u64;
                }
                who if who == usize::MAX - 1 => self.matched(at),
                who => {
                    self.called = false;
                    self.step(who, at);
                }
            }
        }
        self.out.time = end;
        self.out.dram = self.dram.busy;
        self.out.accesses = self.dram.accesses + self.refilled;
        self.out.rows = self.dram.opened;
        // The part that was computed instead of replayed.
        let sum = |of: &dyn Fn(&Pace) -> f64| self.paces.iter().map(|(p, n)| of(p) * n).sum::<f64>();
        let chips = f64::from(self.design.dram.chips);
        self.out.accesses += sum(&|p| p.accesses) as u64;
        self.out.rows += sum(&|p| p.rows) as u64;
        if !self.caches.is_empty() {
            self.out.reads.0 += sum(&|p| p.reads) as u64;
            self.out.reads.1 += sum(&|p| p.accesses) as u64 + self.refilled;
        }
        let each = (sum(&|p| p.chip) / chips) as u64;
        self.out.dram.iter_mut().for_each(|busy| *busy += each);
        // If both together exceed what the chips can serve, the chips determine the run's time.
        self.out.time = self.out.dram.iter().fold(end, |time, busy| time.max(*busy));
        self.out
    }

    fn may_assign(&self) -> bool {
        !self.assigning && self.blocked.is_none()
    }

    /// Wakes an idle core, if there is one.
    fn wake(&mut self, at: u64) {
        if self.idle != 0 {
            let core = self.idle.trailing_zeros() as usize;
            self.wake_core(core, at);
        }
    }

    fn wake_core(&mut self, core: usize, at: u64) {
        if self.idle & 1 << core != 0 {
            self.idle &= !(1 << core);
            self.cores[core].at = at;
        }
    }
}

/// An exponentially distributed number with mean 1, from a 64-bit generator (xorshift*).
fn exponential(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
    -((bits as f64 + 1.0) / (1u64 << 53) as f64).ln()
}
