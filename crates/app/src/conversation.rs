//! Parsers for message-based protocols.
//!
//! A protocol implements [`Conversation`]: it finds the length of a message ([`Conversation::framing`], for streams only; a
//! datagram is one message) and handles the message ([`Conversation::message`]). Its [`Content`] is the state of one request
//! with its response. [`parser`] wraps the implementation. The wrapper reassembles messages, delivers bodies in pieces, skips
//! bytes, finds the next message after a gap, stores and frees transactions, enforces the limit of open ones, counts their
//! memory, and offers them to rules and logs.

mod side;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared, Upgrade};
use crate::proto::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};
use crate::window::{self, WindowLimits};

use side::Side;

/// The default limit of open transactions in a flow, for protocols without a setting.
const TXS_MAX: usize = 256;

/// How the data at the front of a stream is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A message of this many bytes, at least one. The parser handles it once all of them have arrived.
    Message(usize),
    /// The beginning of a message whose length is not known yet.
    More,
    /// A message of this many bytes, followed by this many bytes to skip. A gap in the skipped bytes is harmless.
    Head(usize, u64),
    /// A message of this many bytes, or none, followed by a body of this many bytes, possibly more than are available. The
    /// parser gets the data as it arrives, and gaps in it ([`Conversation::body`]).
    Body(usize, u64),
    /// This many of the available bytes do not belong to a message.
    Skip(usize),
    /// This many bytes to skip, possibly more than are available. A gap in them is harmless.
    Pass(u64),
    /// Not this protocol.
    Broken,
}

/// A part of a body ([`Framing::Body`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Data, where the stream has it.
    Data(&'a [u8]),
    /// This many bytes are missing.
    Gap(u64),
}

/// Where the next message begins after a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// At the first byte.
    Here,
    /// Not within this many bytes, at least one.
    Skip(usize),
    /// More bytes are needed to decide.
    More,
}

/// How the framework keeps a flow's transactions within their limit ([`Conversation::max_txs`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// At the limit, it ends all open transactions. The parser continues once they are freed.
    EndAll,
    /// Beyond the limit, each new transaction ends the oldest open one. At twice the limit the parser waits until transactions
    /// are freed. Datagrams cannot wait: the parser drops them at three times the limit.
    EndOldest,
}

/// A protocol's parser state for one flow.
pub trait Conversation: Debug + Send + Sized + 'static {
    /// The protocol's state of a transaction.
    type Tx: Content;

    /// The protocol.
    const PROTO: AppProto;

    /// Creates the state for a new flow.
    fn new(config: &AppConfig, flow: &FlowCore) -> Self;

    /// Data of a stream has arrived in a direction. The parser frames it next.
    fn arrives(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction) {
        let _ = (turn, dir);
    }

    /// Frames the message at the front of `data`, which is not empty. With `end`, no more data follows.
    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        let _ = (dir, end);
        Framing::Message(data.len())
    }

    /// Handles a complete message or a datagram. Any result except [`Outcome::More`] ends the round: after [`Outcome::Change`]
    /// and [`Outcome::Done`] this parser does not see the data after the message.
    fn message(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, message: &[u8]) -> Outcome;

    /// Handles a piece of a body; `left` bytes of the body follow it. The result has the same meaning as a message's.
    fn body(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        let _ = (turn, dir, piece, left);
        Outcome::More
    }

    /// Whether the parser continues after a gap. It then skips the rest of the incomplete message. If the gap extends past that
    /// message, [`Conversation::resume`] looks for the next one. Otherwise a gap ends the parser, unless [`Conversation::gap`]
    /// decides differently.
    const RESUMES: bool = false;

    /// Finds the next message after a gap; `data` is not empty. With `end`, no more data follows.
    fn resume(&mut self, dir: Direction, data: &[u8], end: bool) -> Resume {
        let _ = (dir, data, end);
        Resume::Here
    }

    /// Handles a gap of `len` bytes that are not part of skipped data or of a body.
    fn gap(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, len: u64) -> Outcome {
        let _ = (turn, dir, len);
        if Self::RESUMES { Outcome::More } else { Outcome::Failed }
    }

    /// An HTTP/1 request upgraded the flow to this protocol.
    fn take_over(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, from: Upgrade) {
        let _ = (turn, from);
    }

    /// The flow changed to this protocol; `original` is its first one.
    fn comes_after(&mut self, original: AppProto) {
        let _ = original;
    }

    /// The limit of open transactions.
    fn max_txs(&self) -> usize {
        TXS_MAX
    }

    /// The framework's policy at that limit.
    const LIMIT: Limit = Limit::EndAll;

    /// How often the data that the state keeps for its transactions fills a limit of its own, rounded down. The result counts
    /// like the same multiple of the transactions' limit.
    fn fill(&self) -> usize {
        0
    }

    /// The framework is about to end a transaction because too many are open.
    fn overflows(&mut self, cx: &mut Parse<'_>, tx: &mut Tx<Self::Tx>) {
        let _ = (cx, tx);
    }

    /// The event for a transaction that was closed because too many were open; `None` if the protocol has no such event.
    const TOO_MANY: Option<u8> = None;

    /// As [`Parser::is_prompt`]: whether stream rules inspect each complete message at once, or wait for a full chunk.
    const PROMPT: bool = true;

    /// A transaction is freed: the state can drop what it keeps for it.
    fn freed(&mut self, tx: &mut Tx<Self::Tx>) {
        let _ = tx;
    }

    /// Heap memory of the state itself, in bytes.
    fn held(&self) -> u64 {
        0
    }
}

