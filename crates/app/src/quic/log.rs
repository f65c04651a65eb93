//! Events of QUIC.

use margay_flow::Direction;
use margay_json::Json;

use crate::tls::ja;

use super::buffers::name;
use super::tx::QuicTx;

/// Names of extensions of TLS (IANA, TLS ExtensionType values).
const EXTENSIONS: &[(u16, &str)] = &[
    (0, "server_name"),
    (1, "max_fragment_length"),
    (2, "client_certificate_url"),
    (3, "trusted_ca_keys"),
    (4, "truncated_hmac"),
    (5, "status_request"),
    (6, "user_mapping"),
    (7, "client_authz"),
    (8, "server_authz"),
    (9, "cert_type"),
    (10, "supported_groups"),
    (11, "ec_point_formats"),
    (12, "srp"),
    (13, "signature_algorithms"),
    (14, "use_srtp"),
    (15, "heartbeat"),
    (16, "alpn"),
    (17, "status_request_v2"),
    (18, "signed_certificate_timestamp"),
    (19, "client_certificate_type"),
    (20, "server_certificate_type"),
    (21, "padding"),
    (22, "encrypt_then_mac"),
    (23, "extended_master_secret"),
    (24, "token_binding"),
    (25, "cached_info"),
    (26, "tls_lts"),
    (27, "compress_certificate"),
    (28, "record_size_limit"),
    (29, "pwd_protect"),
    (30, "pwd_clear"),
    (31, "password_salt"),
    (32, "ticket_pinning"),
    (33, "tls_cert_with_extern_psk"),
    (34, "delegated_credentials"),
    (35, "session_ticket"),
    (36, "tlmsp"),
    (37, "tlmsp_proxying"),
    (38, "tlmsp_delegate"),
    (39, "supported_ekt_ciphers"),
    (41, "pre_shared_key"),
    (42, "early_data"),
    (43, "supported_versions"),
    (44, "cookie"),
    (45, "psk_key_exchange_modes"),
    (47, "certificate_authorities"),
    (48, "oid_filters"),
    (49, "post_handshake_auth"),
    (50, "signature_algorithms_cert"),
    (51, "key_share"),
    (52, "transparency_info"),
    (53, "connection_id_deprecated"),
    (54, "connection_id"),
    (55, "external_id_hash"),
    (56, "external_session_id"),
    (57, "quic_transport_parameters"),
    (58, "ticket_request"),
    (59, "dnssec_chain"),
    (13172, "next_protocol_negotiation"),
    (0xff01, "renegotiation_info"),
    (0xffce, "encrypted_server_name"),
];

/// Appends the member of the event.
pub(super) fn log(tx: &QuicTx, json: &mut Json, with_ja4: bool) {
    json.object("quic");
    match name(tx.version) {
        Some(name) => json.str("version", &name),
        None => json.str("version", &format!("{:x}", tx.version)),
    }
    if let Some(sni) = tx.sni() {
        json.bytes("sni", sni);
    }
    if let Some(ua) = tx.chlo.as_ref().and_then(|c| c.ua.as_deref()) {
        json.bytes("ua", ua);
    }
    if let Some(cyu) = &tx.cyu {
        json.array("cyu");
        json.item_object();
        json.bytes("hash", &cyu.1);
        json.bytes("string", &cyu.0);
        json.end_object();
        json.end_array();
    }
    if let (Some((string, hash)), Some(hello)) = (tx.ja3(), &tx.hello) {
        json.object(if tx.dir == Direction::ToServer { "ja3" } else { "ja3s" });
        json.bytes("hash", hash);
        json.bytes("string", string);
        json.end_object();
        if with_ja4 && tx.dir == Direction::ToServer {
            let mut ja4 = Vec::new();
            ja::ja4(hello, b'q', &mut ja4);
            json.bytes("ja4", &ja4);
        }
        extensions(tx, json);
    }
    json.end_object();
}

fn extensions(tx: &QuicTx, json: &mut Json) {
    let Some(hello) = &tx.hello else { return };
    if hello.extensions().next().is_none() {
        return;
    }
    json.array("extensions");
    for kind in hello.extensions() {
        json.item_object();
        if let Some((_, name)) = EXTENSIONS.iter().find(|e| e.0 == kind) {
            json.str("name", name);
        }
        json.uint("type", u64::from(kind));
        let mut values = Vec::new();
        match kind {
            0 => values.extend(hello.sni().map(<[u8]>::to_vec)),
            13 => values.extend(hello.signatures().map(|n| n.to_string().into_bytes())),
            16 => values.extend(hello.alpns().map(<[u8]>::to_vec)),
            43 => values.extend(hello.versions().map(|v| version(v.0))),
            _ => {}
        }
        if !values.is_empty() {
            json.array("values");
            values.iter().for_each(|v| json.item_bytes(v));
            json.end_array();
        }
        json.end_object();
    }
    json.end_array();
}

/// Formats a TLS version for QUIC events.
fn version(number: u16) -> Vec<u8> {
    match number {
        0x0300 => b"Ssl30".to_vec(),
        0x0301 => b"Tls10".to_vec(),
        0x0302 => b"Tls11".to_vec(),
        0x0303 => b"Tls12".to_vec(),
        0x0304 => b"Tls13".to_vec(),
        n => format!("TlsVersion({n} / {n:#x})").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::EXTENSIONS;

    /// Suricata's names of extensions that browsers send; the list is sorted, with one name for each type.
    #[test]
    fn extensions_have_their_names() {
        assert!(EXTENSIONS.is_sorted_by(|a, b| a.0 < b.0));
        for (kind, name) in [
            (27, "compress_certificate"),
            (34, "delegated_credentials"),
            (50, "signature_algorithms_cert"),
            (57, "quic_transport_parameters"),
        ] {
            assert!(EXTENSIONS.contains(&(kind, name)), "{kind}");
        }
        for unknown in [46, 17513, 0xfe0d] {
            assert!(EXTENSIONS.iter().all(|e| e.0 != unknown), "{unknown}");
        }
    }
}
