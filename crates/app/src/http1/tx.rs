//! A request with its response.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::parser::Parse;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::window::WindowLimits;

use super::body::{Body, BodyCx};
use super::config::ServerConfig;
use super::events::Event;
use super::headers::{Headers, trim};
use super::request::{RequestLine, part};
use super::response::StatusLine;
use super::uri;

/// One side of a transaction.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Its first line, without line end.
    pub line: Vec<u8>,
    /// Its fields, with those of the trailer.
    pub headers: Headers,
    /// Its body.
    pub body: Body,
}

/// What a `Content-Range` says (RFC 9110, section 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub start: Option<u64>,
    pub end: Option<u64>,
    pub size: Option<u64>,
}

/// A transaction of HTTP/1.
#[derive(Debug, Default)]
pub struct Http1Tx {
    pub(super) base: TxBase,
    pub(super) request: Message,
    pub(super) response: Message,
    pub(super) request_line: RequestLine,
    pub(super) status_line: StatusLine,
    /// No request was seen for the response.
    pub(super) unmatched: bool,
    /// The request is of HTTP/0.9.
    pub(super) old: bool,
    /// Normalised request target.
    pub(super) uri: Vec<u8>,
    /// Normalised host; empty where there is none.
    pub(super) host: Vec<u8>,
    /// Host as the request gives it, without normalisation.
    pub(super) host_raw: Vec<u8>,
    pub(super) port: Option<u16>,
    /// Whether a `100 Continue` was seen.
    pub(super) continued: bool,
    window: [WindowLimits; 2],
    /// Memory that was last counted for it.
    counted: u64,
}

/// What the target of a request without a request is.
pub(super) const NOT_SEEN: &[u8] = b"/libhtp::request_uri_not_seen";

impl Http1Tx {
    pub(super) fn new(id: u64, server: &ServerConfig, inline: bool) -> Self {
        let mut window = server.window;
        if inline {
            for w in &mut window {
                w.min = 0;
            }
        }
        Http1Tx { base: TxBase { id, ..TxBase::default() }, window, ..Http1Tx::default() }
    }

    pub(super) const fn message(&self, dir: Direction) -> &Message {
        match dir {
            Direction::ToServer => &self.request,
            Direction::ToClient => &self.response,
        }
    }

    pub(super) const fn message_mut(&mut self, dir: Direction) -> &mut Message {
        match dir {
            Direction::ToServer => &mut self.request,
            Direction::ToClient => &mut self.response,
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.base.events.add(event as u8);
    }

    /// Method.
    pub(super) fn method(&self) -> &[u8] {
        part(&self.request.line, self.request_line.method)
    }

    /// Target as it came.
    pub(super) fn uri_raw(&self) -> &[u8] {
        if self.unmatched { NOT_SEEN } else { part(&self.request.line, self.request_line.uri) }
    }

    /// What makes a file's name where no field gives one: the normalised path.
    pub(super) fn path(&self, server: &ServerConfig) -> Vec<u8> {
        if self.unmatched {
            return NOT_SEEN.to_vec();
        }
        let raw = self.uri_raw();
        let mut out = Vec::new();
        uri::normalise(uri::split(raw).path.unwrap_or(raw), server, &mut out);
        out
    }

    /// Data of a body.
    pub(super) fn body_data(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) {
        self.with_body(cx, server, dir, |body, cx, files| body.data(cx, files, dir, data));
        self.base.advance(dir, super::BODY);
        self.base.touch(dir);
    }

    /// Data that came behind a request that announced no body: rules see it as one.
    pub(super) fn late_body(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8]) {
        let dir = Direction::ToServer;
        self.request.body.file.wanted = false;
        self.with_body(cx, server, dir, |body, cx, files| body.data(cx, files, dir, data));
        self.base.touch(dir);
        self.count(&mut cx.shared.counters.http_memory);
    }

