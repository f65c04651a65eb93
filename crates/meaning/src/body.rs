//! Reads a request's body in windows, so that its length does not matter: padding hides nothing, and memory is bounded.
//!
//! A body that fits into one window is read as a whole. A longer one is divided between two of its arguments, or, in a long
//! value, such that the pieces overlap.

use crate::args::{ArgLimits, Args};
use crate::multipart::{self, Inside};
use crate::{decode, json};

/// The most bytes of a body that are read at once.
const WINDOW: usize = 32 << 10;
/// Minimum length of a string in a binary message.
const STRING_MIN: usize = 4;
/// Minimum length of text in packed data. Compressed data has a shorter one in every kilobyte.
const PACKED_MIN: usize = 16;
/// Line ends from which a body of unknown type is a text and no form.
const TEXT_LINES: usize = 3;

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A picture, an archive.
    Opaque,
    Multipart,
    Form,
    /// JSON documents. A cut-off one of another type may be something else, so its text counts too.
    Json {
        form: bool,
        text: bool,
    },
    Xml,
    /// A binary message: each string is a value.
    Strings,
    /// The same in Base64 (gRPC-Web).
    Base64Strings,
    /// Bytes of no known kind: all strings are one value.
    Binary,
    /// Data that begins like an archive.
    Packed,
    /// Git's protocol: lines of text in front of a pack of compressed objects.
    Git,
    /// One value, and perhaps a form.
    Text {
        form: bool,
    },
}

/// The body of a request while it arrives.
#[derive(Debug, Clone, Default)]
pub struct Body {
    content_type: Vec<u8>,
    /// Decided with the first window.
    kind: Option<Kind>,
    delimiters: Vec<Vec<u8>>,
    /// Bytes that no window has covered.
    held: Vec<u8>,
    /// Where the previous window ended: within a part, or a string.
    inside: Inside,
    in_string: bool,
    window: usize,
}

impl Body {
    /// A body with this `Content-Type`, empty if there is none. Several fields are joined by commas.
    pub fn new(content_type: &[u8], limits: ArgLimits) -> Body {
        let window = (limits.bytes / 4).clamp(1 << 10, WINDOW);
        Body { content_type: content_type.to_vec(), window, ..Body::default() }
    }

    /// Adds bytes. Returns whether `args` has the arguments of another window; it forgets those that were inspected.
    pub fn push(&mut self, mut data: &[u8], args: &mut Args) -> bool {
        let mut new = false;
        while self.held.len() + data.len() > self.window {
            let (now, later) = data.split_at((self.window - self.held.len()).min(data.len()));
            self.held.extend_from_slice(now);
            data = later;
            args.next_window();
            let mut held = std::mem::take(&mut self.held);
            let used = self.read(&held, false, args).clamp(self.window / 2, held.len());
            held.drain(..used);
            self.held = held;
            new = true;
        }
        self.held.extend_from_slice(data);
        new
    }

