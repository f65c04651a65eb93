//! Protocol detection for DCE/RPC: on any port, by the beginning of a message header.

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};

use super::pdu::{Datagram, HEADER, is_response};

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[],
    probes: &[Probe { transport: TCP, ports: &[], probe: tcp }, Probe { transport: UDP, ports: &[], probe: udp }],
};

/// Over a connection (C706 section 12.6.1): version 5.0 and a valid data representation.
fn tcp(dir: Direction, data: &[u8]) -> Probed {
    match data {
        [5, 0, ..] => {}
        [] | [5] => return Probed::More,
        _ => return Probed::No,
    }
    // Integers big or little endian, text ASCII or EBCDIC; one of four floating-point formats.
    if data.get(4).is_some_and(|b| b & 0xee != 0) || data.get(5).is_some_and(|b| *b > 3) {
        return Probed::No;
    }
    // Wait for the complete common header.
    match data.get(2) {
        Some(&kind) if data.len() >= HEADER => {
            Probed::Yes { reverse: is_response(kind) == (dir == Direction::ToServer) }
        }
        _ => Probed::More,
    }
}

/// In datagrams (C706 section 12.5.1).
fn udp(_: Direction, data: &[u8]) -> Probed {
    // Two bits of the second flags are defined.
    match Datagram::read(data) {
        Some(_) if data.get(3).is_some_and(|flags| flags & 0xfc == 0) => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}
