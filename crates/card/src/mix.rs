//! Recombination of recorded flows.
//!
//! The study's traces are not available. As in the study, captured flows are interleaved. Each copy of a flow has its own number
//! and hash, and keeps the order and the work of its packets. Work that one flow causes for another (counters by address) is as in
//! the recording.

use crate::Bad;
use crate::synthetic::Random;
use crate::trace::{Trace, Work};

/// How packets of concurrently open flows are interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interleaving {
    /// Each packet belongs to a random open flow.
    Spread,
    /// Up to this many packets of a flow are consecutive.
    Bursts(u32),
}

/// The target of a recombination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Number of packets.
    pub packets: usize,
    /// Target mean of the frames' bytes.
    pub mean: f64,
    /// Flows that are open at the same time.
    pub open: usize,
    /// How they are interleaved.
    pub interleaving: Interleaving,
    /// Flows with more packets than this are left out, because one of them would be most of the trace.
    pub longest: usize,
    /// Seed.
    pub seed: u64,
}

/// Recombines flows of `base`. While the mean is below the target, it takes flows whose packets are larger than the target on
/// average; otherwise, the other flows.
///
/// # Errors
/// No flow of `base` has payload and is short enough, or all of them are on the same side of the mean.
pub fn mix(base: &Trace, mix: &Mix) -> Result<Trace, Bad> {
    let mut of_flow = vec![Vec::<u32>::new(); base.flows.len()];
    for (number, p) in base.packets.iter().enumerate() {
        if let Some(list) = of_flow.get_mut(p.flow as usize) {
            list.push(number as u32);
        }
    }
    let work = |number: &u32| base.packets.get(*number as usize).copied().unwrap_or_default();
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for list in &of_flow {
        if list.len() > mix.longest || list.iter().all(|n| work(n).payload == 0) {
            continue;
        }
        let bytes: f64 = list.iter().map(|n| f64::from(work(n).bytes)).sum();
        if bytes / list.len() as f64 > mix.mean { large.push(list) } else { small.push(list) }
    }
    if small.is_empty() || large.is_empty() {
        return Err(Bad(format!(
            "of the recorded flows {} have a mean of more than {} bytes a packet and {} have less: there have to be some of both",
            large.len(),
            mix.mean,
            small.len()
        )));
    }
    let mut random = Random(mix.seed);
    let mut trace = Trace::default();
    // An open flow: its number, its packets, and the index of the next one.
    let mut open: Vec<(u32, &Vec<u32>, usize)> = Vec::with_capacity(mix.open);
    // Totals of all opened flows, whether or not they ended.
    let (mut bytes, mut packets) = (0.0, 0.0);
    let (mut current, mut left) = (0usize, 0u32);
    while trace.packets.len() < mix.packets {
        while open.len() < mix.open.max(1) {
            let pool = if bytes <= mix.mean * packets { &large } else { &small };
            let Some(list) = pool.get(random.below(pool.len() as u64) as usize) else { break };
            bytes += list.iter().map(|n| f64::from(work(n).bytes)).sum::<f64>();
            packets += list.len() as f64;
            open.push((trace.flows.len() as u32, list, 0));
            trace.flows.push(random.below(1 << 32) as u32);
        }
        if left == 0 || current >= open.len() {
            current = random.below(open.len() as u64) as usize;
            left = match mix.interleaving {
                Interleaving::Spread => 1,
                Interleaving::Bursts(most) => 1 + random.below(u64::from(most.max(1))) as u32,
            };
        }
        left -= 1;
        let Some((flow, list, next)) = open.get_mut(current) else { continue };
        let from = list.get(*next).map(work).unwrap_or_default();
        let first = trace.reports.len() as u32;
        let reports = base.reports.get(from.first as usize..from.first as usize + usize::from(from.all));
        trace.reports.extend_from_slice(reports.unwrap_or_default());
        trace.packets.push(Work { flow: *flow, first, ..from });
        *next += 1;
        if *next == list.len() {
            open.swap_remove(current);
            left = 0;
        }
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn base() -> Trace {
        // Short flows on both sides of the mean.
        let mut base = synthetic::trace(4000, 400, 3);
        for p in &mut base.packets {
            if p.flow % 2 == 0 {
                p.bytes = p.bytes.min(300);
                p.payload = p.payload.min(200);
            }
        }
        base
    }

    #[test]
    fn flows_keep_their_packets_and_the_mean_is_met() {
        let base = base();
        for interleaving in [Interleaving::Spread, Interleaving::Bursts(8)] {
            let made =
                mix(&base, &Mix { packets: 30_000, mean: 500.0, open: 50, interleaving, longest: 1000, seed: 1 })
                    .unwrap();
            assert_eq!(made.packets.len(), 30_000);
            Trace::from_bytes(&made.to_bytes(), "mixed").unwrap();
            let mean = made.packets.iter().map(|p| f64::from(p.bytes)).sum::<f64>() / 30_000.0;
            assert!((mean / 500.0 - 1.0).abs() < 0.05, "{mean}");
            // The packets of a flow are the first ones of a flow in the base, in order.
            let key = |p: &Work| (p.bytes, p.payload, p.flush, p.group, p.all, p.uris, p.alerts);
            let of = |t: &Trace, flow: u32| t.packets.iter().filter(|p| p.flow == flow).map(key).collect::<Vec<_>>();
            let known: Vec<_> = (0..base.flows.len() as u32).map(|f| of(&base, f)).collect();
            for flow in (0..made.flows.len() as u32).step_by(97) {
                let own = of(&made, flow);
                assert!(known.iter().any(|k| k.starts_with(&own)), "flow {flow}");
            }
        }
    }

    #[test]
    fn bursts_change_flows_less_often() {
        let base = base();
        let changes = |interleaving| {
            let made =
                mix(&base, &Mix { packets: 10_000, mean: 500.0, open: 50, interleaving, longest: 1000, seed: 1 })
                    .unwrap();
            made.packets.windows(2).filter(|w| w[0].flow != w[1].flow).count()
        };
        assert!(changes(Interleaving::Bursts(8)) * 2 < changes(Interleaving::Spread));
    }

    #[test]
    fn flows_of_one_size_cannot_meet_a_mean() {
        let why = mix(
            &base(),
            &Mix { packets: 10, mean: 9000.0, open: 5, interleaving: Interleaving::Spread, longest: 1000, seed: 1 },
        )
        .unwrap_err()
        .to_string();
        assert!(why.contains("there have to be some of both"), "{why}");
    }
}
