//! TLS 1.0 to 1.3 with its drafts (RFC 8446, RFC 5246 and those before them), and SSL 2.0 and 3.0 (RFC 6101).
//!
//! A flow has one transaction, the session ([`TlsTx`]). Each direction is a stream of records. The parser reassembles handshake
//! messages from cleartext records; for all other records it needs the length only. It waits for a complete cleartext record,
//! which is short, and reads messages from the stream's buffer; only a message that spans records is copied. Encrypted data is
//! consumed as it arrives.
//!
//! Hellos and certificates are stored raw: rules and logs read parts of them, and fingerprints are computed on first use.

mod buffers;
pub mod cert;
pub mod events;
mod handshake;
pub mod hello;
pub mod ja;
mod keywords;
mod log;
mod parser;
mod recognition;
mod record;
mod script;
mod sslv2;
mod tx;
pub mod version;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::declare::{Handover, Opening, Protocol};
use crate::parser::Parser;
use crate::proto::AppProto;

pub use crate::config::tls::{Config, Encryption, Field, Fields, LogOptions};
pub use tx::{Side, TlsTx};

/// Progress of the client: indexes in the states of [`PROTOCOL`].
const CLIENT_HELLO: u8 = 1;
/// See [`CLIENT_HELLO`].
const CLIENT_CERT: u8 = 2;
/// See [`CLIENT_HELLO`].
const CLIENT_HANDSHAKE: u8 = 3;
/// See [`CLIENT_HELLO`].
const CLIENT_FINISHED: u8 = 4;
/// Progress of the server.
const SERVER_HELLO: u8 = 1;
/// See [`SERVER_HELLO`].
const SERVER_CERT: u8 = 2;
/// See [`SERVER_HELLO`]. A ServerHelloDone message leads here at once, past the state `server_hello_done` (3).
const SERVER_HANDSHAKE: u8 = 4;
/// See [`SERVER_HELLO`].
const SERVER_FINISHED: u8 = 5;

/// Frame types: indexes in the frames of [`PROTOCOL`].
const PDU_FRAME: u8 = 0;
/// See [`PDU_FRAME`].
const HEADER_FRAME: u8 = 1;
/// See [`PDU_FRAME`].
const DATA_FRAME: u8 = 2;
/// See [`PDU_FRAME`].
const ALERT_FRAME: u8 = 3;
/// See [`PDU_FRAME`].
const HEARTBEAT_FRAME: u8 = 4;
/// See [`PDU_FRAME`].
const SSLV2_HEADER_FRAME: u8 = 5;
/// See [`PDU_FRAME`].
const SSLV2_PDU_FRAME: u8 = 6;

/// TLS.
pub static PROTOCOL: Protocol = Protocol {
    headers: &[("tls", &["tls"]), ("ssl", &["tls"])],
    usual_port: Some(443),
    follows: &[Handover::Secured],
    anomalies_end: true,
    capital_events: true,
    opening: Opening::ClientFirst,
    recognition: recognition::RECOGNITION,
    client_begins: recognition::client_begins,
    server_begins: |_| false,
    parser,
    buffers: buffers::BUFFERS,
    numbers: buffers::NUMBERS,
    states: [
        &["client_in_progress", "client_hello_done", "client_cert_done", "client_handshake_done", "client_finished"],
        &[
            "server_in_progress",
            "server_hello",
            "server_cert_done",
            "server_hello_done",
            "server_handshake_done",
            "server_finished",
        ],
    ],
    events: events::NAMES,
    frames: &["pdu", "hdr", "data", "alert", "heartbeat", "ssl2.hdr", "ssl2.pdu"],
    ..Protocol::new(AppProto::Tls, "tls").logged()
};

fn parser(config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::new(parser::TlsParser::new(&config.tls))
}
