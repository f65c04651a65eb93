//! A transaction: a stream, or a connection-level frame.

use margay_flow::Direction;
use margay_json::Json;

use crate::arguments::{Arguments, RequestFields};
use crate::config::{AppConfig, AppLogOptions};
use crate::dns::DnsTx;
use crate::file::Files;
use crate::http1::body::{Body, BodyCx, FilePart, FileWish};
use crate::http1::events::Event as BodyEvent;
use crate::http1::host::normalise_host;
use crate::http1::uri;
use crate::param::{content_range, disposition_filename};
use crate::parser::Parse;
use crate::proto::AppProto;
use crate::rare::RareVec;
use crate::script;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::window::WindowLimits;

use super::buffers::ARGUMENTS;
use super::events::Event;
use super::fields::Fields;
use super::{BODY, COMPLETE, HEADERS, doh, grpc};
use crate::config::http2::Config;

/// The limit of values of one kind that wait for rules in a direction; further ones are dropped.
const VALUES_MAX: usize = 256;
/// The limit of body bytes that wait for rules; without rules they are dropped.
const WINDOW_MAX: usize = 1 << 20;

/// A value of a frame that a stream may have several times.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    /// Raw weight of a priority.
    Priority(u8),
    /// Error of a `RST_STREAM`.
    Reset(u32),
}

/// The data of one side.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Pseudo-headers, headers and trailers.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// Frame types that occurred, one bit each.
    pub kinds: [u64; 4],
    /// Number of frames, without `DATA`.
    pub frames: u32,
    /// Error of a `GOAWAY`.
    pub goaway: Option<u32>,
    /// Priorities and resets, in their order.
    pub signals: RareVec<Signal>,
    /// Window increments that rules have not inspected.
    pub windows: RareVec<u32>,
    /// Settings and their values.
    pub settings: RareVec<(u16, u32)>,
    /// A DNS message.
    pub(crate) dns: Option<Box<DnsTx>>,
    /// Bytes of an incomplete DNS message.
    pub dns_data: Option<Vec<u8>>,
    /// The messages of a gRPC-Web response.
    pub web: Option<Box<grpc::Web>>,
    begun: bool,
}

impl Message {
    /// Records a frame type.
    pub(super) fn note(&mut self, kind: u8) {
        if let Some(word) = self.kinds.get_mut(usize::from(kind / 64)) {
            *word |= 1 << (kind % 64);
        }
    }

    /// The frame types, in ascending order.
    pub(super) fn kinds(&self) -> impl Iterator<Item = u64> {
        let has = |k: &u64| self.kinds.get((k / 64) as usize).is_some_and(|w| w >> (k % 64) & 1 != 0);
        (0..256).filter(has)
    }

    /// Adds a window increment.
    pub(super) fn window(&mut self, increment: u32) {
        if self.windows.len() < VALUES_MAX {
            self.windows.to_add().push(increment);
        }
    }

    /// Adds a priority or a reset.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.signals.len() < VALUES_MAX {
            self.signals.to_add().push(signal);
        }
    }

    /// Raw weights of priorities.
    pub(super) fn priorities(&self) -> impl Iterator<Item = u8> {
        self.signals.iter().filter_map(|s| match s {
            Signal::Priority(weight) => Some(*weight),
            Signal::Reset(_) => None,
        })
    }

    /// Errors of `RST_STREAM`.
    pub(super) fn resets(&self) -> impl Iterator<Item = u32> {
        self.signals.iter().filter_map(|s| match s {
            Signal::Reset(code) => Some(*code),
            Signal::Priority(_) => None,
        })
    }

    /// The first signal of a kind that occurred before.
    pub(super) fn repeated(&self) -> Option<Signal> {
        let [mut priority, mut reset] = [false; 2];
        self.signals.iter().copied().find(|s| {
            let before = if matches!(s, Signal::Priority(_)) { &mut priority } else { &mut reset };
            std::mem::replace(before, true)
        })
    }

    /// Adds a setting.
    pub(super) fn setting(&mut self, id: u16, value: u32) {
        if self.settings.len() < VALUES_MAX {
            self.settings.to_add().push((id, value));
        }
    }

    /// The status of a response; the last one if there are several.
    pub(super) fn status(&self) -> Option<&[u8]> {
        self.fields.first(b":status")
    }

    /// Whether it is an interim response (RFC 9110, section 15.2).
    pub(super) fn is_interim(&self) -> bool {
        self.status().is_some_and(|s| s.len() == 3 && s.first() == Some(&b'1'))
    }

    fn memory(&self) -> usize {
        self.fields.memory()
            + self.body.window().memory()
            + self.dns_data.as_ref().map_or(0, Vec::capacity)
            + self.web.as_ref().map_or(0, |w| w.memory())
            + self.windows.held()
            + self.settings.held()
            + self.signals.held()
    }
}

