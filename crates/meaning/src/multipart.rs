//! Forms in parts (RFC 7578): names, file names, and values of parts that are not files.
//!
//! Servers differ in what they accept, so everything that one of them could read as a value is one: a part counts as a file
//! only if all would take it as one.

use crate::args::Args;
use crate::{decode, json};

/// The most boundaries that are tried.
const BOUNDARIES_MAX: usize = 8;

/// Where a window ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Inside {
    /// Outside of all parts: forms have nothing there.
    #[default]
    Preamble,
    /// In the content of a file.
    File,
    /// In a value.
    Value,
}

/// The delimiters that a type may mean, each with its two hyphens: of every parameter that ends in `boundary`, as it is, without
/// its backslashes, and up to a space.
pub(crate) fn delimiters(content_type: &[u8]) -> Vec<Vec<u8>> {
    let lower = content_type.to_ascii_lowercase();
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut add = |value: &[u8]| {
        let delimiter = [b"--", value].concat();
        if !value.is_empty() && found.len() < BOUNDARIES_MAX && !found.contains(&delimiter) {
            found.push(delimiter);
        }
    };
    for at in memchr::memmem::find_iter(&lower, b"boundary") {
        let rest = content_type.get(at + 8..).unwrap_or(&[]).trim_ascii_start();
        let Some(value) = rest.strip_prefix(b"=") else { continue };
        let value = value.trim_ascii_start();
        if let Some(quoted) = value.strip_prefix(b"\"") {
            let (plain, escaped) = quoted_string(quoted);
            add(plain);
            add(&escaped);
        } else {
            let end = value.iter().position(|&b| b == b';').unwrap_or(value.len());
            let value = value.get(..end).unwrap_or(value).trim_ascii_end();
            add(value);
            let end = value.iter().position(|&b| matches!(b, b',' | b' ' | b'\t' | b'"')).unwrap_or(value.len());
            add(value.get(..end).unwrap_or(value));
        }
    }
    found
}

/// A quoted string from behind its first quote: up to the next one, and with escapes (RFC 9110, section 5.6.4).
fn quoted_string(quoted: &[u8]) -> (&[u8], Vec<u8>) {
    let plain = quoted.get(..memchr::memchr(b'"', quoted).unwrap_or(quoted.len())).unwrap_or(quoted);
    let mut escaped = Vec::new();
    let mut bytes = quoted.iter();
    while let Some(&b) = bytes.next() {
        match b {
            b'"' => break,
            b'\\' => escaped.extend(bytes.next()),
            _ => escaped.push(b),
        }
    }
    (plain, escaped)
}

/// Reads a window of a form; `last` if nothing follows. Of a value that is longer than the window, the bytes from `overlap` on
/// are read again. Returns how much is done.
pub(crate) fn read(
    delimiters: &[Vec<u8>],
    data: &[u8],
    last: bool,
    overlap: usize,
    inside: &mut Inside,
    args: &mut Args,
) -> usize {
    // A delimiter begins a line (RFC 2046, section 5.1.1).
    let mut hits: Vec<(usize, usize)> = Vec::new();
    for d in delimiters {
        let begins = |at: usize| at == 0 || data.get(at - 1) == Some(&b'\n');
        hits.extend(memchr::memmem::find_iter(data, d).filter(|&at| begins(at)).map(|at| (at, at + d.len())));
    }
    // Of a boundary that begins with another, the longer one counts.
    hits.sort_unstable_by_key(|&(at, end)| (at, std::cmp::Reverse(end)));
    hits.dedup_by_key(|hit| hit.0);
    let first = hits.first().map_or(data.len(), |hit| hit.0);
    let before = data.get(..first).unwrap_or(data);
    if *inside != Inside::File {
        args.text(if first < data.len() { line_end(before) } else { before });
    }
    for (i, &(at, begin)) in hits.iter().enumerate() {
        let next = hits.get(i + 1).map(|hit| hit.0);
        let end = next.unwrap_or(data.len());
        if next.is_none() && !last && at > data.len() / 2 {
            // The next window has the whole part.
            *inside = Inside::Preamble;
            return at;
        }
        let content = data.get(begin..end).unwrap_or(&[]);
        *inside = part(if next.is_some() || last { line_end(content) } else { content }, args);
    }
    match inside {
        _ if last => data.len(),
        Inside::Value => overlap,
        // The next delimiter may be cut.
        _ => data.len().saturating_sub(delimiters.iter().map(Vec::len).max().unwrap_or(0) + 4),
    }
}

/// A part without the line end that belongs to the next delimiter.
fn line_end(part: &[u8]) -> &[u8] {
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    part.strip_suffix(b"\r").unwrap_or(part)
}

