//! One direction's data: what came in order, what came early, and who had which byte first.
//!
//! Data is in blocks without holes; with in-order data there is one, which grows at its end. A segment that comes early
//! starts a block of its own; when the hole before it closes, blocks join. Beside the bytes stand the *pieces*: which
//! stretch came with which segment, for overlap policies compare segments. What all views are past is freed.

use std::collections::VecDeque;

use margay_flow::spare::Buffer;

use crate::policy::OsPolicy;

/// Most pieces kept; past it neighbours are joined, and then count as one segment.
const MAX_PIECES: usize = 2048;
/// Most blocks kept; a segment that needs one more is refused.
const MAX_BLOCKS: usize = 256;
/// Blocks further apart than this are separate regions.
const REGION: u64 = 256 << 10;
/// An emptied block keeps no more memory than this.
const KEEP: usize = 16 << 10;

#[derive(Debug, Clone, Default)]
struct Block {
    /// Stream offset of `data[head]`.
    start: u64,
    /// Bytes at the front of `data` that are freed but not yet moved out.
    head: usize,
    data: Buffer,
}

impl Block {
    fn bytes(&self) -> &[u8] {
        self.data.get(self.head..).unwrap_or(&[])
    }
    fn len(&self) -> usize {
        self.data.len() - self.head
    }
    fn end(&self) -> u64 {
        self.start + self.len() as u64
    }
    fn range(&self, from: u64, to: u64) -> &[u8] {
        let (a, b) = (from.max(self.start) - self.start, to.min(self.end()).saturating_sub(self.start));
        self.bytes().get(a as usize..b as usize).unwrap_or(&[])
    }
    fn range_mut(&mut self, from: u64, to: u64) -> &mut [u8] {
        let (a, b) = (from.max(self.start) - self.start, to.min(self.end()).saturating_sub(self.start));
        self.data.get_mut(self.head + a as usize..self.head + b as usize).unwrap_or(&mut [])
    }
    /// Adds bytes behind.
    #[inline]
    fn append(&mut self, part: &[u8]) {
        if self.data.append_behind(self.head, part, 0) {
            self.head = 0;
        }
    }
    /// Adds bytes in front.
    fn prepend(&mut self, part: &[u8]) {
        if part.len() > self.head {
            // With room for more: data that comes last byte first must not move everything with each of them.
            let room = part.len() + self.len().min(KEEP);
            self.data.splice(..self.head, std::iter::repeat_n(0, room));
            self.head = room;
        }
        let to = self.head - part.len();
        if let Some(space) = self.data.get_mut(to..self.head) {
            space.copy_from_slice(part);
        }
        self.head = to;
        self.start -= part.len() as u64;
    }
    /// Frees what is before `floor`; whether that gave memory back.
    fn release(&mut self, floor: u64) -> bool {
        let n = floor.saturating_sub(self.start).min(self.len() as u64);
        self.start += n;
        self.head += n as usize;
        if self.head == self.data.len() {
            self.data.clear();
            self.head = 0;
            if self.data.capacity() > KEEP {
                self.data = Buffer::default();
                return true;
            }
        } else if self.head > 4096 && self.head * 2 > self.data.len() {
            // Each byte moves once at most for every byte freed.
            self.data.drain(..self.head);
            self.head = 0;
        }
        false
    }
    /// Gives back the memory that no byte is in.
    fn shrink(&mut self) {
        if self.data.shrink(self.head) {
            self.head = 0;
        }
    }
}

/// A stretch of data and the segment that it came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    segment: (u64, u64),
}

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inserted {
    /// Bytes that are new to the stream.
    pub new: u32,
    /// Whether some bytes were there already.
    pub overlap: bool,
    /// Whether some of those were different.
    pub different: bool,
    /// Whether it was refused for want of blocks or regions.
    pub refused: bool,
}

