//! gRPC over HTTP/2 (the gRPC project's PROTOCOL-HTTP2 and PROTOCOL-WEB). A call is a request whose path names a service and a
//! method. The trailers of its response have a status. gRPC-Web has the trailers in the last message of the body.

use margay_flow::Direction;
use margay_json::Json;

use crate::declare::word;

use super::tx::Http2Tx;

/// Index of the setting `grpc` of HTTP/2.
pub(super) const SETTING: usize = 0;
/// Length of the prefix of each message: flags and length.
const PREFIX: usize = 5;
/// The flag of a message that contains trailers.
const TRAILERS: u8 = 0x80;
/// The limit of trailer bytes kept from a body.
const TRAILERS_MAX: usize = 4096;

/// Names of the call status.
pub(super) const STATUS: &[(&str, u64)] = &[
    ("ok", 0),
    ("cancelled", 1),
    ("unknown", 2),
    ("invalid_argument", 3),
    ("deadline_exceeded", 4),
    ("not_found", 5),
    ("already_exists", 6),
    ("permission_denied", 7),
    ("resource_exhausted", 8),
    ("failed_precondition", 9),
    ("aborted", 10),
    ("out_of_range", 11),
    ("unimplemented", 12),
    ("internal", 13),
    ("unavailable", 14),
    ("data_loss", 15),
    ("unauthenticated", 16),
];

/// Whether a content type is gRPC: `application/grpc`, alone, with a format (`+proto`), a variant (`-web`), or parameters.
fn is_type(value: &[u8]) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let value = value.trim_ascii();
    value.get(..TYPE.len()).is_some_and(|t| t.eq_ignore_ascii_case(TYPE))
        && matches!(value.get(TYPE.len()), None | Some(b'+' | b'-' | b';' | b' '))
}

/// Whether a content type has its trailers in the body. The Base64 variant (`-web-text`) is not parsed.
fn is_web(value: &[u8]) -> bool {
    const TYPE: &[u8] = b"application/grpc-web";
    let value = value.trim_ascii();
    value.get(..TYPE.len()).is_some_and(|t| t.eq_ignore_ascii_case(TYPE)) && value.get(TYPE.len()) != Some(&b'-')
}

/// Parses the messages of a body up to the one with trailers.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// The prefix of the current message, and its length so far.
    prefix: [u8; PREFIX],
    have: usize,
    /// Bytes left of the current message.
    left: u32,
    /// The trailers so far.
    trailers: Vec<u8>,
    /// A gap has lost the message boundaries.
    lost: bool,
}

impl Web {
    fn data(&mut self, mut data: &[u8]) {
        while !data.is_empty() && !self.lost {
            if self.have < PREFIX {
                let n = data.len().min(PREFIX - self.have);
                let (own, rest) = data.split_at(n);
                if let Some(to) = self.prefix.get_mut(self.have..self.have + n) {
                    to.copy_from_slice(own);
                }
                (self.have, data) = (self.have + n, rest);
                let [_, a, b, c, d] = self.prefix;
                self.left = u32::from_be_bytes([a, b, c, d]);
            } else {
                let n = data.len().min(self.left as usize);
                let (own, rest) = data.split_at(n);
                // The lowest bit marks compressed trailers, which are not parsed.
                if self.prefix[0] == TRAILERS {
                    let room = TRAILERS_MAX.saturating_sub(self.trailers.len()).min(n);
                    self.trailers.extend_from_slice(own.get(..room).unwrap_or(own));
                }
                (self.left, data) = (self.left - n as u32, rest);
            }
            if self.have == PREFIX && self.left == 0 {
                self.have = 0;
            }
        }
    }

    /// A trailer of the body.
    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.trailers.split(|b| *b == b'\n').find_map(|line| {
            let at = line.iter().position(|b| *b == b':')?;
            let own = line.get(..at)?.trim_ascii();
            own.eq_ignore_ascii_case(name).then(|| line.get(at + 1..).unwrap_or_default().trim_ascii())
        })
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Web>() + self.trailers.capacity()
    }
}

impl Http2Tx {
    /// Whether it is a gRPC call and the setting `grpc` is on.
    fn is_call(&self) -> bool {
        self.grpc && self.message(Direction::ToServer).fields.first(b"content-type").is_some_and(is_type)
    }

