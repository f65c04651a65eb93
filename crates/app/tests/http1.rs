//! Conversations through the HTTP/1 parser: the result, and that it does not depend on the segmentation.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::net::IpAddr;

use margay_app::http1::SwfConfig;
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;
use proptest::prelude::*;

fn flow() -> FlowCore {
    FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 80), Time(0))
    }
}

/// A parser with its context, fed as a session does.
struct Talk {
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
    outcome: Outcome,
}

impl Talk {
    fn with(mut config: AppConfig) -> Talk {
        config.arguments = Some(Default::default());
        let flow = flow();
        let parser = (protocol(AppProto::Http1).expect("HTTP/1 has a parser").parser)(&config, &flow);
        let shared = Shared::default();
        Talk { config, flow, shared, parser, waiting: [Vec::new(), Vec::new()], outcome: Outcome::More }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) {
        self.offer(dir, data, end);
        while self.outcome == Outcome::Resume {
            // The other direction's waiting data comes before the rest of this one.
            self.outcome = Outcome::More;
            self.offer(dir.reverse(), b"", false);
            self.offer(dir, b"", end);
        }
    }

    fn offer(&mut self, dir: Direction, data: &[u8], end: bool) {
        if self.outcome != Outcome::More {
            return;
        }
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let mut cx = Parse {
            config: &self.config,
            shared: &mut self.shared,
            flow: &self.flow,
            time: Time::default(),
            end,
            inline: false,
        };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        assert!(parsed.consumed <= waiting.len());
        waiting.drain(..parsed.consumed);
        self.outcome = parsed.outcome;
    }

    fn gap(&mut self, dir: Direction, len: u64) {
        let mut cx = Parse {
            config: &self.config,
            shared: &mut self.shared,
            flow: &self.flow,
            time: Time::default(),
            end: false,
            inline: false,
        };
        self.outcome = self.parser.gap(&mut cx, dir, len);
    }

    fn end(&mut self) {
        self.feed(ToServer, b"", true);
        self.feed(ToClient, b"", true);
    }

    /// Everything that rules and logs see.
    fn seen(&self) -> Vec<String> {
        let protocol = protocol(AppProto::Http1).expect("HTTP/1 has a parser");
        let mut out = vec![format!("{:?}", self.outcome)];
        for tx in self.parser.txs().filter_map(|id| self.parser.tx(id)) {
            out.push(format!("tx {} {:?}", tx.base().id, tx.base().progress));
            let mut events: Vec<_> =
                tx.base().events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]).collect();
            events.sort_unstable();
            out.push(format!("{events:?}"));
            for def in protocol.buffers {
                for dir in [ToServer, ToClient] {
                    for index in 0.. {
                        let mut scratch = Vec::new();
                        let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                        out.push(format!("{} {dir:?} {}", def.name, found.data.escape_ascii()));
                        if !def.kind.is_several() {
                            break;
                        }
                    }
                }
            }
            for f in tx.base().files.all() {
                out.push(format!("file {} {} {:?} {:?}", f.name().escape_ascii(), f.size(), f.state, f.range));
            }
            let mut json = Json::new();
            let mut options = AppLogOptions::default();
            options.http.extended = true;
            json.item_object();
            tx.log(&mut json, &options, LogFor::Event);
            json.end_object();
            out.push(String::from_utf8_lossy(json.as_bytes()).into_owned());
        }
        out
    }
}

fn talk(parts: &[(Direction, &[u8])]) -> Vec<String> {
    let mut t = Talk::with(AppConfig::default());
    for (dir, data) in parts {
        t.feed(*dir, data, false);
    }
    t.end();
    t.seen()
}

#[track_caller]
fn has(seen: &[String], wanted: &[&str]) {
    for w in wanted {
        assert!(seen.iter().any(|s| s == w), "no {w} in {seen:#?}");
    }
}

