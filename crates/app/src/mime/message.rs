//! The state machine: headers, bodies, and the parts within them.

use md5::{Digest, Md5};

use crate::http1::param::unescape;

use super::codec::{Base64, QuotedPrintable};
use super::name::{parameter, without_words};
use super::nested::{self, Nested};
use super::urls::Urls;
use super::{Part, Problem};

/// Most delimiters that are looked for at once: parts that are deeper are one body.
const MAX_DEPTH: usize = 32;
/// Longest boundary.
const MAX_BOUNDARY: usize = 254;
/// Longest name of a file; longer ones are cut off.
const MAX_FILENAME: usize = 255;
/// Longest name of a field without a word about it.
const MAX_FIELD_NAME: usize = 75;
/// Longest line without a word about it (RFC 5322, section 2.1.1).
const MAX_LINE: usize = 998;
/// Longest encoded line without a word about it (RFC 2045, section 6.7 and 6.8).
const MAX_ENCODED_LINE: usize = 76;
/// Bytes of a field that are read whatever the limit on what is told of it.
const MAX_FIELD: usize = 8 << 10;

/// How messages are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether base64 is undone (`decode-base64`).
    pub base64: bool,
    /// Whether quoted-printable is undone (`decode-quoted-printable`).
    pub quoted_printable: bool,
    /// Most bytes of a field's value that are told (`header-value-depth`); 0 for all of up to 8 KB.
    pub value_depth: usize,
    /// Schemes of URLs that are looked for, in lower case, with `://` (or `:` for `mailto`) behind them; none turns that off.
    pub schemes: Vec<Vec<u8>>,
    /// Whether the MD5 of the body is computed (`body-md5`).
    pub body_md5: bool,
}

/// How far a message was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// In its header.
    #[default]
    Header,
    /// In its body.
    Body,
    /// It is at its end.
    Done,
}

impl Status {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Header => "HEADER_STARTED",
            Status::Body => "BODY_STARTED",
            Status::Done => "PARSE_DONE",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// In the fields of a message or part.
    #[default]
    Header,
    /// In a body, a preamble or an epilogue.
    Body,
    /// In a message within this one that is said to be in a coding.
    Nested,
}

#[derive(Debug, Clone, Default)]
enum Coding {
    #[default]
    Identity,
    Base64(Base64),
    Qp(QuotedPrintable),
}

