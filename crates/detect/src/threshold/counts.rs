//! The counts of thresholds.
//!
//! A single worker keeps its own counts without a lock. Several workers share counts in shards with a lock each, so that
//! the number of workers makes no difference. Only a match of a rule with a threshold takes a lock.
//!
//! The table uses a random hash key and has a limit (`detect.thresholds.memcap`, [`crate::bounded`]). When the table is
//! full, an insertion inspects a few entries and evicts those whose window is over. If there are none, it evicts one
//! entry in use (`detect.threshold_memcap` counts it): counts of a `limit` first, whose loss only causes an extra alert,
//! then the entry with the fewest matches; an active rate filter goes last. So a flood of addresses that appear once
//! does not evict a host that was counted before.

use std::net::IpAddr;
use std::sync::Arc;

use margay_packet::Time;
use margay_rules::ast::{NewAction, Threshold, ThresholdKind, Track};

use super::{Decision, Outcome, RateFilter, Subject, Thresholds};
use crate::bounded::{Bounded, Inserted, Worth};
use crate::shareable::{About, InOrder, SHARDS, Shards, Shareable, Shared};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    Rule,
    Host(IpAddr),
    Pair(IpAddr, IpAddr),
    Flow(u64),
}

/// Which of a rule's counters this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counter {
    Rate,
    Filter,
    Limit,
}

/// [`super::RuleThresholds::key`], the counter, and the subject.
type Key = (u32, Counter, Who);

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: Time,
    /// When the rate filter became active; `None` if it is not, and for other counters.
    active: Option<Time>,
    /// Backoff: the count at which the next alert is due.
    next: u64,
    /// When the entry expires.
    end: Time,
    count: u32,
    /// Matches since the entry was created; `count` restarts with each alert of a `threshold`.
    matches: u32,
    /// Whether the entry only suppresses alerts: without it there is one alert too many.
    holds_back: bool,
}

impl Entry {
    /// What the entry is worth when another needs room.
    fn worth(&self, now: Time) -> Worth {
        match self.active {
            _ if self.end < now => Worth::Nothing,
            Some(_) => Worth::Some(u64::MAX),
            None if self.holds_back => Worth::Some(0),
            None => Worth::Some(u64::from(self.matches)),
        }
    }
}

/// Usage of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Entries.
    pub(crate) entries: usize,
    /// Bytes.
    pub(crate) memory: u64,
    /// Entries evicted while in use because the limit was reached.
    pub(crate) evicted: u64,
}

/// The counts of one worker, or those of several. The flows of one address may be at any worker, so counts by address
/// are shared.
#[derive(Debug)]
pub(crate) struct ThresholdState(Shareable<Counts>);

impl ThresholdState {
    /// Empty counts with a limit of `memcap` bytes and initial capacity for `expected` entries.
    pub(crate) fn new(memcap: u64, expected: usize) -> Self {
        ThresholdState(Shareable::Own(Counts::new(memcap, expected)))
    }

    /// Empty counts that several workers share.
    pub(crate) fn shared(memcap: u64, expected: usize) -> Shared<Counts> {
        Shards::new(|| Counts::new(memcap / SHARDS as u64, expected / SHARDS))
    }

    /// Switches to the shared counts of several workers.
    pub(crate) fn share(&mut self, counts: &Shared<Counts>) {
        self.0.share(counts);
    }

    /// [`crate::DetectState::in_order`].
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        self.0.in_order(order);
    }

    /// Takes over the counts of the rules before a reload, but keeps its own limit. Shared counts stay as they are.
    pub(crate) fn take_over(&mut self, old: &mut ThresholdState) {
        self.0.take_over(&mut old.0, Counts::take_over);
    }

    /// Current usage.
    pub(crate) fn used(&self) -> Used {
        let mut sum = Used::default();
        self.0.each(|c| {
            sum.entries += c.entries.len();
            sum.memory += c.entries.memory();
            sum.evicted += c.evicted;
        });
        sum
    }

    /// Counts a match of `rule` and decides its effect.
    pub(crate) fn decide(&mut self, all: &Thresholds, rule: u32, s: &Subject) -> Decision {
        let mut decision = Decision { outcome: Outcome::Alert, new_action: None, silent: false };
        let Some(t) = all.get(rule) else { return decision };
        t.each_track().for_each(|track| match who(track, s) {
            // Only one worker has the flow's counts.
            None | Some(Who::Flow(_)) => {}
            Some(Who::Host(a) | Who::Pair(a, _)) => self.0.wait(About::Host(a)),
            Some(Who::Rule) => self.0.wait(About::All),
        });
        if t.suppress.iter().any(|x| x.holds(s)) {
            decision.outcome = Outcome::Limited;
            return decision;
        }
        decision.silent = t.suppressed;
        if let Some(f) = &t.filter {
            decision.outcome = self.count(t.key, f, Counter::Filter, s);
        }
        if decision.outcome == Outcome::Alert
            && let Some(l) = &t.limit
        {
            decision.outcome = self.count(t.key, l, Counter::Limit, s);
        }
        if decision.outcome != Outcome::Nothing
            && let Some(r) = &t.rate
            && let Some(who) = who(r.track, s)
        {
            let key = (t.key, Counter::Rate, who);
            decision.new_action = self.0.at(&key, |c| c.rate(key, r, s.time));
        }
        decision
    }

    fn count(&mut self, key: u32, t: &Threshold, counter: Counter, s: &Subject) -> Outcome {
        // A packet without a flow has no count by flow: as in Suricata there is no alert.
        let Some(who) = who(t.track, s) else { return Outcome::Nothing };
        let key = (key, counter, who);
        self.0.at(&key, |c| c.count(key, t, s.time))
    }
}

