//! The flow table's clock, which never goes back.

use margay_packet::Time;

/// A larger step back (microseconds) means that another capture began; a smaller one means packets out of order.
pub const JUMP_BACK: i64 = 3_600_000_000;

/// Follows packet times. After a small step back the clock stands still. After a large one (another capture file) it
/// continues from where it was, so that flows of the new capture age correctly.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Elapsed packet time in microseconds.
    now: i64,
    latest: Option<Time>,
}

impl Clock {
    pub(crate) const fn now(&self) -> i64 {
        self.now
    }
    /// The latest packet's time, or up to [`JUMP_BACK`] later.
    pub(crate) fn latest(&self) -> Time {
        self.latest.unwrap_or_default()
    }
    /// Advances to a packet at time `t`.
    pub(crate) fn advance(&mut self, t: Time) -> i64 {
        match self.latest {
            None => self.latest = Some(t),
            Some(latest) => {
                let step = t.micros_since(latest);
                if step > 0 {
                    self.now = self.now.saturating_add(step);
                    self.latest = Some(t);
                } else if step < -JUMP_BACK {
                    self.latest = Some(t);
                }
            }
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_back_do_not_stop_it() {
        let mut c = Clock::default();
        c.advance(Time::new(10_000, 0));
        c.advance(Time::new(10_010, 0));
        c.advance(Time::new(10_009, 0));
        assert_eq!(c.now(), 10_000_000);
        c.advance(Time::new(5, 0));
        assert_eq!(c.now(), 10_000_000);
        c.advance(Time::new(8, 0));
        assert_eq!(c.now(), 13_000_000);
        c.advance(Time(i64::MAX));
        c.advance(Time(i64::MIN));
        c.advance(Time(i64::MAX));
        assert_eq!(c.now(), i64::MAX);
    }
}
