//! Anomalies of an FTP transaction (`app-layer-event:ftp.NAME`).

/// An event of FTP; its number is the index in [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// A command exceeds the line limit.
    RequestTooLong,
    /// A reply line exceeds the line limit.
    ResponseTooLong,
    /// Too many commands wait for a reply.
    TooManyTransactions,
    /// A transfer command came without an agreed data connection.
    FileBeforePort,
}

/// Names of events, by number.
pub static NAMES: &[&str] =
    &["request_command_too_long", "response_command_too_long", "too_many_transactions", "file_before_port"];
