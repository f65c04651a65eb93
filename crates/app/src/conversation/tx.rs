//! A transaction of the framework.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};
use crate::window::{self, WindowLimits};

use super::Content;

/// A transaction: the common part and the protocol's part.
#[derive(Debug)]
pub struct Tx<C> {
    /// The state that all transactions have.
    pub base: TxBase,
    /// The protocol's state.
    pub content: C,
    /// Progress of a complete transaction, by direction.
    pub(super) complete: [u8; 2],
}

impl<C: Content> Tx<C> {
    /// Creates a single-message transaction that another protocol's transaction carries. `complete` is the progress of a
    /// complete one.
    pub fn carried(id: u64, dir: Direction, content: C, complete: [u8; 2]) -> Tx<C> {
        let mut tx = Tx { base: TxBase { id, ..TxBase::default() }, content, complete };
        tx.finish_one_way(dir);
        tx
    }

    /// Marks a direction as complete.
    pub fn finish(&mut self, dir: Direction) {
        self.base.advance(dir, self.complete[dir.index()]);
    }

    /// Makes the transaction one-way: rules inspect it together with the data that goes in `dir`, whichever side sends a part
    /// of it.
    pub fn only(&mut self, dir: Direction) {
        self.base.one_sided(dir.reverse(), self.complete[dir.reverse().index()]);
    }

    /// Completes a transaction that has data in `dir` only.
    pub fn finish_one_way(&mut self, dir: Direction) {
        self.only(dir);
        self.finish(dir);
    }

    /// Marks a direction as updated, so that rules inspect it again.
    pub fn touch(&mut self, dir: Direction) {
        self.base.touch(dir);
    }

    /// Whether a direction is complete.
    pub fn is_finished(&self, dir: Direction) -> bool {
        self.base.progress[dir.index()] >= self.complete[dir.index()]
    }

    /// Adds an event. Rules inspect it even if the transaction is incomplete.
    pub fn event(&mut self, event: u8) {
        self.base.events.add(event);
        for dir in [Direction::ToServer, Direction::ToClient] {
            if self.base.only.is_none_or(|only| only == dir) {
                self.base.touch(dir);
            }
        }
    }
}

impl<C: Content> Transaction for Tx<C> {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        self.base.held() + self.content.held()
    }

    fn counted(&self) -> u64 {
        self.content.counted()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        self.content.buffer(id, dir, index, scratch)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        self.content.number(id, dir, index)
    }

    fn little_endian(&self, dir: Direction) -> bool {
        self.content.little_endian(dir)
    }

    fn is_loggable(&self, complete: bool) -> bool {
        self.content.is_loggable(&self.base, complete)
    }

    fn direction(&self, options: &AppLogOptions) -> Direction {
        self.content.addresses(self.base.only, options)
    }

    fn ask(&self, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        self.content.ask(&self.base, protocol, what, arg)
    }

    fn log_record(&self, record: usize, json: &mut Json, options: &AppLogOptions) {
        self.content.log_record(&self.base, record, json, options);
    }

    fn is_counted(&self) -> bool {
        self.content.is_counted()
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        self.content.records(options)
    }

    fn inspected(&mut self, dir: Direction) {
        if let Some(limits) = self.content.file_window(false) {
            self.base.files.inspected(dir, limits);
        }
    }

    fn file_window(&self, _dir: Direction, inline: bool) -> WindowLimits {
        self.content.file_window(inline).unwrap_or_else(|| window::file_window(inline))
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        self.content.log(&self.base, json, options, what);
    }
}