/// A transaction of HTTP/2.
#[derive(Debug, Default)]
pub struct Http2Tx {
    pub(super) base: TxBase,
    /// Stream identifier; 0 for the connection.
    pub(super) stream: u32,
    messages: [Message; 2],
    /// Whether gRPC calls are detected.
    pub(super) grpc: bool,
    /// Normalised host; empty if there is none.
    pub(super) host: Vec<u8>,
    window: [WindowLimits; 2],
    /// Memory at the last count.
    counted: u64,
}

// As for HTTP/1: its memory comes from the allocator's short way.
const _: () = assert!(size_of::<Http2Tx>() <= 1024);

impl Http2Tx {
    /// Sets up a new transaction.
    pub(super) fn set_up(&mut self, id: u64, stream: u32, config: &Config, inline: bool) {
        (self.base.id, self.stream) = (id, stream);
        self.window = config.server.windows(inline);
    }

    /// The data of a side.
    pub(super) const fn message(&self, dir: Direction) -> &Message {
        let [request, response] = &self.messages;
        match dir {
            Direction::ToServer => request,
            Direction::ToClient => response,
        }
    }

    /// As `message`, mutable.
    pub(super) const fn message_mut(&mut self, dir: Direction) -> &mut Message {
        let [request, response] = &mut self.messages;
        match dir {
            Direction::ToServer => request,
            Direction::ToClient => response,
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.base.events.add(event as u8);
    }

    /// Whether a side is complete.
    pub(super) const fn is_complete(&self, dir: Direction) -> bool {
        self.base.progress[dir.index()] >= COMPLETE
    }

    /// Prepares the body once the fields are complete, or the body begins without fields. Returns whether the message is DNS.
    pub(super) fn begin(&mut self, all: &AppConfig, dir: Direction) -> bool {
        let config = &all.http2;
        if std::mem::replace(&mut self.message_mut(dir).begun, true) {
            return false;
        }
        if dir == Direction::ToServer {
            self.find_host();
        }
        let server = &config.server;
        let mut events = Vec::new();
        let (mut range, mut invalid) = (None, false);
        let fields = &self.message(dir).fields;
        let name = fields.first(b"content-disposition").and_then(disposition_filename).unwrap_or_default().to_vec();
        if dir == Direction::ToClient
            && let Some(value) = fields.first(b"content-range")
        {
            range = content_range(value);
            invalid = range.is_none() && !value.contains(&b'*');
        }
        let part = range.map(|r| {
            let whole = r.total.map(|total| (self.resource(config), total));
            Box::new(FilePart { range: (r.start, r.end), whole })
        });
        let mut scratch = Vec::new();
        let arguments = all.arguments.filter(|_| dir == Direction::ToServer).map(|limits| {
            let cookies = fields.iter().filter(|f| f.0 == b"cookie").map(|f| f.1);
            let of_request = RequestFields {
                target: fields.first(b":path").unwrap_or_default(),
                host: fields.first(b":authority").or_else(|| fields.first(b"host")),
                referer: fields.first(b"referer"),
                content_type: fields.joined(b"content-type", &mut scratch),
                authorization: fields.first(b"authorization"),
            };
            Arguments::new(limits, &all.collectors, &of_request, cookies)
        });
        let coding = fields.joined(b"content-encoding", &mut scratch).map(<[u8]>::to_vec);
        let body = &mut self.message_mut(dir).body;
        body.arguments = arguments;
        body.file = FileWish { wanted: true, name: name.into(), part };
        if let Some(value) = coding {
            body.set_coding(&value, server, dir, &mut events);
        }
        if invalid {
            self.event(Event::InvalidRange);
        }
        let dns = config.doh2 && doh::begin(self, dir);
        self.base.touch(dir);
        dns
    }

    /// The identity of a partial file: host and path, as in HTTP/1.
    fn resource(&self, config: &Config) -> Vec<u8> {
        let raw = self.message(Direction::ToServer).fields.first(b":path").unwrap_or_default();
        let mut out = self.host.clone();
        uri::normalise(uri::split(raw).path.unwrap_or(raw), &config.server, &mut out);
        out
    }

    /// The host as sent: the authority, or else the header.
    pub(super) fn host_raw(&self) -> Option<&[u8]> {
        let fields = &self.message(Direction::ToServer).fields;
        fields.first(b":authority").or_else(|| fields.first(b"host"))
    }

    /// Normalises the host and checks it (RFC 9113, section 8.3.1).
    fn find_host(&mut self) {
        let [request, _] = &self.messages;
        let (fields, events) = (&request.fields, &mut self.base.events);
        let authority = fields.first(b":authority");
        let host = fields.first(b"host");
        let name = authority.map(|a| match a.iter().position(|&b| b == b'@') {
            Some(at) => {
                events.add(Event::UserinfoInUri as u8);
                a.get(at + 1..).unwrap_or_default()
            }
            None => a,
        });
        if let (Some(a), Some(h)) = (authority, host)
            && !a.eq_ignore_ascii_case(h)
        {
            events.add(Event::AuthorityHostMismatch as u8);
        }
        self.host.clear();
        if let Some(raw) = name.or(host) {
            let _ = normalise_host(raw, &mut self.host);
        }
    }

    /// Handles body data.
    pub(super) fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) {
        self.with_body(cx, dir, |body, cx, files| body.data(cx, files, dir, data));
        let message = self.message_mut(dir);
        if message.body.window().held().0.len() > WINDOW_MAX {
            message.body.window_mut().discard();
        }
        let over = doh::data(message, data);
        self.call_data(dir, data);
        if over {
            let which = [Event::DnsRequestTooLong, Event::DnsResponseTooLong];
            self.event(which[dir.index()]);
        }
        self.base.advance(dir, BODY);
        self.base.touch(dir);
    }

