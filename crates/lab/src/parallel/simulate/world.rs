//! The events, and what the workers do at each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::load::{Load, Packet};
use super::{Machine, Simulated, Strategy};

/// The engine's limits (`crates/engine/src/parallel/feeder.rs`): lists in a queue; frames read at a time; minimum frames
/// to hand over a list; packets at which a reader stops; frames after which a worker gets the time.
const QUEUE: usize = 8;
const BATCH: usize = 256;
const ENOUGH: usize = 128;
const ENOUGH_TO_DO: u64 = 1024;
const SILENCE: u64 = 4096;
/// The cost of looking for work without finding any.
const LOOK: u64 = 200;
/// After this time, a sleeper looks for work itself.
const NAP: u64 = 50_000_000;
/// Limits of searching for other workers (`crates/engine/src/spread/ahead.rs`): fewest frames in a list, frames
/// searched in a list, fewest bytes in a frame. A helper that is less than `CLOSE` frames ahead of the owner leaves
/// the list.
const WORTH_SHOWING: usize = 8;
const NOTED: usize = 256;
const LONG: u32 = 256;
const CLOSE: usize = 4;

const NOBODY: u32 = u32::MAX;

/// Packets for one worker.
#[derive(Debug, Default)]
struct Piece {
    packets: Vec<u32>,
    /// Their cost beyond that of the single packets.
    extra: u64,
    number: u64,
    help: Option<Help>,
    /// The list begins with a flow that this worker releases once it has done this many packets.
    take: Option<(usize, u64)>,
}

/// A search that another worker took over.
#[derive(Debug)]
struct Help {
    by: usize,
    /// When the helper finishes each packet; never if it skips the packet.
    done: Vec<u64>,
}

impl Help {
    /// Makes the helper leave at this time.
    fn cut(&mut self, now: u64) {
        self.done.iter_mut().filter(|d| **d > now).for_each(|d| *d = NEVER);
    }
}

const NEVER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct SimulatedWorker {
    queue: VecDeque<Piece>,
    /// Lists that did not fit into the queue.
    waiting: VecDeque<Piece>,
    open: Piece,
    sent: u64,
    done: u64,
    /// The progress that the reader saw last.
    seen_done: u64,
    told: u64,
    packets: u64,
    longest: u64,
    /// Workers that wait for a flow of this one, until it has done this many packets.
    wanted: Vec<(u64, usize)>,
}

impl SimulatedWorker {
    fn load(&self) -> u64 {
        (self.sent + self.open.packets.len() as u64).saturating_sub(self.seen_done)
    }

    fn close(&mut self, at: u64) {
        let number = self.open.number;
        let piece = std::mem::replace(&mut self.open, Piece { number: number + 1, ..Piece::default() });
        self.sent += piece.packets.len() as u64;
        self.told = at;
        self.waiting.push_back(piece);
    }

    /// Lists that other workers may search, oldest first: handed over and not yet taken.
    fn board(&mut self) -> impl Iterator<Item = &mut Piece> {
        let all = self.queue.iter_mut().chain(&mut self.waiting);
        all.filter(|p| p.help.is_none() && p.packets.len() >= WORTH_SHOWING)
    }

    fn piece(&mut self, number: u64) -> Option<&mut Piece> {
        self.queue.iter_mut().chain(&mut self.waiting).find(|p| p.number == number)
    }

    fn put(&mut self) -> usize {
        let mut put = 0;
        while self.queue.len() < QUEUE
            && let Some(piece) = self.waiting.pop_front()
        {
            self.queue.push_back(piece);
            put += 1;
        }
        put
    }
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    worker: u32,
    /// Packets in flight: in total, and at the flow's present worker.
    all: u32,
    here: u32,
    /// The worker has seen a packet of the flow, so the patterns to search for are known.
    known: bool,
}

