//! Splits a request into arguments: names and values from its path, query, cookies and body.
//!
//! A value is decoded the way its server decodes it: percent signs and plus in queries and forms (WHATWG URL, section
//! 5.1), escapes in JSON strings (RFC 8259, section 7), entities in XML (XML 1.0, section 4.6). Malformed input is
//! parsed as far as possible, since servers differ in the errors that they tolerate.

use crate::decode::{base64_plausible, entity, percent_decode};
use crate::json;

/// Limits on the stored arguments of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgLimits {
    /// Most names and values.
    pub count: usize,
    /// Most bytes of all names and values.
    pub bytes: usize,
}

impl Default for ArgLimits {
    /// 512 arguments, and 128 KiB.
    fn default() -> Self {
        ArgLimits { count: 512, bytes: 128 << 10 }
    }
}

/// The names and values of a request.
#[derive(Debug, Clone, Default)]
pub struct Args {
    text: Vec<u8>,
    /// The end of each argument in `text`.
    ends: Vec<u32>,
    limits: ArgLimits,
    /// Whether arguments were dropped because of the limits.
    cut: bool,
    /// Current nesting of JSON documents within strings.
    depth: u8,
}

impl Args {
    /// No arguments, with these limits.
    pub fn new(limits: ArgLimits) -> Args {
        Args { limits, ..Args::default() }
    }

