//! The state machine: lines, fields and bodies of both directions, and the matching of responses to requests.
//!
//! Each direction is a [`Side`]. A step handles the available data and says how much it consumed; steps continue until one
//! needs more. Lines and fields are consumed once complete, bodies as they arrive, so little data ever waits. `to_server` and
//! `to_client` have the parts that differ by direction.

mod chunks;
mod fields;

use std::collections::VecDeque;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::body::Framing;
use super::chunked::Chunk;
use super::events::Event;
use super::headers::trim;
use super::line::{Ending, is_blank};
use super::request;
use super::response::is_status;
use super::tx::Http1Tx;
use super::{BODY, COMPLETE};
use crate::config::http1::ServerConfig;

/// The position in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// Before a message, at its first line.
    #[default]
    Start,
    /// After a request line without a protocol.
    Protocol,
    /// In the fields.
    Headers,
    /// In the body.
    Body,
    /// In the fields after a chunked body.
    Trailer,
    /// After CONNECT, until its response comes.
    Connect,
    /// Data is ignored.
    Ignore,
    /// After a gap that includes the end of a message: the next data ends the message.
    Cut,
    /// After a gap in the fields, with this many bytes of a line before it: the fields go on, unless the data begins a message.
    Resume(usize),
    /// After a gap, until data looks like a message.
    Lost,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Side {
    pub state: State,
    /// The current transaction, or the next one.
    pub tx: u64,
    /// The offset up to which the waiting data has no line end.
    pub scan: usize,
    pub framing: Framing,
    /// The end of the previous line.
    pub last: Ending,
    /// Unconsumed bytes.
    pub waiting: usize,
    /// Offset of this step in the parser's input.
    pub at: usize,
    /// Whether this step completed a message.
    pub ended: bool,
}

impl Default for Side {
    fn default() -> Self {
        Side {
            state: State::Start,
            tx: 0,
            scan: 0,
            framing: Framing::None,
            last: Ending::CrLf,
            waiting: 0,
            at: 0,
            ended: false,
        }
    }
}

/// The result of a parsing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// This many bytes were consumed; continue. With 0, the state has changed.
    Used(usize),
    /// More data is needed.
    More,
    /// This many bytes were consumed, and the parser stops.
    Stop(usize, Outcome),
}

/// The HTTP/1 parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Http1Parser {
    txs: TxList<Http1Tx>,
    pub request: Side,
    pub response: Side,
    /// Transactions before this number wait for no response, except those of `ended`.
    pub due: u64,
    /// Methods of requests that were ended to make room, and whose responses are still to come.
    pub ended: VecDeque<EndedMethod>,
    /// The transaction of a response to a request in `ended`, while it is current.
    pub stand_in: Option<u64>,
    /// A response's transaction without a request, until the client sends data or its side ends.
    pub unseen: Option<u64>,
    /// The client's waiting data can be parsed now, and comes before the rest of the server's.
    pub resume: bool,
}

/// Methods, to the extent that they decide how the response body ends (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedMethod {
    Head,
    Connect,
    Other,
}

impl EndedMethod {
    fn of(method: &[u8]) -> EndedMethod {
        match method {
            b"HEAD" => EndedMethod::Head,
            b"CONNECT" => EndedMethod::Connect,
            _ => EndedMethod::Other,
        }
    }

    /// The name, if it matters.
    pub(super) const fn name(self) -> &'static [u8] {
        match self {
            EndedMethod::Head => b"HEAD",
            EndedMethod::Connect => b"CONNECT",
            EndedMethod::Other => b"",
        }
    }
}

impl Http1Parser {
    pub(super) const fn side(&mut self, dir: Direction) -> &mut Side {
        match dir {
            Direction::ToServer => &mut self.request,
            Direction::ToClient => &mut self.response,
        }
    }

