//! What a thread does that sends.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pace::{Clock, Histogram, Pace};
use super::port::{Counts, Port};
use super::store::{Feed, Fitted, Store, copy};
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

/// Sends a feed until its end or a limit.
pub(super) fn send(
    feed: &mut Feed<'_>,
    ports: &mut [Port],
    pace: Pace,
    copies: Copies,
    limits: Limits,
    shared: &Shared,
) -> Stats {
    let mut s = Stats::default();
    let result = match (&*feed, &mut *ports) {
        (Feed::Memory { store, part, .. }, [port])
            if pace == Pace::Flat
                && copies.n == 1
                && copies.renew.is_none()
                && limits.packets.is_none()
                && port.sends_from() =>
        {
            from_memory(store, *part, port, limits, shared, &mut s)
        }
        _ => sending(feed, ports, pace, copies, limits, shared, &mut s),
    };
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

/// How many packets are handed over at once, where nothing must be waited for.
const BATCH: usize = 128;

fn sending(
    feed: &mut Feed<'_>,
    ports: &mut [Port],
    pace: Pace,
    copies: Copies,
    limits: Limits,
    shared: &Shared,
    s: &mut Stats,
) -> Result<(), String> {
    let mut clock = Clock::new(pace);
    let stopped = || shared.stop.load(Ordering::Relaxed);
    // Deadlines of the packets that were filled and not handed over yet.
    let mut due: Vec<u64> = Vec::with_capacity(2 * BATCH);
    let mut told = (0, 0);
    let mut passed = 0u64;
    'all: loop {
        let before = s.packets;
        let first = copies.first(s.loops);
        while let Some(item) = feed.next()? {
            for n in first..first + copies.n {
                if let Some(deadline) = clock.due(item.at) {
                    let now = clock.elapsed();
                    if deadline > now {
                        flush(ports, &mut due, &clock, s, &stopped)?;
                        if limits.duration.is_some_and(|d| deadline > d) {
                            clock.wait(limits.duration.unwrap_or(0), stopped);
                            break 'all;
                        }
                        clock.wait(deadline, stopped);
                    }
                    due.push(deadline);
                }
                let which = if ports.len() > 1 && item.dir == Dir::Server { 1 } else { 0 };
                let Some(port) = ports.get_mut(which) else { break 'all };
                let len = item.frame.len();
                loop {
                    if let Some(place) = port.place()
                        && let Some(place) = place.get_mut(..len)
                    {
                        place.copy_from_slice(item.frame);
                        if n > 0
                            && let Some(layout) = item.layout
                        {
                            copy(place, layout, n, copies.mask);
                        }
                        port.commit(len);
                        break;
                    }
                    port.counts.full += 1;
                    if port.pending == 0 {
                        port.wait();
                    }
                    port.flush().map_err(|e| gone(&port.name, &e))?;
                    if stopped() {
                        break 'all;
                    }
                }
                clock.sent(len);
                s.packets += 1;
                s.bytes += len as u64;
                if let Some(count) = s.by_port.get_mut(which) {
                    *count += 1;
                }
                passed += 1;
                if due.len() >= BATCH || (due.is_empty() && passed.is_multiple_of(BATCH as u64)) {
                    flush(ports, &mut due, &clock, s, &stopped)?;
                }
                if passed.is_multiple_of(1024) {
                    shared.packets.fetch_add(s.packets - told.0, Ordering::Relaxed);
                    shared.bytes.fetch_add(s.bytes - told.1, Ordering::Relaxed);
                    told = (s.packets, s.bytes);
                    if stopped() || limits.duration.is_some_and(|d| clock.elapsed() >= d) {
                        break 'all;
                    }
                }
                if limits.packets.is_some_and(|most| s.packets >= most) {
                    break 'all;
                }
            }
            if stopped() {
                break 'all;
            }
        }
        s.loops += 1;
        let more = limits.loops == 0 || s.loops < limits.loops || limits.duration.is_some();
        if !more || s.packets == before {
            break;
        }
        clock.again(feed.rewind()?);
    }
    flush(ports, &mut due, &clock, s, &stopped)?;
    s.nanoseconds = clock.elapsed();
    shared.packets.fetch_add(s.packets - told.0, Ordering::Relaxed);
    shared.bytes.fetch_add(s.bytes - told.1, Ordering::Relaxed);
    Ok(())
}

/// Sends packets from memory flat out without a copy of our own.
fn from_memory(
    store: &Store,
    part: Option<&[u32]>,
    port: &mut Port,
    limits: Limits,
    shared: &Shared,
    s: &mut Stats,
) -> Result<(), String> {
    let clock = Clock::new(Pace::Flat);
    let mut frames: Vec<IoSlice<'_>> = Vec::with_capacity(2 * BATCH);
    'all: loop {
        let mut at = 0;
        loop {
            frames.clear();
            store.slices(part, at, 2 * BATCH, &mut frames);
            if frames.is_empty() {
                break;
            }
            warm(&frames);
            let n = port.send_from(&frames).map_err(|e| gone(&port.name, &e))?;
            at += n;
            let bytes: u64 = frames.iter().take(n).map(|f| f.len() as u64).sum();
            s.packets += n as u64;
            s.bytes += bytes;
            s.by_port[0] += n as u64;
            shared.packets.fetch_add(n as u64, Ordering::Relaxed);
            shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            if shared.stop.load(Ordering::Relaxed) || limits.duration.is_some_and(|d| clock.elapsed() >= d) {
                break 'all;
            }
        }
        s.loops += 1;
        if at == 0 || (limits.loops > 0 && s.loops >= limits.loops && limits.duration.is_none()) {
            break;
        }
    }
    s.nanoseconds = clock.elapsed();
    Ok(())
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

/// Hands over what was filled, and notes how late it was.
fn flush(
    ports: &mut [Port],
    due: &mut Vec<u64>,
    clock: &Clock,
    s: &mut Stats,
    stopped: &impl Fn() -> bool,
) -> Result<(), String> {
    for port in ports {
        let mut tries = 0u64;
        while !port.flush().map_err(|e| gone(&port.name, &e))? {
            tries += 1;
            if stopped() && tries > 1000 {
                return Ok(());
            }
        }
    }
    if !due.is_empty() {
        let now = clock.elapsed();
        for deadline in due.drain(..) {
            s.late.add(now.saturating_sub(deadline));
        }
    }
    Ok(())
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
