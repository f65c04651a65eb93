//! Simulates network faults: packets that are lost, reordered, duplicated, retransmitted or fragmented.

use super::{Event, Held, Made, Mix};
use crate::traffic::frame;
use crate::traffic::rng::Rng;
use crate::traffic::template::Dir;

impl Mix {
    fn hold(&mut self, at: u64, made: Made, source: u32, frame: Vec<u8>) {
        let held = Held { frame, made, source };
        let slot = match self.held_free.pop() {
            Some(slot) => {
                if let Some(place) = self.held.get_mut(slot as usize) {
                    *place = Some(held);
                }
                slot
            }
            None => {
                self.held.push(Some(held));
                (self.held.len() - 1) as u32
            }
        };
        self.push(at, Event::Held(slot));
    }

    /// Applies the profile's faults to the packet in `out`. Returns the packet to send now, if any; later copies and pieces are
    /// queued. `follower` is the time and direction of the session's next packet.
    pub(super) fn impaired(
        &mut self,
        made: Made,
        follower: Option<(u64, Dir)>,
        source: u32,
        out: &mut Vec<u8>,
    ) -> Option<Made> {
        let i = self.impair;
        if self.rng.chance(i.loss) {
            if let Some(s) = self.sources.get_mut(source as usize) {
                s.tally.lost += 1;
            }
            return None;
        }
        if self.rng.chance(i.retransmit) && carries_data(out) {
            self.hold(made.at + 200_000_000, made, source, out.clone());
        }
        if self.rng.chance(i.duplicate) {
            self.hold(made.at + 5_000, made, source, out.clone());
        }
        if let Some((next, dir)) = follower
            && dir == made.dir
            && self.rng.chance(i.reorder)
        {
            let frame = std::mem::take(out);
            self.hold(next + 1_000, made, source, frame);
            return None;
        }
        if let Some(most) = i.fragment
            && let Some(pieces) = fragments(out, usize::from(most), &mut self.rng)
        {
            for frame in pieces {
                let piece = Made { at: made.at, wire_len: frame.len() as u32, dir: made.dir };
                self.count_packet(source, &piece);
                self.ready.push_back((piece, frame));
            }
            let (first, frame) = self.ready.pop_front()?;
            *out = frame;
            return Some(first);
        }
        self.count_packet(source, &made);
        Some(made)
    }
}

/// Whether a frame is TCP with data.
fn carries_data(frame: &[u8]) -> bool {
    let Some(l) = frame::parse(frame) else { return false };
    let l4 = usize::from(l.l4);
    let header = frame.get(l4 + 12).map_or(0, |b| usize::from(b >> 4) * 4);
    l.proto == frame::TCP && l4 != 0 && usize::from(l.end) > l4 + header
}

/// Splits a frame into IP fragments of at most `most` bytes; `None` if it is not larger, or cannot be fragmented.
fn fragments(frame: &[u8], most: usize, rng: &mut Rng) -> Option<Vec<Vec<u8>>> {
    let l = frame::parse(frame)?;
    let (l3, end) = (usize::from(l.l3), usize::from(l.end));
    if l.fragment || end - l3 <= most {
        return None;
    }
    let (header, more) = if l.v6 { (40, 8) } else { (frame.get(l3).map(|b| usize::from(b & 15) * 4)?, 0) };
    if l.v6 && frame.get(l3 + 6).is_none_or(|next| *next != l.proto) {
        return None;
    }
    let room = most.checked_sub(header + more)? / 8 * 8;
    if room == 0 {
        return None;
    }
    let head = frame.get(..l3 + header)?;
    let body = frame.get(l3 + header..end)?;
    let id = rng.next() as u32;
    let count = body.len().div_ceil(room);
    let pieces = body.chunks(room).enumerate().map(|(n, piece)| {
        let last = n + 1 == count;
        let offset = (n * room) as u16;
        let mut f = head.to_vec();
        if l.v6 {
            frame::put(&mut f, l3 + 4, &((piece.len() + 8) as u16).to_be_bytes());
            frame::put(&mut f, l3 + 6, &[44]);
            f.extend([l.proto, 0]);
            f.extend((offset | u16::from(!last)).to_be_bytes());
            f.extend(id.to_be_bytes());
        } else {
            frame::put(&mut f, l3 + 2, &((header + piece.len()) as u16).to_be_bytes());
            let flags: u16 = (if last { 0 } else { 0x2000 }) | (offset / 8);
            frame::put(&mut f, l3 + 6, &flags.to_be_bytes());
        }
        f.extend(piece);
        f.resize(f.len().max(60), 0);
        if let Some(l) = frame::parse(&f) {
            // Only the IPv4 header's checksum changes: a fragment's transport checksum is not computed.
            l.fix(&mut f);
        }
        f
    });
    Some(pieces.collect())
}
