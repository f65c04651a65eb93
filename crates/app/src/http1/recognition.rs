//! Protocol detection for HTTP/1: by the method of a request (RFC 9110 section 9, RFC 4918, RFC 3253), or the version of a
//! response, at the very beginning of a direction. If a request begins with anything else, such as blank lines, the response
//! identifies the protocol.

use margay_flow::Direction;

use crate::recognise::{Pattern, Recognition};

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
