//! The target `smtp`: a conversation with its mails, fed in the script's own pieces, byte by byte, and in pieces of another size.
//!
//! Input: two bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte.
//! Any other byte stands for itself.

use margay_app::file::FileWants;
use margay_app::smtp::MailField;
use margay_app::{
    AppConfig, AppLogOptions, AppProto, AppSession, LogFor, Outcome, Parse, Parser, Protocol, Shared, protocol,
};
use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script};

/// Most bytes that wait for the rest of a line.
const MAX_WAITING: usize = 4096;

fn proto() -> &'static Protocol {
    protocol(AppProto::Smtp).expect("SMTP has a parser")
}

fn config(options: u8) -> AppConfig {
    let mut config = app_config();
    let smtp = &mut config.smtp;
    if options & 1 != 0 {
        (smtp.decode_mime, smtp.raw_extraction) = (false, true);
    }
    if options & 2 != 0 {
        (smtp.mime.base64, smtp.mime.quoted_printable) = (false, false);
    }
    if options & 4 != 0 {
        smtp.mime.schemes = [&b"http://"[..], b"ftp://", b"mailto:"].map(<[u8]>::to_vec).to_vec();
        (smtp.log_url_scheme, smtp.mime.body_md5) = (true, true);
    }
    if options & 8 != 0 {
        (smtp.max_tx, smtp.mime.value_depth) = (3, 8);
        config.files.max_files = 2;
    }
    config.files.force = FileWants { sha256: true, ..FileWants::NONE };
    config
}

/// Collects everything that rules and logs can see of a parser's transactions.
fn seen(parser: &dyn Parser, out: &mut Vec<String>) {
    let protocol = proto();
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        let base = tx.base();
        let mut events: Vec<_> = base.events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]).collect();
        events.sort_unstable();
        out.push(format!("tx {} {:?} {events:?}", base.id, base.progress));
        for def in protocol.buffers {
            for index in 0.. {
                let mut scratch = Vec::new();
                let Some(found) = tx.buffer(def.id, ToServer, index, &mut scratch) else { break };
                out.push(format!("{} {}", def.name, found.data.escape_ascii()));
                if !def.kind.is_several() {
                    break;
                }
            }
        }
        for f in base.files.all() {
            out.push(format!("file {} {} {:?} {:?}", f.name().escape_ascii(), f.size(), f.state, f.sha256()));
        }
        let mut options = AppLogOptions::default();
        options.smtp.fields = MailField::ALL.to_vec();
        (options.smtp.md5_body, options.smtp.md5_subject) = (true, true);
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            out.push(log(tx, &options, what));
        }
    }
}

/// Feeds a parser in pieces of `size`; 0 means the script's own pieces.
fn run(config: &AppConfig, acts: &[Act], size: usize) -> Vec<String> {
    let (mut shared, flow) = (Shared::default(), flow(6, 25));
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
            let (mut of, mut piece, last, mut end) = (dir, piece, end, end);
            loop {
                let held = &mut waiting[of.index()];
                held.extend_from_slice(piece);
                let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
                let parsed = parser.data(&mut cx, of, held);
                assert!(parsed.consumed <= held.len(), "more used than there was");
                held.drain(..parsed.consumed);
                outcome = parsed.outcome;
                // With `Resume` the rest waits only for the other direction, which continues now.
                assert!(outcome != Outcome::More || held.len() <= MAX_WAITING, "{} bytes wait", held.len());
                // The other direction continues with its waiting bytes, then this one.
                of = match outcome {
                    Outcome::Resume => of.reverse(),
                    Outcome::More if of != dir => dir,
                    _ => break,
                };
                (piece, end) = (b"", last && of == dir);
            }
        }
    }
    let mut lines = vec![format!("{outcome:?}")];
    seen(&*parser, &mut lines);
    for id in parser.txs() {
        parser.free_tx(&mut shared, id);
    }
    assert!(parser.txs().is_empty(), "transactions that are not freed");
    lines
}

/// The same as in the engine: transactions are inspected after every piece, and freed when complete or randomly before.
fn session(config: &AppConfig, acts: &[Act], dice: u8) {
    let (mut session, mut shared, flow) = (AppSession::default(), Shared::default(), flow(6, 25));
    shared.files.wants.data = true;
    let (mut waiting, mut dice) = ([Vec::new(), Vec::new()], u32::from(dice));
    let complete = proto().complete();
    for act in acts {
        let (dir, bytes) = match act {
            Act::Bytes(dir, bytes) => (*dir, &bytes[..]),
            Act::Gap(dir, len) => {
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
                tx.inspected(ToServer);
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
    }
    for parser in session.parsers_mut() {
        for id in parser.txs() {
            parser.free_tx(&mut shared, id);
        }
    }
    session.tidy();
    assert!(!session.has_txs(), "transactions that are not freed");
}

/// An SMTP conversation: see the top of this file.
pub fn smtp(data: &[u8]) {
    let [options, size, script_bytes @ ..] = data else { return };
    let config = config(*options);
    let acts = script(script_bytes);
    session(&config, &acts, *size);
    let whole = run(&config, &acts, 0);
    for size in [1, usize::from(*size) + 1] {
        let split = run(&config, &acts, size);
        same(&whole, &split, size);
    }
}
