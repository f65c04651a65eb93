//! How QUIC is recognised: on its ports anything but what cannot be.

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, UDP};

use super::packet::{skip, varint};

pub(super) const RECOGNITION: Recognition =
    Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[443, 80], probe: quic }] };

/// QUIC (RFC 8999, RFC 9000 section 17) and its forerunner.
fn quic(_: Direction, data: &[u8]) -> Probed {
    let Some(&first) = data.first() else { return Probed::More };
    let is = if first & 0x80 == 0 {
        // Without the fixed bit it is the forerunner's public header; a nonce beside a version takes its room.
        first & 0x4d != 0x05 || data.len() >= 37
    } else {
        let Some(version) = data.get(1..).and_then(|d| d.first_chunk()).map(|b| u32::from_be_bytes(*b)) else {
            return Probed::No;
        };
        // RFC 9369 section 3.2 numbers the kinds anew.
        let turn = u8::from(version == super::keys::V2);
        let kind = (first >> 4 & 3).wrapping_sub(turn) & 3;
        let plain = matches!(version, 0 | 0x5130_3330..=0x5130_3439);
        // Negotiation, and versions before there were kinds (Q030 to Q049).
        plain || fits(data, kind == 0)
    };
    if is { Probed::Yes { reverse: false } } else { Probed::No }
}

/// Whether a long header's connection numbers (RFC 9000 section 17.2) fit the datagram, and of an Initial packet its token and
/// length.
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
