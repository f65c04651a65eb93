//! DHCP (RFC 2131, options of RFC 2132) over UDP: each message is a transaction.

mod log;
pub mod message;
mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::datagram::DatagramParser;
use crate::parser::Parser;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::registry::{AppProto, Protocol};

pub use log::LogOptions;
pub use tx::DhcpTx;

pub mod events {
    //! What may be wrong, under the names that rules know (`app-layer-event:dhcp.NAME`).

    events! {
        "DHCP";
        MalformedOptions "malformed_options";
        TruncatedOptions "truncated_options";
    }
}

/// Progress of a complete transaction: place in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// DHCP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[67, 68], probe }] },
    parser,
    numbers: tx::NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Dhcp, "dhcp").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<DatagramParser<DhcpTx>>::default()
}

/// By its size.
fn probe(_: Direction, data: &[u8]) -> Probed {
    if data.len() >= message::HEADER { Probed::Yes { reverse: false } } else { Probed::No }
}

#[cfg(test)]
mod tests;
