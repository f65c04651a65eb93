//! Anomalies of TLS, under the names that rules use (`app-layer-event:tls.NAME`).

events! {
    "TLS";
    InvalidSslv2Header "invalid_sslv2_header";
    InvalidTlsHeader "invalid_tls_header";
    InvalidRecordVersion "invalid_record_version";
    InvalidRecordType "invalid_record_type";
    InvalidRecordLength "invalid_record_length";
    InvalidHandshakeMessage "invalid_handshake_message";
    HeartbeatMessage "heartbeat_message";
    InvalidHeartbeatMessage "invalid_heartbeat_message";
    OverflowHeartbeatMessage "overflow_heartbeat_message";
    DataleakHeartbeatMismatch "dataleak_heartbeat_mismatch";
    HandshakeInvalidLength "handshake_invalid_length";
    MultipleSniExtensions "multiple_sni_extensions";
    InvalidSniType "invalid_sni_type";
    InvalidSniLength "invalid_sni_length";
    TooManyRecordsInPacket "too_many_records_in_packet";
    InvalidCertificate "invalid_certificate";
    CertificateInvalidLength "certificate_invalid_length";
    CertificateInvalidVersion "certificate_invalid_version";
    CertificateInvalidSerial "certificate_invalid_serial";
    CertificateInvalidAlgorithm "certificate_invalid_algorithmidentifier";
    CertificateInvalidName "certificate_invalid_x509name";
    CertificateInvalidDate "certificate_invalid_date";
    CertificateInvalidExtensions "certificate_invalid_extensions";
    CertificateInvalidDer "certificate_invalid_der";
    CertificateInvalidSubject "certificate_invalid_subject";
    CertificateInvalidIssuer "certificate_invalid_issuer";
    CertificateInvalidValidity "certificate_invalid_validity";
    CertificateMissingElement "certificate_missing_element";
    CertificateUnknownElement "certificate_unknown_element";
    CertificateInvalidString "certificate_invalid_string";
    ErrorMessage "error_message_encountered";
    InvalidSslRecord "invalid_ssl_record";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_names() {
        assert_eq!(NAMES.get(Event::InvalidSslRecord as usize), Some(&"invalid_ssl_record"));
        assert_eq!(NAMES.get(Event::InvalidCertificate as usize), Some(&"invalid_certificate"));
        assert!(NAMES.len() < 128);
    }
}
