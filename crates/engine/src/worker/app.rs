//! A flow's application layer, and a worker's. `app_feed.rs` feeds it, `app_log.rs` logs its transactions.

use std::net::IpAddr;
use std::sync::Arc;

use margay_app::frame::FlowFrames;
use margay_app::{AppConfig, AppLogOptions, AppProto, AppSession, Parser, Shared, Transaction, Wishes, protocol};
use margay_flow::Direction;
use margay_output::eve::Record;
use margay_output::event::AppProtos;
use margay_stream::{AppData, TcpSession};

use crate::witness::Witness;

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A worker's application layer.
pub(crate) struct AppLane {
    pub(crate) config: Arc<AppConfig>,
    pub(crate) shared: Shared,
    /// What each `eve-log` output shows, in their order.
    pub(crate) options: Vec<AppLogOptions>,
    /// Makes records of stored files.
    pub(crate) record: Record,
    /// Notes what is inspected; none but in tests.
    pub(crate) witness: Option<Box<Witness>>,
}

/// A flow's application layer, and how far it was fed.
#[derive(Debug, Default)]
pub(crate) struct FlowApp {
    pub(crate) session: AppSession,
    /// By direction, the stream offset up to which data was offered and not all taken.
    pub(super) offered: [u64; 2],
    /// By direction, what was left before a hole: it goes on behind that.
    pub(super) held: [Vec<u8>; 2],
    /// By direction, the first transaction of the parser that was not complete when the stream was last told of one.
    complete: [u64; 2],
    /// What rules asked for of its files.
    pub(crate) files: margay_app::file::FlowFiles,
    /// Frames that its parsers marked.
    pub(crate) frames: FlowFrames,
    /// Packet events not yet seen to.
    pub(crate) events: u8,
    /// What its parsers ask of the engine.
    pub(crate) wishes: Wishes,
    /// What follows is encrypted: payload and stream are not inspected any more. Of the packet that told so they are.
    pub(super) encrypted: bool,
    /// Logging left nothing to do with its transactions until they change, and whether rules looked at the flow then.
    pub(super) quiet: Option<bool>,
    /// Its connection was over when its transactions were last logged.
    pub(super) over: bool,
    /// Bytes of memory that are counted for it.
    pub(super) counted: u64,
}

/// Checksums of the datagrams of one direction so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// None was looked at.
    #[default]
    Unseen,
    /// All were wrong.
    Wrong,
    /// At least one was right.
    Right,
}

/// What a packet's data came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// Events of recognition ([`margay_app::session::SessionEvent::bit`]).
    pub(crate) events: u8,
    /// The flow is the wrong way round, and nothing was taken: it is to be turned, and fed again.
    pub(crate) turn: bool,
    /// Nothing more of the flow is worth a look.
    pub(crate) bypass: bool,
    /// The protocol of a parser that gave up on the flow: `app-layer.error-policy` applies.
    pub(crate) failed: Option<AppProto>,
    /// The parser has as many transactions as it may have, and has not taken all that there is ([`super::Rest::work_off`]).
    pub(crate) full: bool,
}

impl FlowApp {
    /// Prefetches it: reads fields that the next packet needs. The sum means nothing.
    #[inline]
    pub(super) fn warm(&self) -> u64 {
        self.offered[0] ^ self.counted ^ u64::from(self.session.is_off())
    }

    /// The flow was turned round.
    pub(super) fn turn_round(&mut self) {
        self.session.turn_round();
        self.offered = [0; 2];
        self.held.swap(0, 1);
    }

    /// Whether messages of a direction became complete since the last call.
    pub(super) fn completed(&mut self, d: Direction) -> bool {
        let Some(parser) = self.session.parsers().last().filter(|p| p.is_prompt()) else { return false };
        let Some(complete) = protocol(parser.proto()).map(|p| p.complete()[d.index()]) else { return false };
        let (txs, next) = (parser.txs(), &mut self.complete[d.index()]);
        // Another parser counts from 0 again.
        *next = if *next > txs.end { 0 } else { (*next).max(txs.start) };
        let before = *next;
        while *next < txs.end && parser.tx(*next).is_none_or(|tx| tx.base().progress[d.index()] >= complete) {
            *next += 1;
        }
        *next > before
    }

