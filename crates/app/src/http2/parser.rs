//! Reads frames from a stream and assigns them to transactions.
//!
//! The parser waits for a complete frame, except `DATA`, whose bytes it consumes as they arrive. `stream` has the effect of
//! frames on their transactions.

use std::collections::VecDeque;

use margay_flow::Direction;
use margay_packet::KeyedMap;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared, Upgrade};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::events::Event;
use super::frame::{HEADER, Header, PREFACE, flag, kind};
use super::hpack::Decoder;
use super::tx::Http2Tx;
use super::{COMPLETE, DATA_FRAME, HDR_FRAME, PDU_FRAME, grpc};

/// The most transactions that one frame can create.
const FRAME_TXS: usize = 4;
/// The limit of field bytes in all transactions of a flow; further fields are dropped.
const FIELDS_BUDGET: usize = 4 << 20;
/// The limit of streams that the client reset and whose response may still arrive. A further one ends the oldest.
const ABANDONED_MAX: usize = 64;

/// The position in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the connection preface.
    Preface,
    /// At a frame header.
    Frame,
    /// In the payload of `DATA`: bytes left, padding after them, and whether the frame ends its side.
    Data { tx: u64, left: u32, pad: u32, end: bool },
    /// In skipped bytes.
    Skip(u32),
}

/// A field block that is not complete.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The stream of its frames; 0 if there is no block.
    pub stream: u32,
    /// Its transaction.
    pub tx: Option<u64>,
    /// The side that its fields belong to.
    pub of: Option<Direction>,
    /// Whether the block ends its side.
    pub end: bool,
    pub data: Vec<u8>,
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Side {
    state: State,
    pub hpack: Decoder,
    pub block: Block,
    /// The highest stream identifier that this side opened.
    pub highest: u32,
    /// Unconsumed bytes.
    waiting: usize,
}

impl Side {
    fn new(state: State) -> Self {
        Side { state, hpack: Decoder::default(), block: Block::default(), highest: 0, waiting: 0 }
    }
}

/// The HTTP/2 parser of a flow.
#[derive(Debug)]
pub(super) struct Http2Parser {
    proto: AppProto,
    txs: TxList<Http2Tx>,
    /// The transactions of streams.
    pub streams: KeyedMap<u32, u64>,
    pub sides: [Side; 2],
    /// All transactions before this one are complete.
    oldest: u64,
    /// Transactions whose stream the client reset.
    abandoned: VecDeque<u64>,
    /// Field bytes in all transactions.
    fields: usize,
    /// DNS was found, and the flow is not renamed yet.
    pub dns: bool,
}

impl Default for Http2Parser {
    fn default() -> Self {
        Http2Parser {
            proto: AppProto::Http2,
            txs: TxList::default(),
            streams: KeyedMap::default(),
            sides: [Side::new(State::Preface), Side::new(State::Frame)],
            oldest: 0,
            abandoned: VecDeque::new(),
            fields: 0,
            dns: false,
        }
    }
}

impl Http2Parser {
    pub(super) fn get(&mut self, id: u64) -> Option<&mut Http2Tx> {
        self.txs.get_mut(id)
    }

    /// Creates the transaction of a stream; `None` if there are too many.
    pub(super) fn make(&mut self, cx: &mut Parse<'_>, stream: u32) -> Option<u64> {
        let max = (cx.config.http2.max_streams as usize).max(1);
        if self.txs.len() >= max {
            cx.shared.counters.tx_limit(self.proto);
            // With this many transactions, the parser reads no further frame.
            if self.txs.len() >= max.saturating_mul(2).saturating_add(FRAME_TXS) {
                return None;
            }
            // End the oldest open transaction. It is freed once it is inspected.
            let oldest = self.txs.first_incomplete(self.oldest, [COMPLETE; 2]);
            self.oldest = oldest;
            if let Some(tx) = self.get(oldest) {
                tx.event(Event::TooManyStreams);
                self.finish(cx, oldest);
            }
        }
        let inline = cx.config.http1.body_inline.unwrap_or(cx.inline);
        let grpc = cx.config.settings.get(AppProto::Http2, grpc::SETTING) != 0;
        let (id, _) = self.txs.push_default(|id, tx| {
            tx.set_up(id, stream, &cx.config.http2, inline);
            tx.grpc = grpc;
        });
        Some(id)
    }

