//! The `http` member of events, as Suricata 8 writes it.

use std::net::IpAddr;

use margay_json::Json;

use crate::tx::LogFor;

use super::LogOptions;
use super::headers::trim;
use super::request::part;
use super::tx::Http1Tx;

/// Appends `"http":{...}`. Alerts and files have the extended form whatever the `http` output's own setting is.
pub(super) fn log(tx: &Http1Tx, json: &mut Json, options: &LogOptions, what: LogFor) {
    json.object("http");
    let request = &tx.request.headers;
    let response = &tx.response.headers;
    let mut scratch = Vec::new();
    if !tx.host.is_empty() {
        // As the client wrote it, without port.
        let written = tx.host_raw.get(..tx.host.len()).filter(|w| w.eq_ignore_ascii_case(&tx.host));
        json.bytes("hostname", written.unwrap_or(&tx.host));
    }
    if let Some(port) = tx.port {
        json.uint("http_port", u64::from(port));
    }
    if !tx.uri_raw().is_empty() {
        json.bytes("url", tx.uri_raw());
    }
    if let Some(v) = request.joined(b"user-agent", &mut scratch) {
        json.bytes("http_user_agent", v);
    }
    if let Some(v) = request.joined(b"x-forwarded-for", &mut scratch) {
        json.bytes("xff", v);
    }
    if let Some(v) = response.joined(b"content-type", &mut scratch) {
        let kind = v.split(|&b| b == b';').next().unwrap_or(v);
        json.bytes("http_content_type", trim(kind));
    }
    content_range(tx, json);
    if what == LogFor::Event {
        for name in &options.custom {
            custom(tx, json, name);
        }
    }
    if options.extended || what != LogFor::Event {
        extended(tx, json);
    }
    if what == LogFor::Event {
        let dump = [("request_headers", request), ("response_headers", response)];
        for ((key, headers), wanted) in dump.into_iter().zip(options.dump_headers) {
            if !wanted {
                continue;
            }
            json.array(key);
            for (name, value) in headers.each() {
                json.item_object();
                json.bytes("name", name);
                json.bytes("value", value);
                json.end_object();
            }
            json.end_array();
        }
    }
    json.end_object();
}

fn content_range(tx: &Http1Tx, json: &mut Json) {
    let Some(raw) = tx.response.headers.first(b"content-range") else { return };
    json.object("content_range");
    json.bytes("raw", raw);
    if let Some(Ok(r)) = tx.content_range() {
        for (key, value) in [("start", r.start), ("end", r.end), ("size", r.size)] {
            if let Some(v) = value {
                json.uint(key, v);
            }
        }
    }
    json.end_object();
}

fn extended(tx: &Http1Tx, json: &mut Json) {
    let mut scratch = Vec::new();
    if let Some(v) = tx.request.headers.joined(b"referer", &mut scratch) {
        json.bytes("http_refer", v);
    }
    if !tx.method().is_empty() {
        json.bytes("http_method", tx.method());
    }
    let protocol = part(&tx.request.line, tx.request_line.protocol);
    if !protocol.is_empty() {
        json.bytes("protocol", protocol);
    }
    let status = part(&tx.response.line, tx.status_line.status);
    match tx.status_line.number {
        Some(n) => json.uint("status", u64::from(n)),
        None if !status.is_empty() => json.bytes("status_string", status),
        None => {}
    }
    if let Some(v) = tx.response.headers.first(b"location") {
        json.bytes("redirect", v);
    }
    json.uint("length", tx.response.body.transferred);
}

/// A field of `custom`, in the request or else in the response, under its own name with underscores.
fn custom(tx: &Http1Tx, json: &mut Json, name: &str) {
    let field = name.replace('_', "-");
    let mut scratch = Vec::new();
    let mut other = Vec::new();
    let value = tx
        .request
        .headers
        .joined(field.as_bytes(), &mut scratch)
        .or_else(|| tx.response.headers.joined(field.as_bytes(), &mut other));
    if let Some(v) = value {
        json.bytes(&name.replace('-', "_"), v);
    }
}

/// See [`crate::Transaction::forwarded_for`].
pub(super) fn forwarded_for(tx: &Http1Tx, header: &str, forward: bool) -> Option<IpAddr> {
    let mut scratch = Vec::new();
    let value = tx.request.headers.joined(header.as_bytes(), &mut scratch)?;
    let mut words = value.split(|&b| b == b',');
    let word = trim(if forward { words.next()? } else { words.next_back()? });
    let text = std::str::from_utf8(word).ok()?;
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    // `[2001:db8::1]`, either one with a port.
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.split(']').next()) {
        return inner.parse().ok();
    }
    let (address, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    address.parse().ok()
}
