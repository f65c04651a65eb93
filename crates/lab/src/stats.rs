//! Statistics for reports: medians, spreads, and ratios of paired runs with confidence intervals.
//!
//! Runs of an engine are few and their distribution has a tail, so nothing here takes a mean. Intervals come from the
//! bootstrap (percentiles of resampled medians), with a fixed seed: the same runs give the same report.

/// A sorted copy without NaN.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The quantile `q` (0 to 1), with linear interpolation (type 7, as in R and NumPy); NaN without values.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    of_sorted(&sorted(values), q)
}

fn of_sorted(values: &[f64], q: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    values[low] + (values[high] - values[low]) * (at - low as f64)
}

/// The median; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A summary of repeated runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Number of values.
    pub(crate) count: usize,
    /// Their median.
    pub(crate) median: f64,
    /// The minimum.
    pub(crate) least: f64,
    /// The maximum.
    pub(crate) most: f64,
    /// The lower quartile.
    pub(crate) lower: f64,
    /// The upper quartile.
    pub(crate) upper: f64,
}

impl Summary {
    /// `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let values = sorted(values);
        Some(Summary {
            count: values.len(),
            median: of_sorted(&values, 0.5),
            least: *values.first()?,
            most: *values.last()?,
            lower: of_sorted(&values, 0.25),
            upper: of_sorted(&values, 0.75),
        })
    }
}

/// A value and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// The value itself.
    pub(crate) value: f64,
    /// The lower end; NaN if there are too few runs for an interval.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
    /// Number of runs, or pairs of runs.
    pub(crate) count: usize,
}

impl Interval {
    /// Whether the interval excludes `value`.
    #[cfg(test)]
    pub(crate) fn excludes(&self, value: f64) -> bool {
        self.low > value || self.high < value
    }
}

impl Interval {
    /// Whether a ratio differs from 1 by at least a thousandth; smaller differences are not reported.
    pub(crate) fn differs(&self) -> bool {
        self.low >= 1.0005 || self.high <= 0.9995
    }
}

/// Fewest runs for an interval.
pub(crate) const FEWEST: usize = 3;
/// Resamples for an interval.
pub(crate) const DRAWS: u32 = 10_000;

/// The median of `values`, and its 95 % bootstrap interval.
///
/// With few runs the interval is at most their range, which contains the true median with a probability of only 1 − 2^(1
/// − n): 75 % for three, 94 % for five.
pub(crate) fn median_interval(values: &[f64]) -> Option<Interval> {
    interval(values, DRAWS)
}

fn interval(values: &[f64], draws: u32) -> Option<Interval> {
    let values = sorted(values);
    if values.is_empty() {
        return None;
    }
    let value = of_sorted(&values, 0.5);
    if values.len() < FEWEST {
        return Some(Interval { value, low: f64::NAN, high: f64::NAN, count: values.len() });
    }
    let mut random = Random(0x5eed ^ values.len() as u64);
    let mut draw = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..draws)
        .map(|_| {
            draw.fill_with(|| values[random.below(values.len())]);
            draw.sort_by(f64::total_cmp);
            of_sorted(&draw, 0.5)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Interval { value, low: of_sorted(&medians, 0.025), high: of_sorted(&medians, 0.975), count: values.len() })
}

/// The ratio of `a` to `b`, paired by run. The runs of a pair follow each other, so that a machine's drift affects both
/// alike. Returns the median ratio and its interval; ignores pairs with a missing value or with 0 as the second one.
pub(crate) fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let usable = pairs.iter().filter(|(a, b)| a.is_finite() && b.is_finite() && *b != 0.0);
    let ratios: Vec<f64> = usable.map(|(a, b)| a / b).collect();
    median_interval(&ratios)
}

/// SplitMix64: the same seed gives the same numbers everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is above 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// A number from 0 to 1.
    #[cfg(test)]
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_numpy_takes_them() {
        // numpy.quantile([1, 2, 4, 8, 16], …)
        let values = [16.0, 1.0, 8.0, 2.0, 4.0];
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.25), 2.0);
        assert_eq!(quantile(&values, 0.5), 4.0);
        assert_eq!(quantile(&values, 0.9), 12.8);
        assert_eq!(quantile(&values, 1.0), 16.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), 3.0);
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[f64::NAN, 7.0]), 7.0);
    }

    #[test]
    fn summary() {
        let summary = Summary::of(&[10.0, 12.0, 11.0, 9.0]).unwrap();
        assert_eq!((summary.count, summary.median, summary.least, summary.most), (4, 10.5, 9.0, 12.0));
        assert_eq!((summary.lower, summary.upper), (9.75, 11.25));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn an_interval_of_the_median_has_the_known_width() {
        // The median of a resample of 1..=9 is at most k if at least 5 of its 9 draws are. The probability is 0.1 % for
        // k = 1 and 3.0 % for k = 2, so the 2.5 % quantile is 2, and by symmetry the other is 8.
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let interval = median_interval(&values).unwrap();
        assert_eq!((interval.value, interval.low, interval.high, interval.count), (5.0, 2.0, 8.0, 9));
        assert_eq!(median_interval(&values), median_interval(&values));
        let two = median_interval(&[1.0, 2.0]).unwrap();
        assert!(two.low.is_nan() && two.value == 1.5);
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut random = Random(7);
        let mut held = 0;
        for _ in 0..100 {
            // Skewed: squares of random numbers from 0 to 1. The median is 0.25.
            let values: Vec<f64> = (0..25).map(|_| random.share().powi(2)).collect();
            held += u32::from(!interval(&values, 300).unwrap().excludes(0.25));
        }
        assert!((86..=100).contains(&held), "{held} of 100");
    }

    #[test]
    fn a_drift_that_touches_both_leaves_the_ratio() {
        let pairs: Vec<(f64, f64)> = (1..8).map(|drift| (3.0 * f64::from(drift), 2.0 * f64::from(drift))).collect();
        let ratio = paired_ratio(&pairs).unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high, ratio.count), (1.5, 1.5, 1.5, 7));
        assert!(ratio.excludes(1.0) && ratio.differs());
        let same = paired_ratio(&[(1.0001, 1.0), (1.0002, 1.0), (1.4, 1.0)]).unwrap();
        assert!(same.excludes(1.0) && !same.differs(), "{same:?}");
        assert_eq!(paired_ratio(&[(1.0, 0.0), (f64::NAN, 2.0)]), None);
    }

    #[test]
    fn chance_is_the_known_one() {
        // The first numbers of SplitMix64 from seed 1234567.
        let mut random = Random(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
