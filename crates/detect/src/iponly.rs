//! IP-only rules by address: which rules may hold for a source or destination, in one search.
//!
//! A rule goes into the table of that end of its header that is more specific; what both ends leave open is looked at
//! for every address. The header check that follows decides.

use std::net::IpAddr;

use margay_rules::ast::AddressSet;

/// Most segments of the address space that one rule may be listed in; with more it is looked at always.
const SEGMENTS_MAX: usize = 4096;
/// Most places in segments for each range of an address, in all rules together; rules that would need more are looked at
/// always: the table grows as the rules do.
const PLACES_MAX: usize = 16;

/// A table from addresses to rules.
#[derive(Debug, Default)]
struct Table {
    /// First addresses of segments, sorted, IPv4 as mapped IPv6 addresses.
    starts: Box<[u128]>,
    /// For each segment where in `rules` its rules are.
    spans: Box<[(u32, u32)]>,
    rules: Box<[u32]>,
}

const fn mapped(v4: u32) -> u128 {
    0xffff_0000_0000 | v4 as u128
}

/// `a` as a number in the space of both families.
fn number(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => mapped(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// How many addresses a set has, saturating, where an IPv6 /64 counts as one.
fn size(set: &AddressSet) -> u64 {
    if set.any {
        return u64::MAX;
    }
    let v4 = set.v4.iter().map(|&(a, b)| u64::from(b.saturating_sub(a)) + 1);
    let v6 =
        set.v6.iter().map(|&(a, b)| u64::try_from(b.saturating_sub(a) >> 64).unwrap_or(u64::MAX).saturating_add(1));
    v4.chain(v6).fold(0, u64::saturating_add)
}

fn ranges(set: &AddressSet) -> impl Iterator<Item = (u128, u128)> + '_ {
    set.v4.iter().map(|&(a, b)| (mapped(a), mapped(b))).chain(set.v6.iter().copied())
}

impl Table {
    /// Builds it; rules that are in too many segments are returned.
    fn new(rules: &[(u32, &AddressSet)]) -> (Table, Vec<u32>) {
        let mut starts: Vec<u128> = vec![0];
        for (_, set) in rules {
            for (a, b) in ranges(set) {
                starts.push(a);
                starts.extend(b.checked_add(1));
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); starts.len()];
        let mut wide = Vec::new();
        let mut places = starts.len().saturating_mul(PLACES_MAX).max(1 << 16);
        for &(rule, set) in rules {
            let spans: Vec<(usize, usize)> = ranges(set)
                .map(|(a, b)| (starts.partition_point(|&s| s < a), starts.partition_point(|&s| s <= b)))
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
        (Table { starts: starts.into_boxed_slice(), spans, rules: all.into_boxed_slice() }, wide)
    }

    fn get(&self, a: u128) -> &[u32] {
        let i = self.starts.partition_point(|&s| s <= a);
        let Some(&(from, to)) = i.checked_sub(1).and_then(|i| self.spans.get(i)) else { return &[] };
        self.rules.get(from as usize..to as usize).unwrap_or(&[])
    }
}

/// All IP-only rules.
#[derive(Debug, Default)]
pub(crate) struct IpOnly {
    by_src: Table,
    by_dst: Table,
    always: Vec<u32>,
}

/// What the table needs to know of one rule.
pub(crate) struct IpOnlyRule {
    pub(crate) rule: u32,
    pub(crate) src: AddressSet,
    pub(crate) dst: AddressSet,
    /// `<>`
    pub(crate) both: bool,
}

impl IpOnly {
    /// Builds the tables from rules in their order.
    pub(crate) fn new(rules: &[IpOnlyRule]) -> IpOnly {
        let (mut src, mut dst, mut always) = (Vec::new(), Vec::new(), Vec::new());
        for r in rules {
            match (size(&r.src), size(&r.dst)) {
                (u64::MAX, u64::MAX) => always.push(r.rule),
                _ if r.both => always.push(r.rule),
                (s, d) if s <= d => src.push((r.rule, &r.src)),
                _ => dst.push((r.rule, &r.dst)),
            }
        }
        let (by_src, wide_src) = Table::new(&src);
        let (by_dst, wide_dst) = Table::new(&dst);
        always.extend(wide_src);
        always.extend(wide_dst);
        always.sort_unstable();
        IpOnly { by_src, by_dst, always }
    }

    /// Adds the rules that may hold for a packet.
    pub(crate) fn candidates(&self, src: IpAddr, dst: IpAddr, out: &mut Vec<u32>) {
        out.extend_from_slice(&self.always);
        out.extend_from_slice(self.by_src.get(number(src)));
        out.extend_from_slice(self.by_dst.get(number(dst)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(v4: &[(u32, u32)]) -> AddressSet {
        AddressSet { v4: v4.to_vec(), v6: vec![], any: false }
    }

    #[test]
    fn families_do_not_mix() {
        let any = AddressSet { any: true, ..Default::default() };
        let v6 = AddressSet { v4: vec![], v6: vec![(1, 5)], any: false };
        let v4 = set(&[(1, 5)]);
        let t = IpOnly::new(&[
            IpOnlyRule { rule: 0, src: v6, dst: any.clone(), both: false },
            IpOnlyRule { rule: 1, src: any.clone(), dst: v4, both: false },
            IpOnlyRule { rule: 2, src: any.clone(), dst: any, both: false },
        ]);
        let mut out = vec![];
        t.candidates(IpAddr::V4(3.into()), IpAddr::V4(9.into()), &mut out);
        assert_eq!(out, [2]);
        out.clear();
        t.candidates(IpAddr::V6(3.into()), IpAddr::V6(3.into()), &mut out);
        assert_eq!(out, [2, 0]);
        out.clear();
        t.candidates(IpAddr::V4(9.into()), IpAddr::V4(5.into()), &mut out);
        assert_eq!(out, [2, 1]);
    }

    proptest! {
        #[test]
        fn as_one_by_one(
            sets in proptest::collection::vec(proptest::collection::btree_set(0u32..64, 1..6), 1..20),
            probe in 0u32..70,
        ) {
            let sets: Vec<AddressSet> = sets.iter().map(|s| {
                let v: Vec<u32> = s.iter().copied().collect();
                set(&v.chunks(2).map(|c| (c[0], *c.last().unwrap())).collect::<Vec<_>>())
            }).collect();
            let any = AddressSet { any: true, ..Default::default() };
            let rules: Vec<_> = sets.iter().enumerate()
                .map(|(i, s)| IpOnlyRule { rule: i as u32, src: s.clone(), dst: any.clone(), both: false }).collect();
            let t = IpOnly::new(&rules);
            let mut out = vec![];
            t.candidates(IpAddr::V4(probe.into()), IpAddr::V4(0.into()), &mut out);
            let want: Vec<u32> = (0u32..).zip(&sets)
                .filter(|(_, s)| s.v4.iter().any(|r| r.0 <= probe && probe <= r.1)).map(|x| x.0).collect();
            prop_assert_eq!(out, want);
        }
    }
}
