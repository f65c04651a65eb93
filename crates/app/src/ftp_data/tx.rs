//! A transfer.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::Transfer;

/// A transfer.
#[derive(Debug)]
pub(super) struct DataTx {
    pub(super) base: TxBase,
    pub(super) transfer: Transfer,
    /// The direction of the data.
    pub(super) dir: Direction,
}

impl Transaction for DataTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        self.base.held() + self.transfer.name.capacity() as u64
    }

    fn buffer<'a>(&'a self, _: u8, _: Direction, _: usize, _: &'a mut Vec<u8>) -> Option<Found<'a>> {
        None
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let command = self.transfer.command;
        (id == super::COMMAND && index == 0 && (dir == command.side() || dir == self.dir)).then_some(command as u64)
    }

    fn inspected(&mut self, dir: Direction) {
        let limits = self.file_window(dir, false);
        self.base.files.inspected(dir, limits);
    }

    fn log(&self, json: &mut Json, _: &AppLogOptions, what: LogFor) {
        if what == LogFor::File {
            return;
        }
        json.object("ftp_data");
        if !self.transfer.name.is_empty() {
            json.bytes("filename", &self.transfer.name);
        }
        json.str("command", self.transfer.command.name());
        json.end_object();
    }
}
