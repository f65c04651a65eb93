//! The `tls` member of events, as Suricata 8 writes it.

use margay_flow::Direction;
use margay_json::Json;

use crate::script::Answer;
use crate::tx::LogFor;

use super::cert::Certificate;
use super::ja;
use super::tx::{Side, TlsTx};
use crate::config::tls::{Field, Fields, LogOptions};

/// Whether the session has an event of its own. Without a hello there is nothing to log.
pub(super) fn is_logged(tx: &TlsTx, options: &LogOptions) -> bool {
    if tx.version().is_unknown() {
        return false;
    }
    if is_resumed(tx) {
        return options.resumed;
    }
    true
}

/// Whether the event shows the session as resumed: up to TLS 1.2, a ServerHello without a certificate. A session that ends
/// before its certificate looks the same.
fn is_resumed(tx: &TlsTx) -> bool {
    let greeted = tx.server.hello.is_some() && !tx.server.said.is_13();
    tx.server.chain.is_none() && (tx.resumed || greeted)
}

/// A value for a line of `tls-log`.
pub(super) fn line_value(tx: &TlsTx, what: &str) -> Option<Answer> {
    let chain = tx.server.chain.as_ref();
    let first = chain.and_then(|c| c.first.as_deref());
    let of_first = |value: &dyn Fn(&Certificate) -> Answer| first.map_or(Answer::Nothing, value);
    Some(match what {
        "get" if !tx.version().is_unknown() => Answer::Bool(true),
        "subject" => of_first(&|c| Answer::Bytes(c.subject.clone())),
        "issuer" => of_first(&|c| Answer::Bytes(c.issuer.clone())),
        "serial" => of_first(&|c| Answer::text(&c.serial)),
        "not_before" => of_first(&|c| Answer::text(&date(c.not_before))),
        "not_after" => of_first(&|c| Answer::text(&date(c.not_after))),
        "fingerprint" => chain.and_then(|c| c.fingerprint()).map_or(Answer::Nothing, Answer::text),
        "sni" => Answer::bytes(tx.client.hello.as_ref().and_then(|h| h.sni())),
        "version" => Answer::text(&tx.version().to_string()),
        "resumed" => Answer::Bool(tx.resumed && chain.is_none()),
        _ => return None,
    })
}

/// Appends `"tls":{...}`. Alerts have the extended form whatever the output's setting.
pub(super) fn log(tx: &TlsTx, json: &mut Json, options: &LogOptions, what: LogFor) {
    let fields = if what == LogFor::Event { options.fields } else { Fields::EXTENDED };
    json.object("tls");
    certificate(&tx.server, json, fields);
    if let Some(from) = tx.from {
        json.str("from_proto", from.name());
    }
    let resumed = if what == LogFor::Event { is_resumed(tx) } else { tx.resumed && tx.server.chain.is_none() };
    if fields.has(Field::SessionResumed) && resumed {
        json.bool("session_resumed", true);
    }
    if fields.has(Field::Sni)
        && let Some(sni) = tx.client.hello.as_ref().and_then(|h| h.sni())
    {
        json.bytes("sni", sni);
    }
    if fields.has(Field::Version) {
        json.str("version", &tx.version().to_string());
    }
    validity(&tx.server, json, fields);
    chain(&tx.server, json, fields, [(Field::Certificate, "certificate"), (Field::Chain, "chain")]);
    for (field, dir, key) in [(Field::Ja3, Direction::ToServer, "ja3"), (Field::Ja3s, Direction::ToClient, "ja3s")] {
        if fields.has(field)
            && let Some((string, hash)) = tx.side(dir).ja3(dir)
        {
            json.object(key);
            if let Some(hash) = hash {
                json.str("hash", hash);
            }
            json.str("string", string);
            json.end_object();
        }
    }
    if fields.has(Field::Ja4)
        && let Some(hello) = tx.client.hello.as_ref().filter(|_| tx.ja4)
    {
        let mut hash = Vec::new();
        ja::ja4(hello, b't', &mut hash);
        json.bytes("ja4", &hash);
    }
    let of_client = [(Field::ClientCertificate, "certificate"), (Field::ClientChain, "chain")];
    let wanted = fields.has(Field::Client) || of_client.iter().any(|(f, _)| fields.has(*f));
    if wanted && tx.client.chain.is_some() {
        json.object("client");
        if fields.has(Field::Client) {
            certificate(&tx.client, json, Fields::EXTENDED);
            validity(&tx.client, json, Fields::EXTENDED);
        }
        chain(&tx.client, json, fields, of_client);
        json.end_object();
    }
    for (field, side, key) in
        [(Field::ClientAlpns, &tx.client, "client_alpns"), (Field::ServerAlpns, &tx.server, "server_alpns")]
    {
        if fields.has(field)
            && let Some(hello) = side.hello.as_ref().filter(|h| h.alpns().next().is_some())
        {
            json.array(key);
            for name in hello.alpns() {
                json.item_bytes(name);
            }
            json.end_array();
        }
    }
    handshakes(tx, json, fields);
    json.end_object();
}

