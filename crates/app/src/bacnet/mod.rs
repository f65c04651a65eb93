//! BACnet over IP (ANSI/ASHRAE 135, annex J), for building automation: each message is a transaction.

mod apdu;
mod names;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::be16;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, named, word};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{LogFor, TxBase};

use apdu::{Apdu, Service};
use names::{CONFIRMED, FUNCTIONS, OBJECT_TYPES, PDU_TYPES, UNCONFIRMED};

/// First byte of a message over IP (clause J.2).
const BVLC: u8 = 0x81;
/// Length of its header: the first byte, the function, and the total length.
const HEADER: usize = 4;

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:bacnet.NAME`).

    events! {
        "BACnet";
        MalformedMessage "malformed_message";
    }
}

keywords! {
    Function Keyword::words(&["bacnet.function"], 255, FUNCTIONS, KeywordDirection::Both);
    PduType Keyword::words(&["bacnet.pdu_type"], 7, PDU_TYPES, KeywordDirection::Both);
    Confirmed Keyword::words(&["bacnet.confirmed_service"], 255, CONFIRMED, KeywordDirection::Both);
    Unconfirmed Keyword::words(&["bacnet.unconfirmed_service"], 255, UNCONFIRMED, KeywordDirection::Both);
    ObjectType Keyword::words(&["bacnet.object_type"], 1023, OBJECT_TYPES, KeywordDirection::Both);
    Instance Keyword::number(&["bacnet.instance"], 0x3f_ffff, KeywordDirection::Both);
    Property Keyword::number(&["bacnet.property"], 0x3f_ffff, KeywordDirection::Both);
}

/// BACnet.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[47808], probe }] },
    parser: parser::<Bacnet>,
    keywords: KEYWORDS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Bacnet, "bacnet").logged().own()
};

/// Checks the first byte, the function, and the length.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match *data {
        [BVLC, function, ..]
            if word(FUNCTIONS, u64::from(function)).is_some() && be16(data, 2).map(usize::from) == Some(data.len()) =>
        {
            Probed::Yes { reverse: false }
        }
        _ => Probed::No,
    }
}

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct Bacnet;

impl Conversation for Bacnet {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Bacnet;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Bacnet
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        let [BVLC, function, ..] = *message else { return Outcome::More };
        let body = be16(message, 2).and_then(|len| message.get(HEADER..usize::from(len)));
        let carried = body.and_then(|body| Carried::read(function, body));
        let is_cut = carried.is_none();
        let tx = turn.one_way(dir, Message { dir, function, carried: carried.unwrap_or(Carried::Nothing) });
        if is_cut {
            tx.event(events::Event::MalformedMessage as u8);
        }
        Outcome::More
    }
}

/// The parts of a message that rules and events need.
#[derive(Debug)]
struct Message {
    dir: Direction,
    /// The function of the BACnet/IP layer (clause J.2).
    function: u8,
    carried: Carried,
}

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
enum Carried {
    Nothing,
    /// A message of the network layer (clause 6.4).
    Network(u8),
    Apdu(Apdu),
}

impl Carried {
    /// Reads the network layer (clause 6.2) and its content; `None` if it is truncated.
    fn read(function: u8, body: &[u8]) -> Option<Carried> {
        let npdu = match function {
            // A forwarded message begins with the address of the original sender.
            0x04 => body.get(6..)?,
            0x09..=0x0b => body,
            _ => return Some(Carried::Nothing),
        };
        let ([_, control], mut rest) = npdu.split_first_chunk::<2>()?;
        let has_destination = control & 0x20 != 0;
        for present in [has_destination, control & 0x08 != 0] {
            if present {
                // A network, and an address with its length.
                rest = rest.get(3 + usize::from(*rest.get(2)?)..)?;
            }
        }
        if has_destination {
            rest = rest.get(1..)?;
        }
        if control & 0x80 != 0 {
            return rest.first().copied().map(Carried::Network);
        }
        Apdu::read(rest).map(Carried::Apdu)
    }
}

impl Message {
    fn apdu(&self) -> Option<&Apdu> {
        if let Carried::Apdu(apdu) = &self.carried { Some(apdu) } else { None }
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        0
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir || index > 0 {
            return None;
        }
        let service = || self.apdu().and_then(|a| a.service);
        match Id::of(id)? {
            Id::Function => Some(u64::from(self.function)),
            Id::PduType => self.apdu().map(|a| u64::from(a.kind)),
            Id::Confirmed => match service()? {
                Service::Confirmed(n) => Some(u64::from(n)),
                Service::Unconfirmed(_) => None,
            },
            Id::Unconfirmed => match service()? {
                Service::Unconfirmed(n) => Some(u64::from(n)),
                Service::Confirmed(_) => None,
            },
            Id::ObjectType => self.apdu()?.object.map(|o| u64::from(o.0)),
            Id::Instance => self.apdu()?.object.map(|o| u64::from(o.1)),
            Id::Property => self.apdu()?.property.map(u64::from),
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("bacnet");
        named(json, "function", FUNCTIONS, self.function);
        match &self.carried {
            Carried::Nothing => {}
            Carried::Network(kind) => json.uint("network_message", u64::from(*kind)),
            Carried::Apdu(apdu) => {
                named(json, "pdu_type", PDU_TYPES, apdu.kind);
                if let Some(id) = apdu.invoke_id {
                    json.uint("invoke_id", u64::from(id));
                }
                match apdu.service {
                    Some(Service::Confirmed(n)) => named(json, "service", CONFIRMED, n),
                    Some(Service::Unconfirmed(n)) => named(json, "service", UNCONFIRMED, n),
                    None => {}
                }
                if let Some(reason) = apdu.reason {
                    json.uint("reason", u64::from(reason));
                }
                if let Some((kind, instance)) = apdu.object {
                    named(json, "object_type", OBJECT_TYPES, kind);
                    json.uint("instance", u64::from(instance));
                }
                if let Some(property) = apdu.property {
                    json.uint("property", u64::from(property));
                }
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

    /// The broadcast that searches for devices, and the answer of device 99.
    const WHO_IS: &[u8] = b"\x81\x0b\0\x0c\x01\x20\xff\xff\0\xff\x10\x08";
    const I_AM: &[u8] = b"\x81\x0a\0\x14\x01\0\x10\0\xc4\x02\0\0\x63\x22\x01\xe0\x91\0\x21\x0f";
    /// Reads the present value (85) of analog input 3.
    const READ: &[u8] = b"\x81\x0a\0\x11\x01\x04\0\x05\x01\x0c\x0c\0\0\0\x03\x19\x55";

    #[test]
    fn requests() {
        let mut talk = Talk::udp(AppProto::Bacnet, 47808);
        talk.client(WHO_IS).server(I_AM).client(READ);
        assert_eq!(
            talk.logs(),
            [
                r#"{"bacnet":{"function":"original_broadcast","pdu_type":"unconfirmed_request","service":"who_is"}}"#,
                r#"{"bacnet":{"function":"original_unicast","pdu_type":"unconfirmed_request","service":"i_am","object_type":"device","instance":99}}"#,
                r#"{"bacnet":{"function":"original_unicast","pdu_type":"confirmed_request","invoke_id":1,"service":"read_property","object_type":"analog_input","instance":3,"property":85}}"#,
            ]
        );
        assert_eq!(
            (talk.numbers("bacnet.unconfirmed_service", ToClient), talk.numbers("bacnet.instance", ToServer)),
            (vec![0], vec![3])
        );
        assert_eq!(talk.numbers("bacnet.confirmed_service", ToServer), [12]);
        assert!(talk.events().is_empty());
    }

    #[test]
    fn answers() {
        let of = |apdu: &[u8]| Carried::read(0x0a, &[&b"\x01\0"[..], apdu].concat());
        let apdu = |apdu: &[u8]| match of(apdu) {
            Some(Carried::Apdu(a)) => (a.kind, a.invoke_id, a.service, a.reason),
            other => panic!("{other:?}"),
        };
        assert_eq!(apdu(b"\x20\x07\x0f"), (2, Some(7), Some(Service::Confirmed(15)), None));
        assert_eq!(apdu(b"\x50\x07\x0c\x91\x02\x91\x1f"), (5, Some(7), Some(Service::Confirmed(12)), None));
        assert_eq!(apdu(b"\x60\x07\x09"), (6, Some(7), None, Some(9)));
        assert_eq!(apdu(b"\x71\x07\x04"), (7, Some(7), None, Some(4)));
        assert_eq!(of(b"\x80"), None);
        // A message of the network layer: which router serves a network.
        assert_eq!(Carried::read(0x0b, b"\x01\x80\0"), Some(Carried::Network(0)));
    }

    #[test]
    fn what_is_cut() {
        let mut talk = Talk::udp(AppProto::Bacnet, 47808);
        talk.client(b"\x81\x0b\0\x07\x01\x20\xff").client(b"\x81\x0a\0\x40\x01").client(b"else");
        assert_eq!(talk.events(), ["malformed_message", "malformed_message"]);
        assert_eq!(probe(ToServer, WHO_IS), Probed::Yes { reverse: false });
        assert_eq!(probe(ToServer, &WHO_IS[..11]), Probed::No);
        assert_eq!(probe(ToServer, b""), Probed::No);
    }
}
