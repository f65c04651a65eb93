//! The state machine: headers, bodies, and nested parts.

use md5::{Digest, Md5};

use crate::param::{unescape, without_parameters};

use super::codec::{Base64, QuotedPrintable};
use super::name::{Parameters, without_words};
use super::nested::{self, Nested};
use super::urls::Urls;
use super::{Part, Problem};

/// The limit of active delimiters: deeper parts count as one body.
const MAX_DEPTH: usize = 32;
/// The longest boundary.
const MAX_BOUNDARY: usize = 254;
/// The longest file name; longer ones are truncated.
const MAX_FILENAME: usize = 255;
/// The longest field name that raises no event.
const MAX_FIELD_NAME: usize = 75;
/// The longest line that raises no event (RFC 5322, section 2.1.1).
const MAX_LINE: usize = 998;
/// The longest encoded line that raises no event (RFC 2045, section 6.7 and 6.8).
const MAX_ENCODED_LINE: usize = 76;
/// Bytes of a field that are parsed, whatever the limit on its reported value.
const MAX_FIELD: usize = 8 << 10;

/// Settings for reading messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether Base64 is decoded (`decode-base64`).
    pub base64: bool,
    /// Whether quoted-printable is decoded (`decode-quoted-printable`).
    pub quoted_printable: bool,
    /// The limit of a reported field value in bytes (`header-value-depth`); 0 for up to 8 KB.
    pub value_depth: usize,
    /// Schemes of URLs to search for, in lower case, including `://` (or `:` for `mailto`). An empty list turns the search off.
    pub schemes: Vec<Vec<u8>>,
    /// Whether the MD5 of the body is computed (`body-md5`).
    pub body_md5: bool,
}

/// The parsing status of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// In the header.
    #[default]
    Header,
    /// In the body.
    Body,
    /// At the end.
    Done,
}

impl Status {
    /// The name in events.
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
    /// In a nested message with a transfer coding.
    Nested,
}

#[derive(Debug, Clone, Default)]
enum Coding {
    #[default]
    Identity,
    Base64(Base64),
    Qp(QuotedPrintable),
}

/// The relevant fields of a part.
#[derive(Debug, Clone, Default)]
struct Fields {
    boundary: Option<Vec<u8>>,
    multipart: bool,
    message: bool,
    /// Whether it is text; `None` if no field gives a type.
    text: Option<bool>,
    /// The transfer coding; `None` if no field has given one.
    encoding: Option<Encoding>,
    /// File names from `Content-Type` and from `Content-Disposition`.
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
    /// Boundaries of the enclosing parts, outermost first.
    boundaries: Vec<Vec<u8>>,
    /// The current field has a line that is neither a field nor the continuation of one.
    joined: bool,
    /// The current field, unfolded.
    field: Vec<u8>,
    fields: Fields,
    coding: Coding,
    /// A nested message with a transfer coding; before its first line, that coding.
    nested: Option<Box<Nested>>,
    nested_in: Encoding,
    /// How many encoded messages this one is nested in.
    depth: u8,
    /// A file is open.
    file: bool,
    /// The body is searched for URLs.
    text: bool,
    /// The line break before the current line. It belongs to the data if no delimiter follows.
    held: Vec<u8>,
    /// Bytes of the current line so far.
    line: usize,
    /// The rest of the line is ignored.
    skip: bool,
    /// The rest of the line belongs to the current field.
    in_field: bool,
    urls: Urls,
    md5: Option<Md5>,
    digest: Option<[u8; 16]>,
    scratch: Vec<u8>,
}

impl Message {
    /// Starts a message.
    pub fn new(settings: &Settings) -> Message {
        Message { md5: settings.body_md5.then(Md5::new), ..Message::default() }
    }

    /// Starts a nested message with a transfer coding, inside `depth` others. Its fields are not reported.
    pub(super) fn within(depth: u8) -> Message {
        Message { depth, status: Status::Body, ..Message::default() }
    }

    /// The parsing status.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The MD5 of all lines after the header, once the message has ended.
    pub const fn body_md5(&self) -> Option<[u8; 16]> {
        self.digest
    }

    /// Allocated memory in bytes.
    pub fn memory(&self) -> usize {
        let nested = self.nested.as_ref().map_or(0, |n| n.memory());
        let boundaries: usize = self.boundaries.iter().map(Vec::capacity).sum();
        self.field.capacity() + boundaries + self.scratch.capacity() + nested
    }

    /// Reads a piece of a line: `first` marks its beginning, and `ending` is the line break after it, empty if the line
    /// continues. A delimiter is only recognised in a first piece, so that piece needs at least 300 bytes if the line is that
    /// long.
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

    /// Reads a line of a nested message with a transfer coding. A line with a field has a colon, so it is not Base64.
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

