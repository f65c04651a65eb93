//! The `Authorization` header (RFC 9110, section 11.6.2): scheme and user.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 with or without padding, as servers accept it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The longest `Basic` credentials that are decoded, in bytes.
const MAX_BASIC: usize = 4096;

/// An authentication scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `Basic` (RFC 7617).
    Basic,
    /// `Digest` (RFC 7616).
    Digest,
    /// `Bearer` (RFC 6750).
    Bearer,
    /// Any other (`request_auth_unrecognized`).
    Unrecognised,
}

/// The scheme at the front of an `Authorization` value, in any case. Like in Suricata, the name is enough; no credentials need
/// to follow.
pub fn scheme(value: &[u8]) -> Scheme {
    let named = |name: &[u8]| value.get(..name.len()).is_some_and(|v| v.eq_ignore_ascii_case(name));
    if named(b"basic") {
        Scheme::Basic
    } else if named(b"digest") {
        Scheme::Digest
    } else if named(b"bearer") {
        Scheme::Bearer
    } else {
        Scheme::Unrecognised
    }
}

/// The user in an `Authorization` value, for `Basic` and `Digest`. `None` if there is none, or the value is invalid.
pub fn user(value: &[u8]) -> Option<Vec<u8>> {
    match scheme(value) {
        Scheme::Basic => {
            let encoded = value.get(5..)?.trim_ascii();
            if encoded.len() > MAX_BASIC {
                return None;
            }
            let mut decoded = BASE64.decode(encoded).ok()?;
            let colon = decoded.iter().position(|&b| b == b':')?;
            decoded.truncate(colon);
            Some(decoded)
        }
        Scheme::Digest => digest_user(value.get(6..)?),
        Scheme::Bearer | Scheme::Unrecognised => None,
    }
}

/// Reads `username="..."` from the parameters of `Digest`.
fn digest_user(mut params: &[u8]) -> Option<Vec<u8>> {
    loop {
        params = params.get(params.iter().position(|b| !b.is_ascii_whitespace() && *b != b',')?..)?;
        let name_end = params.iter().position(|&b| b == b'=')?;
        let (name, value) = params.split_at(name_end);
        let wanted = name.trim_ascii().eq_ignore_ascii_case(b"username");
        let value = value.get(1..)?.trim_ascii_start();
        let (text, rest) = crate::param::value(value, b",")?;
        if wanted {
            return Some(crate::param::unescape(text));
        }
        params = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn schemes() {
        // Whether Suricata 7.0.10 raises request_auth_unrecognized.
        for (value, want) in [
            ("Basic dXNlcjpwdw==", Scheme::Basic),
            ("basic", Scheme::Basic),
            ("Digest realm=\"x\"", Scheme::Digest),
            ("Bearer mF_9.B5f-4.1JqM", Scheme::Bearer),
            ("Bearerx", Scheme::Bearer),
            ("Turbo customAuthDataHere", Scheme::Unrecognised),
            ("NTLM TlRM", Scheme::Unrecognised),
            ("", Scheme::Unrecognised),
        ] {
            assert_eq!(scheme(value.as_bytes()), want, "{value}");
        }
    }

    #[test]
    fn users() {
        for (value, want) in [
            ("Basic dXNlcjpwdw==", Some("user")),
            ("basic \t dXNlcjpwdw", Some("user")),
            ("Basic dXNlcg==", None),
            ("Basic !!!", None),
            ("Basic", None),
            ("Digest username=\"u\", realm=\"x\"", Some("u")),
            ("Digest realm=\"a, username=b\", username = \"a\\\"b\"", Some("a\"b")),
            ("digest username=u", Some("u")),
            ("Digest username=\"u", None),
            ("Digest realm=\"x\"", None),
            ("Bearer x", None),
        ] {
            assert_eq!(user(value.as_bytes()).as_deref(), want.map(str::as_bytes), "{value}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(value in "(Basic|Digest) [ -~]{0,60}", raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            user(value.as_bytes());
            user(&raw);
        }
    }
}
