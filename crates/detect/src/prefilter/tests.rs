use super::*;
use crate::mpm::{Matcher, MpmAlgo};
use proptest::prelude::*;

fn algorithms() -> Vec<MpmAlgo> {
    let mut v = vec![MpmAlgo::AhoCorasick];
    v.extend(MpmAlgo::has_hyperscan().then_some(MpmAlgo::Hyperscan));
    v
}

/// The rules of `literals`, numbered in order, that become candidates for `data`.
fn candidates(literals: &[Literal], data: &[u8], algo: MpmAlgo) -> Vec<u32> {
    let mut cache = MatcherCache::new(algo);
    let p = Prefilter::new(literals.iter().zip(0..).collect(), &mut cache);
    let mut scratch = Scratch::default();
    cache.finish().unwrap().0.iter().for_each(|m: &Matcher| scratch.prepare(m).unwrap());
    let mut out = Vec::new();
    // The second scan must not depend on the first.
    for _ in 0..2 {
        out.clear();
        p.scan(data, &mut scratch, &mut out);
        out.sort_unstable();
        out.dedup();
    }
    out
}

fn literal(bytes: &[u8], nocase: bool, offset: u32, end: Option<u32>) -> Literal {
    Literal { pattern: Pattern { bytes: bytes.to_vec(), nocase }, offset, end, longest: u32::MAX }
}

#[test]
fn where_the_rule_wants_it() {
    let l = [
        literal(b"GET", false, 0, Some(3)),
        literal(b"get", true, 0, Some(3)),
        literal(b"/index", false, 4, None),
        literal(b"x1", false, 0, None),
        literal(b"a longer one that has more bytes than a window", true, 0, None),
        literal(b"index", false, 0, Some(9)),
    ];
    for algo in algorithms() {
        assert_eq!(candidates(&l, b"GET /index", algo), [0, 1, 2], "{algo:?}");
        assert_eq!(candidates(&l, b"Get/index  x1", algo), [1, 3, 5], "{algo:?}");
        assert_eq!(candidates(&l, b"A Longer one that has more bytes than a windoW", algo), [4]);
        assert!(candidates(&l, b"a longer one that has more bytes than a wind0w", algo).is_empty());
        assert!(candidates(&l, b"", algo).is_empty());
        let long = [&[b'.'; 5000][..], b"/index x1"].concat();
        assert_eq!(candidates(&l, &long, algo), [2, 3], "{algo:?}");
    }
}

/// If the matcher fails (here it is not prepared), the same literals are found, and every expression counts as found.
#[test]
fn a_matcher_that_fails_hides_nothing() {
    let l = [
        literal(b"index", false, 0, None),
        literal(b"x1", false, 0, None),
        literal(b"not there", true, 0, None),
        literal(b"another long one", true, 0, None),
    ];
    let regexes = ["abc[0-9]x", "never.*there"].map(|r| Regex::new(r, "").unwrap());
    let data = [&[b'.'; 500][..], b"/index x1 ANOTHER long one"].concat();
    for algo in algorithms() {
        let mut cache = MatcherCache::new(algo);
        let mut builder = PrefilterBuilder::default();
        l.iter().zip(0..).for_each(|(l, rule)| builder.add(l, rule));
        let hyperscan = algo == MpmAlgo::Hyperscan;
        if hyperscan {
            regexes.iter().zip(10..).for_each(|(r, rule)| builder.add_regex(r, rule));
        }
        let p = builder.finish(&mut cache);
        cache.finish().unwrap();
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        p.scan(&data, &mut scratch, &mut out);
        out.sort_unstable();
        out.dedup();
        let want: &[u32] = if hyperscan { &[0, 1, 3, 10, 11] } else { &[0, 1, 3] };
        assert_eq!(out, want, "{algo:?}");
        assert_eq!(scratch.failures().0 > 0, hyperscan);
    }
}

proptest! {
    /// Expressions for numbers are searched in the numbers only, and found as in the whole buffer.
    #[test]
    fn numbers_are_found_where_they_are(
        parts in proptest::collection::vec(
            prop_oneof![Just("1234"), Just(" 1234-1234-1234-1234 "), Just(" 078-05-1120 "), Just(" "), Just("-"), Just("x"), Just("56"), Just("2024")], 0..60),
    ) {
        if !MpmAlgo::has_hyperscan() {
            return Ok(());
        }
        let data = parts.concat();
        let regexes = [r" \d{4}-\d{4}-\d{4}-\d{4} ", r" \d{3}-\d{2}-\d{4} ", r"\d{14}", r"x\d{4}x"].map(|r| Regex::new(r, "").unwrap());
        let mut cache = MatcherCache::new(MpmAlgo::Hyperscan);
        let mut builder = PrefilterBuilder::default();
        regexes.iter().zip(0..).for_each(|(r, rule)| builder.add_regex(r, rule));
        let mut p = builder.finish(&mut cache);
        let mut scratch = Scratch::default();
        cache.finish().unwrap().0.iter().for_each(|m: &Matcher| scratch.prepare(m).unwrap());
        prop_assert_eq!(p.regexes.iter().map(|r| r.stretch.is_some()).collect::<Vec<_>>(), [true, false]);
        let [in_numbers, in_all] = [false, true].map(|whole| {
            if whole {
                p.regexes.iter_mut().for_each(|r| r.stretch = None);
            }
            let mut out = Vec::new();
            p.scan(data.as_bytes(), &mut scratch, &mut out);
            scratch.forget();
            out.sort_unstable();
            out.dedup();
            out
        });
        prop_assert_eq!(in_numbers, in_all);
    }
}

