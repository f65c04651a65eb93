//! The parser of protocols whose datagrams each are a transaction, or nothing.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::registry::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

/// Most transactions that were not freed yet: a datagram has one.
const TXS_MAX: usize = 256;

/// A datagram as a transaction.
pub(crate) trait Datagram: Transaction + std::fmt::Debug + Send + Sized + 'static {
    /// Its protocol.
    const PROTO: AppProto;

    /// The transaction of that number that `data` is, sent in direction `dir`; `None` where it is none.
    fn read(id: u64, dir: Direction, data: &[u8]) -> Option<Self>;
}

/// A flow's parser.
#[derive(Debug)]
pub(crate) struct DatagramParser<T> {
    txs: TxList<T>,
}

impl<T> Default for DatagramParser<T> {
    fn default() -> Self {
        DatagramParser { txs: TxList::default() }
    }
}

impl<T: Datagram> Parser for DatagramParser<T> {
    fn proto(&self) -> AppProto {
        T::PROTO
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        if let Some(tx) = T::read(self.txs.next(), dir, data) {
            if self.txs.len() < TXS_MAX {
                self.txs.push(|_| tx);
            } else {
                cx.shared.counters.tx_limit(T::PROTO);
            }
        }
        Parsed::used(data.len())
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        self.txs.memory()
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        self.txs.remove(id);
    }
}
