//! Busy polling that adapts itself: a link that is busy is waited for without sleeping, one that is idle is not.

use std::time::Duration;

/// For how long packets are looked for before the thread sleeps (`busy-poll`): twice as long as the last time where that found
/// some, half as long where it did not. While nothing comes, nothing is burnt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    most: u32,
    now: u32,
    /// How often it was not tried since.
    skipped: u32,
}

impl Patience {
    /// Below so many microseconds it is not tried at all, but every so many waits.
    const LEAST: u32 = 4;
    const AGAIN: u32 = 16;

    /// At most so many microseconds; 0 for none at all.
    pub(super) fn of(most: u32) -> Patience {
        Patience { most, now: most, skipped: 0 }
    }

    /// For how long they are looked for now; `None`: not at all.
    pub(super) fn time(&mut self) -> Option<Duration> {
        if self.most == 0 {
            return None;
        }
        if self.now < Patience::LEAST {
            self.skipped += 1;
            if self.skipped < Patience::AGAIN {
                return None;
            }
            self.now = self.most;
        }
        self.skipped = 0;
        Some(Duration::from_micros(u64::from(self.now)))
    }

    /// Whether that found some.
    pub(super) fn was_worth_it(&mut self, yes: bool) {
        self.now = if yes { self.now.saturating_mul(2).min(self.most) } else { self.now / 2 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_link_is_not_looked_at_for_long() {
        let mut p = Patience::of(50);
        let mut looked = 0;
        for _ in 0..1000 {
            if let Some(time) = p.time() {
                looked += time.as_micros();
                p.was_worth_it(false);
            }
        }
        assert!(looked < 1000 * 10, "{looked} of {} microseconds", 1000 * 50);
        // Where packets come it is soon looked for them as long as may be.
        for _ in 0..Patience::AGAIN + 8 {
            if p.time().is_some() {
                p.was_worth_it(true);
            }
        }
        assert_eq!(p.time(), Some(Duration::from_micros(50)));
        assert_eq!(Patience::of(0).time(), None);
    }
}