/// What the fields of a part say of it.
#[derive(Debug, Clone, Default)]
struct Fields {
    boundary: Option<Vec<u8>>,
    multipart: bool,
    message: bool,
    /// It is a text, or does not say what it is.
    text: Option<bool>,
    /// Where no field says it, or not yet: none.
    encoding: Option<Encoding>,
    /// Names by `Content-Type` and by `Content-Disposition`.
    names: [Option<Vec<u8>>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Encoding {
    #[default]
    Identity,
    Base64,
    Qp,
}

/// A message that is being read.
#[derive(Debug, Clone, Default)]
pub struct Message {
    state: State,
    status: Status,
    /// Boundaries of the parts that it is within, outermost first.
    boundaries: Vec<Vec<u8>>,
    /// The field at hand, unfolded.
    field: Vec<u8>,
    fields: Fields,
    coding: Coding,
    /// A message within this one, in a coding; before its first line that coding.
    nested: Option<Box<Nested>>,
    nested_in: Encoding,
    /// Messages in a coding that this one is within.
    depth: u8,
    /// A file is open.
    file: bool,
    /// URLs are looked for.
    text: bool,
    /// The line break before the line at hand: it is one of the data if no delimiter follows.
    held: Vec<u8>,
    /// Bytes of the line at hand so far.
    line: usize,
    /// What is left of the line is of no interest.
    skip: bool,
    /// What is left of the line is of the field at hand.
    in_field: bool,
    urls: Urls,
    md5: Option<Md5>,
    digest: Option<[u8; 16]>,
    scratch: Vec<u8>,
}

impl Message {
    /// One that begins.
    pub fn new(settings: &Settings) -> Message {
        Message { md5: settings.body_md5.then(Md5::new), ..Message::default() }
    }

    /// One within another one, in a coding, and `depth` of these around it. Its fields are not told.
    pub(super) fn within(depth: u8) -> Message {
        Message { depth, status: Status::Body, ..Message::default() }
    }

    /// How far it was read.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The MD5 of all lines behind the header, once the message is at its end.
    pub const fn body_md5(&self) -> Option<[u8; 16]> {
        self.digest
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        let nested = self.nested.as_ref().map_or(0, |n| n.memory());
        let boundaries: usize = self.boundaries.iter().map(Vec::capacity).sum();
        self.field.capacity() + boundaries + self.scratch.capacity() + nested
    }

    /// Reads a piece of a line: `first` is one at its beginning, and `ending` the line break behind it, empty where the
    /// line goes on. A delimiter is only seen in a first piece: let that have no less than 300 bytes of a line that long.
    pub fn line(
        &mut self,
        settings: &Settings,
        piece: &[u8],
        first: bool,
        ending: &[u8],
        sink: &mut dyn FnMut(Part<'_>),
    ) {
        if first {
            self.line = 0;
            self.skip = false;
            self.in_field = false;
        }
        let before = self.line;
        self.line = self.line.saturating_add(piece.len());
        if before <= MAX_LINE && self.line > MAX_LINE {
            sink(Part::Problem(Problem::LongLine));
        }
        if self.status == Status::Body
            && let Some(md5) = &mut self.md5
        {
            md5.update(piece);
            md5.update(ending);
        }
        if first && self.delimiter(settings, piece, sink) {
            return;
        }
        match self.state {
            State::Header => self.header(settings, piece, first, ending, sink),
            State::Body => self.body(settings, piece, first, ending, sink),
            State::Nested => self.nested(settings, piece, first, ending, sink),
        }
    }

    /// A line of a message that is said to be in a coding. What begins with a field, which has a colon, is not in base64.
    fn nested(
        &mut self,
        settings: &Settings,
        piece: &[u8],
        first: bool,
        ending: &[u8],
        sink: &mut dyn FnMut(Part<'_>),
    ) {
        if self.nested.is_none() {
            let base64 = self.nested_in == Encoding::Base64;
            if piece.is_empty() && base64 {
                return;
            }
            if base64 && piece.contains(&b':') {
                self.state = State::Header;
                return self.header(settings, piece, first, ending, sink);
            }
            self.nested = Some(Box::new(Nested::new(base64, self.depth.saturating_add(1))));
        }
        if let Some(nested) = &mut self.nested {
            nested.push(settings, piece, ending, sink);
        }
    }

    /// Bytes before the line that follows that are none of it: the digest of the body has them, as in Suricata.
    pub fn stuffing(&mut self, bytes: &[u8]) {
        if self.status == Status::Body
            && let Some(md5) = &mut self.md5
        {
            md5.update(bytes);
        }
    }

    /// Bytes are missing, maybe within a line.
    pub fn gap(&mut self, len: u64, sink: &mut dyn FnMut(Part<'_>)) {
        self.field.clear();
        (self.in_field, self.skip) = (false, self.state == State::Header);
        self.urls = Urls::default();
        self.held.clear();
        self.coding = match self.coding {
            Coding::Identity => Coding::Identity,
            Coding::Base64(_) => Coding::Base64(Base64::default()),
            Coding::Qp(_) => Coding::Qp(QuotedPrintable::default()),
        };
        if let Some(nested) = &mut self.nested {
            nested.gap(len, sink);
        } else if self.file {
            sink(Part::Gap(len));
        }
    }

    /// The message is at its end, or `truncated`.
    pub fn finish(&mut self, settings: &Settings, truncated: bool, sink: &mut dyn FnMut(Part<'_>)) {
        if self.status == Status::Done {
            return;
        }
        if self.state == State::Header && (!truncated || !self.field.is_empty()) {
            self.finish_field(settings, sink);
        }
        self.end_part(settings, truncated, sink);
        if truncated {
            self.status = Status::Done;
            return;
        }
        if !self.boundaries.is_empty() || (self.state == State::Header && self.status == Status::Body) {
            sink(Part::Problem(Problem::Malformed));
        }
        self.status = Status::Done;
        self.digest = self.md5.take().map(|m| m.finalize().into());
        self.scratch = Vec::new();
    }

    /// Whether a line is a delimiter of a part that this is within; if so it ends what is before.
    fn delimiter(&mut self, settings: &Settings, line: &[u8], sink: &mut dyn FnMut(Part<'_>)) -> bool {
        let Some(text) = line.strip_prefix(b"--").filter(|_| !self.boundaries.is_empty()) else { return false };
        let behind = |b: &Vec<u8>| text.strip_prefix(b.as_slice());
        let exact = |b: &Vec<u8>| behind(b).is_some_and(|r| matches!(r.trim_ascii_end(), b"" | b"--"));
        // What follows a boundary on its line does not matter, unless another boundary fits better.
        let found = self.boundaries.iter().rposition(exact);
        let found = found.or_else(|| self.boundaries.iter().rposition(|b| behind(b).is_some()));
        let Some(depth) = found else { return false };
        let last = self
            .boundaries
            .get(depth)
            .and_then(behind)
            .is_some_and(|r| r.strip_prefix(b"--").is_some_and(|r| r.trim_ascii().is_empty()));
        if self.state == State::Header {
            self.finish_field(settings, sink);
            self.begin_body(settings, sink);
        }
        self.end_part(settings, false, sink);
        self.boundaries.truncate(if last { depth } else { depth + 1 });
        (self.state, self.text) = if last { (State::Body, true) } else { (State::Header, false) };
        self.skip = true;
        true
    }

    /// A line of a header.
    fn header(
        &mut self,
        settings: &Settings,
        piece: &[u8],
        first: bool,
        ending: &[u8],
        sink: &mut dyn FnMut(Part<'_>),
    ) {
        if self.skip {
            return;
        }
        if first && piece.is_empty() && !ending.is_empty() {
            self.finish_field(settings, sink);
            self.begin_body(settings, sink);
            return;
        }
        let mut text = piece;
        if first {
            let folded = matches!(piece.first(), Some(b' ' | b'\t'));
            if !folded && piece.contains(&b':') {
                self.finish_field(settings, sink);
            } else if !folded && self.names_a_file() {
                // What is no field ends the header, as in Python, where that has all that makes a file of the part.
                self.finish_field(settings, sink);
                self.begin_body(settings, sink);
                return match self.state {
                    State::Header => self.header(settings, piece, first, ending, sink),
                    State::Body => self.body(settings, piece, first, ending, sink),
                    State::Nested => self.nested(settings, piece, first, ending, sink),
                };
            } else if self.field.is_empty() {
                // No field, and none before it that it could be of.
                self.skip = true;
                return;
            } else if let Some(rest) = piece.strip_prefix(b"\t") {
                // Suricata has no tab where a line was folded; a blank it has.
                text = rest;
            }
            self.in_field = true;
        }
        if self.in_field {
            let room = limit(settings).saturating_add(1).saturating_sub(self.field.len());
            self.field.extend_from_slice(text.get(..room).unwrap_or(text));
        }
    }

    /// Whether the header so far, with the field at hand, names a file and its coding.
    fn names_a_file(&self) -> bool {
        let at_hand = |name: &[u8]| self.field.get(..name.len()).is_some_and(|f| f.eq_ignore_ascii_case(name));
        let named = self.fields.names.iter().any(Option::is_some) || at_hand(b"content-disposition:");
        named && (self.fields.encoding.is_some() || at_hand(b"content-transfer-encoding:"))
    }

    /// The field at hand is whole.
    fn finish_field(&mut self, settings: &Settings, sink: &mut dyn FnMut(Part<'_>)) {
        let mut field = std::mem::take(&mut self.field);
        let Some(colon) = memchr::memchr(b':', &field) else { return };
        let (name, value) = field.split_at(colon);
        let (name, value) = (name.trim_ascii(), value.get(1..).unwrap_or(&[]).trim_ascii_start());
        if name.len() > MAX_FIELD_NAME {
            sink(Part::Problem(Problem::LongHeaderName));
        }
        let depth = if settings.value_depth == 0 { MAX_FIELD } else { settings.value_depth };
        if value.len() > depth {
            sink(Part::Problem(Problem::LongHeaderValue));
        }
        if self.status == Status::Header {
            sink(Part::Field(name, value.get(..depth).unwrap_or(value)));
        }
        let f = &mut self.fields;
        if name.eq_ignore_ascii_case(b"content-type") {
            let kind = value.split(|&b| b == b';').next().unwrap_or(value).trim_ascii().to_ascii_lowercase();
            f.multipart = kind.starts_with(b"multipart/");
            f.message = matches!(kind.as_slice(), b"message/rfc822" | b"message/global");
            f.text = Some(matches!(kind.as_slice(), b"text/plain" | b"text/html" | b"text/calendar" | b"text"));
            f.boundary = parameter(value, b"boundary").map(|b| unescape(b.trim_ascii_end())).filter(|b| !b.is_empty());
            f.names[0] = parameter(value, b"name").filter(|n| !n.is_empty());
        } else if name.eq_ignore_ascii_case(b"content-disposition") {
            // Of several fields the first one with a name counts, as in Python.
            f.names[1] = f.names[1].take().or(parameter(value, b"filename").filter(|n| !n.is_empty()));
        } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            let word = value.split(|b| b.is_ascii_whitespace() || *b == b';').next().unwrap_or(value);
            let encoding = if word.eq_ignore_ascii_case(b"base64") {
                Encoding::Base64
            } else if word.eq_ignore_ascii_case(b"quoted-printable") {
                Encoding::Qp
            } else {
                Encoding::Identity
            };
            f.encoding.get_or_insert(encoding);
        }
        field.clear();
        self.field = field;
    }

    /// A header is at its end: what it says makes the body.
    fn begin_body(&mut self, settings: &Settings, sink: &mut dyn FnMut(Part<'_>)) {
        self.status = Status::Body;
        self.held.clear();
        let mut fields = std::mem::take(&mut self.fields);
        let encoding = fields.encoding.unwrap_or_default();
        let name = fields.names[1].take().or(fields.names[0].take());
        let name = name.map(|n| {
            let mut n = without_words(n);
            if n.len() > MAX_FILENAME {
                sink(Part::Problem(Problem::LongFilename));
                n.truncate(MAX_FILENAME);
            }
            n
        });
        if fields.message {
            // A message within: its header follows.
            if let Some(name) = &name {
                sink(Part::Attachment(name));
            }
            let decodes = match encoding {
                Encoding::Base64 => settings.base64,
                Encoding::Qp => settings.quoted_printable,
                Encoding::Identity => false,
            };
            self.nested_in = encoding;
            self.state = match decodes {
                true if self.depth < nested::DEPTH_MAX => State::Nested,
                true => {
                    sink(Part::Problem(Problem::ParseFailed));
                    State::Header
                }
                false => State::Header,
            };
            return;
        }
        self.state = State::Body;
        if let Some(mut boundary) = fields.boundary.filter(|_| fields.multipart) {
            if boundary.len() > MAX_BOUNDARY {
                sink(Part::Problem(Problem::LongBoundary));
                // Lines that begin like it are taken for delimiters.
                boundary.truncate(MAX_BOUNDARY);
            }
            if self.boundaries.len() < MAX_DEPTH {
                self.boundaries.push(boundary);
                (self.text, self.coding) = (true, Coding::Identity);
                return;
            } else {
                sink(Part::Problem(Problem::ParseFailed));
            }
        }
        self.coding = match encoding {
            Encoding::Base64 if settings.base64 => Coding::Base64(Base64::default()),
            Encoding::Qp if settings.quoted_printable => Coding::Qp(QuotedPrintable::default()),
            _ => Coding::Identity,
        };
        match name {
            Some(name) => {
                self.file = true;
                sink(Part::Attachment(&name));
                sink(Part::Begin(&name));
            }
            None => self.text = fields.text.unwrap_or(true),
        }
    }

    /// What a body is made of is at its end.
    fn end_part(&mut self, settings: &Settings, truncated: bool, sink: &mut dyn FnMut(Part<'_>)) {
        if let Some(mut nested) = self.nested.take() {
            nested.finish(settings, truncated, sink);
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        if let Coding::Base64(b) = &mut self.coding {
            b.flush(&mut out);
        }
        self.tell(settings, &out, sink);
        self.scratch = out;
        if self.text {
            self.urls.finish(sink);
        }
        if std::mem::take(&mut self.file) {
            sink(Part::End { truncated });
        }
        self.text = false;
        self.held.clear();
        self.coding = Coding::Identity;
        self.fields = Fields::default();
    }

    /// A line of a body.
    fn body(&mut self, settings: &Settings, piece: &[u8], first: bool, ending: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        if self.skip || !(self.file || self.text) {
            return;
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        if first {
            out.append(&mut self.held);
        }
        let encoded = !matches!(self.coding, Coding::Identity);
        if encoded && self.line > MAX_ENCODED_LINE && self.line - piece.len() <= MAX_ENCODED_LINE {
            sink(Part::Problem(Problem::LongEncodedLine));
        }
        match &mut self.coding {
            Coding::Identity => {
                self.held.extend_from_slice(ending);
                if out.is_empty() {
                    self.scratch = out;
                    self.tell(settings, piece, sink);
                    return;
                }
                out.extend_from_slice(piece);
            }
            Coding::Base64(b) => {
                if !b.push(piece, &mut out) {
                    sink(Part::Problem(Problem::InvalidBase64));
                }
            }
            Coding::Qp(q) => {
                let (valid, breaks) = q.push(piece, !ending.is_empty(), &mut out);
                if breaks {
                    self.held.extend_from_slice(ending);
                }
                if !valid {
                    sink(Part::Problem(Problem::InvalidQp));
                }
            }
        }
        self.tell(settings, &out, sink);
        self.scratch = out;
    }

    /// Data of a body.
    fn tell(&mut self, settings: &Settings, data: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        if data.is_empty() {
            return;
        }
        if self.file {
            sink(Part::Data(data));
        }
        if self.text && !settings.schemes.is_empty() {
            self.urls.push(data, &settings.schemes, sink);
        }
    }
}

/// Most bytes of a field that are kept, name and all.
fn limit(settings: &Settings) -> usize {
    settings.value_depth.saturating_add(256).max(MAX_FIELD)
}
