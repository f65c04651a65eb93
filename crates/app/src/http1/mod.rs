//! HTTP/1 (RFC 9112), as servers and browsers read it rather than as it is written.

mod body;
mod buffers;
mod chunked;
mod config;
pub mod events;
mod headers;
mod line;
mod log;
mod parser;
mod request;
mod response;
mod to_client;
mod to_server;
mod tx;
pub mod uri;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition};
use crate::registry::Protocol;

pub use config::{Config, LogOptions, ServerConfig, SwfConfig};
pub use tx::Http1Tx;

/// Progress of a transaction: places in the states of [`PROTOCOL`].
const LINE: u8 = 1;
/// See [`LINE`].
const HEADERS: u8 = 2;
/// See [`LINE`].
const BODY: u8 = 3;
/// See [`LINE`].
const TRAILER: u8 = 4;
/// See [`LINE`].
const COMPLETE: u8 = 5;

/// HTTP/1.
pub static PROTOCOL: Protocol = Protocol {
    proto: AppProto::Http1,
    config: "http",
    recognition: Recognition {
        patterns: &[Pattern {
            transport: 6,
            dir: Direction::ToServer,
            bytes: b"GET ",
            nocase: true,
            offset: 0,
            depth: 4,
        }],
        probes: &[],
    },
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
    log: "http",
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::Http1Parser>::default()
}
