//! JSON, appended to a buffer that is used again for every event.
//!
//! The writer keeps no state beside the buffer: whether a comma is due is seen from the last byte. Strings follow what
//! Suricata writes in EVE: `"` and `\` and control characters are escaped, with `\b \t \n \f \r` in their short form and
//! the others as `\u00xx`; everything else stays as it is, DEL and U+2028 too. Bytes that are not UTF-8 as a whole are
//! written with each byte above 0x7f as the four characters `\xff`, whose backslash JSON doubles.

use std::io::Write as _;
use std::net::IpAddr;

use margay_packet::Time;

pub mod time;

use time::Clock;

/// Appends JSON to a buffer.
#[derive(Debug, Default)]
pub struct Json {
    buf: Vec<u8>,
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What a byte of a string becomes: 0 itself, `u` a `\u00xx`, else the letter of its short form.
static ESCAPE: [u8; 256] = {
    let mut t = [0u8; 256];
    let mut i = 0;
    while i < 0x20 {
        t[i] = b'u';
        i += 1;
    }
    t[0x08] = b'b';
    t[0x09] = b't';
    t[0x0a] = b'n';
    t[0x0c] = b'f';
    t[0x0d] = b'r';
    t[b'"' as usize] = b'"';
    t[b'\\' as usize] = b'\\';
    t
};

impl Json {
    /// An empty buffer.
    pub fn new() -> Self {
        Json { buf: Vec::with_capacity(4096) }
    }

    /// Forgets what was written, keeping the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
    }

    /// What was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Appends bytes as they are: JSON made elsewhere, a line's prefix, a line feed. The caller sees to the comma.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// A comma where one is due before the next member or element.
    pub fn comma(&mut self) {
        if !matches!(self.buf.last(), None | Some(b'{' | b'[' | b':' | b'\n')) {
            self.buf.push(b',');
        }
    }

    fn key(&mut self, key: &str) {
        self.comma();
        self.quoted(key.as_bytes());
        self.buf.push(b':');
    }

    /// Opens an object: the outermost one, or an element of an array. Close it with [`Json::end_object`].
    pub fn item_object(&mut self) {
        self.comma();
        self.buf.push(b'{');
    }

    /// Opens the object `key`.
    pub fn object(&mut self, key: &str) {
        self.key(key);
        self.buf.push(b'{');
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.buf.push(b'}');
    }

    /// Opens the array `key`.
    pub fn array(&mut self, key: &str) {
        self.key(key);
        self.buf.push(b'[');
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.buf.push(b']');
    }

    /// A member whose value is JSON already.
    pub fn json(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.buf.extend_from_slice(json);
    }

    /// A string member.
    pub fn str(&mut self, key: &str, value: &str) {
        self.key(key);
        self.quoted(value.as_bytes());
    }

