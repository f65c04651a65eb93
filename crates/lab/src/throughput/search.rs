//! Finds the highest rate with at most a given loss, by bisection.

use crate::problem::Outcome;
use crate::stats::{self, Interval};

/// The range and precision of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    /// The first rate in packets a second. It is halved until the engine takes it.
    pub(crate) from: f64,
    /// The highest rate of interest.
    pub(crate) to: f64,
    /// The search ends when the lowest lost rate is at most this share above the highest taken one.
    pub(crate) close: f64,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The engine took it with no more than the loss allowed.
    Taken,
    /// It lost more.
    Lost,
    /// The sender missed the rate, so the trial says nothing about the engine.
    Unreached,
}

/// The limiting factor of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The engine lost more than allowed above it.
    Engine,
    /// The sender reached no higher rate, so the engine's bound may be higher.
    Sender,
    /// The highest rate of interest was taken, so the engine's bound may be higher.
    Asked,
    /// Not even a thousandth of the first rate was taken.
    Nothing,
}

/// The result of one search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// The highest rate taken; 0 if none was.
    pub(crate) rate: f64,
    pub(crate) limit: Limit,
}

/// Makes a trial at a rate. The second argument is the expected number of further trials.
pub(crate) type TryAt<'a> = dyn FnMut(f64, u32) -> Outcome<Verdict> + 'a;

/// How often an interval must be halved until its end is at most the share `close` above its start.
fn halvings(taken: f64, lost: f64, close: f64) -> u32 {
    ((lost / taken).ln() / (1.0 + close).ln()).log2().ceil().max(0.0) as u32
}

/// Searches once. It doubles the rate until the engine loses packets, then bisects the interval by the ratio of rates,
/// so that all trials are equally informative.
///
/// # Errors
/// Errors of `trial`.
pub(crate) fn search(range: Range, trial: &mut TryAt<'_>) -> Outcome<Found> {
    let mut rate = range.from.min(range.to);
    let (mut taken, mut lost): (Option<f64>, Option<f64>) = (None, None);
    let mut limit = Limit::Engine;
    // The interval: a rate that was taken and one that was not.
    while taken.is_none() || lost.is_none() {
        match trial(rate, 1 + halvings(1.0, 2.0, range.close))? {
            Verdict::Taken => {
                taken = Some(rate);
                if lost.is_none() && rate >= range.to {
                    return Ok(Found { rate, limit: Limit::Asked });
                }
                rate = (rate * 2.0).min(range.to);
            }
            verdict => {
                lost = Some(rate);
                limit = if verdict == Verdict::Unreached { Limit::Sender } else { Limit::Engine };
                rate /= 2.0;
                if taken.is_none() && rate < range.from / 1000.0 {
                    return Ok(Found { rate: 0.0, limit: Limit::Nothing });
                }
            }
        }
    }
    let (Some(mut taken), Some(mut lost)) = (taken, lost) else {
        return Ok(Found { rate: 0.0, limit: Limit::Nothing });
    };
    while lost > taken * (1.0 + range.close) {
        let rate = (taken * lost).sqrt();
        match trial(rate, halvings(taken, lost, range.close).saturating_sub(1))? {
            Verdict::Taken => taken = rate,
            verdict => {
                lost = rate;
                limit = if verdict == Verdict::Unreached { Limit::Sender } else { Limit::Engine };
            }
        }
    }
    Ok(Found { rate: taken, limit })
}

/// The result of several searches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// The result of each search.
    pub(crate) found: Vec<Found>,
    /// Their median with its confidence interval.
    pub(crate) rate: Interval,
}

impl Bound {
    /// Summarises the searches; `None` without any.
    pub(crate) fn of(found: Vec<Found>) -> Option<Bound> {
        let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
        let rate = stats::median_interval(&rates)?;
        Some(Bound { found, rate })
    }

    /// The limiting factor in most searches.
    pub(crate) fn limit(&self) -> Limit {
        let count = |limit: Limit| self.found.iter().filter(|found| found.limit == limit).count();
        let all = [Limit::Engine, Limit::Sender, Limit::Asked, Limit::Nothing];
        all.into_iter().max_by_key(|limit| count(*limit)).unwrap_or(Limit::Engine)
    }
}

impl Limit {
    /// A sentence for the user.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Limit::Engine => "above it more is lost than allowed",
            Limit::Sender => "the sender reached no more: the engine's own bound may be higher",
            Limit::Asked => "it is the highest rate that was asked for: the engine's own bound may be higher",
            Limit::Nothing => "more was lost than allowed at every rate that was tried",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { from: 1000.0, to: 1e6, close: 0.01 };

    fn with(range: Range, verdict: impl Fn(f64) -> Verdict) -> (Found, u32) {
        let mut trials = 0;
        let mut announced = u32::MAX;
        let found = search(range, &mut |rate, more| {
            trials += 1;
            // Once there is an interval, the announced number is never too small.
            announced = announced.saturating_sub(1).min(more);
            Ok(verdict(rate))
        });
        let found = found.unwrap();
        assert!(found.limit != Limit::Engine || announced == 0, "{announced} more announced");
        (found, trials)
    }

    #[test]
    fn finds_a_bound_above_and_below_where_it_begins() {
        for capacity in [37.0, 999.0, 1000.0, 54_321.0, 900_000.0] {
            let (found, trials) = with(RANGE, |rate| if rate <= capacity { Verdict::Taken } else { Verdict::Lost });
            assert!(found.rate <= capacity && found.rate * 1.0101 > capacity, "{found:?} of {capacity}");
            assert_eq!(found.limit, Limit::Engine);
            assert!(trials < 30, "{trials}");
        }
    }

    #[test]
    fn says_when_the_bound_is_not_the_engines() {
        let (found, _) = with(RANGE, |_| Verdict::Taken);
        assert_eq!(found, Found { rate: 1e6, limit: Limit::Asked });
        let (found, _) = with(RANGE, |_| Verdict::Lost);
        assert_eq!(found, Found { rate: 0.0, limit: Limit::Nothing });
        let (found, _) = with(RANGE, |rate| if rate < 70_000.0 { Verdict::Taken } else { Verdict::Unreached });
        assert!(found.limit == Limit::Sender && found.rate > 69_000.0 && found.rate < 70_000.0, "{found:?}");
    }

    #[test]
    fn a_bound_is_the_median_of_searches() {
        let found = |rate| Found { rate, limit: Limit::Engine };
        let bound = Bound::of(vec![found(100.0), found(104.0), found(99.0)]).unwrap();
        assert_eq!((bound.rate.value, bound.rate.count, bound.limit()), (100.0, 3, Limit::Engine));
        assert!(bound.rate.low >= 99.0 && bound.rate.high <= 104.0);
        assert_eq!(Bound::of(Vec::new()), None);
    }
}
