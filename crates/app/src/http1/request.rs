//! Request lines, and the meaning of a request's fields.

use super::headers::{is_token, is_token_byte, space, trim};

/// The HTTP version, as far as parsing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Version {
    /// Missing or invalid.
    #[default]
    Unknown,
    /// 0.9: a line, and a body until the end of the stream.
    V09,
    /// 1.0.
    V10,
    /// 1.1 or later.
    V11,
}

/// Reads `HTTP/1.1`, and tolerates misplaced white space.
pub(super) fn version(text: &[u8]) -> Version {
    match text {
        b"HTTP/1.1" => return Version::V11,
        b"HTTP/1.0" => return Version::V10,
        _ => {}
    }
    let text = trim(text);
    let Some((name, rest)) = text.split_at_checked(4) else { return Version::Unknown };
    if !name.eq_ignore_ascii_case(b"HTTP") {
        return Version::Unknown;
    }
    let mut number = [0; 16];
    let mut len = 0;
    for (to, b) in number.iter_mut().zip(rest.iter().filter(|&&b| !space(b))) {
        *to = *b;
        len += 1;
    }
    match number.get(..len).unwrap_or(&[]) {
        b"/0.9" => Version::V09,
        b"/1.0" | b"/1.00" => Version::V10,
        [b'/', b'1'..=b'9', b'.', b'0'..=b'9', ..] => Version::V11,
        _ => Version::Unknown,
    }
}

/// A part of a line: offset and length.
pub(super) type Part = (u32, u32);

/// The bytes of a part.
pub(super) fn part(line: &[u8], (at, len): Part) -> &[u8] {
    line.get(at as usize..(at as usize).saturating_add(len as usize)).unwrap_or(&[])
}

/// A parsed request line (RFC 9112, section 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub method: Part,
    pub uri: Part,
    pub protocol: Part,
    pub version: Version,
    pub leading_space: bool,
    /// Something other than spaces separates the method from the target.
    pub method_delimiter: bool,
    /// Something other than spaces separates the target from the protocol.
    pub uri_delimiter: bool,
    /// The line has a single word.
    pub incomplete: bool,
    /// The method is not a token.
    pub invalid: bool,
}

impl RequestLine {
    /// Whether the line names a protocol that is not a version of HTTP (`RTSP/1.0`).
    pub(super) fn is_other_protocol(&self) -> bool {
        self.protocol.1 > 0 && self.version == Version::Unknown
    }
}

/// Whether a byte ends a method: white space, including bytes that only Python's `str.split` treats as such, because
/// `http.server` uses it. No other server accepts these bytes in a method.
const fn ends_method(b: u8) -> bool {
    space(b) || matches!(b, 0x1c..=0x1f | 0x85 | 0xa0)
}

/// Parses a request line. If a protocol follows, the target extends to the last white space: attacks use targets with spaces,
/// and some servers accept them.
pub(super) fn request_line(line: &[u8]) -> RequestLine {
    usual_line(line).unwrap_or_else(|| any_line(line))
}

/// As [`request_line`], for a line that is as the standard has it: a token, a space, a target, a space, and `HTTP/1.1` or
/// `HTTP/1.0`. `None` for any other.
fn usual_line(line: &[u8]) -> Option<RequestLine> {
    let (before, protocol) = line.split_last_chunk::<9>()?;
    let version = match protocol {
        b" HTTP/1.1" => Version::V11,
        b" HTTP/1.0" => Version::V10,
        _ => return None,
    };
    let method = before.iter().position(|&b| !is_token_byte(b)).filter(|&n| n > 0)?;
    let target = before.get(method..)?.strip_prefix(b" ")?;
    let (first, last) = (*target.first()?, *target.last()?);
    if ends_method(first) || space(last) {
        return None;
    }
    Some(RequestLine {
        method: (0, method as u32),
        uri: (method as u32 + 1, target.len() as u32),
        protocol: (before.len() as u32 + 1, protocol.len() as u32 - 1),
        version,
        ..RequestLine::default()
    })
}

