//! MQTT 3.1, 3.1.1 (OASIS) and 5.0 (OASIS): a request with its responses is a transaction.
//!
//! A transaction has the direction of its first message. Rules inspect it once it is complete.

mod log;
mod message;
mod tx;

use margay_flow::{Direction, FlowCore};
use margay_packet::KeyedMap;

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Turn, Tx, parser};
use crate::declare::{EveOption, Keyword, KeywordDirection, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP};

use message::{CONNECT_FLAGS, Header, Kind, Message, NAMES, Type};
use tx::Exchange;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:mqtt.NAME`).

    events! { "MQTT";
        MissingConnect "missing_connect";
        MissingPublish "missing_publish";
        MissingSubscribe "missing_subscribe";
        MissingUnsubscribe "missing_unsubscribe";
        DoubleConnect "double_connect";
        UnintroducedMessage "unintroduced_message";
        InvalidQosLevel "invalid_qos_level";
        MissingMsgId "missing_msg_id";
        UnassignedMsgType "unassigned_msg_type";
        TooManyTransactions "too_many_transactions";
        MalformedTraffic "malformed_traffic";
    }
}
use events::Event;

const FLAGS: &[(&str, u64)] = &[("dup", 0x08), ("retain", 0x01)];
const YES_NO: &[(&str, u64)] = &[("no", 0), ("yes", 1), ("false", 0), ("true", 1)];

keywords! {
    Type Keyword::words(&["mqtt.type"], 15, NAMES, KeywordDirection::Both);
    Flags Keyword::flags(&["mqtt.flags"], 255, FLAGS, KeywordDirection::ToServer);
    Qos Keyword::number(&["mqtt.qos"], 2, KeywordDirection::ToServer);
    Version Keyword::number(&["mqtt.protocol_version"], 255, KeywordDirection::ToServer);
    ReasonCode Keyword::number(&["mqtt.reason_code", "mqtt.connack.return_code"], 255, KeywordDirection::Both);
    ConnectFlags Keyword::flags(&["mqtt.connect.flags"], 255, CONNECT_FLAGS, KeywordDirection::ToServer);
    SessionPresent Keyword::words(&["mqtt.connack.session_present"], 1, YES_NO, KeywordDirection::ToClient);
    ProtocolString Keyword::buffer(&["mqtt.connect.protocol_string"], KeywordDirection::ToServer);
    ClientId Keyword::buffer(&["mqtt.connect.clientid"], KeywordDirection::ToServer);
    Username Keyword::buffer(&["mqtt.connect.username"], KeywordDirection::ToServer);
    Password Keyword::buffer(&["mqtt.connect.password"], KeywordDirection::ToServer);
    WillTopic Keyword::buffer(&["mqtt.connect.willtopic"], KeywordDirection::ToServer);
    WillMessage Keyword::buffer(&["mqtt.connect.willmessage"], KeywordDirection::ToServer);
    PublishTopic Keyword::buffer(&["mqtt.publish.topic"], KeywordDirection::Both);
    PublishMessage Keyword::buffer(&["mqtt.publish.message"], KeywordDirection::ToServer);
    SubscribeTopic Keyword::buffers(&["mqtt.subscribe.topic"], KeywordDirection::Both);
    UnsubscribeTopic Keyword::buffers(&["mqtt.unsubscribe.topic"], KeywordDirection::ToServer);
}

const MAX_MSG_LENGTH: usize = 0;
const SUBSCRIBE_TOPICS: usize = 1;
const UNSUBSCRIBE_TOPICS: usize = 2;
const MAX_TX: usize = 3;

const PDU_FRAME: u8 = 0;
const HEADER_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;

/// MQTT.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[
        Setting {
            key: "max-msg-length",
            unit: Unit::Bytes,
            default: 1 << 20,
            about: "Longest message that is parsed. Of a longer one, only the type, flags and length are.",
        },
        Setting {
            key: "subscribe-topic-match-limit",
            unit: Unit::Count,
            default: 100,
            about: "Most topics of a SUBSCRIBE message that rules inspect; 0 for all.",
        },
        Setting {
            key: "unsubscribe-topic-match-limit",
            unit: Unit::Count,
            default: 100,
            about: "Most topics of an UNSUBSCRIBE message that rules inspect; 0 for all.",
        },
        Setting::max_tx(4096),
    ],
    eve_options: &[
        EveOption { key: "passwords", unit: Unit::Flag, default: 1, about: "Whether CONNECT's password is shown." },
        EveOption {
            key: "string-log-limit",
            unit: Unit::Bytes,
            default: 1024,
            about: "How much is shown of each string, and of all topics of a message together; 0: all.",
        },
    ],
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[1883], probe }] },
    parser: parser::<Mqtt>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    frames: &["pdu", "header", "data"],
    events: events::NAMES,
    ..Protocol::new(AppProto::Mqtt, "mqtt").logged()
};

/// Checks for an assigned type, a valid QoS, and a length of at most four bytes.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match (data.first(), Header::read(data)) {
        (Some(first), _) if first >> 4 == 0 || first & 0x06 == 0x06 => Probed::No,
        (_, Ok(_)) => Probed::Yes { reverse: false },
        (_, Err(true)) => Probed::More,
        (_, Err(false)) => Probed::No,
    }
}

/// The key of a response: the request's direction, its type, and its packet identifier.
type Key = (Direction, u8, u16);

/// The state of a flow.
#[derive(Debug)]
struct Mqtt {
    max_length: usize,
    max_txs: usize,
    /// The limit of topics in SUBSCRIBE and UNSUBSCRIBE for rules.
    topics: [usize; 2],
    /// The version in CONNECT; 0 before it.
    version: u8,
    /// A CONNACK answered the CONNECT.
    connected: bool,
    /// The CONNECT message that waits for CONNACK.
    connect: Option<u64>,
    /// Requests that wait for a response.
    pending: KeyedMap<Key, u64>,
}

impl Conversation for Mqtt {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Mqtt;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        let setting = |place| config.settings.get(AppProto::Mqtt, place) as usize;
        let topics = |place| match setting(place) {
            0 => usize::MAX,
            n => n,
        };
        Mqtt {
            max_length: setting(MAX_MSG_LENGTH),
            max_txs: setting(MAX_TX),
            topics: [topics(SUBSCRIBE_TOPICS), topics(UNSUBSCRIBE_TOPICS)],
            version: 0,
            connected: false,
            connect: None,
            pending: KeyedMap::default(),
        }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Framing {
        match Header::read(data) {
            Ok(header) if header.total() > self.max_length => Framing::Head(header.len, header.remaining as u64),
            Ok(header) => Framing::Message(header.total()),
            Err(true) => Framing::More,
            Err(false) => Framing::Message(data.len()),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) -> Outcome {
        let Ok(header) = Header::read(data) else {
            turn.one_way(dir, self.exchange(dir, None)).event(Event::MalformedTraffic as u8);
            return Outcome::Failed;
        };
        if header.total() <= self.max_length && data.len() < header.total() {
            // The stream ends within the message.
            return Outcome::More;
        }
        turn.frame(dir, PDU_FRAME, 0, header.total(), None);
        turn.frame(dir, HEADER_FRAME, 0, header.len, None);
        turn.frame(dir, DATA_FRAME, header.len, header.remaining, None);
        if header.total() > self.max_length {
            turn.one_way(dir, self.exchange(dir, Some(Message::truncated(header))));
            return Outcome::More;
        }
        let body = data.get(header.len..).unwrap_or(&[]);
        match Message::read(header.first, body, self.version) {
            Some(message) => {
                self.handle(turn, dir, message);
                Outcome::More
            }
            None => {
                turn.one_way(dir, self.exchange(dir, None)).event(Event::MalformedTraffic as u8);
                // A receiver closes the connection (MQTT 5.0 section 4.13).
                Outcome::Failed
            }
        }
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<(Key, u64)>()) as u64
    }
}

impl Mqtt {
    fn exchange(&self, dir: Direction, message: Option<Message>) -> Exchange {
        Exchange { dir, version: self.version, topics: self.topics, messages: message.into_iter().collect() }
    }

    fn handle(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: Message) {
        let (of, qos, codes) = (message.of(), message.qos(), message.codes().first().copied());
        match (of, &message.kind) {
            (Type::CONNECT, Kind::Connect(connect)) => {
                self.version = connect.version;
                let connected = self.connected;
                let tx = self.open(turn, dir, message);
                if connected {
                    tx.event(Event::DoubleConnect as u8);
                }
                self.connect = Some(tx.base.id);
            }
            (Type::CONNACK, _) => {
                let connect = self.connect.take();
                // Suricata accepts messages after a refusal, too.
                self.connected |= connect.is_some();
                self.answer(turn, dir, connect, message, true, Event::MissingConnect);
            }
            (Type::PUBLISH, Kind::Publish { id, .. }) => {
                let id = id.filter(|_| qos != 0);
                let introduced = self.connected;
                match id {
                    None => self.alone(turn, dir, message, introduced),
                    Some(id) => {
                        let tx = self.open(turn, dir, message);
                        if qos == 3 {
                            tx.event(Event::InvalidQosLevel as u8);
                        }
                        if !introduced {
                            tx.event(Event::UnintroducedMessage as u8);
                        }
                        let tx = tx.base.id;
                        self.wait(turn, (dir, of.0, id), tx);
                    }
                }
            }
            (Type::SUBSCRIBE | Type::UNSUBSCRIBE, Kind::Topics { id, .. }) => {
                let (id, introduced) = (*id, self.connected);
                let tx = self.open(turn, dir, message);
                if !introduced {
                    tx.event(Event::UnintroducedMessage as u8);
                }
                let tx = tx.base.id;
                self.wait(turn, (dir, of.0, id), tx);
            }
            (_, Kind::Receipt { id, .. }) => {
                // PUBREL comes from the publisher, the others from the receiver.
                let publisher = if of == Type::PUBREL { dir } else { dir.reverse() };
                let key = (publisher, Type::PUBLISH.0, *id);
                // A receiver that refuses the message ends the exchange (MQTT 5.0 section 4.3.3).
                let refused = of == Type::PUBREC && codes.is_some_and(|c| c >= 0x80);
                let ends = refused || matches!(of, Type::PUBACK | Type::PUBCOMP);
                let tx = if ends { self.pending.remove(&key) } else { self.pending.get(&key).copied() };
                self.answer(turn, dir, tx, message, ends, Event::MissingPublish);
            }
            (_, Kind::Codes { id, .. }) => {
                let (request, event) = match of {
                    Type::SUBACK => (Type::SUBSCRIBE, Event::MissingSubscribe),
                    _ => (Type::UNSUBSCRIBE, Event::MissingUnsubscribe),
                };
                let tx = self.pending.remove(&(dir.reverse(), request.0, *id));
                self.answer(turn, dir, tx, message, true, event);
            }
            (Type(0), _) => turn.one_way(dir, self.exchange(dir, Some(message))).event(Event::UnassignedMsgType as u8),
            // AUTH is part of the connection setup.
            _ => self.alone(turn, dir, message, self.connected || of == Type::AUTH && self.connect.is_some()),
        }
    }

    /// Handles a message without a response.
    fn alone(&self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: Message, introduced: bool) {
        let tx = turn.one_way(dir, self.exchange(dir, Some(message)));
        if !introduced {
            tx.event(Event::UnintroducedMessage as u8);
        }
    }

    /// Handles a message with a response.
    fn open<'t>(&self, turn: &'t mut Turn<'_, '_, Exchange>, dir: Direction, message: Message) -> &'t mut Tx<Exchange> {
        let tx = turn.open(self.exchange(dir, Some(message)));
        tx.only(dir);
        tx
    }

    /// Stores a request until its response comes. Reusing an identifier abandons the earlier request.
    fn wait(&mut self, turn: &mut Turn<'_, '_, Exchange>, key: Key, tx: u64) {
        if self.pending.len() >= self.max_txs.max(1) {
            // Removes transactions that were freed.
            self.pending.retain(|_, tx| turn.tx(*tx).is_some());
        }
        if let Some(old) = self.pending.insert(key, tx).and_then(|id| turn.tx(id)) {
            old.finish(key.0);
        }
    }

    /// Adds a response to the transaction `to`. Without that transaction, the response has one of its own, with the event
    /// `missing`.
    fn answer(
        &self,
        turn: &mut Turn<'_, '_, Exchange>,
        dir: Direction,
        to: Option<u64>,
        message: Message,
        ends: bool,
        missing: Event,
    ) {
        let introduced = self.connected || message.of() == Type::CONNACK;
        let tx = match to.and_then(|id| turn.tx(id)) {
            Some(tx) => {
                tx.content.add(message);
                if ends {
                    tx.finish(tx.content.dir);
                }
                tx
            }
            None => {
                let tx = turn.one_way(dir, self.exchange(dir, Some(message)));
                tx.event(missing as u8);
                tx
            }
        };
        if !introduced {
            tx.event(Event::UnintroducedMessage as u8);
        }
    }
}

#[cfg(test)]
mod tests;