/// Bytes of literals and data that meet often: letters in both cases, rows, bytes that are not ASCII.
fn some_bytes(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(b'a'), 1 => Just(b'A'), 2 => Just(b'b'), 1 => Just(b'B'), 1 => Just(0u8), 1 => Just(0xc1u8)];
    proptest::collection::vec(byte, n)
}

proptest! {
    /// Whatever is in a window of streamed data was found in it or in a window before.
    #[test]
    fn windows_miss_nothing(
        literals in proptest::collection::vec(
            (some_bytes(2..20), any::<bool>(), prop_oneof![Just(0u32), 0..40u32], proptest::option::of(0..60u32)), 1..30),
        data in some_bytes(1..900),
        keep in prop_oneof![Just(0usize), 0..400usize],
        steps in proptest::collection::vec(prop_oneof![1..8usize, 1..300usize], 1..30),
    ) {
        let literals: Vec<Literal> = literals
            .into_iter()
            .map(|(bytes, nocase, offset, more)| {
                let end = more.map(|m| offset + bytes.len() as u32 + m);
                literal(&bytes, nocase, offset, end)
            })
            .collect();
        for algo in algorithms() {
            let mut cache = MatcherCache::new(algo);
            let p = Prefilter::new(literals.iter().zip(0..).collect(), &mut cache);
            let (mut scratch, mut found) = (Scratch::default(), Vec::new());
            cache.finish().unwrap().0.iter().for_each(|m: &Matcher| scratch.prepare(m).unwrap());
            let (mut inspected, mut total) = (0usize, 0usize);
            for step in &steps {
                total = (total + step).min(data.len());
                let from = inspected.saturating_sub(keep);
                let window = &data[from..total];
                p.scan_behind(window, inspected - from, &mut scratch, &mut found);
                inspected = total;
                for (l, n) in literals.iter().zip(0u32..) {
                    let is_in = (0..=window.len()).any(|at| l.is_at(window, at));
                    prop_assert!(!is_in || found.contains(&n), "{:?}: {:?} was not found in {}..{}", algo, l, from, total);
                }
            }
        }
    }

    #[test]
    fn as_a_naive_search(
        literals in proptest::collection::vec(
            (proptest::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'A'), 1 => Just(b'b'), 1 => Just(0u8), 1 => Just(0x20u8), 1 => Just(0xc1u8)], 1..14),
             any::<bool>(), prop_oneof![Just(0u32), 0..6u32], proptest::option::of(0..20u32)), 1..30),
        data in proptest::collection::vec(
            prop_oneof![Just(b'a'), Just(b'A'), Just(b'B'), Just(b'b'), Just(0u8), Just(0x20u8), Just(0xe1u8), Just(0xc1u8)], 0..60),
        far in prop_oneof![Just(0usize), Just(300)],
    ) {
        let literals: Vec<Literal> = literals
            .into_iter()
            .map(|(bytes, nocase, offset, more)| {
                let end = more.map(|m| offset + bytes.len() as u32 + m);
                literal(&bytes, nocase, offset, end)
            })
            // Patterns of one byte are not searched.
            .filter(|l| l.pattern.bytes.len() > 1)
            .collect();
        // Long buffers are searched in another way.
        let data = [data, vec![b'.'; far]].concat();
        let is_in = |l: &Literal| (0..=data.len()).any(|at| l.is_at(&data, at));
        for algo in algorithms() {
            let found = candidates(&literals, &data, algo);
            for (l, n) in literals.iter().zip(0u32..) {
                // For common literals, the first bytes at any offset are enough.
                let mut anywhere = Literal { offset: 0, end: None, ..l.clone() };
                anywhere.pattern.bytes.truncate(8);
                let told = if l.is_common() { &anywhere } else { l };
                match found.contains(&n) {
                    true => prop_assert!(is_in(told), "{:?}: {:?} is not there", algo, l),
                    false => prop_assert!(!is_in(l), "{:?}: {:?} was not found", algo, l),
                }
            }
        }
    }
}

/// Checks look at the new part of stream data by itself, so an expression may match at its beginning.
#[test]
fn an_anchor_holds_at_the_beginning_of_new_data() {
    if !MpmAlgo::has_hyperscan() {
        return;
    }
    let regexes = ["^POST", r"\bPOST", "[^P]POST"].map(|r| Regex::new(r, "").unwrap());
    assert_eq!(regexes.each_ref().map(Regex::is_anchored), [true, true, false]);
    assert!(Regex::new(r"\[^POST", "").unwrap().is_anchored());
    let mut cache = MatcherCache::new(MpmAlgo::Hyperscan);
    let mut builder = PrefilterBuilder::default();
    regexes.iter().zip(0..).for_each(|(r, rule)| builder.add_regex(r, rule));
    let p = builder.finish(&mut cache);
    let mut scratch = Scratch::default();
    cache.finish().unwrap().0.iter().for_each(|m: &Matcher| scratch.prepare(m).unwrap());
    let mut found = |data: &[u8], seen| {
        let mut out = Vec::new();
        p.scan_from(data, seen, &mut scratch, &mut out);
        out.sort_unstable();
        out.dedup();
        out
    };
    assert_eq!(found(b"GET xPOST", 0), [2]);
    assert_eq!(found(b"GET xPOST", 5), [0, 1, 2]);
    assert_eq!(found(b"POST", 0), [0, 1]);
}
