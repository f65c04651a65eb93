//! Responses: their request, the status line, and the effect of the fields.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Upgrade};

use super::body::{FilePart, FileWish, Framing};
use super::chunked::Chunk;
use super::events::Event;
use super::headers::{Headers, trim};
use super::line::{Ending, is_blank, next_line};
use super::parser::{Http1Parser, State, Step};
use super::request::{self, Version, says};
use super::response;
use super::tx::Http1Tx;
use super::{COMPLETE, HEADERS, LINE, RESPONSE_FRAME};
use crate::config::http1::ServerConfig;
use crate::param::{ContentRange, RangeNumbers, disposition_filename, range_numbers};

const DIR: Direction = Direction::ToClient;
/// A longer first line that is not a status line counts as data.
const LONGEST_JUNK: usize = 1024;

impl Http1Parser {
    /// Parses the first line of a response.
    pub(super) fn status_line(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8]) -> Step {
        if data.is_empty() {
            return Step::More;
        }
        if self.answers_old() {
            return self.bare_body(cx, server);
        }
        let line = next_line(data, &mut self.response.scan, true, cx.end);
        let status = match line {
            Some(l) => {
                let content = data.get(..l.content).unwrap_or(&[]);
                if is_blank(content) {
                    return Step::Used(l.total);
                }
                response::is_status(content) == Some(true)
            }
            None => match response::is_status(data) {
                Some(true) if data.len() > server.field_limit as usize => {
                    if let Err(outcome) = self.whose(cx, server) {
                        return Step::Stop(0, outcome);
                    }
                    return self.too_long(DIR);
                }
                Some(false) if data.len() > LONGEST_JUNK => false,
                _ => return Step::More,
            },
        };
        if !status {
            return self.no_status(cx, server, data, line.map(|l| l.total));
        }
        let Some(line) = line else { return Step::More };
        let content = data.get(..line.content).unwrap_or(&[]);
        if let Err(outcome) = self.whose(cx, server) {
            return Step::Stop(0, outcome);
        }
        if line.total > server.field_limit as usize {
            return self.too_long(DIR);
        }
        cx.shared.frames.begin(DIR, RESPONSE_FRAME, self.response.at, Some(self.at(DIR)));
        self.response.last = line.ending;
        self.response.state = State::Headers;
        let Some(tx) = self.current(DIR) else { return Step::Stop(0, Outcome::Failed) };
        let parsed = response::status_line(content);
        tx.response.line = content.into();
        tx.status_line = parsed;
        let newer = parsed.version == Version::V11 && !trim(request::part(content, parsed.protocol)).ends_with(b"1.1");
        if newer || parsed.version == Version::Unknown {
            tx.event(Event::ResponseProtocol);
        }
        if parsed.number.is_none() {
            tx.event(Event::ResponseStatus);
        }
        tx.base.advance(DIR, LINE);
        Step::Used(line.total)
    }

    /// Handles data in place of a status line: a junk line before one, or a body without status and fields.
    fn no_status(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8], line: Option<usize>) -> Step {
        if let Some(total) = line.filter(|&t| t <= LONGEST_JUNK) {
            let next = data.get(total..).unwrap_or(&[]);
            match response::is_status(next) {
                Some(true) => return Step::Used(total),
                None if !cx.end => return Step::More,
                _ if self.nobody_asked() => return Step::Used(total),
                _ => {}
            }
        } else if self.nobody_asked() {
            return Step::Used(line.unwrap_or(data.len()));
        }
        self.bare_body(cx, server)
    }

    /// After a gap: whether no request is left for the data to answer.
    fn nobody_asked(&self) -> bool {
        self.response.state == State::Lost && self.response.tx >= self.next()
    }

    /// Whether the current request is HTTP/0.9, whose responses have neither status nor fields.
    fn answers_old(&mut self) -> bool {
        if self.request.state == State::Protocol && self.request.tx == self.response.tx {
            // With more data after the line, the request is not HTTP/0.9.
            return self.request.waiting == 0;
        }
        self.current(DIR).is_some_and(|tx| tx.old)
    }

    /// Begins a body without status and fields, up to the end of the stream.
    fn bare_body(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Step {
        if let Err(outcome) = self.whose(cx, server) {
            return Step::Stop(0, outcome);
        }
        let Some(tx) = self.current(DIR) else { return Step::Stop(0, Outcome::Failed) };
        tx.response.body.file = FileWish { wanted: true, name: tx.path(server).into(), ..FileWish::default() };
        tx.base.advance(DIR, HEADERS);
        self.response.scan = 0;
        self.begin_body(cx, server, DIR, Framing::Close);
        Step::Used(0)
    }

    /// Finds or creates the transaction of a new response.
    fn whose(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Result<(), Outcome> {
        if self.stand_in.is_some() {
            return Ok(());
        }
        if self.request.state == State::Protocol && self.request.tx == self.response.tx {
            // The response shows that the line was the whole request, unless more data follows it.
            if self.request.waiting == 0 {
                let _ = self.old_protocol(cx);
            } else {
                self.missing_protocol();
            }
        }
        if !self.ended.is_empty() {
            return self.stand_in(cx, server);
        }
        self.response.tx = self.response.tx.max(self.due);
        while self.response.tx < self.next() && self.peek(self.response.tx).is_none_or(|tx| tx.stand_in) {
            self.response.tx += 1;
        }
        if self.response.tx >= self.next() {
            self.end_unseen();
            let (id, tx) = self.make_for_response(cx, server)?;
            tx.unmatched = true;
            tx.event(Event::Unmatched);
            self.unseen = Some(id);
            self.response.tx = id;
            if matches!(self.request.state, State::Start | State::Lost) {
                self.request.tx = self.next();
            }
        }
        Ok(())
    }

    /// Creates the transaction of a response whose request's transaction is gone.
    fn stand_in(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Result<(), Outcome> {
        let method = self.ended.front().map_or(&b""[..], |m| m.name());
        let (id, tx) = self.make_for_response(cx, server)?;
        (tx.unmatched, tx.stand_in) = (true, true);
        tx.request.line = method.into();
        tx.request_line.method = (0, method.len() as u32);
        tx.base.advance(Direction::ToServer, COMPLETE);
        self.ended.pop_front();
        if matches!(self.request.state, State::Start | State::Lost) {
            self.request.tx = self.next();
        }
        self.stand_in = Some(id);
        Ok(())
    }

    /// Handles the complete fields of a response. `another` says whether a further response follows at once, which matters for
    /// `100 Continue`.
    pub(super) fn response_fields(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, another: bool) -> Outcome {
        let Some(tx) = self.current(DIR) else { return Outcome::Failed };
        let number = tx.status_line.number;
        let headers = &tx.response.headers;
        let length = headers.first(b"content-length");
        let has_body = headers.first(b"transfer-encoding").is_some()
            || length.is_some_and(|v| request::content_length(v).0.is_some_and(|n| n > 0));
        // Clients ignore a length or a coding of an interim response (RFC 9112 section 6.3). If no response follows, the body
        // is inspected nevertheless.
        if number == Some(100) && (!has_body || another) {
            return self.interim();
        }
        if tx.method() == b"CONNECT" && number.is_some_and(|n| (200..300).contains(&n)) {
            tx.base.advance(DIR, HEADERS);
            self.complete(cx, DIR);
            return Outcome::Change(None);
        }
        if number == Some(101) && !has_body {
            let upgrade = headers.first(b"upgrade").map(trim);
            let outcome = if let Some(to) = upgrade.and_then(|to| cx.config.declared.upgraded(to)) {
                cx.shared.upgrade = Some(upgrade_of(tx));
                Outcome::Change(Some(to))
            } else if tx.request.headers.first(b"upgrade").is_none() {
                // The client did not ask for another protocol. Node.js and curl still expect the response; others take this
                // one.
                Outcome::More
            } else {
                Outcome::Done
            };
            tx.base.advance(DIR, HEADERS);
            self.complete(cx, DIR);
            return outcome;
        }
        let mut events = Vec::new();
        let framing = framing(tx, has_body, &mut events);
        let mut body = std::mem::take(&mut tx.response.body);
        if let Some(value) = tx.response.headers.joined(b"content-encoding", &mut Vec::new()) {
            body.set_coding(value, server, DIR, &mut events);
        }
        let range = range(tx);
        if !framing.is_empty() {
            let given =
                tx.response.headers.first(b"content-disposition").and_then(disposition_filename).map(<[u8]>::to_vec);
            let part = range.map(|r| FilePart {
                range: (r.start, r.end),
                whole: r.total.map(|total| ([&tx.host[..], &tx.path(server)].concat(), total)),
            });
            let name = given.unwrap_or_else(|| tx.path(server));
            body.file = FileWish { wanted: true, name: name.into(), part: part.map(Box::new) };
        }
        tx.response.body = body;
        for e in events {
            tx.event(e);
        }
        tx.base.advance(DIR, HEADERS);
        if self.request.state == State::Connect {
            // Another request follows the refused one.
            (self.request.state, self.resume) = (State::Start, true);
        }
        self.begin_body(cx, server, DIR, framing);
        Outcome::More
    }

    /// Handles `100 Continue`: the final response is still to come.
    fn interim(&mut self) -> Outcome {
        if let Some(tx) = self.current(DIR) {
            if std::mem::replace(&mut tx.continued, true) {
                tx.event(Event::ContinueSeen);
            }
            tx.response.headers = Headers::default();
            tx.response.line = Box::default();
            tx.status_line = response::StatusLine::default();
        }
        self.response.state = State::Start;
        self.response.last = Ending::CrLf;
        Outcome::More
    }
}

/// The request that led to the protocol change, without the fields that only served the upgrade.
fn upgrade_of(tx: &Http1Tx) -> Upgrade {
    let headers = &tx.request.headers;
    let mut scratch = Vec::new();
    let mut fields = Vec::new();
    for name in headers.names() {
        if name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"http2-settings") {
            continue;
        }
        scratch.clear();
        if let Some(value) = headers.joined(name, &mut scratch) {
            fields.push((name.to_vec(), value.to_vec()));
        }
    }
    Upgrade {
        method: tx.method().to_vec(),
        target: tx.uri_raw().to_vec(),
        host: headers.first(b"host").map(<[u8]>::to_vec),
        settings: headers.first(b"http2-settings").map(|s| trim(s).to_vec()),
        fields,
    }
}

/// How a response body ends (RFC 9112, section 6.3). A declared length or coding counts even for a response that should have no
/// body.
fn framing(tx: &Http1Tx, has_body: bool, events: &mut Vec<Event>) -> Framing {
    let headers = &tx.response.headers;
    if headers.repeated(b"content-length") {
        events.push(Event::ResponseContentLengthTwice);
    }
    if headers.first(b"content-type").is_some_and(|v| says(v, b"multipart/byteranges")) {
        events.push(Event::MultipartByteranges);
    }
    if tx.method() == b"HEAD" {
        return Framing::None;
    }
    // RFC 9110, section 8.6, and RFC 9112, section 6.1: such responses must not have these fields.
    if tx.status_line.number.is_some_and(|n| matches!(n, 100..=199 | 204))
        && (headers.first(b"content-length").is_some() || headers.first(b"transfer-encoding").is_some())
    {
        events.push(Event::ResponseBodyUnexpected);
    }
    if !has_body && tx.status_line.number.is_some_and(|n| matches!(n, 100..=199 | 204 | 304)) {
        return Framing::None;
    }
    if headers.first(b"transfer-encoding").is_some() {
        let mut values = headers.values(b"transfer-encoding");
        if values.any(|v| says(v, b"chunked")) {
            let exact = headers.first(b"transfer-encoding").is_some_and(|v| trim(v).eq_ignore_ascii_case(b"chunked"));
            if !exact || headers.repeated(b"transfer-encoding") {
                events.push(Event::AbnormalTransferEncoding);
            }
            if matches!(tx.status_line.version, Version::V09 | Version::V10) {
                events.push(Event::ChunkedOldProtocol);
            }
            return Framing::Chunked(Chunk::Size);
        }
        events.push(Event::ResponseTransferEncoding);
    }
    let length = headers.first(b"content-length");
    // Python reads up to the end, or takes underscores between digits. No client ignores either.
    let is_of_python = length.is_some_and(|v| matches!(trim(v), [b'-', b'0'..=b'9', ..]) || v.contains(&b'_'));
    match length.map(request::content_length) {
        None => Framing::Close,
        Some((Some(n), _)) if !is_of_python => Framing::Length(n),
        Some(_) => {
            events.push(Event::ResponseContentLength);
            Framing::Close
        }
    }
}

/// The range in `Content-Range` that the body has.
fn range(tx: &mut Http1Tx) -> Option<ContentRange> {
    let value = tx.response.headers.first(b"content-range")?;
    let numbers = range_numbers(value);
    let range = numbers.and_then(RangeNumbers::valid);
    if range.is_none() && numbers.is_none_or(|n| n.range.is_some()) {
        tx.event(Event::RangeInvalid);
    }
    range
}
