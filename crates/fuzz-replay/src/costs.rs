//! The cost of each parser per byte of real conversations: parsing, and creating and freeing transactions, without protocol
//! detection, rules and log (`tools/parser-costs`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use margay_app::{AppConfig, Outcome, PROTOCOLS, Parse, Parser, Protocol, Shared, protocol};
use margay_flow::Direction::{ToClient, ToServer};
use margay_flow::FlowCore;
use margay_packet::Time;

use crate::seeds::flows::{Conversation, Keep, conversations};
use crate::talk::{Act, app_config, flow};

/// Keeps a flow's segments as they arrived. The limit prevents one download from outweighing all other conversations.
const KEEP: Keep = Keep { bytes: 1 << 20, join: false };
/// The best of this many rounds counts, because other work only adds time.
const ROUNDS: u32 = 7;
/// The shortest time of a round. A protocol with few bytes is parsed several times.
const ROUND: Duration = Duration::from_millis(20);
/// The fewest bytes of a conversation that is listed alone as the slowest, because shorter ones measure the parser's creation.
const ALONE_MIN: u64 = 1024;

/// Conversations by protocol.
#[derive(Debug, Default)]
pub struct Costs {
    of: BTreeMap<&'static str, Vec<Conversation>>,
}

/// The cost of a parser.
#[derive(Debug)]
pub struct Cost {
    /// The protocol, as in events.
    pub name: &'static str,
    /// Number of conversations.
    pub conversations: usize,
    /// Bytes that the parser read, in all of them.
    pub bytes: u64,
    /// Nanoseconds per byte.
    pub mean: f64,
    /// Nanoseconds per byte of the slowest conversation of 1 KiB or more.
    pub slowest: Option<f64>,
}

impl Costs {
    /// Adds the conversations of a capture.
    pub fn capture(&mut self, bytes: &[u8]) {
        for c in conversations(bytes, KEEP) {
            if let Some(p) = protocol(c.proto) {
                self.of.entry(p.name).or_default().push(c);
            }
        }
    }

    /// Measures each protocol, in the order of their names. `done` is called after each.
    pub fn measure(&self, mut done: impl FnMut(&Cost)) -> Vec<Cost> {
        let config = app_config();
        let mut out = Vec::new();
        for (name, all) in &self.of {
            let Some(p) = PROTOCOLS.iter().find(|p| p.name == *name) else { continue };
            let read: Vec<u64> = all.iter().map(|c| parse(p, &config, c)).collect();
            let bytes: u64 = read.iter().sum();
            if bytes == 0 {
                continue;
            }
            let mean = time(|| all.iter().for_each(|c| _ = black_box(parse(p, &config, c)))) / bytes as f64;
            let long = all.iter().zip(&read).filter(|(_, n)| **n >= ALONE_MIN);
            let each = long.map(|(c, n)| time(|| _ = black_box(parse(p, &config, c))) / *n as f64);
            let cost = Cost { name, conversations: all.len(), bytes, mean, slowest: each.reduce(f64::max) };
            done(&cost);
            out.push(cost);
        }
        out
    }

    /// Parsers of which no conversation was added. Some protocols begin only within another one.
    pub fn missing(&self) -> Vec<&'static str> {
        PROTOCOLS.iter().map(|p| p.name).filter(|name| !self.of.contains_key(name)).collect()
    }
}

/// Nanoseconds that `f` takes: the best of several rounds.
fn time(mut f: impl FnMut()) -> f64 {
    let started = Instant::now();
    f();
    let once = started.elapsed().max(Duration::from_nanos(1));
    let repeats = (ROUND.as_nanos() / once.as_nanos() + 1).min(100_000) as u32;
    let round = |_| {
        let started = Instant::now();
        (0..repeats).for_each(|_| f());
        started.elapsed().as_nanos() as f64 / f64::from(repeats)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Parses a conversation from its beginning. Returns how many bytes the parser was given, each once.
fn parse(p: &Protocol, config: &AppConfig, c: &Conversation) -> u64 {
    let flow: FlowCore = flow(c.transport, c.ports[1]);
    let mut shared = Shared::default();
    let mut parser = (p.parser)(config, &flow);
    let (mut waiting, mut bytes) = ([Vec::new(), Vec::new()], 0);
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in c.acts.iter().chain(&ends).enumerate() {
        let end = n >= c.acts.len();
        let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
        let outcome = match act {
            Act::Gap(dir, len) => parser.gap(&mut cx, *dir, *len),
            Act::Bytes(dir, piece) => {
                bytes += piece.len() as u64;
                let held: &mut Vec<u8> = &mut waiting[dir.index()];
                let parsed = if held.is_empty() {
                    let parsed = parser.data(&mut cx, *dir, piece);
                    held.extend_from_slice(piece.get(parsed.consumed..).unwrap_or(&[]));
                    parsed
                } else {
                    held.extend_from_slice(piece);
                    let parsed = parser.data(&mut cx, *dir, held);
                    held.drain(..parsed.consumed.min(held.len()));
                    parsed
                };
                if c.transport == 17 {
                    held.clear();
                }
                parsed.outcome
            }
        };
        free(p, &mut *parser, &mut shared, false);
        if outcome != Outcome::More {
            break;
        }
    }
    free(p, &mut *parser, &mut shared, true);
    bytes
}

/// Frees the transactions that are complete, or all.
fn free(p: &Protocol, parser: &mut dyn Parser, shared: &mut Shared, all: bool) {
    let (complete, mut from) = (p.complete(), 0);
    while let Some(id) = parser.next_tx(from) {
        from = id + 1;
        let Some(tx) = parser.tx_mut(id) else { continue };
        tx.inspected(ToServer);
        tx.inspected(ToClient);
        if all || tx.base().progress == complete {
            parser.free_tx(shared, id);
        }
    }
}

/// A table of the costs, the slowest first.
pub fn table(costs: &[Cost]) -> String {
    let mut rows: Vec<&Cost> = costs.iter().collect();
    rows.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    let mut out = format!(
        "{:<16} {:>13} {:>11} {:>8} {:>20}\n",
        "parser", "conversations", "bytes", "ns/byte", "slowest conversation"
    );
    for c in rows {
        let slowest = c.slowest.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let _ = writeln!(out, "{:<16} {:>13} {:>11} {:>8.2} {:>20}", c.name, c.conversations, c.bytes, c.mean, slowest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo's protocols are measured, and a protocol without a conversation is named.
    #[test]
    fn the_demo_has_costs() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut costs = Costs::default();
        costs.capture(&std::fs::read(root.join("demo/demo.pcap")).expect("the demo"));
        let measured = costs.measure(|_| {});
        let http = measured.iter().find(|c| c.name == "http").expect("HTTP is measured");
        assert!(http.bytes > 100 && http.mean > 0.0, "{http:?}");
        assert!(costs.missing().contains(&"rfb") && !costs.missing().contains(&"http"));
        assert!(table(&measured).contains("http "));
    }
}
