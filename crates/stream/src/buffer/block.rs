//! Bytes without a hole.

use margay_flow::spare::Buffer;

/// An emptied block keeps no more memory than this: what is larger goes to whichever stream has data next, and is in the cache then.
const KEEP: usize = 1 << 10;

/// Bytes without a hole, which grow at their end and are freed at their front.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Bytes at the front of `data` that are freed but not yet moved out.
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
    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        self.data.capacity()
    }
    fn within(&self, from: u64, to: u64) -> (usize, usize) {
        let (a, b) = (from.max(self.start) - self.start, to.min(self.end()).saturating_sub(self.start));
        (a as usize, b as usize)
    }
    /// What it has of the bytes from offset `from` to `to`.
    pub(super) fn range(&self, from: u64, to: u64) -> &[u8] {
        let (a, b) = self.within(from, to);
        self.bytes().get(a..b).unwrap_or(&[])
    }
    pub(super) fn range_mut(&mut self, from: u64, to: u64) -> &mut [u8] {
        let (a, b) = self.within(from, to);
        self.data.get_mut(self.head + a..self.head + b).unwrap_or(&mut [])
    }
    /// Adds bytes behind.
    #[inline]
    pub(super) fn append(&mut self, part: &[u8]) {
        if self.data.append_behind(self.head, part, 0) {
            self.head = 0;
        }
    }
    /// Adds bytes in front. The room that is made grows with the block, so that data which arrives last byte first is moved a
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
    /// Joins it with the block that begins where it ends. The smaller of both is copied.
    pub(super) fn join(&mut self, mut next: Block) {
        if next.len() > self.len() {
            next.prepend(self.bytes());
            *self = next;
        } else {
            self.append(next.bytes());
        }
    }
    /// Takes what is from offset `at` on off its end.
    pub(super) fn split_off(&mut self, at: u64) -> Block {
        let end = Block::of(at, self.range(at, self.end()));
        let left = self.data.len() - end.len();
        self.data.truncate(left);
        end
    }
    /// Frees what is before `floor`; whether that gave memory back.
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
            // Each byte moves once at most for every byte freed.
            let head = std::mem::take(&mut self.head);
            return self.data.forget_before(head);
        }
        false
    }
    /// Gives back the memory that no byte is in.
    pub(super) fn shrink(&mut self) {
        if self.data.shrink(self.head) {
            self.head = 0;
        }
    }
}
