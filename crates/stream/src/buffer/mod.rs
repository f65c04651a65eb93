//! One direction's data: in-order data, early data, and which segment brought which bytes.
//!
//! Like a receiver, the buffer knows the next expected byte. Data that begins there is *in order*: it is appended to the
//! last run. Most segments need nothing else, and this is the only copy of their bytes. Data that begins later is
//! *early*: it waits in a tree, sorted by offset, and moves to the run when the missing data arrives. Each byte moves at
//! most once. So a segment's cost depends on its length and the depth of the tree, not on the number of holes.
//!
//! If the receiver acknowledged bytes that were never seen, the data after the hole is in order as well, in a run of its
//! own.
//!
//! In-order bytes are final. Early bytes may be replaced by a later segment, as the receiver's system decides
//! ([`OsPolicy`]). [`owners`] records which segment brought which bytes.
//!
//! A segment that the receiver may have discarded has a *doubt*, a number that grows with the likelihood. Until its
//! bytes are acknowledged, a segment with less doubt replaces them. Until then neither they nor the data after them is
//! in order: a receiver that discarded them still waits for them and treats later data as early.
//!
//! There are two kinds of offsets. *Sequence offsets* count every byte after the SYN; segments and early data use them.
//! *Stream offsets* skip the urgent bytes that the receiver removes; runs and readers use them. Without urgent bytes
//! both are equal.

mod block;
mod owners;
mod read;
mod urgent;

use std::collections::BTreeMap;

use block::Block;
use owners::{Owners, Segment};
use urgent::Urgent;

use crate::policy::OsPolicy;

/// Data farther apart than this is in separate regions.
const REGION: u64 = 256 << 10;
/// Estimated memory of an early block besides its bytes: its tree entry, free space in the tree, and allocator overhead.
const BLOCK: u64 = 96;

/// The doubt of bytes that the receiver had no room for: the next data for that place replaces them.
const LACKED: u8 = 200;

/// The result of inserting a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inserted {
    /// Number of bytes that are new to the stream.
    pub new: u32,
    /// Whether some bytes were already stored.
    pub overlap: bool,
    /// Whether some of those differed.
    pub different: bool,
    /// The stream offset where an urgent byte was removed.
    pub urgent: Option<u64>,
}

/// One direction's data. The fields that in-order data touches come first.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct StreamBuffer {
    /// In-order data after the last gap. By stream offset.
    run: Block,
    /// The sequence offset of the first byte not in order, which is the end of `run`.
    next: u64,
    /// The receiver has everything before this sequence offset.
    acked: u64,
    /// Urgent bytes, if there were any.
    urgent: Option<Box<Urgent>>,
    /// Data before this stream offset is no longer accepted.
    floor: u64,
    /// Everything before this stream offset was freed.
    released: u64,
    /// In-order data before the last gap, oldest first. By stream offset.
    older: Vec<Block>,
    /// Early data, by sequence offset, without overlaps.
    early: BTreeMap<u64, Block>,
    /// The segments that brought the replaceable bytes.
    owners: Owners,
    /// The range of sequence offsets of the early data that became in order last, when the missing data arrived; 0 and 0
    /// once it is acknowledged.
    filled: (u64, u64),
    fills_from: u64,
    /// Memory of early data in bytes.
    early_memory: u64,
    /// Number of regions after the first.
    far: u32,
    /// Largest number of regions at a time.
    regions_seen: u16,
    /// Whether in-order bytes may be replaced, which the receiver's system decides.
    replaces_in_order: bool,
    /// Whether the current segment put the data of `filled` in order; `fills_from` is the sequence offset of the
    /// segment's end.
    fills: bool,
    /// Whether in-order data is read at once.
    at_once: bool,
    /// Whether the first expected byte is still unknown.
    floats: bool,
}

/// Whether data ending at `end` and data beginning at `start` are in separate regions.
const fn apart(end: u64, start: Option<u64>) -> u32 {
    match start {
        Some(start) if start.saturating_sub(end) > REGION => 1,
        _ => 0,
    }
}

impl StreamBuffer {
    /// A buffer whose first expected byte is unknown: until [`StreamBuffer::begin_at`], no data is in order.
    pub fn floating() -> StreamBuffer {
        StreamBuffer { floats: true, ..StreamBuffer::default() }
    }