/// The protocol's part of a transaction.
pub trait Content: Debug + Send + 'static {
    /// Heap memory in bytes, without the size of the value itself.
    fn held(&self) -> u64;

    /// As [`Transaction::buffer`].
    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let _ = (id, dir, index, scratch);
        None
    }

    /// As [`Transaction::number`].
    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let _ = (id, dir, index);
        None
    }

    /// As [`Transaction::little_endian`].
    fn little_endian(&self, dir: Direction) -> bool {
        let _ = dir;
        false
    }

    /// Whether the event can be written; `complete` means that both directions are complete.
    fn is_loggable(&self, complete: bool) -> bool {
        complete
    }

    /// The number of events that an output writes for the transaction.
    fn records(&self, options: &AppLogOptions) -> usize {
        let _ = options;
        1
    }

    /// The direction whose addresses the event shows; `only` is the transaction's only direction, if it has just one.
    fn direction(&self, only: Option<Direction>) -> Direction {
        let _ = only;
        Direction::ToServer
    }

    /// As [`Content::direction`], for protocols where the options of the event type decide.
    fn addresses(&self, only: Option<Direction>, options: &AppLogOptions) -> Direction {
        let _ = options;
        self.direction(only)
    }

    /// The inspection limits for file data; `None` for [`window::file_window`], where each inspection sees all available data.
    fn file_window(&self) -> Option<WindowLimits> {
        None
    }

    /// As [`Transaction::ask`].
    fn ask(&self, base: &TxBase, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        let _ = (base, protocol, what, arg);
        None
    }

    /// As [`Content::log`] for [`LogFor::Event`], if a transaction has several events: writes number `record`.
    fn log_record(&self, base: &TxBase, record: usize, json: &mut Json, options: &AppLogOptions) {
        let _ = record;
        self.log(base, json, options, LogFor::Event);
    }

    /// Whether the protocol's counter (`app_layer.tx.*`) includes the transaction.
    fn is_counted(&self) -> bool {
        true
    }

    /// Appends the members of the event: `"sip":{...}` with its key. `base` has the transaction's number and files.
    fn log(&self, base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor);
}

/// A transaction: the common part and the protocol's part.
#[derive(Debug)]
pub struct Tx<C> {
    /// The state that all transactions have.
    pub base: TxBase,
    /// The protocol's state.
    pub content: C,
    /// Progress of a complete transaction, by direction.
    complete: [u8; 2],
}

impl<C: Content> Tx<C> {
    /// Creates a single-message transaction that another protocol's transaction carries. `complete` is the progress of a
    /// complete one.
    pub fn carried(id: u64, dir: Direction, content: C, complete: [u8; 2]) -> Tx<C> {
        let mut tx = Tx { base: TxBase { id, ..TxBase::default() }, content, complete };
        tx.finish_one_way(dir);
        tx
    }

    /// Marks a direction as complete.
    pub fn finish(&mut self, dir: Direction) {
        self.base.advance(dir, self.complete[dir.index()]);
    }

