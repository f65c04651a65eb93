//! WireGuard (its paper, section 5.4): messages of the handshake are transactions; encrypted data is not parsed.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::le32;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, word};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{LogFor, TxBase};

/// Types of messages; their lengths are in `LENGTHS`.
const TYPES: &[(&str, u64)] = &[("initiation", 1), ("response", 2), ("cookie_reply", 3)];
/// The length of each type's messages.
const LENGTHS: [usize; 3] = [148, 92, 64];
/// Length of the last part, which answers a cookie.
const MAC2: usize = 16;

keywords! {
    Kind Keyword::words(&["wireguard.type"], 3, TYPES, KeywordDirection::Both);
    Sender Keyword::number(&["wireguard.sender"], u32::MAX as u64, KeywordDirection::Both);
    Receiver Keyword::number(&["wireguard.receiver"], u32::MAX as u64, KeywordDirection::Both);
}

/// WireGuard.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[], probe }] },
    parser: parser::<WireGuard>,
    keywords: KEYWORDS,
    numbers: &NUMBERS,
    ..Protocol::new(AppProto::Wireguard, "wireguard").logged().own()
};

/// Checks the length, which is fixed for each handshake message; on any port, because there is no usual one.
fn probe(_: Direction, data: &[u8]) -> Probed {
    if Handshake::read(Direction::ToServer, data).is_some() { Probed::Yes { reverse: false } } else { Probed::No }
}

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct WireGuard;

impl Conversation for WireGuard {
    type Tx = Handshake;
    const PROTO: AppProto = AppProto::Wireguard;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        WireGuard
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Handshake>, dir: Direction, message: &[u8]) -> Outcome {
        // The tunnel's packets follow.
        if let Some(handshake) = Handshake::read(dir, message) {
            turn.one_way(dir, handshake);
        }
        Outcome::More
    }
}

/// A message of the handshake.
#[derive(Debug, PartialEq, Eq)]
struct Handshake {
    dir: Direction,
    kind: u8,
    sender: Option<u32>,
    receiver: Option<u32>,
    /// It answers a cookie, which a busy peer requests.
    has_cookie: bool,
}

impl Handshake {
    fn read(dir: Direction, data: &[u8]) -> Option<Handshake> {
        let [kind @ 1..=3, 0, 0, 0, ..] = *data else { return None };
        if LENGTHS.get(usize::from(kind) - 1) != Some(&data.len()) {
            return None;
        }
        let (sender, receiver) = match kind {
            1 => (le32(data, 4), None),
            2 => (le32(data, 4), le32(data, 8)),
            _ => (None, le32(data, 4)),
        };
        let has_cookie = kind < 3 && data.last_chunk::<MAC2>().is_some_and(|mac| mac.iter().any(|b| *b != 0));
        Some(Handshake { dir, kind, sender, receiver, has_cookie })
    }
}

impl Content for Handshake {
    fn held(&self) -> u64 {
        0
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        match Id::of(id)? {
            _ if dir != self.dir || index > 0 => None,
            Id::Kind => Some(u64::from(self.kind)),
            Id::Sender => self.sender.map(u64::from),
            Id::Receiver => self.receiver.map(u64::from),
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("wireguard");
        json.str("type", word(TYPES, u64::from(self.kind)).unwrap_or_default());
        if let Some(sender) = self.sender {
            json.uint("sender", u64::from(sender));
        }
        if let Some(receiver) = self.receiver {
            json.uint("receiver", u64::from(receiver));
        }
        if self.has_cookie {
            json.bool("cookie", true);
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    fn message(kind: u8, len: usize) -> Vec<u8> {
        let mut m = vec![0; len];
        m[0] = kind;
        m[4..12].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        m
    }

    #[test]
    fn a_handshake() {
        let mut talk = Talk::udp(AppProto::Wireguard, 51820);
        talk.client(&message(1, 148)).server(&message(3, 64));
        let mut again = message(1, 148);
        again[147] = 1;
        talk.client(&again).server(&message(2, 92)).client(&message(4, 128)).server(&message(4, 32));
        assert_eq!(
            talk.logs(),
            [
                r#"{"wireguard":{"type":"initiation","sender":1}}"#,
                r#"{"wireguard":{"type":"cookie_reply","receiver":1}}"#,
                r#"{"wireguard":{"type":"initiation","sender":1,"cookie":true}}"#,
                r#"{"wireguard":{"type":"response","sender":1,"receiver":2}}"#,
            ]
        );
        assert_eq!(talk.numbers("wireguard.type", ToClient), [3, 2]);
        assert_eq!((talk.numbers("wireguard.receiver", ToClient), talk.outcome), (vec![1, 2], Outcome::More));
    }

    #[test]
    fn lengths_tell() {
        assert_eq!(probe(ToServer, &message(1, 148)), Probed::Yes { reverse: false });
        assert_eq!(probe(ToClient, &message(2, 92)), Probed::Yes { reverse: false });
        for other in [message(1, 147), message(2, 148), message(4, 148), vec![1, 0, 0, 0], Vec::new()] {
            assert_eq!(probe(ToServer, &other), Probed::No);
        }
        let mut talk = Talk::udp(AppProto::Wireguard, 51820);
        talk.client(b"something else");
        assert_eq!((talk.outcome, talk.txs().len()), (Outcome::More, 0));
    }
}
