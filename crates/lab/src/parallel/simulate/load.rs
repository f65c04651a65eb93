//! The costs of a trace, packet by packet. The engine measures them (`margay.packet-costs`); tests use synthetic ones.
//!
//! The file begins with the eight bytes `MGYCOST1`. Three 8-byte numbers follow (all numbers are little-endian): the
//! number of packets; the nanoseconds from the first packet to the end of the last flow; and how many of these come
//! after the last packet. Each packet has the hash of its flow (8 bytes) and six 4-byte numbers, nanoseconds except for
//! the last. They are: reading the packet; finding its flow for steering; decoding, tracking and parsing; searching its
//! payload and the stream; checking rules and writing events; and its length in bytes.

use std::collections::HashMap;
use std::path::Path;

use crate::problem::{Outcome, Problem};

const MAGIC: &[u8; 8] = b"MGYCOST1";
/// Bytes before the packets, and bytes of each packet.
const HEAD: usize = 32;
const EACH: usize = 36;

/// The costs of a packet, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The index of its flow in [`Load::hashes`].
    pub(crate) flow: u32,
    /// Reading it.
    pub(crate) read: u32,
    /// Finding its flow.
    pub(crate) steer: u32,
    /// The worker's part before the search: decoding, tracking, reassembly, parsing.
    pub(crate) before: u32,
    /// Searching its payload for patterns. This changes no state, so any worker may do it.
    pub(crate) search: u32,
    /// Searching the stream data that became due.
    pub(crate) stream: u32,
    /// The remaining work: checks and events.
    pub(crate) after: u32,
    /// Bytes of the frame.
    pub(crate) len: u32,
}

impl Packet {
    /// The worker's cost after the payload search.
    pub(crate) const fn rest(&self) -> u64 {
        self.stream as u64 + self.after as u64
    }

    /// The worker's total cost.
    pub(crate) const fn work(&self) -> u64 {
        self.before as u64 + self.search as u64 + self.rest()
    }
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) packets: Vec<Packet>,
    /// The hash of each flow.
    pub(crate) hashes: Vec<u64>,
    /// The cost of ending all remaining flows at the end.
    pub(crate) end: u64,
    /// The measured time of one worker, including the clock readings.
    pub(crate) measured: u64,
    /// Steps that the processor interrupted for other work. They were replaced by the mean cost of such a step.
    pub(crate) interrupted: u64,
}

/// A step of this many nanoseconds was interrupted: the scheduler's time slice is no shorter, and no step takes as long.
const INTERRUPTED: u32 = 1_000_000;

/// How one worker's time is spent, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) read: f64,
    pub(crate) before: f64,
    pub(crate) search: f64,
    pub(crate) stream: f64,
    pub(crate) after: f64,
    pub(crate) end: f64,
    /// Nanoseconds for each packet without steering, and for steering.
    pub(crate) packet: f64,
    pub(crate) steer: f64,
}

impl Load {
    /// # Errors
    /// If the file does not exist or has another format.
    pub(crate) fn read(path: &Path) -> Outcome<Load> {
        let bytes = std::fs::read(path).map_err(|e| Problem::file("read", path, e))?;
        Self::parse(&bytes).ok_or_else(|| Problem::Failed(format!("{}: no packet costs, or cut off", path.display())))
    }

    fn parse(bytes: &[u8]) -> Option<Load> {
        let head = bytes.get(..HEAD)?;
        if head.get(..8)? != MAGIC {
            return None;
        }
        let count = usize::try_from(u64_at(head, 8)?).ok()?;
        let rest = bytes.get(HEAD..)?;
        if count.checked_mul(EACH)? != rest.len() {
            return None;
        }
        let mut load = Load { measured: u64_at(head, 16)?, end: u64_at(head, 24)?, ..Load::default() };
        load.packets.reserve(count);
        let mut flows: HashMap<u64, u32> = HashMap::new();
        for b in rest.chunks_exact(EACH) {
            let hash = u64_at(b, 0)?;
            let next = u32::try_from(load.hashes.len()).ok()?;
            let flow = *flows.entry(hash).or_insert(next);
            if flow == next {
                load.hashes.push(hash);
            }
            let n = |i: usize| u32_at(b, 8 + i * 4);
            load.packets.push(Packet {
                flow,
                read: n(0)?,
                steer: n(1)?,
                before: n(2)?,
                search: n(3)?,
                stream: n(4)?,
                after: n(5)?,
                len: n(6)?,
            });
        }
        load.mend();
        Some(load)
    }

