//! Protocol detection for HTTP/1: by the method of a request (RFC 9110 section 9, RFC 4918, RFC 3253), or the version of a
//! response, at the very beginning of a direction. If a request begins with anything else, such as blank lines, the response
//! identifies the protocol. Inline that is too late: there a [`REQUEST`] line identifies it, with whatever method.

use margay_flow::Direction;

use super::headers::is_token;
use crate::recognise::{PROBE_MAX, Pattern, Probe, Probed, Recognition, TCP, ends_in_http1};

const fn method(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToServer, bytes).nocase()
}

const fn version(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes).nocase()
}

/// Each method, followed by a space or a tab.
const PATTERNS: &[Pattern] = &[
    method(b"HEAD "),
    method(b"HEAD\t"),
    method(b"GET "),
    method(b"GET\t"),
    method(b"PUT "),
    method(b"PUT\t"),
    method(b"POST "),
    method(b"POST\t"),
    method(b"DELETE "),
    method(b"DELETE\t"),
    method(b"CONNECT "),
    method(b"CONNECT\t"),
    method(b"OPTIONS "),
    method(b"OPTIONS\t"),
    method(b"TRACE "),
    method(b"TRACE\t"),
    method(b"PATCH "),
    method(b"PATCH\t"),
    method(b"PROPFIND "),
    method(b"PROPFIND\t"),
    method(b"PROPPATCH "),
    method(b"PROPPATCH\t"),
    method(b"MKCOL "),
    method(b"MKCOL\t"),
    method(b"COPY "),
    method(b"COPY\t"),
    method(b"MOVE "),
    method(b"MOVE\t"),
    method(b"LOCK "),
    method(b"LOCK\t"),
    method(b"UNLOCK "),
    method(b"UNLOCK\t"),
    method(b"VERSION-CONTROL "),
    method(b"VERSION-CONTROL\t"),
    method(b"CHECKOUT "),
    method(b"CHECKOUT\t"),
    method(b"UNCHECKOUT "),
    method(b"UNCHECKOUT\t"),
    method(b"CHECKIN "),
    method(b"CHECKIN\t"),
    method(b"UPDATE "),
    method(b"UPDATE\t"),
    method(b"LABEL "),
    method(b"LABEL\t"),
    method(b"REPORT "),
    method(b"REPORT\t"),
    method(b"MKWORKSPACE "),
    method(b"MKWORKSPACE\t"),
    method(b"MKACTIVITY "),
    method(b"MKACTIVITY\t"),
    method(b"BASELINE-CONTROL "),
    method(b"BASELINE-CONTROL\t"),
    method(b"MERGE "),
    method(b"MERGE\t"),
    method(b"INVALID "),
    method(b"INVALID\t"),
    version(b"HTTP/0.9"),
    version(b"HTTP/1.0"),
    version(b"HTTP/1.1"),
];

pub(super) const RECOGNITION: Recognition = Recognition { patterns: PATTERNS, probes: &[] };

/// Requests with any method, behind blank lines or not.
pub(super) const REQUEST: &[Probe] = &[Probe { transport: TCP, ports: &[], probe: request }];

/// The longest method that counts.
const METHOD_MAX: usize = 32;

/// Whether data begins with a request line that ends in a version of HTTP/1 (RFC 9112 section 3), perhaps behind blank lines,
/// which servers ignore (section 2.2). If the line is longer than detection sees, its target decides.
fn request(dir: Direction, data: &[u8]) -> Probed {
    if dir == Direction::ToClient {
        return Probed::No;
    }
    let seen = data.get(..PROBE_MAX).unwrap_or(data);
    let more = if data.len() < PROBE_MAX { Probed::More } else { Probed::No };
    let Some(start) = seen.iter().position(|b| !matches!(b, b'\r' | b'\n')) else { return more };
    let line = seen.get(start..).unwrap_or(&[]);
    let (method, rest) = match line.iter().take(METHOD_MAX + 1).position(|b| matches!(b, b' ' | b'\t')) {
        Some(at) => line.split_at(at),
        None if line.len() <= METHOD_MAX && is_token(line) => return more,
        None => return Probed::No,
    };
    if !is_token(method) {
        return Probed::No;
    }
    let Some(end) = memchr::memchr(b'\n', rest) else {
        let target = rest.trim_ascii_start();
        let is_target = [&b"/"[..], b"http://", b"https://"].iter().any(|t| target.starts_with(t));
        return if more == Probed::No && is_target { Probed::Yes { reverse: false } } else { more };
    };
    let target_and_version = rest.get(..end).unwrap_or(rest).trim_ascii();
    if ends_in_http1(target_and_version) { Probed::Yes { reverse: false } } else { Probed::No }
}
