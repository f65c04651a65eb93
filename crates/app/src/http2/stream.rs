//! The effect of frames on their transactions (RFC 9113, section 6).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use margay_flow::Direction;

use crate::parser::{Parse, Upgrade};

use super::HEADERS;
use super::events::Event;
use super::frame::{Header, flag, kind};
use super::parser::{Block, Http2Parser};
use super::tx::Signal;

/// The payload without padding and its length. `None` if it is too short.
fn unpadded(h: Header, payload: &[u8]) -> Option<&[u8]> {
    if !h.has(flag::PADDED) {
        return Some(payload);
    }
    let (pad, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*pad))?)
}

impl Http2Parser {
    /// Whether this stream, or a later one of the same side, was opened: it cannot be opened again.
    pub(super) fn was_opened(&self, stream: u32) -> bool {
        // Clients open odd numbers.
        let [client, server] = &self.sides;
        stream <= if stream % 2 == 1 { client.highest } else { server.highest }
    }

    /// Notes that a stream is open.
    fn opened(&mut self, stream: u32) {
        let [client, server] = &mut self.sides;
        let highest = if stream % 2 == 1 { &mut client.highest } else { &mut server.highest };
        *highest = (*highest).max(stream);
    }

    /// Whether a client's frame prepares a stream that is not open yet. The stream has one transaction with it.
    fn prepares(&self, dir: Direction, h: Header) -> bool {
        matches!(h.kind, kind::PRIORITY | kind::WINDOW_UPDATE)
            && dir == Direction::ToServer
            && h.stream % 2 == 1
            && !self.was_opened(h.stream)
    }

    /// Creates the transaction of a stream that is not open yet.
    fn prepare(&mut self, cx: &mut Parse<'_>, stream: u32) -> Option<u64> {
        let id = self.make(cx, stream)?;
        self.streams.insert(stream, id);
        Some(id)
    }

    /// Opens a stream and creates its transaction.
    pub(super) fn open(&mut self, cx: &mut Parse<'_>, dir: Direction, stream: u32) -> Option<u64> {
        let again = self.was_opened(stream);
        let id = self.prepare(cx, stream)?;
        self.opened(stream);
        if again && let Some(tx) = self.get(id) {
            tx.event(Event::StreamIdReuse);
            tx.base.touch(dir);
        }
        Some(id)
    }