    /// A string member from bytes of the network: see the module's text for what is not UTF-8.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.lossy(value);
    }

    /// A string member where every byte that is neither printable ASCII nor CR or LF is a full stop.
    pub fn printable(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.printable_rest(value);
        self.buf.push(b'"');
    }

    fn printable_rest(&mut self, value: &[u8]) {
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
    pub fn base64(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.base64_rest(value);
        self.buf.push(b'"');
    }

    /// Appends base64 without key and quotes: for what is written in parts, each but the last a multiple of three bytes.
    pub fn base64_rest(&mut self, value: &[u8]) {
        self.buf.reserve(value.len().div_ceil(3) * 4);
        let digit = |n: u32| BASE64[(n & 63) as usize];
        let mut chunks = value.chunks_exact(3);
        for c in &mut chunks {
            let n = u32::from(c[0]) << 16 | u32::from(c[1]) << 8 | u32::from(c[2]);
            self.buf.extend_from_slice(&[digit(n >> 18), digit(n >> 12), digit(n >> 6), digit(n)]);
        }
        match *chunks.remainder() {
            [a] => {
                let n = u32::from(a) << 16;
                self.buf.extend_from_slice(&[digit(n >> 18), digit(n >> 12), b'=', b'=']);
            }
            [a, b] => {
                let n = u32::from(a) << 16 | u32::from(b) << 8;
                self.buf.extend_from_slice(&[digit(n >> 18), digit(n >> 12), digit(n >> 6), b'=']);
            }
            _ => {}
        }
    }

    /// A string member in lower-case hexadecimal.
    pub fn hex(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.buf.push(b'"');
        self.buf.reserve(value.len() * 2);
        for &b in value {
            self.hex_byte(b);
        }
        self.buf.push(b'"');
    }

    fn hex_byte(&mut self, b: u8) {
        self.buf.extend_from_slice(&[HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
    }

    /// An unsigned number.
    pub fn uint(&mut self, key: &str, value: u64) {
        self.key(key);
        self.digits(value);
    }

    /// A signed number.
    pub fn int(&mut self, key: &str, value: i64) {
        self.key(key);
        if value < 0 {
            self.buf.push(b'-');
        }
        self.digits(value.unsigned_abs());
    }

    /// A floating-point number, in the shortest form that reads back the same; `null` for infinities and NaN.
    pub fn float(&mut self, key: &str, value: f64) {
        self.key(key);
        if value.is_finite() {
            // Writing to a Vec does not fail.
            let _ = write!(self.buf, "{value:?}");
        } else {
            self.buf.extend_from_slice(b"null");
        }
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key);
        self.buf.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// An address: IPv6 with all eight groups of four digits.
    pub fn ip(&mut self, key: &str, value: IpAddr) {
        self.key(key);
        self.buf.push(b'"');
        ip(&mut self.buf, value);
        self.buf.push(b'"');
    }

    /// An Ethernet address, lower case with colons.
    pub fn mac(&mut self, key: &str, value: [u8; 6]) {
        self.key(key);
        self.mac_rest(value);
    }

    fn mac_rest(&mut self, value: [u8; 6]) {
        self.buf.push(b'"');
        for (i, b) in value.into_iter().enumerate() {
            if i > 0 {
                self.buf.push(b':');
            }
            self.hex_byte(b);
        }
        self.buf.push(b'"');
    }

    /// A time with its offset: `2016-07-13T22:42:07.199672+0000`.
    pub fn time(&mut self, key: &str, value: Time, clock: &mut Clock) {
        self.key(key);
        self.buf.push(b'"');
        clock.iso(&mut self.buf, value);
        self.buf.push(b'"');
    }

    /// A string element.
    pub fn item_str(&mut self, value: &str) {
        self.comma();
        self.quoted(value.as_bytes());
    }

    /// A string element from bytes of the network.
    pub fn item_bytes(&mut self, value: &[u8]) {
        self.comma();
        self.lossy(value);
    }

    /// A number as element.
    pub fn item_uint(&mut self, value: u64) {
        self.comma();
        self.digits(value);
    }

    /// An Ethernet address as element.
    pub fn item_mac(&mut self, value: [u8; 6]) {
        self.comma();
        self.mac_rest(value);
    }

    fn digits(&mut self, value: u64) {
        digits(&mut self.buf, value);
    }

    fn quoted(&mut self, s: &[u8]) {
        self.buf.push(b'"');
        self.escaped(s);
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
        if std::str::from_utf8(s).is_ok() {
            return self.quoted(s);
        }
        self.buf.push(b'"');
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
        self.buf.push(b'"');
    }
}

/// Appends a number in decimal.
pub fn digits(out: &mut Vec<u8>, mut value: u64) {
    let mut text = [0u8; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends an address; IPv6 with all eight groups of four digits.
pub fn ip(out: &mut Vec<u8>, value: IpAddr) {
    match value {
        IpAddr::V4(a) => {
            for (i, o) in a.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                digits(out, u64::from(o));
            }
        }
        IpAddr::V6(a) => {
            for (i, o) in a.octets().into_iter().enumerate() {
                if i > 0 && i % 2 == 0 {
                    out.push(b':');
                }
                out.extend_from_slice(&[HEX[usize::from(o >> 4)], HEX[usize::from(o & 15)]]);
            }
        }
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
        // Bytes and results as seen in an http event of Suricata.
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
                j.str(&b, &b);
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
