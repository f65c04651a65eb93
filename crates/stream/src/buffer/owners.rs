//! Records which segment brought which bytes, while another segment may still replace them.

use std::collections::BTreeMap;

use crate::policy::OsPolicy;

/// Estimated memory of an entry, including free space in the tree.
const ENTRY: u64 = 64;

/// A segment, by sequence offsets, as the overlap policies compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// How likely its receiver discarded it; 0 for not at all.
    pub(super) doubt: u8,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    end: u64,
    segment: Segment,
    /// The bytes are in order for a receiver that accepts all segments up to this doubt.
    in_order_at: u8,
}

/// [`Owner::in_order_at`] of bytes after a hole.
const EARLY: u8 = u8::MAX;

impl Segment {
    /// Whether its bytes replace those of `earlier`. Less doubt wins. With equal doubt, the first segment stays if it
    /// is in order for a receiver that accepts such segments; any other receiver accepts neither.
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

/// Ranges of sequence offsets and the segments that brought them. Bytes without an entry are final.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners {
    stretches: BTreeMap<u64, Owner>,
    /// Number of ranges from doubtful segments.
    doubtful: usize,
}

impl Owners {
    pub(super) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Whether there are bytes from doubtful segments.
    pub(super) const fn has_doubtful(&self) -> bool {
        self.doubtful > 0
    }

    /// Memory in bytes.
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

    /// Records that `segment` brought the new bytes from `from` to `to`. `next` is the first byte that is not in order.
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

    /// The entry that contains `at`, or else the first one after it.
    fn at_or_after(&self, at: u64) -> Option<(u64, Owner)> {
        let holds = self.stretches.range(..=at).next_back().filter(|(_, o)| o.end > at);
        holds.or_else(|| self.stretches.range(at..).next()).map(|(k, o)| (*k, *o))
    }

    /// The first byte from `from` to `to` from a doubtful segment; `to` if there is none.
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

    /// Resolves the overlap of `later` with stored bytes from `from` to `to`. Calls `won` for each range that `later`
    /// replaces and then owns. `next` is the first byte that is not in order.
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
            // Adjacent ranges that it wins form one entry.
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

    /// The bytes from `from` to `to` are in order: they are final, unless the receiver may have discarded them.
    pub(super) fn in_order(&mut self, from: u64, to: u64) {
        if self.doubtful == 0 {
            // Usually all of them are at the front.
            while let Some(first) = self.stretches.first_entry().filter(|e| (from..to).contains(e.key())) {
                first.remove();
            }
        }
        let mut at = from;
        while self.stretches.last_key_value().is_some_and(|(last, _)| *last >= at)
            && let Some((&key, owner)) = self.stretches.range(at..to).next()
        {
            at = key + 1;
            if owner.segment.doubt == 0 {
                self.stretches.remove(&key);
            }
        }
    }

    /// Makes all bytes before `at` final. Returns whether some of them came from doubtful segments.
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