/// One shard of the counts.
#[derive(Debug)]
pub(crate) struct Counts {
    entries: Bounded<Key, Entry>,
    /// Entries evicted while in use because the limit was reached.
    evicted: u64,
}

/// Lifetime in seconds of a count by flow without a window, after its last match.
const IDLE: i64 = 3600;

const fn seconds(n: u32) -> i64 {
    n as i64 * 1_000_000
}

fn over(now: Time, start: Time, secs: u32) -> bool {
    now.micros_since(start) > seconds(secs)
}

impl Counts {
    fn new(memcap: u64, expected: usize) -> Self {
        let limit = Bounded::<Key, Entry>::fitting(memcap);
        Counts { entries: Bounded::new(limit).expecting(expected), evicted: 0 }
    }

    fn take_over(&mut self, old: &mut Counts) {
        let limit = self.entries.limit();
        std::mem::swap(&mut self.entries, &mut old.entries);
        self.entries.set_limit(limit);
        self.evicted = old.evicted;
    }

    /// The entry of a key, and whether it is new.
    fn slot(&mut self, key: Key, now: Time, end: Time, holds_back: bool) -> Option<(&mut Entry, bool)> {
        let make = || Entry { start: now, count: 0, matches: 0, active: None, next: 0, end, holds_back };
        match self.entries.insert(key, make, |e| e.worth(now)) {
            Inserted::There(e) => {
                e.matches = e.matches.saturating_add(1);
                Some((e, false))
            }
            Inserted::New { value, evicted } => {
                self.evicted += u64::from(evicted);
                Some((value, true))
            }
            Inserted::Full => None,
        }
    }

    fn count(&mut self, key: Key, t: &Threshold, now: Time) -> Outcome {
        let keep = if t.kind == ThresholdKind::Backoff { IDLE * 1_000_000 } else { seconds(t.seconds) };
        let end = Time(now.0.saturating_add(keep));
        let holds_back = t.kind == ThresholdKind::Limit;
        let Some((e, new)) = self.slot(key, now, end, holds_back) else { return Outcome::Alert };
        if t.kind == ThresholdKind::Backoff {
            if new {
                e.next = u64::from(t.count);
            }
            e.end = end;
            e.count = e.count.saturating_add(1);
            return match u64::from(e.count).cmp(&e.next) {
                std::cmp::Ordering::Less if e.next == u64::from(t.count) => Outcome::Nothing,
                std::cmp::Ordering::Less => Outcome::Limited,
                _ => {
                    e.next = e.next.saturating_mul(u64::from(t.multiplier.max(1))).max(u64::from(e.count) + 1);
                    Outcome::Alert
                }
            };
        }
        let begins = new || over(now, e.start, t.seconds);
        if begins && !new {
            (e.start, e.count, e.end) = (now, 0, end);
        }
        e.count = e.count.saturating_add(1);
        // With `count 0`, a `limit` lets the match that opens a window alert; a `threshold` lets all but that one alert
        // (observed).
        match t.kind {
            ThresholdKind::Limit if begins || e.count <= t.count => Outcome::Alert,
            ThresholdKind::Limit => Outcome::Limited,
            ThresholdKind::Threshold if e.count >= t.count && !(begins && t.count == 0) => {
                // The window continues; only the count restarts.
                e.count = 0;
                Outcome::Alert
            }
            ThresholdKind::Both => match e.count.cmp(&t.count) {
                std::cmp::Ordering::Less => Outcome::Nothing,
                std::cmp::Ordering::Equal => Outcome::Alert,
                std::cmp::Ordering::Greater => Outcome::Limited,
            },
            ThresholdKind::DetectionFilter if e.count > t.count => Outcome::Alert,
            _ => Outcome::Nothing,
        }
    }

    /// An active rate filter holds for `timeout`, counted in whole seconds. The match that finds it expired is not
    /// counted. The window continues meanwhile: if it is still open, the next match activates the filter again.
    fn rate(&mut self, key: Key, r: &RateFilter, now: Time) -> Option<NewAction> {
        let keep = seconds(r.seconds.saturating_add(r.timeout));
        let end = Time(now.0.saturating_add(keep));
        let (e, new) = self.slot(key, now, end, false)?;
        if let Some(active) = e.active {
            if now.secs() - active.secs() <= i64::from(r.timeout) {
                return Some(r.new_action);
            }
            e.active = None;
            return None;
        }
        if !new && over(now, e.start, r.seconds) {
            (e.start, e.count, e.end) = (now, 0, end);
        }
        e.count = e.count.saturating_add(1);
        if e.count > r.count {
            e.active = Some(now);
            e.end = end;
            return Some(r.new_action);
        }
        None
    }
}

fn who(track: Track, s: &Subject) -> Option<Who> {
    Some(match track {
        Track::Source => Who::Host(s.src),
        Track::Destination => Who::Host(s.dst),
        // Both directions between two hosts are the same pair.
        Track::Both | Track::Either => Who::Pair(s.src.min(s.dst), s.src.max(s.dst)),
        Track::Rule => Who::Rule,
        Track::Flow => Who::Flow(s.flow?),
    })
}
