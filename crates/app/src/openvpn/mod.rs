//! OpenVPN: the resets that begin a session are transactions; encrypted data is not parsed.
//!
//! A packet begins with a byte for its type and key id; over TCP, a two-byte length precedes it. A reset continues with the
//! session id. Unless the control channel is protected (`tls-auth`, `tls-crypt`), acknowledgements and a packet id follow
//! (OpenVPN's protocol documentation, "The Control Channel").

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::be16;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, word};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{Found, LogFor, TxBase};

/// Packet types that begin a session.
const RESETS: &[(&str, u64)] = &[
    ("hard_reset_client_v1", 1),
    ("hard_reset_server_v1", 2),
    ("hard_reset_client_v2", 7),
    ("hard_reset_server_v2", 8),
    ("hard_reset_client_v3", 10),
];
/// The highest type.
const LAST: u8 = 11;
/// Length of the unprotected part: the type and the session id.
const BEGINNING: usize = 9;
/// Length of an unprotected client reset: no acknowledgements, and a packet id.
const PLAIN: usize = BEGINNING + 1 + 4;
/// Length of an unprotected server reset, which acknowledges one packet of the client's session.
const PLAIN_ANSWER: usize = PLAIN + 4 + 8;
/// Size of the length over TCP.
const LENGTH: usize = 2;

keywords! {
    Kind Keyword::words(&["openvpn.type"], 31, RESETS, KeywordDirection::Both);
    Session Keyword::buffer(&["openvpn.session_id"], KeywordDirection::Both);
}

/// OpenVPN.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[],
        probes: &[
            Probe { transport: UDP, ports: &[1194], probe: datagram },
            Probe { transport: TCP, ports: &[1194], probe: stream },
        ],
    },
    parser: parser::<OpenVpn>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    ..Protocol::new(AppProto::Openvpn, "openvpn").logged().own()
};

/// Checks for a reset that this side sends.
fn datagram(dir: Direction, data: &[u8]) -> Probed {
    match Reset::read(dir, data) {
        Some(reset) => Probed::Yes { reverse: reset.is_of_client() != (dir == Direction::ToServer) },
        None => Probed::No,
    }
}

fn stream(dir: Direction, data: &[u8]) -> Probed {
    match be16(data, 0).map(|len| data.get(LENGTH..LENGTH + usize::from(len))) {
        Some(Some(packet)) => datagram(dir, packet),
        // The first packet shows whether to wait for the rest.
        _ => match data.get(LENGTH) {
            Some(first) if word(RESETS, u64::from(first >> 3)).is_none() || first & 7 != 0 => Probed::No,
            _ => Probed::More,
        },
    }
}

/// The state of a flow.
#[derive(Debug)]
struct OpenVpn {
    stream: bool,
}

impl Conversation for OpenVpn {
    type Tx = Reset;
    const PROTO: AppProto = AppProto::Openvpn;

    fn new(_config: &AppConfig, flow: &FlowCore) -> Self {
        OpenVpn { stream: flow.proto == 6 }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        let (Some(len), Some(first)) = (be16(data, 0), data.get(LENGTH)) else {
            return if end { Framing::Skip(data.len()) } else { Framing::More };
        };
        let whole = LENGTH + usize::from(len);
        match first >> 3 {
            kind if len == 0 || kind == 0 || kind > LAST => Framing::Broken,
            kind if word(RESETS, u64::from(kind)).is_some() => Framing::Message(whole),
            _ => Framing::Pass(whole as u64),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Reset>, dir: Direction, message: &[u8]) -> Outcome {
        let packet = message.get(if self.stream { LENGTH } else { 0 }..).unwrap_or(&[]);
        if let Some(reset) = Reset::read(dir, packet) {
            turn.one_way(dir, reset);
        }
        Outcome::More
    }
}

/// A reset.
#[derive(Debug, PartialEq, Eq)]
struct Reset {
    dir: Direction,
    kind: u8,
    session: [u8; 8],
    /// The control channel is protected.
    is_protected: bool,
}

impl Reset {
    fn read(dir: Direction, data: &[u8]) -> Option<Reset> {
        let (first, rest) = data.split_first()?;
        let (kind, session) = (first >> 3, *rest.first_chunk()?);
        word(RESETS, u64::from(kind)).filter(|_| first & 7 == 0 && data.len() >= PLAIN)?;
        let acknowledged = data.get(BEGINNING);
        let is_plain = matches!((data.len(), acknowledged), (PLAIN, Some(0)) | (PLAIN_ANSWER, Some(1)));
        Some(Reset { dir, kind, session, is_protected: !is_plain })
    }

