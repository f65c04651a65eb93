//! Frames: those of QUIC's Initial packets (RFC 9000 sections 12.4 and 19), and gQUIC streams.

use super::packet::{skip, varint};

/// Iterates over the frames of an Initial packet and calls `crypto` with offset and data of each CRYPTO frame. `None` if they
/// are invalid.
pub(super) fn initial<'a>(mut data: &'a [u8], crypto: &mut dyn FnMut(u64, &'a [u8])) -> Option<()> {
    while let Some((&kind, rest)) = data.split_first() {
        data = match kind {
            // PADDING, PING.
            0 | 1 => rest,
            // ACK, with or without ECN counts.
            2 | 3 => {
                let (_, rest) = varint(rest)?;
                let (_, rest) = varint(rest)?;
                let (ranges, rest) = varint(rest)?;
                let (_, mut rest) = varint(rest)?;
                // Each number takes at least two bytes, so the remaining data bounds them.
                let numbers = ranges.checked_mul(2)?.checked_add(if kind == 3 { 3 } else { 0 })?;
                if numbers > rest.len() as u64 {
                    return None;
                }
                for _ in 0..numbers {
                    (_, rest) = varint(rest)?;
                }
                rest
            }
            6 => {
                let (offset, rest) = varint(rest)?;
                let (len, rest) = varint(rest)?;
                let behind = skip(rest, len)?;
                crypto(offset, rest.get(..rest.len() - behind.len())?);
                behind
            }
            // CONNECTION_CLOSE, and frames that are not allowed here.
            _ => return Some(()),
        };
    }
    Some(())
}

/// Iterates over the frames of a gQUIC packet and calls `stream` with the data of each STREAM frame. `None` if they are
/// invalid.
pub(super) fn gquic<'a>(mut data: &'a [u8], stream: &mut dyn FnMut(&'a [u8])) -> Option<()> {
    while let Some((&kind, rest)) = data.split_first() {
        if kind == 0 {
            data = rest;
            continue;
        }
        if kind & 0x80 == 0 {
            // Other frames have no relevant data.
            return Some(());
        }
        let offset = usize::from(kind >> 2 & 7);
        let head = usize::from(kind & 3) + 1 + if offset == 0 { 0 } else { offset + 1 };
        let rest = rest.get(head..)?;
        if kind & 0x20 == 0 {
            stream(rest);
            return Some(());
        }
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (bytes, behind) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        stream(bytes);
        data = behind;
    }
    Some(())
}
