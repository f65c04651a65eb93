//! Brotli (RFC 7932): the library's decoder in steps, with a window that grows with the output.
//!
//! A stream declares the size of its window, up to 16 MiB, and the length of its next block. The library allocates that window
//! and fills it before it returns output: 26 bytes of input make it write and hold 16 MiB twice. The decoder therefore declares
//! a smaller window first, [`FIRST`]. While the output is no longer than the window, less the 16 bytes that a distance never
//! reaches (section 9.1), both windows give the same output. If more is needed, the decoder starts again with a window
//! [`GROWTH`] times as large, decodes the input so far, which it kept, and skips the output that it already returned. Time and
//! memory thus follow the output: a long stream decodes an eighth twice.

use std::fmt;

use brotli_decompressor::{Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, StandardAlloc};

use super::{Piece, SCRATCH, Step};

/// The first window, as a power of two: larger than what rules inspect of a body by default.
const FIRST: u32 = 17;
/// The growth of the power of two.
const GROWTH: u32 = 3;
/// The largest window of a stream, as a power of two.
const LARGEST: u32 = 24;
/// Bytes of the window that a distance never reaches.
const GAP: usize = 16;

/// Allocates memory for the library, and counts it.
#[derive(Default)]
struct Counted {
    inner: StandardAlloc,
    bytes: usize,
}

impl<T: Clone + Default> Allocator<T> for Counted
where
    StandardAlloc: Allocator<T>,
{
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
        self.bytes = self.bytes.saturating_add(len.saturating_mul(size_of::<T>()));
        self.inner.alloc_cell(len)
    }

    fn free_cell(&mut self, data: Self::AllocatedMemory) {
        self.bytes = self.bytes.saturating_sub(data.slice().len().saturating_mul(size_of::<T>()));
        self.inner.free_cell(data);
    }
}

type State = BrotliState<Counted, Counted, Counted>;

/// The size of input pieces for the library. It loses the output of a damaged piece. Small pieces at fixed positions keep that
/// loss small, and independent of how the input is split.
const BLOCK: usize = 64;

/// A decoder for `br`.
pub(super) struct Brotli {
    state: Box<State>,
    /// The largest window that the library may allocate now, as a power of two.
    window: u32,
    /// The stream declares a larger window.
    cut: bool,
    /// All input so far, in blocks, while it may have to be decoded again.
    kept: Vec<u8>,
    /// How much of `kept` the library has received since the last start.
    again: usize,
    /// Output from before the last start, which is skipped now.
    given: usize,
    /// Output since the last start.
    total: usize,
    block: [u8; BLOCK],
    /// Length of the data in `block`.
    count: usize,
    /// The block is complete: the library can have it.
    whole: bool,
    /// How much of the block the library has received.
    fed: usize,
    /// The input has ended.
    last: bool,
    done: bool,
}

impl fmt::Debug for Brotli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brotli").field("total", &self.total).field("done", &self.done).finish_non_exhaustive()
    }
}

fn state() -> Box<State> {
    let a = Counted::default;
    Box::new(State::new_strict(a(), a(), a()))
}

impl Brotli {
    pub(super) fn new() -> Brotli {
        Brotli {
            state: state(),
            window: FIRST,
            cut: false,
            kept: Vec::new(),
            again: 0,
            given: 0,
            total: 0,
            block: [0; BLOCK],
            count: 0,
            whole: false,
            fed: 0,
            last: false,
            done: false,
        }
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let library = self.state.alloc_u8.bytes + self.state.alloc_u32.bytes + self.state.alloc_hc.bytes;
        size_of::<State>() + library + self.kept.capacity()
    }

    /// Ends the body: an incomplete block is decoded as well.
    pub(super) fn finish(&mut self) {
        self.last = true;
    }

    /// The amount of output that is correct with the current window.
    const fn right(&self) -> usize {
        if self.cut { (1 << self.window) - GAP } else { usize::MAX }
    }