    /// The argument with this index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |&e| e as usize);
        self.text.get(start..end)
    }

    /// The number of arguments.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no arguments.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether arguments were dropped because of the limits.
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Memory in bytes.
    pub const fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * 4
    }

    /// Adds the text that `write` appends, unless it is empty or exceeds the limits.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        if self.ends.len() >= self.limits.count || start >= self.limits.bytes {
            self.cut = true;
            return;
        }
        write(&mut self.text);
        if self.text.len() > self.limits.bytes {
            self.text.truncate(self.limits.bytes);
            self.cut = true;
        }
        if self.text.len() > start {
            self.ends.push(self.text.len() as u32);
        }
    }

    /// Adds the path of a request target.
    pub fn path(&mut self, path: &[u8]) {
        self.add(|out| percent_decode(path, false, out));
    }

    /// Adds `name=value&name=value`, as in a query or a form.
    pub fn form(&mut self, data: &[u8]) {
        for pair in split(data, b'&').filter(|p| !p.is_empty()) {
            let at = memchr::memchr(b'=', pair);
            let (name, value) = at.map_or((pair, &[][..]), |i| (&pair[..i], &pair[i + 1..]));
            // Text that is no valid name may be the start of a value that contains an equals sign.
            if at.is_some() && name.iter().any(|&b| !is_name(b)) {
                self.add(|out| percent_decode(pair, true, out));
            } else {
                let before = self.ends.len();
                self.add(|out| percent_decode(name, true, out));
                self.brackets(before);
                // An encoded equals sign separates no name, but some servers accept it.
                if self.ends.len() > before
                    && let Some(decoded) = self.get(before)
                    && let Some(at) = memchr::memchr(b'=', decoded)
                {
                    let value = decoded.get(at + 1..).unwrap_or(&[]).to_vec();
                    self.add(|out| out.extend_from_slice(&value));
                }
            }
            self.value(|out| percent_decode(value, true, out));
        }
    }

    /// Adds a value; if it is a JSON document, adds its strings.
    fn value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.ends.len();
        self.add(write);
        let Some(value) = self.ends.len().checked_sub(1).filter(|&i| i >= before).and_then(|i| self.get(i)) else {
            return;
        };
        if let Some(header) = token_header(value) {
            return self.json(&header);
        }
        if let Some(document) = document(value) {
            let len = value.len();
            self.text.truncate(self.text.len() - len);
            self.ends.pop();
            self.json(&document);
        }
    }

    /// Adds the text in brackets in the name at `index`: frameworks evaluate it, and it may be encoded.
    fn brackets(&mut self, index: usize) {
        let Some(name) = self.get(index).filter(|n| n.contains(&b'[')) else { return };
        let name = name.to_vec();
        for part in name.split(|&b| b == b'[').skip(1) {
            let part = part.get(..memchr::memchr(b']', part).unwrap_or(part.len())).unwrap_or(part);
            if part.len() >= BRACKETS_MIN {
                self.add(|out| out.extend_from_slice(part));
            }
        }
    }

    /// Adds the value of a `Cookie` field (RFC 6265, section 4.2).
    pub fn cookies(&mut self, field: &[u8]) {
        for pair in field.split(|&b| b == b';') {
            let pair = pair.trim_ascii();
            let (name, value) = memchr::memchr(b'=', pair).map_or((pair, &[][..]), |i| (&pair[..i], &pair[i + 1..]));
            self.add(|out| out.extend_from_slice(name));
            self.value(|out| percent_decode(value, true, out));
        }
    }

    /// Adds the strings of the header in a bearer token (RFC 7515, section 4): servers look up keys by them.
    pub fn authorization(&mut self, field: &[u8]) {
        let token = field.trim_ascii().rsplit(|&b| b == b' ').next().unwrap_or(&[]);
        if let Some(header) = token_header(token) {
            self.json(&header);
        }
    }

    /// Adds a body, parsed according to its type or, without one, to its content.
    pub fn body(&mut self, content_type: &[u8], body: &[u8]) {
        let lower = content_type.to_ascii_lowercase();
        let is = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
        if let Some(boundary) = boundary(content_type, &lower) {
            return self.multipart(boundary, body);
        }
        // A body that begins like an archive is skipped only where it is not text: two magic bytes in front of a form
        // hide nothing.
        if body.starts_with(b"\x1f\x8b") || body.starts_with(b"PK\x03\x04") {
            for pair in split(body, b'&').filter(|p| !is_packed(p)) {
                self.form(pair);
            }
            return;
        }
        let start = body.trim_ascii_start();
        match start.first() {
            None => {}
            Some(b'{' | b'[' | b'"') if json::are_documents(start) => self.json(body),
            Some(b'<') if !is("urlencoded") => self.xml(body),
            _ if is("json") => {
                self.json(body);
                self.add(|out| out.extend_from_slice(body));
            }
            _ if is("urlencoded") || content_type.is_empty() => self.form(body),
            _ if is("image/") || is("video/") || is("audio/") || is("octet-stream") || is("zip") => {}
            // Binary messages contain strings, and no server parses them as a form.
            _ if ["protobuf", "grpc", "msgpack", "cbor", "thrift"].iter().any(|t| is(t)) => {
                for chunk in body.utf8_chunks() {
                    let strings = chunk.valid().split(|c: char| c.is_control());
                    for text in strings.filter(|t| t.len() >= STRING_MIN) {
                        self.value(|out| out.extend_from_slice(text.as_bytes()));
                    }
                }
            }
            // Without what is between its strings, a message of another type is one value.
            _ if is_binary(body) => self.add(|out| {
                for chunk in body.utf8_chunks() {
                    let strings = chunk.valid().split(|c: char| c.is_control());
                    for text in strings.filter(|t| t.len() >= STRING_MIN) {
                        out.extend_from_slice(text.as_bytes());
                        out.push(b'\n');
                    }
                }
            }),
            _ => {
                self.add(|out| out.extend_from_slice(body));
                // A form has one line. In a text of many lines, such as a log, `&` and `=` separate nothing.
                if body.contains(&b'=') && body.iter().filter(|&&b| b == b'\n').count() < TEXT_LINES {
                    self.form(body);
                }
            }
        }
    }

    /// Adds JSON strings, both names and values.
    pub fn json(&mut self, data: &[u8]) {
        let mut at = 0;
        while let Some(quote) = data.get(at..).and_then(|d| memchr::memchr(b'"', d)) {
            at += quote + 1;
            if self.cut {
                return;
            }
            let mut end = at;
            // A string may itself contain a JSON document.
            if self.depth < 3 {
                self.depth += 1;
                self.value(|out| end = json_string(data, at, out));
                self.depth -= 1;
            } else {
                self.add(|out| end = json_string(data, at, out));
            }
            at = end;
        }
    }

    /// Adds the text, attribute values and comments of XML.
    pub fn xml(&mut self, data: &[u8]) {
        let mut at = 0;
        while let Some(&b) = data.get(at) {
            if self.cut {
                return;
            }
            let rest = data.get(at..).unwrap_or(&[]);
            if b != b'<' {
                let end = memchr::memchr(b'<', rest).unwrap_or(rest.len());
                let text = rest.get(..end).unwrap_or(rest).trim_ascii();
                self.add(|out| entities(text, out));
                at += end;
            } else if let Some(text) = rest.strip_prefix(b"<![CDATA[") {
                let end = memchr::memmem::find(text, b"]]>").unwrap_or(text.len());
                self.add(|out| out.extend_from_slice(text.get(..end).unwrap_or(text)));
                at += end + 12;
            } else {
                at += self.xml_tag(rest);
            }
        }
    }

    /// Adds the attribute values of a tag that begins here. Returns the tag's length.
    fn xml_tag(&mut self, data: &[u8]) -> usize {
        let mut at = 1;
        while let Some(&b) = data.get(at) {
            at += 1;
            match b {
                b'>' => break,
                b'"' | b'\'' => {
                    let rest = data.get(at..).unwrap_or(&[]);
                    let end = memchr::memchr(b, rest).unwrap_or(rest.len());
                    self.add(|out| entities(rest.get(..end).unwrap_or(rest), out));
                    at += end + 1;
                }
                _ => {}
            }
        }
        at
    }

    /// Adds the parts of a form (RFC 7578): names, file names, and values of parts that are not files.
    pub fn multipart(&mut self, boundary: &[u8], body: &[u8]) {
        let mut delimiter = b"--".to_vec();
        delimiter.extend_from_slice(boundary);
        let find = memchr::memmem::Finder::new(&delimiter);
        let mut starts = find.find_iter(body).peekable();
        while let Some(start) = starts.next() {
            let end = starts.peek().copied().unwrap_or(body.len());
            let part = body.get(start + delimiter.len()..end).unwrap_or(&[]);
            let header_end = memchr::memmem::find(part, b"\r\n\r\n").map(|i| (i, i + 4));
            let Some((header, data)) = header_end.or_else(|| memchr::memmem::find(part, b"\n\n").map(|i| (i, i + 2)))
            else {
                continue;
            };
            let (header, data) = (part.get(..header).unwrap_or(&[]), part.get(data..).unwrap_or(&[]));
            for name in [&b"name="[..], b"filename=", b"filename*="] {
                if let Some(value) = parameter(header, name) {
                    self.add(|out| percent_decode(value, false, out));
                }
            }
            let lower = header.to_ascii_lowercase();
            let has = |word: &[u8]| memchr::memmem::find(&lower, word).is_some();
            let data = data.strip_suffix(b"\r\n").unwrap_or(data);
            if has(b"application/json") {
                self.json(data);
            } else if has(b"/xml") {
                self.xml(data);
            } else if !has(b"filename=") && !has(b"filename*=") {
                self.value(|out| out.extend_from_slice(data));
            }
        }
    }
}

