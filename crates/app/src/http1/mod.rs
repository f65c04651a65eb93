//! HTTP/1 (RFC 9112), as servers and browsers read it rather than as it is written.

pub mod auth;
mod bestfit;
mod config;
pub mod host;
pub mod multipart;
pub mod param;
pub mod uri;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition};
use crate::registry::Protocol;

pub use config::{Config, InvalidEncoding, LogOptions, PathConfig, Personality, ServerConfig, SwfConfig};

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
    buffers: &[],
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
    events: &[],
    log: "http",
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    unimplemented!("the parser comes with the next step")
}
