//! Reads messages from datagrams, and from streams with a length before each message (RFC 1035 section 4.2.2).
//!
//! If a gap ends outside a known message, the parser looks for a message at the beginning of the next data, because DNS
//! segments start with one.

use std::collections::VecDeque;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Resume, Turn, Tx};
use crate::parser::{Outcome, Shared};
use crate::proto::AppProto;
use crate::recognise::Probed;

use super::message::Message;
use super::tx::Dns;
use super::{PDU_FRAME, recognition};

/// The limit of unlogged requests whose responses are kept out of the log too; the oldest are dropped.
const UNLOGGED_MAX: usize = 128;

/// Size of the length before a message in a stream.
const LENGTH: usize = 2;

/// A flow of DNS, or of multicast DNS.
#[derive(Debug)]
pub(super) struct DnsFlow<const MULTICAST: bool> {
    stream: bool,
    max_txs: usize,
    /// Identifiers of requests that a `config` rule kept out of the log. Their responses are not logged either.
    unlogged: VecDeque<u16>,
}

impl<const MULTICAST: bool> Conversation for DnsFlow<MULTICAST> {
    type Tx = Dns;
    const PROTO: AppProto = if MULTICAST { AppProto::Mdns } else { AppProto::Dns };
    const RESUMES: bool = true;

    fn new(config: &AppConfig, flow: &FlowCore) -> Self {
        DnsFlow { stream: flow.proto == 6, max_txs: config.dns.max_tx, unlogged: VecDeque::new() }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        match data.first_chunk().map(|b| usize::from(u16::from_be_bytes(*b))) {
            // An empty message is a keep-alive.
            Some(0) => Framing::Skip(LENGTH),
            Some(len) => Framing::Message(LENGTH + len),
            None if end => Framing::Skip(data.len()),
            None => Framing::More,
        }
    }

    fn resume(&mut self, dir: Direction, data: &[u8], end: bool) -> Resume {
        match recognition::tcp(dir, data) {
            Probed::Yes { reverse: false } => Resume::Here,
            Probed::More if !end => Resume::More,
            // Data that does not begin with a message is skipped.
            _ => Resume::Skip(data.len()),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Dns>, dir: Direction, message: &[u8]) -> Outcome {
        let at = if self.stream { LENGTH } else { 0 };
        let Some(data) = message.get(at..).filter(|m| !m.is_empty()) else { return Outcome::More };
        let content = Dns { proto: Self::PROTO, dir, message: Message::read(data) };
        let mut no_log = false;
        if !self.unlogged.is_empty()
            && !content.is_request()
            && let Some(i) = self.unlogged.iter().position(|&u| u == content.message.id)
        {
            self.unlogged.remove(i);
            no_log = true;
        }
        let tx = turn.one_way(dir, content);
        tx.base.no_log = no_log;
        tx.add_faults();
        let id = tx.base.id;
        turn.frame(dir, PDU_FRAME, at, data.len(), Some(id));
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn freed(&mut self, _shared: &mut Shared, tx: &mut Tx<Dns>) {
        if tx.base.no_log && tx.content.is_request() {
            if self.unlogged.len() == UNLOGGED_MAX {
                self.unlogged.pop_front();
            }
            self.unlogged.push_back(tx.content.message.id);
        }
    }

    fn held(&self) -> u64 {
        (self.unlogged.capacity() * size_of::<u16>()) as u64
    }
}
