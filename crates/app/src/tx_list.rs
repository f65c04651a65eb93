//! The transactions of a flow whose numbers follow one another.

use std::collections::VecDeque;
use std::ops::Range;

use crate::parser::Shared;
use crate::proto::AppProto;
use crate::tx::Transaction;

/// Transactions by number, from the first that was not freed to the latest.
#[derive(Debug)]
pub(crate) struct TxList<T> {
    txs: VecDeque<Option<Box<T>>>,
    /// Number of the first of `txs`.
    first: u64,
}

impl<T> Default for TxList<T> {
    fn default() -> Self {
        TxList { txs: VecDeque::new(), first: 0 }
    }
}

impl<T: Transaction + 'static> TxList<T> {
    /// The number that the next one gets.
    pub(crate) fn next(&self) -> u64 {
        self.first.saturating_add(self.txs.len() as u64)
    }

    /// The numbers of those that there are; some may have been freed.
    pub(crate) fn range(&self) -> Range<u64> {
        self.first..self.next()
    }

    /// Adds one. Where there are `most` that were not freed yet it is dropped, and counted for `proto`.
    pub(crate) fn push(&mut self, tx: T, most: usize, proto: AppProto, shared: &mut Shared) {
        if self.txs.len() < most {
            self.txs.push_back(Some(Box::new(tx)));
        } else if let Some(n) = shared.counters.tx_limit.get_mut(proto as usize) {
            *n += 1;
        }
    }

    fn place(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.first)?).ok()
    }

    /// That of a number.
    pub(crate) fn get(&self, id: u64) -> Option<&dyn Transaction> {
        self.txs.get(self.place(id)?)?.as_deref().map(|t| t as &dyn Transaction)
    }

    /// That of a number.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        let i = self.place(id)?;
        self.txs.get_mut(i)?.as_deref_mut().map(|t| t as &mut dyn Transaction)
    }

    /// Lets go of one, and of the places before the first that is left.
    pub(crate) fn free(&mut self, id: u64) {
        if let Some(tx) = self.place(id).and_then(|i| self.txs.get_mut(i)) {
            *tx = None;
        }
        while let Some(None) = self.txs.front() {
            self.txs.pop_front();
            self.first += 1;
        }
    }
}
