//! The targets `tls`, a session fed in the script's own pieces, byte by byte, and in pieces of another size; and `certificate`,
//! certificates in minimal messages.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server. Any other byte stands for itself. The low bits of the first option select the handling of encrypted data; the second
//! option is the size of pieces.

use margay_app::tls::{Encryption, Field, Fields};
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{app_config, flow, log, same};

fn script(mut data: &[u8]) -> Vec<(Direction, Vec<u8>)> {
    let mut acts = vec![(ToServer, Vec::new())];
    while let [first, rest @ ..] = data {
        data = match (first, rest) {
            (0xff, [to @ (b'>' | b'<'), rest @ ..]) => {
                acts.push((if *to == b'>' { ToServer } else { ToClient }, Vec::new()));
                rest
            }
            _ => {
                if let Some((_, bytes)) = acts.last_mut() {
                    bytes.push(*first);
                }
                rest
            }
        };
    }
    acts
}

/// Collects everything that rules and logs can see after a session in pieces of `size`.
fn run(config: &AppConfig, acts: &[(Direction, Vec<u8>)], size: usize) -> Vec<String> {
    let protocol = protocol(AppProto::Tls).expect("TLS has a parser");
    let flow = flow(6, 443);
    let mut shared = Shared::default();
    shared.frames.wanted = true;
    let mut parser = (protocol.parser)(config, &flow);
    let mut waiting = [Vec::new(), Vec::new()];
    let mut outcome = Outcome::More;
    let ends = [(ToServer, Vec::new()), (ToClient, Vec::new())];
    for (n, (dir, bytes)) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let pieces = if bytes.is_empty() { vec![&[][..]] } else { bytes.chunks(size).collect() };
        for piece in pieces {
            if outcome != Outcome::More {
                break;
            }
            let held = &mut waiting[dir.index()];
            held.extend_from_slice(piece);
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
            let parsed = parser.data(&mut cx, *dir, held);
            assert!(parsed.consumed <= held.len(), "more used than there was");
            held.drain(..parsed.consumed);
            outcome = parsed.outcome;
        }
    }
    let mut out = vec![format!("{outcome:?} {:?}", shared.wishes)];
    let Some(tx) = parser.tx(0) else { return out };
    let mut events = tx.base().events.as_slice().to_vec();
    events.sort_unstable();
    out.push(format!("{:?} {events:?}", tx.base().progress));
    for dir in [ToServer, ToClient] {
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
        // The state is that of the data that arrived last, so it depends on the pieces.
        let numbers = protocol.numbers.iter().filter(|n| n.name != "ssl_state");
        out.extend(numbers.map(|n| format!("{} {:?}", n.name, tx.number(n.id, dir, 0))));
    }
    let mut options = AppLogOptions::default();
    options.tls.fields = Field::NAMES.iter().fold(Fields::default(), |f, n| f.with(n.1));
    for what in [LogFor::Event, LogFor::Alert] {
        out.push(log(tx, &options, what));
    }
    out
}

/// A TLS session: see the top of this file.
pub fn tls(data: &[u8]) {
    let [first, size, bytes @ ..] = data else { return };
    let mut config = app_config();
    (config.tls.ja3, config.tls.ja4) = (true, true);
    config.tls.encryption = match first & 3 {
        0 => Encryption::Full,
        1 => Encryption::Bypass,
        _ => Encryption::TrackOnly,
    };
    split(&config, &script(bytes), *size);
}

/// Asserts that the session in pieces gives the same result as the whole.
fn split(config: &AppConfig, acts: &[(Direction, Vec<u8>)], size: u8) {
    let whole = run(config, acts, usize::MAX);
    for size in [1, usize::from(size) + 1] {
        let split = run(config, acts, size);
        same(&whole, &split, size);
    }
}

/// Prefixes a body with three bytes of length.
fn sized(body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[a, b, c], body].concat()
}

/// A handshake message in records (RFC 5246, section 6.2.1).
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind], &sized(body)[..]].concat();
    let records = message.chunks(1 << 14);
    records.flat_map(|r| [&[22, 3, 3], &(r.len() as u16).to_be_bytes()[..], r].concat()).collect()
}

/// Certificates of a server or a client; `FF 3E` (`>`) separates them. The first byte has options (1: the client's), and the
/// second is the size of pieces.
pub fn certificate(data: &[u8]) {
    let [first, size, bytes @ ..] = data else { return };
    let config = app_config();
    let chain: Vec<u8> = script(bytes).iter().flat_map(|(_, der)| sized(der)).collect();
    let chain = handshake(11, &sized(&chain));
    // Version, random, no session, TLS_RSA_WITH_AES_128_CBC_SHA.
    let hello = |tail: &[u8]| [&[3, 3], &[7; 32][..], &[0], tail].concat();
    let mut server = handshake(2, &hello(&[0, 0x2f, 0]));
    let mut client = handshake(1, &hello(&[0, 2, 0, 0x2f, 1, 0]));
    if first & 1 != 0 {
        client.extend(chain);
    } else {
        server.extend(chain);
    }
    split(&config, &[(ToServer, client), (ToClient, server)], *size);
}