    /// Service and method of a call.
    fn call(&self) -> Option<(&[u8], &[u8])> {
        let path = self.message(Direction::ToServer).fields.first(b":path").filter(|_| self.is_call())?;
        let at = path.iter().rposition(|b| *b == b'/')?;
        let service = path.get(..at)?;
        let service = service.strip_prefix(b"/").unwrap_or(service);
        (!service.is_empty()).then_some((service, path.get(at + 1..)?))
    }

    /// The service of the call.
    pub(super) fn service(&self) -> Option<&[u8]> {
        self.call().map(|c| c.0)
    }

    /// The method of the call.
    pub(super) fn method(&self) -> Option<&[u8]> {
        self.call().map(|c| c.1)
    }

    /// A trailer of the response, from its fields or its body.
    fn trailer(&self, name: &[u8]) -> Option<&[u8]> {
        let response = self.message(Direction::ToClient);
        response.fields.first(name).or_else(|| response.web.as_ref()?.field(name))
    }

    /// The status of the call.
    pub(super) fn call_status(&self) -> Option<u64> {
        let text = self.trailer(b"grpc-status").filter(|_| self.is_call())?;
        let text = std::str::from_utf8(text).ok()?;
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok())?.map(u64::from)
    }

    /// Adds bytes of the response's body.
    pub(super) fn call_data(&mut self, dir: Direction, data: &[u8]) {
        if dir != Direction::ToClient || !self.is_call() {
            return;
        }
        let response = self.message_mut(dir);
        if response.fields.first(b"content-type").is_some_and(is_web) {
            response.web.get_or_insert_default().data(data);
        }
    }

    /// Records a gap in the response's body.
    pub(super) fn call_gap(&mut self, dir: Direction) {
        if dir == Direction::ToClient && self.is_call() {
            self.message_mut(dir).web.get_or_insert_default().lost = true;
        }
    }

    /// Appends `"grpc":{...}` for a call.
    pub(super) fn log_call(&self, json: &mut Json) {
        if !self.is_call() {
            return;
        }
        json.object("grpc");
        if let Some((service, method)) = self.call() {
            json.bytes("service", service);
            json.bytes("method", method);
        }
        if let Some(status) = self.call_status() {
            json.uint("status", status);
            if let Some(name) = word(STATUS, status) {
                json.str("status_name", name);
            }
        }
        if let Some(message) = self.trailer(b"grpc-message") {
            json.bytes("message", &decoded(message));
        }
        json.end_object();
    }
}

/// Decodes the percent-encoding of a status message. Invalid encoding stays as it is.
fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16)).map(|d| d as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        for yes in ["application/grpc", "Application/gRPC+proto", "application/grpc-web+json", "application/grpc;a=b"] {
            assert!(is_type(yes.as_bytes()), "{yes}");
        }
        for no in ["application/grpcx", "application/json", "", "application/grp"] {
            assert!(!is_type(no.as_bytes()), "{no}");
        }
        assert!(is_web(b"application/grpc-web") && is_web(b"application/grpc-web+proto"));
        assert!(!is_web(b"application/grpc-web-text") && !is_web(b"application/grpc"));
    }

    #[test]
    fn trailers_in_pieces() {
        let body =
            [&b"\0\0\0\0\x03abc\0\0\0\0\0\x80\0\0\0\x22"[..], b"grpc-status:5\r\nGrpc-Message: no%20\r\n"].concat();
        for size in 1..=body.len() {
            let mut web = Web::default();
            body.chunks(size).for_each(|c| web.data(c));
            assert_eq!((web.field(b"grpc-status"), web.field(b"grpc-message")), (Some(&b"5"[..]), Some(&b"no%20"[..])));
        }
        let mut web = Web::default();
        web.data(b"\x80\xff\xff\xff\xff");
        (0..100).for_each(|_| web.data(&[b'x'; 1000]));
        assert!(web.memory() < 2 * TRAILERS_MAX + 200 && web.field(b"x").is_none());
    }

    #[test]
    fn messages_are_decoded() {
        assert_eq!(decoded(b"a%20b%C3%A9%2"), "a b\u{e9}%2".as_bytes());
        assert_eq!(decoded(b"100%"), b"100%");
    }
}
