//! Thresholds: how often a rule alerts, and the changes that `threshold.config` makes to that.
//!
//! Time is packet time. A window starts with the match that opens it and covers matches up to and including `seconds`
//! later. The first match after that opens the next window. [`counts`] holds the counts.

mod counts;

use std::net::IpAddr;

use margay_packet::Time;
use margay_rules::ast::{AddressSet, GlobalThreshold, GlobalThresholdKind, NewAction, Threshold, ThresholdKind, Track};

use crate::facts::RuleFacts;
use crate::header::contains;
pub(crate) use counts::{Counts, ThresholdState};

/// The effect of thresholds on a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Alert and act.
    Alert,
    /// Act without an alert; a `pass` does not apply.
    Limited,
    /// Neither alert nor act.
    Nothing,
}

/// The combined effect of all thresholds of a rule on a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    /// The action with which a rate filter replaces the rule's.
    pub(crate) new_action: Option<NewAction>,
    /// Whether a `suppress` without addresses removes the alert. The rule still acts.
    pub(crate) silent: bool,
}

/// The keys by which a match is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Number of the flow, if the packet has one.
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
    /// Key of the rule's counts. It stays the same across reloads as long as the rule and its thresholds do.
    key: u32,
    suppressed: bool,
    suppress: Vec<Suppress>,
    /// Only one of `rate`, `filter` and `limit` comes from `threshold.config`: a rule counts once.
    rate: Option<RateFilter>,
    filter: Option<Threshold>,
    limit: Option<Threshold>,
}

impl RuleThresholds {
    /// The subjects by which the rule's matches are counted.
    fn each_track(&self) -> impl Iterator<Item = Track> {
        let counts = [self.filter, self.limit].into_iter().flatten().map(|t| t.track);
        counts.chain(self.rate.as_ref().map(|r| r.track))
    }
}

/// Thresholds of all rules.
#[derive(Debug, Default)]
pub(crate) struct Thresholds {
    /// For each rule its index in `rules` plus one; 0 if it has no thresholds.
    index: Vec<u32>,
    rules: Vec<RuleThresholds>,
    /// Number of keys assigned so far, including those of earlier rule sets.
    keys: u32,
}

