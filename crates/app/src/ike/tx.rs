//! A transaction: a message, and the flow's earlier choices.

use std::sync::Arc;

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::proto::AppProto;
use crate::tx::{Found, LogFor, TxBase};

use super::events::Event;
use super::message::{Header, Proposal};
use super::names::{self, name, v1};
use super::{EXTENDED, Id, hex};
use crate::bytes::be16;

/// A key exchange and a nonce.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange {
    pub(super) key_exchange: Option<Arc<[u8]>>,
    pub(super) nonce: Option<Arc<[u8]>>,
}

impl Exchange {
    pub(super) fn held(&self) -> usize {
        [&self.key_exchange, &self.nonce].into_iter().flatten().map(|b| b.len()).sum()
    }

    fn log(&self, json: &mut Json) {
        if let Some(data) = &self.key_exchange {
            json.hex("key_exchange_payload", data);
            json.uint("key_exchange_payload_length", data.len() as u64);
        }
        if let Some(data) = &self.nonce {
            json.hex("nonce_payload", data);
            json.uint("nonce_payload_length", data.len() as u64);
        }
    }
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    dir: Direction,
    header: Header,
    /// Payload types; for version 1, each once.
    pub(super) payloads: Vec<u16>,
    /// Vendor identifiers in hexadecimal.
    pub(super) vendors: Vec<Box<[u8]>>,
    pub(super) own: Exchange,
    pub(super) v1: Option<Box<V1>>,
    pub(super) v2: Option<Box<V2>>,
    spis: [Box<[u8]>; 2],
}

/// State of version 1.
#[derive(Debug, Default)]
pub(super) struct V1 {
    pub(super) encrypted: bool,
    pub(super) doi: Option<u32>,
    /// The attributes of each transform that the initiator proposes.
    pub(super) proposals: Vec<Vec<(u16, u32)>>,
    /// Attributes that the responder chose with this message.
    pub(super) new: Vec<(u16, u32)>,
    /// The last chosen attributes.
    pub(super) chosen: Arc<[(u16, u32)]>,
    /// By direction, so far.
    pub(super) exchanges: [Exchange; 2],
}

/// State of version 2.
#[derive(Debug, Default)]
pub(super) struct V2 {
    pub(super) notify: Vec<u16>,
    pub(super) new: Option<Chosen>,
    pub(super) chosen: Chosen,
}

/// Transforms of a security association in version 2: the last one of each type (RFC 7296 section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    enc: u16,
    prf: u16,
    auth: u16,
    dh: u16,
    esn: u16,
}

impl Default for Chosen {
    fn default() -> Self {
        Chosen { enc: 11, prf: 0, auth: 0, dh: 0, esn: 0 }
    }
}

