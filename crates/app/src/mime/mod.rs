//! Mail messages (RFC 5322) and their parts (RFC 2045, RFC 2046), parsed line by line.
//!
//! [`Message`] receives lines, or pieces of long lines, and reports through a callback: fields of the message's own header,
//! files (parts with a name), URLs in text, and anomalies. It keeps the current field, the active boundaries, and a few bytes
//! for the decoder. The data of a part goes to the caller as it is decoded.
//!
//! Message parsers (`mail-parser`, `mailparse`) need a whole message in memory and silently repair anomalies. This parser reads
//! messages of any size in constant memory and reports the anomalies.

mod codec;
mod message;
mod name;
mod nested;
mod urls;

pub use codec::base64_values;
pub use message::{Message, Settings, Status};

/// A callback of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// A field of the message's own header: name as written, and unfolded value.
    Field(&'a [u8], &'a [u8]),
    /// A part has a name: a file, or a nested message, which does not become a file.
    Attachment(&'a [u8]),
    /// A file with this name begins.
    Begin(&'a [u8]),
    /// Data of the file.
    Data(&'a [u8]),
    /// The file ends.
    End {
        /// Whether it is incomplete.
        truncated: bool,
    },
    /// A gap in the file.
    Gap(u64),
    /// A URL in text.
    Url {
        /// The URL, in lower case as in Suricata.
        url: &'a [u8],
        /// Length of its scheme with the delimiter.
        scheme: usize,
    },
    /// An anomaly.
    Problem(Problem),
}

/// An anomaly of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The nesting of parts is too deep.
    ParseFailed,
    /// It ends within a header, or before the last delimiter.
    Malformed,
    /// Invalid Base64.
    InvalidBase64,
    /// Invalid quoted-printable.
    InvalidQp,
    /// A line of more than 998 bytes.
    LongLine,
    /// An encoded line of more than 76 bytes.
    LongEncodedLine,
    /// A field's name of more than 75 bytes.
    LongHeaderName,
    /// A field value that exceeds the limit.
    LongHeaderValue,
    /// A boundary of more than 254 bytes.
    LongBoundary,
    /// A file's name of more than 255 bytes.
    LongFilename,
}
