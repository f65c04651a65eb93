//! Buffers and numbers of TLS for rules.

use margay_flow::Direction;

use crate::declare::NumberSyntax;
use crate::tx::{Extra, Form, Found, NumberDef};

use super::tx::TlsTx;
use super::{CLIENT_CERT, CLIENT_HELLO, SERVER_CERT, SERVER_HELLO};
use super::{ja, keywords};

buffers! {
    Sni "tls.sni" ("tls_sni") Single Some(CLIENT_HELLO), None;
    Certs "tls.certs" ("tls_certs") Multi Some(CLIENT_CERT), Some(SERVER_CERT);
    Issuer "tls.cert_issuer" ("tls_cert_issuer") Single Some(CLIENT_CERT), Some(SERVER_CERT);
    Subject "tls.cert_subject" ("tls_cert_subject") Single Some(CLIENT_CERT), Some(SERVER_CERT);
    Serial "tls.cert_serial" ("tls_cert_serial") Single Some(CLIENT_CERT), Some(SERVER_CERT),
        form: Form::Serial { module: "detect-tls-cert-serial" };
    Fingerprint "tls.cert_fingerprint" ("tls_cert_fingerprint") Single Some(CLIENT_CERT), Some(SERVER_CERT),
        form: Form::Fingerprint { module: "detect-tls-cert-fingerprint" };
    Random "tls.random" Single Some(CLIENT_HELLO), Some(SERVER_HELLO);
    RandomTime "tls.random_time" Single Some(CLIENT_HELLO), Some(SERVER_HELLO);
    RandomBytes "tls.random_bytes" Single Some(CLIENT_HELLO), Some(SERVER_HELLO);
    SubjectAltName "tls.subjectaltname" Multi None, Some(SERVER_CERT);
    Alpn "tls.alpn" Multi Some(CLIENT_HELLO), Some(SERVER_HELLO);
    Ja3Hash "ja3.hash" ("ja3_hash") Single Some(CLIENT_HELLO), None, form: ja::JA3, extra: Some(Extra::Ja3);
    Ja3String "ja3.string" ("ja3_string") Single Some(CLIENT_HELLO), None, extra: Some(Extra::Ja3);
    Ja3sHash "ja3s.hash" Single None, Some(SERVER_HELLO), form: ja::JA3S, extra: Some(Extra::Ja3);
    Ja3sString "ja3s.string" Single None, Some(SERVER_HELLO), extra: Some(Extra::Ja3);
    Ja4Hash "ja4.hash" Single Some(CLIENT_HELLO), None, extra: Some(Extra::Ja4);
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(
    tx: &'a TlsTx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let buffer = *ALL.get(id as usize)?;
    let def = BUFFERS.get(id as usize)?;
    let needed = def.progress.get(dir.index()).copied().flatten()?;
    if tx.base.progress.get(dir.index()).is_none_or(|&p| p < needed) {
        return None;
    }
    if index > 0 && !def.kind.is_several() {
        return None;
    }
    let side = tx.side(dir);
    let hello = side.hello.as_ref();
    let chain = side.chain.as_ref();
    let certificate = chain.and_then(|c| c.first.as_deref());
    let data: &[u8] = match buffer {
        Buffer::Sni => hello?.sni()?,
        Buffer::Certs => chain?.der(index)?,
        Buffer::Issuer => &certificate?.issuer,
        Buffer::Subject => &certificate?.subject,
        Buffer::Serial => certificate?.serial.as_bytes(),
        Buffer::Fingerprint => chain?.fingerprint()?.as_bytes(),
        Buffer::Random => hello?.random()?,
        Buffer::RandomTime => hello?.random()?.get(..4)?,
        Buffer::RandomBytes => hello?.random()?.get(4..)?,
        Buffer::SubjectAltName => certificate?.names.get(index)?,
        Buffer::Alpn => hello?.alpns().nth(index)?,
        Buffer::Ja3Hash | Buffer::Ja3sHash => side.ja3(dir)?.1?.as_bytes(),
        Buffer::Ja3String | Buffer::Ja3sString => side.ja3(dir)?.0.as_bytes(),
        Buffer::Ja4Hash => {
            ja::ja4(hello.filter(|_| tx.ja4)?, b't', scratch);
            scratch
        }
    };
    Some(Found::whole(data))
}

/// Numbers: indexes in [`NUMBERS`].
mod id {
    pub(super) const VERSION: u8 = 0;
    pub(super) const RECORD_VERSION: u8 = 1;
    pub(super) const STATE: u8 = 2;
    pub(super) const CHAIN_LEN: u8 = 3;
    pub(super) const NOT_BEFORE: u8 = 4;
    pub(super) const NOT_AFTER: u8 = 5;
    pub(super) const EXPIRED: u8 = 6;
    pub(super) const VALID: u8 = 7;
}

const ANY: [Option<u8>; 2] = [Some(NumberDef::ANY_STATE); 2];
const HELLO: [Option<u8>; 2] = [Some(CLIENT_HELLO), Some(SERVER_HELLO)];
/// The server's certificates, which are the only ones that these keywords see.
const SERVERS: [Option<u8>; 2] = [None, Some(SERVER_CERT)];

/// Numbers for rules.
pub(super) static NUMBERS: &[NumberDef] = &[
    // Until there is a hello, the version of the records.
    NumberDef::keyword("tls.version", id::VERSION, ANY, NumberSyntax::Own(keywords::version)),
    NumberDef::keyword("ssl_version", id::RECORD_VERSION, HELLO, NumberSyntax::Own(keywords::versions)),
    NumberDef::keyword("ssl_state", id::STATE, ANY, NumberSyntax::Own(keywords::state)),
    NumberDef::keyword("tls.cert_chain_len", id::CHAIN_LEN, SERVERS, NumberSyntax::U32),
    NumberDef::keyword("tls_cert_notbefore", id::NOT_BEFORE, SERVERS, NumberSyntax::Own(keywords::date)),
    NumberDef::keyword("tls_cert_notafter", id::NOT_AFTER, SERVERS, NumberSyntax::Own(keywords::date)),
    NumberDef::keyword("tls_cert_expired", id::EXPIRED, SERVERS, NumberSyntax::Holds),
    NumberDef::keyword("tls_cert_valid", id::VALID, SERVERS, NumberSyntax::Holds),
];

/// Maps seconds since 1970 to an unsigned number with the same order.
pub(super) const fn ordered(seconds: i64) -> u64 {
    seconds.cast_unsigned() ^ 1 << 63
}

/// See [`crate::Transaction::number`].
pub(super) fn number(tx: &TlsTx, id: u8, dir: Direction, index: usize) -> Option<u64> {
    let side = tx.side(dir);
    if index > 0 {
        return None;
    }
    let chain = side.chain.as_ref();
    let certificate = chain.and_then(|c| c.first.as_deref());
    match id {
        id::VERSION | id::RECORD_VERSION => {
            let version = side.version;
            (!version.is_unknown()).then_some(u64::from(version.0))
        }
        id::STATE => Some(u64::from(tx.state)),
        // A resumed session, or one with encrypted certificates, has 0.
        id::CHAIN_LEN => Some(chain.map_or(0, |c| c.len() as u64)),
        id::NOT_BEFORE => Some(ordered(certificate?.not_before)),
        id::NOT_AFTER => Some(ordered(certificate?.not_after)),
        id::EXPIRED | id::VALID => {
            let c = certificate?;
            let expired = c.not_after < side.seen;
            // `tls_cert_valid` is the opposite: a certificate of the future is valid.
            Some(u64::from(expired == (id == id::EXPIRED)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        assert!(BUFFERS.len() <= 64);
        for (i, b) in BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
        }
        for (i, n) in NUMBERS.iter().enumerate() {
            assert_eq!(usize::from(n.id), i, "{}", n.name);
        }
        assert!(ordered(-1) < ordered(0) && ordered(0) < ordered(1));
    }
}
