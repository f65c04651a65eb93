//! Commands that wait for their replies.
//!
//! The reply to DATA, BDAT or AUTH decides whether the bytes after the command are a mail, or commands. The parser reads them
//! at once, as if the server accepts, and takes them back if it refuses ([`crate::conversation::Turn::keep`]).

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

/// The limit of commands that wait for a reply; a further one drops the oldest.
const PENDING_MAX: usize = 1024;

/// Commands that wait for their replies.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Commands with the number of their transaction.
    list: VecDeque<(Asked, u64)>,
    /// How many of them are DATA.
    data: usize,
    /// How many of them are STARTTLS.
    tls: usize,
    /// The transaction of the latest RSET, and the number of commands added after it.
    reset: Option<(u64, usize)>,
}

impl Pending {
    /// Heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<(Asked, u64)>()
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

    /// Whether a STARTTLS waits for its reply.
    pub(super) const fn has_tls(&self) -> bool {
        self.tls > 0
    }

    /// Adds a command. Returns whether the oldest one was dropped.
    pub(super) fn push(&mut self, asked: Asked, id: u64) -> bool {
        let full = self.list.len() >= PENDING_MAX;
        if full {
            self.pop();
        }
        self.data += usize::from(matches!(asked, Asked::Data(_)));
        self.tls += usize::from(matches!(asked, Asked::StartTls));
        self.reset = match (asked, self.reset) {
            (Asked::Rset, _) => Some((id, 0)),
            (_, before) => before.map(|(of, behind)| (of, behind.saturating_add(1))),
        };
        self.list.push_back((asked, id));
        full
    }

    /// Adds a command at the front that is neither DATA, nor STARTTLS, nor RSET.
    pub(super) fn push_front(&mut self, asked: Asked, id: u64) {
        self.list.push_front((asked, id));
    }

    /// Removes the command that a reply answers.
    pub(super) fn pop(&mut self) -> Option<(Asked, u64)> {
        let first = self.list.pop_front()?;
        self.data -= usize::from(matches!(first.0, Asked::Data(_)));
        self.tls -= usize::from(matches!(first.0, Asked::StartTls));
        Some(first)
    }

    /// Removes all commands.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        (self.data, self.tls, self.reset) = (0, 0, None);
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
        assert!(!p.has_reset(3) && p.list.len() == PENDING_MAX);
        p.clear();
        assert!(p.is_empty());
    }
}