    /// Handles a gap in a body.
    pub(super) fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) {
        self.with_body(cx, dir, |body, cx, files| body.gap(cx, files, dir, len));
        self.message_mut(dir).dns_data = None;
        self.call_gap(dir);
        self.base.touch(dir);
    }

    /// Ends a side that is not complete, or with `truncated` stops parsing it.
    pub(super) fn end(&mut self, cx: &mut Parse<'_>, dir: Direction, truncated: bool) {
        let empty = self.message_mut(dir).body.end_empty();
        if !empty {
            self.with_body(cx, dir, |body, cx, files| body.end(cx, files, dir, truncated));
        }
        doh::end(self.base.id, self.message_mut(dir), dir);
        if !empty {
            self.count(&mut cx.shared.counters.http_memory);
        }
        if !self.message(dir).fields.is_empty() {
            self.base.advance(dir, HEADERS);
        }
        self.base.advance(dir, COMPLETE);
    }

    fn with_body(
        &mut self,
        cx: &mut Parse<'_>,
        dir: Direction,
        f: impl FnOnce(&mut Body, &mut BodyCx<'_>, &mut Files),
    ) {
        let config = cx.config;
        let mut bcx = BodyCx {
            shared: cx.shared,
            files: &config.files,
            server: &config.http2.server,
            memcap: config.http1.memcap,
            time: cx.time,
        };
        let [request, response] = &mut self.messages;
        let body = if dir == Direction::ToServer { &mut request.body } else { &mut response.body };
        f(body, &mut bcx, &mut self.base.files);
        if body.renewed_arguments() {
            self.base.renewed[dir.index()] |= ARGUMENTS;
        }
        if body.events.is_empty() {
            return;
        }
        for event in body.events.take() {
            match event {
                BodyEvent::GzipFailed | BodyEvent::LzmaMemory => self.event(Event::FailedDecompression),
                BodyEvent::Bomb => {
                    self.event(Event::FailedDecompression);
                    self.event(Event::Bomb);
                }
                _ => {}
            }
        }
    }

    /// Bytes of fields.
    pub(super) fn fields_memory(&self) -> usize {
        self.messages.iter().map(|m| m.fields.memory()).sum()
    }

    /// Updates the memory count.
    pub(super) fn count(&mut self, total: &mut u64) {
        let now = (std::mem::size_of::<Self>() + self.messages.iter().map(Message::memory).sum::<usize>()) as u64;
        *total = total.saturating_sub(self.counted).saturating_add(now);
        self.counted = now;
    }

    /// Removes its memory from the count.
    pub(super) fn uncount(&mut self, total: &mut u64) {
        *total = total.saturating_sub(std::mem::take(&mut self.counted));
    }

    /// The DNS message: the response, or else the request.
    fn dns(&self) -> Option<&DnsTx> {
        let [request, response] = &self.messages;
        response.dns.as_deref().or(request.dns.as_deref())
    }
}

