//! Status lines.

use super::headers::{space, trim};
use super::request::{Part, Version, part, version};

/// A parsed status line (RFC 9112, section 4).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StatusLine {
    pub protocol: Part,
    pub status: Part,
    pub message: Part,
    pub version: Version,
    /// The status as a three-digit number.
    pub number: Option<u16>,
}

/// Parses a status line.
pub(super) fn status_line(line: &[u8]) -> StatusLine {
    let mut out = StatusLine::default();
    let skip = |from: usize| from + line.get(from..).unwrap_or(&[]).iter().take_while(|&&b| space(b) || b == 0).count();
    let word = |from: usize| line.get(from..).unwrap_or(&[]).iter().take_while(|&&b| !space(b)).count();
    let p = skip(0);
    let n = word(p);
    out.protocol = (p as u32, n as u32);
    out.version = version(part(line, out.protocol));
    let s = skip(p + n);
    let n = word(s);
    out.status = (s as u32, n as u32);
    out.number = match part(line, out.status) {
        &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
        }
        _ => None,
    };
    let m = skip(s + n);
    let message = trim(line.get(m..).unwrap_or(&[]));
    out.message = (m as u32, message.len() as u32);
    out
}

/// Whether a line, or its beginning, may be a status line: `HTTP` after optional white space and null bytes. `None` if more
/// data is needed.
pub(super) fn is_status(data: &[u8]) -> Option<bool> {
    let skip = data.iter().take_while(|&&b| space(b) || b == 0).count();
    let rest = data.get(skip..).unwrap_or(&[]);
    let n = rest.len().min(4);
    let matches = rest.get(..n).unwrap_or(&[]).eq_ignore_ascii_case(b"HTTP".get(..n).unwrap_or(&[]));
    if !matches {
        return Some(false);
    }
    (n == 4).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = b"\0HTTP/1.1\x0b 200 \tVery OK ";
        let l = status_line(line);
        assert_eq!(part(line, l.protocol), b"HTTP/1.1");
        assert_eq!(l.number, Some(200));
        assert_eq!(part(line, l.message), b"Very OK");
        for (line, number) in
            [(&b"HTTP/1.1 2XX"[..], None), (b"HTTP/1.1 0200 x", None), (b"HTTP/1.1", None), (b"", None)]
        {
            assert_eq!(status_line(line).number, number);
        }
    }

    #[test]
    fn status_lines_are_told_from_bodies() {
        assert_eq!(is_status(b" \0http/1.1"), Some(true));
        assert_eq!(is_status(b"HT"), None);
        assert_eq!(is_status(b"<html>"), Some(false));
    }
}
