//! HTTP/2 (RFC 9113), and DNS in it (RFC 8484).
//!
//! Each stream is a transaction, and so is each frame of the whole connection that says something (`SETTINGS`, `PING`,
//! `GOAWAY`, `WINDOW_UPDATE` of stream 0). Frames are taken as they come whole, but those of data are taken as their bytes
//! come. Bodies go where those of HTTP/1 go: out of their coding, into a window for rules and a file. Where a flow turns
//! out to carry messages of DNS it goes on as `doh2`: the same transactions, which then have what DNS offers as well.

mod buffers;
mod config;
mod doh;
pub mod events;
mod fields;
mod frame;
mod hpack;
mod huffman;
mod log;
mod parser;
mod recognition;
mod stream;
#[cfg(test)]
mod tests;
mod tx;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::recognise::Recognition;
use crate::registry::Protocol;
use crate::tx::{BufferDef, NumberDef};

pub use config::Config;
pub use tx::Http2Tx;

/// Progress of a transaction: places in the states of [`PROTOCOL`].
const HEADERS: u8 = 1;
/// See [`HEADERS`].
const BODY: u8 = 2;
/// See [`HEADERS`].
const COMPLETE: u8 = 3;

/// Types of frames: places in the frames of [`PROTOCOL`].
const HDR_FRAME: u8 = 0;
/// See [`HDR_FRAME`].
const DATA_FRAME: u8 = 1;
/// See [`HDR_FRAME`].
const PDU_FRAME: u8 = 2;

/// HTTP/2.
pub static PROTOCOL: Protocol =
    protocol(AppProto::Http2, "http2", recognition::RECOGNITION, buffers::BUFFERS, buffers::NUMBERS);

/// DNS in HTTP/2. A flow becomes it with the first message that is seen.
pub static DOH2: Protocol =
    protocol(AppProto::Doh2, "doh2", recognition::NONE, buffers::DOH_BUFFERS, buffers::DOH_NUMBERS);

const fn protocol(
    proto: AppProto,
    config: &'static str,
    recognition: Recognition,
    buffers: &'static [BufferDef],
    numbers: &'static [NumberDef],
) -> Protocol {
    Protocol {
        proto,
        config,
        recognition,
        parser,
        buffers,
        numbers,
        states: [
            &["request_started", "request_headers", "request_body", "request_complete"],
            &["response_started", "response_headers", "response_body", "response_complete"],
        ],
        events: events::NAMES,
        frames: &["hdr", "data", "pdu"],
        log: "http2",
    }
}

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::Http2Parser>::default()
}
