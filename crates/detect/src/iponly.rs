//! IP-only rules by address: one search finds the rules for a source or destination.
//!
//! A rule is listed in the table of the more specific end of its header. A rule with both ends open is a candidate for
//! every address. Each entry also has the rule's transports and port range, so that rules for another transport cost
//! almost nothing. The header check that follows decides.

use std::net::IpAddr;

use margay_rules::ast::{AddressSet, PortSet};

use crate::header::PacketKey;

/// Most segments of the address space that list one rule; a rule in more segments is always a candidate.
const SEGMENTS_MAX: usize = 4096;
/// Most segment entries per address range, summed over all rules. Rules beyond that are always candidates, so that the
/// table grows linearly with the rules.
const PLACES_MAX: usize = 16;

/// A rule with the cheap parts of its header. Most rules ask for a transport that the packet does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    rule: u32,
    /// Bits of [`crate::header::transport`].
    transports: u8,
    /// Lowest and highest port that the rule accepts; the full range if it names none.
    sport: (u16, u16),
    dport: (u16, u16),
}

impl Entry {
    fn new(r: &IpOnlyRule) -> Entry {
        let span = |p: &PortSet| match (p.any || r.both, p.ranges.iter().map(|x| x.0).min()) {
            (false, Some(from)) => (from, p.ranges.iter().map(|x| x.1).max().unwrap_or(u16::MAX)),
            _ => (0, u16::MAX),
        };
        Entry { rule: r.rule, transports: r.transports, sport: span(&r.sport), dport: span(&r.dport) }
    }

    #[inline]
    const fn fits(&self, k: &PacketKey) -> bool {
        self.transports & k.transport != 0
            && k.sport >= self.sport.0
            && k.sport <= self.sport.1
            && k.dport >= self.dport.0
            && k.dport <= self.dport.1
    }
}

/// Maps addresses of one family to rules.
#[derive(Debug)]
struct Table<A> {
    /// First addresses of segments, sorted.
    starts: Box<[A]>,
    /// For each value of an address's first 16 bits, the number of segments that start below it; empty if there are few
    /// segments.
    index: Box<[u32]>,
    /// For each segment, the range of its rules in `rules`.
    spans: Box<[(u32, u32)]>,
    rules: Box<[Entry]>,
}

/// With fewer segments, a search without an index is as fast.
const INDEX_MIN: usize = 64;

/// An address as a number.
trait Number: Copy + Ord {
    const ZERO: Self;
    fn next(self) -> Option<Self>;
    /// Its first 16 bits.
    fn upper(self) -> usize;
}

impl Number for u32 {
    const ZERO: u32 = 0;
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }
    fn upper(self) -> usize {
        (self >> 16) as usize
    }
}

impl Number for u128 {
    const ZERO: u128 = 0;
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
    fn upper(self) -> usize {
        (self >> 112) as usize
    }
}

/// The number of addresses in a set, saturating; an IPv6 /64 counts as one.
fn size(set: &AddressSet) -> u64 {
    if set.any {
        return u64::MAX;
    }
    let v4 = set.v4.iter().map(|&(a, b)| u64::from(b.saturating_sub(a)) + 1);
    let v6 =
        set.v6.iter().map(|&(a, b)| u64::try_from(b.saturating_sub(a) >> 64).unwrap_or(u64::MAX).saturating_add(1));
    v4.chain(v6).fold(0, u64::saturating_add)
}

