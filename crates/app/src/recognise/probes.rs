//! Functions that tell protocols that no literal tells.
//!
//! Each looks at as few bytes as it can, says [`Probed::More`] while those are not there, and once it has said something
//! else says the same of whatever is longer. Those of UDP see whole datagrams: there `More` means that it is too short,
//! and lengths may be compared.

use margay_flow::Direction;

use super::Probed;

const YES: Probed = Probed::Yes { reverse: false };

fn yes_if(condition: bool) -> Probed {
    if condition { YES } else { Probed::No }
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// Modbus over TCP (Modbus messaging guide 1.0b section 3.1.3): protocol 0, and a length.
pub(super) fn modbus(_: Direction, data: &[u8]) -> Probed {
    match (be16(data, 2), be16(data, 4)) {
        (Some(proto), Some(len)) => yes_if(proto == 0 && (2..=254).contains(&len)),
        _ => Probed::More,
    }
}
