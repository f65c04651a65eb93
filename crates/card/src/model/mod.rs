//! The card at work: an event-driven replay of a work trace through a design.
//!
//! Events are ends of pieces of work of the cores, of the matcher and arrivals; the earliest is next, the lowest number first among
//! equals. A core's work is cut into pieces of at most [`CHUNK`] bytes, so that what cores ask of DRAM and cache comes nearly in order.

mod memory;
mod steps;

use std::collections::VecDeque;

use crate::cache::Cache;
use crate::cost::Costs;
use crate::design::{Design, Sharing};
use crate::dram::Dram;
use crate::trace::Trace;

/// Bytes of a flush that a core copies or matches before others are looked at again.
pub const CHUNK: u32 = 512;
/// How far posted writes may be behind the core, in ps.
const WRITE_BUFFER: u64 = 100_000;
const NEVER: u64 = u64::MAX;
const NOBODY: u8 = u8::MAX;
const FLOWS: u32 = 0x1000_0000;
const RULES: u32 = 0x2000_0000;
const TABLES: u32 = 0x3000_0000;
const STREAMS: u32 = 0x4000_0000;
const PACKETS: u32 = 0x0fff_ffff;
/// Preamble, gap and check sum of a frame on the wire.
const WIRE: u64 = 24;

/// How packets come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// As fast as the card has room: nothing is lost.
    Saturated,
    /// At a rate in bit/s of frames, evenly; what finds no room is lost.
    Even(f64),
    /// At a rate in bit/s of frames with gaps of exponential length, made from the seed; what finds no room is lost.
    Poisson(f64, u64),
}

/// Stages, as in [`Outcome::stages`].
pub const STAGES: [&str; 6] = ["assignment", "reassembly", "software matching", "verification", "URI", "notification"];

/// What happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Packets that the card finished.
    pub done: u64,
    /// Packets that found no room.
    pub lost: u64,
    /// Bytes of the frames that were finished.
    pub bytes: u64,
    /// From the first arrival to the last end, in ps.
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
    /// Sum of the times from arrival to end, in ps.
    pub latency: u128,
    /// Packets by the binary logarithm of their latency in ps, in quarters.
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

    /// A latency in s that the share `q` of packets does not exceed, to a quarter of a doubling.
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

    /// Share of the cores' time that they worked.
    pub fn core_share(&self) -> f64 {
        self.cores.iter().sum::<u64>() as f64 / (self.time.max(1) as f64 * self.cores.len().max(1) as f64)
    }
}

#[derive(Debug, Clone, Copy)]
enum Task {
    Idle,
    Assign { slot: u32, queue: u8 },
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
    /// Stages whose code is in the instruction cache, the last used first.
    code: [u8; 4],
}

#[derive(Clone, Copy, Default)]
struct Slot {
    packet: u32,
    arrived: u64,
    /// Jobs that are not done yet.
    pending: u8,
    /// A flush point was put in since the flow moved.
    split: bool,
}

/// Locks; who had each last matters to private caches.
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
    /// Time of an instruction with its stalls, in ps.
    instruction: f64,
    /// Time in which the banks serve the accesses of an instruction, were there one bank, in ps.
    access: f64,
    /// One bank's share of accesses.
    share: f64,
    /// See [`waits`]; by the number of idle cores.
    waits: Vec<f64>,
    stride: u32,
    cores: Vec<Core>,
    idle: u64,
    caches: Vec<Cache>,
    ports: Vec<u64>,
    dram: Dram,
    banks: u64,
    resident: usize,
    owners: [u8; 3],
    tree: u64,
    notify: u64,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    arrivals: VecDeque<(u64, u32)>,
    assigning: bool,
    /// A core was woken for the first of the arrivals.
    called: bool,
    blocked: Option<(u32, u8)>,
    flows: Vec<u8>,
    jobs: VecDeque<Job>,
    matching: VecDeque<u32>,
    matcher: (u64, u32),
    out: Outcome,
}

/// Replays `trace` through `design`.
///
/// The design was checked ([`Design::check`]) and so was the trace.
pub fn simulate(design: &Design, costs: &Costs, trace: &Trace, load: Load) -> Outcome {
    Card::new(design, costs, trace).run(load)
}

/// How long an access to the scratchpad waits, in times of its own service, by the number of idle cores.
fn waits(design: &Design, costs: &Costs) -> Vec<f64> {
    let wait = |idle: u32| {
        let others = f64::from(design.cores - 1 - idle.min(design.cores - 1));
        let asked = others * costs.scratch / (1.0 / design.issue + costs.stall) / f64::from(design.banks);
        let share = asked.min(0.9);
        share / (2.0 * (1.0 - share))
    };
    (0..=design.cores).map(wait).collect()
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
            instruction: cycle * (1.0 / design.issue + costs.stall),
            access: cycle * costs.scratch,
            share: 1.0 / f64::from(design.banks),
            waits: waits(design, costs),
            stride: longest.next_power_of_two().max(2048),
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
            banks: 0,
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
        // The time at which the next packet is there, and the generator of gaps.
        let mut due = 0u64;
        let mut seed = if let Load::Poisson(_, seed) = load { seed | 1 } else { 1 };
        let mut end = 0u64;
        loop {
            // The earliest event; a packet that waits for room is not one.
            let waits = load == Load::Saturated && self.unused.is_empty();
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
                // A packet came into memory while a core had nothing to do.
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
                        self.slots[slot as usize] = Slot { packet: next as u32, arrived: at, pending: 0, split: false };
                        let address = self.address(next as u32);
                        let ready = self.transfer(at, address, u32::from(work.bytes));
                        self.arrivals.push_back((ready, slot));
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
        self.out.accesses = self.dram.accesses;
        self.out.rows = self.dram.opened;
        self.out
    }

    fn may_assign(&self) -> bool {
        !self.assigning && self.blocked.is_none()
    }

    /// Wakes a core that has nothing to do, if there is one.
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

/// A number of mean 1 with exponential distribution, from a generator of 64 bits (xorshift*).
fn exponential(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
    -((bits as f64 + 1.0) / (1u64 << 53) as f64).ln()
}
