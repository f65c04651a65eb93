//! Splits data into lines, with any kind of line end.

use super::headers::space;

/// The end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// CR LF.
    CrLf,
    /// LF alone.
    Lf,
    /// LF CR.
    LfCr,
    /// One or more CR alone.
    Cr,
    /// The end of the stream.
    End,
}

/// A line at the front of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Length without its end.
    pub content: usize,
    /// Length with its end.
    pub total: usize,
    /// Its end.
    pub ending: Ending,
}

/// The first line of `data`; `None` if it is incomplete. `scan` is the offset up to which `data` has no line end; 0 for new
/// data. With `lenient`, CR alone and LF CR end a line too, as browsers accept in responses.
pub(super) fn next_line(data: &[u8], scan: &mut usize, lenient: bool, end: bool) -> Option<Line> {
    let from = (*scan).min(data.len());
    let rest = data.get(from..)?;
    let found =
        if lenient { memchr::memchr2(b'\n', b'\r', rest) } else { memchr::memchr(b'\n', rest) }.map(|i| from + i);
    let line = match found {
        None => None,
        Some(at) if data.get(at) == Some(&b'\n') => after_lf(data, at, lenient, end),
        Some(at) => after_cr(data, at, end),
    };
    match (line, found) {
        (Some(l), _) => {
            *scan = 0;
            Some(l)
        }
        (None, found) => {
            // A run of CRs is examined again from its last one.
            *scan = match found {
                Some(at) if data.get(at) == Some(&b'\n') => at,
                Some(_) => data.len().saturating_sub(1),
                None => data.len(),
            };
            (end && !data.is_empty()).then(|| {
                *scan = 0;
                Line { content: data.len(), total: data.len(), ending: Ending::End }
            })
        }
    }
}

fn after_lf(data: &[u8], at: usize, lenient: bool, end: bool) -> Option<Line> {
    if let Some(before) = at.checked_sub(1)
        && data.get(before) == Some(&b'\r')
    {
        return Some(Line { content: before, total: at + 1, ending: Ending::CrLf });
    }
    let lf = Line { content: at, total: at + 1, ending: Ending::Lf };
    if !lenient || at == 0 {
        return Some(lf);
    }
    match (data.get(at + 1), data.get(at + 2)) {
        (Some(b'\r'), Some(b'\n')) => Some(lf),
        (Some(b'\r'), Some(_)) => Some(Line { content: at, total: at + 2, ending: Ending::LfCr }),
        (Some(b'\r'), None) | (None, _) if !end => None,
        _ => Some(lf),
    }
}

fn after_cr(data: &[u8], at: usize, end: bool) -> Option<Line> {
    let first = run_start(data, at);
    let run = data.get(at..)?.iter().take_while(|&&b| b == b'\r').count();
    let behind = at + run;
    match data.get(behind) {
        Some(b'\n') => Some(Line { content: behind - 1, total: behind + 1, ending: Ending::CrLf }),
        Some(_) => Some(Line { content: first, total: behind, ending: Ending::Cr }),
        None if end => Some(Line { content: first, total: behind, ending: Ending::Cr }),
        None => None,
    }
}

fn run_start(data: &[u8], at: usize) -> usize {
    let head = data.get(..at).unwrap_or(&[]);
    at - head.iter().rev().take_while(|&&b| b == b'\r').count()
}

/// Whether a line has only white space.
pub(super) fn is_blank(content: &[u8]) -> bool {
    content.iter().all(|&b| space(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(data: &[u8], lenient: bool) -> Vec<(Vec<u8>, Ending)> {
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(l) = next_line(&data[at..], &mut 0, lenient, true) {
            out.push((data[at..at + l.content].to_vec(), l.ending));
            at += l.total;
        }
        out
    }

    #[test]
    fn endings() {
        use Ending::*;
        let v = |s: &str| s.as_bytes().to_vec();
        assert_eq!(lines(b"a\r\nb\nc\rd", false), [(v("a"), CrLf), (v("b"), Lf), (v("c\rd"), End)]);
        assert_eq!(
            lines(b"a\r\nb\nc\rd\n\re\r\r\n\rf\n\r\n", true),
            [
                (v("a"), CrLf),
                (v("b"), Lf),
                (v("c"), Cr),
                (v("d"), LfCr),
                (v("e\r"), CrLf),
                (v(""), Cr),
                (v("f"), Lf),
                (v(""), CrLf)
            ]
        );
    }

    #[test]
    fn a_line_in_pieces_is_the_same() {
        let text = b"a\n\rb\r\r\rc\n\r\nd\r\re\r\r\n\n";
        let mut got = Vec::new();
        let (mut at, mut scan) = (0, 0);
        for n in 0..=text.len() {
            while let Some(l) = next_line(&text[at..n], &mut scan, true, n == text.len()) {
                got.push((text[at..at + l.content].to_vec(), l.ending));
                at += l.total;
            }
        }
        assert_eq!(got, lines(text, true));
    }
}
