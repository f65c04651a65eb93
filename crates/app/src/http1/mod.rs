//! HTTP/1 (RFC 9112), as servers and browsers read it rather than as it is written.

mod config;
mod recognition;
pub mod uri;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::registry::Protocol;

pub use config::{Config, LogOptions, ServerConfig};

/// HTTP/1.
pub static PROTOCOL: Protocol = Protocol {
    proto: AppProto::Http1,
    config: "http",
    recognition: recognition::RECOGNITION,
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