    /// Declares that in-order data is read at once and can no longer be replaced.
    pub const fn read_at_once(&mut self) {
        self.at_once = true;
    }

    /// A buffer in which everything before the sequence offset `next` is in order but not stored. Such data is accepted
    /// if it comes.
    pub fn behind(next: u64) -> StreamBuffer {
        StreamBuffer { next, run: Block::at(next), ..StreamBuffer::default() }
    }

    /// Sets the first expected byte to the sequence offset `start`, from which offsets then count. No stored data may be
    /// before it.
    pub fn begin_at(&mut self, start: u64) {
        self.run = Block::default();
        self.floats = false;
        (self.next, self.floor, self.released) = (0, 0, 0);
        self.acked = self.acked.saturating_sub(start);
        self.filled = (0, 0);
        self.move_early(|at| at.saturating_sub(start));
        self.far += apart(0, self.early.first_key_value().map(|(k, _)| *k));
        self.absorb(&mut Inserted::default());
    }

    /// Moves the first expected byte back by `add` bytes: all offsets move, and no data is in order any more. Returns
    /// `false` without effect if data was already freed or removed.
    pub fn rewind(&mut self, add: u64) -> bool {
        if self.released > 0 || self.urgent.is_some() {
            return false;
        }
        self.owners = Owners::default();
        self.move_early(|at| at + add);
        let runs = std::mem::take(&mut self.older).into_iter().chain([std::mem::take(&mut self.run)]);
        for mut run in runs.filter(|r| r.len() > 0) {
            run.start += add;
            self.early_memory += run.memory() as u64 + BLOCK;
            self.early.insert(run.start, run);
        }
        (self.next, self.floor, self.acked, self.filled) = (0, 0, 0, (0, 0));
        true
    }

    /// Changes the sequence offsets of early data, of its owners and of the pending urgent pointer.
    fn move_early(&mut self, to: impl Fn(u64) -> u64) {
        for (_, mut block) in std::mem::take(&mut self.early) {
            block.start = to(block.start);
            self.early.insert(block.start, block);
        }
        self.owners.shift(&to);
        if let Some(u) = &mut self.urgent {
            u.shift(&to);
        }
    }

    /// Prefetches the buffer: reads a field of each cache line that in-order data needs. The sum has no meaning.
    #[inline]
    pub(crate) fn warm(&self) -> u64 {
        self.next ^ self.released ^ self.early.len() as u64
    }

    /// Everything before this stream offset was freed.
    pub const fn freed(&self) -> u64 {
        self.released
    }

    /// The stream offset of the end of in-order data.
    pub fn in_order_end(&self) -> u64 {
        self.run.end()
    }

    /// Memory in bytes.
    pub fn memory(&self) -> u64 {
        let older: usize = self.older.iter().map(Block::memory).sum();
        let older = older + self.older.capacity() * size_of::<Block>();
        let urgent = self.urgent.as_ref().map_or(0, |u| u.memory());
        self.run.memory() as u64 + older as u64 + self.early_memory + self.owners.memory() + urgent
    }

    /// Largest number of regions at a time: data more than 256 KiB apart.
    pub const fn regions_seen(&self) -> u16 {
        self.regions_seen
    }

    /// Whether no data is stored.
    pub fn is_empty(&self) -> bool {
        self.run.len() == 0 && self.older.is_empty() && self.early.is_empty()
    }

    /// The stream offset of the end of stored data.
    pub fn end(&self) -> u64 {
        self.early.last_key_value().map_or(self.run.end(), |(_, b)| self.stream_of(b.end()))
    }

    /// The sequence offset of the first byte not in order.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether early data waits for missing data.
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether some data still has a doubt.
    pub fn has_doubtful(&self) -> bool {
        self.owners.has_doubtful()
    }

    /// The number of removed urgent bytes.
    pub fn urgent_count(&self) -> u64 {
        self.urgent.as_ref().map_or(0, |u| u.count())
    }

    /// The stream offset of a sequence offset.
    #[inline]
    pub fn stream_of(&self, at: u64) -> u64 {
        match &self.urgent {
            None => at,
            Some(u) => u.stream_of(at),
        }
    }

