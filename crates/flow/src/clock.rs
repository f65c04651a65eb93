//! Time of the flow table: never goes back.

use margay_packet::Time;

/// A step back of more than this (microseconds) means another capture began, less means packets out of order.
pub const JUMP_BACK: i64 = 3_600_000_000;

/// Follows packet times. Where they step back a little it stands still; where they jump back (another capture file) it
/// goes on from where it was, so that flows of the new capture age as they should.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Microseconds of packet time that have passed.
    now: i64,
    latest: Option<Time>,
}

impl Clock {
    pub(crate) const fn now(&self) -> i64 {
        self.now
    }
    /// Packet time as far as it is known to go on: that of the latest packet, or a little more.
    pub(crate) fn latest(&self) -> Time {
        self.latest.unwrap_or_default()
    }
    /// A packet of time `t` was seen.
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
