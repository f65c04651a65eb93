//! Counts packets of a capture or a wire, by conversation and by flow.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use margay_capture::{PcapWriter, Reader, Resolution};
use margay_packet::LinkType;

use super::build::{MOST, number};
use super::eve::{Flow, flow};
use crate::problem::{Outcome, Problem};
use crate::traffic::frame::{self, ICMP, Layout, TCP, UDP};

/// Most flows of other traffic that have their own counter.
const MAX_FLOWS: usize = 4_000_000;

/// Number of packets of a conversation: all, and those with data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packets {
    pub(super) all: u64,
    pub(super) data: u64,
}

impl Packets {
    /// The packets that matter, and how many of them arrived. These are the packets with data, or all if none has data.
    pub(super) fn matter(self, arrived: Packets) -> [u64; 2] {
        if self.data > 0 { [self.data, arrived.data] } else { [self.all, arrived.all] }
    }
}

/// Counters, see the module.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) conversations: HashMap<u32, Packets>,
    pub(super) flows: HashMap<Flow, u64>,
    /// Packets of other traffic, and how many of them are in flows beyond [`MAX_FLOWS`].
    pub(super) others: u64,
    pub(super) uncounted: u64,
}

/// Length of a packet's payload.
fn data(frame: &[u8], layout: &Layout) -> usize {
    let (l3, l4, end) = (usize::from(layout.l3), usize::from(layout.l4), usize::from(layout.end));
    let nibble = |at: usize| frame.get(at).copied().unwrap_or(0);
    let header = match layout.proto {
        _ if l4 == 0 => return end.saturating_sub(l3 + usize::from(nibble(l3) & 15) * 4),
        TCP => usize::from(nibble(l4 + 12) >> 4) * 4,
        UDP | ICMP => 8,
        _ => 0,
    };
    end.saturating_sub(l4 + header)
}

impl Counted {
    /// Counts a frame. Returns whether it belongs to a conversation.
    pub(super) fn add(&mut self, frame: &[u8]) -> bool {
        let layout = frame::parse(frame);
        let ends = layout.and_then(|layout| Some((layout, layout.ends(frame)?)));
        if let Some((layout, (a, b))) = ends {
            if let Some(n) = number(a).or(number(b)) {
                let packets = self.conversations.entry(n).or_default();
                packets.all += 1;
                packets.data += u64::from(data(frame, &layout) > 0);
                return true;
            }
            let (sport, dport) = layout.ports(frame).unwrap_or((0, 0));
            let key = flow((a, sport), (b, dport));
            if self.flows.len() < MAX_FLOWS || self.flows.contains_key(&key) {
                *self.flows.entry(key).or_default() += 1;
            } else {
                self.uncounted += 1;
            }
        }
        self.others += 1;
        false
    }

    /// Adds the counts of another instance.
    pub(super) fn merge(&mut self, other: Counted) {
        for (n, packets) in other.conversations {
            let mine = self.conversations.entry(n).or_default();
            mine.all += packets.all;
            mine.data += packets.data;
        }
        for (flow, packets) in other.flows {
            *self.flows.entry(flow).or_default() += packets;
        }
        self.others += other.others;
        self.uncounted += other.uncounted;
    }

    /// Number of packets in all conversations.
    pub(super) fn attacks(&self) -> u64 {
        debug_assert!(self.conversations.len() <= MOST as usize);
        self.conversations.values().map(|packets| packets.all).sum()
    }

    /// Counts a capture, and writes its other traffic to the file `rest`, if given.
    ///
    /// # Errors
    /// If the capture cannot be read, or `rest` cannot be written.
    pub(super) fn of(capture: &Path, rest: Option<&Path>) -> Outcome<Counted> {
        let failed = |error: &dyn std::fmt::Display| Problem::Usage(format!("{}: {error}", capture.display()));
        let file = File::open(capture).map_err(|error| failed(&error))?;
        let mut reader = Reader::new(file, capture).map_err(|error| failed(&error))?;
        let mut out = match rest {
            Some(path) => {
                let file = File::create(path).map_err(|error| Problem::file("make", path, error))?;
                let writer = PcapWriter::new(BufWriter::new(file), LinkType::ETHERNET, 262_144, Resolution::Nano);
                Some((writer.map_err(|error| Problem::file("write", path, error))?, path))
            }
            None => None,
        };
        let mut counted = Counted::default();
        while let Some(batch) = reader.next_batch(1024).map_err(|error| failed(&error))? {
            for f in batch.iter() {
                let ours = counted.add(f.data);
                if let (false, Some((writer, path))) = (ours, &mut out) {
                    let micros = f.time.0.max(0);
                    let (seconds, nanos) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32 * 1000);
                    let wrote = writer.write_nanos(seconds, nanos, f.data, f.wire_len);
                    wrote.map_err(|error| Problem::file("write", path, error))?;
                }
            }
        }
        if let Some((writer, path)) = &mut out {
            writer.flush().map_err(|error| Problem::file("write", path, error))?;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::build::Conversation;

    #[test]
    fn packets_with_data_are_told_from_others() {
        let mut counted = Counted::default();
        for raw in Conversation::Request(b"GET / HTTP/1.1\r\n\r\n".to_vec()).build(5, 1).frames {
            assert!(counted.add(&raw.frame));
        }
        // Three packets of the handshake, the request and the answer, three of the end.
        assert_eq!(counted.conversations[&5], Packets { all: 8, data: 2 });
        assert_eq!(counted.conversations[&5].matter(Packets { all: 4, data: 1 }), [2, 1]);
        assert_eq!(Packets { all: 3, data: 0 }.matter(Packets { all: 1, data: 0 }), [3, 1]);
        assert!(!counted.add(&[0; 60]));
        assert_eq!((counted.others, counted.attacks()), (1, 8));
    }
}