impl<A: Number> Table<A> {
    /// Builds the table; returns the rules that are in too many segments.
    fn new(rules: &[(Entry, &[(A, A)])]) -> (Table<A>, Vec<Entry>) {
        let mut starts: Vec<A> = vec![A::ZERO];
        for (_, ranges) in rules {
            for &(a, b) in *ranges {
                starts.push(a);
                starts.extend(b.next());
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); starts.len()];
        let mut wide = Vec::new();
        let mut places = starts.len().saturating_mul(PLACES_MAX).max(1 << 16);
        for &(rule, ranges) in rules {
            let spans: Vec<(usize, usize)> = ranges
                .iter()
                .map(|&(a, b)| (starts.partition_point(|&s| s < a), starts.partition_point(|&s| s <= b)))
                .collect();
            let needed = spans.iter().map(|(a, b)| b.saturating_sub(*a)).sum::<usize>();
            if needed > SEGMENTS_MAX.max(2 * spans.len()).min(places) {
                wide.push(rule);
                continue;
            }
            places -= needed;
            for (a, b) in spans {
                for list in lists.get_mut(a..b).into_iter().flatten() {
                    if list.last() != Some(&rule) {
                        list.push(rule);
                    }
                }
            }
        }
        let mut all = Vec::new();
        let spans = lists
            .iter()
            .map(|l| {
                let start = all.len() as u32;
                all.extend_from_slice(l);
                (start, all.len() as u32)
            })
            .collect();
        let index = match starts.len() < INDEX_MIN {
            true => Box::default(),
            false => (0..=1 << 16).map(|u| starts.partition_point(|s| s.upper() < u) as u32).collect(),
        };
        (Table { starts: starts.into_boxed_slice(), index, spans, rules: all.into_boxed_slice() }, wide)
    }

    fn get(&self, a: A) -> &[Entry] {
        let upper = a.upper();
        let (from, to) = match (self.index.get(upper), self.index.get(upper + 1)) {
            (Some(&from), Some(&to)) => (from as usize, to as usize),
            _ => (0, self.starts.len()),
        };
        let i = from + self.starts.get(from..to).unwrap_or(&[]).partition_point(|&s| s <= a);
        let Some(&(from, to)) = i.checked_sub(1).and_then(|i| self.spans.get(i)) else { return &[] };
        self.rules.get(from as usize..to as usize).unwrap_or(&[])
    }
}

/// Maps addresses to rules.
#[derive(Debug)]
struct Tables {
    v4: Table<u32>,
    v6: Table<u128>,
}

impl Tables {
    /// Builds tables for rules with address sets; adds rules in too many segments to `wide`.
    fn new(rules: &[(Entry, &AddressSet)], wide: &mut Vec<Entry>) -> Tables {
        let v4: Vec<_> = rules.iter().map(|(e, set)| (*e, set.v4.as_slice())).collect();
        let v6: Vec<_> = rules.iter().map(|(e, set)| (*e, set.v6.as_slice())).collect();
        let ((v4, wide4), (v6, wide6)) = (Table::new(&v4), Table::new(&v6));
        wide.extend(wide4);
        wide.extend(wide6);
        Tables { v4, v6 }
    }

    fn get(&self, a: IpAddr) -> &[Entry] {
        match a {
            IpAddr::V4(a) => self.v4.get(u32::from(a)),
            IpAddr::V6(a) => self.v6.get(u128::from(a)),
        }
    }
}

/// All IP-only rules.
#[derive(Debug)]
pub(crate) struct IpOnly {
    by_src: Tables,
    by_dst: Tables,
    always: Vec<Entry>,
}

/// The facts of one rule that the table needs.
pub(crate) struct IpOnlyRule {
    pub(crate) rule: u32,
    /// Bits of [`crate::header::transport`].
    pub(crate) transports: u8,
    pub(crate) src: AddressSet,
    pub(crate) dst: AddressSet,
    pub(crate) sport: PortSet,
    pub(crate) dport: PortSet,
    /// `<>`
    pub(crate) both: bool,
}

impl IpOnly {
    /// Builds the tables from rules in their order.
    pub(crate) fn new(rules: &[IpOnlyRule]) -> IpOnly {
        let (mut src, mut dst, mut always) = (Vec::new(), Vec::new(), Vec::new());
        for r in rules {
            let entry = Entry::new(r);
            match (size(&r.src), size(&r.dst)) {
                (u64::MAX, u64::MAX) => always.push(entry),
                // In either direction, one of the packet's ends is in the more specific set.
                (s, d) if r.both => {
                    let set = if s <= d { &r.src } else { &r.dst };
                    src.push((entry, set));
                    dst.push((entry, set));
                }
                (s, d) if s <= d => src.push((entry, &r.src)),
                _ => dst.push((entry, &r.dst)),
            }
        }
        let by_src = Tables::new(&src, &mut always);
        let by_dst = Tables::new(&dst, &mut always);
        always.sort_unstable_by_key(|e| e.rule);
        always.dedup();
        IpOnly { by_src, by_dst, always }
    }

