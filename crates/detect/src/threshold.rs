//! Thresholds: how often a rule alerts, and what `threshold.config` changes about it.
//!
//! Time is that of packets. A window starts with the match that opens it and holds matches up to and including
//! `seconds` later; the first match after it opens the next. A worker counts for itself; where there are
//! several they count together ([`ThresholdState`]), so that it makes no difference how many there are.
//!
//! The table has a limit. When it is reached, entries whose window is over are dropped; where that frees nothing the
//! match is not counted, `memcap` goes up by one, and the rule behaves as though it had no threshold: an alert too many is
//! better than one too few.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use margay_packet::Time;
use margay_rules::ast::{AddressSet, GlobalThreshold, GlobalThresholdKind, NewAction, Threshold, ThresholdKind, Track};

use crate::facts::RuleFacts;
use crate::header::contains;
use crate::shareable::{About, InOrder, Shareable, Shared};

/// What thresholds make of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Alert and act.
    Alert,
    /// Act without an alert; a `pass` is none then.
    Limited,
    /// Act without an alert.
    Silent,
    /// Neither.
    Nothing,
}

/// What all thresholds of a rule make of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    /// The action that a rate filter puts in place of the rule's.
    pub(crate) new_action: Option<NewAction>,
}

/// What a match is counted by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Number of the flow, where the packet has one.
    pub(crate) flow: Option<u64>,
    pub(crate) time: Time,
}

#[derive(Debug, Clone, PartialEq)]
struct RateFilter {
    track: Track,
    count: u32,
    seconds: u32,
    new_action: NewAction,
    timeout: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Suppress {
    track: Track,
    addresses: AddressSet,
}

/// Thresholds of one rule.
#[derive(Debug, Clone, Default)]
struct RuleThresholds {
    /// What its counts are kept by: the same from set to set as long as the rule and its thresholds are.
    key: u32,
    suppressed: bool,
    suppress: Vec<Suppress>,
    rate: Option<RateFilter>,
    filter: Option<Threshold>,
    limit: Option<Threshold>,
}

impl RuleThresholds {
    /// What its counts are by.
    fn each_track(&self) -> impl Iterator<Item = Track> {
        let counts = [self.filter, self.limit].into_iter().flatten().map(|t| t.track);
        counts.chain(self.rate.as_ref().map(|r| r.track))
    }
}

/// Thresholds of all rules.
#[derive(Debug, Default)]
pub(crate) struct Thresholds {
    /// For each rule one more than its place in `rules`, 0 where it has none.
    index: Vec<u32>,
    rules: Vec<RuleThresholds>,
    /// Keys given out so far, with those of earlier sets.
    keys: u32,
}

impl Thresholds {
    /// From the rules in their final order, what they say themselves, each with the rule's place, and the entries of
    /// `threshold.config` in theirs. Returns the entries that no rule answers to. `previous` has the thresholds before a reload, and where each of its rules is in `rules`.
    pub(crate) fn new<'g>(
        rules: &[RuleFacts],
        own: &[(usize, Vec<Threshold>)],
        global: &'g [GlobalThreshold],
        previous: Option<(&Thresholds, &[u32])>,
    ) -> (Thresholds, Vec<&'g GlobalThreshold>) {
        let mut out = Thresholds { index: vec![0; rules.len()], rules: Vec::new(), keys: 0 };
        for (i, thresholds) in own {
            for t in thresholds {
                let entry = out.entry(*i);
                if t.kind == ThresholdKind::DetectionFilter {
                    entry.filter = Some(*t);
                } else {
                    entry.limit = Some(*t);
                }
            }
        }
        let mut unused = Vec::new();
        // Most entries name one signature: they are looked up, and not looked for among all rules.
        let mut by_sid: Vec<(u32, usize)> = if global.iter().any(|g| g.sid != 0) {
            rules.iter().enumerate().map(|(i, r)| (r.sid, i)).collect()
        } else {
            Vec::new()
        };
        by_sid.sort_unstable();
        for g in global {
            let mut used = false;
            let mut take = |out: &mut Thresholds, i: usize| {
                if rules.get(i).is_some_and(|r| g.gid == 0 || g.gid == r.gid) {
                    used = true;
                    out.apply(i, g);
                }
            };
            if g.sid == 0 {
                (0..rules.len()).for_each(|i| take(&mut out, i));
            } else {
                let from = by_sid.partition_point(|x| x.0 < g.sid);
                let named = by_sid.get(from..).unwrap_or(&[]).iter().take_while(|x| x.0 == g.sid);
                named.for_each(|x| take(&mut out, x.1));
            }
            if !used {
                unused.push(g);
            }
        }
        out.give_keys(previous);
        (out, unused)
    }