    /// The end of a body.
    pub(super) fn body_end(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, truncated: bool) {
        self.with_body(cx, server, dir, |body, cx, files| body.end(cx, files, dir, truncated));
        self.base.touch(dir);
    }

    /// Bytes of a body are missing.
    pub(super) fn body_gap(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, len: u64) {
        self.with_body(cx, server, dir, |body, cx, files| {
            body.gap(cx, files, dir, len);
            None
        });
        self.base.advance(dir, super::BODY);
        self.base.touch(dir);
    }

    fn with_body(
        &mut self,
        cx: &mut Parse<'_>,
        server: &ServerConfig,
        dir: Direction,
        f: impl FnOnce(&mut Body, &mut BodyCx<'_>, &mut crate::file::Files) -> Option<Event>,
    ) {
        let mut bcx = BodyCx { shared: cx.shared, files: &cx.config.files, server, memcap: cx.config.http1.memcap };
        let body = match dir {
            Direction::ToServer => &mut self.request.body,
            Direction::ToClient => &mut self.response.body,
        };
        if let Some(e) = f(body, &mut bcx, &mut self.base.files) {
            self.event(e);
        }
    }

    /// Counts the memory held.
    pub(super) fn count(&mut self, total: &mut u64) {
        let now = self.memory();
        *total = total.saturating_sub(self.counted).saturating_add(now);
        self.counted = now;
    }

    /// Takes what was counted away.
    pub(super) fn uncount(&mut self, total: &mut u64) {
        *total = total.saturating_sub(std::mem::take(&mut self.counted));
    }

    fn memory(&self) -> u64 {
        let message = |m: &Message| m.line.capacity() + m.headers.memory() + m.body.window().memory();
        (std::mem::size_of::<Self>() + message(&self.request) + message(&self.response) + self.uri.capacity()) as u64
    }

    /// Target, host and port are worked out, once all fields of the request are there.
    pub(super) fn find_host(&mut self, flow: &FlowCore) {
        let raw = part(&self.request.line, self.request_line.uri);
        let target = uri::split(raw);
        // The target of CONNECT is host and port, and nothing else (RFC 9112, section 3.2.3).
        let connect = self.method() == b"CONNECT";
        let from_uri = if connect { Some(raw) } else { target.host };
        let target = if connect { uri::Uri::default() } else { target };
        let port = target.port.map(|p| std::str::from_utf8(p).ok().and_then(|p| p.parse::<u16>().ok()));
        let header = self.request.headers.first(b"host").map(trim);
        let mut events = Vec::new();
        let mut host = Vec::new();
        let mut host_port = None;
        let raw_host = match (from_uri, header) {
            (Some(u), h) => {
                let (p, valid) = uri::normalise_host(u, &mut host);
                if !valid {
                    events.push(if connect { Event::AuthorityPort } else { Event::UriHostInvalid });
                }
                host_port = match port {
                    Some(None) => {
                        events.push(Event::ServerPort);
                        p
                    }
                    Some(Some(n)) => Some(n),
                    None => p,
                };
                if let Some(h) = h {
                    let mut other = Vec::new();
                    let (other_port, valid) = uri::normalise_host(h, &mut other);
                    if !valid {
                        events.push(Event::HeaderHostInvalid);
                    }
                    if other != host || (other_port.is_some() && host_port.is_some() && other_port != host_port) {
                        events.push(Event::HostAmbiguous);
                    }
                }
                u.to_ascii_lowercase()
            }
            (None, Some(h)) => {
                let (p, valid) = uri::normalise_host(h, &mut host);
                if !valid {
                    events.push(Event::HeaderHostInvalid);
                }
                host_port = p;
                h.to_vec()
            }
            (None, None) => {
                if self.request_line.version >= super::request::Version::V11 {
                    events.push(Event::MissingHost);
                }
                Vec::new()
            }
        };
        if self.request.headers.repeated(b"host") {
            events.push(Event::HostAmbiguous);
        }
        if let Some(p) = host_port
            && p != flow.dport
        {
            events.push(Event::PortMismatch);
        }
        self.host = host;
        self.host_raw = raw_host;
        self.port = host_port;
        for e in events {
            self.event(e);
        }
    }

    /// What `Content-Range` of the response says; `Err` where it cannot be read.
    pub(super) fn content_range(&self) -> Option<Result<ContentRange, ()>> {
        self.response.headers.first(b"content-range").map(content_range)
    }

    /// The data of a request's body that is still held, for alerts that show it.
    pub fn request_body_held(&self) -> &[u8] {
        self.request.body.window().held().0
    }

    /// The same of the response.
    pub fn response_body_held(&self) -> &[u8] {
        self.response.body.window().held().0
    }

    pub(super) fn limits(&self, dir: Direction) -> WindowLimits {
        self.window.get(dir.index()).copied().unwrap_or(WindowLimits { min: 0, window: 0 })
    }
}

/// Reads `bytes 0-9/100`, with `*` where something is not known.
fn content_range(value: &[u8]) -> Result<ContentRange, ()> {
    let text = std::str::from_utf8(trim(value)).map_err(|_| ())?;
    let rest = text.strip_prefix("bytes").ok_or(())?.trim_start();
    let (range, size) = rest.split_once('/').ok_or(())?;
    let number = |s: &str| s.trim().parse::<u64>().map_err(|_| ());
    let size = if size.trim() == "*" { None } else { Some(number(size)?) };
    if range.trim() == "*" {
        return Ok(ContentRange { start: None, end: None, size });
    }
    let (start, end) = range.split_once('-').ok_or(())?;
    Ok(ContentRange { start: Some(number(start)?), end: Some(number(end)?), size })
}

/// The file name of a `Content-Disposition` (RFC 6266), leniently.
pub(super) fn disposition_name(value: &[u8]) -> Option<Vec<u8>> {
    for parameter in value.split(|&b| b == b';') {
        let parameter = trim(parameter);
        let Some((name, v)) = parameter.split_at_checked(8) else { continue };
        if !name.eq_ignore_ascii_case(b"filename") {
            continue;
        }
        let Some(v) = trim(v).strip_prefix(b"=") else { continue };
        let v = trim(v);
        let v = match v.strip_prefix(b"\"") {
            Some(quoted) => quoted.split(|&b| b == b'"').next().unwrap_or(quoted),
            None => v,
        };
        return (!v.is_empty()).then(|| v.to_vec());
    }
    None
}

impl Transaction for Http1Tx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn inspected(&mut self, dir: Direction) {
        let limits = self.limits(dir);
        let body = match dir {
            Direction::ToServer => &mut self.request.body,
            Direction::ToClient => &mut self.response.body,
        };
        let end = body.at_end();
        body.window_mut().looked_at(limits, end);
        self.base.files.inspected(dir, limits);
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, json, &options.http, what);
    }

    fn forwarded_for(&self, header: &str, forward: bool) -> Option<std::net::IpAddr> {
        super::log::forwarded_for(self, header, forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let r = |start, end, size| Ok(ContentRange { start, end, size });
        assert_eq!(content_range(b"bytes 0-9/100"), r(Some(0), Some(9), Some(100)));
        assert_eq!(content_range(b"bytes */100"), r(None, None, Some(100)));
        assert_eq!(content_range(b"bytes 5-9/*"), r(Some(5), Some(9), None));
        assert_eq!(content_range(b"bytes x"), Err(()));
    }

    #[test]
    fn names_of_attachments() {
        let n = |v: &str| disposition_name(v.as_bytes()).map(|n| String::from_utf8_lossy(&n).into_owned());
        assert_eq!(n("attachment; filename=\"a b.txt\"; x=y"), Some("a b.txt".to_owned()));
        assert_eq!(n("attachment; FileName = a.txt "), Some("a.txt".to_owned()));
        assert_eq!(n("attachment; filename=\"\""), None);
        assert_eq!(n("attachment"), None);
    }
}
