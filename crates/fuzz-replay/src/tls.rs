//! The target `tls`: a session in pieces, as it is written, byte by byte, and in pieces of another size; and a certificate
//! by itself.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; any other byte is itself. The first option's low bits say what is done with what is encrypted, the second is the
//! size of pieces.

use margay_app::tls::{Encryption, Field, Fields};
use margay_app::{AppConfig, AppLogOptions, AppProto, BufferKind, LogFor, Outcome, Parse, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{flow, log, same};

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

/// Everything that rules and logs can see after a session in pieces of a size.
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
                if def.kind != BufferKind::Multi {
                    break;
                }
            }
        }
        out.extend(protocol.numbers.iter().map(|n| format!("{} {:?}", n.name, tx.number(n.id, dir, 0))));
    }
    let mut options = AppLogOptions::default();
    options.tls.fields = Field::NAMES.iter().fold(Fields::default(), |f, n| f.with(n.1));
    for what in [LogFor::Event, LogFor::Alert] {
        out.push(log(tx, &options, what));
    }
    out
}

/// A session of TLS: see the top of this file.
pub fn tls(data: &[u8]) {
    let [first, size, bytes @ ..] = data else { return };
    let mut config = AppConfig::default();
    (config.tls.ja3, config.tls.ja4) = (true, true);
    config.tls.encryption = match first & 3 {
        0 => Encryption::Full,
        1 => Encryption::Bypass,
        _ => Encryption::TrackOnly,
    };
    let acts = script(bytes);
    let whole = run(&config, &acts, usize::MAX);
    for size in [1, usize::from(*size) + 1] {
        let split = run(&config, &acts, size);
        same(&whole, &split, size);
    }
}
