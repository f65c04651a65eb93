//! Telnet (RFC 854): commands and lines become frames for rules. There are no transactions and no events.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::Protocol;
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP};
use crate::tx::{LogFor, TxBase};

/// Interpret as command.
const IAC: u8 = 0xff;
/// A subnegotiation begins.
const SB: u8 = 0xfa;
/// The longest line and subnegotiation; a longer one becomes frames of this length.
const PIECE_MAX: usize = 4096;

/// Frame types, by number: any data, and the specific types.
const PDU: u8 = 0;
const CONTROL: u8 = 1;
const DATA: u8 = 2;

/// Telnet.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[23], probe }] },
    parser: parser::<Telnet>,
    frames: &["pdu", "ctl", "data"],
    event_key: "telnet",
    event_type: "telnet",
    ..Protocol::new(AppProto::Telnet, "telnet")
};

/// On its port, accepts any data. Without a command, it waits until the data exceeds every other protocol's patterns.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data {
        [IAC, 0xf0..=0xff, ..] => Probed::Yes { reverse: false },
        d if d.len() > 32 => Probed::Yes { reverse: false },
        _ => Probed::More,
    }
}

/// The state of a flow: empty.
#[derive(Debug)]
struct Telnet;

/// The offset of the first command in `data`: a byte 255 followed by another value. Two of them are a data byte.
fn command(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let n = at + data.get(at..)?.iter().position(|b| *b == IAC)?;
        if *data.get(n + 1)? != IAC {
            return Some(n);
        }
        at = n + 2;
    }
}

impl Conversation for Telnet {
    type Tx = Nothing;
    const PROTO: AppProto = AppProto::Telnet;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Telnet
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        // If the end is missing, the available part.
        let whole = |len: Option<usize>| match len {
            Some(len) => Framing::Message(len.min(PIECE_MAX)),
            None if data.len() >= PIECE_MAX => Framing::Message(PIECE_MAX),
            None if end => Framing::Message(data.len()),
            None => Framing::More,
        };
        match data {
            [IAC] => whole(None),
            // Up to the command that ends it.
            [IAC, SB, rest @ ..] => whole(command(rest).map(|n| n + 2)),
            // An option follows WILL, WON'T, DO and DON'T.
            [IAC, 0xfb..=0xfe, ..] => Framing::Message(3),
            [IAC, ..=0xfe, ..] => Framing::Message(2),
            _ => {
                let line = data.iter().position(|b| *b == b'\n').map(|n| n + 1);
                whole([line, command(data)].into_iter().flatten().min())
            }
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Nothing>, dir: Direction, message: &[u8]) -> Outcome {
        let kind = if matches!(message, [IAC, second, ..] if *second != IAC) { CONTROL } else { DATA };
        for kind in [PDU, kind] {
            turn.frame(dir, kind, 0, message.len(), None);
        }
        Outcome::More
    }

    /// After a gap, assume that a line or a command begins.
    fn gap(&mut self, _turn: &mut Turn<'_, '_, Nothing>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::More
    }
}

/// No transaction exists.
#[derive(Debug)]
enum Nothing {}

impl Content for Nothing {
    fn held(&self) -> u64 {
        0
    }

    fn log(&self, _base: &TxBase, _json: &mut Json, _options: &AppLogOptions, _what: LogFor) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Talk;

    fn telnet() -> Talk {
        let mut talk = Talk::tcp(AppProto::Telnet, 23);
        talk.shared.frames.wanted = true;
        talk
    }

    /// Type, offset and end of each frame, except those for any data.
    fn frames(talk: &Talk, dir: Direction) -> Vec<(u8, u64, u64)> {
        let all = talk.shared.frames.flow.of(dir).iter().map(|f| (f.kind, f.offset, f.end.unwrap_or(0)));
        all.filter(|f| f.0 != PDU).collect()
    }

    #[test]
    fn commands_and_lines() {
        let mut talk = telnet();
        talk.server(b"\xff\xfd\x25\xff\xfa\x22\xff\xff\x0b\xff\xf0\r\nOpenBSD\r\nlogin: \xff\xfb\x01");
        assert_eq!(
            frames(&talk, Direction::ToClient),
            [
                (CONTROL, 0, 3),
                (CONTROL, 3, 9),
                (CONTROL, 9, 11),
                (DATA, 11, 13),
                (DATA, 13, 22),
                (DATA, 22, 29),
                (CONTROL, 29, 32)
            ]
        );
        assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, 0));
        let all = talk.shared.frames.flow.of(Direction::ToClient).iter().filter(|f| f.kind == PDU).count();
        assert_eq!(all, 7);
    }

    #[test]
    fn in_any_pieces() {
        let bytes = b"\xff\xfb\x01us\xff\xffer\r\n\xff\xfa\x1f\x00\x50\xff\xf0\xff\xf1exit\n";
        let framings = |size: usize| {
            let (mut state, mut lens, mut held) = (Telnet, Vec::new(), Vec::new());
            for piece in bytes.chunks(size) {
                held.extend_from_slice(piece);
                while !held.is_empty()
                    && let Framing::Message(len) = state.framing(Direction::ToServer, &held, false)
                    && len <= held.len()
                {
                    held.drain(..len);
                    lens.push(len);
                }
            }
            lens
        };
        assert_eq!(framings(bytes.len()), [3, 8, 5, 2, 2, 5]);
        for size in 1..bytes.len() {
            assert_eq!(framings(size), framings(bytes.len()), "{size}");
        }
    }

    #[test]
    fn what_has_no_end() {
        let mut telnet = Telnet;
        let mut framing = |data: &[u8], end| telnet.framing(Direction::ToServer, data, end);
        assert_eq!((framing(b"login: ", false), framing(b"login: ", true)), (Framing::More, Framing::Message(7)));
        assert_eq!((framing(b"\xff", false), framing(b"\xff", true)), (Framing::More, Framing::Message(1)));
        assert_eq!(framing(&[b'x'; PIECE_MAX], false), Framing::Message(PIECE_MAX));
        let endless = [&[IAC, SB][..], &[IAC; 2 * PIECE_MAX]].concat();
        assert_eq!(framing(&endless, false), Framing::Message(PIECE_MAX));
        assert_eq!(framing(&[&[b'x'; PIECE_MAX][..], b"y\n"].concat(), false), Framing::Message(PIECE_MAX));
    }

    #[test]
    fn behind_a_hole() {
        let mut talk = telnet();
        talk.client(b"one\n").gap(Direction::ToServer, 9).client(b"two\n");
        assert_eq!((talk.outcome, frames(&talk, Direction::ToServer).len()), (Outcome::More, 2));
    }

    #[test]
    fn recognised_by_its_beginning() {
        let of = |data: &[u8]| probe(Direction::ToServer, data);
        assert_eq!(
            (of(b"\xff\xfd"), of(&[b'a'; 33])),
            (Probed::Yes { reverse: false }, Probed::Yes { reverse: false })
        );
        assert_eq!((of(b"\xff"), of(b"user"), of(b"")), (Probed::More, Probed::More, Probed::More));
    }
}
