//! The target `dhcp`: a datagram from the server.

use margay_app::{AppLogOptions, AppProto, LogFor, Parse, Shared, protocol};
use margay_flow::Direction::ToClient;
use margay_packet::Time;

use crate::talk::{app_config, flow, log};

/// A DHCP message.
pub fn dhcp(data: &[u8]) {
    let config = app_config();
    let proto = protocol(AppProto::Dhcp).expect("DHCP has a parser");
    let (flow, mut shared) = (flow(17, 67), Shared::default());
    let mut parser = (proto.parser)(&config, &flow);
    let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
    assert_eq!(parser.data(&mut cx, ToClient, data).consumed, data.len(), "a datagram does not wait");
    let Some(tx) = parser.tx(0) else { return };
    assert!(data.len() >= 240 && tx.base().progress == proto.complete());
    for def in proto.numbers {
        assert!(tx.number(def.id, ToClient, 0).is_none_or(|n| n <= u64::from(u32::MAX)));
    }
    let mut options = AppLogOptions::default();
    let extended = proto.eve_options.iter().position(|o| o.key == "extended").expect("the option is declared");
    options.options.set(AppProto::Dhcp, extended, 1);
    let text = log(tx, &options, LogFor::Event);
    assert!(text.starts_with("{\"dhcp\":{\"type\":") && text.len() < 16 * data.len() + 512);
    parser.free_tx(&mut shared, 0);
    assert!(parser.txs().is_empty(), "all was freed");
}
