//! Adaptive busy polling: a worker polls a busy link without sleeping, and sleeps on an idle one.

use std::time::Duration;

/// How long a thread polls for packets before it sleeps (`busy-poll`): twice as long as last time if that found packets, half
/// as long if not. An idle link therefore costs almost no CPU time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    most: u32,
    now: u32,
    /// Number of waits since then without polling.
    skipped: u32,
}

impl Patience {
    /// If the time falls below `LEAST` microseconds, only every `AGAIN`th wait polls, for the longest time.
    const LEAST: u32 = 4;
    const AGAIN: u32 = 16;

    /// Polls for at most this many microseconds; 0 turns polling off.
    pub(super) fn of(most: u32) -> Patience {
        Patience { most, now: most, skipped: 0 }
    }

    /// How long to poll now; `None` for not at all.
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

    /// Records whether polling found packets.
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
        // If packets arrive, the time soon reaches its maximum.
        for _ in 0..Patience::AGAIN + 8 {
            if p.time().is_some() {
                p.was_worth_it(true);
            }
        }
        assert_eq!(p.time(), Some(Duration::from_micros(50)));
        assert_eq!(Patience::of(0).time(), None);
    }
}
