//! The operations of a parser while it handles a message: transactions, bodies, frames, bytes to read again.

use margay_flow::Direction;

use crate::parser::Parse;
use crate::tx::TxBase;
use crate::tx_list::TxList;

use super::side::Side;
use super::{Content, Conversation, MESSAGE_TXS, Tx};

/// The context in which a parser handles a message.
#[derive(Debug)]
pub struct Turn<'a, 'b, C> {
    /// The flow, the settings, and the state that parsers share.
    pub cx: &'a mut Parse<'b>,
    pub(super) txs: &'a mut TxList<Tx<C>>,
    /// All transactions before this one are complete.
    pub(super) oldest: &'a mut u64,
    pub(super) sides: &'a mut [Side; 2],
    /// The direction whose bytes were taken back.
    pub(super) back: Option<Direction>,
    /// The parser gives up.
    pub(super) gives_up: bool,
    /// The message's offset in the parser's input, and its length.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) complete: [u8; 2],
}

impl<'b, C: Content> Turn<'_, 'b, C> {
    /// Opens a transaction.
    pub fn open(&mut self, content: C) -> &mut Tx<C> {
        let complete = self.complete;
        let id = self.txs.push(|id| Tx { base: TxBase { id, ..TxBase::default() }, content, complete });
        self.txs.get_mut(id).unwrap_or_else(|| unreachable!("it was added"))
    }

    /// As [`Turn::open`], for a protocol with [`super::Limit::EndAtOpen`]. `None` if there are too many transactions, or the
    /// parser gives up.
    pub fn open_within<S: Conversation<Tx = C>>(&mut self, state: &mut S, content: C) -> Option<&mut Tx<C>> {
        let most = state.max_txs().max(1);
        if self.txs.len() >= most {
            self.cx.shared.counters.tx_limit(S::PROTO);
            if self.txs.len() >= most.saturating_mul(2).saturating_add(MESSAGE_TXS) {
                return None;
            }
            self.end_oldest(state, u64::MAX);
            self.gives_up |= !self.sides.iter().all(|side| side.is_heard);
        }
        if self.gives_up { None } else { Some(self.open(content)) }
    }

    /// Ends the oldest open transaction before number `before`, because too many are open. It is freed once it is inspected.
    pub(super) fn end_oldest<S: Conversation<Tx = C>>(&mut self, state: &mut S, before: u64) {
        *self.oldest = self.txs.first_incomplete(*self.oldest, self.complete);
        let Some(tx) = self.txs.get_mut(*self.oldest).filter(|_| *self.oldest < before) else { return };
        state.overflows(self.cx, tx);
        if let Some(event) = S::TOO_MANY {
            tx.event(event);
        }
        tx.finish(Direction::ToServer);
        tx.finish(Direction::ToClient);
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
        self.txs.get_mut(self.latest_id()?)
    }

    /// The number of the latest transaction, which may have been freed.
    pub fn latest_id(&self) -> Option<u64> {
        self.txs.next().checked_sub(1)
    }

    /// The number of the next transaction.
    pub fn next_id(&self) -> u64 {
        self.txs.next()
    }

    /// The first transaction from this number on that is not freed; if there is none, the number of the next one.
    pub fn kept_from(&self, id: u64) -> u64 {
        self.txs.next_id(id).unwrap_or(self.txs.next())
    }

    /// How many transactions are not freed.
    pub fn count(&self) -> usize {
        self.txs.len()
    }

    /// A body of this many bytes follows the message, as with [`super::Framing::Body`]: for protocols that learn its length when they
    /// handle the message.
    pub fn body(&mut self, dir: Direction, len: u64) {
        self.sides[dir.index()].body = len;
    }

    /// Keeps the bytes of `dir` after this message: the reply decides how the peer reads them. The parser reads them at once,
    /// and calls [`Turn::settle`] or [`Turn::take_back`] when the reply comes. Returns their stream offset. None are kept while
    /// the other direction has had no data: it may not be visible.
    pub fn keep(&mut self, dir: Direction) -> u64 {
        let side = &mut self.sides[dir.index()];
        let from = side.start + (self.at + self.len) as u64;
        side.replay.get_or_insert_default().mark(from);
        from
    }

    /// The bytes of `dir` that were kept from stream offset `from` on, or from an earlier one, were read rightly.
    pub fn settle(&mut self, dir: Direction, from: u64) {
        let side = &mut self.sides[dir.index()];
        if let Some(replay) = &mut side.replay {
            replay.settle(from, side.start);
        }
    }

    /// The bytes of the other direction that were kept from stream offset `from` on were read wrongly: they come and are framed
    /// again as soon as the parser has handled this message. It then returns [`crate::parser::Outcome::Resume`], because all of
    /// them precede the rest of this direction. Returns the number of bytes; `None` if they are gone, and the parser has to go
    /// on in the middle.
    pub fn take_back(&mut self, dir: Direction, from: u64) -> Option<usize> {
        self.back = Some(dir);
        self.cx.shared.frames.void(dir);
        self.sides[dir.index()].take_back(from)
    }

    /// Marks `len` bytes of the message, starting at `from`, as a frame.
    pub fn frame(&mut self, dir: Direction, kind: u8, from: usize, len: usize, tx: Option<u64>) {
        if from <= self.len {
            self.begin_frame(dir, kind, from, tx);
            self.end_frame(dir, from + len);
        }
    }

    /// Begins a frame at an offset of the message, unless one of the same type and transaction is open.
    pub fn begin_frame(&mut self, dir: Direction, kind: u8, from: usize, tx: Option<u64>) {
        self.cx.shared.frames.begin(dir, kind, self.at + from, tx);
    }

    /// Ends the latest open frame at an offset of the message.
    pub fn end_frame(&mut self, dir: Direction, at: usize) {
        let frames = &mut self.cx.shared.frames;
        if frames.wanted {
            frames.end(dir, (self.at + at) as u64);
        }
    }
}
