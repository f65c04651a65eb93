//! The target `ftp`: a control connection, fed in the script's own pieces, byte by byte, and in pieces of another size; then
//! the content of its data connections.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the
//! next byte. Any other byte stands for itself.

use margay_app::expect::{Awaited, Expect};
use margay_app::{
    AppConfig, AppLogOptions, AppProto, AppSession, LogFor, Outcome, Parse, Parser, Protocol, Shared, protocol,
};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script};

const DIRECTIONS: [Direction; 2] = [ToServer, ToClient];

fn proto() -> &'static Protocol {
    protocol(AppProto::Ftp).expect("FTP has a parser")
}

fn config(first: u8) -> AppConfig {
    let mut config = app_config();
    if first & 1 != 0 {
        config.ftp.max_line = 16;
    }
    if first & 2 != 0 {
        config.ftp.max_tx = 3;
    }
    if first & 4 != 0 {
        config.ftp.memcap = 64;
    }
    config
}

/// The result of a control connection.
struct Talk {
    lines: Vec<String>,
    said: Vec<Expect>,
}

/// Collects everything that rules and logs can see of a parser's transactions.
fn seen(parser: &dyn Parser, out: &mut Vec<String>) {
    let protocol = protocol(parser.proto()).expect("it has a parser");
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        let base = tx.base();
        let events = base.events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]);
        let mut events: Vec<_> = events.collect();
        events.sort_unstable();
        out.push(format!("tx {} {:?} {events:?}", base.id, base.progress));
        for dir in DIRECTIONS {
            for def in protocol.buffers {
                for index in 0.. {
                    let mut scratch = Vec::new();
                    let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                    out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
                    if !def.kind.is_several() {
                        break;
                    }
                }
            }
            for def in protocol.numbers {
                out.push(format!("{} {dir:?} {:?}", def.name, tx.number(def.id, dir, 0)));
            }
        }
        for f in base.files.all() {
            out.push(format!("file {} {} {:?}", f.name().escape_ascii(), f.size(), f.state));
        }
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            out.push(log(tx, &AppLogOptions::default(), what));
        }
    }
}

/// Feeds a parser in pieces of `size`; 0 means the script's own pieces.
fn run(config: &AppConfig, acts: &[Act], size: usize) -> Talk {
    let (mut shared, flow) = (Shared::default(), flow(6, 21));
    let mut parser = (proto().parser)(config, &flow);
    let (mut waiting, mut outcome) = ([Vec::new(), Vec::new()], Outcome::More);
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let (dir, bytes) = match act {
            Act::Bytes(dir, bytes) => (*dir, &bytes[..]),
            Act::Gap(dir, len) => {
                let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
                if outcome == Outcome::More {
                    outcome = parser.gap(&mut cx, *dir, *len);
                }
                continue;
            }
        };
        let pieces: Vec<&[u8]> =
            if end { vec![b""] } else { bytes.chunks(if size == 0 { usize::MAX } else { size }).collect() };
        for piece in pieces {
            if outcome != Outcome::More {
                break;
            }
            let held = &mut waiting[dir.index()];
            held.extend_from_slice(piece);
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
            let parsed = parser.data(&mut cx, dir, held);
            assert!(parsed.consumed <= held.len(), "more used than there was");
            held.drain(..parsed.consumed);
            outcome = parsed.outcome;
            let most = config.ftp.max_line as usize + 1;
            assert!(outcome != Outcome::More || held.len() <= most, "{} bytes wait", held.len());
        }
    }
    let mut lines = vec![format!("{outcome:?}")];
    seen(&*parser, &mut lines);
    for id in parser.txs() {
        parser.free_tx(&mut shared, id);
    }
    assert_eq!(shared.counters.ftp_memory, 0, "memory that is not given back");
    assert!(parser.txs().is_empty(), "transactions that are not freed");
    Talk { lines, said: shared.expected }
}

