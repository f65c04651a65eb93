//! TLS keywords besides the buffers.

use super::{Direction, Keyword, Takes, buffer, need_protocol, number};
use crate::ast::{BufferCheck, Compare, Content, Effect, NumberTest, Which};
use crate::builder::{Builder, Input, Last};
use crate::error::{Fail, fail};

const TLS: &[&str] = &["tls"];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::number(&["tls.version"], Takes::Value, TLS, version),
    Keyword::number(&["ssl_version"], Takes::Value, TLS, versions),
    Keyword::number(&["ssl_state"], Takes::Value, TLS, state),
    Keyword::number(&["tls.cert_chain_len"], Takes::Value, TLS, number::u32).only(Direction::ToClient),
    Keyword::number(&["tls_cert_notbefore"], Takes::Value, TLS, date).only(Direction::ToClient),
    Keyword::number(&["tls_cert_notafter"], Takes::Value, TLS, date).only(Direction::ToClient),
    Keyword::number(&["tls_cert_expired"], Takes::Nothing, TLS, is_so).only(Direction::ToClient),
    Keyword::number(&["tls_cert_valid"], Takes::Nothing, TLS, is_so).only(Direction::ToClient),
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

/// Names and numbers of versions.
const VERSIONS: &[(&str, u64)] = &[
    ("sslv2", 0x0200),
    ("sslv3", 0x0300),
    ("tls1.0", 0x0301),
    ("tls1.1", 0x0302),
    ("tls1.2", 0x0303),
    ("tls1.3", 0x0304),
];

/// Numbers that mean a version; for TLS 1.3 this includes its drafts.
fn numbers_of(version: u64) -> Vec<u64> {
    let drafts = (version == 0x0304).then_some(0x7f00..=0x7fff);
    std::iter::once(version).chain(drafts.into_iter().flatten()).collect()
}

/// One version as a number or as two bytes: `1.2`, `0x7f12`.
fn version(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    const M: &str = "detect-tls-version";
    let text = i.text.trim();
    let values = match text {
        "1.0" => numbers_of(0x0301),
        "1.1" => numbers_of(0x0302),
        "1.2" => numbers_of(0x0303),
        "1.3" => numbers_of(0x0304),
        t => match t.strip_prefix("0x").and_then(|h| u16::from_str_radix(h, 16).ok()) {
            Some(n) => vec![u64::from(n)],
            None => {
                return fail(
                    M,
                    format!("tls.version: \"{text}\" is none of 1.0, 1.1, 1.2, 1.3, or a number as 0x7f12"),
                );
            }
        },
    };
    Ok((NumberTest::OneOf { values, negated: false }, Which::Any))
}

/// Several versions by name; either all have a `!` or none.
fn versions(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    const M: &str = "detect-ssl-version";
    let (mut values, mut form) = (Vec::new(), None);
    for (n, word) in i.text.split(',').map(str::trim).enumerate() {
        let (name, negated) = word.strip_prefix('!').map_or((word, false), |w| (w.trim_start(), true));
        let Some((_, number)) = VERSIONS.iter().find(|v| v.0.eq_ignore_ascii_case(name)) else {
            let names: Vec<_> = VERSIONS.iter().map(|v| v.0).collect();
            return fail(M, format!("ssl_version: \"{name}\" is none of {}", names.join(", ")));
        };
        // A `!` before the first of a list applies to all.
        let negated = negated || (n > 0 && form == Some(true));
        if *form.get_or_insert(negated) != negated {
            return fail(M, "ssl_version: names with and without a ! do not go together");
        }
        values.extend(numbers_of(*number));
    }
    Ok((NumberTest::OneOf { values, negated: form == Some(true) }, Which::Any))
}

/// States, by the last handshake message seen: the session must be in one of those listed (`client_hello|server_hello`), and
/// in none with `!`.
fn state(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    const STATES: [&str; 5] = ["client_hello", "server_hello", "client_keyx", "server_keyx", "unknown"];
    let (mut any, mut none) = (0, 0);
    for word in i.text.split(['|', ',']).map(str::trim) {
        let (name, negated) = word.strip_prefix('!').map_or((word, false), |w| (w.trim_start(), true));
        let Some(at) = STATES.iter().position(|s| *s == name) else {
            return fail("detect-ssl-state", format!("ssl_state: \"{name}\" is none of {}", STATES.join(", ")));
        };
        *(if negated { &mut none } else { &mut any }) |= 1 << at;
    }
    Ok((NumberTest::Bits { any, none }, Which::Any))
}

/// A date, `>` or `<` a date, or a range, all including the named date (observed). Stored as seconds since 1970 with the
/// sign bit flipped, so that they compare as unsigned numbers.
fn date(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    const M: &str = "detect-tls-cert-validity";
    let text = i.text.trim();
    let moment = |t: &str| match seconds(t.trim()) {
        Some(s) => Ok(s.cast_unsigned() ^ 1 << 63),
        None => fail(M, format!("{}: \"{}\" is no date: write 2015, 2015-10-22 or 2015-10-22T23:59:59", i.written, t)),
    };
    let test = if let Some(t) = text.strip_prefix('>') {
        Compare::GreaterEqual(moment(t)?)
    } else if let Some(t) = text.strip_prefix('<') {
        Compare::LessEqual(moment(t)?)
    } else if let Some((a, b)) = text.split_once("<>") {
        let (a, b) = (moment(a)?, moment(b)?);
        if b <= a {
            return fail(M, format!("{}: second value in range must not be smaller than the first", i.written));
        }
        Compare::Between(a.saturating_sub(1), b.saturating_add(1))
    } else {
        Compare::Equal(moment(text)?)
    };
    Ok((NumberTest::Compare(test), Which::Any))
}

/// Seconds since 1970 (UTC) of a date of any precision; a plain number of more than four digits is already seconds.
fn seconds(text: &str) -> Option<i64> {
    if text.len() > 4 && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (date, time) = text.split_once(['T', ' ']).map_or((text, ""), |(d, t)| (d, t.trim()));
    let number = |t: &str, len: usize, low: i64, high: i64| {
        let n = t.parse().ok().filter(|n| (low..=high).contains(n));
        n.filter(|_| t.len() == len && t.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4, 0, 9999)?;
    let month = parts.next().map_or(Some(1), |m| number(m, 2, 1, 12))?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = parts.next().map_or(Some(1), |d| number(d, 2, 1, days))?;
    if parts.next().is_some() {
        return None;
    }
    let mut of_day = 0;
    if !time.is_empty() {
        let mut parts = time.split(':');
        for (most, unit) in [(23, 3600), (59, 60), (59, 1)] {
            match parts.next() {
                Some(p) => of_day += number(p, 2, 0, most)? * unit,
                None => break,
            }
        }
        if parts.next().is_some() {
            return None;
        }
    }
    // Days since 1970 in the civil calendar, with years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + of_day)
}

/// A keyword that tests a boolean.
fn is_so(_: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    Ok((NumberTest::Compare(Compare::Equal(1)), Which::Any))
}

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

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn dates() {
        for (text, want) in [
            ("1970", Some(0)),
            ("2015-02-12T18:07:27", Some(1_423_764_447)),
            ("2000-02-29", Some(951_782_400)),
            ("1969-12-31", Some(-86_400)),
            ("2015-10-22 23:59", Some(1_445_558_340)),
            ("1445471999", Some(1_445_471_999)),
            ("2015-13", None),
            ("2015-02-29", None),
            ("15", None),
            ("2015-1", None),
            ("2015-01-01T24", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }
}
