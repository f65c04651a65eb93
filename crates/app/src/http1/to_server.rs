//! Requests: the line, and the effect of the fields.

use margay_flow::Direction;

use crate::arguments::{Arguments, RequestFields};
use crate::parser::{Outcome, Parse};

use super::body::{FileWish, Framing};
use super::chunked::Chunk;
use super::events::Event;
use super::headers::trim;
use super::line::{is_blank, next_line};
use super::parser::{Http1Parser, State, Step};
use super::request::{self, Version};
use super::tx::{Http1Tx, Message};
use super::{COMPLETE, HEADERS, LINE, REQUEST_FRAME, auth, multipart};
use crate::config::AppConfig;
use crate::config::http1::ServerConfig;

const DIR: Direction = Direction::ToServer;

impl Http1Parser {
    /// Parses the first line of a request.
    pub(super) fn request_line(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8]) -> Step {
        let Some(line) = next_line(data, &mut self.request.scan, false, cx.end) else {
            if data.len() <= server.field_limit as usize {
                return Step::More;
            }
            match self.make(cx, server) {
                Ok((id, _)) => self.request.tx = id,
                Err(outcome) => return Step::Stop(0, outcome),
            }
            return self.too_long(DIR);
        };
        let content = data.get(..line.content).unwrap_or(&[]);
        if is_blank(content) {
            return Step::Used(line.total);
        }
        let parsed = request::request_line(content);
        let known = request::known_method(request::part(content, parsed.method));
        let plausible = request::plausible_as(content, &parsed, known);
        if self.request.state == State::Lost && !plausible {
            return Step::Used(line.total);
        }
        if line.total > server.field_limit as usize {
            match self.make(cx, server) {
                Ok((id, _)) => self.request.tx = id,
                Err(outcome) => return Step::Stop(0, outcome),
            }
            return self.too_long(DIR);
        }
        if !plausible && self.unexpected(cx, server, data.get(..line.total).unwrap_or(content)) {
            return Step::Used(line.total);
        }
        let at = self.request.at;
        let (id, tx) = match self.make(cx, server) {
            Ok(made) => made,
            Err(outcome) => return Step::Stop(0, outcome),
        };
        cx.shared.frames.begin(DIR, REQUEST_FRAME, at, Some(id));
        tx.request.line = content.into();
        tx.request_line = parsed;
        for (is, event) in [
            (parsed.leading_space, Event::LeadingWhitespace),
            (parsed.method_delimiter, Event::MethodDelimiter),
            (parsed.uri_delimiter, Event::UriDelimiter),
            (parsed.incomplete, Event::LineIncomplete),
            (parsed.invalid || (!known && parsed.incomplete), Event::LineInvalid),
            (!known && parsed.is_other_protocol(), Event::UnknownMethodInvalidProtocol),
        ] {
            if is {
                tx.event(event);
            }
        }
        tx.find_uri(server);
        tx.base.advance(DIR, LINE);
        self.request.tx = id;
        self.request.last = line.ending;
        self.request.state = if parsed.version == Version::V09 { State::Protocol } else { State::Headers };
        Step::Used(line.total)
    }

    /// Handles data after a line without a protocol. If it is not another request, the protocol was merely omitted; otherwise
    /// the request is HTTP/0.9.
    pub(super) fn request_protocol(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8]) -> Step {
        let Some(line) = next_line(data, &mut self.request.scan, false, cx.end) else {
            return if data.len() > server.field_limit as usize { self.old_protocol(cx) } else { Step::More };
        };
        let content = data.get(..line.content).unwrap_or(&[]);
        if content.is_empty() || request::plausible(content) {
            return self.old_protocol(cx);
        }
        self.missing_protocol();
        Step::Used(0)
    }

    /// The request line lacks its protocol.
    pub(super) fn missing_protocol(&mut self) {
        if let Some(tx) = self.current(DIR) {
            tx.event(Event::MissingProtocol);
            tx.base.touch(DIR);
            tx.request_line.version = Version::Unknown;
        }
        self.request.state = State::Headers;
        self.request.scan = 0;
    }

    /// Handles data after a request that is not a request: it becomes an unannounced body. Returns false if there was no
    /// request before, or if it was answered: its transaction may have been freed, so such data is a transaction of its own.
    fn unexpected(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, line: &[u8]) -> bool {
        let Some(tx) = self.request.tx.checked_sub(1).and_then(|id| self.get(id)) else { return false };
        if tx.unmatched || tx.base.progress == [COMPLETE; 2] {
            return false;
        }
        tx.event(Event::BodyUnexpected);
        tx.late_body(cx, server, line);
        true
    }

    /// The request is HTTP/0.9: data after the line does not belong to it.
    pub(super) fn old_protocol(&mut self, cx: &mut Parse<'_>) -> Step {
        if let Some(tx) = self.current(DIR) {
            tx.old = true;
            tx.request.body.arguments = arguments(tx, cx.config);
        }
        self.complete(cx, DIR);
        self.request.state = State::Ignore;
        Step::Used(0)
    }

    /// Handles the complete fields of a request.
    pub(super) fn request_fields(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Outcome {
        let flow = cx.flow;
        let Some(tx) = self.current(DIR) else { return Outcome::Failed };
        tx.find_host(flow);
        authorisation(tx);
        let mut events = Vec::new();
        let framing = framing(tx, &mut events);
        let (post, put) = (tx.method() == b"POST", tx.method() == b"PUT");
        let content_type = if post { tx.request.headers.first(b"content-type") } else { None };
        let multipart = content_type.and_then(multipart::boundary).map(multipart::Multipart::new);
        let name = if multipart.is_none() && (post || put) { Some(tx.path(server)) } else { None };
        let arguments = arguments(tx, cx.config);
        let Message { headers, body, .. } = &mut tx.request;
        body.arguments = arguments;
        if let Some(value) = headers.joined(b"content-encoding", &mut Vec::new()) {
            body.set_coding(value, server, DIR, &mut events);
        }
        if let Some(multipart) = multipart {
            body.multipart = Some(Box::new(multipart));
        } else if let Some(name) = name {
            body.file = FileWish { wanted: true, name: name.into(), ..FileWish::default() };
        }
        for e in events {
            tx.event(e);
        }
        tx.base.advance(DIR, HEADERS);
        if tx.method() == b"CONNECT" {
            self.complete(cx, DIR);
            self.request.state = State::Connect;
            return Outcome::More;
        }
        self.begin_body(cx, server, DIR, framing);
        Outcome::More
    }
}

