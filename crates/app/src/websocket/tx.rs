//! A frame, and its values for rules and logs.

use margay_flow::Direction;
use margay_json::Json;

use super::{ALERT_PAYLOAD, ALERT_PAYLOAD_PRINTABLE, FIN, Id, OPCODES, PAYLOAD, PAYLOAD_PRINTABLE};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::proto::AppProto;
use crate::tx::{Found, LogFor, TxBase};

/// A frame of the protocol (RFC 6455 section 5.2).
#[derive(Debug)]
pub(super) struct Pdu {
    pub(super) dir: Direction,
    /// FIN and the reserved bits: the upper four.
    pub(super) flags: u8,
    pub(super) opcode: u8,
    pub(super) mask: Option<u32>,
    /// Unmasked and decompressed. A control frame has its own payload; the frame that ends a message has that of the whole
    /// message.
    pub(super) payload: Vec<u8>,
}

impl Content for Pdu {
    fn held(&self) -> u64 {
        self.payload.capacity() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, _index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::Payload && dir == self.dir).then(|| Found::whole(&self.payload))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir || index > 0 {
            return None;
        }
        match Id::of(id)? {
            Id::Flags => Some(self.flags.into()),
            Id::Opcode => Some(self.opcode.into()),
            Id::Mask => self.mask.map(u64::from),
            Id::Payload => None,
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        json.object("websocket");
        json.bool("fin", self.flags & FIN != 0);
        if let Some(mask) = self.mask {
            json.uint("mask", mask.into());
        }
        match OPCODES.iter().find(|(_, n)| *n == u64::from(self.opcode)) {
            Some((name, _)) => json.word("opcode", name),
            None => json.str("opcode", &format!("unknown-{}", self.opcode)),
        }
        let [payload, printable] = match what {
            LogFor::Alert => [ALERT_PAYLOAD, ALERT_PAYLOAD_PRINTABLE],
            LogFor::Event | LogFor::File => [PAYLOAD, PAYLOAD_PRINTABLE],
        };
        let wants = |place| options.options.get(AppProto::Websocket, place) != 0;
        if wants(payload) {
            json.base64("payload_base64", &self.payload);
        }
        if wants(printable) {
            json.printable("payload_printable", &self.payload);
        }
        json.end_object();
    }
}
