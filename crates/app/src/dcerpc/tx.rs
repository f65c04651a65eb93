//! A transaction: a call, or a bind.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{Found, LogFor, TxBase};

use super::call::{Call, fragments};
use super::open::{DatagramKey, Key};
use super::pdu::{self, kind};

/// The state of a transaction.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub call: Call,
    /// Over UDP: the key of the call.
    pub datagram: Option<DatagramKey>,
}

impl Exchange {
    /// Identifies the transaction's call within its flow.
    pub(super) const fn key(&self) -> Key {
        match self.datagram {
            Some(key) => Key::Datagram(key),
            None => Key::Call(self.call.id),
        }
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        self.call.held() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn number(&self, id: u8, _dir: Direction, index: usize) -> Option<u64> {
        super::buffers::number(self, id, index)
    }

    fn little_endian(&self, dir: Direction) -> bool {
        self.call.side(dir).little
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, what: LogFor) {
        if what == LogFor::File {
            return;
        }
        json.object("dcerpc");
        match self.datagram {
            None => {
                self.call.log(json);
                json.str("rpc_version", if self.call.minor == 0 { "5.0" } else { "5.1" });
            }
            Some((activity, sequence)) => {
                let [request, response] = &self.call.sides;
                json.str("request", request.kind.map_or("REQUEST_LOST", pdu::name));
                if request.kind == Some(kind::REQUEST) {
                    json.object("req");
                    if let Some(opnum) = self.call.opnum {
                        json.uint("opnum", u64::from(opnum));
                    }
                    fragments(json, request);
                    json.end_object();
                }
                json.str("response", response.kind.map_or("UNREPLIED", pdu::name));
                if response.kind == Some(kind::RESPONSE) {
                    json.object("res");
                    fragments(json, response);
                    json.end_object();
                }
                json.str("activityuuid", &activity.to_string());
                json.uint("seqnum", u64::from(sequence));
                json.str("rpc_version", "4.0");
            }
        }
        json.end_object();
    }
}
