//! The card at work: an event-driven replay of a work trace through a design.
//!
//! Events are ends of pieces of work of the cores, of the matcher and arrivals; the earliest is next, the lowest number first among
//! equals. A core's work is cut into pieces of at most [`CHUNK`] bytes, so that what cores ask of DRAM and cache comes nearly in order.

use std::collections::VecDeque;

use crate::cache::Cache;
use crate::cost::Costs;
use crate::design::{Assignment, Design, Sharing};
use crate::dram::Dram;
use crate::trace::{TCP, Trace, Work};

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

    fn address(&self, packet: u32) -> u32 {
        packet.wrapping_mul(self.stride) & PACKETS
    }

    /// An assist moves bytes between its buffers and DRAM, a row at a time.
    fn transfer(&mut self, now: u64, address: u32, bytes: u32) -> u64 {
        let row = self.design.dram.row;
        let (mut at, mut left, mut end) = (address, bytes, now);
        while left > 0 {
            let part = left.min(row - at % row);
            end = self.dram.access(now, at, part, 1);
            at = at.wrapping_add(part);
            left -= part;
        }
        end
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

    /// Instructions, with what they ask of the scratchpad.
    fn compute(&mut self, now: u64, instructions: f64) -> u64 {
        let own = instructions * self.instruction;
        let accesses = instructions * self.costs.scratch;
        if accesses <= 0.0 {
            return now + own as u64;
        }
        // Other cores' accesses come evenly over banks: what one finds busy waits for as a queue of constant service does, and all
        // together get no more than the banks give.
        let others = f64::from(self.design.cores - 1 - self.idle.count_ones().min(self.design.cores - 1));
        let banks = f64::from(self.design.banks);
        let share = (others * self.costs.scratch / (1.0 / self.design.issue + self.costs.stall) / banks).min(0.9);
        let wait = accesses * self.cycle * share / (2.0 * (1.0 - share));
        self.banks = self.banks.max(now) + (accesses * self.cycle / banks) as u64;
        (now + (own + wait) as u64).max(self.banks)
    }

    /// The core reads `bytes` from DRAM through what cache there is.
    fn read(&mut self, core: usize, now: u64, address: u32, bytes: u32) -> u64 {
        if bytes == 0 {
            return now;
        }
        let block = self.design.block;
        let word = self.cycle as u64;
        let mut at = now;
        let mut address = address & !(block - 1);
        for _ in 0..bytes.div_ceil(block) {
            let words = block / 4;
            if self.caches.is_empty() {
                at = self.dram.access(at, address, block, words);
            } else {
                let cache = match self.design.sharing {
                    Sharing::Shared => {
                        let bank = (address / block) as usize & (self.ports.len() - 1);
                        // The pipeline hides the core's own accesses, not its wait for those of others.
                        let start = at.max(self.ports[bank]);
                        self.ports[bank] = start + word * u64::from(words);
                        at = start + word;
                        0
                    }
                    Sharing::Private => core,
                };
                self.out.reads.0 += 1;
                if !self.caches[cache].read(address) {
                    self.out.reads.1 += 1;
                    at = self.dram.access(at, address, block, 1);
                }
            }
            address = address.wrapping_add(block);
        }
        at
    }

    /// A posted write of one block.
    fn write(&mut self, now: u64, address: u32) -> u64 {
        let block = self.design.block;
        let end = self.dram.access(now, address & !(block - 1), block, 1);
        now.max(end.saturating_sub(WRITE_BUFFER))
    }

    fn lock(&mut self, core: usize, lock: Lock) {
        if self.design.sharing == Sharing::Private
            && let Some(cache) = self.caches.get_mut(core)
        {
            let owner = &mut self.owners[lock as usize];
            if *owner != core as u8 {
                *owner = core as u8;
                cache.flush();
            }
        }
    }

    /// The code of a stage comes into the instruction cache.
    fn code(&mut self, core: usize, now: u64, stage: u8) -> u64 {
        let code = &mut self.cores[core].code;
        let found = code.iter().position(|s| *s == stage);
        code[..=found.unwrap_or(3)].rotate_right(1);
        code[0] = stage;
        if found.is_some_and(|place| place < self.resident) || self.resident >= 4 && found.is_some() {
            return now;
        }
        let bytes = self.costs.code as u32;
        if bytes == 0 { now } else { self.transfer(now, TABLES - 0x10_0000 + u32::from(stage) * bytes, bytes) }
    }

    fn work(&self, slot: u32) -> Work {
        self.trace.packets[self.slots[slot as usize].packet as usize]
    }

    /// A core works for a stage from `now` to `end`, and then goes on with `task`.
    fn busy(&mut self, core: usize, stage: usize, now: u64, end: u64, task: Task) {
        self.out.stages[stage] += end - now;
        self.out.cores[core] += end - now;
        let core = &mut self.cores[core];
        core.at = end;
        core.task = task;
    }

    fn step(&mut self, core: usize, now: u64) {
        match self.cores[core].task {
            Task::Idle => self.pick(core, now),
            Task::Assign { slot, queue } => {
                self.assigning = false;
                if self.cores[usize::from(queue)].queue.len() < self.design.queue as usize {
                    self.enqueue(slot, queue, now);
                } else {
                    // All that came later waits behind it.
                    self.blocked = Some((slot, queue));
                }
                self.pick(core, now);
            }
            Task::Packet { slot, copied } => self.packet(core, now, slot, copied),
            Task::Match { slot, done } => self.match_software(core, now, slot, done),
            Task::Verify { slot, next } => self.verify(core, now, slot, next),
            Task::Uri { slot } => self.job_done(core, now, slot),
            Task::Notify { slot } => {
                let s = self.slots[slot as usize];
                let work = self.work(slot);
                let latency = now - s.arrived;
                self.out.done += 1;
                self.out.bytes += u64::from(work.bytes);
                self.out.alerts += u64::from(work.alerts);
                self.out.latency += u128::from(latency);
                let quarter = (latency.max(1) as f64).log2() * 4.0;
                self.out.latencies[(quarter as usize).min(255)] += 1;
                self.unused.push(slot);
                self.pick(core, now);
            }
        }
    }

    fn enqueue(&mut self, slot: u32, queue: u8, now: u64) {
        self.cores[usize::from(queue)].queue.push_back(slot);
        self.wake_core(usize::from(queue), now);
    }

    /// What a free core does next: what others wait for, then its own packets, then arrivals.
    fn pick(&mut self, core: usize, now: u64) {
        self.cores[core].task = Task::Idle;
        match self.jobs.pop_front() {
            Some(Job::Verify(slot)) => return self.verify(core, now, slot, 0),
            Some(Job::Uri(slot)) => {
                let work = self.work(slot);
                let start = self.code(core, now, 3);
                let instructions =
                    f64::from(work.uris) * self.costs.uri + f64::from(work.uri_bytes) * self.costs.uri_byte;
                let end = self.compute(start, instructions);
                return self.busy(core, 4, now, end, Task::Uri { slot });
            }
            None => {}
        }
        if let Some(slot) = self.cores[core].queue.pop_front() {
            if let Some((waiting, queue)) = self.blocked
                && usize::from(queue) == core
            {
                self.blocked = None;
                self.cores[core].queue.push_back(waiting);
            }
            return self.begin_packet(core, now, slot);
        }
        if self.may_assign()
            && let Some((ready, slot)) = self.arrivals.front().copied()
            && ready <= now
        {
            self.arrivals.pop_front();
            return self.assign(core, now, slot);
        }
        self.cores[core].at = NEVER;
        self.idle |= 1 << core;
    }

    fn assign(&mut self, core: usize, now: u64, slot: u32) {
        self.assigning = true;
        self.lock(core, Lock::Assign);
        let flow = self.work(slot).flow as usize;
        let cores = self.cores.len();
        let (mut instructions, mut at) = (self.costs.assign, self.code(core, now, 0));
        at = self.read(core, at, self.address(self.slots[slot as usize].packet), 64);
        let queue = if self.design.assignment == Assignment::Static {
            (self.trace.flows[flow] as usize % cores) as u8
        } else {
            instructions += self.costs.assign_table;
            at = self.read(core, at, FLOWS.wrapping_add(flow as u32 * self.costs.flow as u32), 32);
            let shortest = (0..cores).min_by_key(|c| self.cores[*c].queue.len()).unwrap_or(0);
            let mut queue = self.flows[flow];
            if queue == NOBODY {
                queue = shortest as u8;
            } else if self.design.assignment == Assignment::Reassign
                && self.cores[usize::from(queue)].queue.len() >= self.design.full as usize
                && self.cores[shortest].queue.len() <= self.design.empty as usize
            {
                queue = shortest as u8;
                instructions += self.costs.reassign;
                self.out.moved += 1;
                self.slots[slot as usize].split = true;
            }
            self.flows[flow] = queue;
            queue
        };
        let end = self.compute(at, instructions);
        self.busy(core, 0, now, end, Task::Assign { slot, queue });
    }

    fn begin_packet(&mut self, core: usize, now: u64, slot: u32) {
        let work = self.work(slot);
        let mut at = self.code(core, now, 1);
        let flow = FLOWS.wrapping_add(work.flow * self.costs.flow as u32);
        at = self.read(core, at, self.address(self.slots[slot as usize].packet), 64);
        at = self.read(core, at, flow, self.costs.flow as u32);
        at = self.compute(at, self.costs.packet + if self.slots[slot as usize].split { self.costs.flush } else { 0.0 });
        if work.flags & TCP != 0 && work.payload > 0 {
            if self.design.assignment == Assignment::Reassign {
                at = self.compute(at, self.costs.segment);
            } else {
                // One tree for all cores.
                self.lock(core, Lock::Tree);
                let start = at.max(self.tree);
                at = self.compute(start, self.costs.segment);
                self.tree = at;
            }
        }
        at = self.write(at, flow);
        self.busy(core, 1, now, at, Task::Packet { slot, copied: 0 });
    }

    /// Copies what is to be inspected, a piece at a time.
    fn packet(&mut self, core: usize, now: u64, slot: u32, copied: u32) {
        let work = self.work(slot);
        if work.flush == 0 {
            if work.group == 0 && work.uris == 0 {
                return self.notify(core, now, slot);
            }
            // Rules that ask for no bytes, or for what is known already.
            self.inspect_uris(now, slot, work);
            return self.verify(core, now, slot, 0);
        }
        if !self.design.gather && copied < work.flush {
            let part = (work.flush - copied).min(CHUNK);
            let packet = self.slots[slot as usize].packet;
            // What the packet brought is in its buffer, what came before in others.
            let base = if copied < u32::from(work.payload) {
                self.address(packet) + 64
            } else {
                STREAMS + self.address(packet)
            };
            let at = self.read(core, now, base.wrapping_add(copied), part);
            let end = self.compute(at, f64::from(part) * self.costs.copy_byte);
            return self.busy(core, 1, now, end, Task::Packet { slot, copied: copied + part });
        }
        self.inspect_uris(now, slot, work);
        if self.design.matcher > 0.0 {
            self.matching.push_back(slot);
            if self.matcher.0 == NEVER {
                self.match_next(now);
            }
            // The descriptor is written after the copy; its instructions are the core's.
            let end = self.compute(now, self.costs.flush);
            self.busy(core, 1, now, end, Task::Idle);
        } else {
            let at = self.code(core, now, 2);
            let end = self.compute(at, self.costs.flush);
            self.busy(core, 2, now, end, Task::Match { slot, done: 0 });
        }
    }

    /// Puts what remains of a packet down: its verification, and its URIs where it has some.
    fn inspect_uris(&mut self, now: u64, slot: u32, work: Work) {
        self.slots[slot as usize].pending = 1 + u8::from(work.uris > 0);
        if work.uris > 0 {
            self.jobs.push_back(Job::Uri(slot));
            self.wake(now);
        }
    }

    fn match_next(&mut self, now: u64) {
        let Some(slot) = self.matching.pop_front() else {
            self.matcher.0 = NEVER;
            return;
        };
        let flush = self.work(slot).flush;
        let mut end = now + (f64::from(flush) * 1e12 / self.design.matcher) as u64;
        if self.design.gather {
            let address = self.address(self.slots[slot as usize].packet);
            end = end.max(self.transfer(now, address, flush));
        }
        self.out.matcher += end - now;
        self.matcher = (end, slot);
    }

    /// The matcher is through with a flush.
    fn matched(&mut self, now: u64) {
        self.jobs.push_back(Job::Verify(self.matcher.1));
        self.wake(now);
        self.match_next(now);
    }

    fn match_software(&mut self, core: usize, now: u64, slot: u32, done: u32) {
        let work = self.work(slot);
        if done >= work.flush {
            return self.verify(core, now, slot, 0);
        }
        let part = (work.flush - done).min(CHUNK);
        let looks = (f64::from(part) / self.costs.match_stride) as u32;
        let packet = self.slots[slot as usize].packet;
        let table = (self.costs.match_table as u32).max(1);
        let mut at = now;
        for look in 0..looks {
            let mixed = (packet ^ (done + look).wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            at = self.read(core, at, TABLES + (mixed >> 8) % table, 4);
        }
        let end = self.compute(at, f64::from(part) * self.costs.match_byte);
        self.busy(core, 2, now, end, Task::Match { slot, done: done + part });
    }

    /// Verifies the next of the reported rules.
    fn verify(&mut self, core: usize, now: u64, slot: u32, next: u16) {
        let work = self.work(slot);
        let reports = if self.design.matcher > 0.0 { work.all } else { work.group };
        if next >= reports {
            return self.job_done(core, now, slot);
        }
        let report = self.trace.reports[work.first as usize + usize::from(next)];
        let (rule, looked) = (report >> 16, report & 0xffff);
        // A report of another group's rule ends with the comparison of ports.
        let looked = if next < work.group { looked } else { 0 };
        let at = self.code(core, now, 2);
        let at = self.read(core, at, RULES + rule * self.costs.rule as u32, self.costs.rule as u32);
        let end = self.compute(at, self.costs.verify + f64::from(looked) * self.costs.verify_byte);
        self.out.verified += 1;
        self.busy(core, 3, now, end, Task::Verify { slot, next: next + 1 });
    }

    fn job_done(&mut self, core: usize, now: u64, slot: u32) {
        let pending = &mut self.slots[slot as usize].pending;
        *pending -= 1;
        if *pending == 0 {
            self.notify(core, now, slot);
        } else {
            self.pick(core, now);
        }
    }

    fn notify(&mut self, core: usize, now: u64, slot: u32) {
        self.lock(core, Lock::Notify);
        let start = now.max(self.notify);
        let end = self.compute(start, self.costs.notify);
        self.notify = end;
        self.busy(core, 5, now, end, Task::Notify { slot });
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