    /// The number of the next transaction.
    pub(super) const fn next(&self) -> u64 {
        self.txs.next()
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut Http1Tx> {
        self.txs.get_mut(id)
    }

    pub(super) fn peek(&self, id: u64) -> Option<&Http1Tx> {
        self.txs.get(id)
    }

    /// The number of a direction's current transaction.
    pub(super) fn at(&self, dir: Direction) -> u64 {
        match dir {
            Direction::ToServer => self.request.tx,
            Direction::ToClient => self.stand_in.unwrap_or(self.response.tx),
        }
    }

    /// A direction's current transaction.
    pub(super) fn current(&mut self, dir: Direction) -> Option<&mut Http1Tx> {
        let id = self.at(dir);
        self.get(id)
    }

    /// Creates the transaction of a request. At the limit, ends the request that has waited longest for its response; it is
    /// freed once inspected.
    pub(super) fn make(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Result<(u64, &mut Http1Tx), Outcome> {
        let most = server.max_tx as usize;
        if most != 0 && self.txs.len() >= most && self.txs.len() < most.saturating_mul(2) {
            cx.shared.counters.tx_limit(AppProto::Http1);
            self.end_oldest(cx, server)?;
        }
        self.make_for_response(cx, server)
    }

    /// Creates a transaction. If there are too many, returns the outcome that asks to free complete ones first.
    pub(super) fn make_for_response(
        &mut self,
        cx: &mut Parse<'_>,
        server: &ServerConfig,
    ) -> Result<(u64, &mut Http1Tx), Outcome> {
        let most = server.max_tx as usize;
        if most != 0 && self.txs.len() >= most.saturating_mul(2) {
            return Err(Outcome::Full);
        }
        let inline = cx.config.http1.body_inline.unwrap_or(cx.inline);
        let (id, tx) = self.txs.push_default(|id, tx| tx.set_up(id, server, inline));
        Ok((id, tx.ok_or(Outcome::Failed)?))
    }

    /// Ends the request that has waited longest for its response, if there is one.
    fn end_oldest(&mut self, cx: &mut Parse<'_>, server: &ServerConfig) -> Result<(), Outcome> {
        /// The limit of pending responses whose transactions are gone.
        const ENDED_MAX: usize = 64 << 10;
        let mut from = self.due.max(self.response.tx);
        while let Some(id) = self.txs.next_id(from) {
            from = id + 1;
            let Some(tx) = self.txs.look_mut(id) else { continue };
            if tx.base.progress[Direction::ToServer.index()] < COMPLETE {
                // Its request is still arriving, so it is the last one.
                break;
            }
            let begun = tx.base.progress[Direction::ToClient.index()] > 0;
            if tx.stand_in || begun {
                self.due = from;
                continue;
            }
            if self.ended.len() >= ENDED_MAX {
                return Err(Outcome::Failed);
            }
            self.ended.push_back(EndedMethod::of(tx.method()));
            self.due = from;
            // There is no response, so its memory stays as it is.
            if let Some(tx) = self.txs.wake_mut(id) {
                tx.event(Event::TooManyTransactions);
                tx.body_end(cx, server, Direction::ToClient, true);
                tx.base.advance(Direction::ToClient, COMPLETE);
            }
            break;
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) -> Step {
        match self.side(dir).state {
            State::Start | State::Lost => match dir {
                Direction::ToServer => self.request_line(cx, server, data),
                Direction::ToClient => self.status_line(cx, server, data),
            },
            State::Protocol => self.request_protocol(cx, server, data),
            State::Headers | State::Trailer => self.headers(cx, server, dir, data),
            State::Body => self.body(cx, server, dir, data),
            // Empty lines after the request are not part of the tunnel's data.
            State::Connect => match data.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count() {
                0 => Step::More,
                n => Step::Used(n),
            },
            State::Cut if data.is_empty() && !cx.end => Step::More,
            State::Cut => {
                self.finish(cx, dir, true);
                self.side(dir).state = State::Lost;
                Step::Used(0)
            }
            State::Resume(torn) => self.resume(cx, server, dir, data, torn),
            State::Ignore => {
                if data.is_empty() {
                    Step::More
                } else {
                    Step::Used(data.len())
                }
            }
        }
    }

    /// Handles a line that exceeds the limit.
    pub(super) fn too_long(&mut self, dir: Direction) -> Step {
        let event = if dir == Direction::ToServer { Event::RequestTooLong } else { Event::ResponseTooLong };
        if let Some(tx) = self.current(dir) {
            tx.event(event);
            tx.base.touch(dir);
        }
        Step::Stop(0, Outcome::Failed)
    }

    /// Begins a body.
    pub(super) fn begin_body(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, framing: Framing) {
        if framing.is_empty() {
            self.complete(cx, dir);
            return;
        }
        let side = self.side(dir);
        side.framing = framing;
        side.state = State::Body;
        if let Some(tx) = self.current(dir) {
            tx.base.advance(dir, BODY);
            if let Framing::Length(bytes) = framing {
                tx.message_mut(dir).body.announce(bytes, server, dir);
            }
        }
    }

    /// Parses body data.
    fn body(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) -> Step {
        let framing = self.side(dir).framing;
        if data.is_empty() {
            return Step::More;
        }
        match framing {
            Framing::None => {
                self.complete(cx, dir);
                Step::Used(0)
            }
            Framing::Close => {
                self.payload(cx, server, dir, data);
                Step::Used(data.len())
            }
            Framing::Length(left) => {
                if dir == Direction::ToServer && self.may_lack_body() {
                    match request::is_request(data) {
                        None if !cx.end && data.len() <= server.field_limit as usize => return Step::More,
                        Some(true) => {
                            self.complete(cx, dir);
                            return Step::Used(0);
                        }
                        _ => {}
                    }
                }
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.payload(cx, server, dir, data.get(..n).unwrap_or(data));
                let left = left.saturating_sub(n as u64);
                self.side(dir).framing = Framing::Length(left);
                if left == 0 {
                    let tail = self.tail(cx, server, dir, data.get(n..).unwrap_or(&[]));
                    self.complete(cx, dir);
                    return Step::Used(n + tail);
                }
                Step::Used(n)
            }
            Framing::Chunked(chunk) => self.chunk(cx, server, dir, data, chunk),
        }
    }

    /// Whether the client's next request may come in place of the body, since the server refused the body before any of it was
    /// sent (RFC 9110, section 10.1.1). Some clients send the body nevertheless.
    fn may_lack_body(&mut self) -> bool {
        let Some(tx) = self.current(Direction::ToServer) else { return false };
        tx.request.body.transferred == 0
            && tx.status_line.number.is_some_and(|n| (400..500).contains(&n))
            && tx.request.headers.values(b"expect").any(|v| trim(v).eq_ignore_ascii_case(b"100-continue"))
    }

    /// Handles data that a server sends after the end of a body and that is not another response: it becomes part of the body.
    /// The response has ended, so only available data is used.
    fn tail(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, rest: &[u8]) -> usize {
        if dir == Direction::ToServer {
            return 0;
        }
        let mut n = 0;
        while let Some(left) = rest.get(n..).filter(|l| !l.is_empty()) {
            let line = left.iter().position(|&b| b == b'\n').map_or(left, |i| left.get(..=i).unwrap_or(left));
            if is_status(line) == Some(true) || (is_status(line).is_none() && !is_blank(line)) {
                break;
            }
            n += line.len();
        }
        if n > 0 {
            self.payload(cx, server, dir, rest.get(..n).unwrap_or(rest));
        }
        n
    }

    fn payload(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) {
        if let Some(tx) = self.current(dir) {
            tx.body_data(cx, server, dir, data);
        }
    }

    /// Counts bytes of a body's framing.
    fn framed(&mut self, dir: Direction, n: usize) {
        if let Some(tx) = self.current(dir) {
            let body = &mut tx.message_mut(dir).body;
            body.transferred = body.transferred.saturating_add(n as u64);
        }
    }

    /// Completes a direction's message.
    pub(super) fn complete(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        self.finish(cx, dir, false);
    }

    /// Ends the frame of a message, at offset `to` of the parser's input.
    fn end_frame(&mut self, cx: &mut Parse<'_>, dir: Direction, to: u64) {
        if std::mem::take(&mut self.side(dir).ended) {
            cx.shared.frames.end(dir, to);
        }
    }

    /// Ends a direction's message, complete or not.
    pub(super) fn finish(&mut self, cx: &mut Parse<'_>, dir: Direction, truncated: bool) {
        let config = cx.config;
        let server = config.http1.server(cx.flow.dst);
        if let Some(tx) = self.current(dir) {
            tx.body_end(cx, server, dir, truncated);
            tx.base.advance(dir, COMPLETE);
            tx.count(&mut cx.shared.counters.http_memory);
        }
        let next = self.next();
        let stood_in = dir == Direction::ToClient && self.stand_in.take().is_some();
        let side = self.side(dir);
        side.state = State::Start;
        side.framing = Framing::None;
        side.scan = 0;
        side.last = Ending::CrLf;
        side.ended = true;
        side.tx = match dir {
            Direction::ToServer => next,
            Direction::ToClient if stood_in => side.tx,
            Direction::ToClient => side.tx.saturating_add(1),
        };
    }

    /// Handles the end of a direction's stream: open messages end as they are.
    fn stream_end(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction) {
        let side = self.side(dir);
        match side.state {
            State::Start | State::Connect | State::Ignore | State::Lost => {}
            State::Cut => self.finish(cx, dir, true),
            State::Protocol => self.complete(cx, dir),
            State::Body => {
                // The rest of a response was never sent, so the file is complete at its actual length. The server waits for the
                // rest of a request.
                self.finish(cx, dir, dir == Direction::ToServer);
            }
            State::Headers | State::Trailer | State::Resume(_) => self.end_fields(cx, server, dir),
        }
    }

    /// Ends the request of a response that no request preceded: further data of the client belongs to another one.
    pub(super) fn end_unseen(&mut self) {
        if let Some(tx) = self.unseen.take().and_then(|id| self.get(id)) {
            tx.base.advance(Direction::ToServer, COMPLETE);
        }
    }

    /// Ends a message within its fields.
    fn end_fields(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction) {
        let trailer = self.side(dir).state == State::Trailer;
        if let Some(tx) = self.current(dir) {
            let flags = tx.message_mut(dir).headers.finish(server.headers_limit);
            let _ = Self::flag(tx, dir, flags);
            if dir == Direction::ToServer && !trailer {
                tx.find_host(cx.flow);
            }
        }
        self.finish(cx, dir, false);
    }

    /// Decides after a gap in the fields whether the data behind it goes on with them or begins a message.
    fn resume(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8], torn: usize) -> Step {
        const STATUS_LINE: &[u8] = b"HTTP/1.";
        let behind = data.get(torn..).unwrap_or(&[]);
        let begins = match dir {
            Direction::ToServer => request::is_request(behind),
            Direction::ToClient if behind.len() < STATUS_LINE.len() && STATUS_LINE.starts_with(behind) => None,
            Direction::ToClient => Some(behind.starts_with(STATUS_LINE)),
        };
        match begins {
            None if !cx.end && data.len() <= server.field_limit as usize => return Step::More,
            Some(true) => {
                self.end_fields(cx, server, dir);
                self.side(dir).state = State::Lost;
                return Step::Used(torn);
            }
            _ => self.side(dir).state = State::Headers,
        }
        Step::Used(0)
    }

    /// Skips a gap. Inside a body the parser continues; elsewhere it looks for the next message.
    fn skip(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, len: u64) {
        let side = self.side(dir);
        side.scan = 0;
        let framing = side.framing;
        if side.state == State::Headers {
            side.state = State::Resume(side.waiting);
            return;
        }
        if side.waiting > 0 {
            // Within a line, which continues after the gap.
            return;
        }
        let inside = match (side.state, framing) {
            (State::Body, Framing::Length(left)) => left.min(len),
            (State::Body, Framing::Chunked(Chunk::Data(left))) => left.min(len),
            (State::Body, Framing::Close) => len,
            (State::Ignore | State::Connect | State::Cut | State::Resume(_), _) => return,
            (State::Start, _) => {
                side.state = State::Lost;
                return;
            }
            (State::Lost, _) => return,
            _ => 0,
        };
        if inside > 0
            && let Some(tx) = self.current(dir)
        {
            tx.body_gap(cx, server, dir, inside);
        }
        match framing {
            Framing::Length(left) if inside == len => {
                self.side(dir).framing = Framing::Length(left - inside);
                if left == inside {
                    self.finish(cx, dir, true);
                }
            }
            Framing::Chunked(Chunk::Data(left)) if inside == len => {
                self.side(dir).framing =
                    Framing::Chunked(if left == inside { Chunk::End } else { Chunk::Data(left - inside) });
            }
            Framing::Close if inside > 0 => {}
            _ => self.side(dir).state = State::Cut,
        }
    }
}

impl Parser for Http1Parser {
    fn proto(&self) -> AppProto {
        AppProto::Http1
    }

    fn shows_start(&self) -> bool {
        true
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let config = cx.config;
        let server = config.http1.server(cx.flow.dst);
        if dir == Direction::ToServer && (cx.end || !data.is_empty()) {
            self.end_unseen();
        }
        cx.shared.wishes.stream_depth = config.http1.depth(cx.inline);
        let mut at = 0;
        let mut outcome = Outcome::More;
        let before = self.at(dir);
        // A step without progress changes the state. Several in a row are bounded.
        let mut idle = 0;
        while idle < 8 {
            self.side(dir).at = at;
            let rest = data.get(at..).unwrap_or(&[]);
            if rest.is_empty() && self.side(dir).state != State::Start && !cx.end {
                break;
            }
            match self.step(cx, server, dir, rest) {
                Step::Used(n) => {
                    idle = if n == 0 { idle + 1 } else { 0 };
                    at += n;
                    self.end_frame(cx, dir, at as u64);
                    if n > 0 {
                        self.side(dir).scan = 0;
                    }
                    if at >= data.len() && n > 0 || self.resume {
                        break;
                    }
                }
                Step::More => break,
                Step::Stop(n, what) => {
                    at += n;
                    self.end_frame(cx, dir, at as u64);
                    outcome = what;
                    break;
                }
            }
        }
        self.side(dir).waiting = data.len().saturating_sub(at);
        if std::mem::take(&mut self.resume) && outcome == Outcome::More {
            outcome = Outcome::Resume;
        }
        if cx.end && outcome == Outcome::More {
            self.stream_end(cx, server, dir);
            self.end_frame(cx, dir, data.len() as u64);
        }
        // Finished transactions were counted when they finished.
        let now = self.at(dir);
        for id in [Some(before), Some(now).filter(|id| *id != before)].into_iter().flatten() {
            if let Some(tx) = self.get(id) {
                tx.count(&mut cx.shared.counters.http_memory);
            }
        }
        Parsed { consumed: at.min(data.len()), outcome }
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let config = cx.config;
        let server = config.http1.server(cx.flow.dst);
        self.skip(cx, server, dir, len);
        self.end_frame(cx, dir, len);
        Outcome::More
    }

    fn truncated(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        if dir == Direction::ToServer {
            self.end_unseen();
        }
        if !matches!(self.side(dir).state, State::Start | State::Connect | State::Ignore | State::Lost) {
            self.finish(cx, dir, true);
        }
        self.side(dir).state = State::Ignore;
    }

    fn memory(&mut self) -> u64 {
        self.txs.memory() + (self.ended.capacity() * size_of::<EndedMethod>()) as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, shared: &mut Shared, id: u64) {
        if let Some(mut tx) = self.txs.remove(id) {
            tx.uncount(&mut shared.counters.http_memory);
        }
    }
}
