//! Lines of either direction.

/// The longest line that is parsed, including its line break; the rest is skipped. Mail lines arrive in pieces of this length.
/// RFC 5321, section 4.5.3.1 allows 512 bytes, extensions more.
pub(super) const MAX_LINE: usize = 4096;

/// A line of a direction, or the available part of one that is too long.
pub(super) struct Line<'a> {
    /// The text without its line break.
    pub(super) text: &'a [u8],
    pub(super) ending: &'a [u8],
    /// Length including the line break.
    pub(super) total: usize,
    /// The line continues.
    pub(super) cut: bool,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The offset up to which the waiting data has no line end.
    pub(super) scan: usize,
    /// The rest of the current line is skipped.
    pub(super) skip: bool,
}

impl Side {
    /// The line at the front of `data`; with `end`, also an unfinished one.
    pub(super) fn line<'a>(&mut self, data: &'a [u8], end: bool) -> Option<Line<'a>> {
        let within = data.get(..MAX_LINE).unwrap_or(data);
        let known = std::mem::take(&mut self.scan).min(within.len());
        let found = within.get(known..).and_then(|d| memchr::memchr(b'\n', d)).map(|n| n + known);
        match found {
            Some(n) => {
                let text = data.get(..n)?;
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                Some(Line { text, ending: data.get(text.len()..=n)?, total: n + 1, cut: false })
            }
            None if within.len() == MAX_LINE || (end && !within.is_empty()) => {
                let cut = within.len() == MAX_LINE;
                Some(Line { text: within, ending: b"", total: within.len(), cut })
            }
            None => {
                self.scan = within.len();
                None
            }
        }
    }

    /// Skips the rest of a line. Returns the number of skipped bytes.
    pub(super) fn pass_over(&mut self, data: &[u8]) -> usize {
        self.scan = 0;
        match memchr::memchr(b'\n', data) {
            Some(n) => {
                self.skip = false;
                n + 1
            }
            None => data.len(),
        }
    }
}