    /// The sequence offset of a stream offset.
    #[inline]
    pub fn sequence_of(&self, at: u64) -> u64 {
        match &self.urgent {
            None => at,
            Some(u) => u.sequence_of(at),
        }
    }

    /// Records that the byte at the sequence offset `at` is urgent and is removed once in order. Returns whether the
    /// pointer counts: it must be beyond in-order data and beyond the previous pointer.
    pub fn point_urgent(&mut self, at: u64) -> bool {
        self.urgent.get_or_insert_default().point(at, self.next)
    }

    /// Whether a pointer to a byte before the sequence offset `at` counted, and none further on.
    pub fn had_urgent_before(&self, at: u64) -> bool {
        self.urgent.as_ref().is_some_and(|u| u.is_behind(at) && u.latest().is_some_and(|last| last < at))
    }

    /// The sequence offset of the latest urgent byte, if its receiver has not reached it. Data put in order across a
    /// hole at the end ([`StreamBuffer::finish`]) does not count.
    pub fn pending_urgent(&self) -> Option<u64> {
        self.urgent.as_ref().and_then(|u| u.pending())
    }

    /// Whether a pointer to the byte at the sequence offset `at` would count.
    pub fn would_point_urgent(&self, at: u64) -> bool {
        at >= self.next && self.urgent.as_ref().is_none_or(|u| u.is_behind(at))
    }

    /// Inserts a segment's bytes at the sequence offset `start`. Bytes before the floor are skipped. Stored bytes stay
    /// unless the receiver replaces them; for early bytes `policy` decides that. `doubt` says how likely the receiver
    /// discarded the segment; 0 for not at all.
    pub fn insert(&mut self, start: u64, bytes: &[u8], policy: OsPolicy, doubt: u8) -> Inserted {
        // In order and no early data: the fast path for most segments.
        if start == self.next
            && self.early.is_empty()
            && self.urgent.is_none()
            && doubt == 0
            && !policy.replaces_in_order()
            && !bytes.is_empty()
        {
            self.run.append(bytes);
            self.next += bytes.len() as u64;
            self.regions_seen = self.regions_seen.max(1);
            return Inserted { new: bytes.len() as u32, ..Inserted::default() };
        }
        let mut done = Inserted::default();
        self.replaces_in_order = policy.replaces_in_order();
        let segment = Segment { start, end: start + bytes.len() as u64, doubt };
        (self.fills, self.fills_from) = (false, segment.end);
        let from = start.max(self.sequence_of(self.floor));
        if from >= segment.end {
            return done;
        }
        if from < self.next {
            let to = segment.end.min(self.next);
            self.again(from, between(bytes, start, from, to), segment, policy, &mut done);
        }
        if segment.end > self.next {
            let from = from.max(self.next);
            self.onward(from, between(bytes, start, from, segment.end), segment, policy, &mut done);
        }
        done
    }

    /// Handles bytes before the next expected one: they repeat in-order data, or fill a hole that was given up.
    fn again(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let end = from + bytes.len() as u64;
        let mut at = from;
        while at < end {
            // Removed urgent bytes are not in the stream.
            let taken = self.urgent.as_ref().and_then(|u| u.next_taken(at)).filter(|t| *t < end);
            let stop = taken.unwrap_or(end);
            if at < stop {
                self.again_plain(at, between(bytes, from, at, stop), segment, policy, done);
            }
            at = if taken.is_some() { stop + 1 } else { stop };
        }
    }

    /// As [`StreamBuffer::again`], for bytes that are all in the stream.
    fn again_plain(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let start = self.stream_of(from);
        let end = start + bytes.len() as u64;
        let shift = from - start;
        let mut at = start;
        while at < end {
            let i = self.run_ending_after(at);
            let runs = self.older.len();
            let run = if i < runs { self.older.get_mut(i) } else { Some(&mut self.run) };
            let begins = run.as_ref().map_or(u64::MAX, |r| r.start);
            let Some(run) = run.filter(|r| r.start <= at) else {
                let stop = begins.min(end);
                let part = between(bytes, start, at, stop);
                self.fill_run(i, at, part);
                done.new += part.len() as u32;
                at = stop;
                continue;
            };
            let stop = run.end().min(end);
            let new = between(bytes, start, at, stop);
            done.overlap = true;
            if run.range(at, stop) != new {
                done.different = true;
            }
            if !self.owners.is_empty() {
                let rules = (policy, self.next);
                self.owners.contest(at + shift, stop + shift, segment, rules, &mut |a, b| {
                    copy(run.range_mut(a - shift, b - shift), between(bytes, from, a, b));
                });
                if !self.replaces_in_order {
                    self.owners.in_order(at + shift, stop + shift);
                }
            }
            if stop <= at {
                return;
            }
            at = stop;
        }
    }