    /// Ends the body: `args` gets the rest.
    pub fn finish(&mut self, args: &mut Args) {
        if self.kind.is_some() {
            args.next_window();
        }
        let held = std::mem::take(&mut self.held);
        self.read(&held, true, args);
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.content_type.capacity() + self.held.capacity() + self.delimiters.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Reads a window; `last` if nothing follows. Returns how much of it is done.
    fn read(&mut self, data: &[u8], last: bool, args: &mut Args) -> usize {
        let kind = match self.kind {
            Some(kind) => kind,
            None => {
                let kind = self.decide(data, last);
                self.kind = Some(kind);
                kind
            }
        };
        let overlap = data.len() - self.window.min(data.len()) / 32;
        // Returns the bytes to read now and the start of the next window: a border in the second half, or, if a value has to be
        // cut, a place before the end, so that the windows overlap.
        let border = |at: Option<usize>| match at.filter(|&at| at > data.len() / 2) {
            _ if last => (data, data.len()),
            Some(at) => (data.get(..at).unwrap_or(data), at),
            None => (data, overlap),
        };
        let behind_pair = || memchr::memrchr(b'&', data).map(|at| at + 1);
        match kind {
            Kind::Opaque => data.len(),
            Kind::Multipart => multipart::read(&self.delimiters, data, last, overlap, &mut self.inside, args),
            Kind::Form => {
                let (now, next) = border(behind_pair());
                args.form(now);
                next
            }
            Kind::Json { form, text } => {
                let at = json_border(data, self.in_string);
                let (now, next) = border(at);
                args.json_from(now, self.in_string);
                self.in_string = at.is_none();
                if form {
                    args.form(data);
                }
                if text {
                    args.text(data);
                }
                next
            }
            Kind::Xml => {
                let (now, next) = border(memchr::memrchr(b'<', data));
                args.xml(now);
                next
            }
            Kind::Strings => {
                strings(data, |text| args.text(text));
                border(None).1
            }
            Kind::Base64Strings => {
                let end = if last { data.len() } else { data.len() / 4 * 4 };
                let mut decoded = Vec::new();
                decode::base64(data.get(..end).unwrap_or(data), &mut decoded);
                strings(&decoded, |text| args.text(text));
                end
            }
            Kind::Binary => {
                args.add(|out| lines_of_strings(data, out));
                border(None).1
            }
            Kind::Git => {
                let pack = memchr::memmem::find(data, b"PACK");
                args.add(|out| lines_of_strings(data.get(..pack.unwrap_or(data.len())).unwrap_or(data), out));
                if pack.is_some() {
                    self.kind = Some(Kind::Opaque);
                    return data.len();
                }
                border(None).1
            }
            Kind::Packed => {
                let (now, next) = border(behind_pair());
                for pair in now.split(|&b| b == b'&') {
                    if is_packed(pair) {
                        let printable = pair.split(|&b| !matches!(b, 0x20..=0x7e));
                        printable.filter(|text| text.len() >= PACKED_MIN).for_each(|text| args.form(text));
                    } else {
                        args.form(pair);
                    }
                }
                next
            }
            Kind::Text { form } => {
                args.add(|out| out.extend_from_slice(data));
                if form {
                    args.form(data);
                }
                // A value may span lines, so all of the window is read.
                border(memchr::memrchr(b'\n', data).map(|at| at + 1)).1
            }
        }
    }

    /// Decides by the type and, without one, by the beginning.
    fn decide(&mut self, data: &[u8], last: bool) -> Kind {
        let lower = self.content_type.to_ascii_lowercase();
        let is = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
        if is("multipart/") {
            self.delimiters = multipart::delimiters(&self.content_type);
            // A boundary that delimits nothing hides nothing.
            let delimits = |d: &Vec<u8>| !last || memchr::memmem::find(data, d).is_some();
            if self.delimiters.iter().any(delimits) {
                return Kind::Multipart;
            }
        }
        if data.starts_with(b"\x1f\x8b") || data.starts_with(b"PK\x03\x04") {
            return Kind::Packed;
        }
        let start = data.trim_ascii_start();
        match start.first() {
            None => Kind::Text { form: true },
            Some(b'{' | b'[' | b'"') if last && json::are_documents(start) => Kind::Json { form: false, text: false },
            Some(b'{' | b'[') if !last && json::begins(start) => Kind::Json { form: is("urlencoded"), text: false },
            Some(b'<') if !is("urlencoded") => Kind::Xml,
            _ if is("json") => Kind::Json { form: false, text: true },
            _ if is("urlencoded") || lower.is_empty() => Kind::Form,
            _ if is("grpc-web-text") => Kind::Base64Strings,
            // Binary messages contain strings, and no server parses them as a form.
            _ if ["protobuf", "grpc", "msgpack", "cbor", "thrift", "amf"].iter().any(|t| is(t)) => Kind::Strings,
            _ if lower.split(|&b| b == b',').all(is_opaque) => Kind::Opaque,
            _ if lower.starts_with(b"application/x-git-") => Kind::Git,
            _ if is_binary(data) => Kind::Binary,
            // A form has one line. In a text of many lines, such as a log, `&` and `=` separate nothing.
            _ => Kind::Text { form: data.contains(&b'=') && data.iter().filter(|&&b| b == b'\n').count() < TEXT_LINES },
        }
    }
}

impl Args {
    /// Adds a whole body, parsed according to its type or, without one, to its content.
    pub fn body(&mut self, content_type: &[u8], body: &[u8]) {
        let mut reader = Body::new(content_type, self.limits());
        reader.push(body, self);
        reader.finish(self);
    }
}

/// Whether a type is one of pictures, sounds, archives and bytes, whatever its parameters say.
fn is_opaque(content_type: &[u8]) -> bool {
    let media = content_type.split(|&b| b == b';').next().unwrap_or(&[]).trim_ascii();
    let is = |word: &str| memchr::memmem::find(media, word.as_bytes()).is_some();
    ["image/", "video/", "audio/"].iter().any(|t| media.starts_with(t.as_bytes())) || is("octet-stream") || is("zip")
}

/// Appends the strings of a binary message, each as a line.
fn lines_of_strings(data: &[u8], out: &mut Vec<u8>) {
    strings(data, |text| {
        out.extend_from_slice(text);
        out.push(b'\n');
    });
}

/// The strings of a binary message.
fn strings(data: &[u8], mut found: impl FnMut(&[u8])) {
    for chunk in data.utf8_chunks() {
        let texts = chunk.valid().split(|c: char| c.is_control());
        texts.filter(|t| t.len() >= STRING_MIN).for_each(|t| found(t.as_bytes()));
    }
}

/// Where a window of JSON ends: before a string that is cut off, or at the end of the data. `None` if it is in a long string.
fn json_border(data: &[u8], mut in_string: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        if !in_string {
            match data.get(at..).and_then(|d| memchr::memchr(b'"', d)) {
                None => return Some(data.len()),
                Some(quote) => at += quote + 1,
            }
        }
        let begun = at;
        loop {
            match data.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return begun.checked_sub(1).filter(|&quote| !in_string && quote > data.len() / 2),
            }
        }
        at += 1;
        in_string = false;
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
