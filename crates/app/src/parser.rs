//! What a protocol's parser is given and gives back.

use std::fmt::Debug;
use std::ops::Range;

use margay_flow::{Direction, FlowCore};
use margay_packet::Time;

use crate::config::AppConfig;
use crate::expect::Expect;
use crate::file::FileEngine;
use crate::frame::FrameMarks;
use crate::registry::AppProto;
use crate::session::ParserError;
use crate::tls::store::CertificateStore;
use crate::tx::Transaction;

/// What the application layer counts, by [`AppProto`] as index. The last packet's worker owns it.
#[derive(Debug, Clone)]
pub struct AppCounters {
    /// Flows by protocol (`app_layer.flow.*`), for TCP and UDP.
    pub flows: [[u64; 64]; 2],
    /// Transactions (`app_layer.tx.*`), for TCP and UDP.
    pub txs: [[u64; 64]; 2],
    /// Flows whose parser gave up at a gap (`app_layer.error.*.gap`): only TCP has gaps.
    pub gaps: [u64; 64],
    /// Flows whose parser could not make sense of the bytes (`app_layer.error.*.parser`), for TCP and UDP.
    pub failed: [[u64; 64]; 2],
    /// Flows whose parser could have no more memory (`app_layer.error.*.alloc`), for TCP and UDP.
    pub alloc: [[u64; 64]; 2],
    /// Flows whose parser left more bytes unused than the engine keeps (`app_layer.error.*.internal`), for TCP and UDP.
    pub internal: [[u64; 64]; 2],
    /// Times that a flow had as many transactions as it may have (`*.max-tx`), by protocol.
    pub tx_limit: [u64; 64],
    /// Bytes that all flows' parsers and transactions hold now (`app_layer.memuse`).
    pub memory: u64,
    /// Flows that lost their parser because `app-layer.memcap` was reached (`app_layer.memcap`).
    pub memcap: u64,
    /// Bytes that HTTP transactions hold now (`http.memuse`).
    pub http_memory: u64,
    /// Times HTTP's memcap was reached (`http.memcap`).
    pub http_memcap: u64,
    /// Requests with more arguments than `http.arg` keeps (`http.arguments_limit`).
    pub http_arguments: u64,
    /// Bytes that FTP transactions hold now (`ftp.memuse`).
    pub ftp_memory: u64,
    /// Times FTP's memcap was reached (`ftp.memcap`).
    pub ftp_memcap: u64,
}

impl Default for AppCounters {
    fn default() -> Self {
        AppCounters {
            flows: [[0; 64]; 2],
            txs: [[0; 64]; 2],
            gaps: [0; 64],
            failed: [[0; 64]; 2],
            alloc: [[0; 64]; 2],
            internal: [[0; 64]; 2],
            tx_limit: [0; 64],
            memory: 0,
            memcap: 0,
            http_memory: 0,
            http_memcap: 0,
            http_arguments: 0,
            ftp_memory: 0,
            ftp_memcap: 0,
        }
    }
}

impl AppCounters {
    /// Counts that a flow had as many transactions of a protocol as it may have.
    pub(crate) fn tx_limit(&mut self, proto: AppProto) {
        if let Some(n) = self.tx_limit.get_mut(proto as usize) {
            *n += 1;
        }
    }

    /// Counts a flow of that transport (6, 17) whose parser gave up.
    pub(crate) fn failed(&mut self, transport: u8, proto: AppProto, error: ParserError) {
        let of = match error {
            ParserError::Gap => &mut self.gaps,
            ParserError::Parser => &mut self.failed[usize::from(transport == 17)],
            ParserError::Alloc => &mut self.alloc[usize::from(transport == 17)],
            ParserError::Internal => &mut self.internal[usize::from(transport == 17)],
        };
        if let Some(n) = of.get_mut(proto as usize) {
            *n += 1;
        }
    }

    /// Transactions of a parser leave with their flow for another worker (`leave`), or come with it: the bytes that they hold
    /// are counted there.
    pub fn moved(&mut self, parser: &dyn Parser, leave: bool) {
        let total = match parser.proto() {
            AppProto::Http1 | AppProto::Http2 | AppProto::Doh2 => &mut self.http_memory,
            AppProto::Ftp => &mut self.ftp_memory,
            _ => return,
        };
        let mut held = 0u64;
        let mut from = 0;
        while let Some(id) = parser.next_tx(from) {
            from = id + 1;
            held = held.saturating_add(parser.tx(id).map_or(0, Transaction::counted));
        }
        *total = if leave { total.saturating_sub(held) } else { total.saturating_add(held) };
    }
}

/// What a parser asks of the engine for its flow. It holds for the rest of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowRequests {
    /// What follows is encrypted: neither packets' payload nor the stream are worth inspecting.
    pub no_payload: bool,
    /// Nothing more of the flow is worth looking at: it may bypass inspection.
    pub bypass: bool,
    /// So many bytes of each direction of its stream are to be followed, 0 for all, whatever the configuration says of
    /// streams.
    pub stream_depth: Option<u64>,
}

