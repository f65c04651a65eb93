//! The targets `smb` and `dcerpc`: a connection in pieces, as it is written, byte by byte, and in pieces of another size;
//! and of DCE/RPC, datagrams.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, as long as the byte behind it
//! says. Any other byte is itself.

use margay_app::smb::Config;
use margay_app::{AppConfig, AppLogOptions, AppProto, BufferKind, LogFor, Outcome, Parse, Parser, Shared, protocol};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, flow, log, same, script, session};

fn config(first: u8) -> AppConfig {
    let mut config = AppConfig::default();
    if first & 1 != 0 {
        config.dcerpc.max_tx = 3;
        config.smb = Config {
            max_tx: 3,
            max_guid_cache_size: 1,
            max_rec_offset_cache_size: 1,
            max_tree_cache_size: 1,
            max_dcerpc_frag_cache_size: 1,
            max_session_cache_size: 1,
            ..Config::default()
        };
    }
    if first & 2 != 0 {
        let s = &mut config.smb;
        (s.max_read_size, s.max_write_size) = (8, 8);
        (s.max_read_queue_size, s.max_write_queue_size) = (16, 16);
        (s.max_read_queue_cnt, s.max_write_queue_cnt) = (2, 2);
    }
    config
}

/// Everything that rules and logs can see of a parser's transactions.
fn seen(parser: &dyn Parser, out: &mut Vec<String>) {
    let protocol = protocol(parser.proto()).expect("it has a parser");
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        let base = tx.base();
        let mut events: Vec<_> = base.events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]).collect();
        events.sort_unstable();
        out.push(format!("tx {} {:?} {events:?}", base.id, base.progress));
        for dir in [ToServer, ToClient] {
            out.push(format!("little endian {dir:?} {}", tx.little_endian(dir)));
            for def in protocol.buffers {
                for index in 0.. {
                    let mut scratch = Vec::new();
                    let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                    out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
                    if def.kind != BufferKind::Multi {
                        break;
                    }
                }
            }
            for def in protocol.numbers {
                let all: Vec<_> = (0..).map_while(|n| tx.number(def.id, dir, n)).take(64).collect();
                out.push(format!("{} {dir:?} {all:?}", def.name));
            }
        }
        for f in base.files.all() {
            out.push(format!("file {} {} {:?} {}", f.name().escape_ascii(), f.size(), f.state, f.gaps));
        }
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            out.push(log(tx, &AppLogOptions::default(), what));
        }
    }
}

/// Feeds a parser in pieces of a size; 0 is as it is written.
fn run(proto: AppProto, transport: u8, config: &AppConfig, acts: &[Act], size: usize) -> Vec<String> {
    let (mut shared, flow) = (Shared::default(), flow(transport, 445));
    shared.files.wants.data = true;
    let mut parser = (protocol(proto).expect("it has a parser").parser)(config, &flow);
    let (mut waiting, mut over) = ([Vec::new(), Vec::new()], None);
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let Act::Bytes(dir, bytes) = act else { continue };
        let pieces = bytes.chunks(if size == 0 { usize::MAX } else { size });
        for piece in pieces.chain(end.then_some(&[][..])) {
            if over.is_some() {
                continue;
            }
            let held: &mut Vec<u8> = &mut waiting[dir.index()];
            held.extend_from_slice(piece);
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
            let parsed = parser.data(&mut cx, *dir, held);
            assert!(parsed.consumed <= held.len(), "more used than there was");
            held.drain(..parsed.consumed);
            if parsed.outcome != Outcome::More {
                over = Some(parsed.outcome);
            }
        }
    }
    let mut out = vec![format!("{over:?}")];
    seen(&*parser, &mut out);
    while let Some(id) = parser.next_tx(0) {
        parser.free_tx(&mut shared, id);
    }
    assert!(parser.txs().is_empty(), "transactions that are not freed");
    out
}

fn conversation(proto: AppProto, data: &[u8]) {
    let [first, size, rest @ ..] = data else { return };
    let config = config(*first);
    let acts = script(rest);
    let transport = if proto == AppProto::Dcerpc && first & 4 != 0 { 17 } else { 6 };
    let dice = u32::from(*size) << 8 | u32::from(*first);
    let mut shared = Shared::default();
    shared.files.wants.data = dice & 2 != 0;
    session(&config, &flow(transport, 445), &mut shared, &acts, dice, |_| ());
    let whole = run(proto, transport, &config, &acts, 0);
    if transport == 17 || acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    for size in [1, usize::from(*size) + 1] {
        same(&whole, &run(proto, transport, &config, &acts, size), size);
    }
}

/// A connection of SMB: see the top of this file. The first byte is options, the second the size of pieces.
pub fn smb(data: &[u8]) {
    conversation(AppProto::Smb, data);
}

/// A connection of DCE/RPC, or datagrams: likewise.
pub fn dcerpc(data: &[u8]) {
    conversation(AppProto::Dcerpc, data);
}
