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

/// MQTT (MQTT 5.0 section 2.1): a type, and a length in at most four bytes.
pub(super) fn mqtt(_: Direction, data: &[u8]) -> Probed {
    let Some((&first, rest)) = data.split_first() else { return Probed::More };
    if first >> 4 == 0 || first & 0x06 == 0x06 {
        return Probed::No;
    }
    for i in 0..4 {
        match rest.get(i) {
            None => return Probed::More,
            Some(b) if b & 0x80 == 0 => return YES,
            Some(_) => {}
        }
    }
    Probed::No
}

/// Telnet (RFC 854): on its port anything; what begins with no command only where it is longer than any other
/// protocol's pattern.
pub(super) fn telnet(_: Direction, data: &[u8]) -> Probed {
    match data {
        [0xff, 0xf0..=0xff, ..] => YES,
        d if d.len() > 32 => YES,
        _ => Probed::More,
    }
}

/// PostgreSQL (protocol 3.0, section 55.7): the greeting; or a message with type and length.
pub(super) fn pgsql(dir: Direction, data: &[u8]) -> Probed {
    if dir == Direction::ToServer {
        return match (be32(data, 0), be32(data, 4)) {
            // 3.0, CancelRequest, SSLRequest, GSSENCRequest.
            (Some(n), Some(code)) => {
                yes_if((8..10_000).contains(&n) && matches!(code, 0x0003_0000 | 0x04d2_162e..=0x04d2_1630))
            }
            _ => Probed::More,
        };
    }
    match data.first() {
        None => Probed::More,
        Some(b'S' | b'N') if data.len() == 1 => Probed::More,
        Some(b'R' | b'E') => match be32(data, 1) {
            None => Probed::More,
            Some(n) => yes_if((8..0x1_0000).contains(&n)),
        },
        Some(_) => Probed::No,
    }
}

/// Modbus over TCP (Modbus messaging guide 1.0b section 3.1.3): protocol 0, and a length.
pub(super) fn modbus(_: Direction, data: &[u8]) -> Probed {
    match (be16(data, 2), be16(data, 4)) {
        (Some(proto), Some(len)) => yes_if(proto == 0 && (2..=254).contains(&len)),
        _ => Probed::More,
    }
}

/// DNP3 (IEEE 1815 section 9.2.4): start bytes, and a length.
pub(super) fn dnp3(_: Direction, data: &[u8]) -> Probed {
    match data {
        [5, 0x64, len, ..] => yes_if(*len >= 5),
        [] | [5] | [5, 0x64] => Probed::More,
        _ => Probed::No,
    }
}

/// EtherNet/IP (ODVA volume 2, section 2-3.1): a command that is known, and no unknown options.
pub(super) fn enip(_: Direction, data: &[u8]) -> Probed {
    let Some(head) = data.first_chunk::<24>() else { return Probed::More };
    let command = u16::from_le_bytes([head[0], head[1]]);
    let known = matches!(command, 0x00 | 0x04 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73);
    yes_if(known && head[20..24] == [0; 4])
}