    /// Creates a transaction of a single frame: of the connection, or of a stream without a transaction.
    pub(super) fn single(&mut self, cx: &mut Parse<'_>, dir: Direction, stream: u32) -> Option<u64> {
        let id = self.make(cx, stream)?;
        if let Some(tx) = self.get(id) {
            tx.base.one_sided(dir.reverse(), COMPLETE);
            tx.base.advance(dir, COMPLETE);
        }
        Some(id)
    }

    /// Reports an event with a transaction of its own.
    fn report(&mut self, cx: &mut Parse<'_>, dir: Direction, stream: u32, event: Event) {
        let id = match self.streams.get(&stream) {
            Some(id) => Some(*id),
            None => self.single(cx, dir, stream),
        };
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            tx.event(event);
            tx.base.touch(dir);
        }
    }

    /// Ends one side of a transaction.
    pub(super) fn end(&mut self, cx: &mut Parse<'_>, dir: Direction, id: u64, truncated: bool) {
        if self.txs.get(id).is_none_or(|tx| tx.is_complete(dir)) {
            return;
        }
        if let Some(tx) = self.get(id) {
            tx.end(cx, dir, truncated);
        }
    }

    /// The stream's transaction if fields may still open or continue it. A complete one does not count, although late frames
    /// belong to it until it is freed.
    pub(super) fn going_on(&self, stream: u32) -> Option<u64> {
        let id = *self.streams.get(&stream)?;
        self.txs.get(id).is_some_and(|t| t.base.progress != [COMPLETE; 2]).then_some(id)
    }

    /// Stops parsing of a transaction.
    pub(super) fn finish(&mut self, cx: &mut Parse<'_>, id: u64) {
        self.end(cx, Direction::ToServer, id, true);
        self.end(cx, Direction::ToClient, id, true);
    }

    /// Handles a stream that the client reset. Data that the server sent before may still arrive.
    pub(super) fn abandon(&mut self, cx: &mut Parse<'_>, id: u64) {
        self.abandoned.push_back(id);
        if self.abandoned.len() > ABANDONED_MAX
            && let Some(id) = self.abandoned.pop_front()
        {
            self.finish(cx, id);
        }
    }

    /// Counts field bytes of a transaction.
    pub(super) const fn hold(&mut self, bytes: usize) {
        self.fields = self.fields.saturating_add(bytes);
    }

    /// Decodes a field block into a message.
    pub(super) fn decode(&mut self, cx: &Parse<'_>, dir: Direction, of: Direction, id: Option<u64>, data: &[u8]) {
        let limit = cx.config.http2.max_table_size as usize;
        let left = FIELDS_BUDGET.saturating_sub(self.fields);
        let [client, server] = &mut self.sides;
        let hpack = if dir == Direction::ToServer { &mut client.hpack } else { &mut server.hpack };
        let Some(tx) = id.and_then(|id| self.txs.get_mut(id)) else {
            // Decode for the table only.
            let _ = hpack.block(data, &mut super::fields::Fields::default(), limit, 0);
            return;
        };
        let before = tx.fields_memory();
        let fields = &mut tx.message_mut(of).fields;
        let budget = fields.memory().saturating_add(left);
        let faults = hpack.block(data, fields, limit, budget);
        self.fields = (self.fields + tx.fields_memory()).saturating_sub(before);
        for (is, event) in [
            (faults.invalid, Event::InvalidHeader),
            (faults.overflow, Event::HeaderIntegerOverflow),
            (faults.dropped, Event::ReassemblyLimitReached),
        ] {
            if is {
                tx.event(event);
            }
        }
    }

    /// Parses the front of `rest`, which begins at offset `at` of the parser's input. Returns the consumed bytes; `None` if
    /// more data is needed.
    fn step(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8]) -> Result<Option<usize>, Outcome> {
        let state = self.sides[dir.index()].state;
        match state {
            State::Preface => self.preface(cx, dir, rest),
            State::Skip(left) => {
                let n = (left as usize).min(rest.len());
                self.sides[dir.index()].state = match left - n as u32 {
                    0 => State::Frame,
                    left => State::Skip(left),
                };
                Ok(Some(n))
            }
            State::Data { tx, left, pad, end } => {
                let n = (left as usize).min(rest.len());
                if n > 0
                    && let Some(t) = self.get(tx)
                {
                    t.data(cx, dir, rest.get(..n).unwrap_or(rest));
                    t.count(&mut cx.shared.counters.http_memory);
                }
                let left = left - n as u32;
                self.sides[dir.index()].state = match left {
                    0 if pad > 0 => State::Skip(pad),
                    0 => State::Frame,
                    _ => State::Data { tx, left, pad, end },
                };
                if left == 0 && end {
                    self.end(cx, dir, tx, false);
                }
                Ok(Some(n))
            }
            State::Frame => self.frame(cx, dir, at, rest),
        }
    }

    fn preface(&mut self, cx: &mut Parse<'_>, dir: Direction, rest: &[u8]) -> Result<Option<usize>, Outcome> {
        let same = PREFACE.iter().zip(rest).take_while(|(a, b)| a == b).count();
        if same == rest.len() && same < PREFACE.len() {
            return Ok(None);
        }
        if same == PREFACE.len() {
            self.sides[dir.index()].state = State::Frame;
            return Ok(Some(same));
        }
        // Without the preface, frames may follow nevertheless: a midstream pickup.
        let Some(h) = Header::read(rest) else { return if cx.end { Err(Outcome::Failed) } else { Ok(None) } };
        self.report(cx, dir, 0, Event::InvalidClientMagic);
        if h.kind > kind::CONTINUATION || h.reserved {
            return Err(Outcome::Failed);
        }
        self.sides[dir.index()].state = State::Frame;
        Ok(Some(0))
    }

    fn frame(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8]) -> Result<Option<usize>, Outcome> {
        let Some(h) = Header::read(rest) else { return Ok(None) };
        if self.txs.len() >= (cx.config.http2.max_streams as usize).max(1).saturating_mul(2) {
            return Err(Outcome::Full);
        }
        let length = h.length as usize;
        if h.kind == kind::DATA {
            return self.data_frame(cx, dir, at, h, rest);
        }
        if h.length > cx.config.http2.max_reassembly_size {
            self.report(cx, dir, h.stream, Event::LongFrameData);
            self.sides[dir.index()].state = State::Skip(h.length);
            return Ok(Some(HEADER));
        }
        let Some(payload) = rest.get(HEADER..HEADER + length) else { return Ok(None) };
        let id = self.whole_frame(cx, dir, h, payload);
        mark(cx, dir, at, h, id);
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            if h.reserved {
                tx.event(Event::InvalidFrameHeader);
            }
            tx.base.touch(dir);
            tx.count(&mut cx.shared.counters.http_memory);
        }
        Ok(Some(HEADER + length))
    }

    fn data_frame(
        &mut self,
        cx: &mut Parse<'_>,
        dir: Direction,
        at: usize,
        h: Header,
        rest: &[u8],
    ) -> Result<Option<usize>, Outcome> {
        let (mut used, mut left, mut pad) = (HEADER, h.length, 0);
        if h.has(flag::PADDED) && left > 0 {
            let Some(p) = rest.get(HEADER) else { return Ok(None) };
            (used, left, pad) = (HEADER + 1, left - 1, u32::from(*p));
        }
        let mut id = self.streams.get(&h.stream).copied();
        if h.stream == 0 {
            self.report(cx, dir, 0, Event::DataStreamZero);
        } else if id.is_none() && !self.was_opened(h.stream) {
            // Its fields were not seen.
            id = self.open(cx, dir, h.stream);
        }
        mark(cx, dir, at, h, id);
        let tx = id.and_then(|id| self.get(id)).filter(|t| !t.is_complete(dir));
        let state = match tx {
            // The stream has ended.
            None => State::Skip(left),
            Some(tx) => {
                tx.message_mut(dir).note(kind::DATA);
                if h.reserved {
                    tx.event(Event::InvalidFrameHeader);
                }
                let dns = tx.begin(cx.config, dir);
                if pad > left {
                    tx.event(Event::InvalidFrameData);
                    tx.base.touch(dir);
                    State::Skip(left)
                } else {
                    self.dns |= dns;
                    State::Data { tx: id.unwrap_or_default(), left: left - pad, pad, end: h.has(flag::END_STREAM) }
                }
            }
        };
        self.sides[dir.index()].state = state;
        Ok(Some(used))
    }

    /// Skips a gap of `len` bytes; `None` if the parser cannot continue after it.
    fn skip(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Option<()> {
        let mut missing = len;
        while missing > 0 {
            let n = match self.sides[dir.index()].state {
                State::Data { tx, left, pad, end } => {
                    let n = u64::from(left).min(missing);
                    if n > 0
                        && let Some(t) = self.get(tx)
                    {
                        t.gap(cx, dir, n);
                    }
                    let left = left - n as u32;
                    self.sides[dir.index()].state =
                        if left > 0 { State::Data { tx, left, pad, end } } else { State::Skip(pad) };
                    if left == 0 && end {
                        self.end(cx, dir, tx, true);
                    }
                    n
                }
                State::Skip(0) => {
                    self.sides[dir.index()].state = State::Frame;
                    continue;
                }
                State::Skip(left) => {
                    let n = u64::from(left).min(missing);
                    self.sides[dir.index()].state = State::Skip(left - n as u32);
                    n
                }
                // The next frame boundary is unknown, and so is the state of the tables.
                State::Frame | State::Preface => return None,
            };
            missing -= n;
        }
        Some(())
    }
}