impl Chosen {
    /// Reads proposals, and adds events for weak or invalid ones.
    pub(super) fn of(proposals: &[Proposal<'_>], events: &mut Vec<Event>) -> Chosen {
        let mut chosen = Chosen::default();
        for proposal in proposals {
            let (mut aead, mut authenticated, mut group) = (false, false, false);
            for transform in &proposal.transforms {
                let (Some(kind), Some(n)) = (transform.first(), be16(transform, 2)) else { continue };
                match kind {
                    1 => {
                        chosen.enc = n;
                        aead |= matches!(n, 14..=16 | 18..=20 | 25..=28);
                        if matches!(n, 1..=9 | 11) {
                            events.push(Event::WeakCryptoEnc);
                        }
                    }
                    2 => {
                        chosen.prf = n;
                        match n {
                            0 => events.push(Event::InvalidProposal),
                            1 | 2 => events.push(Event::WeakCryptoPrf),
                            _ => {}
                        }
                    }
                    3 => {
                        chosen.auth = n;
                        authenticated |= n != 0;
                        if matches!(n, 1..=7) {
                            events.push(Event::WeakCryptoAuth);
                        }
                    }
                    4 => {
                        chosen.dh = n;
                        group = true;
                        match n {
                            0 => events.push(Event::InvalidProposal),
                            1 | 2 | 5 | 22 => events.push(Event::WeakCryptoDh),
                            _ => {}
                        }
                    }
                    5 => chosen.esn = n,
                    _ => events.push(Event::UnknownProposal),
                }
            }
            if !group {
                events.push(Event::WeakCryptoNoDh);
            }
            if !authenticated && !aead {
                events.push(Event::WeakCryptoNoAuth);
            }
            // An authentication header only.
            if proposal.protocol == 2 {
                events.push(Event::NoEncryption);
            }
        }
        chosen
    }

    /// Converts to an attribute of version 1.
    fn attribute(&self, index: usize) -> Option<(u16, u32)> {
        [(1, self.enc), (13, self.prf), (3, self.auth), (4, self.dh)].get(index).map(|(a, n)| (*a, u32::from(*n)))
    }

    fn log(&self, json: &mut Json) {
        json.str("alg_enc", &name(names::ENC, "IkeTransformEncType", self.enc));
        json.str("alg_auth", &name(names::AUTH, "IkeTransformAuthType", self.auth));
        json.str("alg_prf", &name(names::PRF, "IkeTransformPRFType", self.prf));
        json.str("alg_dh", &name(names::DH, "IkeTransformDHType", self.dh));
        json.str("alg_esn", &name(names::ESN, "IkeTransformESNType", self.esn));
    }
}

/// Appends attributes of version 1: the first one of each type.
fn log_attributes(attributes: &[(u16, u32)], json: &mut Json) {
    let mut seen = 0u64;
    for (kind, value) in attributes {
        let of = match kind {
            1 => ("alg_enc", "alg_enc_raw", names::V1_ENC),
            2 => ("alg_hash", "alg_hash_raw", names::V1_HASH),
            3 => ("alg_auth", "alg_auth_raw", names::V1_AUTH),
            4 => ("alg_dh", "alg_dh_raw", names::V1_GROUP),
            5 => ("sa_group_type", "sa_group_type_raw", &[] as &[(u16, &str)]),
            11 => ("sa_life_type", "sa_life_type_raw", names::V1_LIFE),
            12 => ("sa_life_duration", "sa_life_duration_raw", &[] as &[_]),
            13 => ("alg_prf", "alg_prf_raw", &[] as &[_]),
            14 => ("sa_key_length", "sa_key_length_raw", &[] as &[_]),
            15 => ("sa_field_size", "sa_field_size_raw", &[] as &[_]),
            16 => ("sa_group_order", "sa_group_order_raw", &[] as &[_]),
            _ => continue,
        };
        if seen & 1 << kind != 0 {
            continue;
        }
        seen |= 1 << kind;
        json.str(of.0, v1(of.2, u64::from(*value)));
        json.uint(of.1, u64::from(*value));
    }
}

impl Message {
    pub(super) fn new(dir: Direction, header: Header) -> Message {
        Message {
            dir,
            header,
            payloads: Vec::new(),
            vendors: Vec::new(),
            own: Exchange::default(),
            v1: None,
            v2: None,
            spis: [header.init_spi, header.resp_spi].map(|s| hex(&s.to_be_bytes())),
        }
    }

    fn spi(&self, which: usize) -> &str {
        std::str::from_utf8(&self.spis[which]).unwrap_or_default()
    }

    fn log_v1(&self, of: &V1, json: &mut Json) {
        log_attributes(&of.chosen, json);
        json.array("payload");
        for kind in &self.payloads {
            json.item_str(v1(names::V1_PAYLOAD, u64::from(*kind)));
        }
        json.end_array();
        json.object("ikev1");
        if let Some(doi) = of.doi {
            json.uint("doi", u64::from(doi));
        }
        json.bool("encrypted_payloads", of.encrypted);
        if !of.encrypted {
            json.object("client");
            of.exchanges[0].log(json);
            if !of.proposals.is_empty() {
                json.array("proposals");
                for attributes in &of.proposals {
                    json.item_object();
                    log_attributes(attributes, json);
                    json.end_object();
                }
                json.end_array();
            }
            json.end_object();
            json.object("server");
            of.exchanges[1].log(json);
            json.end_object();
            if !self.vendors.is_empty() {
                json.array("vendor_ids");
                self.vendors.iter().for_each(|v| json.item_bytes(v));
                json.end_array();
            }
        }
        json.end_object();
    }

