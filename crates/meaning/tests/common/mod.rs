//! Assertions for the tests of judgements.

use margay_meaning::Judge;
use margay_meaning::decode::canonical;

/// Whether a judgement holds for a value in canonical form.
fn judged(judge: Judge, value: &str) -> bool {
    let mut out = Vec::new();
    canonical(value.as_bytes(), &mut out);
    judge.holds(&out)
}

/// Asserts that a judgement holds for all values, or for none.
pub(crate) fn all(judge: Judge, want: bool, values: &[&str]) {
    for value in values {
        assert_eq!(judged(judge, value), want, "{} of {value:?}", judge.name());
    }
}
