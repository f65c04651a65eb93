//! DCE/RPC (C706 chapter 12): over TCP, over UDP, and in the named pipes of SMB.
//!
//! A call is a transaction: the request with its response, reassembled from fragments by the call number. So is a bind. Over
//! UDP, activity and sequence number identify a call, and the message type shows its side. `pdu` reads messages and `call`
//! builds calls from them; SMB shares both.

mod buffers;
pub(crate) mod call;
pub mod events;
mod open;
mod parser;
pub(crate) mod pdu;
mod recognition;
#[cfg(test)]
pub(crate) mod tests;
mod tx;

use crate::declare::{Protocol, Setting};
use crate::proto::AppProto;

pub(crate) use buffers::{interface, opnum_keyword};

/// Place in the settings of [`PROTOCOL`].
const MAX_TX: usize = 0;

/// Progress of a complete transaction: index in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// Frame types: indexes in the frames of [`PROTOCOL`].
const PDU_FRAME: u8 = 0;
/// See [`PDU_FRAME`].
const HDR_FRAME: u8 = 1;
/// See [`PDU_FRAME`].
const DATA_FRAME: u8 = 2;

/// DCE/RPC.
pub static PROTOCOL: Protocol = Protocol {
    headers: &[("dcerpc", &["dcerpc", "smb"])],
    settings: &[Setting::max_tx(1024)],
    recognition: recognition::RECOGNITION,
    parser: crate::conversation::parser::<parser::Dcerpc>,
    buffers: buffers::BUFFERS,
    numbers: buffers::NUMBERS,
    events: events::NAMES,
    frames: &["pdu", "hdr", "data"],
    ..Protocol::new(AppProto::Dcerpc, "dcerpc").logged()
};
