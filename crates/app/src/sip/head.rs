//! The start line and the header fields of a message (RFC 3261 section 7).

use std::ops::Range;

use crate::param::without_parameters;

/// Header fields that are kept; each may occur several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    From,
    To,
    Via,
    UserAgent,
    ContentType,
    ContentLength,
}

/// Names of [`Field`]s, by number, and their compact forms (section 7.3.3).
const FIELDS: [(&[u8], &[u8], Field); 6] = [
    (b"from", b"f", Field::From),
    (b"to", b"t", Field::To),
    (b"via", b"v", Field::Via),
    (b"user-agent", b"", Field::UserAgent),
    (b"content-type", b"c", Field::ContentType),
    (b"content-length", b"l", Field::ContentLength),
];

type Span = Range<u32>;

fn span(from: usize, to: usize) -> Span {
    from as u32..to as u32
}

fn of<'a>(bytes: &'a [u8], s: &Span) -> &'a [u8] {
    bytes.get(s.start as usize..s.end as usize).unwrap_or(&[])
}

/// A start line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartLine<'a> {
    Request { method: &'a [u8], uri: &'a [u8], version: &'a [u8] },
    Response { version: &'a [u8], code: &'a [u8], reason: &'a [u8] },
}

/// The stored part of a message's start line and header.
#[derive(Debug)]
pub(super) struct Head {
    /// The raw data, including the blank line.
    bytes: Box<[u8]>,
    request: bool,
    /// The three parts of the start line.
    parts: [Span; 3],
    /// Length of the start line without its end, and with it.
    line: (u32, u32),
    fields: [Vec<Span>; 6],
    /// Whether all names and values have only characters of their classes.
    strict_fields: bool,
}

/// Length of the header with its blank line; the first `scanned` bytes have none.
pub(super) fn end(data: &[u8], scanned: usize) -> Option<usize> {
    let mut from = scanned.saturating_sub(3);
    while let Some(at) = data.get(from..)?.iter().position(|b| *b == b'\n') {
        from += at + 1;
        match data.get(from..)? {
            [b'\n', ..] => return Some(from + 1),
            [b'\r', b'\n', ..] => return Some(from + 2),
            _ => {}
        }
    }
    None
}

// The characters that Suricata's parser takes, by `tools/sweep --accepted sip`.

fn all(text: &[u8], is: fn(u8) -> bool) -> bool {
    text.iter().copied().all(is)
}

fn is_in_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&b)
}

fn is_in_value(b: u8) -> bool {
    matches!(b, b'\t' | b'\r' | b' '..=b'~')
}

fn is_in_uri(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+,-./:;=?@_`~".contains(&b)
}

fn is_in_reason(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b" !$%&'()*+,-./:;=?@_`~".contains(&b)
}

fn is_version(version: &[u8]) -> bool {
    version.strip_prefix(b"SIP/").is_some_and(|v| !v.is_empty() && v.iter().all(|b| b.is_ascii_digit() || *b == b'.'))
}

impl Head {
    /// Reads the header up to its blank line: a request or a response.
    pub(super) fn read(request: bool, data: &[u8]) -> Option<Head> {
        u32::try_from(data.len()).ok()?;
        let next = data.iter().position(|b| *b == b'\n')? + 1;
        let len = trimmed_end(data, next);
        let line = data.get(..len)?;
        let first = line.iter().position(|b| *b == b' ')?;
        let parts = if request {
            let second = first + 1 + line.get(first + 1..)?.iter().position(|b| *b == b' ')?;
            let (method, uri) = (line.get(..first)?, line.get(first + 1..second)?);
            if method.is_empty() || !all(method, is_in_name) || uri.is_empty() || !is_version(&line[second + 1..]) {
                return None;
            }
            [span(0, first), span(first + 1, second), span(second + 1, len)]
        } else {
            let code = line.get(first + 1..first + 4)?;
            if !is_version(line.get(..first)?) || !code.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let reason = match line.get(first + 4) {
                None => len,
                Some(b' ') => first + 5,
                Some(_) => return None,
            };
            [span(0, first), span(first + 1, first + 4), span(reason, len)]
        };
        let line = (len as u32, next as u32);
        let mut head =
            Head { bytes: data.into(), request, parts, line, fields: Default::default(), strict_fields: true };
        head.read_fields(next);
        Some(head)
    }

