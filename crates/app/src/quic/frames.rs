//! Frames: those of QUIC that come in Initial packets (RFC 9000 sections 12.4 and 19), and streams of gQUIC.

use super::packet::{skip, varint};

/// Goes through the frames of an Initial packet and calls `crypto` with offset and bytes of each CRYPTO frame. `None` where
/// they cannot be read.
pub(super) fn initial<'a>(mut data: &'a [u8], crypto: &mut dyn FnMut(u64, &'a [u8])) -> Option<()> {
    while let Some((&kind, rest)) = data.split_first() {
        data = match kind {
            // PADDING, PING.
            0 | 1 => rest,
            // ACK, with counts of ECN or without.
            2 | 3 => {
                let (_, rest) = varint(rest)?;
                let (_, rest) = varint(rest)?;
                let (ranges, rest) = varint(rest)?;
                let (_, mut rest) = varint(rest)?;
                // Each takes two bytes at least: what is left bounds their number.
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
            // CONNECTION_CLOSE, and what does not belong here.
            _ => return Some(()),
        };
    }
    Some(())
}

/// Goes through the frames of a packet of gQUIC and calls `stream` with the bytes of each STREAM frame. `None` where they
/// cannot be read.
pub(super) fn gquic<'a>(mut data: &'a [u8], stream: &mut dyn FnMut(&'a [u8])) -> Option<()> {
    while let Some((&kind, rest)) = data.split_first() {
        if kind == 0 {
            data = rest;
            continue;
        }
        if kind & 0x80 == 0 {
            // Others have nothing that is asked for.
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
