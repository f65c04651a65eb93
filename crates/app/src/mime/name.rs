//! Parameters of fields (RFC 2045, section 5.1), with continuations and encoding (RFC 2231), and encoded words in file names
//! (RFC 2047).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::param;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The limit of parts in a parameter (RFC 2231, section 3); further ones are ignored.
const MAX_PARTS: u16 = 256;

/// A field value whose parameters are read.
pub(super) struct Parameters(Vec<u8>);

impl Parameters {
    pub(super) fn of(field: &[u8]) -> Parameters {
        Parameters(closed(field))
    }

    /// The decoded value of parameter `name`, which is in lower case; its parts are joined. `None` if there is no such
    /// parameter.
    pub(super) fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        decoded(param::params(&self.0), name)
    }

    /// As [`Parameters::get`], for names of files: without quotes they may contain blanks.
    pub(super) fn file_name(&self, name: &[u8]) -> Option<Vec<u8>> {
        decoded(param::params_with_blanks(&self.0), name)
    }
}

/// The value of parameter `name` among `params`.
fn decoded<'a>(params: impl Iterator<Item = (&'a [u8], &'a [u8])>, name: &[u8]) -> Option<Vec<u8>> {
    // (index, whether it is encoded, value) of each part.
    let mut parts: Vec<(u16, bool, &[u8])> = Vec::new();
    let mut plain = None;
    for (key, value) in params {
        let Some((own, more)) =
            bare(key).split_at_checked(name.len()).filter(|(own, _)| own.eq_ignore_ascii_case(name))
        else {
            continue;
        };
        debug_assert_eq!(own.len(), name.len());
        match more {
            b"" => plain = plain.or(Some(value)),
            [b'*', rest @ ..] => {
                let (number, encoded) = rest.strip_suffix(b"*").map_or((rest, rest.is_empty()), |n| (n, true));
                let place = if number.is_empty() {
                    Some(0)
                } else {
                    std::str::from_utf8(number).ok().and_then(|n| n.parse().ok())
                };
                if let Some(place) = place.filter(|p| *p < MAX_PARTS && parts.len() < usize::from(MAX_PARTS)) {
                    parts.push((place, encoded, value));
                }
            }
            _ => {}
        }
    }
    if parts.is_empty() {
        return plain.map(<[u8]>::to_vec);
    }
    let plain = plain.map(<[u8]>::to_vec);
    parts.sort_by_key(|p| p.0);
    let mut out = Vec::new();
    for (n, (_, encoded, value)) in parts.iter().enumerate() {
        if !encoded {
            out.extend_from_slice(value);
            continue;
        }
        // The first part names charset and language.
        let mut text = *value;
        if n == 0 {
            let mut quotes = value.iter().enumerate().filter(|(_, b)| **b == b'\'').map(|(i, _)| i);
            if let (Some(_), Some(second)) = (quotes.next(), quotes.next()) {
                text = value.get(second + 1..).unwrap_or(value);
            }
        }
        percent(text, &mut out);
    }
    if out.is_empty() && plain.is_some() { plain } else { Some(out) }
}

/// Prepares a field value: the first word may be a parameter too, and an open quote is closed. Python accepts both.
fn closed(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len() + 2);
    out.push(b';');
    out.extend_from_slice(field);
    let (mut open, mut at) = (false, 0);
    while let Some(found) = field.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        let backslash = field.get(at) == Some(&b'\\');
        open ^= !backslash;
        // Within quotes a backslash escapes the next byte.
        at += if backslash && open { 2 } else { 1 };
    }
    if open {
        out.push(b'"');
    }
    out
}

/// A parameter name without control characters, and without blanks and a comment before it.
fn bare(mut key: &[u8]) -> &[u8] {
    loop {
        key = match key {
            [b, rest @ ..] if *b <= b' ' => rest,
            [b'(', rest @ ..] => match rest.iter().position(|&b| b == b')') {
                Some(end) => rest.get(end + 1..).unwrap_or(&[]),
                None => return key,
            },
            _ => return key,
        }
    }
}

fn hex(b: Option<&u8>) -> Option<u8> {
    b.and_then(|b| (*b as char).to_digit(16)).map(|d| d as u8)
}

/// Decodes bytes written as `%41`, or with another `mark`.
fn unquote(text: &[u8], mark: u8, out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        match (hex(text.get(at + 1)), hex(text.get(at + 2))) {
            (Some(high), Some(low)) if b == mark => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(b);
                at += 1;
            }
        }
    }
}

fn percent(text: &[u8], out: &mut Vec<u8>) {
    unquote(text, b'%', out);
}

