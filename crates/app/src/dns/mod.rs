//! DNS (RFC 1035) over UDP and TCP, and multicast DNS (RFC 6762), which has the same messages.
//!
//! Each message is a transaction of its own: a query goes to the server, a response to the client, and neither waits for the
//! other. [`message`] parses a message once into a few tables. Rules and logs use the valid part, even if the rest is invalid.

mod buffers;
pub mod events;
mod log;
mod mdns;
pub mod message;
mod parser;
mod rdata;
mod recognition;
pub mod rrtype;
mod script;
#[cfg(test)]
mod tests;
mod tx;
mod words;

use crate::conversation::parser;
use crate::declare::Protocol;
use crate::proto::AppProto;

pub use crate::config::dns::{Config, LogOptions, Version};
pub(crate) use buffers::{ALL_BUFFERS as BUFFERS, ALL_NUMBERS as NUMBERS};
pub use mdns::PROTOCOL as MDNS;
use parser::DnsFlow;
pub(crate) use tx::{DnsTx, carried};

/// Progress of a complete transaction: index in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// Frame type: index in the frames of [`PROTOCOL`].
const PDU_FRAME: u8 = 0;

/// DNS.
pub static PROTOCOL: Protocol = Protocol {
    headers: &[("dns", &["dns", "doh2"])],
    usual_port: Some(53),
    recognition: recognition::DNS,
    parser: parser::<DnsFlow<false>>,
    keywords: buffers::ALL_KEYWORDS,
    buffers: buffers::ALL_BUFFERS,
    numbers: buffers::ALL_NUMBERS,
    events: events::NAMES,
    frames: &["pdu"],
    ..Protocol::new(AppProto::Dns, "dns").logged()
};
