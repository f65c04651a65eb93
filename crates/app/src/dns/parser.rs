//! Messages from datagrams and from a stream, where a length is before each (RFC 1035 section 4.2.2).
//!
//! A hole in a stream is measured: where it ends inside a message whose beginning was seen, what is left of that is
//! skipped, and the next one is where it should be. Where it does not, messages are looked for at the beginning of what
//! comes behind it, as segments of DNS begin with one.

use std::collections::VecDeque;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::recognise::Probed;
use crate::registry::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::message::Message;
use super::tx::DnsTx;
use super::{PDU_FRAME, recognition};

/// Most requests kept out of the log whose responses are to be kept out as well; the oldest are forgotten.
const UNLOGGED_MAX: usize = 128;

/// A direction of a stream.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of a message that were given and not taken.
    waiting: usize,
    /// Length of the message that waits, with what is before it; 0 where that is not known.
    message: usize,
    /// Bytes to skip: the rest of a message that has a hole.
    skip: u64,
    /// Whether it is unknown where the next message begins.
    lost: bool,
}

/// A flow's parser, of DNS or of multicast DNS.
#[derive(Debug)]
pub(super) struct DnsParser {
    proto: AppProto,
    stream: bool,
    txs: TxList<DnsTx>,
    sides: [Side; 2],
    /// Identifiers of requests that a `config` rule kept out of the log: their responses go with them.
    unlogged: VecDeque<u16>,
}

impl DnsParser {
    pub(super) fn new(proto: AppProto, stream: bool) -> Self {
        DnsParser { proto, stream, txs: TxList::default(), sides: Default::default(), unlogged: VecDeque::new() }
    }

    /// A message, which begins `at` bytes into what was given.
    fn message(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, data: &[u8]) {
        let id = self.txs.next();
        cx.shared.frames.begin(dir, PDU_FRAME, at, Some(id));
        cx.shared.frames.end(dir, (at + data.len()) as u64);
        let mut tx = DnsTx::new(id, self.proto, dir, Message::read(data));
        if !self.unlogged.is_empty()
            && !tx.is_request()
            && let Some(i) = self.unlogged.iter().position(|&u| u == tx.message.id)
        {
            self.unlogged.remove(i);
            tx.base.no_log = true;
        }
        self.txs.push(|_| tx);
    }

    /// Whether there are as many transactions as there may be.
    fn is_full(&self, cx: &mut Parse<'_>) -> bool {
        let full = self.txs.len() >= cx.config.dns.max_tx.max(1);
        if full {
            cx.shared.counters.tx_limit(self.proto);
        }
        full
    }

    /// Messages of a stream.
    fn stream(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let (mut at, mut outcome) = (0, Outcome::More);
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            let side = &mut self.sides[dir.index()];
            if side.skip > 0 {
                let n = usize::try_from(side.skip).unwrap_or(usize::MAX).min(rest.len());
                side.skip -= n as u64;
                at += n;
                if side.skip > 0 {
                    break;
                }
                continue;
            }
            if side.lost {
                match recognition::tcp(dir, rest) {
                    Probed::Yes { reverse: false } => side.lost = false,
                    Probed::More if !cx.end => break,
                    // What begins with no message is passed over.
                    _ => {
                        at = data.len();
                        break;
                    }
                }
            }
            let Some(length) = rest.first_chunk::<2>().map(|b| usize::from(u16::from_be_bytes(*b))) else {
                side.message = 0;
                break;
            };
            let Some(message) = rest.get(2..2 + length) else {
                side.message = 2 + length;
                break;
            };
            if self.is_full(cx) {
                outcome = Outcome::Full;
                break;
            }
            // Nothing but a length keeps a connection open.
            if !message.is_empty() {
                self.message(cx, dir, at + 2, message);
            }
            at += 2 + length;
        }
        let side = &mut self.sides[dir.index()];
        side.waiting = data.len().saturating_sub(at);
        if cx.end && side.waiting > 0 && outcome == Outcome::More {
            // The rest of it will never come.
            let cut = data.get(at + 2..).filter(|m| side.message > 0 && !side.lost && !m.is_empty());
            if let Some(message) = cut {
                self.message(cx, dir, at + 2, message);
            }
            at = data.len();
            self.sides[dir.index()] = Side { lost: true, ..Side::default() };
        }
        Parsed { consumed: at, outcome }
    }
}

impl Parser for DnsParser {
    fn proto(&self) -> AppProto {
        self.proto
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if !self.stream {
            // A datagram is inspected before the next one comes.
            if !data.is_empty() && !self.is_full(cx) {
                self.message(cx, dir, 0, data);
            }
            return Parsed::used(data.len());
        }
        if !data.is_empty() {
            cx.shared.frames.begin_stream(dir);
        }
        self.stream(cx, dir, data)
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let waiting = side.waiting as u64;
        if side.skip > 0 {
            // What is to be skipped is missing, or some of it.
            match side.skip.saturating_sub(waiting).checked_sub(len) {
                Some(left) => side.skip = waiting + left,
                None => (side.skip, side.lost) = (waiting, true),
            }
        } else if !side.lost {
            // What waits comes again: it goes with the rest of its message.
            side.lost = (side.message as u64).checked_sub(waiting).is_none_or(|missing| len > missing);
            side.skip = if side.lost { waiting } else { (side.message as u64).saturating_sub(len) };
        } else {
            side.skip = waiting;
        }
        side.message = 0;
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        self.txs.memory() + (self.unlogged.capacity() * size_of::<u16>()) as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        if let Some(tx) = self.txs.remove(id)
            && tx.base.no_log
            && tx.is_request()
        {
            if self.unlogged.len() == UNLOGGED_MAX {
                self.unlogged.pop_front();
            }
            self.unlogged.push_back(tx.message.id);
        }
    }
}
