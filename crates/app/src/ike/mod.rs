//! IKE, versions 1 (RFC 2409) and 2 (RFC 7296), over UDP: each message is a transaction.

mod message;
mod names;
mod tx;

use std::sync::Arc;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::conversation::{Conversation, Turn, parser};
use crate::declare::{EveOption, Keyword, KeywordDirection, NumberCondition, Protocol, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};

use crate::bytes::{be16, be32};
use message::{HEADER, Header, Payloads, attributes, proposals};
use tx::{Chosen, Exchange, Message, V1, V2};

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:ike.NAME`).

    events! { "IKE";
        MalformedData "malformed_data";
        NoEncryption "no_encryption";
        WeakCryptoEnc "weak_crypto_enc";
        WeakCryptoPrf "weak_crypto_prf";
        WeakCryptoDh "weak_crypto_dh";
        WeakCryptoAuth "weak_crypto_auth";
        WeakCryptoNoDh "weak_crypto_no_dh";
        WeakCryptoNoAuth "weak_crypto_no_auth";
        InvalidProposal "invalid_proposal";
        UnknownProposal "unknown_proposal";
        PayloadExtraData "payload_extra_data";
        MultipleServerProposal "multiple_server_proposal";
    }
}
use events::Event;

keywords! {
    InitSpi Keyword::buffer(&["ike.init_spi"], KeywordDirection::ToServer);
    RespSpi Keyword::buffer(&["ike.resp_spi"], KeywordDirection::ToClient);
    Nonce Keyword::buffer(&["ike.nonce_payload"], KeywordDirection::Both);
    KeyExchange Keyword::buffer(&["ike.key_exchange_payload"], KeywordDirection::Both);
    Vendor Keyword::buffers(&["ike.vendor"], KeywordDirection::ToServer);
    ExchangeType Keyword::number(&["ike.exchtype"], 255, KeywordDirection::Both);
    ChosenAttribute Keyword::own(&["ike.chosen_sa_attribute"], chosen_attribute, KeywordDirection::ToClient);
    KeyExchangeLength Keyword::number(&["ike.key_exchange_payload_length"], u32::MAX as u64, KeywordDirection::Both);
    NonceLength Keyword::number(&["ike.nonce_payload_length"], u32::MAX as u64, KeywordDirection::Both);
}

/// Index of `extended` in the options of the event type.
const EXTENDED: usize = 0;

/// IKE.
pub static PROTOCOL: Protocol = Protocol {
    headers: &[("ike", &["ike"]), ("ikev2", &["ike"])],
    event_aliases: &["ikev2"],
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[500], probe }] },
    parser: parser::<Ike>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    eve_options: &[EveOption {
        key: "extended",
        unit: Unit::Flag,
        default: 0,
        about: "Also the name of an IKEv1 exchange (`exchange_type_verbose`).",
    }],
    ..Protocol::new(AppProto::Ike, "ike").logged()
};

/// Checks the version. Like in Suricata, the flow is turned if an apparent response has no responder SPI. That includes
/// a responder's request for a cookie.
fn probe(dir: Direction, data: &[u8]) -> Probed {
    match Header::read(data) {
        Some(h) => Probed::Yes { reverse: dir == Direction::ToClient && h.resp_spi == 0 },
        None => Probed::No,
    }
}

/// Attributes of a security association, by their numbers in version 1 (RFC 2409 appendix A); `alg_esn` exists in version 2
/// only.
const ATTRIBUTES: &[(u16, &str)] = &[
    (1, "alg_enc"),
    (2, "alg_hash"),
    (3, "alg_auth"),
    (4, "alg_dh"),
    (5, "sa_group_type"),
    (11, "sa_life_type"),
    (12, "sa_life_duration"),
    (13, "alg_prf"),
    (14, "sa_key_length"),
    (15, "sa_field_size"),
];

/// `alg_enc=7`: an attribute, and a comparison.
fn chosen_attribute(text: &str) -> Result<NumberCondition, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("write ATTRIBUTE=NUMBER, as in alg_hash=2".to_owned());
    };
    let name = name.trim();
    match ATTRIBUTES.iter().find(|a| a.1 == name) {
        Some(a) => Ok(NumberCondition::Tagged { tag: u32::from(a.0), text: Some(value.trim().to_owned()) }),
        None => Err(format!(
            "\"{name}\" is no attribute: write one of {}",
            ATTRIBUTES.iter().map(|a| a.1).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// The state of a flow.
#[derive(Debug, Default)]
struct Ike {
    /// Version 1: the attributes that the responder chose.
    v1_chosen: Arc<[(u16, u32)]>,
    v1_doi: Option<u32>,
    /// Version 1, by direction: the last key exchange and nonce.
    v1: [Exchange; 2],
    /// Version 2: the last chosen transforms.
    v2_chosen: Chosen,
}

impl Conversation for Ike {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Ike;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Ike::default()
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        let Some(header) = Header::read(message) else {
            if let Some(tx) = turn.latest() {
                tx.event(Event::MalformedData as u8);
            }
            return Outcome::Failed;
        };
        let mut events = Vec::new();
        let payloads = Payloads::new(header.first, message.get(HEADER..).unwrap_or(&[]));
        let content = if header.major == 1 {
            self.version_1(dir, &header, payloads, &mut events)
        } else {
            self.version_2(dir, &header, payloads, &mut events)
        };
        let tx = turn.one_way(dir, content);
        events.into_iter().for_each(|e| tx.base.events.repeat(e as u8));
        Outcome::More
    }

    fn held(&self) -> u64 {
        let exchanges: usize = self.v1.iter().map(Exchange::held).sum();
        (size_of_val(&*self.v1_chosen) + exchanges) as u64
    }
}

impl Ike {
    fn version_1(
        &mut self,
        dir: Direction,
        header: &Header,
        payloads: Payloads<'_>,
        events: &mut Vec<Event>,
    ) -> Message {
        let mut m = Message::new(dir, *header);
        let encrypted = header.flags & 1 != 0;
        let mut v1 = V1 { encrypted, ..V1::default() };
        let note = |m: &mut Message, kind: u8| {
            let kind = u16::from(kind);
            if names::V1_PAYLOAD.iter().any(|n| n.0 == kind) && !m.payloads.contains(&kind) {
                m.payloads.push(kind);
            }
        };
        note(&mut m, header.first);
        if !encrypted {
            for payload in payloads {
                let Ok((kind, content, _)) = payload else {
                    events.push(Event::MalformedData);
                    break;
                };
                note(&mut m, kind);
                match kind {
                    1 => {
                        note(&mut m, 2);
                        note(&mut m, 3);
                        if self.association_1(dir, content, &mut v1, events).is_err() {
                            events.push(Event::MalformedData);
                        }
                    }
                    4 => {
                        m.own.key_exchange = Some(content.into());
                        self.v1[dir.index()].key_exchange.clone_from(&m.own.key_exchange);
                    }
                    10 => {
                        m.own.nonce = Some(content.into());
                        self.v1[dir.index()].nonce.clone_from(&m.own.nonce);
                    }
                    13 => m.vendors.push(hex(content)),
                    _ => {}
                }
            }
            v1.exchanges = self.v1.clone();
        }
        v1.chosen = self.v1_chosen.clone();
        v1.doi = self.v1_doi;
        m.v1 = Some(Box::new(v1));
        m
    }

    fn association_1(
        &mut self,
        dir: Direction,
        content: &[u8],
        v1: &mut V1,
        events: &mut Vec<Event>,
    ) -> Result<(), ()> {
        self.v1_doi = Some(be32(content, 0).ok_or(())?);
        let mut transforms = Vec::new();
        for proposal in proposals(content.get(8..).ok_or(())?, 2)? {
            for transform in proposal.transforms {
                transforms.push(attributes(transform)?);
            }
        }
        if dir == Direction::ToServer {
            v1.proposals = transforms;
        } else {
            if transforms.len() > 1 {
                events.push(Event::MultipleServerProposal);
            }
            let first = transforms.into_iter().next().unwrap_or_default();
            v1.new = first.clone();
            self.v1_chosen = first.into();
        }
        Ok(())
    }

    fn version_2(
        &mut self,
        dir: Direction,
        header: &Header,
        payloads: Payloads<'_>,
        events: &mut Vec<Event>,
    ) -> Message {
        let mut m = Message::new(dir, *header);
        let mut v2 = V2::default();
        m.payloads.push(u16::from(header.first));
        for payload in payloads {
            let Ok((kind, content, next)) = payload else {
                events.push(Event::MalformedData);
                break;
            };
            m.payloads.push(u16::from(next));
            match kind {
                33 => match proposals(content, 2) {
                    Ok(all) => {
                        let chosen = Chosen::of(&all, events);
                        if dir == Direction::ToClient {
                            self.v2_chosen = chosen;
                            v2.new = Some(chosen);
                        }
                    }
                    Err(()) => events.push(Event::MalformedData),
                },
                // The data follows the group.
                34 => m.own.key_exchange = content.get(4..).map(Into::into),
                40 => m.own.nonce = Some(content.into()),
                41 => match be16(content, 2) {
                    Some(n) => v2.notify.push(n),
                    None => events.push(Event::MalformedData),
                },
                43 => m.vendors.push(hex(content)),
                // The content is encrypted.
                46 => break,
                _ => {}
            }
        }
        v2.chosen = self.v2_chosen;
        m.v2 = Some(Box::new(v2));
        m
    }
}

/// Formats bytes in hexadecimal.
fn hex(bytes: &[u8]) -> Box<[u8]> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}

#[cfg(test)]
mod tests;
