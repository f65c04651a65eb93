//! The targets `smb` and `dcerpc`: a connection, fed in the script's own pieces, byte by byte, and in pieces of another size; for
//! DCE/RPC, also datagrams. The target `token`, for SMB only: authentication tokens in a minimal message.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte.
//! Any other byte stands for itself.

use margay_app::smb::Config;
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script, session};

fn config(first: u8) -> AppConfig {
    let mut config = app_config();
    if first & 1 != 0 {
        config.settings.set(AppProto::Dcerpc, 0, 3);
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

/// Collects everything that rules and logs can see of a parser's transactions.
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
            out.push(format!("file {} {} {:?} {}", f.name().escape_ascii(), f.size(), f.state, f.gaps));
        }
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            out.push(log(tx, &AppLogOptions::default(), what));
        }
    }
}

/// Feeds a parser in pieces of `size`; 0 means the script's own pieces.
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
    said(proto, *first, *size, &script(rest));
}

/// Checks that a conversation has the same result in any pieces.
fn said(proto: AppProto, first: u8, size: u8, acts: &[Act]) {
    let config = config(first);
    let transport = if proto == AppProto::Dcerpc && first & 4 != 0 { 17 } else { 6 };
    let dice = u32::from(size) << 8 | u32::from(first);
    let mut shared = Shared::default();
    shared.files.wants.data = dice & 2 != 0;
    session(&config, &flow(transport, 445), &mut shared, acts, dice, |_| ());
    let whole = run(proto, transport, &config, acts, 0);
    if transport == 17 || acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    for size in [1, usize::from(size) + 1] {
        same(&whole, &run(proto, transport, &config, acts, size), size);
    }
}

/// An SMB connection: see the top of this file. The first byte has options, and the second is the size of pieces.
pub fn smb(data: &[u8]) {
    conversation(AppProto::Smb, data);
}

/// A DCE/RPC connection, or datagrams, in the same format.
pub fn dcerpc(data: &[u8]) {
    conversation(AppProto::Dcerpc, data);
}

/// Prefixes a message with its length (RFC 1002, section 4.3.1).
fn framed(message: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (message.len() as u32).to_be_bytes();
    [&[0, a, b, c], message].concat()
}

/// SESSION_SETUP of SMB 2 (MS-SMB2 section 2.2.5, 2.2.6) with a token.
fn setup2(dir: Direction, id: u64, token: &[u8]) -> Vec<u8> {
    let mut m = [&b"\xfeSMB"[..], &64u16.to_le_bytes(), &[0; 58]].concat();
    m[12] = 1;
    m[24..32].copy_from_slice(&id.to_le_bytes());
    m[40] = 7;
    let len = (token.len() as u16).to_le_bytes();
    if dir == ToServer {
        m.extend([&25u16.to_le_bytes()[..], &[0, 1], &[0; 8], &88u16.to_le_bytes(), &len, &[0; 8]].concat());
    } else {
        // STATUS_MORE_PROCESSING_REQUIRED.
        m[8..12].copy_from_slice(&0xc000_0016u32.to_le_bytes());
        m[16] = 1;
        m.extend([&9u16.to_le_bytes()[..], &[0, 0], &72u16.to_le_bytes(), &len].concat());
    }
    m.extend_from_slice(token);
    framed(&m)
}

/// SESSION_SETUP_ANDX of SMB 1 (MS-SMB section 2.2.4.6) with a token and names.
fn setup1(dir: Direction, id: u64, unicode: bool, token: &[u8]) -> Vec<u8> {
    let mut m = [&b"\xffSMB\x73"[..], &[0; 27]].concat();
    m[9] = if dir == ToServer { 0x18 } else { 0x98 };
    m[10..12].copy_from_slice(&(if unicode { 0xc807u16 } else { 0x4807 }).to_le_bytes());
    m[30..32].copy_from_slice(&(id as u16).to_le_bytes());
    let len = (token.len() as u16).to_le_bytes();
    if dir == ToServer {
        m.push(12);
        m.extend([&[0xff, 0, 0, 0, 0, 0x11, 2, 0, 1, 0, 0, 0, 0, 0][..], &len, &[0; 4], &[0xd4, 0, 0, 0x80]].concat());
    } else {
        m[5..9].copy_from_slice(&0xc000_0016u32.to_le_bytes());
        m.push(4);
        m.extend([&[0xff, 0, 0, 0, 0, 0][..], &len].concat());
    }
    let names: &[u8] = if unicode { b"\0W\0i\0n\0\0\0L\0\0\0" } else { b"Windows\0Lan Manager\0" };
    m.extend(((token.len() + names.len()) as u16).to_le_bytes());
    m.extend_from_slice(token);
    m.extend_from_slice(names);
    framed(&m)
}

/// Authentication tokens (NTLMSSP, Kerberos) in a session setup: options (16: SMB 1; 32: in Unicode), the
/// size of pieces, and a script in which each step is a token.
pub fn token(data: &[u8]) {
    let [first, size, rest @ ..] = data else { return };
    let steps = script(rest).into_iter().zip(0u64..);
    let acts: Vec<Act> = steps
        .filter_map(|(act, n)| match act {
            Act::Bytes(dir, token) if token.len() < 0x8000 => Some(Act::Bytes(
                dir,
                if first & 16 != 0 { setup1(dir, n / 2, first & 32 != 0, &token) } else { setup2(dir, n / 2, &token) },
            )),
            _ => None,
        })
        .collect();
    said(AppProto::Smb, first & 3, *size, &acts);
}
