//! A sending thread.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pace::{Clock, Histogram, Pace};
use super::port::{Counts, Port};
use super::store::{Feed, Fitted, Item, copy};
use crate::traffic::template::Dir;

/// Most interfaces to send on.
pub(super) const PORTS_MOST: usize = 8;

/// Which packets are sent on which of several interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// Clients' on the first, servers' on the second.
    Directions,
    /// Each flow on one of them.
    Flows,
    /// Every packet on each.
    Same,
}

impl Among {
    /// The ports, of `count`, for copy `n` of a packet.
    fn ports(self, item: &Item<'_>, n: u32, count: usize) -> Range<usize> {
        let which = match self {
            _ if count < 2 => 0,
            Among::Directions => usize::from(item.dir == Dir::Server),
            Among::Flows => item.pair().wrapping_add(n) as usize % count,
            Among::Same => return 0..count,
        };
        which..which + 1
    }
}

/// Limits that end a run.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) loops: u64,
    /// Nanoseconds.
    pub(super) duration: Option<u64>,
    /// Most packets of this thread.
    pub(super) packets: Option<u64>,
}

/// Progress of all threads, and the request to stop.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// A thread's counters.
#[derive(Default)]
pub(super) struct Stats {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets by interface.
    pub(super) by_port: [u64; PORTS_MOST],
    pub(super) nanoseconds: u64,
    pub(super) late: Histogram,
    pub(super) counts: Counts,
    pub(super) fitted: Fitted,
    pub(super) loops: u64,
    pub(super) error: Option<String>,
}

/// The copies to send of each packet.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    pub(super) n: u32,
    pub(super) mask: u32,
    /// Each round gets the addresses of new copies. The value is the number of the first round.
    pub(super) renew: Option<u32>,
}

/// Addresses repeat after this many copies. With the usual mask (1.0.0.0), no pool of the studies reaches multicast addresses
/// within them.
const ROUNDS: u64 = 96;

impl Copies {
    /// Number of the first copy in the round that follows `loops` others.
    fn first(&self, loops: u64) -> u32 {
        self.renew.map_or(0, |first| ((loops + u64::from(first)) % (ROUNDS / u64::from(self.n))) as u32 * self.n)
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Number of packets to hand over at once, if none of them must wait.
const BATCH: usize = 128;

/// Sends a feed, up to its end or a limit.
pub(super) fn send(
    feed: &mut Feed<'_>,
    ports: &mut [Port],
    among: Among,
    pace: Pace,
    copies: Copies,
    limits: Limits,
    shared: &Shared,
) -> Stats {
    // Flat out, build the list of all frames in advance.
    let frames = match (&*feed, &*ports) {
        (Feed::Memory { store, part, .. }, [port])
            if pace == Pace::Flat && copies.n == 1 && limits.packets.is_none() && port.sends_from() =>
        {
            Some(store.slices(*part))
        }
        _ => None,
    };
    let clock = Clock::new(pace);
    let (s, due) = (Stats::default(), Vec::with_capacity(2 * BATCH));
    let mut run = Run { clock, among, copies, limits, shared, s, told: (0, 0), due };
    let result = match (frames, &mut *ports) {
        (Some(frames), [port]) => run.memory(&frames, port),
        (_, ports) => run.all(feed, ports),
    };
    run.tell();
    let mut s = run.s;
    s.nanoseconds = run.clock.elapsed();
    s.error = result.err();
    s.fitted = feed.fitted();
    for port in ports {
        // Frames that were filled but not handed over were not sent.
        s.packets -= port.pending as u64;
        s.counts.refused += port.counts.refused;
        s.counts.full += port.counts.full;
        s.counts.calls += port.counts.calls;
    }
    s
}

/// The state of a sending thread.
struct Run<'a> {
    clock: Clock,
    among: Among,
    copies: Copies,
    limits: Limits,
    shared: &'a Shared,
    s: Stats,
    /// Packets and bytes that are already in `shared`.
    told: (u64, u64),
    /// Deadlines of the packets that are filled and not handed over yet.
    due: Vec<u64>,
}

impl Run<'_> {
    /// Sends all rounds.
    fn all(&mut self, feed: &mut Feed<'_>, ports: &mut [Port]) -> Result<(), String> {
        while self.pass(feed, ports)? {
            self.clock.again(feed.rewind()?);
        }
        self.flush(ports)
    }

