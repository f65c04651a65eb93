//! Which segment brought which bytes, for as long as another segment may still replace them.

use std::collections::BTreeMap;

use crate::policy::OsPolicy;

/// Memory of an entry: its place in the tree, with what a tree leaves free.
const ENTRY: u64 = 64;

/// A segment, as the overlap policies compare it: by sequence offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// How likely it is that its receiver discarded it: 0 is not at all.
    pub(super) doubt: u8,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    end: u64,
    segment: Segment,
    /// The least doubt at which it is in order: it is for a receiver that takes all segments of no more doubt than this.
    in_order_at: u8,
}

/// [`Owner::in_order_at`] of bytes before which some are missing.
const EARLY: u8 = u8::MAX;

impl Segment {
    /// Whether its bytes replace those that `earlier` brought. Those of less doubt stay or win. Of two of the same doubt the first
    /// stays where it is in order for a receiver that takes such segments; one that does not takes neither.
    const fn wins(self, earlier: Owner, policy: OsPolicy) -> bool {
        let before = earlier.segment;
        if self.doubt != before.doubt {
            return self.doubt < before.doubt;
        }
        if self.doubt > 0 && earlier.in_order_at <= self.doubt {
            return false;
        }
        policy.later_wins((before.start, before.end), (self.start, self.end))
    }
}

/// Stretches of sequence offsets and the segments that they came with. Bytes without an entry cannot be replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners {
    stretches: BTreeMap<u64, Owner>,
    /// How many of them came in segments with a doubt.
    doubtful: usize,
}

impl Owners {
    pub(super) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Whether some of them came in segments with a doubt.
    pub(super) const fn has_doubtful(&self) -> bool {
        self.doubtful > 0
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> u64 {
        self.stretches.len() as u64 * ENTRY
    }

    fn put(&mut self, from: u64, owner: Owner) {
        self.doubtful += usize::from(owner.segment.doubt > 0);
        self.stretches.insert(from, owner);
    }

    fn take(&mut self, from: u64) -> Option<Owner> {
        let owner = self.stretches.remove(&from)?;
        self.doubtful -= usize::from(owner.segment.doubt > 0);
        Some(owner)
    }

    /// Notes that `segment` brought the bytes from `from` to `to`, which nobody had brought before. `next` is the first byte that is
    /// not in order.
    pub(super) fn note(&mut self, from: u64, to: u64, segment: Segment, next: u64) {
        let in_order_at = if from <= next {
            segment.doubt
        } else if segment.doubt == 0 && self.doubtful == 0 {
            EARLY
        } else {
            let before = self.stretches.range(..from).next_back().filter(|(_, o)| o.end == from);
            before.map_or(EARLY, |(_, o)| o.in_order_at.max(segment.doubt))
        };
        self.put(from, Owner { end: to, segment, in_order_at });
    }

    /// Moves every entry.
    pub(super) fn shift(&mut self, to: &impl Fn(u64) -> u64) {
        for (at, mut owner) in std::mem::take(&mut self.stretches) {
            owner.end = to(owner.end);
            owner.segment = Segment { start: to(owner.segment.start), end: to(owner.segment.end), ..owner.segment };
            self.stretches.insert(to(at), owner);
        }
    }

    /// The entry that holds `at`, or else the first behind it.
    fn at_or_after(&self, at: u64) -> Option<(u64, Owner)> {
        let holds = self.stretches.range(..=at).next_back().filter(|(_, o)| o.end > at);
        holds.or_else(|| self.stretches.range(at..).next()).map(|(k, o)| (*k, *o))
    }

    /// The first of the bytes from `from` to `to` that came in a segment with a doubt; `to` where there is none.
    pub(super) fn first_doubtful(&self, from: u64, to: u64) -> u64 {
        if self.doubtful == 0 || from >= to {
            return to;
        }
        let mut at = from;
        while let Some((key, owner)) = self.at_or_after(at).filter(|(key, _)| *key < to) {
            if owner.segment.doubt > 0 {
                return key.max(from);
            }
            at = owner.end;
        }
        to
    }

    /// Decides for the bytes from `from` to `to`, which `later` brings again: calls `won` for each stretch whose bytes it
    /// replaces, and which is its own from then on. `next` is the first byte that is not in order.
    pub(super) fn contest(
        &mut self,
        from: u64,
        to: u64,
        later: Segment,
        (policy, next): (OsPolicy, u64),
        won: &mut dyn FnMut(u64, u64),
    ) {
        let (mut at, mut mine) = (from, None::<(u64, u64)>);
        while at < to
            && let Some((key, owner)) = self.at_or_after(at)
            && key < to
        {
            let (a, b) = (key.max(at), owner.end.min(to));
            at = b;
            if !later.wins(owner, policy) {
                continue;
            }
            self.take(key);
            if key < a {
                self.put(key, Owner { end: a, ..owner });
            }
            if b < owner.end {
                self.put(b, owner);
            }
            won(a, b);
            // Stretches that it wins one after the other are one entry.
            match &mut mine {
                Some((_, end)) if *end == a => *end = b,
                _ => {
                    if let Some((a, b)) = mine.replace((a, b)) {
                        self.note(a, b, later, next);
                    }
                }
            }
        }
        if let Some((a, b)) = mine {
            self.note(a, b, later, next);
        }
    }

    /// The bytes from `from` to `to` are in order: no receiver replaces them any more, but one that discarded them.
    pub(super) fn in_order(&mut self, from: u64, to: u64) {
        let mut at = from;
        while let Some((&key, owner)) = self.stretches.range(at..to).next() {
            at = key + 1;
            if owner.segment.doubt == 0 {
                self.stretches.remove(&key);
            }
        }
    }

    /// Nothing before `at` can be replaced any more. Returns whether segments with a doubt were among what is settled.
    pub(super) fn settle(&mut self, at: u64) -> bool {
        let mut doubtful = false;
        while let Some((&key, _)) = self.stretches.first_key_value().filter(|(key, _)| **key < at) {
            let Some(owner) = self.take(key) else { break };
            debug_assert!(key < owner.end);
            doubtful |= owner.segment.doubt > 0;
            if owner.end > at {
                self.put(at, owner);
                break;
            }
        }
        doubtful
    }
}
