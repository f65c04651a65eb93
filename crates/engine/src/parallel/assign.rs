//! Remembers each flow's worker if that is decided when the flow begins (`autofp-scheduler: shortest-queue`), or later
//! (`moves`).
//!
//! The table has a fixed size, in sets of [`WAYS`] entries. An entry is reused when its flow was silent for longer than flows
//! live; the worker has forgotten the flow by then. A full set accepts no more flows. Those flows go by their hash, as with
//! `hash`. So does every flow of that set without an entry, until the flows that went by hash were silent for that long. So a
//! flow never changes its worker, whatever the table's size.

use margay_packet::Time;

const WAYS: usize = 4;
/// Entries: 4 MiB.
const ENTRIES: usize = 1 << 18;
/// Unit of silence, in microseconds.
const TICK: i64 = 1_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    flow: u64,
    /// Tick of its last packet; 0 for an empty entry.
    tick: u32,
    worker: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Set {
    ways: [Entry; WAYS],
}

/// The table.
#[derive(Debug)]
pub(super) struct Assigned {
    sets: Vec<Set>,
    /// For each set, the tick when a flow last went by its hash; 0 for never.
    by_hash: Vec<u32>,
    /// Ticks that a flow may be silent.
    life: u32,
    /// The current tick, which never goes back; 1 at the start.
    tick: u32,
    latest: Option<Time>,
    /// The time before the last jump back.
    before: Option<Time>,
    passed: i64,
    /// The entry of the flow of the last lookup, if it has one, and whether the entry is new.
    pub(super) at: Option<usize>,
    pub(super) new: bool,
    /// Flows that were assigned, and packets of flows that went by their hash because the set was full.
    pub(super) flows: u64,
    pub(super) unplaced: u64,
}

impl Assigned {
    /// A table for flows that live for at most `life` seconds of silence.
    pub(super) fn new(life: u32) -> Assigned {
        Self::sized(life, ENTRIES)
    }

    fn sized(life: u32, entries: usize) -> Assigned {
        let sets = (entries / WAYS).max(1);
        Assigned {
            sets: vec![Set::default(); sets],
            by_hash: vec![0; sets],
            life: life.saturating_add(2),
            tick: 1,
            latest: None,
            before: None,
            passed: 0,
            at: None,
            new: false,
            flows: 0,
            unplaced: 0,
        }
    }

    /// Sets the time of the next packet. After a jump back, time continues from where it was, as in flow tables. If the jump
    /// is undone later, no time has passed.
    #[inline]
    pub(super) fn at(&mut self, time: Time) {
        let mut step = self.latest.map_or(0, |l| time.micros_since(l));
        if let Some(before) = self.before
            && time.micros_since(before) > -margay_flow::JUMP_BACK
        {
            step = time.micros_since(before).max(0);
            (self.before, self.latest) = (None, Some(time));
        }
        if step > 0 {
            self.passed = self.passed.saturating_add(step);
            self.tick = u32::try_from(1 + self.passed / TICK).unwrap_or(u32::MAX);
        }
        if !(-margay_flow::JUMP_BACK..=0).contains(&step) || self.latest.is_none() {
            if step < 0 {
                self.before = self.before.or(self.latest);
            }
            self.latest = Some(time);
        }
    }

    /// A flow's worker: the remembered one, or else the one that `choose` returns; `by_hash` if the table cannot remember it.
    #[inline]
    pub(super) fn worker(&mut self, flow: u64, by_hash: usize, choose: impl FnOnce() -> usize) -> usize {
        // These bits differ from those that choose the worker by hash.
        let n = flow as usize % self.sets.len();
        let (Some(set), Some(last)) = (self.sets.get_mut(n), self.by_hash.get_mut(n)) else { return by_hash };
        let (now, life) = (self.tick, self.life);
        let mut free = None;
        for (way, entry) in set.ways.iter_mut().enumerate() {
            if entry.tick == 0 || now - entry.tick > life {
                free = free.or(Some((way, entry)));
            } else if entry.flow == flow {
                entry.tick = now;
                (self.at, self.new) = (Some(n * WAYS + way), false);
                return usize::from(entry.worker);
            }
        }
        let unsure = *last != 0 && now - *last <= life;
        if let (Some((way, entry)), false) = (free, unsure) {
            let worker = choose();
            (self.at, self.new) = (Some(n * WAYS + way), true);
            *entry = Entry { flow, tick: now, worker: worker as u16 };
            self.flows += 1;
            return worker;
        }
        *last = now;
        self.at = None;
        self.unplaced += 1;
        by_hash
    }
}

