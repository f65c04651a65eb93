//! The interface between the engine and a protocol's parser.

use std::fmt::Debug;
use std::ops::Range;

use margay_flow::{Direction, FlowCore};
use margay_packet::Time;

use crate::certificates::CertificateStore;
use crate::config::AppConfig;
use crate::expect::Expect;
use crate::file::FileEngine;
use crate::frame::FrameMarks;
use crate::proto::AppProto;
use crate::tx::Transaction;

/// Counters of the application layer, indexed by [`AppProto`]. Each worker has its own.
#[derive(Debug, Clone)]
pub struct AppCounters {
    /// Flows by protocol (`app_layer.flow.*`), for TCP and UDP.
    pub flows: [[u64; 64]; 2],
    /// Transactions (`app_layer.tx.*`), for TCP and UDP.
    pub txs: [[u64; 64]; 2],
    /// Flows whose parser gave up at a gap (`app_layer.error.*.gap`); only TCP has gaps.
    pub gaps: [u64; 64],
    /// Flows whose parser found invalid data (`app_layer.error.*.parser`), for TCP and UDP. Over UDP, each invalid datagram
    /// counts.
    pub failed: [[u64; 64]; 2],
    /// Flows whose parser got no more memory (`app_layer.error.*.alloc`), for TCP and UDP.
    pub alloc: [[u64; 64]; 2],
    /// Flows whose parser left more data unconsumed than the engine buffers (`app_layer.error.*.internal`), for TCP and UDP.
    pub internal: [[u64; 64]; 2],
    /// How often a flow reached its limit of transactions (`*.max-tx`), by protocol.
    pub tx_limit: [u64; 64],
    /// Bytes that all flows' parsers and transactions hold now (`app_layer.memuse`).
    pub memory: u64,
    /// Flows that lost their parser because `app-layer.memcap` was reached (`app_layer.memcap`).
    pub memcap: u64,
    /// Bytes that HTTP transactions hold now (`http.memuse`).
    pub http_memory: u64,
    /// How often HTTP reached its memcap (`http.memcap`).
    pub http_memcap: u64,
    /// Requests with more arguments than `http.arg` keeps (`http.arguments_limit`).
    pub http_arguments: u64,
    /// Bytes that FTP transactions hold now (`ftp.memuse`).
    pub ftp_memory: u64,
    /// How often FTP reached its memcap (`ftp.memcap`).
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
    /// Counts a flow that reached its limit of transactions.
    pub(crate) fn tx_limit(&mut self, proto: AppProto) {
        if let Some(n) = self.tx_limit.get_mut(proto as usize) {
            *n += 1;
        }
    }

    /// Counts an error of a parser; `transport` is the IP protocol of the flow (6 or 17).
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
}

/// Why a parser gave up on its flow, or over UDP on a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParserError {
    /// A gap in data that the parser needs (`app_layer.error.*.gap`).
    Gap,
    /// The data is not valid for the protocol (`app_layer.error.*.parser`).
    Parser,
    /// The parser needed memory after the application layer reached its limit (`app_layer.error.*.alloc`).
    Alloc,
    /// The parser left more data unconsumed than the engine buffers (`app_layer.error.*.internal`).
    Internal,
}

/// A parser's requests to the engine, valid for the rest of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowRequests {
    /// The rest is encrypted: inspecting payloads or the stream is of no use.
    pub no_payload: bool,
    /// Nothing more of the flow is worth inspecting, so it may be bypassed.
    pub bypass: bool,
    /// The stream depth of each direction in bytes, 0 for no limit. It overrides the configuration.
    pub stream_depth: Option<u64>,
}

/// The state that all parsers of a worker share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Files: hashes, magic, store.
    pub files: FileEngine,
    /// Counters.
    pub counters: AppCounters,
    /// Where parsers mark frames.
    pub frames: FrameMarks,
    /// The requests of the parser that is running.
    pub wishes: FlowRequests,
    /// By direction: the parser has read a complete message that rules on the raw stream should inspect, however short it is.
    /// The engine clears it.
    pub whole: [bool; 2],
    /// Connections that parsers announced, until the engine registers them.
    pub expected: Vec<Expect>,
    /// Certificates that rules want stored.
    pub certificates: CertificateStore,
    /// The HTTP/1 request that led to the protocol change ([`Outcome::Change`]), for the new protocol's parser.
    pub upgrade: Option<Upgrade>,
    /// A reusable scratch buffer. Clear it before use.
    pub scratch: Vec<u8>,
}

/// An HTTP/1 request that the server upgraded to another protocol (RFC 9110, section 7.8).
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

/// The context of a parser call, apart from the data.
#[derive(Debug)]
pub struct Parse<'a> {
    /// Settings.
    pub config: &'a AppConfig,
    /// The state that the worker's parsers share.
    pub shared: &'a mut Shared,
    /// The flow.
    pub flow: &'a FlowCore,
    /// Time of the packet.
    pub time: Time,
    /// Whether this direction of the stream ends here.
    pub end: bool,
    /// Inline mode: inspected data may already be forwarded.
    pub inline: bool,
}