fn certificate(side: &Side, json: &mut Json, fields: Fields) {
    let Some(chain) = &side.chain else { return };
    if let Some(c) = &chain.first {
        if fields.has(Field::Subject) {
            json.bytes("subject", &c.subject);
        }
        if fields.has(Field::Issuer) {
            json.bytes("issuerdn", &c.issuer);
        }
        if fields.has(Field::SubjectAltName) && !c.names.is_empty() {
            json.array("subjectaltname");
            for name in &c.names {
                json.item_bytes(name);
            }
            json.end_array();
        }
        if fields.has(Field::Serial) {
            json.str("serial", &c.serial);
        }
    }
    if fields.has(Field::Fingerprint)
        && let Some(f) = chain.fingerprint()
    {
        json.str("fingerprint", f);
    }
}

fn validity(side: &Side, json: &mut Json, fields: Fields) {
    let Some(c) = side.chain.as_ref().and_then(|c| c.first.as_deref()) else { return };
    for (field, key, seconds) in
        [(Field::NotBefore, "notbefore", c.not_before), (Field::NotAfter, "notafter", c.not_after)]
    {
        if fields.has(field) {
            json.str(key, &date(seconds));
        }
    }
}

/// Certificates in base64: the first one, and the chain.
fn chain(side: &Side, json: &mut Json, fields: Fields, keys: [(Field, &'static str); 2]) {
    let Some(chain) = side.chain.as_ref().filter(|c| !c.is_empty()) else { return };
    let [(first, first_key), (all, all_key)] = keys;
    if fields.has(first)
        && let Some(der) = chain.der(0)
    {
        json.base64(first_key, der);
    }
    if fields.has(all) {
        json.array(all_key);
        for der in (0..).map_while(|i| chain.der(i)) {
            json.item_str(&encode(der));
        }
        json.end_array();
    }
}

fn encode(der: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(der)
}

/// The inputs of the fingerprints.
fn handshakes(tx: &TlsTx, json: &mut Json, fields: Fields) {
    let numbers = |json: &mut Json, key: &'static str, numbers: &mut dyn Iterator<Item = u16>| {
        json.array(key);
        for n in numbers {
            json.item_uint(u64::from(n));
        }
        json.end_array();
    };
    if fields.has(Field::ClientHandshake)
        && let Some(hello) = &tx.client.hello
    {
        json.object("client_handshake");
        json.str("version", &hello.newest().to_string());
        numbers(json, "ciphers", &mut hello.ciphers());
        numbers(json, "exts", &mut hello.extensions());
        numbers(json, "sig_algs", &mut hello.signatures());
        json.end_object();
    }
    if fields.has(Field::ServerHandshake)
        && let Some(hello) = &tx.server.hello
    {
        json.object("server_handshake");
        json.str("version", &tx.server.said.to_string());
        if let Some(c) = hello.ciphers().next() {
            json.uint("cipher", u64::from(c));
        }
        numbers(json, "exts", &mut hello.extensions());
        json.end_object();
    }
}

/// Formats seconds since 1970 as `2015-02-12T18:07:27`, in UTC, for every year that a certificate can have.
pub(super) fn date(seconds: i64) -> String {
    // Days to a date: <https://howardhinnant.github.io/date_algorithms.html>, `civil_from_days`.
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (-86_400, "1969-12-31T00:00:00"),
            (1_423_764_447, "2015-02-12T18:07:27"),
            (951_782_400, "2000-02-29T00:00:00"),
            (253_402_300_799, "9999-12-31T23:59:59"),
            (-631_152_000, "1950-01-01T00:00:00"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
