//! Data that a client sends before the reply to DATA, BDAT or AUTH.
//!
//! The reply decides whether the bytes after such a command are mail or commands. If the client does not wait for it, the
//! parser assumes that the server accepts, so that mail is inspected at once, and keeps the bytes. If the server refuses, it
//! reads the same bytes as commands, and the parser does the same.

use std::collections::VecDeque;

/// The command that a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// DATA, with the client's stream offset after its line.
    Data(u64),
    /// BDAT, with the same offset.
    Chunk(u64),
    /// AUTH, or one of its steps.
    Auth,
    Rset,
    StartTls,
    Quit,
    Other,
}

impl Asked {
    /// The client's stream offset from which bytes depend on the reply.
    pub(super) const fn from(self) -> Option<u64> {
        match self {
            Asked::Data(from) | Asked::Chunk(from) => Some(from),
            _ => None,
        }
    }
}

/// The limit of commands that wait for a reply; a further one drops the oldest.
const PENDING_MAX: usize = 1024;
/// The limit of bytes kept until a reply comes: no client pipelines that many commands.
const RECORD_MAX: usize = 64 << 10;

/// Commands that wait for their replies, and the client's bytes that depend on a reply.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Commands with the number of their transaction.
    list: VecDeque<(Asked, u64)>,
    /// Those commands whose reply decides about the bytes after them, in the same order.
    doubts: VecDeque<Asked>,
    /// How many of them are DATA.
    data: usize,
    /// The transaction of the latest RSET, and the number of commands added after it.
    reset: Option<(u64, usize)>,
    /// Stream offset of the client's next byte.
    at: u64,
    /// The client's bytes up to `at`, from the first one that depends on a reply.
    record: Vec<u8>,
    /// More bytes came than the limit.
    over: bool,
}

