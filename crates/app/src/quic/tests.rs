//! Packets of both protocols through the parser, encrypted as their senders would.

use std::net::IpAddr;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;
use proptest::prelude::*;

use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parser, Shared};
use crate::proto::AppProto;
use crate::registry::protocol;
use crate::script::Answer;
use crate::tx::LogFor;

use super::buffers::BUFFERS;
use super::events::NAMES;
use super::keys::Keys;

const DCID: &[u8] = b"\x83\x94\xc8\xf0\x3e\x51\x57\x08";

struct Talk {
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    outcome: Outcome,
}

impl Talk {
    fn new() -> Talk {
        let flow =
            FlowCore::new(1, 17, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 443), Time(0));
        let config = AppConfig::default();
        let parser = (protocol(AppProto::Quic).unwrap().parser)(&config, &flow);
        Talk { config, flow, shared: Shared::default(), parser, outcome: Outcome::More }
    }

    fn feed(&mut self, dir: Direction, data: &[u8]) {
        let (config, flow) = (&self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        let parsed = self.parser.data(&mut cx, dir, data);
        assert_eq!(parsed.consumed, data.len());
        self.outcome = parsed.outcome;
    }

    fn events(&self) -> Vec<&'static str> {
        let txs = self.parser.txs().filter_map(|id| self.parser.tx(id));
        txs.flat_map(|tx| tx.base().events.as_slice().iter().map(|e| NAMES[usize::from(*e)])).collect()
    }

    fn text(&self, name: &str, dir: Direction) -> Vec<String> {
        let def = BUFFERS.iter().find(|b| b.name == name).unwrap();
        let txs = self.parser.txs().filter_map(|id| self.parser.tx(id));
        txs.filter_map(|tx| {
            tx.buffer(def.id, dir, 0, &mut Vec::new()).map(|f| String::from_utf8_lossy(f.data).into_owned())
        })
        .collect()
    }

    fn log(&self, id: u64) -> String {
        let mut json = Json::new();
        json.item_object();
        if let Some(tx) = self.parser.tx(id) {
            tx.log(&mut json, &AppLogOptions::default(), LogFor::Event);
        }
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).unwrap()
    }
}

fn client_hello() -> Vec<u8> {
    let name = b"a.example";
    let list = [&[0, 0, name.len() as u8][..], name].concat();
    let sni = [&[0, 0, 0, list.len() as u8 + 2, 0, list.len() as u8], &list[..]].concat();
    let extensions = [&sni[..], &[0, 16, 0, 5, 0, 3, 2, b'h', b'3'], &[0, 43, 0, 3, 2, 3, 4], &[0, 57, 0, 0]].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, extensions.len() as u8], &extensions].concat();
    [&[1, 0, 0, body.len() as u8], &body[..]].concat()
}

fn server_hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[9; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    [&[2, 0, 0, body.len() as u8], &body[..]].concat()
}

fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    let two = |n: usize| (0x4000 | n as u16).to_be_bytes();
    [&[6][..], &two(offset), &two(data.len()), data].concat()
}

fn packet(version: u32, dir: Direction, dcid: &[u8], frames: &[u8]) -> Vec<u8> {
    // A client pads its datagram; padding is a frame of zeros.
    let padding = if dir == ToServer { 1180usize.saturating_sub(frames.len()).max(8) } else { 8 };
    let frames = [frames, &vec![0; padding]].concat();
    let kind = if version == super::keys::V2 { 0xd0 } else { 0xc0 };
    let len = 0x4000 | (1 + frames.len() + 16) as u16;
    let to = if dir == ToServer { dcid } else { b"client" };
    let head = [&[kind][..], &version.to_be_bytes(), &[to.len() as u8], to, &[0, 0], &len.to_be_bytes()].concat();
    Keys::new(version, dcid).unwrap().seal(dir, &head, 5, &frames)
}

