//! A request with its response.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::decompress::Limits;
use crate::decompress::swf::{MAX_OUTPUT, SwfConfig, is_compressed};
use crate::event::AppEvents;
use crate::parser::Parse;
use crate::script;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::window::WindowLimits;

use super::body::{Body, BodyCx};
use super::buffers::ARGUMENTS;
use super::events::Event;
use super::headers::Headers;
use super::request::{RequestLine, part};
use super::response::StatusLine;
use super::{host, unchanged, uri};
use crate::config::http1::ServerConfig;

/// One side of a transaction.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// The first line, without its end.
    pub line: Box<[u8]>,
    /// The fields, including those of the trailer.
    pub headers: Headers,
    /// Its body.
    pub body: Body,
}

/// A transaction of HTTP/1.
#[derive(Debug, Default)]
pub struct Http1Tx {
    pub(super) base: TxBase,
    pub(super) request: Message,
    pub(super) response: Message,
    pub(super) request_line: RequestLine,
    pub(super) status_line: StatusLine,
    /// The response has no request.
    pub(super) unmatched: bool,
    /// The response belongs to a request whose transaction is gone.
    pub(super) stand_in: bool,
    /// The request is HTTP/0.9.
    pub(super) old: bool,
    /// Normalised request target, if it differs from the raw one.
    uri: Vec<u8>,
    /// The normalised target is the raw one.
    uri_unchanged: bool,
    /// The place and length of the path in it; `None` if the path is normalised on demand.
    path_in_uri: Option<(u32, u32)>,
    /// Normalised host; empty if there is none.
    pub(super) host: Vec<u8>,
    /// Host as in the request, without normalisation.
    pub(super) host_raw: Box<[u8]>,
    pub(super) port: Option<u16>,
    /// Whether a `100 Continue` was seen.
    pub(super) continued: bool,
    /// The inspection limits of bodies by direction, as bytes before the first inspection and bytes that each later one repeats.
    window: [(u32, u32); 2],
    inline: bool,
    /// How Flash files in the response are decompressed for rules.
    pub(super) swf: Option<Box<(SwfConfig, Limits)>>,
    /// Memory at the last count.
    counted: u64,
}

// A request of a few bytes makes one, so its memory comes from the allocator's short way, which ends at this size.
const _: () = assert!(size_of::<Http1Tx>() <= 1024);

/// The target in a transaction without a request.
pub(super) const NOT_SEEN: &[u8] = b"/libhtp::request_uri_not_seen";

