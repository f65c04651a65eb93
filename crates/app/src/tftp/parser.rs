//! Datagrams: those that are requests.

use std::collections::VecDeque;
use std::ops::Range;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;

use super::tx::{Request, TftpTx};

/// Most transactions that were not freed yet: a datagram has one.
const TXS_MAX: usize = 256;

/// A flow's parser.
#[derive(Debug, Default)]
pub(super) struct TftpParser {
    txs: VecDeque<Option<Box<TftpTx>>>,
    /// Number of the first of `txs`.
    first: u64,
}

impl TftpParser {
    fn next(&self) -> u64 {
        self.first.saturating_add(self.txs.len() as u64)
    }
}

impl Parser for TftpParser {
    fn proto(&self) -> AppProto {
        AppProto::Tftp
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if let Some(request) = Request::read(data) {
            if self.txs.len() < TXS_MAX {
                self.txs.push_back(Some(Box::new(TftpTx::new(self.next(), dir, request))));
            } else if let Some(n) = cx.shared.counters.tx_limit.get_mut(AppProto::Tftp as usize) {
                *n += 1;
            }
        }
        Parsed::used(data.len())
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::More
    }

    fn txs(&self) -> Range<u64> {
        self.first..self.next()
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        let i = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.txs.get(i)?.as_deref().map(|t| t as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        let i = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.txs.get_mut(i)?.as_deref_mut().map(|t| t as &mut dyn Transaction)
    }

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        let Some(i) = id.checked_sub(self.first).and_then(|i| usize::try_from(i).ok()) else { return };
        if let Some(tx) = self.txs.get_mut(i) {
            *tx = None;
        }
        while let Some(None) = self.txs.front() {
            self.txs.pop_front();
            self.first += 1;
        }
    }
}