    /// Adds the rules that may match a packet, possibly some of them twice.
    pub(crate) fn candidates(&self, key: &PacketKey, out: &mut Vec<u32>) {
        for list in [self.always.as_slice(), self.by_src.get(key.src), self.by_dst.get(key.dst)] {
            out.extend(list.iter().filter(|e| e.fits(key)).map(|e| e.rule));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{TO_SERVER, family, transport};
    use proptest::prelude::*;

    fn set(v4: &[(u32, u32)]) -> AddressSet {
        AddressSet { v4: v4.to_vec(), v6: vec![], any: false, negated: false }
    }

    fn any() -> AddressSet {
        AddressSet { any: true, ..Default::default() }
    }

    fn of(rule: u32, src: AddressSet, dst: AddressSet) -> IpOnlyRule {
        let ports = PortSet { any: true, ..Default::default() };
        IpOnlyRule { rule, transports: transport::ALL, src, dst, sport: ports.clone(), dport: ports, both: false }
    }

    fn found(t: &IpOnly, src: IpAddr, dst: IpAddr) -> Vec<u32> {
        let key = PacketKey {
            transport: transport::UDP,
            family: family::V4,
            side: TO_SERVER,
            src,
            dst,
            sport: 53,
            dport: 1000,
            fragment: false,
        };
        let mut out = vec![];
        t.candidates(&key, &mut out);
        out
    }

    const fn v4(a: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(a))
    }

    const fn v6(a: u128) -> IpAddr {
        IpAddr::V6(std::net::Ipv6Addr::from_bits(a))
    }

    #[test]
    fn families_do_not_mix() {
        let of_v6 = AddressSet { v4: vec![], v6: vec![(1, 5)], any: false, negated: false };
        let t = IpOnly::new(&[of(0, of_v6, any()), of(1, any(), set(&[(1, 5)])), of(2, any(), any())]);
        assert_eq!(found(&t, v4(3), v4(9)), [2]);
        assert_eq!(found(&t, v6(3), v6(3)), [2, 0]);
        assert_eq!(found(&t, v4(9), v4(5)), [2, 1]);
    }

    #[test]
    fn transports_and_ports() {
        let ports = |from, to| PortSet { ranges: vec![(from, to)], any: false };
        let mut rules: Vec<_> = (0..6).map(|n| of(n, if n < 3 { any() } else { set(&[(7, 7)]) }, any())).collect();
        for r in &mut rules {
            match r.rule % 3 {
                0 => r.transports = transport::ALL & !transport::UDP,
                1 => r.dport = ports(999, 1000),
                _ => r.sport = ports(54, 60),
            }
        }
        assert_eq!(found(&IpOnly::new(&rules), v4(7), v4(9)), [1, 4]);
    }

    #[test]
    fn both_ways() {
        let rule = IpOnlyRule { both: true, ..of(0, set(&[(1, 9)]), set(&[(7, 7)])) };
        let t = IpOnly::new(&[rule]);
        for (src, dst, want) in [(7, 1, true), (1, 7, true), (1, 2, false)] {
            assert_eq!(!found(&t, v4(src), v4(dst)).is_empty(), want);
        }
    }

    proptest! {
        #[test]
        fn as_one_by_one(
            sets in proptest::collection::vec(proptest::collection::btree_set(0u32..64, 1..6), 1..60),
            shift in prop_oneof![Just(0u32), Just(13), Just(26)],
            probe in 0u32..70,
        ) {
            // Within and across values of the upper 16 bits, which are indexed.
            let sets: Vec<AddressSet> = sets.iter().map(|s| {
                let v: Vec<u32> = s.iter().copied().collect();
                set(&v.chunks(2).map(|c| (c[0] << shift, *c.last().unwrap() << shift)).collect::<Vec<_>>())
            }).collect();
            let probe = probe.checked_shl(shift).unwrap_or(0);
            let rules: Vec<_> = (0..).zip(&sets).map(|(n, s)| of(n, s.clone(), any())).collect();
            let want: Vec<u32> = (0u32..).zip(&sets)
                .filter(|(_, s)| s.v4.iter().any(|r| r.0 <= probe && probe <= r.1)).map(|x| x.0).collect();
            prop_assert_eq!(found(&IpOnly::new(&rules), v4(probe), v4(0)), want);
        }
    }
}