/// Whether more than an eighth of the data is not ASCII text. In compressed data, two thirds are not.
fn is_packed(data: &[u8]) -> bool {
    let other = data.iter().filter(|&&b| !matches!(b, b'\t'..=b'\r' | 0x20..=0x7e)).count();
    other * 8 > data.len()
}

/// Whether a body of a type that says nothing is no text, such as a pushed pack of git. Somewhere in such bytes every short
/// expression matches. Serialized Java objects are an exception, because rules know them by their first bytes, and so is XML
/// in UTF-16.
fn is_binary(data: &[u8]) -> bool {
    let known: [&[u8]; 5] = [b"\xac\xed", b"\xfe\xff", b"\xff\xfe", b"\0<", b"<\0"];
    is_packed(data) && std::str::from_utf8(data).is_err() && !known.iter().any(|start| data.starts_with(start))
}

/// Line ends from which a body of unknown type is a text and no form.
const TEXT_LINES: usize = 3;
/// Minimum length of a string in a binary message.
const STRING_MIN: usize = 4;
/// Minimum length of text in brackets that is added separately from its name.
const BRACKETS_MIN: usize = 12;

/// The header of a token in compact form (RFC 7515, section 7.1): an object, in Base64 before the first of two dots.
fn token_header(value: &[u8]) -> Option<Vec<u8>> {
    if !value.starts_with(b"ey") {
        return None;
    }
    let mut parts = value.splitn(3, |&b| b == b'.');
    let header = parts.next()?;
    parts.nth(1)?;
    let mut out = Vec::new();
    (base64_plausible(header, &mut out) && json::is_document(&out)).then_some(out)
}

