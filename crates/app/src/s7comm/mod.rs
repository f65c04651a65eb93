//! S7 communication between controllers and engineering stations, over ISO transport (RFC 1006) on port 102. A job with its
//! acknowledgement is a transaction.

mod names;
mod pdu;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::be16;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, named};
use crate::exchange::{Exchange, Waiting};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP};
use crate::tx::{LogFor, TxBase};

use names::{AREAS, FUNCTIONS, KINDS, USER_GROUPS};
use pdu::{Pdu, USER_DATA};

/// Length of the RFC 1006 header: version 3, 0, and the total length.
const TPKT: usize = 4;
/// Length of a data transport header (ISO 8073 section 13.7, class 0).
const COTP: usize = 3;
/// The type of an ISO transport PDU with data.
const DATA: u8 = 0xf0;
/// First byte of a PDU of S7.
const PROTOCOL_ID: u8 = 0x32;
/// The limit of packets for detection: a connection request and the first data packet.
const PACKETS: usize = 3;

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:s7comm.NAME`).

    events! {
        "S7 communication";
        MalformedPdu "malformed_pdu";
        UnsolicitedResponse "unsolicited_response";
    }
}
use events::Event;

keywords! {
    Kind Keyword::words(&["s7comm.type"], 255, KINDS, KeywordDirection::Both);
    Function Keyword::words(&["s7comm.function"], 255, FUNCTIONS, KeywordDirection::Both);
    UserGroup Keyword::words(&["s7comm.user_group"], 15, USER_GROUPS, KeywordDirection::Both);
    Subfunction Keyword::number(&["s7comm.subfunction"], 255, KeywordDirection::Both);
    Area Keyword::words(&["s7comm.area"], 255, AREAS, KeywordDirection::Both);
    Block Keyword::number(&["s7comm.db"], 65_535, KeywordDirection::Both);
    Error Keyword::number(&["s7comm.error"], 65_535, KeywordDirection::Both);
}

/// S7 communication.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[102], probe }] },
    parser: parser::<S7>,
    keywords: KEYWORDS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::S7comm, "s7comm").logged().own()
};

/// The length of a packet; `None` if more bytes are needed, `Some(None)` if it is not a packet.
fn packet(data: &[u8]) -> Option<Option<usize>> {
    match data {
        [3, 0, ..] => be16(data, 2).map(|len| Some(usize::from(len)).filter(|len| *len > TPKT + 2)),
        [] | [3] => None,
        _ => Some(None),
    }
}

/// The first data in ISO transport decides, because other protocols begin connections in the same way.
fn probe(_: Direction, data: &[u8]) -> Probed {
    let mut rest = data;
    for _ in 0..PACKETS {
        let Some(len) = packet(rest) else { return Probed::More };
        let Some(len) = len else { return Probed::No };
        match rest.get(TPKT + 1) {
            None => return Probed::More,
            Some(&DATA) => {
                return match rest.get(TPKT + COTP) {
                    None if len > TPKT + COTP => Probed::More,
                    Some(&PROTOCOL_ID) => Probed::Yes { reverse: false },
                    _ => Probed::No,
                };
            }
            Some(_) => match rest.get(len..) {
                Some(behind) => rest = behind,
                None => return Probed::More,
            },
        }
    }
    Probed::No
}

/// The state of a flow.
#[derive(Debug)]
struct S7 {
    /// Jobs that wait for an acknowledgement, by the sender's direction and their reference.
    waiting: Waiting<(Direction, u16)>,
}

impl Conversation for S7 {
    type Tx = Exchange<Pdu>;
    const PROTO: AppProto = AppProto::S7comm;
    /// Device connections last for months. After a gap, the parser continues with the next packet.
    const RESUMES: bool = true;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        S7 { waiting: Waiting::default() }
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        let begins = |w: &[u8]| {
            matches!(packet(w), Some(Some(_))) && w.get(TPKT + 1) == Some(&DATA) && w.last() == Some(&PROTOCOL_ID)
        };
        Resume::search(data, TPKT + COTP + 1, begins)
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        match packet(data) {
            Some(Some(len)) => Framing::Message(len),
            Some(None) => Framing::Broken,
            None if end => Framing::Skip(data.len()),
            None => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange<Pdu>>, dir: Direction, message: &[u8]) -> Outcome {
        let carried = match message.get(TPKT..) {
            // The rest of a segmented PDU begins differently, and is not needed.
            Some([_, DATA, _, carried @ ..]) if carried.first() == Some(&PROTOCOL_ID) => carried,
            _ => return Outcome::More,
        };
        let Some(pdu) = Pdu::read(carried) else {
            turn.one_way(dir, Exchange::default()).event(Event::MalformedPdu as u8);
            return Outcome::More;
        };
        let (reference, is_cut, kind) = (pdu.reference, pdu.is_cut, pdu.kind);
        let (number, asked) = if pdu.is_request() {
            (self.waiting.ask(turn, dir, (dir, reference), pdu), true)
        } else {
            self.waiting.answer(turn, dir, &(dir.reverse(), reference), pdu)
        };
        if let Some(tx) = turn.tx(number) {
            // Cyclic data needs no request.
            if !asked && kind != USER_DATA {
                tx.event(Event::UnsolicitedResponse as u8);
            }
            if is_cut {
                tx.event(Event::MalformedPdu as u8);
            }
        }
        Outcome::More
    }

    fn held(&self) -> u64 {
        self.waiting.held()
    }
}

impl Exchange<Pdu> {
    fn request(&self) -> Option<&Pdu> {
        self.iter().find(|p| p.is_request())
    }

    fn response(&self) -> Option<&Pdu> {
        self.iter().find(|p| !p.is_request())
    }
}

impl Content for Exchange<Pdu> {
    fn held(&self) -> u64 {
        self.iter().map(Pdu::held).sum()
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let pdu = self.get(dir)?;
        match Id::of(id)? {
            Id::Area => pdu.items.get(index).map(|i| u64::from(i.area)),
            Id::Block => pdu.items.iter().filter(|i| i.db > 0).nth(index).map(|i| u64::from(i.db)),
            _ if index > 0 => None,
            Id::Kind => Some(u64::from(pdu.kind)),
            Id::Function => pdu.function.map(u64::from),
            Id::UserGroup => pdu.user.map(|u| u64::from(u.0)),
            Id::Subfunction => pdu.user.map(|u| u64::from(u.1)),
            Id::Error => pdu.error.map(u64::from),
        }
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        let is_request = |dir: Direction| self.get(dir).is_some_and(Pdu::is_request);
        only.unwrap_or(if is_request(Direction::ToClient) { Direction::ToClient } else { Direction::ToServer })
    }

    /// An invalid PDU only has an anomaly.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(!self.is_empty())
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("s7comm");
        if let Some(p) = self.request().or(self.response()) {
            json.uint("reference", u64::from(p.reference));
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

/// Appends the members of a PDU.
fn shown(pdu: &Pdu, json: &mut Json) {
    named(json, "type", KINDS, pdu.kind);
    if let Some(function) = pdu.function {
        named(json, "function", FUNCTIONS, function);
    }
    if let Some((group, subfunction)) = pdu.user {
        named(json, "user_group", USER_GROUPS, group);
        json.uint("subfunction", u64::from(subfunction));
    }
    if let Some(error) = pdu.error {
        json.uint("error", u64::from(error));
    }
    if !pdu.items.is_empty() {
        json.array("items");
        for item in &pdu.items {
            json.item_object();
            named(json, "area", AREAS, item.area);
            if item.db > 0 {
                json.uint("db", u64::from(item.db));
            }
            json.uint("address", u64::from(item.bit >> 3));
            json.uint("bit", u64::from(item.bit & 7));
            json.uint("count", u64::from(item.count));
            json.end_object();
        }
        json.end_array();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    const CONNECT: &[u8] = b"\x03\0\0\x16\x11\xe0\0\0\0\x01\0\xc1\x02\x01\0\xc2\x02\x01\x02\xc0\x01\x09";
    /// Reads four bytes from byte 10 of data block 5.
    const READ: &[u8] =
        b"\x03\0\0\x1f\x02\xf0\x80\x32\x01\0\0\x02\0\0\x0e\0\0\x04\x01\x12\x0a\x10\x02\0\x04\0\x05\x84\0\0\x50";
    const VALUE: &[u8] =
        b"\x03\0\0\x1d\x02\xf0\x80\x32\x03\0\0\x02\0\0\x02\0\x08\0\0\x04\x01\xff\x04\0\x20\x01\x02\x03\x04";

    #[test]
    fn a_value_is_read() {
        let mut talk = Talk::tcp(AppProto::S7comm, 102);
        talk.client(CONNECT).client(READ);
        assert_eq!(talk.complete(), [[true, false]]);
        talk.server(VALUE);
        assert_eq!(talk.complete(), [[true, true]]);
        assert_eq!(
            talk.logs(),
            [
                r#"{"s7comm":{"reference":512,"type":"job","function":"read","items":[{"area":"db","db":5,"address":10,"bit":0,"count":4}],"response":{"type":"ack_data","function":"read","error":0}}}"#
            ]
        );
        assert_eq!(
            (talk.numbers("s7comm.function", ToServer), talk.numbers("s7comm.db", ToServer)),
            (vec![4], vec![5])
        );
        assert_eq!(
            (talk.numbers("s7comm.error", ToClient), talk.numbers("s7comm.area", ToServer)),
            (vec![0], vec![0x84])
        );
        assert!(talk.events().is_empty());
    }

    #[test]
    fn messages_behind_a_gap() {
        let mut talk = Talk::tcp(AppProto::S7comm, 102);
        let next = [&b"\x03\0\0\x07\x02\xf0\x80\0"[..], READ].concat();
        talk.client(CONNECT).gap(ToServer, 31).client(&next[..11]).client(&next[11..]).server(VALUE);
        assert_eq!((talk.complete(), talk.outcome), (vec![[true, true]], Outcome::More));
    }

    #[test]
    fn stops_and_user_data() {
        let stop = b"\x03\0\0\x21\x02\xf0\x80\x32\x01\0\0\x0c\0\0\x10\0\0\x29\0\0\0\0\0\x09P_PROGRAM";
        let read_list = b"\x03\0\0\x21\x02\xf0\x80\x32\x07\0\0\x05\0\0\x08\0\x08\0\x01\x12\x04\x11\x44\x01\0\xff\x09\0\x04\0\x11\0\x01";
        let mut talk = Talk::tcp(AppProto::S7comm, 102);
        talk.client(stop).client(read_list);
        assert_eq!(talk.numbers("s7comm.function", ToServer), [0x29]);
        assert_eq!(
            (talk.numbers("s7comm.user_group", ToServer), talk.numbers("s7comm.subfunction", ToServer)),
            (vec![4], vec![1])
        );
        assert!(talk.logs()[0].contains(r#""function":"plc_stop""#), "{:?}", talk.logs());
        assert!(talk.logs()[1].contains(r#""user_group":"cpu""#), "{:?}", talk.logs());
        // An acknowledgement of neither.
        talk.server(VALUE);
        assert_eq!(talk.events(), ["unsolicited_response"]);
    }

    #[test]
    fn what_is_wrong() {
        let mut talk = Talk::tcp(AppProto::S7comm, 102);
        // Parameters beyond the packet, and a missing header.
        let mut cut = READ.to_vec();
        cut[14] = 0x40;
        talk.client(&cut).client(b"\x03\0\0\x0a\x02\xf0\x80\x32\x01\0");
        assert_eq!(talk.events(), ["malformed_pdu", "malformed_pdu"]);
        assert_eq!(talk.logs().len(), 1);
        talk.client(b"GET /");
        assert_eq!(talk.outcome, Outcome::Failed);
    }

    #[test]
    fn recognition() {
        assert_eq!(probe(ToServer, CONNECT), Probed::More);
        assert_eq!(probe(ToServer, &[CONNECT, READ].concat()), Probed::Yes { reverse: false });
        assert_eq!(probe(ToServer, READ), Probed::Yes { reverse: false });
        let other = [CONNECT, b"\x03\0\0\x0a\x02\xf0\x80\x0d\x01\0"].concat();
        assert_eq!(probe(ToServer, &other), Probed::No);
        assert_eq!(probe(ToServer, &CONNECT.repeat(PACKETS)), Probed::No);
        assert_eq!(probe(ToServer, b"GET"), Probed::No);
    }
}
