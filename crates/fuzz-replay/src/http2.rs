//! The targets `http2`, a connection fed in the script's own pieces, byte by byte, and in pieces of another size; and `hpack`,
//! header blocks in minimal frames.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte.
//! Any other byte stands for itself.

use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Shared, Upgrade, protocol};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script, session};

fn config(first: u8) -> AppConfig {
    let mut config = app_config();
    config.arguments = Some(Default::default());
    let h = &mut config.http2;
    if first & 1 != 0 {
        (h.max_streams, h.max_frames) = (3, 4);
    }
    if first & 2 != 0 {
        (h.max_table_size, h.max_reassembly_size) = (128, 256);
    }
    h.doh2 = first & 4 == 0;
    h.server.decompress.bomb = 64 << 10;
    h.server.decompress.work = 1 << 20;
    config
}

/// Collects everything that rules and logs can see of a parser's transactions.
fn seen(parser: &dyn Parser, out: &mut Vec<String>) {
    let protocol = protocol(parser.proto()).expect("it has a parser");
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        let base = tx.base();
        let mut events: Vec<_> = base.events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]).collect();
        events.sort_unstable();
        out.push(format!("tx {} {:?} {events:?}", base.id, base.progress));
        for dir in [ToServer, ToClient] {
            for def in protocol.buffers {
                for index in 0.. {
                    let mut scratch = Vec::new();
                    let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                    out.push(format!("{} {dir:?} {} {}", def.name, found.data.escape_ascii(), found.end));
                    if !def.kind.is_several() {
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
            out.push(format!("file {} {} {:?} {:?}", f.name().escape_ascii(), f.size(), f.state, f.range));
        }
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            out.push(log(tx, &AppLogOptions::default(), what));
        }
        if let Some((_, carried)) = tx.carried() {
            out.push(log(carried, &AppLogOptions::default(), LogFor::Event));
        }
        let _ = tx.forwarded_for("x-forwarded-for", true);
    }
}

/// Feeds a parser in pieces of `size`; 0 means the script's own pieces.
fn run(config: &AppConfig, acts: &[Act], size: usize, upgrade: Option<&Upgrade>) -> Vec<String> {
    let (mut shared, flow) = (Shared::default(), flow(6, 80));
    let mut parser = (protocol(AppProto::Http2).expect("it has a parser").parser)(config, &flow);
    let (mut waiting, mut over) = ([Vec::new(), Vec::new()], None);
    if let Some(u) = upgrade {
        let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
        parser.take_over(&mut cx, u.clone());
    }
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
            if !matches!(parsed.outcome, Outcome::More | Outcome::Rename(_)) {
                over = Some(parsed.outcome);
            }
        }
    }
    let mut out = vec![format!("{over:?} {:?}", parser.proto())];
    seen(&*parser, &mut out);
    while let Some(id) = parser.next_tx(0) {
        parser.free_tx(&mut shared, id);
    }
    assert_eq!(shared.counters.http_memory, 0, "memory that is not given back");
    assert!(parser.txs().is_empty(), "transactions that are not freed");
    out
}

/// An HTTP/2 connection: see the top of this file. The first byte has options, and the second is the size of pieces.
pub fn http2(data: &[u8]) {
    let [first, size, rest @ ..] = data else { return };
    let upgrade = (first & 8 != 0).then(|| Upgrade {
        method: b"GET".to_vec(),
        target: b"/".to_vec(),
        host: Some(b"example.com".to_vec()),
        settings: Some(rest.iter().copied().take(usize::from(*size)).collect()),
        fields: vec![(b"Accept".to_vec(), b"*/*".to_vec())],
    });
    conversation(*first, *size, &script(rest), upgrade.as_ref());
}

/// Checks that a conversation has the same result in any pieces.
fn conversation(first: u8, size: u8, acts: &[Act], upgrade: Option<&Upgrade>) {
    let config = config(first);
    let mut shared = Shared::default();
    session(&config, &flow(6, 80), &mut shared, acts, u32::from(size) << 8 | u32::from(first), |shared| {
        // Header compression allows many times the input, and the rest has its own bounds.
        assert!(shared.counters.http_memory < 64 << 20, "{}", shared.counters.http_memory);
    });
    assert_eq!(shared.counters.http_memory, 0, "memory that is not given back");
    if acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    let whole = run(&config, acts, 0, upgrade);
    // The point at which decompression gives up depends on the pieces.
    if whole.iter().any(|l| l.contains("failed_decompression")) {
        return;
    }
    for size in [1, usize::from(size) + 1] {
        let split = run(&config, acts, size, upgrade);
        same(&whole, &split, size);
    }
}

/// Most bytes of a frame after its header.
const FRAME: usize = 16_384;

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], body].concat()
}

/// Compressed header blocks (RFC 7541): options, the size of pieces, and a script as for `http2`, in which each step is the
/// header block of a request or response. The options' upper bits select the size of the table.
pub fn hpack(data: &[u8]) {
    let [first, size, rest @ ..] = data else { return };
    let table: u32 = [4096, 0, 100, 65_536][usize::from(first >> 6)];
    let settings = frame(4, 0, 0, &[&[0, 1], &table.to_be_bytes()[..]].concat());
    let mut acts = vec![
        Act::Bytes(ToServer, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()),
        Act::Bytes(ToClient, settings),
    ];
    let mut stream = 1;
    for act in script(rest) {
        let Act::Bytes(dir, block) = act else { continue };
        if dir == ToServer {
            stream += 2;
        }
        // HEADERS, then CONTINUATION; the last one says END_HEADERS.
        let count = block.len().div_ceil(FRAME).max(1);
        let mut bytes = Vec::new();
        for n in 0..count {
            let piece = block.chunks(FRAME).nth(n).unwrap_or(&[]);
            let (kind, flags) = (if n == 0 { 1 } else { 9 }, if n + 1 == count { 4 } else { 0 });
            bytes.extend(frame(kind, flags | u8::from(n == 0), stream, piece));
        }
        acts.push(Act::Bytes(dir, bytes));
    }
    conversation(first & 7, *size, &acts, None);
}
