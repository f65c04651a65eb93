//! The cost of each rule: how often it is evaluated, how often it matches, and the time (`profiling.rules`).
//!
//! A tick is a nanosecond of the monotonic clock. The clock is read twice for each evaluation of a rule, for sampled
//! packets only.
//!
//! The same type measures where the time of each packet goes ([`PacketTimes`]). It then does not measure rules.

use std::time::{Duration, Instant};

use super::{End, Look, Watch};
use crate::header::PacketKey;
use crate::input::Input;
use crate::inspect::{CompiledBuffer, Observer};

/// The cost of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleCosts {
    /// Number of evaluations: the rule was a candidate, and its header fitted.
    pub checks: u64,
    /// Number of matches, whatever their outcome.
    pub matches: u64,
    /// Time of all evaluations, in ticks.
    pub ticks: u64,
    /// Time of the evaluations that matched.
    pub ticks_match: u64,
    /// Time of the longest evaluation.
    pub max: u64,
    /// Buffers that the rule's checks inspected.
    pub buffers: u64,
    /// Bytes in those buffers.
    pub bytes: u64,
}

impl RuleCosts {
    fn add(&mut self, ticks: u64, matched: bool) {
        self.checks += 1;
        self.ticks = self.ticks.saturating_add(ticks);
        self.max = self.max.max(ticks);
        if matched {
            self.matches += 1;
            self.ticks_match = self.ticks_match.saturating_add(ticks);
        }
    }

    /// Adds the cost of the same rule at another worker.
    pub fn plus(&mut self, other: &RuleCosts) {
        self.checks += other.checks;
        self.matches += other.matches;
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.ticks_match = self.ticks_match.saturating_add(other.ticks_match);
        self.max = self.max.max(other.max);
        self.buffers += other.buffers;
        self.bytes += other.bytes;
    }

    /// Ticks of the evaluations that did not match.
    pub const fn ticks_no_match(&self) -> u64 {
        self.ticks.saturating_sub(self.ticks_match)
    }
}

/// Where the time of packets went since the last query. Durations include the time to read the clock, once for each of
/// `spans`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketTimes {
    /// When inspection of the first packet began.
    pub first: Option<Instant>,
    /// When inspection of the last packet ended.
    pub last: Option<Instant>,
    /// Time of pattern searches in payloads.
    pub payload: Duration,
    /// Number of searches in `payload`.
    pub payload_spans: u32,
    /// Time of pattern searches in due stream data.
    pub stream: Duration,
    /// Number of searches in `stream`.
    pub stream_spans: u32,
}

/// Measures rules, or packets.
#[derive(Debug)]
pub(crate) struct Profile {
    costs: Vec<RuleCosts>,
    every: u32,
    /// Packets until the next measured one.
    left: u32,
    measured: bool,
    /// When the current evaluation began.
    since: Option<Instant>,
    /// Number of buffers of the current evaluation, and their bytes.
    looked: (u64, u64),
    /// Set if packets are measured and rules are not.
    times: Option<PacketTimes>,
    search: Option<Instant>,
}

impl Profile {
    /// Measures this many rules, with one packet in `every`.
    pub(crate) fn new(rules: usize, every: u32) -> Profile {
        Profile {
            costs: vec![RuleCosts::default(); rules],
            every: every.max(1),
            left: 0,
            measured: false,
            since: None,
            looked: (0, 0),
            times: None,
            search: None,
        }
    }

    /// Measures packets.
    pub(crate) fn of_packets() -> Profile {
        Profile { times: Some(PacketTimes::default()), ..Profile::new(0, 1) }
    }

    /// The measurements of packets since the last call; `None` if they are not measured.
    pub(crate) fn take_times(&mut self) -> Option<PacketTimes> {
        self.times.as_mut().map(std::mem::take)
    }

    pub(crate) fn costs(&self) -> &[RuleCosts] {
        &self.costs
    }

    /// Takes over the costs of rules before a reload; `places` has each rule's place now.
    pub(crate) fn take_over(&mut self, old: &Profile, places: &[u32]) {
        for (costs, &to) in old.costs.iter().zip(places) {
            if let Some(c) = self.costs.get_mut(to as usize) {
                *c = *costs;
            }
        }
    }
}

impl Observer for Profile {
    const ON: bool = true;
    const CHECKS: bool = false;

    fn buffer(&mut self, _: &CompiledBuffer, data: &[u8], _: bool) {
        self.looked.0 += 1;
        self.looked.1 += data.len() as u64;
    }
}

impl Watch for Profile {
    fn packet(&mut self, _: &Input<'_>, _: &PacketKey, _: bool) {
        if let Some(times) = &mut self.times {
            times.first = times.first.or_else(|| Some(Instant::now()));
            return;
        }
        self.measured = self.left == 0;
        self.left = if self.measured { self.every - 1 } else { self.left - 1 };
        self.since = None;
    }

    fn packet_done(&mut self) {
        if let Some(times) = &mut self.times {
            times.last = Some(Instant::now());
        }
    }

    fn searching(&mut self) {
        if self.times.is_some() {
            self.search = Some(Instant::now());
        }
    }

    fn search_over(&mut self, stream: bool) {
        let (Some(times), Some(since)) = (&mut self.times, self.search.take()) else { return };
        let took = since.elapsed();
        let (sum, spans) = match stream {
            true => (&mut times.stream, &mut times.stream_spans),
            false => (&mut times.payload, &mut times.payload_spans),
        };
        *sum = sum.saturating_add(took);
        *spans = spans.saturating_add(1);
    }

    fn begin(&mut self, _: u32, _: Look) {
        // Evaluation of a transaction rule begins with its header and continues with its buffers.
        if self.measured && self.since.is_none() {
            self.since = Some(Instant::now());
            self.looked = (0, 0);
        }
    }

    fn end(&mut self, rule: u32, end: End) {
        let Some(since) = self.since.take() else { return };
        let ticks = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(c) = self.costs.get_mut(rule as usize) {
            c.add(ticks, matches!(end, End::Match | End::HalfMatch));
            c.buffers += self.looked.0;
            c.bytes += self.looked.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let mut c = RuleCosts::default();
        for (ticks, matched) in [(5, false), (9, true), (1, false)] {
            c.add(ticks, matched);
        }
        let want = RuleCosts { checks: 3, matches: 1, ticks: 15, ticks_match: 9, max: 9, buffers: 0, bytes: 0 };
        assert_eq!((c, c.ticks_no_match()), (want, 6));
    }
}
