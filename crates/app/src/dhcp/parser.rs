//! Datagrams, each a message.

use std::ops::Range;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::TxList;

use super::message::Message;
use super::tx::DhcpTx;

/// Most transactions that were not freed yet: a datagram has one.
const TXS_MAX: usize = 256;

/// A flow's parser.
#[derive(Debug, Default)]
pub(super) struct DhcpParser {
    txs: TxList<DhcpTx>,
}

impl Parser for DhcpParser {
    fn proto(&self) -> AppProto {
        AppProto::Dhcp
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if let Some(message) = Message::read(data) {
            let tx = DhcpTx::new(self.txs.next(), dir, message);
            self.txs.push(tx, TXS_MAX, AppProto::Dhcp, cx.shared);
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