    /// Handles a complete frame. Returns its transaction, if any.
    pub(super) fn whole_frame(&mut self, cx: &mut Parse<'_>, dir: Direction, h: Header, payload: &[u8]) -> Option<u64> {
        let open = self.sides[dir.index()].block.stream;
        if open != 0 && (h.kind != kind::CONTINUATION || h.stream != open) {
            // No other frame is allowed within a block. The fields so far count.
            if let Some(tx) = self.sides[dir.index()].block.tx.and_then(|id| self.get(id)) {
                tx.event(Event::InvalidFrameData);
            }
            self.close_block(cx, dir);
        }
        // An acknowledgement has no content.
        if h.kind == kind::SETTINGS && payload.is_empty() {
            return None;
        }
        let opens = h.stream != 0 && h.kind == kind::HEADERS;
        let known = if opens { self.going_on(h.stream) } else { self.streams.get(&h.stream).copied() };
        let id = match known {
            Some(id) => {
                if opens {
                    self.opened(h.stream);
                }
                Some(id)
            }
            None if opens => self.open(cx, dir, h.stream),
            None if self.prepares(dir, h) => self.prepare(cx, h.stream),
            None => self.single(cx, dir, h.stream),
        };
        let max = cx.config.http2.max_frames;
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            let message = tx.message_mut(dir);
            message.note(h.kind);
            message.frames = message.frames.saturating_add(1);
            if message.frames > max {
                tx.event(Event::TooManyFrames);
                if !matches!(h.kind, kind::HEADERS | kind::CONTINUATION | kind::PUSH_PROMISE | kind::RST_STREAM) {
                    return id;
                }
            }
        }
        let fine = match h.kind {
            kind::HEADERS => self.headers(cx, dir, h, id, payload),
            kind::CONTINUATION => self.continuation(cx, dir, h, payload),
            kind::PUSH_PROMISE => self.promise(cx, dir, h, payload),
            kind::RST_STREAM => self.reset(cx, dir, h, id, payload),
            _ => {
                let message = id.and_then(|id| self.get(id)).map(|t| t.message_mut(dir));
                message.map_or(Ok(()), |m| control(m, h, payload))
            }
        };
        if let (Err(event), Some(tx)) = (fine, id.and_then(|id| self.get(id))) {
            tx.event(event);
        }
        id
    }

    fn headers(
        &mut self,
        cx: &mut Parse<'_>,
        dir: Direction,
        h: Header,
        id: Option<u64>,
        payload: &[u8],
    ) -> Result<(), Event> {
        let mut block = unpadded(h, payload).ok_or(Event::InvalidFrameData)?;
        if h.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Event::InvalidFrameData)?;
            block = rest;
            if let Some(tx) = id.and_then(|id| self.get(id)) {
                tx.message_mut(dir).signal(Signal::Priority(priority[4]));
            }
        }
        let end = h.has(flag::END_STREAM);
        self.begin_block(cx, dir, h, (id, dir, end), block);
        Ok(())
    }

    /// Begins a block. `of` has its transaction, the side that its fields belong to, and whether that side ends.
    fn begin_block(
        &mut self,
        cx: &mut Parse<'_>,
        dir: Direction,
        h: Header,
        (id, of, end): (Option<u64>, Direction, bool),
        data: &[u8],
    ) {
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            let message = tx.message_mut(of);
            if message.is_interim() {
                message.fields.clear();
            }
        }
        if h.has(flag::END_HEADERS) {
            self.decode(cx, dir, of, id, data);
            self.have_fields(cx, of, id, end);
        } else {
            let block = &mut self.sides[dir.index()].block;
            *block = Block { stream: h.stream, tx: id, of: Some(of), end, data: data.to_vec() };
        }
    }

    fn continuation(&mut self, cx: &mut Parse<'_>, dir: Direction, h: Header, payload: &[u8]) -> Result<(), Event> {
        let block = &mut self.sides[dir.index()].block;
        if block.stream == 0 {
            return Err(Event::InvalidFrameData);
        }
        let room = (cx.config.http2.max_reassembly_size as usize).saturating_sub(block.data.len());
        block.data.extend_from_slice(payload.get(..room).unwrap_or(payload));
        let over = payload.len() > room;
        if h.has(flag::END_HEADERS) {
            self.close_block(cx, dir);
        }
        if over { Err(Event::ReassemblyLimitReached) } else { Ok(()) }
    }

    /// Ends a block that spans frames.
    fn close_block(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        let block = std::mem::take(&mut self.sides[dir.index()].block);
        let of = block.of.unwrap_or(dir);
        self.decode(cx, dir, of, block.tx, &block.data);
        self.have_fields(cx, of, block.tx, block.end);
    }

    /// Handles the complete fields of a side.
    fn have_fields(&mut self, cx: &mut Parse<'_>, of: Direction, id: Option<u64>, end: bool) {
        let Some(id) = id else { return };
        let Some(tx) = self.get(id) else { return };
        if tx.is_complete(of) {
            return;
        }
        tx.base.touch(of);
        if tx.message(of).is_interim() && !end {
            return;
        }
        let dns = tx.begin(cx.config, of);
        tx.base.advance(of, HEADERS);
        self.dns |= dns;
        if end {
            self.end(cx, of, id, false);
        }
    }

    /// Handles a push promise: the request of a response that the server will send.
    fn promise(&mut self, cx: &mut Parse<'_>, dir: Direction, h: Header, payload: &[u8]) -> Result<(), Event> {
        let data = unpadded(h, payload).ok_or(Event::InvalidFrameData)?;
        let (stream, block) = data.split_first_chunk::<4>().ok_or(Event::InvalidFrameData)?;
        let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
        let id = match self.going_on(stream) {
            Some(id) => Some(id),
            None => self.open(cx, dir, stream),
        };
        self.begin_block(cx, dir, h, (id, Direction::ToServer, true), block);
        Ok(())
    }

    fn reset(
        &mut self,
        cx: &mut Parse<'_>,
        dir: Direction,
        h: Header,
        id: Option<u64>,
        payload: &[u8],
    ) -> Result<(), Event> {
        let code = payload.first_chunk::<4>().ok_or(Event::InvalidFrameLength)?;
        let Some(tx) = id.and_then(|id| self.get(id)) else { return Ok(()) };
        tx.message_mut(dir).signal(Signal::Reset(u32::from_be_bytes(*code)));
        if h.stream != 0
            && let Some(id) = id
        {
            self.end(cx, dir, id, true);
            match dir {
                Direction::ToServer => self.abandon(cx, id),
                Direction::ToClient => self.finish(cx, id),
            }
        }
        if payload.len() == 4 { Ok(()) } else { Err(Event::InvalidFrameLength) }
    }

    /// Opens the first stream for an HTTP/1 request that was upgraded to HTTP/2 (RFC 7540, section 3.2), with the client's
    /// settings.
    pub(super) fn upgraded(&mut self, cx: &mut Parse<'_>, from: Upgrade) {
        let dir = Direction::ToServer;
        let Some(id) = self.open(cx, dir, 1) else { return };
        let budget = usize::MAX;
        let Some(tx) = self.get(id) else { return };
        let fields = &mut tx.message_mut(dir).fields;
        fields.push(b":method", &from.method, budget);
        fields.push(b":path", &from.target, budget);
        if let Some(host) = &from.host {
            fields.push(b":authority", host, budget);
        }
        for (name, value) in &from.fields {
            fields.push(name, value, budget);
        }
        let held = tx.fields_memory();
        self.hold(held);
        self.have_fields(cx, dir, Some(id), true);
        let Some(text) = from.settings else { return };
        let decoded = URL_SAFE_NO_PAD.decode(&text).or_else(|_| STANDARD.decode(&text));
        let Some(settings) = self.single(cx, dir, 0).and_then(|id| self.get(id)) else { return };
        let message = settings.message_mut(dir);
        message.note(kind::SETTINGS);
        let valid = decoded.is_ok_and(|d| {
            d.len().is_multiple_of(6) && {
                set(message, &d);
                true
            }
        });
        if !valid {
            settings.event(Event::InvalidHttp1Settings);
        }
        settings.count(&mut cx.shared.counters.http_memory);
    }
}

