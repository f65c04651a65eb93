//! The target `dns`: messages as datagrams of DNS or multicast DNS, or a conversation over a stream. The stream is fed in the
//! script's own pieces, byte by byte, and in pieces of another size.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server, each a datagram; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, as long as the
//! byte behind it says, where there is a stream. Any other byte stands for itself.

use margay_app::dns::message::{BUDGET, Message, NAME_MAX};
use margay_app::dns::{LogOptions, Version};
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Protocol, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, json, log, same, script};

/// A parser and its environment, fed as a session feeds it.
struct Talk<'a> {
    config: &'a AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
}

impl<'a> Talk<'a> {
    fn new(config: &'a AppConfig, protocol: &Protocol, transport: u8) -> Self {
        let flow = flow(transport, 53);
        let parser = (protocol.parser)(config, &flow);
        Talk { config, flow, shared: Shared::default(), parser, waiting: [Vec::new(), Vec::new()] }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) {
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let (config, flow) = (self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end, inline: false };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        assert!(parsed.consumed <= waiting.len(), "more used than there was");
        assert_eq!(parsed.outcome, Outcome::More);
        waiting.drain(..parsed.consumed);
        assert!(waiting.len() < 2 + (1 << 16), "a message is never as long as what waits");
    }

    fn gap(&mut self, dir: Direction, len: u64) {
        let (config, flow) = (self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        assert_eq!(self.parser.gap(&mut cx, dir, len), Outcome::More);
    }

    /// Collects everything that rules and logs can see, and then frees all transactions.
    fn seen(mut self, protocol: &Protocol) -> Vec<String> {
        let mut out = Vec::new();
        let mut o = AppLogOptions::default();
        for tx in self.parser.txs().filter_map(|id| self.parser.tx(id)) {
            let base = tx.base();
            assert_eq!(base.progress, protocol.complete(), "a message is complete at once");
            out.push(format!("{} {:?} {:?}", base.id, base.events.as_slice(), base.only));
            for dir in [ToServer, ToClient] {
                for def in protocol.buffers {
                    for index in 0.. {
                        let mut scratch = Vec::new();
                        let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                        assert!(found.data.len() <= NAME_MAX);
                        out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
                    }
                }
                for def in protocol.numbers {
                    let all: Vec<_> = (0..).map_while(|i| tx.number(def.id, dir, i)).collect();
                    out.push(format!("{} {all:?}", def.name));
                }
            }
            for version in [Version::V2, Version::V3] {
                o.dns = LogOptions { version, ..LogOptions::default() };
                out.extend((0..tx.records(&o)).map(|n| json(|j| tx.log_record(n, j, &o))));
                out.push(log(tx, &o, LogFor::Alert));
            }
        }
        for id in self.parser.txs() {
            self.parser.free_tx(&mut self.shared, id);
        }
        assert!(self.parser.txs().is_empty(), "transactions that are not freed");
        out
    }
}

/// Checks that the stored part of a message is bounded.
fn bounded(data: &[u8]) {
    let m = Message::read(data);
    assert!(m.records().len() <= data.len() / 5 + 1, "more records than fit");
    // Names beyond the budget still have one label each.
    let names: usize = m.records().iter().map(|r| m.text(r.name).len()).sum();
    assert!(names <= BUDGET + 64 * m.records().len(), "{names} bytes of names");
}

/// Runs the script in pieces of `size`; 0 means the script's own pieces.
fn run(config: &AppConfig, protocol: &Protocol, acts: &[Act], size: usize) -> Vec<String> {
    let mut t = Talk::new(config, protocol, 6);
    for act in acts {
        match act {
            Act::Bytes(dir, bytes) => {
                for piece in bytes.chunks(if size == 0 { usize::MAX } else { size }) {
                    t.feed(*dir, piece, false);
                }
            }
            Act::Gap(dir, len) => t.gap(*dir, *len),
        }
    }
    t.feed(ToServer, b"", true);
    t.feed(ToClient, b"", true);
    t.seen(protocol)
}

/// DNS messages: see the top of this file. The first byte has options (1: a stream; 2: multicast), and the second is the size
/// of pieces.
pub fn dns(data: &[u8]) {
    let [options, size, script_bytes @ ..] = data else { return };
    let config = app_config();
    let proto = if options & 3 == 2 { AppProto::Mdns } else { AppProto::Dns };
    let protocol = protocol(proto).expect("DNS has a parser");
    let acts = script(script_bytes);
    if options & 1 == 0 {
        let mut t = Talk::new(&config, protocol, 17);
        for act in &acts {
            if let Act::Bytes(dir, bytes) = act {
                bounded(bytes);
                t.feed(*dir, bytes, false);
            }
        }
        t.seen(protocol);
        return;
    }
    let whole = run(&config, protocol, &acts, 0);
    if acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    // Transactions of both sides are numbered in order of arrival, so their order is the same only within a step of the script.
    for size in [1, usize::from(*size) + 1] {
        let split = run(&config, protocol, &acts, size);
        same(&whole, &split, size);
    }
}