    /// Replaces costs that include other work of the processor.
    fn mend(&mut self) {
        let steps: [fn(&mut Packet) -> &mut u32; 6] = [
            |p| &mut p.read,
            |p| &mut p.steer,
            |p| &mut p.before,
            |p| &mut p.search,
            |p| &mut p.stream,
            |p| &mut p.after,
        ];
        for step in steps {
            let (mut sum, mut count) = (0u64, 0u64);
            for p in &mut self.packets {
                let value = *step(p);
                if value < INTERRUPTED {
                    (sum, count) = (sum + u64::from(value), count + 1);
                }
            }
            let mean = (sum / count.max(1)) as u32;
            for p in &mut self.packets {
                let value = step(p);
                if *value >= INTERRUPTED {
                    *value = mean;
                    self.interrupted += 1;
                }
            }
        }
    }

    /// The time of one worker alone, without steering.
    pub(crate) fn alone(&self) -> u64 {
        self.packets.iter().map(|p| u64::from(p.read) + p.work()).sum::<u64>() + self.end
    }

    /// The same trace, with its costs scaled to `seconds`, the time of a run without clock readings.
    pub(crate) fn scaled(mut self, seconds: f64) -> Load {
        let alone = self.alone();
        if alone == 0 || seconds.is_nan() || seconds <= 0.0 {
            return self;
        }
        let by = seconds * 1e9 / alone as f64;
        // A rounding remainder is carried over to the next packet.
        let mut left = 0.0;
        let mut scale = |value: &mut u32| {
            let exact = f64::from(*value) * by + left;
            *value = exact as u32;
            left = exact - f64::from(*value);
        };
        for p in &mut self.packets {
            scale(&mut p.read);
            scale(&mut p.before);
            scale(&mut p.search);
            scale(&mut p.stream);
            scale(&mut p.after);
        }
        self.end = (self.end as f64 * by) as u64;
        self
    }

    /// How one worker's time is spent.
    pub(crate) fn shares(&self) -> Shares {
        let all = self.alone().max(1) as f64;
        let sum = |of: fn(&Packet) -> u32| self.packets.iter().map(|p| f64::from(of(p))).sum::<f64>();
        let packets = self.packets.len().max(1) as f64;
        Shares {
            read: sum(|p| p.read) / all,
            before: sum(|p| p.before) / all,
            search: sum(|p| p.search) / all,
            stream: sum(|p| p.stream) / all,
            after: sum(|p| p.after) / all,
            end: self.end as f64 / all,
            packet: all / packets,
            steer: sum(|p| p.steer) / packets,
        }
    }

    /// The largest flow's share of the packets.
    pub(crate) fn largest_flow(&self) -> f64 {
        let mut counts = vec![0u64; self.hashes.len()];
        for p in &self.packets {
            if let Some(n) = counts.get_mut(p.flow as usize) {
                *n += 1;
            }
        }
        counts.into_iter().max().unwrap_or(0) as f64 / self.packets.len().max(1) as f64
    }
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    b.get(at..)?.first_chunk().map(|c| u64::from_le_bytes(*c))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..)?.first_chunk().map(|c| u32::from_le_bytes(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(packets: &[(u64, [u32; 7])]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for n in [packets.len() as u64, 1000, 100] {
            out.extend(n.to_le_bytes());
        }
        for (hash, numbers) in packets {
            out.extend(hash.to_le_bytes());
            numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        out
    }

    #[test]
    fn what_the_engine_writes_is_read() {
        let bytes = file(&[(7, [10, 20, 30, 40, 5, 50, 600]), (9, [1; 7]), (7, [2; 7])]);
        let load = Load::parse(&bytes).unwrap();
        assert_eq!(load.hashes, [7, 9]);
        assert_eq!(
            load.packets[0],
            Packet { flow: 0, read: 10, steer: 20, before: 30, search: 40, stream: 5, after: 50, len: 600 }
        );
        assert_eq!((load.packets[1].flow, load.packets[2].flow, load.end, load.measured), (1, 0, 100, 1000));
        assert_eq!(load.alone(), 135 + 5 + 10 + 100);
        assert!((load.largest_flow() - 2.0 / 3.0).abs() < 1e-9);
        assert!(Load::parse(&bytes[..bytes.len() - 1]).is_none() && Load::parse(b"else").is_none());
    }

    #[test]
    fn what_others_did_is_no_cost() {
        let mut packets = vec![(1, [10, 10, 500, 100, 0, 50, 90]); 100];
        packets[7].1[2] = 4_000_000;
        let load = Load::parse(&file(&packets)).unwrap();
        assert_eq!((load.packets[7].before, load.interrupted), (500, 1));
    }

    #[test]
    fn scaling_keeps_shares_and_comes_to_the_time() {
        let packets: Vec<(u64, [u32; 7])> = (0..1000).map(|n| (n % 7, [10, 20, 300, 400, 0, 31, 99])).collect();
        let load = Load::parse(&file(&packets)).unwrap();
        let before = load.shares();
        let scaled = load.scaled(500e-6);
        assert!((scaled.alone() as f64 - 500e3).abs() < 10.0, "{}", scaled.alone());
        assert!((scaled.shares().search - before.search).abs() < 1e-3);
        assert_eq!(scaled.packets[3].steer, 20);
    }
}