/// One direction's data, by stream offset (0 is the first byte after the SYN).
#[derive(Debug, Clone, Default)]
pub struct StreamBuffer {
    blocks: Vec<Block>,
    pieces: VecDeque<Piece>,
    /// Nothing before this is taken any more.
    floor: u64,
    /// Everything before this was freed.
    released: u64,
    regions_seen: u16,
}

impl StreamBuffer {
    /// Bytes of memory that it holds.
    pub fn memory(&self) -> u64 {
        let data: usize = self.blocks.iter().map(|b| b.data.capacity()).sum();
        (data + self.blocks.capacity() * size_of::<Block>() + self.pieces.capacity() * size_of::<Piece>()) as u64
    }

    /// Most regions that there were at a time: stretches more than 256 KiB apart.
    pub const fn regions_seen(&self) -> u16 {
        self.regions_seen
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(|b| b.len() == 0)
    }

    /// End of the last byte held, or 0.
    pub fn end(&self) -> u64 {
        self.blocks.last().map_or(0, Block::end)
    }

    /// Everything before this is decided: it is not taken any more, nor replaced.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Adds a segment's bytes at stream offset `start`. What is before the floor is left out, what was there already is
    /// kept or replaced as `policy` says.
    pub fn insert(&mut self, start: u64, bytes: &[u8], policy: OsPolicy, max_regions: u16) -> Inserted {
        let mut done = Inserted::default();
        let end = start + bytes.len() as u64;
        if bytes.is_empty() || end <= self.floor {
            return done;
        }
        // In order, and nothing came early: all there is to do for most segments.
        if let [block] = self.blocks.as_mut_slice()
            && block.end() == start
            && start >= self.floor
        {
            block.append(bytes);
            self.pieces.push_back(Piece { start, end, segment: (start, end) });
            self.limit_pieces();
            done.new = bytes.len() as u32;
            return done;
        }
        let from = start.max(self.floor);
        let Some(bytes) = bytes.get((from - start) as usize..) else { return done };
        self.overlaps(from, end, (start, end), bytes, policy, &mut done);
        self.fill(from, end, (start, end), bytes, max_regions, &mut done);
        self.limit_pieces();
        done
    }

    /// Decides for every stretch that is there already.
    fn overlaps(
        &mut self,
        from: u64,
        end: u64,
        segment: (u64, u64),
        bytes: &[u8],
        policy: OsPolicy,
        done: &mut Inserted,
    ) {
        let mut i = self.pieces.partition_point(|p| p.end <= from);
        while let Some(&piece) = self.pieces.get(i)
            && piece.start < end
        {
            let (a, b) = (piece.start.max(from), piece.end.min(end));
            done.overlap = true;
            let new = bytes.get((a - from) as usize..(b - from) as usize).unwrap_or(&[]);
            let at = self.blocks.partition_point(|b| b.end() <= a);
            let Some(block) = self.blocks.get_mut(at) else { break };
            let old = block.range_mut(a, b);
            let different = old != new;
            done.different |= different;
            if policy.later_wins(piece.segment, segment) {
                if different && old.len() == new.len() {
                    old.copy_from_slice(new);
                }
                if (piece.start, piece.end) == (a, b) {
                    // As it is for all but the first and the last: nothing moves.
                    if let Some(p) = self.pieces.get_mut(i) {
                        p.segment = segment;
                    }
                    i += 1;
                    continue;
                }
                let mut parts = [None; 3];
                if piece.start < a {
                    parts[0] = Some(Piece { end: a, ..piece });
                }
                parts[1] = Some(Piece { start: a, end: b, segment });
                if b < piece.end {
                    parts[2] = Some(Piece { start: b, ..piece });
                }
                self.pieces.remove(i);
                for part in parts.into_iter().flatten() {
                    self.pieces.insert(i, part);
                    i += 1;
                }
            } else {
                i += 1;
            }
        }
    }

