//! The report of a run, as a table and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::port::{Interface, Method};
use super::work::Stats;
use crate::traffic::units::{self, Rate};

/// Transmit counters of an interface: packets, bytes, dropped, errors.
pub(super) fn counters(name: &str) -> Option<[u64; 4]> {
    let text = fs::read_to_string("/proc/self/net/dev").ok()?;
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let n: Vec<u64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    Some([*n.get(9)?, *n.get(8)?, *n.get(11)?, *n.get(10)?])
}

/// Reads the interfaces' counters until they include all packets handed over, for at most 300 ms: hardware counts a packet only
/// when it has sent it.
pub(super) fn settled(interfaces: &[Interface], before: &[Option<[u64; 4]>], stats: &[Stats]) -> Vec<Option<[u64; 4]>> {
    let began = Instant::now();
    loop {
        let after: Vec<_> = interfaces.iter().map(|i| counters(&i.name)).collect();
        let all = before.iter().zip(&after).enumerate().all(|(k, (before, after))| {
            let handed: u64 = stats.iter().filter_map(|s| s.by_port.get(k)).sum();
            before.zip(*after).is_none_or(|(b, a)| a[0].wrapping_sub(b[0]) >= handed)
        });
        if all || began.elapsed() > Duration::from_millis(300) {
            return after;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(super) struct Report<'a> {
    pub(super) sum: &'a Stats,
    pub(super) interfaces: &'a [Interface],
    pub(super) counters: Vec<Option<([u64; 4], [u64; 4])>>,
    pub(super) pace: Pace,
    pub(super) methods: &'a [Method],
    pub(super) threads: usize,
    pub(super) copies: u32,
    pub(super) interrupted: bool,
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Report<'_> {
    fn method(&self) -> String {
        let mut names: Vec<&str> = self.methods.iter().map(|m| m.name()).collect();
        names.dedup();
        names.join(" and ")
    }

    fn seconds(&self) -> f64 {
        (self.sum.nanoseconds as f64 / 1e9).max(1e-9)
    }

    /// A message if the requested rate was not reached.
    pub(super) fn missed(&self) -> Option<String> {
        let Pace::Rate(rate) = self.pace else { return None };
        let (asked, got, unit) = match rate {
            Rate::Bits(b) => (b, self.sum.bytes as f64 * 8.0 / self.seconds(), "bit/s"),
            Rate::Packets(p) => (p, self.sum.packets as f64 / self.seconds(), "packets/s"),
        };
        (got < asked * 0.98 && self.sum.packets > 100 && !self.interrupted).then(|| {
            format!(
                "the rate was not reached: {}{unit} asked, {}{unit} sent; the sender was up to {:.1} ms behind. Ask for less, \
                 or use --flat-out to see what this machine can send",
                units::short(asked),
                units::short(got),
                self.sum.late.max() as f64 / 1e6
            )
        })
    }

    /// A message if the kernel counts fewer packets than it took.
    fn lost(&self) -> Option<String> {
        let all = self.interfaces.iter().zip(&self.counters).zip(self.sum.by_port);
        let short = all.filter_map(|((i, c), handed)| {
            let (before, after) = (*c)?;
            let sent = after[0].wrapping_sub(before[0]);
            (sent < handed).then(|| format!("{handed} packets were handed over for '{}', and {sent} were sent", i.name))
        });
        short.reduce(|a, b| format!("{a}; {b}"))
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let s = self.sum;
        let pace = match self.pace {
            Pace::Flat => serde_json::json!({"mode": "flat-out"}),
            Pace::Rate(Rate::Bits(b)) => serde_json::json!({"mode": "rate", "bits_per_second": b}),
            Pace::Rate(Rate::Packets(p)) => serde_json::json!({"mode": "rate", "packets_per_second": p}),
            Pace::Times(m) => serde_json::json!({"mode": "multiplier", "multiplier": m}),
        };
        let late = (s.late.count() > 0).then(|| {
            let mut map = serde_json::Map::new();
            for (name, share) in QUANTILES {
                map.insert(name.into(), s.late.quantile(share).into());
            }
            map.insert("max".into(), s.late.max().into());
            map.insert("packets".into(), s.late.count().into());
            map
        });
        let interfaces: Vec<_> = self
            .interfaces
            .iter()
            .zip(&self.counters)
            .enumerate()
            .map(|(n, (i, c))| {
                let delta = |k: usize| c.map(|(b, a)| a[k].wrapping_sub(b[k]));
                serde_json::json!({
                    "name": i.name, "packets": s.by_port.get(n),
                    "kernel_tx_packets": delta(0), "kernel_tx_bytes": delta(1),
                    "kernel_tx_dropped": delta(2), "kernel_tx_errors": delta(3),
                })
            })
            .collect();
        serde_json::json!({
            "packets": s.packets, "bytes": s.bytes, "seconds": self.seconds(),
            "packets_per_second": s.packets as f64 / self.seconds(),
            "bits_per_second": s.bytes as f64 * 8.0 / self.seconds(),
            "pace": pace, "methods": self.methods.iter().map(|m| m.name()).collect::<Vec<_>>(),
            "threads": self.threads, "copies": self.copies, "loops": s.loops,
            "refused": s.counts.refused, "full": s.counts.full, "calls": s.counts.calls,
            "trimmed": s.fitted.trimmed, "too_long": s.fitted.too_long, "foreign": s.fitted.foreign,
            "pacing_error_ns": late, "interfaces": interfaces,
            "interrupted": self.interrupted, "error": s.error, "rate_reached": self.missed().is_none(),
        })
    }

    pub(super) fn table(&self) -> String {
        let s = self.sum;
        let mut t = String::new();
        let _ = writeln!(
            t,
            "{} packets, {}B in {:.3} s: {}packets/s, {}bit/s ({}, {} thread{}, {} cop{})",
            s.packets,
            units::short(s.bytes as f64),
            self.seconds(),
            units::short(s.packets as f64 / self.seconds()),
            units::short(s.bytes as f64 * 8.0 / self.seconds()),
            self.method(),
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.copies,
            if self.copies == 1 { "y" } else { "ies" },
        );
        for ((n, i), c) in self.interfaces.iter().enumerate().zip(&self.counters) {
            let _ = write!(t, "  {}: {} packets handed over", i.name, s.by_port.get(n).copied().unwrap_or(0));
            if let Some((b, a)) = c {
                let d = |k: usize| a[k].wrapping_sub(b[k]);
                let _ = write!(t, "; the kernel counts {} sent, {} dropped, {} errors", d(0), d(2), d(3));
            }
            t.push('\n');
        }
        let mut told = Vec::new();
        for (n, what) in [
            (s.counts.refused, "refused by the kernel (ENOBUFS) and offered again"),
            (s.fitted.trimmed, "cut behind their IP packet to fit the interface (padding, frame check sequence)"),
            (s.fitted.too_long, "left out: longer than the interface takes"),
            (s.fitted.foreign, "left out: neither Ethernet nor IP"),
        ] {
            if n > 0 {
                told.push(format!("  {n} {what}\n"));
            }
        }
        t.extend(told);
        if let Some(lost) = self.lost() {
            let _ = writeln!(t, "  {lost}: the interface lost the others, or counts late");
        }
        if s.late.count() > 0 {
            let _ = write!(t, "  pacing error, microseconds:");
            for (name, share) in QUANTILES {
                let _ = write!(t, "  {name} {:.1}", s.late.quantile(share) as f64 / 1e3);
            }
            let _ = writeln!(t, "  max {:.1}", s.late.max() as f64 / 1e3);
        }
        if self.interrupted {
            t.push_str("  interrupted\n");
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_counters_are_read() {
        // Every namespace has the loopback interface.
        assert!(counters("lo").is_some());
        assert!(counters("nosuch0").is_none());
        assert!(Interface::find("nosuch0").unwrap_err().contains("there is no interface 'nosuch0'"));
    }
}
