//! Urgent bytes that a receiver removes from the stream (RFC 6093), as Linux does.
//!
//! A receiver knows one urgent pointer at a time. It removes the named byte when that is in order, whichever segment
//! brings it. A pointer to data in order has no effect. A pointer beyond a pending one replaces it; the first one's byte
//! is then ordinary data.

use std::collections::VecDeque;

/// Maps sequence offsets to stream offsets, which lack the removed urgent bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Urgent {
    /// Sequence offset of the byte that the latest pointer names, until that byte is in order.
    pending: Option<u64>,
    /// The value of `pending` when the stream ended.
    at_end: Option<u64>,
    /// Sequence offsets of removed bytes, in order.
    taken: VecDeque<u64>,
    /// How many removed bytes came before those.
    forgotten: u64,
}

impl Urgent {
    /// The number of removed bytes.
    pub(super) fn count(&self) -> u64 {
        self.forgotten + self.taken.len() as u64
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        (size_of::<Urgent>() + self.taken.capacity() * size_of::<u64>()) as u64
    }

    /// Records a pointer to the byte at `at`; `next` is the first byte not in order. Returns whether the pointer counts.
    pub(super) fn point(&mut self, at: u64, next: u64) -> bool {
        let counts = at >= next && self.is_behind(at);
        if counts {
            (self.pending, self.at_end) = (Some(at), None);
        }
        counts
    }

    /// Whether `at` is beyond the byte of a pending pointer.
    pub(super) fn is_behind(&self, at: u64) -> bool {
        self.pending.is_none_or(|p| at > p)
    }

    /// The sequence offset of the byte that the latest pointer names, if it was not in order, or was not before the
    /// stream ended.
    pub(super) fn pending(&self) -> Option<u64> {
        self.at_end.or(self.pending)
    }

    /// The sequence offset of the byte that the latest pointer named; 0 if that offset was forgotten; `None` without a
    /// pointer.
    pub(super) fn latest(&self) -> Option<u64> {
        let forgotten = (self.forgotten > 0).then_some(0);
        self.pending().or(self.taken.back().copied()).or(forgotten)
    }

    /// Ends the stream: early data counts as in order although data before it is missing.
    pub(super) fn finish(&mut self) {
        self.at_end = self.pending();
    }

    /// If the urgent byte is in the newly ordered range from `from` to `to`, removes it and returns its sequence offset.
    pub(super) fn take(&mut self, from: u64, to: u64) -> Option<u64> {
        let at = self.pending.filter(|p| *p < to)?;
        self.pending = None;
        // A byte that the receiver had before the engine saw it is not in the stream.
        (at >= from).then(|| {
            self.taken.push_back(at);
            at
        })
    }

    /// Moves a pending pointer.
    pub(super) fn shift(&mut self, to: &impl Fn(u64) -> u64) {
        self.pending = self.pending.map(to);
    }

    /// The number of removed bytes before the sequence offset `at`.
    fn before(&self, at: u64) -> u64 {
        self.forgotten + self.taken.partition_point(|t| *t < at) as u64
    }

    /// The stream offset of a sequence offset.
    pub(super) fn stream_of(&self, at: u64) -> u64 {
        at.saturating_sub(self.before(at))
    }

    /// The sequence offset of a stream offset.
    pub(super) fn sequence_of(&self, at: u64) -> u64 {
        // For each removed byte, the stream offset where it is missing.
        let missing = |i: usize| self.taken.get(i).map_or(u64::MAX, |t| t - self.forgotten - i as u64);
        let (mut low, mut high) = (0, self.taken.len());
        while low < high {
            let middle = (low + high) / 2;
            if missing(middle) <= at { low = middle + 1 } else { high = middle }
        }
        at.saturating_add(self.forgotten + low as u64)
    }

    /// The first removed byte at or after the sequence offset `at`.
    pub(super) fn next_taken(&self, at: u64) -> Option<u64> {
        self.taken.get(self.taken.partition_point(|t| *t < at)).copied()
    }

    /// Forgets removed bytes before the sequence offset `at`.
    pub(super) fn forget_before(&mut self, at: u64) {
        while self.taken.front().is_some_and(|t| *t < at) {
            self.taken.pop_front();
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_there_and_back() {
        let mut u = Urgent::default();
        for at in [3, 4, 10] {
            assert!(u.point(at, at));
            assert_eq!(u.take(at, at + 1), Some(at));
        }
        let there: Vec<u64> = (0..14).map(|n| u.stream_of(n)).collect();
        assert_eq!(there, [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 8, 9, 10]);
        for n in (0..14).filter(|n| ![3, 4, 10].contains(n)) {
            assert_eq!(u.sequence_of(u.stream_of(n)), n);
        }
        u.forget_before(4);
        assert_eq!((u.count(), u.stream_of(12), u.sequence_of(9)), (3, 9, 12));
        assert_eq!((u.next_taken(0), u.next_taken(5), u.next_taken(11)), (Some(4), Some(10), None));
    }

    #[test]
    fn one_pointer_at_a_time() {
        let mut u = Urgent::default();
        assert!(u.point(10, 5) && !u.point(10, 5) && !u.point(7, 5) && u.point(20, 5));
        assert!(!u.point(4, 5), "it is in order already");
        assert_eq!((u.take(5, 20), u.take(20, 30), u.take(20, 30)), (None, Some(20), None));
        assert!(u.point(40, 30));
        assert_eq!((u.take(50, 60), u.count()), (None, 1), "it was before what was seen");
    }
}
