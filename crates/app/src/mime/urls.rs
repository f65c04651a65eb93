//! URLs in text that arrives in pieces.

use super::Part;

/// The longest reported URL, including its scheme; longer ones are truncated. RFC 9110, section 4.1 recommends 8000.
const MAX_URL: usize = 8000;
/// Longest scheme.
const MAX_SCHEME: usize = 64;

/// Searches for URLs with given schemes (`http://`).
#[derive(Debug, Clone, Default)]
pub(super) struct Urls {
    /// The current URL, from its scheme on.
    open: Vec<u8>,
    /// Length of its scheme.
    scheme: usize,
    /// The bytes before the current position: a scheme may begin there.
    tail: Vec<u8>,
}

/// Bytes that end a URL: white space, and delimiters in text and HTML.
const fn ends(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'<' | b'>' | b']')
}

impl Urls {
    /// Searches a piece of text. `schemes` are in lower case with their delimiters (`http://`).
    pub(super) fn push(&mut self, piece: &[u8], schemes: &[Vec<u8>], sink: &mut dyn FnMut(Part<'_>)) {
        let mut rest = piece;
        // The part of `rest` in which no scheme ends.
        let mut searched = 0;
        while !rest.is_empty() {
            if !self.open.is_empty() {
                let end = rest.iter().position(|&b| ends(b));
                let (more, after) = rest.split_at(end.unwrap_or(rest.len()));
                let room = MAX_URL.saturating_sub(self.open.len());
                let from = self.open.len();
                self.open.extend_from_slice(more.get(..room).unwrap_or(more));
                self.open.get_mut(from..).unwrap_or_default().make_ascii_lowercase();
                rest = after;
                if end.is_some() {
                    self.finish(sink);
                }
                continue;
            }
            // Schemes end with one of these.
            let Some(colon) = rest.get(searched..).and_then(|r| memchr::memchr2(b'/', b':', r)) else {
                self.keep(rest);
                return;
            };
            searched += colon + 1;
            let (before, after) = rest.split_at(searched);
            if let Some(scheme) = schemes.iter().filter(|s| self.ends_in(before, s)).max_by_key(|s| s.len()) {
                self.open.clone_from(scheme);
                self.scheme = scheme.len();
                self.tail.clear();
                (rest, searched) = (after, 0);
            }
        }
    }

    /// Whether the text so far, which ends with `before`, ends with a scheme.
    fn ends_in(&self, before: &[u8], scheme: &[u8]) -> bool {
        if before.last() != scheme.last() || scheme.len() > MAX_SCHEME {
            return false;
        }
        let here = scheme.len().min(before.len());
        let (earlier, later) = scheme.split_at(scheme.len() - here);
        before.get(before.len() - here..).is_some_and(|b| b.eq_ignore_ascii_case(later)) && self.tail.ends_with(earlier)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let from = bytes.len().saturating_sub(MAX_SCHEME);
        self.tail.extend(bytes.get(from..).unwrap_or(bytes).iter().map(u8::to_ascii_lowercase));
        let over = self.tail.len().saturating_sub(MAX_SCHEME);
        self.tail.drain(..over);
    }

    /// Ends the text.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        if self.open.len() > self.scheme {
            sink(Part::Url { url: &self.open, scheme: self.scheme });
        }
        self.scheme = 0;
        self.open.clear();
        self.tail.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, piece: usize, schemes: &[&str]) -> Vec<String> {
        let schemes: Vec<Vec<u8>> = schemes.iter().map(|s| format!("{s}://").into_bytes()).collect();
        let (mut urls, mut seen) = (Urls::default(), Vec::new());
        let mut sink = |p: Part<'_>| {
            if let Part::Url { url, .. } = p {
                seen.push(String::from_utf8_lossy(url).into_owned());
            }
        };
        for p in text.as_bytes().chunks(piece) {
            urls.push(p, &schemes, &mut sink);
        }
        urls.finish(&mut sink);
        seen
    }

    #[test]
    fn finds() {
        let text = "see http://a.com. <HTTP://B.com/X?y> \"http://d.com\"http:// xhttp://j.com] https://s http://h.com'i ftp://f";
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(
                run(text, piece, &["http"]),
                ["http://a.com.", "http://b.com/x?y", "http://d.com", "http://j.com", "http://h.com"]
            );
            assert_eq!(run("ahttps://s ftp://f http:/x", piece, &["http", "https", "ftp"]), ["https://s", "ftp://f"]);
        }
        assert_eq!(run(&format!("http://{}", "a".repeat(9000)), 100, &["http"])[0].len(), MAX_URL);
    }
}
