//! The target `quic`: the datagrams of a conversation.
//!
//! Input: a script. In it `FF 3E` (`>`) begins a datagram of the client and `FF 3C` (`<`) of the server; any other byte stands for
//! itself.

use margay_app::{AppLogOptions, AppProto, LogFor, Outcome, Parse, Shared, protocol};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, script};

/// Most transactions of a datagram, which are its packets.
const PACKETS_MAX: u64 = 16;

/// QUIC datagrams: see the top of this file.
pub fn quic(data: &[u8]) {
    let config = app_config();
    let proto = protocol(AppProto::Quic).expect("QUIC has a parser");
    let flow = flow(17, 443);
    let mut shared = Shared::default();
    let mut parser = (proto.parser)(&config, &flow);
    for act in script(data) {
        let Act::Bytes(dir, bytes) = act else { continue };
        let before = parser.txs();
        let mut cx =
            Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
        let parsed = parser.data(&mut cx, dir, &bytes);
        assert_eq!(parsed.consumed, bytes.len(), "a datagram does not wait");
        assert!(parser.txs().end - before.end <= PACKETS_MAX, "more packets than there can be");
        for id in parser.txs() {
            let Some(tx) = parser.tx(id) else { continue };
            assert_eq!(tx.base().progress, proto.complete(), "a packet is complete at once");
            assert!(tx.base().events.as_slice().len() <= proto.events.len());
            for dir in [ToServer, ToClient] {
                for def in proto.buffers {
                    let mut scratch = Vec::new();
                    assert!(tx.buffer(def.id, dir, 1, &mut scratch).is_none(), "there is one of each");
                    let _ = tx.buffer(def.id, dir, 0, &mut scratch).map(|f| f.data.len());
                }
            }
            assert!(log(tx, &AppLogOptions::default(), LogFor::Event).starts_with("{\"quic\":{\"version\":\""));
        }
        // Keep the first transactions, as if rules still inspected them.
        for id in parser.txs().skip(2) {
            parser.free_tx(&mut shared, id);
        }
        if parsed.outcome != Outcome::More {
            break;
        }
    }
    for id in parser.txs() {
        parser.free_tx(&mut shared, id);
    }
    assert!(parser.txs().is_empty(), "all was freed");
}
