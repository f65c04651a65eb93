//! Protocol detection for SMB: on any port, by a header after a four-byte length; on the ports of SMB, after other NetBIOS
//! session packets.

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, TCP};

use super::header::{Smb1, Smb2};

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[],
    probes: &[
        Probe { transport: TCP, ports: &[], probe: header },
        Probe { transport: TCP, ports: &[139, 445], probe: keep_alive },
        Probe { transport: TCP, ports: &[139, 445], probe: session },
    ],
};

/// MS-SMB section 2.2.3.1, MS-SMB2 sections 2.2.1, 2.2.41 and 2.2.42. The header shows the direction.
fn header(dir: Direction, data: &[u8]) -> Probed {
    let Some(message) = data.get(4..) else { return Probed::More };
    let Some(magic) = message.first_chunk::<4>() else {
        let may_be = |b: &u8| matches!(b, 0xfc..=0xff);
        return match message {
            [] => Probed::More,
            [first, rest @ ..] if may_be(first) && b"SMB".starts_with(rest) => Probed::More,
            _ => Probed::No,
        };
    };
    let yes = |response: bool| Probed::Yes { reverse: response == (dir == Direction::ToServer) };
    match magic {
        b"\xffSMB" => match message.get(Smb1::FLAGS) {
            Some(flags) => yes(flags & Smb1::REPLY != 0),
            None => Probed::More,
        },
        b"\xfeSMB" => match message.get(Smb2::FLAGS) {
            Some(flags) => yes(flags & Smb2::RESPONSE != 0),
            None => Probed::More,
        },
        b"\xfdSMB" | b"\xfcSMB" => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}

/// The set-up of a NetBIOS session (RFC 1002 section 4.3), followed by a message: a request with the server's encoded name, or
/// the positive response, which is empty.
fn session(dir: Direction, data: &[u8]) -> Probed {
    let Some(&[kind, a, b, c]) = data.first_chunk() else {
        return if matches!(data.first(), None | Some(0x81 | 0x82)) { Probed::More } else { Probed::No };
    };
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    match (kind, data.get(4)) {
        (0x81, Some(0x20)) if len <= 0x1_ffff => {}
        (0x81, None) => return Probed::More,
        (0x82, _) if len == 0 => {}
        _ => return Probed::No,
    }
    match data.get(4 + len..) {
        None | Some([]) => Probed::More,
        Some(message) => header(dir, message),
    }
}

/// A NetBIOS keep-alive (RFC 1002 section 4.3), followed by another session packet.
fn keep_alive(_: Direction, data: &[u8]) -> Probed {
    match data.first() {
        None => Probed::More,
        // A keep-alive has no content.
        Some(0x85) => match data.get(4) {
            Some(0x00 | 0x81..=0x85) => Probed::Yes { reverse: false },
            Some(_) => Probed::No,
            None => Probed::More,
        },
        Some(_) => Probed::No,
    }
}
