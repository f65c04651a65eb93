//! What may be wrong with an FTP transaction (`app-layer-event:ftp.NAME`).

/// An event of FTP; its number is that of [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// A command is longer than lines may be.
    RequestTooLong,
    /// A line of a reply is longer than lines may be.
    ResponseTooLong,
    /// More commands wait for a reply than may.
    TooManyTransactions,
    /// A file is to be transferred, and no connection was agreed on.
    FileBeforePort,
}

/// Names of events, by number.
pub static NAMES: &[&str] =
    &["request_command_too_long", "response_command_too_long", "too_many_transactions", "file_before_port"];
