//! TFTP (RFC 1350): requests to read or write a file are transactions; what follows them goes to ports of its own.

mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::datagram::DatagramParser;
use crate::parser::Parser;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::registry::{AppProto, Protocol};

pub use tx::{Request, TftpTx};

/// Progress of a complete transaction: place in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// TFTP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[69], probe }] },
    parser,
    ..Protocol::new(AppProto::Tftp, "tftp").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<DatagramParser<TftpTx>>::default()
}

/// An operation (RFC 1350 section 5, RFC 2347).
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data {
        [0, 1..=6, _, _, ..] => Probed::Yes { reverse: false },
        _ => Probed::No,
    }
}
