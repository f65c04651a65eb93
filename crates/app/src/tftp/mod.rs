//! TFTP (RFC 1350): requests to read or write a file are transactions. The transfer itself uses other ports.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::Protocol;
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{LogFor, TxBase};

/// Transfer modes (RFC 1350 section 5).
const MODES: [&str; 3] = ["netascii", "octet", "mail"];

/// TFTP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[69], probe }] },
    parser: parser::<Tftp>,
    ..Protocol::new(AppProto::Tftp, "tftp").logged()
};

/// Checks the operation (RFC 1350 section 5, RFC 2347).
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data {
        [0, 1..=6, _, _, ..] => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}

/// The state of a flow: nothing is kept between requests.
#[derive(Debug)]
struct Tftp;

impl Conversation for Tftp {
    type Tx = Request;
    const PROTO: AppProto = AppProto::Tftp;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Tftp
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Request>, dir: Direction, message: &[u8]) -> Outcome {
        match Request::read(message) {
            Some(request) => {
                turn.one_way(dir, request);
                Outcome::More
            }
            None if matches!(message, [0, 1 | 2, ..]) => turn.cx.unreadable(),
            None => Outcome::More,
        }
    }
}

/// A request to read or write a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    /// Whether it is a write.
    write: bool,
    /// The file name.
    file: Vec<u8>,
    /// The mode: `netascii`, `octet` or `mail`.
    mode: &'static str,
}

impl Request {
    /// Reads a request; `None` for any other datagram, or without a valid mode.
    fn read(data: &[u8]) -> Option<Request> {
        let (op, rest) = data.split_first_chunk::<2>()?;
        let write = match op {
            [0, 1] => false,
            [0, 2] => true,
            _ => return None,
        };
        let mut parts = rest.split(|b| *b == 0);
        let (file, mode) = (parts.next()?, parts.next()?);
        let mode = MODES.into_iter().find(|m| mode.eq_ignore_ascii_case(m.as_bytes()))?;
        Some(Request { write, file: file.to_vec(), mode })
    }
}

impl Content for Request {
    fn held(&self) -> u64 {
        self.file.capacity() as u64
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        only.unwrap_or(Direction::ToServer)
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("tftp");
        json.str("packet", if self.write { "write" } else { "read" });
        json.bytes("file", &self.file);
        json.str("mode", self.mode);
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Talk;

    #[test]
    fn requests() {
        let of = |data: &[u8]| Request::read(data).map(|r| (r.write, String::from_utf8(r.file).unwrap(), r.mode));
        assert_eq!(of(b"\0\x01rfc1350.txt\0octet\0"), Some((false, "rfc1350.txt".into(), "octet")));
        assert_eq!(of(b"\0\x02zz.bin\0NetASCII\0blksize\x001428\0"), Some((true, "zz.bin".into(), "netascii")));
        assert_eq!(of(b"\0\x01\0octet"), Some((false, String::new(), "octet")));
        for none in [&b"\0\x01\0\0"[..], b"\0\x01file\0octets\0", b"\0\x03\0\x01data", b"\0\x01file", b"\0", b""] {
            assert_eq!(of(none), None, "{}", none.escape_ascii());
        }
    }

    #[test]
    fn a_request_that_cannot_be_read_is_an_error() {
        let mut talk = Talk::udp(AppProto::Tftp, 69);
        let of = |talk: &mut Talk, data: &[u8]| talk.client(data).outcome;
        assert_eq!(of(&mut talk, b"\0\x01\0\0"), Outcome::Failed);
        assert_eq!(of(&mut talk, b"\0\x01file\0octets\0"), Outcome::Failed);
        assert_eq!(of(&mut talk, b"\0\x03\0\x01data"), Outcome::More);
        assert_eq!(of(&mut talk, b"\0\x01file\0octet\0"), Outcome::More);
    }

    #[test]
    fn the_log() {
        let mut talk = Talk::udp(AppProto::Tftp, 69);
        talk.client(b"\0\x02a\xffb\0octet\0").server(b"\0\x04\0\0");
        let text = talk.logs().concat();
        assert!(
            text.starts_with("{\"tftp\":{\"packet\":\"write\",\"file\":\"a") && text.ends_with("\"mode\":\"octet\"}}"),
            "{text}"
        );
        assert_eq!(talk.complete(), [[true, true]]);
    }
}
