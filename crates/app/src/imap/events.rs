//! Events of IMAP, by the names that rules use (`app-layer-event:imap.NAME`).

use crate::mime::Problem;

events! {
    "IMAP";
    TooManyTransactions "too_many_transactions";
    MalformedCommand "malformed_command";
    MalformedResponse "malformed_response";
    UnsolicitedResponse "unsolicited_response";
    DuplicateTag "duplicate_tag";
    LineTooLong "line_too_long";
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
}

/// The event number for a problem of a mail.
pub(super) const fn of_mail(problem: Problem) -> u8 {
    let event = match problem {
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
    };
    event as u8
}
