//! Protocol detection for SMTP: by a client's first command, or by a server's greeting (RFC 5321, section 4.2) that names the
//! protocol as it should. On the ports of SMTP, any greeting is enough; elsewhere it is not, because FTP servers greet with 220
//! too.

use margay_flow::Direction;

use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP};

const PATTERNS: &[Pattern] = &[
    Pattern::tcp(Direction::ToServer, b"EHLO").nocase(),
    Pattern::tcp(Direction::ToServer, b"HELO").nocase(),
    Pattern::tcp(Direction::ToServer, b"QUIT").nocase(),
];

const PROBES: &[Probe] = &[
    Probe { transport: TCP, ports: &[25, 465, 587], probe: greeting },
    Probe { transport: TCP, ports: &[], probe: greeting_of_smtp },
];

pub(super) const RECOGNITION: Recognition = Recognition { patterns: PATTERNS, probes: PROBES };

/// The longest first line of a greeting that is searched (RFC 5321, section 4.5.3.1.5).
const LONGEST: usize = 512;

fn greeting(dir: Direction, data: &[u8]) -> Probed {
    if dir == Direction::ToServer {
        return Probed::No;
    }
    match data {
        [b'2', b'2', b'0', b' ' | b'-', ..] => Probed::Yes { reverse: false },
        [b'2', b'2', b'0', b'\r' | b'\n', ..] => Probed::Yes { reverse: false },
        [] | [b'2'] | [b'2', b'2'] | [b'2', b'2', b'0'] => Probed::More,
        _ => Probed::No,
    }
}

fn greeting_of_smtp(dir: Direction, data: &[u8]) -> Probed {
    match greeting(dir, data) {
        Probed::Yes { .. } => {}
        other => return other,
    }
    let end = data.iter().position(|&b| b == b'\n');
    let line = data.get(..end.unwrap_or(data.len()).min(LONGEST)).unwrap_or(data);
    if line.windows(4).any(|w| w.eq_ignore_ascii_case(b"SMTP")) {
        Probed::Yes { reverse: false }
    } else if end.is_some() || data.len() >= LONGEST {
        Probed::No
    } else {
        Probed::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings() {
        let (yes, client) = (Probed::Yes { reverse: false }, Direction::ToClient);
        for (text, any, port) in [
            (&b"220 mx ESMTP ready\r\n"[..], yes, yes),
            (b"220-mx esmtp", yes, yes),
            (b"220 ftp ready", Probed::More, yes),
            (b"220 ftp ready\r\nSMTP", Probed::No, yes),
            (b"22", Probed::More, Probed::More),
            (b"2200", Probed::No, Probed::No),
            (b"SMTP", Probed::No, Probed::No),
        ] {
            assert_eq!((greeting_of_smtp(client, text), greeting(client, text)), (any, port), "{text:?}");
        }
        assert_eq!(greeting(Direction::ToServer, b"220 x"), Probed::No);
    }
}