    /// Handles bytes before the next line that do not belong to it. Like in Suricata, the body digest includes them.
    pub fn stuffing(&mut self, bytes: &[u8]) {
        if self.status == Status::Body
            && let Some(md5) = &mut self.md5
        {
            md5.update(bytes);
        }
    }

    /// Handles a gap, possibly within a line.
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

    /// Ends the message; `truncated` if its end was not seen.
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

    /// Whether a line is a delimiter of an enclosing part. If so, ends the inner parts.
    fn delimiter(&mut self, settings: &Settings, line: &[u8], sink: &mut dyn FnMut(Part<'_>)) -> bool {
        let Some(text) = line.strip_prefix(b"--").filter(|_| !self.boundaries.is_empty()) else { return false };
        // The last byte tells most boundaries apart, so few are compared.
        let behind = |b: &Vec<u8>| {
            let last = b.len().checked_sub(1)?;
            (text.get(last) == b.get(last)).then(|| text.strip_prefix(b.as_slice())).flatten()
        };
        // Prefer an exact match. Otherwise the rest of a delimiter line does not matter.
        let (mut exact, mut other) = (None, None);
        for (n, b) in self.boundaries.iter().enumerate().rev() {
            let Some(rest) = behind(b) else { continue };
            if matches!(rest.trim_ascii_end(), b"" | b"--") {
                exact = Some(n);
                break;
            }
            other = other.or(Some(n));
        }
        let Some(depth) = exact.or(other) else { return false };
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

    /// Reads a header line.
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
            } else if !folded && !std::mem::replace(&mut self.joined, true) && self.names_a_file() {
                // Like Python, end the header at a line that is not a field, if the header already describes a file.
                self.finish_field(settings, sink);
                self.begin_body(settings, sink);
                return match self.state {
                    State::Header => self.header(settings, piece, first, ending, sink),
                    State::Body => self.body(settings, piece, first, ending, sink),
                    State::Nested => self.nested(settings, piece, first, ending, sink),
                };
            } else if self.field.is_empty() {
                // Neither a field nor the continuation of one.
                self.skip = true;
                return;
            } else if let Some(rest) = piece.strip_prefix(b"\t") {
                // Like Suricata, drop a tab at a fold, but keep a blank.
                text = rest;
            }
            self.in_field = true;
        }
        if self.in_field {
            let room = limit(settings).saturating_add(1).saturating_sub(self.field.len());
            self.field.extend_from_slice(text.get(..room).unwrap_or(text));
        }
    }

    /// Whether the header, including the current field, names a file.
    fn names_a_file(&self) -> bool {
        let at_hand = |name: &[u8]| self.field.get(..name.len()).is_some_and(|f| f.eq_ignore_ascii_case(name));
        let named = || {
            let value = self.field.get(b"content-type:".len()..).unwrap_or(&[]);
            at_hand(b"content-type:") && Parameters::of(value).file_name(b"name").is_some_and(|n| !n.is_empty())
        };
        self.fields.names.iter().any(Option::is_some) || at_hand(b"content-disposition:") || named()
    }

    /// Handles a complete field.
    fn finish_field(&mut self, settings: &Settings, sink: &mut dyn FnMut(Part<'_>)) {
        self.joined = false;
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
            let kind = without_parameters(value).trim_ascii().to_ascii_lowercase();
            f.multipart = kind.starts_with(b"multipart/");
            f.text = Some(matches!(kind.as_slice(), b"text/plain" | b"text/html" | b"text/calendar" | b"text"));
            let parameters = Parameters::of(value);
            f.message = match kind.as_slice() {
                b"message/rfc822" | b"message/global" => true,
                // The first of several mails has the header of the divided message (RFC 2046, section 5.2.2).
                b"message/partial" => parameters.get(b"number").is_some_and(|n| n.trim_ascii() == b"1"),
                _ => false,
            };
            f.boundary = parameters.get(b"boundary").map(|b| unescape(b.trim_ascii_end())).filter(|b| !b.is_empty());
            f.names[0] = parameters.file_name(b"name").filter(|n| !n.is_empty());
        } else if name.eq_ignore_ascii_case(b"content-disposition") {
            // Like Python, use the first of several fields that has a name.
            f.names[1] = f.names[1].take().or(Parameters::of(value).file_name(b"filename").filter(|n| !n.is_empty()));
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

    /// Ends a header and starts the body that it describes.
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
            // A nested message: its header follows.
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
                // A line that begins with a truncated boundary counts as a delimiter.
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

    /// Ends the current body.
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

    /// Reads a line of a body.
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

    /// Handles decoded data of a body.
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

/// The limit of bytes kept from a field, including its name.
fn limit(settings: &Settings) -> usize {
    settings.value_depth.saturating_add(256).max(MAX_FIELD)
}