    /// Makes the transaction one-way: rules inspect it together with the data that goes in `dir`, whichever side sends a part
    /// of it.
    pub fn only(&mut self, dir: Direction) {
        self.base.one_sided(dir.reverse(), self.complete[dir.reverse().index()]);
    }

    /// Completes a transaction that has data in `dir` only.
    pub fn finish_one_way(&mut self, dir: Direction) {
        self.only(dir);
        self.finish(dir);
    }

    /// Marks a direction as updated, so that rules inspect it again.
    pub fn touch(&mut self, dir: Direction) {
        self.base.touch(dir);
    }

    /// Whether a direction is complete.
    pub fn is_finished(&self, dir: Direction) -> bool {
        self.base.progress[dir.index()] >= self.complete[dir.index()]
    }

    /// Adds an event. Rules inspect it even if the transaction is incomplete.
    pub fn event(&mut self, event: u8) {
        self.base.events.add(event);
        for dir in [Direction::ToServer, Direction::ToClient] {
            if self.base.only.is_none_or(|only| only == dir) {
                self.base.touch(dir);
            }
        }
    }
}

/// The context in which a parser handles a message.
#[derive(Debug)]
pub struct Turn<'a, 'b, C> {
    /// The flow, the settings, and the state that parsers share.
    pub cx: &'a mut Parse<'b>,
    txs: &'a mut TxList<Tx<C>>,
    /// The message's offset in the parser's input, and its length.
    at: usize,
    len: usize,
    complete: [u8; 2],
}

impl<'b, C: Content> Turn<'_, 'b, C> {
    /// Opens a transaction.
    pub fn open(&mut self, content: C) -> &mut Tx<C> {
        let complete = self.complete;
        let id = self.txs.push(|id| Tx { base: TxBase { id, ..TxBase::default() }, content, complete });
        self.txs.get_mut(id).unwrap_or_else(|| unreachable!("it was added"))
    }

    /// Opens a single-message transaction that has no response.
    pub fn one_way(&mut self, dir: Direction, content: C) -> &mut Tx<C> {
        let tx = self.open(content);
        tx.finish_one_way(dir);
        tx
    }

    /// The transaction with this number, unless it was freed.
    pub fn tx(&mut self, id: u64) -> Option<&mut Tx<C>> {
        self.txs.get_mut(id)
    }

    /// The transaction with this number, unless it was freed, together with the parse context, which its files need.
    pub fn tx_and_parse(&mut self, id: u64) -> Option<(&mut Tx<C>, &mut Parse<'b>)> {
        Some((self.txs.get_mut(id)?, self.cx))
    }

    /// As [`Turn::tx`], to read only: does not count as a change.
    pub fn peek(&self, id: u64) -> Option<&Tx<C>> {
        self.txs.get(id)
    }

    /// The latest transaction.
    pub fn latest(&mut self) -> Option<&mut Tx<C>> {
        let id = self.txs.next().checked_sub(1)?;
        self.txs.get_mut(id)
    }

    /// Marks `len` bytes of the message, starting at `from`, as a frame.
    pub fn frame(&mut self, dir: Direction, kind: u8, from: usize, len: usize, tx: Option<u64>) {
        let frames = &mut self.cx.shared.frames;
        if frames.wanted && from <= self.len {
            frames.begin(dir, kind, self.at + from, tx);
            frames.end(dir, (self.at + from + len) as u64);
        }
    }
}

/// The parser of a flow.
#[derive(Debug)]
struct MessageParser<S: Conversation> {
    state: S,
    txs: TxList<Tx<S::Tx>>,
    /// All transactions before this one are complete ([`Limit::EndOldest`]).
    oldest: u64,
    sides: [Side; 2],
    complete: [u8; 2],
}

/// Creates the parser of a flow; a protocol's declaration refers to it.
pub fn parser<S: Conversation>(config: &AppConfig, flow: &FlowCore) -> Box<dyn Parser> {
    let complete = config.declared.complete(S::PROTO);
    let state = S::new(config, flow);
    Box::new(MessageParser { state, txs: TxList::default(), oldest: 0, sides: Default::default(), complete })
}