#[test]
fn greetings() {
    for version in [1, super::keys::V2, 0xff00_001d, 0xff00_0017] {
        let mut t = Talk::new();
        t.feed(ToServer, &packet(version, ToServer, DCID, &crypto(0, &client_hello())));
        assert_eq!((t.text("quic.sni", ToServer), t.outcome), (vec!["a.example".to_owned()], Outcome::More));
        assert_eq!(t.text("ja3.string", ToServer), ["771,4865,0-16-43-57,,"]);
        let tx = t.parser.tx(0).unwrap();
        assert_eq!(tx.ask("ja3", "ja3_get_string", None), Some(Answer::text("771,4865,0-16-43-57,,")));
        let others = (tx.ask("ja3", "ja3s_get_hash", None), tx.ask("tls", "get_sni", None));
        assert_eq!(others, (Some(Answer::Nothing), None));
        let log = t.log(0);
        for part in [
            "\"sni\":\"a.example\"",
            "{\"name\":\"alpn\",\"type\":16,\"values\":[\"h3\"]}",
            "\"values\":[\"Tls13\"]",
            "\"ja4\":\"q13d0104h3_",
        ] {
            assert!(log.contains(part), "{part} in {log}");
        }
        t.feed(
            ToClient,
            &packet(version, ToClient, DCID, &[&[2, 1, 0, 0, 0][..], &crypto(0, &server_hello())].concat()),
        );
        assert_eq!((t.text("ja3s.string", ToClient), t.outcome), (vec!["771,4865,43".to_owned()], Outcome::Done));
        assert!(t.events().is_empty(), "{:?}", t.events());
    }
}

#[test]
fn one_retry_counts() {
    let retry = [&[0xf0, 0, 0, 0, 1, 0, 4][..], b"next", &[0; 32]].concat();
    let mut t = Talk::new();
    t.feed(ToServer, &packet(1, ToServer, DCID, &crypto(0, &client_hello())));
    t.feed(ToClient, &retry);
    t.feed(ToServer, &packet(1, ToServer, b"next", &crypto(0, &client_hello())));
    t.feed(ToClient, &retry);
    t.feed(ToClient, &packet(1, ToClient, b"next", &crypto(0, &server_hello())));
    assert_eq!((t.text("quic.sni", ToServer).len(), t.outcome), (2, Outcome::Done));
    assert!(t.events().is_empty());
}

#[test]
fn what_is_wrong() {
    let mut broken = packet(1, ToServer, DCID, &crypto(0, &client_hello()));
    *broken.last_mut().unwrap() ^= 1;
    let far = packet(1, ToServer, DCID, &crypto(16_380, &[0; 64]));
    // A gQUIC stream that exceeds its packet, in an unknown version.
    let odd = [&[0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 1, 9, 0, 0, 5][..], &[0xa0, 1, 0xff, 0xff, 0]].concat();
    for (datagram, event) in [(broken, "failed_decrypt"), (far, "crypto_frag_too_long"), (odd, "error_on_data")] {
        let mut t = Talk::new();
        t.feed(ToServer, &datagram);
        assert_eq!(t.events(), [event]);
    }
    // Data that is not a packet has no transaction. A long header that does not fit is an error, as RTCP on QUIC's port.
    let mut t = Talk::new();
    let (more, failed) = (Outcome::More, Outcome::Failed);
    let rtcp = &b"\x80\xc9\0\x01\x87\x28\xa6\x1e"[..];
    for (data, outcome) in [
        (&b"\x80\0\0\0"[..], failed),
        (b"\x40short", more),
        (b"\xc0\0\0\0\x01\xff", failed),
        (rtcp, failed),
        (b"", more),
    ] {
        t.feed(ToServer, data);
        assert_eq!(t.outcome, outcome, "{}", data.escape_ascii());
    }
    assert_eq!(t.parser.txs(), 0..0);
}

