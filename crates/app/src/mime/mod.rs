//! Mail messages (RFC 5322) and their parts (RFC 2045, RFC 2046), line by line as they stream by.
//!
//! [`Message`] is fed with lines, or pieces of lines that are too long, and calls back for what it finds: fields of the
//! message's own header, files (parts that have a name), URLs in text, and what is wrong. It keeps the field at hand, the
//! boundaries that it is within, and a few bytes of a coding; a part's data goes to the caller as it is decoded.
//!
//! Parsers for messages (`mail-parser`, `mailparse`) want a whole message in memory and undo what is odd about it; here a
//! message of any size is read in constant memory, and what is odd is told.

mod codec;
mod message;
mod name;
mod nested;
mod urls;

pub use message::{Message, Settings, Status};

/// What a message calls back with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// A field of the message's own header: name as it is written, and unfolded value.
    Field(&'a [u8], &'a [u8]),
    /// A part has a name: of a file, or of a message within the message, which is none.
    Attachment(&'a [u8]),
    /// A file of that name begins.
    Begin(&'a [u8]),
    /// Data of the file.
    Data(&'a [u8]),
    /// The file is at its end; cut off where this is not all of it.
    End {
        /// Whether there would have been more.
        truncated: bool,
    },
    /// Bytes of the file are missing.
    Gap(u64),
    /// A URL in a text.
    Url {
        /// The URL, in lower case as Suricata has them.
        url: &'a [u8],
        /// Bytes of it that are its scheme, with what is behind that.
        scheme: usize,
    },
    /// Something is wrong.
    Problem(Problem),
}

/// What may be wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// Its parts are nested too deep.
    ParseFailed,
    /// It ends where it should not: within a header, or before the last delimiter.
    Malformed,
    /// Base64 with what is none.
    InvalidBase64,
    /// Quoted-printable with what is none.
    InvalidQp,
    /// A line of more than 998 bytes.
    LongLine,
    /// An encoded line of more than 76 bytes.
    LongEncodedLine,
    /// A field's name of more than 75 bytes.
    LongHeaderName,
    /// A field's value that is longer than is kept.
    LongHeaderValue,
    /// A boundary of more than 254 bytes.
    LongBoundary,
    /// A file's name of more than 255 bytes.
    LongFilename,
}