/// Marks a frame and its parts.
fn mark(cx: &mut Parse<'_>, dir: Direction, at: usize, h: Header, tx: Option<u64>) {
    let frames = &mut cx.shared.frames;
    if !frames.wanted {
        return;
    }
    let body = (at + HEADER) as u64;
    let end = body + u64::from(h.length);
    frames.begin(dir, PDU_FRAME, at, tx);
    frames.end(dir, end);
    frames.begin(dir, HDR_FRAME, at, tx);
    frames.end(dir, body);
    if h.length > 0 {
        frames.begin(dir, DATA_FRAME, at + HEADER, tx);
        frames.end(dir, end);
    }
}

impl Parser for Http2Parser {
    fn proto(&self) -> AppProto {
        self.proto
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        cx.shared.wishes.stream_depth = cx.config.http1.depth(cx.inline);
        let mut at = 0;
        let mut outcome = Outcome::More;
        // A step without progress changes the state; the next step then consumes data or needs more.
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            let waits = matches!(self.sides[dir.index()].state, State::Frame | State::Preface);
            if rest.is_empty() && (waits || self.is_in_data(dir)) {
                break;
            }
            match self.step(cx, dir, at, rest) {
                Ok(Some(n)) => at += n,
                Ok(None) => break,
                Err(failed) => {
                    outcome = failed;
                    break;
                }
            }
        }
        self.sides[dir.index()].waiting = data.len().saturating_sub(at);
        if self.dns && self.proto == AppProto::Http2 {
            self.proto = AppProto::Doh2;
            if outcome == Outcome::More {
                outcome = Outcome::Rename(AppProto::Doh2);
            }
        }
        Parsed { consumed: at.min(data.len()), outcome }
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        if self.sides[dir.index()].waiting > 0 || self.skip(cx, dir, len).is_none() {
            return Outcome::Failed;
        }
        Outcome::More
    }

    fn take_over(&mut self, cx: &mut Parse<'_>, from: Upgrade) {
        self.upgraded(cx, from);
    }

    fn memory(&mut self) -> u64 {
        let side = |s: &Side| s.hpack.memory() + s.block.data.capacity();
        let own: usize = self.sides.iter().map(side).sum::<usize>()
            + self.streams.capacity() * size_of::<(u32, u64)>()
            + self.abandoned.capacity() * size_of::<u64>();
        self.txs.memory() + own as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, shared: &mut Shared, id: u64) {
        if let Some(mut tx) = self.txs.remove(id) {
            tx.uncount(&mut shared.counters.http_memory);
            self.fields = self.fields.saturating_sub(tx.fields_memory());
            if self.streams.get(&tx.stream) == Some(&id) {
                self.streams.remove(&tx.stream);
            }
        }
    }
}

impl Http2Parser {
    /// Whether the parser is within data that it consumes as it arrives.
    fn is_in_data(&self, dir: Direction) -> bool {
        match self.sides[dir.index()].state {
            State::Data { left, .. } => left > 0,
            State::Skip(left) => left > 0,
            State::Frame | State::Preface => false,
        }
    }
}
