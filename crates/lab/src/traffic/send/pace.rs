//! Times at which packets are due, and a histogram of their lateness.

use std::time::{Duration, Instant};

use super::super::units::Rate;

/// The speed of sending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As fast as possible.
    Flat,
    /// Evenly, at a rate of bits or of packets.
    Rate(Rate),
    /// This many times as fast as captured.
    Times(f64),
}

/// Deadlines in nanoseconds since the start.
pub(crate) struct Clock {
    pace: Pace,
    start: Instant,
    /// Packets and bits sent so far.
    packets: f64,
    bits: f64,
    /// Start of this pass through the capture, in nanoseconds since `start`.
    offset: f64,
}

impl Clock {
    pub(crate) fn new(pace: Pace) -> Clock {
        Clock { pace, start: Instant::now(), packets: 0.0, bits: 0.0, offset: 0.0 }
    }

    pub(crate) fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When a packet captured `at` nanoseconds into the capture is due; `None` if packets are not paced.
    pub(crate) fn due(&self, at: u64) -> Option<u64> {
        let ns = match self.pace {
            Pace::Flat => return None,
            Pace::Rate(Rate::Packets(p)) => self.packets / p * 1e9,
            Pace::Rate(Rate::Bits(b)) => self.bits / b * 1e9,
            Pace::Times(m) => self.offset + at as f64 / m,
        };
        Some(ns as u64)
    }

    /// Counts a packet of `len` bytes.
    pub(crate) fn sent(&mut self, len: usize) {
        self.packets += 1.0;
        self.bits += len as f64 * 8.0;
    }

    /// Starts another pass through the capture, which is `length` nanoseconds long.
    pub(crate) fn again(&mut self, length: u64) {
        if let Pace::Times(m) = self.pace {
            self.offset += length as f64 / m;
        }
    }

    /// Waits until `due`, or until `stop` returns true. It sleeps first, then spins on the clock.
    pub(crate) fn wait(&self, due: u64, stop: impl Fn() -> bool) {
        // A sleep on a busy machine may take this much longer than requested.
        const MARGIN: u64 = 120_000;
        loop {
            let now = self.elapsed();
            if now >= due {
                return;
            }
            let left = due - now;
            if left > 2 * MARGIN {
                if stop() {
                    return;
                }
                std::thread::sleep(Duration::from_nanos((left - MARGIN).min(100_000_000)));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Bits of precision below the leading one: a bucket is at most a sixty-fourth wide.
const PRECISION: u32 = 6;

/// Numbers from 0 to 2^40 in buckets that grow with the number.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; ((41 - PRECISION as usize) + 1) << PRECISION], total: 0, max: 0 }
    }
}

impl Histogram {
    fn bucket(n: u64) -> usize {
        let n = n.min((1 << 40) - 1);
        if n < 1 << PRECISION {
            return n as usize;
        }
        let shift = 63 - n.leading_zeros() - PRECISION;
        ((shift as usize + 1) << PRECISION) + ((n >> shift) as usize & ((1 << PRECISION) - 1))
    }

    /// The largest number that the bucket holds.
    fn top(bucket: usize) -> u64 {
        if bucket < 1 << PRECISION {
            return bucket as u64;
        }
        let shift = (bucket >> PRECISION) as u32 - 1;
        let base = (1u64 << PRECISION) + (bucket as u64 & ((1 << PRECISION) - 1));
        ((base + 1) << shift) - 1
    }

    pub(crate) fn add(&mut self, n: u64) {
        if let Some(count) = self.counts.get_mut(Histogram::bucket(n)) {
            *count += 1;
        }
        self.total += 1;
        self.max = self.max.max(n);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The number that this share of all numbers does not exceed, to a bucket's precision.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return Histogram::top(bucket).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut h = Histogram::default();
        for n in 1..=100_000u64 {
            h.add(n * 10);
        }
        for (share, exact) in [(0.5, 500_000.0), (0.9, 900_000.0), (0.99, 990_000.0), (0.999, 999_000.0)] {
            let got = h.quantile(share) as f64;
            assert!((got / exact - 1.0).abs() < 0.02, "{share}: {got}");
        }
        assert_eq!(h.max(), 1_000_000);
        for n in [0, 1, 63, 64, 65, 127, 128, 1 << 39] {
            let b = Histogram::bucket(n);
            assert!(Histogram::top(b) >= n && (b == 0 || Histogram::top(b - 1) < n), "{n}");
        }
        h.add(u64::MAX);
        assert_eq!(h.quantile(1.0), (1 << 40) - 1);
    }

    #[test]
    fn deadlines() {
        let mut c = Clock::new(Pace::Rate(Rate::Packets(1000.0)));
        assert_eq!(c.due(77), Some(0));
        c.sent(100);
        assert_eq!(c.due(77), Some(1_000_000));
        let mut c = Clock::new(Pace::Rate(Rate::Bits(8000.0)));
        c.sent(1000);
        assert_eq!(c.due(0), Some(1_000_000_000));
        let mut c = Clock::new(Pace::Times(2.0));
        assert_eq!(c.due(1000), Some(500));
        c.again(4000);
        assert_eq!(c.due(1000), Some(2500));
        assert_eq!(Clock::new(Pace::Flat).due(5), None);
    }
}