    /// Puts bytes in front of run `i`, where a hole was given up.
    fn fill_run(&mut self, i: usize, at: u64, part: &[u8]) {
        let end = at + part.len() as u64;
        let before = i.checked_sub(1).and_then(|i| self.older.get(i)).is_some_and(|b| b.end() == at);
        let behind = self.run_start(i) == end;
        match (before, behind) {
            (true, _) => {
                if let Some(b) = self.older.get_mut(i - 1) {
                    b.append(part);
                }
                if behind {
                    let first = self.older.remove(i - 1);
                    // The old run `i` has moved down.
                    let second = match self.older.get_mut(i - 1) {
                        Some(b) => b,
                        None => &mut self.run,
                    };
                    let second_bytes = std::mem::replace(second, first);
                    second.join(second_bytes);
                }
            }
            (false, true) => match self.older.get_mut(i) {
                Some(b) => b.prepend(part),
                None => self.run.prepend(part),
            },
            (false, false) => self.older.insert(i.min(self.older.len()), Block::of(at, part)),
        }
    }

    /// The first run that ends after `at`, or the last one.
    fn run_ending_after(&self, at: u64) -> usize {
        self.older.partition_point(|b| b.end() <= at)
    }

    fn run_at(&self, i: usize) -> &Block {
        self.older.get(i).unwrap_or(&self.run)
    }

    fn run_start(&self, i: usize) -> u64 {
        self.run_at(i).start
    }

    /// Handles bytes from the next expected one on.
    fn onward(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let end = from + bytes.len() as u64;
        // Most segments overlap no early data: then one search finds the block before them, and often none follows.
        let last = self.last_before(end);
        let overlaps = last.is_some_and(|b| b.1 > from);
        if overlaps {
            self.overlap_early(from, bytes, segment, policy, done);
        }
        let owned = segment.doubt > 0 || policy.replaces();
        let mut at = from;
        while at < end {
            let before = if overlaps { self.last_before(at + 1) } else { last };
            if let Some((_, stop)) = before.filter(|b| b.1 > at) {
                at = stop;
                continue;
            }
            let behind = self.first_from(at);
            let stop = behind.map_or(end, |b| b.min(end));
            let part = between(bytes, from, at, stop);
            done.new += part.len() as u32;
            let ends = match before {
                None if self.floats => u64::MAX,
                None => self.next,
                Some(b) => b.1,
            };
            self.far = (self.far + apart(ends, Some(at)) + apart(stop, behind)).saturating_sub(apart(ends, behind));
            if at == self.next && segment.doubt == 0 {
                self.append(at, part, done);
                if policy.replaces_in_order() {
                    self.owners.note(at, stop, segment, self.next);
                }
                self.absorb(done);
                at = stop.max(self.next);
                continue;
            }
            if owned {
                self.owners.note(at, stop, segment, self.next);
            }
            self.put_early(at, part, before, behind.filter(|b| *b == stop));
            at = stop;
        }
        // Early data there may have lost its doubt, or was acknowledged before it was seen.
        self.absorb(done);
        self.regions_seen = self.regions_seen.max(u16::try_from(self.far + 1).unwrap_or(u16::MAX));
    }

    /// The early block that begins last before `at`, with its end.
    fn last_before(&self, at: u64) -> Option<(u64, u64)> {
        let last = self.early.last_key_value()?;
        let found = if *last.0 < at {
            last
        } else if self.early.first_key_value().is_none_or(|(first, _)| *first >= at) {
            return None;
        } else {
            self.early.range(..at).next_back()?
        };
        Some((*found.0, found.1.end()))
    }

    /// Where the first early block from `at` on begins.
    fn first_from(&self, at: u64) -> Option<u64> {
        if self.early.last_key_value().is_none_or(|(last, _)| *last < at) {
            return None;
        }
        let first = self.early.first_key_value().map(|(first, _)| *first).filter(|first| *first >= at);
        first.or_else(|| self.early.range(at..).next().map(|(key, _)| *key))
    }