/// A worker's activity until its next event.
#[derive(Debug, Default)]
enum Doing {
    /// Looks for work.
    #[default]
    Go,
    Asleep {
        since: u64,
    },
    /// Was called and is waking.
    Waking {
        since: u64,
    },
    Reading {
        to: usize,
    },
    Inspecting(Vec<u32>),
    /// Waits for a flow that is not released yet.
    Waiting {
        since: u64,
    },
    /// Searches this list of that worker.
    Helping {
        lane: usize,
        piece: u64,
    },
    Ended,
}

pub(super) struct World<'a> {
    load: &'a Load,
    strategy: Strategy,
    machine: &'a Machine,
    lanes: Vec<SimulatedWorker>,
    doing: Vec<Doing>,
    flows: Vec<Flow>,
    /// Ordered by time, then by order of scheduling.
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    asked: u64,
    /// The latest event of each worker; earlier ones are obsolete.
    current: Vec<u64>,
    /// Number of packets read.
    at: usize,
    reader: bool,
    stuck: Option<usize>,
    over: bool,
    slept: u64,
    waited: u64,
    ended: u64,
    out: Simulated,
}

impl<'a> World<'a> {
    pub(super) fn new(load: &'a Load, strategy: Strategy, workers: usize, machine: &'a Machine) -> World<'a> {
        let flow = |hash: &u64| Flow {
            worker: if strategy.keeps_to_hash() { by_hash(*hash, workers) } else { NOBODY },
            all: 0,
            here: 0,
            known: false,
        };
        World {
            load,
            strategy,
            machine,
            lanes: (0..workers).map(|_| SimulatedWorker::default()).collect(),
            doing: (0..workers).map(|_| Doing::Go).collect(),
            flows: load.hashes.iter().map(flow).collect(),
            events: BinaryHeap::new(),
            asked: 0,
            current: vec![0; workers],
            at: 0,
            reader: false,
            stuck: None,
            over: false,
            slept: 0,
            waited: 0,
            ended: 0,
            out: Simulated::default(),
        }
    }

    pub(super) fn run(mut self) -> Simulated {
        let workers = self.lanes.len();
        for w in 0..workers {
            self.plan(0, w, Doing::Go);
        }
        while let Some(Reverse((now, asked, w))) = self.events.pop() {
            if self.current[w] != asked {
                continue;
            }
            match std::mem::take(&mut self.doing[w]) {
                Doing::Reading { to } => self.steered(now, w, to),
                Doing::Inspecting(packets) => {
                    self.inspected(now, w, &packets);
                    self.go(now, w);
                }
                Doing::Waking { since } | Doing::Asleep { since } => {
                    self.slept += now - since;
                    self.go(now, w);
                }
                Doing::Go | Doing::Helping { .. } => self.go(now, w),
                Doing::Ended | Doing::Waiting { .. } => {}
            }
        }
        let mut out = self.out;
        out.time = self.ended;
        out.speedup = self.load.alone() as f64 / out.time.max(1) as f64;
        let most = self.lanes.iter().map(|l| l.packets).max().unwrap_or(0);
        out.busiest = most as f64 / self.load.packets.len().max(1) as f64;
        out.longest = self.lanes.iter().map(|l| l.longest).max().unwrap_or(0);
        out.waited = self.waited as f64 / (out.time.max(1) as f64 * workers as f64);
        out.idle = self.slept as f64 / (out.time.max(1) as f64 * workers as f64);
        out
    }

    fn plan(&mut self, time: u64, w: usize, doing: Doing) {
        self.doing[w] = doing;
        self.asked += 1;
        self.current[w] = self.asked;
        self.events.push(Reverse((time, self.asked, w)));
    }

    fn beside(&self, time: u64) -> u64 {
        if self.lanes.len() < 2 { time } else { (time as f64 * self.machine.beside) as u64 }
    }

    fn packet(&self, n: u32) -> Packet {
        self.load.packets.get(n as usize).copied().unwrap_or_default()
    }

    /// The next step of a worker without current work.
    fn go(&mut self, now: u64, w: usize) {
        if let Some((giver, after)) = self.lanes[w].queue.front().and_then(|p| p.take)
            && self.lanes[giver].done < after
        {
            self.lanes[giver].wanted.push((after, w));
            self.doing[w] = Doing::Waiting { since: now };
            return;
        }
        if let Some(piece) = self.lanes[w].queue.pop_front() {
            return self.inspect(now, w, piece);
        }
        if self.over {
            let share = self.lanes[w].packets as f64 / self.load.packets.len().max(1) as f64;
            self.ended = self.ended.max(now + (self.load.end as f64 * share) as u64);
            self.doing[w] = Doing::Ended;
            return;
        }
        if !self.reader {
            self.reader = true;
            self.out.turns += 1;
            return self.read(now, w);
        }
        self.idle(now, w);
    }

    /// There is nothing to inspect, and nothing to read.
    fn idle(&mut self, now: u64, w: usize) {
        if self.strategy == Strategy::Adaptive && self.help(now, w) {
            return;
        }
        let something = !self.lanes[w].queue.is_empty() || self.over || (!self.reader && self.stuck.is_none());
        if something {
            self.plan(now + LOOK, w, Doing::Go);
        } else {
            self.plan(now + NAP, w, Doing::Asleep { since: now });
        }
    }

    /// Wakes a worker if it sleeps. Returns the cost.
    fn ring(&mut self, now: u64, w: usize) -> u64 {
        let Some(Doing::Asleep { since }) = self.doing.get(w) else { return 0 };
        let since = *since;
        self.plan(now + self.machine.ring + self.machine.wake, w, Doing::Waking { since });
        self.machine.ring
    }

    fn ring_one(&mut self, now: u64) -> u64 {
        match self.doing.iter().position(|d| matches!(d, Doing::Asleep { .. })) {
            Some(w) => self.ring(now, w),
            None => 0,
        }
    }

    /// Reads on as the reader.
    fn read(&mut self, mut now: u64, w: usize) {
        let before = now;
        let full = self.hand_over(false, &mut now);
        let all = full.is_none() && (self.at == self.load.packets.len() || self.lanes[w].load() >= ENOUGH_TO_DO);
        let full = full.or_else(|| if all { self.hand_over(true, &mut now) } else { None });
        if let Some(n) = full {
            self.out.stalls += 1;
            self.out.read += now - before;
            self.stuck = Some(n);
            self.reader = false;
            if self.lanes[w].queue.is_empty() {
                return self.idle(now + LOOK, w);
            }
            return self.plan(now, w, Doing::Go);
        }
        if all {
            self.reader = false;
            self.stuck = None;
            if self.at == self.load.packets.len() {
                self.over = true;
                for other in 0..self.lanes.len() {
                    now += self.ring(now, other);
                }
            } else {
                now += self.ring_one(now);
            }
            self.out.read += now - before;
            return self.plan(now, w, Doing::Go);
        }
        let to = (self.at + BATCH).min(self.load.packets.len());
        let frames = self.load.packets.get(self.at..to).unwrap_or_default();
        let time: u64 = frames.iter().map(|p| u64::from(p.read) + u64::from(p.steer)).sum();
        now += self.beside(time);
        self.out.read += now - before;
        self.plan(now, w, Doing::Reading { to });
    }

    /// Distributes the frames up to `to`, which were read.
    fn steered(&mut self, now: u64, w: usize, to: usize) {
        for n in self.at..to {
            self.steer(n as u32);
        }
        self.at = to;
        self.read(now, w);
    }

    fn steer(&mut self, n: u32) {
        let at = self.packet(n).flow as usize;
        let Some(mut flow) = self.flows.get(at).copied() else { return };
        if !self.strategy.keeps_to_hash() {
            self.choose(at, &mut flow);
        }
        let lane = &mut self.lanes[flow.worker as usize];
        if flow.all > flow.here && self.strategy == Strategy::Study {
            // Other workers inspect packets of the same flow.
            lane.open.extra += self.machine.order;
        }
        flow.all += 1;
        flow.here += 1;
        lane.open.packets.push(n);
        lane.packets += 1;
        self.flows[at] = flow;
    }

    /// Chooses the worker of the flow's next packet.
    fn choose(&mut self, at: usize, flow: &mut Flow) {
        let m = self.machine;
        let own = flow.worker;
        let may_move = match self.strategy {
            Strategy::Conservative => flow.all == 0,
            Strategy::Optimistic | Strategy::Study => flow.all == 0 || flow.here > m.threshold,
            _ => false,
        };
        if own != NOBODY && !may_move {
            return;
        }
        let hash = self.load.hashes.get(at).copied().unwrap_or_default();
        let first = if own == NOBODY { by_hash(hash, self.lanes.len()) as usize } else { own as usize };
        let (mut best, mut least) = (first, self.lanes[first].load());
        for (n, lane) in self.lanes.iter().enumerate() {
            if lane.load() < least {
                (best, least) = (n, lane.load());
            }
        }
        if own == NOBODY {
            flow.worker = best as u32;
            return;
        }
        let load = self.lanes[own as usize].load();
        if best as u32 == own || load < least + m.gain || least * 2 > load {
            return;
        }
        self.out.moves += 1;
        let (read, waits) = (self.at as u64, flow.all != 0 && self.strategy == Strategy::Optimistic);
        let giver = &mut self.lanes[own as usize];
        giver.open.extra += m.give_flow;
        if flow.all != 0 && self.strategy == Strategy::Study {
            giver.open.extra += m.flush;
        }
        if waits && !giver.open.packets.is_empty() {
            giver.close(read);
        }
        let after = giver.sent;
        let taker = &mut self.lanes[best];
        if waits {
            if !taker.open.packets.is_empty() {
                taker.close(read);
            }
            taker.open.take = Some((own as usize, after));
        }
        taker.open.extra += m.move_flow;
        flow.worker = best as u32;
        flow.here = 0;
    }

    /// Queues the lists that are large enough, or `all`. Returns a worker whose queue is full, if there is one.
    fn hand_over(&mut self, all: bool, now: &mut u64) -> Option<usize> {
        let read = self.at as u64;
        let mut full = None;
        for n in 0..self.lanes.len() {
            let lane = &mut self.lanes[n];
            lane.seen_done = lane.done;
            let open = lane.open.packets.len();
            let silent = read - lane.told >= SILENCE;
            if open >= ENOUGH || silent || (open != 0 && (all || lane.sent == lane.done)) {
                lane.close(read);
            }
            if lane.waiting.is_empty() {
                continue;
            }
            lane.longest = lane.longest.max(lane.sent - lane.done);
            let put = lane.put();
            if !lane.waiting.is_empty() {
                full = Some(n);
            }
            *now += put as u64 * self.machine.give;
            *now += self.ring(*now, n);
            if put > 0 {
                self.call_back(*now, n);
            }
        }
        full
    }

    /// Inspects a list from the queue.
    fn inspect(&mut self, now: u64, w: usize, piece: Piece) {
        let mut piece = piece;
        let own = piece.packets.len() as u64;
        let far = if self.lanes.len() < 2 { 0 } else { self.machine.far };
        let mut time = self.machine.take + piece.extra + own * far;
        match piece.help.take() {
            None => time += self.beside(piece.packets.iter().map(|n| self.packet(*n).work()).sum()),
            Some(help) => time = self.inspect_helped(now, time, w, &piece, help),
        }
        for n in &piece.packets {
            let flow = self.packet(*n).flow as usize;
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.known = true;
            }
        }
        self.out.inspected += time;
        self.plan(now + time, w, Doing::Inspecting(piece.packets));
    }

    fn inspected(&mut self, now: u64, w: usize, packets: &[u32]) {
        let moves = !self.strategy.keeps_to_hash();
        for n in packets {
            let flow = self.packet(*n).flow as usize;
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.all = flow.all.saturating_sub(1);
                if moves && flow.worker == w as u32 {
                    flow.here = flow.here.saturating_sub(1);
                }
            }
        }
        let lane = &mut self.lanes[w];
        lane.done += packets.len() as u64;
        let done = lane.done;
        if !lane.wanted.is_empty() {
            let wanted = std::mem::take(&mut lane.wanted);
            for (after, taker) in wanted {
                if after > done {
                    self.lanes[w].wanted.push((after, taker));
                } else if let Doing::Waiting { since } = self.doing[taker] {
                    self.waited += now - since;
                    self.plan(now + LOOK, taker, Doing::Go);
                }
            }
        }
        let lane = &mut self.lanes[w];
        if lane.queue.len() <= QUEUE / 2 && self.stuck == Some(w) {
            self.stuck = None;
            self.ring_one(now);
        }
    }

    /// As [`World::inspect`], for a list that another worker searches or has searched. Returns the total time.
    fn inspect_helped(&mut self, now: u64, mut time: u64, w: usize, piece: &Piece, mut help: Help) -> u64 {
        let mut there =
            matches!(self.doing[help.by], Doing::Helping { lane, piece: p } if lane == w && p == piece.number);
        // The helper's position.
        let mut ahead = 0;
        for (n, number) in piece.packets.iter().enumerate() {
            let p = self.packet(*number);
            if there {
                while help.done.get(ahead).is_some_and(|d| *d == NEVER || *d <= now + time) {
                    ahead += 1;
                }
                if ahead < n + CLOSE && ahead < help.done.len() {
                    help.cut(now + time);
                    there = false;
                    self.plan(now + time, help.by, Doing::Go);
                }
            }
            time += self.beside(u64::from(p.before));
            if help.done.get(n).is_some_and(|d| *d <= now + time) {
                self.out.helped += 1;
            } else {
                time += self.beside(u64::from(p.search));
            }
            time += self.beside(p.rest());
        }
        time
    }

    /// Takes over the search of the oldest list, from the worker with the most.
    fn help(&mut self, now: u64, w: usize) -> bool {
        let mut most = (0, 0);
        for n in (0..self.lanes.len()).filter(|n| *n != w) {
            let lists = self.lanes[n].board().count();
            if lists > most.1 {
                most = (n, lists);
            }
        }
        let (n, 1..) = most else { return false };
        let Some((number, packets)) = self.lanes[n].board().next().map(|p| (p.number, p.packets.clone())) else {
            return false;
        };
        let mut time = now + self.machine.take;
        if most.1 > 1 {
            // Another idle worker may find work, too.
            time += self.ring_one(now);
        }
        let mut done = Vec::with_capacity(packets.len());
        for (nth, packet) in packets.into_iter().enumerate() {
            let p = self.packet(packet);
            // Patterns are unknown until the flow's worker has seen a packet.
            let known = self.flows.get(p.flow as usize).is_some_and(|f| f.known);
            if !known || p.len < LONG || nth >= NOTED {
                done.push(NEVER);
                continue;
            }
            time += self.beside(u64::from(p.search)) + self.machine.help;
            done.push(time);
        }
        if let Some(piece) = self.lanes[n].piece(number) {
            piece.help = Some(Help { by: w, done });
        }
        let time = time.max(now + LOOK);
        self.out.searched += time - now;
        self.plan(time, w, Doing::Helping { lane: n, piece: number });
        true
    }

    /// Makes a helper with work of its own leave the list that it searches.
    fn call_back(&mut self, now: u64, w: usize) {
        let Some(Doing::Helping { lane, piece }) = self.doing.get(w) else { return };
        let (lane, number) = (*lane, *piece);
        if let Some(help) = self.lanes.get_mut(lane).and_then(|l| l.piece(number)).and_then(|p| p.help.as_mut()) {
            help.cut(now);
        }
        self.plan(now, w, Doing::Go);
    }
}

fn by_hash(hash: u64, workers: usize) -> u32 {
    ((u128::from(hash) * workers as u128) >> 64) as u32
}
