//! The target `messages`: a conversation of any protocol that has a parser, fed in the script's own pieces, in pieces of another
//! size, and as the engine feeds it. A protocol that is added to the list is fuzzed here without further work.
//!
//! Input: the name of the protocol in rules and a line feed; a byte of options (1: over UDP where the protocol runs over both, 2:
//! inline), the size of pieces less one, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte.
//! Any other byte stands for itself.

use margay_app::{AppConfig, AppLogOptions, LogFor, Outcome, PROTOCOLS, Parse, Parser, Protocol, Shared};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script, session};

/// Most values of a keyword that are compared.
const VALUES_MAX: usize = 64;

/// Collects everything that rules and logs can see of the transactions.
fn seen(protocol: &Protocol, parser: &dyn Parser) -> Vec<String> {
    let (mut out, options) = (Vec::new(), AppLogOptions::default());
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        out.push(format!("{:?} {:?}", tx.base().progress, tx.base().events.as_slice()));
        for dir in [ToServer, ToClient] {
            for def in protocol.buffers {
                for index in 0..VALUES_MAX {
                    let mut scratch = Vec::new();
                    let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                    out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
                    if !def.kind.is_several() {
                        break;
                    }
                }
            }
            for def in protocol.numbers {
                let numbers: Vec<u64> = (0..VALUES_MAX).map_while(|i| tx.number(def.id, dir, i)).collect();
                out.push(format!("{} {dir:?} {numbers:?}", def.name));
            }
        }
        out.push(log(tx, &options, LogFor::Event));
        out.push(log(tx, &options, LogFor::Alert));
    }
    out
}

/// Runs the script in pieces of `size`.
fn run(protocol: &Protocol, config: &AppConfig, acts: &[Act], transport: u8, size: usize, inline: bool) -> Vec<String> {
    let flow = flow(transport, protocol.usual_port.unwrap_or(9));
    let (mut shared, mut outcome) = (Shared::default(), Outcome::More);
    shared.frames.wanted = true;
    let mut parser = (protocol.parser)(config, &flow);
    let mut waiting = [Vec::new(), Vec::new()];
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let (dir, pieces) = match act {
            Act::Gap(dir, len) => {
                if outcome == Outcome::More {
                    let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline };
                    outcome = parser.gap(&mut cx, *dir, *len);
                }
                continue;
            }
            Act::Bytes(dir, bytes) if bytes.is_empty() => (*dir, vec![&bytes[..]]),
            Act::Bytes(dir, bytes) => (*dir, bytes.chunks(size).collect()),
        };
        for piece in pieces {
            if outcome != Outcome::More {
                break;
            }
            let held: &mut Vec<u8> = &mut waiting[dir.index()];
            held.extend_from_slice(piece);
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline };
            let parsed = parser.data(&mut cx, dir, held);
            assert!(parsed.consumed <= held.len(), "more used than there was");
            held.drain(..if transport == 6 { parsed.consumed } else { held.len() });
            outcome = parsed.outcome;
        }
    }
    let mut out = seen(protocol, &*parser);
    out.push(format!("{outcome:?} {:?}", shared.wishes));
    out
}

/// A conversation of any protocol: see the top of this file.
pub fn messages(data: &[u8]) {
    let Some(at) = data.iter().position(|b| *b == b'\n') else { return };
    let (name, [_, options, size, rest @ ..]) = data.split_at(at) else { return };
    // Protocols with their own options have their own target; those declared as data are tested here.
    let declared = PROTOCOLS.iter().filter(|p| !p.keywords.is_empty() || p.buffers.is_empty() && p.numbers.is_empty());
    let Some(protocol) = declared.into_iter().find(|p| p.rule_name.as_bytes() == name) else { return };
    let [tcp, udp] = protocol.transports();
    let transport = if udp && (!tcp || options & 1 != 0) { 17 } else { 6 };
    let (config, acts, inline) = (app_config(), script(rest), options & 2 != 0);
    let whole = run(protocol, &config, &acts, transport, usize::MAX, inline);
    let flow = flow(transport, protocol.usual_port.unwrap_or(9));
    session(&config, &flow, &mut Shared::default(), &acts, u32::from(*size) + 1, |_| {});
    // The place of a hole depends on the pieces, and datagrams are not divided.
    if transport == 6 && !acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        for size in [1, usize::from(*size) + 1] {
            same(&whole, &run(protocol, &config, &acts, transport, size, inline), size);
        }
    }
}
