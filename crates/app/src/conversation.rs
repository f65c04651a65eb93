//! Parsers of protocols that speak in messages.
//!
//! A protocol implements [`Conversation`]: how long a message is ([`Conversation::framing`], for streams alone; a datagram is one
//! message) and what a message means ([`Conversation::message`]). What it keeps of a request and its answer is its [`Content`].
//! The parser that [`parser`] makes does the rest: it assembles messages, skips bytes, finds the next message behind a gap,
//! keeps and frees transactions, holds the limit of open ones, counts their memory, and offers them to rules and logs.

use std::fmt::Debug;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared, Upgrade};
use crate::registry::{AppProto, protocol};
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};
use crate::window::WindowLimits;

/// Most transactions of a flow that are not complete, where a protocol has no setting for it.
const TXS_MAX: usize = 256;

/// What the bytes at the beginning of a stream's data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A message of this many bytes, at least one. It is handled once all of them are there.
    Message(usize),
    /// The beginning of a message whose length is not known yet.
    More,
    /// A message of this many bytes, followed by this many bytes to skip. A gap in the latter does no harm.
    Head(usize, u64),
    /// This many of the available bytes are not a message.
    Skip(usize),
    /// This many bytes to skip: more than are available, perhaps, and a gap in them does no harm.
    Pass(u64),
    /// Not this protocol.
    Broken,
}

/// Where the next message begins behind a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// At the first byte.
    Here,
    /// Not among this many bytes, at least one.
    Skip(usize),
    /// More bytes are needed to tell.
    More,
}

/// The parser's state of one flow of a protocol.
pub trait Conversation: Debug + Send + Sized + 'static {
    /// What is kept of a transaction.
    type Tx: Content;

    /// Which protocol.
    const PROTO: AppProto;

    /// The state of a new flow.
    fn new(config: &AppConfig, flow: &FlowCore) -> Self;

    /// What `data`, which is not empty, begins with. With `end` nothing will follow it.
    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        let _ = (dir, end);
        Framing::Message(data.len())
    }

    /// A whole message, or a datagram. Anything but [`Outcome::More`] ends the round: [`Outcome::Change`] and
    /// [`Outcome::Done`] leave what is behind the message to others.
    fn message(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, message: &[u8]) -> Outcome;

    /// Whether the parser goes on behind a gap: the rest of a message that misses bytes is skipped. If the gap does not end in a known
    /// message, [`Conversation::resume`] looks for the next one. Without it a gap ends the parser, unless [`Conversation::gap`]
    /// decides otherwise.
    const RESUMES: bool = false;

    /// Where the next message begins; `data` is not empty. With `end` nothing will follow it.
    fn resume(&mut self, dir: Direction, data: &[u8], end: bool) -> Resume {
        let _ = (dir, data, end);
        Resume::Here
    }

    /// `len` bytes are missing that would not be skipped.
    fn gap(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, dir: Direction, len: u64) -> Outcome {
        let _ = (turn, dir, len);
        if Self::RESUMES { Outcome::More } else { Outcome::Failed }
    }

    /// Whether each direction's stream is a frame that rules may look at.
    const STREAM_FRAMES: bool = false;

    /// The flow changed to this protocol with a request of HTTP/1.
    fn take_over(&mut self, turn: &mut Turn<'_, '_, Self::Tx>, from: Upgrade) {
        let _ = (turn, from);
    }

    /// The flow was of another protocol before, and changed to this one.
    fn comes_after(&mut self, original: AppProto) {
        let _ = original;
    }

    /// Most transactions that may be open at once.
    fn max_txs(&self) -> usize {
        TXS_MAX
    }

    /// Event of a transaction that was given up because too many were open; none where the protocol has no name for it.
    const TOO_MANY: Option<u8> = None;

    /// As [`Parser::is_prompt`]: whether rules on the stream look at a message once it is complete, or wait for a chunk.
    const PROMPT: bool = true;

    /// A transaction is freed: what the state keeps of it may go.
    fn freed(&mut self, tx: Tx<Self::Tx>) {
        let _ = tx;
    }

    /// Heap memory of the state itself, in bytes.
    fn held(&self) -> u64 {
        0
    }
}

