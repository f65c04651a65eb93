//! DNS (RFC 1035), over UDP and over TCP, and multicast DNS (RFC 6762), which has the same messages.
//!
//! Each message is a transaction of its own: a query goes to the server, a response to the client, and neither waits for
//! the other. A message is read once ([`message`]) into a few tables; rules and logs see what is there, also where the rest
//! of it makes no sense.

mod buffers;
mod config;
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
use crate::registry::{AppProto, Protocol};

pub(crate) use buffers::{ALL_BUFFERS as BUFFERS, ALL_NUMBERS as NUMBERS};
pub use config::{Config, LogOptions, Version};
pub use mdns::PROTOCOL as MDNS;
use parser::DnsFlow;
pub(crate) use tx::{DnsTx, carried};

/// Progress of a complete transaction: place in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// Type of frames: place in the frames of [`PROTOCOL`].
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