    /// Resolves the overlap of a segment with early data.
    fn overlap_early(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let end = from + bytes.len() as u64;
        let first = self.early.range(..=from).next_back().filter(|(_, b)| b.end() > from);
        for block in first.into_iter().map(|(_, b)| b).chain(self.early.range(from + 1..end).map(|(_, b)| b)) {
            done.overlap = true;
            let (a, b) = (block.start.max(from), block.end().min(end));
            done.different |= block.range(a, b) != between(bytes, from, a, b);
        }
        if !done.overlap || self.owners.is_empty() {
            return;
        }
        let Self { owners, early, next, .. } = self;
        owners.contest(from, end, segment, (policy, *next), &mut |a, b| {
            let mut at = a;
            while at < b
                && let Some((_, block)) = early.range_mut(..=at).next_back().filter(|(_, b)| b.end() > at)
            {
                let stop = block.end().min(b);
                copy(block.range_mut(at, stop), between(bytes, from, at, stop));
                at = stop;
            }
        });
    }

    /// Stores early bytes where there are none: at the end of a block that ends there, in front of one that begins where
    /// they end (`behind`), or in a new block.
    fn put_early(&mut self, at: u64, part: &[u8], before: Option<(u64, u64)>, behind: Option<u64>) {
        let memory = |b: &Block| b.memory() as u64;
        if let Some((key, _)) = before.filter(|b| b.1 == at)
            && let Some(block) = self.early.get_mut(&key)
        {
            self.early_memory -= memory(block);
            block.append(part);
            self.early_memory += memory(block);
            return;
        }
        if let Some(mut block) = behind.and_then(|key| self.early.remove(&key)) {
            self.early_memory -= memory(&block);
            block.prepend(part);
            self.early_memory += memory(&block);
            self.early.insert(at, block);
            return;
        }
        let block = Block::of(at, part);
        self.early_memory += memory(&block) + BLOCK;
        self.early.insert(at, block);
    }

    /// Appends in-order bytes.
    fn append(&mut self, at: u64, part: &[u8], done: &mut Inserted) {
        let end = at + part.len() as u64;
        let urgent = self.urgent.as_deref_mut().and_then(|u| u.take(at, end));
        match urgent {
            Some(u) => {
                self.run.append(between(part, at, at, u));
                done.urgent = Some(self.run.end());
                self.run.append(between(part, at, u + 1, end));
            }
            None => self.run.append(part),
        }
        self.next = end;
    }

    /// Moves early data that is now in order: up to the first doubtful byte that is not acknowledged.
    fn absorb(&mut self, done: &mut Inserted) {
        while let Some(entry) = self.early.first_entry().filter(|e| *e.key() == self.next) {
            let (at, end) = (*entry.key(), entry.get().end());
            let stop = self.owners.first_doubtful(at.max(self.acked), end).clamp(at, end);
            if stop == at {
                return;
            }
            let mut block = entry.remove();
            self.early_memory = self.early_memory.saturating_sub(block.memory() as u64 + BLOCK);
            if !self.replaces_in_order && !self.owners.is_empty() {
                self.owners.in_order(at, stop);
            }
            self.append(at, block.range(at, stop), done);
            // Early data that the current segment covers arrived with it; only the data after the segment counts as
            // filled.
            let from = at.max(self.fills_from);
            if from < stop {
                let begins = if self.fills && self.filled.1 == from { self.filled.0 } else { from };
                (self.filled, self.fills) = ((begins, stop), true);
            }
            if stop < end {
                block.release(stop);
                self.early_memory += block.memory() as u64 + BLOCK;
                self.early.insert(stop, block);
                return;
            }
        }
    }