fn any_line(line: &[u8]) -> RequestLine {
    let mut out = RequestLine::default();
    let start = line.iter().take_while(|&&b| space(b) || b == 0).count();
    out.leading_space = start > 0;
    let word = line.get(start..).unwrap_or(&[]).iter().take_while(|&&b| !ends_method(b)).count();
    out.method = (start as u32, word as u32);
    out.invalid = !is_token(part(line, out.method));
    let gap = line.get(start + word..).unwrap_or(&[]).iter().take_while(|&&b| ends_method(b)).count();
    out.method_delimiter = line.get(start + word..start + word + gap).is_some_and(|g| g.iter().any(|b| *b != b' '));
    let from = start + word + gap;
    let mut to = line.len();
    while to > from && line.get(to - 1).is_some_and(|&b| space(b)) {
        to -= 1;
    }
    if from >= to {
        out.incomplete = true;
        out.uri = (to as u32, 0);
        out.version = Version::V09;
        return out;
    }
    let rest = line.get(from..to).unwrap_or(&[]);
    // The protocol is the last word, or starts at the last `HTTP` after white space (`HTTP / 1.1`).
    let last = rest.iter().rposition(|&b| space(b)).map(|i| i + 1);
    let is_http = |w: &[u8]| matches!(w, [s, h @ .., e] if space(*s) && h.eq_ignore_ascii_case(b"HTTP") && (*e == b'/' || space(*e)));
    let protocol = rest.windows(6).rposition(is_http).map(|i| i + 1).or(last);
    match protocol {
        Some(p) => {
            let mut end = p;
            while end > 0 && rest.get(end - 1).is_some_and(|&b| space(b)) {
                end -= 1;
            }
            out.uri_delimiter = rest.get(end..p).is_some_and(|g| g.iter().any(|b| *b != b' '));
            out.uri = (from as u32, end as u32);
            out.protocol = ((from + p) as u32, (rest.len() - p) as u32);
            out.version = version(part(line, out.protocol));
        }
        None => {
            out.uri = (from as u32, rest.len() as u32);
            out.version = Version::V09;
        }
    }
    out
}

/// Known methods: RFC 9110, WebDAV and its extensions.
const METHODS: &[&[u8]] = &[
    b"HEAD",
    b"GET",
    b"PUT",
    b"POST",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"VERSION-CONTROL",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"REPORT",
    b"MKWORKSPACE",
    b"MKACTIVITY",
    b"BASELINE-CONTROL",
    b"MERGE",
    b"INVALID",
];

/// Whether a method is in [`METHODS`].
pub(super) fn known_method(method: &[u8]) -> bool {
    METHODS.contains(&method)
}

/// Whether data begins with a request line of a known method and a version of HTTP; `None` if more data is needed.
pub(super) fn is_request(data: &[u8]) -> Option<bool> {
    let method = data.split(|b| *b == b' ').next().unwrap_or(data);
    if method.len() == data.len() {
        return if METHODS.iter().any(|m| m.starts_with(method)) { None } else { Some(false) };
    }
    if !known_method(method) {
        return Some(false);
    }
    let line = data.get(..memchr::memchr(b'\n', data)?).unwrap_or(data);
    Some(matches!(request_line(line.strip_suffix(b"\r").unwrap_or(line)).version, Version::V10 | Version::V11))
}

/// Whether a line can be a request line: it has a known method, or ends with a protocol, including related ones (`RTSP/1.0`).
pub(super) fn plausible(line: &[u8]) -> bool {
    let l = request_line(line);
    plausible_as(line, &l, known_method(part(line, l.method)))
}

/// As [`plausible`], for a parsed line; `known` says whether its method is known.
pub(super) fn plausible_as(line: &[u8], l: &RequestLine, known: bool) -> bool {
    known || (l.protocol.1 > 0 && l.version > Version::V09) || cousin(line)
}

