//! QUIC (RFC 9000, RFC 9001, RFC 9369 and the drafts from 23 on) up to the end of its greetings, and its forerunner gQUIC.
//!
//! The first packets of a connection are encrypted with keys that follow from what is in them: a ClientHello and a
//! ServerHello are put together from their CRYPTO frames, and read as those of TLS. What comes behind the ServerHello cannot
//! be read, and the parser is done. Of gQUIC the client's greeting (CHLO) is in clear. Each packet with a long header, or one
//! of gQUIC that names a version, is a transaction; packets of versions that nobody knows are taken as they come, and
//! those that begin like gQUIC and do not go on so are [`events::Event::ErrorOnData`].

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
use crate::parser::Parser;
use crate::registry::{AppProto, Protocol};

pub use log::LogOptions;
pub use tx::QuicTx;

/// Progress of a complete transaction: place in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// QUIC.
pub static PROTOCOL: Protocol = Protocol {
    recognition: recognition::RECOGNITION,
    parser,
    buffers: buffers::BUFFERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Quic, "quic").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::QuicParser>::default()
}

#[cfg(test)]
mod tests;
