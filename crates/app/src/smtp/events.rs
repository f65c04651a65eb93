//! Anomalies of an SMTP transaction, under the names that rules use (`app-layer-event:smtp.NAME`).

use crate::mime::Problem;

events! {
    "SMTP";
    InvalidReply "invalid_reply";
    UnmatchedReply "unable_to_match_reply_with_request";
    CommandTooLong "max_command_line_len_exceeded";
    ReplyTooLong "max_reply_line_len_exceeded";
    InvalidPipelining "invalid_pipelined_sequence";
    BdatTooLong "bdat_chunk_len_exceeded";
    NoWelcome "no_server_welcome_message";
    TlsRejected "tls_rejected";
    DataRejected "data_command_rejected";
    FailedChange "failed_protocol_change";
    MimeFailed "mime_parse_failed";
    MimeMalformed "mime_malformed_msg";
    MimeBase64 "mime_invalid_base64";
    MimeQp "mime_invalid_qp";
    MimeLongLine "mime_long_line";
    MimeLongEncodedLine "mime_long_enc_line";
    MimeLongName "mime_long_header_name";
    MimeLongValue "mime_long_header_value";
    MimeLongBoundary "mime_long_boundary";
    MimeLongFilename "mime_long_filename";
    DuplicateFields "duplicate_fields";
    UnparsableContent "unparsable_content";
    TruncatedLine "truncated_line";
}

impl From<Problem> for Event {
    fn from(problem: Problem) -> Event {
        match problem {
            Problem::ParseFailed => Event::MimeFailed,
            Problem::Malformed => Event::MimeMalformed,
            Problem::InvalidBase64 => Event::MimeBase64,
            Problem::InvalidQp => Event::MimeQp,
            Problem::LongLine => Event::MimeLongLine,
            Problem::LongEncodedLine => Event::MimeLongEncodedLine,
            Problem::LongHeaderName => Event::MimeLongName,
            Problem::LongHeaderValue => Event::MimeLongValue,
            Problem::LongBoundary => Event::MimeLongBoundary,
            Problem::LongFilename => Event::MimeLongFilename,
        }
    }
}
