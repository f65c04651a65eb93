//! STUN (RFC 8489, and RFC 3489 before it) with TURN (RFC 8656): each message is a transaction.

mod message;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::be16;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, word};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{Found, LogFor, TxBase};

use message::{COOKIE, HEADER, Message};

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:stun.NAME`).

    events! {
        "STUN";
        MalformedAttributes "malformed_attributes";
    }
}

/// Names of classes (RFC 8489 section 5).
const CLASSES: &[(&str, u64)] = &[("request", 0), ("indication", 1), ("success", 2), ("error", 3)];

/// Names of methods (RFC 8489 section 18.2, RFC 8656 section 17, RFC 6062 section 6.1).
const METHODS: &[(&str, u64)] = &[
    ("binding", 1),
    ("shared_secret", 2),
    ("allocate", 3),
    ("refresh", 4),
    ("send", 6),
    ("data", 7),
    ("create_permission", 8),
    ("channel_bind", 9),
    ("connect", 10),
    ("connection_bind", 11),
    ("connection_attempt", 12),
];

keywords! {
    Class Keyword::words(&["stun.class"], 3, CLASSES, KeywordDirection::Both);
    Method Keyword::words(&["stun.method"], 0xfff, METHODS, KeywordDirection::Both);
    ErrorCode Keyword::number(&["stun.error_code"], 699, KeywordDirection::Both);
    Username Keyword::buffer(&["stun.username"], KeywordDirection::Both);
    Realm Keyword::buffer(&["stun.realm"], KeywordDirection::Both);
    Software Keyword::buffer(&["stun.software"], KeywordDirection::Both);
}

/// The magic cookie, on any port.
const fn cookie(transport: u8, dir: Direction) -> Pattern {
    Pattern { transport, ..Pattern::tcp(dir, &COOKIE).at(4) }
}

/// STUN.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[
            cookie(UDP, Direction::ToServer),
            cookie(UDP, Direction::ToClient),
            cookie(TCP, Direction::ToServer),
            cookie(TCP, Direction::ToClient),
        ],
        probes: &[Probe { transport: UDP, ports: &[3478], probe }],
    },
    parser: parser::<Stun>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Stun, "stun").logged().own()
};

/// Checks for a message of RFC 3489, which has no cookie, on the usual port.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match Message::read(Direction::ToServer, data) {
        Some(m) if !m.is_cut && m.method == 1 => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct Stun;

impl Conversation for Stun {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Stun;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Stun
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        let (Some(kind), Some(len)) = (be16(data, 0), be16(data, 2)) else {
            return if end { Framing::Skip(data.len()) } else { Framing::More };
        };
        match kind >> 14 {
            0 => Framing::Message(HEADER + usize::from(len)),
            // Channel data, padded over TCP (RFC 8656 section 12.5).
            1 => Framing::Pass(4 + u64::from(len).next_multiple_of(4)),
            _ => Framing::Broken,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        // Other protocols share a UDP flow with STUN (RFC 7983).
        if let Some(message) = Message::read(dir, message) {
            let is_cut = message.is_cut;
            let tx = turn.one_way(dir, message);
            if is_cut {
                tx.event(events::Event::MalformedAttributes as u8);
            }
        }
        Outcome::More
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        let texts = [&self.username, &self.realm, &self.software, &self.reason];
        texts.into_iter().flatten().map(|t| t.len() as u64).sum()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let text = match Id::of(id)? {
            _ if dir != self.dir || index > 0 => return None,
            Id::Username => &self.username,
            Id::Realm => &self.realm,
            Id::Software => &self.software,
            Id::Class | Id::Method | Id::ErrorCode => return None,
        };
        text.as_deref().map(Found::whole)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        match Id::of(id)? {
            _ if dir != self.dir || index > 0 => None,
            Id::Class => Some(u64::from(self.class)),
            Id::Method => Some(u64::from(self.method)),
            Id::ErrorCode => self.error.map(u64::from),
            Id::Username | Id::Realm | Id::Software => None,
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("stun");
        json.str("class", word(CLASSES, u64::from(self.class)).unwrap_or_default());
        match word(METHODS, u64::from(self.method)) {
            Some(name) => json.str("method", name),
            None => json.uint("method_code", u64::from(self.method)),
        }
        json.hex("transaction_id", &self.id);
        for (key, text) in [("username", &self.username), ("realm", &self.realm), ("software", &self.software)] {
            if let Some(text) = text {
                json.bytes(key, text);
            }
        }
        if let Some(code) = self.error {
            json.uint("error_code", u64::from(code));
        }
        if let Some(reason) = &self.reason {
            json.bytes("reason", reason);
        }
        for (key, address) in [("mapped", self.mapped), ("relayed", self.relayed), ("peer", self.peer)] {
            if let Some((ip, port)) = address {
                json.object(key);
                json.ip("ip", ip);
                json.uint("port", u64::from(port));
                json.end_object();
            }
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    /// The request of RFC 5769 section 2.1, without its integrity and fingerprint.
    const REQUEST: &[u8] = b"\x00\x01\x00\x2c\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x10STUN test client\x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\
        \x00\x06\x00\x09evtj:h6vY\x20\x20\x20";
    /// The response of section 2.2: 192.0.2.1, port 32853.
    const RESPONSE: &[u8] = b"\x01\x01\x00\x1c\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x0btest vector\x20\x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43";

    /// A message with a corrected length.
    fn sized(message: &[u8]) -> Vec<u8> {
        let mut m = message.to_vec();
        let len = (m.len() - HEADER) as u16;
        m[2..4].copy_from_slice(&len.to_be_bytes());
        m
    }

    #[test]
    fn a_binding() {
        let mut talk = Talk::udp(AppProto::Stun, 3478);
        talk.client(&sized(REQUEST)).server(&sized(RESPONSE));
        assert_eq!(
            talk.logs(),
            [
                r#"{"stun":{"class":"request","method":"binding","transaction_id":"b7e7a701bc34d686fa87dfae","username":"evtj:h6vY","software":"STUN test client"}}"#,
                r#"{"stun":{"class":"success","method":"binding","transaction_id":"b7e7a701bc34d686fa87dfae","software":"test vector","mapped":{"ip":"192.0.2.1","port":32853}}}"#,
            ]
        );
        assert_eq!(talk.buffers("stun.username", ToServer), ["evtj:h6vY"]);
        assert_eq!((talk.numbers("stun.class", ToClient), talk.numbers("stun.method", ToServer)), (vec![2], vec![1]));
        assert!(talk.events().is_empty());
    }

    #[test]
    fn turn_over_tcp() {
        let error = sized(b"\x01\x13\0\0\x21\x12\xa4\x42abcdefghijkl\0\x09\0\x10\0\0\x04\x01Unauthorized");
        let mut talk = Talk::tcp(AppProto::Stun, 3478);
        // Five bytes of channel data, padded to eight, are skipped.
        talk.server(&[&error[..], b"\x40\x00\x00\x05hello\0\0\0", &error].concat());
        assert_eq!(talk.numbers("stun.error_code", ToClient), [401, 401]);
        assert!(talk.logs()[1].contains(r#""class":"error","method":"allocate""#), "{:?}", talk.logs());
        assert!(talk.logs()[0].ends_with(r#""error_code":401,"reason":"Unauthorized"}}"#), "{:?}", talk.logs());
        talk.server(b"\xffHTTP/1.1");
        assert_eq!(talk.outcome, Outcome::Failed);
    }

    #[test]
    fn what_is_no_message_or_cut() {
        let mut talk = Talk::udp(AppProto::Stun, 3478);
        // RTP, DTLS, a length that is not a multiple of four, and one beyond the datagram.
        let mut odd = sized(REQUEST);
        odd[3] += 1;
        let mut long = sized(REQUEST);
        long[3] += 4;
        talk.client(b"\x80\x60aaaaaaaaaaaaaaaaaaaaaaaa").client(b"\x16\xfe\xff\0\0aaaaaaaaaaaaaaaaaaaaa").client(&odd);
        talk.client(&long);
        assert!(talk.txs().is_empty());
        // An attribute beyond the message.
        talk.client(&sized(b"\0\x01\0\0\x21\x12\xa4\x42abcdefghijkl\x80\x22\0\x20soft"));
        assert_eq!(talk.events(), ["malformed_attributes"]);
        assert_eq!(probe(ToServer, &sized(REQUEST)), Probed::Yes { reverse: false });
        assert_eq!(probe(ToServer, b"\0\x01\0\0"), Probed::No);
    }
}
