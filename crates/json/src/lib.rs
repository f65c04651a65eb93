//! Writes JSON to a buffer that is reused for every event.
//!
//! The writer has no state other than the buffer: the last byte shows whether a comma is due. Strings are escaped as in
//! Suricata's EVE: `"`, `\` and control characters are escaped, `\b \t \n \f \r` in the short form and the others as `\u00xx`.
//! Everything else stays unchanged, including DEL and U+2028. If a string is not valid UTF-8, each of its bytes above 0x7f is
//! written as the four characters `\xff`, whose backslash is doubled in JSON.
//!
//! Keys are the program's own and need no escapes, so they are `&'static`. [`Json::name`] writes names from other sources.

use std::io::Write as _;
use std::net::IpAddr;

use margay_packet::Time;

mod text;
pub mod time;

use text::{ESCAPE, FOREIGN, HEX_PAIRS, SPECIAL, kinds};
pub use text::{digits, ip};
use time::Clock;

/// Appends JSON to a buffer.
#[derive(Debug, Default)]
pub struct Json {
    buf: Vec<u8>,
}

impl Json {
    /// An empty buffer.
    pub fn new() -> Self {
        Json { buf: Vec::with_capacity(4096) }
    }

    /// Clears the text, but keeps the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// The length of the text in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Returns the text, and continues with the buffer `empty`.
    pub fn replace(&mut self, empty: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.buf, empty)
    }

    /// Appends bytes unchanged: JSON from elsewhere, a line's prefix, a line feed. The caller writes the comma.
    #[inline(always)]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Writes a comma, if one is due before the next member or element.
    #[inline]
    pub fn comma(&mut self) {
        if !matches!(self.buf.last(), None | Some(b'{' | b'[' | b':' | b'\n')) {
            self.buf.push(b',');
        }
    }

    /// Inlined so that a literal key becomes a few stores.
    #[inline(always)]
    fn key(&mut self, key: &'static str) {
        debug_assert!(kinds(key.as_bytes()) & SPECIAL == 0, "key {key:?} would have to be escaped");
        self.comma();
        self.buf.push(b'"');
        self.buf.extend_from_slice(key.as_bytes());
        self.buf.extend_from_slice(b"\":");
    }

    /// The name of a member that comes from a rule or from traffic. The caller then writes the value as an element
    /// ([`Json::item_str`] and the like), or with [`Json::item_object`] or [`Json::item_array`].
    pub fn name(&mut self, key: &str) {
        self.comma();
        self.quoted(key.as_bytes());
        self.buf.push(b':');
    }

    /// As [`Self::name`], with the bytes of [`Self::printable`].
    pub fn name_printable(&mut self, key: &[u8]) {
        self.item_printable(key);
        self.buf.push(b':');
    }

    /// Opens an object: the outermost one, or an element of an array. Close it with [`Json::end_object`].
    pub fn item_object(&mut self) {
        self.comma();
        self.buf.push(b'{');
    }

    /// Opens an array as element. Close it with [`Json::end_array`].
    pub fn item_array(&mut self) {
        self.comma();
        self.buf.push(b'[');
    }

    /// Opens the object `key`.
    #[inline(always)]
    pub fn object(&mut self, key: &'static str) {
        self.key(key);
        self.buf.push(b'{');
    }

    /// Closes an object.
    #[inline]
    pub fn end_object(&mut self) {
        self.buf.push(b'}');
    }

    /// Opens the array `key`.
    #[inline(always)]
    pub fn array(&mut self, key: &'static str) {
        self.key(key);
        self.buf.push(b'[');
    }

    /// Closes an array.
    #[inline]
    pub fn end_array(&mut self) {
        self.buf.push(b']');
    }

    /// A member whose value is JSON already.
    #[inline(always)]
    pub fn json(&mut self, key: &'static str, json: &[u8]) {
        self.key(key);
        self.buf.extend_from_slice(json);
    }

    /// A string member.
    #[inline(always)]
    pub fn str(&mut self, key: &'static str, value: &str) {
        self.key(key);
        self.quoted(value.as_bytes());
    }

    /// A string member whose value is one of the program's own words. It is written without a check, because it needs no escapes.
    #[inline(always)]
    pub fn word(&mut self, key: &'static str, value: &'static str) {
        debug_assert!(kinds(value.as_bytes()) & SPECIAL == 0, "word {value:?} would have to be escaped");
        self.key(key);
        self.buf.push(b'"');
        self.buf.extend_from_slice(value.as_bytes());
        self.buf.push(b'"');
    }

    /// A string member from network bytes. The module's text describes the form of invalid UTF-8.
    #[inline(always)]
    pub fn bytes(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        self.lossy(value);
    }

    /// A string member in which each byte other than printable ASCII, CR and LF becomes a full stop.
    pub fn printable(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.printable_rest(value);
        self.buf.push(b'"');
    }

    /// As [`Self::printable`], for an item or after [`Self::name`].
    pub fn item_printable(&mut self, value: &[u8]) {
        self.comma();
        self.buf.push(b'"');
        self.printable_rest(value);
        self.buf.push(b'"');
    }

    fn printable_rest(&mut self, value: &[u8]) {
        self.buf.reserve(value.len());
        let shown = |b: u8| if matches!(b, 0x20..=0x7e) { b } else { b'.' };
        let (chunks, rest) = value.as_chunks::<16>();
        for chunk in chunks {
            let escapes =
                |b: u8| u8::from(b == b'\r') | u8::from(b == b'\n') | u8::from(b == b'"') | u8::from(b == b'\\');
            if chunk.iter().fold(0, |any, &b| any | escapes(b)) == 0 {
                self.buf.extend_from_slice(&chunk.map(shown));
            } else {
                self.printable_bytes(chunk);
            }
        }
        self.printable_bytes(rest);
    }

    fn printable_bytes(&mut self, value: &[u8]) {
        for &b in value {
            match b {
                b'\r' => self.buf.extend_from_slice(b"\\r"),
                b'\n' => self.buf.extend_from_slice(b"\\n"),
                b'"' => self.buf.extend_from_slice(b"\\\""),
                b'\\' => self.buf.extend_from_slice(b"\\\\"),
                0x20..=0x7e => self.buf.push(b),
                _ => self.buf.push(b'.'),
            }
        }
    }

    /// A string member in base64 (RFC 4648, section 4), padded.
    pub fn base64(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.base64_rest(value);
        self.buf.push(b'"');
    }

    /// Appends base64 without key and quotes, for a value in several parts. Each part but the last must be a multiple of three bytes.
    pub fn base64_rest(&mut self, value: &[u8]) {
        base64_simd::STANDARD.encode_append(value, &mut self.buf);
    }

    /// A string member in lower-case hexadecimal.
    pub fn hex(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.buf.reserve(value.len() * 2 + 1);
        for &b in value {
            self.hex_byte(b);
        }
        self.buf.push(b'"');
    }

    #[inline]
    fn hex_byte(&mut self, b: u8) {
        self.buf.extend_from_slice(&HEX_PAIRS[usize::from(b)]);
    }

    /// An unsigned number.
    #[inline(always)]
    pub fn uint(&mut self, key: &'static str, value: u64) {
        self.key(key);
        digits(&mut self.buf, value);
    }

    /// An unsigned number without its key.
    #[inline]
    pub fn uint_rest(&mut self, value: u64) {
        digits(&mut self.buf, value);
    }

    /// A signed number.
    #[inline(always)]
    pub fn int(&mut self, key: &'static str, value: i64) {
        self.key(key);
        self.int_rest(value);
    }

    fn int_rest(&mut self, value: i64) {
        if value < 0 {
            self.buf.push(b'-');
        }
        digits(&mut self.buf, value.unsigned_abs());
    }

    /// A floating-point number, in the shortest form that reads back the same; `null` for infinities and NaN.
    #[inline(always)]
    pub fn float(&mut self, key: &'static str, value: f64) {
        self.key(key);
        self.float_rest(value);
    }

    fn float_rest(&mut self, value: f64) {
        if value.is_finite() {
            // Writing to a Vec does not fail.
            let _ = write!(self.buf, "{value:?}");
        } else {
            self.buf.extend_from_slice(b"null");
        }
    }

    /// `true` or `false`.
    #[inline(always)]
    pub fn bool(&mut self, key: &'static str, value: bool) {
        self.key(key);
        self.buf.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// An address: IPv6 with all eight groups of four digits.
    #[inline(always)]
    pub fn ip(&mut self, key: &'static str, value: IpAddr) {
        self.key(key);
        self.buf.push(b'"');
        ip(&mut self.buf, value);
        self.buf.push(b'"');
    }

    /// An address without key and quotes.
    #[inline]
    pub fn ip_rest(&mut self, value: IpAddr) {
        ip(&mut self.buf, value);
    }

    /// An Ethernet address, lower case with colons.
    pub fn mac(&mut self, key: &'static str, value: [u8; 6]) {
        self.key(key);
        self.mac_rest(value);
    }

    fn mac_rest(&mut self, value: [u8; 6]) {
        self.buf.push(b'"');
        let mut text = [b':'; 17];
        for (at, b) in text.chunks_mut(3).zip(value) {
            at[..2].copy_from_slice(&HEX_PAIRS[usize::from(b)]);
        }
        self.buf.extend_from_slice(&text);
        self.buf.push(b'"');
    }

    /// A time with its offset: `2016-07-13T22:42:07.199672+0000`.
    #[inline(always)]
    pub fn time(&mut self, key: &'static str, value: Time, clock: &mut Clock) {
        self.key(key);
        self.buf.push(b'"');
        clock.iso(&mut self.buf, value);
        self.buf.push(b'"');
    }

    /// A time without key and quotes.
    #[inline]
    pub fn time_rest(&mut self, value: Time, clock: &mut Clock) {
        clock.iso(&mut self.buf, value);
    }

    /// A string element.
    pub fn item_str(&mut self, value: &str) {
        self.comma();
        self.quoted(value.as_bytes());
    }

    /// A string element from network bytes.
    pub fn item_bytes(&mut self, value: &[u8]) {
        self.comma();
        self.lossy(value);
    }

    /// A number as element.
    pub fn item_uint(&mut self, value: u64) {
        self.comma();
        digits(&mut self.buf, value);
    }

    /// A signed number as element.
    pub fn item_int(&mut self, value: i64) {
        self.comma();
        self.int_rest(value);
    }

    /// A floating-point number as element.
    pub fn item_float(&mut self, value: f64) {
        self.comma();
        self.float_rest(value);
    }

    /// `true` or `false` as element.
    pub fn item_bool(&mut self, value: bool) {
        self.comma();
        self.buf.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// JSON as element.
    pub fn item_json(&mut self, json: &[u8]) {
        self.comma();
        self.buf.extend_from_slice(json);
    }

    /// An address as element.
    pub fn item_ip(&mut self, value: IpAddr) {
        self.comma();
        self.buf.push(b'"');
        ip(&mut self.buf, value);
        self.buf.push(b'"');
    }

    /// An Ethernet address as element.
    pub fn item_mac(&mut self, value: [u8; 6]) {
        self.comma();
        self.mac_rest(value);
    }

    fn quoted(&mut self, s: &[u8]) {
        if kinds(s) & SPECIAL == 0 {
            self.plain(s);
        } else {
            self.buf.push(b'"');
            self.escaped(s);
            self.buf.push(b'"');
        }
    }

    #[inline]
    fn plain(&mut self, s: &[u8]) {
        self.buf.push(b'"');
        self.buf.extend_from_slice(s);
        self.buf.push(b'"');
    }

    fn escaped(&mut self, s: &[u8]) {
        let mut from = 0;
        for (i, &b) in s.iter().enumerate() {
            let e = ESCAPE[usize::from(b)];
            if e == 0 {
                continue;
            }
            self.buf.extend_from_slice(&s[from..i]);
            from = i + 1;
            if e == b'u' {
                self.buf.extend_from_slice(b"\\u00");
                self.hex_byte(b);
            } else {
                self.buf.extend_from_slice(&[b'\\', e]);
            }
        }
        self.buf.extend_from_slice(&s[from..]);
    }

    fn lossy(&mut self, s: &[u8]) {
        let kinds = kinds(s);
        if kinds == 0 {
            return self.plain(s);
        }
        self.buf.push(b'"');
        if kinds & FOREIGN == 0 || std::str::from_utf8(s).is_ok() {
            self.escaped(s);
        } else {
            self.lossy_rest(s);
        }
        self.buf.push(b'"');
    }

    fn lossy_rest(&mut self, s: &[u8]) {
        let mut from = 0;
        for (i, &b) in s.iter().enumerate() {
            if b >= 0x80 {
                self.escaped(&s[from..i]);
                self.buf.extend_from_slice(b"\\\\x");
                self.hex_byte(b);
                from = i + 1;
            }
        }
        self.escaped(&s[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(f: impl FnOnce(&mut Json)) -> String {
        let mut j = Json::new();
        j.item_object();
        f(&mut j);
        j.end_object();
        String::from_utf8(j.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn strings_as_suricata_writes_them() {
        // Bytes and results from an http event of Suricata.
        let bad = b"a\xff\xfe\xc3\xa9\x01\x1b\"\\b/\x7f\xe2\x82\xac\tz";
        assert_eq!(
            one(|j| j.bytes("k", bad)),
            "{\"k\":\"a\\\\xff\\\\xfe\\\\xc3\\\\xa9\\u0001\\u001b\\\"\\\\b/\x7f\\\\xe2\\\\x82\\\\xac\\tz\"}"
        );
        let good = "a\u{e9}\u{1}\u{1b}\"\\b/\u{7f}\u{20ac}\tz\u{2028}".as_bytes();
        assert_eq!(
            one(|j| j.bytes("k", good)),
            "{\"k\":\"a\u{e9}\\u0001\\u001b\\\"\\\\b/\u{7f}\u{20ac}\\tz\u{2028}\"}"
        );
        assert_eq!(one(|j| j.str("k", "\u{8}\u{c}\r\n")), r#"{"k":"\b\f\r\n"}"#);
        assert_eq!(one(|j| j.printable("k", b"GET /\"\\/\x7f\xc3\t\r\n")), r#"{"k":"GET /\"\\/...\r\n"}"#);
    }

    #[test]
    fn numbers_and_lists() {
        let got = one(|j| {
            j.uint("a", u64::MAX);
            j.int("b", i64::MIN);
            j.array("c");
            j.item_uint(0);
            j.item_object();
            j.end_object();
            j.item_object();
            j.bool("x", true);
            j.end_object();
            j.end_array();
            j.object("d");
            j.end_object();
            j.float("e", 4.137370175000773);
            j.float("f", 5.0);
            j.float("g", f64::NAN);
        });
        assert_eq!(
            got,
            concat!(
                r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":[0,{},{"x":true}],"d":{},"#,
                r#""e":4.137370175000773,"f":5.0,"g":null}"#
            )
        );
    }

    #[test]
    fn addresses() {
        assert_eq!(one(|j| j.ip("k", "192.168.0.1".parse().unwrap())), r#"{"k":"192.168.0.1"}"#);
        assert_eq!(
            one(|j| j.ip("k", "2001:db8::1".parse().unwrap())),
            r#"{"k":"2001:0db8:0000:0000:0000:0000:0000:0001"}"#
        );
        assert_eq!(one(|j| j.mac("k", [0, 1, 0xab, 3, 4, 255])), r#"{"k":"00:01:ab:03:04:ff"}"#);
        assert_eq!(one(|j| j.hex("k", &[0, 0x1f, 0xff])), r#"{"k":"001fff"}"#);
    }

    #[test]
    fn base64_of_every_length() {
        // RFC 4648, section 10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(one(|j| j.base64("k", plain.as_bytes())), format!("{{\"k\":\"{coded}\"}}"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_make_valid_json(a: Vec<u8>, b: String, c: Vec<u8>) {
            let text = one(|j| {
                j.bytes("a", &a);
                j.name(&b);
                j.item_str(&b);
                j.printable("p", &c);
                j.array("l");
                j.item_bytes(&c);
                j.item_bytes(&a);
                j.end_array();
            });
            let v: serde_json::Value = serde_json::from_str(&text).unwrap();
            if let Ok(s) = std::str::from_utf8(&a) {
                prop_assert_eq!(v["l"][1].as_str().unwrap(), s);
            }
            if !["a", "p", "l"].contains(&b.as_str()) {
                prop_assert_eq!(v[&b].as_str().unwrap(), b.as_str());
            }
        }
    }
}
