//! Compressed bodies of HTTP/1 responses, for the targets that decompress.

use super::Seed;

/// Longest compressed body to use, because fuzzers learn nothing more from longer ones.
const BODY_MAX: usize = 8 << 10;

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w.eq_ignore_ascii_case(needle))
}

/// Extracts the bodies with a `Content-Encoding` from a server's data.
pub(super) fn cut(mut said: &[u8], out: &mut Vec<Seed>) {
    while let Some(at) = find(said, b"\ncontent-encoding:") {
        let rest = said.get(at + 18..).unwrap_or(&[]);
        let Some(end) = rest.iter().position(|&b| b == b'\r' || b == b'\n') else { return };
        let (value, rest) = rest.split_at(end);
        let Some(blank) = find(rest, b"\r\n\r\n") else { return };
        let head = said.get(..at + 18 + end + blank).unwrap_or(said);
        let body = rest.get(blank + 4..).unwrap_or(&[]);
        let chunked = head.rsplit(|&b| b == b'\n').take(64).any(|line| {
            line.get(..18).is_some_and(|l| l.eq_ignore_ascii_case(b"transfer-encoding:"))
                && find(line, b"chunked").is_some()
        });
        let body = if chunked || find(rest.get(..blank).unwrap_or(&[]), b"chunked").is_some() {
            dechunk(body)
        } else {
            body.iter().copied().take(BODY_MAX).collect()
        };
        let value: Vec<u8> = value.trim_ascii().to_ascii_lowercase();
        let target = match &value[..] {
            b"gzip" | b"x-gzip" => Some("gzip"),
            b"deflate" => Some("deflate"),
            b"br" => Some("brotli"),
            b"lzma" => Some("lzma"),
            _ => None,
        };
        if !body.is_empty() {
            out.extend(target.map(|t| (t, [&[63], &body[..]].concat())));
            out.push(("layers", [&value[..], b"\n", &[63], &body].concat()));
        }
        said = rest.get(blank + 4..).unwrap_or(&[]);
    }
}

/// Joins the data of chunks (RFC 9112, section 7.1), as far as they are valid.
fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = find(body, b"\r\n") {
        let (size, rest) = body.split_at(end);
        let digits = std::str::from_utf8(size).ok().and_then(|s| s.split(';').next());
        let Some(size) = digits.and_then(|s| usize::from_str_radix(s.trim(), 16).ok()) else { break };
        let rest = rest.get(2..).unwrap_or(&[]);
        out.extend_from_slice(rest.get(..size).unwrap_or(rest));
        if size == 0 || out.len() >= BODY_MAX {
            break;
        }
        body = rest.get(size + 2..).unwrap_or(&[]);
    }
    out.truncate(BODY_MAX);
    out
}