/// Whether a line is a method, a target, and a protocol of the form `NAME/1.0`.
fn cousin(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().split(|&b| b == b' ');
    let (Some(method), Some(target), Some(protocol), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    let [name @ .., b'/', b'0'..=b'9', b'.', b'0'..=b'9'] = protocol else { return false };
    super::headers::is_token(method)
        && !target.is_empty()
        && !name.is_empty()
        && name.iter().all(u8::is_ascii_uppercase)
}

/// Reads the digits of `Content-Length`, after leading other bytes; `None` if there are none. The flag reports anything besides
/// digits.
pub(super) fn content_length(value: &[u8]) -> (Option<u64>, bool) {
    if (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit) {
        return (Some(value.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0'))), false);
    }
    let value = trim(value);
    if matches!(value, [b'0', b'x' | b'X', d, ..] if d.is_ascii_hexdigit()) {
        // No client reads a number from it, not even 0.
        return (None, true);
    }
    let skip = value.iter().take_while(|b| !b.is_ascii_digit()).count();
    let digits: &[u8] = value.get(skip..).unwrap_or(&[]);
    let n = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let odd = skip > 0 || n != digits.len();
    let mut len = if n == 0 { None } else { Some(0u64) };
    for b in digits.iter().take(n) {
        len = len.and_then(|l| l.checked_mul(10)).and_then(|l| l.checked_add(u64::from(b - b'0')));
    }
    (len, odd)
}

/// Whether `Transfer-Encoding` contains `word` in a form that some client accepts; null bytes are ignored.
pub(super) fn says(value: &[u8], word: &[u8]) -> bool {
    if value.contains(&0) {
        let clean: Vec<u8> = value.iter().copied().filter(|&b| b != 0).collect();
        return says(&clean, word);
    }
    value.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> (String, String, String, Version) {
        let l = request_line(line);
        let s = |p| String::from_utf8_lossy(part(line, p)).into_owned();
        (s(l.method), s(l.uri), s(l.protocol), l.version)
    }

    #[test]
    fn what_can_be_a_request() {
        for (line, is) in [
            (&b"DESCRIBE rtsp://h/ RTSP/1.0"[..], true),
            (b"FOO /x HTTP/1.1", true),
            (b"GET", true),
            (b"\xef\xbb\xbfGET /x HTTP/1.1", true),
            (b"junk", false),
            (b"a b c/d", false),
            (b"a\"b x RTSP/1.0", false),
        ] {
            assert_eq!(plausible(line), is, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn lines_are_taken_apart() {
        let w = |m: &str, u: &str, p: &str, v| (m.to_owned(), u.to_owned(), p.to_owned(), v);
        assert_eq!(words(b"GET / HTTP/1.1"), w("GET", "/", "HTTP/1.1", Version::V11));
        assert_eq!(words(b"  GET\t /a b  HTTP/1.0 "), w("GET", "/a b", "HTTP/1.0", Version::V10));
        assert_eq!(words(b"GET /x"), w("GET", "/x", "", Version::V09));
        assert_eq!(words(b"GET /x junk"), w("GET", "/x", "junk", Version::Unknown));
        assert_eq!(words(b"GET"), w("GET", "", "", Version::V09));
        assert_eq!(words(b"GET / HTTP / 1.1"), w("GET", "/", "HTTP / 1.1", Version::V11));
        assert_eq!(words(b"GET / HTTP/X"), w("GET", "/", "HTTP/X", Version::Unknown));
        assert_eq!(words(b"GET\x1c/ HTTP/1.1"), w("GET", "/", "HTTP/1.1", Version::V11));
        assert_eq!(words(b"GET\xa0/x\xa0y HTTP/1.1").0, "GET");
        assert_eq!(words(b""), w("", "", "", Version::V09));
    }

    #[test]
    fn only_other_bytes_than_spaces_are_odd_delimiters() {
        for (line, method, uri) in [
            (&b"GET /a HTTP/1.1"[..], false, false),
            (b"GET  /a   HTTP/1.1", false, false),
            (b"GET\t/a HTTP/1.1", true, false),
            (b"GET /a \tHTTP/1.1", false, true),
        ] {
            let l = request_line(line);
            assert_eq!((l.method_delimiter, l.uri_delimiter), (method, uri), "{}", line.escape_ascii());
        }
    }

    proptest::proptest! {
        /// The short way for usual lines gives what the long one does.
        #[test]
        fn usual_lines_are_taken_apart_as_any(line in "[ ]{0,1}(GET|G\\x00|G\\{|\\(|)[ \t\x0b]{0,2}(/[a ]{0,3}|\\*|\\x1c)[ \r]{0,2}(HTTP ?/1.[012]|HTTP/2)[ ]{0,1}") {
            if let Some(usual) = usual_line(line.as_bytes()) {
                proptest::prop_assert_eq!(usual, any_line(line.as_bytes()));
            }
        }
    }

    #[test]
    fn usual_lines_are_recognised() {
        for line in [&b"GET / HTTP/1.1"[..], b"PROPFIND /a b HTTP/1.0"] {
            assert_eq!(usual_line(line), Some(any_line(line)));
        }
        assert_eq!(usual_line(b"GET  / HTTP/1.1"), None);
    }

    #[test]
    fn lengths() {
        assert_eq!(content_length(b" 68 "), (Some(68), false));
        assert_eq!(content_length(b"(68) 34"), (Some(68), true));
        assert_eq!(content_length(b"68A"), (Some(68), true));
        assert_eq!(content_length(b"-"), (None, true));
        assert_eq!(content_length(b"99999999999999999999"), (None, false));
        // Node.js accepts all 64 bits.
        assert_eq!(content_length(b"9223372036854775808"), (Some(1 << 63), false));
        // Python's standard library rejects this length.
        assert_eq!(content_length(b"0x44"), (None, true));
    }

    #[test]
    fn codings_are_found_in_junk() {
        assert!(says(b"x chUnked;", b"chunked") && says(b"chun\0ked", b"chunked"));
        assert!(!says(b"chunke", b"chunked"));
    }
}
