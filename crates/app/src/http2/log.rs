//! The `http` member of events for HTTP/2, in Suricata's form.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::tx::LogFor;

use super::fields::Item;
use super::frame::{error_name, setting_name};
use super::tx::{Http2Tx, Message, Signal};

const SIDES: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Whether there is something to log: fields, settings, an error or a priority, which clients also give to streams that they
/// never open. Frames that only maintain the connection are not logged.
pub(super) fn has(tx: &Http2Tx) -> bool {
    SIDES
        .iter()
        .map(|d| tx.message(*d))
        .any(|m| m.goaway.is_some() || !m.signals.is_empty() || !m.fields.is_empty() || !m.settings.is_empty())
}

/// Appends `"http":{...}`, if there is something to log.
pub(super) fn log(tx: &Http2Tx, json: &mut Json, options: &AppLogOptions, what: LogFor) {
    if !has(tx) {
        return;
    }
    let [request, response] = SIDES.map(|d| tx.message(d));
    json.object("http");
    json.str("version", "2");
    fields(json, "request_headers", request);
    fields(json, "response_headers", response);
    let mut scratch = Vec::new();
    for (key, message, name) in [
        ("hostname", request, &b"host"[..]),
        ("url", request, b":path"),
        ("http_user_agent", request, b"user-agent"),
        ("http_method", request, b":method"),
    ] {
        scratch.clear();
        if let Some(v) = message.fields.joined(name, &mut scratch) {
            json.bytes(key, v);
        }
    }
    if let Some(status) = response.status() {
        match number(status) {
            Some(n) => json.uint("status", n),
            None => json.bytes("status_string", status),
        }
    }
    let length = response.fields.first(b"content-length").or_else(|| request.fields.first(b"content-length"));
    if let Some(n) = length.and_then(number) {
        json.uint("length", n);
    }
    json.object("http2");
    json.uint("stream_id", u64::from(tx.stream));
    for (key, message) in [("request", request), ("response", response)] {
        json.object(key);
        side(json, message);
        json.end_object();
    }
    json.end_object();
    if what == LogFor::Alert {
        bodies(json, options, [request, response]);
    }
    json.end_object();
}

/// Appends the values of one side's frames.
fn side(json: &mut Json, message: &Message) {
    if !message.settings.is_empty() {
        json.array("settings");
        for &(id, value) in &*message.settings {
            json.item_object();
            match setting_name(id) {
                Some(name) => json.str("settings_id", name),
                None => json.str("settings_id", &format!("SETTINGSUNKNOWN({id})")),
            }
            json.uint("settings_value", u64::from(value));
            json.end_object();
        }
        json.end_array();
    }
    if let Some(priority) = message.priorities().next() {
        json.uint("priority", u64::from(priority));
    }
    let reset = message.resets().next().map(|c| (c, false));
    if let Some((code, goaway)) = message.goaway.map(|c| (c, true)).or(reset) {
        match error_name(code, goaway) {
            Some(name) => json.str("error_code", name),
            None => json.str("error_code", &code.to_string()),
        }
    }
    match message.repeated() {
        Some(Signal::Priority(_)) => json.str("has_multiple", "priority"),
        Some(Signal::Reset(_)) => json.str("has_multiple", "error_code"),
        None => {}
    }
}

fn fields(json: &mut Json, key: &'static str, message: &Message) {
    if message.fields.is_empty() {
        return;
    }
    json.array(key);
    for item in message.fields.items() {
        json.item_object();
        match item {
            Item::Field(name, value) => {
                json.bytes("name", name);
                json.bytes("value", value);
            }
            Item::Update(size) => json.uint("table_size_update", size),
        }
        json.end_object();
    }
    json.end_array();
}

/// Appends the held part of the bodies, for alerts with that option.
fn bodies(json: &mut Json, options: &AppLogOptions, [request, response]: [&Message; 2]) {
    let held = [
        ("http_request_body", "http_request_body_printable", request.body.window().shown()),
        ("http_response_body", "http_response_body_printable", response.body.window().shown()),
    ];
    for (_, key, body) in held.iter().filter(|h| options.http_body_printable && !h.2.is_empty()) {
        json.printable(key, body);
    }
    for (key, _, body) in held.iter().filter(|h| options.http_body && !h.2.is_empty()) {
        json.base64(key, body);
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