    /// Starts again with a larger window.
    fn grow(&mut self) {
        self.state = state();
        self.window = (self.window + GROWTH).min(LARGEST);
        self.cut = false;
        self.given = self.given.max(self.total);
        (self.again, self.total, self.count, self.fed, self.whole) = (0, 0, 0, 0, false);
    }

    /// Fills the block, first with data to decode again, then with input. Returns whether the library can have it.
    fn fill(&mut self, input: &mut &[u8]) -> bool {
        if self.whole {
            return true;
        }
        if let Some(rest) = self.kept.get(self.again..).filter(|rest| !rest.is_empty()) {
            let from = rest.get(..BLOCK).unwrap_or(rest);
            if let Some(to) = self.block.get_mut(..from.len()) {
                to.copy_from_slice(from);
            }
            self.count = from.len();
            self.again += from.len();
            self.whole = true;
            return true;
        }
        let (head, tail) = input.split_at((BLOCK - self.count).min(input.len()));
        if let Some(to) = self.block.get_mut(self.count..self.count + head.len()) {
            to.copy_from_slice(head);
        }
        self.count += head.len();
        *input = tail;
        self.whole = self.count == BLOCK || self.last;
        if self.whole && (self.is_new() || self.cut) {
            self.kept.extend_from_slice(self.block.get(..self.count).unwrap_or(&[]));
            self.again = self.kept.len();
        }
        self.whole
    }

    /// Whether the library has received nothing yet.
    const fn is_new(&self) -> bool {
        self.state.window_bits == 0
    }

    /// One step, like [`super::flate::Flate::step`].
    pub(super) fn step(&mut self, input: &mut &[u8], scratch: &mut [u8; SCRATCH]) -> Step {
        if self.done {
            return Step::End { lied: false };
        }
        // All correct output was returned, or the input exceeds the window and is not kept any longer.
        if self.cut && (self.total >= self.right() || self.kept.len() > 1 << self.window) {
            self.grow();
        }
        if !self.fill(input) {
            return Step::NeedInput;
        }
        // The first byte declares the window's size, before anything that depends on it.
        let new = self.is_new();
        let end = if new { self.count.min(1) } else { self.count };
        let block = self.block.get(..end).unwrap_or(&[]);
        let (mut left, mut room, mut made) = (end - self.fed, SCRATCH.min(self.right() - self.total), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut self.fed,
            block,
            &mut room,
            &mut made,
            scratch,
            &mut self.total,
            &mut self.state,
        );
        if new && self.state.window_bits > self.window {
            self.cut = true;
            self.state.window_bits = self.window;
            self.state.max_backward_distance = (1 << self.window) - GAP as i32;
        }
        if !self.cut && self.again == self.kept.len() {
            (self.kept, self.again) = (Vec::new(), 0);
        }
        let failed = match result {
            BrotliResult::ResultSuccess => {
                self.done = true;
                false
            }
            BrotliResult::NeedsMoreInput if end < self.count => return Step::Again { lied: false },
            BrotliResult::NeedsMoreInput => {
                // The library has stored what it could not use.
                (self.count, self.fed, self.whole) = (0, 0, false);
                false
            }
            BrotliResult::NeedsMoreOutput => false,
            // A distance that is valid in the stream's window may be out of range in this one.
            BrotliResult::ResultFailure if self.cut && self.state.pos as usize > self.right() => {
                self.grow();
                return Step::Again { lied: false };
            }
            BrotliResult::ResultFailure => true,
        };
        // Skip output that was returned before.
        let before = self.given.saturating_sub(self.total - made).min(made);
        match (made - before, failed) {
            (0, true) => Step::Failed,
            (0, false) if self.done => Step::End { lied: false },
            (0, false) if before > 0 || self.again < self.kept.len() => Step::Again { lied: false },
            (0, false) if matches!(result, BrotliResult::NeedsMoreOutput) => Step::Failed,
            (0, false) if input.is_empty() => Step::NeedInput,
            (0, false) => Step::Again { lied: false },
            _ => {
                let failed = failed.then_some(super::Status::Broken);
                // Twice the work of inflating.
                Step::Output(Piece { range: before..made, cost: (made - before).saturating_mul(2), failed })
            }
        }
    }
}
