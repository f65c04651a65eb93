//! RADIUS (RFC 2865, 2866, 5176): a request with its response is a transaction. Passwords are not kept.

mod packet;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, named, word};
use crate::exchange::{Exchange, Waiting};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{Found, LogFor, TxBase};

use packet::{ATTRIBUTES, CODES, Packet, STATUS, STATUS_TYPES, Value, attribute};

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:radius.NAME`).

    events! {
        "RADIUS";
        MalformedAttributes "malformed_attributes";
        UnsolicitedResponse "unsolicited_response";
    }
}
use events::Event;

keywords! {
    Code Keyword::words(&["radius.code"], 255, CODES, KeywordDirection::Both);
    Status Keyword::words(&["radius.acct_status_type"], u32::MAX as u64, STATUS_TYPES, KeywordDirection::Both);
    UserName Keyword::buffer(&["radius.user_name"], KeywordDirection::Both);
    NasIdentifier Keyword::buffer(&["radius.nas_identifier"], KeywordDirection::Both);
    CalledStation Keyword::buffer(&["radius.called_station_id"], KeywordDirection::Both);
    CallingStation Keyword::buffer(&["radius.calling_station_id"], KeywordDirection::Both);
    ReplyMessage Keyword::buffers(&["radius.reply_message"], KeywordDirection::Both);
}

/// RADIUS.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[],
        probes: &[Probe { transport: UDP, ports: &[1812, 1813, 1645, 1646, 3799], probe }],
    },
    parser: parser::<Radius>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Radius, "radius").logged().own()
};

fn probe(_: Direction, data: &[u8]) -> Probed {
    if Packet::read(data).is_some() { Probed::Yes { reverse: false } } else { Probed::No }
}

/// The state of a flow.
#[derive(Debug)]
struct Radius {
    /// Requests that wait for a response, by their direction and identifier: at most 512.
    waiting: Waiting<(Direction, u8)>,
}

impl Conversation for Radius {
    type Tx = Exchange<Packet>;
    const PROTO: AppProto = AppProto::Radius;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Radius { waiting: Waiting::default() }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange<Packet>>, dir: Direction, message: &[u8]) -> Outcome {
        let Some(packet) = Packet::read(message) else { return Outcome::More };
        let (id, is_cut) = (packet.id, packet.is_cut);
        let (number, asked) = if packet.is_request() {
            (self.waiting.ask(turn, dir, (dir, id), packet), true)
        } else {
            self.waiting.answer(turn, dir, &(dir.reverse(), id), packet)
        };
        if let Some(tx) = turn.tx(number) {
            if !asked {
                tx.event(Event::UnsolicitedResponse as u8);
            }
            if is_cut {
                tx.event(Event::MalformedAttributes as u8);
            }
        }
        Outcome::More
    }

    fn held(&self) -> u64 {
        self.waiting.held()
    }
}

impl Exchange<Packet> {
    fn request(&self) -> Option<&Packet> {
        self.iter().find(|p| p.is_request())
    }

    fn response(&self) -> Option<&Packet> {
        self.iter().find(|p| !p.is_request())
    }
}

impl Content for Exchange<Packet> {
    fn held(&self) -> u64 {
        self.iter().map(Packet::held).sum()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let code = match Id::of(id)? {
            Id::UserName => attribute::USER_NAME,
            Id::NasIdentifier => attribute::NAS_IDENTIFIER,
            Id::CalledStation => attribute::CALLED_STATION,
            Id::CallingStation => attribute::CALLING_STATION,
            Id::ReplyMessage => attribute::REPLY_MESSAGE,
            Id::Code | Id::Status => return None,
        };
        self.get(dir)?.all(code).nth(index).map(Found::whole)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let packet = self.get(dir).filter(|_| index == 0)?;
        match Id::of(id)? {
            Id::Code => Some(u64::from(packet.code)),
            Id::Status => packet.number(STATUS),
            _ => None,
        }
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        let of = |dir: Direction| self.get(dir).is_some_and(Packet::is_request);
        only.unwrap_or(if of(Direction::ToClient) { Direction::ToClient } else { Direction::ToServer })
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("radius");
        if let Some(p) = self.request().or(self.response()) {
            json.uint("id", u64::from(p.id));
        }
        if let Some(request) = self.request() {
            shown(request, json);
        }
        if let Some(response) = self.response() {
            json.object("response");
            shown(response, json);
            json.end_object();
        }
        json.end_object();
    }
}

/// Appends the members of a packet.
fn shown(packet: &Packet, json: &mut Json) {
    match word(CODES, u64::from(packet.code)) {
        Some(name) => json.str("code", name),
        None => json.uint("code_number", u64::from(packet.code)),
    }
    for (code, key, kind) in ATTRIBUTES {
        match kind {
            Value::Text => {
                if let Some(text) = packet.all(*code).next() {
                    json.bytes(key, text);
                }
            }
            Value::Number => {
                if let Some(n) = packet.number(*code) {
                    json.uint(key, n);
                }
            }
            Value::Words(words) => {
                if let Some(n) = packet.number(*code) {
                    named(json, key, words, n);
                }
            }
            Value::Address => {
                if let Some(n) = packet.number(*code).and_then(|n| u32::try_from(n).ok()) {
                    json.ip(key, std::net::IpAddr::from(n.to_be_bytes()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    /// The request of RFC 2865 section 7.1: nemo logs in at port 3 of 192.168.1.16.
    const REQUEST: &[u8] = b"\x01\x00\x00\x38\x0f\x40\x3f\x94\x73\x97\x80\x57\xbd\x83\xd5\xcb\x98\xf4\x22\x7a\
        \x01\x06nemo\x02\x12\x0d\xbe\x70\x8d\x93\xd4\x13\xce\x31\x96\xe4\x3f\x78\x2a\x0a\xee\
        \x04\x06\xc0\xa8\x01\x10\x05\x06\x00\x00\x00\x03";
    /// The response: a Telnet login to a host.
    const ACCEPT: &[u8] = b"\x02\x00\x00\x26\x86\xfe\x22\x0e\x76\x24\xba\x2a\x10\x05\xf6\xbf\x9b\x55\xe0\xb2\
        \x06\x06\x00\x00\x00\x01\x0f\x06\x00\x00\x00\x00\x0e\x06\xc0\xa8\x01\x03";

    #[test]
    fn a_login() {
        let mut talk = Talk::udp(AppProto::Radius, 1812);
        talk.client(REQUEST);
        assert_eq!(talk.complete(), [[true, false]]);
        talk.server(ACCEPT);
        assert_eq!(talk.complete(), [[true, true]]);
        assert_eq!(
            talk.logs(),
            [
                r#"{"radius":{"id":0,"code":"access_request","user_name":"nemo","nas_ip":"192.168.1.16","nas_port":3,"response":{"code":"access_accept","service_type":1}}}"#
            ]
        );
        assert_eq!(talk.buffers("radius.user_name", ToServer), ["nemo"]);
        assert_eq!((talk.numbers("radius.code", ToServer), talk.numbers("radius.code", ToClient)), (vec![1], vec![2]));
        assert!(talk.events().is_empty());
    }

    #[test]
    fn accounting() {
        let request = b"\x04\x07\x00\x2b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x28\x06\0\0\0\x02\x2c\x05abc\x2e\x06\0\0\x0e\x10\x01\x06nemo";
        let mut talk = Talk::udp(AppProto::Radius, 1813);
        talk.client(request).client(request);
        assert_eq!(talk.complete(), [[true, true], [true, false]]);
        assert_eq!(talk.numbers("radius.acct_status_type", ToServer), [2, 2]);
        assert_eq!(
            talk.logs()[0],
            r#"{"radius":{"id":7,"code":"accounting_request","user_name":"nemo","acct_status_type":"stop","acct_session_id":"abc","acct_session_time":3600}}"#
        );
    }

    #[test]
    fn what_is_wrong() {
        let mut talk = Talk::udp(AppProto::Radius, 1812);
        talk.server(ACCEPT);
        assert_eq!(talk.events(), ["unsolicited_response"]);
        let mut cut = REQUEST.to_vec();
        cut[21] = 80;
        talk.client(&cut);
        assert_eq!(talk.events(), ["unsolicited_response", "malformed_attributes"]);
        assert_eq!(probe(ToServer, REQUEST), Probed::Yes { reverse: false });
        assert_eq!(probe(ToServer, &REQUEST[..40]), Probed::No);
        talk.client(b"\x01\x00\x00\x13");
        assert_eq!((talk.outcome, talk.txs().len()), (Outcome::More, 2));
    }
}
