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

/// A length as BER writes it (X.690 section 8.1.3), definite, of at most four bytes: it and how many bytes it takes.
/// `Err(true)` where more bytes are needed.
fn ber_length(data: &[u8]) -> Result<(u32, usize), bool> {
    let first = *data.first().ok_or(true)?;
    if first < 0x80 {
        return Ok((u32::from(first), 1));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(false);
    }
    let bytes = data.get(1..=count).ok_or(true)?;
    Ok((bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)), 1 + count))
}

fn unless<T>(result: Result<T, bool>, then: impl FnOnce(T) -> Probed) -> Probed {
    match result {
        Ok(t) => then(t),
        Err(true) => Probed::More,
        Err(false) => Probed::No,
    }
}

/// TPKT (RFC 1006 section 6) with a connection-oriented transport unit (X.224) in it.
pub(super) fn rdp(_: Direction, data: &[u8]) -> Probed {
    if let Some(b) = data.first()
        && *b != 3
    {
        return Probed::No;
    }
    let Some(head) = data.first_chunk::<6>() else { return Probed::More };
    let length = u16::from_be_bytes([head[2], head[3]]);
    yes_if(head[1] == 0 && length >= 7 && matches!(head[5] & 0xf0, 0xd0..=0xf0))
}

/// SNMP (RFC 1157 section 4, RFC 3416, RFC 3412 section 6): a sequence that begins with the version.
pub(super) fn snmp(_: Direction, data: &[u8]) -> Probed {
    if data.first() != Some(&0x30) {
        return Probed::No;
    }
    unless(ber_length(data.get(1..).unwrap_or(&[])), |(_, n)| match data.get(1 + n..) {
        // A community; or the header of version 3.
        Some([2, 1, 0 | 1, 4, ..] | [2, 1, 3, 0x30, ..]) => YES,
        _ => Probed::No,
    })
}

/// Kerberos (RFC 4120 section 5): an application tag with a sequence in it.
fn krb5_message(data: &[u8]) -> Probed {
    let Some(&tag) = data.first() else { return Probed::More };
    if tag & 0xe0 != 0x60 {
        return Probed::No;
    }
    unless(ber_length(data.get(1..).unwrap_or(&[])), |(_, n)| match data.get(1 + n) {
        Some(b) => yes_if(*b == 0x30),
        None => Probed::More,
    })
}

/// Kerberos over UDP.
pub(super) fn krb5_udp(_: Direction, data: &[u8]) -> Probed {
    krb5_message(data)
}

/// Kerberos over TCP (RFC 4120 section 7.2.2): a length, and the message.
pub(super) fn krb5_tcp(_: Direction, data: &[u8]) -> Probed {
    match be32(data, 0) {
        None => Probed::More,
        Some(n) if !(10..=16384).contains(&n) => Probed::No,
        Some(_) => krb5_message(data.get(4..).unwrap_or(&[])),
    }
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

/// Telnet (RFC 854): on its port anything; what begins with no command only where it is longer than any other
/// protocol's pattern.
pub(super) fn telnet(_: Direction, data: &[u8]) -> Probed {
    match data {
        [0xff, 0xf0..=0xff, ..] => YES,
        d if d.len() > 32 => YES,
        _ => Probed::More,
    }
}

/// LDAP (RFC 4511 section 4.1.1): a sequence of message number and operation.
pub(super) fn ldap(_: Direction, data: &[u8]) -> Probed {
    match data.first() {
        None => return Probed::More,
        Some(0x30) => {}
        Some(_) => return Probed::No,
    }
    unless(ber_length(data.get(1..).unwrap_or(&[])), |(_, n)| {
        let Some(message) = data.get(1 + n..) else { return Probed::More };
        match message {
            [] | [2] => Probed::More,
            [2, len @ 1..=4, rest @ ..] => match rest.get(usize::from(*len)) {
                None => Probed::More,
                Some(op) => yes_if(matches!(op, 0x60..=0x79 | 0x42 | 0x4a | 0x50)),
            },
            _ => Probed::No,
        }
    })
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