    /// Gives each rule's thresholds their key: the old one where nothing changed, so that its counts go on.
    fn give_keys(&mut self, previous: Option<(&Thresholds, &[u32])>) {
        // Keys that wrapped round would meet counts of long ago, that are over.
        self.keys = previous.map_or(0, |p| p.0.keys);
        for t in &mut self.rules {
            self.keys = self.keys.wrapping_add(1);
            t.key = self.keys;
        }
        let Some((old, to)) = previous else { return };
        for (before, &now) in (0u32..).zip(to) {
            let (Some(was), Some(&i)) = (old.get(before), self.index.get(now as usize)) else { continue };
            let is = i.checked_sub(1).and_then(|i| self.rules.get_mut(i as usize));
            if let Some(is) = is
                && (&is.rate, &is.filter, &is.limit) == (&was.rate, &was.filter, &was.limit)
            {
                is.key = was.key;
            }
        }
    }

    fn entry(&mut self, rule: usize) -> &mut RuleThresholds {
        if self.index[rule] == 0 {
            self.rules.push(RuleThresholds::default());
            self.index[rule] = self.rules.len() as u32;
        }
        let i = self.index[rule] as usize - 1;
        &mut self.rules[i]
    }

    fn apply(&mut self, rule: usize, g: &GlobalThreshold) {
        let all = g.sid == 0;
        let entry = self.entry(rule);
        match &g.kind {
            // An entry for one signature replaces what the rule says; one for all leaves rules alone that have theirs.
            GlobalThresholdKind::Limit(t) => {
                if !all || (entry.limit.is_none() && entry.filter.is_none()) {
                    entry.limit = Some(*t);
                }
            }
            GlobalThresholdKind::RateFilter { track, count, seconds, new_action, timeout } => {
                entry.rate = Some(RateFilter {
                    track: *track,
                    count: *count,
                    seconds: *seconds,
                    new_action: *new_action,
                    timeout: *timeout,
                });
            }
            GlobalThresholdKind::Suppress { track: None, .. } => entry.suppressed = true,
            GlobalThresholdKind::Suppress { track: Some(track), addresses } => {
                entry.suppress.push(Suppress { track: *track, addresses: addresses.clone() });
            }
        }
    }

    fn get(&self, rule: u32) -> Option<&RuleThresholds> {
        let i = self.index.get(rule as usize)?.checked_sub(1)?;
        self.rules.get(i as usize)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    Rule,
    Host(IpAddr),
    Pair(IpAddr, IpAddr),
    Flow(u64),
}

/// Which of a rule's counters it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counter {
    Rate,
    Filter,
    Limit,
}

/// [`RuleThresholds::key`], and what is counted of whom.
type Key = (u32, Counter, Who);

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: Time,
    count: u32,
    /// Rate filter: when it came into force. Backoff: unused.
    active: Option<Time>,
    /// Backoff: the count at which the next alert is due.
    next: u64,
    /// When the entry may be forgotten.
    end: Time,
}

/// FNV-1a over the few words of a key: keys come from packets, but only counts hang on them, and the table is bounded.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(u64::from(v));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(26) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Counts: a worker's own, without a lock, or those of several workers. The flows of an address are of all workers, and so are
/// counts by address. The lock is asked for when a rule with a threshold matched.
#[derive(Debug)]
pub(crate) struct ThresholdState(Shareable<Counts>);

impl ThresholdState {
    pub(crate) fn new(max: usize) -> Self {
        ThresholdState(Shareable::Own(Counts::new(max)))
    }

