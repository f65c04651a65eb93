//! The application layer of a flow, and of a worker. `app_feed.rs` feeds it, `app_log.rs` logs its transactions.

use std::net::IpAddr;
use std::sync::Arc;

use margay_app::frame::FlowFrames;
use margay_app::{AppConfig, AppLogOptions, AppProto, AppSession, FlowRequests, Parser, Shared, Transaction, protocol};
use margay_flow::Direction;
use margay_output::eve::Record;
use margay_output::event::AppProtos;
use margay_stream::{AppData, TcpSession};

use crate::witness::Witness;

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A worker's application layer.
pub(crate) struct AppStage {
    pub(crate) config: Arc<AppConfig>,
    pub(crate) shared: Shared,
    /// The options of each `eve-log` output, in the order of the outputs.
    pub(crate) options: Vec<AppLogOptions>,
    /// Builds the records of stored files.
    pub(crate) record: Record,
    /// Records what is inspected, in tests only.
    pub(crate) witness: Option<Box<Witness>>,
}

/// The application layer of a flow, and how far it was fed.
#[derive(Debug, Default)]
pub(crate) struct FlowApp {
    pub(crate) session: AppSession,
    /// For each direction, the end of the data that the parser was last offered, as a stream offset. It is not offered data
    /// up to this offset again, even if it did not consume all of it.
    pub(super) offered: [u64; 2],
    /// For each direction, data before a gap. Parsing continues after the gap.
    pub(super) held: [Vec<u8>; 2],
    /// For each direction, the first transaction that was incomplete at the last call of [`FlowApp::completed`].
    complete: [u64; 2],
    /// The requests of rules for its files.
    pub(crate) files: margay_app::file::FlowFiles,
    /// Frames that its parsers marked.
    pub(crate) frames: FlowFrames,
    /// Events of protocol detection that no packet has taken yet, one bit each.
    pub(crate) events: u8,
    /// The requests of its parsers to the engine.
    pub(crate) wishes: FlowRequests,
    /// The rest is encrypted, and neither payload nor stream is inspected any more. The packet that showed this still is.
    pub(super) encrypted: bool,
    /// Logging has nothing to do until a transaction changes. The value says whether rules inspected the flow at that point.
    pub(super) quiet: Option<bool>,
    /// The connection was over when its transactions were last logged.
    pub(super) over: bool,
    /// Bytes of memory that are accounted to the flow.
    pub(super) counted: u64,
}

/// The checksums of one direction's datagrams so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// No checksum was checked.
    #[default]
    Unseen,
    /// All were wrong.
    Wrong,
    /// At least one was right.
    Right,
}

/// The application layer's result for a packet's data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AppResult {
    /// Events of protocol detection ([`margay_app::session::SessionEvent::bit`]).
    pub(crate) events: u8,
    /// Client and server are swapped, and no data was taken: the caller swaps the directions and feeds the data again.
    pub(crate) turn: bool,
    /// Nothing more of the flow needs inspection.
    pub(crate) bypass: bool,
    /// The protocol of a parser that failed on the flow: `app-layer.error-policy` applies.
    pub(crate) failed: Option<AppProto>,
    /// The parser is at its limit of transactions, and has not taken all data ([`super::Stages::work_off`]).
    pub(crate) full: bool,
    /// The flow changes its protocol, and the data before the change is to be inspected separately
    /// ([`super::Stages::flush_changing`]).
    pub(crate) changing: bool,
}

impl FlowApp {
    /// Prefetches the fields that the next packet reads. The sum itself has no meaning.
    #[inline]
    pub(super) fn warm(&self) -> u64 {
        self.offered[0] ^ self.counted ^ u64::from(self.session.is_off())
    }

    /// Swaps the directions.
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
        // A new parser counts from 0 again.
        *next = if *next > txs.end { 0 } else { (*next).max(txs.start) };
        if *next == txs.end {
            return false;
        }
        // As in Suricata 8, a message of one direction does not complete one of the other.
        let completed;
        (*next, completed) = parser.past_complete(*next, d, complete);
        completed
    }

    /// Whether the parser was offered all available data of a direction, and there is no gap after that data.
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

    /// Marks the flow dirty: its transactions may have changed by other means than parsed data.
    pub(super) const fn mark_dirty(&mut self) {
        self.quiet = None;
    }

    /// Marks the flow and all its transactions dirty.
    pub(super) fn mark_all_dirty(&mut self) {
        self.mark_dirty();
        self.session.wake();
    }

    /// Whether a transaction has updates in a direction that detection has not inspected.
    pub(super) fn has_news(&self, d: Direction) -> bool {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| awake(&**p));
        txs.any(|tx| tx.base().updated[d.index()])
    }

    /// The address of the client behind a proxy, from any transaction of the flow.
    pub(crate) fn forwarded_for(&self, header: &str, forward: bool) -> Option<IpAddr> {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| transactions(&**p));
        txs.find_map(|tx| tx.forwarded_for(header, forward))
    }

    /// Bytes of memory that it holds, with its parsers.
    pub(super) fn memory(&mut self) -> u64 {
        let held: usize = self.held.iter().map(Vec::capacity).sum();
        self.session.memory() + (size_of::<FlowApp>() + held) as u64
    }

    /// The protocol of its parser, if the parser failed since the last call.
    pub(super) fn take_failed(&mut self) -> Option<AppProto> {
        self.session.take_error().map(|_| self.session.proto)
    }

    /// The flow's protocols, as events name them.
    pub(crate) fn names(&self) -> AppProtos<'static> {
        names(self.shown())
    }

    /// The flow's protocols as events show them, and the expected protocol.
    pub(super) fn shown(&self) -> (margay_detect::checks::AppProtos, AppProto) {
        let s = &self.session;
        // Until the new protocol has data, the flow keeps the old one, and the new one counts as expected.
        if s.is_changing() {
            let original = if s.changes() > 1 { s.original } else { AppProto::Unknown };
            let side = [AppProto::Unknown; 2];
            return (margay_detect::checks::AppProtos { side, flow: s.before(), original }, s.proto);
        }
        let side = s.sides_shown();
        (margay_detect::checks::AppProtos { side, flow: s.proto, original: s.original }, s.expected())
    }
}

/// A flow's protocols and its expected protocol, as events name them.
pub(super) fn names((protocols, expected): (margay_detect::checks::AppProtos, AppProto)) -> AppProtos<'static> {
    let name = |p: AppProto| (p != AppProto::Unknown).then(|| p.name());
    AppProtos::new(name(protocols.flow), protocols.side.map(name), name(protocols.original), name(expected))
}

/// The transactions of a parser that are not freed.
fn transactions(parser: &dyn Parser) -> impl Iterator<Item = &dyn Transaction> {
    numbered(parser, |from| parser.next_tx(from))
}

/// The transactions of a parser that may have changed since they were last handled.
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
