//! Bytes that one side sent before the reply that decides how the other side reads them.
//!
//! The parser reads them at once, as if the reply was good, so that rules inspect them in time. If the reply is a refusal, the
//! peer has read the same bytes differently, and the parser takes them back to do the same.

use std::collections::VecDeque;

/// The limit of bytes kept until a reply comes: no client sends as many without one.
const KEPT_MAX: usize = 64 << 10;

/// Such bytes of a direction.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    /// Stream offsets from which the bytes depend on a reply, in ascending order.
    marks: VecDeque<u64>,
    /// The bytes from the first mark on.
    bytes: Vec<u8>,
    /// There were more than the limit.
    over: bool,
    /// Bytes that the parser took back and did not consume yet. They precede the waiting bytes.
    pub(super) again: Vec<u8>,
}

impl ReplayBuffer {
    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        size_of::<ReplayBuffer>()
            + self.marks.capacity() * size_of::<u64>()
            + self.bytes.capacity()
            + self.again.capacity()
    }

    /// Keeps bytes from stream offset `from` on.
    pub(super) fn mark(&mut self, from: u64) {
        self.marks.push_back(from);
    }

    /// Keeps consumed bytes as far as they follow a mark; `at` is the stream offset of the first one.
    pub(super) fn note(&mut self, at: u64, bytes: &[u8]) {
        let Some(first) = self.marks.front().filter(|_| !self.over) else { return };
        let skip = usize::try_from(first.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = bytes.get(skip..).unwrap_or(&[]);
        if self.bytes.len() + bytes.len() > KEPT_MAX {
            (self.bytes, self.over) = (Vec::new(), true);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The bytes up to the first mark behind `from` were read rightly. `at` is the stream offset after all bytes.
    pub(super) fn settle(&mut self, from: u64, at: u64) {
        while self.marks.front().is_some_and(|mark| *mark <= from) {
            self.marks.pop_front();
        }
        match self.marks.front() {
            None => (self.bytes, self.over) = (Vec::new(), false),
            Some(mark) => {
                let gone = self.bytes.len().saturating_sub(span(*mark, at));
                self.bytes.drain(..gone);
            }
        }
    }

    /// The bytes from stream offset `from` on come again. Returns their number; `None` if not all of them were kept.
    pub(super) fn take_back(&mut self, from: u64, at: u64) -> Option<usize> {
        let (mut bytes, len) = (std::mem::take(&mut self.bytes), span(from, at));
        let is_whole = !self.over && bytes.len() >= len;
        self.marks.clear();
        self.over = false;
        if !is_whole {
            return None;
        }
        bytes.drain(..bytes.len() - len);
        bytes.append(&mut self.again);
        self.again = bytes;
        Some(len)
    }
}

/// The number of bytes between two stream offsets.
fn span(from: u64, to: u64) -> usize {
    usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_mark_are_kept_until_its_reply() {
        let mut k = ReplayBuffer::default();
        k.note(0, b"EHLO\n");
        k.mark(10);
        k.note(5, b"DATA\nabc\n");
        k.mark(17);
        k.note(14, b"BD\ndef");
        assert_eq!(k.bytes, b"abc\nBD\ndef");
        k.settle(10, 20);
        assert_eq!(k.bytes, b"def");
        assert_eq!(k.take_back(17, 20), Some(3));
        assert_eq!(std::mem::take(&mut k.again), b"def");
        assert_eq!(k.take_back(17, 20), None);
        k.note(17, b"def");
        assert!(k.bytes.is_empty());
        // Bytes that were taken back, and of which a part has not been consumed, can be taken back again.
        k.mark(18);
        k.note(17, b"de");
        k.again = b"f".to_vec();
        assert_eq!((k.take_back(18, 19), &k.again[..]), (Some(1), &b"ef"[..]));
    }

    #[test]
    fn the_bytes_have_a_limit() {
        let mut k = ReplayBuffer::default();
        k.mark(0);
        for n in 0..100 {
            k.note(n * 1000, &[b'x'; 1000]);
            assert!(k.bytes.len() <= KEPT_MAX);
        }
        assert_eq!(k.take_back(0, 100_000), None);
        // From there on, bytes are kept again.
        k.mark(100_000);
        k.note(100_000, b"y");
        assert_eq!((k.take_back(100_000, 100_001), &k.again[..]), (Some(1), &b"y"[..]));
        // If the peer sent nothing, nothing is missing, even without a mark. Bytes that were not noted are.
        assert_eq!(k.take_back(100_001, 100_001), Some(0));
        k.mark(5);
        k.note(9, b"z");
        assert_eq!(k.take_back(5, 10), None);
    }
}