#[test]
fn the_forerunner() {
    let mut table = Vec::new();
    let mut end = 0u32;
    for (tag, len) in [(b"PAD\0", 2), (b"SNI\0", 9), (b"UAID", 6)] {
        end += len;
        table.extend_from_slice(tag);
        table.extend(end.to_le_bytes());
    }
    let chlo = [b"CHLO\x03\0\0\0", &table[..], b"--a.exampleclient"].concat();
    let stream = [&[0xa0, 1][..], &(chlo.len() as u16).to_be_bytes(), &chlo].concat();
    let q46 = [&[0xc3][..], b"Q046\x50", DCID, &[0, 0, 0, 1], &[0xee; 12], &stream].concat();
    let q39 = [&[0x0d][..], DCID, b"Q039\x01", &[0xee; 12], &stream].concat();
    for (datagram, cyu) in [(q46, vec!["46,PAD-SNI-UAID".to_owned()]), (q39, Vec::new())] {
        let mut t = Talk::new();
        t.feed(ToServer, &datagram);
        assert_eq!(t.text("quic.cyu.string", ToServer), cyu);
        assert_eq!(
            (t.text("quic.sni", ToServer), t.text("quic.ua", ToServer)),
            (vec!["a.example".into()], vec!["client".into()])
        );
        assert!(t.events().is_empty());
    }
}

proptest! {
    /// The frames, packets and their order do not change the result.
    #[test]
    fn any_split_makes_the_same(cuts in prop::collection::vec(0usize..90, 0..8), turn in any::<prop::sample::Index>(), one in any::<bool>()) {
        let hello = client_hello();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(hello.len())).chain([0, hello.len()]).collect();
        cuts.sort_unstable();
        let mut frames: Vec<Vec<u8>> = cuts.windows(2).map(|c| crypto(c[0], &hello[c[0]..c[1]])).collect();
        let by = turn.index(frames.len());
        frames.rotate_left(by);
        let mut t = Talk::new();
        if one {
            t.feed(ToServer, &packet(1, ToServer, DCID, &frames.concat()));
        } else {
            for f in &frames {
                t.feed(ToServer, &packet(1, ToServer, DCID, f));
            }
        }
        prop_assert_eq!(t.text("quic.sni", ToServer), ["a.example"]);
        prop_assert_eq!(t.text("ja3.string", ToServer), ["771,4865,0-16-43-57,,"]);
        prop_assert!(t.events().is_empty());
    }

    #[test]
    fn any_datagrams(datagrams in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20)) {
        let mut t = Talk::new();
        for (client, d) in &datagrams {
            t.feed(if *client { ToServer } else { ToClient }, d);
        }
        prop_assert!(t.parser.txs().end <= 16 * datagrams.len() as u64);
    }
}

#[test]
fn keys_are_derived_where_a_server_would_listen() {
    let hello = packet(1, ToServer, DCID, &crypto(0, &client_hello()));
    let other = |n: u8| {
        let mut p = packet(1, ToServer, &[n; 8], &crypto(0, b"x"));
        // No key decrypts it.
        *p.last_mut().unwrap() ^= 1;
        p
    };
    // A server discards a client's first datagram if it is too small.
    let short = Keys::new(1, DCID).unwrap().seal(
        ToServer,
        &[&[0xc0, 0, 0, 0, 1, 8][..], DCID, &[0, 0, 0x40, 128]].concat(),
        5,
        &[&crypto(0, &client_hello()[..60])[..], &[0; 46]].concat(),
    );
    let mut t = Talk::new();
    t.feed(ToServer, &short);
    assert_eq!((t.events(), t.text("quic.sni", ToServer).len()), (vec!["failed_decrypt"], 0));
    // A damaged packet before a valid one with the same connection id: the keys are the same.
    let mut broken = hello.clone();
    *broken.last_mut().unwrap() ^= 1;
    let mut t = Talk::new();
    t.feed(ToServer, &[&broken[..], &hello].concat());
    assert_eq!(t.text("quic.sni", ToServer), ["a.example"]);
    // One connection id before it, and then one too many.
    for (before, found) in [(1u8, 1), (2, 0)] {
        let mut t = Talk::new();
        let all: Vec<u8> = (0..before).flat_map(other).chain(hello.iter().copied()).collect();
        t.feed(ToServer, &all);
        assert_eq!(t.text("quic.sni", ToServer).len(), found, "{before}");
        // The next datagram is parsed nevertheless.
        t.feed(ToServer, &hello);
        assert_eq!(t.text("quic.sni", ToServer), ["a.example"]);
    }
}