    fn log_v2(&self, of: &V2, json: &mut Json) {
        let initiator = self.header.flags & 8 != 0;
        json.str("role", if initiator { "initiator" } else { "responder" });
        if !initiator {
            of.chosen.log(json);
        }
        json.array("payload");
        for kind in &self.payloads {
            json.item_str(&name(names::PAYLOAD, "IkePayloadType", *kind));
        }
        json.end_array();
        json.object("ikev2");
        // Numbers of errors (RFC 7296 section 3.10.1).
        json.uint("errors", of.notify.iter().filter(|n| **n < 16384).count() as u64);
        if !of.notify.is_empty() {
            json.array("notify");
            of.notify.iter().for_each(|n| json.item_str(&name(names::NOTIFY, "NotifyType", *n)));
            json.end_array();
        }
        json.end_object();
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        let vendors: usize = self.vendors.iter().map(|v| size_of::<Box<[u8]>>() + v.len()).sum();
        let v1 = self.v1.as_ref().map_or(0, |v| {
            let lists: usize =
                v.proposals.iter().map(|p| size_of::<Vec<(u16, u32)>>() + p.capacity() * size_of::<(u16, u32)>()).sum();
            size_of::<V1>()
                + lists
                + v.new.capacity() * size_of::<(u16, u32)>()
                + size_of_val(&*v.chosen)
                + v.exchanges.iter().map(Exchange::held).sum::<usize>()
        });
        let v2 = self.v2.as_ref().map_or(0, |v| size_of::<V2>() + v.notify.capacity() * size_of::<u16>());
        (32 + vendors + self.payloads.capacity() * size_of::<u16>() + self.own.held() + v1 + v2) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if dir != self.dir {
            return None;
        }
        let data: &[u8] = match Id::of(id)? {
            Id::InitSpi => &self.spis[0],
            Id::RespSpi => &self.spis[1],
            Id::Nonce => self.own.nonce.as_ref()?,
            Id::KeyExchange => self.own.key_exchange.as_ref()?,
            Id::Vendor => return self.vendors.get(index).map(|v| Found::whole(v)),
            _ => return None,
        };
        (index == 0).then(|| Found::whole(data))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir {
            return None;
        }
        let len = |data: &Option<Arc<[u8]>>| data.as_ref().map(|d| d.len() as u64);
        let first = match Id::of(id)? {
            Id::ExchangeType => Some(u64::from(self.header.exchange)),
            Id::KeyExchangeLength => len(&self.own.key_exchange),
            Id::NonceLength => len(&self.own.nonce),
            Id::ChosenAttribute => {
                let of_v2 = || self.v2.as_ref().and_then(|v| v.new).and_then(|c| c.attribute(index));
                let found = self.v1.as_ref().and_then(|v| v.new.get(index).copied()).or_else(of_v2);
                return found.map(|(a, n)| u64::from(a) << 32 | u64::from(n));
            }
            _ => None,
        };
        first.filter(|_| index == 0)
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        json.object("ike");
        json.uint("version_major", u64::from(self.header.major));
        json.uint("version_minor", u64::from(self.header.minor));
        json.str("init_spi", self.spi(0));
        json.str("resp_spi", self.spi(1));
        json.uint("message_id", u64::from(self.header.message_id));
        json.uint("exchange_type", u64::from(self.header.exchange));
        if options.options.get(AppProto::Ike, EXTENDED) != 0
            && self.v1.is_some()
            && let Some(name) = names::exchange(self.header.exchange)
        {
            json.str("exchange_type_verbose", name);
        }
        if let Some(of) = &self.v1 {
            self.log_v1(of, json);
        }
        if let Some(of) = &self.v2 {
            self.log_v2(of, json);
        }
        json.end_object();
    }
}
