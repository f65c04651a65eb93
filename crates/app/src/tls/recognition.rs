//! Protocol detection for TLS. It accepts the header of the first record (RFC 8446 section 5.1 and its predecessors): a
//! handshake, and from the server also an alert or data; a ClientHello in a record with an unusual version, or after records
//! that servers skip; an SSL 2.0 greeting that offers SSL 3.0 or TLS (RFC 5246 appendix E.2); and SSL 2.0 itself.

use margay_flow::Direction;

use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP};

use super::handshake::kind::CLIENT_HELLO;
use super::record::{HEAD_LEN, Head, RECORD_MAX, kind};
use super::sslv2;

/// Level of an alert that does not end the session (RFC 5246 section 7.2).
const WARNING: u8 = 1;

const fn ts(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToServer, bytes)
}

const fn tc(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes)
}

const PATTERNS: &[Pattern] = &[
    ts(b"\x16\x03\x00"),
    ts(b"\x16\x03\x01"),
    ts(b"\x16\x03\x02"),
    ts(b"\x16\x03\x03"),
    ts(b"\x01\x00\x02").at(2),
    tc(b"\x15\x03\x00"),
    tc(b"\x15\x03\x01"),
    tc(b"\x15\x03\x02"),
    tc(b"\x15\x03\x03"),
    tc(b"\x16\x03\x00"),
    tc(b"\x16\x03\x01"),
    tc(b"\x16\x03\x02"),
    tc(b"\x16\x03\x03"),
    tc(b"\x17\x03\x00"),
    tc(b"\x17\x03\x01"),
    tc(b"\x17\x03\x02"),
    tc(b"\x17\x03\x03"),
];

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: PATTERNS,
    probes: &[
        Probe { transport: TCP, ports: &[443], probe: sslv2_hello },
        Probe { transport: TCP, ports: &[], probe: client_hello },
    ],
};

/// Whether a client's data begins with a record of TLS, or with a greeting of SSL 2.0.
pub(super) fn client_begins(data: &[u8]) -> Probed {
    let version = data.get(1);
    let (yes, no) = (Probed::Yes { reverse: false }, Probed::No);
    match data {
        [] => Probed::More,
        [first, ..] if matches!(*first, kind::CHANGE_CIPHER..=kind::HEARTBEAT) => match version {
            None => Probed::More,
            Some(3) => yes,
            Some(_) => no,
        },
        // The message follows the length of two bytes, or of three with padding.
        [first, ..] if sslv2::begins_with(*first) => match data.get(if first & 0x80 != 0 { 2 } else { 3 }) {
            None => Probed::More,
            Some(&sslv2::kind::CLIENT_HELLO) => yes,
            Some(_) => no,
        },
        _ => no,
    }
}

/// The limit of records before the ClientHello: OpenSSL skips 32 empty ones, Go 15 warnings.
const RECORDS_BEFORE: usize = 32;

/// On any port: a ClientHello in a record of any version that a server accepts, possibly after records that servers skip:
/// empty records, and warning alerts.
fn client_hello(dir: Direction, data: &[u8]) -> Probed {
    if dir != Direction::ToServer {
        return Probed::No;
    }
    let mut rest = data;
    for _ in 0..=RECORDS_BEFORE {
        if rest.first().is_some_and(|k| !matches!(*k, kind::ALERT | kind::HANDSHAKE)) {
            return Probed::No;
        }
        let Some(head) = Head::read(rest) else { return Probed::More };
        if !head.version.is_read() || head.len > RECORD_MAX {
            return Probed::No;
        }
        let body = rest.get(HEAD_LEN..).unwrap_or(&[]);
        match (head.kind, head.len, body.first()) {
            (_, 0, _) => {}
            (_, _, None) => return Probed::More,
            (kind::HANDSHAKE, _, Some(&CLIENT_HELLO)) => return Probed::Yes { reverse: false },
            (kind::ALERT, 2, Some(&WARNING)) => {}
            _ => return Probed::No,
        }
        rest = body.get(head.len..).unwrap_or(&[]);
    }
    Probed::No
}

/// On the port of TLS: an SSL 2.0 greeting that offers SSL 3.0 or TLS.
fn sslv2_hello(dir: Direction, data: &[u8]) -> Probed {
    let Some(head) = data.first_chunk::<5>() else { return Probed::More };
    if dir == Direction::ToServer && head[0] & 0x80 != 0 && head[2] == 1 && head[3] == 3 {
        Probed::Yes { reverse: false }
    } else {
        Probed::No
    }
}
