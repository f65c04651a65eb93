//! Data connections of FTP (RFC 959 section 3): each carries one file or list.
//!
//! Their data does not identify the protocol. Such a flow is known because its control connection announced it
//! ([`crate::expect`]), with the direction, the command and the file name.

mod parser;
mod recognition;
mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::declare::{NumberCondition, NumberSyntax, Protocol};
use crate::expect::Carries;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::tx::NumberDef;

/// The type of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// The client downloads a file.
    Retr = 1,
    /// The client uploads a file.
    Stor = 2,
    /// The client uploads a file under a name that the server chooses.
    Stou = 3,
    /// The client appends to a file.
    Appe = 4,
    /// The client requests a list.
    List = 5,
    /// The client requests a list of names.
    Nlst = 6,
    /// The client requests a machine-readable list (RFC 3659 section 7).
    Mlsd = 7,
}

impl Command {
    /// All commands.
    pub const ALL: [Command; 7] =
        [Command::Retr, Command::Stor, Command::Stou, Command::Appe, Command::List, Command::Nlst, Command::Mlsd];

    /// The name in commands and events.
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

    /// Whether it transfers a list instead of a file.
    pub const fn is_list(self) -> bool {
        matches!(self, Command::List | Command::Nlst | Command::Mlsd)
    }

    /// The direction in which rules match it, whichever peer opened the connection. They also match it in the direction of the
    /// data.
    const fn side(self) -> Direction {
        if self.is_upload() { Direction::ToServer } else { Direction::ToClient }
    }
}

/// The argument of `ftpdata_command`: a command's name.
fn command(text: &str) -> Result<NumberCondition, String> {
    NumberCondition::word(text, &Command::ALL.map(|c| (c.name(), c as u64)))
}

/// The control connection's information about a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The command.
    pub command: Command,
    /// The file's name, as in the command; not kept for a list.
    pub name: Vec<u8>,
}

impl Transfer {
    /// The announcement of a data connection. `by_opener` says whether the peer that opens it sends the file.
    pub fn carried(self, by_opener: bool) -> Carries {
        Carries { proto: AppProto::FtpData, command: self.command as u8, name: self.name, by_opener }
    }
}

/// Progress of a transaction: data came in this direction. Indexes in the states of [`PROTOCOL`].
const STARTED: u8 = 1;
/// The transfer is complete.
const COMPLETE: u8 = 2;

/// Id of `ftpdata_command`.
const COMMAND: u8 = 0;

/// FTP's data.
pub static PROTOCOL: Protocol = Protocol {
    inner_states: &["request_idle", "response_idle"],
    recognition: recognition::RECOGNITION,
    parser: unknown,
    expected: Some(expected),
    logged_with: Some(AppProto::Ftp),
    numbers: &[NumberDef::keyword("ftpdata_command", COMMAND, [Some(0); 2], NumberSyntax::Own(command))],
    states: [
        &["request_idle", "request_started", "request_complete"],
        &["response_idle", "response_started", "response_complete"],
    ],
    ..Protocol::new(AppProto::FtpData, "ftp-data").logged_as("ftp_data")
};

/// The parser of a connection that a control connection announced.
fn expected(carries: Carries, dir: Direction) -> Box<dyn Parser> {
    let command = Command::ALL.into_iter().find(|c| *c as u8 == carries.command).unwrap_or(Command::Retr);
    Box::new(parser::DataParser::new(Transfer { command, name: carries.name }, dir))
}

/// Without the control connection's information, the data is just a file.
fn unknown(_: &AppConfig, _: &FlowCore) -> Box<dyn Parser> {
    let transfer = Transfer { command: Command::Retr, name: Vec::new() };
    Box::new(parser::DataParser::new(transfer, Direction::ToClient))
}
