//! EtherNet/IP (CIP volume 2) over TCP and UDP, with its CIP messages (volume 1): a request with its response is a transaction.

mod cip;
mod message;
mod names;
mod tx;

use margay_flow::{Direction, FlowCore};
use margay_packet::KeyedMap;

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, NumberCondition, Protocol};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Probe, Probed, Recognition, TCP, UDP};

use message::{HEADER, Header, Message};
use tx::Exchange;

/// Commands without a response (CIP volume 2, sections 2-4.1 and 2-4.6).
const NOP: u16 = 0x00;
const UNREGISTER_SESSION: u16 = 0x66;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:enip.NAME`).

    events! { "EtherNet/IP";
        TooManyTransactions "too_many_transactions";
        InvalidPdu "invalid_pdu";
    }
}
use events::Event;

const WORD: u64 = u16::MAX as u64;
const DOUBLE: u64 = u32::MAX as u64;

keywords! {
    Command Keyword::words(&["enip_command", "enip.command"], WORD, names::COMMANDS, KeywordDirection::Both);
    Status Keyword::words(&["enip.status"], DOUBLE, names::STATUSES, KeywordDirection::Both);
    ProtocolVersion Keyword::number(&["enip.protocol_version"], WORD, KeywordDirection::Both);
    Revision Keyword::number(&["enip.revision"], WORD, KeywordDirection::Both);
    IdentityStatus Keyword::number(&["enip.identity_status"], WORD, KeywordDirection::Both);
    State Keyword::number(&["enip.state"], 255, KeywordDirection::Both);
    Serial Keyword::number(&["enip.serial"], DOUBLE, KeywordDirection::Both);
    ProductCode Keyword::number(&["enip.product_code"], WORD, KeywordDirection::Both);
    DeviceType Keyword::number(&["enip.device_type"], WORD, KeywordDirection::Both);
    VendorId Keyword::number(&["enip.vendor_id"], WORD, KeywordDirection::Both);
    Capabilities Keyword::number(&["enip.capabilities"], WORD, KeywordDirection::Both);
    CipService Keyword::own(&["cip_service"], cip_service, KeywordDirection::Both);
    CipAttribute Keyword::number(&["enip.cip_attribute"], DOUBLE, KeywordDirection::Both);
    CipClass Keyword::number(&["enip.cip_class"], DOUBLE, KeywordDirection::Both);
    CipInstance Keyword::number(&["enip.cip_instance"], DOUBLE, KeywordDirection::Both);
    CipStatus Keyword::number(&["enip.cip_status"], 255, KeywordDirection::Both);
    CipExtendedStatus Keyword::number(&["enip.cip_extendedstatus"], WORD, KeywordDirection::Both);
    ProductName Keyword::buffers(&["enip.product_name"], KeywordDirection::Both);
    ServiceName Keyword::buffers(&["enip.service_name"], KeywordDirection::Both);
}

/// The limit of open transactions in a flow: clients wait for a response, or number their requests on a few connections.
const TXS_MAX: usize = 1024;

/// Reads `SERVICE[,CLASS[,ATTRIBUTE]]`.
fn cip_service(text: &str) -> Result<NumberCondition, String> {
    let parts: Option<Vec<u32>> = text.split(',').map(|t| t.trim().parse().ok()).collect();
    let word = |n: &u32| *n <= u32::from(u16::MAX);
    match parts.as_deref() {
        Some([service @ 0..=127, rest @ ..]) if rest.len() <= 2 && rest.iter().all(word) => {
            let (mask, value) = cip::triple_test(*service as u8, rest.first().copied(), rest.get(1).copied());
            Ok(NumberCondition::Compare { text: format!("&0x{mask:x}=0x{value:x}"), max: u64::MAX })
        }
        _ => Err(format!(
            "\"{text}\" is no service of CIP: write a number up to 127, and behind commas a class and an attribute, as in 16,246,6"
        )),
    }
}

const PDU_FRAME: u8 = 0;
const HEADER_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;
const ITEM_FRAME: u8 = 3;
const CIP_FRAME: u8 = 4;

/// EtherNet/IP.
pub static PROTOCOL: Protocol = Protocol {
    mode: Mode::Off,
    recognition: Recognition {
        patterns: &[],
        probes: &[
            Probe { transport: TCP, ports: &[44818], probe },
            Probe { transport: UDP, ports: &[44818], probe: datagram },
        ],
    },
    parser: parser::<Enip>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    frames: &["pdu", "hdr", "data", "enip.item", "cip"],
    events: events::NAMES,
    ..Protocol::new(AppProto::Enip, "enip").logged()
};

/// Checks for a known command, and no unknown options (CIP volume 2, section 2-3.1).
fn probe(_: Direction, data: &[u8]) -> Probed {
    match Header::read(data) {
        None => Probed::More,
        Some(header) if header.is_known() => Probed::Yes { reverse: false },
        Some(_) => Probed::No,
    }
}

/// As `probe`, for a datagram, which is a complete message. Any client may use the port, so the check includes the length:
/// random data that resembles a header does not match it.
fn datagram(direction: Direction, data: &[u8]) -> Probed {
    match Header::read(data) {
        Some(header) if HEADER + header.len != data.len() => Probed::No,
        _ => probe(direction, data),
    }
}

/// The parts of a request that its response repeats: the command, the sender context, and a sequence number on a CIP
/// connection.
type Key = (u16, [u8; 8], Option<u16>);

/// The state of a flow.
#[derive(Debug)]
struct Enip {
    /// Requests that wait for a response.
    pending: KeyedMap<Key, u64>,
}

impl Conversation for Enip {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Enip;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Enip { pending: KeyedMap::default() }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Framing {
        match Header::read(data) {
            Some(header) if header.is_known() => Framing::Message(HEADER + header.len),
            // A malformed message is handled at once.
            Some(_) => Framing::Message(HEADER),
            None => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) -> Outcome {
        let Some(header) = Header::read(data).filter(Header::is_known) else {
            turn.one_way(dir, Exchange::default()).event(Event::InvalidPdu as u8);
            return Outcome::Failed;
        };
        let (message, layout) = Message::read(header, data, turn.cx.shared.frames.wanted);
        let len = (HEADER + header.len).min(data.len());
        let key = (header.command, header.context, layout.sequence);
        let answered = (dir == Direction::ToClient).then(|| self.pending.remove(&key)).flatten();
        let tx = match answered.and_then(|id| turn.tx(id)) {
            Some(tx) => {
                tx.content.messages[dir.index()] = Some(message);
                tx.finish(dir);
                tx
            }
            None if dir == Direction::ToClient || matches!(header.command, NOP | UNREGISTER_SESSION) => {
                turn.one_way(dir, Exchange::of(dir, message))
            }
            None => {
                let tx = turn.open(Exchange::of(dir, message));
                tx.finish(dir);
                let id = tx.base.id;
                self.wait(turn, key, id);
                let Some(tx) = turn.tx(id) else { return Outcome::More };
                tx
            }
        };
        if layout.broken {
            tx.event(Event::InvalidPdu as u8);
        }
        let id = Some(tx.base.id);
        turn.frame(dir, PDU_FRAME, 0, len, id);
        turn.frame(dir, HEADER_FRAME, 0, HEADER, id);
        if len > HEADER {
            turn.frame(dir, DATA_FRAME, HEADER, len - HEADER, id);
        }
        for (from, len) in layout.items {
            turn.frame(dir, ITEM_FRAME, from, len, id);
        }
        for (from, len) in layout.cip {
            turn.frame(dir, CIP_FRAME, from, len, id);
        }
        Outcome::More
    }

    /// Device connections last for months. After a gap, the parser continues with the next header.
    const RESUMES: bool = true;

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        let known = |w: &[u8]| Header::read(w).is_some_and(|h| h.is_known());
        Resume::search(data, HEADER, known)
    }

    fn max_txs(&self) -> usize {
        TXS_MAX
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<(Key, u64)>()) as u64
    }
}

impl Enip {
    /// Stores a request until its response comes. Reusing a key abandons the earlier request.
    fn wait(&mut self, turn: &mut Turn<'_, '_, Exchange>, key: Key, id: u64) {
        if self.pending.len() >= TXS_MAX {
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
