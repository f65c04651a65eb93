//! Anomalies of an HTTP transaction, under the names that rules use (`app-layer-event:http.NAME`).

events! {
    "HTTP/1";
    UnknownError "unknown_error";
    GzipFailed "gzip_decompression_failed";
    RequestMissingColon "request_field_missing_colon";
    ResponseMissingColon "response_field_missing_colon";
    RequestChunkLen "invalid_request_chunk_len";
    ResponseChunkLen "invalid_response_chunk_len";
    RequestTransferEncoding "invalid_transfer_encoding_value_in_request";
    ResponseTransferEncoding "invalid_transfer_encoding_value_in_response";
    RequestContentLength "invalid_content_length_field_in_request";
    ResponseContentLength "invalid_content_length_field_in_response";
    RequestContentLengthTwice "duplicate_content_length_field_in_request";
    ResponseContentLengthTwice "duplicate_content_length_field_in_response";
    ContinueSeen "100_continue_already_seen";
    Unmatched "unable_to_match_response_to_request";
    ServerPort "invalid_server_port_in_request";
    AuthorityPort "invalid_authority_port";
    RequestHeaderInvalid "request_header_invalid";
    ResponseHeaderInvalid "response_header_invalid";
    MissingHost "missing_host_header";
    HostAmbiguous "host_header_ambiguous";
    RequestFolding "invalid_request_field_folding";
    ResponseFolding "invalid_response_field_folding";
    RequestTooLong "request_field_too_long";
    ResponseTooLong "response_field_too_long";
    RequestTooManyHeaders "request_too_many_headers";
    ResponseTooManyHeaders "response_too_many_headers";
    PortMismatch "request_server_port_tcp_port_mismatch";
    UriHostInvalid "request_uri_host_invalid";
    HeaderHostInvalid "request_header_host_invalid";
    MethodDelimiter "method_delim_non_compliant";
    UriDelimiter "uri_delim_non_compliant";
    LeadingWhitespace "request_line_leading_whitespace";
    TooManyLayers "too_many_encoding_layers";
    AbnormalEncoding "abnormal_ce_header";
    AuthUnrecognised "request_auth_unrecognized";
    RequestRepetition "request_header_repetition";
    ResponseRepetition "response_header_repetition";
    MultipartByteranges "response_multipart_byteranges";
    AbnormalTransferEncoding "response_abnormal_transfer_encoding";
    ChunkedOldProtocol "response_chunked_old_proto";
    ResponseProtocol "response_invalid_protocol";
    ResponseStatus "response_invalid_status";
    LineIncomplete "request_line_incomplete";
    DoubleEncodedUri "double_encoded_uri";
    LineInvalid "request_line_invalid";
    BodyUnexpected "request_body_unexpected";
    LzmaMemory "lzma_memlimit_reached";
    Bomb "compression_bomb";
    TooManyWarnings "too_many_warnings";
    RangeInvalid "range_invalid";
    FileNameTooLong "file_name_too_long";
    FailedChange "failed_protocol_change";
    MissingProtocol "request_line_missing_protocol";
    RequestChunkExtension "request_chunk_extension";
    MultipartError "multipart_generic_error";
    MultipartNoData "multipart_no_filedata";
    MultipartHeader "multipart_invalid_header";
    ResponseBodyUnexpected "response_body_unexpected";
    TooManyTransactions "too_many_transactions";
    UnknownMethodInvalidProtocol "request_line_unknown_method_invalid_protocol";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_names() {
        assert_eq!(NAMES.get(Event::ResponseBodyUnexpected as usize), Some(&"response_body_unexpected"));
        assert_eq!(NAMES.get(Event::ContinueSeen as usize), Some(&"100_continue_already_seen"));
        assert!(NAMES.len() < 128);
        let mut sorted = NAMES.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), NAMES.len());
    }
}
