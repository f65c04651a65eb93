//! Messages from a stream and from datagrams, and whose they are.
//!
//! A message of a stream is taken when all of it is there: it is no longer than 64 KiB. A hole is measured: where it ends
//! inside a message whose header was seen, what is left of that is skipped; where it does not, messages are looked for at
//! the beginning of what comes behind it.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::registry::AppProto;
use crate::tx::{Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};

use super::call::{Association, Call};
use super::events::Event;
use super::open::{DatagramKey, Key, Open};
use super::pdu::{Datagram, HEADER, Header, Interface, kind};
use super::tx::DcerpcTx;
use super::{COMPLETE, DATA_FRAME, HDR_FRAME, PDU_FRAME};

/// Most bytes of stub data that the transactions of a flow hold together; with more the oldest are at their end.
const STUBS_MAX: usize = 8 << 20;

/// Most responses without a request that wait for the client to be heard of.
const LOST_MAX: usize = 4096;

/// A direction of a stream.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of a message that were given and not taken.
    waiting: usize,
    /// Length of the message that waits; 0 where that is not known.
    message: usize,
    /// Bytes to skip: the rest of a message that has a hole.
    skip: u64,
    /// It is not known where the next message begins.
    lost: bool,
}

/// A flow's parser.
#[derive(Debug)]
pub(super) struct DcerpcParser {
    stream: bool,
    txs: TxList<DcerpcTx>,
    /// No transaction before this one is still going on.
    oldest: u64,
    /// Those that a message may go on with.
    open: Open,
    sides: [Side; 2],
    with: Association,
    /// Bytes of stub data that transactions hold.
    stubs: usize,
    /// Transactions of responses whose requests were not seen.
    lost_requests: Vec<u64>,
}

impl DcerpcParser {
    pub(super) fn new(stream: bool) -> Self {
        DcerpcParser {
            stream,
            txs: TxList::default(),
            oldest: 0,
            open: Open::default(),
            sides: Default::default(),
            with: Association::default(),
            stubs: 0,
            lost_requests: Vec::new(),
        }
    }

    /// How many transactions there are, and bytes of stub data in them, in parts of what there may be.
    fn share(&self, cx: &Parse<'_>) -> usize {
        (self.txs.len() / (cx.config.dcerpc.max_tx as usize).max(1)).max(self.stubs / STUBS_MAX)
    }

    fn make(&mut self, cx: &mut Parse<'_>, call: Call, datagram: Option<DatagramKey>) -> Option<u64> {
        let share = self.share(cx);
        if share > 0 {
            cx.shared.counters.tx_limit(AppProto::Dcerpc);
            // Of a stream no further message is read then; of datagrams the next one finds room.
            if share > 2 {
                return None;
            }
            self.end_oldest();
        }
        let id = self.txs.push(|id| DcerpcTx { base: TxBase { id, ..TxBase::default() }, call, datagram });
        if let Some(tx) = self.txs.get(id) {
            let key = tx.key();
            self.open.add(key, Direction::ToClient, id);
            // Datagrams may arrive in any order, so a request can follow its response. On a stream it cannot.
            if datagram.is_some() {
                self.open.add(key, Direction::ToServer, id);
            }
        }
        Some(id)
    }

    /// Whether there are so many transactions, or so much stub data, that those which are at their end must go first.
    fn is_full(&mut self, cx: &Parse<'_>) -> bool {
        if self.share(cx) < 2 {
            return false;
        }
        for _ in 0..=self.txs.len() / 2 {
            self.end_oldest();
        }
        true
    }

    /// Ends the oldest transaction that is still going on: it makes room as soon as it was looked at.
    fn end_oldest(&mut self) {
        let oldest = self.txs.first_incomplete(self.oldest, COMPLETE);
        self.oldest = oldest;
        let Some(tx) = self.txs.get_mut(oldest) else { return };
        tx.base.events.add(Event::TooManyTransactions as u8);
        let key = tx.key();
        for dir in [Direction::ToServer, Direction::ToClient] {
            tx.base.advance(dir, COMPLETE);
            self.open.remove(key, dir, oldest);
        }
    }

    /// The transaction that a message goes on with: what is asked first is answered first.
    fn find(&self, dir: Direction, h: Header) -> Option<u64> {
        self.open.first(Key::Call(h.call), dir).find(|id| {
            self.txs.get(*id).is_some_and(|tx| {
                let own = tx.call.side(dir);
                tx.base.progress != [COMPLETE; 2] && (own.kind.is_none() || own.kind == Some(h.kind))
            })
        })
    }

    fn message(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, h: Header, pdu: &[u8]) {
        let body = pdu.get(HEADER..).unwrap_or(&[]);
        // The third leg of authentication, and what only ends something, have no answer and no meaning here.
        let silent = matches!(h.kind, kind::AUTH3 | kind::CO_CANCEL | kind::ORPHANED | kind::SHUTDOWN);
        let id = match self.find(dir, h) {
            Some(id) => Some(id),
            None if silent => None,
            None => self.make(cx, Call::new(h, false), None),
        };
        mark(cx, dir, at, pdu.len(), id.filter(|_| !silent));
        if silent {
            return;
        }
        let Some(id) = id else { return };
        let Some(tx) = self.txs.get_mut(id) else { return };
        let key = tx.key();
        let (begun, before) = (tx.call.side(dir).kind.is_some(), tx.call.side(dir).stub.len());
        let _ = tx.call.message(&mut self.with, dir, h, body);
        self.stubs += tx.call.side(dir).stub.len().saturating_sub(before);
        if !tx.call.side(dir).done {
            if dir == Direction::ToServer && !begun {
                self.open.add(key, dir, id);
            }
            return;
        }
        tx.base.advance(dir, COMPLETE);
        if dir == Direction::ToClient && tx.call.side(Direction::ToServer).kind.is_none() {
            self.lost_requests.push(id);
            if self.lost_requests.len() > LOST_MAX {
                self.settle();
            }
        }
        self.open.remove(key, dir, id);
    }

