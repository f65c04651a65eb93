//! The target `ssh`: a conversation, fed in the script's own pieces, byte by byte, and in pieces of another size.
//!
//! Input: a byte of options (1: fingerprints, 2: bypass, 4: full, 8: inline), the size of pieces less one, then the script.
//! In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the server; `FF 7B` (`{`) is a hole in the client's
//! bytes and `FF 7D` (`}`) in the server's, with the length in the next byte. Any other byte stands for itself.

use margay_app::ssh::{Config, EncryptionHandling};
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Protocol, Shared, protocol};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, script};

/// Most bytes that may wait: a KEXINIT, or a line.
const WAITING_MAX: usize = 65_536;

fn proto() -> &'static Protocol {
    protocol(AppProto::Ssh).expect("SSH has a parser")
}

/// Collects everything that rules and logs can see of the transaction.
fn seen(parser: &dyn Parser) -> Vec<String> {
    let Some(tx) = parser.tx(0) else { return Vec::new() };
    let mut out = vec![format!("{:?} {:?}", tx.base().progress, tx.base().events.as_slice())];
    out.push(format!("{} {}", tx.is_loggable(false), tx.records(&AppLogOptions::default())));
    for dir in [ToServer, ToClient] {
        for def in proto().buffers {
            let mut scratch = Vec::new();
            if let Some(found) = tx.buffer(def.id, dir, 0, &mut scratch) {
                out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
            }
        }
        out.push(format!("{:?}", tx.number(0, dir, 0)));
    }
    out.push(log(tx, &AppLogOptions::default(), LogFor::Event));
    out
}

/// Runs the script in pieces of `size`.
fn run(config: &AppConfig, acts: &[Act], size: usize, inline: bool) -> Vec<String> {
    let flow = flow(6, 22);
    let (mut shared, mut outcome) = (Shared::default(), Outcome::More);
    shared.frames.wanted = true;
    let mut parser = (proto().parser)(config, &flow);
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
            held.drain(..parsed.consumed);
            outcome = parsed.outcome;
            assert!(held.len() <= WAITING_MAX || outcome != Outcome::More, "{} bytes wait", held.len());
        }
    }
    let mut out = seen(&*parser);
    out.push(format!("{outcome:?} {:?}", shared.wishes));
    out
}

/// An SSH conversation: see the top of this file.
pub fn ssh(data: &[u8]) {
    let [options, size, rest @ ..] = data else { return };
    let encryption = match options & 6 {
        0 => EncryptionHandling::TrackOnly,
        2 => EncryptionHandling::Bypass,
        _ => EncryptionHandling::Full,
    };
    let config = AppConfig { ssh: Config { hassh: options & 1 != 0, encryption }, ..app_config() };
    let (acts, inline) = (script(rest), options & 8 != 0);
    let whole = run(&config, &acts, usize::MAX, inline);
    // The place of a hole and, inline, data after the last message depend on the pieces.
    if inline || acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        return;
    }
    for size in [1, usize::from(*size) + 1] {
        assert_eq!(run(&config, &acts, size, inline), whole, "in pieces of {size}");
    }
}
