//! IEC 60870-5-104: commands and measurements of telecontrol over TCP. Each APDU with a control function or data is a
//! transaction.

mod names;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::bytes::le16;
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, named};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP};
use crate::tx::{LogFor, TxBase};

use names::{CAUSES, FUNCTIONS, TYPES, element_len};

/// First byte of an APDU (clause 5 of the standard).
const START: u8 = 0x68;
/// Bytes that the length does not count.
const BEFORE: usize = 2;
/// Length of the control field.
const CONTROL: usize = 4;
/// The longest length; the shortest is that of the control field.
const LENGTH_MAX: u8 = 253;
/// Length of an ASDU's header: type, number of objects, cause in two bytes, station address in two.
const ASDU: usize = 6;
/// The limit of object addresses.
const OBJECTS_MAX: usize = 127;

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:iec104.NAME`).

    events! {
        "IEC 60870-5-104";
        MalformedApdu "malformed_apdu";
        MalformedAsdu "malformed_asdu";
    }
}
use events::Event;

keywords! {
    Function Keyword::words(&["iec104.function"], 255, FUNCTIONS, KeywordDirection::Both);
    Type Keyword::words(&["iec104.type"], 255, TYPES, KeywordDirection::Both);
    Cause Keyword::words(&["iec104.cause"], 63, CAUSES, KeywordDirection::Both);
    Station Keyword::number(&["iec104.station"], 65_535, KeywordDirection::Both);
    Object Keyword::number(&["iec104.object"], 0xff_ffff, KeywordDirection::Both);
}

/// IEC 60870-5-104.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[2404], probe }] },
    parser: parser::<Iec104>,
    keywords: KEYWORDS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Iec104, "iec104").logged().own()
};

/// Checks the start byte and the length of an APDU.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data {
        [START, len, control, ..] if !is_sane(*len, *control) => Probed::No,
        // The receive sequence number is even.
        [START, _, first, _, third, ..] if first & 1 == 0 && third & 1 == 1 => Probed::No,
        [START, _, control @ ..] if control.len() < CONTROL => Probed::More,
        [START, _, first, second, third, fourth, ..] if is_control([*first, *second, *third, *fourth]) => {
            Probed::Yes { reverse: false }
        }
        [] | [START] => Probed::More,
        _ => Probed::No,
    }
}

/// Whether four bytes are a control field: data transfer, acknowledgement, or an unnumbered function.
const fn is_control(field: [u8; CONTROL]) -> bool {
    match field {
        [first, _, third, _] if first & 1 == 0 => third & 1 == 0,
        [1, 0, third, _] => third & 1 == 0,
        [first, 0, 0, 0] => first & 3 == 3,
        _ => false,
    }
}

/// Whether an APDU may have this length. Without data, it is that of the control field.
const fn is_sane(len: u8, control: u8) -> bool {
    let least = if control & 1 == 0 { CONTROL + ASDU } else { CONTROL };
    len as usize >= least && len <= LENGTH_MAX && (control & 1 == 0 || len as usize == CONTROL)
}

/// The state of a flow: nothing is kept between APDUs.
#[derive(Debug)]
struct Iec104;

impl Conversation for Iec104 {
    type Tx = Apdu;
    const PROTO: AppProto = AppProto::Iec104;
    /// Connections last for months. After a gap, the parser continues with the next APDU.
    const RESUMES: bool = true;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Iec104
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        match data {
            [START, len, control, ..] if is_sane(*len, *control) => Framing::Message(BEFORE + usize::from(*len)),
            [START] | [START, _] if !end => Framing::More,
            // A malformed APDU is handled at once.
            _ => Framing::Message(data.len().min(BEFORE + 1)),
        }
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        match data.iter().position(|b| *b == START) {
            Some(0) => match (data, data.get(1).and_then(|len| data.get(BEFORE + usize::from(*len)))) {
                ([_, len, control, ..], None | Some(&START)) if is_sane(*len, *control) => Resume::Here,
                ([_] | [_, _], _) => Resume::More,
                _ => Resume::Skip(1),
            },
            Some(at) => Resume::Skip(at),
            None => Resume::Skip(data.len()),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Apdu>, dir: Direction, message: &[u8]) -> Outcome {
        match message {
            [START, len, control, ..] if is_sane(*len, *control) => {}
            [START] | [START, _] => return Outcome::More,
            _ => {
                turn.one_way(dir, Apdu { dir, kind: Kind::Malformed }).event(Event::MalformedApdu as u8);
                return Outcome::Failed;
            }
        }
        match message {
            // Acknowledgements and connection tests carry no information.
            [_, _, control, ..] if control & 3 == 1 || matches!(control, 0x43 | 0x83) => {}
            [_, _, function, ..] if function & 3 == 3 => {
                turn.one_way(dir, Apdu { dir, kind: Kind::Function(*function) });
            }
            _ => {
                let asdu = message.get(BEFORE + CONTROL..).and_then(Asdu::read);
                let is_cut = asdu.as_ref().is_none_or(|a| a.is_cut);
                let kind = asdu.map_or(Kind::Malformed, |a| Kind::Data(Box::new(a)));
                let tx = turn.one_way(dir, Apdu { dir, kind });
                if is_cut {
                    tx.event(Event::MalformedAsdu as u8);
                }
            }
        }
        Outcome::More
    }
}

/// The parts of an APDU that rules and events need.
#[derive(Debug)]
struct Apdu {
    dir: Direction,
    kind: Kind,
}

/// The content of an APDU.
#[derive(Debug)]
enum Kind {
    /// Control functions (format U).
    Function(u8),
    /// Data (format I).
    Data(Box<Asdu>),
    Malformed,
}

/// Data (IEC 60870-5-101, clause 7).
#[derive(Debug)]
struct Asdu {
    kind: u8,
    count: u8,
    cause: u8,
    is_negative: bool,
    is_test: bool,
    originator: u8,
    station: u16,
    /// Addresses of the objects; for a sequence, the first one.
    objects: Vec<u32>,
    /// The objects are truncated.
    is_cut: bool,
}

impl Asdu {
    fn read(data: &[u8]) -> Option<Asdu> {
        let ([kind, qualifier, cause, originator, ..], rest) = data.split_first_chunk::<ASDU>()?;
        let (count, is_sequence) = (qualifier & 0x7f, qualifier & 0x80 != 0);
        let mut asdu = Asdu {
            kind: *kind,
            count,
            cause: cause & 0x3f,
            is_negative: cause & 0x40 != 0,
            is_test: cause & 0x80 != 0,
            originator: *originator,
            station: le16(data, 4)?,
            objects: Vec::new(),
            is_cut: false,
        };
        let len = element_len(*kind);
        let addresses = if is_sequence { usize::from(count.min(1)) } else { usize::from(count) };
        let mut rest = rest;
        for _ in 0..addresses.min(OBJECTS_MAX) {
            let Some((address, behind)) = rest.split_first_chunk::<3>() else {
                asdu.is_cut = true;
                break;
            };
            let [a, b, c] = *address;
            asdu.objects.push(u32::from_le_bytes([a, b, c, 0]));
            // If the element length of a type is unknown, only the first address is.
            let Some(len) = len else { break };
            let elements = if is_sequence { usize::from(count) } else { 1 };
            match behind.split_at_checked(len * elements) {
                Some((_, behind)) => rest = behind,
                None => {
                    asdu.is_cut = true;
                    break;
                }
            }
        }
        Some(asdu)
    }
}

impl Content for Apdu {
    fn held(&self) -> u64 {
        match &self.kind {
            Kind::Data(asdu) => (size_of::<Asdu>() + asdu.objects.capacity() * size_of::<u32>()) as u64,
            Kind::Function(_) | Kind::Malformed => 0,
        }
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir {
            return None;
        }
        match (&self.kind, Id::of(id)?) {
            (Kind::Data(asdu), Id::Object) => asdu.objects.get(index).map(|o| u64::from(*o)),
            _ if index > 0 => None,
            (Kind::Function(function), Id::Function) => Some(u64::from(*function)),
            (Kind::Data(asdu), Id::Type) => Some(u64::from(asdu.kind)),
            (Kind::Data(asdu), Id::Cause) => Some(u64::from(asdu.cause)),
            (Kind::Data(asdu), Id::Station) => Some(u64::from(asdu.station)),
            _ => None,
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    /// A malformed APDU only has an anomaly.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(!matches!(self.kind, Kind::Malformed))
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("iec104");
        match &self.kind {
            Kind::Function(function) => named(json, "function", FUNCTIONS, *function),
            Kind::Data(asdu) => {
                named(json, "type", TYPES, asdu.kind);
                json.uint("type_id", u64::from(asdu.kind));
                named(json, "cause", CAUSES, asdu.cause);
                if asdu.is_negative {
                    json.bool("negative", true);
                }
                if asdu.is_test {
                    json.bool("test", true);
                }
                json.uint("originator", u64::from(asdu.originator));
                json.uint("station", u64::from(asdu.station));
                json.uint("count", u64::from(asdu.count));
                json.array("objects");
                asdu.objects.iter().for_each(|o| json.item_uint(u64::from(*o)));
                json.end_array();
            }
            Kind::Malformed => {}
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::{ToClient, ToServer};

    use super::*;
    use crate::testing::Talk;

    const START_DT: &[u8] = b"\x68\x04\x07\0\0\0";
    /// General interrogation of station 1.
    const INTERROGATION: &[u8] = b"\x68\x0e\0\0\0\0\x64\x01\x06\0\x01\0\0\0\0\x14";
    /// Two single points, 100 and 258, sent spontaneously.
    const POINTS: &[u8] = b"\x68\x12\x02\0\x02\0\x01\x02\x03\0\x01\0\x64\0\0\x01\x02\x01\0\0";

    #[test]
    fn functions_and_data() {
        let mut talk = Talk::tcp(AppProto::Iec104, 2404);
        talk.client(START_DT).server(b"\x68\x04\x0b\0\0\0").client(INTERROGATION).server(POINTS);
        // An acknowledgement, and a test.
        talk.client(b"\x68\x04\x01\0\x02\0").client(b"\x68\x04\x43\0\0\0");
        assert_eq!(
            talk.logs(),
            [
                r#"{"iec104":{"function":"startdt_act"}}"#,
                r#"{"iec104":{"function":"startdt_con"}}"#,
                r#"{"iec104":{"type":"c_ic_na_1","type_id":100,"cause":"activation","originator":0,"station":1,"count":1,"objects":[0]}}"#,
                r#"{"iec104":{"type":"m_sp_na_1","type_id":1,"cause":"spontaneous","originator":0,"station":1,"count":2,"objects":[100,258]}}"#,
            ]
        );
        assert_eq!(
            (talk.numbers("iec104.type", ToServer), talk.numbers("iec104.object", ToClient)),
            (vec![100], vec![100, 258])
        );
        assert_eq!((talk.numbers("iec104.function", ToClient), talk.outcome), (vec![0x0b], Outcome::More));
        assert!(talk.events().is_empty());
    }

    #[test]
    fn sequences_and_cut_data() {
        // Three points from 7 on.
        let sequence = b"\x68\x10\0\0\0\0\x01\x83\x14\0\x01\0\x07\0\0\0\x01\0";
        let mut talk = Talk::tcp(AppProto::Iec104, 2404);
        talk.server(sequence);
        assert_eq!(talk.numbers("iec104.object", ToClient), [7]);
        let mut cut = POINTS.to_vec();
        cut[7] = 3;
        talk.server(&cut);
        assert_eq!(talk.events(), ["malformed_asdu"]);
    }

    #[test]
    fn gaps_and_nonsense() {
        let mut talk = Talk::tcp(AppProto::Iec104, 2404);
        talk.client(&INTERROGATION[..5]).gap(ToServer, 300).client(&[&b"\0\x68\0"[..], INTERROGATION].concat());
        assert_eq!(talk.numbers("iec104.type", ToServer), [100]);
        talk.client(b"GET / HTTP/1.1");
        assert_eq!((talk.outcome, talk.events()), (Outcome::Failed, vec!["malformed_apdu"]));
        assert_eq!(talk.logs().len(), 1);
    }

    #[test]
    fn recognition() {
        assert_eq!(probe(ToServer, START_DT), Probed::Yes { reverse: false });
        assert_eq!(probe(ToServer, b"\x68\x04"), Probed::More);
        // A U format has no data, and data has an ASDU.
        assert_eq!(probe(ToServer, b"\x68\x05\x07"), Probed::No);
        assert_eq!(probe(ToServer, b"\x68\x04\x00"), Probed::No);
        assert_eq!(probe(ToServer, b"hello"), Probed::No);
    }
}
