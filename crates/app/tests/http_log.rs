//! Logs of HTTP/1: the expected lines are from Suricata 7.0.10 for the same messages.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;

use margay_app::config::AppConfig;
use margay_app::{AppLogOptions, AppProto, LogFor, Parse, Parser, Shared, protocol};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nAccept: first\r\nX-Forwarded-For: 1.2.3.4\r\nAccept: v0\r\nReferer: v1\r\n\
    X-Forwarded-For: v2\r\nDate: v3\r\nLocation: v4\r\nContent-Length: 0\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nAccept: v0\r\nReferer: v1\r\nX-Forwarded-For: v2\r\nDate: v3\r\n\
    Location: v4\r\nContent-Range: r\r\nContent-Length: 2\r\n\r\nhi";
const BASIC: &str = r#""url":"/","xff":"1.2.3.4, v2","content_range":{"raw":"r"}"#;
const EXTENDED: &str =
    r#","http_refer":"v1","http_method":"GET","protocol":"HTTP/1.1","status":200,"redirect":"v4","length":2"#;

/// A parser that received a request and its response.
fn parsed(request: &[u8], response: &[u8]) -> Box<dyn Parser> {
    let ip: IpAddr = [192, 0, 2, 1].into();
    let flow = FlowCore { state: FlowState::Established, ..FlowCore::new(1, 6, (ip, 40_000), (ip, 80), Time(0)) };
    let config = AppConfig::default();
    let mut shared = Shared::default();
    let mut parser = (protocol(AppProto::Http1).unwrap().parser)(&config, &flow);
    for (dir, data) in [(Direction::ToServer, request), (Direction::ToClient, response)] {
        let mut cx = Parse {
            config: &config,
            shared: &mut shared,
            flow: &flow,
            time: Time::default(),
            end: false,
            inline: false,
        };
        assert_eq!(parser.data(&mut cx, dir, data).consumed, data.len());
    }
    parser
}

fn logged(parser: &dyn Parser, what: LogFor, change: impl FnOnce(&mut AppLogOptions)) -> String {
    let mut options = AppLogOptions::default();
    change(&mut options);
    let mut json = Json::new();
    parser.tx(0).unwrap().log(&mut json, &options, what);
    String::from_utf8(json.as_bytes().to_vec()).unwrap()
}

#[test]
fn fields_that_are_asked_for_by_name_or_all() {
    let p = parsed(REQUEST, RESPONSE);
    let event = |custom: &[&str], dump: [bool; 2]| {
        logged(&*p, LogFor::Event, |o| {
            o.http.custom = custom.iter().map(ToString::to_string).collect();
            o.http.dump_headers = dump;
        })
    };
    let http = |rest: &str| format!(r#""http":{{{BASIC}{rest}}}"#);
    let request = r#","request_headers":[{"name":"Accept","value":"first, v0"},{"name":"Date","value":"v3"}]"#;
    let response = r#","response_headers":[{"name":"Accept","value":"v0"},{"name":"Date","value":"v3"}]"#;
    let all = r#","request_headers":[{"name":"Accept","value":"first, v0"},{"name":"X-Forwarded-For","value":"1.2.3.4, v2"},{"name":"Referer","value":"v1"},{"name":"Date","value":"v3"},{"name":"Location","value":"v4"},{"name":"Content-Length","value":"0"}]"#;
    assert_eq!(event(&[], [false; 2]), http(""));
    assert_eq!(event(&["date", "accept"], [false; 2]), http(&format!("{request}{response}")));
    assert_eq!(event(&["date", "accept"], [true, false]), http(&format!("{all}{response}")));
    assert_eq!(event(&[], [true, false]), http(all));
    assert_eq!(event(&["etag", "via"], [false; 2]), http(""));
}

#[test]
fn empty_fields_are_no_members() {
    let request = b"GET / HTTP/1.1\r\nUser-Agent: \r\nX-Forwarded-For:\r\nReferer: \r\nContent-Length: 0\r\n\r\n";
    let p = parsed(request, b"HTTP/1.1 200 OK\r\nLocation: \r\nContent-Length: 2\r\n\r\nhi");
    let extended = r#""http":{"url":"/","http_method":"GET","protocol":"HTTP/1.1","status":200,"length":2}"#;
    assert_eq!(logged(&*p, LogFor::Alert, |_| ()), extended);
}

#[test]
fn alerts_and_files_have_the_extended_form() {
    let p = parsed(REQUEST, RESPONSE);
    let extended = format!(r#""http":{{{BASIC}{EXTENDED}}}"#);
    for what in [LogFor::Alert, LogFor::File] {
        let custom = |o: &mut AppLogOptions| {
            o.http.custom = vec!["date".into()];
            o.http.dump_headers = [false, true];
        };
        assert_eq!(logged(&*p, what, custom), extended);
    }
    assert_eq!(logged(&*p, LogFor::Event, |o| o.http.extended = true), extended);
}

#[test]
fn alerts_show_bodies_where_that_is_wanted() {
    let post = b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nname=j\0hn";
    let p = parsed(post, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHi!");
    let both = |o: &mut AppLogOptions| (o.http_body, o.http_body_printable) = (true, true);
    let alert = logged(&*p, LogFor::Alert, both);
    let want = r#""length":3,"http_request_body_printable":"name=j.hn","http_response_body_printable":"Hi!","http_request_body":"bmFtZT1qAGhu","http_response_body":"SGkh"}"#;
    assert!(alert.ends_with(want), "{alert}");
    for what in [LogFor::Event, LogFor::File] {
        assert!(!logged(&*p, what, both).contains("body"));
    }
    let alert = logged(&*p, LogFor::Alert, |o| o.http_body = true);
    assert!(
        alert.ends_with(r#""length":3,"http_request_body":"bmFtZT1qAGhu","http_response_body":"SGkh"}"#),
        "{alert}"
    );
    // Without a body there is nothing to log.
    let p = parsed(REQUEST, b"HTTP/1.1 304 x\r\n\r\n");
    assert!(!logged(&*p, LogFor::Alert, both).contains("body"));
}
