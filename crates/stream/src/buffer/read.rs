//! Read access to the stored data, for readers and comparisons.

use super::StreamBuffer;

impl StreamBuffer {
    /// The contiguous bytes from stream offset `at` on, up to `limit`; may be empty. For early data, this may be only a
    /// part of the contiguous bytes.
    #[inline]
    pub fn contiguous(&self, at: u64, limit: u64) -> &[u8] {
        if self.older.is_empty() {
            if at < self.run.end() {
                return if self.run.start <= at && at < limit { self.run.range(at, limit) } else { &[] };
            }
            if self.early.is_empty() {
                return &[];
            }
        }
        if at < limit { self.contiguous_elsewhere(at, limit) } else { &[] }
    }

    fn contiguous_elsewhere(&self, at: u64, limit: u64) -> &[u8] {
        if at < self.run.end() {
            let run = self.run_at(self.run_ending_after(at));
            return if run.start <= at { run.range(at, limit) } else { &[] };
        }
        let (from, to) = (self.sequence_of(at), self.sequence_of(limit));
        match self.early.range(..=from).next_back() {
            Some((_, b)) if b.end() > from => b.range(from, to),
            _ => &[],
        }
    }

    /// Stream offset of the first stored byte at or after `at`.
    #[inline]
    pub fn next_at(&self, at: u64) -> Option<u64> {
        if self.older.is_empty() {
            if at < self.run.end() && self.run.len() > 0 {
                return Some(self.run.start.max(at));
            }
            if self.early.is_empty() {
                return None;
            }
        }
        self.next_at_elsewhere(at)
    }

    fn next_at_elsewhere(&self, at: u64) -> Option<u64> {
        if at < self.run.end() {
            let run = self.run_at(self.run_ending_after(at));
            if run.len() > 0 {
                return Some(run.start.max(at));
            }
        }
        let from = self.sequence_of(at);
        let holds = self.last_before(from + 1).is_some_and(|(_, end)| end > from);
        if holds {
            return Some(at);
        }
        self.first_from(from).map(|key| self.stream_of(key))
    }

    /// Start of the contiguous in-order data that contains the byte before the stream offset `at`; `at` if there is
    /// none.
    pub fn start_of(&self, at: u64) -> u64 {
        let i = self.older.partition_point(|b| b.end() < at);
        let run = self.run_at(i);
        if run.start <= at && at <= run.end() { run.start } else { at }
    }

    /// Appends early bytes to `out`: those from sequence offset `start` to `end`, which must all be stored, with up to
    /// `around` contiguous bytes before and after them. Returns the stream offset of the first appended byte.
    pub fn early_around(&self, start: u64, end: u64, around: u64, out: &mut Vec<u8>) -> u64 {
        let low = start.saturating_sub(around);
        let high = end.saturating_add(around);
        let mut from = start;
        while from > low
            && let Some((_, b)) = self.early.range(..from).next_back().filter(|(_, b)| b.end() >= from)
        {
            from = b.start.max(low);
        }
        let mut at = from;
        while at < high
            && let Some((_, b)) = self.early.range(..=at).next_back().filter(|(_, b)| b.end() > at)
        {
            let stop = b.end().min(high);
            out.extend_from_slice(b.range(at, stop));
            at = stop;
        }
        self.stream_of(from)
    }

    /// Calls `each` with every stored part of the `len` bytes at the sequence offset `start`: its position within them,
    /// and its bytes.
    fn held<'a>(&'a self, start: u64, len: usize, each: &mut dyn FnMut(usize, &'a [u8])) {
        let end = start + len as u64;
        let mut at = start;
        while at < end.min(self.next) {
            let taken = self.urgent.as_ref().and_then(|u| u.next_taken(at)).filter(|t| *t < end);
            let stop = taken.unwrap_or(end).min(self.next);
            let place = self.stream_of(at);
            let to = place + (stop - at);
            for i in self.run_ending_after(place)..=self.older.len() {
                let run = self.run_at(i);
                let a = run.start.max(place);
                let bytes = run.range(a, to);
                if a < to && !bytes.is_empty() {
                    each((at + (a - place) - start) as usize, bytes);
                }
            }
            at = if taken == Some(stop) { stop + 1 } else { stop };
        }
        let from = at.max(self.next);
        if from >= end || self.early.is_empty() {
            return;
        }
        let first = self.early.range(..=from).next_back().filter(|(_, b)| b.end() > from);
        for block in first.into_iter().map(|(_, b)| b).chain(self.early.range(from + 1..end).map(|(_, b)| b)) {
            let a = block.start.max(from);
            each((a - start) as usize, block.range(a, end));
        }
    }

    /// How many of `bytes`, at the sequence offset `start`, are stored, and whether all stored ones are equal.
    pub fn compare(&self, start: u64, bytes: &[u8]) -> (usize, bool) {
        let (mut count, mut same) = (0, true);
        self.held(start, bytes.len(), &mut |at, held| {
            count += held.len();
            same &= bytes.get(at..at + held.len()) == Some(held);
        });
        (count, same)
    }

    /// Replaces `bytes`, at the sequence offset `start`, by the stored bytes. Returns whether that changed any.
    pub fn rewrite(&self, start: u64, bytes: &mut [u8]) -> bool {
        let mut changed = false;
        self.held(start, bytes.len(), &mut |at, held| {
            if let Some(to) = bytes.get_mut(at..at + held.len())
                && to != held
            {
                to.copy_from_slice(held);
                changed = true;
            }
        });
        changed
    }

    /// Appends the stored data between the stream offsets `from` and `to` to `out`. Freed data is skipped, and holes
    /// appear as `[n bytes missing]`. Stops when `out` has `max` bytes.
    pub fn with_gaps(&self, from: u64, to: u64, max: usize, out: &mut Vec<u8>) {
        let mut at = from.max(self.released);
        let runs = self.older.iter().chain([&self.run]).map(|b| (b.start, b));
        let early = self.early.values().map(|b| (self.stream_of(b.start), b));
        for (start, b) in runs.chain(early).filter(|(_, b)| b.len() > 0) {
            let (a, z) = (start.max(at), (start + b.len() as u64).min(to));
            if a >= z {
                continue;
            }
            if out.len() >= max {
                break;
            }
            if a > at {
                out.extend_from_slice(format!("[{} bytes missing]", a - at).as_bytes());
            }
            let room = max.saturating_sub(out.len());
            let shift = b.start - start;
            let data = b.range(a + shift, z + shift);
            out.extend_from_slice(data.get(..room).unwrap_or(data));
            at = z;
        }
        // If data follows, missing bytes at the end are a hole like any other.
        if at < to && to <= self.end() && out.len() < max {
            out.extend_from_slice(format!("[{} bytes missing]", to - at).as_bytes());
        }
        out.truncate(max);
    }
}