/// Reads a part from behind its delimiter. Returns where its end is.
fn part(part: &[u8], args: &mut Args) -> Inside {
    if part.starts_with(b"--") && part.trim_ascii() == b"--" {
        return Inside::Preamble;
    }
    // Some servers accept line feeds alone.
    let blank = |pattern: &[u8]| memchr::memmem::find(part, pattern).map(|at| (at, at + pattern.len()));
    let header_end = match (blank(b"\n\r\n"), blank(b"\n\n")) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let Some((header, begin)) = header_end else {
        // A line that only looks like a delimiter belongs to the value before it.
        args.text(part.trim_ascii());
        return Inside::Value;
    };
    let (header, content) = (part.get(..header).unwrap_or(&[]), part.get(begin..).unwrap_or(&[]));
    let field = Field::read(header);
    for name in &field.names {
        args.add(|out| decode::percent_decode(name, false, out));
    }
    if field.json && json::are_documents(content.trim_ascii()) {
        args.json(content);
    } else if field.xml && content.trim_ascii_start().starts_with(b"<") {
        args.xml(content);
    } else if !field.is_file {
        args.text(content);
    }
    match field.coding {
        // Go decodes it (mime/multipart).
        Some(Coding::Quoted) => args.add(|out| quoted_printable(content, out)),
        Some(Coding::Base64) => args.add(|out| decode::base64(content, out)),
        None => {}
    }
    if field.is_file { Inside::File } else { Inside::Value }
}

/// A `Content-Transfer-Encoding` (RFC 2045, section 6), which RFC 7578 deprecates and servers decode.
enum Coding {
    Quoted,
    Base64,
}

/// The header of a part.
#[derive(Default)]
struct Field {
    /// Names and file names.
    names: Vec<Vec<u8>>,
    is_file: bool,
    json: bool,
    xml: bool,
    coding: Option<Coding>,
}

impl Field {
    fn read(header: &[u8]) -> Field {
        let mut field = Field::default();
        let mut dispositions = 0;
        let mut files = 0;
        for line in unfolded(header) {
            let Some(colon) = memchr::memchr(b':', &line) else { continue };
            let (name, value) = line.split_at(colon);
            let (name, value) = (name.trim_ascii().to_ascii_lowercase(), value.get(1..).unwrap_or(&[]));
            match &*name {
                b"content-disposition" => {
                    dispositions += 1;
                    let both = [true, false].map(|escapes| parameters(value, escapes, &mut field.names));
                    files += usize::from(both == [true; 2]);
                }
                b"content-type" => {
                    let value = value.to_ascii_lowercase();
                    field.json |= memchr::memmem::find(&value, b"json").is_some();
                    field.xml |= memchr::memmem::find(&value, b"xml").is_some();
                }
                b"content-transfer-encoding" => {
                    let value = value.trim_ascii().to_ascii_lowercase();
                    match &*value {
                        b"quoted-printable" => field.coding = Some(Coding::Quoted),
                        b"base64" => field.coding = Some(Coding::Base64),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        field.is_file = dispositions > 0 && files == dispositions;
        field
    }
}

/// The lines of a header; one that continues has lost its line end.
fn unfolded(header: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in header.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match lines.last_mut().filter(|_| matches!(line.first(), Some(b' ' | b'\t'))) {
            Some(before) => before.extend_from_slice(line),
            None => lines.push(line.to_vec()),
        }
    }
    lines
}

/// Collects the names and file names among the parameters of a `Content-Disposition`. Returns whether it has a file name. A
/// backslash escapes in a quoted string (RFC 9110, section 5.6.4), but not for every server.
fn parameters(value: &[u8], escapes: bool, names: &mut Vec<Vec<u8>>) -> bool {
    let mut is_file = false;
    let mut at = memchr::memchr(b';', value).map_or(value.len(), |i| i + 1);
    while at < value.len() {
        let rest = value.get(at..).unwrap_or(&[]);
        let end = rest.iter().position(|&b| matches!(b, b'=' | b';')).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or(rest).trim_ascii().to_ascii_lowercase();
        at += end + 1;
        if rest.get(end) != Some(&b'=') {
            continue;
        }
        let rest = value.get(at..).unwrap_or(&[]);
        let blank = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let mut text = Vec::new();
        if rest.get(blank) == Some(&b'"') {
            at += blank + 1;
            while let Some(&b) = value.get(at) {
                at += 1;
                match b {
                    b'"' => break,
                    b'\\' if escapes => {
                        text.extend(value.get(at));
                        at += 1;
                    }
                    _ => text.push(b),
                }
            }
            let rest = value.get(at..).unwrap_or(&[]);
            at += memchr::memchr(b';', rest).map_or(rest.len(), |i| i + 1);
        } else {
            let end = memchr::memchr(b';', rest).unwrap_or(rest.len());
            text.extend_from_slice(rest.get(..end).unwrap_or(rest).trim_ascii());
            at += end + 1;
        }
        if matches!(&*name, b"name" | b"name*" | b"filename" | b"filename*") {
            is_file |= name.starts_with(b"file") && !text.is_empty();
            if !text.is_empty() && !names.contains(&text) {
                names.push(text);
            }
        }
    }
    is_file
}

/// Appends decoded Quoted-Printable (RFC 2045, section 6.7).
fn quoted_printable(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        at += 1;
        if b != b'=' {
            out.push(b);
            continue;
        }
        let rest = data.get(at..).unwrap_or(&[]);
        if let Some(byte) = decode::hex(data, at, 2) {
            out.push(byte as u8);
            at += 2;
        } else if rest.starts_with(b"\r\n") {
            at += 2;
        } else if rest.starts_with(b"\n") {
            at += 1;
        } else {
            out.push(b);
        }
    }
}