impl Transaction for Http2Tx {
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
        let message = |m: &Message| {
            m.memory() - m.body.window().memory()
                + m.body.held()
                + m.dns.as_ref().map_or(0, |d| size_of::<DnsTx>() + d.held() as usize)
        };
        self.base.held() + (self.messages.iter().map(message).sum::<usize>() + self.host.capacity()) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        super::buffers::number(self, id, dir, index)
    }

    fn inspected(&mut self, dir: Direction) {
        let message = self.message_mut(dir);
        if let Some(windows) = message.windows.to_change() {
            windows.clear();
        }
        if message.body.is_empty() && self.base.files.is_empty() {
            return;
        }
        let limits = self.limits(dir);
        self.message_mut(dir).body.inspected(limits);
        self.base.files.inspected(dir, limits);
    }

    fn file_window(&self, dir: Direction, _inline: bool) -> WindowLimits {
        self.limits(dir)
    }

    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(super::log::has(self))
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, json, options, what);
        self.log_call(json);
        if what == LogFor::Alert
            && let Some(dns) = self.dns()
        {
            dns.log(json, options, what);
        }
    }

    fn carried(&self) -> Option<(AppProto, &dyn Transaction)> {
        self.dns().map(|d| (AppProto::Doh2, d as &dyn Transaction))
    }

    fn ask(&self, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<script::Answer> {
        let body = |dir| {
            let (data, offset) = self.message(dir).body.window().held();
            (data.to_vec(), offset)
        };
        match protocol {
            "http" => script::http(self, super::buffers::DOH_BUFFERS, body, what, arg),
            _ => self.dns()?.ask(protocol, what, arg),
        }
    }

    fn forwarded_for(&self, header: &str, forward: bool) -> Option<std::net::IpAddr> {
        let mut scratch = Vec::new();
        let value = self.message(Direction::ToServer).fields.joined(header.as_bytes(), &mut scratch)?;
        crate::http1::forwarded_address(value, forward)
    }
}

impl Http2Tx {
    pub(super) fn limits(&self, dir: Direction) -> WindowLimits {
        self.window.get(dir.index()).copied().unwrap_or_default()
    }
}