/// The JSON document that a value consists of: plain, in quotes, or with single-quoted strings as in Python literals.
fn document(value: &[u8]) -> Option<Vec<u8>> {
    let trimmed = value.trim_ascii();
    let plain = match trimmed {
        [open @ (b'\'' | b'"'), inner @ .., close] if open == close => inner,
        _ => trimmed,
    };
    if !matches!(plain.first(), Some(b'{' | b'[')) {
        return None;
    }
    if json::is_document(plain) {
        return Some(plain.to_vec());
    }
    if !plain.contains(&b'\'') || plain.contains(&b'"') {
        return None;
    }
    let double: Vec<u8> = plain.iter().map(|&b| if b == b'\'' { b'"' } else { b }).collect();
    json::is_document(&double).then_some(double)
}

/// Bytes of usual form field names.
const fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'[' | b']' | b'%' | b':')
}

/// The boundary of a multipart type (RFC 2046, section 5.1.1).
fn boundary<'a>(content_type: &'a [u8], lower: &[u8]) -> Option<&'a [u8]> {
    if !lower.starts_with(b"multipart/") {
        return None;
    }
    let at = memchr::memmem::find(lower, b"boundary=")? + 9;
    let value = content_type.get(at..)?;
    let value = match value.strip_prefix(b"\"") {
        Some(quoted) => quoted.get(..memchr::memchr(b'"', quoted)?)?,
        None => value.get(..value.iter().position(|&b| matches!(b, b';' | b',' | b' ')).unwrap_or(value.len()))?,
    };
    (!value.is_empty()).then_some(value)
}

/// A parameter of a part's header; `name` is in lower case, including the equals sign.
fn parameter<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let lower = header.to_ascii_lowercase();
    let before = |at: usize| at == 0 || lower.get(at - 1).is_some_and(|b| matches!(b, b' ' | b';' | b'\t'));
    let at = memchr::memmem::find_iter(&lower, name).find(|&at| before(at))? + name.len();
    let value = header.get(at..)?;
    match value.strip_prefix(b"\"") {
        Some(quoted) => quoted.get(..memchr::memchr2(b'"', b'\n', quoted).unwrap_or(quoted.len())),
        None => value.get(..memchr::memchr3(b';', b'\r', b'\n', value).unwrap_or(value.len())),
    }
}

/// Appends the JSON string that begins at `at`, after its opening quote. Returns the offset after its closing quote.
fn json_string(data: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    let hex = |at: usize| -> Option<u32> {
        data.get(at..at + 4)?.iter().try_fold(0, |n, &b| Some(n << 4 | char::from(b).to_digit(16)?))
    };
    while let Some(&b) = data.get(at) {
        at += 1;
        match b {
            b'"' => return at,
            b'\\' => {
                let escape = data.get(at).copied().unwrap_or(b'\\');
                at += 1;
                match escape {
                    b'n' => out.push(b'\n'),
                    b't' => out.push(b'\t'),
                    b'r' => out.push(b'\r'),
                    b'b' => out.push(8),
                    b'f' => out.push(12),
                    b'u' => {
                        let Some(mut code) = hex(at) else { continue };
                        at += 4;
                        if (0xd800..0xdc00).contains(&code)
                            && data.get(at..at + 2) == Some(b"\\u")
                            && let Some(low @ 0xdc00..0xe000) = hex(at + 2)
                        {
                            code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                            at += 6;
                        }
                        let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    other => out.push(other),
                }
            }
            _ => out.push(b),
        }
    }
    at
}

/// Appends text with its entities resolved.
fn entities(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        match (b == b'&').then(|| entity(text.get(at..).unwrap_or(&[]), out)).flatten() {
            Some(len) => at += len,
            None => {
                out.push(b);
                at += 1;
            }
        }
    }
}

/// The parts of `data` between the bytes `by`. Long values have few, so each is searched for as a whole.
fn split(data: &[u8], by: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        let at = memchr::memchr(by, data);
        rest = at.and_then(|at| data.get(at + 1..));
        Some(at.and_then(|at| data.get(..at)).unwrap_or(data))
    })
}
