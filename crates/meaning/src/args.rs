//! Splits a request into arguments: names and values from its path, query, cookies and body.
//!
//! A value is decoded the way its server decodes it: percent signs and plus in queries and forms (WHATWG URL, section
//! 5.1), escapes in JSON strings (RFC 8259, section 7), entities in XML (XML 1.0, section 4.6). Malformed input is
//! parsed as far as possible, since servers differ in the errors that they tolerate.

use crate::decode::{self, base64_plausible, entity, percent_decode};
use crate::json;

/// Limits on the arguments that a request has at once. A longer body is read in windows of a quarter of these bytes, so that
/// the arguments of each fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgLimits {
    /// Most names and values.
    pub count: usize,
    /// Most bytes of all names and values.
    pub bytes: usize,
}

impl Default for ArgLimits {
    /// 65,535 arguments, and 128 KiB.
    fn default() -> Self {
        ArgLimits { count: 65_535, bytes: 128 << 10 }
    }
}

/// The names and values of a request.
#[derive(Debug, Clone, Default)]
pub struct Args {
    text: Vec<u8>,
    /// The end of each argument in `text`.
    ends: Vec<u32>,
    limits: ArgLimits,
    /// The arguments, and bytes of text, before the current window.
    window: (usize, usize),
    /// Whether arguments were dropped because of the limits.
    cut: bool,
    /// Whether all of them were inspected.
    inspected: bool,
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

    /// Rules have inspected all arguments: the next window replaces them.
    pub const fn inspected(&mut self) {
        self.inspected = true;
    }

    /// Another window of the body follows, with limits of its own.
    pub(crate) fn next_window(&mut self) {
        if self.inspected {
            self.text.clear();
            self.ends.clear();
        }
        (self.inspected, self.cut) = (false, false);
        self.window = (self.ends.len(), self.text.len());
    }

    /// Adds the text that `write` appends, unless it is empty or exceeds the limits.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        let count = self.window.0.saturating_add(self.limits.count);
        let bytes = self.window.1.saturating_add(self.limits.bytes);
        if self.ends.len() >= count || start >= bytes {
            self.cut = true;
            return;
        }
        write(&mut self.text);
        if self.text.len() > bytes {
            self.text.truncate(bytes);
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

    /// Adds credentials (RFC 9110, section 11.4): user and password of `Basic` (RFC 7617), quoted parameters such as those of
    /// `Digest`, the strings in the header of a signed token (RFC 7515, section 4), by which servers look up keys. Any other
    /// token has no quote.
    pub fn authorization(&mut self, field: &[u8]) {
        let field = field.trim_ascii();
        let at = memchr::memchr2(b' ', b'\t', field).unwrap_or(field.len());
        let (scheme, credentials) = field.split_at(at);
        let credentials = credentials.trim_ascii_start();
        if scheme.eq_ignore_ascii_case(b"basic") {
            let mut pair = Vec::new();
            decode::base64(credentials, &mut pair);
            for part in pair.splitn(2, |&b| b == b':') {
                self.text(part);
            }
            return;
        }
        let token = field.rsplit(|&b| b == b' ').next().unwrap_or(&[]);
        if let Some(header) = token_header(token) {
            self.json(&header);
        } else if credentials.contains(&b'"') {
            credentials.split(|&b| b == b'"').skip(1).step_by(2).for_each(|text| self.text(text));
        } else if credentials.contains(&b'\'') {
            self.text(credentials);
        }
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> ArgLimits {
        self.limits
    }

    /// Adds a text; if it is a JSON document, adds its strings.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.value(|out| out.extend_from_slice(text));
    }

    /// Adds JSON strings, both names and values.
    pub fn json(&mut self, data: &[u8]) {
        self.json_from(data, false);
    }

    /// As [`Args::json`]; `in_string` if the data begins within a string.
    pub(crate) fn json_from(&mut self, data: &[u8], mut in_string: bool) {
        let mut at = 0;
        loop {
            if !std::mem::take(&mut in_string) {
                let Some(quote) = data.get(at..).and_then(|d| memchr::memchr(b'"', d)) else { return };
                at += quote + 1;
            }
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
            } else if let Some((text, len)) =
                between(rest, b"<![CDATA[", b"]]>").or_else(|| between(rest, b"<!--", b"-->"))
            {
                // A quote opens nothing there.
                self.add(|out| out.extend_from_slice(text));
                at += len;
            } else if rest.starts_with(b"<?") {
                // Nor does one in an instruction.
                let end = memchr::memmem::find(rest, b"?>").map_or(rest.len(), |i| i + 2);
                self.xml_tag(rest.get(..end).unwrap_or(rest));
                at += end;
            } else if matches!(rest.get(1), Some(b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!' | b'_' | b':' | 0x80..)) {
                at += self.xml_tag(rest);
            } else {
                // Text in which the sign is not escaped.
                let end = memchr::memchr(b'<', rest.get(1..).unwrap_or(&[])).map_or(rest.len(), |i| i + 1);
                self.add(|out| entities(rest.get(..end).unwrap_or(rest), out));
                at += end;
            }
        }
    }

    /// Adds the attribute values of a tag that begins here; if it does not end, all of it. Returns the tag's length.
    fn xml_tag(&mut self, data: &[u8]) -> usize {
        let mut at = 1;
        while let Some(&b) = data.get(at) {
            at += 1;
            match b {
                b'>' => return at,
                b'"' | b'\'' => {
                    let rest = data.get(at..).unwrap_or(&[]);
                    let end = memchr::memchr(b, rest).unwrap_or(rest.len());
                    self.add(|out| entities(rest.get(..end).unwrap_or(rest), out));
                    at += end + 1;
                }
                _ => {}
            }
        }
        self.add(|out| entities(data, out));
        data.len()
    }
}

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

/// Appends the JSON string that begins at `at`, after its opening quote. Returns the offset after its closing quote.
fn json_string(data: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    let hex = |at: usize| decode::hex(data, at, 4);
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

/// The text between two marks, of which the first is at the beginning, and the length with both; without the second, all.
fn between<'a>(data: &'a [u8], open: &[u8], close: &[u8]) -> Option<(&'a [u8], usize)> {
    let text = data.strip_prefix(open)?;
    Some(match memchr::memmem::find(text, close) {
        Some(end) => (text.get(..end).unwrap_or(text), open.len() + end + close.len()),
        None => (text, data.len()),
    })
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
