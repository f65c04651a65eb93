//! Old TLS keywords, which are literals in buffers, and `tls.store`.

use super::{Keyword, buffer, need_protocol};
use crate::ast::{BufferCheck, Content, Effect};
use crate::builder::{Builder, Input, Last};
use crate::error::Fail;

const TLS: &[&str] = &["tls"];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::quoted(&["tls.subject", "tls_subject"], literal)
        .negatable()
        .about("the subject of the certificate, as tls.cert_subject"),
    Keyword::quoted(&["tls.issuerdn", "tls_issuerdn"], literal)
        .negatable()
        .about("the issuer of the certificate, as tls.cert_issuer"),
    Keyword::quoted(&["tls.fingerprint", "tls_fingerprint"], literal)
        .negatable()
        .about("the SHA-1 fingerprint of the certificate, as tls.cert_fingerprint"),
    Keyword::bare(&["tls.store", "tls_store"], store).about("store the certificates"),
];

/// An old keyword that is a literal in a buffer, matched as written.
fn literal(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let buffer = buffer(match i.name {
        "tls.subject" => "tls.cert_subject",
        "tls.issuerdn" => "tls.cert_issuer",
        _ => "tls.cert_fingerprint",
    })?;
    need_protocol(b, TLS, i.written);
    b.note(buffer)?;
    let mut bytes = i.raw.to_vec();
    if i.name == "tls.fingerprint" {
        if bytes.len() != 59 {
            b.warn(
                "detect-tls-cert-fingerprint",
                "invalid length of the specified fingerprint. This rule will therefore never match.",
            );
        }
        bytes.make_ascii_lowercase();
    }
    let group = b.group_of(buffer.name, Some(buffer));
    if let Some(list) = b.list(group, None) {
        list.push(BufferCheck::Content(Content { bytes, negated: i.negated, ..Content::default() }));
    }
    b.last = Last::Other;
    Ok(())
}

fn store(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    need_protocol(b, TLS, i.written);
    b.restrict(TLS)?;
    b.rule.effects.push(Effect::TlsStore);
    Ok(())
}
