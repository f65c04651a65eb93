//! Protocol detection for QUIC: on its ports, all data that QUIC does not rule out.

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, UDP};

use super::packet::{skip, varint};

pub(super) const RECOGNITION: Recognition =
    Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[443, 80], probe: quic }] };

/// QUIC (RFC 8999, RFC 9000 section 17) and gQUIC.
fn quic(_: Direction, data: &[u8]) -> Probed {
    let Some(&first) = data.first() else { return Probed::More };
    let is = if first & 0x80 == 0 {
        // Without the fixed bit it is gQUIC's public header; a nonce next to a version needs room.
        first & 0x4d != 0x05 || data.len() >= 37
    } else {
        let Some(version) = data.get(1..).and_then(|d| d.first_chunk()).map(|b| u32::from_be_bytes(*b)) else {
            return Probed::No;
        };
        // RFC 9369 section 3.2 changes the numbers of the packet types.
        let turn = u8::from(version == super::keys::V2);
        let kind = (first >> 4 & 3).wrapping_sub(turn) & 3;
        let plain = matches!(version, 0 | 0x5130_3330..=0x5130_3439);
        // Version negotiation, and versions without packet types (Q030 to Q049).
        plain || fits(data, kind == 0)
    };
    if is { Probed::Yes { reverse: false } } else { Probed::No }
}

/// Whether the connection ids of a long header (RFC 9000 section 17.2) fit the datagram; for an Initial packet, also its token
/// and length.
fn fits(data: &[u8], initial: bool) -> bool {
    let fits = || {
        let mut rest = data.get(5..)?;
        for _ in 0..2 {
            let (len, tail) = rest.split_first()?;
            rest = skip(tail, u64::from(*len))?;
        }
        if !initial {
            return Some(rest);
        }
        let (token, tail) = varint(rest)?;
        rest = skip(tail, token)?;
        let (length, tail) = varint(rest)?;
        skip(tail, length)
    };
    fits().is_some()
}
