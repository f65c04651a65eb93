//! Data connections of FTP (RFC 959 section 3): one file, or list, each.
//!
//! Nothing in the bytes tells what they are. Such a flow is known because its control connection announced it
//! ([`crate::expect`]); direction, command and name of the file come from there.

mod parser;
mod recognition;
mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::registry::{AppProto, Protocol};
use crate::tx::NumberDef;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// The client gets a file.
    Retr = 1,
    /// The client puts one.
    Stor = 2,
    /// It puts one under a name that the server chooses.
    Stou = 3,
    /// It adds to one.
    Appe = 4,
    /// It gets a list.
    List = 5,
    /// It gets a list of names.
    Nlst = 6,
    /// It gets a list for machines (RFC 3659 section 7).
    Mlsd = 7,
}

impl Command {
    /// All of them.
    pub const ALL: [Command; 7] =
        [Command::Retr, Command::Stor, Command::Stou, Command::Appe, Command::List, Command::Nlst, Command::Mlsd];

    /// Its name, as commands and events have it.
    pub const fn name(self) -> &'static str {
        match self {
            Command::Retr => "RETR",
            Command::Stor => "STOR",
            Command::Stou => "STOU",
            Command::Appe => "APPE",
            Command::List => "LIST",
            Command::Nlst => "NLST",
            Command::Mlsd => "MLSD",
        }
    }

    /// Whether the client sends.
    pub const fn is_upload(self) -> bool {
        matches!(self, Command::Stor | Command::Stou | Command::Appe)
    }

    /// Whether what is sent is a list, and no file.
    pub const fn is_list(self) -> bool {
        matches!(self, Command::List | Command::Nlst | Command::Mlsd)
    }

    /// The direction that rules look for it in, whoever opened the connection; they find it in that of the data as well.
    const fn side(self) -> Direction {
        if self.is_upload() { Direction::ToServer } else { Direction::ToClient }
    }
}

/// What the control connection said of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What is done.
    pub command: Command,
    /// The file's name, as the command gives it; that of a list is not kept.
    pub name: Vec<u8>,
}

/// Progress of a transaction: data came in this direction. Places in the states of [`PROTOCOL`].
const STARTED: u8 = 1;
/// The transfer is complete.
const COMPLETE: u8 = 2;

/// Number of `ftpdata_command`.
const COMMAND: u8 = 0;

/// FTP's data.
pub static PROTOCOL: Protocol = Protocol {
    inner_states: &["request_idle", "response_idle"],
    recognition: recognition::RECOGNITION,
    parser: unknown,
    numbers: &[NumberDef { name: "ftpdata_command", id: COMMAND, progress: [Some(0), Some(0)] }],
    states: [
        &["request_idle", "request_started", "request_complete"],
        &["response_idle", "response_started", "response_complete"],
    ],
    ..Protocol::new(AppProto::FtpData, "ftp-data").logged_as("ftp_data")
};

/// The parser of a connection that carries `transfer` in direction `dir`.
pub fn parser(transfer: Transfer, dir: Direction) -> Box<dyn Parser> {
    Box::new(parser::DataParser::new(transfer, dir))
}

/// Without what the control connection says there is a file, and no more.
fn unknown(_: &AppConfig, _: &FlowCore) -> Box<dyn Parser> {
    parser(Transfer { command: Command::Retr, name: Vec::new() }, Direction::ToClient)
}
