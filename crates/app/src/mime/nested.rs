//! A nested message with a transfer coding.
//!
//! RFC 2046 section 5.2.1 forbids a coding for `message/rfc822` that changes bytes, but mail programs decode it.

use super::codec::{Base64, QuotedPrintable};
use super::message::{Message, Settings};
use super::{Part, Problem};

/// The limit of a decoded line that is collected; a longer one continues in pieces.
const LINE: usize = 4095;
/// The limit of encoded messages nested in each other.
pub(super) const DEPTH_MAX: u8 = 8;

/// The coding.
#[derive(Debug, Clone)]
enum Coding {
    Base64(Base64),
    Qp(QuotedPrintable),
}

/// The message, as it is decoded.
#[derive(Debug, Clone)]
pub(super) struct Nested {
    message: Message,
    coding: Coding,
    /// Decoded bytes of the current line that have not been read.
    line: Vec<u8>,
    /// Whether `line` is the beginning of a line.
    start: bool,
}

impl Nested {
    /// Starts a message in Base64, otherwise in quoted-printable, nested in `depth` others.
    pub(super) fn new(base64: bool, depth: u8) -> Nested {
        let coding = if base64 { Coding::Base64(Base64::default()) } else { Coding::Qp(QuotedPrintable::default()) };
        Nested { message: Message::within(depth), coding, line: Vec::new(), start: true }
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.line.capacity() + self.message.memory()
    }

    /// Decodes a piece of a line, with the line break after it, empty if the line continues.
    pub(super) fn push(&mut self, settings: &Settings, piece: &[u8], ending: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        let mut out = Vec::new();
        match &mut self.coding {
            Coding::Base64(b) => {
                if !b.push(piece, &mut out) {
                    sink(Part::Problem(Problem::InvalidBase64));
                }
            }
            Coding::Qp(q) => {
                let (valid, breaks) = q.push(piece, !ending.is_empty(), &mut out);
                if breaks {
                    out.extend_from_slice(ending);
                }
                if !valid {
                    sink(Part::Problem(Problem::InvalidQp));
                }
            }
        }
        self.decoded(settings, &out, sink);
    }

    fn decoded(&mut self, settings: &Settings, mut data: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        while !data.is_empty() {
            let room = LINE.saturating_sub(self.line.len()).max(1);
            let within = data.get(..room).unwrap_or(data);
            let lf = memchr::memchr(b'\n', within);
            let (now, rest) = data.split_at(lf.map_or(within.len(), |n| n + 1));
            self.line.extend_from_slice(now);
            data = rest;
            if lf.is_some() || self.line.len() >= LINE {
                self.read(settings, sink);
            }
        }
    }

    /// Reads the available part of the current line.
    fn read(&mut self, settings: &Settings, sink: &mut dyn FnMut(Part<'_>)) {
        let line = std::mem::take(&mut self.line);
        let ends = line.ends_with(b"\n");
        let text = line.strip_suffix(b"\n").map_or(&line[..], |t| t.strip_suffix(b"\r").unwrap_or(t));
        let ending = line.get(text.len()..).unwrap_or(&[]);
        self.message.line(settings, text, self.start, ending, sink);
        self.start = ends;
        self.line = line;
        self.line.clear();
    }

    /// Handles a gap.
    pub(super) fn gap(&mut self, len: u64, sink: &mut dyn FnMut(Part<'_>)) {
        self.coding = match self.coding {
            Coding::Base64(_) => Coding::Base64(Base64::default()),
            Coding::Qp(_) => Coding::Qp(QuotedPrintable::default()),
        };
        (self.line, self.start) = (Vec::new(), false);
        self.message.gap(len, sink);
    }

    /// Ends the part; `truncated` if its end was not seen.
    pub(super) fn finish(&mut self, settings: &Settings, truncated: bool, sink: &mut dyn FnMut(Part<'_>)) {
        if let Coding::Base64(b) = &mut self.coding {
            let mut out = Vec::new();
            b.flush(&mut out);
            self.decoded(settings, &out, sink);
        }
        if !self.line.is_empty() {
            self.read(settings, sink);
        }
        self.message.finish(settings, truncated, sink);
    }
}