impl Parse<'_> {
    /// The outcome for a datagram that a parser cannot read, where other traffic shares the protocol's port (voice and tunnels that of
    /// QUIC). It is an error, except inline: an error would drop the flow there.
    pub(crate) const fn unreadable(&self) -> Outcome {
        if self.inline { Outcome::More } else { Outcome::Failed }
    }
}

/// The result of a parser call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes that the parser consumed. The rest comes again with more data after it.
    pub consumed: usize,
    /// How the session continues.
    pub outcome: Outcome,
}

/// How a session continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The parser needs more data.
    More,
    /// As `More`, and the engine first offers the rest of the other direction, which waited for this one, again. That data was
    /// sent before the rest of this direction, so the parser stops here, and its own rest comes after it.
    Resume,
    /// The parser has finished with both directions of the flow. The rest is not parsed, as in a tunnel.
    Done,
    /// The flow has reached its limit of transactions. The caller inspects, logs and frees complete ones, and offers the
    /// unconsumed data again.
    Full,
    /// The data is invalid. Over TCP the flow continues without a parser; over UDP the parser continues with the next datagram.
    Failed,
    /// Another protocol follows, starting with the unconsumed data. `None`: run protocol detection.
    Change(Option<AppProto>),
    /// The parser continues under a new protocol name: HTTP/2 turned out to carry DNS.
    Rename(AppProto),
}

impl Parsed {
    /// `n` bytes were consumed.
    pub const fn used(n: usize) -> Self {
        Parsed { consumed: n, outcome: Outcome::More }
    }
}

/// The parser of a flow.
pub trait Parser: Debug + Send {
    /// The protocol it parses.
    fn proto(&self) -> AppProto;

    /// Whether stream rules inspect each complete message at once instead of waiting for a full chunk.
    fn is_prompt(&self) -> bool {
        true
    }

    /// Whether the payload of alerts begins with the stream, not with the current message.
    fn shows_start(&self) -> bool {
        false
    }

    /// The flow changed to this protocol from another one.
    fn comes_after(&mut self, _original: AppProto) {}

    /// Parses data of a direction: the unconsumed rest of the last call, followed by new data. The last call has [`Parse::end`]
    /// set, with the rest or with no data.
    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed;

    /// Handles a gap of `len` bytes. The unconsumed rest of the last call comes again, followed by the data after the gap.
    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome;

    /// The engine delivers no more data of this direction, though the stream continues: open messages end here, truncated.
    fn truncated(&mut self, _cx: &mut Parse<'_>, _dir: Direction) {}

    /// The flow changed to this protocol with an HTTP/1 request. Called before any data.
    fn take_over(&mut self, _cx: &mut Parse<'_>, _from: Upgrade) {}

    /// The range of transaction numbers; some of them may have been freed.
    fn txs(&self) -> Range<u64>;

    /// The first transaction number from `from` on that may still exist. A parser whose transactions can outlast many later
    /// ones overrides this with a fast search.
    fn next_tx(&self, from: u64) -> Option<u64> {
        let txs = self.txs();
        Some(from.max(txs.start)).filter(|id| *id < txs.end)
    }

    /// As [`Parser::next_tx`], for transactions that may have changed since [`Parser::rest_tx`].
    fn next_awake(&self, from: u64) -> Option<u64> {
        self.next_tx(from)
    }

    /// Visits the transactions of [`Parser::next_awake`] in order. Those for which `f` returns true rest ([`Parser::rest_tx`]).
    fn visit_awake(&mut self, f: &mut dyn FnMut(u64, &mut dyn Transaction) -> bool) {
        let mut from = 0;
        while let Some(id) = self.next_awake(from) {
            from = id + 1;
            if self.tx_mut(id).is_some_and(|tx| f(id, tx)) {
                self.rest_tx(id);
            }
        }
    }

    /// The first transaction number from `from` on without the progress `complete` in a direction, or one past the latest. The
    /// flag says whether a message of the direction, not one of the other, is before it.
    fn past_complete(&self, from: u64, dir: Direction, complete: u8) -> (u64, bool) {
        let (end, mut next, mut any) = (self.txs().end, from, false);
        while next < end {
            let tx = self.tx(next).map(Transaction::base);
            if tx.is_some_and(|tx| tx.progress[dir.index()] < complete) {
                break;
            }
            any |= tx.is_none_or(|tx| tx.only != Some(dir.reverse()));
            next += 1;
        }
        (next, any)
    }

    /// Skips a transaction in [`Parser::next_awake`] until the parser changes it.
    fn rest_tx(&mut self, _id: u64) {}

    /// Marks all transactions for another inspection.
    fn wake_txs(&mut self) {}

    /// Heap memory in bytes, including transactions. The call updates the count, so make it after the parser has run.
    fn memory(&mut self) -> u64;

    /// The transaction with this number.
    fn tx(&self, id: u64) -> Option<&dyn Transaction>;

    /// The transaction with this number, mutable.
    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction>;

    /// Frees a transaction that is inspected and logged.
    fn free_tx(&mut self, shared: &mut Shared, id: u64);
}