    const fn is_of_client(&self) -> bool {
        !matches!(self.kind, 2 | 8)
    }
}

impl Content for Reset {
    fn held(&self) -> u64 {
        0
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::Session && dir == self.dir && index == 0).then(|| Found::whole(&self.session))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        (Id::of(id)? == Id::Kind && dir == self.dir && index == 0).then_some(u64::from(self.kind))
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("openvpn");
        json.str("type", word(RESETS, u64::from(self.kind)).unwrap_or_default());
        json.hex("session_id", &self.session);
        json.bool("protected", self.is_protected);
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    const CLIENT: &[u8] = b"\x38\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0";
    const SERVER: &[u8] = b"\x40\x11\x12\x13\x14\x15\x16\x17\x18\x01\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0";

    fn over_tcp(packet: &[u8]) -> Vec<u8> {
        [&(packet.len() as u16).to_be_bytes()[..], packet].concat()
    }

    #[test]
    fn resets() {
        let expected = [
            r#"{"openvpn":{"type":"hard_reset_client_v2","session_id":"0102030405060708","protected":false}}"#,
            r#"{"openvpn":{"type":"hard_reset_server_v2","session_id":"1112131415161718","protected":false}}"#,
        ];
        let control = [&[0x20][..], &[7; 60]].concat();
        let mut talk = Talk::udp(AppProto::Openvpn, 1194);
        talk.client(CLIENT).server(SERVER).client(&control);
        assert_eq!((talk.logs(), talk.outcome), (expected.map(str::to_owned).to_vec(), Outcome::More));
        assert_eq!(talk.numbers("openvpn.type", ToClient), [8]);
        assert_eq!(talk.buffers("openvpn.session_id", ToServer), ["\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08"]);
        let mut talk = Talk::tcp(AppProto::Openvpn, 1194);
        talk.client(&over_tcp(CLIENT)).server(&[over_tcp(SERVER), over_tcp(&control)].concat());
        // A gap in a skipped packet does no harm.
        talk.client(&over_tcp(&control)[..20]).gap(ToServer, 20).client(&over_tcp(&control)[40..]);
        assert_eq!((talk.logs(), talk.outcome), (expected.map(str::to_owned).to_vec(), Outcome::More));
        talk.client(b"\0\x05\xffnone");
        assert_eq!(talk.outcome, Outcome::Failed);
    }

    #[test]
    fn protection() {
        let protected = [&CLIENT[..9], &[0x5a; 45]].concat();
        assert_eq!(Reset::read(ToServer, &protected).map(|r| r.is_protected), Some(true));
        assert_eq!(Reset::read(ToServer, CLIENT).map(|r| r.is_protected), Some(false));
    }

    #[test]
    fn recognition() {
        assert_eq!(datagram(ToServer, CLIENT), Probed::Yes { reverse: false });
        assert_eq!(datagram(ToServer, SERVER), Probed::Yes { reverse: true });
        assert_eq!(datagram(ToServer, b"8 is a number"), Probed::No);
        let whole = over_tcp(CLIENT);
        assert_eq!(stream(ToServer, &whole), Probed::Yes { reverse: false });
        assert_eq!(stream(ToServer, &whole[..9]), Probed::More);
        assert_eq!(stream(ToServer, b"GET / HTTP/1.1"), Probed::No);
    }
}
