//! One direction's data: what is in order, what came early, and which segment brought what.
//!
//! Like a receiver, the buffer knows the byte that it expects next. Data that begins there is *in order*: it goes to the end
//! of the last run, which is all that most segments need, and the one copy that is made of their bytes. Data that begins behind
//! it is *early*: it waits in a tree, ordered by its place, and goes to the run when what is missing before it arrives. Each byte
//! moves once on that way. So a segment costs what its bytes cost and the depth of the tree, however many holes there are.
//!
//! Where the receiver acknowledged bytes that were never seen, what is behind the hole is in order all the same, in a run of its
//! own.
//!
//! Bytes that a receiver has in order are final. Of early bytes a later segment may replace some, as the receiver's system
//! decides ([`OsPolicy`]): [`owners`] knows which segment brought which.
//!
//! A segment that the receiver may have discarded comes with a *doubt*, a number: the larger, the more likely that is. Its bytes give
//! way to those of a segment with less doubt until they are acknowledged, and until then they are not in order, nor is what is behind
//! them: a receiver that discarded them still waits for them, and has what is behind them as early data.
//!
//! There are two kinds of offsets. *Sequence offsets* count every byte from the one after the SYN on; segments and early data are
//! placed by them. *Stream offsets* leave out the urgent bytes that the receiver takes out; runs and readers use them. Without
//! such bytes they are the same.

mod block;
mod owners;
mod read;
mod urgent;

use std::collections::BTreeMap;

use block::Block;
use owners::{Owners, Segment};
use urgent::Urgent;

use crate::policy::OsPolicy;

/// Data further apart than this is in separate regions.
const REGION: u64 = 256 << 10;
/// Memory of a block of early data besides its bytes: its place in the tree, with what a tree leaves free, and that of an allocation.
const BLOCK: u64 = 96;

/// The doubt of bytes that the receiver has had no room for: those that come next are it.
const LACKED: u8 = 200;

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inserted {
    /// Bytes that are new to the stream.
    pub new: u32,
    /// Whether some bytes were there already.
    pub overlap: bool,
    /// Whether some of those were different.
    pub different: bool,
    /// Where in the stream an urgent byte was taken out.
    pub urgent: Option<u64>,
}

/// One direction's data. First what data that comes in order touches.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct StreamBuffer {
    /// What is in order, behind the last hole that the receiver does not have. By stream offset.
    run: Block,
    /// The sequence offset of the first byte that is not in order: that of the end of `run`.
    next: u64,
    /// The receiver has everything before this sequence offset.
    acked: u64,
    /// Urgent bytes, where there were any.
    urgent: Option<Box<Urgent>>,
    /// Nothing before this stream offset is taken any more.
    floor: u64,
    /// Everything before this stream offset was freed.
    released: u64,
    /// What is in order before the last hole, oldest first. By stream offset.
    older: Vec<Block>,
    /// What is not in order, by sequence offset. No two overlap.
    early: BTreeMap<u64, Block>,
    /// Of the bytes that may be replaced, by whom.
    owners: Owners,
    /// Sequence offsets of what came early and was put in order last, when what was missing before it came: 0 and 0 once that is
    /// acknowledged.
    filled: (u64, u64),
    fills_from: u64,
    /// Bytes of memory that early data holds.
    early_memory: u64,
    /// Regions that there are besides the first.
    far: u32,
    /// Most regions that there were at a time.
    regions_seen: u16,
    /// Whether bytes that are in order may be replaced: the receiver's system says so.
    replaces_in_order: bool,
    /// Whether what was put in order last was so with the segment at hand; where that ends is `fills_from`.
    fills: bool,
    /// What is put in order is read at once.
    at_once: bool,
    /// What is expected first is not known yet.
    floats: bool,
}

/// Whether what ends at `end` and what begins at `start` are in separate regions.
const fn apart(end: u64, start: Option<u64>) -> u32 {
    match start {
        Some(start) if start.saturating_sub(end) > REGION => 1,
        _ => 0,
    }
}