    /// The client is heard of again: what was answered before will not be seen asked any more.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.lost_requests) {
            if let Some(tx) = self.txs.get_mut(id)
                && tx.call.side(Direction::ToServer).kind.is_none()
            {
                tx.base.one_sided(Direction::ToServer, COMPLETE);
            }
        }
    }

    /// Messages of a stream.
    fn stream(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let mut at = 0;
        let mut outcome = Outcome::More;
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            let side = &mut self.sides[dir.index()];
            if rest.is_empty() {
                break;
            }
            if side.skip > 0 {
                let n = usize::try_from(side.skip).unwrap_or(usize::MAX).min(rest.len());
                side.skip -= n as u64;
                at += n;
                continue;
            }
            side.message = 0;
            if rest.len() < HEADER {
                break;
            }
            let Some(h) = Header::read(rest) else {
                if side.lost {
                    // What begins with no message is passed over.
                    at = data.len();
                } else {
                    outcome = Outcome::Failed;
                }
                break;
            };
            side.lost = false;
            let Some(pdu) = rest.get(..usize::from(h.length)) else {
                side.message = usize::from(h.length);
                break;
            };
            if self.is_full(cx) {
                outcome = Outcome::Full;
                break;
            }
            self.message(cx, dir, at, h, pdu);
            at += pdu.len();
        }
        let side = &mut self.sides[dir.index()];
        side.waiting = data.len().saturating_sub(at);
        if cx.end && outcome != Outcome::Full {
            at = data.len();
            *side = Side { lost: true, ..Side::default() };
        }
        Parsed { consumed: at, outcome }
    }

    fn datagram(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) {
        let Some(d) = Datagram::read(data) else { return };
        let key = (d.activity, d.sequence);
        let side = if d.is_response() { Direction::ToClient } else { Direction::ToServer };
        let goes_on = |id: &u64| self.txs.get(*id).is_some_and(|t| t.base.progress != [COMPLETE; 2]);
        let found = self.open.first(Key::Datagram(key), side).find(goes_on);
        let id = match found {
            Some(id) => Some(id),
            None => self.make(cx, Call::default(), Some(key)),
        };
        mark(cx, dir, 0, data.len(), id);
        let Some(id) = id else { return };
        let Some(tx) = self.txs.get_mut(id) else { return };
        if d.kind == kind::REQUEST {
            tx.call.opnum = Some(d.opnum);
            tx.call.first = true;
            let version = ((d.version & 0xffff) as u16, (d.version >> 16) as u16);
            tx.call.interfaces = vec![Interface { context: 0, uuid: d.interface, version, result: None }];
        }
        let own = tx.call.side_mut(side);
        (own.kind, own.little) = (Some(d.kind), d.little);
        own.done = !d.fragment || d.last;
        let kept = if matches!(d.kind, kind::REQUEST | kind::RESPONSE | kind::FAULT) { own.add(d.stub) } else { 0 };
        let done = own.done;
        self.stubs += kept;
        if done {
            if side == Direction::ToClient && tx.call.side(Direction::ToServer).kind.is_none() {
                tx.base.one_sided(Direction::ToServer, COMPLETE);
            }
            tx.base.advance(side, COMPLETE);
            self.open.remove(Key::Datagram(key), side, id);
        }
    }
}

/// Marks a message with its parts.
fn mark(cx: &mut Parse<'_>, dir: Direction, at: usize, len: usize, tx: Option<u64>) {
    let frames = &mut cx.shared.frames;
    if !frames.wanted {
        return;
    }
    let (body, end) = ((at + HEADER.min(len)) as u64, (at + len) as u64);
    frames.begin(dir, PDU_FRAME, at, tx);
    frames.end(dir, end);
    frames.begin(dir, HDR_FRAME, at, tx);
    frames.end(dir, body);
    if len > HEADER {
        frames.begin(dir, DATA_FRAME, at + HEADER, tx);
        frames.end(dir, end);
    }
}

impl Parser for DcerpcParser {
    fn proto(&self) -> AppProto {
        AppProto::Dcerpc
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if !self.stream {
            self.datagram(cx, dir, data);
            return Parsed::used(data.len());
        }
        if !data.is_empty() {
            cx.shared.frames.begin_stream(dir);
            if dir == Direction::ToServer {
                self.settle();
            }
        }
        self.stream(cx, dir, data)
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let waiting = side.waiting as u64;
        // What waits comes again: it goes with the rest of its message.
        let missing = match side.skip {
            0 => (side.message as u64).checked_sub(waiting).filter(|_| side.message > 0),
            skip => Some(skip.saturating_sub(waiting)),
        };
        match missing.and_then(|m| m.checked_sub(len)) {
            Some(left) if !side.lost => side.skip = waiting + left,
            _ => (side.skip, side.lost) = (waiting, true),
        }
        side.message = 0;
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        let own = self.with.held() + self.open.memory() + self.lost_requests.capacity() * size_of::<u64>();
        self.txs.memory() + own as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        if let Some(tx) = self.txs.remove(id) {
            let held: usize = tx.call.sides.iter().map(|s| s.stub.len()).sum();
            self.stubs = self.stubs.saturating_sub(held);
            for dir in [Direction::ToServer, Direction::ToClient] {
                self.open.remove(tx.key(), dir, id);
            }
        }
    }
}