    /// Adds what was missing.
    fn fill(&mut self, from: u64, end: u64, segment: (u64, u64), bytes: &[u8], max_regions: u16, done: &mut Inserted) {
        let mut at = from;
        while at < end {
            // The first block that ends after `at`, or touches it.
            let i = self.blocks.partition_point(|b| b.end() <= at);
            let next = self.blocks.get(i).map_or(u64::MAX, |b| b.start);
            if next <= at {
                at = self.blocks.get(i).map_or(end, Block::end);
                continue;
            }
            let stop = next.min(end);
            let part = bytes.get((at - from) as usize..(stop - from) as usize).unwrap_or(&[]);
            if i > 0 && self.blocks.get(i - 1).is_some_and(|b| b.end() == at) {
                let joined = if stop == next { Some(self.blocks.remove(i)) } else { None };
                if let Some(b) = self.blocks.get_mut(i - 1) {
                    b.append(part);
                    if let Some(j) = joined {
                        b.append(j.bytes());
                    }
                }
            } else if stop == next && next != u64::MAX {
                if let Some(b) = self.blocks.get_mut(i) {
                    b.prepend(part);
                }
            } else {
                if self.blocks.len() >= MAX_BLOCKS || self.regions_with(at, stop) > max_regions {
                    done.refused = true;
                    return;
                }
                self.blocks.insert(i, Block { start: at, head: 0, data: part.to_vec().into() });
            }
            done.new += part.len() as u32;
            let p = self.pieces.partition_point(|p| p.start < at);
            self.pieces.insert(p, Piece { start: at, end: stop, segment });
            at = stop;
        }
        if self.blocks.len() > 1 {
            // An emptied first block only holds memory.
            if self.blocks.first().is_some_and(|b| b.len() == 0) {
                self.blocks.remove(0);
            }
            self.regions_seen = self.regions_seen.max(self.regions_with(from, from));
        } else {
            self.regions_seen = self.regions_seen.max(1);
        }
    }

    /// Regions there are with one more stretch.
    fn regions_with(&self, start: u64, end: u64) -> u16 {
        let mut n = 0u16;
        let mut last: Option<u64> = None;
        let mut added = false;
        let mut count = |s: u64, e: u64| {
            if last.is_none_or(|l| s.saturating_sub(l) > REGION) {
                n += 1;
            }
            last = Some(last.map_or(e, |l| l.max(e)));
        };
        for b in &self.blocks {
            if !added && start < b.start {
                count(start, end);
                added = true;
            }
            count(b.start, b.end());
        }
        if !added {
            count(start, end);
        }
        n
    }

    fn limit_pieces(&mut self) {
        if self.pieces.len() <= MAX_PIECES {
            return;
        }
        let mut joined: VecDeque<Piece> = VecDeque::with_capacity(MAX_PIECES);
        for p in self.pieces.drain(..) {
            match joined.back_mut() {
                Some(last) if last.end == p.start && joined_pair(last) => {
                    last.end = p.end;
                    last.segment = (last.segment.0.min(p.segment.0), last.segment.1.max(p.segment.1));
                }
                _ => joined.push_back(p),
            }
        }
        self.pieces = joined;
    }

    /// The first block that ends behind `at`.
    #[inline]
    fn first_after(&self, at: u64) -> Option<&Block> {
        match self.blocks.as_slice() {
            // As it is for most.
            [block] => Some(block).filter(|b| b.end() > at),
            blocks => blocks.get(blocks.partition_point(|b| b.end() <= at)),
        }
    }

    /// The bytes from `at` on that are there without a hole, up to `limit`; empty where there are none.
    pub fn contiguous(&self, at: u64, limit: u64) -> &[u8] {
        match self.first_after(at) {
            Some(b) if b.start <= at && at < limit => b.range(at, limit),
            _ => &[],
        }
    }

    /// Offset of the first byte held at or after `at`.
    pub fn next_at(&self, at: u64) -> Option<u64> {
        self.first_after(at).filter(|b| b.len() > 0).map(|b| b.start.max(at))
    }