impl<S: Conversation> MessageParser<S> {
    /// The multiple of its limit that the number of transactions has reached.
    fn fill(&self) -> usize {
        (self.txs.len() / self.state.max_txs().max(1)).max(self.state.fill())
    }

    /// Whether the parser has to wait until transactions are freed. If so, ends open ones, with an event, so that they can be
    /// freed.
    fn is_full(&mut self, cx: &mut Parse<'_>) -> bool {
        let most = match S::LIMIT {
            Limit::EndAll => 1,
            Limit::EndOldest if cx.flow.proto == 6 => 2,
            Limit::EndOldest => 3,
        };
        if self.fill() < most {
            return false;
        }
        let ends = match S::LIMIT {
            Limit::EndAll => {
                cx.shared.counters.tx_limit(S::PROTO);
                self.txs.len()
            }
            Limit::EndOldest => self.txs.len() / 2 + 1,
        };
        for _ in 0..ends {
            self.end_oldest(cx, u64::MAX);
        }
        true
    }

    /// Ends the oldest open transaction before number `before`. It is freed once it is inspected.
    fn end_oldest(&mut self, cx: &mut Parse<'_>, before: u64) {
        self.oldest = self.txs.first_incomplete(self.oldest, self.complete);
        let Some(tx) = self.txs.get_mut(self.oldest).filter(|_| self.oldest < before) else { return };
        self.state.overflows(cx, tx);
        if let Some(event) = S::TOO_MANY {
            tx.event(event);
        }
        tx.finish(Direction::ToServer);
        tx.finish(Direction::ToClient);
    }

    /// Calls the state with `len` bytes at offset `at` of the parser's input. Keeps the transactions that it opens within the
    /// limit.
    fn run(
        &mut self,
        cx: &mut Parse<'_>,
        at: usize,
        len: usize,
        call: impl FnOnce(&mut S, &mut Turn<'_, '_, S::Tx>) -> Outcome,
    ) -> Outcome {
        let (first, there) = (self.txs.next(), self.txs.len());
        let is_over = S::LIMIT == Limit::EndOldest && self.state.fill() > 0;
        let (state, mut turn) = self.turn(cx, at, len);
        let outcome = call(state, &mut turn);
        if S::LIMIT == Limit::EndOldest && self.txs.next() > first {
            let most = if is_over { 0 } else { self.state.max_txs().max(1) };
            for _ in most.max(there)..self.txs.len() {
                cx.shared.counters.tx_limit(S::PROTO);
                self.end_oldest(cx, first);
            }
        }
        outcome
    }

    fn turn<'a, 'b>(&'a mut self, cx: &'a mut Parse<'b>, at: usize, len: usize) -> (&'a mut S, Turn<'a, 'b, S::Tx>) {
        (&mut self.state, Turn { cx, txs: &mut self.txs, at, len, complete: self.complete })
    }

    fn datagram(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if !data.is_empty() && !self.is_full(cx) {
            let outcome = self.run(cx, 0, data.len(), |state, turn| state.message(turn, dir, data));
            return Parsed { consumed: data.len(), outcome };
        }
        Parsed::used(data.len())
    }
}

