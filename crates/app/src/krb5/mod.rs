//! Kerberos 5 (RFC 4120) between a client and a key distribution centre: each message is a transaction.

mod message;
mod names;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::ber::{self, Reader};
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, NumberCondition, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{Found, LogFor, TxBase};
use message::{Kind, Message, Name};

/// The longest message over TCP that is parsed; longer ones are skipped. Tickets with many groups reach tens of kilobytes.
const MESSAGE_MAX: usize = 256 << 10;
/// The version of the protocol.
const VERSION: u8 = 5;
/// The most bytes that precede the version's end: three tags with lengths of five bytes, and the number.
const HEADS_MAX: usize = 3 * 6 + 3;
/// Size of the length before a message over TCP.
const RECORD_MARK: usize = 4;
const MAX_TX: usize = 0;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:krb5.NAME`).

    events! { "Kerberos";
        // Never raised: an invalid message has no transaction.
        MalformedData "malformed_data";
        WeakEncryption "weak_encryption";
    }
}
use events::Event;

keywords! {
    CName Keyword::buffers(&["krb5.cname", "krb5_cname"], KeywordDirection::ToClient);
    SName Keyword::buffers(&["krb5.sname", "krb5_sname"], KeywordDirection::ToClient);
    ErrorCode Keyword::own(&["krb5_err_code"], error_code, KeywordDirection::Both);
    MessageType Keyword::own(&["krb5_msg_type"], message_type, KeywordDirection::Both);
    TicketEncryption Keyword::own(&["krb5.ticket_encryption"], ticket_encryption, KeywordDirection::Both);
}

/// Kerberos.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[],
        probes: &[
            Probe { transport: TCP, ports: &[88], probe: probe_tcp },
            Probe { transport: UDP, ports: &[88], probe: probe_udp },
        ],
    },
    parser: parser::<Krb5>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    settings: &[Setting {
        key: "max-tx",
        unit: Unit::Count,
        default: 1024,
        about: "Most open transactions of a flow.",
    }],
    packet_addresses: true,
    ..Protocol::new(AppProto::Krb5, "krb5").logged()
};

/// Reads an error code, which cannot be negative in rules.
fn error_code(text: &str) -> Result<NumberCondition, String> {
    exact(text, i32::MAX as u64)
}

/// Reads a message type.
fn message_type(text: &str) -> Result<NumberCondition, String> {
    exact(text, 255)
}

fn exact(text: &str, max: u64) -> Result<NumberCondition, String> {
    match text.trim().parse() {
        Ok(n) if n <= max => Ok(NumberCondition::OneOf { values: vec![n], negated: false }),
        _ => Err(format!("\"{text}\" is not a number from 0 to {max}")),
    }
}

/// Reads `weak`, `!weak`, or a list of names and numbers.
fn ticket_encryption(text: &str) -> Result<NumberCondition, String> {
    let strong =
        |negated| NumberCondition::OneOf { values: names::STRONG.iter().map(|n| number_of(*n)).collect(), negated };
    match text.trim() {
        "weak" => return Ok(strong(true)),
        "!weak" => return Ok(strong(false)),
        _ => {}
    }
    let words = text.split([',', ' ']).filter(|w| !w.is_empty());
    let values = words
        .map(|w| names::encryption_type(w).map(number_of).ok_or_else(|| format!("\"{w}\" is not an encryption type")))
        .collect::<Result<Vec<_>, _>>()?;
    if values.is_empty() {
        Err("an encryption type is missing".into())
    } else {
        Ok(NumberCondition::OneOf { values, negated: false })
    }
}

/// The form in which rules compare a signed number.
fn number_of(n: i32) -> u64 {
    u64::from(n.cast_unsigned())
}

/// Checks for an application tag with a sequence that begins with the version.
fn probe_udp(_: Direction, data: &[u8]) -> Probed {
    let Some(&tag) = data.first() else { return Probed::More };
    if tag & 0xc0 != 0x40 || tag & 0x1f == 0x1f {
        return Probed::No;
    }
    let mut reader = Reader::new(data);
    let begins = |reader: &mut Reader<'_>| {
        reader.head()?;
        if reader.tag()? != ber::SEQUENCE {
            return Some(false);
        }
        reader.head()?;
        reader.head()?;
        Some(reader.tag()? == ber::INTEGER && reader.take(ber::INTEGER)? == [VERSION])
    };
    match begins(&mut reader) {
        Some(true) => Probed::Yes { reverse: false },
        Some(false) => Probed::No,
        None if data.len() < HEADS_MAX => Probed::More,
        None => Probed::No,
    }
}

/// The same check after a length (section 7.2.2).
fn probe_tcp(dir: Direction, data: &[u8]) -> Probed {
    match data.split_first_chunk() {
        None => Probed::More,
        Some((mark, message)) if (10..=16384).contains(&u32::from_be_bytes(*mark)) => probe_udp(dir, message),
        Some(_) => Probed::No,
    }
}

/// The state of a flow.
#[derive(Debug)]
struct Krb5 {
    max_txs: usize,
    tcp: bool,
    /// The last request without a response.
    request: Option<Kind>,
}

impl Conversation for Krb5 {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Krb5;

    fn new(config: &AppConfig, flow: &FlowCore) -> Self {
        let max_txs = usize::try_from(config.settings.get(AppProto::Krb5, MAX_TX)).unwrap_or(usize::MAX);
        Krb5 { max_txs, tcp: flow.proto == 6, request: None }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        let Some(mark) = data.first_chunk() else {
            return if end { Framing::Skip(data.len()) } else { Framing::More };
        };
        match u32::from_be_bytes(*mark) as usize {
            len if len > MESSAGE_MAX => Framing::Pass((RECORD_MARK + len) as u64),
            len if end && data.len() < RECORD_MARK + len => Framing::Skip(data.len()),
            len => Framing::Message(RECORD_MARK + len),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        let message = if self.tcp { message.get(RECORD_MARK..).unwrap_or_default() } else { message };
        // Even an invalid request is named by the error that answers it.
        if let Some(kind) = Message::kind(message).filter(|k| k.is_request()) {
            self.request = Some(kind);
        }
        let Some(message) = Message::read(message) else { return Outcome::More };
        let request = if message.kind.is_request() { None } else { self.request.take() };
        let weak = message.encryption.is_some_and(is_weak);
        let tx = turn.one_way(dir, Exchange { dir, message, request });
        if weak {
            tx.event(Event::WeakEncryption as u8);
        }
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }
}

fn is_weak(encryption: i32) -> bool {
    !names::STRONG.contains(&encryption)
}

/// The stored part of a message.
#[derive(Debug)]
struct Exchange {
    dir: Direction,
    message: Message,
    /// The request that it answers.
    request: Option<Kind>,
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        self.message.held() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let name = match Id::of(id)? {
            _ if dir != self.dir => return None,
            Id::CName => &self.message.cname,
            Id::SName => &self.message.sname,
            _ => return None,
        };
        name.as_ref()?.component(index).map(Found::whole)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        match Id::of(id)? {
            _ if dir != self.dir || index > 0 => None,
            Id::ErrorCode => self.message.error.map(number_of),
            Id::MessageType => Some(self.message.kind as u64),
            Id::TicketEncryption => self.message.ticket_encryption.map(number_of),
            _ => None,
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        let m = &self.message;
        json.object("krb5");
        json.str("msg_type", m.kind.name());
        if let Some(code) = m.error {
            json.str("failed_request", self.request.map_or("UNKNOWN", Kind::name));
            json.str("error_code", &names::error(code));
        }
        let name = |n: &Option<Name>| n.as_ref().map_or(b"<empty>".to_vec(), |n| n.joined.clone());
        json.bytes("cname", &name(&m.cname));
        json.bytes("realm", m.realm.as_deref().unwrap_or(b"<empty>"));
        json.bytes("sname", &name(&m.sname));
        json.str("encryption", &m.encryption.map_or("<none>".into(), names::encryption));
        json.bool("weak_encryption", m.encryption.is_some_and(is_weak));
        if let Some(kind) = m.ticket_encryption {
            json.str("ticket_encryption", &names::encryption(kind));
            json.bool("ticket_weak_encryption", is_weak(kind));
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
