//! Test connections with the bytes of both sides.

use std::net::IpAddr;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;

use crate::config::{AppConfig, AppLogOptions};
use crate::http2::events::NAMES;
use crate::http2::frame::PREFACE;
use crate::parser::{Outcome, Parse, Parser, Shared, Upgrade};
use crate::proto::AppProto;
use crate::tx::LogFor;

use super::PROTOCOL;

struct Talk {
    config: AppConfig,
    shared: Shared,
    flow: FlowCore,
    parser: Box<dyn Parser>,
    outcome: Outcome,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Uncompressed fields.
fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in list {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
    }
    out
}

const GET: [(&str, &str); 4] = [(":method", "GET"), (":path", "/a"), (":authority", "H.example:81"), ("cookie", "x")];

impl Talk {
    fn with(config: AppConfig) -> Self {
        let flow =
            FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([198, 51, 100, 1]), 80), Time(0));
        let parser = (PROTOCOL.parser)(&config, &flow);
        Talk { config, shared: Shared::default(), flow, parser, outcome: Outcome::More }
    }

    fn new() -> Self {
        let mut t = Talk::with(AppConfig::default());
        t.feed(ToServer, PREFACE);
        t
    }

    fn feed(&mut self, dir: Direction, data: &[u8]) {
        let (config, shared, flow) = (&self.config, &mut self.shared, &self.flow);
        let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
        let parsed = self.parser.data(&mut cx, dir, data);
        assert!(parsed.consumed == data.len() || parsed.outcome == Outcome::Full);
        self.outcome = parsed.outcome;
    }

    fn buffer(&self, id: u64, name: &str, dir: Direction, index: usize) -> Option<String> {
        let protocol = crate::registry::protocol(self.parser.proto()).unwrap();
        let def = protocol.buffers.iter().find(|b| b.name == name).unwrap();
        let mut scratch = Vec::new();
        let found = self.parser.tx(id).unwrap().buffer(def.id, dir, index, &mut scratch)?;
        Some(found.data.escape_ascii().to_string())
    }

    fn number(&self, id: u64, name: &str, dir: Direction) -> Vec<u64> {
        let def = PROTOCOL.numbers.iter().find(|b| b.name == name).unwrap();
        let tx = self.parser.tx(id).unwrap();
        (0..).map_while(|i| tx.number(def.id, dir, i)).collect()
    }

    fn events(&self, id: u64) -> Vec<&'static str> {
        let tx = self.parser.tx(id).unwrap();
        tx.base().events.as_slice().iter().map(|e| NAMES[usize::from(*e)]).collect()
    }

    fn progress(&self, id: u64) -> [u8; 2] {
        self.parser.tx(id).unwrap().base().progress
    }

    fn log(&self, id: u64) -> String {
        let mut json = Json::new();
        json.item_object();
        self.parser.tx(id).unwrap().log(&mut json, &AppLogOptions::default(), LogFor::Event);
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).unwrap()
    }
}

