//! Protocol detection for FTP: on any port by the commands that clients begin with (RFC 959 section 4.1, RFC 2389, RFC 4217);
//! on its own port also by the greeting, which elsewhere may be that of SMTP.

use margay_flow::Direction;

use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP};

const fn command(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToServer, bytes).nocase()
}

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[
        command(b"USER "),
        command(b"PASS "),
        command(b"PORT "),
        command(b"FEAT"),
        // Clients of FTPS begin so. POP3 and SMTP have other mechanisms.
        command(b"AUTH TLS"),
        command(b"AUTH SSL"),
        // Many servers greet like this. SMTP servers do not: their greeting continues with a name.
        Pattern::tcp(Direction::ToClient, b"220 ("),
    ],
    probes: &[Probe { transport: TCP, ports: &[21], probe: greeting }],
};

/// A reply code and its separator.
fn greeting(dir: Direction, data: &[u8]) -> Probed {
    if dir == Direction::ToServer {
        return Probed::No;
    }
    for (i, b) in data.iter().enumerate().take(4) {
        let fits = match i {
            // 120, 220, 421.
            0 => matches!(b, b'1' | b'2' | b'4'),
            1 => *b == b'2',
            2 => b.is_ascii_digit(),
            _ => matches!(b, b' ' | b'-'),
        };
        if !fits {
            return Probed::No;
        }
    }
    if data.len() < 4 { Probed::More } else { Probed::Yes { reverse: false } }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use margay_flow::FlowCore;
    use margay_packet::Time;

    use super::*;
    use crate::proto::AppProto;
    use crate::recognise::{RecogniseState, Recognised, Recogniser};

    #[test]
    fn greetings() {
        let probe = |data| greeting(Direction::ToClient, data);
        assert_eq!(probe(b"22"), Probed::More);
        assert_eq!(probe(b"220-hello"), Probed::Yes { reverse: false });
        assert_eq!(probe(b"421 busy"), Probed::Yes { reverse: false });
        assert_eq!(probe(b"2200"), Probed::No);
        assert_eq!(probe(b"HTTP/1.1"), Probed::No);
        assert_eq!(greeting(Direction::ToServer, b"220 x"), Probed::No);
    }

    #[test]
    fn clients_that_begin_with_a_request_for_tls() {
        let flow =
            FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 2121), Time(0));
        for (text, want) in
            [("AUTH TLS\r\n", AppProto::Ftp), ("auth ssl\r\n", AppProto::Ftp), ("AUTH\r\n", AppProto::Pop3)]
        {
            let mut state = RecogniseState::default();
            let got = Recogniser::default().recognise(&mut state, &flow, Direction::ToServer, text.as_bytes(), false);
            assert_eq!(got, Recognised::Known { proto: want, reverse: false }, "{text}");
        }
    }
}
