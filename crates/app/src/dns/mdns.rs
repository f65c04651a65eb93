//! Multicast DNS (RFC 6762): messages of DNS that go to a group, queries and answers alike.

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::registry::{AppProto, Protocol};

use super::{buffers, events, parser::DnsParser, recognition};

/// Multicast DNS.
pub static PROTOCOL: Protocol = Protocol {
    recognition: recognition::MDNS,
    parser,
    buffers: buffers::MDNS_BUFFERS,
    events: events::NAMES,
    frames: &["pdu"],
    ..Protocol::new(AppProto::Mdns, "mdns").logged()
};

fn parser(_config: &AppConfig, flow: &FlowCore) -> Box<dyn Parser> {
    Box::new(DnsParser::new(AppProto::Mdns, flow.proto == 6))
}
