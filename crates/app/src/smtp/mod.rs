//! SMTP (RFC 5321) and its mail.
//!
//! A transaction is a mail: it begins with the first command and ends with the mail's data, with RSET, or at STARTTLS. Commands
//! wait in a queue for their replies, with or without pipelining. Mail arrives with DATA or in chunks (BDAT, RFC 3030), and
//! goes line by line to [`crate::mime`].

mod buffers;
mod command;
pub mod events;
mod line;
mod log;
pub(crate) mod mail;
mod parser;
mod pending;
mod recognition;
mod reply;
mod tx;

use crate::conversation;
use crate::declare::{Opening, Protocol};
use crate::proto::AppProto;

pub use crate::config::smtp::{Config, LogOptions, MailField};
pub(crate) use buffers::{EMAIL, email as email_buffer};
pub(crate) use log::email as log_email;

/// Progress of a transaction: indexes in the states of [`PROTOCOL`].
const DATA: u8 = 1;
/// The state of the mail's header fields: a transaction with complete fields is past it. See [`DATA`].
const HEADER: u8 = 2;
/// See [`DATA`].
const BODY: u8 = 3;
/// See [`DATA`].
const COMPLETE: [u8; 2] = [4, 1];

/// Frame types: indexes in the frames of [`PROTOCOL`].
const COMMAND_FRAME: u8 = 0;
/// See [`COMMAND_FRAME`].
const DATA_FRAME: u8 = 1;
/// See [`COMMAND_FRAME`].
const RESPONSE_FRAME: u8 = 2;

/// SMTP.
pub static PROTOCOL: Protocol = Protocol {
    shows_tx: true,
    usual_port: Some(25),
    opening: Opening::Command,
    // RFC 5321, 2033, 3207, 4954; a proxy begins with XCLIENT or XFORWARD.
    first_words: &[
        "MAIL", "AUTH", "XCLIENT", "XFORWARD", "STARTTLS", "LHLO", "NOOP", "RSET", "VRFY", "EXPN", "HELP", "ETRN",
    ],
    capital_events: true,
    recognition: recognition::RECOGNITION,
    parser: conversation::parser::<parser::Smtp>,
    buffers: buffers::BUFFERS,
    states: [
        &["request_started", "request_data", "request_header", "request_body", "request_complete"],
        &["response_started", "response_complete"],
    ],
    events: events::NAMES,
    frames: &["command_line", "data", "response_line"],
    ..Protocol::new(AppProto::Smtp, "smtp").logged()
};
