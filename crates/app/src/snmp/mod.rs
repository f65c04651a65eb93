//! SNMP, versions 1 (RFC 1157), 2c (RFC 1901, RFC 3416) and 3 (RFC 3412, RFC 3414): each message is a transaction.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::ber::{self, INTEGER, OCTETS, Reader, SEQUENCE};
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{Found, LogFor, TxBase};

/// Names of PDUs by tag number (RFC 1157 section 4.1, RFC 3416 section 3).
const PDUS: &[&str] = &[
    "get_request",
    "get_next_request",
    "response",
    "set_request",
    "trap_v1",
    "get_bulk_request",
    "inform_request",
    "trap_v2",
    "report",
];
/// `GetBulkRequest-PDU`: it has other numbers in place of error status and index.
const GET_BULK: u8 = 5;
/// `Trap-PDU` of version 1.
const TRAP_V1: u8 = 4;
/// `Report-PDU`, the last one.
const REPORT: u8 = 8;

/// Trap names of version 1 (RFC 1157 section 4.1.6).
const TRAPS: &[&str] =
    &["coldStart", "warmStart", "linkDown", "linkUp", "authenticationFailure", "egpNeighborLoss", "enterpriseSpecific"];
/// Trap names in rules.
const TRAP_WORDS: &[(&str, u64)] = &[
    ("coldstart", 0),
    ("warmstart", 1),
    ("linkdown", 2),
    ("linkup", 3),
    ("authenticationfailure", 4),
    ("egpneighborloss", 5),
    ("enterprisespecific", 6),
];
/// Names of error codes (RFC 1157 section 4.1).
const ERRORS: &[&str] = &["NoError", "TooBig", "NoSuchName", "BadValue", "ReadOnly", "GenErr"];
/// The user-based security model (RFC 3414 section 2.4).
const USM: u32 = 3;
/// Levels of elements that protocol detection looks at.
const DEPTH: u8 = 8;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:snmp.NAME`).

    events! { "SNMP";
        // Never raised: an invalid message has no transaction.
        MalformedData "malformed_data";
        UnknownSecurityModel "unknown_security_model";
        VersionMismatch "version_mismatch";
    }
}
use events::Event;

keywords! {
    Version Keyword::number(&["snmp.version"], u32::MAX as u64, KeywordDirection::Both);
    PduType Keyword::number(&["snmp.pdu_type"], u32::MAX as u64, KeywordDirection::Both);
    TrapType Keyword::words(&["snmp.trap_type"], 255, TRAP_WORDS, KeywordDirection::Both);
    Usm Keyword::buffer(&["snmp.usm"], KeywordDirection::Both);
    Community Keyword::buffer(&["snmp.community"], KeywordDirection::Both);
    TrapOid Keyword::buffer(&["snmp.trap_oid"], KeywordDirection::Both);
    TrapAddress Keyword::buffer(&["snmp.trap_address"], KeywordDirection::Both);
}

/// SNMP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[161, 162], probe }] },
    parser: parser::<Snmp>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Snmp, "snmp").logged()
};

/// Checks for a sequence of the version's elements: after the number, a community and a PDU, or in version 3 the header,
/// security parameters and data. All of them have to be complete.
fn probe(_: Direction, data: &[u8]) -> Probed {
    if data.first().is_some_and(|tag| tag & 0x3f != SEQUENCE) {
        return Probed::No;
    }
    match ber::length(data.get(1..).unwrap_or(&[])) {
        Ok((len, n)) if data.len() < 1 + n + len as usize => return Probed::More,
        Err(true) => return Probed::More,
        _ => {}
    }
    let mut reader = Reader::of_any_class(data);
    match reader.enter(SEQUENCE).and_then(elements) {
        // Suricata takes other types of numbers, too.
        Some((0x02 | 0x03 | 0x0a, [0 | 1], 2) | (0x02 | 0x03 | 0x0a, [3], 3)) => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}

/// The first element's tag without its form, its contents, and how many elements follow.
fn elements(mut message: Reader<'_>) -> Option<(u8, &[u8], usize)> {
    let first = message.element()?;
    Some((first.tag & 0xdf, first.body, message.count(DEPTH)?))
}

/// The state of a flow.
#[derive(Debug)]
struct Snmp {
    /// Version of the first message, which events show for all of them; 0 before it.
    version: u8,
}

impl Conversation for Snmp {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Snmp;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Snmp { version: 0 }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        let Some(mut message) = Message::read(message) else { return Outcome::Failed };
        message.dir = dir;
        if self.version == 0 {
            self.version = message.version;
        }
        let mismatch = self.version != message.version;
        message.version = self.version;
        let unknown = matches!(message.access, Access::Unknown);
        let tx = turn.one_way(dir, message);
        if mismatch {
            tx.event(Event::VersionMismatch as u8);
        }
        if unknown {
            tx.event(Event::UnknownSecurityModel as u8);
        }
        Outcome::More
    }
}

/// The sender's identity.
#[derive(Debug)]
enum Access {
    /// The community of versions 1 and 2c.
    Community(Box<[u8]>),
    /// The user in the user-based security model of version 3.
    User(Box<[u8]>),
    /// Another security model.
    Unknown,
}

/// The additional fields of a trap in version 1.
#[derive(Debug)]
struct Trap {
    kind: u8,
    oid: String,
    address: String,
}

/// The content of a message, unless it is encrypted.
#[derive(Debug)]
struct Pdu {
    /// Its tag number.
    kind: u8,
    error: u32,
    trap: Option<Box<Trap>>,
    /// The raw list of variable bindings, which was checked.
    vars: Box<[u8]>,
}

/// The stored part of a message.
#[derive(Debug)]
struct Message {
    dir: Direction,
    /// 1, 2 for 2c, or 3.
    version: u8,
    access: Access,
    pdu: Option<Pdu>,
}

/// Whether an element can be the value of a variable (RFC 3416 section 3).
fn is_value(element: ber::Element<'_>) -> bool {
    match (element.tag >> 6, element.tag & 0x1f) {
        // `IpAddress`.
        (1, 0) => element.body.len() == 4,
        // Counters, gauges and `TimeTicks`, which are not negative.
        (1, 1 | 2 | 3 | 6) => ber::integer(element.body).is_some_and(|n| n >= 0),
        // `noSuchObject`, `noSuchInstance`, `endOfMibView`.
        (2, number) => number <= 2,
        _ => true,
    }
}

/// The names in a list of variable bindings; `None` for an invalid binding. As in Suricata, the tags of bindings and names
/// are not compared, and the list ends at an invalid name.
fn bindings(list: &[u8]) -> impl Iterator<Item = Option<String>> {
    let mut reader = Reader::new(list);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let mut binding = reader.element().map(ber::Element::inside);
        let name = binding.as_mut().and_then(Reader::element).filter(|name| !name.body.is_empty());
        if name.is_none() || !binding.as_mut().and_then(Reader::element).is_some_and(is_value) {
            reader = Reader::new(&[]);
            return Some(None);
        }
        name.and_then(|name| ber::oid(name.body)).map(Some)
    })
}

impl Pdu {
    fn read(reader: &mut Reader<'_>) -> Option<Pdu> {
        // As Suricata, this ignores the tag's class and the PDU's length.
        let kind = reader.head()? & 0x1f;
        let inside = reader;
        let (mut error, mut trap) = (0, None);
        match kind {
            TRAP_V1 => {
                // As with names of variables, Suricata does not compare the tag.
                let oid = ber::oid(inside.element()?.body)?;
                // `IpAddress` (RFC 1155 section 3.2.3.2), or a `NetworkAddress` around it.
                let [a, b, c, d] = *inside.element().filter(|e| e.tag & 0xc0 == 0x40)?.body.first_chunk()?;
                let kind = u8::try_from(inside.unsigned(INTEGER)?).ok()?;
                inside.unsigned(INTEGER)?;
                // `TimeTicks`.
                let ticks = inside.element().filter(|e| e.tag == 0x43)?;
                ber::integer(ticks.body).filter(|n| *n >= 0)?;
                trap = Some(Box::new(Trap { kind, oid, address: format!("{a}.{b}.{c}.{d}") }));
            }
            0..=REPORT => {
                inside.integer(INTEGER)?;
                let status = inside.unsigned(INTEGER)?;
                inside.unsigned(INTEGER)?;
                if kind != GET_BULK {
                    error = status;
                }
            }
            _ => return None,
        }
        let vars = inside.take(SEQUENCE)?;
        bindings(vars).all(|name| name.is_some()).then(|| Pdu { kind, error, trap, vars: vars.into() })
    }
}

impl Message {
    fn read(data: &[u8]) -> Option<Message> {
        let mut reader = Reader::of_any_class(data).enter_in_any_form(SEQUENCE)?;
        let dir = Direction::ToServer;
        match reader.unsigned(INTEGER)? {
            version @ (0 | 1) => {
                let access = Access::Community(reader.take_in_any_form(OCTETS)?.into());
                let pdu = Pdu::read(&mut reader)?;
                // In version 1, the trap is the last type.
                (version == 1 || pdu.kind <= TRAP_V1).then_some(Message {
                    dir,
                    version: if version == 0 { 1 } else { 2 },
                    access,
                    pdu: Some(pdu),
                })
            }
            3 => {
                let mut header = reader.enter(SEQUENCE)?;
                // The message's identifier and its greatest size cannot be negative.
                header.unsigned(INTEGER)?;
                header.unsigned(INTEGER)?;
                let flags = *header.take_in_any_form(OCTETS)?.first()?;
                let model = header.unsigned(INTEGER)?;
                let parameters = reader.take_in_any_form(OCTETS)?;
                let access = if model == USM { Access::User(user(parameters)?.into()) } else { Access::Unknown };
                // `privFlag` (RFC 3412 section 6.4).
                let pdu = if flags & 2 != 0 {
                    reader.take_in_any_form(OCTETS)?;
                    None
                } else {
                    let mut scoped = reader.enter(SEQUENCE)?;
                    scoped.take_in_any_form(OCTETS)?;
                    scoped.take_in_any_form(OCTETS)?;
                    Some(Pdu::read(&mut scoped)?)
                };
                Some(Message { dir, version: 3, access, pdu })
            }
            _ => None,
        }
    }

    fn trap(&self) -> Option<&Trap> {
        self.pdu.as_ref()?.trap.as_deref()
    }
}

/// The user name in the parameters of the user-based security model (RFC 3414 section 2.4).
fn user(parameters: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::of_any_class(parameters).enter(SEQUENCE)?;
    reader.take_in_any_form(OCTETS)?;
    reader.unsigned(INTEGER)?;
    reader.unsigned(INTEGER)?;
    let name = reader.take_in_any_form(OCTETS)?;
    reader.take_in_any_form(OCTETS)?;
    reader.take_in_any_form(OCTETS)?;
    Some(name)
}

impl Content for Message {
    fn held(&self) -> u64 {
        let access = match &self.access {
            Access::Community(name) | Access::User(name) => name.len(),
            Access::Unknown => 0,
        };
        let trap = self.trap().map_or(0, |t| size_of::<Trap>() + t.oid.capacity() + t.address.capacity());
        (access + trap + self.pdu.as_ref().map_or(0, |p| p.vars.len())) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let bytes = match (Id::of(id)?, &self.access) {
            _ if dir != self.dir || index > 0 => return None,
            (Id::Usm, Access::User(name)) | (Id::Community, Access::Community(name)) => name,
            (Id::TrapOid, _) => self.trap()?.oid.as_bytes(),
            (Id::TrapAddress, _) => self.trap()?.address.as_bytes(),
            _ => return None,
        };
        Found::filled(bytes)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let n = match Id::of(id)? {
            _ if dir != self.dir || index > 0 => return None,
            Id::Version => self.version,
            Id::PduType => self.pdu.as_ref()?.kind,
            Id::TrapType => self.trap()?.kind,
            _ => return None,
        };
        Some(u64::from(n))
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("snmp");
        json.uint("version", u64::from(self.version));
        match &self.pdu {
            None => json.str("pdu_type", "encrypted"),
            Some(pdu) => {
                json.str("pdu_type", PDUS.get(usize::from(pdu.kind)).copied().unwrap_or_default());
                if pdu.error != 0 {
                    match ERRORS.get(pdu.error as usize) {
                        Some(name) => json.str("error", name),
                        None => json.str("error", &format!("ErrorStatus({})", pdu.error)),
                    }
                }
                if let Some(trap) = &pdu.trap {
                    match TRAPS.get(usize::from(trap.kind)) {
                        Some(name) => json.str("trap_type", name),
                        None => json.str("trap_type", &format!("TrapType({})", trap.kind)),
                    }
                    json.str("trap_oid", &trap.oid);
                    json.str("trap_address", &trap.address);
                }
                if !pdu.vars.is_empty() {
                    json.array("vars");
                    bindings(&pdu.vars).flatten().for_each(|name| json.item_str(&name));
                    json.end_array();
                }
            }
        }
        match &self.access {
            Access::Community(name) => json.bytes("community", name),
            Access::User(name) if self.pdu.is_some() => json.bytes("usm", name),
            _ => {}
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
