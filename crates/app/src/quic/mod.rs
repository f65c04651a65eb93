//! QUIC (RFC 9000, RFC 9001, RFC 9369 and the drafts from 23 on) up to the end of its hellos, and its predecessor gQUIC.
//!
//! The keys of a connection's first packets follow from their own content. The parser decrypts them, reassembles ClientHello
//! and ServerHello from the CRYPTO frames, and reads both as in TLS. It cannot decrypt data after the ServerHello, so it ends
//! there. The client hello of gQUIC (CHLO) is cleartext. Each packet with a long header, and each gQUIC packet with a version,
//! is a transaction. Packets of unknown versions are accepted without parsing. A packet that begins like gQUIC and does not
//! continue so raises [`events::Event::ErrorOnData`].

mod buffers;
pub mod events;
mod frames;
mod hello;
mod keys;
mod log;
mod packet;
mod parser;
mod recognition;
mod tx;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::declare::{EveOption, Protocol, Unit};
use crate::parser::Parser;
use crate::proto::AppProto;

pub use tx::QuicTx;

/// Progress of a complete transaction: index in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// Index in the options of the event type.
const JA4: usize = 0;

/// QUIC.
pub static PROTOCOL: Protocol = Protocol {
    recognition: recognition::RECOGNITION,
    parser,
    buffers: buffers::BUFFERS,
    events: events::NAMES,
    eve_options: &[EveOption { key: "ja4", unit: Unit::Flag, default: 1, about: "Whether to write JA4." }],
    ..Protocol::new(AppProto::Quic, "quic").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::QuicParser>::default()
}

#[cfg(test)]
mod tests;
