//! The `http` member of events, in the form of Suricata 8.

use std::net::IpAddr;

use margay_json::Json;

use crate::config::AppLogOptions;
use crate::param::without_parameters;
use crate::script::Answer;
use crate::tx::LogFor;

use super::headers::{Headers, trim};
use super::request::part;
use super::tx::Http1Tx;

/// The host as the client wrote it, without port.
fn host(tx: &Http1Tx) -> Option<&[u8]> {
    if tx.host.is_empty() {
        return None;
    }
    let written = tx.host_raw.get(..tx.host.len()).filter(|w| w.eq_ignore_ascii_case(&tx.host));
    Some(written.unwrap_or(&tx.host))
}

/// A value for a line of `http-log`.
pub(super) fn line_value(tx: &Http1Tx, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
    let text = |bytes: &[u8]| if bytes.is_empty() { Answer::Nothing } else { Answer::Bytes(bytes.to_vec()) };
    let field = |headers: &Headers| {
        let mut scratch = Vec::new();
        Answer::bytes(arg.and_then(|name| headers.joined(name, &mut scratch)))
    };
    Some(match what {
        "get" => Answer::Bool(true),
        "host" => Answer::bytes(host(tx)),
        "uri" => text(tx.uri_raw()),
        "method" => text(tx.method()),
        "protocol" => text(part(&tx.request.line, tx.request_line.protocol)),
        "status" => text(part(&tx.response.line, tx.status_line.status)),
        "length" => Answer::Int(i64::try_from(tx.response.body.transferred).unwrap_or(i64::MAX)),
        "request_length" => Answer::Int(i64::try_from(tx.request.body.transferred).unwrap_or(i64::MAX)),
        "cookie" => {
            let mut scratch = Vec::new();
            let value = tx.request.headers.joined(b"cookie", &mut scratch).and_then(|c| cookie(c, arg?));
            value.map_or(Answer::Nothing, text)
        }
        "request_header" => field(&tx.request.headers),
        "response_header" => field(&tx.response.headers),
        _ => return None,
    })
}

/// The value of a cookie; as in Suricata, with the semicolon behind it.
fn cookie<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    header
        .split_inclusive(|&b| b == b';')
        .find_map(|pair| pair.trim_ascii_start().strip_prefix(name)?.strip_prefix(b"="))
}

/// Appends `"http":{...}`. Alerts and files have the extended form whatever the `http` output's own setting.
pub(super) fn log(tx: &Http1Tx, json: &mut Json, options: &AppLogOptions, what: LogFor) {
    let http = &options.http;
    json.object("http");
    let request = &tx.request.headers;
    let response = &tx.response.headers;
    let mut scratch = Vec::new();
    if let Some(host) = host(tx) {
        json.bytes("hostname", host);
    }
    if let Some(port) = tx.port {
        json.uint("http_port", u64::from(port));
    }
    member(json, "url", Some(tx.uri_raw()));
    member(json, "http_user_agent", request.joined(b"user-agent", &mut scratch));
    scratch.clear();
    member(json, "xff", request.joined(b"x-forwarded-for", &mut scratch));
    scratch.clear();
    if let Some(v) = response.joined(b"content-type", &mut scratch) {
        json.bytes("http_content_type", trim(without_parameters(v)));
    }
    content_range(tx, json);
    if http.extended || what != LogFor::Event {
        extended(tx, json);
    }
    match what {
        LogFor::Event => {
            let [all_request, all_response] = http.dump_headers;
            for (key, headers, all) in
                [("request_headers", request, all_request), ("response_headers", response, all_response)]
            {
                if all || !http.custom.is_empty() {
                    fields(json, key, headers, (!all).then_some(&http.custom));
                }
            }
        }
        LogFor::Alert => bodies(tx, json, options),
        LogFor::File => {}
    }
    json.end_object();
}

/// Appends a field, unless it is empty, as in Suricata.
fn member(json: &mut Json, name: &'static str, value: Option<&[u8]>) {
    if let Some(v) = value.filter(|v| !v.is_empty()) {
        json.bytes(name, v);
    }
}

fn content_range(tx: &Http1Tx, json: &mut Json) {
    let Some(raw) = tx.response.headers.first(b"content-range") else { return };
    json.object("content_range");
    json.bytes("raw", raw);
    if let Some(numbers) = crate::param::range_numbers(raw) {
        if let Some((start, end)) = numbers.range {
            json.uint("start", start);
            json.uint("end", end);
        }
        if let Some(total) = numbers.total {
            json.uint("size", total);
        }
    }
    json.end_object();
}

