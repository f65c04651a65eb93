//! Bits that rules keep with hosts and pairs of hosts: `xbits` and `hostbits`.
//!
//! A bit lives until its time is over. Setting it while it is there does not prolong that, as observed in Suricata: a bit that
//! every packet of a host sets still ends `expire` seconds after the first of them. A bit whose time is over is there until some
//! rule asks for it; only then can it be set again. The number of bits is limited: where the table is
//! full a few of its bits are looked at, and those whose time is over go; where there is none among them the new bit is not
//! set, and counted. The tables are keyed at random (`bounded`).
//!
//! A worker has tables of its own, without a lock. Where there are several workers they share theirs, since the flows of a
//! host are of all of them: each part of them is behind a lock that only rules on such bits ask for.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use margay_packet::Time;

use crate::bounded::{Bounded, Inserted, Worth};
use crate::shareable::{About, InOrder, Shareable, Shared};

/// What a bit hangs on.
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

    /// Whose packets ask for it.
    const fn about(self) -> About {
        match self {
            HostKey::Host(a) | HostKey::Pair(a, _) => About::Host(a),
        }
    }
}

/// The bits: those of hosts and those of pairs, each kind with a limit of its own.
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

/// When a bit ends, or [`GONE`]. A query for an expired bit marks it, through a shared reference.
#[derive(Debug)]
struct Until(AtomicI64);

/// In [`Until`]: a rule asked for the bit when its time was over.
const GONE: i64 = i64::MIN;

impl Until {
    const fn new(t: Time) -> Self {
        Until(AtomicI64::new(t.0))
    }

    fn get(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// Whether the bit is set at `now`. If its time is over it is gone from here on.
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
    /// Empty tables for at most `hosts` bits of hosts, and `pairs` bits of pairs.
    pub fn new(hosts: usize, pairs: usize) -> Self {
        HostVars(Shareable::Own(Tables::new(hosts, pairs)))
    }

    /// From here on those of several workers.
    pub(crate) fn share(&mut self, tables: &Shared<Tables>) {
        self.0.share(tables);
    }

    /// [`crate::DetectState::in_order`].
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        self.0.in_order(order);
    }

    /// Takes over the bits of rules before a reload; the limits are its own. Tables that are shared go on as they are.
    pub(crate) fn take_over(&mut self, old: &mut HostVars) {
        self.0.take_over(&mut old.0, Tables::take_over);
    }

    /// Most bits that there may be of hosts, and of pairs.
    pub fn limits(&self) -> [usize; 2] {
        let mut sum = [0; 2];
        self.0.each(|t| sum = [sum[0] + t.hosts.bits.limit(), sum[1] + t.pairs.bits.limit()]);
        sum
    }

    /// Sets how many bits there may be at most; those that are there stay.
    pub fn set_limits(&mut self, [hosts, pairs]: [usize; 2]) {
        self.0.each_mut(|t, parts| {
            t.hosts.bits.set_limit(hosts.div_ceil(parts));
            t.pairs.bits.set_limit(pairs.div_ceil(parts));
        });
    }

    /// The bits of `key` at `now`, of the names below `names`: names, and until when. Asks for each name; the tables are not
    /// walked.
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

    /// Sets the bit for `seconds`; 0 for as long as the table lives. `false` where there was no room.
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

    /// How many bits the tables hold, those included whose time is over but that are still there.
    pub fn len(&self) -> usize {
        let mut sum = 0;
        self.0.each(|t| sum += t.hosts.bits.len() + t.pairs.bits.len());
        sum
    }

    /// Whether they hold none.
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

    #[test]
    fn workers_share() {
        let tables: Shared<Tables> = Shards::new(|| Tables::new(2, 2));
        let (mut a, mut b) = (HostVars::new(1, 1), HostVars::new(1, 1));
        a.share(&tables);
        b.share(&tables);
        let (key, now) = (HostKey::Host(ip(1)), Time::new(10, 0));
        a.set(key, 1, now, 5);
        assert!(b.is_set(key, 1, now) && b.limits() == [2 * SHARDS; 2]);
        // A reload of one of them leaves them together.
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
        // Pairs have room of their own.
        let pair = |n| HostKey::pair(ip(1), ip(n));
        assert!(h.set(pair(2), 1, now, 5) && !h.set(pair(3), 1, now, 5) && h.is_set(pair(2), 1, now));
    }
}
