//! What a thread does that sends.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pace::{Clock, Histogram, Pace};
use super::port::{Counts, Port};
use super::store::{Feed, Fitted, Item, Store, copy};
use crate::traffic::template::Dir;

/// When to end.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) loops: u64,
    /// Nanoseconds.
    pub(super) duration: Option<u64>,
    /// Of this thread.
    pub(super) packets: Option<u64>,
}

/// What threads tell about themselves while they run.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// What one thread did.
#[derive(Default)]
pub(super) struct Stats {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// By interface.
    pub(super) by_port: [u64; 2],
    pub(super) nanoseconds: u64,
    pub(super) late: Histogram,
    pub(super) counts: Counts,
    pub(super) fitted: Fitted,
    pub(super) loops: u64,
    pub(super) error: Option<String>,
}

/// How packets become copies.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    pub(super) n: u32,
    pub(super) mask: u32,
    /// Each time round is another copy of the one before, beginning with this one.
    pub(super) renew: Option<u32>,
}

/// After so many copies addresses come again: with the usual mask (1.0.0.0) none of the studies' pools becomes multicast before.
const ROUNDS: u64 = 96;

impl Copies {
    /// The first copy's number of the time round that comes after `loops` others.
    fn first(&self, loops: u64) -> u32 {
        self.renew.map_or(0, |first| ((loops + u64::from(first)) % (ROUNDS / u64::from(self.n))) as u32 * self.n)
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// How many packets are handed over at once, where nothing must be waited for.
const BATCH: usize = 128;

/// Sends a feed until its end or a limit.
pub(super) fn send(
    feed: &mut Feed<'_>,
    ports: &mut [Port],
    pace: Pace,
    copies: Copies,
    limits: Limits,
    shared: &Shared,
) -> Stats {
    let clock = Clock::new(pace);
    let (s, due) = (Stats::default(), Vec::with_capacity(2 * BATCH));
    let mut run = Run { clock, copies, limits, shared, s, told: (0, 0), due };
    let result = match (&*feed, &mut *ports) {
        (Feed::Memory { store, part, .. }, [port])
            if pace == Pace::Flat
                && copies.n == 1
                && copies.renew.is_none()
                && limits.packets.is_none()
                && port.sends_from() =>
        {
            run.memory(store, *part, port)
        }
        _ => run.all(feed, ports),
    };
    run.tell();
    let mut s = run.s;
    s.nanoseconds = run.clock.elapsed();
    s.error = result.err();
    s.fitted = feed.fitted();
    for port in ports {
        // What is filled and could not be handed over was not sent.
        s.packets -= port.pending as u64;
        s.counts.refused += port.counts.refused;
        s.counts.full += port.counts.full;
        s.counts.calls += port.counts.calls;
    }
    s
}

/// A thread's sending.
struct Run<'a> {
    clock: Clock,
    copies: Copies,
    limits: Limits,
    shared: &'a Shared,
    s: Stats,
    /// Packets and bytes that the others know of.
    told: (u64, u64),
    /// Deadlines of the packets that were filled and not handed over yet.
    due: Vec<u64>,
}

impl Run<'_> {
    /// Everything, as often as it is to be sent.
    fn all(&mut self, feed: &mut Feed<'_>, ports: &mut [Port]) -> Result<(), String> {
        while self.pass(feed, ports)? {
            self.clock.again(feed.rewind()?);
        }
        self.flush(ports)
    }

    /// Sends the feed once; false where that was the last time.
    fn pass(&mut self, feed: &mut Feed<'_>, ports: &mut [Port]) -> Result<bool, String> {
        let before = self.s.packets;
        let first = self.copies.first(self.s.loops);
        while let Some(item) = feed.next()? {
            for n in first..first + self.copies.n {
                if !self.wait(item.at, ports)? {
                    return Ok(false);
                }
                let which = if ports.len() > 1 && item.dir == Dir::Server { 1 } else { 0 };
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

    /// Waits until a packet that was captured at this time is due, and hands over what is filled before that; false where the end
    /// comes first.
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

    /// Fills a place with copy number `n` of a packet; false where sending is to end while none becomes free.
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

    /// Hands over what was filled, and notes how late it was.
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

    /// Sends packets from memory flat out without a copy of our own.
    fn memory(&mut self, store: &Store, part: Option<&[u32]>, port: &mut Port) -> Result<(), String> {
        let mut frames: Vec<IoSlice<'_>> = Vec::with_capacity(2 * BATCH);
        loop {
            let (before, mut at) = (self.s.packets, 0);
            loop {
                frames.clear();
                store.slices(part, at, 2 * BATCH, &mut frames);
                if frames.is_empty() {
                    break;
                }
                warm(&frames);
                let n = port.send_from(&frames).map_err(|e| gone(&port.name, &e))?;
                at += n;
                self.count(0, n as u64, frames.iter().take(n).map(|f| f.len() as u64).sum());
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

    /// Tells the others how far this is.
    fn tell(&mut self) {
        let (packets, bytes) = (self.s.packets, self.s.bytes);
        self.shared.packets.fetch_add(packets - self.told.0, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes - self.told.1, Ordering::Relaxed);
        self.told = (packets, bytes);
    }

    /// Whether time is up or somebody says stop; tells on the way.
    fn over(&mut self) -> bool {
        self.tell();
        self.shared.stopped() || self.limits.duration.is_some_and(|d| self.clock.elapsed() >= d)
    }

    /// A pass is over that began after so many packets: whether there is another one.
    fn again(&mut self, before: u64) -> bool {
        self.s.loops += 1;
        let wanted = self.limits.loops == 0 || self.s.loops < self.limits.loops || self.limits.duration.is_some();
        wanted && self.s.packets > before
    }
}

/// Reads a byte of every cache line of frames that are about to be sent: many at a time come from memory then, where the kernel's copy
/// waits for each.
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
    use super::*;

    #[test]
    fn each_time_round_has_other_addresses() {
        let firsts = |n, renew| {
            let copies = Copies { n, mask: 0x0100_0000, renew };
            [0, 1, 2, ROUNDS].map(|loops| copies.first(loops))
        };
        assert_eq!(firsts(1, None), [0; 4]);
        assert_eq!(firsts(1, Some(0)), [0, 1, 2, 0]);
        assert_eq!(firsts(1, Some(95)), [95, 0, 1, 95]);
        // Each of several copies is one of its own.
        assert_eq!(firsts(4, Some(3)), [12, 16, 20, 12]);
        assert_eq!(firsts(16, Some(5))[..2], [80, 0]);
    }
}
