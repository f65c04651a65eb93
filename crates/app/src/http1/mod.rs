//! HTTP/1 (RFC 9112), parsed the way servers and browsers do, which is more lenient than the standard.

pub mod auth;
mod bestfit;
pub(crate) mod body;
mod buffers;
mod chunked;
pub mod events;
mod header_index;
mod headers;
pub mod host;
mod line;
mod log;
pub mod multipart;
pub(crate) mod names;
mod parser;
mod recognition;
mod request;
mod response;
mod to_client;
mod to_server;
mod tx;
mod unchanged;
pub mod uri;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::declare::Protocol;
use crate::parser::Parser;
use crate::proto::AppProto;

pub(crate) use log::forwarded_address;

pub use crate::config::http1::{Config, InvalidEncoding, LogOptions, PathConfig, Personality, ServerConfig};
pub use crate::decompress::swf::SwfConfig;
pub use tx::Http1Tx;

/// Progress of a transaction: indexes in the states of [`PROTOCOL`].
const LINE: u8 = 1;
/// See [`LINE`].
const HEADERS: u8 = 2;
/// See [`LINE`].
const BODY: u8 = 3;
/// See [`LINE`].
const TRAILER: u8 = 4;
/// See [`LINE`].
const COMPLETE: u8 = 5;

/// Frame types: indexes in the frames of [`PROTOCOL`].
const REQUEST_FRAME: u8 = 0;
/// See [`REQUEST_FRAME`].
const RESPONSE_FRAME: u8 = 1;

/// HTTP/1.
pub static PROTOCOL: Protocol = Protocol {
    rule_name: "http1",
    headers: &[("http", &["http", "http1", "http2"]), ("http1", &["http1", "http"])],
    meant_by: &["http"],
    shows_tx: true,
    shows_forwarded: true,
    memory_counter: Some(|c| &mut c.http_memory),
    usual_port: Some(80),
    capital_events: true,
    recognition: recognition::RECOGNITION,
    inline_probes: recognition::REQUEST,
    parser,
    buffers: buffers::BUFFERS,
    states: [
        &["request_started", "request_line", "request_headers", "request_body", "request_trailer", "request_complete"],
        &[
            "response_started",
            "response_line",
            "response_headers",
            "response_body",
            "response_trailer",
            "response_complete",
        ],
    ],
    events: events::NAMES,
    frames: &["request", "response"],
    ..Protocol::new(AppProto::Http1, "http").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::Http1Parser>::default()
}
