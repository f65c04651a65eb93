//! Bits that rules set on hosts and host pairs: `xbits` and `hostbits`.
//!
//! A bit lives until it expires. Setting an existing bit does not prolong it, as observed in Suricata: a bit that every
//! packet of a host sets still ends `expire` seconds after the first of them. An expired bit stays in the table until a
//! rule tests it; only then can it be set again. The number of bits is limited. If the table is full, an insertion
//! inspects a few bits and evicts the expired ones; if there are none, the new bit is not set, and a counter counts it.
//! The tables use a random hash key (`bounded`).
//!
//! A single worker has its own tables, without a lock. Several workers share tables, since the flows of one host may be
//! at any worker. Each shard has a lock that only rules with such bits take.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use margay_packet::Time;

use crate::bounded::{Bounded, Inserted, Worth};
use crate::shareable::{About, InOrder, Shareable, Shared};

/// The owner of a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostKey {
    /// One host.
    Host(IpAddr),
    /// Two hosts, in either order: made with [`HostKey::pair`].
    Pair(IpAddr, IpAddr),
}

impl HostKey {
    /// The pair of `a` and `b`, the same whichever comes first.
    pub fn pair(a: IpAddr, b: IpAddr) -> HostKey {
        if a <= b { HostKey::Pair(a, b) } else { HostKey::Pair(b, a) }
    }

    /// Which packets affect this key.
    const fn about(self) -> About {
        match self {
            HostKey::Host(a) | HostKey::Pair(a, _) => About::Host(a),
        }
    }
}

/// The bits of hosts and of pairs, each with a limit.
#[derive(Debug)]
pub struct HostVars(Shareable<Tables>);

#[derive(Debug)]
pub(crate) struct Tables {
    hosts: Bits,
    pairs: Bits,
}

#[derive(Debug)]
struct Bits {
    bits: Bounded<(HostKey, u32), Until>,
    refused: u64,
}

/// When a bit ends, or [`GONE`]. Testing an expired bit marks it, through a shared reference.
#[derive(Debug)]
struct Until(AtomicI64);

/// In [`Until`]: a rule tested the bit after it expired.
const GONE: i64 = i64::MIN;

impl Until {
    const fn new(t: Time) -> Self {
        Until(AtomicI64::new(t.0))
    }

    fn get(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// Whether the bit is set at `now`. An expired bit is marked as gone.
    fn ask(&self, now: Time) -> bool {
        let set = self.get() >= now;
        if !set {
            self.0.store(GONE, Ordering::Relaxed);
        }
        set
    }
}

impl Bits {
    fn new(limit: usize) -> Self {
        Bits { bits: Bounded::new(limit), refused: 0 }
    }

    fn set(&mut self, key: (HostKey, u32), now: Time, until: Time) -> bool {
        let worth = |until: &Until| if until.get() < now { Worth::Nothing } else { Worth::Kept };
        match self.bits.insert(key, || Until::new(until), worth) {
            Inserted::There(bit) if bit.get().0 == GONE => *bit = Until::new(until),
            Inserted::There(_) => {}
            Inserted::New { .. } => {}
            Inserted::Full => {
                self.refused += 1;
                return false;
            }
        }
        true
    }
}

impl Tables {
    pub(crate) fn new(hosts: usize, pairs: usize) -> Self {
        Tables { hosts: Bits::new(hosts), pairs: Bits::new(pairs) }
    }

    const fn of(&self, key: HostKey) -> &Bits {
        match key {
            HostKey::Host(_) => &self.hosts,
            HostKey::Pair(..) => &self.pairs,
        }
    }

    const fn of_mut(&mut self, key: HostKey) -> &mut Bits {
        match key {
            HostKey::Host(_) => &mut self.hosts,
            HostKey::Pair(..) => &mut self.pairs,
        }
    }

    fn take_over(&mut self, old: &mut Tables) {
        for (new, old) in [(&mut self.hosts, &mut old.hosts), (&mut self.pairs, &mut old.pairs)] {
            let limit = new.bits.limit();
            std::mem::swap(&mut new.bits, &mut old.bits);
            new.bits.set_limit(limit);
            new.refused = old.refused;
        }
    }
}

impl HostVars {
    /// Empty tables for at most `hosts` host bits and `pairs` pair bits.
    pub fn new(hosts: usize, pairs: usize) -> Self {
        HostVars(Shareable::Own(Tables::new(hosts, pairs)))
    }

    /// Switches to the shared tables of several workers.
    pub(crate) fn share(&mut self, tables: &Shared<Tables>) {
        self.0.share(tables);
    }

    /// [`crate::DetectState::in_order`].
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        self.0.in_order(order);
    }

    /// Takes over the bits of the rules before a reload, but keeps its own limits. Shared tables stay as they are.
    pub(crate) fn take_over(&mut self, old: &mut HostVars) {
        self.0.take_over(&mut old.0, Tables::take_over);
    }

    /// Most bits of hosts and of pairs.
    pub fn limits(&self) -> [usize; 2] {
        let mut sum = [0; 2];
        self.0.each(|t| sum = [sum[0] + t.hosts.bits.limit(), sum[1] + t.pairs.bits.limit()]);
        sum
    }

    /// Sets the limits. Existing bits stay.
    pub fn set_limits(&mut self, [hosts, pairs]: [usize; 2]) {
        self.0.each_mut(|t, parts| {
            t.hosts.bits.set_limit(hosts.div_ceil(parts));
            t.pairs.bits.set_limit(pairs.div_ceil(parts));
        });
    }

