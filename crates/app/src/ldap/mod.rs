//! LDAP, version 3 (RFC 4511), over TCP and UDP: a request with all its responses is a transaction. TLS follows StartTLS.

mod names;
mod operation;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;
use margay_packet::KeyedMap;

use crate::ber::{self, INTEGER, Reader, SEQUENCE};
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{ABSENT, Found, LogFor, TxBase};
use operation::Operation;

/// The longest message that is parsed; longer ones are skipped.
const MESSAGE_MAX: usize = 256 << 10;
/// The limits of responses in a transaction, and of their bytes. The last response is always kept.
const RESPONSES_MAX: usize = 256;
const RESPONSE_BYTES_MAX: usize = 512 << 10;
/// The limit of messages in a datagram. Servers send an entry and the end of the search in one.
const DATAGRAM_MAX: usize = 256;
const MAX_TX: usize = 0;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:ldap.NAME`).

    events! { "LDAP";
        TooManyTransactions "too_many_transactions";
        InvalidData "invalid_data";
        RequestNotFound "request_not_found";
        // Never raised: the parser waits for incomplete data, and a message that never ends has no transaction.
        IncompleteData "incomplete_data";
    }
}
use events::Event;

keywords! {
    RequestName Keyword::buffers(&["ldap.request.dn"], KeywordDirection::ToServer);
    RequestAttribute Keyword::buffers(&["ldap.request.attribute_type"], KeywordDirection::ToServer);
    RequestValue Keyword::buffers(&["ldap.request.attributes"], KeywordDirection::ToServer);
    RequestOperation Keyword::words(&["ldap.request.operation"], 255, names::OPERATIONS, KeywordDirection::ToServer);
    ResponsesName Keyword::buffers(&["ldap.responses.dn"], KeywordDirection::ToClient).from(0);
    ResponsesMessage Keyword::buffers(&["ldap.responses.message"], KeywordDirection::ToClient).from(0);
    ResponsesAttribute Keyword::buffers(&["ldap.responses.attribute_type"], KeywordDirection::ToClient).from(0);
    ResponsesValue Keyword::buffers(&["ldap.responses.attributes"], KeywordDirection::ToClient).from(0);
    ResponsesOperation Keyword::words(&["ldap.responses.operation"], 255, names::OPERATIONS, KeywordDirection::ToClient).from(0);
    ResponsesCount Keyword::number(&["ldap.responses.count"], u32::MAX as u64, KeywordDirection::ToClient).from(0);
    ResponsesCode Keyword::words(&["ldap.responses.result_code"], u32::MAX as u64, names::RESULTS, KeywordDirection::ToClient).from(0);
}

/// LDAP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[],
        probes: &[Probe { transport: TCP, ports: &[389, 3268], probe }, Probe { transport: UDP, ports: &[389], probe }],
    },
    parser: parser::<Ldap>,
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
    // StartTLS is logged with the packet of its answer, as in Suricata 8.
    changes_apart: false,
    ..Protocol::new(AppProto::Ldap, "ldap").logged()
};

/// Checks for a sequence of message number and operation.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data.first() {
        None => return Probed::More,
        Some(&SEQUENCE) => {}
        Some(_) => return Probed::No,
    }
    let (_, n) = match ber::length(data.get(1..).unwrap_or(&[])) {
        Ok(length) => length,
        Err(true) => return Probed::More,
        Err(false) => return Probed::No,
    };
    match data.get(1 + n..) {
        None | Some([] | [INTEGER]) => Probed::More,
        Some([INTEGER, len @ 1..=4, rest @ ..]) => match rest.get(usize::from(*len)) {
            None => Probed::More,
            Some(0x60..=0x79 | 0x42 | 0x4a | 0x50) => Probed::Yes { reverse: false },
            Some(_) => Probed::No,
        },
        Some(_) => Probed::No,
    }
}

/// The state of a flow.
#[derive(Debug)]
struct Ldap {
    max_txs: usize,
    tcp: bool,
    /// Transactions that wait for responses, by message number.
    pending: KeyedMap<u32, u64>,
    /// The StartTLS request: the client's data after it waits for the response.
    start_tls: Option<u32>,
    /// The client is bound with SASL: messages may be sealed from then on. Sealed data starts with a length whose first byte is
    /// 0 (RFC 4422 section 3.7).
    sasl: bool,
}

impl Conversation for Ldap {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Ldap;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);
    /// Connections of applications last for days. After a gap, the parser continues with the next message.
    const RESUMES: bool = true;

    fn new(config: &AppConfig, flow: &FlowCore) -> Self {
        let max_txs = usize::try_from(config.settings.get(AppProto::Ldap, MAX_TX)).unwrap_or(usize::MAX);
        Ldap { max_txs, tcp: flow.proto == 6, pending: KeyedMap::default(), start_tls: None, sasl: false }
    }

    fn resume(&mut self, dir: Direction, data: &[u8], _end: bool) -> Resume {
        match probe(dir, data) {
            Probed::Yes { .. } => Resume::Here,
            Probed::More => Resume::More,
            Probed::No => {
                let next = data.iter().skip(1).position(|b| *b == SEQUENCE);
                Resume::Skip(next.map_or(data.len(), |at| at + 1))
            }
        }
    }

    /// Behind a gap, encrypted data may have begun.
    fn gap(&mut self, _turn: &mut Turn<'_, '_, Exchange>, _dir: Direction, _len: u64) -> Outcome {
        if self.start_tls.is_some() || self.sasl { Outcome::Failed } else { Outcome::More }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        // A request in cleartext does not wait: the server drops it, or answers it.
        if dir == TS && self.start_tls.is_some() && data.first() != Some(&SEQUENCE) {
            return Framing::More;
        }
        if self.sasl && data.first() == Some(&0) {
            return Framing::Message(data.len());
        }
        if data.first() != Some(&SEQUENCE) {
            return Framing::Broken;
        }
        match ber::length(data.get(1..).unwrap_or(&[])) {
            Ok((len, n)) => {
                let whole = 1 + n as u64 + u64::from(len);
                if whole > MESSAGE_MAX as u64 {
                    return Framing::Pass(whole);
                }
                if end && whole > data.len() as u64 {
                    Framing::Skip(data.len())
                } else {
                    Framing::Message(whole as usize)
                }
            }
            Err(true) if end => Framing::Skip(data.len()),
            Err(true) => Framing::More,
            Err(false) => Framing::Broken,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        if self.tcp && message.first() == Some(&0) {
            return Outcome::Done;
        }
        // A datagram may have several messages.
        let mut reader = Reader::new(message);
        for _ in 0..DATAGRAM_MAX {
            let Some(mut inside) = reader.enter(SEQUENCE) else { break };
            let read = inside.unsigned(INTEGER).zip(inside.element());
            let Some((id, operation)) = read.and_then(|(id, e)| Some((id, Operation::read(e.tag, e.body)?))) else {
                let tx = turn.one_way(dir, Exchange::new(0));
                tx.event(Event::InvalidData as u8);
                return Outcome::Failed;
            };
            let outcome = if operation.is_request() {
                self.request(turn, id, operation)
            } else {
                self.response(turn, id, operation)
            };
            if outcome != Outcome::More {
                return outcome;
            }
        }
        if self.tcp || reader.is_empty() { Outcome::More } else { Outcome::Failed }
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<(u32, u64)>()) as u64
    }
}

impl Ldap {
    fn request(&mut self, turn: &mut Turn<'_, '_, Exchange>, id: u32, operation: Operation) -> Outcome {
        let alone = operation.has_no_response();
        let start_tls = self.tcp && operation.is_start_tls();
        let tx = turn.open(Exchange { request: Some(operation), ..Exchange::new(id) });
        if alone {
            tx.finish_one_way(TS);
            return Outcome::More;
        }
        tx.finish(TS);
        // The limit of open transactions was reached, which closed all of them.
        if self.pending.len() >= self.max_txs.max(1) {
            self.pending.clear();
        }
        self.pending.insert(id, tx.base.id);
        if start_tls && self.start_tls.is_none() {
            self.start_tls = Some(id);
        }
        Outcome::More
    }

    fn response(&mut self, turn: &mut Turn<'_, '_, Exchange>, id: u32, operation: Operation) -> Outcome {
        let last = !operation.goes_on();
        let success = operation.code() == Some(0);
        let found = self.pending.get(&id).copied();
        if last {
            self.pending.remove(&id);
        }
        match found.and_then(|tx| turn.tx(tx)) {
            Some(tx) => {
                tx.content.add(operation, last);
                tx.touch(TC);
                self.sasl |= success && tx.content.request.as_ref().is_some_and(Operation::is_sasl_bind);
                if last {
                    tx.finish(TC);
                }
            }
            None => {
                let mut content = Exchange::new(id);
                content.add(operation, last);
                let tx = turn.one_way(TC, content);
                // Number 0 marks an unsolicited notification (section 4.4).
                if id != 0 {
                    tx.event(Event::RequestNotFound as u8);
                }
            }
        }
        if !last || self.start_tls != Some(id) {
            return Outcome::More;
        }
        self.start_tls = None;
        if success { Outcome::Change(turn.cx.config.declared.secured()) } else { Outcome::Resume }
    }
}

/// A request and its responses.
#[derive(Debug)]
struct Exchange {
    message_id: u32,
    request: Option<Operation>,
    responses: Vec<Operation>,
    /// The number of responses, including those that were not kept.
    count: u32,
    /// Bytes of the responses.
    bytes: usize,
}

impl Exchange {
    const fn new(message_id: u32) -> Exchange {
        Exchange { message_id, request: None, responses: Vec::new(), count: 0, bytes: 0 }
    }

    fn add(&mut self, response: Operation, last: bool) {
        self.count = self.count.saturating_add(1);
        let bytes = self.bytes + response.held();
        if last || (self.responses.len() < RESPONSES_MAX && bytes <= RESPONSE_BYTES_MAX) {
            self.bytes = bytes;
            self.responses.push(response);
        }
    }

    /// An attribute, counted across all responses.
    fn attribute(&self, mut index: usize) -> Option<&[u8]> {
        for response in &self.responses {
            match index.checked_sub(response.attributes()) {
                None => return response.attribute(index),
                Some(left) => index = left,
            }
        }
        None
    }

    /// Writes an attribute value with its type, counted across all responses.
    fn value(&self, mut index: usize, out: &mut Vec<u8>) -> Option<()> {
        for response in &self.responses {
            match index.checked_sub(response.values()) {
                None => return response.value(index, out),
                Some(left) => index = left,
            }
        }
        None
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let responses = self.bytes + self.responses.capacity() * size_of::<Operation>();
        (responses + self.request.as_ref().map_or(0, Operation::held)) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        // A response without the value keeps its index.
        let response = || self.responses.get(index).filter(|_| dir == TC);
        let request = || self.request.as_ref().filter(|_| dir == TS);
        let bytes = match Id::of(id)? {
            Id::RequestName => request()?.name().filter(|_| index == 0)?,
            Id::RequestAttribute => request()?.attribute(index)?,
            Id::ResponsesName => response()?.name().unwrap_or_default(),
            Id::ResponsesMessage => response()?.message().unwrap_or_default(),
            Id::ResponsesAttribute if dir == TC => self.attribute(index)?,
            Id::RequestValue => {
                request()?.value(index, scratch)?;
                scratch
            }
            Id::ResponsesValue if dir == TC => {
                self.value(index, scratch)?;
                scratch
            }
            _ => return None,
        };
        Some(Found::whole(bytes))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let response = || self.responses.get(index).filter(|_| dir == TC);
        match Id::of(id)? {
            Id::RequestOperation if dir == TS && index == 0 => Some(u64::from(self.request.as_ref()?.number())),
            Id::ResponsesOperation => Some(u64::from(response()?.number())),
            Id::ResponsesCode => Some(response()?.code().map_or(ABSENT, u64::from)),
            Id::ResponsesCount if dir == TC && index == 0 && self.count > 0 => Some(u64::from(self.count)),
            _ => None,
        }
    }

    /// A transaction that only has an anomaly has no protocol event.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(self.request.is_some() || self.count > 0)
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        only.unwrap_or(TS)
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("ldap");
        if let Some(request) = &self.request {
            json.object("request");
            json.uint("message_id", u64::from(self.message_id));
            request.log(json);
            json.end_object();
        }
        if !self.responses.is_empty() {
            json.array("responses");
            for response in &self.responses {
                json.item_object();
                if self.request.is_none() {
                    json.uint("message_id", u64::from(self.message_id));
                }
                response.log(json);
                json.end_object();
            }
            json.end_array();
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
