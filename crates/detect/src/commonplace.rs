//! Byte strings that occur in most traffic of their kind and are thus poor search patterns.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

/// Typical parts of requests, responses and pages, in lower case.
const PHRASES: &[&[u8]] = &[
    b"get / http/1.1\r\nhost: www.",
    b"post / http/1.1\r\nhost: ",
    b"user-agent: mozilla/4.0 (compatible; msie 6.0; windows nt 5.1; sv1)\r\n",
    b"mozilla/4.0 (compatible; msie 7.0; windows nt 6.0)",
    b"mozilla/4.0 (compatible; msie 8.0; windows nt 6.1)",
    b"user-agent: mozilla/5.0 (windows nt 10.0; win64; x64) applewebkit/537.36 (khtml, like gecko) chrome/",
    b"\r\naccept: */*\r\naccept-language: en-us\r\naccept-encoding: gzip, deflate\r\nuser-agent: mozilla/4.0",
    b"http/1.1\r\naccept: */*\r\naccept-language: en-us\r\naccept-encoding: gzip, deflate\r\nhost: ",
    b"http/1.1\r\naccept: */*\r\naccept-encoding: gzip, deflate\r\nuser-agent: mozilla/4.0 (compatible; msie 7.0; windows nt ",
    b"accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\naccept-language: en-us,en;q=0.5\r\n",
    b"accept-encoding: gzip,deflate\r\nproxy-connection: keep-alive\r\n\r\n",
    b"accept-encoding: gzip, deflate, br\r\nconnection: keep-alive\r\n\r\n",
    b"\r\naccept-charset: iso-8859-1,utf-8;q=0.7,*;q=0.7\r\n",
    b"\r\nconnection: close\r\n\r\n",
    b"\r\ncache-control: no-cache\r\npragma: no-cache\r\n",
    b"\r\ncache-control: max-age=0, private\r\n",
    b"\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: ",
    b"\r\ncontent-type: text/html; charset=utf-8\r\n",
    b"\r\ncontent-type: application/octet-stream\r\n",
    b"\r\ncontent-type: multipart/form-data; boundary=--",
    b"\r\ncontent-type: text/plain\r\n",
    b"\r\ncontent-type: image/gif\r\n",
    b"\r\ncontent-language: en\r\n",
    b"\r\ncontent-encoding: gzip\r\n",
    b"\r\ntransfer-encoding: chunked\r\n",
    b"\r\nlast-modified: mon, ",
    b"\r\nkeep-alive: timeout=",
    b"\r\nx-powered-by: php/",
    b"\r\nlocation: http://",
    b"http/1.1 200 ok\r\ndate: ",
    b"http/1.0 200 ok\r\nserver: apache",
    b"http/1.1 302 found\r\n",
    b"http/1.1 404 not found\r\n",
    b"\r\nreferer: http://www.",
    b"\r\ncookie: ",
    b"\r\nset-cookie: ",
    b"; path=/; expires=",
    b"<html><head><title>",
    b"<html>\r\n<head>\r\n<body>",
    b"<script type=\"text/javascript\" src=\"http://www.",
    b"<script language=\"javascript\">",
    b"<div class=\"",
    b"<a href=\"http://www.",
    b"</script></body></html>\r\n",
];

/// Longest substring of the phrases that is stored as a key.
const KEPT: usize = 8;

/// A hash for keys that are whole words. Only loading rules uses it, never packet data, so it needs no random key.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, v: u64) {
        let product = u128::from(self.0 ^ v ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// The substrings of the phrases, by length.
static STRETCHES: LazyLock<[HashSet<u64, BuildHasherDefault<WordHasher>>; KEPT + 1]> = LazyLock::new(|| {
    std::array::from_fn(|len| {
        let stretches = PHRASES.iter().flat_map(|p| p.windows(len.max(1)));
        let mut all = HashSet::default();
        all.extend(stretches.filter(|s| s.len() == len).map(key));
        all
    })
});

/// Lower case, padded with zeros.
fn key(stretch: &[u8]) -> u64 {
    let mut key = [0; KEPT];
    key.iter_mut().zip(stretch).for_each(|(k, b)| *k = b.to_ascii_lowercase());
    u64::from_le_bytes(key)
}

/// Whether a literal occurs in most traffic of its kind: part of a common protocol phrase, in either letter case;
/// almost only zeros; or one repeated byte, as in padding (zeros become `A` in base64). A literal of repeated bytes
/// occurs at thousands of places where it occurs at all.
pub(crate) fn is(literal: &[u8]) -> bool {
    let zeros = literal.iter().filter(|&&b| b == 0).count();
    if zeros + 1 >= literal.len() || literal.windows(2).all(|w| matches!(w, [a, b] if a == b)) {
        return true;
    }
    if let Some(stretches) = STRETCHES.get(literal.len()) {
        return stretches.contains(&key(literal));
    }
    // The beginning excludes most literals.
    literal.get(..KEPT).is_some_and(is) && {
        let lower = literal.to_ascii_lowercase();
        PHRASES.iter().any(|p| memchr::memmem::find(p, &lower).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::is;

    #[test]
    fn what_tells_nothing() {
        for literal in [
            &b"User-Agent: "[..],
            b"Host",
            b"\r\n\r\n",
            b"MSIE 7.0",
            b"Accept: */*\r\n",
            b"\0\0\0\x01",
            b"\0\0\0\0\0\0\0\0\0\0",
            b"x",
            b"AAAAAAAAAAAAAAAA",
            b"\x90\x90\x90\x90",
        ] {
            assert!(is(literal), "{}", literal.escape_ascii());
        }
        for literal in
            [&b"User-Agent: Anti"[..], b"evil", b"\0\x01\x02", b"MSIE 7.5", b"<html><head><script>x", b"AAAAAAAB"]
        {
            assert!(!is(literal), "{}", literal.escape_ascii());
        }
    }
}
