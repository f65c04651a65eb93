//! HTTP/2 (RFC 9113), and DNS over HTTP/2 (RFC 8484).
//!
//! Each stream is a transaction, and so is each connection-level frame with information (`SETTINGS`, `PING`, `GOAWAY`,
//! `WINDOW_UPDATE` of stream 0). The parser waits for a complete frame, except `DATA`, whose bytes it consumes as they arrive.
//! Bodies are handled as in HTTP/1: decompressed into an inspection window and a file. If a flow carries DNS messages, it
//! continues as `doh2`: the same transactions, with the buffers of DNS in addition.

mod buffers;
mod doh;
pub mod events;
mod fields;
mod frame;
mod grpc;
mod hpack;
mod huffman;
mod keywords;
mod log;
mod parser;
mod recognition;
mod stream;
#[cfg(test)]
mod tests;
mod tx;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::declare::{Handover, Opening, Protocol, Setting, Unit};
use crate::parser::Parser;
use crate::proto::AppProto;

pub use crate::config::http2::Config;
pub use tx::Http2Tx;

/// Progress of a transaction: indexes in the states of [`PROTOCOL`].
const HEADERS: u8 = 1;
/// See [`HEADERS`].
const BODY: u8 = 2;
/// See [`HEADERS`].
const COMPLETE: u8 = 3;

/// Frame types: indexes in the frames of [`PROTOCOL`].
const HDR_FRAME: u8 = 0;
/// See [`HDR_FRAME`].
const DATA_FRAME: u8 = 1;
/// See [`HDR_FRAME`].
const PDU_FRAME: u8 = 2;

/// HTTP/2.
pub static PROTOCOL: Protocol = Protocol {
    follows: &[Handover::Upgrade("h2c")],
    memory_counter: Some(|c| &mut c.http_memory),
    headers: &[("http2", &["http2", "http"])],
    meant_by: &["http"],
    recognition: recognition::RECOGNITION,
    client_begins: recognition::client_begins,
    server_begins: recognition::server_begins,
    opening: Opening::ClientTells,
    buffers: buffers::BUFFERS,
    numbers: buffers::NUMBERS,
    event_key: "http2",
    settings: &[Setting {
        key: "grpc",
        unit: Unit::Flag,
        default: 0,
        about: "Whether calls of gRPC get a member `grpc` in their events, and values for the keywords `grpc.*`. Suricata does not know gRPC.",
    }],
    ..of_http2(AppProto::Http2, "http2")
};

/// DNS over HTTP/2. A flow changes to it at the first DNS message.
pub static DOH2: Protocol = Protocol {
    memory_counter: Some(|c| &mut c.http_memory),
    meant_by: &["http", "http2", "dns"],
    buffers: buffers::DOH_BUFFERS,
    numbers: buffers::DOH_NUMBERS,
    event_key: "doh2",
    event_type: "dns",
    ..of_http2(AppProto::Doh2, "doh2")
};

const fn of_http2(proto: AppProto, name: &'static str) -> Protocol {
    Protocol {
        parser,
        states: [
            &["request_started", "request_headers", "request_body", "request_complete"],
            &["response_started", "response_headers", "response_body", "response_complete"],
        ],
        events: events::NAMES,
        frames: &["hdr", "data", "pdu"],
        event_type: "http",
        shows_tx: true,
        log: Some(AppProto::Http2),
        ..Protocol::new(proto, name)
    }
}

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::Http2Parser>::default()
}
