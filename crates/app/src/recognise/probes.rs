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

fn be32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// ONC RPC (RFC 5531 section 9): a call of NFS, or a reply.
fn rpc(message: &[u8]) -> Probed {
    let Some(kind) = be32(message, 4) else { return Probed::More };
    match kind {
        0 => match (be32(message, 8), be32(message, 12), be32(message, 16)) {
            (Some(rpc), Some(program), Some(version)) => {
                yes_if(rpc == 2 && program == 100_003 && (2..=4).contains(&version))
            }
            _ => Probed::More,
        },
        1 => match be32(message, 8) {
            Some(status) => yes_if(status <= 1),
            None => Probed::More,
        },
        _ => Probed::No,
    }
}

/// NFS over UDP. Whether a server is there (procedure 0) tells nothing.
pub(super) fn nfs_udp(_: Direction, data: &[u8]) -> Probed {
    let least = if be32(data, 4) == Some(0) { 40 } else { 24 };
    if data.len() > least { rpc(data) } else { Probed::No }
}

/// NFS over TCP: behind a record mark (RFC 5531 section 11).
pub(super) fn nfs_tcp(_: Direction, data: &[u8]) -> Probed {
    match be32(data, 0) {
        None => Probed::More,
        Some(mark) if mark & 0x7fff_ffff < 12 => Probed::No,
        Some(_) => rpc(data.get(4..).unwrap_or(&[])),
    }
}

/// Modbus over TCP (Modbus messaging guide 1.0b section 3.1.3): protocol 0, and a length.
pub(super) fn modbus(_: Direction, data: &[u8]) -> Probed {
    match (be16(data, 2), be16(data, 4)) {
        (Some(proto), Some(len)) => yes_if(proto == 0 && (2..=254).contains(&len)),
        _ => Probed::More,
    }
}

/// EtherNet/IP (ODVA volume 2, section 2-3.1): a command that is known, and no unknown options.
pub(super) fn enip(_: Direction, data: &[u8]) -> Probed {
    let Some(head) = data.first_chunk::<24>() else { return Probed::More };
    let command = u16::from_le_bytes([head[0], head[1]]);
    let known = matches!(command, 0x00 | 0x04 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73);
    yes_if(known && head[20..24] == [0; 4])
}
