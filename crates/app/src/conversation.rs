//! Parsers for message-based protocols.
//!
//! A protocol implements [`Conversation`]: it finds the length of a message ([`Conversation::framing`], for streams only; a
//! datagram is one message) and handles the message ([`Conversation::message`]). Its [`Content`] is the state of one request
//! with its response. [`parser`] wraps the implementation. The wrapper reassembles messages, delivers bodies in pieces, skips
//! bytes, finds the next message after a gap, stores and frees transactions, enforces the limit of open ones, counts their
//! memory, and offers them to rules and logs. If a reply decides how the bytes after a message are read, the wrapper keeps them
//! until it comes ([`Turn::keep`]).

mod replay;
mod side;
#[cfg(test)]
mod tests;
mod turn;
mod tx;

use std::fmt::Debug;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared, Upgrade};
use crate::proto::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};
use crate::window::WindowLimits;

use side::Side;
pub use turn::Turn;
pub use tx::Tx;

/// The default limit of open transactions in a flow, for protocols without a setting.
const TXS_MAX: usize = 256;

/// The limit of transactions that a message opens beyond twice their limit ([`Limit::EndAtOpen`]).
const MESSAGE_TXS: usize = 1100;

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
    /// A message of this many bytes, at least one, that heads a record of this many bytes, with messages of its own
    /// ([`Conversation::framing_within`]). A gap in the record skips the rest of it.
    Record(usize, u64),
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

impl Resume {
    /// Searches for the next message by its first `size` bytes, at least one, of which `begins` decides.
    pub fn search(data: &[u8], size: usize, begins: impl FnMut(&[u8]) -> bool) -> Resume {
        match data.windows(size).position(begins) {
            Some(0) => Resume::Here,
            Some(at) => Resume::Skip(at),
            // The data may end with the beginning of a message.
            None => match data.len().saturating_sub(size - 1) {
                0 => Resume::More,
                len => Resume::Skip(len),
            },
        }
    }
}