    /// The bits of `key` at `now` whose name is below `names`: name and end. Looks up each name instead of walking the
    /// tables.
    pub fn bits_of(&self, key: HostKey, names: u32, now: Time) -> Vec<(u32, Time)> {
        self.0.look(&key, |t| {
            let bits = &t.of(key).bits;
            (0..names).filter_map(|n| Some((n, bits.get(&(key, n))?.get()))).filter(|b| b.1 >= now).collect()
        })
    }

    /// Whether bit `name` is set on `key` at `now`.
    pub fn is_set(&self, key: HostKey, name: u32, now: Time) -> bool {
        self.0.wait(key.about());
        self.0.look(&key, |t| t.of(key).bits.get(&(key, name)).is_some_and(|until| until.ask(now)))
    }

    /// Whether the bit was set and no rule has found it expired since. As in Suricata, `toggle` clears such a bit.
    pub fn is_kept(&self, key: HostKey, name: u32) -> bool {
        self.0.wait(key.about());
        self.0.look(&key, |t| t.of(key).bits.get(&(key, name)).is_some_and(|until| until.get().0 != GONE))
    }

    /// Sets the bit for `seconds`, or without end if 0. Returns `false` if the table is full.
    pub fn set(&mut self, key: HostKey, name: u32, now: Time, seconds: u32) -> bool {
        let until =
            if seconds == 0 { Time(i64::MAX) } else { Time(now.0.saturating_add(i64::from(seconds) * 1_000_000)) };
        self.0.wait(key.about());
        self.0.at(&key, |t| t.of_mut(key).set((key, name), now, until))
    }

    /// Clears the bit.
    pub fn unset(&mut self, key: HostKey, name: u32) {
        self.0.wait(key.about());
        self.0.at(&key, |t| t.of_mut(key).bits.remove(&(key, name)));
    }

    /// The number of bits in the tables, including expired ones not yet evicted.
    pub fn len(&self) -> usize {
        let mut sum = 0;
        self.0.each(|t| sum += t.hosts.bits.len() + t.pairs.bits.len());
        sum
    }

    /// Whether the tables are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bits were not set because a table was full.
    pub fn refused(&self) -> u64 {
        let mut sum = 0;
        self.0.each(|t| sum += t.hosts.refused + t.pairs.refused);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shareable::{SHARDS, Shards};

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn time_ends_bits() {
        let mut h = HostVars::new(10, 10);
        let key = HostKey::Host(ip(1));
        assert!(h.set(key, 1, Time::new(100, 0), 30));
        assert!(h.is_set(key, 1, Time::new(130, 0)));
        assert!(!h.is_set(key, 1, Time::new(130, 1)));
        assert!(!h.is_set(key, 2, Time::new(100, 0)));
        h.set(key, 1, Time::new(140, 0), 30);
        h.set(key, 1, Time::new(160, 0), 30);
        h.set(key, 1, Time::new(171, 0), 30);
        assert!(!h.is_set(key, 1, Time::new(172, 0)), "nobody asked for it since its time was over");
        h.set(key, 1, Time::new(180, 0), 30);
        assert!(h.is_set(key, 1, Time::new(210, 0)) && !h.is_set(key, 1, Time::new(211, 0)));
        h.unset(key, 1);
        assert!(!h.is_set(key, 1, Time::new(120, 0)) && h.is_empty());
        h.set(key, 1, Time::new(0, 0), 0);
        assert!(h.is_set(key, 1, Time::new(1 << 40, 0)));
    }

    /// What `toggle` asks: an expired bit counts as set until a rule tests it.
    #[test]
    fn an_expired_bit_is_kept_until_a_rule_tests_it() {
        let mut h = HostVars::new(10, 10);
        let key = HostKey::Host(ip(1));
        assert!(!h.is_kept(key, 1));
        h.set(key, 1, Time::new(100, 0), 5);
        assert!(h.is_kept(key, 1));
        assert!(!h.is_set(key, 1, Time::new(106, 0)) && !h.is_kept(key, 1));
    }

    #[test]
    fn workers_share() {
        let tables: Shared<Tables> = Shards::new(|| Tables::new(2, 2));
        let (mut a, mut b) = (HostVars::new(1, 1), HostVars::new(1, 1));
        a.share(&tables);
        b.share(&tables);
        let (key, now) = (HostKey::Host(ip(1)), Time::new(10, 0));
        a.set(key, 1, now, 5);
        assert!(b.is_set(key, 1, now) && b.limits() == [2 * SHARDS; 2]);
        // After one of them reloads they still share their tables.
        let mut c = HostVars::new(3, 3);
        c.take_over(&mut a);
        b.unset(key, 1);
        assert!(!c.is_set(key, 1, now));
    }

    #[test]
    fn pairs_have_no_order() {
        assert_eq!(HostKey::pair(ip(1), ip(2)), HostKey::pair(ip(2), ip(1)));
        assert_ne!(HostKey::pair(ip(1), ip(2)), HostKey::Host(ip(1)));
    }

    #[test]
    fn a_full_table_refuses_and_counts() {
        let mut h = HostVars::new(2, 1);
        let now = Time::new(10, 0);
        assert!(h.set(HostKey::Host(ip(1)), 1, now, 5) && h.set(HostKey::Host(ip(2)), 1, now, 50));
        assert!(!h.set(HostKey::Host(ip(3)), 1, now, 5));
        assert_eq!(h.refused(), 1);
        assert!(h.set(HostKey::Host(ip(1)), 1, now, 5), "it is there");
        assert!(h.set(HostKey::Host(ip(3)), 1, Time::new(20, 0), 5), "the first one's time is over");
        assert_eq!(h.len(), 2);
        // Pairs have a limit of their own.
        let pair = |n| HostKey::pair(ip(1), ip(n));
        assert!(h.set(pair(2), 1, now, 5) && !h.set(pair(3), 1, now, 5) && h.is_set(pair(2), 1, now));
    }
}
