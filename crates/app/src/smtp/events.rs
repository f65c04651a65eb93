//! Anomalies of an SMTP transaction, under the names that rules use (`app-layer-event:smtp.NAME`).

mail_events! {
    "SMTP";
    before {
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
    }
    after {
        DuplicateFields "duplicate_fields";
        UnparsableContent "unparsable_content";
        TruncatedLine "truncated_line";
    }
}
