//! Which bytes of which fragment make up a datagram.

use std::collections::BTreeMap;

use crate::config::Policy;

/// A range of the datagram whose bytes all come from one fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    /// Where it starts and ends in the datagram.
    start: u32,
    end: u32,
    /// Where its bytes start in the store.
    at: u32,
    /// Start and end of the fragment that it comes from, in the datagram.
    fragment: (u32, u32),
}

impl Segment {
    /// The part of it from `start` to `end`.
    fn part(&self, start: u32, end: u32) -> Segment {
        Segment { start, end, at: self.at + (start - self.start), fragment: self.fragment }
    }
}

/// Memory of a tree entry, with the tree's free space.
const ENTRY: usize = 48;

/// The fragments of a datagram, overlaps resolved. Whatever the order of the fragments, the cost of one is that of its
/// bytes and of a few steps in a tree.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// The segments by their start; they never overlap.
    list: BTreeMap<u32, Segment>,
    /// [`Policy::Linux`]: start and end of each run. Fragments that arrive in order form a run.
    runs: BTreeMap<u32, u32>,
    /// The bytes of the fragments, in order of arrival.
    store: Vec<u8>,
    /// How many bytes of the datagram are there.
    covered: u32,
    /// Scratch buffer, kept for its memory.
    scratch: Vec<Segment>,
}

/// The result of adding a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Whether it overlaps stored bytes.
    pub(super) overlap: bool,
    /// Whether the datagram takes this fragment's first byte from it.
    pub(super) first_byte: bool,
    /// Whether the host forgets the datagram, this fragment included.
    pub(super) forgotten: bool,
}

impl Segments {
    /// Adds a fragment at `offset`. Offset and length together are at most 65,535.
    pub(super) fn insert(&mut self, policy: Policy, offset: usize, bytes: &[u8]) -> Inserted {
        let (start, end) = (offset as u32, (offset + bytes.len()) as u32);
        let mut done = Inserted { overlap: false, first_byte: false, forgotten: false };
        if start == end {
            return done;
        }
        if policy == Policy::Linux {
            (done.overlap, done.forgotten) = self.run(start, end);
            if done.overlap {
                return done;
            }
        }
        let new = Segment { start, end, at: self.store.len() as u32, fragment: (start, end) };
        self.scratch.clear();
        let mut overlapping = std::mem::take(&mut self.scratch);
        overlapping.extend(self.overlapping(start, end).copied());
        done.overlap = !overlapping.is_empty();
        if !done.overlap {
            self.covered += end - start;
            self.list.insert(start, new);
            self.store.extend_from_slice(bytes);
            self.scratch = overlapping;
            return Inserted { first_byte: true, ..done };
        }
        let mut used = false;
        let mut at = start;
        for old in &overlapping {
            self.list.remove(&old.start);
            self.covered -= old.end - old.start;
            if old.start > at {
                used |= self.put(new.part(at, old.start));
            } else if old.start < start {
                self.put(old.part(old.start, start));
            }
            let (from, to) = (old.start.max(start), old.end.min(end));
            if later_wins(policy, old.fragment, new.fragment) {
                used |= self.put(new.part(from, to));
            } else {
                self.put(old.part(from, to));
            }
            if old.end > end {
                self.put(old.part(end, old.end));
            }
            at = to;
        }
        if at < end {
            used |= self.put(new.part(at, end));
        }
        done.first_byte = self.list.get(&start).is_some_and(|s| s.at == new.at);
        if used {
            self.store.extend_from_slice(bytes);
        }
        self.scratch = overlapping;
        done
    }

    /// Adds a segment, or extends the previous one if that one's bytes continue here. Always `true`.
    fn put(&mut self, s: Segment) -> bool {
        self.covered += s.end - s.start;
        if let Some((_, last)) = self.list.range_mut(..s.start).next_back()
            && last.end == s.start
            && last.fragment == s.fragment
            && last.at + (last.end - last.start) == s.at
        {
            last.end = s.end;
        } else {
            self.list.insert(s.start, s);
        }
        true
    }

    /// Adds a fragment to the runs, as Linux does (since 4.20 and 5.0; RFC 5722 for IPv6): data within a run is a
    /// duplicate, whatever its content; any other overlap discards the datagram. Returns whether it overlaps, and
    /// whether the whole datagram is discarded.
    fn run(&mut self, start: u32, end: u32) -> (bool, bool) {
        let Some(mut last) = self.runs.last_entry() else {
            self.runs.insert(start, end);
            return (false, false);
        };
        let tail = *last.get();
        if tail < end {
            if start < tail {
                return (true, true);
            }
            if start == tail {
                *last.get_mut() = end;
            } else {
                self.runs.insert(start, end);
            }
            return (false, false);
        }
        // The last run that starts no later, and the first that starts later.
        let before = self.runs.range(..=start).next_back().filter(|r| *r.1 > start);
        if let Some((_, run_end)) = before {
            return (true, end > *run_end);
        }
        if self.runs.range(start..end).next().is_some() {
            return (true, true);
        }
        self.runs.insert(start, end);
        (false, false)
    }

    /// The segments between two places, in order.
    fn overlapping(&self, start: u32, end: u32) -> impl Iterator<Item = &Segment> {
        // Most fragments arrive in order, behind all others.
        let among = self.list.last_key_value().is_some_and(|(_, last)| last.end > start);
        let before = || self.list.range(..start).next_back().map(|s| s.1).filter(|s| s.end > start);
        let within = among.then(|| self.list.range(start..end).map(|s| s.1));
        among.then(before).flatten().into_iter().chain(within.into_iter().flatten())
    }

