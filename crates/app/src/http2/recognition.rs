//! Protocol detection for HTTP/2: the client's connection preface (RFC 9113, section 3.4), or the server's initial settings.

use margay_flow::Direction;

use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP};

use super::frame::{HEADER, Header, PREFACE, kind};

/// The longest initial `SETTINGS` frame of a server; only few settings exist.
const SETTINGS_MAX: u32 = 6 * 64;

/// The server's first frame: complete settings.
fn settings(dir: Direction, data: &[u8]) -> Probed {
    if dir != Direction::ToClient {
        return Probed::No;
    }
    // The first bytes exclude anything else.
    if !matches!(data, [] | [0] | [0, 0 | 1] | [0, 0 | 1, _] | [0, 0 | 1, _, kind::SETTINGS, ..]) {
        return Probed::No;
    }
    let Some(h) = Header::read(data) else { return Probed::More };
    if h.flags != 0 || h.stream != 0 || h.reserved || h.length > SETTINGS_MAX || !h.length.is_multiple_of(6) {
        return Probed::No;
    }
    if data.len() < HEADER + h.length as usize { Probed::More } else { Probed::Yes { reverse: false } }
}

/// Whether a client's data begins with the preface, or with a frame, as some send it after an upgrade.
pub(super) fn client_begins(data: &[u8]) -> Probed {
    let same = PREFACE.iter().zip(data).take_while(|(a, b)| a == b).count();
    match data {
        [0, ..] => Probed::Yes { reverse: false },
        _ if same == PREFACE.len() => Probed::Yes { reverse: false },
        _ if same == data.len() => Probed::More,
        _ => Probed::No,
    }
}

/// Whether a server's data begins with a frame.
pub(super) fn server_begins(data: &[u8]) -> bool {
    data.first() == Some(&0)
}

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[Pattern::tcp(Direction::ToServer, b"PRI * HTTP/2.0\r\n")],
    probes: &[Probe { transport: TCP, ports: &[], probe: settings }],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_server() {
        let yes = Probed::Yes { reverse: false };
        for (data, want) in [
            (&b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"[..], yes),
            (b"\0\0\0\x04\0\0\0\0\0", yes),
            (b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0", Probed::More),
            (b"\0\0", Probed::More),
            (b"\0\0\x05\x04\0\0\0\0\0\0\0\0\0\0", Probed::No),
            (b"\0\0\x06\x04\x01\0\0\0\0", Probed::No),
            (b"\0\0\x55\xffSMB", Probed::No),
            (b"HTTP/1.1 200", Probed::No),
        ] {
            assert_eq!(settings(Direction::ToClient, data), want, "{}", data.escape_ascii());
            assert_eq!(settings(Direction::ToServer, data), Probed::No);
        }
    }
}