impl StreamBuffer {
    /// A buffer of which it is not known yet what is expected first ([`StreamBuffer::begin_at`]): nothing is in order before that.
    pub fn floating() -> StreamBuffer {
        StreamBuffer { floats: true, ..StreamBuffer::default() }
    }

    /// What is put in order is read at once, and cannot give way any more.
    pub const fn read_at_once(&mut self) {
        self.at_once = true;
    }

    /// A buffer in which everything before the sequence offset `next` is in order, and is not held. It is taken where it comes.
    pub fn behind(next: u64) -> StreamBuffer {
        StreamBuffer { next, run: Block::at(next), ..StreamBuffer::default() }
    }

    /// Nothing is in order yet: the first byte expected is the one at the sequence offset `start`, and offsets count from there.
    /// Nothing that is held is before it.
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

    /// The first byte expected is `add` bytes before what was taken for the first: everything moves by that, and nothing is in order
    /// any more. `false`, and nothing is done, where some was freed or taken out already.
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

    /// Moves early data.
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

    /// Prefetches it: reads a field of each cache line that data in order needs. The sum means nothing.
    #[inline]
    pub(crate) fn warm(&self) -> u64 {
        self.next ^ self.released ^ self.early.len() as u64
    }

    /// Everything before this stream offset was freed.
    pub const fn freed(&self) -> u64 {
        self.released
    }

