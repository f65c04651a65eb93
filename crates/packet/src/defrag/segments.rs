//! Which bytes of which fragment make up a datagram.

use crate::config::Policy;

/// A run of bytes of the datagram that all come from one fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    /// Where the run starts and ends in the datagram.
    start: u32,
    end: u32,
    /// Where its bytes are in the store.
    at: u32,
    /// Where the fragment that it comes from started and ended.
    fragment: (u32, u32),
}

impl Segment {
    /// The part of it from `start` to `end`.
    fn part(&self, start: u32, end: u32) -> Segment {
        Segment { start, end, at: self.at + (start - self.start), fragment: self.fragment }
    }
}

/// The fragments of a datagram, overlaps resolved.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Sorted, never overlapping.
    list: Vec<Segment>,
    /// The bytes of the fragments, in the order they came.
    store: Vec<u8>,
    /// How many bytes of the datagram are there.
    covered: u32,
    /// Kept to reuse its memory.
    scratch: Vec<Segment>,
}

/// What became of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Whether bytes were there already.
    pub(super) overlap: bool,
    /// Whether the first byte of the fragment is taken from it.
    pub(super) first_byte: bool,
}

impl Segments {
    /// Adds a fragment at `offset`. Offset and length together are at most 65,535.
    pub(super) fn insert(&mut self, policy: Policy, offset: usize, bytes: &[u8]) -> Inserted {
        let (start, end) = (offset as u32, (offset + bytes.len()) as u32);
        if start == end {
            return Inserted { overlap: false, first_byte: false };
        }
        let new = Segment { start, end, at: self.store.len() as u32, fragment: (start, end) };
        let low = self.list.partition_point(|s| s.end <= start);
        let high = low + self.list[low..].partition_point(|s| s.start < end);
        let overlap = low < high;
        self.scratch.clear();
        let mut at = start;
        for old in &self.list[low..high] {
            if old.start > at {
                push(&mut self.scratch, new.part(at, old.start));
            } else if old.start < start {
                push(&mut self.scratch, old.part(old.start, start));
            }
            let (from, to) = (old.start.max(start), old.end.min(end));
            let winner = if later_wins(policy, old.fragment, new.fragment) { &new } else { old };
            push(&mut self.scratch, winner.part(from, to));
            if old.end > end {
                push(&mut self.scratch, old.part(end, old.end));
            }
            self.covered -= old.end - old.start;
            at = to;
        }
        if at < end {
            push(&mut self.scratch, new.part(at, end));
        }
        self.covered += self.scratch.iter().map(|s| s.end - s.start).sum::<u32>();
        let used = self.scratch.iter().any(|s| s.fragment == new.fragment && s.at >= new.at);
        let first_byte = self.scratch.iter().any(|s| s.start == start && s.at == new.at);
        if used {
            self.store.extend_from_slice(bytes);
            self.list.splice(low..high, self.scratch.drain(..));
        }
        Inserted { overlap, first_byte }
    }

    /// Whether bytes are there already at `offset`, and are others than these.
    pub(super) fn contradict(&self, offset: usize, bytes: &[u8]) -> bool {
        let (start, end) = (offset as u32, (offset + bytes.len()) as u32);
        let low = self.list.partition_point(|s| s.end <= start);
        self.list.iter().skip(low).take_while(|s| s.start < end).any(|s| {
            let part = s.part(s.start.max(start), s.end.min(end));
            let at = part.at as usize;
            self.store.get(at..at + (part.end - part.start) as usize)
                != bytes.get((part.start - start) as usize..(part.end - start) as usize)
        })
    }

    /// How many bytes of the datagram are there.
    pub(super) fn covered(&self) -> usize {
        self.covered as usize
    }

    /// Appends the bytes there are, in their order.
    pub(super) fn copy_to(&self, out: &mut Vec<u8>) {
        for s in &self.list {
            let at = s.at as usize;
            out.extend_from_slice(self.store.get(at..at + (s.end - s.start) as usize).unwrap_or(&[]));
        }
    }

    /// Forgets everything; keeps memory up to `keep` bytes for reuse.
    pub(super) fn clear(&mut self, keep: usize) {
        self.list.clear();
        self.store.clear();
        self.covered = 0;
        if self.store.capacity() > keep {
            self.store = Vec::new();
        }
        if self.list.capacity() * size_of::<Segment>() > keep {
            self.list = Vec::new();
            self.scratch = Vec::new();
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.store.capacity() + (self.list.capacity() + self.scratch.capacity()) * size_of::<Segment>()
    }

    /// Makes room for a fragment of `len` bytes where that takes at most `allowed` bytes of memory more.
    pub(super) fn reserve(&mut self, len: usize, allowed: usize) -> bool {
        let (store, list) = (&mut self.store, &mut self.list);
        let missing = (store.len() + len).saturating_sub(store.capacity());
        let more_store = if missing > 0 { missing.max(store.capacity()).max(256) } else { 0 };
        // A fragment adds two segments at most for each that it meets, and those it meets are there already.
        let more_list = if list.len() + 2 > list.capacity() { list.capacity().max(4) } else { 0 };
        if more_store + more_list * size_of::<Segment>() > allowed {
            return false;
        }
        if more_store > 0 {
            store.reserve_exact(store.capacity() - store.len() + more_store);
        }
        if more_list > 0 {
            list.reserve_exact(list.capacity() - list.len() + more_list);
        }
        true
    }
}

/// Appends a segment, or lengthens the last one where it goes on with the same fragment's bytes.
fn push(list: &mut Vec<Segment>, s: Segment) {
    match list.last_mut() {
        Some(last)
            if last.end == s.start && last.fragment == s.fragment && last.at + (last.end - last.start) == s.at =>
        {
            last.end = s.end;
        }
        _ => list.push(s),
    }
}

/// Whether bytes that two fragments have in common are taken from the later one.
pub(crate) fn later_wins(policy: Policy, old: (u32, u32), new: (u32, u32)) -> bool {
    match policy {
        Policy::First => false,
        Policy::Last => true,
        Policy::Bsd => new.0 < old.0,
        Policy::BsdRight => old.0 <= new.0,
        Policy::Linux => new.0 <= old.0,
        Policy::Solaris => new.0 < old.0 && new.1 >= old.1,
        Policy::Windows => new.0 < old.0 && new.1 > old.1,
    }
}
