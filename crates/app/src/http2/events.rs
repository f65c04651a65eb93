//! Anomalies of HTTP/2, under the names that rules use (`app-layer-event:http2.NAME`).

events! {
    "HTTP/2";
    InvalidFrameHeader "invalid_frame_header";
    InvalidClientMagic "invalid_client_magic";
    InvalidFrameData "invalid_frame_data";
    InvalidHeader "invalid_header";
    InvalidFrameLength "invalid_frame_length";
    ExtraHeaderData "extra_header_data";
    LongFrameData "long_frame_data";
    StreamIdReuse "stream_id_reuse";
    InvalidHttp1Settings "invalid_http1_settings";
    FailedDecompression "failed_decompression";
    InvalidRange "invalid_range";
    HeaderIntegerOverflow "header_integer_overflow";
    TooManyStreams "too_many_streams";
    AuthorityHostMismatch "authority_host_mismatch";
    UserinfoInUri "userinfo_in_uri";
    ReassemblyLimitReached "reassembly_limit_reached";
    DnsRequestTooLong "dns_request_too_long";
    DnsResponseTooLong "dns_response_too_long";
    DataStreamZero "data_stream_zero";
    TooManyFrames "too_many_frames";
    // Margay's own: Suricata has this event for HTTP/1 only.
    Bomb "compression_bomb";
}
