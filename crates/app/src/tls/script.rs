//! Values that scripts can read from TLS.

use margay_flow::Direction::{self, ToClient, ToServer};

use crate::script::Answer;

use super::tx::TlsTx;

/// Answers a script's query about TLS or JA3.
pub(super) fn answer(tx: &TlsTx, protocol: &str, what: &str) -> Option<Answer> {
    let ja3 = |dir: Direction, hash: bool| {
        let both = tx.side(dir).ja3(dir);
        let text = both.and_then(|(string, md5)| if hash { md5 } else { Some(string) });
        text.map_or(Answer::Nothing, Answer::text)
    };
    Some(match (protocol, what) {
        ("tls" | "ja3", "get") => Answer::Bool(true),
        ("ja3", "ja3_get_hash") => ja3(ToServer, true),
        ("ja3", "ja3_get_string") => ja3(ToServer, false),
        ("ja3", "ja3s_get_hash") => ja3(ToClient, true),
        ("ja3", "ja3s_get_string") => ja3(ToClient, false),
        ("tls", "get_sni") => Answer::bytes(tx.client.hello.as_ref().and_then(|h| h.sni())),
        ("tls", "get_client_version" | "get_server_version") => {
            let version = tx.version();
            if version.is_unknown() { Answer::Nothing } else { Answer::text(&version.to_string()) }
        }
        ("tls", what) => {
            let (dir, what) = match (what.strip_prefix("get_client_"), what.strip_prefix("get_server_")) {
                (Some(w), _) => (ToServer, w),
                (_, Some(w)) => (ToClient, w),
                _ => return None,
            };
            of_certificate(tx, dir, what)?
        }
        _ => return None,
    })
}

fn of_certificate(tx: &TlsTx, dir: Direction, what: &str) -> Option<Answer> {
    let chain = tx.side(dir).chain.as_ref();
    let first = chain.and_then(|c| c.first.as_deref());
    Some(match what {
        "cert_chain" => {
            let ders = (0..).map_while(|i| chain?.der(i));
            let list: Vec<Answer> = ders
                .map(|der| {
                    Answer::Table(vec![
                        (b"data".to_vec(), Answer::Bytes(der.to_vec())),
                        (b"length".to_vec(), Answer::Int(der.len() as i64)),
                    ])
                })
                .collect();
            if list.is_empty() { Answer::Nothing } else { Answer::ListFromZero(list) }
        }
        "cert_info" => match first {
            Some(c) => Answer::Several(vec![
                Answer::text(&tx.version().to_string()),
                Answer::Bytes(c.subject.clone()),
                Answer::Bytes(c.issuer.clone()),
                chain.and_then(|c| c.fingerprint()).map_or(Answer::Nothing, Answer::text),
            ]),
            None => Answer::Nothing,
        },
        "cert_not_after" => first.map_or(Answer::Nothing, |c| Answer::Int(c.not_after)),
        "cert_not_before" => first.map_or(Answer::Nothing, |c| Answer::Int(c.not_before)),
        "serial" => first.map_or(Answer::Nothing, |c| Answer::text(&c.serial)),
        _ => return None,
    })
}
