//! Assigns messages of streams and datagrams to calls.
//!
//! If a gap ends inside a message with a known length, the rest of it is skipped. Otherwise the next message is looked for at the
//! beginning of the data after the gap.

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Limit, Resume, Turn, Tx};
use crate::parser::{Outcome, Parse, Shared};
use crate::proto::AppProto;

use super::call::{Association, Call};
use super::events::Event;
use super::open::{DatagramKey, Key, Open};
use super::pdu::{Datagram, HEADER, Header, Interface, VERSION, kind};
use super::tx::Exchange;
use super::{COMPLETE, DATA_FRAME, HDR_FRAME, MAX_TX, PDU_FRAME};

/// The limit of stub data in all transactions of a flow; above it, the oldest ones end.
const STUBS_MAX: usize = 8 << 20;

/// The limit of responses without a request that wait for the client's next message.
const LOST_MAX: usize = 4096;

/// The parser's state of a flow.
#[derive(Debug)]
pub(super) struct Dcerpc {
    max_txs: usize,
    /// Transactions that a message may continue.
    open: Open,
    with: Association,
    /// Stub data in all transactions, in bytes.
    stubs: usize,
    /// Transactions of responses whose requests were not seen.
    lost_requests: Vec<u64>,
    /// By direction: the data is not DCE/RPC, so nothing of this side is parsed any more.
    foreign: [bool; 2],
}

