//! Reads messages from streams and datagrams and assigns them to calls.
//!
//! The parser waits for a complete message of a stream, at most 64 KiB. If a gap ends inside a message with a known length, the
//! parser skips the rest of it. Otherwise it looks for a message at the beginning of the data after the gap.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::{Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};

use super::call::{Association, Call};
use super::events::Event;
use super::open::{DatagramKey, Key, Open};
use super::pdu::{Datagram, HEADER, Header, Interface, VERSION, kind};
use super::tx::DcerpcTx;
use super::{COMPLETE, DATA_FRAME, HDR_FRAME, PDU_FRAME};

/// The limit of stub data in all transactions of a flow; above it, the oldest ones end.
const STUBS_MAX: usize = 8 << 20;

/// The limit of responses without a request that wait for the client's next message.
const LOST_MAX: usize = 4096;

/// A direction of a stream.
#[derive(Debug, Default)]
struct Side {
    /// Unconsumed bytes of a message.
    waiting: usize,
    /// Length of the waiting message; 0 if unknown.
    message: usize,
    /// Bytes to skip: the rest of a message with a gap.
    skip: u64,
    /// The next message boundary is unknown.
    lost: bool,
    /// The data is not DCE/RPC, so nothing of this side is parsed any more.
    foreign: bool,
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct DcerpcParser {
    stream: bool,
    txs: TxList<DcerpcTx>,
    /// All transactions before this one are complete.
    oldest: u64,
    /// Transactions that a message may continue.
    open: Open,
    sides: [Side; 2],
    with: Association,
    /// Stub data in all transactions, in bytes.
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

    /// The number of transactions, or the amount of stub data, as a multiple of its limit: the larger one, rounded down.
    fn share(&self, cx: &Parse<'_>) -> usize {
        (self.txs.len() / (cx.config.dcerpc.max_tx as usize).max(1)).max(self.stubs / STUBS_MAX)
    }

    fn make(&mut self, cx: &mut Parse<'_>, call: Call, datagram: Option<DatagramKey>) -> Option<u64> {
        let share = self.share(cx);
        if share > 0 {
            cx.shared.counters.tx_limit(AppProto::Dcerpc);
            // Only datagrams get here, because a stream stops earlier ([`DcerpcParser::is_full`]). This one is dropped; a
            // later one finds room once complete transactions are freed.
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

    /// Whether complete transactions have to be freed before the parser can continue.
    fn is_full(&mut self, cx: &Parse<'_>) -> bool {
        if self.share(cx) < 2 {
            return false;
        }
        for _ in 0..=self.txs.len() / 2 {
            self.end_oldest();
        }
        true
    }

    /// Ends the oldest open transaction. It is freed once it is inspected.
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

    /// The transaction that a message continues: responses come in the order of the requests.
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
        // The third leg of authentication, and messages that only end a call, have no response and no meaning here.
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

    /// The client sent data again, so the requests of earlier responses will not come.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.lost_requests) {
            if let Some(tx) = self.txs.get_mut(id)
                && tx.call.side(Direction::ToServer).kind.is_none()
            {
                tx.base.one_sided(Direction::ToServer, COMPLETE);
            }
        }
    }

    /// Parses the messages of a stream.
    fn stream(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let mut at = 0;
        let mut outcome = Outcome::More;
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            let side = &mut self.sides[dir.index()];
            if rest.is_empty() {
                break;
            }
            if side.foreign {
                at = data.len();
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
            let header = if side.lost { Header::read(rest) } else { Header::read_loosely(rest) };
            let Some(h) = header else {
                if side.lost {
                    // Data that does not begin with a message is skipped.
                    at = data.len();
                } else if rest.first() != Some(&VERSION) {
                    // Another protocol: as in Suricata no error, so inline the other side's messages are still forwarded.
                    side.foreign = true;
                    continue;
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
            // Like in Suricata, a response without its request stays incomplete, so it has no event.
            tx.base.advance(side, COMPLETE);
            self.open.remove(Key::Datagram(key), side, id);
        }
    }
}

/// Marks a message and its parts.
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
        if !data.is_empty() && dir == Direction::ToServer {
            self.settle();
        }
        self.stream(cx, dir, data)
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let waiting = side.waiting as u64;
        // The waiting bytes come again. They are skipped with the rest of their message.
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