    /// From here on those of several workers.
    pub(crate) fn share(&mut self, counts: &Shared<Counts>) {
        self.0.share(counts);
    }

    /// [`crate::DetectState::in_order`].
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        self.0.in_order(order);
    }

    /// Takes over the counts of rules before a reload; the limit is its own. Counts that are shared go on as they are.
    pub(crate) fn take_over(&mut self, old: &mut ThresholdState) {
        self.0.take_over(&mut old.0, Counts::take_over);
    }

    /// How many entries there are, and how many matches could not be counted because the table was full.
    pub(crate) fn used(&self) -> (usize, u64) {
        self.0.with(|c| (c.len(), c.memcap))
    }

    /// As [`Counts::decide`].
    pub(crate) fn decide(&mut self, all: &Thresholds, rule: u32, s: &Subject) -> Decision {
        match all.get(rule) {
            None => Decision { outcome: Outcome::Alert, new_action: None },
            Some(t) => {
                t.each_track().for_each(|track| match who(track, s) {
                    // Those of a flow are one worker's.
                    None | Some(Who::Flow(_)) => {}
                    Some(Who::Host(a) | Who::Pair(a, _)) => self.0.wait(About::Host(a)),
                    Some(Who::Rule) => self.0.wait(About::All),
                });
                self.0.with_mut(|c| c.decide(all, rule, s))
            }
        }
    }
}

/// Counts.
pub(crate) struct Counts {
    entries: HashMap<Key, Entry, BuildHasherDefault<KeyHasher>>,
    max: usize,
    /// Matches that could not be counted because the table was full.
    pub(crate) memcap: u64,
    /// No sweep before this time: a full table is not searched anew for every packet.
    next_sweep: Time,
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").field("entries", &self.entries.len()).field("max", &self.max).finish()
    }
}

/// How long a count by flow without a window is kept after its last match.
const IDLE: i64 = 3600;

const fn seconds(n: u32) -> i64 {
    n as i64 * 1_000_000
}

fn over(now: Time, start: Time, secs: u32) -> bool {
    now.micros_since(start) > seconds(secs)
}

impl Counts {
    pub(crate) fn new(max: usize) -> Self {
        Counts { entries: HashMap::default(), max, memcap: 0, next_sweep: Time::default() }
    }

