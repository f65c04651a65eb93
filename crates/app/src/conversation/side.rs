//! The parser's position in one direction of a stream, and where it continues after a gap.

use super::replay::ReplayBuffer;

/// The parser's state for one direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Stream offset of the first byte of the parser's input, without the lengths of gaps.
    pub(super) start: u64,
    /// Bytes that the parser received and did not consume.
    pub(super) waiting: usize,
    /// Length of the message at the front of the waiting bytes, with the bytes to skip and the body after it; 0 if unknown.
    pub(super) message: u64,
    /// Stream offset of the end of the current record ([`super::Framing::Record`]), counted like `start`; not after it if there
    /// is none.
    pub(super) record: u64,
    /// Bytes to skip.
    pub(super) pass: u64,
    /// Bytes of a body that follow the skipped bytes.
    pub(super) body: u64,
    /// Set after a gap, until the parser finds the next message.
    pub(super) lost: bool,
    /// The parser received data.
    pub(super) is_heard: bool,
    /// Bytes that depend on a reply.
    pub(super) replay: Option<Box<ReplayBuffer>>,
}

impl Side {
    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        self.replay.as_ref().map_or(0, |k| k.held())
    }

    /// Bytes that were received or taken back, and not consumed.
    fn unconsumed(&self) -> u64 {
        (self.waiting + self.replay.as_ref().map_or(0, |k| k.again.len())) as u64
    }

    /// Consumes the first bytes of the input. With `keep`, those that depend on a reply are kept.
    pub(super) fn consumes(&mut self, bytes: &[u8], keep: bool) {
        if let Some(replay) = self.replay.as_mut().filter(|_| keep) {
            replay.note(self.start, bytes);
        }
        self.start += bytes.len() as u64;
    }

    /// Gives up the position in the stream: the bytes from offset `from` on come again. As [`ReplayBuffer::take_back`].
    pub(super) fn take_back(&mut self, from: u64) -> Option<usize> {
        (self.message, self.record, self.pass, self.body, self.lost) = (0, 0, 0, 0, false);
        let len = self.replay.as_mut()?.take_back(from, self.start)?;
        self.start = from;
        Some(len)
    }

    /// Begins a record of `len` bytes at offset `at` of the parser's input.
    pub(super) fn begin_record(&mut self, at: usize, len: u64) {
        self.record = (self.start + at as u64).saturating_add(len);
    }

    /// The part of `rest`, at offset `at` of the parser's input, that belongs to the current record, and the bytes left of it.
    /// All of `rest` and 0 if there is no record.
    pub(super) fn within_record<'a>(&self, at: usize, rest: &'a [u8]) -> (&'a [u8], u64) {
        let left = self.record.saturating_sub(self.start + at as u64);
        match usize::try_from(left) {
            Ok(len @ 1..) => (rest.get(..len).unwrap_or(rest), left),
            _ => (rest, left),
        }
    }

    /// Handles a gap of `len` bytes in a record. Returns whether the gap ends within it; otherwise the record ends here.
    pub(super) fn loses_in_record(&mut self, len: u64) -> bool {
        let left = self.record.saturating_sub(self.start);
        let is_within = left > 0 && left.checked_sub(self.unconsumed()).is_some_and(|missing| len <= missing);
        self.record = if is_within { self.record - len } else { 0 };
        is_within
    }

    /// Skips the rest of the record.
    pub(super) fn skips_record(&mut self) {
        (self.pass, self.message) = (self.record.saturating_sub(self.start), 0);
    }

    /// Handles a gap of `len` bytes. Returns whether all of them belong to skipped data.
    pub(super) fn passes_gap(&mut self, len: u64) -> bool {
        // The parser receives the waiting bytes again before those after the gap.
        let waiting = self.unconsumed();
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
        let waiting = self.unconsumed();
        let stale = std::mem::replace(&mut self.pass, waiting);
        let gone = len.saturating_add(waiting).saturating_sub(stale);
        let missing = gone.min(self.body);
        self.body -= missing;
        (missing, gone - missing)
    }

    /// Handles a gap of `len` bytes that are not part of skipped data or of a body. The parser skips the rest of the waiting
    /// message, or has to find the next one.
    pub(super) fn loses(&mut self, len: u64) {
        let (waiting, message) = (self.unconsumed(), self.message);
        let is_within =
            self.pass == 0 && !self.lost && message.checked_sub(waiting).is_some_and(|missing| len <= missing);
        self.pass = if is_within { message - len } else { waiting };
        self.lost |= !is_within;
        self.message = 0;
    }
}
