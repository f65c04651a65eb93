//! A transaction: one message.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::{Content, Tx};
use crate::proto::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, TxBase};

use super::COMPLETE;
use super::events::Event;
use super::message::Message;

/// A message, as a transaction.
pub(crate) type DnsTx = Tx<Dns>;

/// A message with its direction.
#[derive(Debug)]
pub(crate) struct Dns {
    /// DNS or multicast DNS.
    pub(super) proto: AppProto,
    /// The direction of the message.
    pub(super) dir: Direction,
    pub(super) message: Message,
}

/// Creates a transaction with this number for a message that another protocol carries.
pub(crate) fn carried(id: u64, dir: Direction, data: &[u8]) -> DnsTx {
    let content = Dns { proto: AppProto::Dns, dir, message: Message::read(data) };
    let mut tx = Tx::carried(id, dir, content, [COMPLETE; 2]);
    tx.add_faults();
    tx
}

impl DnsTx {
    /// Adds an event for each anomaly of the message.
    pub(super) fn add_faults(&mut self) {
        let Dns { proto, dir, message } = &self.content;
        message.faults.iter().for_each(|e| self.base.events.add(e as u8));
        if *proto == AppProto::Dns && message.readable {
            match dir {
                Direction::ToServer if message.is_response() => self.base.events.add(Event::NotRequest as u8),
                Direction::ToClient if !message.is_response() => self.base.events.add(Event::NotResponse as u8),
                _ => {}
            }
        }
    }
}

impl Dns {
    /// Whether it is a request: by its direction, or for multicast by its flags.
    pub(super) const fn is_request(&self) -> bool {
        match (self.proto, self.dir) {
            (AppProto::Dns, Direction::ToServer) => true,
            (AppProto::Dns, Direction::ToClient) => false,
            _ => !self.message.is_response(),
        }
    }

    /// Whether it is valid and gets an event of its own.
    pub(super) const fn is_sound(&self) -> bool {
        self.message.readable && self.is_request() != self.message.is_response()
    }
}

impl Content for Dns {
    fn held(&self) -> u64 {
        self.message.held() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let name = match self.proto {
            AppProto::Mdns => super::mdns::buffer(self, id, dir, index),
            _ => super::buffers::buffer(self, id, dir, index),
        };
        name.map(Found::whole)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if self.proto == AppProto::Mdns { None } else { super::buffers::number(self, id, dir, index) }
    }

    fn addresses(&self, _only: Option<Direction>, options: &AppLogOptions) -> Direction {
        super::log::direction(self, options)
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        super::log::records(self, &options.dns)
    }

    fn log_record(&self, base: &TxBase, record: usize, json: &mut Json, options: &AppLogOptions) {
        super::log::log_record(self, base.id, record, json, &options.dns);
    }

    fn ask(&self, _base: &TxBase, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        if protocol == "dns" { super::script::answer(&self.message, what) } else { None }
    }

    fn log(&self, base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, base.id, json, &options.dns, what);
    }
}
