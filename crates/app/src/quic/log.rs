//! Events of QUIC.

use margay_flow::Direction;
use margay_json::Json;

use crate::tls::ja;

use super::buffers::name;
use super::tx::QuicTx;

/// What an output shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// The fingerprint JA4 of clients.
    pub ja4: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { ja4: true }
    }
}

/// Names of extensions of TLS (IANA, TLS ExtensionType values).
const EXTENSIONS: &[(u16, &str)] = &[
    (0, "server_name"),
    (1, "max_fragment_length"),
    (5, "status_request"),
    (10, "supported_groups"),
    (11, "ec_point_formats"),
    (13, "signature_algorithms"),
    (15, "heartbeat"),
    (16, "alpn"),
    (18, "signed_certificate_timestamp"),
    (21, "padding"),
    (22, "encrypt_then_mac"),
    (23, "extended_master_secret"),
    (28, "record_size_limit"),
    (35, "session_ticket"),
    (41, "pre_shared_key"),
    (42, "early_data"),
    (43, "supported_versions"),
    (44, "cookie"),
    (45, "psk_key_exchange_modes"),
    (48, "oid_filters"),
    (49, "post_handshake_auth"),
    (51, "key_share"),
    (57, "quic_transport_parameters"),
    (13172, "next_protocol_negotiation"),
    (0xff01, "renegotiation_info"),
    (0xffce, "encrypted_server_name"),
];

/// Appends the event's member.
pub(super) fn log(tx: &QuicTx, json: &mut Json, options: LogOptions) {
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
        if options.ja4 && tx.dir == Direction::ToServer {
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

/// A version of TLS, as events of QUIC have it.
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