    /// Takes over the counts of rules before a reload; the limit is its own.
    fn take_over(&mut self, old: &mut Counts) {
        std::mem::swap(&mut self.entries, &mut old.entries);
        (self.memcap, self.next_sweep) = (old.memcap, old.next_sweep);
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Counts a match of `rule` and says what becomes of it.
    pub(crate) fn decide(&mut self, all: &Thresholds, rule: u32, s: &Subject) -> Decision {
        let mut decision = Decision { outcome: Outcome::Alert, new_action: None };
        let Some(t) = all.get(rule) else { return decision };
        if t.suppressed || t.suppress.iter().any(|x| x.holds(s)) {
            // The rule still acts on the packet; only the alert is not written.
            decision.outcome = Outcome::Silent;
            return decision;
        }
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
        {
            decision.new_action = self.rate(t.key, r, s);
        }
        decision
    }

    fn slot(&mut self, key: Key, now: Time, end: Time) -> Option<(&mut Entry, bool)> {
        if self.entries.len() >= self.max && !self.entries.contains_key(&key) {
            if now >= self.next_sweep {
                self.entries.retain(|_, e| e.end >= now);
                self.next_sweep = Time(now.0.saturating_add(1_000_000));
            }
            if self.entries.len() >= self.max {
                self.memcap = self.memcap.saturating_add(1);
                return None;
            }
        }
        let mut new = false;
        let entry = self.entries.entry(key).or_insert_with(|| {
            new = true;
            Entry { start: now, count: 0, active: None, next: 0, end }
        });
        Some((entry, new))
    }

    fn count(&mut self, key: u32, t: &Threshold, counter: Counter, s: &Subject) -> Outcome {
        let Some(who) = who(t.track, s) else { return Outcome::Alert };
        let keep = if t.kind == ThresholdKind::Backoff { IDLE * 1_000_000 } else { seconds(t.seconds) };
        let end = Time(s.time.0.saturating_add(keep));
        let Some((e, new)) = self.slot((key, counter, who), s.time, end) else { return Outcome::Alert };
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
        if !new && over(s.time, e.start, t.seconds) {
            (e.start, e.count, e.end) = (s.time, 0, end);
        }
        e.count = e.count.saturating_add(1);
        match t.kind {
            ThresholdKind::Limit if e.count <= t.count => Outcome::Alert,
            ThresholdKind::Limit => Outcome::Limited,
            ThresholdKind::Threshold if e.count >= t.count => {
                // The window goes on; only the count starts anew.
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

    /// Once a rate filter is in force it holds for `timeout`, counted in whole seconds; the match that finds it over
    /// is not counted. The window goes on meanwhile: where it still does, the next match puts the filter in force again.
    fn rate(&mut self, key: u32, r: &RateFilter, s: &Subject) -> Option<NewAction> {
        let who = who(r.track, s)?;
        let keep = seconds(r.seconds.saturating_add(r.timeout));
        let end = Time(s.time.0.saturating_add(keep));
        let (e, new) = self.slot((key, Counter::Rate, who), s.time, end)?;
        if let Some(active) = e.active {
            if s.time.secs() - active.secs() <= i64::from(r.timeout) {
                return Some(r.new_action);
            }
            e.active = None;
            return None;
        }
        if !new && over(s.time, e.start, r.seconds) {
            (e.start, e.count, e.end) = (s.time, 0, end);
        }
        e.count = e.count.saturating_add(1);
        if e.count > r.count {
            e.active = Some(s.time);
            e.end = end;
            return Some(r.new_action);
        }
        None
    }
}

impl Suppress {
    fn holds(&self, s: &Subject) -> bool {
        match self.track {
            Track::Source => contains(&self.addresses, s.src),
            Track::Destination => contains(&self.addresses, s.dst),
            _ => contains(&self.addresses, s.src) || contains(&self.addresses, s.dst),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [f64; 28] = [
        0.5, 1.0, 1.4, 2.4, 2.5, 2.6, 3.5, 4.49, 4.5, 4.51, 7.0, 7.1, 7.2, 7.3, 9.0, 9.3, 9.5, 9.6, 12.0, 12.5, 13.0,
        13.5, 14.0, 14.5, 15.0, 15.5, 16.0, 20.0,
    ];

    fn subject(secs: f64) -> Subject {
        Subject {
            src: IpAddr::V4(1.into()),
            dst: IpAddr::V4(2.into()),
            flow: Some(7),
            time: Time(1_700_000_000_000_000 + (secs * 1e6).round() as i64),
        }
    }

    fn one(entry: RuleThresholds) -> Thresholds {
        Thresholds { index: vec![1], rules: vec![entry], keys: 0 }
    }

    fn limit(kind: ThresholdKind, count: u32, seconds: u32, multiplier: u32) -> Thresholds {
        let t = Threshold { kind, track: Track::Source, count, seconds, multiplier };
        one(match kind {
            ThresholdKind::DetectionFilter => RuleThresholds { filter: Some(t), ..Default::default() },
            _ => RuleThresholds { limit: Some(t), ..Default::default() },
        })
    }

    /// Numbers, from 1, of the matches that alert.
    fn alerts(t: &Thresholds, times: &[f64]) -> Vec<usize> {
        let mut state = Counts::new(10);
        (1..)
            .zip(times)
            .filter(|(_, s)| state.decide(t, 0, &subject(**s)).outcome == Outcome::Alert)
            .map(|x| x.0)
            .collect()
    }

    // Expected numbers in the tests below are those that the reference gives for the same times.
    #[test]
    fn limit_as_the_reference() {
        assert_eq!(alerts(&limit(ThresholdKind::Limit, 1, 2, 0), &TIMES), [1, 6, 11, 16, 19, 24, 28]);
    }

    #[test]
    fn threshold_as_the_reference() {
        assert_eq!(alerts(&limit(ThresholdKind::Threshold, 3, 2, 0), &TIMES), [3, 8, 13, 18, 21, 26]);
    }

    #[test]
    fn both_as_the_reference() {
        assert_eq!(alerts(&limit(ThresholdKind::Both, 2, 2, 0), &TIMES), [2, 7, 12, 17, 20, 25]);
    }

    #[test]
    fn detection_filter_as_the_reference() {
        assert_eq!(
            alerts(&limit(ThresholdKind::DetectionFilter, 2, 2, 0), &TIMES),
            [3, 4, 5, 8, 9, 10, 13, 14, 15, 18, 21, 22, 23, 26, 27]
        );
    }

    #[test]
    fn rate_filter_as_the_reference() {
        let t = one(RuleThresholds {
            rate: Some(RateFilter {
                track: Track::Source,
                count: 3,
                seconds: 3,
                new_action: NewAction::Drop,
                timeout: 3,
            }),
            ..Default::default()
        });
        let mut state = Counts::new(10);
        let changed: Vec<usize> = (1..)
            .zip(TIMES)
            .filter(|(_, s)| state.decide(&t, 0, &subject(*s)).new_action == Some(NewAction::Drop))
            .map(|x| x.0)
            .collect();
        assert_eq!(changed, [4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18, 19, 20, 25, 26, 27]);
    }

    /// A match each second, from the reference.
    #[test]
    fn rate_filters_come_back_within_their_window() {
        let times: Vec<f64> = (0..10).map(f64::from).collect();
        for (count, seconds, timeout, want) in [
            (3, 60, 3, &[4, 5, 6, 7, 9, 10][..]),
            (3, 60, 1, &[4, 5, 7, 8, 10]),
            (1, 60, 2, &[2, 3, 4, 6, 7, 8, 10]),
            (3, 4, 2, &[4, 5, 6]),
            (2, 5, 1, &[3, 4, 6, 7]),
        ] {
            let new_action = NewAction::Pass;
            let rate = RateFilter { track: Track::Rule, count, seconds, new_action, timeout };
            let t = one(RuleThresholds { rate: Some(rate), ..Default::default() });
            let mut state = Counts::new(10);
            let mut changed = Vec::new();
            for (n, &at) in (1..).zip(&times) {
                changed.extend(state.decide(&t, 0, &subject(at)).new_action.map(|_| n));
            }
            assert_eq!(changed, want, "count {count}, seconds {seconds}, timeout {timeout}");
        }
    }

    #[test]
    fn backoff_multiplies() {
        let times: Vec<f64> = (0..6676).map(|i| f64::from(i) / 100.0).collect();
        assert_eq!(alerts(&limit(ThresholdKind::Backoff, 1, 0, 2), &times).len(), 13);
        assert_eq!(alerts(&limit(ThresholdKind::Backoff, 3, 0, 2), &times).len(), 12);
        assert_eq!(alerts(&limit(ThresholdKind::Backoff, 5, 0, 5), &times), [5, 25, 125, 625, 3125]);
    }

    #[test]
    fn a_full_table_alerts_and_counts() {
        let t = limit(ThresholdKind::Limit, 1, 2, 0);
        let mut state = Counts::new(1);
        let mut other = subject(0.0);
        other.src = IpAddr::V4(9.into());
        assert_eq!(state.decide(&t, 0, &subject(0.0)).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &other).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &other).outcome, Outcome::Alert);
        assert_eq!((state.memcap, state.len()), (2, 1));
        // Once the first host's window is over there is room.
        other.time = subject(5.0).time;
        assert_eq!(state.decide(&t, 0, &other).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &other).outcome, Outcome::Limited);
        assert_eq!((state.memcap, state.len()), (2, 1));
    }

    #[test]
    fn suppress_by_address() {
        let t = one(RuleThresholds {
            suppress: vec![Suppress {
                track: Track::Either,
                addresses: AddressSet { v4: vec![(2, 2)], v6: vec![], any: false },
            }],
            ..Default::default()
        });
        let mut state = Counts::new(1);
        assert_eq!(state.decide(&t, 0, &subject(0.0)).outcome, Outcome::Silent);
        let mut s = subject(0.0);
        s.dst = IpAddr::V4(3.into());
        assert_eq!(state.decide(&t, 0, &s).outcome, Outcome::Alert);
    }
}