impl Conversation for Dcerpc {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Dcerpc;
    const RESUMES: bool = true;
    const LIMIT: Limit = Limit::EndOldest;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Dcerpc {
            max_txs: config.settings.get(AppProto::Dcerpc, MAX_TX) as usize,
            open: Open::default(),
            with: Association::default(),
            stubs: 0,
            lost_requests: Vec::new(),
            foreign: [false; 2],
        }
    }

    fn arrives(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction) {
        if dir == Direction::ToServer {
            self.settle(turn);
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        if self.foreign[dir.index()] {
            return Framing::Skip(data.len());
        }
        if data.len() < HEADER {
            return Framing::More;
        }
        match Header::read_loosely(data).map(|h| usize::from(h.length)) {
            // The end of the message will not come, and a part of it is no fragment.
            Some(len) if end && len > data.len() => Framing::Skip(data.len()),
            Some(len) => Framing::Message(len),
            None if data.first() == Some(&VERSION) => Framing::Broken,
            // Another protocol: as in Suricata no error, so inline the other side's messages are still forwarded.
            None => {
                self.foreign[dir.index()] = true;
                Framing::Skip(data.len())
            }
        }
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        match Header::read(data) {
            Some(_) => Resume::Here,
            None if data.len() < HEADER => Resume::More,
            None => Resume::Skip(data.len()),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        if turn.cx.flow.proto != 6 {
            self.datagram(turn, dir, message);
        } else if let Some(h) = Header::read_loosely(message) {
            self.pdu(turn, dir, h, message);
        }
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn fill(&self) -> usize {
        self.stubs / STUBS_MAX
    }

    /// A message does not continue the transaction any more, so it must not hide later ones with the same call.
    fn overflows(&mut self, _cx: &mut Parse<'_>, tx: &mut Tx<Exchange>) {
        self.forget(tx);
    }

    fn freed(&mut self, _shared: &mut Shared, tx: &mut Tx<Exchange>) {
        let held: usize = tx.content.call.sides.iter().map(|s| s.stub.len()).sum();
        self.stubs = self.stubs.saturating_sub(held);
        self.forget(tx);
    }

    fn held(&self) -> u64 {
        (self.with.held() + self.open.memory() + self.lost_requests.capacity() * size_of::<u64>()) as u64
    }
}

impl Dcerpc {
    fn forget(&mut self, tx: &Tx<Exchange>) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.open.remove(tx.content.key(), dir, tx.base.id);
        }
    }

    fn make(&mut self, turn: &mut Turn<'_, '_, Exchange>, content: Exchange) -> u64 {
        let (key, is_datagram) = (content.key(), content.datagram.is_some());
        let id = turn.open(content).base.id;
        self.open.add(key, Direction::ToClient, id);
        // Datagrams may arrive in any order, so a request can follow its response. On a stream it cannot.
        if is_datagram {
            self.open.add(key, Direction::ToServer, id);
        }
        id
    }

    /// The transaction that a message continues: responses come in the order of the requests.
    fn find(
        &self,
        turn: &Turn<'_, '_, Exchange>,
        dir: Direction,
        key: Key,
        fits: impl Fn(&Call) -> bool,
    ) -> Option<u64> {
        self.open
            .first(key, dir)
            .find(|id| turn.peek(*id).is_some_and(|tx| tx.base.progress != [COMPLETE; 2] && fits(&tx.content.call)))
    }

    /// Handles a message of a stream.
    fn pdu(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, h: Header, pdu: &[u8]) {
        let body = pdu.get(HEADER..).unwrap_or(&[]);
        // The third leg of authentication, and messages that only end a call, have no response and no meaning here.
        if matches!(h.kind, kind::AUTH3 | kind::CO_CANCEL | kind::ORPHANED | kind::SHUTDOWN) {
            mark(turn, dir, pdu.len(), None);
            return;
        }
        let found =
            self.find(turn, dir, Key::Call(h.call), |call| call.side(dir).kind.is_none_or(|kind| kind == h.kind));
        let id = match found {
            Some(id) => id,
            None => self.make(turn, Exchange { call: Call::new(h, false), datagram: None }),
        };
        mark(turn, dir, pdu.len(), Some(id));
        let Some(tx) = turn.tx(id) else { return };
        let (key, call) = (tx.content.key(), &mut tx.content.call);
        let (begun, before) = (call.side(dir).kind.is_some(), call.side(dir).stub.len());
        let _ = call.message(&mut self.with, dir, h, body);
        self.stubs += call.side(dir).stub.len().saturating_sub(before);
        let asked = h.kind == kind::REQUEST && dir == Direction::ToServer && !begun;
        if asked {
            // Rules for the response compare the operation with the next packet to the client.
            tx.touch(Direction::ToClient);
        }
        let call = &tx.content.call;
        if !call.side(dir).done {
            if dir == Direction::ToServer && !begun {
                self.open.add(key, dir, id);
            }
            return;
        }
        let is_lost = dir == Direction::ToClient && call.side(Direction::ToServer).kind.is_none();
        tx.finish(dir);
        self.open.remove(key, dir, id);
        if is_lost {
            self.lost_requests.push(id);
            if self.lost_requests.len() > LOST_MAX {
                self.settle(turn);
            }
        }
    }

    /// The client sent data again, so the requests of earlier responses will not come.
    fn settle(&mut self, turn: &mut Turn<'_, '_, Exchange>) {
        for id in std::mem::take(&mut self.lost_requests) {
            if let Some(tx) = turn.tx(id)
                && tx.content.call.side(Direction::ToServer).kind.is_none()
            {
                tx.only(Direction::ToClient);
            }
        }
    }

    fn datagram(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) {
        let Some(d) = Datagram::read(data) else { return };
        let key: DatagramKey = (d.activity, d.sequence);
        let side = if d.is_response() { Direction::ToClient } else { Direction::ToServer };
        let id = match self.find(turn, side, Key::Datagram(key), |_| true) {
            Some(id) => id,
            None => self.make(turn, Exchange { call: Call::default(), datagram: Some(key) }),
        };
        mark(turn, dir, data.len(), Some(id));
        let Some(tx) = turn.tx(id) else { return };
        let call = &mut tx.content.call;
        if d.kind == kind::REQUEST {
            call.opnum = Some(d.opnum);
            call.first = true;
            let version = ((d.version & 0xffff) as u16, (d.version >> 16) as u16);
            call.interfaces = vec![Interface { context: 0, uuid: d.interface, version, result: None }];
        }
        let own = call.side_mut(side);
        (own.kind, own.little) = (Some(d.kind), d.little);
        own.done = !d.fragment || d.last;
        let done = own.done;
        if matches!(d.kind, kind::REQUEST | kind::RESPONSE | kind::FAULT) {
            self.stubs += own.add(d.stub);
        }
        if d.kind == kind::REQUEST {
            tx.touch(Direction::ToClient);
        }
        if done {
            // Like in Suricata, a response without its request stays incomplete, so it has no event.
            tx.finish(side);
            self.open.remove(Key::Datagram(key), side, id);
        }
    }
}

/// Marks a message and its parts.
fn mark(turn: &mut Turn<'_, '_, Exchange>, dir: Direction, len: usize, tx: Option<u64>) {
    let head = HEADER.min(len);
    turn.frame(dir, PDU_FRAME, 0, len, tx);
    turn.frame(dir, HDR_FRAME, 0, head, tx);
    if len > HEADER {
        turn.frame(dir, DATA_FRAME, head, len - head, tx);
    }
}