/// The same as in the engine: transactions are inspected after every piece, and freed when complete or randomly before.
fn session(config: &AppConfig, acts: &[Act], dice: u8) {
    let (mut session, mut shared, flow) = (AppSession::default(), Shared::default(), flow(6, 21));
    let (mut waiting, mut dice) = ([Vec::new(), Vec::new()], u32::from(dice));
    let complete = proto().complete();
    for act in acts {
        let (dir, bytes) = match act {
            Act::Bytes(dir, bytes) => (*dir, &bytes[..]),
            Act::Gap(dir, len) => {
                waiting[dir.index()].clear();
                let mut cx =
                    Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
                session.gap(&mut cx, *dir, *len);
                continue;
            }
        };
        waiting[dir.index()].extend_from_slice(bytes);
        for dir in [dir, dir.reverse(), dir] {
            let held: &mut Vec<u8> = &mut waiting[dir.index()];
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
            for _ in 0..16 {
                let said = session.data(&mut cx, dir, held);
                assert!(said.consumed <= held.len(), "more used than there was");
                held.drain(..said.consumed);
                if !said.again {
                    break;
                }
            }
        }
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for parser in session.parsers_mut() {
            for id in parser.txs() {
                let Some(tx) = parser.tx_mut(id) else { continue };
                if tx.base().progress == complete || dice >> 24 == 0 {
                    parser.free_tx(&mut shared, id);
                }
            }
        }
        if dice >> 28 == 1 {
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
            session.truncate(&mut cx, dir);
        }
        session.tidy();
        if config.ftp.memcap != 0 {
            // Command names are stored whatever the memory limit is.
            let names = 8 * session.tx_count();
            let held = shared.counters.ftp_memory;
            assert!(held <= config.ftp.memcap + names, "{held} bytes held");
        }
    }
    for parser in session.parsers_mut() {
        for id in parser.txs() {
            parser.free_tx(&mut shared, id);
        }
    }
    session.tidy();
    assert_eq!(shared.counters.ftp_memory, 0, "memory that is not given back");
    assert!(!session.has_txs(), "transactions that are not freed");
}

/// Runs an announced data connection with the script's bytes as content, in pieces of `size`.
fn carried(config: &AppConfig, said: &Expect, acts: &[Act], size: usize) -> Vec<String> {
    let Awaited::Carries(carries) = said.what.clone() else { return Vec::new() };
    let f = said.flow;
    let flow = FlowCore::new(2, f.transport, (f.from, 1024), (f.to, f.port), Time(0));
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    let mut begun = false;
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
        if !std::mem::replace(&mut begun, true) {
            session.begin(&mut cx, carries.clone(), false);
        }
        match act {
            Act::Bytes(dir, bytes) if !end => {
                for piece in bytes.chunks(if size == 0 { usize::MAX } else { size }) {
                    assert_eq!(session.data(&mut cx, *dir, piece).consumed, piece.len(), "data that waits");
                }
            }
            Act::Bytes(dir, _) => {
                session.data(&mut cx, *dir, b"");
            }
            Act::Gap(dir, len) => session.gap(&mut cx, *dir, *len),
        }
    }
    let mut lines = Vec::new();
    for parser in session.parsers() {
        seen(&**parser, &mut lines);
    }
    for parser in session.parsers_mut() {
        for id in parser.txs() {
            parser.free_tx(&mut shared, id);
        }
        assert!(parser.txs().is_empty(), "transactions that are not freed");
    }
    lines
}

/// An FTP conversation: see the top of this file.
pub fn ftp(data: &[u8]) {
    let [options, size, script_bytes @ ..] = data else { return };
    let config = config(*options);
    let acts = script(script_bytes);
    session(&config, &acts, *size);
    let whole = run(&config, &acts, 0);
    let other = usize::from(*size) + 1;
    for size in [1, other] {
        let split = run(&config, &acts, size);
        same(&whole.lines, &split.lines, size);
        assert_eq!(whole.said, split.said, "what was announced, in pieces of {size}");
    }
    if let Some(said) = whole.said.iter().find(|s| matches!(s.what, Awaited::Carries(_))) {
        let whole = carried(&config, said, &acts, 0);
        same(&whole, &carried(&config, said, &acts, other), other);
    }
}
