//! How TLS is recognised: by the head of its first record (RFC 8446 section 5.1 and those before it), a handshake to the
//! server, and to the client an alert or data as well; and by the greeting of SSL 2.0 that offers SSL 3.0 or TLS (RFC 5246
//! appendix E.2), or SSL 2.0 itself.

use margay_flow::Direction;

use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP};

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

pub(super) const RECOGNITION: Recognition =
    Recognition { patterns: PATTERNS, probes: &[Probe { transport: TCP, ports: &[443], probe: sslv2_hello }] };

/// On the port of TLS: an SSL 2.0 greeting that offers SSL 3.0 or TLS.
fn sslv2_hello(dir: Direction, data: &[u8]) -> Probed {
    let Some(head) = data.first_chunk::<5>() else { return Probed::More };
    if dir == Direction::ToServer && head[0] & 0x80 != 0 && head[2] == 1 && head[3] == 3 {
        Probed::Yes { reverse: false }
    } else {
        Probed::No
    }
}
