//! All data of a data connection is the file or the list.

use std::ops::Range;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::{Transaction, TxBase};

use super::tx::DataTx;
use super::{COMPLETE, STARTED, Transfer};

/// The parser of a data connection.
#[derive(Debug)]
pub(super) struct DataParser {
    /// The announced transfer, until data comes.
    transfer: Option<Transfer>,
    /// The direction of the data.
    dir: Direction,
    tx: Option<Box<DataTx>>,
    /// The transaction was freed.
    freed: bool,
}

impl DataParser {
    pub(super) fn new(transfer: Transfer, dir: Direction) -> Self {
        DataParser { transfer: Some(transfer), dir, tx: None, freed: false }
    }

    /// The transaction, which begins with its file at the first data.
    fn begin(&mut self, cx: &mut Parse<'_>) -> Option<&mut DataTx> {
        if let Some(transfer) = self.transfer.take() {
            let mut base = TxBase::default();
            if !transfer.command.is_list() {
                base.files.open(&mut cx.shared.files, &cx.config.files, self.dir, &transfer.name, None);
            }
            base.advance(self.dir, STARTED);
            base.touch(self.dir.reverse());
            self.tx = Some(Box::new(DataTx { base, transfer, dir: self.dir }));
        }
        self.tx.as_deref_mut()
    }

    fn finish(&mut self, cx: &mut Parse<'_>, truncated: bool) {
        let dir = self.dir;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        if tx.base.files.is_open(dir) {
            tx.base.files.close(&mut cx.shared.files, &cx.config.files, dir, truncated);
        }
        tx.base.advance(dir, COMPLETE);
        let other = dir.reverse();
        if tx.base.updated[other.index()] {
            // Rules have not inspected the values of that direction.
            tx.base.advance(other, COMPLETE);
        } else {
            tx.base.one_sided(other, COMPLETE);
        }
    }
}

impl Parser for DataParser {
    fn proto(&self) -> AppProto {
        AppProto::FtpData
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        // Data in the other direction has no meaning.
        if dir == self.dir {
            if !data.is_empty()
                && let Some(tx) = self.begin(cx)
            {
                if tx.base.files.is_open(dir) {
                    tx.base.files.append(&mut cx.shared.files, &cx.config.files, dir, data);
                }
                tx.base.touch(dir);
            }
            if cx.end {
                self.finish(cx, false);
            }
        }
        Parsed::used(data.len())
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        if dir == self.dir
            && let Some(tx) = self.begin(cx)
        {
            if tx.base.files.is_open(dir) {
                tx.base.files.gap(&mut cx.shared.files, &cx.config.files, dir, len);
            }
            tx.base.touch(dir);
        }
        Outcome::More
    }

    fn truncated(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        if dir == self.dir {
            self.finish(cx, true);
        }
    }

    fn memory(&mut self) -> u64 {
        self.tx.as_ref().map_or(0, |tx| size_of::<DataTx>() as u64 + tx.held())
    }

    fn txs(&self) -> Range<u64> {
        match (&self.tx, self.freed) {
            (Some(_), _) => 0..1,
            (None, true) => 1..1,
            (None, false) => 0..0,
        }
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.tx.as_deref().filter(|_| id == 0).map(|t| t as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.tx.as_deref_mut().filter(|_| id == 0).map(|t| t as &mut dyn Transaction)
    }

    fn free_tx(&mut self, _: &mut Shared, id: u64) {
        if id == 0 && self.tx.take().is_some() {
            self.freed = true;
        }
    }
}
