//! Data connections of FTP (RFC 959 section 3): one file each.
//!
//! Nothing in the bytes tells what they are. Such a flow is known because its control connection announced it
//! ([`crate::expect`]); direction, command and name of the file come from there.

mod parser;
mod recognition;
mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::registry::Protocol;
use crate::tx::NumberDef;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// The client gets a file.
    Retr = 1,
    /// The client puts one (`STOR`, `STOU`, `APPE`).
    Stor = 2,
}

impl Command {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Command::Retr => "RETR",
            Command::Stor => "STOR",
        }
    }

    /// The direction that rules look for it in, whoever opened the connection.
    const fn side(self) -> Direction {
        match self {
            Command::Retr => Direction::ToClient,
            Command::Stor => Direction::ToServer,
        }
    }
}

/// What the control connection said of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What is done.
    pub command: Command,
    /// The file's name, as the command gives it.
    pub name: Vec<u8>,
}

/// Progress of a transaction: data came, the transfer is complete.
const COMPLETE: u8 = 1;

/// Number of `ftpdata_command`.
const COMMAND: u8 = 0;

/// FTP's data.
pub static PROTOCOL: Protocol = Protocol {
    proto: AppProto::FtpData,
    config: "ftp-data",
    recognition: recognition::RECOGNITION,
    parser: unknown,
    buffers: &[],
    numbers: &[NumberDef { name: "ftpdata_command", id: COMMAND, progress: [Some(0), Some(0)] }],
    states: [&["request_started", "request_complete"], &["response_started", "response_complete"]],
    events: &[],
    frames: &[],
    log: "ftp_data",
};

/// The parser of a connection that carries `transfer` in direction `dir`.
pub fn parser(transfer: Transfer, dir: Direction) -> Box<dyn Parser> {
    Box::new(parser::DataParser::new(transfer, dir))
}

/// Without what the control connection says there is a file, and no more.
fn unknown(_: &AppConfig, _: &FlowCore) -> Box<dyn Parser> {
    parser(Transfer { command: Command::Retr, name: Vec::new() }, Direction::ToClient)
}
