//! Events of IMAP, by the names that rules use (`app-layer-event:imap.NAME`).

mail_events! {
    "IMAP";
    before {
        TooManyTransactions "too_many_transactions";
        MalformedCommand "malformed_command";
        MalformedResponse "malformed_response";
        UnsolicitedResponse "unsolicited_response";
        DuplicateTag "duplicate_tag";
        LineTooLong "line_too_long";
    }
    after {}
}
