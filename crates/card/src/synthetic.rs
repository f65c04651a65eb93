//! Generates work, for tests and the simulator's benchmark; `record` records the work of real packets.

use crate::trace::{TCP, Trace, Work};

/// A 64-bit generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Packets of `flows` flows, with a mean of about 778 bytes. Every fourth packet with payload ends a flush.
pub fn trace(packets: usize, flows: usize, seed: u64) -> Trace {
    let mut random = Random(seed);
    let mut trace = Trace { flows: (0..flows).map(|_| random.below(1 << 32) as u32).collect(), ..Trace::default() };
    let mut held = vec![0u32; flows];
    for _ in 0..packets {
        let flow = random.below(flows as u64) as usize;
        let payload = if random.below(2) == 0 { 0 } else { 1380 + random.below(80) as u16 };
        let mut work = Work { flow: flow as u32, bytes: 66 + payload, payload, flags: TCP, ..Work::default() };
        work.first = trace.reports.len() as u32;
        held[flow] += u32::from(payload);
        if payload > 0 && held[flow] >= 2560 {
            work.flush = std::mem::take(&mut held[flow]);
            work.group = random.below(2) as u16;
            work.all = work.group + random.below(2) as u16;
            for _ in 0..work.all {
                trace.reports.push((random.below(300) as u32) << 16 | (20 + random.below(100) as u32));
            }
            if random.below(3) == 0 {
                (work.uris, work.uri_bytes) = (1, 20 + random.below(60) as u16);
            }
            work.alerts = u8::from(random.below(50) == 0);
        }
        trace.packets.push(work);
    }
    trace
}