impl Pending {
    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<(Asked, u64)>()
            + self.doubts.capacity() * size_of::<Asked>()
            + self.record.capacity()
    }

    /// Stream offset of the client's next byte.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The command that the next reply answers.
    pub(super) fn front(&self) -> Option<Asked> {
        self.list.front().map(|p| p.0)
    }

    /// Whether an RSET of the transaction waits for its reply. Callers ask for transactions in ascending order.
    pub(super) fn has_reset(&self, id: u64) -> bool {
        self.reset.is_some_and(|(of, behind)| of == id && behind < self.list.len())
    }

    /// Whether a DATA waits for its reply.
    pub(super) const fn has_data(&self) -> bool {
        self.data > 0
    }

    /// Adds a command. Returns whether the oldest one was dropped.
    pub(super) fn push(&mut self, asked: Asked, id: u64) -> bool {
        let full = self.list.len() >= PENDING_MAX;
        if full {
            self.pop();
            self.settle();
        }
        if asked.from().is_some() {
            self.doubts.push_back(asked);
            self.data += usize::from(matches!(asked, Asked::Data(_)));
        }
        self.reset = match (asked, self.reset) {
            (Asked::Rset, _) => Some((id, 0)),
            (_, before) => before.map(|(of, behind)| (of, behind.saturating_add(1))),
        };
        self.list.push_back((asked, id));
        full
    }

    /// Adds a command at the front whose reply does not decide about any bytes.
    pub(super) fn push_front(&mut self, asked: Asked, id: u64) {
        self.list.push_front((asked, id));
    }

    /// Removes the command that a reply answers.
    pub(super) fn pop(&mut self) -> Option<(Asked, u64)> {
        let first = self.list.pop_front()?;
        if first.0.from().is_some() {
            self.doubts.pop_front();
            self.data -= usize::from(matches!(first.0, Asked::Data(_)));
        }
        Some(first)
    }

    fn forget(&mut self) {
        self.list.clear();
        self.doubts.clear();
        (self.data, self.reset) = (0, None);
    }

    /// The client's stream offset from which bytes depend on a reply.
    fn from(&self) -> Option<u64> {
        self.doubts.front().and_then(|d| d.from())
    }

    /// Removes all commands.
    pub(super) fn clear(&mut self) {
        self.forget();
        self.settle();
    }

    /// Records bytes of the client that were parsed. They are kept if a reply decides about them, unless replies are `lost`.
    pub(super) fn sent(&mut self, bytes: &[u8], lost: bool) {
        if !self.doubts.is_empty() && !lost && !self.over {
            // The decision covers the bytes after the command.
            let from = self.from().unwrap_or(0);
            let skip = usize::try_from(from.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len());
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            if self.record.len() + bytes.len() > RECORD_MAX {
                (self.record, self.over) = (Vec::new(), true);
            } else {
                self.record.extend_from_slice(bytes);
            }
        }
        self.at += bytes.len() as u64;
    }

    /// The server accepted: drops the bytes up to the next command that decides.
    pub(super) fn settle(&mut self) {
        match self.from() {
            None => (self.record, self.over) = (Vec::new(), false),
            Some(from) => {
                let kept = usize::try_from(self.at.saturating_sub(from)).unwrap_or(usize::MAX);
                let gone = self.record.len().saturating_sub(kept);
                self.record.drain(..gone);
            }
        }
    }

    /// The server refused: returns the bytes sent from `from` on, which are parsed again, and removes the commands in them.
    /// `None` if there were too many.
    pub(super) fn take_back(&mut self, from: u64) -> Option<Vec<u8>> {
        let mut record = std::mem::take(&mut self.record);
        let kept = usize::try_from(self.at.saturating_sub(from)).unwrap_or(usize::MAX);
        let whole = !std::mem::take(&mut self.over) && record.len() >= kept;
        self.forget();
        if !whole {
            return None;
        }
        self.at = from;
        record.drain(..record.len() - kept);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_waits_until_its_reply() {
        let mut p = Pending::default();
        p.push(Asked::Other, 1);
        p.push(Asked::Rset, 1);
        assert!(p.has_reset(1) && !p.has_reset(2));
        p.push(Asked::Data(5), 2);
        p.push_front(Asked::Other, 1);
        assert!(p.has_reset(1) && p.has_data());
        for waits in [true, true, false] {
            assert!(p.pop().is_some());
            assert_eq!(p.has_reset(1), waits);
        }
        assert!(p.has_data() && p.pop().is_some() && !p.has_data());
        // Dropping the oldest command does not scan the others, however many there are.
        p.push(Asked::Rset, 3);
        for n in 0..PENDING_MAX {
            assert_eq!((p.has_reset(3), p.push(Asked::Chunk(9), 4)), (true, n == PENDING_MAX - 1));
        }
        assert!(!p.has_reset(3) && p.list.len() == PENDING_MAX && p.doubts.len() == PENDING_MAX);
        p.clear();
        assert!(p.is_empty() && p.from().is_none());
    }

    #[test]
    fn bytes_behind_a_command_are_kept_until_its_reply() {
        let mut p = Pending::default();
        p.sent(b"EHLO\n", false);
        p.push(Asked::Data(p.at() + 5), 0);
        p.sent(b"DATA\n", false);
        p.sent(b"abc\n", false);
        p.push(Asked::Other, 0);
        p.push(Asked::Chunk(p.at() + 3), 0);
        p.sent(b"BD\ndef", false);
        assert_eq!(p.record, b"abc\nBD\ndef");
        assert_eq!(p.pop(), Some((Asked::Data(10), 0)));
        p.settle();
        assert_eq!(p.record, b"def");
        p.pop();
        assert_eq!(p.pop(), Some((Asked::Chunk(17), 0)));
        assert_eq!((p.take_back(17).as_deref(), p.at()), (Some(&b"def"[..]), 17));
        p.sent(b"def", false);
        assert!(p.record.is_empty());
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut p = Pending::default();
        p.push(Asked::Data(0), 0);
        for _ in 0..100 {
            p.sent(&[b'x'; 1000], false);
            assert!(p.record.len() <= RECORD_MAX);
        }
        p.pop();
        assert_eq!(p.take_back(0), None);
        // From there on, bytes are kept again.
        p.push(Asked::Data(p.at()), 0);
        p.sent(b"y", false);
        p.pop();
        assert_eq!(p.take_back(p.at() - 1).as_deref(), Some(&b"y"[..]));
        for _ in 0..2 * PENDING_MAX {
            p.push(Asked::Data(p.at()), 0);
            p.sent(b"z", true);
        }
        assert_eq!((p.list.len(), p.record.len()), (PENDING_MAX, 0));
    }
}