    /// Whether the stream has nothing in a direction that it was not offered: all that it holds was, and waits for more.
    pub(super) fn has_all(&self, tcp: &TcpSession, d: Direction) -> bool {
        match tcp.app_data(d, false) {
            None => true,
            Some(AppData::Gap(_)) => false,
            Some(AppData::Data { offset, bytes }) => {
                let end = offset + bytes.len() as u64;
                self.offered[d.index()] == end && !tcp.app_gap_at(d, end, false)
            }
        }
    }

    /// Its transactions may have changed, other than by what parsers were told.
    pub(super) const fn stir(&mut self) {
        self.quiet = None;
    }

    /// The same, and any of them may have.
    pub(super) fn stir_all(&mut self) {
        self.stir();
        self.session.wake();
    }

    /// Whether there is something of a direction that detection did not look at.
    pub(super) fn has_news(&self, d: Direction) -> bool {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| awake(&**p));
        txs.any(|tx| tx.base().updated[d.index()])
    }

    /// The client behind a proxy, from any transaction of the flow.
    pub(crate) fn forwarded_for(&self, header: &str, forward: bool) -> Option<IpAddr> {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| transactions(&**p));
        txs.find_map(|tx| tx.forwarded_for(header, forward))
    }

    /// Bytes of memory that it holds, parsers and all.
    pub(super) fn memory(&mut self) -> u64 {
        let held: usize = self.held.iter().map(Vec::capacity).sum();
        self.session.memory() + (size_of::<FlowApp>() + held) as u64
    }

    /// The protocol of its parser, where that gave up since the last call.
    pub(super) fn take_failed(&mut self) -> Option<AppProto> {
        self.session.take_error().map(|_| self.session.proto)
    }

    /// The flow's protocols, as events name them.
    pub(crate) fn names(&self) -> AppProtos<'static> {
        names(self.shown())
    }

    /// The flow's protocols as events show them, and the one that is expected.
    pub(super) fn shown(&self) -> (margay_detect::checks::AppProtos, AppProto) {
        let s = &self.session;
        // Until something came of the protocol that follows, the flow has the one before, and is expected to have the other.
        if s.is_changing() {
            let original = if s.changes() > 1 { s.original } else { AppProto::Unknown };
            let side = [AppProto::Unknown; 2];
            return (margay_detect::checks::AppProtos { side, flow: s.before(), original }, s.proto);
        }
        let side = s.sides_shown();
        (margay_detect::checks::AppProtos { side, flow: s.proto, original: s.original }, AppProto::Unknown)
    }
}

/// A flow's protocols, and the one that is expected, as events name them.
pub(super) fn names((protocols, expected): (margay_detect::checks::AppProtos, AppProto)) -> AppProtos<'static> {
    let name = |p: AppProto| (p != AppProto::Unknown).then(|| p.name());
    AppProtos::new(name(protocols.flow), protocols.side.map(name), name(protocols.original), name(expected))
}

/// The transactions of a parser that were not freed.
fn transactions(parser: &dyn Parser) -> impl Iterator<Item = &dyn Transaction> {
    numbered(parser, |from| parser.next_tx(from))
}

/// Those of them that may have changed since they were last seen to.
pub(super) fn awake(parser: &dyn Parser) -> impl Iterator<Item = &dyn Transaction> {
    numbered(parser, |from| parser.next_awake(from))
}

fn numbered(parser: &dyn Parser, mut next: impl FnMut(u64) -> Option<u64>) -> impl Iterator<Item = &dyn Transaction> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let id = next(from)?;
            from = id + 1;
            if let Some(tx) = parser.tx(id) {
                return Some(tx);
            }
        }
    })
}