/// The arguments of a request's line and fields, if rules inspect them.
fn arguments(tx: &Http1Tx, config: &AppConfig) -> Option<Box<Arguments>> {
    let limits = config.arguments?;
    let headers = &tx.request.headers;
    let mut scratch = Vec::new();
    let fields = RequestFields {
        target: tx.uri_raw(),
        host: headers.first(b"host"),
        referer: headers.first(b"referer"),
        content_type: headers.joined(b"content-type", &mut scratch),
        authorization: headers.first(b"authorization"),
    };
    Some(Arguments::new(limits, &config.collectors, &fields, headers.values(b"cookie")))
}

/// How a request body ends.
fn framing(tx: &Http1Tx, events: &mut Vec<Event>) -> Framing {
    let headers = &tx.request.headers;
    let length = headers.first(b"content-length");
    let chunked = headers.values(b"transfer-encoding").any(|v| request::says(v, b"chunked"));
    if headers.repeated(b"content-length") {
        events.push(Event::RequestContentLengthTwice);
    }
    if let Some(first) = headers.first(b"transfer-encoding") {
        if chunked {
            if !trim(first).eq_ignore_ascii_case(b"chunked") || headers.repeated(b"transfer-encoding") {
                events.push(Event::RequestTransferEncoding);
            }
            return Framing::Chunked(Chunk::Size);
        }
        events.push(Event::RequestTransferEncoding);
    }
    match length.map(request::content_length) {
        None => Framing::None,
        Some((Some(n), _)) => Framing::Length(n),
        Some((None, _)) => {
            events.push(Event::RequestContentLength);
            Framing::None
        }
    }
}

/// Checks for credentials in an unknown scheme.
fn authorisation(tx: &mut Http1Tx) {
    let Some(value) = tx.request.headers.first(b"authorization") else { return };
    if auth::scheme(value) == auth::Scheme::Unrecognised {
        tx.event(Event::AuthUnrecognised);
    }
}