impl<S: Conversation> MessageParser<S> {
    fn stream(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|r| !r.is_empty()) {
            let side = &mut self.sides[dir.index()];
            side.message = 0;
            if side.pass > 0 {
                let len = usize::try_from(side.pass).unwrap_or(usize::MAX).min(rest.len());
                side.pass -= len as u64;
                at += len;
                continue;
            }
            if side.body > 0 {
                let piece = rest.get(..usize::try_from(side.body).unwrap_or(usize::MAX)).unwrap_or(rest);
                side.body -= piece.len() as u64;
                let (len, left) = (piece.len(), side.body);
                let outcome = self.run(cx, at, len, |state, turn| state.body(turn, dir, Piece::Data(piece), left));
                at += len;
                if outcome != Outcome::More {
                    return Parsed { consumed: at, outcome };
                }
                continue;
            }
            if side.lost {
                match self.state.resume(dir, rest, cx.end) {
                    Resume::Here => side.lost = false,
                    Resume::Skip(len) => {
                        at += len.clamp(1, rest.len());
                        continue;
                    }
                    Resume::More => break,
                }
            }
            let (len, pass, body) = match self.state.framing(dir, rest, cx.end) {
                Framing::Message(len) => (len, 0, 0),
                Framing::Head(len, pass) => (len, pass, 0),
                Framing::Body(len, body) => (len, 0, body),
                Framing::More => break,
                Framing::Skip(len) => {
                    at += len.clamp(1, rest.len());
                    continue;
                }
                Framing::Pass(len) => {
                    self.sides[dir.index()].pass = len.max(1);
                    continue;
                }
                Framing::Broken => return Parsed { consumed: at, outcome: Outcome::Failed },
            };
            if len > rest.len() && !cx.end {
                self.sides[dir.index()].message = (len as u64).saturating_add(pass).saturating_add(body);
                break;
            }
            if self.is_full(cx) {
                return Parsed { consumed: at, outcome: Outcome::Full };
            }
            // A truncated message is handled as far as it goes.
            let len = len.clamp(usize::from(body == 0), rest.len());
            let message = rest.get(..len).unwrap_or(rest);
            let outcome = match message {
                [] => Outcome::More,
                _ => self.run(cx, at, len, |state, turn| state.message(turn, dir, message)),
            };
            let side = &mut self.sides[dir.index()];
            (side.pass, side.body) = (pass, body);
            at += len;
            if outcome != Outcome::More {
                return Parsed { consumed: at, outcome };
            }
        }
        Parsed::used(if cx.end { data.len() } else { at })
    }
}

impl<S: Conversation> Parser for MessageParser<S> {
    fn is_prompt(&self) -> bool {
        S::PROMPT
    }

    fn proto(&self) -> AppProto {
        S::PROTO
    }

    fn comes_after(&mut self, original: AppProto) {
        self.state.comes_after(original);
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if cx.flow.proto != 6 {
            return self.datagram(cx, dir, data);
        }
        if !data.is_empty() {
            let (state, mut turn) = self.turn(cx, 0, 0);
            state.arrives(&mut turn, dir);
        }
        let parsed = self.stream(cx, dir, data);
        self.sides[dir.index()].waiting = data.len().saturating_sub(parsed.consumed);
        parsed
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, mut len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        if side.passes_gap(len) {
            return Outcome::More;
        }
        if side.body > 0 {
            let missing;
            (missing, len) = side.loses_body(len);
            let left = side.body;
            side.lost |= S::RESUMES && len > 0;
            let outcome = self.run(cx, 0, 0, |state, turn| state.body(turn, dir, Piece::Gap(missing), left));
            if outcome != Outcome::More || len == 0 {
                return outcome;
            }
        } else if S::RESUMES {
            side.loses(len);
        }
        self.run(cx, 0, 0, |state, turn| state.gap(turn, dir, len))
    }

    fn take_over(&mut self, cx: &mut Parse<'_>, from: Upgrade) {
        let (state, mut turn) = self.turn(cx, 0, 0);
        state.take_over(&mut turn, from);
    }

    fn memory(&mut self) -> u64 {
        self.txs.memory() + self.state.held()
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        if let Some(mut tx) = self.txs.remove(id) {
            self.state.freed(&mut tx);
        }
    }
}

impl<C: Content> Transaction for Tx<C> {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        self.base.held() + self.content.held()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        self.content.buffer(id, dir, index, scratch)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        self.content.number(id, dir, index)
    }

    fn little_endian(&self, dir: Direction) -> bool {
        self.content.little_endian(dir)
    }

    fn is_loggable(&self, complete: bool) -> bool {
        self.content.is_loggable(complete)
    }

    fn direction(&self, options: &AppLogOptions) -> Direction {
        self.content.addresses(self.base.only, options)
    }

    fn ask(&self, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        self.content.ask(&self.base, protocol, what, arg)
    }

    fn log_record(&self, record: usize, json: &mut Json, options: &AppLogOptions) {
        self.content.log_record(&self.base, record, json, options);
    }

    fn is_counted(&self) -> bool {
        self.content.is_counted()
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        self.content.records(options)
    }

    fn inspected(&mut self, dir: Direction) {
        if let Some(limits) = self.content.file_window() {
            self.base.files.inspected(dir, limits);
        }
    }

    fn file_window(&self, _dir: Direction, inline: bool) -> WindowLimits {
        self.content.file_window().unwrap_or_else(|| window::file_window(inline))
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        self.content.log(&self.base, json, options, what);
    }
}