fn extended(tx: &Http1Tx, json: &mut Json) {
    let mut scratch = Vec::new();
    member(json, "http_refer", tx.request.headers.joined(b"referer", &mut scratch));
    member(json, "http_method", Some(tx.method()));
    member(json, "protocol", Some(part(&tx.request.line, tx.request_line.protocol)));
    let status = part(&tx.response.line, tx.status_line.status);
    match tx.status_line.number {
        Some(n) => json.uint("status", u64::from(n)),
        None if !status.is_empty() => json.bytes("status_string", status),
        None => {}
    }
    member(json, "redirect", tx.response.headers.first(b"location"));
    json.uint("length", tx.response.body.transferred);
}

/// Appends header fields in order, each name once with all its values: all of them, or those in `custom`. Appends nothing if
/// there are none.
fn fields(json: &mut Json, key: &'static str, headers: &Headers, custom: Option<&[String]>) {
    let wanted = |name: &[u8]| custom.is_none_or(|c| c.iter().any(|w| w.as_bytes().eq_ignore_ascii_case(name)));
    let mut scratch = Vec::new();
    let mut open = false;
    for name in headers.names().filter(|n| wanted(n)) {
        scratch.clear();
        let Some(value) = headers.joined(name, &mut scratch) else { continue };
        if !open {
            json.array(key);
            open = true;
        }
        json.item_object();
        json.bytes("name", name);
        json.bytes("value", value);
        json.end_object();
    }
    if open {
        json.end_array();
    }
}

/// Appends the held part of the bodies, for alerts with that option.
fn bodies(tx: &Http1Tx, json: &mut Json, options: &AppLogOptions) {
    let held = [
        ("http_request_body", "http_request_body_printable", tx.request.body.window().shown()),
        ("http_response_body", "http_response_body_printable", tx.response.body.window().shown()),
    ];
    for (_, key, body) in held.iter().filter(|h| options.http_body_printable && !h.2.is_empty()) {
        json.printable(key, body);
    }
    for (key, _, body) in held.iter().filter(|h| options.http_body && !h.2.is_empty()) {
        json.base64(key, body);
    }
}

/// See [`crate::Transaction::forwarded_for`].
pub(super) fn forwarded_for(tx: &Http1Tx, header: &str, forward: bool) -> Option<IpAddr> {
    let mut scratch = Vec::new();
    let value = tx.request.headers.joined(header.as_bytes(), &mut scratch)?;
    forwarded_address(value, forward)
}

/// The address in a header's value: the first or the last one of a list.
pub(crate) fn forwarded_address(value: &[u8], forward: bool) -> Option<IpAddr> {
    let mut words = value.split(|&b| b == b',');
    let word = trim(if forward { words.next()? } else { words.next_back()? });
    let text = std::str::from_utf8(word).ok()?;
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    // `[2001:db8::1]`, with a port or without.
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.split(']').next()) {
        return inner.parse().ok();
    }
    // An IPv4 address with a port, which may be anything, as in Suricata.
    let (address, _) = text.split_once(':')?;
    address.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proxies() {
        let of = |value: &'static str| [true, false].map(|forward| forwarded_address(value.as_bytes(), forward));
        let [one, two, six] = ["1.2.3.4", "5.6.7.8", "2001:db8::7"].map(|ip| ip.parse::<IpAddr>().ok());
        assert_eq!(of("1.2.3.4"), [one; 2]);
        assert_eq!(of(" 1.2.3.4 ,\t5.6.7.8"), [one, two]);
        assert_eq!(of("1.2.3.4:8080,[2001:db8::7]:99"), [one, six]);
        assert_eq!([of("1.2.3.4:")[0], of("1.2.3.4:99999999999")[0], of("[2001:db8::7]")[0]], [one, one, six]);
        for none in ["", ",", "unknown", "300.1.1.1", "1.2.3", "1.2.3.4 5.6.7.8", "for=1.2.3.4", "fe80::1%eth0"] {
            assert_eq!(of(none), [None; 2], "{none}");
        }
    }

    #[test]
    fn cookies_by_name() {
        let of = |header: &'static str| cookie(header.as_bytes(), b"sess").map(|v| std::str::from_utf8(v).unwrap());
        assert_eq!(
            (of("a=sess=1; sess=2"), of("sess=1; sess=2"), of("sess=a%20b;")),
            (Some("2"), Some("1;"), Some("a%20b;"))
        );
        assert_eq!((of("sess2=x"), of("xsess=x"), of("sess"), of("Sess=1"), of("")), (None, None, None, None, None));
    }
}
