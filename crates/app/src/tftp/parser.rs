//! Datagrams: those that are requests.

use std::ops::Range;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::TxList;

use super::tx::{Request, TftpTx};

/// Most transactions that were not freed yet: a datagram has one.
const TXS_MAX: usize = 256;

/// A flow's parser.
#[derive(Debug, Default)]
pub(super) struct TftpParser {
    txs: TxList<TftpTx>,
}

impl Parser for TftpParser {
    fn proto(&self) -> AppProto {
        AppProto::Tftp
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if let Some(request) = Request::read(data) {
            let tx = TftpTx::new(self.txs.next(), dir, request);
            self.txs.push(tx, TXS_MAX, AppProto::Tftp, cx.shared);
        }
        Parsed::used(data.len())
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::More
    }

    fn txs(&self) -> Range<u64> {
        self.txs.range()
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.txs.get(id)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.txs.get_mut(id)
    }

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        self.txs.free(id);
    }
}
