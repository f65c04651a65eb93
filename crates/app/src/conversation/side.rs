//! The parser's position in one direction of a stream, and where it continues after a gap.

/// The parser's state for one direction of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Side {
    /// Bytes that the parser received and did not consume.
    pub(super) waiting: usize,
    /// Length of the message at the front of the waiting bytes, with the bytes to skip and the body after it; 0 if unknown.
    pub(super) message: u64,
    /// Bytes to skip.
    pub(super) pass: u64,
    /// Bytes of a body that follow the skipped bytes.
    pub(super) body: u64,
    /// Set after a gap, until the parser finds the next message.
    pub(super) lost: bool,
}

impl Side {
    /// Handles a gap of `len` bytes. Returns whether all of them belong to skipped data.
    pub(super) fn passes_gap(&mut self, len: u64) -> bool {
        // The parser receives the waiting bytes again before those after the gap.
        let waiting = self.waiting as u64;
        match self.pass.saturating_sub(waiting).checked_sub(len) {
            Some(left) if self.pass > 0 => {
                self.pass = waiting + left;
                true
            }
            _ => false,
        }
    }

    /// Handles a gap of `len` bytes in a body. Returns the missing bytes of the body and those after it. They include the waiting
    /// bytes: these come again out of order, so the parser skips them.
    pub(super) fn loses_body(&mut self, len: u64) -> (u64, u64) {
        let stale = std::mem::replace(&mut self.pass, self.waiting as u64);
        let gone = len.saturating_add(self.pass.saturating_sub(stale));
        let missing = gone.min(self.body);
        self.body -= missing;
        (missing, gone - missing)
    }

    /// Handles a gap of `len` bytes that are not part of skipped data or of a body. The parser skips the rest of the waiting
    /// message, or has to find the next one.
    pub(super) fn loses(&mut self, len: u64) {
        let (waiting, message) = (self.waiting as u64, self.message);
        let is_within =
            self.pass == 0 && !self.lost && message.checked_sub(waiting).is_some_and(|missing| len <= missing);
        self.pass = if is_within { message - len } else { waiting };
        self.lost |= !is_within;
        self.message = 0;
    }
}
