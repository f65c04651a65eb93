//! A block of contiguous bytes.

use margay_flow::spare::Buffer;

/// An empty block keeps at most this much memory. Larger buffers go to the next stream with data, while they are still
/// in the CPU cache.
const KEEP: usize = 1 << 10;

/// Contiguous bytes, which grow at the end and are freed at the front.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Freed bytes at the front of `data` that are not yet moved out.
    head: usize,
    data: Buffer,
}

impl Block {
    /// An empty block that begins at `start`.
    pub(super) fn at(start: u64) -> Block {
        Block { start, ..Block::default() }
    }
    /// A block of `bytes` that begins at `start`.
    pub(super) fn of(start: u64, bytes: &[u8]) -> Block {
        Block { start, head: 0, data: bytes.to_vec().into() }
    }
    pub(super) fn bytes(&self) -> &[u8] {
        self.data.get(self.head..).unwrap_or(&[])
    }
    pub(super) fn len(&self) -> usize {
        self.data.len() - self.head
    }
    pub(super) fn end(&self) -> u64 {
        self.start + self.len() as u64
    }
    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.data.capacity()
    }
    fn within(&self, from: u64, to: u64) -> (usize, usize) {
        let (a, b) = (from.max(self.start) - self.start, to.min(self.end()).saturating_sub(self.start));
        (a as usize, b as usize)
    }
    /// The part of the block from offset `from` to `to`.
    pub(super) fn range(&self, from: u64, to: u64) -> &[u8] {
        let (a, b) = self.within(from, to);
        self.bytes().get(a..b).unwrap_or(&[])
    }
    pub(super) fn range_mut(&mut self, from: u64, to: u64) -> &mut [u8] {
        let (a, b) = self.within(from, to);
        self.data.get_mut(self.head + a..self.head + b).unwrap_or(&mut [])
    }
    /// Adds bytes at the end.
    #[inline]
    pub(super) fn append(&mut self, part: &[u8]) {
        if self.data.append_behind(self.head, part, 0) {
            self.head = 0;
        }
    }
    /// Adds bytes in front. The reserved room grows with the block, so that data arriving in reverse order is moved a
    /// constant number of times.
    pub(super) fn prepend(&mut self, part: &[u8]) {
        if part.len() > self.head {
            let room = part.len() + self.len();
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
    /// Appends the block that begins where this one ends. Copies the smaller of both.
    pub(super) fn join(&mut self, mut next: Block) {
        if next.len() > self.len() {
            next.prepend(self.bytes());
            *self = next;
        } else {
            self.append(next.bytes());
        }
    }
    /// Removes and returns the bytes from offset `at` on.
    pub(super) fn split_off(&mut self, at: u64) -> Block {
        let end = Block::of(at, self.range(at, self.end()));
        let left = self.data.len() - end.len();
        self.data.truncate(left);
        end
    }
    /// Frees the bytes before `floor`; returns whether memory was released.
    pub(super) fn release(&mut self, floor: u64) -> bool {
        let n = floor.saturating_sub(self.start).min(self.len() as u64);
        self.start += n;
        self.head += n as usize;
        if self.head == self.data.len() {
            self.head = 0;
            if self.data.capacity() > KEEP {
                self.data = Buffer::default();
                return true;
            }
            self.data.clear();
        } else if self.head > 4096 && self.head * 2 > self.data.len() {
            // Each byte moves at most once for every byte freed.
            let head = std::mem::take(&mut self.head);
            return self.data.forget_before(head);
        }
        false
    }
    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        if self.data.shrink(self.head) {
            self.head = 0;
        }
    }
}
