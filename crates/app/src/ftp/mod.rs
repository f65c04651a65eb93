//! FTP's control connection (RFC 959, RFC 2228, RFC 2428).
//!
//! Both sides speak in lines. A command and the replies to it are a transaction; replies are those of the oldest command
//! that has none that ends it, and what the server says unasked (its greeting) is a transaction of its own. A reply of
//! several lines ends with the first line that has a code and a blank behind it, and a preliminary one (1yz) does not end
//! the transaction.
//!
//! `PORT`, `EPRT` and the answers to `PASV` and `EPSV` announce a data connection, and `RETR`, `STOR`, `LIST` and the like say what
//! it is for: both are told to [`crate::expect`]. It is expected between the two hosts of the control connection only,
//! whatever address is announced: else one of them could have any connection of its peer's taken for a transfer.

mod address;
mod config;
pub mod events;
mod line;
mod log;
mod parser;
mod recognition;
mod tx;

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::registry::{AppProto, Opening, Protocol};
use crate::tx::{BufferDef, BufferKind, NumberDef};

pub use config::Config;
pub use tx::FtpTx;

/// Progress of a transaction: the command, or a reply, is there. Places in the states of [`PROTOCOL`].
const BEGUN: u8 = 1;
/// The last reply is there.
const COMPLETE: u8 = 2;

/// Numbers of buffers.
const COMMAND: u8 = 0;
const COMMAND_DATA: u8 = 1;
const REPLY: u8 = 2;
const COMPLETION_CODE: u8 = 3;

/// Numbers of numbers.
const DYNAMIC_PORT: u8 = 0;
const MODE: u8 = 1;
const REPLY_RECEIVED: u8 = 2;
const BOUNCE: u8 = 3;

/// What `ftp.mode` is compared with: the client connects.
pub const PASSIVE: u64 = 0;
/// What `ftp.mode` is compared with: the server connects.
pub const ACTIVE: u64 = 1;

/// FTP.
pub static PROTOCOL: Protocol = Protocol {
    usual_port: Some(21),
    opening: Opening::Command,
    inner_states: &["request_line", "response_line"],
    recognition: recognition::RECOGNITION,
    parser,
    buffers: &[
        BufferDef {
            name: "ftp.command",
            also: &[],
            id: COMMAND,
            kind: BufferKind::Single,
            progress: [Some(BEGUN), None],
        },
        BufferDef {
            name: "ftp.command_data",
            also: &[],
            id: COMMAND_DATA,
            kind: BufferKind::Single,
            progress: [Some(BEGUN), None],
        },
        BufferDef { name: "ftp.reply", also: &[], id: REPLY, kind: BufferKind::Multi, progress: [None, Some(BEGUN)] },
        BufferDef {
            name: "ftp.completion_code",
            also: &[],
            id: COMPLETION_CODE,
            kind: BufferKind::Multi,
            progress: [None, Some(BEGUN)],
        },
    ],
    numbers: &[
        NumberDef { name: "ftp.dynamic_port", id: DYNAMIC_PORT, progress: [Some(BEGUN), Some(BEGUN)] },
        NumberDef { name: "ftp.mode", id: MODE, progress: [Some(BEGUN), Some(BEGUN)] },
        NumberDef { name: "ftp.reply_received", id: REPLY_RECEIVED, progress: [None, Some(COMPLETE)] },
        NumberDef { name: "ftpbounce", id: BOUNCE, progress: [Some(BEGUN), None] },
    ],
    states: [
        &["request_started", "request_line", "request_complete"],
        &["response_started", "response_line", "response_complete"],
    ],
    events: events::NAMES,
    ..Protocol::new(AppProto::Ftp, "ftp").logged()
};

fn parser(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::<parser::FtpParser>::default()
}

#[cfg(test)]
mod tests;