fn set(message: &mut super::tx::Message, payload: &[u8]) {
    for s in payload.chunks_exact(6) {
        if let [a, b, c, d, e, f] = *s {
            message.setting(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
        }
    }
}

/// Handles frames that only carry values.
fn control(message: &mut super::tx::Message, h: Header, payload: &[u8]) -> Result<(), Event> {
    let long = |n: usize| if payload.len() > n { Err(Event::InvalidFrameLength) } else { Ok(()) };
    match h.kind {
        kind::PRIORITY => {
            let p = payload.first_chunk::<5>().ok_or(Event::InvalidFrameLength)?;
            message.signal(Signal::Priority(p[4]));
            long(5)
        }
        kind::SETTINGS => {
            set(message, payload);
            if h.has(flag::ACK) || !payload.len().is_multiple_of(6) { Err(Event::InvalidFrameLength) } else { Ok(()) }
        }
        kind::PING if payload.len() != 8 => Err(Event::InvalidFrameLength),
        kind::GOAWAY => {
            let [_, _, _, _, code @ ..] = payload.first_chunk::<8>().ok_or(Event::InvalidFrameLength)?;
            message.goaway = Some(u32::from_be_bytes(*code));
            Ok(())
        }
        kind::WINDOW_UPDATE => {
            let w = payload.first_chunk::<4>().ok_or(Event::InvalidFrameLength)?;
            message.window(u32::from_be_bytes(*w) & 0x7fff_ffff);
            long(4)
        }
        _ => Ok(()),
    }
}
