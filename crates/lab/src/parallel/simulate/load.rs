//! What a trace costs, packet by packet: measured by the engine (`margay.packet-costs`), or made up for tests.
//!
//! The file: the eight bytes `MGYCOST1`, then numbers of 8 bytes (little-endian, as all): the count of packets; nanoseconds from the first
//! packet to the end of the last flow; of these, those after the last packet. For each packet the hash of its flow (8 bytes) and six
//! numbers of 4 bytes, nanoseconds but for the last: reading it, finding its flow for steering, its decoding, tracking and parsing, the searches
//! in its payload and in the stream, the checks of rules and events, and its length in bytes.

use std::collections::HashMap;
use std::path::Path;

use crate::problem::{Outcome, Problem};

const MAGIC: &[u8; 8] = b"MGYCOST1";
/// Bytes before the packets, and of each of them.
const HEAD: usize = 32;
const EACH: usize = 36;

/// What a packet costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Its flow, by its place in [`Load::hashes`].
    pub(crate) flow: u32,
    /// Reading it.
    pub(crate) read: u32,
    /// Finding out which flow it is of.
    pub(crate) steer: u32,
    /// What its worker does before it searches: decoding, tracking, reassembly, parsing.
    pub(crate) before: u32,
    /// Searching its payload for patterns, which changes nothing and may be done by anybody.
    pub(crate) search: u32,
    /// Searching what was due of its stream.
    pub(crate) stream: u32,
    /// What is left after that: checks, events.
    pub(crate) after: u32,
    /// Bytes of the frame.
    pub(crate) len: u32,
}

impl Packet {
    /// What its worker does for it once its payload was searched.
    pub(crate) const fn rest(&self) -> u64 {
        self.stream as u64 + self.after as u64
    }

    /// What its worker does for it.
    pub(crate) const fn work(&self) -> u64 {
        self.before as u64 + self.search as u64 + self.rest()
    }
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) packets: Vec<Packet>,
    /// Of each flow.
    pub(crate) hashes: Vec<u64>,
    /// Ending all flows that are left at the end.
    pub(crate) end: u64,
    /// What one worker took for all in truth, clocks and all.
    pub(crate) measured: u64,
    /// Steps in which the processor did something else, and which were replaced by what such a step takes at the mean.
    pub(crate) interrupted: u64,
}

/// A step of this many nanoseconds was interrupted: the scheduler gives others no less, and no step takes as long.
const INTERRUPTED: u32 = 1_000_000;

/// Where one worker's time goes: shares of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) read: f64,
    pub(crate) before: f64,
    pub(crate) search: f64,
    pub(crate) stream: f64,
    pub(crate) after: f64,
    pub(crate) end: f64,
    /// Nanoseconds a packet, all but steering; and those of steering.
    pub(crate) packet: f64,
    pub(crate) steer: f64,
}

impl Load {
    /// # Errors
    /// Where there is no such file, or it is none.
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

    /// Takes out what others did with the processor in the meantime.
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

    /// What one worker takes for all: nothing is steered then.
    pub(crate) fn alone(&self) -> u64 {
        self.packets.iter().map(|p| u64::from(p.read) + p.work()).sum::<u64>() + self.end
    }

    /// The same trace, with what it costs brought to the time that a run without clocks took: `seconds`.
    pub(crate) fn scaled(mut self, seconds: f64) -> Load {
        let alone = self.alone();
        if alone == 0 || seconds.is_nan() || seconds <= 0.0 {
            return self;
        }
        let by = seconds * 1e9 / alone as f64;
        // What is cut off of a packet is added to the next.
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

    /// Where one worker's time goes.
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

    /// The share of the packets that the largest flow has.
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
