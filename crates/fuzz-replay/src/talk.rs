//! What the targets that are conversations have in common: the script, the flow, what is compared.

use std::net::IpAddr;

use margay_app::{AppLogOptions, LogFor, Transaction};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;

/// A step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Bytes(Direction, Vec<u8>),
    Gap(Direction, u64),
}

/// Reads a script: `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the server; `FF 7B` (`{`) is a hole in the
/// client's bytes and `FF 7D` (`}`) in the server's, as long as the byte behind it says. Any other byte is itself.
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

/// An established flow over `transport` to a server's port.
pub(crate) fn flow(transport: u8, port: u16) -> FlowCore {
    let ends = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1])];
    FlowCore {
        pkts: [1, 1],
        state: FlowState::Established,
        ..FlowCore::new(1, transport, (ends[0], 40_000), (ends[1], port), Time(0))
    }
}

/// What `write` puts into an object, as text.
pub(crate) fn json(write: impl FnOnce(&mut Json)) -> String {
    let mut json = Json::new();
    json.item_object();
    write(&mut json);
    json.end_object();
    String::from_utf8(json.as_bytes().to_vec()).expect("a log is UTF-8")
}

/// A transaction's log.
pub(crate) fn log(tx: &dyn Transaction, options: &AppLogOptions, what: LogFor) -> String {
    json(|j| tx.log(j, options, what))
}

/// Holds what came of pieces of `size` to what came of the whole.
pub(crate) fn same(whole: &[String], split: &[String], size: usize) {
    if let Some((a, b)) = whole.iter().zip(split).find(|(a, b)| a != b) {
        panic!("in pieces of {size}:\n{a}\n{b}");
    }
    assert_eq!(whole.len(), split.len(), "in pieces of {size}");
}
