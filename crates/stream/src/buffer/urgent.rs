//! Urgent bytes that a receiver takes out of the stream (RFC 6093), as Linux does.
//!
//! A receiver knows one urgent pointer at a time. The byte that it points at is taken out when it is in order, whichever segment
//! brings it. A pointer to what is in order already says nothing, and one behind another that was not reached replaces that: the
//! byte of the first is then a byte like any other.

use std::collections::VecDeque;

/// Where bytes are missing in the stream that are there in sequence numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Urgent {
    /// Sequence offset that the latest pointer points at, until that is in order.
    pending: Option<u64>,
    /// What that was when the stream ended.
    at_end: Option<u64>,
    /// Sequence offsets of the bytes that were taken out, in order.
    taken: VecDeque<u64>,
    /// How many were taken out before those.
    forgotten: u64,
}

impl Urgent {
    /// How many bytes were taken out.
    pub(super) fn count(&self) -> u64 {
        self.forgotten + self.taken.len() as u64
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> u64 {
        (size_of::<Urgent>() + self.taken.capacity() * size_of::<u64>()) as u64
    }

    /// Takes a pointer to the byte at `at`, where `next` is the first that is not in order. Whether it counts.
    pub(super) fn point(&mut self, at: u64, next: u64) -> bool {
        let counts = at >= next && self.is_behind(at);
        if counts {
            (self.pending, self.at_end) = (Some(at), None);
        }
        counts
    }

    /// Whether `at` is behind what the latest pointer points at, if that was not reached.
    pub(super) fn is_behind(&self, at: u64) -> bool {
        self.pending.is_none_or(|p| at > p)
    }

    /// The sequence offset that the latest pointer points at, where that was not in order, or was not before the stream ended.
    pub(super) fn pending(&self) -> Option<u64> {
        self.at_end.or(self.pending)
    }

    /// The sequence offset that the latest pointer pointed at, as far as that is known: the last one before all that is kept where it is
    /// not.
    pub(super) fn latest(&self) -> Option<u64> {
        let forgotten = (self.forgotten > 0).then_some(0);
        self.pending().or(self.taken.back().copied()).or(forgotten)
    }

    /// The stream ends: early data is put in order though something before it is missing.
    pub(super) fn finish(&mut self) {
        self.at_end = self.pending();
    }

    /// Takes the urgent byte out of what gets in order, from `from` to `to`: its sequence offset, if it is among them.
    pub(super) fn take(&mut self, from: u64, to: u64) -> Option<u64> {
        let at = self.pending.filter(|p| *p < to)?;
        self.pending = None;
        // One that the receiver had before we saw it has no place here.
        (at >= from).then(|| {
            self.taken.push_back(at);
            at
        })
    }

    /// Moves the pointer that was not reached yet.
    pub(super) fn shift(&mut self, to: &impl Fn(u64) -> u64) {
        self.pending = self.pending.map(to);
    }

    /// How many of those before the sequence offset `at` were taken out.
    fn before(&self, at: u64) -> u64 {
        self.forgotten + self.taken.partition_point(|t| *t < at) as u64
    }

    /// The stream offset of a sequence offset.
    pub(super) fn stream_of(&self, at: u64) -> u64 {
        at.saturating_sub(self.before(at))
    }

    /// The sequence offset of a stream offset.
    pub(super) fn sequence_of(&self, at: u64) -> u64 {
        // Of each that was taken out: the stream offset where it is missing.
        let missing = |i: usize| self.taken.get(i).map_or(u64::MAX, |t| t - self.forgotten - i as u64);
        let (mut low, mut high) = (0, self.taken.len());
        while low < high {
            let middle = (low + high) / 2;
            if missing(middle) <= at { low = middle + 1 } else { high = middle }
        }
        at.saturating_add(self.forgotten + low as u64)
    }

    /// The first that was taken out from the sequence offset `at` on.
    pub(super) fn next_taken(&self, at: u64) -> Option<u64> {
        self.taken.get(self.taken.partition_point(|t| *t < at)).copied()
    }

    /// Nobody asks any more for what is before the sequence offset `at`.
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