    /// Start of the data without a hole that holds the byte before `at`; `at` where there is none.
    pub fn start_of(&self, at: u64) -> u64 {
        let i = self.blocks.partition_point(|b| b.end() < at);
        self.blocks.get(i).filter(|b| b.start <= at).map_or(at, |b| b.start)
    }

    /// Data of before `floor` counts as decided: it is not taken any more, nor replaced.
    pub fn set_floor(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        while self.pieces.front().is_some_and(|p| p.end <= floor) {
            self.pieces.pop_front();
        }
        if let Some(p) = self.pieces.front_mut()
            && p.start < floor
        {
            p.start = floor;
        }
    }

    /// Frees data before `before`, which is at or before the floor. Whether that gave memory back.
    pub fn release(&mut self, before: u64) -> bool {
        self.released = self.released.max(before);
        if let [block] = self.blocks.as_mut_slice() {
            return block.release(before);
        }
        let whole = self.blocks.iter().take_while(|b| b.end() <= before).count();
        // The last one stays, empty: in-order data goes on there.
        let gone = self.blocks.drain(..whole.min(self.blocks.len().saturating_sub(1))).count() > 0;
        self.blocks.first_mut().is_some_and(|b| b.release(before)) || gone
    }

    /// Gives back the memory that no byte is in: not much will come any more.
    pub fn shrink(&mut self) {
        self.blocks.iter_mut().for_each(Block::shrink);
        self.pieces.shrink_to_fit();
    }

    /// Compares bytes with what is held; whether some are different.
    pub fn differs(&self, start: u64, bytes: &[u8]) -> bool {
        let end = start + bytes.len() as u64;
        self.blocks.iter().any(|b| {
            let (a, z) = (b.start.max(start), b.end().min(end));
            a < z && bytes.get((a - start) as usize..(z - start) as usize) != Some(b.range(a, z))
        })
    }

    /// Whether some of these bytes are held.
    pub fn holds_any(&self, start: u64, end: u64) -> bool {
        self.next_at(start).is_some_and(|n| n < end)
    }

    /// Replaces `bytes`, at `start`, by what is held of them.
    pub fn rewrite(&self, start: u64, bytes: &mut [u8]) -> bool {
        let end = start + bytes.len() as u64;
        let mut changed = false;
        for b in &self.blocks {
            let (a, z) = (b.start.max(start), b.end().min(end));
            if a < z
                && let Some(to) = bytes.get_mut((a - start) as usize..(z - start) as usize)
            {
                let held = b.range(a, z);
                if to != held {
                    to.copy_from_slice(held);
                    changed = true;
                }
            }
        }
        changed
    }

    /// Everything held from `from` to `to`, what was freed left out, holes as `[n bytes missing]`, until `out` is `max` long.
    pub fn with_gaps(&self, from: u64, to: u64, max: usize, out: &mut Vec<u8>) {
        let mut at = from.max(self.released);
        for b in self.blocks.iter().filter(|b| b.len() > 0) {
            let (a, z) = (b.start.max(at), b.end().min(to));
            if a >= z || out.len() >= max {
                continue;
            }
            if a > at {
                out.extend_from_slice(format!("[{} bytes missing]", a - at).as_bytes());
            }
            let room = max.saturating_sub(out.len());
            let data = b.range(a, z);
            out.extend_from_slice(data.get(..room).unwrap_or(data));
            at = z;
        }
        // Where something came behind it, what is missing at the end is a hole like any other.
        if at < to && to <= self.end() && out.len() < max {
            out.extend_from_slice(format!("[{} bytes missing]", to - at).as_bytes());
        }
        out.truncate(max);
    }
}

/// Whether a piece may take its neighbour in: not larger than a window's worth.
const fn joined_pair(p: &Piece) -> bool {
    p.end - p.start < 64 << 10
}
