//! Multicast DNS (RFC 6762): messages of DNS that go to a group, queries and answers alike.

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::registry::Protocol;

use super::{STATES, buffers, events, parser::DnsParser, recognition};

/// Multicast DNS.
pub static PROTOCOL: Protocol = Protocol {
    proto: AppProto::Mdns,
    config: "mdns",
    recognition: recognition::MDNS,
    parser,
    buffers: buffers::MDNS_BUFFERS,
    numbers: &[],
    states: STATES,
    events: events::NAMES,
    frames: &["pdu"],
    log: "mdns",
};

fn parser(_config: &AppConfig, flow: &FlowCore) -> Box<dyn Parser> {
    Box::new(DnsParser::new(AppProto::Mdns, flow.proto == 6))
}