/// What a protocol keeps of a transaction.
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

    /// Whether its event can be written: `complete` says that both directions are.
    fn is_loggable(&self, complete: bool) -> bool {
        complete
    }

    /// How many events an output makes of it.
    fn records(&self, options: &AppLogOptions) -> usize {
        let _ = options;
        1
    }

    /// Which way the addresses of its event go; `only` is the only direction that there is something in.
    fn direction(&self, only: Option<Direction>) -> Direction {
        let _ = only;
        Direction::ToServer
    }

    /// The same where options of the event type have a say in it.
    fn addresses(&self, only: Option<Direction>, options: &AppLogOptions) -> Direction {
        let _ = options;
        self.direction(only)
    }

    /// When data of its files is due for inspection; none where all that there is of it is looked at each time.
    fn file_window(&self) -> Option<WindowLimits> {
        None
    }

    /// As [`Transaction::ask`].
    fn ask(&self, base: &TxBase, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        let _ = (base, protocol, what, arg);
        None
    }

    /// As [`Content::log`] for [`LogFor::Event`], where there are several events: that of number `record`.
    fn log_record(&self, base: &TxBase, record: usize, json: &mut Json, options: &AppLogOptions) {
        let _ = record;
        self.log(base, json, options, LogFor::Event);
    }

    /// Whether it counts among the transactions of its protocol (`app_layer.tx.*`).
    fn is_counted(&self) -> bool {
        true
    }

    /// Appends the members of its event: `"sip":{...}` with its key. `base` has its number and files.
    fn log(&self, base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor);
}

/// A transaction: what all have, and what the protocol keeps.
#[derive(Debug)]
pub struct Tx<C> {
    /// The state that every transaction has.
    pub base: TxBase,
    /// The state of the protocol.
    pub content: C,
    /// Progress of a complete transaction, by direction.
    complete: [u8; 2],
}

impl<C: Content> Tx<C> {
    /// A transaction of one message that is carried by one of another protocol. `complete` is the progress of a complete one.
    pub fn carried(id: u64, dir: Direction, content: C, complete: [u8; 2]) -> Tx<C> {
        let mut tx = Tx { base: TxBase { id, ..TxBase::default() }, content, complete };
        tx.finish_one_way(dir);
        tx
    }

    /// Nothing more comes in a direction.
    pub fn finish(&mut self, dir: Direction) {
        self.base.advance(dir, self.complete[dir.index()]);
    }

    /// It is of one direction: whichever side sends what belongs to it, rules look at it with what goes in `dir`.
    pub fn only(&mut self, dir: Direction) {
        self.base.one_sided(dir.reverse(), self.complete[dir.reverse().index()]);
    }

    /// Nothing will ever come but in `dir`, where all of it is there now.
    pub fn finish_one_way(&mut self, dir: Direction) {
        self.only(dir);
        self.finish(dir);
    }

    /// Something new came in a direction that rules may look at.
    pub fn touch(&mut self, dir: Direction) {
        self.base.touch(dir);
    }

    /// Whether nothing more comes in a direction.
    pub fn is_finished(&self, dir: Direction) -> bool {
        self.base.progress[dir.index()] >= self.complete[dir.index()]
    }

    /// Adds an event, which rules look at, complete or not.
    pub fn event(&mut self, event: u8) {
        self.base.events.add(event);
        for dir in [Direction::ToServer, Direction::ToClient] {
            if self.base.only.is_none_or(|only| only == dir) {
                self.base.touch(dir);
            }
        }
    }
}

/// What a parser may do while it handles a message.
#[derive(Debug)]
pub struct Turn<'a, 'b, C> {
    /// The flow, the settings, and what parsers share.
    pub cx: &'a mut Parse<'b>,
    txs: &'a mut TxList<Tx<C>>,
    /// Where the message begins in what the parser was given, and how long it is.
    at: usize,
    len: usize,
    complete: [u8; 2],
}

impl<'b, C: Content> Turn<'_, 'b, C> {
    /// Begins a transaction.
    pub fn open(&mut self, content: C) -> &mut Tx<C> {
        let complete = self.complete;
        let id = self.txs.push(|id| Tx { base: TxBase { id, ..TxBase::default() }, content, complete });
        self.txs.get_mut(id).unwrap_or_else(|| unreachable!("it was added"))
    }

    /// A transaction of one message that has no answer.
    pub fn one_way(&mut self, dir: Direction, content: C) -> &mut Tx<C> {
        let tx = self.open(content);
        tx.finish_one_way(dir);
        tx
    }

    /// The transaction of that number, unless it was freed.
    pub fn tx(&mut self, id: u64) -> Option<&mut Tx<C>> {
        self.txs.get_mut(id)
    }

    /// The transaction of that number, unless it was freed, beside what the parser is given: for its files.
    pub fn tx_and_parse(&mut self, id: u64) -> Option<(&mut Tx<C>, &mut Parse<'b>)> {
        Some((self.txs.get_mut(id)?, self.cx))
    }

    /// The latest transaction.
    pub fn latest(&mut self) -> Option<&mut Tx<C>> {
        let id = self.txs.next().checked_sub(1)?;
        self.txs.get_mut(id)
    }

    /// Marks a frame of the message: `len` bytes from `from` on.
    pub fn frame(&mut self, dir: Direction, kind: u8, from: usize, len: usize, tx: Option<u64>) {
        let frames = &mut self.cx.shared.frames;
        if frames.wanted && from <= self.len {
            frames.begin(dir, kind, self.at + from, tx);
            frames.end(dir, (self.at + from + len) as u64);
        }
    }
}

