//! Modbus over TCP (Modbus Messaging on TCP/IP V1.0b, Modbus Application Protocol V1.1b3): a request with its response is a
//! transaction.

mod message;
mod rule;
mod tx;

use margay_flow::{Direction, FlowCore};
use margay_packet::KeyedMap;

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Probe, Probed, Recognition, TCP};

use crate::bytes::be16;
use message::Message;
use rule::Fields;
use tx::Exchange;

/// Bytes that the length does not count (Messaging section 3.1.3).
const BEFORE: usize = 6;
/// The valid lengths: from a unit and a function to a unit and the longest message (Application Protocol section 4.1).
const LENGTHS: std::ops::RangeInclusive<u16> = 2..=254;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:modbus.NAME`).

    events! { "Modbus";
        InvalidProtocolId "invalid_protocol_id";
        UnsolicitedResponse "unsolicited_response";
        InvalidLength "invalid_length";
        // Never raised: gateways use any unit.
        InvalidUnitIdentifier "invalid_unit_identifier";
        InvalidFunctionCode "invalid_function_code";
        InvalidValue "invalid_value";
        InvalidExceptionCode "invalid_exception_code";
        ValueMismatch "value_mismatch";
        Flooded "flooded";
    }
}
use events::Event;

keywords! {
    Request Keyword::own(&["modbus"], rule::read, KeywordDirection::ToServer);
}

const REQUEST_FLOOD: usize = 0;
const STREAM_DEPTH: usize = 1;

/// Modbus.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[
        Setting {
            key: "request-flood",
            unit: Unit::Count,
            default: 500,
            about: "Most requests of a flow without a response. A further one abandons them (`flooded`).",
        },
        Setting::STREAM_DEPTH,
    ],
    mode: Mode::Off,
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[502], probe }] },
    parser: parser::<Modbus>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Modbus, "modbus").logged()
};

/// Checks for protocol 0, the length (Messaging section 3.1.3), and a public function (Application Protocol section 5.1). Rules
/// do not treat vendor functions on the port as Modbus.
fn probe(dir: Direction, data: &[u8]) -> Probed {
    let (Some(protocol), Some(len)) = (be16(data, 2), be16(data, 4)) else { return Probed::More };
    if protocol != 0 || !LENGTHS.contains(&len) {
        return Probed::No;
    }
    // A response may be an exception.
    let exception = if dir == Direction::ToClient { 0x80 } else { 0 };
    match data.get(7).map(|function| function & !exception) {
        Some(1..=24 | 43) => Probed::Yes { reverse: false },
        Some(_) => Probed::No,
        None => Probed::More,
    }
}

/// The state of a flow.
#[derive(Debug)]
struct Modbus {
    max_txs: usize,
    stream_depth: u64,
    /// Requests that wait for a response, by transaction number.
    pending: KeyedMap<u16, u64>,
    /// The direction whose data is ignored after an invalid length, until the other side speaks: no later byte is known to begin
    /// a message.
    lost: Option<Direction>,
}

impl Conversation for Modbus {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Modbus;
    const PROMPT: bool = false;
    const TOO_MANY: Option<u8> = Some(Event::Flooded as u8);
    /// Device connections last for months. After a gap, the parser continues with the next message.
    const RESUMES: bool = true;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Modbus {
            max_txs: config.settings.get(AppProto::Modbus, REQUEST_FLOOD) as usize,
            stream_depth: config.settings.get(AppProto::Modbus, STREAM_DEPTH),
            pending: KeyedMap::default(),
            lost: None,
        }
    }

    fn resume(&mut self, dir: Direction, data: &[u8], _end: bool) -> Resume {
        Resume::search(data, BEFORE + 2, |w| matches!(probe(dir, w), Probed::Yes { .. }))
    }

    fn gap(&mut self, _turn: &mut Turn<'_, '_, Exchange>, dir: Direction, _len: u64) -> Outcome {
        self.lost = self.lost.filter(|lost| *lost != dir);
        Outcome::More
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        if self.lost == Some(dir) {
            return Framing::Skip(data.len());
        }
        self.lost = None;
        match be16(data, 4) {
            // As in Suricata, a truncated message is ignored.
            Some(len) if end && LENGTHS.contains(&len) && data.len() < BEFORE + usize::from(len) => {
                Framing::Skip(data.len())
            }
            Some(len) if LENGTHS.contains(&len) => Framing::Message(BEFORE + usize::from(len)),
            // Suricata ignores the rest of the segment, which an attacker can choose.
            Some(_) => Framing::Message(BEFORE),
            None => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) -> Outcome {
        turn.cx.shared.wishes.stream_depth = Some(self.stream_depth);
        let is_request = dir == Direction::ToServer;
        let valid = be16(data, 4).is_some_and(|len| LENGTHS.contains(&len));
        let message = if valid { Message::read(data, is_request) } else { Message::of_invalid_length(data) };
        let Some(message) = message else { return Outcome::More };
        self.lost = (!valid).then_some(dir);
        let flaws = message.flaws;
        let mut events = Vec::new();
        let id = if is_request {
            let key = message.transaction;
            let tx = turn.open(Exchange { request: Some(message), response: None });
            tx.finish(dir);
            let id = tx.base.id;
            self.wait(turn, key, id);
            id
        } else {
            let key = message.transaction;
            let asked = self.pending.get(&key).copied().and_then(|id| turn.tx(id));
            let asks = |tx: &&mut crate::conversation::Tx<Exchange>| {
                // Some servers answer an unknown function with an exception that names none.
                let names_none = message.function == 0x80;
                tx.content.request.as_ref().is_some_and(|r| names_none || r.function == message.function & 0x7f)
            };
            match asked.filter(asks) {
                Some(tx) => {
                    if !tx.content.request.as_ref().is_none_or(|r| r.is_met_by(&message)) {
                        events.push(Event::ValueMismatch);
                    }
                    tx.content.response = Some(message);
                    if events.contains(&Event::ValueMismatch)
                        && let Some(response) = tx.content.response.as_mut()
                    {
                        response.flaws |= message::VALUE;
                    }
                    tx.finish(dir);
                    self.pending.remove(&key);
                    tx.base.id
                }
                None => {
                    events.push(Event::UnsolicitedResponse);
                    turn.one_way(dir, Exchange { request: None, response: Some(message) }).base.id
                }
            }
        };
        for (flaw, event) in [
            (message::PROTOCOL, Event::InvalidProtocolId),
            (message::FUNCTION, Event::InvalidFunctionCode),
            (message::VALUE, Event::InvalidValue),
            (message::LENGTH, Event::InvalidLength),
            (message::EXCEPTION, Event::InvalidExceptionCode),
        ] {
            if flaws & flaw != 0 {
                events.push(event);
            }
        }
        if let Some(tx) = turn.tx(id) {
            events.into_iter().for_each(|event| tx.event(event as u8));
        }
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<(u16, u64)>()) as u64
    }
}

impl Modbus {
    /// Stores a request until its response comes. Reusing a number abandons the earlier request.
    fn wait(&mut self, turn: &mut Turn<'_, '_, Exchange>, key: u16, id: u64) {
        if self.pending.len() >= self.max_txs.max(1) {
            // Removes transactions that were freed.
            self.pending.retain(|_, tx| turn.tx(*tx).is_some());
        }
        if let Some(old) = self.pending.insert(key, id).and_then(|id| turn.tx(id)) {
            old.finish(Direction::ToClient);
        }
    }
}

#[cfg(test)]
mod tests;
