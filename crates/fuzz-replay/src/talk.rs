//! Shared parts of the conversation targets: the script, the flow, the comparison.

use std::net::IpAddr;
use std::sync::OnceLock;

use margay_app::recognise::Recogniser;
use margay_app::{AppConfig, AppLogOptions, AppSession, LogFor, Parse, Shared, Transaction, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;

/// Default settings. The protocol detector is built only once, because that takes longer than most inputs.
pub(crate) fn app_config() -> AppConfig {
    static RECOGNISER: OnceLock<Recogniser> = OnceLock::new();
    AppConfig::new(RECOGNISER.get_or_init(Recogniser::default).clone())
}

/// A step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Bytes(Direction, Vec<u8>),
    Gap(Direction, u64),
}

/// Reads a script: `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the server; `FF 7B` (`{`) is a hole in the
/// client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte. Any other byte stands for itself.
pub(crate) fn script(mut data: &[u8]) -> Vec<Act> {
    let (mut acts, mut dir, mut bytes) = (Vec::new(), ToServer, Vec::new());
    while let [first, rest @ ..] = data {
        let (to, gap, left) = match (first, rest) {
            (0xff, [b'>', rest @ ..]) => (ToServer, None, rest),
            (0xff, [b'<', rest @ ..]) => (ToClient, None, rest),
            (0xff, [b'{', len, rest @ ..]) => (dir, Some((ToServer, u64::from(*len) + 1)), rest),
            (0xff, [b'}', len, rest @ ..]) => (dir, Some((ToClient, u64::from(*len) + 1)), rest),
            _ => {
                bytes.push(*first);
                data = rest;
                continue;
            }
        };
        if !bytes.is_empty() {
            acts.push(Act::Bytes(dir, std::mem::take(&mut bytes)));
        }
        acts.extend(gap.map(|(d, n)| Act::Gap(d, n)));
        (dir, data) = (to, left);
    }
    if !bytes.is_empty() {
        acts.push(Act::Bytes(dir, bytes));
    }
    acts
}

/// Writes the script that [`script`] reads as these steps, unless some of their bytes look like a mark.
pub(crate) fn write_script(acts: &[Act]) -> Vec<u8> {
    let (mut out, mut now) = (Vec::new(), None);
    for act in acts {
        match act {
            Act::Bytes(dir, bytes) => {
                if now.replace(*dir) != Some(*dir) || !out.is_empty() {
                    out.extend([0xff, if *dir == ToServer { b'>' } else { b'<' }]);
                }
                out.extend_from_slice(bytes);
            }
            Act::Gap(dir, len) => {
                out.extend([0xff, if *dir == ToServer { b'{' } else { b'}' }, (len.saturating_sub(1)).min(255) as u8]);
                now = None;
            }
        }
    }
    out
}

/// An established flow over `transport` to a server's port.
pub(crate) fn flow(transport: u8, port: u16) -> FlowCore {
    let ends = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1])];
    FlowCore {
        pkts: [1, 1],
        state: FlowState::Established,
        ..FlowCore::new(1, transport, (ends[0], 40_000), (ends[1], port), Time(0))
    }
}

/// The text of the object that `write` fills.
pub(crate) fn json(write: impl FnOnce(&mut Json)) -> String {
    let mut json = Json::new();
    json.item_object();
    write(&mut json);
    json.end_object();
    String::from_utf8(json.as_bytes().to_vec()).expect("a log is UTF-8")
}

/// A transaction's log, as text.
pub(crate) fn log(tx: &dyn Transaction, options: &AppLogOptions, what: LogFor) -> String {
    json(|j| tx.log(j, options, what))
}

/// Asserts that the result for pieces of `size` equals that for the whole.
pub(crate) fn same(whole: &[String], split: &[String], size: usize) {
    if let Some((a, b)) = whole.iter().zip(split).find(|(a, b)| a != b) {
        panic!("in pieces of {size}:\n{a}\n{b}");
    }
    assert_eq!(whole.len(), split.len(), "in pieces of {size}");
}

/// Runs a script as the engine does: transactions are inspected after every piece, and freed when complete or randomly before.
/// `each` is called after every step.
pub(crate) fn session(
    config: &AppConfig,
    flow: &FlowCore,
    shared: &mut Shared,
    acts: &[Act],
    mut dice: u32,
    each: impl Fn(&Shared),
) {
    let mut session = AppSession::default();
    let mut waiting = [Vec::new(), Vec::new()];
    shared.frames.logged = dice & 1 != 0;
    for act in acts {
        let mut cx = Parse { config, shared: &mut *shared, flow, time: Time(0), end: false, inline: false };
        match act {
            Act::Gap(dir, len) => session.gap(&mut cx, *dir, *len),
            Act::Bytes(dir, bytes) => {
                waiting[dir.index()].extend_from_slice(bytes);
                for dir in [*dir, dir.reverse()] {
                    let held: &mut Vec<u8> = &mut waiting[dir.index()];
                    for _ in 0..16 {
                        let said = session.data(&mut cx, dir, held);
                        held.drain(..said.consumed.min(held.len()));
                        if !said.again {
                            break;
                        }
                    }
                }
            }
        }
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for parser in session.parsers_mut() {
            let complete = protocol(parser.proto()).map_or([0; 2], |p| p.complete());
            let mut from = 0;
            while let Some(id) = parser.next_tx(from) {
                from = id + 1;
                let Some(tx) = parser.tx_mut(id) else { continue };
                tx.inspected(ToServer);
                tx.inspected(ToClient);
                if tx.base().progress == complete || dice >> 28 == 0 {
                    parser.free_tx(shared, id);
                }
            }
        }
        if dice >> 28 == 1 {
            let mut cx = Parse { config, shared: &mut *shared, flow, time: Time(0), end: false, inline: false };
            session.truncate(&mut cx, if dice & 1 == 0 { ToServer } else { ToClient });
        }
        session.tidy();
        each(shared);
    }
    for parser in session.parsers_mut() {
        while let Some(id) = parser.next_tx(0) {
            parser.free_tx(shared, id);
        }
    }
    session.tidy();
    assert!(!session.has_txs(), "transactions that are not freed");
}
