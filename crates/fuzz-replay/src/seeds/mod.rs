//! Seeds for the targets, cut from captures, rules and other files: messages of real applications, in the format of each
//! target (`tools/fuzz-seeds`).

mod bodies;
pub(crate) mod flows;
mod packets;
mod stream;
mod text;

use std::collections::{HashMap, HashSet};

use margay_app::AppProto;
use margay_flow::Direction::{ToClient, ToServer};

use crate::recognise::PORTS;
use crate::segments;
use crate::talk::{Act, write_script};
use flows::{Conversation, Keep};

/// A target's name, and an input for it.
pub type Seed = (&'static str, Vec<u8>);

/// Most seeds for one target from one capture, because the others are much the same.
const PER_CAPTURE: usize = 12;
/// Longer seeds slow a fuzzer down without new information.
const KEEP: Keep = Keep { bytes: 12 << 10, join: true };
/// Most bytes of a capture for the target `capture`.
const CAPTURE_MAX: usize = 6 << 10;
/// Sizes of pieces, minus one, which the seeds use in turn.
const PIECES: [u8; 4] = [6, 0, 61, 255];

/// Cuts seeds from files, and leaves out those that it has seen.
#[derive(Debug, Default)]
pub struct Cutter {
    shapes: HashSet<u64>,
    turn: usize,
}

impl Cutter {
    /// Seeds from a capture file's bytes.
    pub fn capture(&mut self, bytes: &[u8]) -> Vec<Seed> {
        let mut all = vec![("capture", bytes.get(..CAPTURE_MAX).unwrap_or(bytes).to_vec())];
        packets::decode(bytes, &mut self.shapes, &mut all);
        packets::defrag(bytes, &mut all);
        for c in flows::conversations(bytes, KEEP) {
            self.turn += 1;
            conversation(&c, self.turn, &mut all);
        }
        let mut count: HashMap<&str, usize> = HashMap::new();
        all.retain(|(target, _)| {
            let n = count.entry(target).or_default();
            *n += 1;
            *n <= PER_CAPTURE || *target == "decode"
        });
        all
    }

    /// Seeds from a file of another kind, which follows from its name.
    pub fn text(&mut self, name: &str, bytes: &[u8]) -> Vec<Seed> {
        let mut all = Vec::new();
        text::cut(name, bytes, &mut self.shapes, &mut all);
        all
    }
}

/// Seeds from the conversation of a flow.
fn conversation(c: &Conversation, turn: usize, out: &mut Vec<Seed>) {
    let pieces = PIECES[turn % PIECES.len()];
    let whole = |head: &[u8]| [head, &write_script(&c.acts)].concat();
    let udp = c.transport == 17;
    match c.proto {
        AppProto::Http1 => {
            out.push(("http1", whole(&[3, 2, pieces])));
            bodies::cut(&side(&c.acts, false), out);
        }
        AppProto::Http2 | AppProto::Doh2 => out.push(("http2", whole(&[0, pieces]))),
        AppProto::Ftp => out.push(("ftp", whole(&[0, pieces]))),
        AppProto::Smb => out.push(("smb", whole(&[0, pieces]))),
        AppProto::Dcerpc => out.push(("dcerpc", whole(&[if udp { 4 } else { 0 }, pieces]))),
        AppProto::Smtp => out.push(("smtp", whole(&[0, pieces]))),
        AppProto::Ssh => out.push(("ssh", whole(&[1, pieces]))),
        AppProto::Dns => out.push(("dns", whole(&[u8::from(!udp), pieces]))),
        AppProto::Mdns => out.push(("dns", whole(&[2, pieces]))),
        AppProto::Tls => out.push(("tls", whole(&[0, pieces]))),
        AppProto::Quic => out.push(("quic", whole(&[]))),
        AppProto::Dhcp => out.extend(datagrams(&c.acts).map(|d| ("dhcp", d.to_vec()))),
        AppProto::Tftp => out.extend(datagrams(&c.acts).take(1).map(|d| ("tftp", d.to_vec()))),
        proto => {
            let options = [u8::from(udp), pieces];
            out.push(("messages", whole(&[proto.rule_name().as_bytes(), b"\n", &options].concat())));
        }
    }
    if c.proto != AppProto::Unknown && !udp && !c.acts.iter().any(|a| matches!(a, Act::Gap(..))) {
        let port = segments::PORTS.iter().position(|&p| p == c.ports[1]).unwrap_or(segments::PORTS.len() - 1);
        let mut seed = whole(&[port as u8, pieces]);
        seed.truncate(segments::BYTES_MAX);
        out.push(("segments", seed));
    }
    if !c.segments.is_empty() {
        out.push(("stream", stream::encode(&c.segments, turn)));
    }
    let mut said = [side(&c.acts, true), side(&c.acts, false)];
    let first_is_client = !matches!(c.acts.first(), Some(Act::Bytes(ToClient, _) | Act::Gap(ToClient, _)));
    if !first_is_client {
        said.swap(0, 1);
    }
    let [first, second] = said;
    let port = |p: u16| PORTS.iter().position(|&q| q == p).unwrap_or(PORTS.len() - 1) as u8;
    let first = first.get(..255).unwrap_or(&first);
    let second = second.get(..255).unwrap_or(&second);
    let options = u8::from(udp) | if first_is_client { 0 } else { 2 };
    let head = [options, port(c.ports[1]), port(c.ports[0]), first.len() as u8, pieces];
    out.push(("recognise", [&head, first, second].concat()));
}

/// All bytes of one side, the client's if `client` is set.
fn side(acts: &[Act], client: bool) -> Vec<u8> {
    let wanted = if client { ToServer } else { ToClient };
    let bytes = acts.iter().filter_map(|a| match a {
        Act::Bytes(dir, bytes) if *dir == wanted => Some(&bytes[..]),
        _ => None,
    });
    bytes.flatten().copied().collect()
}

fn datagrams(acts: &[Act]) -> impl Iterator<Item = &[u8]> {
    acts.iter().filter_map(|a| match a {
        Act::Bytes(_, bytes) => Some(&bytes[..]),
        Act::Gap(..) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::talk::script;

    /// Writing a conversation as a script and reading it gives the same conversation.
    #[test]
    fn scripts_are_read_as_they_were_written() {
        let acts = [
            Act::Bytes(ToServer, b"a".to_vec()),
            Act::Bytes(ToServer, b"b\xff".to_vec()),
            Act::Gap(ToClient, 256),
            Act::Bytes(ToClient, b"c".to_vec()),
            Act::Gap(ToServer, 1),
        ];
        let read = script(&write_script(&acts));
        assert_eq!(format!("{read:?}"), format!("{acts:?}"));
        let server_first = [Act::Bytes(ToClient, b"220 ".to_vec())];
        assert_eq!(format!("{:?}", script(&write_script(&server_first))), format!("{server_first:?}"));
    }

    /// The project's own captures give seeds. These are for existing targets, and pass.
    #[test]
    fn own_captures_give_seeds_that_hold() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut cutter = Cutter::default();
        let mut of: HashMap<&str, usize> = HashMap::new();
        for name in
            ["demo/demo.pcap", "crates/margay/tests/keywords/packets.pcap", "crates/margay/tests/lua/packets.pcap"]
        {
            let bytes = std::fs::read(root.join(name)).expect("a capture of the project");
            for (target, seed) in cutter.capture(&bytes) {
                let run = crate::TARGETS.iter().find(|t| t.0 == target).expect("a target");
                run.1(&seed);
                *of.entry(target).or_default() += 1;
            }
        }
        for target in ["capture", "decode", "stream", "recognise", "http1", "dns", "segments"] {
            assert!(of.contains_key(target), "no seed of {target}: {of:?}");
        }
    }

    /// A rule becomes its options and the bytes that they match. Another rule with the same options is left out.
    #[test]
    fn rules_become_options_and_payload() {
        let rules = b"alert tcp any any -> any any (msg:\"a;b\"; content:\"x|41 42|\\\"y\"; depth:5; sid:1;)\n\
                      alert tcp any any -> any any (msg:\"c\"; content:\"other\"; depth:9; sid:2;)\n";
        let seeds = Cutter::default().text("a.rules", rules);
        assert_eq!(seeds.len(), 2);
        assert_eq!(seeds[1], ("inspect", b"content:\"x|41 42|\\\"y\"; depth:5\nxAB\"y".to_vec()));
    }
}