impl Http1Tx {
    /// Sets up a new transaction.
    pub(super) fn set_up(&mut self, id: u64, server: &ServerConfig, inline: bool) {
        self.base.id = id;
        (self.window, self.inline) = (server.window.map(|w| (w.min, w.window)), inline);
        if let Some(swf) = server.swf {
            self.swf = Some(Box::new((swf, server.decompress)));
        }
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

    /// The raw target.
    pub(super) fn uri_raw(&self) -> &[u8] {
        if self.unmatched { NOT_SEEN } else { part(&self.request.line, self.request_line.uri) }
    }

    /// The normalised target.
    pub(super) fn uri(&self) -> &[u8] {
        if self.uri_unchanged { part(&self.request.line, self.request_line.uri) } else { &self.uri }
    }

    /// Normalises the target.
    pub(super) fn find_uri(&mut self, server: &ServerConfig) {
        let raw = part(&self.request.line, self.request_line.uri);
        if let Some(path) = unchanged::path_length(raw, server) {
            self.uri_unchanged = true;
            self.path_in_uri = Some((0, path as u32));
            return;
        }
        let target = uri::split(raw);
        let mut normal = Vec::new();
        let (flags, path) = uri::normalise_parts(&target, server, &mut normal);
        // Any other path is not one on its own: its beginning may be a scheme.
        if target.path.is_some_and(|p| p.first() == Some(&b'/')) {
            self.path_in_uri = Some((path.start as u32, path.len() as u32));
        }
        if flags.double_encoded {
            self.event(Event::DoubleEncodedUri);
        }
        if flags.host_invalid {
            self.event(Event::UriHostInvalid);
        }
        self.uri = normal;
        self.find_raw_host();
    }

    /// The normalised path, from which a file gets its name if no field has one.
    pub(super) fn path(&self, server: &ServerConfig) -> Vec<u8> {
        if self.unmatched {
            return NOT_SEEN.to_vec();
        }
        if self.method() == b"CONNECT" {
            // Its target has no path.
            return Vec::new();
        }
        if let Some(path) = self.path_in_uri {
            return part(self.uri(), path).to_vec();
        }
        let raw = self.uri_raw();
        let mut out = Vec::new();
        uri::normalise(uri::split(raw).path.unwrap_or(raw), server, &mut out);
        out
    }

    /// Handles body data.
    pub(super) fn body_data(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) {
        self.with_body(cx, server, dir, |body, cx, files| body.data(cx, files, dir, data));
        self.base.advance(dir, super::BODY);
        self.base.touch(dir);
    }

    /// Handles data after a request that announced no body: rules see it as one.
    pub(super) fn late_body(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, data: &[u8]) {
        let dir = Direction::ToServer;
        self.request.body.file.wanted = false;
        self.with_body(cx, server, dir, |body, cx, files| body.data(cx, files, dir, data));
        self.base.touch(dir);
        self.count(&mut cx.shared.counters.http_memory);
    }

    /// Ends a body.
    pub(super) fn body_end(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, truncated: bool) {
        if !self.message_mut(dir).body.end_empty() {
            self.with_body(cx, server, dir, |body, cx, files| body.end(cx, files, dir, truncated));
        }
        self.base.touch(dir);
    }

    /// Handles a gap in a body.
    pub(super) fn body_gap(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, len: u64) {
        self.with_body(cx, server, dir, |body, cx, files| {
            body.gap(cx, files, dir, len);
        });
        self.base.advance(dir, super::BODY);
        self.base.touch(dir);
    }

    fn with_body(
        &mut self,
        cx: &mut Parse<'_>,
        server: &ServerConfig,
        dir: Direction,
        f: impl FnOnce(&mut Body, &mut BodyCx<'_>, &mut crate::file::Files),
    ) {
        let mut bcx = BodyCx {
            shared: cx.shared,
            files: &cx.config.files,
            server,
            memcap: cx.config.http1.memcap,
            time: cx.time,
        };
        let body = match dir {
            Direction::ToServer => &mut self.request.body,
            Direction::ToClient => &mut self.response.body,
        };
        f(body, &mut bcx, &mut self.base.files);
        if !body.events.is_empty() {
            for e in body.events.take() {
                self.base.events.add(e as u8);
            }
        }
        if body.renewed_arguments() {
            self.base.renewed[dir.index()] |= ARGUMENTS;
        }
    }

    /// Updates the memory count.
    pub(super) fn count(&mut self, total: &mut u64) {
        let now = self.memory();
        *total = total.saturating_sub(self.counted).saturating_add(now);
        self.counted = now;
    }

    /// Removes its memory from the count.
    pub(super) fn uncount(&mut self, total: &mut u64) {
        *total = total.saturating_sub(std::mem::take(&mut self.counted));
    }

    fn memory(&self) -> u64 {
        let message = |m: &Message| m.line.len() + m.headers.memory() + m.body.window().memory();
        (std::mem::size_of::<Self>() + message(&self.request) + message(&self.response) + self.uri.capacity()) as u64
    }

    /// The parts of the target, and whether it is the authority of a CONNECT.
    fn target(&self) -> (uri::Uri<'_>, bool) {
        let raw = part(&self.request.line, self.request_line.uri);
        if raw.starts_with(b"/") {
            // A path has no host.
            return (uri::Uri::default(), false);
        }
        let connect = self.method() == b"CONNECT";
        (if connect { host::connect(raw) } else { uri::split(raw) }, connect)
    }

    /// Sets the raw host if the target names it: rules match it before the fields are complete.
    fn find_raw_host(&mut self) {
        if self.uri_raw().starts_with(b"/") {
            return;
        }
        let (target, _) = self.target();
        if target.host.is_some() {
            let mut name = Vec::new();
            host::normalise_uri_host(&target, &mut name);
            self.host_raw = name.into_boxed_slice();
        }
    }

    /// Sets target, host and port, once all fields of the request are complete.
    pub(super) fn find_host(&mut self, flow: &FlowCore) {
        let (target, connect) = self.target();
        let mut several = Vec::new();
        let headers = &self.request.headers;
        let header = headers.joined(b"host", &mut several);
        // Most requests have no event here, and none has many.
        let mut events = AppEvents::default();
        let mut event = |e: Event| events.add(e as u8);
        let (mut name, mut port) = (Vec::new(), None);
        let mut raw_name = Box::default();
        if target.host.is_some() {
            let valid;
            (port, valid) = host::normalise_uri_host(&target, &mut name);
            if !valid {
                event(if connect { Event::AuthorityPort } else { Event::UriHostInvalid });
            }
            raw_name = name.as_slice().into();
        }
        if let Some(h) = header {
            let mut other = Vec::with_capacity(h.len());
            let (other_port, valid) = host::normalise_host(h, &mut other);
            if !valid {
                event(Event::HeaderHostInvalid);
            }
            if target.host.is_none() {
                (name, port) = (other, other_port);
                raw_name = h.into();
            } else if host::ambiguous((&name, port), (&other, other_port)) {
                event(Event::HostAmbiguous);
            }
        } else if self.request_line.version >= super::request::Version::V11 {
            // Also if the target has a host (RFC 9112, section 3.2).
            event(Event::MissingHost);
        }
        if headers.repeated(b"host") {
            event(Event::HostAmbiguous);
        }
        // The target of a CONNECT has a port of its own.
        if let Some(p) = port
            && p != flow.dport
            && !connect
        {
            event(Event::PortMismatch);
        }
        self.host = name;
        self.host_raw = raw_name;
        self.port = port;
        for &e in events.as_slice() {
            self.base.events.add(e);
        }
    }

    /// The data of the request body that the last inspection had, for alerts that show it.
    pub fn request_body_held(&self) -> &[u8] {
        self.request.body.window().shown()
    }

    /// The data of the response body that the last inspection had.
    pub fn response_body_held(&self) -> &[u8] {
        self.response.body.window().shown()
    }

    pub(super) fn limits(&self, dir: Direction) -> WindowLimits {
        let (min, window) = self.window.get(dir.index()).copied().unwrap_or_default();
        let limits = WindowLimits { min, window, whole: 0 };
        let mut limits = if self.inline { limits.inline() } else { limits };
        // A Flash file is decompressed once, when all required data is available.
        if let (Some((swf, _)), Direction::ToClient) = (self.swf.as_deref(), dir)
            && let (data, 0) = self.response.body.window().held()
            && is_compressed(data)
        {
            let depth = if swf.compress_depth == 0 { MAX_OUTPUT as u64 } else { swf.compress_depth };
            limits.min = limits.min.max(depth.min(MAX_OUTPUT as u64) as u32);
        }
        limits
    }
}

impl Transaction for Http1Tx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn counted(&self) -> u64 {
        self.counted
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        let message = |m: &Message| m.line.len() + m.headers.memory() + m.body.held();
        let own = message(&self.request) + message(&self.response);
        let uri = self.uri.capacity() + self.host.capacity() + self.host_raw.len();
        self.base.held() + (own + uri) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn inspected(&mut self, dir: Direction) {
        if self.message(dir).body.is_empty() && self.base.files.is_empty() {
            return;
        }
        let limits = self.limits(dir);
        let body = match dir {
            Direction::ToServer => &mut self.request.body,
            Direction::ToClient => &mut self.response.body,
        };
        body.inspected(limits);
        self.base.files.inspected(dir, limits);
    }

    fn file_window(&self, dir: Direction, _inline: bool) -> WindowLimits {
        self.limits(dir)
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, json, options, what);
    }

    fn ask(&self, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<script::Answer> {
        let body = |dir| {
            let (data, offset) = self.message(dir).body.window().held();
            (data.to_vec(), offset)
        };
        match protocol {
            "http" => script::http(self, super::buffers::BUFFERS, body, what, arg),
            "http-log" => super::log::line_value(self, what, arg),
            _ => None,
        }
    }

    fn forwarded_for(&self, header: &str, forward: bool) -> Option<std::net::IpAddr> {
        super::log::forwarded_for(self, header, forward)
    }
}
