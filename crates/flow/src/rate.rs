//! Detects flows with much traffic in a short time: elephant flows.

use margay_packet::Time;

/// The definition of an elephant flow (`flow.rate-tracking`): bytes in one direction within seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateConfig {
    /// Bytes on the wire (`bytes`), at least 1.
    pub bytes: u64,
    /// Seconds (`interval`), at least 1. Intervals longer than [`SLOTS`] are measured in steps of several seconds.
    pub interval: u32,
}

/// Most steps in an interval.
pub const SLOTS: u32 = 64;

impl RateConfig {
    /// The number of steps, and the seconds of each.
    const fn steps(&self) -> (u32, u32) {
        let interval = if self.interval == 0 { 1 } else { self.interval };
        let width = interval.div_ceil(SLOTS);
        (interval.div_ceil(width), width)
    }

    /// Additional memory of a flow with rate tracking, in bytes.
    pub(crate) const fn size(&self) -> u64 {
        size_of::<Rate>() as u64 + self.steps().0 as u64 * size_of::<[u64; 2]>() as u64
    }
}

/// The recent traffic of a flow.
#[derive(Debug, Clone)]
pub struct Rate {
    /// Bytes of each step by direction, as a ring.
    steps: Box<[[u64; 2]]>,
    /// The sum of the steps.
    sum: [u64; 2],
    /// The latest step, in steps since the epoch.
    latest: i64,
}

impl Rate {
    pub(crate) fn new(config: &RateConfig, time: Time) -> Rate {
        let (steps, width) = config.steps();
        Rate {
            steps: vec![[0; 2]; steps as usize].into(),
            sum: [0; 2],
            latest: time.secs().div_euclid(i64::from(width)),
        }
    }

    /// Adds `bytes` to the direction with index `dir`; returns whether the flow now is an elephant.
    pub(crate) fn add(&mut self, config: &RateConfig, time: Time, dir: usize, bytes: u64) -> bool {
        let now = time.secs().div_euclid(i64::from(config.steps().1));
        let len = self.steps.len() as i64;
        // Steps between the latest and this one had no traffic. A time that goes back counts towards the latest step.
        for step in self.latest.max(now.saturating_sub(len)).saturating_add(1)..=now {
            if let Some(old) = self.steps.get_mut(step.rem_euclid(len) as usize) {
                for (sum, old) in self.sum.iter_mut().zip(std::mem::take(old)) {
                    *sum -= old;
                }
            }
        }
        self.latest = self.latest.max(now);
        if let Some(step) = self.steps.get_mut(self.latest.rem_euclid(len) as usize) {
            step[dir] += bytes;
            self.sum[dir] += bytes;
        }
        self.sum[dir] >= config.bytes
    }

    pub(crate) fn turn_round(&mut self) {
        self.sum.swap(0, 1);
        for step in &mut self.steps {
            step.swap(0, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_within_the_interval() {
        let config = RateConfig { bytes: 1000, interval: 3 };
        let at = |s| Time::new(1_700_000_000 + s, 0);
        let mut r = Rate::new(&config, at(0));
        let mut add = |s, dir, bytes| r.add(&config, at(s), dir, bytes);
        assert!(!add(0, 0, 500) && !add(2, 0, 499) && !add(2, 1, 900), "999 bytes, and another direction");
        assert!(!add(3, 0, 500), "what came 3 seconds ago counts no more");
        assert!(add(4, 0, 1), "499 + 500 + 1");
        assert!(!add(100, 0, 999) && add(99, 0, 1), "time that goes back is that of the latest packet");
        assert!(!add(i64::from(u32::MAX), 0, 999), "a leap");
        let mut r = Rate::new(&config, at(0));
        r.add(&config, at(0), 0, 999);
        r.turn_round();
        assert!(r.add(&config, at(0), 1, 1) && !r.add(&config, at(0), 0, 1));
    }

    #[test]
    fn long_intervals_have_few_steps() {
        for interval in [0, 1, 63, 64, 65, 100, 3600, u32::MAX] {
            let config = RateConfig { bytes: 1, interval };
            let (steps, width) = config.steps();
            assert!((1..=SLOTS).contains(&steps) && u64::from(steps) * u64::from(width) >= u64::from(interval));
            assert!(Rate::new(&config, Time::new(0, 0)).add(&config, Time::new(5, 0), 0, 1));
        }
    }
}
