//! The monotonic clock: points in time, and sleeping until one of them.

use std::time::Duration;

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};

use crate::signals;

/// A point of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

/// Longest interval in which a sleeper does not check whether to stop.
const SLICE: Duration = Duration::from_millis(100);

impl Moment {
    /// The current time.
    pub(crate) fn now() -> Moment {
        let now = clock_gettime(ClockId::Monotonic);
        Moment(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// The point `by` later.
    pub(crate) fn plus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Sleeps until this point. The absolute time keeps delays from adding up. Returns at once if the point has passed.
    pub(crate) fn sleep_until(self) {
        let until = Timespec { tv_sec: (self.0 / 1_000_000_000) as i64, tv_nsec: (self.0 % 1_000_000_000) as i64 };
        while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
    }

    /// As [`Moment::sleep_until`], but returns `false` early if a signal or `stop` asks to stop.
    pub(crate) fn sleep_unless(self, stop: impl Fn() -> bool) -> bool {
        loop {
            if signals::stop_asked() || stop() {
                return false;
            }
            let now = Moment::now();
            if now >= self {
                return true;
            }
            self.min(now.plus(SLICE)).sleep_until();
        }
    }
}