    /// Sends one round; returns false if it was the last one.
    fn pass(&mut self, feed: &mut Feed<'_>, ports: &mut [Port]) -> Result<bool, String> {
        let before = self.s.packets;
        let first = self.copies.first(self.s.loops);
        while let Some(item) = feed.next()? {
            let (among, count) = (self.among, ports.len());
            let copies = (first..first + self.copies.n).flat_map(|n| among.ports(&item, n, count).map(move |w| (n, w)));
            for (n, which) in copies {
                if !self.wait(item.at, ports)? {
                    return Ok(false);
                }
                let Some(port) = ports.get_mut(which) else { return Ok(false) };
                if !self.put(&item, n, port)? {
                    return Ok(false);
                }
                self.clock.sent(item.frame.len());
                self.count(which, 1, item.frame.len() as u64);
                let filled = self.s.packets;
                if self.due.len() >= BATCH || (self.due.is_empty() && filled.is_multiple_of(BATCH as u64)) {
                    self.flush(ports)?;
                }
                let over = filled.is_multiple_of(1024) && self.over();
                if over || self.limits.packets.is_some_and(|most| filled >= most) {
                    return Ok(false);
                }
            }
            if self.shared.stopped() {
                return Ok(false);
            }
        }
        Ok(self.again(before))
    }

    /// Waits until the packet with capture time `at` is due, and hands over the filled packets before that. Returns false if the
    /// run ends first.
    fn wait(&mut self, at: u64, ports: &mut [Port]) -> Result<bool, String> {
        let Some(deadline) = self.clock.due(at) else { return Ok(true) };
        if deadline > self.clock.elapsed() {
            self.flush(ports)?;
            let end = self.limits.duration.filter(|end| deadline > *end);
            self.clock.wait(end.unwrap_or(deadline), || self.shared.stopped());
            if end.is_some() {
                return Ok(false);
            }
        }
        self.due.push(deadline);
        Ok(true)
    }

    /// Writes copy number `n` of a packet to the port; returns false if the run is stopped while there is no room.
    fn put(&self, item: &Item<'_>, n: u32, port: &mut Port) -> Result<bool, String> {
        let len = item.frame.len();
        loop {
            if let Some(place) = port.place()
                && let Some(place) = place.get_mut(..len)
            {
                place.copy_from_slice(item.frame);
                if n > 0
                    && let Some(layout) = item.layout
                {
                    copy(place, layout, n, self.copies.mask);
                }
                port.commit(len);
                return Ok(true);
            }
            port.counts.full += 1;
            if port.pending == 0 {
                port.wait();
            }
            port.flush().map_err(|e| gone(&port.name, &e))?;
            if self.shared.stopped() {
                return Ok(false);
            }
        }
    }

    /// Hands over the filled packets, and records their lateness.
    fn flush(&mut self, ports: &mut [Port]) -> Result<(), String> {
        for port in ports {
            let mut tries = 0u64;
            while !port.flush().map_err(|e| gone(&port.name, &e))? {
                tries += 1;
                if self.shared.stopped() && tries > 1000 {
                    return Ok(());
                }
            }
        }
        if !self.due.is_empty() {
            let now = self.clock.elapsed();
            for deadline in self.due.drain(..) {
                self.s.late.add(now.saturating_sub(deadline));
            }
        }
        Ok(())
    }

