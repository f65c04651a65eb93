//! Fingerprints of hellos: JA3 and JA3S (<https://github.com/salesforce/ja3>), JA4 (the BSD-licensed part of
//! <https://github.com/FoxIO-LLC/ja4>). QUIC uses them too.

use md5::Md5;
use sha2::{Digest, Sha256};

use crate::tx::Form;

use super::hello::Hello;
use super::version::Version;

/// Appends decimal numbers separated by hyphens.
fn list(out: &mut Vec<u8>, numbers: impl Iterator<Item = u16>) {
    let mut first = true;
    for n in numbers {
        if !std::mem::replace(&mut first, false) {
            out.push(b'-');
        }
        margay_json::digits(out, u64::from(n));
    }
}

/// The form of `ja3.hash`.
pub(crate) const JA3: Form = Form::Md5 { module: "detect-tls-ja3-hash", called: "JA3 hash", strict: true };
/// The form of `ja3s.hash`.
pub(crate) const JA3S: Form = Form::Md5 { module: "detect-tls-ja3s-hash", called: "JA3S hash", strict: true };

/// Appends the JA3 string of a ClientHello: `version,ciphers,extensions,groups,point formats`, without GREASE. Like in Suricata,
/// the string of an invalid message ends before its ciphers or its extensions.
pub fn ja3(hello: &Hello, out: &mut Vec<u8>) {
    margay_json::digits(out, u64::from(hello.version.0));
    let (has_ciphers, has_rest) = hello.read_to();
    if !has_ciphers {
        return;
    }
    out.push(b',');
    list(out, hello.ciphers().filter(Hello::is_real));
    if !has_rest {
        return;
    }
    out.push(b',');
    list(out, hello.extensions().filter(Hello::is_real));
    out.push(b',');
    list(out, hello.groups().filter(Hello::is_real));
    out.push(b',');
    list(out, hello.point_formats().iter().map(|b| u16::from(*b)));
}

/// Appends the JA3S string of a ServerHello: `version,cipher,extensions`.
pub fn ja3s(hello: &Hello, out: &mut Vec<u8>) {
    margay_json::digits(out, u64::from(hello.version.0));
    let (has_ciphers, has_rest) = hello.read_to();
    if !has_ciphers {
        return;
    }
    out.push(b',');
    list(out, hello.ciphers());
    if !has_rest {
        return;
    }
    out.push(b',');
    list(out, hello.extensions().filter(Hello::is_real));
}

/// Appends the MD5 of a JA3 or JA3S string in hexadecimal.
pub fn md5_hex(string: &[u8], out: &mut Vec<u8>) {
    hex(&Md5::digest(string), out);
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.extend([DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    }
}

/// Appends the JA4 of a ClientHello over `transport`: `t` for TCP, `q` for QUIC.
pub fn ja4(hello: &Hello, transport: u8, out: &mut Vec<u8>) {
    let mut ciphers: Vec<u16> = hello.ciphers().filter(Hello::is_real).collect();
    let all: Vec<u16> = hello.extensions().filter(Hello::is_real).collect();
    out.push(transport);
    out.extend_from_slice(match hello.newest() {
        // Like Suricata, accept drafts of TLS 1.3 over TCP only.
        v if v == Version(0x0304) || transport == b't' && v.is_13() => b"13",
        Version(0x0303) => b"12",
        Version(0x0302) => b"11",
        Version(0x0301) => b"10",
        Version(0x0300) => b"s3",
        Version(0x0200 | 0x0002) => b"s2",
        _ => b"00",
    });
    out.push(if all.contains(&0) { b'd' } else { b'i' });
    for n in [ciphers.len(), all.len()] {
        let n = n.min(99) as u8;
        out.extend([b'0' + n / 10, b'0' + n % 10]);
    }
    out.extend(alpn(hello.alpns().next()));
    out.push(b'_');
    ciphers.sort_unstable();
    short_hash(&ciphers, None, out);
    out.push(b'_');
    let mut extensions: Vec<u16> = all.into_iter().filter(|e| !matches!(e, 0 | 16)).collect();
    extensions.sort_unstable();
    let signatures: Vec<u16> = hello.signatures().filter(Hello::is_real).collect();
    short_hash(&extensions, Some(&signatures), out);
}

/// First and last character of the first ALPN protocol; hexadecimal digits of its first and last byte if it is not text.
fn alpn(first: Option<&[u8]>) -> [u8; 2] {
    let Some((a, z)) = first.and_then(|f| Some((f.first()?, f.last()?))) else { return *b"00" };
    if a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric() {
        return [*a, *z];
    }
    let mut digits = Vec::with_capacity(4);
    hex(&[*a, *z], &mut digits);
    [digits.first().copied().unwrap_or(b'0'), digits.last().copied().unwrap_or(b'0')]
}

/// Appends twelve hexadecimal digits of the SHA-256 of the numbers, joined by commas; zeros if there are none.
fn short_hash(numbers: &[u16], more: Option<&[u16]>, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        out.extend_from_slice(b"000000000000");
        return;
    }
    let mut text = Vec::with_capacity(numbers.len() * 5);
    let put = |numbers: &[u16], text: &mut Vec<u8>| {
        for (i, n) in numbers.iter().enumerate() {
            if i > 0 {
                text.push(b',');
            }
            hex(&n.to_be_bytes(), text);
        }
    };
    put(numbers, &mut text);
    if let Some(more) = more {
        // Suricata writes the separator even if nothing follows; the specification does not.
        text.push(b'_');
        put(more, &mut text);
    }
    let digest = Sha256::digest(&text);
    hex(digest.get(..6).unwrap_or(&[]), out);
}