/// A direction of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// Bytes that were given and not taken.
    waiting: usize,
    /// Length of the message that they begin; 0 where it is not known.
    message: usize,
    /// Bytes to skip.
    pass: u64,
    /// Bytes are missing, and it is not known where the next message begins.
    lost: bool,
}

impl Side {
    /// `len` bytes are missing. Returns whether all of them would be skipped anyway.
    fn passes_gap(&mut self, len: u64) -> bool {
        // The parser receives the waiting bytes again before those behind the gap.
        let waiting = self.waiting as u64;
        match self.pass.saturating_sub(waiting).checked_sub(len) {
            Some(left) if self.pass > 0 => {
                self.pass = waiting + left;
                true
            }
            _ => false,
        }
    }

    /// `len` bytes are missing that would not be skipped. The parser goes on behind the rest of the message that waits, or has to find
    /// the next one.
    fn loses(&mut self, len: u64) {
        let (waiting, message) = (self.waiting as u64, self.message as u64);
        let is_within =
            self.pass == 0 && !self.lost && message.checked_sub(waiting).is_some_and(|missing| len <= missing);
        self.pass = if is_within { message - len } else { waiting };
        self.lost |= !is_within;
        self.message = 0;
    }
}

/// A flow's parser.
#[derive(Debug)]
struct MessageParser<S: Conversation> {
    state: S,
    txs: TxList<Tx<S::Tx>>,
    sides: [Side; 2],
    complete: [u8; 2],
}

/// Makes the parser of a flow; for a protocol's declaration.
pub fn parser<S: Conversation>(config: &AppConfig, flow: &FlowCore) -> Box<dyn Parser> {
    let complete = protocol(S::PROTO).map_or([1; 2], |p| p.complete());
    Box::new(MessageParser { state: S::new(config, flow), txs: TxList::default(), sides: Default::default(), complete })
}

impl<S: Conversation> MessageParser<S> {
    /// Makes room for a transaction: the oldest open ones are complete as they are, with an event. Whether there was none.
    fn is_full(&mut self, cx: &mut Parse<'_>) -> bool {
        if self.txs.len() < self.state.max_txs().max(1) {
            return false;
        }
        cx.shared.counters.tx_limit(S::PROTO);
        let mut from = 0;
        while let Some(id) = self.txs.next_id(from) {
            from = id + 1;
            let Some(tx) = self.txs.get_mut(id) else { continue };
            let open = [Direction::ToServer, Direction::ToClient].into_iter().any(|d| !tx.is_finished(d));
            if open {
                if let Some(event) = S::TOO_MANY {
                    tx.event(event);
                }
                tx.finish(Direction::ToServer);
                tx.finish(Direction::ToClient);
            }
        }
        true
    }

    fn turn<'a, 'b>(&'a mut self, cx: &'a mut Parse<'b>, at: usize, len: usize) -> (&'a mut S, Turn<'a, 'b, S::Tx>) {
        (&mut self.state, Turn { cx, txs: &mut self.txs, at, len, complete: self.complete })
    }

    fn datagram(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if !data.is_empty() && !self.is_full(cx) {
            let (state, mut turn) = self.turn(cx, 0, data.len());
            let outcome = state.message(&mut turn, dir, data);
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
            let (len, behind) = match self.state.framing(dir, rest, cx.end) {
                Framing::Message(len) => (len, 0),
                Framing::Head(len, behind) => (len, behind),
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
                self.sides[dir.index()].message = len;
                break;
            }
            // What was cut off is a message as far as it goes.
            let len = len.clamp(1, rest.len());
            if self.is_full(cx) {
                return Parsed { consumed: at, outcome: Outcome::Full };
            }
            let message = rest.get(..len).unwrap_or(rest);
            let (state, mut turn) = self.turn(cx, at, len);
            let outcome = state.message(&mut turn, dir, message);
            self.sides[dir.index()].pass = behind;
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
        if S::STREAM_FRAMES && !data.is_empty() {
            cx.shared.frames.begin_stream(dir);
        }
        let parsed = self.stream(cx, dir, data);
        self.sides[dir.index()].waiting = data.len().saturating_sub(parsed.consumed);
        parsed
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        if side.passes_gap(len) {
            return Outcome::More;
        }
        if S::RESUMES {
            side.loses(len);
        }
        let (state, mut turn) = self.turn(cx, 0, 0);
        state.gap(&mut turn, dir, len)
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
        if let Some(tx) = self.txs.remove(id) {
            self.state.freed(*tx);
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

    fn file_window(&self, _dir: Direction) -> WindowLimits {
        self.content.file_window().unwrap_or(WindowLimits { min: 0, window: 4096 })
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        self.content.log(&self.base, json, options, what);
    }
}