    /// The stream offset of the end of what is in order.
    pub fn in_order_end(&self) -> u64 {
        self.run.end()
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> u64 {
        let older: usize = self.older.iter().map(Block::memory).sum();
        let older = older + self.older.capacity() * size_of::<Block>();
        let urgent = self.urgent.as_ref().map_or(0, |u| u.memory());
        self.run.memory() as u64 + older as u64 + self.early_memory + self.owners.memory() + urgent
    }

    /// Most regions that there were at a time: stretches more than 256 KiB apart.
    pub const fn regions_seen(&self) -> u16 {
        self.regions_seen
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.run.len() == 0 && self.older.is_empty() && self.early.is_empty()
    }

    /// The stream offset of the end of the last byte held.
    pub fn end(&self) -> u64 {
        self.early.last_key_value().map_or(self.run.end(), |(_, b)| self.stream_of(b.end()))
    }

    /// The sequence offset of the first byte that is not in order.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether something waits for what is missing before it.
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether some of it came with a doubt that was not settled.
    pub fn has_doubtful(&self) -> bool {
        self.owners.has_doubtful()
    }

    /// How many urgent bytes were taken out.
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

    /// The byte at the sequence offset `at` is urgent: it is taken out when it gets in order. Whether the pointer counts: it points
    /// behind what is in order, and behind what the last one pointed at.
    pub fn point_urgent(&mut self, at: u64) -> bool {
        self.urgent.get_or_insert_default().point(at, self.next)
    }

    /// Whether an urgent pointer counted that points before the sequence offset `at`, and none that points further.
    pub fn had_urgent_before(&self, at: u64) -> bool {
        self.urgent.as_ref().is_some_and(|u| u.is_behind(at) && u.latest().is_some_and(|last| last < at))
    }

    /// The sequence offset that the latest urgent pointer points at, where its receiver has not come to that. What was put in order
    /// over a hole at the end ([`StreamBuffer::finish`]) does not count.
    pub fn pending_urgent(&self) -> Option<u64> {
        self.urgent.as_ref().and_then(|u| u.pending())
    }

    /// Whether a pointer to the byte at the sequence offset `at` would count.
    pub fn would_point_urgent(&self, at: u64) -> bool {
        at >= self.next && self.urgent.as_ref().is_none_or(|u| u.is_behind(at))
    }

    /// Adds the bytes of a segment at the sequence offset `start`. What is before the floor is left out. Bytes that are there
    /// already stay, but for those that the receiver replaces: `policy` says which where they are not in order. `doubt`: how likely it
    /// is that the receiver discarded the segment, 0 being not at all.
    pub fn insert(&mut self, start: u64, bytes: &[u8], policy: OsPolicy, doubt: u8) -> Inserted {
        // In order, and nothing came early: all there is to do for most segments.
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

    /// Takes bytes that are before what is expected next: they repeat what is in order, or fill a hole that was given up.
    fn again(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let end = from + bytes.len() as u64;
        let mut at = from;
        while at < end {
            // Urgent bytes that were taken out have no place in the stream.
            let taken = self.urgent.as_ref().and_then(|u| u.next_taken(at)).filter(|t| *t < end);
            let stop = taken.unwrap_or(end);
            if at < stop {
                self.again_plain(at, between(bytes, from, at, stop), segment, policy, done);
            }
            at = if taken.is_some() { stop + 1 } else { stop };
        }
    }

    /// As [`StreamBuffer::again`], of bytes that are all in the stream.
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

    /// Puts bytes before the run `i`, where a hole was given up.
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
                    // What was run `i` has moved down.
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

    /// The first run that ends behind `at`; the last one where none does.
    fn run_ending_after(&self, at: u64) -> usize {
        self.older.partition_point(|b| b.end() <= at)
    }

    fn run_at(&self, i: usize) -> &Block {
        self.older.get(i).unwrap_or(&self.run)
    }

    fn run_start(&self, i: usize) -> u64 {
        self.run_at(i).start
    }

    /// Takes bytes from what is expected next on.
    fn onward(&mut self, from: u64, bytes: &[u8], segment: Segment, policy: OsPolicy, done: &mut Inserted) {
        let end = from + bytes.len() as u64;
        if !self.early.is_empty() {
            self.overlap_early(from, bytes, segment, policy, done);
        }
        let owned = segment.doubt > 0 || policy.replaces();
        let mut at = from;
        while at < end {
            let before = self.early.range(..=at).next_back().map(|(k, b)| (*k, b.end()));
            if let Some((_, stop)) = before.filter(|b| b.1 > at) {
                at = stop;
                continue;
            }
            let behind = self.early.range(at..).next().map(|(k, _)| *k);
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
        // What was waiting there has no doubt any more, or was acknowledged before it was seen.
        self.absorb(done);
        self.regions_seen = self.regions_seen.max(u16::try_from(self.far + 1).unwrap_or(u16::MAX));
    }

    /// Decides for the bytes of a segment that came early already.
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

    /// Puts early bytes where none are: behind a block that ends there, in front of one that begins where they end (`behind`), or
    /// in a block of their own.
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

    /// Adds bytes that are in order.
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

    /// Adds the early data that is in order now: up to the first byte that came with a doubt, and was not acknowledged.
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
            // What the segment at hand replaced came with it.
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

    /// The receiver has everything before the sequence offset `acked`: holes before that are given up, and what is behind them is in
    /// order. Bytes before it cannot be replaced any more. Returns whether some of those came with a doubt.
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
            // What was missing before it did not come here: the receiver had it, and said so when it liked.
            self.filled = (0, 0);
        }
        doubtful
    }

    /// A receiver acknowledges early data as soon as what was missing before it comes. One that says that it expects a byte of that
    /// after all had no room for it, and waits for it to come again.
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

    /// Nothing more will come: what is early counts as in order, holes are given up.
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

    /// Goes on with the early data at `at`, the first there is, as far as it is in order but for a hole before it.
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

    /// Data of before the stream offset `floor`, and of what is in order, counts as decided: it is not taken any more, nor replaced.
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

    /// Frees data before the stream offset `before`, which is at or before the floor. Whether that gave memory back.
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

    /// Gives back the memory that no byte is in: not much will come any more.
    pub fn shrink(&mut self) {
        self.older.iter_mut().for_each(Block::shrink);
        self.run.shrink();
    }
}

/// Of bytes that begin at the offset `start`, those from `from` to `to`.
fn between(bytes: &[u8], start: u64, from: u64, to: u64) -> &[u8] {
    let (a, b) = (from.saturating_sub(start) as usize, to.saturating_sub(start) as usize);
    bytes.get(a..b.max(a)).unwrap_or(&[])
}

/// Copies what fits.
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