    /// The receiver has everything before the sequence offset `acked`. Gives up earlier holes, puts the data after them
    /// in order, and makes all bytes before `acked` final. Returns whether some of those were doubtful.
    pub fn acknowledge(&mut self, acked: u64) -> bool {
        self.acked = self.acked.max(acked);
        if self.filled.1 > 0 {
            self.lacks(acked);
        }
        let doubtful = !self.owners.is_empty() && self.owners.settle(acked);
        while let Some((&at, _)) = self.early.first_key_value().filter(|(at, _)| **at <= acked) {
            if at == self.next && self.owners.first_doubtful(at, at + 1) == at {
                break;
            }
            self.skip_to(at);
            // The missing data was never seen here, so the time of the receiver's acknowledgment shows nothing about the
            // early data.
            self.filled = (0, 0);
        }
        doubtful
    }

    /// A receiver acknowledges early data as soon as the missing data arrives. If it still expects a byte of the early
    /// data, it had no room for that and waits for a retransmission.
    #[cold]
    fn lacks(&mut self, acked: u64) {
        let (from, to) = std::mem::take(&mut self.filled);
        if acked < from {
            self.filled = (from, to);
        }
        let place = self.stream_of(acked);
        if !(from..to).contains(&acked)
            || self.acked > acked
            || self.at_once
            || self.replaces_in_order
            || self.urgent.is_some()
            || place < self.run.start.max(self.floor)
        {
            return;
        }
        let block = self.run.split_off(place);
        self.owners.settle(to);
        self.owners.note(acked, to, Segment { start: acked, end: to, doubt: LACKED }, acked);
        self.early_memory += block.memory() as u64 + BLOCK;
        self.early.insert(acked, block);
        self.next = acked;
    }

    /// Ends the stream: early data counts as in order, and holes are given up.
    pub fn finish(&mut self) {
        self.acked = u64::MAX;
        if let Some(u) = &mut self.urgent {
            u.finish();
        }
        while let Some((&at, _)) = self.early.first_key_value() {
            self.skip_to(at);
        }
        self.acked = self.next;
        self.filled = (0, 0);
    }

    /// Continues with the first early data, at `at`, across a hole in front of it.
    fn skip_to(&mut self, at: u64) {
        if at > self.next {
            self.far = self.far.saturating_sub(apart(self.next, Some(at)));
            let start = self.stream_of(at);
            let before = std::mem::replace(&mut self.run, Block::at(start));
            if before.len() > 0 {
                self.older.push(before);
            }
            self.next = at;
        }
        self.absorb(&mut Inserted::default());
    }

    /// Makes data before the stream offset `floor` final: it is neither accepted again nor replaced. The floor is at
    /// most the end of in-order data.
    #[inline]
    pub fn set_floor(&mut self, floor: u64) {
        let floor = floor.min(self.run.end());
        if floor > self.floor {
            self.floor = floor;
            if !self.owners.is_empty() {
                let at = self.sequence_of(floor);
                self.owners.settle(at);
            }
        }
    }

    /// Frees data before the stream offset `before`, which must be at or before the floor. Returns whether memory was
    /// released.
    #[inline]
    pub fn release(&mut self, before: u64) -> bool {
        self.released = self.released.max(before.min(self.run.end()));
        if self.older.is_empty() && self.urgent.is_none() {
            return self.run.release(before);
        }
        let whole = self.older.iter().take_while(|b| b.end() <= before).count();
        let gone = self.older.drain(..whole).count() > 0;
        let at = self.sequence_of(self.released);
        if let Some(u) = &mut self.urgent {
            u.forget_before(at);
        }
        self.older.first_mut().unwrap_or(&mut self.run).release(before) || gone
    }

    /// Releases memory of which most is unused. The data moves only after three times as much was freed. Returns whether it
    /// did.
    pub fn shrink_mostly_unused(&mut self) -> bool {
        let mut shrunk = false;
        for block in self.older.iter_mut().chain([&mut self.run]) {
            if block.memory() / 4 > block.len() {
                block.shrink();
                shrunk = true;
            }
        }
        shrunk
    }

    /// Releases unused memory, since little more data will come.
    pub fn shrink(&mut self) {
        self.older.iter_mut().for_each(Block::shrink);
        self.run.shrink();
    }
}

/// The part from offset `from` to `to` of bytes that begin at `start`.
fn between(bytes: &[u8], start: u64, from: u64, to: u64) -> &[u8] {
    let (a, b) = (from.saturating_sub(start) as usize, to.saturating_sub(start) as usize);
    bytes.get(a..b.max(a)).unwrap_or(&[])
}

/// Copies `from` to `to`; does nothing if their lengths differ.
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
