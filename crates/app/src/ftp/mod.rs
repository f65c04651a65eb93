//! FTP's control connection (RFC 959, RFC 2228, RFC 2428).
//!
//! Both sides send lines. A command with its replies is a transaction. A reply belongs to the oldest command without a final
//! reply; a line that the server sends on its own (its greeting) is a transaction of its own. A multi-line reply ends with the
//! first line that has a code followed by a blank. A preliminary reply (1yz) does not end the transaction.
//!
//! `PORT`, `EPRT` and the replies to `PASV` and `EPSV` announce a data connection; `RETR`, `STOR`, `LIST` and others give its
//! purpose. The parser passes both to [`crate::expect`]. It expects the connection only between the two hosts of the control
//! connection, whatever address they announce. Otherwise one host could make any connection of its peer count as a transfer.

mod address;
pub mod events;
mod line;
mod log;
mod parser;
mod recognition;
mod tx;

use crate::conversation;
use crate::declare::{NumberCondition, NumberSyntax, Opening, Protocol};
use crate::proto::AppProto;
use crate::tx::{BufferDef, BufferKind, NumberDef};

pub use crate::config::ftp::Config;

/// Progress of a transaction: the command, or a reply, is complete. Indexes in the states of [`PROTOCOL`].
const BEGUN: u8 = 1;
/// The last reply is complete.
const COMPLETE: u8 = 2;

/// Ids of buffers.
const COMMAND: u8 = 0;
const COMMAND_DATA: u8 = 1;
const REPLY: u8 = 2;
const COMPLETION_CODE: u8 = 3;

/// Ids of numbers.
const DYNAMIC_PORT: u8 = 0;
const MODE: u8 = 1;
const REPLY_RECEIVED: u8 = 2;
const BOUNCE: u8 = 3;

/// Value of `ftp.mode`: the client connects.
const PASSIVE: u64 = 0;
/// Value of `ftp.mode`: the server connects.
const ACTIVE: u64 = 1;

/// FTP.
pub static PROTOCOL: Protocol = Protocol {
    usual_port: Some(21),
    memory_counter: Some(|c| &mut c.ftp_memory),
    opening: Opening::Command,
    // RFC 4217, section 12.3.
    outlives_tls: true,
    // RFC 959, 2228, 2640, 7151. `QUIT` alone would be SMTP.
    first_words: &["HOST", "QUIT", "LANG", "CLNT", "OPTS", "SYST", "AUTH", "NOOP", "HELP", "STAT"],
    inner_states: &["request_line", "response_line"],
    recognition: recognition::RECOGNITION,
    parser: conversation::parser::<parser::Ftp>,
    buffers: &[
        BufferDef { name: "ftp.command", id: COMMAND, progress: [Some(BEGUN), None], ..BufferDef::PLAIN },
        BufferDef { name: "ftp.command_data", id: COMMAND_DATA, progress: [Some(BEGUN), None], ..BufferDef::PLAIN },
        BufferDef {
            name: "ftp.reply",
            id: REPLY,
            kind: BufferKind::Multi,
            progress: [None, Some(BEGUN)],
            ..BufferDef::PLAIN
        },
        BufferDef {
            name: "ftp.completion_code",
            id: COMPLETION_CODE,
            kind: BufferKind::Multi,
            progress: [None, Some(BEGUN)],
            ..BufferDef::PLAIN
        },
    ],
    numbers: &[
        NumberDef::keyword("ftp.dynamic_port", DYNAMIC_PORT, [Some(BEGUN); 2], NumberSyntax::U16),
        NumberDef::keyword("ftp.mode", MODE, [Some(BEGUN); 2], NumberSyntax::Own(mode)),
        NumberDef {
            goes_with_both: true,
            ..NumberDef::keyword(
                "ftp.reply_received",
                REPLY_RECEIVED,
                [None, Some(COMPLETE)],
                NumberSyntax::Own(reply_received),
            )
        },
        NumberDef::keyword("ftpbounce", BOUNCE, [Some(BEGUN), None], NumberSyntax::Holds),
    ],
    states: [
        &["request_started", "request_line", "request_complete"],
        &["response_started", "response_line", "response_complete"],
    ],
    events: events::NAMES,
    ..Protocol::new(AppProto::Ftp, "ftp").logged()
};

/// The argument of `ftp.mode`.
fn mode(text: &str) -> Result<NumberCondition, String> {
    NumberCondition::word(text, &[("passive", PASSIVE), ("active", ACTIVE)])
}

/// The argument of `ftp.reply_received`.
fn reply_received(text: &str) -> Result<NumberCondition, String> {
    let words = [("yes", 1), ("true", 1), ("on", 1), ("1", 1), ("no", 0), ("false", 0), ("off", 0), ("0", 0)];
    NumberCondition::word(text, &words)
}

#[cfg(test)]
mod tests;
