//! Arithmetic on sorted, disjoint, inclusive ranges.

/// The type of range bounds.
pub(crate) trait Bound: Copy + Ord {
    const LOW: Self;
    const HIGH: Self;
    fn next(self) -> Option<Self>;
    fn previous(self) -> Option<Self>;
}

macro_rules! bound {
    ($($t:ty),*) => { $(impl Bound for $t {
        const LOW: $t = <$t>::MIN;
        const HIGH: $t = <$t>::MAX;
        fn next(self) -> Option<$t> { self.checked_add(1) }
        fn previous(self) -> Option<$t> { self.checked_sub(1) }
    })* };
}
bound!(u16, u32, u128);

/// Sorts the ranges, and merges overlapping and adjacent ones.
pub(crate) fn normalise<T: Bound>(r: &mut Vec<(T, T)>) {
    r.sort_unstable();
    let mut out: Vec<(T, T)> = Vec::with_capacity(r.len());
    for &(a, b) in r.iter() {
        match out.last_mut() {
            Some(l) if l.1.next().is_none_or(|n| a <= n) => l.1 = l.1.max(b),
            _ => out.push((a, b)),
        }
    }
    *r = out;
}

/// Everything outside of `r`.
pub(crate) fn complement<T: Bound>(r: &[(T, T)]) -> Vec<(T, T)> {
    let mut out = Vec::with_capacity(r.len() + 1);
    let mut from = Some(T::LOW);
    for &(a, b) in r {
        if let (Some(f), Some(p)) = (from, a.previous())
            && f <= p
        {
            out.push((f, p));
        }
        from = b.next();
    }
    if let Some(f) = from {
        out.push((f, T::HIGH));
    }
    out
}

/// The intersection.
pub(crate) fn intersect<T: Bound>(a: &[(T, T)], b: &[(T, T)]) -> Vec<(T, T)> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(&x), Some(&y)) = (a.get(i), b.get(j)) {
        let (lo, hi) = (x.0.max(y.0), x.1.min(y.1));
        if lo <= hi {
            out.push((lo, hi));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    out
}

/// The difference of `a` and `b`.
pub(crate) fn subtract<T: Bound>(a: &[(T, T)], b: &[(T, T)]) -> Vec<(T, T)> {
    if b.is_empty() { a.to_vec() } else { intersect(a, &complement(b)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agree_with_membership(
            a in prop::collection::vec((any::<u16>(), any::<u16>()), 0..6),
            b in prop::collection::vec((any::<u16>(), any::<u16>()), 0..6),
            probes in prop::collection::vec(any::<u16>(), 50),
        ) {
            let fix = |v: Vec<(u16, u16)>| { let mut v: Vec<_> = v.into_iter().map(|(x, y)| (x.min(y), x.max(y))).collect(); normalise(&mut v); v };
            let (a, b) = (fix(a), fix(b));
            let has = |r: &[(u16, u16)], p: u16| r.iter().any(|&(x, y)| x <= p && p <= y);
            let (c, i, s) = (complement(&a), intersect(&a, &b), subtract(&a, &b));
            let edges = a.iter().chain(&b).flat_map(|&(x, y)| [x, y, x.wrapping_sub(1), y.wrapping_add(1)]).chain([0, u16::MAX]);
            for p in probes.into_iter().chain(edges) {
                prop_assert_eq!(has(&c, p), !has(&a, p));
                prop_assert_eq!(has(&i, p), has(&a, p) && has(&b, p));
                prop_assert_eq!(has(&s, p), has(&a, p) && !has(&b, p));
            }
        }
    }
}