    fn read_fields(&mut self, mut at: usize) {
        let mut last: Option<Field> = None;
        while let Some(len) = self.bytes.get(at..).and_then(|d| d.iter().position(|b| *b == b'\n')) {
            let next = at + len + 1;
            let to = trimmed_end(&self.bytes, next);
            let line = self.bytes.get(at..to).unwrap_or(&[]);
            if let [b' ' | b'\t', value @ ..] = line {
                self.strict_fields &= all(value, is_in_value);
                // A folded line continues the previous one (section 7.3.1).
                if let Some(value) = last.and_then(|f| self.fields[f as usize].last_mut()) {
                    value.end = to as u32;
                }
            } else {
                last = None;
                let colon = line.iter().position(|b| *b == b':');
                if let Some((name, [_, value @ ..])) = colon.and_then(|colon| line.split_at_checked(colon)) {
                    let name = name.trim_ascii_end();
                    self.strict_fields &= all(name, is_in_name) && all(value, is_in_value);
                    let is = |f: &&(&[u8], &[u8], Field)| {
                        name.eq_ignore_ascii_case(f.0) || !f.1.is_empty() && name.eq_ignore_ascii_case(f.1)
                    };
                    if let Some((.., field)) = FIELDS.iter().find(is) {
                        let start = to - value.trim_ascii_start().len();
                        let end = start + value.trim_ascii().len();
                        self.fields[*field as usize].push(span(start, end));
                        last = Some(*field);
                    }
                } else {
                    self.strict_fields &= line.is_empty();
                }
            }
            at = next;
        }
    }

    /// Whether all characters are those that Suricata takes: no other than ASCII, and of the classes of section 25.1.
    pub(super) fn is_strict(&self) -> bool {
        self.strict_fields
            && match self.start() {
                StartLine::Request { method, uri, .. } => {
                    all(method, |b| b.is_ascii_alphabetic()) && all(uri, is_in_uri)
                }
                StartLine::Response { reason, .. } => all(reason, is_in_reason),
            }
    }

    /// The parts of the start line.
    pub(super) fn start(&self) -> StartLine<'_> {
        let [a, b, c] = self.parts.each_ref().map(|s| of(&self.bytes, s));
        if self.request {
            StartLine::Request { method: a, uri: b, version: c }
        } else {
            StartLine::Response { version: a, code: b, reason: c }
        }
    }

    /// Whether it is a request.
    pub(super) const fn is_request(&self) -> bool {
        self.request
    }

    /// The start line without its end.
    pub(super) fn line(&self) -> &[u8] {
        of(&self.bytes, &(0..self.line.0))
    }

    /// Length of the start line with its end.
    pub(super) const fn line_len(&self) -> usize {
        self.line.1 as usize
    }

    /// Value number `index` of a header field.
    pub(super) fn field(&self, field: Field, index: usize) -> Option<&[u8]> {
        self.fields[field as usize].get(index).map(|s| of(&self.bytes, s))
    }

    /// Length of the body from the header; 0 if it has none.
    pub(super) fn content_length(&self) -> u64 {
        let text = self.field(Field::ContentLength, 0).unwrap_or(b"0");
        std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    }

    /// Whether the body is a session description.
    pub(super) fn has_sdp(&self) -> bool {
        self.field(Field::ContentType, 0)
            .is_some_and(|t| without_parameters(t).trim_ascii().eq_ignore_ascii_case(b"application/sdp"))
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> u64 {
        let spans: usize = self.fields.iter().map(|f| f.capacity() * size_of::<Span>()).sum();
        (self.bytes.len() + spans) as u64
    }
}

/// The end of a line whose line feed is before `next`.
fn trimmed_end(data: &[u8], next: usize) -> usize {
    let to = next - 1;
    if to > 0 && data.get(to - 1) == Some(&b'\r') { to - 1 } else { to }
}
