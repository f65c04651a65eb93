//! SMB: version 1 (MS-CIFS, MS-SMB), 2 and 3 (MS-SMB2), over TCP with NetBIOS framing (RFC 1002 section 4.3).
//!
//! A request with its response is a transaction, matched by the message number. All reads of a file are one transaction, and so
//! are all its writes (`files`). DCE/RPC over a named pipe becomes calls (`pipe`), in the transaction of the request that carried
//! it. Requests that only query (`QUERY_INFO`, most of `TRANS2`) are no transactions.
//!
//! The parser waits for a complete message, except for reads and writes of files, whose data arrives as a body (`parser`). It
//! skips encrypted and compressed messages.

mod auth;
mod buffers;
pub mod events;
mod files;
mod header;
mod log;
mod names;
mod parser;
mod pipe;
mod recognition;
mod smb1;
mod smb2;
#[cfg(test)]
mod tests;
mod text;
mod trans;
mod tx;

use crate::conversation;
use crate::declare::Protocol;
use crate::proto::AppProto;

pub use crate::config::smb::{Config, LogOptions, kinds};

/// Progress of a complete transaction: index in the states of [`PROTOCOL`].
const COMPLETE: u8 = 1;

/// Frame types: indexes in the frames of [`PROTOCOL`]. Each version has the message, its header and its data.
mod frame {
    pub(super) const NBSS: u8 = 0;
    pub(super) const SMB1: u8 = 3;
    pub(super) const SMB2: u8 = 6;
    pub(super) const SMB3: u8 = 9;
}

/// SMB.
pub static PROTOCOL: Protocol = Protocol {
    meant_by: &["dcerpc"],
    shows_tx: true,
    usual_port: Some(445),
    recognition: recognition::RECOGNITION,
    parser: conversation::parser::<parser::Smb>,
    buffers: buffers::BUFFERS,
    numbers: buffers::NUMBERS,
    events: events::NAMES,
    frames: &[
        "nbss.pdu",
        "nbss.hdr",
        "nbss.data",
        "smb1.pdu",
        "smb1.hdr",
        "smb1.data",
        "smb2.pdu",
        "smb2.hdr",
        "smb2.data",
        "smb3.pdu",
        "smb3.hdr",
        "smb3.data",
    ],
    ..Protocol::new(AppProto::Smb, "smb").logged()
};