impl Assigned {
    /// The number of entries.
    pub(super) fn places(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Assigns the flow of an entry to another worker.
    pub(super) fn reassign(&mut self, at: usize, worker: usize) {
        if let Some(entry) = self.sets.get_mut(at / WAYS).and_then(|s| s.ways.get_mut(at % WAYS)) {
            entry.worker = worker as u16;
        }
    }

    /// The worker of a flow in the table.
    #[inline]
    fn known(&mut self, flow: u64) -> Option<usize> {
        let n = flow as usize % self.sets.len();
        let now = self.tick;
        let entry = self.sets.get_mut(n)?.ways.iter_mut().find(|e| e.tick != 0 && e.flow == flow)?;
        if now - entry.tick > self.life {
            return None;
        }
        entry.tick = now;
        Some(usize::from(entry.worker))
    }
}

/// Limit of the address pairs that are remembered.
const PAIRS: usize = 4096;
/// Limit of the expected flows.
const ANNOUNCED: usize = 1 << 14;

/// Connections that an FTP control connection may announce: those opened later between its two addresses. They go to the
/// control connection's worker, which knows the announcement before their first byte arrives. The table is created with the
/// first control connection; a run without any only checks a flag.
#[derive(Debug)]
pub(super) struct Announced {
    /// For each slot, the pair, and when its control connection was last active; 0 for never.
    pairs: Vec<(u64, u32)>,
    flows: Assigned,
}

impl Announced {
    pub(super) fn new(life: u32) -> Announced {
        Announced { pairs: vec![(0, 0); PAIRS], flows: Assigned::sized(life, ANNOUNCED) }
    }

    /// Records a packet of a control connection between these addresses.
    pub(super) fn control(&mut self, pair: u64, time: Time) {
        self.flows.at(time);
        if let Some(p) = self.pairs.get_mut(pair as usize % PAIRS) {
            *p = (pair, self.flows.tick);
        }
    }

    /// Whether a new flow between these addresses may have been announced.
    pub(super) fn expects(&mut self, pair: u64, time: Time) -> bool {
        self.flows.at(time);
        let (now, life) = (self.flows.tick, self.flows.life);
        self.pairs.get(pair as usize % PAIRS).is_some_and(|p| p.0 == pair && p.1 != 0 && now - p.1 <= life)
    }

    /// Assigns such a flow to this worker. Returns `false` if there is no room.
    pub(super) fn put(&mut self, flow: u64, worker: usize) -> bool {
        self.flows.worker(flow, usize::MAX, || worker) != usize::MAX
    }

    /// The worker of a flow that may have been announced.
    #[inline]
    pub(super) fn worker(&mut self, flow: u64, time: Time) -> Option<usize> {
        self.flows.at(time);
        self.flows.known(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_goes_to_who_announced_it() {
        let mut a = Announced::new(600);
        let at = |s| Time::new(s, 0);
        assert!(!a.expects(5, at(1)));
        a.control(5, at(2));
        assert!(a.expects(5, at(3)) && !a.expects(6, at(3)));
        assert_eq!(a.worker(77, at(3)), None);
        assert!(a.put(77, 4));
        assert_eq!((a.worker(77, at(500)), a.worker(78, at(500))), (Some(4), None));
        assert!(!a.expects(5, at(700)));
        assert_eq!((a.worker(77, at(1000)), a.worker(77, at(1700))), (Some(4), None));
    }

    #[test]
    fn a_flow_stays_where_it_is() {
        let mut a = Assigned::new(600);
        a.at(Time::new(100, 0));
        assert_eq!(a.worker(7, 0, || 3), 3);
        a.at(Time::new(700, 0));
        assert_eq!(a.worker(7, 0, || 1), 3);
        // After a longer silence than flows live, it is a new flow.
        a.at(Time::new(1400, 0));
        assert_eq!(a.worker(7, 0, || 1), 1);
        // Another capture with earlier times: the flow continues.
        a.at(Time(-1_000_000_000_000));
        assert_eq!(a.worker(7, 0, || 2), 1);
        assert_eq!((a.flows, a.unplaced), (2, 0));
    }

    #[test]
    fn a_packet_out_of_its_time_ends_no_flow() {
        let mut a = Assigned::new(600);
        a.at(Time::new(100_000, 0));
        assert_eq!(a.worker(7, 0, || 3), 3);
        for time in [10, 100_001] {
            a.at(Time::new(time, 0));
            assert_eq!(a.worker(7, 0, || 1), 3, "at {time}");
        }
        // A real passage of time.
        a.at(Time::new(101_000, 0));
        assert_eq!(a.worker(7, 0, || 1), 1);
    }

    #[test]
    fn a_full_table_moves_nobody() {
        let mut a = Assigned::sized(10, WAYS);
        a.at(Time::new(1, 0));
        let mut of: Vec<usize> = (1..=6u64).map(|f| a.worker(f, 9, || f as usize)).collect();
        assert_eq!(of, [1, 2, 3, 4, 9, 9]);
        // The first four end. The other two continue by their hash, so no new flow gets an entry: it might be one of them.
        for second in 2..30 {
            a.at(Time::new(second, 0));
            of = [5, 6].map(|f| a.worker(f, 9, || 0)).to_vec();
            assert_eq!(of, [9, 9]);
        }
        assert_eq!(a.worker(7, 9, || 0), 9);
        // They end too.
        a.at(Time::new(60, 0));
        assert_eq!(a.worker(7, 9, || 0), 0);
    }
}
