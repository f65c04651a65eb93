//! Segments of a capture in the format of the target `stream`.

use margay_packet::tcp::flag;

use super::flows::Segment;
use crate::stream::ISN;

/// Settings of the seeds: the defaults; inline; midstream pickup with small limits.
const SETTINGS: [[u8; 2]; 3] = [[0, 0], [1, 0], [0x20, 0x30]];

/// The input for a conversation, with one of a few settings.
pub(super) fn encode(segments: &[Segment], which: usize) -> Vec<u8> {
    let mut out = SETTINGS[which % SETTINGS.len()].to_vec();
    let mut isn: [Option<u32>; 2] = [None, None];
    let mut next = ISN;
    for s in segments {
        let (i, syn) = (s.dir.index(), s.flags & flag::SYN != 0);
        // A direction begins with its first packet.
        let first = *isn[i].get_or_insert(if syn { s.seq } else { s.seq.wrapping_sub(1) });
        let other = *isn[1 - i].get_or_insert(s.ack.wrapping_sub(1));
        let seq = ISN[i].wrapping_add(s.seq.wrapping_sub(first));
        let ack = if s.flags & flag::ACK == 0 { 0 } else { ISN[1 - i].wrapping_add(s.ack.wrapping_sub(other)) };
        let mut head = i as u8;
        let mut tail = vec![s.flags];
        if seq != next[i] {
            let from = seq.wrapping_sub(ISN[i]);
            match u16::try_from(from) {
                Ok(from) => {
                    head |= 2 << 1;
                    tail.extend(from.to_be_bytes());
                }
                Err(_) => {
                    head |= 3 << 1;
                    tail.extend(seq.to_be_bytes());
                }
            }
        }
        if s.flags & flag::ACK == 0 {
            head |= 2 << 3;
        } else if ack != next[1 - i] {
            head |= 3 << 3;
            tail.extend(ack.to_be_bytes());
        }
        let options = options(&s.options);
        if !options.is_empty() {
            head |= 0x20;
            tail.extend(options);
        }
        let mut len = s.len;
        if s.len > 0 || s.urgent > 0 {
            head |= 0x40;
            let byte = if s.len < 0xf0 { s.len } else { (s.len >> 10).clamp(1, 16) + 0xef };
            len = if byte >= 0xf0 { (byte - 0xef) << 10 } else { byte };
            tail.push(byte as u8);
            tail.push(if s.urgent > 0 { 0x80 } else { 0 });
            if s.urgent > 0 {
                tail.extend(s.window.to_be_bytes());
                tail.push(s.urgent as u8);
            }
        }
        if s.wait >= 8_000_000 {
            head |= 0x80;
            tail.push(((s.wait / 8_000_000).min(14) as u8) << 4);
        }
        out.push(head);
        out.extend(tail);
        let fin = u32::from(s.flags & flag::FIN != 0);
        let after = seq.wrapping_add(len as u32).wrapping_add(u32::from(syn)).wrapping_add(fin);
        if head >> 1 & 3 != 3 && after.wrapping_sub(next[i]) < 1 << 20 {
            next[i] = after;
        }
    }
    out
}

/// Encodes TCP options for the target: a byte that says which are present, and their values in the target's order.
fn options(mut raw: &[u8]) -> Vec<u8> {
    let mut which = 0u8;
    let mut values = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    while let [kind, rest @ ..] = raw {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(rest.first().copied().unwrap_or(0)).max(2),
        };
        let value = raw.get(2..len).unwrap_or(&[]);
        match (kind, value) {
            (8, [_, _, _, time, _, _, _, echo]) => {
                which |= 1;
                values[0] = vec![*time, *echo];
            }
            (3, [scale]) => {
                which |= 2;
                values[1] = vec![*scale];
            }
            (4, []) => which |= 4,
            (34, [a, b, ..]) => {
                which |= 8;
                values[2] = vec![*a, *b];
            }
            (2, [a, b]) => {
                which |= 16;
                values[3] = vec![*a, *b];
            }
            _ => {}
        }
        raw = raw.get(len..).unwrap_or(&[]);
    }
    if which == 0 { Vec::new() } else { [vec![which], values.concat()].concat() }
}
