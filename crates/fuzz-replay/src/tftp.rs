//! The target `tftp`: a datagram from the client.

use margay_app::{AppLogOptions, AppProto, LogFor, Parse, Shared, protocol};
use margay_flow::Direction::ToServer;
use margay_packet::Time;

use crate::talk::{app_config, flow, log};

/// A TFTP request.
pub fn tftp(data: &[u8]) {
    let config = app_config();
    let proto = protocol(AppProto::Tftp).expect("TFTP has a parser");
    let (flow, mut shared) = (flow(17, 69), Shared::default());
    let mut parser = (proto.parser)(&config, &flow);
    let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
    assert_eq!(parser.data(&mut cx, ToServer, data).consumed, data.len(), "a datagram does not wait");
    let Some(tx) = parser.tx(0) else { return };
    let text = log(tx, &AppLogOptions::default(), LogFor::Event);
    assert!(text.starts_with("{\"tftp\":{\"packet\":") && text.len() < 8 * data.len() + 128);
    parser.free_tx(&mut shared, 0);
    assert!(parser.txs().is_empty(), "all was freed");
}