    /// Sends frames directly from memory, round by round.
    fn memory(&mut self, frames: &[IoSlice<'_>], port: &mut Port) -> Result<(), String> {
        loop {
            let (before, mut left) = (self.s.packets, frames);
            while let Some(batch) = left.get(..left.len().min(2 * BATCH)).filter(|batch| !batch.is_empty()) {
                warm(batch);
                let n = port.send_from(batch).map_err(|e| gone(&port.name, &e))?;
                self.count(0, n as u64, batch.iter().take(n).map(|f| f.len() as u64).sum());
                left = left.get(n..).unwrap_or_default();
                if self.over() {
                    return Ok(());
                }
            }
            if !self.again(before) {
                return Ok(());
            }
        }
    }

    fn count(&mut self, which: usize, packets: u64, bytes: u64) {
        self.s.packets += packets;
        self.s.bytes += bytes;
        if let Some(count) = self.s.by_port.get_mut(which) {
            *count += packets;
        }
    }

    /// Adds this thread's progress to `shared`.
    fn tell(&mut self) {
        let (packets, bytes) = (self.s.packets, self.s.bytes);
        self.shared.packets.fetch_add(packets - self.told.0, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes - self.told.1, Ordering::Relaxed);
        self.told = (packets, bytes);
    }

    /// Whether the time is up, or a stop was requested. Also reports progress.
    fn over(&mut self) -> bool {
        self.tell();
        self.shared.stopped() || self.limits.duration.is_some_and(|d| self.clock.elapsed() >= d)
    }

    /// Ends a round that began after `before` packets. Returns whether another one follows.
    fn again(&mut self, before: u64) -> bool {
        self.s.loops += 1;
        let wanted = self.limits.loops == 0 || self.s.loops < self.limits.loops || self.limits.duration.is_some();
        wanted && self.s.packets > before
    }
}

/// Touches every cache line of the frames that are sent next, so that many cache misses overlap. The kernel's copy would wait
/// for each.
fn warm(frames: &[IoSlice<'_>]) {
    let mut sum = 0u8;
    for frame in frames {
        for byte in frame.iter().step_by(64) {
            sum = sum.wrapping_add(*byte);
        }
    }
    std::hint::black_box(sum);
}

fn gone(name: &str, e: &std::io::Error) -> String {
    format!("the kernel takes no packets for '{name}' any more: {e}; is the interface still there, and up?")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::traffic::frame;
    use crate::traffic::mix::{Mix, Plan};
    use crate::traffic::preset;

    #[test]
    fn both_directions_of_a_flow_are_on_one_interface() {
        let profile = preset::load("office", None).unwrap();
        let mut mix = Mix::new(&profile, 3).unwrap();
        mix.start(&Plan { seed: 3, multiplier: 1.0, until: 300_000_000 });
        let (mut frame, mut of, mut packets) = (Vec::new(), HashMap::new(), [0; 3]);
        while let Some(made) = mix.next(&mut frame) {
            let layout = frame::parse(&frame);
            let item = Item { frame: &frame, at: made.at, dir: made.dir, layout: layout.as_ref() };
            let ports = Among::Flows.ports(&item, 0, 3);
            assert_eq!(ports.len(), 1);
            packets[ports.start] += 1;
            assert_eq!(Among::Same.ports(&item, 0, 3), 0..3);
            assert_eq!(Among::Flows.ports(&item, 7, 1), 0..1);
            // Another copy has other addresses, and may be elsewhere.
            assert_eq!(Among::Flows.ports(&item, 1, 3).start, (ports.start + 1) % 3);
            let Some((a, b)) = layout.and_then(|layout| layout.ends(&frame)) else { continue };
            assert_eq!(*of.entry((a.min(b), a.max(b))).or_insert(ports.start), ports.start);
        }
        let all: usize = packets.iter().sum();
        assert!(all > 300 && packets.iter().all(|of_one| *of_one * 10 > all), "{packets:?}");
    }

    #[test]
    fn each_time_round_has_other_addresses() {
        let firsts = |n, renew| {
            let copies = Copies { n, mask: 0x0100_0000, renew };
            [0, 1, 2, ROUNDS].map(|loops| copies.first(loops))
        };
        assert_eq!(firsts(1, None), [0; 4]);
        assert_eq!(firsts(1, Some(0)), [0, 1, 2, 0]);
        assert_eq!(firsts(1, Some(95)), [95, 0, 1, 95]);
        // Each round with several copies uses as many copy numbers.
        assert_eq!(firsts(4, Some(3)), [12, 16, 20, 12]);
        assert_eq!(firsts(16, Some(5))[..2], [80, 0]);
    }
}