/// Decodes the encoded words of a name (`=?utf-8?B?…?=`). The bytes stay in their charset.
pub(super) fn without_words(name: Vec<u8>) -> Vec<u8> {
    if !name.windows(2).any(|w| w == b"=?") {
        return name;
    }
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name.as_slice();
    let mut after_word = false;
    while !rest.is_empty() {
        if let Some((word, after)) = word(rest) {
            out.extend_from_slice(&word);
            (rest, after_word) = (after, true);
            continue;
        }
        // White space between two encoded words is not part of the text.
        let blanks = rest.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(rest.len());
        if after_word && blanks > 0 && rest.get(blanks..).and_then(word_at).is_some() {
            rest = rest.get(blanks..).unwrap_or(&[]);
            continue;
        }
        after_word = false;
        if let Some((first, after)) = rest.split_first() {
            out.push(*first);
            rest = after;
        }
    }
    out
}

fn word_at(text: &[u8]) -> Option<()> {
    word(text).map(|_| ())
}

/// Decodes the encoded word at the front of `text`. Returns it and the rest.
fn word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    /// The longest encoded word: RFC 2047 allows 75 bytes, programs accept more.
    const LONGEST: usize = 1024;
    let inner = text.strip_prefix(b"=?")?;
    let limited = inner.get(..LONGEST).unwrap_or(inner);
    let mut marks = limited.iter().enumerate().filter(|(_, b)| **b == b'?').map(|(i, _)| i);
    let (charset, coding) = (marks.next()?, marks.next()?);
    let data_end = marks.find(|&m| limited.get(m + 1) == Some(&b'='))?;
    let data = limited.get(coding + 1..data_end)?;
    let mut out = Vec::new();
    match limited.get(charset + 1..coding)? {
        b"B" | b"b" => out = BASE64.decode(data).ok()?,
        b"Q" | b"q" => {
            let spaced: Vec<u8> = data.iter().map(|&b| if b == b'_' { b' ' } else { b }).collect();
            unquote(&spaced, b'=', &mut out);
        }
        _ => return None,
    }
    Some((out, inner.get(data_end + 2..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters() {
        for (field, want) in [
            ("attachment; filename=\"b.bin\"", Some("b.bin")),
            ("attachment;filename=b.bin;", Some("b.bin")),
            ("x; filename*0=ab; filename*1=\"cd.txt\"", Some("abcd.txt")),
            ("x; filename*1=\"cd.txt\"; filename*0=ab", Some("abcd.txt")),
            ("x; filename*=utf-8''h%C3%B6.txt", Some("hö.txt")),
            ("x; filename*0*=utf-8''a%20b; filename*1*=%41c; filename*2=%d", Some("a bAc%d")),
            ("x; filename*=%zz", Some("%zz")),
            ("x; filename=plain; filename*=utf-8''better", Some("better")),
            ("x; name=f; filenames=g", None),
            ("filename=first", Some("first")),
            ("x; filename=\"open", Some("open")),
            ("x; filename=\"open\\\"", Some("open\\\"")),
            ("x;\x0bfilename=a", Some("a")),
            ("x; (c) filename=a", Some("a")),
            ("x; filename*=\"\"; filename=a", Some("a")),
            ("attachment", None),
        ] {
            let got = Parameters::of(field.as_bytes()).get(b"filename");
            assert_eq!(got.map(|g| String::from_utf8_lossy(&g).into_owned()).as_deref(), want, "{field}");
        }
    }

    #[test]
    fn names_with_blanks() {
        for (field, want) in [
            ("attachment; filename=a b.exe", "a b.exe"),
            ("attachment; filename=a b.exe ; size=3", "a b.exe"),
            ("attachment; filename=\"a;b.exe\" ; size=3", "a;b.exe"),
            ("attachment; filename*=utf-8''a b%21", "a b!"),
            ("attachment; filename*0=a ; filename*1=\"b c\"", "ab c"),
        ] {
            let got = Parameters::of(field.as_bytes()).file_name(b"filename").unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(&got), want, "{field}");
        }
    }

    #[test]
    fn words() {
        for (name, want) in [
            ("=?utf-8?B?aGVsbG8udHh0?=", "hello.txt"),
            ("=?UTF-8?Q?w=C3=B6r_t?= =?utf-8?q?=2Eexe?=", "wör t.exe"),
            ("a =?utf-8?Q?b?= c", "a b c"),
            ("=?utf-8?B?!!!?=", "=?utf-8?B?!!!?="),
            ("=?utf-8?X?abc?=", "=?utf-8?X?abc?="),
            ("=?", "=?"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_words(name.as_bytes().to_vec())), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(field in proptest::collection::vec(prop_oneof![Just(b'='), Just(b'?'), Just(b'*'), Just(b';'), Just(b'%'),
            Just(b'\''), Just(b'n'), Just(b'0'), Just(b'B'), any::<u8>()], 0..80))
        {
            let parameters = Parameters::of(&field);
            let _ = (parameters.get(b"n"), parameters.file_name(b"n"));
            prop_assert!(without_words(field.clone()).len() <= field.len());
        }
    }
}