    /// Whether any stored bytes at `offset` differ from these.
    pub(super) fn contradict(&self, offset: usize, bytes: &[u8]) -> bool {
        let (start, end) = (offset as u32, (offset + bytes.len()) as u32);
        start < end
            && self.overlapping(start, end).any(|s| {
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

    /// Appends the stored bytes in the datagram's order.
    pub(super) fn copy_to(&self, out: &mut Vec<u8>) {
        for s in self.list.values() {
            let at = s.at as usize;
            out.extend_from_slice(self.store.get(at..at + (s.end - s.start) as usize).unwrap_or(&[]));
        }
    }

    /// Forgets everything; keeps memory up to `keep` bytes for reuse.
    pub(super) fn clear(&mut self, keep: usize) {
        self.list.clear();
        self.runs.clear();
        self.store.clear();
        self.covered = 0;
        if self.store.capacity() > keep {
            self.store = Vec::new();
        }
        if self.scratch.capacity() * size_of::<Segment>() > keep {
            self.scratch = Vec::new();
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.store.capacity()
            + self.scratch.capacity() * size_of::<Segment>()
            + (self.list.len() + self.runs.len()) * ENTRY
    }

    /// Makes room for a fragment of `len` bytes at `offset`; `false` if that takes more than `allowed` bytes of
    /// additional memory.
    pub(super) fn reserve(&mut self, policy: Policy, offset: usize, len: usize, allowed: usize) -> bool {
        // A fragment that overlaps `n` segments adds up to `n` + 1, and one more entry for the runs.
        let overlaps = match policy {
            Policy::Linux => 0,
            _ => self.overlapping(offset as u32, (offset + len) as u32).count(),
        };
        let scratch = overlaps.saturating_sub(self.scratch.capacity()) * size_of::<Segment>();
        let store = &mut self.store;
        let missing = (store.len() + len).saturating_sub(store.capacity());
        let more = if missing > 0 { missing.max(store.capacity()).max(256) } else { 0 };
        if more + scratch + (overlaps + 2) * ENTRY > allowed {
            return false;
        }
        self.scratch.clear();
        self.scratch.reserve_exact(overlaps);
        if more > 0 {
            store.reserve_exact(store.capacity() - store.len() + more);
        }
        true
    }
}

/// Whether bytes that two fragments have in common are taken from the later one.
pub(crate) fn later_wins(policy: Policy, old: (u32, u32), new: (u32, u32)) -> bool {
    match policy {
        // Linux takes neither: see `Segments::run`.
        Policy::First | Policy::Linux => false,
        Policy::Last => true,
        Policy::Bsd => new.0 < old.0,
        Policy::BsdRight => old.0 <= new.0,
        Policy::OldLinux => new.0 <= old.0,
        Policy::Solaris => new.0 < old.0 && new.1 >= old.1,
        Policy::Windows => new.0 < old.0 && new.1 > old.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fragment takes no more memory than was reserved for it, also one that spans many others.
    #[test]
    fn a_fragment_takes_what_was_reserved() {
        let policies = [Policy::First, Policy::Last, Policy::Bsd, Policy::BsdRight, Policy::OldLinux, Policy::Solaris];
        for policy in policies.into_iter().chain([Policy::Windows, Policy::Linux]) {
            let mut s = Segments::default();
            let gaps = (0..100).map(|n| (16 * (99 - n), 8));
            for (offset, len) in gaps.chain([(0, 1608), (8, 8), (804, 1600), (400, 16), (0, 65_528)]) {
                let before = s.memory();
                // The least allowance that is enough.
                let (mut no, mut yes) = (0, 1 << 20);
                while no + 1 < yes {
                    let middle = usize::midpoint(no, yes);
                    let mut copy = Segments { list: s.list.clone(), runs: s.runs.clone(), ..Segments::default() };
                    copy.store.reserve_exact(s.store.capacity());
                    copy.store.extend_from_slice(&s.store);
                    copy.scratch.reserve_exact(s.scratch.capacity());
                    if copy.reserve(policy, offset, len, middle) { yes = middle } else { no = middle }
                }
                assert!(s.reserve(policy, offset, len, yes));
                s.insert(policy, offset, &vec![b'x'; len]);
                assert!(s.memory() <= before + yes, "{policy:?} {offset} {len}: {} > {before} + {yes}", s.memory());
            }
        }
    }

    /// A datagram of 65,528 bytes in the smallest possible fragments, from the middle outwards: each costs a few steps in a tree.
    /// With a sorted list, in which all later entries move, this took a minute.
    #[test]
    fn tiny_fragments_in_any_order() {
        for policy in [Policy::Linux, Policy::Bsd] {
            let mut s = Segments::default();
            for round in 0..20u8 {
                let units = 8191u32;
                let bytes = |at: u32| [(at % 251) as u8 ^ round; 8];
                let mut at = units;
                while at > 0 {
                    at -= 1;
                    // From the middle outwards, alternately down and up.
                    let unit = if at.is_multiple_of(2) { at / 2 } else { units - 1 - at / 2 };
                    let done = s.insert(policy, unit as usize * 8, &bytes(unit));
                    assert!(!done.overlap && done.first_byte, "{unit}");
                }
                assert_eq!(s.covered(), units as usize * 8);
                let mut out = Vec::new();
                s.copy_to(&mut out);
                let expected: Vec<u8> = (0..units).flat_map(bytes).collect();
                assert!(out == expected);
                s.clear(0);
            }
        }
    }
}
