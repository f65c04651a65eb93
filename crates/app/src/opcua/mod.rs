//! OPC UA (IEC 62541-6) over TCP: the greeting, opening a channel, and service requests are transactions, each with its
//! response.

mod message;
mod names;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::le32;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, word};
use crate::exchange::{Exchange, Waiting};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition};
use crate::tx::{Found, LogFor, TxBase};

use message::{HEADER, Kind, Message, NO_SECURITY};
use names::{KINDS, SERVICES};

/// The limit of parsed bytes in a message.
const SEEN: usize = 4096;
/// The longest message that is found after a gap.
const RESUME_MAX: usize = 1 << 24;

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:opcua.NAME`).

    events! {
        "OPC UA";
        MalformedMessage "malformed_message";
    }
}

keywords! {
    Type Keyword::words(&["opcua.type"], 6, KINDS, KeywordDirection::Both);
    Service Keyword::words(&["opcua.service"], u32::MAX as u64, SERVICES, KeywordDirection::Both);
    Status Keyword::number(&["opcua.status"], u32::MAX as u64, KeywordDirection::ToClient);
    Endpoint Keyword::buffer(&["opcua.endpoint_url"], KeywordDirection::Both);
    Policy Keyword::buffer(&["opcua.security_policy"], KeywordDirection::Both);
}

/// OPC UA.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[Pattern::tcp(Direction::ToServer, b"HELF"), Pattern::tcp(Direction::ToClient, b"ACKF")],
        probes: &[],
    },
    parser: parser::<OpcUa>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Opcua, "opcua").logged().own()
};

/// The state of a flow.
#[derive(Debug)]
struct OpcUa {
    /// Requests that wait for a response, by number. The greeting has the number 0, which no other request has.
    waiting: Waiting<u32>,
    /// The channel has no security, so its requests are readable.
    is_open: bool,
    /// By direction: another chunk of the message follows.
    divided: [bool; 2],
}

impl Conversation for OpcUa {
    type Tx = Exchange<Message>;
    const PROTO: AppProto = AppProto::Opcua;
    /// Device connections last for months. After a gap, the parser continues with the next message.
    const RESUMES: bool = true;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        OpcUa { waiting: Waiting::default(), is_open: false, divided: [false; 2] }
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        let begins = |w: &[u8]| {
            let is_kind = matches!(Kind::of(w), Some(Some(_))) && matches!(w.get(3), Some(b'F' | b'C' | b'A'));
            is_kind && le32(w, 4).is_some_and(|len| (HEADER..=RESUME_MAX).contains(&(len as usize)))
        };
        Resume::search(data, HEADER, begins)
    }

    fn gap(&mut self, _turn: &mut Turn<'_, '_, Exchange<Message>>, dir: Direction, _len: u64) -> Outcome {
        self.divided[dir.index()] = false;
        Outcome::More
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        match (Kind::of(data), le32(data, 4).map(|len| len as usize)) {
            (Some(None), _) => Framing::Broken,
            (_, None) if end => Framing::Skip(data.len()),
            (None, _) | (_, None) => Framing::More,
            (Some(_), Some(len)) if len < HEADER => Framing::Broken,
            (Some(_), Some(len)) => Framing::Head(len.min(SEEN), len.saturating_sub(SEEN) as u64),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange<Message>>, dir: Direction, data: &[u8]) -> Outcome {
        let Some(Some(kind)) = Kind::of(data) else { return Outcome::More };
        let is_part = std::mem::replace(&mut self.divided[dir.index()], data.get(3) == Some(&b'C'));
        if is_part {
            // The first chunk names the service.
            return Outcome::More;
        }
        let Some(message) = Message::read(kind, dir, data, self.is_open) else {
            turn.one_way(dir, Exchange::default()).event(events::Event::MalformedMessage as u8);
            return Outcome::More;
        };
        if let Some(policy) = &message.policy {
            self.is_open = policy.ends_with(NO_SECURITY);
        }
        let key = message.request;
        match dir {
            Direction::ToServer if kind == Kind::Close => {
                turn.one_way(dir, Exchange::of(dir, message));
            }
            Direction::ToServer => {
                self.waiting.ask(turn, dir, key, message);
            }
            Direction::ToClient => {
                self.waiting.answer(turn, dir, &key, message);
            }
        }
        Outcome::More
    }

    fn held(&self) -> u64 {
        self.waiting.held()
    }
}

impl Content for Exchange<Message> {
    fn held(&self) -> u64 {
        self.iter().map(Message::held).sum()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let message = self.get(dir).filter(|_| index == 0)?;
        match Id::of(id)? {
            Id::Endpoint => message.endpoint.as_deref().map(Found::whole),
            Id::Policy => message.policy.as_deref().map(Found::whole),
            Id::Type | Id::Service | Id::Status => None,
        }
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let message = self.get(dir).filter(|_| index == 0)?;
        match Id::of(id)? {
            Id::Type => Some(message.kind as u64),
            Id::Service => message.service.map(u64::from),
            Id::Status => message.status.map(u64::from),
            Id::Endpoint | Id::Policy => None,
        }
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        only.unwrap_or(Direction::ToServer)
    }

    /// An invalid message only has an anomaly.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(!self.is_empty())
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("opcua");
        for (key, message) in [("request", self.get(Direction::ToServer)), ("response", self.get(Direction::ToClient))]
        {
            if let Some(message) = message {
                json.object(key);
                shown(message, json);
                json.end_object();
            }
        }
        json.end_object();
    }
}

/// Appends the members of a message.
fn shown(message: &Message, json: &mut Json) {
    json.str("type", word(KINDS, message.kind as u64).unwrap_or_default());
    if let Some(channel) = message.channel {
        json.uint("channel", u64::from(channel));
        json.uint("request_id", u64::from(message.request));
    }
    if let Some(version) = message.version {
        json.uint("version", u64::from(version));
    }
    if let Some(endpoint) = &message.endpoint {
        json.bytes("endpoint_url", endpoint);
    }
    if let Some(policy) = &message.policy {
        json.bytes("security_policy", policy);
    }
    if let Some(service) = message.service {
        match word(SERVICES, u64::from(service)) {
            Some(name) => json.str("service", name),
            None => json.uint("service_id", u64::from(service)),
        }
    }
    if let Some(status) = message.status {
        json.uint("status", u64::from(status));
    }
    if let Some(reason) = &message.reason {
        json.bytes("reason", reason);
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    fn sized(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&kind[..], &((HEADER + body.len()) as u32).to_le_bytes(), body].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    fn hello() -> Vec<u8> {
        sized(b"HELF", &[&[0; 20][..], &text("opc.tcp://plc:4840")].concat())
    }

    fn open(policy: &str, request: u8) -> Vec<u8> {
        let absent = [0xff; 8];
        let ids = [9, 0, 0, 0, request, 0, 0, 0, 1, 0, 0xbe, 1];
        sized(b"OPNF", &[&[7, 0, 0, 0][..], &text(policy), &absent, &ids].concat())
    }

    fn message(service: [u8; 2], behind: &[u8]) -> Vec<u8> {
        let head = [7, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0, 1, 0];
        sized(b"MSGF", &[&head[..], &service, behind].concat())
    }

    const NONE: &str = "http://opcfoundation.org/UA/SecurityPolicy#None";

    #[test]
    fn a_value_is_read() {
        let mut talk = Talk::tcp(AppProto::Opcua, 4840);
        talk.client(&hello()).server(&sized(b"ACKF", &[0; 20])).client(&open(NONE, 4));
        assert_eq!(talk.complete(), [[true, true], [true, false]]);
        // ReadRequest, and a response with BadUserAccessDenied.
        talk.client(&message([0x77, 2], &[0; 9]));
        talk.server(&message([0x7a, 2], &[&[0; 12][..], &0x801f_0000u32.to_le_bytes()].concat()));
        assert_eq!(
            talk.logs(),
            [
                r#"{"opcua":{"request":{"type":"hello","version":0,"endpoint_url":"opc.tcp://plc:4840"},"response":{"type":"acknowledge","version":0}}}"#,
                r#"{"opcua":{"request":{"type":"open_channel","channel":7,"request_id":4,"security_policy":"http://opcfoundation.org/UA/SecurityPolicy#None","service":"open_secure_channel_request"}}}"#,
                r#"{"opcua":{"request":{"type":"message","channel":7,"request_id":5,"service":"read_request"},"response":{"type":"message","channel":7,"request_id":5,"service":"read_response","status":2149515264}}}"#,
            ]
        );
        assert_eq!(talk.buffers("opcua.endpoint_url", ToServer), ["opc.tcp://plc:4840"]);
        assert_eq!(
            (talk.numbers("opcua.service", ToServer), talk.numbers("opcua.type", ToClient)),
            (vec![446, 631], vec![1, 4])
        );
        assert_eq!(talk.numbers("opcua.status", ToClient), [0x801f_0000]);
        assert!(talk.events().is_empty());
    }

    #[test]
    fn secured_and_divided() {
        let mut talk = Talk::tcp(AppProto::Opcua, 4840);
        talk.client(&open("http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256", 1))
            .client(&message([0x77, 2], &[]));
        assert!(talk.numbers("opcua.service", ToServer).is_empty());
        // A long message in two chunks is one request; only its first bytes are parsed.
        let mut first = message([0xa1, 2], &[0; 10_000]);
        first[3] = b'C';
        talk.client(&open(NONE, 2)).client(&first).client(&message([0, 0], &[0; 50]));
        assert_eq!((talk.numbers("opcua.service", ToServer), talk.txs().len()), (vec![446, 673], 4));
        talk.client(b"GET / HTTP/1.1");
        assert_eq!(talk.outcome, Outcome::Failed);
    }

    #[test]
    fn messages_behind_a_gap() {
        let mut talk = Talk::tcp(AppProto::Opcua, 4840);
        let next = [&b"MSG\0HEL"[..], &message([0x77, 2], &[0; 9])].concat();
        talk.client(&open(NONE, 4)).gap(ToServer, 60).client(&next[..9]).client(&next[9..]);
        assert_eq!((talk.numbers("opcua.service", ToServer), talk.outcome), (vec![446, 631], Outcome::More));
    }

    #[test]
    fn what_is_cut() {
        let mut talk = Talk::tcp(AppProto::Opcua, 4840);
        talk.client(&sized(b"HELF", &[0; 12])).client(&sized(b"MSGF", b"")).client(&sized(b"OPNF", &[0xff; 8]));
        assert_eq!(talk.events(), ["malformed_message"; 3]);
        assert!(talk.logs().is_empty());
    }
}
