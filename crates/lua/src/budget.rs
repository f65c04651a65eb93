//! The resources that one call of a script may use.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::ErrorKind;

/// Steps of pattern matching, or table elements, that cost one instruction: each is about as much work.
pub(crate) const STEPS: u64 = 8;
/// Bytes copied or searched at once that cost one instruction.
pub(crate) const BYTES: u64 = 64;
/// The clock is first read after this many instructions, and then at each hook. Shorter calls never read it.
const CLOCK_FROM: u64 = 10_000;

/// The budget of the current call. Each state has one, used by one thread at a time: a state may move to another thread.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    time: Duration,
    used: AtomicU64,
    made: Instant,
    /// When the clock was first read, in microseconds since `made`, plus 1; 0 before that.
    since: AtomicU64,
    /// The first violation of the call.
    broke: AtomicU8,
}

/// The kinds in `broke`, from 1.
const KINDS: [ErrorKind; 4] = [ErrorKind::Script, ErrorKind::Blocked, ErrorKind::Instructions, ErrorKind::Memory];

impl Budget {
    pub(crate) fn new(limit: u64, time: Duration) -> Self {
        Budget {
            limit,
            time,
            used: AtomicU64::new(0),
            made: Instant::now(),
            since: AtomicU64::new(0),
            broke: AtomicU8::new(0),
        }
    }

    /// Starts a call.
    pub(crate) fn start(&self) {
        self.used.store(0, Relaxed);
        self.since.store(0, Relaxed);
        self.broke.store(0, Relaxed);
    }

    /// Instructions between two checks of the budget.
    pub(crate) fn interval(&self) -> u32 {
        (self.limit / 100).clamp(1, 1000) as u32
    }

    /// Records a violation.
    pub(crate) fn note(&self, kind: ErrorKind) {
        if self.broke().is_none() {
            let n = KINDS.iter().position(|k| *k == kind).unwrap_or(0) + 1;
            self.broke.store(n as u8, Relaxed);
        }
    }

    /// The call's violation, if there is one.
    pub(crate) fn broke(&self) -> Option<ErrorKind> {
        usize::from(self.broke.load(Relaxed)).checked_sub(1).and_then(|n| KINDS.get(n)).copied()
    }

    /// Whether the instructions or the time are used up. Then the error must not be caught.
    pub(crate) fn is_over(&self) -> bool {
        self.broke() == Some(ErrorKind::Instructions)
    }

    /// Remaining instructions.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Relaxed))
    }

    /// Uses `n` instructions.
    ///
    /// # Errors
    /// Fewer remain.
    pub(crate) fn spend(&self, n: u64) -> mlua::Result<()> {
        let used = self.used.load(Relaxed).saturating_add(n);
        self.used.store(used, Relaxed);
        if used > self.limit {
            self.note(ErrorKind::Instructions);
            return Err(mlua::Error::runtime("instruction limit exceeded"));
        }
        if used >= CLOCK_FROM {
            let now = u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX - 1).saturating_add(1);
            match self.since.load(Relaxed) {
                0 => self.since.store(now, Relaxed),
                since if now.saturating_sub(since) > self.time.as_micros() as u64 => {
                    self.note(ErrorKind::Instructions);
                    return Err(mlua::Error::runtime("the script runs for too long"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_used_up() {
        let b = Budget::new(1000, Duration::from_secs(9));
        assert_eq!(b.interval(), 10);
        assert!(b.spend(1000).is_ok() && b.spend(1).is_err());
        assert!(b.is_over());
        b.start();
        assert_eq!((b.left(), b.broke()), (1000, None));
        assert!(b.spend(u64::MAX).is_err() && b.spend(u64::MAX).is_err());
    }

    #[test]
    fn has_a_net_of_time() {
        let b = Budget::new(u64::MAX, Duration::ZERO);
        assert!(b.spend(CLOCK_FROM - 1).is_ok());
        assert!((0..1000).any(|_| b.spend(1).is_err()));
    }
}
