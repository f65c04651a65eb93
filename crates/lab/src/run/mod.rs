//! One run of an engine: with a load on a wire ([`live`]), or on a capture ([`offline`]).

pub(crate) mod live;
pub(crate) mod offline;

use std::path::Path;

use margay_capture::Reader;

use crate::problem::{Outcome, Problem};
use crate::units::Rate;

/// The properties of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Capture {
    pub(crate) packets: f64,
    /// Bytes of the packets as captured.
    pub(crate) bytes: f64,
    /// Seconds from the first packet to the last.
    pub(crate) seconds: f64,
}

impl Capture {
    /// Reads the whole capture.
    ///
    /// # Errors
    /// If it cannot be read, is truncated or has no packets.
    pub(crate) fn read(path: &Path) -> Outcome<Capture> {
        let wrong = |why: &dyn std::fmt::Display| Problem::Usage(format!("{}: {why}", path.display()));
        let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        let mut reader = Reader::new(file, path).map_err(|error| wrong(&error))?;
        let (mut packets, mut bytes, mut first, mut last) = (0u64, 0u64, None, None);
        while let Some(batch) = reader.next_batch(1024).map_err(|error| wrong(&error))? {
            for frame in batch.iter() {
                packets += 1;
                bytes += frame.data.len() as u64;
                first = first.or(Some(frame.time));
                last = Some(frame.time);
            }
        }
        let (Some(first), Some(last)) = (first, last) else { return Err(wrong(&"it has no packets")) };
        let seconds = last.micros_since(first).max(0) as f64 / 1e6;
        Ok(Capture { packets: packets as f64, bytes: bytes as f64, seconds })
    }

    /// Converts a rate to packets a second of this capture.
    pub(crate) fn packets_a_second(&self, rate: Rate) -> Option<f64> {
        match rate {
            Rate::Packets(packets) => Some(packets),
            Rate::Bits(bits) => Some(bits / 8.0 * self.packets / self.bytes),
            Rate::Times(times) => (self.seconds > 0.0).then(|| times * self.packets / self.seconds),
        }
    }

    /// Mean number of bits in a packet.
    pub(crate) fn bits_a_packet(&self) -> f64 {
        self.bytes * 8.0 / self.packets
    }
}
