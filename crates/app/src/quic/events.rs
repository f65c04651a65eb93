//! Anomalies, under the names that rules use (`app-layer-event:quic.NAME`).

events! {
    "QUIC";
    FailedDecrypt "failed_decrypt";
    ErrorOnData "error_on_data";
    CryptoFragTooLong "crypto_frag_too_long";
}
