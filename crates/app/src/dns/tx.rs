//! A transaction: one message.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::registry::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::COMPLETE;
use super::events::Event;
use super::message::Message;

/// A message, as a transaction.
#[derive(Debug)]
pub struct DnsTx {
    pub(super) base: TxBase,
    /// DNS or multicast DNS.
    pub(super) proto: AppProto,
    /// Where it went.
    pub(super) dir: Direction,
    /// The message.
    pub message: Message,
}

impl DnsTx {
    pub(crate) fn new(id: u64, proto: AppProto, dir: Direction, message: Message) -> Self {
        let mut base = TxBase { id, ..TxBase::default() };
        message.faults.iter().for_each(|e| base.events.add(e as u8));
        if proto == AppProto::Dns && message.readable {
            match dir {
                Direction::ToServer if message.is_response() => base.events.add(Event::NotRequest as u8),
                Direction::ToClient if !message.is_response() => base.events.add(Event::NotResponse as u8),
                _ => {}
            }
        }
        base.one_sided(dir.reverse(), COMPLETE);
        base.advance(dir, COMPLETE);
        DnsTx { base, proto, dir, message }
    }

    /// Whether it is a request: by where it went, or with multicast by what it says.
    pub(super) const fn is_request(&self) -> bool {
        match (self.proto, self.dir) {
            (AppProto::Dns, Direction::ToServer) => true,
            (AppProto::Dns, Direction::ToClient) => false,
            _ => !self.message.is_response(),
        }
    }

    /// Whether it is what it should be, and worth an event of its own.
    pub(super) const fn is_sound(&self) -> bool {
        self.message.readable && self.is_request() != self.message.is_response()
    }
}

impl Transaction for DnsTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        self.base.held() + self.message.held() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index).map(Found::whole)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        super::buffers::number(self, id, dir, index)
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn direction(&self, options: &AppLogOptions) -> Direction {
        super::log::direction(self, options)
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        super::log::records(self, &options.dns)
    }

    fn log_record(&self, record: usize, json: &mut Json, options: &AppLogOptions) {
        super::log::log_record(self, record, json, &options.dns);
    }

    fn ask(&self, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        if protocol == "dns" { super::script::answer(&self.message, what) } else { None }
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, json, &options.dns, what);
    }
}
