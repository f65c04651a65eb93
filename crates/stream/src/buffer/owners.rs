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
    /// Its receiver may have discarded it.
    pub(super) weak: bool,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    end: u64,
    segment: Segment,
}

impl Segment {
    /// Whether its bytes replace those of an `earlier` segment.
    const fn wins(self, earlier: Segment, policy: OsPolicy) -> bool {
        if self.weak != earlier.weak {
            return earlier.weak;
        }
        policy.later_wins((earlier.start, earlier.end), (self.start, self.end))
    }
}

/// Stretches of sequence offsets and the segments that they came with. Bytes without an entry cannot be replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(BTreeMap<u64, Owner>);

impl Owners {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> u64 {
        self.0.len() as u64 * ENTRY
    }

    /// Notes that `segment` brought the bytes from `from` to `to`, which nobody had brought before.
    pub(super) fn note(&mut self, from: u64, to: u64, segment: Segment) {
        self.0.insert(from, Owner { end: to, segment });
    }

    /// Moves every entry.
    pub(super) fn shift(&mut self, to: &impl Fn(u64) -> u64) {
        for (at, mut owner) in std::mem::take(&mut self.0) {
            owner.end = to(owner.end);
            owner.segment = Segment { start: to(owner.segment.start), end: to(owner.segment.end), ..owner.segment };
            self.0.insert(to(at), owner);
        }
    }

    /// The entry that holds `at`, or else the first behind it.
    fn at_or_after(&self, at: u64) -> Option<(u64, Owner)> {
        let holds = self.0.range(..=at).next_back().filter(|(_, o)| o.end > at);
        holds.or_else(|| self.0.range(at..).next()).map(|(k, o)| (*k, *o))
    }

    /// Decides for the bytes from `from` to `to`, which `later` brings again: calls `won` for each stretch whose bytes it
    /// replaces, and which is its own from then on.
    pub(super) fn contest(
        &mut self,
        from: u64,
        to: u64,
        later: Segment,
        policy: OsPolicy,
        won: &mut dyn FnMut(u64, u64),
    ) {
        let (mut at, mut mine) = (from, None::<(u64, u64)>);
        while at < to
            && let Some((key, owner)) = self.at_or_after(at)
            && key < to
        {
            let (a, b) = (key.max(at), owner.end.min(to));
            at = b;
            if !later.wins(owner.segment, policy) {
                continue;
            }
            self.0.remove(&key);
            if key < a {
                self.0.insert(key, Owner { end: a, ..owner });
            }
            if b < owner.end {
                self.0.insert(b, owner);
            }
            won(a, b);
            // Stretches that it wins one after the other are one entry.
            match &mut mine {
                Some((_, end)) if *end == a => *end = b,
                _ => {
                    if let Some((a, b)) = mine.replace((a, b)) {
                        self.note(a, b, later);
                    }
                }
            }
        }
        if let Some((a, b)) = mine {
            self.note(a, b, later);
        }
    }

    /// The bytes from `from` to `to` are in order: no receiver replaces them any more, but one that discarded them.
    pub(super) fn in_order(&mut self, from: u64, to: u64) {
        let mut at = from;
        while let Some((&key, owner)) = self.0.range(at..to).next() {
            at = key + 1;
            if !owner.segment.weak {
                self.0.remove(&key);
            }
        }
    }

    /// Nothing before `at` can be replaced any more. Returns whether weak segments were among what is settled.
    pub(super) fn settle(&mut self, at: u64) -> bool {
        let mut weak = false;
        while let Some(entry) = self.0.first_entry().filter(|e| *e.key() < at) {
            let (key, owner) = entry.remove_entry();
            debug_assert!(key < owner.end);
            weak |= owner.segment.weak;
            if owner.end > at {
                self.0.insert(at, owner);
                break;
            }
        }
        weak
    }
}