impl Thresholds {
    /// Builds the thresholds from the rules in their final order, the rules' own thresholds with the rule's place, and
    /// the entries of `threshold.config`. Returns entries without effect, with the reason. `previous` has the thresholds before a
    /// reload, and the place of each old rule in `rules`.
    pub(crate) fn new<'g>(
        rules: &[RuleFacts],
        own: &[(usize, Vec<Threshold>)],
        global: &'g [GlobalThreshold],
        previous: Option<(&Thresholds, &[u32])>,
    ) -> (Thresholds, Vec<(&'g GlobalThreshold, String)>) {
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
        let mut idle = Vec::new();
        // Most entries name one signature, so an index avoids scanning all rules.
        let mut by_sid: Vec<(u32, usize)> = if global.iter().any(|g| g.sid != 0) {
            rules.iter().enumerate().map(|(i, r)| (r.sid, i)).collect()
        } else {
            Vec::new()
        };
        by_sid.sort_unstable();
        for g in global {
            let (mut named, mut kept) = (0usize, 0usize);
            let mut take = |out: &mut Thresholds, i: usize| {
                if rules.get(i).is_some_and(|r| g.gid == 0 || g.gid == r.gid) {
                    named += 1;
                    kept += usize::from(!out.apply(i, g));
                }
            };
            if g.sid == 0 {
                (0..rules.len()).for_each(|i| take(&mut out, i));
            } else {
                let from = by_sid.partition_point(|x| x.0 < g.sid);
                let of_sid = by_sid.get(from..).unwrap_or(&[]).iter().take_while(|x| x.0 == g.sid);
                of_sid.for_each(|x| take(&mut out, x.1));
            }
            if named == 0 {
                idle.push((g, g.unknown()));
            } else if kept > 0 {
                idle.push((g, format!("{kept} of {named} rules keep their own threshold")));
            }
        }
        out.give_keys(previous);
        (out, idle)
    }

    /// Assigns the keys: the old key if nothing changed, so that counting continues.
    fn give_keys(&mut self, previous: Option<(&Thresholds, &[u32])>) {
        // If keys wrap around, the old counts they meet have long expired.
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

    /// Applies an entry to a rule. Returns false if the rule already counts and keeps what it has.
    fn apply(&mut self, rule: usize, g: &GlobalThreshold) -> bool {
        let entry = self.entry(rule);
        let counts = entry.limit.is_some() || entry.filter.is_some() || entry.rate.is_some();
        match &g.kind {
            // As in Suricata: a threshold for one signature replaces what the rule has. Other entries apply only to rules
            // that do not count yet, so the first of several applies.
            GlobalThresholdKind::Limit(t) => {
                if counts && g.sid == 0 {
                    return false;
                }
                (entry.limit, entry.filter, entry.rate) = (Some(*t), None, None);
            }
            GlobalThresholdKind::RateFilter { track, count, seconds, new_action, timeout } => {
                if counts {
                    return false;
                }
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
        true
    }

    fn get(&self, rule: u32) -> Option<&RuleThresholds> {
        let i = self.index.get(rule as usize)?.checked_sub(1)?;
        self.rules.get(i as usize)
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

    /// A rule counts once: entries and what is left of the rule's filter, limit and rate filter, as in Suricata.
    #[test]
    fn one_count_for_each_rule() {
        let threshold = |kind, seconds| Threshold { kind, track: Track::Source, count: 1, seconds, multiplier: 0 };
        let entry = |sid, kind| GlobalThreshold {
            gid: 1,
            sid,
            kind,
            place: margay_rules::ast::Place { file: "t".into(), line: 1, column: 1 },
        };
        let limit = |sid, seconds| entry(sid, GlobalThresholdKind::Limit(threshold(ThresholdKind::Limit, seconds)));
        let rate = |sid, seconds| {
            let (track, new_action) = (Track::Source, NewAction::Drop);
            entry(sid, GlobalThresholdKind::RateFilter { track, count: 1, seconds, new_action, timeout: 1 })
        };
        // Seconds of the filter, the limit and the rate filter that apply.
        let after = |own: RuleThresholds, entries: &[GlobalThreshold]| {
            let mut t = one(own);
            for e in entries {
                t.apply(0, e);
            }
            let t = &t.rules[0];
            (t.filter.map(|t| t.seconds), t.limit.map(|t| t.seconds), t.rate.as_ref().map(|r| r.seconds))
        };
        let filter =
            RuleThresholds { filter: Some(threshold(ThresholdKind::DetectionFilter, 9)), ..Default::default() };
        assert_eq!(after(filter.clone(), &[limit(7, 1)]), (None, Some(1), None));
        for kept in [limit(0, 1), rate(7, 1), rate(0, 1)] {
            assert_eq!(after(filter.clone(), &[kept]), (Some(9), None, None));
        }
        let none = RuleThresholds::default;
        assert_eq!(after(none(), &[rate(7, 1), limit(7, 2)]), (None, Some(2), None));
        assert_eq!(after(none(), &[limit(7, 2), rate(7, 1)]), (None, Some(2), None));
        assert_eq!(after(none(), &[rate(7, 1), limit(0, 2)]), (None, None, Some(1)));
        assert_eq!(after(none(), &[rate(0, 1), rate(7, 2)]), (None, None, Some(1)));
        assert_eq!(after(none(), &[limit(7, 1), limit(7, 2)]), (None, Some(2), None));
    }

    #[test]
    fn entries_without_effect_are_told() {
        let text =
            "suppress gen_id 1, sig_id 9\nthreshold gen_id 1, sig_id 0, type limit, track by_src, count 1, seconds 9\n";
        let (entries, bad) = margay_rules::parse_thresholds(text, "t", &Default::default());
        assert!(bad.is_empty());
        let rules: Vec<RuleFacts> = (1..=2)
            .map(|sid| {
                let rule = format!("alert tcp any any -> any any (sid:{sid};)");
                let loaded = margay_rules::load_str(&rule, "t", &margay_rules::Context::default());
                RuleFacts::of(loaded.rules.into_iter().next().expect("a rule"), false)
            })
            .collect();
        let own = Threshold { kind: ThresholdKind::Limit, track: Track::Source, count: 1, seconds: 5, multiplier: 0 };
        let (_, idle) = Thresholds::new(&rules, &[(0, vec![own])], &entries, None);
        let said: Vec<&str> = idle.iter().map(|i| i.1.as_str()).collect();
        assert_eq!(said, ["can't suppress sid 9, gid 1: unknown rule", "1 of 2 rules keep their own threshold"]);
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
        let mut state = ThresholdState::new(1 << 20, 0);
        (1..)
            .zip(times)
            .filter(|(_, s)| state.decide(t, 0, &subject(**s)).outcome == Outcome::Alert)
            .map(|x| x.0)
            .collect()
    }

    // The expected numbers below are Suricata's results for the same times.
    #[test]
    fn limit_as_the_reference() {
        assert_eq!(alerts(&limit(ThresholdKind::Limit, 1, 2, 0), &TIMES), [1, 6, 11, 16, 19, 24, 28]);
    }

    /// As in Suricata: with count 0, a limit lets the first match of a window alert, a threshold all but the first.
    #[test]
    fn count_0_as_the_reference() {
        let times = [0.0, 0.1, 0.2, 5.0, 5.1];
        assert_eq!(alerts(&limit(ThresholdKind::Limit, 0, 1, 0), &times), [1, 4]);
        assert_eq!(alerts(&limit(ThresholdKind::Threshold, 0, 1, 0), &times), [2, 3, 5]);
        assert!(alerts(&limit(ThresholdKind::Both, 0, 1, 0), &times).is_empty());
    }

    #[test]
    fn without_a_flow_none_is_counted() {
        for kind in [ThresholdKind::Limit, ThresholdKind::Both, ThresholdKind::DetectionFilter, ThresholdKind::Backoff]
        {
            let t = Threshold { kind, track: Track::Flow, count: 1, seconds: 60, multiplier: 2 };
            let t = one(RuleThresholds { limit: Some(t), ..Default::default() });
            let s = Subject { flow: None, ..subject(0.0) };
            assert_eq!(ThresholdState::new(1 << 20, 0).decide(&t, 0, &s).outcome, Outcome::Nothing);
        }
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
        let mut state = ThresholdState::new(1 << 20, 0);
        let changed: Vec<usize> = (1..)
            .zip(TIMES)
            .filter(|(_, s)| state.decide(&t, 0, &subject(*s)).new_action == Some(NewAction::Drop))
            .map(|x| x.0)
            .collect();
        assert_eq!(changed, [4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18, 19, 20, 25, 26, 27]);
    }

    /// A match each second; the expected numbers are Suricata's.
    #[test]
    fn rate_filters_come_back_within_their_window() {
        let times: Vec<f64> = (0..10).map(f64::from).collect();
        for (count, seconds, timeout, want) in [
            (3, 60, 3, &[4, 5, 6, 7, 9, 10][..]),
            (3, 60, 1, &[4, 5, 7, 8, 10]),
            (1, 60, 2, &[2, 3, 4, 6, 7, 8, 10]),
            (3, 4, 2, &[4, 5, 6]),
            (2, 5, 1, &[3, 4, 6, 7]),
            (3, 60, 0, &[4, 6, 8, 10]),
        ] {
            let new_action = NewAction::Pass;
            let rate = RateFilter { track: Track::Rule, count, seconds, new_action, timeout };
            let t = one(RuleThresholds { rate: Some(rate), ..Default::default() });
            let mut state = ThresholdState::new(1 << 20, 0);
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

    fn of(host: u32, secs: f64) -> Subject {
        Subject { src: IpAddr::V4(host.into()), ..subject(secs) }
    }

    #[test]
    fn a_full_table_forgets_what_counted_least() {
        // Room for one.
        let t = limit(ThresholdKind::Limit, 1, 2, 0);
        let mut state = ThresholdState::new(0, 0);
        let used = |state: &ThresholdState| (state.used().evicted, state.used().entries);
        assert_eq!(state.decide(&t, 0, &of(1, 0.0)).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &of(9, 0.0)).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &of(9, 0.0)).outcome, Outcome::Limited, "it is counted");
        assert_eq!(used(&state), (1, 1));
        // When the host's window ends there is room again: no entry in use is evicted.
        assert_eq!(state.decide(&t, 0, &of(1, 5.0)).outcome, Outcome::Alert);
        assert_eq!(state.decide(&t, 0, &of(1, 5.0)).outcome, Outcome::Limited);
        assert_eq!(used(&state), (1, 1));
    }

    #[test]
    fn a_flood_of_hosts_does_not_hide_one_that_counts() {
        const MEMORY: u64 = 8192;
        let t = limit(ThresholdKind::Threshold, 20, 60, 0);
        let mut state = ThresholdState::new(MEMORY, 0);
        let mut alerts = 0;
        for n in 0..100_000u32 {
            // Hosts seen once, and now and then the host that matters.
            let s = if n % 1000 == 0 { of(7, 0.0) } else { of(1_000_000 + n, 0.0) };
            let first = n < 3000 && n % 1000 == 0;
            // The host is counted a few times before the table fills with others.
            for _ in 0..if first { 3 } else { 1 } {
                alerts += usize::from(state.decide(&t, 0, &s).outcome == Outcome::Alert);
            }
        }
        assert_eq!(alerts, 5, "106 matches of one host");
        let used = state.used();
        assert!(used.memory <= MEMORY * 11 / 10 && used.evicted > 99_000, "{used:?}");
    }

    #[test]
    fn workers_count_together() {
        let t = limit(ThresholdKind::Limit, 1, 60, 0);
        let all = ThresholdState::shared(1 << 20, 0);
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut state = ThresholdState::new(0, 0);
                state.share(&all);
                state
            })
            .collect();
        // Every worker sees each host: one alert per host, whichever worker comes first.
        let sum = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for mut state in workers {
                let (t, sum) = (&t, &sum);
                scope.spawn(move || {
                    let alerts =
                        (0..2000).filter(|&n| state.decide(t, 0, &of(n, 0.0)).outcome == Outcome::Alert).count();
                    sum.fetch_add(alerts, std::sync::atomic::Ordering::Relaxed);
                });
            }
        });
        assert_eq!(sum.into_inner(), 2000);
    }

    #[test]
    fn suppress_by_address() {
        let t = one(RuleThresholds {
            suppress: vec![Suppress {
                track: Track::Either,
                addresses: AddressSet { v4: vec![(2, 2)], v6: vec![], any: false, negated: false },
            }],
            ..Default::default()
        });
        let mut state = ThresholdState::new(0, 0);
        assert_eq!(state.decide(&t, 0, &subject(0.0)).outcome, Outcome::Limited);
        let mut s = subject(0.0);
        s.dst = IpAddr::V4(3.into());
        assert_eq!(state.decide(&t, 0, &s).outcome, Outcome::Alert);
    }
}
