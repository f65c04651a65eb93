//! A transaction: one message.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::datagram::Datagram;
use crate::registry::AppProto;
use crate::tx::{Found, LogFor, NumberDef, Transaction, TxBase};

use super::COMPLETE;
use super::events::Event;
use super::message::{Message, option};

/// Numbers for rules: each is an option's.
pub(super) static NUMBERS: &[NumberDef] = &[
    NumberDef { name: "dhcp.leasetime", id: option::LEASE_TIME, progress: [Some(COMPLETE); 2] },
    NumberDef { name: "dhcp.rebinding_time", id: option::REBINDING_TIME, progress: [Some(COMPLETE); 2] },
    NumberDef { name: "dhcp.renewal_time", id: option::RENEWAL_TIME, progress: [Some(COMPLETE); 2] },
];

/// A message, as a transaction.
#[derive(Debug)]
pub struct DhcpTx {
    pub(super) base: TxBase,
    /// Where it went.
    pub(super) dir: Direction,
    /// The message.
    pub message: Message,
}

impl DhcpTx {
    pub(super) fn new(id: u64, dir: Direction, message: Message) -> Self {
        let mut base = TxBase { id, ..TxBase::default() };
        for (is, event) in [(message.malformed, Event::MalformedOptions), (message.truncated, Event::TruncatedOptions)]
        {
            if is {
                base.events.add(event as u8);
            }
        }
        base.one_sided(dir.reverse(), COMPLETE);
        base.advance(dir, COMPLETE);
        DhcpTx { base, dir, message }
    }
}

impl Datagram for DhcpTx {
    const PROTO: AppProto = AppProto::Dhcp;

    fn read(id: u64, dir: Direction, data: &[u8]) -> Option<Self> {
        Message::read(data).map(|message| DhcpTx::new(id, dir, message))
    }
}

impl Transaction for DhcpTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        let options: usize = self.message.options.iter().map(|(_, o)| size_of::<(u8, Vec<u8>)>() + o.capacity()).sum();
        self.base.held() + (options + self.message.hardware.capacity()) as u64
    }

    fn buffer<'a>(&'a self, _: u8, _: Direction, _: usize, _: &'a mut Vec<u8>) -> Option<Found<'a>> {
        None
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir || index > 0 {
            return None;
        }
        self.message.number(id).map(u64::from)
    }

    fn direction(&self, _options: &AppLogOptions) -> Direction {
        self.dir
    }

    /// Without `extended` only what tells which address a client has got.
    fn records(&self, options: &AppLogOptions) -> usize {
        usize::from(options.dhcp.extended || self.message.kind() == "ack")
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn log(&self, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        super::log::log(&self.message, json, options.dhcp);
    }
}