/// What parsers of one worker share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Files: hashes, magic, store.
    pub files: FileEngine,
    /// Counters.
    pub counters: AppCounters,
    /// Where parsers mark frames.
    pub frames: FrameMarks,
    /// What the parser at work asks for its flow.
    pub wishes: FlowRequests,
    /// By direction, whether the parser read a whole message that rules on the raw stream should look at, however short it is. The
    /// engine takes it.
    pub whole: [bool; 2],
    /// Connections that parsers announced, until the engine takes note of them.
    pub expected: Vec<Expect>,
    /// Where certificates go that rules want stored.
    pub certificates: CertificateStore,
    /// The request of HTTP/1 that brought about the protocol that follows ([`Outcome::Change`]), for its parser.
    pub upgrade: Option<Upgrade>,
    /// Memory to put things together in, used again; whoever takes it empties it first.
    pub scratch: Vec<u8>,
}

/// A request of HTTP/1 that asked for another protocol, and got it (RFC 9110, section 7.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// Method.
    pub method: Vec<u8>,
    /// Target, as it came.
    pub target: Vec<u8>,
    /// Value of `Host`.
    pub host: Option<Vec<u8>>,
    /// Value of `HTTP2-Settings`.
    pub settings: Option<Vec<u8>>,
    /// The other fields: name and value.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a parser is given besides the bytes.
#[derive(Debug)]
pub struct Parse<'a> {
    /// Settings.
    pub config: &'a AppConfig,
    /// What the worker's parsers share.
    pub shared: &'a mut Shared,
    /// The flow.
    pub flow: &'a FlowCore,
    /// Time of the packet.
    pub time: Time,
    /// Whether the flow's stream ends here in this direction: no more bytes will come.
    pub end: bool,
    /// Inline: what was inspected may already be out.
    pub inline: bool,
}

/// What came of feeding a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes that it is done with. What is left comes again, with more behind it.
    pub consumed: usize,
    /// What next.
    pub outcome: Outcome,
}

/// How a session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// More of the same.
    More,
    /// The same, and what the parser left of the other direction, waiting for this one, is to be offered again at once.
    Resume,
    /// The parser wants no more of this flow, in either direction: what follows is none of its business (a tunnel).
    Done,
    /// The flow has as many transactions as the limit allows. The caller inspects, logs and frees what is complete, and then offers
    /// the data that was not consumed again.
    Full,
    /// It cannot make sense of it. Over TCP the flow goes on without a parser; over UDP the parser goes on with the next datagram.
    Failed,
    /// Another protocol follows, known or to be recognised (`None`), from the bytes that are left on.
    Change(Option<AppProto>),
    /// It goes on, and what it parses is called this from now on: what HTTP/2 carries turned out to be DNS.
    Rename(AppProto),
}

impl Parsed {
    /// All of `n` bytes were used.
    pub const fn used(n: usize) -> Self {
        Parsed { consumed: n, outcome: Outcome::More }
    }
}

/// One flow's parser.
pub trait Parser: Debug + Send {
    /// The protocol it parses.
    fn proto(&self) -> AppProto;

    /// Whether rules on the stream look at what came with each complete message, and do not wait for a chunk's size.
    fn is_prompt(&self) -> bool {
        true
    }

    /// The flow was of another protocol before, and changed to this one.
    fn comes_after(&mut self, _original: AppProto) {}

    /// Bytes of a direction: what was left of the last call and what came since. Called once more with what is left, or
    /// nothing, where [`Parse::end`] is set.
    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed;

    /// `len` bytes of a direction are missing. What was left of the last call comes again, then with what is behind them.
    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome;

    /// No more of a direction will come, though there is more: what was begun there ends here, cut off.
    fn truncated(&mut self, _cx: &mut Parse<'_>, _dir: Direction) {}

    /// The flow changed to this parser's protocol with a request, before any data of it.
    fn take_over(&mut self, _cx: &mut Parse<'_>, _from: Upgrade) {}

    /// Numbers of the transactions that there are; some of them may have been freed.
    fn txs(&self) -> Range<u64>;

    /// Number of the first transaction from number `from` on that was not freed, or of one that may not have been. Where
    /// transactions may outlast many later ones, a parser finds it quickly.
    fn next_tx(&self, from: u64) -> Option<u64> {
        let txs = self.txs();
        Some(from.max(txs.start)).filter(|id| *id < txs.end)
    }

    /// As [`Parser::next_tx`], of those that may have changed since [`Parser::rest_tx`] was called for them.
    fn next_awake(&self, from: u64) -> Option<u64> {
        self.next_tx(from)
    }

    /// Nothing is to be done with a transaction until the parser changes it.
    fn rest_tx(&mut self, _id: u64) {}

    /// All transactions are to be looked at again, changed or not.
    fn wake_txs(&mut self) {}

    /// Heap memory in bytes, transactions included. Call it after the parser was given data: it updates its count then.
    fn memory(&mut self) -> u64;

    /// A transaction.
    fn tx(&self, id: u64) -> Option<&dyn Transaction>;

    /// A transaction, to write to.
    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction>;

    /// Frees a transaction that nobody needs any more.
    fn free_tx(&mut self, shared: &mut Shared, id: u64);
}