/// How the framework keeps a flow's transactions within their limit ([`Conversation::max_txs`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// At the limit, it ends all open transactions. The parser continues once they are freed.
    EndAll,
    /// Beyond the limit, each new transaction ends the oldest open one. At twice the limit the parser waits until transactions
    /// are freed. Datagrams cannot wait: the parser drops them at three times the limit.
    EndOldest,
    /// At the limit, [`Turn::open_within`] ends the oldest open transaction before it opens another one, for protocols that
    /// open many in a message. If only one side sends data, nothing completes them, so the parser gives up. At twice the limit,
    /// the next message waits until transactions are freed.
    EndAtOpen,
    /// It ends none: at the limit of complete ones, the client's next message waits until they are freed. For protocols with
    /// one open transaction at a time.
    Wait,
    /// The flow has one transaction, which no other follows. It is kept as long as the flow, because alerts on later data show it.
    Flow,
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

    /// As [`Conversation::framing`], within a record ([`Framing::Record`]) of which `left` bytes are left: `data` ends with it,
    /// and so do messages, with the bytes to skip and the body after them.
    fn framing_within(&mut self, dir: Direction, data: &[u8], left: u64, end: bool) -> Framing {
        let _ = (dir, data, end);
        Framing::Message(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// `data` is the beginning of a message whose rest has not come, for protocols that begin a frame there, note that it came
    /// before a reply, or refuse it early. The result has the same meaning as a message's.
    fn waits(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, data: &[u8]) -> Outcome {
        let _ = (turn, dir, data);
        Outcome::More
    }

    /// Handles a complete message or a datagram. Any result except [`Outcome::More`] ends the round: after [`Outcome::Change`]
    /// and [`Outcome::Done`] this parser does not see the data after the message. After [`Outcome::Full`], for protocols with a
    /// limit of their own, the message comes again, framed again, once transactions are freed.
    fn message(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, message: &[u8]) -> Outcome;

    /// Handles a piece of a body; `left` bytes of the body follow it. The result has the same meaning as a message's.
    fn body(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        let _ = (turn, dir, piece, left);
        Outcome::More
    }

    /// Whether the parser continues after a gap. It then skips the rest of the incomplete message or record. If the gap extends
    /// past that, [`Conversation::resume`] looks for the next one. Otherwise a gap ends the parser, unless [`Conversation::gap`]
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

    /// The data of a direction ends ([`Parse::end`]), or the engine's inspection of it does (at the stream depth): what is open in
    /// it is truncated.
    fn ends(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction) {
        let _ = (turn, dir);
    }

    /// The parser has handled all that is complete in the data of a direction, or its end, and each result was [`Outcome::More`]:
    /// for protocols that are done only once rules have inspected the data with the last message.
    fn handled(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction) -> Outcome {
        let _ = (turn, dir);
        Outcome::More
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

    /// As [`Parser::shows_start`].
    const SHOWS_START: bool = false;

    /// A transaction is freed: the state can drop what it keeps for it, and uncount what it counted in the counters of all flows.
    fn freed(&mut self, shared: &mut Shared, tx: &mut Tx<Self::Tx>) {
        let _ = (shared, tx);
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

    /// As [`Transaction::counted`].
    fn counted(&self) -> u64 {
        0
    }

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
    fn is_loggable(&self, base: &TxBase, complete: bool) -> bool {
        let _ = base;
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

    /// As [`Transaction::file_window`]; `None` for [`crate::window::file_window`], where each inspection sees all available data.
    fn file_window(&self, inline: bool) -> Option<WindowLimits> {
        let _ = inline;
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

/// The parser of a flow.
#[derive(Debug)]
struct MessageParser<S: Conversation> {
    state: S,
    txs: TxList<Tx<S::Tx>>,
    /// All transactions before this one are complete ([`Turn::end_oldest`]).
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
    /// Whether the number of transactions has reached this multiple of its limit.
    fn is_filled(&self, times: usize) -> bool {
        self.txs.len() >= self.state.max_txs().max(1).saturating_mul(times) || self.state.fill() >= times
    }

    /// Whether the parser has to wait until transactions are freed. If so, ends open ones, with an event, so that they can be
    /// freed.
    fn is_full(&mut self, cx: &mut Parse<'_>, dir: Direction) -> bool {
        let most = match S::LIMIT {
            Limit::EndAll | Limit::Wait => 1,
            Limit::EndOldest if cx.flow.proto == 6 => 2,
            Limit::EndAtOpen => 2,
            Limit::EndOldest => 3,
            Limit::Flow => return false,
        };
        if !self.is_filled(most) {
            return false;
        }
        let ends = match S::LIMIT {
            Limit::EndAll => self.txs.len(),
            Limit::EndOldest => self.txs.len() / 2 + 1,
            Limit::Wait if dir == Direction::ToClient => return false,
            Limit::Wait => {
                let latest = self.txs.next().checked_sub(1).and_then(|id| self.txs.get(id));
                let is_open = latest.is_some_and(|tx| tx.base.progress != self.complete);
                if self.txs.len() - usize::from(is_open) < self.state.max_txs() {
                    return false;
                }
                0
            }
            Limit::Flow | Limit::EndAtOpen => 0,
        };
        if !matches!(S::LIMIT, Limit::EndOldest | Limit::EndAtOpen) {
            cx.shared.counters.tx_limit(S::PROTO);
        }
        for _ in 0..ends {
            self.end_oldest(cx, u64::MAX);
        }
        true
    }

    /// As [`Turn::end_oldest`].
    fn end_oldest(&mut self, cx: &mut Parse<'_>, before: u64) {
        let (state, mut turn) = self.turn(cx, 0, 0);
        turn.end_oldest(state, before);
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
        let (back, gives_up) = (turn.back, turn.gives_up);
        if S::LIMIT == Limit::EndOldest && self.txs.next() > first {
            let most = if is_over { 0 } else { self.state.max_txs().max(1) };
            for _ in most.max(there)..self.txs.len() {
                cx.shared.counters.tx_limit(S::PROTO);
                self.end_oldest(cx, first);
            }
        }
        match back {
            _ if gives_up => Outcome::Failed,
            Some(dir) => self.reread(cx, dir, outcome),
            None => outcome,
        }
    }

    /// Handles the rest of the input from offset `at` on, which is incomplete.
    fn waits(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8]) -> Outcome {
        let (state, mut turn) = self.turn(cx, at, rest.len());
        state.waits(&mut turn, dir, rest)
    }

    fn turn<'a, 'b>(&'a mut self, cx: &'a mut Parse<'b>, at: usize, len: usize) -> (&'a mut S, Turn<'a, 'b, S::Tx>) {
        let MessageParser { state, txs, sides, complete, oldest } = self;
        (state, Turn { cx, txs, oldest, sides, back: None, gives_up: false, at, len, complete: *complete })
    }

    fn datagram(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if !data.is_empty() && !self.is_full(cx, dir) {
            let outcome = self.run(cx, 0, data.len(), |state, turn| state.message(turn, dir, data));
            return Parsed { consumed: data.len(), outcome };
        }
        Parsed::used(data.len())
    }
}

impl<S: Conversation> MessageParser<S> {
    /// Handles bytes that were taken back, before the rest of the other direction. Returns the outcome of that, or `outcome`.
    #[cold]
    fn reread(&mut self, cx: &mut Parse<'_>, dir: Direction, outcome: Outcome) -> Outcome {
        let end = std::mem::replace(&mut cx.end, false);
        let parsed = self.input(cx, dir, b"");
        cx.end = end;
        if parsed.outcome == Outcome::More { outcome } else { parsed.outcome }
    }

    /// Handles the input of a direction: bytes that were taken back, and then `data`.
    fn input(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let replay = self.sides[dir.index()].replay.as_mut();
        let mut again = replay.map_or_else(Vec::new, |k| std::mem::take(&mut k.again));
        if again.is_empty() {
            return self.consumed(cx, dir, data);
        }
        let before = again.len();
        again.extend_from_slice(data);
        // Their frames were marked the first time.
        let frames = std::mem::replace(&mut cx.shared.frames.wanted, false);
        let parsed = self.consumed(cx, dir, &again);
        cx.shared.frames.wanted = frames;
        if let Some(replay) = self.sides[dir.index()].replay.as_mut().filter(|_| parsed.consumed < before) {
            again.truncate(before);
            again.drain(..parsed.consumed);
            replay.again = again;
        }
        Parsed { consumed: parsed.consumed.saturating_sub(before), ..parsed }
    }

    /// As [`MessageParser::stream`], and notes what it consumed.
    fn consumed(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let parsed = self.stream(cx, dir, data);
        let is_heard = self.sides[dir.reverse().index()].start > 0;
        self.sides[dir.index()].consumes(data.get(..parsed.consumed).unwrap_or(data), is_heard);
        parsed
    }

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
            let (rest, left) = self.sides[dir.index()].within_record(at, rest);
            let framing = match left {
                0 => self.state.framing(dir, rest, cx.end),
                _ => self.state.framing_within(dir, rest, left, cx.end),
            };
            let mut record = 0;
            let (len, pass, body) = match framing {
                Framing::Message(len) => (len, 0, 0),
                Framing::Head(len, pass) => (len, pass, 0),
                Framing::Body(len, body) => (len, 0, body),
                Framing::Record(len, left) => {
                    record = left;
                    (len, 0, 0)
                }
                Framing::More => match self.waits(cx, dir, at, rest) {
                    Outcome::More => break,
                    outcome => return Parsed { consumed: at, outcome },
                },
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
                match self.waits(cx, dir, at, rest) {
                    Outcome::More => break,
                    outcome => return Parsed { consumed: at, outcome },
                }
            }
            if self.is_full(cx, dir) {
                return Parsed { consumed: at, outcome: Outcome::Full };
            }
            // A truncated message is handled as far as it goes.
            let len = len.clamp(usize::from(body == 0), rest.len());
            let message = rest.get(..len).unwrap_or(rest);
            let side = &mut self.sides[dir.index()];
            (side.pass, side.body) = (pass, body);
            let mut again = false;
            let outcome = match message {
                [] => Outcome::More,
                _ => self.run(cx, at, len, |state, turn| {
                    let outcome = state.message(turn, dir, message);
                    again = outcome == Outcome::Full;
                    outcome
                }),
            };
            if again {
                let side = &mut self.sides[dir.index()];
                (side.pass, side.body) = (0, 0);
                return Parsed { consumed: at, outcome };
            }
            at += len;
            if record > 0 {
                self.sides[dir.index()].begin_record(at, record);
            }
            if outcome != Outcome::More {
                return Parsed { consumed: at, outcome };
            }
        }
        let end = cx.end;
        let (state, mut turn) = self.turn(cx, data.len(), 0);
        if end {
            state.ends(&mut turn, dir);
            at = data.len();
        }
        Parsed { consumed: at, outcome: state.handled(&mut turn, dir) }
    }
}

impl<S: Conversation> Parser for MessageParser<S> {
    fn is_prompt(&self) -> bool {
        S::PROMPT
    }

    fn shows_start(&self) -> bool {
        S::SHOWS_START
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
            self.sides[dir.index()].is_heard = true;
            let (state, mut turn) = self.turn(cx, 0, 0);
            state.arrives(&mut turn, dir);
        }
        let parsed = self.input(cx, dir, data);
        self.sides[dir.index()].waiting = data.len().saturating_sub(parsed.consumed);
        parsed
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, mut len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        if let Some(replay) = &mut side.replay {
            replay.settle(u64::MAX, side.start);
        }
        let is_in_record = side.loses_in_record(len);
        if side.passes_gap(len) {
            return Outcome::More;
        }
        if side.body > 0 {
            let missing;
            (missing, len) = side.loses_body(len);
            let left = side.body;
            match len {
                0 => {}
                _ if is_in_record => side.skips_record(),
                _ => side.lost |= S::RESUMES,
            }
            let outcome = self.run(cx, 0, 0, |state, turn| state.body(turn, dir, Piece::Gap(missing), left));
            if outcome != Outcome::More || len == 0 {
                return outcome;
            }
        } else if is_in_record {
            side.skips_record();
        } else if S::RESUMES {
            side.loses(len);
        }
        self.run(cx, 0, 0, |state, turn| state.gap(turn, dir, len))
    }

    fn truncated(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        let (state, mut turn) = self.turn(cx, 0, 0);
        state.ends(&mut turn, dir);
    }

    fn take_over(&mut self, cx: &mut Parse<'_>, from: Upgrade) {
        let (state, mut turn) = self.turn(cx, 0, 0);
        state.take_over(&mut turn, from);
    }

    fn memory(&mut self) -> u64 {
        let kept: usize = self.sides.iter().map(Side::held).sum();
        self.txs.memory() + self.state.held() + kept as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, shared: &mut Shared, id: u64) {
        if S::LIMIT == Limit::Flow {
            self.txs.rest(id);
        } else if let Some(mut tx) = self.txs.remove(id) {
            self.state.freed(shared, &mut tx);
        }
    }
}