#[test]
fn a_request_and_its_response() {
    let mut t = Talk::new();
    t.feed(ToServer, &frame(4, 0, 0, b"\0\x03\0\0\0\x64"));
    t.feed(ToServer, &frame(1, 0x25, 1, &[&b"\0\0\0\0\x0f"[..], &fields(&GET)].concat()));
    t.feed(ToClient, &frame(4, 1, 0, b""));
    t.feed(ToClient, &frame(1, 4, 1, &fields(&[(":status", "200"), ("content-length", "4")])));
    t.feed(ToClient, &frame(0, 8, 1, b"\x02bo\0\0"));
    assert_eq!(t.progress(1), [3, 2]);
    t.feed(ToClient, &frame(0, 1, 1, b"dy"));
    assert_eq!(t.progress(1), [3, 3]);
    assert_eq!(t.parser.txs(), 0..2);
    for (name, dir, want) in [
        ("http.uri", ToServer, "/a"),
        ("http.method", ToServer, "GET"),
        ("http.host", ToServer, "h.example"),
        ("http.host.raw", ToServer, "H.example:81"),
        ("http.request_line", ToServer, "GET /a HTTP/2\\r\\n"),
        ("http.header", ToServer, ":method: GET\\r\\n:path: /a\\r\\n:authority: H.example:81\\r\\n"),
        ("http.header_names", ToServer, "\\r\\n:method\\r\\n:path\\r\\n:authority\\r\\ncookie\\r\\n\\r\\n"),
        ("http.cookie", ToServer, "x"),
        ("http.request_header", ToServer, ":method: GET"),
        ("http.stat_code", ToClient, "200"),
        ("http.stat_msg", ToClient, ""),
        ("http.response_line", ToClient, "HTTP/2 200\\r\\n"),
        ("http.response_body", ToClient, "body"),
        ("file.data", ToClient, "body"),
    ] {
        assert_eq!(t.buffer(1, name, dir, 0).as_deref(), Some(want), "{name}");
    }
    assert_eq!(t.number(1, "http2.priority", ToServer), [15]);
    assert_eq!(t.number(1, "http2.frametype", ToClient), [0, 1]);
    assert_eq!(t.number(0, "http2.settings", ToServer), [3 << 32 | 100]);
    assert!(t.log(1).contains(r#""url":"/a","http_method":"GET","status":200,"length":4,"http2":{"stream_id":1,"request":{"priority":15},"response":{}}"#), "{}", t.log(1));
    assert!(t.log(0).contains(r#"[{"settings_id":"SETTINGSMAXCONCURRENTSTREAMS","settings_value":100}]"#));
}

#[test]
fn a_priority_alone_is_logged() {
    let mut t = Talk::new();
    t.feed(ToServer, &frame(2, 0, 3, b"\0\0\0\0\xc8"));
    t.feed(ToServer, &frame(8, 0, 5, b"\0\0\0\x01"));
    assert_eq!(
        t.log(0),
        r#"{"http":{"version":"2","http2":{"stream_id":3,"request":{"priority":200},"response":{}}}}"#
    );
    assert_eq!(t.log(1), "{}");
}

#[test]
fn a_prepared_stream_has_one_transaction_and_each_of_its_priorities_and_resets() {
    let mut t = Talk::new();
    t.feed(ToServer, &frame(2, 0, 3, b"\0\0\0\0\xc8"));
    t.feed(ToServer, &frame(8, 0, 3, b"\0\0\0\x01"));
    t.feed(ToServer, &frame(1, 0x24, 3, b"\0\0\0\0\x07\x82\x84"));
    t.feed(ToServer, &frame(3, 0, 3, &8_u32.to_be_bytes()));
    t.feed(ToServer, &frame(3, 0, 3, &0_u32.to_be_bytes()));
    assert_eq!(t.number(0, "http2.priority", ToServer), [200, 7]);
    assert_eq!(t.number(0, "http2.errorcode", ToServer), [8, 0]);
    let log = t.log(0);
    assert!(
        log.contains(r#""stream_id":3,"request":{"priority":200,"error_code":"Cancel","has_multiple":"priority"}"#),
        "{log}"
    );
    assert!(log.contains(r#""http_method":"GET""#), "{log}");
}

#[test]
fn fields_in_several_frames() {
    let mut t = Talk::new();
    let block = fields(&GET);
    t.feed(ToServer, &frame(1, 1, 1, &block[..5]));
    t.feed(ToServer, &frame(9, 0, 1, &block[5..9]));
    assert_eq!(t.progress(0), [0, 0]);
    t.feed(ToServer, &frame(9, 4, 1, &block[9..]));
    assert_eq!((t.buffer(0, "http.uri", ToServer, 0).as_deref(), t.progress(0)), (Some("/a"), [3, 0]));
    // Another frame interrupts the block.
    t.feed(ToServer, &frame(1, 0, 3, &block[..20]));
    t.feed(ToServer, &frame(1, 5, 5, &block));
    assert_eq!(t.events(1), ["invalid_frame_data", "invalid_header"]);
    assert_eq!(t.buffer(2, "http.uri", ToServer, 0).as_deref(), Some("/a"));
    // A continuation without a block.
    t.feed(ToServer, &frame(9, 4, 5, &block));
    assert!(t.events(2).contains(&"invalid_frame_data"));
}

#[test]
fn streams_that_are_given_up() {
    let mut t = Talk::new();
    t.feed(ToServer, &frame(1, 5, 1, &fields(&GET)));
    t.feed(ToServer, &frame(3, 0, 1, b"\0\0\0\x08"));
    assert_eq!((t.progress(0), t.number(0, "http2.errorcode", ToServer)), ([3, 0], vec![8]));
    // The response was already on its way.
    t.feed(ToClient, &frame(1, 5, 1, &fields(&[(":status", "204")])));
    assert_eq!(t.progress(0), [3, 3]);
    t.feed(ToServer, &frame(1, 4, 3, &fields(&GET)));
    t.feed(ToClient, &frame(3, 0, 3, b"\0\0\0\x07"));
    assert_eq!(t.progress(1), [3, 3]);
    // A stream cannot be opened twice. Late frames belong to the old transaction until it is freed.
    t.feed(ToServer, &frame(1, 5, 3, &fields(&GET)));
    assert_eq!(t.events(2), ["stream_id_reuse"]);
    t.feed(ToClient, &frame(8, 0, 1, b"\0\0\0\x08"));
    assert_eq!((t.parser.txs(), t.number(0, "http2.window", ToClient)), (0..3, vec![8]));
    t.parser.free_tx(&mut t.shared, 0);
    t.feed(ToClient, &frame(8, 0, 1, b"\0\0\0\x09"));
    assert_eq!((t.progress(3), t.number(3, "http2.window", ToClient)), ([3, 3], vec![9]));
}

#[test]
fn hosts_that_are_odd() {
    let mut t = Talk::new();
    let odd = [(":method", "GET"), (":authority", "user:word@a.example"), ("host", "b.example")];
    t.feed(ToServer, &frame(1, 5, 1, &fields(&odd)));
    assert_eq!(t.events(0), ["userinfo_in_uri", "authority_host_mismatch"]);
    assert_eq!(t.buffer(0, "http.host", ToServer, 0).as_deref(), Some("a.example"));
}

#[test]
fn a_request_of_http1_goes_on() {
    let mut t = Talk::with(AppConfig::default());
    let from = Upgrade {
        method: b"GET".to_vec(),
        target: b"/robots.txt".to_vec(),
        host: Some(b"nghttp2.org".to_vec()),
        settings: Some(b"AAMAAABkAARAAAAAAAIAAAAA".to_vec()),
        fields: vec![(b"Accept".to_vec(), b"*/*".to_vec())],
    };
    let (config, shared, flow) = (&t.config, &mut t.shared, &t.flow);
    t.parser.take_over(&mut Parse { config, shared, flow, time: Time(0), end: false, inline: false }, from);
    assert_eq!(t.progress(0), [3, 0]);
    assert_eq!(t.buffer(0, "http.request_header", ToServer, 2).as_deref(), Some(":authority: nghttp2.org"));
    assert_eq!(t.number(1, "http2.settings", ToServer), [3 << 32 | 100, 4 << 32 | 1 << 30, 2 << 32]);
    t.feed(ToClient, &frame(1, 5, 1, &fields(&[(":status", "200")])));
    assert_eq!(t.progress(0), [3, 3]);
}

#[test]
fn dns_in_a_target_and_in_a_body() {
    let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
    let mut t = Talk::new();
    let get = [
        (":method", "GET"),
        (":path", "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB"),
        ("accept", "application/dns-message"),
    ];
    t.feed(ToServer, &frame(1, 5, 1, &fields(&get)));
    assert_eq!((t.outcome, t.parser.proto()), (Outcome::Rename(AppProto::Doh2), AppProto::Doh2));
    assert_eq!(t.buffer(0, "dns.query", ToServer, 0).as_deref(), Some("www.example.com"));
    let post = [(":method", "POST"), ("content-type", "application/dns-message")];
    t.feed(ToServer, &frame(1, 4, 3, &fields(&post)));
    t.feed(ToServer, &frame(0, 1, 3, query));
    assert_eq!(t.outcome, Outcome::More);
    assert_eq!(t.buffer(1, "dns.query", ToServer, 0).as_deref(), Some("www.example.com"));
    let (kind, dns) = t.parser.tx(1).unwrap().carried().unwrap();
    assert_eq!((kind, dns.records(&AppLogOptions::default())), (AppProto::Doh2, 1));
    // More data than a DNS message can have.
    t.feed(ToClient, &frame(1, 4, 3, &fields(&[(":status", "200"), ("content-type", "application/dns-message")])));
    for _ in 0..5 {
        t.feed(ToClient, &frame(0, 0, 3, &[0; 16_000]));
    }
    assert_eq!(t.events(1), ["dns_response_too_long"]);
}

#[test]
fn limits() {
    let mut config = AppConfig::default();
    config.http2.max_streams = 3;
    config.http2.max_reassembly_size = 64;
    let mut t = Talk::with(config);
    t.feed(ToServer, PREFACE);
    for stream in [1, 3, 5, 7] {
        t.feed(ToServer, &frame(1, 4, stream, b"\x82\x84"));
    }
    assert_eq!((t.events(0), t.progress(0), t.progress(1)), (vec!["too_many_streams"], [3, 3], [1, 0]));
    for stream in [9, 11, 13, 15, 17] {
        t.feed(ToServer, &frame(1, 4, stream, b"\x82\x84"));
    }
    assert_eq!((t.parser.txs().count(), t.outcome), (6, Outcome::Full));
    for id in 0..3 {
        t.parser.free_tx(&mut t.shared, id);
    }
    t.feed(ToServer, &frame(1, 4, 11, &[0; 65]));
    assert!(t.events(5).contains(&"long_frame_data"));
    t.feed(ToServer, &frame(1, 0, 11, &[0x82; 60]));
    t.feed(ToServer, &frame(9, 4, 11, &[0x82; 60]));
    assert!(t.events(5).contains(&"reassembly_limit_reached"));
}

#[test]
fn a_hole_in_a_body() {
    let mut t = Talk::new();
    t.feed(ToServer, &frame(1, 4, 1, &fields(&[(":method", "POST")])));
    t.feed(ToServer, &frame(0, 1, 1, &[b'a'; 100])[..50]);
    let (config, shared, flow) = (&t.config, &mut t.shared, &t.flow);
    let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
    assert_eq!(t.parser.gap(&mut cx, ToServer, 59), Outcome::More);
    assert_eq!(t.progress(0), [3, 0]);
    t.feed(ToServer, &frame(1, 5, 3, b"\x82"));
    assert_eq!(t.buffer(1, "http.method", ToServer, 0).as_deref(), Some("GET"));
    let (config, shared, flow) = (&t.config, &mut t.shared, &t.flow);
    let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
    assert_eq!(t.parser.gap(&mut cx, ToServer, 1), Outcome::Failed);
}

const CALL: [(&str, &str); 3] =
    [(":method", "POST"), (":path", "/shop.v1.Cart/Add"), ("content-type", "application/grpc+proto")];

/// A connection with the setting `grpc` on.
fn calls() -> Talk {
    let mut config = AppConfig::default();
    config.settings.set(AppProto::Http2, super::grpc::SETTING, 1);
    let mut t = Talk::with(config);
    t.feed(ToServer, PREFACE);
    t
}

#[test]
fn calls_of_grpc() {
    let mut t = calls();
    t.feed(ToServer, &frame(1, 4, 1, &fields(&CALL)));
    t.feed(ToServer, &frame(0, 1, 1, b"\0\0\0\0\x01a"));
    t.feed(ToClient, &frame(1, 4, 1, &fields(&[(":status", "200"), ("content-type", "application/grpc")])));
    t.feed(ToClient, &frame(0, 0, 1, b"\0\0\0\0\x01b"));
    assert_eq!(t.number(0, "grpc.status", ToClient), [0; 0]);
    t.feed(ToClient, &frame(1, 5, 1, &fields(&[("grpc-status", "5"), ("grpc-message", "no%20cart")])));
    assert_eq!(t.buffer(0, "grpc.service", ToServer, 0).as_deref(), Some("shop.v1.Cart"));
    assert_eq!(t.buffer(0, "grpc.method", ToServer, 0).as_deref(), Some("Add"));
    assert_eq!((t.number(0, "grpc.status", ToClient), t.number(0, "grpc.status", ToServer)), (vec![5], vec![]));
    let want = r#","grpc":{"service":"shop.v1.Cart","method":"Add","status":5,"status_name":"not_found","message":"no cart"}}"#;
    assert!(t.log(0).ends_with(want), "{}", t.log(0));
    // Neither a call without the setting nor a request of another type.
    for (mut t, kind) in [(Talk::new(), "application/grpc"), (calls(), "application/json")] {
        let request = [CALL[0], CALL[1], ("content-type", kind)];
        t.feed(ToServer, &frame(1, 5, 1, &fields(&request)));
        t.feed(ToClient, &frame(1, 5, 1, &fields(&[(":status", "200"), ("grpc-status", "0")])));
        assert!(!t.log(0).contains("\"grpc\"") && t.number(0, "grpc.status", ToClient).is_empty(), "{kind}");
        assert_eq!(t.buffer(0, "grpc.service", ToServer, 0), None);
    }
}

#[test]
fn calls_of_grpc_web() {
    let mut t = calls();
    let request = [CALL[0], CALL[1], ("content-type", "application/grpc-web+proto")];
    t.feed(ToServer, &frame(1, 5, 1, &fields(&request)));
    t.feed(ToClient, &frame(1, 4, 1, &fields(&[(":status", "200"), ("content-type", "application/grpc-web+proto")])));
    let body = b"\0\0\0\0\x02hi\x80\0\0\0\x10grpc-status: 16\n";
    t.feed(ToClient, &frame(0, 0, 1, &body[..13]));
    t.feed(ToClient, &frame(0, 1, 1, &body[13..]));
    assert_eq!(t.number(0, "grpc.status", ToClient), [16]);
    assert!(t.log(0).contains(r#""status":16,"status_name":"unauthenticated"}"#), "{}", t.log(0));
}