const PLAIN: &[(Direction, &[u8])] = &[
    (
        ToServer,
        b"GET /a?q=1 HTTP/1.1\r\nHost: www.example\r\nCookie: a=1\r\nCookie: b=2\r\nX-A:  one \r\nx-a: two\r\nFold: a\r\n  b\r\n\r\n",
    ),
    (
        ToClient,
        b"HTTP/1.1 200 Very OK\r\nContent-Type: text/html; charset=x\r\nSet-Cookie: s=1\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (ToServer, b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    (ToServer, b"HEAD /h HTTP/1.1\r\nHost: h\r\n\r\nPUT /u HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz"),
    (
        ToClient,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\nLocation: /x\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nTrail: er\r\n\r\n",
    ),
    (ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.0 206 Part\r\nContent-Range: bytes 5-9/20\r\n\r\n12345"),
];

#[test]
fn buffers_and_log() {
    has(
        &talk(PLAIN),
        &[
            "http.header ToServer Host: www.example\\r\\nX-A: one, two\\r\\nFold: a  b\\r\\n",
            "http.header.raw ToClient Content-Type: text/html; charset=x\\r\\nSet-Cookie: s=1\\r\\nContent-Length: 5\\r\\n\\r\\n",
            "http.header_names ToServer \\r\\nHost\\r\\nCookie\\r\\nX-A\\r\\nFold\\r\\n\\r\\n",
            "http.cookie ToServer a=1, b=2",
            "http.cookie ToClient s=1",
            "http.start ToServer GET /a?q=1 HTTP/1.1\\r\\nHost: www.example\\r\\nCookie: a=1, b=2\\r\\nX-A: one, two\\r\\nFold: a  b\\r\\n\\r\\n",
            "http.stat_msg ToClient Very OK",
            "http.request_header ToServer X-A: one, two",
            "file.data ToClient hello",
            "http.request_body ToServer abcde",
            "http.header ToClient Transfer-Encoding: chunked\\r\\nLocation: /x\\r\\nTrail: er\\r\\n",
            "file /p 5 Closed None",
            "file /u 3 Closed None",
            "file /u 5 Closed Some((5, 9))",
            r#"{"http":{"hostname":"h","url":"/p","http_method":"POST","protocol":"HTTP/1.1","status":201,"redirect":"/x","length":18}}"#,
            r#"{"http":{"hostname":"www.example","url":"/a?q=1","http_content_type":"text/html","http_method":"GET","protocol":"HTTP/1.1","status":200,"length":5}}"#,
            r#"{"http":{"hostname":"h","url":"/h","http_method":"HEAD","protocol":"HTTP/1.1","status":200,"length":0}}"#,
        ],
    );
}

#[test]
fn chunks_that_are_none_are_a_body_as_it_is() {
    let seen = talk(&[
        (ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        (ToClient, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: x chunked\r\n\r\nnot chunked"),
    ]);
    has(&seen, &["file.data ToClient not chunked"]);
}

#[test]
fn bodies_that_only_some_programs_read_to_the_end() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nto the end",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nContent-Length: 4\r\n\r\nto the end",
        "HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\nto the end",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, chunked\r\n\r\n2 to the end",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0to the end",
    ] {
        for cut in [1, 2, response.len() - 3, response.len()] {
            let mut turns: Vec<(Direction, &[u8])> = vec![(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")];
            turns.extend(response.as_bytes().chunks(cut).map(|piece| (ToClient, piece)));
            let seen = talk(&turns);
            let data = seen.iter().rfind(|line| line.starts_with("file.data ToClient")).map(String::as_str);
            assert!(data.is_some_and(|d| d.ends_with("to the end")), "{response:?} by {cut}: {seen:#?}");
        }
    }
}

#[test]
fn a_long_extension_of_a_chunk() {
    let response =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;{}\r\nabc\r\n0\r\n\r\n", "a".repeat(60_000));
    for cut in [1_000, response.len()] {
        let mut turns: Vec<(Direction, &[u8])> = vec![(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")];
        turns.extend(response.as_bytes().chunks(cut).map(|piece| (ToClient, piece)));
        has(&talk(&turns), &["file.data ToClient abc", "[\"request_chunk_extension\"]"]);
    }
}

/// Python's `http.server` and servers of HTTP/1.0 ignore `Transfer-Encoding`.
#[test]
fn a_request_in_place_of_a_chunk() {
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for between in ["", " ", "\r\n ", "3\r\nabc\r\n"] {
        let both = format!("{head}{between}GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
        for cut in [1, 7, both.len()] {
            let turns: Vec<(Direction, &[u8])> = both.as_bytes().chunks(cut).map(|piece| (ToServer, piece)).collect();
            has(&talk(&turns), &["http.uri ToServer /a", "http.uri ToServer /b", "[\"invalid_request_chunk_len\"]"]);
        }
    }
    // It is none without a version, and the parser gives up.
    let none = format!("{head}GET /b\r\n\r\nGET /c HTTP/1.1\r\n\r\n");
    assert!(!talk(&[(ToServer, none.as_bytes())]).iter().any(|line| line.contains("/c")));
}

#[test]
fn lines_end_as_browsers_take_them() {
    for head in [
        "HTTP/1.1 200 ok\rA: b\rTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 ok\n\rA: b\n\rTransfer-Encoding: chunked\n\r\r\n\r\n",
        "HTTP/1.1 200 ok\nA: b\nTransfer-Encoding\n :chunked\nB: c\n \n",
        "HTTP/1.1 200 ok\r\nA: b\r\n\r\r\nTransfer-Encoding: chunked\r\n\r\n",
        " \t\r\n\0HTTP/1.1 200 ok\r\nA: b\r\n\tTransfer-Encoding:\0chunked\r\n\r\n",
        "SIP/2.0 200 ok\r\nHTTP/1.1 200 ok\r\nA: b\r\nTransfer-Encoding:: chunked\r\n\r\n",
    ] {
        let body = b" 4\t\r\nX5O!\r\n\r\n4;x\r\nP%@A\r\n0\r\n\r\n";
        let seen =
            talk(&[(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), (ToClient, &[head.as_bytes(), body].concat())]);
        has(&seen, &["file.data ToClient X5O!P%@A"]);
    }
}

#[test]
fn faults_of_heads_and_chunks_are_events() {
    let asked = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (response, event) in [
        ("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nab", "response_header_invalid"),
        ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nab", "response_invalid_protocol"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2; a=b\r\nab\r\n0\r\n\r\n", "request_chunk_extension"),
    ] {
        let seen = talk(&[(ToServer, asked), (ToClient, response.as_bytes())]);
        has(&seen, &[&format!("[\"{event}\"]"), "file.data ToClient ab"]);
    }
    let seen = talk(&[(ToServer, b"GET / HTTP/1.1\r\nHost\t: h\r\n\r\n")]);
    has(&seen, &["[\"request_header_invalid\"]", "http.host ToServer h"]);
}

#[test]
fn several_hosts_are_one_value() {
    let seen = talk(&[(ToServer, b"GET / HTTP/1.1\r\nHost: ABC.com\r\nAccept: */*\r\nHost: efg.net\r\n\r\n")]);
    has(&seen, &["http.host ToServer abc.com, efg.net", "http.host.raw ToServer ABC.com, efg.net"]);
}

#[test]
fn requests_without_a_protocol() {
    let seen = talk(&[(ToServer, b"GET /x\r\nNoColon\r\nUser-Agent: a\r\n\r\n")]);
    has(&seen, &["http.user_agent ToServer a", "[\"request_field_missing_colon\", \"request_line_missing_protocol\"]"]);
    let seen = talk(&[(ToServer, b"GET /x\r\n\r\n"), (ToClient, b"HTTP/1.1 200 no status")]);
    has(&seen, &["file.data ToClient HTTP/1.1 200 no status", "file /x 22 Closed None"]);
}

#[test]
fn responses_without_a_request() {
    let seen = talk(&[(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")]);
    has(
        &seen,
        &[
            "[\"unable_to_match_response_to_request\"]",
            r#"{"http":{"url":"/libhtp::request_uri_not_seen","status":200,"length":2}}"#,
        ],
    );
}

#[test]
fn connect_and_upgrade_hand_over() {
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"CONNECT a:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n", false);
    assert_eq!(t.waiting[0], b"GET / HTTP/1.1\r\n");
    t.feed(ToClient, b"HTTP/1.1 200 OK\r\n\r\nrest", false);
    assert_eq!((t.outcome, &t.waiting[1][..]), (Outcome::Change(None), &b"rest"[..]));
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"CONNECT a:443 HTTP/1.1\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", false);
    t.feed(ToServer, b"GET /after HTTP/1.1\r\n\r\n", false);
    has(&t.seen(), &["http.uri ToServer /after"]);
    // Data sent with the refused request is parsed with the refusal.
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"CONNECT a:443 HTTP/1.1\r\n\r\nGET /at-once HTTP/1.1\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n", false);
    has(&t.seen(), &["http.uri ToServer /at-once"]);
    assert_eq!(t.waiting, [b"", b""]);
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\n\r\n\0\0", false);
    assert_eq!((t.outcome, t.waiting[1].len()), (Outcome::Change(Some(AppProto::Http2)), 2));
}

#[test]
fn gaps_in_bodies_are_skipped() {
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n0123456789", false);
    t.gap(ToClient, 50);
    t.feed(ToClient, b"0123456789HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx", false);
    t.end();
    has(&t.seen(), &["file /a 70 Truncated None", "file /b 1 Closed None"]);
    // The gap exceeds the body: one line of remaining data is skipped, and the next response is found.
    let gone = |tail: &[u8]| {
        let mut t = Talk::with(AppConfig::default());
        t.feed(ToServer, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", false);
        t.feed(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n01", false);
        t.gap(ToClient, 50);
        t.feed(ToClient, tail, false);
        t.feed(ToClient, b"HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx", false);
        t.end();
        t.seen()
    };
    has(&gone(b"tail of what is gone\r\n"), &["file /a 7 Truncated None", "file /b 1 Closed None"]);
    // As in Suricata, more than one line is a body, that of the response whose beginning is gone.
    has(&gone(b"tail of what\nis gone\r\n"), &["file /a 7 Truncated None", "file /b 61 Closed None"]);
}

/// The fields go on behind a gap, and a line that it tears goes on as well, unless a message begins there.
#[test]
fn gaps_in_fields() {
    let seen = |dir: Direction, before: &[u8], behind: &[&[u8]]| {
        let mut t = Talk::with(AppConfig::default());
        if dir == ToClient {
            t.feed(ToServer, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", false);
        }
        t.feed(dir, before, false);
        t.gap(dir, 50);
        for data in behind {
            t.feed(dir, data, false);
        }
        t.end();
        t.seen()
    };
    let request = b"GET /a HTTP/1.1\r\nHost: h\r\nA: 1\r\n";
    for behind in [&[&b"B: 2\r\n\r\n"[..]][..], &[b"B", b": 2\r\n\r\n"]] {
        let names = "http.header_names ToServer \\r\\nHost\\r\\nA\\r\\nB\\r\\n\\r\\n";
        has(&seen(ToServer, request, behind), &["http.host ToServer h", names]);
    }
    let torn = [&request[..], b"B: "].concat();
    has(&seen(ToServer, &torn, &[b"2\r\n\r\n"]), &["http.header ToServer Host: h\\r\\nA: 1\\r\\nB: 2\\r\\n"]);
    for before in [&request[..], &torn] {
        let again = seen(ToServer, before, &[b"GET /b HT", b"TP/1.1\r\nHost: i\r\n\r\n"]);
        has(&again, &["http.uri ToServer /a", "http.host ToServer h", "http.uri ToServer /b", "http.host ToServer i"]);
    }
    let response = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: ";
    has(&seen(ToClient, response, &[b"2\r\nContent-Length: 1\r\n\r\nx"]), &["file /a 1 Closed None"]);
    let next = seen(ToClient, response, &[b"HTT", b"P/1.1 404 No\r\nContent-Length: 1\r\n\r\nx"]);
    has(&next, &["http.stat_code ToClient 200", "http.stat_code ToClient 404", "file /b 1 Closed None"]);
}

/// The request of a response that came first ends when the client goes on, or with the next such response.
#[test]
fn a_request_that_was_not_seen_ends_with_what_follows() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToClient, response, false);
    let is_complete = |t: &Talk, id| t.parser.tx(id).is_some_and(|tx| tx.base().progress[0] == tx.base().progress[1]);
    assert!(!is_complete(&t, 0));
    t.feed(ToClient, response, false);
    assert!(is_complete(&t, 0) && !is_complete(&t, 1));
    t.feed(ToServer, b"GET", false);
    assert!(is_complete(&t, 1));
}

#[test]
fn limits_hold() {
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"GET / HTTP/1.1\r\nA: ", false);
    for _ in 0..20 {
        t.feed(ToServer, &[b'a'; 1000], false);
    }
    assert_eq!(t.outcome, Outcome::Failed);
    has(&t.seen(), &["[\"request_field_too_long\"]"]);
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, b"GET / HTTP/1.1\r\n", false);
    for i in 0..2000 {
        t.feed(ToServer, format!("A{i}: b\r\n").as_bytes(), false);
    }
    assert_eq!(t.outcome, Outcome::Failed);
    has(&t.seen(), &["[\"request_too_many_headers\"]"]);
    let mut t = Talk::with(AppConfig::default());
    for _ in 0..1100 {
        t.feed(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false);
    }
    // Beyond 512 transactions the parser ends the oldest. At twice that number it pauses until some are freed.
    assert_eq!(
        (t.outcome, t.parser.txs(), t.shared.counters.tx_limit[AppProto::Http1 as usize]),
        (Outcome::Full, 0..1024, 512)
    );
    let complete =
        |id| t.parser.tx(id).is_some_and(|t| t.base().progress == protocol(AppProto::Http1).expect("HTTP").complete());
    assert_eq!((0..1024).filter(|id| complete(*id)).count(), 512);
}

#[test]
fn memory_is_given_back() {
    let mut t = Talk::with(AppConfig::default());
    for (dir, data) in PLAIN {
        t.feed(*dir, data, false);
    }
    t.end();
    assert!(t.shared.counters.http_memory > 0);
    for id in t.parser.txs() {
        t.parser.free_tx(&mut t.shared, id);
    }
    assert_eq!((t.shared.counters.http_memory, t.parser.txs()), (0, 4..4));
}

#[test]
fn the_memcap_keeps_bodies_out() {
    let mut config = AppConfig::default();
    config.http1.memcap = 50_000;
    let mut t = Talk::with(config);
    t.feed(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 200 OK\r\n\r\n", false);
    for _ in 0..100 {
        t.feed(ToClient, &[b'x'; 1000], false);
    }
    assert!(t.shared.counters.http_memcap > 0);
    assert!(t.shared.counters.http_memory < 120_000, "{}", t.shared.counters.http_memory);
}

#[test]
fn bodies_stream_by_in_windows() {
    let mut t = Talk::with(AppConfig::default());
    let data = protocol(AppProto::Http1).expect("HTTP/1 has a parser");
    let id = data.buffers.iter().find(|b| b.name == "file.data").map(|b| b.id).expect("file.data is there");
    t.feed(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false);
    t.feed(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n", false);
    let mut looks = Vec::new();
    for i in 0..90u8 {
        t.feed(ToClient, &[i; 1000], false);
        let tx = t.parser.tx_mut(0).expect("there is a transaction");
        if let Some(f) = tx.buffer(id, ToClient, 0, &mut Vec::new()) {
            looks.push((f.offset, f.data.len(), f.end));
        }
        tx.inspected(ToClient);
    }
    // Once the minimum size is there, each inspection covers the new piece and the window before it.
    assert_eq!(looks.first(), Some(&(0, 41_000, false)));
    assert_eq!(looks.get(1), Some(&(41_000 - 16_384, 17_384, false)));
    assert_eq!(looks.last().map(|l| (l.0 + l.1 as u64, l.2)), Some((90_000, true)));
}

#[test]
fn what_follows_a_body_is_of_it() {
    let seen = talk(&[
        (ToServer, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n"),
        (
            ToClient,
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\r\nde\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        ),
    ]);
    has(&seen, &["file.data ToClient abc\\r\\nde\\r\\n", "file /a 9 Closed None", "file /b 1 Closed None"]);
}

/// Conversations that are split in every way. In none does data follow a body beyond its announced length, because such data
/// is part of the body only if it arrives with it.
const CONVERSATIONS: &[&[(Direction, &[u8])]] = &[
    PLAIN,
    &[
        (ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\njunk\r\nGET /2 HTTP/1.1\n\n"),
        (ToClient, b"\n\rHTTP/1.1 200 ok\n\rA: b\n\rB: c\r\n \r\n d: e\r\nTransfer-Encoding\r\n :chunked\n\r\r\n\r\n4\r\nabcd\r\n0\n\n"),
        (ToClient, b"junk\r\nHTTP/1.0 200 ok\rA: b\r\r\r\nContent-Length: 3\n \nabc"),
    ],
    &[
        (ToServer, b"POST /x\n \n \nA: b\n\n"),
        (ToClient, b" \0HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\nzz"),
    ],
    &[(ToServer, b"GET /x\r\n\r\nGET /y\r\n"), (ToClient, b"plain body\r\nHTTP/1.1")],
    &[(ToClient, b"no status\r\nat all"), (ToServer, b"GET / HTTP/1.0\r\n\r\n"), (ToServer, b"")],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_cut_is_the_same(which in 0..CONVERSATIONS.len(), cuts in prop::collection::vec(1usize..40, 1..60)) {
        let parts = CONVERSATIONS[which];
        let mut t = Talk::with(AppConfig::default());
        let mut cut = cuts.iter().cycle();
        for (dir, data) in parts {
            let mut rest = *data;
            while !rest.is_empty() {
                let n = (*cut.next().unwrap_or(&1)).min(rest.len());
                t.feed(*dir, &rest[..n], false);
                rest = &rest[n..];
            }
        }
        t.end();
        prop_assert_eq!(t.seen(), talk(parts));
    }

    #[test]
    fn nothing_panics(parts in prop::collection::vec(
        (any::<bool>(), prop::collection::vec(prop::sample::select(&b"GET / HTTP/1.1\r\n:; \t\0chunkedTransfer-Encoding0123aX\xff"[..]), 0..200)),
        0..20,
    )) {
        let mut t = Talk::with(AppConfig::default());
        for (client, data) in &parts {
            t.feed(if *client { ToServer } else { ToClient }, data, false);
        }
        t.end();
        t.seen();
    }
}

/// Flash files are decompressed for rules, if that is on.
#[test]
fn flash_files_are_decompressed() {
    let body = b"a script, a script, a script";
    let mut deflate = flate2::Compress::new(flate2::Compression::best(), true);
    let mut packed = Vec::with_capacity(1 << 10);
    deflate.compress_vec(body, &mut packed, flate2::FlushCompress::Finish).expect("deflated");
    let file = [&b"CWS\x0d\xff\0\0\0"[..], &packed].concat();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    for on in [false, true] {
        let mut config = AppConfig::default();
        config.http1.default.swf =
            on.then_some(SwfConfig { deflate: true, lzma: true, compress_depth: 1024, decompress_depth: 1024 });
        let mut t = Talk::with(config);
        t.feed(ToServer, b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n", false);
        for piece in [head.as_bytes(), &file].concat().chunks(10) {
            t.feed(ToClient, piece, false);
        }
        let plain = b"FWS\x0d\xff\0\0\0a script, a script, a script".escape_ascii();
        let expected = if on { plain.to_string() } else { file.escape_ascii().to_string() };
        let seen = t.seen();
        for buffer in ["file.data", "http.response_body"] {
            let expected = format!("{buffer} ToClient {expected}");
            assert!(seen.contains(&expected), "{expected} is not in {seen:#?}");
        }
    }
}

/// The engine parses the odd forms that clients and servers accept (docs/peers.md).
#[test]
fn what_programs_read_is_there() {
    let get: (Direction, &[u8]) = (ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    for response in [
        // A length or a coding of an interim response has no meaning. An unsolicited 101 is an interim response.
        &b"HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"[..],
        b"HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 101 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        // Node.js and curl: CR CR LF ends the fields.
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\r\nabc",
        // Python: a length that `int` rejects is ignored, and a chunk's size may be anything that `int` accepts.
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    ] {
        let seen = talk(&[get, (ToClient, response)]);
        assert!(seen.contains(&"http.response_body ToClient abc".into()), "{}: {seen:#?}", response.escape_ascii());
    }
    let chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n\r\n";
    has(&talk(&[(ToServer, chunked)]), &["http.request_body ToServer abc"]);
    let mut t = Talk::with(AppConfig::default());
    t.feed(ToServer, chunked, false);
    // Servers process the first chunk, so rules do not wait for more.
    let progress = t.parser.txs().filter_map(|id| t.parser.tx(id)).map(|tx| tx.base().progress[0]).collect::<Vec<_>>();
    assert_eq!(progress, [5]);
    let seen = talk(&[get, (ToServer, b"\xef\xbb\xbfGET /second HTTP/1.1\r\nHost: h\r\n\r\n")]);
    has(&seen, &["http.uri ToServer /second"]);
}

/// A client leaves out the body if the server refuses it, or sends it nevertheless: what follows decides.
#[test]
fn a_refused_body_may_be_missing() {
    let post =
        |expect: &str| format!("POST /first HTTP/1.1\r\nHost: h\r\nExpect: {expect}\r\nContent-Length: 4\r\n\r\n");
    let next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    let refused: (Direction, &[u8]) = (ToClient, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n");
    for piece in [1, 1000] {
        for body in ["", "abcd", "GETS", "GET\n"] {
            let mut t = Talk::with(AppConfig::default());
            t.feed(ToServer, post("100-Continue").as_bytes(), false);
            t.feed(refused.0, refused.1, false);
            for part in [body, next].concat().as_bytes().chunks(piece) {
                t.feed(ToServer, part, false);
            }
            t.end();
            let seen = t.seen();
            has(&seen, &["http.uri ToServer /next"]);
            let bodies = seen.iter().filter(|s| s.starts_with("http.request_body")).cloned().collect::<Vec<_>>();
            let expected = if body.is_empty() {
                vec![]
            } else {
                vec![format!("http.request_body ToServer {}", body.escape_default())]
            };
            assert_eq!(bodies, expected);
        }
    }
    // Without that expectation, or if the server accepts the body, the length counts.
    for (expect, response) in [("x", refused.1), ("100-continue", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")] {
        let seen = talk(&[(ToServer, post(expect).as_bytes()), (ToClient, response), (ToServer, next.as_bytes())]);
        assert!(!seen.contains(&"http.uri ToServer /next".into()), "{seen:#?}");
    }
}

/// A request whose rest never came has a truncated file; a response that ends early is what the client got.
#[test]
fn an_unfinished_request_is_truncated() {
    let head = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n";
    let part = "--X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.exe\"\r\n\r\nabc\r\n";
    for (rest, expected) in [
        ("\r\nabc".to_owned(), "file /p 3 Truncated None"),
        (format!("Content-Type: multipart/form-data; boundary=X\r\n\r\n{part}"), "file a.exe 3 Truncated None"),
        (format!("Content-Type: multipart/form-data; boundary=X\r\n\r\n{part}--X--\r\n"), "file a.exe 3 Closed None"),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_owned(), "file /p 3 Truncated None"),
    ] {
        has(&talk(&[(ToServer, format!("{head}{rest}").as_bytes())]), &[expected]);
    }
    let get: (Direction, &[u8]) = (ToServer, b"GET /g HTTP/1.1\r\nHost: h\r\n\r\n");
    has(&talk(&[get, (ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")]), &["file /g 3 Closed None"]);
}

/// The log shows a range's numbers also if they contradict each other, and the length if there is no range.
#[test]
fn ranges_are_logged() {
    for (range, expected, event) in [
        ("bytes */1400", r#""content_range":{"raw":"bytes */1400","size":1400}"#, "[]"),
        ("bytes 5-3/9", r#""content_range":{"raw":"bytes 5-3/9","start":5,"end":3,"size":9}"#, "[\"range_invalid\"]"),
        ("bytes */*", r#""content_range":{"raw":"bytes */*"}"#, "[\"range_invalid\"]"),
    ] {
        let get: (Direction, &[u8]) = (ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let response = format!("HTTP/1.1 416 No\r\nContent-Range: {range}\r\nContent-Length: 0\r\n\r\n");
        let seen = talk(&[get, (ToClient, response.as_bytes())]);
        has(&seen, &[event]);
        assert!(seen.iter().any(|s| s.contains(expected)), "{expected} is not in {seen:#?}");
    }
}
