//! Anomalies of SMB.

use margay_flow::Direction;

use crate::file::track::Odd;

events! { "SMB";
    InternalError "internal_error";
    MalformedData "malformed_data";
    RecordOverflow "record_overflow";
    MalformedNtlmsspRequest "malformed_ntlmssp_request";
    MalformedNtlmsspResponse "malformed_ntlmssp_response";
    DuplicateNegotiate "duplicate_negotiate";
    NegotiateMalformedDialects "negotiate_malformed_dialects";
    FileOverlap "file_overlap";
    ResponseToServer "response_to_server";
    RequestToClient "request_to_client";
    ReadRequestTooLarge "read_request_too_large";
    ReadResponseTooLarge "read_response_too_large";
    WriteRequestTooLarge "write_request_too_large";
    NegotiateMaxReadSizeTooLarge "negotiate_max_read_size_too_large";
    NegotiateMaxWriteSizeTooLarge "negotiate_max_write_size_too_large";
    ReadQueueSizeExceeded "read_queue_size_exceeded";
    ReadQueueCntExceeded "read_queue_cnt_exceeded";
    WriteQueueSizeExceeded "write_queue_size_exceeded";
    WriteQueueCntExceeded "write_queue_cnt_exceeded";
    UnusualNtlmsspOrder "unusual_ntlmssp_order";
    TooManyTransactions "too_many_transactions";
}

impl Event {
    /// The event for an anomaly in a direction's file data.
    pub(super) const fn of(odd: Odd, dir: Direction) -> Event {
        match (odd, dir) {
            (Odd::Overlap, _) => Event::FileOverlap,
            (Odd::TooManyBytes, Direction::ToServer) => Event::WriteQueueSizeExceeded,
            (Odd::TooManyBytes, Direction::ToClient) => Event::ReadQueueSizeExceeded,
            (Odd::TooMany, Direction::ToServer) => Event::WriteQueueCntExceeded,
            (Odd::TooMany, Direction::ToClient) => Event::ReadQueueCntExceeded,
        }
    }
}
